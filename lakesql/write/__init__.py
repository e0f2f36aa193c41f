"""The write path, top to bottom: every change of a table walks this one road.

    batch       the rows, cast, keyed and checked; no lock is held yet, nothing can be written by mistake
    lock        one lakesql writer at a time, from the look at the table until the commit
    undo        what dead writers left is rolled back
    tag         key by key: which file slice holds it, what becomes of the row
    route       which file every row goes to
    begin       requested and inflight instant
    slices      the files and their write stats; the only place where the two table types differ
    complete    one last look at the timeline, then the put that makes it all visible

The operations differ in a row of `verbs.VERBS`. A failure anywhere before the last put removes what was written.
Table services, schema changes and the upkeep of the metadata table are not here.
"""

import json
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import tzinfo

import duckdb

from lakesql.errors import CommitConflict, CommitUnknown, LakeError, TableError
from lakesql.format.metadata import WriteStat
from lakesql.table import read
from lakesql.table.interrupts import interrupts
from lakesql.table.known_settings import INPUT_ORDER, differing, make_known, restored
from lakesql.table.state import TableState, load
from lakesql.write import commit, metadata_table
from lakesql.write.batch import Batch, Rules, materialise
from lakesql.write.check import require_known_index, require_writable
from lakesql.write.clock import Clock, system_clock, timeline_zone
from lakesql.write.create import create
from lakesql.write.plan import BATCH, COPIES, CREATE, FATE, GIVEN, Target
from lakesql.write.result import WriteResult
from lakesql.write.route import Layout, refuse_pending, route_rows
from lakesql.write.settings import WriteConfig, parse_settings
from lakesql.write.sizing import file_sizes
from lakesql.write.slices import job, write_targets
from lakesql.write.stream import rows_of
from lakesql.write.tag import NOTHING, Tagged, ordering_columns, tag_batch
from lakesql.write.transaction import Transaction
from lakesql.write.undo import undo_dead_writes
from lakesql.write.verbs import VERBS, Verb, action_of, rules_of, verb_of

__all__ = ["VERBS", "WriteResult", "create", "write"]

LOCK = "lakesql"


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
    extra: Mapping[str, str] | None = None,
    clock: Clock = system_clock,
    ids: Callable[[], str] = new_file_id,
) -> WriteResult:
    """Write the rows that `rows_sql` gives on `con`.

    Columns by name: the table's (missing ones NULL), optionally `__op` (upsert, insert, delete; NULL: as `operation`
    says), `_hoodie_record_key` and `_hoodie_partition_path` (taken instead of computed ones where not NULL).
    `operation` is a key of VERBS, `settings` have Hudi's names. `partitions`: partition paths that insert_overwrite or
    delete_partition takes out even when no row falls into them. `reads_table`: the rows were computed from `state`: file
    groups that changed since are a conflict, and what happens to a key must be true of all its rows. `extra` goes into extraMetadata of the commit.
    `clock` gives epoch milliseconds, `ids` UUIDs for new file groups.

    Raises TableError (rows and table do not fit), Unsupported, CommitConflict (nothing happened, a retry is safe) and
    CommitUnknown (look at the timeline).
    """
    started, requests = time.perf_counter(), state.storage.requests.total()
    verb, config = verb_of(operation), parse_settings(settings or {})
    require_writable(state)
    with interrupts(), _own_settings(con, rows_sql) as rows_sql:
        rules = replace(rules_of(con, state, verb, config), from_table=reads_table)
        batch = materialise(con, state, rows_sql, rules, settings or {})
        with state.storage.lock(LOCK, config.lock_wait_ms / 1000):
            now, zone, notes = _fresh(state, config, clock)
            road = _Road(con, verb, config, rules, batch, frozenset(partitions), extra or {}, clock, zone, ids, notes)
            result = _walk(road, now, state if reads_table else None)
    return replace(
        result,
        operation=operation,
        duration_s=time.perf_counter() - started,
        requests=state.storage.requests.total() - requests,
        notes=tuple(notes),
    )


@contextmanager
def _own_settings(con: duckdb.DuckDBPyConnection, rows_sql: str) -> Iterator[str]:
    """A query of the given rows that may run under the settings of our SQL; TEMP tables are dropped afterwards.

    Where the user's settings are others, their query runs first, under theirs, so that it means what it says.
    """
    with restored(con):
        try:
            if differing(con):
                make_known(con, INPUT_ORDER)
                con.execute(f"CREATE OR REPLACE TEMP TABLE {GIVEN} AS SELECT * FROM ({rows_sql})").fetchall()
                make_known(con)
                rows_sql = f"SELECT * FROM {GIVEN}"
            yield rows_sql
        finally:
            for name in (GIVEN, BATCH, COPIES, FATE):
                con.execute(f"DROP TABLE IF EXISTS {name}")


@dataclass(frozen=True, slots=True)
class _Road:
    """One call of `write`: what the steps have in common."""

    con: duckdb.DuckDBPyConnection
    verb: Verb
    settings: WriteConfig
    rules: Rules
    batch: Batch
    partitions: frozenset[str]
    extra: Mapping[str, str]
    clock: Clock
    zone: tzinfo
    ids: Callable[[], str]
    notes: list[str] = field(default_factory=list)


