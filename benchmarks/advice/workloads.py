"""The workloads of the grid, and running one of them really: commits, reads and compactions of one table.

A table has GROUPS file groups with the same number of rows and a key in no order. A commit updates a share of the rows,
spread over the file groups evenly (uniform) or by a power of their number (zipf); no more than a file group has rows.
The tables are other ones than the calibration's: rows, columns and values differ.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

import lakesql
from lakesql.advice.costs import spread_rows

GROUPS = 12
DELTAS = 5  # commits between two compactions
WARM_READS = 7
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
    """Seconds of one table type under one workload.

    All but the last are of commits that are each read at once, one number per commit: the commit, its first read, the
    fastest of the further reads; then one compaction. sparse: twice as many commits, one read among them, two compactions.
    """

    writes: tuple[float, ...]
    first_reads: tuple[float, ...]
    warm_reads: tuple[float, ...]
    compaction: float
    sparse: float

    def total(self, reads_per_write: float) -> float:
        """Seconds per commit, with its reads and its part of a compaction. Further reads count as the fastest that was run."""
        if reads_per_write < 1:
            return self.sparse / (2 * DELTAS)
        reads = sum(self.first_reads) + (reads_per_write - 1) * sum(self.warm_reads)
        return (sum(self.writes) + reads + self.compaction) / DELTAS


@dataclass
class Seen:
    """A Measured in the making."""

    writes: list[float] = field(default_factory=list)
    first_reads: list[float] = field(default_factory=list)
    warm_reads: list[float] = field(default_factory=list)
    compaction: float = 0.0
    sparse: float = 0.0

    def measured(self) -> Measured:
        lists = (tuple(self.writes), tuple(self.first_reads), tuple(self.warm_reads))
        return Measured(*lists, self.compaction, self.sparse)


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

    def run(self, work: Workload, turn: int) -> tuple[dict[str, Measured], dict[str, lakesql.Table]]:
        """The seconds of both types, and the tables after the dense commits, whose timelines the advice is made from.

        Both types take turns commit by commit and read by read, so that whatever else the machine does meets both.
        """
        batches = [self._batch(self._chosen(work, 100 * turn + k), k + 1) for k in range(2 * DELTAS)]
        kinds = ("cow", "mor") if turn % 2 == 0 else ("mor", "cow")
        found, dense = self.dense(batches[:DELTAS], kinds)
        for cycle in range(2):
            for kind, seconds in self.sparse(batches[cycle * DELTAS :][:DELTAS], kinds, read=cycle == 1).items():
                found[kind].sparse += seconds
        return {kind: seen.measured() for kind, seen in found.items()}, dense

    def dense(
        self, batches: Sequence[pa.Table], kinds: Sequence[str]
    ) -> tuple[dict[str, "Seen"], dict[str, lakesql.Table]]:
        """Commits that are each read at once and again, then a compaction of a copy."""
        dense = {kind: self._copy(kind, "dense") for kind in kinds}
        found = {kind: Seen() for kind in kinds}
        for batch in batches:
            for kind, table in dense.items():
                found[kind].writes.append(self._timed(lambda batch=batch, table=table: table.upsert(batch)))
                found[kind].first_reads.append(self._read(table))
            warm = [[self._read(dense[kind]) for kind in kinds] for _ in range(WARM_READS)]
            for kind, fastest in zip(kinds, np.min(warm, axis=0), strict=True):
                found[kind].warm_reads.append(float(fastest))
        found["mor"].compaction = self._compact(self._copy_of(dense["mor"]))
        return found, dense

    def sparse(self, batches: Sequence[pa.Table], kinds: Sequence[str], read: bool) -> dict[str, float]:
        """Commits with one read among them, or none, then a compaction, which merges what the last commit has logged."""
        tables = {kind: self._copy(kind, "sparse") for kind in kinds}
        found = dict.fromkeys(kinds, 0.0)
        for number, batch in enumerate(batches):
            for kind, table in tables.items():
                found[kind] += self._timed(lambda batch=batch, table=table: table.upsert(batch))
                if read and number == DELTAS // 2:
                    found[kind] += self._read(table)
        found["mor"] += self._compact(tables["mor"])
        return found

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
