"""Facts and costs of a table as rows to read: the recommendation first, then why, then what else one may ask.

Each row has a topic, what is measured, a value with its unit, and a sentence. Topics in this order: the recommendation, the
numbers that decide it, the questions people are told to ask, the table of both types, what the commits wrote, read times
against log bytes, and where prices and facts come from. Pure.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from itertools import groupby

import numpy as np
import pyarrow as pa

from lakesql import markup
from lakesql.advice import costs
from lakesql.advice.calibration import Calibration
from lakesql.advice.costs import Logs, Own, Spread, Workload
from lakesql.advice.facts import CHANGES_MIN, Facts
from lakesql.advice.measure import Measured
from lakesql.counted import counted

ADVICE_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("measure", pa.string()),
        ("value", pa.float64()),
        ("unit", pa.string()),
        ("text", pa.string()),
    ]
)
COW, MOR = "Copy-on-Write", "Merge-on-Read"
_CURVE = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0)
_CLOSE = 0.1
"""Costs that differ by less are called equal: the prices are not known better."""


class Topic(StrEnum):
    """The parts of an advice."""

    RECOMMENDATION = "recommendation"
    DECIDES = "decides"
    QUESTIONS = "questions"
    COMPARISON = "comparison"
    HISTORY = "history"
    CURVE = "read time and log"
    BASIS = "basis"


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the advice. Without a number `value` is None."""

    topic: StrEnum
    measure: str
    value: float | None
    unit: str
    text: str


@dataclass(frozen=True, slots=True)
class Advice:
    """What is said about one table.

    recommended        'cow', 'mor', or None: too little history, both cost about the same, or it depends on the reads
    breakeven_reads    reads per write up to which Merge-on-Read is cheaper; None: always, or not known
    breakeven_shares   update shares at which the two change places, ascending, at the given reads; () without them
    """

    table: str
    type: str
    recommended: str | None
    sentence: str
    reads_per_write: float | None
    breakeven_reads: float | None
    breakeven_shares: tuple[float, ...]
    lines: tuple[Line, ...]

    def to_arrow(self) -> pa.Table:
        """topic, measure, value, unit, text: one row per line."""
        return pa.Table.from_pylist([asdict(line) for line in self.lines], schema=ADVICE_SCHEMA)

    def __repr__(self) -> str:
        return f"<lakesql.Advice {self.table}: {self.sentence}>"

    def _repr_html_(self) -> str:
        parts = []
        for topic, group in groupby(self.lines, key=lambda line: line.topic):
            lines = list(group)
            body = _comparison(lines) if topic == Topic.COMPARISON else _lines(lines)
            parts.append(body if topic in _OPEN else markup.details(topic, body))
        return markup.page(markup.title(self.table), markup.line(self.sentence), *parts)

    def __str__(self) -> str:
        text = [self.table]
        for topic, group in groupby(self.lines, key=lambda line: line.topic):
            lines = list(group)
            text += ["", topic.upper()]
            text += _side_by_side(lines) if topic == Topic.COMPARISON else map(_printed, lines)
        return "\n".join(text)


_OPEN = (Topic.RECOMMENDATION, Topic.DECIDES)
"""What is seen at once; the rest is folded away."""


def _lines(lines: Sequence[Line]) -> str:
    rows = [
        (line.measure, "" if line.value is None else f"{number_text(line.value)} {line.unit}".rstrip(), line.text)
        for line in lines
    ]
    return markup.table(("measure", "value", ""), rows, (False, True, False))


def _comparison(lines: Sequence[Line]) -> str:
    rows = []
    for cow, mor in zip(lines[::2], lines[1::2], strict=True):
        values = ["" if line.value is None else number_text(line.value) for line in (cow, mor)]
        rows.append((cow.measure.removesuffix(f", {COW}"), *values, cow.unit, cow.text))
    return markup.table(("", COW, MOR, "unit", ""), rows, (False, True, True, False, False))


def _printed(line: Line) -> str:
    number = "" if line.value is None else f"{number_text(line.value)} {line.unit}"
    return f"  {line.measure:<42} {number:>28}  {line.text}".rstrip()


def _side_by_side(lines: Sequence[Line]) -> list[str]:
    """The comparison as a table: one line of text for each pair of lines."""
    text = [f"  {'':<42} {COW:>16} {MOR:>16}"]
    for cow, mor in zip(lines[::2], lines[1::2], strict=True):
        values = [" " if line.value is None else number_text(line.value) for line in (cow, mor)]
        measure = cow.measure.removesuffix(f", {COW}")
        text.append(f"  {measure:<42} {values[0]:>16} {values[1]:>16} {cow.unit}  {cow.text}")
    return text


