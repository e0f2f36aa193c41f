"""A matplotlib drawing as SVG, PNG or PDF: by renderers of its own, so that no setting of matplotlib counts or changes.

The SVG keeps texts as texts: they can be read aloud, searched, and shown in scripts that the font used for measuring
lacks. Names of its parts are made from its content, so that the same drawing gives the same file and several of them fit
into one page. It has no ground of its own.
"""

import hashlib
import io
import re
from typing import Any

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import RendererSVG
from matplotlib.figure import Figure as Drawing
from matplotlib.text import Text

from lakesql.plot.figure import escaped, plain
from lakesql.plot.fonts import measurable, replace_unknown
from lakesql.plot.sheet import INK

_FONTS = "'DejaVu Sans', Verdana, sans-serif"
_ANCHOR = {"left": "start", "center": "middle", "right": "end"}
_PNG_DPI = 192
_PLACES, _LONG = re.compile(r' d="[^"]*"|<use [^>]*>'), re.compile(r"(\d\.\d\d)\d+")
"""Where numbers are places on the page, and those with more digits than can be seen."""


class _Renderer(RendererSVG):
    """matplotlib's, but texts are always elements with one line of text, whatever the settings say."""

    def draw_text(
        self,
        gc: Any,
        x: float,  # noqa: ARG002
        y: float,
        s: str,
        prop: Any,
        angle: float,
        ismath: Any = False,  # noqa: ARG002
        mtext: Text | None = None,
    ) -> None:
        assert mtext is not None, "all texts of a sheet are artists"
        assert not angle, "all texts of a sheet are level"
        red, green, blue = (round(255 * part) for part in gc.get_rgb()[:3])
        attributes = {
            "x": f"{mtext.get_transform().transform(mtext.get_unitless_position())[0]:.1f}",
            "y": f"{y:.1f}",
            "text-anchor": _ANCHOR[mtext.get_horizontalalignment()],
            "font-size": f"{prop.get_size_in_points():g}",
            "fill": f"#{red:02x}{green:02x}{blue:02x}",
        }
        if prop.get_weight() == "bold":
            attributes["font-weight"] = "bold"
        self.writer.element("text", plain(s), attrib=attributes)

    def get_text_width_height_descent(self, s: str, prop: Any, ismath: Any) -> Any:
        return super().get_text_width_height_descent(measurable(s), prop, ismath)


def svg_of(drawing: Drawing, title: str, alt: str, ink: str | None = None) -> str:
    """The SVG document; `ink`, for a drawing within a page, replaces the colour of texts and axes."""
    drawing.set_dpi(72)
    width, height = drawing.bbox.width, drawing.bbox.height
    file = io.StringIO()
    renderer = _Renderer(width, height, file, metadata={"Date": None})
    drawing.draw(renderer)
    renderer.finalize()
    text = file.getvalue()
    body = _named(text[text.index('<g id="figure') : text.rindex("</svg>")])
    key = f"lakesql-{hashlib.sha256((title + alt + body).encode()).hexdigest()[:10]}"
    body = body.replace("__key__", key)
    fitting = ""
    if ink is not None:  # within a page; in files some readers stumble over it
        body = body.replace(INK, ink)
        fitting = ' style="max-width:100%;height:auto"'
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" role="img" '
        f'aria-labelledby="{key}-title {key}-desc" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width * 4 / 3:g}" height="{height * 4 / 3:g}"{fitting}>\n'
        f'<title id="{key}-title">{escaped(title)}</title>\n<desc id="{key}-desc">{escaped(alt)}</desc>\n'
        f'<g font-family="{_FONTS}" stroke-linejoin="round">\n{body}</g>\n</svg>\n'
    )


def _named(body: str) -> str:
    """The drawing with names that do not depend on when it was made, and only where they are referred to."""
    body = re.sub(r"\n\s+", "\n", body)
    body = _PLACES.sub(lambda m: _LONG.sub(r"\1", m[0]), body)
    used = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', body))
    order = {name: f"__key__-{n}" for n, name in enumerate(m for m in re.findall(r' id="([^"]+)"', body) if m in used)}
    body = re.sub(r' id="([^"]+)"', lambda m: f' id="{order[m[1]]}"' if m[1] in used else "", body)
    return re.sub(r'(url\(#|href="#)([^)"]+)', lambda m: m[1] + order.get(m[2], m[2]), body)


def png_of(drawing: Drawing, title: str) -> bytes:
    """A picture on a transparent ground."""
    replace_unknown(drawing)
    drawing.set_dpi(_PNG_DPI)
    file = io.BytesIO()
    FigureCanvasAgg(drawing).print_png(file, metadata={"Title": plain(title)})
    return file.getvalue()


def pdf_of(drawing: Drawing, title: str) -> bytes:
    """One page."""
    replace_unknown(drawing)
    file = io.BytesIO()
    FigureCanvasPdf(drawing).print_pdf(file, metadata={"Title": plain(title), "CreationDate": None})
    return file.getvalue()
