"""One task: reads its ranges, decodes, hands rows to the loads, and moves the position of a partition with its rows.

    pass       one reader over all that is open; a unit whose rows had to be forgotten is read again in a next pass,
               without the partition that was the reason
    attempt    passes until nothing is open; an error that may go away (a registry that is down) starts another attempt
               after a pause, and what is not finished begins where its newest commit ends

Records of a partition are checked on their way: they lie between its position before and after, in order. A client that
breaks that would lose or double records, so it is an error and no offset moves (C6).
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from lakesql.errors import IngestError, JobError, LakeError, LastingError, TooManyBadRecords
from lakesql.ingest.bad_records import examples
from lakesql.ingest.datasets import Dataset, as_lake_error
from lakesql.ingest.fetching import Timing, groups
from lakesql.ingest.gate import Gate
from lakesql.ingest.metrics import Metrics, scoped
from lakesql.ingest.model import Client, Decoded, Decoder, Fetched, Job, Position, Range, Task, TopicPartition
from lakesql.ingest.progress import Progress
from lakesql.ingest.secrets import hide, secrets_of
from lakesql.ingest.tally import Tally, counts, joined, sla_ms, split, tally
from lakesql.ingest.tracks import Fate, Track, too_many_bad


class Limiter(Protocol):
    """The limit of one pass of a task. `stopped` says after the end why it ended early, None: it did not."""

    stopped: str | None

    def wrap(self, fetched: Iterator[Fetched]) -> Iterator[Fetched]:
        """The same, ended early or slowed down; closing it closes the reader."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What the tasks of a run have in common."""

    job: Job
    client: Client
    decoder: Callable[[tuple[str, ...]], Decoder]
    limiter: Callable[[], Limiter]
    dataset_of: Mapping[str, Dataset]  # by topic
    gate: Gate
    stop: threading.Event
    timing: Timing
    progress: Progress


@dataclass(slots=True)
class _Group:
    """What several fetched batches come to."""

    batches: dict[int, list[pa.RecordBatch]]  # by unit
    tallies: dict[TopicPartition, list[Tally]]
    ahead: dict[TopicPartition, Position]
    moved: list[tuple[TopicPartition, int, int, bool]]  # from, to, and whether rows were taken before
    done: set[TopicPartition]
    failed: dict[TopicPartition, str]
    fetch_s: dict[TopicPartition, float]
    spent: dict[int, tuple[float, float]]  # by unit: seconds of decoding, and until the target had the rows


