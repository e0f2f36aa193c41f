"""`python -m benchmarks.ingest.client`: how fast the Kafka client alone hands over records, in three steps.

    count     the library's consumer, batches of 10,000, messages counted
    values    and the value of each taken
    columns   lakesql's reader: RAW record batches

The broker and the records are in a process of their own, each run of a case in another. Records are JSON of about 100
bytes (`produce_json`). `--server kafka` takes Apache Kafka (make kafka) instead of the mock cluster, `--brokers` any
cluster that is there already; its topic `lakesql-bench` is made anew.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.measure import measure

TOPIC = "lakesql-bench"
PARTITIONS = 40  # a partition of the mock cluster keeps 5 MB
ROOT = Path(__file__).parents[2]


def produce_json(brokers: str, topic: str, count: int, *, compression: str = "lz4", first: int = 0) -> int:
    """Write so many JSON records, ids from `first` on, spread over the topic's partitions by key; bytes of the values."""
    from confluent_kafka import Producer

    refused: list[Any] = []
    producer = Producer(
        {
            "bootstrap.servers": brokers,
            "compression.type": compression,
            "linger.ms": "20",
            "queue.buffering.max.messages": "500000",
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _: refused.append(error),
            "log_level": "3",
        }
    )
    size = 0
    for number in range(first, first + count):
        value = json_record(number)
        size += len(value)
        while True:
            try:
                producer.produce(topic, value, b"%d" % number)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    if producer.flush(120) or refused:
        raise SystemExit(f"records could not be written to {topic}: {refused[:1] or 'no answer'}")
    return size


def json_record(number: int) -> bytes:
    """The record of this number: eight fields, about 100 bytes."""
    return b'{"id":%d,"ts":%d,"city":"c%03d","amount":%d.%02d,"ok":%s,"n":%d,"name":"user-%08d","code":"%04x"}' % (
        number,
        1_700_000_000_000 + number,
        number * 7919 % 500,
        number * 31 % 10_000,
        number % 100,
        b"true" if number % 3 else b"false",
        number * 13 % 1000,
        number * 104_729 % 10**8,
        number % 65_536,
    )


# ---------------------------------------------------------------- cases, each in a process of its own


def ranges_of(client: Any, topic: str) -> list[Any]:
    from lakesql.ingest.model import Range, TopicPartition

    found = next(one for one in client.topics() if one.name == topic)
    bounds = client.bounds([TopicPartition(topic, number) for number in found.partitions], client.isolation)
    return [Range(topic, at.partition, one.earliest, one.latest, "all") for at, one in bounds.items()]


def by_library(client: Any, ranges: Sequence[Any], *, values: bool) -> int:
    """Records as the library's own consumer gives them, under the settings of our reader."""
    from confluent_kafka import Consumer, TopicPartition

    from lakesql.ingest.kafka import LOGGER, consumer_settings

    wanted = sum(one.records for one in ranges)
    consumer = Consumer(consumer_settings(client), logger=LOGGER)
    consumer.assign([TopicPartition(one.topic, one.partition, one.low) for one in ranges])
    got = size = 0
    while got < wanted:
        messages = [one for one in consumer.consume(10_000, 0.1) if one.error() is None]
        got += len(messages)
        if values:
            size += sum(len(one.value()) for one in messages)
    consumer.close()
    return got


def by_reader(client: Any, ranges: Sequence[Any]) -> int:
    return sum(one.batch.num_rows for one in client.read(ranges, "fail", 30.0))


CASES = {
    "count": lambda client, ranges: by_library(client, ranges, values=False),
    "values": lambda client, ranges: by_library(client, ranges, values=True),
    "columns": by_reader,
}


def run_case(case: str, brokers: str, topic: str) -> dict[str, float]:
    """Read the whole topic once."""
    from lakesql.ingest.kafka import open_client

    client = open_client({"bootstrap.servers": brokers}, readers=1)
    ranges = ranges_of(client, topic)
    got: list[int] = []
    found = measure(lambda: got.append(CASES[case](client, ranges)), 1)
    return {**found, "records": got[0]}


