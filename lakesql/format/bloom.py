"""Bloom filters of base files: the text in the parquet footer, bit by bit as Hudi writes it.

    SIMPLE       int32 -1 | int32 hash count | int8 1 (Murmur) | int32 bits | ceil(bits / 8) bytes, lowest bit first
    DYNAMIC_V0   the first four fields | int32 keys per row | int32 keys in the last row | int32 rows | rows of SIMPLE

Strategy: keys are hashed side by side with numpy; what the hash does before its seed matters (four multiplications of
each word) is done once, not once per hash function. Hudi format note 3.6: Hadoop's variant of MurmurHash2, chained
seeds, Java remainder, growth of rows. Not done: other hash types (Hudi writes only Murmur), merging of filters.
"""

import base64
import binascii
import math
import struct
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakesql.errors import FormatError, Unsupported
from lakesql.format.words import U8, Bytes, Positions, at

SIMPLE = "SIMPLE"
DYNAMIC = "DYNAMIC_V0"
ENTRIES = 60000  # hoodie.index.bloom.num_entries
FPP = 1e-9  # hoodie.index.bloom.fpp
MAX_ENTRIES = 100000  # hoodie.bloom.index.filter.dynamic.max.entries

_HEAD = struct.Struct(">iibi")
_DYNAMIC = struct.Struct(">iii")
_MURMUR = 1
_M = np.uint32(0x5BD1E995)
_HASHES_MAX = 1000
CHUNK_KEYS = 16384

U32s = npt.NDArray[np.uint32]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class BloomFilter:
    """One filter of a base file; adding keys gives a new filter.

    type_code    'DYNAMIC_V0' or 'SIMPLE' (footer key hoodie_bloom_filter_type_code)
    hashes       hash functions per key
    bits         bits of a row
    entries      keys a row of a dynamic filter is made for
    max_entries  keys up to which a dynamic filter grows
    current      keys counted for the last row of a dynamic filter
    spilled      keys added since a dynamic filter stopped growing
    rows         one bool per bit and row
    """

    type_code: str
    hashes: int
    bits: int
    entries: int
    max_entries: int
    current: int
    rows: tuple[Mask, ...]
    spilled: int = 0

    def add(self, keys: pa.Array) -> "BloomFilter":
        """The filter with the keys (strings, none null) added in order; a dynamic one grows as Hudi's does (3.6)."""
        return _add(self, keys)

    def might_contain(self, keys: pa.Array) -> Mask:
        """For each key: False when it was surely not added."""
        return _might_contain(self, keys)

    def to_text(self) -> str:
        """The value of the footer key org.apache.hudi.bloomfilter."""
        return _to_text(self)


