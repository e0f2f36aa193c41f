"""Bytes by path below one root: `open_storage`, and the local file system, whose files no other module opens.

A `Storage` reads ranges, lists folders and puts objects; nobody above it knows whether a path is a file or an object
of a bucket. Its promises (`stores.base`) are kept on a local disk by a temporary file in the same folder, moved
(`put`) or hard-linked (`put_if_absent`) to its name. Hadoop's checksum side files (`.NAME.crc`) are never shown, and a
stale one is removed before its file changes, because Hadoop refuses a file whose side file does not fit.
Data files are read and written at the paths that `data_path` and `sink` hand out.
Not here: object stores (`stores.objects`), caching, and anything that knows what a file means.
"""

import errno
import json
import os
import shutil
import socket
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from urllib.parse import unquote, urlsplit

from filelock import FileLock, Timeout

from lakesql.errors import CommitConflict, TableError, Unsupported
from lakesql.stores.base import (
    LOCK_FOLDER,
    TEMPORARY,
    FileInfo,
    Sink,
    Storage,
    checked,
    encodable,
    hidden_from_listings,
    lock_text,
    tag_of,
)

__all__ = ["LOCK_FOLDER", "TEMPORARY", "FileInfo", "LocalStorage", "MemoryStorage", "Sink", "Storage", "open_storage"]

MATCH_WAIT_S = 10
STORES = ("s3", "s3a", "gs", "az", "abfs", "abfss", "memory")
"""Schemes of object stores."""

_ADVICE = {
    errno.ENOSPC: "Make room on the disk",
    errno.EDQUOT: "Make room within the quota",
    errno.EACCES: "Check the permissions",
    errno.EPERM: "Check the permissions",
    errno.EROFS: "Choose a place that can be written to",
    errno.ELOOP: "Remove the symbolic link that leads back to itself",
    errno.EISDIR: "Remove the folder that stands where a file should be",
    errno.ENOTDIR: "Remove the file that stands where a folder should be",
    errno.EEXIST: "Remove the file that stands where a folder should be",
    errno.ENAMETOOLONG: "Choose a shorter path or partition value",
    errno.ENOENT: "Choose a place where folders can be made",
}


@contextmanager
def explained(path: str, doing: str, *passed: type[OSError]) -> Iterator[None]:
    """Within, an error of the operating system becomes a TableError with the path and advice, but for types `passed`."""
    try:
        yield
    except passed:
        raise
    except OSError as error:
        if error.errno is None:
            raise
        advice = _ADVICE.get(error.errno, "Check the file system")
        text = f"{path}: cannot be {doing}: {os.strerror(error.errno)}. {advice}, then try again."
        raise TableError(text) from error


def open_storage(uri: str | os.PathLike[str]) -> Storage:
    """The storage for a plain path, a file:// address or one of an object store; any other scheme raises Unsupported.

    TableError for what is no path, and for an object store when the client for it is not installed.
    """
    text = os.fspath(uri) if isinstance(uri, str | os.PathLike) else None
    if not isinstance(text, str):
        raise TableError(f"a path is a text or a pathlib.Path, found {type(uri).__name__}.")
    if not text.strip() or "\0" in text or not encodable(text):
        raise TableError(f"{text!r} is not a path: it is empty or has characters that no file name can have.")
    parts = urlsplit(text)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise Unsupported(f"{uri}: file:// addresses of another machine. Use a local path.")
        return LocalStorage(unquote(parts.path))
    # One letter before ':' is a drive, not a scheme.
    if "://" in text and parts.scheme in STORES:
        from lakesql.stores import objects as object_store  # only for those who have buckets

        return object_store.opened(text)
    if "://" in text and len(parts.scheme) > 1:
        raise Unsupported(
            f"{parts.scheme}://...: storage scheme '{parts.scheme}' is not supported. lakesql reads and writes local "
            f"paths and {', '.join(f'{scheme}://' for scheme in STORES)}; mount the file system, or copy the table."
        )
    return LocalStorage(text)


class _LocalSink(Sink):
    """A file that its writer opens by its path."""

    def __init__(self, path: str, target: str) -> None:
        self.path, self.target, self._done = path, target, False

    def close(self) -> int:
        self._done = True
        return Path(self.target).stat().st_size

    def abort(self) -> None:
        if not self._done:
            with suppress(OSError):
                Path(self.target).unlink(missing_ok=True)


