"""The client of schema registries against the test registry: both protocols, cache, outages, unknown ids, logins."""

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from lakesql.errors import IngestError, JobError
from lakesql.ingest.registry import Registry
from tests.kafka.registry import TestRegistry

ORDER = {"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "id", "type": "long"}]}


class Clock:
    """Time that passes by sleeping only."""

    def __init__(self) -> None:
        self.now, self.slept = 1000.0, []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def server() -> Iterator[TestRegistry]:
    with TestRegistry() as registry:
        yield registry


@pytest.fixture
def clock() -> Clock:
    return Clock()


def client(server: TestRegistry, clock: Clock, protocol: str = "confluent", **settings: str) -> Registry:
    names = {k.replace("_", "."): v for k, v in settings.items()}
    return Registry(server.url, protocol, names, sleep=clock.sleep, clock=clock)


def test_confluent_schemas_are_found_by_number_by_guid_and_as_latest_of_a_topic(
    server: TestRegistry, clock: Clock
) -> None:
    number = server.register("a/b", ORDER)
    registry = client(server, clock)
    found = registry.schemas([str(number), server.guid(number)])
    assert [s and s.json for s in found.values()] == [ORDER, ORDER]
    latest = registry.latest("a/b")
    assert latest is not None
    assert (latest.id, latest.kind, latest.json) == (str(number), "AVRO", ORDER)
    assert registry.latest("other") is None


def test_linkedin_schemas_are_found_by_their_md5_and_as_latest_of_a_topic(server: TestRegistry, clock: Clock) -> None:
    number = server.register("t", ORDER)
    registry = client(server, clock, "linkedin")
    md5 = server.md5(number)
    assert registry.schemas([md5])[md5].json == ORDER  # type: ignore[union-attr]
    assert registry.latest("t").json == ORDER  # type: ignore[union-attr]
    assert server.requests == [f"/id={md5}", "/latest_with_type=t"]


def test_a_schema_is_asked_for_once_and_again_when_it_has_expired(server: TestRegistry, clock: Clock) -> None:
    number = str(server.register("t", ORDER))
    registry = client(server, clock)
    for _ in range(3):
        registry.schemas([number])
    assert server.counts[f"/schemas/ids/{number}"] == 1
    clock.now += 601
    registry.schemas([number])
    assert server.counts[f"/schemas/ids/{number}"] == 2


def test_the_cache_keeps_the_schemas_that_were_used_last(server: TestRegistry, clock: Clock) -> None:
    numbers = [str(server.register("t", {**ORDER, "doc": str(i)})) for i in range(3)]
    registry = client(server, clock, kafka_schema_registry_max_cache_size="2")
    registry.schemas(numbers)
    registry.schemas(numbers[1:])
    registry.schemas(numbers[:1])
    assert [server.counts[f"/schemas/ids/{n}"] for n in numbers] == [2, 1, 1]


def test_many_threads_ask_for_an_id_once(server: TestRegistry, clock: Clock) -> None:
    number = str(server.register("t", ORDER))
    server.slow_s = 0.05
    registry = client(server, clock)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(registry.schemas([number]))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert server.counts[f"/schemas/ids/{number}"] == 1


def test_an_unknown_id_is_asked_for_three_times_a_second_apart_and_not_again(
    server: TestRegistry, clock: Clock
) -> None:
    registry = client(server, clock)
    assert registry.schemas(["7", "8"]) == {"7": None, "8": None}
    assert registry.schemas(["7"]) == {"7": None}
    assert server.counts["/schemas/ids/7"] == 3
    assert clock.slept == pytest.approx([1.0, 1.0])


def test_an_id_that_the_registry_learns_meanwhile_is_found(server: TestRegistry, clock: Clock) -> None:
    registry = client(server, clock)
    original = clock.sleep
    clock.sleep = lambda s: (original(s), server.register("t", ORDER))[0]  # type: ignore[method-assign]
    registry = client(server, clock)
    assert registry.schemas(["1"])["1"] is not None


@pytest.mark.parametrize("status", [500, 503, 429])
def test_an_outage_is_retried_and_then_an_error_never_an_unknown_id(
    server: TestRegistry, clock: Clock, status: int
) -> None:
    number = str(server.register("t", ORDER))
    registry = client(server, clock)
    server.fail, server.fail_times = status, 2
    assert registry.schemas([number])[number] is not None
    assert clock.slept == [0.5, 1.0]
    server.fail_times = -1
    with pytest.raises(IngestError, match=f"HTTP {status}.*No record was dropped"):
        registry.schemas(["9"])


def test_a_registry_that_is_not_there_or_too_slow_is_an_error(server: TestRegistry, clock: Clock) -> None:
    gone = Registry("http://127.0.0.1:1", "confluent", {}, sleep=clock.sleep, clock=clock)
    with pytest.raises(IngestError, match=r"http://127.0.0.1:1/schemas/ids/1: .*refused"):
        gone.schemas(["1"])
    server.slow_s = 0.3
    late = client(server, clock, schema_registry_request_timeout_ms="50", schema_registry_retries="1")
    with pytest.raises(IngestError, match="timed out"):
        late.schemas(["1"])


def test_the_next_url_is_asked_when_the_first_does_not_answer(server: TestRegistry, clock: Clock) -> None:
    number = str(server.register("t", ORDER))
    registry = Registry(f"http://127.0.0.1:1,{server.url}/", "confluent", {}, sleep=clock.sleep, clock=clock)
    assert registry.schemas([number])[number] is not None
    assert clock.slept == []


def test_a_web_page_is_neither_a_schema_nor_an_unknown_id(server: TestRegistry, clock: Clock) -> None:
    server.answer = lambda _: (200, {}, "<html>sign in</html>")  # type: ignore[method-assign]
    with pytest.raises(IngestError, match="expected a JSON object, found '<html>"):
        client(server, clock).schemas(["1"])
    server.answer = lambda _: (404, {}, "<html>no such page</html>")  # type: ignore[method-assign]
    with pytest.raises(IngestError, match="not that of a registry"):
        client(server, clock).schemas(["2"])


def test_logins_are_sent_and_never_shown(server: TestRegistry) -> None:
    number = str(server.register("t", ORDER))
    server.authorization = "Basic bWU6c2VjcmV0"  # me:secret
    for settings in (
        {"schema.registry.basic.auth.user.info": "me:secret"},
        {"basic.auth.credentials.source": "USER_INFO", "basic.auth.user.info": "me:secret"},
        {"basic.auth.credentials.source": "SASL_INHERIT", "sasl.username": "me", "sasl.password": "secret"},
    ):
        assert Registry(server.url, "confluent", settings).schemas([number])[number] is not None
    in_url = Registry(server.url.replace("http://", "http://me:secret@"), "confluent", {})
    assert in_url.schemas([number])[number] is not None
    assert "secret" not in in_url.url
    server.authorization = "Bearer abc"
    token = {"bearer.auth.credentials.source": "STATIC_TOKEN", "bearer.auth.token": "abc"}
    assert Registry(server.url, "confluent", token).schemas([number])[number] is not None
    with pytest.raises(IngestError, match="answers 401: not allowed") as refused:
        Registry(server.url, "confluent", {"basic.auth.user.info": "me:hidden"}).schemas([number])
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "settings", "text"),
    [
        ("localhost:8081", {}, "expected http://"),
        ("http://r", {"kafka.schema.registry.max.cache.size": "many"}, "expected a number"),
        ("http://r", {"bearer.auth.credentials.source": "OAUTHBEARER"}, "only STATIC_TOKEN"),
        ("http://r", {"bearer.auth.credentials.source": "STATIC_TOKEN"}, "token is missing"),
        ("http://r", {"basic.auth.credentials.source": "NOSUCH"}, "use USER_INFO"),
        ("https://r", {"schema.registry.ssl.truststore.location": "/k/store.jks"}, "Export it as PEM"),
        ("https://r", {"schema.registry.ssl.ca.location": "/no/such.pem"}, "certificates cannot be loaded"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_asked(url: str, settings: dict[str, str], text: str) -> None:
    with pytest.raises(JobError, match=text):
        Registry(url, "confluent", settings)


def test_a_schema_that_refers_to_other_subjects_comes_with_their_types(server: TestRegistry, clock: Clock) -> None:
    money = {"type": "record", "name": "Money", "namespace": "shop", "fields": [{"name": "cents", "type": "long"}]}
    server.add("money", money)
    fields = [{"name": "a", "type": "shop.Money"}, {"name": "b", "type": ["null", "Money"]}]
    outer = {"type": "record", "name": "Cart", "namespace": "shop", "fields": fields}
    reference = {"name": "shop.Money", "subject": "money", "version": 1}
    number = str(server.register("t", outer, references=[reference]))
    found = client(server, clock).schemas([number])[number]
    assert found is not None
    types = [f["type"] for f in found.json["fields"]]
    assert types[0]["fields"] == money["fields"]
    assert types[1] == ["null", "Money"]


def test_answers_without_an_end_and_echoed_logins_do_no_harm(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    """Pieces that keep coming are one outage after the timeout, an answer without end is one too."""
    monkeypatch.setattr("lakesql.ingest.registry._ANSWER_MAX", 1 << 20)

    class Odd(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            slow, large = self.path.endswith("/1"), self.path.endswith("/2")
            self.send_response(200 if slow or large else 418)
            self.end_headers()
            with suppress(OSError):
                if not (slow or large):
                    self.wfile.write(str(self.headers["Authorization"]).encode())
                for _ in range(40 if slow else 64 if large else 0):
                    self.wfile.write(b" " * (1 if slow else 64 << 10))
                    self.wfile.flush()
                    time.sleep(0.05 if slow else 0)

    with ThreadingHTTPServer(("127.0.0.1", 0), Odd) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        login = {"schema.registry.basic.auth.user.info": "me:secret", "schema.registry.request.timeout.ms": "200"}
        registry = Registry(f"http://127.0.0.1:{server.server_port}", "confluent", login, sleep=clock.sleep)
        for number, text in ((1, "not complete after 0.2 s"), (2, "more than 1 MB"), (3, r"418: '\*\*\*'")):
            with pytest.raises(IngestError, match=text):
                registry.schemas([str(number)])
        server.shutdown()
