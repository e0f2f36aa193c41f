"""What log files do to base files: dead positions, live rows and tombstones of file slices, computed once and kept.

A slice (base file and fixed log files) never changes, so neither does its delta. Slices that are asked for and not
known yet are decoded in batches bounded by log bytes, merged by one query, and written to three Parquet files in a
private temporary folder:

    dead   slot INTEGER, row_no BIGINT, by BIGINT         base rows that a log record replaced or deleted; by = the number
                                            of the slot's live record that took the place, null when it was deleted
    live   SLOT INTEGER, then the table's columns         log records that survive
    tombs  slot INTEGER, key VARCHAR, ord_0 ..., own BOOLEAN
                                            deletes that survive; null ordering = commit-time delete; own = the ordering
                                            value is that of the row it removed, as unconditional deletes carry it

Matching base rows by position costs one key join per slice ever, not one per query (duckdb notes 1.4), and by a plain
merge mode not even one per process (`outcomes`). When a key is twice in one base file only its first row is merged, as
Hudi's own reader does.

Who needs a delta once, as compaction does, asks `folded`: the same in memory, nothing is kept.
"""

import atexit
import itertools
import os
import shutil
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakesql.errors import TableError
from lakesql.format.files import FileSlice
from lakesql.storage import LocalStorage
from lakesql.stores.calls import in_context
from lakesql.table import lists, merge, mergers, outcomes
from lakesql.table.known_settings import known_settings
from lakesql.table.logfold import LOG, SLOT, View, fold_log, key_sql
from lakesql.table.logs import LogPart, read_log_parts
from lakesql.table.plainfold import applied, decide

BATCH_LOG_BYTES = 48 << 20
ROW_GROUP_ROWS = 131_072
CACHE_BYTES = 4 << 30
LONG_LOG_BYTES = 1 << 20  # of one slice
DECODERS = min(8, os.cpu_count() or 1)
FETCHERS = 16
"""Slices whose logs are fetched from an object store at a time."""
FORMAT = 1
"""Of what an outcome on disk means; a new number when merging changes."""

IS_DELETED, OPERATION = "_hoodie_is_deleted", "_hoodie_operation"
"""Columns by which a row says of itself that it is a delete."""

Cursor = duckdb.DuckDBPyConnection


@dataclass(frozen=True, slots=True)
class Batch:
    """The deltas of some slices in three files; `number` makes batches distinct.

    `beaten` are the slots in which a base row won against its key's log records: records that no view shows.
    """

    number: int
    dead: str
    live: str
    tombs: str
    slots: int
    size_bytes: int
    beaten: frozenset[int]


@dataclass(frozen=True, slots=True)
class Delta:
    """What the logs of one slice do to its base file."""

    dead: np.ndarray  # base rows that do not count any more, ascending
    by: np.ndarray  # per dead row: the number of the live record that takes its place, -1 for none
    live: pa.Table  # log records that survive


_numbers = itertools.count()
_cache: OrderedDict[tuple[Any, ...], tuple[Batch, int]] = OrderedDict()
_lock = threading.Lock()
_folder: Path | None = None
_removals = 0


def removals() -> int:
    """A number that changes whenever the files of a batch may have gone."""
    return _removals


def prepare(
    cur: Cursor, view: View, slices: Sequence[FileSlice], columns: Sequence[str] | None = None
) -> list[tuple[Batch, int]]:
    """The batch and the slot in it for each slice. Slices without logs are not asked for.

    With `columns` the live rows need have no others: these are skipped over in logs that nobody has decoded yet.
    """
    keys = [_identity(view, s) for s in slices]
    narrow = view if columns is None else _narrowed(view, columns)
    with _lock:
        if narrow is not view and not all(k in _cache for k in keys):
            view, keys = narrow, [_identity(narrow, s) for s in slices]
        for chunk in _chunks([i for i, k in enumerate(keys) if k not in _cache], slices):
            batch = _build(cur, view, [slices[i] for i in chunk], [keys[i] for i in chunk])
            for slot, i in enumerate(chunk):
                _cache[keys[i]] = batch, slot
        found = []
        for key in keys:
            _cache.move_to_end(key)
            found.append(_cache[key])
        _evict({batch.number for batch, _ in found})
    return found


