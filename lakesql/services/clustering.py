"""Clustering: small or unsorted file groups become few sorted ones; the rows stay what they are.

    schedule    under the table's lock: choose file slices, put a plan on the timeline
    run         start under the lock, write the new file groups without it, complete under the lock

The plan's slices are read merged, base files and logs, by the query of a snapshot read; DuckDB sorts, within its memory
limit, and the rows stream into the files of one group after the other. Every row keeps its meta columns but the file
name, so incremental reads do not take clustered rows for changes. Before the commit the rows of each group are counted
and hashed by key and origin, before and after. A write that came between makes the plan worthless: it is rolled back.
Attempts of dead runners are taken back and run again. Tables with a bucket index are refused, their file ids are fixed.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import duckdb
import pyarrow as pa

from lakesql.counted import counted
from lakesql.errors import CommitConflict, CommitUnknown, TableError, Unsupported
from lakesql.format.files import FileSlice
from lakesql.format.metadata import WriteStat, encode_commit, encode_record
from lakesql.format.timeline import REQUESTED, Instant, instant_file_name
from lakesql.services.action import (
    Look,
    complete,
    give_up,
    looking,
    planned,
    request,
    room_named,
    running,
    start,
    take_back,
    without_metadata_table,
)
from lakesql.services.clustering_plan import (
    BY_FIELD,
    FILTER_MODE,
    LAYOUT,
    PARTITIONS,
    SELECTED,
    SORT_COLUMNS,
    ClusteringConfig,
    Plan,
    PlannedSlice,
    chosen_partitions,
    groups_of,
    plan_of,
    record_of,
)
from lakesql.services.clustering_write import Work, write_group
from lakesql.services.curves import LINEAR, MAX_COLUMNS, sortable
from lakesql.storage import Storage
from lakesql.table import read
from lakesql.table.clock import Clock, system_clock
from lakesql.table.damaged import damage_named
from lakesql.table.interrupts import interrupts
from lakesql.table.known_settings import known_settings
from lakesql.table.state import TableState, load
from lakesql.values import Parse, parsed
from lakesql.write import commit, new_file_id
from lakesql.write.index import is_bucketed
from lakesql.write.pending import CLUSTERING, roll_back
from lakesql.write.settings import WriteConfig
from lakesql.write.undo import is_clustering

__all__ = [
    "LAYOUT",
    "SETTINGS",
    "SORT_COLUMNS",
    "ClusteringResult",
    "Listed",
    "after_write",
    "cluster",
    "due",
    "due_apart",
    "listed",
    "of_partitions",
    "pending",
    "run",
    "schedule",
    "sentence",
]

SETTINGS: dict[str, Parse] = dict(BY_FIELD.values())
_OPERATION = "CLUSTER"


@dataclass(frozen=True, slots=True)
class ClusteringResult:
    """What a run did."""

    instant: str
    completed: str
    groups_replaced: int
    files_written: int
    rows: int
    bytes_written: int
    partitions: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Listed:
    """A clustering on the timeline, for people to look at."""

    instant: str
    state: str
    groups: int
    partitions: tuple[str, ...]


def config_of(settings: Mapping[str, str]) -> ClusteringConfig:
    """The settings of a clustering, parsed. TableError names one that cannot be."""
    return parsed(ClusteringConfig, BY_FIELD, settings)


def of_partitions(partitions: Collection[str] | None) -> dict[str, str]:
    """The settings by which only these partitions are planned; None means all."""
    return {} if partitions is None else {FILTER_MODE: SELECTED, PARTITIONS: ",".join(sorted(partitions))}


def cluster(
    con: duckdb.DuckDBPyConnection, storage: Storage, settings: Mapping[str, str], clock: Clock = system_clock
) -> list[ClusteringResult]:
    """Plan a clustering of the file groups that no plan names yet, and run it and every plan that is pending."""
    schedule(storage, settings, clock)
    return [run(con, storage, settings, instant, clock) for instant in pending(load(storage))]


def schedule(storage: Storage, settings: Mapping[str, str], clock: Clock = system_clock) -> str | None:
    """Plan a clustering; its instant, None when no file group is worth it.

    Unsupported or TableError for tables and sort columns that cannot be, CommitConflict while another engine writes.
    """
    config = config_of(settings)
    with looking(storage, settings, clock) as look:
        _require_clusterable(look.state, look.settings, config)
        hour = datetime.fromtimestamp(clock() / 1000, look.zone).hour
        slices = _free(look.state)
        partitions = chosen_partitions({s.partition for s in slices}, config, hour)
        assumed = look.settings.max_file_bytes
        groups = groups_of(slices, config, partitions, assumed)
        if not groups:
            return None
        record = record_of(groups, config, look.state.path, assumed)
        return request(
            look, _word(look.state), _OPERATION, encode_record("HoodieRequestedReplaceMetadata", record)
        ).instant


def run(
    con: duckdb.DuckDBPyConnection,
    storage: Storage,
    settings: Mapping[str, str],
    instant: str,
    clock: Clock = system_clock,
    ids: Callable[[], str] = new_file_id,
) -> ClusteringResult:
    """Carry a plan out, ours or another engine's. `con` is a connection of its own, in UTC.

    TableError when there is no such plan. CommitConflict when somebody else runs it, or when its file groups have
    changed: then the plan is rolled back.
    """
    config = config_of(settings)
    with running(storage, CLUSTERING):
        with looking(storage, settings, clock) as look:
            work = _begun(con, look, instant, config, ids)
        try:
            with room_named(work.txn, CLUSTERING), damage_named(work.state), interrupts(), known_settings(con):
                stats = [s for number in range(len(work.plan.groups)) for s in write_group(work, number)]
            with looking(storage, settings, clock) as look:
                completed = _completed(work, look, stats)
        except CommitUnknown:
            raise
        except BaseException:
            give_up(work.txn, work.paths)
            raise
    if note := commit.finish(work.txn):
        work.notes.append(note)
    return ClusteringResult(
        instant,
        completed,
        len(work.plan.inputs),
        len(stats),
        sum(s.num_writes or 0 for s in stats),
        sum(s.file_size_in_bytes or 0 for s in stats),
        work.plan.partitions,
        tuple(work.notes),
    )


def due(state: TableState, commits: int) -> bool:
    """Whether so many writes have completed since the newest clustering, done or planned."""
    last = max((i.requested for i in _clusterings(state)), default="")
    return sum(i.requested > last for i in state.timeline.completed_writes()) >= commits


def due_apart(state: TableState, settings: Mapping[str, str]) -> bool:
    """Whether a process beside the writers should cluster now: a plan is pending, or enough writes have completed."""
    return bool(pending(state)) or due(state, config_of({**state.config.properties, **settings}).async_commits)


def after_write(
    con: duckdb.DuckDBPyConnection, storage: Storage, settings: Mapping[str, str], clock: Clock = system_clock
) -> list[str]:
    """Inline clustering: run what is pending, then plan (and run) a new one when enough writes have completed."""
    config = config_of(settings)
    if not config.inline and not config.inline_schedule:
        return []
    notes = []
    if config.inline:
        notes = [sentence(run(con, storage, settings, i, clock)) for i in pending(load(storage))]
    if due(load(storage), config.inline_commits) and (instant := schedule(storage, settings, clock)):
        if not config.inline:
            return [f"Scheduled clustering {instant}."]
        notes.append(sentence(run(con, storage, settings, instant, clock)))
    return notes


def pending(state: TableState) -> list[str]:
    """The instants of the clusterings that are planned and not complete, oldest first."""
    return [i.requested for i in _clusterings(state) if not i.is_completed]


def listed(state: TableState) -> list[Listed]:
    """The clusterings of the active timeline, newest first."""
    found = []
    for instant in reversed(_clusterings(state)):
        groups = (state.plan(instant, _plan_file(state, instant)).get("clusteringPlan") or {}).get("inputGroups") or []
        partitions = {s.get("partitionPath") or "" for group in groups for s in group.get("slices") or ()}
        found.append(Listed(instant.requested, instant.state, len(groups), tuple(sorted(partitions))))
    return found


def sentence(result: ClusteringResult) -> str:
    """What a run did, for people."""
    return (
        f"Clustering {result.instant} made {counted(result.files_written, 'file group')} of {result.groups_replaced} "
        f"({counted(result.rows, 'row')})."
    )


def _clusterings(state: TableState) -> list[Instant]:
    return [
        i
        for i in state.timeline.instants
        if (i.action == "clustering" and _plan_file(state, i) in state.instant_files) or is_clustering(state, i)
    ]


def _word(state: TableState) -> str:
    """The action as the timeline of the table calls it before it is complete."""
    return "replacecommit" if state.config.layout == 1 else "clustering"


def _plan_file(state: TableState, instant: Instant) -> str:
    return instant_file_name(instant.requested, instant.action, REQUESTED, state.config.layout)


def _require_clusterable(state: TableState, settings: WriteConfig, config: ClusteringConfig) -> None:
    if is_bucketed(state, settings):
        raise Unsupported(
            f"{state.path}: the table has a bucket index: the hash of a key says which file group holds it, and "
            "clustering would move rows to groups of other ids. Nothing was planned. Compact the table instead."
        )
    _require_columns(state.path, read.columns(state), config.sort_columns, config.layout)


def _require_columns(where: str, schema: pa.Schema, columns: Sequence[str], layout: str) -> None:
    for column in columns:
        if column not in schema.names:
            raise TableError(f"{where}: no column {column} to sort by; the table has {', '.join(schema.names[5:])}.")
        if not sortable(schema.field(column).type):
            raise TableError(f"{where}: column {column} is a {schema.field(column).type}, whose values have no order.")
    if layout != LINEAR and len(columns) > MAX_COLUMNS:
        raise TableError(f"{where}: {layout} takes at most {MAX_COLUMNS} columns, given are {len(columns)}.")
    if layout != LINEAR and not columns:
        raise TableError(f"{where}: {layout} needs columns to sort by; give order, or set the sort columns.")


def _free(state: TableState) -> list[FileSlice]:
    """The latest slices of the file groups that no pending plan names."""
    taken = {*state.pending_compactions, *state.pending_clustering}
    for instant in state.timeline.pending("logcompaction"):
        plan = state.plan(instant, f"{instant.requested}.logcompaction.requested")
        taken |= {(o["partitionPath"] or "", o["fileId"]) for o in plan.get("operations") or ()}
    return [s for s in state.slices() if s.group not in taken]


def _begun(
    con: duckdb.DuckDBPyConnection, look: Look, requested: str, config: ClusteringConfig, ids: Callable[[], str]
) -> Work:
    """Take over, check and start a plan. The table's lock must be held."""
    state = look.state
    instant = next((i for i in _clusterings(state) if i.requested == requested), None)
    if instant is None or instant.is_completed:
        raise TableError(f"{state.path}: there is no pending clustering {requested}; CALL show_clustering lists them.")
    txn = planned(state, instant, _OPERATION)
    plan = plan_of(state.plan(instant, _plan_file(state, instant)), f"{state.path}: clustering {requested}")
    assert plan is not None, "_clusterings are instants with a plan"
    if is_bucketed(state, look.settings):
        raise Unsupported(f"{state.path}: the table has a bucket index; run clustering {requested} with Spark.")
    layout = (plan.layout or config.layout) if plan.sort_columns else LINEAR
    _require_columns(state.path, read.columns(state), plan.sort_columns, layout)
    state = take_back(state, txn, look.clock)
    look, note = without_metadata_table(replace(look, state=state))
    reading = read.plan(look.state)
    changed = _changed(plan, reading)
    if changed is not None:
        _give_way(look, txn.instant, f"file group {changed.file_id} has changed since it was planned")
    start(txn)
    return Work(
        con,
        txn,
        look.state,
        plan,
        reading,
        plan.sort_columns,
        layout,
        plan.method or config.method,
        look.settings,
        ids,
        [note] if note else [],
    )


