"""Statements and the command against a Kafka cluster: librdkafka's mock, in this process."""

import json
from functools import partial

import pytest
from typer.testing import CliRunner

import lakesql
from lakesql.cli import app
from lakesql.errors import IngestError
from lakesql.ingest import kafka
from tests.kafka.produce import Record, produce

RUNNER = CliRunner()


@pytest.fixture
def orders(mock_kafka):
    mock_kafka.create("orders", 2)
    for partition in (0, 1):
        records = [
            Record(json.dumps({"id": 10 * partition + i, "ts": i}).encode(), b"k%d" % i, [("h", b"x")])
            for i in range(6)
        ]
        produce(mock_kafka.brokers, "orders", records, partition=partition, compression="lz4")
    return mock_kafka


def test_from_a_topic_to_a_table_and_on(orders, tmp_path):
    options = (
        f"'kafka.brokers' = '{orders.brokers}', 'topic.whitelist' = 'orders', 'bootstrap.with.offset' = 'earliest'"
    )
    with lakesql.connect(warehouse=tmp_path) as con:
        con.execute(
            f"CREATE INGESTION o AS INGEST INTO orders FROM KAFKA ({options}) FORMAT JSON "
            "TBLPROPERTIES (type = 'mor', primaryKey = 'id', preCombineField = 'ts')"
        )
        assert con.execute("SELECT count(*) FROM kafka_scan('orders', brokers := $1)", [orders.brokers]).fetchall() == [
            (12,)
        ]
        con.execute("RUN INGESTION o")
        produce(orders.brokers, "orders", [b'{"id": 3, "ts": 99}', b"no JSON"], partition=0)
        assert con.execute("SELECT sum(lag) FROM kafka_lag('orders')").fetchall() == [(2,)]
        con.execute("RUN INGESTION o")
        assert con.execute("SELECT count(*), max(ts) FROM orders").fetchall() == [(12, 99)]
        assert con.execute("SELECT _offset FROM kafka_quarantine('orders')").fetchall() == [(7,)]
        assert con.execute("SELECT topic, partition, next FROM kafka_offsets('orders')").fetchall() == [
            ("orders", 0, 8),
            ("orders", 1, 6),
        ]


def test_a_job_file_in_two_rounds(orders, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    job = f"""
        source.class=org.apache.gobblin.source.extractor.extract.kafka.KafkaSimpleJsonSource
        kafka.brokers={orders.brokers}
        topic.whitelist=Orders
        bootstrap.with.offset=earliest
        mr.job.max.mappers=1
    """
    (tmp_path / "orders.pull").write_text("\n".join(line.strip() for line in job.splitlines()))
    first = RUNNER.invoke(app, ["ingest", "orders.pull", "--into", "t"])
    assert (first.exit_code, "Actual high watermark for partition orders:1=6, expected=6" in first.output) == (0, True)
    produce(orders.brokers, "orders", [b'{"id": 77, "ts": 0}'], partition=1)
    second = RUNNER.invoke(app, ["ingest", "orders.pull", "--into", "t"])
    assert "Pulling partition orders:1 from offset 6 to 7, range=1 (stored)" in second.output
    with lakesql.connect(warehouse="warehouse") as con:
        assert con.execute("SELECT count(*) FROM t").fetchall() == [(13,)]
        assert {r[0] for r in con.execute("SELECT DISTINCT ingestion FROM kafka_offsets('t')").fetchall()} == {"orders"}


def test_brokers_that_are_not_there_are_an_error(mock_kafka, tmp_path, monkeypatch):
    monkeypatch.setattr(kafka, "open_client", partial(kafka.open_client, timeout_s=0.5))
    mock_kafka.down()
    sql = f"INGEST INTO t FROM KAFKA ('kafka.brokers' = '{mock_kafka.brokers}', 'sasl.password' = 'geheim-xyz')"
    with lakesql.connect(warehouse=tmp_path) as con, pytest.raises(IngestError) as caught:
        con.execute(sql)
    assert mock_kafka.brokers in str(caught.value)
    assert "geheim-xyz" not in str(caught.value)
