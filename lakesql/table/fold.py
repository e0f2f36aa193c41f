"""Merging versions of records by a merge rule, on columns: many keys at once, one version of each at a time.

Versions are numbered; what they hold stays where it is. The state of a key is which version it is (kind, rank), whose
values it shows and, for columns that can be filled, from which version each comes. So a step is a few comparisons of
integer arrays, whatever the types of the columns, and the number of steps is that of the versions of the busiest key.

    kind     merge.UPSERT, DELETE or COMMIT_TIME_DELETE           rank    place of its ordering value, 0 = the smallest
    absent   (versions, columns) bool: the column of that version is to be filled

`meet` is the whole of a merge rule's meaning; `fold` applies it oldest to newest. A person's merger gets the two sides
as Arrow tables, once per step, and its result is numbered on.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakesql.errors import TableError
from lakesql.table.merge import (
    ALWAYS,
    COMMIT_TIME_DELETE,
    DEFAULTS,
    FROM_EITHER,
    NEVER,
    NEWER,
    NOT_OLDER,
    UNAVAILABLE,
    UPSERT,
    Rule,
    Step,
)

DELETED = "_hoodie_is_deleted"


@dataclass(frozen=True, slots=True)
class States:
    """One state per key. `shown` and `meta` are version numbers, `source` one per column that can be filled."""

    kind: np.ndarray  # int8
    rank: np.ndarray  # int64
    shown: np.ndarray  # int64
    meta: np.ndarray  # int64
    source: np.ndarray  # int64, (keys, columns)

    def take(self, places: np.ndarray) -> "States":
        return States(self.kind[places], self.rank[places], self.shown[places], self.meta[places], self.source[places])

    def put(self, places: np.ndarray, other: "States") -> None:
        """Overwrite the states at `places`."""
        for name in ("kind", "rank", "shown", "meta", "source"):
            getattr(self, name)[places] = getattr(other, name)


def states_of(versions: np.ndarray, kind: np.ndarray, rank: np.ndarray, columns: int) -> States:
    """The states of single versions: `kind` and `rank` of all versions, `versions` the numbers of those wanted."""
    source = np.repeat(versions[:, None], columns, axis=1)
    return States(kind[versions], rank[versions], versions.copy(), versions.copy(), source)


Merge = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Version numbers of older and newer rows -> numbers of the merged rows, and which of them are deletes."""


def meet(step: Step, older: States, newer: States, absent: np.ndarray, merge: Merge | None = None) -> States:
    """What is left of each pair. The two sides are aligned."""
    wins = _newer_wins(step, older, newer)
    result = States(
        np.where(wins, newer.kind, older.kind),
        np.where(wins, newer.rank, older.rank),
        np.where(wins, newer.shown, older.shown),
        newer.meta.copy() if step.newer_meta else np.where(wins, newer.meta, older.meta),
        np.where(wins[:, None], newer.source, older.source),
    )
    rows = (older.kind == UPSERT) & (newer.kind == UPSERT)
    if merge is not None and rows.any():
        at = np.flatnonzero(rows)
        made, deleted = merge(older.shown[at], newer.shown[at])
        kind = np.where(deleted, COMMIT_TIME_DELETE, UPSERT).astype(np.int8)
        rank = np.maximum(older.rank[at], newer.rank[at])
        result.put(at, States(kind, rank, made, made, np.repeat(made[:, None], result.source.shape[1], axis=1)))
    elif step.fill and result.source.shape[1]:
        other = np.where(wins[:, None], older.source, newer.source)
        columns = np.arange(result.source.shape[1])
        may = rows if step.fill == FROM_EITHER else rows & wins
        fill = may[:, None] & absent[result.source, columns] & ~absent[other, columns]
        result = States(result.kind, result.rank, result.shown, result.meta, np.where(fill, other, result.source))
    return result


def _newer_wins(step: Step, older: States, newer: States) -> np.ndarray:
    larger, not_older = newer.rank > older.rank, newer.rank >= older.rank
    answers = {
        ALWAYS: np.ones(len(larger), bool),
        NEVER: np.zeros(len(larger), bool),
        NOT_OLDER: not_older,
        NEWER: larger,
    }
    newer_voids, older_voids = newer.kind == COMMIT_TIME_DELETE, older.kind == COMMIT_TIME_DELETE
    twice = answers[step.delete_twice]
    if step.delete_twice == NOT_OLDER:  # the delete without ordering value stays, whichever it is
        twice = newer_voids | (twice & ~older_voids)
    onto_row = np.where(newer.kind == UPSERT, answers[step.row], answers[step.delete] | newer_voids)
    onto_delete = np.where(newer.kind == UPSERT, answers[step.revive] | older_voids, twice)
    wins: np.ndarray = np.where(older.kind == UPSERT, onto_row, onto_delete)
    return wins


