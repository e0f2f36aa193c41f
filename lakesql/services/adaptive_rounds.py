"""A round of adaptive compaction on a table: measure, decide, say it; and a write that is told to slow down.

Planning and running are `compaction` and `log_compaction`, which ask `decided` when the strategy is adaptive.
"""

import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import tzinfo

import duckdb

from lakesql.services.adaptive import Decision, decide
from lakesql.services.adaptive_facts import measure
from lakesql.services.adaptive_model import Facts, Target, amplification
from lakesql.services.adaptive_reads import observed, reads_per_s
from lakesql.services.adaptive_settings import NOTE, OFF, AdaptiveConfig, parse_config
from lakesql.services.adaptive_words import decision_text
from lakesql.services.freshness import lag_text
from lakesql.storage import Storage
from lakesql.table.clock import Clock, timeline_zone
from lakesql.table.state import TableState, load
from lakesql.write.settings import parse_settings

_POLL_S = 0.5


def decided(
    state: TableState,
    settings: Mapping[str, str],
    now_ms: int,
    zone: tzinfo,
    partitions: Collection[str] | None = None,
) -> tuple[Decision, str]:
    """What to compact now, of all partitions or these, and the decision in words."""
    config = parse_config(settings)
    facts = measured(state, config, now_ms, zone)
    if partitions is not None:
        wanted = {p.strip("/") for p in partitions}
        facts = replace(facts, groups=tuple(g for g in facts.groups if g.key[0] in wanted))
    decision = decide(facts, config.target)
    return decision, decision_text(decision, facts, config.target)


def measured(state: TableState, config: AdaptiveConfig, now_ms: int, zone: tzinfo) -> Facts:
    """The facts that the settings ask for."""
    reads = reads_per_s(state.storage, now_ms) if observed(state.config.properties) else None
    return measure(state, now_ms, zone, period_s=config.period_s, log_read_cost=config.log_read_cost, reads_per_s=reads)


def after_write(
    con: duckdb.DuckDBPyConnection,  # noqa: ARG001
    storage: Storage,
    settings: Mapping[str, str],
    clock: Clock,
) -> list[str]:
    """Where the settings ask for backpressure: a note when a target is missed, or a wait until compaction has met it."""
    if settings.get("hoodie.table.type") != "MERGE_ON_READ":
        return []
    config = parse_config(settings)
    if config.backpressure == OFF:
        return []
    began = time.monotonic()
    first = missed = _missed(storage, config, settings, clock())
    if first is None:
        return []
    if config.backpressure == NOTE:
        return [f"Compaction is behind: {first}."]
    limit = float(config.backpressure)
    while missed is not None and (left := limit - (time.monotonic() - began)) > 0:
        time.sleep(min(_POLL_S, left))
        missed = _missed(storage, config, settings, clock())
    waited = time.monotonic() - began
    if missed is None:
        return [f"The write waited {waited:.1f} s for compaction: {first}."]
    return [
        f"The write waited {waited:.1f} s for compaction in vain: {missed}. Is `lakesql compact --adaptive` running?"
    ]


def _missed(storage: Storage, config: AdaptiveConfig, settings: Mapping[str, str], now_ms: int) -> str | None:
    """Which target the table misses now, in words."""
    state = load(storage)
    zone = timeline_zone(state, parse_settings(settings).timezone)
    facts = measured(state, config, now_ms, zone)
    return missed_text(facts, config.target.or_default(facts.reads_per_s is not None))


def missed_text(facts: Facts, target: Target) -> str | None:
    """Which target the facts miss, in words; None when none is missed."""
    reads = amplification(facts.groups, facts.costs)
    if target.read_amplification is not None and reads > target.read_amplification:
        return f"a snapshot reads {reads:.2f} times the base files, target {target.read_amplification:g}"
    oldest = max((g.age_s for g in facts.groups), default=0.0)
    if target.staleness_s is not None and oldest > target.staleness_s:
        return f"the read-optimized view is {lag_text(oldest)} behind, target {lag_text(target.staleness_s)}"
    return None
