"""The first records of a topic in a run, read once more and apart: they say what columns are where nothing else does.

Which task is first, and how much its first batch holds, is chance; what columns a table gets must not be. So the sample
is a matter of the plan alone: from each range of the topic (of many, from those spread evenly over them) the same number
of records from its start on, in the order of partition and offset. It is read when a decoder first needs it, which
none does that is given its columns. A partition that cannot be read adds nothing: the task that reads it says why.
"""

import threading
from collections.abc import Generator
from contextlib import closing
from dataclasses import replace
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakesql.errors import IngestError
from lakesql.ingest.model import RAW, Client, Fetched, Job, Plan, Range, TopicPartition
from lakesql.ingest.tally import joined, tally

_NONE = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in RAW], schema=RAW)
ROWS = 10_000
BYTES = 32 << 20
PARTITIONS = 50


class Sampling:
    """A model.Sample of the ranges of a plan. May be called by several threads."""

    def __init__(self, client: Client, job: Job, plan: Plan, stop: threading.Event) -> None:
        self._client, self._job, self._stop = client, job, stop
        self._ranges: dict[str, list[Range]] = {}
        for one in sorted(plan.ranges, key=lambda one: one.at):
            if one.records and not one.error:
                self._ranges.setdefault(one.topic, []).append(one)
        self._lock = threading.Lock()
        self._last: tuple[str, pa.RecordBatch] | None = None  # values and keys of a topic ask one after the other

    def __call__(self, topic: str) -> pa.RecordBatch:
        """The sample of the topic; empty when it has no records."""
        with self._lock:
            if self._last is None or self._last[0] != topic:
                self._last = topic, self._read(self._ranges.get(topic, []))
            return self._last[1]

    def _read(self, ranges: list[Range]) -> pa.RecordBatch:
        if not ranges:
            return _NONE
        count = min(len(ranges), PARTITIONS)
        chosen = [ranges[i * len(ranges) // count] for i in range(count)]
        rows = -(-ROWS // count)
        found = self._taken([replace(one, high=min(one.low + rows, one.high)) for one in chosen], rows)
        for one in ranges if not found.num_rows else ():  # compaction or transactions left nothing at the starts
            found = self._taken([one], ROWS)
            if found.num_rows:
                break
        return found

    def _taken(self, ranges: list[Range], rows: int) -> pa.RecordBatch:
        """At most so many records of each of the ranges, and no more bytes than its share."""
        heads = {one.at: _Head(rows, BYTES // len(ranges)) for one in ranges}
        open_ = set(heads)
        with closing(
            cast(Generator[Fetched, None, None], self._client.read(ranges, self._job.reset, self._job.fetch_timeout_s))
        ) as read:
            for one in read:
                if self._stop.is_set():
                    raise IngestError("The run was stopped while it looked at the first records of its topics.")
                for found in tally(one.batch):
                    heads[found.at].add(one.batch, found.at)
                open_ -= one.done | one.failed.keys() | {at for at in open_ if heads[at].full}
                if not open_:
                    break
        return joined([batch for one in ranges for batch in heads[one.at].batches] or [_NONE])


class _Head:
    """The first records of a partition, until there are enough."""

    def __init__(self, rows: int, size: int) -> None:
        self.batches: list[pa.RecordBatch] = []
        self._rows, self._size = rows, size

    @property
    def full(self) -> bool:
        return self._rows <= 0 or self._size <= 0

    def add(self, batch: pa.RecordBatch, at: TopicPartition) -> None:
        if self.full:
            return
        own = batch.filter(pc.equal(batch.column("_partition"), at.partition)).slice(0, self._rows)
        sizes = pc.fill_null(pc.binary_length(own.column("_value")), 0).to_numpy(zero_copy_only=False)
        own = own.slice(0, int(np.searchsorted(np.cumsum(sizes), self._size)) + 1)
        self._rows -= own.num_rows
        self._size -= int(sizes[: own.num_rows].sum())
        self.batches.append(own)
