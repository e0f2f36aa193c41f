"""Conservation: what must hold of every file of a write before the commit makes it visible.

    rewrite    rows before + inserted - deleted = rows after
    create     rows inserted = rows after
    append     updated and inserted rows are records, deleted ones are delete records
    base       a new record key comes to a file once, and is none of those that change there (operations that look
               keys up; the others may repeat keys, as Hudi's insert does)

All numbers are known to the writer: the plan says what was to happen, the footers of the old and the new file what did.
A violation is a fault of this program or of a file that changed under it; the caller abandons the commit, so that
nothing is lost.
"""

from collections.abc import Sequence
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakesql.counted import counted
from lakesql.errors import TableError
from lakesql.write.plan import Target


def require_rows(where: str, target: Target, rows_before: int, rows_after: int) -> None:
    """TableError unless the rows of a base file are those it had, with what was planned."""
    inserted = target.inserts + target.changes.revived
    expected = rows_before + inserted - target.changes.deletes
    if rows_after != expected:
        _abandon(
            where,
            target,
            f"the new base file has {counted(rows_after, 'row')}, expected are {expected} ({rows_before} before, {inserted} "
            f"inserted, {target.changes.deletes} deleted)",
        )


def require_records(where: str, target: Target, records: int, deletes: int) -> None:
    """TableError unless a log file holds what was planned."""
    expected = target.inserts + target.changes.revived + target.changes.updates
    if (records, deletes) != (expected, target.changes.deletes):
        _abandon(
            where,
            target,
            f"the log file has {records} records and {deletes} deletes, expected are {expected} and "
            f"{target.changes.deletes}",
        )


def require_unique(where: str, target: Target, new: Sequence[pa.Table], changed: Sequence[pa.Table]) -> None:
    """TableError when a new record key comes twice, or is one of the keys that change in the same file.

    Tables of two columns: key VARCHAR, hash UBIGINT. Hashes are compared (30 ns per key), keys only where hashes agree.
    """
    if not new:
        return
    keys = pa.concat_tables(new)
    hashes = np.sort(keys.column(1).to_numpy())
    if (hashes[1:] == hashes[:-1]).any():
        counts = pc.value_counts(keys.column(0))
        twice = counts.filter(pc.greater(counts.field("counts"), 1)).field("values")
        if len(twice):
            _abandon(where, target, f"new record keys come twice: {_some(twice)}")
    others = pa.concat_tables(changed) if changed else None
    if others is not None and len(others) and np.isin(others.column(1).to_numpy(), hashes).any():
        both = keys.column(0).filter(pc.is_in(keys.column(0), others.column(0).combine_chunks()))
        if len(both):
            _abandon(where, target, f"record keys are new and changed at once: {_some(both)}")


def _some(keys: pa.Array | pa.ChunkedArray) -> str:
    return ", ".join(map(str, keys.slice(0, 10).to_pylist()))


def _abandon(where: str, target: Target, what: str) -> NoReturn:
    group = f"{target.partition}/{target.file_id}" if target.partition else target.file_id
    raise TableError(
        f"{where}: file group {group}: {what}. The commit was abandoned and its files were removed; the table is as it "
        "was. Run the statement again; if it fails again, report it with this text."
    )
