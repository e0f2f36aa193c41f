"""The sample that says columns: a matter of the plan, not of which task is first."""

import json
import threading
from typing import Any

import pyarrow as pa
import pytest

import lakesql
from lakesql.errors import IngestError
from lakesql.ingest import sampling
from lakesql.ingest.decode import decoder_factory
from lakesql.ingest.model import Fetched, Format, Plan, Position, Range
from lakesql.ingest.sampling import Sampling
from tests.kafka.produce import Record, produce
from tests.kafka.registry import TestRegistry
from tests.unit.ingest.cluster import job
from tests.unit.ingest.messages import avro, batch, rows


class Log:
    """A client that reads what is there: topic and partition -> (offset, value); `size` records at a time."""

    def __init__(self, logs: dict[tuple[str, int], list[tuple[int, bytes]]], size: int = 3, back: bool = False) -> None:
        self.logs, self.size, self.back = logs, size, back
        self.reads: list[list[tuple[int, int, int]]] = []

    def read(self, ranges: list[Range], reset: str, timeout_s: float) -> Any:
        del reset, timeout_s
        self.reads.append([(one.partition, one.low, one.high) for one in ranges])
        for one in reversed(ranges) if self.back else ranges:
            left = [r for r in self.logs[one.at] if one.low <= r[0] < one.high]
            while True:
                head, left = left[: self.size], left[self.size :]
                given = numbered(one.topic, one.partition, head)
                done = frozenset() if left else frozenset({one.at})
                yield Fetched(given, {one.at: Position(one.high)}, done)
                if not left:
                    break


def numbered(topic: str, partition: int, records: list[tuple[int, bytes]]) -> pa.RecordBatch:
    given = batch([value for _, value in records], topics=[topic] * len(records))
    given = given.set_column(1, "_partition", pa.array([partition] * len(records), pa.int32()))
    return given.set_column(2, "_offset", pa.array([offset for offset, _ in records], pa.int64()))


def sample(client: Log, *ranges: Range, stop: bool = False) -> Sampling:
    event = threading.Event()
    if stop:
        event.set()
    return Sampling(client, job(), Plan("j", ranges, ()), event)  # type: ignore[arg-type]


def places(found: pa.RecordBatch) -> list[tuple[int, int]]:
    return list(zip(found.column("_partition").to_pylist(), found.column("_offset").to_pylist(), strict=True))


def test_a_sample_has_the_first_records_of_every_range_however_they_are_read(monkeypatch):
    monkeypatch.setattr(sampling, "ROWS", 4)
    logs = {("t", n): [(o, b"%d" % o) for o in range(10)] for n in (0, 1)} | {("u", 0): [(0, b"0")]}
    ranges = [Range("t", 1, 2, 10, ""), Range("u", 0, 0, 1, ""), Range("t", 0, 0, 10, ""), Range("t", 2, 5, 5, "")]
    for size in (1, 3, 100):
        for back in (False, True):
            client = Log(logs, size, back)
            assert places(sample(client, *ranges)("t")) == [(0, 0), (0, 1), (1, 2), (1, 3)]
            assert client.reads == [[(0, 0, 2), (1, 2, 4)]]


def test_ranges_that_begin_with_nothing_are_read_on_until_there_is_something(monkeypatch):
    monkeypatch.setattr(sampling, "ROWS", 4)
    logs = {("t", 0): [], ("t", 1): [(o, b"x") for o in range(50, 90)]}
    client = Log(logs)
    assert places(sample(client, Range("t", 0, 0, 9, ""), Range("t", 1, 0, 90, ""))("t")) == [
        (1, o) for o in range(50, 54)
    ]
    assert sample(client)("t").num_rows == 0


def test_a_sample_is_bounded_in_bytes_and_in_partitions(monkeypatch):
    monkeypatch.setattr(sampling, "BYTES", 100)
    large = {("t", 0): [(o, b"x" * 60) for o in range(10)]}
    assert len(places(sample(Log(large), Range("t", 0, 0, 10, ""))("t"))) == 2
    many = {("t", n): [(0, b"x")] for n in range(200)}
    client = Log(many)
    sample(client, *(Range("t", n, 0, 1, "") for n in range(200)))("t")
    assert [one[0] for one in client.reads[0]] == list(range(0, 200, 4))