def _fresh(state: TableState, settings: WriteConfig, clock: Clock) -> tuple[TableState, tzinfo, list[str]]:
    """The table as it is now, dead writes rolled back; the zone of its instants; what the user should know."""
    now = load(state.storage)
    require_writable(now)
    if not now.schema.equals(state.schema):
        raise CommitConflict(
            f"{state.path}: the table's schema changed while the rows were prepared. Nothing was committed. Run the "
            "statement again."
        )
    zone = timeline_zone(now, settings.timezone)
    undone = undo_dead_writes(now, clock, zone)
    if not undone:
        return now, zone, []
    return load(state.storage), zone, [f"Rolled back the unfinished write {t} of a dead writer." for t in undone]


def _walk(road: _Road, now: TableState, basis: TableState | None) -> WriteResult:
    """Tag, route, write and commit the batch on `now`. `basis`: the state that the rows were computed from."""
    plan = read.plan(now)
    require_known_index(now, plan.slices)
    try:
        tagged = _tagged(road, plan)
    except TableError:
        if basis is not None:  # a change since then may be the reason, and a retry the way out
            commit.refuse_overlap(basis, now, {s.group for s in plan.slices})
        raise
    layout = Layout(
        plan.slices, now.config.is_mor, now.config.version, now.pending_compactions, now.pending_clustering, now.path
    )
    sizes = file_sizes(road.con, now, road.settings, sum(tagged.inserts.values()))
    targets = route_rows(layout, tagged.inserts, tagged.changes, sizes, road.ids, road.verb.new_groups_only)
    replaced = _replaced(road, plan)
    touched = {(t.partition, t.file_id) for t in targets if t.kind != CREATE}
    touched |= {(partition, file_id) for partition, ids in replaced.items() for file_id in ids}
    refuse_pending(layout, touched)
    if basis is not None:
        commit.refuse_overlap(basis, now, touched)
    result = WriteResult(
        instant=None,
        action=None,
        operation="",
        rows_inserted=tagged.rows_inserted,
        rows_updated=tagged.rows_updated,
        rows_deleted=tagged.rows_deleted + _rows_in(road, plan, replaced),
        rows_ignored=tagged.rows_ignored + road.batch.rows_dropped,
    )
    if not targets and not replaced:
        return result
    if note := metadata_table.remove(now, road.clock()):
        road.notes.append(note)
    txn = commit.begin(now, action_of(road.verb, now.config.is_mor), road.verb.operation, road.clock, road.zone)
    try:
        stats = _write_files(road, now, plan, targets, tagged, txn)
        body = commit.metadata_of(txn, stats, json.dumps(now.avro, separators=(",", ":")), road.extra, replaced)
        commit.complete(txn, now, body, touched, road.clock, road.zone)
    except CommitUnknown:
        raise
    except LakeError:
        commit.abort(txn)
        raise
    except BaseException:
        commit.abort(txn, sure=False)  # an interrupt may come just after the put that counts
        raise
    if note := commit.finish(txn):
        road.notes.append(note)
    return replace(
        result,
        instant=txn.instant,
        action=txn.action,
        files_written=len(stats),
        bytes_written=sum(s.file_size_in_bytes or 0 for s in stats),
        partitions_touched=len({*(t.partition for t in targets), *replaced}),
    )


def _tagged(road: _Road, plan: read.ReadPlan) -> Tagged:
    if not road.verb.rows_written:
        return NOTHING
    duplicates = road.settings.duplicates if road.verb.operation == "INSERT" else "none"
    return tag_batch(road.con, plan, road.batch, road.rules, road.verb.look_up or duplicates != "none", duplicates)


def _write_files(
    road: _Road, now: TableState, plan: read.ReadPlan, targets: Sequence[Target], tagged: Tagged, txn: Transaction
) -> list[WriteStat]:
    for partition in sorted({t.partition for t in targets if t.kind == CREATE}):
        commit.prepare_partition(txn, partition)
    if not targets:
        return []
    work = job(txn, now, plan.slices, road.settings, road.rules.event_time)
    with rows_of(road.con, now.schema.names, ordering_columns(plan), targets, tagged.looked_up, txn.instant) as rows:
        return write_targets(road.con, work, targets, rows)


def _replaced(road: _Road, plan: read.ReadPlan) -> dict[str, list[str]]:
    """Partition path -> ids of the file groups that a replacecommit takes out: all visible ones (hudi-format 10.6)."""
    if not road.verb.replaces:
        return {}
    chosen = {*road.batch.partitions, *road.partitions}
    gone: dict[str, list[str]] = {}
    for one in plan.slices:
        if road.verb.replaces == "table" or one.partition in chosen:
            gone.setdefault(one.partition, []).append(one.file_id)
    return gone


def _rows_in(road: _Road, plan: read.ReadPlan, replaced: Mapping[str, Sequence[str]]) -> int:
    """How many rows the replaced groups hold."""
    groups = {(partition, file_id) for partition, ids in replaced.items() for file_id in ids}
    numbers = [n for n, s in enumerate(plan.slices) if s.group in groups]
    if not numbers:
        return 0
    live = f"SELECT count(*) FROM ({read.keys_sql(road.con, plan, numbers)}) WHERE live"
    return int(road.con.execute(live).fetchall()[0][0])
