"""`python -m benchmarks.advice`: calibrate, run the grid, compare; report and plot data go to benchmarks/report/advice/.

Each workload of the grid is run on both table types; those in which both types win at some reads are run again. The
advice's own facts and formula predict the cost of both types, with the prices of the machine alone and corrected by
`advise --measure`. What counts as a tie, as a break-even and as noise, says `compare`.
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
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import duckdb

import lakesql
from benchmarks.advice.compare import (
    KINDS,
    MEASURE,
    PRICES,
    BreakEven,
    Cell,
    Noise,
    Result,
    breakevens_of,
    cells_of,
    pooled_noise,
    summary,
    with_breakeven,
)
from benchmarks.advice.workloads import DELTAS, Runner, Workload
from lakesql.advice import calibration, costs
from lakesql.advice.apart import KEEPING, keeps_memory
from lakesql.advice.calibrate import CLOCKS, calibrate
from lakesql.advice.facts import row_of, table_facts
from lakesql.advice.measure import measure
from lakesql.table.state import TableState

REPORT = Path(__file__).parents[1] / "report" / "advice"
RUNS = "runs.json"


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is run."""

    shares: tuple[float, ...]
    rows_per_group: int
    rounds: int  # of the workloads with a break-even
    widths: tuple[str, ...] = ("narrow", "wide")


FULL = Plan((0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0), 60_000, 8)
QUICK = Plan((0.001, 0.01, 0.1, 1.0), 25_000, 8)


class Grid:
    """Tables of both widths, and what was measured with them."""

    def __init__(self, folder: Path, plan: Plan, prices: costs.Prices, clock: str, seen: Path) -> None:
        self._folder, self._prices, self._clock, self._seen = folder, prices, clock, seen
        self._runners = {w: Runner(folder / w, w, plan.rows_per_group, CLOCKS[clock]) for w in plan.widths}
        self._kept = {w: set((folder / w).iterdir()) for w in self._runners}
        self._found: dict[Workload, Result] = {}
        self._con = duckdb.connect()
        self._plan = plan

    def run(self) -> list[Result]:
        for share, spread, width in itertools.product(self._plan.shares, ("uniform", "zipf"), self._runners):
            result = self._first(Workload(width, spread, share))
            while with_breakeven([result]) and result.rounds < self._plan.rounds:
                self._again(result)
        return self.results

    @property
    def results(self) -> list[Result]:
        return list(self._found.values())

    def _first(self, work: Workload) -> Result:
        """Every other workload is measured from its Merge-on-Read table, the others from Copy-on-Write."""
        result = self._found[work] = Result(work, [], [], [], {})
        kind = KINDS[len(self._found) % 2]
        tables = self._dense(result)
        result.seen.update({k: workload_of(self._con, table.state) for k, table in tables.items()})
        own = measure(self._con.cursor(), tables[kind].state, result.seen[kind], self._prices, self._clock).own
        result.own[kind] = own
        result.sparse.append(self._runners[work.width].sparse(work, 0))
        self._done(result)
        return result

    def _again(self, result: Result) -> None:
        """One more round; few reads only where they are beside the break-even."""
        self._dense(result)
        if result.gap(1.0) < 0:
            result.sparse.append(self._runners[result.work.width].sparse(result.work, len(result.sparse)))
        self._done(result)

    def _dense(self, result: Result) -> dict[str, lakesql.Table]:
        measured, tables = self._runners[result.work.width].dense(result.work, result.rounds)
        result.cow.append(measured["cow"])
        result.mor.append(measured["mor"])
        return tables

    def _done(self, result: Result) -> None:
        width = result.work.width
        for path in set((self._folder / width).iterdir()) - self._kept[width]:
            shutil.rmtree(path)
        write_runs(self._seen, self.results)
        place = list(self._found).index(result.work) + 1
        print(f"workload {place}, round {result.rounds}: {result.work}", file=sys.stderr, flush=True)


