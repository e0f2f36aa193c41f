"""Results as text: box tables for people, CSV, JSON, Markdown and one-value-per-line for programs. Pure.

`rows` are tuples of Python values as DuckDB gives them. Numbers stand right, NULL is written out except in CSV,
where it is empty, and JSON, where it is null.
"""

import csv
import io
import json
import math
from collections.abc import Callable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

from rich.cells import cell_len, set_cell_size

ROWS_MAX = 40
CELL_MAX = 80

Rows = Sequence[Sequence[Any]]


def text_of(value: Any) -> str:
    """One value as DuckDB's shell prints it."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, bytes | bytearray | memoryview):
        return "".join(chr(b) if 32 <= b < 127 and b != 92 else f"\\x{b:02X}" for b in bytes(value))
    if isinstance(value, dict):
        return "{" + ", ".join(f"{text_of(k)}: {text_of(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(text_of, value)) + "]"
    return str(value)


def table(columns: Sequence[str], rows: Rows, rows_max: int | None = None) -> str:
    """A box. Of more than `rows_max` rows the first ones are shown, and how many there are."""
    shown = rows if rows_max is None or len(rows) <= rows_max else rows[:rows_max]
    cells = [[_one_line(text_of(v)) for v in row] for row in shown]
    right = [_numeric([row[i] for row in shown]) for i in range(len(columns))]
    header = [_one_line(c) for c in columns]
    widths = [max(cell_len(row[i]) for row in (header, *cells)) for i in range(len(columns))]

    def line(values: Sequence[str], left: bool = False) -> str:
        padded = [_pad(v, w, r and not left) for v, w, r in zip(values, widths, right, strict=True)]
        return "│ " + " │ ".join(padded) + " │"

    def rule(start: str, middle: str, end: str) -> str:
        return start + middle.join("─" * (w + 2) for w in widths) + end

    lines = [rule("┌", "┬", "┐"), line(header, left=True), rule("├", "┼", "┤")]
    lines += [line(row) for row in cells]
    lines.append(rule("└", "┴", "┘"))
    if len(shown) < len(rows):
        lines.append(f"{len(rows):,} rows, the first {len(shown)} are shown")
    return "\n".join(lines)


def _numeric(values: Sequence[Any]) -> bool:
    """Whether a column holds numbers, and at least one."""
    given = [v for v in values if v is not None]
    return bool(given) and all(isinstance(v, int | float | Decimal) and not isinstance(v, bool) for v in given)


def _one_line(text: str) -> str:
    flat = text.replace("\r", "\\r").replace("\n", "\\n").replace("\t", "\\t")
    return flat if cell_len(flat) <= CELL_MAX else set_cell_size(flat, CELL_MAX - 1) + "…"


def _pad(text: str, width: int, right: bool) -> str:
    blanks = " " * (width - cell_len(text))
    return blanks + text if right else text + blanks


def csv_text(columns: Sequence[str], rows: Rows) -> str:
    """RFC 4180 with a header line."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([["" if v is None else text_of(v) for v in row] for row in rows])
    return out.getvalue().rstrip("\n")


def json_text(columns: Sequence[str], rows: Rows) -> str:
    """A list of objects, one per line."""
    lines = [json.dumps(dict(zip(columns, map(_jsonable, row), strict=True)), ensure_ascii=False) for row in rows]
    return "[" + ",\n ".join(lines) + "]"


def _jsonable(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Decimal):
        # A JSON number is read as a double: keep the digits when that would lose some.
        return float(value) if Decimal(repr(float(value))) == value else str(value)
    if isinstance(value, dict):
        return {text_of(k): _jsonable(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(v) for v in value]
    if isinstance(value, timedelta):
        return str(value)
    return text_of(value)


def markdown(columns: Sequence[str], rows: Rows) -> str:
    """A table in Markdown."""

    def line(values: Sequence[str]) -> str:
        return "| " + " | ".join(v.replace("|", "\\|").replace("\n", "<br>") for v in values) + " |"

    lines = [line(list(columns)), "|" + "|".join([" --- "] * len(columns)) + "|"]
    return "\n".join([*lines, *(line([text_of(v) for v in row]) for row in rows)])


def line_text(columns: Sequence[str], rows: Rows) -> str:
    """One `column = value` per line, an empty line between rows."""
    width = max((cell_len(c) for c in columns), default=0)
    blocks = [
        "\n".join(f"{_pad(c, width, True)} = {text_of(v)}" for c, v in zip(columns, row, strict=True)) for row in rows
    ]
    return "\n\n".join(blocks)


FORMATS: dict[str, Callable[[Sequence[str], Rows], str]] = {
    "table": table,
    "csv": csv_text,
    "json": json_text,
    "markdown": markdown,
    "line": line_text,
}
