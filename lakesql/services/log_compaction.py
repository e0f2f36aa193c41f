"""Log compaction: many small log blocks of a file slice become one that stands for them (hudi-format 4.9, 10.3).

The base file is not read. The new block claims the instants of the blocks it was made from, which stay where they are:
a reader that knows log compaction takes it instead of them, another one reads it after them and gets the same rows. That
holds for the plain merge modes only, and of event-time tables only for logs without deletes, whose ordering values one
record cannot carry together with those of the row they removed; other slices are left to compaction. Rows keep commit
time and sequence number. Table version 6 numbers the log files of a slice, so a writer beside us could take our number:
it is refused there.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from lakesql.counted import counted
from lakesql.errors import CommitConflict, CommitUnknown, TableError, Unsupported
from lakesql.format import log
from lakesql.format.avro import with_meta_fields
from lakesql.format.files import FileSlice, log_file_name
from lakesql.format.metadata import WriteStat, encode_commit, encode_record
from lakesql.format.timeline import Instant
from lakesql.services import action
from lakesql.services.action import Look, looking, running
from lakesql.services.compaction_files import Work, log_facts, require_mor, schema_text, work_of
from lakesql.services.compaction_plan import operation_of, plan_record, slices_of
from lakesql.services.compaction_result import CompactionResult
from lakesql.services.partitions import named
from lakesql.storage import Storage, explained
from lakesql.table import deltas
from lakesql.table.clock import Clock, system_clock
from lakesql.table.damaged import damage_named
from lakesql.table.logs import committed_blocks
from lakesql.table.merge import COMMIT_TIME, rule_of
from lakesql.table.state import TableState, load_head
from lakesql.values import Parse, flag, parsed, size
from lakesql.write import commit
from lakesql.write.logfile import LogContent, Records, encode_groups
from lakesql.write.takeback import erase_instant
from lakesql.write.transaction import CREATE_MARKER, Transaction, mark

ACTION, OPERATION = "logcompaction", "LOG_COMPACT"
_BLOCKS_MIN = 2


@dataclass(frozen=True, slots=True)
class LogCompactionConfig:
    """The settings of log compaction."""

    enabled: bool = False
    blocks_min: int = 5


_BY_FIELD: dict[str, tuple[str, Parse]] = {
    "enabled": ("hoodie.log.compaction.enable", flag),
    "blocks_min": ("hoodie.log.compaction.blocks.threshold", size(2)),
}
SETTINGS: dict[str, Parse] = dict(_BY_FIELD.values())


def compact_logs(
    con: duckdb.DuckDBPyConnection,
    storage: Storage,
    settings: Mapping[str, str],
    *,
    partitions: Collection[str] | None = None,
    groups: Collection[tuple[str, str]] | None = None,
    clock: Clock = system_clock,
) -> CompactionResult:
    """Run the plans that are pending, then schedule one for the slices with many blocks and run it."""
    done = run(con, storage, settings, clock=clock)
    planned = schedule(storage, settings, partitions=partitions, groups=groups, clock=clock)
    return done + run(con, storage, settings, instants=planned.instants, clock=clock) if planned.instant else done


def act(
    con: duckdb.DuckDBPyConnection,
    storage: Storage,
    settings: Mapping[str, str],
    instants: Collection[str] | None,
    schedules: bool,
    runs: bool,
    partitions: Collection[str] | None,
) -> CompactionResult:
    """What a person asks for: `run` of some or all pending plans, `schedule`, or both."""
    if instants is not None or not schedules:
        return run(con, storage, settings, instants=instants)
    if not runs:
        return schedule(storage, settings, partitions=partitions)
    return compact_logs(con, storage, settings, partitions=partitions)


def schedule(
    storage: Storage,
    settings: Mapping[str, str],
    *,
    partitions: Collection[str] | None = None,
    groups: Collection[tuple[str, str]] | None = None,
    clock: Clock = system_clock,
) -> CompactionResult:
    """Leave a plan on the timeline; the result has no instant when no slice has enough blocks that can be merged.

    `groups`: these (partition, file id), which need two blocks only.
    Raises TableError, Unsupported as `_require_offered`, CommitConflict when another engine is writing.
    """
    config = parsed(LogCompactionConfig, _BY_FIELD, settings)
    least = config.blocks_min if groups is None else _BLOCKS_MIN
    with looking(storage, settings, clock) as look:
        state = look.state
        _require_offered(state)
        wanted = named(state, partitions)
        taken = {*state.pending_compactions, *state.pending_log_compactions, *state.pending_clustering}
        slices = [s for s in state.slices() if s.logs and s.group not in taken]
        chosen = [
            operation_of(s, look.settings.max_file_bytes)
            for s in slices
            if (wanted is None or s.partition in wanted)
            and (groups is None or s.group in groups)
            and _worth(state, s, least)
        ]
        if not chosen:
            return CompactionResult()
        plan = encode_record("HoodieCompactionPlan", plan_record(chosen, state.config.version, of_logs=True))
        txn = action.request(look, ACTION, OPERATION, plan)
    logs = [f for o in chosen for f in o.slice.logs]
    return CompactionResult((txn.instant,), None, len(chosen), len(logs), sum(f.size_bytes for f in logs))


def _require_offered(state: TableState) -> None:
    """TableError for a table without logs, Unsupported where a merged log would read otherwise."""
    require_mor(state)
    reason = None
    if state.config.version < 8:
        reason = "table version 6 numbers the log files of a slice, and a writer beside could take the number"
    elif not rule_of(state.config, state.path).plain:
        reason = (
            "its merge rule takes columns from several versions or asks a merger, which one merged record cannot keep"
        )
    if reason:
        raise Unsupported(f"{state.path}: log compaction is not offered here: {reason}. Run a compaction instead.")


def _worth(state: TableState, one: FileSlice, blocks_min: int) -> bool:
    """Whether a slice has enough blocks, all of a kind that one record per key can stand for."""
    blocks = [block for _, block in committed_blocks(state, one, None)]
    if len(blocks) < blocks_min or any(b.headers.get(log.IS_PARTIAL, "").lower() == "true" for b in blocks):
        return False
    return state.config.merge_mode == COMMIT_TIME or all(b.kind != log.DELETE for b in blocks)


def run(
    con: duckdb.DuckDBPyConnection,
    storage: Storage,
    settings: Mapping[str, str],
    *,
    instants: Collection[str] | None = None,
    clock: Clock = system_clock,
) -> CompactionResult:
    """Carry pending plans out, oldest first: all, or those of `instants`."""
    with running(storage, ACTION):
        head = load_head(storage)
        pending = [i.requested for i in head.timeline.pending(ACTION)]
        if pending:
            _require_offered(head)
        unknown = sorted(set(instants or ()) - set(pending))
        if unknown:
            raise TableError(f"{head.path}: {unknown[0]} is no pending log compaction.")
        done = CompactionResult()
        for instant in pending:
            if instants is None or instant in instants:
                done += _run_one(con, storage, settings, instant, clock)
        return done


def _run_one(
    con: duckdb.DuckDBPyConnection, storage: Storage, settings: Mapping[str, str], instant: str, clock: Clock
) -> CompactionResult:
    began = time.perf_counter()
    with looking(storage, settings, clock, alone=False) as look:
        state = look.state
        found = next((i for i in state.timeline.pending(ACTION) if i.requested == instant), None)
        if found is None:
            raise CommitConflict(f"{state.path}: another writer ran log compaction {instant}. Nothing was changed.")
        txn = action.planned(state, found, OPERATION)
        state = action.take_back(state, txn, clock)
        slices = _planned(state, found)
        action.start(txn)
    work = work_of(txn, state, look.settings)
    try:
        with action.room_named(txn, "log compaction"), damage_named(state):
            made = _write(con, work, slices)
        with looking(storage, settings, clock) as look:
            stats = _still_right(txn, look, made)
            completed, note = _complete(txn, look, stats, found)
    except CommitUnknown:
        raise
    except BaseException:
        action.give_up(txn, work.paths)
        raise
    notes = tuple(n for n in (note, commit.finish(txn)) if n)
    if completed is None:
        return CompactionResult(notes=notes)
    return CompactionResult(
        (instant,),
        completed,
        len(stats),
        sum(s.total_log_files_compacted or 0 for s in stats),
        sum(s.total_log_size_compacted or 0 for s in stats),
        sum(s.num_writes or 0 for s in stats),
        sum(s.file_size_in_bytes or 0 for s in stats),
        time.perf_counter() - began,
        notes,
    )


def _planned(state: TableState, instant: Instant) -> list[FileSlice]:
    plan: Mapping[str, Any] = state.plan(instant, f"{instant.requested}.{ACTION}.requested")
    return slices_of(plan, state.files, state.replaced(), f"{state.path}: {ACTION} {instant.requested}")


def _write(
    con: duckdb.DuckDBPyConnection, work: Work, slices: Sequence[FileSlice]
) -> list[tuple[FileSlice, WriteStat]]:
    """One log file per slice, with what its logs alone leave of each key; slices that cannot be merged are left out."""
    alone = [replace(one, base=None) for one in slices]
    made = []
    for chunk in deltas.chunks_of(alone):
        placed = deltas.prepare(con, work.view, [alone[n] for n in chunk])
        for number, delta in zip(chunk, placed, strict=True):
            stat = _write_one(work, number, alone[number], delta)
            if stat is not None:
                made.append((slices[number], stat))
    return made


def _write_one(work: Work, number: int, one: FileSlice, delta: tuple[deltas.Batch, int]) -> WriteStat | None:
    txn, state = work.txn, work.state
    _, live = deltas.changes_of(delta)
    batch, slot = delta
    gone = pq.read_table(batch.tombs, columns=["key"], filters=[("slot", "=", slot)])
    if gone.num_rows and state.config.merge_mode != COMMIT_TIME:
        return None
    deletes = gone.append_column("part", pa.repeat(pa.scalar(one.partition), gone.num_rows))
    claimed = dict.fromkeys(b.headers.get(log.INSTANT_TIME, "") for _, b in committed_blocks(state, one, None))
    content = LogContent(((0, live.num_rows),), deletes)
    records = Records(live.select(work.view.schema.names).cast(work.view.schema), with_meta_fields(state.avro))
    data = encode_groups([records], [content], txn.instant, work.settings.log_block_bytes, False, tuple(claimed))[0]
    name = log_file_name(one.file_id, txn.instant, 1, f"{number}-0-1")
    path = f"{one.partition}/{name}" if one.partition else name
    mark(txn, path, CREATE_MARKER)
    work.paths.append(path)
    with explained(f"{txn.where}/{path}", "written"):
        txn.storage.put(path, data)
    facts = log_facts(state, work.view, one)
    return WriteStat(
        file_id=one.file_id,
        path=path,
        prev_commit=one.instant,
        num_writes=live.num_rows,
        num_deletes=gone.num_rows,
        num_update_writes=live.num_rows,
        total_write_bytes=len(data),
        total_write_errors=0,
        partition_path=one.partition,
        total_log_records=facts.records,
        total_updated_records_compacted=live.num_rows + gone.num_rows,
        total_log_blocks=facts.blocks,
        total_corrupt_log_block=facts.corrupt,
        total_rollback_blocks=facts.rollbacks,
        file_size_in_bytes=len(data),
        log_version=1,
        log_offset=0,
        base_file="",
        log_files=(name,),
        total_log_files_compacted=facts.files,
        total_log_size_compacted=facts.size_bytes,
    )


def _still_right(txn: Transaction, look: Look, made: Sequence[tuple[FileSlice, WriteStat]]) -> list[WriteStat]:
    """The stats of slices that are as they were: over a new base file the merged log would bring old rows back.

    The files of the others are removed.
    """
    now = {s.group: s for s in look.state.slices()}
    kept = []
    for one, stat in made:
        current = now.get(one.group)
        if current is not None and current.base == one.base and set(one.logs) <= set(current.logs):
            kept.append(stat)
        elif stat.path is not None:
            txn.storage.delete(stat.path)
    return kept


def _complete(txn: Transaction, look: Look, stats: list[WriteStat], instant: Instant) -> tuple[str | None, str | None]:
    """(completion time, note); without anything to commit the plan is taken off the timeline."""
    if not stats:
        erase_instant(look.state, instant)
        return None, f"Log compaction {instant.requested} was dropped: none of its slices can be merged any more."
    look, note = action.without_metadata_table(look)
    body = replace(commit.metadata_of(txn, look.state, stats, schema_text(look.state), {}, {}), compacted=True)
    return action.complete(txn, look, encode_commit(body, version=txn.config.version, replace=False)), note


def after_write(
    con: duckdb.DuckDBPyConnection, storage: Storage, settings: Mapping[str, str], clock: Clock
) -> list[str]:
    """Log compaction where the settings ask for it and the table can have it."""
    if settings.get("hoodie.table.type") != "MERGE_ON_READ":
        return []
    if not parsed(LogCompactionConfig, _BY_FIELD, settings).enabled:
        return []
    try:
        done = compact_logs(con, storage, settings, clock=clock)
    except Unsupported as error:
        return [str(error)]
    said = f"Log compaction {', '.join(done.instants)} merged {counted(done.log_files, 'log file')} of {counted(done.file_groups, 'file group')}."
    return [said, *done.notes] if done.instants else list(done.notes)
