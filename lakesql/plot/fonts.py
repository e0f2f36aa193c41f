"""The font that texts are measured with, and what to do about characters that it lacks."""

from functools import lru_cache

from matplotlib import font_manager
from matplotlib.figure import Figure as Drawing
from matplotlib.font_manager import FontProperties
from matplotlib.text import Text
from matplotlib.textpath import text_to_path

FAMILY = "DejaVu Sans"
"""Comes with matplotlib, and is as wide as any usual one."""
_FALLBACKS = (
    "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans SC", "PingFang SC", "Hiragino Sans", "Microsoft YaHei",
    "WenQuanYi Zen Hei", "Arial Unicode MS", "Noto Sans", "Noto Sans Arabic", "Noto Emoji", "Segoe UI Symbol",
)  # fmt: skip
_UNKNOWN = "\N{REPLACEMENT CHARACTER}"


def text_width(text: str, size: float, bold: bool = False) -> float:
    """Points that one line of text takes."""
    if not text:
        return 0.0
    look = FontProperties(family=FAMILY, size=size, weight="bold" if bold else "normal")
    wide: float = text_to_path.get_text_width_height_descent(measurable(text), look, False)[0]
    return wide


def measurable(text: str) -> str:
    """The text with something as wide in place of what the font lacks."""
    if text.isascii():
        return text
    known = _characters(FAMILY)
    return "".join(c if ord(c) in known else _UNKNOWN for c in text)


def replace_unknown(drawing: Drawing) -> None:
    """Let other fonts help where the usual one lacks a character, and show what no font has as unknown."""
    for text in drawing.findobj(Text):
        assert isinstance(text, Text)
        lacking = {ord(c) for c in text.get_text()} - _characters(FAMILY)
        if not lacking:
            continue
        families = [FAMILY, *(f for f in _FALLBACKS if lacking & _characters(f))]
        known = frozenset[int]().union(*(_characters(f) for f in families))
        text.set_fontfamily(families)
        text.set_text("".join(c if ord(c) in known else _UNKNOWN for c in text.get_text()))


@lru_cache(maxsize=32)
def _characters(family: str) -> frozenset[int]:
    """Code points that an installed font has; none when it is not installed."""
    entry = next((e for e in font_manager.fontManager.ttflist if e.name == family), None)
    return frozenset(font_manager.get_font(entry.fname).get_charmap()) if entry is not None else frozenset()