def _changed(plan: Plan, reading: read.ReadPlan) -> PlannedSlice | None:
    """An input whose latest slice is not the planned one."""
    now = {s.group: _file_names(s) for s in reading.slices}
    every = (one for slices, _ in plan.groups for one in slices)
    return next((one for one in every if now.get((one.partition, one.file_id)) != one.files), None)


def _file_names(one: FileSlice) -> frozenset[str]:
    return frozenset([*([one.base.name] if one.base else []), *(log.name for log in one.logs)])


def _give_way(look: Look, requested: str, why: str) -> None:
    """Roll the plan back and say so. The table's lock must be held."""
    state = look.state
    instant = next(i for i in state.timeline.pending() if i.requested == requested)
    roll_back(state, instant, look.clock, look.zone)
    raise CommitConflict(
        f"{state.path}: clustering {requested} gives way: {why}. Nothing was committed and the plan was rolled back. "
        "Schedule a new one."
    )


def _completed(work: Work, look: Look, stats: Sequence[WriteStat]) -> str:
    """Complete the clustering unless a write got in between. The table's lock must be held."""
    try:
        commit.refuse_overlap(work.state, look.state, work.plan.inputs, work.txn.instant)
    except CommitConflict as conflict:
        _give_way(look, work.txn.instant, str(conflict))
    look, note = without_metadata_table(look)
    if note:
        work.notes.append(note)
    replaced: dict[str, list[str]] = {}
    for slices, _ in work.plan.groups:
        for one in slices:
            replaced.setdefault(one.partition, []).append(one.file_id)
    schema = json.dumps(look.state.avro, separators=(",", ":"))
    metadata = commit.metadata_of(work.txn, look.state, stats, schema, {}, replaced)
    return complete(work.txn, look, encode_commit(metadata, version=look.state.config.version, replace=True))
