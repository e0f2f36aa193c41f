"""Schema evolution on Arrow tables: what is widened silently, what is refused, what is filled with NULL."""

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakesql.errors import TableError
from lakesql.format import avro
from lakesql.format.conform import conform, java_double

UTC = datetime.UTC


def conformed(array: Any, target: pa.DataType) -> list[Any]:
    column = avro.conform(pa.table({"a": array}), pa.schema([("a", target)]), "t")["a"]
    assert column.type == target
    column.validate(full=True)
    return column.to_pylist()


WIDENED = [
    (pa.array([1, None], pa.int32()), pa.int64(), [1, None]),
    (pa.array([1, None], pa.int8()), pa.int32(), [1, None]),
    (pa.array([255], pa.uint8()), pa.int32(), [255]),
    (pa.array([2**32 - 1], pa.uint32()), pa.int64(), [2**32 - 1]),
    (pa.array([3], pa.int64()), pa.float32(), [3.0]),
    (pa.array([2**62 + 1], pa.int64()), pa.float64(), [float(2**62)]),
    (pa.array([0.5], pa.float32()), pa.float64(), [0.5]),
    (pa.array([7, None], pa.int64()), pa.string(), ["7", None]),
    (pa.array([1e10, None, -0.0]), pa.string(), ["1.0E10", None, "-0.0"]),
    (pa.array(["é", None]), pa.binary(), ["é".encode(), None]),
    (pa.array([b"x"]), pa.string(), ["x"]),
    (pa.array([b"abc"], pa.binary(3)), pa.binary(), [b"abc"]),
    (pa.array([b"abc"]), pa.binary(3), [b"abc"]),
    (pa.array(["x"], pa.large_string()), pa.string(), ["x"]),
    (pa.array(["x"], pa.string_view()), pa.string(), ["x"]),
    (pa.array(["x", None]).dictionary_encode(), pa.string(), ["x", None]),
    (pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}", None])), pa.string(), ["{}", None]),
    (pa.nulls(2), pa.int32(), [None, None]),
    (pa.array([Decimal("1.20")], pa.decimal128(5, 2)), pa.decimal128(9, 2), [Decimal("1.20")]),
    (
        pa.array([1_700_000_000_001_999], pa.timestamp("us")),
        pa.timestamp("ms"),
        [datetime.datetime(2023, 11, 14, 22, 13, 20, 1000)],
    ),
    (
        pa.array([-1, None], pa.timestamp("us")),
        pa.timestamp("ms"),
        [datetime.datetime(1969, 12, 31, 23, 59, 59, 999000), None],
    ),
    (
        pa.array([5], pa.timestamp("ms", "Asia/Tokyo")),
        pa.timestamp("us", "UTC"),
        [datetime.datetime(1970, 1, 1, 0, 0, 0, 5000, UTC)],
    ),
    (pa.array([86400000], pa.date64()), pa.date32(), [datetime.date(1970, 1, 2)]),
    (pa.array([1999], pa.time64("us")), pa.time32("ms"), [datetime.time(0, 0, 0, 1000)]),
    (pa.array([[1], None, []], pa.list_(pa.int32())), pa.list_(pa.field("element", pa.int64())), [[1], None, []]),
    (pa.array([[1], None], pa.large_list(pa.int32())), pa.list_(pa.int64()), [[1], None]),
    (pa.array([[1, 2], None], pa.list_(pa.int32(), 2)), pa.list_(pa.int64()), [[1, 2], None]),
    (
        pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32())),
        pa.map_(pa.string(), pa.int64()),
        [[("k", 1)], None],
    ),
    (
        pa.array([{"x": 1, "gone": 2}, None]),
        pa.struct([("new", pa.string()), ("x", pa.float64())]),
        [{"new": None, "x": 1.0}, None],
    ),
]


@pytest.mark.parametrize(("array", "target", "values"), WIDENED, ids=[f"{a.type} to {t}" for a, t, _ in WIDENED])
def test_legal_widening_keeps_every_value(array: pa.Array, target: pa.DataType, values: list[Any]) -> None:
    assert conformed(array, target) == values
    if len(array) > 1:
        assert conformed(array.slice(1), target) == values[1:]


ILLEGAL = [
    (pa.int64(), pa.int32()),
    (pa.uint64(), pa.int64()),
    (pa.float64(), pa.float32()),
    (pa.float64(), pa.int64()),
    (pa.string(), pa.int32()),
    (pa.bool_(), pa.string()),
    (pa.decimal128(9, 2), pa.decimal128(5, 2)),
    (pa.decimal128(5, 2), pa.decimal128(9, 3)),
    (pa.timestamp("us"), pa.timestamp("us", "UTC")),
    (pa.timestamp("ns"), pa.timestamp("us")),
    (pa.time64("ns"), pa.time64("us")),
    (pa.int64(), pa.timestamp("us")),
    (pa.date32(), pa.timestamp("us")),
    (pa.list_(pa.int64()), pa.list_(pa.int32())),
    (pa.int64(), pa.list_(pa.int64())),
    (pa.struct([("x", pa.int64())]), pa.struct([("x", pa.int32())])),
    (pa.map_(pa.string(), pa.string()), pa.map_(pa.string(), pa.int32())),
]


@pytest.mark.parametrize(("source", "target"), ILLEGAL, ids=[f"{s} to {t}" for s, t in ILLEGAL])
def test_a_change_of_type_that_is_no_widening_is_refused(source: pa.DataType, target: pa.DataType) -> None:
    with pytest.raises(TableError, match="silently"):
        avro.conform(pa.table({"a": pa.nulls(1, source)}), pa.schema([("a", target)]), "t")


