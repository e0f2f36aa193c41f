"""The protocol of all storages: bytes by path below one root, and the names that every storage keeps to.

Paths are relative to the root and separated by '/'. The two promises Hudi's timeline rests on (hudi-format 2.11) are
promises of the protocol: a name appears with its whole content or not at all, and of two writers that create one name
exactly one wins. `storage` has the local file system and `open_storage`, `stores.objects` the buckets.
"""

import hashlib
import os
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from lakesql.errors import TableError
from lakesql.stores.lock_object import LockObject

if TYPE_CHECKING:
    import duckdb

T = TypeVar("T")

LOCK_FOLDER = ".hoodie/.locks"
SCHEME = "lakesql"
"""Of the paths of objects in DuckDB: `lakesql://NUMBER-s3/bucket/key`."""
TABLE_LOCK = "lakesql"
"""The name of a table's lock."""
TEMPORARY = ".lakesql-tmp-"


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One stored file. `path` is relative to the storage root."""

    path: str
    size_bytes: int
    modified_ms: int
    etag: str | None = field(default=None, kw_only=True)
    """What an object store calls this content; None where nobody says."""


class Sink(ABC):
    """A new data file on its way: nothing of it is there before `close`, or it has no name that counts yet."""

    path: str
    """Where the file will be, relative to the root."""
    target: Any
    """What writers write to: a path of the local file system (str), or a binary file."""

    @abstractmethod
    def close(self) -> int:
        """Make the file visible, whole; its size in bytes. A path's writer, or the binary file, is done before."""

    @abstractmethod
    def abort(self) -> None:
        """Leave nothing of the file; after `close` it does nothing. Never raises."""


