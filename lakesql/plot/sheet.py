"""The page of a plot: a title, the finding, and panels one below the other, each with a heading, keys, marks and axes.

Every place is computed from texts that were measured before, so nothing overlaps whatever the names and numbers are. All
sizes are points. matplotlib draws the data within a panel; titles, ticks and keys are put around it here, by figures and
axes of its object interface only and with every property given, so that no setting of the program counts.

Colours stand out from white and from black, and no two things are told apart by colour alone.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure as Drawing
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from lakesql.plot.fonts import FAMILY, text_width
from lakesql.plot.ticks import Axis, Tick

INK = "#7a7f87"
"""Texts and axes: at least 4 to 1 on white and on the dark grounds of editors."""
BLUE, VERMILLION, GREEN, PURPLE = "#2a85c9", "#d55e00", "#009e73", "#cc79a7"
"""Of Okabe and Ito's palette those that are at least 3 to 1 on both grounds, the blue lighter."""
COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, INK)
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)), (0, (9, 3)))
MARKERS = "osD^v"
HATCHES = ("", "/////", "\\\\\\\\\\", "xxxx", "-----")

WIDTH = 576.0
MARGIN = 10.0
_INSIDE = WIDTH - 2 * MARGIN
_TITLE, _TEXT, _SMALL = 11.0, 9.0, 8.0
_LINE = 1.35


@dataclass(frozen=True, slots=True)
class Key:
    """What a colour and a shape mean. `mark` is a marker of matplotlib, 'line' or 'area'."""

    label: str
    colour: str
    mark: str = "area"
    look: Any = ""
    """Dashes of a line, hatches of an area, 'hollow' for a marker."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes.

    rows    texts left of the axes in place of ticks: the value and its label
    ends    texts right of the axes, likewise
    flags   dotted upright lines with a text above them
    """

    height: float
    draw: Callable[[Axes], None]
    x: Axis
    y: Axis
    heading: str = ""
    keys: Sequence[Key] = ()
    ends: Sequence[Tick] = ()
    flags: Sequence[Tick] = ()
    bare: bool = False
    """Without lines across for the ticks of y."""


@dataclass(slots=True)
class _Place:
    """Where things go on the page; `top` moves down."""

    left: float
    right: float
    top: float = MARGIN
    later: list[Callable[[Drawing, float], Any]] = field(default_factory=list)


def page(title: str, finding: str, panels: Sequence[Panel], note: str = "") -> Drawing:
    """The page. Without panels it holds the title and the finding alone."""
    left = max((text_width(text, _SMALL) for p in panels for _, text in p.y.ticks), default=0.0)
    right = max((text_width(text, _SMALL) for p in panels for _, text in p.ends), default=0.0)
    place = _Place(MARGIN + left + 6 * bool(left), WIDTH - MARGIN - right - 6 * bool(right))
    _lines(place, [_cut(title, _INSIDE, _TITLE, True)], _TITLE, True)
    _lines(place, wrapped(finding, _INSIDE, _TEXT), _TEXT)
    for one in panels:
        place.top += 8
        _panel(place, one)
    if note:
        place.top += 4
        _lines(place, wrapped(note, _INSIDE, _SMALL), _SMALL)
    height = place.top + MARGIN
    drawing = Drawing(figsize=(WIDTH / 72, height / 72), dpi=72, facecolor="none", edgecolor="none", frameon=False)
    for draw in place.later:
        draw(drawing, height)
    return drawing


# ---------------------------------------------------------------- texts


def wrapped(text: str, room: float, size: float, bold: bool = False) -> list[str]:
    """The text in lines that fit into the room."""
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(longer, size, bold) <= room:
            lines[-1] = longer
        else:
            lines.append(_cut(word, room, size, bold))
    return lines


def _cut(text: str, room: float, size: float, bold: bool = False) -> str:
    """The text, without its end where it is too long."""
    if text_width(text, size, bold) <= room:
        return text
    while text and text_width(f"{text}…", size, bold) > room:
        text = text[:-1]
    return f"{text}…"


def _lines(place: _Place, lines: Iterable[str], size: float, bold: bool = False) -> None:
    for line in lines:
        _text(place, MARGIN, place.top + size, line, size, "left", bold)
        place.top += size * _LINE


def _text(
    place: _Place, x: float, baseline: float, text: str, size: float = _SMALL, align: Any = "left", bold: bool = False
) -> None:
    """A text with its baseline so far below the top."""
    if not text:
        return
    look = {"color": INK, "family": FAMILY, "size": size, "weight": "bold" if bold else "normal"}

    def draw(drawing: Drawing, height: float) -> None:
        where = x / WIDTH, 1 - baseline / height
        drawing.text(*where, text, ha=align, va="baseline", parse_math=False, usetex=False, **look)  # type: ignore[arg-type]

    place.later.append(draw)


def _artist(place: _Place, make: Callable[[Drawing, float], Any]) -> None:
    place.later.append(lambda drawing, height: drawing.add_artist(make(drawing, height)))


# ---------------------------------------------------------------- panels


