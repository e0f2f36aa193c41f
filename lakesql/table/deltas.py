"""What log files do to base files: dead positions, live rows and tombstones of file slices, computed once and kept.

A slice (base file and fixed log files) never changes, so neither does its delta. Slices that are asked for and not
known yet are decoded in batches bounded by log bytes, merged by one query, and written to three Parquet files in a
private temporary folder:

    dead   slot INTEGER, row_no BIGINT                    base rows that a log record replaced or deleted
    live   slot INTEGER, then the table's columns         log records that survive
    tombs  slot INTEGER, key VARCHAR, ord_0 ...           deletes that survive; null ordering = commit-time delete

Matching base rows by position costs one key join per slice ever, not one per query (duckdb notes 1.4). When a key is
twice in one base file only its first row is merged, as Hudi's own reader does.
"""

import atexit
import itertools
import shutil
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakesql.errors import TableError
from lakesql.format.files import FileSlice
from lakesql.table import merge
from lakesql.table.evolution import Evolution
from lakesql.table.keys import record_key_sql
from lakesql.table.known_settings import known_settings
from lakesql.table.logs import LogPart, read_log_parts
from lakesql.table.names import quote
from lakesql.table.scan import scan_sql
from lakesql.table.state import TableState

BATCH_LOG_BYTES = 48 << 20
CACHE_BYTES = 4 << 30

Cursor = duckdb.DuckDBPyConnection


@dataclass(frozen=True, slots=True)
class Batch:
    """The deltas of some slices in three files; `number` makes batches distinct."""

    number: int
    dead: str
    live: str
    tombs: str
    slots: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class View:
    """What of a table is read, as far as deltas depend on it."""

    state: TableState
    as_of: str | None
    schema: pa.Schema  # with the meta columns
    evolved: Evolution | None

    def ordering_fields(self) -> list[str]:
        """Ordering fields of the table, those that the schema has."""
        return [f for f in self.state.config.ordering_fields if f in self.schema.names]

    def ordering_types(self) -> list[pa.DataType]:
        return [self.schema.field(f).type for f in self.ordering_fields()]


_numbers = itertools.count()
_cache: OrderedDict[tuple[Any, ...], tuple[Batch, int]] = OrderedDict()
_lock = threading.Lock()
_folder: Path | None = None


def prepare(cur: Cursor, view: View, slices: Sequence[FileSlice]) -> list[tuple[Batch, int]]:
    """The batch and the slot in it for each slice. Slices without logs are not asked for."""
    keys = [_identity(view, s) for s in slices]
    with _lock:
        for chunk in _chunks([i for i, k in enumerate(keys) if k not in _cache], slices):
            batch = _build(cur, view, [slices[i] for i in chunk])
            for slot, i in enumerate(chunk):
                _cache[keys[i]] = batch, slot
        found = []
        for key in keys:
            _cache.move_to_end(key)
            found.append(_cache[key])
        _evict({batch.number for batch, _ in found})
    return found


def _chunks(missing: list[int], slices: Sequence[FileSlice]) -> list[list[int]]:
    chunks: list[list[int]] = []
    size = 0
    for i in missing:
        log_bytes = sum(log.size_bytes for log in slices[i].logs)
        if not chunks or size + log_bytes > BATCH_LOG_BYTES:
            chunks.append([])
            size = 0
        chunks[-1].append(i)
        size += log_bytes
    return chunks


def _identity(view: View, file_slice: FileSlice) -> tuple[Any, ...]:
    state = view.state
    visibility: tuple[Any, ...] = ()
    if state.config.version < 8:  # blocks, not files, are committed or not
        committed = tuple(i.requested for i in state.timeline.completed_writes())
        visibility = (view.as_of, state.timeline.start, committed)
    logs = tuple((log.name, log.size_bytes) for log in file_slice.logs)
    base = file_slice.base.name if file_slice.base else None
    names = tuple(sorted(view.evolved.latest.items())) if view.evolved else None
    config = state.config
    rule = (config.merge_mode, config.ordering_fields, config.delete_field, config.delete_marker)
    schema = view.schema.serialize().to_pybytes()
    return (
        state.path,
        config.name,
        file_slice.partition,
        file_slice.file_id,
        base,
        logs,
        visibility,
        rule,
        names,
        schema,
    )


