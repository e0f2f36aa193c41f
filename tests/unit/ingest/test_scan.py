"""A look into topics without an ingestion: which records, decoded or raw, and what is there."""

import datetime as dt
import json
from dataclasses import dataclass, field

import duckdb
import pyarrow as pa
import pytest

from lakesql.errors import IngestError, JobError
from lakesql.ingest.model import BAD, KAFKA, RAW, Bounds, Decoded, Fetched, Topic, TopicPartition
from lakesql.ingest.scan import OFFSETS, offsets_table, scan
from tests.kafka.mock import LIST_OFFSETS, TOPIC_DENIED, MockCluster
from tests.kafka.produce import produce
from tests.unit.ingest.fetches import raw, reader

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


@dataclass
class Fake:
    """A client over made-up logs: offsets 10 to 19 of t:0, 0 to 4 of t:1; a record's time is its offset in seconds."""

    logs: dict = field(default_factory=lambda: {ZERO: range(10, 20), ONE: range(5)})
    failed: dict = field(default_factory=dict)
    closed: int = 0
    left: int = 0

    def topics(self):
        return [Topic("other", (0,)), Topic("t", (0, 1), "id")]

    def bounds(self, partitions, isolation):
        assert isolation == "read_committed"
        return {at: Bounds(self.logs[at][0], self.logs[at][-1] + 1) for at in partitions}

    def offsets_at(self, times_ms):
        return {
            at: next((n for n in self.logs[at] if n * 1000 >= ms), self.logs[at][-1] + 1) for at, ms in times_ms.items()
        }

    def read(self, ranges, *_how):
        try:
            logs = {one.at: range(one.low, one.high) for one in ranges}
            start = {one.at: one.low for one in ranges}
            yield from reader(logs, [], [2, 2, 2], start, 100)
            yield Fetched(raw([]), {}, failed=self.failed)
        finally:
            self.left += 1

    def close(self):
        self.closed += 1


def offsets(found):
    table = found.read_all() if isinstance(found, pa.RecordBatchReader) else found
    result = {}
    for partition, offset in zip(table["_partition"].to_pylist(), table["_offset"].to_pylist(), strict=True):
        result.setdefault(partition, []).append(offset)
    return result


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {0: list(range(10, 20)), 1: list(range(5))}),
        ({"partitions": [1]}, {1: list(range(5))}),
        ({"start": "latest"}, {}),
        ({"end": "earliest"}, {}),
        ({"start": 3, "end": 12}, {0: [10, 11], 1: [3, 4]}),
        ({"start": {0: 15}, "end": {1: 2}}, {0: list(range(15, 20)), 1: [0, 1]}),
        ({"start": 18, "end": 3}, {}),
        ({"start": dt.datetime(1970, 1, 1, 0, 0, 17)}, {0: [17, 18, 19]}),
        (
            {"start": dt.datetime(1970, 1, 1, 1, 0, 2, tzinfo=dt.timezone(dt.timedelta(hours=1))), "partitions": [1]},
            {1: [2, 3, 4]},
        ),
        ({"end": dt.datetime(1970, 1, 1, 0, 0, 12)}, {0: [10, 11], 1: list(range(5))}),
        ({"limit": 0}, {}),
        ({"limit": 3}, {0: [10, 11, 12]}),
    ],
)
def test_bounds_partitions_and_limit(options, expected):
    found = scan({}, "t", client=Fake(), **options)
    assert found.schema == RAW
    assert offsets(found) == {at: numbers for at, numbers in expected.items() if numbers}


def test_a_stream_that_is_left_closes_its_reader():
    client = Fake()
    stream = scan({}, "t", client=client)
    stream.read_next_batch()
    assert client.left == 0
    del stream
    assert (client.left, client.closed) == (1, 0)


def test_a_partition_that_fails_ends_the_scan():
    with pytest.raises(IngestError, match="t:1: gone"):
        scan({}, "t", client=Fake(failed={ONE: "gone"})).read_all()


@pytest.mark.parametrize(
    ("topic", "options", "error", "words"),
    [
        ("othre", {}, IngestError, "no topic 'othre'; did you mean 'other'"),
        ("t", {"partitions": [0, 7]}, IngestError, "topic 't' has partitions 0, 1, not 7"),
        (
            "t",
            {"start": "beginning"},
            JobError,
            "a bound is 'earliest', 'latest', an offset or a time, not 'beginning'",
        ),
        ("t", {"start": {7: 1}}, JobError, "an offset is given for partition 7"),
        ("t", {"bad": "hide"}, JobError, "to 'fail' or to 'skip', not to 'hide'"),
    ],
)
def test_what_cannot_be_scanned_is_refused(topic, options, error, words):
    with pytest.raises(error, match=words):
        scan({}, topic, client=Fake(), **options)


