"""Columns and fields that rows bring and a table does not have yet: the types they get, and the table with them.

A column of the rows that the table lacks is appended to the table's schema as nullable, and a field that a struct of the
table lacks is appended to the struct, with the type of the rows brought to what a Hudi table can hold; older rows have
NULL there. Nothing is dropped, renamed or retyped.
"""

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from lakesql.errors import TableError, Unsupported
from lakesql.format.avro import META_COLUMNS
from lakesql.format.avro_grow import grown, lacking
from lakesql.format.avro_types import is_list
from lakesql.table.names import duckdb_type
from lakesql.table.state import TableState
from lakesql.write.names_of_settings import EVOLVE

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
    """The state with what the table lacks of the columns `names` of a source: whole columns, and fields inside them."""
    lower = {n.lower() for n in names}
    own = {n.lower() for n in state.schema.names}
    known = own | {n.lower() for n in META_COLUMNS}
    chosen = [f for f in source if f.name.lower() in lower]
    fuller = _fuller(state, [f for f in chosen if f.name.lower() in own])
    if fuller:
        state = replace(state, grown=grown(dict(state.grown or state.avro_as_of(None)), storable(pa.schema(fuller))))
    new = [f for f in chosen if f.name.lower() not in known]
    return state.with_columns(storable(pa.schema(new))) if new else state


def _fuller(state: TableState, fields: Sequence[pa.Field]) -> list[pa.Field]:
    """Those of these columns of a source that have fields inside that the table's columns lack."""
    kept = {f.name.lower(): f for f in state.schema}
    found = []
    for field in fields:
        column = kept[field.name.lower()]
        if next(lacking(field.type, column.type, column.name), None):
            found.append(field.with_type(_typed(field.type)))
    return found


def _typed(kind: pa.DataType) -> pa.DataType:
    """The type without the fields that have none (always NULL): there is nothing of them to keep."""
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(_typed(f.type)) for f in kind if not pa.types.is_null(f.type)])
    if is_list(kind):
        return pa.list_(_typed(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _typed(kind.item_type))
    return kind


def require_known_fields(state: TableState, rows: pa.Schema) -> None:
    """TableError for a field inside a column of the rows that the table's column lacks: a cast would drop it."""
    kept = {f.name.lower(): f for f in state.schema}
    for field in rows:
        column = kept.get(field.name.lower())
        unknown = list(lacking(field.type, column.type, column.name)) if column is not None else []
        if column is not None and unknown:
            raise TableError(
                f"{state.path}: the rows have the field {', '.join(unknown)}, which column {column.name} of the table, "
                f"{duckdb_type(column.type, column.name)}, does not have. Leave it out or rename it; with SET {EVOLVE} = "
                "true a MERGE or INSERT adds the fields that its rows give. Nothing was written."
            )


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
