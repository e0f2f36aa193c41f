"""What a clean takes away (hudi-format 10.4): a pure question to a look at the table. Nothing is changed here.

Per file group the slices are kept that a read as of the earliest retained instant, or of any later one, needs: those not
older than it and the one just before it, or the newest few when the policy counts file versions. Always kept: the newest
slice, what a savepoint lists, what a pending compaction or clustering reads, what is still open in this process. A
replaced group goes whole once its replacement is older than the earliest retained instant. Files that no instant of the
timeline or its archive knows are leftovers of writes that somebody rolled back; they go as well, before they come to
life when the timeline moves on (9.6).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from lakesql.format.files import BaseFile, FileSlice, LogFile, all_slices
from lakesql.format.timeline import SERVICE_ACTIONS, WRITE_ACTIONS, Instant
from lakesql.services.clean_settings import COMMITS, VERSIONS, CleanConfig
from lakesql.table.retained import savepoints
from lakesql.table.state import TableState

Group = tuple[str, str]
DataFile = BaseFile | LogFile


@dataclass(frozen=True, slots=True)
class Removal:
    """What goes. `earliest`: the earliest retained instant, None when the policy counts file versions."""

    earliest: Instant | None
    last_completed: str
    files: Mapping[str, tuple[str, ...]]
    """Partition -> names."""
    empty_partitions: tuple[str, ...] = ()
    complete_from: str = ""
    """Counting file versions: the earliest instant whose state stays complete."""
    held: int = 0
    """Files that stay this time because a result of this process may still open them."""


def newest_writes(state: TableState) -> list[Instant]:
    """Completed writes of the active timeline by requested time."""
    return sorted(state.timeline.completed_writes(), key=lambda i: i.requested)


def pending_since(state: TableState) -> Instant | None:
    """The oldest instant that is not completed and writes, or will write, data files."""
    waiting = [i for i in state.timeline.pending() if i.action in (*WRITE_ACTIONS, *SERVICE_ACTIONS)]
    return min(waiting, key=lambda i: i.requested, default=None)


def earliest_retained(state: TableState, config: CleanConfig, now_ms: int, hours_ago: str) -> Instant | None:
    """The earliest instant whose state stays readable, by commits or by hours; None when nothing is old enough.

    `hours_ago`: the instant time before which the policy by hours cleans. Counting file versions the limit is what
    pending instants and the grace leave.
    """
    writes = newest_writes(state)
    if not writes:
        return None
    if config.policy == COMMITS:
        found = writes[-config.commits] if len(writes) > config.commits else None
    elif config.policy == VERSIONS:
        found = writes[-1]
    else:
        found = next((i for i in writes if i.requested >= hours_ago), writes[-1])
    if found is not None and config.grace_ms:
        young = (
            n for n, i in enumerate(writes) if state.instant_files[i.file_name].modified_ms > now_ms - config.grace_ms
        )
        first = next(young, len(writes))
        before = writes[first - 1] if first else None
        found = before if before is None or before.requested < found.requested else found
    oldest = pending_since(state)
    if found is not None and oldest is not None and oldest.requested < found.requested:
        found = oldest
    return found


@dataclass(frozen=True, slots=True)
class _Needs:
    """What must stay whatever the policy says."""

    names: frozenset[tuple[str, str]]
    """(partition, name) of files that savepoints and pending plans list."""
    since: Mapping[Group, str]
    """Group of a pending plan -> base instant from which on its slices stay."""


def removal(state: TableState, config: CleanConfig, earliest: Instant, held: Collection[str]) -> Removal:
    """What a clean with that earliest retained instant takes away. `held`: paths of files that stay this time."""
    needs = _needs(state)
    replaced = state.replacements()
    gone: set[DataFile] = set()
    left = 0
    complete_from = ""
    attempts = _attempts(state)
    for group, slices in _by_group(state).items():
        old, since = _old_slices(config, earliest.requested, slices, replaced.get(group), needs.since.get(group, ""))
        for one in old:
            files = {*one.logs, *attempts.get((one.partition, one.file_id, one.instant), ())}
            if any((f.partition, f.name) in needs.names for f in files):
                continue
            if any(f.path in held for f in files):
                left += len(files)
                continue
            gone |= files
            complete_from = max(complete_from, since)
    gone |= {f for f in _leftovers(state, earliest.requested) if (f.partition, f.name) not in needs.names}
    by_partition: dict[str, list[str]] = {}
    for file in sorted(gone, key=lambda f: f.path):
        by_partition.setdefault(file.partition, []).append(file.name)
    writes = newest_writes(state)
    return Removal(
        None if config.policy == VERSIONS else earliest,
        writes[-1].requested if writes else "",
        {partition: tuple(names) for partition, names in by_partition.items()},
        tuple(sorted(_emptied(state, gone))) if pending_since(state) is None else (),
        complete_from if config.policy == VERSIONS else "",
        left,
    )


def still_needed(state: TableState) -> frozenset[str]:
    """Paths that no clean may delete now: the newest slices, and what savepoints and pending plans list."""
    needs = _needs(state)
    slices = state.slices() if state.timeline.completed_writes() else []
    newest = {f.path for s in slices for f in (s.base, *s.logs) if f is not None}
    return frozenset(newest | {f"{partition}/{name}" if partition else name for partition, name in needs.names})


def _by_group(state: TableState) -> dict[Group, list[FileSlice]]:
    groups: dict[Group, list[FileSlice]] = {}
    for one in all_slices(
        state.files,
        state.view_timeline,
        version=state.config.version,
        pending_compactions=state.pending_compactions,
    ):
        groups.setdefault(one.group, []).append(one)
    return groups


def _old_slices(
    config: CleanConfig, earliest: str, slices: Sequence[FileSlice], replaced: str | None, planned: str
) -> tuple[list[FileSlice], str]:
    """The slices (newest first) that the policy lets go, and the instant from which on the group is complete then."""
    if replaced is not None:
        gone = replaced <= earliest if config.policy == VERSIONS else replaced < earliest
        return (list(slices) if gone and not planned else []), replaced
    counted = 0
    keep = 0
    for number, one in enumerate(slices):
        keep = number + 1
        counted += not planned or one.instant < planned
        if one.base is None or (planned and one.instant >= planned):
            continue  # reading a slice without base file may need the one before it
        if config.policy != VERSIONS and one.instant < earliest:
            break
        if config.policy == VERSIONS and one.instant <= earliest and counted >= config.versions - bool(planned):
            break
    return list(slices[keep:]), slices[keep - 1].instant


def _attempts(state: TableState) -> dict[tuple[str, str, str], list[BaseFile]]:
    """The base files of every slice: more than one when two attempts of a task survived, of which a slice shows one."""
    found: dict[tuple[str, str, str], list[BaseFile]] = {}
    for file in state.files:
        if isinstance(file, BaseFile):
            found.setdefault((file.partition, file.file_id, file.instant), []).append(file)
    return found


def _needs(state: TableState) -> _Needs:
    names = {held for files in savepoints(state).values() for held in files}
    since: dict[Group, str] = {}
    for partition, file_id, base, files in _planned(state):
        names |= {(partition, name.rsplit("/", 1)[-1]) for name in files if name}
        if base:
            since[partition, file_id] = min(since.get((partition, file_id), base), base)
    return _Needs(frozenset(names), since)


def _planned(state: TableState) -> Iterator[tuple[str, str, str, list[str]]]:
    """(partition, file id, base instant or '', names or paths of files) of every slice in a pending plan."""
    for instant in state.timeline.pending("compaction", "logcompaction", "clustering", "replacecommit"):
        name = f"{instant.requested}.{instant.action}.requested"
        if name not in state.instant_files or not state.instant_files[name].size_bytes:
            continue
        plan = state.plan(instant, name)
        for one in plan.get("operations") or []:
            files = [one.get("dataFilePath") or "", *(one.get("deltaFilePaths") or [])]
            yield one["partitionPath"] or "", one["fileId"], one.get("baseInstantTime") or "", files
        for group in (plan.get("clusteringPlan") or {}).get("inputGroups") or []:
            for piece in group["slices"] or []:
                files = [piece.get("dataFilePath") or "", *(piece.get("deltaFilePaths") or [])]
                yield piece["partitionPath"] or "", piece["fileId"], "", files


def _leftovers(state: TableState, earliest: str) -> Iterator[DataFile]:
    """Files of instants that nobody knows. Version 6 logs are named after another instant, so they never count."""
    listed = {i.requested for i in state.timeline.instants}
    start = state.timeline.start or "~"
    oldest = pending_since(state)
    before = min(earliest, oldest.requested if oldest else earliest)
    for file in state.files:
        if isinstance(file, LogFile) and state.config.version < 8:
            continue
        if (
            start < file.instant < before
            and file.instant not in listed
            and not state.history.is_committed(file.instant)
        ):
            yield file


def _emptied(state: TableState, gone: Collection[DataFile]) -> set[str]:
    """Partitions that have no file left."""
    return {f.partition for f in gone if f.partition} - {f.partition for f in state.files if f not in gone}
