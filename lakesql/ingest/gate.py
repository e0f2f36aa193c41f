"""A gate that many threads pass together, and that one thread can have to itself; who waits for that goes first."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Gate:
    """Tasks hold it `shared` while rows and their offsets move together; a commit holds it `alone`."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0
        self._alone = 0  # threads that are or want to be alone

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
