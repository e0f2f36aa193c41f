"""A write cut for many workers: decided and committed here, its files written by whoever runs the tasks (`tasks`).

It is the same road as every write (`lakesql.write`): the rows are tagged and routed under the table's lock, which is
free again when the tasks are made. From then on the instant is pending, as that of any engine that writes: other writers of
lakesql refuse, and Spark sees it, as long as its heartbeat is young. A thread of the coordinator keeps it so. When the
coordinator dies, or the plan is dropped, the heartbeat ages, and after 120 s the next write rolls the instant back, with all files that
its markers name, as that of every dead writer.

To commit, the lock is taken again, and the timeline looked at: who wrote to the same file groups meanwhile, or added rows
where the keys of this plan are new, is a conflict, and then the files of the tasks are taken back.
"""

import os
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import Any, overload

import duckdb

from lakesql.errors import CommitConflict, CommitUnknown, TableError
from lakesql.format.metadata import WriteStat
from lakesql.table.clock import Clock, system_clock
from lakesql.table.state import TableState, load
from lakesql.write import (
    Planned,
    Road,
    begun,
    changes_nothing,
    commit,
    complete,
    finished,
    new_file_id,
    stream,
    totals,
    write,
)
from lakesql.write.result import WriteResult
from lakesql.write.retry import locked
from lakesql.write.slices import by_target
from lakesql.write.tasks import Task, TaskResult, stats_in_order, tasks_of
from lakesql.write.transaction import HEARTBEAT_S, PLANNED, Transaction, heartbeat_path
from lakesql.write.verbs import looks_up

_SERVICES = ("CLUSTER", "COMPACT", "LOG_COMPACT")


class Plan(Sequence[Task]):
    """The tasks of one write. It belongs to the process that made it; `with plan:` gives it up unless it was committed."""

    def __init__(
        self, road: Road, planned: Planned, counts: WriteResult, begin: "_Begun | None", settings: Mapping[str, str]
    ) -> None:
        # What the caller's rows take in memory is in the tasks by now.
        self._road = replace(road, batch=replace(road.batch, held=None), found=None)
        self._planned = planned
        self._begun = begin
        self._lock = threading.Lock()
        self._open = True
        self.counts = counts
        """What a commit will report: rows by what becomes of them."""
        self.settings = settings
        self._started = time.perf_counter()
        if begin is not None:
            weakref.finalize(self, begin.heart.stop)

    @property
    def instant(self) -> str | None:
        """The instant that a commit will have; None when there is nothing to write."""
        return None if self._begun is None else self._begun.txn.instant

    @property
    def tasks(self) -> tuple[Task, ...]:
        return () if self._begun is None else self._begun.tasks

    @property
    def is_open(self) -> bool:
        """Whether it can be committed: not when it was, or was given up."""
        return self._open

    def __len__(self) -> int:
        return len(self.tasks)

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Task]: ...
    def __getitem__(self, index: int | slice) -> Task | Sequence[Task]:
        return self.tasks[index]

    def __iter__(self) -> Iterator[Task]:
        return iter(self.tasks)

    def __repr__(self) -> str:
        rows = sum(task.rows for task in self.tasks)
        state = "open" if self._open else "over"
        return f"<lakesql.Plan {self.instant or 'nothing to write'}: {len(self)} tasks, {rows:,} rows, {state}>"

    def __reduce__(self) -> Any:
        raise TypeError("a plan stays in the process that made it; send its tasks to the workers")

    def __enter__(self) -> "Plan":
        return self

    def __exit__(self, *_: object) -> None:
        self.abandon()

    def abandon(self) -> None:
        """Give the plan up: the files of its tasks go, the table is as before. Does nothing when the plan is over."""
        with self._lock:
            if self._open and self._begun is not None:
                self._begun.take_back()
            self._open = False

    def commit(self, results: Iterable[object]) -> WriteResult:
        """Publish what the tasks have written.

        TableError when results are missing or of another plan, or a file is not there: the plan stays open.
        CommitConflict when another writer came between: nothing was committed, the plan is over.
        """
        with self._lock:
            where = self._planned.now.path
            if not self._open:
                raise TableError(f"{where}: plan {self.instant} is over. Nothing was committed. Make a new plan.")
            stats = stats_in_order(where, self.tasks, results)
            if self._begun is None:
                self._open = False
                return self.counts
            self._require_pending(self._begun)
            _require_files(self._begun.txn, stats)
            with locked(self._planned.now.storage, self.settings, self._planned.now.config.properties):
                result = self._committed(self._begun, stats)
            taken = time.perf_counter() - self._started
            return replace(result, notes=tuple(self._road.notes), duration_s=self.counts.duration_s + taken)

    def _require_pending(self, begin: "_Begun") -> None:
        """CommitConflict when another writer took the plan for dead; what late tasks wrote goes."""
        if not commit.is_pending(begin.txn):
            self._open = False
            begin.take_back()
            raise CommitConflict(
                f"{begin.txn.where}: another writer rolled plan {begin.txn.instant} back, since its coordinator gave no sign "
                "of life. Nothing was committed. Make a new plan."
            )

    def _committed(self, begin: "_Begun", stats: Sequence[WriteStat]) -> WriteResult:
        self._open = False
        try:
            now = load(begin.txn.storage)
            self._refuse_changes(now)
            completed = complete(self._road, self._planned, begin.txn, stats, now)
        except CommitUnknown:
            begin.heart.stop()
            raise
        except BaseException:
            begin.take_back()
            raise
        begin.heart.stop()
        return finished(self._road, self._planned, begin.txn, stats, replace(self.counts, completed=completed))

    def _refuse_changes(self, now: TableState) -> None:
        """CommitConflict when the plan is no longer right, beyond the file groups, which `complete` looks at."""
        before = self._planned.now
        if not now.schema.equals(before.schema):
            raise CommitConflict(
                f"{before.path}: the table's schema changed since plan {self.instant} was made. Nothing was committed. "
                "Make a new plan."
            )
        if not looks_up(self._road.verb, self._road.index):
            return
        known = {i.requested for i in before.timeline.completed_writes()}
        own = {t.partition for t in self._planned.targets if t.inserts or t.changes.revived}
        for instant in now.history.completed_writes():
            if instant.requested in known or not own:
                continue
            metadata = now.commit(instant)
            if metadata.compacted or (metadata.operation or "").upper() in _SERVICES:
                continue
            theirs = {p for p, stats in metadata.partition_stats.items() if any(s.num_inserts for s in stats)}
            if theirs and (self._road.index.everywhere or theirs & own):
                raise CommitConflict(
                    f"{before.path}: {instant.action} {instant.requested} inserted rows after plan {self.instant} looked "
                    "its keys up, so that a key could come twice. Nothing was committed. Make a new plan."
                )


