"""What a table's own timeline and files say about its commits: rows changed, file groups touched, bytes written.

Questions to a `TableState`, answered from write stats (hudi-format 2.7) and the listing; only `row_of` looks into a
file. A change is a completed commit that met file groups which were there: it updates, deletes, or adds rows to them.
First loads, overwrites and services are no changes. What the timeline no longer has is not guessed.

Rows before a commit are counted back from those of today, by inserts, deletes and the file groups that overwrites took out.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import duckdb
import numpy as np
import pyarrow as pa

from lakesql.advice.costs import Row, Workload
from lakesql.format.avro import META_COLUMNS
from lakesql.format.metadata import CommitMetadata, WriteStat
from lakesql.format.timeline import Instant, instant_millis
from lakesql.table.names import literal
from lakesql.table.state import TableState

Group = tuple[str, str]  # partition path, file id

CHANGES_MIN = 3
"""With fewer commits that change rows nothing is said about the next ones."""
COMMITS_MAX = 500
"""So many of the newest commits are looked at."""

_COMPACT, _SERVICES = "COMPACT", ("COMPACT", "CLUSTER", "LOG_COMPACT")
_MAX_DELTAS = "hoodie.compact.inline.max.delta.commits"
_DELTAS_DEFAULT = 5  # Hudi's
_SAMPLE_ROWS = 2_000
_CLASSES_MAX = 256
"""File groups are put together into so many classes, by how much of them changes."""


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A live file group: its newest slice."""

    base_rows: float
    base_bytes: int
    log_rows: int
    log_bytes: int
    log_files: int
    added_rows: int  # inserts less deletes in its logs

    @property
    def rows(self) -> float:
        return max(0.0, self.base_rows + self.added_rows)


@dataclass(frozen=True, slots=True)
class Change:
    """One commit that changed rows of file groups that were there."""

    instant: str
    rows_before: float
    changed: Mapping[Group, int]  # rows changed in each of these file groups
    inserts: int
    updates: int
    deletes: int
    group_rows: float  # of all file groups it touched
    bytes_written: int
    seconds: float | None  # from request to completion, where the timeline stores both

    @property
    def changed_rows(self) -> int:
        return sum(self.changed.values())

    @property
    def share(self) -> float:
        """Rows updated or deleted, of the rows there were."""
        return (self.updates + self.deletes) / max(1.0, self.rows_before)


