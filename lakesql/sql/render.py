"""Results as text: box tables for people, CSV, JSON, Markdown and one-value-per-line for programs. Pure.

Values come as the texts that DuckDB gives them, None for NULL; for the JSON formats they come as JSON (`is_json`).
NULL is written out except in CSV, where it is empty and an empty text is `""`, and in JSON, where it is null.
A box may be limited in rows and in width. Of too many rows the first and the last are shown; in too narrow a place
long values are cut first, then columns are left out: Hudi's meta columns, then those in the middle.
"""

import json
from collections.abc import Callable, Collection, Sequence

from lakesql.sql.cells import cell_len, set_cell_size

ROWS_MAX = 40
WIDTH_MIN = 20
"""What a column keeps, in cells, before whole columns are left out."""
META_PREFIX = "_hoodie_"

Rows = Sequence[Sequence[str | None]]

_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE", "DECIMAL", "BIGNUM")
_UNSIGNED = ("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT", "UHUGEINT")


def is_json(mode: str) -> bool:
    """Whether a format wants its values as JSON."""
    return mode in ("json", "jsonlines")


def table(
    columns: Sequence[str], rows: Rows, types: Sequence[str] = (), count: int | None = None, width: int | None = None
) -> str:
    """A box at most `width` cells wide, None for no limit.

    `rows` are all rows, or the first and the last ones of `count`. `types`: DuckDB's names, to put numbers right.
    """
    count = len(rows) if count is None else count
    right = [_is_number(t) for t in types] or [False] * len(columns)
    header = [_one_line(c) for c in columns]
    cells = [["NULL" if v is None else _one_line(v) for v in row] for row in rows]
    if len(rows) < count:
        cells[(len(rows) + 1) // 2 : (len(rows) + 1) // 2] = [["·"] * len(columns)] * 3
    widths = [max(map(cell_len, column)) for column in zip(header, *cells, strict=True)]
    places: Sequence[int | None] = range(len(columns))
    if width is not None:
        kept, widths = _fit(widths, [n for n, c in enumerate(columns) if c.startswith(META_PREFIX)], width)
        places = _with_gaps(kept, len(columns))
    header = [_at(header, p) for p in places]
    cells = [[_at(row, p) for p in places] for row in cells]
    right = [p is not None and right[p] for p in places]
    shown = [1 if p is None else widths[p] for p in places]
    lines = [_rule("┌┬┐", shown), _line(header, shown, [False] * len(shown)), _rule("├┼┤", shown)]
    lines += [_line(row, shown, right) for row in cells]
    lines.append(_rule("└┴┘", shown))
    return "\n".join(lines + _footer(len(rows), count, sum(p is not None for p in places), len(columns)))


def _footer(rows: int, count: int, columns: int, columns_all: int) -> list[str]:
    """A line about what was left out, none when nothing was."""
    parts = []
    if rows < count:
        parts.append(f"{count:,} rows ({rows} shown)")
    if columns < columns_all:
        parts.append(f"{columns_all} columns ({columns} shown)")
    return ["  ".join(parts)] if parts else []


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


def _line(values: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    return "│ " + " │ ".join(_pad(v, w, r) for v, w, r in zip(values, widths, right, strict=True)) + " │"


def _is_number(kind: str) -> bool:
    return kind.partition("(")[0] in (*_NUMBERS, *_UNSIGNED) and not kind.endswith("]")


def _one_line(text: str) -> str:
    return text.replace("\r", "\\r").replace("\n", "\\n").replace("\t", "\\t")


def _pad(text: str, width: int, right: bool) -> str:
    if cell_len(text) > width:
        text = set_cell_size(text, width - 1) + "…"
    blanks = " " * (width - cell_len(text))
    return blanks + text if right else text + blanks


def csv_text(columns: Sequence[str], rows: Rows) -> str:
    """RFC 4180 with a header line; NULL is empty, an empty text is `""`, as DuckDB's COPY writes them."""
    return "\n".join(",".join(map(_csv_field, row)) for row in (columns, *rows))


def _csv_field(value: str | None) -> str:
    if value is None:
        return ""
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
        "{" + ", ".join(f"{n}: {'null' if v is None else v}" for n, v in zip(names, row, strict=True)) + "}"
        for row in rows
    ]


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


def markdown(columns: Sequence[str], rows: Rows) -> str:
    """A table in Markdown."""

    def line(values: Sequence[str]) -> str:
        return "| " + " | ".join(v.replace("|", "\\|").replace("\n", "<br>") for v in values) + " |"

    lines = [line(list(columns)), "|" + "|".join([" --- "] * len(columns)) + "|"]
    return "\n".join([*lines, *(line(["NULL" if v is None else v for v in row]) for row in rows)])


def line_text(columns: Sequence[str], rows: Rows) -> str:
    """One `column = value` per line, an empty line between rows."""
    width = max((cell_len(c) for c in columns), default=0)
    blocks = [
        "\n".join(f"{_pad(c, width, True)} = {'NULL' if v is None else v}" for c, v in zip(columns, row, strict=True))
        for row in rows
    ]
    return "\n\n".join(blocks)


FORMATS: dict[str, Callable[[Sequence[str], Rows], str]] = {
    "table": table,
    "csv": csv_text,
    "json": json_text,
    "jsonlines": json_lines,
    "markdown": markdown,
    "line": line_text,
}