class LocalStorage(Storage):
    """A folder of the local file system."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.uri = str(Path(root).expanduser().absolute()).rstrip("/") or "/"
        self.requests = Counter()

    def __repr__(self) -> str:
        return f"LocalStorage({self.uri!r})"

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        self.requests["read"] += 1
        full = Path(self._full(path))
        with explained(str(full), "read", FileNotFoundError, NotADirectoryError), full.open("rb") as file:
            if start:
                file.seek(start)
            return file.read() if length is None else file.read(length)

    def stat(self, path: str) -> FileInfo | None:
        self.requests["read"] += 1
        full = Path(self._full(path))
        try:
            with explained(str(full), "read", FileNotFoundError, NotADirectoryError), _loop_is_missing():
                found = full.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        if full.is_dir():
            return None
        return FileInfo(path, found.st_size, found.st_mtime_ns // 1_000_000)

    def list(self, folder: str) -> tuple[list[FileInfo], list[str]]:
        self.requests["list"] += 1
        prefix = f"{folder}/" if folder else ""
        files: list[FileInfo] = []
        folders: list[str] = []
        try:
            with explained(self._full(folder), "listed", FileNotFoundError, NotADirectoryError):
                entries = os.scandir(self._full(folder))
        except (FileNotFoundError, NotADirectoryError):
            return files, folders
        with entries:
            for entry in entries:
                # A file may vanish between the listing and its stat; then it is not there. Nor is a link to itself.
                try:
                    if entry.is_dir():
                        folders.append(entry.name)
                    elif not hidden_from_listings(entry.name):
                        found = entry.stat()
                        info = FileInfo(prefix + entry.name, found.st_size, found.st_mtime_ns // 1_000_000)
                        files.append(info)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    if error.errno != errno.ELOOP:
                        raise
        return sorted(files, key=lambda info: info.path), sorted(folders)

    def stamps(self, folders: Sequence[str]) -> Sequence[int | None]:
        self.requests["stamp"] += len(folders)
        return [_modified_ns(f"{self.uri}/{folder}") for folder in folders]

    def put(self, path: str, data: bytes) -> None:
        self.requests["put"] += 1
        target = Path(self._full(path))
        with explained(str(target), "written"):
            temporary = _write_temporary(target, data)
            try:
                _checksum_file(target).unlink(missing_ok=True)
                temporary.replace(target)
            finally:
                temporary.unlink(missing_ok=True)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self.requests["put"] += 1
        target = Path(self._full(path))
        with explained(str(target), "written"):
            if target.exists():
                return False
            temporary = _write_temporary(target, data)
            try:
                _checksum_file(target).unlink(missing_ok=True)
                return _link(temporary, target, data)
            finally:
                temporary.unlink(missing_ok=True)

    def delete(self, path: str) -> None:
        self.requests["delete"] += 1
        target = Path(self._full(path))
        with suppress(NotADirectoryError), explained(str(target), "removed", NotADirectoryError):
            _checksum_file(target).unlink(missing_ok=True)
            target.unlink(missing_ok=True)

    def delete_tree(self, folder: str) -> None:
        self.requests["delete"] += 1
        full = self._full(folder)
        with suppress(FileNotFoundError), explained(full, "removed", FileNotFoundError):
            shutil.rmtree(full)

    def data_path(self, path: str) -> str:
        return self._full(path)

    def put_if_match(self, path: str, data: bytes, tag: str) -> str | None:
        """Not atomic against writers that know nothing of the lock, which is a file beside those of `lock`."""
        with self.lock(f"{LOCK_FOLDER}/{path.replace('/', '-')}", MATCH_WAIT_S):
            found = self.tagged(path)
            if found is None or found[1] != tag:
                return None
            self.put(path, data)
            return tag_of(data)

    def sink(self, path: str) -> Sink:
        self.requests["put"] += 1
        target = Path(self._full(path))
        with explained(str(target), "written"):
            target.parent.mkdir(parents=True, exist_ok=True)
            _checksum_file(target).unlink(missing_ok=True)
        return _LocalSink(path, str(target))

    def rename(self, path: str, target: str) -> None:
        self.requests["put"] += 1
        full, final = Path(self._full(path)), Path(self._full(target))
        with explained(str(final), "written", FileNotFoundError):
            final.parent.mkdir(parents=True, exist_ok=True)
            _checksum_file(final).unlink(missing_ok=True)
            full.replace(final)

    @contextmanager
    def lock(self, name: str, wait_s: float) -> Iterator[None]:
        target = Path(self._full(f"{name}.lock" if "/" in name else f"{LOCK_FOLDER}/{name}.lock"))
        holder = target.with_name(target.name + ".holder")
        lock = FileLock(target)
        try:
            with explained(str(target), "locked"):
                target.parent.mkdir(parents=True, exist_ok=True)
                lock.acquire(timeout=wait_s)
        except Timeout:
            raise CommitConflict(lock_text(self.uri, name, wait_s, _holder_text(holder))) from None
        about = {"process": os.getpid(), "host": socket.gethostname(), "since": time.time()}
        try:
            with explained(str(holder), "written"):
                holder.write_text(json.dumps(about))
            yield
        finally:
            holder.unlink(missing_ok=True)
            lock.release()

    def _full(self, path: str) -> str:
        return f"{self.uri}/{checked(path, self.uri)}" if path else self.uri


class _MemorySink(Sink):
    def __init__(self, storage: "MemoryStorage", path: str) -> None:
        self.target = BytesIO()
        self._storage, self.path = storage, path

    def close(self) -> int:
        data = self.target.getvalue()
        self._storage.put(self.path, data)
        return len(data)

    def abort(self) -> None:
        self.target = BytesIO()


class MemoryStorage(Storage):
    """A dict of paths, for tests of everything that does not hand files to DuckDB."""

    def __init__(self, name: str = "memory", clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self.uri = f"memory://{name}"
        self.requests = Counter()
        self.files: dict[str, tuple[bytes, int]] = {}
        self._clock_ms = clock_ms
        self._guard = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        self.requests["read"] += 1
        if path not in self.files:
            raise FileNotFoundError(f"{self.uri}/{path}")
        data = self.files[path][0]
        return data[start:] if length is None else data[start : start + length]

    def stat(self, path: str) -> FileInfo | None:
        self.requests["read"] += 1
        found = self.files.get(path)
        return found and FileInfo(path, len(found[0]), found[1])

    def list(self, folder: str) -> tuple[list[FileInfo], list[str]]:
        self.requests["list"] += 1
        prefix = f"{folder}/" if folder else ""
        files: list[FileInfo] = []
        folders: set[str] = set()
        for path, (data, modified_ms) in sorted(self.files.items()):
            name, slash, _ = path.removeprefix(prefix).partition("/")
            if not path.startswith(prefix):
                continue
            if slash:
                folders.add(name)
            elif not hidden_from_listings(name):
                files.append(FileInfo(path, len(data), modified_ms))
        return files, sorted(folders)

    def put(self, path: str, data: bytes) -> None:
        self.requests["put"] += 1
        with self._guard:
            self._store(path, data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self.requests["put"] += 1
        with self._guard:
            if path in self.files:
                return False
            self._store(path, data)
            return True

    def delete(self, path: str) -> None:
        self.requests["delete"] += 1
        with self._guard:
            self.files.pop(path, None)
            self.files.pop(_checksum_path(path), None)

    def delete_tree(self, folder: str) -> None:
        self.requests["delete"] += 1
        prefix = f"{folder}/" if folder else ""
        with self._guard:
            self.files = {path: found for path, found in self.files.items() if not path.startswith(prefix)}

    def data_path(self, path: str) -> str:
        raise Unsupported(f"{self.uri}/{path}: DuckDB cannot open files of an in-memory storage. Use a local path.")

    def source(self, path: str) -> BytesIO:
        return BytesIO(self.read(path))

    def put_if_match(self, path: str, data: bytes, tag: str) -> str | None:
        self.requests["put"] += 1
        with self._guard:
            if path not in self.files or tag_of(self.files[path][0]) != tag:
                return None
            self._store(path, data)
            return tag_of(data)

    def sink(self, path: str) -> Sink:
        return _MemorySink(self, checked(path, self.uri))

    def rename(self, path: str, target: str) -> None:
        self.requests["put"] += 1
        with self._guard:
            if path not in self.files:
                raise FileNotFoundError(f"{self.uri}/{path}")
            self._store(target, self.files.pop(path)[0])

    @contextmanager
    def lock(self, name: str, wait_s: float) -> Iterator[None]:
        with self._guard:
            lock = self._locks.setdefault(name, threading.Lock())
        if not lock.acquire(timeout=wait_s):
            raise CommitConflict(lock_text(self.uri, name, wait_s, "another thread of this process"))
        try:
            yield
        finally:
            lock.release()

    def _store(self, path: str, data: bytes) -> None:
        self.files.pop(_checksum_path(path), None)
        self.files[checked(path, self.uri)] = (bytes(data), self._clock_ms())


def _modified_ns(path: str) -> int | None:
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116  a Path costs more than the call
    except OSError:
        return None


@contextmanager
def _loop_is_missing() -> Iterator[None]:
    """A symbolic link that leads back to itself leads to no file."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise FileNotFoundError(str(error)) from error
        raise


