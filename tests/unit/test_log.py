"""Log files: framing against real bytes, damage, data blocks, delete blocks of all three versions."""

import contextlib
import datetime
import io
import json
import mmap
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakesql.errors import FormatError, TableError, Unsupported
from lakesql.format import avro, log
from lakesql.format.deletes import ONE_BLOCK_ITEMS_MIN
from lakesql.format.kryo import read_deletes

KRYO = Path(__file__).parent.parent / "golden" / "kryo"
T = "20250126040936578"
ROLLBACK = bytes.fromhex(
    "234855444923 000000000000005b 00000001 00000000 00000003 00000000 00000011 3230323530313236303430393336353738"
    "00000003 00000001 30 00000001 00000011 3230323530313236303430383236383738"
    "0000000000000000 00000000 0000000000000061"
)
EMPTY_DELETE = bytes.fromhex(
    "234855444923 0000000000000042 00000001 00000001 00000001 00000000 00000011 3030303030303030303030303030303030"
    "0000000000000009 00000003 00000001 00 00000000 0000000000000048"
)

TABLE = pa.table({"id": ["a", "b", None], "n": pa.array([1, None, 3], pa.int64()), "l": [[1.5], [], None]})
SCHEMA = avro.avro_schema(TABLE.schema, "t")
HEADERS = {log.INSTANT_TIME: T, log.SCHEMA: json.dumps(SCHEMA)}


def avro_block() -> bytes:
    data, _ = avro.encode_records(TABLE, SCHEMA)
    return log.encode_block(log.AVRO, HEADERS, log.encode_avro_content(data, 3))


def parquet_block(headers: dict[int, str]) -> bytes:
    sink = io.BytesIO()
    table = TABLE.set_column(2, "l", TABLE["l"].cast(pa.list_(pa.field("array", pa.float64()))))
    pq.write_table(table, sink, store_schema=False)
    return log.encode_block(log.PARQUET, headers, sink.getvalue())


def only(data: bytes) -> log.Block:
    (block,) = log.scan_blocks(data, "f")
    return block


def kinds(data: Any) -> list[tuple[int, int]]:
    return [(b.kind, b.offset) for b in log.scan_blocks(data, "f")]


# ---------------------------------------------------------------- framing
def test_a_rollback_command_has_the_bytes_hudi_writes() -> None:
    assert log.encode_rollback(T, "20250126040826878") == ROLLBACK
    block = only(ROLLBACK)
    assert (block.kind, len(block.content)) == (log.COMMAND, 0)
    assert block.headers == {
        log.INSTANT_TIME: T,
        log.COMMAND_TYPE: log.ROLLBACK_COMMAND,
        log.TARGET_INSTANT_TIME: "20250126040826878",
    }


def test_an_empty_delete_block_has_the_bytes_hudi_writes() -> None:
    content = log.encode_deletes(pa.array([], pa.string()), pa.array([], pa.string()), None)
    assert log.encode_block(log.DELETE, {log.INSTANT_TIME: "0" * 17}, content) == EMPTY_DELETE
    assert log.decode_deletes(only(EMPTY_DELETE), [pa.int64()], "f").num_rows == 0


def test_blocks_of_a_file_are_found_in_order_without_copying(tmp_path: Path) -> None:
    data = avro_block() + EMPTY_DELETE + ROLLBACK
    blocks = log.scan_blocks(data, "f")
    assert [b.kind for b in blocks] == [log.AVRO, log.DELETE, log.COMMAND]
    assert blocks[0].content.obj is data
    assert log.scan_blocks(b"", "f") == []
    (tmp_path / "f").write_bytes(data)
    with (tmp_path / "f").open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert kinds(mapped) == kinds(data)


def test_unknown_header_ids_are_kept() -> None:
    assert only(log.encode_block(log.DELETE, {99: "é"}, b"")).headers == {99: "é"}


def test_a_torn_tail_is_one_corrupt_block_at_every_length() -> None:
    whole, last = ROLLBACK, avro_block()
    for cut in range(1, len(last)):
        found = kinds(whole + last[:cut])
        assert found == [(log.COMMAND, 0), (log.CORRUPT, len(whole))]


