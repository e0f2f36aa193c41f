"""What a person sees on the terminal while a long statement runs: how far DuckDB is, the time, and that Ctrl-C stops it.

A thread draws one line on standard error once a statement takes longer than AFTER_S, and takes it away at the end. DuckDB
knows how far a query of the connection is, within `counting`; what lakesql does between queries shows the time alone.
Ingestions have a display of their own.
"""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import duckdb

from lakesql.sql.connection import Connection

AFTER_S = 2.0
EVERY_S = 0.2
_WIDTH = 30
_OWN = ("INGEST", "RUN", "REPLAY")
_BAR = ("enable_progress_bar", "enable_progress_bar_print")
_COUNTS_ALONE = (True, False)


@contextmanager
def counting(con: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Within, `share` knows how far a query is.

    DuckDB counts only while its own bar is on; that one writes to the terminal, so it counts and writes nothing. A bar that
    a statement within turns on or off stays so.
    """
    before: tuple[bool, ...] | None = None
    with suppress(duckdb.Error):  # in a transaction that has failed nothing can be set
        before = _bar(con)
        _set_bar(con, _COUNTS_ALONE)
    try:
        yield
    finally:
        with suppress(duckdb.Error):
            if before is not None and _bar(con) == _COUNTS_ALONE:
                _set_bar(con, before)


def _bar(con: duckdb.DuckDBPyConnection) -> tuple[bool, ...]:
    settings: tuple[bool, ...] = con.execute(
        f"SELECT {', '.join(f'current_setting({name!r})' for name in _BAR)}"
    ).fetchall()[0]
    return settings


def _set_bar(con: duckdb.DuckDBPyConnection, values: tuple[bool, ...]) -> None:
    for name, value in zip(_BAR, values, strict=True):
        con.execute(f"SET {name} = {value}").fetchall()  # a result left open would be in the way of the next statement


@contextmanager
def waiting(con: Connection, text: str) -> Iterator[None]:
    """Within, the line is there when it takes long. `text`: the statements."""
    if any(word in _OWN for word in text.upper().split()):
        yield
        return
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(con.duckdb, done), name="lakesql-waiting", daemon=True)
    with counting(con.duckdb):
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()


def _watch(con: duckdb.DuckDBPyConnection, done: threading.Event) -> None:
    started = time.monotonic()
    if done.wait(AFTER_S):
        return
    while True:
        sys.stderr.write("\r" + line(share(con), time.monotonic() - started))
        sys.stderr.flush()
        if done.wait(EVERY_S):
            break
    sys.stderr.write("\r\x1b[2K")
    sys.stderr.flush()


def share(con: duckdb.DuckDBPyConnection) -> float | None:
    """How much of the running query is done, from 0 to 1; None when that is not known."""
    try:
        percent = con.query_progress()
    except (duckdb.Error, RuntimeError):
        return None
    return percent / 100 if 0 <= percent <= 100 else None


def line(done: float | None, seconds: float) -> str:
    """The line: a bar when the share is known, and always the time."""
    time_and_help = f"{seconds:.0f} s  (Ctrl-C stops it)"
    if done is None:
        return f"{time_and_help:<{_WIDTH + 30}}"
    full = round(done * _WIDTH)
    return f"{done:4.0%} ▕{'█' * full}{' ' * (_WIDTH - full)}▏ {time_and_help:<24}"
