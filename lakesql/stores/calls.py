"""Requests to an object store: counted, held to a budget, tried again with back-off; lost answers told from refusals.

A request that failed because the store was busy, away or slow may have been carried out all the same: its answer was
lost. To read, put, list or remove again does no harm. A conditional put does: the second attempt would meet the object
of the first and be told that somebody else was faster. So each such put carries a mark of its own in the metadata of
its object (`MARK`), and a refusal after a lost answer is settled by looking whose mark is there (`conditionally`).
Not here: what the requests are, and the client that makes them (`stores.objects`).
"""

import random
import re
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

from lakesql.errors import LakeError, OverBudget, TableError

T = TypeVar("T")

BUDGET = "lakesql.requests.budget"
"""The setting: how many requests to object stores one statement may make."""
MARK = "lakesqlwriter"
"""Name of the metadata with the mark of a conditional put: a word that all stores take for a name."""
KIND = {"create": "put", "match": "put", "part": "put"}
"""Kinds of requests that are counted as another."""
_ONCE = ("part",)
"""What must not be sent twice: the client itself repeats the parts of an upload."""
_WANTED = {
    "get": "read",
    "head": "look at",
    "list": "list",
    "delete": "remove",
    "copy": "copy to",
}


@dataclass(frozen=True, slots=True)
class Retry:
    """How often, and how long, a request is tried: `attempts` in all, none begun after `total_s` seconds."""

    attempts: int = 10
    attempts_unreached: int = 3  # while the store has never answered: its address may be wrong
    first_s: float = 0.1
    longest_s: float = 10.0
    total_s: float = 60.0

    def pause_s(self, attempt: int, draw: Callable[[], float]) -> float:
        """Before the attempt after this one: twice as long each time, and by chance between half of it and all."""
        longest = min(self.longest_s, self.first_s * 2.0 ** (attempt - 1))
        return longest * (0.5 + 0.5 * draw())


@dataclass(frozen=True, slots=True)
class Requests:
    """What a statement asked of object stores: requests by kind (get, head, list, put, delete, copy) and bytes."""

    by_kind: Mapping[str, int] = field(default_factory=dict, hash=False)
    bytes_read: int = 0
    bytes_written: int = 0

    @property
    def total(self) -> int:
        """The number of all requests."""
        return sum(self.by_kind.values())

    def __str__(self) -> str:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(self.by_kind.items()))
        return (
            f"{self.total:,} requests{f' ({kinds})' if kinds else ''}, {self.bytes_read:,} bytes read, "
            f"{self.bytes_written:,} bytes written"
        )


@dataclass(slots=True)
class Meter:
    """What one statement has asked of object stores. With a `budget` it is told no before it goes over."""

    budget: int | None = None
    requests: Counter[str] = field(default_factory=Counter)
    bytes_read: int = 0
    bytes_written: int = 0
    refused: OverBudget | None = None
    _guard: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def take(self, kind: str, where: str) -> None:
        """Count a request that is about to be made. OverBudget when the budget is spent."""
        with self._guard:
            made = self.requests.total()
            if self.budget is not None and made >= self.budget and not _taking_back.get():
                self.refused = OverBudget(_over_text(kind, where, self.budget, self.requests))
                raise self.refused
            self.requests[KIND.get(kind, kind)] += 1

    def told(self) -> Requests:
        """What has been counted until now."""
        with self._guard:
            return Requests(dict(self.requests), self.bytes_read, self.bytes_written)

    def committed(self) -> None:
        """From now on everything is allowed: a statement that has committed is not told that it failed."""
        self.budget = None


def _over_text(kind: str, where: str, budget: int, made: Counter[str]) -> str:
    so_far = ", ".join(f"{count:,} {name}" for name, count in sorted(made.items())) or "none"
    return (
        f"{where}: the statement wanted to {_WANTED.get(kind, 'write')} this with one request more than {BUDGET} = "
        f"{budget:,} allows; it had made {made.total():,} ({so_far}). Nothing was committed; what was written is taken "
        "back, and those requests are made beyond the budget. Raise the budget or RESET it, or read less."
    )


_meter: ContextVar[Meter | None] = ContextVar("lakesql_meter", default=None)
_taking_back: ContextVar[bool] = ContextVar("lakesql_taking_back", default=False)
_before_again: ContextVar[Callable[[], None] | None] = ContextVar("lakesql_before_again", default=None)


@contextmanager
def metered(meter: Meter) -> Iterator[Meter]:
    """Within, requests of this thread are those of a statement; for threads that work for it: `in_context`."""
    token = _meter.set(meter)
    try:
        yield meter
    finally:
        _meter.reset(token)


def in_context(function: Callable[..., T]) -> Callable[..., T]:
    """The function, to be called by another thread for the statement that this one runs."""
    meter = _meter.get()
    if meter is None:
        return function

    def run(*args: Any, **kwargs: Any) -> T:
        with metered(meter):
            return function(*args, **kwargs)

    return run


@contextmanager
def beyond_budget() -> Iterator[None]:
    """Within, requests are counted and never refused: taking back, settling an outcome, keeping and giving a lock."""
    token = _taking_back.set(True)
    try:
        yield
    finally:
        _taking_back.reset(token)


@contextmanager
def before_again(check: Callable[[], None]) -> Iterator[None]:
    """Within, `check` is called before a request is tried again, and may raise instead."""
    token = _before_again.set(check)
    try:
        yield
    finally:
        _before_again.reset(token)


def current() -> Meter | None:
    """The meter of the statement that this thread runs."""
    return _meter.get()


def refusal(meter: Meter | None) -> OverBudget | None:
    """The error that a statement got when it went over its budget: DuckDB, and libraries, tell it as one of theirs."""
    return meter.refused if meter is not None else None


