"""Where each row of a batch belongs: which file slice holds its key, and what becomes of the row.

One join of the batch with the keys of the merged view (`read.keys_sql`), limited to the batch's partitions: the index
is not global, a key is looked up within its partition path, as SIMPLE and BLOOM do. The result is the TEMP table
`__lakesql_fate`, one row per row of the batch and place where its key is:

    place     BIGINT    rowid in the batch           slice_no  INTEGER   index in the plan's slices; NULL = nowhere
    row_no    BIGINT    row of the base file; NULL when the record is in a log
    fate      UTINYINT  INSERTED, UPDATED, DELETED or IGNORED
    ord_0 ... ordering values for the delete records of event-time tables (hudi-format 4.7)

Late rows (hudi-format 5.3, ordering value smaller than the stored one, NULL smallest) are IGNORED and never written,
on both table types alike. A key that only a tombstone knows is inserted into the slice of the tombstone.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from lakesql.errors import TableError, Unsupported
from lakesql.format.files import FileSlice
from lakesql.table.merge import ordering
from lakesql.table.names import quote
from lakesql.table.read import ReadPlan, keys_sql
from lakesql.table.scan import scan_sql
from lakesql.write.batch import Batch, Rules
from lakesql.write.duplicates import refuse_known_inserts, refuse_partly_changed, refuse_stored_look_alikes
from lakesql.write.plan import BATCH, DELETED, FATE, IGNORED, INSERT, INSERTED, MARKED, UPDATED, UPSERT, Changes

Connection = duckdb.DuckDBPyConnection
_GROUPS, _NAMES = "__lakesql_groups", "__lakesql_names"


@dataclass(frozen=True, slots=True)
class Tagged:
    """Counts of fates: new keys by partition path, changes by slice number, and rows that change nothing."""

    looked_up: bool  # whether `__lakesql_fate` exists
    inserts: Mapping[str, int]
    changes: Mapping[int, Changes]
    rows_inserted: int
    rows_updated: int
    rows_deleted: int
    rows_ignored: int


NOTHING = Tagged(False, {}, {}, 0, 0, 0, 0)


def tag_batch(
    con: Connection, plan: ReadPlan, batch: Batch, rules: Rules, look_up: bool, duplicates: str = "none"
) -> Tagged:
    """Fill `__lakesql_fate` for the batch in `__lakesql_batch`.

    `plan` is a snapshot plan of the table as it is now. Without `look_up` every row is a new key. `duplicates` says
    what an INSERT row does whose key exists: none (it updates), drop (ignored), fail (TableError naming keys).
    """
    partitions = set(batch.partitions)
    numbers = [n for n, s in enumerate(plan.slices) if s.partition in partitions]
    if not look_up or not numbers or not batch.rows:
        return _all_new(con, batch)
    ords = ordering_columns(plan)
    con.execute(f"DROP TABLE IF EXISTS {FATE}")
    _match(con, plan, numbers, rules, ords)
    try:
        if batch.keys_computed:
            refuse_stored_look_alikes(con, plan)
        if rules.from_table:
            refuse_known_inserts(con, plan)
            refuse_partly_changed(con, plan)
        _decide(con, rules, ords, duplicates)
        if duplicates == "fail":
            _refuse_duplicates(con, plan)
        if rules.event_time and plan.view.state.config.is_mor:
            _refuse_resurrection(con, plan, rules)
    finally:
        con.execute("DROP TABLE IF EXISTS __lakesql_match")
    return _count(con, batch, rules)


def ordering_columns(plan: ReadPlan) -> list[str]:
    """Names of the ordering values in `__lakesql_fate`."""
    return [f"ord_{i}" for i in range(len(plan.view.ordering_fields()))]


def _all_new(con: Connection, batch: Batch) -> Tagged:
    """Every row is a new key, and deletes find nothing; there is no `__lakesql_fate`."""
    inserts = dict(
        con.execute(
            f"SELECT __lakesql_part, count(*) FROM {BATCH} WHERE __lakesql_op IN ({UPSERT}, {INSERT}) "
            "GROUP BY 1 ORDER BY 1"
        ).fetchall()
    )
    rows = sum(inserts.values())
    return Tagged(False, inserts, {}, rows, 0, 0, batch.rows - rows)


def _match(con: Connection, plan: ReadPlan, numbers: list[int], rules: Rules, ords: list[str]) -> None:
    """`__lakesql_match`: every place where a key of the batch is, live or as a tombstone."""
    # Partitions are compared by number: the text of a path would be hashed again for each key of the table.
    names = {name: i for i, name in enumerate(sorted({plan.slices[n].partition for n in numbers}))}
    parts = [names[plan.slices[n].partition] for n in numbers]
    con.register(_GROUPS, pa.table({"slice_no": pa.array(numbers, pa.int32()), "part": pa.array(parts, pa.int32())}))
    con.register(
        _NAMES, pa.table({"name": pa.array(list(names), pa.string()), "part": pa.array(names.values(), pa.int32())})
    )
    stored = "".join(f", k.{o}" for o in ords)
    given = "".join(f", b.{quote(f)} AS new_{i}" for i, f in enumerate(rules.ordering)) if rules.event_time else ""
    carried = "".join(f", b.new_{i}" for i in range(len(rules.ordering))) if rules.event_time else ""
    several = len(names) > 1
    try:
        con.execute(f"""
            CREATE OR REPLACE TEMP TABLE __lakesql_match AS
            SELECT b.place, k.slice_no, k.row_no, k.live{stored}{carried}
            FROM ({keys_sql(con, plan, numbers)}) k
            {f"JOIN {_GROUPS} g ON g.slice_no = k.slice_no" if several else ""}
            JOIN (SELECT b.rowid AS place, b.__lakesql_key AS key, n.part{given}
                  FROM {BATCH} b JOIN {_NAMES} n ON n.name = b.__lakesql_part) b
              ON b.key = k.record_key {"AND b.part = g.part" if several else ""}""").fetchall()
    finally:
        con.unregister(_GROUPS)
        con.unregister(_NAMES)


def _decide(con: Connection, rules: Rules, ords: list[str], duplicates: str) -> None:
    late = "false"
    stored = "".join(f", m.{o}" for o in ords)
    if rules.event_time:
        # A marked delete leaves its own ordering value behind, an unconditional one that of the row it removes.
        own = f"CASE WHEN b.__lakesql_op = {MARKED} THEN m.new_{{0}} ELSE m.ord_{{0}} END AS ord_{{0}}"
        stored = "".join(", " + own.format(i) for i in range(len(ords)))
        n = len(rules.ordering)
        new = ", ".join(f"m.new_{i} IS NOT NULL, m.new_{i}" for i in range(n))
        late = f"coalesce(row({new}) < {ordering(n, 'm')}, false)"
    existing = {"drop": IGNORED}.get(duplicates, UPDATED)
    fate = f"""CASE
        WHEN b.__lakesql_op IN ({UPSERT}, {INSERT}) THEN CASE
            WHEN m.place IS NULL THEN {INSERTED} WHEN {late} THEN {IGNORED} WHEN NOT m.live THEN {INSERTED}
            WHEN b.__lakesql_op = {INSERT} THEN {existing} ELSE {UPDATED} END
        WHEN m.place IS NULL OR NOT m.live THEN {IGNORED}
        WHEN b.__lakesql_op = {MARKED} AND {late} THEN {IGNORED} ELSE {DELETED} END"""
    con.execute(f"""
        CREATE TEMP TABLE {FATE} AS
        SELECT b.rowid AS place, m.slice_no, m.row_no, CAST({fate} AS UTINYINT) AS fate{stored}
        FROM {BATCH} b LEFT JOIN ({_places_sql(con)}) m ON m.place = b.rowid""").fetchall()


def _places_sql(con: Connection) -> str:
    """The matches that count: all live ones, or, where there is none, the first tombstone."""
    total, distinct = con.execute("SELECT count(*), count(DISTINCT place) FROM __lakesql_match").fetchall()[0]
    if total == distinct:
        return "SELECT * FROM __lakesql_match"
    return (
        "SELECT * FROM (SELECT *, bool_or(live) OVER (PARTITION BY place) AS any_live, "
        "min(slice_no) OVER (PARTITION BY place) AS first FROM __lakesql_match) "
        "WHERE live OR (NOT any_live AND slice_no = first)"
    )


def _refuse_duplicates(con: Connection, plan: ReadPlan) -> None:
    found = con.execute(
        f"SELECT b.__lakesql_key, count(*) OVER () FROM {FATE} f JOIN {BATCH} b ON b.rowid = f.place "
        f"WHERE f.fate = {UPDATED} AND b.__lakesql_op = {INSERT} ORDER BY f.place LIMIT 3"
    ).fetchall()
    if found:
        keys = ", ".join(repr(key) for key, _ in found)
        raise TableError(
            f"{plan.view.state.path}: {found[0][1]} of the rows to insert have a key that exists, for example {keys} "
            "(hoodie.datasource.insert.dup.policy = fail). Nothing was written. Use UPSERT or MERGE, or set the "
            "policy to drop or none."
        )


def _refuse_resurrection(con: Connection, plan: ReadPlan, rules: Rules) -> None:
    """Refuse to append below a commit-time delete what would make the old base row appear again.

    Log records are merged first; a record whose ordering value is smaller than that of the base row then loses
    against the row that the delete had removed (hudi-format 5.7 a). Our own deletes carry the row's ordering value
    and never lead here; a SQL DELETE by Spark does.
    """
    voided = " AND ".join(f"m.ord_{i} IS NULL" for i in range(len(rules.ordering)))
    dead = (
        f"SELECT m.*, b.__lakesql_key AS key FROM __lakesql_match m "
        f"JOIN {FATE} f ON f.place = m.place AND f.slice_no = m.slice_no JOIN {BATCH} b ON b.rowid = m.place "
        f"WHERE NOT m.live AND f.fate = {INSERTED} AND {voided}"
    )
    numbers = [n for (n,) in con.execute(f"SELECT DISTINCT slice_no FROM ({dead})").fetchall()]
    based = [(n, s) for n in sorted(numbers) if (s := plan.slices[n]).base is not None]
    if not based:
        return
    columns = ["_hoodie_record_key", *rules.ordering]
    scan = scan_sql(
        plan.view.state, [s.base for _, s in based if s.base], plan.schema, columns, plan.view.evolved, positions=True
    )
    old = ", ".join(f"{quote(f)} AS ord_{i}" for i, f in enumerate(rules.ordering))
    place = f"({[n for n, _ in based]}::INTEGER[])[file_index + 1]"
    new = ", ".join(f"d.new_{i} IS NOT NULL, d.new_{i}" for i in range(len(rules.ordering)))
    found = con.execute(
        f"SELECT d.key, d.slice_no FROM ({dead}) d JOIN (SELECT {place} AS slice_no, _hoodie_record_key AS key, {old} "
        f"FROM ({scan})) o ON o.key = d.key AND o.slice_no = d.slice_no "
        f"WHERE row({new}) < {ordering(len(rules.ordering), 'o')} LIMIT 1"
    ).fetchall()
    if found:
        key, number = found[0]
        raise Unsupported(
            f"{plan.view.state.path}: key {key!r} in file group {_group(plan.slices[number])} was deleted without an "
            "ordering value, and the new row's ordering value is smaller than the deleted row's; appended to the log "
            "it would bring the deleted row back. Compact the table first, or write the row with a larger ordering "
            "value."
        )


def _group(file_slice: FileSlice) -> str:
    return f"{file_slice.partition}/{file_slice.file_id}" if file_slice.partition else file_slice.file_id


def _count(con: Connection, batch: Batch, rules: Rules) -> Tagged:
    inserts = con.execute(
        f"SELECT b.__lakesql_part, count(*) FROM {FATE} f JOIN {BATCH} b ON b.rowid = f.place "
        f"WHERE f.slice_no IS NULL AND f.fate = {INSERTED} GROUP BY 1 ORDER BY 1"
    ).fetchall()
    changed = con.execute(
        f"SELECT slice_no, count(*) FILTER (WHERE fate = {UPDATED}), count(*) FILTER (WHERE fate = {DELETED}), "
        f"count(*) FILTER (WHERE fate = {INSERTED}) FROM {FATE} WHERE slice_no IS NOT NULL AND fate <> {IGNORED} "
        "GROUP BY 1 ORDER BY 1"
    ).fetchall()
    places = int(con.execute(f"SELECT count(*) FROM {FATE}").fetchall()[0][0])
    # A key that the table has twice has two places. A statement changes two rows then; a row that was given counts
    # once, as ignored only when all places agree.
    rows = (
        FATE
        if rules.from_table or places == batch.rows
        else f"(SELECT place, min(fate) AS fate FROM {FATE} GROUP BY place)"
    )
    fates = dict(con.execute(f"SELECT fate, count(*) FROM {rows} GROUP BY 1").fetchall())
    return Tagged(
        looked_up=True,
        inserts=dict(inserts),
        changes={n: Changes(u, d, r) for n, u, d, r in changed},
        rows_inserted=fates.get(INSERTED, 0),
        rows_updated=fates.get(UPDATED, 0),
        rows_deleted=fates.get(DELETED, 0),
        rows_ignored=fates.get(IGNORED, 0),
    )
