"""JSON messages: typed columns, and every value that a column cannot hold is found, with its place."""

import datetime
import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from lakesql.errors import IngestError, JobError
from lakesql.ingest import decode_json
from lakesql.ingest.decode import decoder_factory
from lakesql.ingest.model import Decoded, Format
from tests.kafka.registry import TestRegistry
from tests.unit.ingest.messages import bad, batch, checked, offsets, rows

EXACT = pytest.mark.skipif(duckdb.__version__ < "2", reason="DuckDB 1 has no exact decimals in JSON")


@pytest.fixture
def server() -> Iterator[TestRegistry]:
    with TestRegistry() as registry:
        yield registry


def decoded(columns: str | None, *values: Any, hint: pa.Schema | None = None, **options: str) -> Decoded:
    named = {"lakesql." + k.replace("_", "."): v for k, v in options.items()}
    if columns:
        named["lakesql.json.columns"] = columns
    given = batch(values)
    decoder = decoder_factory(Format("json", options=named), hint)()
    try:
        return checked(decoder.decode(given), given)
    finally:
        decoder.close()


def only(columns: str, *values: Any, **options: str) -> list[Any]:
    """The column `a` of each document {"a": value}, given as JSON text; 'bad' for the bad ones."""
    found = decoded(columns, *(f'{{"a": {v}}}' for v in values), **options)
    out: list[Any] = ["bad"] * len(values)
    for offset, row in zip(offsets(found.rows), rows(found.rows), strict=True):
        out[offset] = row["a"]
    return out


def test_documents_become_rows_of_the_given_columns_in_their_order() -> None:
    columns = "id BIGINT, s STRUCT(x INTEGER, y VARCHAR[]), m MAP(VARCHAR, DOUBLE), l STRUCT(z DATE)[]"
    row = {"id": 1, "s": {"x": 2, "y": ["a", None]}, "m": {"k": 1.5, "n": None}, "l": [{"z": "2024-01-02"}, None]}
    found = decoded(columns, row, {}, {"id": None, "s": None, "m": None, "l": None}, {"id": 2, "other": [1], "ID": 9})
    nothing = {"id": None, "s": None, "m": None, "l": None}
    full = row | {"m": [("k", 1.5), ("n", None)], "l": [{"z": datetime.date(2024, 1, 2)}, None]}
    assert rows(found.rows) == [full, nothing, nothing, nothing | {"id": 2}]


