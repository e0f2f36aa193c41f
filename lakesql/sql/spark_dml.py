"""MERGE, UPDATE and DELETE in Spark's spelling with every expression and query in them translated. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from lakesql.sql import dialect
from lakesql.sql.nodes import Assignment, Delete, Merge, Text, Update

Simple = TypeVar("Simple", Update, Delete)


def translated_merge(merge: Merge) -> Merge:
    """The same MERGE in DuckDB's SQL."""
    return replace(
        merge,
        source=Text(dialect.from_item(merge.source.sql), merge.source.start),
        on=_expression(merge.on),
        clauses=tuple(
            replace(
                c,
                condition=_expression(c.condition),
                assignments=_translated_assignments(c.assignments),
                message=_expression(c.message),
            )
            for c in merge.clauses
        ),
        ctes=dialect.ctes(merge.ctes) if merge.ctes else "",
        returning=translated_items(merge.returning),
    )


def translated(statement: Simple) -> Simple:
    """The same UPDATE or DELETE in DuckDB's SQL."""
    changed = replace(
        statement,
        where=_expression(statement.where),
        ctes=dialect.ctes(statement.ctes) if statement.ctes else "",
        returning=translated_items(statement.returning),
    )
    if isinstance(changed, Update):
        return replace(changed, assignments=_translated_assignments(changed.assignments) or ())
    return changed


def translated_items(items: Sequence[Text]) -> tuple[Text, ...]:
    """The items of a RETURNING."""
    return tuple(Text(dialect.expression(item.sql), item.start) for item in items)


def _translated_assignments(assignments: tuple[Assignment, ...] | None) -> tuple[Assignment, ...] | None:
    if assignments is None:
        return None
    return tuple(replace(a, value=Text(dialect.expression(a.value.sql), a.value.start)) for a in assignments)


def _expression(text: Text | None) -> Text | None:
    return None if text is None else Text(dialect.expression(text.sql), text.start)
