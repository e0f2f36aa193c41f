"""The rows in which two states of a table differ: a plan, then one DuckDB query, as in `table.read`.

Rows are matched by record key and partition path, in both states under the columns of one of them. Only file slices
that differ between the states are read: all others hold the same rows in both. A key that is there several times
(inserts without a look-up) is matched in the order of commits.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb

from lakesql.errors import SQLError, TableError
from lakesql.format.avro import META_COLUMNS
from lakesql.format.files import FileSlice
from lakesql.format.timeline import normalise_instant
from lakesql.table import read
from lakesql.table.evolution import evolution
from lakesql.table.logfold import View, key_sql
from lakesql.table.names import literal, quote
from lakesql.table.read import EARLIEST, ReadPlan
from lakesql.table.retained import cleaning_told, require_retained
from lakesql.table.state import TableState

ADDED, REMOVED, CHANGED = "added", "removed", "changed"
NOTHING_YET = "0"  # before every instant
_COMMITTED = ("_hoodie_commit_time", "_hoodie_commit_seqno")
_OLD, _NEW, _TOUCHED = "__lakesql_old", "__lakesql_new", "__lakesql_touched"
_KEY, _PARTITION, _NTH = "__lakesql_key", "__lakesql_partition", "__lakesql_nth"


@dataclass(frozen=True, slots=True)
class Point:
    """A state of a table; `as_of` limits it to the instants up to that one."""

    state: TableState
    as_of: str | None = None


@dataclass(frozen=True, slots=True)
class Diff:
    """The differing slices of two states, both to be read under the same columns."""

    before: ReadPlan
    after: ReadPlan

    @property
    def columns(self) -> list[str]:
        """The columns of the table, in the schema that both are read under."""
        return [name for name in self.after.schema.names if name not in META_COLUMNS]

    def named(self, word: str) -> str:
        """A column of the result; it gets an underscore in front when the table has a column of that name."""
        taken = {c.lower() for c in self.columns}
        while word in taken:
            word = f"_{word}"
        return word


def plan_diff(state: TableState, begin: str, end: str | None = None) -> Diff:
    """From the state as of `begin` to that as of `end` (instants, timestamps; the newest state without it).

    SQLError when `begin` is after `end`, TableError for a state that has been cleaned away.
    """
    low = NOTHING_YET if begin.strip().lower() in EARLIEST else normalise_instant(begin)
    high = None if end is None else normalise_instant(end)
    if high is not None and low > high:
        raise SQLError(f"{state.path}: hudi_diff: {begin} is after {end}; give the earlier time first.")
    for time in (low, high):
        if time is not None and time != NOTHING_YET:
            require_retained(state, time)
    return between(Point(state, low), Point(state, high), Point(state, high))


def between(before: Point, after: Point, shape: Point) -> Diff:
    """The plan for two states of one table; `shape` is the one whose columns are shown."""
    if not before.state.config.meta_fields and not before.state.config.record_key_fields:
        raise TableError(f"{before.state.path}: the table has no record key, so its rows cannot be matched.")
    with cleaning_told(before.state, before.as_of), cleaning_told(after.state, after.as_of):
        old, new = before.state.slices(before.as_of), after.state.slices(after.as_of)
    shared = _shared(before, after, old, new)
    return Diff(_reading(before, shape, old, shared), _reading(after, shape, new, shared))


def _reading(point: Point, shape: Point, slices: Sequence[FileSlice], shared: set[FileSlice]) -> ReadPlan:
    schema, evolved = read.columns(shape.state, shape.as_of), evolution(shape.state, shape.as_of)
    view = View(point.state, point.as_of, schema, evolved)
    return ReadPlan(view, "snapshot", tuple(s for s in slices if s not in shared))


def _shared(before: Point, after: Point, old: Sequence[FileSlice], new: Sequence[FileSlice]) -> set[FileSlice]:
    """Slices that hold the same rows in both states."""
    same = set(old) & set(new)
    if before.state.config.version >= 8 or not any(s.logs for s in same):
        return same
    # Version 6: whether a block in a log file counts depends on its instant, not on the file.
    groups = _groups_written(before, after)
    return {s for s in same if not s.logs or (groups is not None and s.group not in groups)}


def _groups_written(before: Point, after: Point) -> set[tuple[str, str]] | None:
    """The file groups that the writes wrote to which only one of the states has; None when a write does not tell."""
    seen = [
        {i.requested: i for i in p.state.history.completed_writes() if p.as_of is None or i.requested <= p.as_of}
        for p in (before, after)
    ]
    groups: set[tuple[str, str]] = set()
    for time in seen[0].keys() ^ seen[1].keys():
        point, instant = (before, seen[0][time]) if time in seen[0] else (after, seen[1][time])
        metadata = point.state.commit(instant)
        if metadata.operation is None and not metadata.partition_stats:
            return None
        groups |= {(partition, s.file_id or "") for partition, stats in metadata.partition_stats.items() for s in stats}
    return groups


def to_sql(cur: duckdb.DuckDBPyConnection, diff: Diff) -> str:
    """The query: `change`, the new value of every column, `old` (the row before) and `columns` (those that changed).

    Most rows of a rewritten file are as before. So a first pass compares hashes, 16 bytes per row, and only keys with a
    difference are sorted and joined.
    """
    columns = diff.columns
    old, new = (_side(cur, plan, columns) for plan in (diff.before, diff.after))
    key = f"hash({_KEY}, {_PARTITION})"
    row = f"hash({', '.join(map(quote, columns))})"
    hashed = [f"SELECT {key} AS k, {row} AS r, {n} AS n FROM {side}" for side, n in ((_OLD, 1), (_NEW, -1))]
    order = [c for c in _COMMITTED if diff.after.view.state.config.meta_fields]
    sorted_by = f" ORDER BY {', '.join(map(quote, order))}" if order else ""
    nth = f"row_number() OVER (PARTITION BY {_KEY}, {_PARTITION}{sorted_by}) AS {_NTH}"
    a, b = (f"(SELECT *, {nth} FROM {side} WHERE {key} IN (SELECT k FROM {_TOUCHED}))" for side in (_OLD, _NEW))
    return (
        f"WITH {_OLD} AS NOT MATERIALIZED ({old}), {_NEW} AS NOT MATERIALIZED ({new}), "
        f"{_TOUCHED} AS MATERIALIZED (SELECT DISTINCT k FROM "
        f"(SELECT k FROM ({' UNION ALL '.join(hashed)}) GROUP BY k, r HAVING sum(n) <> 0)) "
        f"SELECT {_fields(diff)} FROM {a} a FULL JOIN {b} b ON "
        + " AND ".join(f"a.{c} IS NOT DISTINCT FROM b.{c}" for c in (_KEY, _PARTITION, _NTH))
        + f" WHERE a.{_NTH} IS NULL OR b.{_NTH} IS NULL OR {' OR '.join(map(_differs, columns))}"
    )


def _fields(diff: Diff) -> str:
    columns = diff.columns
    packed = ", ".join(f"{quote(c)} := a.{quote(c)}" for c in columns)
    words = ", ".join(f"CASE WHEN {_differs(c)} THEN {literal(c)} END" for c in columns)
    there = f"a.{_NTH} IS NOT NULL"
    return (
        f"CASE WHEN a.{_NTH} IS NULL THEN {literal(ADDED)} WHEN b.{_NTH} IS NULL THEN {literal(REMOVED)} "
        f"ELSE {literal(CHANGED)} END AS {quote(diff.named('change'))}, "
        f"{', '.join(f'b.{quote(c)} AS {quote(c)}' for c in columns)}, "
        f"CASE WHEN {there} THEN struct_pack({packed}) END AS {quote(diff.named('old'))}, "
        f"CASE WHEN {there} AND b.{_NTH} IS NOT NULL THEN [word FOR word IN [{words}] IF word IS NOT NULL] "
        f"END AS {quote(diff.named('columns'))}"
    )


def _differs(column: str) -> str:
    return f"a.{quote(column)} IS DISTINCT FROM b.{quote(column)}"


def _side(cur: duckdb.DuckDBPyConnection, plan: ReadPlan, columns: Sequence[str]) -> str:
    """_KEY, _PARTITION, what orders the rows of one key, and the columns."""
    config = plan.view.state.config
    if config.meta_fields:
        partition, more = quote("_hoodie_partition_path"), [*_COMMITTED]
        wanted = ["_hoodie_record_key", "_hoodie_partition_path", *_COMMITTED, *columns]
    else:
        fields = ", ".join(f"CAST({quote(f)} AS VARCHAR)" for f in config.partition_fields)
        partition, more, wanted = f"[{fields}]::VARCHAR[]", [], list(columns)
    kept = ", ".join(map(quote, [*more, *columns]))
    return f"SELECT {key_sql(plan.view)} AS {_KEY}, {partition} AS {_PARTITION}, {kept} FROM ({read.to_sql(cur, plan, wanted)})"