def fold(
    step: Step,
    order: np.ndarray,
    starts: np.ndarray,
    kind: np.ndarray,
    rank: np.ndarray,
    absent: np.ndarray,
    merge: Merge | None = None,
) -> States:
    """The versions of each key merged oldest to newest.

    `order` has the numbers of the versions, sorted by key and then oldest first; key i has those from `starts[i]` to
    `starts[i + 1]`. `kind`, `rank` and `absent` are those of all versions by number.
    """
    counts = np.diff(starts)
    state = states_of(order[starts[:-1]], kind, rank, absent.shape[1])
    for nth in range(1, int(counts.max(initial=1))):
        keys = np.flatnonzero(counts > nth)
        newer = states_of(order[starts[keys] + nth], kind, rank, absent.shape[1])
        state.put(keys, meet(step, state.take(keys), newer, absent, merge))
    return state


def starts_of(group: np.ndarray) -> np.ndarray:
    """Where each run of equal numbers starts, and the end."""
    if not len(group):
        return np.zeros(1, np.int64)
    return np.concatenate([[0], np.flatnonzero(np.diff(group)) + 1, [len(group)]])


def absent_of(rule: Rule, rows: pa.Table, columns: list[str], defaults: Mapping[str, object]) -> np.ndarray:
    """(rows, columns) bool: which values the rule fills. `defaults` has the default of columns where it is not NULL."""
    found = np.zeros((rows.num_rows, len(columns)), bool)
    for i, name in enumerate(columns):
        values = rows[name]
        if rule.absent == DEFAULTS:
            default = defaults.get(name)
            flags = pc.is_null(values) if default is None else pc.equal(values, pa.scalar(default, values.type))
        elif rule.absent == UNAVAILABLE and _is_text(values.type):
            flags = pc.equal(values, pa.scalar(rule.unavailable, values.type))
        else:
            continue
        found[:, i] = pc.fill_null(flags, False).to_numpy()
    return found


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_binary(kind))


class Rows:
    """The values of the versions by number: a table that a person's merger adds rows to.

    `columns` are those that the merger is given and gives; the table's others stay those of the newer version.
    """

    def __init__(
        self,
        table: pa.Table,
        rule: Rule,
        properties: Mapping[str, str],
        where: str,
        columns: Sequence[str] | None = None,
    ) -> None:
        self.table = table
        self.merger: Merge | None = self._merge if rule.merger is not None else None
        self._rule, self._properties, self._where = rule, properties, where
        self._columns = list(columns or table.column_names)

    def _merge(self, older: np.ndarray, newer: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Call the merger for the pairs and number what it gives. TableError when it does not fit the table."""
        assert self._rule.merger is not None
        given = self.table.select(self._columns)
        made = self._rule.merger(
            given.take(pa.array(older)), given.take(pa.array(newer)), given.schema, self._properties
        )
        if not isinstance(made, pa.Table | pa.RecordBatch) or made.num_rows != len(older):
            raise TableError(
                f"{self._where}: the merger must return a table of {len(older)} rows, one for each pair it is given."
            )
        missing = [n for n in self._columns if n not in made.schema.names]
        if missing:
            raise TableError(f"{self._where}: the merger's table lacks the columns {', '.join(missing)}.")
        deleted = np.zeros(len(older), bool)
        if DELETED in made.schema.names:
            deleted = pc.fill_null(pa.chunked_array(made[DELETED]).cast(pa.bool_()), False).to_numpy()
        added = self.table.take(pa.array(newer))
        for name in self._columns:
            at = self.table.column_names.index(name)
            added = added.set_column(at, self.table.field(name), made[name])
        numbers = self.table.num_rows + np.arange(len(older))
        self.table = pa.concat_tables([self.table, added.cast(self.table.schema)])
        return numbers, deleted

    def show(self, states: States, columns: list[str], meta: list[str]) -> pa.Table:
        """The rows that the states show: `columns` are those that can be filled, `meta` those that follow `meta`."""
        places = {name: states.source[:, i] for i, name in enumerate(columns)}
        arrays = []
        for name in self.table.column_names:
            index = states.meta if name in meta else places.get(name, states.shown)
            arrays.append(self.table[name].take(pa.array(index)))
        return pa.table(arrays, schema=self.table.schema)
