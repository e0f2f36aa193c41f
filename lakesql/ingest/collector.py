"""The collector of reference cycles at rest while there are many short-lived objects without cycles.

Tens of thousands of messages that live for milliseconds make it walk over everything that is alive, again and again: 0.8
of 2.8 s of processor time for 1M records.

With several threads one is nearly always within, in a long run for hours, and cycles would pile up. So who leaves a block
collects when nobody else has for long: what is young every few seconds, everything every minute.
"""

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

YOUNG_S, ALL_S = 5.0, 60.0
"""After so long at rest without a break the young generations are collected, and all of them."""

_YOUNG = 1
"""The older of the young generations."""

_guard = threading.Lock()
_resting = 0
_ours = False
_young_at = _all_at = 0.0  # when each was collected, or the rest began


@contextmanager
def without_collector(clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """No collection within, but for the ones above, whichever threads are within at the same time; a collector that is
    off stays off."""
    global _resting, _ours, _young_at, _all_at
    with _guard:
        _resting += 1
        if _resting == 1:
            _ours = gc.isenabled()
            gc.disable()
            _young_at = _all_at = clock()
    generation = None
    try:
        yield
    finally:
        with _guard:
            _resting -= 1
            if not _resting and _ours:
                gc.enable()
            elif _ours:
                generation = _due(clock())
        if generation is not None:
            gc.collect(generation)  # outside of the guard: what is collected may run code of its own


def _due(now: float) -> int | None:
    """The generation to collect now, None: none. The guard is held."""
    global _young_at, _all_at
    if now - _all_at >= ALL_S:
        _young_at = _all_at = now
        return 2
    if now - _young_at >= YOUNG_S:
        _young_at = now
        return _YOUNG
    return None
