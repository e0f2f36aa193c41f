"""Procedures about files as they lie on storage: disk usage, where a file came from or went, damaged Parquet files.

`show_fs_path_detail` puts the bytes into `space_consumed`; Hudi swaps that column with `quota`, of which a file system
without quotas has none (-1).
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakesql.errors import TableError
from lakesql.format.files import BaseFile
from lakesql.format.timeline import Instant
from lakesql.procedures.declare import FILTER, REQUIRED, Call, Parameter, Rows, columns
from lakesql.procedures.shape import chosen, limit, matches, showing
from lakesql.storage import FileInfo, Storage, open_storage
from lakesql.table.state import TableState, load
from lakesql.write.retry import locked

_UNITS = ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB"))
_REMOVERS = ("clean", "rollback", "restore")


def _path_detail(call: Call) -> Rows:
    storage = open_storage(call["path"])
    files, folders = storage.list("")
    if not files and not folders:
        raise TableError(f"{storage.uri}: there is no such folder, or it is empty. Correct the path.")
    if call["is_sub"]:
        rows = [_usage(storage, name) for name in folders] + [_file_usage(storage, info) for info in files]
    else:
        rows = [_usage(storage, "")]
    key = "storage_size" if call["sort"] else "file_num"
    return sorted(rows, key=lambda row: (-row[key], row["storage_path"]))


def _usage(storage: Storage, folder: str) -> dict[str, Any]:
    folders = list(_folders(storage, folder))
    found = [info for name in folders for info in storage.list(name)[0]]
    size = sum(info.size_bytes for info in found)
    return _detail(len(folders), len(found), size, f"{storage.uri}/{folder}".rstrip("/"))


def _folders(storage: Storage, folder: str) -> Iterator[str]:
    """The folder itself and all below it."""
    yield folder
    for name in storage.list(folder)[1]:
        yield from _folders(storage, f"{folder}/{name}" if folder else name)


def _file_usage(storage: Storage, info: FileInfo) -> dict[str, Any]:
    return _detail(0, 1, info.size_bytes, f"{storage.uri}/{info.path}")


def _detail(folders: int, files: int, size: int, path: str) -> dict[str, Any]:
    unit = next((f"{size / bytes_:.2f}{name}" for bytes_, name in _UNITS if size >= bytes_), f"{size}B")
    return {
        "path_num": folders,
        "file_num": files,
        "storage_size": size,
        "storage_size(unit)": unit,
        "storage_path": path,
        "space_consumed": size,
        "quota": -1,
        "space_quota": -1,
    }


def _file_status(call: Call) -> Rows:
    state = call.state()
    partition, name = call["partition"], call["file"].rsplit("/", 1)[-1]
    there = [f for f in state.files if f.name == name and partition in (None, f.partition)]
    if there:
        writer = _writer_of(state, name)
        yield {
            "status": "exist",
            "action": writer.completed_action if writer else "",
            "instant": writer.requested if writer else "",
            "timeline": "active"
            if writer and writer.file_name in state.instant_files
            else "archived"
            if writer
            else "",
            "full_path": f"{state.path}/{there[0].path}",
        }
        return
    gone, timeline = _remover_of(state, name)
    yield {
        "status": "deleted" if gone else "unknown",
        "action": gone.action if gone else "",
        "instant": gone.requested if gone else "",
        "timeline": timeline,
        "full_path": "",
    }


def _writer_of(state: TableState, name: str) -> Instant | None:
    """The first completed write whose stats name the file."""
    archived = (a.instant for a in state.archived.values() if a.metadata is not None)
    for instant in (*archived, *sorted(state.timeline.completed_writes(), key=lambda i: i.requested)):
        for stats in state.commit(instant).partition_stats.values():
            if any((s.path or "").rsplit("/", 1)[-1] == name or name in (s.log_files or ()) for s in stats):
                return instant
    return None


def _remover_of(state: TableState, name: str) -> tuple[Instant | None, str]:
    """The newest clean, rollback or restore that says it deleted the file, and which timeline it is on."""
    done = [i for i in state.timeline.instants if i.is_completed and i.action in _REMOVERS]
    for instant in sorted(done, key=lambda i: i.requested, reverse=True):
        if state.instant_files[instant.file_name].size_bytes and _removed(state.plan(instant, instant.file_name), name):
            return instant, "active"
    archived = [a for a in state.archived_others if a.instant.action in _REMOVERS and a.record is not None]
    for one in sorted(archived, key=lambda a: a.instant.requested, reverse=True):
        if _removed(one.record or {}, name):
            return one.instant, "archived"
    return None, ""


def _removed(record: Mapping[str, Any], name: str) -> bool:
    nested = record.get("hoodieRestoreMetadata") or {}
    records = [record, *(one for group in nested.values() for one in group or ())]
    return any(name == path.rsplit("/", 1)[-1] for one in records for path in _deleted(one))


def _deleted(record: Mapping[str, Any]) -> Iterator[str]:
    for part in (record.get("partitionMetadata") or {}).values():
        yield from part.get("successDeleteFiles") or ()


def _invalid_parquet(call: Call) -> Rows:
    state = call.state()
    torn = _torn(state, chosen(call["partitions"]), chosen(call["instants"]))
    if call["needDelete"] and torn:
        _delete(call, torn)
    return [{"path": f"{state.path}/{file.path}"} for file in torn]


def _torn(state: TableState, partitions: list[str], instants: list[str]) -> list[BaseFile]:
    bases = [f for f in state.files if isinstance(f, BaseFile) and f.name.endswith(".parquet")]
    return [
        file
        for file in sorted(bases, key=lambda f: f.path)
        if (not partitions or any(matches(file.partition, p) for p in partitions))
        and (not instants or file.instant in instants)
        and broken(state, file) is not None
    ]


def broken(state: TableState, file: BaseFile) -> str | None:
    """Why the footer of a base file cannot be read; None when it can."""
    try:
        pq.read_metadata(state.storage.source(file.path))
    except (pa.ArrowException, OSError) as error:
        return str(error).splitlines()[0]
    return None


def _delete(call: Call, torn: list[BaseFile]) -> None:
    """Delete damaged files that no reader needs. TableError, before any is deleted, when a commit counts on one."""
    with locked(call.storage, call.settings):
        state = load(call.storage)
        needed = [f for f in torn if state.timeline.is_committed(f.instant)]
        if needed:
            raise TableError(
                f"{state.path}/{needed[0].path}: the damaged file belongs to commit {needed[0].instant}, which would lose "
                "its rows without a trace. Restore the file, or roll the commit back. Nothing was deleted."
            )
        pending = {i.requested for i in state.timeline.pending()}
        for file in torn:
            if file.instant not in pending:  # a write in progress is not finished with its files
                state.storage.delete(file.path)


PROCEDURES = (
    showing(
        "show_fs_path_detail",
        "Folders, files and bytes below a path.",
        pa.schema(
            [
                ("path_num", pa.int64()),
                ("file_num", pa.int64()),
                ("storage_size", pa.int64()),
                ("storage_size(unit)", pa.string()),
                ("storage_path", pa.string()),
                ("space_consumed", pa.int64()),
                ("quota", pa.int64()),
                ("space_quota", pa.int64()),
            ]
        ),
        _path_detail,
        (
            Parameter("path", "VARCHAR", REQUIRED, "a folder"),
            Parameter("is_sub", "BOOLEAN", False, "each thing in it, instead of the folder itself"),
            Parameter("sort", "BOOLEAN", True, "by bytes; false: by number of files"),
            limit(100),
            FILTER,
        ),
        of_table=False,
    ),
    showing(
        "show_file_status",
        "Whether a file is there and which action wrote it, or which one deleted it.",
        columns(status="text", action="text", instant="text", timeline="text", full_path="text"),
        _file_status,
        (
            Parameter("partition", "VARCHAR", None, "partition path of the file"),
            Parameter("file", "VARCHAR", REQUIRED, "name of the file"),
            FILTER,
        ),
    ),
    showing(
        "show_invalid_parquet",
        "Base files whose Parquet footer cannot be read; with needDelete those that no commit counts on are deleted.",
        columns(path="text"),
        _invalid_parquet,
        (
            Parameter("parallelism", "BIGINT", 100, "has no effect here"),
            limit(100),
            Parameter("needDelete", "BOOLEAN", False, "delete them"),
            Parameter("partitions", "VARCHAR", None, "in these partitions, separated by commas"),
            Parameter("instants", "VARCHAR", None, "of these instants, separated by commas"),
            FILTER,
        ),
        writes=lambda arguments: bool(arguments["needDelete"]),
    ),
)
