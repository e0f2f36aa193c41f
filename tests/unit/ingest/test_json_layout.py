"""Documents that look alike, decoded side by side: nothing comes out otherwise than the query over each document has it."""

import json
import random
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from lakesql.ingest import decode_json, json_layout
from lakesql.ingest.decoded import Part
from lakesql.ingest.json_layout import learned
from lakesql.ingest.model import Format

COLUMNS = "id BIGINT, name VARCHAR, x DOUBLE, f FLOAT, ok BOOLEAN, n TINYINT, u UBIGINT, s STRUCT(a INTEGER, b VARCHAR)"


def values(columns: str, **more: str) -> decode_json.JsonValues:
    return decode_json.JsonValues(
        Format("json", options={"lakesql.json.columns": columns, **more}), decode_json.Shared()
    )


def by_query(one: decode_json.JsonValues, documents: list[bytes]) -> Part:
    one.decode(pa.array(documents[:1], pa.binary()), None, "t")
    query = one._queries["t"]
    one._queries["t"] = replace(query, alike=None)
    part = one.decode(pa.array(documents, pa.binary()), None, "t")
    one._queries["t"] = query
    return part


def same(documents: list[bytes], columns: str = COLUMNS, **more: str) -> Part:
    """The part of the decoder, which must be that of the query alone."""
    one = values(columns, **more)
    wanted = by_query(one, documents)
    for _ in range(2):  # the second time with layouts that are known
        found = one.decode(pa.array(documents, pa.binary()), None, "t")
        assert found.columns.schema == wanted.columns.schema
        assert found.columns.to_pylist() == wanted.columns.to_pylist()
        assert found.rows.tolist() == wanted.rows.tolist()
        assert sorted(zip(found.bad.rows, found.bad.stages, found.bad.errors, strict=True)) == sorted(
            zip(wanted.bad.rows, wanted.bad.stages, wanted.bad.errors, strict=True)
        )
    one.close()
    return found


def taken(documents: list[bytes], columns: str = COLUMNS) -> list[int]:
    """The documents that need no query."""
    one = values(columns)
    one.decode(pa.array(documents, pa.binary()), None, "t")
    alike = one._queries["t"].alike
    assert alike is not None
    found = alike.decode(pa.array([d.decode() for d in documents]))
    one.close()
    return [] if found is None else found[1].tolist()


NUMBERS = [
    "0", "7", "-7", "-0", "00", "01", "-01", "+1", "1.5", "-1.5", "1.", ".5", "-.5", "-", "1.2.3", "1-2", "1e3", "1E-2", "1e400",
    "127", "128", "-128", "-129", "2147483647", "2147483648", "999999999999999999", "9223372036854775807", "9223372036854775808",
    "18446744073709551615", "18446744073709551616", "123456789012345678901234567890", "0.1234567890123456789012345678",
    "0.12345678901234567890123456789012345", "3.4028236e38", "340282350000000000000000000000000000001", "0.0", "-0.0",
    "0x10", "1_0", "1 ", " 1", "NaN", "nan", "Infinity", "inf", "true", "false", "null", "nul", "True", '"5"', '""', "[]", "[1]", "{}",
    '{"a":1}', '{"a":1,"b":"y"}', '{"b":null,"a":2}', '"x\\"y"', '"é€😀"', '"tab\\t"', '"\\u0041"', '"a,b:{}"', "",
]  # fmt: skip


def test_each_odd_value_in_each_column_is_what_the_query_has() -> None:
    usual = {
        "id": "1",
        "name": '"n"',
        "x": "2.5",
        "f": "0.25",
        "ok": "true",
        "n": "3",
        "u": "4",
        "s": '{"a":5,"b":"z"}',
    }
    documents = []
    for key in [*usual, "other"]:
        for value in NUMBERS:
            row = {**usual, key: value}
            documents.append(("{" + ",".join(f'"{k}":{v}' for k, v in row.items()) + "}").encode())
    part = same(documents)
    assert 100 < len(part.rows) < len(documents) - 100


@pytest.mark.parametrize("seed", range(6))
def test_random_documents_of_several_shapes_are_what_the_query_has(seed: int) -> None:
    chance = random.Random(seed)
    keys = ["id", "name", "x", "f", "ok", "n", "u", "s", "other", "ID"]

    def document() -> bytes:
        chosen = keys[:]
        if chance.random() < 0.2:
            chance.shuffle(chosen)
        if chance.random() < 0.3:
            chosen = chosen[: chance.randrange(1, len(chosen))]
        if chance.random() < 0.05:
            chosen.append("id")
        colon, comma = chance.choice([(":", ","), (": ", ", "), (" :", " ,"), (":", ",\n")])
        usual = {
            "id": str(chance.randrange(10**9)), "name": f'"user {chance.randrange(99)}"', "x": str(chance.random() * 100),
            "f": str(chance.randrange(100) / 4), "ok": chance.choice(["true", "false"]), "n": str(chance.randrange(-9, 99)),
            "u": str(chance.randrange(10**6)), "s": f'{{"a"{colon}{chance.randrange(9)}{comma}"b"{colon}"q"}}',
            "other": chance.choice(['"o"', "1", "null"]), "ID": "9",
        }  # fmt: skip
        pairs = [(k, chance.choice(NUMBERS) if chance.random() < 0.02 else usual[k]) for k in chosen]
        text = "{" + comma.join(f'"{k}"{colon}{v}' for k, v in pairs) + "}"
        if chance.random() < 0.02:
            at = chance.randrange(len(text))
            text = text[:at] + chance.choice(['"', "}", "{", "x", "", ","]) + text[at + 1 :]
        return text.encode()

    part = same([document() for _ in range(400)])
    assert 100 < len(part.rows) < 400


