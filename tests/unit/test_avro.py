"""Avro: schemas both ways, the record codec on chosen byte strings."""

import datetime
import io
import struct
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakesql.errors import FormatError, TableError, Unsupported
from lakesql.format import avro, avro_decode, avro_encode
from lakesql.format.avro_decode import CHAIN_ROWS_MIN, record_starts
from lakesql.format.avro_skip import FEW, chain
from lakesql.format.words import varint

UTC = datetime.UTC


def record(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "r", "fields": [{"name": n, "type": t} for n, t in fields]}


def framed(*records: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(r)) + r for r in records)


def one(kind: Any, value: bytes) -> Any:
    """A single value of a type, decoded."""
    table = avro.decode_records(framed(value), 1, record(("a", kind)))
    table.validate(full=True)
    return table["a"][0].as_py()


# ---------------------------------------------------------------- schemas
TYPES = [
    ("boolean", pa.bool_()),
    ("int", pa.int32()),
    ("long", pa.int64()),
    ("float", pa.float32()),
    ("double", pa.float64()),
    ("string", pa.string()),
    ("bytes", pa.binary()),
    ("null", pa.null()),
    ({"type": "fixed", "name": "f", "size": 5}, pa.binary(5)),
    ({"type": "enum", "name": "e", "symbols": ["A"]}, pa.string()),
    (
        {"type": "fixed", "name": "f", "size": 5, "logicalType": "decimal", "precision": 10, "scale": 2},
        pa.decimal128(10, 2),
    ),
    ({"type": "bytes", "logicalType": "decimal", "precision": 4}, pa.decimal128(4, 0)),
    ({"type": "int", "logicalType": "date"}, pa.date32()),
    ({"type": "int", "logicalType": "time-millis"}, pa.time32("ms")),
    ({"type": "long", "logicalType": "time-micros"}, pa.time64("us")),
    ({"type": "long", "logicalType": "timestamp-millis"}, pa.timestamp("ms", "UTC")),
    ({"type": "long", "logicalType": "timestamp-micros"}, pa.timestamp("us", "UTC")),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, pa.timestamp("ms")),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, pa.timestamp("us")),
    ({"type": "string", "logicalType": "uuid"}, pa.string()),
    ({"type": "string", "avro.java.string": "String"}, pa.string()),
    ({"type": "int", "logicalType": "timestamp-micros"}, pa.int32()),
    ({"type": "array", "items": ["null", "int"]}, pa.list_(pa.field("element", pa.int32()))),
    ({"type": "array", "items": "int"}, pa.list_(pa.field("element", pa.int32(), nullable=False))),
    ({"type": "map", "values": ["null", "int"]}, pa.map_(pa.string(), pa.int32())),
    (record(("x", "int")), pa.struct([pa.field("x", pa.int32(), nullable=False)])),
    (["string"], pa.string()),
    (["null"], pa.null()),
    (["null", "int", "string"], pa.struct([("member0", pa.int32()), ("member1", pa.string())])),
    ({"type": {"type": "int"}}, pa.int32()),
]


@pytest.mark.parametrize(("kind", "arrow"), TYPES, ids=[str(t)[:60] for t, _ in TYPES])
def test_each_avro_type_has_its_arrow_type(kind: Any, arrow: pa.DataType) -> None:
    schema = {"type": "record", "name": "outer", "fields": [{"name": "a", "type": kind}]}
    assert avro.arrow_schema(schema).field("a").type == arrow


def test_only_unions_with_null_are_nullable_in_arrow() -> None:
    schema = avro.arrow_schema(
        record(("a", "int"), ("b", ["null", "int"]), ("c", ["int", "null"]), ("d", ["int", "string"]))
    )
    assert [f.nullable for f in schema] == [False, True, True, False]


