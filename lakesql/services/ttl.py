"""Partition TTL: partitions that have not been written for a time, or are older than it, are dropped.

Hudi's strategies (hoodie.partition.ttl.*): KEEP_BY_TIME goes by the newest write of a partition, KEEP_BY_CREATION_TIME by
the instant in its `.hoodie_partition_metadata`. The drop is an ordinary delete_partition: a replacecommit, so that time
travel still sees the rows until cleaning removes the files. A partition written meanwhile is a conflict, not a loss.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import duckdb

from lakesql.errors import TableError
from lakesql.format.properties import parse_properties
from lakesql.format.timeline import instant_millis
from lakesql.storage import Storage
from lakesql.table.clock import Clock, system_clock, timeline_zone
from lakesql.table.state import TableState, load
from lakesql.values import Parse, flag, parsed, size, whole
from lakesql.write import WriteResult, retried, write
from lakesql.write.settings import parse_settings

KEEP_BY_TIME, KEEP_BY_CREATION_TIME = "KEEP_BY_TIME", "KEEP_BY_CREATION_TIME"
STRATEGY = "hoodie.partition.ttl.management.strategy.type"
DAYS = "hoodie.partition.ttl.strategy.days.retain"
_DAY_MS = 86_400_000
_CLASSES = {"KeepByTimeStrategy": KEEP_BY_TIME, "KeepByCreationTimeStrategy": KEEP_BY_CREATION_TIME}


@dataclass(frozen=True, slots=True)
class TtlConfig:
    """Settings of partition TTL."""

    strategy: str = KEEP_BY_TIME
    strategy_class: str = ""
    days: int = -1
    partitions: tuple[str, ...] = ()
    max_partitions: int = 1000
    inline: bool = False


def _strategy(text: str) -> str:
    if text.upper() not in _CLASSES.values():
        raise ValueError(f"must be one of {', '.join(_CLASSES.values())}")
    return text.upper()


def _class(text: str) -> str:
    name = text.rsplit(".", 1)[-1]
    if name not in _CLASSES:
        raise ValueError(f"lakesql knows {', '.join(_CLASSES)}")
    return _CLASSES[name]


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


_BY_FIELD: dict[str, tuple[str, Parse]] = {
    "strategy": (STRATEGY, _strategy),
    "strategy_class": ("hoodie.partition.ttl.strategy.class", _class),
    "days": (DAYS, whole),
    "partitions": ("hoodie.partition.ttl.strategy.partition.selected", _names),
    "max_partitions": ("hoodie.partition.ttl.strategy.max.delete.partitions", size(1)),
    "inline": ("hoodie.partition.ttl.inline", flag),
}
SETTINGS: dict[str, Parse] = dict(_BY_FIELD.values())


def run(
    con: duckdb.DuckDBPyConnection, storage: Storage, settings: Mapping[str, str], clock: Clock = system_clock
) -> tuple[tuple[str, ...], WriteResult | None]:
    """Drop the expired partitions: their paths, and the write that did it; None when there was nothing to drop.

    TableError when no retention is set or the table has no partitions, CommitConflict when one is being written.
    """
    config = parsed(TtlConfig, _BY_FIELD, settings)
    if config.days <= 0:
        raise TableError(
            f"{storage.uri}: how long partitions are kept is not set. Set {DAYS} to a number of days, 1 or more."
        )
    limits = parse_settings(settings)

    def attempt() -> tuple[tuple[str, ...], WriteResult | None]:
        state = load(storage)
        if not state.config.partition_fields:
            raise TableError(f"{state.path}: the table has no partitions, so there is none to expire.")
        found = expired(state, config, limits.timezone, clock)
        if not found:
            return (), None
        nothing = 'SELECT NULL::VARCHAR AS "_hoodie_partition_path" WHERE false'
        result = write(
            con,
            state,
            nothing,
            operation="delete_partition",
            settings=settings,
            partitions=found,
            reads_table=True,
            clock=clock,
        )
        return found, result

    outcome, _ = retried(storage, attempt, lambda: (limits.lock_wait_ms, limits.retries), lambda: settings)
    return outcome


def after_write(
    con: duckdb.DuckDBPyConnection, storage: Storage, settings: Mapping[str, str], clock: Clock = system_clock
) -> list[str]:
    """Inline TTL, when it is on and a retention is set."""
    config = parsed(TtlConfig, _BY_FIELD, settings)
    if not config.inline or config.days <= 0 or not load(storage).config.partition_fields:
        return []
    found, result = run(con, storage, settings, clock)
    return [f"Partition TTL dropped {', '.join(found)}.", *result.notes] if result else []


def expired(state: TableState, config: TtlConfig, timezone: str, clock: Clock) -> tuple[str, ...]:
    """The partitions to drop, by path, at most so many at a time as the settings say."""
    strategy = config.strategy_class or config.strategy
    newest = _last_writes(state)
    chosen = [p for p in sorted(newest) if not config.partitions or p in config.partitions]
    if strategy == KEEP_BY_CREATION_TIME:
        times = {p: created for p in chosen if (created := _created(state, p))}
    else:
        times = {p: newest[p] for p in chosen}
    zone = timeline_zone(state, timezone)
    limit = clock() - config.days * _DAY_MS
    gone = [p for p, time in times.items() if instant_millis(time, zone) < limit]
    return tuple(gone[: config.max_partitions])


def _last_writes(state: TableState) -> dict[str, str]:
    """Partition -> the newest instant that wrote there.

    Hudi looks at base files only. A log is a write as well: in version 8 and 9 it carries its instant, in version 6 the
    commits of the active timeline tell.
    """
    newest: dict[str, str] = {}
    for one in state.slices():
        logs = [f.instant for f in one.logs]
        newest[one.partition] = max(newest.get(one.partition, ""), one.instant, *logs)
    for instant in state.timeline.completed_writes() if state.config.version < 8 else ():
        for partition in state.commit(instant).partition_stats:
            if partition in newest:
                newest[partition] = max(newest[partition], instant.requested)
    return newest


def _created(state: TableState, partition: str) -> str | None:
    """The instant that made a partition."""
    path = f"{partition}/.hoodie_partition_metadata" if partition else ".hoodie_partition_metadata"
    try:
        text = state.storage.read(path).decode("latin-1")
    except FileNotFoundError:
        return None
    return parse_properties(text).get("commitTime")
