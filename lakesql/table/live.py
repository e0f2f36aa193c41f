"""Which files results of this process may still open, so that a clean in this process leaves them alone.

DuckDB opens the files of a query one by one while the result is read, perhaps long after the plan was made. Whoever
hands out such a result makes its plan inside of `noted` and keeps what that gives for as long as the result may be read
on; nothing has to be closed, a note counts while somebody refers to it and at most for HELD_S. Plans made outside of
`noted` are read at once. Readers in other processes are not seen here.
"""

import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

HELD_S = 3600.0


class Held:
    """The files of one plan, paths relative to the table at `uri`."""

    __slots__ = ("__weakref__", "paths", "since", "uri")

    def __init__(self, uri: str, paths: frozenset[str]) -> None:
        self.uri = uri
        self.paths = paths
        self.since = time.monotonic()


_held: "weakref.WeakSet[Held]" = weakref.WeakSet()
_lock = threading.Lock()
_thread = threading.local()


@contextmanager
def noted() -> Iterator[list[Held]]:
    """Within, every plan this thread turns into a query adds its files to the list."""
    outer = getattr(_thread, "notes", None)
    notes: list[Held] = []
    _thread.notes = notes
    try:
        yield notes
    finally:
        _thread.notes = outer


@contextmanager
def kept() -> Iterator[None]:
    """Within, the files of every plan of this thread count as open: for a statement that reads what it plans."""
    with noted() as notes:
        try:
            yield
        finally:
            notes.clear()


def note(uri: str, paths: Iterable[str]) -> None:
    """Say which files a plan reads; forgotten at once outside of `noted`."""
    notes = getattr(_thread, "notes", None)
    if notes is None:
        return
    held = Held(uri, frozenset(paths))  # of a frozenset the same one
    notes.append(held)
    with _lock:
        _held.add(held)


def files(uri: str) -> frozenset[str]:
    """The paths below `uri` that somebody in this process may still open."""
    oldest = time.monotonic() - HELD_S
    with _lock:
        return frozenset(p for held in _held if held.uri == uri and held.since >= oldest for p in held.paths)
