"""`Table`: one Hudi table in Python, without SQL text. The verbs of `contract` over an immutable `TableState`.

A handle looks at the storage again for every call, so it always answers from the newest completed instant. Rows go in
as anything with an Arrow stream (`__arrow_c_stream__`: pyarrow, pandas, polars, DuckDB relations, readers) and come
out as Arrow record batches. Each handle has a DuckDB connection of its own (`config` goes to it, e.g. memory_limit).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import duckdb
import pyarrow as pa

from lakesql.errors import TableError, Unsupported
from lakesql.storage import Storage, open_storage
from lakesql.table import inspect, state
from lakesql.table.interrupts import interrupts
from lakesql.table.known_settings import make_utc
from lakesql.table.names import quote
from lakesql.table.read import ReadPlan, plan_incremental, to_sql
from lakesql.table.read import plan as plan_read
from lakesql.write import WriteResult, create, write

Rows = Any  # an object with __arrow_c_stream__, a pyarrow reader, or a list of dicts


class Table:
    """A Hudi table at a path. Made by `open_table`, `create_table` and `Connection.table`."""

    def __init__(self, storage: Storage, config: Mapping[str, str] | None = None) -> None:
        self._storage = storage
        self._con = duckdb.connect(":memory:", config=dict(config or {}))
        self.state  # noqa: B018  a path that is no table fails here, not at the first read

    def __repr__(self) -> str:
        now = self.state
        kind = "Merge-on-Read" if now.config.is_mor else "Copy-on-Write"
        newest = max((i.requested for i in now.timeline.completed_writes()), default="no commit yet")
        return f"<lakesql.Table {now.name} at {now.path}: {kind}, version {now.config.version}, {newest}>"

    @property
    def state(self) -> state.TableState:
        """The table as it is now, as a value that never changes."""
        return state.load(self._storage)

    @property
    def path(self) -> str:
        return self._storage.uri

    @property
    def name(self) -> str:
        return self.state.name

    @property
    def schema(self) -> pa.Schema:
        """The table's columns, without the meta columns."""
        return self.state.schema

    @property
    def properties(self) -> dict[str, str]:
        """`hoodie.properties`."""
        return dict(self.state.config.properties)

    def read(
        self,
        as_of: str | None = None,
        mode: str = "snapshot",
        columns: Sequence[str] | None = None,
        where: str | None = None,
    ) -> pa.RecordBatchReader:
        """The rows: the meta columns, then the table's columns, or `columns`; `where` is a SQL condition.

        `as_of`: an instant (17 digits) or a timestamp text; `mode`: 'snapshot' or 'read_optimized'.
        Raises SQLError for a column or mode that does not exist, TableError for a state that was cleaned away.
        """
        plan = plan_read(self.state, as_of, mode)
        return self._reader(plan, columns, where)

    def changes(self, begin: str, end: str | None = None, kind: str = "latest_state") -> pa.RecordBatchReader:
        """The latest state of the rows changed in (begin, end]: completion times, version 6: instants; or 'earliest'.

        Raises TableError when cleaning or archiving has eaten the range, naming the earliest safe start.
        """
        if kind != "latest_state":
            raise Unsupported(f"changes(kind={kind!r}): only 'latest_state' can be read yet.")
        return self._reader(plan_incremental(self.state, begin, end), None, None)

    def _reader(self, plan: ReadPlan, columns: Sequence[str] | None, where: str | None) -> pa.RecordBatchReader:
        cur = self._con.cursor()
        make_utc(cur)
        unknown = [c for c in columns or [] if c not in plan.schema.names]
        if unknown:
            raise TableError(
                f"{self.path}: no column {', '.join(unknown)}; the table has {', '.join(plan.schema.names)}."
            )
        with interrupts():
            sql = to_sql(cur, plan)
        chosen = ", ".join(map(quote, columns)) if columns is not None else "*"
        condition = f" WHERE {where}" if where else ""
        return cur.sql(f"SELECT {chosen} FROM ({sql}){condition}").to_arrow_reader()

    def upsert(self, data: Rows, **settings: str) -> WriteResult:
        """Insert rows with new keys, update rows whose key is there; late rows are ignored on event-time tables."""
        return self._write(data, "upsert", settings)

    def insert(self, data: Rows, **settings: str) -> WriteResult:
        """Insert rows without looking their keys up, as Hudi's insert does: repeated keys stay as duplicates."""
        return self._write(data, "insert", settings)

    def bulk_insert(self, data: Rows, **settings: str) -> WriteResult:
        """Insert into new file groups only; for first loads."""
        return self._write(data, "bulk_insert", settings)

    def insert_overwrite(self, data: Rows, **settings: str) -> WriteResult:
        """Replace the partitions that the rows fall into (a table without partitions: all of it)."""
        return self._write(data, "insert_overwrite", settings)

    def delete(self, what: Rows | str, **settings: str) -> WriteResult:
        """Delete rows by key (data with the key and partition columns) or by a SQL condition (a text)."""
        if not isinstance(what, str):
            return self._write(what, "delete", settings)
        now = self.state
        cur = self._con.cursor()
        sql = to_sql(cur, plan_read(now))
        rows = f"SELECT *, 'delete' AS __op FROM ({sql}) WHERE {what}"
        return write(cur, now, rows, operation="delete", settings=settings, reads_table=True)

    def _write(self, data: Rows, operation: str, settings: Mapping[str, str]) -> WriteResult:
        cur = self._con.cursor()
        with registered(cur, data) as name:
            return write(cur, self.state, f"SELECT * FROM {name}", operation=operation, settings=settings)

    def timeline(self, archived: bool = False) -> pa.Table:
        """One row per instant, as `hudi_timeline`."""
        return inspect.timeline(self.state, archived)

    def history(self) -> pa.Table:
        """The timeline with its archived part, newest first."""
        return inspect.timeline(self.state, True).sort_by([("instant", "descending")])

    def files(self, as_of: str | None = None) -> pa.Table:
        """One row per file slice, as `hudi_files`."""
        return inspect.files(self.state, as_of)


