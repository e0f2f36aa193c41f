"""HFile version 3, as Hudi writes it for the base files and log blocks of its metadata table (hudi-format 11.6). Read only.

    [data blocks][meta block][root index][meta index][file info][trailer 4096 bytes]

A file is opened by its trailer, root index and file info; a look-up reads one data block more, a scan one after the other.
Keys are texts without HBase's family, timestamp and type behind them, sorted by their bytes. Indexes may have several
levels. Blocks are gzipped or plain. Not done: other codecs, checksums, bloom filters (a look-up finds the key or not).
"""

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from lakesql.errors import FormatError, Unsupported

Read = Callable[[int, int], bytes]
"""Bytes of the file: (first byte, how many)."""

TRAILER_BYTES = 4096
_TRAILER = b'TRABLK"$'
_DATA, _ROOT, _META, _INFO = b"DATABLK*", b"IDXROOT2", b"METABLKc", b"FILEINF2"
_INNER = (b"IDXINTE2", b"IDXLEAF2")
_HEADER = struct.Struct(">8siiqBii")
_GZIP, _PLAIN = 1, 2
_CODECS = ("LZO", "GZ", "NONE", "SNAPPY", "LZ4", "BZIP2", "ZSTD")
_LEVELS_MAX = 8


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of an index: where a block is, and the first key in it."""

    offset: int
    size: int
    key: bytes


@dataclass(frozen=True, slots=True)
class HFile:
    """An open HFile. `info`: the file info by name, `index`: the root of the data index, `meta`: meta blocks by name."""

    read: Read
    where: str
    codec: int
    entries: int
    levels: int
    index: tuple[Entry, ...]
    meta: Mapping[str, Entry]
    info: Mapping[str, bytes]

    def get(self, key: str) -> bytes | None:
        """The value of a key, None when the file does not have it. Of a repeated key the first."""
        wanted = key.encode()
        for entry in self._ascending(wanted):
            for found, value in self._pairs(entry):
                if found >= wanted:
                    if found == wanted:
                        return value
                    break
        return None

    def scan(self) -> Iterator[tuple[str, bytes]]:
        """Every key with its value, in the order of the keys' bytes."""
        for entry in self._ascending(None):
            for key, value in self._pairs(entry):
                yield _text(key, self.where), value

    def meta_block(self, name: str) -> bytes | None:
        """The content of a meta block."""
        entry = self.meta.get(name)
        return None if entry is None else _block(self.read, entry.offset, _META, self.codec, self.where)[0]

    def _ascending(self, key: bytes | None) -> Iterator[Entry]:
        """The data blocks as `_leaves` has them, which lie in the order of their keys: an index with loops ends here."""
        last = -1
        for entry in self._leaves(self.index, self.levels, key):
            if entry.offset <= last:
                raise FormatError(_damaged(self.where, entry.offset, "the index names it after a later one"))
            last = entry.offset
            yield entry

    def _leaves(self, index: tuple[Entry, ...], levels: int, key: bytes | None) -> Iterator[Entry]:
        """The data blocks below an index, with `key` only those that may hold it: a repeated key may cross a border."""
        if key is not None:
            after = next((n for n, e in enumerate(index) if e.key > key), len(index))
            first = max(next((n for n, e in enumerate(index[:after]) if e.key == key), after) - 1, 0)
            index = index[first:after]
        for entry in index:
            if levels <= 1:
                yield entry
            else:
                content, _ = _block(self.read, entry.offset, _INNER, self.codec, self.where)
                yield from self._leaves(_inner_index(content, self.where), levels - 1, key)

    def _pairs(self, entry: Entry) -> Iterator[tuple[bytes, bytes]]:
        content, _ = _block(self.read, entry.offset, _DATA, self.codec, self.where)
        at = 0
        try:
            while at < len(content):
                key_size, value_size = struct.unpack_from(">ii", content, at)
                stop = at + 8 + key_size + value_size
                if key_size < 2 or value_size < 0 or stop >= len(content):
                    raise FormatError(_damaged(self.where, entry.offset, f"an entry at byte {at} does not fit"))
                yield _bare(content[at + 8 : at + 8 + key_size]), content[at + 8 + key_size : stop]
                at = stop + _varint_bytes(content[stop])
        except struct.error as error:
            raise FormatError(_damaged(self.where, entry.offset, str(error))) from error


def open_hfile(read: Read, size: int, where: str) -> HFile:
    """An HFile of that many bytes. FormatError when it is none or damaged, Unsupported for a codec that is not read."""
    read = _within(read, size, where)
    tail = read(max(size - TRAILER_BYTES, 0), TRAILER_BYTES)
    if size < TRAILER_BYTES or not tail.startswith(_TRAILER) or tail[-1] != 3:
        raise FormatError(
            f"{where}: no HFile of version 3: expected the trailer {_TRAILER!r} and version 3 at its end."
        )
    try:
        length, at = _varint(tail, len(_TRAILER))
        fields = {n: v for n, v in _message(tail[at : at + length]) if isinstance(v, int)}
        codec = fields.get(12, _PLAIN)
        if codec not in (_GZIP, _PLAIN):
            name = _CODECS[codec] if codec < len(_CODECS) else str(codec)
            raise Unsupported(f"{where}: the HFile is compressed with {name}; lakesql reads GZ and NONE.")
        root, after = _block(read, fields[2], _ROOT, codec, where)
        index = tuple(_root_index(root, fields.get(5, 0), whole_keys=True))
        meta: dict[str, Entry] = {}
        if fields.get(6, 0):
            content, _ = _block(read, after, _ROOT, codec, where)
            meta = {e.key.decode(errors="replace"): e for e in _root_index(content, fields[6], whole_keys=False)}
        info, _ = _block(read, fields[1], _INFO, codec, where)
        levels = fields.get(8, 1)
        if not 1 <= levels <= _LEVELS_MAX:
            raise FormatError(f"{where}: the trailer says {levels} levels of index. The file is damaged.")
        return HFile(read, where, codec, fields.get(7, 0), levels, index, meta, _info(info))
    except (struct.error, IndexError, KeyError, UnicodeDecodeError) as error:
        raise FormatError(f"{where}: the trailer or index of the HFile is damaged ({error!r}).") from error


