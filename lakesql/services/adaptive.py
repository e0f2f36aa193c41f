"""Adaptive compaction: which file groups to compact in this round, and why. Pure decisions from measured facts.

A round looks at every file group's logs and at what the person wants: a snapshot that reads at most so many times the
base files (`read_amplification`), a read-optimized view that is at most so old (`staleness`), compaction at most so much
of the time (`budget`). One score orders the groups: what readers have paid for a group's logs, per byte that compacting
moves. The formulas and where they come from are in docs/services/adaptive.md. The facts are `adaptive_model`, measuring
them `adaptive_facts`, what can be met `adaptive_limits`, running `adaptive_rounds`, words `adaptive_words`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from lakesql.services.adaptive_limits import Shortfall, shortfall
from lakesql.services.adaptive_model import Costs, Facts, Group, Target, amplification, log_bytes

ALONG = 0.5
"""A group with this share of the smallest score that must go goes along: at most 6 % dearer, and the view is fresher."""
WINDOW_S = 600.0
"""The budget is kept in every span of this length; a longer one where a single group takes longer."""
FOLD_FILES_MIN = 2


@dataclass(frozen=True)
class Decision:
    """What a round does. Groups are in the order of their urgency."""

    compact: tuple[Group, ...] = ()
    fold: tuple[Group, ...] = ()
    """Groups whose logs become one log, since there is no time to compact them."""
    stale: int = 0
    """How many are due for the staleness target, for the read amplification, because readers paid for them."""
    amplified: int = 0
    paid: int = 0
    late: int = 0
    """Groups that are due and are left for a later round, for lack of time."""
    seconds: float = 0.0
    allowed_s: float = 0.0
    before: float = 1.0
    after: float = 1.0
    lag_s: float = 0.0
    lag_after_s: float = 0.0
    left: int = 0
    """Groups with logs that the round leaves alone."""
    taken: int = 0
    shortfall: Shortfall | None = None


def score(group: Group, costs: Costs) -> float:
    """What readers paid for the logs of a group, per byte that compacting it moves.

    Logs that grew evenly for `age_s` cost half their present size at each moment of it.
    """
    return costs.log_read * group.log_bytes * max(group.age_s, 1.0) / 2 / max(group.moved, 1)


def allowed_seconds(facts: Facts, budget: float) -> float:
    """Seconds that this round may take: the budget's share of a window, less what compaction took in it already."""
    largest = max((facts.costs.compacting(g) for g in facts.groups if g.log_bytes), default=0.0)
    window = max(WINDOW_S, (largest + facts.costs.planning) / budget)
    used = sum(min(r.seconds, max(0.0, window - r.ago_s)) for r in facts.runs if r.ago_s < window)
    return max(0.0, budget * window - used)


def decide(facts: Facts, target: Target) -> Decision:
    """The decision of one round."""
    target = target.or_default(facts.reads_per_s is not None)
    costs = facts.costs
    free = [g for g in facts.groups if g.log_bytes and not g.taken]
    taken = [g for g in facts.groups if g.log_bytes and g.taken]
    stale = _stale(free, facts, target)
    amplified, along = _amplified(free, taken, facts, target)
    paid = [g for g in free if _readers_paid(g, facts)]
    due = list(dict.fromkeys([*stale, *amplified, *paid]))
    allowed = allowed_seconds(facts, target.budget)
    full, fold, seconds = _fitted(due, stale, along, allowed, facts)
    whole = {g.key for g in full}
    merged = [g for g in due if g.key in whole]
    lags = [g.age_s for g in (*free, *taken)]
    return Decision(
        compact=tuple(full),
        fold=tuple(fold),
        stale=sum(g.key in whole for g in stale),
        amplified=sum(g.key in whole for g in amplified),
        paid=sum(g.key in whole for g in paid),
        late=len(due) - len(merged),
        seconds=seconds,
        allowed_s=allowed,
        before=amplification(facts.groups, costs),
        after=_after(facts, full, fold),
        lag_s=max(lags, default=0.0),
        lag_after_s=max((g.age_s for g in (*free, *taken) if g.key not in whole), default=0.0),
        left=len(free) - len(full) - len(fold),
        taken=len(taken),
        shortfall=shortfall(facts, target),
    )


