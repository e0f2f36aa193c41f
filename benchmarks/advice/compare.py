"""Predictions against measurements: cells, break-evens, and how far the measurements themselves are to be trusted. Pure.

Noise is taken from the measurements alone. In each round every commit gives one difference between the types for
writing, for the first read and for a further read; what is left of them behind a straight line over the commits scatters, and
this scatter, as a part of what the operation takes, is pooled over all workloads (by its median, so that one disturbed
run does not make a tie of everything). A compaction is taken to scatter as the commits do.
"""

import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from benchmarks.advice.workloads import DELTAS, Measured, Workload
from lakesql.advice import costs

READS = (0.1, 1.0, 3.0, 10.0, 30.0, 100.0)
KINDS = ("cow", "mor")
PRICES, MEASURE = "prices", "measure"
WITHIN = 0.2
"""A predicted break-even may be off by so much; a measured one that the noise leaves wider open is flat."""


@dataclass(frozen=True, slots=True)
class Result:
    """One workload: the rounds measured for each type, and the workload as each table's timeline tells it.

    own   by the table it was measured with: what `advise --measure` found
    """

    work: Workload
    cow: list[Measured]
    mor: list[Measured]
    seen: dict[str, costs.Workload]
    own: dict[str, costs.Own] = field(default_factory=dict)

    def means(self, reads: float) -> tuple[float, float]:
        return (
            statistics.mean(c.total(reads) for c in self.cow),
            statistics.mean(m.total(reads) for m in self.mor),
        )

    def gap(self, reads: float) -> float:
        """Seconds per commit that Merge-on-Read spared."""
        cow, mor = self.means(reads)
        return cow - mor

    def predictions(self) -> Iterator[tuple[str, str, costs.Workload]]:
        """(from which table, by what, the workload)."""
        for kind, load in self.seen.items():
            yield kind, PRICES, load
        for kind, own in self.own.items():
            yield kind, MEASURE, replace(self.seen[kind], own=own)


@dataclass(frozen=True, slots=True)
class Cell:
    """One workload with its reads, as predicted from the timeline of one of the two tables."""

    width: str
    spread: str
    share: float
    reads_per_write: float
    seen_from: str
    by: str
    cow_measured: float
    mor_measured: float
    cow_predicted: float
    mor_predicted: float
    noise: float

    @property
    def outcome(self) -> str:
        gap = self.cow_measured - self.mor_measured
        if abs(gap) <= self.noise:
            return "tie"
        return "right" if (gap > 0) == (self.cow_predicted > self.mor_predicted) else "wrong"


@dataclass(frozen=True, slots=True)
class BreakEven:
    """Where both types cost the same, measured and predicted."""

    kind: str  # 'reads per write' or 'update share'
    width: str
    spread: str
    at: float  # the update share, or the reads per write
    seen_from: str
    by: str
    measured: float
    low: float
    high: float
    predicted: float | None

    @property
    def error(self) -> float | None:
        return None if self.predicted is None else self.predicted / self.measured - 1

    @property
    def flat(self) -> bool:
        """The noise leaves it open by more than a prediction may be off."""
        return self.low < (1 - WITHIN) * self.measured or self.high > (1 + WITHIN) * self.measured

    @property
    def right(self) -> bool:
        """Within 20 % of the measured one; of a flat one, within what the measurement leaves open."""
        if self.predicted is None:
            return False
        if self.flat:
            return self.low <= self.predicted <= self.high
        return abs(self.predicted / self.measured - 1) <= WITHIN


# ---------------------------------------------------------------- noise


