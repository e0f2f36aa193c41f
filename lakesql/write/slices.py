"""The files of a write: streams the rows of a batch to their targets and returns the write stats of the commit.

DuckDB yields the rows once, sorted by target and by place in the base file; a target's rows pass through a bounded
queue to one of WORKERS threads, which encodes and writes its file (pyarrow releases the GIL). Bounded are its bytes, so
that narrow rows of a whole file fit and the next file begins while they are encoded. The rows of a new group stream
through, and so do those of a rewritten one, unless it has a log (`edits`).
Rows for logs are collected until LOG_ROWS, then encoded together and written by one of as many other threads: encoding
450,000 rows and DuckDB's sorting of the next ones take as long. A file of many rows is encoded in parts of PART_ROWS, a
block each, while its next rows come: all at once took 600 MB for 400,000 rows. Memory: a few row groups and log chunks.

Here is the only place where copy-on-write and merge-on-read differ: `Target.kind`, decided by `route`.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakesql.format.avro import META_COLUMNS, conform, with_meta_fields
from lakesql.format.files import FileSlice, LogFile, base_file_name
from lakesql.format.metadata import WriteStat
from lakesql.storage import explained
from lakesql.table.deltas import Batch, changes_of
from lakesql.table.merge import COMMIT_TIME
from lakesql.table.state import TableState
from lakesql.write.basefile import ROW_GROUP_ROWS, BaseSpec, Edit, rewrite, write_new
from lakesql.write.conserve import require_records, require_rows, require_unique
from lakesql.write.edits import StreamedEdit
from lakesql.write.logfile import LogContent, Records, encode_groups, next_log_file
from lakesql.write.partial import FULL, Partial
from lakesql.write.plan import APPEND, CREATE, DELETED, INSERTED, REWRITE, UPDATED, Target
from lakesql.write.settings import WriteConfig
from lakesql.write.stream import ORD_PREFIX, ROW_FATE, ROW_HASH, ROW_KEY, ROW_NO, ROW_PART, Stream
from lakesql.write.transaction import APPEND_MARKER, CREATE_MARKER, MERGE_MARKER, Transaction, aside, beat, mark
from lakesql.write.workers import ClosedError, Workers

WORKERS = 2
LOG_ROWS = 32_768
PART_ROWS = 65_536
BATCH_ROWS = 65_536
_QUEUED_BYTES = 32 << 20

Publish = Callable[[str, Callable[[], None], int], int]
"""(path of a file that is made, what gives it its name, its size) -> the size of the file of that name."""


@dataclass(frozen=True, slots=True)
class Job:
    """What every file of a write needs to know."""

    txn: Transaction
    state: TableState
    slices: Sequence[FileSlice] | Mapping[int, FileSlice]
    settings: WriteConfig
    schema: pa.Schema  # with meta columns
    avro: Mapping[str, Any]  # with meta columns
    ordered_deletes: bool
    folds: Mapping[
        int, tuple[Batch, int]
    ]  # slice number -> what its log does to its base file, where that is rewritten
    unique: bool  # a new key comes once
    partial: Partial
    logs: Sequence[LogFile] = ()  # version 6: those that lie in the table, committed or not
    first: int = 0  # number of the first target among all of the commit
    stage: int = 0  # of the write token of log files
    publish: Publish | None = None  # how a file gets its name, when another attempt may have been there before


def job(
    txn: Transaction,
    state: TableState,
    slices: Sequence[FileSlice] | Mapping[int, FileSlice],
    settings: WriteConfig,
    folds: Mapping[int, tuple[Batch, int]],
    unique: bool = False,
    partial: Partial = FULL,
) -> Job:
    meta = [pa.field(name, pa.string()) for name in META_COLUMNS]
    config = state.config
    # Several ordering values need a wrapper that 0.15 and 1.0 cannot read.
    ordered = config.merge_mode != COMMIT_TIME and (config.version >= 9 or len(config.ordering_fields) == 1)
    schema = pa.schema([*meta, *state.schema])
    avro = with_meta_fields(state.avro)
    logs = [f for f in state.files if isinstance(f, LogFile)] if config.version < 8 else []
    return Job(txn, state, slices, settings, schema, avro, ordered, folds, unique, partial, logs)


def write_targets(work: Job, targets: Sequence[Target], rows: Iterable[tuple[int, pa.Table]]) -> list[WriteStat]:
    """Write all targets; one stat each, in their order.

    `rows` are pieces with the number of their target; they cover every target, whose pieces follow each other.
    """
    alone = sum(t.kind != APPEND for t in targets) == 1
    pa.default_memory_pool().release_unused()  # what reading the rows has left: 200 MB of 5M rows
    stats: list[WriteStat | None] = [None] * len(targets)
    running: deque[tuple[int, _Feed]] = deque()

    def abandon() -> None:
        for _, feed in running:
            feed.abandon()

    with Workers(WORKERS, "lakesql-write", abandon) as workers, Workers(WORKERS, "lakesql-log") as log_workers:
        logs = _LogBuffer(work, stats, log_workers)
        for number, piece in rows:
            if targets[number].kind == APPEND:
                if number not in logs and logs.is_full():
                    logs.flush()
                logs.add(number, targets[number], piece)
                continue
            if not running or running[-1][0] != number:
                if running:
                    running[-1][1].end()
                while len(running) >= WORKERS:
                    first, feed = running[0]
                    stats[first] = feed.result()
                    running.popleft()
                running.append((number, _Feed()))  # known before its worker begins, which an interrupt may cut off
                running[-1][1].begin(workers, work, number, targets[number], alone)
            running[-1][1].put(piece)
        logs.flush()
        if running:
            running[-1][1].end()
        for number, feed in running:
            stats[number] = feed.result()
        logs.wait()
    assert all(s is not None for s in stats), "every target must have rows"
    return [s for s in stats if s is not None]


def by_target(con: duckdb.DuckDBPyConnection, rows: Stream) -> Generator[tuple[int, pa.Table]]:
    """The rows of a stream in pieces of one target each, with its number."""
    if rows.table is not None:
        first = 0
        for number, count in rows.sequence:
            for at in range(0, count, ROW_GROUP_ROWS):
                yield number, rows.table.slice(first + at, min(ROW_GROUP_ROWS, count - at))
            first += count
        return
    with con.sql(rows.sql).to_arrow_reader(BATCH_ROWS) as reader:
        yield from cut(reader, rows.sequence)


def cut(batches: Iterable[pa.RecordBatch], counts: Iterable[tuple[int, int]]) -> Iterator[tuple[int, pa.Table]]:
    """The rows in pieces of one target each. `counts`: the targets as they come, and their numbers of rows."""
    sequence = iter(counts)
    number, left = next(sequence)
    for batch in batches:
        table, first = pa.Table.from_batches([batch]), 0
        while first < batch.num_rows:
            if not left:
                number, left = next(sequence)
            taken = min(left, batch.num_rows - first)
            yield number, table.slice(first, taken)
            first, left = first + taken, left - taken
    assert (left, next(sequence, None)) == (0, None), "the rows must be as many as were counted"


class _Feed:
    """The rows on their way to one worker, at most _QUEUED_BYTES of them and one piece."""

    def __init__(self) -> None:
        self._pieces: SimpleQueue[pa.Table | None] = SimpleQueue()  # None: no more come
        self._taken: SimpleQueue[int] = SimpleQueue()  # bytes
        self._bytes = 0
        self._abandoned = False

    def begin(self, workers: Workers, work: Job, number: int, target: Target, alone: bool) -> None:
        self._future = workers.submit(_write_base, work, number, target, self._rows(), alone)
        self._future.add_done_callback(lambda _: self._taken.put(0))

    def put(self, rows: pa.Table) -> None:
        while self._bytes >= _QUEUED_BYTES and not self._future.done():
            self._bytes -= self._taken.get()
        if self._future.done():
            self._future.result()  # the worker failed: its error is the news
        self._pieces.put(rows)
        self._bytes += rows.nbytes

    def end(self) -> None:
        self._pieces.put(None)

    def abandon(self) -> None:
        self._abandoned = True
        self._pieces.put(None)

    def result(self) -> WriteStat:
        return self._future.result()

    def _rows(self) -> Iterator[pa.Table]:
        while (rows := self._pieces.get()) is not None and not self._abandoned:
            self._taken.put(rows.nbytes)
            yield rows
            del rows
        if self._abandoned:
            raise ClosedError


def _write_base(work: Job, number: int, target: Target, rows: Iterator[pa.Table], alone: bool) -> WriteStat:
    txn, storage = work.txn, work.txn.storage
    base = work.slices[target.slice_no].base if target.slice_no is not None else None
    token = f"{work.first + number}-0-1"
    spec = BaseSpec(
        partition=target.partition,
        file_id=target.file_id,
        instant=txn.instant,
        token=token,
        name=base_file_name(target.file_id, token, txn.instant),
        schema=work.schema,
        avro=work.avro,
        inserts=target.inserts + target.changes.revived,
        settings=work.settings,
        key_fields=work.state.config.record_key_fields,
        aside="" if work.publish is None else aside(txn.instant),
    )
    mark(txn, spec.path, CREATE_MARKER if base is None else MERGE_MARKER)
    made = _Numbered(work, number, spec.inserts > 0)
    with explained(f"{txn.where}/{spec.path}", "written"):
        if target.kind == CREATE:
            written = write_new(storage, spec, (made.new_rows(piece) for piece in rows))
        else:
            assert target.kind == REWRITE, target.kind
            assert target.slice_no is not None, "a rewrite is of a slice"
            fold = work.folds.get(target.slice_no)
            if base is not None and fold is None:
                spec = replace(spec, same_keys=not spec.inserts and not target.changes.deletes)
                edits = StreamedEdit(rows, lambda pieces: _edit(made, pieces, None))
                written = rewrite(storage, spec, base, edits, edits.added(), alone)
            else:
                edit, added = _edit(made, list(rows), fold)
                spec = replace(spec, inserts=sum(piece.num_rows for piece in added))
                written = rewrite(storage, spec, base, edit, added, alone) if base else write_new(storage, spec, added)
    size_bytes = written.size_bytes
    if work.publish is not None:
        size_bytes = work.publish(spec.path, lambda: storage.rename(spec.aside, spec.path), size_bytes)
    where = f"{txn.where}: {txn.action} {txn.instant}"
    logged = made.logged_rows
    require_rows(where, target, written.rows_before + logged, written.rows)
    if work.unique:
        require_unique(where, target, made.new_keys, made.changed_keys)
    changes = target.changes
    return WriteStat(
        file_id=target.file_id,
        path=spec.path,
        prev_commit=base.instant if base is not None else "null",
        num_writes=written.rows,
        num_deletes=changes.deletes,
        num_update_writes=changes.updates,
        num_inserts=target.inserts + changes.revived,
        total_write_bytes=size_bytes,
        total_write_errors=0,
        partition_path=target.partition,
        file_size_in_bytes=size_bytes,
        prev_base_file=base.name if base is not None else None,
    )


class _Numbered:
    """Gives the rows of one file their meta columns; the sequence numbers count up over all calls."""

    def __init__(self, work: Job, number: int, grows: bool = False, first: int = 0) -> None:
        self._work = work
        self._grows = grows  # new keys come to the file
        self._prefix = f"{work.txn.instant}_{work.first + number}_"
        self._next = first
        self.logged_rows = 0  # what the log adds to the rows of the old file
        self.new_keys: list[pa.Table] = []
        self.changed_keys: list[pa.Table] = []

    def new_rows(self, rows: pa.Table) -> pa.Table:
        """As `base_rows`; the keys are remembered as new ones."""
        self._remember(self.new_keys, rows)
        return self.base_rows(rows)

    def changed(self, rows: pa.Table) -> None:
        """Remember the keys of rows that change; only new ones could be the same."""
        if self._grows:
            self._remember(self.changed_keys, rows)

    def _remember(self, keys: list[pa.Table], rows: pa.Table) -> None:
        if self._work.unique and rows.num_rows:
            keys.append(rows.select([ROW_KEY, ROW_HASH]))

    def base_rows(self, rows: pa.Table) -> pa.Table:
        """The stream's rows with the columns of a base file, those that never vary left out."""
        beat(self._work.txn)
        numbers = pa.array(np.arange(self._next, self._next + rows.num_rows)).cast(pa.string())
        self._next += rows.num_rows
        meta = [
            pa.repeat(pa.scalar(self._work.txn.instant), rows.num_rows),
            pc.binary_join_element_wise(self._prefix, numbers, ""),
            rows[ROW_KEY],
        ]
        schema = self._work.schema
        columns = [*meta, *(rows[name] for name in schema.names[5:])]
        names = [*schema.names[:3], *schema.names[5:]]
        wanted = pa.schema([schema.field(name) for name in names])
        return conform(pa.table(columns, names=names), wanted, f"{self._work.txn.where}: rows to write")

    def log_rows(self, rows: pa.Table, file_ids: pa.Array) -> pa.Table:
        """The stream's rows as records of a log block; `file_ids` has one id per row (hudi-format 3.4)."""
        base = self.base_rows(rows)
        columns = [*base.columns[:3], rows[ROW_PART], file_ids, *base.columns[3:]]
        return conform(
            pa.table(columns, names=self._work.schema.names),
            self._work.schema,
            f"{self._work.txn.where}: rows to write",
        )


