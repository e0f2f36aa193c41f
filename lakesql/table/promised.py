"""What completed commits promise about files, and whether the files keep it.

No manifest lists the files of a table, so a file that is lost or cut short shows only by the write stats of the
commits (hudi-format 2.7). A log file may have grown by the appends of several commits (version 6); each stat covers the
bytes `[log_offset, log_offset + file_size_in_bytes)`, and what lies outside of all of them promises nothing.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from lakesql.errors import FormatError, TableError
from lakesql.format.files import BaseFile, FileSlice, LogFile, parse_data_file
from lakesql.format.metadata import WriteStat


@dataclass(frozen=True, slots=True)
class Promise:
    """One commit's word for one file: that bytes [first, end) of it are there.

    instant   requested time of the commit
    written   its completion time, '' where the table does not store completion times
    """

    instant: str
    written: str
    path: str
    file_id: str
    first: int
    end: int


def promise(instant: str, written: str, stat: WriteStat) -> Promise:
    """The promise in a write stat."""
    size_bytes = stat.file_size_in_bytes or 0
    first = max(stat.log_offset or 0, 0) if size_bytes else 0
    return Promise(instant, written, stat.path or "", stat.file_id or "", first, first + size_bytes)


def require_files(
    where: str,
    promises: Iterable[Promise],
    files: Iterable[BaseFile | LogFile],
    slices: Sequence[FileSlice],
    replaced: Collection[str],
) -> None:
    """Compare the files of a table with what was promised; `replaced` are file ids that no longer count.

    TableError for a file that is gone though nothing newer stands in for it, FormatError for a file of `slices` that
    is shorter than promised.
    """
    present = {f.name for f in files}
    sizes = {f.path: f.size_bytes for s in slices for f in (s.base, *s.logs) if f is not None}
    newest = {s.file_id: s.base.instant for s in slices if s.base is not None}
    for one in promises:
        file = parse_data_file("", one.path.rsplit("/", 1)[-1], 0)
        if file is None:
            continue
        if file.name in present:
            if sizes.get(one.path, one.end) < one.end:
                raise FormatError(
                    f"{where}/{one.path}: commit {one.instant} left this file with {one.end} bytes, it has "
                    f"{sizes[one.path]}; rows would be missing. Restore the file, or roll the commit back."
                )
        elif one.file_id not in replaced and _is_needed(one, file, newest.get(one.file_id, "")):
            raise TableError(
                f"{where}/{one.path}: commit {one.instant} names this file, and it is not there; "
                "its rows would be missing. Restore the file, or roll the commit back."
            )


def _is_needed(one: Promise, file: BaseFile | LogFile, since: str) -> bool:
    """Whether no newer base file, of instant `since`, holds the rows of a file that is gone."""
    if isinstance(file, BaseFile):
        return file.instant > since
    return (one.written or file.instant) >= since


def require_unpromised(
    where: str, promises: Mapping[str, Sequence[Promise]], file: LogFile, first: int, end: int, owner: str | None = None
) -> None:
    """FormatError when bytes [first, end) of a log file, which hold no block that counts, were promised.

    `promises` by path. `owner`: the completed commit that all bytes of the file belong to when it has no promise for
    any file (its stats are not known).
    """
    found = [p for p in promises.get(file.path, ()) if first < p.end and end > p.first]
    if found:
        owner = found[0].instant
    elif owner is not None and any(p.instant == owner for group in promises.values() for p in group):
        return
    if owner is not None:
        raise FormatError(
            f"{where}/{file.path}: bytes {first} to {end} of {file.size_bytes} should be a log block of commit {owner}, "
            "and are none; rows would be missing. Restore the file, or roll the commit back."
        )