def test_a_named_type_is_found_by_its_short_and_its_full_name() -> None:
    inner = {"type": "fixed", "name": "f", "namespace": "x.y", "size": 3}
    nested = {"type": "record", "name": "x.y.s", "fields": [{"name": "q", "type": "f"}]}
    schema = record(("a", inner), ("b", {"type": "x.y.f"}), ("c", nested))
    assert avro.arrow_schema(schema).field("b").type == pa.binary(3)
    assert avro.arrow_schema(schema).field("c").type.field("q").type == pa.binary(3)


MALFORMED = [
    ("int", "expected a record"),
    (record(("a", "nosuch")), "unknown type 'nosuch'"),
    (record(("a", {"type": "array"})), "'items' is missing"),
    (record(("a", {"type": "map"})), "'values' is missing"),
    (record(("a", {"type": "fixed", "name": "f", "size": -1})), "size of a fixed"),
    (record(("a", {"type": "enum", "name": "f"})), "'symbols' is missing"),
    (record(("a", [])), "a union needs branches"),
    (record(("a", ["null", "null"])), "a union needs branches"),
    (record(("a", [["int"], "null"])), "a union needs branches"),
    (record(("a", 7)), "expected a type"),
    (record(("a", {"name": "x"})), "expected a type"),
    (record(("a", "int"), ("a", "int")), "two fields of one name"),
    (record(("a", {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3})), "is not a decimal"),
    ({"type": "record", "fields": []}, "'name' is missing"),
    ({"type": "record", "name": "r", "fields": [{"type": "int"}]}, "'name' is missing"),
]


@pytest.mark.parametrize(("schema", "text"), MALFORMED)
def test_a_malformed_schema_is_a_format_error(schema: Any, text: str) -> None:
    with pytest.raises(FormatError, match=text):
        avro.arrow_schema(schema)


def test_types_that_arrow_cannot_hold_are_refused_by_name() -> None:
    tree = record(("next", ["null", "r"]))
    with pytest.raises(Unsupported, match="next: type 'r' contains itself"):
        avro.arrow_schema(tree)
    with pytest.raises(Unsupported, match=r"decimal\(39, 0\) has more than 38 digits"):
        avro.arrow_schema(record(("a", {"type": "bytes", "logicalType": "decimal", "precision": 39})))
    with pytest.raises(Unsupported, match="timestamp-nanos is not read"):
        avro.arrow_schema(record(("a", {"type": "long", "logicalType": "timestamp-nanos"})))


def test_names_and_unions_of_a_new_schema_are_those_hudi_writes() -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.string(), nullable=False),
            ("d5", pa.decimal128(5, 2)),
            ("st", pa.struct([("y", pa.struct([("w", pa.decimal128(10, 3))]))])),
            ("l", pa.list_(pa.field("item", pa.struct([("q", pa.int32())])))),
            ("b", pa.binary(4)),
        ]
    )
    built = avro.avro_schema(schema, "t")
    assert (built["name"], built["namespace"]) == ("t_record", "hoodie.t")
    fields = {f["name"]: f for f in built["fields"]}
    assert fields["id"] == {"name": "id", "type": "string"}
    d5 = {"type": "fixed", "name": "fixed", "namespace": "hoodie.t.t_record.d5", "size": 3}
    assert fields["d5"]["type"] == ["null", d5 | {"logicalType": "decimal", "precision": 5, "scale": 2}]
    assert fields["d5"]["default"] is None
    st = fields["st"]["type"][1]
    assert (st["name"], st["namespace"]) == ("st", "hoodie.t.t_record")
    y = st["fields"][0]["type"][1]
    assert (y["name"], y["namespace"]) == ("y", "hoodie.t.t_record.st")
    assert y["fields"][0]["type"][1]["namespace"] == "hoodie.t.t_record.st.y.w"
    item = fields["l"]["type"][1]["items"]
    assert item[0] == "null"
    assert item[1]["name"] == "l"
    assert avro.arrow_schema(built).field("l").type.value_field.name == "element"
    fastavro.parse_schema(built)


