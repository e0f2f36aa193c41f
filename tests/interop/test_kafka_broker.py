"""The Kafka client against Apache Kafka: what the mock cluster cannot do."""

import time

import pytest

from lakesql.errors import IngestError
from lakesql.ingest.kafka import open_client
from lakesql.ingest.model import Bounds, Range, TopicPartition
from tests.kafka.broker import PASSWORD, USER
from tests.kafka.produce import Record, Transaction, produce, produce_in_transaction
from tests.unit.ingest.test_client import COMMITTED, Read, part

UNCOMMITTED = "read_uncommitted"
TINY = {"queued.max.messages.kbytes": "40", "fetch.message.max.bytes": "20000", "fetch.max.bytes": "1000000"}
"""With these the client has fetched little of what it has not given yet."""


@pytest.fixture
def client(kafka_broker):
    return open_client({"bootstrap.servers": kafka_broker.brokers})


@pytest.fixture
def hesitant(kafka_broker):
    """A client that fetches little ahead."""
    return open_client({"bootstrap.servers": kafka_broker.brokers, **TINY})


def bounds(client, topic, isolation=COMMITTED):
    at = TopicPartition(topic, 0)
    return client.bounds([at], isolation)[at]


def eventually(client, topic, latest):
    """The bounds once the markers of transactions have been written, which the broker does behind their end."""
    deadline = time.monotonic() + 10
    while (now := bounds(client, topic)).latest < latest and time.monotonic() < deadline:
        time.sleep(0.02)
    return now


def test_offsets_by_time(kafka_broker, client, topic_name):
    kafka_broker.create(topic_name, 2)
    start = int(time.time() * 1000)  # older records would fall to retention
    records = [Record(b"x", timestamp_ms=start + n * 1000) for n in (1, 2, 3)]
    produce(kafka_broker.brokers, topic_name, records, partition=0)
    zero, one = TopicPartition(topic_name, 0), TopicPartition(topic_name, 1)
    for ms, offset in ((0, 0), (1000, 0), (1001, 1), (3000, 2), (3001, 3)):
        assert client.offsets_at({zero: start + ms, one: start + ms}) == {zero: offset, one: 0}


def test_topics_have_ids_and_added_partitions_are_seen(kafka_broker, client, topic_name):
    def now():
        return next(topic for topic in client.topics() if topic.name == topic_name)

    kafka_broker.create(topic_name)
    first = now()
    kafka_broker.grow(topic_name, 3)
    grown = now()
    kafka_broker.delete(topic_name)
    kafka_broker.create(topic_name)
    again = now()
    assert (first.partitions, grown.partitions, again.partitions) == ((0,), (0, 1, 2), (0,))
    assert first.id == grown.id
    assert again.id not in (None, first.id)
    assert not any(topic.name.startswith("__") for topic in client.topics())


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_from_within_a_batch(kafka_broker, client, topic_name, codec):
    kafka_broker.create(topic_name)
    values = [b"%d" % n * 20 for n in range(300)]
    produce(kafka_broker.brokers, topic_name, values, partition=0, compression=codec, settings={"linger.ms": "50"})
    read = Read(client, part(topic_name, 0, 123, 289))
    assert read.offsets() == list(range(123, 289))
    assert read.table["_value"].to_pylist() == values[123:289]


def test_aborted_records_are_not_read_and_their_gaps_are_passed(kafka_broker, client, topic_name):
    kafka_broker.create(topic_name)
    for commit in (True, False, True, False):
        produce_in_transaction(kafka_broker.brokers, topic_name, [b"yes" if commit else b"no"] * 2, commit=commit)
    assert eventually(client, topic_name, 12) == Bounds(0, 12)  # four times two records and a marker
    read = Read(client, part(topic_name, 0, 0, 12))
    assert (read.offsets(), set(read.table["_value"].to_pylist())) == ([0, 1, 6, 7], {b"yes"})
    assert (read.next, read.done) == ({0: 12}, {0})
    assert Read(client, part(topic_name, 0, 7, 9)).offsets() == [7]
    dirty = open_client({"bootstrap.servers": kafka_broker.brokers}, isolation=UNCOMMITTED)
    assert Read(dirty, part(topic_name, 0, 0, 12)).offsets() == [0, 1, 3, 4, 6, 7, 9, 10]


def test_an_open_transaction_ends_what_can_be_read(kafka_broker, client, topic_name):
    kafka_broker.create(topic_name)
    produce(kafka_broker.brokers, topic_name, [b"before"] * 3, partition=0)
    with Transaction(kafka_broker.brokers) as transaction:
        transaction.send(topic_name, [b"open"] * 2, partition=0)
        assert bounds(client, topic_name) == Bounds(0, 3)
        assert bounds(client, topic_name, UNCOMMITTED) == Bounds(0, 5)
        assert Read(client, part(topic_name, 0, 0, 3)).offsets() == [0, 1, 2]
        transaction.end(commit=True)
    assert eventually(client, topic_name, 6) == Bounds(0, 6)
    assert Read(client, part(topic_name, 0, 3, 6)).offsets() == [3, 4]


