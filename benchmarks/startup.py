"""`python -m benchmarks.startup`: what starting costs over `import duckdb, pyarrow` alone, in processes of their own.

The first run of each command is not counted, since it may compile modules; the others alternate. Figures are medians; CPU
is that of the process and its children.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
BASE = "import duckdb, pyarrow"
LIMIT_S = 0.3
_PYTHON = [sys.executable, "-c"]
COMMANDS = {
    BASE: [*_PYTHON, BASE],
    "import lakesql": [*_PYTHON, "import lakesql"],
    "lakesql.connect()": [*_PYTHON, "import lakesql; lakesql.connect().sql('SELECT 1').fetchall()"],
    'lakesql -c "SELECT 1"': [*_PYTHON, "from lakesql.cli import main; main()", "-c", "SELECT 1"],
}


def once(command: list[str]) -> tuple[float, float]:
    """Wall and CPU seconds."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    before, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, cwd=HERE.parent, env=environment, stdout=subprocess.DEVNULL, check=True)
    wall = time.perf_counter() - wall
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.startup", description="Measure how long starting takes."
    )
    parser.add_argument("--runs", type=int, default=11)
    args = parser.parse_args()
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    for turn in range(args.runs + 1):
        for name, command in COMMANDS.items():
            measured = once(command)
            if turn:
                found[name].append(measured)
    medians = {n: (statistics.median(w for w, _ in r), statistics.median(c for _, c in r)) for n, r in found.items()}
    base = medians[BASE][0]
    text = [
        f"Median of {args.runs} runs, {os.cpu_count()} cores, load average {os.getloadavg()[0]:.2f}.",
        "",
        f"| command | wall s | CPU s | over `{BASE}` | target | met |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for name, (wall, cpu) in medians.items():
        target = f"< {LIMIT_S} | {'yes' if wall - base < LIMIT_S else '**no**'}" if name != BASE else " | "
        text.append(f"| `{name}` | {wall:.3f} | {cpu:.3f} | {wall - base:.3f} | {target} |")
    report = HERE / "report"
    report.mkdir(exist_ok=True)
    (report / "startup.md").write_text("\n".join(text) + "\n")
    (report / "startup.json").write_text(json.dumps({n: {"wall_s": w, "cpu_s": c} for n, (w, c) in medians.items()}))
    print("\n".join(text))


if __name__ == "__main__":
    main()
