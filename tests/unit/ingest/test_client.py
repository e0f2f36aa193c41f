"""The Kafka client against the mock cluster: topics, offsets, ranges and everything that can go wrong on the way."""

import logging
import os
import subprocess
import sys
import time

import pyarrow as pa
import pytest

from lakesql.errors import IngestError, JobError
from lakesql.ingest import kafka
from lakesql.ingest.kafka import consumer_settings, open_client
from lakesql.ingest.model import RAW, Bounds, Range, TopicPartition
from tests.kafka.mock import FETCH, NOT_LEADER, TOPIC_DENIED, MockCluster
from tests.kafka.produce import Record, produce, produce_in_transaction

COMMITTED = "read_committed"


@pytest.fixture(scope="module")
def shared():
    """A cluster for tests that only read and write topics of their own."""
    with MockCluster() as cluster:
        yield cluster


@pytest.fixture
def client(shared):
    return open_client({"bootstrap.servers": shared.brokers}, timeout_s=10)


def filled(cluster, name, counts, **how):
    """A topic with so many records in each partition; the values count from 0."""
    cluster.create(name, len(counts))
    for partition, count in enumerate(counts):
        produce(cluster.brokers, name, [b"%d" % i for i in range(count)], partition=partition, **how)
    return name


def part(topic, partition, low, high, **more):
    return Range(topic, partition, low, high, "stored", **more)


class Read:
    """What reading some ranges gave, put together."""

    def __init__(self, client, *ranges, reset="nearest", timeout_s=5.0, rows=10_000):
        self.fetches = list(client.read(ranges, reset, timeout_s, rows))
        self.table = pa.Table.from_batches([one.batch for one in self.fetches], RAW)
        self.next, self.done, self.failed, self.moved = {}, set(), {}, {}
        for one in self.fetches:
            self.next.update({at.partition: position.next for at, position in one.positions.items()})
            self.done |= {at.partition for at in one.done}
            self.failed.update({at.partition: why for at, why in one.failed.items()})
            self.moved.update({at.partition: offset for at, offset in one.moved.items()})

    def offsets(self, partition=0):
        rows = zip(self.table["_partition"].to_pylist(), self.table["_offset"].to_pylist(), strict=True)
        return [offset for at, offset in rows if at == partition]


# ---------------------------------------------------------------- topics and offsets


def test_topics_come_with_partitions_and_an_id_that_changes_when_they_are_made_again(mock_kafka):
    mock_kafka.create("a", 3)
    mock_kafka.create("b")
    client = open_client({"bootstrap.servers": mock_kafka.brokers})
    first = {topic.name: topic for topic in client.topics()}
    assert {name: topic.partitions for name, topic in first.items()} == {"a": (0, 1, 2), "b": (0,)}
    mock_kafka.delete("b")
    mock_kafka.create("b")
    second = {topic.name: topic for topic in client.topics()}
    assert second["a"].id == first["a"].id != None  # noqa: E711
    assert second["b"].id not in (first["b"].id, None)


def test_topics_of_brokers_that_give_no_descriptions_have_no_id(mock_kafka):
    mock_kafka.create("a", 2)
    mock_kafka.set_controller(-1)
    client = open_client({"bootstrap.servers": mock_kafka.brokers}, timeout_s=1)
    assert [(topic.name, topic.partitions, topic.id) for topic in client.topics()] == [("a", (0, 1), None)]


def test_descriptions_that_never_come_are_waited_for_once(mock_kafka, monkeypatch):
    mock_kafka.create("a", 2)
    mock_kafka.set_controller(-1)
    monkeypatch.setattr(kafka, "DESCRIBE_S", 0.5)
    client = open_client({"bootstrap.servers": mock_kafka.brokers})
    took = []
    for _ in range(3):
        began = time.monotonic()
        assert [topic.id for topic in client.topics()] == [None]
        took.append(time.monotonic() - began)
    assert 0.4 < took[0] < 5
    assert max(took[1:]) < 0.4
    assert client.topic_ids(["a"]) == {}


def test_internal_topics_are_left_out(mock_kafka):
    mock_kafka.create("__consumer_offsets")
    mock_kafka.create("__mine")
    client = open_client({"bootstrap.servers": mock_kafka.brokers})
    assert [topic.name for topic in client.topics()] == ["__mine"]


