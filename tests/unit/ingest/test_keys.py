"""Keys of messages: columns of deletes, columns that a value lacks, and keys that do not decode."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from lakesql.errors import JobError
from lakesql.ingest.decode import decoder_factory
from lakesql.ingest.keys import split_columns
from lakesql.ingest.model import Decoded, Format
from tests.kafka.registry import TestRegistry
from tests.unit.ingest.messages import avro, bad, batch, checked, rows

KEY = {"type": "record", "name": "k", "fields": [{"name": "id", "type": "long"}, {"name": "region", "type": "string"}]}


@pytest.fixture
def server() -> Iterator[TestRegistry]:
    with TestRegistry() as registry:
        yield registry


def decoded(
    values: list[Any], keys: list[Any], hint: pa.Schema | None = None, columns: tuple[str, ...] = (), **options: str
) -> Decoded:
    named = {"lakesql." + k.replace("_", "."): v for k, v in options.items()}
    given = batch(values, keys)
    decoder = decoder_factory(Format("json", options=named), hint, columns)()
    found = checked(decoder.decode(given), given)
    decoder.close()
    return found


def test_without_a_key_format_tombstones_have_kafkas_columns_only() -> None:
    found = decoded([None, {"a": 1}], ["5", None])
    assert rows(found.deletes) == [{}]
    assert found.deletes.column("_key").to_pylist() == [b"5"]


def test_text_and_raw_keys_are_one_column_of_the_targets_type() -> None:
    hint = pa.schema([("id", pa.int64())])
    found = decoded([None] * 4, ["5", "x", None, b"\xff"], hint, key_format="string", key_columns="id")
    assert rows(found.deletes) == [{"id": 5}]
    assert {o: stage for o, (stage, _) in bad(found).items()} == {1: "key", 2: "key", 3: "key"}
    assert bad(found)[2][1] == "the record has no key"
    raw = decoded([None], [b"\xff"], key_format="raw", key_columns="id")
    assert rows(raw.deletes) == [{"id": b"\xff"}]
    typed = decoded([None], ["5"], key_format="string", key_columns="id INTEGER")
    assert typed.deletes.schema.field("id").type == pa.int32()


def test_json_keys_are_objects_or_one_plain_value_and_connects_wrapper_is_taken_off() -> None:
    keys = [{"id": 1}, "2", '"3"', {"schema": {}, "payload": {"id": 4}}, {"other": 1}, {"id": None}, "x"]
    found = decoded([None] * 7, keys, key_format="json", key_columns="id BIGINT")
    assert rows(found.deletes) == [{"id": 1}, {"id": 2}, {"id": 4}]
    reasons = {o: error for o, (_, error) in bad(found).items()}
    assert reasons[2] == 'key: id: BIGINT cannot hold "3"'
    assert reasons[4] == reasons[5] == "key: id is missing or NULL"
    assert reasons[6].startswith("key: not JSON")


def test_several_columns_take_their_types_from_the_target() -> None:
    hint = pa.schema([("id", pa.int64()), ("region", pa.string()), ("v", pa.float64())])
    found = decoded([None], [{"id": 1, "region": "x", "more": 1}], hint, ("id", "region"), key_format="json")
    assert rows(found.deletes) == [{"id": 1, "region": "x"}]
    assert found.deletes.schema.field("id").type == pa.int64()


def test_rows_get_the_columns_that_only_their_key_has() -> None:
    options = {"key_format": "json", "key_columns": "id BIGINT", "json_columns": "v VARCHAR"}
    found = decoded([{"v": "a"}, None, {"v": "b"}, {"v": 1}], [{"id": 1}, {"id": 2}, None, {"id": 4}], **options)
    assert rows(found.rows) == [{"v": "a", "id": 1}]
    assert rows(found.deletes) == [{"id": 2}]
    assert {o: stage for o, (stage, _) in bad(found).items()} == {2: "key", 3: "type"}


def test_avro_keys_come_with_their_schema(server: TestRegistry) -> None:
    number = server.register("t", KEY, part="key")
    plain = server.register("u", "long", part="key")
    form = Format("json", None, server.url, {"lakesql.key.format": "avro", "lakesql.key.columns": "id"})
    key = avro(KEY, {"id": 7, "region": "x"}, number)
    given = batch([None, None, None], [key, avro("long", 8, plain), key[:-1]], topics=["t", "u", "t"])
    found = checked(decoder_factory(form)().decode(given), given)
    assert rows(found.deletes) == [{"id": 7}, {"id": 8}]
    assert bad(found)[2][0] == "key"


def test_wrong_settings_of_keys_are_refused() -> None:
    with pytest.raises(JobError, match="use one of none, string"):
        decoded([], [], key_format="xml")
    with pytest.raises(JobError, match="the key is one column"):
        decoded([], [], key_format="string")
    with pytest.raises(JobError, match="the key is one column"):
        decoded([], [], key_format="raw", key_columns="a, b")


def test_lists_of_columns_are_split_outside_of_brackets_and_quotes() -> None:
    text = 'id, "a, b" STRUCT(x INT, y INT) , n DECIMAL(10, 2),'
    assert split_columns(text) == [("id", ""), ("a, b", "STRUCT(x INT, y INT)"), ("n", "DECIMAL(10, 2)")]
