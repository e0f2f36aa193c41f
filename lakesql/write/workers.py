"""Threads that write files, and the certainty that none of them writes any more when the write is given up.

A Ctrl-C in the start of a thread leaves one that runs and that its pool does not know, nor joins. So the jobs are
counted here: each one when it begins, unless the workers are closed by then. An interrupt may come at any moment in the
thread that waits; hence the plain lock and the SimpleQueue, which a raising signal handler cannot leave half changed.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from typing import ParamSpec, TypeVar

from lakesql.stores.calls import in_context

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Workers:
    """A pool of `count` threads; after `with` no job runs, and none will begin.

    `give_up`, called at the end, perhaps repeatedly, must end the jobs that wait for something.
    """

    def __init__(self, count: int, name: str, give_up: Callable[[], None] = lambda: None) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=name)
        self._give_up = give_up
        self._lock = threading.Lock()
        self._active = 0
        self._closed = False
        self._ended: SimpleQueue[None] = SimpleQueue()  # one for each job that ended

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        interrupt = None
        while True:
            try:
                self._close()
                break
            except BaseException as error:  # another Ctrl-C: the jobs still have to end first
                interrupt = error
        if interrupt is not None:
            raise interrupt

    def submit(self, run: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> Future[_R]:
        return self._pool.submit(self._job, partial(in_context(run), *args, **kwargs))

    def _job(self, run: Callable[[], _R]) -> _R:
        with self._lock:
            if self._closed:
                raise ClosedError
            self._active += 1
        try:
            return run()
        finally:
            with self._lock:
                self._active -= 1
            self._ended.put(None)

    def _close(self) -> None:
        with self._lock:
            self._closed = True
        self._give_up()
        while self._active:
            self._ended.get()
        self._pool.shutdown(cancel_futures=True)


class ClosedError(Exception):
    """The job comes too late, or what it waits for does not come any more: the write failed elsewhere."""
