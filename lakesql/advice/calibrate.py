"""Measuring the prices of this machine: real tables of both types in a temporary folder, written and read.

A grid of tables (file groups, rows, narrow and wide rows) and of commits (share of rows, all file groups or a quarter of
them) is run; every commit and read is a `Measurement` with the work it did, and `fit` makes prices of them. One more
table grows a log step by step: the curve of read time against unmerged log bytes.

The price of a compaction is that of rewriting the same base files in a Copy-on-Write commit.
"""

import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from lakesql.advice import costs
from lakesql.advice.calibration import Calibration, CurvePoint
from lakesql.advice.costs import Spread
from lakesql.advice.facts import row_of
from lakesql.advice.fit import Measurement, prices_of, relative_errors
from lakesql.storage import open_storage
from lakesql.table.known_settings import make_utc
from lakesql.table.read import plan, to_sql
from lakesql.table.state import TableState, load
from lakesql.write import WriteResult, create, write

Clock = Callable[[], float]
Progress = Callable[[float], None]
"""Told the part that is done, 0 to 1."""

CLOCKS: dict[str, Clock] = {"wall": time.perf_counter, "cpu": time.process_time}
_SPLIT = "hoodie.copyonwrite.insert.split.size"
_WARM_READS = 3
_TURNS = 3  # commits of a kind, each on top of the ones before


@dataclass(frozen=True, slots=True)
class _Size:
    """A table of the grid."""

    groups: int
    rows: int  # per file group
    extra: int  # columns besides key, time and two numbers: two texts, a number, and so on

    @property
    def all_rows(self) -> int:
        return self.groups * self.rows


_SIZES = (
    _Size(3, 4_000, 1),
    _Size(16, 3_000, 2),
    _Size(4, 40_000, 1),
    _Size(12, 12_000, 4),
    _Size(4, 16_000, 16),
    _Size(16, 2_500, 24),
)
_COMMITS = ((0.002, 1.0), (0.05, 0.25), (0.12, 1.0), (0.6, 1.0))
"""(share of the rows of the file groups that are touched, share of the file groups)."""
_CURVE_SIZE = _Size(6, 25_000, 3)
_CURVE_SHARES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5)


@dataclass(frozen=True, slots=True)
class _Timed:
    con: duckdb.DuckDBPyConnection
    clock: Clock

    def write(self, state: TableState, rows: pa.Table) -> tuple[WriteResult, float]:
        cursor = self.con.cursor()
        make_utc(cursor)
        cursor.register("__lakesql_calibration", rows)
        before = self.clock()
        result = write(cursor, state, "SELECT * FROM __lakesql_calibration", operation="upsert")
        return result, self.clock() - before

    def read(self, path: Path) -> float:
        """Seconds of a snapshot read of every row and column."""
        cursor = self.con.cursor()
        make_utc(cursor)
        before = self.clock()
        now = load(open_storage(path))
        with cursor.sql(to_sql(cursor, plan(now))).to_arrow_reader() as batches:
            for _ in batches:
                pass
        return self.clock() - before

    def reads(self, path: Path) -> tuple[float, float]:
        """(the first read behind a commit, the median of the next ones)."""
        first = self.read(path)
        return first, float(np.median([self.read(path) for _ in range(_WARM_READS)]))


def _unseen(part: float) -> None:
    """Nobody watches."""


def calibrate(clock: str = "wall", progress: Progress = _unseen) -> Calibration:
    """Measure this machine; takes about a minute and some hundred megabytes of temporary files, which are removed."""
    folder = Path(tempfile.mkdtemp(prefix="lakesql-calibration-"))
    try:
        with duckdb.connect() as con:
            timed = _Timed(con, CLOCKS[clock])
            _warm_up(timed, folder)
            measurements: list[Measurement] = []
            widths: list[tuple[float, float, float]] = []
            for number, size in enumerate(_SIZES):
                found, width = _measure(timed, folder / str(number), size)
                measurements += found
                widths.append(width)
                progress((number + 1) / (len(_SIZES) + 1))
                shutil.rmtree(folder / str(number))
            curve = tuple(_curve(timed, folder / "curve"))
            progress(1.0)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    prices = prices_of(measurements)
    prices[costs.COMPACT] = prices[costs.REWRITE]
    values, logged, stored = np.array(widths).T
    slope, start = np.polyfit(values, logged, 1).tolist()
    return Calibration(
        prices=prices,
        log_row=(start, slope),
        base_ratio=float(np.median(stored / values)),
        curve=curve,
        error=float(np.median(np.abs(relative_errors(measurements, prices)))),
        measured=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, duckdb {version('duckdb')}",
        clock=clock,
    )


def _warm_up(timed: _Timed, folder: Path) -> None:
    """Imports, threads and first allocations are nobody's price."""
    size = _Size(2, 500, 1)
    for kind in ("cow", "mor"):
        path = folder / f"warm-{kind}"
        _new_table(timed, path, kind, size)
        timed.write(load(open_storage(path)), _rows(size, np.arange(100), 1))
        timed.reads(path)


