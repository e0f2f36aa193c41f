"""A Hudi table as the target of an ingestion: rows, deletes, offsets and quarantine in one commit (kafka-ingestion 4.3, 4.4).

    take      batches wait in a spool outside of the table
    rows      Target.select over the relation `kafka`, in the order of topic, partition and offset
    guard     under the table's lock: the stored offsets are still those that the load began with, else IngestConflict
    write     lakesql's own write path, whose commit carries the offsets (`state.extras_of`)

A table that does not exist is made at the first commit, with the columns of its rows; while these are not known the
offsets wait beside it (`waiting`). A crash before the commit leaves an instant that the next write rolls back, a spool
that the next `begin` removes and perhaps quarantine files that the next commit removes; offsets have not moved then.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

import duckdb
import pyarrow as pa

from lakesql.errors import CommitConflict, IngestConflict, IngestError
from lakesql.ingest import quarantine, waiting
from lakesql.ingest.hudi_rows import Batch
from lakesql.ingest.model import Committed, Decoded, Job, State, TopicPartition, WorkUnit
from lakesql.ingest.spool import SPOOL_DIR, Spool, Waiting
from lakesql.ingest.state import extras_of, state_of
from lakesql.services.maintenance import maintain
from lakesql.storage import Storage, open_storage
from lakesql.table.clock import Clock, system_clock
from lakesql.table.known_settings import make_utc
from lakesql.table.state import PROPERTIES, TableState, load, load_head
from lakesql.write import WriteResult, retried, with_attempts, write
from lakesql.write.settings import SETTINGS, parse_settings


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

    def settle(self) -> None:
        """Nothing: a commit of a table is whole, or the next write takes it back."""

    def begin(self, before: State, run: str) -> "HudiLoad":
        """A load for one commit on top of this state. Rolls back what a dead run of this ingestion left."""
        return HudiLoad(self, before, run)

    def quarantined(self) -> tuple[Storage, list[str]]:
        """Where the quarantine of this ingestion is, and the names of its files, the oldest first."""
        return self.quarantine, quarantine.named(load_head(self.storage), self.job.name) if self.exists() else []

    def replay(self, run: str, before: State | None = None) -> "HudiLoad":
        """A load whose rows come again: stored offsets do not move, and if another run moves them from where `before` has
        them (None: where they are now) it is an IngestConflict. IngestError unless rows are upserted.
        """
        table = load_head(self.storage) if self.exists() else None
        if table is None or self.operation(table) != "upsert":
            raise IngestError(
                f"{self.storage.uri}: records can be read again into a table with a record key only, by upsert; otherwise "
                "they would be there twice. Nothing was changed."
            )
        return HudiLoad(self, before or self.stored(), run, replays=True)

    def exists(self) -> bool:
        return self.storage.stat(PROPERTIES) is not None

    def operation(self, table: TableState) -> str:
        """What is done with the rows."""
        return self.job.target.operation or ("upsert" if table.config.record_key_fields else "insert")

    def settings(self, table: TableState) -> dict[str, str]:
        """Settings of a write: those stored with the table, then those of the job."""
        own = {k: v for k, v in table.config.properties.items() if k in SETTINGS and not k.startswith("hoodie.table.")}
        return own | self.options

    def columns(self) -> pa.Schema | None:
        """The table's columns, to which values must fit; those of the record key are not nullable. None: no table."""
        if not self.exists():
            return None
        table = load_head(self.storage)
        keys = table.config.record_key_fields
        return pa.schema([f.with_nullable(f.nullable and f.name not in keys) for f in table.schema])