def test_bounds_of_all_partitions_come_together_and_errors_stay_with_their_partition(shared, client):
    topic = filled(shared, "bounds", [5, 0, 3])
    shared.delete_records(topic, 0, 2)
    asked = [TopicPartition(topic, n) for n in (0, 1, 2, 7)] + [TopicPartition("nowhere", 0)]
    found = client.bounds(asked, COMMITTED)
    assert [found[at] for at in asked[:3]] == [Bounds(2, 5), Bounds(0, 0), Bounds(0, 3)]
    assert "Unknown partition" in found[asked[3]].error
    assert "Unknown topic" in found[asked[4]].error
    assert shared.brokers in found[asked[4]].error
    assert client.bounds([], COMMITTED) == {}


def test_bounds_of_a_thousand_partitions_take_two_questions(shared, client):
    topic = shared.create("wide", 1000)
    asked = [TopicPartition(topic, partition) for partition in range(1000)]
    assert client.bounds(asked, COMMITTED) == dict.fromkeys(asked, Bounds(0, 0))


def test_a_time_after_the_last_record_is_the_end_of_the_partition(shared, client):
    topic = filled(shared, "times", [4])  # this cluster knows no time at all
    at = TopicPartition(topic, 0)
    assert client.offsets_at({at: 1}) == {at: 4}
    assert client.offsets_at({}) == {}
    with pytest.raises(IngestError, match=r"nowhere:0: the offset at 1 ms could not be had: 127"):
        client.offsets_at({TopicPartition("nowhere", 0): 1})


# ---------------------------------------------------------------- records


def test_records_become_columns(shared, client):
    topic = shared.create("columns", 2)
    records = [
        Record(b"v", b"k", [("h", b"1"), ("h", b"2"), ("none", None)], 1_700_000_000_123, 0),
        Record(None, b"", (), 5, 0),
        Record(b"", None, [("only", b"")], 0, 0),
    ]
    produce(shared.brokers, topic, records)
    read = Read(client, part(topic, 0, 0, 3))
    assert read.table.schema == RAW
    rows = read.table.select(["_topic", "_partition", "_offset", "_timestamp_type", "_key", "_value"]).to_pylist()
    common = {"_topic": topic, "_partition": 0, "_timestamp_type": "create"}
    assert rows == [
        {**common, "_offset": 0, "_key": b"k", "_value": b"v"},
        {**common, "_offset": 1, "_key": b"", "_value": None},
        {**common, "_offset": 2, "_key": None, "_value": b""},
    ]
    assert read.table["_timestamp"].cast(pa.int64()).to_pylist()[:2] == [1_700_000_000_123, 5]
    assert [dict(enumerate(one)) if one else one for one in read.table["_headers"].to_pylist()] == [
        {0: {"key": "h", "value": b"1"}, 1: {"key": "h", "value": b"2"}, 2: {"key": "none", "value": None}},
        None,
        {0: {"key": "only", "value": b""}},
    ]
    for one in read.fetches:
        one.batch.validate(full=True)


def test_timestamps_that_no_column_can_hold_are_none(mock_kafka):
    mock_kafka.create("odd", 1)
    times = [5, 253_402_300_800_000, 2**63 - 1]
    produce(mock_kafka.brokers, "odd", [Record(b"x", timestamp_ms=ms) for ms in times], partition=0)
    client = open_client({"bootstrap.servers": mock_kafka.brokers})
    found = Read(client, part("odd", 0, 0, 3)).table
    client.close()
    assert found["_timestamp"].cast(pa.int64()).to_pylist() == [5, 253_402_300_800_000, None]
    assert found["_timestamp_type"].to_pylist() == ["create", "create", None]


def test_every_range_is_read_from_low_to_high_and_no_further(shared, client):
    one, two = filled(shared, "ranges", [10, 10, 10, 10]), filled(shared, "other", [3])
    read = Read(client, part(one, 0, 2, 5), part(one, 1, 0, 10), part(one, 3, 9, 10), part(two, 0, 1, 3))
    rows = {(row["_topic"], row["_partition"], row["_offset"]) for row in read.table.to_pylist()}
    assert rows == {
        *((one, 0, n) for n in range(2, 5)),
        *((one, 1, n) for n in range(10)),
        (one, 3, 9),
        *((two, 0, n) for n in range(1, 3)),
    }
    assert read.table.num_rows == len(rows)
    ends = {at: position for fetch in read.fetches for at, position in fetch.positions.items()}
    assert {str(at): position.next for at, position in ends.items()} == {
        "ranges:0": 5,
        "ranges:1": 10,
        "ranges:3": 10,
        "other:0": 3,
    }
    assert {position.leader_epoch for position in ends.values()} == {0}
    assert {at for fetch in read.fetches for at in fetch.done} == set(ends)


