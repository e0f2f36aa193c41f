"""Tasks of a plan: values that pickle, and what a worker does with one, in whatever process sees the table.

A task is one base file to write, or log files of several file groups that together have LOG_ROWS rows at least, with the rows
that go there: Arrow IPC in the task itself up to INLINE_BYTES, else in files of PART_BYTES below the table's `.hoodie`, which
whoever writes the table can read. These go when the instant ends, whichever way it does. `plans` makes tasks and commits.

A task may run any number of times, also at once: its files have the same names and rows each time. A file is made aside and
named when it is complete; who comes second finds it there and leaves it. A worker that dies leaves what goes with
the instant. One that lives longer than its plan finds that gone and takes its file back.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import duckdb
import pyarrow as pa

from lakesql.errors import CommitConflict, TableError
from lakesql.format.files import FileSlice, LogFile
from lakesql.format.metadata import WriteStat
from lakesql.storage import Storage
from lakesql.table import deltas, read
from lakesql.table.damaged import damage_named
from lakesql.table.listing import look
from lakesql.table.state import TableState
from lakesql.write import commit
from lakesql.write.partial import FULL
from lakesql.write.plan import APPEND, REWRITE, Target
from lakesql.write.settings import WriteConfig
from lakesql.write.slices import LOG_ROWS, cut, job, write_targets
from lakesql.write.transaction import PLANNED, Transaction, clear, work_folder

INLINE_BYTES = 1 << 20
INLINE_TOTAL = 64 << 20
PART_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Task:
    """Files to write, and their rows; made by a plan, run by `Table.run_task`."""

    table: str
    plan: str  # the instant
    action: str
    operation: str
    number: int
    of: int  # how many tasks the plan has
    first: int = field(repr=False)  # number of the first target among all of the plan
    targets: tuple[Target, ...] = field(repr=False)
    counts: tuple[int, ...] = field(repr=False)  # rows of each
    slices: Mapping[int, FileSlice] = field(repr=False)
    logs: tuple[LogFile, ...] = field(repr=False)  # version 6: those of these file groups
    settings: WriteConfig = field(repr=False)
    unique: bool = field(repr=False)
    stage: int = field(repr=False)
    schema: str = field(repr=False)  # fingerprint of the table's
    parts: tuple[bytes | str, ...] = field(repr=False)  # Arrow IPC streams, or where they lie in the table

    @property
    def rows(self) -> int:
        return sum(self.counts)

    def __str__(self) -> str:
        files = f"{len(self.targets)} file{'s' * (len(self.targets) > 1)}"
        return f"task {self.number + 1} of {self.of} of plan {self.plan}: {files}, {self.rows:,} rows"


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What a task has written, for `Table.commit`."""

    table: str
    plan: str
    number: int
    stats: tuple[WriteStat, ...] = field(repr=False)


def fingerprint(state: TableState) -> str:
    """Says whether two states have the same schema."""
    return hashlib.sha256(json.dumps(state.avro, sort_keys=True).encode()).hexdigest()


def tasks_of(
    txn: Transaction,
    state: TableState,
    slices: Sequence[FileSlice],
    settings: WriteConfig,
    unique: bool,
    stage: int,
    targets: Sequence[Target],
    sequence: Sequence[tuple[int, int]],
    rows: Iterable[tuple[int, pa.Table]],
) -> tuple[Task, ...]:
    """The tasks, their rows put aside. `rows` come in the order of `sequence`: (number of a target, its rows)."""
    groups = _groups(targets, sequence)
    place = {number: at for at, group in enumerate(groups) for number, _ in group}
    logs = [f for f in state.files if isinstance(f, LogFile)] if state.config.version < 8 else []
    schema, spool = fingerprint(state), _Spool(txn)
    parts: list[tuple[bytes | str, ...]] = [()] * len(groups)
    at = -1
    for number, piece in rows:
        if place[number] != at:
            if at >= 0:
                parts[at] = spool.end()
            at = place[number]
        spool.add(piece)
    if at >= 0:
        parts[at] = spool.end()
    made: list[Task] = []
    for group, own in zip(groups, parts, strict=True):
        chosen = tuple(targets[number] for number, _ in group)
        numbers = [n for t in chosen if (n := t.slice_no) is not None]
        ids = {(t.partition, t.file_id) for t in chosen}
        made.append(
            Task(
                table=txn.storage.uri,
                plan=txn.instant,
                action=txn.action,
                operation=txn.operation,
                number=len(made),
                of=len(groups),
                first=group[0][0],
                targets=chosen,
                counts=tuple(count for _, count in group),
                slices={n: slices[n] for n in numbers},
                logs=tuple(f for f in logs if (f.partition, f.file_id) in ids),
                settings=settings,
                unique=unique,
                stage=stage,
                schema=schema,
                parts=own,
            )
        )
    return tuple(made)


