"""The site's generator: Sphinx, which reads the Markdown of this folder by MyST and dresses it by Furo.

`make docs` builds into site/ and ends at the first warning: a link to a page, heading or file that is not there, a page that
no table of contents has. Nothing is fetched while a page is looked at. Pages stay readable as plain files, so they use no
directive but the table of contents in index.md.
"""

from importlib.metadata import version as version_of

project = "lakesql"
author = "the lakesql authors"
release = version = version_of("lakesql")

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_static", "images"]
nitpicky = True
suppress_warnings = [
    "toc.empty_glob",  # a pattern of index.md may match nothing
    "misc.highlighting_failure",  # Spark's and Hudi's words are no SQL that Pygments knows
]

myst_heading_anchors = 4
myst_enable_extensions = ["strikethrough"]

html_theme = "furo"
html_title = "lakesql"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "friendly"
pygments_dark_style = "github-dark"
