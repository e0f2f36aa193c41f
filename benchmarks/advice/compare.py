"""Predictions against measurements: cells, break-evens, and how far the measurements themselves are to be trusted. Pure.

The rules, which were stated before the runs they judge:

- Seconds of an operation are the median over the rounds, commit by commit. From these follow the cost of both types at any
  reads per write, and where both cost the same.
- A **break-even in reads per write** is where the measured gap of a workload is zero: one division from one read per commit
  on; below, on the straight line between 0.1 and 1 reads. A **break-even in update share** is where the straight line
  between the measured gaps of neighbouring shares (at most APART times each other) is zero.
- Its noise is found by drawing the rounds again (both types together, each operation of each commit by itself) DRAWS times. Few
  rounds scatter less among themselves than the truth does, so deviations are widened by sqrt(rounds / (rounds - 1)).
- A break-even is **measurable** when the middle 68 % of these lie within WITHIN (20 %) of the measured value; at least
  ROUNDS_MIN rounds are needed. What is not measurable says nothing about a prediction; its number is reported.
- A prediction is **right** when it is within WITHIN of a measurable break-even. No prediction where there is a break-even is wrong.
- Beside that is told, measurable or not, how many predictions lie **inside** the middle 68 % and the middle 95 %: of predictions
  without any error so many would, since the measured break-even is what scatters. It decides nothing.
- A cell is a **tie** when the measured gap is below two standard errors, pooled over all workloads (`Noise`); ties are
  neither right nor wrong.
"""

import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from benchmarks.advice.workloads import DELTAS, SPARSE_READS, Measured, Workload
from lakesql.advice import costs

READS = (SPARSE_READS, 1.0, 3.0, 10.0, 30.0, 100.0)
KINDS = ("cow", "mor")
PRICES, MEASURE = "prices", "measure"
WITHIN, APART = 0.2, 4.0
ROUNDS_MIN, DRAWS = 3, 1000
_MIDDLE = (15.87, 84.13)
_WIDE = (2.5, 97.5)


@dataclass(frozen=True, slots=True)
class Result:
    """One workload: the rounds measured for each type, and the workload as each table's timeline tells it.

    sparse   seconds per commit of both types with few reads, round by round; there may be fewer rounds of these
    own      by the table it was measured with: what `advise --measure` found
    """

    work: Workload
    cow: list[Measured]
    mor: list[Measured]
    sparse: list[tuple[float, float]]
    seen: dict[str, costs.Workload]
    own: dict[str, costs.Own] = field(default_factory=dict)

    @property
    def rounds(self) -> int:
        return len(self.cow)

    def parts(self) -> np.ndarray:
        """Seconds by type, round and operation: writes, first reads, further reads, compaction."""
        return np.array([[m.parts for m in side] for side in (self.cow, self.mor)])

    def totals(self, reads: float) -> tuple[float, float]:
        """Seconds per commit of both types."""
        if reads < 1:
            cow, mor = np.median(np.array(self.sparse), axis=0).tolist()
        else:
            cow, mor = (np.median(self.parts(), axis=1) @ weights(reads)).tolist()
        return cow, mor

    def gap(self, reads: float) -> float:
        """Seconds per commit that Merge-on-Read spared."""
        cow, mor = self.totals(reads)
        return cow - mor

    def drawn_gaps(self, reads: float, draw: np.random.Generator) -> np.ndarray:
        """The gap with the rounds drawn again, DRAWS times; the same `draw` state draws the same rounds."""
        if reads < 1:
            gaps = -np.diff(np.array(self.sparse), axis=1)
            return np.median(gaps[draw.integers(0, len(gaps), (DRAWS, len(gaps))), 0], axis=1)
        cow, mor = self.parts()
        rounds, operations = cow.shape
        chosen = draw.integers(0, rounds, (DRAWS, rounds, operations))
        of = np.arange(operations)
        gaps: np.ndarray = np.median(cow[chosen, of], axis=1) - np.median(mor[chosen, of], axis=1)
        drawn: np.ndarray = gaps @ weights(reads)
        return drawn

    def predictions(self) -> Iterator[tuple[str, str, costs.Workload]]:
        """(from which table, by what, the workload)."""
        for kind, load in self.seen.items():
            yield kind, PRICES, load
        yield from ((kind, by, load) for kind, by, load in self.measured_predictions() if by == MEASURE)

    def measured_predictions(self) -> Iterator[tuple[str, str, costs.Workload]]:
        """Those of the table that `advise --measure` has looked at."""
        for kind, own in self.own.items():
            yield kind, PRICES, self.seen[kind]
            yield kind, MEASURE, replace(self.seen[kind], own=own)


