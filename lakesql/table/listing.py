"""`look`: the table as it is now, without listing the folders again in which nothing has changed since the last look.

What one storage object was asked before is remembered with it: the timeline folder as it was listed, and every folder of
data files. The timeline folder and `hoodie.properties` are read at each look, so a look always knows the newest commit. A
folder is listed again when

    its stamp has changed              (`Storage.stamps`; one that is younger than FRESH_NS when it was listed does not count)
    an action has completed since      that names its partition
    files of an uncommitted write      were in it, and the timeline has changed since: the write may have been taken back

Every folder is, when an action completed that does not say where it was at work, when an instant has left the timeline,
while files are being removed (a clean, rollback or restore is pending), and after a plan has found a file missing or cut
short. Any two of these would do on a local disk; stamps alone fail where folders have no true times, the timeline alone does
not see what happens behind its back. A file that is cut short in place is not seen here; reading it fails.

An object store has no folders and no stamps, and tells everything below a prefix at once: there each look lists the whole
table, and is the same state as before when it saw the same. `state.load` lists everything anew: services and repairs, which
are about files nobody counts, use that.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

from lakesql.errors import LakeError
from lakesql.format.files import BaseFile, LogFile, parse_data_file
from lakesql.format.timeline import COMPLETED, WRITE_ACTIONS, Instant, parse_instant_file
from lakesql.storage import FileInfo, Storage
from lakesql.table.sight import HOODIE, sight
from lakesql.table.state import TableState, data_files, head_of, keep_commit, listed_files, load_head, with_files

FRESH_NS = 2_000_000_000
_LATELY_S = 10.0
_REMOVING = ("clean", "rollback", "restore")

DataFile = BaseFile | LogFile


@dataclass(frozen=True, slots=True)
class _Folder:
    stamp: int | None  # None: list it again
    files: tuple[DataFile, ...]
    folders: tuple[str, ...]  # paths relative to the table


@dataclass(frozen=True, slots=True)
class _Known:
    state: TableState
    folders: Mapping[str, _Folder]
    at: float = field(default_factory=time.monotonic)


_NONE = _Folder(None, (), ())


def look(storage: Storage) -> TableState:
    """The table now; the same object as before while nothing has changed. Raises what `state.load` raises."""
    known = storage.looked if isinstance(storage.looked, _Known) else None
    if storage.remote:
        return _look_at_once(storage, known)
    head = load_head(storage)
    same = known is not None and _same_timeline(known.state, head)
    folders = None if known is None or known.state.is_broken else _renewed(storage, known, head, same)
    if folders is not None and known is not None and same and folders is known.folders:
        return known.state
    made = {} if folders is None else dict(folders)

    def files() -> tuple[DataFile, ...]:
        if not made:
            _list(storage, [""], made)
        return tuple(chain.from_iterable(made[name].files for name in sorted(made)))

    def again() -> tuple[DataFile, ...]:
        made.clear()
        return files()

    state = with_files(storage, head, files(), again)
    if folders is not None and known is not None and made:
        state.grown_from(known.state, _differing(known.folders, made))
    if storage.stamps([""])[0]:
        storage.looked = _Known(state, made)
    return state


def _look_at_once(storage: Storage, known: _Known | None) -> TableState:
    before = {} if known is None else {f.path: f for f in known.state.files}
    seen = sight(storage, None if known is None else known.state.instant_files)

    def files() -> tuple[DataFile, ...]:
        return tuple(listed_files(storage, before))

    if seen is None:
        state = with_files(storage, load_head(storage), files(), files)
    else:
        head = head_of(storage, seen.config, seen.timeline)
        state = with_files(storage, head, tuple(data_files(seen.data, before)), files)
    made = _by_folder(state.files)
    if known is not None and not known.state.is_broken:
        differing = [
            n
            for n in known.folders.keys() | made.keys()
            if known.folders.get(n, _NONE).files != made.get(n, _NONE).files
        ]
        if not differing and _same_timeline(known.state, state):
            storage.looked = replace(known, at=time.monotonic())
            return known.state
        if known.state.config == state.config:
            state.grown_from(known.state, differing)
    storage.looked = _Known(state, made)
    return state


def known_state(storage: Storage) -> TableState | None:
    """A table in a bucket as it was seen a moment ago, for questions that are answered again before anything is done.

    None where it was not seen lately, and on a local disk, where a look costs nothing.
    """
    known = storage.looked
    if not storage.remote or not isinstance(known, _Known) or time.monotonic() - known.at > _LATELY_S:
        return None
    return known.state


def newest_head(storage: Storage) -> TableState:
    """Properties and timeline right after a write of ours, which has seen them."""
    return known_state(storage) or load_head(storage)


def note_commit(state: TableState, named: Mapping[str, FileInfo], path: str, body: bytes) -> None:
    """A commit of ours is at `path`: `named` are the other files of the timeline. For a bucket this saves asking again."""
    storage = state.storage
    tag = storage.tag_of_written(path)
    if tag is None:
        return
    name = path.rpartition("/")[2]
    files = {**named, name: FileInfo(path, len(body), time.time_ns() // 1_000_000, etag=tag)}
    head = head_of(storage, state.config, files)
    keep_commit(head, name, body)
    written = head.commit(next(i for i in head.timeline.instants if i.file_name == name)).partition_stats
    sizes = {s.path: s.file_size_in_bytes or 0 for stats in written.values() for s in stats if s.path}
    added = data_files(FileInfo(p, size, 0) for p, size in sizes.items())
    every = tuple({f.path: f for f in (*state.files, *added)}.values())
    storage.looked = _Known(replace(head, files=every), _by_folder(every))


def _by_folder(files: Iterable[DataFile]) -> dict[str, _Folder]:
    found: dict[str, list[DataFile]] = {}
    for file in files:
        found.setdefault(file.partition, []).append(file)
    return {name: _Folder(None, tuple(group), ()) for name, group in found.items()}


def _differing(before: Mapping[str, _Folder], now: Mapping[str, _Folder]) -> Iterable[str]:
    return [name for name in before.keys() | now.keys() if before.get(name) is not now.get(name)]


def _same_timeline(before: TableState, now: TableState) -> bool:
    return before.config == now.config and before.instant_files == now.instant_files


def _renewed(storage: Storage, known: _Known, head: TableState, same: bool) -> Mapping[str, _Folder] | None:
    """The folders as they are now, the very same object when all are as they were; None when all have to be listed."""
    if head.timeline.pending(*_REMOVING) or known.state.config != head.config:
        return None
    touched: set[str] = set()
    if not same:
        named = _touched(known.state, head)
        if named is None:
            return None
        touched = named | _unsettled(known)
    names = list(known.folders)
    stamps = storage.stamps(names)
    stale = [n for n, now in zip(names, stamps, strict=True) if now is None or now != known.folders[n].stamp]
    stale += [n for n in touched if n not in known.folders or n not in set(stale)]
    if not stale:
        return known.folders
    made = dict(known.folders)
    _list(storage, stale, made)
    return made


def _touched(before: TableState, now: TableState) -> set[str] | None:
    """The partitions in which the actions that completed since were at work; None when that is not known."""
    named = {i.file_name: i for i in now.timeline.instants}
    for name in before.instant_files.keys() - now.instant_files.keys():
        parsed = parse_instant_file(name, now.config.layout)
        if parsed is not None and parsed[3] == COMPLETED:
            return None
    found: set[str] = set()
    for name, info in now.instant_files.items():
        if before.instant_files.get(name) == info or name not in named or not named[name].is_completed:
            continue
        partitions = _partitions(now, named[name])
        if partitions is None:
            return None
        found.update(partitions)
    return found


def _partitions(state: TableState, instant: Instant) -> Iterable[str] | None:
    try:
        if instant.completed_action in WRITE_ACTIONS:
            metadata = state.commit(instant)
            known = metadata.operation is not None or metadata.partition_stats
            return {*metadata.partition_stats, *metadata.replaced} if known else None
        if instant.action in ("clean", "rollback"):
            return list(state.record(instant)["partitionMetadata"])
    except (LakeError, KeyError, TypeError):
        return None
    return () if instant.action == "savepoint" else None


def _unsettled(known: _Known) -> set[str]:
    """The folders with files that did not count."""
    committed = known.state.timeline.is_committed
    counts: dict[str, bool] = {}
    for file in known.state.files:
        counts.setdefault(file.instant, committed(file.instant))
    if all(counts.values()):
        return set()
    return {name for name, folder in known.folders.items() if not all(counts[f.instant] for f in folder.files)}


def _list(storage: Storage, names: Iterable[str], made: dict[str, _Folder]) -> None:
    """List these folders, and those below that are not in `made`."""
    waiting = list(names)
    while waiting:
        stamps = storage.stamps(waiting)
        below: list[str] = []
        for name, stamp in zip(waiting, stamps, strict=True):
            listed = time.time_ns()
            found, folders = storage.list(name)
            if name and stamp is None and not found and not folders:  # it is not there any more
                _drop(name, made)
                continue
            inner = tuple(f"{name}/{f}" if name else f for f in folders if name or f != HOODIE)
            before = made.get(name)
            for gone in set(before.folders if before else ()) - set(inner):
                _drop(gone, made)
            trusted = stamp if stamp is not None and stamp < listed - FRESH_NS else None
            made[name] = _Folder(trusted, _data_files(name, found), inner)
            below += [f for f in inner if f not in made]
        waiting = below


def _drop(name: str, made: dict[str, _Folder]) -> None:
    gone = made.pop(name, None)
    for below in gone.folders if gone else ():
        _drop(below, made)


def _data_files(partition: str, infos: Iterable[FileInfo]) -> tuple[DataFile, ...]:
    parsed = (parse_data_file(partition, i.path.rpartition("/")[2], i.size_bytes) for i in infos)
    return tuple(file for file in parsed if file is not None)
