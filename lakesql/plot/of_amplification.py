"""Write and read amplification over the commits of the timeline.

Write amplification is as the advice counts it: bytes written by the commits that changed rows, and by the table services
since the first of them, per byte changed. Read amplification is what a snapshot reads after each write, per byte of
the base files alone.
"""

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lakesql.advice.facts import table_facts
from lakesql.counted import counted as many
from lakesql.plot.figure import Figure
from lakesql.plot.replay import After, replayed
from lakesql.plot.ticks import counted, linear
from lakesql.plot.words import number_text, shortened, titled
from lakesql.table.state import TableState

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

_SCHEMA = pa.schema(
    [
        ("commit", pa.int64()),
        ("instant", pa.string()),
        ("action", pa.string()),
        ("operation", pa.string()),
        ("bytes_written", pa.int64()),
        ("bytes_changed", pa.float64()),
        ("write_amplification", pa.float64()),
        ("base_bytes", pa.int64()),
        ("log_bytes", pa.int64()),
        ("read_amplification", pa.float64()),
    ]
)


def amplification_figure(state: TableState) -> Figure:
    """Both over the number of the commit."""
    data = amplification_data(state)
    title, alt = titled(state.name, "amplification"), _alt(state, data)
    return Figure(title, alt, data, lambda: _page(title, alt, data))


def amplification_data(state: TableState) -> pa.Table:
    """One row per completed write. `write_amplification` is that of all up to here, from the first change on."""
    facts = table_facts(state)
    changes = {c.instant: c for c in facts.changes}
    first = facts.changes[0].instant if facts.changes else None
    after = replayed(state)
    row_bytes = facts.base_row_bytes or _row_bytes(state, after)
    written = changed = 0.0
    rows = []
    for number, one in enumerate(after, 1):
        change = changes.get(one.instant.requested)
        own = change.changed_rows * row_bytes if change and row_bytes else None
        if change or (one.service and first is not None and one.instant.requested > first):
            written += change.bytes_written if change else one.bytes_written
        changed += own or 0.0
        rows.append(_row(number, one, own, written / changed if changed else None))
    return pa.Table.from_pylist(rows, schema=_SCHEMA)


def _row_bytes(state: TableState, after: list[After]) -> float | None:
    """Of a row in the base files that these writes made; None when they made none."""
    stats = [s for one in after for group in state.commit(one.instant).partition_stats.values() for s in group]
    made = [(s.file_size_in_bytes or 0, s.num_writes or 0) for s in stats if ".log." not in (s.path or "")]
    rows = sum(n for _, n in made)
    return sum(size for size, _ in made) / rows if rows else None


def _row(number: int, one: After, changed: float | None, amplification: float | None) -> dict[str, object]:
    both = one.base_bytes + one.log_bytes
    return {
        "commit": number,
        "instant": one.instant.requested,
        "action": one.instant.action,
        "operation": one.operation or None,
        "bytes_written": one.bytes_written,
        "bytes_changed": changed,
        "write_amplification": amplification,
        "base_bytes": one.base_bytes,
        "log_bytes": one.log_bytes,
        "read_amplification": both / one.base_bytes if one.base_bytes else None,
    }


def _alt(state: TableState, data: pa.Table) -> str:
    if not data.num_rows:
        return f"{shortened(state.name)} has no completed write in its active timeline."
    write, read = _last(data, "write_amplification"), _last(data, "read_amplification")
    count = many(data.num_rows, "completed write")
    wrote = "no commit changed rows that were there, as far as is known"
    if write is not None:
        wrote = f"{number_text(write)} bytes were written for each byte changed"
    reads = "there is no base file"
    if data["read_amplification"][-1].as_py() is not None and read is not None:
        reads = f"a snapshot now reads {number_text(read)} times the base files"
        if read == 1:
            reads = "a snapshot now reads the base files alone"
    return f"Over {count}, services included, {wrote}; {reads}."


def _last(data: pa.Table, column: str) -> float | None:
    values = [v for v in data[column].to_pylist() if v is not None]
    return values[-1] if values else None


def _page(title: str, alt: str, data: pa.Table) -> "Drawing":
    from lakesql.plot.sheet import BLUE, GREEN, VERMILLION, Key, Panel, page

    if not data.num_rows:
        return page(title, alt, [])
    commits = data["commit"].to_numpy()
    operations = np.array([o or "" for o in data["operation"].to_pylist()])
    compactions = np.isin(operations, ("COMPACT", "LOG_COMPACT"))
    spots = 26.0 if len(commits) <= 60 else 10.0
    panels = []
    for column, heading, colour, low in (
        ("write_amplification", "Bytes written per byte changed, from the first change on", BLUE, 0.0),
        ("read_amplification", "Bytes a snapshot reads per byte of base files", VERMILLION, 1.0),
    ):
        values = np.array(data[column].to_pylist(), float)
        if not np.isfinite(values).any():
            continue

        def draw(axes: "Axes", values: np.ndarray = values, colour: str = colour) -> None:
            axes.plot(
                commits, values, color=colour, linewidth=1.6, drawstyle="steps-post" if len(commits) > 1 else "default"
            )
            plain = ~compactions & np.isfinite(values)
            if len(commits) <= 200:
                axes.scatter(
                    commits[plain],
                    values[plain],
                    s=spots,
                    color=colour,
                    marker="o",
                    linewidths=0,
                    zorder=3,
                    clip_on=False,
                )
            folded = compactions & np.isfinite(values)
            axes.scatter(
                commits[folded],
                values[folded],
                s=spots * 1.3,
                color=GREEN,
                marker="s",
                linewidths=0,
                zorder=4,
                clip_on=False,
            )

        keys = [Key("write", colour, "o"), *([Key("compaction", GREEN, "s")] if compactions.any() else [])]
        high = float(np.nanmax(values))
        y = linear(max(high, low * 1.1), number_text, low=low, most=4)
        panels.append(Panel(105, draw, counted(len(commits), "completed writes, oldest first"), y, heading, keys))
    return page(title, alt, panels)
