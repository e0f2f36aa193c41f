"""`SET addr.city = e`: the struct column anew, with some of its fields replaced. Pure.

The other fields are taken from the stored row. A struct that is NULL becomes one whose other fields are NULL, since a
field that was set must be there afterwards.
"""

from collections.abc import Mapping, Sequence

from sqlglot import exp
from sqlglot.errors import SqlglotError

from lakesql.errors import SQLError
from lakesql.table.names import literal, quote

Path = tuple[str, ...]


def with_fields(stored: str, kind: str, values: Mapping[Path, str], shown: str) -> str:
    """The value of a column of DuckDB type `kind` whose fields at these paths have these values.

    `stored`: expression of the present value; `shown`: the column, for messages. SQLError for a field that is not
    there.
    """
    fields = _fields(kind)
    by_name = {name.lower(): name for name in fields}
    below: dict[str, dict[Path, str]] = {}
    for (first, *rest), value in values.items():
        name = by_name.get(first.lower())
        if name is None:
            there = f"its fields are {', '.join(fields)}." if fields else f"it is {kind}, not a STRUCT."
            raise SQLError(f"column {shown} has no field {first}; {there}")
        below.setdefault(name, {})[tuple(rest)] = value
    parts = []
    for name, inner in fields.items():
        present = f"struct_extract({stored}, {literal(name)})"
        given = below.get(name, {(): present})
        value = given[()] if () in given else with_fields(present, inner, given, f"{shown}.{name}")
        parts.append(f"{quote(name)} := {value}")
    return f"struct_pack({', '.join(parts)})"


def _fields(kind: str) -> dict[str, str]:
    """Name -> type of the fields of a STRUCT; none for any other type."""
    try:
        node = exp.DataType.build(kind, dialect="duckdb")
    except SqlglotError:
        return {}
    if node.this != exp.DataType.Type.STRUCT:
        return {}
    parts: Sequence[exp.Expr] = node.expressions
    return {p.name: p.args["kind"].sql("duckdb") for p in parts if isinstance(p, exp.ColumnDef)}
