"""One thread that fetches for a task while the task decodes: a short queue between them, so memory stays bounded.

The client hands over Python objects and so holds the interpreter; decoding is DuckDB's, numpy's and Arrow's work and does
not. Two threads for each task keep both busy. The iterator of the client lives in the fetching thread from its first call
to its close, because a consumer is not to be shared.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType

from lakesql.ingest.model import Fetched

DEPTH = 4
GROUP_ROWS = 50_000
GROUP_BYTES = 64 << 20
POLL_S = 0.1
LEAVE_S = 5.0
"""How long an interrupted run waits for a client that is inside a call; the thread writes nothing and may be left."""

Failure = tuple[BaseException]


class Fetching:
    """What a reader gives, fetched ahead by at most DEPTH batches. A context: leaving it ends the thread."""

    def __init__(self, read: Callable[[], Iterator[Fetched]], stop: threading.Event, name: str) -> None:
        self._read, self._stop = read, stop
        self._left = threading.Event()
        self._queue: queue.Queue[Fetched | Failure | None] = queue.Queue(DEPTH)
        self._thread = threading.Thread(target=self._run, name=f"lakesql-fetch-{name}", daemon=True)

    def __enter__(self) -> "Fetching":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del kind, error, trace
        self._left.set()
        self._thread.join(LEAVE_S if self._stop.is_set() else None)

    def groups(self) -> Iterator[list[Fetched]]:
        """Batches, several together when they are there already: decoding large ones is cheaper. What the reader
        raises is raised here, behind what it gave before. Ends at once when the run is to stop."""
        while not self._stop.is_set():
            try:
                first = self._queue.get(timeout=POLL_S)
            except queue.Empty:
                continue
            group: list[Fetched] = []
            rows = size = 0
            one: Fetched | Failure | None = first
            while isinstance(one, Fetched):
                group.append(one)
                rows += one.batch.num_rows
                size += one.batch.nbytes
                if rows >= GROUP_ROWS or size >= GROUP_BYTES:
                    break
                try:
                    one = self._queue.get_nowait()
                except queue.Empty:
                    break
            if group:
                yield group
            if isinstance(one, Fetched):
                continue
            if isinstance(one, tuple):
                raise one[0]
            return

    def _run(self) -> None:
        end: Failure | None = None
        try:
            fetched = self._read()
            try:
                for one in fetched:
                    if not self._put(one):
                        return
            finally:
                close = getattr(fetched, "close", None)
                if close is not None:
                    close()
        except BaseException as error:  # raised again in the thread of the task
            end = (error,)
        self._put(end)

    def _put(self, one: Fetched | Failure | None) -> bool:
        """Whether there is still someone who takes it."""
        while not (self._stop.is_set() or self._left.is_set()):
            try:
                self._queue.put(one, timeout=POLL_S)
            except queue.Full:
                continue
            return True
        return False


class Timing:
    """The clock of a run; a test has another one."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float, stop: threading.Event) -> None:
        """Wait, but not longer than until the run is to stop."""
        stop.wait(seconds)
