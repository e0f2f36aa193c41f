"""How far the read-optimized view of a Merge-on-Read table lags behind its snapshot, and reads that demand freshness.

The read-optimized view reads base files alone, so it lacks what the logs of the latest file slices hold. It is complete
up to the newest commit none of whose rows, and none of whose predecessors' rows, are still in a log: `complete_to`. It may
show rows of later commits too (new file groups have base files), so it is no snapshot as of that commit. How stale it is
counts from the moment the oldest commit that it lacks completed; a view that lacks nothing is not stale, however old.

Counts come from the write stats of the commits and the sizes of the files; no data is read, except for `changed_rows`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC

import duckdb

from lakesql.counted import counted
from lakesql.errors import SQLError, TableError
from lakesql.format.files import FileSlice, LogFile
from lakesql.format.metadata import WriteStat
from lakesql.format.timeline import SERVICE_ACTIONS, Instant, instant_millis
from lakesql.table import read
from lakesql.table.clock import timeline_zone
from lakesql.table.lists import spelt
from lakesql.table.logfold import key_sql
from lakesql.table.names import quote
from lakesql.table.read import ReadPlan
from lakesql.table.staleness import MAX_STALENESS, ON_STALE
from lakesql.table.state import TableState
from lakesql.values import Parse, duration

_SERVICES = ("COMPACT", "LOG_COMPACT", "CLUSTER")
ERROR, SNAPSHOT, WARN = CHOICES = ("error", "snapshot", "warn")


@dataclass(frozen=True, slots=True)
class Freshness:
    """The lag of the read-optimized view of a table, or of one of its partitions. Times are instants, NULL when there is none.

    latest_commit     requested time of the newest write (table services are none)
    latest_completed  its completion time; version 6 stores none, there the requested time
    complete_to       requested time of the newest commit up to which the view lacks nothing
    oldest_missing    requested time of the oldest commit of which the view lacks something
    lag_s             seconds since that commit completed, 0 when nothing is missing
    lag_commits       number of commits of which the view lacks something
    log_rows          records and deletes in the logs of the latest slices; NULL when a commit does not tell
    """

    partition_path: str | None
    latest_commit: str | None
    latest_completed: str | None
    complete_to: str | None
    oldest_missing: str | None
    lag_s: float
    lag_commits: int
    file_groups: int
    stale_groups: int
    log_files: int
    log_bytes: int
    log_rows: int | None

    @property
    def text(self) -> str:
        """One sentence."""
        if self.oldest_missing is None:
            return f"complete to the latest commit {self.latest_commit}" if self.latest_commit else "no commit yet"
        which = "it is" if self.lag_commits == 1 else "the oldest is"
        return (
            f"lacks changes of {counted(self.lag_commits, 'commit')}, which are still in log files ({self.log_bytes:,} bytes, in "
            f"{self.stale_groups} of {counted(self.file_groups, 'file group')}); {which} "
            f"{self.oldest_missing}, completed {lag_text(self.lag_s)} ago"
        )


def lag_text(seconds: float) -> str:
    """A span of time for people: the two largest units that count."""
    if 0 < seconds < 1:
        return f"{max(1, round(seconds * 1000))} ms"
    left = round(seconds)
    parts: list[str] = []
    for name, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        if left >= size or (name == "s" and not parts):
            parts.append(f"{left // size} {name}")
            left %= size
    return " ".join(parts[:2])


def freshness(state: TableState, now_ms: int, by_partition: bool = False) -> list[Freshness]:
    """The lag of the table as one value, or of each of its partitions in the order of their paths."""
    slices = state.slices()
    writes = [i for i in state.timeline.completed_writes() if not _is_service(state, i)]
    if not state.config.is_mor or not any(s.logs for s in slices):
        writers: Mapping[str, list[tuple[Instant, WriteStat]]] = {}
    else:
        writers = writers_of(state, slices)
    if not by_partition:
        return [_lag(state, None, slices, writers, writes, now_ms)]
    groups: dict[str, list[FileSlice]] = {}
    for piece in slices:
        groups.setdefault(piece.partition, []).append(piece)
    return [_lag(state, p, pieces, writers, writes, now_ms) for p, pieces in sorted(groups.items())]


def _is_service(state: TableState, instant: Instant) -> bool:
    return instant.action in SERVICE_ACTIONS or (state.commit(instant).operation or "").upper() in _SERVICES


def writers_of(state: TableState, slices: Sequence[FileSlice]) -> dict[str, list[tuple[Instant, WriteStat]]]:
    """Log file path -> the commits that wrote into it, oldest first; the archive is asked when the timeline is too short."""
    wanted = {f.path for s in slices for f in s.logs}
    found: dict[str, list[tuple[Instant, WriteStat]]] = {}

    def add(instants: Sequence[Instant]) -> None:
        for instant in instants:
            for stats in state.commit(instant).partition_stats.values():
                for stat in stats:
                    if stat.path in wanted:
                        found.setdefault(stat.path, []).append((instant, stat))

    active = state.timeline.completed_writes()
    add(active)
    if wanted - found.keys():
        known = {i.requested for i in active}
        add([i for i in state.history.completed_writes() if i.requested not in known])
    return found


def _lag(
    state: TableState,
    partition: str | None,
    slices: Sequence[FileSlice],
    writers: Mapping[str, list[tuple[Instant, WriteStat]]],
    writes: Sequence[Instant],
    now_ms: int,
) -> Freshness:
    timeline = state.timeline
    logs = [f for s in slices for f in s.logs]
    missing: dict[str, Instant] = {}
    rows: int | None = 0
    for file in logs:
        for instant, stat in writers.get(file.path, ()):
            if not _is_service(state, instant):  # a merged log holds rows of the commits before it
                missing[instant.requested] = instant
            if rows is not None:
                rows = None if stat.num_writes is None else rows + stat.num_writes + (stat.num_deletes or 0)
        if file.path not in writers and state.config.version >= 8:
            rows, missing[file.instant] = None, _unknown(file)
    stale = sorted(missing.values(), key=lambda i: (timeline.time_of(i), i.requested))
    latest = writes[-1] if writes else None
    oldest = stale[0] if stale else None
    complete = latest
    if oldest is not None:
        border = timeline.time_of(oldest)
        before = [i for i in writes if timeline.time_of(i) < border]
        complete = before[-1] if before else None
    return Freshness(
        partition_path=partition,
        latest_commit=latest.requested if latest else None,
        latest_completed=timeline.time_of(latest) if latest else None,
        complete_to=complete.requested if complete else None,
        oldest_missing=oldest.requested if oldest else None,
        lag_s=max(0.0, (now_ms - completed_ms(state, oldest)) / 1000) if oldest else 0.0,
        lag_commits=len(stale),
        file_groups=len(slices),
        stale_groups=sum(1 for s in slices if s.logs),
        log_files=len(logs),
        log_bytes=sum(f.size_bytes for f in logs),
        log_rows=rows,
    )


def _unknown(file: LogFile) -> Instant:
    """The commit of a log file that left both timeline and archive: version 8 on names it in the file's name."""
    return Instant(file.instant, "deltacommit", "COMPLETED", None, "")