def _groups(targets: Sequence[Target], sequence: Sequence[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """The targets of each task, with their rows: neighbouring log files share one until they have rows enough."""
    groups: list[list[tuple[int, int]]] = []
    for number, count in sequence:
        last = groups[-1] if groups else []
        joins = (
            bool(last)
            and targets[number].kind == targets[last[-1][0]].kind == APPEND
            and number == last[-1][0] + 1
            and sum(c for _, c in last) < LOG_ROWS
        )
        if joins:
            last.append((number, count))
        else:
            groups.append([(number, count)])
    return groups


class _Spool:
    """Rows of one task after the other; at most PART_BYTES of them in memory, and INLINE_TOTAL of small tasks."""

    def __init__(self, txn: Transaction) -> None:
        self._txn = txn
        self._held: list[pa.Table] = []
        self._bytes = 0
        self._parts: list[bytes | str] = []
        self._files = 0
        self._inline = 0

    def add(self, piece: pa.Table) -> None:
        self._held.append(piece)
        self._bytes += piece.nbytes
        if self._bytes >= PART_BYTES:
            self._flush(small=False)

    def end(self) -> tuple[bytes | str, ...]:
        """The parts of the task that is complete."""
        if self._held:
            self._flush(small=not self._parts)
        parts, self._parts = tuple(self._parts), []
        return parts

    def _flush(self, small: bool) -> None:
        data = _encoded(self._held)
        self._held, self._bytes = [], 0
        if small and len(data) <= INLINE_BYTES and self._inline + len(data) <= INLINE_TOTAL:
            self._inline += len(data)
            self._parts.append(data)
            return
        path = f"{work_folder(self._txn.instant)}/rows/{self._files:06}.arrow"
        self._files += 1
        self._txn.storage.put(path, data)
        self._parts.append(path)


def _encoded(pieces: Sequence[pa.Table]) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, pieces[0].schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        for piece in pieces:
            writer.write_table(piece)
    return bytes(out.getvalue().to_pybytes())


# ---------------------------------------------------------------- in a worker


def run_task(con: duckdb.DuckDBPyConnection, storage: Storage, task: Task) -> TaskResult:
    """Write the files of a task.

    CommitConflict when its plan is over, or the table is another one by now; nothing of the task is left then.
    """
    # The worker gives no sign of life for the plan: that is its coordinator's to do.
    txn = Transaction(storage, look(storage).config, task.plan, task.action, task.operation, PLANNED, [math.inf])
    _require_open(txn)
    state = look(storage)
    if fingerprint(state) != task.schema:
        raise CommitConflict(
            f"{txn.where}: the table's schema changed since plan {task.plan} was made. Nothing was committed. Give the "
            "plan up and make a new one."
        )
    with damage_named(state):
        work = job(txn, state, task.slices, task.settings, _folds(con, state, task), task.unique, FULL)
        work = replace(work, logs=task.logs, first=task.first, stage=task.stage, publish=_publisher(txn))
        sequence = [(n, count) for n, count in enumerate(task.counts)]
        try:
            stats = write_targets(work, task.targets, cut(_batches(storage, task), sequence))
        except BaseException:
            _leave_nothing(txn)
            raise
    return TaskResult(task.table, task.plan, task.number, tuple(stats))


def _folds(con: duckdb.DuckDBPyConnection, state: TableState, task: Task) -> dict[int, tuple[deltas.Batch, int]]:
    """What the logs of the slices do whose base files are rewritten."""
    numbers = [t.slice_no for t in task.targets if t.kind == REWRITE and t.slice_no is not None]
    logged = [n for n in numbers if task.slices[n].logs]
    if not logged:
        return {}
    view = read.plan(state).view
    return dict(zip(logged, deltas.prepare(con, view, [task.slices[n] for n in logged]), strict=True))


def _batches(storage: Storage, task: Task) -> Iterator[pa.RecordBatch]:
    for part in task.parts:
        try:
            data = part if isinstance(part, bytes) else storage.read(part)
        except FileNotFoundError:
            raise _over(storage.uri, task.plan) from None
        with pa.ipc.open_stream(pa.BufferReader(data)) as reader:
            yield from reader


def _publisher(txn: Transaction) -> Callable[[str, Callable[[], None], int], int]:
    """How a file of a task gets its name: unless it has it by another attempt, and not when the plan is over."""

    def publish(path: str, name: Callable[[], None], size_bytes: int) -> int:
        _require_open(txn)
        there = txn.storage.stat(path)
        if there is None:
            name()
        _require_open(txn, path)
        return size_bytes if there is None else there.size_bytes

    return publish


def _require_open(txn: Transaction, path: str | None = None) -> None:
    """CommitConflict when the plan is over; the file at `path` is taken back then, unless it was committed."""
    if commit.is_pending(txn):
        return
    if commit.is_completed(txn):
        if path is not None:
            return
    elif path is not None:
        txn.storage.delete(path)
    raise _over(txn.where, txn.instant)


def _leave_nothing(txn: Transaction) -> None:
    """Remove the traces that an attempt has made after its plan was over."""
    if not commit.is_pending(txn):
        clear(txn.storage, txn.instant, planned=True)


def _over(where: str, plan: str) -> CommitConflict:
    return CommitConflict(
        f"{where}: plan {plan} is over: it was committed, given up or rolled back by another writer, or this is not the "
        "table it was made for. Nothing of this task was kept. If the plan was not committed, make a new one."
    )


# ---------------------------------------------------------------- what came back


def stats_in_order(where: str, tasks: Sequence[Task], results: Iterable[object]) -> list[WriteStat]:
    """The write stats of all targets; TableError when a result is missing, or is none of these tasks."""
    found: dict[int, TaskResult] = {}
    plan = tasks[0].plan if tasks else ""
    for result in results:
        if not isinstance(result, TaskResult):
            raise TableError(
                f"{where}: commit got {type(result).__name__}, which is no result of run_task. Nothing was committed; the "
                "plan is still open."
            )
        if (result.plan, result.table) != (plan, tasks[0].table if tasks else "") or result.number >= len(tasks):
            raise TableError(
                f"{where}: the results are of several plans ({plan} and {result.plan}). Nothing was committed; the "
                "plans are still open. Commit each with its own results."
            )
        found.setdefault(result.number, result)
    missing = [task.number for task in tasks if task.number not in found]
    if missing:
        some = ", ".join(map(str, missing[:10])) + (", ..." if len(missing) > 10 else "")
        raise TableError(
            f"{where}: of {len(tasks)} tasks of plan {plan} the results of {len(missing)} are missing (number {some}). "
            "Nothing was committed; the plan is still open. Run these tasks and commit all results together."
        )
    stats: dict[int, WriteStat] = {}
    for task in tasks:
        for n, stat in enumerate(found[task.number].stats):
            stats[task.first + n] = stat
    return [stats[number] for number in sorted(stats)]
