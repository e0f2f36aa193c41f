"""The write path, top to bottom: every change of a table walks this one road.

    batch       the rows, cast, keyed and checked; no lock is held yet, nothing can be written by mistake
    lock        one lakesql writer at a time, from the look at the table until the commit
    undo        what dead writers left is rolled back
    tag         key by key: which file slice holds it, what becomes of the row
    route       which file every row goes to; `preview` (EXPLAIN) ends here
    begin       requested and inflight instant
    slices      the files and their write stats; the only place where the two table types differ
    complete    one last look at the timeline, then the put that makes it all visible

The operations differ in a row of `verbs.VERBS`. A failure anywhere before the last put removes what was written.
Table services, schema changes and the upkeep of the metadata table are not here.
"""

import functools
import json
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from typing import Any

import duckdb
import pyarrow as pa

from lakesql.counted import counted
from lakesql.errors import CommitConflict, CommitUnknown, TableError
from lakesql.format.files import FileSlice
from lakesql.format.metadata import WriteStat
from lakesql.format.timeline import WRITE_ACTIONS
from lakesql.stores.base import TABLE_LOCK as LOCK
from lakesql.stores.base import Storage
from lakesql.stores.calls import spent
from lakesql.table import deltas, read
from lakesql.table.clock import Clock, system_clock, timeline_zone
from lakesql.table.damaged import damage_named
from lakesql.table.interrupts import interrupts
from lakesql.table.listing import look
from lakesql.table.state import TableState, load
from lakesql.write import commit, metadata_table
from lakesql.write.batch import Batch, Rules, materialise
from lakesql.write.buckets import require_agreement
from lakesql.write.check import require_writable
from lakesql.write.create import create
from lakesql.write.found import Found
from lakesql.write.given import own_settings, tidy
from lakesql.write.index import Index, index_of, of_table
from lakesql.write.notes import late_note
from lakesql.write.outcome import Observer, Outcome, outcome, with_moves
from lakesql.write.partial import FULL, partial_blocks
from lakesql.write.pending import clear_away
from lakesql.write.plan import APPEND, CREATE, REWRITE, Target
from lakesql.write.preview import PlannedFile, planned_files
from lakesql.write.resolve import give_back
from lakesql.write.result import WriteResult
from lakesql.write.retry import locked, retried, with_attempts
from lakesql.write.route import ClusteringInTheWay, Layout, refuse_pending, route_rows
from lakesql.write.settings import WriteConfig, parse_settings
from lakesql.write.sizing import file_sizes
from lakesql.write.slices import by_target, job, write_targets
from lakesql.write.stream import Stream, rows_of
from lakesql.write.tag import NOTHING, Tagged, ignored_slices, ordering_columns, tag_batch
from lakesql.write.transaction import OWNER, Transaction
from lakesql.write.undo import undo_dead_writes
from lakesql.write.verbs import VERBS, Verb, action_of, looks_up, rules_of, verb_of

__all__ = [
    "LOCK",
    "VERBS",
    "Guard",
    "Observer",
    "Outcome",
    "PlannedFile",
    "WriteResult",
    "create",
    "preview",
    "retried",
    "with_attempts",
    "write",
]


Guard = Callable[[TableState], Mapping[str, str] | None]
"""Looks at a table once more before a write touches it; raising refuses the write. May give more extraMetadata."""


def new_file_id() -> str:
    """A random UUID that nobody takes for a bucket's (hudi-format 3.1)."""
    while (text := str(uuid.uuid4())).startswith("000"):
        pass
    return text


