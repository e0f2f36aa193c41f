"""Restoring a table to a savepoint: every write after it is taken back (hudi-format 9.7).

What is "after": completed after the saved write completed (version 6: a larger instant), and pending with a larger
instant; plans that were pending when the savepoint was made stay. The savepoint stays as well.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from lakesql.errors import CommitConflict, TableError
from lakesql.format.metadata import decode_record
from lakesql.format.timeline import WRITE_ACTIONS, Instant
from lakesql.services.action import looking, without_metadata_table
from lakesql.services.before import find_savepoint, require_whole, savepoints
from lakesql.storage import Storage
from lakesql.table.clock import Clock, system_clock
from lakesql.table.state import TableState, load
from lakesql.write import restoring
from lakesql.write.takeback import without

_DRAWS_MAX = 10


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore did."""

    savepoint: str
    restore: str | None
    """The instant of the restore; None when nothing came after the savepoint."""
    instants: tuple[str, ...]
    """What was taken back, newest first."""
    files_deleted: int
    notes: tuple[str, ...] = ()


def restore(
    storage: Storage, settings: Mapping[str, str], savepoint: str | None = None, clock: Clock = system_clock
) -> Restored:
    """Make the table what it was at a savepoint, the newest one when none is named.

    TableError when there is no such savepoint, a later one stands in the way, or files it needs are gone;
    CommitConflict when another writer is at work. Then nothing was changed.
    """
    with looking(storage, settings, clock) as look:
        saved, instants = check(look.state, savepoint)
        if not instants:
            return Restored(saved.requested, None, (), 0)
        look, note = without_metadata_table(look)
        number = look.state.timeline.newest_time
        for _ in range(_DRAWS_MAX):
            number = look.later(number)
            if restoring.begin(look.state, number, saved.requested, instants):
                break
        else:
            raise CommitConflict(
                f"{look.state.path}: {_DRAWS_MAX} instants in a row were taken by another writer. Nothing was changed. "
                "Try again."
            )
        deleted = restoring.finish(load(storage), number, look.later)
        times = tuple(i.requested for i in instants)
        return Restored(saved.requested, number, times, deleted, (note,) if note else ())


def check(state: TableState, savepoint: str | None = None) -> tuple[Instant, list[Instant]]:
    """The savepoint, and the instants that a restore to it takes back, newest first. Nothing is changed.

    TableError with the reason when it cannot be done.
    """
    saved = find_savepoint(state, savepoint)
    instants = _after(state, saved.requested)
    times = {i.requested for i in instants}
    for other in savepoints(state):
        if other.requested in times:
            raise TableError(
                f"{state.path}: the write {other.requested} that a restore to {saved.requested} takes back has a "
                "savepoint. Delete that savepoint first, or restore to it."
            )
    _require_files(state, saved)
    require_whole(state, without(state, times), instants)
    return saved, instants


def _after(state: TableState, saved: str) -> list[Instant]:
    """Pending instants first, then completed ones from the newest on."""
    writes = [i for i in state.timeline.instants if i.completed_action in WRITE_ACTIONS]
    found = next((i for i in writes if i.requested == saved and i.is_completed), None)
    if found is None:
        raise TableError(
            f"{state.path}: the write {saved} that the savepoint keeps is not on the active timeline, so what came after "
            f"it is not known. The earliest instant there is {state.timeline.start}."
        )
    time = state.timeline.time_of
    done = [i for i in writes if i.is_completed and time(i) > time(found)]
    pending = [i for i in writes if not i.is_completed and i.requested > saved]
    return [
        *sorted(pending, key=lambda i: i.requested, reverse=True),
        *sorted(done, key=lambda i: (time(i), i.requested), reverse=True),
    ]


def _require_files(state: TableState, saved: Instant) -> None:
    path = f"{state.timeline_folder}/{saved.file_name}"
    body = decode_record(state.storage.read(path), f"{state.path}/{path}")
    there = {(f.partition, f.name) for f in state.files}
    for partition, kept in body["partitionMetadata"].items():
        lost = [name for name in kept["savepointDataFile"] if (partition, name) not in there]
        if lost:
            raise TableError(
                f"{state.path}: the savepoint {saved.requested} needs {lost[0]} in partition {partition!r}, which is "
                "gone. Restore the file, or choose another savepoint."
            )