def _edit(made: _Numbered, pieces: list[pa.Table], fold: tuple[Batch, int] | None) -> tuple[Edit, list[pa.Table]]:
    """Changes in place, and the rows that come on top: those that have no place in the old file.

    With `fold` the slice has a log: base rows that it made void go, its surviving records come on top.
    """
    rows = pa.concat_tables(pieces)
    fate = rows[ROW_FATE].to_numpy()
    place = pc.fill_null(rows[ROW_NO], -1).to_numpy()
    based = place >= 0
    replaced, removed = based & (fate == UPDATED), based & (fate == DELETED)
    changed = _chosen(rows, pa.array(replaced))
    made.changed(changed)
    replacements = made.base_rows(changed)
    added = [made.new_rows(rows.filter(pa.array(fate == INSERTED)))]
    gone = np.unique(place[removed])
    if fold is None:
        assert based[fate != INSERTED].all(), "a change must have a place in the base file"
    else:
        dead, live = changes_of(fold)
        made.logged_rows = live.num_rows - len(dead)
        gone = np.union1d(gone, dead)
        beyond = rows.filter(pa.array(~based & (fate == UPDATED)))
        made.changed(beyond)
        away = rows[ROW_KEY].filter(pa.array(~based & (fate != INSERTED))).combine_chunks()
        live = live.filter(pc.invert(pc.is_in(live["_hoodie_record_key"], value_set=away)))
        above = made.base_rows(beyond)
        added = [live.select(above.column_names).cast(above.schema), above, *added]
    edit = Edit(place[replaced], replacements, gone)
    assert (np.diff(edit.replaced) > 0).all(), "rows must come sorted, one per place"
    return edit, added


