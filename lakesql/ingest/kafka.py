"""The Kafka client: topics, offsets, and readers of ranges, over confluent-kafka.

`open_client(settings)` takes settings under librdkafka's names. Metadata goes through one admin client that all tasks
share; each reader (`kafka_read`) has a consumer of its own. Consumer groups are never used: partitions are assigned,
offsets are given, nothing is committed to Kafka. Every wait is bounded by `timeout_s`; errors name the brokers and
never a secret. What librdkafka logs goes to the logger `lakesql.kafka`, which is silent unless someone listens.
"""

import logging
import os
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakesql.errors import IngestError, JobError
from lakesql.ingest.metrics import current
from lakesql.ingest.model import Bounds, Fetched, Range, Topic, TopicPartition
from lakesql.ingest.retries import EVERY_S
from lakesql.ingest.secrets import MASK, is_secret

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

TIMEOUT_S = 20.0
"""How long a question to the brokers may take."""

BUDGET = 64 << 20
"""Bytes of fetched and not yet read messages that all readers of a client may hold together. Small records cost the
library several times their bytes; a larger budget is not faster."""

DESCRIBE_S = 5.0
"""How long descriptions of topics are waited for: their ids are good to have, and a cluster without a controller never
gives them. After one timeout the client does not ask again."""

SMALLEST_SHARE = 8 << 20

_LARGEST_MESSAGE = 1_000_000
"""The library's message.max.bytes; it wants fetch.max.bytes to be no smaller."""

TLS_ALERT = "tls alert"
"""Within what the library says when the brokers do not accept the certificate of the client."""
ISOLATION = ("read_committed", "read_uncommitted")

LOGGER = logging.getLogger("lakesql.kafka")
LOGGER.addHandler(logging.NullHandler())

_INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"})


