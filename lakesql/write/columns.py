"""Columns that rows bring and a table does not have yet: the types they get, and the table with them.

A column of the rows that the table lacks is appended to the table's schema as nullable, with the type of the rows
brought to what a Hudi table can hold; older rows have NULL there. Nothing is dropped, renamed or retyped.
"""

from collections.abc import Sequence

import pyarrow as pa

from lakesql.errors import Unsupported
from lakesql.format.avro import META_COLUMNS
from lakesql.table.state import TableState

_PLAIN = (
    pa.bool_(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.binary(),
    pa.date32(),
)


def with_new(state: TableState, source: pa.Schema, names: Sequence[str]) -> TableState:
    """The state with those of the columns `names` of a source that the table lacks."""
    lower = {n.lower() for n in names}
    known = {n.lower() for n in (*state.schema.names, *META_COLUMNS)}
    new = [f for f in source if f.name.lower() in lower and f.name.lower() not in known]
    return state.with_columns(storable(pa.schema(new))) if new else state


def storable(schema: pa.Schema) -> pa.Schema:
    """The schema of a query's result with the types a Hudi table has: for CREATE TABLE AS SELECT.

    Unsupported, naming the column, for a type without a counterpart.
    """
    return pa.schema([pa.field(f.name, _storable(f.type, f.name)) for f in schema])


def _storable(kind: pa.DataType, where: str) -> pa.DataType:
    if pa.types.is_int8(kind) or pa.types.is_int16(kind) or pa.types.is_uint8(kind) or pa.types.is_uint16(kind):
        return pa.int32()
    if pa.types.is_uint32(kind):
        return pa.int64()
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC" if kind.tz else None)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind) or pa.types.is_dictionary(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return pa.list_(pa.field("element", _storable(kind.value_type, where)))
    if pa.types.is_map(kind) and _storable(kind.key_type, where) == pa.string():
        return pa.map_(pa.string(), _storable(kind.item_type, where))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _storable(f.type, f"{where}.{f.name}")) for f in kind])
    if kind in _PLAIN or pa.types.is_decimal128(kind):
        return kind
    raise Unsupported(
        f"column {where} has type {kind}, which a Hudi table cannot hold. CAST it in the query, for example to VARCHAR."
    )
