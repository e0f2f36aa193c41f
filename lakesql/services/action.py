"""The protocol that table services share: look, request a plan, run it, complete it; or give it back.

The table's lock is held for planning and for completing only, so writers never wait while files are written. One
runner of each kind of service works on a table at a time (`running`); its lock dies with its process, so a plan that is
inflight while nobody runs was left by a dead one, and the next runner takes it back (`revert`) and runs it again.
Another engine does not know the lock: its inflight plan counts as dead after FOREIGN_DEAD_MS without a trace.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import tzinfo

import duckdb

from lakesql.errors import CommitConflict, LakeError, TableError
from lakesql.format.timeline import COMPLETED, INFLIGHT, REQUESTED, Instant, Timeline, instant_file_name
from lakesql.storage import Storage
from lakesql.stores import calls as store_calls
from lakesql.table.clock import Clock, draw, timeline_zone
from lakesql.table.state import TableState, load
from lakesql.write import commit, metadata_table
from lakesql.write.check import require_writable
from lakesql.write.index import of_table
from lakesql.write.retry import locked
from lakesql.write.settings import WriteConfig, parse_settings
from lakesql.write.transaction import OWNER, Transaction, beat, heartbeat_path, marked_files, temporary_folder
from lakesql.write.undo import FOREIGN_DEAD_MS, heartbeat_owner, newest_trace_ms, undo_dead_writes

_DRAWS_MAX = 10


@dataclass(frozen=True, slots=True)
class Look:
    """The table as it is while its lock is held; dead writes are rolled back."""

    state: TableState
    zone: tzinfo
    settings: WriteConfig
    clock: Clock

    def later(self, newest: str) -> str:
        """A new time, larger than `newest`."""
        return draw(self.clock, newest, self.zone, self.state.path)


@contextmanager
def looking(storage: Storage, settings: Mapping[str, str], clock: Clock, alone: bool = True) -> Iterator[Look]:
    """Hold the table's lock and look. CommitConflict when it does not get free, or another engine is writing.

    With `alone` false writes of other engines may be in progress; they and dead ones are left as they are.
    """
    with locked(storage, settings):
        state = load(storage)
        require_writable(state)
        config = parse_settings({**of_table(state), **settings})
        zone = timeline_zone(state, config.timezone)
        if alone and undo_dead_writes(state, clock, zone):
            state = load(storage)
        yield Look(state, zone, config, clock)


@contextmanager
def running(storage: Storage, service: str) -> Iterator[None]:
    """Be the only lakesql runner of a service on this table. CommitConflict when another one is at work."""
    with storage.lock(service, 0):
        yield


def request(look: Look, action: str, operation: str, plan: bytes) -> Transaction:
    """Put a plan on the timeline, with an instant larger than every time there."""
    state, newest = look.state, look.state.timeline.newest_time
    for _ in range(_DRAWS_MAX):
        instant = draw(look.clock, newest, look.zone, state.path)
        txn = Transaction(state.storage, state.config, instant, action, operation)
        if state.storage.put_if_absent(path_of(txn, REQUESTED), plan):
            return txn
        newest = instant
    raise CommitConflict(
        f"{state.path}: {_DRAWS_MAX} instants in a row were taken by another writer. Nothing was planned. Try again."
    )


def planned(state: TableState, instant: Instant, operation: str) -> Transaction:
    """The transaction of a plan that is on the timeline already."""
    return Transaction(state.storage, state.config, instant.requested, instant.action, operation)


def start(txn: Transaction, body: bytes = b"") -> None:
    """Say that the plan is being carried out."""
    beat(txn)
    txn.storage.put_if_absent(path_of(txn, INFLIGHT), body)


def complete(txn: Transaction, look: Look, body: bytes) -> str:
    """Make the outcome visible; the completion time, in layout 1 the instant. The table's lock must be held.

    CommitConflict when somebody took the plan back or completed it, or built a metadata table that does not know our
    files; the caller then reverts. CommitUnknown when the outcome cannot be told.
    """
    now = _timeline(txn)
    ours = [i for i in now.instants if (i.requested, i.action) == (txn.instant, txn.action)]
    if not ours or ours[0].state != INFLIGHT:
        raise CommitConflict(
            f"{txn.where}: another writer took {txn.action} {txn.instant} over while it ran. Nothing of ours was "
            "committed. Look at the timeline, then run the service again."
        )
    if metadata_table.listed(look.state.config):
        raise CommitConflict(
            f"{txn.where}: another writer built a metadata table while {txn.action} {txn.instant} ran; it would not "
            "know our files. Nothing was committed. Run the service again."
        )
    completed = None
    if txn.config.layout != 1:
        completed = draw(look.clock, max(now.newest_time, txn.instant), look.zone, txn.where)
    commit.publish(txn, path_of(txn, COMPLETED, completed), body)
    return completed or txn.instant


def revert(txn: Transaction) -> None:
    """Take an attempt back that did not complete: its files, its markers, the inflight file; the plan stays."""
    for path, _ in marked_files(txn.storage, txn.instant):
        txn.storage.delete(path)
    txn.storage.delete_tree(temporary_folder(txn.instant))
    txn.storage.delete(path_of(txn, INFLIGHT))
    txn.storage.delete(heartbeat_path(txn.instant))


@contextmanager
def room_named(txn: Transaction, what: str) -> Iterator[None]:
    """Within, DuckDB's error about memory or temporary disk space is a TableError that says what to do."""
    try:
        yield
    except (duckdb.OutOfMemoryException, duckdb.IOException) as error:
        text = str(error).splitlines()[0]
        if not isinstance(error, duckdb.OutOfMemoryException) and "space" not in text.lower():
            raise
        raise TableError(
            f"{txn.where}: {what} {txn.instant} ran out of memory or of room for DuckDB's temporary files: {text} Nothing "
            "was committed and the plan stays. Free space, raise memory_limit or set temp_directory, then run it again."
        ) from error


