"""Files of a file target are what other readers of their formats read."""

import hashlib
import json
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakesql.errors import JobError
from lakesql.ingest.file_writers import writer_of
from lakesql.ingest.model import AVRO_SCHEMA
from lakesql.storage import LocalStorage, Sink, open_storage

ROWS = pa.table(
    {
        "id": pa.array([1, 2, None], pa.int64()),
        "name": pa.array(["a", None, "ç"]),
        "tags": pa.array([["x"], [], None], pa.list_(pa.string())),
        "at": pa.array([{"lat": 1.5}, None, {"lat": None}], pa.struct([("lat", pa.float64())])),
    }
)


def sink_at(path: Path) -> Sink:
    return LocalStorage(path.parent).sink(path.name)


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "bzip2", "xz"])
def test_fastavro_reads_every_codec(codec: str, tmp_path: Path) -> None:
    extension, opened = writer_of({"writer.codec.type": codec})
    path = tmp_path / f"a.{extension}"
    writer = opened(sink_at(path), ROWS.schema, "orders")
    writer.append(ROWS)
    writer.append(ROWS.slice(1))
    done = writer.close()
    with path.open("rb") as file:
        found = list(fastavro.reader(file)) if codec != "snappy" else _snappy(path)
    assert found == [*ROWS.to_pylist(), *ROWS.slice(1).to_pylist()]
    assert (done.rows, done.size) == (5, path.stat().st_size)
    assert done.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def _snappy(path: Path) -> list[object]:
    """fastavro reads Snappy only with another package, so the blocks are taken apart here."""
    import io
    import zlib

    data = path.read_bytes()
    with path.open("rb") as file:
        blocks = fastavro._read_py
        header = blocks.schemaless_reader(file, blocks.HEADER_SCHEMA, None)
        schema = json.loads(header["meta"]["avro.schema"])
        out: list[object] = []
        while file.tell() < len(data):
            decoder = blocks.BinaryDecoder(file)
            count, block = decoder.read_long(), decoder.read_bytes()
            plain = _unsnappy(block[:-4])
            assert zlib.crc32(plain) == int.from_bytes(block[-4:], "big")
            stream = io.BytesIO(plain)
            out += [fastavro.schemaless_reader(stream, schema) for _ in range(count)]
            assert file.read(16) == header["sync"]
    return out


def _unsnappy(block: bytes) -> bytes:
    size = shift = position = 0
    while True:
        byte = block[position]
        size |= (byte & 0x7F) << shift
        shift, position = shift + 7, position + 1
        if byte < 0x80:
            return bytes(pa.decompress(block, size, "snappy", asbytes=True))


def test_the_schema_that_records_came_with_is_the_schema_of_the_file(tmp_path: Path) -> None:
    avro = {
        "type": "record", "name": "Order", "namespace": "shop", "doc": "An order.",
        "fields": [{"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}}],
    }  # fmt: skip
    schema = pa.schema([pa.field("state", pa.string(), nullable=False)], {AVRO_SCHEMA: json.dumps(avro)})
    rows = pa.table({"state": ["PAID", "NEW"]}, schema=schema)
    writer = writer_of({})[1](sink_at(tmp_path / "a.avro"), schema, "orders")
    writer.append(rows)
    writer.close()
    with (tmp_path / "a.avro").open("rb") as file:
        reader = fastavro.reader(file)
        assert list(reader) == [{"state": "PAID"}, {"state": "NEW"}]
        assert reader.writer_schema["name"] in ("Order", "shop.Order")


def test_the_same_rows_give_the_same_bytes(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        writer = writer_of({})[1](sink_at(tmp_path / folder / "part"), ROWS.schema, "orders")
        writer.append(ROWS)
        writer.close()
    assert (tmp_path / "one/part").read_bytes() == (tmp_path / "two/part").read_bytes()


def test_parquet_files_hold_the_rows(tmp_path: Path) -> None:
    extension, opened = writer_of({"writer.output.format": "parquet", "writer.codec.type": "zstd"})
    assert extension == "parquet"
    writer = opened(sink_at(tmp_path / "a"), ROWS.schema, "orders")
    writer.append(ROWS)
    writer.append(ROWS)
    assert writer.close().rows == 6
    assert pq.read_table(tmp_path / "a").to_pylist() == ROWS.to_pylist() * 2


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.one_of(st.none(), st.binary(max_size=9)), max_size=20),
    sized=st.booleans(),
    delimiter=st.binary(max_size=3),
    cut=st.integers(0, 3),
)
def test_plain_bytes_are_framed_as_asked(
    values: list[bytes | None], sized: bool, delimiter: bytes, cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("bytes") / "a"
    options = {"writer.output.format": "TXT", "simple.writer.prepend.size": str(sized).lower()}
    options["simple.writer.delimiter"] = delimiter.decode("latin-1")
    table = pa.table({"value": pa.array(values, pa.binary())}).slice(cut)
    writer = writer_of(options)[1](sink_at(path), table.schema, "orders")
    writer.append(table)
    writer.close()
    mark = options["simple.writer.delimiter"].encode()
    expected = b"".join(
        ((len(v or b"") + len(mark)).to_bytes(8, "big") if sized else b"") + (v or b"") + mark for v in values[cut:]
    )
    assert path.read_bytes() == expected


@pytest.mark.parametrize("kind", ["AVRO", "PARQUET", "TXT"])
def test_a_file_in_a_bucket_has_the_bytes_of_one_on_a_disk(kind: str, tmp_path: Path) -> None:
    rows = ROWS.select(["name"]) if kind == "TXT" else ROWS
    done = []
    bucket = open_storage(f"memory://{tmp_path.name}/files")
    for storage in (LocalStorage(tmp_path), bucket):
        writer = writer_of({"writer.output.format": kind})[1](storage.sink("x/part"), rows.schema, "orders")
        writer.append(rows)
        writer.append(rows)
        done.append(writer.close())
    assert done[0] == done[1]
    assert bucket.read("x/part") == (tmp_path / "x/part").read_bytes()
    given_up = writer_of({"writer.output.format": kind})[1](bucket.sink("x/other"), rows.schema, "orders")
    given_up.append(rows)
    given_up.abandon()
    assert bucket.stat("x/other") is None


def test_several_columns_are_no_plain_bytes(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="one column"):
        writer_of({"writer.output.format": "TXT"})[1](sink_at(tmp_path / "a"), ROWS.schema, "orders")


@pytest.mark.parametrize(
    "options",
    [
        {"writer.codec.type": "rar"},
        {"writer.output.format": "ORC"},
        {"writer.output.format": "PARQUET", "writer.codec.type": "deflate"},
    ],
)
def test_unknown_formats_and_codecs_are_refused_with_the_known_ones(options: dict[str, str]) -> None:
    with pytest.raises(JobError, match="known"):
        writer_of(options)