def completed_ms(state: TableState, instant: Instant) -> int:
    """When a commit completed, in epoch ms: by its completion time in the timeline's zone, else by its file."""
    info = state.instant_files.get(instant.file_name)
    if state.timeline.layout == 1 and info is not None:
        return info.modified_ms
    try:
        zone = timeline_zone(state, "")
    except TableError:
        if info is not None:
            return info.modified_ms
        zone = UTC
    return instant_millis(state.timeline.time_of(instant), zone)


def changed_rows(
    con: duckdb.DuckDBPyConnection, state: TableState, partition: str | None = None
) -> tuple[int, int, int]:
    """(inserted, updated, deleted): what compacting the logs would change in the read-optimized view. Reads the stale groups."""
    plan = read.plan(state)
    dirty = tuple(s for s in plan.slices if s.logs and (partition is None or s.partition == partition))
    if not dirty:
        return 0, 0, 0
    base = tuple(replace(s, logs=()) for s in dirty if s.base is not None)
    with spelt():
        new_sql = read.to_sql(con, replace(plan, slices=dirty))
        old_sql = read.to_sql(con, replace(plan, mode="read_optimized", slices=base))
    columns = ", ".join(map(quote, state.schema.names))
    # A key may be in several file groups; the name of a row's file begins with the id of its group (hudi-format 3.4).
    key = f"{key_sql(plan.view)} AS key, coalesce(split_part(_hoodie_file_name, '_', 1), '') AS file_id"
    sql = (
        f"SELECT count(*) FILTER (old_row IS NULL), count(*) FILTER (old_row IS NOT NULL AND new_row IS NOT NULL "
        f"AND old_row IS DISTINCT FROM new_row), count(*) FILTER (new_row IS NULL) "
        f"FROM (SELECT {key}, {{'v': row({columns})}} AS new_row FROM ({new_sql})) "
        f"FULL JOIN (SELECT {key}, {{'v': row({columns})}} AS old_row FROM ({old_sql})) "
        "USING (key, file_id)"
    )
    inserted, updated, deleted = con.execute(sql).fetchall()[0]
    return inserted, updated, deleted


