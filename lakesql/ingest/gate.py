"""A gate that many threads pass together, and that one thread can have to itself; who waits for that goes first.

When a run is broken off the gate is closed: from then on no thread writes anything, so one that sits in a call of a
broker or a registry can be left behind.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Gate:
    """Tasks hold it `shared` while rows and their offsets move together; a commit holds it `alone`."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._alone = 0  # threads that are or want to be alone
        self._writing = 0
        self._closed = False

    @contextmanager
    def shared(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._alone)
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._changed:
            self._alone += 1
            try:
                self._changed.wait_for(lambda: not self._inside)
            except BaseException:
                self._alone -= 1
                self._changed.notify_all()
                raise
        try:
            yield
        finally:
            with self._changed:
                self._alone -= 1
                self._changed.notify_all()

    @contextmanager
    def writing(self) -> Iterator[bool]:
        """Around what changes a load, within `shared`; gives False once the gate is closed: then nothing may change."""
        with self._changed:
            may = not self._closed
            self._writing += may
        try:
            yield may
        finally:
            with self._changed:
                self._writing -= may
                self._changed.notify_all()

    def close(self, timeout_s: float) -> None:
        """Nothing is written from now on; waits for who is at it."""
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: not self._writing, timeout_s)
