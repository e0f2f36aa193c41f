"""How far the read-optimized view lagged behind: over the writes of the timeline, and now for each partition."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lakesql.counted import counted as many
from lakesql.plot.figure import Figure
from lakesql.plot.replay import replayed
from lakesql.plot.ticks import Axis, spans, time_axis
from lakesql.plot.words import distinct, shortened, titled
from lakesql.services.freshness import Freshness, freshness, lag_text
from lakesql.table.state import TableState

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

    from lakesql.plot.sheet import Panel

NOW = "now"
PARTITIONS_MAX = 12
"""So many partitions are drawn, the stalest ones."""
_MOMENT = pa.timestamp("ms", "UTC")
_SCHEMA = pa.schema(
    [
        ("instant", pa.string()),
        ("action", pa.string()),
        ("partition_path", pa.string()),
        ("at", _MOMENT),
        ("lag_before_s", pa.float64()),
        ("lag_after_s", pa.float64()),
        ("log_bytes", pa.int64()),
    ]
)


def freshness_figure(state: TableState, now_ms: int) -> Figure:
    """A line that rises with time and falls when logs are compacted; below it the stalest partitions."""
    data = freshness_data(state, now_ms)
    title, alt = titled(state.name, "freshness of the read-optimized view"), _alt(state, data, now_ms)
    return Figure(title, alt, data, lambda: _page(title, alt, data))


def freshness_data(state: TableState, now_ms: int) -> pa.Table:
    """One row per completed write: the lag just before and just after it. Then the lag now, of the table (action `now`) and
    of each partition that lags."""
    rows: list[dict[str, Any]] = []
    since: int | None = None
    for one in sorted(replayed(state), key=lambda a: a.at_ms):
        before = max(0.0, (one.at_ms - since) / 1000) if since is not None else 0.0
        since = one.oldest_ms
        after = max(0.0, (one.at_ms - since) / 1000) if since is not None else 0.0
        rows.append(
            {
                "instant": one.instant.requested, "action": one.instant.action, "at": one.at_ms, "lag_before_s": before,
                "lag_after_s": after, "log_bytes": one.log_bytes,
            }
        )  # fmt: skip
    if rows:
        [whole] = freshness(state, now_ms)
        parts = [p for p in freshness(state, now_ms, by_partition=True) if p.stale_groups] if whole.stale_groups else []
        rows += [_now(p, now_ms) for p in (whole, *sorted(parts, key=lambda p: -p.lag_s))]
    table = pa.Table.from_pylist(rows, schema=_SCHEMA.set(3, pa.field("at", pa.int64())))
    return table.cast(_SCHEMA)


def _now(lag: Freshness, now_ms: int) -> dict[str, object]:
    return {
        "instant": lag.oldest_missing,
        "action": NOW,
        "partition_path": lag.partition_path,
        "at": now_ms,
        "lag_before_s": lag.lag_s,
        "lag_after_s": lag.lag_s,
        "log_bytes": lag.log_bytes,
    }


def _alt(state: TableState, data: pa.Table, now_ms: int) -> str:
    if not data.num_rows:
        return f"{shortened(state.name)} has no completed write: there is nothing to be behind of."
    if not state.config.is_mor:
        return f"{shortened(state.name)} is Copy-on-Write: its read-optimized view is its snapshot and never lags."
    [lag] = freshness(state, now_ms)
    rows = [r for r in data.to_pylist() if r["action"] != NOW]
    most = max(max(r["lag_before_s"], r["lag_after_s"]) for r in rows)
    how = lag.text if lag.oldest_missing else f"is {lag.text}"
    return f"The read-optimized view {how}. Over {many(len(rows), 'completed write')} it was at most {lag_text(most)} behind."


def _page(title: str, alt: str, data: pa.Table) -> "Drawing":
    from lakesql.plot.sheet import BLUE, GREEN, Key, Panel, page

    rows = data.set_column(3, "at", data["at"].cast(pa.int64())).to_pylist()
    steps = [r for r in rows if r["action"] != NOW]
    if not steps:
        return page(title, alt, [])
    xs = np.array([r["at"] for r in steps for _ in range(2)], float)
    ys = np.array([lag for r in steps for lag in (r["lag_before_s"], r["lag_after_s"])])
    whole = next(r for r in rows if r["action"] == NOW and r["partition_path"] is None)
    if whole["at"] - xs[-1] <= max(xs[-1] - xs[0], 1000):  # else what happened would be too small to see
        xs, ys = np.append(xs, whole["at"]), np.append(ys, whole["lag_before_s"])
    folded = np.array([ys[2 * n] > ys[2 * n + 1] for n in range(len(steps))])

    def draw(axes: "Axes") -> None:
        axes.fill_between(xs, 0, ys, color=BLUE, alpha=0.25, linewidth=0)
        axes.plot(xs, ys, color=BLUE, linewidth=1.6)
        axes.scatter(
            xs[1 : 2 * len(steps) : 2][folded],
            ys[1 : 2 * len(steps) : 2][folded],
            s=30,
            color=GREEN,
            marker="s",
            linewidths=0,
            zorder=4,
            clip_on=False,
        )

    keys = [Key("behind", BLUE, "line"), *([Key("logs compacted", GREEN, "s")] if folded.any() else [])]
    y = spans(float(ys.max()), lag_text)
    panels = [
        Panel(
            120,
            draw,
            time_axis(float(xs.min()), float(xs.max())),
            y,
            "Age of the oldest change that the view lacks",
            keys,
        )
    ]
    stale = [r for r in rows if r["partition_path"] is not None]
    if stale and any(r["partition_path"] for r in stale):
        panels.append(_partitions(stale))
    return page(title, alt, panels)


def _partitions(stale: list[dict[str, Any]]) -> "Panel":
    from lakesql.plot.sheet import HATCHES, VERMILLION, Panel

    shown = stale[:PARTITIONS_MAX]
    lags = [float(r["lag_before_s"]) for r in shown]
    places = [float(n) for n in reversed(range(len(shown)))]

    def draw(axes: "Axes") -> None:
        axes.barh(places, lags, height=0.6, facecolor="none", edgecolor=VERMILLION, hatch=HATCHES[1], linewidth=0.9)

    names = distinct([r["partition_path"] or "(no partition)" for r in shown])
    heading = "Partitions that lag now"
    if len(shown) < len(stale):
        heading = f"The {len(shown)} stalest of {len(stale):,} partitions that lag now"
    y = Axis(-0.6, len(shown) - 0.4, list(zip(places, names, strict=True)))
    ends = list(zip(places, map(lag_text, lags), strict=True))
    return Panel(15.0 * len(shown) + 6, draw, spans(max(lags), lag_text), y, heading, ends=ends, bare=True)