def weights(reads: float) -> np.ndarray:
    """How much of each operation of `Measured.parts` a commit costs."""
    return np.repeat([1.0, 1.0, reads - 1, 1.0], [DELTAS, DELTAS, DELTAS, 1]) / DELTAS


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
    """Where both types cost the same, measured (with the middle 68 % and 95 % of what the noise makes of it) and predicted."""

    kind: str  # 'reads per write' or 'update share'
    width: str
    spread: str
    at: float  # the update share, or the reads per write
    seen_from: str
    by: str
    measured: float
    low: float
    high: float
    lowest: float
    highest: float
    predicted: float | None

    @property
    def error(self) -> float | None:
        return None if self.predicted is None else self.predicted / self.measured - 1

    @property
    def measurable(self) -> bool:
        return (1 - WITHIN) * self.measured <= self.low and self.high <= (1 + WITHIN) * self.measured

    @property
    def right(self) -> bool:
        return self.error is not None and abs(self.error) <= WITHIN

    @property
    def inside(self) -> bool:
        return self.predicted is not None and self.low <= self.predicted <= self.high

    @property
    def inside_95(self) -> bool:
        return self.predicted is not None and self.lowest <= self.predicted <= self.highest


# ---------------------------------------------------------------- noise of the cells


@dataclass(frozen=True, slots=True)
class Noise:
    """Standard deviations of one difference between the types, as parts of what the operation takes.

    In each round every commit gives one difference for writing, for the first read and for a further read; what is left
    of them behind a straight line over the commits scatters, and this scatter is pooled over all workloads by its
    median, so that one disturbed run does not make a tie of everything. A compaction is taken to scatter as the commits do.
    """

    write: float
    first_read: float
    warm_read: float

    def of(self, result: Result, reads: float) -> float:
        """Two standard errors of the gap per commit."""
        both = [*result.cow, *result.mor]
        write = self.write * statistics.mean(statistics.mean(m.writes) for m in both)
        fold = self.write * statistics.mean(m.compaction for m in result.mor)
        if reads < 1:
            commits, rounds = 2 * DELTAS, len(result.sparse)
            variance = commits * write**2 + 2 * fold**2
        else:
            commits, rounds = DELTAS, result.rounds
            first = self.first_read * statistics.mean(statistics.mean(m.first_reads) for m in both)
            warm = self.warm_read * statistics.mean(statistics.mean(m.warm_reads) for m in both)
            variance = commits * (write**2 + first**2 + (reads - 1) ** 2 * warm**2) + fold**2
        return 2 * float(np.sqrt(variance / rounds)) / commits


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


# ---------------------------------------------------------------- cells


def cells_of(results: Sequence[Result], prices: costs.Prices, noise: Noise) -> list[Cell]:
    cells = []
    for result, reads in itertools.product(results, READS):
        cow, mor = result.totals(reads)
        work = result.work
        for seen, by, load in result.predictions():
            said = costs.cow_costs(load, prices, reads).total, costs.mor_costs(load, prices, reads).total
            open_ = noise.of(result, reads)
            cells.append(Cell(work.width, work.spread, work.share, reads, seen, by, cow, mor, *said, open_))
    return cells


# ---------------------------------------------------------------- break-evens


Ends = tuple[float, float, float, float, float]
"""Measured, and between which ends the middle 68 % and the middle 95 % lie."""


def breakeven_reads(result: Result) -> Ends | None:
    """Reads per write; None where one type is cheaper from 0.1 to 100 reads, or rounds are too few."""
    knee, more = result.gap(1.0), result.gap(2.0)
    if knee > 0:
        if knee <= more or result.rounds < ROUNDS_MIN or (found := 1 + knee / (knee - more)) > READS[-1]:
            return None
        at_one, at_two = (result.drawn_gaps(r, np.random.default_rng(0)) for r in (1.0, 2.0))
        with np.errstate(divide="ignore"):
            drawn = 1 + at_one / (at_one - at_two)
        drawn[(at_one > 0) & (at_one <= at_two)] = np.inf
        return _ends(found, drawn, result.rounds)
    few, rounds = result.gap(SPARSE_READS), min(result.rounds, len(result.sparse))
    if few <= 0 or rounds < ROUNDS_MIN:
        return None
    found = _zero(SPARSE_READS, 1.0, few, knee)
    drawn_few, drawn_knee = (result.drawn_gaps(r, np.random.default_rng(0)) for r in (SPARSE_READS, 1.0))
    return _ends(found, _zero(SPARSE_READS, 1.0, drawn_few, drawn_knee), rounds)