class HudiLoad:
    """Rows on their way into the table; see model.Load."""

    def __init__(self, sink: HudiSink, before: State, run: str, replays: bool = False) -> None:
        self._sink, self._before, self._run, self._replays = sink, before, run, replays
        owner = f"{sink.storage.uri}\n{sink.job.name}"
        self._spool = Spool(owner, sink.options.get(SPOOL_DIR))

    def take(self, unit: WorkUnit, decoded: Decoded) -> None:
        """Keep the rows of one batch. One thread at a time per unit."""
        for kind, table in (("rows", decoded.rows), ("deletes", decoded.deletes), ("bad", decoded.bad)):
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
            batch = Batch(con, sink.storage, sink.job, sink.options, waits["rows"], waits["deletes"])
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
        if self._replays or state.released or state.offsets() != self._before.offsets():
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
        self, con: duckdb.DuckDBPyConnection, batch: Batch, state: State, bad: Waiting
    ) -> tuple[WriteResult, list[str]]:
        sink = self._sink
        notes: list[str] = []

        def guard(now: TableState) -> Mapping[str, str]:
            stored = sink.stored_in(now)
            if stored.offsets() != self._before.offsets():
                raise _MovedError(_moved_text(sink, stored, self._before))
            if self._replays:
                return {}  # what is stored is carried on
            if not set(state.released) <= set(quarantine.named(now, state.ingestion) if state.released else ()):
                raise _MovedError(_released_text(sink))
            quarantine.remove_unnamed(sink.quarantine, now, state.ingestion)
            tables = [*bad.tables, *([batch.unkeyed] if batch.unkeyed is not None else [])]
            if not tables:
                return extras_of(now, state)
            name = quarantine.name_of(state.ingestion, self._before.offsets(), state.offsets())
            if state.released:
                name = quarantine.name_again(state.ingestion, state.released)
            files = quarantine.write_files(sink.quarantine, name, tables, self._run)
            return extras_of(now, _counted(replace(state, quarantine=(*state.quarantine, *files)), batch.unkeyed))

        def attempt() -> WriteResult:
            notes.clear()
            table = load(sink.storage)
            operation = sink.operation(table)
            rows, table = batch.rows_sql(table, operation, notes)
            if self._replays and (lost := bad.rows + (batch.unkeyed.num_rows if batch.unkeyed is not None else 0)):
                notes.append(f"{lost} records could not be decoded; a replay keeps no quarantine.")
            return write(
                con,
                table,
                rows,
                operation=operation,
                settings=sink.settings(table),
                guard=guard,
                even_empty=not self._replays,
                clock=sink.clock,
                rows=batch.as_they_are,
            )

        limits = parse_settings(sink.options)
        result = with_attempts(
            *retried(sink.storage, attempt, lambda: (limits.lock_wait_ms, limits.retries), lambda: sink.options)
        )
        return result, notes


def _kept(state: State) -> object:
    """What a commit without records is worth for."""
    return {at: (one.next, one.missing_since_ms, one.topic_id) for at, one in state.partitions.items()}


def _counted(state: State, unkeyed: pa.Table | None) -> State:
    """The state with the records counted as quarantined that have no key."""
    if unkeyed is None:
        return state
    partitions = dict(state.partitions)
    pairs = zip(unkeyed["_topic"].to_pylist(), unkeyed["_partition"].to_pylist(), strict=True)
    for pair, count in Counter(pairs).items():
        at = TopicPartition(*pair)
        if at in partitions:
            partitions[at] = replace(partitions[at], quarantined=partitions[at].quarantined + count)
    return replace(state, partitions=partitions)


def _moved_text(sink: HudiSink, stored: State, before: State) -> str:
    now, then = stored.offsets(), before.offsets()
    at = min(at for at in {*now, *then} if now.get(at) != then.get(at))
    return (
        f"{sink.storage.uri}: another run of the ingestion {before.ingestion} was faster: partition {at} stands at "
        f"{now.get(at, 'no offset')}, this run began at {then.get(at, 'no offset')}. Nothing was committed. Run the "
        "ingestion again; it goes on from there."
    )


def _released_text(sink: HudiSink) -> str:
    return (
        f"{sink.storage.uri}: another replay of the quarantine of {sink.job.name} was faster. Nothing was committed. Replay "
        "again what is still there."
    )


@contextmanager
def _connection(con: duckdb.DuckDBPyConnection) -> Iterator[duckdb.DuckDBPyConnection]:
    cur = con.cursor()
    try:
        make_utc(cur)
        yield cur
    finally:
        cur.close()
