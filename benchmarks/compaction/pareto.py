"""Who dominates whom, and what one strategy would rewrite where another one stands. Pure.

Three things count: bytes rewritten, mean read amplification, mean staleness of the read-optimized view. One outcome
dominates another when it is worse in none of them and better in one. No tolerance is granted.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

from lakesql.simulation.world import Outcome


def what_counts(one: Outcome) -> tuple[float, float, float]:
    return one.rewritten, one.read_mean, one.stale_mean


def dominates(one: Outcome, other: Outcome) -> bool:
    a, b = what_counts(one), what_counts(other)
    return a != b and all(x <= y for x, y in zip(a, b, strict=True))


def dominated(candidates: Mapping[str, Outcome], others: Mapping[str, Outcome]) -> dict[str, list[str]]:
    """Each candidate that somebody dominates -> who does."""
    found = {name: [o for o in others if dominates(others[o], one)] for name, one in candidates.items()}
    return {name: by for name, by in found.items() if by}


def bytes_at(front: Sequence[Outcome], measure: Callable[[Outcome], float], value: float) -> float | None:
    """Bytes that a sweep rewrites where its measure has this value, between its points; None outside of them."""
    points = sorted((measure(o), float(o.rewritten)) for o in front)
    for (low, more), (high, less) in itertools.pairwise(points):
        if low <= value <= high and high > low:
            share = (value - low) / (high - low)
            return math.exp(math.log(max(more, 1)) * (1 - share) + math.log(max(less, 1)) * share)
    return None


def reading(one: Outcome) -> float:
    """What a snapshot reads beyond the base files, on a scale on which halving is one step."""
    return math.log(one.read_mean - 1)


def staleness(one: Outcome) -> float:
    """Mean staleness on the same scale."""
    return math.log(max(one.stale_mean, 1.0))
