"""`python -m benchmarks.merge`: every engine and case in a process of its own, round by round, medians to a report.

A round runs all of them once, every second round in reverse order. The report (Markdown and JSON) goes to
benchmarks/report/ and to the terminal. What is merged says `workload`, what is measured `child`.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.merge.child import ENGINES
from benchmarks.merge.report import Measured, markdown
from benchmarks.merge.workload import CASES, FORMAT, prepare

BENCHMARKS = Path(__file__).parents[1]


def child(python: str, engine: str, case: str, *arguments: str) -> dict[str, Any]:
    command = [python, "-m", "benchmarks.merge.child", engine, case, *arguments]
    done = subprocess.run(command, cwd=BENCHMARKS.parent, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{engine} {case} failed:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def workload(folder: Path, rows: int) -> Path:
    """The workload of that many rows below `folder`, made when it is not there."""
    data = folder / f"merge-{rows}"
    done = data / "complete"
    if not done.exists() or done.read_text() != FORMAT:
        shutil.rmtree(data, ignore_errors=True)
        prepare(data, rows)
        done.write_text(FORMAT)
    return data


def run_all(pythons: dict[str, str], cases: list[str], data: Path, runs: int) -> list[Measured]:
    turns = [(engine, case) for case in cases for engine in pythons]
    found: dict[tuple[str, str], list[dict[str, Any]]] = {turn: [] for turn in turns}
    for run in range(runs):
        for engine, case in turns if run % 2 == 0 else reversed(turns):
            work = Path(tempfile.mkdtemp(prefix="work-", dir=data.parent))
            try:
                result = child(pythons[engine], engine, case, "--data", str(data), "--work", str(work))
            finally:
                shutil.rmtree(work)
            found[engine, case].append(result)
            print(
                f"run {run + 1}/{runs}  {case}  {engine:18}  {result['wall_s']:7.3f} s  {result['peak_mb']:6.0f} MB",
                file=sys.stderr,
            )
    return [_medians(engine, case, results) for (engine, case), results in found.items()]


def _medians(engine: str, case: str, results: list[dict[str, Any]]) -> Measured:
    steps = [r.pop("steps") for r in results]
    return Measured(engine, case, _median_of(results), _median_of(steps))


def _median_of(results: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(r[name] for r in results) for name in results[0]}


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.merge", description="MERGE by lakesql and its peers.")
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--engines", default="", help="only engines whose name contains this (several: with commas)")
    parser.add_argument("--cases", default=",".join(CASES), help="of " + ", ".join(CASES))
    parser.add_argument(
        "--ducklake-python", default=sys.executable, help="the Python whose DuckDB has the extension ducklake"
    )
    args = parser.parse_args()
    if shutil.which(args.ducklake_python) is None:
        parser.error(f"there is no program {args.ducklake_python}")
    args.cases = args.cases.split(",")
    args.engines = [n for n in ENGINES if any(part in n for part in args.engines.split(","))]
    if not args.engines or not set(args.cases) <= set(CASES) or args.runs < 1:
        parser.error(f"choose engines of {', '.join(ENGINES)}, cases of {', '.join(CASES)}, and one run or more")
    return args


def main() -> None:
    args = parsed()
    data = workload(BENCHMARKS / "data", args.rows)
    pythons, versions, unavailable = {}, {}, {}
    for engine in args.engines:
        python = args.ducklake_python if engine == "ducklake" else sys.executable
        told = child(python, engine, "prepare", "--data", str(data))
        if "unavailable" in told:
            unavailable[engine] = told["unavailable"]
        else:
            pythons[engine], versions[engine] = python, told["version"]
    if not pythons:
        raise SystemExit(f"nothing to measure: {unavailable}")
    before = os.getloadavg()[0]
    results = run_all(pythons, args.cases, data, args.runs)
    about = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "rows": args.rows,
        "runs": args.runs,
        "cores": os.cpu_count(),
        "load_before": round(before, 2),
        "load_after": round(os.getloadavg()[0], 2),
    }
    text = markdown(about, results, versions, unavailable)
    report = BENCHMARKS / "report"
    report.mkdir(exist_ok=True)
    (report / "merge.md").write_text(text)
    everything = {
        "about": about,
        "versions": versions,
        "unavailable": unavailable,
        "results": list(map(asdict, results)),
    }
    (report / "merge.json").write_text(json.dumps(everything, indent=2) + "\n")
    print(text)


if __name__ == "__main__":
    main()