def test_a_run_that_stops_does_not_wait_for_its_sample():
    with pytest.raises(IngestError, match="was stopped"):
        sample(Log({("t", 0): [(0, b"x")]}), Range("t", 0, 0, 1, ""), stop=True)("t")


# ---------------------------------------------------------------- what decoders make of it

FIRST = [{"id": 1, "v": 1}, {"id": 2, "v": 2.5}]
OTHER = [{"id": "text", "w": True}]


def test_columns_do_not_depend_on_the_batch_that_comes_first():
    for order in ((FIRST, OTHER), (OTHER, FIRST)):
        make = decoder_factory(Format("json"), sample=lambda _: batch(FIRST))
        found = [make().decode(batch(values)) for values in order]
        assert {str(one.rows.schema) for one in found} == {str(found[0].rows.schema)}
        assert found[0].rows.schema.names[:2] == ["id", "v"]
        assert [one.bad.num_rows for one in found] == [0, 1] or [one.bad.num_rows for one in found] == [1, 0]


def test_each_topic_has_a_sample_of_its_own():
    of = {"a": batch([{"id": 1}]), "b": batch([{"id": 1.5, "b": "x"}])}
    make = decoder_factory(Format("json"), sample=of.__getitem__)
    found = make().decode(batch([{"id": 7}, {"id": 8, "b": "y"}], topics=["a", "b"]))
    assert rows(found.rows) == [{"id": 7.0, "b": None}, {"id": 8.0, "b": "y"}]


def test_keys_and_envelopes_take_their_columns_from_the_sample():
    options = {"lakesql.key.format": "json", "lakesql.key.columns": "id"}
    make = decoder_factory(Format("json", options=options), sample=lambda _: batch([{"v": 1}, {"v": 1}], ["1", "2.5"]))
    found = make().decode(batch([{"v": 5}], ["3"]))
    assert rows(found.rows) == [{"v": 5, "id": 3.0}]
    change = {"op": "c", "ts_ms": 1, "source": {"connector": "postgresql", "lsn": 5}, "after": {"id": 1, "v": "x"}}
    make = decoder_factory(Format("json", options={"lakesql.envelope": "debezium"}), sample=lambda _: batch([change]))
    later = {"op": "d", "ts_ms": 2, "source": {"connector": "postgresql", "lsn": 6}, "before": {"id": 2}}
    assert rows(make().decode(batch([later])).rows)[0].items() >= {"_event_lsn": 6, "id": 2, "v": None}.items()


def test_a_sample_without_documents_leaves_it_to_the_first_batch():
    make = decoder_factory(Format("json"), sample=lambda _: batch(["no JSON", b"\xff"]))
    assert rows(make().decode(batch([{"a": 1}])).rows) == [{"a": 1}]


def test_the_reader_of_avro_without_a_subject_is_the_newest_of_the_sample():
    with TestRegistry() as server:
        schemas = [{"type": "record", "name": "R", "fields": [{"name": n, "type": "int"}]} for n in "ab"]
        numbers = [server.add("none", one).number for one in schemas]
        old, new = (avro(s, {n: 1}, number) for s, n, number in zip(schemas, "ab", numbers, strict=True))
        make = decoder_factory(Format("avro", "confluent", server.url), sample=lambda _: batch([old, new]))
        assert make().decode(batch([old])).rows.schema.names[0] == "b"


# ---------------------------------------------------------------- a table that takes new columns

TABLE = pa.schema([("id", pa.int64()), ("v", pa.int32()), ("_hoodie_record_key", pa.string())])