def test_damage_in_the_middle_hides_one_block_only() -> None:
    blocks = [ROLLBACK, avro_block(), EMPTY_DELETE]
    for at in (0, 8, len(blocks[1]) - 2):  # magic, size, total length
        middle = bytearray(blocks[1])
        middle[at] ^= 0xFF
        found = log.scan_blocks(b"".join([blocks[0], bytes(middle), blocks[2]]), "f")
        assert [b.kind for b in found][-1] == log.DELETE
        assert log.CORRUPT in [b.kind for b in found]
        assert log.AVRO not in [b.kind for b in found]


def test_bytes_between_blocks_make_the_block_before_them_corrupt() -> None:
    assert kinds(ROLLBACK + b"xyz" + EMPTY_DELETE) == [(log.CORRUPT, 0), (log.DELETE, len(ROLLBACK) + 3)]
    assert kinds(b"junk") == [(log.CORRUPT, 0)]


BROKEN = [
    (17, 2, "expected log format version 1, found 2"),
    (21, 9, "unknown block type 9"),
    (21, 2, "unknown block type 2"),
    (25, 99, "a map of 99 entries"),
    (33, 255, "header 0 of 255 bytes"),
    (34, 255, "its headers are damaged"),
    (84, 255, "content length 255 exceeds"),
    (88, 9, "a map of 9 entries"),
]


@pytest.mark.parametrize(("at", "byte", "text"), BROKEN)
def test_a_whole_block_that_makes_no_sense_is_a_format_error(at: int, byte: int, text: str) -> None:
    data = bytearray(log.encode_block(log.DELETE, {0: T, 1: T[:15]}, b""))
    assert len(data) == 22 + 4 + 8 + 17 + 8 + 15 + 8 + 4 + 8
    data[at if at < 80 else at - 3] = byte
    with pytest.raises(FormatError, match=f"f, block at byte 0: .*{text}"):
        log.scan_blocks(bytes(data), "f")


def test_a_header_map_that_leaves_no_room_is_a_format_error() -> None:
    body = struct.pack(">iiiii", 1, 1, 1, 0, 4) + b"abcd" + b"\0\0\0\0"
    size = len(body) + 8
    data = log.MAGIC + struct.pack(">q", size) + body + struct.pack(">q", size + 6)
    with pytest.raises(FormatError, match="its header ends at byte"):
        log.scan_blocks(data, "f")


# ---------------------------------------------------------------- data
@pytest.mark.parametrize("block", [avro_block(), parquet_block(HEADERS)], ids=["avro", "parquet"])
def test_data_blocks_give_rows_in_the_types_of_their_own_schema(block: bytes) -> None:
    table = log.decode_data(only(block), where="f")
    assert table.schema.equals(avro.arrow_schema(SCHEMA))
    assert str(table.schema) == str(avro.arrow_schema(SCHEMA))
    assert table.to_pylist() == TABLE.to_pylist()
    some = log.decode_data(only(block), ["n", "id", "nosuch"], "f")
    assert some.to_pylist() == TABLE.select(["id", "n"]).to_pylist()


def test_cdc_blocks_are_avro_blocks_and_a_parquet_block_may_lack_the_schema_header() -> None:
    block = only(avro_block())
    assert log.decode_data(log.Block(log.CDC, block.headers, block.content, 0)).num_rows == 3
    assert log.decode_data(only(parquet_block({log.INSTANT_TIME: T}))).to_pylist() == TABLE.to_pylist()


def test_other_block_kinds_hold_no_rows() -> None:
    for kind, name in ((log.HFILE, "HFile data"), (log.COMMAND, "command"), (log.DELETE, "delete")):
        with pytest.raises(Unsupported, match=f"f, block at byte 7: rows of {name} blocks are not read"):
            log.decode_data(log.Block(kind, {}, memoryview(b""), 7), where="f")


CONTENTS = [
    ({}, b"", "no SCHEMA header"),
    ({log.SCHEMA: "{"}, b"\0\0\0\3\0\0\0\0", "SCHEMA header is not JSON"),
    ({log.SCHEMA: "[]"}, b"\0\0\0\3\0\0\0\0", "SCHEMA header is no record"),
    (HEADERS, b"\0\0\0", "expected a version and a record count, found 3 bytes"),
    (HEADERS, b"\0\0\0\4\0\0\0\0", "expected Avro content version 1 to 3, found 4"),
    (HEADERS, b"\0\0\0\3\0\0\0\1\0", "1 records announced in 1 bytes"),
]


