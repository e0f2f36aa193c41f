"""Buckets as storages: S3, Google Cloud Storage, Azure and the memory of this process, through obstore.

A name appears with its whole content, or not at all, because that is what a PUT is; of two writers that create one name
exactly one wins, because the PUT is conditional (`If-None-Match: *`). There are no folders: a folder is what names have
in common. Every request goes through `ObjectStorage._call`, which knows its kind and counts it.

Not here: what a request does when it fails (`stores.calls`), the lock (`stores.lock`), who may (`stores.settings`).
"""

import functools
import itertools
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from lakesql.errors import TableError, Unsupported
from lakesql.stores import lock as store_lock
from lakesql.stores.base import TABLE_LOCK, FileInfo, Sink, Storage, checked, hidden_from_listings
from lakesql.stores.calls import MARK, Calls, in_context, is_unknown_to_store
from lakesql.stores.files import PART_BYTES, TAIL_BYTES, WHOLE_BYTES, Ahead, ObjectFile, ObjectSink, Tail, Tails
from lakesql.stores.lock_object import current, entered
from lakesql.stores.settings import Access, access

if TYPE_CHECKING:
    import duckdb

try:
    import obstore
    from obstore import exceptions
    from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store
except ImportError as _error:
    raise TableError(
        "Object stores (s3://, gs://, az://) need the extra 'cloud', which is not installed. "
        "Install it: pip install 'lakesql[cloud]'."
    ) from _error

from lakesql.stores.errors import BehindTheEndError, first_line, is_refusal, told

T = TypeVar("T")

PAGE = 1000
"""Names that a request for a listing, or for removing, has at most."""
NO_RETRIES = {"max_retries": 0}
"""The client's own retries would hide that an answer was lost: `stores.calls` has them."""
PART_REQUESTS = 4
"""Parts of one file under way at a time."""

AT_ONCE = 32
"""Requests of `together` under way at a time."""

_POOL = "lakesql-requests"
_numbers = itertools.count(1)
_tails = Tails()


@dataclass(frozen=True, slots=True)
class Place:
    """An address taken apart."""

    scheme: str  # s3, gs, az, memory
    bucket: str
    prefix: str
    account: str = ""

    @property
    def root(self) -> str:
        return f"{self.scheme}://{self.bucket}"

    @property
    def uri(self) -> str:
        return f"{self.root}/{self.prefix}" if self.prefix else self.root


def place_of(address: str) -> Place:
    """An address taken apart; TableError for one with a key in it, whose text is not repeated."""
    scheme, _, rest = address.partition("://")
    host, _, path = rest.partition("/")
    account = ""
    if scheme in ("abfs", "abfss") and "@" in host and ":" not in host:
        host, _, account = host.partition("@")
        account = account.partition(".")[0]
    if "@" in host or "?" in rest:
        raise TableError(
            f"{scheme}://...: an address names a bucket and a path and nothing else; credentials come from the "
            "environment, a profile or CREATE SECRET. Leave the key out of the address, and replace it: it may have "
            "been logged."
        )
    parts = [part for part in path.split("/") if part]
    if not host or ".." in parts or "." in parts:
        raise TableError(f"{scheme}://{host}/{path}: not an address of the form {scheme}://bucket/path.")
    plain = {"s3a": "s3", "abfs": "az", "abfss": "az"}.get(scheme, scheme)
    return Place(plain, host, "/".join(parts), account)


@dataclass(frozen=True, slots=True, eq=False)
class Bucket:
    """A client, shared by all storages of one bucket."""

    name: str
    client: Any
    parts: Any
    """The client of uploads by parts, whose requests may be repeated blindly."""


_buckets: dict[str, Bucket] = {}
_buckets_guard = threading.Lock()


def opened(address: str) -> "ObjectStorage":
    """The storage for an address of an object store."""
    place = place_of(address)
    found = access(place.scheme, place.bucket, place.uri, place.account)
    name = f"{place.root}#{found.identity}"
    with _buckets_guard:
        bucket = _buckets.get(name)
        if bucket is None:
            client = _client(place, found, NO_RETRIES)
            parts = client if place.scheme == "memory" else _client(place, found)
            bucket = _buckets[name] = Bucket(name, client, parts)
    return ObjectStorage(place, bucket)


