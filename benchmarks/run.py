"""`make bench`, `python -m benchmarks.run`: lakesql beside its peers on the same data, interleaved; the report with a plot.

Every measurement is a process of its own (`child`). A round measures all cases once, every second round in reverse order, so
that no side profits from its place. In the first round all values of a result are checked, later its number of rows. What is
measured says `cases`, what is wanted `targets`.

A run of everything writes benchmarks/report.md, report.svg and report.json; one of a part (`--only`, `--small`) writes them
below benchmarks/report/.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import report, workload
from benchmarks.cases import CASES, ENGINES, Case
from benchmarks.targets import judged

HERE = Path(__file__).parent
ROWS, RUNS = 5_000_000, 5
SMALL_ROWS, SMALL_RUNS = 200_000, 3
DUCKLAKE_PYTHON = HERE.parent / ".venv-ducklake" / "bin" / "python"
TIMEOUT_S = 900


@dataclass
class Bench:
    """A run: where data is, which Python an engine has, and what was found."""

    rows: int
    folder: Path = HERE / "data"
    ducklake_python: str = sys.executable
    quiet: bool = False
    versions: dict[str, str] = field(default_factory=dict)
    unavailable: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    results: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def data(self, case: Case) -> Path:
        return workload.prepare(self.folder, self.rows * case.scale)

    def child(self, engine: str, *arguments: str, cache: Path | None = None) -> dict[str, Any]:
        python = self.ducklake_python if engine == "ducklake" else sys.executable
        command = [python, "-m", "benchmarks.child", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
        if cache is not None:  # nothing that an earlier process found out may help
            environment["XDG_CACHE_HOME"] = str(cache)
        done = subprocess.run(
            command, cwd=HERE.parent, capture_output=True, text=True, check=False, env=environment, timeout=TIMEOUT_S
        )
        if done.returncode:
            raise ChildFailed(done.stderr.strip() or f"exit code {done.returncode}")
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    def prepare(self, cases: Sequence[Case]) -> list[Case]:
        """Make what the cases need; those that can run here."""
        for engine in ENGINES:
            if any(case.engine == engine for case in cases):
                told = self.child(engine, "version", engine)
                (self.versions if "version" in told else self.unavailable)[engine] = next(iter(told.values()))
        able = [case for case in cases if case.engine in self.versions]
        for case in able:
            for engine, table in case.tables:
                if engine in self.versions or engine == "lakesql":
                    self.child(engine, "prepare", engine, table, "--data", str(self.data(case)))
            self.data(case)
        return able

    def measure(self, cases: Sequence[Case], runs: int) -> None:
        for turn in range(runs):
            for case in cases if turn % 2 == 0 else reversed(cases):
                if case.rounds > turn and case.name not in self.failed:
                    self._once(case, turn == 0)
                    self._tell(case, f"run {turn + 1}/{runs}")

    def _once(self, case: Case, thorough: bool) -> None:
        work = Path(tempfile.mkdtemp(prefix="work-", dir=self.folder))
        arguments = ["measure", case.name, "--data", str(self.data(case)), "--work", str(work)]
        try:
            found = self.child(case.engine, *arguments, *(["--thorough"] if thorough else []), cache=work / "cache")
        except (ChildFailed, subprocess.TimeoutExpired) as error:
            self.failed[case.name] = str(error).strip().splitlines()[-1]
            with (self.folder / "failed.log").open("a") as log:
                log.write(f"{case.name}\n{error}\n\n")
            self.results.pop(case.name, None)
        else:
            self.results.setdefault(case.name, []).append(found)
        finally:
            shutil.rmtree(work)

    def _tell(self, case: Case, when: str) -> None:
        if self.quiet:
            return
        if case.name in self.failed:
            print(f"{when}  {case.name:34}  failed: {self.failed[case.name]}", file=sys.stderr)
        else:
            last = self.results[case.name][-1]
            print(
                f"{when}  {case.name:34}  {last['wall_s']:8.3f} s  {last['cpu_s']:8.3f} CPU s  {last['peak_mb']:6.0f} MB",
                file=sys.stderr,
            )


class ChildFailed(Exception):
    """A process that measured ended with an error; its text."""


def chosen(only: str, small: bool, spark: bool) -> list[Case]:
    parts = only.split(",")
    return [
        case
        for case in CASES.values()
        if any(part in case.name for part in parts)
        and (case.small if small else case.full)
        and (spark or case.engine != "hudi-spark")
    ]


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description="Measure lakesql beside its peers.")
    parser.add_argument("--rows", type=int, help=f"of the table; default {ROWS:_}")
    parser.add_argument("--runs", type=int, help=f"rounds; default {RUNS}")
    parser.add_argument("--small", action="store_true", help=f"{SMALL_ROWS:_} rows, {SMALL_RUNS} rounds, smaller cases")
    parser.add_argument("--only", default="", help="only cases whose name contains this (several: with commas)")
    parser.add_argument("--no-spark", action="store_true", help="without Apache Hudi on Spark, which takes minutes")
    parser.add_argument("--list", action="store_true", help="list the cases and measure nothing")
    own = str(DUCKLAKE_PYTHON) if DUCKLAKE_PYTHON.exists() else sys.executable
    parser.add_argument("--ducklake-python", default=own, help="the Python whose DuckDB has the extension ducklake")
    args = parser.parse_args()
    args.rows = args.rows or (SMALL_ROWS if args.small else ROWS)
    args.runs = args.runs or (SMALL_RUNS if args.small else RUNS)
    args.cases = chosen(args.only, args.small, not args.no_spark)
    if not args.cases:
        parser.error(f"no case matches {args.only}; there are {', '.join(CASES)}")
    if shutil.which(args.ducklake_python) is None:
        parser.error(f"there is no program {args.ducklake_python}")
    return args


def main() -> None:
    args = parsed()
    if args.list:
        print("\n".join(case.name for case in args.cases))
        return
    reports = HERE / "report"
    reports.mkdir(exist_ok=True)
    bench = Bench(args.rows, ducklake_python=args.ducklake_python)
    cases = bench.prepare(args.cases)
    before = os.getloadavg()[0]
    bench.measure(cases, args.runs)
    about = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "rows": args.rows,
        "runs": args.runs,
        "cores": os.cpu_count(),
        "load_before": round(before, 2),
        "load_after": round(os.getloadavg()[0], 2),
        "versions": bench.versions,
        "unavailable": bench.unavailable,
        "failed": bench.failed,
    }
    whole = not args.only and not args.small
    output = HERE if whole else reports
    text = report.written(output, about, bench.results, reports)
    print(text)
    missed = [j.target.name for j in judged(bench.results) if j.met is False]
    print(f"{len(missed)} targets are not met. The report is {output / 'report.md'}.", file=sys.stderr)
    if bench.failed:
        told = "\n".join(f"{name} failed: {why}" for name, why in bench.failed.items())
        raise SystemExit(f"{told}\nMore in {bench.folder / 'failed.log'}.")


if __name__ == "__main__":
    main()