# ---------------------------------------------------------------- the server


def serve(kind: str, records: int, compression: str) -> None:
    """Be the cluster until standard input ends; say where it is once the records are there."""
    with tempfile.TemporaryDirectory() as folder, _cluster(kind, Path(folder)) as cluster:
        cluster.create(TOPIC, PARTITIONS)
        size = produce_json(cluster.brokers, TOPIC, records, compression=compression)
        print(json.dumps({"brokers": cluster.brokers, "bytes": size}), flush=True)
        sys.stdin.read()


def _cluster(kind: str, folder: Path) -> Any:
    from tests.kafka.broker import Broker
    from tests.kafka.mock import MockCluster

    return Broker(folder) if kind == "kafka" else MockCluster()


@contextmanager
def served(kind: str, records: int, compression: str) -> Iterator[dict[str, Any]]:
    command = [sys.executable, "-m", "benchmarks.ingest.client", "--serve", kind, "--records", str(records)]
    server = subprocess.Popen(
        [*command, "--compression", compression], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        line = server.stdout.readline()
        if not line:
            raise SystemExit("the server did not start")
        yield json.loads(line)
    finally:
        server.stdin.close()
        server.wait()


@contextmanager
def given(brokers: str, records: int, compression: str) -> Iterator[dict[str, Any]]:
    """A cluster that is there already; the topic is made anew and taken away afterwards."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": brokers})
    if TOPIC in admin.list_topics(timeout=20).topics:
        admin.delete_topics([TOPIC])[TOPIC].result(30)
        time.sleep(2)
    admin.create_topics([NewTopic(TOPIC, num_partitions=PARTITIONS)])[TOPIC].result(30)
    try:
        yield {"brokers": brokers, "bytes": produce_json(brokers, TOPIC, records, compression=compression)}
    finally:
        admin.delete_topics([TOPIC])[TOPIC].result(30)


def child(case: str, brokers: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.ingest.client", "--case", case, "--brokers", brokers]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{case} failed:\n{done.stderr}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ingest.client")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--compression", default="lz4", choices=["none", "gzip", "snappy", "lz4", "zstd"])
    parser.add_argument("--server", default="mock", choices=["mock", "kafka"])
    parser.add_argument("--brokers", help="a cluster that is there already, instead of --server")
    parser.add_argument("--case", choices=sorted(CASES), help=argparse.SUPPRESS)
    parser.add_argument("--serve", choices=["mock", "kafka"], help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        serve(asked.serve, asked.records, asked.compression)
        return
    if asked.case:
        print(json.dumps(run_case(asked.case, asked.brokers, TOPIC)))
        return
    load = os.getloadavg()[0]
    cluster = (
        given(asked.brokers, asked.records, asked.compression)
        if asked.brokers
        else served(asked.server, asked.records, asked.compression)
    )
    with cluster as place:
        found: dict[str, list[dict[str, float]]] = {case: [] for case in CASES}
        for run in range(asked.runs):
            for case in list(CASES)[:: -1 if run % 2 else 1]:
                found[case].append(child(case, place["brokers"]))
    print(
        f"{asked.records:,} records of {place['bytes'] / asked.records:.0f} bytes, {asked.compression}, "
        f"{asked.brokers or asked.server}, median of {asked.runs}, load average {load:.2f} before"
    )
    print("| case | records read | records/s | CPU s per million | peak MB |\n|---|---:|---:|---:|---:|")
    for case, runs in found.items():
        records = runs[0]["records"]
        wall, cpu, peak = (statistics.median(one[name] for one in runs) for name in ("wall_s", "cpu_s", "peak_mb"))
        print(f"| {case} | {records:,.0f} | {records / wall:,.0f} | {cpu / records * 1e6:.2f} | {peak:.0f} |")


if __name__ == "__main__":
    main()
