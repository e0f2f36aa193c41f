"""Arrow tables to a table schema: columns by name, missing ones as NULL, legal widening, one name for list children.

Strategy: a cast is chosen per pair of types; equal types pass through untouched, nested ones are rebuilt around their
converted children without copying offsets or masks. Rules are those of Hudi format note 7.4 (schema-on-write evolution)
plus what Arrow sources need: dictionaries, large and view types, unsigned and narrow integers, other units of the same
time type, fixed and plain binary. Everything else raises TableError. Not done: schema-on-read (7.5), Avro defaults.
"""

from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from lakesql.errors import TableError
from lakesql.format.avro_types import is_binary, is_list, is_text

_UNIT_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def conform(table: pa.Table, schema: pa.Schema, where: str) -> pa.Table:
    """The table with exactly the columns and types of `schema`.

    Columns are matched by name, nested fields too; a missing nullable one is NULL, one that the schema does not have
    is dropped. `where` (table, file, block) begins the text of the TableError for a type that may not be widened, a
    missing or NULL required column, or a value that does not fit.
    """
    if table.schema.equals(schema, check_metadata=False) and _same_names(table.schema, schema):
        return table if table.schema.metadata is None else table.replace_schema_metadata(None)
    columns = []
    for field in schema:
        found = table.schema.get_all_field_indices(field.name)
        if len(found) > 1:
            raise TableError(f"{where}: {len(found)} columns are called {field.name!r}. Give each its own name.")
        if found:
            column = table.column(found[0])
            chunks = [_cast(c, field, field.name, where) for c in column.chunks]
            columns.append(pa.chunked_array(chunks, field.type))
        else:
            columns.append(pa.chunked_array([_missing(field, table.num_rows, field.name, where)], field.type))
    return pa.Table.from_arrays(columns, schema=schema.remove_metadata()) if columns else table.select([])


def _same_names(a: pa.Schema, b: pa.Schema) -> bool:
    """Arrow calls two list types equal even if their children have different names; writers then disagree."""
    return str(a) == str(b)


def _missing(field: pa.Field, rows: int, path: str, where: str) -> pa.Array:
    if rows and not field.nullable:
        raise TableError(f"{where}: column {path!r} is required by the table schema and missing. Supply it.")
    return pa.nulls(rows, field.type)


def _required(path: str, where: str) -> TableError:
    return TableError(f"{where}: column {path!r} is required by the table schema and has NULLs. Give it values.")


def _cast(array: pa.Array, field: pa.Field, path: str, where: str) -> pa.Array:
    """`array` as the type of `field`; TableError when that is not a legal widening or a required value is NULL."""
    source, target = array.type, field.type
    if pa.types.is_dictionary(source):
        array = array.dictionary_decode()
        source = array.type
    elif isinstance(array, pa.ExtensionArray):
        array = array.storage
        source = array.type
    if not field.nullable and array.null_count:
        raise _required(path, where)
    if pa.types.is_null(source):
        return pa.nulls(len(array), target)
    if pa.types.is_nested(target):
        out = _nested(array, target, path, where)
    elif source == target:
        return array
    else:
        out = _flat(array, target, path, where)
    if out is None:
        raise TableError(
            f"{where}: column {path!r} has type {source}, the table schema says {target}. Only widening is done "
            "silently: int to long to float to double, numbers to string, string to or from binary, a decimal to more "
            f"digits of its scale. Cast the column to {target}."
        )
    return out


# ---------------------------------------------------------------- flat types
def _flat(array: pa.Array, target: pa.DataType, path: str, where: str) -> pa.Array | None:
    """The converted array, or None when 7.4 has no such conversion."""
    source = array.type
    try:
        for applies, convert in _CONVERSIONS:
            if applies(source, target):
                return convert(array, target)
    except (pa.ArrowInvalid, UnicodeDecodeError) as error:
        raise TableError(
            f"{where}: column {path!r}: a value of type {source} does not fit {target}: {error}. Correct the value, or "
            f"cast the column to {target} in the way you want."
        ) from None
    return None


