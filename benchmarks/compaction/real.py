"""The cost model against real tables: Merge-on-Read tables written by lakesql, compacted and read, small but real.

First a table of its own gives the constants of this machine: bytes of a log record, seconds of compactions and of reads of
known size. Then write patterns are replayed twice, in the simulated table and in a real one: the same commits, the same
strategy after each. Compared are bytes rewritten, seconds of compaction and seconds of reading after each commit. Real
tables live on a clock of their own, a minute per commit, so that strategies see in both the same times. Reads and
compactions start without merged logs in memory, as in a process that has not seen the table yet.
"""

import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

import lakesql
from lakesql.services.adaptive_model import Costs, Target
from lakesql.services.adaptive_settings import PREFIX, READ_AMPLIFICATION
from lakesql.services.compaction import compact
from lakesql.services.compaction_plan import ADAPTIVE, STRATEGY
from lakesql.simulation.patterns import PATTERNS
from lakesql.simulation.strategies import adaptive, hudi
from lakesql.simulation.world import COMMIT_S, MB, Choose, World
from lakesql.table import deltas, read
from lakesql.table.state import load
from lakesql.write import write

ROWS, RUNS = 100_000, 3
GROUPS, COMMITS = 12, 12
WARM_COMMITS = 4
TOLERANCE = 0.25
SHARES = ((1, 0.02), (1, 0.5), (4, 0.02), (4, 0.3), (12, 0.02), (12, 0.15), (12, 0.5))
"""What is measured for the constants: (groups, share of their rows that is updated)."""
SCHEMA = pa.schema(
    [("id", pa.int64()), ("p", pa.string()), ("name", pa.string()), ("amount", pa.float64()), ("ts", pa.int64())]
)
_EVERY = "hoodie.compact.inline.max.delta.commits"


class Clock:
    """Epoch milliseconds that pass when somebody looks, and when they are told to."""

    def __init__(self, minutes: float) -> None:
        self.now = int(time.time() * 1000 - minutes * 60_000)

    def __call__(self) -> int:
        self.now += 1
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += round(seconds * 1000)


def rows_of(rows: int) -> np.ndarray:
    """How many rows each file group has: they differ, so that what a group costs and what its bytes cost can be told apart."""
    return (np.linspace(0.4, 1.6, GROUPS) * rows).astype(np.int64)


