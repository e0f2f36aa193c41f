"""What the file groups held after each write of the timeline: bytes of base files and logs, and since when logs waited.

The write stats of the commits are gone through from the oldest to the newest, as a table that was looked at after each one.
File groups that were there before the timeline begins count with the first base file that is known of them; logs that
were written before it are known as far as they are still there. No data is read.
"""

from dataclasses import dataclass, field
from datetime import UTC, tzinfo

from lakesql.errors import TableError
from lakesql.format.files import BaseFile, LogFile, parse_data_file
from lakesql.format.metadata import WriteStat
from lakesql.format.timeline import SERVICE_ACTIONS, Instant, instant_millis
from lakesql.services.freshness import writers_of
from lakesql.table.clock import timeline_zone
from lakesql.table.state import TableState

Key = tuple[str, str]
_SERVICES = ("COMPACT", "LOG_COMPACT", "CLUSTER")


@dataclass(frozen=True, slots=True)
class After:
    """The table after one write. `oldest_ms`: when the oldest commit that is in a log completed; None without logs."""

    instant: Instant
    operation: str
    service: bool
    at_ms: int
    bytes_written: int
    base_bytes: int
    log_bytes: int
    oldest_ms: int | None


@dataclass(slots=True)
class _Log:
    size: int
    written: dict[str, int] = field(default_factory=dict)
    """Commits in it, services left out: the time that orders them -> epoch ms."""
    base_instant: str = ""
    """Version 6: the base file that it belongs on top of."""


@dataclass(slots=True)
class _Group:
    base: int = 0
    logs: dict[str, _Log] = field(default_factory=dict)

    @property
    def log_bytes(self) -> int:
        return sum(log.size for log in self.logs.values())

    @property
    def oldest(self) -> int | None:
        return min((ms for log in self.logs.values() for ms in log.written.values()), default=None)


def moments(state: TableState) -> "Moments":
    """When instants completed, for a whole timeline."""
    try:
        return Moments(state, timeline_zone(state, ""), True)
    except TableError:
        return Moments(state, UTC, False)


@dataclass(frozen=True, slots=True)
class Moments:
    """As `freshness.completed_ms`, with the zone found once."""

    state: TableState
    zone: tzinfo
    sure: bool

    def completed_ms(self, instant: Instant) -> int:
        info = self.state.instant_files.get(instant.file_name)
        if info is not None and (self.state.timeline.layout == 1 or not self.sure):
            return info.modified_ms
        return instant_millis(self.state.timeline.time_of(instant), self.zone)


def replayed(state: TableState) -> list[After]:
    """One entry per completed write of the active timeline, oldest first."""
    writes = state.timeline.completed_writes()
    when = moments(state)
    groups = _before(state, writes, when)
    base, logs = sum(g.base for g in groups.values()), sum(g.log_bytes for g in groups.values())
    oldest = {key: since for key, g in groups.items() if (since := g.oldest) is not None}
    found = []
    for instant in writes:
        commit = state.commit(instant)
        operation = "COMPACT" if commit.compacted else (commit.operation or "").upper()
        service = instant.action in SERVICE_ACTIONS or operation in _SERVICES
        at = when.completed_ms(instant)
        gone = {(partition, i) for partition, ids in commit.replaced.items() for i in ids}
        touched = gone | {(p, s.file_id or "") for p, stats in commit.partition_stats.items() for s in stats}
        base -= sum(groups[k].base for k in touched if k in groups)
        logs -= sum(groups[k].log_bytes for k in touched if k in groups)
        for key in gone:
            groups.pop(key, None)
        written = 0
        for partition, stats in commit.partition_stats.items():
            for stat in stats:
                written += stat.total_write_bytes or 0
                group = groups.setdefault((partition, stat.file_id or ""), _Group())
                _apply(group, state, partition, stat, instant, None if service else at)
        for key in touched:
            left = groups.get(key, _Group())
            base += left.base
            logs += left.log_bytes
            since = left.oldest
            if since is None:
                oldest.pop(key, None)
            else:
                oldest[key] = since
        found.append(After(instant, operation, service, at, written, base, logs, min(oldest.values(), default=None)))
    return found


def _apply(group: _Group, state: TableState, partition: str, stat: WriteStat, instant: Instant, at: int | None) -> None:
    """One write stat onto its file group. `at` is None for a service, whose log holds older commits."""
    name = (stat.path or "").rsplit("/", 1)[-1]
    size = stat.file_size_in_bytes or stat.total_write_bytes or 0
    file = parse_data_file(partition, name, size)
    time = state.timeline.time_of(instant)
    if isinstance(file, LogFile):
        log = group.logs.setdefault(name, _Log(0, base_instant=file.instant))
        log.size = max(size, log.size) if stat.file_size_in_bytes else log.size + size
        if at is not None:
            log.written[time] = at
    elif isinstance(file, BaseFile):
        group.base = size
        if state.config.version < 8:
            group.logs = {n: log for n, log in group.logs.items() if log.base_instant >= file.instant}
        else:
            group.logs = {n: log for n, log in group.logs.items() if max(log.written, default="") >= file.instant}


def _before(state: TableState, writes: list[Instant], when: Moments) -> dict[Key, _Group]:
    """The file groups that were there before the first of these writes, with logs of theirs that are still there."""
    known: dict[Key, int] = {}
    new: set[Key] = set()
    paths: set[str] = set()
    for instant in writes:
        for partition, stats in state.commit(instant).partition_stats.items():
            for stat in stats:
                key = partition, stat.file_id or ""
                paths.add(stat.path or "")
                is_log = ".log." in (stat.path or "")
                if key not in known and (stat.prev_commit or "null") == "null" and not (is_log and stat.base_file):
                    new.add(key)
                if not is_log:
                    known.setdefault(key, stat.file_size_in_bytes or stat.total_write_bytes or 0)
    slices = state.slices()
    for one in slices:
        if one.base is not None:
            known.setdefault(one.group, one.base.size_bytes)
    groups = {key: _Group(size) for key, size in known.items() if key not in new}
    older = [s for s in slices if any(f.path not in paths for f in s.logs)]
    writers = writers_of(state, older) if older else {}
    for one in older:
        for file in one.logs:
            if file.path not in paths:
                by = [i for i, _ in writers.get(file.path, ())]
                written = {state.timeline.time_of(i): when.completed_ms(i) for i in by}
                written = written or {file.instant: instant_millis(file.instant, when.zone)}
                log = _Log(file.size_bytes, written, file.instant)
                groups.setdefault(one.group, _Group()).logs[file.name] = log
    return groups
