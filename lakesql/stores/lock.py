"""Hudi's storage-based lock (hudi-format 9.2): a JSON object that says who holds the lock and until when.

Hudi 1.1 and later describe the same object for a table (`TABLE`), so that both wait for each other. It is taken,
kept and given back by conditional puts: of two writers exactly one succeeds. A thread renews it; when the store says
that somebody else has it, or it could not be renewed in time, it is lost, and `require` raises before anything is
published. A holder that dies keeps the lock until its time is over, at most VALID_S seconds.
It works over every `Storage` with `tagged`, `put_if_absent` and `put_if_match`; who needs it is not said here.
"""

import json
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol

from lakesql.errors import CommitConflict, FormatError, TableError, Unsupported
from lakesql.stores.calls import beyond_budget

FOLDER = ".hoodie/.locks"
TABLE = "table_lock"
VALID_S, RENEW_S = 60, 6
"""How long the lock is ours without a sign of life, and how often one is given: Hudi wants at least ten times as long.

Hudi's own are 300 and 30; with those the lock of a killed process would be in the way for five minutes."""
VALID_SETTING = "hoodie.write.lock.storage.validity.timeout.secs"
RENEW_SETTING = "hoodie.write.lock.storage.renew.interval.secs"
DRIFT_MS = 500
"""Clocks of two machines may differ by so much."""
_POLL_S = 0.1, 1.0


class Tagged(Protocol):
    """What the lock needs of a storage."""

    uri: str

    def tagged(self, path: str) -> tuple[bytes, str] | None: ...

    def put_if_absent(self, path: str, data: bytes) -> bool: ...

    def put_if_match(self, path: str, data: bytes, tag: str) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Times:
    """The time the lock goes by."""

    valid_s: float = VALID_S
    renew_s: float = RENEW_S
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        if self.valid_s < 10 * self.renew_s or self.renew_s <= 0:
            raise TableError(
                f"settings {VALID_SETTING} = {self.valid_s:g} and {RENEW_SETTING} = {self.renew_s:g}: a lock is valid at "
                "least ten times as long as the time between two renewals. Correct one of them or RESET both."
            )


def path_of(name: str) -> str:
    """Where the lock of a name lies: in the folder of locks, or beside a name that is a path."""
    return f"{name}.lock.json" if "/" in name else f"{FOLDER}/{name}.json"


@dataclass(frozen=True, slots=True)
class Claim:
    """The content of the object."""

    owner: str
    valid_until_ms: int
    expired: bool = False

    def encode(self) -> bytes:
        return json.dumps(
            {"expired": self.expired, "validUntil": self.valid_until_ms, "owner": self.owner}, separators=(",", ":")
        ).encode()

    def free(self, now_ms: int) -> bool:
        """Whether somebody else may take the lock."""
        return self.expired or now_ms > self.valid_until_ms + DRIFT_MS


def decode(data: bytes, where: str) -> Claim:
    """The content of a lock. FormatError for what nobody who speaks this protocol has written."""
    try:
        found = json.loads(data)
        return Claim(str(found["owner"]), int(found["validUntil"]), bool(found["expired"]))
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(
            f"{where}: not a lock of Hudi: {data[:100]!r}. Look what wrote it; without writers it may be removed."
        ) from error