def plan_write(
    con: duckdb.DuckDBPyConnection,
    state: TableState,
    rows_sql: str,
    *,
    operation: str,
    settings: Mapping[str, str] | None = None,
    clock: Clock = system_clock,
    ids: Callable[[], str] = new_file_id,
) -> Plan:
    """The plan of a write of the rows; arguments and errors are those of `write`. Its instant is pending afterwards."""
    made: list[Plan] = []

    def walk(road: Road, planned: Planned) -> WriteResult:
        counts = totals(road, planned)
        begin = None if changes_nothing(road, planned) else _Begun.of(road, planned)
        made.append(Plan(road, planned, counts, begin, settings or {}))
        return counts

    counts = write(con, state, rows_sql, operation=operation, settings=settings, clock=clock, ids=ids, walk=walk)
    plan = made[-1]
    plan.counts = counts
    return plan


class _Begun:
    """The pending instant of a plan."""

    def __init__(self, txn: Transaction) -> None:
        self.txn = txn
        self.heart = _Heart(txn)
        self.tasks: tuple[Task, ...] = ()

    @classmethod
    def of(cls, road: Road, planned: Planned) -> "_Begun":
        begin = cls(begun(road, planned, PLANNED))
        try:
            begin.heart.start()
            # Version 6 names log files after their slice: a name of ours must never be that of another writer.
            stage = random.randrange(1, 1_000_000_000) if planned.now.config.version < 8 else 0
            with stream(road, planned, begin.txn) as rows:
                if rows is not None:
                    with closing(by_target(road.con, rows)) as pieces:
                        begin.tasks = tasks_of(
                            begin.txn,
                            planned.now,
                            planned.slices,
                            road.settings,
                            road.rules.combine,
                            stage,
                            planned.targets,
                            rows.sequence,
                            pieces,
                        )
        except BaseException:
            begin.take_back()
            raise
        return begin

    def take_back(self) -> None:
        """Remove everything that was written. Workers that are still at work find the heartbeat gone, and stop."""
        self.heart.stop()
        with suppress(Exception):
            self.txn.storage.delete(heartbeat_path(self.txn.instant))
        commit.abort(self.txn)


class _Heart:
    """A thread that shows other writers that the coordinator is alive."""

    def __init__(self, txn: Transaction) -> None:
        self._txn = txn
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._beat_on, name="lakesql-heart", daemon=True)
        self._process = os.getpid()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """No beat comes after this."""
        self._stopped.set()
        if self._thread.is_alive() and self._process == os.getpid() and self._thread is not threading.current_thread():
            self._thread.join()

    def _beat_on(self) -> None:
        while not self._stopped.wait(HEARTBEAT_S):
            with suppress(Exception):  # the next one may get through; commit finds out if none did
                self._txn.storage.put(heartbeat_path(self._txn.instant), self._txn.owner)


def _require_files(txn: Transaction, stats: Iterable[WriteStat]) -> None:
    """TableError when a file of a task is not in this table, as the coordinator sees it."""
    for stat in stats:
        there = txn.storage.stat(stat.path or "")
        if there is None or there.size_bytes != stat.file_size_in_bytes:
            raise TableError(
                f"{txn.where}: {stat.path} of plan {txn.instant} is not there as its task wrote it. Nothing was committed; "
                "the plan is still open. Let the workers see the same table under the same path, and run the task again."
            )


def plan_of(where: str, plans: Iterable[Plan], results: Sequence[object]) -> Plan:
    """The plan that the results are of. TableError when there is none, or it is not clear which."""
    names = {r.plan for r in results if isinstance(r, TaskResult)}
    chosen = [p for p in plans if p.instant in names] if results else [p for p in plans if p.is_open and not len(p)]
    if not results and not chosen:
        chosen = [p for p in plans if p.is_open]
    if len(chosen) != 1:
        told = ", ".join(sorted(names)) or "none"
        raise TableError(
            f"{where}: the results (of plan {told}) are not those of one plan that was made with this table object. Nothing was "
            "committed. Commit where the plan was made, each plan with its own results."
        )
    return chosen[0]
