"""A Kafka cluster that only has topics and bounds, and jobs that read it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lakesql.ingest.model import (
    Bounds,
    Fetched,
    Format,
    Job,
    PartitionState,
    Range,
    State,
    Target,
    Topic,
    TopicPartition,
)

Spans = Mapping[str, Mapping[int, tuple[int, int] | str]]


class FakeCluster:
    """`spans`: topic -> partition -> (earliest, latest), or the error that asking for them gives."""

    def __init__(
        self, spans: Spans, ids: Mapping[str, str] | None = None, times: Mapping[int, int] | None = None
    ) -> None:
        self.spans, self.ids, self.times = spans, dict(ids or {}), dict(times or {})
        self.asked: list[int] = []

    def topics(self) -> Sequence[Topic]:
        return [Topic(name, tuple(parts), self.ids.get(name)) for name, parts in self.spans.items()]

    def bounds(self, partitions: Sequence[TopicPartition], isolation: str) -> Mapping[TopicPartition, Bounds]:
        assert isolation in ("read_committed", "read_uncommitted")
        self.asked.append(len(partitions))
        found = {}
        for at in partitions:
            span = self.spans[at.topic][at.partition]
            found[at] = Bounds(error=span) if isinstance(span, str) else Bounds(*span)
        return found

    def offsets_at(self, times_ms: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        return {at: self.times[at.partition] for at in times_ms if at.partition in self.times}

    def read(
        self, ranges: Sequence[Range], reset: str, fetch_timeout_s: float, batch_rows: int = 10_000
    ) -> Iterator[Fetched]:
        raise AssertionError(f"a plan reads no records: {ranges}, {reset}, {fetch_timeout_s}, {batch_rows}")

    def close(self) -> None: ...


def job(**fields: Any) -> Job:
    """A job named j over all topics; fields of it changed."""
    plain: dict[str, Any] = {
        "name": "j",
        "client": {"bootstrap.servers": "h:9092"},
        "target": Target("hudi", "/t"),
        "format": Format("json"),
    }
    return Job(**(plain | fields))


def state(offsets: Mapping[str, int], **fields: Any) -> State:
    """A state with the next offset of each 'topic:partition'; `fields` of every one of them."""
    partitions = {}
    for at, offset in offsets.items():
        topic, _, number = at.rpartition(":")
        partitions[TopicPartition(topic, int(number))] = PartitionState(next=offset, low=0, **fields)
    return State("j", partitions=partitions)


def at(text: str) -> TopicPartition:
    """'t:0' as a partition."""
    topic, _, number = text.rpartition(":")
    return TopicPartition(topic, int(number))
