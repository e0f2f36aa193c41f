"""Casts that refuse to change a value: for the columns that say which row is meant and which of two is newer.

A record key, partition or ordering value that a cast rounds or cuts would silently mean another row. The check is part
of the expression, so every row is looked at once, wherever the expression runs: DuckDB's `error()` ends the statement
there, and `refusal` finds our sentence in its error.
"""

import re

import duckdb

from lakesql.format.config import TableConfig
from lakesql.table.names import literal

_INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")
_MARK = "lakesql-changed:"
_PLAIN = re.compile(r'(?:"(?:""|[^"])*"|\w+)(?:\.(?:"(?:""|[^"])*"|\w+))*')


def role_of(column: str, config: TableConfig) -> str | None:
    """What a column decides about its row: 'record key', 'partition' or 'ordering'; None for all others."""
    if column in config.record_key_fields:
        return "record key"
    if column in config.partition_fields:
        return "partition"
    return "ordering" if column in config.ordering_fields else None


def exact_cast(value: str, kind: str, what: str) -> str:
    """`CAST(value AS kind)` that fails where the value becomes another one. `what` names the column in the error.

    `value` is evaluated once. Texts, binaries and, from texts, times are left as DuckDB casts them; a fraction is not
    exact in a FLOAT or DOUBLE and may be rounded there.
    """
    if _changed("x", kind) is None:
        return f"CAST({value} AS {kind})"
    if _PLAIN.fullmatch(value):
        return _checked(value, kind, what)
    return f"list_transform([{value}], lambda x: {_checked('x', kind, what)})[1]"


def _checked(value: str, kind: str, what: str) -> str:
    text = f"concat({literal(f'{_MARK}{what} is {kind}')}, '|', typeof({value}), '|', {value}, '|')"
    return f"CASE WHEN {_changed(value, kind)} THEN error({text}) ELSE CAST({value} AS {kind}) END"


def _changed(value: str, kind: str) -> str | None:
    """Condition under which the cast gives another value; None for types that keep every value they take."""
    cast = f"CAST({value} AS {kind})"
    differs = f"{cast} <> {value}"
    if kind in _INTEGERS:
        return f"{differs} OR typeof({value}) = 'VARCHAR' AND TRY_CAST({value} AS DECIMAL(38, 18)) <> {cast}"
    if kind.startswith("DECIMAL"):
        return f"{differs} OR typeof({value}) = 'VARCHAR' AND TRY_CAST({value} AS DOUBLE) <> CAST({cast} AS DOUBLE)"
    if kind == "DATE":
        return f"{cast} <> TRY_CAST({value} AS TIMESTAMP)"
    if kind in ("FLOAT", "DOUBLE"):
        whole = f"TRY_CAST({cast} AS HUGEINT) <> TRY_CAST({value} AS HUGEINT)"
        return f"typeof({value}) IN ('INTEGER', 'UINTEGER', 'BIGINT', 'UBIGINT', 'HUGEINT') AND {whole}"
    return differs if kind.startswith("TIMESTAMP") or kind == "BOOLEAN" else None


def refusal(error: duckdb.Error) -> str | None:
    """What was wrong, of a refused cast; None when the error is about something else."""
    found = re.search(re.escape(_MARK) + r"(.*?)\|(.*?)\|(.*?)\|", str(error), re.DOTALL)
    if found is None:
        return None
    what, given, value = found.groups()
    return (
        f"{what}, the rows give {given}, and the cast would change the value {value}, so that another row would be "
        "meant. Round or correct such values yourself; nothing was written."
    )
