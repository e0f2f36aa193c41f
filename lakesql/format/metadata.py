"""What `.hoodie` holds besides names: table settings, commit metadata, and the records of all other actions.

This is the door to the modules behind it: `properties` and `config` for hoodie.properties, `schemas` and `container`
for Avro. Its own part is commit metadata (hudi-format 2.4, 2.7): one value for commit, deltacommit and replacecommit,
written as pretty JSON in table version 6 and as an Avro container from version 8 on, with every field that Hudi
writes. Reading goes by the first bytes, not by the version, skips unknown fields, and takes missing ones as None.
Not here: where the files lie and when they may be written.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from lakesql.errors import FormatError
from lakesql.format.config import TableConfig, new_table_properties, table_checksum
from lakesql.format.container import MAGIC, read_container, write_container
from lakesql.format.properties import format_properties, parse_properties
from lakesql.format.schemas import PLAN_SCHEMAS

__all__ = [
    "PLAN_SCHEMAS",
    "CommitMetadata",
    "TableConfig",
    "WriteStat",
    "commit_from_record",
    "commit_record",
    "decode_commit",
    "decode_record",
    "encode_commit",
    "encode_record",
    "format_properties",
    "new_table_properties",
    "parse_properties",
    "table_checksum",
]

COMMIT_RECORDS = ("HoodieCommitMetadata", "HoodieReplaceCommitMetadata")


@dataclass(frozen=True, slots=True)
class WriteStat:
    """What one action did to one file group; fields as in hudi-format 2.7, in that order."""

    file_id: str | None = None
    path: str | None = None
    prev_commit: str | None = None
    num_writes: int | None = None
    num_deletes: int | None = None
    num_update_writes: int | None = None
    total_write_bytes: int | None = None
    total_write_errors: int | None = None
    partition_path: str | None = None
    total_log_records: int | None = None
    total_log_files: int | None = None
    total_updated_records_compacted: int | None = None
    num_inserts: int | None = None
    total_log_blocks: int | None = None
    total_corrupt_log_block: int | None = None
    total_rollback_blocks: int | None = None
    file_size_in_bytes: int | None = None
    log_version: int | None = None
    log_offset: int | None = None
    base_file: str | None = None
    log_files: tuple[str, ...] | None = None
    cdc_stats: Mapping[str, int] | None = None
    prev_base_file: str | None = None
    min_event_time: int | None = None
    max_event_time: int | None = None
    runtime_stats: Mapping[str, int | None] | None = None
    """totalScanTime, totalCreateTime, totalUpsertTime in ms."""
    total_log_files_compacted: int | None = None
    total_log_read_time_ms: int | None = None
    total_log_size_compacted: int | None = None
    temp_path: str | None = None
    num_updates: int | None = None


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """The content of a completed (or inflight) commit, deltacommit or replacecommit."""

    partition_stats: Mapping[str, tuple[WriteStat, ...]] = field(default_factory=dict)
    """Partition path to the stats of its file groups; the key counts, not the field inside the stat."""
    operation: str | None = None
    extra: Mapping[str, str] = field(default_factory=dict)
    """'schema' and whatever else the writer left."""
    compacted: bool | None = None
    replaced: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Partition path to the ids of the file groups that this action takes out."""


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.title() for part in rest)


_FIELDS = {f.name: _camel(f.name) for f in fields(WriteStat)}
"""Field of WriteStat to its name on storage, in Avro order."""

# Java keeps the counts as plain numbers: 0, never null, and a reader that unboxes a null falls over.
_NULLABLE_NUMBERS = {"total_log_files", "log_version", "log_offset", "min_event_time", "max_event_time"}
_COUNTS = frozenset(f.name for f in fields(WriteStat) if f.type == (int | None)) - _NULLABLE_NUMBERS

_JSON_ORDER = (
    "file_id",
    "path",
    "cdc_stats",
    "prev_commit",
    "num_writes",
    "num_deletes",
    "num_update_writes",
    "num_inserts",
    "total_write_bytes",
    "total_write_errors",
    "temp_path",
    "partition_path",
    "total_log_records",
    "total_log_files_compacted",
    "total_log_size_compacted",
    "total_updated_records_compacted",
    "total_log_blocks",
    "total_corrupt_log_block",
    "total_rollback_blocks",
    "file_size_in_bytes",
    "min_event_time",
    "max_event_time",
    "runtime_stats",
)
_JSON_LOG_FIELDS = ("log_version", "log_offset", "base_file", "log_files")


_TOP_FIELDS = {"partitionToWriteStats", "compacted", "extraMetadata", "operationType", "partitionToReplaceFileIds"}


def encode_commit(meta: CommitMetadata, *, version: int, replace: bool) -> bytes:
    """The body of a completed or inflight file.

    `replace` is for the completed file of a replacecommit, which also lists `replaced`.
    """
    assert replace or not meta.replaced, "only a replacecommit can replace file groups"
    record: dict[str, Any] = {
        "partitionToWriteStats": {
            partition: [_stat_record(stat, version) for stat in stats]
            for partition, stats in meta.partition_stats.items()
        },
        "compacted": bool(meta.compacted),
        "extraMetadata": dict(meta.extra),
    }
    if version >= 8:
        # 1.x writes null here, not the schema's default.
        record["version"] = None
    record["operationType"] = meta.operation
    if replace:
        record["partitionToReplaceFileIds"] = {partition: list(ids) for partition, ids in meta.replaced.items()}
    if version >= 8:
        return write_container(record, PLAN_SCHEMAS[COMMIT_RECORDS[replace]])
    return json.dumps(record, indent=2, separators=(",", " : ")).encode()


