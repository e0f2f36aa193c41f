"""Rows of one key within one batch, reduced to one by the `batch` step of the table's merge rule (hudi-format 5.6).

An unconditional delete voids the rows before it and gives way to any row after it. Where whole rows survive one query
finds the losers; where columns are filled from the rows that lose, or a person's merger decides, the rows of the keys
that are there more than once are folded on columns, CHUNK_ROWS of them at a time.
"""

from collections.abc import Sequence
from dataclasses import replace

import duckdb
import numpy as np
import pyarrow as pa

from lakesql.table.fold import Rows, absent_of, fold, starts_of
from lakesql.table.logfold import defaults
from lakesql.table.merge import ALWAYS, COMMIT_TIME_DELETE, NEWER, Rule, ordering
from lakesql.table.merge import DELETE as ORDERED_DELETE
from lakesql.table.merge import UPSERT as ROW
from lakesql.table.names import quote
from lakesql.table.state import TableState
from lakesql.write.held import HASH
from lakesql.write.plan import BATCH, DELETE, MARKED

CHUNK_ROWS = 500_000
SORTED_ROWS = 5_000_000  # 80 MB
_FOLDED = "__lakesql_folded"

Connection = duckdb.DuckDBPyConnection


def precombine(con: Connection, state: TableState, rule: Rule, fields: Sequence[str], everywhere: bool = False) -> int:
    """Reduce the batch to one row per key; the number of rows that went. `fields`: the ordering fields.

    `everywhere`: rows of one key are one row, whatever their partitions.
    """
    same = "__lakesql_key" if everywhere else "__lakesql_part, __lakesql_key"
    if rule.by_row:
        return _drop_losers(con, rule, fields, same)
    return _fold_rows(con, state, rule, fields, same)


def all_differ(con: Connection, held: pa.Table | None = None) -> bool:
    """Whether it is certain that every row has a key of its own: then their hashes differ, and sorting these costs a
    quarter of grouping texts. `held`: the batch, where it is in memory."""
    if held is not None:
        hashes = held[HASH].to_numpy()
        if held["__lakesql_key"].null_count:
            hashes = hashes[np.asarray(held["__lakesql_key"].is_valid().to_numpy())]
    else:
        count = int(con.execute(f"SELECT count(__lakesql_key) FROM {BATCH}").fetchall()[0][0])
        if count > SORTED_ROWS:
            return False
        sql = f"SELECT hash(__lakesql_key) AS h FROM {BATCH} WHERE __lakesql_key IS NOT NULL"
        hashes = np.asarray(con.sql(sql).fetchnumpy()["h"])
    ordered = np.sort(hashes)
    return not bool((ordered[1:] == ordered[:-1]).any())


def _twice(same: str) -> str:
    return f"SELECT {same} FROM {BATCH} WHERE __lakesql_key IS NOT NULL GROUP BY ALL HAVING count(*) > 1"


def _drop_losers(con: Connection, rule: Rule, fields: Sequence[str], same: str) -> int:
    compared = list(fields) if rule.batch.row != ALWAYS else []
    columns = "".join(f", b.{quote(f)} AS ord_{i}" for i, f in enumerate(compared))
    order = f"{ordering(len(compared), 'c', rule.sequence)} DESC, " if compared else ""
    last = "ASC" if rule.batch.row == NEWER else "DESC"
    part = "b.__lakesql_part" if "__lakesql_part" in same else "''"
    losers = f"""
        SELECT place FROM (
          SELECT place, row_number() OVER (
              PARTITION BY part, key ORDER BY place < last_delete, op = {DELETE}, {order}place {last}) AS rank
          FROM (SELECT *, coalesce(max(CASE WHEN op = {DELETE} THEN place END)
                                   OVER (PARTITION BY part, key), -1) AS last_delete
                FROM (SELECT b.rowid AS place, {part} AS part, b.__lakesql_key AS key,
                             b.__lakesql_op AS op{columns}
                      FROM {BATCH} b JOIN ({_twice(same)}) t USING ({same}))) c
        ) WHERE rank > 1"""
    return int(con.execute(f"DELETE FROM {BATCH} WHERE rowid IN ({losers})").fetchall()[0][0])


def _fold_rows(con: Connection, state: TableState, rule: Rule, fields: Sequence[str], same: str) -> int:
    rows = f"FROM {BATCH} b JOIN ({_twice(same)}) t USING ({same})"
    total = int(con.execute(f"SELECT count(*) {rows}").fetchall()[0][0])
    chunks = -(-total // CHUNK_ROWS)
    ords = "".join(f", b.{quote(f)} AS __lakesql_ord_{i}" for i, f in enumerate(fields))
    rank = (
        f"dense_rank() OVER (ORDER BY {ordering(len(fields), 'c', rule.sequence, '__lakesql_ord_')})" if fields else "0"
    )
    ord_names = ", ".join(f"__lakesql_ord_{i}" for i in range(len(fields)))
    survivors = []
    for chunk in range(chunks):
        found = con.sql(
            f"SELECT * {f'EXCLUDE ({ord_names})' if fields else ''}, {rank} AS __lakesql_rank, "
            f"dense_rank() OVER (ORDER BY {same}) AS __lakesql_group "
            f"FROM (SELECT b.*, b.rowid AS __lakesql_place{ords} {rows} "
            f"WHERE hash(__lakesql_key) % {chunks} = {chunk}) c ORDER BY __lakesql_group, __lakesql_place"
        ).to_arrow_table()
        survivors.append(_fold(found, state, rule))
    if not survivors:
        return 0
    con.register(_FOLDED, pa.concat_tables(survivors))
    try:
        con.execute(f"DELETE FROM {BATCH} WHERE ({same}) IN ({_twice(same)})").fetchall()
        con.execute(f"INSERT INTO {BATCH} BY NAME SELECT * FROM {_FOLDED}").fetchall()
    finally:
        con.unregister(_FOLDED)
    return total - sum(int(t.num_rows) for t in survivors)


def _fold(found: pa.Table, state: TableState, rule: Rule) -> pa.Table:
    """One row per group of rows, which come sorted by group and place."""
    columns = list(state.schema.names)
    op = found["__lakesql_op"].to_numpy()
    kind = np.where(op == DELETE, COMMIT_TIME_DELETE, np.where(op == MARKED, ORDERED_DELETE, ROW)).astype(np.int8)
    step = replace(rule.batch, delete=rule.batch.row, revive=rule.batch.row)  # in a batch deletes are rows like others
    held = Rows(found, rule, state.config.properties, state.path, columns)
    starts, order = starts_of(found["__lakesql_group"].to_numpy()), np.arange(found.num_rows)
    absent = absent_of(rule, found, columns, defaults(state))
    merged = fold(step, order, starts, kind, found["__lakesql_rank"].to_numpy(), absent, held.merger)
    drop = ["__lakesql_rank", "__lakesql_group", "__lakesql_place"]
    return held.show(merged, columns, []).drop_columns(drop)