def _client(place: Place, found: Access, retry: Any = None) -> Any:
    if place.scheme == "memory":
        return MemoryStore()
    kinds: dict[str, Any] = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
    given: dict[str, Any] = {"config": dict(found.config) or None, "client_options": dict(found.options) or None}
    if found.provider is not None:
        given["credential_provider"] = found.provider
    try:
        return kinds[place.scheme](place.bucket, retry_config=retry, **given)
    except (exceptions.BaseError, ValueError) as error:
        raise TableError(f"{place.root}: no client can be made for it: {first_line(error)}") from None


class ObjectStorage(Storage):
    """What lies below a prefix of a bucket."""

    remote = True

    def __init__(self, place: Place, bucket: Bucket) -> None:
        self.uri = place.uri
        self.requests: Counter[str] = Counter()
        self.bytes_read = self.bytes_written = 0
        self._place, self._bucket = place, bucket
        self._number = next(_numbers)
        self._known: dict[str, FileInfo] = {}
        self._written: tuple[str, str | None] = ("", None)
        self._flights: dict[str, Future[Tail]] = {}
        self._ahead = Ahead(self._fetched_tail, lambda fetch, path: _pool().submit(in_context(fetch), path))
        self._guard = threading.Lock()
        self._asked = False
        self._calls = Calls(self.uri, lambda kind: self._count(kind, 1))

    def __repr__(self) -> str:
        return f"ObjectStorage({self.uri!r})"

    # ------------------------------------------------------------ requests

    def _call(self, kind: str, path: str, function: Callable[[], T]) -> T:
        """Every request: `kind` is get, head, list, create, match, put, part, delete or copy."""
        with told(f"{self.uri}/{path}" if path else self.uri, kind):
            return self._calls.run(kind, path, function)

    def _conditionally(self, kind: str, path: str, data: bytes, mode: Any) -> str | None:
        """Put an object under a condition: its tag, None when the condition does not hold."""
        key, client = self._key(path), self._bucket.client

        def put(attributes: dict[str, str]) -> str:
            return str(obstore.put(client, key, data, mode=mode, attributes=attributes)["e_tag"])

        def found() -> tuple[str | None, str] | None:
            with suppress(FileNotFoundError):
                there = self._call("get", path, lambda: obstore.get(client, key))
                return there.attributes.get(MARK), str(there.meta["e_tag"])
            return None

        with told(f"{self.uri}/{path}", kind):
            try:
                made = self._calls.conditionally(kind, path, put, is_refusal, found)
            except FileNotFoundError as error:
                if kind == "match":
                    return None  # the object is gone
                raise TableError(
                    f"{self.uri}: there is no bucket of that name. Make it, or correct the address."
                ) from error
            except Exception as error:
                if is_unknown_to_store(error):
                    self.conditional = False
                    raise Unsupported(
                        f"{self.uri}: the store has no conditional puts, so two writers could both commit. Nothing was "
                        "committed. Pass a lock that all writers take, lakesql.connect(..., lock=...), or use another store."
                    ) from error
                raise
        if made is not None:
            self._wrote(path, data)
        return made

    def _count(self, kind: str, number: int) -> None:
        with self._guard:
            self.requests[kind] += number

    def _read_bytes(self, number: int) -> None:
        self._calls.read_bytes(number)
        with self._guard:
            self.bytes_read += number

    def _wrote_bytes(self, number: int) -> None:
        self._calls.wrote_bytes(number)
        with self._guard:
            self.bytes_written += number

    def _key(self, path: str) -> str:
        inner = checked(path, self.uri)
        if any(character < " " or character == "\x7f" for character in path) or "//" in path or path.endswith("/"):
            raise TableError(f"{self.uri}: {path!r} cannot be a name of an object: it has a control character or '//'.")
        return f"{self._place.prefix}/{inner}".strip("/")

    def _path(self, key: str) -> str:
        return key.removeprefix(f"{self._place.prefix}/") if self._place.prefix else key

    # ------------------------------------------------------------ reading

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        key = self._key(path)
        if length is not None and length <= 0:
            return b""

        def get() -> bytes:
            if not start and length is None:
                return bytes(obstore.get(self._bucket.client, key).bytes())
            wanted: Any = {"offset": start} if length is None else (start, start + length)
            return bytes(obstore.get(self._bucket.client, key, options={"range": wanted}).bytes())

        try:
            data = self._call("get", path, get)
        except BehindTheEndError:
            return b""
        self._read_bytes(len(data))
        return data

    def tagged(self, path: str) -> tuple[bytes, str] | None:
        key = self._key(path)

        def get() -> tuple[bytes, str]:
            found = obstore.get(self._bucket.client, key)
            return bytes(found.bytes()), found.meta["e_tag"] or ""

        try:
            data, tag = self._call("get", path, get)
        except FileNotFoundError:
            return None
        self._read_bytes(len(data))
        return data, tag

    def stat(self, path: str) -> FileInfo | None:
        key = self._key(path)
        try:
            return self._info(self._call("head", path, lambda: obstore.head(self._bucket.client, key)))
        except FileNotFoundError:
            return None

    def list(self, folder: str) -> tuple[list[FileInfo], list[str]]:
        prefix = self._key(folder) if folder else self._place.prefix
        found = self._call("list", folder, lambda: obstore.list_with_delimiter(self._bucket.client, prefix or None))
        names = [str(name).rstrip("/").rpartition("/")[2] for name in found["common_prefixes"]]
        self._count("list", (len(names) + len(found["objects"])) // PAGE)
        taken = set(names)
        files = [self._info(one) for one in found["objects"] if one["path"] != prefix]
        files = [f for f in files if not _is_marker(f, taken) and not hidden_from_listings(f.path.rpartition("/")[2])]
        self._note(files)
        return sorted(files, key=lambda info: info.path), sorted(names)

    def listed(self, folder: str, skip: Callable[[str], bool] = lambda _: False) -> Sequence[FileInfo]:
        infos: list[FileInfo] = []
        folders: dict[str, bool] = {}  # -> whether it is left out
        after: str | None = None
        while True:
            page, more = self._page(folder, after)
            for info in page:
                above = list(_parents(info.path))
                for one in above:
                    if one not in folders:
                        folders[one] = skip(one)
                if not any(folders[one] for one in above):
                    infos.append(info)
            if not more or not page:
                break
            last = page[-1].path
            left_out = next((one for one in reversed(list(_parents(last))) if folders[one]), None)
            # '0' is what comes after '/': all names of a folder that is left out are jumped over.
            after = f"{left_out}0" if left_out is not None else last
        files = [f for f in infos if f.path not in folders and not hidden_from_listings(f.path.rpartition("/")[2])]
        self._note(files)
        return files

    def _page(self, folder: str, after: str | None = None) -> tuple[Sequence[FileInfo], bool]:
        """The first PAGE objects below a folder, by name, and whether there may be more; `after`: those greater than that."""
        prefix = self._key(folder) if folder else self._place.prefix
        offset = None if after is None else f"{self._place.prefix}/{after}".lstrip("/")

        def get() -> Any:
            return next(iter(obstore.list(self._bucket.client, prefix or None, offset=offset, chunk_size=PAGE)), [])

        found = self._call("list", folder, get)
        # An object of the folder's own name stands for the folder.
        infos = [self._info(one) for one in found if one["path"] != prefix]
        return sorted(infos, key=lambda info: info.path), len(found) == PAGE

    def _info(self, meta: Any) -> FileInfo:
        return FileInfo(self._path(meta["path"]), meta["size"], _milliseconds(meta), etag=meta["e_tag"])

    def _note(self, files: Sequence[FileInfo]) -> None:
        with self._guard:
            self._known.update((file.path, file) for file in files)

    def together(self, *calls: Callable[[], T]) -> Sequence[T]:
        if len(calls) < 2 or threading.current_thread().name.startswith(_POOL):
            return [call() for call in calls]
        return list(_pool().map(in_context(lambda call: call()), calls))

    # ------------------------------------------------------------ writing

    def put(self, path: str, data: bytes) -> None:
        key = self._key(path)
        self._call("put", path, lambda: obstore.put(self._bucket.client, key, data, use_multipart=False))
        self._wrote(path, data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        if self.conditional:
            try:
                tag = self._conditionally("create", path, data, "create")
            except Unsupported:
                if (self.lock_object or current()) is None:
                    raise
            else:
                self._written = path, tag
                return tag is not None
        # Under the lock of the person nobody else writes here.
        if self.stat(path) is not None:
            return False
        self.put(path, data)
        return True

    def put_if_match(self, path: str, data: bytes, tag: str) -> str | None:
        if self.conditional:
            return self._conditionally("match", path, data, {"e_tag": tag})
        found = self.tagged(path)
        if found is None or found[1] != tag:
            return None
        self.put(path, data)
        found = self.tagged(path)
        return found and found[1]

    def tag_of_written(self, path: str) -> str | None:
        last, tag = self._written
        return tag or None if last == path else None

    def _wrote(self, path: str, data: bytes) -> None:
        self._wrote_bytes(len(data))
        with self._guard:
            self._known.pop(path, None)

    def sink(self, path: str) -> Sink:
        self._key(path)
        return ObjectSink(path, lambda data: self.put(path, data), lambda: _Upload(self, path))

    def delete(self, path: str) -> None:
        key = self._key(path)
        with suppress(FileNotFoundError):
            self._call("delete", path, lambda: obstore.delete(self._bucket.client, key))
        with self._guard:
            self._known.pop(path, None)

    def delete_all(self, paths: Sequence[str]) -> None:
        self._remove([self._key(path) for path in paths], paths[0] if paths else "")
        with self._guard:
            for path in paths:
                self._known.pop(path, None)

    def _remove(self, keys: Sequence[str], where: str) -> None:
        for at in range(0, len(keys), PAGE):
            page = list(keys[at : at + PAGE])
            with suppress(FileNotFoundError):
                self._call("delete", where, partial(obstore.delete, self._bucket.client, page))

    def delete_tree(self, folder: str) -> None:
        self._remove([self._key(info.path) for info in self._everything(folder)], folder)
        with self._guard:
            self._known = {p: f for p, f in self._known.items() if not p.startswith(f"{folder}/" if folder else "")}

    def _everything(self, folder: str) -> Iterator[FileInfo]:
        """All objects below a folder, hidden ones too."""
        after, more = None, True
        while more:
            page, more = self._page(folder, after)
            yield from page
            after = page[-1].path if page else after

    def rename(self, path: str, target: str) -> None:
        key, final = self._key(path), self._key(target)
        self._call("copy", target, lambda: obstore.copy(self._bucket.client, key, final, overwrite=True))
        self.delete(path)
        with self._guard:
            self._known.pop(target, None)

    # ------------------------------------------------------------ data files

    def data_path(self, path: str) -> str:
        from lakesql.stores import bridge as object_bridge

        object_bridge.known_as(self._number, self)
        return object_bridge.path_of(self._number, self._place.scheme, f"{self._place.bucket}/{self._key(path)}")

    def attach(self, con: "duckdb.DuckDBPyConnection") -> None:
        from lakesql.stores import bridge as object_bridge

        object_bridge.attach(con)

    def source(self, path: str) -> ObjectFile:
        self._key(path)
        return ObjectFile(self, path)

    def opened_by_key(self, key: str) -> ObjectFile:
        """For the bridge, which knows keys, and whose threads do not know for which statement they read."""
        return ObjectFile(_ForLast(self), self._path(key))

    def expect(self, paths: Sequence[str]) -> None:
        if len(paths) > 1:
            self._ahead.expect(paths)

    def tail(self, path: str) -> Tail:
        """The last bytes of a file, from what is kept when the object is the one that was listed."""
        kept = self._kept_tail(path)
        self._ahead.touched(path)
        return kept or self._fetched_tail(path)

    def _kept_tail(self, path: str) -> Tail | None:
        known = self._known.get(path)
        if known is None or known.etag is None:
            return None
        return _tails.find(self._bucket.name, self._key(path), known.etag)

    def _fetched_tail(self, path: str) -> Tail:
        """As `tail`; who comes while somebody fetches it waits for that one's answer."""
        with self._guard:
            flight = self._flights.get(path)
            mine = flight is None
            if flight is None:
                flight = self._flights[path] = Future()
        if not mine:
            return flight.result()
        try:
            found = self._kept_tail(path) or self._ask_for_tail(path)
        except BaseException as error:
            flight.set_exception(error)
            raise
        else:
            flight.set_result(found)
            return found
        finally:
            with self._guard:
                self._flights.pop(path, None)

    def _ask_for_tail(self, path: str) -> Tail:
        key, known = self._key(path), self._known.get(path)
        size = known.size_bytes if known is not None else None
        wanted = size if size is not None and size <= WHOLE_BYTES else TAIL_BYTES

        def get() -> Tail:
            # A range of an empty object is an error, and so is an empty range.
            options: Any = {} if not wanted else {"options": {"range": {"suffix": wanted}}}
            found = obstore.get(self._bucket.client, key, **options)
            return Tail(found.meta["size"], _milliseconds(found.meta), found.meta["e_tag"], bytes(found.bytes()))

        made = self._call("get", path, get)
        self._read_bytes(len(made.data))
        _tails.keep(self._bucket.name, key, made)
        self._note([FileInfo(path, made.size, made.modified_ms, etag=made.etag)])
        return made

    def range(self, path: str, start: int, length: int) -> bytes:
        """Bytes of a file that has them."""
        key = self._key(path)
        data = self._call(
            "get", path, lambda: bytes(obstore.get_range(self._bucket.client, key, start=start, length=length))
        )
        self._read_bytes(len(data))
        return data

    # ------------------------------------------------------------ locks

    @contextmanager
    def lock(self, name: str, wait_s: float) -> Iterator[None]:
        given = self.lock_object or current()
        name = store_lock.TABLE if name == TABLE_LOCK else name
        with ExitStack() as stack:
            if given is None or self._knows_conditions():
                try:
                    stack.enter_context(store_lock.held(self, name, wait_s))
                except Unsupported:
                    if given is None:
                        raise
                    self.conditional = False
            # The table's own lock is taken from the object before this one (`write.locks`).
            if given is not None and not self.conditional and name != store_lock.TABLE:
                stack.enter_context(entered(given, f"{self.uri}/{store_lock.path_of(name)}", wait_s))
            yield

    def _knows_conditions(self) -> bool:
        """Whether conditional puts are known here; asked once, where a lock object would do without them."""
        if self.conditional and not self._asked:
            with suppress(Unsupported):
                self._conditionally("create", f"{store_lock.FOLDER}/conditions", b"", "create")
            self._asked = True
        return self.conditional


class _ForLast:
    """The ranges of a storage, asked for in the name of the statement that used it last."""

    def __init__(self, storage: ObjectStorage) -> None:
        self._storage = storage

    def tail(self, path: str) -> Tail:
        with self._storage._calls.for_last():
            return self._storage.tail(path)

    def range(self, path: str, start: int, length: int) -> bytes:
        with self._storage._calls.for_last():
            return self._storage.range(path, start, length)


class _Upload:
    """A file sent in parts, several at a time; it is there when `complete` returns."""

    def __init__(self, storage: ObjectStorage, path: str) -> None:
        self._storage, self._path = storage, path
        bucket = storage._bucket
        self._writer = storage._call(
            "part",
            path,
            lambda: obstore.open_writer(
                bucket.parts, storage._key(path), buffer_size=PART_BYTES, max_concurrency=PART_REQUESTS
            ),
        )

    def part(self, data: bytes) -> None:
        self._storage._call("part", self._path, lambda: self._writer.write(data))
        self._storage._wrote_bytes(len(data))

    def complete(self) -> None:
        self._storage._call("part", self._path, self._writer.close)
        with self._storage._guard:
            self._storage._known.pop(self._path, None)

    def abort(self) -> None:
        with suppress(Exception):
            self._storage._call("delete", self._path, lambda: self._writer.__exit__(OSError, OSError(), None))


@functools.cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(AT_ONCE, thread_name_prefix=_POOL)


os.register_at_fork(after_in_child=_pool.cache_clear)


def _milliseconds(meta: Any) -> int:
    return int(meta["last_modified"].timestamp() * 1000)


def _parents(path: str) -> Iterator[str]:
    at = path.rfind("/")
    while at > 0:
        yield path[:at]
        at = path.rfind("/", 0, at)


def _is_marker(file: FileInfo, folders: set[str]) -> bool:
    """Whether an object stands for a folder, as some programs make them."""
    return not file.size_bytes and file.path.rpartition("/")[2] in folders
