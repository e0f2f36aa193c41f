"""Writing the archived timeline: one more log file for version 6, one more history file from version 8 on.

A history (hudi-format 2.10) is what its manifest lists: a new file comes first, the manifest that lists it second,
`_version_`, which makes it the current one, last. When a level has `batch` files they are merged into one of the next
level. Old manifests stay for readers that hold them; files that no kept manifest lists go. Reading is `table.archive`.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakesql.format.archived import encode_archive_log, encode_history, history_bytes
from lakesql.storage import FileInfo, Storage
from lakesql.table.archive import manifest

_LOG_FILE = re.compile(r"\.commits_\.archive\.(\d+)(?:_\d+-\d+-\d+)?", re.ASCII)
_FILE = re.compile(r"(\d+)_(\d+)_(\d)\.parquet", re.ASCII)
_MERGED_BYTES_MAX = 256 << 20
_LEVEL_MAX = 9

Files = list[dict[str, Any]]


def append_log(storage: Storage, folder: str, entries: Sequence[Mapping[str, Any]], batch: int) -> None:
    """Version 6: put the entries into a new archive file."""
    numbers = [int(m[1]) for info in storage.list(folder)[0] if (m := _LOG_FILE.fullmatch(_name(info)))]
    path = f"{folder}/.commits_.archive.{max(numbers, default=0) + 1}_1-0-1"
    storage.put(path, encode_archive_log(entries, batch))


def append_history(
    storage: Storage, folder: str, rows: Sequence[Mapping[str, Any]], batch: int, manifests_kept: int
) -> None:
    """Version 8 on: put the rows into a new history file, and merge and tidy what is due."""
    infos = _listed(storage, folder)
    number, files = manifest(storage, folder, infos)
    times = [row["instantTime"] for row in rows]
    name = f"{min(times)}_{max(times)}_0.parquet"
    data = encode_history(rows)
    storage.put(f"{folder}/{name}", data)
    files = [*files, {"fileName": name, "fileLen": len(data)}]
    number = _publish(storage, folder, number, files)
    merged = 0
    for level in range(_LEVEL_MAX):
        chosen = _to_merge(files, level, batch)
        if not chosen:
            break
        files = _merged(storage, folder, files, chosen, level + 1)
        number = _publish(storage, folder, number, files)
        merged += 1
    _tidy(storage, folder, manifests_kept + merged)


def _publish(storage: Storage, folder: str, number: int, files: Files) -> int:
    """Make these the files of the history; the number of the new manifest."""
    text = json.dumps({"files": files}, indent=2, separators=(",", " : "))
    text = text.replace("[\n    {", "[ {").replace("},\n    {", "}, {").replace("}\n  ]", "} ]")
    storage.put(
        f"{folder}/manifest_{number + 1}", re.sub(r'\n {6}"', '\n    "', text).replace("\n    }", "\n  }").encode()
    )
    storage.put(f"{folder}/_version_", str(number + 1).encode())
    return number + 1


def _to_merge(files: Files, level: int, batch: int) -> Files:
    """The oldest files of a level when there are enough of them."""
    found = sorted((f for f in files if _level(f) == level), key=lambda f: str(f["fileName"]))
    if len(found) < batch or sum(f["fileLen"] or 0 for f in found[:batch]) > _MERGED_BYTES_MAX:
        return []
    return found[:batch]


def _merged(storage: Storage, folder: str, files: Files, chosen: Files, level: int) -> Files:
    """The files with those chosen merged into one of the level."""
    tables = [pq.read_table(pa.BufferReader(storage.read(f"{folder}/{f['fileName']}"))) for f in chosen]
    whole = pa.concat_tables(tables, promote_options="default").sort_by("instantTime")
    ranges = [m for f in chosen if (m := _FILE.fullmatch(f["fileName"]))]
    name = f"{min(m[1] for m in ranges)}_{max(m[2] for m in ranges)}_{level}.parquet"
    data = history_bytes(whole)
    storage.put(f"{folder}/{name}", data)
    return [*(f for f in files if f not in chosen), {"fileName": name, "fileLen": len(data)}]


def _tidy(storage: Storage, folder: str, kept: int) -> None:
    """Remove manifests but the newest `kept`, and then files that none of those lists."""
    infos = _listed(storage, folder)
    numbers = sorted(
        (int(n.removeprefix("manifest_")) for n in infos if re.fullmatch(r"manifest_\d+", n)), reverse=True
    )
    if len(numbers) <= kept:
        return
    listed = set()
    for number in numbers[:kept]:
        found = json.loads(storage.read(f"{folder}/manifest_{number}"))["files"]
        listed |= {str(f["fileName"]) for f in found}
    for number in numbers[kept:]:
        storage.delete(f"{folder}/manifest_{number}")
    for name in infos:
        if _FILE.fullmatch(name) and name not in listed:
            storage.delete(f"{folder}/{name}")


def _level(file: Mapping[str, Any]) -> int:
    match = _FILE.fullmatch(file["fileName"])
    return int(match[3]) if match else -1


def _listed(storage: Storage, folder: str) -> dict[str, FileInfo]:
    return {_name(info): info for info in storage.list(folder)[0]}


def _name(info: FileInfo) -> str:
    return info.path.rpartition("/")[2]
