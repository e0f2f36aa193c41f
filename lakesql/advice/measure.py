"""What this very table costs: its rows, copied into twins of both types, put through commits like its own.

Prices of a machine do not know a table's column types, nor how its file groups lie; both move the price of a read by
more than what decides between the types. So a sample of the table's file groups (all of a small table) is
written anew as a Copy-on-Write and a Merge-on-Read table in a temporary folder, commits change as much of them as the
table's commits do, and each operation's seconds are set against what the formula says of the same work: `Own`. The table
itself is only read.
"""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from lakesql.advice.calibrate import works_of
from lakesql.advice.costs import Own, Prices, Workload, compact_work, seconds
from lakesql.advice.twins import CLOCKS, Run, Timed, Twins
from lakesql.errors import SQLError
from lakesql.table.merge import COMMIT_TIME, EVENT_TIME
from lakesql.table.names import quote
from lakesql.table.read import plan, to_sql
from lakesql.table.state import TableState

SAMPLE_ROWS, SAMPLE_BYTES = 1_000_000, 256 << 20
"""At most so many rows and bytes in memory are copied."""
_COMMITS, _WARM_READS, _COMPACTIONS = 5, 7, 3
_LEAST, _MOST = 0.05, 20.0
_MODE = "hoodie.record.merge.mode"


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured: with how many file groups and rows of how many."""

    own: Own
    groups: int
    groups_of: int
    rows: int
    clock: str

    @property
    def text(self) -> str:
        part = "all" if self.groups == self.groups_of else f"{self.groups} of its {self.groups_of}"
        clock = "" if self.clock == "wall" else ", in CPU time of all threads"
        return f"measured with copies of {part} file groups of this table as both types ({self.rows:,} rows{clock})"


def measure(
    con: duckdb.DuckDBPyConnection, state: TableState, load: Workload, prices: Prices, clock: str = "cpu"
) -> Measured:
    """Run a sample of the table as both types; takes seconds to minutes and at most some hundred megabytes, which go again.

    SQLError for a table without key columns, or with a merger of its own: a copy of it would not do the same.
    """
    _require_copyable(state)
    rows, groups, groups_of = _sample(con, state, load)
    group_rows = -(-rows.num_rows // groups)
    folder = Path(tempfile.mkdtemp(prefix="lakesql-advice-"))
    try:
        timed = Timed(con, CLOCKS[clock])
        _twins(timed, folder / "warm", state, rows.slice(0, 1000), 500).run([(np.arange(1), rows.slice(0, 1))] * 2, 1)
        twins = _twins(timed, folder / "table", state, rows, group_rows)
        commits = max(1, min(_COMMITS, load.deltas))
        twins.run(_batches(load, rows, group_rows, twins.groups, 1), 1)  # memory of this size is nobody's price
        run = twins.run(_batches(load, rows, group_rows, twins.groups, commits), _WARM_READS, _COMPACTIONS)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return Measured(own_of(twins, run, prices), twins.groups, groups_of, rows.num_rows, clock)


def own_of(twins: Twins, run: Run, prices: Prices) -> Own:
    """Seconds of each operation as a part of what the formula says."""
    pairs: dict[str, list[tuple[float, float]]] = {}
    for turn in run.turns:
        for name, work, passed in works_of(twins, turn):
            pairs.setdefault(name, []).append((max(seconds(prices, work), 1e-9), passed))
    pairs["compaction"] = [(max(seconds(prices, compact_work(run.turns[-1].after, twins.row)), 1e-9), run.compaction)]
    names = ("cow commit", "mor commit", "scan", "patch", "merge", "compaction")
    return Own(*(min(_MOST, max(_LEAST, _factor(pairs[name]))) for name in names))


def _factor(pairs: Sequence[tuple[float, float]]) -> float:
    """The median of took / said, a turn weighing as much as was said of it: a disturbed turn tells nothing."""
    found = sorted((took / said, said) for said, took in pairs)
    weights = np.cumsum([said for _, said in found])
    return found[int(np.searchsorted(weights, weights[-1] / 2))][0]


def _require_copyable(state: TableState) -> None:
    config = state.config
    if not config.record_key_fields:
        raise SQLError(
            f"{state.path}: the table has no key columns, so a copy of it cannot be updated by key. Ask for the advice "
            "without measuring."
        )
    if config.merge_mode not in (COMMIT_TIME, EVENT_TIME):
        raise SQLError(
            f"{state.path}: the table merges by rules of its own ({config.merge_mode}), which a copy would not follow. Ask "
            "for the advice without measuring."
        )


def _twins(timed: Timed, folder: Path, state: TableState, rows: pa.Table, group_rows: int) -> Twins:
    """Without partitions; a key counts within its partition, so the partition columns belong to the copy's key."""
    config = state.config
    keys = dict.fromkeys((*config.record_key_fields, *config.partition_fields))
    return Twins(
        timed, folder, rows, group_rows,
        primary_key=list(keys), ordering_fields=list(config.ordering_fields), properties={_MODE: config.merge_mode},
    )  # fmt: skip


def _sample(con: duckdb.DuckDBPyConnection, state: TableState, load: Workload) -> tuple[pa.Table, int, int]:
    """(rows, their file groups, file groups of the table): as many whole file groups as the limits allow, at least one."""
    whole = plan(state)
    count = len(whole.slices)
    most = max(1000, int(min(SAMPLE_ROWS, SAMPLE_BYTES / max(1.0, load.row.bytes))))
    groups = max(1, min(count, int(most / max(1.0, load.table.rows / count))))
    chosen = np.linspace(0, count - 1, groups).round().astype(int)
    part = replace(whole, slices=tuple(whole.slices[i] for i in chosen))
    names = state.schema.names
    sql = f"SELECT {', '.join(map(quote, names))} FROM ({to_sql(con, part, names)}) LIMIT {most}"
    rows = con.cursor().sql(sql).to_arrow_table()
    if not rows.num_rows:
        raise SQLError(f"{state.path}: the table has no rows, so nothing can be measured. Load it first.")
    return rows.cast(state.schema), groups, count


def _batches(
    load: Workload, rows: pa.Table, group_rows: int, groups: int, commits: int
) -> Iterator[tuple[np.ndarray, pa.Table]]:
    """Commits that touch file groups as often as the table's do, and change as much of each that they touch."""
    draw = np.random.default_rng(0)
    chances, parts = load.by_group(groups)
    sizes = [min(group_rows, rows.num_rows - g * group_rows) for g in range(groups)]
    for _ in range(commits):
        hit = draw.random(groups) < chances
        hit[int(np.argmax(chances))] |= not hit.any()
        counts = [max(1, min(n, round(n * p))) for n, p in zip(sizes, parts, strict=True)]
        numbers = np.concatenate(
            [g * group_rows + draw.choice(sizes[g], counts[g], replace=False) for g in np.flatnonzero(hit)]
        )
        yield numbers, rows.take(pa.array(numbers))
