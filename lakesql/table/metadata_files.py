"""What a metadata table says about the files of its data table: its `files` partition, merged (hudi-format 11.1 to 11.4).

Base file and log blocks are HFiles, one record per partition of the data table. Blocks count when the data table has
completed their instant, as for every reader of Hudi. lakesql lists folders for its own reads and asks this only to show
and to compare. Not here: the other partitions of a metadata table.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from lakesql.errors import FileGone, FormatError, TableError, Unsupported
from lakesql.format import log
from lakesql.format.avro import decode_records
from lakesql.format.files import BaseFile, LogFile, all_slices, parse_data_file
from lakesql.format.hfile import HFile, of_bytes, open_hfile
from lakesql.format.timeline import Timeline
from lakesql.table.state import TableState

FOLDER = ".hoodie/metadata"
_FILES = f"{FOLDER}/files"
_ALL = "__all_partitions__"
_ROOT = "."
_BOOTSTRAP = "0000"
_COLUMN = "filesystemMetadata"
_FACTS = pa.struct([pa.field("size", pa.int64(), nullable=False), pa.field("isDeleted", pa.bool_(), nullable=False)])
_SIZES = pa.map_(pa.string(), pa.field("value", _FACTS, nullable=False))


def known_files(state: TableState) -> dict[str, dict[str, int]]:
    """Partition path -> file name -> size, as the metadata table has it. TableError when there is none, or no `files`."""
    records = _merged(state)
    partitions = records.pop(_ALL, {})
    names = {_path(key) for key in (*partitions, *records)}
    return {name: records.get(name or _ROOT, {}) for name in sorted(names)}


def _path(key: str) -> str:
    return "" if key == _ROOT else key


def _merged(state: TableState) -> dict[str, dict[str, int]]:
    """Record key -> file (or partition) -> size of the live entries."""
    found: dict[str, dict[str, int]] = {}
    for key, entries in _records(state):
        held = found.setdefault(key, {})
        for name, one in entries:
            if one["isDeleted"]:
                held.pop(name, None)
            else:
                held[name] = max(held.get(name, 0), one["size"])
    return found


def _records(state: TableState) -> Iterator[tuple[str, list[tuple[str, Mapping[str, Any]]]]]:
    """The records of the newest slice, oldest first."""
    files = [
        parsed
        for info in state.storage.list(_FILES)[0]
        if (parsed := parse_data_file("files", info.path.rsplit("/", 1)[-1], info.size_bytes)) is not None
    ]
    if not files:
        raise TableError(
            f"{state.path}: there is no metadata table that knows the files. Spark builds one at its next write; FROM "
            "hudi_files(t) lists the files themselves."
        )
    timeline = f"{FOLDER}/{state.timeline_folder}"
    names = [info.path.rsplit("/", 1)[-1] for info in state.storage.list(timeline)[0]]
    theirs = Timeline.from_file_names(names, state.config.layout)
    bases: list[BaseFile] = []
    logs: list[LogFile] = []
    for piece in all_slices(files, theirs, version=state.config.version):  # newest first
        logs[:0] = piece.logs
        if piece.base is not None:
            bases.append(piece.base)
            break
    for base in bases:
        path = f"{FOLDER}/{base.path}"
        file = open_hfile(_reader(state, path), base.size_bytes, f"{state.path}/{path}")
        yield from _decoded(file, file.info.get("schema", b"").decode(errors="replace"))
    for one in logs:
        yield from _logged(state, f"{FOLDER}/{one.path}")


def _reader(state: TableState, path: str) -> Any:
    return lambda first, count: _bytes(state, path, first, count)


def _bytes(state: TableState, path: str, first: int = 0, count: int | None = None) -> bytes:
    try:
        return state.storage.read(path, first, count)
    except FileNotFoundError as error:
        raise FileGone(
            f"{state.path}/{path}: the file is gone; Spark cleaned its metadata table meanwhile. Run it again."
        ) from error


def _logged(state: TableState, path: str) -> Iterator[tuple[str, list[tuple[str, Mapping[str, Any]]]]]:
    where = f"{state.path}/{path}"
    blocks: list[log.Block] = []
    for block in log.scan_blocks(_bytes(state, path), where):
        if block.kind == log.COMMAND:
            target = block.headers.get(log.TARGET_INSTANT_TIME)
            blocks = [b for b in blocks if b.headers.get(log.INSTANT_TIME) != target]
        elif block.kind == log.HFILE and _counts(state, block.headers.get(log.INSTANT_TIME, "")):
            blocks.append(block)
    for block in blocks:
        yield from _decoded(of_bytes(block.content, where), block.headers.get(log.SCHEMA, ""))


def _counts(state: TableState, instant: str) -> bool:
    """Whether the data table has completed the instant. Services of a metadata table add three digits (version 6)."""
    time = instant[:17]
    timeline = state.timeline
    if time.startswith(_BOOTSTRAP) or any(i.is_completed and i.requested == time for i in timeline.instants):
        return True
    listed = any(i.requested == time for i in timeline.instants)
    return not listed and timeline.start is not None and time < timeline.start


def _decoded(file: HFile, schema: str) -> Iterator[tuple[str, list[tuple[str, Mapping[str, Any]]]]]:
    keys, values = _columns(file.scan())
    if not keys:
        return
    data = b"".join(struct.pack(">i", len(v)) + v for v in values)
    try:
        rows = decode_records(data, len(values), log.schema_of(schema), [_COLUMN])
    except (FormatError, Unsupported) as error:
        raise type(error)(f"{file.where}: {error}") from None
    if rows.schema.names != [_COLUMN] or rows.schema.field(_COLUMN).type != _SIZES:
        raise FormatError(
            f"{file.where}: its records have no column {_COLUMN} of type {_SIZES}, found {rows.schema.types}. The file is "
            "damaged, or a newer Hudi release wrote it. Spark builds the metadata table anew once it is deleted."
        )
    for key, entries in zip(keys, rows[_COLUMN].to_pylist(), strict=True):
        yield key, entries or []


def _columns(pairs: Iterable[tuple[str, bytes]]) -> tuple[list[str], list[bytes]]:
    both = list(pairs)
    return [key for key, _ in both], [value for _, value in both]
