"""Arrow rows to the Avro records of a log block: columns to pieces of bytes, pieces to their places in one buffer.

Strategy: each column becomes pieces (a constant, one word, a fixed width, a run of bytes) with a size per row. Running
sizes give every piece its position, and a piece is written for all rows with one scatter. A word or strip may overwrite
up to GAP bytes behind it: pieces are written left to right, and each row has a gap behind it, so only bytes that are
still to be written are hit. At the end rows are moved together. Items of arrays and maps are encoded as rows of their
own and become the run of bytes of their parent. Layout: Hudi format note 4.4, types 7.1; one block per array, as Java
writes. Not done: blocks with a size in bytes, any choice among union branches beyond the first set `memberN`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakesql.errors import TableError, Unsupported
from lakesql.format.avro_skip import entry
from lakesql.format.avro_types import AvroSchema, Node, arrow_fields, parse_schema
from lakesql.format.conform import conform
from lakesql.format.words import (
    U8,
    U64,
    Bytes,
    Mask,
    Positions,
    Words,
    at,
    at_words,
    varint,
    varint_sizes,
    varint_words,
    zigzag,
)

CHUNK_ROWS = 16384
CHUNK_BYTES = 8 << 20
STRIP = 64  # bytes moved at a time
STRIPS_MAX = 64  # longer runs are copied one by one
GAP = STRIP + 8
RECORD_BYTES_MAX = (1 << 30) - 1  # what avro_decode reads


def encode_records(table: pa.Table, avro: AvroSchema) -> tuple[Bytes, Positions]:
    """Rows as records of int32 (big-endian) length and Avro datum: (bytes, n + 1 offsets).

    Columns are matched by name and widened as `conform` does; a missing nullable column is written as null. TableError
    when a column does not fit the schema or a required one has nulls.
    """
    node = parse_schema(avro)
    table = conform(table, pa.schema(arrow_fields(node)), "Avro records")
    parts, sizes = [], []
    for batch in _batches(table):
        data, offsets = _rows(node, batch.columns, None, batch.num_rows, prefix=True)
        parts.append(data)
        sizes.append(np.diff(offsets))
    total = np.zeros(table.num_rows + 1, np.int64)
    if sizes:
        np.cumsum(np.concatenate(sizes), out=total[1:])
    return np.concatenate(parts) if parts else np.empty(0, U8), total


def encode_values(node: Node, array: pa.Array) -> tuple[Bytes, Positions]:
    """Values of one type that follow each other: (bytes, n + 1 offsets). The array must have the type node.arrow."""
    return _rows_in_chunks(Node("record", None, ("value",), (node,)), [array], len(array))


def _batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    """Batches of at most CHUNK_ROWS rows and about CHUNK_BYTES bytes."""
    chunks = max((c.num_chunks for c in table.columns), default=0)
    if chunks > 1 and table.num_rows < chunks * CHUNK_ROWS // 2:
        table = table.combine_chunks()
    for batch in table.to_batches(max_chunksize=CHUNK_ROWS):
        rows = max(1, min(batch.num_rows, CHUNK_BYTES * batch.num_rows // max(batch.nbytes, 1)))
        for first in range(0, batch.num_rows, rows):
            yield batch.slice(first, rows)


# ---------------------------------------------------------------- pieces
@dataclass(frozen=True, slots=True, eq=False)
class _Piece:
    """Bytes that each row has at one place.

    size    bytes per row, one number when all rows agree
    kind    'const': data is bytes; 'word': data is a word per row; 'fixed': data is a void item per row;
            'run': data are source bytes (with room behind them) and the position of each row's first one
    """

    kind: str
    size: int | Positions
    data: Any


def _const(data: bytes) -> _Piece:
    return _Piece("const", len(data), data)


def _rows(
    node: Node, columns: Sequence[pa.Array], valid: Mask | None, n: int, *, prefix: bool
) -> tuple[Bytes, Positions]:
    """Encode n rows of a record type; with `prefix` each is preceded by its length."""
    pieces: list[_Piece] = []
    for name, child, column in zip(node.names, node.children, columns, strict=True):
        pieces += _merged(_pieces(child, column, valid, name), pieces)
    size = np.zeros(n, np.int64)
    for piece in pieces:
        size += piece.size
    if prefix and int(size.max()) > RECORD_BYTES_MAX:
        raise Unsupported(
            f"a row of {int(size.max())} bytes does not fit a log block: at most {RECORD_BYTES_MAX} bytes. Shorten it."
        )
    head = 4 if prefix else 0
    begin = np.zeros(n + 1, np.int64)
    np.cumsum(size + (head + GAP), out=begin[1:])
    buf = np.empty(int(begin[-1]) + GAP, U8)
    pos = begin[:-1]
    if prefix:
        at(buf, 4)[pos] = size.astype(">u4").view("V4")
        pos = pos + 4
    words = at_words(buf)
    for piece in pieces:
        _put(piece, buf, words, pos)
        pos = pos + piece.size
    return _moved_together(buf, begin[:-1], pos)


def _merged(new: list[_Piece], before: list[_Piece]) -> list[_Piece]:
    """Neighbouring constants as one; the last of `before` is taken out when it is part of that."""
    out: list[_Piece] = []
    if before and before[-1].kind == "const" and new and new[0].kind == "const":
        out.append(before.pop())
    for piece in new:
        if out and out[-1].kind == "const" and piece.kind == "const" and len(out[-1].data) < GAP:
            out[-1] = _const(out[-1].data + piece.data)
        else:
            out.append(piece)
    return out


def _put(piece: _Piece, buf: Bytes, words: Words, pos: Positions) -> None:
    if piece.kind == "const":
        at(buf, len(piece.data))[pos] = np.frombuffer(piece.data, f"V{len(piece.data)}")[0]
    elif piece.kind == "word":
        words[pos] = piece.data
    elif piece.kind == "fixed":
        if isinstance(piece.size, int):
            at(buf, piece.size)[pos] = piece.data
        else:
            rows = piece.size > 0
            at(buf, piece.data.dtype.itemsize)[pos[rows]] = piece.data[rows]
    else:
        _put_run(piece, buf, pos)


def _put_run(piece: _Piece, buf: Bytes, pos: Positions) -> None:
    source, first = piece.data
    size = piece.size
    longest = int(size.max()) if not isinstance(size, int) else size
    if longest <= STRIP:
        if longest:
            width = min(-(-longest // 8) * 8, STRIP)
            at(buf, width)[pos] = at(source, width)[first]
        return
    size = np.broadcast_to(np.asarray(size, np.int64), pos.shape)
    giant = size > STRIP * STRIPS_MAX
    rows = np.flatnonzero((size > 0) & ~giant)
    done = 0
    while len(rows):
        at(buf, STRIP)[pos[rows] + done] = at(source, STRIP)[first[rows] + done]
        done += STRIP
        rows = rows[size[rows] > done]
    for row in np.flatnonzero(giant).tolist():
        p, f, s = int(pos[row]), int(first[row]), int(size[row])
        buf[p : p + s] = source[f : f + s]


def _moved_together(buf: Bytes, begin: Positions, end: Positions) -> tuple[Bytes, Positions]:
    """Rows without the gaps: rows and gaps are one offsets array over the buffer, of which every second is taken."""
    n = len(begin)
    offsets = np.zeros(n + 1, np.int64)
    np.cumsum(end - begin, out=offsets[1:])
    if not offsets[-1]:
        return np.empty(0, U8), offsets
    slots = np.empty(2 * n + 1, np.int64)
    slots[0 : 2 * n : 2] = begin
    slots[1 : 2 * n : 2] = end
    slots[2 * n] = end[-1]
    whole = pa.Array.from_buffers(pa.large_binary(), 2 * n, [None, pa.py_buffer(slots), pa.py_buffer(buf)])
    taken = whole.take(pa.array(np.arange(0, 2 * n, 2, dtype=np.int32)))
    return np.frombuffer(taken.buffers()[2], U8)[: int(offsets[-1])], offsets


# ---------------------------------------------------------------- columns to pieces
def _pieces(node: Node, array: pa.Array, valid: Mask | None, name: str) -> list[_Piece]:
    """Pieces of one column of at least one row; rows where `valid` is False write nothing at all."""
    if node.kind == "union":
        return _union_pieces(node, array, valid, name)
    if node.kind == "record":
        out: list[_Piece] = []
        for child, field, column in zip(node.children, node.names, _struct_columns(array), strict=True):
            out += _merged(_pieces(child, column, valid, f"{name}.{field}"), out)
        return out
    if node.kind in ("array", "map"):
        return _list_pieces(node, array, valid)
    return _scalar_pieces(node, array, valid, name)


def _present(array: pa.Array) -> Mask:
    return np.asarray(array.is_valid().to_numpy(zero_copy_only=False))


def _union_pieces(node: Node, array: pa.Array, valid: Mask | None, name: str) -> list[_Piece]:
    if not array.null_count and valid is None and len(node.children) - (node.null_branch >= 0) == 1:
        number = 1 - node.null_branch if node.null_branch >= 0 else 0
        out = [_const(varint(number))]
        return out + _merged(_pieces(node.children[number], array, None, name), out)
    branches = [i for i in range(len(node.children)) if i != node.null_branch]
    if not branches:
        return _branch_tags(np.zeros(len(array), np.int64), valid)
    if len(branches) == 1:
        members = [array]
    else:
        members = _struct_columns(array)
    branch = np.full(len(array), node.null_branch, np.int64)
    outer = _present(array) if array.null_count else None
    for number, member in reversed(list(zip(branches, members, strict=True))):
        if not member.null_count:
            branch[:] = number
        elif member.null_count < len(member):
            branch[_present(member)] = number
    if outer is not None:
        branch[~outer] = node.null_branch
    if bool((branch < 0).any() if valid is None else ((branch < 0) & valid).any()):
        raise TableError(f"column {name!r} is required by the table schema and has NULLs. Give every row a value.")
    out = _branch_tags(branch, valid)
    for number, member in zip(branches, members, strict=True):
        chosen = branch == number if valid is None else (branch == number) & valid
        if chosen.all():
            out += _merged(_pieces(node.children[number], member, None, name), out)
        elif chosen.any():
            out += _pieces(node.children[number], member, chosen, name)
    return out


def _branch_tags(branch: Positions, valid: Mask | None) -> list[_Piece]:
    """Branch numbers are below 64 in practice, but the varint form holds for all."""
    if valid is None and (branch == branch[0]).all():
        return [_const(varint(int(branch[0])))]
    return [_varint_word(zigzag(np.maximum(branch, 0)), valid)]


def _varint_word(z: Words, valid: Mask | None) -> _Piece:
    """Varints of at most eight bytes."""
    size = varint_sizes(z)
    word = varint_words(z, size)
    return _Piece("word", size if valid is None else np.where(valid, size, 0), word)


def _scalar_pieces(node: Node, array: pa.Array, valid: Mask | None, name: str) -> list[_Piece]:
    if node.kind == "null":
        return []
    if node.kind in ("string", "bytes") and not pa.types.is_decimal(node.arrow):
        return _text_pieces(array, valid)
    if node.kind in ("int", "long"):
        return _integer_pieces(array, valid)
    if node.kind == "enum":
        index = pc.index_in(array, pa.array(node.names, pa.string()))
        unknown = ~_present(index)
        if bool(unknown.any() if valid is None else (unknown & valid).any()):
            raise TableError(f"column {name!r}: a value is not one of the symbols {list(node.names)}.")
        return _integer_pieces(index.fill_null(0), valid)
    if node.kind == "boolean":
        bits = array.fill_null(False).cast(pa.uint8()).to_numpy(zero_copy_only=False)
        return [_Piece("word", _size(1, valid), bits.astype(U64))]
    if node.kind in ("float", "double"):
        values = _values(array, U64 if node.kind == "double" else np.uint32).astype(U64)
        return [_Piece("word", _size(node.size_bytes, valid), values)]
    if pa.types.is_decimal(node.arrow):
        return _decimal_pieces(node, array, valid, name)
    if not node.size_bytes:
        return []
    return [_Piece("fixed", _size(node.size_bytes, valid), _values(array, f"V{node.size_bytes}"))]


def _size(size: int, valid: Mask | None) -> int | Positions:
    return size if valid is None else np.where(valid, size, 0)


def _values(array: pa.Array, dtype: Any) -> npt.NDArray[Any]:
    """The values buffer of an array of fixed width; undefined where the array is null."""
    return np.frombuffer(array.buffers()[1], dtype)[array.offset : array.offset + len(array)]


def _integer_pieces(array: pa.Array, valid: Mask | None) -> list[_Piece]:
    values = _values(array, np.dtype(f"i{array.type.bit_width // 8}")).astype(np.int64)
    z = zigzag(values)
    if valid is not None:
        z = np.where(valid, z, U64(0))
    elif (z == z[0]).all():
        return [_const(varint(int(values[0])))]
    size = varint_sizes(z)
    word = _Piece("word", np.minimum(size, 8), varint_words(z, size))
    if valid is not None:
        word = _Piece("word", np.where(valid, word.size, 0), word.data)
    if int(size.max()) <= 8:
        return [word]
    # bytes nine and ten: bits 56 to 62, then bit 63
    high = (z >> U64(56)) & U64(127) | np.where(size > 9, U64(128), U64(0)) | (z >> U64(63)) << U64(8)
    rest = np.maximum(size - 8, 0)
    return [word, _Piece("word", rest if valid is None else np.where(valid, rest, 0), high)]


def _text_pieces(array: pa.Array, valid: Mask | None) -> list[_Piece]:
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    data = array.buffers()[2]
    low, high = int(offsets[0]), int(offsets[-1])
    source = np.zeros(high - low + STRIP, U8)
    if high > low:
        source[: high - low] = np.frombuffer(data, U8)[low:high]
    first = offsets[:-1].astype(np.int64) - low
    size = np.diff(offsets).astype(np.int64)
    if valid is None and _one_value(source, first, size):
        n = int(size[0])
        return [_const(varint(n) + source[first[0] : first[0] + n].tobytes())]
    if valid is not None:
        size = np.where(valid, size, 0)
    return [_varint_word((size << 1).view(U64), valid), _Piece("run", size, (source, first))]


def _one_value(source: Bytes, first: Positions, size: Positions) -> bool:
    """True when all rows hold the same short string, as most meta columns do."""
    n = int(size[0])
    if n >= STRIP or len(first) < 2 or not (size == n).all():
        return False
    if not n:
        return True
    rows = at(source, n)[first].view(U8).reshape(-1, n)
    return bool((rows[-1] == rows[0]).all() and (rows[len(rows) // 2] == rows[0]).all() and (rows == rows[0]).all())


def _decimal_pieces(node: Node, array: pa.Array, valid: Mask | None, name: str) -> list[_Piece]:
    """Big-endian two's complement: all bytes of a fixed, the fewest possible of bytes."""
    little = _values(array, "V16").view(U8).reshape(-1, 16)
    big = np.ascontiguousarray(little[:, ::-1])
    if node.kind == "fixed":
        size = node.size_bytes
        if size < 16:
            fill = np.where(big[:, 16 - size] > 127, U8(255), U8(0))
            wrong = (big[:, : 16 - size] != fill[:, None]).any(axis=1)
            if bool(wrong.any() if valid is None else (wrong & valid).any()):
                raise TableError(f"column {name!r}: a decimal does not fit its {size} bytes.")
        wide = np.repeat(np.where(big[:, :1] > 127, U8(255), U8(0)), max(size - 16, 0), axis=1)
        rows = np.ascontiguousarray(np.concatenate([wide, big[:, max(16 - size, 0) :]], axis=1))
        return [_Piece("fixed", _size(size, valid), rows.reshape(-1).view(f"V{size}"))]
    # leading bytes that only repeat the sign are dropped
    sign = np.where(big[:, :1] > 127, U8(255), U8(0))
    spare = (big[:, :15] == sign) & ((big[:, 1:] > 127) == (sign > 127))
    drop = np.argmin(np.concatenate([spare, np.zeros((len(big), 1), bool)], axis=1), axis=1)
    size_ = 16 - drop if valid is None else np.where(valid, 16 - drop, 0)
    source = np.concatenate([big.reshape(-1), np.zeros(STRIP, U8)])
    first = 16 * np.arange(len(big)) + drop
    return [_varint_word((size_ << 1).view(U64), valid), _Piece("run", size_, (source, first))]


