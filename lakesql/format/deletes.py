"""The content of delete blocks: which keys are deleted, and the ordering value of each deletion, to and from Arrow.

    int32 version | int32 byte length | version 1: Kryo HoodieKey[]; 2: Kryo DeleteRecord[]; 3: HoodieDeleteRecordList

Strategy: version 3 is one Avro array, so its items are found in lanes (avro_skip.chain) and read as one flat column;
versions 1 and 2 (kryo) become the same column. An ordering value is a union of wrapper records; it counts where Java
could compare the wrapper's class with the column's. Hudi format note 4.7; what a default ordering value means: 5.1.
Only version 3 is written, one wrapper type per block, which is what every reader accepts.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakesql.errors import FormatError, TableError, Unsupported
from lakesql.format.avro_decode import decode_values, read
from lakesql.format.avro_encode import encode_values
from lakesql.format.avro_skip import chain, damaged, skip
from lakesql.format.avro_types import is_binary, is_text, parse_type
from lakesql.format.conform import to_unit
from lakesql.format.kryo import read_deletes
from lakesql.format.words import FRONT, U8, Bytes, Positions, Window, signed, varint, varints, window

_VALUE: dict[str, Any] = {
    # wrapper: Avro type of its value, in the order of the union's branches 1, 2, ...
    "Boolean": "boolean",
    "Int": "int",
    "Long": "long",
    "Float": "float",
    "Double": "double",
    "Bytes": "bytes",
    "String": "string",
    "Date": "int",
    "Decimal": {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15},
    "TimeMicros": {"type": "long", "logicalType": "time-micros"},
    "TimestampMicros": "long",
}
_OUTER = tuple(_VALUE)  # members of the ordering union; ArrayWrapper follows
_INNER = (*_VALUE, "LocalDate")  # members of the union inside ArrayWrapper
_ARRAY_MEMBER = len(_OUTER)


def _wrapper(name: str, value: Any) -> dict[str, Any]:
    return {"type": "record", "name": f"{name}Wrapper", "fields": [{"name": "value", "type": value}]}


def _delete_record(*more: Any) -> dict[str, Any]:
    """HoodieDeleteRecord with the ordering union: null, the wrappers, then `more`."""
    ordering = ["null", *(_wrapper(name, value) for name, value in _VALUE.items()), *more]
    fields = {"recordKey": ["null", "string"], "partitionPath": ["null", "string"], "orderingVal": ordering}
    return {
        "type": "record",
        "name": "HoodieDeleteRecord",
        "fields": [{"name": n, "type": t} for n, t in fields.items()],
    }


_ITEMS = {"type": "array", "items": ["null", *(f"{name}Wrapper" for name in _VALUE), _wrapper("LocalDate", "int")]}
_ARRAY = {"type": "record", "name": "ArrayWrapper", "fields": [{"name": "wrappedValues", "type": ["null", _ITEMS]}]}

_FLAT = parse_type(_delete_record())  # without ArrayWrapper: it can be skipped from guessed positions too
_LIST = parse_type({"type": "array", "items": _delete_record(_ARRAY)})
_RECORD = _LIST.children[0]
_ORDERING: pa.StructType = _RECORD.children[2].arrow
_ELEMENTS: pa.ListType = _ORDERING.field(_ARRAY_MEMBER).type.field(0).type
_ELEMENT: pa.StructType = _ELEMENTS.value_type

ONE_BLOCK_ITEMS_MIN = 4096  # below this the general reader is as fast


# ---------------------------------------------------------------- reading
def decode(content: memoryview, ordering_types: Sequence[pa.DataType], where: str) -> pa.Table:
    """Rows of a delete block: record_key string, partition_path string, commit_time_delete bool, ord_0, ord_1, ...

    ord_i has ordering_types[i]. commit_time_delete is True when the block gives no ordering value that can be compared:
    none at all, the default Integer 0, or a class that does not fit the column; then every ord_i is NULL. FormatError
    when the content is damaged, Unsupported for ordering classes of old Kryo contents.
    """
    if len(content) < 8:
        raise FormatError(f"{where}: a delete block of {len(content)} bytes. It is torn.")
    version, size = struct.unpack_from(">ii", content)
    if not 0 <= size <= len(content) - 8:
        raise FormatError(f"{where}: a delete block announces {size} bytes and has {len(content) - 8}. It is damaged.")
    body = content[8 : 8 + size]
    if version == 3:
        rows = _records(np.frombuffer(body, U8), where)
    elif version in (1, 2):
        rows = _kryo_records(bytes(body), version, where)
    else:
        raise FormatError(f"{where}: delete block content version {version}; versions 1, 2 and 3 exist.")
    commit_time, ordering = _ordering(rows.field(2), ordering_types, where)
    names = ["record_key", "partition_path", "commit_time_delete", *(f"ord_{i}" for i in range(len(ordering_types)))]
    return pa.table([rows.field(0), rows.field(1), commit_time, *ordering], names=names)


def _records(body: Bytes, where: str) -> pa.Array:
    """The items of a HoodieDeleteRecordList as a struct array."""
    w = window(body, where)
    starts = _one_block(body, w)
    if starts is not None:
        return decode_values(_RECORD, body, starts, where)
    array, end = read(_LIST, w, np.array([FRONT], np.int64), None)
    if int(end[0]) != w.end:
        raise damaged(w, f"the list of delete records ends at byte {int(end[0]) - FRONT} of {len(body)}")
    return array.values


def _one_block(body: Bytes, w: Window) -> Positions | None:
    """Positions of the items and of the end of the last one, when the list is one long block as Hudi writes it."""
    number, first = varints(w, np.array([FRONT], np.int64))
    count, start, end = int(signed(number)[0]), int(first[0]) - FRONT, len(body) - 1
    if count < ONE_BLOCK_ITEMS_MIN or count > len(body) or body[end]:
        return None
    starts = chain(lambda pos: skip(_FLAT, w, pos + FRONT) - FRONT, start, end, count)
    return None if starts is None else np.append(starts, end)


def _kryo_records(body: bytes, version: int, where: str) -> pa.Array:
    """Contents of versions 1 and 2 in the shape of version 3."""
    try:
        rows = read_deletes(body, version)
    except (FormatError, Unsupported) as error:
        raise type(error)(f"{where}: {error}") from None
    keys, partitions = (pa.array([row[i] for row in rows], pa.string()) for i in (0, 1))
    values = {n: [row[3] if row[2] == n.lower() else None for row in rows] for n in _OUTER}
    return _struct(keys, partitions, {n: _wrapped(n, pa.array(v, _value_type(n))) for n, v in values.items()})


# ---------------------------------------------------------------- the union as Arrow structs
def _struct(keys: pa.Array, partitions: pa.Array, members: dict[str, pa.Array]) -> pa.Array:
    """Delete records from key, partition path and the members of the ordering union that have values."""
    n = len(keys)
    ordering = [
        members.get(name, pa.nulls(n, field.type)) for name, field in zip((*_OUTER, "Array"), _ORDERING, strict=True)
    ]
    union = pa.Array.from_buffers(_ORDERING, n, [None], children=ordering)
    return pa.Array.from_buffers(_RECORD.arrow, n, [None], children=[keys, partitions, union])


def _value_type(wrapper: str) -> pa.DataType:
    return _ELEMENT.field(_INNER.index(wrapper)).type.field(0).type


def _wrapped(wrapper: str, values: pa.Array) -> pa.Array:
    """A member of the union; null where the value is."""
    bits = np.packbits(values.is_valid().to_numpy(zero_copy_only=False), bitorder="little")
    t = _ELEMENT.field(_INNER.index(wrapper)).type
    return pa.Array.from_buffers(t, len(values), [pa.py_buffer(bits)], children=[values])


def _mask(array: pa.Array) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.asarray(array.to_numpy(zero_copy_only=False))


# ---------------------------------------------------------------- ordering values to columns
def _ordering(union: pa.Array, types: Sequence[pa.DataType], where: str) -> tuple[pa.Array, list[pa.Array]]:
    """(commit-time delete or not, a column per type)."""
    arrays = union.field(_ARRAY_MEMBER).flatten()[0]
    if len(types) == 1:
        column = _converted(union, _OUTER, types[0], where, zero=False)
        if arrays.null_count < len(arrays):
            column = pc.coalesce(column, _array_columns(arrays, types, where)[0][0])
        return column.is_null(), [column]
    if not types or arrays.null_count == len(arrays):
        return pa.array(np.ones(len(union), bool)), [pa.nulls(len(union), t) for t in types]
    columns, fits = _array_columns(arrays, types, where)
    return pc.invert(fits), columns


def _array_columns(lists: pa.Array, types: Sequence[pa.DataType], where: str) -> tuple[list[pa.Array], pa.Array]:
    """Elements of ArrayWrapper as one column per type, and whether all of them fit; NULL columns where they do not.

    A null element, or the default Integer 0 in a column of another class, is a NULL that fits.
    """
    fits = _mask(pc.equal(lists.value_lengths(), len(types)).fill_null(False))
    first = lists.offsets.to_numpy()[:-1].astype(np.int64)
    columns = []
    for i, t in enumerate(types):
        element = lists.values.take(pa.array(first + i, mask=~fits))
        column = _converted(element, _INNER, t, where, zero=True)
        zero = pc.equal(element.field(_INNER.index("Int")).flatten()[0], 0).fill_null(False)
        fits = fits & (_mask(column.is_valid()) | _mask(element.is_null()) | _mask(zero))
        columns.append(column)
    return [pc.if_else(pa.array(fits), c, pa.scalar(None, c.type)) for c in columns], pa.array(fits)


def _converted(union: pa.Array, wrappers: Sequence[str], target: pa.DataType, where: str, *, zero: bool) -> pa.Array:
    """Values of the wrappers that fit the column's type, NULL for all others; Integer 0 counts only with `zero`."""
    out = pa.nulls(len(union), target)
    for i, name in enumerate(wrappers):
        member = union.field(i)
        convert = _FITS.get((name, _kind(target)))
        if convert is None or member.null_count == len(member):
            continue
        values = member.flatten()[0]
        if name == "Int" and not zero:
            values = pc.if_else(pc.equal(values, 0), pa.scalar(None, values.type), values)
        try:
            out = pc.coalesce(out, convert(values, target))
        except pa.ArrowInvalid as error:
            raise FormatError(f"{where}: an ordering value in {name}Wrapper does not fit {target}: {error}.") from None
    return out


