"""An HTTP proxy in front of an S3 server that breaks requests, slows them down and writes down what it has seen.

`Proxy(port)` listens on a port of its own, in a thread; a client takes its `url` for the server's. Headers go on as
they came, `Host` too, so signatures stay right. `arm(Fault(n, how))` breaks the n-th request that comes from then on:

    500, 503    an answer InternalError or SlowDown; the server is not asked
    dropped     the connection is closed; the server is not asked
    timeout     no answer until the client gives up; the server is not asked
    lost        the server does it, the connection is closed instead of an answer
    lost-500    the server does it, the answer is InternalError
    torn        the server gets half of the body, or the client half of the answer, then connections are closed

`times` repeats the fault for the requests after it. With `latency_s` an answer comes that long after its request at the
earliest: the time of the server itself is part of it. `seen` has every request with its times; `longest_chain` says how many
of them waited for one another.
"""

import asyncio
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from urllib.parse import parse_qs, unquote, urlsplit

HOW = ("500", "503", "dropped", "timeout", "lost", "lost-500", "torn")
_ERRORS = {
    "500": ("500 Internal Server Error", "InternalError", "We encountered an internal error. Please try again."),
    "503": ("503 Slow Down", "SlowDown", "Please reduce your request rate."),
}
_HANGS_S = 60.0


@dataclass(frozen=True, slots=True)
class Fault:
    """What becomes of request `number`, counted from 1, and of the `times` - 1 after it; 0: of all after it."""

    number: int
    how: str
    times: int = 1

    def due(self, number: int) -> bool:
        return self.number <= number and (not self.times or number < self.number + self.times)


@dataclass(frozen=True, slots=True)
class Seen:
    """One request: its kind (get, head, list, put, delete, copy, multipart), the path in the bucket, seconds of a clock."""

    kind: str
    path: str
    started: float
    ended: float
    status: int
    """0: no answer was given."""