def open_client(
    settings: Mapping[str, str],
    *,
    isolation: str | None = None,
    readers: int | None = None,
    budget: int = BUDGET,
    timeout_s: float = TIMEOUT_S,
) -> "KafkaClient":
    """A client of the cluster at `bootstrap.servers`.

    isolation  of the readers; None: the setting `isolation.level`, else read_committed
    readers    how many of them share the budget; None: one for each core
    """
    try:
        import confluent_kafka  # noqa: F401
    except ImportError as error:
        raise JobError(
            "Kafka: the client library confluent-kafka is not installed; install it with pip install 'lakesql[kafka]'"
        ) from error
    chosen = isolation or settings.get("isolation.level") or ISOLATION[0]
    if chosen not in ISOLATION:
        raise JobError(f"isolation.level: {chosen!r} is neither {ISOLATION[0]} nor {ISOLATION[1]}")
    share = max(budget // (readers or os.cpu_count() or 1), SMALLEST_SHARE)
    return KafkaClient(settings, chosen, share, timeout_s)


class KafkaClient:
    """`model.Client` over confluent-kafka; its methods may be called from several threads."""

    def __init__(self, settings: Mapping[str, str], isolation: str, share: int, timeout_s: float) -> None:
        from confluent_kafka.admin import AdminClient

        self.brokers = settings.get("bootstrap.servers") or settings.get("metadata.broker.list") or ""
        if not self.brokers.strip():
            raise JobError("kafka.brokers: no broker is named; give a comma list of host:port")
        self.settings = dict(settings)
        self.isolation = isolation
        self.share = share
        self.timeout_s = timeout_s
        self.trouble: deque[KafkaError] = deque(maxlen=20)
        own = {**_base(settings), "error_cb": self.trouble.append}
        self._describes = True
        self._admin: Any = made(lambda: AdminClient(own, logger=LOGGER), self)

    def topics(self) -> Sequence[Topic]:
        """All topics that are not internal, with their ids where the brokers know such."""
        names = {name: one for name, one in self._metadata().items() if name not in _INTERNAL}
        described = self._describe(names)
        found = []
        for name, one in sorted(names.items()):
            said = described.get(name)
            if said is not None and said.is_internal:
                continue
            found.append(Topic(name, tuple(sorted(one.partitions)), str(said.topic_id) if said is not None else None))
        return found

    def topic_ids(self, names: Iterable[str]) -> Mapping[str, str]:
        """Ids of these topics, of those that have one now."""
        return {name: str(said.topic_id) for name, said in self._describe(names).items()}

    def bounds(self, partitions: Sequence[TopicPartition], isolation: str) -> Mapping[TopicPartition, Bounds]:
        """Earliest and latest offsets of all partitions, asked for together; what cannot be had is in `error`."""
        from confluent_kafka.admin import OffsetSpec

        earliest = self._offsets(dict.fromkeys(partitions, OffsetSpec.earliest()), isolation)
        latest = self._offsets(dict.fromkeys(partitions, OffsetSpec.latest()), isolation)
        return {at: _bounds(low(), high()) for (at, low), high in zip(earliest.items(), latest.values(), strict=True)}

    def offsets_at(self, times_ms: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """The first offset with this or a later timestamp; the end of the partition when there is none."""
        from confluent_kafka.admin import OffsetSpec

        asked = self._offsets({at: OffsetSpec.for_timestamp(ms) for at, ms in times_ms.items()}, self.isolation)
        found: dict[TopicPartition, int] = {}
        for at, answer in asked.items():
            offset = answer()
            if isinstance(offset, str):
                raise IngestError(f"{at}: the offset at {times_ms[at]} ms could not be had: {offset}")
            found[at] = offset
        after = [at for at, offset in found.items() if offset < 0]
        for at, bounds in self.bounds(after, self.isolation).items():
            if bounds.error is not None:
                raise IngestError(f"{at}: the end of the partition could not be had: {bounds.error}")
            found[at] = bounds.latest
        return found

    def read(
        self, ranges: Sequence[Range], reset: str, fetch_timeout_s: float, batch_rows: int = 10_000
    ) -> Iterator[Fetched]:
        """Read the ranges with one assigned consumer until all are done or failed; closing the iterator closes it."""
        from lakesql.ingest.kafka_read import Reading

        return Reading(self, ranges, reset, fetch_timeout_s, batch_rows).run()

    def close(self) -> None:
        """Give back connections; the object is not used afterwards."""
        self._admin = None

    def waits(self, why: str, left_s: float) -> None:
        """Say that the brokers are asked again."""
        text = f"{self.brokers}: {why}. The brokers are asked again, for {left_s:.0f} s more."
        current().event("BrokerRetry", about=self.brokers, text=text)

    def safe(self, text: object) -> str:
        """A text of the library without the values of settings that are secret."""
        result = str(text)
        for name, value in self.settings.items():
            if value and (is_secret(name) or name == "sasl.username"):
                result = result.replace(value, MASK)
        return result

    def _metadata(self) -> Mapping[str, Any]:
        """The topics by name as the brokers list them; asked again and again while they cannot be reached."""
        from confluent_kafka import KafkaError, KafkaException

        deadline, told = time.monotonic() + self.timeout_s, -EVERY_S
        refused = (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError.SASL_AUTHENTICATION_FAILED)
        waiting = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT)
        listed: Mapping[str, Any] | None = None
        while listed is None:
            left = deadline - time.monotonic()
            try:
                listed = self._admin.list_topics(timeout=max(min(left, 1.0), 0.05)).topics
            except KafkaException as error:
                self._admin.poll(0)  # hands over what went wrong meanwhile
                denied = [one for one in self.trouble if one.code() in refused or TLS_ALERT in one.str()]
                if denied:
                    raise IngestError(
                        f"{self.brokers}: the brokers refuse the connection: {self.safe(denied[-1].str())}. "
                        "Check security.protocol, the sasl.* and the ssl.* settings"
                    ) from None
                if left <= 0 or error.args[0].code() not in waiting:
                    telling = [one for one in self.trouble if one.code() != KafkaError._ALL_BROKERS_DOWN]
                    raise IngestError(
                        f"{self.brokers}: no broker answered within {self.timeout_s:g} s: "
                        f"{self.safe((telling or error.args)[-1].str())}. "
                        "Check kafka.brokers, the network and security.protocol"
                    ) from None
                if time.monotonic() - told >= EVERY_S:
                    told = time.monotonic()
                    self.waits(self.safe(error.args[0].str()), deadline - told)
        return listed

    def _describe(self, names: Iterable[str]) -> Mapping[str, Any]:
        """Descriptions by topic; those that old brokers or missing rights do not give are left out."""
        from confluent_kafka import KafkaError, KafkaException, TopicCollection

        asked = list(names)
        if not asked or not self._describes:
            return {}
        timeout_s = min(self.timeout_s, DESCRIBE_S)
        answers = self._admin.describe_topics(TopicCollection(asked), request_timeout=timeout_s)
        found = {}
        for name, answer in answers.items():
            try:
                found[name] = answer.result()
            except KafkaException as error:
                LOGGER.debug("%s has no description: %s", name, error)
                if error.args[0].code() in (KafkaError._TIMED_OUT, KafkaError.REQUEST_TIMED_OUT):
                    self._describes = False
        return found

    def _offsets(self, specs: Mapping[TopicPartition, Any], isolation: str) -> "dict[TopicPartition, _Answer]":
        """Ask for one offset of each partition, all at once; the answers are waited for when they are called."""
        from confluent_kafka import IsolationLevel
        from confluent_kafka import TopicPartition as At

        if not specs:
            return {}
        level = IsolationLevel.READ_UNCOMMITTED if isolation == ISOLATION[1] else IsolationLevel.READ_COMMITTED
        asked = {At(at.topic, at.partition): spec for at, spec in specs.items()}
        futures = self._admin.list_offsets(asked, isolation_level=level, request_timeout=self.timeout_s)
        return {at: _Answer(self, future) for at, future in zip(specs, futures.values(), strict=True)}


class _Answer:
    """An offset that the brokers have been asked for."""

    def __init__(self, client: KafkaClient, future: Any) -> None:
        self._client = client
        self._future = future

    def __call__(self) -> int | str:
        """The offset, or why there is none."""
        from confluent_kafka import KafkaException

        try:
            return int(self._future.result().offset)
        except KafkaException as error:
            return f"{self._client.brokers}: {self._client.safe(error.args[0].str())}"


def _bounds(earliest: int | str, latest: int | str) -> Bounds:
    if isinstance(earliest, str):
        return Bounds(error=earliest)
    if isinstance(latest, str):
        return Bounds(error=latest)
    return Bounds(earliest, latest)


def _base(settings: Mapping[str, str]) -> dict[str, Any]:
    """Settings of every connection: a person's own above ours."""
    return {"client.id": "lakesql", "reconnect.backoff.max.ms": "2000", **settings}


def consumer_settings(client: KafkaClient) -> dict[str, Any]:
    """Settings of a reader: ours where exactness depends on them, else a person's own above ours."""
    given = client.settings
    defaults = {
        "group.id": "lakesql",  # the library wants a name; nothing is stored under it
        "queued.max.messages.kbytes": str(max(client.share // 1024, 1)),
        "queued.min.messages": "200000",
        "fetch.message.max.bytes": str(min(4 << 20, client.share // 4)),
        "fetch.max.bytes": str(max(client.share // 4, _LARGEST_MESSAGE)),
        "fetch.wait.max.ms": "100",
        "fetch.queue.backoff.ms": "20",
        "fetch.error.backoff.ms": "200",
    }
    if "message.max.bytes" in given:
        del defaults["fetch.max.bytes"]  # the library fits it to that
    for ours, other in (
        ("fetch.message.max.bytes", "max.partition.fetch.bytes"),
        ("fetch.wait.max.ms", "fetch.max.wait.ms"),
    ):
        if other in given:
            del defaults[ours]
    return {
        **defaults,
        **_base(given),
        "enable.auto.commit": "false",
        "enable.auto.offset.store": "false",
        "auto.offset.reset": "error",
        "enable.partition.eof": "true",
        "isolation.level": client.isolation,
    }


def made(make: Any, client: KafkaClient) -> Any:
    """What `make` makes; a setting that the library does not know or take is a JobError."""
    from confluent_kafka import KafkaException

    try:
        return make()
    except KafkaException as error:
        said = error.args[0].str() if hasattr(error.args[0], "str") else error
        places = {name: path for name, path in client.settings.items() if name.endswith(".location")}
        absent = [f" There is no file {path} ({name})." for name, path in places.items() if not Path(path).exists()]
        raise JobError(f"{client.brokers}: the client cannot be set up: {client.safe(said)}{''.join(absent)}") from None