def test_an_empty_range_is_done_without_a_question(client):
    read = Read(client, part("nowhere", 0, 7, 7))
    assert (read.done, read.next, len(read.fetches)) == ({0}, {0: 7}, 1)
    assert list(client.read([], "nearest", 5)) == []


def test_positions_of_each_batch_are_those_of_its_records(shared, client):
    topic = filled(shared, "steps", [40, 40])
    seen = {0: 0, 1: 0}
    for fetched in client.read([part(topic, 0, 0, 40), part(topic, 1, 0, 40)], "nearest", 5, 7):
        assert fetched.batch.num_rows <= 7
        for number, offset in zip(
            fetched.batch["_partition"].to_pylist(), fetched.batch["_offset"].to_pylist(), strict=True
        ):
            assert offset == seen[number]
            seen[number] += 1
        assert all(position.next == seen[at.partition] for at, position in fetched.positions.items())
    assert seen == {0: 40, 1: 40}


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_a_start_within_a_compressed_batch_is_exact(shared, client, compression):
    topic = filled(shared, f"packed-{compression}", [50], compression=compression)
    assert Read(client, part(topic, 0, 17, 33)).offsets() == list(range(17, 33))


def test_gaps_of_transactions_are_passed_and_the_end_needs_no_record(shared, client):
    topic = shared.create("transactions")
    produce_in_transaction(shared.brokers, topic, [b"a"], commit=True, partition=0)
    high = client.bounds([TopicPartition(topic, 0)], COMMITTED)[TopicPartition(topic, 0)].latest
    assert high == 2  # the record, and the marker behind it
    read = Read(client, part(topic, 0, 0, high))
    assert (read.offsets(), read.next, read.done) == ([0], {0: 2}, {0})


def test_what_arrives_after_planning_is_left_for_the_next_run(shared, client):
    topic = filled(shared, "later", [5])
    produce(shared.brokers, topic, [b"late"] * 5, partition=0)
    read = Read(client, part(topic, 0, 0, 5))
    assert (read.offsets(), read.next, read.done) == (list(range(5)), {0: 5}, {0})


def test_a_reader_that_is_left_can_be_continued_from_its_positions(shared, client):
    topic = filled(shared, "left", [30])
    reader = client.read([part(topic, 0, 0, 30)], "nearest", 5, 10)
    first = next(fetched for fetched in reader if fetched.batch.num_rows)
    reader.close()
    next_ = first.positions[TopicPartition(topic, 0)]
    rest = Read(client, part(topic, 0, next_.next, 30, leader_epoch=next_.leader_epoch))
    assert first.batch["_offset"].to_pylist() + rest.offsets() == list(range(30))


# ---------------------------------------------------------------- offsets that are gone


@pytest.mark.parametrize(
    ("reset", "moved", "offsets", "done"),
    [
        ("nearest", {0: 4}, list(range(4, 10)), {0, 1}),
        ("earliest", {0: 4}, list(range(4, 10)), {0, 1}),
        ("latest", {0: 10}, [], {0, 1}),
        ("skip", {}, [], {1}),
        ("fail", {}, [], {1}),
    ],
)
def test_a_start_that_retention_overtook_follows_the_reset_of_its_partition(mock_kafka, reset, moved, offsets, done):
    topic = filled(mock_kafka, "t", [10, 10])
    mock_kafka.delete_records(topic, 0, 4)
    client = open_client({"bootstrap.servers": mock_kafka.brokers})
    read = Read(client, part(topic, 0, 1, 10), part(topic, 1, 0, 10), reset=reset)
    assert (read.moved, read.offsets(0), read.done) == (moved, offsets, done)
    assert read.offsets(1) == list(range(10))
    if 0 in done:
        assert (read.next[0], read.failed) == (10, {})
    else:
        assert read.next[0] == 1
        assert (
            f"offset 1 is out of range, the partition has [4, 10) (reset.on.offset.out.of.range={reset})"
            in (read.failed[0])
        )


@pytest.mark.parametrize(
    ("reset", "moved", "offsets"),
    [("nearest", 10, []), ("latest", 10, []), ("earliest", 0, list(range(10)))],
)
def test_a_start_behind_the_end_follows_the_reset(shared, client, reset, moved, offsets):
    topic = filled(shared, f"beyond-{reset}", [10])
    read = Read(client, part(topic, 0, 20, 30), reset=reset)
    assert (read.moved, read.offsets(), read.next, read.done) == ({0: moved}, offsets, {0: 10}, {0})