def decode_commit(data: bytes, where: str, *, version: int | None = None) -> CommitMetadata:
    """The content of a completed or inflight file, JSON or Avro by its first bytes; an empty file is an empty commit.

    With `version`, the table's, the form must be the one of that version. FormatError when it is not or when the
    bytes are damaged.
    """
    if not data:
        return CommitMetadata()
    is_avro = data[:4] == MAGIC
    if version is not None and is_avro != (version >= 8):
        raise FormatError(_form_text(data, where, version))
    if not is_avro:
        return commit_from_record(_json_object(data, where), where)
    records, schema = read_container(data, where)
    if schema.get("name") not in COMMIT_RECORDS or len(records) != 1:
        raise FormatError(
            f"{where}: expected one {COMMIT_RECORDS[0]} or {COMMIT_RECORDS[1]}, "
            f"found {len(records)} records {schema.get('name')}. The file belongs to another action; restore it."
        )
    return commit_from_record(records[0], where)


def commit_from_record(record: Mapping[str, Any], where: str) -> CommitMetadata:
    """Commit metadata from its record as Avro or JSON gives it; also the shorter one of an archived commit."""
    try:
        stats = {
            str(partition): tuple(_stat(one) for one in found)
            for partition, found in (record.get("partitionToWriteStats") or {}).items()
        }
        replaced = {
            str(partition): tuple(ids) for partition, ids in (record.get("partitionToReplaceFileIds") or {}).items()
        }
        extra = dict(record.get("extraMetadata") or {})
        return CommitMetadata(stats, record.get("operationType"), extra, record.get("compacted"), replaced)
    except (AttributeError, TypeError, ValueError) as error:
        raise FormatError(
            f"{where}: the commit metadata does not have the expected shape ({error}). Restore the file."
        ) from error


def commit_record(meta: CommitMetadata, *, replace: bool = False) -> dict[str, Any]:
    """The record of a commit for an archive of version 6, which has fewer fields."""
    record: dict[str, Any] = {
        "partitionToWriteStats": {
            partition: [{camel: getattr(stat, name) for name, camel in _FIELDS.items()} for stat in stats]
            for partition, stats in meta.partition_stats.items()
        },
        "extraMetadata": dict(meta.extra),
        "version": 1,
        "operationType": meta.operation,
    }
    if replace:
        record["partitionToReplaceFileIds"] = {partition: list(ids) for partition, ids in meta.replaced.items()}
    return record


def encode_record(name: str, record: Mapping[str, Any]) -> bytes:
    """A container file with one record of PLAN_SCHEMAS[name]; fields with a default may be missing."""
    return write_container(dict(record), PLAN_SCHEMAS[name])


def decode_record(data: bytes, where: str) -> dict[str, Any]:
    """The only record of a container file of any schema. FormatError when there is not exactly one."""
    records, schema = read_container(data, where)
    if len(records) != 1 or not isinstance(records[0], dict):
        raise FormatError(
            f"{where}: expected one record, found {len(records)} of {schema.get('name')}. Restore the file."
        )
    found: dict[str, Any] = records[0]
    return found


def _stat_record(stat: WriteStat, version: int) -> dict[str, Any]:
    record = {camel: _stored(stat, name) for name, camel in _FIELDS.items()}
    if version >= 8:
        return record
    ordered = {_FIELDS[name]: record[_FIELDS[name]] for name in _JSON_ORDER}
    if stat.log_files is not None or stat.log_version is not None:
        ordered |= {_FIELDS[name]: record[_FIELDS[name]] for name in _JSON_LOG_FIELDS}
        ordered["recordsStats"] = {"val": None}
    elif stat.prev_base_file is not None:
        ordered["prevBaseFile"] = stat.prev_base_file
    return ordered


def _stored(stat: WriteStat, name: str) -> Any:
    value = getattr(stat, name)
    if value is None:
        return 0 if name in _COUNTS else None
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value


def _stat(record: Mapping[str, Any]) -> WriteStat:
    logs = record.get("logFiles")
    values: dict[str, Any] = {name: record.get(camel) for name, camel in _FIELDS.items()}
    values["log_files"] = None if logs is None else tuple(logs)
    return WriteStat(**values)


def _json_object(data: bytes, where: str) -> dict[str, Any]:
    try:
        record = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FormatError(
            f"{where}: expected commit metadata as JSON or Avro, found {len(data)} bytes that are neither "
            f"(first bytes {data[:4].hex(' ')}; {error}). The file is torn or was changed; restore it, "
            "or roll the instant back."
        ) from error
    if not isinstance(record, dict):
        raise FormatError(f"{where}: expected a JSON object, found {type(record).__name__}. Restore the file.")
    if record and not _TOP_FIELDS & record.keys():
        raise FormatError(f"{where}: the JSON object is no commit metadata, its keys are {', '.join(sorted(record))}.")
    return record


def _form_text(data: bytes, where: str, version: int) -> str:
    expected, found = ("Avro", "JSON") if version >= 8 else ("JSON", "Avro")
    found = found if data[:1] in (b"{", b"O") else "something else"
    return (
        f"{where}: expected {expected}, found {found} (first bytes {data[:4].hex(' ')}). hoodie.properties says table "
        f"version {version}, which stores completed commits as {expected}. If the table was upgraded or downgraded by "
        "hand, restore hoodie.properties; otherwise the file was copied from another table."
    )
