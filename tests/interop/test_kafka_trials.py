"""Trials against Apache Kafka that need its log cleaner, its TLS, or tables that others made and take back."""

import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import lakesql
from lakesql.errors import IngestConflict, IngestError
from lakesql.ingest.kafka import open_client
from tests.interop import rust
from tests.kafka.broker import Broker
from tests.kafka.produce import Record, produce, produce_in_transaction
from tests.kafka.tls import Authority
from tests.unit.test_cleaning_golden import unpacked

KEYED = "TBLPROPERTIES (type = 'mor', primaryKey = 'id', preCombineField = 'ts')"
BY_KEY = "FORMAT JSON (columns 'id BIGINT, ts BIGINT', key 'json', key_columns 'id')"


def value(number: int, ts: int = 0) -> bytes:
    return json.dumps({"id": number, "ts": ts}).encode()


def ingest(broker: Broker, topic: str, into: str, rest: str, **more: str) -> str:
    known = {"kafka.brokers": broker.brokers, "topic.whitelist": topic, "bootstrap.with.offset": "earliest"}
    given = ", ".join(f"'{key}' = '{text}'" for key, text in (known | more).items())
    return f"INGEST INTO {into} FROM KAFKA OPTIONS ({given}) {rest}"


def rows(con: lakesql.Connection, sql: str) -> list[Any]:
    return con.execute(sql).fetchall()


@pytest.fixture
def con(tmp_path: Path):
    with lakesql.connect(warehouse=tmp_path / "lake") as found:
        yield found


# ---------------------------------------------------------------- compaction


def kept(broker: Broker, topic: str) -> list[tuple[int, bytes | None]]:
    """(offset, key) of what the topic still has."""
    with lakesql.connect() as con:
        return rows(
            con, f"SELECT _offset, decode(_key) FROM kafka_scan('{topic}', brokers := '{broker.brokers}', rows := NULL)"
        )


def compacted(broker: Broker, topic: str, before: int) -> list[tuple[int, bytes | None]]:
    """What is left once the log cleaner has been at it: fewer records than before."""
    deadline = time.monotonic() + 20
    while len(found := kept(broker, topic)) >= before:
        assert time.monotonic() < deadline, "the log cleaner did not come"
        time.sleep(0.1)
    return found


def test_compaction_and_markers_leave_gaps_that_lose_and_double_nothing(kafka_broker, topic_name, con):
    settings = {"cleanup_policy": "compact", "segment_ms": "200", "min_cleanable_dirty_ratio": "0.01"}
    kafka_broker.create(topic_name, 1, **settings, delete_retention_ms="60000", min_compaction_lag_ms="0")
    expected: dict[int, int] = {}

    def write(ts: int, keys: range, *, commit: bool | None = None) -> None:
        records = [Record(value(n, ts), b"%d" % n) for n in keys]
        if commit is None:
            produce(kafka_broker.brokers, topic_name, records)
        else:
            produce_in_transaction(kafka_broker.brokers, topic_name, records, commit=commit, partition=0)
        if commit is not False:
            expected.update(dict.fromkeys(keys, ts))
        time.sleep(0.25)  # the next record begins another segment

    write(1, range(40))
    write(2, range(30), commit=True)
    write(3, range(40), commit=False)
    write(4, range(20))
    produce(kafka_broker.brokers, topic_name, [Record(None, b"%d" % n) for n in (1, 35)])
    for gone in (1, 35):
        del expected[gone]
    time.sleep(0.25)
    write(5, range(100, 101))
    found = compacted(kafka_broker, topic_name, 40 + 30 + 20 + 3)
    assert found[0][0] > 0
    rows(con, ingest(kafka_broker, topic_name, "orders", f"{BY_KEY} {KEYED}"))
    assert rows(con, "SELECT id, ts FROM orders ORDER BY id") == sorted(expected.items())
    [(records, following)] = rows(con, "SELECT records, next FROM kafka_offsets('orders')")
    assert len(kept(kafka_broker, topic_name)) <= records <= len(found) < following  # the cleaner comes when it likes
    # what the next run would begin with is compacted away before it comes
    write(6, range(50))
    write(7, range(50))
    write(8, range(100, 101))
    later = compacted(kafka_broker, topic_name, len(found) + 101)
    deadline = time.monotonic() + 30
    while min(offset for offset, _ in later if offset >= following) == following and time.monotonic() < deadline:
        time.sleep(0.2)
        later = compacted(kafka_broker, topic_name, len(found) + 101)
    assert min(offset for offset, _ in later if offset >= following) > following
    rows(con, ingest(kafka_broker, topic_name, "orders", f"{BY_KEY} {KEYED}"))
    assert rows(con, "SELECT id, ts FROM orders ORDER BY id") == sorted(expected.items())
    assert rows(con, "SELECT lag, lost FROM kafka_offsets('orders')") == [(0, 0)]


