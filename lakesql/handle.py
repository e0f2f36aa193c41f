"""`Table`: one Hudi table in Python, without SQL text. The verbs of `contract` over an immutable `TableState`.

A handle looks at the storage again for every call, so it always answers from the newest completed instant. Rows go in
as anything with an Arrow stream (`__arrow_c_stream__`: pyarrow, pandas, polars, DuckDB relations, readers) and come
out as Arrow record batches. Each handle has a DuckDB connection of its own (`config` goes to it, e.g. memory_limit).
Table services are imported by the methods that run them, so that a program which only reads does not load them.
"""

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from lakesql.errors import SQLError, StaleReadWarning, TableError, Unsupported
from lakesql.handle_plans import PlannedWrites
from lakesql.handle_rows import Rows, registered
from lakesql.services.adaptive_reads import note_read
from lakesql.services.freshness import Freshness, demand, freshness, plan_read_optimized
from lakesql.storage import Storage, open_storage
from lakesql.stores import settings as store_settings
from lakesql.stores.lock_object import LockObject
from lakesql.table import live, state
from lakesql.table.candidates import for_people
from lakesql.table.clock import system_clock
from lakesql.table.damaged import damage_named
from lakesql.table.interrupts import interrupts
from lakesql.table.known_settings import make_utc
from lakesql.table.listing import known_state, look
from lakesql.table.names import quote
from lakesql.table.read import ReadPlan, plan_incremental, to_sql
from lakesql.table.read import plan as plan_read
from lakesql.table.state import TableState
from lakesql.write import WriteResult, create, retried, with_attempts, write
from lakesql.write.names_of_settings import RECONCILE
from lakesql.write.settings import parse_settings

if TYPE_CHECKING:
    from lakesql.advice import Advice, Scale
    from lakesql.services.cleaning import Cleaned
    from lakesql.services.clustering import ClusteringResult
    from lakesql.services.compaction_files import Progress
    from lakesql.services.compaction_result import CompactionResult
    from lakesql.services.restore import Restored
    from lakesql.services.rollback import RolledBack

_IN_A_CONDITION = (
    duckdb.ParserException,
    duckdb.BinderException,
    duckdb.CatalogException,
    duckdb.ConversionException,
    duckdb.OutOfRangeException,
    duckdb.InvalidInputException,
)


