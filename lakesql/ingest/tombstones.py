"""Records without a value as deletes of a keyed table: which rows they void, and where the rows lie that they remove.

The key of a tombstone is its decoded key columns, as far as the rows have columns of these names, else the bytes of the
Kafka key. Within a batch the last record of a key by topic, partition and offset wins: rows before a tombstone do not
count, and a tombstone with a row behind it is written before the rows, so it removes only what is stored. An ordering
field is not asked: a delete by tombstone is one without a time (hudi-format 5.3), and whatever comes after it may stay.
Tombstones go through AS SELECT as rows with NULL in every column that is not of the key. One of which AS SELECT makes no
row with the whole record key means nothing for the table: it deletes nothing and voids nothing (`meant`).
"""

from collections.abc import Mapping

import duckdb

from lakesql.counted import counted
from lakesql.ingest.model import KAFKA
from lakesql.table.names import duckdb_type, quote
from lakesql.table.read import plan, to_sql
from lakesql.table.state import TableState

Connection = duckdb.DuckDBPyConnection
Columns = Mapping[str, str]
"""Names to DuckDB types."""

LAST, GONE, FOUND, MEANT = "__lakesql_last", "__lakesql_gone", "__lakesql_found", "__lakesql_meant"
TABLES = (LAST, MEANT, *(f"{name}_{n}" for name in (GONE, FOUND) for n in (0, 1)))
"""TEMP tables that are made here."""

_NOT_BY_ONE = (duckdb.BinderException, duckdb.ParserException, duckdb.NotImplementedException)
"""What DuckDB says about a query that it cannot ask about one record at a time. Anything else, memory that is out or an
interrupt, says nothing about which tombstones are meant."""

_KAFKA = frozenset(KAFKA.names)
_PLACE = "struct_pack(topic := {0}_topic, number := {0}_partition, at := {0}_offset)"


def meaningless(table: TableState, operation: str, envelope: str) -> str | None:
    """Why tombstones delete nothing of this table, as the end of a sentence; None when they do."""
    config = table.config
    if not config.record_key_fields:
        return "the table has no record key"
    if operation != "upsert":
        return f"the operation {operation} looks up no keys"
    if config.delete_field or envelope not in ("", "none"):
        return "the change events of this table say themselves what is deleted"
    return None


def unsaid(table: TableState, tomb_columns: Columns) -> str | None:
    """Why tombstones without AS SELECT have no record key, as the end of a sentence; None when they have one."""
    given = {name.lower() for name in tomb_columns}
    lack = [name for name in table.config.record_key_fields if name.lower() not in given]
    if not lack:
        return None
    return (
        f"the record key is NULL, since nothing says that the Kafka key holds {', '.join(lack)} (set lakesql.key.format "
        "and lakesql.key.columns, then read them again)"
    )


def together(columns: Columns, tombs: str) -> str:
    """SQL of tombstones as rows of the relation `kafka`, which has these columns."""
    return f"{_nulls(columns)} UNION ALL BY NAME SELECT * FROM {tombs}"


def meant(con: Connection, table: TableState, select: str, tombs: str, notes: list[str]) -> str:
    """The relation of those tombstones that mean something for the table: AS SELECT over one of them makes a row with the
    whole record key. The relation `kafka` has them all (`together`).

    A query that cannot be asked about one record at a time (a PIVOT) counts as one that makes the keys of all.
    """
    keys = table.config.record_key_fields
    own = con.execute("DESCRIBE SELECT * FROM kafka").fetchall()
    there = {row[0] for row in con.execute(f"DESCRIBE SELECT * FROM {tombs}").fetchall()}
    one = ", ".join(f"CAST({'t.' + quote(n) if n in there else 'NULL'} AS {kind}) AS {quote(n)}" for n, kind, *_ in own)
    keyed = (f"TRY_CAST({quote(k)} AS {duckdb_type(table.schema.field(k).type, k)}) IS NOT NULL" for k in keys)
    made = f"SELECT 1 FROM (WITH kafka AS (SELECT {one}) SELECT * FROM ({select}\n)) WHERE "
    try:
        given = {str(row[0]).lower() for row in con.execute(f"DESCRIBE SELECT * FROM ({select}\n)").fetchall()}
        lack = [k for k in keys if k.lower() not in given]
        made += "false" if lack else " AND ".join(keyed)
        con.execute(f"CREATE OR REPLACE TEMP TABLE {MEANT} AS SELECT * FROM {tombs} t WHERE EXISTS ({made})").fetchall()
    except _NOT_BY_ONE:  # it is run over all of them next, where a fault of the query is told
        return tombs
    skipped = con.execute(f"SELECT (SELECT count(*) FROM {tombs}) - (SELECT count(*) FROM {MEANT})").fetchall()[0][0]
    if skipped:
        why = (
            f"without the record key column {lack[0]}"
            if lack
            else f"AS SELECT makes no row with the record key ({', '.join(keys)}) of them (the key format says which "
            "columns the Kafka key has; decode(_key) is its text)"
        )
        notes.append(f"{counted(skipped, 'tombstone')} skipped: {why}. They delete nothing.")
    return MEANT


def _nulls(columns: Columns) -> str:
    """SQL of no rows with these columns."""
    nulls = ", ".join(f"CAST(NULL AS {kind}) AS {quote(name)}" for name, kind in columns.items())
    return f"SELECT {nulls} WHERE false"