@dataclass(frozen=True)
class Facts:
    """Everything that `table_facts` found."""

    is_mor: bool
    commits: int
    changes: tuple[Change, ...]
    groups: Mapping[Group, GroupFacts]
    compactions: int
    deltas_open: int  # commits since the newest compaction
    deltas: int  # commits between two compactions
    service_bytes: int
    base_row_bytes: float | None
    log_row_bytes: float | None
    interval_s: float | None

    @property
    def enough(self) -> bool:
        return len(self.changes) >= CHANGES_MIN and self.rows > 0

    @cached_property
    def rows(self) -> float:
        return sum(g.rows for g in self.groups.values())

    @cached_property
    def base_bytes(self) -> int:
        return sum(g.base_bytes for g in self.groups.values())

    @cached_property
    def log_bytes(self) -> int:
        return sum(g.log_bytes for g in self.groups.values())

    @cached_property
    def log_rows(self) -> int:
        return sum(g.log_rows for g in self.groups.values())

    @property
    def log_files(self) -> int:
        return sum(g.log_files for g in self.groups.values())

    @property
    def update_share(self) -> float:
        """Mean share of the rows that a change updates or deletes."""
        return float(np.mean([c.share for c in self.changes]))

    @property
    def changed_rows(self) -> float:
        return float(np.mean([c.changed_rows for c in self.changes]))

    @property
    def groups_touched(self) -> float:
        return float(np.mean([len(c.changed) for c in self.changes]))

    @property
    def touched_share(self) -> float:
        """Mean share of the file groups that a change touches."""
        return min(1.0, self.groups_touched / max(1, len(self.groups)))

    @property
    def bytes_written(self) -> int:
        """By the changes, and by the services between them."""
        return sum(c.bytes_written for c in self.changes) + self.service_bytes

    def log_shares(self) -> np.ndarray:
        """Log bytes per base byte of each file group that has a base file."""
        return np.array([g.log_bytes / g.base_bytes for g in self.groups.values() if g.base_bytes])

    @property
    def rows_changed(self) -> int:
        """By all changes."""
        return sum(c.changed_rows for c in self.changes)

    @property
    def rows_rewritten(self) -> float:
        """That Copy-on-Write has to write, or did, for the changes: all of the file groups that each of them touches."""
        return sum(c.group_rows for c in self.changes)

    def rows_compacted(self) -> float:
        """That compactions of Merge-on-Read would write for the changes, an unfinished cycle counted by its commits."""
        folded = 0.0
        for first in range(0, len(self.changes), self.deltas):
            window = self.changes[first : first + self.deltas]
            dirty = {group for change in window for group in change.changed}
            part = len(window) / self.deltas
            folded += part * sum(self.groups[g].rows for g in dirty if g in self.groups)
        return folded

    def workload(self, row: Row) -> Workload:
        """The mean change. `clump` makes it touch as many file groups as the changes did.

        File groups that one commit alone has touched say how likely a new one is met (Good and Turing's estimate);
        that chance goes to those not touched so far, by their rows.
        """
        names = list(self.groups)
        rows = [max(1.0, self.groups[n].rows) for n in names]
        counts = np.array([sum(c.changed.get(n, 0) for c in self.changes) for n in names], float)
        hits = np.array([sum(n in c.changed for c in self.changes) for n in names], float)
        if not counts.sum():  # all that was changed lies in file groups that are gone
            counts = np.array(rows)
        shares = counts / counts.sum()
        unseen = np.where(counts == 0, np.array(rows), 0.0)
        new = float((hits == 1).sum() / hits.sum()) if hits.sum() else 0.0
        if unseen.sum() and new:
            new = min(new, 0.5)
            shares = (1 - new) * shares + new * unseen / unseen.sum()
        classes = np.array_split(np.argsort(shares / np.array(rows)), min(len(names), _CLASSES_MAX))
        load = Workload(
            tuple(float(np.array(rows)[c].sum()) for c in classes),
            tuple(float(shares[c].sum()) for c in classes),
            self.changed_rows,
            row,
            deltas=self.deltas,
            counts=tuple(float(len(c)) for c in classes),
        )
        return _clumped(load, self.groups_touched)


def _clumped(load: Workload, touched: float) -> Workload:
    """The workload with so much fewer independent draws than rows that a commit touches that many file groups."""
    low, high = 1e-9, 1.0
    if load.touched().files <= touched:
        return load
    for _ in range(60):
        middle = (low * high) ** 0.5
        if replace(load, clump=middle).touched().files < touched:
            low = middle
        else:
            high = middle
    return replace(load, clump=(low * high) ** 0.5)


# ---------------------------------------------------------------- from a state


def table_facts(state: TableState) -> Facts:
    """The facts of a table, from its active timeline and its files."""
    writes = state.timeline.completed_writes()[-COMMITS_MAX:]
    known = [(instant, state.commit(instant)) for instant in writes]
    groups = _groups(state, known)
    rows_after = sum(g.rows for g in groups.values())
    changes: list[Change] = []
    gone, lost = _overwritten(known)
    sizes = lost | {group: one.rows for group, one in groups.items()}
    for instant, commit in reversed(known):
        stats = list(_stats(commit))
        if _operation(commit) in _SERVICES:
            continue
        inserts = sum(s.num_inserts or 0 for _, s in stats)
        deletes = sum(s.num_deletes or 0 for _, s in stats)
        rows_before = max(0.0, rows_after - inserts + deletes + gone.get(instant.requested, 0.0))
        if not commit.replaced and (change := _change(state, instant, stats, sizes, rows_before)):
            changes.append(change)
        rows_after = rows_before
    changes.reverse()
    counted = [(b.base_rows, b.base_bytes) for b in groups.values() if b.base_rows and b.base_bytes]
    compactions = [i for i, commit in known if _operation(commit) == _COMPACT]
    newest = compactions[-1].requested if compactions else ""
    open_ = sum(c.instant > newest for c in changes) if state.config.is_mor else 0
    return Facts(
        is_mor=state.config.is_mor,
        commits=len(writes),
        changes=tuple(changes),
        groups=groups,
        compactions=len(compactions),
        deltas_open=open_,
        deltas=_deltas(state, changes, compactions),
        service_bytes=_service_bytes(known, changes),
        base_row_bytes=sum(b for _, b in counted) / sum(r for r, _ in counted) if counted else None,
        log_row_bytes=_log_row_bytes(known),
        interval_s=_interval(changes),
    )


