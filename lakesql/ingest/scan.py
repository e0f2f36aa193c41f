"""A look into topics without an ingestion: `scan` streams records as Arrow, `offsets_table` says what there is.

Nothing is stored or committed. What a scan reads is fixed at its start: records that arrive later are not in it.
"""

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches

import pyarrow as pa

from lakesql.errors import IngestError, JobError
from lakesql.ingest.kafka import open_client
from lakesql.ingest.kafka_columns import empty_batch
from lakesql.ingest.limits import limited
from lakesql.ingest.model import RAW, Bounds, Client, Decoder, Fetched, Limit, Range, Topic, TopicPartition

Bound = str | int | dt.datetime | Mapping[int, int]
"""'earliest', 'latest', an offset, a time, or an offset for some partitions (the others: all that is there)."""

OFFSETS = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("earliest", pa.int64()),
        pa.field("latest", pa.int64()),
        pa.field("records", pa.int64()),  # upper bound: gaps of transactions and compaction count too
        pa.field("error", pa.string()),
    ]
)


def scan(
    settings: Mapping[str, str],
    topic: str,
    *,
    start: Bound = "earliest",
    end: Bound = "latest",
    partitions: Sequence[int] | None = None,
    limit: int | None = None,
    decoder: Callable[[], Decoder] | None = None,
    bad: str = "fail",
    fetch_timeout_s: float = 30.0,
    client: Client | None = None,
) -> pa.RecordBatchReader:
    """The records of a topic from `start` up to, without, `end`, as a stream that is read once.

    limit    at most so many records, whichever come first
    decoder  makes what turns RAW into columns; None: RAW itself. Tombstones have no decoded row and are left out
    bad      records that cannot be decoded: 'fail', or 'skip' to leave them out
    client   one that is open already and stays open

    A decoded stream has the columns of its first records; a later batch must fit them.
    """
    if bad not in ("fail", "skip"):
        raise JobError(f"kafka_scan: bad records are to 'fail' or to 'skip', not to {bad!r}")
    found = client or open_client(settings)
    try:
        ranges = _ranges(found, topic, start, end, partitions)
    except BaseException:
        if client is None:
            found.close()
        raise
    fetches = _fetches(found, client is None, ranges, limit, fetch_timeout_s)
    if decoder is None:
        return pa.RecordBatchReader.from_batches(RAW, (one.batch for one in fetches if one.batch.num_rows))
    tables = _decoded(fetches, decoder(), bad)
    first = next(tables)
    return pa.RecordBatchReader.from_batches(first.schema, _batches(first, tables))


def offsets_table(settings: Mapping[str, str], topics: Sequence[str] = (), *, client: Client | None = None) -> pa.Table:
    """A row for each partition of these topics, or of all; what cannot be had is in `error`."""
    found = client or open_client(settings)
    try:
        present = {topic.name: topic for topic in found.topics()}
        chosen = [_named(name, present) for name in topics] if topics else list(present.values())
        asked = [TopicPartition(topic.name, number) for topic in chosen for number in topic.partitions]
        bounds = found.bounds(asked, _isolation(settings))
    finally:
        if client is None:
            found.close()
    rows = [(at, bounds[at]) for at in sorted(set(asked))]
    return pa.Table.from_arrays(
        [
            pa.array([at.topic for at, _ in rows], pa.string()),
            pa.array([at.partition for at, _ in rows], pa.int32()),
            pa.array([_told(one, one.earliest) for _, one in rows], pa.int64()),
            pa.array([_told(one, one.latest) for _, one in rows], pa.int64()),
            pa.array([_told(one, one.latest - one.earliest) for _, one in rows], pa.int64()),
            pa.array([one.error for _, one in rows], pa.string()),
        ],
        schema=OFFSETS,
    )


def _told(bounds: Bounds, number: int) -> int | None:
    return None if bounds.error is not None else number


def _isolation(settings: Mapping[str, str]) -> str:
    return settings.get("isolation.level") or "read_committed"


