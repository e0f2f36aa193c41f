"""The files of a compaction: each slice's base file and logs become one new base file of the same file group.

What the logs do to the base file is asked of `table.deltas`, in memory, a portion of slices at a time, while WORKERS threads write
the new files of the slices before. A changed row takes the place of the old one, new rows follow at the end; rows keep
commit time and sequence number (hudi-format 10.2). Memory: the surviving log records of WORKERS slices, and the row
groups of `write.basefile`. Nothing is committed here.
"""

import io
import json
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakesql.counted import counted
from lakesql.errors import FileGone, FormatError, TableError
from lakesql.format import log
from lakesql.format.avro import with_meta_fields
from lakesql.format.files import FileSlice, base_file_name
from lakesql.format.metadata import WriteStat
from lakesql.storage import explained
from lakesql.table import deltas
from lakesql.table.evolution import evolution
from lakesql.table.logfold import View
from lakesql.table.read import columns
from lakesql.table.state import TableState
from lakesql.write.basefile import BaseSpec, Edit, rewrite, write_new
from lakesql.write.settings import WriteConfig
from lakesql.write.transaction import CREATE_MARKER, MERGE_MARKER, Transaction, beat, mark
from lakesql.write.workers import Workers

WORKERS = 2
PORTION_BYTES = 8 << 20
"""Log bytes that are decoded at once: little, so that decoding goes on while files are written."""

Progress = Callable[[int, int], None]
"""Called with the number of slices that are done, and of all."""


@dataclass(frozen=True, slots=True)
class Work:
    """What every file of a compaction needs to know. `paths` collects the files that were begun."""

    txn: Transaction
    state: TableState
    settings: WriteConfig
    view: View
    paths: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class LogFacts:
    """What is in the log files of a slice, as far as a write stat tells it."""

    files: int
    size_bytes: int
    blocks: int
    records: int
    corrupt: int
    rollbacks: int


def require_mor(state: TableState) -> None:
    """TableError for a table that has no logs to compact."""
    if not state.config.is_mor:
        raise TableError(
            f"{state.path}: the table is Copy-on-Write and has no logs; only Merge-on-Read tables are compacted. To "
            "merge small files, cluster it."
        )


def work_of(txn: Transaction, state: TableState, settings: WriteConfig) -> Work:
    return Work(txn, state, settings, view_of(state))


def schema_text(state: TableState) -> str:
    """The table schema as a commit carries it."""
    return json.dumps(state.avro, separators=(",", ":"))


def view_of(state: TableState) -> View:
    """The newest columns of a table, as `table.deltas` wants them."""
    return View(state, None, columns(state), evolution(state, None))


def fold_all(
    con: duckdb.DuckDBPyConnection, work: Work, slices: Sequence[FileSlice], progress: Progress | None = None
) -> list[WriteStat]:
    """Write the new base file of each slice; one stat each, in their order."""
    stats: dict[int, WriteStat] = {}
    running: deque[tuple[int, Future[WriteStat]]] = deque()

    def finish_first() -> None:
        number, future = running.popleft()
        stats[number] = future.result()
        if progress is not None:
            progress(len(stats), len(slices))

    alone = len(slices) == 1
    with Workers(WORKERS, "lakesql-compact") as workers:
        for chunk in deltas.chunks_of(slices, PORTION_BYTES):
            beat(work.txn)
            found = deltas.folded(con, work.view, [slices[n] for n in chunk])
            for number, delta in zip(chunk, found, strict=True):
                while len(running) >= WORKERS:
                    finish_first()
                running.append((number, workers.submit(_fold, work, number, slices[number], delta, alone)))
        while running:
            finish_first()
    return [stats[number] for number in range(len(slices))]


