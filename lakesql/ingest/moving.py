"""Offsets of an ingestion set by a person: what is wanted, checked against what the brokers have; then a commit without rows.

The table of a move says for each partition where it was, where it goes on, and how many records that skips or reads
again, before and after it is done (C5). A partition goes only where the topic has records, or to its end.
"""

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import duckdb
import pyarrow as pa

from lakesql.errors import IngestError, SQLError
from lakesql.ingest import front
from lakesql.ingest.model import TIME_MAX_MS, Bounds, Client, Job, PartitionState, Sink, State, Topic, TopicPartition
from lakesql.ingest.run import Parts, targets

MOVES = pa.schema(
    [
        ("ingestion", pa.string()), ("topic", pa.string()), ("partition", pa.int32()), ("before", pa.int64()),
        ("after", pa.int64()), ("skipped", pa.int64()), ("reread", pa.int64()), ("commit", pa.string()),
    ]
)  # fmt: skip

Wanted = Mapping[str, Mapping[int | None, tuple[str, str | None]]]
"""Topic ('': the only one) -> partition (None: every other) -> (offset, earliest, latest or timestamp; its value)."""


@dataclass(frozen=True, slots=True)
class _Move:
    at: TopicPartition
    before: int | None
    after: int
    topic_id: str | None  # of the topic that has the offset now


def move(con: duckdb.DuckDBPyConnection, job: Job, wanted: Wanted, *, dry_run: bool, now_ms: int) -> pa.Table:
    """Set offsets, or with `dry_run` say what would be. SQLError for what is not there, IngestError from the brokers."""
    with front.assemble(con, job) as parts:
        topics = {t.name: t for t in parts.client.topics()}
        chosen = tuple(parts.select(job, tuple(topics.values())))
        asked = offsets(parts.client, job, places(job, wanted, topics, chosen))
        return _moved(parts, job, _ids(topics.values(), chosen), asked, dry_run, now_ms, "Offsets set by hand")


def bring(con: duckdb.DuckDBPyConnection, job: Job, state: State, *, dry_run: bool, now_ms: int, note: str) -> pa.Table:
    """Set the offsets that another state says, for example one from a file."""
    with front.assemble(con, job) as parts:
        topics = tuple(parts.client.topics())
        chosen = tuple(parts.select(job, topics))
        foreign = sorted({at.topic for at in state.partitions} - set(chosen))
        if foreign:
            raise SQLError(
                f"ingestion {job.name} does not read {', '.join(foreign)}; it reads {', '.join(chosen) or 'no topic'}."
            )
        there = {TopicPartition(t.name, number) for t in topics for number in t.partitions}
        _require_partitions(job, topics, sorted(state.partitions.keys() - there))
        for at, has in parts.client.bounds(tuple(there & state.partitions.keys()), job.isolation).items():
            if has.error is not None:
                raise _unknown(at, has)
            if (
                state.partitions[at].next > has.latest
            ):  # the next run would go on at the end, and skip what comes until then
                raise _outside(at, str(state.partitions[at].next), has)
        return _moved(parts, job, _ids(topics, chosen), state.offsets(), dry_run, now_ms, note)


def _require_partitions(job: Job, topics: Iterable[Topic], absent: Sequence[TopicPartition]) -> None:
    """SQLError for partitions that no topic has: their offsets would be carried for ever, and nothing read by them."""
    if not absent:
        return
    has = next(_span(sorted(one.partitions)) for one in topics if one.name == absent[0].topic)
    more = f", and {len(absent) - 3} more" if len(absent) > 3 else ""
    raise SQLError(
        f"ingestion {job.name}: the brokers have no partition {', '.join(map(str, absent[:3]))}{more}; topic "
        f"{absent[0].topic} has partitions {has}. Take these lines out of the file. Nothing was changed."
    )


def _ids(topics: Iterable[Topic], chosen: Collection[str]) -> dict[str, str | None]:
    """The ids of the topics that an ingestion reads; a topic that was deleted and made again has another one."""
    return {topic.name: topic.id for topic in topics if topic.name in chosen}


# ---------------------------------------------------------------- what is wanted


def places(
    job: Job, wanted: Wanted, topics: Mapping[str, Topic], chosen: Sequence[str]
) -> dict[TopicPartition, tuple[str, str | None]]:
    """The place of each partition that is named. SQLError for what the ingestion does not read."""
    found: dict[TopicPartition, tuple[str, str | None]] = {}
    for name, given in wanted.items():
        topic = _topic(job, name, topics, chosen)
        known = set(topic.partitions)
        missing = sorted(number for number in given if number is not None and number not in known)
        if missing:
            raise SQLError(
                f"topic {topic.name} has no partition {missing[0]}; it has {_span(sorted(known))}. Nothing was changed."
            )
        rest = given.get(None)
        for number in topic.partitions:
            place = given.get(number, rest)
            if place is not None:
                found[TopicPartition(topic.name, number)] = place
    return found


def _topic(job: Job, name: str, topics: Mapping[str, Topic], chosen: Sequence[str]) -> Topic:
    if not name:
        if len(chosen) != 1:
            raise SQLError(
                f"ingestion {job.name} reads {len(chosen)} topics ({', '.join(sorted(chosen)[:5]) or 'none'}); say which: "
                "(topic 'name', ...)."
            )
        return topics[chosen[0]]
    if name not in chosen:
        what = "is none of the topics that it reads" if name in topics else "does not exist"
        raise SQLError(
            f"ingestion {job.name}: topic {name} {what}; it reads {', '.join(sorted(chosen)[:5]) or 'none'}."
        )
    return topics[name]


