"""What the table functions of `functions` do: each gives the SQL that reads a table as its call wants.

Loaded when the first of them is bound: it needs all that reads, and a connection that reads no Hudi table none of it.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace

import duckdb
import pyarrow as pa

from lakesql.errors import SQLError, Unsupported
from lakesql.services import freshness
from lakesql.services.adaptive_reads import note_read
from lakesql.services.freshness import Demand, LastRead
from lakesql.sql.instance import Arguments, Planner
from lakesql.sql.results import rows_sql, table_sql
from lakesql.table import inspect, live, read
from lakesql.table.clock import system_clock
from lakesql.table.lists import spelt
from lakesql.table.planned import snapshot_sql
from lakesql.table.state import TableState

Connection = duckdb.DuckDBPyConnection


def scan(cursor: Connection, state: TableState, arguments: Arguments) -> str | tuple[str, LastRead]:
    as_of, mode = arguments[:2]
    if mode is not None and mode.lower() == "read_optimized":
        return read_optimized(cursor, state, (as_of, *arguments[2:]))
    if as_of is None:
        note_read(state, system_clock())
        if mode is None or mode.lower() == "snapshot":
            return snapshot_sql(cursor, state)
    return read.to_sql(cursor, read.plan(state, _time(as_of), (mode or "snapshot").lower()))


def placed(cursor: Connection, state: TableState, arguments: Arguments) -> str:
    note_read(state, system_clock())
    plan = read.plan(state)
    numbers = list(range(len(plan.slices))) if arguments[0] is None else json.loads(arguments[0])
    opened = [plan.slices[n] for n in numbers]
    live.note(state.path, (f.path for s in opened for f in (s.base, *s.logs) if f is not None))
    return read.placed_sql(cursor, plan, plan.schema.names, numbers)


def part(cursor: Connection, state: TableState, arguments: Arguments) -> str:
    note_read(state, system_clock())
    plan = read.plan(state)
    numbers = json.loads(arguments[0] or "[]")
    return read.to_sql(cursor, replace(plan, slices=tuple(plan.slices[n] for n in numbers), kept=None))


def read_optimized(cursor: Connection, state: TableState, arguments: Arguments) -> tuple[str, LastRead]:
    as_of, limit, set_limit, on_stale = arguments
    if as_of is None and limit is None:
        limit = set_limit
    asked = Demand() if as_of and limit is None else freshness.demand(limit, on_stale, state.config.properties)
    plan, last = freshness.plan_read_optimized(state, _time(as_of), asked, system_clock())
    return read.to_sql(cursor, plan), last


def freshness_rows(cursor: Connection, state: TableState, arguments: Arguments) -> str:
    by_partition, exact = (a == "true" for a in arguments)
    rows = []
    for lag in freshness.freshness(state, system_clock(), by_partition):
        counts = freshness.changed_rows(cursor, state, lag.partition_path) if exact else (None, None, None)
        values = [getattr(lag, name) for name in _FRESHNESS.names if hasattr(lag, name)]
        rows.append((*values, *counts))
    return rows_sql(_FRESHNESS, rows)


_FRESHNESS = pa.schema(
    [
        *(
            (n, pa.string())
            for n in ("partition_path", "latest_commit", "latest_completed", "complete_to", "oldest_missing")
        ),
        ("lag_s", pa.float64()),
        *(
            (n, pa.int64())
            for n in ("lag_commits", "file_groups", "stale_groups", "log_files", "log_bytes", "log_rows")
        ),
        *((n, pa.int64()) for n in ("rows_inserted", "rows_updated", "rows_deleted")),
    ]
)


def incremental(cursor: Connection, state: TableState, arguments: Arguments) -> str:
    begin = _one_of("begin", arguments[0], "from_instant", arguments[2])
    end = _one_of('"end"', arguments[1], "to_instant", arguments[3])
    if begin is None:
        raise SQLError(
            f"hudi_incremental({state.name}): give begin, the time after which changes count, or 'earliest' for all."
        )
    return read.to_sql(cursor, read.plan_incremental(state, _time(begin) or begin, _time(end)))


def changes_between(cursor: Connection, state: TableState, arguments: Arguments) -> str:
    from lakesql.table import diff

    begin, end = map(_time, arguments)
    if begin is None:
        raise SQLError(f"hudi_diff({state.name}): a is NULL; give an instant, a timestamp, or 'earliest'.")
    return diff.to_sql(cursor, diff.plan_diff(state, begin, end))


def _one_of(name: str, value: str | None, twin: str, twin_value: str | None) -> str | None:
    if value is not None and twin_value is not None:
        raise SQLError(f"hudi_incremental: {name} and {twin} mean the same; give one of them.")
    return twin_value if value is None else value


def table_changes(cursor: Connection, state: TableState, arguments: Arguments) -> str:
    kind = (arguments[0] or "").lower()
    if kind == "cdc":
        raise Unsupported(
            f"{state.path}: hudi_table_changes: change data capture is not read yet. "
            "Use 'latest_state' for the newest version of each changed row."
        )
    if kind != "latest_state":
        raise SQLError(f"{state.path}: hudi_table_changes: kind {arguments[0]!r} is unknown; use 'latest_state'.")
    return incremental(cursor, state, (arguments[1], arguments[2], None, None))


def advice(cursor: Connection, state: TableState, arguments: Arguments) -> str:
    from lakesql.advice import advise, reads_of

    with spelt():
        found = advise(cursor, state, reads_of(state.path, arguments[0]), measure=arguments[1] == "true")
    return table_sql(found.to_arrow())


def _time(text: str | None) -> str | None:
    """A time as text, date or timestamp; DuckDB prints a zone as +00, which is completed to +00:00."""
    if text is None:
        return None
    return re.sub(r"([+-]\d\d)$", r"\1:00", text) if ":" in text else text


def _inspected(give: Callable[[TableState, Arguments], pa.Table]) -> Planner:
    def plan(cursor: Connection, state: TableState, arguments: Arguments) -> str:
        del cursor
        return table_sql(give(state, arguments))

    return plan


PLANNERS: Mapping[str, Planner] = {
    "scan": scan,
    "placed": placed,
    "part": part,
    "read_optimized": read_optimized,
    "incremental": incremental,
    "table_changes": table_changes,
    "diff": changes_between,
    "timeline": _inspected(lambda state, a: inspect.timeline(state, a[0] == "true")),
    "files": _inspected(lambda state, a: inspect.files(state, _time(a[0]), a[1])),
    "partitions": _inspected(lambda state, _: inspect.partitions(state)),
    "properties": _inspected(lambda state, _: inspect.properties(state)),
    "schema": _inspected(lambda state, _: inspect.schema(state)),
    "log_blocks": _inspected(lambda state, _: inspect.log_blocks(state)),
    "freshness": freshness_rows,
    "advice": advice,
}
"""By the names that `functions` has for them."""
