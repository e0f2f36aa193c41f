"""The rows of a tagged batch in the order of their targets: one query and how many of its rows each target gets.

Columns: ROW_NO BIGINT | ROW_FATE UTINYINT | ROW_KEY VARCHAR | ROW_HASH UBIGINT: of the key | ROW_PART VARCHAR | ORD_PREFIX 0 ... | those of the table.
Within a target, rows with a place in the base file come first, by place, then the others in input order. When every
row is a new key no numbering is needed: sorted by partition path the rows are in the order of the targets, and a
single partition needs no sort at all.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from lakesql.table.names import literal, quote
from lakesql.write.held import HASH
from lakesql.write.plan import BATCH, CREATE, FATE, IGNORED, INSERT, INSERTED, RESOLVED, UPSERT, Target

# Names that no column of a table has (`create` reserves them).
ROW_NO, ROW_FATE, ROW_KEY, ROW_PART = "__lakesql_row_no", "__lakesql_fate", "__lakesql_key", "__lakesql_part"
ROW_HASH = "__lakesql_hash"
ORD_PREFIX = "__lakesql_ord_"

_PLACES, _RANGES = "__lakesql_places", "__lakesql_ranges"


@dataclass(frozen=True, slots=True)
class Stream:
    """The query, and (target, rows) in the order in which its rows come. `table`: the rows themselves, where they are at
    hand: ROW_KEY, ROW_HASH and the columns of the table."""

    sql: str
    sequence: tuple[tuple[int, int], ...]
    table: pa.Table | None = None


@contextmanager
def rows_of(
    con: duckdb.DuckDBPyConnection,
    columns: Sequence[str],
    ords: Sequence[str],
    targets: Sequence[Target],
    looked_up: bool,
    instant: str,
    by_key: bool = False,
    resolved: bool = False,
    hashed: bool = True,
    held: pa.Table | None = None,
) -> Iterator[Stream]:
    """The stream for all targets; valid on `con` within the context. Generated keys (6.7) are made of `instant`.

    `by_key`: rows of new groups come sorted by record key within their partition; only where nothing was looked up.
    With `resolved` the rows in RESOLVED stand in for those of the batch. Not `hashed`: nobody compares keys. Rows that all
    go to new groups have no other columns but key and hash before those of the table. `held`: the batch, where it is in
    memory.
    """
    key = f"coalesce(b.__lakesql_key, {literal(instant + '_0_')} || {'b.__lakesql_place' if looked_up else 'b.rowid'})"
    given = f"{key} AS {ROW_KEY}, hash({key}) AS {ROW_HASH}, b.__lakesql_part AS {ROW_PART}"
    placed = f"{key} AS {ROW_KEY}, hash({key}) AS {ROW_HASH}, x.part AS {ROW_PART}"
    fields = "".join(f", b.{quote(c)}" for c in columns)
    if not looked_up:
        nothing = "".join(f", NULL AS {ORD_PREFIX}{i}" for i in range(len(ords)))
        where = f"NULL::BIGINT AS {ROW_NO}, {INSERTED}::UTINYINT AS {ROW_FATE}, {given}{nothing}"
        if all(t.kind == CREATE for t in targets):
            where = f"{key} AS {ROW_KEY}" + (f", hash({key}) AS {ROW_HASH}" if hashed else "")
        sql = f"SELECT {where}{fields} FROM {BATCH} b WHERE b.__lakesql_op IN ({UPSERT}, {INSERT})"
        order = sorted(range(len(targets)), key=lambda n: (targets[n].partition, targets[n].first_insert))
        several = len({t.partition for t in targets}) > 1
        order_by = ["b.__lakesql_part"] * several + [ROW_KEY] * by_key
        yield Stream(
            sql + (f" ORDER BY {', '.join(order_by)}, b.rowid" if order_by else ""),
            tuple((n, targets[n].inserts) for n in order),
            None if order_by or held is None else _as_they_are(held, columns, sum(t.inserts for t in targets)),
        )
        return
    places = [(t.slice_no, t.partition, n) for n, t in enumerate(targets) if t.slice_no is not None]
    ranges = [(t.partition, t.first_insert, t.first_insert + t.inserts, n) for n, t in enumerate(targets) if t.inserts]
    con.register(_PLACES, _table(places, ("slice_no", pa.int32()), ("part", pa.string()), ("target", pa.int32())))
    con.register(
        _RANGES,
        _table(ranges, ("part", pa.string()), ("low", pa.int64()), ("high", pa.int64()), ("target", pa.int32())),
    )
    stored = "".join(f", x.{o} AS {ORD_PREFIX}{i}" for i, o in enumerate(ords))
    try:
        yield Stream(
            f"SELECT x.row_no AS {ROW_NO}, x.fate AS {ROW_FATE}, {placed}{stored}{fields} "
            f"FROM ({_targeted(ords)}) x JOIN {batch_rows_sql(resolved)} b ON b.__lakesql_place = x.place "
            "ORDER BY x.target, x.row_no NULLS LAST, x.place",
            tuple((n, _rows(t)) for n, t in enumerate(targets)),
        )
    finally:
        con.unregister(_PLACES)
        con.unregister(_RANGES)


def _as_they_are(held: pa.Table, columns: Sequence[str], rows: int) -> pa.Table | None:
    """The rows of a batch in memory that are all written, in their order; None when that is not so."""
    key = held["__lakesql_key"]
    if held.num_rows != rows or key.null_count:
        return None
    return pa.table({ROW_KEY: key, ROW_HASH: held[HASH], **{c: held[c] for c in columns}})


def batch_rows_sql(resolved: bool) -> str:
    """The batch as it is written, with the place of each row."""
    if not resolved:
        return f"(SELECT *, rowid AS __lakesql_place FROM {BATCH})"
    given = (
        f"SELECT *, rowid AS __lakesql_place FROM {BATCH} WHERE rowid NOT IN (SELECT __lakesql_place FROM {RESOLVED})"
    )
    return f"({given} UNION ALL BY NAME SELECT * FROM {RESOLVED})"


def _rows(target: Target) -> int:
    return target.inserts + target.changes.updates + target.changes.deletes + target.changes.revived


def _targeted(ords: Sequence[str]) -> str:
    """target, its partition, place, row_no, fate and ordering values of every row to write.

    Under a global index the partition of a row's target need not be the row's own.
    """
    stored = "".join(f", f.{o}" for o in ords)
    nothing = "".join(f", NULL AS {o}" for o in ords)
    numbered = (
        "SELECT f.place, b.__lakesql_part AS part, row_number() OVER (PARTITION BY b.__lakesql_part ORDER BY "
        "f.place) - 1 AS n "
        f"FROM {FATE} f JOIN {BATCH} b ON b.rowid = f.place WHERE f.slice_no IS NULL AND f.fate = {INSERTED}"
    )
    return (
        f"SELECT t.target, t.part, f.place, f.row_no, f.fate{stored} FROM {FATE} f JOIN {_PLACES} t ON t.slice_no = f.slice_no "
        f"WHERE f.fate <> {IGNORED} UNION ALL "
        f"SELECT r.target, r.part, i.place, NULL::BIGINT, {INSERTED}::UTINYINT{nothing} FROM ({numbered}) i "
        f"JOIN {_RANGES} r ON r.part = i.part AND i.n >= r.low AND i.n < r.high"
    )


def _table(rows: Sequence[tuple[object, ...]], *columns: tuple[str, pa.DataType]) -> pa.Table:
    values = list(zip(*rows, strict=True)) if rows else [()] * len(columns)
    return pa.table({name: pa.array(v, kind) for (name, kind), v in zip(columns, values, strict=True)})
