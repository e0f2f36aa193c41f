"""A chart of a query's result: bars for a text and numbers, lines for a time or a number and numbers.

The first column says which; meta columns of Hudi are left out. What fits neither is an error that says what would.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lakesql.counted import counted as many
from lakesql.errors import SQLError
from lakesql.format.avro import META_COLUMNS
from lakesql.plot.figure import Figure
from lakesql.plot.ticks import FIRST_MS, LAST_MS, Axis, linear, round_step, time_axis
from lakesql.plot.words import distinct, number_text, shortened

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

BARS_MAX = 40
LINES_MAX = 5
ROWS_MAX = 1_000_000
_POINTS_MAX = 1_000
_TEXTS = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_boolean,
    pa.types.is_dictionary,
    pa.types.is_null,
)
_CAN = (
    "A chart takes one column of texts, then numbers (bars), or one of times or numbers, then numbers (lines); "
    f"at most {LINES_MAX} columns of numbers"
)


def result_figure(relation: Any) -> Figure:
    """The chart; SQLError when there is none for these columns."""
    data = _table_of(relation)
    names = data.schema.names
    first, numbers = names[0] if names else "", names[1:]
    wrong = [f"{n} ({data.schema.field(n).type})" for n in numbers if not _is_number(data.schema.field(n).type)]
    if not numbers or len(numbers) > LINES_MAX or wrong:
        has = f"This result has {', '.join(f'{f.name} ({f.type})' for f in data.schema) or 'no columns'}"
        raise SQLError(f"{_CAN}. {has}. Select such columns.")
    kind = data.schema.field(first).type
    title = f"{', '.join(shortened(n) for n in numbers)} by {shortened(first)}"
    if _is_time(kind) or _is_number(kind):
        lines = data.filter(pa.array(np.isfinite(_values(data, first)))).sort_by(first)
        alt = _alt_lines(lines, first, numbers)
        return Figure(title, alt, data, lambda: _lines(title, alt, lines, first, numbers))
    if not any(is_kind(kind) for is_kind in _TEXTS):
        raise SQLError(f"{_CAN}. The first column, {first}, is of type {kind}. Select one of these first.")
    if data.num_rows > BARS_MAX:
        raise SQLError(
            f"A chart has room for {BARS_MAX} bars; this result has {data.num_rows:,} rows. Take the largest: "
            f"ORDER BY {numbers[0]} DESC LIMIT {BARS_MAX}."
        )
    alt = _alt_bars(data, first, numbers)
    return Figure(title, alt, data, lambda: _bars(title, alt, data, first, numbers))


def _table_of(relation: Any) -> pa.Table:
    if isinstance(relation, pa.Table):
        data = relation
    elif hasattr(relation, "__arrow_c_stream__"):
        data = pa.RecordBatchReader.from_stream(relation).read_all()
    elif hasattr(relation, "to_arrow_table"):
        data = relation.to_arrow_table()
    else:
        raise SQLError(
            f"A {type(relation).__name__} cannot be drawn; give the result of a query, or anything with an Arrow stream."
        )
    if data.num_rows > ROWS_MAX:
        raise SQLError(f"A chart is of at most {ROWS_MAX:,} rows; this result has {data.num_rows:,}. Group it first.")
    names = data.schema.names
    data = data.rename_columns([n if names.index(n) == i else f"{n} ({i + 1})" for i, n in enumerate(names)])
    return data.drop_columns([n for n in META_COLUMNS if n in names])


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _values(data: pa.Table, name: str) -> np.ndarray:
    """The numbers of a column; NULL and infinite ones as NaN. Moments are epoch milliseconds."""
    column = data[name]
    if _is_time(column.type):
        zone = column.type.tz if pa.types.is_timestamp(column.type) else None
        millis = column.cast(pa.timestamp("us", zone), safe=False).cast(pa.int64())
        values = np.array(millis.cast(pa.float64(), safe=False).to_numpy(), float) / 1000
        values[(values < FIRST_MS) | (values > LAST_MS)] = np.nan  # DuckDB's infinite ones lie beyond
    else:
        values = np.array(column.cast(pa.float64(), safe=False).to_numpy(), float)
    values[~np.isfinite(values)] = np.nan
    return values


def _extremes(data: pa.Table, name: str) -> tuple[float, float] | None:
    values = _values(data, name)
    return (float(np.nanmin(values)), float(np.nanmax(values))) if np.isfinite(values).any() else None


def _label(value: pa.Scalar, shorten: bool = True) -> str:
    text = str(value.as_py()) if value.is_valid else "NULL"
    return shortened(text) if shorten else text


def _alt_lines(data: pa.Table, first: str, numbers: list[str]) -> str:
    told = []
    for name in numbers:
        found = _extremes(data, name)
        told.append(
            f"{name} has no numbers"
            if found is None
            else f"{name} runs from {number_text(found[0])} to {number_text(found[1])}"
        )
    if not data.num_rows:
        return f"The result has no rows with a {first}."
    ends = f"{data[first][0].as_py()} to {data[first][-1].as_py()}"
    return f"{many(data.num_rows, 'row')}, {first} from {ends}: {', '.join(told)}."


def _alt_bars(data: pa.Table, first: str, numbers: list[str]) -> str:
    if not data.num_rows:
        return "The result has no rows."
    told = []
    for name in numbers:
        values = _values(data, name)
        if not np.isfinite(values).any():
            told.append(f"{name} has no numbers")
            continue
        top, low = int(np.nanargmax(values)), int(np.nanargmin(values))
        told.append(
            f"{name} is largest for {_label(data[first][top])} ({number_text(values[top])})"
            + (f" and smallest for {_label(data[first][low])} ({number_text(values[low])})" if low != top else "")
        )
    return f"{many(data.num_rows, 'row')} by {first}: {'; '.join(told)}."


def _bars(title: str, alt: str, data: pa.Table, first: str, numbers: list[str]) -> "Drawing":
    from lakesql.plot.sheet import COLOURS, HATCHES, INK, Key, Panel, page

    if not data.num_rows:
        return page(title, alt, [])
    columns = [_values(data, n) for n in numbers]
    places = np.arange(data.num_rows)[::-1].astype(float)
    thick = 0.72 / len(columns)
    offsets = [0.36 - thick * (n + 0.5) for n in range(len(columns))]

    def draw(axes: "Axes") -> None:
        for values, offset, colour, hatch in zip(columns, offsets, COLOURS, HATCHES, strict=False):
            look: dict[str, Any] = (
                {"facecolor": "none", "hatch": hatch, "edgecolor": colour} if hatch else {"color": colour}
            )
            axes.barh(places + offset, np.nan_to_num(values), height=thick * 0.9, linewidth=0.8, **look)
        axes.axvline(0, color=INK, linewidth=0.8)

    low = min(0.0, *(float(np.nanmin(c)) for c in columns if np.isfinite(c).any()), 0.0)
    high = max(0.0, *(float(np.nanmax(c)) for c in columns if np.isfinite(c).any()), 0.0)
    names = distinct([_label(v, shorten=False) for v in data[first]])
    y = Axis(-0.6, data.num_rows - 0.4, list(zip(places, names, strict=True)))
    ends = [
        (place + offset, "NULL" if np.isnan(v) else number_text(float(v)))
        for values, offset in zip(columns, offsets, strict=True)
        for place, v in zip(places, values, strict=True)
    ]
    keys = (
        [Key(n, c, "area", h) for n, c, h in zip(numbers, COLOURS, HATCHES, strict=False)] if len(numbers) > 1 else ()
    )
    panel = Panel(
        max(16.0, 11.0 * len(numbers) + 4) * data.num_rows + 6,
        draw,
        _signed(low, high),
        y,
        keys=keys,
        ends=ends,
        bare=True,
    )
    return page(title, alt, [panel])


def _signed(low: float, high: float) -> Axis:
    """From a round number at or below `low` to one at or above `high`, zero among the ticks."""
    step = round_step((max(high, -low, high - low) or 1.0) / 5)
    first, last = np.floor(low / step + 1e-9), max(np.ceil(high / step - 1e-9), np.floor(low / step + 1e-9) + 1)
    values = [step * n for n in np.arange(first, last + 1)]
    return Axis(float(values[0]), float(values[-1]), [(float(v), number_text(float(v))) for v in values])


def _lines(title: str, alt: str, data: pa.Table, first: str, numbers: list[str]) -> "Drawing":
    from lakesql.plot.sheet import COLOURS, DASHES, Key, Panel, page

    xs = _values(data, first)
    columns = [_values(data, n) for n in numbers]
    known = [c for c in columns if np.isfinite(c).any()]
    if not known or not np.isfinite(xs).any():
        return page(title, alt, [])

    def draw(axes: "Axes") -> None:
        for values, colour, dash in zip(columns, COLOURS, DASHES, strict=False):
            x, y = _thinned(xs, values)
            axes.plot(
                x,
                y,
                color=colour,
                linestyle=dash,
                linewidth=1.6,
                marker="o" if len(x) <= 40 else "",
                markersize=4,
                clip_on=False,
            )

    low, high = min(float(np.nanmin(c)) for c in known), max(float(np.nanmax(c)) for c in known)
    left, right = float(np.nanmin(xs)), float(np.nanmax(xs))
    if _is_time(data.schema.field(first).type):
        x = time_axis(left, right, shortened(first))
    else:
        x = _ranged(left, right, shortened(first))
    keys = [Key(n, c, "line", d) for n, c, d in zip(numbers, COLOURS, DASHES, strict=False)] if len(numbers) > 1 else ()
    return page(title, alt, [Panel(190, draw, x, _ranged(low, high, ""), keys=keys)])


def _ranged(low: float, high: float, label: str) -> Axis:
    """Round numbers around a range; from zero on when that is near."""
    if low >= 0 and low < 0.5 * high:
        return linear(high, number_text, label)
    span = (high - low) or abs(high) or 1.0
    step = round_step(span / 5)
    first, last = np.floor(low / step + 1e-9), np.ceil(high / step - 1e-9)
    values = [step * n for n in np.arange(first, max(last, first + 1) + 1)]
    digits = max(0, int(np.ceil(-np.log10(step))) + 1)
    return Axis(
        float(values[0]),
        float(values[-1]),
        [(float(v), f"{v:,.{digits}f}".rstrip("0").rstrip(".") if digits else f"{v:,.0f}") for v in values],
        label,
    )


def _thinned(xs: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The points, or of very many the lowest and the highest of each stretch."""
    if len(xs) <= 2 * _POINTS_MAX:
        return xs, values
    chosen = []
    for part in np.array_split(np.arange(len(xs)), _POINTS_MAX):
        own = values[part]
        if np.isfinite(own).any():
            chosen += sorted({int(part[np.nanargmin(own)]), int(part[np.nanargmax(own)])})
        else:
            chosen.append(int(part[0]))
    return xs[chosen], values[chosen]
