"""Files of a file target, written batch by batch into a sink: Avro containers, Parquet, and plain bytes.

Each writer appends tables of one schema and, when it is closed, tells the size, the rows and the SHA-256 of the file;
the bytes are on the disk, or in the bucket, then. Nothing but the rows decides the bytes, so a range that is read again gives the same file.
"""

import bz2
import hashlib
import io
import json
import lzma
import os
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lakesql.errors import JobError
from lakesql.format.avro_encode import encode_values
from lakesql.format.avro_types import arrow_fields, parse_schema, record_of
from lakesql.format.conform import conform
from lakesql.ingest.model import AVRO_SCHEMA
from lakesql.storage import Sink

_MAGIC = b"Obj\x01"


@dataclass(frozen=True, slots=True)
class Written:
    """A file that is complete."""

    size: int
    rows: int
    sha256: str


class FileWriter(ABC):
    """One file under way."""

    extension: str

    def __init__(self, sink: Sink, schema: pa.Schema) -> None:
        self.sink, self.schema, self.rows = sink, schema, 0
        self.name = sink.path.rpartition("/")[2]

    @abstractmethod
    def append(self, rows: pa.Table) -> None:
        """Add rows of the schema."""

    @abstractmethod
    def close(self) -> Written:
        """Finish the file and force it to the disk."""

    @abstractmethod
    def abandon(self) -> None:
        """Write no more; what a disk has of the file, somebody removes."""


class _Appending(FileWriter):
    """A file that grows by whole pieces of bytes; on a disk it is closed between them."""

    def __init__(self, sink: Sink, schema: pa.Schema) -> None:
        super().__init__(sink, schema)
        self._digest, self._size = hashlib.sha256(), 0

    def _write(self, data: bytes) -> None:
        if isinstance(self.sink.target, str):
            with Path(self.sink.target).open("ab" if self._size else "wb") as file:
                file.write(data)
        else:
            self.sink.target.write(data)
        self._digest.update(data)
        self._size += len(data)

    def close(self) -> Written:
        if isinstance(self.sink.target, str):
            with Path(self.sink.target).open("rb") as file:
                os.fsync(file.fileno())
        self.sink.close()
        return Written(self._size, self.rows, self._digest.hexdigest())

    def abandon(self) -> None:
        self.rows = 0
        self.sink.abort()


class AvroWriter(_Appending):
    """An Avro object container: a block for each batch."""

    extension = "avro"

    def __init__(self, sink: Sink, schema: pa.Schema, name: str, codec: str, level: int) -> None:
        super().__init__(sink, schema)
        self._avro = _schema_of(schema, name)
        self._node = parse_schema(self._avro)
        self._compress = avro_codec(codec, level)
        text = json.dumps(self._avro, separators=(",", ":")).encode()
        self._sync = hashlib.md5(f"{self.name}\0".encode() + text, usedforsecurity=False).digest()
        meta = {b"avro.schema": text, b"avro.codec": codec.encode()}
        pairs = b"".join(_bytes(key) + _bytes(value) for key, value in meta.items())
        self._write(_MAGIC + _long(len(meta)) + pairs + _long(0) + self._sync)

    def append(self, rows: pa.Table) -> None:
        fitted = conform(rows, pa.schema(arrow_fields(self._node)), self.name)
        for batch in fitted.combine_chunks().to_batches():
            data, _ = encode_values(self._node, pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema)))
            block = self._compress(data.tobytes())
            self._write(_long(batch.num_rows) + _long(len(block)) + block + self._sync)
        self.rows += rows.num_rows


def _schema_of(schema: pa.Schema, name: str) -> Any:
    """The Avro schema that the records came with; a plain one when their columns are no longer those."""
    given = json.loads((schema.metadata or {}).get(AVRO_SCHEMA.encode(), b"null"))
    if given is not None and pa.schema(arrow_fields(parse_schema(given))).equals(schema):
        return given
    return {**record_of(schema.remove_metadata(), name), "namespace": "lakesql"}


def avro_codec(name: str, level: int) -> Callable[[bytes], bytes]:
    """Compression of a block by the codec's Avro name."""

    def deflate(data: bytes) -> bytes:
        stream = zlib.compressobj(level, wbits=-15)
        return stream.compress(data) + stream.flush()

    def snappy(data: bytes) -> bytes:
        return bytes(pa.compress(data, "snappy", asbytes=True)) + zlib.crc32(data).to_bytes(4, "big")

    def zstandard(data: bytes) -> bytes:
        return bytes(pa.compress(data, "zstd", asbytes=True))

    codecs: dict[str, Callable[[bytes], bytes]] = {
        "null": lambda data: data,
        "deflate": deflate,
        "snappy": snappy,
        "zstandard": zstandard,
        "bzip2": bz2.compress,
        "xz": lzma.compress,
    }
    if name not in codecs:
        raise JobError(f"writer.codec.type = {name}: known are {', '.join(codecs)}.")
    return codecs[name]


def _long(value: int) -> bytes:
    """Zigzag varint."""
    number, out = (value << 1) ^ (value >> 63), bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def _bytes(data: bytes) -> bytes:
    return _long(len(data)) + data


