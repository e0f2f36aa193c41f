"""Incoming rows merged with the stored rows they meet, where the merge rule takes columns from both.

For rules by which whole rows survive `tag` decides with ordering values alone. Here the `write` step of the rule
(hudi-format 5.5, right column) is carried out on columns, CHUNK_ROWS of the batch at a time: the row as it will be
goes to the TEMP table `__lakesql_resolved`, what becomes of it into `__lakesql_fate`. On merge-on-read the resolved
row is appended too: it is complete, so a reader that merges it with anything older finds nothing to fill. A row that
ends with the values that are stored changes nothing, and is IGNORED.
"""

import duckdb
import numpy as np
import pyarrow as pa

from lakesql.table import merge
from lakesql.table.fold import Rows, absent_of, meet, states_of
from lakesql.table.logfold import defaults
from lakesql.table.names import quote
from lakesql.table.read import ReadPlan, to_sql
from lakesql.write.batch import Rules
from lakesql.write.plan import BATCH, DELETE, DELETED, FATE, IGNORED, MARKED, MATCH, RESOLVED, UPDATED

CHUNK_ROWS = 250_000
_PAIRS, _FATES, _ROWS = "__lakesql_pairs", "__lakesql_fates", "__lakesql_resolved_rows"
_NEW, _OLD, _PLACE = "__lakesql_new_rows", "__lakesql_old_rows", "__lakesql_place"
_KEY, _PART = "_hoodie_record_key", "_hoodie_partition_path"

Connection = duckdb.DuckDBPyConnection