def advice_of(
    where: str,
    facts: Facts,
    load: Workload | None,
    record: Calibration,
    reads: float | None,
    measured: Measured | None = None,
) -> Advice:
    """The advice from a table's facts. `load` is None when they are too few."""
    kind = "mor" if facts.is_mor else "cow"
    if load is None:
        sentence = _lacking(facts)
        first = Line(Topic.RECOMMENDATION, "not enough history", float(len(facts.changes)), "commits", sentence)
        lines = (first, *_now(facts), *_basis(facts, record, measured))
        return Advice(where, kind, None, sentence, reads, None, (), lines)
    made = _Made(facts, load, record, reads)
    recommended, sentence = made.verdict()
    head = Line(Topic.RECOMMENDATION, recommended or made.undecided(), *made.headline(), sentence)
    lines = (
        head,
        *made.deciding(),
        *made.questions(),
        *made.comparison(),
        *made.history(),
        *_now(facts),
        *made.curve(),
        *_basis(facts, record, measured),
    )
    return Advice(where, kind, recommended, sentence, reads, made.even_reads, made.even_shares, tuple(lines))


class _Made:
    """One advice in the making: everything computed once."""

    def __init__(self, facts: Facts, load: Workload, record: Calibration, reads: float | None) -> None:
        self.facts, self.load, self.record, self.prices = facts, load, record, record.prices
        cpu = record.clock == "cpu"
        self.unit, self.of = ("CPU s", " of CPU time") if cpu else ("s", "")
        self.given = reads
        self.even_reads = costs.breakeven_reads(load, record.prices)
        self.even_shares = () if reads is None else costs.breakeven_shares(load, record.prices, reads)

    def both(self, reads: float) -> tuple[float, float]:
        """What a commit with so many reads behind it costs as Copy-on-Write and as Merge-on-Read."""
        cow, mor = costs.cow_costs(self.load, self.prices, reads), costs.mor_costs(self.load, self.prices, reads)
        return cow.total, mor.total

    # ------------------------------------------------------------ recommendation

    def undecided(self) -> str:
        """What stands where a type is recommended otherwise."""
        return "break-even" if self.given is None else "either"

    def headline(self) -> tuple[float | None, str]:
        """The number beside the recommendation and its unit: what the cheaper type spares, without reads the break-even."""
        if self.given is not None:
            return self.gain(self.given), "of the cost spared"
        return (self.even_reads, "reads per write") if self.even_reads else (None, "")

    def gain(self, reads: float) -> float:
        """Share of the dearer type's cost that the cheaper one spares."""
        both = self.both(reads)
        return 1 - min(both) / max(both)

    def verdict(self) -> tuple[str | None, str]:
        """('cow', 'mor' or None, the sentence)."""
        if self.given is None:
            return self._verdict_without_reads()
        cow, mor = self.both(self.given)
        cost = f"{seconds_text(mor)} instead of {seconds_text(cow)}{self.of}"
        behind = f"per commit with {_reads(self.given)} behind it"
        if self.gain(self.given) < _CLOSE:
            return None, f"Both types cost about the same: {MOR} {cost} {behind}; keep what the table is."
        if mor < cow:
            return "mor", f"{MOR} is cheaper: {cost} {behind}, its part of a compaction included."
        cost = f"{seconds_text(cow)} instead of {seconds_text(mor)}{self.of}"
        return "cow", f"{COW} is cheaper: {cost} {behind}, a compaction of {MOR} counted in."

    def _verdict_without_reads(self) -> tuple[str | None, str]:
        if self.even_reads is None:
            return "mor", f"{MOR} is cheaper however often the table is read."
        if self.even_reads == 0:
            return "cow", f"{COW} is cheaper even if the table is never read between two commits."
        text = (
            f"{MOR} is cheaper up to {_reads(self.even_reads)} per write, {COW} with more; "
            "say how often the table is read (reads_per_write) for a recommendation."
        )
        return None, text

    def deciding(self) -> Iterator[Line]:
        """The three numbers."""
        facts, load = self.facts, self.load
        yield Line(
            Topic.DECIDES, "update share", facts.update_share, "of the rows",
            f"A commit updates or deletes {_percent(facts.update_share)} of {load.table.rows:,.0f} rows{self._even_share()}.",
        )  # fmt: skip
        touched = load.touched()
        yield Line(
            Topic.DECIDES, "file groups touched", facts.touched_share, "of the file groups",
            f"A commit touches {number_text(facts.groups_touched)} of {counted(len(facts.groups), 'file group')}; {COW} writes "
            f"{touched.rows:,.0f} rows for {load.changed_rows:,.0f} changed.",
        )  # fmt: skip
        if self.even_reads is None:
            text = f"{MOR} stays cheaper with any number of reads."
        elif self.even_reads == 0:
            text = f"{COW} is cheaper without any read."
        else:
            text = f"Up to here {MOR} is cheaper, beyond it {COW}."
        given = "" if self.given is None else f" Given: {number_text(self.given)}."
        yield Line(Topic.DECIDES, "break-even reads per write", self.even_reads, "reads per write", text + given)

    def _even_share(self) -> str:
        if self.given is None:
            return ""
        at = f"at {_reads(self.given)} per write"
        if not self.even_shares:
            cow, mor = self.both(self.given)
            cheaper = MOR if mor < cow else COW
            return f"; {at} {cheaper} is cheaper whatever the share"
        shares = " and ".join(map(_percent, self.even_shares))
        return f"; {at} both types cost the same at {shares}"

    # ------------------------------------------------------------ questions

    def questions(self) -> Iterator[Line]:
        """The four questions that people are told to ask, answered from the data."""
        facts, load, prices = self.facts, self.load, self.prices
        cow, mor = costs.cow_commit(load, prices), costs.mean_mor_commit(load, prices)
        every = "" if facts.interval_s is None else f" Commits come every {seconds_text(facts.interval_s)}."
        yield Line(
            Topic.QUESTIONS, "How soon must a commit be visible?", cow - mor, self.unit,
            f"A commit takes {seconds_text(cow)}{self.of} as {COW}, {seconds_text(mor)} as {MOR}.{every}{self._seen_seconds()}",
        )  # fmt: skip
        shares = [c.share for c in facts.changes]
        yield Line(
            Topic.QUESTIONS, "How much is updated?", facts.update_share, "of the rows",
            f"Between {_percent(min(shares))} and {_percent(max(shares))} in {counted(len(shares), 'commit')}, "
            f"{_percent(facts.update_share)} in the mean.",
        )  # fmt: skip
        text = (
            "Not known; the timeline stores no reads. Give reads_per_write."
            if self.given is None
            else f"{_reads(self.given)} per write, as given."
        )
        yield Line(Topic.QUESTIONS, "How often is it read?", self.given, "reads per write", text)
        once = costs.compaction(load, prices, load.deltas) + costs.merge(load, prices, load.deltas)
        busy = "" if not facts.interval_s else f", {_percent(once / (facts.interval_s * load.deltas))} of the time"
        yield Line(
            Topic.QUESTIONS, "Can you run compaction?", once, self.unit,
            f"One every {load.deltas} commits takes {seconds_text(once)}{self.of}{busy}. {self._compactions()}",
        )  # fmt: skip

    def _seen_seconds(self) -> str:
        seen = [c.seconds for c in self.facts.changes if c.seconds is not None]
        return f" As {_name(self.facts)} they took {seconds_text(float(np.median(seen)))}." if seen else ""

    def _compactions(self) -> str:
        if not self.facts.is_mor:
            return f"As {COW} the table needs none."
        done, waiting = self.facts.compactions, self.facts.deltas_open
        return f"The timeline shows {counted(done, 'compaction')}, and {counted(waiting, 'commit')} since the newest."

    # ------------------------------------------------------------ comparison

    def comparison(self) -> Iterator[Line]:
        """The usual comparison of the two types, with this table's numbers."""
        load, prices = self.load, self.prices
        n = load.deltas
        middle = (n + 1) / 2
        cow, mor = costs.cow_commit(load, prices), costs.mean_mor_commit(load, prices)
        scan = costs.scan(load, prices)
        opened = costs.opening(load, prices)
        firsts = [costs.first_read(load, prices, k) for k in range(1, n + 1)]
        warms = [costs.warm_read(load, prices, k) for k in range(1, n + 1)]
        log_row, base_row = self._stored()
        touched, dirty = load.touched(), load.touched(n)
        cow_bytes = touched.rows * base_row
        log_bytes, folded = load.changed_rows * log_row, dirty.rows * base_row / n
        changed = load.changed_rows * base_row
        folding = costs.mor_costs(load, prices, self.given or 0.0).compaction
        wait = self.facts.interval_s
        stale = None if wait is None else (n - 1) / 2 * wait
        table = load.table.rows * base_row
        pairs: list[tuple[str, float | None, float | None, str, str]] = [
            ("write latency", cow, mor, self.unit, "one commit"),
            ("write throughput", load.changed_rows / cow, load.changed_rows / mor, "rows/s", "rows changed"),
            ("snapshot read, first after a commit", scan + opened, float(np.mean(firsts)), self.unit, f"logs of 1 to {n} commits are merged"),
            ("snapshot read, further ones", scan, float(np.mean(warms)), self.unit, "what was merged is kept by the process"),
            ("read-optimized read", scan, scan, self.unit, f"{MOR}: without what is in the logs"),
            ("freshness of read-optimized reads", 0.0, stale, "s", f"mean age; {MOR}: {number_text(middle - 1)} commits behind"),
            ("storage", table, table + middle * log_bytes, "bytes", "newest file slices, between two compactions"),
            ("bytes written per commit", cow_bytes, log_bytes + folded, "bytes", f"{MOR}: {bytes_text(log_bytes)} of logs, the rest compaction"),
            ("write amplification", cow_bytes / changed, (log_bytes + folded) / changed, "x", "bytes written per byte changed"),
            ("operations", 0.0, folding, self.unit, f"per commit; {COW}: cleaning; {MOR}: cleaning and compaction"),
            ("files written per commit", touched.files, touched.files + dirty.files / n, "files", f"{MOR}: small log files, and compacted base files"),
            ("files read", load.table.files, load.table.files + middle * touched.files, "files", "by a snapshot read"),
        ]  # fmt: skip
        pairs += [("all together", *self.both(r), self.unit, f"per commit with {text}") for r, text in self.sides()]
        for measure, as_cow, as_mor, unit, text in pairs:
            yield Line(Topic.COMPARISON, f"{measure}, {COW}", as_cow, unit, text)
            yield Line(Topic.COMPARISON, f"{measure}, {MOR}", as_mor, unit, text)

    def sides(self) -> list[tuple[float, str]]:
        """Reads per commit to compare the whole costs at: those given, else some on either side of the break-even."""
        if self.given is not None:
            return [(self.given, _reads(self.given))]
        if self.even_reads:
            low, high = self.even_reads / 2, self.even_reads * 2
            return [(low, f"{_reads(low)}, half the break-even"), (high, f"{_reads(high)}, twice the break-even")]
        return [(0.0, "no read"), (10.0, "10 reads")]

    def _stored(self) -> tuple[float, float]:
        """Bytes of a row (in a log file, in a base file)."""
        log = self.facts.log_row_bytes or self.record.log_bytes(self.load.row.bytes)
        return log, self.facts.base_row_bytes or self.load.row.bytes * self.record.base_ratio

    # ------------------------------------------------------------ history and curve

    def history(self) -> Iterator[Line]:
        """What the commits wrote, and would have written as the other type."""
        facts = self.facts
        changes = len(facts.changes)
        log_row, base_row = self._stored()
        changed = facts.rows_changed * base_row
        if changed <= 0:
            return
        own = f"{bytes_text(facts.bytes_written)} for {bytes_text(changed)} changed in {counted(changes, 'commit')}, services included."
        yield Line(Topic.HISTORY, f"write amplification paid, {_name(facts)}", facts.bytes_written / changed, "x", own)
        if facts.is_mor:
            other = facts.rows_rewritten * base_row
            text = "base files of the touched file groups, written anew by each commit"
        else:
            logged, folded = facts.rows_changed * log_row, facts.rows_compacted() * base_row
            other = logged + folded
            text = f"{bytes_text(logged)} of logs, {bytes_text(folded)} by compactions every {facts.deltas} commits"
        name = COW if facts.is_mor else MOR
        yield Line(Topic.HISTORY, f"the same commits as {name}", other, "bytes", text)
        yield Line(
            Topic.HISTORY, f"write amplification as {name}", other / changed, "x", "bytes written per byte changed"
        )
        if facts.is_mor and (dirty := [g for g in facts.groups.values() if g.log_rows]):
            groups = Spread(len(dirty), sum(g.rows for g in dirty))
            live = sum(g.rows * -math.expm1(-g.log_rows / g.rows) for g in dirty if g.rows)
            logs = Logs(groups, facts.log_files, facts.log_rows, live)
            cost = costs.fold(self.load, self.prices, logs) + costs.merge_logs(self.load, self.prices, logs)
            text = f"logs of {counted(len(dirty), 'file group')}; {bytes_text(groups.rows * base_row)} would be written"
            yield Line(Topic.HISTORY, "compaction now", cost, self.unit, text)

    def curve(self) -> Iterator[Line]:
        """Snapshot reads of this table with more and more unmerged log bytes."""
        log_row, base_row = self._stored()
        whole = self.load.table
        scan = costs.scan(self.load, self.prices)
        for share in _CURVE:
            rows = share * whole.rows * base_row / log_row
            cost = scan
            if rows:
                logs = self.load.logs(rows / max(1.0, self.load.changed_rows))
                cost += costs.patch(self.load, self.prices, logs) + costs.merge_logs(self.load, self.prices, logs)
            text = f"{rows:,.0f} rows in the logs; {cost / scan:.1f} times the read without logs"
            yield Line(Topic.CURVE, f"first read, log bytes {share:.0%} of base bytes", cost, self.unit, text)


