"""How far each partition of a run is: what the open load holds, what is committed, and why it stopped. Values only.

A track is changed by the thread of its task while it holds the gate shared, and by the committing thread while it holds
the gate alone; so no lock is needed here.
"""

from dataclasses import dataclass, field, replace

from lakesql.counted import counted
from lakesql.ingest.model import BadRecords, PartitionReport, PartitionState, Position, Range, TopicPartition

PERCENT_FROM = 100
"""From this many records of a partition on a percentage of bad ones says something."""


@dataclass(frozen=True, slots=True)
class Fate:
    """Records by what became of them, and the time they took.

    seconds   in the thread of the task, waiting for records included
    fetch_s, decode_s, convert_s   in the client; in the decoder; until the target had them
    late      older than gobblin.kafka.recordLevelSlaMinutes when they were read
    """

    read: int = 0
    rows: int = 0
    deletes: int = 0
    bad: int = 0
    bytes: int = 0
    seconds: float = 0.0
    fetch_s: float = 0.0
    decode_s: float = 0.0
    convert_s: float = 0.0
    late: int = 0

    def plus(self, other: "Fate") -> "Fate":
        return Fate(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))


@dataclass(slots=True)
class Track:
    """One partition of a run.

    ends_ms      when range.high was looked at
    base, next   offsets where the open load begins and where reading goes on
    held, kept   records of the open load, and of the commits before it in this run
    stop         '' while there is something to read; then as PartitionReport.stop
    """

    range: Range
    before: PartitionState | None
    ends_ms: int | None = None
    task: int | None = None
    base: int = 0
    next: int = 0
    epoch: int | None = None
    newest_ms: int | None = None
    oldest_ms: int | None = None  # of this run
    last_ms: int | None = None
    held: Fate = field(default_factory=Fate)
    kept: Fate = field(default_factory=Fate)
    example: str = ""  # the first bad record
    gaps: tuple[tuple[int, int], ...] = ()  # lost in the open load
    gone: tuple[tuple[int, int], ...] = ()  # lost, and a commit of this run says so
    lost: int = 0  # lost, and a commit of this run says so
    stop: str = ""
    failure: Exception | None = None
    stored: bool = False  # a commit of this run has it
    _newest: int | None = None  # as of the newest commit, as are _last and _epoch
    _last: int | None = None
    _epoch: int | None = None

    def __post_init__(self) -> None:
        self.base = self.next = self.range.low
        self.epoch = self._epoch = self.range.leader_epoch
        self.newest_ms = self._newest = self.before.newest_ms if self.before else None
        went_on = self.before is not None and self.before.next == self.range.low
        self.last_ms = self._last = self.before.last_ms if self.before and went_on else None
        self.gaps = (self.range.gap,) if self.range.gap else ()

    @property
    def at(self) -> TopicPartition:
        return self.range.at

    @property
    def failed(self) -> bool:
        return self.stop.startswith("error")

    @property
    def open(self) -> bool:
        return not self.stop and self.next < self.range.high

    def move(self, position: Position) -> None:
        """Reading has come this far."""
        self.next = position.next
        if position.leader_epoch is not None:
            self.epoch = position.leader_epoch

    def jump(self, begin: int, to: int) -> None:
        """What was to be read next, at `begin`, is not there any more; reading goes on at `to` (C3)."""
        if to > begin:
            self.gaps = joined((*self.gaps, (begin, to)))
        else:  # the log was cut back; nothing was taken of what is gone
            self.base = to
        self.next, self.epoch = to, None

    def seen(self, newest_ms: int | None, last_ms: int | None, oldest_ms: int | None) -> None:
        """The largest timestamp of records that were read, that of the last one of them, and the smallest."""
        self.last_ms = last_ms
        if oldest_ms is not None and (self.oldest_ms is None or oldest_ms < self.oldest_ms):
            self.oldest_ms = oldest_ms
        if newest_ms is not None and (self.newest_ms is None or newest_ms > self.newest_ms):
            self.newest_ms = newest_ms

    def back(self) -> None:
        """Nothing of the open load counts; reading starts at its beginning again."""
        self.next, self.held, self.epoch = self.base, Fate(), self._epoch
        self.newest_ms, self.last_ms = self._newest, self._last
        self.gaps = (self.range.gap,) if self.range.gap and not self.stored else ()
        if not self.failed:
            self.stop = ""

    def fail(self, error: Exception) -> None:
        self.stop, self.failure = f"error: {error}", error

    def committed(self) -> None:
        """What the open load held is stored."""
        self.kept = self.kept.plus(self.held)
        self.lost += lost(self.gaps)
        self.base, self._newest, self._last, self._epoch = self.next, self.newest_ms, self.last_ms, self.epoch
        self.gone = joined((*self.gone, *self.gaps))
        self.held, self.gaps, self.stored = Fate(), (), True

    @property
    def all_gaps(self) -> tuple[tuple[int, int], ...]:
        """Every range of offsets that this run found gone, each by itself."""
        return joined((*self.gone, *self.gaps))

    def loss_notes(self) -> list[str]:
        """What was lost while it was read; what was lost before, the plan has said."""
        known = self.range.gap
        parts = [(known[1], to) if known and begin == known[0] else (begin, to) for begin, to in self.all_gaps]
        return [
            f"Lost while {self.at} was read: {counted(to - begin, 'offset')}, {begin} to {to}, which were deleted before their turn came."
            for begin, to in parts
            if to > begin
        ]

    def state(self) -> PartitionState:
        """What a commit stores of this partition, if it holds what the open load has."""
        whole, before = self.kept.plus(self.held), self.before
        read, averages = self.held.read, (before.average_bytes, before.average_millis) if before else (None, None)
        if whole.read:
            averages = (whole.bytes / whole.read, whole.seconds * 1000 / whole.read)
        return PartitionState(
            next=self.next,
            low=self.base,
            topic_id=self.range.topic_id or (before.topic_id if before else None),
            leader_epoch=self.epoch,
            records=read,
            bytes=self.held.bytes,
            quarantined=self.held.bad,
            deletes=self.held.deletes,
            gap=_outer(self.gaps),
            lost=(before.lost if before else 0) + self.lost + lost(self.gaps),
            skipped=0 if self.stored else self.range.skipped,
            average_bytes=averages[0],
            average_millis=averages[1],
            newest_ms=self.newest_ms,
            last_ms=self.last_ms,
            ends_ms=self.ends_ms,
            lag=max(self.range.high - self.next, 0),
        )

    def report(self) -> PartitionReport:
        """The line of the report: what was read, and what of it is stored."""
        read = self.kept.plus(self.held)
        return PartitionReport(
            topic=self.range.topic,
            partition=self.range.partition,
            low=self.range.low,
            high=self.range.high,
            next=self.base,
            read=read.read,
            written=self.kept.rows,
            deletes=self.kept.deletes,
            quarantined=self.kept.bad,
            skipped=self.range.skipped if self.stored else 0,
            lost=self.lost,
            bytes=read.bytes,
            lag=max(self.range.high - self.base, 0),
            seconds=read.seconds,
            task=self.task,
            reason=self.range.reason,
            stop=self.stop or "high",
        )