def _widens(source: pa.DataType, target: pa.DataType) -> bool:
    """int -> long -> float -> double, and narrower or unsigned Arrow integers that a wider signed one holds."""
    if pa.types.is_integer(source) and pa.types.is_signed_integer(target):
        unsigned = pa.types.is_unsigned_integer(source)
        return bool(source.bit_width + unsigned <= target.bit_width)
    if pa.types.is_integer(source):
        return bool(target in (pa.float32(), pa.float64()))
    return bool(source in (pa.float16(), pa.float32()) and target in (pa.float32(), pa.float64()))


def _same_time(source: pa.DataType, target: pa.DataType) -> bool:
    """Timestamps both with or both without a zone, two times of day, two dates."""
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(target):
        return (source.tz is None) == (target.tz is None) and source.unit != "ns"
    if pa.types.is_time(source) and pa.types.is_time(target):
        return bool(source.unit != "ns")
    return bool(pa.types.is_date(source) and pa.types.is_date(target))


def to_unit(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Another unit of the same time type; a coarser unit rounds down, as Java's floorDiv does."""
    if pa.types.is_date(target) or not len(array):
        return array.cast(target)
    old, new = _UNIT_PER_SECOND[array.type.unit], _UNIT_PER_SECOND[target.unit]
    if new >= old:
        return array.cast(target)
    wide = np.frombuffer(array.buffers()[1], f"i{array.type.bit_width // 8}")[array.offset : array.offset + len(array)]
    values = (wide // (old // new)).astype(f"i{target.bit_width // 8}")
    mask = array.is_null().to_numpy(zero_copy_only=False)
    return pa.array(values, pa.int32() if target.bit_width == 32 else pa.int64(), mask=mask).view(target)


def _same_scale(source: pa.DataType, target: pa.DataType) -> bool:
    return bool(
        pa.types.is_decimal(source)
        and pa.types.is_decimal(target)
        and source.scale == target.scale
        and source.precision <= target.precision
    )


def _number_text(source: pa.DataType, target: pa.DataType) -> bool:
    number = pa.types.is_integer(source) or source in (pa.float32(), pa.float64())
    return bool(number and pa.types.is_string(target))


def _java_text(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Numbers as Java prints them; floats once per distinct value (a column that changed to string is rare)."""
    if pa.types.is_integer(array.type):
        return array.cast(target)
    encoded = array.dictionary_encode()
    values = encoded.dictionary.to_numpy(zero_copy_only=False)
    return pa.array([java_double(v) for v in values], target).take(encoded.indices)


def java_double(value: np.floating[Any] | float) -> str:
    """Text of Java's Double.toString or (for a float32) Float.toString: shortest digits, 1.0E10 style outside
    [10^-3, 10^7)."""
    if not np.isfinite(value):
        return "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    sign, digits, exponent = Decimal(str(value)).as_tuple()
    text = "".join(map(str, digits)).rstrip("0") or "0"
    point = len(digits) + int(exponent)  # value = 0.text * 10^point
    if text == "0":
        body = "0.0"
    elif -3 < point <= 7:
        whole = text[:point].ljust(point, "0") if point > 0 else "0"
        body = f"{whole}.{'0' * max(-point, 0)}{text[max(point, 0) :] or '0'}"
    else:
        body = f"{text[0]}.{text[1:] or '0'}E{point - 1}"
    return "-" + body if sign else body


def _plain(array: pa.Array, target: pa.DataType) -> pa.Array:
    return array.cast(target)


def _unsafe(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Java's widening of integers to floating point rounds large values and never fails."""
    return array.cast(target, safe=False)


def _is_bytes(t: pa.DataType) -> bool:
    return is_binary(t) or bool(pa.types.is_fixed_size_binary(t))


_CONVERSIONS: tuple[
    tuple[Callable[[pa.DataType, pa.DataType], bool], Callable[[pa.Array, pa.DataType], pa.Array]], ...
] = (
    (lambda s, t: is_text(s) and (is_text(t) or is_binary(t)), _plain),
    (lambda s, t: is_binary(s) and (is_text(t) or _is_bytes(t)), _plain),
    (lambda s, t: bool(pa.types.is_fixed_size_binary(s)) and is_binary(t), _plain),
    (_widens, _unsafe),
    (_same_time, to_unit),
    (_same_scale, _plain),
    (_number_text, _java_text),
)


# ---------------------------------------------------------------- nested types
def _nested(array: pa.Array, target: pa.DataType, path: str, where: str) -> pa.Array | None:
    source = array.type
    if pa.types.is_struct(target) and pa.types.is_struct(source):
        return _struct(array, target, path, where)
    if pa.types.is_list(target) and is_list(source):
        if not pa.types.is_list(source):
            array = array.cast(pa.list_(source.value_field))
        items = _child(array.values, array.flatten, target.value_field, path + "[]", where)
        return _rebuilt(array, target, items)
    if pa.types.is_map(target) and pa.types.is_map(source):
        keys = _cast(array.keys, target.key_field, path + "{key}", where)
        values = _child(array.items, lambda: _slots(array), target.item_field, path + "{}", where)
        entries = pa.struct([target.key_field, target.item_field])
        return _rebuilt(array, target, pa.Array.from_buffers(entries, len(keys), [None], children=[keys, values]))
    return None


def _slots(array: pa.Array) -> pa.Array:
    """The values of a map array that belong to a row."""
    low, high = array.offsets[0].as_py(), array.offsets[len(array)].as_py()
    return array.items.slice(low, high - low)


def _struct(array: pa.Array, target: pa.DataType, path: str, where: str) -> pa.Array:
    source = array.type
    children = []
    for i in range(target.num_fields):
        field = target.field(i)
        index = _place(source, field.name, target)
        inner = f"{path}.{field.name}"
        if index >= 0:
            present = partial(array.field(index).filter, array.is_valid())
            children.append(_child(array.field(index), present, field, inner, where))
        else:
            children.append(_missing(field, len(array), inner, where))
    return pa.Array.from_buffers(target, len(array), [_validity(array)], children=children)


def _place(source: pa.StructType, name: str, target: pa.StructType) -> int:
    """Where a struct has a field of that name, -1 without one. In another case too, as SQL has it: DuckDB leaves the names
    of a struct as they are when it casts it to one with the same types."""
    index: int = source.get_field_index(name)
    if index >= 0:
        return index
    same = [i for i, field in enumerate(source) if field.name.lower() == name.lower()]
    return same[0] if len(same) == 1 and target.get_field_index(source.field(same[0]).name) < 0 else -1


def _child(array: pa.Array, present: Callable[[], pa.Array], field: pa.Field, path: str, where: str) -> pa.Array:
    """A converted child. The NULLs of a required one may only belong to rows that are NULL themselves; they are filled,
    because writers look at the child alone. `present` gives the values of the rows that are there."""
    out = _cast(array, field.with_nullable(True), path, where)
    if field.nullable or not out.null_count:
        return out
    if present().null_count:
        raise _required(path, where)
    return without_nulls(out)


def _rebuilt(array: pa.Array, target: pa.DataType, child: pa.Array) -> pa.Array:
    """The list or map array around another child; offsets are those of the slice."""
    offsets = pa.py_buffer(
        np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
        if len(array)
        else np.zeros(1, np.int32)
    )
    return pa.Array.from_buffers(target, len(array), [_validity(array), offsets], children=[child])


def _validity(array: pa.Array) -> pa.Buffer | None:
    if not array.null_count:
        return None
    bits = np.asarray(array.is_valid().to_numpy(zero_copy_only=False))
    return pa.py_buffer(np.packbits(bits, bitorder="little"))


def without_nulls(array: pa.Array) -> pa.Array:
    """The array with whatever its buffers hold in place of its NULLs; for required children of NULL rows."""
    t, n = array.type, len(array)
    if not array.null_count or pa.types.is_null(t):
        return array
    if pa.types.is_struct(t):
        children = [array.field(i) for i in range(t.num_fields)]
        return pa.Array.from_buffers(t, n, [None], children=children)
    if pa.types.is_map(t):
        entries = pa.StructArray.from_arrays([array.keys, array.items], fields=[t.key_field, t.item_field])
        return pa.Array.from_buffers(t, n, [None, array.buffers()[1]], offset=array.offset, children=[entries])
    if pa.types.is_list(t):
        return pa.Array.from_buffers(t, n, [None, array.buffers()[1]], offset=array.offset, children=[array.values])
    return pa.Array.from_buffers(t, n, [None, *array.buffers()[1:]], offset=array.offset)