@pytest.mark.parametrize("settings", [{}, {"lakesql.json.lenient": "true"}])
def test_one_byte_changed_anywhere_changes_no_other_document(settings: dict[str, str]) -> None:
    text = b'{"id": 12, "name": "ab", "x": 1.5, "ok": true, "s": {"a": 1, "b": "c"}, "z": -3}'
    documents = []
    for at in range(len(text)):
        for new in (b'"', b"\\", b"{", b"}", b",", b":", b" ", b"5", b"-", b".", b"e", b"\n", b"\x00", b""):
            documents += [text, text[:at] + new + text[at + 1 :]]
    part = same(documents, **settings)
    assert set(range(0, len(documents), 2)) <= set(part.rows.tolist())


def test_documents_that_run_over_into_the_next_are_not_taken() -> None:
    documents = [
        b'{"id":1,"name":"a"}',
        b'{"id":1,"name":"a',
        b'"}',
        b'{"id":1,"name":"a"}{"id":2,"name":"b"}',
        b"",
        b"{",
    ]
    assert same(documents).rows.tolist() == [0]


def test_documents_of_a_few_shapes_need_no_query() -> None:
    rows = [
        {
            "id": i,
            "name": None if i % 3 else f"é{i}",
            "x": i / 4,
            "ok": i % 2 == 0,
            "s": {"a": i, "b": "q"} if i % 5 else None,
        }
        for i in range(1000)
    ]
    documents = [json.dumps(row, ensure_ascii=False).encode() for row in rows]
    assert taken(documents) == list(range(1000))
    columns = same(documents).columns
    assert columns.select(["id", "name", "x", "ok"]).to_pylist() == [
        {k: row[k] for k in ("id", "name", "x", "ok")} for row in rows
    ]
    assert columns["s"].to_pylist() == [row["s"] for row in rows]


def test_pieces_of_a_batch_come_together_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_layout, "PIECE_BYTES", 300)
    monkeypatch.setattr(json_layout, "PIECE_ROWS", 5)
    documents = [
        json.dumps(
            {"id": i, "name": f"n{i}"} if i % 2 else {"name": f"n\\{i}" if i % 7 == 0 else f"n{i}", "id": i}
        ).encode()
        for i in range(200)
    ]
    assert same(documents).columns["id"].to_pylist() == list(range(200))


def test_what_never_looks_alike_is_not_tried_for_ever() -> None:
    one = values("id BIGINT")
    for batch in range(5):
        one.decode(pa.array([b'{"id":1,"l":[1,2]}'] * 10, pa.binary()), None, "t")
        alike = one._queries["t"].alike
        assert alike is not None
        assert alike.tried == (batch < 2)
    one.close()


def test_columns_that_are_not_plain_are_left_to_the_query() -> None:
    one = values("id BIGINT, t TIMESTAMP")
    one.decode(pa.array([b'{"id":1,"t":"2026-01-01 00:00:00"}'], pa.binary()), None, "t")
    assert one._queries["t"].alike is None
    one.close()


def test_a_slice_of_a_column_is_decoded_as_itself() -> None:
    documents = pa.array([json.dumps({"id": i}).encode() for i in range(50)], pa.binary())
    one = values("id BIGINT")
    part = one.decode(documents.slice(7, 20), None, "t")
    assert part.columns["id"].to_pylist() == list(range(7, 27))
    assert np.array_equal(part.rows, np.arange(20))
    one.close()


@pytest.mark.parametrize(
    "document",
    [
        b"[]",
        b"{}",
        b'{"a":[1]}',
        b'{"a":1,"a":2}',
        b'{"a":1}x',
        b'{"a":1',
        b'{"a"}',
        b'{"a":}',
        b'{"a":"x\\n"}',
        b'{"a":{}}',
        b"{a:1}",
    ],
)
def test_a_document_without_a_layout_gives_none(document: bytes) -> None:
    assert learned(document) is None


def test_a_layout_has_the_paths_of_its_values() -> None:
    layout = learned(b'{"a": 1, "b": {"c": "x", "d": {"e": null}}, "f": "y"}')
    assert layout is not None
    assert [(slot.path, slot.text) for slot in layout.slots] == [
        (("a",), False), (("b", "c"), True), (("b", "d", "e"), False), (("f",), True)
    ]  # fmt: skip
    assert layout.objects == {("b",), ("b", "d")}
    assert layout.runs[0] == b'{"a": '
    assert layout.runs[-1] == b'"}'