def test_a_table_name_is_made_an_avro_name_as_hudi_does() -> None:
    assert avro.avro_schema(pa.schema([("a", pa.int32())]), "my-tab.le")["name"] == "my__tab__le_record"
    assert avro.avro_schema(pa.schema([("a", pa.int32())]), "1t")["namespace"] == "hoodie.__t"


ARROW_ONLY = [
    (pa.int8(), pa.int32()),
    (pa.uint16(), pa.int32()),
    (pa.uint32(), pa.int64()),
    (pa.large_string(), pa.string()),
    (pa.string_view(), pa.string()),
    (pa.large_binary(), pa.binary()),
    (pa.dictionary(pa.int32(), pa.string()), pa.string()),
    (pa.date64(), pa.date32()),
    (pa.timestamp("s"), pa.timestamp("ms")),
    (pa.timestamp("us", "Europe/Berlin"), pa.timestamp("us", "UTC")),
    (pa.time32("s"), pa.time32("ms")),
    (pa.large_list(pa.int64()), pa.list_(pa.field("element", pa.int64()))),
    (pa.list_(pa.int64(), 2), pa.list_(pa.field("element", pa.int64()))),
    (pa.decimal256(20, 3), pa.decimal128(20, 3)),
    (pa.bool_(), pa.bool_()),
    (pa.map_(pa.large_string(), pa.int8()), pa.map_(pa.string(), pa.int32())),
]


@pytest.mark.parametrize(("given", "stored"), ARROW_ONLY, ids=[str(g) for g, _ in ARROW_ONLY])
def test_arrow_types_without_an_avro_type_are_stored_as_the_next_wider_one(given: pa.DataType, stored: Any) -> None:
    schema = avro.avro_schema(pa.schema([("a", given)]), "t")
    assert avro.arrow_schema(schema).field("a").type == stored


REFUSED = [
    (pa.timestamp("ns"), "Cast it to microseconds"),
    (pa.time64("ns"), "Cast it to microseconds"),
    (pa.uint64(), "Cast it to BIGINT"),
    (pa.null(), "The column has no type"),
    (pa.map_(pa.int32(), pa.int32()), "Keys of a map must be strings"),
    (pa.duration("us"), "Cast it to a supported type"),
    (pa.decimal256(50, 3), "Cast it to a supported type"),
    (pa.float16(), "Cast it to a supported type"),
    (pa.struct([]), "Cast it to a supported type"),
]


@pytest.mark.parametrize(("given", "advice"), REFUSED, ids=[str(g) for g, _ in REFUSED])
def test_a_type_that_a_table_cannot_hold_is_refused_with_advice(given: pa.DataType, advice: str) -> None:
    with pytest.raises(Unsupported, match=f"column 'a.x': .*{advice}"):
        avro.avro_schema(pa.schema([("a", pa.struct([("x", given)]))]), "t")


def test_a_column_name_that_avro_forbids_is_refused() -> None:
    with pytest.raises(TableError, match=r"column 'a\.b c': Avro allows letters, digits and _"):
        avro.avro_schema(pa.schema([("a", pa.struct([("b c", pa.int32())]))]), "t")


def test_meta_fields_are_put_in_front_once_and_taken_away() -> None:
    plain = avro.avro_schema(pa.schema([("a", pa.int32())]), "t")
    full = avro.with_meta_fields(avro.with_meta_fields(plain))
    assert [f["name"] for f in full["fields"]] == [*avro.META_COLUMNS, "a"]
    assert full["fields"][0] == {"name": "_hoodie_commit_time", "type": ["null", "string"], "doc": "", "default": None}
    assert avro.without_meta_fields(full) == plain


