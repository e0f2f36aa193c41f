"""`python -m benchmarks.advice`: calibrate, run the grid, compare; report and plot data go to benchmarks/report/advice/.

Each workload of the grid is run on both table types, round by round. From the timeline of each of the two tables the
advice's own facts and formula predict the cost of both types: two predictions per cell. What counts as a tie, and how
break-evens are found in the measurements, says README.md.
"""

import argparse
import csv
import itertools
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import duckdb
import numpy as np

from benchmarks.advice.workloads import DELTAS, Measured, Runner, Workload
from lakesql.advice import calibration, costs
from lakesql.advice.calibrate import CLOCKS, calibrate
from lakesql.advice.facts import row_of, table_facts

REPORT = Path(__file__).parents[1] / "report" / "advice"
SHARES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
QUICK_SHARES = (0.001, 0.01, 0.1, 1.0)
READS = (0.1, 1.0, 3.0, 10.0, 30.0, 100.0)
ONE_ROUND_NOISE = 0.05
"""Assumed where one round leaves nothing to tell the noise from."""
ROWS_PER_GROUP, QUICK_ROWS_PER_GROUP = 8_000, 4_000


@dataclass(frozen=True, slots=True)
class Result:
    """One workload: the rounds measured for each type, and the workload as each table's timeline tells it."""

    work: Workload
    cow: list[Measured]
    mor: list[Measured]
    seen: dict[str, costs.Workload]

    def gaps(self, reads: float) -> list[float]:
        """Seconds per commit that Merge-on-Read spared in each round."""
        return [c.total(reads) - m.total(reads) for c, m in zip(self.cow, self.mor, strict=True)]

    def means(self, reads: float) -> tuple[float, float]:
        return (
            statistics.mean(c.total(reads) for c in self.cow),
            statistics.mean(m.total(reads) for m in self.mor),
        )


@dataclass(frozen=True, slots=True)
class Cell:
    """One workload with its reads, as predicted from the timeline of one of the two tables."""

    width: str
    spread: str
    share: float
    reads_per_write: float
    seen_from: str
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
    measured: float
    low: float
    high: float
    predicted: float | None

    @property
    def error(self) -> float | None:
        return None if self.predicted is None else self.predicted / self.measured - 1


def run_grid(shares: Sequence[float], rows_per_group: int, rounds: int, clock: str) -> list[Result]:
    folder = Path(tempfile.mkdtemp(prefix="lakesql-advice-"))
    grid = list(itertools.product(("narrow", "wide"), ("uniform", "zipf"), shares))
    found: dict[tuple[str, str, float], Result] = {}
    try:
        runners = {w: Runner(folder / w, w, rows_per_group, CLOCKS[clock]) for w in ("narrow", "wide")}
        kept = {w: set((folder / w).iterdir()) for w in runners}
        for turn in range(rounds):
            for number, point in enumerate(grid if turn % 2 == 0 else reversed(grid)):
                work = Workload(*point)
                result = found.setdefault(point, Result(work, [], [], {}))
                measured, tables = runners[work.width].run(work, turn)
                result.cow.append(measured["cow"])
                result.mor.append(measured["mor"])
                if turn == 0:
                    result.seen.update({kind: workload_of(table.state) for kind, table in tables.items()})
                for path in set((folder / work.width).iterdir()) - kept[work.width]:
                    shutil.rmtree(path)
                print(f"round {turn + 1}/{rounds}  {number + 1}/{len(grid)}  {work}", file=sys.stderr)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return list(found.values())


def workload_of(state: object) -> costs.Workload:
    """What the advice makes of a table."""
    with duckdb.connect() as con:
        row = row_of(con, state)  # type: ignore[arg-type]
    assert row is not None
    return table_facts(state).workload(row)  # type: ignore[arg-type]


def pooled_noise(results: Sequence[Result]) -> float:
    """Standard deviation of one round's gap between the types, as a part of their mean cost, pooled over all cells.

    Pooled by the median, so that one disturbed round does not make a tie of everything.
    """
    if len(results[0].cow) < 2:
        return ONE_ROUND_NOISE
    deviations = [statistics.stdev(r.gaps(reads)) / statistics.mean(r.means(reads)) for r in results for reads in READS]
    degrees = len(results[0].cow) - 1
    typical = float(np.sqrt(chi_square_median(degrees) / degrees))  # the median is below the root mean square
    return statistics.median(deviations) / typical