class Proxy:
    """A running proxy; a context manager."""

    def __init__(self, upstream: int, latency_s: float = 0.0) -> None:
        self.upstream = upstream
        self.latency_s = latency_s
        self.seen: list[Seen] = []
        self.broken: list[str] = []
        """The kinds of the requests that a fault has met since `arm`."""
        self._fault: Fault | None = None
        self._number = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)

    def arm(self, fault: Fault | None) -> None:
        """Count anew, and break what `fault` says; None: nothing."""
        assert fault is None or fault.how in HOW, fault
        self.broken = []
        self._number = 0
        self.seen = []
        self._fault = fault

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> "Proxy":
        async def listen() -> asyncio.Server:
            return await asyncio.start_server(self._client, "127.0.0.1", 0)

        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(listen(), self._loop).result(10)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async def end() -> None:
            self._server.close()
            mine = asyncio.current_task()
            others = [t for t in asyncio.all_tasks() if t is not mine]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Requests of one connection, until one of both ends it."""
        try:
            while await self._request(reader, writer):
                pass
        except (asyncio.IncompleteReadError, asyncio.CancelledError, TimeoutError, OSError):
            pass
        finally:
            writer.close()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; False when the connection is to be closed."""
        head = await reader.readuntil(b"\r\n\r\n")
        started = time.monotonic()
        body = await _body(head, reader)
        self._number += 1
        fault = self._fault
        how = fault.how if fault is not None and fault.due(self._number) else ""
        kind, path = kind_of(head)
        if how:
            self.broken.append(kind)
        answer = await self._answer(how, head, body, reader)
        wait = self.latency_s - (time.monotonic() - started)
        if wait > 0:
            await asyncio.sleep(wait)
        whole = answer is not None and how != "torn"
        if answer is not None:
            sent = answer if whole else _half(answer)
            writer.write(sent)
            await writer.drain()
        status = int(answer.split(b" ", 2)[1]) if answer is not None and whole else 0
        self.seen.append(Seen(kind, path, started, time.monotonic(), status))
        return whole

    async def _answer(self, how: str, head: bytes, body: bytes, reader: asyncio.StreamReader) -> bytes | None:
        """What the client is told; None: nothing."""
        if how in _ERRORS:
            return _error(how)
        if how == "timeout":
            # A client that gives up closes the connection; what it sends before that belongs to nothing.
            await asyncio.wait_for(reader.read(1), _HANGS_S)
        if how in ("dropped", "timeout"):
            return None
        if how == "torn" and body:
            await self._ask(head + body[: len(body) // 2], read=False)
            return None
        answer = await self._ask(_closing(head) + body)
        if how == "lost":
            return None
        return _error("500") if how == "lost-500" else answer

    async def _ask(self, request: bytes, *, read: bool = True) -> bytes:
        """The server's whole answer, its length told in a header; b"" when it is not waited for."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.upstream, limit=1 << 20)
        try:
            writer.write(request)
            await writer.drain()
            if not read:
                await asyncio.sleep(0.05)
                return b""
            method = request.split(b" ", 1)[0]
            head = await reader.readuntil(b"\r\n\r\n")
            status = int(head.split(b" ", 2)[1])
            empty = method == b"HEAD" or status in (204, 304)
            body = b"" if empty else await _body(head, reader, to_end=True)
        finally:
            writer.close()
        return _framed(head, body, empty=empty)


def kind_of(head: bytes) -> tuple[str, str]:
    """(kind, path in the bucket) of a request."""
    method, target = head.split(b" ", 2)[:2]
    parts = urlsplit(target.decode())
    query = parse_qs(parts.query, keep_blank_values=True)
    path = unquote(parts.path).lstrip("/").partition("/")[2]
    if method == b"GET" and "list-type" in query:
        return "list", query.get("prefix", [""])[0]
    if method == b"POST":
        return ("delete" if "delete" in query else "multipart"), path
    if method == b"PUT" and b"\r\nx-amz-copy-source:" in head.lower():
        return "copy", path
    if "uploadId" in query:
        return "multipart", path
    return method.decode().lower(), path


def longest_chain(seen: Iterable[Seen]) -> int:
    """How many requests at least came one after the other: the most of which each began when the one before had ended."""
    length, end = 0, float("-inf")
    for one in sorted(seen, key=lambda s: s.ended):
        if one.started >= end:
            length, end = length + 1, one.ended
    return length


def _header(head: bytes, name: bytes) -> bytes | None:
    for line in head.split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key.strip().lower() == name:
            return value.strip()
    return None


async def _body(head: bytes, reader: asyncio.StreamReader, *, to_end: bool = False) -> bytes:
    """What follows a head; `to_end`: without a length it goes on until the connection is closed."""
    if (_header(head, b"transfer-encoding") or b"").lower() == b"chunked":
        parts = []
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            parts.append(await reader.readexactly(size))
            await reader.readexactly(2)
        while await reader.readuntil(b"\r\n") != b"\r\n":
            pass
        return b"".join(parts)
    length = _header(head, b"content-length")
    if length is None:
        return await reader.read() if to_end else b""
    return await reader.readexactly(int(length))


def _closing(head: bytes) -> bytes:
    """A request after which the server closes the connection."""
    first, _, rest = head.partition(b"\r\n")
    return first + b"\r\nConnection: close\r\n" + _without(rest, b"connection")


def _framed(head: bytes, body: bytes, *, empty: bool) -> bytes:
    """An answer after which the client keeps the connection."""
    first, _, rest = head.partition(b"\r\n")
    first = b"HTTP/1.1 " + first.split(b" ", 1)[1]
    kept = _without(rest, b"connection", b"transfer-encoding", *(() if empty else (b"content-length",)))
    length = b"" if empty else f"Content-Length: {len(body)}\r\n".encode()
    return first + b"\r\n" + length + kept + body


def _without(lines: bytes, *names: bytes) -> bytes:
    return b"\r\n".join(x for x in lines.split(b"\r\n") if x.partition(b":")[0].strip().lower() not in names)


def _half(answer: bytes) -> bytes:
    head, end, body = answer.partition(b"\r\n\r\n")
    return head + end + body[: len(body) // 2]


def _error(which: str) -> bytes:
    status, code, message = _ERRORS[which]
    body = f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>{message}</Message></Error>'
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
    return (head + body).encode()
