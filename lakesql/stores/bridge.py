"""DuckDB's way to objects: a file system in Python, once per database, under a scheme of its own.

`lakesql://<number of the storage>-s3/<bucket>/<key>` is what `ObjectStorage.data_path` gives; the scheme is nobody else's, so
httpfs, and whatever a person has registered, keep theirs. Names are taken as they are: no pattern, no look whether the
file is there, since plans name files that were listed.
"""

import threading
import weakref
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import duckdb
from fsspec import AbstractFileSystem

from lakesql.stores.base import SCHEME, addresses
from lakesql.stores.files import ObjectFile

Opener = Callable[[str], ObjectFile]

_openers: "weakref.WeakValueDictionary[int, Any]" = weakref.WeakValueDictionary()
_newest: "deque[Any]" = deque(maxlen=16)
"""A result that is read on outlives the connection's memory of its table."""
_guard = threading.RLock()


def known_as(number: int, storage: Any) -> None:
    """Let paths with this number be those of a storage, as long as it lives, and for a while after."""
    if number not in _openers:
        _openers[number] = storage
        _newest.append(storage)


def path_of(number: int, scheme: str, place: str) -> str:
    """What DuckDB calls an object."""
    return f"{SCHEME}://{number}-{scheme}/{place}"


class Bridge(AbstractFileSystem):  # type: ignore[misc]
    """The file system that DuckDB calls."""

    protocol = SCHEME
    cachable = False

    def open(self, path: str, mode: str = "rb", **_: Any) -> ObjectFile:
        if "r" not in mode:
            raise OSError(f"{path}: DuckDB does not write into object stores here; COPY TO a local file.")
        return self._file(path)

    def size(self, path: str) -> int:
        return self._file(path).size()

    def modified(self, path: str) -> datetime:
        return datetime.fromtimestamp(self._file(path).tail.modified_ms / 1000, UTC)

    def exists(self, path: str, **_: Any) -> bool:
        try:
            self._file(path).size()
        except FileNotFoundError:
            return False
        return True

    def isfile(self, path: str) -> bool:
        return self.exists(path)

    def isdir(self, path: str) -> bool:  # noqa: ARG002  there are no folders
        return False

    def glob(self, path: str, **_: Any) -> list[str]:
        return [path]

    def unstrip_protocol(self, name: str) -> str:
        return name if name.startswith(f"{SCHEME}://") else f"{SCHEME}://{name}"

    def _file(self, path: str) -> ObjectFile:
        head, _, inner = path.removeprefix(f"{SCHEME}://").partition("/")
        number = head.partition("-")[0]
        storage = _openers.get(int(number)) if number.isdigit() else None
        if storage is None:
            raise FileNotFoundError(
                f"No such file: {addresses(path)}, its table is not open any more. Run the statement again."
            )
        found: ObjectFile = storage.opened_by_key(inner.partition("/")[2])
        return found


def attach(con: duckdb.DuckDBPyConnection) -> None:
    """Give the database of a connection the file system, unless it has it."""
    if con.filesystem_is_registered(SCHEME):
        return
    with _guard:
        if not con.filesystem_is_registered(SCHEME):
            con.register_filesystem(Bridge())