def breakeven_shares(line: Sequence[Result], reads: float) -> Iterator[Ends]:
    """Update shares; `line` differs in the share only, ascending."""
    for a, b in itertools.pairwise(line):
        low, high = a.work.share, b.work.share
        rounds = min(len(r.sparse) if reads < 1 else r.rounds for r in (a, b))
        if (a.gap(reads) > 0) == (b.gap(reads) > 0) or high > APART * low or rounds < ROUNDS_MIN:
            continue
        found = _zero(low, high, a.gap(reads), b.gap(reads))
        drawn = [r.drawn_gaps(reads, np.random.default_rng(number)) for number, r in enumerate((a, b))]
        yield _ends(found, _zero(low, high, *drawn), rounds)


def _zero(low: float, high: float, at_low: float, at_high: float) -> float:
    """Where the straight line through the gaps at low and high is zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return low + np.divide(at_low, np.subtract(at_low, at_high)) * (high - low)


def _ends(found: float, drawn: np.ndarray, rounds: int) -> Ends:
    """What few rounds hide is added."""
    ends = np.percentile(np.nan_to_num(drawn, nan=np.inf, posinf=1e9, neginf=-1e9), (*_MIDDLE, *_WIDE))
    low, high, lowest, highest = (found + (ends - found) * np.sqrt(rounds / (rounds - 1))).tolist()
    return found, min(low, found), max(high, found), min(lowest, found), max(highest, found)


def breakevens_of(results: Sequence[Result], prices: costs.Prices) -> list[BreakEven]:
    found = []
    for result in results:
        work = result.work
        if (ends := breakeven_reads(result)) is not None:
            for seen, by, load in result.measured_predictions():
                said = costs.breakeven_reads(load, prices) or None
                found.append(BreakEven("reads per write", work.width, work.spread, work.share, seen, by, *ends, said))
    for (width, spread, line), reads in itertools.product(lines_of(results), READS):
        for ends in breakeven_shares(line, reads):
            for seen, by, load in nearest(line, ends[0]).measured_predictions():
                roots = costs.breakeven_shares(load, prices, reads)
                said = min(roots, key=lambda p, at=ends[0]: abs(np.log(p / at)), default=None)  # type: ignore[misc]
                found.append(BreakEven("update share", width, spread, reads, seen, by, *ends, said))
    return found


def lines_of(results: Sequence[Result]) -> Iterator[tuple[str, str, list[Result]]]:
    """The workloads that differ in the update share only, ascending."""
    for width, spread in sorted({(r.work.width, r.work.spread) for r in results}):
        line = [r for r in results if (r.work.width, r.work.spread) == (width, spread)]
        yield width, spread, sorted(line, key=lambda r: r.work.share)


def nearest(line: Sequence[Result], share: float) -> Result:
    """The workload whose table is asked for this break-even."""
    return min(line, key=lambda r: abs(float(np.log(r.work.share / share))))


def with_breakeven(results: Sequence[Result]) -> list[Result]:
    """The workloads in which both types win at some reads: those worth further rounds."""
    return [r for r in results if len({r.gap(reads) > 0 for reads in READS}) > 1]


# ---------------------------------------------------------------- summary


def summary(cells: Sequence[Cell], evens: Sequence[BreakEven], by: str) -> dict[str, float]:
    """The figures of the predictions by one means."""
    cells, evens = [c for c in cells if c.by == by], [e for e in evens if e.by == by]
    outcomes = [c.outcome for c in cells]
    decided = max(1, len(outcomes) - outcomes.count("tie"))
    totals = [abs(p / m - 1) for c in cells for p, m in _pairs(c)]
    figures = {
        "cells": len(cells),
        "ties": outcomes.count("tie"),
        "right": outcomes.count("right"),
        "wrong": outcomes.count("wrong"),
        "winner_share": outcomes.count("right") / decided,
        "total_error_median": statistics.median(totals) if totals else 0.0,
    }
    for kind in ("reads per write", "update share"):
        of_kind = [e for e in evens if e.kind == kind]
        sharp = [e for e in of_kind if e.measurable]
        errors = [abs(e.error) for e in sharp if e.error is not None]
        name = kind.replace(" ", "_")
        figures |= {
            f"breakevens_in_{name}": len(of_kind),
            f"measurable_in_{name}": len(sharp),
            f"right_in_{name}": sum(e.right for e in sharp),
            f"error_median_in_{name}": statistics.median(errors) if errors else 0.0,
            f"within_20_percent_in_{name}": sum(e.right for e in of_kind),
            f"inside_68_percent_in_{name}": sum(e.inside for e in of_kind),
            f"inside_95_percent_in_{name}": sum(e.inside_95 for e in of_kind),
        }
    return figures


def _pairs(cell: Cell) -> list[tuple[float, float]]:
    return [(cell.cow_predicted, cell.cow_measured), (cell.mor_predicted, cell.mor_measured)]
