"""The values that the steps of an ingestion hand to each other, and the protocols in which they meet.

Offsets are half-open ranges [low, high): `high` and `next` are the next offset to read (kafka-ingestion, reading aids).
Times are milliseconds since the epoch where a name ends in _ms. Nothing is done here: no client, no file, no clock.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import pyarrow as pa

from lakesql.errors import CommitConflict, LakeError, TooManyBadRecords
from lakesql.storage import Storage

# ---------------------------------------------------------------- what is asked


@dataclass(frozen=True, slots=True)
class Limit:
    """When a task stops reading early (R42-R45). A stopped task has succeeded; the next run goes on there.

    kind      'count': at most `amount` records per task; 'time': at most `amount` seconds per task; 'rate': at most
              `amount` records in `per_s` seconds per task, by waiting; 'pool': at most `amount` tasks fetch at a time
    """

    kind: str
    amount: float
    per_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Format:
    """How the bytes of a message become columns.

    kind       'json', 'avro', 'raw' (the value as BLOB), 'string' (as text), 'python' (a registered function)
    wire       of avro: 'confluent' (R39, R40), 'linkedin' (R38), 'none' (R41)
    registry   URL of the schema registry, or None
    options    everything else by its setting's name: fixed schemas, columns of JSON, lenient casts, function name,
               key format, envelope, cache sizes
    """

    kind: str
    wire: str | None = None
    registry: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Target:
    """Where rows go.

    kind        'hudi' or 'files'
    path        folder of the table or of the files; may contain {topic}: a table or folder of its own for each topic
    operation   of a Hudi table: 'insert', 'upsert', 'bulk_insert'; None: upsert with a record key, else insert
    properties  of a Hudi table that does not exist yet, as in CREATE TABLE (type, primaryKey, orderingFields, ...)
    partition_by  columns of a new table's partitions
    select      SQL over the relation `kafka`, or None for all decoded columns
    options     writer.* and data.publisher.* of a file target, hoodie.* settings of a write
    """

    kind: str
    path: str
    operation: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    partition_by: tuple[str, ...] = ()
    select: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BadRecords:
    """What happens to records that cannot be decoded: quarantine up to a bound, per partition.

    The percentage counts from 100 records of a partition on, except that 0 forbids the first one.
    """

    action: str = "quarantine"  # or 'fail'
    max_percent: float = 10.0
    max_count: int | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """One ingestion as asked for; made by `settings.job_of` from settings under their known names.

    name            identity of the stored offsets and of the lock (job.name)
    client          settings of the Kafka client under librdkafka's names, `bootstrap.servers` among them
    whitelist       regular expressions of topic names, full match, case-insensitive; empty: all
    blacklist       the same, wins
    topic_settings  (regular expression, settings) for single topics (dataset.specific.props), in order
    bootstrap       partition without a stored offset: 'latest', 'earliest', 'offset_lookback', 'timestamp', 'skip'
    reset           stored offset out of range: 'nearest', 'earliest', 'latest', 'skip', 'fail'
    to_latest       topics, lower case, that jump to their end in this run; {'all'} means every one
    max_tasks       how many tasks the work is packed into at most (mr.job.max.mappers)
    workers         how many tasks run at a time
    commit_policy   'full', 'successful', 'partial' (kafka-ingestion 2.5, 4.5)
    commit_interval_s  None: one commit per run
    settings        every setting as given, for what is passed on
    """

    name: str
    client: Mapping[str, str]
    target: Target
    format: Format
    whitelist: tuple[str, ...] = ()
    blacklist: tuple[str, ...] = ()
    topic_settings: tuple[tuple[str, Mapping[str, str]], ...] = ()
    bootstrap: str = "latest"
    lookback: int = 0
    reset: str = "nearest"
    to_latest: frozenset[str] = frozenset()
    isolation: str = "read_committed"
    packer: str = "BI_LEVEL"  # or SINGLE_LEVEL, CUSTOM
    packer_function: str | None = None
    estimator: str = "AVG_RECORD_TIME"  # or AVG_RECORD_SIZE, CUSTOM
    estimator_function: str | None = None
    pre_grouping_factor: float = 3.0
    max_tasks: int = 100
    target_task_size: float | None = None
    workers: int = 1
    limit: Limit | None = None
    bad: BadRecords = BadRecords()
    commit_policy: str = "full"
    commit_interval_s: float | None = None
    fetch_timeout_s: float = 30.0
    task_retries: int = 5
    retry_interval_s: float = 300.0
    lock: bool = True
    lock_dir: str | None = None
    lock_wait_s: float = 0.0
    group: str = ""
    description: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)


# ---------------------------------------------------------------- what Kafka has


class TopicPartition(NamedTuple):
    """A partition of a topic; sorts by topic, then partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}"


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the brokers name it. `id`: a topic that was deleted and made again has another one; None: unknown."""

    name: str
    partitions: tuple[int, ...]
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Bounds:
    """Offsets of a partition now. `latest` is the last stable offset under read_committed. `error`: could not be had."""

    earliest: int = -1
    latest: int = -1
    error: str | None = None


RAW = pa.schema(
    [
        pa.field("_topic", pa.dictionary(pa.int32(), pa.string())),
        pa.field("_partition", pa.int32()),
        pa.field("_offset", pa.int64()),
        pa.field("_timestamp", pa.timestamp("ms", "UTC")),
        pa.field("_timestamp_type", pa.dictionary(pa.int8(), pa.string())),  # 'create', 'log_append', NULL
        pa.field("_key", pa.binary()),
        pa.field("_headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        pa.field("_value", pa.binary()),
    ]
)
"""Columns of a batch as it comes from the client."""

TIME_MAX_MS = 9_223_372_000_000_000
"""Kafka takes any 64 bits for a timestamp; further from 1970 than this it is none, since no timestamp column holds it."""

KAFKA = RAW.remove(RAW.get_field_index("_value"))
"""Columns that every decoded row carries behind its own (kafka-ingestion 4.1)."""

BAD = pa.schema(
    [*RAW, pa.field("schema_id", pa.string()), pa.field("stage", pa.string()), pa.field("error", pa.string())]
)
"""Columns of records that could not be decoded; stage is 'frame', 'schema', 'decode', 'type' or 'key'."""


@dataclass(frozen=True, slots=True)
class Position:
    """How far a partition has been read: the next offset, and the leader epoch of the last record where known."""

    next: int
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class Fetched:
    """What one call of a reader gives: records of one or several partitions, and how far each of these is read.

    `positions` may move without a record: control records and aborted transactions leave gaps (C7).
    `done`: partitions that have reached their high offset. `failed`: partitions that cannot go on, and why.
    `moved`: partitions whose start had been deleted meanwhile, with the offset where reading goes on (C3).
    All may be empty: nothing came for a second, and the caller can look at its clock.
    """

    batch: pa.RecordBatch  # RAW
    positions: Mapping[TopicPartition, Position]
    done: frozenset[TopicPartition] = frozenset()
    failed: Mapping[TopicPartition, str] = field(default_factory=dict)
    moved: Mapping[TopicPartition, int] = field(default_factory=dict)


class Client(Protocol):
    """A Kafka cluster, as far as an ingestion needs it. Errors are IngestError, with the brokers named."""

    def topics(self) -> Sequence[Topic]:
        """All topics that are not internal."""

    def bounds(self, partitions: Sequence[TopicPartition], isolation: str) -> Mapping[TopicPartition, Bounds]:
        """Earliest and latest offsets of all partitions, asked for together."""

    def offsets_at(self, times_ms: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """The first offset with this or a later timestamp; the end of the partition when there is none."""

    def read(
        self, ranges: "Sequence[Range]", reset: str, fetch_timeout_s: float, batch_rows: int = 10_000
    ) -> Iterator[Fetched]:
        """Read the ranges with one assigned consumer until all are done or failed; closing the iterator closes it.

        A range whose start has been deleted meanwhile follows `reset` for this partition alone.
        """

    def close(self) -> None:
        """Give back connections."""


# ---------------------------------------------------------------- what is to be done


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets [low, high) of a partition that a run reads; an empty one carries its stored offset on.

    reason      why it starts at low: 'stored', 'bootstrap earliest', 'reset nearest: earliest', 'moved to latest', ...
    stored      offset of the run before, None: there was none
    gap         [from, to) that is lost since retention or a reset overtook the stored offset; None: nothing is
    skipped     records before low that are given up by a bootstrap or a move to latest (not a loss of stored progress)
    expected_bytes, weight   by the estimator
    error       why nothing is read although there may be records: offsets could not be had, reset says skip
    bytes_assumed  no run has read the partition yet, so expected_bytes rests on an assumption about its records
    """

    topic: str
    partition: int
    low: int
    high: int
    reason: str
    stored: int | None = None
    gap: tuple[int, int] | None = None
    skipped: int = 0
    expected_bytes: float = 0.0
    weight: float = 0.0
    topic_id: str | None = None
    leader_epoch: int | None = None
    error: str | None = None
    bytes_assumed: bool = False

    @property
    def at(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def records(self) -> int:
        """Upper bound: gaps of transactions and compaction count too."""
        return self.high - self.low


@dataclass(frozen=True, slots=True)
class WorkUnit:
    """Ranges of one topic that one task reads and may write into the same files."""

    topic: str
    ranges: tuple[Range, ...]
    group: int  # number within the plan

    @property
    def weight(self) -> float:
        return sum(r.weight for r in self.ranges)


@dataclass(frozen=True, slots=True)
class Task:
    """Work units that one task reads (a multi work unit, a container)."""

    number: int
    units: tuple[WorkUnit, ...]

    @property
    def ranges(self) -> tuple[Range, ...]:
        return tuple(r for unit in self.units for r in unit.ranges)

    @property
    def weight(self) -> float:
        return sum(unit.weight for unit in self.units)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run does, decided before anything is read.

    ranges   all of them, sorted: those that are read, and empty ones that carry an offset on
    tasks    the ranges with something to read, packed
    carried  partitions with a stored offset that are not read in this run, why
    unknown  partitions without a stored offset whose offsets could not be had, why; they have no range and stay new
    notes    sentences for the person: what is skipped, lost, unknown
    """

    job: str
    ranges: tuple[Range, ...]
    tasks: tuple[Task, ...]
    carried: Mapping[TopicPartition, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    unknown: Mapping[TopicPartition, str] = field(default_factory=dict)


# ---------------------------------------------------------------- rows


AVRO_SCHEMA = "avro.schema"
"""Metadata key of an Arrow schema: the Avro schema, as JSON, that its records came with."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """One batch, decoded. Every record of the batch is in exactly one of the three.

    rows     the decoded columns, then those of KAFKA
    deletes  records without a value (tombstones): the columns of the key as far as a key format says them, then KAFKA
    bad      BAD: what could not be decoded
    """

    rows: pa.Table
    deletes: pa.Table
    bad: pa.Table


class Decoder(Protocol):
    """Bytes to columns, for one task and one thread."""

    def decode(self, batch: pa.RecordBatch) -> Decoded:
        """All records of a RAW batch, which may be of several topics of the same dataset.

        Raises IngestError when decoding cannot go on at all (registry unreachable); never for a single bad record.
        """

    def close(self) -> None:
        """Give back what was opened."""


Sample = Callable[[str], pa.RecordBatch]
"""The first records of a topic in this run, as a RAW batch: the same whichever task asks first."""


DecoderFunction = Callable[[pa.RecordBatch], pa.Table]
"""A person's own decoder: RAW batch in; a table with one row per record, in order, out. A boolean column `_bad`, or a
text column `_error` that is not NULL, marks records that it could not decode."""


# ---------------------------------------------------------------- what is kept


@dataclass(frozen=True, slots=True)
class PartitionState:
    """What a commit stores about one partition (kafka-ingestion 4.3)."""

    next: int
    low: int
    topic_id: str | None = None
    leader_epoch: int | None = None
    records: int = 0
    bytes: int = 0
    quarantined: int = 0
    deletes: int = 0
    gap: tuple[int, int] | None = None
    lost: int = 0  # records lost to gaps since the ingestion began
    skipped: int = 0
    average_bytes: float | None = None
    average_millis: float | None = None
    newest_ms: int | None = None  # largest timestamp read so far
    last_ms: int | None = None  # timestamp of the last record before `next`
    ends_ms: int | None = None  # when the end that `lag` counts from was looked at
    lag: int | None = None  # records behind the end when the run was planned
    missing_since_ms: int | None = None


@dataclass(frozen=True, slots=True)
class State:
    """All that is known of an ingestion after a commit; complete in each commit (C1, C2)."""

    ingestion: str
    run: str = ""
    at_ms: int = 0
    partitions: Mapping[TopicPartition, PartitionState] = field(default_factory=dict)
    quarantine: tuple[str, ...] = ()  # files that this commit made, relative to the target
    metrics: Mapping[str, float] = field(default_factory=dict)
    note: str = ""  # of a commit that only moves offsets: why
    released: tuple[
        str, ...
    ] = ()  # files of earlier commits' quarantine that do not count any more: `quarantine` has the rest

    def offsets(self) -> dict[TopicPartition, int]:
        return {at: one.next for at, one in self.partitions.items()}


@dataclass(frozen=True, slots=True)
class Committed:
    """What a sink did: its commit (instant of a Hudi table, manifest number of a folder), rows by fate, files."""

    commit: str | None
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    ignored: int = 0
    files: int = 0
    bytes: int = 0
    notes: tuple[str, ...] = ()


class Load(Protocol):
    """Rows on their way into a target within one commit. Nothing of it is visible before `commit`."""

    def take(self, unit: WorkUnit, decoded: Decoded) -> None:
        """Keep the rows of one batch outside the target. May be called from several threads at a time, but for one
        unit from one thread only."""

    def forget(self, unit: WorkUnit) -> None:
        """What was taken for this unit does not count (its task failed)."""

    def commit(self, state: State) -> Committed:
        """Make rows and offsets visible in one step, in order of topic, partition and offset.

        `state` is written as given, with the quarantine files added. Raises IngestConflict when the stored offsets are
        no longer those that the load began with: nothing is written then.
        """

    def discard(self) -> None:
        """Remove everything that is not committed. Harmless after a commit."""


class Sink(Protocol):
    """A target: one Hudi table, or one folder of files."""

    def stored(self) -> State:
        """The state of this ingestion in the newest commit that has one; an empty one when none has."""

    def settle(self) -> None:
        """Do what a dead run still owes to a commit of its own; before each run, also one that finds nothing new."""

    def begin(self, before: State, run: str) -> Load:
        """A load for one commit on top of this state. Rolls back what a dead run of this ingestion left."""

    def quarantined(self) -> tuple[Storage, list[str]]:
        """Where the quarantine of this ingestion is, and the names of its files, the oldest first."""


# ---------------------------------------------------------------- what was done


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """One line of the report: what became of a range. stop: 'high', 'limit', 'error: ...', 'nothing to read', or
    'not committed: ...' when the rest of its target did not allow it."""

    topic: str
    partition: int
    low: int
    high: int
    next: int
    read: int = 0
    written: int = 0
    deletes: int = 0
    quarantined: int = 0
    skipped: int = 0
    lost: int = 0
    bytes: int = 0
    lag: int = 0
    seconds: float = 0.0
    task: int | None = None
    reason: str = ""
    stop: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """What a run did. `exit_code` as kafka-ingestion 4.2: 0 all reached, 3 some partition failed, 6 too many bad
    records, 7 the commit race was lost. `failures` has the errors behind it, each once."""

    job: str
    run: str
    partitions: tuple[PartitionReport, ...]
    committed: Mapping[str, Committed]  # by target
    seconds: float
    stop: str = ""
    notes: tuple[str, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    failures: tuple[LakeError, ...] = ()

    @property
    def exit_code(self) -> int:
        if any(isinstance(one, CommitConflict) for one in self.failures):
            return 7
        if any(isinstance(one, TooManyBadRecords) for one in self.failures):
            return 6
        return 3 if self.failures or any(p.stop.startswith("error") for p in self.partitions) else 0
