"""Savepoints: pinning the files of a completed write against cleaning and archiving (hudi-format 9.7)."""

from collections.abc import Mapping

import pyarrow as pa

from lakesql.errors import TableError
from lakesql.format.metadata import decode_record, encode_record
from lakesql.format.timeline import COMPLETED, INFLIGHT, WRITE_ACTIONS, instant_file_name
from lakesql.services.action import looking
from lakesql.services.before import find_savepoint, savepoints
from lakesql.storage import Storage
from lakesql.stores import lock as store_lock
from lakesql.table.clock import Clock, draw, system_clock
from lakesql.table.retained import cleaning_told, require_retained
from lakesql.table.state import TableState, load

COLUMNS = pa.schema(
    [
        ("savepoint_time", pa.string()),
        ("user", pa.string()),
        ("saved_at_ms", pa.int64()),
        ("comments", pa.string()),
        ("files", pa.int64()),
    ]
)
"""What `listed` gives."""


def create(
    storage: Storage,
    settings: Mapping[str, str],
    instant: str | None = None,
    user: str = "",
    comments: str = "",
    clock: Clock = system_clock,
) -> str:
    """Keep the table as of a completed write, the newest one when none is named; the instant.

    TableError when there is no such write, it is older than what cleaning has left, or it has a savepoint already.
    """
    with looking(storage, settings, clock) as look:
        state = look.state
        chosen = _write(state, instant)
        require_retained(state, chosen)
        if any(s.requested == chosen for s in savepoints(state)):
            raise TableError(f"{state.path}: {chosen} has a savepoint already.")
        partitions: dict[str, list[str]] = {}
        with cleaning_told(state, chosen):
            slices = state.slices(chosen)
        for one in slices:
            names = [f.name for f in (one.base, *one.logs) if f is not None]
            partitions.setdefault(one.partition, []).extend(names)
        body = {
            "savepointedBy": user,
            "savepointedAt": clock(),
            "comments": comments,
            "partitionMetadata": {
                partition: {"partitionPath": partition, "savepointDataFile": names}
                for partition, names in partitions.items()
            },
            "version": 1,
        }
        layout = state.config.layout
        storage.put_if_absent(_path(state, instant_file_name(chosen, "savepoint", INFLIGHT, layout)), b"")
        completed = draw(clock, state.timeline.newest_time, look.zone, state.path) if layout != 1 else None
        name = instant_file_name(chosen, "savepoint", COMPLETED, layout, completed)
        store_lock.require(storage.uri)
        storage.put_if_absent(_path(state, name), encode_record("HoodieSavepointMetadata", body))
        return chosen


def delete(
    storage: Storage, settings: Mapping[str, str], instant: str | None = None, clock: Clock = system_clock
) -> str:
    """Give a savepoint up, the newest one when none is named; its instant. TableError when there is none."""
    with looking(storage, settings, clock) as look:
        state = look.state
        chosen = find_savepoint(state, instant, unfinished=True)
        for name in (chosen.file_name, instant_file_name(chosen.requested, "savepoint", INFLIGHT, state.config.layout)):
            storage.delete(_path(state, name))
        return chosen.requested


def listed(storage: Storage) -> list[dict[str, object]]:
    """One row per savepoint, newest first."""
    state = load(storage)
    rows = []
    for one in reversed(savepoints(state)):
        path = _path(state, one.file_name)
        body = decode_record(storage.read(path), f"{state.path}/{path}")
        files = sum(len(p["savepointDataFile"]) for p in body["partitionMetadata"].values())
        rows.append(
            {
                "savepoint_time": one.requested,
                "user": body["savepointedBy"],
                "saved_at_ms": body["savepointedAt"],
                "comments": body["comments"],
                "files": files,
            }
        )
    return rows


def _write(state: TableState, instant: str | None) -> str:
    done = [i.requested for i in state.timeline.instants if i.is_completed and i.completed_action in WRITE_ACTIONS]
    if not done:
        raise TableError(f"{state.path}: the active timeline has no completed write to save.")
    if instant is None:
        return max(done)
    if instant not in done:
        raise TableError(
            f"{state.path}: there is no completed write {instant} on the active timeline; the earliest that can be "
            f"saved is {min(done)}, the newest {max(done)}."
        )
    return instant


def _path(state: TableState, name: str) -> str:
    return f"{state.timeline_folder}/{name}"
