"""The table functions about Kafka, on any registered connection.

    kafka_offsets(t)                     what the ingestions of a table, or of a folder of files, have stored; also of
                                         '{topic}' and the like, as an ingestion names its tables
    kafka_offsets(topics, brokers := )   what the brokers have; `topics` are regular expressions, as in topic.whitelist
    kafka_lag(t)                         how far a table is behind its topics: now, when its ingestion is a named one or
                                         brokers are given; else as it was when the last run was planned
    kafka_ingest_runs(t)                 the commits of the ingestions of a table or folder
    kafka_quarantine(t)                  the records that could not be decoded
    kafka_scan(topic, brokers := )       the records of a topic, for a look; nothing is committed. At most 1000, unless
                                         `rows` says otherwise; NULL: all

`options := MAP {...}` takes settings of the client as an ingestion does, SSL and SASL among them.
"""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa

from lakesql.errors import IngestError, SQLError, TableError
from lakesql.ingest import definitions, kafka, quarantine, scan, stored, tables
from lakesql.ingest.decode import decoder_factory
from lakesql.ingest.front import TOPIC, resolved
from lakesql.ingest.model import Bounds, Client, Job, State, Target, TopicPartition
from lakesql.ingest.moving import milliseconds
from lakesql.ingest.report import read_until
from lakesql.ingest.secrets import hidden
from lakesql.ingest.setting_values import patterns
from lakesql.ingest.settings import job_of
from lakesql.ingest.state import runs_table
from lakesql.ingest.topics import selected
from lakesql.sql.instance import Arguments, Instance
from lakesql.sql.results import table_sql
from lakesql.sql.spill import spilled
from lakesql.storage import Storage, open_storage
from lakesql.table.state import PROPERTIES

LAG = pa.schema(
    [
        ("ingestion", pa.string()), ("topic", pa.string()), ("partition", pa.int32()), ("next", pa.int64()),
        ("earliest", pa.int64()), ("latest", pa.int64()), ("lag", pa.int64()), ("lost", pa.int64()),
        ("live", pa.bool_()), ("stored_at", pa.string()), ("error", pa.string()), ("complete_until", pa.string()),
    ]
)  # fmt: skip


# ---------------------------------------------------------------- what is stored


def _offsets(instance: Instance, table: str, arguments: Arguments, transaction: int) -> str:
    brokers, options, ingestion = arguments
    if brokers is None:
        if _given(options):
            raise SQLError("kafka_offsets: options are for the brokers; give brokers := 'host:port' too.")
        found = _stored(instance, table, ingestion, transaction)
        return table_sql(tables.offsets(state for _, states in found for state in states))
    _refuse_pattern(instance, "kafka_offsets", table, "with brokers := it takes topics")
    with _opened(_settings(brokers, options)) as job, closing(_client(job)) as client:
        names = [topic.name for topic in selected(client.topics(), replace(job, whitelist=patterns(table)))]
        if not names:
            raise IngestError(f"kafka_offsets: the brokers {brokers} have no topic that fits {table!r}.")
        return table_sql(scan.offsets_table(job.client, names, client=client))


def _runs(instance: Instance, table: str, arguments: Arguments, transaction: int) -> str:
    _refuse_pattern(instance, "kafka_ingest_runs", table)
    storage = instance.storage(table)
    if storage.stat(PROPERTIES) is None:
        return spilled(stored.runs_of_folder(storage, arguments[0]))
    return spilled(runs_table(instance.snapshot(table, transaction), arguments[0]))


def _quarantine(instance: Instance, table: str, arguments: Arguments, transaction: int) -> str:
    del transaction
    _refuse_pattern(instance, "kafka_quarantine", table)
    storage = instance.storage(table)
    if storage.stat(PROPERTIES) is None:
        return spilled(stored.quarantine_of_folder(storage, arguments[0]))
    return spilled(quarantine.quarantine_table(storage.uri, arguments[0]))


def _lag(instance: Instance, table: str, arguments: Arguments, transaction: int) -> str:
    brokers, options, ingestion = arguments
    rows: list[dict[str, object]] = []
    found = _stored(instance, table, ingestion, transaction)
    for storage, state in ((storage, state) for storage, states in found for state in states):
        given = _settings(brokers, options) if brokers is not None else _settings_of(storage, state.ingestion)
        if given is None:
            rows += _as_planned(state)
            continue
        with _opened(given) as job, closing(_client(job)) as client:
            asked_ms = time.time_ns() // 1_000_000  # a record that comes while they are asked is of later
            rows += _live(state, client.bounds(tuple(state.partitions), job.isolation), asked_ms)
    return table_sql(pa.Table.from_pylist(rows, schema=LAG))


def _stored(
    instance: Instance, table: str, ingestion: str | None, transaction: int
) -> list[tuple[Storage, list[State]]]:
    """The states in a table, as this transaction sees it, in a folder of files, or waiting for a table; for a name with
    {topic} those of each table or folder that it means."""
    if TOPIC in table:
        found = [pair for path in _paths(instance, table) for pair in stored.of_pattern(path, ingestion)]
        if not found:
            raise TableError(
                f"{table}: no table or folder of that pattern holds offsets of an ingestion. Run it first."
            )
        return found
    storage = _place(instance, table)
    if storage.stat(PROPERTIES) is None:
        return [(storage, stored.of_path(storage, ingestion))]
    states = stored.of_table(instance.snapshot(table, transaction), ingestion)
    return [(storage, states + stored.waiting_for(storage, ingestion, [state.ingestion for state in states]))]