class TaskRun:
    """A task while it runs, in one thread."""

    def __init__(self, task: Task, shared: Shared, metrics: Metrics) -> None:
        self.task, self._shared, self.metrics = task, shared, metrics
        self._units = task.units
        self._unit_of = {one.at: number for number, unit in enumerate(task.units) for one in unit.ranges}
        self._tracks = {one.at: shared.dataset_of[one.topic].tracks[one.at] for one in task.ranges}
        self._spoiled: set[int] = set()
        self._sla_ms = sla_ms(shared.job)
        self._secrets = secrets_of({**shared.job.settings, **shared.job.client})
        self._ticked = 0.0
        self._fetch_s: deque[float] = deque()  # how long the client took for each batch on its way
        for track in self._tracks.values():
            track.task = task.number

    def run(self) -> None:
        """Read everything, or fail what cannot be read. Raises only what is no Exception."""
        job, attempt = self._shared.job, 0
        with scoped(self.metrics), self.metrics.timed("task", task=self.task.number):
            while True:
                try:
                    self._attempt()
                except Exception as error:
                    if self._shared.stop.is_set():  # nothing more is committed
                        return
                    last = not _worth_a_retry(error) or attempt >= job.task_retries
                    self._undo(error, last)
                    if last:
                        return
                    self.metrics.count("task.retries")
                    wait_s = attempt * job.retry_interval_s
                    about = f"Task {self.task.number}"
                    text = f"{about} starts again in {wait_s:g} s, try {attempt + 2} of {job.task_retries + 1}: {error}"
                    self.metrics.event(
                        "TaskRetry",
                        about=about,
                        task=self.task.number,
                        attempt=attempt + 1,
                        error=str(error),
                        text=text,
                    )
                    self._shared.timing.sleep(wait_s, self._shared.stop)
                    attempt += 1
                else:
                    return

    def judge(self, track: Track, final: bool) -> None:
        """Fail a partition that has too many bad records, and read the others of its unit anew. The gate is held."""
        total = track.kept.plus(track.held)
        why = too_many_bad(self._shared.job.bad, total.bad, total.read, None if final else track.range.records)
        if why and not track.failed:
            more = (
                "take lakesql.bad.records out"
                if self._shared.job.bad.action == "fail"
                else "allow more with lakesql.bad.records.max.percent"
            )
            text = (
                f"{track.at}: {why}. {track.example} Its offset stays at {track.base}. Correct the format, or {more}."
            )
            self._fail(track, TooManyBadRecords(text), forget=True)

    def judge_all(self) -> None:
        """Before a commit within the run: what was read so far must be within the bounds. The gate is held alone."""
        for track in self._tracks.values():
            if track.held.read:
                self.judge(track, final=True)

    # ------------------------------------------------------------ attempts and passes

    def _attempt(self) -> None:
        with ExitStack() as opened:
            decoders: dict[str, Decoder] = {}

            def decoder(dataset: Dataset) -> Decoder:
                if dataset.target not in decoders:
                    decoders[dataset.target] = opened.enter_context(closing(self._shared.decoder(dataset.topics)))
                return decoders[dataset.target]

            while ranges := self._still_open():
                self._pass(ranges, decoder)

    def _still_open(self) -> list[Range]:
        if self._shared.stop.is_set():
            return []
        with self._shared.gate.shared():
            self._spoiled = set()
            return [
                replace(track.range, low=track.next, leader_epoch=track.epoch)
                for at, track in self._tracks.items()
                if track.open and self._live(self._unit_of[at])
            ]

    def _pass(self, ranges: list[Range], decoder: Callable[[Dataset], Decoder]) -> None:
        shared, job = self._shared, self._shared.job
        limiter = shared.limiter()
        self._fetch_s = deque()
        read = limiter.wrap(shared.client.read(ranges, job.reset, job.fetch_timeout_s))
        fetched = timed(read, self._fetch_s, shared.timing.monotonic)
        self._ticked = shared.timing.monotonic()
        with closing(groups(fetched, shared.stop)) as grouped:
            for group in grouped:
                with shared.gate.shared():
                    self._absorb(group, decoder)
                if not any(self._live(number) for number in range(len(self._units))):
                    break
        if not shared.stop.is_set():
            with shared.gate.shared():
                self._end_of_pass([one.at for one in ranges], limiter.stopped)

    def _end_of_pass(self, asked: list[TopicPartition], limit: str | None) -> None:
        """What is still open has met a limit, or its reader ended although there was more."""
        cut = [self._tracks[at] for at in asked if self._tracks[at].open and self._live(self._unit_of[at])]
        for track in cut:
            if not self._live(self._unit_of[track.at]):
                continue
            if limit:
                track.stop = "limit"
            self.judge(track, final=True)
            if not limit and not track.failed:
                self._fail(track, IngestError(f"{track.at}: reading ended at offset {track.next} of {track.range.high} "
                                              "without a reason. Run again; the next run goes on there."))  # fmt: skip
        if limit and cut:
            keys = ",".join(str(track.at) for track in cut)
            self.metrics.event("PrematureExtractorStop", limiterStopCause=limit, partitions=keys)

    def _live(self, number: int) -> bool:
        """Whether rows of this unit still count in this pass."""
        return number not in self._spoiled and not self._shared.dataset_of[self._units[number].topic].blocked

    # ------------------------------------------------------------ rows and positions

    def _absorb(self, fetched: list[Fetched], decoder: Callable[[Dataset], Decoder]) -> None:
        group = self._gather(fetched)
        for number, batches in group.batches.items():
            unit = self._units[number]
            dataset = self._shared.dataset_of[unit.topic]
            batch = joined(batches)
            clock = self._shared.timing.monotonic
            began = clock()
            decoded = decoder(dataset).decode(batch)
            _complete(batch, decoded)
            wrong = counts(decoded.bad)
            for at, text in examples(decoded.bad, [at for at in wrong if not self._tracks[at].example]).items():
                self._tracks[at].example = hide(text, self._secrets)
            decode_s, began = clock() - began, clock()
            with self._shared.gate.writing() as may:
                if not may:
                    return
                assert dataset.load is not None
                try:
                    dataset.load.take(unit, decoded)
                except BaseException:  # a commit may come before anyone else hears of it
                    dataset.forget(unit)
                    raise
            group.spent[number] = (decode_s, clock() - began)
            self._settle(group, number, counts(decoded.deletes), wrong)
        for number in {self._unit_of[at] for at in (*group.ahead, *group.failed, *group.done)} - group.batches.keys():
            if self._live(number):
                self._settle(group, number, {}, {})

    def _gather(self, fetched: list[Fetched]) -> _Group:
        """Check the batches against the positions, and cut them by unit."""
        group = _Group({}, {}, {}, [], set(), {}, {}, {})
        late_before = None if self._sla_ms is None else self._shared.timing.now_ms() - self._sla_ms
        for one in fetched:
            for at, to in one.moved.items():
                track = self._tracks[at]
                begin = group.ahead[at].next if at in group.ahead else track.next
                group.moved.append((at, begin, to, bool(track.held.read or group.tallies.get(at))))
                group.ahead[at] = Position(to)
            tallies = tally(one.batch, late_before)
            for at, took in shares(tallies, self._fetch_s.popleft() if self._fetch_s else 0.0).items():
                group.fetch_s[at] = group.fetch_s.get(at, 0.0) + took
            for found in tallies:
                self._check(found, group.ahead.get(found.at), one.positions.get(found.at))
                group.tallies.setdefault(found.at, []).append(found)
            group.ahead.update(one.positions)
            group.done |= one.done
            group.failed.update(one.failed)
            if tallies:
                parts = {0: one.batch} if len(self._units) == 1 else split(one.batch, self._unit_of)
                for number, batch in parts.items():
                    if self._live(number):
                        group.batches.setdefault(number, []).append(batch)
        return group

    def _check(self, found: Tally, ahead: Position | None, after: Position | None) -> None:
        track = self._tracks.get(found.at)
        if track is None:
            raise IngestError(f"The client handed over records of {found.at}, which this task does not read.")
        if not self._live(self._unit_of[found.at]):
            return
        begin = ahead.next if ahead else track.next
        end = min(after.next if after else begin, track.range.high)
        if track.stop or not (found.ordered and begin <= found.first and found.last < end):
            raise IngestError(
                f"{found.at}: the client handed over offsets {found.first} to {found.last} for a position of "
                f"{begin} to {end}; to go on would lose or double records. No offset was moved for them."
            )

    def _settle(
        self, group: _Group, number: int, deletes: Mapping[TopicPartition, int], bad: Mapping[TopicPartition, int]
    ) -> None:
        """The rows of a unit are taken: now its positions move, and partitions that are through or failed say so."""
        now = self._shared.timing.monotonic()
        spent, self._ticked = now - self._ticked, now
        mine = {one.at: self._tracks[one.at] for one in self._units[number].ranges}
        found = {at: group.tallies.get(at, []) for at in mine}
        total = sum(one.rows for tallies in found.values() for one in tallies) or 1
        for at, begin, to, taken in group.moved:
            if at in mine and not self._jump(mine[at], begin, to, taken):
                return
        for at, track in mine.items():
            read, size = sum(one.rows for one in found[at]), sum(one.bytes for one in found[at])
            if at in group.ahead:
                track.move(group.ahead[at])
            gone, wrong = deletes.get(at, 0), bad.get(at, 0)
            decode_s, convert_s = group.spent.get(number, (0.0, 0.0))
            share, late = read / total, sum(one.late for one in found[at])
            track.held = track.held.plus(
                Fate(read, read - gone - wrong, gone, wrong, size, spent * share, group.fetch_s.get(at, 0.0),
                     decode_s * share, convert_s * share, late)
            )  # fmt: skip
            for one in found[at]:
                track.seen(one.newest_ms, one.last_ms, one.oldest_ms)
            if read or at in group.ahead:
                self._shared.progress.moved(at, track.next, read, size)
        self._count(mine, found, sum(deletes.values()), bad, spent)
        for at, track in mine.items():
            if not self._live(number):
                break
            if at in group.done and not track.stop:
                track.stop = "high"
            if found[at]:
                self.judge(track, final=not track.open or at in group.failed)
            if self._live(number) and at in group.failed and not track.failed:
                self._fail(track, IngestError(f"{at} stopped at offset {track.next}: {group.failed[at]}"))

    def _jump(self, track: Track, begin: int, to: int, taken: bool) -> bool:
        """Whether the partition can go on at another offset than the next one. When the log was cut back, rows that were
        taken may not be there any more: they are given up, and the next run looks anew."""
        self.metrics.count("offset.too.early.count" if to >= begin else "offset.too.late.count")
        if to >= begin or not taken:
            track.jump(begin, to)
            return True
        text = f"{track.at}: the log was cut back to offset {to} while offset {begin} was to be read. Run again."
        self._fail(track, IngestError(text), forget=True)
        return False

    def _count(
        self,
        mine: Mapping[TopicPartition, Track],
        found: Mapping[TopicPartition, list[Tally]],
        deletes: int,
        bad: Mapping[TopicPartition, int],
        spent: float,
    ) -> None:
        rows = sum(one.rows for tallies in found.values() for one in tallies)
        if not rows:
            return
        self.metrics.mark("extractor.records.read", rows)
        self.metrics.mark("extractor.bytes.read", sum(one.bytes for tallies in found.values() for one in tallies))
        self.metrics.observe("batch.millis", spent * 1000)
        if late := sum(one.late for tallies in found.values() for one in tallies):
            self.metrics.count("sla.missed.record.count", late)
        if deletes:
            self.metrics.count("tombstones.count", deletes)
        if bad:
            wrong = sum(bad.values())
            self.metrics.count("num.of.decoding.errors", wrong)
            self.metrics.count("error.message.undecodable.count", wrong)
            first = sum(1 for at, n in bad.items() if mine[at].held.bad + mine[at].kept.bad == n)
            if first:
                self.metrics.count("error.partition.count", first)

    # ------------------------------------------------------------ failures

    def _fail(self, track: Track, error: LakeError, forget: bool = False) -> None:
        """This partition cannot go on. Rows that may not be committed are forgotten with their unit, which is read
        again without it."""
        shared = self._shared
        dataset, number = shared.dataset_of[track.at.topic], self._unit_of[track.at]
        track.fail(error)
        dataset.failed(track, shared.job.commit_policy)
        self.metrics.event("PartitionFailed", partition=str(track.at), error=str(error))
        if dataset.blocked:
            return
        if forget or (track.held.read and shared.job.commit_policy != "partial"):
            self._spoiled.add(number)
            dataset.forget(self._units[number])

    def _undo(self, error: Exception, last: bool) -> None:
        """The attempt failed: units that are not finished go back to their newest commit, or stay failed."""
        policy = self._shared.job.commit_policy
        with self._shared.gate.shared():
            for unit in self._units:
                dataset = self._shared.dataset_of[unit.topic]
                tracks = [self._tracks[one.at] for one in unit.ranges]
                unfinished = [track for track in tracks if track.open]
                if not unfinished or dataset.blocked:
                    continue
                if last and policy == "partial":
                    for track in unfinished:
                        self.judge(track, final=True)
                else:
                    dataset.forget(unit)
                unfinished = [track for track in tracks if track.open]
                if last:
                    text = f"Task {self.task.number} cannot go on with {unit.topic}"
                    for track in unfinished:
                        track.fail(as_lake_error(error, text))
                        dataset.failed(track, policy)
            if last:
                self.metrics.event("TaskFailed", task=self.task.number, error=str(error))


