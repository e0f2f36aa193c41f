"""Records in quarantine decoded once more, with the format that the job has now: REPLAY INGESTION ... FROM QUARANTINE.

A target gets the records that are good now in one commit, which also says which files of the quarantine it releases and
names new ones for the records in them that are bad still. So a second replay finds the good ones no more, and a replay
that dies before its commit has changed nothing. A file without one good record stays as it is. Offsets do not move; when
another run moves them or releases the same files meanwhile, nothing is committed.

Rows without a record key stay: what is kept of them is the decoded row, not the bytes of the message.
"""

import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from lakesql.counted import counted
from lakesql.errors import CommitUnknown, LakeError
from lakesql.ingest import front
from lakesql.ingest.datasets import as_lake_error
from lakesql.ingest.front import Work
from lakesql.ingest.hudi_rows import NO_KEY
from lakesql.ingest.metrics import Metrics, scoped
from lakesql.ingest.model import (
    BAD,
    RAW,
    Committed,
    Decoded,
    Decoder,
    Job,
    Load,
    PartitionReport,
    Plan,
    Range,
    Report,
    Sink,
    State,
    TopicPartition,
    WorkUnit,
)
from lakesql.ingest.progress import Progress, Silent
from lakesql.ingest.quarantine import records
from lakesql.ingest.run import Parts, targets
from lakesql.ingest.signals import terminable
from lakesql.ingest.tracks import carried
from lakesql.table.interrupts import interrupts

REASON = "quarantine"
BATCH_ROWS = 10_000


@dataclass(slots=True)
class _Counts:
    """What became of the quarantined records of a partition; `low` and `high` enclose their offsets."""

    low: int
    high: int
    read: int = 0
    rows: int = 0
    deletes: int = 0
    bytes: int = 0

    @property
    def bad(self) -> int:
        return self.read - self.rows - self.deletes


@dataclass(slots=True)
class _Target:
    """One target, its quarantine, and what the replay finds in it."""

    path: str
    topics: tuple[str, ...]
    sink: Sink
    before: State
    released: list[str] = field(default_factory=list)
    counts: dict[TopicPartition, _Counts] = field(default_factory=dict)
    error: str = ""
    """The reason of the first record that stays."""

    def files(self) -> Iterator[tuple[str, pa.Table]]:
        """(name, records) of each file in quarantine, the oldest first; the records are counted."""
        storage, names = self.sink.quarantined()
        for name in names:
            table = records(storage, [name])
            for at, part in _by_partition(table):
                first, last = pc.min_max(part["_offset"]).as_py().values()
                one = self.counts.setdefault(at, _Counts(first, last + 1))
                one.low, one.high = min(one.low, first), max(one.high, last + 1)
                one.read += part.num_rows
                one.bytes += sum(pc.sum(pc.binary_length(part[c])).as_py() or 0 for c in ("_key", "_value"))
            yield name, table

    def state(self, run: str, now_ms: int) -> State:
        """What the commit stores: the offsets as they are, the records of this replay, the files that it releases."""
        partitions = {at: carried(one, one.missing_since_ms) for at, one in self.before.partitions.items()}
        note = f"replay of {sum(c.read for c in self.counts.values())} quarantined records: "
        note += f"{sum(c.rows + c.deletes for c in self.counts.values())} can be decoded now"
        return State(self.before.ingestion, run, now_ms, partitions, note=note, released=tuple(self.released))


def plan(con: duckdb.DuckDBPyConnection, work: Work) -> Plan:
    """What a replay would decode again; nothing is decoded."""
    ranges = []
    with front.assemble(con, work.job) as made:
        for target in _targets(work.job, made):
            for _ in target.files():
                pass
            ranges += [Range(*at, c.low, c.high, _reason(c)) for at, c in target.counts.items()]
    return Plan(work.job.name, tuple(sorted(ranges, key=lambda one: one.at)), ())


def run(
    con: duckdb.DuckDBPyConnection, work: Work, progress: Progress | None = None, metrics: Metrics | None = None
) -> Report:
    """Decode again what is in quarantine and write what is good now, with one commit for each target."""
    job, told, numbers = work.job, progress or Silent(), metrics or Metrics(work.job.name)
    start, one_run = time.monotonic(), uuid.uuid4().hex[:16]
    done: dict[str, Committed] = {}
    failures: list[LakeError] = []
    with front.assemble(con, job) as made, made.lock(job) as notes, terminable(), scoped(numbers):
        found = _targets(job, made)
        for target in found:
            try:
                done[target.path] = _replayed(made, target, one_run, told)
            except Exception as error:
                failures.append(
                    as_lake_error(error, f"The replay of {job.name} from quarantine to {target.path} failed")
                )
                target.counts.clear()
    report = Report(
        job=job.name,
        run=one_run,
        partitions=tuple(_line(at, one) for target in found for at, one in sorted(target.counts.items())),
        committed=done,
        seconds=time.monotonic() - start,
        notes=tuple(dict.fromkeys((*work.remarks, *notes, *(n for one in done.values() for n in one.notes)))),
        metrics=numbers.totals(),
        failures=tuple(failures),
    )
    told.finished(report)
    return report


