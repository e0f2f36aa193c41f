"""Log records of file slices merged by any merge rule, with the base rows they meet: `table.fold` on a table's own data.

What a rule does to whole rows or column by column is in `table.merge`; here the versions are numbered. A log record's
number is its place in processing order, the base rows that a log record meets follow. When a key is twice in one base
file only its first row is merged, as Hudi's own reader does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakesql.format.avro import META_COLUMNS
from lakesql.format.files import FileSlice
from lakesql.table import merge
from lakesql.table.evolution import Evolution
from lakesql.table.fold import Rows, States, absent_of, fold, meet, starts_of, states_of
from lakesql.table.keys import record_key_sql
from lakesql.table.names import quote
from lakesql.table.scan import FILE_NO, ROW_NO, scan_sql
from lakesql.table.state import TableState

LOG = "__lakesql_log"
SLOT = "__lakesql_slot"
"""The column of live rows that says to which file slice they belong."""

_BASE = "__lakesql_met"

Cursor = duckdb.DuckDBPyConnection


@dataclass(frozen=True, slots=True)
class View:
    """What of a table is read, as far as deltas depend on it."""

    state: TableState
    as_of: str | None
    schema: pa.Schema  # with the meta columns
    evolved: Evolution | None

    def ordering_fields(self) -> list[str]:
        """Ordering fields of the table, those that the schema has."""
        return [f for f in self.state.config.ordering_fields if f in self.schema.names]

    def ordering_types(self) -> list[pa.DataType]:
        return [self.schema.field(f).type for f in self.ordering_fields()]


def key_sql(view: View) -> str:
    """The record key of a base row: stored, or computed where meta columns are not stored."""
    config = view.state.config
    return quote("_hoodie_record_key") if config.meta_fields else record_key_sql(config, view.state.schema)


def base_rows_sql(view: View, slices: Sequence[FileSlice], columns: Sequence[str]) -> str:
    """slot, row_no, key, ord_0 ... of every base row, and `columns` of it as v_0 ..."""
    based = [slot for slot, s in enumerate(slices) if s.base is not None]
    fields = view.ordering_fields()
    key_columns = ["_hoodie_record_key"] if view.state.config.meta_fields else list(view.state.config.record_key_fields)
    files = [s.base for s in slices if s.base is not None]
    wanted = list(dict.fromkeys([*key_columns, *fields, *columns]))
    scan = scan_sql(view.state, files, view.schema, wanted, view.evolved, positions=True)
    slot = FILE_NO if based == list(range(len(based))) else f"({based}::INTEGER[])[{FILE_NO} + 1]"
    values = "".join(f", {quote(f)} AS ord_{i}" for i, f in enumerate(fields))
    more = "".join(f", {quote(c)} AS v_{i}" for i, c in enumerate(columns))
    return f"SELECT {slot} AS slot, {ROW_NO} AS row_no, {key_sql(view)} AS key{values}{more} FROM ({scan})"


def fold_log(
    cur: Cursor,
    view: View,
    slices: Sequence[FileSlice],
    rule: merge.Rule,
    lacking: Mapping[int, frozenset[str]],
    records: pa.Table,
    rows: pa.Table,
) -> tuple[pa.Table, pa.Table, pa.Table, pa.ChunkedArray]:
    """dead, live, tombs and beaten slots as in `table.deltas`, tombs with further columns.

    `records` is registered as LOG; its `row` is the place in `rows`, `lacking` the columns that a part leaves out.
    """
    if lacking:
        rule = merge.keeping_values(rule)
    whole = rule.by_row and not lacking
    met = _base_rows(cur, view, slices, [] if whole else view.schema.names)
    numbers, group, rank = _ranked(cur, view, records, met, rule)
    kinds = np.concatenate([records["kind"].to_numpy(), np.full(met.num_rows, merge.UPSERT, np.int8)])
    columns = [] if whole else [n for n in view.schema.names if n not in META_COLUMNS]
    values = _values(rows, records, met, view.schema, whole)
    absent = absent_of(rule, values, columns, defaults(view.state)) if columns else np.zeros((len(kinds), 0), bool)
    parts = records["part"].to_numpy()
    for part, names in lacking.items():
        of_part = np.flatnonzero(parts == part)
        for name in names:
            absent[of_part, columns.index(name)] = True
    held = Rows(values, rule, view.state.config.properties, view.state.path)

    count = records.num_rows
    logged = numbers < count
    starts = starts_of(group[logged])
    state = fold(rule.log, numbers[logged], starts, kinds, rank, absent, held.merger)
    keys = group[logged][starts[:-1]]
    base = numbers[~logged]
    place = np.searchsorted(keys, group[~logged])
    before = states_of(base, kinds, rank, len(columns))
    after = meet(rule.base, before, state.take(place), absent, held.merger)
    stays = (after.shown == base) & (after.meta == base) & (after.source == base[:, None]).all(axis=1)
    state.put(place, after)
    kept = np.ones(len(keys), bool)
    kept[place[stays]] = False

    slots = pc.take(records["slot"], pa.array(numbers[logged][starts[:-1]]))
    live = kept & (state.kind == merge.UPSERT)
    shown = _shown(held, state.take(np.flatnonzero(live)), columns, rows, records, whole)
    tombs = kept & (state.kind != merge.UPSERT)
    own = np.zeros(len(keys), bool)
    own[place[before.rank == state.rank[place]]] = True
    nth = np.searchsorted(keys, group[logged])
    own[nth[(kinds[numbers[logged]] == merge.UPSERT) & (rank[numbers[logged]] == state.rank[nth])]] = True
    dead = (
        met.select(["slot", "row_no"])
        .take(pa.array(base[~stays] - count))
        .append_column("nth", pa.array(place[~stays]))
    )
    dead = taken_by(dead, "nth", np.flatnonzero(live), slots.filter(pa.array(live)).to_numpy())
    gone = records.take(pa.array(state.shown[tombs])).append_column("own", pa.array(own[tombs]))
    shown = shown.add_column(0, pa.field(SLOT, pa.int32()), slots.filter(pa.array(live)).cast(pa.int32()))
    return dead, shown, gone, met["slot"].filter(pa.array(stays))


def taken_by(dead: pa.Table, column: str, winners: np.ndarray, slots: np.ndarray) -> pa.Table:
    """slot, row_no, by: the number within its slot of the live record that took the place, null for none.

    `column` of a dead row names its winner; `winners` are those of the live records, ascending, `slots` their slots.
    """
    named = dead[column].to_numpy()
    at = np.searchsorted(winners, named)
    taken = at < len(winners)
    taken[taken] = winners[at[taken]] == named[taken]
    by = at - np.searchsorted(slots, dead["slot"].to_numpy())
    return dead.select(["slot", "row_no"]).append_column("by", pa.array(by, mask=~taken))


def defaults(state: TableState) -> dict[str, Any]:
    """The default of each column that has one other than NULL."""
    fields = cast(list[dict[str, Any]], state.avro["fields"])
    return {f["name"]: f["default"] for f in fields if f.get("default") is not None}


def _base_rows(cur: Cursor, view: View, slices: Sequence[FileSlice], columns: Sequence[str]) -> pa.Table:
    """The first base row of each key that the log has: slot, key, row_no, ord_0 ..., v_0 ..."""
    return cur.sql(
        f"SELECT b.* FROM ({base_rows_sql(view, slices, columns)}) b "
        f"SEMI JOIN {LOG} w ON b.key = w.key AND b.slot = w.slot "
        "QUALIFY row_number() OVER (PARTITION BY b.slot, b.key ORDER BY b.row_no) = 1"
    ).to_arrow_table()


def _ranked(
    cur: Cursor, view: View, records: pa.Table, met: pa.Table, rule: merge.Rule
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(version numbers sorted by key and age, the number of the key of each, the rank of each version by number)."""
    n = len(view.ordering_fields())
    ords = "".join(f", ord_{i}" for i in range(n))
    order = f"dense_rank() OVER (ORDER BY {merge.ordering(n, 'v', rule.sequence)})" if n else "0"
    number = pa.array(np.arange(records.num_rows, records.num_rows + met.num_rows))
    cur.register(_BASE, met.select(["slot", "key", *(f"ord_{i}" for i in range(n))]).append_column("number", number))
    try:
        found = cur.sql(
            f"SELECT number, dense_rank() OVER (ORDER BY slot, key) AS key_number, {order} AS rank FROM ("
            f"SELECT seq AS number, slot, key{ords} FROM {LOG} UNION ALL SELECT number, slot, key{ords} FROM {_BASE}) v "
            "ORDER BY key_number, number"
        ).to_arrow_table()
    finally:
        cur.unregister(_BASE)
    numbers = found["number"].to_numpy()
    rank = np.empty(len(numbers), np.int64)
    rank[numbers] = found["rank"].to_numpy()
    return numbers, found["key_number"].to_numpy(), rank


def _values(rows: pa.Table, records: pa.Table, met: pa.Table, schema: pa.Schema, whole: bool) -> pa.Table:
    """One row per version, NULLs for deletes; only the log rows where columns stay together."""
    if whole:
        return rows
    based = pa.table([met[f"v_{i}"].cast(field.type) for i, field in enumerate(schema)], schema=schema)
    return pa.concat_tables([rows.take(records["row"]).cast(schema), based])


def _shown(held: Rows, state: States, columns: list[str], rows: pa.Table, records: pa.Table, whole: bool) -> pa.Table:
    if whole:
        return rows.take(pc.take(records["row"], pa.array(state.shown)))
    return held.show(state, columns, list(META_COLUMNS))