def test_a_planned_end_that_was_deleted_too_moves_to_what_is_left(mock_kafka):
    topic = filled(mock_kafka, "t", [20])
    mock_kafka.delete_records(topic, 0, 15)
    read = Read(open_client({"bootstrap.servers": mock_kafka.brokers}), part(topic, 0, 1, 10))
    assert (read.moved, read.offsets(), read.next, read.done) == ({0: 15}, [], {0: 15}, {0})


def test_a_log_that_was_cut_back_is_noticed_by_the_leader_epoch(shared, client):
    topic = filled(shared, "cut", [10])
    read = Read(client, part(topic, 0, 12, 30, leader_epoch=0))
    assert (read.moved, read.next) == ({0: 10}, {0: 10})
    read = Read(client, part(topic, 0, 12, 30, leader_epoch=0), reset="fail")
    assert "no longer what it was, the log was cut back to 10" in read.failed[0]


def test_an_unknown_reset_is_refused(client):
    with pytest.raises(JobError, match="'sometimes' is none of nearest, earliest, latest, skip, fail"):
        client.read([part("t", 0, 0, 1)], "sometimes", 5)


# ---------------------------------------------------------------- partitions and brokers that fail


def test_a_partition_without_a_leader_fails_after_the_timeout_and_others_go_on(mock_kafka):
    topic = filled(mock_kafka, "t", [10, 10])
    mock_kafka.set_leader(topic, 0, -1)
    client = open_client({"bootstrap.servers": mock_kafka.brokers})
    read = Read(client, part(topic, 0, 3, 10), part(topic, 1, 0, 10), timeout_s=1)
    assert (read.done, read.offsets(1), read.next[0]) == ({1}, list(range(10)), 3)
    assert read.failed == {
        0: f"{mock_kafka.brokers}: no progress for 1 s at offset 3 (planned end 10): the brokers sent nothing"
    }


def test_a_refused_partition_fails_at_once_and_others_go_on(mock_kafka):
    topic = filled(mock_kafka, "t", [10, 10])
    mock_kafka.fail_partition(topic, 0, FETCH, TOPIC_DENIED)
    client = open_client({"bootstrap.servers": mock_kafka.brokers})
    read = Read(client, part(topic, 0, 0, 10), part(topic, 1, 0, 10), timeout_s=30)
    assert (read.done, read.next) == ({1}, {0: 0, 1: 10})
    assert "Topic authorization failed" in read.failed[0]


def test_a_planned_end_that_never_comes_fails_with_the_offset_where_the_partition_ends(shared, client):
    topic = filled(shared, "short", [10])
    read = Read(client, part(topic, 0, 0, 15), timeout_s=0.5)
    assert (read.offsets(), read.next) == (list(range(10)), {0: 10})
    assert "at offset 10 (planned end 15): the partition ends at offset 10" in read.failed[0]


def test_errors_that_pass_are_waited_out(mock_kafka):
    topic = filled(mock_kafka, "t", [10])
    mock_kafka.fail(FETCH, NOT_LEADER, NOT_LEADER)
    read = Read(open_client({"bootstrap.servers": mock_kafka.brokers}), part(topic, 0, 0, 10), timeout_s=30)
    assert (read.offsets(), read.failed) == (list(range(10)), {})


def test_brokers_that_go_away_fail_the_partitions_with_the_reason(mock_kafka):
    topic = filled(mock_kafka, "t", [10])
    client = open_client({"bootstrap.servers": mock_kafka.brokers})
    mock_kafka.down()
    read = Read(client, part(topic, 0, 4, 10), timeout_s=0.5)
    assert read.next == {0: 4}
    assert mock_kafka.brokers in read.failed[0]
    assert "Connection refused" in read.failed[0]


def test_while_nothing_comes_the_caller_is_asked_every_second(mock_kafka):
    topic = filled(mock_kafka, "t", [1])
    client = open_client({"bootstrap.servers": mock_kafka.brokers})
    mock_kafka.down()
    first = next(client.read([part(topic, 0, 0, 1)], "nearest", 30))
    assert (first.batch.num_rows, first.positions, first.done, first.failed) == (0, {}, frozenset(), {})


def test_time_that_the_caller_takes_is_not_counted(shared, client):
    topic = filled(shared, "slow", [20, 0])
    got = 0
    for fetched in client.read([part(topic, 0, 0, 20), part(topic, 1, 0, 1)], "nearest", 0.8, 7):
        got += fetched.batch.num_rows
        if fetched.batch.num_rows:
            time.sleep(0.4)
            assert not fetched.failed
    assert got == 20


