"""The newest slice of every file group, by partition, and what commits promise about files: grown from look to look.

A table of many file groups takes seconds to sort into slices, and a commit changes a few of them. `grow` makes the slices
of a state from those of an earlier one and anew only in the partitions that changed: whose folders were listed again
(`table.listing`), or in which a group was replaced or came under a compaction, or is under one no more. In all others the
same files count as before, since the instants that completed meanwhile have no files there.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

from lakesql.format.files import BaseFile, FileSlice, LogFile
from lakesql.format.timeline import Instant
from lakesql.table.promised import Promise, require_files

Group = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What, besides the files, the slices of a table depend on."""

    where: str
    start: str | None  # of the timeline
    instants: frozenset[str]  # completed writes
    replaced: frozenset[Group]
    compacting: Mapping[Group, str]


@dataclass(frozen=True, slots=True)
class Newest:
    """Slices by partition, in the order of the file ids; promises by the folder of the file."""

    under: Circumstances
    slices: Mapping[str, tuple[FileSlice, ...]]
    promises: Mapping[str, tuple[Promise, ...]]

    def flat(self) -> tuple[FileSlice, ...]:
        """All slices by partition and file id."""
        return tuple(chain.from_iterable(self.slices[p] for p in sorted(self.slices)))


@dataclass(frozen=True, slots=True)
class Seed:
    """An earlier state, and the partitions whose folders were listed again since."""

    newest: Newest
    listed: frozenset[str]


def grow(
    under: Circumstances,
    seed: Seed | None,
    files: Iterable[BaseFile | LogFile],
    writes: Iterable[Instant],
    sort: Callable[[list[BaseFile | LogFile]], list[FileSlice]],
    promised_by: Callable[[Iterable[Instant]], Iterable[Promise]],
) -> Newest:
    """The slices and promises of a state; TableError or FormatError for a file that is gone or cut short.

    `writes`: its completed writes; `sort`: the newest slices of some files.
    """
    before = seed.newest if seed is not None and seed.newest.under.start == under.start else None
    known = before.under.instants if before is not None else frozenset()
    if before is not None and not known <= under.instants:
        before, known = None, frozenset()
    promises = _joined(before.promises if before else {}, promised_by(i for i in writes if i.requested not in known))
    slices: dict[str, tuple[FileSlice, ...]] = {}
    chosen = list(files)
    checked: Iterable[Promise] = chain.from_iterable(promises.values())
    if before is not None and seed is not None:
        changed = seed.listed | _changed(before.under, under)
        slices = {p: found for p, found in before.slices.items() if p not in changed}
        chosen = [f for f in chosen if f.partition in changed]
        checked = chain.from_iterable(promises.get(p, ()) for p in changed)
    sorted_ = sort(chosen)
    require_files(under.where, checked, chosen, sorted_, {file_id for _, file_id in under.replaced})
    grouped: dict[str, list[FileSlice]] = {}
    for one in sorted_:
        grouped.setdefault(one.partition, []).append(one)
    slices |= {partition: tuple(found) for partition, found in grouped.items()}
    return Newest(under, slices, promises)


def _changed(before: Circumstances, now: Circumstances) -> set[str]:
    groups = before.replaced ^ now.replaced
    compacting = before.compacting.items() ^ now.compacting.items()
    return {partition for partition, _ in groups} | {partition for (partition, _), _ in compacting}


def _joined(before: Mapping[str, tuple[Promise, ...]], new: Iterable[Promise]) -> dict[str, tuple[Promise, ...]]:
    added: dict[str, list[Promise]] = {}
    for one in new:
        added.setdefault(one.path.rpartition("/")[0], []).append(one)
    return {**before, **{folder: (*before.get(folder, ()), *found) for folder, found in added.items()}}
