"""Avro messages: readers and writers, evolution within a batch, bad records among good ones."""

import datetime
import json
from collections.abc import Iterator
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakesql.errors import IngestError, JobError
from lakesql.ingest.avro_resolve import Mismatch, resolution
from lakesql.ingest.decode import decoder_factory
from lakesql.ingest.decode_avro import decode_group
from lakesql.ingest.model import Decoded, Format
from lakesql.ingest.registry import Registry
from tests.kafka.registry import TestRegistry
from tests.unit.ingest.messages import avro, bad, batch, checked, rows


def record(*fields: Any, name: str = "r", **more: Any) -> Any:
    made = [f if isinstance(f, dict) else {"name": f[0], "type": f[1], **(f[2] if len(f) > 2 else {})} for f in fields]
    return {"type": "record", "name": name, "fields": made, **more}


def read(writer: Any, reader: Any, *values: Any) -> list[Any]:
    """Rows of the reader; None for a record that it cannot hold."""
    records = [avro(writer, v) for v in values]
    data = np.frombuffer(b"".join(records), np.uint8)
    stop = np.cumsum([len(r) for r in records])
    part = decode_group(resolution(writer, reader), data, stop - [len(r) for r in records], stop).checked()
    part.columns.validate(full=True)
    out: list[Any] = [None] * len(values)
    for row, value in zip(part.rows.tolist(), part.columns.to_pylist(), strict=True):
        out[row] = value
    return out


def one(w: Any, r: Any, *values: Any) -> list[Any]:
    return [row and row["a"] for row in read(record(("a", w)), record(("a", r)), *({"a": v} for v in values))]


# ---------------------------------------------------------------- resolution
def test_fields_are_matched_by_name_or_alias_reordered_dropped_and_filled_with_defaults() -> None:
    writer = record(("a", "int"), ("old", "string"), ("gone", "bytes"))
    reader = record(
        ("new", "string", {"aliases": ["older", "old"]}),
        ("a", "long"),
        ("d", ["null", "string"], {"default": None}),
        ("b", "bytes", {"default": "\u00ff\u0001"}),
        ("t", {"type": "long", "logicalType": "timestamp-millis"}, {"default": 1000}),
        ("m", {"type": "map", "values": "int"}, {"default": {"x": 1}}),
        ("n", {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, {"default": "\u0001\u0000"}),
        ("u", ["int", "string"], {"default": "x"}),
    )
    row = read(writer, reader, {"a": 7, "old": "x", "gone": b""})[0]
    time = datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC)
    filled = {"d": None, "b": b"\xff\x01", "t": time, "m": [("x", 1)], "n": Decimal("2.56")}
    assert row == {"new": "x", "a": 7, **filled, "u": {"member0": None, "member1": "x"}}


def test_numbers_widen_and_text_and_bytes_are_one() -> None:
    assert one("int", "long", -5) == [-5]
    assert one("long", "double", 2**53 + 1) == [float(2**53)]
    assert one("int", "float", 16777217) == [16777216.0]
    assert one("float", "double", 1.5) == [1.5]
    assert one("string", "bytes", "ä") == ["ä".encode()]
    assert one("bytes", "string", b"x", "ü".encode(), b"\xff") == ["x", "ü", None]
    assert one("int", {"type": "long", "logicalType": "timestamp-micros"}, 1)[0].microsecond == 1


def test_what_would_lose_something_is_a_mismatch() -> None:
    for w, r in [
        ("long", "int"),
        ("double", "float"),
        ("string", "int"),
        ("int", {"type": "array", "items": "int"}),
        ({"type": "fixed", "name": "f", "size": 2}, {"type": "fixed", "name": "f", "size": 3}),
        ({"type": "fixed", "name": "f", "size": 2}, {"type": "fixed", "name": "g", "size": 2}),
        ({"type": "int", "logicalType": "date"}, {"type": "long", "logicalType": "timestamp-millis"}),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2},
            {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 1},
        ),
        (["null", "long"], ["null", "int"]),
    ]:
        if isinstance(w, list):
            assert one(w, r, None, 5) == [None, None]
            continue
        with pytest.raises(Mismatch, match="a: written as"):
            one(w, r)


