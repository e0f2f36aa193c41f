"""Keys that several rows have: what a statement may do with them, and rows that only look as if they had one key.

A plain insert does not look keys up, so a table may hold a key several times. A record is written by its key: what a
statement does to one of these rows happens to all of them, and is refused unless that is what the statement says. The
rows of a statement on the table itself (`Rules.from_table`) therefore come in two kinds:

    changes   all rows of the key are in the batch, with one result; they become one row, the number is kept in COPIES
    inserts   the table does not have the key, and no other row of the batch has it

Record keys of several columns are texts in which different values can look alike: a separator inside of a value, or
the words that stand for NULL and ''. Such rows are refused as well, within a batch and against the table.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import duckdb
import pyarrow as pa

from lakesql.errors import TableError
from lakesql.table.names import literal, quote
from lakesql.table.read import ReadPlan, to_sql
from lakesql.table.state import TableState
from lakesql.write.plan import BATCH, COPIES, DELETE, INSERT, MATCH, NUMBER

Connection = duckdb.DuckDBPyConnection

_SHOWN = 10
_KEY, _PART, _OP = "__lakesql_key", "__lakesql_part", "__lakesql_op"
_WAY_OUT = (
    "Nothing was written. Make the keys of the table unique first, for example with INSERT OVERWRITE from a SELECT "
    "... QUALIFY row_number() OVER (PARTITION BY key columns) = 1."
)


def unite_copies(con: Connection, state: TableState, everywhere: bool, numbered: bool) -> int:
    """Reduce the changes of one key to one row, the number of rows that went; TableError where that is not possible.

    `everywhere`: rows of one key are one row, whatever their partitions. Without, the half of a move that arrives is a
    row of its own: it may come where another row of its key leaves.
    """
    same = _KEY if everywhere else f"{_PART}, {_KEY}"
    changes = f"SELECT *, rowid AS place FROM {BATCH} WHERE {_KEY} IS NOT NULL"
    if numbered and not everywhere:
        moving = f"SELECT {NUMBER} FROM {BATCH} GROUP BY ALL HAVING count(DISTINCT {_PART}) > 1"
        changes += f" AND ({_OP} = {DELETE} OR {NUMBER} NOT IN ({moving}))"
    twice = f"SELECT {same} FROM ({changes}) GROUP BY ALL HAVING count(*) > 1"
    values = ", ".join(f"b.{quote(name)}" for name in state.schema.names)
    con.execute(f"""
        CREATE OR REPLACE TEMP TABLE {COPIES} AS
        SELECT {same}, min({_PART}) AS part, list(place) AS places, count(*) AS copies,
               count(DISTINCT CASE WHEN {_OP} <> {DELETE} THEN row({values}) END)
                 + CAST(bool_or({_OP} = {DELETE}) AS BIGINT) AS results, bool_or({_OP} = {INSERT}) AS inserted
        FROM ({changes}) b JOIN ({twice}) t USING ({same}) GROUP BY {same}""").fetchall()
    if not con.execute(f"SELECT 1 FROM {COPIES} LIMIT 1").fetchall():
        return 0
    if inserted := _named(con, f"SELECT {_KEY}, part FROM {COPIES} WHERE inserted"):
        raise TableError(
            f"{state.path}: the statement would insert keys that another of its rows has as well: {inserted}. Compare the keys in ON as they "
            "are stored, or make the source unique. Nothing was written."
        )
    if different := _named(con, f"SELECT {_KEY}, part FROM {COPIES} WHERE results > 1"):
        raise TableError(
            f"{state.path}: the table has several rows of one key, and the statement would make them different: "
            f"{different}. Rows are written by key. {_WAY_OUT}"
        )
    united = (
        f"DELETE FROM {BATCH} WHERE rowid IN (SELECT place FROM (SELECT unnest(places) AS place, list_min(places) AS kept "
        f"FROM {COPIES}) WHERE place <> kept)"
    )
    return int(con.execute(united).fetchall()[0][0])


def refuse_known_inserts(con: Connection, plan: ReadPlan) -> None:
    """TableError when the table has the key of a row that a statement inserts as new."""
    known = (
        f"SELECT DISTINCT b.{_KEY}, b.{_PART} FROM {MATCH} m JOIN {BATCH} b ON b.rowid = m.place "
        f"WHERE m.live AND b.{_OP} = {INSERT}"
    )
    if keys := _named(con, known):
        raise TableError(
            f"{plan.view.state.path}: WHEN NOT MATCHED would insert keys that the table has already: "
            f"{keys}. ON did not match these rows although they are written under the same key: its "
            "comparison converts values in another way than the insert, or compares NULL. Cast the source to the types "
            "of the key and partition columns and compare NULL with IS NOT DISTINCT FROM, or leave these rows out. "
            "Nothing was written."
        )


def refuse_partly_changed(con: Connection, plan: ReadPlan, everywhere: bool) -> None:
    """TableError when the table has more rows of a key than the statement's rows were made from."""
    state = plan.view.state
    total, distinct = con.execute(f"SELECT count(*), count(DISTINCT place) FROM {MATCH} WHERE live").fetchall()[0]
    if total == distinct:
        return
    several = (
        f"SELECT b.{_KEY}, b.{_PART} FROM (SELECT place, count(*) AS n FROM {MATCH} WHERE live GROUP BY place) m "
        f"JOIN {BATCH} b ON b.rowid = m.place LEFT JOIN {COPIES} c USING ({_KEY if everywhere else f'{_PART}, {_KEY}'}) "
        f"WHERE m.n > coalesce(c.copies, 1)"
    )
    if keys := _named(con, several):
        raise TableError(
            f"{state.path}: the statement changes some rows of a key and the table has more rows of it: "
            f"{keys}. Rows are written by key, so the other rows would change too. {_WAY_OUT}"
        )


