"""One look at a table in a bucket: a flat listing tells the state of its properties, its timeline and its data files at once.

The properties are read again when their tag in the listing is not the one that was read last. A store lists by name, so
`.hoodie` comes before nearly every data file and the files of a commit that is seen are seen too, as their puts were done
before. What may be listed before `.hoodie` (log files of a table without partitions, partitions such as `-1`) is listed once
more when the timeline is not the one that was known. Whatever slips through is found missing by `promised`, as any lost file is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from lakesql.errors import FormatError
from lakesql.format.metadata import TableConfig
from lakesql.storage import FileInfo, Storage

HOODIE = ".hoodie"
PROPERTIES = ".hoodie/hoodie.properties"
_LEFT_OUT = (".temp", ".aux", ".index_defs", "metadata", "archived", ".locks")


@dataclass(frozen=True, slots=True)
class Sight:
    """What a look at a bucket saw; `timeline` by file name, `data` with everything that is not below `.hoodie`."""

    config: TableConfig
    timeline: Mapping[str, FileInfo]
    data: Sequence[FileInfo]


def sight(storage: Storage, known: Mapping[str, FileInfo] | None = None, *, data: bool = True) -> Sight | None:
    """A look; None where only reading the properties tells what is wrong. `known`: the timeline that was seen before.

    Without `data` everything outside of `.hoodie` may be missing.
    """
    folder = "" if data else HOODIE
    kept = storage.configured
    if kept is None:
        answers: Sequence[Any] = storage.together(partial(_read, storage), partial(_everything, storage, folder))
        kept, infos = answers
    else:
        infos = _everything(storage, folder)
        told = next((info for info in infos if info.path == PROPERTIES), None)
        if told is None or _bare(told.etag) != kept[0]:
            kept = _read(storage)
    storage.configured = kept
    if kept is None:
        return None
    config = kept[1]
    home = timeline_folder(config)
    timeline = {i.path.rpartition("/")[2]: i for i in infos if i.path.rpartition("/")[0] == home}
    found = [info for info in infos if not info.path.startswith(f"{HOODIE}/")]
    if data and timeline != known and _may_come_early(config, found):
        found = [i for i in storage.listed("", lambda name: name == HOODIE) if not i.path.startswith(f"{HOODIE}/")]
    return Sight(config, timeline, found)


def timeline_folder(config: TableConfig) -> str:
    """Where the instant files of a table lie, relative to its path (hudi-format 2.1)."""
    return HOODIE if config.layout == 1 else f"{HOODIE}/{config.timeline_path}"


def _everything(storage: Storage, folder: str) -> Sequence[FileInfo]:
    return storage.listed(folder, _is_left_out)


def _is_left_out(folder: str) -> bool:
    """Whether no look needs what lies in a folder: the archive, markers, locks, the metadata table."""
    parts = folder.split("/")
    return parts[0] == HOODIE and (
        (len(parts) > 1 and parts[1] in _LEFT_OUT) or (len(parts) > 2 and parts[-1] == "history")
    )


def _may_come_early(config: TableConfig, found: Sequence[FileInfo]) -> bool:
    return (config.is_mor and not config.partition_fields) or any(info.path < f"{HOODIE}/" for info in found)


def _read(storage: Storage) -> tuple[str, TableConfig] | None:
    """The properties with their tag; None when they are missing or damaged."""
    found = storage.tagged(PROPERTIES)
    if found is None:
        return None
    try:
        return _bare(found[1]), TableConfig.from_file(found[0].decode("latin-1"), f"{storage.uri}/{PROPERTIES}")
    except FormatError:
        return None


def _bare(tag: str | None) -> str:
    """Stores put a tag between quotes in one answer and not in another."""
    return (tag or "").strip('"')
