"""Snapshot, read-optimized, time-travel and incremental reads: first a plan, then one DuckDB query.

A plan names the file slices and nothing else is decided later. The query scans clean base files as they are, scans
base files that have logs without their dead rows (anti join on row positions), and adds the log records that survive
(`table.deltas`). Projections and filters of the surrounding query reach every one of these scans.

    snapshot         hudi-format C.1            time travel   8.2, requested time, inclusive
    read_optimized   base files only            incremental   8.1, (begin, end] in completion time (version 6: instants)
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb
import pyarrow as pa

from lakesql.errors import SQLError, TableError
from lakesql.format.avro import META_COLUMNS, arrow_schema
from lakesql.format.files import BaseFile, FileSlice
from lakesql.format.timeline import Instant, Timeline, normalise_instant
from lakesql.table import deltas, live
from lakesql.table.deltas import Batch
from lakesql.table.evolution import evolution
from lakesql.table.logfold import SLOT, View, key_sql
from lakesql.table.names import literal, literals, quote
from lakesql.table.retained import cleaning_told, is_retained, require_retained, retained_from
from lakesql.table.scan import FILE_NO, ROW_NO, empty_sql, scan_sql, select_sql, takes_more
from lakesql.table.state import TableState

MODES = ("snapshot", "read_optimized")
EARLIEST = ("earliest", "000", "0")
SLICE_NO = "__lakesql_slice_no"
"""A name that no column of a table has."""
_IN_LIST_MAX = 100
_SERVICES = ("COMPACT", "CLUSTER")


@dataclass(frozen=True, slots=True)
class CommitFilter:
    """Rows by `_hoodie_commit_time`: those of `instants`, or all but those of `instants` when `excluded`."""

    instants: tuple[str, ...]
    excluded: bool = False


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The file slices of one read, and what of their rows is wanted."""

    view: View
    mode: str
    slices: tuple[FileSlice, ...]
    commits: CommitFilter | None = None
    kept: dict[tuple[object, ...], Any] | None = field(default=None, compare=False, repr=False)
    """What was made of the plan before; None for one that is used once."""

    @property
    def schema(self) -> pa.Schema:
        return self.view.schema

    def paths(self) -> frozenset[str]:
        """Every file that the read may open."""
        found: frozenset[str] | None = None if self.kept is None else self.kept.get(("paths",))
        if found is None:
            found = frozenset(f.path for s in self.slices for f in (s.base, *s.logs) if f is not None)
            if self.kept is not None:
                self.kept["paths",] = found
        return found


def plan(state: TableState, as_of: str | None = None, mode: str = "snapshot") -> ReadPlan:
    """The slices of a snapshot or read-optimized read, now or as of an instant.

    `as_of`: an instant or a timestamp text (hudi-format 8.2). Raises SQLError for an unknown mode or a text that is no
    time, TableError for a state that has been cleaned away.
    """
    if mode not in MODES:
        raise SQLError(f"{state.path}: mode {mode!r} is unknown; use one of {', '.join(map(repr, MODES))}.")
    if as_of is None and mode == "snapshot":
        return state.kept("snapshot", lambda: _plan(state, None, mode))
    return _plan(state, normalise_instant(as_of) if as_of is not None else None, mode)


def _plan(state: TableState, instant: str | None, mode: str) -> ReadPlan:
    if instant is not None:
        require_retained(state, instant)
    view = _view(state, instant)
    with cleaning_told(state, instant):
        if mode == "read_optimized":
            base = [FileSlice(b.partition, b.file_id, b.instant, b, ()) for b in state.base_files(instant)]
            return ReadPlan(view, mode, tuple(base))
        return ReadPlan(view, mode, tuple(state.slices(instant)), kept={} if instant is None else None)


def plan_incremental(state: TableState, begin: str, end: str | None = None) -> ReadPlan:
    """The latest state of the rows changed in (begin, end].

    `begin`, `end`: completion times (version 6: instants), or `earliest`; the instant of a completed write stands for its
    completion time. Raises SQLError when `begin` is after `end`,
    TableError when the state at `end` has been cleaned away or the table has no meta columns.
    """
    if not state.config.meta_fields:
        raise TableError(
            f"{state.path}: the table stores no meta columns (hoodie.populate.meta.fields=false), so it is not known "
            "which commit changed a row. Compare two snapshots instead."
        )
    timeline = state.history
    low, high = range_times(state, begin, end)
    if low is not None and high is not None and low > high:
        raise SQLError(f"{state.path}: begin {begin} is after end {end}; give the earlier time first.")
    writes = timeline.completed_writes()
    seen = [i for i in writes if high is None or timeline.time_of(i) <= high]
    as_of = None
    if high is not None:
        as_of = max((i.requested for i in seen), default="0")
        _require_end_retained(state, as_of, writes)
    if low is not None:
        _require_known_since(state, low, writes)
    view = _view(state, as_of)
    with cleaning_told(state, as_of):
        slices = state.slices(as_of)
    if low is None:
        later = tuple(i.requested for i in writes if i not in seen)
        return ReadPlan(view, "incremental", tuple(slices), CommitFilter(later, excluded=True))
    chosen = [i for i in seen if timeline.time_of(i) > low and not _is_service(state, i)]
    if not chosen:
        return ReadPlan(view, "incremental", ())
    groups = _touched(state, chosen, seen)
    kept = tuple(s for s in slices if groups is None or (s.partition, s.file_id) in groups)
    return ReadPlan(view, "incremental", kept, CommitFilter(tuple(i.requested for i in chosen)))