@dataclass(frozen=True, slots=True)
class Demand:
    """What a read-optimized read asks for: its staleness in seconds at most (None: any), and what to do when it is worse."""

    max_staleness_s: float | None = None
    on_stale: str = ERROR


@dataclass(frozen=True, slots=True)
class LastRead:
    """One read of a table: what it was, up to which commit it is complete, and what its reader should know."""

    path: str
    mode: str
    complete_to: str | None
    lag_s: float = 0.0
    lag_commits: int = 0
    note: str | None = None
    warn: bool = False
    """Whether the read is staler than asked for, and was let through with a warning."""


def demand(text: str | None, on_stale: str | None, properties: Mapping[str, str]) -> Demand:
    """From the arguments of a read, or else the table's properties. SQLError, naming the value, for what is no span of time."""
    limit = text if text is not None else properties.get(MAX_STALENESS)
    choice = on_stale if on_stale is not None else properties.get(ON_STALE, ERROR)
    try:
        return Demand(None if limit is None else parse_span(limit), parse_choice(choice))
    except ValueError as error:
        raise SQLError(f"max_staleness = {limit!r}, on_stale = {choice!r}: {error}.") from error


def parse_span(text: str) -> float:
    """Seconds of a span of time such as '15 minutes'. ValueError when it is none."""
    return duration(text.strip()) / 1000


def parse_choice(text: str) -> str:
    """One of error, snapshot, warn; ValueError for anything else."""
    if text.lower() not in CHOICES:
        raise ValueError(f"on_stale must be one of {', '.join(CHOICES)}")
    return text.lower()


def plan_read_optimized(state: TableState, as_of: str | None, asked: Demand, now_ms: int) -> tuple[ReadPlan, LastRead]:
    """The plan of a read-optimized read, and what it turned out to be.

    TableError when the view is staler than asked for and `on_stale` is error; with snapshot the plan is the snapshot's, with
    warn a note says it. A read as of an instant has no staleness to speak of, so `asked` must not limit it: SQLError.
    """
    if as_of is not None:
        if asked.max_staleness_s is not None:
            raise SQLError(f"{state.path}: as_of and max_staleness: give one of them; the past does not grow stale.")
        return read.plan(state, as_of, "read_optimized"), LastRead(state.path, "read_optimized", None)
    plan = read.plan(state, None, "read_optimized")
    if not any(isinstance(f, LogFile) for f in state.files):
        newest = next((i for i in reversed(state.timeline.completed_writes()) if not _is_service(state, i)), None)
        return plan, LastRead(state.path, "read_optimized", newest.requested if newest else None)
    [lag] = freshness(state, now_ms)
    last = LastRead(state.path, "read_optimized", lag.complete_to, lag.lag_s, lag.lag_commits)
    if lag.oldest_missing is None:
        return plan, last
    what = f"{state.path}: the read-optimized view {lag.text}"
    if asked.max_staleness_s is None or lag.lag_s <= asked.max_staleness_s:
        return plan, replace(last, note=f"{what}.")
    limit = f"; at most {lag_text(asked.max_staleness_s)} was asked for"
    if asked.on_stale == SNAPSHOT:
        note = f"{what}{limit}, so the snapshot was read."
        return read.plan(state), LastRead(state.path, "snapshot", lag.latest_commit, note=note)
    if asked.on_stale == WARN:
        note = f"{what}{limit}. CALL run_compaction(op => 'scheduleAndExecute', path => '{state.path}') cures it."
        return plan, replace(last, note=note, warn=True)
    raise TableError(
        f"{what}{limit}. Compact it (CALL run_compaction(op => 'scheduleAndExecute', path => '{state.path}'), or "
        f"lakesql compact {state.path}), read the snapshot, or set {ON_STALE} to snapshot or warn."
    )


SETTINGS: dict[str, Parse] = {MAX_STALENESS: parse_span, ON_STALE: parse_choice}
"""Settings of a connection, and properties of a table."""
