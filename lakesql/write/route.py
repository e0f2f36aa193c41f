"""Which file group every row goes to: counts in, a plan out (hudi-format 10.1, 10.7). Pure.

Rows whose key a file slice holds go to that slice: copy-on-write rewrites its base file, merge-on-read appends to its
log. New keys first fill small base files of their partition, then open new groups. Merge-on-read packs only into groups
without logs, by rewriting the base inside the delta commit; the batch's changes to that group are then merged into the
base as well. Groups under a pending compaction or clustering are never packed into.

Where Hudi takes small files in listing order, those that this write rewrites anyway come first here, then the smallest:
the same rows, fewer files touched.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from lakesql.errors import CommitConflict
from lakesql.format.files import FileSlice
from lakesql.write.plan import APPEND, CREATE, NO_CHANGES, REWRITE, Changes, Target


class ClusteringInTheWay(CommitConflict):
    """A pending clustering covers file groups of the write."""

    def __init__(self, text: str, groups: Collection[tuple[str, str]]) -> None:
        super().__init__(text)
        self.groups = groups


@dataclass(frozen=True, slots=True)
class Layout:
    """The table as far as routing depends on it; sizes in bytes."""

    slices: Sequence[FileSlice]
    is_mor: bool
    version: int
    compacting: Mapping[tuple[str, str], str]  # (partition, file id) -> instant of the pending compaction
    clustering: Mapping[tuple[str, str], str]
    where: str  # the table, for messages


@dataclass(frozen=True, slots=True)
class Sizing:
    """How large files become. `record_bytes` is what one row takes in a base file."""

    max_file_bytes: int
    small_file_bytes: int
    small_file_candidates: int
    insert_split_rows: int
    record_bytes: float

    @property
    def rows_per_file(self) -> int:
        return max(1, min(self.insert_split_rows, int(self.max_file_bytes / self.record_bytes)))


def route_rows(
    layout: Layout,
    inserts: Mapping[str, int],
    changes: Mapping[int, Changes],
    sizing: Sizing,
    new_id: Callable[[], str],
    new_groups_only: bool = False,
    rewrites: Collection[int] = (),
) -> tuple[Target, ...]:
    """The files to write, in the order of the slices, new groups last. A slice without files is made with a base file.

    `inserts`: new keys per partition; `changes`: per slice number; `rewrites`: slices whose log must not be appended
    to. CommitConflict when a touched group is under a pending clustering or, in version 6 or when it would be
    rewritten, under a pending compaction.
    """
    refuse_pending(layout, [layout.slices[n].group for n in changes], [layout.slices[n].group for n in rewrites])
    packed: dict[int, tuple[int, int]] = {}
    created: list[Target] = []
    for partition, count in sorted(inserts.items()):
        first = 0
        if not new_groups_only:
            for number, room in _small_files(layout, partition, changes, sizing):
                taken = min(room, count - first)
                if taken <= 0:
                    break
                packed[number] = (first, taken)
                first += taken
        created += _new_groups(partition, first, count, sizing.rows_per_file, new_id)
    changed: list[Target] = []
    for number in sorted({*changes, *packed}):
        one = layout.slices[number]
        first, taken = packed.get(number, (0, 0))
        appends = layout.is_mor and not taken and number not in rewrites
        kind = CREATE if one.base is None and not one.logs else APPEND if appends else REWRITE
        changed.append(Target(kind, one.partition, one.file_id, number, first, taken, changes.get(number, NO_CHANGES)))
    return (*changed, *created)


def _new_groups(partition: str, first: int, count: int, rows_per_file: int, new_id: Callable[[], str]) -> list[Target]:
    """Equal shares, so that the last file is not a crumb."""
    rest = count - first
    if rest <= 0:
        return []
    files = -(-rest // rows_per_file)
    bounds = [first + rest * i // files for i in range(files + 1)]
    return [Target(CREATE, partition, f"{new_id()}-0", None, low, high - low) for low, high in pairwise(bounds)]


def _small_files(
    layout: Layout, partition: str, changes: Mapping[int, Changes], sizing: Sizing
) -> list[tuple[int, int]]:
    """(slice number, rows it can take) of the base files worth filling."""
    found = []
    for number, one in enumerate(layout.slices):
        if one.partition != partition or one.base is None or one.base.size_bytes >= sizing.small_file_bytes:
            continue
        if one.group in layout.compacting or one.group in layout.clustering or (layout.is_mor and one.logs):
            continue
        room = int((sizing.max_file_bytes - one.base.size_bytes) / sizing.record_bytes)
        if room > 0:
            rewritten = number in changes and not layout.is_mor
            found.append((not rewritten, one.base.size_bytes, number, room))
    chosen = sorted(found)[: sizing.small_file_candidates if layout.is_mor else None]
    return [(number, room) for _, _, number, room in chosen]


def refuse_pending(
    layout: Layout, groups: Collection[tuple[str, str]], rewritten: Collection[tuple[str, str]] = ()
) -> None:
    """CommitConflict when one of the groups is part of a pending plan that our write would get in the way of."""
    for group in groups:
        name = "/".join(part for part in group if part)
        if group in layout.clustering:
            raise ClusteringInTheWay(
                f"{layout.where}: file group {name} is part of the pending clustering {layout.clustering[group]}, "
                "which will replace it. Nothing was committed. Run or roll back the clustering, then write again; or set "
                "hoodie.clustering.rollback.pending.replacecommit.on.conflict = true, and writes roll it back.",
                groups,
            )
        if layout.version < 8 and group in layout.compacting:
            raise CommitConflict(
                f"{layout.where}: file group {name} is part of the pending compaction {layout.compacting[group]}; in "
                "table version 6 changes written now could be lost behind it. Nothing was committed. Run the "
                "compaction, then write again."
            )
    for group in rewritten:
        if group in layout.compacting:
            raise CommitConflict(
                f"{layout.where}: file group {'/'.join(part for part in group if part)} must be rewritten, since its "
                "log alone cannot say what the rows become, and it is part of the pending compaction "
                f"{layout.compacting[group]}. Nothing was committed. Run the compaction, then write again."
            )
