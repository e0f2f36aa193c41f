"""Compaction: folding the logs of a Merge-on-Read table into new base files (hudi-format 10.2).

`schedule` leaves a plan on the timeline, `run` carries plans out, those of Spark too, `compact` does both. A plan is a
promise to all writers: what they log after it belongs on top of the new base file, so they go on while files are
written. The table's lock is held for planning, for starting and for completing only. A run that died is taken back by the
next one; a plan stays until it is run. `after_write` is what a write's settings ask for.

Which slices and when: `compaction_plan`; how a file comes to be: `compaction_files`. Not here: log compaction.
"""

import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime

import duckdb

from lakesql.errors import CommitConflict, CommitUnknown, TableError
from lakesql.format.files import BaseFile, FileSlice
from lakesql.format.metadata import WriteStat, encode_commit, encode_record
from lakesql.format.timeline import REQUESTED, Instant, instant_file_name
from lakesql.services import action, log_compaction
from lakesql.services.action import Look, looking, running
from lakesql.services.adaptive_rounds import decided
from lakesql.services.compaction_files import Progress, Work, fold_all, require_mor, schema_text, work_of
from lakesql.services.compaction_plan import (
    ADAPTIVE,
    TRIGGER_SETTINGS,
    choose,
    is_due,
    operation_of,
    parse_config,
    plan_record,
    slices_of,
)
from lakesql.services.compaction_result import CompactionResult
from lakesql.services.partitions import named
from lakesql.storage import Storage
from lakesql.table.clock import Clock, system_clock, timeline_zone
from lakesql.table.damaged import damage_named
from lakesql.table.listing import newest_head
from lakesql.table.state import TableState, load, load_head
from lakesql.write import commit, metadata_table
from lakesql.write.settings import parse_settings
from lakesql.write.transaction import Transaction
from lakesql.write.undo import dead_writes

ACTION, OPERATION = "compaction", "COMPACT"
HINT_EVERY = 10
"""A write looks whether compaction is overdue when so many delta commits have passed, and again after as many."""
HINT_RATIO, HINT_BYTES = 2, 1 << 20
"""Overdue: logs so many times as large as their base file, and so many bytes of them."""
_WAIT_S = 0.5


def compact(
    con: duckdb.DuckDBPyConnection,
    storage: Storage,
    settings: Mapping[str, str],
    *,
    partitions: Collection[str] | None = None,
    only_due: bool = False,
    clock: Clock = system_clock,
    progress: Progress | None = None,
) -> CompactionResult:
    """Run the plans that are pending, then schedule one for the logs that are left and run it."""
    done = run(con, storage, settings, clock=clock, progress=progress)
    planned = schedule(storage, settings, partitions=partitions, only_due=only_due, clock=clock)
    done += CompactionResult(notes=planned.notes)
    if planned.instant is not None:
        done += run(con, storage, settings, instants=planned.instants, clock=clock, progress=progress)
    if planned.merge_logs:
        done += log_compaction.compact_logs(con, storage, settings, groups=planned.merge_logs, clock=clock)
    return done


def schedule(
    storage: Storage,
    settings: Mapping[str, str],
    *,
    partitions: Collection[str] | None = None,
    only_due: bool = False,
    clock: Clock = system_clock,
) -> CompactionResult:
    """Leave a plan on the timeline; the result has no instant when no file slice is to be compacted.

    `partitions`: only these partition paths. `only_due`: only when the trigger of the settings says so. Raises TableError
    for a table without logs (Copy-on-Write), unknown partitions and wrong settings, CommitConflict when another engine is writing.
    """
    config = parse_config(settings)
    with looking(storage, settings, clock) as look:
        state = look.state
        require_mor(state)
        adaptive = config.strategy == ADAPTIVE
        if only_due and not adaptive and not is_due(config, state.timeline, clock(), look.zone):
            return CompactionResult()
        wanted = named(state, partitions)
        slices = _candidates(state, wanted)
        possible = [operation_of(s, look.settings.max_file_bytes) for s in slices]
        today = datetime.fromtimestamp(clock() / 1000, look.zone).date()
        notes: tuple[str, ...] = ()
        merge_logs: tuple[tuple[str, str], ...] = ()
        if adaptive:
            decision, text = decided(state, settings, clock(), look.zone, wanted)
            by_group = {o.slice.group: o for o in possible}
            chosen = [by_group[g.key] for g in decision.compact]
            notes, merge_logs = (text,), tuple(g.key for g in decision.fold)
        else:
            chosen = choose(possible, config, today, state.path)
        if not chosen:
            return CompactionResult(notes=notes, merge_logs=merge_logs)
        plan = encode_record("HoodieCompactionPlan", plan_record(chosen, state.config.version))
        txn = action.request(look, ACTION, OPERATION, plan)
    logs = [log for o in chosen for log in o.slice.logs]
    size = sum(log.size_bytes for log in logs)
    return CompactionResult((txn.instant,), None, len(chosen), len(logs), size, notes=notes, merge_logs=merge_logs)


