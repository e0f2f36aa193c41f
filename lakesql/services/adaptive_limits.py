"""Whether adaptive compaction can meet its targets while writes go on as they do, and what would be enough. Pure."""

import math
from dataclasses import dataclass, replace

from lakesql.services.adaptive_model import Facts, Target

_MARGIN = 1.25
_RELAX_MAX = 10_000.0
_BUDGETS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)


@dataclass(frozen=True)
class Shortfall:
    """Why the targets cannot be met: the share of time that they need, and what would be enough instead."""

    needed: float
    budget: float | None
    """A budget that is enough; None when no share of one runner's time is."""
    targets: Target | None
    """Targets that the present budget is enough for; with `together` those that go with the budget above."""
    together: bool = False


def needed_share(facts: Facts, target: Target) -> float:
    """The share of time that compaction needs to keep the targets while writes go on as they do.

    The logs that the read amplification allows are spread over the groups as the square root of rate times cost, which
    takes least time; a staleness target compacts every group once per its span, or as often as the group is written.
    """
    costs = facts.costs
    written = [g for g in facts.groups if g.rate > 0]
    total = sum(g.rate for g in written)
    if not written:
        return 0.0
    spent = [costs.factor * (costs.group_s + max(g.written, 1) * costs.base_byte_s) for g in written]
    often = [0.0] * len(written)
    if target.read_amplification is not None:
        base = sum(g.written for g in facts.groups)
        room = (target.read_amplification - 1) * base / costs.log_read - total * facts.ahead_s
        if room <= 0:
            return math.inf
        roots = sum(math.sqrt(g.rate * c) for g, c in zip(written, spent, strict=True))
        often = [math.sqrt(g.rate / c) * roots / room for g, c in zip(written, spent, strict=True)]
    if target.staleness_s is not None:
        span = target.staleness_s - facts.ahead_s
        if span <= 0:
            return math.inf
        often = [max(o, min(1 / span, g.touches)) for o, g in zip(often, written, strict=True)]
    plans = min(sum(often), 1 / facts.period_s if facts.period_s else math.inf)
    work = sum(o * c for o, c in zip(often, spent, strict=True))
    return work + total * costs.log_byte_s * costs.factor + plans * costs.planning


def shortfall(facts: Facts, target: Target) -> Shortfall | None:
    """Why the targets cannot be met with the budget, None when they can."""
    if target.read_amplification is None and target.staleness_s is None:
        return None
    needed = needed_share(facts, target)
    if needed <= target.budget:
        return None
    enough = math.ceil(needed * _MARGIN * 100) / 100 if math.isfinite(needed) else math.inf
    targets = _affordable(facts, target)
    if enough <= 1 or targets is not None:
        return Shortfall(needed, enough if enough <= 1 else None, targets)
    for budget in (b for b in _BUDGETS if b > target.budget):
        if (both := _affordable(facts, replace(target, budget=budget))) is not None:
            return Shortfall(needed, budget, both, together=True)
    return Shortfall(needed, None, None)


def relaxed(target: Target, by: float) -> Target:
    """The targets, so many times as loose."""
    amp, span = target.read_amplification, target.staleness_s
    return replace(
        target,
        read_amplification=None if amp is None else 1 + (amp - 1) * by,
        staleness_s=None if span is None else span * by,
    )


def _affordable(facts: Facts, target: Target) -> Target | None:
    """The tightest targets, all relaxed alike, that the budget is enough for with a margin; None when none is."""

    def affordable(by: float) -> bool:
        return needed_share(facts, relaxed(target, by)) * _MARGIN <= target.budget

    low, high = 1.0, 2.0
    while not affordable(high):
        low, high = high, high * 2
        if high > _RELAX_MAX:
            return None
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (low, middle) if affordable(middle) else (middle, high)
    loose = relaxed(target, high)
    return replace(
        loose,
        read_amplification=loose.read_amplification and math.ceil(loose.read_amplification * 100) / 100,
        staleness_s=loose.staleness_s and float(math.ceil(loose.staleness_s)),
    )
