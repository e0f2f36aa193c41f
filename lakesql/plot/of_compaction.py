"""Compaction strategies side by side, simulated: what a snapshot reads over time, and what that costs in bytes rewritten.

The commits are those of a table, again and again, or of a write pattern; see `lakesql.simulation`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lakesql.counted import counted as many
from lakesql.errors import SQLError
from lakesql.format.timeline import instant_millis
from lakesql.plot.figure import Figure
from lakesql.plot.ticks import Axis, linear, spans
from lakesql.plot.words import bytes_text, number_text, shortened, titled
from lakesql.services.adaptive_model import Costs
from lakesql.services.freshness import lag_text
from lakesql.simulation.patterns import PATTERNS
from lakesql.simulation.strategies import named
from lakesql.simulation.world import COMMIT_S, MB, RECORD_BYTES, STEPS, Outcome, replay
from lakesql.table.state import TableState

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

STRATEGIES = ("every 2 commits", "every 5 commits", "adaptive, reads 1.2", "never")
STRATEGIES_MAX = 5
COMMITS = 60
COMMITS_MAX = 2_000
GROUPS_MAX = 200
"""So many file groups of a table are simulated; of more, these are picked evenly by how much is written to them."""
_GROUPS, _BASE_MB, _RECORDS, _SEED = 24, 32, 20_000, 7
_SCHEMA = pa.schema(
    [
        ("strategy", pa.string()),
        ("at_s", pa.float64()),
        ("read_amplification", pa.float64()),
        ("stale_s", pa.float64()),
        ("rewritten_bytes", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class _Writes:
    """What is replayed: log_bytes[commit, group], base files, seconds between commits."""

    name: str
    text: str
    log_bytes: np.ndarray
    base: np.ndarray
    commit_s: float


def compaction_figure(state: TableState | None, pattern: str, strategies: Sequence[str], commits: int) -> Figure:
    """One line per strategy. SQLError for what cannot be simulated, saying why."""
    if not 1 <= len(strategies) <= STRATEGIES_MAX or len(set(strategies)) < len(strategies):
        raise SQLError(f"compaction_simulation: strategies={strategies!r}: give 1 to {STRATEGIES_MAX} different names.")
    if not 2 <= commits <= COMMITS_MAX:
        raise SQLError(f"compaction_simulation: commits={commits!r}: give a number from 2 to {COMMITS_MAX:,}.")
    try:
        chosen = {name: named(name) for name in strategies}
    except ValueError as error:
        raise SQLError(f"compaction_simulation: {error}.") from error
    writes = _of_pattern(pattern, commits) if state is None else _of_table(state, commits)
    outcomes = {
        n: replay(writes.log_bytes, writes.base, choose, Costs(), writes.commit_s) for n, choose in chosen.items()
    }
    title, alt = titled(writes.name, "compaction, simulated"), _alt(writes, outcomes)
    return Figure(title, alt, _data(outcomes, writes.commit_s), lambda: _page(title, alt, outcomes, writes.commit_s))


def _of_pattern(pattern: str, commits: int) -> _Writes:
    if pattern not in PATTERNS:
        raise SQLError(f"compaction_simulation: pattern={pattern!r} is unknown; there are {', '.join(PATTERNS)}.")
    records = PATTERNS[pattern](np.random.default_rng(_SEED), commits, _GROUPS, _RECORDS)
    base = (np.random.default_rng(1).uniform(0.7, 1.3, _GROUPS) * _BASE_MB * MB).astype(np.int64)
    text = (
        f"the write pattern {pattern}: {commits} commits, one a minute, to {_GROUPS} file groups of about {_BASE_MB} MB"
    )
    return _Writes(f"Pattern {pattern}", text, records * RECORD_BYTES, base, COMMIT_S)


def _of_table(state: TableState, commits: int) -> _Writes:
    """The delta commits of the timeline, from the oldest on and then again."""
    if not state.config.is_mor:
        raise SQLError(f"{state.path}: a Copy-on-Write table has no logs to compact; give a Merge-on-Read table.")
    slices = [s for s in state.slices() if s.base is not None]
    places = {s.group: n for n, s in enumerate(slices)}
    rows, times = [], []
    for instant in state.timeline.completed_writes():
        if instant.action != "deltacommit":
            continue
        row = np.zeros(len(slices), np.int64)
        for partition, stats in state.commit(instant).partition_stats.items():
            for stat in stats:
                place = places.get((partition, stat.file_id or ""))
                if place is not None and ".log." in (stat.path or ""):
                    row[place] += stat.total_write_bytes or 0
        if row.any():
            rows.append(row)
            times.append(instant_millis(instant.requested))
    if len(rows) < 2:
        raise SQLError(
            f"{state.path}: the active timeline has {many(len(rows), 'commit')} with logs of file groups that are there; the simulation "
            "needs at least 2. Write more, or simulate a pattern: compaction_simulation(pattern='uniform')."
        )
    log_bytes = np.resize(np.array(rows), (commits, len(slices)))
    base = np.array([s.base.size_bytes for s in slices if s.base], np.int64)
    if len(base) > GROUPS_MAX:
        picked = np.argsort(log_bytes.sum(axis=0))[np.linspace(0, len(base) - 1, GROUPS_MAX).round().astype(int)]
        log_bytes, base = log_bytes[:, picked], base[picked]
    apart = max(1.0, float(np.median(np.diff(times))) / 1000)
    text = f"{commits} commits as the {len(rows)} of {shortened(state.name)}, {lag_text(apart)} apart, to {many(len(base), 'file group')}"
    return _Writes(state.name, text, log_bytes, base, apart)


def _data(outcomes: dict[str, Outcome], commit_s: float) -> pa.Table:
    parts = []
    for name, one in outcomes.items():
        at = np.arange(len(one.reads)) * commit_s / STEPS
        parts.append(pa.table([pa.array([name] * len(at)), at, one.reads, one.stale, one.written], schema=_SCHEMA))
    return pa.concat_tables(parts)


def _alt(writes: _Writes, outcomes: dict[str, Outcome]) -> str:
    told = [f"{name}: {number_text(o.read_mean)} and {bytes_text(o.rewritten)}" for name, o in outcomes.items()]
    return (
        f"Simulated with {writes.text}. What a snapshot reads per byte of base files on average, and what compaction "
        f"rewrites: {'; '.join(told)}."
    )


def _page(title: str, alt: str, outcomes: dict[str, Outcome], commit_s: float) -> "Drawing":
    from lakesql.plot.sheet import COLOURS, HATCHES, Panel, page

    looks = dict(zip(outcomes, zip(COLOURS, HATCHES, strict=True), strict=False))
    calm = sorted(max(o.reads) for o in outcomes.values())
    high = calm[-1]
    if len(calm) > 1 and high > 2 * calm[-2] - 1:  # one that is never compacted would leave the others no room
        high = 1 + 1.5 * (calm[-2] - 1)
    panels = []
    for name, one in outcomes.items():
        at = np.arange(len(one.reads)) * commit_s / STEPS

        def draw(axes: "Axes", at: np.ndarray = at, one: Outcome = one, colour: str = looks[name][0]) -> None:
            axes.fill_between(at, 1, one.reads, color=colour, alpha=0.25, linewidth=0, step="post")
            axes.plot(at, one.reads, color=colour, linewidth=1.1, drawstyle="steps-post")

        last = name == list(outcomes)[-1]
        x = spans(commit_s * len(at) / STEPS, lag_text, "time" if last else "", most=6)
        x = x if last else replace(x, ticks=())
        most = max(one.reads)
        heading = f"{name}: the line goes on to {number_text(most)}, above the frame" if most > high else name
        panels.append(Panel(46, draw, x, linear(high, number_text, low=1.0, most=2), heading))
    places = np.arange(len(outcomes))[::-1].astype(float)

    def draw_bytes(axes: "Axes") -> None:
        for place, (name, one) in zip(places, outcomes.items(), strict=True):
            colour, hatch = looks[name]
            look: dict[str, Any] = (
                {"facecolor": "none", "hatch": hatch, "edgecolor": colour} if hatch else {"color": colour}
            )
            axes.barh(place, one.rewritten, height=0.6, linewidth=0.9, **look)

    rewritten = linear(max(float(o.rewritten) for o in outcomes.values()) or 1.0, bytes_text)
    y = Axis(-0.6, len(outcomes) - 0.4, list(zip(places, outcomes, strict=True)))
    ends = [f"{bytes_text(o.rewritten)}, reads {number_text(o.read_mean)}" for o in outcomes.values()]
    heading = "Bytes rewritten, and what a snapshot reads on average"
    ended = list(zip(places, ends, strict=True))
    panels.append(Panel(17.0 * len(outcomes) + 4, draw_bytes, rewritten, y, heading, ends=ended, bare=True))
    return page(title, alt, panels, "Above: what a snapshot reads per byte of base files, over time.")
