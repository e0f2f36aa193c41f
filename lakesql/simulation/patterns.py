"""Write patterns: how many log bytes each commit brings to each file group. Pure and the same in every run."""

from collections.abc import Callable, Mapping

import numpy as np

Pattern = Callable[[np.random.Generator, int, int, int], np.ndarray]
"""(random numbers, commits, groups, records per commit) -> records[commit, group]"""

PARTITIONS = 12


def partition_of(group: int, groups: int) -> int:
    """The number of a group's partition; every partition has equally many."""
    return group * PARTITIONS // groups


def _drawn(rng: np.random.Generator, weights: np.ndarray, amounts: np.ndarray) -> np.ndarray:
    """For each commit its amount of records, spread over the groups by the commit's weights."""
    shares = weights / weights.sum(axis=1, keepdims=True)
    return np.stack([rng.multinomial(n, share) for n, share in zip(amounts, shares, strict=True)])


def uniform(rng: np.random.Generator, commits: int, groups: int, records: int) -> np.ndarray:
    """Updates of random rows."""
    return _drawn(rng, np.ones((commits, groups)), np.full(commits, records))


def zipf(rng: np.random.Generator, commits: int, groups: int, records: int) -> np.ndarray:
    """Few groups get most updates, most groups few; the rarest are not written in most commits."""
    ranks = rng.permutation(groups) + 1.0
    return _drawn(rng, np.tile(ranks**-2.0, (commits, 1)), np.full(commits, records // 2))


def bursts(rng: np.random.Generator, commits: int, groups: int, records: int) -> np.ndarray:
    """A trickle to half of the groups, and every 60 commits ten large commits to all of them."""
    loud = np.arange(commits) % 60 >= 50
    half = rng.permutation(groups) < groups // 2
    weights = np.where(loud[:, None], np.ones(groups), half + 0.001)
    return _drawn(rng, weights, np.where(loud, 4 * records, records // 5))


def late(rng: np.random.Generator, commits: int, groups: int, records: int) -> np.ndarray:
    """Partitions are days: nearly everything goes to the newest day, which moves on, and a little to all days before."""
    day = np.array([partition_of(g, groups) for g in range(groups)])
    newest = np.arange(commits) * PARTITIONS // commits
    weights = np.where(day == newest[:, None], 1.0, np.where(day < newest[:, None], 0.002, 0.0))
    return _drawn(rng, weights, np.full(commits, records // 2))


def hot_partition(rng: np.random.Generator, commits: int, groups: int, records: int) -> np.ndarray:
    """One partition gets 95 % of the updates, the others share the rest."""
    hot = np.array([partition_of(g, groups) == PARTITIONS // 2 for g in range(groups)])
    weights = np.where(hot, 0.95 / hot.sum(), 0.05 / (~hot).sum())
    return _drawn(rng, np.tile(weights, (commits, 1)), np.full(commits, records // 2))


PATTERNS: Mapping[str, Pattern] = {
    "uniform": uniform,
    "zipf": zipf,
    "bursts": bursts,
    "late": late,
    "hot_partition": hot_partition,
}