class ParquetWriter(FileWriter):
    """A Parquet file; batches are gathered into row groups."""

    extension = "parquet"
    _GROUP_BYTES = 32 << 20

    def __init__(self, sink: Sink, schema: pa.Schema, codec: str) -> None:
        super().__init__(sink, schema)
        self._waiting: list[pa.Table] = []
        self._target = sink.target if isinstance(sink.target, str) else _Summed(sink.target)
        self._file = pq.ParquetWriter(self._target, schema.remove_metadata(), compression=codec)

    def append(self, rows: pa.Table) -> None:
        self._waiting.append(conform(rows, self.schema.remove_metadata(), self.name))
        self.rows += rows.num_rows
        if sum(t.nbytes for t in self._waiting) >= self._GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self._file.write_table(pa.concat_tables(self._waiting))
            self._waiting = []

    def close(self) -> Written:
        self._flush()
        self._file.close()
        if isinstance(self._target, str):
            with Path(self._target).open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                os.fsync(file.fileno())
        else:
            digest = self._target.digest.hexdigest()
        return Written(self.sink.close(), self.rows, digest)

    def abandon(self) -> None:
        self._waiting = []
        self._file.close()
        self.sink.abort()


class _Summed(io.RawIOBase):
    """A binary file to write to, and the SHA-256 of what went there."""

    def __init__(self, inner: BinaryIO) -> None:
        self._inner, self.digest = inner, hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.digest.update(data)
        return self._inner.write(data)

    def tell(self) -> int:
        return self._inner.tell()


class BytesWriter(_Appending):
    """The values one after the other, each with its size in front and a delimiter behind, as asked for."""

    extension = "txt"

    def __init__(self, sink: Sink, schema: pa.Schema, prepend_size: bool, delimiter: bytes) -> None:
        super().__init__(sink, schema)
        columns = [f.name for f in schema if pa.types.is_binary(f.type) or pa.types.is_string(f.type)]
        if len(schema) != 1 or not columns:
            raise JobError(
                f"writer.output.format = TXT writes one column of bytes or text, and there are {', '.join(schema.names)}. "
                "Use FORMAT RAW or STRING, or write Avro or Parquet."
            )
        self._prepend, self._delimiter = prepend_size, delimiter
        self._write(b"")

    def append(self, rows: pa.Table) -> None:
        values = rows.column(0).cast(pa.binary()).fill_null(b"")
        self._write(b"".join(_framed(chunk, self._prepend, self._delimiter) for chunk in values.chunks))
        self.rows += rows.num_rows


def _framed(values: pa.Array, prepend_size: bool, delimiter: bytes) -> bytes:
    """All values with what stands before and behind each, without a loop over them."""
    count = len(values)
    ends = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + count + 1].astype(np.int64)
    data = np.frombuffer(values.buffers()[2] or b"", np.uint8)[ends[0] : ends[-1]]
    sizes, front, back = np.diff(ends), 8 * prepend_size, len(delimiter)
    starts = np.concatenate([[0], np.cumsum(sizes + front + back)])
    out = np.empty(int(starts[-1]), np.uint8)
    if prepend_size:
        lengths = (sizes + back).astype(">i8").view(np.uint8).reshape(count, 8)
        out[(starts[:-1, None] + np.arange(8)).ravel()] = lengths.ravel()
    shift = np.repeat(starts[:-1] + front - (ends[:-1] - ends[0]), sizes)
    out[np.arange(len(data)) + shift] = data
    for number, byte in enumerate(delimiter):
        out[starts[1:] - back + number] = byte
    return out.tobytes()


def writer_of(options: Mapping[str, str]) -> tuple[str, Callable[[Sink, pa.Schema, str], FileWriter]]:
    """(file extension, what opens a file in a sink for a schema and record name) by writer.output.format and codec."""
    simple = "SimpleDataWriter" in options.get("writer.builder.class", "")
    kind = options.get("writer.output.format", "TXT" if simple else "AVRO").strip().upper()
    codec = options.get("writer.codec.type", "").strip().lower()
    if kind == "AVRO":
        level = int(options.get("writer.deflate.level", "9"))
        name = {"nocompression": "null", "zstd": "zstandard", "": "deflate"}.get(codec, codec)
        avro_codec(name, level)
        return "avro", lambda sink, schema, record: AvroWriter(sink, schema, record, name, level)
    if kind == "PARQUET":
        name = codec or "snappy"
        if name not in ("none", "snappy", "gzip", "zstd", "lz4", "brotli"):
            raise JobError(f"writer.codec.type = {codec}: known for Parquet are none, snappy, gzip, zstd, lz4, brotli.")
        return "parquet", lambda sink, schema, _record: ParquetWriter(sink, schema, name)
    if kind in ("TXT", "TEXT"):
        prepend = options.get("simple.writer.prepend.size", "false").strip().lower() == "true"
        delimiter = options.get("simple.writer.delimiter", "\n").encode()
        return "txt", lambda sink, schema, _record: BytesWriter(sink, schema, prepend, delimiter)
    raise JobError(f"writer.output.format = {kind}: known are AVRO, PARQUET and TXT.")
