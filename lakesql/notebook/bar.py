"""How a statement goes on, in a notebook: a bar of plain HTML below the cell, which is gone when the statement ends.

It is shown when a statement takes longer than a second. DuckDB tells the share of the query that runs at the moment; a
write runs several of them, one after the other. An ingestion tells its records.
"""

import threading
import time
from abc import ABC, abstractmethod
from html import escape
from types import TracebackType
from typing import Any

import duckdb
import IPython.display

from lakesql.ingest.model import Committed, Plan, TopicPartition
from lakesql.ingest.progress import Silent, readable
from lakesql.waiting import counting, share

display: Any = IPython.display.display
HTML: Any = IPython.display.HTML

FIRST_S = 1.0
EVERY_S = 0.4
_TITLE_MAX = 60


class _Shown(ABC):
    """A line with a bar below the cell, drawn anew by a thread of its own as long as the context lasts."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._draw, name="lakesql-bar", daemon=True)
        self._started = 0.0

    @abstractmethod
    def state(self) -> tuple[str, float | None]:
        """What is going on, and how much of it is done, from 0 to 1; None: that is not known."""

    def _draw(self) -> None:
        if self._over.wait(FIRST_S):
            return
        shown = display(HTML(self._html()), display_id=True)
        while not self._over.wait(EVERY_S):
            shown.update(HTML(self._html()))
        shown.update(HTML(""))

    def _html(self) -> str:
        text, done = self.state()
        value = "" if done is None else f' value="{done:.3f}"'
        bar = f'<progress max="1"{value} style="width:16em;vertical-align:middle"></progress>'
        return f'<div style="font-size:13px">{bar} {escape(text)}, {time.perf_counter() - self._started:.0f} s</div>'

    def _begin(self) -> None:
        self._started = time.perf_counter()
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()


class Bar(_Shown):
    """The bar of one statement on a DuckDB connection."""

    def __init__(self, con: duckdb.DuckDBPyConnection, statement: str) -> None:
        super().__init__()
        self._con = con
        self._counting = counting(con)
        line = " ".join(statement.split())
        self._title = line if len(line) <= _TITLE_MAX else f"{line[:_TITLE_MAX]}…"

    def __enter__(self) -> "Bar":
        self._counting.__enter__()
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._counting.__exit__(None, None, None)

    def state(self) -> tuple[str, float | None]:
        return self._title, share(self._con)


class Waiting(_Shown, Silent):
    """The bar of an ingestion, for `Connection.show_progress`."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._text = "Planning"
        self._records = self._bytes = self._gone = self._total = 0
        self._ends: dict[TopicPartition, int] = {}
        self._at: dict[TopicPartition, int] = {}

    def __enter__(self) -> "Waiting":
        self._begin()
        return self

    def state(self) -> tuple[str, float | None]:
        with self._lock:
            if not self._total:
                return self._text, None
            counts = f"{self._records:,} records, {readable(self._bytes)}, lag {self._total - self._gone:,}"
            return f"{self._text}: {counts}", self._gone / self._total

    def planned(self, plan: Plan) -> None:
        with self._lock:
            self._text = "Reading"
            self._ends = {one.at: one.high for one in plan.ranges}
            self._at = {one.at: one.low for one in plan.ranges}
            self._total = sum(one.records for one in plan.ranges)

    def moved(self, at: TopicPartition, offset: int, records: int, size: int) -> None:
        with self._lock:
            self._records += records
            self._bytes += size
            within = min(offset, self._ends.get(at, offset))
            self._gone += within - self._at.get(at, within)
            self._at[at] = within

    def note(self, text: str) -> None:
        display(HTML(f'<div style="font-size:13px">{escape(text)}</div>'))

    def committing(self, target: str) -> None:
        self._say(f"Committing to {_short(target)}")

    def committed(self, target: str, done: Committed) -> None:
        self._say(f"Committed {done.commit} to {_short(target)}")

    def _say(self, text: str) -> None:
        with self._lock:
            self._text = text


def _short(target: str) -> str:
    return target.rstrip("/").rpartition("/")[2]
