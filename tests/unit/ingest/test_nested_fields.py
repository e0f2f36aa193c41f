"""Fields inside structs that records of Kafka have and the table does not: JSON, Avro, and batches that differ."""

import json

import pyarrow as pa
import pytest

import lakesql
from lakesql.errors import LakeError, TableError
from lakesql.ingest.decode import decoder_factory
from lakesql.ingest.model import Format, TopicPartition
from tests.kafka.produce import Record, produce
from tests.unit.ingest.loading import job, record, rows_of, run, sink
from tests.unit.ingest.messages import batch, rows

TABLE = pa.schema(
    [
        ("id", pa.int64()),
        ("s", pa.struct([("a", pa.int32()), ("n", pa.struct([("x", pa.string())]))])),
        ("l", pa.list_(pa.struct([("a", pa.int32())]))),
        ("m", pa.map_(pa.string(), pa.struct([("a", pa.int32())]))),
        ("t", pa.string()),
    ]
)
EVOLVE = ", 'lakesql.schema.evolve' = 'true'"


def test_columns_of_a_table_that_evolves_get_the_fields_of_the_sample():
    documents = [
        {
            "id": 1,
            "s": {"A": 9, "b": 1.5, "n": {"y": [1]}},
            "l": [{"a": 1}, {"c": "x"}],
            "m": {"k": {"a": 1}, "j": {"d": True}},
        },
        {"id": 2, "s": {"b": 2, "always": None}, "t": {"no": "struct"}},
    ]
    make = decoder_factory(Format("json"), TABLE, sample=lambda _: batch(documents), evolve=True)
    found = make().decode(batch([documents[0] | {"s": {"a": 3, "b": 4, "later": 5, "n": {"x": "x"}}}])).rows
    assert rows(found) == [
        {
            "id": 1,
            "s": {"a": 3, "n": {"x": "x", "y": None}, "b": 4.0},
            "l": [{"a": 1, "c": None}, {"a": None, "c": "x"}],
            "m": [("k", {"a": 1, "d": None}), ("j", {"a": None, "d": True})],
            "t": None,
        }
    ]
    assert found.schema.field("s").type.field("a").type == pa.int32()
    as_it_is = decoder_factory(Format("json"), TABLE, sample=lambda _: batch(documents))
    assert rows(as_it_is().decode(batch(documents)).rows)[0]["s"] == {"a": None, "n": {"x": None}}


@pytest.fixture
def lake(mock_kafka, tmp_path):
    """A connection, the broker, and INGEST with these options and this format."""
    mock_kafka.create("orders", 1)
    with lakesql.connect(warehouse=tmp_path) as con:

        def ingest(more: str, form: str) -> None:
            con.execute(
                f"INGEST INTO orders FROM KAFKA ('kafka.brokers' = '{mock_kafka.brokers}', 'topic.whitelist' = 'orders', "
                f"'bootstrap.with.offset' = 'earliest'{more}) FORMAT {form} TBLPROPERTIES (type = 'mor', primaryKey = 'id')"
            )

        yield con, mock_kafka.brokers, ingest


def test_new_keys_inside_json_become_fields_of_a_table_that_evolves(lake):
    con, brokers, ingest = lake
    documents = [
        {"id": 1, "s": {"a": 1}, "l": [{"a": 1}]},
        {"id": 1, "s": {"a": 2, "b": "left out"}},
        {"id": 2, "s": {"a": 3, "b": {"c": 1}}, "l": [{"a": 1, "z": 2.5}]},
    ]
    for document, more in zip(documents, ("", "", EVOLVE), strict=True):
        produce(brokers, "orders", [Record(json.dumps(document).encode())])
        ingest(more, "JSON")
    assert con.sql("SELECT id, s, l FROM orders ORDER BY id").fetchall() == [
        (1, {"a": 2, "b": None}, None),
        (2, {"a": 3, "b": {"c": 1}}, [{"a": 1, "z": 2.5}]),
    ]


def schema_of(*names: str) -> str:
    fields = [{"name": n, "type": ["null", "long"], "default": None} for n in names]
    inner = {"type": "record", "name": "inner", "fields": fields}
    return json.dumps(
        {"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}, {"name": "s", "type": inner}]}
    )


def test_a_field_that_an_avro_schema_adds_inside_a_record_is_taken_or_refused(lake):
    con, brokers, ingest = lake
    produce(brokers, "orders", [Record(bytes([2, 2, 10]))])  # id 1, s.a 5
    ingest(f", 'lakesql.wire' = 'none', 'lakesql.avro.schema' = '{schema_of('a')}'", "AVRO")
    produce(brokers, "orders", [Record(bytes([4, 2, 12, 2, 14]))])  # id 2, s.a 6, s.b 7
    more = f", 'lakesql.wire' = 'none', 'lakesql.avro.schema' = '{schema_of('a', 'b')}'"
    with pytest.raises(LakeError, match=r"the rows have the field s\.b.*lakesql\.schema\.evolve"):
        ingest(more, "AVRO")
    ingest(more + EVOLVE, "AVRO")
    found = con.sql("SELECT id, s FROM orders ORDER BY id").fetchall()
    assert found == [(1, {"a": 5, "b": None}), (2, {"a": 6, "b": 7})]


def test_batches_of_one_run_may_have_different_fields_inside_a_column(tmp_path):
    path, one = tmp_path / "t", TopicPartition("o", 0)
    topics = {one: [record(1, {"a": 1})]}
    run(sink(path), topics)
    topics[one] += [record(2, {"a": 2, "b": 3}), record(3, {"a": 4, "c": "x"}), record(4, {"d": 1.5})]
    with pytest.raises(TableError, match=r"the rows have the field v\.b, v\.c, v\.d"):
        run(sink(path), topics, batch=1)
    run(sink(path, job(path, settings={"lakesql.schema.evolve": "true"})), topics, batch=1)
    assert rows_of(path, ("id", "v")) == [
        (1, {"a": 1, "b": None, "c": None, "d": None}),
        (2, {"a": 2, "b": 3, "c": None, "d": None}),
        (3, {"a": 4, "b": None, "c": "x", "d": None}),
        (4, {"a": None, "b": None, "c": None, "d": 1.5}),
    ]