def test_a_table_that_evolves_gets_the_new_keys_of_the_sample():
    documents = [
        {"id": 1, "v": 1, "new": 1.5, "V": 3, "_hoodie_commit_time": "x", "_offset": 7, "nothing": None},
        {"id": 2, "o": {"k": [1]}},
    ]
    make = decoder_factory(Format("json"), TABLE, sample=lambda _: batch(documents), evolve=True)
    found = make().decode(batch([{"id": 3, "v": 4, "new": 2, "later": 1}]))
    assert rows(found.rows) == [{"id": 3, "v": 4, "new": 2.0, "o": None}]
    assert found.rows.schema.field("v").type == pa.int32()
    assert rows(decoder_factory(Format("json"), TABLE)().decode(batch(documents)).rows)[0] == {"id": 1, "v": 1}


def test_unknown_keys_that_are_kept_are_those_that_have_no_column():
    options = {"lakesql.json.unknown.keys": "keep"}
    hint = pa.schema([("id", pa.int64()), ("_rest", pa.string())])
    given = batch([{"id": 1, "n": 5}])
    plain = decoder_factory(Format("json", options=options), hint)().decode(given)
    assert rows(plain.rows) == [{"id": 1, "_rest": '{"n":5}'}]
    wide = decoder_factory(Format("json", options=options), hint, sample=lambda _: given, evolve=True)()
    assert rows(wide.decode(batch([{"id": 1, "n": 5, "m": 6}])).rows) == [{"id": 1, "n": 5, "_rest": '{"m":6}'}]


# ---------------------------------------------------------------- a whole run

OPTIONS = "'kafka.brokers' = '{}', 'topic.whitelist' = 'orders', 'bootstrap.with.offset' = 'earliest'"


def types(con: lakesql.Connection) -> dict[str, str]:
    found = con.execute("SELECT column_name, column_type FROM (DESCRIBE orders)").fetchall()
    return {name: kind for name, kind in found if not name.startswith("_hoodie")}


@pytest.mark.parametrize("workers", [1, 4])
def test_a_table_has_the_same_columns_whichever_task_is_first(mock_kafka, tmp_path, workers):
    mock_kafka.create("orders", 4)
    for partition, value in enumerate((1, 2.5, 3, 4)):
        produce(mock_kafka.brokers, "orders", [Record(json.dumps({"id": partition, "v": value}).encode())] * 5,
                partition=partition)  # fmt: skip
    with lakesql.connect(warehouse=tmp_path) as con:
        more = f", 'mr.job.max.mappers' = '4', 'taskexecutor.threadpool.size' = '{workers}'"
        con.execute(f"INGEST INTO orders FROM KAFKA ({OPTIONS.format(mock_kafka.brokers)}{more}) FORMAT JSON")
        assert types(con) == {"id": "BIGINT", "v": "DOUBLE"}
        assert con.execute("SELECT count(*) FROM orders").fetchall() == [(20,)]


def test_new_keys_become_columns_of_a_table_that_evolves(mock_kafka, tmp_path):
    mock_kafka.create("orders", 1)
    start = f"INGEST INTO orders FROM KAFKA ({OPTIONS.format(mock_kafka.brokers)}"
    rest = ") FORMAT JSON TBLPROPERTIES (type = 'mor', primaryKey = 'id')"
    with lakesql.connect(warehouse=tmp_path) as con:
        produce(mock_kafka.brokers, "orders", [b'{"id": 1, "v": 1}'])
        con.execute(start + rest)
        produce(mock_kafka.brokers, "orders", [b'{"id": 2, "v": 2, "w": "x"}'])
        con.execute(start + rest)
        assert types(con) == {"id": "BIGINT", "v": "BIGINT"}
        produce(mock_kafka.brokers, "orders", [b'{"id": 3, "w": "y", "s": {"k": 1}}', b'{"id": 4, "w": "z"}'])
        con.execute(start + ", 'lakesql.schema.evolve' = 'true'" + rest)
        assert types(con) == {"id": "BIGINT", "v": "BIGINT", "w": "VARCHAR", "s": "STRUCT(k BIGINT)"}
        found = con.execute("SELECT id, v, w, s.k FROM orders ORDER BY id").fetchall()
        assert found == [(1, 1, None, None), (2, 2, None, None), (3, None, "y", 1), (4, None, "z", None)]
