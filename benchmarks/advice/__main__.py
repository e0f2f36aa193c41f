"""`python -m benchmarks.advice`: calibrate, run the grid, compare; report and plot data go to benchmarks/report/advice/.

Each workload of the grid is run on both table types; between neighbours of which different types win further update shares
are put in, and what lies beside a crossing is run again. The advice's own facts and formula predict the cost of both types,
with the prices of the machine alone and corrected by `advise --measure`. What counts as a tie, as a break-even and as
noise, says `compare`.
"""

import argparse
import csv
import itertools
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import duckdb

from benchmarks.advice.compare import (
    KINDS,
    MEASURE,
    PRICES,
    BreakEven,
    Cell,
    Noise,
    Result,
    beside_crossings,
    breakevens_of,
    cells_of,
    pooled_noise,
    shares_to_insert,
    summary,
)
from benchmarks.advice.workloads import DELTAS, Runner, Workload
from lakesql.advice import calibration, costs
from lakesql.advice.calibrate import CLOCKS, calibrate
from lakesql.advice.facts import row_of, table_facts
from lakesql.advice.measure import measure
from lakesql.table.state import TableState

REPORT = Path(__file__).parents[1] / "report" / "advice"


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is run."""

    shares: tuple[float, ...]
    rows_per_group: int
    insertions: int  # times that update shares are put between neighbours
    rounds: int  # of the workloads beside a crossing
    apart: float = 1.4  # neighbours with a smaller ratio of update shares are close enough


FULL = Plan((0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0), 25_000, 1, 2)
QUICK = Plan((0.001, 0.01, 0.1, 1.0), 15_000, 1, 1)


class Grid:
    """Tables of both widths, and what was measured with them."""

    def __init__(self, folder: Path, plan: Plan, prices: costs.Prices, clock: str) -> None:
        self._folder, self._prices, self._clock = folder, prices, clock
        self._runners = {w: Runner(folder / w, w, plan.rows_per_group, CLOCKS[clock]) for w in ("narrow", "wide")}
        self._kept = {w: set((folder / w).iterdir()) for w in self._runners}
        self._found: dict[Workload, Result] = {}
        self._con = duckdb.connect()
        self._plan = plan

    def run(self) -> list[Result]:
        grid = itertools.product(self._runners, ("uniform", "zipf"), self._plan.shares)
        self._all(Workload(*point) for point in grid)
        for _ in range(self._plan.insertions):
            self._all(shares_to_insert(self.results, self._plan.apart))
        for _ in range(self._plan.rounds - 1):
            self._all(r.work for r in beside_crossings(self.results))
        return self.results

    @property
    def results(self) -> list[Result]:
        return list(self._found.values())

    def _all(self, works: Iterable[Workload]) -> None:
        for work in list(works):
            self._one(work)

    def _one(self, work: Workload) -> None:
        """One more round. Every other workload is measured from its Merge-on-Read table, the others from Copy-on-Write."""
        result = self._found.setdefault(work, Result(work, [], [], {}))
        turn = len(result.cow)
        measured, tables = self._runners[work.width].run(work, turn)
        result.cow.append(measured["cow"])
        result.mor.append(measured["mor"])
        if turn == 0:
            result.seen.update({kind: workload_of(self._con, table.state) for kind, table in tables.items()})
            kind = KINDS[len(self._found) % 2]
            own = measure(self._con.cursor(), tables[kind].state, result.seen[kind], self._prices, self._clock).own
            result.own[kind] = own
        for path in set((self._folder / work.width).iterdir()) - self._kept[work.width]:
            shutil.rmtree(path)
        print(f"workload {len(self._found)}, round {turn + 1}: {work}", file=sys.stderr, flush=True)


def run_grid(plan: Plan, prices: costs.Prices, clock: str) -> list[Result]:
    folder = Path(tempfile.mkdtemp(prefix="lakesql-advice-"))
    try:
        return Grid(folder, plan, prices, clock).run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def workload_of(con: duckdb.DuckDBPyConnection, state: TableState) -> costs.Workload:
    """What the advice makes of a table."""
    row = row_of(con, state)
    assert row is not None
    return table_facts(state).workload(row)


# ---------------------------------------------------------------- report


def markdown(
    about: dict[str, object],
    numbers: dict[str, dict[str, float]],
    cells: Sequence[Cell],
    evens: Sequence[BreakEven],
) -> str:
    text = [", ".join(f"{k} {v}" for k, v in about.items()), ""]
    text += [f"| figure | {' | '.join(numbers)} |", "|---|" + "---:|" * len(numbers)]
    for name in next(iter(numbers.values())):
        text.append(f"| {name.replace('_', ' ')} | {' | '.join(f'{n[name]:.3g}' for n in numbers.values())} |")
    text += ["", "## Cells where the prediction was wrong", ""]
    text += ["| workload | reads per write | seen from | by | CoW s | MoR s | CoW predicted | MoR predicted | noise |"]
    text += ["|---|---:|---|---|---:|---:|---:|---:|---:|"]
    text += [
        f"| {Workload(c.width, c.spread, c.share)} | {c.reads_per_write:g} | {c.seen_from} | {c.by} | {c.cow_measured:.3f} | "
        f"{c.mor_measured:.3f} | {c.cow_predicted:.3f} | {c.mor_predicted:.3f} | {c.noise:.3f} |"
        for c in cells
        if c.outcome == "wrong"
    ]
    text += ["", "## Break-evens", ""]
    text += ["| of | rows | spread | at | seen from | by | measured | open by noise | predicted | error | right |"]
    text += ["|---|---|---|---:|---|---|---:|---|---:|---:|---|"]
    for e in evens:
        predicted = "none" if e.predicted is None else f"{e.predicted:.4g}"
        error = "" if e.error is None else f"{e.error:+.0%}"
        text.append(
            f"| {e.kind} | {e.width} | {e.spread} | {e.at:.3g} | {e.seen_from} | {e.by} | {e.measured:.4g} | {e.low:.4g} - "
            f"{e.high:.4g}{' flat' if e.flat else ''} | {predicted} | {error} | {'yes' if e.right else 'no'} |"
        )
    return "\n".join(text) + "\n"


def write_csv(path: Path, rows: Sequence[dict[str, object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows(rows)


def write_report(
    folder: Path, about: dict[str, object], results: Sequence[Result], record: calibration.Calibration, noise: Noise
) -> str:
    cells = cells_of(results, record.prices, noise)
    evens = breakevens_of(results, record.prices, noise)
    numbers = {by: summary(cells, evens, by) for by in (PRICES, MEASURE)}
    folder.mkdir(parents=True, exist_ok=True)
    text = markdown(about, numbers, cells, evens)
    (folder / "report.md").write_text(text)
    (folder / "report.json").write_text(json.dumps({"about": about, "summary": numbers}, indent=2) + "\n")
    (folder / "calibration.json").write_text(calibration.to_json(record))
    (folder / "runs.json").write_text(json.dumps([asdict(r) for r in results], indent=1) + "\n")
    write_csv(folder / "cells.csv", [{**asdict(c), "outcome": c.outcome} for c in cells])
    write_csv(folder / "breakevens.csv", [{**asdict(e), "error": e.error, "flat": e.flat} for e in evens])
    write_csv(folder / "curve.csv", [asdict(p) for p in record.curve])
    return text


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.advice", description="Check the advice against real runs."
    )
    parser.add_argument(
        "--quick", action="store_true", help="4 instead of 7 update shares, smaller tables, everything once"
    )
    parser.add_argument(
        "--clock", choices=CLOCKS, default="wall", help="cpu: CPU time of all threads, on a busy machine"
    )
    parser.add_argument("--prices", type=Path, help="a calibration record to use instead of calibrating")
    parser.add_argument("--report", type=Path, default=REPORT)
    args = parser.parse_args()
    plan = QUICK if args.quick else FULL
    started, load = time.perf_counter(), os.getloadavg()[0]
    if args.prices:
        record = calibration.from_json(args.prices.read_text(), str(args.prices))
    else:
        print("calibrating", file=sys.stderr)
        record = calibrate(args.clock)
    results = run_grid(plan, record.prices, args.clock)
    noise = pooled_noise(results)
    about = {
        "machine": record.machine, "clock": record.clock, "rows per file group": plan.rows_per_group,
        "commits between compactions": DELTAS, "fit error": f"{record.error:.1%}",
        "scatter of a commit, first read, further read": ", ".join(f"{n:.1%}" for n in asdict(noise).values()),
        "load before and after": f"{load:.2f}, {os.getloadavg()[0]:.2f}", "minutes": f"{(time.perf_counter() - started) / 60:.1f}",
    }  # fmt: skip
    print(write_report(args.report, about, results, record, noise))


if __name__ == "__main__":
    main()