def write(
    con: duckdb.DuckDBPyConnection,
    state: TableState,
    rows_sql: str,
    *,
    operation: str,
    settings: Mapping[str, str] | None = None,
    partitions: Collection[str] = (),
    reads_table: bool = False,
    changed: Collection[str] | None = None,
    found: Found | None = None,
    extra: Mapping[str, str] | None = None,
    observe: Observer | None = None,
    guard: Guard | None = None,
    even_empty: bool = False,
    clock: Clock = system_clock,
    ids: Callable[[], str] = new_file_id,
    rows: pa.Table | None = None,
    walk: "Walk | None" = None,
) -> WriteResult:
    """Write the rows that `rows_sql` gives on `con`.

    Columns by name: the table's (missing ones NULL), optionally `__op` (upsert, insert, delete; NULL: as `operation`
    says), `_hoodie_record_key` and `_hoodie_partition_path` (taken instead of computed ones where not NULL), `__lakesql_number`
    (BIGINT, the number of a row; see `outcome`).
    `operation` is a key of VERBS, `settings` have Hudi's names. `partitions`: partition paths that insert_overwrite or
    delete_partition takes out even when no row falls into them. `reads_table`: the rows were computed from `state`: file
    groups that changed since are a conflict, and what happens to a key must be true of all its rows.
    `changed`: with `reads_table`, the columns in which updated rows may differ from the stored ones; None: all.
    `found`: with `reads_table`, where the rows' keys are, if that is known.
    `extra` goes into extraMetadata of the commit, beside the offsets of ingestions that newer commits hand on (`carried`).
    `guard` is called at every attempt with the table as it is now, under its lock, before anything is written, and may
    raise. With `even_empty` rows that change nothing make a commit too, one without files.
    `observe` is told what becomes of the rows, which must be numbered, before anything is written.
    `clock` gives epoch milliseconds, `ids` UUIDs for new file groups. `rows`: what `rows_sql` gives, row by row in this order,
    where the caller has it in memory; its columns that have name and type of one of the table are taken for it.
    `walk`: what to do with what was decided, under the lock, instead of writing and committing it here (`plans`).

    Raises TableError (rows and table do not fit), Unsupported, CommitConflict (nothing happened, a retry is safe) and
    CommitUnknown (look at the timeline).
    """
    attempt = functools.partial(
        _write_once,
        con,
        state,
        rows_sql,
        operation=operation,
        settings=settings or {},
        partitions=partitions,
        reads_table=reads_table,
        changed=changed,
        found=found,
        extra=extra or {},
        observe=observe,
        guard=guard,
        even_empty=even_empty,
        clock=clock,
        ids=ids,
        rows=rows,
        walk=walk or _walk,
    )
    config = parse_settings({**of_table(state), **(settings or {})})
    gone: list[str] = []
    for left in range(config.retries, -1, -1):
        try:
            result = attempt()
        except ClusteringInTheWay as standing:
            if not config.clusterings_yield or not left:
                raise
            gone += _without_clusterings(state, standing, config, settings or {}, clock)
        else:
            break
    notes = [f"Rolled back the pending clustering {t}, which covered file groups of this write." for t in gone]
    return replace(result, notes=(*notes, *result.notes))


def _without_clusterings(
    state: TableState, standing: ClusteringInTheWay, config: WriteConfig, settings: Mapping[str, str], clock: Clock
) -> list[str]:
    """Roll back the pending clusterings that a write cannot pass; their instants."""
    with locked(state.storage, settings, state.config.properties):
        now = load(state.storage)
        return clear_away(now, standing.groups, clock, timeline_zone(now, config.timezone))