def committed() -> None:
    """Say that the statement of this thread has made its commit visible."""
    meter = _meter.get()
    if meter is not None:
        meter.committed()


class Calls:
    """The requests of one storage. `counted` is told (kind) of each of them."""

    def __init__(
        self,
        uri: str,
        counted: Callable[[str], None],
        retry: Retry | None = None,
        *,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.monotonic,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._uri, self._counted, self.retry = uri, counted, retry or Retry()
        self._sleep, self._now, self._draw = sleep, now, draw
        self._last: Meter | None = None
        self._reached = False

    def run(self, kind: str, path: str, function: Callable[[], T]) -> T:
        """What `function` gives, tried again while the store is busy, away or slow; then its last error."""
        return self._run(kind, path, function)

    def conditionally(
        self,
        kind: str,
        path: str,
        put: Callable[[dict[str, str]], T],
        refused: Callable[[Exception], bool],
        found: Callable[[], tuple[str | None, T] | None],
    ) -> T | None:
        """What `put` gives, None when the store refuses because of its condition.

        `put` gets the metadata to store with the object. `found` tells, with requests of its own, the mark of the object
        that is there now, and what `put` would have given for it; None when there is no object.
        """
        mark = uuid.uuid4().hex
        try:
            return self._run(kind, path, lambda: put({MARK: mark}), refused)
        except _RefusedError as refusal:
            if not refusal.after_lost:
                return None
        with beyond_budget():
            there = found()
        return there[1] if there is not None and there[0] == mark else None

    @contextmanager
    def for_last(self) -> Iterator[None]:
        """Within, requests are those of the statement that was here last: DuckDB's threads know none of their own."""
        if self._last is None or _meter.get() is not None:
            yield
            return
        with metered(self._last):
            yield

    def read_bytes(self, number: int) -> None:
        """Count bytes that came."""
        if (meter := _meter.get()) is not None:
            meter.bytes_read += number

    def wrote_bytes(self, number: int) -> None:
        """Count bytes that went."""
        if (meter := _meter.get()) is not None:
            meter.bytes_written += number

    def _run(
        self, kind: str, path: str, function: Callable[[], T], refused: Callable[[Exception], bool] | None = None
    ) -> T:
        started, attempt, lost = self._now(), 0, False
        while True:
            attempt += 1
            self.take(kind, path)
            try:
                made = function()
            except Exception as error:
                self._reached = self._reached or status_of(error) is not None
                attempts = self.retry.attempts if self._reached else self.retry.attempts_unreached
                last = attempt >= attempts or self._now() - started >= self.retry.total_s
                again = is_transient(error) and kind not in _ONCE and not last
                if refused is not None and not again and refused(error):
                    raise _RefusedError(after_lost=lost) from error
                if not again:
                    raise
                lost = True
            else:
                self._reached = True
                return made
            self._sleep(self.retry.pause_s(attempt, self._draw))
            if (check := _before_again.get()) is not None:
                check()

    def take(self, kind: str, path: str) -> None:
        """Count, for the storage and for the statement that this is done for."""
        meter = _meter.get()
        if meter is not None:
            self._last = meter
            meter.take(kind, f"{self._uri}/{path}" if path else self._uri)
        self._counted(KIND.get(kind, kind))


class _RefusedError(Exception):
    def __init__(self, *, after_lost: bool) -> None:
        super().__init__("the condition of a put does not hold")
        self.after_lost = after_lost


_STATUS = re.compile(r"(?:status(?: code)?:? |\()([1-5]\d\d)\b|\b([45]\d\d) [A-Z][a-z]+")
_LATER = (408, 409, 425, 429)
"""Answers of the class 'your fault' that mean: try later. 409 is S3's when two conditional requests meet."""
_LASTING = (
    "NotFoundError",
    "InvalidPathError",
    "NotModifiedError",
    "NotSupportedError",
    "PermissionDeniedError",
    "UnauthenticatedError",
    "UnknownConfigurationKeyError",
)


def is_transient(error: Exception) -> bool:
    """Whether a request that failed so may succeed when it is tried again; then it may also have been carried out."""
    if isinstance(error, LakeError | FileNotFoundError | NotImplementedError):
        return False
    if isinstance(error, TimeoutError | ConnectionError):
        return True
    name, status = type(error).__name__, status_of(error)
    if status in _LATER:
        return True
    if name in _LASTING or name in ("AlreadyExistsError", "PreconditionError"):
        return False
    if status is not None:
        return status >= 500 and status != 501
    return name in ("GenericError", "JoinError") and "credential" not in str(error).lower()


def status_of(error: Exception) -> int | None:
    """The HTTP status that a client tells in the text of its error."""
    found = _STATUS.search(str(error).split("\n", 1)[0])
    return int(found[1] or found[2]) if found else None


def is_unknown_to_store(error: Exception) -> bool:
    """Whether a store says that it does not know what was asked: a condition, where there are none."""
    return (
        isinstance(error, NotImplementedError) or type(error).__name__ == "NotSupportedError" or status_of(error) == 501
    )


def spent(before: Counter[str], after: Counter[str]) -> dict[str, int]:
    """The difference of two counts by kind, without zeros."""
    return {kind: after[kind] - before[kind] for kind in sorted(after) if after[kind] != before[kind]}


def budget_of(settings: Mapping[str, str]) -> int | None:
    """The budget that the settings of a session give a statement. TableError for what is no number."""
    text = str(settings.get(BUDGET, "")).strip()
    if text and not text.isdigit():
        raise TableError(f"setting {BUDGET} = {text!r}: must be a whole number. Correct the value or RESET {BUDGET}.")
    return int(text) if text else None