def range_times(state: TableState, begin: str, end: str | None = None) -> tuple[str | None, str | None]:
    """The borders of an incremental read as the timeline counts them; None for `earliest` and for no end."""
    low = None if begin.strip().lower() in EARLIEST else _range_time(state.history, begin)
    return low, None if end is None else _range_time(state.history, end)


def _range_time(timeline: Timeline, text: str) -> str:
    """A border of a range; the requested time of a write that the timeline knows means the moment it completed."""
    time = normalise_instant(text)
    writes = timeline.completed_writes()
    if any(timeline.time_of(i) == time for i in writes):
        return time
    return next((timeline.time_of(i) for i in writes if i.requested == time), time)


def _require_end_retained(state: TableState, as_of: str, writes: Sequence[Instant]) -> None:
    earliest = retained_from(state)
    if not is_retained(state, as_of, earliest):
        times = [state.history.time_of(i) for i in writes if i.requested == earliest]
        raise TableError(
            f"{state.path}: the rows as of the end of the range have been cleaned away. "
            f"The earliest end that can still be read is {times[0] if times else earliest}."
        )


def _require_known_since(state: TableState, low: str, writes: Sequence[Instant]) -> None:
    """Instants after `low` must all be known: files older than the first known instant came from archived commits."""
    first = min((i.requested for i in writes), default=None)
    if first is None or low >= first:
        return
    unknown = [f.instant for f in state.files if f.instant < first and f.instant > low]
    if unknown:
        safe = min(state.history.time_of(i) for i in writes)
        raise TableError(
            f"{state.path}: commits after {low} have left the timeline and its archive, so the changes since then are "
            f"not known. The earliest safe start is {safe}; 'earliest' reads everything."
        )


def _is_service(state: TableState, instant: Instant) -> bool:
    if instant.action in ("compaction", "clustering"):
        return True
    return (state.commit(instant).operation or "").upper() in _SERVICES


def _touched(state: TableState, chosen: Sequence[Instant], seen: Sequence[Instant]) -> set[tuple[str, str]] | None:
    """File groups that may hold rows of the chosen commits; None when a commit does not tell."""
    first = min(i.requested for i in chosen)
    movers = [i for i in seen if i.requested > first and _is_service(state, i)]
    groups: set[tuple[str, str]] = set()
    for instant in (*chosen, *movers):
        metadata = state.commit(instant)
        if metadata.operation is None and not metadata.partition_stats:
            return None
        for partition, stats in metadata.partition_stats.items():
            groups.update((partition, s.file_id or "") for s in stats)
    return groups


def _view(state: TableState, as_of: str | None) -> View:
    return View(state, as_of, columns(state, as_of), evolution(state, as_of))


def columns(state: TableState, as_of: str | None = None) -> pa.Schema:
    """What a read gives: the meta columns, then the table's columns. Asks no data file."""
    found = arrow_schema(state.avro if as_of is None else state.avro_as_of(as_of))
    meta = [pa.field(name, pa.string()) for name in META_COLUMNS]
    return pa.schema([*meta, *found])


