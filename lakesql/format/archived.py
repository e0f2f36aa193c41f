"""What an archived timeline is made of, from instants to bytes: version 6 log files and history files of version 8 on.

Version 6 (hudi-format 2.9): Avro blocks without instant, one HoodieArchivedMetaEntry per state file. Its schema is made
from the schemas of the records it holds, in the short form of Hudi 0.x: commit metadata without `compacted`, write stats
that end after fileSizeInBytes. Version 8 on (2.10): Parquet, one row per completed instant with the raw bytes of its file.
Not here: where the files lie, and which instants go into them.
"""

import io
import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from lakesql.format.log import AVRO, AVRO_CONTENT_VERSION, SCHEMA, encode_block
from lakesql.format.schemas import PLAN_SCHEMAS

Schema = dict[str, Any]

_STAT_FIELDS = 17
_LATER_FIELDS = {"compacted", "missingSchedulePartitions"}
_STRING: Schema = {"type": "string", "avro.java.string": "String"}


def _optional(name: str, kind: object) -> Schema:
    return {"name": name, "type": ["null", kind], "default": None}


def _short(schema: Any) -> Any:
    """A schema as Hudi 0.x has it: fields that came later left out."""
    if isinstance(schema, list):
        return [_short(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _short(value) for key, value in schema.items() if key != "namespace"}
    if found.get("type") == "record":
        fields = [f for f in found["fields"] if f["name"] not in _LATER_FIELDS]
        if found["name"] == "HoodieWriteStat":
            fields = fields[:_STAT_FIELDS]
        if found["name"] == "HoodieIndexPartitionInfo":
            fields = [f for f in fields if f["name"] != "extraMetadata"]
        found["fields"] = fields
    return found


def _named_once(schema: Any, seen: set[str]) -> Any:
    """The same schema with every record in full at its first place and by name after that."""
    if isinstance(schema, list):
        return [_named_once(one, seen) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("type") == "record":
        if schema["name"] in seen:
            return schema["name"]
        seen.add(schema["name"])
    return {key: _named_once(value, seen) for key, value in schema.items()}


def _compaction_metadata() -> Schema:
    counts = ("totalLogRecords", "totalLogFiles", "totalUpdatedRecordsCompacted")
    stat = {
        "type": "record",
        "name": "HoodieCompactionWriteStat",
        "fields": [
            _optional("partitionPath", _STRING),
            *(_optional(name, "long") for name in counts),
            _optional("hoodieWriteStat", "HoodieWriteStat"),
        ],
    }
    kinds = {"type": "map", "values": {"type": "array", "items": stat}, "avro.java.string": "String"}
    fields = [{"name": "partitionToCompactionWriteStats", "type": ["null", kinds]}]
    return {"type": "record", "name": "HoodieCompactionMetadata", "fields": fields}


def _archived_entry() -> Schema:
    def of(name: str) -> Any:
        return _short(PLAN_SCHEMAS[name])

    def bare(name: str, kind: object) -> Schema:
        return {"name": name, "type": ["null", kind], "default": None}

    fields = [
        bare("hoodieCommitMetadata", of("HoodieCommitMetadata")),
        bare("hoodieCleanMetadata", of("HoodieCleanMetadata")),
        bare("hoodieCompactionMetadata", _compaction_metadata()),
        bare("hoodieRollbackMetadata", of("HoodieRollbackMetadata")),
        bare("hoodieSavePointMetadata", of("HoodieSavepointMetadata")),
        bare("commitTime", _STRING),
        bare("actionType", _STRING),
        {"name": "version", "type": ["int", "null"], "default": 1},
        bare("hoodieCompactionPlan", of("HoodieCompactionPlan")),
        bare("hoodieCleanerPlan", of("HoodieCleanerPlan")),
        bare("actionState", _STRING),
        bare("hoodieReplaceCommitMetadata", of("HoodieReplaceCommitMetadata")),
        bare("hoodieRequestedReplaceMetadata", of("HoodieRequestedReplaceMetadata")),
        bare("HoodieInflightReplaceMetadata", "HoodieCommitMetadata"),
        bare("hoodieIndexCommitMetadata", of("HoodieIndexCommitMetadata")),
        bare("stateTransitionTime", _STRING),
    ]
    entry = {
        "type": "record",
        "name": "HoodieArchivedMetaEntry",
        "namespace": "org.apache.hudi.avro.model",
        "fields": fields,
    }
    found: Schema = _named_once(entry, set())
    return found


ARCHIVED_ENTRY: Mapping[str, Any] = _archived_entry()
"""The schema of a version 6 archive entry."""

_PARSED = fastavro.parse_schema(dict(ARCHIVED_ENTRY))


def encode_archive_log(entries: Sequence[Mapping[str, Any]], batch: int) -> bytes:
    """A version 6 archive file with these entries (records of ARCHIVED_ENTRY), `batch` of them in a block."""
    headers = {SCHEMA: json.dumps(ARCHIVED_ENTRY, separators=(",", ":"))}
    blocks = []
    for first in range(0, len(entries), batch):
        chunk = entries[first : first + batch]
        content = bytearray(struct.pack(">ii", AVRO_CONTENT_VERSION, len(chunk)))
        for entry in chunk:
            datum = io.BytesIO()
            fastavro.schemaless_writer(datum, _PARSED, dict(entry))
            content += struct.pack(">i", datum.tell()) + datum.getvalue()
        blocks.append(encode_block(AVRO, headers, content))
    return b"".join(blocks)


_HISTORY_AVRO = {
    "type": "record",
    "name": "HoodieLSMTimelineInstant",
    "namespace": "org.apache.hudi.avro.model",
    "fields": [
        *(_optional(name, _STRING) for name in ("instantTime", "completionTime", "action")),
        *(_optional(name, "bytes") for name in ("metadata", "plan")),
        {"name": "version", "type": "int", "default": 1},
    ],
}
HISTORY_SCHEMA = pa.schema(
    [
        ("instantTime", pa.string()),
        ("completionTime", pa.string()),
        ("action", pa.string()),
        ("metadata", pa.binary()),
        ("plan", pa.binary()),
        pa.field("version", pa.int32(), nullable=False),
    ]
)
_HISTORY_METADATA = {
    "parquet.avro.schema": json.dumps(_HISTORY_AVRO, separators=(",", ":")),
    "writer.model.name": "avro",
}


def encode_history(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """A history file with these rows (names of HISTORY_SCHEMA), sorted by instant."""
    ordered = sorted(rows, key=lambda row: (row["instantTime"], row["completionTime"]))
    return history_bytes(pa.Table.from_pylist([dict(row) for row in ordered], HISTORY_SCHEMA))


def history_bytes(table: pa.Table) -> bytes:
    """The Parquet file of a table with the columns of HISTORY_SCHEMA."""
    sink = io.BytesIO()
    with pq.ParquetWriter(
        sink,
        HISTORY_SCHEMA,
        compression="gzip",
        use_dictionary=False,
        store_schema=False,
        version="1.0",
        data_page_version="1.0",
    ) as writer:
        writer.write_table(table.cast(HISTORY_SCHEMA))
        writer.add_key_value_metadata(_HISTORY_METADATA)
    return sink.getvalue()