def _write_once(
    con: duckdb.DuckDBPyConnection,
    state: TableState,
    rows_sql: str,
    *,
    operation: str,
    settings: Mapping[str, str],
    partitions: Collection[str],
    reads_table: bool,
    changed: Collection[str] | None,
    found: Found | None,
    extra: Mapping[str, str],
    observe: Observer | None,
    guard: Guard | None,
    even_empty: bool,
    clock: Clock,
    ids: Callable[[], str],
    rows: pa.Table | None,
    walk: "Walk",
) -> WriteResult:
    """One attempt of `write`."""
    started, before = time.perf_counter(), Traffic.of(state.storage)
    verb, config = verb_of(operation), parse_settings({**of_table(state), **settings})
    require_writable(state)
    state.storage.attach(con)
    index = index_of(state, config)
    result: WriteResult | None = None
    notes: list[str] = []
    try:
        with interrupts(), own_settings(con, rows_sql) as given:
            rules = replace(rules_of(con, state, verb, config, index), from_table=reads_table)
            batch = materialise(con, state, given, rules, settings, rows if given == rows_sql else None)
            with locked(state.storage, settings, state.config.properties):
                now, zone, notes = _fresh(state, config, clock)
                extra = {**extra, **((guard and guard(now)) or {})}
                named = frozenset(partitions)
                road = Road(
                    con,
                    verb,
                    config,
                    index,
                    rules,
                    batch,
                    named,
                    extra,
                    clock,
                    zone,
                    ids,
                    notes,
                    changed,
                    even_empty,
                    found,
                )
                with damage_named(now):
                    result = walk(road, _planned(road, now, state if reads_table else None, observe))
    except Exception as error:
        if result is None:
            raise
        notes.append(f"The write is complete, but the table's lock could not be released ({error}).")
    finally:
        notes += tidy(con)
    return replace(
        result,
        operation=operation,
        duration_s=time.perf_counter() - started,
        **before.until_now(),
        notes=tuple(notes),
    )


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a storage has counted at some time."""

    storage: Storage
    requests: Counter[str]
    received: int
    sent: int

    @staticmethod
    def of(storage: Storage) -> "Traffic":
        return Traffic(storage, Counter(storage.requests), storage.bytes_read, storage.bytes_written)

    def until_now(self) -> dict[str, Any]:
        """The fields of a WriteResult that say what went on since."""
        by_kind = spent(self.requests, self.storage.requests)
        return {
            "requests": sum(by_kind.values()),
            "requests_by_kind": by_kind,
            "bytes_received": self.storage.bytes_read - self.received,
            "bytes_sent": self.storage.bytes_written - self.sent,
        }


@dataclass(frozen=True, slots=True)
class Road:
    """One call of `write`: what the steps have in common."""

    con: duckdb.DuckDBPyConnection
    verb: Verb
    settings: WriteConfig
    index: Index
    rules: Rules
    batch: Batch
    partitions: frozenset[str]
    extra: Mapping[str, str]
    clock: Clock
    zone: tzinfo
    ids: Callable[[], str]
    notes: list[str] = field(default_factory=list)
    changed: Collection[str] | None = None
    even_empty: bool = False
    found: Found | None = None


def _fresh(state: TableState, settings: WriteConfig, clock: Clock) -> tuple[TableState, tzinfo, list[str]]:
    """The table as it is now, dead writes rolled back; the zone of its instants; what the user should know."""
    now = look(state.storage)
    if now.timeline.pending(*WRITE_ACTIONS, "rollback", "restore"):
        now = load(state.storage)  # undoing them is about files that nobody counts
    require_writable(now)
    before = replace(state, added=(), grown=None) if state.evolves else state
    if not now.schema.equals(before.schema):
        raise CommitConflict(
            f"{state.path}: the table's schema changed while the rows were prepared. Nothing was committed. Run the "
            "statement again."
        )
    if state.storage.remote and now.config != state.config:
        raise CommitConflict(
            f"{state.path}: the table's properties changed while the rows were prepared. Nothing was committed. Run the "
            "statement again."
        )
    zone = timeline_zone(now, settings.timezone)
    undone = undo_dead_writes(now, clock, zone)
    if not undone:
        return now.evolved_as(state), zone, []
    return load(state.storage).evolved_as(state), zone, undone


def preview(
    con: duckdb.DuckDBPyConnection,
    state: TableState,
    rows_sql: str,
    *,
    operation: str,
    settings: Mapping[str, str] | None = None,
    partitions: Collection[str] = (),
    reads_table: bool = False,
    observe: Observer | None = None,
) -> tuple[PlannedFile, ...]:
    """The files that `write` with the same arguments would write now. Nothing is written and no lock is taken.

    Raises what `write` raises before it writes.
    """
    verb, config = verb_of(operation), parse_settings({**of_table(state), **(settings or {})})
    require_writable(state)
    index = index_of(state, config)
    try:
        with interrupts(), own_settings(con, rows_sql) as given:
            rules = replace(rules_of(con, state, verb, config, index), from_table=reads_table)
            batch = materialise(con, state, given, rules, settings or {})
            zone = timeline_zone(state, config.timezone)
            found = frozenset(partitions)
            road = Road(con, verb, config, index, rules, batch, found, {}, system_clock, zone, new_file_id)
            planned = _planned(road, state, None, observe)
    finally:
        tidy(con)
    return planned_files(planned.slices, planned.targets, planned.replaced, planned.record_bytes)


@dataclass(frozen=True, slots=True)
class Planned:
    """Everything that is decided before the first byte is written."""

    now: TableState
    plan: read.ReadPlan
    slices: tuple[FileSlice, ...]  # the plan's, and those that are opened
    tagged: Tagged
    targets: tuple[Target, ...]
    replaced: Mapping[str, list[str]]
    touched: frozenset[tuple[str, str]]
    record_bytes: float


Walk = Callable[[Road, Planned], WriteResult]
"""The rest of a write, once everything is decided."""


def _planned(road: Road, now: TableState, basis: TableState | None, observe: Observer | None) -> Planned:
    """Tag and route the batch on `now`. `basis`: the state that the rows were computed from."""
    plan = read.plan(now)
    if road.index != index_of(now, road.settings):
        raise CommitConflict(
            f"{now.path}: another writer gave the table another index while the rows were prepared. Nothing was "
            "committed. Run the statement again."
        )
    if road.index.buckets:
        require_agreement(road.con, plan, road.index)
    try:
        tagged = _tagged(road, plan)
    except TableError:
        if basis is not None:  # a change since then may be the reason, and a retry the way out
            commit.refuse_overlap(basis, now, {s.group for s in plan.slices})
        raise
    slices = (*plan.slices, *tagged.opened)
    layout = Layout(
        slices, now.config.is_mor, now.config.version, now.pending_compactions, now.pending_clustering, now.path
    )
    sizes = file_sizes(road.con, now, road.settings, sum(tagged.inserts.values()))
    targets = route_rows(
        layout, tagged.inserts, tagged.changes, sizes, road.ids, road.verb.new_groups_only, tagged.rewrites
    )
    replaced = _replaced(road, plan)
    touched = {(t.partition, t.file_id) for t in targets if t.kind != CREATE}
    touched |= {(partition, file_id) for partition, ids in replaced.items() for file_id in ids}
    refuse_pending(layout, touched)
    if basis is not None:
        # A row that loses here was computed from a stored row that may have changed since.
        met = {slices[n].group for n in ignored_slices(road.con, tagged)}
        commit.refuse_overlap(basis, now, touched | met)
    if road.batch.numbered:
        tagged = with_moves(road.con, tagged, now.path)
    if observe is not None:
        observe(outcome(plan, tagged))
    return Planned(now, plan, slices, tagged, targets, replaced, frozenset(touched), sizes.record_bytes)


def _walk(road: Road, planned: Planned) -> WriteResult:
    """Write and commit what was decided."""
    result = totals(road, planned)
    if changes_nothing(road, planned):
        return result
    txn = begun(road, planned)
    try:
        stats = _write_files(road, planned, txn)
        completed = complete(road, planned, txn, stats, planned.now)
    except CommitUnknown:
        raise
    except BaseException:
        commit.abort(txn)
        raise
    return finished(road, planned, txn, stats, replace(result, completed=completed))


def totals(road: Road, planned: Planned) -> WriteResult:
    """The rows by what becomes of them."""
    tagged = planned.tagged
    return WriteResult(
        instant=None,
        action=None,
        operation="",
        rows_inserted=tagged.rows_inserted,
        rows_updated=tagged.rows_updated,
        rows_deleted=tagged.rows_deleted + _rows_in(road, planned.plan, planned.replaced),
        rows_ignored=tagged.rows_ignored + road.batch.rows_dropped,
    )


def changes_nothing(road: Road, planned: Planned) -> bool:
    return not (planned.targets or planned.replaced or road.even_empty)


def begun(road: Road, planned: Planned, owner: bytes = OWNER) -> Transaction:
    """The instant, announced, with the partitions that it opens. The caller aborts it when anything fails from here on."""
    now, tagged = planned.now, planned.tagged
    if tagged.rows_moved:
        road.notes.append(f"{tagged.rows_moved} of the updated rows moved to another partition.")
    if note := metadata_table.remove(now, road.clock()):
        road.notes.append(note)
    action = action_of(road.verb, now.config.is_mor)
    return commit.begin(now, action, road.verb.operation, road.clock, road.zone, owner)


def complete(road: Road, planned: Planned, txn: Transaction, stats: Sequence[WriteStat], now: TableState) -> str:
    """Publish the instant; its completion time. `now`: the table as it is, whose ingestions' offsets are handed on."""
    schema = json.dumps(planned.now.avro, separators=(",", ":"))
    in_place = road.index.moves or not road.index.everywhere
    body = commit.metadata_of(txn, now, stats, schema, road.extra, planned.replaced, in_place)
    return commit.complete(txn, planned.now, body, planned.touched, road.clock, road.zone)


