"""What a planned write would do to the files of a table, one value per file group: for EXPLAIN. Pure.

Bytes to read are those of the base file that a rewrite copies from; an append reads none (to find the rows, key columns
are scanned in any case). Bytes to write are an estimate from the size of the old file and of a row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakesql.format.files import FileSlice
from lakesql.write.plan import APPEND, CREATE, Target

REPLACE = "replace"
_TOMBSTONE_BYTES = 64
"""A delete record: key, partition path, ordering value, its share of the block."""


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """One file group of a write. `file_id` is None for a new group, whose id is drawn when it is written."""

    partition: str
    file_id: str | None
    kind: str  # create, rewrite, append; replace: the group goes, its rows are not counted
    rows_inserted: int
    rows_updated: int
    rows_deleted: int
    bytes_read: int
    bytes_written: int


def planned_files(
    slices: Sequence[FileSlice], targets: Sequence[Target], replaced: Mapping[str, Sequence[str]], record_bytes: float
) -> tuple[PlannedFile, ...]:
    """The file groups to write, in the order of the plan, then those that a replacecommit takes out."""
    planned = [_of_target(t, slices[t.slice_no] if t.slice_no is not None else None, record_bytes) for t in targets]
    gone = [
        PlannedFile(partition, file_id, REPLACE, 0, 0, 0, 0, 0)
        for partition, ids in sorted(replaced.items())
        for file_id in ids
    ]
    return (*planned, *gone)


def _of_target(target: Target, file_slice: FileSlice | None, record_bytes: float) -> PlannedFile:
    changes = target.changes
    inserted = target.inserts + changes.revived
    base = file_slice.base if file_slice is not None else None
    old = base.size_bytes if base is not None and target.kind != APPEND else 0
    if target.kind == APPEND:
        written = (inserted + changes.updates) * record_bytes + changes.deletes * _TOMBSTONE_BYTES
    else:
        written = old + (inserted - changes.deletes) * record_bytes
    return PlannedFile(
        target.partition,
        None if target.kind == CREATE else target.file_id,
        target.kind,
        inserted,
        changes.updates,
        changes.deletes,
        old,
        max(0, int(written)),
    )