def _stale(free: Sequence[Group], facts: Facts, target: Target) -> list[Group]:
    """Every group, oldest first, once the oldest would be too old before the next round: the view is as old as its oldest."""
    oldest = max((g.age_s for g in free), default=0.0)
    if target.staleness_s is None or not free or oldest + facts.ahead_s < target.staleness_s:
        return []
    return sorted(free, key=lambda g: -g.age_s)


def _amplified(
    free: Sequence[Group], taken: Sequence[Group], facts: Facts, target: Target
) -> tuple[list[Group], list[Group]]:
    """The groups by score until the target is met up to the next round, and those that go along."""
    if target.read_amplification is None:
        return [], []
    costs = facts.costs
    base = sum(g.written for g in facts.groups)
    bound = (target.read_amplification - 1) * base / costs.log_read
    excess = log_bytes(facts.groups, facts.ahead_s, {g.key for g in taken}) - bound
    if excess <= 0:
        return [], []
    by_score = sorted(free, key=lambda g: -score(g, costs))
    needed: list[Group] = []
    for group in by_score:
        if excess <= 0:
            break
        needed.append(group)
        excess -= group.log_bytes
    least = ALONG * score(needed[-1], costs) if needed else math.inf
    return needed, [g for g in by_score[len(needed) :] if score(g, costs) >= least]


def _readers_paid(group: Group, facts: Facts) -> bool:
    """Whether reads have spent as much time on the logs of a group as compacting it takes."""
    if facts.reads_per_s is None:
        return False
    costs = facts.costs
    per_read = costs.log_read * group.log_bytes / 2 * costs.base_read_s
    return facts.reads_per_s * group.age_s * per_read >= costs.compacting(group)


def _fitted(
    due: Sequence[Group], stale: Sequence[Group], along: Sequence[Group], allowed: float, facts: Facts
) -> tuple[list[Group], list[Group], float]:
    """What fits into the time: (compacted, logs made one, seconds). Groups that go along come last.

    When not everything that is due fits, each group takes the way that gains more per second. Only compaction cures
    staleness, so what is due for that is compacted, oldest first. The first that does not fit ends the compaction of
    others: time is saved up for it, else many small groups would keep a large one waiting for ever.
    """
    costs = facts.costs
    total = costs.planning + sum(costs.compacting(g) for g in due)
    urgent = {g.key for g in stale}
    ways: list[tuple[bool, float, bool, Group]] = [
        (g.key in urgent, g.age_s if g.key in urgent else _gain(g, costs, False), False, g) for g in due
    ]
    scarce = total > allowed
    if scarce and facts.folds:
        ways += [
            (False, _gain(g, costs, True), True, g)
            for g in due
            if g.key not in urgent and g.log_files >= FOLD_FILES_MIN and _gain(g, costs, True) > 0
        ]
    if scarce:
        ways.sort(key=lambda w: (not w[0], -w[1]))
    ways += [(False, 0.0, False, g) for g in along]
    chosen: tuple[list[Group], list[Group]] = ([], [])
    used = 0.0
    done: set[tuple[str, str]] = set()
    saving = False
    for _, _, folds, group in ways:
        took = (costs.folding(group) if folds else costs.compacting(group)) + (0 if chosen[folds] else costs.planning)
        if group.key in done or (saving and not folds):
            continue
        if used + took <= allowed:
            done.add(group.key)
            chosen[folds].append(group)
            used += took
        elif not folds:
            saving = True
    return chosen[0], chosen[1], used


def _gain(group: Group, costs: Costs, folds: bool) -> float:
    """What readers save, per second of work; as in `score`, weighed by how long they have paid."""
    saved = group.log_bytes * ((1 - group.kept_by_folding) if folds else 1.0)
    return saved * max(group.age_s, 1.0) / (costs.folding(group) if folds else costs.compacting(group))


def _after(facts: Facts, full: Sequence[Group], fold: Sequence[Group]) -> float:
    folded = {g.key: round(g.log_bytes * g.kept_by_folding) for g in fold}
    groups = [replace(g, log_bytes=folded.get(g.key, g.log_bytes)) for g in facts.groups if g.base_bytes]
    bare = [g for g in facts.groups if not g.base_bytes]
    return amplification([*groups, *bare], facts.costs, gone=full)
