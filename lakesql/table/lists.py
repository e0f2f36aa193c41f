"""Long lists of files in SQL, by number instead of by text.

DuckDB takes thirty times as long to parse and bind a hundred thousand paths as literals as to get them from a function that
it calls while it binds. Connections that have that function (`sql.instance`) plan inside of `by_number`; everywhere else a
list is spelt out, and its text works on any connection. A number means its list as long as somebody holds what `by_number`
gave, or `held` by a caller further in; a thread that gives a text away holds its lists itself (`handed`).
"""

import threading
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from lakesql.errors import SQLError
from lakesql.table.names import literals

FUNCTION = "lakesql_files"
LONG = 100
"""Shorter lists are texts: people read them in what EXPLAIN shows."""
HANDED_MAX = 8
"""DuckDB binds a text before it asks the thread for the next one, so one would do for most statements."""


class FileList:
    """The paths behind a number."""

    __slots__ = ("__weakref__", "number", "paths")

    def __init__(self, number: int, paths: Sequence[str]) -> None:
        self.number = number
        self.paths = list(paths)


_lists: "weakref.WeakValueDictionary[int, FileList]" = weakref.WeakValueDictionary()
_lock = threading.Lock()
_thread = threading.local()
_last = 0


@contextmanager
def by_number() -> Iterator[list[FileList]]:
    """Within, long lists of this thread are calls of FUNCTION; what they mean, to be held while their text is in use."""
    outer = getattr(_thread, "made", None)
    made: list[FileList] = []
    _thread.made = made
    try:
        yield made
    finally:
        _thread.made = outer
        if outer is not None:
            outer += made


def numbered() -> bool:
    """Whether this thread's long lists are calls of FUNCTION."""
    return getattr(_thread, "made", None) is not None


@contextmanager
def spelt() -> Iterator[None]:
    """Within, every list of this thread is a text: for what is run while planning, on a connection without FUNCTION."""
    outer = getattr(_thread, "made", None)
    _thread.made = None
    try:
        yield
    finally:
        _thread.made = outer


def handed(lists: Sequence[FileList]) -> None:
    """Hold the lists of a text that this thread gives away until it has given away HANDED_MAX others.

    Nobody else has to: what a thread is about to bind lasts, whatever other threads close or forget.
    """
    if not lists:
        return
    if not hasattr(_thread, "handed"):
        _thread.handed = deque(maxlen=HANDED_MAX)
    _thread.handed.append(tuple(lists))


def held(lists: Sequence[FileList]) -> None:
    """Say that a text made before, with these lists, is used again."""
    _thread.made += lists


def list_sql(paths: Sequence[str]) -> str:
    """An expression for a list of paths."""
    made: list[FileList] | None = getattr(_thread, "made", None)
    if made is None or len(paths) < LONG:
        return literals(paths)
    global _last
    with _lock:
        _last += 1
        new = FileList(_last, paths)
        _lists[new.number] = new
    made.append(new)
    return f"{FUNCTION}({new.number})"


def paths_of(number: int) -> Sequence[str]:
    """The list of a number; SQLError when nobody holds it any more."""
    found = _lists.get(number)
    if found is None:
        raise SQLError("the files of this read are no longer known: its plan is too old. Run the statement again.")
    return found.paths
