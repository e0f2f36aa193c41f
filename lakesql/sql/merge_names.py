"""Who is called what in a MERGE, and what its ON condition says about keys. Pure.

Names match as in SQL, without regard to case. ON is the one condition that is looked into (with sqlglot's DuckDB
dialect): its AND-ed equalities `target column = source expression` tell by which columns rows are matched.
"""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lakesql.errors import SQLError, Unsupported
from lakesql.sql.nodes import Merge
from lakesql.table.names import quote

_EQUAL = (exp.EQ, exp.NullSafeEQ)
"""A record key is never NULL, so the two say the same of it."""


@dataclass(frozen=True, slots=True)
class Target:
    """The table a statement changes. `columns`: name -> DuckDB type, in order; `snapshot`: SQL that gives its rows."""

    name: str
    columns: Mapping[str, str]
    key_fields: tuple[str, ...]
    partition_fields: tuple[str, ...]
    ordering_fields: tuple[str, ...]
    event_time: bool
    snapshot: str
    key_sql: str = "NULL"
    """The record key of a row, over the columns."""
    path_sql: str = "''"
    """The partition path of a row, over the columns."""
    placed: str = ""
    """`snapshot` with the places of the rows (`places`); '' where they are not asked for."""
    part: str = ""
    """The rows of `snapshot` that a MERGE can match (`narrow`); '' for all."""
    plain_paths: bool = False
    """Whether rows of one partition path have the same partition values."""
    checks_casts: bool = True
    """Whether a cast that changes a key is found by the expression itself; else it is marked, as one cast in another."""
    evolves: bool = False
    """Whether `*` may lack columns of the table: the statement may change the schema."""


@dataclass(frozen=True, slots=True)
class On:
    """What the ON condition says: its text, target column -> source expression, and whether it says more than keys.

    A column that is compared under a CAST is not in `pairs` and counts as more.
    """

    sql: str
    pairs: Mapping[str, str]
    extra: bool


@dataclass(frozen=True, slots=True)
class Names:
    """Who is called what in the statement. `source`: lower-case column name -> name."""

    target_alias: str
    source_alias: str
    target: Target
    source: Mapping[str, str]

    def of_target(self, column: exp.Column) -> bool:
        """Whether an expression's column is one of the target."""
        parts = [p.name.lower() for p in column.parts]
        if len(parts) > 1:
            return parts[0] == self.target_alias.lower()
        return find(parts[0], self.target.columns) is not None and parts[0] not in self.source

    def of_source(self, column: exp.Column) -> bool:
        """Whether an expression's column is one of the source."""
        parts = [p.name.lower() for p in column.parts]
        if len(parts) > 1:
            return parts[0] == self.source_alias.lower()
        return parts[0] in self.source and find(parts[0], self.target.columns) is None


def find(name: str, columns: Mapping[str, str]) -> str | None:
    """The spelling of a column among `columns`, None when it is not there."""
    return next((c for c in columns if c.lower() == name.lower()), None)


def column_of(name: str, target: Target) -> str:
    """The table's spelling of a column; SQLError with a suggestion when there is none."""
    found = find(name, target.columns)
    if found is not None:
        return found
    if name.lower().startswith("_hoodie_"):
        raise SQLError(f"{name} is a meta column; Hudi sets it, a statement cannot.")
    if target.evolves:
        raise SQLError(f"{target.name} has no column {name}, and the source has none of that name to add.")
    near = difflib.get_close_matches(name.lower(), [c.lower() for c in target.columns], 1)
    hint = f"did you mean {find(near[0], target.columns)}?" if near else f"its columns are {', '.join(target.columns)}."
    raise SQLError(f"{target.name} has no column {name}; {hint}")


def analyse_on(merge: Merge, names: Names) -> On:
    """What ON or USING says about keys. SQLError when a record key field is not compared with the source."""
    target = names.target
    cast: set[str] = set()
    if merge.using_columns:
        pairs = {}
        for name in merge.using_columns:
            column = column_of(name, target)
            if name.lower() not in names.source:
                raise SQLError(f"USING ({name}): the source has no column {name}.")
            pairs[column] = f"{quote(names.source_alias)}.{quote(names.source[name.lower()])}"
        sql = " AND ".join(f"{quote(names.target_alias)}.{quote(c)} = {s}" for c, s in pairs.items())
        extra = any(c not in target.key_fields and c not in target.partition_fields for c in pairs)
    else:
        assert merge.on is not None, "a MERGE has ON or USING"
        sql, pairs, extra = merge.on.sql, {}, False
        for part in _conjuncts(merge.on.sql):
            pair = _pair(part, names)
            if pair is None or pair[0] in pairs:
                extra = True
                cast |= {column for column in [_cast_column(part, names)] if column is not None}
                continue
            pairs[pair[0]] = pair[1]
            extra = extra or not (pair[0] in target.key_fields or pair[0] in target.partition_fields)
    missing = [f for f in target.key_fields if f not in pairs and f not in cast]
    if missing:
        example = " AND ".join(f"{names.target_alias}.{f} = {names.source_alias}.{f}" for f in target.key_fields)
        raise SQLError(
            f"the ON condition does not compare the record key column {', '.join(missing)} of {target.name} with the "
            f"source. Rows are written by key: ON must contain {example} (more conditions may follow with AND)."
        )
    return On(sql, pairs, extra)


def _conjuncts(text: str) -> list[exp.Expression]:
    try:
        node = sqlglot.parse_one(f"SELECT {text}", read="duckdb").expressions[0]
    except SqlglotError as error:
        raise SQLError(f"cannot parse the ON condition {text!r}: {str(error).splitlines()[0]}") from error

    def parts(node: exp.Expression) -> Iterator[exp.Expression]:
        if isinstance(node, exp.Paren):
            yield from parts(node.this)
        elif isinstance(node, exp.And):
            yield from parts(node.this)
            yield from parts(node.expression)
        else:
            yield node

    return list(parts(node))


def _pair(part: exp.Expression, names: Names) -> tuple[str, str] | None:
    """(target column, source expression) of an equality between the two."""
    if not isinstance(part, _EQUAL):
        return None
    for left, right in ((part.this, part.expression), (part.expression, part.this)):
        if not isinstance(left, exp.Column) or len(left.parts) > 2 or not names.of_target(left):
            continue
        column = find(left.name, names.target.columns)
        if column is not None and not any(names.of_target(c) for c in right.find_all(exp.Column)):
            return column, right.sql("duckdb")
    return None


def _cast_column(part: exp.Expression, names: Names) -> str | None:
    """The target column of an equality between it, under casts, and something that has no target column."""
    if not isinstance(part, _EQUAL):
        return None
    for left, right in ((part.this, part.expression), (part.expression, part.this)):
        inner = left
        while isinstance(inner, exp.Cast | exp.Paren):
            inner = inner.this
        if isinstance(inner, exp.Column) and len(inner.parts) <= 2 and names.of_target(inner):
            column = find(inner.name, names.target.columns)
            if column is not None and not any(names.of_target(c) for c in right.find_all(exp.Column)):
                return column
    return None


def require_plain_keys(target: Target) -> None:
    """Unsupported when a record key field is not a column, such as a field of a struct."""
    nested = [f for f in (*target.key_fields, *target.partition_fields) if f not in target.columns]
    if nested:
        raise Unsupported(
            f"{target.name}: key or partition field {nested[0]} is not a column of the table; such a table is read, "
            "and changed only through upsert()."
        )
