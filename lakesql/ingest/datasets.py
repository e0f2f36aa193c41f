"""One target of a run: its sink, the load that is open, the tracks of its partitions, and its commits.

A commit stores exactly the positions whose rows the load holds, and every partition that was ever stored (C1, C2). What
may be committed when something failed is the commit policy's word:

    full         nothing of the dataset, once one of its partitions failed
    successful   what did not fail; a partition that failed stays where the commit before has it
    partial      also what was read of it before it failed
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from lakesql.errors import CommitUnknown, IngestError, LakeError
from lakesql.ingest.model import Committed, Job, Load, PartitionState, Sink, State, TopicPartition, WorkUnit
from lakesql.ingest.tracks import Track, carried
from lakesql.table.interrupts import interrupts


@dataclass(slots=True, eq=False)
class Dataset:
    """A target and what this run does to it.

    before    the state of the newest commit, this run's included
    missing   stored partitions that the brokers do not have
    carried   stored partitions that this run only carries on
    blocked   why nothing of it may be committed any more; '' means it may
    """

    target: str
    topics: tuple[str, ...]
    sink: Sink
    before: State
    tracks: dict[TopicPartition, Track] = field(default_factory=dict)
    missing: Collection[TopicPartition] = ()
    carried: Collection[TopicPartition] = ()
    load: Load | None = None
    blocked: str = ""
    commits: list[Committed] = field(default_factory=list)
    failures: list[LakeError] = field(default_factory=list)

    def open(self, run: str) -> None:
        """Begin a load on top of the newest commit."""
        self.load = self.sink.begin(self.before, run)

    def forget(self, unit: WorkUnit) -> None:
        """Nothing of the open load counts for this unit. A load that cannot forget is not committed."""
        if self.blocked or self.load is None:
            return
        try:
            self.load.forget(unit)
        except Exception as error:
            self.fail(as_lake_error(error, f"Rows of {unit.topic} on their way to {self.target} could not be removed"))
            return
        for one in unit.ranges:
            self.tracks[one.at].back()

    def failed(self, track: Track, policy: str) -> None:
        """A partition cannot go on in this run."""
        if policy == "full" and not self.blocked:
            self.blocked = f"{track.at} failed, and job.commit.policy is full"

    def fail(self, error: LakeError) -> None:
        """Nothing more is committed here, whatever the policy."""
        self.failures.append(error)
        self.blocked = self.blocked or str(error)

    def changed(self, now_ms: int) -> bool:
        """Whether a commit would store anything that the newest one does not have."""
        new = self.partitions(now_ms)
        if any(track.held.read or track.gaps for track in self.tracks.values()):
            return True
        old = self.before.partitions
        return new.keys() != old.keys() or any(
            (one.next, one.missing_since_ms, one.topic_id) != (old[at].next, old[at].missing_since_ms, old[at].topic_id)
            for at, one in new.items()
        )

    def partitions(self, now_ms: int) -> dict[TopicPartition, PartitionState]:
        """Every partition that was ever stored, and those of this run."""
        known: dict[TopicPartition, PartitionState] = {}
        for at, old in self.before.partitions.items():
            since = (old.missing_since_ms or now_ms) if at in self.missing else None
            known[at] = carried(old, since)
        for at, track in self.tracks.items():
            # with an error its stored offset stays, and without one it is new again next time
            if not track.range.error and at not in self.carried:
                known[at] = track.state()
        return dict(sorted(known.items()))

    def commit(self, job: Job, run: str, now_ms: int, metrics: Mapping[str, float], more: bool) -> Committed | None:
        """Store the open load and its offsets, and begin the next load when there is more to come.

        Failures are kept, not raised, except what is no Exception: a run that is stopped. None: it failed.
        """
        rows = sum(track.held.read for track in self.tracks.values())
        note = "" if rows else "no records: the offsets alone"
        state = State(job.name, run, now_ms, self.partitions(now_ms), (), dict(metrics), note)
        try:
            if self.load is None:
                self.open(run)
            assert self.load is not None
            with interrupts():
                done = self.load.commit(state)
        except Exception as error:
            self.fail(as_lake_error(error, f"The commit of {job.name} to {self.target} failed"))
            if isinstance(error, CommitUnknown):
                self.load = None  # nothing of it is to be removed
            return None
        self.load = None
        self.commits.append(done)
        self.before = state
        for track in self.tracks.values():
            track.committed()
        if more:
            try:
                self.open(run)
            except Exception as error:
                self.fail(
                    as_lake_error(error, f"After its commit {done.commit} to {self.target}, {job.name} cannot go on")
                )
        return done

    def discard(self) -> None:
        """Remove what is not committed."""
        load, self.load = self.load, None
        if load is not None:
            load.discard()

    def total(self) -> Committed | None:
        """The commits of this run as one; `commit` is the newest."""
        if not self.commits:
            return None
        sums = {name: sum(getattr(one, name) for one in self.commits) for name in _SUMMED}
        notes = tuple(note for one in self.commits for note in one.notes)
        return Committed(self.commits[-1].commit, **sums, notes=notes)


_SUMMED = ("inserted", "updated", "deleted", "ignored", "files", "bytes")


def as_lake_error(error: Exception, what: str) -> LakeError:
    """An error with what happened, where; those that say so themselves stay as they are."""
    if isinstance(error, LakeError):
        return error
    wrapped = IngestError(
        f"{what}: {type(error).__name__}: {error}. No offset moved past what is stored; the next run goes on there."
    )
    wrapped.__cause__ = error
    return wrapped
