"""Results as HTML: a plain table where all is seen at once, else an interactive one, to sort, search and turn pages in.

The interactive table is that of itables (DataTables), with its script in the notebook: no network is needed. Without
itables every result is a plain table. Values come as DuckDB's texts and are escaped here.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from typing import Any

import duckdb
import pyarrow as pa

from lakesql import markup
from lakesql.counted import counted
from lakesql.sql import render

ROWS = 1000
"""How many rows of a result are shown, unless a person says otherwise."""
PLAIN_ROWS = 12
"""A result up to this long is a plain table."""
CELL_MAX = 1000
META_COLUMNS = 5

_NUMBERS = {
    *("tinyint", "smallint", "integer", "bigint", "hugeint", "float", "double", "decimal", "bignum"),
    *("utinyint", "usmallint", "uinteger", "ubigint", "uhugeint"),
}
_GRID_STYLE = (
    "<style>.lakesql-grid td.n:empty::before{content:'NULL';opacity:.55}"
    ".lakesql-grid th,.lakesql-grid td{text-align:left!important}.lakesql-grid .n{text-align:right!important}"
    ".lakesql-grid td{white-space:pre-wrap;overflow-wrap:anywhere}.lakesql-grid td.n{white-space:nowrap}"
    ".lakesql-grid .q,.lakesql-grid thead small{opacity:.65;font-weight:400}"
    ".lakesql-grid thead small{display:block}</style>"
)


@dataclass(frozen=True, slots=True)
class Preview:
    """The first rows of a result as texts, None for NULL. `more`: there are others. `hidden`: columns left out."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    numbers: tuple[bool, ...]
    rows: tuple[tuple[str | None, ...], ...]
    more: bool = False
    hidden: int = 0


def preview(relation: duckdb.DuckDBPyRelation, rows: int = ROWS, meta: bool = False) -> Preview:
    """Run a relation for its first rows. Hudi's own columns are left out where all of them come with others."""
    texts = relation.limit(rows + 1).project("COLUMNS(*)::VARCHAR").fetchall()
    kinds = list(relation.types)
    places = range(len(kinds))
    meta_places = [n for n, name in enumerate(relation.columns) if name.startswith(render.META_PREFIX)]
    if not meta and len(meta_places) == META_COLUMNS < len(kinds):
        places = [n for n in places if n not in meta_places]  # type: ignore[assignment]
    return Preview(
        tuple(relation.columns[n] for n in places),
        tuple(str(kinds[n]) for n in places),
        tuple(kinds[n].id in _NUMBERS for n in places),
        tuple(tuple(_cut(row[n]) for n in places) for row in texts[:rows]),
        len(texts) > rows,
        len(kinds) - len(places),
    )


def _cut(value: str | None) -> str | None:
    return value if value is None or len(value) <= CELL_MAX else f"{value[:CELL_MAX]}… ({len(value):,} characters)"


def prepare() -> None:
    """Bring the script of interactive tables into the notebook, once, where there is one to bring."""
    with suppress(ImportError):
        from itables import javascript

        if getattr(javascript, "_CONNECTED", True):
            javascript.init_notebook_mode(all_interactive=False, connected=False)


def html(shown: Preview, interactive: bool = True, notes: Sequence[str] = ()) -> str:
    """A preview as HTML."""
    below = [markup.line(text, quiet=True) for text in (*footer(shown), *notes)]
    if interactive and len(shown.rows) > PLAIN_ROWS and (made := _interactive(shown)) is not None:
        return made + (markup.page(*below) if below else "")
    rows = [tuple(row) for row in shown.rows]
    return markup.page(markup.table(shown.columns, rows, shown.numbers, shown.types), *below)


def footer(shown: Preview) -> list[str]:
    """What is left out, if anything."""
    if not shown.rows:
        return ["no rows"]
    return [*([f"The first {len(shown.rows):,} rows; there are more."] if shown.more else []), *_hidden(shown)]


def _hidden(shown: Preview) -> list[str]:
    return [f"{counted(shown.hidden, 'meta column')} of Hudi are not shown."] if shown.hidden else []


def text(shown: Preview, width: int | None = None) -> str:
    """A preview as a box of text."""
    half, count = render.ROWS_MAX // 2, len(shown.rows)
    rows = shown.rows if count <= 2 * half else (*shown.rows[:half], *shown.rows[-half:])
    return "\n".join([render.table(shown.columns, rows, shown.types, count, width), *footer(shown)])


def _interactive(shown: Preview) -> str | None:
    """The table of itables, None when that is not installed."""
    try:
        import narwhals  # noqa: F401  itables reads Arrow tables by it
        from itables import to_html_datatable
    except ImportError:
        return None
    heads = [f"{escape(n)}<small>{escape(k)}</small>" for n, k in zip(shown.columns, shown.types, strict=True)]
    columns = [
        pa.array([_cell(row[n], number) for row in shown.rows], pa.string()) for n, number in enumerate(shown.numbers)
    ]
    right = [n for n, number in enumerate(shown.numbers) if number]
    options: dict[str, Any] = {
        "connected": False,
        "allow_html": True,  # every text in it is escaped: here, in heads and in `_cell`
        "display_logo_when_loading": False,
        "maxBytes": 0,
        "maxColumns": 0,
        "showIndex": False,
        "classes": "display compact nowrap",
        "style": "table-layout:auto;width:auto;float:left",
        "order": [],
        "columnDefs": [{"targets": right, "className": "n dt-right"}] if right else [],
    }
    rows: Any = pa.Table.from_arrays(columns, names=_distinct(heads))
    return f'<div class="lakesql-grid">{_GRID_STYLE}{to_html_datatable(rows, **options)}</div>'


def _cell(value: str | None, number: bool) -> str:
    """A value as markup. A NULL among numbers is empty, so that the column is still one of numbers to sort by."""
    if value is None:
        return "" if number else '<span class="q">NULL</span>'
    return escape(value)


def _distinct(heads: Sequence[str]) -> list[str]:
    """The same heads where one repeats another, told apart by what is not seen."""
    seen: dict[str, int] = {}
    made = []
    for head in heads:
        seen[head] = seen.get(head, 0) + 1
        made.append(head + "<!---->" * (seen[head] - 1))
    return made
