"""What a commit, a read and a compaction cost on a Copy-on-Write and on a Merge-on-Read table: a closed formula.

Pure arithmetic, nothing is measured or read here. Each operation is a list of steps with what they handle (`Amount`:
times, files, column chunks, rows, values, bytes); each step has a price (`Price`: seconds for one of each), which a calibration
has measured with real tables. `docs/advice.md` writes the same with symbols. Bytes are those of a row's values in memory,
without the meta columns; what a row takes on storage is another figure and has no part in the seconds.

Read caches: a process that has merged a log keeps the result, so the first read behind a commit merges, further ones do
not, and a commit merges the log itself when nothing has read since the last one. Only file groups that the last commit
touched are merged again, with all of their log.

Prices are those of a machine; `Own` says how much dearer or cheaper one table is, operation by operation, where that was
measured (`measure`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np

COMMIT, LOOK_UP, LOOK_THROUGH = "commit", "look_up", "look_through"
REWRITE, EDIT, APPEND = "rewrite", "edit", "append"
SCAN, OPEN, PATCH, OVERLAY = "scan", "open", "patch", "overlay"
MERGE, MATCH, KEEP, GROUP, PICK = "merge", "match", "keep", "group", "pick"
COMPACT, FOLD = "compact", "fold"
STEPS = {
    COMMIT: "a commit on the timeline",
    LOOK_UP: "where the keys are; file groups and rows searched",
    LOOK_THROUGH: "keys looked for in merged logs too; file groups with a log, live rows of the logs",
    REWRITE: "base files written anew by a Copy-on-Write commit; file groups, rows and bytes of these",
    EDIT: "rows of a batch put in their places in them; rows and bytes of the batch",
    APPEND: "log files written by a Merge-on-Read commit; log files, rows and bytes of these",
    SCAN: "base files read; file groups, rows and bytes of the table",
    OPEN: "base files that a commit has written anew, at the first read; file groups, rows and bytes of these",
    PATCH: "base rows left out for those of the logs, at every read; file groups with a log, rows and bytes of these, columns",
    OVERLAY: "live rows of the logs read, at every read; rows and bytes of these",
    MERGE: "log files decoded and merged, at the first read; log files, their columns, rows and bytes",
    MATCH: "base rows met by the records of logs, at the first read; rows of file groups with a log",
    KEEP: "merged rows put aside for further reads, at the first read; rows and bytes of these",
    GROUP: "log records of a key brought together, where logs have a key twice; their rows",
    PICK: "the newest of them chosen; rows and bytes of these",
    COMPACT: "base files written anew by a compaction, and read first; file groups, rows and bytes of these",
    FOLD: "live rows of the logs put in their places by a compaction; rows and bytes of these",
}
"""Every step, and what its amounts count."""

READS_MAX = 1e6
SHARE_MIN = 1e-6
_GRID = 121


@dataclass(frozen=True, slots=True)
class Amount:
    """What one step handles."""

    times: float = 1.0
    files: float = 0.0
    chunks: float = 0.0  # columns of files
    rows: float = 0.0
    cells: float = 0.0  # values: rows times columns
    bytes: float = 0.0

    def part(self, share: float) -> "Amount":
        """A share of it all."""
        return Amount(*(share * getattr(self, field.name) for field in fields(self)))


@dataclass(frozen=True, slots=True)
class Price:
    """Seconds per time a step is taken, per file, column of a file, row, value and byte."""

    time: float = 0.0
    file: float = 0.0
    chunk: float = 0.0
    row: float = 0.0
    cell: float = 0.0
    byte: float = 0.0

    def of(self, amount: Amount) -> float:
        by_file = self.file * amount.files + self.chunk * amount.chunks
        by_row = self.row * amount.rows + self.cell * amount.cells + self.byte * amount.bytes
        return self.time * amount.times + by_file + by_row


Prices = Mapping[str, Price]
Work = Sequence[tuple[str, Amount]]


def seconds(prices: Prices, work: Work) -> float:
    """What a piece of work costs."""
    return sum(prices[step].of(amount) for step, amount in work)


# ---------------------------------------------------------------- operations as steps


@dataclass(frozen=True, slots=True)
class Row:
    """A row: how many columns a file has (meta columns included), and the bytes of its values in memory (without)."""

    columns: float
    bytes: float

    def of(self, part: "Spread", rows: float | None = None) -> Amount:
        """The amount of handling these file groups once, or `rows` rows in them."""
        count = part.rows if rows is None else rows
        return Amount(1, part.files, part.files * self.columns, count, count * self.columns, count * self.bytes)


@dataclass(frozen=True, slots=True)
class Spread:
    """File groups and their rows."""

    files: float
    rows: float


@dataclass(frozen=True, slots=True)
class Logs:
    """Log files: how many and their rows, the file groups that have them, and the rows that live on after merging."""

    dirty: Spread
    files: float
    rows: float
    live: float


NO_LOGS = Logs(Spread(0.0, 0.0), 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Own:
    """How many times as dear as the prices say one table's operations are."""

    cow_commit: float = 1.0
    mor_commit: float = 1.0
    scan: float = 1.0
    patch: float = 1.0
    merge: float = 1.0
    compaction: float = 1.0


