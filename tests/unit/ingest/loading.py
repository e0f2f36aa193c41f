"""Records for tests of sinks, without Kafka and without a decoder: a topic is a list, a run reads from the stored offsets.

A record is (key, {column: value}), (key, None) for a tombstone, or (key, BAD) for one that cannot be decoded.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import duckdb
import pyarrow as pa

import lakesql
from lakesql.ingest.hudi_sink import HudiSink
from lakesql.ingest.model import (
    BAD as BAD_SCHEMA,
)
from lakesql.ingest.model import (
    KAFKA,
    Committed,
    Decoded,
    Format,
    Job,
    PartitionState,
    Range,
    State,
    Target,
    TopicPartition,
    WorkUnit,
)
from lakesql.storage import Storage

CON = duckdb.connect()
BAD = object()
Topics = Mapping[tuple[str, int], Sequence[tuple[str | None, Any]]]
KEYED = {"type": "mor", "primaryKey": "id"}


def job(path: Any, name: str = "orders", **more: Any) -> Job:
    """`properties`, `operation`, `select`, `options`, `partition_by` go into the target."""
    into = {k: more.pop(k) for k in ("properties", "operation", "select", "options", "partition_by") if k in more}
    target = Target("hudi", str(path), **{"properties": KEYED, **into})
    return Job(name, {}, target, Format("json"), **more)


def sink(path: Any, given: Job | None = None, storage: Storage | None = None, **more: Any) -> HudiSink:
    return HudiSink(CON, given or job(path), str(path), storage=storage, **more)


def kafka_columns(topic: str, partition: int, numbered: Sequence[tuple[int, str | None]]) -> dict[str, pa.Array]:
    values: dict[str, list[Any]] = {
        "_topic": [topic for _ in numbered],
        "_partition": [partition for _ in numbered],
        "_offset": [offset for offset, _ in numbered],
        "_timestamp": [1_700_000_000_000 + offset for offset, _ in numbered],
        "_timestamp_type": ["create" for _ in numbered],
        "_key": [None if key is None else key.encode() for _, key in numbered],
        "_headers": [[] for _ in numbered],
    }
    return {f.name: pa.array(values[f.name], f.type) for f in KAFKA}


def decoded(
    topic: str, partition: int, records: Sequence[tuple[int, str | None, Any]], key: str | None = "id"
) -> Decoded:
    """`records`: (offset, key, value). The key format gives the column `key`, as JSON where that is what it is."""
    good = [r for r in records if isinstance(r[2], dict)]
    gone = [r for r in records if r[2] is None]
    bad = [r for r in records if r[2] is BAD]
    columns = list(dict.fromkeys(c for r in good for c in r[2]))
    rows = {c: pa.array([r[2].get(c) for r in good]) for c in columns}
    keys = {} if key is None else {key: pa.array([_key(r[1]) for r in gone])}
    raw = kafka_columns(topic, partition, [(o, k) for o, k, _ in bad])
    raw |= {"_value": pa.array([b"{" for _ in bad], pa.binary()), "schema_id": pa.nulls(len(bad), pa.string())}
    raw |= {n: pa.array([t for _ in bad], pa.string()) for n, t in (("stage", "decode"), ("error", "no JSON"))}
    return Decoded(
        pa.table(rows | kafka_columns(topic, partition, [(o, k) for o, k, _ in good])),
        pa.table(keys | kafka_columns(topic, partition, [(o, k) for o, k, _ in gone])),
        pa.table(raw).select(BAD_SCHEMA.names).cast(BAD_SCHEMA),
    )


def _key(text: str | None) -> Any:
    try:
        return json.loads(text or "null")
    except ValueError:
        return text


def units(topics: Topics, before: State) -> list[WorkUnit]:
    found = []
    for number, ((topic, partition), records) in enumerate(sorted(topics.items())):
        low = before.offsets().get(TopicPartition(topic, partition), 0)
        found.append(WorkUnit(topic, (Range(topic, partition, low, max(low, len(records)), "stored"),), number))
    return found


def after(before: State, done: Sequence[WorkUnit], topics: Topics, run: str) -> State:
    partitions = dict(before.partitions)
    for unit in done:
        for one in unit.ranges:
            read = topics[one.topic, one.partition][one.low : one.high]
            kinds = {"quarantined": sum(v is BAD for _, v in read), "deletes": sum(v is None for _, v in read)}
            partitions[one.at] = PartitionState(one.high, one.low, records=len(read), **kinds)
    return replace(before, run=run, at_ms=1, partitions=partitions, quarantine=(), note="")


def run(target: HudiSink, topics: Topics, name: str = "run", batch: int = 3, key: str | None = "id") -> Committed:
    """Read everything behind the stored offsets, in batches, and commit it."""
    before = target.stored()
    load = target.begin(before, name)
    try:
        work = units(topics, before)
        for unit in work:
            for one in unit.ranges:
                records = [(o, *r) for o, r in enumerate(topics[one.topic, one.partition])][one.low : one.high]
                for start in range(0, len(records), batch):
                    load.take(unit, decoded(one.topic, one.partition, records[start : start + batch], key))
        return load.commit(after(before, work, topics, name))
    finally:
        load.discard()


def rows_of(path: Any, columns: Sequence[str] = ("id", "v")) -> list[tuple[Any, ...]]:
    found = lakesql.open_table(str(path)).read(columns=list(columns)).read_all()
    return sorted((tuple(row.values()) for row in found.to_pylist()), key=repr)


def record(key: Any, v: Any, **more: Any) -> tuple[str, dict[str, Any]]:
    return str(key), {"id": key, "v": v, **more}