def _span(numbers: Sequence[int]) -> str:
    return f"{numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else str(numbers[0] if numbers else "none")


def offsets(
    client: Client, job: Job, given: Mapping[TopicPartition, tuple[str, str | None]]
) -> dict[TopicPartition, int]:
    """The offsets of places. SQLError for one that the partition does not have, IngestError from the brokers."""
    bounds = client.bounds(tuple(given), job.isolation)
    times = {at: milliseconds(str(value)) for at, (kind, value) in given.items() if kind == "timestamp"}
    at_times = client.offsets_at(times) if times else {}
    found = {}
    for at, (kind, value) in given.items():
        has = bounds.get(at, Bounds(error="no answer"))
        if has.error is not None:
            raise _unknown(at, has)
        if kind == "offset":
            found[at] = _within(at, str(value), has)
        else:
            found[at] = at_times[at] if kind == "timestamp" else has.earliest if kind == "earliest" else has.latest
    return found


def _within(at: TopicPartition, value: str, has: Bounds) -> int:
    if not (value.isascii() and value.isdigit()) or not has.earliest <= int(value) <= has.latest:
        raise _outside(at, value, has)
    return int(value)


def _outside(at: TopicPartition, value: str, has: Bounds) -> SQLError:
    return SQLError(
        f"partition {at}: it cannot go on at {value:.40}; it has records from {has.earliest} to {has.latest}. "
        "Nothing was changed."
    )


def _unknown(at: TopicPartition, has: Bounds) -> IngestError:
    return IngestError(f"the offsets of {at} could not be had: {has.error}. Nothing was changed; try again.")


def milliseconds(text: str) -> int:
    """A time as text, in UTC unless it says otherwise, or milliseconds since 1970."""
    if text.isascii() and text.isdigit() and len(text) <= len(str(TIME_MAX_MS)) and int(text) <= TIME_MAX_MS:
        return int(text)
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise SQLError(f"timestamp {text!r:.80} is no time; write for example '2026-01-31 12:00:00'.") from error
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


# ---------------------------------------------------------------- the commit


def _moved(
    parts: Parts,
    job: Job,
    ids: Mapping[str, str | None],
    offsets: Mapping[TopicPartition, int],
    dry_run: bool,
    now_ms: int,
    note: str,
) -> pa.Table:
    rows = []
    for path, topics in targets(job.target.path, tuple(ids)).items():
        own = {at: offset for at, offset in offsets.items() if at.topic in topics}
        if not own:
            continue
        sink = parts.sink(path, topics)
        before = sink.stored()
        moves = [_Move(at, _next(before, at), offset, ids.get(at.topic)) for at, offset in sorted(own.items())]
        changing = [m for m in moves if m.before != m.after or _is_of_another_topic(before.partitions[m.at], m)]
        commit = None if dry_run or not changing else _commit(sink, before, changing, now_ms, note)
        rows += [_row(job, one, commit) for one in moves]
    return pa.Table.from_pylist(rows, schema=MOVES)


def _next(state: State, at: TopicPartition) -> int | None:
    return state.partitions[at].next if at in state.partitions else None


def _commit(sink: Sink, before: State, moves: Sequence[_Move], now_ms: int, note: str) -> str | None:
    run = uuid.uuid4().hex[:16]
    load = sink.begin(before, run)
    try:
        still = {at: _unread(one) for at, one in before.partitions.items()}
        partitions = {**still, **{m.at: _state(before.partitions.get(m.at), m) for m in moves}}
        return load.commit(State(before.ingestion, run, now_ms, partitions, note=note)).commit
    finally:
        load.discard()


def _unread(one: PartitionState) -> PartitionState:
    """A partition that is not moved: it stands where it stood, and this commit read nothing of it."""
    return replace(one, low=one.next, records=0, bytes=0, quarantined=0, deletes=0, gap=None, skipped=0)


def _is_of_another_topic(before: PartitionState, one: _Move) -> bool:
    return one.topic_id is not None and before.topic_id not in (None, one.topic_id)


def _state(before: PartitionState | None, one: _Move) -> PartitionState:
    """A partition that goes on elsewhere; what was lost and skipped so far is kept. Its offset is one of the topic that
    is there now: without that topic's id the next run would begin with it anew."""
    if before is None:
        return PartitionState(one.after, one.after, one.topic_id)
    return replace(
        before, next=one.after, low=one.after, topic_id=one.topic_id or before.topic_id, leader_epoch=None, records=0,
        bytes=0, quarantined=0, deletes=0, gap=None,
        skipped=max(0, one.after - before.next), lag=None, last_ms=None, ends_ms=None,
        missing_since_ms=None,
    )  # fmt: skip


def _row(job: Job, one: _Move, commit: str | None) -> dict[str, object]:
    distance = 0 if one.before is None else one.after - one.before
    return {
        "ingestion": job.name, "topic": one.at.topic, "partition": one.at.partition, "before": one.before,
        "after": one.after, "skipped": max(0, distance), "reread": max(0, -distance), "commit": commit,
    }  # fmt: skip