def chi_square_median(degrees: int) -> float:
    """Wilson and Hilferty's approximation."""
    return degrees * (1 - 2 / (9 * degrees)) ** 3


def cells_of(results: Sequence[Result], prices: costs.Prices, noise: float) -> list[Cell]:
    cells = []
    for result, reads, seen in itertools.product(results, READS, ("cow", "mor")):
        cow, mor = result.means(reads)
        load = result.seen[seen]
        cells.append(
            Cell(
                *asdict(result.work).values(),
                reads_per_write=reads,
                seen_from=seen,
                cow_measured=cow,
                mor_measured=mor,
                cow_predicted=costs.cow_costs(load, prices, reads).total,
                mor_predicted=costs.mor_costs(load, prices, reads).total,
                noise=2 * noise * (cow + mor) / 2 / float(np.sqrt(len(result.cow))),
            )
        )
    return cells


def crossings(
    at: Sequence[float], gaps: Sequence[float], noises: Sequence[float]
) -> Iterable[tuple[float, float, float]]:
    """(where the gap is zero, and where gaps larger and smaller by the noise are) between neighbours, on straight lines."""
    for i in range(len(at) - 1):
        if (gaps[i] > 0) == (gaps[i + 1] > 0):
            continue

        def zero(shift: float, i: int = i) -> float:
            a, b = gaps[i] + shift * noises[i], gaps[i + 1] + shift * noises[i + 1]
            part = min(1.0, max(0.0, a / (a - b))) if a != b else 0.5
            return at[i] + part * (at[i + 1] - at[i])

        ends = sorted((zero(1.0), zero(-1.0)))
        yield zero(0.0), ends[0], ends[1]


def breakevens_of(results: Sequence[Result], cells: Sequence[Cell], prices: costs.Prices) -> list[BreakEven]:
    found = []
    noise = {(c.width, c.spread, c.share, c.reads_per_write): c.noise for c in cells}
    for result in results:
        work = result.work
        gaps = [statistics.mean(result.gaps(r)) for r in READS]
        noises = [noise[work.width, work.spread, work.share, r] for r in READS]
        for (measured, low, high), seen in itertools.product(crossings(READS, gaps, noises), ("cow", "mor")):
            predicted = costs.breakeven_reads(result.seen[seen], prices)
            found.append(
                BreakEven(
                    "reads per write", work.width, work.spread, work.share, seen, measured, low, high, predicted or None
                )
            )
    for width, spread, reads in itertools.product(("narrow", "wide"), ("uniform", "zipf"), READS):
        line = sorted(
            (r for r in results if (r.work.width, r.work.spread) == (width, spread)), key=lambda r: r.work.share
        )
        shares = [r.work.share for r in line]
        gaps = [statistics.mean(r.gaps(reads)) for r in line]
        noises = [noise[width, spread, s, reads] for s in shares]
        for (measured, low, high), seen in itertools.product(crossings(shares, gaps, noises), ("cow", "mor")):
            nearest = min(line, key=lambda r: abs(np.log(r.work.share / measured)))
            predicted = costs.breakeven_shares(nearest.seen[seen], prices, reads)
            best = min(predicted, key=lambda p: abs(np.log(p / measured)), default=None)
            found.append(BreakEven("update share", width, spread, reads, seen, measured, low, high, best))
    return found


def within(one: BreakEven) -> bool:
    """The predicted break-even is within 20 % of the measured one, or of what the measurement leaves open."""
    return one.predicted is not None and 0.8 * one.low <= one.predicted <= 1.2 * one.high


def summary(cells: Sequence[Cell], evens: Sequence[BreakEven]) -> dict[str, float]:
    outcomes = [c.outcome for c in cells]
    decided = max(1, len(outcomes) - outcomes.count("tie"))
    errors = [abs(e.error) for e in evens if e.error is not None]
    totals = [abs(p / m - 1) for c in cells for p, m in _pairs(c)]
    return {
        "cells": len(cells),
        "ties": outcomes.count("tie"),
        "right": outcomes.count("right"),
        "wrong": outcomes.count("wrong"),
        "winner_share": outcomes.count("right") / decided,
        "total_error_median": statistics.median(totals),
        "breakevens": len(evens),
        "breakevens_missed": sum(e.predicted is None for e in evens),
        "breakeven_error_median": statistics.median(errors) if errors else 0.0,
        "breakevens_within_20_percent": sum(e.error is not None and abs(e.error) <= 0.2 for e in evens)
        / max(1, len(evens)),
        "breakevens_within_20_percent_and_noise": sum(map(within, evens)) / max(1, len(evens)),
    }


