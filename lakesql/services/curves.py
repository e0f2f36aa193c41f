"""Space-filling curves: an order of rows in which neighbours are near in several columns at once.

A column is cut into 2^b steps, a row lies in one cell of the grid, and the place of the cell on the curve is what rows
are sorted by. Z-order interleaves the bits of the cell's coordinates, which is cheap and jumps; Hilbert's curve only
ever goes on to a neighbouring cell, so that files overlap less.

    steps    SAMPLE: of equally many rows (quantiles of a sample), so a skewed column is spread as well as an even one
             and texts with a common beginning are told apart; DIRECT: of equal width between the smallest and the
             largest value of the sample; columns that are no numbers or times by SAMPLE
    cell     binary search in nested CASEs, done by DuckDB with its own order of values; NULL comes first
    curve    a table of all cells, made by numpy, of at most 2^_CELL_BITS rows; joined by the cell

So no loop goes over rows, memory is that of the sample and the curve, and the sort is DuckDB's, which spills.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from lakesql.table.names import duckdb_type, literal, quote

Cells = np.ndarray[Any, np.dtype[np.uint64]]

LINEAR, Z_ORDER, HILBERT = "linear", "z-order", "hilbert"
SAMPLE, DIRECT = "sample", "direct"
MAX_COLUMNS = 8
_CELL_BITS, _AXIS_BITS = 18, 8
_SAMPLE_ROWS = 50_000
_CURVE, _SAMPLED, _CELL, _AXIS = "__lakesql_curve", "__lakesql_sampled", "__lakesql_cell", "__lakesql_axis_"


def bits_of(columns: int) -> int:
    """Bits of each coordinate in a grid of so many columns."""
    return min(_AXIS_BITS, _CELL_BITS // columns)


def z_order(coordinates: Cells, bits: int) -> Cells:
    """The place of each cell on the z-order curve; `coordinates` has a row per cell and a column per dimension."""
    place = np.zeros(len(coordinates), np.uint64)
    for bit in range(bits - 1, -1, -1):
        for axis in coordinates.T:
            place = (place << np.uint64(1)) | ((axis >> np.uint64(bit)) & np.uint64(1))
    return place


def hilbert(coordinates: Cells, bits: int) -> Cells:
    """The place of each cell on Hilbert's curve (Skilling, Programming the Hilbert curve, 2004)."""
    axes = coordinates.T.astype(np.uint64)
    nothing = np.uint64(0)
    for bit in range(bits - 1, 0, -1):
        high, low = np.uint64(1 << bit), np.uint64((1 << bit) - 1)
        for number in range(len(axes)):
            turned = (axes[number] & high) != 0
            swapped = np.where(turned, nothing, (axes[0] ^ axes[number]) & low)
            axes[0] ^= np.where(turned, low, swapped)
            axes[number] ^= swapped
    for number in range(1, len(axes)):
        axes[number] ^= axes[number - 1]
    turn = np.zeros(len(coordinates), np.uint64)
    for bit in range(bits - 1, 0, -1):
        turn ^= np.where((axes[-1] & np.uint64(1 << bit)) != 0, np.uint64((1 << bit) - 1), nothing)
    return z_order((axes ^ turn).T, bits)


_CURVES = {Z_ORDER: z_order, HILBERT: hilbert}


def curve(layout: str, columns: int) -> pa.Table:
    """The places of all cells on a curve; the first column has the highest bits of a cell's number."""
    bits = bits_of(columns)
    cells = np.arange(1 << (bits * columns), dtype=np.uint64)
    mask = np.uint64((1 << bits) - 1)
    axes = [(cells >> np.uint64(bits * (columns - 1 - number))) & mask for number in range(columns)]
    return pa.table({"cell": cells, "place": _CURVES[layout](np.stack(axes, axis=1), bits)})