def _evict(in_use: set[int]) -> None:
    """Drop the batches used longest ago, all their slices at once, while the folder is too large."""
    sizes = {batch.number: batch.size_bytes for batch, _ in _cache.values()}
    total = sum(sizes.values())
    for batch, _ in list(_cache.values()):
        if total <= CACHE_BYTES:
            return
        if batch.number in in_use or batch.number not in sizes:
            continue
        total -= sizes.pop(batch.number)
        for key in [k for k, (b, _) in _cache.items() if b.number == batch.number]:
            del _cache[key]
        for path in (batch.dead, batch.live, batch.tombs):
            Path(path).unlink(missing_ok=True)


def _temporary_folder() -> Path:
    global _folder
    if _folder is None or not _folder.exists():
        _folder = Path(tempfile.mkdtemp(prefix="lakesql-"))
        atexit.register(shutil.rmtree, _folder, ignore_errors=True)
    return _folder


def _build(cur: Cursor, view: View, slices: Sequence[FileSlice]) -> Batch:
    state = view.state
    types = view.ordering_types()
    parts = [
        (slot, part)
        for slot, s in enumerate(slices)
        for part in read_log_parts(state, s, view.as_of, view.schema, types, view.evolved)
    ]
    rows = _concat([part.rows for _, part in parts if part.rows is not None], view.schema)
    number = next(_numbers)
    dead, live, tombs = (str(_temporary_folder() / f"{kind}{number}.parquet") for kind in ("dead", "live", "tombs"))
    size = 0
    with known_settings(cur):
        merged = _merge(cur, view, slices, parts, rows)
    for path, table in zip((dead, live, tombs), merged, strict=True):
        pq.write_table(table, path, compression="none")
        size += Path(path).stat().st_size
    return Batch(number, dead, live, tombs, len(slices), size)


def _concat(tables: list[pa.Table], schema: pa.Schema) -> pa.Table:
    return pa.concat_tables(tables) if tables else schema.empty_table()


def _merge(
    cur: Cursor, view: View, slices: Sequence[FileSlice], parts: list[tuple[int, LogPart]], rows: pa.Table
) -> tuple[pa.Table, pa.Table, pa.Table]:
    """dead, live and tombs of the slices."""
    n = len(view.ordering_types())
    records = _log_records(cur, view, parts, rows)
    if not records.num_rows:
        return _no_dead(), _with_slot(pa.array([], pa.int32()), rows.slice(0, 0)), _no_tombs(view)
    mode = merge.require_supported(view.state.config, view.state.path)
    voided = pc.any(pc.equal(records["kind"], merge.COMMIT_TIME_DELETE)).as_py()
    cur.register("__lakesql_log", records)
    try:
        cur.execute(
            "CREATE OR REPLACE TEMP TABLE __lakesql_winners AS "
            + merge.winners_sql(mode, n, "__lakesql_log", bool(voided))
        )
        matched = cur.sql(_matched_sql(view, slices, mode, n)).to_arrow_table()
        winners = cur.sql("SELECT * FROM __lakesql_winners ORDER BY slot, seq").to_arrow_table()
        partial = {number: part.missing for number, (_, part) in enumerate(parts) if part.missing}
        lost = matched.filter(matched["base_survives"])["seq"]
        winners = winners.filter(pc.invert(pc.is_in(winners["seq"], value_set=lost.combine_chunks())))
        dead = matched.filter(pc.invert(matched["base_survives"])).select(["slot", "row_no"])
        live = winners.filter(pc.equal(winners["kind"], merge.UPSERT))
        tombs = winners.filter(pc.not_equal(winners["kind"], merge.UPSERT))
        kept = rows.take(pc.take(records["row"], live["seq"]))
        if partial:
            kept = _fill_partial(cur, view, slices, mode, live, matched, kept, rows, partial)
    finally:
        cur.execute("DROP TABLE IF EXISTS __lakesql_winners")
        cur.unregister("__lakesql_log")
    return dead, _with_slot(live["slot"], kept), tombs.select(["slot", "key", *(f"ord_{i}" for i in range(n))])