def new_filter(
    keys: pa.Array,
    entries: int = ENTRIES,
    fpp: float = FPP,
    max_entries: int = MAX_ENTRIES,
    type_code: str = DYNAMIC,
    expected: int = 0,
) -> BloomFilter:
    """A filter of the keys (strings, none null), sized for `entries` keys at false-positive rate `fpp`.

    expected  so many keys come in all. A dynamic filter that stops growing before gets as many hash functions as are best
              for a row that is that full: of 500,000 keys in two rows for 60,000 it takes 1 % of foreign keys for its own
              with 7 functions, 33 % with the usual 30. Who reads a filter finds their number in it.
    """
    bits = math.ceil(entries * (-math.log(fpp) / (math.log(2) * math.log(2))))
    hashes = math.ceil(math.log(2) * bits / entries)
    if type_code == DYNAMIC:
        crowd = expected / -(-max(max_entries, entries) // entries)
        if crowd > entries:
            hashes = max(1, min(hashes, round(math.log(2) * bits / crowd)))
    return BloomFilter(type_code, hashes, bits, entries, max_entries, 0, (np.zeros(bits, bool),)).add(keys)


def from_text(text: str, type_code: str = SIMPLE, max_entries: int = MAX_ENTRIES) -> BloomFilter:
    """The filter in a footer; a footer without a type code holds a SIMPLE one. FormatError when it is damaged."""
    try:
        data = base64.b64decode(text, validate=True)
        if type_code == SIMPLE:
            hashes, bits, row, rest = _row(data)
            if rest:
                raise FormatError(f"bloom filter: {len(rest)} bytes behind a SIMPLE filter. Is its type code right?")
            return BloomFilter(SIMPLE, hashes, bits, 0, 0, 0, (row,))
        if type_code != DYNAMIC:
            raise Unsupported(f"bloom filter type {type_code!r}: only SIMPLE and DYNAMIC_V0 exist in base files.")
        hashes, bits = _head(data)
        entries, current, count = _DYNAMIC.unpack_from(data, _HEAD.size)
        rest = data[_HEAD.size + _DYNAMIC.size :]
        if entries < 1 or current < 0 or not 0 < count <= len(rest) // _HEAD.size:
            raise FormatError(
                f"bloom filter: {count} rows of {entries} keys, {current} in the last one. It is damaged."
            )
        rows = []
        for _ in range(count):
            row_hashes, row_bits, row, rest = _row(rest)
            if (row_hashes, row_bits) != (hashes, bits):
                raise FormatError(f"bloom filter: a row of {row_bits} bits in a filter of {bits}. It is damaged.")
            rows.append(row)
        if rest:
            raise FormatError(f"bloom filter: {len(rest)} bytes behind the last row. It is damaged.")
    except (binascii.Error, struct.error, ValueError) as error:
        raise FormatError(f"bloom filter of {len(text)} characters is damaged: {error}.") from None
    return BloomFilter(DYNAMIC, hashes, bits, entries, max_entries, current, tuple(rows))


# ---------------------------------------------------------------- bytes
def _head(data: bytes) -> tuple[int, int]:
    version, hashes, kind, bits = _HEAD.unpack_from(data)
    if version != -1 or kind != _MURMUR or not 0 < hashes <= _HASHES_MAX or bits < 1:
        raise FormatError(
            f"bloom filter: expected version -1, hash type 1, found version {version}, {hashes} hashes of type {kind} "
            f"over {bits} bits. It is damaged, or its type code is wrong."
        )
    return hashes, bits


def _row(data: bytes) -> tuple[int, int, Mask, bytes]:
    hashes, bits = _head(data)
    end = _HEAD.size + -(-bits // 8)
    if len(data) < end:
        raise FormatError(f"bloom filter: {bits} bits announced in {len(data) - _HEAD.size} bytes. It is torn.")
    packed = np.frombuffer(data, np.uint8, end - _HEAD.size, _HEAD.size)
    return hashes, bits, np.unpackbits(packed, count=bits, bitorder="little").astype(bool), data[end:]


def _to_text(f: BloomFilter) -> str:
    head = _HEAD.pack(-1, f.hashes, _MURMUR, f.bits)
    rows = [head + np.packbits(row, bitorder="little").tobytes() for row in f.rows]
    if f.type_code == DYNAMIC:
        rows.insert(0, head + _DYNAMIC.pack(f.entries, f.current, len(f.rows)))
    return base64.b64encode(b"".join(rows)).decode()


# ---------------------------------------------------------------- keys
def _add(f: BloomFilter, keys: pa.Array) -> BloomFilter:
    source, first, length = _key_bytes(keys)
    row_of, current, spilled = _grown(f, len(first))
    rows = np.zeros((max(len(f.rows), int(row_of.max(initial=0)) + 1), f.bits), bool)
    rows[: len(f.rows)] = f.rows
    bits = rows.reshape(-1)
    for begin in range(0, len(first), CHUNK_KEYS):
        part = slice(begin, begin + CHUNK_KEYS)
        positions = _positions(f, source, first[part], length[part]).astype(np.intp)
        positions += row_of[part] * f.bits
        bits[positions] = True
    return replace(f, rows=tuple(rows), current=current, spilled=spilled)


def _grown(f: BloomFilter, n: int) -> tuple[npt.NDArray[np.int64], int, int]:
    """(row of each of n further keys, keys counted for the last row, keys added in turn).

    A full row is followed by an empty one while rows * entries < max_entries. From then on keys go to all rows in turn
    (Hudi gives row 0 the first two) and the count of the last row goes on.
    """
    if f.type_code == SIMPLE:
        return np.zeros(n, np.int64), 0, 0
    rows_max = max(len(f.rows), -(-f.max_entries // f.entries))
    last = len(f.rows) - 1
    number = f.current + np.arange(n)
    row_of = last + number // f.entries
    spilled = max(0, f.current + n - max(f.current, (rows_max - last) * f.entries))
    if spilled:
        turn = f.spilled + np.arange(spilled)
        row_of[n - spilled :] = np.maximum(turn - 1, 0) % rows_max
    full = max(0, min((f.current + n - 1) // f.entries, rows_max - 1 - last))
    return row_of, f.current + n - full * f.entries, f.spilled + spilled


def _might_contain(f: BloomFilter, keys: pa.Array) -> Mask:
    source, first, length = _key_bytes(keys)
    out = np.zeros(len(first), bool)
    for begin in range(0, len(first), CHUNK_KEYS):
        part = slice(begin, begin + CHUNK_KEYS)
        positions = _positions(f, source, first[part], length[part])
        for row in f.rows:
            out[part] |= row[positions].all(axis=0)
    return out


def _key_bytes(keys: pa.Array) -> tuple[Bytes, Positions, Positions]:
    """(UTF-8 bytes with room behind them, first byte and length of each key)."""
    if isinstance(keys, pa.ChunkedArray):
        keys = pa.concat_arrays(keys.chunks) if keys.num_chunks else pa.nulls(0, keys.type)
    assert not keys.null_count, "record keys are never null"
    keys = keys.cast(pa.large_string())
    n = len(keys)
    if not n:
        return np.zeros(0, U8), np.zeros(0, np.int64), np.zeros(0, np.int64)
    offsets = np.frombuffer(keys.buffers()[1], np.int64)[keys.offset : keys.offset + n + 1]
    source = np.frombuffer(keys.buffers()[2], U8) if offsets[-1] else np.zeros(0, U8)
    return source, offsets[:-1], np.diff(offsets)


def _positions(f: BloomFilter, source: Bytes, first: Positions, length: Positions) -> npt.NDArray[np.uint32]:
    """The bit positions of each key: one row per hash function, one column per key."""
    out = np.empty((f.hashes, len(first)), np.uint32)
    for size in np.unique(length).tolist():
        group = np.flatnonzero(length == size)
        everything = len(group) == len(first)
        words, tail = _words(source, first if everything else first[group], size)
        positions = out if everything else np.empty((f.hashes, len(group)), np.uint32)
        _hash_all(f, words, tail, size, positions)
        if not everything:
            out[:, group] = positions
    return out


def _words(source: Bytes, first: Positions, size: int) -> tuple[list[U32s], U32s | None]:
    """What the hash of keys of one size needs of them: its mixed words, and the sign-extended tail bytes."""
    if not size:
        return [], None
    data = at(source, size)[first].view(U8).reshape(len(first), size)
    whole = size // 4
    packed = np.ascontiguousarray(data[:, : 4 * whole]).view("<u4").astype(np.uint32)
    words = []
    for i in range(whole):
        w = packed[:, i] * _M
        w ^= w >> np.uint32(24)
        words.append(w * _M)
    if not size % 4:
        return words, None
    tail = np.zeros(len(first), np.uint32)
    for behind in range(size % 4):
        signed = data[:, size - 1 - behind].view(np.int8).astype(np.int32).view(np.uint32)
        tail ^= signed << np.uint32(8 * behind)
    return words, tail


def _hash_all(f: BloomFilter, words: list[U32s], tail: U32s | None, size: int, out: U32s) -> None:
    """Murmur with each result as the next seed, starting at 0; the remainder of its absolute value is the position."""
    bits = np.uint32(f.bits)
    h = np.zeros(out.shape[1], np.uint32)
    t, row = np.empty_like(h), np.empty_like(h)
    for i in range(f.hashes):
        h ^= np.uint32(size)
        for w in words:
            h *= _M
            h ^= w
        if tail is not None:
            h ^= tail
            h *= _M
        np.right_shift(h, np.uint32(13), out=t)
        h ^= t
        h *= _M
        np.right_shift(h, np.uint32(15), out=t)
        h ^= t
        np.abs(h.view(np.int32), out=t.view(np.int32))
        np.floor_divide(t, bits, out=row)
        row *= bits
        np.subtract(t, row, out=out[i])