def give_up(txn: Transaction, paths: Collection[str]) -> None:
    """After a failure: take the files of the attempt away; the plan goes back to requested, unless somebody took it.

    `paths` are the data files that we began. When the action is complete after all (an interrupt came right after the
    put), they stay. Never raises: the next runner can do it too.
    """
    with suppress(OSError, LakeError), store_calls.beyond_budget():
        state = load(txn.storage)
        now = next((i for i in state.timeline.instants if (i.requested, i.action) == (txn.instant, txn.action)), None)
        done = now if now is not None and now.is_completed else _completed_as_other(state, txn)
        if done is not None:
            stats = state.commit(done).partition_stats.values()
            if {s.path for of_partition in stats for s in of_partition} & set(paths):
                commit.finish(txn)
                return
        for path in paths:
            txn.storage.delete(path)
        theirs = [f.path for f in state.files if f.instant == txn.instant and f.path not in paths]
        if now is not None and now.state == INFLIGHT and not theirs:
            revert(txn)


def _completed_as_other(state: TableState, txn: Transaction) -> Instant | None:
    """A completed action may have another word than its plan: a clustering completes as a replacecommit."""
    return next((i for i in state.timeline.completed_writes() if i.requested == txn.instant), None)


def take_back(state: TableState, txn: Transaction, clock: Clock) -> TableState:
    """Revert what a dead runner left of an inflight plan; the state after it. `running` and the lock must be held.

    CommitConflict when the runner is another engine that showed a sign of life within FOREIGN_DEAD_MS.
    """
    instant = next(i for i in state.timeline.pending(txn.action) if i.requested == txn.instant)
    if instant.state == REQUESTED:
        return state
    if heartbeat_owner(state.storage, txn.instant) != OWNER:
        age_ms = clock() - newest_trace_ms(state, instant)
        if age_ms <= FOREIGN_DEAD_MS:
            raise CommitConflict(
                f"{state.path}: another writer runs {txn.action} {txn.instant} (last sign of life {age_ms / 1000:.0f} s "
                f"ago). Nothing was changed. Wait; after {FOREIGN_DEAD_MS // 1000} s without a sign it is taken over."
            )
    revert(txn)
    return load(state.storage)


def without_metadata_table(look: Look, completing: str = "") -> tuple[Look, str | None]:
    """The table without a metadata table, which would not know what a service does; a sentence when one went.

    `completing` is the instant of the compaction that the caller completes before it gives the lock back.
    """
    note = metadata_table.remove(look.state, look.clock(), completing)
    return (replace(look, state=load(look.state.storage)), note) if note else (look, None)


def path_of(txn: Transaction, stage: str, completed: str | None = None) -> str:
    """The timeline file of a stage of the action."""
    name = instant_file_name(txn.instant, txn.action, stage, txn.config.layout, completed)
    return f"{txn.config.timeline_folder}/{name}"


def _timeline(txn: Transaction) -> Timeline:
    files, _ = txn.storage.list(txn.config.timeline_folder)
    named = {f.path.rsplit("/", 1)[-1]: f.modified_ms for f in files}
    return Timeline.from_file_names(named, txn.config.layout, named)