# ---------------------------------------------------------------- values, byte by byte
VALUES = [
    ("long", b"\x02", 1),
    ("long", b"\x80\x01", 64),
    ("long", b"\xff" * 9 + b"\x01", -(2**63)),
    ("long", b"\xfe" + b"\xff" * 8 + b"\x01", 2**63 - 1),
    ("long", b"\x80\x80\x80\x80\x80\x80\x80\x80\x01", 2**55),
    ("int", b"\xff\xff\xff\xff\x0f", -(2**31)),
    ("boolean", b"\x01", True),
    ("string", b"\x08\xf0\x9f\x98\x80", "😀"),
    ("bytes", b"\x00", b""),
    (["null", "string"], b"\x00", None),
    (["string", "null"], b"\x02", None),
    (["string", "null"], b"\x00\x02x", "x"),
    (["null", "string"], b"\x82\x00\x02x", "x"),  # a branch number in more bytes than needed
    ({"type": "array", "items": "int"}, b"\x00", []),
    ({"type": "array", "items": "int"}, b"\x04\x02\x04\x02\x06\x00", [1, 2, 3]),
    ({"type": "array", "items": "int"}, b"\x03\x04\x02\x04\x02\x06\x00", [1, 2, 3]),
    ({"type": "array", "items": "null"}, b"\x06\x00", [None, None, None]),
    ({"type": "array", "items": "double"}, b"\x02" + struct.pack("<d", 0.5) + b"\x00", [0.5]),
    ({"type": "map", "values": "int"}, b"\x01\x06\x02k\x06\x02\x02l\x08\x00", [("k", 3), ("l", 4)]),
    (["null", "int", "string"], b"\x04\x02x", {"member0": None, "member1": "x"}),
    ({"type": "fixed", "name": "f", "size": 0}, b"", b""),
    ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, b"\x02\xff", Decimal("-0.01")),
    ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, b"\x00", Decimal("0.00")),
    ({"type": "bytes", "logicalType": "decimal", "precision": 4}, b"\x28" + b"\xff" * 18 + b"\xfe\x00", Decimal(-512)),
    (
        {"type": "fixed", "name": "f", "size": 18, "logicalType": "decimal", "precision": 4},
        b"\x00" * 16 + b"\x01\x00",
        Decimal(256),
    ),
]


@pytest.mark.parametrize(("kind", "data", "value"), VALUES)
def test_a_value_is_decoded_from_its_bytes(kind: Any, data: bytes, value: Any) -> None:
    assert one(kind, data) == value


@pytest.mark.parametrize(("kind", "data", "value"), [v for v in VALUES if v[1]])
def test_a_value_is_decoded_alike_in_many_rows(kind: Any, data: bytes, value: Any) -> None:
    n = 2 * FEW
    table = avro.decode_records(framed(data) * n, n, record(("a", kind)))
    assert table["a"].to_pylist() == [value] * n


DAMAGED = [
    ("boolean", b"\x02", "neither 0 nor 1"),
    ("int", b"\xff\xff\xff\xff\x1f", "more than 32 bits"),
    ("long", b"\xff" * 10, "past the end"),
    ("long", b"\xff" * 9 + b"\x02", "past the end"),
    ("string", b"\x01", "negative length"),
    ("string", b"\x02\xff", "not UTF-8"),
    ("string", b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", "longer than the data"),
    ({"type": "enum", "name": "e", "symbols": ["A"]}, b"\x02", "no symbol"),
    ({"type": "int", "logicalType": "time-millis"}, b"\x01", "outside the day"),
    (["null", "int"], b"\x04\x00", "past the end"),
    (["null", "int"], b"\x01\x00", "past the end"),
    ({"type": "array", "items": "int"}, b"\x80\x80\x80\x80\x80\x01\x00", "claims"),
    ({"type": "array", "items": "null"}, b"\x80\x80\x80\x80\x80\x01\x00", "claims"),
    ({"type": "array", "items": "double"}, b"\x02\x00\x00", "past the end"),
    ({"type": "array", "items": "int"}, b"\x02" + b"\x80" * 12, "more than ten bytes"),
    ({"type": "array", "items": "string"}, b"\x02\x01\x00", "a string of -1 bytes"),
    ({"type": "array", "items": {"type": "array", "items": "double"}}, b"\x02\x02\x00", "past the end"),
    ({"type": "array", "items": {"type": "array", "items": "int"}}, b"\x02\x08\x00", "past the end"),
    ({"type": "array", "items": ["null", "int"]}, b"\x02\x06\x00\x00", "branch 3 of a union"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 2}, b"\x04\x00\xff", "too many digits"),
    ({"type": "bytes", "logicalType": "decimal", "precision": 38}, b"\x22\x01" + b"\x00" * 16, "more than 38 digits"),
    ("string", b"\x02x\x00", "does not end where its length says"),
]


