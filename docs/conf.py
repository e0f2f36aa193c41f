"""The site's generator: Sphinx, which reads the Markdown of this folder by MyST and dresses it by Furo.

`make docs` builds into site/ and ends at the first warning: a link to a page, heading or file that is not there, a page that
no table of contents has. Nothing is fetched while a page is looked at. Pages stay readable as plain files, so they use no
directive but the table of contents in index.md.
"""

import re
from importlib.metadata import version as version_of
from pathlib import Path

from sphinx.application import Sphinx

project = "lakesql"
author = "the lakesql authors"
release = version = version_of("lakesql")

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_static", "images"]
nitpicky = True
suppress_warnings = [
    "misc.highlighting_failure",  # Spark's and Hudi's words are no SQL that Pygments knows
]

myst_heading_anchors = 4


def _files_outside(app: Sphinx, docname: str, source: list[str]) -> None:
    """A link to a file outside of this folder, such as a script in sql/, becomes a download of it."""

    def link(found: re.Match[str]) -> str:
        target = (Path(app.srcdir, docname).parent / found[1]).resolve()
        outside = target.is_file() and Path(app.srcdir).resolve() not in target.parents
        return f"](path:{found[1]})" if outside else found[0]

    source[0] = re.sub(r"\]\(([^()#:\s]+)\)", link, source[0])


def setup(app: Sphinx) -> None:
    app.connect("source-read", _files_outside)


html_theme = "furo"
html_title = "lakesql"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_copyright = False
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "friendly"
pygments_dark_style = "github-dark"
