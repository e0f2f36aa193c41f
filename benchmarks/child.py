"""One engine in a process of its own; the last line it prints is JSON.

    python -m benchmarks.child version ENGINE                          its version, or why it cannot run here
    python -m benchmarks.child prepare ENGINE TABLE --data DIR         makes one of its tables, unless it is there
    python -m benchmarks.child measure CASE --data DIR --work DIR      the figures of a case; --thorough checks all values

Measured are wall time, CPU time and peak memory around the calls of `Ready`, and the bytes that the process wrote (`wchar` of
/proc/self/io, whatever the file). Then the result is checked; a wrong one ends the process with an error.
"""

import argparse
import importlib
import json
import os
import shutil
from pathlib import Path
from types import ModuleType

from benchmarks import workload
from benchmarks.cases import CASES, ENGINES
from benchmarks.measure import measure
from benchmarks.ready import Unavailable


def module_of(engine: str) -> ModuleType:
    """The engine's module, which is imported only now: another engine's packages may be missing."""
    try:
        return importlib.import_module(f"benchmarks.engines.{ENGINES[engine]}")
    except ModuleNotFoundError as error:
        raise Unavailable(f"the Python package {error.name} is not installed") from error


def told_version(engine: str) -> dict[str, str]:
    try:
        return {"version": module_of(engine).version()}
    except Unavailable as error:
        return {"unavailable": str(error)}


def prepared(engine: str, table: str, data: Path) -> dict[str, str]:
    """The table of an engine, made when it is not there."""
    home = workload.home(data, engine, table)
    done = home.parent / f"complete-{engine}-{table}"
    if not done.exists() or done.read_text() != workload.FORMAT:
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        module_of(engine).TABLES[table](data, home)
        done.write_text(workload.FORMAT)
    return {"at": str(home)}


def measured(name: str, data: Path, work: Path, thorough: bool) -> dict[str, object]:
    case = CASES[name]
    ready = getattr(module_of(case.engine), case.function)(data, work, *case.arguments)
    os.sync()  # what the preparation wrote is not to be written out while the clock runs
    last: list[object] = []
    written = _bytes_written()
    figures = measure(ready.call, ready.calls, ready.pids(), last)
    written = _bytes_written() - written
    ready.check(last[0], thorough)
    return {**figures, "written_mb": written / 1e6, "steps": ready.steps}


def _bytes_written() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("wchar")).split()[1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=("version", "prepare", "measure"))
    parser.add_argument("name")
    parser.add_argument("table", nargs="?")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--thorough", action="store_true")
    args = parser.parse_args()
    if args.action == "version":
        found: dict[str, object] = dict(told_version(args.name))
    elif args.action == "prepare":
        found = dict(prepared(args.name, args.table, args.data))
    else:
        found = measured(args.name, args.data, args.work, args.thorough)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