def commit_work(table: Spread) -> Work:
    """What both types do in a commit: find the keys."""
    return [(COMMIT, Amount()), (LOOK_UP, Amount(1, files=table.files, rows=table.rows))]


def rewrite_work(touched: Spread, changed_rows: float, row: Row) -> Work:
    """Base files with a changed row are written anew."""
    return [(REWRITE, row.of(touched)), (EDIT, row.of(Spread(0.0, changed_rows)))]


def append_work(touched: Spread, changed_rows: float, row: Row, before: "Logs") -> Work:
    """The changed rows are written to a log file of each file group that is touched, which had the logs `before`."""
    through = Amount(1, files=before.dirty.files, rows=before.live)
    return [(APPEND, row.of(touched, changed_rows)), (LOOK_THROUGH, through)]


def scan_work(table: Spread, row: Row) -> Work:
    """Every row and column of the base files is read once."""
    return [(SCAN, row.of(table))]


def open_work(written: Spread, row: Row) -> Work:
    """What the first read of base files does besides."""
    return [(OPEN, row.of(written))]


def patch_work(logs: "Logs", row: Row) -> Work:
    """What every further read of file groups with a log does besides the scan.

    Its column chunks are those of one more scan, however many file groups are in it: of the live rows of the logs,
    which lie in one file.
    """
    return [(PATCH, replace(row.of(logs.dirty), chunks=row.columns)), (OVERLAY, row.of(logs.dirty, logs.live))]


def merge_work(logs: "Logs", row: Row) -> Work:
    """What the first read of file groups with logs that are not merged does besides scan and patch."""
    decoded = row.of(Spread(logs.files, logs.rows))
    live = row.of(logs.dirty, logs.live)
    again = -math.expm1(logs.live - logs.rows)  # the chance that some key is there twice
    return [
        (MERGE, decoded),
        (MATCH, Amount(1, rows=logs.dirty.rows)),
        (KEEP, live),
        (GROUP, Amount(again, rows=again * logs.rows)),
        (PICK, live.part(again)),
    ]


def compact_work(logs: "Logs", row: Row) -> Work:
    """Base files of file groups with a log are written anew; merging comes on top when no read has done it."""
    return [(COMPACT, row.of(logs.dirty)), (FOLD, row.of(logs.dirty, logs.live))]


# ---------------------------------------------------------------- a workload


