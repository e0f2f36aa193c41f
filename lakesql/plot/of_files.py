"""The file groups: how large each is, and how much of it are logs. Bars for some, curves over the rank for many."""

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakesql.counted import counted as many
from lakesql.plot.figure import Figure
from lakesql.plot.ticks import Axis, counted, linear
from lakesql.plot.words import bytes_text, distinct, percent_text, shortened, titled
from lakesql.table import inspect
from lakesql.table.state import TableState

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

BARS_MAX = 30
"""More file groups than these are drawn as curves."""
_POINTS_MAX = 160


def files_figure(state: TableState) -> Figure:
    """The newest slice of every file group."""
    data = files_data(state)
    title, alt = titled(state.name, "file groups"), _alt(state, data)
    bars = data.num_rows <= BARS_MAX
    return Figure(title, alt, data, lambda: (_bars if bars else _curves)(title, alt, data, state.config.is_mor))


def files_data(state: TableState) -> pa.Table:
    """One row per file group, largest first: its base file, its logs, and their share of its bytes."""
    rows = inspect.files(state)
    rows = rows.filter(rows["latest"]).select(["partition_path", "file_id", "base_bytes", "log_bytes", "log_count"])
    base = pc.fill_null(rows["base_bytes"], 0)
    total = pc.add(base, rows["log_bytes"])
    share = pc.divide(rows["log_bytes"].cast(pa.float64()), pc.max_element_wise(total, 1))
    rows = rows.set_column(2, "base_bytes", base).append_column("log_share", share).append_column("bytes", total)
    order = [("bytes", "descending"), ("partition_path", "ascending"), ("file_id", "ascending")]
    return rows.sort_by(order).drop_columns("bytes")


def _alt(state: TableState, data: pa.Table) -> str:
    if not data.num_rows:
        return f"{shortened(state.name)} has no file group: nothing has been written, or all of it is gone."
    base, logs = int(pc.sum(data["base_bytes"]).as_py()), int(pc.sum(data["log_bytes"]).as_py())
    sizes = _total(data)
    each = f"the largest has {bytes_text(sizes[0])}, the median {bytes_text(float(np.median(sizes)))}"
    text = f"{many(data.num_rows, 'file group')} with {bytes_text(base + logs)} together; {each}."
    if not state.config.is_mor:
        return f"{text} A Copy-on-Write table has no logs."
    dirty = int(pc.sum(pc.greater(data["log_bytes"], 0)).as_py())
    if not dirty:
        return f"{text} None has logs."
    most = float(pc.max(data["log_share"]).as_py())
    whose = f"{many(dirty, 'file group')} {'has' if dirty == 1 else 'have'} logs"
    return f"{text} {whose}, {percent_text(logs / (base + logs))} of all bytes and up to {percent_text(most)} of one."


def _total(data: pa.Table) -> np.ndarray:
    total: np.ndarray = data["base_bytes"].to_numpy().astype(float) + data["log_bytes"].to_numpy()
    return total


def _bars(title: str, alt: str, data: pa.Table, has_logs: bool) -> "Drawing":
    from lakesql.plot.sheet import BLUE, HATCHES, VERMILLION, Key, Panel, page

    if not data.num_rows:
        return page(title, alt, [])
    base, logs = data["base_bytes"].to_numpy().astype(float), data["log_bytes"].to_numpy().astype(float)
    places = np.arange(len(base))[::-1]

    def draw(axes: "Axes") -> None:
        axes.barh(places, base, height=0.62, color=BLUE, linewidth=0)
        if logs.any():
            axes.barh(
                places,
                logs,
                left=base,
                height=0.62,
                facecolor="none",
                edgecolor=VERMILLION,
                hatch=HATCHES[1],
                linewidth=0.9,
            )

    partitions, ids = data["partition_path"].to_pylist(), data["file_id"].to_pylist()
    names = distinct(
        [f"{p}/{i.partition('-')[0]}" if p else i.partition("-")[0] for p, i in zip(partitions, ids, strict=True)]
    )
    ends = [
        f"{bytes_text(b + g)}" + (f", {percent_text(g / (b + g))} log" if g else "")
        for b, g in zip(base, logs, strict=True)
    ]
    y = Axis(-0.6, len(base) - 0.4, list(zip(places.astype(float), names, strict=True)))
    panel = Panel(
        16.0 * len(base) + 6, draw, linear(float((base + logs).max()), bytes_text), y,
        keys=[Key("base file", BLUE), Key("logs", VERMILLION, "area", HATCHES[1])] if has_logs else (),
        ends=list(zip(places.astype(float), ends, strict=True)), bare=True,
    )  # fmt: skip
    return page(title, alt, [panel])


def _curves(title: str, alt: str, data: pa.Table, has_logs: bool) -> "Drawing":
    from lakesql.plot.sheet import BLUE, HATCHES, VERMILLION, Key, Panel, page

    base, total = data["base_bytes"].to_numpy().astype(float), _total(data)
    rank = np.arange(1, len(base) + 1)
    shares = np.sort(data["log_share"].to_numpy())[::-1]
    ends, sizes, bases = _thinned(rank, total, base)

    def draw_sizes(axes: "Axes") -> None:
        axes.fill_between(ends, 0, bases, step="pre", color=BLUE, linewidth=0)
        if has_logs:
            axes.fill_between(
                ends,
                bases,
                sizes,
                step="pre",
                facecolor="none",
                edgecolor=VERMILLION,
                hatch=HATCHES[1][:2],
                linewidth=0.5,
            )
        axes.plot(ends, sizes, color=VERMILLION if has_logs else BLUE, linewidth=1.2, drawstyle="steps-pre")

    x = counted(len(base), "file groups, largest first")
    panels = [
        Panel(
            130, draw_sizes, x, linear(float(total.max()), bytes_text), "Size",
            [Key("base file", BLUE), Key("logs", VERMILLION, "area", HATCHES[1])] if has_logs else (),
        )
    ]  # fmt: skip
    if has_logs and shares[0] > 0:
        at, thin, _ = _thinned(rank, shares, shares)

        def draw_shares(axes: "Axes") -> None:
            axes.fill_between(
                at, 0, thin, step="pre", facecolor="none", edgecolor=VERMILLION, hatch=HATCHES[1][:2], linewidth=0
            )
            axes.plot(at, thin, color=VERMILLION, linewidth=1.4, drawstyle="steps-pre")

        y = linear(float(shares[0]), percent_text, most=4)
        panels.append(
            Panel(90, draw_shares, counted(len(base), "file groups, largest share first"), y, "Share of logs")
        )
    return page(title, alt, panels)


def _thinned(rank: np.ndarray, *values: np.ndarray) -> list[np.ndarray]:
    """Ranks and falling values at the steps that can be told apart, from before the first one on."""
    count = len(rank)
    if count > _POINTS_MAX:
        chosen = np.unique(np.linspace(0, count - 1, _POINTS_MAX).round().astype(int))
    else:
        chosen = np.arange(count)
    return [np.append(0.5, rank[chosen] + 0.5), *(np.append(v[0], v[chosen]) for v in values)]
