"""One run of an ingestion, from the lock to the report.

    with assemble(job, con) as parts:  # lakesql.ingest.assembly: the real client, sinks and decoders
        report = run(job, parts)
    report.exit_code, report_lines(report)

Lock, stored states, plan, tasks in threads, commits, report. Raised is what stops a run as a whole: the lock is held, the
job is wrong, brokers or a target cannot be reached before anything is read, Ctrl-C or SIGTERM. Then nothing but earlier
commits of the run is stored; a signal ends it within two seconds, whatever its threads wait for. What fails later is in
the report: `report.failures`, `report.exit_code`.

Tasks are threads, not processes: two processes that read and decode half of a million small JSON records each need 1.6 times
the CPU and 1.2 times the time of two threads, for their start (benchmarks/ingest/workers.py, docs/ingest/README.md).
"""

import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from types import TracebackType

from lakesql.errors import LakeError
from lakesql.ingest.datasets import Dataset, as_lake_error
from lakesql.ingest.fetching import Timing
from lakesql.ingest.gate import Gate
from lakesql.ingest.lock import job_lock
from lakesql.ingest.metrics import Metrics, scoped
from lakesql.ingest.model import (
    Client,
    Committed,
    Decoder,
    Job,
    PartitionReport,
    Plan,
    Report,
    Sample,
    Sink,
    State,
    Task,
    Topic,
    TopicPartition,
)
from lakesql.ingest.partition_event import facts_of
from lakesql.ingest.progress import Progress, Silent
from lakesql.ingest.retries import Retries
from lakesql.ingest.sampling import Sampling
from lakesql.ingest.signals import terminable
from lakesql.ingest.tally import sla_ms
from lakesql.ingest.tasks import Limiter, Shared, TaskRun
from lakesql.ingest.tracks import Track

_WAKE_S = 0.2
"""How often the thread that waits for the tasks looks for signals."""

_LEAVE_S = 0.4
"""How long the threads of a run that is broken off have to end. One that sits in a call of a broker or of a registry is
left behind then: it writes nothing any more (`Gate.close`), and ends with its call or with the process."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a run is joined from.

    select    names of the topics that the job asks for, among those of the cluster
    plan      the ranges and tasks, from the stored states of all targets together
    sink      the target at a path, for these topics
    decoder   a new decoder for a task, for the topics of one target
    limiter   a new limit for a pass of a task
    closing   what else is given back at the end
    sampled   is told, before decoders are made, how the first records of a topic are had
    """

    client: Client
    select: Callable[[Job, Sequence[Topic]], Sequence[str]]
    plan: Callable[[Job, Client, State, int], Plan]
    sink: Callable[[str, tuple[str, ...]], Sink]
    decoder: Callable[[tuple[str, ...]], Decoder]
    limiter: Callable[[], Limiter]
    closing: Callable[[], None] = lambda: None
    lock: Callable[[Job], AbstractContextManager[tuple[str, ...]]] = job_lock
    sampled: Callable[[Sample], None] = lambda _: None

    def __enter__(self) -> "Parts":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.client.close()
        finally:
            self.closing()


def run(
    job: Job,
    parts: Parts,
    *,
    progress: Progress | None = None,
    metrics: Metrics | None = None,
    timing: Timing | None = None,
) -> Report:
    """Read what is new, store it with its offsets, say what was done."""
    one = _Run(job, parts, progress or Silent(), metrics or Metrics(job.name), timing or Timing())
    with parts.lock(job) as notes, terminable():
        return one.go(notes)


def planned(job: Job, parts: Parts, timing: Timing | None = None) -> Plan:
    """The plan of a run that does not take place: no lock, no record is read (EXPLAIN INGEST, --dry-run)."""
    return _Run(job, parts, Silent(), Metrics(job.name), timing or Timing()).look()


