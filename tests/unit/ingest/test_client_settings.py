"""What goes to the Kafka client: names of Java's consumer and librdkafka's own; what belongs to the ingestion; key stores."""

import pytest

from lakesql.errors import JobError
from lakesql.ingest.client_settings import ClientSettings
from lakesql.ingest.settings import job_of

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def values(**settings: str) -> dict[str, str]:
    return dict(ClientSettings({name.replace("__", "."): value for name, value in settings.items()}).values)


def consumer(name: str, value: str) -> ClientSettings:
    return ClientSettings({f"source.kafka.consumerConfig.{name}": value})


@pytest.mark.parametrize(
    "prefix", ["source.kafka.consumerConfig.", "source.kafka.", "gobblin.kafka.sharedConfig.", "kafka.client."]
)
def test_java_names_become_those_of_librdkafka(prefix: str) -> None:
    found = ClientSettings({f"{prefix}fetch.max.wait.ms": "100", f"{prefix}security.protocol": "SSL"})
    assert found.values == {"fetch.wait.max.ms": "100", "security.protocol": "SSL"}
    assert found.unknown == []


def test_the_more_special_prefix_wins() -> None:
    names = ["kafka.client.", "source.kafka.consumerConfig.", "source.kafka.", "gobblin.kafka.sharedConfig."]
    for number in range(len(names)):
        settings = {f"{prefix}client.id": prefix for prefix in names[number:]}
        assert ClientSettings(settings).values == {"client.id": names[number]}


def test_bare_names_of_security_are_taken() -> None:
    assert values(security__protocol="SASL_SSL", sasl__mechanism="PLAIN", ssl__ca__location="/ca") == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "ssl.ca.location": "/ca",
    }


@pytest.mark.parametrize(
    "name",
    [
        "auto.offset.reset",
        "enable.auto.commit",
        "max.poll.records",
        "value.deserializer",
        "partition.assignment.strategy",
    ],
)
def test_what_the_ingestion_decides_is_not_passed_on(name: str) -> None:
    found = consumer(name, "x")
    assert found.values == {}
    assert list(found.unused) == [f"source.kafka.consumerConfig.{name}"]


def test_names_that_no_client_knows_are_unknown_except_behind_the_own_prefix() -> None:
    assert consumer("no.such.setting", "1").unknown == ["source.kafka.consumerConfig.no.such.setting"]
    assert values(kafka__client__no__such__setting="1") == {"no.such.setting": "1"}


def test_brokers_and_isolation_are_told_apart() -> None:
    found = ClientSettings(
        {"kafka.client.bootstrap.servers": "h:1", "source.kafka.isolation.level": "read_uncommitted"}
    )
    assert (found.brokers, found.isolation, found.values) == ("h:1", "read_uncommitted", {})
    job = job_of({"kafka.client.bootstrap.servers": "h:1,i:2", "lakesql.format": "raw", "job.name": "j"}).job
    assert job.client == {"bootstrap.servers": "h:1,i:2"}


# ---------------------------------------------------------------- key stores


@pytest.mark.parametrize(
    "settings", [{"ssl.keystore.location": "/k.jks"}, {"ssl.keystore.location": "/k", "ssl.keystore.type": "jks"}]
)
def test_a_java_key_store_is_refused_with_what_to_do(settings: dict[str, str]) -> None:
    with pytest.raises(
        JobError, match=r"ssl.keystore.location = '/k.*Java key store.*PKCS12.*ssl.certificate.location"
    ):
        ClientSettings(settings)


@pytest.mark.parametrize(
    "settings",
    [{"ssl.truststore.location": "/t.jks"}, {"ssl.truststore.location": "/t.p12", "ssl.truststore.type": "PKCS12"}],
)
def test_a_java_trust_store_is_refused_with_what_to_do(settings: dict[str, str]) -> None:
    with pytest.raises(JobError, match=r"Java trust store.*ssl.ca.location"):
        ClientSettings(settings)


def test_other_stores_are_taken() -> None:
    assert values(ssl__keystore__location="/k.p12", ssl__keystore__type="PKCS12", ssl__keystore__password="p") == {
        "ssl.keystore.location": "/k.p12",
        "ssl.keystore.password": "p",
    }
    assert values(ssl__keystore__location="/k.pem", ssl__keystore__type="PEM") == {
        "ssl.certificate.location": "/k.pem",
        "ssl.key.location": "/k.pem",
    }
    found = ClientSettings({"ssl.truststore.location": "/ca.pem", "ssl.truststore.password": "p"})
    assert found.values == {"ssl.ca.location": "/ca.pem"}
    assert list(found.unused) == ["ssl.truststore.password"]
    assert values(ssl__endpoint__identification__algorithm="") == {"ssl.endpoint.identification.algorithm": "none"}


# ---------------------------------------------------------------- logins


@pytest.mark.parametrize(
    "text",
    [f'{PLAIN} required username="a b" password="p;\'=x";', f"{PLAIN} required username='a b' password='p;=x' ;"],
)
def test_a_plain_login_is_understood(text: str) -> None:
    found = values(sasl__jaas__config=text)
    assert found["sasl.username"] == "a b"
    assert found["sasl.password"] in ("p;'=x", "p;=x")
    assert found["sasl.mechanism"] == "PLAIN"
    assert "sasl.jaas.config" not in found


def test_a_scram_login_needs_its_mechanism() -> None:
    text = f"{SCRAM} required username=u password=p;"
    assert values(sasl__jaas__config=text, sasl__mechanism="SCRAM-SHA-512") == {
        "sasl.username": "u",
        "sasl.password": "p",
        "sasl.mechanism": "SCRAM-SHA-512",
    }
    with pytest.raises(JobError, match="SCRAM-SHA-256"):
        values(sasl__jaas__config=text)


@pytest.mark.parametrize(
    "text", ["com.sun.security.auth.module.Krb5LoginModule required principal=x;", f"{PLAIN} required username=u;", ""]
)
def test_other_logins_are_refused_without_showing_them(text: str) -> None:
    with pytest.raises(JobError, match=r"sasl.jaas.config: only PlainLoginModule and ScramLoginModule") as error:
        values(sasl__jaas__config=text)
    assert not text or text not in str(error.value)


def test_the_client_knows_every_setting_that_is_passed_on_by_name() -> None:
    kafka = pytest.importorskip("confluent_kafka")
    java = {
        "fetch.max.wait.ms": "100", "max.partition.fetch.bytes": "2000000", "receive.buffer.bytes": "100000", "send.buffer.bytes": "100000",
        "request.timeout.ms": "20000", "reconnect.backoff.ms": "50", "retry.backoff.ms": "100", "metadata.max.age.ms": "60000",
        "client.id": "c", "client.rack": "r", "client.dns.lookup": "use_all_dns_ips", "check.crcs": "true", "fetch.min.bytes": "1",
        "fetch.max.bytes": "60000000", "connections.max.idle.ms": "1000", "socket.connection.setup.timeout.max.ms": "20000", "group.id": "g",
        "security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{PLAIN} required username=u password=p;",
        "ssl.endpoint.identification.algorithm": "",
    }  # fmt: skip
    found = ClientSettings({f"source.kafka.consumerConfig.{name}": value for name, value in java.items()})
    assert found.unknown == []
    assert found.unused == {}
    kafka.Consumer({"group.id": "g", **found.values}).close()