class Table(PlannedWrites):
    """A Hudi table at a path. Made by `open_table`, `create_table` and `Connection.table`."""

    def __init__(
        self, storage: Storage, config: Mapping[str, str] | None = None, lock: LockObject | None = None
    ) -> None:
        self._storage = storage
        if lock is not None:
            storage.lock_object = lock
        self._config: dict[str, Any] = dict(config or {})
        own: dict[str, Any] = {k: v for k, v in self._config.items() if not k.startswith(store_settings.PREFIX)}
        self._con = duckdb.connect(":memory:", config=own)
        storage.attach(self._con)
        self._plans = []
        self.state  # noqa: B018  a path that is no table fails here, not at the first read

    def __reduce__(self) -> Any:
        return open_table, (self._storage.uri, self._config)  # the table that a worker opens, at the same path

    def __repr__(self) -> str:
        now = self.state
        kind = "Merge-on-Read" if now.config.is_mor else "Copy-on-Write"
        newest = max((i.requested for i in now.timeline.completed_writes()), default="no commit yet")
        return f"<lakesql.Table {now.name} at {now.path}: {kind}, version {now.config.version}, {newest}>"

    def _repr_html_(self) -> str:
        from lakesql.table import portrait

        return portrait.html(self.state)

    @property
    def state(self) -> state.TableState:
        """The table as it is now, as a value that never changes."""
        return look(self._storage)

    @property
    def path(self) -> str:
        """The folder, or the URI, of the table."""
        return self._storage.uri

    @property
    def name(self) -> str:
        """The name that the table stores."""
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
        max_staleness: str | None = None,
        on_stale: str | None = None,
    ) -> pa.RecordBatchReader:
        """The rows: the meta columns, then the table's columns, or `columns`; `where` is a SQL condition.

        `as_of`: an instant (17 digits) or a timestamp text; `mode`: 'snapshot' or 'read_optimized'; `max_staleness` and
        `on_stale` as for `hudi_read_optimized`.
        Raises SQLError for a column or mode that does not exist, TableError for a state that was cleaned away, or that is
        staler than asked for.
        """
        self._require_text("as_of", as_of)
        now = self.state
        if mode == "read_optimized" and as_of is None:
            asked = demand(max_staleness, on_stale, now.config.properties)
            plan, last = plan_read_optimized(now, None, asked, system_clock())
            if last.warn:
                warnings.warn(str(last.note), StaleReadWarning, stacklevel=2)
        elif max_staleness is not None:
            raise SQLError(
                f"{self.path}: max_staleness is for mode='read_optimized' without as_of; a snapshot is never stale."
            )
        else:
            plan = plan_read(now, as_of, mode)
            if as_of is None:
                note_read(now, system_clock())
        return self._reader(plan, columns, where)

    def changes(self, begin: str, end: str | None = None, kind: str = "latest_state") -> pa.RecordBatchReader:
        """The latest state of the rows changed in (begin, end]: completion times, version 6: instants; or 'earliest'.

        An instant stands for the time it completed, so `changes(result.instant)` gives what came after that write.
        Raises TableError when cleaning or archiving has eaten the range, naming the earliest safe start.
        """
        if kind == "cdc":
            raise Unsupported(
                f"{self.path}: changes(kind='cdc'): change data capture is not read yet. "
                "Use 'latest_state' for the newest version of each changed row."
            )
        if kind != "latest_state":
            raise SQLError(f"{self.path}: changes(kind={kind!r}) is unknown; use 'latest_state'.")
        self._require_text("begin", begin or "")
        self._require_text("end", end)
        return self._reader(plan_incremental(self.state, begin, end), None, None)

    def _require_text(self, argument: str, value: object) -> None:
        if value is not None and (not isinstance(value, str) or not value):
            raise SQLError(
                f"{self.path}: {argument}={value!r}: give a text, an instant of 17 digits or a timestamp such as "
                "'2024-01-31 12:00:00'."
            )

    def _reader(self, plan: ReadPlan, columns: Sequence[str] | None, where: str | None) -> pa.RecordBatchReader:
        cur = self._con.cursor()
        make_utc(cur)
        chosen = "*" if columns is None else self._chosen(plan.schema, columns)
        condition = "" if where is None else f" WHERE ({self._one_condition(where)}\n)"
        with damage_named(plan.view.state), self._condition(where), interrupts(), live.noted() as held:
            alone = columns is not None and where is None
            sql = to_sql(cur, plan, list(dict.fromkeys(columns)) if columns and alone else None, alone)
            batches = cur.sql(f"SELECT {chosen} FROM ({sql}){condition}").to_arrow_reader()
        return pa.RecordBatchReader.from_batches(batches.schema, self._streamed(batches, plan, where, held))

    def _streamed(
        self, batches: pa.RecordBatchReader, plan: ReadPlan, where: str | None, held: list[live.Held]
    ) -> Iterator[pa.RecordBatch]:
        with damage_named(plan.view.state), self._condition(where), interrupts():
            yield from batches
        held.clear()

    def _chosen(self, schema: pa.Schema, columns: Sequence[str]) -> str:
        """The columns to select, checked."""
        if isinstance(columns, str) or not columns:
            raise SQLError(f"{self.path}: columns={columns!r}: give a list of at least one column, or leave it out.")
        unknown = [str(c) for c in columns if c not in schema.names]
        if unknown:
            raise TableError(f"{self.path}: no column {', '.join(unknown)}; the table has {', '.join(schema.names)}.")
        return ", ".join(map(quote, columns))

    def _one_condition(self, where: str) -> str:
        """The text of a condition; SQLError when it is empty, or more than a condition."""
        if not isinstance(where, str) or not where.strip():
            raise SQLError(f"{self.path}: condition {where!r}: give a SQL condition as text, or leave it out.")
        with self._condition(where):
            if len(self._con.extract_statements(f"SELECT 1 WHERE ({where}\n)")) != 1:
                raise SQLError(f"{self.path}: condition {where!r} is more than one condition. Correct the condition.")
        return where

    @contextmanager
    def _condition(self, where: str | None) -> Iterator[None]:
        """What DuckDB does not understand in the user's condition is our error, without the SQL around it."""
        try:
            yield
        except _IN_A_CONDITION as error:
            if where is None:
                raise
            text = for_people(str(error).split("\n\nLINE ")[0].strip(), self.schema.names).rstrip("!.")
            end = "" if text.endswith("?") else "."
            raise SQLError(f"{self.path}: condition {where!r}: {text}{end} Correct the condition.") from error

    def upsert(self, data: Rows, **settings: str) -> WriteResult:
        """Insert rows with new keys, update rows whose key is there; late rows are ignored on event-time tables.

        As all writes of rows it takes every column of the table; TableError names those that are missing, unless
        `hoodie.datasource.write.reconcile.schema` is true, which makes them NULL.
        """
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
        cur = self._con.cursor()
        make_utc(cur)
        where = self._one_condition(what)

        def attempt() -> WriteResult:
            now = self.state
            with damage_named(now), self._condition(where):
                rows = f"SELECT *, 'delete' AS __op FROM ({to_sql(cur, plan_read(now))}) WHERE ({where}\n)"
                cur.execute(f"DESCRIBE {rows}").fetchall()
                return write(cur, now, rows, operation="delete", settings=settings, reads_table=True)

        from lakesql.services.spelling import require_all_known

        require_all_known(settings)
        limits = parse_settings(settings)
        with live.kept():
            result = with_attempts(
                *retried(self._storage, attempt, lambda: (limits.lock_wait_ms, limits.retries), lambda: settings)
            )
        return self._maintained(result, settings)

    def _write(self, data: Rows, operation: str, settings: Mapping[str, str]) -> WriteResult:
        with self._given(data, operation, settings) as (cur, now, rows):
            result = write(cur, now, rows, operation=operation, settings=settings)
        return self._maintained(result, settings)

    @contextmanager
    def _given(
        self, data: Rows, operation: str, settings: Mapping[str, str]
    ) -> Iterator[tuple[duckdb.DuckDBPyConnection, TableState, str]]:
        """A cursor, the table as it is now, and the SQL of the rows, which have the columns that the operation needs."""
        from lakesql.services.spelling import require_all_known

        require_all_known(settings)
        cur = self._con.cursor()
        now = known_state(self._storage) or self.state  # the write looks again, under the table's lock
        with registered(cur, data) as name:
            if operation != "delete":
                _require_every_column(now, cur.sql(f"SELECT * FROM {name}").columns, settings)
            yield cur, now, f"SELECT * FROM {name}"

    def _maintained(self, result: WriteResult, settings: Mapping[str, str]) -> WriteResult:
        """Run the services that are due after a write; what they did is in the notes."""
        from lakesql.services.maintenance import maintain

        if result.instant is None:
            return result
        cur = self._con.cursor()
        make_utc(cur)
        notes = maintain(cur, self._storage, self._with_own(settings))
        return replace(result, notes=(*result.notes, *notes))

    def cluster(
        self,
        order: Sequence[str] = (),
        strategy: str | None = None,
        partitions: Sequence[str] | None = None,
        **settings: str,
    ) -> "list[ClusteringResult]":
        """Make few file groups of many small ones, sorted by the columns `order`; the rows stay the same.

        `strategy`: 'linear', 'z-order' or 'hilbert'; `partitions`: plan for these partition paths alone; `settings` have
        Hudi's names. Plans a clustering and runs it, and what else is pending. [] when there is nothing to do.
        """
        from lakesql.services import clustering
        from lakesql.services.partitions import named

        if not isinstance(order, list | tuple) or not all(isinstance(name, str) for name in order):
            raise SQLError(f"{self.path}: order={order!r}: give a list of columns.")
        given = {clustering.SORT_COLUMNS: ",".join(order)} if order else {}
        given |= {clustering.LAYOUT: strategy} if strategy is not None else {}
        given |= clustering.of_partitions(named(self.state, partitions))
        cur = self._con.cursor()
        make_utc(cur)
        return clustering.cluster(cur, self._storage, {**self._with_own(settings), **given})

    def expire_partitions(self, **settings: str) -> tuple[str, ...]:
        """Drop the partitions whose time is over (`hoodie.partition.ttl.*`); their paths."""
        from lakesql.services import ttl

        cur = self._con.cursor()
        make_utc(cur)
        return ttl.run(cur, self._storage, self._with_own(settings))[0]

    def freshness(self) -> Freshness:
        """How far the read-optimized view lags behind the snapshot, now."""
        [lag] = freshness(self.state, system_clock())
        return lag

    def clean(self, **settings: str) -> "list[Cleaned]":
        """Remove files that no retained state needs, and finish cleans that were interrupted; what was done.

        `settings` as of every write, e.g. `**{"hoodie.clean.commits.retained": "2"}`. Raises CommitConflict when
        another clean or another engine is at work.
        """
        from lakesql.services.cleaning import clean

        return clean(self._storage, self._with_own(settings))

    def archive(self, **settings: str) -> list[str]:
        """Move old instants to the archive when the active timeline is too long; those moved, oldest first."""
        from lakesql.services.archiving import archive

        return archive(self._storage, self._with_own(settings))

    def compact(
        self,
        *,
        instant: str | None = None,
        schedule: bool = True,
        run: bool = True,
        partitions: Sequence[str] | None = None,
        logs: bool = False,
        strategy: str | None = None,
        progress: "Progress | None" = None,
        **settings: str,
    ) -> "CompactionResult":
        """Fold the logs of a Merge-on-Read table into new base files: run what is pending, then plan and run the rest.

        `run=False` only leaves a plan, `schedule=False` only runs pending ones, `instant` only that one. `partitions`:
        plan for these partition paths alone. `logs=True` merges log blocks with each other instead. `strategy`:
        one of Hudi's, or 'adaptive', which decides by `lakesql.compaction.target.*` and says why in the notes. A setting
        that names the trigger (`hoodie.compact.inline.max.delta.commits`, ...) is asked first. Raises TableError for Copy-on-Write
        tables and instants that are not pending, CommitConflict when another compaction is at work.
        """
        from lakesql.services import compaction, log_compaction
        from lakesql.services.compaction_plan import STRATEGY

        cur = self._con.cursor()
        make_utc(cur)
        chosen = self._with_own(settings)
        if strategy is not None:
            chosen[STRATEGY] = strategy
        storage, due = self._storage, compaction.asks_trigger(settings)
        instants = None if instant is None else [instant]
        with interrupts():
            if logs:
                return log_compaction.act(cur, storage, chosen, instants, schedule, run, partitions)
            if instants is not None or not schedule:
                return compaction.run(cur, storage, chosen, instants=instants, progress=progress)
            if not run:
                return compaction.schedule(storage, chosen, partitions=partitions, only_due=due)
            return compaction.compact(cur, storage, chosen, partitions=partitions, only_due=due, progress=progress)

    def rollback(self, instant: str | None = None, **settings: str) -> "RolledBack":
        """Take the newest completed write back; with `instant` that one, which must be the newest.

        TableError with the reason when rows would be lost, or a later write builds upon it; nothing was changed then.
        """
        from lakesql.services.rollback import rollback

        return rollback(self._storage, self._with_own(settings), instant)

    def savepoint(self, instant: str | None = None, user: str = "", comments: str = "", **settings: str) -> str:
        """Keep the table as of a completed write (the newest one) against cleaning and archiving; its instant."""
        from lakesql.services import savepoint

        return savepoint.create(self._storage, self._with_own(settings), instant, user, comments)

    def savepoints(self) -> pa.Table:
        """One row per savepoint, newest first."""
        from lakesql.services import savepoint

        return pa.Table.from_pylist(savepoint.listed(self._storage), schema=savepoint.COLUMNS)

    def delete_savepoint(self, instant: str | None = None, **settings: str) -> str:
        """Give a savepoint up (the newest one); its instant."""
        from lakesql.services import savepoint

        return savepoint.delete(self._storage, self._with_own(settings), instant)

    def restore(self, savepoint: str | None = None, **settings: str) -> "Restored":
        """Make the table what it was at a savepoint (the newest one); every write after it is gone for good."""
        from lakesql.services.restore import restore

        return restore(self._storage, self._with_own(settings), savepoint)

    def _with_own(self, settings: Mapping[str, str]) -> dict[str, str]:
        from lakesql.services.spelling import require_all_known

        require_all_known(settings)
        return {**(known_state(self._storage) or self.state).config.properties, **settings}

    def timeline(self, archived: bool = False) -> pa.Table:
        """One row per instant, as `hudi_timeline`."""
        from lakesql.table import inspect

        return inspect.timeline(self.state, archived)

    def history(self) -> pa.Table:
        """The timeline with its archived part, newest first."""
        from lakesql.table import inspect

        return inspect.timeline(self.state, True).sort_by([("instant", "descending")])

    def advise(self, reads_per_write: float | None = None, measure: bool = False) -> "Advice":
        """Copy-on-Write or Merge-on-Read for this table, from its own commits; print it, or take `.to_arrow()`.

        `reads_per_write`: snapshot reads of the whole table per commit; without it the break-even is stated.
        `measure`: correct the prices by running copies of this table's file groups as both types (docs/advice.md).
        """
        from lakesql.advice import advise

        cur = self._con.cursor()
        make_utc(cur)
        return advise(cur, self.state, reads_per_write, measure=measure)

    def scale(self, rows: int | None = None, statement: str | None = None, **more: Any) -> "Scale":
        """Whether a statement of so many rows is expected to fit this machine; print it, or take `.fits` and `.command`.

        `statement`: upsert (the default), insert, bulk_insert, delete, merge, update or compaction; `data`, `script`: files
        with its rows and with itself; `within_s`: how long it may take.
        """
        from lakesql.advice import scale

        cur = self._con.cursor()
        make_utc(cur)
        return scale(cur, self.state, rows, statement, **more)

    def files(self, as_of: str | None = None) -> pa.Table:
        """One row per file slice, as `hudi_files`."""
        from lakesql.table import inspect

        return inspect.files(self.state, as_of)


