"""The stage of a MERGE, UPDATE or DELETE: the names of its columns, and what must not be found in it. Pure.

Beside the table's columns a stage has `__op` (upsert, insert, delete, error; NULL in an EXPLAIN (FATES) for a row that
no clause changes), record key and partition path of the target row, and where they can matter

    __lakesql_row      number of the source row                __lakesql_clause  number of the clause, from 1
    __lakesql_rekeyed  an update gives another record key      __lakesql_error   what THEN ERROR says
    __lakesql_path     the partition path that an update moves the row to; NULL when it stays
    __lakesql_same     an update gives every column the value that is stored: the row is not written
    and the columns of `places`
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lakesql.sql.merge_names import Target
from lakesql.table.names import literal, quote
from lakesql.write.names_of_settings import DUPLICATES

STAGE = "__lakesql_stage"
SHOWN_MAX = 10
"""Keys that an error names."""

ROW, CLAUSE, REKEYED, ERROR = '"__lakesql_row"', '"__lakesql_clause"', '"__lakesql_rekeyed"', '"__lakesql_error"'
SAME = '"__lakesql_same"'
PATH_CHANGED, NEW_PATH = '"__lakesql_path_changed"', '"__lakesql_path"'
KEY, PATH, OP = '"_hoodie_record_key"', '"_hoodie_partition_path"', '"__op"'

_LIMIT = f"ORDER BY 1 LIMIT {SHOWN_MAX + 1}"


MOVES = f"SELECT 1 FROM {STAGE} WHERE {NEW_PATH} IS NOT NULL LIMIT 1"


@dataclass(frozen=True, slots=True)
class Check:
    """`sql` yields one text per offending key; when it yields any, `message` is the error, with {keys} in it.

    `fate`: what EXPLAIN (FATES) calls such rows instead of failing; empty when it fails too.
    """

    sql: str
    message: str
    fate: str = ""


@dataclass(frozen=True, slots=True)
class Compiled:
    """What to run: the stage, the checks, and the rows to write.

    Where rows may move, `moving_rows_sql` and `move_checks` count instead as soon as MOVES yields a row of the stage.
    """

    stage_sql: str
    checks: tuple[Check, ...]
    rows_sql: str
    move_checks: tuple[Check, ...] = ()
    moving_rows_sql: str = ""
    unchanged_sql: str = ""
    """Counts the rows that are left out because they are stored as they are; '' where there are none."""
    assigned: frozenset[str] = frozenset()
    """The columns that some update gives a value; the others of an updated row are as stored."""
    one_per_key: str = ""
    """The QUALIFY of the duplicate policy."""
    differing_sql: str = ""
    """Takes SAME from rows that were compared in one column only and differ in others (`places`); '' for none."""
    found_sql: str = ""
    """Where the rows with keys of the stage are, unless `doubts_sql` yields a row (`places`); '' when not known."""
    doubts_sql: str = ""
    inside_sqls: tuple[str, ...] = ()
    """The values of columns with structs as they are before their casts, of no row: what is in them is in their types."""


def identity(target: Target) -> list[str]:
    """The columns that a key is made of: what two inserts must not have in common."""
    return [quote(f) for f in dict.fromkeys((*target.key_fields, *target.partition_fields))]


def _shown(target: Target) -> str:
    """A SQL text that names a row of the stage by its key, and partition."""
    fields = [*target.key_fields, *(f for f in target.partition_fields if f not in target.key_fields)]
    if not target.key_fields:
        return KEY
    parts = ", ', ', ".join(f"{literal(f + '=')}, coalesce(CAST({quote(f)} AS VARCHAR), 'NULL')" for f in fields)
    return f"concat({parts})"


def duplicate_checks(target: Target, updates: bool, inserts: bool) -> Iterator[Check]:
    """Several source rows for one row of the table, or for one new key."""
    policies = f"Make the source unique, or SET {DUPLICATES} = 'first', 'last' or 'ordering'."
    shown = _shown(target)
    if updates:
        rows = f"{STAGE} WHERE {OP} IN ('upsert', 'delete') AND {ROW} IS NOT NULL"
        yield Check(
            _several(rows, (KEY, PATH), shown, f"count(DISTINCT {ROW})"),
            f"{target.name}: several source rows match the same row of the table: {{keys}}. {policies}",
            "duplicate",
        )
    if target.key_fields and inserts:
        present = " AND ".join(f"{quote(f)} IS NOT NULL" for f in target.key_fields)
        yield Check(
            _several(f"{STAGE} WHERE {OP} = 'insert' AND {present}", identity(target), shown),
            f"{target.name}: several source rows would insert the same key: {{keys}}. {policies}",
            "duplicate",
        )


def _several(rows: str, same: Sequence[str], shown: str, count: str = "count(*)") -> str:
    """Shows rows that agree in the columns `same`. Their text is made only for those: at 5M rows a fifth of the time."""
    fields = ", ".join(same)
    agree = " AND ".join(f"s.{f} IS NOT DISTINCT FROM d.{f}" for f in same)
    return (
        f"SELECT DISTINCT {shown} FROM (SELECT * FROM {rows}) s "
        f"SEMI JOIN (SELECT {fields} FROM {rows} GROUP BY {fields} HAVING {count} > 1) d ON {agree} {_LIMIT}"
    )


def error_check(target: Target) -> Check:
    """Rows that a THEN ERROR clause fits."""
    return Check(
        f"SELECT concat({ERROR}, ' (', {_shown(target)}, ', clause ', {CLAUSE}, ')') FROM {STAGE} "
        f"WHERE {OP} = 'error' {_LIMIT}",
        f"{target.name}: WHEN ... THEN ERROR: {{keys}}.",
        "error",
    )


def rekeyed_check(target: Target) -> Check:
    """An update that would give a row another key."""
    fields = ", ".join(target.key_fields)
    return Check(
        f"SELECT {_shown(target)} FROM {STAGE} WHERE {REKEYED} {_LIMIT}",
        f"{target.name}: UPDATE would give a row another record key ({fields}): {{keys}}. A row is found by its key, so "
        "it cannot change. Compare these columns in ON with values of their own types, or DELETE the row and INSERT it anew.",
    )


def move_checks(target: Target, inserts: bool, one_per_key: str = "") -> Iterator[Check]:
    """A row that moves to a partition that has its key already, or gets it by the same statement."""
    chosen = f"({_chosen(False, one_per_key, only_written=True)})"
    arriving = f"SELECT *, {NEW_PATH} AS place FROM {chosen} WHERE {NEW_PATH} IS NOT NULL"
    leaving = f"SELECT {KEY}, {PATH} FROM {chosen} WHERE {OP} = 'delete' OR {NEW_PATH} IS NOT NULL"
    advice = "DELETE one of them first."
    yield Check(
        f"SELECT {_shown(target)} FROM ({arriving}) s "
        f"SEMI JOIN ({target.snapshot}) t ON t.{KEY} = s.{KEY} AND t.{PATH} = s.place "
        f"ANTI JOIN ({leaving}) l ON l.{KEY} = s.{KEY} AND l.{PATH} = s.place {_LIMIT}",
        f"{target.name}: UPDATE would move rows to a partition that has their key already: {{keys}}. {advice}",
    )
    yield Check(
        f"SELECT any_value({_shown(target)}) FROM ({arriving}) GROUP BY {KEY}, place HAVING count(*) > 1 {_LIMIT}",
        f"{target.name}: UPDATE would move several rows of one key to the same partition: {{keys}}. {advice}",
    )
    if inserts and target.key_fields:
        same = " AND ".join(f"i.{f} IS NOT DISTINCT FROM s.{f}" for f in identity(target))
        yield Check(
            f"SELECT {_shown(target)} FROM ({arriving}) s "
            f"SEMI JOIN (SELECT * FROM {chosen} WHERE {OP} = 'insert') i ON {same} {_LIMIT}",
            f"{target.name}: UPDATE would move rows to where an INSERT of the same statement puts their key: {{keys}}. "
            "Leave one of them out.",
        )


def existing_check(target: Target) -> Check:
    """An insert of a key that is there."""
    same = " AND ".join(f"s.{f} IS NOT DISTINCT FROM t.{f}" for f in identity(target))
    return Check(
        f"SELECT {_shown(target)} FROM (SELECT * FROM {STAGE} WHERE {OP} = 'insert') s "
        f"SEMI JOIN ({target.snapshot}) t ON {same} {_LIMIT}",
        f"{target.name}: WHEN NOT MATCHED would insert keys that the table has already, because ON compares more than "
        "the key: {keys}. Move the other conditions into WHEN MATCHED AND ..., or leave these source rows out.",
    )


def with_same(select: str, columns: Sequence[str] | None) -> str:
    """The stage with SAME: all of `columns` have the stored value, which `select` gives under another name (`stored`).

    On Merge-on-Read `UPDATE SET *` reads the stored values for this alone, so that both types count and commit alike; a
    MERGE therefore gives one column here and compares the others later (`places.differing_sql`). None: there is no
    update.
    """
    if columns is None:
        return select
    equal = [f"{quote(c)} IS NOT DISTINCT FROM {stored(c)}" for c in columns]
    same = " AND ".join([f"{OP} = 'upsert'", *equal])
    old = f" EXCLUDE ({', '.join(map(stored, columns))})" if columns else ""
    return f"SELECT *{old}, {same} AS {SAME} FROM (\n{select})"


def stored(column: str) -> str:
    """The name of the stored value of a column beside the new one."""
    return quote(f"__lakesql_old_{column}")


def unchanged_sql(one_per_key: str = "") -> str:
    """Counts the rows with SAME among those that the policy chooses."""
    return f"SELECT count(*) FROM ({_chosen(False, one_per_key, False)}) WHERE {SAME}"


def copies_sql(everywhere: bool, one_per_key: str) -> str:
    """Takes SAME from rows whose key another row of the stage changes: a key that the table has several times is
    written as a whole. `everywhere`: rows of one key are one row, whatever their partitions."""
    same = KEY if everywhere else f"{KEY}, {PATH}"
    changes = (
        f"SELECT {same} FROM ({_chosen(False, one_per_key, False)}) WHERE {OP} IN ('upsert', 'delete') AND NOT {SAME}"
    )
    return f"UPDATE {STAGE} SET {SAME} = false WHERE {SAME} AND ({same}) IN ({changes})"


def rows_sql(
    target: Target, numbered: bool, one_per_key: str = "", only_written: bool = False, marked: bool = False
) -> str:
    """What `write` reads from a stage in which no row moves.

    `numbered`: with the number of the stage's row; `only_written`: the stage has rows that are not written; `marked`:
    it has SAME.
    """
    columns = ", ".join([*map(quote, target.columns), OP, KEY, PATH])
    rows = f"SELECT {columns}{_NUMBER if numbered else ''} FROM ({_chosen(numbered, one_per_key, only_written)})"
    return f"{rows} WHERE NOT {SAME}" if marked else rows


def moving_rows_sql(target: Target, one_per_key: str = "", only_written: bool = False, marked: bool = False) -> str:
    """What `write` reads from a stage with rows that move: deleted where they are, inserted where they go.

    The number of the stage's row ties the two halves together. Deletes come first, so that one row may go where
    another one of its key leaves.
    """
    columns = ", ".join(map(quote, target.columns))
    chosen = _chosen(True, one_per_key, only_written)
    if marked:
        chosen = f"SELECT * FROM ({chosen}) WHERE NOT {SAME}"
    return (
        f"WITH chosen AS MATERIALIZED ({chosen})\n"
        f"SELECT {columns}, {OP}, {KEY}, {PATH}{_NUMBER} FROM chosen WHERE {OP} = 'delete' UNION ALL\n"
        f"SELECT {columns}, 'delete', {KEY}, {PATH}{_NUMBER} FROM chosen WHERE {NEW_PATH} IS NOT NULL UNION ALL\n"
        f"SELECT {columns}, {OP}, {KEY}, coalesce({NEW_PATH}, {PATH}){_NUMBER} FROM chosen WHERE {OP} <> 'delete'"
    )


_NUMBER = ', "__lakesql_number"'


def _chosen(numbered: bool, one_per_key: str, only_written: bool) -> str:
    number = ', rowid AS "__lakesql_number"' if numbered else ""
    condition = f" WHERE {OP} IN ('upsert', 'insert', 'delete')" if only_written else ""
    return f"SELECT *{number} FROM {STAGE}{condition}{one_per_key}"


def one_per_key(target: Target, duplicates: str) -> str:
    """A QUALIFY that keeps one row per key by the policy; '' for the policy error."""
    if duplicates == "error":
        return ""
    order = {"first": f"{ROW}", "last": f"{ROW} DESC"}.get(duplicates)
    if order is None:
        order = ", ".join([*(f"{quote(f)} DESC NULLS LAST" for f in target.ordering_fields), f"{ROW} DESC"])
    # rank, not row_number: a source row that matches several rows of the table is kept as often.
    return f" QUALIFY rank() OVER (PARTITION BY {', '.join(same_key(target))} ORDER BY {order}) = 1"


def same_key(target: Target) -> Sequence[str]:
    """Expressions over the stage that agree for rows which concern the same row of the table, or the same new key."""
    fields = identity(target) if target.key_fields else [ROW]
    new = [f"CASE WHEN {OP} = 'insert' THEN {f} END" for f in fields]
    return [f"{OP} = 'insert'", KEY, PATH, *new]
