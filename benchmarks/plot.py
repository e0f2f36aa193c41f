"""The plot of a report: wall time by engine, and how far the targets are from their limits. An SVG, readable on light and dark.

It has no background of its own and only colours that stand out from both.
"""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.targets import Judged, Results

INK = "#7d8590"
COLOURS = {
    "lakesql": "#e5534b",
    "duckdb": "#c69026",
    "ducklake": "#57ab5a",
    "deltalake": "#539bf5",
    "pyiceberg": "#39c5cf",
    "hudi-rs": "#b083f0",
    "hudi-spark": "#e275ad",
}
_MARKERS = dict(zip(COLOURS, "osD^vPX", strict=True))
_LEFT_OUT = ("memory-", "start-", "native-")


def drawn(file: Path, results: Results, verdicts: Sequence[Judged]) -> bool:
    """Whether the plot could be drawn: False where matplotlib is not installed."""
    try:
        import matplotlib as mpl
    except ModuleNotFoundError:
        return False
    mpl.use("svg")
    from matplotlib import pyplot as plt

    works = [
        work
        for work in dict.fromkeys(name.split("/")[0] for name in results)
        if f"{work}/lakesql" in results and not work.startswith(_LEFT_OUT)
    ]
    limited = [j for j in verdicts if j.target.limit]
    style = {
        **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
        "svg.hashsalt": "lakesql",
        "font.size": 8.5,
    }
    with mpl.rc_context(style):
        height = 2.2 + 0.2 * (len(works) + len(limited))
        figure, (above, below) = plt.subplots(
            2, 1, figsize=(9.5, height), height_ratios=(len(works) + 1, len(limited) + 1), layout="constrained"
        )
        _times(above, works, results)
        _limits(below, limited)
        figure.savefig(file, transparent=True, metadata={"Date": None})
        plt.close(figure)
    return True


def _times(axes: Any, works: Sequence[str], results: Results) -> None:
    for engine, colour in COLOURS.items():
        points = [
            (statistics.median(r["wall_s"] for r in results[f"{work}/{engine}"]), y)
            for y, work in enumerate(works)
            if results.get(f"{work}/{engine}")
        ]
        if points:
            xs, ys = zip(*points, strict=True)
            size = 42 if engine == "lakesql" else 26
            axes.scatter(xs, ys, s=size, color=colour, marker=_MARKERS[engine], label=engine, zorder=3)
    _rows(axes, works)
    axes.set_xlabel("wall seconds, median, logarithmic")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(COLOURS), frameon=False)


def _limits(axes: Any, limited: Sequence[Judged]) -> None:
    """Each target as measured / limit: left of 1 it is met."""
    for y, j in enumerate(limited):
        limit = j.target.limit or 1
        values = [max(v, 1e-3) / limit for v in (j.low, j.value, j.high)]
        if j.target.at_least:
            values = [1 / v for v in reversed(values)]
        colour = COLOURS["ducklake"] if j.met else COLOURS["lakesql"]
        axes.plot((values[0], values[2]), (y, y), color=colour, linewidth=2, zorder=2)
        axes.scatter(values[1], y, s=26, color=colour, marker="o" if j.met else "X", zorder=3)
    axes.axvline(1, color=INK, linewidth=1)
    _rows(axes, [f"{j.target.work}: {j.target.text} {j.target.wanted}" for j in limited])
    axes.set_xlabel("measured / limit, logarithmic: left of the line is met")


def _rows(axes: Any, names: Sequence[str]) -> None:
    axes.set_xscale("log")
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="both", color=INK, alpha=0.25, linewidth=0.6)
    axes.patch.set_alpha(0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
