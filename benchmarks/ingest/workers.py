"""`python -m benchmarks.ingest.workers`: two threads of one process against two processes, start-up included.

    client   the client alone: every batch is dropped
    decode   each batch is decoded and kept in the spool, as a run does before its commit

A process reads half of the partitions with a client, a decoder and a spool of its own; it is started anew, since a client
that is open cannot be taken along by a fork. What a real run would need on top is left out in favour of the processes:
offsets, counts and errors on their way back, and the spools of all processes read by the one that commits. JSON records of
100 bytes on Apache Kafka (`make kafka`), or on the broker that --brokers names; every case is measured in a process of its
own, round by round, every second round in reverse order; CPU seconds are those of the case and of the processes it starts.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.ingest.records import JSON_COLUMNS, SIZE
from benchmarks.ingest.run import broker, fill

ROOT = Path(__file__).parents[2]
WORK = ("client", "decode")
BY = ("threads", "processes")


def ranges_of(brokers: str, topic: str) -> list[Any]:
    from lakesql.ingest.kafka import open_client
    from lakesql.ingest.model import Range, TopicPartition

    with closing(open_client({"bootstrap.servers": brokers}, readers=1)) as client:
        found = next(one for one in client.topics() if one.name == topic)
        bounds = client.bounds([TopicPartition(topic, number) for number in found.partitions], client.isolation)
        return [Range(topic, at.partition, one.earliest, one.latest, "all") for at, one in bounds.items()]


def worker(work: str, brokers: str, ranges: Sequence[Any], workers: int, spool: Any) -> int:
    """Read these ranges in this thread; how many records there were."""
    from lakesql.ingest.decode import decoder_factory
    from lakesql.ingest.fetching import groups
    from lakesql.ingest.kafka import open_client
    from lakesql.ingest.model import Format
    from lakesql.ingest.tally import joined

    rows, stop = 0, threading.Event()
    make = decoder_factory(Format("json", options={"lakesql.json.columns": JSON_COLUMNS}))
    with (
        closing(open_client({"bootstrap.servers": brokers}, readers=workers)) as client,
        closing(make()) as decoder,
        closing(groups(client.read(ranges, "fail", 30.0), stop)) as grouped,
    ):
        for group in grouped:
            batch = joined([one.batch for one in group])
            rows += batch.num_rows
            if work == "decode" and batch.num_rows:
                spool.add(ranges[0].partition, "rows", decoder.decode(batch).rows)
    return rows


def by_threads(work: str, brokers: str, parts: Sequence[Sequence[Any]], folder: str) -> int:
    from lakesql.ingest.spool import Spool

    rows: list[int] = []
    with closing(Spool("bench", folder)) as spool:
        threads = [
            threading.Thread(target=lambda part=part: rows.append(worker(work, brokers, part, len(parts), spool)))
            for part in parts
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return sum(rows)


def by_processes(work: str, brokers: str, parts: Sequence[Sequence[Any]], folder: str) -> int:
    command = [sys.executable, "-m", "benchmarks.ingest.workers", "--worker", work, "--brokers", brokers]
    command += ["--folder", folder]
    started = [
        subprocess.Popen(
            [*command, "--ranges", json.dumps([[one.topic, one.partition, one.low, one.high] for one in part])],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for part in parts
    ]
    return sum(int(process.communicate()[0]) for process in started)


def as_worker(asked: argparse.Namespace) -> None:
    from lakesql.ingest.model import Range
    from lakesql.ingest.spool import Spool

    ranges = [Range(topic, number, low, high, "all") for topic, number, low, high in json.loads(asked.ranges)]
    with closing(Spool(f"bench {ranges[0].partition}", asked.folder)) as spool:
        print(worker(asked.worker, asked.brokers, ranges, asked.workers, spool))


def as_case(asked: argparse.Namespace) -> None:
    """One measurement; what threads need is imported before, as it is when a run begins."""
    import lakesql.ingest.assembly  # noqa: F401

    work, by = asked.case.split("-")
    ranges = ranges_of(asked.brokers, asked.topic)
    parts = [ranges[i :: asked.workers] for i in range(asked.workers)]
    with tempfile.TemporaryDirectory() as folder:
        cpu, began = _cpu_s(), time.perf_counter()
        rows = (by_threads if by == "threads" else by_processes)(work, asked.brokers, parts, folder)
        print(json.dumps({"records": rows, "wall_s": time.perf_counter() - began, "cpu_s": _cpu_s() - cpu}))


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def measured(case: str, brokers: str, topic: str, workers: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.ingest.workers", "--case", case, "--brokers", brokers]
    done = subprocess.run(
        [*command, "--topic", topic, "--workers", str(workers)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{case} failed:\n{done.stderr}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ingest.workers")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--brokers", help="bootstrap list of a broker that runs; default: one of its own")
    for name in ("--case", "--worker", "--topic", "--ranges", "--folder"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.worker:
        as_worker(asked)
        return
    if asked.case:
        as_case(asked)
        return
    cases = [f"{work}-{by}" for work in WORK for by in BY]
    found: dict[str, list[dict[str, float]]] = {case: [] for case in cases}
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="workers-") as folder, broker(asked.brokers, Path(folder) / "broker") as at:
        topic = f"bench-workers-{os.getpid()}"
        fill(at, topic, "json", asked.rows, asked.partitions)
        for run in range(asked.runs):
            for case in cases[:: -1 if run % 2 else 1]:
                one = measured(case, at, topic, asked.workers)
                if one["records"] != asked.rows:
                    raise SystemExit(f"{case}: {one['records']:,} records of {asked.rows:,}")
                found[case].append(one)
    print(
        f"{asked.rows:,} JSON records of {SIZE} bytes, {asked.partitions} partitions, {asked.workers} workers, median of "
        f"{asked.runs} runs, {os.cpu_count()} cores, load average {load:.2f} before and {os.getloadavg()[0]:.2f} after\n"
    )
    print("| case | wall s | fastest | records/s | CPU s |\n|---|---:|---:|---:|---:|")
    for case, runs in found.items():
        wall, cpu = (statistics.median(one[name] for one in runs) for name in ("wall_s", "cpu_s"))
        fastest = min(one["wall_s"] for one in runs)
        print(f"| {case} | {wall:.2f} | {fastest:.2f} | {asked.rows / wall:,.0f} | {cpu:.2f} |")


if __name__ == "__main__":
    main()
