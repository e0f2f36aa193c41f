"""An old range of offsets read again into a table, while the stored offsets stay where they are (kafka-ingestion 4.1).

A replay is a run like any other, with the same lock, tasks and commits, but for its plan, which a person gives, and for
its commits, which bring rows and no offsets. Rows are upserted, so a range that is read up to where the ingestion
stands leaves the table as a single reading would have: what came later comes again, too. One that ends before may bring
back what later records changed or deleted; the plan says so. When another run moves the offsets meanwhile, nothing is
committed, for the rows of the replay would be older than those of that run.

For the same reason a table gets the whole range in one commit, or nothing: no later run would read what a half of it
left out, and its rows would stay as they once were. Settings that cut a run are not in force (`_whole`).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import duckdb
import numpy as np

from lakesql.errors import CommitConflict, CommitUnknown, IngestError, LakeError, LastingError, SQLError
from lakesql.ingest import front, moving, requeue
from lakesql.ingest import run as run_
from lakesql.ingest.front import Work
from lakesql.ingest.hudi_sink import HudiLoad, HudiSink
from lakesql.ingest.metrics import Metrics
from lakesql.ingest.model import (
    Bounds,
    Client,
    Fetched,
    Job,
    PartitionState,
    Plan,
    Range,
    Report,
    Sink,
    State,
    Topic,
    TopicPartition,
)
from lakesql.ingest.moving import Wanted
from lakesql.ingest.packing import pack
from lakesql.ingest.plan import packing_of
from lakesql.ingest.progress import Progress
from lakesql.ingest.run import Parts
from lakesql.ingest.setting_keys import OLDER
from lakesql.ingest.weights import expected_bytes, weights
from lakesql.storage import Storage

EVERY = "*"
"""In place of a topic: all that the ingestion reads."""

_ENDING = ("count", "time")
"""Kinds of limits that end a task before the end of its ranges."""

Stored = Mapping[TopicPartition, PartitionState]


@dataclass(frozen=True, slots=True)
class Replay:
    """What is read again. `end` None: up to where the ingestion stands; so are partitions that `end` does not name.

    begin   None: no range, but what is in quarantine (`requeue`)
    given   names of the settings that are given for this replay alone
    """

    begin: Wanted | None
    end: Wanted | None = None
    given: Sequence[str] = ()


def plan(con: duckdb.DuckDBPyConnection, work: Work, asked: Replay) -> Plan:
    """What a replay would read; no record is read."""
    if asked.begin is None:
        return requeue.plan(con, work)
    job, remarks = _whole(work.job, asked.given)
    with front.assemble(con, job) as made:
        found = run_.planned(job, _replaying(job, made, asked))
    return replace(found, notes=(*remarks, *found.notes))


def run(
    con: duckdb.DuckDBPyConnection,
    work: Work,
    asked: Replay,
    progress: Progress | None = None,
    metrics: Metrics | None = None,
) -> Report:
    """Read again; `next` of the report is how far that came, not an offset that is stored."""
    if asked.begin is None:
        return requeue.run(con, work, progress, metrics)
    job, remarks = _whole(work.job, asked.given)
    with front.assemble(con, job) as made:
        done = run_.run(job, _replaying(job, made, asked), progress=progress, metrics=metrics)
    if not done.committed and not any(isinstance(one, CommitUnknown) for one in done.failures):
        done = replace(done, failures=tuple(_unchanged(job, one) for one in done.failures))
    return replace(done, notes=tuple(dict.fromkeys((*work.remarks, *remarks, *done.notes))))


# ---------------------------------------------------------------- all or nothing


def _whole(job: Job, given: Sequence[str]) -> tuple[Job, list[str]]:
    """The job without what would cut a replay, and a note about that. SQLError for what `given` asks for.

    Limits of rate and pool stay: they end nothing early. A partition whose start is gone when it is fetched goes on at
    the first record that is there, whatever its reset rule: a jump to the end would leave out the newest rows.
    """
    names, cuts = {OLDER.get(name, name) for name in given}, {}
    if job.limit is not None and job.limit.kind in _ENDING:
        asks = any(name.startswith("extract.limit.") for name in names)
        cuts[f"extract.limit.type = {job.limit.kind}"] = asks
    if job.commit_interval_s is not None:
        cuts["lakesql.commit.interval"] = "lakesql.commit.interval" in names
    if job.commit_policy != "full":
        cuts[f"job.commit.policy = {job.commit_policy}"] = "job.commit.policy" in names
    if refused := [cut for cut, asked in cuts.items() if asked]:
        raise SQLError(
            f"ingestion {job.name}: a replay cannot be run with {', '.join(refused)}, since it is one commit of its whole "
            "range or none: rows of a part of it would stay as they once were. Nothing was read. Leave it out; FROM and TO "
            "say which offsets are read."
        )
    limit = None if job.limit is not None and job.limit.kind in _ENDING else job.limit
    note = f"Not in force for a replay, which is one commit of its whole range or none: {', '.join(cuts)}."
    reset = job.reset if job.reset in ("skip", "fail") else "nearest"
    return replace(job, limit=limit, commit_interval_s=None, commit_policy="full", reset=reset), [note] if cuts else []


def _unchanged(job: Job, error: LakeError) -> LakeError:
    """The error, with what a person wants to know who sees that a replay failed."""
    if isinstance(error, CommitConflict):  # it says so itself
        return error
    told = type(error)(
        f"The replay of {job.name} was not committed and nothing was changed; the same statement reads all of it again. "
        f"What failed: {error}"
    )
    told.__cause__ = error
    return told


def _replaying(job: Job, made: Parts, asked: Replay) -> Parts:
    """The parts of a run with the plan and the sinks of a replay."""
    if job.target.kind == "files":
        raise IngestError(
            f"ingestion {job.name}: a replay into files would write its records a second time. Read them into another "
            "folder: INGEST INTO FILES with another folder and bootstrap.with.offset = earliest (or timestamp)."
        )
    stored: dict[TopicPartition, PartitionState] = {}

    def sink(path: str, topics: tuple[str, ...]) -> Sink:
        return _Again(made.sink(path, topics), stored)

    def planned(job: Job, client: Client, state: State, now_ms: int) -> Plan:
        del state, now_ms
        return _plan(job, client, made, asked, stored)

    return replace(made, client=_Gapless(made.client), sink=sink, plan=planned)


@dataclass(slots=True)
class _Gapless(Client):
    """A client whose readers stop where records are gone behind some that were read: those were perhaps newer values."""

    inner: Client

    def topics(self) -> Sequence[Topic]:
        return self.inner.topics()

    def bounds(self, partitions: Sequence[TopicPartition], isolation: str) -> Mapping[TopicPartition, Bounds]:
        return self.inner.bounds(partitions, isolation)

    def offsets_at(self, times_ms: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        return self.inner.offsets_at(times_ms)

    def read(
        self, ranges: Sequence[Range], reset: str, fetch_timeout_s: float, batch_rows: int = 10_000
    ) -> Iterator[Fetched]:
        next_ = {one.at: one.low for one in ranges}
        lows = dict(next_)
        with ExitStack() as opened:
            fetched = self.inner.read(ranges, reset, fetch_timeout_s, batch_rows)
            if hasattr(fetched, "close"):
                opened.callback(fetched.close)
            for one in fetched:
                for at, to in one.moved.items():
                    if next_[at] > lows[at]:
                        raise LastingError(
                            f"{at}: offsets {next_[at]} to {to} were deleted after those before them had been read."
                        )
                    lows[at] = next_[at] = to
                next_.update((at, position.next) for at, position in one.positions.items())
                yield one

    def close(self) -> None:
        self.inner.close()


@dataclass(slots=True)
class _Again(Sink):
    """A table whose offsets stay. `seen` gets those of all targets."""

    inner: Sink
    seen: dict[TopicPartition, PartitionState]
    before: State = field(default_factory=lambda: State(""))

    def stored(self) -> State:
        """Nothing that a plan would go on from."""
        self.before = self.inner.stored()
        self.seen.update(self.before.partitions)
        return State(self.before.ingestion)

    def settle(self) -> None:
        self.inner.settle()

    def quarantined(self) -> tuple[Storage, list[str]]:
        return self.inner.quarantined()

    def begin(self, before: State, run: str) -> HudiLoad:
        del before
        assert isinstance(self.inner, HudiSink)
        return self.inner.replay(run, self.before)


# ---------------------------------------------------------------- the plan


def _plan(job: Job, client: Client, made: Parts, asked: Replay, stored: Stored) -> Plan:
    assert asked.begin is not None
    topics = {topic.name: topic for topic in client.topics()}
    chosen = tuple(made.select(job, tuple(topics.values())))
    begin = moving.places(job, _spread(asked.begin, chosen), topics, chosen)
    end = moving.places(job, _spread(asked.end, chosen), topics, chosen) if asked.end else {}
    anew = {at for at in begin if _is_anew(stored.get(at), topics[at.topic].id)}
    unread = sorted(at for at in begin if at in anew or (at not in end and at not in stored))
    if len(unread) == len(begin):
        raise IngestError(
            f"ingestion {job.name} has not read anything of what is to be replayed: {_named(unread)}. RUN INGESTION reads it."
        )
    notes = [f"Not replayed, since the ingestion has not read them yet: {_named(unread)}."] if unread else []
    begin = {at: place for at, place in begin.items() if at not in unread}
    lows = moving.offsets(client, job, begin)
    highs = moving.offsets(client, job, {at: end[at] for at in begin if at in end})
    rest = [at for at in begin if at not in end]
    for at, has in client.bounds(rest, job.isolation).items() if rest else ():
        if has.error is not None:
            raise IngestError(f"the end of {at} could not be had: {has.error}. Nothing was read or changed; try again.")
        highs[at] = min(stored[at].next, has.latest)
    behind = next((at for at, low in lows.items() if low > highs[at] and begin[at][0] == "offset"), None)
    if behind is not None:
        raise SQLError(
            f"partition {behind}: the replay would begin at {lows[behind]}, behind its end at {highs[behind]}. Nothing was "
            "read."
        )
    if early := sorted(at for at, high in highs.items() if at in stored and high < stored[at].next):
        notes.append(
            f"The replay ends before where the ingestion stands in {_named(early)}: rows that later records changed or "
            "deleted may come back as they were. Without TO it reads on to there."
        )
    ranges = _ranges(job, {at: (low, max(low, highs[at])) for at, low in lows.items()}, topics, stored)
    return Plan(job.name, ranges, pack([one for one in ranges if one.records], packing_of(job)).tasks, {}, tuple(notes))


def _spread(wanted: Wanted, chosen: Sequence[str]) -> Wanted:
    """A place for everything as one for each topic."""
    return dict.fromkeys(chosen, wanted[EVERY]) if EVERY in wanted else wanted


def _is_anew(stored: PartitionState | None, topic_id: str | None) -> bool:
    """Whether the stored offset is of a topic of that name that is gone."""
    return stored is not None and None not in (stored.topic_id, topic_id) and stored.topic_id != topic_id


def _named(partitions: Sequence[TopicPartition]) -> str:
    more = f" and {len(partitions) - 10} more" if len(partitions) > 10 else ""
    return ", ".join(map(str, partitions[:10])) + more


def _ranges(
    job: Job, spans: Mapping[TopicPartition, tuple[int, int]], topics: Mapping[str, Topic], stored: Stored
) -> tuple[Range, ...]:
    places = sorted(spans)
    records = np.array([spans[at][1] - spans[at][0] for at in places], dtype=np.int64)
    state = State(job.name, partitions=stored)
    sizes, heavy = expected_bytes(places, records, state).tolist(), weights(job, places, records, state).tolist()
    return tuple(
        Range(*at, *spans[at], "replay", expected_bytes=size, weight=weight, topic_id=topics[at.topic].id)
        for at, size, weight in zip(places, sizes, heavy, strict=True)
    )