def carried(before: PartitionState, missing_since_ms: int | None) -> PartitionState:
    """A partition that is not read in this run, as the commit stores it: its offset, and nothing new."""
    return replace(
        before,
        low=before.next,
        records=0,
        bytes=0,
        quarantined=0,
        deletes=0,
        gap=None,
        skipped=0,
        missing_since_ms=missing_since_ms,
    )


def too_many_bad(rule: BadRecords, bad: int, records: int, at_most: int | None = None) -> str | None:
    """Why a partition has too many bad records, or None.

    While it is still read, `at_most` says how many records it can have in the end: the percentage is then only exceeded
    when no further record can change that, so the answer does not depend on where batches end.
    """
    if not bad:
        return None
    if rule.action == "fail":
        return f"{bad:,} of {counted(records, 'record')} cannot be decoded, and lakesql.bad.records is fail"
    if rule.max_count is not None and bad > rule.max_count:
        return f"{counted(bad, 'record')} cannot be decoded, more than the {rule.max_count:,} allowed"
    if rule.max_percent <= 0:
        return f"{bad:,} of {counted(records, 'record')} cannot be decoded, and 0 percent are allowed"
    of = max(records, at_most or 0)
    if of >= PERCENT_FROM and bad * 100 > rule.max_percent * of:
        return f"{bad:,} of {counted(records, 'record')} cannot be decoded, more than the {rule.max_percent:g} percent allowed"
    return None


def joined(gaps: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """Gaps in order, those that touch as one."""
    found: list[tuple[int, int]] = []
    for begin, to in gaps:
        if found and found[-1][1] == begin:
            found[-1] = (found[-1][0], to)
        else:
            found.append((begin, to))
    return tuple(found)


def lost(gaps: tuple[tuple[int, int], ...]) -> int:
    return sum(max(to - begin, 0) for begin, to in gaps)


def _outer(gaps: tuple[tuple[int, int], ...]) -> tuple[int, int] | None:
    """What a state can say of several gaps: all that is lost lies within; `lost` has the exact number, and the report
    and the event of the partition each gap by itself. Offsets that never had a record, as those of transactions and of
    compacted topics, are holes of the range and no gap: nothing is lost there (C7)."""
    return (gaps[0][0], gaps[-1][1]) if gaps else None