@pytest.mark.parametrize(("headers", "content", "text"), CONTENTS)
def test_a_damaged_avro_block_names_file_and_place(headers: dict[int, str], content: bytes, text: str) -> None:
    with pytest.raises(FormatError, match=f"^f, block at byte 5: .*{text}"):
        log.decode_data(log.Block(log.AVRO, headers, memoryview(content), 5), where="f")


def test_a_schema_that_arrow_cannot_hold_names_file_and_place() -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": ["null", "r"]}]}
    block = log.Block(log.AVRO, {log.SCHEMA: json.dumps(schema)}, memoryview(b"\0\0\0\3\0\0\0\0"), 5)
    with pytest.raises(Unsupported, match=r"^f, block at byte 5: .*contains itself"):
        log.decode_data(block, where="f")


def test_every_truncation_of_a_data_block_is_a_format_error() -> None:
    for kind, block, step in ((log.AVRO, only(avro_block()), 1), (log.PARQUET, only(parquet_block(HEADERS)), 13)):
        for end in range(0, len(block.content), step):
            with pytest.raises(FormatError):
                log.decode_data(log.Block(kind, block.headers, block.content[:end], 0))


# ---------------------------------------------------------------- deletes
KEYS, PARTITIONS = pa.array(["TXN-002", "b"]), pa.array(["region=us", ""])


def deletes(content: bytes, *types: pa.DataType) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = log.decode_deletes(
        log.Block(log.DELETE, {}, memoryview(content), 0), types, "f"
    ).to_pylist()
    return rows


def test_a_delete_block_has_the_bytes_hudi_writes() -> None:
    real = bytes.fromhex("00000003 00000018 02 02 0e 54584e2d303032 02 12 726567696f6e3d7573 04 00 00")
    assert log.encode_deletes(KEYS.slice(0, 1), PARTITIONS.slice(0, 1), None) == real
    row = {"record_key": "TXN-002", "partition_path": "region=us", "commit_time_delete": True}
    assert deletes(real) == [row]
    assert deletes(real, pa.int32()) == [row | {"ord_0": None}]


def test_several_ordering_fields_have_the_bytes_hudi_writes() -> None:
    content = log.encode_deletes(pa.array(["a"]), pa.array(["p"]), [pa.array([1]), pa.array(["c"])])
    # branch 12, wrappedValues branch 1, two items: LongWrapper 1, StringWrapper "c"; end of items, end of list
    assert content == bytes.fromhex("00000003 00000011 02 02 02 61 02 02 70 18 02 04 06 02 0e 02 63 00 00")
    row = {"record_key": "a", "partition_path": "p"}
    full = row | {"commit_time_delete": False, "ord_0": 1, "ord_1": "c"}
    assert deletes(content, pa.int64(), pa.string()) == [full]
    nothing = row | {"commit_time_delete": True, "ord_0": None, "ord_1": None}
    assert deletes(content, pa.string(), pa.string()) == [nothing]
    assert deletes(content, pa.int64()) == [row | {"commit_time_delete": True, "ord_0": None}]


INSTANT = datetime.datetime(2024, 1, 2, 3, 4, 5, 678000)
ORDERING = [
    (pa.array([True, False]), "01"),
    (pa.array([5, -7], pa.int8()), "02"),
    (pa.array([5, -7], pa.int32()), "02"),
    (pa.array([0, 2**62]), "03"),
    (pa.array([0.5, -1.0], pa.float32()), "04"),
    (pa.array([0.5, -1.0]), "05"),
    (pa.array([b"x", b""]), "06"),
    (pa.array(["x", ""]), "07"),
    (pa.array([datetime.date(2024, 1, 1), datetime.date(1969, 1, 1)]), "02"),
    (pa.array([Decimal("1.50"), Decimal("-2.00")]), "09"),
    (pa.array([datetime.time(1, 2, 3, 4)] * 2), "03"),
    (pa.array([datetime.time(1, 2, 3)] * 2, pa.time32("ms")), "02"),
    (pa.array([INSTANT] * 2, pa.timestamp("us", "UTC")), "03"),
    (pa.array([INSTANT] * 2, pa.timestamp("ms")), "03"),
]