def row_of(con: duckdb.DuckDBPyConnection, state: TableState) -> Row | None:
    """What a row of the table is like, from the first rows of the largest base file; None without a base file."""
    files = [f for f in state.base_files() if f.name.endswith(".parquet")]
    if not files:
        return None
    state.storage.attach(con)
    path = state.storage.data_path(max(files, key=lambda f: f.size_bytes).path)
    sample = con.cursor().sql(f"SELECT * FROM read_parquet({literal(path)}) LIMIT {_SAMPLE_ROWS}").to_arrow_table()
    if not sample.num_rows:
        return None
    values = sample.drop_columns([c for c in META_COLUMNS if c in sample.column_names])
    return Row(_leaves(sample.schema), values.nbytes / sample.num_rows)


def _leaves(kinds: Iterable[pa.Field]) -> int:
    """Columns that a Parquet file has for these fields."""
    count = 0
    for field in kinds:
        inner = [field.type.field(i) for i in range(field.type.num_fields)] if pa.types.is_nested(field.type) else []
        count += _leaves(inner) if inner else 1
    return count


def _operation(commit: CommitMetadata) -> str:
    return _COMPACT if commit.compacted else (commit.operation or "").upper()


def _stats(commit: CommitMetadata) -> Iterator[tuple[str, WriteStat]]:
    for partition, group in commit.partition_stats.items():
        for stat in group:
            yield partition, stat


def _is_log(stat: WriteStat) -> bool:
    return ".log." in (stat.path or "").rsplit("/", 1)[-1]


def _met_a_group(stat: WriteStat) -> bool:
    return _is_log(stat) or (stat.prev_commit or "null") != "null"


def _groups(state: TableState, known: Sequence[tuple[Instant, CommitMetadata]]) -> dict[Group, GroupFacts]:
    by_name: dict[str, list[WriteStat]] = {}
    for _, commit in known:
        for _, stat in _stats(commit):
            by_name.setdefault((stat.path or "").rsplit("/", 1)[-1], []).append(stat)
    slices = state.slices()
    rows = {s.base.name: _base_rows(by_name, s.base.name) for s in slices if s.base}
    if None in rows.values():  # written before the timeline begins
        for archived in state.archived.values():
            for _, stat in _stats(archived.metadata or CommitMetadata()):
                by_name.setdefault((stat.path or "").rsplit("/", 1)[-1], []).append(stat)
        rows = {name: _base_rows(by_name, name) for name in rows}
    counted = [(rows[s.base.name] or 0, s.base.size_bytes) for s in slices if s.base and rows[s.base.name]]
    bytes_of_row = sum(b for _, b in counted) / sum(r for r, _ in counted) if counted else None
    found = {}
    for one in slices:
        logged = [stat for log in one.logs for stat in by_name.get(log.name, ())]
        base_rows = (rows[one.base.name] or 0) if one.base else 0
        if one.base and rows[one.base.name] is None and bytes_of_row:
            base_rows = one.base.size_bytes / bytes_of_row
        found[one.group] = GroupFacts(
            base_rows=base_rows,
            base_bytes=one.base.size_bytes if one.base else 0,
            log_rows=sum((s.num_writes or 0) + (s.num_deletes or 0) for s in logged),
            log_bytes=sum(log.size_bytes for log in one.logs),
            log_files=len(one.logs),
            added_rows=sum((s.num_inserts or 0) - (s.num_deletes or 0) for s in logged),
        )
    return found