def _targets(job: Job, made: Parts) -> list[_Target]:
    """The targets of a job. The brokers are asked only where a target's name has the topic in it."""
    topics: tuple[str, ...] = ()
    if front.TOPIC in job.target.path:
        topics = tuple(made.select(job, tuple(made.client.topics())))
    sinks = ((path, of, made.sink(path, of)) for path, of in targets(job.target.path, topics).items())
    return [_Target(path, of, sink, sink.stored()) for path, of, sink in sinks]


def _replayed(made: Parts, target: _Target, run: str, progress: Progress) -> Committed:
    """One target. Its quarantine is read behind `begin`, so that nobody releases anything of it unseen."""
    target.sink.settle()
    load: Load | None = target.sink.begin(target.before, run)
    try:
        assert load is not None
        _decode_all(made, target, load)
        if not target.released:
            return Committed(None, notes=(_nothing(target),))
        progress.committing(target.path)
        try:
            with interrupts():
                done = load.commit(target.state(run, int(time.time() * 1000)))
        except CommitUnknown:
            load = None  # nothing of it is to be removed
            raise
        progress.committed(target.path, done)
        return done
    finally:
        if load is not None:
            load.discard()


def _nothing(target: _Target) -> str:
    count = sum(one.read for one in target.counts.values())
    if not count:
        return f"{target.path}: nothing is in quarantine."
    return (
        f"{target.path}: of {counted(count, 'record')} in quarantine none can be decoded now, so there was no commit. The first: "
        f"{target.error}"
    )


def _decode_all(made: Parts, target: _Target, load: Load) -> None:
    """Hand to the load what the files with a good record hold."""
    units: dict[str, WorkUnit] = {}
    samples: dict[str, pa.RecordBatch] = {}
    made.sampled(lambda topic: samples[topic])
    decoder: Decoder | None = None
    try:
        for name, table in target.files():
            given: list[tuple[WorkUnit, Decoded]] = []
            for topic in pc.unique(table["_topic"]).to_pylist():
                unit = units.setdefault(topic, WorkUnit(topic, (), len(units)))
                own = table.filter(pc.equal(table["_topic"], topic))
                keyless = pc.fill_null(pc.starts_with(own["error"], NO_KEY), False)
                for batch in _raw(own.filter(pc.invert(keyless))):
                    samples.setdefault(topic, batch)
                    decoder = decoder or made.decoder(target.topics)
                    given.append((unit, decoder.decode(batch)))
                if kept := _kept(own.filter(keyless)):
                    given.append((unit, kept))
            target.error = target.error or next((_error(d.bad) for _, d in given if d.bad.num_rows), "")
            if any(d.rows.num_rows or d.deletes.num_rows for _, d in given):
                target.released.append(name)
                for unit, one in given:
                    load.take(unit, one)
                    _count(target.counts, one)
    finally:
        if decoder is not None:
            decoder.close()


def _raw(table: pa.Table) -> list[pa.RecordBatch]:
    """Records as they came from the client."""
    columns = [_like(table[one.name].combine_chunks(), one.type) for one in RAW]
    batches: list[pa.RecordBatch] = pa.Table.from_arrays(columns, schema=RAW).to_batches(BATCH_ROWS)
    return batches


def _kept(table: pa.Table) -> Decoded | None:
    """Records that stay in quarantine as they are."""
    if not table.num_rows:
        return None
    columns = [_like(table[one.name].combine_chunks(), one.type) for one in BAD]
    return Decoded(pa.table({}), pa.table({}), pa.Table.from_arrays(columns, schema=BAD))


def _like(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else column


def _error(bad: pa.Table) -> str:
    return str(bad["error"][0].as_py())


def _count(counts: Mapping[TopicPartition, _Counts], one: Decoded) -> None:
    for at, part in _by_partition(one.rows):
        counts[at].rows += part.num_rows
    for at, part in _by_partition(one.deletes):
        counts[at].deletes += part.num_rows


def _by_partition(table: pa.Table) -> Iterator[tuple[TopicPartition, pa.Table]]:
    if not table.num_rows:
        return
    topics = pc.cast(table["_topic"], pa.string())
    pairs = pa.table({"topic": topics, "partition": table["_partition"]}).group_by(["topic", "partition"]).aggregate([])
    for one in pairs.to_pylist():
        here = pc.and_(pc.equal(topics, one["topic"]), pc.equal(table["_partition"], one["partition"]))
        yield TopicPartition(one["topic"], one["partition"]), table.filter(here)


def _reason(one: _Counts) -> str:
    return f"{REASON}: {counted(one.read, 'record')}"


def _line(at: TopicPartition, one: _Counts) -> PartitionReport:
    return PartitionReport(
        at.topic,
        at.partition,
        one.low,
        one.high,
        one.high,
        read=one.read,
        written=one.rows,
        deletes=one.deletes,
        quarantined=one.bad,
        bytes=one.bytes,
        reason=_reason(one),
        stop="high",
    )