@dataclass(slots=True)
class _Run:
    job: Job
    parts: Parts
    progress: Progress
    metrics: Metrics
    timing: Timing
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:16])
    datasets: list[Dataset] = field(default_factory=list)
    start: float = 0.0
    now_ms: int = 0
    stop: threading.Event = field(default_factory=threading.Event)
    retries: Retries = field(init=False)

    def __post_init__(self) -> None:
        self.retries = Retries(getattr(self.progress, "note", lambda _: None))

    # ------------------------------------------------------------ story

    def go(self, notes: tuple[str, ...]) -> Report:
        with scoped(self.metrics), self.metrics.heard(self.retries.hear), self.metrics.timed("job"):
            plan = self.look()
            for dataset in self.datasets:
                dataset.sink.settle()
            self.progress.planned(plan)
            try:
                self._follow(plan)
                self._read(plan)
                self._commit_all(more=False)
            finally:
                self._discard()
        report = self._report(plan, notes)
        self.progress.finished(report)
        return report

    def look(self) -> Plan:
        """Stored states of all targets, then the plan on top of them."""
        self.start, self.now_ms = self.timing.monotonic(), self.timing.now_ms()
        listed = self.parts.client.topics()
        chosen = tuple(self.parts.select(self.job, listed))
        self.datasets = [self._dataset(path, topics) for path, topics in targets(self.job.target.path, chosen).items()]
        known = {at: one for dataset in self.datasets for at, one in dataset.before.partitions.items()}
        plan = self.parts.plan(self.job, self.parts.client, State(self.job.name, partitions=known), self.now_ms)
        there = {TopicPartition(topic.name, number) for topic in listed for number in topic.partitions}
        there |= {one.at for one in plan.ranges} - plan.carried.keys()  # made meanwhile
        for dataset in self.datasets:
            dataset.missing = frozenset(dataset.before.partitions) - there
            dataset.carried = plan.carried.keys() & dataset.before.partitions.keys()
        return plan

    def _dataset(self, path: str, topics: tuple[str, ...]) -> Dataset:
        sink = self.parts.sink(path, topics)
        return Dataset(path, topics, sink, sink.stored())

    def _follow(self, plan: Plan) -> None:
        """A track for each range; a load for each target that gets something."""
        of = self._dataset_of(plan)
        for one in plan.ranges:
            dataset = of[one.topic]
            track = dataset.tracks[one.at] = Track(one, dataset.before.partitions.get(one.at), self.now_ms)
            if one.error:
                track.stop = f"error: {one.error}"
            elif one.low >= one.high:
                track.stop = "nothing to read"
            self._count_planned(track)
        if plan.unknown:
            self.metrics.count("fail.to.get.offset.count", len(plan.unknown))
        busy = {one.topic for task in plan.tasks for one in task.ranges}
        for dataset in self.datasets:
            if busy & {at.topic for at in dataset.tracks}:
                dataset.open(self.id)

    def _dataset_of(self, plan: Plan) -> dict[str, Dataset]:
        """The target of each topic. Topics that only the state knows belong to where they are stored."""
        of = {topic: dataset for dataset in self.datasets for topic in dataset.topics}
        for dataset in self.datasets:
            for at in dataset.before.partitions:
                of.setdefault(at.topic, dataset)
        if "{topic}" not in self.job.target.path:
            of |= dict.fromkeys((one.topic for one in plan.ranges), self.datasets[0])
        return of

    # ------------------------------------------------------------ reading

    def _read(self, plan: Plan) -> None:
        """All tasks, the heaviest first, in as many threads as the job has workers; commits within when asked for."""
        gate, of = Gate(), self._dataset_of(plan)
        self.parts.sampled(Sampling(self.parts.client, self.job, plan, self.stop))
        shared = Shared(self.job, self.parts.client, self.parts.decoder, self.parts.limiter, of, gate, self.stop,
                        self.timing, self.progress)  # fmt: skip
        runs = [self._task(task, shared) for task in sorted(plan.tasks, key=lambda task: (-task.weight, task.number))]
        waiting, ended, raised = deque(runs), threading.Condition(), list[BaseException]()
        alive = min(max(self.job.workers, 1), len(runs))

        def work() -> None:
            nonlocal alive
            try:
                while waiting and not self.stop.is_set():
                    try:
                        one = waiting.popleft()
                    except IndexError:
                        break
                    one.run()
            except BaseException as error:  # raised again by the thread that waits
                raised.append(error)
                self.stop.set()
            finally:
                with ended:
                    alive -= 1
                    ended.notify_all()

        threads = [
            threading.Thread(target=copy_context().run, args=(work,), name=f"lakesql-ingest-{i}", daemon=True)
            for i in range(alive)
        ]
        try:
            for thread in threads:
                thread.start()
            self._wait(ended, lambda: alive, gate, runs)
        finally:
            if alive:
                self.stop.set()
                until = time.monotonic() + _LEAVE_S
                gate.close(_LEAVE_S)
                for thread in threads:
                    if thread.ident is not None:  # it was started
                        thread.join(max(until - time.monotonic(), 0.0))
        if raised:
            raise raised[0]

    def _wait(self, ended: threading.Condition, alive: Callable[[], int], gate: Gate, runs: list[TaskRun]) -> None:
        interval, last = self.job.commit_interval_s, self.timing.monotonic()
        while True:
            with ended:
                if not alive() or self.stop.is_set():
                    break
                ended.wait(_WAKE_S if interval is None else min(_WAKE_S, interval))
            if interval is not None and self.timing.monotonic() - last >= interval and not self.stop.is_set():
                with gate.alone():
                    if not self.stop.is_set():
                        for one in runs:
                            one.judge_all()
                        self._commit_all(more=True)
                last = self.timing.monotonic()

    def _task(self, task: Task, shared: Shared) -> TaskRun:
        return TaskRun(task, shared, self.metrics.task(f"task-{task.number}"))

    # ------------------------------------------------------------ committing

    def _commit_all(self, more: bool) -> None:
        for dataset in self.datasets:
            held, now_ms = [track.held for track in dataset.tracks.values()], self.timing.now_ms()
            if dataset.blocked or not (any(one.read for one in held) if more else dataset.changed(now_ms)):
                continue
            rows = sum(one.rows for one in held)
            self.progress.committing(dataset.target)
            numbers = self._numbers(rows)
            with self.metrics.timed("commit", target=dataset.target):
                done = dataset.commit(self.job, self.id, now_ms, numbers, more)
            if done is not None:
                self._committed(dataset, done, rows)

    def _committed(self, dataset: Dataset, done: Committed, rows: int) -> None:
        self.metrics.count("job.records.written", rows)
        self.metrics.count("writer.records.written", rows)
        self.metrics.count("writer.bytes.written", done.bytes)
        self.metrics.count("job.commits")
        self.progress.committed(dataset.target, done)

    def _numbers(self, rows: int) -> dict[str, float]:
        """Metrics that a commit stores: those of the run so far, this commit's rows included."""
        totals = self.metrics.totals()
        return totals | {name: totals.get(name, 0) + rows for name in ("job.records.written", "writer.records.written")}

    def _discard(self) -> None:
        for dataset in self.datasets:
            try:
                dataset.discard()
            except Exception as error:  # what is left is removed by the next run; the first error counts
                what = f"What {self.job.name} had prepared for {dataset.target} could not be removed"
                dataset.failures.append(as_lake_error(error, what))

    # ------------------------------------------------------------ saying

    def _count_planned(self, track: Track) -> None:
        one = track.range
        reset = one.reason.startswith("reset")
        if one.error:
            self.metrics.count("offset.reset.skip.count" if reset else "fail.to.get.offset.count")
        if reset and one.stored is not None and one.stored != one.low:
            self.metrics.count("offset.too.early.count" if one.stored < one.low else "offset.too.late.count")

    def _report(self, plan: Plan, notes: tuple[str, ...]) -> Report:
        lines: list[PartitionReport] = []
        failures: list[LakeError] = []
        for dataset in self.datasets:
            failures += dataset.failures
            for track in dataset.tracks.values():
                if isinstance(track.failure, LakeError) and track.failure not in failures:
                    failures.append(track.failure)
                line = track.report()
                if track.open and not dataset.blocked:
                    line = replace(line, stop="error: not read to its end")
                elif dataset.blocked and not track.failed and track.base < max(track.next, track.range.high):
                    line = replace(line, stop=f"not committed: {dataset.blocked}")
                lines.append(line)
                self.metrics.event("KafkaExtractorTopicMetadata", **facts_of(track, line, sla_ms(self.job) is not None))
        seen = {TopicPartition(one.topic, one.partition) for one in lines}
        lines += [self._carried(at, why) for at, why in plan.carried.items() if at not in seen]
        lines += [
            PartitionReport(*at, -1, -1, -1, reason="bootstrap", stop=f"error: {why}")
            for at, why in plan.unknown.items()
        ]
        self.metrics.count("error.topics.count", len({one.topic for one in lines if one.stop.startswith("error")}))
        stops = {one.stop for one in lines}
        return Report(
            job=self.job.name,
            run=self.id,
            partitions=tuple(sorted(lines, key=lambda one: (one.topic, one.partition))),
            committed={d.target: total for d in self.datasets if (total := d.total()) is not None},
            seconds=self.timing.monotonic() - self.start,
            stop="limit" if "limit" in stops else "",
            notes=(
                *notes,
                *plan.notes,
                *(note for d in self.datasets for track in d.tracks.values() for note in track.loss_notes()),
                *self.retries.notes(),
                *(note for d in self.datasets for one in d.commits for note in one.notes),
            ),
            metrics=self.metrics.totals(),
            failures=tuple(failures),
        )

    def _carried(self, at: TopicPartition, why: str) -> PartitionReport:
        offset = next((d.before.partitions[at].next for d in self.datasets if at in d.before.partitions), -1)
        return PartitionReport(at.topic, at.partition, offset, offset, offset, reason=why, stop="nothing to read")


def targets(path: str, topics: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The targets of a job and their topics: one for all, or one for each topic."""
    if "{topic}" not in path:
        return {path: tuple(topics)}
    return {path.replace("{topic}", topic): (topic,) for topic in topics}
