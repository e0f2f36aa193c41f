"""Space-filling curves, and rows in their order."""

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from lakesql.services.curves import DIRECT, HILBERT, LINEAR, SAMPLE, Z_ORDER, bits_of, curve, sorted_sql, z_order

CURVES = pytest.mark.parametrize("layout", [Z_ORDER, HILBERT])


def coordinates(cells: np.ndarray, columns: int) -> np.ndarray:
    bits = bits_of(columns)
    axes = [(cells >> np.uint64(bits * (columns - 1 - n))) & np.uint64((1 << bits) - 1) for n in range(columns)]
    return np.stack(axes, axis=1).astype(np.int64)


@CURVES
@pytest.mark.parametrize("columns", range(1, 9))
def test_every_cell_has_its_own_place(layout: str, columns: int) -> None:
    made = curve(layout, columns)
    assert (np.sort(made["place"].to_numpy()) == np.arange(made.num_rows)).all()


@pytest.mark.parametrize("columns", range(1, 9))
def test_hilbert_steps_to_a_neighbouring_cell(columns: int) -> None:
    made = curve(HILBERT, columns).sort_by("place")
    steps = np.abs(np.diff(coordinates(made["cell"].to_numpy(), columns), axis=0)).sum(axis=1)
    assert (steps == 1).all()


def test_z_order_interleaves_the_bits() -> None:
    cells = np.array([[0b10, 0b01], [0b11, 0b00], [0b00, 0b11]], np.uint64)
    assert z_order(cells, 2).tolist() == [0b1001, 0b1010, 0b0101]


SCHEMA = pa.schema(
    [
        ("i", pa.int64()),
        ("text", pa.string()),
        ("day", pa.date32()),
        ("number", pa.float64()),
        ("price", pa.decimal128(12, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("yes", pa.bool_()),
        ("raw", pa.binary()),
    ]
)
ROWS = """SELECT i, 'https://example/' || hash(i) AS text, DATE '2024-01-01' + (hash(i) % 400)::INTEGER AS day,
    CASE i % 9 WHEN 0 THEN NULL WHEN 1 THEN 'NaN'::DOUBLE WHEN 2 THEN 'Infinity'::DOUBLE ELSE hash(i) / 1e9 END AS number,
    (hash(i) % 1000000 / 100)::DECIMAL(12, 2) AS price, TIMESTAMPTZ '2024-01-01 00:00:00+00' + INTERVAL (i) SECOND AS at,
    i % 2 = 0 AS yes, encode(i::VARCHAR || '\\''') AS raw FROM range(5000) r(i)"""


@CURVES
@pytest.mark.parametrize("method", [SAMPLE, DIRECT])
@pytest.mark.parametrize("by", [["text", "day"], ["number", "price"], ["at", "yes", "raw"], ["i"]])
def test_a_curve_keeps_every_row_of_every_type(layout: str, method: str, by: list[str]) -> None:
    with duckdb.connect() as con:
        want = con.sql(f"SELECT * FROM ({ROWS}) ORDER BY i").fetchall()
        with sorted_sql(con, ROWS, SCHEMA, by, layout, method) as sql:
            found = con.sql(sql).fetchall()
        assert repr(sorted(found)) == repr(want)
        assert con.sql("SHOW TABLES").fetchall() == []


@CURVES
@pytest.mark.parametrize("method", [SAMPLE, DIRECT])
def test_a_curve_keeps_both_columns_together(layout: str, method: str) -> None:
    """A twentieth of the rows in sequence spans a small part of either column, where a sort by one spans all of the other."""
    rows = "SELECT hash(i) % 1000 AS a, hash(i + 0.5) % 1000 AS b FROM range(20000) r(i)"
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    with duckdb.connect() as con, sorted_sql(con, rows, schema, ["a", "b"], layout, method) as sql:
        found = np.array(con.sql(sql).fetchall(), np.int64).reshape(20, 1000, 2)
    spans = (found.max(axis=1) - found.min(axis=1)).mean(axis=0)
    assert (spans < 500).all()


def test_linear_sorts_by_the_columns_nulls_first() -> None:
    rows = "SELECT * FROM (VALUES (2, 1), (NULL, 3), (1, 2), (2, NULL)) t(a, b)"
    schema = pa.schema([("a", pa.int32()), ("b", pa.int32())])
    with duckdb.connect() as con, sorted_sql(con, rows, schema, ["a", "b"], LINEAR, SAMPLE) as sql:
        assert con.sql(sql).fetchall() == [(None, 3), (1, 2), (2, None), (2, 1)]
