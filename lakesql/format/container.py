"""Avro object container files: one or more records and their schema as bytes (hudi-format 2.4).

    "Obj" 01 | map of metadata (avro.schema, avro.codec) | 16 bytes sync | blocks of (count, size, data, sync)

Every timeline file but the JSON ones is such a file with one record. fastavro does the datums; the frame is read and
written here, so that schema texts are parsed once per process (they repeat from commit to commit) and are kept letter
for letter. The sync marker is a digest of the content instead of random bytes: the same record gives the same file.
Codecs read: null and deflate; written: null, as Hudi does.
"""

import hashlib
import io
import json
import zlib
from functools import lru_cache
from typing import Any

import fastavro

from lakesql.errors import FormatError, Unsupported

MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
# What fastavro and the two lines of arithmetic below can raise on bytes that are no Avro.
_BROKEN = (EOFError, ValueError, IndexError, KeyError, TypeError, OverflowError, MemoryError, StopIteration, zlib.error)


def read_container(data: bytes, where: str) -> tuple[list[Any], dict[str, Any]]:
    """All records of a container file and its schema as written. FormatError when the bytes are not one."""
    if data[:4] != MAGIC:
        raise FormatError(f"{where}: expected an Avro container file (first bytes 4f 62 6a 01), found {_first(data)}.")
    try:
        stream = io.BytesIO(data)
        stream.seek(4)
        metadata = _read_metadata(stream, len(data))
        schema_text = metadata["avro.schema"].decode()
        codec = metadata.get("avro.codec", b"null").decode()
        schema = _parsed(schema_text)
        sync = _exactly(stream, _SYNC_BYTES)
        records: list[Any] = []
        while stream.tell() < len(data):
            count, size = _read_long(stream), _read_long(stream)
            block = io.BytesIO(_decompress(_exactly(stream, size), codec, where))
            if count < 0 or _exactly(stream, _SYNC_BYTES) != sync:
                raise ValueError("sync marker does not match")
            records.extend(fastavro.schemaless_reader(block, schema, None) for _ in range(count))
            if block.read(1):
                raise ValueError("bytes left over in a block")
        return records, json.loads(schema_text)
    except _BROKEN as error:
        reason = str(error) or type(error).__name__
        raise FormatError(
            f"{where}: damaged Avro container file of {len(data)} bytes ({reason}). "
            "The file is torn or was changed; restore it, or roll the instant back."
        ) from error


def write_container(record: Any, schema: dict[str, Any]) -> bytes:
    """A container file with one record; its schema is stored as the compact JSON of `schema`."""
    text = json.dumps(schema, separators=(",", ":"))
    body = io.BytesIO()
    fastavro.schemaless_writer(body, _parsed(text), record, strict_allow_default=True)
    datum = body.getvalue()
    encoded = text.encode()
    sync = hashlib.md5(encoded + datum, usedforsecurity=False).digest()
    header = MAGIC + _long(1) + _long(11) + b"avro.schema" + _long(len(encoded)) + encoded + _long(0) + sync
    return header + _long(1) + _long(len(datum)) + datum + sync


@lru_cache(maxsize=64)
def _parsed(schema_text: str) -> Any:
    return fastavro.parse_schema(json.loads(schema_text))


def _read_metadata(stream: io.BytesIO, limit: int) -> dict[str, bytes]:
    metadata: dict[str, bytes] = {}
    while (count := _read_long(stream)) != 0:
        if count < 0:
            count, _ = -count, _read_long(stream)
        if count > limit:
            raise ValueError("metadata longer than the file")
        for _ in range(count):
            key = _exactly(stream, _read_long(stream)).decode()
            metadata[key] = _exactly(stream, _read_long(stream))
    return metadata


def _exactly(stream: io.BytesIO, size: int) -> bytes:
    found = stream.read(size) if size >= 0 else b""
    if size < 0 or len(found) != size:
        raise EOFError("the file ends too early")
    return found


def _decompress(block: bytes, codec: str, where: str) -> bytes:
    if codec == "null":
        return block
    if codec == "deflate":
        return zlib.decompress(block, wbits=-15)
    raise Unsupported(f"{where}: Avro codec '{codec}'. Hudi writes timeline files without compression.")


def _read_long(stream: io.BytesIO) -> int:
    value = shift = 0
    while True:
        byte = _exactly(stream, 1)[0]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1)
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def _long(value: int) -> bytes:
    """Zig-zag varint of a number that is not negative."""
    encoded = bytearray()
    value <<= 1
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _first(data: bytes) -> str:
    return data[:4].hex(" ") if data else "an empty file"