@dataclass(frozen=True)
class Workload:
    """What a table's commits do, as far as it matters for their cost.

    rows               of each file group, or of each class of file groups that are alike
    shares             of the changed rows that fall into it; they add up to 1
    changed_rows       updated, deleted or inserted by a commit
    row                a row of the table
    clump              1: rows of a commit are spread as if drawn one by one; less: they come in clumps, so that a commit
                       touches fewer file groups
    deltas             commits between two compactions
    counts             file groups in each class; empty: one each
    own                what was measured with this very table
    """

    rows: tuple[float, ...]
    shares: tuple[float, ...]
    changed_rows: float
    row: Row
    clump: float = 1.0
    deltas: int = 5
    counts: tuple[float, ...] = ()
    own: Own = Own()

    @cached_property
    def table(self) -> Spread:
        return Spread(float(self._counts.sum()), float(sum(self.rows)))

    @cached_property
    def _counts(self) -> np.ndarray:
        return np.asarray(self.counts, float) if self.counts else np.ones(len(self.rows))

    @cached_property
    def _draws(self) -> np.ndarray:
        """How many independent draws of a commit fall into each file group."""
        drawn: np.ndarray = self.clump * self._changed / self._counts
        return drawn

    @cached_property
    def _changed(self) -> np.ndarray:
        """Rows of a commit that fall into each class."""
        return spread_rows(self.rows, self.shares, self.changed_rows)

    @cached_property
    def _parts(self) -> np.ndarray:
        """Share of the rows of each class that a commit changes."""
        parts: np.ndarray = np.minimum(1.0, self._changed / np.maximum(np.asarray(self.rows, float), 1e-300))
        return parts

    @property
    def update_share(self) -> float:
        return self.changed_rows / max(1.0, self.table.rows)

    def touched(self, commits: float = 1) -> Spread:
        """File groups that so many commits touch at least once, and the rows of these (Poisson draws)."""
        chance = -np.expm1(-self._draws * commits)
        return Spread(float(chance @ self._counts), float(chance @ np.asarray(self.rows)))

    def logs(self, commits: float) -> Logs:
        """All logs of so many commits. A commit changes a row once, and each one draws its rows anew."""
        if commits == 0:
            return NO_LOGS
        live = float(np.asarray(self.rows) @ (1 - (1 - self._parts) ** commits))
        return Logs(self.touched(commits), commits * self.touched().files, commits * float(self._changed.sum()), live)

    def unmerged(self, commits: int) -> Logs:
        """Of these, the logs of the file groups that the last commit touched."""
        if commits == 0:
            return NO_LOGS
        chance = -np.expm1(-self._draws)
        again = 1 + (commits - 1) * chance  # log files of a file group that the last commit touched
        part = np.minimum(1.0, self._parts / np.maximum(chance, 1e-300))  # changed by it
        untouched = (1 - part) * (1 - self._parts) ** (commits - 1)
        files = float((self._counts * chance) @ again)
        live = float((np.asarray(self.rows) * chance) @ (1 - untouched))
        return Logs(self.touched(), files, float(self._changed @ again), live)

    def by_group(self, groups: int) -> tuple[np.ndarray, np.ndarray]:
        """For so many file groups that stand for all: the chance that a commit touches one, and what part of its rows then."""
        chance = -np.expm1(-self._draws)
        part = np.minimum(1.0, self._parts / np.maximum(chance, 1e-300))
        places = np.repeat(np.arange(len(self.rows)), self._counts.astype(int))
        chosen = places[np.linspace(0, len(places) - 1, groups).round().astype(int)]
        return chance[chosen], part[chosen]

    def at_share(self, share: float) -> "Workload":
        """The same table and spread with another update share."""
        return replace(self, changed_rows=share * self.table.rows)


def spread_rows(rows: Sequence[float], shares: Sequence[float], changed_rows: float) -> np.ndarray:
    """The changed rows of each file group: by its share, but no more than it has rows; the others take the rest."""
    sizes, weights = np.asarray(rows, float), np.asarray(shares, float)
    given = np.zeros(len(sizes))
    left = min(float(changed_rows), float(sizes.sum()))
    enough = max(1e-12 * left, 1e-12)  # of a row; a part of a number near zero is zero and would never be reached
    while left > enough:
        room = sizes - given
        open_ = room > 1e-12 * sizes
        weight = np.where(open_, weights, 0.0)
        if weight.sum() <= 0:  # what has not been touched so far takes the rest by size
            weight = np.where(open_, sizes, 0.0)
        if weight.sum() <= 0:
            break
        more = np.minimum(room, left * (weight / weight.sum()))
        given += more
        left -= float(more.sum())
    return given