def _log_records(cur: Cursor, view: View, parts: list[tuple[int, LogPart]], rows: pa.Table) -> pa.Table:
    """The relation that `table.merge` works on, and `row`: the index in `rows` (null for deletes)."""
    keys = _row_keys(cur, view, rows)
    kinds = _row_kinds(view, rows)
    fields = view.ordering_fields()
    tables, first, seq = [], 0, 0
    for number, (slot, part) in enumerate(parts):
        if part.rows is not None:
            count = part.rows.num_rows
            span = rows.slice(first, count)
            columns = {"key": keys.slice(first, count), "kind": kinds.slice(first, count)}
            columns |= {f"ord_{i}": span[f] for i, f in enumerate(fields)}
            index = pa.array(np.arange(first, first + count))
            first += count
        else:
            deletes = part.deletes
            assert deletes is not None
            count = deletes.num_rows
            kind = pc.if_else(deletes["commit_time_delete"], merge.COMMIT_TIME_DELETE, merge.DELETE).cast(pa.int8())
            columns = {"key": deletes["record_key"], "kind": kind}
            columns |= {f"ord_{i}": deletes[f"ord_{i}"] for i in range(len(fields))}
            index = pa.nulls(count, pa.int64())
        head = {
            "slot": pa.repeat(pa.scalar(slot, pa.int32()), count),
            "seq": pa.array(np.arange(seq, seq + count)),
            "part": pa.repeat(pa.scalar(number, pa.int32()), count),
            "row": index,
        }
        seq += count
        tables.append(pa.table(head | columns))
    return pa.concat_tables(tables) if tables else pa.table({"seq": pa.array([], pa.int64())})


def _row_keys(cur: Cursor, view: View, rows: pa.Table) -> pa.ChunkedArray:
    if view.state.config.meta_fields:
        keys = rows["_hoodie_record_key"]
    else:
        cur.register("__lakesql_rows", rows)
        try:
            keys = cur.sql(f"SELECT {key_sql(view)} AS key FROM __lakesql_rows").to_arrow_table()["key"]
        finally:
            cur.unregister("__lakesql_rows")
    if keys.null_count:
        raise TableError(
            f"{view.state.path}: {keys.null_count} log records have no record key. Compact the table with Spark."
        )
    return keys


def key_sql(view: View) -> str:
    """The record key of a base row: stored, or computed where meta columns are not stored."""
    config = view.state.config
    return quote("_hoodie_record_key") if config.meta_fields else record_key_sql(config, view.state.schema)


def _row_kinds(view: View, rows: pa.Table) -> pa.ChunkedArray:
    """UPSERT, or DELETE for rows that say of themselves that they are deletes (hudi-format 5.2)."""
    config = view.state.config
    deleted = pa.chunked_array([pa.repeat(pa.scalar(False), rows.num_rows)])
    if "_hoodie_is_deleted" in rows.column_names and rows.schema.field("_hoodie_is_deleted").type == pa.bool_():
        deleted = pc.or_(deleted, pc.fill_null(rows["_hoodie_is_deleted"], False))
    if config.delete_field and config.delete_marker is not None and config.delete_field in rows.column_names:
        marked = pc.equal(rows[config.delete_field].cast(pa.string()), config.delete_marker)
        deleted = pc.or_(deleted, pc.fill_null(marked, False))
    if "_hoodie_operation" in rows.column_names:
        deleted = pc.or_(deleted, pc.fill_null(pc.is_in(rows["_hoodie_operation"], pa.array(["D", "-U"])), False))
    fields = view.ordering_fields()
    unordered = pc.is_null(rows[fields[0]]) if fields else pa.chunked_array([pa.repeat(pa.scalar(True), rows.num_rows)])
    kind = pc.if_else(unordered, merge.COMMIT_TIME_DELETE, merge.DELETE)
    return pc.if_else(deleted, kind, merge.UPSERT).cast(pa.int8())


def _matched_sql(view: View, slices: Sequence[FileSlice], mode: merge.MergeMode, n: int) -> str:
    """slot, row_no, seq, base_survives: the first base row of each key that a surviving log record has."""
    based = [slot for slot, s in enumerate(slices) if s.base is not None]
    if not based:
        return "SELECT 0::INTEGER AS slot, 0::BIGINT AS row_no, 0::BIGINT AS seq, false AS base_survives WHERE false"
    key_columns = ["_hoodie_record_key"] if view.state.config.meta_fields else list(view.state.config.record_key_fields)
    fields = view.ordering_fields()
    columns = list(dict.fromkeys([*key_columns, *fields]))
    files = [s.base for s in slices if s.base is not None]
    scan = scan_sql(view.state, files, view.schema, columns, view.evolved, positions=True)
    slot = "file_index" if based == list(range(len(based))) else f"({based}::INTEGER[])[file_index + 1]"
    values = ", ".join(f"{quote(f)} AS ord_{i}" for i, f in enumerate(fields))
    base = f"SELECT {slot} AS slot, row_no, {key_sql(view)} AS key{', ' + values if n else ''} FROM ({scan})"
    return f"""
        SELECT w.slot, arg_min(b.row_no, b.row_no) AS row_no, w.seq,
               arg_min({mode.base_survives(n, "b", "w")}, b.row_no) AS base_survives
        FROM ({base}) b JOIN __lakesql_winners w ON b.key = w.key AND b.slot = w.slot
        GROUP BY w.slot, w.seq"""