def test_unreachable_brokers_are_named_within_the_timeout():
    client = open_client({"bootstrap.servers": "127.0.0.1:1"}, timeout_s=0.3)
    with pytest.raises(
        IngestError, match=r"127.0.0.1:1: no broker answered within 0.3 s: .*refused.*Check kafka.brokers"
    ):
        client.topics()
    (bounds,) = client.bounds([TopicPartition("t", 0)], COMMITTED).values()
    assert "127.0.0.1:1" in bounds.error


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "kafka.brokers: no broker is named"),
        ({"bootstrap.servers": "h:1", "no.such.setting": "1"}, "cannot be set up: No such configuration property"),
        ({"bootstrap.servers": "h:1", "fetch.wait.max.ms": "soon"}, "cannot be set up: Invalid value"),
        ({"bootstrap.servers": "h:1", "isolation.level": "serial"}, "'serial' is neither read_committed nor read_unc"),
    ],
)
def test_settings_that_the_library_does_not_take_are_job_errors(settings, words):
    with pytest.raises(JobError, match=words):
        open_client(settings)


def test_secrets_are_not_in_errors():
    settings = {"bootstrap.servers": "h:1", "security.protocol": "ssl", "ssl.key.pem": "hush-hush"}
    with pytest.raises(JobError) as caught:
        open_client(settings)
    assert "hush" not in str(caught.value)
    client = open_client({"bootstrap.servers": "h:1", "sasl.password": "hush"})
    assert client.safe("the password hush is wrong") == "the password *** is wrong"


def test_what_exactness_needs_cannot_be_set_otherwise():
    given = {
        "bootstrap.servers": "h:1",
        "enable.auto.commit": "true",
        "auto.offset.reset": "latest",
        "group.id": "mine",
        "max.partition.fetch.bytes": "1000000",
        "queued.max.messages.kbytes": "77",
    }
    made = consumer_settings(open_client(given, isolation="read_uncommitted"))
    assert (made["enable.auto.commit"], made["auto.offset.reset"], made["isolation.level"]) == (
        "false",
        "error",
        "read_uncommitted",
    )
    assert (made["group.id"], made["queued.max.messages.kbytes"]) == ("mine", "77")
    assert "fetch.message.max.bytes" not in made


def test_readers_share_the_memory_budget():
    shares = [
        int(consumer_settings(open_client({"bootstrap.servers": "h:1"}, readers=n, budget=128 << 20))[name])
        for n in (1, 4)
        for name in ("queued.max.messages.kbytes",)
    ]
    assert shares == [128 << 10, 32 << 10]


def test_the_library_logs_nothing_to_standard_error(mock_kafka, capfd, caplog):
    topic = filled(mock_kafka, "t", [1])
    capfd.readouterr()
    caplog.set_level(logging.CRITICAL, "lakesql.kafka")
    client = open_client({"bootstrap.servers": mock_kafka.brokers}, timeout_s=0.5)
    mock_kafka.down()
    Read(client, part(topic, 0, 0, 1), timeout_s=0.5)
    with pytest.raises(IngestError):
        client.topics()
    assert capfd.readouterr() == ("", "")


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(JobError, match=r"pip install 'lakesql\[kafka\]'"):
        open_client({"bootstrap.servers": "h:1"})


def test_large_messages_make_small_batches(shared, client, monkeypatch):
    monkeypatch.setattr("lakesql.ingest.kafka_read.BATCH_BYTES", 10_000)
    topic = shared.create("large")
    produce(shared.brokers, topic, [b"x" * 1000] * 100, partition=0)
    read = Read(client, part(topic, 0, 0, 100), rows=50)
    sizes = [fetched.batch.num_rows for fetched in read.fetches if fetched.batch.num_rows]
    assert read.offsets() == list(range(100))
    assert max(sizes[1:]) <= 10


HELD = """
import sys, time
from pathlib import Path
from lakesql.ingest.kafka import open_client
from lakesql.ingest.model import Range

def resident():
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) >> 10

client = open_client({"bootstrap.servers": sys.argv[1]}, budget=0, readers=1)  # the smallest share, 8 MB
list(client.read([Range("t", 0, 0, 1, "warm")], "fail", 10))
before = resident()
reader = client.read([Range("t", partition, 0, 40, "x") for partition in range(20)], "fail", 10, 10)
next(reader)
time.sleep(0.7)
print(resident() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="resident memory is read from /proc")
def test_messages_fetched_ahead_stay_within_the_budget(mock_kafka):
    topic = mock_kafka.create("t", 20)
    for partition in range(20):  # 80 MB, which a reader could fetch at once
        produce(mock_kafka.brokers, topic, [os.urandom(100_000)] * 40, partition=partition)
    done = subprocess.run([sys.executable, "-c", HELD, mock_kafka.brokers], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 40