def test_a_field_without_default_that_the_writer_lacks_is_a_mismatch() -> None:
    inner = record(("x", "int"), name="i"), record(("x", "int"), ("b", ["null", "int"]), name="i")
    with pytest.raises(Mismatch, match=r"s\.b: the writer has no such field"):
        read(record(("s", inner[0])), record(("s", inner[1])))


def test_times_keep_their_meaning_when_the_unit_changes() -> None:
    millis, micros = ({"type": "long", "logicalType": f"timestamp-{u}"} for u in ("millis", "micros"))
    time = datetime.datetime(2024, 1, 2, 3, 4, 5, 6000, datetime.UTC)
    assert one(millis, micros, time) == [time]
    assert one(micros, millis, time + datetime.timedelta(microseconds=7)) == [time]
    assert one(millis, "long", time) == [int(time.timestamp() * 1000)]
    assert one("long", millis, int(time.timestamp() * 1000)) == [time]


def test_symbols_that_the_reader_lacks_take_its_default_or_are_bad_values() -> None:
    wide = {"type": "enum", "name": "e", "symbols": ["A", "B", "C"]}
    narrow = {"type": "enum", "name": "e", "symbols": ["C", "A"]}
    assert one(wide, narrow, "A", "B", "C") == ["A", None, "C"]
    assert one(wide, {**narrow, "default": "C"}, "A", "B", "C") == ["A", "C", "C"]
    lists = [{"type": "array", "items": e} for e in (wide, narrow)]
    assert one(*lists, ["A", "C"], ["A", "B"], [], ["B"]) == [["A", "C"], None, [], None]


def test_unions_are_resolved_branch_by_branch() -> None:
    assert one("int", ["null", "long"], 5) == [5]
    assert one(["null", "int"], ["long", "null"], None, 5) == [None, 5]
    assert read(record(("a", ["null", "int"])), record(("a", "int")), {"a": None}, {"a": 5}) == [None, {"a": 5}]
    assert one(["int", "string"], ["null", "string", "long"], 5, "x") == [
        {"member0": None, "member1": 5},
        {"member0": "x", "member1": None},
    ]
    assert one(["int", "string"], "string", "x") == ["x"]
    assert read(record(("a", ["int", "string"])), record(("a", "long")), {"a": 5}, {"a": "x"}) == [{"a": 5}, None]
    assert one(["int", "long"], "double", 5, 2**40) == [5.0, float(2**40)]
    assert one(["int", "string"], ["string", "int"], 5, "x") == [
        {"member0": None, "member1": 5},
        {"member0": "x", "member1": None},
    ]


def test_nested_records_lists_and_maps_resolve_inside_and_keep_their_nulls() -> None:
    w = record(("x", "int"), ("e", {"type": "enum", "name": "e", "symbols": ["A", "B"]}), name="i")
    r = record(
        ("y", "int", {"default": 9}),
        ("x", "double"),
        ("e", {"type": "enum", "name": "e", "symbols": ["A"], "default": "A"}),
        name="i",
    )
    optional = [["null", {"type": "array", "items": ["null", t]}] for t in (w, r)]
    value = [{"x": 1, "e": "A"}, None, {"x": 2, "e": "B"}]
    assert one(*optional, value, None, []) == [
        [{"y": 9, "x": 1.0, "e": "A"}, None, {"y": 9, "x": 2.0, "e": "A"}],
        None,
        [],
    ]
    maps = [{"type": "map", "values": t} for t in ("int", ["null", "long"])]
    assert one(*maps, {"k": 1, "l": 2}) == [[("k", 1), ("l", 2)]]


def test_a_null_parent_of_a_value_that_the_reader_lacks_is_no_bad_value() -> None:
    e = [{"type": "enum", "name": "e", "symbols": s} for s in (["Z", "A"], ["A"])]
    inner = [record(("e", t), name="i") for t in e]
    w, r = (record(("a", ["null", i])) for i in inner)
    assert read(w, r, {"a": None}, {"a": {"e": "A"}}) == [{"a": None}, {"a": {"e": "A"}}]


