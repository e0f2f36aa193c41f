"""No password of an ingestion is printed: not in an error, not in SHOW, not by the command, whatever goes wrong."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakesql.errors import JobError
from lakesql.ingest.kafka import open_client
from lakesql.ingest.reading import Reading
from lakesql.ingest.secrets import MASK, Settings, hidden, hide, is_plain, masked, secrets_of, shown, without_secrets

KEYS = [
    "sasl.password",
    "ssl.key.password",
    "ssl.keystore.password",
    "sasl.oauthbearer.client.secret",
    "kafka.schema.registry.basic.auth.user.info",
    "gobblin.kafka.sharedConfig.sasl.jaas.config",
    "ssl.key.pem",
]
SECRET = st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF, exclude_characters="'\"`;$\\{}"), min_size=6)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(KEYS), SECRET, st.text(max_size=20))
def test_a_secret_is_nowhere_in_a_hidden_text(key, secret, around):
    if secret in around or secret in MASK:
        return
    held = {key: secret, "kafka.brokers": "h:1"}
    text = f"{around}{secret}{around} could not log in with {secret!r}"
    assert secret not in hide(text, secrets_of(held))
    with pytest.raises(JobError) as caught, hidden(held):
        raise JobError(text)
    assert secret not in str(caught.value)
    assert shown(key, secret) == MASK
    assert is_plain(key, secret)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("http://user:pw@host:8081/x", "http://***@host:8081/x"),
        ("http://user:pw", "http://user:***"),
        ("http://host:8081/x", "http://host:8081/x"),
        ('org.x.Login required username="u" password="p w";', 'org.x.Login required username="u" password=***;'),
        ("h1:9092,h2:9092", "h1:9092,h2:9092"),
    ],
)
def test_passwords_within_a_value(text, masked):
    assert without_secrets(text) == masked


def test_settings_show_what_may_be_shown_and_keep_what_they_hold():
    held = Settings({"sasl.password": "geheim", "kafka.schema.registry.url": "http://u:geheim@r", "a": "1"})
    assert "geheim" not in f"{held} {held!r}"
    assert repr(held) == repr(masked(held))
    assert held["sasl.password"] == "geheim"


@pytest.mark.parametrize("key", KEYS)
def test_errors_and_texts_of_the_client_know_the_same_secrets(key):
    wrong = Reading({key: "geheim"}).wrong(key, "it is wrong", "Correct it.")
    assert "geheim" not in str(wrong)
    client = open_client({"bootstrap.servers": "h:1"})
    client.settings = {key: "geheim"}
    assert client.safe("not geheim") == f"not {MASK}"


def test_a_reference_is_no_secret():
    assert shown("sasl.password", "${env:KAFKA_PASSWORD}") == "${env:KAFKA_PASSWORD}"
    assert not is_plain("sasl.password", "${env:KAFKA_PASSWORD}")
    assert secrets_of({"sasl.password": "${env:KAFKA_PASSWORD}"}) == frozenset()


def test_an_error_without_a_secret_stays_the_same():
    error = JobError("the broker h:1 does not answer")
    with pytest.raises(JobError) as caught, hidden({"sasl.password": "geheim"}):
        raise error
    assert caught.value is error