def _chosen(rows: pa.Table, mask: pa.Array | pa.ChunkedArray) -> pa.Table:
    """The rows where `mask` is true; usually these are all, which need no copy."""
    return rows if pc.all(mask).as_py() else rows.filter(mask)


def _deletes(rows: pa.Table) -> pa.Table:
    """key, part and ord_0 ... of the rows to delete."""
    names = {ROW_KEY: "key", ROW_PART: "part"}
    names |= {n: f"ord_{n.removeprefix(ORD_PREFIX)}" for n in rows.column_names if n.startswith(ORD_PREFIX)}
    return rows.select(list(names)).rename_columns(list(names.values()))


class _Gathered:
    """Rows of several targets on their way to one kind of block."""

    def __init__(self) -> None:
        self._rows: list[pa.Table] = []
        self._ids: list[pa.Array] = []
        self._count = 0

    def add(self, target: Target, rows: pa.Table) -> tuple[int, int]:
        """The places that the rows get."""
        self._rows.append(rows)
        self._ids.append(pa.repeat(pa.scalar(target.file_id), rows.num_rows))
        first, self._count = self._count, self._count + rows.num_rows
        return first, self._count

    def records(self, made: _Numbered) -> pa.Table:
        return made.log_rows(pa.concat_tables(self._rows), pa.concat_arrays(self._ids))


