"""Requests that fail: tried again, counted, and lost answers told from refusals."""

from collections import Counter

import pytest

from lakesql.errors import OverBudget, TableError
from lakesql.stores.calls import (
    MARK,
    Calls,
    Meter,
    Retry,
    before_again,
    beyond_budget,
    budget_of,
    in_context,
    is_transient,
    metered,
    refusal,
    status_of,
)


class GenericError(Exception):
    """Named as the client's."""


class AlreadyExistsError(Exception):
    """Named as the client's."""


class PermissionDeniedError(Exception):
    """Named as the client's."""


def http(status: int, word: str = "Something Else") -> GenericError:
    return GenericError(
        f"Generic S3 error: Error performing PUT x in 1ms - Server returned non-2xx status code: {status} {word}: "
    )


class Store:
    """An object that many put; `answers` says what becomes of each request: '' well, 'lost' done but not told, or an error."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.there: tuple[bytes, str | None] | None = None
        self.slept: list[float] = []
        self.counted: Counter[str] = Counter()
        self.now = 0.0
        self.calls = Calls(
            "s3://b/t",
            lambda kind: self.counted.update([kind]),
            Retry(),
            sleep=self.sleep,
            now=lambda: self.now,
            draw=lambda: 1.0,
        )

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def answer(self) -> object:
        return self.answers.pop(0) if self.answers else ""

    def put(self, data: bytes, attributes: dict[str, str]) -> str:
        answer = self.answer()
        if isinstance(answer, Exception):
            raise answer
        if self.there is not None:
            raise AlreadyExistsError
        self.there = data, attributes[MARK]
        if answer == "lost":
            raise TimeoutError
        return "tag"

    def create(self, data: bytes = b"") -> str | None:
        def found() -> tuple[str | None, str] | None:
            return self.there and (self.there[1], "tag")

        return self.calls.conditionally(
            "create", "x", lambda a: self.put(data, a), lambda e: isinstance(e, AlreadyExistsError), found
        )

    def get(self) -> str:
        answer = self.answer()
        if isinstance(answer, Exception):
            raise answer
        return "data"


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 504])
def test_a_busy_store_is_asked_again(status: int) -> None:
    store = Store(http(status), http(status))
    assert store.calls.run("get", "x", store.get) == "data"
    assert store.counted == {"get": 3}
    assert store.slept == [0.1, 0.2]


@pytest.mark.parametrize(
    "error", [http(400), http(404), http(501), PermissionDeniedError(), ValueError(), TableError()]
)
def test_an_answer_that_will_not_change_is_taken_at_once(error: Exception) -> None:
    store = Store(error)
    with pytest.raises(type(error)):
        store.calls.run("get", "x", store.get)
    assert store.counted == {"get": 1}


def test_pauses_double_up_to_a_limit_and_are_drawn_by_chance() -> None:
    retry = Retry()
    assert [retry.pause_s(n, lambda: 1.0) for n in (1, 2, 3, 8, 20)] == [0.1, 0.2, 0.4, 10.0, 10.0]
    assert retry.pause_s(3, lambda: 0.0) == 0.2


def test_a_store_that_stays_away_is_given_up_in_time() -> None:
    store = Store("", *[http(503)] * 50)
    store.calls.run("get", "x", store.get)
    with pytest.raises(GenericError, match="503"):
        store.calls.run("get", "x", store.get)
    assert store.counted["get"] <= 11
    assert store.now < 80


def test_an_address_that_never_answers_is_given_up_soon() -> None:
    store = Store(*[ConnectionError()] * 50)
    with pytest.raises(ConnectionError):
        store.calls.run("get", "x", store.get)
    assert store.counted["get"] == 3


def test_a_part_of_an_upload_is_not_sent_twice() -> None:
    store = Store(http(503))
    with pytest.raises(GenericError):
        store.calls.run("part", "x", store.get)
    assert store.counted == {"put": 1}


def test_a_lost_answer_is_success_when_the_object_is_ours() -> None:
    store = Store("lost")
    assert store.create(b"mine") == "tag"
    assert store.there is not None
    assert store.there[0] == b"mine"


def test_a_lost_answer_is_told_from_another_writer_with_the_same_content() -> None:
    other, store = Store(), Store(TimeoutError())
    other.create(b"")
    real, raced = store.put, []

    def put(data: bytes, attributes: dict[str, str]) -> str:
        if raced:
            store.there = other.there  # between our two attempts the other one came
        raced.append(1)
        return real(data, attributes)

    store.put = put  # type: ignore[method-assign]
    assert store.create(b"") is None


def test_a_refusal_without_a_lost_answer_asks_nothing_more() -> None:
    store = Store()
    store.create()
    assert store.create() is None
    assert store.counted == {"put": 2}


def test_conditional_requests_that_meet_are_tried_again() -> None:
    store = Store(AlreadyExistsError("Server returned non-2xx status code: 409 Conflict: "))
    assert store.create(b"mine") == "tag"


def test_a_check_before_trying_again_may_end_it() -> None:
    def lost() -> None:
        raise TableError("the lock is lost")

    store = Store(http(503))
    with before_again(lost), pytest.raises(TableError, match="lock is lost"):
        store.calls.run("create", "x", store.get)
    assert store.counted == {"put": 1}


def test_a_budget_refuses_the_request_that_would_go_over() -> None:
    store, meter = Store(), Meter(2)
    with metered(meter):
        store.calls.run("get", "x", store.get)
        store.calls.run("list", "", store.get)
        with pytest.raises(
            OverBudget, match=r"s3://b/t/y: the statement wanted to write .* = 2 .*made 2 \(1 get, 1 list\)"
        ):
            store.calls.run("create", "y", store.get)
        assert refusal(meter) is not None
        with beyond_budget():
            store.calls.run("delete", "y", store.get)
        meter.committed()
        store.calls.run("get", "z", store.get)
    assert meter.told().by_kind == {"get": 2, "list": 1, "delete": 1}
    assert meter.told().total == 4


def test_attempts_count_against_the_budget() -> None:
    store, meter = Store(http(503), http(503), http(503)), Meter(2)
    with metered(meter), pytest.raises(OverBudget):
        store.calls.run("get", "x", store.get)
    assert store.counted == {"get": 2}


def test_threads_ask_for_their_statement() -> None:
    import threading

    store, meter = Store(), Meter()
    with metered(meter):
        thread = threading.Thread(target=in_context(store.calls.run), args=("get", "x", store.get))
    thread.start()
    thread.join()
    assert meter.told().by_kind == {"get": 1}


def test_a_budget_is_a_whole_number() -> None:
    assert budget_of({}) is None
    assert budget_of({"lakesql.requests.budget": " 12 "}) == 12
    with pytest.raises(TableError, match=r"lakesql\.requests\.budget = 'many'"):
        budget_of({"lakesql.requests.budget": "many"})


def test_states_are_read_out_of_the_clients_texts() -> None:
    assert status_of(http(503, "Service Unavailable")) == 503
    assert status_of(GenericError("HTTP error: error sending request")) is None
    assert is_transient(GenericError("HTTP error: error sending request"))
    assert not is_transient(GenericError("Error getting credentials from instance metadata"))
