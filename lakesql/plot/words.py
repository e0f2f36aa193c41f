"""Numbers, spans of time and names as short texts for labels and findings. Pure."""

import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime

from lakesql.services.freshness import lag_text

NAME_MAX = 34
"""Columns of a terminal that a name may take before its middle is left out."""


def bytes_text(value: float) -> str:
    """In decimal units, three digits."""
    if value < 1000:
        return f"{value:.0f} B"
    for unit in ("kB", "MB", "GB", "TB"):
        value /= 1000
        if value < 999.5 or unit == "TB":
            break
    return f"{value:.3g} {unit}" if value < 999.5 else f"{value:,.0f} {unit}"


def seconds_text(value: float) -> str:
    """A duration, exact for short ones."""
    if value < 1:
        return f"{1000 * value:.3g} ms"
    return f"{value:.3g} s" if value < 120 else lag_text(value)


def number_text(value: float) -> str:
    """Three digits of a small number, all before the point of a large one, and powers of ten of others."""
    if value and not 0.001 <= abs(value) < 1e15:
        return f"{value:.2e}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def percent_text(value: float) -> str:
    """A share."""
    percent = 100 * value
    return f"{percent:.2g} %" if 0 < percent < 10 else f"{percent:.0f} %"


def width(text: str) -> int:
    """Columns that a text takes: ideographs take two."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def shortened(name: str, most: int = NAME_MAX) -> str:
    """A name without its middle when it is long, and without characters that break a line."""
    plain = "".join(c if c.isprintable() else " " for c in name)
    if width(plain) <= most:
        return plain
    head, tail = _within(plain, most * 3 // 5), _within(plain[::-1], most - most * 3 // 5 - 1)[::-1]
    return f"{head}…{tail}"


def _within(text: str, most: int) -> str:
    taken = ""
    for c in text:
        if width(taken + c) > most:
            break
        taken += c
    return taken


def titled(name: str, what: str) -> str:
    """The title of a plot of a table."""
    return f"{shortened(name, 44)}: {what}"


def distinct(names: Sequence[str], most: int = NAME_MAX) -> list[str]:
    """Short names that differ from each other where the names do: where shortening would make two alike, they are numbered."""
    short = [shortened(n, most) for n in names]
    meant: dict[str, set[str]] = {}
    for name, text in zip(names, short, strict=True):
        meant.setdefault(text, set()).add(name)
    order: dict[str, int] = {}
    found = []
    for name, text in zip(names, short, strict=True):
        if len(meant[text]) > 1:
            text = f"{shortened(name, most - 5)} ({order.setdefault(name, len(order) + 1)})"
        found.append(text)
    return found


def moment_text(millis: float) -> str:
    """A moment in UTC to the second."""
    return f"{datetime.fromtimestamp(millis / 1000, UTC):%Y-%m-%d %H:%M:%S}"
