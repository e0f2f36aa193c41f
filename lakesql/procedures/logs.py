"""Procedures about log files: their blocks with headers, and the records in them.

Files are chosen by a glob, relative to the table or with its whole path. Blocks and records are shown as they lie in the
files, those of commits that did not complete too; `merge` shows what a reader makes of them.
"""

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from lakesql.errors import TableError
from lakesql.format import log
from lakesql.format.files import FileSlice, LogFile, log_order
from lakesql.procedures.declare import FILTER, LIMIT, REQUIRED, Call, Parameter, Rows, columns
from lakesql.procedures.shape import matches, showing
from lakesql.table import read
from lakesql.table.evolution import evolution
from lakesql.table.logfold import View
from lakesql.table.state import TableState

_KINDS = {
    log.COMMAND: "COMMAND_BLOCK", log.DELETE: "DELETE_BLOCK", log.CORRUPT: "CORRUPT_BLOCK", log.AVRO: "AVRO_DATA_BLOCK",
    log.HFILE: "HFILE_DATA_BLOCK", log.PARQUET: "PARQUET_DATA_BLOCK", log.CDC: "CDC_DATA_BLOCK",
}  # fmt: skip
_HEADERS = {
    log.INSTANT_TIME: "INSTANT_TIME",
    log.TARGET_INSTANT_TIME: "TARGET_INSTANT_TIME",
    log.SCHEMA: "SCHEMA",
    log.COMMAND_TYPE: "COMMAND_BLOCK_TYPE",
    log.COMPACTED_BLOCK_TIMES: "COMPACTED_BLOCK_TIMES",
    log.RECORD_POSITIONS: "RECORD_POSITIONS",
    6: "BLOCK_IDENTIFIER",
    log.IS_PARTIAL: "IS_PARTIAL",
    log.BASE_INSTANT_OF_POSITIONS: "BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS",
}
_DATA = (log.AVRO, log.PARQUET, log.CDC)
_PATTERN = Parameter("log_file_path_pattern", "VARCHAR", REQUIRED, "a glob of log files")


def _logs(call: Call, state: TableState) -> list[LogFile]:
    """The log files that the pattern names, in merge order. TableError when there is none."""
    pattern = call["log_file_path_pattern"].removeprefix("file://").removeprefix("file:")
    inside = pattern.removeprefix(state.path.rstrip("/")).lstrip("/")
    logs = [f for f in state.files if isinstance(f, LogFile) and matches(f.path, inside)]
    if not logs:
        raise TableError(
            f"{state.path}: no log file fits {call['log_file_path_pattern']!r}; "
            "give a glob below the table, such as 'part=a/.*' or '*/.*.log.*'."
        )
    return sorted(logs, key=lambda f: (f.partition, f.file_id, log_order(f)))


def _metadata(call: Call) -> Rows:
    state = call.state()
    ordering = _view(state).ordering_types()
    corrupt = dummy = 0
    for file in _logs(call, state):
        where = f"{state.path}/{file.path}"
        for block in log.scan_blocks(state.storage.read(file.path), where):
            instant = block.headers.get(log.INSTANT_TIME)
            if instant is None and block.kind == log.CORRUPT:
                corrupt += 1
                instant = f"corrupt_block_{corrupt}"
            elif instant is None:
                dummy += 1
                instant = f"dummy_instant_time_{dummy}"
            yield {
                "instant_time": instant,
                "record_count": _count(block, ordering, where),
                "block_type": _KINDS[block.kind],
                "header_metadata": _named(block.headers),
                "footer_metadata": _named(block.footers),
            }


def _view(state: TableState) -> View:
    """The columns of the table; no data file is looked at, so a damaged table's logs can be shown."""
    return View(state, None, read.columns(state), evolution(state, None))


def _count(block: log.Block, ordering: list[pa.DataType], where: str) -> int:
    """Rows of a data block, keys of a delete block."""
    if block.kind != log.DELETE and block.kind not in _DATA:
        return 0
    is_delete = block.kind == log.DELETE
    rows: pa.Table = log.decode_deletes(block, ordering, where) if is_delete else log.decode_data(block, None, where)
    return len(rows)


def _named(headers: Any) -> str:
    return json.dumps({_HEADERS.get(key, str(key)): text for key, text in headers.items()}, separators=(",", ":"))


def _records(call: Call) -> Rows:
    state = call.state()
    rows = _merged(call, state) if call["merge"] else _stored(call, state)
    return ({"records": json.dumps(row, default=str, ensure_ascii=False)} for row in rows)


def _stored(call: Call, state: TableState) -> Iterator[dict[str, Any]]:
    for file in _logs(call, state):
        where = f"{state.path}/{file.path}"
        for block in log.scan_blocks(state.storage.read(file.path), where):
            if block.kind in _DATA:
                yield from _rows(log.decode_data(block, None, where))


def _merged(call: Call, state: TableState) -> Iterator[dict[str, Any]]:
    """The rows that a reader would take from these logs alone, without their base files."""
    groups: dict[tuple[str, str], list[LogFile]] = {}
    for file in _logs(call, state):
        if state.config.version < 8 or state.view_timeline.is_committed(file.instant):
            groups.setdefault((file.partition, file.file_id), []).append(file)
    alone = [FileSlice(*group, logs[0].instant, None, tuple(logs)) for group, logs in groups.items()]
    sql = read.to_sql(call.con, read.ReadPlan(_view(state), "snapshot", tuple(alone)))
    for batch in call.con.sql(sql).to_arrow_reader():
        yield from _rows(pa.Table.from_batches([batch]))


def _rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    for batch in table.to_batches(1024):
        yield from batch.to_pylist()


PROCEDURES = (
    showing(
        "show_logfile_metadata",
        "The blocks of log files: instant, number of records, kind, headers.",
        columns(
            instant_time="text", record_count="int", block_type="text", header_metadata="text", footer_metadata="text"
        ),
        _metadata,
        (_PATTERN, LIMIT, FILTER),
    ),
    showing(
        "show_logfile_records",
        "The records of log files as JSON; with merge what a reader makes of these logs.",
        columns(records="text"),
        _records,
        (_PATTERN, Parameter("merge", "BOOLEAN", False, "one row per key, as a reader merges them"), LIMIT, FILTER),
    ),
)
