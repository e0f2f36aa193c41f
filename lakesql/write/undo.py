"""Rolling back what a dead writer left behind, before the next write (hudi-format 9.6, C.6).

Whose instant is it? We hold the table's lock, so a pending write whose heartbeat says `lakesql` has no living writer.
A pending write of another engine counts as dead when its newest trace is older than FOREIGN_DEAD_MS, Hudi's own
tolerance; a younger one is a CommitConflict. Pending compactions and clusterings are promises and stay.

The rollback is an action of its own, so that readers, Spark and a metadata table can follow it. Files go first, the
dead instant's timeline files last: a crash in between leaves a pending instant that the next writer rolls back again,
with the same rollback instant. Version 6 keeps log files and adds a command block, as a file may hold others' blocks.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

from lakesql.errors import CommitConflict
from lakesql.format import log
from lakesql.format.files import BaseFile, LogFile, log_file_name, parse_data_file
from lakesql.format.metadata import encode_record
from lakesql.format.timeline import COMPLETED, INFLIGHT, REQUESTED, WRITE_ACTIONS, Instant, instant_file_name
from lakesql.storage import Storage
from lakesql.table.state import TableState
from lakesql.write.clock import Clock, draw
from lakesql.write.transaction import OWNER, heartbeat_path, marked_files, temporary_folder

FOREIGN_DEAD_MS = 120_000
_COMMAND_TOKEN = "1-0-1"


@dataclass(frozen=True, slots=True)
class RollbackPlan:
    """What undoing an instant takes away. Paths are relative to the table."""

    instant: Instant
    files: tuple[BaseFile | LogFile, ...]  # to delete
    commands: tuple[tuple[LogFile, str], ...]  # version 6: log file with a dead block, path of the command file to add


def undo_dead_writes(state: TableState, clock: Clock, zone: tzinfo) -> list[str]:
    """Roll back every dead write; the instants. CommitConflict when another engine is writing, or restoring, now.

    The caller holds the table's lock and must look at the table again when something was rolled back.
    """
    restores = state.timeline.pending("restore")
    if restores:
        raise CommitConflict(
            f"{state.path}: restore {restores[0].requested} is not finished. Nothing was committed. Finish it with "
            "the engine that began it."
        )
    undone = []
    newest = state.timeline.newest_time
    for instant in dead_writes(state, clock):
        plan = plan_rollback(state, instant)
        begun = begun_rollback(state, instant.requested)
        if begun is None:
            newest = begun = draw(clock, newest, zone, state.path)
        newest = run_rollback(state, plan, begun, lambda last: draw(clock, last, zone, state.path), newest)
        undone.append(instant.requested)
    return undone


def dead_writes(state: TableState, clock: Clock) -> list[Instant]:
    """Pending writes without a living writer, oldest first. CommitConflict for one that seems alive."""
    dead = []
    for instant in state.timeline.pending(*WRITE_ACTIONS):
        if is_clustering(state, instant):
            continue
        if heartbeat_owner(state.storage, instant.requested) == OWNER:
            dead.append(instant)
            continue
        age_ms = clock() - newest_trace_ms(state, instant)
        if age_ms <= FOREIGN_DEAD_MS:
            raise CommitConflict(
                f"{state.path}: another writer's {instant.action} {instant.requested} is in progress (last sign of "
                f"life {age_ms / 1000:.0f} s ago). Nothing was committed. Wait until it has finished; after "
                f"{FOREIGN_DEAD_MS // 1000} s without a sign it is rolled back."
            )
        dead.append(instant)
    return dead


def is_clustering(state: TableState, instant: Instant) -> bool:
    """Version 6 gives clusterings and overwrites one name; only a clustering has a plan."""
    name = instant_file_name(instant.requested, instant.action, REQUESTED, state.config.layout)
    if instant.action != "replacecommit" or not (info := state.instant_files.get(name)) or not info.size_bytes:
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
    for pending in state.timeline.pending("rollback"):
        name = instant_file_name(pending.requested, "rollback", REQUESTED, state.config.layout)
        if name in state.instant_files and state.instant_files[name].size_bytes:
            target = state.plan(pending, name).get("instantToRollback")
            if isinstance(target, dict) and target.get("commitTime") == instant:
                return pending.requested
    return None


def plan_rollback(state: TableState, instant: Instant) -> RollbackPlan:
    """What has to go: files that carry the instant; in version 6 log blocks of the instant get a command block."""
    dead = instant.requested
    files: list[BaseFile | LogFile] = [f for f in state.files if isinstance(f, BaseFile) and f.instant == dead]
    logs = [f for f in state.files if isinstance(f, LogFile)]
    if state.config.version >= 8:
        files += [f for f in logs if f.instant == dead]
        return RollbackPlan(instant, tuple(files), ())
    touched = _logs_holding(state, logs, dead)
    commands: list[tuple[LogFile, str]] = []
    for file in touched:
        slice_logs = [
            f.version
            for f in logs
            if f.partition == file.partition and f.file_id == file.file_id and f.instant == file.instant
        ]
        taken = max(slice_logs) + sum(c.file_id == file.file_id and c.partition == file.partition for c, _ in commands)
        name = log_file_name(file.file_id, file.instant, taken + 1, _COMMAND_TOKEN)
        commands.append((file, f"{file.partition}/{name}" if file.partition else name))
    return RollbackPlan(instant, tuple(files), tuple(commands))


def _logs_holding(state: TableState, logs: Iterable[LogFile], instant: str) -> list[LogFile]:
    """Log files with a block of `instant`: by its markers when there are any, else by reading the blocks."""
    marked = marked_files(state.storage, instant)
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


def run_rollback(state: TableState, plan: RollbackPlan, rollback: str, later: Callable[[str], str], newest: str) -> str:
    """Carry the plan out as instant `rollback`; the newest time used. Every step may be repeated after a crash."""
    storage, layout, folder = state.storage, state.config.layout, state.timeline_folder
    storage.put_if_absent(
        f"{folder}/{instant_file_name(rollback, 'rollback', REQUESTED, layout)}",
        encode_record("HoodieRollbackPlan", _plan_record(state, plan)),
    )
    storage.put_if_absent(f"{folder}/{instant_file_name(rollback, 'rollback', INFLIGHT, layout)}", b"")
    for file in plan.files:
        storage.delete(file.path)
    command = log.encode_rollback(rollback, plan.instant.requested)
    for _, path in plan.commands:
        storage.put_if_absent(path, command)
    completed = None
    if layout != 1:
        completed = newest = later(max(newest, rollback))
    metadata = encode_record("HoodieRollbackMetadata", _metadata_record(state, plan, rollback, len(command)))
    storage.put_if_absent(f"{folder}/{instant_file_name(rollback, 'rollback', COMPLETED, layout, completed)}", metadata)
    erase_instant(state, plan.instant)
    return max(newest, rollback)


def erase_instant(state: TableState, instant: Instant) -> None:
    """Remove the traces of a pending instant: markers, inflight, requested, heartbeat, in this order."""
    storage, layout, folder = state.storage, state.config.layout, state.timeline_folder
    storage.delete_tree(temporary_folder(instant.requested))
    for stage in (INFLIGHT, REQUESTED):
        storage.delete(f"{folder}/{instant_file_name(instant.requested, instant.action, stage, layout)}")
    storage.delete(heartbeat_path(instant.requested))


def _absolute(state: TableState, path: str) -> str:
    return f"{state.path}/{path}"


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
    dead = {"commitTime": plan.instant.requested, "action": plan.instant.action}
    return {"instantToRollback": dead, "RollbackRequests": requests, "version": 1}


def _metadata_record(state: TableState, plan: RollbackPlan, rollback: str, command_bytes: int) -> dict[str, Any]:
    partitions: dict[str, dict[str, Any]] = {}

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
        "instantsRollback": [{"commitTime": plan.instant.requested, "action": plan.instant.action}],
    }
