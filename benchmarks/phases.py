"""Where the time of a MERGE of lakesql goes: the functions that are its steps are wrapped while it runs.

The time of a wrapped function goes to its step, but for what wrapped functions inside of it take; what is in none of
them goes to REST. So the steps add up to the wall time. Only the calling thread is watched: the threads that write
files work while `write` waits for them. A function that is no longer there is an error, not a zero.
"""

import functools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any
from unittest.mock import patch

REST = "rest"
PHASES: dict[str, tuple[str, ...]] = {
    "planning": ("imports", "parse", "compile", "snapshot", "stage", "batch", "route", REST),
    "tagging": ("tag",),
    "writing": ("write",),
    "committing": ("commit",),
}
"""The four phases and the steps they consist of."""

STEPS: dict[tuple[str, str], str] = {
    ("builtins", "__import__"): "imports",
    ("lakesql.sql.connection", "parse"): "parse",
    ("lakesql.sql.changes", "compile_merge"): "compile",
    ("lakesql.sql.instance", "Instance.snapshot"): "snapshot",
    ("lakesql.write", "_fresh"): "snapshot",
    ("lakesql.sql.changes", "_stage"): "stage",
    ("lakesql.write", "materialise"): "batch",
    ("lakesql.write", "_planned"): "route",
    ("lakesql.write", "_tagged"): "tag",
    ("lakesql.write", "_write_files"): "write",
    ("lakesql.write.commit", "begin"): "commit",
    ("lakesql.write.commit", "complete"): "commit",
    ("lakesql.write.commit", "finish"): "commit",
}
"""(module, function) -> step."""


class Watch:
    """Seconds by step. The step at work is the innermost one; each change of step books the time since the last."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys((step for steps in PHASES.values() for step in steps), 0.0)
        self._thread = threading.get_ident()
        self._stack = [REST]
        self._since = time.perf_counter()

    def wrapped(self, function: Callable[..., Any], step: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != self._thread:
                return function(*args, **kwargs)
            self.book()
            self._stack.append(step)
            try:
                return function(*args, **kwargs)
            finally:
                self.book()
                self._stack.pop()

        return watched

    def book(self) -> None:
        now = time.perf_counter()
        self.seconds[self._stack[-1]] += now - self._since
        self._since = now


@contextmanager
def watching() -> Iterator[Watch]:
    """The seconds by step of what runs inside; complete when it ends."""
    with ExitStack() as stack:
        patches = [(*_found(module, name), step) for (module, name), step in STEPS.items()]
        watch = Watch()
        for owner, name, function, step in patches:
            stack.enter_context(patch.object(owner, name, watch.wrapped(function, step)))
        yield watch
        watch.book()


def shares(seconds: Mapping[str, float]) -> dict[str, float]:
    """Phase -> its part of the whole."""
    whole = sum(seconds.values())
    return {phase: sum(seconds[step] for step in steps) / whole for phase, steps in PHASES.items()}


def _found(module: str, path: str) -> tuple[Any, str, Callable[..., Any]]:
    owner: Any = import_module(module)
    *outer, name = path.split(".")
    try:
        for part in outer:
            owner = getattr(owner, part)
        return owner, name, getattr(owner, name)
    except AttributeError as error:
        raise SystemExit(f"{module}.{path}, a step of MERGE, is no longer there. Adapt STEPS in {__file__}.") from error
