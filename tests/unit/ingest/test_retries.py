"""What waits for brokers or a registry says so, to the progress and in the notes of the report."""

import threading
import time

import pytest

import lakesql
from lakesql.errors import IngestError
from lakesql.ingest import kafka_read, retries
from lakesql.ingest.kafka import open_client
from lakesql.ingest.metrics import Metrics, scoped
from lakesql.ingest.model import Range
from lakesql.ingest.progress import Bar, Lines
from lakesql.ingest.registry import Registry
from lakesql.ingest.run import run
from tests.kafka.produce import produce
from tests.unit.ingest.fakes import Broker, FakeClient, FakeDecoder, FakeSink, job, parts


@pytest.fixture
def heard():
    """What a scope hears, as sentences, while it is the current one."""
    metrics, told = Metrics("j"), []
    with scoped(metrics), metrics.heard(retries.Retries(told.append).hear):
        yield told


def test_a_run_notes_what_its_decoder_waited_for_and_tells_it_at_once():
    source, sink, told = Broker().fill("a", 0, 4), FakeSink(), []

    class Waiting(FakeDecoder):
        def decode(self, batch):
            Registry("http://127.0.0.1:9", "confluent")._say("HTTP 503. Asked again in 0.5 s, try 2 of 5.")
            assert any("503" in line for line in told)
            return super().decode(batch)

    given = parts(FakeClient(source, batch=2), sink)
    object.__setattr__(given, "decoder", lambda _: Waiting())
    report = run(job(), given, progress=Lines(told.append))
    [note] = [note for note in report.notes if "503" in note]
    assert note.startswith("Schema registry http://127.0.0.1:9: HTTP 503. Asked again in 0.5 s, try 2 of 5.")
    assert told.count(note) == 1


def test_a_registry_that_is_asked_again_says_which_and_why(heard):
    one = Registry("http://me:geheim@127.0.0.1:9", "confluent", {"schema.registry.retries": "3"}, sleep=lambda _: None)
    with pytest.raises(IngestError):
        one.schemas(["1"])
    assert [text.rpartition(". ")[2] for text in heard] == [
        "Asked again in 0.5 s, try 2 of 3.",
        "Asked again in 1 s, try 3 of 3.",
    ]
    assert all("Schema registry http://127.0.0.1:9: " in text for text in heard)
    assert "geheim" not in "".join(heard)


def test_brokers_that_are_waited_for_are_named_while_the_client_waits(mock_kafka, heard):
    mock_kafka.create("t")
    produce(mock_kafka.brokers, "t", [b"1"])
    mock_kafka.down()
    threading.Timer(1.5, mock_kafka.up).start()
    client = open_client({"bootstrap.servers": mock_kafka.brokers})
    assert [topic.name for topic in client.topics()] == ["t"]
    assert heard
    assert heard[0].startswith(f"{mock_kafka.brokers}: ")
    assert "The brokers are asked again, for " in heard[0]


def test_a_reader_that_makes_no_progress_says_where_and_why(mock_kafka, heard, monkeypatch):
    monkeypatch.setattr(kafka_read, "WAITING_S", 0.2)
    mock_kafka.create("t")
    produce(mock_kafka.brokers, "t", [b"1", b"2"])
    client = open_client({"bootstrap.servers": mock_kafka.brokers})
    reading = client.read([Range("t", 0, 0, 3, "x")], "fail", 1.0)
    began = time.monotonic()
    failed = [one.failed for one in reading if one.failed]
    assert time.monotonic() - began < 10
    assert failed
    assert len(heard) == 1
    assert "t:0 at offset 2: the partition ends at offset 2. The brokers are asked again, for " in heard[0]


def test_in_sql_the_notes_of_the_result_say_it(mock_kafka, tmp_path):
    mock_kafka.create("t")
    produce(mock_kafka.brokers, "t", [b'{"a": 1}'])
    mock_kafka.down()
    threading.Timer(1.5, mock_kafka.up).start()
    with lakesql.connect(warehouse=tmp_path) as con:
        con.execute(
            f"INGEST INTO t FROM KAFKA (kafka.brokers = '{mock_kafka.brokers}', topic.whitelist = 't', "
            "bootstrap.with.offset = earliest) FORMAT JSON"
        )
        assert any("The brokers are asked again" in note for note in con.last_result.notes)


def test_a_bar_shows_it_above_itself(capsys):
    with Bar() as bar:
        bar.note("The brokers [away] are asked again")
    assert "The brokers [away] are asked again" in capsys.readouterr().out