class RealTable:
    """A table of GROUPS partitions with one file group each, whose rows have been updated before.

    Base files of a first load are smaller than all later ones: one commit time, and rows in the order of their numbers.
    """

    def __init__(self, folder: Path, rows: int, seed: int, runs: int = 1) -> None:
        self.counts = rows_of(rows)
        self.stride = int(self.counts.max())
        self.rng = np.random.default_rng(seed)
        self.con = duckdb.connect()
        self.clock = Clock(COMMITS + WARM_COMMITS + len(SHARES) * runs + 10)
        table = lakesql.create_table(
            str(folder / f"t{seed}"),
            SCHEMA,
            type="mor",
            primary_key=["id"],
            partitioned_by=["p"],
            ordering_fields=["ts"],
            properties={"hoodie.table.timeline.timezone": "UTC"},
        )
        self.storage = table.state.storage
        self.write(self.counts, "bulk_insert")
        for _ in range(WARM_COMMITS):
            self.write(self.counts * 2 // 5)
        self.compact({})

    def write(self, amounts: np.ndarray, operation: str = "upsert") -> None:
        """So many different rows of each group, with new values."""
        parts = []
        for group in np.flatnonzero(amounts):
            ids = self.rng.choice(self.counts[group], int(amounts[group]), replace=False)
            parts.append(ids + group * self.stride)
        ids = np.concatenate(parts)
        count = len(ids)
        batch = pa.table(
            {
                "id": ids,
                "p": pa.array([f"p{n:02}" for n in ids // self.stride]),
                "name": pa.array([f"name {n}" for n in self.rng.integers(0, 1 << 48, count)]),
                "amount": self.rng.random(count),
                "ts": np.full(count, self.clock()),
            },
            schema=SCHEMA,
        )
        self.con.register("batch", batch)
        write(self.con, load(self.storage), "SELECT * FROM batch", operation=operation, settings={}, clock=self.clock)
        self.con.unregister("batch")
        self.clock.wait(COMMIT_S)

    def sizes(self) -> tuple[np.ndarray, np.ndarray]:
        """Bytes of base files and logs, by group."""
        slices = load(self.storage).slices()
        assert len(slices) == GROUPS, "every partition is one file group"
        return (
            np.array([s.base.size_bytes for s in slices if s.base]),
            np.array([sum(f.size_bytes for f in s.logs) for s in slices]),
        )

    def read(self) -> float:
        """Seconds of a snapshot read of everything."""
        deltas._cache.clear()
        began = time.perf_counter()
        plan = read.plan(load(self.storage))
        for _ in self.con.sql(read.to_sql(self.con, plan)).to_arrow_reader():
            pass
        return time.perf_counter() - began

    def compact(self, settings: Mapping[str, str], only_due: bool = False) -> tuple[float, int]:
        """(seconds, bytes of new base files), zeros when nothing was due."""
        deltas._cache.clear()
        began = time.perf_counter()
        done = compact(self.con, self.storage, settings, only_due=only_due, clock=self.clock)
        return (time.perf_counter() - began if done.instants else 0.0), done.bytes_written


# ---------------------------------------------------------------- the constants of this machine


@dataclass(frozen=True, slots=True)
class Machine:
    """The cost model with measured constants."""

    costs: Costs
    merging_s: float
    """Of a read of a table that has logs, and of each group that has some."""
    merged_s: float
    file_bytes: float
    """Of a log file, and of each record in it."""
    record_bytes: float

    def reading(self, world: World) -> float:
        logs = float(world.unmerged.sum()) * self.costs.log_read
        dirty = int((world.unmerged > 0).sum())
        merging = (self.merging_s if dirty else 0.0) + self.merged_s * dirty
        return merging + self.costs.base_read_s * (float(world.base.sum()) + logs)


def calibrated(folder: Path, rows: int, runs: int) -> Machine:
    """Measure the constants: each of SHARES, so many times."""
    table = RealTable(folder, rows, seed=1, runs=runs)
    table.read()  # what the first read of a process loads is no part of the model
    works, works_s, reads, reads_s, records, sizes = [], [], [], [], [], []
    for groups, share in SHARES * runs:
        amounts = np.zeros(GROUPS, np.int64)
        chosen = table.rng.permutation(GROUPS)[:groups]
        amounts[chosen] = (table.counts[chosen] * share).astype(np.int64)
        table.write(amounts)
        base, logs = table.sizes()
        touched = logs > 0
        records.append([1.0, amounts.sum() / groups])
        sizes.append(logs.sum() / groups)
        reads.append([base.sum(), 1.0, touched.sum(), logs.sum()])
        reads_s.append(table.read())
        works.append([1.0, touched.sum(), base[touched].sum(), logs.sum()])
        works_s.append(table.compact({})[0])
        base, logs = table.sizes()
        reads.append([base.sum(), 0.0, 0.0, 0.0])
        reads_s.append(table.read())
    per_file, per_record = _fit(records, sizes)
    base_read, merging_s, merged_s, log_read = _fit(reads, reads_s)
    round_s, group_s, base_s, log_s = _fit(works, works_s)
    costs = Costs(round_s, group_s, base_s, log_s, base_read, log_read / base_read)
    return Machine(costs, merging_s, merged_s, per_file, per_record)


def _fit(rows: list[list[float]], values: list[float]) -> list[float]:
    """Factors, none negative, with least squares of relative errors."""
    a, b = np.array(rows, float), np.array(values, float)
    kept = list(range(a.shape[1]))
    while True:
        weighted = a[:, kept] / b[:, None]
        scale = np.linalg.norm(weighted, axis=0)
        found = np.linalg.lstsq(weighted / scale, np.ones(len(b)), rcond=None)[0] / scale
        if (found >= 0).all() or len(kept) == 1:
            factors = np.zeros(a.shape[1])
            factors[kept] = found
            return [float(f) for f in factors]
        kept.pop(int(np.argmin(found)))


# ---------------------------------------------------------------- prediction against measurement


@dataclass(frozen=True, slots=True)
class Totals:
    """What a replay came to."""

    rewritten: float
    compaction_s: float
    read_s: float


def predicted(machine: Machine, base: np.ndarray, records: np.ndarray, choose: Choose) -> Totals:
    """The replay in the simulated table; compactions end before the next commit."""
    world = World(base.copy(), machine.costs, period_s=0.0)
    compaction_s = read_s = 0.0
    for row in records:
        world.commit(np.where(row > 0, machine.file_bytes + row * machine.record_bytes, 0).astype(np.int64))
        world.advance(world.now + COMMIT_S)
        read_s += machine.reading(world)
        chosen = choose(world)
        if chosen:
            compaction_s += machine.costs.planning + sum(machine.costs.compacting(world.group(g)) for g in chosen)
            world.finish(chosen)
            world.advance(world.now + 1.0)  # the next commit comes after it
    return Totals(world.rewritten, compaction_s, read_s)


def measured(
    folder: Path, rows: int, records: np.ndarray, settings: Mapping[str, str], seed: int
) -> tuple[Totals, np.ndarray]:
    """The replay in a real table; its base files before."""
    table = RealTable(folder, rows, seed)
    base, _ = table.sizes()
    compaction_s = read_s = 0.0
    rewritten = 0
    for row in records:
        table.write(row)
        read_s += table.read()
        took, size = table.compact(settings, only_due=True)
        compaction_s += took
        rewritten += size
    return Totals(rewritten, compaction_s, read_s), base


def strategies(machine: Machine) -> dict[str, tuple[Choose, Mapping[str, str]]]:
    """Name -> the same strategy for the simulated and for the real table."""
    target = 1 + 0.15 * machine.costs.log_read
    return {
        "every 3 commits": (hudi(**{_EVERY: "3"}), {_EVERY: "3"}),
        f"adaptive, reads {target:.2f}": (
            adaptive(Target(read_amplification=target)),
            {
                STRATEGY: ADAPTIVE,
                READ_AMPLIFICATION: str(target),
                f"{PREFIX}log_read_cost": str(machine.costs.log_read),
            },
        ),
    }


def checked(rows: int, runs: int) -> tuple[str, list[str]]:
    """(the report, what was off by more than TOLERANCE)."""
    before = os.getloadavg()[0]
    folder = Path(tempfile.mkdtemp(prefix="compaction-"))
    lines: list[str] = []
    wrong: list[str] = []
    try:
        machine = calibrated(folder, rows, runs)
        seed = 10
        for pattern in ("uniform", "zipf", "hot_partition"):
            records = PATTERNS[pattern](np.random.default_rng(3), COMMITS, GROUPS, rows * GROUPS // 20)
            records = np.minimum(records, rows_of(rows))
            for name, (choose, settings) in strategies(machine).items():
                real = []
                for _ in range(runs):
                    seed += 1
                    totals, base = measured(folder, rows, records, settings, seed)
                    real.append(totals)
                    shutil.rmtree(folder / f"t{seed}")
                model = predicted(machine, base, records, choose)
                lines += _compared(f"{pattern}, {name}", model, _median(real), wrong)
    finally:
        shutil.rmtree(folder)
    return _report(rows, runs, before, machine, lines), wrong


def _median(found: list[Totals]) -> Totals:
    return Totals(*(statistics.median(getattr(t, f) for t in found) for f in Totals.__slots__))


def _compared(name: str, model: Totals, real: Totals, wrong: list[str]) -> list[str]:
    lines = []
    for field, unit, scale in (("rewritten", "MB", MB), ("compaction_s", "s", 1.0), ("read_s", "s", 1.0)):
        expected, got = getattr(model, field) / scale, getattr(real, field) / scale
        off = expected / got - 1 if got else (0.0 if not expected else float("inf"))
        if abs(off) > TOLERANCE:
            wrong.append(f"{name}: {field} predicted {expected:.3f} {unit}, measured {got:.3f} {unit} ({off:+.0%})")
        lines.append(f"| {name} | {field} | {expected:,.3f} {unit} | {got:,.3f} {unit} | {off:+.1%} |")
    return lines


def _report(rows: int, runs: int, before: float, machine: Machine, lines: list[str]) -> str:
    costs = machine.costs
    head = [
        "# The cost model of compaction against real runs",
        "",
        f"{GROUPS} file groups of {rows:,} rows on average, {COMMITS} commits, median of {runs} runs, load average {before:.2f} before "
        f"and {os.getloadavg()[0]:.2f} after. Measured first: a plan {costs.round_s:.3f} s, a file group "
        f"{costs.group_s:.3f} s, base files {1 / max(costs.base_byte_s, 1e-12) / MB:.0f} MB/s, logs "
        f"{1 / max(costs.log_byte_s, 1e-12) / MB:.0f} MB/s; a read that merges {machine.merging_s:.3f} s and "
        f"{machine.merged_s:.3f} s per group; a log record {machine.record_bytes:.0f} bytes, reading a log byte "
        f"{costs.log_read:.2f} times a base byte.",
        "",
        "| replay | figure | predicted | measured | off by |",
        "|---|---|---:|---:|---:|",
    ]
    return "\n".join([*head, *lines]) + "\n"
