"""A simulated table: file slices of the real kind, a clock, one compactor, and what readers see meanwhile.

Commits come at even steps (COMMIT_S seconds) and bring log bytes by a pattern. After each, when the compactor is idle, the strategy
chooses; what it chooses takes the seconds that the cost model of `lakesql.services.adaptive` says, and logs that come
meanwhile stay on top of the new base files. Base files keep their size: updates of rows that are there.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC

import numpy as np

from lakesql.format.files import BaseFile, FileSlice, LogFile
from lakesql.format.timeline import COMPLETED, Instant, Timeline, new_instant_time
from lakesql.services.adaptive_facts import MEMORY_S
from lakesql.services.adaptive_model import Costs, Facts, Group, Run, measured_factor
from lakesql.simulation.patterns import partition_of

COMMIT_S = 60.0
STEPS = 5
START_MS = 1_767_225_600_000
MB = 1 << 20
RECORD_BYTES = 1000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a strategy cost and what readers got."""

    rewritten: int
    compactor_share: float
    read_mean: float
    read_p95: float
    read_max: float
    stale_mean: float
    stale_p95: float
    stale_max: float
    reads: tuple[float, ...] = field(repr=False, default=())
    """Read amplification at every step."""
    stale: tuple[float, ...] = field(repr=False, default=())
    """Seconds that the read-optimized view is behind, at every step."""
    written: tuple[int, ...] = field(repr=False, default=())
    """Bytes rewritten up to every step."""


Choose = Callable[["World"], Sequence[int]]
"""The numbers of the groups to compact now; none when nothing is due."""


class World:
    """The table as it is now."""

    def __init__(self, base: np.ndarray, costs: Costs, period_s: float = COMMIT_S) -> None:
        groups = len(base)
        self.costs = costs
        self.base = base
        self.period_s = period_s
        self.logs: list[list[tuple[float, int]]] = [[] for _ in range(groups)]
        """Per group the logs that are not merged: (time of the commit, bytes)."""
        self.unmerged = np.zeros(groups, np.int64)
        self.now = 0.0
        self.instants: list[Instant] = []
        self.runs: list[tuple[float, float, int, int, int]] = []
        """When a compaction ended, how long it took, groups, bytes of base files and of logs."""
        self._busy: tuple[float, float, Sequence[int], list[list[tuple[float, int]]]] | None = None
        self._weighted = np.zeros(groups)
        self._touched = np.zeros(groups)
        self.rewritten = 0

    @property
    def groups(self) -> int:
        return len(self.base)

    @property
    def idle(self) -> bool:
        return self._busy is None

    def now_ms(self) -> int:
        return START_MS + round(self.now * 1000)

    def commit(self, log_bytes: np.ndarray) -> None:
        """A delta commit now."""
        for group in np.flatnonzero(log_bytes):
            self.logs[group].append((self.now, int(log_bytes[group])))
        self.unmerged += log_bytes
        self._weighted += log_bytes
        self._touched += log_bytes > 0
        self._note("deltacommit", self.now)

    def start(self, chosen: Sequence[int]) -> None:
        """Begin to compact these groups."""
        taken = [list(self.logs[g]) for g in chosen]
        seconds = self.costs.planning + sum(self.costs.compacting(self.group(g)) for g in chosen)
        self._busy = (self.now, self.now + seconds, list(chosen), taken)

    def advance(self, to: float) -> None:
        """Let time pass; a compaction that ends meanwhile is complete."""
        decay = math.exp(-(to - self.now) / MEMORY_S)
        self._weighted *= decay
        self._touched *= decay
        self.now = to
        if self._busy is not None and self._busy[1] <= to:
            self._complete(*self._busy)

    def finish(self, chosen: Sequence[int]) -> None:
        """Compact these groups at once."""
        self._complete(self.now, self.now, chosen, [list(self.logs[g]) for g in chosen])

    def _complete(
        self, began: float, ended: float, chosen: Sequence[int], taken: list[list[tuple[float, int]]]
    ) -> None:
        for group, logs in zip(chosen, taken, strict=True):
            del self.logs[group][: len(logs)]
            self.unmerged[group] -= sum(size for _, size in logs)
        written = int(self.base[list(chosen)].sum())
        self.rewritten += written
        merged = sum(size for logs in taken for _, size in logs)
        self.runs.append((ended, ended - began, len(chosen), written, merged))
        self._note("compaction", began, ended)
        self._busy = None

    def _note(self, action: str, requested: float, completed: float | None = None) -> None:
        times = [
            new_instant_time(START_MS + round(t * 1000) + 1, UTC)
            for t in (requested, requested if completed is None else completed)
        ]
        self.instants.append(Instant(times[0], action, COMPLETED, times[1], ""))

    # what a strategy may ask

    def group(self, number: int) -> Group:
        logs = self.logs[number]
        span = max(self.now, self.period_s)
        norm = MEMORY_S * -math.expm1(-span / MEMORY_S)
        return Group(
            key=(f"p{partition_of(number, self.groups):02}", f"g{number:03}"),
            base_bytes=int(self.base[number]),
            log_bytes=int(self.unmerged[number]),
            log_files=len(logs),
            age_s=self.now - logs[0][0] if logs else 0.0,
            rate=float(self._weighted[number] / norm),
            touches=float(self._touched[number] / norm),
        )

    def facts(self) -> Facts:
        runs = tuple(Run(self.now - ended, took, n, base, logs) for ended, took, n, base, logs in self.runs)
        costs = Costs(log_read=self.costs.log_read)
        return Facts(
            groups=tuple(self.group(g) for g in range(self.groups)),
            runs=runs,
            costs=Costs(log_read=costs.log_read, factor=measured_factor(runs, costs)),
            period_s=self.period_s,
            folds=False,
        )

    def slices(self) -> list[FileSlice]:
        """The file slices as the planning functions want them."""
        found = []
        for number in range(self.groups):
            partition, file_id = self.group(number).key
            base = BaseFile(partition, f"{file_id}_0-0-1_1.parquet", file_id, "0-0-1", "1", int(self.base[number]))
            logs = tuple(
                LogFile(partition, f".{file_id}_{n}.log.1_0-0-1", file_id, str(n), 1, "0-0-1", size)
                for n, (_, size) in enumerate(self.logs[number])
            )
            found.append(FileSlice(partition, file_id, "1", base, logs))
        return found

    def timeline(self) -> Timeline:
        """The instants that a trigger looks at."""
        return Timeline(2, tuple(sorted(self.instants[-200:], key=lambda i: i.requested)))

    def seen(self) -> tuple[float, float]:
        """(read amplification, seconds that the read-optimized view is behind) now."""
        oldest = min((logs[0][0] for logs in self.logs if logs), default=self.now)
        return 1 + float(self.unmerged.sum()) * self.costs.log_read / float(self.base.sum()), self.now - oldest