def filled(broker, topic, count, **config):
    """One partition with so many records of a thousand bytes, in small batches."""
    broker.create(topic, **config)
    batches = {"batch.size": "20000", "batch.num.messages": "10"}
    produce(broker.brokers, topic, [b"%04d" % n * 250 for n in range(count)], partition=0, settings=batches)


def test_records_deleted_under_the_readers_feet(kafka_broker, hesitant, topic_name):
    filled(kafka_broker, topic_name, 1000)
    offsets, moved = [], {}
    reader = hesitant.read([part(topic_name, 0, 0, 1000)], "nearest", 10, 50)
    for fetched in reader:
        if not offsets:
            kafka_broker.delete_records(topic_name, 0, 800)
        offsets += fetched.batch["_offset"].to_pylist()
        moved.update(fetched.moved)
        assert not fetched.failed
    before = [offset for offset in offsets if offset < 800]
    assert before == list(range(len(before)))
    assert 0 < len(before) < 700
    assert offsets[len(before) :] == list(range(800, 1000))
    assert moved == {TopicPartition(topic_name, 0): 800}


def test_a_broker_that_crashes_and_comes_back_in_mid_fetch(kafka_broker, hesitant, topic_name):
    filled(kafka_broker, topic_name, 1000)
    offsets = []
    for fetched in hesitant.read([part(topic_name, 0, 0, 1000)], "fail", 30, 50):
        if not offsets:
            kafka_broker.restart(kill=True)
        offsets += fetched.batch["_offset"].to_pylist()
        assert not fetched.failed
    assert offsets == list(range(1000))


def test_a_topic_made_again_in_mid_fetch_is_not_taken_for_the_old_one(kafka_broker, hesitant, topic_name):
    filled(kafka_broker, topic_name, 1000)
    (topic,) = (topic for topic in hesitant.topics() if topic.name == topic_name)
    offsets, failed = [], {}
    for fetched in hesitant.read([part(topic_name, 0, 0, 1000, topic_id=topic.id)], "nearest", 3, 50):
        if not offsets:
            kafka_broker.delete(topic_name)
            filled(kafka_broker, topic_name, 1000)
        offsets += fetched.batch["_offset"].to_pylist()
        failed.update(fetched.failed)
    ((at, why),) = failed.items()
    assert at == TopicPartition(topic_name, 0)
    assert "deleted and made again" in why


def test_retention_overtakes_a_stored_offset(kafka_broker, client, topic_name):
    old = int(time.time() * 1000) - 3_600_000
    kafka_broker.create(topic_name, retention_ms="600000", segment_bytes="1048576")
    records = [Record(b"x" * 1000, timestamp_ms=old) for _ in range(1500)]
    produce(kafka_broker.brokers, topic_name, records, partition=0)
    produce(kafka_broker.brokers, topic_name, [b"new"] * 3, partition=0)
    deadline = time.monotonic() + 20
    while (now := bounds(client, topic_name)).earliest == 0 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert 0 < now.earliest < 1503
    read = Read(client, part(topic_name, 0, 5, 1503))
    assert read.moved[0] >= now.earliest
    assert read.offsets() == list(range(read.moved[0], 1503))


def test_a_login_is_passed_on_and_a_wrong_one_is_told_without_the_password(kafka_broker, topic_name):
    kafka_broker.create(topic_name)
    produce(kafka_broker.brokers, topic_name, [b"x"] * 3, partition=0)
    login = {
        "bootstrap.servers": kafka_broker.guarded,
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    client = open_client(login)
    assert topic_name in [topic.name for topic in client.topics()]
    assert Read(client, part(topic_name, 0, 0, 3)).offsets() == [0, 1, 2]
    wrong = open_client({**login, "sasl.password": "guessed-it"}, timeout_s=10)
    with pytest.raises(IngestError, match=r"the brokers refuse the connection: .*[Aa]uthentication failed") as caught:
        wrong.topics()
    assert "guessed-it" not in str(caught.value)
    read = Read(wrong, part(topic_name, 0, 0, 3), timeout_s=0.5)
    assert "uthentication failed" in read.failed[0]


def test_a_truncated_log_is_told_by_the_leader_epoch(kafka_broker, client, topic_name):
    kafka_broker.create(topic_name)
    produce(kafka_broker.brokers, topic_name, [b"x"] * 3, partition=0)
    read = Read(client, Range(topic_name, 0, 7, 9, "stored", leader_epoch=0), reset="fail")
    assert "out of range" in read.failed[0] or "cut back to 3" in read.failed[0]
