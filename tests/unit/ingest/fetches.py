"""Made-up fetches for tests without a cluster: `reader` gives a log's records in batches as a Kafka client would."""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from lakesql.ingest.model import RAW, Fetched, Position, TopicPartition


def raw(records: Sequence[tuple[TopicPartition, int]]) -> pa.RecordBatch:
    """A RAW batch of these offsets; the value says which record it is."""
    rows = [
        {"_topic": at.topic, "_partition": at.partition, "_offset": offset, "_value": f"{at}@{offset}".encode()}
        for at, offset in records
    ]
    return pa.RecordBatch.from_pylist(rows, schema=RAW)


def reader(
    logs: Mapping[TopicPartition, Sequence[int]],
    order: Sequence[TopicPartition],
    sizes: Sequence[int],
    start: Mapping[TopicPartition, int],
    high: int,
) -> Iterator[Fetched]:
    """The records of `logs` from `start` on, partitions in turn as `order` says, in batches of these sizes, then 1."""
    waiting = {at: [offset for offset in log if start[at] <= offset < high] for at, log in logs.items()}
    open_ = set(logs)
    sequence = [at for at in order if at in logs] + [at for at in logs for _ in logs[at]]
    at_sizes = iter(sizes)
    taken: list[tuple[TopicPartition, int]] = []
    size = next(at_sizes, 1)
    for at in sequence:
        if waiting[at]:
            taken.append((at, waiting[at].pop(0)))
        if len(taken) >= size:
            yield _fetched(taken, waiting, open_, high)
            taken, size = [], next(at_sizes, 1)
    yield _fetched(taken, waiting, open_, high, ends=True)


def _fetched(
    taken: list[tuple[TopicPartition, int]],
    waiting: Mapping[TopicPartition, list[int]],
    open_: set[TopicPartition],
    high: int,
    *,
    ends: bool = False,
) -> Fetched:
    """A partition whose last record is among them has ended, at high, behind whatever gap is there."""
    positions = {at: Position(offset + 1, 0) for at, offset in taken}
    done = {at for at in open_ if not waiting[at] and (ends or at in positions)}
    open_ -= done
    positions.update({at: Position(high, 0) for at in done})
    return Fetched(raw(taken), positions, frozenset(done))
