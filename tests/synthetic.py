"""Tables with as many commits and file groups as wanted, whose data files hold nothing: for what looks at timeline and listing.

A Merge-on-Read table (or Copy-on-Write) of version 9 in memory. The first commit makes the base files, each further one a
log in every `stride`-th file group, from another one on each time; commits are a minute apart, each takes 2 s.
"""

from collections.abc import Iterable

import pyarrow as pa

from lakesql.format.files import base_file_name, log_file_name
from lakesql.format.metadata import CommitMetadata, WriteStat, encode_commit
from lakesql.format.timeline import instant_file_name, new_instant_time
from lakesql.storage import MemoryStorage
from lakesql.table.state import TableState, load
from lakesql.write.create import create

SCHEMA = pa.schema([("id", pa.string()), ("v", pa.int64())])
START_MS = 1_767_225_600_000  # 2026-01-01
BASE, LOG = 1000, 100
ROWS, CHANGED = 50, 5
_TIMELINE = ".hoodie/timeline"


def synthetic(
    commits: int,
    groups: int,
    *,
    stride: int = 1,
    name: str = "made_up",
    kind: str = "mor",
    partition: str = "",
    pending: str | None = None,
    uneven: int = 0,
    compact: int = 0,
) -> TableState:
    """The table; `pending`: an action that is in flight at its end; `uneven`: base files differ by up to so many bytes;
    `compact`: all file groups are compacted behind every so many commits."""
    storage = MemoryStorage(name)
    create(storage, SCHEMA, name=name, type=kind, version=9, primary_key=["id"])

    def put(n: int, begun: str, done: str, written: Iterable[int], operation: str) -> None:
        stats: dict[str, list[WriteStat]] = {}
        for group in written:
            where = f"{partition}{group % 7}" if partition else ""
            more = (uneven and group**2 * 7919 % uneven) or group
            is_base = kind == "cow" or operation != "UPSERT"
            stats.setdefault(where, []).append(_written(storage, where, f"g{group:05}-0", begun, n, is_base, more))
        schema = {"schema": ""}
        commit = CommitMetadata({p: tuple(s) for p, s in stats.items()}, operation, schema, operation == "COMPACT")
        action = "compaction" if operation == "COMPACT" else "deltacommit" if kind == "mor" else "commit"
        body = encode_commit(commit, version=9, replace=False)
        storage.put(f"{_TIMELINE}/{instant_file_name(begun, action, 'COMPLETED', 2, done)}", body)
        if action == "compaction":
            storage.put(f"{_TIMELINE}/{instant_file_name(begun, action, 'REQUESTED', 2)}", b"")

    for n in range(commits):
        begun, done, planned, folded = (new_instant_time(START_MS + 60_000 * n + s * 1000) for s in (0, 2, 20, 24))
        put(
            n,
            begun,
            done,
            range(groups) if n == 0 else range(n % stride, groups, stride),
            "UPSERT" if n else "BULK_INSERT",
        )
        if compact and n and n % compact == 0:
            put(n, planned, folded, range(groups), "COMPACT")
    if pending:
        begun = new_instant_time(START_MS + 60_000 * commits)
        for state in ("REQUESTED", "INFLIGHT"):
            storage.put(f"{_TIMELINE}/{instant_file_name(begun, pending, state, 2)}", b"")
    return load(storage)


def _written(
    storage: MemoryStorage, partition: str, file_id: str, instant: str, number: int, is_base: bool, more: int
) -> WriteStat:
    name = base_file_name(file_id, "0-0-0", instant) if is_base else log_file_name(file_id, instant, 1, "0-0-0")
    path = f"{partition}/{name}" if partition else name
    size = BASE + more if is_base else LOG
    storage.put(path, b"\0" * size)
    return WriteStat(
        file_id=file_id, path=path, prev_commit="null" if number == 0 else "20260101000000000", partition_path=partition,
        num_writes=ROWS if is_base else CHANGED, num_deletes=0, num_inserts=ROWS if number == 0 else 0,
        num_update_writes=0 if number == 0 else CHANGED, total_write_bytes=size, file_size_in_bytes=size,
    )  # fmt: skip
