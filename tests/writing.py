"""Small tables for tests of the write path, below `lakesql.Table`: states in, states out.

Columns as in `samples`: id (key), city (partition), v (value), ts (ordering). Rows are SQL, so that types are plain.
"""

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from lakesql.format import log
from lakesql.format.files import LogFile
from lakesql.format.metadata import WriteStat
from lakesql.storage import LocalStorage, Storage
from lakesql.table import read
from lakesql.table.state import TableState, load
from lakesql.write import WriteResult, write
from lakesql.write.create import create

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("v", pa.int64()), ("ts", pa.int64())])
CON = duckdb.connect()


def table(
    path: Path | str,
    type_: str = "cow",
    version: int = 9,
    *,
    schema: pa.Schema = SCHEMA,
    event: bool = True,
    **more: Any,
) -> TableState:
    """An empty table at `path`; `event`: event-time ordering by ts."""
    options: dict[str, Any] = {
        "primary_key": ["id"],
        "partitioned_by": ["city"],
        "ordering_fields": ["ts"] if event else [],
    }
    return create(LocalStorage(str(path)), schema, name="t", type=type_, version=version, **(options | more))


def values(*rows: tuple[Any, ...], columns: str = "id, city, v, ts") -> str:
    """The SQL of literal rows."""
    texts = (", ".join("NULL" if v is None else repr(v) for v in row) for row in rows)
    return f"SELECT * FROM (VALUES {', '.join(f'({t})' for t in texts)}) t({columns})"


def put(
    state: TableState, rows: str, operation: str = "upsert", storage: Storage | None = None, **more: Any
) -> WriteResult:
    """Write to the table as it is now."""
    now = load(storage or state.storage)
    return write(CON, now, rows, operation=operation, **more)


def upsert(state: TableState, *rows: tuple[Any, ...], **more: Any) -> WriteResult:
    return put(state, values(*rows), **more)


def delete(state: TableState, *rows: tuple[Any, ...], **more: Any) -> WriteResult:
    return put(state, values(*rows, columns="id, city"), "delete", **more)


def rows_of(state: TableState, columns: str = "id, city, v, ts") -> list[tuple[Any, ...]]:
    """The rows of the table as it is now, sorted."""
    now = load(state.storage)
    found = CON.execute(f"SELECT {columns} FROM ({read.to_sql(CON, read.plan(now))})").fetchall()
    return sorted(found, key=repr)


def stats_of(state: TableState) -> list[WriteStat]:
    """The write stats of the newest commit."""
    now = load(state.storage)
    newest = max(now.timeline.completed_writes(), key=lambda i: i.requested)
    return [s for stats in now.commit(newest).partition_stats.values() for s in stats]


def base_tables(state: TableState) -> list[pa.Table]:
    """The newest base file of every group, whole."""
    now = load(state.storage)
    return [pq.read_table(now.storage.data_path(f.path), partitioning=None) for f in now.base_files()]


def blocks_of(state: TableState) -> list[log.Block]:
    """The blocks of all log files, in the order of their names."""
    now = load(state.storage)
    logs = sorted((f for f in now.files if isinstance(f, LogFile)), key=lambda f: f.name)
    return [b for f in logs for b in log.scan_blocks(now.storage.read(f.path), f.name)]


def listing(path: Path | str) -> set[str]:
    """Every file below a folder, lock files aside."""
    root = Path(path)
    return {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file() and ".locks" not in p.parts}


def rust_rows(state: TableState) -> list[tuple[Any, ...]]:
    """What hudi-rs reads."""
    from hudi import HudiTableBuilder

    batches = HudiTableBuilder.from_base_uri(state.path).build().read()
    found = pa.Table.from_batches(batches).to_pylist() if batches else []
    return sorted((tuple(row[c] for c in SCHEMA.names) for row in found), key=repr)


def fixed_ids(prefix: str = "f") -> Iterator[str]:
    return (f"{prefix}{i}" for i in itertools.count())


def properties(state: TableState) -> Mapping[str, str]:
    return load(state.storage).config.properties
