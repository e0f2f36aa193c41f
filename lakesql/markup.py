"""HTML that notebooks show: tables of texts, facts, notes. Pure; every text that comes in is escaped.

Colours are the page's own ones and grey of half opacity, so one markup is readable on light and on dark pages; without
its style sheet, which some viewers take away, it is still a plain table.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from lakesql.counted import counted

_TABLES_SHOWN = 50
_LINE = "1px solid rgba(128,128,128,.35)"
_STYLE = (
    "<style>"
    ".lakesql{font-size:13px;line-height:1.45;color:inherit;overflow-x:auto}"
    ".lakesql p{margin:.3em 0}"
    ".lakesql table{border-collapse:collapse;margin:.4em 0;color:inherit;background:none;width:auto}"
    f".lakesql th,.lakesql td{{padding:.2em .8em;text-align:left!important;vertical-align:top;border:0;border-bottom:{_LINE};"
    "color:inherit;background:none;max-width:42em;white-space:pre-wrap;overflow-wrap:break-word}"
    ".lakesql thead th{font-weight:600;white-space:nowrap}"
    ".lakesql thead small{font-weight:400;opacity:.65;display:block}"
    ".lakesql tbody th{font-weight:400;opacity:.75;white-space:nowrap}"
    ".lakesql .n{text-align:right!important;font-variant-numeric:tabular-nums;white-space:nowrap}"
    ".lakesql .q{opacity:.65}"
    ".lakesql pre{font-family:monospace!important;font-size:12px;line-height:1.25;margin:.4em 0;color:inherit;background:none;overflow-x:auto}"
    ".lakesql summary{cursor:pointer;opacity:.75}"
    "</style>"
)


def page(*parts: str) -> str:
    """Parts of markup as one output."""
    return f'<div class="lakesql">{_STYLE}{"".join(parts)}</div>'


def title(text: str, more: str = "") -> str:
    """A name in bold, with what it is beside it."""
    return f"<p><strong>{escape(text)}</strong>{' ' + escape(more) if more else ''}</p>"


def line(text: str, quiet: bool = False) -> str:
    """A paragraph; a quiet one is greyed."""
    return f'<p class="q">{escape(text)}</p>' if quiet else f"<p>{escape(text)}</p>"


def code(text: str) -> str:
    """Text with its blanks and line ends, as a plan has."""
    return f"<pre>{escape(text)}</pre>"


def details(summary: str, *parts: str) -> str:
    """Parts that are folded away."""
    return f"<details><summary>{escape(summary)}</summary>{''.join(parts)}</details>"


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """A name and a value per line."""
    rows = "".join(f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>' for name, value in pairs)
    return f"<table><tbody>{rows}</tbody></table>"


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str | None]],
    numbers: Sequence[bool] = (),
    types: Sequence[str] = (),
) -> str:
    """Rows of texts below their names, None as a grey NULL. `numbers`: the columns put to the right."""
    right = list(numbers) or [False] * len(columns)
    kinds = list(types) or [""] * len(columns)
    head = "".join(
        f'<th scope="col"{_side(n)}>{escape(name)}{f"<small>{escape(kind)}</small>" if kind else ""}</th>'
        for name, kind, n in zip(columns, kinds, right, strict=True)
    )
    body = "".join(f"<tr>{''.join(_cell(value, n) for value, n in zip(row, right, strict=True))}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: str | None, number: bool) -> str:
    shown = '<span class="q">NULL</span>' if value is None else escape(value)
    return f"<td{_side(number)}>{shown}</td>"


def _side(number: bool) -> str:
    return ' class="n"' if number else ""


def warehouse(folder: str, tables: Mapping[str, str], read_only: bool) -> str:
    """A connection: its tables by name, and their paths."""
    listed = sorted(tables.items())
    shown = [table(("table", "path"), listed[:_TABLES_SHOWN])] if listed else []
    shown += [line(f"... and {len(listed) - _TABLES_SHOWN:,} more")] if len(listed) > _TABLES_SHOWN else []
    shown += [line("read-only", quiet=True)] if read_only else []
    return page(title("lakesql", f"{counted(len(listed), 'Hudi table')}, warehouse {folder}"), *shown)
