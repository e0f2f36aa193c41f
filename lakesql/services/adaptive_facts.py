"""Measuring for adaptive compaction: the file groups, the writes and the past compactions of a table, from its timeline.

Sizes come from the listing, rows and times from write stats, durations from the files of the timeline. No data is read.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import tzinfo
from typing import Any

from lakesql.errors import FormatError
from lakesql.format.files import FileSlice
from lakesql.format.metadata import WriteStat
from lakesql.format.timeline import SERVICE_ACTIONS, Instant, instant_file_name, instant_millis
from lakesql.services.adaptive_model import Costs, Facts, Group, Run, measured_factor, weighted_rate
from lakesql.services.freshness import completed_ms, writers_of
from lakesql.table.merge import rule_of
from lakesql.table.state import TableState

MEMORY_S = 1800.0
"""Of two equal writes the one that is older by this much counts 1/e."""
_SPAN_MIN_S = 60.0
_RUNS_SINCE_S = 86_400.0

Key = tuple[str, str]


def measure(
    state: TableState,
    now_ms: int,
    zone: tzinfo,
    *,
    period_s: float = 0.0,
    log_read_cost: float = 1.0,
    reads_per_s: float | None = None,
    costs: Costs | None = None,
) -> Facts:
    """The facts of one round. `costs`: constants of this machine, else those of `Costs`."""
    slices = state.slices()
    runs = past_runs(state, now_ms, zone)
    known = replace(costs or Costs(), log_read=log_read_cost)
    return Facts(
        groups=_groups(state, slices, now_ms, zone),
        runs=runs,
        costs=replace(known, factor=measured_factor(runs, known)),
        period_s=period_s,
        reads_per_s=reads_per_s,
        folds=state.config.version >= 8 and rule_of(state.config, state.path).plain,
    )


def _groups(state: TableState, slices: list[FileSlice], now_ms: int, zone: tzinfo) -> tuple[Group, ...]:
    taken = {*state.pending_compactions, *state.pending_log_compactions, *state.pending_clustering}
    writers = writers_of(state, [s for s in slices if s.logs])
    merged = _merged_logs(state)
    rates = _rates(state, now_ms)
    bases = _base_rows(state, slices)
    groups = []
    for one in slices:
        logs = [f for f in one.logs if (one.partition, f.name) not in merged]
        written = [w for f in one.logs for w in writers.get(f.path, ())]
        rate, touches = rates.get(one.group, (0.0, 0.0))
        groups.append(
            Group(
                key=one.group,
                base_bytes=one.base.size_bytes if one.base is not None else 0,
                log_bytes=sum(f.size_bytes for f in logs),
                log_files=len(logs),
                age_s=_age(state, one, [i for i, _ in written], now_ms, zone),
                rate=rate,
                touches=touches,
                log_rows=_rows([s for f in logs for _, s in writers.get(f.path, ())]),
                base_rows=bases.get(one.base.path) if one.base is not None else None,
                taken=one.group in taken,
            )
        )
    return tuple(groups)


def _age(state: TableState, one: FileSlice, writers: list[Instant], now_ms: int, zone: tzinfo) -> float:
    """Seconds since the oldest commit in a slice's logs completed; 0 without logs."""
    if not one.logs:
        return 0.0
    oldest = min((completed_ms(state, i) for i in writers), default=None)
    if oldest is None:
        oldest = instant_millis(min(f.instant for f in one.logs), zone)
    return max(0.0, (now_ms - oldest) / 1000)


def _rows(stats: list[WriteStat]) -> int | None:
    if any(s.num_writes is None for s in stats):
        return None
    return sum((s.num_writes or 0) + (s.num_deletes or 0) for s in stats)


def _base_rows(state: TableState, slices: list[FileSlice]) -> dict[str, int]:
    """Base file path -> its rows, of files whose commit is in the active timeline."""
    wanted = {s.base.path for s in slices if s.base is not None}
    return {
        stat.path: stat.num_writes
        for instant in state.timeline.completed_writes()
        for stat in _stats(state, instant)
        if stat.path in wanted and stat.num_writes is not None
    }


def _stats(state: TableState, instant: Instant) -> Iterable[WriteStat]:
    return (s for stats in state.commit(instant).partition_stats.values() for s in stats)


def _merged_logs(state: TableState) -> set[Key]:
    """(partition, name) of the logs that a log compaction has merged into another; readers skip their records."""
    found: set[Key] = set()
    for instant in state.timeline.instants:
        if instant.action != "logcompaction" or not instant.is_completed:
            continue
        kept = {(stat.partition_path or "", stat.file_id) for stat in _stats(state, instant)}
        name = instant_file_name(instant.requested, instant.action, "REQUESTED", state.config.layout)
        try:
            plan: Mapping[str, Any] = state.plan(instant, name)
        except FormatError:
            continue  # archived meanwhile, or another engine left no plan: its logs count on
        for operation in plan.get("operations") or []:
            partition = operation["partitionPath"] or ""
            if (partition, operation["fileId"]) in kept:
                found.update((partition, n.rsplit("/", 1)[-1]) for n in operation["deltaFilePaths"] or ())
    return found


def _rates(state: TableState, now_ms: int) -> dict[Key, tuple[float, float]]:
    """Group -> (log bytes, commits) per second, of writes within some MEMORY_S; older ones hardly count."""
    events: dict[Key, list[tuple[float, float]]] = {}
    span = _SPAN_MIN_S
    for instant in state.timeline.completed_writes():
        ago = max(0.0, (now_ms - completed_ms(state, instant)) / 1000)
        if instant.action in SERVICE_ACTIONS or ago > 5 * MEMORY_S:
            continue
        span = max(span, ago)
        for partition, stats in state.commit(instant).partition_stats.items():
            for stat in stats:
                if stat.path and ".log." in stat.path:
                    size = float(stat.total_write_bytes or stat.file_size_in_bytes or 0)
                    events.setdefault((partition, stat.file_id or ""), []).append((ago, size))
    return {
        key: (weighted_rate(of, span, MEMORY_S), weighted_rate([(ago, 1.0) for ago, _ in of], span, MEMORY_S))
        for key, of in events.items()
    }


def past_runs(state: TableState, now_ms: int, zone: tzinfo) -> tuple[Run, ...]:
    """Compactions and log compactions of the last day that the active timeline knows, oldest first."""
    found = []
    for instant in state.timeline.instants:
        if instant.action not in ("compaction", "logcompaction") or not instant.is_completed:
            continue
        ended = completed_ms(state, instant)
        if now_ms - ended > _RUNS_SINCE_S * 1000:
            continue
        stats = list(_stats(state, instant))
        found.append(
            Run(
                ago_s=max(0.0, (now_ms - ended) / 1000),
                seconds=max(0.0, (ended - _started_ms(state, instant, ended, zone)) / 1000),
                groups=len(stats),
                base_bytes=sum(s.file_size_in_bytes or s.total_write_bytes or 0 for s in stats),
                log_bytes=sum(s.total_log_size_compacted or 0 for s in stats),
            )
        )
    return tuple(found)


def _started_ms(state: TableState, instant: Instant, ended: int, zone: tzinfo) -> int:
    """When a compaction began to run: by its inflight file, else when it was requested."""
    requested = instant_millis(instant.requested, zone)
    name = instant_file_name(instant.requested, instant.action, "INFLIGHT", state.config.layout)
    info = state.instant_files.get(name)
    return info.modified_ms if info is not None and requested <= info.modified_ms <= ended else requested
