"""Varints and other short byte strings, many at a time: numpy on overlapping 8-byte words of one byte array.

Strategy: `Window` holds the bytes with spare room at both ends, so that a whole word may be read at any position in it
and one before it. A varint of up to 8 bytes is one word: its length is the position of the first byte below 128, its
value the 7-bit groups pressed together (Avro specification, "binary encoding"). Longer ones take a second word.
Positions are int64 indices into the window. A position past `end` means the bytes are damaged or torn: reading there
gives zeros and never an error, callers compare with `end`. No Arrow here, no knowledge of types.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

U8 = np.uint8
U64 = np.uint64
Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
Positions = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

FRONT = 16
BACK = 64


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """Bytes of one chunk, FRONT spare bytes before and BACK behind them.

    raw    the bytes with the spare room
    words  an unaligned little-endian word at every position of raw
    end    position just behind the last byte
    where  for error texts
    """

    raw: Bytes
    words: Words
    end: int
    where: str


def window(data: Bytes, where: str) -> Window:
    """A copy of the bytes as a Window; the first byte is at position FRONT."""
    raw = np.empty(FRONT + len(data) + BACK, U8)
    raw[:FRONT] = 0
    raw[FRONT : FRONT + len(data)] = data
    raw[FRONT + len(data) :] = 0
    return Window(raw, at_words(raw), FRONT + len(data), where)


def at(raw: Bytes, width: int) -> npt.NDArray[Any]:
    """The `width` bytes that start at each position, as overlapping void items: gather and scatter by position."""
    return np.ndarray((len(raw) - width + 1,), f"V{width}", raw, strides=(1,))


def at_words(raw: Bytes) -> Words:
    """The little-endian 8-byte word at each position."""
    return np.ndarray((len(raw) - 7,), "<u8", raw, strides=(1,))


def at_lengths(raw: Bytes) -> npt.NDArray[np.uint32]:
    """The big-endian 4-byte number at each position."""
    return np.ndarray((max(len(raw) - 3, 0),), ">u4", raw, strides=(1,))


# ---------------------------------------------------------------- writing varints
_LIMITS = [U64(1) << U64(7 * k) for k in range(1, 10)]
_MORE = np.array([0x8080808080808080 & ((1 << (8 * (k - 1))) - 1) if k else 0 for k in range(9)], U64)


def zigzag(values: npt.NDArray[np.int64]) -> Words:
    """Avro's unsigned form of signed numbers: small for small absolute values."""
    return ((values << np.int64(1)) ^ (values >> np.int64(63))).view(U64)


def varint_sizes(z: Words) -> npt.NDArray[np.int64]:
    """Bytes of the varint of each number; only as many comparisons as the largest one asks for."""
    sizes = np.ones(len(z), np.int64)
    largest = z.max(initial=U64(0))
    for limit in _LIMITS:
        if largest < limit:
            break
        sizes += z >= limit
    return sizes


def varint_words(z: Words, sizes: npt.NDArray[np.int64]) -> Words:
    """Words that hold the (first eight) varint bytes of numbers of these sizes."""
    x = z & U64(0x00FFFFFFFFFFFFFF)
    x = (x & U64(0x000000000FFFFFFF)) | ((x & U64(0x00FFFFFFF0000000)) << U64(4))
    x = (x & U64(0x00003FFF00003FFF)) | ((x & U64(0x0FFFC0000FFFC000)) << U64(2))
    x = (x & U64(0x007F007F007F007F)) | ((x & U64(0x3F803F803F803F80)) << U64(1))
    return x | _MORE[np.minimum(sizes, 8)] | np.where(sizes > 8, U64(1 << 63), U64(0))


def varint(number: int) -> bytes:
    """The zigzag varint of one number."""
    z = (number << 1) ^ (number >> 63)
    out = bytearray()
    while z > 127:
        out.append(z & 127 | 128)
        z >>= 7
    out.append(z)
    return bytes(out)


# ---------------------------------------------------------------- reading varints
_TOPS = U64(0x8080808080808080)


def _press(x: Words) -> Words:
    """Eight 7-bit groups, one in each byte, to one number."""
    x = (x & U64(0x007F007F007F007F)) | ((x & U64(0x7F007F007F007F00)) >> U64(1))
    x = (x & U64(0x00003FFF00003FFF)) | ((x & U64(0x3FFF00003FFF0000)) >> U64(2))
    return (x & U64(0x000000000FFFFFFF)) | ((x & U64(0x0FFFFFFF00000000)) >> U64(4))


def varints(w: Window, pos: Positions) -> tuple[Words, Positions]:
    """Unsigned (still zigzag) numbers at the positions and the positions behind them.

    A varint of more than ten bytes, or of ten that exceed 64 bits, ends past the window. Positions may lie up to one
    byte past the end of the window.
    """
    first = w.words[pos]
    same = _uniform(first)
    if same:
        return _press(first & U64(0x7F7F7F7F7F7F7F7F & ((1 << (8 * same)) - 1))), pos + same
    stop = ~first & _TOPS
    low = stop & (~stop + U64(1))
    mask = low | (low - U64(1))
    value = _press(first & mask & U64(0x7F7F7F7F7F7F7F7F))
    after = pos + (np.bitwise_count(mask) >> 3)
    long = np.flatnonzero(stop == 0)
    if len(long):
        second = w.words[pos[long] + 8]
        one = (second & U64(0x80)) == 0
        top = np.where(one, second & U64(0x7F), (second & U64(0x7F)) | ((second >> U64(1)) & U64(0x3F80)))
        value[long] |= top << U64(56)
        bad = ~one & ((second & U64(0x8000)) != 0) | (top > U64(255))
        after[long] = np.where(bad, w.end + 1, pos[long] + np.where(one, 9, 10))
    return value, after


def _uniform(words: Words) -> int:
    """The number of bytes when all words start with varints of the same length of at most 8 bytes, else 0."""
    if not len(words):
        return 0
    first = int(words[0])
    size = 1
    while size < 9 and first >> (8 * size - 1) & 1:
        size += 1
    if size == 9:
        return 0
    tops = 0x8080808080808080 & ((1 << (8 * size)) - 1)
    return size if bool(((words & U64(tops)) == U64(first & tops)).all()) else 0


def signed(z: Words) -> npt.NDArray[np.int64]:
    """Zigzag numbers to signed ones."""
    return ((z >> U64(1)) ^ (~(z & U64(1)) + U64(1))).view(np.int64)