def _checksum_path(path: str) -> str:
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}.{name}.crc"


def _checksum_file(target: Path) -> Path:
    return target.with_name(f".{target.name}.crc")


def _write_temporary(target: Path, data: bytes) -> Path:
    """`data` in a file beside `target` whose name no Hudi parser accepts; the caller moves or removes it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}{TEMPORARY}{uuid.uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            if data:
                # An empty completed commit reads as one without changes, so after a power cut the name must not
                # exist without its content. Empty files have no content to lose.
                file.flush()
                os.fsync(file.fileno())
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _link(temporary: Path, target: Path, data: bytes) -> bool:
    """Give `temporary` its second name; False when the name is taken."""
    try:
        target.hardlink_to(temporary)
    except FileExistsError:
        return False
    except OSError:
        # No hard links here (FAT, some network mounts). Exclusive creation still lets one writer win; only a crash
        # between the two lines below could leave a part of the file.
        return _create_exclusively(target, data)
    return True


def _create_exclusively(target: Path, data: bytes) -> bool:
    try:
        descriptor = os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
    except FileExistsError:
        return False
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    return True


def _holder_text(holder: Path) -> str:
    try:
        found = json.loads(holder.read_text())
        held_s = max(0.0, time.time() - float(found["since"]))
        return f"process {found['process']} on {found['host']} for {held_s:.0f} s"
    except (OSError, ValueError, KeyError, TypeError):
        return "another writer"