# ---------------------------------------------------------------- costs of a workload


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds per commit cycle: one commit, the reads behind it, and its part of a compaction."""

    write: float
    read: float
    compaction: float

    @property
    def total(self) -> float:
        return self.write + self.read + self.compaction


def cow_commit(load: Workload, prices: Prices) -> float:
    rewrite = rewrite_work(load.touched(), load.changed_rows, load.row)
    return load.own.cow_commit * seconds(prices, [*commit_work(load.table), *rewrite])


def mor_commit(load: Workload, prices: Prices, commits: int) -> float:
    """A commit behind so many others since the last compaction, whose logs are merged."""
    append = append_work(load.touched(), load.changed_rows, load.row, load.logs(commits))
    return load.own.mor_commit * seconds(prices, [*commit_work(load.table), *append])


def mean_mor_commit(load: Workload, prices: Prices) -> float:
    """The mean over the commits between two compactions."""
    return sum(mor_commit(load, prices, k) for k in range(load.deltas)) / load.deltas


def scan(load: Workload, prices: Prices) -> float:
    """A snapshot read of a Copy-on-Write table, and a read-optimized one of a Merge-on-Read table."""
    return load.own.scan * seconds(prices, scan_work(load.table, load.row))


def opening(load: Workload, prices: Prices) -> float:
    """What the first read of the base files costs more that a commit has written anew."""
    return load.own.scan * seconds(prices, open_work(load.touched(), load.row))


def patch(load: Workload, prices: Prices, logs: Logs) -> float:
    """What a further read with these logs costs more."""
    return load.own.patch * seconds(prices, patch_work(logs, load.row)) if logs.rows else 0.0


def merge_logs(load: Workload, prices: Prices, logs: Logs) -> float:
    """Decoding and merging these logs."""
    return load.own.merge * seconds(prices, merge_work(logs, load.row)) if logs.rows else 0.0


def merge(load: Workload, prices: Prices, commits: int) -> float:
    """Decoding and merging what the last of so many commits has made unmerged."""
    return merge_logs(load, prices, load.unmerged(commits))


def warm_read(load: Workload, prices: Prices, commits: int) -> float:
    """A snapshot read of a Merge-on-Read table with the logs of so many commits, merged before."""
    return scan(load, prices) + patch(load, prices, load.logs(commits))


def first_read(load: Workload, prices: Prices, commits: int) -> float:
    """The same, the last commit not merged before."""
    return warm_read(load, prices, commits) + merge(load, prices, commits)


def fold(load: Workload, prices: Prices, logs: Logs) -> float:
    """Folding these logs into new base files, merged before."""
    return load.own.compaction * seconds(prices, compact_work(logs, load.row))


def compaction(load: Workload, prices: Prices, commits: int) -> float:
    """Folding the logs of so many commits, merged before."""
    return fold(load, prices, load.logs(commits))


def cow_costs(load: Workload, prices: Prices, reads_per_write: float) -> Costs:
    read = min(1.0, reads_per_write) * opening(load, prices) + reads_per_write * scan(load, prices)
    return Costs(cow_commit(load, prices), read, 0.0)


def mor_costs(load: Workload, prices: Prices, reads_per_write: float) -> Costs:
    """Means over the commits between two compactions."""
    seen = min(1.0, reads_per_write)  # of the commits are read before the next one comes
    steps = range(1, load.deltas + 1)
    merges = [merge(load, prices, k) for k in range(load.deltas + 1)]
    write = mean_mor_commit(load, prices) + (1 - seen) * sum(merges[:-1]) / load.deltas
    read = seen * sum(merges[1:]) / load.deltas
    read += reads_per_write * sum(warm_read(load, prices, k) for k in steps) / load.deltas
    folding = compaction(load, prices, load.deltas) + (1 - seen) * merges[-1]
    return Costs(write, read, folding / load.deltas)


def advantage(load: Workload, prices: Prices, reads_per_write: float) -> float:
    """Seconds per commit that Merge-on-Read spares; negative: that it costs more."""
    return cow_costs(load, prices, reads_per_write).total - mor_costs(load, prices, reads_per_write).total


# ---------------------------------------------------------------- where the two cost the same


def breakeven_reads(load: Workload, prices: Prices) -> float | None:
    """Reads per write at which both types cost the same; fewer speak for Merge-on-Read.

    0 when Copy-on-Write is cheaper without any read, None when Merge-on-Read is cheaper whatever is read.
    """
    low, knee = advantage(load, prices, 0.0), advantage(load, prices, 1.0)
    if low <= 0:
        return 0.0
    if knee <= 0:  # both pieces of the formula are straight lines
        return low / (low - knee)
    slope = knee - advantage(load, prices, 2.0)
    if slope <= 0 or (found := 1 + knee / slope) > READS_MAX:
        return None
    return found


def breakeven_shares(load: Workload, prices: Prices, reads_per_write: float) -> tuple[float, ...]:
    """Update shares per commit at which both types cost the same, ascending; there may be none, one or several."""
    shares = np.geomspace(max(SHARE_MIN, 1 / max(1.0, load.table.rows)), 1.0, _GRID)

    def gap(share: float) -> float:
        return advantage(load.at_share(share), prices, reads_per_write)

    gaps = [gap(s) for s in shares]
    return tuple(
        _root(gap, float(low), float(high))
        for low, high, a, b in zip(shares, shares[1:], gaps, gaps[1:], strict=False)
        if (a > 0) != (b > 0)
    )


def _root(gap: Callable[[float], float], low: float, high: float) -> float:
    positive = gap(low) > 0
    for _ in range(60):
        middle = math.sqrt(low * high)
        if (gap(middle) > 0) == positive:
            low = middle
        else:
            high = middle
    return math.sqrt(low * high)
