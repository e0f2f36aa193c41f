"""How many cells of a terminal a text takes: two for East Asian wide characters and emoji, none for what joins others.

By the Unicode data of Python alone. Pure.
"""

from itertools import accumulate
from unicodedata import category, east_asian_width

_JOINER = "\u200d"
_AS_EMOJI = "\ufe0f"


def cell_len(text: str) -> int:
    """Cells of a text of one line."""
    if text.isascii() and text.isprintable():
        return len(text)
    return sum(_widths(text))


def set_cell_size(text: str, total: int) -> str:
    """The text cut to `total` cells, or filled with blanks up to them."""
    shown = cell_len(text)
    if shown > total:
        fits = sum(1 for end in accumulate(_widths(text)) if end <= total)
        text = text[:fits]
        shown = cell_len(text)
    return text + " " * max(0, total - shown)


def _widths(text: str) -> list[int]:
    """Cells by character; characters that join the one before take none."""
    found: list[int] = []
    joined = False
    for char in text:
        if joined or char == _JOINER or (found and _modifies(char)):
            found.append(0)
        elif char == _AS_EMOJI:
            found.append(1 if found and found[-1] == 1 else 0)
        else:
            found.append(_width(char))
        joined = char == _JOINER
    return found


def _modifies(char: str) -> bool:
    """Whether this is a skin tone."""
    return "\U0001f3fb" <= char <= "\U0001f3ff"


def _width(char: str) -> int:
    if east_asian_width(char) in "WF":
        return 2
    return 0 if category(char) in ("Mn", "Me", "Cf", "Cc") else 1