def _now(facts: Facts) -> Iterator[Line]:
    """Read amplification as the files lie now."""
    if not facts.groups:
        return
    base, logs = facts.base_bytes, facts.log_bytes
    ratio = (base + logs) / base if base else None
    text = f"{bytes_text(logs)} of logs with {facts.log_rows:,} rows beside {bytes_text(base)} of base files"
    yield Line(Topic.HISTORY, "read amplification now", ratio, "x", text)
    shares = facts.log_shares()
    if logs and len(shares):
        text = f"log bytes per base byte of a file group: median {_percent(float(np.median(shares)))}"
        yield Line(Topic.HISTORY, "largest log share of a file group", float(shares.max()), "of the base file", text)


def _basis(facts: Facts, record: Calibration, measured: Measured | None) -> Iterator[Line]:
    text = f"{len(facts.changes)} of them change rows that were there; only these count"
    yield Line(Topic.BASIS, "commits looked at", float(facts.commits), "commits", text)
    clock = "" if record.clock == "wall" else " They are CPU time of all threads."
    text = f"{record.text[0].upper()}{record.text[1:]}.{clock}"
    yield Line(Topic.BASIS, "error of the prices", record.error, "median, relative", text)
    if measured is None:
        text = "The prices are corrected by nothing measured with this table; `lakesql advise --measure` does that."
        yield Line(Topic.BASIS, "measured with this table", None, "", text)
        return
    operations = ", ".join(f"{f.name.replace('_', ' ')} {getattr(measured.own, f.name):.2f}" for f in fields(Own))
    text = f"Corrected by what was {measured.text}; times the prices: {operations}."
    yield Line(Topic.BASIS, "measured with this table", float(measured.rows), "rows", text)


