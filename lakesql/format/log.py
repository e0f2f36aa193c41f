"""Log files: a sequence of blocks, to and from bytes, and the data inside blocks to Arrow.

    magic 6 | size 8 | format version 4 | kind 4 | headers | content length 8 | content | footers | total length 8

(all numbers big-endian; size counts what follows it, total length is size + 6; a header map is int32 count, then int32
id, int32 length and UTF-8 text each). Strategy: a scan cuts the bytes into blocks without copying; what does not hold
together becomes a CORRUPT block up to the next magic. Hudi format note 4.1 to 4.11. Not done: which blocks count (4.9,
table layer), HFile contents, record positions, blocks of other format versions.
"""

import json
import re
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakesql.errors import FormatError, Unsupported
from lakesql.format import deletes
from lakesql.format.avro import arrow_schema
from lakesql.format.avro_decode import decode_records
from lakesql.format.conform import conform

COMMAND, DELETE, CORRUPT, AVRO, HFILE, PARQUET, CDC = range(7)
KIND_NAMES = ("command", "delete", "corrupt", "Avro data", "HFile data", "parquet data", "CDC data")

INSTANT_TIME = 0
TARGET_INSTANT_TIME = 1
SCHEMA = 2
COMMAND_TYPE = 3
COMPACTED_BLOCK_TIMES = 4
RECORD_POSITIONS = 5
IS_PARTIAL = 7
BASE_INSTANT_OF_POSITIONS = 8

MAGIC = b"#HUDI#"
FORMAT_VERSION = 1
AVRO_CONTENT_VERSION = 3
ROLLBACK_COMMAND = "0"

_MAGIC = re.compile(re.escape(MAGIC))
_SMALLEST = 32  # size field of a block without headers and content


@dataclass(frozen=True, slots=True)
class Block:
    """One block of a log file.

    kind     COMMAND .. CDC, or CORRUPT
    headers  text by header id; ids we do not know are kept
    content  view of the file's bytes
    offset   where the block begins in the file
    footers  text by footer id; Hudi writes none
    """

    kind: int
    headers: Mapping[int, str]
    content: memoryview
    offset: int
    footers: Mapping[int, str] = field(default_factory=dict)


# ---------------------------------------------------------------- blocks
def scan_blocks(data: Any, where: str) -> list[Block]:
    """All blocks of a log file (bytes, memoryview or mmap), in file order.

    A torn tail and damage inside become CORRUPT blocks that reach to the next magic (4.9). FormatError when a block is
    whole by its lengths but cannot be understood.
    """
    view = memoryview(data).cast("B")
    blocks = []
    at = 0
    while at < len(view):
        size = _whole_size(view, at)
        if size is None:
            found = _MAGIC.search(view, at + 1)
            end = found.start() if found else len(view)
            blocks.append(Block(CORRUPT, {}, view[at:end], at))
        else:
            end = at + len(MAGIC) + 8 + size
            blocks.append(_block(view[at:end], at, where))
        at = end
    return blocks


def _whole_size(view: memoryview, at: int) -> int | None:
    """The size field of the block at this offset, or None when the block is torn or damaged."""
    if view[at : at + 6] != MAGIC or at + 14 > len(view):
        return None
    size: int = struct.unpack_from(">q", view, at + 6)[0]
    end = at + 14 + size
    if size < _SMALLEST or end > len(view) or struct.unpack_from(">q", view, end - 8)[0] != size + 6:
        return None
    if end < len(view) and view[end : end + 6] != MAGIC[: len(view) - end]:
        return None
    return size


def _block(view: memoryview, offset: int, where: str) -> Block:
    where = f"{where}, block at byte {offset}"
    version, kind = struct.unpack_from(">ii", view, 14)
    if version != FORMAT_VERSION:
        raise FormatError(f"{where}: expected log format version {FORMAT_VERSION}, found {version}.")
    if not 0 <= kind < len(KIND_NAMES) or kind == CORRUPT:
        raise FormatError(f"{where}: unknown block type {kind}; a newer Hudi release may have written it.")
    stop = len(view) - 8
    headers, at = _headers(view, 22, stop, where)
    if at + 8 > stop:
        raise FormatError(f"{where}: its header ends at byte {at} of {len(view)}. The block is damaged.")
    length = struct.unpack_from(">q", view, at)[0]
    if not 0 <= length <= stop - at - 8:
        raise FormatError(f"{where}: its content length {length} exceeds the block of {len(view)} bytes.")
    footers, _ = _headers(view, at + 8 + length, stop, where)
    return Block(kind, headers, view[at + 8 : at + 8 + length], offset, footers)


def _headers(view: memoryview, at: int, stop: int, where: str) -> tuple[dict[int, str], int]:
    """A header or footer map and the position behind it."""
    try:
        (count,) = struct.unpack_from(">i", view, at)
        at += 4
        if not 0 <= count <= (stop - at) // 8:
            raise FormatError(f"{where}: a map of {count} entries at byte {at - 4} of {len(view)}. It is damaged.")
        out = {}
        for _ in range(count):
            key, length = struct.unpack_from(">ii", view, at)
            at += 8
            if not 0 <= length <= stop - at:
                raise FormatError(f"{where}: header {key} of {length} bytes at byte {at} of {len(view)}.")
            out[key] = bytes(view[at : at + length]).decode()
            at += length
    except (struct.error, UnicodeDecodeError) as error:
        raise FormatError(f"{where}: its headers are damaged at byte {at} of {len(view)}: {error}.") from None
    return out, at


