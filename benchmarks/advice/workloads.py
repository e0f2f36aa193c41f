"""The workloads of the grid, and running one of them really: commits, reads and compactions of one table.

A table has GROUPS file groups with the same number of rows and a key in no order. A commit updates a share of the rows,
spread over the file groups evenly (uniform) or by a power of their number (zipf); no more than a file group has rows.
The tables are other ones than the calibration's: rows, columns and values differ.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

import lakesql
from lakesql.advice.costs import spread_rows

GROUPS = 6
DELTAS = 5  # commits between two compactions
SPARSE_READS = 0.1  # per commit
WARM_READS = 4
_ZIPF = 3.0
_COLUMNS = {"narrow": 2, "wide": 18}

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Workload:
    """One point of the grid, without the reads."""

    width: str
    spread: str
    share: float

    def __str__(self) -> str:
        return f"{self.width} rows, {self.spread}, {self.share:.1%} updated"


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds of one table type under one workload, one number per commit: the commit, its first read, the median of the
    further reads; then one compaction, with what the first read behind it takes longer than a further one."""

    writes: tuple[float, ...]
    first_reads: tuple[float, ...]
    warm_reads: tuple[float, ...]
    compaction: float

    @property
    def parts(self) -> tuple[float, ...]:
        return (*self.writes, *self.first_reads, *self.warm_reads, self.compaction)


@dataclass
class Seen:
    """A Measured in the making."""

    writes: list[float] = field(default_factory=list)
    first_reads: list[float] = field(default_factory=list)
    warm_reads: list[float] = field(default_factory=list)
    compaction: float = 0.0

    def measured(self) -> Measured:
        return Measured(tuple(self.writes), tuple(self.first_reads), tuple(self.warm_reads), self.compaction)