@pytest.mark.parametrize(("values", "branch"), ORDERING, ids=[str(v.type) for v, _ in ORDERING])
def test_an_ordering_value_comes_back_from_its_wrapper(values: pa.Array, branch: str) -> None:
    content = log.encode_deletes(pa.chunked_array([KEYS]), pa.chunked_array([PARTITIONS]), [values])
    assert content[8 + 1 + 9 + 11] == 2 * int(branch)
    target = pa.int32() if values.type == pa.int8() else values.type
    rows = deletes(content, target)
    assert [r["ord_0"] for r in rows] == values.to_pylist()
    assert [r["commit_time_delete"] for r in rows] == [False, False]
    pair = log.encode_deletes(KEYS, PARTITIONS, [values, pa.array([None, 3], pa.int64())])
    rows = deletes(pair, target, pa.int64())
    assert [(r["ord_0"], r["ord_1"]) for r in rows] == list(zip(values.to_pylist(), [None, 3], strict=True))
    assert [r["commit_time_delete"] for r in rows] == [False, False]


def test_types_without_an_order_in_hudi_are_refused() -> None:
    with pytest.raises(Unsupported, match="a column of type list"):
        log.encode_deletes(KEYS, PARTITIONS, [pa.array([[1], [2]])])
    with pytest.raises(TableError, match=r"decimal128\(38, 0\) cannot be written"):
        log.encode_deletes(KEYS, PARTITIONS, [pa.array([Decimal(10**37)] * 2, pa.decimal128(38, 0))])


def delete_list(*ordering: bytes) -> bytes:
    """A version 3 content with one item per ordering value (branch and value), keys k0, k1, ..., partition p."""
    items = b"".join(b"\x02\x04k%d\x02\x02p" % i + value for i, value in enumerate(ordering))
    body = bytes([2 * len(ordering)]) + items + b"\0"
    return struct.pack(">ii", 3, len(body)) + body


COMPARED = [
    (b"\x00", pa.int64(), None),  # null
    (b"\x04\x00", pa.int64(), None),  # Integer 0 is the default, not a value
    (b"\x04\x0a", pa.int64(), 5),
    (b"\x04\x0a", pa.float64(), 5.0),
    (b"\x04\x0a", pa.string(), None),
    (b"\x06\x00", pa.int64(), 0),  # Long 0 is a value
    (b"\x06\x0a", pa.int32(), None),
    (b"\x08" + struct.pack("<f", 0.5), pa.float64(), 0.5),
    (b"\x10\x02", pa.date32(), datetime.date(1970, 1, 2)),
    (b"\x14\x02", pa.time64("us"), datetime.time(0, 0, 0, 1)),
    (b"\x16\xd0\x0f", pa.timestamp("us"), datetime.datetime(1970, 1, 1, 0, 0, 0, 1000)),
    (b"\x16\xd0\x0f", pa.timestamp("ms"), datetime.datetime(1970, 1, 1, 0, 0, 0, 1000)),
    (b"\x18\x02\x02\x06\x0a\x00", pa.int64(), 5),  # an ArrayWrapper of one value
    (b"\x18\x00", pa.int64(), None),  # an ArrayWrapper of nothing
    (b"\x04\x0a", pa.binary(3), None),
]


@pytest.mark.parametrize(("stored", "target", "value"), COMPARED)
def test_an_ordering_value_counts_when_java_could_compare_its_class(stored: bytes, target: Any, value: Any) -> None:
    (row,) = deletes(delete_list(stored), target)
    assert row["ord_0"] == value
    assert row["commit_time_delete"] is (value is None)


def test_blocks_that_mix_wrappers_are_read_row_by_row() -> None:
    rows = deletes(delete_list(b"\x04\x00", b"\x06\x0a", b"\x00", b"\x0e\x02x"), pa.int64())
    assert [(r["ord_0"], r["commit_time_delete"]) for r in rows] == [
        (None, True),
        (5, False),
        (None, True),
        (None, True),
    ]


