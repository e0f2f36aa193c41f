"""Measuring the prices of this machine: real tables of both types in a temporary folder, written, read and compacted.

A grid of tables (file groups, rows, narrow and wide rows) and of commits (share of rows, all file groups or half of
them) is run by `twins`; every commit, read and compaction is a `Measurement` with the work it did, and `fit` makes prices
of them. What a read of Merge-on-Read takes longer is measured and fitted as a difference, since it decides. One more
table grows a log step by step: the curve of read time against unmerged log bytes.
"""

import os
import platform
import shutil
import tempfile
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
from lakesql.advice.costs import Work
from lakesql.advice.fit import Measurement, prices_of, relative_errors
from lakesql.advice.twins import CLOCKS, Run, Timed, Turn, Twins
from lakesql.storage import open_storage
from lakesql.table.listing import look

__all__ = ["CLOCKS", "calibrate"]

Progress = Callable[[float], None]
"""Told the part that is done, 0 to 1."""

_WARM_READS = 5


@dataclass(frozen=True, slots=True)
class _Size:
    """A table of the grid."""

    groups: int
    rows: int  # per file group
    extra: int  # columns besides key, time and two numbers
    kinds: str = "t"  # of these, in turn: t text, r text that repeats, n whole number, d decimal number, m moment

    @property
    def all_rows(self) -> int:
        return self.groups * self.rows


_SIZES = (
    _Size(4, 6_000, 1, "r"),
    _Size(16, 4_000, 24, "tndrm"),
    _Size(10, 26_000, 0),
    _Size(8, 12_000, 10, "ndmn"),
    _Size(6, 45_000, 2, "dm"),
    _Size(9, 24_000, 16, "nrdnt"),
    _Size(5, 110_000, 4, "tnr"),
    _Size(3, 160_000, 12, "ntdrm"),
)
_COMMITS = ((0.001, 1.0, 3), (0.02, 1.0, 3), (0.1, 0.5, 3), (0.3, 1.0, 3), (1.0, 1.0, 2))
"""(share of the rows of the file groups that are touched, share of the file groups, commits of this kind)."""
_FIRST = (0.1, 1.0, 1, 99)
"""A commit that is not measured: share, share of the file groups, commits, seed."""
_SCALES = {costs.PATCH: 0.1, costs.OPEN: 0.25, costs.MERGE: 0.25}
"""A difference of two reads counts against itself, but at least against this part of the first: it is not known better."""
_CURVE_SIZE = _Size(6, 25_000, 3, "rtn")
_CURVE_SHARES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.5)


def _unseen(part: float) -> None:
    """Nobody watches."""


def calibrate(clock: str = "cpu", progress: Progress = _unseen) -> Calibration:
    """Measure this machine; takes about three minutes and some hundred megabytes of temporary files, which are removed."""
    folder = Path(tempfile.mkdtemp(prefix="lakesql-calibration-"))
    try:
        with duckdb.connect() as con:
            timed = Timed(con, CLOCKS[clock])
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


def _warm_up(timed: Timed, folder: Path) -> None:
    """Imports, threads and first allocations are nobody's price."""
    size = _Size(2, 500, 1)
    _twins(timed, folder / "warm", size).run(_batches(size, 0.1, 1.0, 2, 0), 1)


def _twins(timed: Timed, folder: Path, size: _Size) -> Twins:
    rows = _rows(size, np.arange(size.all_rows), 0)
    return Twins(timed, folder, rows, size.rows, primary_key=["id"], ordering_fields=["ts"])


def _batches(size: _Size, share: float, part: float, commits: int, seed: int) -> Iterator[tuple[np.ndarray, pa.Table]]:
    for turn in range(commits):
        numbers = _chosen(size, share, part, 100 * seed + turn)
        yield numbers, _rows(size, numbers, turn + 1)


