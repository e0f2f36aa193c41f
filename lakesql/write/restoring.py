"""Carrying a restore out: every instant after a savepoint is taken back, newest first (hudi-format 9.7).

From the moment the plan is there, lakesql reads the table as of the savepoint (`table.state`). Other readers know no
plan: for them all instants are unpublished before the first file goes, newest first. The inner rollbacks have no action of their own; what they did is in the
metadata of the restore. A crash leaves a pending restore with the plan; the next writer finishes it from there.

Not here: which instants go, and whether they may (`services.restore`).
"""

from collections.abc import Callable, Sequence
from typing import Any

from lakesql.format.metadata import encode_record
from lakesql.format.timeline import COMPLETED, INFLIGHT, REQUESTED, WRITE_ACTIONS, Instant, instant_file_name
from lakesql.stores import lock as store_lock
from lakesql.table.state import TableState, timeline_of
from lakesql.write.takeback import (
    RollbackPlan,
    erase_instant,
    groups_of,
    metadata_record,
    plan_rollback,
    remove_files,
    unpublish,
    word_of,
)
from lakesql.write.transaction import OWNER, heartbeat_path

Later = Callable[[str], str]
"""A new time, larger than the one given."""


def begin(state: TableState, restore: str, savepoint: str, instants: Sequence[Instant]) -> bool:
    """Put the plan on the timeline; False when the instant is taken."""
    state.storage.put(heartbeat_path(restore), OWNER)
    plan = {
        "instantsToRollback": [_info(i) for i in instants],
        "version": 2,
        "savepointToRestoreTimestamp": savepoint,
    }
    return state.storage.put_if_absent(_path(state, restore, REQUESTED), encode_record("HoodieRestorePlan", plan))


def finish(state: TableState, restore: str, later: Later) -> int:
    """Carry a begun restore out, from wherever it stopped; the number of files that were deleted.

    The table's lock must be held, and the table must have no metadata table.
    """
    plan = state.plan(_restore(state, restore), f"{restore}.restore.requested")
    infos = [(str(info["commitTime"]), str(info["action"])) for info in plan["instantsToRollback"]]
    state.storage.put_if_absent(_path(state, restore, INFLIGHT), b"")
    every = timeline_of(state.config, state.instant_files).instants  # a state leaves out what a restore takes back
    there = {i.requested: i for i in every if _is_write(i)}
    found = [there[requested] for requested, _ in infos if requested in there]
    groups = {i.requested: groups_of(state, i) for i in found}
    for instant in found:
        unpublish(state, instant)
    newest = max(state.timeline.newest_time, restore)
    gone = frozenset(requested for requested, _ in infos)
    inner: dict[str, list[dict[str, Any]]] = {}
    deleted = 0
    for requested, word in infos:
        newest = later(newest)
        known = there.get(requested)
        store_lock.require(state.storage.uri)
        if known is None:  # taken back before a crash
            nothing = RollbackPlan(Instant(requested, word, INFLIGHT, None, ""), (), ())
            inner[requested] = [metadata_record(state, nothing, newest)]
            continue
        one = plan_rollback(state, known, groups[requested], gone - {requested})
        inner[requested] = [metadata_record(state, one, newest)]
        deleted += len(one.files)
        state = remove_files(state, one, newest)
        erase_instant(state, known)
    body = {
        "startRestoreTime": restore,
        "timeTakenInMillis": 0,
        "instantsToRollback": [requested for requested, _ in infos],
        "hoodieRestoreMetadata": inner,
        "version": 1,
        "restoreInstantInfo": [{"commitTime": requested, "action": word} for requested, word in infos],
    }
    store_lock.require(state.storage.uri)
    completed = later(newest) if state.config.layout != 1 else None
    state.storage.put_if_absent(
        _path(state, restore, COMPLETED, completed), encode_record("HoodieRestoreMetadata", body)
    )
    state.storage.delete(heartbeat_path(restore))
    return deleted


def _info(instant: Instant) -> dict[str, str]:
    return {"commitTime": instant.requested, "action": word_of(instant)}


def _is_write(instant: Instant) -> bool:
    return instant.completed_action in WRITE_ACTIONS


def _restore(state: TableState, restore: str) -> Instant:
    return next(i for i in state.timeline.pending("restore") if i.requested == restore)


def _path(state: TableState, restore: str, stage: str, completed: str | None = None) -> str:
    return f"{state.timeline_folder}/{instant_file_name(restore, 'restore', stage, state.config.layout, completed)}"
