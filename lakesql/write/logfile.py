"""Log files: changed rows and deletes of file groups as Avro data and delete blocks (hudi-format 4.4, 4.7, 4.10).

One new file per file group and delta commit, never an append. The rows of many groups are encoded in one go and the
bytes of each group cut out of the result, since encoding has a cost per call that small groups would not pay back.

A delete carries the ordering value the row has now, in the column's own wrapper: it then beats the row by the tie rule
and an older row that arrives later does not come back. Without one, and on commit-time tables, it is IntWrapper(0).
One block holds one kind of wrapper, because a mixed block cannot be read everywhere (4.7).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakesql.format import log
from lakesql.format.avro import encode_records
from lakesql.format.files import FileSlice, LogFile, log_file_name


@dataclass(frozen=True, slots=True)
class Records:
    """Rows for data blocks, meta columns included. `avro` is the table's schema; `partial`: the rows lack columns of it,
    which keep the value that is stored."""

    rows: pa.Table
    avro: Mapping[str, Any]
    partial: bool = False


@dataclass(frozen=True, slots=True)
class LogContent:
    """What one group's log file gets: rows [first, last) of each kind of records, and the deletes."""

    spans: tuple[tuple[int, int], ...]
    deletes: pa.Table  # key, part, ord_0 ...

    @property
    def records(self) -> int:
        return sum(last - first for first, last in self.spans)


def encode_groups(
    kinds: Sequence[Records], groups: Sequence[LogContent], instant: str, block_bytes: int, ordered: bool
) -> list[bytes]:
    """The bytes of each group's log file: its blocks of each kind of records, then its deletes."""
    blocks: list[list[bytes]] = [[] for _ in groups]
    for kind, records in enumerate(kinds):
        if not records.rows.num_rows:
            continue
        names = records.rows.column_names
        avro = {**records.avro, "fields": [f for f in records.avro["fields"] if f["name"] in names]}
        headers = _headers(instant, avro) | ({log.IS_PARTIAL: "true"} if records.partial else {})
        data, offsets = encode_records(records.rows, avro)
        for group, made in zip(groups, blocks, strict=True):
            for first, last in _cuts(offsets, *group.spans[kind], block_bytes):
                content = log.encode_avro_content(data[offsets[first] : offsets[last]], last - first)
                made.append(log.encode_block(log.AVRO, headers, content))
    headers = _headers(instant, kinds[0].avro)
    for group, made in zip(groups, blocks, strict=True):
        made += [log.encode_block(log.DELETE, headers, c) for c in _delete_contents(group.deletes, ordered)]
    return [b"".join(made) for made in blocks]


def _headers(instant: str, avro: Mapping[str, Any]) -> dict[int, str]:
    return {log.INSTANT_TIME: instant, log.SCHEMA: json.dumps(avro, separators=(",", ":"))}


def _cuts(offsets: np.ndarray, first: int, last: int, block_bytes: int) -> list[tuple[int, int]]:
    """Ranges of rows whose bytes fit into a block; one row may be larger than that."""
    cuts = []
    while first < last:
        end = int(np.searchsorted(offsets, offsets[first] + block_bytes, side="right")) - 1
        end = min(max(end, first + 1), last)
        cuts.append((first, end))
        first = end
    return cuts


def _delete_contents(deletes: pa.Table, ordered: bool) -> list[bytes]:
    if not deletes.num_rows:
        return []
    ords = [name for name in deletes.column_names if name.startswith("ord_")] if ordered else []
    if not ords:
        return [log.encode_deletes(_flat(deletes["key"]), _flat(deletes["part"]), None)]
    known = pc.is_valid(deletes[ords[0]])
    for name in ords[1:]:
        known = pc.and_(known, pc.is_valid(deletes[name]))
    contents = []
    for chosen, with_ordering in ((deletes.filter(known), True), (deletes.filter(pc.invert(known)), False)):
        if chosen.num_rows:
            values = [_flat(chosen[name]) for name in ords] if with_ordering else None
            contents.append(log.encode_deletes(_flat(chosen["key"]), _flat(chosen["part"]), values))
    return contents


def _flat(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return pa.concat_arrays(combined.chunks) if isinstance(combined, pa.ChunkedArray) else combined


def next_log_file(
    file_slice: FileSlice, instant: str, token: str, version: int, files: Sequence[LogFile]
) -> tuple[str, int]:
    """(name, log version) of the log file that `instant` adds to a slice.

    From table version 8 on a log file is named after its own delta commit. Version 6 names it after its slice and
    counts up over all log files of that slice that lie there, uncommitted ones too.
    """
    if version >= 8:
        return log_file_name(file_slice.file_id, instant, 1, token), 1
    taken = [f.version for f in files if f.instant == file_slice.instant]
    number = max(taken, default=0) + 1
    return log_file_name(file_slice.file_id, file_slice.instant, number, token), number
