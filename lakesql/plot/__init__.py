"""Pictures of tables and of query results. Each function gives a `Figure`: its numbers, what it shows in words, the drawing.

    timeline               actions over time in lanes; what is not finished is marked
    files                  size and logs of each file group
    amplification          bytes written per byte changed, bytes read per byte of base files, over the commits
    advice                 the cost of both table types over update share and reads; break-even; where the table is
    freshness              how far the read-optimized view lagged, and which partitions do now
    compaction_simulation  compaction strategies side by side
    result                 a query's result as bars or lines

A table is a `lakesql.Table`, a path, or a name with the `connection` that knows it. Drawing needs matplotlib (the extra
`[plot]`); nothing of its global state is used or changed, and figures may be made in any thread.
"""

import os
from collections.abc import Sequence
from typing import Any

import duckdb

from lakesql.errors import SQLError
from lakesql.handle import Table, open_table
from lakesql.plot.figure import Figure, require_matplotlib
from lakesql.table.clock import system_clock
from lakesql.table.known_settings import make_utc

__all__ = [
    "KINDS",
    "Figure",
    "advice",
    "amplification",
    "compaction_simulation",
    "files",
    "freshness",
    "result",
    "timeline",
]

AnyTable = Table | str | os.PathLike[str]


def timeline(t: AnyTable, *, archived: bool = False, connection: Any = None) -> Figure:
    """Actions over time, one lane per action. `archived`: those that have left the active timeline too."""
    from lakesql.plot.of_timeline import timeline_figure

    return timeline_figure(_opened(t, connection).state, archived)


def files(t: AnyTable, *, connection: Any = None) -> Figure:
    """Size of each file group and its share of logs; many file groups as curves over their rank."""
    from lakesql.plot.of_files import files_figure

    return files_figure(_opened(t, connection).state)


def amplification(t: AnyTable, *, connection: Any = None) -> Figure:
    """Write and read amplification after each completed write of the active timeline."""
    from lakesql.plot.of_amplification import amplification_figure

    return amplification_figure(_opened(t, connection).state)


def advice(t: AnyTable, reads_per_write: float | None = None, *, connection: Any = None) -> Figure:
    """What the table's commits and the reads behind them cost as Copy-on-Write and as Merge-on-Read; see `Table.advise`."""
    from lakesql.plot.of_advice import advice_figure

    state = _opened(t, connection).state
    with duckdb.connect(":memory:") as con:
        make_utc(con)
        return advice_figure(con, state, reads_per_write)


def freshness(t: AnyTable, *, connection: Any = None) -> Figure:
    """How old the oldest change was that the read-optimized view lacked, and which partitions lag now."""
    from lakesql.plot.of_freshness import freshness_figure

    return freshness_figure(_opened(t, connection).state, system_clock())


def compaction_simulation(
    t: AnyTable | None = None,
    *,
    pattern: str = "uniform",
    strategies: Sequence[str] | None = None,
    commits: int | None = None,
    connection: Any = None,
) -> Figure:
    """Compaction strategies side by side, simulated with a table's own commits or, without a table, with a write pattern.

    `pattern`: uniform, zipf, bursts, late or hot_partition. `strategies`: up to five of 'every 5 commits', 'every 20 min',
    'logs of 4 MB', 'adaptive, reads 1.2', 'adaptive, 12 min', 'adaptive, reads 1.2, 12 min' with any number, and 'never'.
    """
    from lakesql.plot.of_compaction import COMMITS, STRATEGIES, compaction_figure

    require_matplotlib()
    state = None if t is None else _opened(t, connection).state
    return compaction_figure(state, pattern, tuple(strategies or STRATEGIES), COMMITS if commits is None else commits)


def result(relation: Any) -> Figure:
    """A query's result as bars (a text, then numbers) or lines (a time or a number, then numbers).

    `relation`: a DuckDB relation, or anything with an Arrow stream. SQLError says what can be drawn when this cannot.
    """
    from lakesql.plot.of_result import result_figure

    require_matplotlib()
    return result_figure(relation)


KINDS = {
    "timeline": timeline,
    "files": files,
    "amplification": amplification,
    "advice": advice,
    "freshness": freshness,
    "compaction": compaction_simulation,
}
"""The plots of one table, by the names of the command line."""


def _opened(t: AnyTable, connection: Any) -> Table:
    """The table; LakeError when it is not there, or matplotlib is not."""
    require_matplotlib()
    if isinstance(t, Table):
        return t
    if connection is not None:
        table: Table = connection.table(str(t))
        return table
    if not isinstance(t, str | os.PathLike):
        raise SQLError(
            f"A {type(t).__name__} is no table; give a lakesql.Table, a path, or a name with its connection."
        )
    return open_table(t)