def _paths(instance: Instance, table: str) -> list[str]:
    return [table] if "/" in table else [f"{home}/{table}" for home in instance.homes]


def _refuse_pattern(instance: Instance, function: str, table: str, why: str = "it takes one table or folder") -> None:
    """SQLError for a name with {topic} where one target is wanted."""
    if TOPIC not in table:
        return
    paths = [storage.uri for path in _paths(instance, table) for storage, _ in stored.of_pattern(path)]
    there = f"those of this pattern are {', '.join(paths[:5])}" if paths else "none of this pattern is there yet"
    raise SQLError(
        f"{function}: {table} means one for each topic, and {why}; {there}. kafka_offsets('{table}') shows all."
    )


def _place(instance: Instance, table: str) -> Storage:
    """The storage of a table; of one that offsets wait for, where it will be."""
    if instance.path_of(table) is None and "/" not in table:
        for home in instance.homes:
            storage = open_storage(f"{home}/{table}")
            if stored.waiting_for(storage):
                return storage
    return instance.storage(table)


def _settings_of(storage: Storage, ingestion: str) -> Mapping[str, str] | None:
    """The settings of the named ingestion that writes this table: it is defined in the folder where the table lies."""
    warehouse = storage.uri.rpartition("/")[0] or "/"
    found = definitions.find(warehouse, ingestion) if ingestion else None
    return None if found is None else found.options


def _live(state: State, bounds: Mapping[TopicPartition, Bounds], asked_ms: int) -> Iterator[dict[str, object]]:
    for at, one in sorted(state.partitions.items()):
        has = bounds.get(at, Bounds(error="the brokers do not have it"))
        known = has.error is None
        lost = max(0, has.earliest - one.next) if known else None
        lag = max(0, has.latest - max(one.next, has.earliest)) if known else None
        yield {
            **_row(state, at), "earliest": has.earliest if known else None, "latest": has.latest if known else None,
            "lag": lag, "lost": lost, "live": True, "error": has.error,
            "complete_until": tables.time_text(asked_ms if lag == 0 else read_until(one)),
        }  # fmt: skip


def _as_planned(state: State) -> Iterator[dict[str, object]]:
    for at, one in sorted(state.partitions.items()):
        yield {
            **_row(state, at), "lag": one.lag, "live": False, "complete_until": tables.time_text(read_until(one)),
        }  # fmt: skip


def _row(state: State, at: TopicPartition) -> dict[str, object]:
    return {
        "ingestion": state.ingestion, "topic": at.topic, "partition": at.partition,
        "next": state.partitions[at].next, "stored_at": tables.time_text(state.at_ms or None),
    }  # fmt: skip


# ---------------------------------------------------------------- what the brokers have


def _scan(instance: Instance, topic: str, arguments: Arguments, transaction: int) -> str:
    del instance, transaction
    brokers, options, form, partition, start, stop, rows = arguments
    if brokers is None:
        raise SQLError(f"kafka_scan({topic}): give brokers := 'host:port'.")
    given = _settings(brokers, options)
    if form is not None:
        given["lakesql.format"] = form
    with _opened(given) as job, closing(_client(job)) as client:
        found = scan.scan(
            job.client,
            topic,
            start=_bound(start or "earliest"),
            end=_bound(stop or "latest"),
            partitions=None if partition is None else [_number("partition", partition)],
            limit=None if rows is None else _number("rows", rows),
            decoder=None if job.format.kind == "raw" else decoder_factory(job.format),
            client=client,
        )
        with closing(found):
            return spilled(found)


def _bound(text: str) -> str | int | datetime:
    """earliest, latest, an offset, or a time."""
    if text.isdigit():
        return int(text)
    if text.lower() in ("earliest", "latest"):
        return text.lower()
    return datetime.fromtimestamp(milliseconds(text) / 1000, UTC)


def _number(name: str, text: str) -> int:
    if not text.isdigit():
        raise SQLError(f"kafka_scan: {name} := {text}: give a number of at least 0.")
    return int(text)


def _given(options: str | None) -> dict[str, str]:
    """Settings out of the JSON text of a MAP or STRUCT. SQLError for anything else."""
    value = json.loads(options) if options is not None else None
    if value is None:
        return {}
    if not isinstance(value, dict) or any(isinstance(v, dict | list) or v is None for v in value.values()):
        raise SQLError("options: give a map of texts, such as MAP {'security.protocol': 'SSL'}.")
    return {k: v if isinstance(v, str) else json.dumps(v) for k, v in value.items()}


def _settings(brokers: str, options: str | None) -> dict[str, str]:
    return {"kafka.brokers": brokers, **_given(options)}


@contextmanager
def _opened(settings: Mapping[str, str]) -> Iterator[Job]:
    """A job that only looks, under an ingestion's settings; within, errors are without their secrets."""
    with hidden(settings):
        given = {"lakesql.format": "raw", **resolved(settings)}
        read = job_of(given, name="look", target=Target("hudi", "/"))
        for name, meant in read.unknown.items():
            raise SQLError(f"setting {name} is unknown" + (f"; did you mean {meant}?" if meant else "."))
        yield read.job


def _client(job: Job) -> Client:
    return kafka.open_client(job.client, isolation=job.isolation, readers=1)


PLANNERS = {
    "kafka_offsets": _offsets,
    "kafka_lag": _lag,
    "kafka_ingest_runs": _runs,
    "kafka_quarantine": _quarantine,
    "kafka_scan": _scan,
}
"""By the names of `functions.TABLE_FUNCTIONS`."""