class Storage(ABC):
    """The one protocol of the package; `requests` counts the calls by kind: read, list, stamp, put, delete."""

    uri: str
    """Absolute path (or name) of the root, without a trailing slash."""
    requests: Counter[str]
    remote = False
    """Whether each request goes over a network, and DuckDB opens files after `attach` only."""
    bytes_read = bytes_written = 0
    """Counted by object stores."""
    conditional = True
    """Whether `put_if_absent` and `put_if_match` let one writer win; False on a store that said it knows no conditions."""
    lock_object: LockObject | None = None
    """The lock that the person supplies for this root (`write.locks`)."""
    looked: object = None
    """What `table.listing` has seen here: it goes when the storage goes."""
    configured: Any = None
    """The properties that `table.sight` has read here, with their tag."""

    @abstractmethod
    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """The bytes from `start` on, at most `length`. FileNotFoundError when the file is missing."""

    @abstractmethod
    def stat(self, path: str) -> FileInfo | None:
        """Size and time of a file; None when there is no file of that name (a folder is no file)."""

    @abstractmethod
    def list(self, folder: str) -> tuple[list[FileInfo], list[str]]:
        """Files directly in `folder` and the names of its sub-folders, both sorted; a missing folder is empty."""

    def stamps(self, folders: Sequence[str]) -> Sequence[int | None]:
        """Of each folder a number that changes whenever a name in it appears or goes; None where nobody can tell.

        Where it is a time, it is one in nanoseconds since the epoch.
        """
        return [None] * len(folders)

    @abstractmethod
    def put(self, path: str, data: bytes) -> None:
        """Write or replace a file atomically; folders on the way are made."""

    @abstractmethod
    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Write a new file atomically; False (and nothing changed) when the name is taken."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Remove a file and its checksum side file; a missing one is fine."""

    def delete_all(self, paths: Sequence[str]) -> None:
        """Remove files, in as few requests as there can be; missing ones are fine."""
        for path in paths:
            self.delete(path)

    @abstractmethod
    def delete_tree(self, folder: str) -> None:
        """Remove a folder with everything below it; a missing one is fine."""

    def tagged(self, path: str) -> tuple[bytes, str] | None:
        """A file and the tag of this content, for `put_if_match`; None when there is none."""
        try:
            data = self.read(path)
        except FileNotFoundError:
            return None
        return data, tag_of(data)

    @abstractmethod
    def put_if_match(self, path: str, data: bytes, tag: str) -> str | None:
        """Replace a file whose content still has this tag; the new tag, or None (and nothing changed) when it has not."""

    def tag_of_written(self, path: str) -> str | None:
        """The tag that the answer to our put gave for a file; None where answers have none."""
        del path
        return None

    @abstractmethod
    def data_path(self, path: str) -> str:
        """What DuckDB opens to read this file, after `attach`."""

    def attach(self, con: "duckdb.DuckDBPyConnection") -> None:  # noqa: B027  most need nothing
        """Make the database of a connection able to open what `data_path` gives."""

    def source(self, path: str) -> Any:
        """What the readers of pyarrow open: a path of the local file system, or a seekable binary file."""
        return self.data_path(path)

    @abstractmethod
    def sink(self, path: str) -> Sink:
        """A new data file; folders on the way are made. Whatever stood there is replaced when it is closed, or before."""

    @abstractmethod
    def rename(self, path: str, target: str) -> None:
        """Move a file to another name of this root, replacing what is there; folders on the way are made.

        FileNotFoundError when there is no such file.
        """

    @abstractmethod
    def lock(self, name: str, wait_s: float) -> AbstractContextManager[None]:
        """Hold the lock `name` of this root against all threads and processes of the machine, not re-entrant.

        A name with a '/' is a path of its own, others lie in LOCK_FOLDER. CommitConflict when it is not free within
        `wait_s` seconds.
        """

    def walk(self, folder: str, skip: Callable[[str], bool] = lambda _: False) -> Iterator[FileInfo]:
        """All files below `folder`, one listing per sub-folder; `skip(path of a folder)` leaves that folder out."""
        waiting = [folder]
        while waiting:
            current = waiting.pop()
            files, folders = self.list(current)
            yield from files
            paths = (join(current, name) for name in reversed(folders))
            waiting.extend(path for path in paths if not skip(path))

    def expect(self, paths: Sequence[str]) -> None:  # noqa: B027  a disk is fast enough
        """Some of these files will be read, in this order."""

    def together(self, *calls: Callable[[], T]) -> Sequence[T]:
        """The answers of calls that do not need each other: at the same time where each takes a way over a network."""
        return [call() for call in calls]

    def listed(self, folder: str, skip: Callable[[str], bool] = lambda _: False) -> Sequence[FileInfo]:
        """All files below `folder`, in the cheapest way there is; a folder that `skip` names may be left out."""
        return tuple(self.walk(folder, skip))


def addresses(text: str) -> str:
    """A text of DuckDB's with the addresses of objects as people know them."""
    return re.sub(rf"{SCHEME}://\d+-(\w+)/", r"\1://", text)


def join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def checked(path: str, uri: str) -> str:
    """A path from a commit may hold '..' (hudi-rs writes such partitions); following it would leave the table."""
    if "\0" in path or not encodable(path):
        raise TableError(f"{uri}: {path!r} cannot be a path: it has a character that no file name can have.")
    if path.startswith("/") or ".." in path.split("/"):
        raise TableError(f"{uri}: the path '{path}' does not stay inside the table. Nothing was read or written there.")
    return path


def hidden_from_listings(name: str) -> bool:
    """Whether a file of that name is never shown. Folders are: a partition may have any name."""
    return name.endswith(".crc") or (name.startswith(".") and TEMPORARY in name)


def lock_text(uri: str, name: str, wait_s: float, holder: str) -> str:
    return (
        f"{uri}: lock '{name}' was not free within {wait_s:g} s; it is held by {holder}. "
        "Nothing was changed. Try again when the other writer is done."
    )


def encodable(path: str) -> bool:
    try:
        os.fsencode(path).decode()
    except UnicodeError:
        return False
    return True


def tag_of(data: bytes) -> str:
    """A tag of a content, for storages that have none of their own."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()