@contextmanager
def registered(cur: duckdb.DuckDBPyConnection, data: Rows) -> Iterator[str]:
    """The name of a relation on `cur` that holds the rows; a stream is read into DuckDB first (it may spill)."""
    make_utc(cur)
    name = quote("__lakesql_data")
    source: Any = pa.Table.from_pylist(data) if isinstance(data, list) else data
    if not hasattr(source, "__arrow_c_stream__"):
        raise TableError(
            f"rows of type {type(data).__name__} cannot be read; give a pyarrow table or reader, a pandas or polars "
            "data frame, a DuckDB relation or a list of dicts."
        )
    if isinstance(source, pa.Table):
        cur.register("__lakesql_data", source)
        try:
            yield name
        finally:
            cur.unregister("__lakesql_data")
        return
    cur.register("__lakesql_stream", pa.RecordBatchReader.from_stream(source))
    try:
        cur.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT * FROM __lakesql_stream")
        yield name
    finally:
        cur.unregister("__lakesql_stream")
        cur.execute(f"DROP TABLE IF EXISTS {name}")


def open_table(path: str, config: Mapping[str, str] | None = None) -> Table:
    """The Hudi table at a path or file:// uri. TableError when there is none; Unsupported for versions not 6, 8 or 9."""
    return Table(open_storage(str(path)), config)


def create_table(
    path: str,
    schema: pa.Schema,
    *,
    type: str = "cow",  # noqa: A002  the word users type in TBLPROPERTIES
    primary_key: Sequence[str] = (),
    ordering_fields: Sequence[str] = (),
    partitioned_by: Sequence[str] = (),
    version: int = 9,
    name: str | None = None,
    properties: Mapping[str, str] | None = None,
    config: Mapping[str, str] | None = None,
) -> Table:
    """A new, empty table. `type`: 'cow' or 'mor'; `properties`: further `hoodie.*` keys.

    Raises TableError when a table is there already or a named column does not exist, Unsupported for what lakesql
    cannot write.
    """
    storage = open_storage(str(path))
    create(
        storage,
        schema,
        name=name or storage.uri.rstrip("/").rsplit("/", 1)[-1],
        type=type,
        primary_key=tuple(primary_key),
        ordering_fields=tuple(ordering_fields),
        partitioned_by=tuple(partitioned_by),
        version=version,
        properties=dict(properties or {}),
    )
    return Table(storage, config)
