"""Taking the newest write back, and giving a pending table service up (hudi-format 9.6).

Only the newest completed write can go, as in Hudi: none that a savepoint keeps, and none that a later write, or the plan
of a compaction or clustering, builds upon. Beyond Hudi the outcome is looked at before anything is touched: when a file
that would have to stand in has been cleaned away, or the history archived, the rollback is refused with the reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain

from lakesql.errors import TableError
from lakesql.format.files import LogFile
from lakesql.format.timeline import SERVICE_ACTIONS, WRITE_ACTIONS, Instant
from lakesql.services.action import Look, looking, running, without_metadata_table
from lakesql.services.before import newest_write, require_whole
from lakesql.storage import Storage
from lakesql.table.clock import Clock, system_clock
from lakesql.table.state import TableState
from lakesql.write.takeback import groups_of, plan_rollback, run_rollback, without
from lakesql.write.transaction import OWNER, heartbeat_path
from lakesql.write.undo import refuse_living

_REMEDY = "CALL run_rollback_inflight_tableservice(table => ..., pending_instant => '{0}', delete_request_instant_file => true)"


@dataclass(frozen=True, slots=True)
class RolledBack:
    """What a rollback did."""

    instant: str
    """The instant that is gone."""
    rollback: str
    """The instant of the rollback."""
    files_deleted: int
    notes: tuple[str, ...] = ()


def check(state: TableState, requested: str | None = None) -> tuple[Instant, TableState]:
    """The instant that a rollback takes back (the newest write unless it is named), and the table as it will be.

    TableError with the reason when it cannot be rolled back. Nothing is changed.
    """
    newest = newest_write(state)
    instant = newest if requested is None else _completed(state, requested)
    where = f"{state.path}: {instant.completed_action} {instant.requested}"
    if any(i.action == "savepoint" and i.requested == instant.requested for i in state.timeline.instants):
        raise TableError(f"{where} has a savepoint. Delete the savepoint first, then roll back.")
    if instant.requested != newest.requested:
        raise TableError(
            f"{where} is not the newest write, {newest.completed_action} {newest.requested} came after it. Roll back "
            "the later writes first, newest first; or restore to a savepoint."
        )
    _refuse_planned_upon(state, instant)
    after = without(state, {instant.requested})
    require_whole(state, after, [instant])
    return instant, after


def _completed(state: TableState, requested: str) -> Instant:
    found = [i for i in state.timeline.instants if i.requested == requested]
    writes = [i for i in found if i.completed_action in WRITE_ACTIONS]
    if not found:
        if requested in state.archived:
            raise TableError(
                f"{state.path}: {requested} has been archived; it cannot be rolled back. The earliest instant of the "
                f"active timeline is {state.timeline.start}."
            )
        raise TableError(f"{state.path}: there is no instant {requested} on the timeline; hudi_timeline lists them.")
    if not writes:
        raise TableError(
            f"{state.path}: {requested} is a {found[0].action}; only commits, delta commits and replace commits can be "
            "rolled back."
        )
    if not writes[0].is_completed:
        raise TableError(
            f"{state.path}: {writes[0].action} {requested} is not completed. To give a planned table service up: "
            f"{_REMEDY.format(requested)}."
        )
    return writes[0]


def _refuse_planned_upon(state: TableState, instant: Instant) -> None:
    """TableError when the plan of a later table service names files that would go."""
    groups = groups_of(state, instant) or set()
    plans = chain(state.pending_compactions.items(), state.pending_clustering.items(), _log_compactions(state).items())
    for group, planned in plans:
        if group in groups and planned > instant.requested:
            raise TableError(
                f"{state.path}: table service {planned} was planned upon files of {instant.completed_action} "
                f"{instant.requested}. Run it, or give it up first: {_REMEDY.format(planned)}."
            )


def _log_compactions(state: TableState) -> dict[tuple[str, str], str]:
    covered = {}
    for instant in state.timeline.pending("logcompaction"):
        plan = state.plan(instant, f"{instant.requested}.logcompaction.requested")
        for operation in plan.get("operations") or []:
            covered[operation["partitionPath"] or "", operation["fileId"]] = instant.requested
    return covered


def rollback(
    storage: Storage, settings: Mapping[str, str], instant: str | None = None, clock: Clock = system_clock
) -> RolledBack:
    """Take the newest completed write back; with `instant` that one, which must be the newest.

    TableError with the reason when it cannot be rolled back, CommitConflict when another writer is in the way; then
    nothing was changed.
    """
    with looking(storage, settings, clock) as look:
        check(look.state, instant)
        look, note = without_metadata_table(look)
        chosen, _ = check(look.state, instant)
        done = _undo(look, chosen)
        return replace(done, notes=(note,) if note else ())


def _undo(look: Look, instant: Instant, keep_plan: bool = False) -> RolledBack:
    state, newest = look.state, look.state.timeline.newest_time
    number = look.later(newest)
    state.storage.put(heartbeat_path(number), OWNER)
    plan = plan_rollback(state, instant, groups_of(state, instant))
    run_rollback(state, plan, number, look.later, number, keep_plan)
    state.storage.delete(heartbeat_path(number))
    return RolledBack(instant.requested, number, len(plan.files))


def give_up(
    storage: Storage,
    settings: Mapping[str, str],
    instant: str,
    delete_plan: bool = False,
    clock: Clock = system_clock,
) -> RolledBack:
    """Take back what an unfinished compaction, log compaction or clustering has done; with `delete_plan` the plan too.

    TableError when there is no such service pending, or rows written since are named after it; CommitConflict while it
    is running.
    """
    with looking(storage, settings, clock) as look:
        state = look.state
        pending = [i for i in state.timeline.pending(*SERVICE_ACTIONS, "replacecommit") if i.requested == instant]
        if not pending:
            raise TableError(
                f"{state.path}: no compaction or clustering {instant} is pending; hudi_timeline lists them."
            )
        chosen = pending[0]
        with running(storage, "clustering" if chosen.action == "replacecommit" else chosen.action):
            if chosen.state == "INFLIGHT":
                refuse_living(state, chosen, clock)
            if delete_plan and state.config.version < 8:
                _refuse_named_after(state, chosen)
            look, note = without_metadata_table(look) if chosen.state == "INFLIGHT" else (look, None)
            done = _undo(look, chosen, keep_plan=not delete_plan)
        return replace(done, notes=(note,) if note else ())


def _refuse_named_after(state: TableState, instant: Instant) -> None:
    logs = [f for f in state.files if isinstance(f, LogFile) and f.instant == instant.requested]
    if logs:
        raise TableError(
            f"{state.path}: log files written since {instant.action} {instant.requested} was planned carry its instant, "
            f"for example {logs[0].path}; without the plan their rows would be lost. Run the {instant.action} instead."
        )
