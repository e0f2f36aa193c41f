"""Change records of Debezium and DMS become rows as Hudi's sources make them, from JSON and from Avro."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from lakesql.errors import IngestError, JobError
from lakesql.ingest.decode import decoder_factory
from lakesql.ingest.model import Decoded, Format
from tests.kafka.registry import TestRegistry
from tests.unit.ingest.messages import avro, bad, batch, checked, rows

POSTGRES = {
    "connector": "postgresql",
    "name": "pg",
    "schema": "public",
    "ts_ms": 5,
    "txId": 7,
    "lsn": 100,
    "xmin": None,
}
MYSQL = {"connector": "mysql", "name": "my", "ts_ms": 5, "file": "mysql-bin.000003", "pos": 154, "row": 0}
UNAVAILABLE = "__debezium_unavailable_value"


@pytest.fixture
def server() -> Iterator[TestRegistry]:
    with TestRegistry() as registry:
        yield registry


def change(op: str | None, before: Any, after: Any, source: Any = POSTGRES) -> dict[str, Any]:
    return {"op": op, "ts_ms": 9, "source": source, "before": before, "after": after, "transaction": None}


def decoded(*values: Any, hint: pa.Schema | None = None, envelope: str = "debezium", **options: str) -> Decoded:
    named = {"lakesql." + k.replace("_", "."): v for k, v in options.items()}
    given = batch(values)
    decoder = decoder_factory(Format("json", options={"lakesql.envelope": envelope, **named}), hint)()
    found = checked(decoder.decode(given), given)
    decoder.close()
    return found


POSTGRES_ROW = {
    "_change_operation_type": "c",
    "_upstream_event_processed_ts_ms": 9,
    "db_shard_source_partition": "pg",
    "db_schema_source_partition": "public",
    "_event_origin_ts_ms": 5,
    "_event_tx_id": 7,
    "_event_lsn": 100,
    "_event_xmin": None,
}


def test_changes_of_postgres_take_after_and_deletes_take_before() -> None:
    found = decoded(
        change("c", None, {"id": 1, "v": UNAVAILABLE}),
        change("u", {"id": 1, "v": "old"}, {"id": 1, "v": "new"}),
        change("r", None, {"id": 2, "v": None}),
        change("d", {"id": 1, "v": "old"}, None),
        None,
    )
    images = [("c", 1, UNAVAILABLE), ("u", 1, "new"), ("r", 2, None), ("d", 1, "old")]
    assert rows(found.rows) == [
        POSTGRES_ROW | {"_change_operation_type": op, "id": id_, "v": v} for op, id_, v in images
    ]
    assert found.rows.schema.names[:8] == list(POSTGRES_ROW)
    assert found.deletes.num_rows == 1


def test_changes_of_mysql_are_ordered_by_file_and_position() -> None:
    row = rows(decoded(change("c", None, {"id": 1}, MYSQL)).rows)[0]
    assert row == {
        "_change_operation_type": "c",
        "_upstream_event_processed_ts_ms": 9,
        "db_shard_source_partition": "my",
        "_event_origin_ts_ms": 5,
        "_event_bin_file": "mysql-bin.000003",
        "_event_pos": 154,
        "_event_row": 0,
        "id": 1,
        "_event_seq": "000003.154",
    }


def test_records_with_connects_schema_around_them_are_the_same() -> None:
    event = change("c", None, {"id": 1})
    found = decoded({"schema": {"type": "struct"}, "payload": event}, event)
    assert rows(found.rows) == [POSTGRES_ROW | {"id": 1}] * 2


def test_what_has_no_row_or_no_position_is_bad_with_the_reason() -> None:
    found = decoded(
        change("c", None, {"id": 1}),
        change("t", None, None),
        change("m", None, None),
        change("u", {"id": 1}, None),
        change("d", None, None),
        {"id": 1},
        change("c", None, {"id": 1}, {"connector": "postgresql"}),
        change("c", None, {"id": "x"}),
        json_columns="id BIGINT",
    )
    assert len(rows(found.rows)) == 1
    reasons = {o: error for o, (_, error) in bad(found).items()}
    assert reasons == {
        1: "a truncate is not applied",
        2: "a message of the database has no row",
        3: "op 'u' without an image 'after'; the table may need REPLICA IDENTITY FULL",
        4: "op 'd' without an image 'before'; the table may need REPLICA IDENTITY FULL",
        5: "op None is none of c, u, r, d; is this record in Debezium's envelope?",
        6: "the source gives no position of the change, so _event_lsn cannot be made",
        7: 'after.id: BIGINT cannot hold "x"',
    }


def test_columns_of_the_target_say_types_and_what_is_added() -> None:
    hint = pa.schema(
        [("_change_operation_type", pa.string()), ("_event_seq", pa.string()), ("id", pa.int32()), ("v", pa.string())]
    )
    found = decoded(change("c", None, {"id": 1, "v": "x"}, MYSQL), hint=hint)
    assert rows(found.rows) == [{"_change_operation_type": "c", "id": 1, "v": "x", "_event_seq": "000003.154"}]
    assert found.rows.schema.field("id").type == pa.int32()


def test_other_databases_give_no_position() -> None:
    source = {"connector": "sqlserver", "name": "s", "ts_ms": 5, "change_lsn": "00:01"}
    row = rows(decoded(change("c", None, {"id": 1}, source)).rows)[0]
    assert "_event_lsn" not in row
    assert row["id"] == 1


def test_avro_changes_are_flattened_alike(server: TestRegistry) -> None:
    value = {
        "type": "record",
        "name": "Value",
        "fields": [{"name": "id", "type": "long"}, {"name": "v", "type": ["null", "string"]}],
    }
    numbers = ("ts_ms", "txId", "lsn", "xmin")
    source = [{"name": n, "type": ["null", "long"]} for n in numbers] + [
        {"name": n, "type": ["null", "string"]} for n in ("name", "schema")
    ]
    schema = {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "before", "type": ["null", value]},
            {"name": "after", "type": ["null", "Value"]},
            {"name": "source", "type": {"type": "record", "name": "Source", "fields": source}},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"]},
        ],
    }
    number = server.register("t", schema)
    plain = {k: v for k, v in POSTGRES.items() if k != "connector"}
    events = [
        change("c", None, {"id": 1, "v": None}, plain),
        change("d", {"id": 2, "v": "x"}, None, plain),
        change("t", None, None, plain),
    ]
    for event in events:
        del event["transaction"]
    given = batch([avro(schema, e, number) for e in events])
    form = Format("avro", "confluent", server.url, {"lakesql.envelope": "debezium"})
    found = checked(decoder_factory(form)().decode(given), given)
    assert rows(found.rows) == [
        POSTGRES_ROW | {"id": 1, "v": None},
        POSTGRES_ROW | {"_change_operation_type": "d", "id": 2, "v": "x"},
    ]
    assert bad(found) == {2: ("decode", "a truncate is not applied")}


def test_dms_records_are_rows_with_their_operation_and_flat_ones_pass() -> None:
    nested = [
        {"data": {"id": n}, "metadata": {"operation": op, "record-type": "data"}}
        for n, op in enumerate(["load", "insert", "update", "delete"])
    ]
    control = {"metadata": {"operation": "create-table", "record-type": "control"}}
    found = decoded(*nested, control, envelope="dms")
    assert rows(found.rows) == [{"Op": op, "id": n} for n, op in enumerate("IIUD")]
    assert bad(found)[4][1] == "a control record of DMS (create-table) has no row and is not applied"
    flat = decoded({"Op": "D", "id": 1}, envelope="dms")
    assert rows(flat.rows) == [{"Op": "D", "id": 1}]
    with pytest.raises(IngestError, match="neither data and metadata nor a column Op"):
        decoded({"id": 1}, envelope="dms")


def test_records_that_are_no_envelope_and_wrong_settings_are_refused(server: TestRegistry) -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]}
    number = server.register("t", schema)
    form = Format("avro", "confluent", server.url, {"lakesql.envelope": "debezium"})
    with pytest.raises(IngestError, match="the records have no field 'op', only id"):
        decoder_factory(form)().decode(batch([avro(schema, {"id": 1}, number)]))
    with pytest.raises(JobError, match="use one of none, debezium, dms"):
        decoded(envelope="maxwell")
    with pytest.raises(JobError, match="use postgresql, mysql or other"):
        decoded(debezium_connector="access")
    with pytest.raises(JobError, match="have no envelope"):
        decoder_factory(Format("raw", options={"lakesql.envelope": "debezium"}))


def test_flat_records_of_dms_go_on_into_a_table_that_is_there() -> None:
    hint = pa.schema([("Op", pa.string()), ("id", pa.int64())])
    found = decoder_factory(Format("json", options={"lakesql.envelope": "dms"}), hint)()
    given = batch([{"Op": "U", "id": 1}, {"Op": "D", "id": 2}])
    assert rows(checked(found.decode(given), given).rows) == [{"Op": "U", "id": 1}, {"Op": "D", "id": 2}]