def _require_every_column(now: state.TableState, given: Sequence[str], settings: Mapping[str, str]) -> None:
    """TableError when rows lack columns of the table, which would become NULL; missing keys are `write`'s to refuse."""
    if str(settings.get(RECONCILE, now.config.properties.get(RECONCILE, ""))).lower() == "true":
        return
    names = {name.lower() for name in given}
    keys = {f.split(".")[0] for f in (*now.config.record_key_fields, *now.config.partition_fields)}
    missing = [c for c in now.schema.names if c.lower() not in names]
    if missing and not keys & set(missing):
        raise TableError(
            f"{now.path}: the rows lack the column{'s' * (len(missing) > 1)} {', '.join(missing)} of the table; a write "
            "replaces whole rows. Add them to the rows, NULL where that is meant, or fill them with NULL by the setting "
            f"{RECONCILE}=true. Nothing was written."
        )


def _opened(path: str | os.PathLike[str], config: Mapping[str, str] | None) -> Storage:
    own = {k: v for k, v in (config or {}).items() if k.startswith(store_settings.PREFIX)}
    with store_settings.chosen(store_settings.Stores(own)):
        return open_storage(path)


def open_table(
    path: str | os.PathLike[str], config: Mapping[str, str] | None = None, *, lock: LockObject | None = None
) -> Table:
    """The Hudi table at a path or the address of an object store; `config`: settings of DuckDB, and `lakesql.store.*`.

    `lock`: called with (path of the table, seconds to wait), a context manager to hold while the table is changed.
    TableError when there is none; Unsupported for versions not 6, 8 or 9.
    """
    return Table(_opened(path, config), config, lock)


def create_table(
    path: str | os.PathLike[str],
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
    storage = _opened(path, config)
    create(
        storage,
        schema,
        name=name if name is not None else storage.uri.rstrip("/").rsplit("/", 1)[-1],
        type=type,
        primary_key=primary_key,
        ordering_fields=ordering_fields,
        partitioned_by=partitioned_by,
        version=version,
        properties=properties,
    )
    return Table(storage, config)