def test_elements_of_several_ordering_fields_may_be_null_or_the_default() -> None:
    def array(*elements: bytes) -> bytes:
        return b"\x18\x02" + bytes([2 * len(elements)]) + b"".join(elements) + b"\x00"

    content = delete_list(
        array(b"\x06\x0a", b"\x00"),
        array(b"\x06\x0a", b"\x04\x00"),
        array(b"\x06\x0a", b"\x0e\x02x"),
        array(b"\x0e\x02x", b"\x0e\x02x"),
        array(b"\x06\x0a"),
        b"\x04\x00",
    )
    rows = deletes(content, pa.int64(), pa.string())
    assert [(r["ord_0"], r["ord_1"], r["commit_time_delete"]) for r in rows] == [
        (5, None, False),
        (5, None, False),
        (5, "x", False),
        (None, None, True),
        (None, None, True),
        (None, None, True),
    ]


@pytest.mark.parametrize("fields", [1, 2])
def test_large_delete_blocks_are_read_like_small_ones(fields: int) -> None:
    n = ONE_BLOCK_ITEMS_MIN + 3000
    keys = pa.array([f"key-{i * i}" for i in range(n)])
    ordering = [pa.array([i * 1000 for i in range(n)]), keys][:fields]
    content = log.encode_deletes(keys, pa.array(["p"] * n), ordering)
    rows = deletes(content, pa.int64(), pa.string()) if fields == 2 else deletes(content, pa.int64())
    assert [r["record_key"] for r in rows] == keys.to_pylist()
    assert [r["ord_0"] for r in rows] == ordering[0].to_pylist()
    with pytest.raises(FormatError):
        deletes(struct.pack(">ii", 3, len(content) - 9) + content[8:-1], pa.int64())


def test_a_list_in_several_blocks_is_read() -> None:
    item = b"\x02\x02a\x02\x02p\x06\x0a"
    body = b"\x02" + item + b"\x03" + b"\x12" + item * 2 + b"\0"
    rows = deletes(struct.pack(">ii", 3, len(body)) + body, pa.int64())
    assert [r["ord_0"] for r in rows] == [5, 5, 5]


def test_null_keys_and_partitions_come_back_as_null() -> None:
    body = b"\x02\x00\x00\x00\x00"
    assert deletes(struct.pack(">ii", 3, len(body)) + body) == [
        {"record_key": None, "partition_path": None, "commit_time_delete": True}
    ]


def test_every_truncation_of_a_delete_block_is_a_format_error() -> None:
    for ordering in (None, [pa.array([1, 2])], [pa.array([1, 2]), pa.array(["x", "y"])]):
        content = log.encode_deletes(KEYS, PARTITIONS, ordering)
        for end in range(len(content)):
            with pytest.raises(FormatError, match="f, block at byte 0"):
                deletes(content[:end], pa.int64())
        for end in range(8, len(content)):
            with pytest.raises(FormatError):
                deletes(struct.pack(">ii", 3, end - 8) + content[8:end], pa.int64())


def test_an_unknown_delete_version_and_trailing_bytes_are_a_format_error() -> None:
    with pytest.raises(FormatError, match="delete block content version 4"):
        deletes(struct.pack(">ii", 4, 0))
    with pytest.raises(FormatError, match="the list of delete records ends at byte 1 of 2"):
        deletes(struct.pack(">ii", 3, 2) + b"\0\0")


def test_a_decimal_ordering_value_that_the_column_cannot_hold_is_a_format_error() -> None:
    content = log.encode_deletes(KEYS, PARTITIONS, [pa.array([Decimal("1.50"), Decimal("2.00")])])
    with pytest.raises(FormatError, match="an ordering value in DecimalWrapper does not fit"):
        deletes(content, pa.decimal128(3, 0))


# ---------------------------------------------------------------- Kryo contents, as Hudi's own serialiser wrote them
EXPECTED: dict[str, list[list[Any]]] = json.loads((KRYO / "expected.json").read_text(encoding="utf-8"))
NUMBERS = {"NaN": float("nan"), "Infinity": float("inf")}


