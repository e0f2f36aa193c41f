"""Reading ranges of partitions with one assigned consumer, in batches of columns, from low to high and never past it.

A partition is done when its position has reached high: by a record, or by the end-of-partition event, since control
records and aborted transactions leave offsets without a record (C7). It is failed when it cannot go on: refused by the
brokers, or without progress for the fetch timeout while nothing else came either or since its last error (C15); the
others go on. Where the wanted offset is gone by the time it is fetched, `reset` decides for this partition (C3).

Time counts only while the reader itself works or waits, not while its caller is busy with a batch.
"""

import re
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lakesql.errors import JobError
from lakesql.ingest.collector import without_collector
from lakesql.ingest.kafka_columns import empty_batch, raw_batch
from lakesql.ingest.model import Fetched, Position, Range, TopicPartition
from lakesql.ingest.retries import EVERY_S

if TYPE_CHECKING:
    from lakesql.ingest.kafka import KafkaClient

WAIT_S = 0.1
"""How long one call of the library waits for a batch to fill."""

SIGN_OF_LIFE_S = 1.0
"""After so long without a record an empty batch is given, so that the caller can look at its clock."""

CHECK_S = 1.0
"""How often, at most, topics are looked at while a reader runs; at its end they are in any case."""

WAITING_S = 2.0
"""So long a reader waits for brokers in trouble without a word."""

FIRST_ROWS = 1000
"""Rows of the first batch, before the size of a record is known."""

BATCH_BYTES = 64 << 20
"""A batch of large messages has fewer rows, so that it stays below about this."""

RESETS = ("nearest", "earliest", "latest", "skip", "fail")

_TRUNCATED = re.compile(r"truncation detected.*end offset is (\d+)")
"""What the library says when records of the leader epoch that was read before are gone from the end of a log."""

RETRIES = 3
"""How often a fetch is tried again at an offset that the brokers list as present and refuse."""


