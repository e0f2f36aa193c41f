"""Counters, meters, histograms and events of a run: one scope for each task, summed into the scope of the job.

A scope is what a person's own decoder gets hold of with `current()` (R11-R14):

    from lakesql.ingest.metrics import current

    def decode(batch):
        current().count("orders.without.customer", 3)
        current().observe("order.bytes", sizes)          # an array at once
        with current().timed("lookup"):                  # a timing event
            ...

Everything is cheap when it is called once per batch, and bounded: a histogram is a row of buckets, of events the newest
are kept. A scope may be used by several threads. Names are the reference's where it has one.
"""

import json
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from lakesql.ingest.meters import Histogram, Meter

EVENTS = 10_000
"""How many events a scope keeps; older ones are dropped, and counted as `events.dropped`."""

METRICS = pa.schema(
    [
        ("scope", pa.string()),
        ("name", pa.string()),
        ("kind", pa.string()),
        ("measure", pa.string()),
        ("value", pa.float64()),
    ]
)
EVENT_TABLE = pa.schema(
    [
        ("at", pa.timestamp("ms", "UTC")),
        ("scope", pa.string()),
        ("name", pa.string()),
        ("duration_ms", pa.float64()),
        ("facts", pa.map_(pa.string(), pa.string())),
    ]
)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in a scope; `duration_ms` of a timing event."""

    at_ms: int
    scope: str
    name: str
    facts: Mapping[str, Any] = field(default_factory=dict)
    duration_ms: float | None = None

    def json_line(self) -> str:
        timing = {} if self.duration_ms is None else {"duration_ms": round(self.duration_ms, 3)}
        return json.dumps(
            {"at_ms": self.at_ms, "scope": self.scope, "event": self.name, **timing, **self.facts}, default=str
        )


class Metrics:
    """One scope: the job, or a task of it. `on_event` sees the events of the scope and of its children at once."""

    def __init__(
        self,
        scope: str,
        on_event: Callable[[Event], None] | None = None,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.scope = scope
        self._on_event, self._now_ms, self._monotonic = on_event, now_ms, monotonic
        self._lock = threading.Lock()
        self._counters: dict[str, float] = {}
        self._meters: dict[str, Meter] = {}
        self._histograms: dict[str, Histogram] = {}
        self._events: deque[Event] = deque(maxlen=EVENTS)
        self._children: list[Metrics] = []

    def task(self, name: str) -> "Metrics":
        """A scope below this one; `totals` and the exports sum over all."""
        child = Metrics(name, self._on_event, self._now_ms, self._monotonic)
        with self._lock:
            self._children.append(child)
        return child

    @contextmanager
    def heard(self, hear: Callable[[Event], None]) -> Iterator[None]:
        """Within, events of this scope and of those made below it are also told to `hear`, from any thread."""
        before = self._on_event

        def both(event: Event) -> None:
            if before is not None:
                before(event)
            hear(event)

        self._on_event = both
        try:
            yield
        finally:
            self._on_event = before

    # ------------------------------------------------------------ what happens

    def count(self, name: str, by: float = 1) -> None:
        """Add to a counter."""
        with self._lock:
            self._counters[name] = self._counters.get(name, 0) + by

    def mark(self, name: str, by: float = 1) -> None:
        """Add to a meter, which has rates over 1, 5 and 15 minutes."""
        with self._lock:
            self._meter(name).mark(by, self._monotonic())

    def observe(self, name: str, values: Any) -> None:
        """Put one number, or an array of numbers, into a histogram."""
        numbers = np.atleast_1d(np.asarray(values, dtype=np.float64))
        with self._lock:
            self._histograms.setdefault(name, Histogram()).observe(numbers)

    def event(self, name: str, duration_ms: float | None = None, **facts: Any) -> None:
        """Note a named event."""
        one = Event(self._now_ms(), self.scope, name, facts, duration_ms)
        with self._lock:
            if len(self._events) == EVENTS:
                self._counters["events.dropped"] = self._counters.get("events.dropped", 0) + 1
            self._events.append(one)
        if self._on_event is not None:
            self._on_event(one)

    @contextmanager
    def timed(self, name: str, **facts: Any) -> Iterator[None]:
        """A timing event around a block; also a histogram of milliseconds under its name."""
        start = self._monotonic()
        try:
            yield
        finally:
            took = (self._monotonic() - start) * 1000
            self.observe(f"{name}.millis", took)
            self.event(name, took, **facts)

    # ------------------------------------------------------------ what it comes to

    def totals(self) -> dict[str, float]:
        """Counters and counts of meters, summed over this scope and its tasks."""
        sums: dict[str, float] = {}
        for scope in self.scopes():
            with scope._lock:
                mine = {**scope._counters, **{name: one.count for name, one in scope._meters.items()}}
            for name, value in mine.items():
                sums[name] = sums.get(name, 0) + value
        return dict(sorted(sums.items()))

    def scopes(self) -> list["Metrics"]:
        """This scope and all below it."""
        with self._lock:
            children = list(self._children)
        return [self, *(one for child in children for one in child.scopes())]

    def events(self) -> list[Event]:
        """Events of this scope and of all below it, in the order of time."""
        found: list[Event] = []
        for scope in self.scopes():
            with scope._lock:
                found.extend(scope._events)
        return sorted(found, key=lambda event: event.at_ms)

    def summed(self) -> "Metrics":
        """All scopes as one, under the name of this one, without the events."""
        whole = Metrics(self.scope, None, self._now_ms, self._monotonic)
        for scope in self.scopes():
            with scope._lock:
                for name, value in scope._counters.items():
                    whole._counters[name] = whole._counters.get(name, 0) + value
                for name, meter in scope._meters.items():
                    whole._meter(name).add(meter, self._monotonic())
                for name, histogram in scope._histograms.items():
                    whole._histograms.setdefault(name, Histogram()).add(histogram)
        return whole

    def table(self) -> pa.Table:
        """Everything as rows of METRICS: each task, then the job with the sums."""
        rows = [row for scope in self.scopes()[1:] for row in scope.rows()] + self.summed().rows()
        return pa.Table.from_pylist(rows, schema=METRICS)

    def event_table(self) -> pa.Table:
        """The events as rows of EVENT_TABLE."""
        rows = [
            {
                "at": one.at_ms,
                "scope": one.scope,
                "name": one.name,
                "duration_ms": one.duration_ms,
                "facts": [(key, str(value)) for key, value in one.facts.items()],
            }
            for one in self.events()
        ]
        return pa.Table.from_pylist(rows, schema=EVENT_TABLE)

    def json_lines(self) -> str:
        """The events as JSON lines, then one line for each number of `table`."""
        lines = [event.json_line() for event in self.events()]
        lines += [json.dumps(row) for row in self.table().to_pylist()]
        return "".join(f"{line}\n" for line in lines)

    def rows(self) -> list[dict[str, Any]]:
        """Rows of METRICS for this scope alone."""
        now = self._monotonic()
        with self._lock:
            numbers = [
                *((name, "counter", {"count": float(value)}) for name, value in self._counters.items()),
                *((name, "meter", one.measures(now)) for name, one in self._meters.items()),
                *((name, "histogram", one.measures()) for name, one in self._histograms.items()),
            ]
        return [
            {"scope": self.scope, "name": name, "kind": kind, "measure": measure, "value": value}
            for name, kind, measures in sorted(numbers, key=lambda one: one[:2])
            for measure, value in measures.items()
            if not math.isnan(value)
        ]

    def _meter(self, name: str) -> Meter:
        found = self._meters.get(name)
        if found is None:
            found = self._meters[name] = Meter(self._monotonic())
        return found


_CURRENT: ContextVar[Metrics | None] = ContextVar("lakesql_ingest_metrics", default=None)


def current() -> Metrics:
    """The scope of the task that runs in this thread; outside a run one that nobody reads."""
    return _CURRENT.get() or Metrics("none")


@contextmanager
def scoped(scope: Metrics) -> Iterator[None]:
    """Within, `current()` is this scope, in this thread."""
    token = _CURRENT.set(scope)
    try:
        yield
    finally:
        _CURRENT.reset(token)