def _kind(t: pa.DataType) -> str:
    if pa.types.is_timestamp(t):
        return "timestamp"
    return "decimal" if pa.types.is_decimal(t) else str(t)


def _number(values: pa.Array, target: pa.DataType) -> pa.Array:
    """The same or a wider class."""
    return values.cast(target, safe=False)


def _stored(values: pa.Array, target: pa.DataType) -> pa.Array:
    """The stored number is the column's number."""
    return values.view(target)


_FITS: dict[tuple[str, str], Callable[[pa.Array, pa.DataType], pa.Array]] = {
    ("Boolean", "bool"): _number,
    ("Int", "int32"): _number,
    ("Int", "int64"): _number,
    ("Int", "float"): _number,
    ("Int", "double"): _number,
    ("Int", "date32[day]"): _stored,
    ("Int", "time32[ms]"): _stored,
    ("Long", "int64"): _number,
    ("Long", "double"): _number,
    ("Long", "timestamp"): _stored,
    ("Long", "time64[us]"): _stored,
    ("Float", "float"): _number,
    ("Float", "double"): _number,
    ("Double", "double"): _number,
    ("Bytes", "binary"): _number,
    ("String", "string"): _number,
    ("Date", "date32[day]"): _stored,
    ("LocalDate", "date32[day]"): _stored,
    ("Decimal", "decimal"): lambda values, target: values.cast(target),
    ("TimeMicros", "time64[us]"): _number,
    ("TimestampMicros", "timestamp"): lambda values, target: to_unit(
        values.view(pa.timestamp("us", target.tz)), target
    ),
}


