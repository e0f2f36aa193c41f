"""The table's lock, and running a change again that lost against another writer.

A CommitConflict says that nothing was committed, so rows that can be computed again may be written again; so does a
FileGone: a clean beside took files of the state that the attempt began with. The first
attempt computes them before it waits for the lock, as every write does. Each further attempt holds the lock from before
it looks at the table, so that no lakesql writer can come between; writers of other engines do not know the lock.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from typing import TypeVar

from lakesql.errors import CommitConflict, FileGone, LakeError
from lakesql.stores.base import Storage
from lakesql.table.state import read_config
from lakesql.write.locks import table_lock
from lakesql.write.result import WriteResult
from lakesql.write.settings import parse_settings

Result = TypeVar("Result")

_held: ContextVar[frozenset[str]] = ContextVar("lakesql_locks_held", default=frozenset())


@contextmanager
def locked(
    storage: Storage,
    settings: Mapping[str, str],
    stored: Mapping[str, str] | None = None,
    wait_s: float | None = None,
) -> Iterator[None]:
    """The table's lock, unless `retried` holds it for this call already. CommitConflict when it does not get free.

    `settings` are the writer's, `stored` the table's own, which are read when they are not given. `wait_s`: instead of
    what the settings say.
    """
    if storage.uri in _held.get():
        yield
        return
    stored = _stored(storage) if stored is None else stored
    wait_s = parse_settings(settings).lock_wait_ms / 1000 if wait_s is None else wait_s
    with table_lock(storage, {**stored, **settings}, wait_s):
        token = _held.set(_held.get() | {storage.uri})
        try:
            yield
        finally:
            _held.reset(token)


def _stored(storage: Storage) -> Mapping[str, str]:
    """The table's properties; none where they are missing or damaged, which is for others to say."""
    with suppress(LakeError):
        return read_config(storage).properties
    return {}


def retried(
    storage: Storage,
    run: Callable[[], Result],
    limits: Callable[[], tuple[int, int]],
    settings: Callable[[], Mapping[str, str]] = dict,
) -> tuple[Result, int]:
    """What `run` gives, and how often it ran.

    `limits`, asked at the first conflict: the milliseconds since the beginning, and the number of further attempts,
    after which the last failure is raised. `settings`: the writer's, for the lock.
    """
    started = time.monotonic()
    try:
        return run(), 1
    except (CommitConflict, FileGone) as conflict:
        failure: CommitConflict | FileGone = conflict
        wait_ms, retries = limits()
    for attempt in range(2, retries + 2):
        left = started + wait_ms / 1000 - time.monotonic()
        if left <= 0:
            break
        try:
            with locked(storage, settings(), wait_s=left):
                return run(), attempt
        except (CommitConflict, FileGone) as conflict:
            failure = conflict
    raise failure


def with_attempts(result: WriteResult, attempts: int) -> WriteResult:
    """The result with a note when it took more than one attempt."""
    if attempts == 1:
        return result
    times = "once" if attempts == 2 else f"{attempts - 1} times"
    note = f"Run again {times}, because other writers changed the same file groups meanwhile."
    return replace(result, notes=(*result.notes, note))
