"""The log records of one file slice, in the order in which they are merged (hudi-format 4.9).

Blocks are collected file by file, blocks of instants that did not commit are left out, rollback commands take back
what they name, log compaction blocks stand in for the blocks they claim. What remains is decoded block by block and
brought to the table's columns. Torn and corrupt blocks are skipped as the format prescribes, unless a completed commit
wrote these bytes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from lakesql.errors import FileGone, Unsupported
from lakesql.format import log
from lakesql.format.avro import conform
from lakesql.format.files import FileSlice, LogFile
from lakesql.table.evolution import Evolution
from lakesql.table.promised import require_unpromised
from lakesql.table.state import TableState


@dataclass(frozen=True, slots=True)
class LogPart:
    """The records of one block: rows in `rows`, or deletes in `deletes`.

    `missing` are the columns an IS_PARTIAL block leaves out; they keep the value of the older record.
    """

    instant: str
    rows: pa.Table | None
    deletes: pa.Table | None
    missing: frozenset[str] = frozenset()


def read_log_parts(
    state: TableState,
    file_slice: FileSlice,
    as_of: str | None,
    schema: pa.Schema,
    ordering_types: list[pa.DataType],
    evolved: Evolution | None = None,
) -> list[LogPart]:
    """Decoded blocks of the slice, oldest first.

    `schema` is what is wanted of the table schema and its meta columns, other columns are skipped over;
    `ordering_types` are the types of its ordering fields.
    Raises FormatError for undecodable content, FileGone for a log file that went, TableError for one whose types do not fit.
    """
    parts = []
    for where, block in committed_blocks(state, file_slice, as_of):
        instant = block.headers.get(log.INSTANT_TIME, "")
        if block.kind == log.DELETE:
            deletes = log.decode_deletes(block, ordering_types, where)
            if deletes.num_rows:
                parts.append(LogPart(instant, None, deletes))
            continue
        if block.kind == log.HFILE:
            raise Unsupported(f"{where}: HFile log blocks belong to metadata tables. Read the data table instead.")
        rows = log.decode_data(block, None if evolved else schema.names, where)
        if evolved:
            rows = _rename(rows, evolved.names_at(instant))
        missing: frozenset[str] = frozenset()
        wanted = schema
        if block.headers.get(log.IS_PARTIAL, "").lower() == "true":
            missing = frozenset(schema.names) - frozenset(rows.column_names)
            wanted = pa.schema([f for f in schema if f.name not in missing])
        rows = conform(rows, wanted, where)
        for name in sorted(missing):
            rows = rows.append_column(name, pa.nulls(rows.num_rows, schema.field(name).type))
        if rows.num_rows:
            parts.append(LogPart(instant, rows.select(schema.names), None, missing))
    return parts


def committed_blocks(state: TableState, file_slice: FileSlice, as_of: str | None) -> list[tuple[str, log.Block]]:
    """(where, block) of every data and delete block that counts, oldest first.

    FileGone for a log file that went, FormatError for damage in what a completed commit wrote.
    """
    queued: list[tuple[str, log.Block]] = []
    per_block = state.config.version < 8
    promises = state.promises(as_of) if per_block else {}
    fetched: dict[str, bytes] = {}
    if state.storage.remote and len(file_slice.logs) > 1:
        found = state.storage.together(*(partial(_bytes, state, one) for one in file_slice.logs))
        fetched = {one.path: data for one, data in zip(file_slice.logs, found, strict=True)}
    for log_file in file_slice.logs:
        where = f"{state.path}/{log_file.path}"
        data = fetched.pop(log_file.path) if log_file.path in fetched else _bytes(state, log_file)
        for block in log.scan_blocks(data, where):
            instant = block.headers.get(log.INSTANT_TIME, "")
            if block.kind == log.COMMAND:
                target = block.headers.get(log.TARGET_INSTANT_TIME)
                queued = [q for q in queued if q[1].headers.get(log.INSTANT_TIME) != target]
            elif block.kind == log.CORRUPT:
                _require_torn_by_nobody(state, log_file, block, as_of)
            elif per_block and not (state.timeline.is_committed(instant) and (as_of is None or instant <= as_of)):
                require_unpromised(state.path, promises, log_file, block.offset, block.offset + 1)
            elif block.kind != log.CDC:
                queued.append((where, block))
    return _resolve_log_compaction(queued)


def _bytes(state: TableState, log_file: LogFile) -> bytes:
    try:
        if not state.storage.remote or state.config.version < 8:  # there a log file may grow
            return state.storage.read(log_file.path)
        with state.storage.source(log_file.path) as file:  # what was read lately is kept
            data: bytes = file.read()
            return data
    except FileNotFoundError as error:
        raise FileGone(
            f"{state.path}/{log_file.path}: the log file is gone; it was cleaned or rolled back while the table was "
            "read. Run the statement again."
        ) from error


def _require_torn_by_nobody(state: TableState, file: LogFile, block: log.Block, as_of: str | None) -> None:
    """FormatError unless damaged bytes come from a writer that did not complete."""
    known = state.promises(as_of, archived=True)
    # From version 8 on all of a log file is of the delta commit in its name.
    owner = file.instant if state.config.version >= 8 else None
    require_unpromised(state.path, known, file, block.offset, block.offset + len(block.content), owner)


def _resolve_log_compaction(queued: list[tuple[str, log.Block]]) -> list[tuple[str, log.Block]]:
    """Blocks with COMPACTED_BLOCK_TIMES take the place of the newest instant they claim, chains followed."""
    by_instant: dict[str, list[tuple[str, log.Block]]] = {}
    for where, block in queued:
        by_instant.setdefault(block.headers.get(log.INSTANT_TIME, ""), []).append((where, block))
    claims = {t: c for t, blocks in by_instant.items() if (c := blocks[0][1].headers.get(log.COMPACTED_BLOCK_TIMES))}
    if not claims:
        return [b for blocks in by_instant.values() for b in blocks]
    claimed_by: dict[str, str] = {}
    emitted: set[str] = set()
    result: list[list[tuple[str, log.Block]]] = []
    for instant in reversed(by_instant):
        if instant in claims:
            final = claimed_by.get(instant, instant)
            claimed = claims[instant].split(",")
            claimed_by.update((t.strip(), final) for t in claimed)
            if final == instant and not any(t.strip() in by_instant for t in claimed):
                emitted.add(instant)
                result.append(by_instant[instant])
        elif instant not in claimed_by:
            result.append(by_instant[instant])
        elif claimed_by[instant] not in emitted:
            emitted.add(claimed_by[instant])
            result.append(by_instant[claimed_by[instant]])
    return [b for blocks in reversed(result) for b in blocks]


def _rename(rows: pa.Table, names: Mapping[str, str]) -> pa.Table:
    kept = [n for n in rows.column_names if n in names]
    return rows.select(kept).rename_columns([names[n] for n in kept])