@pytest.mark.parametrize(("kind", "data", "text"), DAMAGED)
def test_bytes_that_do_not_decode_are_a_format_error(kind: Any, data: bytes, text: str) -> None:
    with pytest.raises(FormatError, match=text):
        one(kind, data)


def test_records_that_run_into_each_other_are_a_format_error() -> None:
    two = record(("a", "string"), ("b", "string"))
    with pytest.raises(FormatError, match="values overlap"):  # the first record ends inside the second
        avro.decode_records(framed(b"\x14xx", b"\x02x\x04yy\x02z" + b"\0" * 9), 2, two)
    lists = record(("a", "string"), ("l", {"type": "array", "items": "long"}))
    with pytest.raises(FormatError, match="items of an array or map overlap"):
        avro.decode_records(framed(b"\x00\x0c\x02", b"\x00\x04\x02\x04\x00\x00\x00\x00"), 2, lists)


MANY_DAMAGED = [
    ({"type": "array", "items": ["null", "int"]}, b"\x02\x06\x00\x00"),
    ({"type": "array", "items": "float"}, b"\x02\x00"),
    ({"type": "array", "items": "int"}, b"\x80\x80\x80\x80\x80\x01\x00"),
    ({"type": "map", "values": "string"}, b"\x02\x02k\x7f\x00"),
    ({"type": "array", "items": "string"}, b"\xff" * 9 + b"\x01" + b"\x00" * 3),
]


@pytest.mark.parametrize(("kind", "data"), MANY_DAMAGED)
def test_damaged_lists_in_many_rows_are_a_format_error(kind: Any, data: bytes) -> None:
    n = 2 * FEW
    with pytest.raises(FormatError, match="damaged or torn"):
        avro.decode_records(framed(data) * n, n, record(("a", kind)))


NESTED = record(
    ("id", ["null", "string"]),
    ("n", "long"),
    ("l", {"type": "array", "items": ["null", {"type": "array", "items": "string"}]}),
    ("m", {"type": "map", "values": ["null", "double"]}),
    (
        "s",
        [
            "null",
            {
                "type": "record",
                "name": "s",
                "fields": [{"name": "x", "type": "int"}, {"name": "u", "type": ["int", "string"]}],
            },
        ],
    ),
)
NESTED_ROWS = [
    {
        "id": f"id-{i}" if i % 3 else None,
        "n": 7**i % 2**62,
        "l": [None, ["a", "b" * i]][: i % 3],
        "m": {"k": None, "v": i / 3},
        "s": {"x": i, "u": [i, str(i)][i % 2]} if i % 4 else None,
    }
    for i in range(40)
]


def nested_bytes() -> bytes:
    out = []
    for row in NESTED_ROWS:
        sink = io.BytesIO()
        fastavro.schemaless_writer(sink, NESTED, row)
        out.append(sink.getvalue())
    return framed(*out)


def test_every_truncation_of_nested_records_is_a_format_error() -> None:
    data = nested_bytes()
    assert avro.decode_records(data, 40, NESTED).num_rows == 40
    for end in range(len(data)):
        with pytest.raises(FormatError):
            avro.decode_records(data[:end], 40, NESTED)


