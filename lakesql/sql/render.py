"""Results as text: box tables for people, CSV, JSON, Markdown and one-value-per-line for programs. Pure.

Values come as the texts that DuckDB gives them, None for NULL; for the JSON formats they come as JSON (`is_json`).
NULL is written out except in CSV, where it is empty and an empty text is `""`, and in JSON, where it is null; there NaN
and the infinities are texts, since JSON has no such numbers.
A box may be limited in rows and in width. Of too many rows the first and the last are shown; in too narrow a place
long values are cut first, then columns are left out: Hudi's meta columns, then those in the middle.
"""

import json
import re
from collections.abc import Callable, Collection, Sequence
from itertools import zip_longest

from lakesql.sql.cells import cell_len, set_cell_size

ROWS_MAX = 40
WIDTH_MIN = 20
"""What a column keeps, in cells, before whole columns are left out."""
META_PREFIX = "_hoodie_"

Rows = Sequence[Sequence[str | None]]

_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE", "DECIMAL", "BIGNUM")
_UNSIGNED = ("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT")
_SHORT = {
    name: f"{sign}int{bits}"
    for sign, names in (("", ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")), ("u", _UNSIGNED))
    for name, bits in zip(names, (8, 16, 32, 64, 128), strict=True)
} | {'"NULL"': "int32"}


def is_json(mode: str) -> bool:
    """Whether a format wants its values as JSON."""
    return mode in ("json", "jsonlines")


def table(
    columns: Sequence[str],
    rows: Rows,
    types: Sequence[str] = (),
    count: int | None = None,
    width: int | None = None,
    null: str = "NULL",
) -> str:
    """A box as the DuckDB shell draws it, at most `width` cells wide, None for no limit.

    `rows` are all rows, or the first and the last ones of `count`. `types`: DuckDB's names, which stand under the names of
    the columns; numbers are put right.
    """
    count = len(rows) if count is None else count
    right = [_is_number(t) for t in types] or [False] * len(columns)
    header = [[_one_line(c) for c in columns], *([[_type_name(t) for t in types]] if types else [])]
    cells = [[null if v is None else _one_line(v) for v in row] for row in rows]
    if len(rows) < count:
        cells[(len(rows) + 1) // 2 : (len(rows) + 1) // 2] = [["·"] * len(columns)] * 3
    widths = [max(map(cell_len, column)) for column in zip(*header, *cells, strict=True)]
    if len(widths) == 1:
        widths = [max(widths[0], *map(len, _footer(len(rows), count, 1, 1, 0)), 0)]
    places: Sequence[int | None] = range(len(columns))
    if width is not None:
        kept, widths = _fit(widths, [n for n, c in enumerate(columns) if c.startswith(META_PREFIX)], width)
        places = _with_gaps(kept, len(columns))
    header = [[_at(row, p) for p in places] for row in header]
    cells = [[_at(row, p) for p in places] for row in cells]
    right = [p is not None and right[p] for p in places]
    shown = [1 if p is None else widths[p] for p in places]
    lines = [_rule("┌┬┐", shown), *(_line(row, [_middle] * len(shown), shown) for row in header)]
    if cells:
        lines += [_rule("├┼┤", shown), *(_line(row, [_right if r else _left for r in right], shown) for row in cells)]
    lines.append(_rule("└┴┘", shown))
    footer = _footer(len(rows), count, sum(p is not None for p in places), len(columns), cell_len(lines[0]))
    return "\n".join(lines + footer)


def _footer(rows: int, count: int, columns: int, columns_all: int, width: int) -> list[str]:
    """What was left out, under a box of that width; nothing when nothing was."""
    if rows == count and columns == columns_all and count:
        return []
    left = [f"{count} row{'' if count == 1 else 's'}", *([f"({rows} shown)"] if rows < count else [])]
    right = [f"{columns_all} columns" if columns_all > 1 and count else ""]
    right += [f"({columns} shown)"] if columns < columns_all else []
    if not right[0]:
        return [" " * ((width - len(line)) // 2) + line for line in left]
    lines = [(" ".join(left), " ".join(right))]
    if len("".join(lines[0])) + 7 > width:
        lines = list(zip_longest(left, right, fillvalue=""))
    return [("  " + a + " " * max(3, width - 4 - len(a) - len(b)) + b).rstrip() for a, b in lines]


def _fit(widths: Sequence[int], meta: Collection[int], limit: int) -> tuple[list[int], list[int]]:
    """Which columns fit into `limit` cells, and how wide each of all columns may be."""
    least = [min(w, WIDTH_MIN) for w in widths]
    kept = list(range(len(widths)))
    while len(kept) > 1 and _total([least[n] for n in kept], len(widths), kept) > limit:
        hidden = [n for n in kept if n in meta] if len(meta) < len(widths) else []
        kept.remove(hidden[-1] if hidden else kept[len(kept) // 2])
    fitted = list(least)
    room = limit - _total([least[n] for n in kept], len(widths), kept)
    while room > 0 and (cut := [n for n in kept if fitted[n] < widths[n]]):
        for n in cut[:room]:
            fitted[n] += 1
        room -= len(cut[:room])
    if room < 0:
        fitted[kept[0]] = max(1, fitted[kept[0]] + room)
    return kept, fitted


def _total(widths: Sequence[int], columns: int, kept: Sequence[int]) -> int:
    """Cells of a line: each column has a bar and two blanks, a gap is one cell wide, and there is a last bar."""
    gaps = sum(p is None for p in _with_gaps(kept, columns))
    return sum(widths) + 3 * len(widths) + 4 * gaps + 1


def _with_gaps(kept: Sequence[int], columns: int) -> list[int | None]:
    """The columns kept, None where some are left out."""
    places: list[int | None] = []
    for n in range(columns):
        if n in kept:
            places.append(n)
        elif not places or places[-1] is not None:
            places.append(None)
    return places


def _at(row: Sequence[str], place: int | None) -> str:
    return "…" if place is None else row[place]


def _rule(corners: str, widths: Sequence[int]) -> str:
    return corners[0] + corners[1].join("─" * (w + 2) for w in widths) + corners[2]


def _line(values: Sequence[str], alignments: Sequence[Callable[[str, int], str]], widths: Sequence[int]) -> str:
    cells = (align(_cut(v, w), w) for v, align, w in zip(values, alignments, widths, strict=True))
    return "│ " + " │ ".join(cells) + " │"


def _type_name(kind: str) -> str:
    """A type as the DuckDB shell writes it: int32, varchar[], struct(a integer)."""
    base = kind.removesuffix("[]")
    if base != kind:
        return _type_name(base) + "[]"
    name, bracket, values = kind.partition("('")  # values of an ENUM
    return _SHORT.get(kind, name.lower() + bracket + values)


def _is_number(kind: str) -> bool:
    return kind.partition("(")[0] in (*_NUMBERS, *_UNSIGNED, '"NULL"') and not kind.endswith("]")


def _one_line(text: str) -> str:
    return text.replace("\r", "\\r").replace("\n", "\\n").replace("\t", "\\t")


def _cut(text: str, width: int) -> str:
    return set_cell_size(text, width - 1) + "…" if cell_len(text) > width else text


def _left(text: str, width: int) -> str:
    return text + " " * (width - cell_len(text))


def _right(text: str, width: int) -> str:
    return " " * (width - cell_len(text)) + text


def _middle(text: str, width: int) -> str:
    blanks = width - cell_len(text)
    return " " * (blanks // 2) + text + " " * (blanks - blanks // 2)


def csv_text(columns: Sequence[str], rows: Rows, null: str | None = None, headers: bool = True) -> str:
    """RFC 4180 with a header line; NULL is empty, an empty text is `""`, as DuckDB's COPY writes them."""
    lines = [columns, *rows] if headers else rows
    return "\n".join(",".join(_csv_field(v, null or "") for v in row) for row in lines)


def _csv_field(value: str | None, null: str) -> str:
    if value is None:
        return null
    if not value or any(c in value for c in ',"\n\r'):
        return '"' + value.replace('"', '""') + '"'
    return value


def json_text(columns: Sequence[str], rows: Rows) -> str:
    """A list of objects, on one line."""
    return "[" + ", ".join(_objects(columns, rows)) + "]"


def json_lines(columns: Sequence[str], rows: Rows) -> str:
    """An object per line."""
    return "\n".join(_objects(columns, rows))


def _objects(columns: Sequence[str], rows: Rows) -> list[str]:
    names = [_json_string(name) for name in unique(columns)]
    return [
        "{" + ", ".join(f"{n}: {'null' if v is None else _valid(v)}" for n, v in zip(names, row, strict=True)) + "}"
        for row in rows
    ]


_NO_NUMBER = re.compile(r'("(?:[^"\\]|\\.)*")|-?(?:NaN|Infinity)')


def _valid(value: str) -> str:
    """A value of DuckDB's to_json, in which what is no number to JSON is a text: "NaN", "Infinity", "-Infinity"."""
    if "NaN" not in value and "Infinity" not in value:
        return value
    return _NO_NUMBER.sub(lambda found: found[1] or f'"{found[0]}"', value)


def _json_string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def unique(columns: Sequence[str]) -> list[str]:
    """Names, a repeated one with the suffix that DuckDB gives it: a, a_1."""
    taken: set[str] = set()
    names = []
    for column in columns:
        name, number = column, 0
        while name.lower() in taken:
            number += 1
            name = f"{column}_{number}"
        taken.add(name.lower())
        names.append(name)
    return names


def markdown(columns: Sequence[str], rows: Rows, null: str = "NULL") -> str:
    """A table in Markdown."""

    def line(values: Sequence[str]) -> str:
        return "| " + " | ".join(v.replace("|", "\\|").replace("\n", "<br>") for v in values) + " |"

    lines = [line(list(columns)), "|" + "|".join([" --- "] * len(columns)) + "|"]
    return "\n".join([*lines, *(line([null if v is None else v for v in row]) for row in rows)])


def line_text(columns: Sequence[str], rows: Rows, null: str = "NULL") -> str:
    """One `column = value` per line, an empty line between rows."""
    width = max((cell_len(c) for c in columns), default=0)
    blocks = [
        "\n".join(f"{_right(c, width)} = {null if v is None else v}" for c, v in zip(columns, row, strict=True))
        for row in rows
    ]
    return "\n\n".join(blocks)


def list_text(columns: Sequence[str], rows: Rows, null: str = "NULL", headers: bool = True) -> str:
    """Values between bars."""
    lines = [columns, *rows] if headers else rows
    return "\n".join("|".join(null if v is None else v for v in row) for row in lines)


FORMATS: dict[str, Callable[..., str]] = {
    "table": table,
    "csv": csv_text,
    "json": json_text,
    "jsonlines": json_lines,
    "markdown": markdown,
    "line": line_text,
    "list": list_text,
}
WITH_HEADERS = ("csv", "list")
"""Formats with a line of names that may be left out."""