def _panel(place: _Place, panel: Panel) -> None:
    if panel.heading:
        _lines(place, wrapped(panel.heading, _INSIDE, _TEXT, True), _TEXT, True)
    if panel.keys:
        _keys(place, panel.keys)
    place.top += 4
    _flags(place, panel)
    top, bottom = place.top, place.top + panel.height
    span = place.right - place.left
    for value, text in panel.y.ticks:
        _text(place, place.left - 6, bottom - panel.y.place(value) * panel.height + _SMALL * 0.36, text, align="right")
    for value, text in panel.ends:
        _text(place, place.right + 6, bottom - panel.y.place(value) * panel.height + _SMALL * 0.36, text)
    place.later.append(lambda drawing, height: _axes(drawing, height, panel, (place.left, top, span, panel.height)))
    place.top = bottom + 2
    _x_ticks(place, panel.x, span)


def _x_ticks(place: _Place, axis: Axis, span: float) -> None:
    """Ticks that have room beside their neighbours, then the label of the axis."""
    free = -1e9
    shown = False
    for value, text in axis.ticks:
        half = text_width(text, _SMALL) / 2
        x = min(max(place.left + axis.place(value) * span, MARGIN + half), WIDTH - MARGIN - half)
        if x - half < free + 8:
            continue
        _text(place, x, place.top + _SMALL, text, align="center")
        free = x + half
        shown = True
    place.top += _SMALL * _LINE * shown
    if axis.label:
        _text(place, (place.left + place.right) / 2, place.top + _SMALL, _cut(axis.label, span, _SMALL), align="center")
        place.top += _SMALL * _LINE


def _keys(place: _Place, keys: Sequence[Key]) -> None:
    """Shapes with their meanings, in as many lines as they need."""
    x = MARGIN
    place.top += 2
    for key in keys:
        label = _cut(key.label, _INSIDE - 24, _SMALL)
        wide = 20 + text_width(label, _SMALL) + 14
        if x > MARGIN and x + wide - 14 > WIDTH - MARGIN:
            x = MARGIN
            place.top += _SMALL * 1.5
        _key(place, key, x, place.top + _SMALL * 0.62)
        _text(place, x + 20, place.top + _SMALL, label)
        x += wide
    place.top += _SMALL * 1.5


def _key(place: _Place, key: Key, x: float, y: float) -> None:
    def make(drawing: Drawing, height: float) -> Any:
        at: dict[str, Any] = {"transform": drawing.transFigure}
        look: dict[str, Any]
        fx, fy = (lambda v: v / WIDTH), (lambda v: 1 - v / height)
        if key.mark == "area":
            look = {"facecolor": key.colour, "edgecolor": key.colour, "linewidth": 0.8, "alpha": 1.0}
            if key.look:
                look |= {"facecolor": "none", "hatch": key.look}
            return Rectangle((fx(x), fy(y + 4)), 14 / WIDTH, 8 / height, **look, **at)
        if key.mark == "line":
            return Line2D(
                [fx(x), fx(x + 16)], [fy(y)] * 2, color=key.colour, linewidth=1.8, linestyle=key.look or "-", **at
            )
        look = {"markerfacecolor": "none" if key.look == "hollow" else key.colour, "markeredgecolor": key.colour}
        return Line2D([fx(x + 8)], [fy(y)], marker=key.mark, markersize=6, linestyle="none", **look, **at)

    _artist(place, make)


def _flags(place: _Place, panel: Panel) -> None:
    """The texts of the flags above the axes, each on the first line that has room for it."""
    span = place.right - place.left
    ends: list[float] = []
    texts = []
    for value, text in sorted(panel.flags):
        half = text_width(text, _SMALL) / 2
        x = min(max(place.left + panel.x.place(value) * span, MARGIN + half), WIDTH - MARGIN - half)
        line = next((n for n, end in enumerate(ends) if x - half >= end + 8), len(ends))
        ends[line : line + 1] = [x + half]
        texts.append((line, x, text))
    for line, x, text in texts:
        _text(place, x, place.top + (len(ends) - line) * _SMALL * _LINE - 2, text, align="center")
    place.top += len(ends) * _SMALL * _LINE


def _axes(drawing: Drawing, height: float, panel: Panel, box: tuple[float, float, float, float]) -> None:
    left, top, wide, high = box
    axes = drawing.add_axes((left / WIDTH, 1 - (top + high) / height, wide / WIDTH, high / height))
    axes.axis("off")
    x, y = panel.x, panel.y
    axes.set_xscale("log" if x.log else "linear")
    axes.set_yscale("log" if y.log else "linear")
    axes.set_xlim(x.low, x.high)
    axes.set_ylim(y.low, y.high)
    if not panel.bare:
        _ruled(axes, [[(x.low, v), (x.high, v)] for v, _ in y.ticks], alpha=0.22)
    _ruled(axes, [[(x.low, y.low), (x.high, y.low)]], alpha=0.8)
    _ruled(axes, [[(v, y.low), (v, y.high)] for v, _ in panel.flags], linestyles=[(0, (2, 2))], linewidths=1.0)
    panel.draw(axes)
    axes.set_xlim(x.low, x.high)
    axes.set_ylim(y.low, y.high)


def _ruled(axes: Axes, lines: Sequence[Any], **look: Any) -> None:
    if lines:
        axes.add_collection(
            LineCollection(lines, colors=INK, clip_on=False, **({"linewidths": 0.7, "zorder": 0.5} | look)),
            autolim=False,
        )