@pytest.mark.parametrize(
    ("kind", "good", "wrong"),
    [
        ("BIGINT", {"7": 7, "-9223372036854775808": -(2**63), "null": None}, ['"7"', "1.5", "1.0", "1e3", str(2**63)]),
        ("TINYINT", {"127": 127}, ["128", "-129", "true", "[]", "{}"]),
        ("HUGEINT", {str(2**63): Decimal(2**63)}, ["1.5", '"1"']),
        ("DOUBLE", {"1.5": 1.5, "7": 7.0}, ["1e400", "-1e400", "NaN", "Infinity", '"1.5"', "false"]),
        ("FLOAT", {"0.5": 0.5}, ["1e39", '"x"']),
        pytest.param(
            "DECIMAL(38,9)",
            {"12345678901234567890.123456789": Decimal("12345678901234567890.123456789")},
            ['"1"', "1e40"],
            marks=EXACT,
        ),
        pytest.param(
            "DECIMAL(5,2)",
            {"1.20": Decimal("1.20"), "1.2e1": Decimal("12.00")},
            ["1.239", "1234", '"1.2"'],
            marks=EXACT,
        ),
        ("BOOLEAN", {"true": True, "false": False}, ["1", '"true"', "0.5"]),
        ("VARCHAR", {'"x"': "x", '"\\ud83d\\ude00\\u0000"': "😀\0"}, ["7", "true", "{}", "[1]"]),
        ("DATE", {'"2024-02-29"': datetime.date(2024, 2, 29)}, ['"2023-02-29"', "20240229"]),
        ("TIME", {'"01:02:03"': datetime.time(1, 2, 3)}, ['"25:00:00"', "5"]),
        (
            "TIMESTAMP",
            {
                '"2024-01-02T03:04:05"': datetime.datetime(2024, 1, 2, 3, 4, 5),
                '"2024-01-02T03:04:05.5+02:00"': datetime.datetime(2024, 1, 2, 1, 4, 5, 500000),
                '"2024-01-02 03:04:05Z"': datetime.datetime(2024, 1, 2, 3, 4, 5),
            },
            ['"yesterday"', "1700000000"],
        ),
        (
            "TIMESTAMPTZ",
            {'"2024-01-02T03:04:05+02:00"': datetime.datetime(2024, 1, 2, 1, 4, 5, tzinfo=datetime.UTC)},
            ['"2024-13-01"', "0"],
        ),
        ("BLOB", {'"aGk="': b"hi", '""': b""}, ['"!"', "7"]),
        (
            "BIGINT[]",
            {"[1, null]": [1, None], "[]": [], "null": None},
            ["[1.5]", '["x"]', "5", "{}", f"[{2**63}]", "[[1]]"],
        ),
        ("BIGINT[][]", {"[[1], null, []]": [[1], None, []]}, ['[[1, "x"]]', "[1]"]),
        ("MAP(VARCHAR, BIGINT)", {'{"k": 1}': [("k", 1)], "{}": []}, ['{"k": "x"}', "[]", '{"k": 1, "k": 2}']),
        ("STRUCT(x BIGINT)", {'{"x": 1, "y": 2}': {"x": 1}, "{}": {"x": None}}, ['{"x": "q"}', "[]", "5"]),
        ("STRUCT(x BIGINT[])[]", {'[{"x": [1]}, {}]': [{"x": [1]}, {"x": None}]}, ['[{"x": [1.5]}]', '["q"]']),
        ("DOUBLE[]", {"[1, 2.5]": [1.0, 2.5]}, ["[1e400]", "[NaN]"]),
        ("JSON", {'{"k": [1]}': '{"k":[1]}', '"x"': '"x"', "null": None}, []),
    ],
)
def test_each_type_takes_what_it_can_hold_and_nothing_else(kind: str, good: dict[str, Any], wrong: list[str]) -> None:
    assert only(f"a {kind}", *good) == list(good.values())
    assert only(f"a {kind}", *wrong, *good) == ["bad"] * len(wrong) + list(good.values())


def test_under_duckdb_1_decimals_are_refused_and_keys_that_come_twice_are_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_json, "_DUCKDB_1", True)
    with pytest.raises(JobError, match=r"JSON column a.b: DuckDB .* loses digits. Use DuckDB 2 for DECIMAL\(5,2\)"):
        decoded("a STRUCT(b DECIMAL(5,2))", {"a": {"b": 1.5}})
    twice, once = '{"k": 1, "k": 2}', '{"k": 1, "l": 2}'
    assert only("a MAP(VARCHAR, BIGINT)", twice, once, "null") == ["bad", [("k", 1), ("l", 2)], None]
    assert only("a MAP(VARCHAR, BIGINT)[]", f"[{once}, {twice}]", f"[{once}, null]", "[]") == [
        "bad", [[("k", 1), ("l", 2)], None], [],
    ]  # fmt: skip


@EXACT
def test_lenient_reads_texts_as_numbers_and_anything_as_text_but_rounds_nothing() -> None:
    assert only("a BIGINT", '"7"', "1.0", "1.5", '"1.5"', '"x"', json_lenient="true") == [7, 1, "bad", "bad", "bad"]
    assert only("a DOUBLE", '"1.5"', "2", '"x"', json_lenient="true") == [1.5, 2.0, "bad"]
    assert only("a DECIMAL(5,2)", '"1.25"', '"1.255"', json_lenient="true") == [Decimal("1.25"), "bad"]
    assert only("a BOOLEAN", '"true"', "5", json_lenient="true") == [True, "bad"]
    assert only("a VARCHAR", "7", "true", '{"k": 1}', json_lenient="true") == ["7", "true", '{"k":1}']
    assert only("a BIGINT[]", '["7", 8]', '["x"]', json_lenient="true") == [[7, 8], "bad"]


def test_what_is_not_one_object_is_bad_at_stage_decode_with_the_reason() -> None:
    values = ["[1]", "null", '"x"', "", '{"a": 1', '{"a": 1} {"a": 2}', b'{"a": "\xff"}', b"\x80", '{"a": 2}']
    found = decoded("a BIGINT", *values)
    assert rows(found.rows) == [{"a": 2}]
    reasons = bad(found)
    assert {stage for stage, _ in reasons.values()} == {"decode"}
    assert reasons[0][1] == "expected a JSON object, found ARRAY: [1]"
    assert reasons[3][1] == "an empty value; expected a JSON object"
    assert reasons[4][1].startswith("not JSON: Expecting ',' delimiter: line 1 column 8")
    assert reasons[6][1].startswith("not UTF-8")