def slices_with_copies(con: Connection) -> frozenset[int]:
    """The file slices that have several rows of a key of the batch: a log record reaches only the first of them."""
    found = f"SELECT slice_no FROM {MATCH} WHERE live GROUP BY place, slice_no HAVING count(*) > 1"
    return frozenset(n for (n,) in con.execute(f"SELECT DISTINCT slice_no FROM ({found})").fetchall())


def _named(con: Connection, keys_sql: str) -> str:
    """The first keys of a query, with their partitions; '' when it gives none."""
    found = con.execute(f"SELECT * FROM ({keys_sql}) ORDER BY 2, 1 LIMIT {_SHOWN + 1}").fetchall()
    names = [f"{key!r} in {part}" if part else repr(key) for key, part in found[:_SHOWN]]
    return ", ".join(names) + (" and more" if len(found) > _SHOWN else "")


# ---------------------------------------------------------------- different rows with one key text


def refuse_look_alikes(con: Connection, state: TableState, everywhere: bool) -> None:
    """TableError, naming both, when two rows of the batch differ in key columns and have the same record key."""
    if not (suspicious := _suspicious(state)):
        return
    values = _values(state)
    same = _KEY if everywhere else f"{_KEY}, {_PART}"
    doubtful = f"SELECT {same} FROM {BATCH} WHERE {suspicious} GROUP BY ALL"
    found = con.execute(
        f"SELECT {_KEY}, list(DISTINCT {values})[1:2] FROM {BATCH} JOIN ({doubtful}) USING ({same}) "
        f"WHERE {_KEY} IS NOT NULL GROUP BY {same} HAVING count(DISTINCT {values}) > 1 ORDER BY 1 LIMIT 1"
    ).fetchall()
    if found:
        (key, (one, other)), *_ = found
        _refuse(state, key, "two of the rows", one, other)


def refuse_stored_look_alikes(con: Connection, plan: ReadPlan, everywhere: bool) -> None:
    """TableError, naming both, when a row of the batch would replace a row with other values in the key columns."""
    state = plan.view.state
    if not (suspicious := _suspicious(state)):
        return
    doubtful = (
        f"SELECT DISTINCT m.slice_no, b.* FROM {MATCH} m JOIN (SELECT rowid AS place, {_KEY}, {_PART}, "
        f"{_values(state)} AS given FROM {BATCH} WHERE {suspicious}) b ON b.place = m.place WHERE m.live"
    )
    numbers = [n for (n,) in con.execute(f"SELECT DISTINCT slice_no FROM ({doubtful}) ORDER BY 1").fetchall()]
    if not numbers:
        return
    columns = ["_hoodie_record_key", "_hoodie_partition_path", *dict.fromkeys(f.split(".")[0] for f in _fields(state))]
    stored = to_sql(con, replace(plan, slices=tuple(plan.slices[n] for n in numbers)), columns)
    same_part = "" if everywhere else f"AND s._hoodie_partition_path = d.{_PART} "
    found = con.execute(
        f"SELECT d.{_KEY}, d.given, s.stored FROM ({doubtful}) d JOIN (SELECT *, {_values(state)} AS stored "
        f"FROM ({stored})) s ON s._hoodie_record_key = d.{_KEY} {same_part}"
        "WHERE d.given IS DISTINCT FROM s.stored ORDER BY 1 LIMIT 1"
    ).fetchall()
    if found:
        _refuse(state, found[0][0], "a row of the batch and a row of the table", found[0][1], found[0][2])


def _refuse(state: TableState, key: str, who: str, one: Sequence[Any], other: Sequence[Any]) -> None:
    fields = ", ".join(_fields(state))
    raise TableError(
        f"{state.path}: {who} differ in the key columns ({fields}) and have the same record key {key!r}: "
        f"{tuple(one)!r} and {tuple(other)!r}. Hudi cannot tell them apart. Nothing was written. Change the values of one "
        "of them."
    )


def _fields(state: TableState) -> tuple[str, ...]:
    return state.config.record_key_fields


def _reference(state: TableState, field: str) -> str:
    return quote(field) if field in state.schema.names else ".".join(map(quote, field.split(".")))


def _values(state: TableState) -> str:
    """The key columns of a row as a list of texts."""
    return f"[{', '.join(f'CAST({_reference(state, f)} AS VARCHAR)' for f in _fields(state))}]"


def _suspicious(state: TableState) -> str:
    """Condition on rows whose record key other values could have too; '' when no two rows of the table can look alike.

    A key of one column is its text. Of several columns, a text may hold a separator, or be one of the words that stand
    for NULL and ''; or the row has NULL or '' itself, and its twin the word.
    """
    fields = _fields(state)
    if len(fields) < 2:
        return ""
    parts = [f"contains({{0}}, {literal(',' + f + ':')})" for f in fields[1:]]
    test = " OR ".join(["coalesce({0}, '') IN ('', '__null__', '__empty__')", *parts])
    schema = state.schema
    texts = [f for f in fields if f not in schema.names or pa.types.is_string(schema.field(f).type)]
    return "(" + " OR ".join(test.format(_reference(state, f)) for f in texts) + ")" if texts else ""