def to_sql(
    cur: duckdb.DuckDBPyConnection, plan: ReadPlan, columns: Sequence[str] | None = None, alone: bool = False
) -> str:
    """The query that yields the rows of a plan: the meta columns, then the table's columns, or just `columns`.

    `cur` decodes the logs of slices not seen before; the text is valid on every connection of this process.
    `alone`: nobody is about to ask for further columns, so they are left out of what is decoded, too.
    """
    live.note(plan.view.state.path, plan.paths())
    plan.view.state.storage.attach(cur)
    names = list(plan.schema.names if columns is None else columns)
    wanted = names if plan.commits is None or "_hoodie_commit_time" in names else [*names, "_hoodie_commit_time"]
    clean = [s.base for s in plan.slices if s.base is not None and not s.logs and _may_have(plan, s.base)]
    dirty = [i for i, s in enumerate(plan.slices) if s.logs]
    narrow = wanted if alone else None
    placed = deltas.prepare(cur, plan.view, [plan.slices[i] for i in dirty], narrow) if dirty else []
    logged = _by_batch(placed)
    more = [
        b.live
        for b, slots in logged.items()
        if len(slots) == b.slots and takes_more(plan.view.state, plan.view.evolved)
    ]
    selects = []
    if clean or more:
        selects.append(scan_sql(plan.view.state, clean, plan.schema, wanted, plan.view.evolved, more=more))
    selects += _dirty_bases(plan, dirty, placed, wanted)
    for batch, slots in logged.items():
        if batch.live not in more:
            source = select_sql([batch.live], with_slot(plan.schema), [SLOT, *wanted])
            selects.append(
                f"SELECT {_fields('l', wanted)} FROM ({source}) l{_slot_condition(batch, list(slots), SLOT)}"
            )
    sql = " UNION ALL ".join(selects) if selects else empty_sql(plan.schema, wanted)
    if plan.commits is None:
        return sql
    return f"SELECT {', '.join(map(quote, names))} FROM ({sql}) WHERE {_commit_condition(plan.commits)}"


def _commit_condition(commits: CommitFilter) -> str:
    column = quote("_hoodie_commit_time")
    if commits.excluded:
        return f"{column} NOT IN ({', '.join(map(literal, commits.instants))})" if commits.instants else "true"
    if not commits.instants:
        return "false"
    if len(commits.instants) == 1:
        return f"{column} = {literal(commits.instants[0])}"
    low, high = literal(min(commits.instants)), literal(max(commits.instants))
    if len(commits.instants) > _IN_LIST_MAX:
        chosen = f"{column} IN (SELECT unnest({literals(commits.instants)}))"
    else:
        chosen = f"{column} IN ({', '.join(map(literal, commits.instants))})"
    return f"{column} BETWEEN {low} AND {high} AND {chosen}"


def _may_have(plan: ReadPlan, base: BaseFile) -> bool:
    """Whether rows of the wanted commits can be in a base file: its rows are not younger than itself."""
    commits = plan.commits
    return commits is None or commits.excluded or any(instant <= base.instant for instant in commits.instants)


def _dirty_bases(
    plan: ReadPlan, dirty: Sequence[int], placed: Sequence[tuple[Batch, int]], names: Sequence[str]
) -> list[str]:
    """The rows of base files with logs that still count."""
    based = [k for k, i in enumerate(dirty) if (base := plan.slices[i].base) is not None and _may_have(plan, base)]
    if not based:
        return []
    files = [base for k in based if (base := plan.slices[dirty[k]].base) is not None]
    scan = scan_sql(plan.view.state, files, plan.schema, names, plan.view.evolved, positions=True)
    dead = _dead_sql([placed[k] for k in based])
    return [
        f"SELECT {_fields('b', names)} FROM ({scan}) b ANTI JOIN ({dead}) d "
        f"ON b.{FILE_NO} = d.file_index AND b.{ROW_NO} = d.row_no"
    ]


def placed_sql(
    cur: duckdb.DuckDBPyConnection,
    plan: ReadPlan,
    columns: Sequence[str],
    slice_numbers: Sequence[int] | None = None,
) -> str:
    """The rows of a snapshot plan and where they are: SLICE_NO, an index in `plan.slices` | ROW_NO of the base file, NULL
    when the record comes from a log | `columns`."""
    chosen, placed = _prepared(cur, plan, slice_numbers)
    selects = []
    for has_logs in (False, True):
        numbers = [n for n in chosen if plan.slices[n].base is not None and bool(plan.slices[n].logs) == has_logs]
        if not numbers:
            continue
        files = [base for n in numbers if (base := plan.slices[n].base) is not None]
        scan = scan_sql(plan.view.state, files, plan.schema, columns, plan.view.evolved, positions=True)
        scan = f"({scan}) b"
        if has_logs:
            dead = _dead_sql([placed[n] for n in numbers])
            scan += f" ANTI JOIN ({dead}) d ON b.{FILE_NO} = d.file_index AND b.{ROW_NO} = d.row_no"
        number = _renumber(f"b.{FILE_NO}", numbers)
        selects.append(f"SELECT {number} AS {SLICE_NO}, b.{ROW_NO}, {_fields('b', columns)} FROM {scan}")
    for batch, slots in _by_batch(list(placed.values())).items():
        number = _renumber(SLOT, _numbers_of(batch, slots, list(placed)))
        live = select_sql([batch.live], with_slot(plan.schema), [SLOT, *columns])
        condition = _slot_condition(batch, list(slots), SLOT)
        selects.append(f"SELECT {number}, NULL::BIGINT, {_fields('l', columns)} FROM ({live}) l{condition}")
    nothing = f"SELECT 0 AS {SLICE_NO}, * EXCLUDE ({FILE_NO}) FROM ({empty_sql(plan.schema, columns, positions=True)})"
    return " UNION ALL ".join(selects) or nothing


