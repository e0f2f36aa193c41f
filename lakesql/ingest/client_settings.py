"""Settings of the Kafka client: from the names of Java's consumer, and from librdkafka's own, to librdkafka's.

What decides offsets and commits belongs to the ingestion and is not passed on. A Java key store cannot be read by the client
and is refused; `sasl.jaas.config` is understood for PLAIN and SCRAM.
"""

import re
from collections.abc import Iterator, Mapping

from lakesql.errors import JobError
from lakesql.ingest.secrets import Settings

PREFIXES = ("gobblin.kafka.sharedConfig.", "source.kafka.", "source.kafka.consumerConfig.", "kafka.client.")
"""From the weakest to the strongest."""
OWN = "kafka.client."
"""What stands behind this goes to the client under any name."""
_BARE = re.compile(r"(security\.protocol|group\.id|client\.(id|rack|dns\.lookup)|(sasl|ssl)\..+)$")

_WORD = re.compile(r"""(\w+)\s*=\s*("[^"]*"|'[^']*'|[^\s;]+)""")
_RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "request.timeout.ms": "socket.timeout.ms",
    "socket.connection.setup.timeout.max.ms": "socket.connection.setup.timeout.ms",
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
    "metadata.broker.list": "bootstrap.servers",
}
_OFFSETS = "offsets are kept in the target, never in the consumer group"
_BATCH = "batches are at most 10,000 records"
_JAVA = "of Java's client alone"
_OURS = {
    "auto.offset.reset": "a start without a stored offset is set by bootstrap.with.offset, one out of range by reset.on.offset.out.of.range",
    "enable.auto.commit": _OFFSETS,
    "auto.commit.enable": _OFFSETS,
    "auto.commit.interval.ms": _OFFSETS,
    "enable.auto.offset.store": _OFFSETS,
    "offset.store.method": _OFFSETS,
    "enable.partition.eof": "the end of a range is known from the plan",
    "allow.auto.create.topics": "topics are only read",
    "partition.assignment.strategy": "partitions are assigned by the plan",
    "group.protocol": "partitions are assigned by the plan",
    "group.instance.id": "partitions are assigned by the plan",
    "max.poll.records": _BATCH,
    "max.poll.interval.ms": "there is no group to leave",
    "session.timeout.ms": "there is no group to leave",
    "heartbeat.interval.ms": "there is no group to leave",
    "key.deserializer": "the key's format is set by lakesql.key.format",
    "value.deserializer": "the value's format is set by lakesql.format or kafka.deserializer.type",
    "default.api.timeout.ms": _JAVA,
    "exclude.internal.topics": "internal topics are never read",
    "interceptor.classes": _JAVA,
    "metric.reporters": _JAVA,
    "metrics.num.samples": _JAVA,
    "metrics.recording.level": _JAVA,
    "metrics.sample.window.ms": _JAVA,
    "security.providers": _JAVA,
    "auto.include.jmx.reporter": _JAVA,
    "ssl.protocol": _JAVA,
    "ssl.provider": _JAVA,
    "ssl.enabled.protocols": _JAVA,
    "ssl.keymanager.algorithm": _JAVA,
    "ssl.trustmanager.algorithm": _JAVA,
    "ssl.secure.random.implementation": _JAVA,
    "ssl.engine.factory.class": _JAVA,
    "sasl.client.callback.handler.class": _JAVA,
    "sasl.login.callback.handler.class": _JAVA,
    "sasl.login.class": _JAVA,
}
_FAMILIES = (
    *("broker.", "topic.metadata.", "metadata.", "socket.", "connections.", "reconnect.", "retry.", "ssl.", "sasl."),
    *("fetch.", "queued.", "api.version.", "client.", "log.", "enable.sasl.", "https.ca.", "test.mock."),
)
_SINGLE = {
    "message.max.bytes", "message.copy.max.bytes", "receive.message.max.bytes", "max.in.flight", "debug", "log_level",
    "max.in.flight.requests.per.connection", "statistics.interval.ms", "security.protocol", "check.crcs", "group.id",
    "enable.ssl.certificate.verification", "enable.random.seed", "enable.metrics.push", "plugin.library.paths",
}  # fmt: skip


