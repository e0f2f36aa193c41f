"""`python -m benchmarks.guard`: a small run, whose ratios are held against benchmarks/baseline.json; an error when one doubled.

Only ratios to what runs in the same environment (DuckDB, the imports) are compared, and of CPU seconds: those of wall time
double on a machine where anything else runs. What looks doubled is measured up to AGAIN times more, and the smallest counts.
`--write` makes the present ratios, medians of WRITTEN rounds, the baseline.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.cases import CASES
from benchmarks.run import HERE, Bench
from benchmarks.targets import TARGETS, Target

BASELINE = HERE / "baseline.json"
ROWS, AGAIN, WRITTEN = 100_000, 2, 3
TIMES = 2.0
SMALLEST = 0.5  # of less than half of the peer's work a few milliseconds are already the double
_CPU = {"wall_s": "cpu_s", "first_s": "first_cpu_s"}
GUARDED = [t for t in TARGETS if t.guarded]


def measured(folder: Path, targets: Sequence[Target], rounds: int = 1) -> dict[str, float]:
    """Ratio of CPU seconds by target."""
    names = dict.fromkeys(name for t in targets for name in (t.case, t.peer) if name)
    bench = Bench(ROWS, folder, quiet=True)
    cases = bench.prepare([CASES[name] for name in names])
    bench.measure(cases, rounds)
    if bench.failed or bench.unavailable:
        raise SystemExit(f"not measured: {bench.failed or bench.unavailable}")
    return {t.name: _middle(bench, t.case, t.figure) / _middle(bench, str(t.peer), t.figure) for t in targets}


def _middle(bench: Bench, case: str, figure: str) -> float:
    return statistics.median(r[_CPU[figure]] for r in bench.results[case])


def doubled(found: dict[str, float], baseline: dict[str, float]) -> dict[str, str]:
    """What is wrong, by target: a ratio above TIMES the baseline's (SMALLEST at least), or one that the baseline lacks."""
    wrong = {}
    for name, ratio in found.items():
        if name not in baseline:
            wrong[name] = f"{name}: the baseline lacks it; `python -m benchmarks.guard --write` writes it anew"
        elif ratio > TIMES * max(baseline[name], SMALLEST):
            wrong[name] = f"{name}: {ratio:.2f}, the baseline has {baseline[name]:.2f}"
    return wrong


def checked(folder: Path, baseline: dict[str, float]) -> tuple[dict[str, float], list[str]]:
    """(ratios, what doubled each time it was measured)."""
    found = measured(folder, GUARDED)
    for _ in range(AGAIN):
        suspects = [t for t in GUARDED if t.name in doubled(found, baseline)]
        if suspects:
            found |= {name: min(found[name], ratio) for name, ratio in measured(folder, suspects).items()}
    return found, list(doubled(found, baseline).values())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.guard", description="Ratios against the baseline.")
    parser.add_argument("--write", action="store_true", help="make the present ratios the baseline")
    args = parser.parse_args()
    folder = HERE / "data"
    if args.write:
        ratios = measured(folder, GUARDED, WRITTEN)
        told: dict[str, Any] = {"rows": ROWS, "ratios": {name: round(ratio, 3) for name, ratio in ratios.items()}}
        BASELINE.write_text(json.dumps(told, indent=1) + "\n")
        print(BASELINE.read_text())
        return
    baseline: dict[str, float] = json.loads(BASELINE.read_text())["ratios"]
    found, wrong = checked(folder, baseline)
    for name, ratio in found.items():
        print(f"{ratio:7.2f}  baseline {baseline.get(name, float('nan')):7.2f}  {name}")
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