def resolve(con: Connection, plan: ReadPlan, numbers: list[int], rules: Rules) -> None:
    """Merge every row that meets a live one; `numbers` are the slices that may hold it.

    Rows that are already to be deleted without condition, or ignored, are left alone. Afterwards RESOLVED exists.
    """
    con.execute(
        f"CREATE OR REPLACE TEMP TABLE {RESOLVED} AS SELECT *, 0::BIGINT AS __lakesql_place FROM {BATCH} LIMIT 0"
    )
    total = int(con.execute(f"SELECT count(*) FROM ({_met_sql()})").fetchall()[0][0])
    part = ReadPlan(plan.view, plan.mode, tuple(plan.slices[n] for n in numbers))
    stored = to_sql(con, part, [_KEY, _PART, *plan.view.state.schema.names])
    chunks = -(-total // CHUNK_ROWS)
    for chunk in range(chunks):
        con.execute(
            f"CREATE OR REPLACE TEMP TABLE {_PAIRS} AS SELECT * FROM ({_met_sql()}) WHERE hash(place) % {chunks} = {chunk}"
        ).fetchall()
        try:
            _resolve_chunk(con, plan, stored, rules)
        finally:
            con.execute(f"DROP TABLE IF EXISTS {_PAIRS}")


def give_back(con: Connection, appended: list[int]) -> None:
    """Let the rows that are appended be the incoming ones: a reader's merger will be given the stored row again."""
    con.execute(
        f"DELETE FROM {RESOLVED} WHERE __lakesql_place IN (SELECT place FROM {FATE} WHERE slice_no IN (SELECT unnest(?::INTEGER[])))",
        [appended],
    ).fetchall()


def _met_sql() -> str:
    """place, key and path of the rows of the batch that meet a live row and are compared with it."""
    return (
        f"SELECT DISTINCT f.place, b.__lakesql_key AS key, b.__lakesql_part AS part FROM {FATE} f "
        f"JOIN {BATCH} b ON b.rowid = f.place JOIN {MATCH} m ON m.place = f.place "
        f"WHERE m.live AND b.__lakesql_op <> {DELETE} AND f.fate IN ({UPDATED}, {DELETED})"
    )


def _resolve_chunk(con: Connection, plan: ReadPlan, stored: str, rules: Rules) -> None:
    state, rule = plan.view.state, rules.merge
    columns = list(state.schema.names)
    fields = ", ".join(quote(c) for c in columns)
    of_stored = ", ".join(f"s.{quote(c)}" for c in columns)
    old_ords = "".join(f", s.{quote(f)} AS __lakesql_ord_{i}" for i, f in enumerate(rules.ordering))
    ords = "".join(f", {quote(f)} AS __lakesql_ord_{i}" for i, f in enumerate(rules.ordering))
    rank = "0"
    if rules.ordering:
        rank = (
            f"dense_rank() OVER (ORDER BY {merge.ordering(len(rules.ordering), 'v', rule.sequence, '__lakesql_ord_')})"
        )
    same_part = "" if rules.keys_everywhere else f"AND s.{quote(_PART)} = p.part "
    # A key that the table has twice meets the first of its rows.
    both = con.sql(
        f"SELECT __lakesql_place, __lakesql_side, __lakesql_op, {fields}, {rank} AS __lakesql_rank FROM ("
        f"SELECT p.place AS __lakesql_place, 0 AS __lakesql_side, 0::TINYINT AS __lakesql_op, {of_stored}{old_ords} FROM ({stored}) s "
        f"JOIN {_PAIRS} p ON s.{quote(_KEY)} = p.key {same_part}"
        f"QUALIFY row_number() OVER (PARTITION BY p.place) = 1 UNION ALL "
        f"SELECT b.rowid, 1, b.__lakesql_op, {fields}{ords} FROM {BATCH} b "
        f"WHERE b.rowid IN (SELECT place FROM {_PAIRS})) v ORDER BY __lakesql_side, __lakesql_place"
    ).to_arrow_table()
    count = both.num_rows // 2
    places = both["__lakesql_place"].to_numpy()
    assert (places[:count] == places[count:]).all(), "every row must meet one"
    rows, ranks = both.select(columns), both["__lakesql_rank"].to_numpy()
    kind = np.where(both["__lakesql_op"].to_numpy() == MARKED, merge.DELETE, merge.UPSERT).astype(np.int8)
    kind[:count] = merge.UPSERT
    absent = absent_of(rule, rows, columns, defaults(state))
    held = Rows(rows, rule, state.config.properties, state.path)
    older = states_of(np.arange(count), kind, ranks, len(columns))
    newer = states_of(np.arange(count, 2 * count), kind, ranks, len(columns))
    merged = meet(rule.write, older, newer, absent, held.merger)
    same = (merged.shown == older.shown) & (merged.source == older.source).all(axis=1)
    row = merged.kind == merge.UPSERT
    fate = np.where(row, np.where(same, IGNORED, UPDATED), DELETED)
    won = np.flatnonzero(row & ~same)
    shown = held.show(merged.take(won), columns, [])
    equal = won[_equal(con, shown, rows.take(pa.array(older.shown[won])))]
    fate[equal[~np.isin(places[equal], _with_copies(con))]] = IGNORED
    _keep(con, places[:count], fate, shown.append_column(_PLACE, pa.array(places[won])), columns)


def _equal(con: Connection, new: pa.Table, old: pa.Table) -> np.ndarray:
    """The places at which two tables have the same row."""
    number = pa.array(np.arange(new.num_rows))
    same = " AND ".join(f"n.{quote(c)} IS NOT DISTINCT FROM o.{quote(c)}" for c in new.column_names)
    con.register(_NEW, new.append_column(_PLACE, number))
    con.register(_OLD, old.append_column(_PLACE, number))
    try:
        found = con.sql(f"SELECT {_PLACE} FROM {_NEW} n JOIN {_OLD} o USING ({_PLACE}) WHERE {same}").to_arrow_table()
    finally:
        con.unregister(_NEW)
        con.unregister(_OLD)
    places: np.ndarray = found[_PLACE].to_numpy()
    return places


def _with_copies(con: Connection) -> np.ndarray:
    """The rows of the chunk whose key the table has several times: they were compared with one of its rows only."""
    several = f"SELECT place FROM {FATE} SEMI JOIN {_PAIRS} USING (place) GROUP BY place HAVING count(*) > 1"
    places: np.ndarray = con.sql(several).to_arrow_table()["place"].to_numpy()
    return places


def _keep(con: Connection, places: np.ndarray, fate: np.ndarray, rows: pa.Table, columns: list[str]) -> None:
    """Write the fates, and the rows as they are now."""
    con.register(_FATES, pa.table({"place": pa.array(places), "fate": pa.array(fate.astype(np.uint8))}))
    con.register(_ROWS, rows)
    names, own = ", ".join(f"r.{quote(c)}" for c in columns), ", ".join(map(quote, columns))
    try:
        con.execute(f"UPDATE {FATE} SET fate = n.fate FROM {_FATES} n WHERE {FATE}.place = n.place").fetchall()
        con.execute(
            f"INSERT INTO {RESOLVED} BY NAME SELECT {names}, b.* EXCLUDE ({own}), r.__lakesql_place "
            f"FROM {_ROWS} r JOIN {BATCH} b ON b.rowid = r.__lakesql_place"
        ).fetchall()
    finally:
        con.unregister(_FATES)
        con.unregister(_ROWS)