def kryo(name: str) -> tuple[bytes, int]:
    return (KRYO / f"{name}.bin").read_bytes(), 1 if name.startswith("keys") else 2


@pytest.mark.parametrize("name", EXPECTED)
def test_kryo_contents_hold_what_hudi_put_in(name: str) -> None:
    rows = read_deletes(*kryo(name))
    expected = [[k, p, NUMBERS.get(str(v[0]), v[0]) if v else None] for k, p, *v in EXPECTED[name]]
    assert repr([[k, p, v] for k, p, _, v in rows]) == repr(expected)


TYPED = [
    ("long", pa.int64()),
    ("int", pa.int32()),
    ("string", pa.string()),
    ("double", pa.float64()),
    ("float", pa.float32()),
]


@pytest.mark.parametrize(("name", "target"), [*TYPED, ("bool", pa.bool_()), ("short_byte", pa.int64())])
def test_old_delete_blocks_give_the_columns_of_new_ones(name: str, target: pa.DataType) -> None:
    data, version = kryo(name)
    rows = deletes(struct.pack(">ii", version, len(data)) + data, target)
    assert [r["record_key"] for r in rows] == [row[0] for row in EXPECTED[name]]
    values = [NUMBERS.get(str(row[2]), row[2]) for row in EXPECTED[name]]
    if name == "int":
        values[0] = None  # Integer 0 is the default
    assert repr([r["ord_0"] for r in rows]) == repr(values)
    assert [r["commit_time_delete"] for r in rows] == [v is None for v in values]


def test_old_blocks_of_keys_only_are_commit_time_deletes() -> None:
    data, _ = kryo("keys")
    rows = deletes(struct.pack(">ii", 1, len(data)) + data, pa.int64())
    assert [[r["record_key"], r["partition_path"]] for r in rows] == EXPECTED["keys"]
    assert all(r["commit_time_delete"] for r in rows)


@pytest.mark.parametrize(("name", "java"), [("decimal", "java.math.BigDecimal"), ("timestamp", "java.sql.Timestamp")])
def test_other_classes_of_old_ordering_values_are_refused_by_name(name: str, java: str) -> None:
    data, version = kryo(name)
    with pytest.raises(Unsupported, match=f"f, block at byte 0: .*class {java}"):
        deletes(struct.pack(">ii", version, len(data)) + data, pa.int64())


@pytest.mark.parametrize("name", EXPECTED)
def test_every_truncation_and_every_flipped_byte_of_kryo_gives_rows_or_a_format_error(name: str) -> None:
    data, version = kryo(name)
    for end in range(len(data)):
        with pytest.raises(FormatError):
            read_deletes(data[:end], version)
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1 << at % 8
        with contextlib.suppress(FormatError, Unsupported):
            read_deletes(bytes(changed), version)


def test_kryo_of_the_wrong_version_is_a_format_error() -> None:
    with pytest.raises(FormatError, match=r"expected class .*DeleteRecord;, found .*HoodieKey;"):
        read_deletes(kryo("keys")[0], 2)


def test_a_kryo_array_longer_than_its_bytes_is_a_format_error() -> None:
    data = kryo("keys_empty")[0]
    with pytest.raises(FormatError, match="an array of 126 elements in 45 bytes"):
        read_deletes(data[:-1] + b"\x7f", 1)


def test_delete_records_agree_with_fastavro() -> None:
    content = log.encode_deletes(KEYS, PARTITIONS, [pa.array(["x", "y"])])
    wrappers = [
        {"type": "record", "name": f"W{i}", "fields": [{"name": "value", "type": t}]}
        for i, t in enumerate(["boolean", "int", "long", "float", "double", "bytes", "string"])
    ]
    fields = {"recordKey": ["null", "string"], "partitionPath": ["null", "string"], "orderingVal": ["null", *wrappers]}
    item = {"type": "record", "name": "R", "fields": [{"name": n, "type": t} for n, t in fields.items()]}
    rows = fastavro.schemaless_reader(io.BytesIO(content[8:]), {"type": "array", "items": item})
    assert [(r["recordKey"], r["partitionPath"], r["orderingVal"]["value"]) for r in rows] == [
        ("TXN-002", "region=us", "x"),
        ("b", "", "y"),
    ]
