"""Avro records of a log block to an Arrow table, all rows of a chunk at once, one field after the other.

Strategy: each reader gets the positions of its values in a `Window` and returns an Arrow array and the positions behind
the values, so a record is a chain of readers. A nullable value carries a mask: where it is False there is no value, the
position stays and the result is null; nested records pass the mask on. Items of arrays and maps are located first
(avro_skip) and then read as one flat column. Every chunk must end exactly where its records end, so damaged bytes give
FormatError. Types follow Hudi format note 7.1, the block content 4.4. Not done: schema resolution, see `conform`.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakesql.errors import FormatError, Unsupported
from lakesql.format.avro_skip import branches, chain, damaged, entry, items, skip
from lakesql.format.avro_types import AvroSchema, Node, arrow_fields, parse_schema
from lakesql.format.conform import without_nulls
from lakesql.format.words import FRONT, U8, U64, Bytes, Mask, Positions, Window, at, at_lengths, signed, varints, window

CHUNK_ROWS = 16384
CHUNK_BYTES = 4 << 20
RECORD_BYTES_MAX = 1 << 30
CHAIN_ROWS_MIN = 16384  # below this the plain loop finds record starts faster

Read = tuple[pa.Array, Positions]


def decode_records(
    data: bytes | bytearray | memoryview | Bytes, count: int, avro: AvroSchema, columns: Collection[str] | None = None
) -> pa.Table:
    """`count` records, each an int32 (big-endian) length and an Avro datum, as a table in the order of the schema.

    columns: names to keep (None: all; unknown names are ignored). Types and nullability are arrow_schema(avro)'s.
    FormatError when the bytes are not exactly `count` such records.
    """
    node = parse_schema(avro)
    raw = np.frombuffer(data, U8)
    starts = record_starts(raw, count)
    keep = [columns is None or name in columns for name in node.names]
    if not any(keep):
        return pa.table({"": pa.nulls(count)}).select([])
    schema = pa.schema([f for f, k in zip(arrow_fields(node), keep, strict=True) if k])
    batches = []
    for first, last in _chunks(starts):
        begin = int(starts[first])
        w = window(raw[begin : int(starts[last])], "log block")
        pos = starts[first:last] + (FRONT + 4 - begin)
        stop = starts[first + 1 : last + 1] + (FRONT - begin)
        batches.append(pa.RecordBatch.from_arrays(_record_columns(node, keep, w, pos, stop), schema=schema))
    return pa.Table.from_batches(batches, schema)


def decode_spans(
    node: Node, data: Bytes, start: Positions, stop: Positions, keep: Sequence[bool], where: str
) -> list[pa.Array]:
    """The kept fields of records that fill [start[i], stop[i]) exactly, with any bytes between them.

    `start` ascends and no two overlap. DamagedAvro when a record does not fit its bytes; fields that are not kept are
    followed to the end of the record, their texts are not checked.
    """
    parts = []
    for first, last in _chunks(np.append(start, stop[-1:])):
        begin = int(start[first])
        w = window(data[begin : int(stop[last - 1])], where)
        shift = FRONT - begin
        parts.append(
            _record_columns(node, list(keep), w, start[first:last] + shift, stop[first:last] + shift, whole=True)
        )
    if not parts:
        return [pa.nulls(0, child.arrow) for child, kept in zip(node.children, keep, strict=True) if kept]
    return parts[0] if len(parts) == 1 else [pa.concat_arrays(columns) for columns in zip(*parts, strict=True)]


def spans_end(node: Node, data: Bytes, start: Positions, stop: Positions, where: str) -> Mask:
    """Which of such records end where they should, as far as lengths tell; DamagedAvro when an array or map does not."""
    out = np.zeros(len(start), np.bool_)
    for first, last in _chunks(np.append(start, stop[-1:])):
        begin = int(start[first])
        w = window(data[begin : int(stop[last - 1])], where)
        out[first:last] = skip(node, w, start[first:last] + (FRONT - begin)) == stop[first:last] + (FRONT - begin)
    return out


def decode_values(node: Node, data: Bytes, starts: Positions, where: str) -> pa.Array:
    """Values of one type, known to reach from starts[i] to starts[i + 1] without gaps, as one array."""
    parts = []
    for first, last in _chunks(starts):
        begin = int(starts[first])
        w = window(data[begin : int(starts[last])], where)
        array, end = read(node, w, starts[first:last] + (FRONT - begin), None)
        assert (end == starts[first + 1 : last + 1] + (FRONT - begin)).all()
        parts.append(array)
    return pa.concat_arrays(parts)


def record_starts(raw: Bytes, count: int) -> Positions:
    """Positions of the length fields of `count` records, and the end of the last one; FormatError when they do not
    fill the bytes exactly."""
    size = len(raw)
    if count < 0 or size < 4 * count or (count == 0 and size):
        raise FormatError(f"log block: {count} records announced in {size} bytes. The block is damaged.")
    starts = None
    if count >= CHAIN_ROWS_MIN:
        lengths = at_lengths(raw)

        def step(pos: Positions) -> Positions:
            after = pos + 4 + lengths[np.minimum(pos, size - 4)]
            return np.where(pos > size - 4, size + 1, after)

        starts = chain(step, 0, size, count)
    if starts is not None:
        return np.append(starts, size)
    return _record_starts_loop(raw, count)


def _record_starts_loop(raw: Bytes, count: int) -> Positions:
    view = raw.data
    starts = [0] * (count + 1)
    size = len(raw)
    p = 0
    for i in range(count):
        if p + 4 > size:
            raise FormatError(f"log block: record {i} of {count} begins at byte {p} of {size}. The block is torn.")
        p += 4 + (view[p] << 24 | view[p + 1] << 16 | view[p + 2] << 8 | view[p + 3])
        starts[i + 1] = p
    if p != size:
        raise FormatError(f"log block: {count} records end at byte {p} of {size}. The block is damaged.")
    return np.array(starts, np.int64)


def _chunks(starts: Positions) -> list[tuple[int, int]]:
    """Row ranges of at most CHUNK_ROWS rows and about CHUNK_BYTES bytes, so that temporary arrays stay in the cache."""
    out = []
    first, rows = 0, len(starts) - 1
    while first < rows:
        last = int(np.searchsorted(starts, starts[first] + CHUNK_BYTES, "right")) - 1
        last = min(max(last, first + 1), first + CHUNK_ROWS, rows)
        if starts[last] - starts[first] >= RECORD_BYTES_MAX:
            size = int(starts[last] - starts[first])
            raise Unsupported(f"an Avro record of {size} bytes: records of 1 GiB and more are not read.")
        out.append((first, last))
        first = last
    return out


def _record_columns(
    node: Node, keep: list[bool], w: Window, pos: Positions, stop: Positions, *, whole: bool = False
) -> list[pa.Array]:
    """The kept columns of records at `pos` that must end at `stop`; without `whole`, fields behind the last kept one
    are not read."""
    arrays = []
    last = len(keep) - 1 if whole else max((i for i, k in enumerate(keep) if k), default=-1)
    for child, kept in zip(node.children[: last + 1], keep, strict=False):
        if kept:
            array, pos = read(child, w, pos, None)
            arrays.append(array)
        else:
            pos = _checked(w, skip(child, w, pos))
    if bool((pos > stop).any()) or (last + 1 == len(keep) and bool((pos != stop).any())):
        raise damaged(w, "a record does not end where its length says")
    return arrays


# ---------------------------------------------------------------- readers
def read(node: Node, w: Window, pos: Positions, valid: Mask | None) -> Read:
    """Values of a type at the positions: (array of node.arrow, null where `valid` is False; positions behind)."""
    array, end = _READERS[node.kind](node, w, pos, valid)
    return array, _checked(w, end)


def _checked(w: Window, end: Positions) -> Positions:
    if len(end) and int(end.max()) > w.end:
        raise damaged(w, "a value goes on past the end")
    return end


def _bits(mask: Mask | None) -> pa.Buffer | None:
    return None if mask is None else pa.py_buffer(np.packbits(mask, bitorder="little"))


def _array(t: pa.DataType, values: npt.NDArray[Any], valid: Mask | None) -> pa.Array:
    return pa.Array.from_buffers(t, len(values), [_bits(valid), pa.py_buffer(np.ascontiguousarray(values))])


def _moved(pos: Positions, end: Positions, valid: Mask | None) -> Positions:
    return end if valid is None else np.where(valid, end, pos)


def _read_null(node: Node, _w: Window, pos: Positions, _valid: Mask | None) -> Read:
    return pa.nulls(len(pos), node.arrow), pos


def _read_boolean(node: Node, w: Window, pos: Positions, valid: Mask | None) -> Read:
    byte = w.raw[pos]
    if valid is not None:
        byte = np.where(valid, byte, U8(0))
    if len(byte) and int(byte.max()) > 1:
        raise damaged(w, "a boolean that is neither 0 nor 1")
    values = pa.py_buffer(np.packbits(byte, bitorder="little"))
    return pa.Array.from_buffers(node.arrow, len(pos), [_bits(valid), values]), _moved(pos, pos + 1, valid)


def _read_integer(node: Node, w: Window, pos: Positions, valid: Mask | None) -> Read:
    z, end = varints(w, pos)
    if valid is not None:
        z = np.where(valid, z, U64(0))
    values: npt.NDArray[Any] = signed(z)
    if node.kind == "int":
        if len(z) and int(z.max()) >> 32:
            raise damaged(w, "an int of more than 32 bits")
        values = values.astype(np.int32)
    array = _array(node.arrow, values, valid)
    if pa.types.is_time(node.arrow):
        _validated(array, w, "a time of day outside the day")
    return array, _moved(pos, end, valid)


def _read_enum(node: Node, w: Window, pos: Positions, valid: Mask | None) -> Read:
    z, end = varints(w, pos)
    if valid is not None:
        z = np.where(valid, z, U64(0))
    if len(z) and (int(z.max()) >= 2 * len(node.names) or bool((z & U64(1)).any())):
        raise damaged(w, f"a number that is no symbol of an enum of {len(node.names)}")
    index = _array(pa.int32(), (z >> U64(1)).astype(np.int32), valid)
    return pa.array(node.names, pa.string()).take(index), _moved(pos, end, valid)


def _read_floating(node: Node, w: Window, pos: Positions, valid: Mask | None) -> Read:
    word = w.words[pos]
    values = word if node.kind == "double" else word.astype(np.uint32)
    return _array(node.arrow, values, valid), _moved(pos, pos + node.size_bytes, valid)


def _read_fixed(node: Node, w: Window, pos: Positions, valid: Mask | None) -> Read:
    end = _checked(w, _moved(pos, pos + node.size_bytes, valid))
    if pa.types.is_decimal(node.arrow):
        length = np.full(len(pos), node.size_bytes, np.int64)
        return _decimals(node, w, pos, length, valid), end
    if not node.size_bytes:
        return pa.Array.from_buffers(node.arrow, len(pos), [_bits(valid), pa.py_buffer(b"")]), end
    if valid is not None:
        pos = np.where(valid, pos, 0)
    return _array(node.arrow, at(w.raw, node.size_bytes)[pos], valid), end


def _read_text(node: Node, w: Window, pos: Positions, valid: Mask | None) -> Read:
    """Strings and bytes, and decimals stored as bytes."""
    byte = w.raw[pos]
    if valid is None and len(byte) and int(byte.max()) < 128 and not bool((byte & U8(1)).any()):
        length, start = (byte >> U8(1)).astype(np.int64), pos + 1
        end = start + length
    else:
        z, start = varints(w, pos)
        if valid is not None:
            z = np.where(valid, z, U64(0))
            start = np.where(valid, start, pos)
        if bool((z & U64(1)).any()) or (len(z) and int(z.max()) > 2 * w.end):
            raise damaged(w, "a string of negative length or longer than the data")
        length = (z >> U64(1)).astype(np.int64)
        end = start + length
    _checked(w, end)
    if pa.types.is_decimal(node.arrow):
        return _decimals(node, w, start, length, valid), end
    return _texts(node, w, start, length, valid), end


def _texts(node: Node, w: Window, start: Positions, length: Positions, valid: Mask | None) -> pa.Array:
    """Bytes of each value gathered into one Arrow array; start must ascend, as it does inside a chunk."""
    n = len(start)
    if not n:
        return pa.nulls(0, node.arrow)
    low, high = int(length.min()), int(length.max())
    if low == high and valid is None and high:
        offsets = np.arange(0, (n + 1) * high, high, dtype=np.int32)
        gathered = pa.py_buffer(at(w.raw, high)[start])
        array = pa.Array.from_buffers(node.arrow, n, [None, pa.py_buffer(offsets), gathered])
    else:
        # the values and the bytes between them are one monotone offsets array over the window: keep every second slot
        slots = np.empty(2 * n + 1, np.int32)
        slots[0 : 2 * n : 2] = start
        slots[1 : 2 * n : 2] = start + length
        slots[2 * n] = slots[2 * n - 1]
        if bool((slots[1:] < slots[:-1]).any()):
            raise damaged(w, "values overlap")
        whole = pa.Array.from_buffers(pa.binary(), 2 * n, [None, pa.py_buffer(slots), pa.py_buffer(w.raw)])
        _, offs, kept = whole.take(pa.array(np.arange(0, 2 * n, 2, dtype=np.int32))).buffers()
        array = pa.Array.from_buffers(node.arrow, n, [_bits(valid), offs, kept])
    if node.kind == "string":
        _validated(array, w, "a string is not UTF-8")
    return array


def _validated(array: pa.Array, w: Window, what: str) -> None:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        raise damaged(w, f"{what} ({error})") from None


def _decimals(node: Node, w: Window, start: Positions, length: Positions, valid: Mask | None) -> pa.Array:
    """Big-endian two's complement numbers of `length` bytes to decimal128; the sign fills the bytes in front."""
    n = len(start)
    if valid is not None:
        length = np.where(valid, length, 0)
    end = start + length
    tail = at(w.raw, 16)[end - 16].view(U8).reshape(n, 16)
    negative = (length > 0) & (w.raw[start] > 127)
    fill = np.where(negative, U8(255), U8(0))
    absent = np.arange(16)[None, :] < (16 - length)[:, None]
    value = np.where(absent, fill[:, None], tail)
    for i in np.flatnonzero(length > 16).tolist():
        head = w.raw[int(start[i]) : int(end[i]) - 16]
        if (head != fill[i]).any() or (value[i, 0] > 127) != bool(negative[i]):
            raise damaged(w, "a decimal of more than 38 digits")
    array = _array(node.arrow, value[:, ::-1], valid)
    _validated(array, w, "a decimal has too many digits")
    return array