def _within(read: Read, size: int, where: str) -> Read:
    """`read` that is never asked for bytes outside of the file, whatever a damaged header says."""

    def clipped(first: int, count: int) -> bytes:
        if not 0 <= first <= size:
            raise FormatError(f"{where}: the HFile names byte {first}, it has {size}. The file is damaged.")
        return read(first, min(count, size - first))

    return clipped


def of_bytes(data: bytes | memoryview, where: str) -> HFile:
    """An HFile that is in memory, as in a log block."""
    view = memoryview(data)
    return open_hfile(lambda first, count: bytes(view[first : first + count]), len(view), where)


# ---------------------------------------------------------------- blocks and indexes
def _block(read: Read, offset: int, magic: bytes | tuple[bytes, ...], codec: int, where: str) -> tuple[bytes, int]:
    """(content, offset behind the block)."""
    head = read(offset, _HEADER.size)
    if len(head) < _HEADER.size or not head.startswith(magic):
        raise FormatError(_damaged(where, offset, f"expected a block {magic!r}, found {head[:8]!r}"))
    _, stored, plain, _, _, _, with_header = _HEADER.unpack(head)
    size = with_header - _HEADER.size
    if not 0 <= size <= stored or plain < 0:
        raise FormatError(_damaged(where, offset, "its sizes contradict each other"))
    data = read(offset + _HEADER.size, size)
    if codec == _GZIP:
        try:
            unpacker = zlib.decompressobj(wbits=31)
            data = unpacker.decompress(data, plain + 1)
        except zlib.error as error:
            raise FormatError(_damaged(where, offset, str(error))) from error
    if len(data) != plain:
        raise FormatError(_damaged(where, offset, f"expected {plain} bytes, found {len(data)}"))
    return data, offset + _HEADER.size + stored


def _damaged(where: str, offset: int, what: str) -> str:
    return f"{where}, block at byte {offset}: {what}. The file is damaged."


def _root_index(content: bytes, count: int, whole_keys: bool) -> Iterator[Entry]:
    at = 0
    for _ in range(count):
        offset, size = struct.unpack_from(">qi", content, at)
        length, at = _hadoop_varint(content, at + 12)
        key = content[at : at + length]
        yield Entry(offset, size, _bare(key) if whole_keys else key)
        at += length


def _inner_index(content: bytes, where: str) -> tuple[Entry, ...]:
    """An index block below the root: the number of entries, where each begins and the last ends, then the entries."""
    try:
        (count,) = struct.unpack_from(">i", content)
        starts = struct.unpack_from(f">{count + 1}i", content, 4)
        body = 4 + 4 * (count + 1)
        found = []
        for first, last in pairwise(starts):
            offset, size = struct.unpack_from(">qi", content, body + first)
            found.append(Entry(offset, size, _bare(content[body + first + 12 : body + last])))
        if not found:
            raise FormatError(f"{where}: an index block of the HFile is empty. The file is damaged.")
        return tuple(found)
    except struct.error as error:
        raise FormatError(f"{where}: an index block of the HFile is damaged ({error}).") from error


def _bare(key: bytes) -> bytes:
    """The key without what HBase puts behind it: int16 length, the key, family, timestamp, type."""
    (length,) = struct.unpack_from(">h", key)
    return key[2 : 2 + length]


def _text(key: bytes, where: str) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError as error:
        raise FormatError(f"{where}: the key {key!r} is no UTF-8 text.") from error


# ---------------------------------------------------------------- numbers and messages
def _varint_bytes(first: int) -> int:
    """How many bytes a Hadoop varint has by its first one."""
    signed = first - 256 if first > 127 else first
    return 1 if signed >= -112 else (-119 - signed if signed < -120 else -111 - signed)


def _hadoop_varint(data: bytes, at: int) -> tuple[int, int]:
    """(value, position behind it) of a number that is not negative."""
    size = _varint_bytes(data[at])
    value = data[at] if size == 1 else int.from_bytes(data[at + 1 : at + size], "big")
    return value, at + size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _message(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(number, value) of the fields of a protobuf message: varints and bytes."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        if tag & 7 == 0:
            value, at = _varint(data, at)
            yield tag >> 3, value
        elif tag & 7 == 2:
            length, at = _varint(data, at)
            yield tag >> 3, data[at : at + length]
            at += length
        else:
            raise IndexError(f"field of kind {tag & 7}")


def _info(content: bytes) -> dict[str, bytes]:
    """The file info: `PBUF`, then a message of pairs with its length in front."""
    if not content.startswith(b"PBUF"):
        raise IndexError("file info without PBUF")
    length, at = _varint(content, 4)
    found = {}
    for _, pair in _message(content[at : at + length]):
        fields = dict(_message(pair)) if isinstance(pair, bytes) else {}
        name, value = fields.get(1, b""), fields.get(2, b"")
        if isinstance(name, bytes) and isinstance(value, bytes):
            found[name.decode(errors="replace")] = value
    return found
