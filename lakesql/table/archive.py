"""The archived timeline: completed instants that have left the active one.

Version 6 keeps them as log files full of Avro records, one record per state file of an instant (hudi-format 2.9);
from version 8 on they lie in Parquet files, one row per instant, named by a manifest (2.10). A snapshot needs none
of it; time ranges older than the active timeline, and completion times of old log files, do. What a file holds is
cached by the identity of the file, because archive files never change. Commit metadata is decoded when asked for.
Not here: writing an archive, which readers do not need.
"""

import io
import json
import re
import struct
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

from lakesql.errors import FileGone, FormatError
from lakesql.format.log import AVRO, SCHEMA, scan_blocks
from lakesql.format.metadata import CommitMetadata, TableConfig, commit_from_record, decode_commit, decode_record
from lakesql.format.timeline import (
    ACTIONS,
    COMPLETED,
    REQUESTED,
    STATES,
    WRITE_ACTIONS,
    Instant,
    Timeline,
    instant_file_name,
)
from lakesql.storage import FileInfo, Storage

_LOG_FILE = re.compile(r"\.commits_\.archive\.(\d+)(?:_\d+-\d+-\d+)?", re.ASCII)
_MANIFEST = re.compile(r"manifest_(\d+)", re.ASCII)
_COLUMNS = ["instantTime", "completionTime", "action", "metadata", "plan"]
_OTHERS = {
    "clean": "hoodieCleanMetadata",
    "rollback": "hoodieRollbackMetadata",
    "savepoint": "hoodieSavePointMetadata",
    "indexing": "hoodieIndexCommitMetadata",
}
"""Where an archived entry of version 6 keeps the record of an action that is no write."""
_PLANNED = {"commit": "compaction", "deltacommit": "logcompaction"}
_CACHED_FILES_MAX = 256

_cache: OrderedDict[tuple[str, str, int, int | str], "list[Archived]"] = OrderedDict()
_cache_guard = threading.Lock()


@dataclass(frozen=True)
class Archived:
    """A completed instant of the archive and, for a write, what it wrote."""

    instant: Instant
    body: bytes | CommitMetadata | None
    """The bytes of the completed file (version 8 on), its content (version 6), or None for other actions."""
    where: str
    other: bytes | dict[str, Any] | None = None
    """The same for actions that are no writes."""
    planned: bytes | dict[str, Any] | None = None
    """The plan of a clean, in the same form."""

    @cached_property
    def metadata(self) -> CommitMetadata | None:
        """Commit metadata of a commit, deltacommit or replacecommit; None for other actions."""
        return decode_commit(self.body, self.where) if isinstance(self.body, bytes) else self.body

    @cached_property
    def record(self) -> dict[str, Any] | None:
        """The record of an action that is no write, None for writes and when none was kept."""
        return decode_record(self.other, self.where) if isinstance(self.other, bytes) else self.other

    @cached_property
    def plan(self) -> dict[str, Any] | None:
        """The plan of a clean, None when none was kept."""
        return decode_record(self.planned, self.where) if isinstance(self.planned, bytes) else self.planned


def read_archived(storage: Storage, config: TableConfig) -> list[Archived]:
    """All archived instants by requested time; empty when nothing was archived. FormatError for damaged files."""
    if config.layout == 1:
        files = [info for info in storage.list(config.history_folder)[0] if _LOG_FILE.fullmatch(_name(info))]
        found = [entry for info in files for entry in _load(storage, info, _read_log)]
    else:
        found = _read_tree(storage, config)
    # A merge of archive files may leave an instant in two of them. A savepoint has the time of the instant it saves.
    unique = {(one.instant.requested, one.instant.completed_action): one for one in found}
    return sorted(unique.values(), key=lambda one: (one.instant.requested, one.instant.action != "savepoint"))


def _read_tree(storage: Storage, config: TableConfig) -> list[Archived]:
    folder = config.history_folder
    # Files of an older manifest may be merged away between reading the manifest and reading them.
    for _ in range(2):
        infos = {_name(info): info for info in storage.list(folder)[0]}
        names = [f["fileName"] for f in manifest(storage, folder, infos)[1]]
        if all(name in infos for name in names):
            return [entry for name in names for entry in _load(storage, infos[name], _read_parquet)]
    missing = next(name for name in names if name not in infos)
    raise FileGone(
        f"{storage.uri}/{folder}: the manifest names {missing}, which is not there. "
        "Run the statement again; if it stays away, restore the file."
    )


def manifest(storage: Storage, folder: str, infos: Mapping[str, FileInfo]) -> tuple[int, list[dict[str, Any]]]:
    """Number and files (fileName, fileLen) of the current manifest; (0, []) when there is none. `infos`: the listing."""
    manifests = [int(match[1]) for name in infos if (match := _MANIFEST.fullmatch(name))]
    if not manifests:
        return 0, []
    number: int | str = max(manifests)
    if "_version_" in infos:
        text = storage.read(f"{folder}/_version_").decode("ascii", "replace").strip()
        number = int(text) if text.isdecimal() else text or number
    path = f"{folder}/manifest_{number}"
    try:
        found = json.loads(storage.read(path))["files"]
        return int(number), [{"fileName": str(f["fileName"]), "fileLen": f.get("fileLen")} for f in found]
    except FileNotFoundError:
        found = f"_version_ says {number}, but there is no {path}"
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        found = f"{path} is no manifest ({error})"
    raise FormatError(f"{storage.uri}/{folder}: {found}. Restore the file, or point _version_ to the newest manifest.")


