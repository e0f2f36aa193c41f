"""SIGTERM during a run, in the main thread."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def terminable() -> Iterator[None]:
    """Within, SIGTERM ends the run as Ctrl-C does: what is not committed is removed, the lock is given back."""
    told: list[int] = []
    free = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL

    def act(number: int, frame: FrameType | None) -> None:
        del frame
        told.append(number)
        raise SystemExit(128 + number)

    if not free:
        yield
        return
    before = signal.signal(signal.SIGTERM, act)
    try:
        yield
    except KeyboardInterrupt as error:
        if told:  # what DuckDB made of the signal
            raise SystemExit(128 + told[0]) from error
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