@dataclass(frozen=True, slots=True)
class Noise:
    """Standard deviations of one difference between the types, as parts of what the operation takes."""

    write: float
    first_read: float
    warm_read: float

    def of(self, result: Result, reads: float) -> float:
        """Two standard errors of the gap per commit."""
        both = [*result.cow, *result.mor]
        write = self.write * statistics.mean(statistics.mean(m.writes) for m in both)
        fold = self.write * statistics.mean(m.compaction for m in result.mor)
        if reads < 1:
            commits = 2 * DELTAS
            variance = commits * write**2 + 2 * fold**2
        else:
            commits = DELTAS
            first = self.first_read * statistics.mean(statistics.mean(m.first_reads) for m in both)
            warm = self.warm_read * statistics.mean(statistics.mean(m.warm_reads) for m in both)
            variance = commits * (write**2 + first**2 + (reads - 1) ** 2 * warm**2) + fold**2
        return 2 * float(np.sqrt(variance / len(result.cow))) / commits


def pooled_noise(results: Sequence[Result]) -> Noise:
    def pooled(part: Callable[[Measured], tuple[float, ...]]) -> float:
        found = [
            scatter(np.subtract(part(c), part(m))) / statistics.mean((*part(c), *part(m)))
            for r in results
            for c, m in zip(r.cow, r.mor, strict=True)
        ]
        degrees = DELTAS - 2
        return statistics.median(found) / float(np.sqrt(chi_square_median(degrees) / degrees))

    return Noise(pooled(lambda m: m.writes), pooled(lambda m: m.first_reads), pooled(lambda m: m.warm_reads))


def scatter(values: np.ndarray) -> float:
    """Standard deviation around a straight line."""
    steps = np.arange(len(values))
    rest = values - np.polyval(np.polyfit(steps, values, 1), steps)
    return float(np.sqrt((rest**2).sum() / (len(values) - 2)))


def chi_square_median(degrees: int) -> float:
    """Wilson and Hilferty's approximation; the median of a scatter is below its root mean square."""
    return degrees * (1 - 2 / (9 * degrees)) ** 3


# ---------------------------------------------------------------- cells and break-evens


def cells_of(results: Sequence[Result], prices: costs.Prices, noise: Noise) -> list[Cell]:
    cells = []
    for result, reads in itertools.product(results, READS):
        cow, mor = result.means(reads)
        work = result.work
        for seen, by, load in result.predictions():
            said = costs.cow_costs(load, prices, reads).total, costs.mor_costs(load, prices, reads).total
            open_ = noise.of(result, reads)
            cells.append(Cell(work.width, work.spread, work.share, reads, seen, by, cow, mor, *said, open_))
    return cells


def crossings(
    at: Sequence[float], gaps: Sequence[float], noises: Sequence[float]
) -> Iterator[tuple[float, float, float]]:
    """(where the gap is zero, and between which ends the noise leaves that open), on straight lines between neighbours.

    To each side it is open up to where the gap exceeds the noise; where it never does, to the end of what was measured.
    """
    for i in range(len(at) - 1):
        if (gaps[i] > 0) == (gaps[i + 1] > 0):
            continue
        sign = 1.0 if gaps[i] > 0 else -1.0
        left = [sign * g - n for g, n in zip(gaps, noises, strict=True)]
        right = [-sign * g - n for g, n in zip(gaps, noises, strict=True)]
        low = next((_zero(at, left, k) for k in range(i, -1, -1) if left[k] > 0), at[0])
        high = next((_zero(at, right, k - 1) for k in range(i + 1, len(at)) if right[k] > 0), at[-1])
        yield _zero(at, gaps, i), low, high


def _zero(at: Sequence[float], values: Sequence[float], i: int) -> float:
    """Where the straight line behind point i is zero."""
    a, b = values[i], values[i + 1]
    return at[i] + (a / (a - b) if a != b else 0.5) * (at[i + 1] - at[i])


def lines_of(results: Sequence[Result]) -> Iterator[tuple[str, str, list[Result]]]:
    """The workloads that differ in the update share only, ascending."""
    for width, spread in sorted({(r.work.width, r.work.spread) for r in results}):
        line = [r for r in results if (r.work.width, r.work.spread) == (width, spread)]
        yield width, spread, sorted(line, key=lambda r: r.work.share)