def test_trailing_bytes_and_wrong_counts_are_a_format_error() -> None:
    data = nested_bytes()
    for bad, count in ((data + b"\0", 40), (data, 39), (data, 41), (data, 0), (data, -1), (data, 2**31 - 1)):
        with pytest.raises(FormatError):
            avro.decode_records(bad, count, NESTED)


def test_projection_keeps_order_types_and_row_count() -> None:
    data = nested_bytes()
    whole = avro.decode_records(data, 40, NESTED)
    assert avro.decode_records(data, 40, NESTED, ["s", "n", "nosuch"]).equals(whole.select(["n", "s"]))
    assert avro.decode_records(data, 40, NESTED, []).num_rows == 40
    assert avro.decode_records(b"", 0, NESTED).schema == avro.arrow_schema(NESTED)


def test_record_starts_found_in_lanes_equal_those_of_the_plain_loop() -> None:
    rng = np.random.default_rng(5)
    sizes = rng.integers(0, 90, CHAIN_ROWS_MIN + 1000)
    data = b"".join(struct.pack(">i", n) + rng.bytes(n) for n in sizes.tolist())
    starts = record_starts(np.frombuffer(data, np.uint8), len(sizes))
    assert (starts == np.concatenate([[0], np.cumsum(sizes + 4)])).all()
    with pytest.raises(FormatError):
        record_starts(np.frombuffer(data[:-1], np.uint8), len(sizes))
    with pytest.raises(FormatError):
        record_starts(np.frombuffer(data, np.uint8), len(sizes) - 1)


def test_lanes_give_up_when_values_do_not_fill_the_bytes() -> None:
    def step(pos: Any) -> Any:
        return np.where(pos % 8, 10**9, pos + 8)

    def blind(pos: Any) -> Any:
        return pos + 7

    starts = chain(step, 0, 8 * 50000, 50000)
    assert starts is not None
    assert (starts == 8 * np.arange(50000)).all()
    assert chain(step, 0, 8 * 50000, 49999) is None
    assert chain(step, 0, 8 * 50000, 50001) is None
    assert chain(step, 0, 8 * 50000 + 4, 50000) is None
    assert chain(blind, 0, 7 * 50000, 50000) is None  # every byte looks like a start, so the guesses prove nothing
    assert chain(step, 0, 80, 10) is None


def test_arrays_of_many_items_in_few_and_in_many_rows_are_whole() -> None:
    rows = [[i * 7 - 3 for i in range(n)] for n in [0, 1, 5000, 2, *range(60)]]
    table = pa.table({"a": pa.array(rows, pa.list_(pa.int64())), "b": pa.array([[str(v) for v in r] for r in rows])})
    schema = avro.avro_schema(table.schema, "t")
    for part in (table, table.slice(0, 4), table.slice(3, 50)):
        data, offsets = avro.encode_records(part, schema)
        assert avro.decode_records(data, part.num_rows, schema).to_pylist() == part.to_pylist()
        assert offsets[-1] == len(data)


def test_items_of_no_bytes_count_against_a_limit_over_all_blocks() -> None:
    nulls = {"type": "array", "items": "null"}
    with pytest.raises(FormatError, match="claims"):
        one(nulls, varint(1 << 22) + b"\0")
    blocks = varint(1 << 19) * 3 + b"\0"
    with pytest.raises(FormatError, match="claims"):
        one(nulls, blocks)
    with pytest.raises(FormatError, match="claims"):
        avro.decode_records(framed(blocks) * 50, 50, record(("a", nulls)))


def test_items_of_no_bytes_survive() -> None:
    schema = record(
        ("a", {"type": "array", "items": "null"}), ("b", {"type": "array", "items": {"type": "array", "items": "null"}})
    )
    table = pa.Table.from_pylist(
        [{"a": [None] * (i % 3), "b": [[None], []]} for i in range(60)], avro.arrow_schema(schema)
    )
    assert avro.decode_records(avro.encode_records(table, schema)[0], 60, schema).to_pylist() == table.to_pylist()


