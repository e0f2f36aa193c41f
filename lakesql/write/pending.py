"""A pending clustering that stands in a write's way: roll its plan back, if nobody is carrying it out.

A plan over file groups that change is of no use any more: whoever ran it would put the old rows back. So either the
write is refused (`route.refuse_pending`), which is the default, or the plan goes before the write does.
"""

from collections.abc import Collection
from datetime import tzinfo

from lakesql.errors import CommitConflict
from lakesql.format.files import BaseFile
from lakesql.format.timeline import INFLIGHT, Instant
from lakesql.table.clock import Clock, draw
from lakesql.table.state import TableState, load
from lakesql.write.takeback import RollbackPlan, run_rollback
from lakesql.write.transaction import OWNER
from lakesql.write.undo import FOREIGN_DEAD_MS, begun_rollback, heartbeat_owner, newest_trace_ms

CLUSTERING = "clustering"
"""The lock that a lakesql runner of clusterings holds (`Storage.lock`)."""


def clear_away(state: TableState, groups: Collection[tuple[str, str]], clock: Clock, zone: tzinfo) -> list[str]:
    """Roll back the pending clusterings that cover one of the groups; their instants. The table's lock must be held.

    CommitConflict when one of them is being carried out, by lakesql or by another engine.
    """
    standing = sorted({state.pending_clustering[g] for g in groups if g in state.pending_clustering})
    with state.storage.lock(CLUSTERING, 0):
        for requested in standing:
            instant = next(i for i in state.timeline.pending() if i.requested == requested)
            _require_idle(state, instant, clock)
            roll_back(state, instant, clock, zone)
            state = load(state.storage)
    return standing


def roll_back(state: TableState, instant: Instant, clock: Clock, zone: tzinfo) -> None:
    """Undo a pending clustering with the files that an attempt has written; its plan goes too."""
    files = tuple(f for f in state.files if isinstance(f, BaseFile) and f.instant == instant.requested)
    newest = state.timeline.newest_time
    begun = begun_rollback(state, instant.requested)
    if begun is None:
        newest = begun = draw(clock, newest, zone, state.path)
    plan = RollbackPlan(instant, files, ())
    run_rollback(state, plan, begun, lambda last: draw(clock, last, zone, state.path), newest)


def _require_idle(state: TableState, instant: Instant, clock: Clock) -> None:
    if instant.state != INFLIGHT or heartbeat_owner(state.storage, instant.requested) == OWNER:
        return
    age_ms = clock() - newest_trace_ms(state, instant)
    if age_ms <= FOREIGN_DEAD_MS:
        raise CommitConflict(
            f"{state.path}: another writer carries clustering {instant.requested} out (last sign of life "
            f"{age_ms / 1000:.0f} s ago), which this write is in the way of. Nothing was committed. Write again when it "
            "is done."
        )