@EXACT
def test_a_wrong_value_is_named_with_its_place_its_type_and_what_was_found() -> None:
    found = decoded(
        "id BIGINT, s STRUCT(x INTEGER), n DECIMAL(4,1)", {"s": {"x": "y"}}, '{"n": 1.25}', {"id": "z" * 500}
    )
    reasons = {offset: error for offset, (_, error) in bad(found).items()}
    assert reasons[0] == 's.x: INTEGER cannot hold "y"'
    assert reasons[1] == "n: DECIMAL(4,1) cannot hold 1.25"
    assert len(reasons[2]) < 120


def test_of_a_key_that_comes_twice_the_first_counts() -> None:
    assert rows(decoded("a BIGINT", '{"a": 1, "a": "x"}').rows) == [{"a": 1}]


def test_names_with_any_letters_are_reached() -> None:
    names = ["a.b", "a/b~c", "ä ö", 'q"q', "select", "$", "*"]
    columns = ", ".join('"' + n.replace('"', '""') + '" BIGINT' for n in names)
    found = decoded(columns, dict.fromkeys(names, 5), dict.fromkeys(names[:1], "x"))
    assert rows(found.rows) == [dict.fromkeys(names, 5)]
    assert bad(found)[1][1] == 'a.b: BIGINT cannot hold "x"'


def test_unknown_keys_are_ignored_or_kept_as_json() -> None:
    documents = [{"a": 1, "b": {"c": [1]}, "d": None}, {"a": 2}]
    assert rows(decoded("a BIGINT", *documents).rows) == [{"a": 1}, {"a": 2}]
    kept = decoded("a BIGINT", *documents, json_unknown_keys="keep", json_rest_column="rest")
    assert [r["rest"] and json.loads(r["rest"]) for r in rows(kept.rows)] == [{"b": {"c": [1]}, "d": None}, None]


@EXACT
def test_columns_of_the_target_are_the_types_and_hudis_own_are_left_out() -> None:
    hint = pa.schema(
        [
            ("_hoodie_record_key", pa.string()),
            ("id", pa.int32()),
            ("at", pa.timestamp("ms")),
            ("utc", pa.timestamp("us", "UTC")),
            ("n", pa.decimal128(10, 2)),
            ("b", pa.binary()),
            ("l", pa.list_(pa.struct([("x", pa.float32())]))),
            ("m", pa.map_(pa.string(), pa.int64())),
            ("e", pa.dictionary(pa.int32(), pa.string())),
        ]
    )
    time = "2024-01-02T03:04:05.678Z"
    value = {"id": 1, "at": time, "utc": time, "n": 1.5, "b": "aGk=", "l": [{"x": 0.5}], "m": {"k": 1}, "e": "z"}
    found = decoded(None, value, {"id": 2**31}, hint=hint)
    types = {f.name: f.type for f in found.rows.schema}
    assert {n: types[n] for n in ("id", "at", "utc", "n", "b", "e")} == {
        "id": pa.int32(),
        "at": pa.timestamp("ms"),
        "utc": pa.timestamp("us", "UTC"),
        "n": pa.decimal128(10, 2),
        "b": pa.binary(),
        "e": pa.string(),
    }
    assert "_hoodie_record_key" not in types
    row = rows(found.rows)[0]
    assert row["at"] == datetime.datetime(2024, 1, 2, 3, 4, 5, 678000)
    assert (row["l"], row["m"], row["n"], row["b"]) == ([{"x": 0.5}], [("k", 1)], Decimal("1.50"), b"hi")
    assert bad(found)[1][1] == "id: INTEGER cannot hold 2147483648"