# ---------------------------------------------------------------- encoding
def test_a_row_is_its_length_and_its_fields() -> None:
    table = pa.table({"a": ["x", None], "n": pa.array([1, -300], pa.int64())})
    data, offsets = avro.encode_records(table, avro.avro_schema(table.schema, "t"))
    assert data.tobytes() == framed(b"\x02\x02x\x02\x02", b"\x00\x02\xd7\x04")
    assert offsets.tolist() == [0, 9, 17]


def test_every_type_survives_with_and_without_nulls() -> None:
    plain = [t for t, _ in TYPES[:7] + TYPES[8:20]]
    named = [t | {"name": f"n{i}"} if isinstance(t, dict) and "name" in t else t for i, t in enumerate(plain)]
    schema = record(*((f"f{i}", ["null", t]) for i, t in enumerate(named)))
    columns = {}
    for field in avro.arrow_schema(schema):
        values = {pa.string(): "A", pa.binary(): b"xyz", pa.binary(5): b"12345", pa.bool_(): True}
        value = Decimal(7) if pa.types.is_decimal(field.type) else values.get(field.type)
        if value is not None:
            columns[field.name] = pa.array([value, None, value], field.type)
        else:
            wide = pa.int32() if field.type.bit_width == 32 else pa.int64()
            columns[field.name] = pa.array([1, None, 90], wide).cast(field.type)
    table = pa.table(columns)
    for part in (table, table.slice(0, 1), table.slice(1, 1), table.slice(2)):
        data, _ = avro.encode_records(part, schema)
        assert avro.decode_records(data, part.num_rows, schema).to_pylist() == part.to_pylist()


def test_strings_of_all_lengths_survive_side_by_side() -> None:
    texts = ["", "a", "b" * 63, "c" * 64, "d" * 65, "e" * 200, "f" * 4096, "g" * 4097, "é" * 50000, None, "h"]
    table = pa.table({"a": texts, "b": texts[::-1], "c": [t and t.encode() for t in texts]})
    schema = avro.avro_schema(table.schema, "t")
    data, _ = avro.encode_records(table, schema)
    assert avro.decode_records(data, len(texts), schema).to_pylist() == table.to_pylist()


def test_many_small_chunks_and_wide_rows_are_encoded_alike() -> None:
    table = pa.table({"a": pa.chunked_array([[i, None] for i in range(300)]), "b": ["x" * 40000] * 600})
    schema = avro.avro_schema(table.schema, "t")
    data, offsets = avro.encode_records(table, schema)
    again, _ = avro.encode_records(table.combine_chunks(), schema)
    assert data.tobytes() == again.tobytes()
    assert avro.decode_records(data, 600, schema).equals(avro.conform(table, avro.arrow_schema(schema), ""))
    assert len(offsets) == 601


def test_rows_and_records_above_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"a": ["x" * 100]})
    schema = avro.avro_schema(table.schema, "t")
    data, _ = avro.encode_records(table, schema)
    monkeypatch.setattr(avro_encode, "RECORD_BYTES_MAX", 99)
    with pytest.raises(Unsupported, match="a row of 103 bytes does not fit a log block: at most 99 bytes"):
        avro.encode_records(table, schema)
    monkeypatch.setattr(avro_decode, "RECORD_BYTES_MAX", 99)
    with pytest.raises(Unsupported, match="an Avro record of 107 bytes"):
        avro.decode_records(data, 1, schema)


def test_no_rows_are_no_bytes() -> None:
    schema = avro.avro_schema(pa.schema([("a", pa.list_(pa.int32()))]), "t")
    data, offsets = avro.encode_records(avro.arrow_schema(schema).empty_table(), schema)
    assert (len(data), offsets.tolist()) == (0, [0])