class Texts:
    """A decoder that gives the value as text; names in `extra` are columns of their own from that offset on."""

    def __init__(self, bad=(), types=(), extra=()):
        self.bad, self.types, self.extra, self.closed = bad, dict(types), dict(extra), False

    def decode(self, batch):
        table = pa.Table.from_batches([batch])
        kept = pa.array([offset not in self.bad for offset in table["_offset"].to_pylist()], pa.bool_())
        good, wrong = table.filter(kept), table.filter(pa.compute.invert(kept))
        last = max(table["_offset"].to_pylist(), default=-1)
        kind = next((kind for since, kind in self.types.items() if last >= since), pa.string())
        numbers = good["_offset"].cast(kind)
        columns = {"n": numbers, **{name: numbers for name, since in self.extra.items() if last >= since}}
        rows = pa.table({**columns, **{name: good[name] for name in KAFKA.names}})
        told = {"schema_id": None, "stage": "decode", "error": "odd"}
        return Decoded(rows, KAFKA.empty_table(), pa.Table.from_pylist([r | told for r in wrong.to_pylist()], BAD))

    def close(self):
        self.closed = True


def test_decoded_columns_come_with_those_of_kafka_and_the_decoder_is_closed():
    decoder = Texts()
    found = scan({}, "t", client=Fake(), decoder=lambda: decoder, partitions=[1])
    assert found.schema.names == ["n", *KAFKA.names]
    assert found.read_all()["n"].to_pylist() == ["0", "1", "2", "3", "4"]
    assert decoder.closed


def test_nothing_to_decode_still_has_columns():
    found = scan({}, "t", client=Fake(), decoder=Texts, start="latest")
    assert (found.schema.names[0], found.read_all().num_rows) == ("n", 0)


def test_a_bad_record_is_named_or_left_out_as_asked():
    def decoded(**options):
        return scan({}, "t", client=Fake(), decoder=lambda: Texts(bad=[2]), partitions=[1], **options).read_all()

    with pytest.raises(
        IngestError, match=r"t:1: the record at offset 2 cannot be decoded \(decode\): odd. Ask for bad"
    ):
        decoded()
    assert decoded(bad="skip")["n"].to_pylist() == ["0", "1", "3", "4"]


def test_columns_that_change_on_the_way_are_fitted_or_told():
    def decoded(**changes):
        return scan({}, "t", client=Fake(), decoder=lambda: Texts(**changes), partitions=[1]).read_all()

    assert decoded(types={2: pa.int64()})["n"].to_pylist() == ["0", "1", "2", "3", "4"]
    with pytest.raises(IngestError, match="a new column 'm'"):
        decoded(extra={"m": 2})


def test_records_of_a_cluster_reach_sql(mock_kafka):
    mock_kafka.create("t", 2)
    for partition in (0, 1):
        values = [json.dumps({"id": n, "p": partition}).encode() for n in range(50)]
        produce(mock_kafka.brokers, "t", values, partition=partition)
    stream = scan({"bootstrap.servers": mock_kafka.brokers}, "t", start=10)  # noqa: F841
    sums = duckdb.sql(
        "SELECT _partition, count(*), sum((decode(_value)->>'id')::INT) FROM stream GROUP BY 1 ORDER BY 1"
    )
    assert sums.fetchall() == [(0, 40, 1180), (1, 40, 1180)]


def test_the_offsets_of_topics_are_a_table():
    with MockCluster() as cluster:
        cluster.create("a", 2)
        cluster.create("b")
        produce(cluster.brokers, "a", [b"x"] * 5, partition=1)
        cluster.delete_records("a", 1, 2)
        settings = {"bootstrap.servers": cluster.brokers}
        table = offsets_table(settings)
        assert table.schema == OFFSETS
        rows = [tuple(row.values()) for row in table.to_pylist()]
        assert rows == [("a", 0, 0, 0, 0, None), ("a", 1, 2, 5, 3, None), ("b", 0, 0, 0, 0, None)]
        assert offsets_table(settings, ["b"]).num_rows == 1
        with pytest.raises(IngestError, match="no topic 'c'"):
            offsets_table(settings, ["a", "c"])
        cluster.fail(LIST_OFFSETS, TOPIC_DENIED)
        (row,) = offsets_table(settings, ["b"]).to_pylist()
        assert (row["earliest"], row["latest"], row["records"]) == (None, None, None)
        assert "authorization failed" in row["error"]
