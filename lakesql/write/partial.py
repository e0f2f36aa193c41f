"""Log blocks with only the columns that a statement may change: Hudi's IS_PARTIAL blocks (hudi-format 4.8, 5.4).

They are written only when `hoodie.spark.sql.merge.into.partial.updates` is set to true, by MERGE and UPDATE on
Merge-on-Read tables of version 8 and 9 that merge whole rows by event time. Hudi 1.2.0 does not read them in every way:
a query that filters by key, on a table without metadata table, loses the base row that a record is to be filled from,
and takes the record for a full row. In commit-time mode 1.0.2 refuses them, and 1.2.0 fails on a key that is deleted
and inserted in the same log; such tables get full rows always. A block has the meta columns, the ordering
fields, which every reader compares, and the columns that some clause of the statement assigns. Rows that are inserted
or moved, and deletes, are written in full beside it.

A reader fills what a record leaves out from what it merges the record with: first from older records of the log, then
from the base row. That is the row the statement was made from, unless the log holds a record of the key that lost
against the base row. A file slice with such records gets full rows.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import duckdb

from lakesql.table import deltas
from lakesql.table.merge import EVENT_TIME
from lakesql.table.read import ReadPlan
from lakesql.write.batch import Rules
from lakesql.write.plan import APPEND, Target


@dataclass(frozen=True, slots=True)
class Partial:
    """The columns of the table that partial blocks have, and the slices that get such blocks."""

    columns: tuple[str, ...] = ()
    slices: frozenset[int] = frozenset()


FULL = Partial()


def partial_blocks(
    con: duckdb.DuckDBPyConnection,
    plan: ReadPlan,
    rules: Rules,
    changed: Collection[str],
    targets: Sequence[Target],
) -> Partial:
    """What of a statement's updates goes to partial blocks; `changed` are the columns that it assigns."""
    columns = _columns(plan, rules, changed)
    if not columns:
        return FULL
    appended = [n for t in targets if t.kind == APPEND and (n := t.slice_no) is not None]
    return Partial(columns, frozenset(appended) - _with_beaten_records(con, plan, appended))


def _columns(plan: ReadPlan, rules: Rules, changed: Collection[str]) -> tuple[str, ...]:
    """In the table's order; none where blocks must be full."""
    state = plan.view.state
    config = state.config
    known = config.version >= 8 and config.merge_mode == EVENT_TIME and rules.merge.plain and config.meta_fields
    if not (config.is_mor and known) or plan.view.evolved or state.evolves:
        return ()
    wanted = {*changed, *rules.ordering}
    if not set(state.schema.names) - wanted - set(config.record_key_fields):
        return ()
    return tuple(n for n in state.schema.names if n in wanted)


def _with_beaten_records(con: duckdb.DuckDBPyConnection, plan: ReadPlan, numbers: Sequence[int]) -> set[int]:
    """The slices whose log has records that lost against a base row."""
    logged = [n for n in numbers if n < len(plan.slices) and plan.slices[n].logs]
    placed: Mapping[int, tuple[deltas.Batch, int]] = dict(
        zip(logged, deltas.prepare(con, plan.view, [plan.slices[n] for n in logged]), strict=True)
    )
    return {n for n, (batch, slot) in placed.items() if slot in batch.beaten}