# ---------------------------------------------------------------- TLS


def test_certificates_are_passed_on_and_what_is_wrong_with_them_is_told(kafka_broker, topic_name, con, tmp_path):
    kafka_broker.create(topic_name)
    produce(kafka_broker.brokers, topic_name, [value(n) for n in range(3)])
    certificate, key = kafka_broker.authority.sign("client", password="key-s3cret")
    good = {
        "kafka.brokers": kafka_broker.encrypted,
        "security.protocol": "SSL",
        "ssl.ca.location": str(kafka_broker.authority.certificate),
        "ssl.certificate.location": str(certificate),
        "ssl.key.location": str(key),
        "ssl.key.password": "key-s3cret",
    }
    rows(con, ingest(kafka_broker, topic_name, "orders", "FORMAT JSON", **good))
    assert rows(con, "SELECT count(*) FROM orders") == [(3,)]
    other = Authority(tmp_path / "other")
    foreign, foreign_key = other.sign("client")
    wrong = {
        "the authority": ({"ssl.ca.location": str(other.certificate)}, "certificate verify failed"),
        "the client": (
            {"ssl.certificate.location": str(foreign), "ssl.key.location": str(foreign_key), "ssl.key.password": ""},
            r"refuse the connection: .*certificate.*ssl\.\* settings",
        ),
        "the password": ({"ssl.key.password": "guessed-it"}, "ssl.key"),
        "the file": (
            {"ssl.ca.location": str(tmp_path / "nowhere.pem")},
            r"There is no file .*nowhere.pem \(ssl.ca.location\)",
        ),
        "no TLS": ({"security.protocol": "plaintext"}, r"security\.protocol"),
    }
    for what, (change, text) in wrong.items():
        settings = {k: v for k, v in {**good, **change}.items() if k != "kafka.brokers" and v}
        begun = time.monotonic()
        with pytest.raises(IngestError, match=text) as caught:
            open_client({**settings, "bootstrap.servers": kafka_broker.encrypted}, timeout_s=2).topics()
        assert time.monotonic() - begun < 5, what
        assert not any(secret in str(caught.value) for secret in ("key-s3cret", "guessed-it"))


# ---------------------------------------------------------------- tables that are taken back


def test_a_table_taken_back_beside_a_running_ingestion_has_every_record_once(kafka_broker, topic_name, con):
    kafka_broker.create(topic_name, 2)
    for partition in (0, 1):
        numbers = range(partition * 300, partition * 300 + 300)
        produce(kafka_broker.brokers, topic_name, [value(n) for n in numbers], partition=partition)
    first = {"extract.limit.enabled": "true", "extract.limit.type": "count", "extract.limit.count.limit": "100",
             "mr.job.max.mappers": "1"}  # fmt: skip
    rows(con, ingest(kafka_broker, topic_name, "orders", "FORMAT JSON", **first))
    point = con.last_result.instant
    rows(con, f"CALL create_savepoint(table => 'orders', commit_time => '{point}')")
    slow = {"extract.limit.enabled": "true", "extract.limit.type": "rate", "extract.limit.rateLimit": "100",
            "lakesql.commit.interval": "0.2", "mr.job.max.mappers": "1"}  # fmt: skip
    outcome: list[Any] = []

    def run() -> None:
        with lakesql.connect(warehouse=Path(con.warehouse)) as own:
            try:
                outcome.append(rows(own, ingest(kafka_broker, topic_name, "orders", "FORMAT JSON", **slow)))
            except IngestConflict as error:
                outcome.append(error)

    running = threading.Thread(target=run)
    running.start()
    count = "SELECT count(*) FROM orders"
    deadline = time.monotonic() + 20
    while rows(con, count) == [(100,)]:  # until the running one has committed something
        assert time.monotonic() < deadline
        time.sleep(0.05)
    rows(con, "CALL rollback_to_savepoint(table => 'orders')")
    assert rows(con, "SELECT sum(next) FROM kafka_offsets('orders')") == [(100,)]
    running.join()
    assert isinstance(outcome[0], IngestConflict) or "faster" in str(outcome[0])
    assert rows(con, count) == [(100,)]
    rows(con, ingest(kafka_broker, topic_name, "orders", "FORMAT JSON"))
    assert rows(con, "SELECT count(*), count(DISTINCT id), min(id), max(id) FROM orders") == [(600, 600, 0, 599)]


