"""A process that runs an ingestion and dies by SIGKILL at a chosen call of the storage: before, in the middle, behind.

One process imports everything and forks a child for each run it is told on standard input, so that a run costs no start:
{"statement": ..., "warehouse": ..., "die_at": n, "how": "before" | "torn" | "after"}; it answers "done CALLS", "killed" or
"failed TEXT" on a line of its own.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka  # noqa: F401
import duckdb  # noqa: F401
import pyarrow.parquet  # noqa: F401

import lakesql
import lakesql.ingest.assembly
from lakesql.storage import TEMPORARY, LocalStorage

CHANGING = ("put", "put_if_absent", "rename", "delete", "delete_tree", "sink")


class Death:
    """Counts the calls that change something, and kills the process at one of them."""

    def __init__(self, die_at: int, how: str) -> None:
        self.die_at, self.how, self.calls = die_at, how, 0

    def watch(self, name: str) -> None:
        inner = getattr(LocalStorage, name)

        def call(storage: LocalStorage, path: str, *args: Any) -> Any:
            self.calls += 1
            due = self.calls == self.die_at
            if due and self.how == "torn":
                self._tear(storage, name, path, *args)
            if due and self.how != "after":
                os.kill(os.getpid(), signal.SIGKILL)
            result = inner(storage, path, *args)
            if due:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        setattr(LocalStorage, name, call)

    def _tear(self, storage: LocalStorage, name: str, path: str, *args: Any) -> None:
        """What a process leaves that dies in the middle of this call."""
        target = Path(storage.data_path(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        if name == "sink":
            target.write_bytes(b"PAR1")
        elif name in ("put", "put_if_absent"):
            data = args[0]
            target.with_name(f".{target.name}{TEMPORARY}torn").write_bytes(data[: len(data) // 2])


def child(order: dict[str, Any], say: Callable[[str], None]) -> None:
    death = Death(order["die_at"], order["how"])
    for name in CHANGING:
        death.watch(name)
    try:
        with lakesql.connect(warehouse=order["warehouse"]) as con:
            con.sql(order["statement"])
    except BaseException as error:
        say(f"failed {type(error).__name__}: {error}".replace("\n", " "))
        return
    say(f"done {death.calls}")


def say(writer: int, text: str) -> None:
    os.write(writer, text.encode())


def main() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        reader, writer = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(reader)
            child(order, partial(say, writer))
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as answer:
            text = answer.read()
        os.waitpid(pid, 0)
        print(text or "killed", flush=True)


if __name__ == "__main__":
    main()
