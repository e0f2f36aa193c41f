"""One column of every type that Hudi tables have on every release, and three rows of extremes, NULLs and NaN."""

import datetime
import decimal
import math
from typing import Any

import pyarrow as pa

UTC = datetime.UTC
BEFORE_1970 = datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.int64()),
        ("flag", pa.bool_()),
        ("small", pa.int32()),
        ("large", pa.int64()),
        ("single", pa.float32()),
        ("double", pa.float64()),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us", "UTC")),
        ("d9", pa.decimal128(9, 2)),
        ("d20", pa.decimal128(20, 5)),
        ("d38", pa.decimal128(38, 10)),
        ("list", pa.list_(pa.string())),
        ("map", pa.map_(pa.string(), pa.int64())),
        ("struct", pa.struct([("x", pa.int32()), ("y", pa.decimal128(10, 3)), ("z", pa.struct([("w", pa.string())]))])),
        ("structs", pa.list_(pa.struct([("a", pa.int64()), ("b", pa.timestamp("us", "UTC"))]))),
    ]
)
LOW: dict[str, Any] = {
    "id": "low",
    "ts": 1,
    "flag": False,
    "small": -(2**31),
    "large": -(2**63),
    "single": -math.inf,
    "double": math.nan,
    "text": "",
    "bytes": b"",
    "day": datetime.date(1900, 1, 1),
    "moment": datetime.datetime(1901, 2, 3, 4, 5, 6, 789012, tzinfo=UTC),
    "d9": decimal.Decimal("-9999999.99"),
    "d20": decimal.Decimal("-0.00001"),
    "d38": decimal.Decimal("-9999999999999999999999999999.9999999999"),
    "list": [],
    "map": [],
    "struct": {"x": None, "y": None, "z": None},
    "structs": [],
}
HIGH: dict[str, Any] = {
    "id": "high",
    "ts": 1,
    "flag": True,
    "small": 2**31 - 1,
    "large": 2**63 - 1,
    "single": 1.5,
    "double": 5e-324,
    "text": "ä\u0000\U0001f600 'quoted' \"text\"\n",
    "bytes": bytes(range(256)),
    "day": datetime.date(9999, 12, 31),
    "moment": datetime.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    "d9": decimal.Decimal("9999999.99"),
    "d20": decimal.Decimal("123456789012345.54321"),
    "d38": decimal.Decimal("1.0000000001"),
    "list": ["a", None, ""],
    "map": [("k", 1), ("n", None)],
    "struct": {"x": 7, "y": decimal.Decimal("1234567.891"), "z": {"w": "deep"}},
    "structs": [{"a": 1, "b": BEFORE_1970}, None, {"a": None, "b": None}],
}
EMPTY: dict[str, Any] = dict.fromkeys(SCHEMA.names) | {"id": "empty", "ts": 1}
ROWS = pa.Table.from_pylist([LOW, HIGH, EMPTY], SCHEMA)


def newer(ts: int, text: str) -> pa.Table:
    """The rows with another ordering value and another text."""
    table = ROWS.set_column(1, "ts", pa.array([ts] * 3, pa.int64()))
    return table.set_column(7, "text", pa.array([text] * 3))


def differences(got: pa.Table, want: pa.Table) -> list[tuple[str, str, str, str]]:
    """(key, column, got, wanted) where the two differ; `repr` tells -0.0, NaN, decimals and missing values apart."""
    left, right = by_key(got, want.column_names), by_key(want, want.column_names)
    assert set(left) == set(right)
    cells = [(key, name) for key in right for name in want.column_names]
    return [(k, n, left[k][n], right[k][n]) for k, n in cells if left[k][n] != right[k][n]]


def by_key(table: pa.Table, names: list[str]) -> dict[str, dict[str, str]]:
    found = {}
    for row in table.select(names).to_pylist():
        assert row["id"] not in found
        found[row["id"]] = {name: shown(value) for name, value in row.items()}
    return found


def shown(value: object) -> str:
    """A value as text; maps, whose entries have no order, sorted by key."""
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        value = sorted(value)
    return repr(value)