def asks_trigger(given: Mapping[str, str]) -> bool:
    """Whether the settings of one call name the trigger, which is asked then; a plain call means now."""
    return bool(TRIGGER_SETTINGS & set(given))


def _candidates(state: TableState, partitions: Collection[str] | None) -> list[FileSlice]:
    """Slices with logs that no pending service has a plan for."""
    taken = {*state.pending_compactions, *state.pending_log_compactions, *state.pending_clustering}
    found = [s for s in state.slices() if s.logs and s.group not in taken]
    return [s for s in found if partitions is None or s.partition in partitions]


def run(
    con: duckdb.DuckDBPyConnection,
    storage: Storage,
    settings: Mapping[str, str],
    *,
    instants: Collection[str] | None = None,
    limit: int | None = None,
    clock: Clock = system_clock,
    progress: Progress | None = None,
) -> CompactionResult:
    """Carry pending plans out, oldest first: all, `limit` of them, or those of `instants`.

    Raises TableError for an instant that is no pending compaction and for a plan whose files are gone, CommitConflict
    when another runner is at work or came first.
    """
    with running(storage, ACTION):
        head = load_head(storage)
        require_mor(head)
        pending = [i.requested for i in head.timeline.pending(ACTION)]
        unknown = sorted(set(instants or ()) - set(pending))
        if unknown:
            raise TableError(
                f"{head.path}: {unknown[0]} is no pending compaction; pending are: {', '.join(pending) or 'none'}."
            )
        chosen = [i for i in pending if instants is None or i in instants][:limit]
        done = CompactionResult()
        for instant in chosen:
            done += _run_one(con, storage, settings, instant, clock, progress)
    return done


def _run_one(
    con: duckdb.DuckDBPyConnection,
    storage: Storage,
    settings: Mapping[str, str],
    instant: str,
    clock: Clock,
    progress: Progress | None,
) -> CompactionResult:
    began = time.perf_counter()
    with looking(storage, settings, clock, alone=False) as look:
        state = look.state
        found = next((i for i in state.timeline.pending(ACTION) if i.requested == instant), None)
        if found is None:
            raise CommitConflict(
                f"{state.path}: another writer ran compaction {instant} meanwhile. Nothing was changed."
            )
        txn = action.planned(state, found, OPERATION)
        state = action.take_back(state, txn, clock)
        slices = planned_slices(state, found)
        action.start(txn)
    work = work_of(txn, state, look.settings)
    try:
        with action.room_named(txn, ACTION), damage_named(state):
            stats = fold_all(con, work, slices, progress)
        completed, note = _complete(txn, work, stats, settings, clock)
    except CommitUnknown:
        raise
    except BaseException:
        action.give_up(txn, work.paths)
        raise
    notes = tuple(n for n in (note, commit.finish(txn)) if n)
    return CompactionResult(
        (instant,),
        completed,
        len(slices),
        sum(len(s.logs) for s in slices),
        sum(log.size_bytes for s in slices for log in s.logs),
        sum(s.num_writes or 0 for s in stats),
        sum(s.file_size_in_bytes or 0 for s in stats),
        time.perf_counter() - began,
        notes,
    )


def planned_slices(state: TableState, instant: Instant) -> list[FileSlice]:
    """The slices of a pending plan, with its logs only: what came later belongs to the next slice."""
    name = f"{instant.requested}.{instant.action}.requested"
    plan = state.plan(instant, name)
    return slices_of(plan, state.files, state.replaced(), f"{state.path}: {instant.action} {instant.requested}")


