"""What becomes of the rows of a batch, told row by row; and rows that stand or fall together.

Only for a batch whose rows came with numbers (`__lakesql_number`). The answer is a query, valid until the write ends, over the
tagged batch: nothing is computed unless somebody asks. Two rows of one number are the halves of a move, a delete in
one partition and an insert in another: they count as one update, and must not be parted.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import duckdb

from lakesql.errors import TableError
from lakesql.table.names import literals, quote
from lakesql.table.read import ReadPlan
from lakesql.write.plan import BATCH, DELETED, FATE, IGNORED, INSERT, INSERTED, NUMBER, UPDATED, UPSERT
from lakesql.write.stream import batch_rows_sql
from lakesql.write.tag import Tagged


@dataclass(frozen=True, slots=True)
class Outcome:
    """`plan`: the snapshot that the rows meet. `sql`: one row per row of the batch and place of its key,

    number BIGINT: of the row | fate UTINYINT | key, part VARCHAR: its own | place VARCHAR: the partition where the table
    has the key, or will | the table's columns as written.
    """

    plan: ReadPlan
    sql: str


Observer = Callable[[Outcome], None]


def outcome(plan: ReadPlan, tagged: Tagged) -> Outcome:
    """The outcome of a numbered batch."""
    columns = "".join(f", b.{quote(c)}" for c in plan.view.state.schema.names)
    given = f"b.{NUMBER} AS number, {{fate}} AS fate, b.__lakesql_key AS key, b.__lakesql_part AS part, {{place}} AS place{columns}"
    if tagged.looked_up:
        places = literals([s.partition for s in (*plan.slices, *tagged.opened)])
        rows = f"{FATE} f JOIN {batch_rows_sql(tagged.resolved)} b ON b.__lakesql_place = f.place"
        place = f"coalesce(({places})[f.slice_no + 1], b.__lakesql_part)"
        return Outcome(plan, f"SELECT {given.format(fate='f.fate', place=place)} FROM {rows}")
    new = f"CASE WHEN b.__lakesql_op IN ({UPSERT}, {INSERT}) THEN {INSERTED} ELSE {IGNORED} END::UTINYINT"
    return Outcome(plan, f"SELECT {given.format(fate=new, place='b.__lakesql_part')} FROM {BATCH} b")


def with_moves(con: duckdb.DuckDBPyConnection, tagged: Tagged, where: str) -> Tagged:
    """The counts of a numbered batch, with a move as one update.

    TableError, naming keys, when one half of a move would be done without the other.
    """
    if not tagged.looked_up:
        return tagged
    halves = (
        f"SELECT b.{NUMBER} AS number, any_value(b.__lakesql_key) AS key, bool_or(f.fate = {DELETED}) AS left_there, "
        f"bool_or(f.fate IN ({INSERTED}, {UPDATED})) AS arrived FROM {FATE} f JOIN {BATCH} b ON b.rowid = f.place "
        f"GROUP BY b.{NUMBER} HAVING count(DISTINCT b.__lakesql_part) > 1"
    )
    parted, moved = con.execute(
        f"SELECT list(key ORDER BY key) FILTER (WHERE left_there <> arrived)[:10], "
        f"count(*) FILTER (WHERE left_there AND arrived) FROM ({halves})"
    ).fetchall()[0]
    if parted:
        raise TableError(
            f"{where}: rows cannot move to another partition, because a newer delete of their key is known there: "
            f"{', '.join(parted)}. Nothing was written. Give them a larger ordering value."
        )
    return replace(
        tagged,
        rows_inserted=tagged.rows_inserted - moved,
        rows_deleted=tagged.rows_deleted - moved,
        rows_updated=tagged.rows_updated + moved,
    )