# ---------------------------------------------------------------- nested types
def _struct_columns(array: pa.Array) -> list[pa.Array]:
    """Children of a struct array, cut to its rows."""
    return [array.field(i) for i in range(array.type.num_fields)]


def _list_pieces(node: Node, array: pa.Array, valid: Mask | None) -> list[_Piece]:
    """Arrays and maps: item count, items, and a closing 0; an empty one is the single byte 0."""
    offsets = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)
    count = np.diff(offsets)
    low, high = int(offsets[0]), int(offsets[-1])
    if node.kind == "array":
        item, columns = Node("record", None, ("element",), node.children), [array.values]
    else:
        item, columns = entry(node), [array.keys, array.items]
    data, at_item = _rows_in_chunks(item, [c.slice(low, high - low) for c in columns], high - low)
    start = at_item[offsets - low]
    size = np.diff(start)
    if valid is not None:
        count = np.where(valid, count, 0)
        size = np.where(valid, size, 0)
    source = np.concatenate([data, np.zeros(STRIP, U8)])
    closing = _Piece("word", (count > 0).astype(np.int64), np.zeros(len(count), U64))
    return [_varint_word(zigzag(count), valid), _Piece("run", size, (source, start[:-1])), closing]


def _rows_in_chunks(node: Node, columns: Sequence[pa.Array], n: int) -> tuple[Bytes, Positions]:
    """Encoded rows of a record type without lengths, from its columns: (bytes, n + 1 offsets)."""
    parts, sizes = [], [np.zeros(1, np.int64)]
    for first in range(0, n, CHUNK_ROWS):
        piece = [c.slice(first, CHUNK_ROWS) for c in columns]
        data, offsets = _rows(node, piece, None, len(piece[0]), prefix=False)
        parts.append(data)
        sizes.append(np.diff(offsets))
    return np.concatenate(parts) if parts else np.empty(0, U8), np.cumsum(np.concatenate(sizes))
