"""`python -m benchmarks.compaction`: the simulation of all patterns and strategies; `--real`: the cost model against
runs; `--speed`: compaction against the Copy-on-Write upsert of the same rows.

The report (Markdown and CSV) goes to benchmarks/report/ and the tables to the terminal. Exit code 1 when a fixed strategy
dominates an adaptive one, when a prediction is off by more than the tolerance, or compaction is slower than its goal.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from benchmarks.compaction import real, speed
from benchmarks.compaction.report import Outcomes, curves_csv, failures, markdown, points_csv
from lakesql.services.adaptive_model import Costs
from lakesql.simulation.patterns import PATTERNS
from lakesql.simulation.strategies import ADAPTIVE, FIXED, adaptive
from lakesql.simulation.world import COMMIT_S, MB, RECORD_BYTES, simulate

REPORT = Path(__file__).parents[1] / "report"
COMMITS, GROUPS, BASE_MB, RECORDS = 200, 36, 32, 30_000


def simulated(patterns: list[str], seed: int) -> dict[str, Outcomes]:
    """Pattern -> strategy -> outcome."""
    strategies = {**FIXED, **{name: adaptive(target) for name, target in ADAPTIVE.items()}}
    found: dict[str, Outcomes] = {}
    for pattern in patterns:
        records = PATTERNS[pattern](np.random.default_rng(seed), COMMITS, GROUPS, RECORDS)
        found[pattern] = {name: simulate(records, BASE_MB * MB, choose, Costs()) for name, choose in strategies.items()}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compaction", description="Compaction strategies.")
    parser.add_argument("--patterns", default=",".join(PATTERNS), help=f"of {', '.join(PATTERNS)}")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--real", action="store_true", help="check the cost model against real tables")
    parser.add_argument("--rows", type=int, default=real.ROWS, help="with --real: rows per file group")
    parser.add_argument(
        "--runs", type=int, default=real.RUNS, help="with --real and --speed: how often each figure is measured"
    )
    parser.add_argument(
        "--speed", action="store_true", help="compaction against the Copy-on-Write upsert of the same rows"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="with --speed: share of the rows that the tables have")
    args = parser.parse_args()
    chosen = args.patterns.split(",")
    if not set(chosen) <= set(PATTERNS):
        parser.error(f"patterns are {', '.join(PATTERNS)}")
    REPORT.mkdir(exist_ok=True)
    if args.real:
        text, wrong = real.checked(args.rows, args.runs)
        (REPORT / "compaction-real.md").write_text(text)
    elif args.speed:
        text, figures, wrong = speed.checked(args.scale, args.runs)
        (REPORT / "compaction-speed.json").write_text(json.dumps(figures, indent=1) + "\n")
        (REPORT / "compaction-speed.md").write_text(text)
    else:
        results = simulated(chosen, args.seed)
        about = (
            f"{COMMITS} commits, one per {COMMIT_S:g} s, {GROUPS} file groups of about {BASE_MB} MB, log records of "
            f"{RECORD_BYTES:,} bytes, seed {args.seed}. One compactor; what it takes says the cost model. `reads`: bytes "
            "a snapshot reads, in units of the base files; `stale`: age of the oldest change that the read-optimized "
            "view lacks. The last columns compare: what the adaptive sweep over its target rewrites where it reads as "
            "much, or is as fresh (between its points; empty outside of them)."
        )
        text, wrong = markdown(about, results), failures(results)
        (REPORT / "compaction.md").write_text(text)
        (REPORT / "compaction-points.csv").write_text(points_csv(results))
        (REPORT / "compaction-curves.csv").write_text(curves_csv(results))
    print(text)
    if wrong:
        raise SystemExit("\n".join(wrong))


if __name__ == "__main__":
    main()