def finished(
    road: Road, planned: Planned, txn: Transaction, stats: Sequence[WriteStat], result: WriteResult
) -> WriteResult:
    """What is to say about a complete instant; its traces go."""
    if planned.tagged.rewrites:
        road.notes.append(
            f"{counted(len(planned.tagged.rewrites), 'file slice')} rewritten: appended to their logs the rows would read otherwise."
        )
    if note := commit.finish(txn):
        road.notes.append(note)
    return replace(
        result,
        instant=txn.instant,
        action=txn.action,
        files_written=len(stats),
        bytes_written=sum(s.file_size_in_bytes or 0 for s in stats),
        partitions_touched=len({*(t.partition for t in planned.targets), *planned.replaced}),
    )


def _tagged(road: Road, plan: read.ReadPlan) -> Tagged:
    if not road.verb.rows_written:
        return NOTHING
    duplicates = road.settings.duplicates if road.verb.operation == "INSERT" else "none"
    look_up = looks_up(road.verb, road.index) or duplicates != "none"
    tagged = tag_batch(road.con, plan, road.batch, road.rules, look_up, duplicates, road.index, road.found)
    if note := late_note(road.con, tagged, road.rules, duplicates):
        road.notes.append(note)
    return tagged


def _write_files(road: Road, planned: Planned, txn: Transaction) -> list[WriteStat]:
    now, plan, targets = planned.now, planned.plan, planned.targets
    partial = FULL
    if road.settings.partial_updates and road.changed is not None and targets:
        partial = partial_blocks(road.con, plan, road.rules, road.changed, targets)
    with stream(road, planned, txn) as rows:
        if rows is None:
            return []
        work = job(txn, now, planned.slices, road.settings, _folds(road, plan, targets), road.rules.combine, partial)
        with closing(by_target(road.con, rows)) as pieces:
            return write_targets(work, targets, pieces)


