"""How an instant is taken back: what goes, in which order, and what the timeline says about it (hudi-format 9.6).

A completed instant is unpublished first, by deleting its completed file: that one deletion is what readers see. Then go
its files, and its inflight and requested files last. A crash in between leaves a pending instant, which the next writer
takes back again. Version 6 keeps log files and adds a command block, as a file may hold others' blocks; a log file of a
slice that the instant itself opened goes as a whole.

Not here: whether an instant may be taken back (`write.undo` for dead writes, `services.rollback` for completed ones).
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

from lakesql.format import log
from lakesql.format.files import BaseFile, LogFile, log_file_name, parse_data_file
from lakesql.format.metadata import encode_record
from lakesql.format.timeline import (
    COMPLETED,
    INFLIGHT,
    REQUESTED,
    WRITE_ACTIONS,
    Instant,
    Timeline,
    instant_file_name,
    parse_instant_file,
)
from lakesql.stores import lock as store_lock
from lakesql.table.state import TableState
from lakesql.write.transaction import OWNER, clear, heartbeat_path, marked_files

_COMMAND_TOKEN = "1-0-1"


@dataclass(frozen=True, slots=True)
class RollbackPlan:
    """What undoing an instant takes away. Paths are relative to the table."""

    instant: Instant
    files: tuple[BaseFile | LogFile, ...]  # to delete
    commands: tuple[tuple[LogFile, str], ...]  # version 6: log file with a dead block, path of the command file to add


def plan_rollback(
    state: TableState, instant: Instant, groups: Collection[tuple[str, str]] | None = None, gone: Collection[str] = ()
) -> RollbackPlan:
    """What has to go: files that carry the instant; in version 6 log blocks of the instant get a command block.

    `groups`: the file groups the instant wrote to, when they are known; only their log files are looked into. `gone`:
    other instants that are taken back with this one; log files of the slices they opened need no command.
    """
    dead = instant.requested
    files = [f for f in state.files if f.instant == dead]
    if state.config.version < 8 and _is_compaction(state, instant) and not gone:
        # Later delta commits write to the slice that a compaction opens; their rows stay.
        files = [f for f in files if isinstance(f, BaseFile)]
    if state.config.version >= 8:
        return RollbackPlan(instant, tuple(files), ())
    logs = [f for f in state.files if isinstance(f, LogFile)]
    older = [f for f in logs if f.instant != dead and f.instant not in gone]
    if groups is not None:
        older = [f for f in older if (f.partition, f.file_id) in groups]
    commands: list[tuple[LogFile, str]] = []
    for file in _logs_holding(state, older, dead, groups is not None):
        slice_logs = [
            f.version
            for f in logs
            if f.partition == file.partition and f.file_id == file.file_id and f.instant == file.instant
        ]
        taken = max(slice_logs) + sum(c.file_id == file.file_id and c.partition == file.partition for c, _ in commands)
        name = log_file_name(file.file_id, file.instant, taken + 1, _COMMAND_TOKEN)
        commands.append((file, f"{file.partition}/{name}" if file.partition else name))
    return RollbackPlan(instant, tuple(files), tuple(commands))


def _is_compaction(state: TableState, instant: Instant) -> bool:
    return state.config.is_mor and instant.completed_action == "commit"


def groups_of(state: TableState, instant: Instant) -> set[tuple[str, str]] | None:
    """The file groups that a completed instant wrote to; None when it is pending or does not tell."""
    stats = state.commit(instant).partition_stats if instant.is_completed else {}
    return {(partition, s.file_id or "") for partition, group in stats.items() for s in group} or None


def _logs_holding(state: TableState, logs: Iterable[LogFile], instant: str, chosen: bool) -> list[LogFile]:
    """Log files with a block of `instant`: by its markers when there are any, else by reading the blocks."""
    marked = marked_files(state.storage, instant) if not chosen else []
    if marked:
        found = set()
        for path, _ in marked:
            partition, _, name = path.rpartition("/")
            found.add(parse_data_file(partition, name, 0))
        names = {(f.partition, f.name) for f in found if isinstance(f, LogFile)}
        return [f for f in logs if (f.partition, f.name) in names]
    # Only slices whose base is older than the dead instant can hold its blocks.
    return [
        f
        for f in logs
        if f.instant <= instant
        and any(b.headers.get(log.INSTANT_TIME) == instant for b in log.scan_blocks(state.storage.read(f.path), f.path))
    ]


def without(state: TableState, instants: Collection[str]) -> TableState:
    """The state as it will be when these write instants are gone; nothing is changed."""
    kept = {n: info for n, info in state.instant_files.items() if _write_time(state, n) not in instants}
    timeline = Timeline.from_file_names(kept, state.config.layout, {n: i.modified_ms for n, i in kept.items()})
    files = tuple(f for f in state.files if f.instant not in instants)
    return replace(state, timeline=timeline, instant_files=kept, files=files)


def _write_time(state: TableState, name: str) -> str | None:
    """The requested time in the name of a timeline file of a write or a service that becomes one."""
    parsed = parse_instant_file(name, state.config.layout)
    completed_word = Instant("", parsed[2], "", None, "").completed_action if parsed else ""
    return parsed[0] if parsed and completed_word in WRITE_ACTIONS else None


def run_rollback(
    state: TableState,
    plan: RollbackPlan,
    rollback: str,
    later: Callable[[str], str],
    newest: str,
    keep_plan: bool = False,
) -> str:
    """Carry the plan out as instant `rollback`; the newest time used. Every step may be repeated after a crash.

    `keep_plan`: the requested file of the instant stays, as the plan of a table service does that is to run again.
    """
    storage, layout, folder = state.storage, state.config.layout, state.timeline_folder
    storage.put_if_absent(
        f"{folder}/{instant_file_name(rollback, 'rollback', REQUESTED, layout)}",
        encode_record("HoodieRollbackPlan", _plan_record(state, plan)),
    )
    storage.put_if_absent(f"{folder}/{instant_file_name(rollback, 'rollback', INFLIGHT, layout)}", b"")
    store_lock.require(storage.uri)
    unpublish(state, plan.instant)
    remove_files(state, plan, rollback)
    completed = None
    if layout != 1:
        completed = newest = later(max(newest, rollback))
    metadata = encode_record("HoodieRollbackMetadata", metadata_record(state, plan, rollback))
    store_lock.require(storage.uri)
    storage.put_if_absent(f"{folder}/{instant_file_name(rollback, 'rollback', COMPLETED, layout, completed)}", metadata)
    erase_instant(state, plan.instant, keep_plan)
    return max(newest, rollback)


def unpublish(state: TableState, instant: Instant) -> None:
    """Make a completed instant pending, and ours: whoever looks now does not see it, and the next writer removes it."""
    if not instant.is_completed:
        return
    storage, layout, folder = state.storage, state.config.layout, state.timeline_folder
    storage.put(heartbeat_path(instant.requested), OWNER)
    storage.put_if_absent(f"{folder}/{instant_file_name(instant.requested, instant.action, INFLIGHT, layout)}", b"")
    names = [n for n in state.instant_files if _write_time(state, n) == instant.requested]
    # Of two completed files the one with the earlier completion time counts; it goes last.
    for name in sorted(names, reverse=True):
        parsed = parse_instant_file(name, layout)
        if parsed and parsed[3] == COMPLETED:
            storage.delete(f"{folder}/{name}")


def remove_files(state: TableState, plan: RollbackPlan, rollback: str) -> TableState:
    """Delete the files of a plan and add its command blocks; the state with the files that are there now."""
    for file in plan.files:
        state.storage.delete(file.path)
    command = log.encode_rollback(rollback, plan.instant.requested)
    added = []
    for file, path in plan.commands:
        state.storage.put_if_absent(path, command)
        added.append(parse_data_file(file.partition, path.rsplit("/", 1)[-1], len(command)))
    gone = set(plan.files)
    kept = [f for f in state.files if f not in gone]
    return replace(state, files=(*kept, *(f for f in added if f is not None)))


def erase_instant(state: TableState, instant: Instant, keep_plan: bool = False) -> None:
    """Remove the traces of a pending instant: markers, inflight, requested, heartbeat, in this order."""
    storage, layout, folder = state.storage, state.config.layout, state.timeline_folder
    clear(storage, instant.requested, planned=True)
    for stage in (INFLIGHT,) if keep_plan else (INFLIGHT, REQUESTED):
        storage.delete(f"{folder}/{instant_file_name(instant.requested, instant.action, stage, layout)}")
    storage.delete(heartbeat_path(instant.requested))


def _absolute(state: TableState, path: str) -> str:
    return f"{state.path}/{path}"


def word_of(instant: Instant) -> str:
    """The action word that plans and metadata call an instant by."""
    return instant.completed_action if instant.is_completed else instant.action


def _plan_record(state: TableState, plan: RollbackPlan) -> dict[str, Any]:
    requests: list[dict[str, Any]] = [
        {
            "partitionPath": f.partition,
            "fileId": "",
            "latestBaseInstant": "",
            "filesToBeDeleted": [_absolute(state, f.path)],
            "logBlocksToBeDeleted": {},
        }
        for f in plan.files
    ]
    requests += [
        {"partitionPath": f.partition, "fileId": f.file_id, "latestBaseInstant": f.instant, "filesToBeDeleted": [],
         "logBlocksToBeDeleted": {f"file:{_absolute(state, f.path)}": f.size_bytes}}
        for f, _ in plan.commands
    ]  # fmt: skip
    dead = {"commitTime": plan.instant.requested, "action": word_of(plan.instant)}
    return {"instantToRollback": dead, "RollbackRequests": requests, "version": 1}


def metadata_record(state: TableState, plan: RollbackPlan, rollback: str) -> dict[str, Any]:
    """What a rollback says when it is done: HoodieRollbackMetadata."""
    partitions: dict[str, dict[str, Any]] = {}
    command_bytes = len(log.encode_rollback(rollback, plan.instant.requested))

    def of(partition: str) -> dict[str, Any]:
        empty: dict[str, Any] = {
            "partitionPath": partition,
            "successDeleteFiles": [],
            "failedDeleteFiles": [],
            "rollbackLogFiles": {},
            "logFilesFromFailedCommit": {},
        }
        return partitions.setdefault(partition, empty)

    for file in plan.files:
        of(file.partition)["successDeleteFiles"].append(_absolute(state, file.path))
    for file, path in plan.commands:
        of(file.partition)["rollbackLogFiles"][f"file:{_absolute(state, path)}"] = command_bytes
        of(file.partition)["logFilesFromFailedCommit"][f"file:{_absolute(state, file.path)}"] = file.size_bytes
    return {
        "startRollbackTime": rollback,
        "timeTakenInMillis": 0,
        "totalFilesDeleted": len(plan.files),
        "commitsRollback": [plan.instant.requested],
        "partitionMetadata": partitions,
        "version": 1,
        "instantsRollback": [{"commitTime": plan.instant.requested, "action": word_of(plan.instant)}],
    }