class ClientSettings:
    """What was found: `values` for the client, `unused` (setting: reason), `unknown`, `isolation` and `brokers` if named."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.values = Settings()
        self.unused: dict[str, str] = {}
        self.unknown: list[str] = []
        self.isolation: str | None = None
        self.brokers: str | None = None
        found: dict[str, tuple[str, str]] = {}
        for key, name, value in _named(settings):
            name = _RENAMED.get(name, name)
            if name in _OURS:
                self.unused[key] = _OURS[name]
            elif name == "isolation.level":
                self.isolation = value
            elif name == "bootstrap.servers":
                self.brokers = value
            elif key.startswith(OWN) or name in _SINGLE or name.startswith(_FAMILIES):
                found[name] = (key, value)
            else:
                self.unknown.append(key)
        self._stores(found)
        self._trust(found)
        self._login(found)
        self.values.update({name: value for name, (_, value) in found.items()})
        if self.values.get("ssl.endpoint.identification.algorithm") == "":
            self.values["ssl.endpoint.identification.algorithm"] = "none"

    def _stores(self, found: dict[str, tuple[str, str]]) -> None:
        """The client's own certificate: PKCS#12 stays, PEM is renamed, Java's own form is refused."""
        kind = self._kind(found, "keystore")
        if (store := found.get("ssl.keystore.location")) is None:
            return
        key, path = store
        if kind == "JKS" or (not kind and path.lower().endswith(".jks")):
            raise JobError(
                f"{key} = {path!r} is a Java key store, which the Kafka client cannot read. Convert it with keytool -importkeystore"
                " ... -deststoretype PKCS12 and name the new file, or name PEM files by ssl.certificate.location and ssl.key.location."
            )
        if kind == "PEM":
            del found["ssl.keystore.location"]
            found.setdefault("ssl.certificate.location", store)
            found.setdefault("ssl.key.location", store)

    def _trust(self, found: dict[str, tuple[str, str]]) -> None:
        """The authorities that are trusted: only PEM can be read."""
        kind = self._kind(found, "truststore")
        if password := found.pop("ssl.truststore.password", None):
            self.unused[password[0]] = "PEM files of authorities have no password"
        if (store := found.pop("ssl.truststore.location", None)) is None:
            return
        if kind != "PEM" and not store[1].lower().endswith((".pem", ".crt")):
            raise JobError(
                f"{store[0]} = {store[1]!r} is a Java trust store, which the Kafka client cannot read. Write its certificates to a PEM"
                " file with keytool -exportcert -rfc and name that by ssl.ca.location."
            )
        found.setdefault("ssl.ca.location", store)

    def _kind(self, found: dict[str, tuple[str, str]], store: str) -> str:
        """The form of a store as its setting says, which the client does not need."""
        _, value = found.pop(f"ssl.{store}.type", ("", ""))
        return value.strip().upper()

    def _login(self, found: dict[str, tuple[str, str]]) -> None:
        """User and password out of sasl.jaas.config."""
        if (login := found.pop("sasl.jaas.config", None)) is None:
            return
        key, text = login
        module = re.match(r"\s*([\w.]+)(\s|;|$)", text)
        words = {name: value.strip("\"'") for name, value in _WORD.findall(text)}
        kind = module[1].rsplit(".", 1)[-1] if module else ""
        if kind not in ("PlainLoginModule", "ScramLoginModule") or not {"username", "password"} <= set(words):
            raise JobError(
                f"{key}: only PlainLoginModule and ScramLoginModule with username and password are understood (the value is not shown)."
                " Set sasl.username and sasl.password, or librdkafka's sasl.kerberos.* or sasl.oauthbearer.* settings, in its place."
            )
        found.setdefault("sasl.username", (key, words["username"]))
        found.setdefault("sasl.password", (key, words["password"]))
        if kind == "PlainLoginModule":
            found.setdefault("sasl.mechanism", (key, "PLAIN"))
        elif "sasl.mechanism" not in found:
            raise JobError(f"{key} names ScramLoginModule; set sasl.mechanism to SCRAM-SHA-256 or SCRAM-SHA-512.")


def is_client_setting(key: str) -> bool:
    """Whether a setting is meant for the client."""
    return key.startswith(PREFIXES) or _BARE.match(key) is not None


def _named(settings: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """(setting, name for the client, value), the stronger ones later."""
    for key, value in settings.items():
        if _BARE.match(key):
            yield key, key, value
    for prefix in PREFIXES:
        for key, value in settings.items():
            if key.startswith(prefix) and max((p for p in PREFIXES if key.startswith(p)), key=len) == prefix:
                yield key, key.removeprefix(prefix), value