def test_columns_are_found_in_the_first_batch_and_stay_for_the_run() -> None:
    make = decoder_factory(Format("json"))
    documents = [
        {"a": 1, "b": "x", "c": [1, 2.5], "n": None, "o": {"k": True}},
        {"a": 2.5, "d": 1},
        {"a": 3, "d": "x"},
        "7",
    ]
    first = make().decode(batch(documents))
    assert first.rows.schema.names[:5] == ["a", "b", "c", "o", "d"]
    assert [r["a"] for r in rows(first.rows)] == [1.0, 2.5, 3.0]
    assert [r["d"] for r in rows(first.rows)] == [None, "1", '"x"']
    later = make().decode(batch([{"a": "text", "new": 1}, {"a": 1, "new": 1}]))
    assert later.rows.schema == first.rows.schema
    assert bad(later)[0] == ("type", 'a: DOUBLE cannot hold "text"')


def test_without_one_object_there_are_no_columns_yet_and_all_is_bad() -> None:
    make = decoder_factory(Format("json"))
    decoder = make()
    given = batch(["5", "x"])
    assert bad(checked(decoder.decode(given), given))[0][1].startswith("expected a JSON object")
    assert rows(decoder.decode(batch([{"a": 1}])).rows) == [{"a": 1}]


def test_framed_json_takes_its_columns_from_the_registry(server: TestRegistry) -> None:
    properties = {
        "id": {"type": "integer"},
        "name": {"type": ["string", "null"]},
        "at": {"type": "string", "format": "date-time"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "o": {"oneOf": [{"type": "null"}, {"type": "object", "properties": {"x": {"type": "number"}}}]},
        "free": {},
    }
    server.register("t", {"type": "object", "properties": properties}, kind="JSON")
    form = Format("json", "confluent", server.url)
    value = {"id": 1, "name": None, "at": "2024-01-01T00:00:00Z", "tags": ["a"], "o": {"x": 1}, "free": [1]}
    given = batch(
        [b"\0\0\0\0\x01" + json.dumps(value).encode(), json.dumps(value).encode(), b'\0\0\0\0\x01{"id": "x"}']
    )
    found = checked(decoder_factory(form)().decode(given), given)
    utc = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    assert rows(found.rows) == [value | {"at": utc, "free": "[1]"}]
    assert [stage for stage, _ in bad(found).values()] == ["frame", "type"]


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ("a", "is no list of columns"),
        ("a NOSUCH", "is no list of columns"),
        ("a INT); DROP TABLE x; --", "expected one list of columns"),
        ("a INTERVAL", "type INTERVAL is not read from JSON"),
        ("a MAP(INTEGER, INTEGER)", "keys of a map are VARCHAR"),
        ("a STRUCT(b BLOB)", "only as a column of its own"),
    ],
)
def test_columns_that_cannot_be_read_are_refused(columns: str, text: str) -> None:
    with pytest.raises(JobError, match=text):
        decoded(columns, "{}")


def test_other_wrong_settings_are_refused() -> None:
    with pytest.raises(JobError, match="expected 'ignore' or 'keep'"):
        decoded("a INT", "{}", json_unknown_keys="drop")
    with pytest.raises(IngestError, match="'_offset'"):
        decoded(None, {"_offset": 1})
    with pytest.raises(JobError, match="use one of json, avro"):
        decoder_factory(Format("xml"))


def test_a_large_document_and_many_columns_are_decoded() -> None:
    names = [f"c{i}" for i in range(300)]
    columns = ", ".join(f"{n} BIGINT" for n in names)
    found = decoded(columns, dict.fromkeys(names, 1), {"c299": "x"}, {"pad": "x" * 3_000_000, "c0": 5})
    assert [r["c0"] for r in rows(found.rows)] == [1, 5]
    assert bad(found)[1][1] == 'c299: BIGINT cannot hold "x"'


@pytest.mark.parametrize(("opened", "closed"), [('{"a": ', "}"), ("[", "]")])
def test_what_lies_too_deep_in_sample_documents_is_json_text(opened: str, closed: str) -> None:
    deep = opened * 100 + "7" + closed * 100
    found = decoded(None, f'{{"id": 1, "x": {deep}}}', '{"id": 2}')
    assert offsets(found.rows) == [0, 1]
    assert found.rows["id"].to_pylist() == [1, 2]
    assert str(found.rows["x"][0].as_py()).count("7") == 1


def test_deep_nesting_is_a_bad_record_and_no_crash() -> None:
    deep = "[" * 20_000 + "]" * 20_000
    found = decoded("a BIGINT", deep, f'{{"a": {deep}}}', '{"a": 1}')
    assert rows(found.rows) == [{"a": 1}]
    assert set(bad(found)) == {0, 1}
