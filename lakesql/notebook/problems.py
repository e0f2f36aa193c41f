"""Errors of lakesql and of DuckDB in a notebook: their text, and the lines of the person's own code, without the inside.

An error keeps its class, so `try` and what runs all cells see it as ever; only how IPython prints it is different.
"""

import re
import traceback
from pathlib import Path
from typing import Any

import duckdb

from lakesql.errors import LakeError

SHOWN: tuple[type[BaseException], ...] = (LakeError, duckdb.Error)

_INSIDE = (str(Path(__file__).parents[1]), str(Path(duckdb.__file__).parent), "<string>")
_CELL = re.compile(r"ipykernel_\d+[/\\]|<ipython-input-")


def plain(error: BaseException, lines: tuple[str, ...] = ()) -> BaseException:
    """The error, which IPython prints as its text and these lines."""
    text = [f"{type(error).__name__}: {str(error).strip() or 'no more is known.'}", *lines]
    error._render_traceback_ = lambda: text  # type: ignore[attr-defined]  # IPython asks values for this method
    return error


def add(shell: Any) -> None:
    """Print errors of Python cells so as well, unless another extension handles errors by itself."""
    if not shell.custom_exceptions:
        shell.set_custom_exc(SHOWN, _shown)


def remove(shell: Any) -> None:
    """Print them as before."""
    if shell.custom_exceptions == SHOWN:
        shell.set_custom_exc((), None)


def _shown(shell: Any, kind: type[BaseException], error: BaseException, trace: Any, tb_offset: Any = None) -> None:
    del tb_offset
    if not hasattr(error, "_render_traceback_"):
        plain(error, own_lines(trace))
    shell.showtraceback((kind, error, trace), running_compiled_code=True)


def own_lines(trace: Any) -> tuple[str, ...]:
    """Where the person's own code was, outermost first."""
    own = [f for f in traceback.extract_tb(trace) if not f.filename.startswith(_INSIDE) and "IPython" not in f.filename]
    return tuple(f"  {_place(frame)}: {(frame.line or '').strip()}".rstrip(": ") for frame in own)


def _place(frame: traceback.FrameSummary) -> str:
    where = "the cell" if _CELL.search(frame.filename) else frame.filename
    return f"line {frame.lineno} of {where}"