def test_the_refusal_names_place_column_and_both_types() -> None:
    table = pa.table({"s": pa.array([{"x": [1]}], pa.struct([("x", pa.list_(pa.int64()))]))})
    schema = pa.schema([("s", pa.struct([("x", pa.list_(pa.int32()))]))])
    with pytest.raises(TableError) as error:
        avro.conform(table, schema, "table t, file f")
    assert str(error.value) == (
        "table t, file f: column 's.x[]' has type int64, the table schema says int32. Only widening is done silently: "
        "int to long to float to double, numbers to string, string to or from binary, a decimal to more digits of its "
        "scale. Cast the column to int32."
    )


def test_a_value_that_does_not_fit_is_named() -> None:
    with pytest.raises(TableError, match="column 'a': a value of type binary does not fit string"):
        conformed(pa.array([b"\xff"]), pa.string())
    with pytest.raises(TableError, match="column 'a': a value of type binary does not fit fixed_size_binary"):
        conformed(pa.array([b"ab"]), pa.binary(3))


def test_missing_columns_are_null_extra_ones_dropped_and_order_is_the_schemas() -> None:
    schema = pa.schema([("b", pa.int64()), ("a", pa.string())])
    out = avro.conform(pa.table({"z": [1], "b": [2]}), schema, "t")
    assert out.schema == schema
    assert out.to_pylist() == [{"b": 2, "a": None}]
    assert avro.conform(pa.table({"z": [1]}), pa.schema([]), "t").num_columns == 0


def test_list_children_get_one_name_and_metadata_goes() -> None:
    table = pa.table({"a": pa.array([[1]], pa.list_(pa.field("array", pa.int64())))}).replace_schema_metadata(
        {"k": "v"}
    )
    schema = pa.schema([("a", pa.list_(pa.field("element", pa.int64())))])
    out = avro.conform(table, schema, "t")
    assert out.schema.field("a").type.value_field.name == "element"
    assert out.schema.metadata is None
    same = avro.conform(out.replace_schema_metadata({"k": "v"}), schema, "t")
    assert same.schema.metadata is None
    assert avro.conform(same, schema, "t") is same


def test_required_columns_must_be_there_and_have_values() -> None:
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    with pytest.raises(TableError, match="column 'a' is required by the table schema and missing"):
        avro.conform(pa.table({"b": [1]}), schema, "t")
    with pytest.raises(TableError, match="column 'a' is required by the table schema and has NULLs"):
        avro.conform(pa.table({"a": pa.array([None], pa.int64())}), schema, "t")
    items = pa.schema([("a", pa.list_(pa.field("element", pa.int64(), nullable=False)))])
    with pytest.raises(TableError, match=r"column 'a\[\]' is required"):
        avro.conform(pa.table({"a": [[1, None]]}), items, "t")
    values = pa.schema([("a", pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False)))])
    with pytest.raises(TableError, match=r"column 'a\{\}' is required"):
        avro.conform(pa.table({"a": pa.array([[("k", None)]], pa.map_(pa.string(), pa.int64()))}), values, "t")


def test_nulls_of_a_required_child_may_belong_to_null_rows() -> None:
    required = pa.struct([pa.field("x", pa.int64(), nullable=False)])
    given = pa.StructArray.from_arrays([pa.array([1, None], pa.int32())], ["x"], mask=pa.array([False, True]))
    out = avro.conform(pa.table({"s": given}), pa.schema([("s", required)]), "t")
    assert out.to_pylist() == [{"s": {"x": 1}}, {"s": None}]
    assert out["s"].chunk(0).field(0).null_count == 0
    with pytest.raises(TableError, match=r"column 's\.x' is required"):
        avro.conform(pa.table({"s": pa.array([{"x": None}], given.type)}), pa.schema([("s", required)]), "t")


def test_two_columns_of_one_name_are_refused() -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(TableError, match="2 columns are called 'a'"):
        avro.conform(table, pa.schema([("a", pa.int64())]), "t")


def test_numbers_are_printed_as_java_prints_them() -> None:
    doubles = [0.0, -0.0, 1.0, 100.0, 0.001, 0.0001, 9999999.0, 1e7, 1.5e300, -12.34, 123456.789]
    texts = ["0.0", "-0.0", "1.0", "100.0", "0.001", "1.0E-4", "9999999.0", "1.0E7", "1.5E300", "-12.34", "123456.789"]
    assert [java_double(d) for d in doubles] == texts
    assert java_double(1 / 3) == "0.3333333333333333"
    assert java_double(np.float32(0.1)) == "0.1"
    assert [java_double(d) for d in (float("nan"), float("inf"), float("-inf"))] == ["NaN", "Infinity", "-Infinity"]


def test_fields_of_structs_are_found_in_another_case_unless_they_are_other_fields() -> None:
    given = pa.table({"s": pa.array([{"A": 1, "N": 2}]), "l": pa.array([[{"X": 3}]])})
    wanted = pa.schema(
        [("s", pa.struct([("a", pa.int64()), ("n", pa.int64())])), ("l", pa.list_(pa.struct([("x", pa.int64())])))]
    )
    assert conform(given, wanted, "t").to_pylist() == [{"s": {"a": 1, "n": 2}, "l": [{"x": 3}]}]
    both = pa.schema([("s", pa.struct([("A", pa.int64()), ("a", pa.int64()), ("n", pa.int64())]))])
    assert conform(given, both, "t").to_pylist() == [{"s": {"A": 1, "a": None, "n": 2}}]
