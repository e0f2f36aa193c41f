"""What a person sees while a run goes on: nothing, lines, or a bar with records, bytes, lag and time left.

The calls come from several threads; an implementation locks what it needs.
"""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from lakesql.counted import counted
from lakesql.ingest.model import Committed, Plan, Report, TopicPartition
from lakesql.ingest.report import (
    idle,
    idle_line,
    news,
    plan_events,
    plan_lines,
    report_events,
    report_lines,
    round_note,
)

if TYPE_CHECKING:
    from rich.console import Console

EVERY_S = 3.0


class Progress(Protocol):
    """Told by a run what happens; it must not raise."""

    def planned(self, plan: Plan) -> None:
        """The ranges are fixed; nothing is read yet."""

    def note(self, text: str) -> None:
        """Something to know at once: what is waited for, what is tried again."""

    def moved(self, at: TopicPartition, offset: int, records: int, size: int) -> None:
        """This many records and bytes more were taken, and reading goes on at `offset`."""

    def committing(self, target: str) -> None:
        """Rows become visible now; this takes a while."""

    def committed(self, target: str, done: Committed) -> None:
        """Rows and offsets of a target are stored."""

    def finished(self, report: Report) -> None:
        """The run is over."""


class Silent:
    """Shows nothing."""

    def planned(self, plan: Plan) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def moved(self, at: TopicPartition, offset: int, records: int, size: int) -> None:
        pass

    def committing(self, target: str) -> None:
        pass

    def committed(self, target: str, done: Committed) -> None:
        pass

    def finished(self, report: Report) -> None:
        pass


class Lines(Silent):
    """One line for each event, as text or as JSON; of a partition at most one every few seconds.

    rounds  of one run of many: the notes that earlier rounds have said, which grow. A round says only what is new, and
            when nothing is, one line. None: the only run.
    """

    def __init__(
        self,
        write: Callable[[str], object],
        as_json: bool = False,
        every_s: float = EVERY_S,
        monotonic: Callable[[], float] = time.monotonic,
        rounds: set[str] | None = None,
    ) -> None:
        self._rounds = rounds
        self._write, self._json, self._every, self._monotonic = write, as_json, every_s, monotonic
        self._lock = threading.Lock()
        self._ends: dict[TopicPartition, tuple[int, int]] = {}
        self._last: dict[TopicPartition, tuple[float, int]] = {}  # time of the last line, records since
        self._said: frozenset[str] = frozenset()  # notes, which the report has again
        self._start = monotonic()

    def planned(self, plan: Plan) -> None:
        self._ends = {one.at: (one.low, one.high) for one in plan.ranges}
        self._start, self._said = self._monotonic(), self._said.union(plan.notes)
        if self._rounds is not None:
            plan = news(plan, self._rounds)
            self._rounds.update(map(round_note, plan.notes))
        self._several(plan_events(plan) if self._json else plan_lines(plan))

    def moved(self, at: TopicPartition, offset: int, records: int, size: int) -> None:
        del size
        with self._lock:
            now = self._monotonic()
            since, waiting = self._last.get(at, (self._start, 0))
            waiting += records
            if now - since < self._every:
                self._last[at] = (since, waiting)
                return
            self._last[at] = (now, 0)
            low, high = self._ends.get(at, (offset, offset))
            rate = waiting / max(now - since, 1e-9)
            share = 100 * (offset - low) / max(high - low, 1)
            lag = max(high - offset, 0)
            if self._json:
                facts = {"event": "progress", "topic": at.topic, "partition": at.partition, "offset": offset}
                self._write(json.dumps({**facts, "percent": round(share, 1), "rate": round(rate), "lag": lag}))
            else:
                self._write(f"Partition {at} at offset {offset:,}, {share:.0f} %, {rate:,.0f} records/s, lag {lag:,}")

    def note(self, text: str) -> None:
        self._said = self._said.union([text])
        self._several([json.dumps({"event": "note", "text": text}) if self._json else text])

    def committed(self, target: str, done: Committed) -> None:
        if self._json:
            self._several([json.dumps({"event": "commit", "target": target, **asdict(done)}, default=list)])
        elif done.commit is not None:
            self._several([f"Committed {done.commit} to {target}: {counted(done.files, 'file')}, {done.bytes:,} bytes"])

    def finished(self, report: Report) -> None:
        new = replace(report, notes=tuple(note for note in report.notes if note not in self._said))
        if self._rounds is not None and idle(new):
            self._several([idle_line(new, self._json)])
            return
        self._several(report_events(new, commits=False) if self._json else report_lines(new))

    def _several(self, lines: list[str]) -> None:
        with self._lock:
            for line in lines:
                self._write(line)


class Bar(Silent):
    """A bar of rich: records of all, bytes, lag, time left. A context, so that the terminal is itself again."""

    def __init__(self, console: "Console | None" = None) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._lock = threading.Lock()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f}%"),
            TextColumn("{task.fields[records]:,} records"),
            TextColumn("{task.fields[size]}"),
            TextColumn("lag {task.fields[lag]:,}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._task = self._bar.add_task("Planning", total=None, records=0, size="0 B", lag=0)
        self._records = self._bytes = 0
        self._low: dict[TopicPartition, int] = {}
        self._high: dict[TopicPartition, int] = {}
        self._at: dict[TopicPartition, int] = {}
        self._total = self._gone = 0

    def __enter__(self) -> "Bar":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def planned(self, plan: Plan) -> None:
        self._low = {one.at: one.low for one in plan.ranges}
        self._high = {one.at: one.high for one in plan.ranges}
        self._at = dict(self._low)
        self._total = sum(one.records for one in plan.ranges)
        self._bar.update(self._task, description="Reading", total=self._total, lag=self._total)

    def note(self, text: str) -> None:
        self._bar.console.print(text, markup=False, highlight=False)

    def moved(self, at: TopicPartition, offset: int, records: int, size: int) -> None:
        with self._lock:
            self._records += records
            self._bytes += size
            within = min(offset, self._high.get(at, offset))
            self._gone += within - self._at.get(at, within)
            self._at[at] = within
            self._bar.update(
                self._task,
                completed=self._gone,
                records=self._records,
                size=readable(self._bytes),
                lag=self._total - self._gone,
            )

    def committing(self, target: str) -> None:
        self._bar.update(self._task, description=f"Committing to {_short(target)}")

    def committed(self, target: str, done: Committed) -> None:
        self._bar.update(self._task, description=f"Committed {done.commit} to {_short(target)}")


def _short(target: str) -> str:
    """The last part of a path, so that the numbers find room on a narrow terminal."""
    return target.rstrip("/").rpartition("/")[2]


def readable(size: float) -> str:
    """Bytes for people."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