class Runner:
    """Tables of one width, and the workloads run on copies of them."""

    def __init__(self, folder: Path, width: str, rows_per_group: int, clock: Clock) -> None:
        self._folder, self._width, self._rows, self._clock = folder, width, rows_per_group, clock
        for kind in ("cow", "mor"):
            first = self._batch(np.arange(GROUPS * rows_per_group), 0)
            table = lakesql.create_table(
                str(folder / kind), first.schema, type=kind, primary_key=["id"], ordering_fields=["ts"]
            )
            table.bulk_insert(first, **{"hoodie.copyonwrite.insert.split.size": str(rows_per_group)})
        self._warm_up()

    def _warm_up(self) -> None:
        """A commit, reads and a compaction that nobody times: the first of their size wait for memory that the next ones have."""
        batch = next(self._batches(Workload(self._width, "uniform", 0.1), 0, 1))
        for kind in ("cow", "mor"):
            table = self._copy(kind, "warm")
            table.upsert(batch)
            self._read(table)
            if kind == "mor":
                self._compaction(table)

    def dense(self, work: Workload, turn: int) -> tuple[dict[str, Measured], dict[str, lakesql.Table]]:
        """Commits that are each read at once and again, then a compaction of a copy: the seconds of both types, and the
        tables before the compaction, whose timelines the advice is made from.

        Both types take turns commit by commit and read by read, so that whatever else the machine does meets both. A
        process that reads has read before, so both tables are read first.
        """
        kinds = _in_turns(turn)
        tables = {kind: self._copy(kind, "dense") for kind in kinds}
        found = {kind: Seen() for kind in kinds}
        for table in tables.values():
            self._read(table)
        for batch in self._batches(work, turn, DELTAS):
            for kind, table in tables.items():
                found[kind].writes.append(self._timed(lambda batch=batch, table=table: table.upsert(batch)))
            for kind, table in tables.items():
                found[kind].first_reads.append(self._read(table))
            warm = [[self._read(tables[kind]) for kind in kinds] for _ in range(WARM_READS)]
            for kind, median in zip(kinds, np.median(warm, axis=0), strict=True):
                found[kind].warm_reads.append(float(median))
        found["mor"].compaction = self._compaction(tables["mor"]) - found["cow"].warm_reads[-1]
        return {kind: seen.measured() for kind, seen in found.items()}, tables

    def sparse(self, work: Workload, turn: int) -> tuple[float, float]:
        """Seconds per commit of both types with SPARSE_READS: two cycles of commits with one read among them, each with
        its compaction, which merges what the last commit has logged."""
        kinds = _in_turns(turn)
        tables = {kind: self._copy(kind, "sparse") for kind in kinds}
        found = dict.fromkeys(kinds, 0.0)
        for table in tables.values():
            self._read(table)
        for number, batch in enumerate(self._batches(work, turn, 2 * DELTAS)):
            for kind, table in tables.items():
                found[kind] += self._timed(lambda batch=batch, table=table: table.upsert(batch))
                if number == DELTAS + DELTAS // 2:
                    found[kind] += self._read(table)
            if number % DELTAS == DELTAS - 1:
                found["mor"] += self._compact(tables["mor"])
        return found["cow"] / (2 * DELTAS), found["mor"] / (2 * DELTAS)

    def _compaction(self, table: lakesql.Table) -> float:
        """Seconds of a compaction of a copy, with the first read behind it."""
        copy = self._copy_of(table)
        return self._compact(copy) + self._read(copy)

    def _compact(self, table: lakesql.Table) -> float:
        """Seconds of a compaction of all file groups that have a log, planned and run."""
        dirty = sum(bool(s.logs) for s in table.state.slices())
        taken = self._timed(table.compact)
        if not dirty or any(s.logs for s in table.state.slices()):
            raise SystemExit(f"wrong result: a compaction of {dirty} file groups with a log has left some")
        return taken

    def _timed(self, call: Callable[[], object]) -> float:
        before = self._clock()
        call()
        return self._clock() - before

    def _read(self, table: lakesql.Table) -> float:
        """Seconds of a snapshot read of every row and column."""
        before = self._clock()
        rows = sum(batch.num_rows for batch in table.read())
        taken = self._clock() - before
        if rows != GROUPS * self._rows:
            raise SystemExit(f"wrong result: {rows} rows instead of {GROUPS * self._rows}")
        return taken

    def _copy(self, kind: str, name: str) -> lakesql.Table:
        return self._link(self._folder / kind, self._folder / f"{kind}-{name}")

    def _copy_of(self, table: lakesql.Table) -> lakesql.Table:
        """A copy whose logs are merged as those of the table are."""
        copy = self._link(Path(table.path), Path(f"{table.path}-copy"))
        self._read(copy)
        return copy

    def _link(self, source: Path, path: Path) -> lakesql.Table:
        """A fresh copy; data files are never changed in place, so links do."""
        number = 0
        while (target := path.with_name(f"{path.name}-{number}")).exists():
            number += 1
        shutil.copytree(source, target, copy_function=os.link)
        return lakesql.open_table(str(target))

    def _batches(self, work: Workload, turn: int, count: int) -> Iterator[pa.Table]:
        for number in range(count):
            yield self._batch(self._chosen(work, 100 * turn + number), number + 1)

    def _chosen(self, work: Workload, seed: int) -> np.ndarray:
        """Numbers of the rows that a commit updates."""
        draw = np.random.default_rng(seed)
        count = max(1, round(work.share * GROUPS * self._rows))
        if work.spread == "uniform":
            return draw.choice(GROUPS * self._rows, count, replace=False)
        weights = np.arange(1, GROUPS + 1) ** -_ZIPF
        wanted = draw.multinomial(count, weights / weights.sum())
        fits = np.floor(spread_rows([self._rows] * GROUPS, wanted / wanted.sum(), count) + 0.5).astype(int)
        chosen = [g * self._rows + draw.choice(self._rows, n, replace=False) for g, n in enumerate(fits) if n]
        return np.concatenate(chosen)

    def _batch(self, numbers: np.ndarray, moment: int) -> pa.Table:
        draw = np.random.default_rng(moment)
        count = len(numbers)
        keys = (numbers.astype(np.uint64) + np.uint64(1)) * np.uint64(0xD1B54A32D192ED03)
        columns: dict[str, pa.Array] = {
            "id": pa.array([f"key-{key:016x}" for key in keys.tolist()]),
            "ts": pa.array(np.full(count, moment, np.int64)).cast(pa.timestamp("us", "UTC")),
        }
        for number in range(_COLUMNS[self._width]):
            if number % 3 == 0:
                columns[f"amount_{number}"] = pa.array(draw.integers(0, 10**6, count) / 100)
            elif number % 3 == 1:
                columns[f"count_{number}"] = pa.array(draw.integers(0, 5_000, count))
            else:
                values = pa.array(draw.integers(0, 10**6, count)).cast(pa.string())
                columns[f"remark_{number}"] = pa.compute.binary_join_element_wise("remark", values, " ")
        return pa.table(columns)


def _in_turns(turn: int) -> tuple[str, str]:
    """Which type goes first."""
    return ("cow", "mor") if turn % 2 == 0 else ("mor", "cow")