def _narrowed(view: View, columns: Sequence[str]) -> View:
    """The view of some columns and of those that decide how rows merge; all of it where columns depend on each other."""
    config = view.state.config
    if not config.meta_fields or view.evolved or not merge.rule_of(config, view.state.path).plain:
        return view
    wanted = {*columns, *_deciding(view)}
    return replace(view, schema=pa.schema([f for f in view.schema if f.name in wanted]))


def _deciding(view: View) -> tuple[str, ...]:
    """The columns that a plain merge looks at."""
    config = view.state.config
    marks = (IS_DELETED, OPERATION, *((config.delete_field,) if config.delete_field else ()))
    keys = ("_hoodie_record_key",) if config.meta_fields else config.record_key_fields
    return (*keys, *view.ordering_fields(), *marks)


def folded(cur: Cursor, view: View, slices: Sequence[FileSlice]) -> list[Delta]:
    """The delta of each slice; what is not kept already is merged in memory and not kept."""
    with _lock:
        kept = {i: _cache[key] for i, s in enumerate(slices) if (key := _identity(view, s)) in _cache}
        found = {i: _delta_of(placed) for i, placed in kept.items()}
    missing = [i for i in range(len(slices)) if i not in found]
    if missing:
        chosen = [slices[i] for i in missing]
        dead, live, _, _ = _merged(cur, view, chosen, [_identity(view, s) for s in chosen], keep=False)
        for slot, i in enumerate(missing):
            found[i] = _delta(_of_slot(dead, "slot", slot), _of_slot(live, SLOT, slot))
    return [found[i] for i in range(len(slices))]


def changes_of(placed: tuple[Batch, int]) -> tuple[np.ndarray, pa.Table]:
    """(base rows of one slice that do not count any more, ascending; its surviving log records)."""
    delta = _delta_of(placed)
    return delta.dead, delta.live


def _delta_of(placed: tuple[Batch, int]) -> Delta:
    batch, slot = placed
    dead = pq.read_table(batch.dead, filters=[("slot", "=", slot)])
    return _delta(dead, pq.read_table(batch.live, filters=[(SLOT, "=", slot)]))


def _delta(dead: pa.Table, live: pa.Table) -> Delta:
    rows = dead["row_no"].to_numpy()
    order = np.argsort(rows, kind="stable")
    return Delta(rows[order], pc.fill_null(dead["by"], -1).to_numpy()[order], live.drop_columns(SLOT))


def _of_slot(table: pa.Table, name: str, slot: int) -> pa.Table:
    """The rows of one slot; rows are sorted by slot."""
    first, last = np.searchsorted(table[name].to_numpy(), [slot, slot + 1])
    return table.slice(first, last - first)


def chunks_of(slices: Sequence[FileSlice], log_bytes: int = BATCH_LOG_BYTES) -> list[list[int]]:
    """Numbers of slices in portions that are decoded at once."""
    return _chunks(list(range(len(slices))), slices, log_bytes)


def _chunks(missing: list[int], slices: Sequence[FileSlice], limit: int = BATCH_LOG_BYTES) -> list[list[int]]:
    chunks: list[list[int]] = []
    size = 0
    for i in missing:
        log_bytes = sum(log.size_bytes for log in slices[i].logs)
        if not chunks or size + log_bytes > limit:
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
    rule = (
        config.merge_mode,
        config.payload_class,
        config.partial_update_mode,
        mergers.find(config),
        config.ordering_fields,
        config.delete_field,
        config.delete_marker,
    )
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
    global _removals
    sizes = {batch.number: batch.size_bytes for batch, _ in _cache.values()}
    total = sum(sizes.values())
    for batch, _ in list(_cache.values()):
        if total <= CACHE_BYTES:
            return
        if batch.number in in_use or batch.number not in sizes:
            continue
        _removals += 1
        total -= sizes.pop(batch.number)
        for key in [k for k, (b, _) in _cache.items() if b.number == batch.number]:
            del _cache[key]
        for path in (batch.dead, batch.live, batch.tombs):
            Path(path).unlink(missing_ok=True)


