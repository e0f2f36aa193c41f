"""Cleaning: removing the files that no read of a retained state needs (hudi-format 10.4).

`due` asks the timeline alone whether there may be something to remove, so a write after which nothing is due pays one
listing of the timeline. `schedule` decides under the table's lock (`clean_plan`) and leaves the plan on the timeline;
an empty plan is not written. Files are deleted without the lock; the clean completes under it. Every step may be
repeated: a clean that did not complete, ours or another engine's, is finished by the next one, which leaves alone
whatever has become needed since (a restore, a savepoint).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import duckdb

from lakesql.errors import CommitConflict, FormatError, TableError
from lakesql.format.metadata import encode_record
from lakesql.format.timeline import COMPLETED, INFLIGHT, REQUESTED, Instant, instant_file_name, new_instant_time
from lakesql.services import action
from lakesql.services.clean_plan import Removal, earliest_retained, newest_writes, removal, still_needed
from lakesql.services.clean_settings import SETTINGS, VERSIONS, CleanConfig, parse_clean
from lakesql.storage import Storage
from lakesql.table import live
from lakesql.table.clock import Clock, system_clock, timeline_zone
from lakesql.table.listing import newest_head
from lakesql.table.retained import EARLIEST, savepoints
from lakesql.table.state import TableState, load_head
from lakesql.write import commit
from lakesql.write.retry import locked
from lakesql.write.settings import parse_settings
from lakesql.write.transaction import Transaction
from lakesql.write.undo import FOREIGN_DEAD_MS, newest_trace_ms

__all__ = ["SETTINGS", "Cleaned", "after_write", "clean", "due", "preview", "repair", "schedule"]

SERVICE = "clean"
_HOUR_MS = 3_600_000
_WRITER = "lakesql.writer"
_SAVEPOINTED = "savepointed_timestamps"
"""Hudi's key for the savepoints a clean saw: its next incremental clean looks at those that are gone."""


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What a clean did. `metadata` is the record of its completed file."""

    instant: str
    completed: str
    metadata: Mapping[str, Any]
    notes: tuple[str, ...] = ()

    @property
    def files_deleted(self) -> int:
        return int(self.metadata["totalFilesDeleted"])

    @property
    def earliest(self) -> str | None:
        """The earliest instant that can still be read, when the policy is by commits or hours."""
        return str(self.metadata["earliestCommitToRetain"]) or None


def after_write(
    con: duckdb.DuckDBPyConnection, storage: Storage, settings: Mapping[str, str], clock: Clock
) -> list[str]:
    """The automatic clean after a write; sentences about what it did."""
    del con
    config = parse_clean(settings)
    if not config.automatic or not due(newest_head(storage), config, clock, settings):
        return []
    try:
        done = clean(storage, settings, clock, only_due=True)
    except CommitConflict:
        return []  # somebody is at work on the table; the next write tries again
    return [_sentence(one) for one in done if one.files_deleted] + [n for one in done for n in one.notes]


def clean(
    storage: Storage,
    settings: Mapping[str, str],
    clock: Clock = system_clock,
    *,
    plan: bool = True,
    only_due: bool = False,
) -> list[Cleaned]:
    """Finish cleans that did not complete, then plan one (unless `plan` is false) and run it; what was done.

    `only_due`: plan only when the trigger says so. CommitConflict when another clean, or another engine, is at work.
    """
    with action.running(storage, SERVICE):
        done = [_finish(storage, settings, clock, one) for one in _unfinished(storage)]
        if plan:
            planned = schedule(storage, settings, clock, only_due=only_due)
            if planned is not None:
                instant, notes = planned
                one = next(i for i in _unfinished(storage) if i.requested == instant)
                finished = _finish(storage, settings, clock, one, fresh=True)
                done.append(replace(finished, notes=(*notes, *finished.notes)))
        return done


def schedule(
    storage: Storage, settings: Mapping[str, str], clock: Clock = system_clock, *, only_due: bool = False
) -> tuple[str, tuple[str, ...]] | None:
    """Put a plan on the timeline; its instant and sentences, None when there is nothing to remove."""
    config = parse_clean(settings)
    with action.looking(storage, settings, clock) as look:
        if only_due and not due(look.state, config, clock, settings):
            return None
        found = _removal(look.state, config, clock(), settings)
        if found is None or not found.files:
            return None
        look, note = action.without_metadata_table(look)
        body = encode_record("HoodieCleanerPlan", _plan_record(look.state, config, found))
        txn = action.request(look, "clean", "CLEAN", body)
        held = f"{found.held} old files stay this time, because a result of this process may still read them."
        return txn.instant, tuple(n for n in (note, held if found.held else None) if n)


def preview(state: TableState, settings: Mapping[str, str], clock: Clock = system_clock) -> Removal | None:
    """What a clean would remove now; None when nothing is old enough. Nothing is changed."""
    return _removal(state, parse_clean(settings), clock(), settings)


def due(head: TableState, config: CleanConfig, clock: Clock, settings: Mapping[str, str]) -> bool:
    """Whether a clean may have something to remove, from the timeline alone (`head` need not know the data files)."""
    if any(i.action == "clean" for i in head.timeline.pending("clean")):
        return True
    cleans = [i for i in head.timeline.instants if i.action == "clean" and i.state == COMPLETED]
    last = cleans[-1] if cleans else None
    writes = newest_writes(head)
    if sum(last is None or i.requested > last.requested for i in writes) < config.trigger_commits:
        return False
    earliest = _earliest(head, config, clock(), settings)
    if earliest is None:
        return False
    if not config.incremental:
        return True
    since = ""
    if last is not None and head.instant_files[last.file_name].size_bytes:
        record = head.record(last)
        since = record.get("earliestCommitToRetain") or record.get("lastCompletedCommitTimestamp") or ""
    until = "~" if config.policy == VERSIONS else earliest.requested
    return any(since <= i.requested < until and _makes_old_files(head, i) for i in writes)


def repair(storage: Storage, settings: Mapping[str, str]) -> list[str]:
    """Remove pending cleans whose plan is empty or cannot be read, and empty completed ones; their instants."""
    gone = []
    with action.running(storage, SERVICE), locked(storage, settings):
        state = load_head(storage)
        for instant in state.timeline.instants:
            if instant.action == "clean" and _is_corrupted(state, instant):
                names = [
                    n for n in state.instant_files if n.startswith((f"{instant.requested}.", f"{instant.requested}_"))
                ]
                # The completed file first: without it the instant is pending, and a crash leaves it to the next repair.
                for name in sorted((n for n in names if ".clean" in n), key=lambda n: (n.count("."), n)):
                    storage.delete(f"{state.timeline_folder}/{name}")
                gone.append(instant.requested)
    return gone


# ---------------------------------------------------------------- deciding


def _removal(state: TableState, config: CleanConfig, now_ms: int, settings: Mapping[str, str]) -> Removal | None:
    earliest = _earliest(state, config, now_ms, settings)
    return None if earliest is None else removal(state, config, earliest, live.files(state.path))


def _earliest(state: TableState, config: CleanConfig, now_ms: int, settings: Mapping[str, str]) -> Instant | None:
    if not state.timeline.completed_writes():
        return None
    zone = timeline_zone(state, parse_settings(settings).timezone)
    return earliest_retained(state, config, now_ms, new_instant_time(now_ms - config.hours * _HOUR_MS, zone))


def _makes_old_files(head: TableState, instant: Instant) -> bool:
    """Whether a write replaced a base file of its group, or a whole group."""
    metadata = head.commit(instant)
    if metadata.replaced:
        return True
    stats = [s for group in metadata.partition_stats.values() for s in group]
    return any(s.prev_commit not in ("null", "") and ".log." not in (s.path or "").rsplit("/", 1)[-1] for s in stats)


def _is_corrupted(state: TableState, instant: Instant) -> bool:
    if instant.is_completed:
        name = instant.file_name
    else:
        name = instant_file_name(instant.requested, "clean", REQUESTED, state.config.layout)
    if name not in state.instant_files or not state.instant_files[name].size_bytes:
        return True
    try:
        state.plan(instant, name)
    except FormatError:
        return True
    return False


def _plan_record(state: TableState, config: CleanConfig, found: Removal) -> dict[str, Any]:
    earliest = found.earliest
    retained = earliest and {
        "timestamp": earliest.requested,
        "action": earliest.completed_action,
        "state": earliest.state,
    }
    extra = {_WRITER: "lakesql"}
    if saved := savepoints(state):
        extra[_SAVEPOINTED] = ",".join(sorted(saved))
    if found.complete_from:
        extra[EARLIEST] = found.complete_from
    return {
        "earliestInstantToRetain": retained,
        "lastCompletedCommitTimestamp": found.last_completed,
        "policy": config.policy,
        "filesToBeDeletedPerPartition": {},
        "version": 2,
        "filePathsToBeDeletedPerPartition": {
            partition: [
                {"filePath": f"file:{state.path}/{_path(partition, name)}", "isBootstrapBaseFile": False}
                for name in names
            ]
            for partition, names in found.files.items()
        },
        "partitionsToBeDeleted": list(found.empty_partitions),
        "extraMetadata": extra,
    }


# ---------------------------------------------------------------- running


def _unfinished(storage: Storage) -> list[Instant]:
    return load_head(storage).timeline.pending("clean")


def _finish(
    storage: Storage, settings: Mapping[str, str], clock: Clock, instant: Instant, fresh: bool = False
) -> Cleaned:
    """Carry the plan of a pending clean out; nothing is missed when it was begun already."""
    began = clock()
    with action.looking(storage, settings, clock) as look:
        txn = action.planned(look.state, instant, "CLEAN")
        plan = _plan_of(look.state, instant)
        _require_dead(look.state, instant, plan, clock)
        needed = frozenset() if fresh else still_needed(look.state)
        action.start(txn, b"" if look.state.config.version >= 9 else encode_record("HoodieCleanerPlan", plan))
    files = _files_of(plan)
    deleted: dict[str, list[str]] = {partition: [] for partition in files}
    failed: dict[str, list[str]] = {partition: [] for partition in files}
    for partition, names in files.items():
        for name in names:
            path = _path(partition, name)
            (deleted if path not in needed and _deleted(storage, path) else failed)[partition].append(name)
    with locked(storage, settings):
        done = _completed(txn, replace(look, state=load_head(storage)), plan, (deleted, failed), began)
    note = commit.finish(txn)
    return replace(done, notes=(*done.notes, note)) if note else done


def _completed(
    txn: Transaction,
    look: action.Look,
    plan: Mapping[str, Any],
    outcome: tuple[Mapping[str, list[str]], Mapping[str, list[str]]],
    began: int,
) -> Cleaned:
    deleted, failed = outcome
    ours = [i for i in look.state.timeline.instants if (i.requested, i.action) == (txn.instant, "clean")]
    if ours and ours[0].is_completed:  # by another engine, from the same plan
        return Cleaned(txn.instant, ours[0].completed or txn.instant, look.state.record(ours[0]))
    look, note = action.without_metadata_table(look)
    emptied = _remove_partitions(look, plan.get("partitionsToBeDeleted") or [])
    policy = plan["policy"]
    partitions = {
        partition: {
            "partitionPath": partition,
            "policy": policy,
            "deletePathPatterns": [*names, *failed[partition]],
            "successDeleteFiles": names,
            "failedDeleteFiles": failed[partition],
            "isPartitionDeleted": partition in emptied,
        }
        for partition, names in deleted.items()
    }
    metadata = {
        "startCleanTime": txn.instant,
        "timeTakenInMillis": max(look.clock() - began, 0),
        "totalFilesDeleted": sum(len(names) for names in deleted.values()),
        "earliestCommitToRetain": (plan.get("earliestInstantToRetain") or {}).get("timestamp") or "",
        "lastCompletedCommitTimestamp": plan.get("lastCompletedCommitTimestamp") or "",
        "partitionMetadata": partitions,
        "version": 2,
        "bootstrapPartitionMetadata": {},
        "extraMetadata": dict(plan.get("extraMetadata") or {}),
    }
    completed = action.complete(txn, look, encode_record("HoodieCleanMetadata", metadata))
    return Cleaned(txn.instant, completed, metadata, (note,) if note else ())


def _plan_of(state: TableState, instant: Instant) -> dict[str, Any]:
    try:
        return state.plan(instant, instant_file_name(instant.requested, "clean", REQUESTED, state.config.layout))
    except FormatError as error:
        raise FormatError(
            f"{state.path}: the plan of clean {instant.requested} cannot be read. CALL repair_corrupted_clean_files "
            "removes it; nothing is lost, the next clean plans anew."
        ) from error


def _require_dead(state: TableState, instant: Instant, plan: Mapping[str, Any], clock: Clock) -> None:
    """CommitConflict when another engine is at this clean. Ours are not: `running` is held."""
    names = (instant_file_name(instant.requested, "clean", s, state.config.layout) for s in (REQUESTED, INFLIGHT))
    traces = [state.instant_files[n] for n in names if n in state.instant_files]
    if (plan.get("extraMetadata") or {}).get(_WRITER) == "lakesql" or not traces:
        return
    age_ms = clock() - newest_trace_ms(state, instant)
    if age_ms <= FOREIGN_DEAD_MS:
        raise CommitConflict(
            f"{state.path}: another writer runs clean {instant.requested} (last sign of life {age_ms / 1000:.0f} s ago). "
            f"Nothing was changed. Wait; after {FOREIGN_DEAD_MS // 1000} s without a sign it is taken over."
        )


def _files_of(plan: Mapping[str, Any]) -> dict[str, list[str]]:
    """Partition -> names, from either form of a plan; a table that was moved since keeps its names."""
    old = plan.get("filesToBeDeletedPerPartition") or {}
    new = plan.get("filePathsToBeDeletedPerPartition") or {}
    files = {partition: [name.rsplit("/", 1)[-1] for name in names] for partition, names in old.items()}
    for partition, infos in new.items():
        names = (str(info["filePath"]).rsplit("/", 1)[-1] for info in infos if info.get("filePath"))
        files[partition] = list(dict.fromkeys([*files.get(partition, []), *names]))
    return files


def _deleted(storage: Storage, path: str) -> bool:
    try:
        storage.delete(path)
    except TableError:
        return False
    return True


def _remove_partitions(look: action.Look, planned: list[str]) -> set[str]:
    """Remove partitions that have no data file left; while another writer is at work they stay."""
    gone: set[str] = set()
    storage = look.state.storage
    for partition in planned:
        if not partition or any(i.action != "clean" for i in look.state.timeline.pending()):
            continue
        names = {info.path.rsplit("/", 1)[-1] for info in storage.walk(partition)}
        if names <= {".hoodie_partition_metadata"}:
            storage.delete_tree(partition)
            gone.add(partition)
    return gone


def _path(partition: str, name: str) -> str:
    return f"{partition}/{name}" if partition else name


def _sentence(one: Cleaned) -> str:
    kept = f"; states from {one.earliest} on stay readable" if one.earliest else ""
    return f"Cleaned {one.files_deleted} old files{kept}."
