"""A Copy-on-Write and a Merge-on-Read table with the same rows, put through the same commits, reads and a compaction.

Both take turns commit by commit and read by read, so that whatever else the machine does meets both: what decides between
the types is the difference of two operations, and it is timed as one. Each `Turn` tells with its seconds what was
touched, counted from the rows that were really changed. The tables lie in a folder of whoever asks; nothing is predicted here.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from lakesql.advice.costs import NO_LOGS, Logs, Row, Spread
from lakesql.advice.facts import row_of
from lakesql.services.compaction import compact
from lakesql.services.maintenance import maintain
from lakesql.storage import Storage, open_storage
from lakesql.table.known_settings import make_utc
from lakesql.table.listing import look
from lakesql.table.read import plan, to_sql
from lakesql.table.state import TableState, load
from lakesql.write import WriteResult, create, write

Clock = Callable[[], float]

CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "cpu": time.process_time}
_SPLIT = "hoodie.copyonwrite.insert.split.size"
_ROWS = "__lakesql_twins"


@dataclass(frozen=True, slots=True)
class Turn:
    """One commit on both tables and the reads behind it, in seconds.

    before, after   all logs of the Merge-on-Read table before and after the commit
    unmerged        the logs of the file groups that the commit touched, which the first read merges
    scan, patch     a further read of the Copy-on-Write table, and what one of Merge-on-Read takes longer; the medians
    opening         what the first read of Copy-on-Write takes longer than a further one: its new base files
    merge           what the first read of Merge-on-Read takes longer than a further one
    """

    changed: int
    touched: Spread
    before: Logs
    after: Logs
    unmerged: Logs
    cow_commit: float
    mor_commit: float
    scan: float
    opening: float
    patch: float
    merge: float


@dataclass(frozen=True, slots=True)
class Timed:
    """Operations with the seconds they take."""

    con: duckdb.DuckDBPyConnection
    clock: Clock

    def write(self, table: Storage, rows: pa.Table) -> tuple[WriteResult, float]:
        """An upsert as every caller of the package has it, with the services that are due."""
        cursor = self._cursor()
        cursor.register(_ROWS, rows)
        before = self.clock()
        state = look(table)
        result = write(cursor, state, f"SELECT * FROM {_ROWS}", operation="upsert")
        maintain(cursor, table, state.config.properties)
        return result, self.clock() - before

    def read(self, table: Storage) -> float:
        """A snapshot read of every row and column."""
        cursor = self._cursor()
        before = self.clock()
        with cursor.sql(to_sql(cursor, plan(look(table)))).to_arrow_reader() as batches:
            for _ in batches:
                pass
        return self.clock() - before

    def compact(self, table: Storage) -> float:
        cursor = self._cursor()
        before = self.clock()
        compact(cursor, table, {})
        return self.clock() - before

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        cursor = self.con.cursor()
        make_utc(cursor)
        return cursor


class Twins:
    """Two tables with `group_rows` rows in each file group; rows are known by their number, file group by file group."""

    def __init__(
        self,
        timed: Timed,
        folder: Path,
        rows: pa.Table,
        group_rows: int,
        *,
        primary_key: list[str],
        ordering_fields: list[str],
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.group_rows, self.count = group_rows, rows.num_rows
        self.groups = -(-rows.num_rows // group_rows)
        self._timed, self._folder = timed, folder
        for kind in ("cow", "mor"):
            path = folder / kind
            state = create(
                open_storage(path), rows.schema, name="t", type=kind, primary_key=primary_key,
                ordering_fields=ordering_fields, properties=properties,
            )  # fmt: skip
            _fill(timed.con, state, rows, group_rows)
        state = load(open_storage(folder / "cow"))
        self.base_bytes = sum(f.size_bytes for f in state.base_files())
        row = row_of(timed.con, state)
        assert row is not None, "a table that was just written has a base file"
        self.row: Row = row

    @property
    def whole(self) -> Spread:
        return Spread(self.groups, self.count)

    def run(self, batches: Iterable[tuple[np.ndarray, pa.Table]], warm_reads: int, compactions: int = 1) -> "Run":
        """The commits (numbers of the rows, rows) one by one on copies of both tables, then compactions of copies.

        A process that reads has read before, so both tables are read first.
        """
        cow, mor = (open_storage(self._copy(kind)) for kind in ("cow", "mor"))
        for table in (cow, mor):
            self._timed.read(table)
        live = np.zeros(self.count, bool)
        files, logged = np.zeros(self.groups), np.zeros(self.groups)
        turns, log_bytes = [], 0
        before = NO_LOGS
        for numbers, rows in batches:
            cow_result, cow_s = self._timed.write(cow, rows)
            mor_result, mor_s = self._timed.write(mor, rows)
            assert cow_result.files_written == mor_result.files_written, "both types touch the same file groups"
            hit = np.bincount(numbers // self.group_rows, minlength=self.groups)
            files, logged = files + (hit > 0), logged + hit
            live[numbers] = True
            after = self._logs(files > 0, files, logged, live)
            cow_first, mor_first = self._both(cow, mor)
            scan, further = np.median([self._both(cow, mor) for _ in range(warm_reads)], axis=0)
            touched = Spread(float((hit > 0).sum()), float(self._sizes[hit > 0].sum()))
            unmerged = self._logs(hit > 0, files, logged, live)
            seconds = (cow_s, mor_s, scan, cow_first - scan, further - scan, mor_first - further)
            turns.append(Turn(len(numbers), touched, before, after, unmerged, *map(float, seconds)))
            before, log_bytes = after, log_bytes + mor_result.bytes_written
        compaction = float(np.median([self._compaction(mor) for _ in range(compactions)])) - turns[-1].scan
        for table in (cow, mor):
            shutil.rmtree(table.uri)
        return Run(tuple(turns), compaction, log_bytes)

    def _compaction(self, mor: Storage) -> float:
        """Of a copy whose logs have been merged by a read, with the first read behind it."""
        copy = open_storage(self._copy(Path(mor.uri).name))
        self._timed.read(copy)
        seconds = self._timed.compact(copy) + self._timed.read(copy)
        shutil.rmtree(copy.uri)
        return seconds

    def _both(self, cow: Storage, mor: Storage) -> tuple[float, float]:
        return self._timed.read(cow), self._timed.read(mor)

    @property
    def _sizes(self) -> np.ndarray:
        sizes = np.full(self.groups, self.group_rows)
        sizes[-1] = self.count - self.group_rows * (self.groups - 1)
        return sizes

    def _logs(self, chosen: np.ndarray, files: np.ndarray, logged: np.ndarray, live: np.ndarray) -> Logs:
        """The logs of these file groups."""
        alive = np.add.reduceat(live, np.arange(0, self.count, self.group_rows), dtype=int)
        dirty = Spread(float(chosen.sum()), float(self._sizes[chosen].sum()))
        return Logs(dirty, float(files[chosen].sum()), float(logged[chosen].sum()), float(alive[chosen].sum()))

    def _copy(self, kind: str) -> Path:
        """A fresh copy; data files are never changed in place, so links do."""
        number = 0
        while (target := self._folder / f"{kind}-{number}").exists():
            number += 1
        shutil.copytree(self._folder / kind, target, copy_function=os.link)
        return target


@dataclass(frozen=True, slots=True)
class Run:
    """What `Twins.run` has seen; `compaction` in seconds, of the logs behind the last turn, with what the first read behind
    it takes longer than a further one."""

    turns: tuple[Turn, ...]
    compaction: float
    log_bytes: int


def _fill(con: duckdb.DuckDBPyConnection, state: TableState, rows: pa.Table, group_rows: int) -> None:
    cursor = con.cursor()
    make_utc(cursor)
    cursor.register(_ROWS, rows)
    sql = f"SELECT * FROM {_ROWS}"
    write(cursor, state, sql, operation="bulk_insert", settings={_SPLIT: str(group_rows)})
