"""A storage that dies at a chosen call, for crash tests.

`FaultyStorage(inner, fail_at=n, how=...)` counts the calls whose kind is in `kinds` and raises `FaultError` at
number n (from 1): before the call reaches the storage, after it succeeded (the answer is lost), or torn (what a
process killed in the middle of it leaves behind: a temporary file beside the target, or the first bytes of a data
file). From then on the process is dead: every further call fails too, so no clean-up code can help. With
`dead=False` only that one call fails, as with a network error.
`calls` lists what was asked for, so a test can find out how many faults there are to inject: run once with fail_at=0.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lakesql.storage import TEMPORARY, FileInfo, Sink, Storage

HOW = ("before", "after", "torn")


class FaultError(OSError):
    """The fault a test asked for."""


class FaultyStorage(Storage):
    def __init__(
        self,
        inner: Storage,
        fail_at: int,
        how: str = "before",
        *,
        kinds: Collection[str] = ("read", "list", "put", "delete"),
        dead: bool = True,
    ) -> None:
        assert how in HOW, how
        self.inner = inner
        self.uri = inner.uri
        self.requests = inner.requests
        self.fail_at = fail_at
        self.how = how
        self.kinds = kinds
        self.dead = dead
        self.calls: list[tuple[str, str]] = []
        self.failed = False

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        with self._call("read", path):
            return self.inner.read(path, start, length)

    def stat(self, path: str) -> FileInfo | None:
        with self._call("read", path):
            return self.inner.stat(path)

    def list(self, folder: str) -> tuple[list[FileInfo], list[str]]:
        with self._call("list", folder):
            return self.inner.list(folder)

    def put(self, path: str, data: bytes) -> None:
        with self._call("put", path, data):
            self.inner.put(path, data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        with self._call("put", path, data):
            return self.inner.put_if_absent(path, data)

    def delete(self, path: str) -> None:
        with self._call("delete", path):
            self.inner.delete(path)

    def delete_tree(self, folder: str) -> None:
        with self._call("delete", folder):
            self.inner.delete_tree(folder)

    def data_path(self, path: str) -> str:
        return self.inner.data_path(path)

    def put_if_match(self, path: str, data: bytes, tag: str) -> str | None:
        with self._call("put", path, data):
            return self.inner.put_if_match(path, data, tag)

    def source(self, path: str) -> Any:
        return self.inner.source(path)

    def sink(self, path: str) -> Sink:
        with self._call("put", path, create=True):
            return _FaultySink(self, self.inner.sink(path))

    def rename(self, path: str, target: str) -> None:
        with self._call("put", target):
            self.inner.rename(path, target)

    @contextmanager
    def lock(self, name: str, wait_s: float) -> Iterator[None]:
        # The operating system frees the lock of a dead process, so it is passed on as it is.
        with self.inner.lock(name, wait_s):
            yield

    @contextmanager
    def _call(self, kind: str, path: str, data: bytes = b"", *, create: bool = False) -> Iterator[None]:
        if self.failed and self.dead:
            raise FaultError(f"{kind} {path}: the process is dead")
        due = False
        if kind in self.kinds:
            self.calls.append((kind, path))
            due = len(self.calls) == self.fail_at
        if due:
            self.failed = True
            if self.how == "torn":
                self._tear(path, data, create=create)
        if due and self.how != "after":
            raise FaultError(f"{kind} {path}: fault {self.how} call {self.fail_at}")
        yield
        if due:
            raise FaultError(f"{kind} {path}: fault after call {self.fail_at}")

    def _tear(self, path: str, data: bytes, *, create: bool) -> None:
        if create:
            Path(self.inner.sink(path).target).write_bytes(b"PAR1")
        elif data:
            folder, slash, name = path.rpartition("/")
            self.inner.put(f"{folder}{slash}.{name}{TEMPORARY}torn", data[: len(data) // 2])


class _FaultySink(Sink):
    """A file under way; a dead process does not take it away."""

    def __init__(self, storage: FaultyStorage, inner: Sink) -> None:
        self._storage, self._inner, self.path, self.target = storage, inner, inner.path, inner.target

    def close(self) -> int:
        return self._inner.close()

    def abort(self) -> None:
        if not (self._storage.failed and self._storage.dead):
            self._inner.abort()