def _measure(timed: _Timed, folder: Path, size: _Size) -> tuple[list[Measurement], tuple[float, float, float]]:
    """All measurements with tables of one size, and the bytes of a row: (values in memory, in a log, in a base file)."""
    found: list[Measurement] = []
    cow, mor = folder / "cow", folder / "mor"
    for path in (cow, mor):
        _new_table(timed, path, path.name, size)
    state = load(open_storage(cow))
    row = row_of(timed.con, state)
    assert row is not None, "a table that was just written has a base file"
    whole = Spread(size.groups, size.all_rows)
    base_bytes = sum(f.size_bytes for f in state.base_files())
    log_bytes = log_rows = 0.0
    for number, (share, part) in enumerate(_COMMITS):
        batches = [_rows(size, _chosen(size, share, part, 3 * number + turn), turn + 1) for turn in range(_TURNS)]
        for batch in batches:
            result, taken = timed.write(load(open_storage(cow)), batch)
            touched = Spread(result.files_written, result.files_written * size.rows)
            work = [*costs.commit_work(whole, batch.num_rows, row), *costs.rewrite_work(touched, row)]
            found.append(Measurement("cow commit", work, taken))
            found.append(Measurement("cow read", costs.scan_work(whole, row), timed.reads(cow)[1]))
        copy = folder / f"mor-{number}"
        shutil.copytree(mor, copy, copy_function=os.link)
        merged = log_files = 0
        for batch in batches:
            result, taken = timed.write(load(open_storage(copy)), batch)
            merged += batch.num_rows
            log_bytes, log_rows = log_bytes + result.bytes_written, log_rows + batch.num_rows
            touched = Spread(result.files_written, result.files_written * size.rows)
            common = costs.commit_work(whole, batch.num_rows, row)
            work = [*common, *costs.append_work(touched, batch.num_rows, row)]
            found.append(Measurement("mor commit", work, taken))
            dirty = _dirty(copy, size)
            log_files += result.files_written
            first, warm = timed.reads(copy)
            work = [*costs.scan_work(whole, row), *costs.patch_work(dirty, row)]
            found.append(Measurement("mor read", work, warm))
            found.append(
                Measurement("mor first read", [*work, *costs.merge_work(dirty, log_files, merged, row)], first)
            )
        shutil.rmtree(copy)
    return found, (row.bytes, log_bytes / log_rows, base_bytes / size.all_rows)


def _dirty(path: Path, size: _Size) -> Spread:
    dirty = sum(bool(piece.logs) for piece in load(open_storage(path)).slices())
    return Spread(dirty, dirty * size.rows)


def _curve(timed: _Timed, path: Path) -> Iterator[CurvePoint]:
    """Snapshot reads of one table while its log grows."""
    size = _CURVE_SIZE
    _new_table(timed, path, "mor", size)
    log_rows = 0
    for number, share in enumerate((0.0, *_CURVE_SHARES)):
        if share:
            batch = _rows(size, _chosen(size, share, 1.0, number), number)
            timed.write(load(open_storage(path)), batch)
            log_rows += batch.num_rows
        slices = load(open_storage(path)).slices()
        first, warm = timed.reads(path)
        yield CurvePoint(
            base_bytes=sum(s.base.size_bytes for s in slices if s.base),
            log_bytes=sum(f.size_bytes for s in slices for f in s.logs),
            log_rows=log_rows,
            first_s=first,
            warm_s=warm,
        )


def _new_table(timed: _Timed, path: Path, kind: str, size: _Size) -> None:
    rows = _rows(size, np.arange(size.all_rows), 0)
    state = create(open_storage(path), rows.schema, name="t", type=kind, primary_key=["id"], ordering_fields=["ts"])
    cursor = timed.con.cursor()
    make_utc(cursor)
    cursor.register("__lakesql_calibration", rows)
    write(
        cursor,
        state,
        "SELECT * FROM __lakesql_calibration",
        operation="bulk_insert",
        settings={_SPLIT: str(size.rows)},
    )


def _chosen(size: _Size, share: float, part: float, seed: int) -> np.ndarray:
    """Numbers of the rows to change: that share of each of the first file groups."""
    groups = max(1, round(size.groups * part))
    count = max(1, round(size.rows * share))
    draw = np.random.default_rng(seed)
    return np.concatenate([g * size.rows + draw.choice(size.rows, count, replace=False) for g in range(groups)])


def _rows(size: _Size, numbers: np.ndarray, moment: int) -> pa.Table:
    """Rows by number: a key in no order, a time, two numbers, then texts that repeat, texts that do not, numbers."""
    draw = np.random.default_rng(moment)
    count = len(numbers)
    keys = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    columns = {
        "id": pa.array([f"{key:016x}" for key in keys.tolist()]),
        "ts": pa.array(np.full(count, moment, np.int64)),
        "quantity": pa.array(draw.integers(0, 1000, count)),
        "amount": pa.array(draw.random(count).round(4)),
    }
    for number in range(size.extra):
        values = pa.array(draw.integers(0, 10**9 if number % 3 else 3000, count))
        columns[f"extra_{number}"] = values if number % 3 == 2 else values.cast(pa.string())
    return pa.table(columns)
