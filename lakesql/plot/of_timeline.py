"""The timeline: actions over time, one lane per action, what is not finished marked."""

from datetime import UTC, tzinfo
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakesql.counted import counted as many
from lakesql.errors import FormatError, TableError
from lakesql.format.timeline import COMPLETED, INFLIGHT, REQUESTED, SERVICE_ACTIONS, WRITE_ACTIONS, instant_millis
from lakesql.plot.figure import Figure
from lakesql.plot.ticks import Axis, time_axis
from lakesql.plot.words import moment_text, shortened, titled
from lakesql.table import inspect
from lakesql.table.clock import timeline_zone
from lakesql.table.state import TableState

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

_LANES = (*WRITE_ACTIONS, *SERVICE_ACTIONS, "clean", "savepoint", "indexing", "rollback", "restore")
_MOMENT = pa.timestamp("ms", "UTC")
_LANE_HEIGHT = 19.0


def timeline_figure(state: TableState, archived: bool) -> Figure:
    """One mark per instant at the time it was requested, and a line to the time it completed."""
    data = timeline_data(state, archived)
    lanes = [a for a in _LANES if a in set(data["action"].to_pylist())]
    title, alt = titled(state.name, "timeline"), _alt(state, data, lanes)
    return Figure(title, alt, data, lambda: _page(title, data, lanes, alt))


def timeline_data(state: TableState, archived: bool = False) -> pa.Table:
    """`hudi_timeline` with the moments of request and completion."""
    rows = inspect.timeline(state, archived)
    try:
        zone = timeline_zone(state, "")
    except TableError:
        zone = UTC

    def moments(name: str) -> pa.Array:
        return pa.array([_millis(text, zone) for text in rows[name].to_pylist()], pa.int64()).cast(_MOMENT)

    return rows.append_column("requested_at", moments("instant")).append_column("completed_at", moments("completed"))


def _millis(text: str | None, zone: tzinfo) -> int | None:
    if text is None:
        return None
    try:
        return instant_millis(text, zone)
    except FormatError:
        return None  # an instant of a bootstrap or of a test is no moment


def _alt(state: TableState, data: pa.Table, lanes: list[str]) -> str:
    if not data.num_rows:
        return f"The timeline of {shortened(state.name)} is empty: nothing has been written yet."
    actions = data["action"].to_pylist()
    counts = ", ".join(f"{actions.count(lane):,} {lane}" for lane in lanes)
    moments = [m for m in data["requested_at"].cast(pa.int64()).to_pylist() if m is not None]
    when = ""
    if moments:
        first, last = moment_text(min(moments)), moment_text(max(moments))
        when = f" at {first} UTC" if first == last else f" from {first} to {last} UTC"
    waiting = [
        (a, i)
        for a, i, s in zip(actions, data["instant"].to_pylist(), data["state"].to_pylist(), strict=True)
        if s != COMPLETED
    ]
    pending = "All are completed."
    if waiting:
        named = ", ".join(f"{a} {i}" for a, i in waiting[:3]) + (", ..." if len(waiting) > 3 else "")
        pending = f"{len(waiting):,} {'is' if len(waiting) == 1 else 'are'} not completed: {named}."
    return f"{many(data.num_rows, 'action')}{when}: {counts}. {pending}"


def _page(title: str, data: pa.Table, lanes: list[str], alt: str) -> "Drawing":
    from matplotlib.collections import LineCollection

    from lakesql.plot.sheet import BLUE, GREEN, INK, PURPLE, VERMILLION, Key, Panel, page

    requested = np.array(data["requested_at"].cast(pa.int64()).to_pylist(), float)
    completed = np.array(data["completed_at"].cast(pa.int64()).to_pylist(), float)
    known = np.isfinite(requested)
    if not known.any():
        return page(title, alt, [])
    states = np.array(data["state"].to_pylist())
    actions = data["action"].to_pylist()
    rows = np.array([len(lanes) - 1 - lanes.index(a) for a in actions])
    ends = np.where(np.isfinite(completed), np.maximum(completed, requested), requested)
    colours = {
        **dict.fromkeys(WRITE_ACTIONS, BLUE),
        **dict.fromkeys(SERVICE_ACTIONS, GREEN),
        "rollback": PURPLE,
        "restore": PURPLE,
    }
    size = 34.0 if len(rows) <= 60 else 20.0 if len(rows) <= 300 else 12.0

    x = time_axis(
        float(requested[known].min()),
        float(ends[known].max()),
        "requested; a line reaches to the completion" if (ends > requested).any() else "requested",
    )
    least = (x.high - x.low) / 500  # shorter ones are not to be seen

    def draw(axes: "Axes") -> None:
        for n, lane in enumerate(reversed(lanes)):
            mine = known & (rows == n)
            colour = colours.get(lane, INK)
            bars = [[(a, n), (b, n)] for a, b in zip(requested[mine], ends[mine], strict=True) if b - a > least]
            axes.add_collection(LineCollection(bars, colors=colour, linewidths=3, alpha=0.6), autolim=False)
            done = mine & (states == COMPLETED)
            if done.any():
                axes.scatter(requested[done], rows[done], s=size, c=colour, marker="o", linewidths=0, zorder=3)
        for state, marker in ((INFLIGHT, "D"), (REQUESTED, "^")):
            mine = known & (states == state)
            if mine.any():
                axes.scatter(
                    requested[mine], rows[mine], s=44, facecolors="none", edgecolors=VERMILLION, marker=marker,
                    linewidths=1.6, zorder=4, clip_on=False,
                )  # fmt: skip

    def label(lane: str) -> str:
        waiting = sum(a == lane and s != COMPLETED for a, s in zip(actions, states, strict=True))
        return f"{lane}  {actions.count(lane):,}" + (f", {waiting} pending" if waiting else "")

    keys = [
        Key("write", BLUE, "o"), Key("table service", GREEN, "o"), Key("taking back", PURPLE, "o"), Key("other", INK, "o"),
        Key("in flight", VERMILLION, "D", "hollow"), Key("requested only", VERMILLION, "^", "hollow"),
    ]  # fmt: skip
    shown = {colours.get(lane, INK) for lane in lanes}
    keys = [
        k
        for k in keys
        if (k.look != "hollow" and k.colour in shown)
        or (k.mark == "D" and INFLIGHT in states)
        or (k.mark == "^" and REQUESTED in states)
    ]
    y = Axis(-0.6, len(lanes) - 0.4, [(len(lanes) - 1 - n, label(lane)) for n, lane in enumerate(lanes)])
    return page(title, alt, [Panel(_LANE_HEIGHT * len(lanes) + 6, draw, x, y, keys=keys)])
