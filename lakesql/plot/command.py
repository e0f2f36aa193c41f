"""`lakesql plot KIND PATH`: a plot of a table into a file."""

from difflib import get_close_matches
from pathlib import Path
from typing import Any

from lakesql.errors import SQLError
from lakesql.handle import open_table
from lakesql.plot import KINDS, compaction_simulation
from lakesql.plot.figure import require_matplotlib

_COMPACTION, _ADVICE = "compaction", "advice"


def draw(kind: str, path: str | None, out: Path | None, reads_per_write: float | None) -> str:
    """What the plot shows, and where it is. SQLError for arguments that do not go together."""
    if kind not in KINDS:
        near = get_close_matches(kind, KINDS, 1)
        raise SQLError(f"plot {kind}: there are {', '.join(KINDS)}." + (f" Did you mean {near[0]}?" if near else ""))
    if reads_per_write is not None and kind != _ADVICE:
        raise SQLError("plot: --reads-per-write is for advice.")
    if path is None and kind != _COMPACTION:
        raise SQLError(f"plot {kind}: give the folder of a Hudi table.")
    require_matplotlib()
    table = None if path is None else open_table(path)
    more: dict[str, Any] = {"reads_per_write": reads_per_write} if kind == _ADVICE else {}
    figure = compaction_simulation() if table is None else KINDS[kind](table, **more)
    name = "pattern" if table is None else "".join(c if c.isalnum() or c in "-_." else "_" for c in table.name)
    file = figure.save(out if out is not None else Path(f"{name}-{kind}.svg"))
    return f"{figure.alt}\n{file}"