class Reading:
    """One task's reader. Partitions are numbered by `slot`, their place among the ranges."""

    def __init__(
        self, client: "KafkaClient", ranges: Sequence[Range], reset: str, timeout_s: float, batch_rows: int
    ) -> None:
        if reset not in RESETS:
            raise JobError(f"reset.on.offset.out.of.range: {reset!r} is none of {', '.join(RESETS)}")
        self._client = client
        self._ranges = ranges
        self._reset = reset
        self._timeout_s = timeout_s
        self._batch_rows = batch_rows
        self._rows = min(batch_rows, FIRST_ROWS)
        self._at = [one.at for one in ranges]
        self._slot = {at: slot for slot, at in enumerate(self._at)}
        self._next = np.array([one.low for one in ranges], np.int64)
        self._high = np.array([one.high for one in ranges], np.int64)
        self._open = self._next < self._high
        self._epoch = {slot: one.leader_epoch for slot, one in enumerate(ranges)}
        self._names = list(dict.fromkeys(one.topic for one in ranges))
        self._topics = pa.array(self._names, pa.string())
        self._code = {name: code for code, name in enumerate(self._names)}
        self._table = self._slots_by_number()
        self._errors: dict[int, tuple[str, float]] = {}  # by slot: the last error and when it was
        self._tries: dict[int, int] = {}  # by slot: fetches refused since its position moved
        self._general = ""  # the last error that is not about a partition
        self._consumer: Any = None
        self._started = time.monotonic()
        self._away = 0.0
        self._progress = 0.0
        self._spoke = 0.0
        self._checked = 0.0
        self._told_at = -EVERY_S  # when it was last said that brokers are waited for
        self._changes = _Changes()

    def run(self) -> Iterator[Fetched]:
        """Batches until every partition is done or failed."""
        from confluent_kafka import Consumer

        from lakesql.ingest.kafka import LOGGER, consumer_settings, made

        self._changes.done.update(np.flatnonzero(~self._open).tolist())
        if self._changes:
            yield self._fetched(empty_batch())
        if not self._open.any():
            return
        settings = {**consumer_settings(self._client), "error_cb": self._told}
        self._consumer = made(lambda: Consumer(settings, logger=LOGGER), self._client)
        self._started, self._away = time.monotonic(), 0.0
        try:
            self._assign(np.flatnonzero(self._open).tolist())
            while self._open.any():
                wanted = int((self._high - self._next)[self._open].sum())  # with these there is nothing to wait for
                with without_collector():
                    batch = self._take(self._consumer.consume(min(self._rows, wanted), WAIT_S))
                if batch.num_rows or self._changes or self._now() - self._spoke >= SIGN_OF_LIFE_S:
                    fetched = self._fetched(batch)
                    left = time.monotonic()
                    yield fetched
                    self._away += time.monotonic() - left
                    self._spoke = self._now()
        finally:
            self._consumer.close()

    # ------------------------------------------------------------ one call of the library

    def _take(self, messages: list[Any]) -> pa.RecordBatch:
        """Records within their ranges as a batch; positions move, events are followed."""
        records = [one for one in messages if one.error() is None]
        batch = self._columns(records) if records else empty_batch()
        if len(records) < len(messages):
            for event in messages:
                if event.error() is not None:
                    self._event(event)
        self._finish()
        self._give_up()
        return batch

    def _columns(self, records: list[Any]) -> pa.RecordBatch:
        from confluent_kafka import Message

        count = len(records)
        if len(self._names) == 1:
            codes = np.zeros(count, np.int32)
        else:
            codes = np.fromiter(map(self._code.__getitem__, map(Message.topic, records)), np.int32, count)
        partitions = np.fromiter(map(Message.partition, records), np.int32, count)
        offsets = np.fromiter(map(Message.offset, records), np.int64, count)
        slots = self._table[codes, partitions]
        wanted = self._open[slots] & (offsets >= self._next[slots]) & (offsets < self._high[slots])
        last = np.full(len(self._at), -1, np.int64)
        last[slots] = np.arange(count)
        for slot in np.flatnonzero(last >= 0).tolist():
            if self._open[slot]:
                self._move(slot, int(offsets[last[slot]]) + 1)
                self._epoch[slot] = _epoch(records[last[slot]], self._epoch[slot])
        if not wanted.all():
            kept = np.flatnonzero(wanted)
            records = [records[i] for i in kept.tolist()]
            codes, partitions, offsets = codes[kept], partitions[kept], offsets[kept]
        batch = raw_batch(records, self._topics, codes, partitions, offsets)
        if batch.num_rows:
            fitting = BATCH_BYTES // max(batch.nbytes // batch.num_rows, 1)
            self._rows = int(min(max(fitting, 1), self._batch_rows))
        return batch

    def _move(self, slot: int, position: int) -> None:
        """All before this offset has been read, or lies beyond high, which is as far as this reader goes."""
        position = min(position, int(self._high[slot]))
        if position > self._next[slot]:
            self._next[slot] = position
            self._changes.moved_on.add(slot)
            self._errors.pop(slot, None)
            self._tries.pop(slot, None)
            self._progress = self._now()

    def _event(self, event: Any) -> None:
        from confluent_kafka import KafkaError

        error = event.error()
        code = error.code()
        at = TopicPartition(event.topic(), event.partition()) if event.topic() is not None else None
        slot = self._slot.get(at) if at is not None else None
        if slot is None:
            self._general = self._client.safe(error.str())
        elif not self._open[slot]:
            return
        elif code == KafkaError._PARTITION_EOF:
            self._move(slot, event.offset())
            if self._next[slot] < self._high[slot]:
                self._errors.setdefault(slot, (f"the partition ends at offset {event.offset()}", self._now()))
        elif code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION):
            self._out_of_range(slot, self._client.safe(error.str()))
        elif code in _final_errors():
            self._fail(slot, f"{self._client.brokers}: {self._client.safe(error.str())}")
        else:
            self._errors[slot] = (self._client.safe(error.str()), self._errors.get(slot, ("", self._now()))[1])

    def _told(self, error: Any) -> None:
        """Called by the library, within `consume`: something about a broker, not about a partition."""
        from confluent_kafka import KafkaError

        if error.code() != KafkaError._ALL_BROKERS_DOWN or not self._general:
            self._general = self._client.safe(error.str())

    def _finish(self) -> None:
        """Let go of partitions that have reached their end, before the library fetches what nobody wants."""
        reached = np.flatnonzero(self._open & (self._next >= self._high)).tolist()
        if reached:
            self._open[reached] = False
            self._unassign(reached)
            self._changes.done.update(reached)
            self._check_topics()

    def _give_up(self) -> None:
        """Fail what has made no progress for too long; say before that what is waited for."""
        now = self._now()
        self._say_waiting(now)
        if now - self._progress >= self._timeout_s:
            overdue = np.flatnonzero(self._open).tolist()
        else:
            overdue = [slot for slot, (_, since) in self._errors.items() if now - since >= self._timeout_s]
        for slot in overdue:
            if self._open[slot]:
                why = self._errors.get(slot, (self._general or "the brokers sent nothing", 0.0))[0]
                self._fail(
                    slot,
                    f"{self._client.brokers}: no progress for {self._timeout_s:g} s at offset {self._next[slot]} "
                    f"(planned end {self._high[slot]}): {why}",
                )

    def _say_waiting(self, now: float) -> None:
        since, slots = self._progress, [slot for slot in self._errors if self._open[slot]]
        if slots:
            since = min(self._errors[slot][1] for slot in slots)
        elif not self._general:
            return
        if now - since < WAITING_S or now - self._told_at < EVERY_S or not self._open.any():
            return
        self._told_at = now
        slot = slots[0] if slots else int(np.flatnonzero(self._open)[0])
        why = self._errors[slot][0] if slots else self._general
        more = f" and {len(slots) - 1:,} more" if len(slots) > 1 else ""
        self._client.waits(f"{self._at[slot]}{more} at offset {self._next[slot]}: {why}", self._timeout_s - now + since)

    def _fail(self, slot: int, why: str) -> None:
        if self._open[slot]:
            self._open[slot] = False
            self._unassign([slot])
        self._changes.failed[slot] = why

    # ------------------------------------------------------------ an offset that is gone

    def _out_of_range(self, slot: int, said: str) -> None:
        """Go on where `reset` says, or fail this partition."""
        at, here = self._at[slot], int(self._next[slot])
        now = self._client.bounds([at], self._client.isolation)[at]
        if now.error is not None:
            self._fail(slot, f"offset {here} is out of range and the range could not be had: {now.error}")
            return
        cut = _TRUNCATED.search(said)
        diverged = here if cut is None else int(cut.group(1))
        if now.earliest <= here <= now.latest and diverged >= here:
            self._tries[slot] = self._tries.get(slot, 0) + 1
            if self._tries[slot] > RETRIES:
                self._fail(slot, f"{self._client.brokers}: offset {here} is refused although it exists: {said}")
                return
            self._epoch[slot] = None
            self._reassign(slot)
            return
        what = (
            f"offset {here} is out of range, the partition has [{now.earliest}, {now.latest})"
            if cut is None
            else f"offset {here} is no longer what it was, the log was cut back to {diverged}"
        )
        if self._reset in ("fail", "skip"):
            hint = "; set the offsets anew or choose another reset.on.offset.out.of.range"
            self._fail(slot, f"{what} (reset.on.offset.out.of.range={self._reset}){hint}")
            return
        nearest = now.earliest if here < now.earliest else min(diverged, now.latest)
        end = max(min(now.latest, int(self._high[slot])), now.earliest)
        self._next[slot] = {"earliest": now.earliest, "latest": end, "nearest": nearest}[self._reset]
        self._high[slot] = max(end, self._next[slot])
        self._epoch[slot] = None
        self._changes.jumped[slot] = int(self._next[slot])
        self._changes.moved_on.add(slot)
        self._progress = self._now()
        if self._next[slot] < self._high[slot]:
            self._reassign(slot)

    def _check_topics(self) -> None:
        """Fail what has been read of a topic that was deleted and made again meanwhile: its offsets mean other records."""
        if self._open.any() and self._now() - self._checked < CHECK_S:
            return
        self._checked = self._now()
        planned = {one.topic: one.topic_id for one in self._ranges if one.topic_id is not None}
        now = self._client.topic_ids(planned)
        for slot, one in enumerate(self._ranges):
            if planned.get(one.topic) != now.get(one.topic, planned.get(one.topic)) and (
                self._open[slot] or slot in self._changes.done
            ):
                self._changes.done.discard(slot)
                self._fail(
                    slot, "the topic was deleted and made again while it was read; the next run begins with it anew"
                )

    # ------------------------------------------------------------ assignment

    def _assign(self, slots: list[int]) -> None:
        from confluent_kafka import TopicPartition as At

        self._consumer.incremental_assign(
            [At(*self._at[slot], int(self._next[slot]), leader_epoch=_known(self._epoch[slot])) for slot in slots]
        )

    def _unassign(self, slots: list[int]) -> None:
        from confluent_kafka import TopicPartition as At

        self._consumer.incremental_unassign([At(*self._at[slot]) for slot in slots])

    def _reassign(self, slot: int) -> None:
        self._unassign([slot])
        self._assign([slot])

    def _slots_by_number(self) -> Any:
        """[topic code, partition] -> slot, for whole columns at once."""
        width = 1 + max((one.partition for one in self._ranges), default=0)
        table = np.full((max(len(self._names), 1), width), -1, np.int64)
        for slot, one in enumerate(self._ranges):
            table[self._code[one.topic], one.partition] = slot
        return table

    # ------------------------------------------------------------ what is told

    def _now(self) -> float:
        """Seconds that this reader has been at work."""
        return time.monotonic() - self._started - self._away

    def _fetched(self, batch: pa.RecordBatch) -> Fetched:
        changes, self._changes = self._changes, _Changes()
        at = self._at
        touched = changes.moved_on | changes.done | set(changes.failed)
        return Fetched(
            batch,
            {at[slot]: Position(int(self._next[slot]), self._epoch[slot]) for slot in sorted(touched)},
            frozenset(at[slot] for slot in changes.done),
            {at[slot]: why for slot, why in changes.failed.items()},
            {at[slot]: offset for slot, offset in changes.jumped.items()},
        )


class _Changes:
    """What has happened since the caller was told last, by slot."""

    def __init__(self) -> None:
        self.moved_on: set[int] = set()
        self.done: set[int] = set()
        self.failed: dict[int, str] = {}
        self.jumped: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self.moved_on or self.done or self.failed or self.jumped)


def _final_errors() -> frozenset[int]:
    """Errors of a partition that waiting does not mend."""
    from confluent_kafka import KafkaError as Kafka

    return frozenset(
        {
            Kafka.TOPIC_AUTHORIZATION_FAILED,
            Kafka.UNKNOWN_TOPIC_OR_PART,
            Kafka.TOPIC_EXCEPTION,
            Kafka._UNKNOWN_TOPIC,
            Kafka._UNKNOWN_PARTITION,
        }
    )


def _epoch(message: Any, before: int | None) -> int | None:
    """The leader epoch of a message where the library gives it."""
    epoch = message.leader_epoch()
    return before if epoch is None or epoch < 0 else int(epoch)


def _known(epoch: int | None) -> int:
    return -1 if epoch is None else epoch
