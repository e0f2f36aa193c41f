"""How names, texts and types are spelt in DuckDB SQL.

The only place that quotes: identifiers go through `quote`, text through `literal`, Arrow types through
`duckdb_type`. Nothing here touches a table or a connection.
"""

from collections.abc import Iterable

import pyarrow as pa

from lakesql.errors import Unsupported


def quote(identifier: str) -> str:
    """`a"b` -> `"a""b"`: an identifier as DuckDB reads it back, whatever it contains."""
    return '"' + identifier.replace('"', '""') + '"'


def literal(text: str) -> str:
    """`it's` -> `'it''s'`: a text as a SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


def literals(texts: Iterable[str]) -> str:
    """A SQL list literal of texts: `['a', 'b']`."""
    return "[" + ", ".join(map(literal, texts)) + "]"


_SIMPLE = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
    pa.binary(): "BLOB",
    pa.date32(): "DATE",
}


def duckdb_type(kind: pa.DataType, where: str = "") -> str:
    """The DuckDB type that holds every value of an Arrow type of `format.avro.arrow_schema`.

    Raises Unsupported, naming the type and `where`, for a type no Hudi table has.
    """
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP WITH TIME ZONE" if kind.tz else "TIMESTAMP"
    if pa.types.is_time(kind):
        return "TIME"
    if pa.types.is_fixed_size_binary(kind):
        return "BLOB"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return duckdb_type(kind.value_type, where) + "[]"
    if pa.types.is_map(kind):
        return f"MAP({duckdb_type(kind.key_type, where)}, {duckdb_type(kind.item_type, where)})"
    if pa.types.is_struct(kind):
        fields = ", ".join(f"{quote(f.name)} {duckdb_type(f.type, where)}" for f in kind)
        return f"STRUCT({fields})"
    raise Unsupported(f"{where or 'column'}: no DuckDB type for {kind}")