def _worth_a_retry(error: Exception) -> bool:
    """What may go away by itself: brokers and registries. Not what is wrong with the job, the data or the disk."""
    return isinstance(error, IngestError) and not isinstance(error, LastingError)


def _complete(batch: pa.RecordBatch, decoded: Decoded) -> None:
    found = decoded.rows.num_rows + decoded.deletes.num_rows + decoded.bad.num_rows
    if found != batch.num_rows:
        raise JobError(f"The decoder made {found:,} records of {batch.num_rows:,}; each must become a row, a delete or a bad "
                       "record. Correct the decoder; no offset was moved.")  # fmt: skip


def timed(fetched: Iterator[Fetched], seconds: deque[float], clock: Callable[[], float]) -> Iterator[Fetched]:
    """The same; how long each took to come is put behind the others in `seconds`."""
    with ExitStack() as opened:
        if hasattr(fetched, "close"):
            opened.callback(fetched.close)
        began = clock()
        for one in fetched:
            seconds.append(clock() - began)
            yield one
            began = clock()


def shares(tallies: list[Tally], seconds: float) -> dict[TopicPartition, float]:
    """The time of a batch by partition, in the measure of their records."""
    rows = sum(one.rows for one in tallies)
    return {one.at: seconds * one.rows / rows for one in tallies}