def test_names_without_namespace_and_aliases_of_types_are_known() -> None:
    w = {"type": "fixed", "name": "a.F", "size": 2}
    assert one(w, {"type": "fixed", "name": "b.F", "size": 2}, b"xy") == [b"xy"]
    assert one(w, {"type": "fixed", "name": "G", "aliases": ["a.F"], "size": 2}, b"xy") == [b"xy"]
    again = record(("p", {"type": "fixed", "name": "F", "size": 1}), ("q", "F"), namespace="n")
    assert read(again, again, {"p": b"x", "q": b"y"}) == [{"p": b"x", "q": b"y"}]


# ---------------------------------------------------------------- messages
V1 = record(("id", "long"), ("name", "string"))
V2 = record(("id", "long"), ("name", "string"), ("city", ["null", "string"], {"default": None}))


@pytest.fixture
def server() -> Iterator[TestRegistry]:
    with TestRegistry() as registry:
        yield registry


def quick(server: TestRegistry, protocol: str = "confluent") -> Registry:
    """A client whose time passes by asking for it."""
    ticks = count(0.0, 10.0)
    return Registry(server.url, protocol, {}, sleep=lambda _: None, clock=lambda: next(ticks))


def decoded(server: TestRegistry, *values: Any, topics: Any = None, **options: str) -> Decoded:
    named = {k.replace("__", "."): v for k, v in options.items()}
    given = batch(values, topics=topics)
    decoder = decoder_factory(Format("avro", "confluent", server.url, named), registry=quick(server))()
    return checked(decoder.decode(given), given)


def test_records_of_several_writers_come_out_in_the_latest_schema_in_their_order(server: TestRegistry) -> None:
    one, two = server.register("t", V1), server.register("t", V2)
    a, b = {"id": 1, "name": "a"}, {"id": 2, "name": "b", "city": "Rome"}
    found = decoded(server, avro(V1, a, one), avro(V2, b, two), avro(V1, a, one))
    assert rows(found.rows) == [{**a, "city": None}, b, {**a, "city": None}]
    assert found.rows.schema.field("city").nullable


def test_a_fixed_schema_is_the_reader_and_without_a_frame_the_writer_too(server: TestRegistry, tmp_path: Path) -> None:
    number = server.register("t", V2)
    file = tmp_path / "v1.avsc"
    file.write_text(json.dumps(V1))
    value = {"id": 1, "name": "a", "city": "x"}
    found = decoded(server, avro(V2, value, number), gobblin__source__kafka__fixedSchema__t=str(file))
    assert rows(found.rows) == [{"id": 1, "name": "a"}]
    form = Format("avro", "none", None, {"gobblin.source.kafka.fixedSchema.t": file.read_text()})
    given = batch([avro(V1, {"id": 1, "name": "a"}), b"\x02"])
    bare = checked(decoder_factory(form)().decode(given), given)
    assert rows(bare.rows) == [{"id": 1, "name": "a"}]
    assert bad(bare)[1][0] == "decode"
    with pytest.raises(JobError, match="wire format none needs the schema"):
        decoder_factory(Format("avro", "none"))().decode(given)


def test_without_a_subject_the_newest_writer_is_the_reader(server: TestRegistry) -> None:
    one, two = server.register("other", V1), server.register("other", V2)
    found = decoded(server, avro(V2, {"id": 1, "name": "a", "city": "x"}, two), avro(V1, {"id": 2, "name": "b"}, one))
    assert rows(found.rows) == [{"id": 1, "name": "a", "city": "x"}, {"id": 2, "name": "b", "city": None}]


def test_unknown_ids_frames_and_torn_records_are_bad_and_the_others_are_rows(server: TestRegistry) -> None:
    number = server.register("t", V1)
    good = avro(V1, {"id": 1, "name": "a"}, number)
    utf8 = avro(V1, {"id": 1, "name": "aa"}, number).replace(b"aa", b"\xff\xff")
    found = decoded(server, good, good[:-1], good + b"x", utf8, avro(V1, {"id": 1, "name": "a"}, 99), b"{}", None, good)
    assert len(rows(found.rows)) == 2
    assert found.deletes.num_rows == 1
    assert {offset: stage for offset, (stage, _) in bad(found).items()} == {
        1: "decode",
        2: "decode",
        3: "decode",
        4: "schema",
        5: "frame",
    }
    assert "UTF-8" in bad(found)[3][1]
    assert found.bad.column("schema_id").to_pylist() == ["1", "1", "1", "99", None]


