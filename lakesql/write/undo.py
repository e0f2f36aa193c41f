"""Rolling back what a dead writer left behind, before the next write (hudi-format 9.6, C.6).

Whose instant is it? We hold the table's lock, so a pending write whose heartbeat says `lakesql` has no living writer.
A pending write of another engine counts as dead when its newest trace is older than FOREIGN_DEAD_MS, Hudi's own
tolerance; a younger one is a CommitConflict. Pending compactions and clusterings are promises and stay.

The rollback is an action of its own, so that readers, Spark and a metadata table can follow it (`write.takeback`). A
crash in between leaves a pending instant that the next writer rolls back again, with the same rollback instant. A
rollback of a completed instant and a restore that lakesql began and did not finish are finished here as well.
"""

from collections.abc import Iterator
from datetime import tzinfo

from lakesql.errors import CommitConflict
from lakesql.format.timeline import INFLIGHT, REQUESTED, SERVICE_ACTIONS, WRITE_ACTIONS, Instant, instant_file_name
from lakesql.storage import Storage
from lakesql.table.clock import Clock, draw
from lakesql.table.state import TableState
from lakesql.write import metadata_table, restoring
from lakesql.write.takeback import groups_of, plan_rollback, run_rollback
from lakesql.write.transaction import OWNER, heartbeat_path, temporary_folder

FOREIGN_DEAD_MS = 120_000


def undo_dead_writes(state: TableState, clock: Clock, zone: tzinfo) -> list[str]:
    """Roll back every dead write, and finish undoing that was begun; sentences about it.

    CommitConflict when another engine is writing, or restoring, now. The caller holds the table's lock and must look at
    the table again when something was done.
    """
    finished = _finish_restore(state, clock, zone)
    if finished:
        return finished  # what else is pending shows at the next look
    notes = []
    newest = state.timeline.newest_time
    dead = dead_writes(state, clock)
    for begun, instant in _begun_rollbacks(state, {i.requested for i in dead}):
        metadata_table.remove(state, clock())
        plan = plan_rollback(state, instant, groups_of(state, instant))
        keep_plan = instant.action in SERVICE_ACTIONS or is_clustering(state, instant)
        newest = run_rollback(state, plan, begun, lambda t: draw(clock, t, zone, state.path), newest, keep_plan)
        state.storage.delete(heartbeat_path(begun))
        notes.append(f"Finished the rollback of {instant.requested} that was begun as {begun}.")
    for instant in dead:
        begun_before = begun_rollback(state, instant.requested)
        if begun_before is None:
            newest = begun = draw(clock, newest, zone, state.path)
        else:
            begun = begun_before
        plan = plan_rollback(state, instant)
        newest = run_rollback(state, plan, begun, lambda last: draw(clock, last, zone, state.path), newest)
        state.storage.delete(heartbeat_path(begun))
        notes.append(f"Rolled back the unfinished write {instant.requested} of a dead writer.")
    return notes


def _finish_restore(state: TableState, clock: Clock, zone: tzinfo) -> list[str]:
    """Finish a restore that lakesql began; CommitConflict for one of another engine."""
    for restore in state.timeline.pending("restore"):
        if heartbeat_owner(state.storage, restore.requested) != OWNER:
            raise CommitConflict(
                f"{state.path}: restore {restore.requested} is not finished. Nothing was committed. Finish it with "
                "the engine that began it."
            )
        metadata_table.remove(state, clock())
        restoring.finish(state, restore.requested, lambda t: draw(clock, t, zone, state.path))
        return [f"Finished the restore {restore.requested} that was begun before."]
    return []


def dead_writes(state: TableState, clock: Clock) -> list[Instant]:
    """Pending writes without a living writer, oldest first. CommitConflict for one that seems alive."""
    dead = []
    for instant in state.timeline.pending(*WRITE_ACTIONS):
        if not is_clustering(state, instant):
            refuse_living(state, instant, clock)
            dead.append(instant)
    return dead


def refuse_living(state: TableState, instant: Instant, clock: Clock) -> None:
    """CommitConflict when a pending instant of another engine showed a sign of life within FOREIGN_DEAD_MS."""
    if heartbeat_owner(state.storage, instant.requested) == OWNER:
        return
    age_ms = clock() - newest_trace_ms(state, instant)
    if age_ms <= FOREIGN_DEAD_MS:
        raise CommitConflict(
            f"{state.path}: another writer's {instant.action} {instant.requested} is in progress (last sign of "
            f"life {age_ms / 1000:.0f} s ago). Nothing was committed. Wait until it has finished; after "
            f"{FOREIGN_DEAD_MS // 1000} s without a sign it is rolled back."
        )


def is_clustering(state: TableState, instant: Instant) -> bool:
    """Version 6 gives clusterings and overwrites one name; only a clustering has a plan."""
    if instant.action != "replacecommit":
        return False
    name = instant_file_name(instant.requested, instant.action, REQUESTED, state.config.layout)
    if not (info := state.instant_files.get(name)) or not info.size_bytes:
        return False
    return state.plan(instant, name).get("clusteringPlan") is not None


def heartbeat_owner(storage: Storage, instant: str) -> bytes | None:
    """What the heartbeat file of an instant says; None when there is none."""
    try:
        return storage.read(heartbeat_path(instant))
    except FileNotFoundError:
        return None


def newest_trace_ms(state: TableState, instant: Instant) -> int:
    """When anything of a pending instant was last touched, in epoch milliseconds; 0 when nothing is there."""
    times = [info.modified_ms for name, info in state.instant_files.items() if name.startswith(f"{instant.requested}.")]
    heartbeat = state.storage.stat(heartbeat_path(instant.requested))
    times += [heartbeat.modified_ms] if heartbeat else []
    times += [info.modified_ms for info in state.storage.walk(temporary_folder(instant.requested))]
    return max(times, default=0)


def begun_rollback(state: TableState, instant: str) -> str | None:
    """A rollback of that instant that was begun and not completed."""
    return next((pending.requested for pending, target, _ in _targets(state) if target == instant), None)


def _begun_rollbacks(state: TableState, dead: set[str]) -> Iterator[tuple[str, Instant]]:
    """(rollback, its target) of the rollbacks that lakesql began, but for those of dead writes.

    A target that left the timeline already was taken back up to the completion of its rollback.
    """
    writes = {i.requested: i for i in state.timeline.instants if i.completed_action in WRITE_ACTIONS}
    for pending, target, word in _targets(state):
        if target not in dead and heartbeat_owner(state.storage, pending.requested) == OWNER:
            yield pending.requested, writes.get(target, Instant(target, word, INFLIGHT, None, ""))


def _targets(state: TableState) -> Iterator[tuple[Instant, str, str]]:
    """(pending rollback, requested time and action word of its target)."""
    for pending in state.timeline.pending("rollback"):
        name = instant_file_name(pending.requested, "rollback", REQUESTED, state.config.layout)
        if name in state.instant_files and state.instant_files[name].size_bytes:
            target = state.plan(pending, name).get("instantToRollback")
            if isinstance(target, dict):
                yield pending, str(target.get("commitTime")), str(target.get("action"))
