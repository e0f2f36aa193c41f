"""Where each row of a batch belongs: which file slice holds its key, and what becomes of the row.

One join of the batch with the keys of the merged view (`read.keys_sql`), limited to the file slices that the index
(`write.index`) says may hold them: those of the batch's partitions at most, unless the index is global. A statement that
has met the stored rows itself hands their places on (`write.found`), then only tombstones are read. The result is the
TEMP table `__lakesql_fate`, one row per row of the batch and place where its key is:

    place     BIGINT    rowid in the batch           slice_no  INTEGER   index in the plan's slices; NULL = nowhere
    row_no    BIGINT    row of the base file; NULL when the record is in a log
    fate      UTINYINT  INSERTED, UPDATED, DELETED or IGNORED
    ord_0 ... ordering values for the delete records of event-time tables (hudi-format 4.7)

What becomes of a row that meets a stored one is the `write` step of the table's merge rule, on both table types alike:
late rows (ordering value smaller than the stored one, NULL smallest) are IGNORED and never written; where columns are
taken from both, `resolve` decides. A key that only a tombstone knows is inserted into the slice of the tombstone,
unless that is a newer delete which came as data; after a DELETE statement any row may come.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import duckdb
import pyarrow as pa

from lakesql.errors import TableError
from lakesql.format.files import FileSlice
from lakesql.table import merge
from lakesql.table.names import quote
from lakesql.table.read import ReadPlan, keys_sql, tombs_sql
from lakesql.write.batch import Batch, Rules
from lakesql.write.buckets import number_buckets, send_to_buckets, slices_of_batch
from lakesql.write.divergence import slices_to_rewrite
from lakesql.write.duplicates import (
    refuse_known_inserts,
    refuse_partly_changed,
    refuse_stored_look_alikes,
    slices_with_copies,
)
from lakesql.write.found import Found
from lakesql.write.held import own
from lakesql.write.index import SIMPLE, Index
from lakesql.write.moves import forget_foreign_tombstones, move_rows
from lakesql.write.plan import BATCH, DELETED, FATE, IGNORED, INSERT, INSERTED, MARKED, MATCH, UPDATED, UPSERT, Changes
from lakesql.write.prune import may_hold, pays
from lakesql.write.resolve import resolve

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
    resolved: bool = False  # whether `__lakesql_resolved` exists
    rewrites: frozenset[int] = frozenset()  # slices whose log must not be appended to
    rows_moved: int = 0  # of those updated: into another partition
    opened: tuple[FileSlice, ...] = ()  # slices without files, counted on from the plan's: buckets used the first time


NOTHING = Tagged(False, {}, {}, 0, 0, 0, 0)


def tag_batch(
    con: Connection,
    plan: ReadPlan,
    batch: Batch,
    rules: Rules,
    look_up: bool,
    duplicates: str = "none",
    index: Index = SIMPLE,
    found: Found | None = None,
) -> Tagged:
    """Fill `__lakesql_fate` for the batch in `__lakesql_batch`.

    `plan` is a snapshot plan of the table as it is now. Without `look_up` every row is a new key. `duplicates` says
    what an INSERT row does whose key exists: none (it updates), drop (ignored), fail (TableError naming keys).
    `found`: where the keys were when the rows were made; used when that is the table as it is now.
    """
    if index.buckets and batch.rows:
        batch = _owned(con, batch)
        number_buckets(con, index)
    if found is not None and (index.buckets or index.everywhere or found.state != plan.view.state):
        found = None
    numbers = _searched(con, plan, batch, index, found is not None) if look_up and batch.rows else []
    if not batch.rows or not (numbers or index.buckets):
        return _all_new(con, batch)
    batch = _owned(con, batch)
    ords = ordering_columns(plan)
    con.execute(f"DROP TABLE IF EXISTS {FATE}")
    moved = 0
    opened: tuple[FileSlice, ...] = ()
    keys = keys_sql(con, plan, numbers) if found is None else _found_sql(con, plan, numbers, found)
    _match(con, plan, numbers, keys, rules, ords, index.everywhere)
    try:
        if batch.keys_computed:
            refuse_stored_look_alikes(con, plan, rules.keys_everywhere)
        if rules.from_table:
            refuse_known_inserts(con, plan)
            refuse_partly_changed(con, plan, rules.keys_everywhere)
        _decide(con, rules, ords, duplicates)
        if duplicates == "fail":
            _refuse_duplicates(con, plan)
        if not rules.merge.by_row:
            resolve(con, plan, numbers, rules)
        if index.everywhere and index.moves:
            moved = move_rows(con, plan.slices, rules, ords)
        if index.buckets:
            opened = send_to_buckets(con, plan.slices, numbers)
        rewrites: frozenset[int] = frozenset()
        if plan.view.state.config.is_mor:
            rewrites = slices_to_rewrite(con, plan, rules)
            if rules.from_table:
                rewrites |= slices_with_copies(con)
    finally:
        con.execute(f"DROP TABLE IF EXISTS {MATCH}")
    counts = _count(con, batch, each=rules.from_table and not moved)
    return replace(
        counts,
        rows_inserted=counts.rows_inserted - moved,
        rows_updated=counts.rows_updated + moved,
        rows_moved=moved,
        opened=opened,
        resolved=not rules.merge.by_row,
        rewrites=rewrites,
    )


def _owned(con: Connection, batch: Batch) -> Batch:
    """The batch as a table, whose rows are found by place."""
    if batch.held is None:
        return batch
    own(con)
    return replace(batch, held=None)


def _searched(con: Connection, plan: ReadPlan, batch: Batch, index: Index, found: bool) -> list[int]:
    """Numbers of the slices where keys of the batch may be; `found`: nothing need be read to search them."""
    if index.buckets:
        return slices_of_batch(con, plan)
    partitions = set(batch.partitions)
    numbers = [n for n, s in enumerate(plan.slices) if index.everywhere or s.partition in partitions]
    prunes = not found and (pays(plan, numbers, batch.rows) if index.prunes is None else index.prunes)
    return may_hold(con, plan, numbers, index.everywhere) if prunes else numbers


def _found_sql(con: Connection, plan: ReadPlan, numbers: list[int], found: Found) -> str:
    """As `keys_sql`, with the places that are known."""
    known = f"SELECT * FROM ({found.sql}) WHERE slice_no IN (SELECT unnest({numbers}::INTEGER[]))"
    return " UNION ALL ".join([known, *tombs_sql(con, plan, numbers)])


def ignored_slices(con: Connection, tagged: Tagged) -> list[int]:
    """Numbers of the slices that hold a key of a row that changes nothing."""
    if not (tagged.looked_up and tagged.rows_ignored):
        return []
    sql = f"SELECT DISTINCT slice_no FROM {FATE} WHERE fate = {IGNORED} AND slice_no IS NOT NULL"
    return [n for (n,) in con.execute(sql).fetchall()]


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


def _match(
    con: Connection, plan: ReadPlan, numbers: list[int], keys: str, rules: Rules, ords: list[str], everywhere: bool
) -> None:
    """Fill MATCH: every place where a key of the batch is, live or as a tombstone. `keys`: the places of keys.

    `everywhere`: live in any partition, not just in that of the row.
    """
    # Partitions are compared by number: the text of a path would be hashed again for each key of the table.
    names = {name: i for i, name in enumerate(sorted({plan.slices[n].partition for n in numbers}))}
    parts = [names[plan.slices[n].partition] for n in numbers]
    con.register(_GROUPS, pa.table({"slice_no": pa.array(numbers, pa.int32()), "part": pa.array(parts, pa.int32())}))
    con.register(
        _NAMES, pa.table({"name": pa.array(list(names), pa.string()), "part": pa.array(names.values(), pa.int32())})
    )
    stored = "".join(f", k.{o}" for o in ords)
    given = "".join(f", b.{quote(f)} AS new_{i}" for i, f in enumerate(rules.ordering)) if rules.compares else ""
    carried = "".join(f", b.new_{i}" for i in range(len(rules.ordering))) if rules.compares else ""
    several = len(names) > 1 and not everywhere
    own = "" if everywhere else f"JOIN {_NAMES} n ON n.name = b.__lakesql_part"
    try:
        con.execute(f"""
            CREATE OR REPLACE TEMP TABLE {MATCH} AS
            SELECT b.place, k.slice_no, k.row_no, k.live, k.own{stored}{carried}
            FROM ({keys}) k
            {f"JOIN {_GROUPS} g ON g.slice_no = k.slice_no" if several else ""}
            JOIN (SELECT b.rowid AS place, b.__lakesql_key AS key{"" if everywhere else ", n.part"}{given}
                  FROM {BATCH} b {own}) b
              ON b.key = k.record_key {"AND b.part = g.part" if several else ""}""").fetchall()
    finally:
        con.unregister(_GROUPS)
        con.unregister(_NAMES)
    if everywhere:
        forget_foreign_tombstones(con, plan.slices)


def _decide(con: Connection, rules: Rules, ords: list[str], duplicates: str) -> None:
    late = marked_late = dead_late = "false"
    stored = "".join(f", m.{o}" for o in ords)
    if rules.compares:
        # A marked delete leaves its own ordering value behind, an unconditional one that of the row it removes; so do
        # deletes by sequence texts, which some releases compare as texts.
        if not rules.merge.sequence:
            own = f"CASE WHEN b.__lakesql_op = {MARKED} THEN m.new_{{0}} ELSE m.ord_{{0}} END AS ord_{{0}}"
            stored = "".join(", " + own.format(i) for i in range(len(ords)))
        old = merge.ordering(len(rules.ordering), "m", rules.merge.sequence)
        new = merge.ordering(len(rules.ordering), "m", rules.merge.sequence, "new_")
        dead_late = f"NOT m.own AND coalesce({new} < {old}, false)"  # DELETE statements do not compare
        late = _late(rules.merge.write.row, new, old) if rules.merge.by_row else "false"
        marked_late = _late(rules.merge.write.delete, new, old)
    if duplicates == "fail":
        late = f"({late} AND NOT b.__lakesql_op = {INSERT})"  # a key that exists fails, late or not
    existing = {"drop": IGNORED}.get(duplicates, UPDATED)
    fate = f"""CASE
        WHEN b.__lakesql_op IN ({UPSERT}, {INSERT}) THEN CASE
            WHEN m.place IS NULL THEN {INSERTED} WHEN NOT m.live THEN CASE WHEN {dead_late} THEN {IGNORED} ELSE {INSERTED} END
            WHEN {late} THEN {IGNORED} WHEN b.__lakesql_op = {INSERT} THEN {existing} ELSE {UPDATED} END
        WHEN m.place IS NULL OR NOT m.live THEN {IGNORED}
        WHEN b.__lakesql_op = {MARKED} AND {marked_late} THEN {IGNORED} ELSE {DELETED} END"""
    con.execute(f"""
        CREATE TEMP TABLE {FATE} AS
        SELECT b.rowid AS place, m.slice_no, m.row_no, CAST({fate} AS UTINYINT) AS fate{stored}
        FROM {BATCH} b LEFT JOIN ({_places_sql(con)}) m ON m.place = b.rowid""").fetchall()


def _late(how: str, new: str, old: str) -> str:
    """Condition under which the stored version stays."""
    comparison = {merge.ALWAYS: "", merge.NOT_OLDER: "<", merge.NEWER: "<="}[how]
    return f"coalesce({new} {comparison} {old}, false)" if comparison else "false"


def _places_sql(con: Connection) -> str:
    """The matches that count: all live ones, or, where there is none, the first tombstone."""
    total, distinct = con.execute(f"SELECT count(*), count(DISTINCT place) FROM {MATCH}").fetchall()[0]
    if total == distinct:
        return f"SELECT * FROM {MATCH}"
    return (
        "SELECT * FROM (SELECT *, bool_or(live) OVER (PARTITION BY place) AS any_live, "
        f"min(slice_no) OVER (PARTITION BY place) AS first FROM {MATCH}) "
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


def _count(con: Connection, batch: Batch, each: bool) -> Tagged:
    """`each`: every row of the table counts, not every row of the batch."""
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
    rows = FATE if each or places == batch.rows else f"(SELECT place, min(fate) AS fate FROM {FATE} GROUP BY place)"
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
