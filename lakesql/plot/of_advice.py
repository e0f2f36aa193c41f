"""What both table types cost with this table's own commits: over the update share, and over the reads per write.

The curves are the formula of `lakesql.advice`; the table's place is where its commits lie, and the break-even where the
curves cross.
"""

from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa

from lakesql.advice import CHANGES_MIN, advise, calibration, costs, reads_of, workload_of
from lakesql.advice.facts import table_facts
from lakesql.plot.figure import Figure
from lakesql.plot.ticks import logarithmic
from lakesql.plot.words import number_text, percent_text, seconds_text, titled
from lakesql.table.state import TableState

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

SHARE, READS = "update share", "reads per write"
TABLE, EVEN = "table", "break-even"
_POINTS = 61
_SCHEMA = pa.schema(
    [
        ("over", pa.string()),
        ("x", pa.float64()),
        ("cow_s", pa.float64()),
        ("mor_s", pa.float64()),
        ("mark", pa.string()),
    ]
)


def advice_figure(con: duckdb.DuckDBPyConnection, state: TableState, reads_per_write: float | None) -> Figure:
    """Seconds per commit cycle of both types; without enough history only what is missing."""
    reads = reads_of(state.path, reads_per_write)
    title = titled(state.name, "Copy-on-Write or Merge-on-Read")
    data = advice_data(con, state, reads)
    advice = advise(con, state, reads)
    alt = advice.sentence if data.num_rows else f"{advice.sentence} Curves need {CHANGES_MIN} such commits."
    if data.num_rows:
        alt = f"{advice.sentence} {_place(data, reads)}"
    return Figure(title, alt, data, lambda: _page(title, alt, data, reads))


def advice_data(con: duckdb.DuckDBPyConnection, state: TableState, reads: float | None) -> pa.Table:
    """Costs of both types at each x. `mark`: the table's own place, and break-evens. No rows without enough history."""
    found, record = table_facts(state), calibration.load()
    load = workload_of(con, state, found, record)
    if load is None:
        return _SCHEMA.empty_table()
    prices, behind = record.prices, 1.0 if reads is None else reads
    rows: list[tuple[str, float, float, float, str | None]] = []

    def at(over: str, x: float, mark: str | None) -> None:
        work, r = (load.at_share(x), behind) if over == SHARE else (load, x)
        cow, mor = costs.cow_costs(work, prices, r).total, costs.mor_costs(work, prices, r).total
        rows.append((over, x, cow, mor, mark))

    own = load.update_share
    shares = costs.breakeven_shares(load, prices, behind)
    low = min(max(1e-6, 1 / max(1.0, load.table.rows)), own / 3)
    for x in np.geomspace(low, 1.0, _POINTS):
        at(SHARE, float(x), None)
    for x in shares:
        at(SHARE, x, EVEN)
    at(SHARE, own, TABLE)
    even = costs.breakeven_reads(load, prices)
    marked = [x for x in (even, reads) if x]
    for x in np.geomspace(
        min(0.1, *(m / 3 for m in marked), 0.1), max(100.0, *(m * 3 for m in marked), 100.0), _POINTS
    ):
        at(READS, float(x), None)
    if even:
        at(READS, even, EVEN)
    if reads is not None:
        at(READS, reads, TABLE)
    columns = list(zip(*rows, strict=True))
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA)


def _place(data: pa.Table, reads: float | None) -> str:
    marks = [r for r in data.to_pylist() if r["mark"]]
    own = next(r for r in marks if r["over"] == SHARE and r["mark"] == TABLE)
    evens = [percent_text(r["x"]) for r in marks if r["over"] == SHARE and r["mark"] == EVEN]
    behind = "at one read per write" if reads is None else f"at {number_text(reads)} reads per write"
    cheaper = "Copy-on-Write" if own["cow_s"] < own["mor_s"] else "Merge-on-Read"
    where = f"both types cost the same at {' and '.join(evens)}" if evens else f"{cheaper} is cheaper at every share"
    return f"A commit changes {percent_text(own['x'])} of the rows; {behind} {where}."


def _page(title: str, alt: str, data: pa.Table, reads: float | None) -> "Drawing":
    from lakesql.plot.sheet import BLUE, DASHES, GREEN, VERMILLION, Key, Panel, page

    if not data.num_rows:
        return page(title, alt, [])
    keys = [Key("Copy-on-Write", BLUE, "line", DASHES[0]), Key("Merge-on-Read", VERMILLION, "line", DASHES[1])]
    panels = []
    for over, heading, text in (
        (
            SHARE,
            f"Time of a commit with {'one read' if reads is None else f'{number_text(reads)} reads'} behind it",
            percent_text,
        ),
        (READS, "Time of a commit and the reads behind it, at the table's own update share", number_text),
    ):
        rows = [r for r in data.to_pylist() if r["over"] == over]
        curve, marks = [r for r in rows if r["mark"] is None], [r for r in rows if r["mark"]]
        own = [r for r in marks if r["mark"] == TABLE]
        xs = np.array([r["x"] for r in curve])

        def draw(
            axes: "Axes", curve: list[dict[str, float]] = curve, xs: np.ndarray = xs, own: list[dict[str, float]] = own
        ) -> None:
            axes.plot(xs, [r["cow_s"] for r in curve], color=BLUE, linewidth=1.8, linestyle=DASHES[0])
            axes.plot(xs, [r["mor_s"] for r in curve], color=VERMILLION, linewidth=1.8, linestyle=DASHES[1])
            for r in own:
                axes.scatter(
                    [r["x"]] * 2,
                    [r["cow_s"], r["mor_s"]],
                    s=46,
                    marker="D",
                    c=GREEN,
                    linewidths=0,
                    zorder=5,
                    clip_on=False,
                )

        values = [r[k] for r in rows for k in ("cow_s", "mor_s") if r[k] > 0]
        named = {TABLE: "this table", EVEN: "break-even"}
        flags = [(r["x"], f"{named[r['mark']]} {text(r['x'])}") for r in marks]
        x = logarithmic(
            float(xs[0]),
            float(xs[-1]),
            text,
            "update share of a commit" if over == SHARE else "snapshot reads per write",
        )
        y = logarithmic(min(values) / 1.15, max(values) * 1.15, seconds_text, most=6)
        panels.append(
            Panel(125, draw, x, y, heading, [*keys, *([Key("this table", GREEN, "D")] if own else [])], flags=flags)
        )
    return page(title, alt, panels)