# ---------------------------------------------------------------- writing
def encode(keys: pa.Array, partitions: pa.Array, ordering: Sequence[pa.Array] | None) -> bytes:
    """Content of a version 3 delete block.

    ordering: None for commit-time deletes (IntWrapper 0), else one column per ordering field in table order. A single
    column must have no NULLs (give those keys a block of their own, with None); one of several may. Dates are written
    as IntWrapper and timestamps as LongWrapper in the column's unit, the classes that Spark compares them with.
    Unsupported for a type without an order in Hudi, TableError for decimals that decimal(30, 15) cannot hold.
    """
    keys, partitions = _plain(keys).cast(pa.string()), _plain(partitions).cast(pa.string())
    n = len(keys)
    if ordering is None:
        members = {"Int": _wrapped("Int", pa.array(np.zeros(n, np.int32)))}
    elif len(ordering) == 1:
        wrapper, values = _unwrapped(_plain(ordering[0]))
        assert not values.null_count, "commit-time deletes belong into a delete block of their own"
        members = {wrapper: _wrapped(wrapper, values)}
    else:
        members = {"Array": _array_wrapped([_unwrapped(_plain(column)) for column in ordering], n)}
    data, _ = encode_values(_RECORD, _struct(keys, partitions, members))
    body = (varint(n) if n else b"") + data.tobytes() + b"\0"
    return struct.pack(">ii", 3, len(body)) + body


