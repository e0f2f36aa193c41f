"""Records into topics, for tests and benchmarks: of any cluster, mock or real."""

import itertools
import os
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple


class Record(NamedTuple):
    """One record; `partition` None: the one that `produce` is told, or the library's choice by key."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int | None = None
    partition: int | None = None


def produce(
    brokers: str,
    topic: str,
    records: Iterable[bytes | Record | None],
    *,
    partition: int | None = None,
    compression: str = "none",
    settings: Mapping[str, str] | None = None,
) -> list[tuple[int, int]]:
    """Write the records, values alone or `Record`, and wait for all; (partition, offset) of each, in their order."""
    from confluent_kafka import Producer

    producer = Producer(_settings(brokers, compression, settings))
    written = _send(producer, topic, records, partition)
    _flush(producer)
    return _placed(written)


def produce_in_transaction(
    brokers: str, topic: str, records: Iterable[bytes | Record | None], *, commit: bool, partition: int | None = None
) -> list[tuple[int, int]]:
    """The same within one transaction, which is committed or aborted."""
    with Transaction(brokers) as transaction:
        written = transaction.send(topic, records, partition)
        transaction.end(commit=commit)
    return written


class Transaction:
    """A transaction that stays open until `end`; left without that, it is aborted."""

    def __init__(self, brokers: str) -> None:
        from confluent_kafka import Producer

        name = {"transactional.id": f"t-{os.getpid()}-{next(_numbers)}"}
        self._producer = Producer(_settings(brokers, "none", name))
        self._producer.init_transactions(30)
        self._producer.begin_transaction()
        self._open = True

    def send(
        self, topic: str, records: Iterable[bytes | Record | None], partition: int | None = None
    ) -> list[tuple[int, int]]:
        written = _send(self._producer, topic, records, partition)
        _flush(self._producer)
        return _placed(written)

    def end(self, *, commit: bool) -> None:
        self._open = False
        if commit:
            self._producer.commit_transaction(30)
        else:
            self._producer.abort_transaction(30)

    def __enter__(self) -> "Transaction":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open:
            self.end(commit=False)


_numbers = itertools.count()


def _settings(brokers: str, compression: str, more: Mapping[str, str] | None) -> dict[str, Any]:
    return {
        "bootstrap.servers": brokers,
        "compression.type": compression,
        "linger.ms": "5",
        "queue.buffering.max.messages": "500000",
        "log_level": "3",
        **(more or {}),
    }


def _send(producer: Any, topic: str, records: Iterable[bytes | Record | None], partition: int | None) -> list[Any]:
    """Hand over the records; the list holds what the broker said of each, once it has."""
    written: list[Any] = []

    def report(number: int) -> Any:
        def told(error: Any, message: Any) -> None:
            written[number] = error or (message.partition(), message.offset())

        return told

    for number, given in enumerate(records):
        record = given if isinstance(given, Record) else Record(given)
        written.append(None)
        place = record.partition if record.partition is not None else partition
        more: dict[str, Any] = {} if place is None else {"partition": place}
        if record.timestamp_ms is not None:
            more["timestamp"] = record.timestamp_ms
        if record.headers:
            more["headers"] = list(record.headers)
        while True:
            try:
                producer.produce(topic, record.value, record.key, on_delivery=report(number), **more)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 1000 == 0:
            producer.poll(0)
    return written


def _flush(producer: Any) -> None:
    left = producer.flush(60)
    if left:
        raise RuntimeError(f"{left} records could not be written within a minute")


def _placed(written: list[Any]) -> list[tuple[int, int]]:
    refused = [one for one in written if not isinstance(one, tuple)]
    if refused:
        raise RuntimeError(f"{len(refused)} records could not be written: {refused[0]}")
    return written