def breakevens_of(results: Sequence[Result], prices: costs.Prices, noise: Noise) -> list[BreakEven]:
    found = []
    for result in results:
        work = result.work
        gaps, noises = [result.gap(r) for r in READS], [noise.of(result, r) for r in READS]
        for ends, (seen, by, load) in itertools.product(crossings(READS, gaps, noises), result.predictions()):
            said = costs.breakeven_reads(load, prices) or None
            found.append(BreakEven("reads per write", work.width, work.spread, work.share, seen, by, *ends, said))
    for (width, spread, line), reads in itertools.product(lines_of(results), READS):
        gaps, noises = [r.gap(reads) for r in line], [noise.of(r, reads) for r in line]
        for ends in crossings([r.work.share for r in line], gaps, noises):
            for seen, by, load in nearest(line, ends[0]).predictions():
                roots = costs.breakeven_shares(load, prices, reads)
                said = min(roots, key=lambda p, at=ends[0]: abs(np.log(p / at)), default=None)  # type: ignore[misc]
                found.append(BreakEven("update share", width, spread, reads, seen, by, *ends, said))
    return found


def nearest(line: Sequence[Result], share: float) -> Result:
    """The workload whose table is asked for this break-even."""
    return min(line, key=lambda r: abs(float(np.log(r.work.share / share))))


def shares_to_insert(results: Sequence[Result], ratio: float) -> list[Workload]:
    """Workloads halfway between neighbours of which one type wins the one and the other the other, if far apart."""
    found = {}
    for (width, spread, line), reads in itertools.product(lines_of(results), READS):
        for a, b in itertools.pairwise(line):
            if (a.gap(reads) > 0) != (b.gap(reads) > 0) and b.work.share > ratio * a.work.share:
                share = float(np.sqrt(a.work.share * b.work.share))
                found[width, spread, share] = Workload(width, spread, share)
    return list(found.values())


def beside_crossings(results: Sequence[Result]) -> list[Result]:
    """The workloads beside a change of the winner, in update share or in reads."""
    found = [r for r in results if len({r.gap(reads) > 0 for reads in READS}) > 1]
    for (_, _, line), reads in itertools.product(lines_of(results), READS):
        for a, b in itertools.pairwise(line):
            if (a.gap(reads) > 0) != (b.gap(reads) > 0):
                found += [a, b]
    return [r for r in results if any(r is one for one in found)]


# ---------------------------------------------------------------- summary


def summary(cells: Sequence[Cell], evens: Sequence[BreakEven], by: str) -> dict[str, float]:
    """The figures of the predictions by one means."""
    cells, evens = [c for c in cells if c.by == by], [e for e in evens if e.by == by]
    outcomes = [c.outcome for c in cells]
    decided = max(1, len(outcomes) - outcomes.count("tie"))
    sharp, flat = [e for e in evens if not e.flat], [e for e in evens if e.flat]
    errors = [abs(e.error) for e in sharp if e.error is not None]
    totals = [abs(p / m - 1) for c in cells for p, m in _pairs(c)]
    return {
        "cells": len(cells),
        "ties": outcomes.count("tie"),
        "right": outcomes.count("right"),
        "wrong": outcomes.count("wrong"),
        "winner_share": outcomes.count("right") / decided,
        "total_error_median": statistics.median(totals) if totals else 0.0,
        "sharp_breakevens": len(sharp),
        "sharp_within_20_percent": sum(e.right for e in sharp) / max(1, len(sharp)),
        "sharp_error_median": statistics.median(errors) if errors else 0.0,
        "sharp_missed": sum(e.predicted is None for e in sharp),
        "flat_breakevens": len(flat),
        "flat_within_open_range": sum(e.right for e in flat) / max(1, len(flat)),
    }


def _pairs(cell: Cell) -> list[tuple[float, float]]:
    return [(cell.cow_predicted, cell.cow_measured), (cell.mor_predicted, cell.mor_measured)]