def _plain(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(array, pa.ChunkedArray):
        return array
    return pa.concat_arrays(array.chunks) if array.num_chunks else pa.nulls(0, array.type)


def _unwrapped(values: pa.Array) -> tuple[str, pa.Array]:
    """(wrapper, values of its type) for an ordering column."""
    t = values.type
    try:
        for fits, wrapper in _WRAPPER_OF:
            if fits(t):
                if pa.types.is_temporal(t):
                    values = values.view(pa.int32() if t.bit_width == 32 else pa.int64())
                return wrapper, values.cast(_value_type(wrapper))
    except pa.ArrowInvalid as error:
        raise TableError(f"an ordering value of type {t} cannot be written to a delete block: {error}.") from None
    raise Unsupported(f"a column of type {t} cannot be an ordering field: Hudi has no order for it.")


_WRAPPER_OF: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_boolean, "Boolean"),
    (lambda t: bool(pa.types.is_integer(t) and t.bit_width <= 32), "Int"),
    (lambda t: bool(pa.types.is_integer(t)), "Long"),
    (lambda t: bool(t == pa.float32()), "Float"),
    (lambda t: bool(t == pa.float64()), "Double"),
    (is_binary, "Bytes"),
    (is_text, "String"),
    (pa.types.is_decimal, "Decimal"),
    (lambda t: bool(pa.types.is_temporal(t) and t.bit_width == 32), "Int"),
    (lambda t: bool(pa.types.is_timestamp(t) or pa.types.is_time64(t)), "Long"),
)


def _array_wrapped(columns: Sequence[tuple[str, pa.Array]], n: int) -> pa.Array:
    """ArrayWrapper member: the values of a row side by side, a null for each NULL."""
    parts = []
    for wrapper, values in columns:
        members = [
            _wrapped(wrapper, values) if name == wrapper else pa.nulls(n, field.type)
            for name, field in zip(_INNER, _ELEMENT, strict=True)
        ]
        bits = pa.py_buffer(np.packbits(_mask(values.is_valid()), bitorder="little"))
        parts.append(pa.Array.from_buffers(_ELEMENT, n, [bits], children=members))
    k = len(columns)
    items = pa.concat_arrays(parts).take(pa.array(np.arange(n * k).reshape(k, n).T.reshape(-1)))
    offsets = pa.py_buffer(np.arange(0, n * k + 1, k, dtype=np.int32))
    lists = pa.Array.from_buffers(_ELEMENTS, n, [None, offsets], children=[items])
    return pa.Array.from_buffers(_ORDERING.field(_ARRAY_MEMBER).type, n, [None], children=[lists])
