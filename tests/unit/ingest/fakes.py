"""A broker, a decoder and a transactional sink in memory, with faults at any call: what the tests of a run are made of."""

# ruff: noqa: ARG001, ARG002, ARG005  the protocols say what is handed over

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from lakesql.errors import IngestConflict, IngestError
from lakesql.ingest.fetching import Timing
from lakesql.ingest.model import (
    BAD,
    RAW,
    Bounds,
    Committed,
    Decoded,
    Fetched,
    Format,
    Job,
    PartitionState,
    Plan,
    Position,
    Range,
    State,
    Target,
    Task,
    Topic,
    TopicPartition,
    WorkUnit,
)
from lakesql.ingest.run import Parts

BAD_VALUE = b"bad"


class Crash(BaseException):
    """The process is gone: nothing after it runs."""


class Faults:
    """What goes wrong: `at[name]` are the numbers of the calls of that name that fail, and how."""

    def __init__(self, at: Mapping[str, Mapping[int, BaseException]] | None = None) -> None:
        self._at, self._calls, self._lock = at or {}, dict[str, int](), threading.Lock()

    def hit(self, name: str) -> None:
        with self._lock:
            number = self._calls[name] = self._calls.get(name, 0) + 1
        error = self._at.get(name, {}).get(number)
        if error is not None:
            raise error