def settle(con: Connection, rows: str, columns: Columns, tombs: str, tomb_columns: Columns) -> tuple[str, int]:
    """SQL of the rows that no tombstone voids, in order, and how many are voided. `rows` and `tombs` name relations.

    Fills LAST: the last tombstone of each key, and whether a row comes behind it (`later`).
    """
    shared = [c for c in tomb_columns if c in columns and c not in _KAFKA] or ["_key"]
    keys = ", ".join(map(quote, shared))
    on = " AND ".join(_same(c, columns.get(c), tomb_columns[c]) for c in shared)
    if any(c not in columns for c in shared):
        on = "false"  # the rows do not say their key, so none of them can be meant
    place, theirs = _PLACE.format(""), _PLACE.format("r.")
    last = (
        f"SELECT *, {place} AS place FROM {tombs} "
        f"QUALIFY row_number() OVER (PARTITION BY {keys} ORDER BY {place} DESC) = 1"
    )
    later = f"EXISTS (SELECT 1 FROM {rows} r WHERE {on} AND {theirs} > t.place)"
    con.execute(f"CREATE OR REPLACE TEMP TABLE {LAST} AS SELECT *, {later} AS later FROM ({last}) t").fetchall()
    void = f"EXISTS (SELECT 1 FROM {LAST} t WHERE {on} AND {theirs} < t.place)"
    voided = int(con.execute(f"SELECT count(*) FROM {rows} r WHERE {void}").fetchall()[0][0])
    if not voided:
        return f"SELECT * FROM {rows}", 0
    return f"SELECT r.* FROM {rows} r WHERE NOT {void} ORDER BY r._topic, r._partition, r._offset", voided


def _same(column: str, kind: str | None, tomb_kind: str) -> str:
    name = quote(column)
    if kind == tomb_kind:
        return f"r.{name} IS NOT DISTINCT FROM t.{name}"
    return f"CAST(r.{name} AS VARCHAR) IS NOT DISTINCT FROM CAST(t.{name} AS VARCHAR)"


def as_rows(columns: Columns, later: bool) -> str:
    """SQL of the tombstones in LAST as rows of the relation `kafka`, which has these columns."""
    own = f"SELECT * EXCLUDE (place, later) FROM {LAST} WHERE later = {later} ORDER BY place"
    return f"{_nulls(columns)} UNION ALL BY NAME ({own})"


def deletes_sql(con: Connection, table: TableState, selected: str, number: int, notes: list[str]) -> str | None:
    """Rows for `write` that delete, of what AS SELECT made of tombstones; None when nothing is to be deleted.

    `selected` is SQL. Where a row does not say its partition, its key is looked up in the table. `number` tells two
    calls for one write apart.
    """
    config, name = table.config, f"{GONE}_{number}"
    given = {str(row[0]).lower(): str(row[0]) for row in con.execute(f"DESCRIBE {selected}").fetchall()}
    keys = config.record_key_fields
    fields = list(dict.fromkeys(f for f in (*keys, *config.partition_fields) if f.lower() in given))
    lack = [f for f in keys if f.lower() not in given or f not in table.schema.names]
    if lack:
        count = con.execute(f"SELECT count(*) FROM ({selected})").fetchall()[0][0]
        if count:
            notes.append(f"{counted(count, 'tombstone')} skipped: without the record key column {lack[0]}.")
        return None
    casts = ", ".join(
        f"TRY_CAST({quote(given[f.lower()])} AS {duckdb_type(table.schema.field(f).type, f)}) AS {quote(f)}"
        for f in fields
    )
    con.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT DISTINCT {casts} FROM ({selected})").fetchall()
    no_key = " OR ".join(f"{quote(k)} IS NULL" for k in keys)
    lost = con.execute(f"DELETE FROM {name} WHERE {no_key}").fetchall()[0][0]
    if lost:
        notes.append(
            f"{counted(lost, 'tombstone')} skipped: the record key is NULL or does not fit its column (the key format says "
            "which columns the Kafka key has)."
        )
    absent = [f for f in config.partition_fields if f not in fields]
    unknown = "true" if absent else " OR ".join(f"{quote(f)} IS NULL" for f in config.partition_fields) or "false"
    if not con.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0]:
        return None
    nulls = "".join(
        f", CAST(NULL AS {duckdb_type(table.schema.field(f).type, f)}) AS {quote(f)}"
        for f in absent
        if f in table.schema.names
    )
    said = f"SELECT *{nulls}, CAST(NULL AS VARCHAR) AS _hoodie_partition_path, 'delete' AS __op FROM {name} WHERE NOT ({unknown})"
    searched = con.execute(f"SELECT count(*) FROM {name} WHERE {unknown}").fetchall()[0][0]
    if not searched:
        return said
    found = _look_up(con, table, f"SELECT * FROM {name} WHERE {unknown}", number)
    columns = ", ".join(map(quote, keys))
    hit = con.execute(f"SELECT count(*) FROM (SELECT DISTINCT {columns} FROM {found})").fetchall()[0][0]
    if searched > hit:
        notes.append(f"{counted(searched - hit, 'tombstone')} without a partition skipped: the table has no such key.")
    return f"{said} UNION ALL BY NAME SELECT *, 'delete' AS __op FROM {found}"


def _look_up(con: Connection, table: TableState, wanted: str, number: int) -> str:
    """The TEMP table with the keys of `wanted` and the partition of every row of the table that has one."""
    keys, name = table.config.record_key_fields, f"{FOUND}_{number}"
    columns = ", ".join(f"g.{quote(k)}" for k in keys)
    on = " AND ".join(f"s.{quote(k)} = g.{quote(k)}" for k in keys)
    stored = to_sql(con, plan(table), [*keys, "_hoodie_partition_path"])
    con.execute(
        f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT DISTINCT {columns}, s._hoodie_partition_path "
        f"FROM ({wanted}) g JOIN ({stored}) s ON {on}"
    ).fetchall()
    return name