@dataclass(slots=True)
class Held:
    """A lock that is ours, until `lost`."""

    storage: Tagged
    name: str
    path: str
    claim: Claim
    tag: str
    times: Times
    lost: str = ""
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _done: threading.Event = field(default_factory=threading.Event)

    def renew(self) -> None:
        """Make it valid for the whole time from now on, or know that it is lost. Errors of the store are raised."""
        with self._guard, beyond_budget():
            now = self.times.now_ms()
            if self.lost or self._done.is_set():
                return
            if self.claim.free(now):
                self.lost = "it could not be renewed in time"
                return
            claim = Claim(self.claim.owner, now + int(self.times.valid_s * 1000))
            tag = self.storage.put_if_match(self.path, claim.encode(), self.tag)
            if tag is None:
                self.lost = _holder(self.storage, self.path)
            else:
                self.claim, self.tag = claim, tag

    def require(self) -> None:
        """CommitConflict unless the lock is ours and stays it for a while yet."""
        left_ms = self.claim.valid_until_ms - self.times.now_ms()
        cause: Exception | None = None
        if not self.lost and left_ms < self.times.valid_s * 1000 / 2:
            try:
                self.renew()
            except Exception as error:
                cause = error
                left_ms = self.claim.valid_until_ms - self.times.now_ms()
                if left_ms < self.times.valid_s * 1000 / 4:
                    self.lost = f"it could not be renewed ({error})"
        if self.lost:
            raise CommitConflict(
                f"{self.storage.uri}: the lock '{self.name}' ({self.path}) was lost while it was held: {self.lost}. "
                "Nothing was committed. Write again."
            ) from cause

    def keep(self) -> None:
        """Renew until the lock is given back or lost. For a thread of its own."""
        while not self._done.wait(self.times.renew_s) and not self.lost:
            with suppress(Exception):  # tried again after the next interval, as long as the lock is valid
                self.renew()

    def give_back(self) -> None:
        """Let others take it; one that is lost is left to whoever has it.

        Errors of the store are not raised, as what was done within stands: others wait until the lock's time is over,
        this process takes it back at once.
        """
        self._done.set()
        with self._guard, beyond_budget():
            if self.lost or self.claim.free(self.times.now_ms()):
                return
            claim = Claim(self.claim.owner, self.claim.valid_until_ms, expired=True)
            tag = None
            with suppress(Exception):
                tag = self.storage.put_if_match(self.path, claim.encode(), self.tag)
            if tag is None:
                _leave(self.storage, self.path, self.claim.owner)
            _remember(self.storage, self.path, tag)


_held: ContextVar[tuple[Held, ...]] = ContextVar("lakesql_store_locks", default=())
_times: ContextVar[Times | None] = ContextVar("lakesql_lock_times", default=None)


@contextmanager
def timed(times: Times) -> Iterator[None]:
    """Within, locks go by these times unless they are given others."""
    token = _times.set(times)
    try:
        yield
    finally:
        _times.reset(token)


@contextmanager
def held(storage: Tagged, name: str, wait_s: float, times: Times | None = None) -> Iterator[Held]:
    """Hold the lock `name` of a storage's root against everybody who knows this protocol; not re-entrant.

    CommitConflict when it is not free within `wait_s` seconds. Unsupported when the store knows no conditions.
    """
    times = times or _times.get() or Times()
    path, deadline = path_of(name), time.monotonic() + wait_s
    with _here(storage, path, name, wait_s):
        lock = _acquired(storage, name, path, deadline, wait_s, times)
        threading.Thread(target=lock.keep, name=f"lakesql-lock-{name}", daemon=True).start()
        token = _held.set((*_held.get(), lock))
        try:
            yield lock
        finally:
            lock._done.set()
            try:
                lock.give_back()
            finally:
                _held.reset(token)


def require(uri: str) -> None:
    """CommitConflict when a lock of this root that is held around here is lost. Right before something is published."""
    for lock in _held.get():
        if lock.storage.uri == uri:
            lock.require()


