"""The facts that adaptive compaction decides from, what work costs, and what follows from them. Pure."""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

_RECENT_RUNS = 10
_DEFAULT_AMPLIFICATION = 1.5


@dataclass(frozen=True, slots=True)
class Target:
    """What the person wants. A target that is None is not wanted."""

    read_amplification: float | None = None
    staleness_s: float | None = None
    budget: float = 1.0

    def or_default(self, reads_known: bool) -> "Target":
        """With a read amplification of 1.5 where nothing says when compaction pays."""
        if self.read_amplification is None and self.staleness_s is None and not reads_known:
            return replace(self, read_amplification=_DEFAULT_AMPLIFICATION)
        return self


@dataclass(frozen=True, slots=True)
class Costs:
    """What work costs: seconds of a machine, and one factor that past compactions of the table tell."""

    round_s: float = 0.1
    group_s: float = 0.01
    base_byte_s: float = 1 / 40e6
    """To read a byte of a base file and write it anew."""
    log_byte_s: float = 1 / 15e6
    """To decode and merge a byte of a log."""
    base_read_s: float = 1 / 300e6
    """For a reader: a byte of a base file."""
    log_read: float = 1.0
    """For a reader: a byte of a log, in bytes of base files."""
    factor: float = 1.0

    def compacting(self, group: "Group") -> float:
        """Seconds that compacting one group takes."""
        return self.factor * (self.group_s + group.written * self.base_byte_s + group.log_bytes * self.log_byte_s)

    def folding(self, group: "Group") -> float:
        """Seconds that log compaction of one group takes: its logs become one."""
        moved = group.log_bytes * (self.log_byte_s + group.kept_by_folding * self.base_byte_s)
        return self.factor * (self.group_s + moved)

    @property
    def planning(self) -> float:
        """Seconds that a plan takes, whatever is in it."""
        return self.factor * self.round_s


@dataclass(frozen=True)
class Group:
    """One file group as measured. `taken`: a pending plan of a service covers it."""

    key: tuple[str, str]
    base_bytes: int
    log_bytes: int
    log_files: int = 0
    age_s: float = 0.0
    """Since the oldest commit in its logs completed."""
    rate: float = 0.0
    """Log bytes per second, recent ones counting most."""
    touches: float = 0.0
    """Commits per second that write to its logs, likewise."""
    log_rows: int | None = None
    base_rows: int | None = None
    taken: bool = False

    @property
    def written(self) -> int:
        """Bytes of the base file that compaction writes; without a base file the logs become one of about their size."""
        return self.base_bytes or self.log_bytes

    @property
    def moved(self) -> int:
        """Bytes that compaction reads and writes."""
        return self.base_bytes + self.log_bytes + self.written

    @cached_property
    def kept_by_folding(self) -> float:
        """Share of the log bytes that log compaction leaves, when updates hit the rows of the base file evenly.

        Of n updates on m rows m (1 - exp(-n / m)) rows are hit. Where rows are not known, bytes stand for them.
        """
        known = self.log_rows is not None and bool(self.base_rows)
        n = (self.log_rows or 0) / (self.base_rows or 1) if known else self.log_bytes / max(self.written, 1)
        return (1 - math.exp(-n)) / n if n > 0 else 1.0


@dataclass(frozen=True, slots=True)
class Run:
    """A compaction of the past: when it ended, how long it took, what it did."""

    ago_s: float
    seconds: float
    groups: int
    base_bytes: int
    log_bytes: int


@dataclass(frozen=True)
class Facts:
    """Everything a round decides from."""

    groups: tuple[Group, ...]
    runs: tuple[Run, ...] = ()
    costs: Costs = Costs()
    period_s: float = 0.0
    """Until the next round; 0 when none is planned."""
    reads_per_s: float | None = None
    """Snapshot reads of the table, None when they are not observed."""
    folds: bool = True
    """Whether the table can have log compaction."""

    @property
    def ahead_s(self) -> float:
        """How long what this round leaves has to do: until the next one is due, and has run as long as the last one."""
        if not self.period_s:
            return 0.0
        return self.period_s + min(self.runs, key=lambda r: r.ago_s).seconds if self.runs else self.period_s


def measured_factor(runs: Sequence[Run], costs: Costs) -> float:
    """How much slower than `costs` the newest compactions were; 1 before the first."""
    newest = sorted(runs, key=lambda r: r.ago_s)[:_RECENT_RUNS]
    weights = [0.8**n for n in range(len(newest))]
    took = sum(w * r.seconds for w, r in zip(weights, newest, strict=True))
    expected = sum(
        w
        * (costs.round_s + r.groups * costs.group_s + r.base_bytes * costs.base_byte_s + r.log_bytes * costs.log_byte_s)
        for w, r in zip(weights, newest, strict=True)
    )
    return took / expected if took > 0 and expected > 0 else 1.0


def weighted_rate(events: Iterable[tuple[float, float]], span_s: float, memory_s: float) -> float:
    """Amount per second of (seconds ago, amount), weights falling by e every `memory_s`; `span_s`: what was looked at."""
    total = sum(amount * math.exp(-ago / memory_s) for ago, amount in events)
    return total / (memory_s * -math.expm1(-span_s / memory_s)) if total else 0.0


def amplification(groups: Iterable[Group], costs: Costs, ahead_s: float = 0.0, gone: Collection[Group] = ()) -> float:
    """What a snapshot reads, in units of what the base files alone would be; after `ahead_s`, with the logs of `gone` merged.

    A group without base file counts as if it had one as large as its logs.
    """
    base = sum(g.written for g in groups)
    return 1 + log_bytes(groups, ahead_s, {g.key for g in gone}) * costs.log_read / base if base else 1.0


def log_bytes(groups: Iterable[Group], ahead_s: float, gone: Collection[tuple[str, str]]) -> float:
    return sum((0 if g.key in gone else g.log_bytes) + g.rate * ahead_s for g in groups)
