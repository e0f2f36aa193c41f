"""The collector of reference cycles at rest while there are many short-lived objects without cycles.

Tens of thousands of messages that live for milliseconds make it walk over everything that is alive, again and again: 0.8
of 2.8 s of processor time for 1M records.
"""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_guard = threading.Lock()
_resting = 0
_ours = False


@contextmanager
def without_collector() -> Iterator[None]:
    """No collection within, whichever threads are within at the same time; a collector that is off stays off."""
    global _resting, _ours
    with _guard:
        _resting += 1
        if _resting == 1:
            _ours = gc.isenabled()
            gc.disable()
    try:
        yield
    finally:
        with _guard:
            _resting -= 1
            if not _resting and _ours:
                gc.enable()
