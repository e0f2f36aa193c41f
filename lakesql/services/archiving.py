"""Archiving: moving old completed instants out of the active timeline, so that it stays short (hudi-format 10.8).

What leaves must be something a reader can do without: an instant older than the active part counts as completed. So
nothing is archived from the oldest pending instant on, nothing that the cleaning policy retains or a savepoint holds, no
replacement whose replaced files still lie there, and nothing beyond a file that no instant knows; both would come to
life. The archive is written first. Then the instant files go: those of unfinished states, then the completed ones, oldest
first, so that a reader in between sees a timeline that begins later and has no hole. After a crash an instant may be in
both places, which readers take as one; the next run does not archive it again and removes the rest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import duckdb

from lakesql.errors import TableError
from lakesql.format.metadata import CommitMetadata, commit_record, decode_commit, decode_record
from lakesql.format.timeline import (
    COMPLETED,
    OTHER_ACTIONS,
    REQUESTED,
    WRITE_ACTIONS,
    Instant,
    new_instant_time,
    parse_instant_file,
)
from lakesql.services import action
from lakesql.services.clean_plan import earliest_retained, newest_writes
from lakesql.services.clean_settings import VERSIONS, parse_clean
from lakesql.services.history import append_history, append_log
from lakesql.storage import Storage
from lakesql.table.archive import read_archived
from lakesql.table.clock import Clock, system_clock
from lakesql.table.listing import newest_head
from lakesql.table.state import TableState
from lakesql.values import Parse, flag, parsed, size
from lakesql.write.transaction import temporary_folder

SERVICE = "archive"
_BESIDE = ("clean", "rollback")
"""Actions that are archived beside the writes."""
_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class ArchiveConfig:
    """When instants leave the active timeline, and how many stay."""

    automatic: bool = True
    min_commits: int = 20
    max_commits: int = 30
    batch: int = 10
    merge_files: int = 10
    manifests: int = 3


_BY_FIELD: dict[str, tuple[str, Parse]] = {
    "automatic": ("hoodie.archive.automatic", flag),
    "min_commits": ("hoodie.keep.min.commits", size(1)),
    "max_commits": ("hoodie.keep.max.commits", size(1)),
    "batch": ("hoodie.commits.archival.batch", size(1)),
    "merge_files": ("hoodie.timeline.compaction.batch.size", size(2)),
    "manifests": ("hoodie.timeline.manifest.retained.versions", size(1)),
}
SETTINGS: dict[str, Parse] = dict(_BY_FIELD.values())


def parse_archive(settings: Mapping[str, str]) -> ArchiveConfig:
    """The typed form of the settings; TableError for values that contradict each other."""
    config = parsed(ArchiveConfig, _BY_FIELD, settings)
    if config.max_commits < config.min_commits:
        given = {key: str(value) for key, value in settings.items() if key.startswith("hoodie.keep.")}
        if len(given) == 1:  # the other one is a default of ours, and gives way
            low = high = config.min_commits if "hoodie.keep.min.commits" in given else config.max_commits
            return ArchiveConfig(**{**asdict(config), "min_commits": low, "max_commits": high})
        raise TableError(
            f"setting hoodie.keep.max.commits = {config.max_commits} is smaller than hoodie.keep.min.commits = "
            f"{config.min_commits}. Make it larger."
        )
    return config


def after_write(
    con: duckdb.DuckDBPyConnection, storage: Storage, settings: Mapping[str, str], clock: Clock
) -> list[str]:
    """Archive after a write when the active timeline has grown too long; a sentence about it."""
    del con
    config = parse_archive(settings)
    if not config.automatic or not due(newest_head(storage), config):
        return []
    moved = archive(storage, settings, clock)
    return [f"Archived {len(moved)} instants of the timeline, up to {moved[-1]}."] if moved else []


def due(head: TableState, config: ArchiveConfig) -> bool:
    """Whether there are more instants than may stay, from the timeline alone."""
    counts = [len(newest_writes(head))]
    if head.config.layout == 1:
        counts += [len(_beside(head, word)) for word in _BESIDE]
    return max(counts) > config.max_commits


def archive(storage: Storage, settings: Mapping[str, str], clock: Clock = system_clock) -> list[str]:
    """Archive what may leave the active timeline, if it is too long; the instants, oldest first.

    CommitConflict when another writer is at work.
    """
    config = parse_archive(settings)
    with action.looking(storage, settings, clock) as look:
        state = look.state
        if not due(state, config):
            return []
        chosen = _chosen(state, config, settings, look, clock())
        if not chosen:
            return []
        look, _ = action.without_metadata_table(look)
        stored = {(a.instant.requested, a.instant.completed_action) for a in read_archived(storage, state.config)}
        new = [i for i in chosen if (i.requested, i.completed_action) not in stored]
        if new and state.config.layout == 1:
            entries = [entry for instant in new for entry in _entries(state, instant)]
            append_log(storage, state.config.history_folder, entries, config.batch)
        elif new:
            rows = [_row(state, instant) for instant in new]
            append_history(storage, state.config.history_folder, rows, config.merge_files, config.manifests)
        _remove(state, chosen)
        return [i.requested for i in chosen]


# ---------------------------------------------------------------- deciding


def _chosen(
    state: TableState, config: ArchiveConfig, settings: Mapping[str, str], look: action.Look, now_ms: int
) -> list[Instant]:
    """The instants to archive by requested time."""
    writes = newest_writes(state)
    limit = _limit(state, settings, look, now_ms)
    free = writes[: max(len(writes) - config.min_commits, 0)] if len(writes) > config.max_commits else []
    chosen = [i for i in free if i.requested < limit]
    for word in _BESIDE:
        beside = _beside(state, word)
        if state.config.layout == 1:
            chosen += beside[: -config.min_commits] if len(beside) > config.max_commits else []
        elif chosen:
            # The newest clean says which states are still there.
            last = max(i.requested for i in chosen if i.completed_action in WRITE_ACTIONS)
            chosen += [i for i in (beside[:-1] if word == "clean" else beside) if i.requested < last]
    return sorted(chosen, key=lambda i: (i.requested, i.action))


def _beside(state: TableState, word: str) -> list[Instant]:
    return [i for i in state.timeline.instants if i.action == word and i.state == COMPLETED]


def _limit(state: TableState, settings: Mapping[str, str], look: action.Look, now_ms: int) -> str:
    """The instant from which on everything stays."""
    writes = newest_writes(state)

    def before(time: str) -> str:
        """The newest write before a time; it stays, so that the active timeline begins before that time."""
        return max((i.requested for i in writes if i.requested < time), default="")

    limits = [before(i.requested) or i.requested for i in state.timeline.pending()]
    limits += [i.requested for i in state.timeline.instants if i.action == "savepoint"]
    cleaning = parse_clean(settings)
    if cleaning.policy != VERSIONS:
        hours_ago = new_instant_time(now_ms - cleaning.hours * _HOUR_MS, look.zone)
        retained = earliest_retained(state, cleaning, now_ms, hours_ago)
        limits.append(retained.requested if retained else "")
    present = {(f.partition, f.file_id) for f in state.files}
    limits += [time for group, time in state.replacements().items() if group in present]
    start, listed = state.timeline.start or "", {i.requested for i in state.timeline.instants}
    limits += [before(f.instant) for f in state.files if f.instant > start and f.instant not in listed]
    return min(limits, default="~")


# ---------------------------------------------------------------- moving


def _files(state: TableState, instant: Instant) -> list[tuple[str, str, str]]:
    """(state, action word, name) of every timeline file of an instant; a savepoint of the same time is another one."""
    found = []
    for name in state.instant_files:
        parsed_name = parse_instant_file(name, state.config.layout)
        if parsed_name is None or parsed_name[0] != instant.requested:
            continue
        _, _, word, stage = parsed_name
        kind = word if word in OTHER_ACTIONS else "write"
        if kind == (instant.action if instant.action in OTHER_ACTIONS else "write"):
            found.append((stage, word, name))
    return found


def _row(state: TableState, instant: Instant) -> dict[str, Any]:
    """The history row of an instant: the bytes of its completed file and of its plan."""
    body = state.storage.read(f"{state.timeline_folder}/{instant.file_name}")
    plan = None
    for stage, word, name in _files(state, instant):
        if (
            stage == REQUESTED
            and word not in ("commit", "deltacommit", "rollback")
            and state.instant_files[name].size_bytes
        ):
            plan = state.storage.read(f"{state.timeline_folder}/{name}")
    return {
        "instantTime": instant.requested,
        "completionTime": instant.completed or instant.requested,
        "action": instant.completed_action,
        "metadata": body,
        "plan": plan,
        "version": 1,
    }


def _entries(state: TableState, instant: Instant) -> list[dict[str, Any]]:
    """Version 6: an entry for every state file of an instant, in the order of the states."""
    order = {REQUESTED: 0, COMPLETED: 2}
    return [
        {
            "commitTime": instant.requested,
            "actionType": word,
            "version": 1,
            "actionState": stage,
            "stateTransitionTime": new_instant_time(state.instant_files[name].modified_ms),
            **_content(state, word, stage, name),
        }
        for stage, word, name in sorted(_files(state, instant), key=lambda f: order.get(f[0], 1))
    ]


def _content(state: TableState, word: str, stage: str, name: str) -> dict[str, Any]:
    """What a state file says, under the field of its kind."""
    path = f"{state.timeline_folder}/{name}"
    data, where = state.storage.read(path), f"{state.path}/{path}"
    if word == "replacecommit" and stage == REQUESTED:
        return {"hoodieRequestedReplaceMetadata": decode_record(data, where)} if data else {}
    if word in WRITE_ACTIONS:
        metadata = decode_commit(data, where) if data else CommitMetadata()
        if word != "replacecommit":
            return {"hoodieCommitMetadata": commit_record(metadata)}
        if stage == COMPLETED:
            return {"hoodieReplaceCommitMetadata": commit_record(metadata, replace=True)}
        return {"HoodieInflightReplaceMetadata": commit_record(metadata)} if data else {}
    if not data:
        return {}
    if stage == COMPLETED:
        fields = {"clean": "hoodieCleanMetadata", "rollback": "hoodieRollbackMetadata"}
        return {fields[word]: decode_record(data, where)}
    plans = {
        "clean": "hoodieCleanerPlan",
        "compaction": "hoodieCompactionPlan",
        "logcompaction": "hoodieCompactionPlan",
    }
    return {plans[word]: decode_record(data, where)} if word in plans else {}


def _remove(state: TableState, chosen: Sequence[Instant]) -> None:
    """Take the files of archived instants away, and markers that were left."""
    marked = {f"{temporary_folder('')}{name}" for name in state.storage.list(temporary_folder("").rstrip("/"))[1]}
    completed = []
    for instant in chosen:
        for stage, _, name in _files(state, instant):
            if stage == COMPLETED:
                completed.append(name)
            else:
                state.storage.delete(f"{state.timeline_folder}/{name}")
        if temporary_folder(instant.requested) in marked:
            state.storage.delete_tree(temporary_folder(instant.requested))
    for name in completed:
        state.storage.delete(f"{state.timeline_folder}/{name}")
