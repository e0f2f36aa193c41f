"""A Hudi table as the target of an ingestion: rows, deletes, offsets and quarantine in one commit (kafka-ingestion 4.3, 4.4).

    take      batches wait in a spool outside of the table
    rows      Target.select over the relation `kafka`, in the order of topic, partition and offset
    guard     under the table's lock: the stored offsets are still those that the load began with, else IngestConflict
    write     lakesql's own write path, whose commit carries the offsets (`state.extras_of`)

A table that does not exist is made at the first commit, with the columns of its rows; while these are not known the
offsets wait beside it (`waiting`). A crash before the commit leaves an instant that the next write rolls back, a spool
that the next `begin` removes and perhaps quarantine files that the next commit removes; offsets have not moved then.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import duckdb
import pyarrow as pa

from lakesql.errors import CommitConflict, IngestConflict, IngestError, JobError, SQLError, TableError
from lakesql.ingest import quarantine, tombstones, waiting
from lakesql.ingest.model import KAFKA, Committed, Decoded, Job, State, WorkUnit
from lakesql.ingest.spool import Spool, Waiting
from lakesql.ingest.state import extras_of, state_of
from lakesql.services import maintain
from lakesql.storage import Storage, open_storage
from lakesql.table.known_settings import make_utc
from lakesql.table.names import quote
from lakesql.table.state import PROPERTIES, TableState, load, load_head
from lakesql.write import WriteResult, create, retried, with_attempts, write
from lakesql.write.clock import Clock, system_clock
from lakesql.write.columns import EVOLVE, RECONCILE, storable, with_new
from lakesql.write.settings import SETTINGS, parse_settings
from lakesql.write.table_options import SYNONYMS, new_table_options

APPEND_OFFSETS = "hoodie.streamer.source.kafka.append.offsets"
SPOOL_DIR = "lakesql.spool.dir"
ENVELOPE = "lakesql.envelope"

_KAFKA_TYPES = {
    "_topic": "VARCHAR",
    "_partition": "INTEGER",
    "_offset": "BIGINT",
    "_timestamp": "TIMESTAMPTZ",
    "_timestamp_type": "VARCHAR",
    "_key": "BLOB",
    "_headers": 'STRUCT("key" VARCHAR, "value" BLOB)[]',
}
_SOURCE = (
    "_offset AS _hoodie_kafka_source_offset, _partition AS _hoodie_kafka_source_partition, "
    "epoch_ms(_timestamp) AS _hoodie_kafka_source_timestamp, TRY(decode(_key)) AS _hoodie_kafka_source_key"
)
_KEPT = ("_topic", "_partition", "_offset")


class _MovedError(Exception):
    """The stored offsets are not those that the load began with; no CommitConflict, so nobody tries again."""


class HudiSink:
    """One Hudi table as target of a job. `topics`: those that go into it; `con`: its DuckDB is used by a cursor."""

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        job: Job,
        path: str,
        topics: Collection[str] | None = None,
        *,
        storage: Storage | None = None,
        quarantine_storage: Storage | None = None,
        clock: Clock = system_clock,
    ) -> None:
        self.con = con
        self.job = job
        self.topics = topics
        self.storage = storage or open_storage(path)
        self.quarantine = quarantine_storage or open_storage(quarantine.folder_of(self.storage.uri))
        self.waiting = open_storage(waiting.folder_of(self.storage.uri))
        self.clock = clock
        self.options = {
            k: v for k, v in {**job.settings, **job.target.options}.items() if k.startswith(("hoodie.", "lakesql."))
        }

    def stored(self) -> State:
        """The state of this ingestion in the newest commit that has one; an empty one when none has."""
        return self.stored_in(load_head(self.storage) if self.exists() else None)

    def stored_in(self, table: TableState | None) -> State:
        """The same, as one look at the table (None: there is none) saw it."""
        if table is not None:
            state, instant = state_of(table, self.job.name, self.topics)
            if instant is not None:
                return state
        return waiting.read(self.waiting, self.job.name) or State(self.job.name)

    def begin(self, before: State, run: str) -> "HudiLoad":
        """A load for one commit on top of this state. Rolls back what a dead run of this ingestion left."""
        return HudiLoad(self, before, run)

    def replay(self, run: str) -> "HudiLoad":
        """A load whose rows come again: stored offsets neither count nor move. IngestError unless rows are upserted."""
        table = load_head(self.storage) if self.exists() else None
        if table is None or self.operation(table) != "upsert":
            raise IngestError(
                f"{self.storage.uri}: records can be read again into a table with a record key only, by upsert; otherwise "
                "they would be there twice. Nothing was changed."
            )
        return HudiLoad(self, None, run)

    def exists(self) -> bool:
        return self.storage.stat(PROPERTIES) is not None

    def operation(self, table: TableState) -> str:
        """What is done with the rows."""
        return self.job.target.operation or ("upsert" if table.config.record_key_fields else "insert")

    def settings(self, table: TableState) -> dict[str, str]:
        """Settings of a write: those stored with the table, then those of the job."""
        own = {k: v for k, v in table.config.properties.items() if k in SETTINGS and not k.startswith("hoodie.table.")}
        return own | self.options

    @property
    def appends_offsets(self) -> bool:
        return self.options.get(APPEND_OFFSETS, "").lower() == "true"


class HudiLoad:
    """Rows on their way into the table; see model.Load."""

    def __init__(self, sink: HudiSink, before: State | None, run: str) -> None:
        self._sink = sink
        self._before = before  # None: a replay
        self._run = run
        owner = f"{sink.storage.uri}\n{sink.job.name}"
        self._spool = Spool(owner, sink.options.get(SPOOL_DIR))
        self._needed = None if sink.job.target.select or sink.appends_offsets else _KEPT

    def take(self, unit: WorkUnit, decoded: Decoded) -> None:
        """Keep the rows of one batch. One thread at a time per unit."""
        for kind, table in (("rows", decoded.rows), ("deletes", decoded.deletes), ("bad", decoded.bad)):
            if kind == "rows" and self._needed is not None:
                table = table.drop_columns(
                    [c for c in KAFKA.names if c in table.column_names and c not in self._needed]
                )
            if table.num_rows or kind == "rows":
                self._spool.add(unit.group, kind, table)

    def forget(self, unit: WorkUnit) -> None:
        """What was taken for this unit does not count."""
        self._spool.forget(unit.group)

    def commit(self, state: State) -> Committed:
        """Make rows and offsets visible in one step."""
        waits = {kind: self._spool.waiting(kind) for kind in ("rows", "deletes", "bad")}
        if done := self._idle(state, waits):
            return done
        sink, notes = self._sink, []
        with _connection(sink.con) as con:
            batch = _Batch(con, sink, waits["rows"], waits["deletes"])
            if not sink.exists() and not batch.make_table():
                return self._wait(state, waits["bad"])
            try:
                result, more = self._write(con, batch, state, waits["bad"])
            except _MovedError as error:
                raise IngestConflict(str(error)) from None
            notes += [*result.notes, *more]
            if result.instant is not None:
                notes += self._after(con)
        self.discard()
        return Committed(
            result.instant,
            result.rows_inserted,
            result.rows_updated,
            result.rows_deleted,
            result.rows_ignored + batch.voided,
            result.files_written,
            result.bytes_written,
            tuple(notes),
        )

    def _after(self, con: duckdb.DuckDBPyConnection) -> list[str]:
        """Services that are due, and tidying; what goes wrong here is no failed commit."""
        sink = self._sink
        try:
            settings = {**load_head(sink.storage).config.properties, **sink.options}
            notes = list(maintain(con, sink.storage, settings, sink.clock))
            waiting.remove(sink.waiting, sink.job.name)
        except Exception as error:  # whatever it is, rows and offsets are committed
            return [f"The commit is complete; what comes after it failed and is tried again later: {error}"]
        return notes

    def discard(self) -> None:
        """Remove everything that is not committed."""
        self._spool.close()

    def _idle(self, state: State, waits: Mapping[str, Waiting]) -> Committed | None:
        """What to answer when there is nothing to commit. IngestError when records were read and no offset moved."""
        if self._before is None or state.offsets() != self._before.offsets():
            return None
        if any(wait.rows for wait in waits.values()):
            raise IngestError(
                f"{self._sink.storage.uri}: records were read and no offset of the ingestion {state.ingestion} moved. "
                "Nothing was committed; they would be read again for ever."
            )
        if _kept(state) != _kept(self._before):
            return None
        self.discard()
        return Committed(None, notes=("Nothing new was there: no commit was made.",))

    def _wait(self, state: State, bad: Waiting) -> Committed:
        """Keep the offsets of a run without rows while there is no table."""
        sink = self._sink
        assert self._before is not None, "a replay needs a table"
        if bad.rows:
            state = replace(state, partitions={at: replace(o, next=o.low) for at, o in state.partitions.items()})
        try:
            path = waiting.put(sink.waiting, self._before, state)
        except CommitConflict as error:
            raise IngestConflict(f"{error} Nothing was committed. Run the ingestion again.") from error
        if bad.rows:
            raise IngestError(
                f"{sink.storage.uri}: none of the {bad.rows} records of the first run can be decoded, so there is no table "
                "whose commit could name their quarantine. Nothing was committed; the next run reads them again. Correct "
                "the format, or create the table first."
            )
        self.discard()
        note = (
            f"The columns of the table are not known before the first record; its start offsets wait in "
            f"{sink.waiting.uri}/{path}."
        )
        return Committed(None, notes=(note,))

    def _write(
        self, con: duckdb.DuckDBPyConnection, batch: "_Batch", state: State, bad: Waiting
    ) -> tuple[WriteResult, list[str]]:
        sink = self._sink
        notes: list[str] = []

        def guard(now: TableState) -> Mapping[str, str]:
            assert self._before is not None
            stored = sink.stored_in(now)
            if stored.offsets() != self._before.offsets():
                raise _MovedError(_moved_text(sink, stored, self._before))
            quarantine.remove_unnamed(sink.quarantine, now, state.ingestion)
            if not bad.rows:
                return extras_of(now, state)
            name = quarantine.name_of(state.ingestion, self._before.offsets(), state.offsets())
            files = quarantine.write_files(sink.quarantine, name, bad.tables, self._run)
            return extras_of(now, replace(state, quarantine=(*state.quarantine, *files)))

        def attempt() -> WriteResult:
            notes.clear()
            table = load(sink.storage)
            operation = sink.operation(table)
            rows, table = batch.rows_sql(table, operation, notes)
            replays = self._before is None
            return write(
                con,
                table,
                rows,
                operation=operation,
                settings=sink.settings(table),
                guard=None if replays else guard,
                even_empty=not replays,
                clock=sink.clock,
            )

        limits = parse_settings(sink.options)
        result = with_attempts(*retried(sink.storage, attempt, lambda: (limits.lock_wait_ms, limits.retries)))
        return result, notes


def _kept(state: State) -> object:
    """What a commit without records is worth for."""
    return {at: (one.next, one.missing_since_ms, one.topic_id) for at, one in state.partitions.items()}


def _moved_text(sink: HudiSink, stored: State, before: State) -> str:
    now, then = stored.offsets(), before.offsets()
    at = min(at for at in {*now, *then} if now.get(at) != then.get(at))
    return (
        f"{sink.storage.uri}: another run of the ingestion {before.ingestion} was faster: partition {at} stands at "
        f"{now.get(at, 'no offset')}, this run began at {then.get(at, 'no offset')}. Nothing was committed. Run the "
        "ingestion again; it goes on from there."
    )


@contextmanager
def _connection(con: duckdb.DuckDBPyConnection) -> Iterator[duckdb.DuckDBPyConnection]:
    cur = con.cursor()
    try:
        make_utc(cur)
        yield cur
    finally:
        cur.close()


class _Batch:
    """The records of a load as relations on a connection, and as rows for `write`."""

    def __init__(self, con: duckdb.DuckDBPyConnection, sink: HudiSink, rows: Waiting, deletes: Waiting) -> None:
        self.con = con
        self.sink = sink
        self.rows, self.deletes = rows, deletes
        self.voided = 0
        self.select = sink.job.target.select
        self.columns = self._register("__lakesql_rows", rows)
        self.tomb_columns = self._register("__lakesql_tombs", deletes)

    def make_table(self) -> bool:
        """Create the table with the columns of the rows; False when these are not known."""
        if not self.columns:
            return False
        self._kafka("SELECT * FROM __lakesql_rows")
        schema = self._schema()
        kept = pa.schema([f for f in schema if not pa.types.is_null(f.type)])
        target = self.sink.job.target
        uri = self.sink.storage.uri
        given = {k: v for k, v in self.sink.options.items() if k in SYNONYMS}
        try:
            options = new_table_options(target.properties, target.partition_by, uri.rsplit("/", 1)[-1], given)
        except SQLError as error:
            raise JobError(f"{uri}: {error}") from error
        by_name = {n.lower(): n for n in kept.names}

        def spelt(names: Collection[str]) -> list[str]:
            return [by_name.get(n.lower(), n) for n in names]

        parts = spelt(options.partitioned_by)
        last = [f for f in parts if f in kept.names]
        ordered = storable(pa.schema([f for f in kept if f.name not in last] + [kept.field(f) for f in last]))
        try:
            create(
                self.sink.storage,
                ordered,
                name=options.name,
                type=options.type,
                primary_key=spelt(options.primary_key),
                ordering_fields=spelt(options.ordering_fields),
                partitioned_by=parts,
                version=options.version,
                properties=options.properties,
            )
        except TableError:
            if not self.sink.exists():  # else another run made it just now
                raise
        return True

    def rows_sql(self, table: TableState, operation: str, notes: list[str]) -> tuple[str, TableState]:
        """The rows of this batch for a table as it is now, and the table with the columns that they add."""
        self.voided = 0
        live = "SELECT * FROM __lakesql_rows"
        first = last = None
        if self.deletes.rows:
            why = tombstones.meaningless(table, operation, self.sink.options.get(ENVELOPE, "").lower())
            if why is not None:
                notes.append(f"{self.deletes.rows} tombstones were skipped: {why}.")
            else:
                live, first, last = self._settled(table, notes)
        if not self.rows.rows:
            self.con.register("__lakesql_none", table.schema.empty_table())
            rows = "SELECT * FROM __lakesql_none"
        else:
            self._kafka(live)
            schema = self._schema()
            rows = self._selected()
            if gone := [f.name for f in schema if pa.types.is_null(f.type) and f.name not in table.schema.names]:
                rows = f"SELECT * EXCLUDE ({', '.join(map(quote, gone))}) FROM ({rows})"
            if self._evolves(table):
                table = with_new(table, schema, [n for n in schema.names if n not in gone])
        parts = [first, rows if first is None and last is None else f"SELECT * FROM ({rows})", last]
        return " UNION ALL BY NAME ".join(p for p in parts if p), table

    def _settled(self, table: TableState, notes: list[str]) -> tuple[str, str | None, str | None]:
        """SQL of the rows that stay, of the deletes before them, of those behind them."""
        columns = self.columns
        if not columns:
            # Nothing says the columns of the relation `kafka`; the table's are the best guess there is.
            self.con.register("__lakesql_none", table.schema.empty_table())
            kafka = ", ".join(f"CAST(NULL AS {kind}) AS {quote(n)}" for n, kind in _KAFKA_TYPES.items())
            self.con.execute(
                f"CREATE OR REPLACE TEMP VIEW __lakesql_rows AS SELECT * FROM __lakesql_none, (SELECT {kafka})"
            )
            columns = self._described("SELECT * FROM __lakesql_rows")
        live, self.voided = tombstones.settle(self.con, "__lakesql_rows", columns, "__lakesql_tombs", self.tomb_columns)
        found = []
        for number, later in enumerate((True, False)):
            self._kafka(tombstones.as_rows(columns, later))
            found.append(tombstones.deletes_sql(self.con, table, self._selected(), number, notes))
        return live, found[0], found[1]

    def _evolves(self, table: TableState) -> bool:
        settings = {**table.config.properties, **self.sink.options}
        return any(settings.get(key, "").lower() == "true" for key in (EVOLVE, RECONCILE))

    def _kafka(self, sql: str) -> None:
        self.con.execute(f"CREATE OR REPLACE TEMP VIEW kafka AS {sql}")

    def _selected(self) -> str:
        """What is asked of the relation `kafka`."""
        if self.select:
            return self.select.strip().rstrip(";")
        given = self._described("SELECT * FROM kafka")
        drop = ", ".join(c for c in _KAFKA_TYPES if c in given)
        source = f", {_SOURCE}" if self.sink.appends_offsets else ""
        return f"SELECT * EXCLUDE ({drop}){source} FROM kafka"

    def _schema(self) -> pa.Schema:
        sql = self._selected()
        try:
            if len(self.con.extract_statements(sql)) != 1:
                raise JobError(f"{self.sink.storage.uri}: AS SELECT is more than one statement. Give one SELECT.")
            return self.con.sql(f"SELECT * FROM ({sql}\n) LIMIT 0").to_arrow_table().schema
        except duckdb.Error as error:
            text = " ".join(str(error).split("\n\nLINE ")[0].split())
            raise JobError(
                f"{self.sink.storage.uri}: AS SELECT does not fit the records: {text}. The relation kafka has the columns "
                f"{', '.join(self.columns)}. Nothing was written."
            ) from error

    def _described(self, sql: str) -> dict[str, str]:
        return {str(row[0]): str(row[1]) for row in self.con.execute(f"DESCRIBE {sql}").fetchall()}

    def _register(self, name: str, wait: Waiting) -> dict[str, str]:
        """The view `name` of everything that waits, in order; its columns, {} when none are known."""
        if wait.schema is None or (not wait.rows and set(wait.schema.names) <= set(KAFKA.names)):
            return {}
        names = [n.lower() for n in wait.schema.names]
        if twice := [n for n in names if names.count(n) > 1]:
            raise IngestError(
                f"{self.sink.storage.uri}: the records have the column {twice[0]} twice, up to upper and lower case. "
                "Name it otherwise with AS SELECT over FORMAT STRING. Nothing was written."
            )
        self.con.register(f"{name}_none", wait.schema.empty_table())
        parts = [f"SELECT * FROM {name}_none"] if len(wait.tables) != 1 else []
        for number, table in enumerate(wait.tables):
            self.con.register(f"{name}_{number}", table)
            parts.append(f"SELECT * FROM {name}_{number}")
        order = "" if wait.sorted else " ORDER BY _topic, _partition, _offset"
        self.con.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {' UNION ALL BY NAME '.join(parts)}{order}")
        return self._described(f"SELECT * FROM {name}")
