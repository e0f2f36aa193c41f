"""What there was before: the savepoints of a table, and whether it is whole again when instants are taken back."""

from collections.abc import Sequence

from lakesql.errors import CommitConflict, LakeError, TableError
from lakesql.format.files import FileSlice
from lakesql.format.timeline import WRITE_ACTIONS, Instant
from lakesql.table.retained import retained_from
from lakesql.table.state import TableState


def newest_write(state: TableState) -> Instant:
    """The newest completed write of the active timeline, by requested time. TableError when there is none."""
    active = [i for i in state.timeline.instants if i.is_completed and i.completed_action in WRITE_ACTIONS]
    if not active:
        raise TableError(f"{state.path}: the active timeline has no completed write that could be rolled back.")
    return max(active, key=lambda i: i.requested)


def savepoints(state: TableState) -> list[Instant]:
    """The completed savepoints, oldest first; `requested` is the instant that each keeps."""
    return [i for i in state.timeline.instants if i.action == "savepoint" and i.is_completed]


def find_savepoint(state: TableState, instant: str | None, unfinished: bool = False) -> Instant:
    """The savepoint of an instant, or the newest one; on request one whose maker died. TableError when there is none."""
    found = savepoints(state)
    if unfinished:
        found = [i for i in state.timeline.instants if i.action == "savepoint"]
    known = ", ".join(s.requested for s in found) or "none"
    chosen = found[-1:] if instant is None else [s for s in found if s.requested == instant]
    if not chosen:
        asked = f"no savepoint of {instant}" if instant else "no savepoint"
        raise TableError(f"{state.path}: there is {asked}; savepoints: {known}.")
    return chosen[0]


def require_whole(state: TableState, after: TableState, gone: Sequence[Instant]) -> None:
    """TableError unless `after`, the state without the instants `gone`, has every row that it should have."""
    names = ", ".join(i.requested for i in gone[:3]) + (", ..." if len(gone) > 3 else "")
    where = f"{state.path}: {names} cannot be rolled back"
    if after.timeline.start is None and any(
        a.instant.completed_action in WRITE_ACTIONS for a in state.archived.values()
    ):
        raise TableError(
            f"{where}: every write before has been archived, and without an active one readers take their files for "
            f"unfinished. The earliest state that can be rolled back to is that of {newest_write(state).requested}."
        )
    try:
        slices = after.slices()
    except LakeError as error:
        raise TableError(
            f"{where}: the table before would lack rows, because files of it were cleaned away: {error} The earliest "
            f"instant that can still be read is {retained_from(state) or newest_write(state).requested}."
        ) from error
    _refuse_doomed(state, slices)
    there = {s.group for s in slices}
    times = {i.requested for i in gone}
    opened: set[tuple[str, str]] = set()
    needed: set[tuple[str, str]] = set()
    for instant in gone:
        metadata = state.commit(instant) if instant.is_completed else None
        for partition, stats in metadata.partition_stats.items() if metadata else ():
            for stat in stats:
                before = stat.prev_commit or "null"
                (opened if before == "null" or before in times else needed).add((partition, stat.file_id or ""))
        for partition, ids in metadata.replaced.items() if metadata else ():
            needed |= {(partition, file_id) for file_id in ids}
    still_replaced = after.replaced()
    lost = sorted(needed - opened - there - still_replaced)
    if lost:
        partition, file_id = lost[0]
        raise TableError(
            f"{where}: {len(lost)} of the file groups as they were before have been cleaned away, for example {file_id} "
            f"in partition {partition!r}; their rows would be lost. The earliest instant that can still be read is "
            f"{retained_from(state) or newest_write(state).requested}."
        )


def _refuse_doomed(state: TableState, slices: Sequence[FileSlice]) -> None:
    """CommitConflict when a clean that is planned or running deletes files of these slices."""
    needed = {f.name for s in slices for f in (s.base, *s.logs) if f is not None}
    for clean in state.timeline.pending("clean"):
        plan = state.plan(clean, f"{clean.requested}.clean.requested")
        listed = (plan.get("filePathsToBeDeletedPerPartition") or {}).values()
        doomed = {str(file["filePath"]).rsplit("/", 1)[-1] for files in listed for file in files}
        doomed |= {name for names in (plan.get("filesToBeDeletedPerPartition") or {}).values() for name in names}
        if found := sorted(needed & doomed):
            raise CommitConflict(
                f"{state.path}: clean {clean.requested} is not finished and deletes {found[0]}, which the table before "
                "needs. Nothing was changed. Let the clean finish; what can be taken back after it will be told then."
            )
