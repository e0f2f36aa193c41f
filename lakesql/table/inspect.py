"""What a table consists of, as small Arrow tables: timeline, files, partitions, properties, schema, log blocks.

The content behind `hudi_timeline`, `hudi_files` and their like; one function each, all pure questions to a
`TableState` (log blocks alone are read from their files).
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from lakesql.format import log
from lakesql.format.files import all_slices
from lakesql.format.timeline import COMPLETED, normalise_instant
from lakesql.table.logs import committed_blocks
from lakesql.table.state import TableState

_TIMELINE = pa.schema(
    [
        ("instant", pa.string()),
        ("action", pa.string()),
        ("state", pa.string()),
        ("completed", pa.string()),
        ("operation", pa.string()),
        ("file_name", pa.string()),
        ("archived", pa.bool_()),
        ("rows_written", pa.int64()),
        ("rows_inserted", pa.int64()),
        ("rows_updated", pa.int64()),
        ("rows_deleted", pa.int64()),
        ("files_written", pa.int64()),
        ("partitions_written", pa.int64()),
        ("bytes_written", pa.int64()),
    ]
)
_FILES = pa.schema(
    [
        ("partition_path", pa.string()),
        ("file_id", pa.string()),
        ("base_instant", pa.string()),
        ("base_file", pa.string()),
        ("base_bytes", pa.int64()),
        ("log_count", pa.int64()),
        ("log_bytes", pa.int64()),
        ("log_files", pa.list_(pa.string())),
        ("latest", pa.bool_()),
    ]
)


def timeline(state: TableState, archived: bool = False) -> pa.Table:
    """One row per instant, oldest first. Counts are NULL for instants that are no completed write."""
    rows: list[dict[str, Any]] = []
    known = state.history.archived if archived else ()
    for instant in sorted((*known, *state.timeline.instants), key=lambda i: (i.requested, i.action)):
        row: dict[str, Any] = {
            "instant": instant.requested,
            "action": instant.action,
            "state": instant.state,
            "completed": instant.completed if state.timeline.layout >= 2 else None,
            "file_name": instant.file_name,
            "archived": instant in known,
        }
        if instant.state == COMPLETED and instant.completed_action in ("commit", "deltacommit", "replacecommit"):
            metadata = state.commit(instant)
            stats = [s for group in metadata.partition_stats.values() for s in group]
            row |= {
                "operation": metadata.operation,
                "rows_written": sum(s.num_writes or 0 for s in stats),
                "rows_inserted": sum(s.num_inserts or 0 for s in stats),
                "rows_updated": sum(s.num_update_writes or 0 for s in stats),
                "rows_deleted": sum(s.num_deletes or 0 for s in stats),
                "files_written": len(stats),
                "partitions_written": sum(1 for group in metadata.partition_stats.values() if group),
                "bytes_written": sum(s.total_write_bytes or 0 for s in stats),
            }
        rows.append(row)
    return _table(rows, _TIMELINE)


def files(state: TableState, as_of: str | None = None, partition: str | None = None) -> pa.Table:
    """One row per readable file slice of each live file group, newest slice of a group first (`latest`)."""
    instant = normalise_instant(as_of) if as_of is not None else None
    slices = all_slices(
        state.files,
        state.view_timeline,
        version=state.config.version,
        as_of=instant,
        replaced=state.replaced(instant),
        pending_compactions=state.pending_compactions,
    )
    rows: list[dict[str, Any]] = []
    seen: set[tuple[str, str]] = set()
    for piece in sorted(slices, key=lambda s: s.instant, reverse=True):
        if partition is not None and piece.partition != partition:
            continue
        group = (piece.partition, piece.file_id)
        rows.append(
            {
                "partition_path": piece.partition,
                "file_id": piece.file_id,
                "base_instant": piece.instant,
                "base_file": piece.base.name if piece.base else None,
                "base_bytes": piece.base.size_bytes if piece.base else None,
                "log_count": len(piece.logs),
                "log_bytes": sum(f.size_bytes for f in piece.logs),
                "log_files": [f.name for f in piece.logs],
                "latest": group not in seen,
            }
        )
        seen.add(group)
    rows.sort(key=lambda r: (r["partition_path"], r["file_id"]))
    return _table(rows, _FILES)


def partitions(state: TableState) -> pa.Table:
    """One row per partition path that holds live file groups: groups, base files, log files and their bytes."""
    rows: dict[str, dict[str, Any]] = {}
    for piece in state.slices():
        row = rows.setdefault(
            piece.partition,
            {"partition_path": piece.partition, "file_groups": 0, "base_bytes": 0, "log_count": 0, "log_bytes": 0},
        )
        row["file_groups"] += 1
        row["base_bytes"] += piece.base.size_bytes if piece.base else 0
        row["log_count"] += len(piece.logs)
        row["log_bytes"] += sum(f.size_bytes for f in piece.logs)
    names = ("file_groups", "base_bytes", "log_count", "log_bytes")
    schema = pa.schema([("partition_path", pa.string()), *((n, pa.int64()) for n in names)])
    return _table(list(rows.values()), schema)


def properties(state: TableState) -> pa.Table:
    """`hoodie.properties`, one row per key."""
    rows = [{"key": k, "value": v} for k, v in sorted(state.config.properties.items())]
    return _table(rows, pa.schema([("key", pa.string()), ("value", pa.string())]))


def schema(state: TableState) -> pa.Table:
    """One row per column of the table: name, Arrow type, nullable, and its part in keys, partitions and ordering."""
    config = state.config
    rows = [
        {
            "column_name": f.name,
            "type": str(f.type),
            "nullable": f.nullable,
            "record_key": f.name in config.record_key_fields,
            "partition": f.name in config.partition_fields,
            "ordering": f.name in config.ordering_fields,
        }
        for f in state.schema
    ]
    flags = ("nullable", "record_key", "partition", "ordering")
    return _table(
        rows, pa.schema([("column_name", pa.string()), ("type", pa.string()), *((n, pa.bool_()) for n in flags)])
    )


_BLOCK_NAMES = {log.DELETE: "delete", log.AVRO: "avro", log.HFILE: "hfile", log.PARQUET: "parquet"}


def log_blocks(state: TableState) -> pa.Table:
    """One row per committed log block of the latest slices, in merge order."""
    rows = []
    for piece in state.slices():
        for where, block in committed_blocks(state, piece, None):
            rows.append(
                {
                    "partition_path": piece.partition,
                    "file_id": piece.file_id,
                    "log_file": where.rsplit("/", 1)[-1],
                    "kind": _BLOCK_NAMES.get(block.kind, str(block.kind)),
                    "instant": block.headers.get(log.INSTANT_TIME),
                    "offset_bytes": block.offset,
                    "content_bytes": len(block.content),
                    "partial": block.headers.get(log.IS_PARTIAL, "").lower() == "true",
                }
            )
    texts = ("partition_path", "file_id", "log_file", "kind", "instant")
    fields: list[tuple[str, pa.DataType]] = [(n, pa.string()) for n in texts]
    fields += [("offset_bytes", pa.int64()), ("content_bytes", pa.int64()), ("partial", pa.bool_())]
    return _table(rows, pa.schema(fields))


def _table(rows: Sequence[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=schema)
