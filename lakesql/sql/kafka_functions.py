"""The table functions about Kafka, on any registered connection.

    kafka_offsets(t)                     what the ingestions of a table, or of a folder of files, have stored
    kafka_offsets(topics, brokers := )   what the brokers have; `topics` are regular expressions, as in topic.whitelist
    kafka_lag(t)                         how far a table is behind its topics: now, when its ingestion is a named one or
                                         brokers are given; else as it was when the last run was planned
    kafka_ingest_runs(t)                 the commits of its ingestions
    kafka_quarantine(t)                  the records that could not be decoded
    kafka_scan(topic, brokers := )       the records of a topic, for a look; nothing is committed

`options := MAP {...}` takes settings of the client as an ingestion does, SSL and SASL among them.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa

from lakesql.errors import SQLError
from lakesql.ingest import definitions, kafka, quarantine, scan, stored, tables
from lakesql.ingest.front import resolved
from lakesql.ingest.model import Bounds, Client, State, TopicPartition
from lakesql.ingest.secrets import hidden
from lakesql.ingest.settings import job_of
from lakesql.ingest.state import runs_table
from lakesql.sql.instance import Arguments, Free, Instance
from lakesql.sql.results import table_sql
from lakesql.sql.spill import spilled
from lakesql.storage import Storage
from lakesql.table.state import PROPERTIES

LAG = pa.schema(
    [
        ("ingestion", pa.string()), ("topic", pa.string()), ("partition", pa.int32()), ("next", pa.int64()),
        ("earliest", pa.int64()), ("latest", pa.int64()), ("lag", pa.int64()), ("lost", pa.int64()),
        ("live", pa.bool_()), ("stored_at", pa.string()), ("error", pa.string()),
    ]
)  # fmt: skip


# ---------------------------------------------------------------- what is stored


def _offsets(instance: Instance, table: str, arguments: Arguments, transaction: int) -> str:
    brokers, options, ingestion = arguments
    if brokers is None:
        if _given(options):
            raise SQLError("kafka_offsets: options are for the brokers; give brokers := 'host:port' too.")
        return table_sql(tables.offsets(_states(instance, table, ingestion, transaction)))
    with _client(brokers, options) as (client, isolation):
        return spilled(scan.offsets(client, table, isolation))


def _runs(instance: Instance, table: str, arguments: Arguments, transaction: int) -> str:
    return spilled(runs_table(instance.snapshot(table, transaction), arguments[0]))


def _quarantine(instance: Instance, table: str, arguments: Arguments, transaction: int) -> str:
    del transaction
    return spilled(quarantine.quarantine_table(instance.storage(table).uri, arguments[0]))


def _lag(instance: Instance, table: str, arguments: Arguments, transaction: int) -> str:
    brokers, options, ingestion = arguments
    storage = instance.storage(table)
    rows: list[dict[str, object]] = []
    for state in _states(instance, table, ingestion, transaction):
        if brokers is not None:
            with _client(brokers, options) as (client, isolation):
                rows += _live(state, client.bounds(tuple(state.partitions), isolation))
        elif (found := _settings_of(storage, state.ingestion)) is not None:
            with _client_of(found) as (client, isolation):
                rows += _live(state, client.bounds(tuple(state.partitions), isolation))
        else:
            rows += _as_planned(state)
    return table_sql(pa.Table.from_pylist(rows, schema=LAG))


def _states(instance: Instance, table: str, ingestion: str | None, transaction: int) -> list[State]:
    """The states in a table, as this transaction sees it, or in a folder of files."""
    storage = instance.storage(table)
    if storage.stat(PROPERTIES) is None:
        return stored.of_path(storage, ingestion)
    return stored.of_table(instance.snapshot(table, transaction), ingestion)


def _settings_of(storage: Storage, ingestion: str) -> Mapping[str, str] | None:
    """The settings of the named ingestion that writes this table: it is defined in the folder where the table lies."""
    warehouse = storage.uri.rpartition("/")[0] or "/"
    found = definitions.find(warehouse, ingestion) if ingestion else None
    return None if found is None else found.options


def _live(state: State, bounds: Mapping[TopicPartition, Bounds]) -> Iterator[dict[str, object]]:
    for at, one in sorted(state.partitions.items()):
        has = bounds.get(at, Bounds(error="the brokers do not have it"))
        known = has.error is None
        lost = max(0, has.earliest - one.next) if known else None
        yield {
            **_row(state, at), "earliest": has.earliest if known else None, "latest": has.latest if known else None,
            "lag": max(0, has.latest - max(one.next, has.earliest)) if known else None, "lost": lost, "live": True,
            "error": has.error,
        }  # fmt: skip


def _as_planned(state: State) -> Iterator[dict[str, object]]:
    for at, one in sorted(state.partitions.items()):
        yield {**_row(state, at), "lag": one.lag, "live": False}


def _row(state: State, at: TopicPartition) -> dict[str, object]:
    return {
        "ingestion": state.ingestion, "topic": at.topic, "partition": at.partition,
        "next": state.partitions[at].next, "stored_at": tables.time_text(state.at_ms or None),
    }  # fmt: skip


# ---------------------------------------------------------------- what the brokers have


def _scan(instance: Instance, topic: str, arguments: Arguments, transaction: int) -> str:
    del instance, transaction
    brokers, options, partition, start, end, limit = arguments
    if brokers is None:
        raise SQLError(f"kafka_scan({topic}): give brokers := 'host:port'.")
    raise NotImplementedError(brokers, options, partition, start, end, limit)


def _given(options: str | None) -> dict[str, str]:
    """Settings out of the JSON text of a MAP or STRUCT. SQLError for anything else."""
    value = json.loads(options) if options is not None else None
    if value is None:
        return {}
    if not isinstance(value, dict) or any(isinstance(v, dict | list) or v is None for v in value.values()):
        raise SQLError("options: give a map of texts, such as MAP {'security.protocol': 'SSL'}.")
    return {k: v if isinstance(v, str) else json.dumps(v) for k, v in value.items()}


@contextmanager
def _client(brokers: str, options: str | None) -> Iterator[tuple[Client, str]]:
    with _client_of({"kafka.brokers": brokers, **_given(options)}) as found:
        yield found


@contextmanager
def _client_of(settings: Mapping[str, str]) -> Iterator[tuple[Client, str]]:
    """A client under an ingestion's settings, and the isolation they ask for; errors are without secrets."""
    with hidden(settings):
        given = resolved(settings)
        for key in list(given):
            if key.startswith(("lakesql.", "extract.limit.")):
                del given[key]
        read = job_of({**given, "lakesql.format": "raw", "lakesql.into": "none", "job.name": "look"})
        wrong = next(((k, near) for k, near in read.unknown.items()), None)
        if wrong is not None:
            meant = f"; did you mean {wrong[1]}?" if wrong[1] else ""
            raise SQLError(f"setting {wrong[0]} is unknown{meant}")
        client = kafka.open_client(read.job.client, isolation=read.job.isolation, readers=1)
        try:
            yield client, read.job.isolation
        finally:
            client.close()


_BROKERS = ("brokers", "to_json(options)")
KAFKA_FUNCTIONS: dict[str, tuple[str, tuple[str, ...], Free]] = {
    "kafka_offsets": (
        "t, brokers := NULL, options := NULL, ingestion := NULL", (*_BROKERS, "ingestion"), Free(_offsets)
    ),
    "kafka_lag": ("t, brokers := NULL, options := NULL, ingestion := NULL", (*_BROKERS, "ingestion"), Free(_lag)),
    "kafka_ingest_runs": ("t, ingestion := NULL", ("ingestion",), Free(_runs)),
    "kafka_quarantine": ("t, ingestion := NULL", ("ingestion",), Free(_quarantine)),
    "kafka_scan": (
        'topic, brokers := NULL, options := NULL, partition := NULL, "start" := \'earliest\', "end" := NULL, "limit" := 1000',
        (*_BROKERS, "partition", '"start"', '"end"', '"limit"'),
        Free(_scan),
    ),
}  # fmt: skip
