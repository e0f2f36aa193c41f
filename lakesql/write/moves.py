"""Global indexes: rows whose key is found in another partition than their own.

With `moves` such a row is deleted where it is and inserted in its own partition, both in one commit; without, it is
updated where it is, with its own column values, as Hudi does. A row that loses against the stored one does neither. A
tombstone in another partition says nothing about a key (it may be what a move left behind), so only those of the row's
own partition count; a row that moves onto one is added to that file slice unless the tombstone is newer.
"""

from collections.abc import Sequence

import duckdb
import pyarrow as pa

from lakesql.format.files import FileSlice
from lakesql.table import merge
from lakesql.write.batch import Rules
from lakesql.write.plan import BATCH, DELETED, FATE, INSERTED, MATCH, UPDATED

Connection = duckdb.DuckDBPyConnection
_HOMES, _MOVED = "__lakesql_homes", "__lakesql_moved"


def forget_foreign_tombstones(con: Connection, slices: Sequence[FileSlice]) -> None:
    """Take tombstones of other partitions out of the table of matches."""
    _register(con, slices)
    try:
        con.execute(
            f"DELETE FROM {MATCH} USING {_HOMES} h, {BATCH} b WHERE h.slice_no = {MATCH}.slice_no "
            f"AND b.rowid = {MATCH}.place AND NOT {MATCH}.live AND h.part <> b.__lakesql_part"
        ).fetchall()
    finally:
        con.unregister(_HOMES)


def move_rows(con: Connection, slices: Sequence[FileSlice], rules: Rules, ords: Sequence[str]) -> int:
    """Turn updates of rows in another partition into a delete there and an insert here; the number of rows moved."""
    _register(con, slices)
    try:
        con.execute(
            f"CREATE OR REPLACE TEMP TABLE {_MOVED} AS SELECT f.place, f.slice_no FROM {FATE} f "
            f"JOIN {_HOMES} h ON h.slice_no = f.slice_no JOIN {BATCH} b ON b.rowid = f.place "
            f"WHERE f.fate = {UPDATED} AND h.part <> b.__lakesql_part"
        ).fetchall()
        con.execute(
            f"UPDATE {FATE} SET fate = {DELETED} FROM {_MOVED} m "
            f"WHERE m.place = {FATE}.place AND m.slice_no = {FATE}.slice_no"
        ).fetchall()
        newer = "true"
        if rules.compares:
            old = merge.ordering(len(rules.ordering), "t", rules.merge.sequence)
            new = merge.ordering(len(rules.ordering), "t", rules.merge.sequence, "new_")
            newer = f"(t.own OR NOT coalesce({new} < {old}, false))"
        nothing = "".join(", NULL" for _ in ords)
        # A row that was updated at home as well (a key in two partitions) is there already.
        inserted = con.execute(
            f"INSERT INTO {FATE} SELECT m.place, min(t.slice_no), NULL, {INSERTED}{nothing} "
            f"FROM (SELECT DISTINCT place FROM {_MOVED}) m LEFT JOIN {MATCH} t ON t.place = m.place AND NOT t.live AND {newer} "
            f"WHERE m.place NOT IN (SELECT place FROM {FATE} WHERE fate = {UPDATED}) GROUP BY m.place"
        ).fetchall()
        return int(inserted[0][0])
    finally:
        con.unregister(_HOMES)
        con.execute(f"DROP TABLE IF EXISTS {_MOVED}")


def _register(con: Connection, slices: Sequence[FileSlice]) -> None:
    numbers = pa.array(range(len(slices)), pa.int32())
    con.register(_HOMES, pa.table({"slice_no": numbers, "part": pa.array([s.partition for s in slices], pa.string())}))