class NoWaiting(Timing):
    """A clock that waits for nothing, and remembers for how long it should have."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def sleep(self, seconds: float, stop: threading.Event) -> None:
        self.slept.append(seconds)


@dataclass
class Broker:
    """Records by partition as (offset, value); `ends` are where the partitions end, behind gaps too."""

    logs: dict[TopicPartition, list[tuple[int, bytes | None]]] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    starts: dict[TopicPartition, int] = field(default_factory=dict)

    def add(self, topic: str, partition: int, values: Sequence[bytes | None], gap: int = 0) -> "Broker":
        at = TopicPartition(topic, partition)
        log, begin = self.logs.setdefault(at, []), self.ends.get(at, 0)
        log.extend((begin + i, value) for i, value in enumerate(values))
        self.ends[at] = begin + len(values) + gap
        return self

    def fill(self, topic: str, partition: int, count: int) -> "Broker":
        return self.add(topic, partition, [b"%d" % i for i in range(count)])


@dataclass
class FakeClient:
    """Reads a Broker, `batch` records at a time, `mixed` partitions in one batch.

    failing   partitions that stop when they have come to this offset
    """

    broker: Broker
    faults: Faults = field(default_factory=Faults)
    batch: int = 3
    mixed: int = 1
    failing: dict[TopicPartition, int] = field(default_factory=dict)
    during: Callable[[], None] = lambda: None
    reads: list[list[Range]] = field(default_factory=list)
    closed: int = 0

    def topics(self) -> list[Topic]:
        self.faults.hit("topics")
        names: dict[str, list[int]] = {}
        for at in sorted(self.broker.ends):
            names.setdefault(at.topic, []).append(at.partition)
        return [Topic(name, tuple(numbers)) for name, numbers in names.items()]

    def bounds(self, partitions: Sequence[TopicPartition], isolation: str) -> dict[TopicPartition, Bounds]:
        return {at: Bounds(self.broker.starts.get(at, 0), self.broker.ends[at]) for at in partitions}

    def offsets_at(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return dict.fromkeys(times_ms, 0)

    def read(
        self, ranges: Sequence[Range], reset: str, fetch_timeout_s: float, batch_rows: int = 10_000
    ) -> Iterator[Fetched]:
        self.reads.append(list(ranges))
        self.faults.hit("open")
        open_ = {one.at: (one.low, one.high) for one in ranges}
        try:
            while open_:
                self.during()
                self.faults.hit("fetch")
                yield self._next(open_)
        finally:
            self.closed += 1

    def _next(self, open_: dict[TopicPartition, tuple[int, int]]) -> Fetched:
        rows: list[dict[str, object]] = []
        positions, done, failed, moved = {}, set(), {}, {}
        for at in list(open_)[: self.mixed]:
            low, high = open_.pop(at)
            start = self.broker.starts.get(at, 0)
            if start > low:
                moved[at] = low = start
            left = [(offset, value) for offset, value in self.broker.logs[at] if low <= offset < high]
            some, stops = left[: self.batch], self.failing.get(at)
            if stops is not None:
                some = [one for one in some if one[0] < stops]
            if stops is not None and len(some) < min(len(left), self.batch):
                failed[at] = "leader lost"
                position = some[-1][0] + 1 if some else low
            elif len(some) == len(left):
                done.add(at)
                position = high
            else:
                position = some[-1][0] + 1
                open_[at] = (position, high)
            positions[at] = Position(position, 7)
            rows += [
                {
                    "_topic": at.topic,
                    "_partition": at.partition,
                    "_offset": offset,
                    "_timestamp": 1000 * offset,
                    "_timestamp_type": "create",
                    "_key": None,
                    "_headers": None,
                    "_value": value,
                }
                for offset, value in some
            ]
        return Fetched(raw(rows), positions, frozenset(done), failed, moved)

    def close(self) -> None:
        self.faults.hit("close")


def raw(rows: list[dict[str, object]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=RAW)


@dataclass
class FakeDecoder:
    """Values are rows, NULL is a delete, BAD_VALUE is bad."""

    faults: Faults = field(default_factory=Faults)

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        self.faults.hit("decode")
        table = pa.Table.from_batches([batch])
        gone = pc.is_null(table["_value"])
        wrong = pc.fill_null(pc.equal(table["_value"], BAD_VALUE), False)
        bad = table.filter(wrong)
        for name in ("schema_id", "stage", "error"):
            bad = bad.append_column(name, pa.array(["decode"] * bad.num_rows, pa.string()))
        rows = table.filter(pc.invert(pc.or_(gone, wrong))).rename_columns([*RAW.names[:-1], "value"])
        return Decoded(rows, table.filter(gone).drop_columns(["_value"]), bad.cast(BAD))

    def close(self) -> None:
        self.faults.hit("decoder close")


Key = tuple[str, int, int]


@dataclass
class FakeSink:
    """A target that keeps rows and state of its commits, in one step each."""

    job: str = "j"
    faults: Faults = field(default_factory=Faults)
    rows: list[Key] = field(default_factory=list)
    deletes: list[Key] = field(default_factory=list)
    bad: list[Key] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    discarded: int = 0

    def stored(self) -> State:
        self.faults.hit("stored")
        return self.states[-1] if self.states else State(self.job)

    def settle(self) -> None:
        self.faults.hit("settle")

    def begin(self, before: State, run: str) -> "FakeLoad":
        self.faults.hit("begin")
        return FakeLoad(self, before)

    def all(self) -> list[Key]:
        return sorted(self.rows + self.deletes + self.bad)


@dataclass
class FakeLoad:
    sink: FakeSink
    before: State
    units: dict[WorkUnit, list[Decoded]] = field(default_factory=dict)
    owners: dict[WorkUnit, int] = field(default_factory=dict)

    def take(self, unit: WorkUnit, decoded: Decoded) -> None:
        assert self.owners.setdefault(unit, threading.get_ident()) == threading.get_ident()
        self.sink.faults.hit("take")
        self.units.setdefault(unit, []).append(decoded)
        self.sink.faults.hit("taken")

    def forget(self, unit: WorkUnit) -> None:
        self.sink.faults.hit("forget")
        self.units.pop(unit, None)

    def commit(self, state: State) -> Committed:
        sink = self.sink
        sink.faults.hit("commit")
        now = sink.states[-1].offsets() if sink.states else {}
        if now != self.before.offsets():
            raise IngestConflict("another run was first")
        taken = [one for parts in self.units.values() for one in parts]
        rows, deletes, bad = (keys([getattr(d, name) for d in taken]) for name in ("rows", "deletes", "bad"))
        sink.rows += rows
        sink.deletes += deletes
        sink.bad += bad
        sink.states.append(state)
        self.units = {}
        sink.faults.hit("committed")
        return Committed(str(len(sink.states)), inserted=len(rows), deleted=len(deletes), files=1, bytes=len(rows))

    def discard(self) -> None:
        self.sink.faults.hit("discard")
        self.sink.discarded += 1
        self.units = {}


def keys(tables: Sequence[pa.Table]) -> list[Key]:
    found: list[Key] = []
    for one in tables:
        names = one.select(["_topic", "_partition", "_offset"]).to_pydict()
        found += zip(names["_topic"], names["_partition"], names["_offset"], strict=True)
    return found


@dataclass
class CountLimit:
    """At most so many records of a pass, cut between batches."""

    amount: int | None = None
    stopped: str | None = None

    def wrap(self, fetched: Iterator[Fetched]) -> Iterator[Fetched]:
        seen = 0
        for one in fetched:
            yield one
            seen += one.batch.num_rows
            if self.amount is not None and seen >= self.amount:
                self.stopped = f"count {self.amount}"
                return


def plan_of(per_unit: int = 2, per_task: int = 1) -> Callable[..., Plan]:
    """A plan from the stored offset, else the beginning, to the end."""

    def plan(job: Job, client: FakeClient, stored: State, now_ms: int) -> Plan:
        ranges = []
        for at, end in sorted(client.broker.ends.items()):
            known: PartitionState | None = stored.partitions.get(at)
            low = known.next if known else client.broker.starts.get(at, 0)
            reason = "stored" if known else "bootstrap earliest"
            ranges.append(Range(*at, low, end, reason, known.next if known else None))
        units: list[WorkUnit] = []
        for topic in dict.fromkeys(one.topic for one in ranges):
            mine = [one for one in ranges if one.topic == topic and one.low < one.high]
            units += [
                WorkUnit(topic, tuple(mine[i : i + per_unit]), len(units) + i) for i in range(0, len(mine), per_unit)
            ]
        tasks = [Task(i // per_task, tuple(units[i : i + per_task])) for i in range(0, len(units), per_task)]
        carried = {at: "not there" for at in stored.partitions if at not in client.broker.ends}
        return Plan(job.name, tuple(ranges), tuple(tasks), carried)

    return plan


def job(**changes: object) -> Job:
    start = Job(
        "j", {"bootstrap.servers": "fake"}, Target("hudi", "/t"), Format("raw"), lock=False, retry_interval_s=1.0
    )
    return replace(start, **changes)


@contextmanager
def no_lock(job: Job) -> Iterator[tuple[str, ...]]:
    yield ()


def parts(
    client: FakeClient,
    sink: FakeSink | Callable[[str, tuple[str, ...]], FakeSink],
    *,
    limit: int | None = None,
    faults: Faults | None = None,
    per_unit: int = 2,
    per_task: int = 1,
) -> Parts:
    return Parts(
        client,
        lambda job, topics: [topic.name for topic in topics],
        plan_of(per_unit, per_task),
        sink if callable(sink) else lambda path, topics: sink,
        lambda topics: FakeDecoder(faults or Faults()),
        lambda: CountLimit(limit),
        lock=no_lock,
    )


def consistent(broker: Broker, sink: FakeSink) -> None:
    """Every record below the stored offsets is there once, and none beyond them."""
    offsets = sink.states[-1].offsets() if sink.states else {}
    expected = [(*at, offset) for at, log in broker.logs.items() for offset, _ in log if offset < offsets.get(at, 0)]
    assert sink.all() == sorted(expected)


OUTAGE = IngestError("the registry does not answer")
