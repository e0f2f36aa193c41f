"""How many cells of a terminal a text takes: two for East Asian wide characters and emoji, none for what joins others.

By wcwidth, which the extra [cli] brings. Without it by the width of each character alone: a family of emoji then counts
as its members.
"""

from collections.abc import Iterator
from itertools import accumulate
from unicodedata import category, east_asian_width

try:
    import wcwidth
except ImportError:
    wcwidth = None  # type: ignore[assignment]


def cell_len(text: str) -> int:
    """Cells of a text of one line."""
    if text.isascii() and text.isprintable():
        return len(text)
    return sum(cells for _, cells in _parts(text))


def set_cell_size(text: str, total: int) -> str:
    """The text cut to `total` cells, or filled with blanks up to them."""
    shown = cell_len(text)
    if shown > total:
        parts = list(_parts(text))
        ends = accumulate(cells for _, cells in parts)
        text = "".join(part for (part, _), end in zip(parts, ends, strict=True) if end <= total)
        shown = cell_len(text)
    return text + " " * max(0, total - shown)


def _parts(text: str) -> Iterator[tuple[str, int]]:
    """What cannot be cut, and the cells of each: characters with all that joins them."""
    if wcwidth is None:
        return ((char, _width(char)) for char in text)
    return ((part, max(0, wcwidth.wcswidth(part))) for part in wcwidth.iter_graphemes(text))


def _width(char: str) -> int:
    if east_asian_width(char) in "WF":
        return 2
    return 0 if category(char) in ("Mn", "Me", "Cf", "Cc") else 1