@dataclass(frozen=True, slots=True)
class _Encoded:
    """Blocks of a log file, and what is in them."""

    blocks: bytes
    records: int
    deletes: int


@dataclass(frozen=True, slots=True)
class _Held:
    """Rows of a target that wait to be encoded, the parts that are, and the number of their rows."""

    target: Target
    rows: list[pa.Table]
    parts: list[Future[_Encoded]]
    before: int = 0

    @property
    def count(self) -> int:
        return sum(piece.num_rows for piece in self.rows)


class _LogBuffer:
    """Rows for log files, until there are enough to encode them together; then the files, in threads."""

    def __init__(self, work: Job, stats: list[WriteStat | None], workers: Workers) -> None:
        self._work = work
        self._stats = stats
        self._held: dict[int, _Held] = {}
        self._workers = workers
        self._running: deque[Future[Any]] = deque()
        self._logs: dict[tuple[str, str], list[LogFile]] = {}
        for file in work.logs:
            self._logs.setdefault((file.partition, file.file_id), []).append(file)

    def __contains__(self, number: int) -> bool:
        return number in self._held

    def is_full(self) -> bool:
        """Whether the targets held are to be flushed before another one comes."""
        return any(h.parts for h in self._held.values()) or sum(h.count for h in self._held.values()) >= LOG_ROWS

    def add(self, number: int, target: Target, rows: pa.Table) -> None:
        held = self._held.setdefault(number, _Held(target, [], []))
        if len(self._held) == 1 and held.count >= PART_ROWS:  # and more come
            self.wait(WORKERS - 1)
            part = self._workers.submit(self._part, number, held)
            self._running.append(part)
            held = self._held[number] = _Held(target, [], [*held.parts, part], held.before + held.count)
        held.rows.append(rows)

    def flush(self) -> None:
        """Begin to write the log files of all targets held; their rows must be complete."""
        if not self._held:
            return
        self.wait(WORKERS - 1)
        self._running.append(self._workers.submit(self._write, self._held))
        self._held = {}

    def wait(self, left: int = 0) -> None:
        """Until at most `left` flushes are under way. An error of one is raised here."""
        while len(self._running) > left:
            self._running.popleft().result()

    def _part(self, number: int, held: _Held) -> _Encoded:
        [part] = self._encoded(_Numbered(self._work, number, first=held.before), [held])
        return part

    def _write(self, targets: Mapping[int, _Held]) -> None:
        first = next(iter(targets.values())).before if len(targets) == 1 else 0
        encoded = self._encoded(_Numbered(self._work, min(targets), first=first), list(targets.values()))
        for (number, held), last in zip(targets.items(), encoded, strict=True):
            parts = [*(part.result() for part in held.parts), last]
            self._stats[number] = self._put(number, held.target, parts)

    def _encoded(self, made: _Numbered, targets: Sequence[_Held]) -> list[_Encoded]:
        """The blocks of the rows of each target."""
        work = self._work
        full, partial, contents = _Gathered(), _Gathered(), []
        for held in targets:
            rows = pa.concat_tables(held.rows)
            deleted = pc.equal(rows[ROW_FATE], DELETED)
            in_part = pc.and_(pc.equal(rows[ROW_FATE], UPDATED), held.target.slice_no in work.partial.slices)
            in_full = pc.invert(pc.or_(deleted, in_part))
            spans = full.add(held.target, _chosen(rows, in_full)), partial.add(held.target, rows.filter(in_part))
            contents.append(LogContent(spans, _deletes(rows.filter(deleted))))
        names = (*META_COLUMNS, *work.partial.columns)
        records = [
            Records(full.records(made), work.avro),
            Records(partial.records(made).select(names), work.avro, True),
        ]
        files = encode_groups(records, contents, work.txn.instant, work.settings.log_block_bytes, work.ordered_deletes)
        return [_Encoded(f, c.records, c.deletes.num_rows) for f, c in zip(files, contents, strict=True)]

    def _put(self, number: int, target: Target, parts: Sequence[_Encoded]) -> WriteStat:
        work, txn = self._work, self._work.txn
        data = b"".join(part.blocks for part in parts) if len(parts) > 1 else parts[0].blocks
        records, deletes = sum(part.records for part in parts), sum(part.deletes for part in parts)
        version = txn.config.version
        assert target.slice_no is not None, "a log file belongs to a slice"
        file_slice = work.slices[target.slice_no]
        siblings = self._logs.get(file_slice.group, [])
        token = f"{work.first + number}-{work.stage}-1"
        name, number_in_slice = next_log_file(file_slice, txn.instant, token, version, siblings)
        path = f"{target.partition}/{name}" if target.partition else name
        mark(txn, path, CREATE_MARKER if version >= 8 else APPEND_MARKER)
        if work.publish is not None:
            work.publish(path, lambda: txn.storage.put(path, data), len(data))
        else:
            txn.storage.put(path, data)
        own_slice = [f.name for f in sorted(siblings, key=lambda f: f.version) if f.instant == file_slice.instant]
        require_records(f"{txn.where}: {txn.action} {txn.instant}", target, records, deletes)
        return WriteStat(
            file_id=target.file_id,
            path=path,
            prev_commit=txn.instant if version >= 8 else file_slice.instant,
            num_writes=records,
            num_deletes=deletes,
            num_update_writes=target.changes.updates,
            num_inserts=target.changes.revived,
            total_write_bytes=len(data),
            total_write_errors=0,
            partition_path=target.partition,
            file_size_in_bytes=len(data),
            log_version=number_in_slice,
            log_offset=0,
            base_file="" if version >= 8 or file_slice.base is None else file_slice.base.name,
            log_files=(name,) if version >= 8 else (*own_slice, name),
        )
