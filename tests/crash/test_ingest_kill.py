"""kill -9 at every step of an ingestion, again and again: each record of the topic is in the target once.

The child process dies before, in the middle of and behind calls of the storage that change something, and now and then
at a random moment of its reading. LAKESQL_CRASH_ROUNDS says how many rounds there are.
"""

import json
import os
import random
from collections import Counter
from pathlib import Path

import fastavro
import pytest

import lakesql
from lakesql.ingest import manifest
from lakesql.ingest.model import TopicPartition
from lakesql.ingest.state import state_of
from lakesql.storage import LocalStorage
from lakesql.table.state import load
from tests.kafka.fixtures import Ask
from tests.kafka.mock import MockCluster
from tests.kafka.produce import Record, produce

pytestmark = pytest.mark.slow

ROUNDS = int(os.environ.get("LAKESQL_CRASH_ROUNDS", "30"))
PARTITIONS = 3
OPTIONS = "'kafka.brokers' = '{brokers}', 'topic.whitelist' = 'orders', 'bootstrap.with.offset' = 'earliest', 'job.name' = 'kill'"
HUDI = f"""INGEST INTO orders FROM KAFKA OPTIONS ({OPTIONS}) FORMAT JSON (columns 'id BIGINT, part INTEGER, ts BIGINT')
TBLPROPERTIES (type = '{{kind}}', primaryKey = 'id', preCombineField = 'ts')"""
FILES = f"""INGEST INTO FILES '{{path}}' FROM KAFKA OPTIONS ({OPTIONS}, 'writer.partition.pattern' = 'yyyy/MM/dd/HH')
FORMAT JSON (columns 'id BIGINT, part INTEGER, ts BIGINT')"""


class Topic:
    """A topic that grows: record ids count up, every partition is written."""

    def __init__(self, cluster: MockCluster) -> None:
        self.brokers = cluster.brokers
        self.written: Counter[int] = Counter()
        cluster.create("orders", PARTITIONS)

    def grow(self, records: int) -> None:
        for partition in range(PARTITIONS):
            first = self.written[partition]
            rows = range(first, first + records)
            values = [json.dumps({"id": n * PARTITIONS + partition, "part": partition, "ts": n}).encode() for n in rows]
            at = 1_700_000_000_000
            produce(
                self.brokers,
                "orders",
                [Record(v, timestamp_ms=at + n * 600_000) for n, v in zip(rows, values, strict=True)],
                partition=partition,
            )
            self.written[partition] += records

    def ids(self) -> list[int]:
        return sorted(n * PARTITIONS + p for p in range(PARTITIONS) for n in range(self.written[p]))


def in_table(path: Path) -> tuple[list[int], dict[TopicPartition, int]]:
    """(ids of the table, offsets that its newest commit holds)."""
    if not (path / ".hoodie/hoodie.properties").exists():
        return [], {}
    table = lakesql.open_table(str(path))
    ids = table.read(columns=["id"]).read_all().column("id").to_pylist()
    return sorted(ids), state_of(load(LocalStorage(path)), "kill")[0].offsets()


def in_files(path: Path) -> tuple[list[int], dict[TopicPartition, int]]:
    """(ids that a reader of manifests sees, offsets of the newest)."""
    storage, ids = LocalStorage(path), []
    for one in manifest.history(storage, "kill"):
        for file in one.files:
            found = path / file.path
            with (found if found.exists() else path / file.staged).open("rb") as data:
                ids += [row["id"] for row in fastavro.reader(data)]  # type: ignore[index,call-overload]
    visible = [p for p in path.rglob("*.avro") if "_lakesql" not in p.parts]
    named = {path / f.path for one in manifest.history(storage, "kill") for f in one.files}
    assert set(visible) <= named, "a file that no commit names"
    return sorted(ids), manifest.newest(storage, "kill").state.offsets()


@pytest.mark.parametrize("kind", ["mor", "cow", "files"])
def test_every_record_is_there_once_however_often_runs_are_killed(
    kind: str, tmp_path: Path, mock_kafka: MockCluster, dying_run: Ask
) -> None:
    topic, draw = Topic(mock_kafka), random.Random(kind)
    target = tmp_path / "orders"
    statement = (FILES if kind == "files" else HUDI).format(brokers=topic.brokers, path=target, kind=kind)
    seen = in_files if kind == "files" else in_table
    topic.grow(4)
    calls = 40
    answers: Counter[str] = Counter()
    for number in range(ROUNDS):
        answer = dying_run(statement, tmp_path, draw.randint(1, calls + 2), draw.choice(("before", "torn", "after")))
        word, _, rest = answer.partition(" ")
        answers[word] += 1
        assert word in ("done", "killed"), answer
        calls = int(rest) if word == "done" else calls
        ids, offsets = seen(target)
        expected = [n * PARTITIONS + at.partition for at, upto in offsets.items() for n in range(upto)]
        assert ids == sorted(expected), f"round {number}: rows and offsets differ"
        if draw.random() < 0.7:
            topic.grow(draw.randint(1, 6))
    assert dying_run(statement, tmp_path, 0, "before").startswith("done")
    assert seen(target)[0] == topic.ids()
    assert answers["killed"] > ROUNDS // 4