def _pairs(cell: Cell) -> list[tuple[float, float]]:
    return [(cell.cow_predicted, cell.cow_measured), (cell.mor_predicted, cell.mor_measured)]


def markdown(
    about: dict[str, object], numbers: dict[str, float], cells: Sequence[Cell], evens: Sequence[BreakEven]
) -> str:
    text = [", ".join(f"{k} {v}" for k, v in about.items()), "", "| figure | value |", "|---|---:|"]
    text += [f"| {name.replace('_', ' ')} | {value:.3g} |" for name, value in numbers.items()]
    text += ["", "## Cells where the prediction was wrong", ""]
    text += ["| workload | reads per write | seen from | CoW s | MoR s | CoW predicted | MoR predicted | noise |"]
    text += ["|---|---:|---|---:|---:|---:|---:|---:|"]
    text += [
        f"| {Workload(c.width, c.spread, c.share)} | {c.reads_per_write:g} | {c.seen_from} | {c.cow_measured:.3f} | "
        f"{c.mor_measured:.3f} | {c.cow_predicted:.3f} | {c.mor_predicted:.3f} | {c.noise:.3f} |"
        for c in cells
        if c.outcome == "wrong"
    ]
    text += [
        "",
        "## Break-evens",
        "",
        "| of | rows | spread | at | seen from | measured | open by noise | predicted | error |",
    ]
    text += ["|---|---|---|---:|---|---:|---|---:|---:|"]
    for e in evens:
        predicted = "none" if e.predicted is None else f"{e.predicted:.4g}"
        error = "" if e.error is None else f"{e.error:+.0%}"
        text.append(
            f"| {e.kind} | {e.width} | {e.spread} | {e.at:g} | {e.seen_from} | {e.measured:.4g} | {e.low:.4g} - {e.high:.4g} "
            f"| {predicted} | {error} |"
        )
    return "\n".join(text) + "\n"


def write_csv(path: Path, rows: Sequence[dict[str, object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows(rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.advice", description="Check the advice against real runs."
    )
    parser.add_argument("--rounds", type=int, help="how often every workload is run; default 2, quick 1")
    parser.add_argument(
        "--quick", action="store_true", help="4 instead of 7 update shares, tables half as large, one round"
    )
    parser.add_argument(
        "--clock", choices=CLOCKS, default="wall", help="cpu: CPU time of all threads, on a busy machine"
    )
    parser.add_argument("--report", type=Path, default=REPORT)
    args = parser.parse_args()
    rounds = args.rounds or (1 if args.quick else 2)
    started, load = time.perf_counter(), os.getloadavg()[0]
    print("calibrating", file=sys.stderr)
    record = calibrate(args.clock)
    rows = QUICK_ROWS_PER_GROUP if args.quick else ROWS_PER_GROUP
    results = run_grid(QUICK_SHARES if args.quick else SHARES, rows, rounds, args.clock)
    noise = pooled_noise(results)
    cells = cells_of(results, record.prices, noise)
    evens = breakevens_of(results, cells, record.prices)
    numbers = summary(cells, evens)
    about = {
        "machine": record.machine, "clock": record.clock, "rounds": rounds, "rows per file group": rows,
        "commits between compactions": DELTAS, "noise of a round": f"{noise:.1%}", "fit error": f"{record.error:.1%}",
        "load before and after": f"{load:.2f}, {os.getloadavg()[0]:.2f}", "minutes": f"{(time.perf_counter() - started) / 60:.1f}",
    }  # fmt: skip
    args.report.mkdir(parents=True, exist_ok=True)
    text = markdown(about, numbers, cells, evens)
    (args.report / "report.md").write_text(text)
    (args.report / "report.json").write_text(json.dumps({"about": about, "summary": numbers}, indent=2) + "\n")
    (args.report / "calibration.json").write_text(calibration.to_json(record))
    write_csv(args.report / "cells.csv", [{**asdict(c), "outcome": c.outcome} for c in cells])
    write_csv(args.report / "breakevens.csv", [{**asdict(e), "error": e.error} for e in evens])
    write_csv(args.report / "curve.csv", [asdict(p) for p in record.curve])
    print(text)


if __name__ == "__main__":
    main()