# ---------------------------------------------------------------- tables of Apache Hudi


@pytest.mark.parametrize(
    "name", ["h015_late_commit_cow", "h015_late_event_mor", "h102_late_commit_mor", "h102_late_event_cow"]
)
def test_tables_of_apache_hudi_take_many_commits_and_are_read_by_hudi_rs(kafka_broker, topic_name, tmp_path, name):
    kafka_broker.create(topic_name, 2)
    path = unpacked(name, tmp_path)
    version = "6" if name.startswith("h015") else "8"
    assert lakesql.open_table(path).properties["hoodie.table.version"] == version
    records = [
        json.dumps({"id": str(n % 40), "v": f"v{n}", "ts": 1_000_000 + n, "part": "abc"[n % 40 % 3]}).encode()
        for n in range(240)
    ]
    for partition in (0, 1):
        own = [r for n, r in enumerate(records) if n % 40 % 2 == partition]
        produce(kafka_broker.brokers, topic_name, own, partition=partition)
    slow = {"extract.limit.enabled": "true", "extract.limit.type": "rate", "extract.limit.rateLimit": "40",
            "lakesql.commit.interval": "0.1", "hoodie.table.timeline.timezone": "UTC",
            "mr.job.max.mappers": "1"}  # fmt: skip
    with lakesql.connect(warehouse=tmp_path / "lake") as con:
        before = lakesql.open_table(path).history().num_rows
        rows(con, ingest(kafka_broker, topic_name, f"'{path}'", "FORMAT JSON", **slow))
    table = lakesql.open_table(path)
    assert table.history().num_rows - before >= 3
    assert table.properties["hoodie.table.version"] == version
    columns = ["_hoodie_record_key", "_hoodie_partition_path", "v", "ts"]
    ours = table.read(columns=columns).read_all().to_pylist()
    theirs = rust.read(path).select(columns).to_pylist()
    assert sorted(map(repr, theirs)) == sorted(map(repr, ours))
    newest = {row["_hoodie_record_key"]: row["v"] for row in ours}
    assert all(newest[str(n)] == f"v{200 + n}" for n in range(40))


# ---------------------------------------------------------------- replays


def test_a_replay_leaves_what_one_reading_does_tombstones_and_all(kafka_broker, topic_name, con):
    kafka_broker.create(topic_name, 2)
    begun = int(time.time() * 1000)
    produced = [Record(value(n, 1), b"%d" % n, timestamp_ms=begun + n) for n in range(8)]
    later = [Record(None, b"3"), Record(value(3, 5), b"3"), Record(None, b"4"), Record(value(5, 9), b"5")]
    for records in (produced, [Record(r.value, r.key, timestamp_ms=begun + 100) for r in later]):
        produce(kafka_broker.brokers, topic_name, records, partition=0)
    rows(con, f"CREATE INGESTION o AS {ingest(kafka_broker, topic_name, 'orders', f'{BY_KEY} {KEYED}')}")
    rows(con, "RUN INGESTION o")
    select = "SELECT id, ts FROM orders ORDER BY id"
    expected = [(0, 1), (1, 1), (2, 1), (3, 5), (5, 9), (6, 1), (7, 1)]
    assert rows(con, select) == expected
    rows(con, "DELETE FROM orders WHERE id IN (2, 5)")
    stored = rows(con, "SELECT * FROM kafka_offsets('orders')")
    for place in ("earliest", f"timestamp '{begun + 2}'", "(0 = 2)"):
        rows(con, f"REPLAY INGESTION o FROM {place}")
        assert rows(con, select) == expected
    assert rows(con, "SELECT * FROM kafka_offsets('orders')") == stored
    rows(con, "RUN INGESTION o")
    assert rows(con, "SELECT * FROM kafka_offsets('orders')") == stored
