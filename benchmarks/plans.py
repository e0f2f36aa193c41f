"""One upsert in one process, and the same in tasks of a process pool, side by side.

    python -m benchmarks.plans [--rows 5_000_000] [--workers 2] [--runs 3] [--data DIR]

Both get the same rows in memory and the same copies of a table (`workload`: 20 files, 8 columns). The pool is up, and
has imported lakesql, before the clock runs. CPU seconds are those of all processes, memory is the peak of the largest one. Rounds
take turns. The rows are compared afterwards.
"""

import argparse
import multiprocessing
import os
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import lakesql
from benchmarks import workload
from benchmarks.child import prepared
from benchmarks.engines import ours
from benchmarks.engines.common import plain

DATA = Path(__file__).parent / "data"
CASES = (("cow", "U1"), ("cow", "U2"), ("mor", "U1"), ("mor", "U2"))


def _cpu(pool: ProcessPoolExecutor) -> float:
    """Seconds of this process and of the workers."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    seconds = own.ru_utime + own.ru_stime
    for pid in pool._processes:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        seconds += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds


def _warm(_: int) -> int:
    import lakesql.handle
    import lakesql.write.tasks  # noqa: F401

    time.sleep(0.2)  # so that every worker gets one
    return os.getpid()


def _alone(table: lakesql.Table, rows: pa.Table, pool: ProcessPoolExecutor) -> None:  # noqa: ARG001
    table.upsert(rows)


def _in_tasks(table: lakesql.Table, rows: pa.Table, pool: ProcessPoolExecutor) -> None:
    plan = table.plan_upsert(rows)
    largest_first = sorted(plan, key=lambda task: -task.rows)
    table.commit(pool.map(table.run_task, largest_first))


def _run(
    how: Callable[[lakesql.Table, pa.Table, ProcessPoolExecutor], None],
    source: Path,
    rows: pa.Table,
    pool: ProcessPoolExecutor,
) -> tuple[float, float, int]:
    """Wall and CPU seconds, and the checksum of what came of it."""
    with tempfile.TemporaryDirectory() as folder:
        path = shutil.copytree(source, Path(folder) / "t")
        table = lakesql.open_table(str(path))
        os.sync()
        cpu, started = _cpu(pool), time.perf_counter()
        how(table, rows, pool)
        wall, cpu = time.perf_counter() - started, _cpu(pool) - cpu
        con = plain()
        con.register("r", table.read(columns=["id", "amount", "status"]))
        [(found,)] = con.execute("SELECT sum(hash(id, amount, status))::HUGEINT FROM r").fetchall()
    return wall, cpu, found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--data", type=Path, default=DATA)
    args = parser.parse_args()
    data = workload.prepare(args.data, args.rows)
    print("| table | change | rows | one process, s | pool, s | one process, CPU s | pool, CPU s |")
    print("|---|---|---:|---:|---:|---:|---:|")
    with ProcessPoolExecutor(args.workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(_warm, range(args.workers)))
        for kind, change in CASES:
            prepared("lakesql", kind, data)
            rows = pq.read_table(workload.source_file(data, change))
            figures: dict[str, list[tuple[float, float, int]]] = {"alone": [], "tasks": []}
            for number in range(args.runs):
                order = [("alone", _alone), ("tasks", _in_tasks)]
                for name, how in order if number % 2 == 0 else reversed(order):
                    figures[name].append(_run(how, ours.at(data, kind), rows, pool))
            if len({found for runs in figures.values() for *_, found in runs}) != 1:
                raise SystemExit(f"{kind} {change}: the rows differ")
            cells = [statistics.median(run[n] for run in figures[name]) for n in (0, 1) for name in figures]
            print(f"| {kind} | {change} | {rows.num_rows:,} | " + " | ".join(f"{cell:.2f}" for cell in cells) + " |")


if __name__ == "__main__":
    main()