@contextmanager
def stream(road: Road, planned: Planned, txn: Transaction) -> Iterator[Stream | None]:
    """The rows of all targets, in the order of these, while their partitions are made; None when no file is to write."""
    plan, tagged, targets = planned.plan, planned.tagged, planned.targets
    for partition in sorted({t.partition for t in targets if t.kind == CREATE}):
        commit.prepare_partition(txn, partition)
    if not targets:
        yield None
        return
    if tagged.resolved and road.rules.merge.merger is not None:
        give_back(road.con, [t.slice_no for t in targets if t.kind == APPEND and t.slice_no is not None])
    by_key = road.settings.bulk_insert_sorts and road.verb.operation == "BULK_INSERT"
    names, ords = planned.now.schema.names, ordering_columns(plan)
    held, hashed = road.batch.held, road.rules.combine
    with rows_of(
        road.con, names, ords, targets, tagged.looked_up, txn.instant, by_key, tagged.resolved, hashed, held
    ) as rows:
        yield rows


def _folds(road: Road, plan: read.ReadPlan, targets: Sequence[Target]) -> dict[int, tuple[deltas.Batch, int]]:
    """What the logs of the slices do whose base files are rewritten."""
    logged = [n for t in targets if t.kind == REWRITE and (n := t.slice_no) is not None and plan.slices[n].logs]
    return dict(zip(logged, deltas.prepare(road.con, plan.view, [plan.slices[n] for n in logged]), strict=True))


def _replaced(road: Road, plan: read.ReadPlan) -> dict[str, list[str]]:
    """Partition path -> ids of the file groups that a replacecommit takes out: all visible ones (hudi-format 10.6)."""
    if not road.verb.replaces:
        return {}
    chosen = {*road.batch.partitions, *road.partitions}
    gone: dict[str, list[str]] = {}
    for one in plan.slices:
        if road.verb.replaces == "table" or one.partition in chosen:
            gone.setdefault(one.partition, []).append(one.file_id)
    return gone


def _rows_in(road: Road, plan: read.ReadPlan, replaced: Mapping[str, Sequence[str]]) -> int:
    """How many rows the replaced groups hold."""
    groups = {(partition, file_id) for partition, ids in replaced.items() for file_id in ids}
    numbers = [n for n, s in enumerate(plan.slices) if s.group in groups]
    if not numbers:
        return 0
    live = f"SELECT count(*) FROM ({read.keys_sql(road.con, plan, numbers)}) WHERE live"
    return int(road.con.execute(live).fetchall()[0][0])