def _measure(timed: Timed, folder: Path, size: _Size) -> tuple[list[Measurement], tuple[float, float, float]]:
    """All measurements with tables of one size, and the bytes of a row: (values in memory, in a log, in a base file)."""
    twins = _twins(timed, folder, size)
    twins.run(_batches(size, *_FIRST), 1)  # the first commit of a size waits for memory that the next ones have
    found: list[Measurement] = []
    log_bytes = log_rows = 0
    for number, (share, part, commits) in enumerate(_COMMITS):
        run = twins.run(_batches(size, share, part, commits, number), _WARM_READS)
        found += measurements_of(twins, run)
        log_bytes, log_rows = log_bytes + run.log_bytes, log_rows + sum(t.changed for t in run.turns)
    return found, (twins.row.bytes, log_bytes / log_rows, twins.base_bytes / size.all_rows)


def measurements_of(twins: Twins, run: Run) -> Iterator[Measurement]:
    """The operations of a run with their work. Differences of reads count against a part of what was subtracted."""
    for turn in run.turns:
        for name, work, seconds in works_of(twins, turn):
            further = turn.scan + (turn.patch if name == costs.MERGE else 0.0)
            yield Measurement(name, work, seconds, max(seconds, _SCALES.get(name, 0.0) * further))
    yield Measurement(costs.COMPACT, costs.compact_work(run.turns[-1].after, twins.row), run.compaction)


def works_of(twins: Twins, turn: Turn) -> Iterator[tuple[str, Work, float]]:
    """(name, work, seconds) of the operations of a turn."""
    row = twins.row
    common = costs.commit_work(twins.whole)
    append = costs.append_work(turn.touched, turn.changed, row, turn.before)
    yield "cow commit", [*common, *costs.rewrite_work(turn.touched, turn.changed, row)], turn.cow_commit
    yield "mor commit", [*common, *append], turn.mor_commit
    yield costs.SCAN, costs.scan_work(twins.whole, row), turn.scan
    yield costs.OPEN, costs.open_work(turn.touched, row), turn.opening
    yield costs.PATCH, costs.patch_work(turn.after, row), turn.patch
    yield costs.MERGE, costs.merge_work(turn.unmerged, row), turn.merge


def _curve(timed: Timed, folder: Path) -> Iterator[CurvePoint]:
    """Snapshot reads of one table while its log grows."""
    size = _CURVE_SIZE
    _twins(timed, folder, size)
    table = open_storage(folder / "mor")
    log_rows = 0
    for number, share in enumerate((0.0, *_CURVE_SHARES)):
        if share:
            batch = _rows(size, _chosen(size, share, 1.0, number), number)
            timed.write(table, batch)
            log_rows += batch.num_rows
        slices = look(table).slices()
        first = timed.read(table)
        yield CurvePoint(
            base_bytes=sum(s.base.size_bytes for s in slices if s.base),
            log_bytes=sum(f.size_bytes for s in slices for f in s.logs),
            log_rows=log_rows,
            first_s=first,
            warm_s=min(timed.read(table) for _ in range(_WARM_READS)),
        )


def _chosen(size: _Size, share: float, part: float, seed: int) -> np.ndarray:
    """Numbers of the rows to change: that share of each of the first file groups."""
    groups = max(1, round(size.groups * part))
    count = max(1, round(size.rows * share))
    draw = np.random.default_rng(seed)
    return np.concatenate([g * size.rows + draw.choice(size.rows, count, replace=False) for g in range(groups)])


def _rows(size: _Size, numbers: np.ndarray, moment: int) -> pa.Table:
    """Rows by number: a key in no order, a time, two numbers, then the columns that the size asks for."""
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
        columns[f"extra_{number}"] = _values(size.kinds[number % len(size.kinds)], draw, count)
    return pa.table(columns)


def _values(kind: str, draw: np.random.Generator, count: int) -> pa.Array:
    if kind == "d":
        return pa.array(draw.random(count).round(3) * 1000)
    values = pa.array(draw.integers(0, 3000 if kind == "r" else 10**9, count))
    if kind == "m":
        return values.cast(pa.timestamp("us"))
    return values if kind == "n" else values.cast(pa.string())
