"""The servers and the proxy do what other tests rely on, seen by obstore alone."""

import os
import threading
import time
from collections import Counter

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, GenericError, PreconditionError
from obstore.store import S3Store

from tests.s3.proxy import HOW, Fault, Proxy, Seen, kind_of, longest_chain
from tests.s3.servers import BUCKET, KEY, REGION, SECRET, Server, store


def impatient(url: str, prefix: str) -> S3Store:
    """A client that asks once and waits for a second."""
    return S3Store(
        BUCKET,
        prefix=prefix,
        endpoint=url,
        access_key_id=KEY,
        secret_access_key=SECRET,
        region=REGION,
        client_options={"allow_http": True, "timeout": "1s"},
        retry_config={"max_retries": 0},
    )


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    return f"servers/{os.getpid()}/{abs(hash(request.node.nodeid))}"


def test_of_writers_that_create_one_name_exactly_one_wins(server: Server, prefix: str) -> None:
    bucket, won = store(server.url, prefix), Counter[str]()
    barrier = threading.Barrier(8)

    def race(me: int) -> None:
        barrier.wait()
        for number in range(10):
            try:
                obstore.put(bucket, f"k{number}", f"{me}".encode(), mode="create")
                won[f"k{number}"] += 1
            except AlreadyExistsError:
                pass

    threads = [threading.Thread(target=race, args=(me,)) for me in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert won == {f"k{number}": 1 for number in range(10)}


def test_an_object_is_replaced_only_where_its_tag_is_known(server: Server, prefix: str) -> None:
    bucket = store(server.url, prefix)
    first = obstore.put(bucket, "k", b"1")
    obstore.put(bucket, "k", b"2", mode={"e_tag": first["e_tag"]})
    with pytest.raises(PreconditionError):
        obstore.put(bucket, "k", b"3", mode={"e_tag": first["e_tag"]})
    assert bytes(obstore.get(bucket, "k").bytes()) == b"2"


def test_the_proxy_passes_on_what_it_is_not_told_to_break(proxy: Proxy, prefix: str) -> None:
    bucket = store(proxy.url, prefix)
    big = os.urandom(300_000)
    obstore.put(bucket, "a/b c=1/big", big)
    assert bytes(obstore.get(bucket, "a/b c=1/big").bytes()) == big
    assert bytes(obstore.get_range(bucket, "a/b c=1/big", start=5, length=7)) == big[5:12]
    assert [one["path"] for one in obstore.list(bucket).collect()] == ["a/b c=1/big"]
    obstore.copy(bucket, "a/b c=1/big", "copied")
    assert obstore.head(bucket, "copied")["size"] == len(big)
    obstore.delete(bucket, ["copied", "a/b c=1/big"])
    with pytest.raises(FileNotFoundError):
        obstore.get(bucket, "copied")
    assert Counter(one.kind for one in proxy.seen) == {"put": 1, "get": 3, "list": 1, "copy": 1, "head": 1, "delete": 1}
    assert [one.path for one in proxy.seen if one.kind == "put"] == [f"{prefix}/a/b c=1/big"]


@pytest.mark.parametrize("how", HOW)
def test_a_fault_is_an_error_of_that_request_alone(how: str, proxy: Proxy, prefix: str) -> None:
    bucket, data = impatient(proxy.url, prefix), b"x" * 100_000
    proxy.arm(Fault(2, how))
    obstore.put(bucket, "first", data)
    with pytest.raises((GenericError, OSError)):
        obstore.put(bucket, "second", data)
    obstore.put(bucket, "third", data)
    there = {one["path"] for one in obstore.list(bucket).collect()}
    assert there == {"first", "third"} | ({"second"} if how.startswith("lost") else set())
    assert proxy.broken == ["put"]


def test_half_of_an_answer_is_an_error(proxy: Proxy, prefix: str) -> None:
    bucket = impatient(proxy.url, prefix)
    obstore.put(bucket, "k", b"x" * 100_000)
    proxy.arm(Fault(1, "torn"))
    with pytest.raises((GenericError, OSError)):
        obstore.get(bucket, "k").bytes()


def test_a_fault_that_stays_meets_every_request_from_then_on(proxy: Proxy, prefix: str) -> None:
    bucket = impatient(proxy.url, prefix)
    proxy.arm(Fault(2, "503", times=0))
    obstore.put(bucket, "k", b"1")
    for _ in range(3):
        with pytest.raises((GenericError, OSError)):
            obstore.get(bucket, "k")


def test_latency_is_that_of_the_answer(proxy: Proxy, prefix: str) -> None:
    bucket = store(proxy.url, prefix)
    obstore.put(bucket, "k", b"1")
    proxy.latency_s = 0.1
    started = time.monotonic()
    for _ in range(3):
        obstore.get(bucket, "k")
    assert 0.3 <= time.monotonic() - started < 3
    assert longest_chain(proxy.seen[-3:]) == 3


def test_the_longest_chain_is_that_of_requests_that_waited_for_one_another() -> None:
    def seen(*times: tuple[float, float]) -> list[Seen]:
        return [Seen("get", "k", started, ended, 200) for started, ended in times]

    assert longest_chain([]) == 0
    assert longest_chain(seen((0, 1), (0, 1), (0.5, 1.5))) == 1
    assert longest_chain(seen((0, 1), (0.1, 3), (1, 2), (2.5, 3), (2.6, 4))) == 3


@pytest.mark.parametrize(
    ("request_line", "kind"),
    [
        ("GET /lake?list-type=2&prefix=a%2F HTTP/1.1", ("list", "a/")),
        ("GET /lake/a/b%20c HTTP/1.1", ("get", "a/b c")),
        ("HEAD /lake/a HTTP/1.1", ("head", "a")),
        ("POST /lake?delete HTTP/1.1", ("delete", "")),
        ("POST /lake/a?uploads HTTP/1.1", ("multipart", "a")),
        ("PUT /lake/a?partNumber=1&uploadId=x HTTP/1.1", ("multipart", "a")),
        ("DELETE /lake/a HTTP/1.1", ("delete", "a")),
    ],
)
def test_kinds_of_requests(request_line: str, kind: tuple[str, str]) -> None:
    assert kind_of(f"{request_line}\r\nHost: x\r\n\r\n".encode()) == kind