def times_of(settings: Mapping[str, str]) -> Times:
    """The times that the settings of a table or a writer ask for; TableError for what they cannot be."""
    found = []
    for name, default in ((VALID_SETTING, VALID_S), (RENEW_SETTING, RENEW_S)):
        text = str(settings.get(name, default)).strip()
        if not text.isdigit() or not int(text):
            raise TableError(f"setting {name} = {text!r}: a number of seconds. Correct the value or RESET {name}.")
        found.append(int(text))
    if RENEW_SETTING not in settings:
        found[1] = min(found[1], max(1, found[0] // 10))
    return Times(found[0], found[1])


def _acquired(storage: Tagged, name: str, path: str, deadline: float, wait_s: float, times: Times) -> Held:
    owner, pause = str(uuid.uuid4()), _POLL_S[0]
    known = _recall(storage, path)
    while True:
        claim = Claim(owner, times.now_ms() + int(times.valid_s * 1000))
        if known is not None:
            # What we gave back ourselves is free for sure, as long as it is that.
            tag = storage.put_if_match(path, claim.encode(), known)
            known = None
        else:
            tag = _take(storage, path, claim, times)
        if tag is not None:
            return Held(storage, name, path, claim, tag, times)
        left = deadline - time.monotonic()
        if left <= 0:
            raise CommitConflict(
                f"{storage.uri}: lock '{name}' was not free within {wait_s:g} s; it is held by "
                f"{_holder(storage, path)}. Nothing was changed. Try again when the other writer is done."
            )
        times.sleep(min(left, pause * random.uniform(0.5, 1)))
        pause = min(pause * 2, _POLL_S[1])


def _take(storage: Tagged, path: str, claim: Claim, times: Times) -> str | None:
    """The tag of our claim; None when somebody else has the lock, or was faster."""
    found = storage.tagged(path)
    if found is None:
        return _made(storage, path, claim)
    data, tag = found
    there = decode(data, f"{storage.uri}/{path}")
    if not there.free(times.now_ms()) and not _is_left(storage, path, there.owner):
        return None
    return storage.put_if_match(path, claim.encode(), tag)


def _made(storage: Tagged, path: str, claim: Claim) -> str | None:
    """Make the object, and see once that the store keeps to conditions: some take them and pay no attention."""
    if not storage.put_if_absent(path, claim.encode()):
        return None
    found = storage.tagged(path)
    if found is None or decode(found[0], f"{storage.uri}/{path}").owner != claim.owner:
        return None
    tag = found[1]
    other = Claim(str(uuid.uuid4()), claim.valid_until_ms, expired=True).encode()
    if storage.put_if_absent(path, other) or storage.put_if_match(path, other, f'"{uuid.uuid4().hex}"') is not None:
        raise Unsupported(
            f"{storage.uri}: the store takes conditional puts and overwrites all the same, so two writers could both "
            "commit. Nothing was committed. Use a store that keeps to If-None-Match and If-Match, or pass a lock that all "
            "writers take: lakesql.connect(..., lock=...)."
        )
    return tag


def _holder(storage: Tagged, path: str) -> str:
    with suppress(Exception), beyond_budget():
        found = storage.tagged(path)
        if found is None:
            return "nobody: its object was removed"
        claim = decode(found[0], path)
        until = time.strftime("%H:%M:%S", time.gmtime(claim.valid_until_ms / 1000))
        return f"{claim.owner} until {until} UTC" + (", who gave it back" if claim.expired else "")
    return "another writer"


# ------------------------------------------------------------ threads of this process

_locks: dict[tuple[str, str], threading.Lock] = {}
_released: dict[tuple[str, str], str] = {}
"""The tag of what was given back."""
_left: dict[tuple[str, str], str] = {}
"""The owner of a lock that nobody here holds any more and that could not be given back."""
_guard = threading.Lock()
_RELEASED_MAX = 10_000


@contextmanager
def _here(storage: Tagged, path: str, name: str, wait_s: float) -> Iterator[None]:
    """Threads of this process line up without requests."""
    with _guard:
        lock = _locks.setdefault((storage.uri, path), threading.Lock())
    if not lock.acquire(timeout=wait_s):
        raise CommitConflict(
            f"{storage.uri}: lock '{name}' was not free within {wait_s:g} s; it is held by another thread of this "
            "process. Nothing was changed. Try again when the other writer is done."
        )
    try:
        yield
    finally:
        lock.release()


def _remember(storage: Tagged, path: str, tag: str | None) -> None:
    with _guard:
        _released.pop((storage.uri, path), None)
        if tag is not None:
            _released[storage.uri, path] = tag
            while len(_released) > _RELEASED_MAX:
                _released.pop(next(iter(_released)))


def _leave(storage: Tagged, path: str, owner: str) -> None:
    with _guard:
        _left[storage.uri, path] = owner
        while len(_left) > _RELEASED_MAX:
            _left.pop(next(iter(_left)))


def _is_left(storage: Tagged, path: str, owner: str) -> bool:
    with _guard:
        return _left.get((storage.uri, path)) == owner


def _recall(storage: Tagged, path: str) -> str | None:
    with _guard:
        return _released.pop((storage.uri, path), None)