def _overwritten(
    known: Sequence[tuple[Instant, CommitMetadata]],
) -> tuple[dict[str, float], dict[Group, float]]:
    """(rows that each overwrite took out, rows of every file group that is gone).

    File groups written before the timeline begins are not known.
    """
    rows: dict[Group, float] = {}
    gone: dict[str, float] = {}
    lost: dict[Group, float] = {}
    for instant, commit in known:
        taken = {(p, f): rows.pop((p, f), 0.0) for p, ids in commit.replaced.items() for f in ids}
        lost |= taken
        if taken and _operation(commit) not in _SERVICES:
            gone[instant.requested] = sum(taken.values())
        for partition, stat in _stats(commit):
            group = (partition, stat.file_id or "")
            added = (stat.num_inserts or 0) - (stat.num_deletes or 0)
            rows[group] = rows.get(group, 0.0) + added if _is_log(stat) else float(stat.num_writes or 0)
    return gone, lost


def _base_rows(by_name: Mapping[str, list[WriteStat]], name: str) -> float | None:
    stats = by_name.get(name)
    return float(stats[-1].num_writes or 0) if stats else None


def _change(
    state: TableState,
    instant: Instant,
    stats: Sequence[tuple[str, WriteStat]],
    sizes: Mapping[Group, float],
    rows_before: float,
) -> Change | None:
    changed: dict[Group, int] = {}
    group_rows = 0.0
    for partition, stat in stats:
        if not _met_a_group(stat):
            continue
        group = (partition, stat.file_id or "")
        touched = (stat.num_update_writes or 0) + (stat.num_deletes or 0) + (stat.num_inserts or 0)
        if group not in changed:
            group_rows += sizes.get(group, 0.0) if _is_log(stat) else float(stat.num_writes or 0)
        changed[group] = changed.get(group, 0) + touched
    if not sum(changed.values()):
        return None
    return Change(
        instant=instant.requested,
        rows_before=rows_before,
        changed=changed,
        inserts=sum(s.num_inserts or 0 for _, s in stats),
        updates=sum(s.num_update_writes or 0 for _, s in stats),
        deletes=sum(s.num_deletes or 0 for _, s in stats),
        group_rows=group_rows,
        bytes_written=sum(s.total_write_bytes or 0 for _, s in stats),
        seconds=_seconds(state, instant),
    )


def _seconds(state: TableState, instant: Instant) -> float | None:
    if state.timeline.layout < 2 or not instant.completed:
        return None
    return max(0.0, (instant_millis(instant.completed) - instant_millis(instant.requested)) / 1000)


def _deltas(state: TableState, changes: Sequence[Change], compactions: Sequence[Instant]) -> int:
    """Commits between two compactions: as they were, else as the table's settings say, else Hudi's default."""
    times = [i.requested for i in compactions]
    between = [sum(low < c.instant < high for c in changes) for low, high in pairwise(times)]
    if between := [n for n in between if n]:
        return max(1, round(float(np.mean(between))))
    text = state.config.properties.get(_MAX_DELTAS, "")
    return int(text) if text.isdigit() and int(text) else _DELTAS_DEFAULT


def _service_bytes(known: Sequence[tuple[Instant, CommitMetadata]], changes: Sequence[Change]) -> int:
    """Written by compactions and clusterings behind the first change."""
    first = changes[0].instant if changes else ""
    return sum(
        stat.total_write_bytes or 0
        for instant, commit in known
        if first and instant.requested > first and _operation(commit) in _SERVICES
        for _, stat in _stats(commit)
    )


def _log_row_bytes(known: Sequence[tuple[Instant, CommitMetadata]]) -> float | None:
    logged = [s for _, commit in known for _, s in _stats(commit) if _is_log(s) and s.num_writes]
    rows = sum((s.num_writes or 0) + (s.num_deletes or 0) for s in logged)
    return sum(s.total_write_bytes or 0 for s in logged) / rows if rows else None


def _interval(changes: Sequence[Change]) -> float | None:
    """Median seconds between two changes."""
    times = [instant_millis(c.instant) for c in changes]
    gaps = [(b - a) / 1000 for a, b in pairwise(times)]
    return float(np.median(gaps)) if gaps else None