def _named(name: str, present: Mapping[str, Topic]) -> Topic:
    if name in present:
        return present[name]
    near = get_close_matches(name, present, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise IngestError(f"the brokers have no topic {name!r}{hint}")


def _ranges(client: Client, topic: str, start: Bound, end: Bound, partitions: Sequence[int] | None) -> list[Range]:
    """What lies between the bounds and is there now."""
    there = _named(topic, {one.name: one for one in client.topics()})
    chosen = there.partitions if partitions is None else tuple(dict.fromkeys(partitions))
    unknown = sorted(set(chosen) - set(there.partitions))
    if unknown:
        raise IngestError(f"topic {topic!r} has partitions {_list(there.partitions)}, not {_list(unknown)}")
    asked = [TopicPartition(topic, number) for number in chosen]
    bounds = client.bounds(asked, getattr(client, "isolation", "read_committed"))
    for at, one in bounds.items():
        if one.error is not None:
            raise IngestError(f"{at}: offsets could not be had: {one.error}")
    low = _offsets(client, bounds, start, {at: one.earliest for at, one in bounds.items()})
    high = _offsets(client, bounds, end, {at: one.latest for at, one in bounds.items()})
    return [Range(topic, at.partition, low[at], max(high[at], low[at]), "scan", topic_id=there.id) for at in asked]


def _offsets(
    client: Client,
    bounds: Mapping[TopicPartition, Bounds],
    bound: Bound,
    otherwise: Mapping[TopicPartition, int],
) -> Mapping[TopicPartition, int]:
    """A bound as an offset of each partition, no further out than what is there."""
    wanted = dict(otherwise)
    if isinstance(bound, dt.datetime):
        ms = round((bound if bound.tzinfo else bound.replace(tzinfo=dt.UTC)).timestamp() * 1000)
        wanted.update(client.offsets_at(dict.fromkeys(bounds, ms)))
    elif isinstance(bound, Mapping):
        strange = sorted(set(bound) - {at.partition for at in bounds})
        if strange:
            raise JobError(f"kafka_scan: an offset is given for partition {_list(strange)}, which is not read")
        wanted.update({at: bound[at.partition] for at in bounds if at.partition in bound})
    elif isinstance(bound, int) and not isinstance(bound, bool):
        wanted = dict.fromkeys(bounds, bound)
    elif bound in ("earliest", "latest"):
        wanted = {at: one.earliest if bound == "earliest" else one.latest for at, one in bounds.items()}
    else:
        raise JobError(f"kafka_scan: a bound is 'earliest', 'latest', an offset or a time, not {bound!r}")
    return {at: min(max(offset, bounds[at].earliest), bounds[at].latest) for at, offset in wanted.items()}


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _fetches(
    client: Client, own: bool, ranges: Sequence[Range], limit: int | None, timeout_s: float
) -> Iterator[Fetched]:
    """What the client reads; a partition that fails ends the scan."""
    cap = None if limit is None else Limit("count", limit)
    try:
        for fetched in limited(client.read(ranges, "nearest", timeout_s), cap):
            for at, why in fetched.failed.items():
                raise IngestError(f"{at}: {why}")
            yield fetched
    finally:
        if own:
            client.close()


def _decoded(fetches: Iterator[Fetched], decoder: Decoder, bad: str) -> Iterator[pa.Table]:
    """Decoded rows, one table at least, so that there are columns to tell."""
    said = False
    try:
        for fetched in fetches:
            if not fetched.batch.num_rows:
                continue
            decoded = decoder.decode(fetched.batch)
            if decoded.bad.num_rows and bad == "fail":
                one = decoded.bad.slice(0, 1).to_pylist()[0]
                raise IngestError(
                    f"{one['_topic']}:{one['_partition']}: the record at offset {one['_offset']} cannot be decoded "
                    f"({one['stage']}): {one['error']}. Ask for bad = 'skip' to leave such records out"
                )
            said = True
            yield decoded.rows
        if not said:
            yield decoder.decode(empty_batch()).rows
    finally:
        decoder.close()


def _batches(first: pa.Table, rest: Iterator[pa.Table]) -> Iterator[pa.RecordBatch]:
    yield from first.to_batches()
    for table in rest:
        yield from _fitted(table, first.schema).to_batches()


def _fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """A later batch under the columns of the first: missing ones are NULL, types are cast where no value is lost."""
    if table.schema.equals(schema):
        return table
    more = [name for name in table.schema.names if name not in schema.names]
    if more:
        raise IngestError(f"the records get a new column {more[0]!r} while they are read; scan from there on by itself")
    columns = [
        table[field.name] if field.name in table.schema.names else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    try:
        return pa.Table.from_arrays(columns, names=schema.names).cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise IngestError(f"the records change a column's type while they are read: {error}") from None