def _complete(
    txn: Transaction, work: Work, stats: list[WriteStat], settings: Mapping[str, str], clock: Clock
) -> tuple[str, str | None]:
    """Make the new base files visible; the completion time, and a sentence about the metadata table when it went."""
    deadline = time.monotonic() + parse_settings(settings).lock_wait_ms / 1000
    while True:
        with looking(txn.storage, settings, clock, alone=False) as look:
            try:
                _require_alone(txn, work, look)
                look, note = action.without_metadata_table(look, txn.instant)
            except CommitConflict:
                if not metadata_table.listed(look.state.config) or time.monotonic() > deadline:
                    raise
            else:
                body = replace(
                    commit.metadata_of(txn, look.state, stats, schema_text(look.state), {}, {}), compacted=True
                )
                encoded = encode_commit(body, version=txn.config.version, replace=False)
                return action.complete(txn, look, encoded), note
        time.sleep(_WAIT_S)


def _require_alone(txn: Transaction, work: Work, look: Look) -> None:
    """CommitConflict when another engine ran the same plan, or is writing with a metadata table that has to go."""
    there = {f.path for f in look.state.files if isinstance(f, BaseFile) and f.instant == txn.instant}
    if there != set(work.paths):
        raise CommitConflict(
            f"{txn.where}: another engine ran compaction {txn.instant} at the same time. Nothing of ours was committed. "
            "Look at the timeline, then run the compaction again if it is still pending."
        )
    if metadata_table.listed(look.state.config):
        dead_writes(look.state, look.clock)


# ---------------------------------------------------------------- after a write


def after_write(
    con: duckdb.DuckDBPyConnection, storage: Storage, settings: Mapping[str, str], clock: Clock
) -> list[str]:
    """Inline compaction or scheduling where the settings ask for it, else a hint when logs have outgrown their files."""
    if settings.get("hoodie.table.type") != "MERGE_ON_READ":
        return []
    config = parse_config(settings)
    if not config.inline and not config.schedule_inline:
        return _hint(storage)
    head = newest_head(storage)
    zone = timeline_zone(head, parse_settings(settings).timezone)
    due = config.strategy == ADAPTIVE or is_due(config, head.timeline, clock(), zone)
    if config.inline:
        if not due and not head.timeline.pending(ACTION):
            return []
        done = compact(con, storage, settings, only_due=True, clock=clock)
        said = f"Compaction {', '.join(done.instants)} folded {done.log_files} log files into {done.file_groups} base files."
        return [said, *done.notes] if done.instants else []
    planned = schedule(storage, settings, only_due=True, clock=clock) if due else CompactionResult()
    if planned.instant is None:
        return []
    return [f"Compaction {planned.instant} of {planned.file_groups} file groups was scheduled; RUN COMPACTION runs it."]


def _hint(storage: Storage) -> list[str]:
    """One sentence when many logs are larger than their base files. Most writes are answered by the timeline alone."""
    head = newest_head(storage)
    compactions = [i.requested for i in head.timeline.instants if i.action == ACTION]
    last = max(compactions, default="")
    passed = sum(i.action == "deltacommit" and i.is_completed and i.requested > last for i in head.timeline.instants)
    if not passed or passed % HINT_EVERY or head.timeline.pending(ACTION):
        return []
    slices = [s for s in load(storage).slices() if s.logs]
    grown = [s for s in slices if sum(f.size_bytes for f in s.logs) > HINT_RATIO * (s.base.size_bytes if s.base else 0)]
    size = sum(f.size_bytes for s in grown for f in s.logs)
    if size < HINT_BYTES:
        return []
    return [
        f"Compaction is due: in {len(grown)} file groups the logs ({size:,} bytes) are more than {HINT_RATIO} times as "
        f"large as the base file; RUN COMPACTION ON {head.name} folds them."
    ]


def show(state: TableState) -> list[tuple[Instant, int]]:
    """Compactions on the timeline, newest first, and how many file groups each has."""
    require_mor(state)
    rows = []
    for instant in sorted(state.timeline.instants, key=lambda i: i.requested, reverse=True):
        if instant.action != ACTION:
            continue
        name = instant_file_name(instant.requested, ACTION, REQUESTED, state.config.layout)
        rows.append((instant, len(state.plan(instant, name).get("operations") or [])))
    return rows
