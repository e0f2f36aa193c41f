"""`python -m benchmarks.run`: every case in a process of its own, round by round, medians and ratios to a report.

A round runs all cases once, every second round in reverse order, so that neither side profits from its place. The
report (Markdown and JSON) goes to benchmarks/report/ and to the terminal. What is measured, and how, says `cases`.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from benchmarks.cases import CASES, QUERIES
from benchmarks.data import prepare

HERE = Path(__file__).parent
QUICK_ROWS, QUICK_RUNS = 1_000_000, 2


@dataclass(frozen=True, slots=True)
class Goal:
    """`figure` of `case` divided by that of `peer` (or alone) has to be at most, or at least, `limit`."""

    text: str
    case: str
    peer: str | None
    figure: str
    limit: float | None  # None: for information
    at_least: bool = False


GOALS = [
    Goal("CoW upsert / hand-written", "cow-upsert-lakesql", "cow-upsert-handwritten", "wall_s", 1.5),
    Goal("CoW MERGE / hand-written", "cow-merge-lakesql", "cow-upsert-handwritten", "wall_s", 1.5),
    Goal("CoW upsert / deltalake merge", "cow-upsert-lakesql", "cow-merge-deltalake", "wall_s", None),
    Goal("hand-written CoW / MoR upsert", "cow-upsert-handwritten", "mor-upsert-lakesql", "wall_s", 5, at_least=True),
    Goal("hand-written CoW / MoR MERGE", "cow-upsert-handwritten", "mor-merge-lakesql", "wall_s", 5, at_least=True),
    *(Goal(f"CoW read {q} / read_parquet", f"cow-{q}-lakesql", f"cow-{q}-parquet", "wall_s", 1.1) for q in QUERIES),
    *(
        Goal(f"MoR read {q}, warm / base files only", f"mor-{q}-lakesql", f"mor-{q}-parquet", "wall_s", None)
        for q in QUERIES
    ),
    Goal("MoR read sum, first / base files only", "mor-sum-lakesql", "mor-sum-parquet", "first_s", None),
    *(
        Goal(
            f"MoR, 20 % of files dirty, {q}, {when} / base files only",
            f"fifth-{q}-{case}",
            f"fifth-{q}-parquet",
            figure,
            limit,
        )
        for q in QUERIES
        for when, case, figure, limit in (
            ("warm", "lakesql", "wall_s", 1.25),
            ("first", "lakesql", "first_s", 2),
            ("first, after another process", "lakesql-again", "first_s", 2),
        )
    ),
    Goal("last of 20 commits / its files", "incremental-lakesql", "incremental-parquet", "wall_s", 1.2),
    Goal("peak MB of CoW upsert", "cow-upsert-lakesql", None, "peak_mb", 1024),
    Goal("peak MB of CoW upsert, memory_limit 512MB", "cow-upsert-512MB", None, "peak_mb", 1024),
    Goal("peak MB of bulk_insert, memory_limit 512MB", "bulk-insert-512MB", None, "peak_mb", 1024),
]


def run_case(name: str, root: Path) -> dict[str, float]:
    work = Path(tempfile.mkdtemp(prefix="work-", dir=root.parent))
    try:
        command = [sys.executable, "-m", "benchmarks.cases", name, "--data", str(root), "--work", str(work)]
        done = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{name} failed:\n{done.stderr}")
        result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return result
    finally:
        shutil.rmtree(work)


def run_all(names: list[str], root: Path, runs: int) -> dict[str, dict[str, float]]:
    """Medians by case."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for turn in range(runs):
        for name in names if turn % 2 == 0 else reversed(names):
            result = run_case(name, root)
            found[name].append(result)
            print(
                f"run {turn + 1}/{runs}  {name:24}  {result['wall_s']:7.3f} s  {result['peak_mb']:6.0f} MB",
                file=sys.stderr,
            )
    return {
        name: {figure: statistics.median(r[figure] for r in results) for figure in results[0]}
        for name, results in found.items()
    }


def machine(rows: int, runs: int, load: tuple[float, float]) -> dict[str, object]:
    packages = ("lakesql", "duckdb", "pyarrow", "deltalake")
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "rows": rows,
        "runs": runs,
        "cores": os.cpu_count(),
        "load_before": round(load[0], 2),
        "load_after": round(load[1], 2),
        "versions": {p: version(p) for p in packages},
    }


def judged(results: dict[str, dict[str, float]]) -> list[dict[str, object]]:
    lines: list[dict[str, object]] = []
    for goal in GOALS:
        if goal.case not in results or (goal.peer is not None and goal.peer not in results):
            continue
        value = results[goal.case][goal.figure] / (results[goal.peer][goal.figure] if goal.peer else 1)
        met = None if goal.limit is None else (value >= goal.limit if goal.at_least else value <= goal.limit)
        target = "" if goal.limit is None else f"{'>=' if goal.at_least else '<='} {goal.limit:g}"
        lines.append({"goal": goal.text, "value": value, "target": target, "met": met})
    return lines


def markdown(about: dict[str, object], results: dict[str, dict[str, float]], goals: list[dict[str, object]]) -> str:
    versions = ", ".join(f"{k} {v}" for k, v in dict(about["versions"]).items())  # type: ignore[call-overload]
    text = [
        f"{about['rows']:,} rows, median of {about['runs']} runs, {about['cores']} cores, load average "
        f"{about['load_before']} before and {about['load_after']} after, {about['time']}; {versions}.",
        "",
        "| case | first call s | wall s | CPU s | peak MB |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, r in results.items():
        text.append(f"| {name} | {r['first_s']:.3f} | {r['wall_s']:.3f} | {r['cpu_s']:.3f} | {r['peak_mb']:.0f} |")
    text += ["", "| ratio or figure | value | target | met |", "|---|---:|---:|---|"]
    for line in goals:
        met = {True: "yes", False: "**no**", None: ""}[line["met"]]  # type: ignore[index]
        text.append(f"| {line['goal']} | {line['value']:.2f} | {line['target']} | {met} |")
    return "\n".join(text) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description="Measure lakesql against its peers.")
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROWS:,} rows, {QUICK_RUNS} runs")
    parser.add_argument("--only", default="", help="only cases whose name contains this text (several: with commas)")
    args = parser.parse_args()
    rows, runs = (QUICK_ROWS, QUICK_RUNS) if args.quick else (args.rows, args.runs)
    names = [n for n in CASES if any(part in n for part in args.only.split(","))]
    if not names:
        raise SystemExit(f"no case matches {args.only}; there are {', '.join(CASES)}")
    root = prepare(HERE / "data", rows)
    before = os.getloadavg()[0]
    results = run_all(names, root, runs)
    about = machine(rows, runs, (before, os.getloadavg()[0]))
    goals = judged(results)
    text = markdown(about, results, goals)
    report = HERE / "report"
    report.mkdir(exist_ok=True)
    (report / "report.md").write_text(text)
    (report / "report.json").write_text(
        json.dumps({"about": about, "results": results, "goals": goals}, indent=2) + "\n"
    )
    print(text)


if __name__ == "__main__":
    main()