def test_a_value_that_the_schema_forbids_is_a_table_error() -> None:
    with pytest.raises(TableError, match="column 'a' is required"):
        avro.encode_records(pa.table({"a": pa.array([1, None], pa.int32())}), record(("a", "int")))
    with pytest.raises(TableError, match="column 'a': a value is not one of the symbols"):
        avro.encode_records(pa.table({"a": ["A", "B"]}), record(("a", {"type": "enum", "name": "e", "symbols": ["A"]})))
    small = {"type": "fixed", "name": "f", "size": 1, "logicalType": "decimal", "precision": 4, "scale": 0}
    with pytest.raises(TableError, match="column 'a': a decimal does not fit its 1 bytes"):
        avro.encode_records(pa.table({"a": pa.array([Decimal(200)], pa.decimal128(4, 0))}), record(("a", small)))
    union = pa.array(
        [{"member0": None, "member1": None}], pa.struct([("member0", pa.int32()), ("member1", pa.string())])
    )
    with pytest.raises(TableError, match="column 'a' is required"):
        avro.encode_records(pa.table({"a": union}), record(("a", ["int", "string"])))
    required = record(("s", {"type": "record", "name": "s", "fields": [{"name": "x", "type": "int"}]}))
    with pytest.raises(TableError, match=r"column 's\.x' is required"):
        avro.encode_records(pa.table({"s": pa.array([{"x": None}], pa.struct([("x", pa.int32())]))}), required)


def test_unusual_types_round_trip() -> None:
    schema = record(
        ("n", "null"),
        ("z", {"type": "fixed", "name": "z", "size": 0}),
        ("wide", {"type": "fixed", "name": "w", "size": 20, "logicalType": "decimal", "precision": 38, "scale": 0}),
        ("b", {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0}),
        ("u", ["null", "long", "string"]),
        ("only", ["null"]),
        ("e", {"type": "record", "name": "e", "fields": []}),
    )
    numbers = [Decimal(n) for n in (0, -1, 127, 128, -128, -129, 10**38 - 1, -(10**38) + 1)]
    union = [None, {"member0": 2**60, "member1": None}, {"member0": None, "member1": "x"}, None] * 2
    table = pa.Table.from_pylist(
        [
            {"n": None, "z": b"", "wide": d, "b": d, "u": u, "only": None, "e": {}}
            for d, u in zip(numbers, union, strict=True)
        ],
        avro.arrow_schema(schema),
    )
    data, _ = avro.encode_records(table, schema)
    assert avro.decode_records(data, 8, schema).to_pylist() == table.to_pylist()


def test_decoded_tables_can_be_written_to_parquet_even_if_required_fields_lie_in_null_structs() -> None:
    fields = [
        ("x", "int"),
        ("t", "string"),
        ("l", {"type": "array", "items": "int"}),
        ("m", {"type": "map", "values": "int"}),
    ]
    inner = {"type": "record", "name": "s", "fields": [{"name": n, "type": t} for n, t in fields]}
    deep = inner["fields"] + [
        {"name": "deep", "type": {"type": "record", "name": "d", "fields": [{"name": "y", "type": "int"}]}}
    ]
    schema = record(("s", ["null", inner | {"fields": deep}]), ("q", "int"))
    row = {"x": 1, "t": "a", "l": [2], "m": [("k", 3)], "deep": {"y": 4}}
    arrow = avro.arrow_schema(schema)
    plain = pa.schema(
        [pa.field("s", pa.struct([f.with_nullable(True) for f in arrow.field("s").type])), ("q", pa.int32())]
    )
    table = avro.conform(pa.Table.from_pylist([{"s": row, "q": 1}, {"s": None, "q": 2}], plain), arrow, "t")
    decoded = avro.decode_records(avro.encode_records(table, schema)[0], 2, schema)
    for t in (table, decoded):
        sink = io.BytesIO()
        pq.write_table(t, sink)
        assert pq.read_table(io.BytesIO(sink.getvalue())).to_pylist() == [{"s": row, "q": 1}, {"s": None, "q": 2}]