def encode_block(kind: int, headers: Mapping[int, str], content: bytes | bytearray | memoryview) -> bytes:
    """One block as bytes; headers in the order given, empty footer."""
    head = struct.pack(">i", len(headers))
    for key, text in headers.items():
        raw = text.encode()
        head += struct.pack(">ii", key, len(raw)) + raw
    size = 4 + 4 + len(head) + 8 + len(content) + 4 + 8
    begin = MAGIC + struct.pack(">qii", size, FORMAT_VERSION, kind) + head + struct.pack(">q", len(content))
    return b"".join((begin, content, struct.pack(">iq", 0, size + 6)))


def encode_rollback(instant: str, target: str) -> bytes:
    """The command block that takes back the blocks of instant `target` (table version 6 only, 4.11)."""
    return encode_block(
        COMMAND, {INSTANT_TIME: instant, COMMAND_TYPE: ROLLBACK_COMMAND, TARGET_INSTANT_TIME: target}, b""
    )


# ---------------------------------------------------------------- data
def encode_avro_content(records: Any, count: int) -> bytes:
    """Content of an Avro data block from `count` records as encode_records gives them (bytes or a uint8 array)."""
    return b"".join((struct.pack(">ii", AVRO_CONTENT_VERSION, count), memoryview(records).cast("B")))


def decode_data(block: Block, columns: Collection[str] | None = None, where: str = "log file") -> pa.Table:
    """Rows of an Avro, CDC or parquet block with the types of the block's own schema, columns in its order.

    columns: names to keep, None for all; names the block does not have are ignored. FormatError when the block is
    damaged or has no schema, Unsupported for HFile blocks and types.
    """
    where = f"{where}, block at byte {block.offset}"
    if block.kind not in _DECODERS:
        raise Unsupported(
            f"{where}: rows of {KIND_NAMES[block.kind]} blocks are not read; a table has such blocks only when it was "
            "written with hoodie.logfile.data.block.format=hfile. Compact it with Spark."
        )
    try:
        return _DECODERS[block.kind](block, columns, where)
    except (FormatError, Unsupported) as error:
        text = str(error)
        raise type(error)(text if text.startswith(where) else f"{where}: {text}") from None


def _decode_avro(block: Block, columns: Collection[str] | None, where: str) -> pa.Table:
    if SCHEMA not in block.headers:
        raise FormatError(f"{where}: the block has no SCHEMA header.")
    if len(block.content) < 8:
        raise FormatError(f"{where}: expected a version and a record count, found {len(block.content)} bytes.")
    version, count = struct.unpack_from(">ii", block.content)
    if not 1 <= version <= AVRO_CONTENT_VERSION:
        raise FormatError(f"{where}: expected Avro content version 1 to {AVRO_CONTENT_VERSION}, found {version}.")
    return decode_records(block.content[8:], count, schema_of(block.headers[SCHEMA]), columns)


def _decode_parquet(block: Block, columns: Collection[str] | None, where: str) -> pa.Table:
    try:
        file = pq.ParquetFile(pa.BufferReader(pa.py_buffer(block.content)), coerce_int96_timestamp_unit="us")
        names = file.schema_arrow.names
        keep = [n for n in names if columns is None or n in columns]
        table = file.read(columns=keep, use_threads=False).select(keep)
        table.validate(full=True)
    except Exception as error:  # pyarrow raises whatever the damaged bytes lead it into
        raise FormatError(f"{where}: the parquet file in the block is damaged: {error}.") from None
    if SCHEMA not in block.headers:
        return table
    own = arrow_schema(schema_of(block.headers[SCHEMA]))
    return conform(table, pa.schema([f for f in own if f.name in keep]), where)


_DECODERS: dict[int, Callable[[Block, Collection[str] | None, str], pa.Table]] = {
    AVRO: _decode_avro,
    CDC: _decode_avro,
    PARQUET: _decode_parquet,
}


@lru_cache(maxsize=64)
def schema_of(text: str) -> dict[str, Any]:
    """The Avro schema of a SCHEMA header. FormatError when it is none."""
    try:
        avro = json.loads(text)
    except ValueError as error:
        raise FormatError(f"the SCHEMA header is not JSON: {error}.") from None
    if not isinstance(avro, dict):
        raise FormatError(f"the SCHEMA header is no record: {text[:80]}.")
    return avro


# ---------------------------------------------------------------- deletes
def decode_deletes(block: Block, ordering_types: Sequence[pa.DataType], where: str = "log file") -> pa.Table:
    """Deleted keys of a delete block of content version 1, 2 or 3: record_key, partition_path, commit_time_delete and
    ord_0, ord_1, ... of the given types (see deletes.decode)."""
    return deletes.decode(block.content, ordering_types, f"{where}, block at byte {block.offset}")


def encode_deletes(keys: pa.Array, partitions: pa.Array, ordering: Sequence[pa.Array] | None) -> bytes:
    """Content of a version 3 delete block (see deletes.encode): ordering None for commit-time deletes."""
    return deletes.encode(keys, partitions, ordering)
