"""One object as a binary file: reads by ranges with read-ahead, writes by parts.

A file opens with one request, for its last bytes: they hold the Parquet footer, and the answer tells the size. Of a small
file they are the file. What was read so is kept for the whole process by the identity of the object (`Tails`), so a
footer is fetched once however many statements need it. Reads that follow on each other fetch more and more at once.
A sink holds back what is written until it has a part; a file that never has one is a single request when it is closed.
"""

import io
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from lakesql.stores.base import Sink

TAIL_BYTES = 256 << 10
WHOLE_BYTES = 1 << 20
"""Files up to this size are read with their tail."""
AHEAD_MIN, AHEAD_MAX = 256 << 10, 8 << 20
PART_BYTES = 8 << 20
TAILS_BYTES = 128 << 20
PLACES_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class Tail:
    """The last bytes of an object, and what was told with them."""

    size: int
    modified_ms: int
    etag: str | None
    data: bytes

    @property
    def start(self) -> int:
        return self.size - len(self.data)


class Tails:
    """Tails by the identity of their objects, those used last, up to TAILS_BYTES."""

    def __init__(self, limit: int = TAILS_BYTES) -> None:
        self._limit, self._bytes = limit, 0
        self._kept: OrderedDict[tuple[str, str, str], Tail] = OrderedDict()
        self._guard = threading.Lock()

    def find(self, bucket: str, key: str, etag: str) -> Tail | None:
        with self._guard:
            found = self._kept.get((bucket, key, etag))
            if found is not None:
                self._kept.move_to_end((bucket, key, etag))
            return found

    def keep(self, bucket: str, key: str, tail: Tail) -> None:
        if tail.etag is None:
            return
        with self._guard:
            before = self._kept.pop((bucket, key, tail.etag), None)
            self._kept[bucket, key, tail.etag] = tail
            self._bytes += len(tail.data) - (len(before.data) if before else 0)
            while self._bytes > self._limit:
                _, gone = self._kept.popitem(last=False)
                self._bytes -= len(gone.data)


class Ahead:
    """Fetches what will be read next while something is read: more and more as long as files are read in their order.

    A reader that picks a few files out of many makes no request for the others but the first ones.
    """

    FIRST, MOST = 1, 32

    def __init__(self, fetch: Callable[[str], object], submit: Callable[..., object]) -> None:
        self._fetch, self._submit = fetch, submit
        self._places: dict[str, tuple[_Order, int]] = {}
        self._guard = threading.Lock()

    def expect(self, paths: Sequence[str]) -> None:
        """These files may be read, in this order."""
        order = _Order(tuple(paths))
        with self._guard:
            if len(self._places) > PLACES_MAX:
                self._places.clear()
            self._places.update((path, (order, number)) for number, path in enumerate(order.paths))

    def touched(self, path: str) -> None:
        """A file is read now."""
        with self._guard:
            found = self._places.get(path)
            if found is None:
                return
            order, number = found
            in_order = order.last < number <= order.last + order.ahead
            order.ahead = min(order.ahead * 2, self.MOST) if in_order else self.FIRST
            order.last = number
            begin = max(number + 1, order.asked)
            wanted = order.paths[begin : number + 1 + order.ahead]
            order.asked = max(order.asked, begin + len(wanted))
        for one in wanted:
            self._submit(self._quietly, one)

    def _quietly(self, path: str) -> None:
        with suppress(Exception):  # who needs the file gets the error
            self._fetch(path)


@dataclass(slots=True)
class _Order:
    paths: tuple[str, ...]
    last: int = -1
    ahead: int = Ahead.FIRST
    asked: int = 0


class Ranges(Protocol):
    """Where an object's bytes come from."""

    def tail(self, path: str) -> Tail: ...

    def range(self, path: str, start: int, length: int) -> bytes: ...


class ObjectFile(io.RawIOBase):
    """An object to read from, by one thread at a time."""

    def __init__(self, ranges: Ranges, path: str) -> None:
        self._ranges, self._path = ranges, path
        self._at = self._block_start = self._ahead = 0
        self._block = b""
        self._tail: Tail | None = None

    @property
    def tail(self) -> Tail:
        if self._tail is None:
            self._tail = self._ranges.tail(self._path)
        return self._tail

    @property
    def mode(self) -> str:
        return "rb"

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def size(self) -> int:
        return self.tail.size

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at}.get(whence)
        self._at = max(0, offset + (self.tail.size if origin is None else origin))
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        left = self.tail.size - self._at
        wanted = left if size is None or size < 0 else min(size, left)
        data = self._read(self._at, wanted) if wanted > 0 else b""
        self._at += len(data)
        return data

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _read(self, start: int, length: int) -> bytes:
        tail, end = self.tail, start + length
        if start >= tail.start:
            return tail.data[start - tail.start : end - tail.start]
        block_end = self._block_start + len(self._block)
        if self._block_start <= start and end <= block_end:
            return self._block[start - self._block_start : end - self._block_start]
        if self._block_start <= start <= block_end and self._block:
            # What comes next: the rest of the block, and more than was asked for.
            self._ahead = min(max(self._ahead * 2, AHEAD_MIN), AHEAD_MAX)
            known = self._block[start - self._block_start :]
        else:
            self._ahead, known = 0, b""
        begin = start + len(known)
        stop = min(max(end, begin + self._ahead), max(tail.start, begin))
        fetched = self._ranges.range(self._path, begin, stop - begin) if stop > begin else b""
        self._block, self._block_start = fetched, begin
        data = known + fetched[: end - begin]
        if len(data) < length:
            data += tail.data[: end - tail.start]
        return data


class PartsFile(io.RawIOBase):
    """A binary file to write to, which hands out parts."""

    def __init__(self, part: Callable[[bytes], None]) -> None:
        self._part = part
        self._held = bytearray()
        self._size = 0

    @property
    def mode(self) -> str:
        return "wb"

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        self._held += view
        self._size += view.nbytes
        while len(self._held) >= PART_BYTES:
            part = bytes(self._held[:PART_BYTES])
            del self._held[:PART_BYTES]
            self._part(part)
        return view.nbytes

    def rest(self) -> bytes:
        """What no part has taken."""
        return bytes(self._held)

    def drop(self) -> None:
        self._held.clear()


class Upload(Protocol):
    """A file sent in parts."""

    def part(self, data: bytes) -> None: ...

    def complete(self) -> None: ...

    def abort(self) -> None: ...


class ObjectSink(Sink):
    """A new object: one request for a small one, an upload by parts otherwise."""

    def __init__(self, path: str, put: Callable[[bytes], None], begin: Callable[[], Upload]) -> None:
        self.path, self._put, self._begin = path, put, begin
        self._parts = self.target = PartsFile(self._send)
        self._upload: Upload | None = None
        self._done = False

    def _send(self, part: bytes) -> None:
        if self._upload is None:
            self._upload = self._begin()
        self._upload.part(part)

    def close(self) -> int:
        rest = self._parts.rest()
        if self._upload is None:
            self._put(rest)
        else:
            if rest:
                self._upload.part(rest)
            self._upload.complete()
        self._done = True
        self._parts.drop()
        return self._parts.tell()

    def abort(self) -> None:
        self._parts.drop()
        if self._upload is not None and not self._done:
            self._done = True
            self._upload.abort()
