"""A table of very many small file groups, made without a writer: real base files, and the commits that name them.

Every partition has the same number of groups of ROWS rows; groups of the same number in different partitions hold the
same keys, in one partition all keys differ. The base files are written by Arrow with the meta columns, the key range and
the Bloom filter that lakesql's own have; commit n of COMMITS wrote the groups of every partition whose number ends in n.
"""

import shutil
import uuid
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import lakesql
from lakesql.format.avro import META_COLUMNS
from lakesql.format.bloom import new_filter
from lakesql.format.files import base_file_name
from lakesql.format.metadata import CommitMetadata, WriteStat, encode_commit
from lakesql.format.timeline import COMPLETED, INFLIGHT, REQUESTED, instant_file_name
from lakesql.storage import open_storage
from lakesql.table.state import read_config, timeline_folder

ROWS = 10
COMMITS = 10
WORKERS = 2
FORMAT = "1"  # a new number makes the tables anew
SCHEMA = pa.schema([("id", pa.string()), ("amount", pa.float64()), ("ts", pa.int64()), ("day", pa.string())])


def prepare(folder: Path, groups: int, partitions: int, kind: str = "cow") -> Path:
    """The table of that size below `folder`, made when it is not there."""
    root = folder / f"wide-{kind}-{groups}-{partitions}"
    done = root / "complete"
    if done.exists() and done.read_text() == FORMAT:
        return root / "wide"
    shutil.rmtree(root, ignore_errors=True)
    table = lakesql.create_table(
        str(root / "wide"), SCHEMA, type=kind, primary_key=["id"], ordering_fields=["ts"], partitioned_by=["day"]
    )
    each = groups // partitions
    with ProcessPoolExecutor(WORKERS) as pool:
        jobs = [(str(root / "wide"), number, each) for number in range(partitions)]
        stats = dict(zip(range(partitions), pool.map(_partition, jobs, chunksize=8), strict=True))
    _commit(table, kind, [stat for found in stats.values() for stat in found])
    done.write_text(FORMAT)
    return root / "wide"


def partition_name(number: int) -> str:
    return f"d{number:05d}"


def key(group: int, row: int) -> str:
    return f"{group:05d}-{row:03d}"


def instant(commit: int) -> str:
    return f"202601010000{commit:02d}000"


def _partition(job: tuple[str, int, int]) -> list[WriteStat]:
    """Write the base files of one partition; what a commit says of them."""
    root, number, groups = job
    partition = f"day={partition_name(number)}"
    folder = Path(root) / partition
    folder.mkdir(parents=True)
    text = f"#partition metadata\ncommitTime={instant(0)}\npartitionDepth=1\n"
    (folder / ".hoodie_partition_metadata").write_text(text)
    stats = []
    for group in range(groups):
        written = instant(group % COMMITS)
        file_id = f"{uuid.uuid5(uuid.NAMESPACE_OID, f'{number}/{group}')}-0"
        name = base_file_name(file_id, f"0-0-{group}", written)
        pq.write_table(_rows(group, number, name, written), folder / name, store_schema=False)
        size = (folder / name).stat().st_size
        stats.append(
            WriteStat(
                file_id=file_id,
                path=f"{partition}/{name}",
                prev_commit="null",
                num_writes=ROWS,
                num_inserts=ROWS,
                total_write_bytes=size,
                partition_path=partition,
                file_size_in_bytes=size,
            )
        )
    return stats


def _rows(group: int, number: int, name: str, written: str) -> pa.Table:
    keys = [key(group, row) for row in range(ROWS)]
    values = {
        "_hoodie_commit_time": [written] * ROWS,
        "_hoodie_commit_seqno": [f"{written}_0_{row}" for row in range(ROWS)],
        "_hoodie_record_key": keys,
        "_hoodie_partition_path": [f"day={partition_name(number)}"] * ROWS,
        "_hoodie_file_name": [name] * ROWS,
        "id": keys,
        "amount": [float(group)] * ROWS,
        "ts": [1] * ROWS,
        "day": [partition_name(number)] * ROWS,
    }
    schema = pa.schema([*((column, pa.string()) for column in META_COLUMNS), *SCHEMA], metadata=_footer(group))
    return pa.table(values, schema=schema)


@cache
def _footer(group: int) -> dict[str, str]:
    keys = pa.array([key(group, row) for row in range(ROWS)])
    bloom = new_filter(keys, 100, 1e-9, 100_000)
    return {
        "hoodie_min_record_key": key(group, 0),
        "hoodie_max_record_key": key(group, ROWS - 1),
        "hoodie_bloom_filter_type_code": bloom.type_code,
        "org.apache.hudi.bloomfilter": bloom.to_text(),
    }


def _commit(table: lakesql.Table, kind: str, stats: list[WriteStat]) -> None:
    storage = open_storage(table.path)
    config = read_config(storage)
    folder, action = timeline_folder(config), "commit" if kind == "cow" else "deltacommit"
    schema = config.create_schema
    for number in range(COMMITS):
        written, completed = instant(number), instant(number)[:-3] + "500"
        partitions: dict[str, list[WriteStat]] = {}
        for stat in stats:
            if f"_{written}." in (stat.path or ""):
                partitions.setdefault(stat.partition_path or "", []).append(stat)
        body = CommitMetadata(
            partition_stats={p: tuple(found) for p, found in partitions.items()},
            operation="BULK_INSERT",
            extra={"schema": schema or ""},
            compacted=False,
        )
        for state in (REQUESTED, INFLIGHT):
            storage.put(f"{folder}/{instant_file_name(written, action, state, config.layout)}", b"")
        name = instant_file_name(written, action, COMPLETED, config.layout, completed)
        storage.put(f"{folder}/{name}", encode_commit(body, version=config.version, replace=False))
