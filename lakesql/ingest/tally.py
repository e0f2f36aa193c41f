"""Numbers of a batch per topic partition: rows, bytes, timestamps, first and last offset. Pure, by columns.

A batch from the client and the three tables of a decoder have the same Kafka columns, so one function counts them all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakesql.ingest.model import Job, TopicPartition

_NO_TIME = np.iinfo(np.int64).max
_Ints = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Tally:
    """What a batch has of one partition. `ordered`: its offsets rise strictly within the batch. `newest_ms`, `oldest_ms`,
    `last_ms`: the largest and smallest timestamp, and that of its last record; `late`: records older than was asked for."""

    at: TopicPartition
    rows: int
    bytes: int
    first: int
    last: int
    ordered: bool
    newest_ms: int | None
    last_ms: int | None
    oldest_ms: int | None = None
    late: int = 0


@dataclass(frozen=True, slots=True)
class _Groups:
    """Rows of a batch sorted by partition: `order` brings them together, `starts` says where each begins."""

    keys: tuple[TopicPartition, ...]
    order: _Ints
    starts: _Ints


SLA = "gobblin.kafka.recordLevelSlaMinutes"


def sla_ms(job: Job) -> float | None:
    """The age from which on a record is late when it is read; None: none is."""
    minutes = float(job.settings.get(SLA) or -1)
    return minutes * 60_000 if minutes > 0 else None


def tally(batch: pa.RecordBatch, late_before_ms: float | None = None) -> list[Tally]:
    """The numbers of a RAW batch, one for each partition in it; records with a time before `late_before_ms` are late."""
    if not batch.num_rows:
        return []
    groups = _groups(batch)
    sizes = _lengths(batch, "_value") + _lengths(batch, "_key")
    offsets = _column(batch, "_offset").to_numpy(zero_copy_only=False)[groups.order]
    times = pc.fill_null(pc.cast(_column(batch, "_timestamp"), pa.int64()), -1).to_numpy(zero_copy_only=False)
    known = times >= 0
    early = np.minimum.reduceat(np.where(known, times, _NO_TIME)[groups.order], groups.starts)
    late = np.zeros(len(groups.keys), dtype=np.int64)
    if late_before_ms is not None:
        late = np.add.reduceat((known & (times < late_before_ms)).astype(np.int64)[groups.order], groups.starts)
    rising = np.ones(len(offsets), dtype=bool)
    rising[1:] = offsets[1:] > offsets[:-1]
    rising[groups.starts] = True
    ends = np.append(groups.starts[1:], len(offsets)) - 1
    bytes_ = np.add.reduceat(sizes[groups.order], groups.starts)
    last = times[groups.order][ends]
    newest = np.maximum.reduceat(times[groups.order], groups.starts)
    ordered = np.logical_and.reduceat(rising, groups.starts)
    return [
        Tally(
            at,
            int(ends[i] - groups.starts[i] + 1),
            int(bytes_[i]),
            int(offsets[groups.starts[i]]),
            int(offsets[ends[i]]),
            bool(ordered[i]),
            int(newest[i]) if newest[i] >= 0 else None,
            int(last[i]) if last[i] >= 0 else None,
            int(early[i]) if early[i] < _NO_TIME else None,
            int(late[i]),
        )
        for i, at in enumerate(groups.keys)
    ]


def counts(table: pa.Table) -> dict[TopicPartition, int]:
    """Rows of each partition in a table with the Kafka columns."""
    if not table.num_rows:
        return {}
    groups = _groups(table)
    ends = np.append(groups.starts[1:], table.num_rows)
    return {at: int(end - start) for at, start, end in zip(groups.keys, groups.starts, ends, strict=True)}


def split(batch: pa.RecordBatch, unit_of: Mapping[TopicPartition, int]) -> dict[int, pa.RecordBatch]:
    """The batch cut by the number that each partition has in `unit_of`, rows in their order."""
    groups = _groups(batch)
    numbers = [unit_of[at] for at in groups.keys]
    if len(set(numbers)) == 1:
        return {numbers[0]: batch}
    ends = np.append(groups.starts[1:], batch.num_rows)
    firsts, lasts = groups.order[groups.starts], groups.order[ends - 1]
    if len(set(numbers)) == len(numbers) and bool((lasts - firsts == ends - 1 - groups.starts).all()):
        sizes = ends - groups.starts  # each lies together
        return {n: batch.slice(int(a), int(c)) for n, a, c in zip(numbers, firsts, sizes, strict=True)}
    rows: dict[int, list[_Ints]] = {}
    for number, start, end in zip(numbers, groups.starts, ends, strict=True):
        rows.setdefault(number, []).append(groups.order[start:end])
    return {number: batch.take(pa.array(np.sort(np.concatenate(parts)))) for number, parts in rows.items()}


def joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Several batches of one schema as one."""
    filled = [one for one in batches if one.num_rows] or list(batches[:1])
    if len(filled) == 1:
        return filled[0]
    return pa.Table.from_batches(filled).unify_dictionaries().combine_chunks().to_batches()[0]


def _groups(data: pa.RecordBatch | pa.Table) -> _Groups:
    topics = _column(data, "_topic")
    if not pa.types.is_dictionary(topics.type):
        topics = topics.dictionary_encode()
    names = topics.dictionary.to_pylist()
    codes = topics.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    partitions = _column(data, "_partition").to_numpy(zero_copy_only=False).astype(np.int64)
    combined = (codes << 32) | partitions
    if combined[0] == combined[-1] and (combined == combined[0]).all():  # the usual case: one partition
        at = TopicPartition(names[codes[0]], int(partitions[0]))
        return _Groups((at,), np.arange(len(combined)), np.zeros(1, dtype=np.int64))
    order = np.argsort(combined, kind="stable")
    inorder = combined[order]
    starts = np.flatnonzero(np.append(True, inorder[1:] != inorder[:-1]))
    keys = tuple(TopicPartition(names[int(c) >> 32], int(c) & 0xFFFFFFFF) for c in inorder[starts])
    return _Groups(keys, order, starts)


def _column(data: pa.RecordBatch | pa.Table, name: str) -> pa.Array:
    column = data.column(name)
    if isinstance(column, pa.ChunkedArray):
        if pa.types.is_dictionary(column.type):
            column = column.unify_dictionaries()
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # several chunks may remain of a dictionary
            column = pa.concat_arrays(column.chunks)
    return column


def _lengths(batch: pa.RecordBatch, name: str) -> _Ints:
    lengths: _Ints = pc.fill_null(pc.binary_length(batch.column(name)), 0).to_numpy(zero_copy_only=False)
    return lengths.astype(np.int64)
