"""The stage of a MERGE, UPDATE or DELETE as one SELECT for an engine that is not this one. Pure.

The same clauses, values and names as in `merge_into`, without what helps DuckDB to write. Beside the columns of `stage` it
has the stored value of columns under `stage.stored`, and the checks come as messages alone: whoever runs the SELECT finds
the rows in its own words.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakesql.sql import merge_into, stage
from lakesql.sql.merge_into import (
    _action,
    _assigned,
    _cast,
    _changed_sql,
    _merge_select,
    _simple_select,
    _sure_new,
    _Wanted,
)
from lakesql.sql.merge_names import Names, Target, analyse_on
from lakesql.sql.nodes import Delete, Merge, Update
from lakesql.sql.spark_dml import translated, translated_merge
from lakesql.table.names import quote


@dataclass(frozen=True, slots=True)
class Plain:
    """A stage for another engine. `assigned`: columns that some update gives a value."""

    select: str
    assigned: frozenset[str]
    rekeys: bool = False
    moves: bool = False
    errors: bool = False
    numbered: bool = False
    """Whether it has the number of the source row."""
    may_exist: bool = False
    """Whether an insert may have a key that the table has."""


def plain_merge(
    statement: Merge, target: Target, source_columns: Mapping[str, str], duplicates: str, stored: Sequence[str]
) -> Plain:
    """A MERGE. `stored`: the columns whose stored values are wanted. Raises what `compile_merge` raises."""
    merge_into.compile_merge(statement, target, source_columns, duplicates)
    merge = translated_merge(statement) if statement.spark else statement
    alias = statement.source_alias or "__lakesql_source"
    names = Names(merge.alias, alias, target, {c.lower(): c for c in source_columns})
    on = analyse_on(merge, names)
    actions = [_action(clause, names) for clause in merge.clauses]
    rekeyed = _changed_sql(actions, names, target.key_fields)
    moved = _changed_sql(actions, names, target.partition_fields)
    select = _merge_select(merge, names, on, actions, (rekeyed, moved), _Wanted(duplicates, False, False), stored)
    inserts = [a for a in actions if a.clause.action == "insert"]
    return Plain(
        select,
        frozenset(c for a in actions if a.clause.action == "update" for c in a.values),
        bool(rekeyed),
        bool(moved),
        any(a.clause.action == "error" for a in actions),
        numbered=True,
        may_exist=bool(target.key_fields) and not all(_sure_new(a, target, on) for a in inserts),
    )


def plain_update(statement: Update, target: Target, stored: Sequence[str]) -> Plain:
    """An UPDATE. Raises what `compile_update` raises."""
    merge_into.compile_update(statement, target)
    update = translated(statement) if statement.spark else statement
    alias = quote(update.alias)
    cast = {c: _cast(v, c, target) for c, v in _assigned(update.assignments, target, alias).items()}
    fields = [f"{cast.get(c, f'{alias}.{quote(c)}')} AS {quote(c)}" for c in target.columns]
    changed = [f"{alias}.{quote(f)} IS DISTINCT FROM {cast[f]}" for f in target.partition_fields if f in cast]
    if changed:
        fields.append(f"({' OR '.join(changed)}) AS {stage.PATH_CHANGED}")
    fields += _stored(alias, stored)
    select = _simple_select(target, update.ctes, alias, update.where, fields, "upsert")
    return Plain(select, frozenset(cast), moves=bool(changed))


def plain_delete(statement: Delete, target: Target, stored: Sequence[str]) -> Plain:
    """A DELETE. Raises what `compile_delete` raises."""
    delete = translated(statement) if statement.spark else statement
    alias = quote(delete.alias)
    fields = [f"{alias}.{quote(c)} AS {quote(c)}" for c in target.columns] + _stored(alias, stored)
    return Plain(_simple_select(target, delete.ctes, alias, delete.where, fields, "delete"), frozenset())


def _stored(alias: str, columns: Sequence[str]) -> list[str]:
    return [f"{alias}.{quote(c)} AS {stage.stored(c)}" for c in columns]
