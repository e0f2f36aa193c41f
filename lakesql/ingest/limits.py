"""Limits of a task (R42-R45) as a wrapper around its reader: where it stops early, positions are exact.

    count   at most so many records: the batch is cut at the record
    time    at most so many seconds from the first call on, looked at between batches
    rate    at most so many records in a span of time, by waiting; nothing is dropped
    pool    at most so many tasks of the job read at a time: each holds one of the permits that `permits` makes

A task that is stopped has succeeded: the iterator ends although some partitions are neither done nor failed.
"""

import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from typing import cast

import numpy as np
import pyarrow as pa

from lakesql.errors import JobError
from lakesql.ingest.model import Fetched, Limit, Position, TopicPartition

KINDS = ("count", "time", "rate", "pool")


def permits(limit: Limit | None) -> threading.Semaphore | None:
    """What the tasks of a job share under a pool limit; None under any other."""
    if limit is None or limit.kind != "pool":
        return None
    if limit.amount < 1:
        raise JobError(f"extract.limit.pool.size: {limit.amount:g} tasks at a time is less than one")
    return threading.Semaphore(int(limit.amount))


def limited(
    source: Iterator[Fetched],
    limit: Limit | None,
    pool: threading.Semaphore | None = None,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Fetched]:
    """What the reader gives, until the limit. Closing it closes the reader, and so does its end."""
    if limit is not None and limit.kind not in KINDS:
        raise JobError(f"extract.limit.type: {limit.kind!r} is none of {', '.join(KINDS)}")
    if limit is not None and limit.kind == "rate" and not (limit.amount > 0 and limit.per_s > 0):
        raise JobError(f"extract.limit.rate.limit: {limit.amount:g} records in {limit.per_s:g} s is no rate")
    if limit is None:
        return source
    if limit.kind == "count":
        return _counted(source, int(limit.amount))
    if limit.kind == "time":
        return _timed(source, limit.amount, clock)
    if limit.kind == "rate":
        return _slowed(source, limit.amount / limit.per_s, clock, sleep)
    return _pooled(source, pool or cast(threading.Semaphore, permits(limit)))


def _counted(source: Iterator[Fetched], left: int) -> Iterator[Fetched]:
    with _closed(source):
        while left > 0 and (fetched := next(source, None)) is not None:
            if fetched.batch.num_rows > left:
                fetched = cut(fetched, left)[0]
            left -= fetched.batch.num_rows
            yield fetched


def _timed(source: Iterator[Fetched], seconds: float, clock: Callable[[], float]) -> Iterator[Fetched]:
    end = clock() + seconds
    with _closed(source):
        while clock() < end and (fetched := next(source, None)) is not None:
            yield fetched


def _slowed(
    source: Iterator[Fetched], per_second: float, clock: Callable[[], float], sleep: Callable[[float], None]
) -> Iterator[Fetched]:
    """Batches in pieces of about a second; each waits until those before it have had their time."""
    piece = max(int(per_second), 1)
    start = clock()
    with _closed(source):
        for fetched in source:
            rest = fetched
            while rest.batch.num_rows > piece:
                head, rest = cut(rest, piece)
                start = _wait(start, head.batch.num_rows / per_second, clock, sleep)
                yield head
            start = _wait(start, rest.batch.num_rows / per_second, clock, sleep)
            yield rest


def _wait(start: float, takes: float, clock: Callable[[], float], sleep: Callable[[float], None]) -> float:
    """Wait for the start of this piece; the start of the next one. Time in which nothing came is not made up for."""
    while (pause := start - clock()) > 0:
        sleep(pause)
    return max(start, clock()) + takes


def _pooled(source: Iterator[Fetched], pool: threading.Semaphore) -> Iterator[Fetched]:
    with _closed(source), pool:
        yield from source


def _closed(source: Iterator[Fetched]) -> AbstractContextManager[object]:
    """Readers are generators; an iterator of another kind has nothing to close."""
    return closing(source) if isinstance(source, Generator) else nullcontext()


def cut(fetched: Fetched, rows: int) -> tuple[Fetched, Fetched]:
    """Two parts, the first with so many records; each with the positions that belong to it.

    A partition with records in the second part stands, after the first, at the first of these.
    """
    batch = fetched.batch
    head, tail = batch.slice(0, rows), batch.slice(rows)
    cuts = _first_offsets(tail)
    before: dict[TopicPartition, Position] = {}
    for at, position in fetched.positions.items():
        before[at] = Position(cuts[at], position.leader_epoch) if at in cuts else position
    after = {at: position for at, position in fetched.positions.items() if at in cuts}
    return (
        replace(
            fetched,
            batch=head,
            positions=before,
            done=fetched.done - cuts.keys(),
            failed={at: why for at, why in fetched.failed.items() if at not in cuts},
        ),
        Fetched(
            tail,
            after,
            fetched.done & cuts.keys(),
            {at: why for at, why in fetched.failed.items() if at in cuts},
        ),
    )


def _first_offsets(batch: pa.RecordBatch) -> Mapping[TopicPartition, int]:
    """The offset of each partition's first record in a batch."""
    codes = batch.column("_topic").indices.to_numpy(zero_copy_only=False).astype(np.int64)
    numbers = batch.column("_partition").to_numpy(zero_copy_only=False).astype(np.int64)
    offsets = batch.column("_offset")
    names = batch.column("_topic").dictionary.to_pylist()
    _, firsts = np.unique((codes << 32) | numbers, return_index=True)
    return {TopicPartition(names[codes[i]], int(numbers[i])): offsets[int(i)].as_py() for i in firsts.tolist()}
