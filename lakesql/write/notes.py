"""What a write tells beside its counts."""

import duckdb

from lakesql.counted import counted
from lakesql.write.batch import Rules
from lakesql.write.plan import BATCH, FATE, IGNORED, INSERT, UPSERT
from lakesql.write.tag import Tagged


def late_note(con: duckdb.DuckDBPyConnection, tagged: Tagged, rules: Rules, duplicates: str) -> str | None:
    """A sentence about rows that lost against a stored row with a larger ordering value; None when there are none.

    Asks `__lakesql_fate` and `__lakesql_batch`. Rows that another row of their batch replaced are not meant.
    """
    if not ((rules.compares or not rules.merge.by_row) and tagged.looked_up and tagged.rows_ignored):
        return None
    ops = str(UPSERT) if duplicates == "drop" else f"{UPSERT}, {INSERT}"
    late = con.execute(
        f"SELECT count(*) FROM (SELECT f.place FROM {FATE} f JOIN {BATCH} b ON b.rowid = f.place "
        f"WHERE b.__lakesql_op IN ({ops}) GROUP BY 1 HAVING min(f.fate) = {IGNORED})"
    ).fetchall()[0][0]
    if not late:
        return None
    if not rules.merge.by_row:
        return (
            f"{counted(late, 'row')} changed nothing: by the table's merge rule {rules.merge.name} the stored row stays where it is "
            "newer, and absent values keep what is stored."
        )
    fields = ", ".join(rules.ordering)
    rows, them = ("1 row was", "it") if late == 1 else (f"{late:,} rows were", "them")
    return (
        f"{rows} ignored as late: the stored row has a larger ordering value ({fields}). To force {them}, give a larger "
        f"value of {fields}, or DELETE the stored row and INSERT the new one."
    )
