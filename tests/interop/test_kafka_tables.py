"""From Apache Kafka into tables and folders: what the mock cluster cannot show, from the topic to the rows."""

import io
import json
import random
import time
from pathlib import Path

import fastavro
import pytest

import lakesql
from tests.kafka.broker import Broker
from tests.kafka.produce import Record, produce, produce_in_transaction
from tests.kafka.registry import TestRegistry


def value(number: int, ts: int = 0) -> bytes:
    return json.dumps({"id": number, "ts": ts or number}).encode()


def options(broker: Broker, topic: str, **more: str) -> str:
    known = {"kafka.brokers": broker.brokers, "topic.whitelist": topic, "bootstrap.with.offset": "earliest"}
    return ", ".join(f"'{key}' = '{text}'" for key, text in (known | more).items())


def ingest(con: lakesql.Connection, broker: Broker, topic: str, into: str = "orders") -> None:
    con.execute(
        f"INGEST INTO {into} FROM KAFKA OPTIONS ({options(broker, topic)}) FORMAT JSON (columns 'id BIGINT, ts BIGINT', "
        "key 'json', key_columns 'id') TBLPROPERTIES (type = 'mor', primaryKey = 'id', preCombineField = 'ts')"
    )


def ids(con: lakesql.Connection, table: str = "orders") -> list[int]:
    return [row[0] for row in con.execute(f"SELECT id FROM {table} ORDER BY id").fetchall()]


@pytest.fixture
def con(tmp_path: Path):
    with lakesql.connect(warehouse=tmp_path) as found:
        yield found


def test_transactions_codecs_and_tombstones_reach_the_table_once(kafka_broker, topic_name, con):
    kafka_broker.create(topic_name, 2)
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
        records = [Record(value(number * 10 + n), b"%d" % (number * 10 + n)) for n in range(10)]
        produce(kafka_broker.brokers, topic_name, records, partition=0, compression=codec)
    produce_in_transaction(kafka_broker.brokers, topic_name, [value(n) for n in (100, 101)], commit=False, partition=1)
    produce_in_transaction(kafka_broker.brokers, topic_name, [value(n) for n in (102, 103)], commit=True, partition=1)
    ingest(con, kafka_broker, topic_name)
    assert ids(con) == [*range(50), 102, 103]
    stored = con.execute("SELECT sum(records), sum(next) FROM kafka_offsets('orders')").fetchall()
    assert stored == [(52, 50 + 6)]  # two markers of transactions and two aborted records have offsets too
    produce(kafka_broker.brokers, topic_name, [Record(None, b"7"), Record(None, b"102")], partition=1)
    ingest(con, kafka_broker, topic_name)
    assert ids(con) == [n for n in range(50) if n != 7] + [103]


def test_what_retention_took_is_in_the_plan_the_rows_and_the_commit(kafka_broker, topic_name, con):
    kafka_broker.create(topic_name)
    produce(kafka_broker.brokers, topic_name, [value(n) for n in range(5)])
    ingest(con, kafka_broker, topic_name)
    produce(kafka_broker.brokers, topic_name, [value(n) for n in range(5, 20)])
    kafka_broker.delete_records(topic_name, 0, 12)
    ingest(con, kafka_broker, topic_name)
    assert ids(con) == [*range(5), *range(12, 20)]
    [(lost, low, high, following)] = con.execute(
        "SELECT lost, gap_from, gap_to, next FROM kafka_offsets('orders')"
    ).fetchall()
    assert (lost, low, high, following) == (7, 5, 12, 20)


def test_a_topic_made_again_is_read_from_its_start_although_its_offsets_fit(kafka_broker, topic_name, con):
    kafka_broker.create(topic_name)
    produce(kafka_broker.brokers, topic_name, [value(n) for n in range(3)])
    ingest(con, kafka_broker, topic_name)
    kafka_broker.delete(topic_name)
    kafka_broker.create(topic_name)
    produce(kafka_broker.brokers, topic_name, [value(n) for n in range(10, 16)])
    ingest(con, kafka_broker, topic_name)
    assert ids(con) == [0, 1, 2, *range(10, 16)]


def test_a_start_by_time_reads_what_came_since(kafka_broker, topic_name, con):
    kafka_broker.create(topic_name)
    start = int(time.time() * 1000)
    produce(kafka_broker.brokers, topic_name, [Record(value(n), timestamp_ms=start + n * 1000) for n in range(5)])
    since = {"bootstrap.with.offset": "timestamp", "lakesql.bootstrap.timestamp": str(start + 3000)}
    con.execute(f"INGEST INTO t FROM KAFKA OPTIONS ({options(kafka_broker, topic_name, **since)}) FORMAT JSON")
    assert ids(con, "t") == [3, 4]


def test_avro_of_both_registries_goes_into_hourly_folders(kafka_broker, topic_name, con, tmp_path):
    schema = {
        "type": "record", "name": "Event",
        "fields": [{"name": "id", "type": "long"}, {"name": "time", "type": "long"}],
    }  # fmt: skip
    kafka_broker.create(topic_name)
    hour = 3_600_000
    with TestRegistry() as registry:
        entry = registry.add(f"{topic_name}-value", schema)
        for wire, frame in (
            ("confluent", b"\0" + entry.number.to_bytes(4, "big")),
            ("linkedin", b"\0" + bytes.fromhex(entry.md5)),
        ):
            topic = f"{topic_name}-{wire}"
            kafka_broker.create(topic)
            registry.add(f"{topic}-value", schema)
            bodies = []
            for n in range(4):
                body = io.BytesIO()
                fastavro.schemaless_writer(body, schema, {"id": n, "time": 500_000 * hour + n * hour // 2})
                bodies.append(frame + body.getvalue())
            produce(kafka_broker.brokers, topic, bodies)
            folders = {"writer.partition.column.name": "time", "writer.partition.pattern": "yyyy/MM/dd/HH"}
            con.execute(
                f"INGEST INTO FILES '{tmp_path}/{wire}' FROM KAFKA OPTIONS ({options(kafka_broker, topic, **folders)}) "
                f"FORMAT AVRO (wire '{wire}', registry '{registry.url}')"
            )
            found = sorted((tmp_path / wire).rglob("part*.avro"))
            assert len(found) == 2
            for path, expected in zip(found, ([0, 1], [2, 3]), strict=True):
                with path.open("rb") as data:
                    assert [row["id"] for row in fastavro.reader(data)] == expected


def test_killed_runs_on_a_real_broker_lose_nothing(kafka_broker, topic_name, tmp_path, dying_run):
    draw = random.Random(5)
    kafka_broker.create(topic_name, 3)
    statement = (
        f"INGEST INTO orders FROM KAFKA OPTIONS ({options(kafka_broker, topic_name)}) FORMAT JSON "
        "TBLPROPERTIES (type = 'mor', primaryKey = 'id', preCombineField = 'ts')"
    )
    written = 0
    for _ in range(8):
        for _ in range(draw.randint(1, 9)):
            produce(kafka_broker.brokers, topic_name, [value(written)], partition=draw.randrange(3))
            written += 1
        answer = dying_run(statement, tmp_path, draw.randint(1, 40), draw.choice(("before", "torn", "after")))
        assert answer == "killed" or answer.startswith("done"), answer
    assert dying_run(statement, tmp_path, 0, "before").startswith("done")
    assert sorted(
        lakesql.open_table(str(tmp_path / "orders")).read(columns=["id"]).read_all()["id"].to_pylist()
    ) == list(range(written))
