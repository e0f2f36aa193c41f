"""Tables with as many commits and file groups as wanted, whose data files hold nothing: for what looks at timeline and listing.

A Merge-on-Read table (or Copy-on-Write) of version 9 in memory. The first commit makes the base files, each further one a
log in every `stride`-th file group, from another one on each time; commits are a minute apart, each takes 2 s.
"""

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


def synthetic(
    commits: int,
    groups: int,
    *,
    stride: int = 1,
    name: str = "made_up",
    kind: str = "mor",
    partition: str = "",
    pending: str | None = None,
) -> TableState:
    """The table; `pending`: an action that is in flight at its end."""
    storage = MemoryStorage(name)
    create(storage, SCHEMA, name=name, type=kind, version=9, primary_key=["id"])
    for n in range(commits):
        begun, done = (new_instant_time(START_MS + 60_000 * n + ms) for ms in (0, 2_000))
        stats: dict[str, list[WriteStat]] = {}
        for group in range(groups) if n == 0 else range(n % stride, groups, stride):
            where = f"{partition}{group % 7}" if partition else ""
            stats.setdefault(where, []).append(_written(storage, where, f"g{group:05}-0", begun, n, kind, group))
        commit = CommitMetadata(
            {p: tuple(s) for p, s in stats.items()}, "BULK_INSERT" if n == 0 else "UPSERT", {"schema": ""}
        )
        action = "deltacommit" if kind == "mor" else "commit"
        storage.put(
            f".hoodie/timeline/{instant_file_name(begun, action, 'COMPLETED', 2, done)}",
            encode_commit(commit, version=9, replace=False),
        )
    if pending:
        begun = new_instant_time(START_MS + 60_000 * commits)
        for state in ("REQUESTED", "INFLIGHT"):
            storage.put(f".hoodie/timeline/{instant_file_name(begun, pending, state, 2)}", b"")
    return load(storage)


def _written(
    storage: MemoryStorage, partition: str, file_id: str, instant: str, number: int, kind: str, group: int
) -> WriteStat:
    is_base = number == 0 or kind == "cow"
    name = base_file_name(file_id, "0-0-0", instant) if is_base else log_file_name(file_id, instant, 1, "0-0-0")
    path = f"{partition}/{name}" if partition else name
    size = BASE + group if is_base else LOG
    storage.put(path, b"\0" * size)
    if (
        is_base
        and partition
        and f"{partition}/.hoodie_partition_metadata" not in {f.path for f in storage.list(partition)[0]}
    ):
        storage.put(f"{partition}/.hoodie_partition_metadata", b"")
    return WriteStat(
        file_id=file_id, path=path, prev_commit="null" if number == 0 else "20260101000000000", partition_path=partition,
        num_writes=ROWS if is_base else CHANGED, num_deletes=0, num_inserts=ROWS if number == 0 else 0,
        num_update_writes=0 if number == 0 else CHANGED, total_write_bytes=size, file_size_in_bytes=size,
    )  # fmt: skip