@contextmanager
def sorted_sql(
    con: duckdb.DuckDBPyConnection, rows_sql: str, schema: pa.Schema, by: Sequence[str], layout: str, method: str
) -> Iterator[str]:
    """The rows of a query in the order of a layout; valid on `con` within. Without columns they stay as they come.

    `schema` has the types of the columns; those of a curve must have an order (`sortable`).
    """
    ascending = ", ".join(f"{quote(c)} ASC NULLS FIRST" for c in by)
    if not by or layout == LINEAR:
        yield f"{rows_sql} ORDER BY {ascending}" if by else rows_sql
        return
    columns = ", ".join(map(quote, dict.fromkeys(by)))
    con.execute(
        f"CREATE OR REPLACE TEMP TABLE {_SAMPLED} AS SELECT {columns} FROM ({rows_sql}) USING SAMPLE reservoir({_SAMPLE_ROWS} ROWS) REPEATABLE (1)"
    )
    con.register(_CURVE, curve(layout, len(by)))
    try:
        axes, cell = _cell_sql(con, schema, by, method)
        names = ", ".join(f"r.{quote(c)}" for c in schema.names)
        order = ", ".join(f"r.{quote(c)} ASC NULLS FIRST" for c in by)
        yield (
            f"SELECT {names} FROM (SELECT *, {cell} AS {_CELL} FROM (SELECT *, {axes} FROM ({rows_sql}))) r "
            f"JOIN {_CURVE} c ON r.{_CELL} = c.cell ORDER BY c.place, {order}"
        )
    finally:
        con.unregister(_CURVE)
        con.execute(f"DROP TABLE IF EXISTS {_SAMPLED}")


def sortable(kind: pa.DataType) -> bool:
    """Whether the values of a column have an order that statistics of a file can use."""
    return not pa.types.is_nested(kind)


def _cell_sql(con: duckdb.DuckDBPyConnection, schema: pa.Schema, by: Sequence[str], method: str) -> tuple[str, str]:
    """(what is compared per column, the number of the cell)."""
    bits = bits_of(len(by))
    axes, terms = [], []
    for number, column in enumerate(by):
        axis, bounds = _bounds(con, column, schema.field(column).type, method, 1 << bits)
        name = f"{_AXIS}{number}"
        axes.append(f"{axis} AS {name}")
        weight = 1 << (bits * (len(by) - 1 - number))
        terms.append(f"CASE WHEN {name} IS NULL THEN 0 ELSE {_search_sql(name, bounds, weight, 0)} END::UBIGINT")
    return ", ".join(axes), " + ".join(terms)


def _search_sql(value: str, bounds: Sequence[str], weight: int, first: int) -> str:
    """How many of the ascending bounds are not above the value, and `first`, times `weight`: a binary search."""
    if not bounds:
        return str(first * weight)
    middle = len(bounds) // 2
    below = _search_sql(value, bounds[:middle], weight, first)
    above = _search_sql(value, bounds[middle + 1 :], weight, first + middle + 1)
    return f"CASE WHEN {value} < {bounds[middle]} THEN {below} ELSE {above} END"


def _bounds(
    con: duckdb.DuckDBPyConnection, column: str, kind: pa.DataType, method: str, steps: int
) -> tuple[str, list[str]]:
    """(the value to compare, at most `steps` - 1 ascending bounds between the steps), as SQL."""
    name = quote(column)
    if method == DIRECT and (number := _number_sql(name, kind)):
        low, high = con.execute(
            f"SELECT min(n), max(n) FROM (SELECT {number} AS n FROM {_SAMPLED}) WHERE isfinite(n)"
        ).fetchall()[0]
        width = 0.0 if low is None else (high - low) / steps
        return number, [f"{low + width * i!r}::DOUBLE" for i in range(1, steps)] if width > 0 else []
    lows = con.execute(
        f"SELECT CAST(low AS VARCHAR) FROM (SELECT DISTINCT min({name}) AS low FROM (SELECT {name}, ntile({steps}) "
        f"OVER (ORDER BY {name}) AS tile FROM {_SAMPLED} WHERE {name} IS NOT NULL) GROUP BY tile) ORDER BY low"
    ).fetchall()
    sql_type = duckdb_type(kind, column)
    return name, [f"CAST({literal(text)} AS {sql_type})" for (text,) in lows[1:]]


def _number_sql(name: str, kind: pa.DataType) -> str | None:
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return f"epoch_us({name})::DOUBLE"
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return f"{name}::DOUBLE" if numeric else None
