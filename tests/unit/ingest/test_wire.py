"""Frames of messages, all records of a batch at once."""

import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakesql.errors import JobError
from lakesql.ingest.model import RAW
from lakesql.ingest.wire import frames

GUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")


def found(values: list[bytes], wire: str = "confluent", headers: Any = None, part: str = "value") -> tuple[Any, Any]:
    """({row: (id, payload)}, {row: reason})."""
    array = pa.array([b"before", *values, b"behind"], pa.binary()).slice(1, len(values))
    heads = None if headers is None else pa.array(headers, RAW.field("_headers").type)
    out = frames(array, heads, wire, part)
    good = {}
    for one, rows in out.groups():
        for row, payload in zip(rows.tolist(), out.payloads(rows).to_pylist(), strict=True):
            assert out.data[out.start[row] : out.stop[row]].tobytes() == payload
            good[row] = (one, payload)
    return good, dict(zip(out.bad.tolist(), out.reasons, strict=True))


def test_confluent_frames_carry_a_number_or_a_guid_and_are_grouped_by_it() -> None:
    values = [b"\0\0\0\0\x07abc", b"\0\0\0\1\0", b"\0\0\0\0\x07", b"\1" + GUID.bytes + b"xy", b"\0\xff\xff\xff\xffz"]
    good, bad = found(values)
    assert good == {0: ("7", b"abc"), 1: ("256", b""), 2: ("7", b""), 3: (str(GUID), b"xy"), 4: ("4294967295", b"z")}
    assert bad == {}


def test_a_schema_id_in_the_header_leaves_the_whole_value_as_payload_and_the_last_header_counts() -> None:
    name = "__value_schema_id"
    headers = [
        [("other", b"x"), (name, b"\1" + GUID.bytes)],
        None,
        [(name, b"junk"), (name, b"\0\0\0\0\x05")],
        [(name, b"\1abc")],
        [(name, None)],
        [("__key_schema_id", b"\1" + GUID.bytes)],
    ]
    values = [b"\0\0\0\0\x07abc", b"\0\0\0\0\x07abc", b"", b"q", b"q", b"\0\0\0\0\x01k"]
    good, bad = found(values, headers=headers)
    assert good == {0: (str(GUID), values[0]), 1: ("7", b"abc"), 2: ("5", b""), 5: ("1", b"k")}
    assert set(bad) == {3, 4}
    assert "header __value_schema_id" in bad[3]
    assert found([b"k"], headers=[headers[5]], part="key")[0] == {0: (str(GUID), b"k")}


def test_linkedin_frames_carry_sixteen_bytes() -> None:
    md5 = bytes(range(16))
    good, bad = found([b"\0" + md5 + b"abc", b"\0" + md5, b"\0" + md5[:15], b"\1" + md5 + b"abc"], "linkedin")
    assert good == {0: (md5.hex(), b"abc"), 1: (md5.hex(), b"")}
    assert set(bad) == {2, 3}


def test_values_without_a_frame_are_payloads_as_they_are() -> None:
    assert found([b"abc", b""], "none") == ({0: ("", b"abc"), 1: ("", b"")}, {})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"", "an empty value"),
        (b"\0\0\0", "a value of 3 bytes"),
        (b'{"id": 1}', "first byte 7b; expected 00 and 4 bytes of id. Is the wire format confluent"),
        (b"\1" + bytes(15), "a value of 16 bytes"),
        (b"\2aaaaaaaaaaaaaaaaaaaaaa", "first byte 02"),
    ],
)
def test_what_has_no_frame_is_bad_and_the_others_are_not(value: bytes, text: str) -> None:
    good, bad = found([b"\0\0\0\0\x01a", value, b"\0\0\0\0\x01b"])
    assert good == {0: ("1", b"a"), 2: ("1", b"b")}
    assert text in bad[1]


def test_no_records_and_one_record_are_batches_too() -> None:
    assert found([]) == ({}, {})
    assert found([b"\0"]) == ({}, {0: "a value of 1 byte; expected 00 and 4 bytes of id and the record"})
    assert frames(pa.nulls(0, pa.binary()), None, "confluent").start.dtype == np.int64


def test_other_wire_formats_are_refused() -> None:
    with pytest.raises(JobError, match="use one of confluent, linkedin, none"):
        frames(pa.array([b"x"]), None, "protobuf")