def simulate(records: np.ndarray, base_bytes: int, choose: Choose, costs: Costs) -> Outcome:
    """Replay a pattern against a strategy: base files of about `base_bytes`, a commit per COMMIT_S."""
    base = np.random.default_rng(1).uniform(0.7, 1.3, (records.shape[1],)) * base_bytes
    return replay(records * RECORD_BYTES, base.astype(np.int64), choose, costs)


def replay(
    log_bytes: np.ndarray, base: np.ndarray, choose: Choose, costs: Costs, commit_s: float = COMMIT_S
) -> Outcome:
    """What a strategy costs with log_bytes[commit, group] coming to base files of these sizes, a commit per `commit_s`."""
    world = World(base, costs, commit_s)
    seen = []
    busy = 0.0
    for row in log_bytes:
        world.commit(row)
        if world.idle:
            chosen = choose(world)
            if chosen:
                world.start(chosen)
        began = world.now
        for step in range(1, STEPS + 1):
            seen.append((*world.seen(), world.rewritten))
            busy += 0 if world.idle else commit_s / STEPS
            world.advance(began + step * commit_s / STEPS)
    reads, stale, written = np.array(seen).T
    return Outcome(
        rewritten=world.rewritten,
        compactor_share=busy / world.now,
        read_mean=float(reads.mean()),
        read_p95=float(np.quantile(reads, 0.95)),
        read_max=float(reads.max()),
        stale_mean=float(stale.mean()),
        stale_p95=float(np.quantile(stale, 0.95)),
        stale_max=float(stale.max()),
        reads=tuple(float(r) for r in reads),
        stale=tuple(float(s) for s in stale),
        written=tuple(int(w) for w in written),
    )