def _temporary_folder() -> Path:
    global _folder
    if _folder is None or not _folder.exists():
        _folder = Path(tempfile.mkdtemp(prefix="lakesql-"))
        atexit.register(_remove, _folder, os.getpid())
    return _folder


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def _start_anew() -> None:
    """In a forked process: numbers and files go on in the parent, so its folder is not ours to write to."""
    global _folder, _lock, _removals
    _folder, _lock, _removals = None, threading.Lock(), _removals + 1
    _cache.clear()


os.register_at_fork(after_in_child=_start_anew)


def _build(cur: Cursor, view: View, slices: Sequence[FileSlice], identities: Sequence[tuple[Any, ...]]) -> Batch:
    *merged, beaten = _merged(cur, view, slices, identities)
    number = next(_numbers)
    dead, live, tombs = (str(_temporary_folder() / f"{kind}{number}.parquet") for kind in ("dead", "live", "tombs"))
    size = 0
    for path, table in zip((dead, live, tombs), merged, strict=True):
        pq.write_table(table, path, compression="none", row_group_size=ROW_GROUP_ROWS, use_dictionary=False)
        size += Path(path).stat().st_size
    return Batch(number, dead, live, tombs, len(slices), size, frozenset(beaten.to_pylist()))


def _merged(
    cur: Cursor, view: View, slices: Sequence[FileSlice], identities: Sequence[tuple[Any, ...]], keep: bool = True
) -> tuple[pa.Table, pa.Table, pa.Table, pa.ChunkedArray | pa.Array]:
    """dead, live and tombs of the slices, sorted by slot, and the slots in which a base row won."""
    parts = [(slot, part) for slot, found in enumerate(_decoded(view, slices)) for part in found]
    rows = _concat([part.rows for _, part in parts if part.rows is not None], view.schema)
    with lists.spelt():  # `cur` may be one that does not know lists by number
        return _merge(cur, view, slices, parts, rows, _names(view, slices, identities), keep)


def _decoded(view: View, slices: Sequence[FileSlice]) -> list[list[LogPart]]:
    """The log of each slice; several at a time where numpy works long outside of Python's lock, or storage answers late.

    Short logs on a local disk in threads take twice the time of a loop: the threads wait for the lock.
    """

    def read(one: FileSlice) -> list[LogPart]:
        return read_log_parts(view.state, one, view.as_of, view.schema, view.ordering_types(), view.evolved)

    log_bytes = sum(log.size_bytes for one in slices for log in one.logs)
    if isinstance(view.state.storage, LocalStorage) and log_bytes < len(slices) * LONG_LOG_BYTES:
        return [read(one) for one in slices]
    with ThreadPoolExecutor(min(len(slices), FETCHERS if view.state.storage.remote else DECODERS)) as pool:
        return list(pool.map(in_context(read), slices))


def _names(view: View, slices: Sequence[FileSlice], identities: Sequence[tuple[Any, ...]]) -> list[str]:
    """Under which names the outcomes of the slices are kept on disk; empty for those that are not."""
    config = view.state.config
    used = outcomes.used(config.properties) and mergers.find(config) is None
    deciding = [str(f) for f in view.schema if f.name in _deciding(view)]
    return [
        outcomes.digest((FORMAT, config.version, s.base.size_bytes, *identity[:-1], deciding))
        if used and s.base is not None and s.base.size_bytes >= outcomes.BASE_BYTES_MIN
        else ""
        for s, identity in zip(slices, identities, strict=True)
    ]


