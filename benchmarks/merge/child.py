"""One engine in a process of its own: `python -m benchmarks.merge.child ENGINE CASE --data DIR --work DIR` prints JSON.

CASE `prepare` makes the engine's table and tells its version, or why the engine cannot run here. Any other case runs
the MERGE once. Measured around it: wall and CPU time, peak memory, the bytes that the process wrote (`wchar` of
/proc/self/io, whatever the file) and the files that are new. Then a new connection reads all rows for their number and
checksum, which must be those expected; `read_s` is the wall time of that.
"""

import argparse
import json
import os
import shutil
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path

from benchmarks.measure import measure
from benchmarks.merge.engine import Engine, Run, Unavailable
from benchmarks.merge.workload import CASES, checksum, expected


def _engine(module: str, *arguments: str) -> Engine:
    """The engine of a module, which is imported only now: another engine's packages may be missing."""
    try:
        made: Engine = import_module(f"benchmarks.merge.{module}").engine(*arguments)
    except ModuleNotFoundError as error:
        raise Unavailable(f"the Python package {error.name} is not installed") from error
    return made


ENGINES: dict[str, Callable[[], Engine]] = {
    **{
        f"lakesql-{kind}-{mode}": partial(_engine, "lakesql_engine", kind, mode)
        for kind in ("cow", "mor")
        for mode in ("event", "commit")
    },
    "duckdb": partial(_engine, "duckdb_engine"),
    "ducklake": partial(_engine, "ducklake_engine"),
    "deltalake": partial(_engine, "delta_engine"),
}


def prepared(name: str, data: Path) -> dict[str, str]:
    home, done = data / name, data / f"complete-{name}"
    try:
        engine = ENGINES[name]()
        version = engine.version()
    except Unavailable as error:
        return {"unavailable": str(error)}
    if not done.exists():
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir()
        engine.prepare(data, home)
        done.touch()
    return {"version": version}


def measured(name: str, data: Path, work: Path, case: str) -> dict[str, object]:
    run = ENGINES[name]().run(data, data / name, work, case)
    before = _files(run.table)
    os.sync()  # what the preparation wrote is not to be written out while the clock runs
    written = _bytes_written()
    result = measure(run.call, 1)
    written = _bytes_written() - written
    files = _files(run.table) - before
    return {
        "wall_s": result["wall_s"],
        "cpu_s": result["cpu_s"],
        "peak_mb": result["peak_mb"],
        "read_s": verified(run, data, case),
        "files": len(files),
        "written_mb": written / 1e6,
        "steps": run.seconds,
    }


def verified(run: Run, data: Path, case: str) -> float:
    """Seconds that a new connection takes to read all rows; an error when they are not those expected."""
    con, rows = run.read()
    started = time.perf_counter()
    found = checksum(con, rows)
    seconds = time.perf_counter() - started
    if found != expected(data, case):
        raise SystemExit(f"wrong result: rows and checksum are {found}, expected {expected(data, case)}")
    return seconds


def _files(table: Path) -> set[Path]:
    """The data files of a table: what no folder or file of the format's own bookkeeping is."""
    return {p for p in table.rglob("*") if _is_data(p.relative_to(table))}


def _is_data(path: Path) -> bool:
    return path.parts[0] not in (".hoodie", "_delta_log") and (path.suffix == ".parquet" or ".log." in path.name)


def _bytes_written() -> int:
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("wchar")).split()[1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("case", choices=("prepare", *CASES))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path)
    args = parser.parse_args()
    if args.case == "prepare":
        print(json.dumps(prepared(args.engine, args.data)))
    else:
        print(json.dumps(measured(args.engine, args.data, args.work, args.case)))


if __name__ == "__main__":
    main()