def _fold(work: Work, number: int, one: FileSlice, delta: deltas.Delta, alone: bool) -> WriteStat:
    began = time.perf_counter()
    txn, storage = work.txn, work.txn.storage
    token = f"{number}-0-1"
    spec = BaseSpec(
        partition=one.partition,
        file_id=one.file_id,
        instant=txn.instant,
        token=token,
        name=base_file_name(one.file_id, token, txn.instant),
        schema=work.view.schema,
        avro=with_meta_fields(work.state.avro),
        inserts=0,
        settings=work.settings,
        key_fields=work.state.config.record_key_fields,
    )
    facts = log_facts(work.state, work.view, one)
    edit, added = in_place(delta)
    mark(txn, spec.path, CREATE_MARKER if one.base is None else MERGE_MARKER)
    work.paths.append(spec.path)
    spec = replace(spec, inserts=added.num_rows)
    with explained(f"{txn.where}/{spec.path}", "written"):
        if one.base is None:
            written = write_new(storage, spec, [added])
        else:
            written = rewrite(storage, spec, one.base, edit, [added], alone)
    expected = written.rows_before - len(edit.removed) + added.num_rows
    if written.rows != expected:
        raise TableError(
            f"{txn.where}: compaction {txn.instant}, file group {one.file_id}: the new base file has {counted(written.rows, 'row')}, "
            f"expected are {expected}. The compaction was abandoned and the table is as it was. Run it again; if it "
            "fails again, report it with this text."
        )
    took_ms = int((time.perf_counter() - began) * 1000)
    return WriteStat(
        file_id=one.file_id,
        path=spec.path,
        prev_commit=one.instant,
        num_writes=written.rows,
        num_deletes=len(edit.removed),
        num_update_writes=len(edit.replaced),
        num_inserts=added.num_rows,
        total_write_bytes=written.size_bytes,
        total_write_errors=0,
        partition_path=one.partition,
        total_log_records=facts.records,
        total_updated_records_compacted=len(edit.replaced) + len(edit.removed) + added.num_rows,
        total_log_blocks=facts.blocks,
        total_corrupt_log_block=facts.corrupt,
        total_rollback_blocks=facts.rollbacks,
        file_size_in_bytes=written.size_bytes,
        prev_base_file=one.base.name if one.base is not None else None,
        runtime_stats={"totalScanTime": 0, "totalCreateTime": 0, "totalUpsertTime": took_ms},
        total_log_files_compacted=facts.files,
        total_log_size_compacted=facts.size_bytes,
    )


def in_place(delta: deltas.Delta) -> tuple[Edit, pa.Table]:
    """What the logs do as changes in place, and the rows that are new."""
    taken = delta.by >= 0
    replacing = delta.by[taken]
    added = np.ones(delta.live.num_rows, bool)
    added[replacing] = False
    edit = Edit(delta.dead[taken], delta.live.take(pa.array(replacing)), delta.dead[~taken])
    return edit, delta.live.filter(pa.array(added))


def log_facts(state: TableState, view: View, one: FileSlice) -> LogFacts:
    """Counts over the log files of a slice; only the heads of data blocks are looked at."""
    blocks = records = corrupt = rollbacks = 0
    for file in one.logs:
        where = f"{state.path}/{file.path}"
        try:
            data = state.storage.read(file.path)
        except FileNotFoundError as error:
            raise FileGone(
                f"{where}: the log file is gone; it was cleaned or rolled back meanwhile. Nothing was committed. Run the "
                "compaction again."
            ) from error
        for block in log.scan_blocks(data, where):
            blocks += 1
            corrupt += block.kind == log.CORRUPT
            rollbacks += block.kind == log.COMMAND
            records += _records_in(block, view, where)
    return LogFacts(len(one.logs), sum(f.size_bytes for f in one.logs), blocks, records, corrupt, rollbacks)


def _records_in(block: log.Block, view: View, where: str) -> int:
    if block.kind == log.AVRO and len(block.content) >= 8:
        count: int = struct.unpack_from(">ii", block.content)[1]
        return count
    if block.kind == log.PARQUET:
        try:
            found: Any = pq.ParquetFile(io.BytesIO(block.content)).metadata.num_rows
        except (pa.ArrowException, OSError) as error:
            raise FormatError(f"{where}: the parquet file in the block is damaged: {error}.") from error
        return int(found)
    return log.decode_deletes(block, view.ordering_types(), where).num_rows if block.kind == log.DELETE else 0
