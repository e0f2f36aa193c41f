"""Ctrl-C while a statement runs. Python acts on a signal between two of its own instructions, and DuckDB can be at work
for minutes between two of them; so a thread that the signal wakes at once asks DuckDB to stop when Python has not acted
within GRACE_S. Either way it is one exception in the main thread: what undoes a write is not disturbed by a second one.
"""

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import duckdb

GRACE_S = 0.2


@contextmanager
def interruptible(con: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Within, the first Ctrl-C raises KeyboardInterrupt, or makes a query of `con` end with DuckDB's error for it.

    Only the main thread can do that; in others nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    seen, asked, done = threading.Event(), threading.Event(), threading.Event()

    def act(number: int, frame: FrameType | None) -> None:
        del number, frame
        first = not seen.is_set()
        seen.set()
        if not (first and asked.is_set()):
            con.interrupt()  # DuckDB's own threads would go on, and DuckDB waits for them
            raise KeyboardInterrupt

    def watch() -> None:
        while reader.recv(64):
            while not (seen.wait(GRACE_S) or done.is_set()):
                asked.set()
                con.interrupt()  # forgotten by a query that only begins, so again

    reader, writer = socket.socketpair()
    writer.setblocking(False)
    watcher = threading.Thread(target=watch, name="lakesql-interrupt", daemon=True)
    watcher.start()
    handler = signal.signal(signal.SIGINT, act)
    wakeup = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        done.set()
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGINT, handler)
        writer.close()
        watcher.join()
        reader.close()