def keys_sql(cur: duckdb.DuckDBPyConnection, plan: ReadPlan, slice_numbers: Sequence[int] | None = None) -> str:
    """Where every record key is: one row per key and slice of a snapshot plan.

    record_key VARCHAR | slice_no INTEGER: index in `plan.slices` | row_no BIGINT: row of the base file, NULL when the
    record comes from a log | live BOOLEAN: the merged view has it; false for a tombstone | ord_0 ...: ordering values
    of the merged record or the tombstone (NULL for a commit-time delete) | own BOOLEAN: the tombstone has the ordering
    value of the row it removed.
    """
    view, config = plan.view, plan.view.state.config
    fields = view.ordering_fields()
    key_columns = ["_hoodie_record_key"] if config.meta_fields else list(config.record_key_fields)
    rows = placed_sql(cur, plan, list(dict.fromkeys([*key_columns, *fields])), slice_numbers)
    ords = "".join(f", {quote(f)} AS ord_{i}" for i, f in enumerate(fields))
    live = (
        f"SELECT {key_sql(view)} AS record_key, {SLICE_NO} AS slice_no, {ROW_NO} AS row_no, true AS live{ords}, "
        f"false AS own FROM ({rows})"
    )
    return " UNION ALL ".join([live, *tombs_sql(cur, plan, slice_numbers)])


def tombs_sql(
    cur: duckdb.DuckDBPyConnection, plan: ReadPlan, slice_numbers: Sequence[int] | None = None
) -> Sequence[str]:
    """The part of `keys_sql` about tombstones, as SELECTs; none where no log has any."""
    _, placed = _prepared(cur, plan, slice_numbers)
    ords = "".join(f", ord_{i}" for i in range(len(plan.view.ordering_fields())))
    selects = []
    for batch, slots in _by_batch(list(placed.values())).items():
        number = _renumber("slot", _numbers_of(batch, slots, list(placed)))
        tombs = f"read_parquet({literal(batch.tombs)}){_slot_condition(batch, list(slots))}"
        selects.append(f"SELECT key, {number}, NULL::BIGINT, false{ords}, own FROM {tombs}")
    return selects


def _prepared(
    cur: duckdb.DuckDBPyConnection, plan: ReadPlan, slice_numbers: Sequence[int] | None
) -> tuple[list[int], dict[int, tuple[Batch, int]]]:
    """The slices chosen, and what the logs of the dirty ones among them do."""
    chosen = list(range(len(plan.slices)) if slice_numbers is None else slice_numbers)
    dirty = [n for n in chosen if plan.slices[n].logs]
    placed = deltas.prepare(cur, plan.view, [plan.slices[n] for n in dirty]) if dirty else []
    return chosen, dict(zip(dirty, placed, strict=True))


def with_slot(schema: pa.Schema) -> pa.Schema:
    """The columns of a batch's file of live rows."""
    return pa.schema([pa.field(SLOT, pa.int32()), *schema])


def _dead_sql(placed: Sequence[tuple[Batch, int]]) -> str:
    """file_index (place in the list of dirty base files) and row_no of the rows that no longer count."""
    selects = []
    for batch, slots in _by_batch(placed).items():
        numbers = _numbers_of(batch, slots, range(len(placed)))
        index = _renumber("slot", numbers)
        selects.append(
            f"SELECT {index} AS file_index, row_no FROM read_parquet({literal(batch.dead)}){_slot_condition(batch, list(slots))}"
        )
    return " UNION ALL ".join(selects)


def _by_batch(placed: Sequence[tuple[Batch, int]]) -> dict[Batch, dict[int, int]]:
    """batch -> slot in it -> place in `placed`."""
    found: dict[Batch, dict[int, int]] = {}
    for place, (batch, slot) in enumerate(placed):
        found.setdefault(batch, {})[slot] = place
    return found


def _numbers_of(batch: Batch, slots: dict[int, int], names: Sequence[int]) -> list[int]:
    return [names[slots[slot]] if slot in slots else -1 for slot in range(batch.slots)]


def _renumber(column: str, numbers: Sequence[int]) -> str:
    if list(numbers) == list(range(len(numbers))):
        return f"{column}::INTEGER"
    return f"({list(numbers)}::INTEGER[])[{column} + 1]"


def _slot_condition(batch: Batch, slots: Sequence[int], column: str = "slot") -> str:
    if len(slots) == batch.slots:
        return ""
    return f" WHERE {column} IN (SELECT unnest({sorted(slots)}::INTEGER[]))"


def _fields(alias: str, names: Sequence[str]) -> str:
    return ", ".join(f"{alias}.{quote(n)}" for n in names) or "1"
