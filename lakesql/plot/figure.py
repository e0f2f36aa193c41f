"""`Figure`: what every function of `lakesql.plot` gives. Its numbers, a sentence that says what it shows, and the drawing.

The drawing is made anew whenever it is asked for, by the thread that asks, and nothing of it is shared.
"""

import html
import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakesql.errors import LakeError, SQLError

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

FORMATS = (".svg", ".png", ".pdf")


def require_matplotlib() -> None:
    """LakeError when it is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise LakeError("Plots need the package matplotlib. Install it: pip install 'lakesql[plot]'.")


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot.

    title  what it is of
    alt    what it shows, in a sentence or two: a text alternative for who does not see it
    data   the numbers that are drawn
    """

    title: str
    alt: str
    data: pa.Table = field(repr=False)
    _draw: "Callable[[], Drawing]" = field(repr=False)

    def svg(self) -> str:
        """The drawing as an SVG document, readable on light and dark pages."""
        return self._svg()

    def _svg(self, ink: str | None = None) -> str:
        from lakesql.plot.svg import svg_of

        return svg_of(self._draw(), self.title, self.alt, ink)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the drawing to a file, by its ending: .svg, .png or .pdf. SQLError for another one."""
        file = Path(path)
        kind = file.suffix.lower()
        if kind not in FORMATS:
            raise SQLError(f"{file}: a plot is written as {', '.join(FORMATS)}; give the file one of these endings.")
        if kind == ".svg":
            file.write_text(self.svg(), encoding="utf-8")
            return file
        from lakesql.plot.svg import pdf_of, png_of

        file.write_bytes((png_of if kind == ".png" else pdf_of)(self._draw(), self.title))
        return file

    def _repr_svg_(self) -> str:
        return self.svg()

    def _repr_html_(self) -> str:
        """The drawing in the colour of the page's own text."""
        return f'<div class="lakesql-plot" style="max-width:768px">{self._svg("currentColor")}</div>'

    def __str__(self) -> str:
        return self.alt

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        svg = self.svg()
        return {"text/html": self._repr_html_(), "image/svg+xml": svg, "text/plain": f"{self.title}\n{self.alt}"}


def plain(text: str) -> str:
    """A text without the characters that XML and fonts do not have."""
    return "".join(c if c.isprintable() else " " for c in text)


def escaped(text: str) -> str:
    """A text for XML."""
    return html.escape(plain(text))