# ---------------------------------------------------------------- nested types
def _read_record(node: Node, w: Window, pos: Positions, valid: Mask | None) -> Read:
    children = []
    for child in node.children:
        array, pos = read(child, w, pos, valid)
        children.append(array if child.nullable else without_nulls(array))
    return pa.Array.from_buffers(node.arrow, len(pos), [_bits(valid)], children=children), pos


def _read_list(node: Node, w: Window, pos: Positions, valid: Mask | None) -> Read:
    starts, counts, end = items(node, w, pos, valid)
    _checked(w, end)
    offsets = np.zeros(len(pos) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    assert offsets[-1] < 1 << 31  # fewer items than bytes in a chunk
    children, after = read(entry(node), w, starts, None) if node.kind == "array" else _read_entries(node, w, starts)
    if bool((after[:-1] > starts[1:]).any()):
        raise damaged(w, "items of an array or map overlap")
    buffers = [_bits(valid), pa.py_buffer(offsets.astype(np.int32))]
    return pa.Array.from_buffers(node.arrow, len(pos), buffers, children=[children]), end


def _read_entries(node: Node, w: Window, starts: Positions) -> Read:
    keys, pos = read(entry(node).children[0], w, starts, None)
    values, pos = read(node.children[0], w, pos, None)
    t = pa.struct([node.arrow.key_field, node.arrow.item_field])
    return pa.Array.from_buffers(t, len(starts), [None], children=[keys, values]), pos


def _read_union(node: Node, w: Window, pos: Positions, valid: Mask | None) -> Read:
    branch, pos = branches(node, w, pos, valid)
    _checked(w, pos)
    wanted = [i for i in range(len(node.children)) if i != node.null_branch]
    if len(wanted) == 1:
        return read(node.children[wanted[0]], w, pos, _chosen(branch, wanted[0]))
    if not wanted:
        return pa.nulls(len(branch), node.arrow), pos
    children = []
    for i in wanted:
        chosen = _chosen(branch, i)
        if chosen is not None and not chosen.any():
            children.append(pa.nulls(len(branch), node.children[i].arrow))
        else:
            array, pos = read(node.children[i], w, pos, chosen)
            children.append(array)
    set_ = branch >= 0 if node.null_branch < 0 else (branch >= 0) & (branch != node.null_branch)
    bits = _bits(None if set_.all() else set_)
    return pa.Array.from_buffers(node.arrow, len(branch), [bits], children=children), pos


def _chosen(branch: Positions, number: int) -> Mask | None:
    chosen: Mask = branch == number
    return None if chosen.all() else chosen


_READERS: dict[str, Callable[[Node, Window, Positions, Mask | None], Read]] = {
    "null": _read_null,
    "boolean": _read_boolean,
    "int": _read_integer,
    "long": _read_integer,
    "float": _read_floating,
    "double": _read_floating,
    "string": _read_text,
    "bytes": _read_text,
    "fixed": _read_fixed,
    "enum": _read_enum,
    "array": _read_list,
    "map": _read_list,
    "record": _read_record,
    "union": _read_union,
}
