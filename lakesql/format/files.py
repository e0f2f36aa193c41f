"""Names of data files, and how a listing and a timeline become file slices.

Files are not named in a manifest: what counts is the listing, filtered by the timeline (hudi-format 0.5). A file
group is all files of one file id in one partition. A file slice is at most one base file and the log files that
belong on top of it. Version 6 names a log file after its slice; from version 8 on a log file carries its own delta
commit and belongs to the largest base instant that is not younger than its completion. Names: hudi-format 3.1 and 3.2,
slices: 3.3. Change-data files (`.cdc`) are no part of a slice and are never returned.
Not here: which file groups a replacecommit removed and which compactions are pending (arguments), and the blocks
inside a log file, which for version 6 are the only witnesses of the delta commits that wrote them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from lakesql.format.timeline import Timeline

_BASE_NAME = re.compile(r"([^._/][^_/]*)_(\d+-\d+-\d+)_(\d+)\.(?:parquet|orc|hfile|lance)", re.ASCII)
_LOG_NAME = re.compile(r"\.([^._/]+)_(\d+)\.log\.(\d+)(?:_(\d+-\d+-\d+)(\.cdc)?)?", re.ASCII)

NO_GROUPS: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True, slots=True)
class BaseFile:
    """A base file; `instant` is the requested time of the action that wrote it."""

    partition: str
    name: str
    file_id: str
    token: str
    instant: str
    size_bytes: int

    @property
    def path(self) -> str:
        """Relative to the table."""
        return f"{self.partition}/{self.name}" if self.partition else self.name


@dataclass(frozen=True, slots=True)
class LogFile:
    """A log file. `instant` is the base instant of its slice (version 6) or its own delta commit (version 8 on)."""

    partition: str
    name: str
    file_id: str
    instant: str
    version: int
    token: str
    """'' in very old files."""
    size_bytes: int

    @property
    def path(self) -> str:
        """Relative to the table."""
        return f"{self.partition}/{self.name}" if self.partition else self.name


@dataclass(frozen=True, slots=True)
class FileSlice:
    """One version of a file group: `instant` is its base instant, `logs` are in reading order."""

    partition: str
    file_id: str
    instant: str
    base: BaseFile | None
    logs: tuple[LogFile, ...]

    @property
    def group(self) -> tuple[str, str]:
        return self.partition, self.file_id


def parse_data_file(partition: str, name: str, size_bytes: int) -> BaseFile | LogFile | None:
    """The base or log file of that name; None for every other file."""
    if name.startswith("."):
        match = _LOG_NAME.fullmatch(name)
        if match is None or match[5]:
            return None
        return LogFile(partition, name, match[1], match[2], int(match[3]), match[4] or "", size_bytes)
    match = _BASE_NAME.fullmatch(name)
    if match is None:
        return None
    return BaseFile(partition, name, match[1], match[2], match[3], size_bytes)


def base_file_name(file_id: str, token: str, instant: str, ext: str = "parquet") -> str:
    return f"{file_id}_{token}_{instant}.{ext}"


def log_file_name(file_id: str, instant: str, version: int, token: str) -> str:
    return f".{file_id}_{instant}.log.{version}_{token}"


def log_order(log: LogFile) -> tuple[str, int, tuple[int, ...]]:
    """Sort key of the log files of a slice (hudi-format 3.2); completion times play no part in it."""
    return log.instant, log.version, _token_order(log.token)


def file_slices(
    files: Iterable[BaseFile | LogFile],
    timeline: Timeline,
    *,
    version: int,
    as_of: str | None = None,
    replaced: frozenset[tuple[str, str]] = NO_GROUPS,
    pending_compactions: Mapping[tuple[str, str], str] | None = None,
    include_uncommitted: bool = False,
) -> list[FileSlice]:
    """Per file group the latest slice a reader must read, sorted by (partition, file id).

    `as_of` bounds the requested times. `replaced` are groups to leave out, as of that time. `pending_compactions` names
    the compaction instant of each group in a plan that did not finish: log files written since belong to a slice
    without base file, and reading needs the slice before it as well, so the two come back as one.
    """
    compactions = pending_compactions or {}
    latest: list[FileSlice] = []
    for key, members in _groups(files, replaced):
        compaction = compactions.get(key)
        slices = _slices_of_group(key, members, timeline, version, as_of, compaction, include_uncommitted)
        if slices:
            latest.append(_readable(slices, compaction))
    return latest


def all_slices(
    files: Iterable[BaseFile | LogFile],
    timeline: Timeline,
    *,
    version: int,
    as_of: str | None = None,
    replaced: frozenset[tuple[str, str]] = NO_GROUPS,
    pending_compactions: Mapping[tuple[str, str], str] | None = None,
    include_uncommitted: bool = False,
) -> list[FileSlice]:
    """Every slice of every group as it lies on storage, sorted by (partition, file id), in a group newest first.

    The slice that a pending compaction opened is listed on its own once it has log files.
    """
    compactions = pending_compactions or {}
    return [
        one
        for key, members in _groups(files, replaced)
        for one in _slices_of_group(key, members, timeline, version, as_of, compactions.get(key), include_uncommitted)
    ]


def base_files(
    files: Iterable[BaseFile | LogFile],
    timeline: Timeline,
    *,
    version: int,
    as_of: str | None = None,
    replaced: frozenset[tuple[str, str]] = NO_GROUPS,
) -> list[BaseFile]:
    """Per group the newest committed base file, log files ignored: what a read-optimized query reads."""
    bases = (f for f in files if isinstance(f, BaseFile))
    slices = file_slices(bases, timeline, version=version, as_of=as_of, replaced=replaced)
    return [one.base for one in slices if one.base is not None]


def _token_order(token: str) -> tuple[int, ...]:
    return tuple(int(part) for part in token.split("-")) if token else ()


def _groups(
    files: Iterable[BaseFile | LogFile], replaced: frozenset[tuple[str, str]]
) -> Iterator[tuple[tuple[str, str], list[BaseFile | LogFile]]]:
    groups: dict[tuple[str, str], list[BaseFile | LogFile]] = {}
    for file in files:
        groups.setdefault((file.partition, file.file_id), []).append(file)
    return ((key, groups[key]) for key in sorted(groups) if key not in replaced)


def _slices_of_group(
    key: tuple[str, str],
    members: list[BaseFile | LogFile],
    timeline: Timeline,
    version: int,
    as_of: str | None,
    compaction: str | None,
    include_uncommitted: bool,
) -> list[FileSlice]:
    """The slices of one group, newest first."""

    def visible(instant: str) -> bool:
        return (as_of is None or instant <= as_of) and (include_uncommitted or timeline.is_committed(instant))

    bases: dict[str, BaseFile] = {}
    for file in members:
        if isinstance(file, BaseFile) and visible(file.instant):
            other = bases.get(file.instant)
            # Two attempts of one task must not both survive a commit; if they did, the last attempt is as good as any.
            if other is None or _token_order(file.token) > _token_order(other.token):
                bases[file.instant] = file
    opened = compaction if compaction is not None and (as_of is None or compaction <= as_of) else None
    logs = [file for file in members if isinstance(file, LogFile)]
    if not logs:
        assigned: dict[str, list[LogFile]] = {}
    elif version < 8:
        assigned = _assign_by_name([log for log in logs if log.instant == opened or visible(log.instant)])
    else:
        starts = {*bases, opened} if opened is not None else set(bases)
        assigned = _assign_by_completion([log for log in logs if visible(log.instant)], starts, timeline)
    return [
        FileSlice(*key, instant, bases.get(instant), tuple(sorted(assigned.get(instant, ()), key=log_order)))
        for instant in sorted({*bases, *assigned}, reverse=True)
    ]


def _assign_by_name(logs: list[LogFile]) -> dict[str, list[LogFile]]:
    """Version 6: the name says which slice, even when that slice has no base file."""
    assigned: dict[str, list[LogFile]] = {}
    for log in logs:
        assigned.setdefault(log.instant, []).append(log)
    return assigned


def _assign_by_completion(logs: list[LogFile], starts: set[str], timeline: Timeline) -> dict[str, list[LogFile]]:
    """Version 8 on: the largest base instant not after the log's completion; the rest forms one slice of its own."""
    descending = sorted(starts, reverse=True)
    assigned: dict[str, list[LogFile]] = {}
    first: str | None = None
    for log in sorted(logs, key=log_order):
        completion = timeline.completion_of(log.instant) or log.instant
        start = next((instant for instant in descending if instant <= completion), None)
        if start is None:
            first = start = first or log.instant
        assigned.setdefault(start, []).append(log)
    return assigned


def _readable(slices: list[FileSlice], compaction: str | None) -> FileSlice:
    """The newest slice; over a pending compaction together with the one before it."""
    newest = slices[0]
    if newest.instant != compaction or newest.base is not None or len(slices) == 1:
        return newest
    before = slices[1]
    return FileSlice(newest.partition, newest.file_id, before.instant, before.base, before.logs + newest.logs)