def _fill_partial(
    cur: Cursor,
    view: View,
    slices: Sequence[FileSlice],
    mode: merge.MergeMode,
    live: pa.Table,
    matched: pa.Table,
    kept: pa.Table,
    rows: pa.Table,
    partial: dict[int, frozenset[str]],
) -> pa.Table:
    """`kept` with the columns that IS_PARTIAL records leave out taken from older log records, then from the base row.

    Among the records that no surviving delete makes void, each column comes from the highest-ranking one that has it
    (hudi-format 5.4).
    """
    incomplete = pc.is_in(live["part"], value_set=pa.array(list(partial), pa.int32()))
    if not pc.any(incomplete).as_py():
        return kept
    n = len(view.ordering_types())
    columns = sorted(frozenset().union(*partial.values()))
    cur.register("__lakesql_data", rows.select(columns).append_column("row", pa.array(np.arange(rows.num_rows))))
    cur.register(
        "__lakesql_wanted",
        live.select(["slot", "key", "seq"]).append_column("at", pa.array(np.arange(live.num_rows))).filter(incomplete),
    )
    cur.register("__lakesql_matched", matched)
    files = [s.base for s in slices if s.base is not None]
    based = [slot for slot, s in enumerate(slices) if s.base is not None]
    scan = scan_sql(view.state, files, view.schema, columns, view.evolved, positions=True)
    lacking = {c: [p for p, missing in partial.items() if c in missing] for c in columns}
    picks, values = [], []
    for i, c in enumerate(columns):
        has = f"c.part NOT IN ({', '.join(map(str, lacking[c]))})"
        picks.append(f"arg_max_null({{'v': d.{quote(c)}}}, {mode.rank(n, 'c')}) FILTER (WHERE {has}) AS v{i}")
        values.append(f"CASE WHEN f.v{i} IS NOT NULL THEN f.v{i}.v ELSE b.{quote(c)} END AS {quote(c)}")
    source = mode.candidates("__lakesql_log")
    sql = f"""
        WITH c AS ({source}),
        floor AS (SELECT slot, key, max({mode.rank(n, "c")}) AS floor FROM c WHERE kind <> {merge.UPSERT} GROUP BY slot, key),
        f AS (SELECT w.slot, w.seq, w.at, {", ".join(picks)}
              FROM __lakesql_wanted w JOIN c ON c.slot = w.slot AND c.key = w.key
              LEFT JOIN floor ON floor.slot = w.slot AND floor.key = w.key
              JOIN __lakesql_data d ON d.row = c.row
              WHERE c.kind = {merge.UPSERT} AND (floor.floor IS NULL OR {mode.rank(n, "c")} > floor.floor)
              GROUP BY w.slot, w.seq, w.at),
        b AS (SELECT m.seq, s.* EXCLUDE (file_index, row_no)
              FROM ({scan}) s JOIN __lakesql_matched m ON m.slot = ({based}::INTEGER[])[s.file_index + 1] AND m.row_no = s.row_no)
        SELECT f.at, {", ".join(values)} FROM f LEFT JOIN b ON b.seq = f.seq ORDER BY f.at"""
    try:
        filled = cur.sql(sql).to_arrow_table()
    finally:
        for name in ("__lakesql_data", "__lakesql_wanted", "__lakesql_matched"):
            cur.unregister(name)
    mask = incomplete.combine_chunks() if isinstance(incomplete, pa.ChunkedArray) else incomplete
    for c in columns:
        at = kept.column_names.index(c)
        both = pa.chunked_array([*kept[c].chunks, *filled[c].cast(kept[c].type).chunks], kept[c].type)
        order = pc.if_else(
            mask,
            pc.add(pc.cumulative_sum(mask.cast(pa.int64())), kept.num_rows - 1),
            pa.array(np.arange(kept.num_rows)),
        )
        kept = kept.set_column(at, kept.field(c), both.take(order))
    return kept


def _with_slot(slots: Any, rows: pa.Table) -> pa.Table:
    return rows.add_column(0, pa.field("slot", pa.int32()), slots.cast(pa.int32()))


def _no_dead() -> pa.Table:
    return pa.table({"slot": pa.array([], pa.int32()), "row_no": pa.array([], pa.int64())})


def _no_tombs(view: View) -> pa.Table:
    fields = [pa.field("slot", pa.int32()), pa.field("key", pa.string())]
    fields += [pa.field(f"ord_{i}", t) for i, t in enumerate(view.ordering_types())]
    return pa.schema(fields).empty_table()
