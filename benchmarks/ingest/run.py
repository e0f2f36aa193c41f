"""`python -m benchmarks.ingest.run`: topics into Merge-on-Read tables, beside the client alone, our reader alone and a plain script.

Each case is a process of its own, round by round, every second round in reverse order; medians. The broker is the one of
the tests (`make kafka`), or the one that --brokers names. The report goes to the terminal and to benchmarks/report/.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.ingest.child import CASES
from benchmarks.ingest.records import SIZE, records

ROOT = Path(__file__).parents[2]
FORMS = ("json", "avro")
WANTED = 0.7
"""The share of the client's own rate that an ingestion is to reach."""


@contextmanager
def broker(given: str | None, folder: Path) -> Iterator[str]:
    if given:
        yield given
        return
    from tests.kafka.broker import Broker

    with Broker(folder) as one:
        yield one.brokers


def fill(brokers: str, topic: str, form: str, rows: int, partitions: int) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": brokers})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result()
    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000})
    for number, message in enumerate(records(form, rows)):
        while True:
            try:
                producer.produce(topic, message, partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    producer.flush()


def child(case: str, form: str, brokers: str, topic: str, work: str, arguments: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.ingest.child", case, "--brokers", brokers, "--topic", topic]
    command += ["--form", form, "--work", work, "--workers", str(arguments.workers)]
    if arguments.operation:
        command += ["--operation", arguments.operation]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{case} {form} failed:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def markdown(results: dict[tuple[str, str], list[dict[str, Any]]], rows: int, runs: int, loads: list[float]) -> str:
    lines = [
        f"{rows:,} records of {SIZE} bytes, median of {runs} runs, {os.cpu_count()} cores, load average {loads[0]:.2f} "
        f"before and {loads[1]:.2f} after, {datetime.now(UTC).isoformat(timespec='seconds')}",
        "",
        "| case | wall s | records/s | of the client | CPU s | peak MB |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for form in FORMS:
        client = middle(results["client", form], "wall_s")
        for case in CASES:
            found = results[case, form]
            wall, cpu, peak = (middle(found, name) for name in ("wall_s", "cpu_s", "peak_mb"))
            share = f"{client / wall:.0%}"
            lines.append(f"| {form}-{case} | {wall:.2f} | {rows / wall:,.0f} | {share} | {cpu:.2f} | {peak:.0f} |")
    met = {
        form: middle(results["client", form], "wall_s") / middle(results["lakesql", form], "wall_s") for form in FORMS
    }
    lines += [
        "",
        *(f"{form}: {'met' if one >= WANTED else 'NOT met'}, {one:.0%} of the client" for form, one in met.items()),
    ]
    return "\n".join(lines)


def middle(found: list[dict[str, Any]], name: str) -> float:
    return statistics.median(one[name] for one in found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--operation", help="of the write; default upsert, since the table has a record key")
    parser.add_argument("--brokers", help="bootstrap list of a broker that runs; default: one of its own")
    arguments = parser.parse_args()
    turns = [(case, form) for form in FORMS for case in CASES]
    results: dict[tuple[str, str], list[dict[str, Any]]] = {turn: [] for turn in turns}
    loads = [os.getloadavg()[0]]
    with (
        tempfile.TemporaryDirectory(prefix="ingest-") as folder,
        broker(arguments.brokers, Path(folder) / "broker") as at,
    ):
        topics = {form: f"bench-{form}-{os.getpid()}" for form in FORMS}
        for form, topic in topics.items():
            fill(at, topic, form, arguments.rows, arguments.partitions)
        for run in range(arguments.runs):
            for case, form in turns if run % 2 == 0 else reversed(turns):
                with tempfile.TemporaryDirectory(dir=folder) as work:
                    found = child(case, form, at, topics[form], work, arguments)
                if found["records"] != arguments.rows:
                    raise SystemExit(f"{case} {form}: {found['records']:,} records of {arguments.rows:,}")
                results[case, form].append(found)
                print(
                    f"run {run + 1}  {form}-{case}: {found['wall_s']:.2f} s, {found['peak_mb']:.0f} MB", file=sys.stderr
                )
    loads.append(os.getloadavg()[0])
    text = markdown(results, arguments.rows, arguments.runs, loads)
    report = ROOT / "benchmarks" / "report"
    report.mkdir(exist_ok=True)
    (report / "ingest.md").write_text(text + "\n")
    (report / "ingest.json").write_text(json.dumps({"-".join(key): found for key, found in results.items()}, indent=1))
    print(text)


if __name__ == "__main__":
    main()