def run_grid(plan: Plan, prices: costs.Prices, clock: str, seen: Path) -> list[Result]:
    """What was measured is written to `seen` after each round, too: a run may take long."""
    folder = Path(tempfile.mkdtemp(prefix="lakesql-advice-"))
    try:
        return Grid(folder, plan, prices, clock, seen).run()
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
    text += [
        "| of | rows | spread | at | seen from | by | measured | middle 68 % | 95 % | predicted | error | right | inside 68 %, 95 % |"
    ]
    text += ["|---|---|---|---:|---|---|---:|---|---|---:|---:|---|---|"]
    for e in evens:
        predicted = "none" if e.predicted is None else f"{e.predicted:.4g}"
        error = "" if e.error is None else f"{e.error:+.0%}"
        verdict = ("yes" if e.right else "no") if e.measurable else "not measurable"
        text.append(
            f"| {e.kind} | {e.width} | {e.spread} | {e.at:.3g} | {e.seen_from} | {e.by} | {e.measured:.4g} | {e.low:.4g} - "
            f"{e.high:.4g} | {e.lowest:.4g} - {e.highest:.4g} | {predicted} | {error} | {verdict} | "
            f"{'yes' if e.inside else 'no'}, {'yes' if e.inside_95 else 'no'} |"
        )
    return "\n".join(text) + "\n"


def write_csv(path: Path, rows: Sequence[dict[str, object]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows(rows)


def write_runs(path: Path, results: Sequence[Result]) -> None:
    path.write_text(json.dumps([asdict(r) for r in results], indent=1) + "\n")


def write_report(
    folder: Path, about: dict[str, object], results: Sequence[Result], record: calibration.Calibration, noise: Noise
) -> str:
    cells = cells_of(results, record.prices, noise)
    evens = breakevens_of(results, record.prices)
    numbers = {by: summary(cells, evens, by) for by in (PRICES, MEASURE)}
    text = markdown(about, numbers, cells, evens)
    (folder / "report.md").write_text(text)
    (folder / "report.json").write_text(json.dumps({"about": about, "summary": numbers}, indent=2) + "\n")
    (folder / "calibration.json").write_text(calibration.to_json(record))
    write_runs(folder / RUNS, results)
    write_csv(folder / "cells.csv", [{**asdict(c), "outcome": c.outcome} for c in cells])
    write_csv(folder / "breakevens.csv", [{**asdict(e), "error": e.error, "measurable": e.measurable} for e in evens])
    write_csv(folder / "curve.csv", [asdict(p) for p in record.curve])
    return text


def _shares(text: str) -> tuple[float, ...]:
    return tuple(map(float, text.split(",")))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.advice", description="Check the advice against real runs."
    )
    parser.add_argument("--quick", action="store_true", help="4 instead of 7 update shares, smaller tables")
    parser.add_argument(
        "--clock", choices=CLOCKS, default="cpu", help="cpu: of all threads, what the work costs; wall: what one waits"
    )
    parser.add_argument("--rows", choices=FULL.widths, help="only narrow or only wide rows")
    parser.add_argument("--shares", type=_shares, help="other update shares, for example 0.001,0.01")
    parser.add_argument("--rounds", type=int, help="of the workloads with a break-even; 8 unless given, 3 at least")
    parser.add_argument("--prices", type=Path, help="a calibration record to use instead of calibrating")
    parser.add_argument("--report", type=Path, default=REPORT)
    args = parser.parse_args()
    plan = QUICK if args.quick else FULL
    plan = replace(plan, widths=(args.rows,) if args.rows else plan.widths, shares=args.shares or plan.shares)
    plan = replace(plan, rounds=args.rounds or plan.rounds)
    started, load = time.perf_counter(), os.getloadavg()[0]
    if args.prices:
        record = calibration.from_json(args.prices.read_text(), str(args.prices))
    else:
        print("calibrating", file=sys.stderr)
        record = calibrate(args.clock)
    args.report.mkdir(parents=True, exist_ok=True)
    results = run_grid(plan, record.prices, args.clock, args.report / RUNS)
    noise = pooled_noise(results)
    about = {
        "machine": record.machine, "clock": record.clock, "rows per file group": plan.rows_per_group,
        "commits between compactions": DELTAS, "fit error": f"{record.error:.1%}",
        "scatter of a commit, first read, further read": ", ".join(f"{n:.1%}" for n in asdict(noise).values()),
        "load before and after": f"{load:.2f}, {os.getloadavg()[0]:.2f}", "minutes": f"{(time.perf_counter() - started) / 60:.1f}",
    }  # fmt: skip
    print(write_report(args.report, about, results, record, noise))


if __name__ == "__main__":
    if not keeps_memory():  # anew, since the allocator looks at the environment when it is loaded
        os.execve(
            sys.executable,
            [sys.executable, "-m", "benchmarks.advice", *sys.argv[1:]],
            {**os.environ, **dict([KEEPING])},
        )
    main()
