"""Calls a function in a fresh process whose allocator keeps the memory it was given: for measuring.

Arrow's allocator gives pages back to the system between two commits. The system clears those it hands out anew, and has
to ask the machine below for them first where it runs on a virtual one: between 30 and 300 ms of system time for the same
commit, while the user time differs by 4 %. That is a state of the machine, no price. The allocator is told by the
environment, which it looks at when it is loaded; hence the process. What comes back is what the function returns, or raises.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import TypeVar

from lakesql.errors import LakeError

KEEPING = ("MIMALLOC_PURGE_DELAY", "-1")
"""The setting of the environment by which Arrow's allocator keeps its memory."""

Progress = Callable[[float], None]
_R = TypeVar("_R")


def keeps_memory() -> bool:
    """Whether this process is one that measures undisturbed."""
    return os.environ.get(KEEPING[0]) == KEEPING[1]


def apart(measure: Callable[[Progress], _R], progress: Progress) -> _R:
    """The result of `measure`, a function of a module, from a process that keeps its memory; from this one if it does."""
    if keeps_memory():
        return measure(progress)
    context = get_context("spawn")
    here, there = context.Pipe(duplex=False)
    with _environment():
        process = context.Process(target=_work, args=(there, measure), daemon=True)
        process.start()
    there.close()
    try:
        while True:
            kind, value = here.recv()
            if kind == "progress":
                progress(value)
            elif kind == "error":
                raise value
            else:
                found: _R = value
                return found
    except EOFError:
        raise LakeError(
            "The process that measures has ended without a result; nothing was kept. Run it again."
        ) from None
    finally:
        here.close()
        process.join()


@contextmanager
def _environment() -> Iterator[None]:
    """The setting, for a process that is started within."""
    name, value = KEEPING
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _work(pipe: Connection, measure: Callable[[Progress], object]) -> None:
    try:
        pipe.send(("done", measure(lambda part: pipe.send(("progress", part)))))
    except Exception as error:
        pipe.send(("error", error))
