"""Where appending to a log would read otherwise than the write means: file slices whose base file is rewritten instead.

What a write means is the merge rule's `write` step against the merged view, on both table types. Appending to the log
brings that about as long as a reader, who merges the log by itself first and the result with the base row
(hudi-format 5.1), comes to the same row. Appended rows are complete and deletes carry the row's own ordering value, so
this can only fail for

    a key that the merged view does not have, though the slice has its tombstone and its old row: the tombstone no
    longer protects from the old row, which then wins (5.7 a) or lends its columns (5.7 g)
    an insert after a DELETE statement with a smaller ordering value than the deleted row had
    a row that replaces one in the log although its ordering value is smaller: Hudi 0.15, which reads version 6, keeps
    the larger one whatever the merge mode (5.3); MySQL sequence numbers it compares as text
    a delete of a row in the log whose ordering value may be smaller than that of the base row below: Hudi 1.0 compares
    the two where version 8 stores the payload class under CUSTOM
    an insert above a delete without ordering value, or above a newer one: Hudi 1.0, which reads version 8, fails (5.7
    d), or keeps the key deleted, in every mode but commit time

    a statement on a key that the slice has several times: a log record reaches only the first of its rows (`duplicates`)

For these slices the delta commit writes a new base file that holds the merged rows. Everything else is appended.
"""

import duckdb

from lakesql.table import merge
from lakesql.table.names import quote
from lakesql.table.read import ReadPlan
from lakesql.table.scan import FILE_NO, scan_sql
from lakesql.write.batch import Rules
from lakesql.write.plan import BATCH, DELETED, FATE, INSERTED, MATCH, UPDATED

Connection = duckdb.DuckDBPyConnection


def slices_to_rewrite(con: Connection, plan: ReadPlan, rules: Rules) -> frozenset[int]:
    """Numbers of the slices of a merge-on-read table in which the changes in FATE must not be appended."""
    config, rule = plan.view.state.config, rules.merge
    in_log = "f.row_no IS NULL"
    conditions = []
    if rule.merger is not None:  # what the reader's merger makes of several records is not what ours made of two
        conditions.append(f"{in_log} AND f.fate IN ({INSERTED}, {UPDATED})")
    if not rule.plain or (config.version == 8 and config.merge_mode == merge.CUSTOM):
        conditions.append(f"f.fate = {INSERTED}")
    elif rules.compares:
        conditions.append(f"f.fate = {INSERTED} AND {_smaller(rules)}")
    if config.version == 8 and config.merge_mode != merge.COMMIT_TIME:
        conditions.append(f"f.fate = {INSERTED} AND {_unordered(rules)}")
    if config.version == 8 and config.merge_mode == merge.CUSTOM and rule.write.row == merge.ALWAYS:
        conditions.append(f"f.fate = {DELETED} AND {in_log}")
    if config.version == 6 and rules.ordering and rule.write.row == merge.ALWAYS:
        conditions.append(f"f.fate = {UPDATED} AND {in_log} AND {_smaller(rules)}")
    if rule.sequence:
        conditions.append(f"f.fate IN ({INSERTED}, {UPDATED}) AND {in_log}")
    found = set(_numbers(con, " OR ".join(f"({c})" for c in conditions))) if conditions else set()
    if rule.plain and rules.compares and (revived := _numbers(con, f"f.fate = {INSERTED}")):
        found |= _resurrections(con, plan, revived, rules)
    return frozenset(found)


def _numbers(con: Connection, condition: str) -> list[int]:
    """The slices with a change for which `condition` is true: f fate, m its match, b its row."""
    if not con.execute(f"SELECT 1 FROM {FATE} WHERE slice_no IS NOT NULL AND row_no IS NULL LIMIT 1").fetchall():
        return []  # every condition is about a key that is in a log
    return [
        n
        for (n,) in con.execute(
            f"SELECT DISTINCT f.slice_no FROM {FATE} f JOIN {BATCH} b ON b.rowid = f.place "
            f"JOIN {MATCH} m ON m.place = f.place AND m.slice_no = f.slice_no WHERE {condition} ORDER BY 1"
        ).fetchall()
    ]


def _unordered(rules: Rules) -> str:
    return " AND ".join(f"m.ord_{i} IS NULL" for i in range(len(rules.ordering))) or "true"


def _smaller(rules: Rules) -> str:
    """The row's ordering value is smaller than that of the row it replaces."""
    new = ", ".join(f"b.{quote(f)} IS NOT NULL, b.{quote(f)}" for f in rules.ordering)
    return f"row({new}) < {merge.ordering(len(rules.ordering), 'm')}"


def _resurrections(con: Connection, plan: ReadPlan, revived: list[int], rules: Rules) -> set[int]:
    """The slices in which an old base row of a deleted key would win against the row that is appended."""
    based = [(n, base) for n in revived if (base := plan.slices[n].base) is not None]
    if not based:
        return set()
    columns = ["_hoodie_record_key", *rules.ordering]
    scan = scan_sql(plan.view.state, [b for _, b in based], plan.schema, columns, plan.view.evolved, positions=True)
    old = ", ".join(f"{quote(f)} AS ord_{i}" for i, f in enumerate(rules.ordering))
    number = f"({[n for n, _ in based]}::INTEGER[])[{FILE_NO} + 1]"
    new = ", ".join(f"b.{quote(f)} IS NOT NULL, b.{quote(f)}" for f in rules.ordering)
    found = con.execute(
        f"SELECT DISTINCT f.slice_no FROM {FATE} f JOIN {BATCH} b ON b.rowid = f.place "
        f"JOIN (SELECT {number} AS slice_no, _hoodie_record_key AS key, {old} FROM ({scan})) o "
        f"ON o.key = b.__lakesql_key AND o.slice_no = f.slice_no "
        f"WHERE f.fate = {INSERTED} AND row({new}) < {merge.ordering(len(rules.ordering), 'o')}"
    ).fetchall()
    return {n for (n,) in found}