def _lacking(facts: Facts) -> str:
    if not facts.groups or not facts.rows:
        return (
            "The table has no rows, so nothing can be said. Load it, and ask again after at least "
            f"{CHANGES_MIN} commits that update or delete rows."
        )
    return (
        f"The timeline shows {counted(len(facts.changes), 'commit')} that changed rows that were there; the advice needs at least "
        f"{CHANGES_MIN}. Ask again after more updates, deletes or merges."
    )


def _name(facts: Facts) -> str:
    return MOR if facts.is_mor else COW


def number_text(value: float) -> str:
    """A number with three digits, for people."""
    if value and abs(value) < 0.001:
        return f"{value:.1e}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _reads(value: float) -> str:
    return "1 read" if value == 1 else f"{number_text(value)} reads"


def _percent(value: float) -> str:
    return f"{100 * value:.2g} %" if value < 0.1 else f"{100 * value:.0f} %"


def seconds_text(value: float) -> str:
    """A span of time, for people."""
    if value < 1:
        return f"{1000 * value:.0f} ms"
    if value < 600:
        return f"{value:.3g} s"
    return f"{value / 60:,.0f} min" if value < 36_000 else f"{value / 3600:,.0f} h"


def bytes_text(value: float) -> str:
    """A size, for people."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.3g} {unit}" if unit != "bytes" else f"{value:.0f} bytes"
        value /= 1000
    return f"{value:,.1f} TB"