def test_a_writer_that_does_not_fit_the_reader_is_bad_at_stage_schema(server: TestRegistry) -> None:
    strange = record(("id", "string"))
    one, two = server.register("t", strange), server.register("t", V1)
    found = decoded(server, avro(strange, {"id": "x"}, one), avro(V1, {"id": 1, "name": "a"}, two))
    assert rows(found.rows) == [{"id": 1, "name": "a"}]
    assert bad(found)[0] == (
        "schema",
        "the writer's schema does not fit the reader's: id: written as string, to be read as long",
    )


def test_a_recursive_schema_is_refused_as_reader_and_bad_as_writer(server: TestRegistry) -> None:
    tree = record(("id", "long"), ("next", ["null", "r"], {"default": None}))
    number = server.register("t", tree)
    with pytest.raises(IngestError, match="contains itself"):
        decoded(server, avro(tree, {"id": 1, "next": None}, number))
    server.register("t", record(("id", "long")))
    found = decoded(server, avro(tree, {"id": 1, "next": None}, number))
    assert "contains itself" in bad(found)[0][1]


def test_an_outage_of_the_registry_ends_decoding_and_is_no_bad_record(server: TestRegistry) -> None:
    number = server.register("t", V1)
    server.fail = 503
    with pytest.raises(IngestError, match="HTTP 503"):
        decoded(server, avro(V1, {"id": 1, "name": "a"}, number))


def test_topics_have_their_own_readers_and_share_one_table(server: TestRegistry) -> None:
    one, two = server.register("a", V1), server.register("b", V2)
    values = [avro(V2, {"id": 1, "name": "x", "city": "y"}, two), avro(V1, {"id": 2, "name": "z"}, one)]
    found = decoded(server, *values, topics=["b", "a"])
    assert rows(found.rows) == [{"id": 1, "name": "x", "city": "y"}, {"id": 2, "name": "z", "city": None}]


def test_the_reader_stays_for_the_run_and_each_schema_is_asked_for_once(server: TestRegistry) -> None:
    number = server.register("t", V1)
    make = decoder_factory(Format("avro", "confluent", server.url), registry=quick(server))
    value = avro(V1, {"id": 1, "name": "a"}, number)
    first = make().decode(batch([value]))
    server.register("t", V2)
    assert make().decode(batch([value])).rows.schema == first.rows.schema
    assert server.requests == ["/schemas/ids/1", "/subjects/t-value/versions/latest"]


def test_linkedin_frames_are_decoded(server: TestRegistry) -> None:
    one = server.register("t", V1)
    server.register("t", V2)
    value = b"\0" + bytes.fromhex(server.md5(one)) + avro(V1, {"id": 1, "name": "a"})
    given = batch([value, value[:9]])
    make = decoder_factory(Format("avro", "linkedin", server.url), registry=quick(server, "linkedin"))
    found = checked(make().decode(given), given)
    assert rows(found.rows) == [{"id": 1, "name": "a", "city": None}]
    assert bad(found)[1][0] == "frame"


def test_plain_values_and_empty_records_are_rows_too(server: TestRegistry) -> None:
    text = server.register("t", '"string"')
    assert rows(decoded(server, b"\0\0\0\0" + bytes([text]) + b"\x02x").rows) == [{"value": "x"}]
    empty = server.register("e", record())
    found = decoded(server, b"\0\0\0\0" + bytes([empty]), b"\0\0\0\0" + bytes([empty]) + b"!", topics=["e", "e"])
    assert found.rows.num_rows == 1
    assert bad(found)[1][0] == "decode"


def test_no_registry_is_a_fault_of_the_job() -> None:
    with pytest.raises(JobError, match="needs kafka\\.schema\\.registry\\.url"):
        decoder_factory(Format("avro", "confluent"))


def test_columns_called_like_kafkas_are_refused(server: TestRegistry) -> None:
    schema = record(("_offset", "long"))
    number = server.register("t", schema)
    with pytest.raises(IngestError, match="'_offset'"):
        decoded(server, avro(schema, {"_offset": 1}, number))


def test_an_empty_batch_is_three_empty_tables(server: TestRegistry) -> None:
    found = decoded(server)
    assert [t.num_rows for t in (found.rows, found.deletes, found.bad)] == [0, 0, 0]
    assert isinstance(found.rows, pa.Table)