def _concat(tables: list[pa.Table], schema: pa.Schema) -> pa.Table:
    return pa.concat_tables(tables) if tables else schema.empty_table()


def _merge(
    cur: Cursor,
    view: View,
    slices: Sequence[FileSlice],
    parts: list[tuple[int, LogPart]],
    rows: pa.Table,
    names: Sequence[str],
    keep: bool,
) -> tuple[pa.Table, pa.Table, pa.Table, pa.ChunkedArray | pa.Array]:
    """dead, live and tombs of the slices, and the slots in which a base row won."""
    records = _log_records(cur, view, parts, rows)
    if not records.num_rows:
        dead = _no_dead()
        live = rows.slice(0, 0).add_column(0, pa.field(SLOT, pa.int32()), pa.array([], pa.int32()))
        return dead, live, _no_tombs(view), dead["slot"]
    rule = merge.rule_of(view.state.config, view.state.path)
    lacking = {number: part.missing for number, (_, part) in enumerate(parts) if part.missing}
    if rule.plain and not lacking:
        found = decide(cur, view, slices, merge.mode_of(rule), records, names, keep)
        dead, live, tombs, beaten = applied(found, records, rows)
    else:
        cur.register(LOG, records)
        try:
            with known_settings(cur):
                dead, live, tombs, beaten = fold_log(cur, view, slices, rule, lacking, records, rows)
            dead = dead.sort_by("slot")
        finally:
            cur.unregister(LOG)
    ords = [f"ord_{i}" for i in range(len(view.ordering_types()))]
    return dead, live, tombs.select(["slot", "key", *ords, "own"]), beaten


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
            with known_settings(cur):
                keys = cur.sql(f"SELECT {key_sql(view)} AS key FROM __lakesql_rows").to_arrow_table()["key"]
        finally:
            cur.unregister("__lakesql_rows")
    if keys.null_count:
        raise TableError(
            f"{view.state.path}: {keys.null_count} log records have no record key. Compact the table with Spark."
        )
    return keys


def _row_kinds(view: View, rows: pa.Table) -> pa.ChunkedArray:
    """UPSERT, or DELETE for rows that say of themselves that they are deletes (hudi-format 5.2)."""
    config = view.state.config
    deleted = pa.chunked_array([pa.repeat(pa.scalar(False), rows.num_rows)])
    if IS_DELETED in rows.column_names and rows.schema.field(IS_DELETED).type == pa.bool_():
        deleted = pc.or_(deleted, pc.fill_null(rows[IS_DELETED], False))
    if config.delete_field and config.delete_marker is not None and config.delete_field in rows.column_names:
        marks, marker = rows[config.delete_field].cast(pa.string()), config.delete_marker
        if merge.marker_in_any_case(config):
            marks, marker = pc.utf8_upper(marks), marker.upper()
        marked = pc.equal(marks, marker)
        deleted = pc.or_(deleted, pc.fill_null(marked, False))
    if OPERATION in rows.column_names:
        deleted = pc.or_(deleted, pc.fill_null(pc.is_in(rows[OPERATION], pa.array(["D", "-U"])), False))
    fields = view.ordering_fields()
    unordered = pc.is_null(rows[fields[0]]) if fields else pa.chunked_array([pa.repeat(pa.scalar(True), rows.num_rows)])
    kind = pc.if_else(unordered, merge.COMMIT_TIME_DELETE, merge.DELETE)
    return pc.if_else(deleted, kind, merge.UPSERT).cast(pa.int8())


def _no_dead() -> pa.Table:
    return pa.schema([("slot", pa.int32()), ("row_no", pa.int64()), ("by", pa.int64())]).empty_table()


def _no_tombs(view: View) -> pa.Table:
    fields = [pa.field("slot", pa.int32()), pa.field("key", pa.string())]
    fields += [pa.field(f"ord_{i}", t) for i, t in enumerate(view.ordering_types())]
    fields.append(pa.field("own", pa.bool_()))
    return pa.schema(fields).empty_table()
