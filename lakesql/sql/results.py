"""Small results as SQL text: an Arrow table, the outcome of a write, a message. DuckDB turns them into relations.

So a result of ours is fetched, shown and converted exactly like any other, on every version of DuckDB's Python API.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakesql.table.names import duckdb_type, literal, quote

if TYPE_CHECKING:
    from lakesql.write import WriteResult

WRITE_SCHEMA = pa.schema(
    [
        ("instant", pa.string()),
        ("action", pa.string()),
        ("operation", pa.string()),
        ("rows_inserted", pa.int64()),
        ("rows_updated", pa.int64()),
        ("rows_deleted", pa.int64()),
        ("rows_ignored", pa.int64()),
        ("files_written", pa.int64()),
        ("bytes_written", pa.int64()),
        ("partitions_touched", pa.int64()),
        ("duration_s", pa.float64()),
        ("requests", pa.int64()),
        ("completed", pa.string()),
        ("notes", pa.list_(pa.string())),
    ]
)


@dataclass(frozen=True, slots=True)
class Changed:
    """What a statement did, and the rows of its RETURNING, None when it has none."""

    result: "WriteResult"
    returned: pa.Table | None = None


_TEXTS = pa.schema([("result", pa.string())])
_PAIRS = pa.schema([("key", pa.string()), ("value", pa.string())])


def table_sql(table: pa.Table) -> str:
    """A query that gives the rows of a small table: texts, numbers, booleans and lists of texts."""
    return rows_sql(table.schema, [tuple(row.values()) for row in table.to_pylist()])


def rows_sql(schema: pa.Schema, rows: Sequence[Sequence[Any]]) -> str:
    """A query that gives these rows, typed as the schema says."""
    names = [quote(name) for name in schema.names]
    kinds = [duckdb_type(field.type, field.name) for field in schema]
    if not rows:
        fields = ", ".join(f"CAST(NULL AS {kind}) AS {name}" for name, kind in zip(names, kinds, strict=True))
        return f"SELECT {fields} WHERE false"
    fields = ", ".join(f"CAST({name} AS {kind}) AS {name}" for name, kind in zip(names, kinds, strict=True))
    values = ", ".join("(" + ", ".join(map(_value, row)) + ")" for row in rows)
    return f"SELECT {fields} FROM (VALUES {values}) AS v({', '.join(names)})"


def write_sql(result: "WriteResult") -> str:
    """One row with the fields of the result."""
    values = [getattr(result, name) for name in WRITE_SCHEMA.names]
    return rows_sql(WRITE_SCHEMA, [values])


def message_sql(text: str) -> str:
    """One row, one text."""
    return rows_sql(_TEXTS, [(text,)])


def pairs_sql(pairs: Sequence[tuple[str, str | None]]) -> str:
    """Rows of key and value."""
    return rows_sql(_PAIRS, pairs)


def _value(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return "CAST([" + ", ".join(map(_value, value)) + "] AS VARCHAR[])"
    return literal(str(value))