def _load(storage: Storage, info: FileInfo, read: "Callable[[bytes, str], list[Archived]]") -> list[Archived]:
    key = (storage.uri, info.path, info.size_bytes, info.etag or info.modified_ms)
    with _cache_guard:
        if key in _cache:
            _cache.move_to_end(key)
            return _cache[key]
    entries = read(storage.read(info.path), f"{storage.uri}/{info.path}")
    with _cache_guard:
        _cache[key] = entries
        while len(_cache) > _CACHED_FILES_MAX:
            _cache.popitem(last=False)
    return entries


def _read_parquet(data: bytes, where: str) -> list[Archived]:
    """One row per instant (hudi-format 2.10)."""
    try:
        rows = pq.read_table(pa.BufferReader(data), columns=_COLUMNS)
    except (pa.ArrowException, OSError) as error:
        raise FormatError(f"{where}: no readable archived timeline ({error}). Restore the file.") from error
    return [_archived_row(row, where) for row in rows.to_pylist()]


def _archived_row(row: dict[str, Any], where: str) -> Archived:
    requested, word = row["instantTime"], row["action"]
    if not requested or not word:
        raise FormatError(f"{where}: a row without instantTime or action. Restore the file.")
    completed = row["completionTime"] or requested
    place = f"{where} (instant {requested})"
    body = (row["metadata"] or b"") if word in WRITE_ACTIONS else None
    action = _PLANNED.get(word, word) if row["plan"] else word
    if word == "replacecommit" and body is not None and decode_commit(body, place).operation == "CLUSTER":
        action = "clustering"
    name = instant_file_name(requested, action, COMPLETED, 2, completed)
    other = row["metadata"] or None if body is None else None
    planned = row["plan"] or None if word == "clean" else None
    return Archived(Instant(requested, action, COMPLETED, completed, name), body, place, other, planned)


def _read_log(data: bytes, where: str) -> list[Archived]:
    """One record per state file (hudi-format 2.9)."""
    states: dict[str, dict[str, Any]] = {}
    for record in _log_records(data, where):
        requested, word = record.get("commitTime"), record.get("actionType")
        state = record.get("actionState") or COMPLETED
        if not requested or word not in ACTIONS or state not in STATES or (word, state) == ("savepoint", REQUESTED):
            raise FormatError(f"{where}: no state of an instant: {requested} {word} {state}. Restore the file.")
        states[instant_file_name(requested, word, state, 1)] = record
    entries = []
    for instant in Timeline.from_file_names(states, 1).instants:
        if instant.is_completed:
            place = f"{where} (instant {instant.requested})"
            record = states[instant.file_name]
            other = (
                record.get(_OTHERS.get(instant.action, "")) if instant.completed_action not in WRITE_ACTIONS else None
            )
            asked = states.get(instant_file_name(instant.requested, "clean", REQUESTED, 1), {})
            planned = asked.get("hoodieCleanerPlan") if instant.action == "clean" else None
            entries.append(Archived(instant, _archived_commit(instant, record, place), place, other, planned))
    return entries


def _archived_commit(instant: Instant, record: dict[str, Any], where: str) -> CommitMetadata | None:
    if instant.completed_action not in WRITE_ACTIONS:
        return None
    found = record.get("hoodieReplaceCommitMetadata") or record.get("hoodieCommitMetadata")
    return commit_from_record(found, where) if found else None


def _log_records(data: bytes, where: str) -> list[dict[str, Any]]:
    """The records of all Avro blocks; an archive's blocks carry a schema and no instant."""
    records: list[dict[str, Any]] = []
    for block in scan_blocks(data, where):
        if block.kind != AVRO:
            raise FormatError(f"{where}: block of kind {block.kind} at offset {block.offset}. Restore the file.")
        try:
            schema = fastavro.parse_schema(json.loads(block.headers[SCHEMA]))
            content = bytes(block.content)
            _, count = struct.unpack_from(">ii", content)
            position = 8
            for _ in range(count):
                (size,) = struct.unpack_from(">i", content, position)
                datum = io.BytesIO(content[position + 4 : position + 4 + size])
                records.append(fastavro.schemaless_reader(datum, schema, None))  # type: ignore[arg-type]
                position += 4 + size
        except (EOFError, ValueError, IndexError, KeyError, TypeError, OverflowError, struct.error) as error:
            raise FormatError(
                f"{where}: block at offset {block.offset} is damaged ({error}). Restore the file."
            ) from error
    return records


def _name(info: FileInfo) -> str:
    return info.path.rpartition("/")[2]
