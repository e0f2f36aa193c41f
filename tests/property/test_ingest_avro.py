"""Avro messages against fastavro: random schemas and evolutions of them, random damage, one record at a time there and
all at once here. Never a wrong row for a good record, never another exception than ours."""

import contextlib
import io
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
from hypothesis import assume, given
from hypothesis import strategies as st

from lakesql.errors import FormatError, Unsupported
from lakesql.ingest.avro_resolve import Mismatch, resolution
from lakesql.ingest.decode_avro import decode_group
from lakesql.ingest.decoded import Part
from tests.property.test_codecs import SCHEMAS, TABLES, comparable, data, plain, quick, written

PROMOTED = {
    "int": ["long", "double"],
    "long": ["double"],
    "float": ["double"],
    "string": ["bytes"],
    "bytes": ["string"],
}
DEFAULTS: list[tuple[Any, Any]] = [
    ("int", 7),
    ("long", -(2**40)),
    ("double", 1.5),
    ("string", "äb"),
    ("boolean", True),
    (["null", "string"], None),
    (["string", "null"], "x"),
    ({"type": "array", "items": "int"}, [1, -2]),
    ({"type": "map", "values": "string"}, {"k": "v"}),
    ({"type": "enum", "name": "added", "symbols": ["X", "Y"]}, "Y"),
    ({"type": "record", "name": "addedr", "fields": [{"name": "q", "type": "int"}]}, {"q": 3}),
]


class Evolution:
    """Draws a reader's schema for a writer's."""

    def __init__(self, draw: Any) -> None:
        self.draw, self.number = draw, 0

    def of(self, schema: Any) -> Any:
        if isinstance(schema, list):
            out = [self.of(b) for b in schema]
            kinds = {str(b) for b in out}
            return out if len(kinds) == len(out) and not any(isinstance(b, list) for b in out) else schema
        kind = schema if isinstance(schema, str) else schema["type"]
        if isinstance(schema, str):
            choice = self.draw(st.sampled_from(["same", "same", "promoted", "optional"]))
            if choice == "promoted" and kind in PROMOTED:
                return self.draw(st.sampled_from(PROMOTED[kind]))
            return ["null", schema] if choice == "optional" and kind != "null" else schema
        if kind == "record":
            return self.record(schema)
        if kind in ("array", "map"):
            key = "items" if kind == "array" else "values"
            return {**schema, key: self.of(schema[key])}
        if kind == "enum" and self.draw(st.booleans()):
            symbols = self.draw(st.permutations(schema["symbols"]))[: self.draw(st.integers(1, 3))]
            default = {"default": symbols[0]} if self.draw(st.booleans()) else {}
            return {**schema, "symbols": symbols, **default}
        return schema

    def record(self, schema: Any) -> Any:
        fields = []
        for field in self.draw(st.permutations(schema["fields"])):
            choice = self.draw(st.sampled_from(["keep", "keep", "keep", "drop", "rename"]))
            if choice == "drop" and len(schema["fields"]) > 1:
                continue
            new = {"name": field["name"], "type": self.of(field["type"])}
            if choice == "rename":
                new |= {"name": "r" + field["name"], "aliases": [field["name"]]}
            fields.append(new)
        if self.draw(st.booleans()):
            self.number += 1
            kind, default = self.draw(st.sampled_from(DEFAULTS))
            if isinstance(kind, dict) and "name" in kind:
                kind = {**kind, "name": f"{kind['name']}{self.number}"}
            fields.insert(
                self.draw(st.integers(0, len(fields))), {"name": f"new{self.number}", "type": kind, "default": default}
            )
        return {**schema, "fields": fields}


def ambiguous(schema: Any) -> bool:
    """A union of string and bytes: fastavro takes the first branch that a value may be widened to, we and Java the one
    of the same type."""
    if isinstance(schema, list):
        return ("string" in schema and "bytes" in schema) or any(ambiguous(b) for b in schema)
    if not isinstance(schema, dict):
        return False
    return any(ambiguous(schema.get(k)) for k in ("items", "values")) or any(
        ambiguous(f["type"]) for f in schema.get("fields", ())
    )


def spans(records: list[bytes], gap: bytes) -> tuple[Any, Any, Any]:
    joined = np.frombuffer(b"".join(gap + r for r in records), np.uint8)
    sizes = np.array([len(r) for r in records], np.int64)
    stop = np.cumsum(sizes + len(gap))
    return joined, stop - sizes, stop


def decoded(writer: Any, reader: Any, records: list[bytes], gap: bytes = b"\0\0\0\0\x07") -> Part:
    part = decode_group(resolution(writer, reader), *spans(records, gap)).checked()
    part.columns.validate(full=True)
    return part


def expected(writer: Any, reader: Any, record: bytes) -> Any:
    """('row', value) or ('bad', why), as fastavro reads the whole record; an enum, boolean or number that Avro does not
    allow but fastavro takes is not drawn here."""
    stream = io.BytesIO(record)
    try:
        value = fastavro.schemaless_reader(stream, writer, reader)
    except Exception as error:
        return "bad", repr(error)
    return ("bad", "bytes left over") if stream.read(1) else ("row", comparable(value))


@quick
@given(TABLES, st.data())
def test_rows_in_the_readers_schema_equal_those_of_fastavro_for_any_evolution(drawn: Any, choose: Any) -> None:
    writer, rows = drawn
    assume(not ambiguous(writer))
    reader = Evolution(choose.draw).of(writer)
    cut = lambda: choose.draw(st.tuples(st.integers(1, 3), st.booleans()))  # noqa: E731
    records = [written(writer, row, cut) for row in rows]
    wanted = [expected(writer, reader, r) for r in records]
    try:
        part = decoded(writer, reader, records)
    except Mismatch:
        assert all(kind == "bad" for kind, _ in wanted)
        return
    assert part.rows.tolist() == [i for i, (kind, _) in enumerate(wanted) if kind == "row"]
    if part.columns.num_columns:
        found = [comparable(plain(reader, row)) for row in part.columns.to_pylist()]
        assert found == [value for kind, value in wanted if kind == "row"]


@quick
@given(TABLES, st.data())
def test_damaged_records_are_found_one_by_one_and_cost_no_other_record(drawn: Any, choose: Any) -> None:
    schema, rows = drawn
    records = [written(schema, row, lambda: (2, False)) for row in rows]
    damaged = choose.draw(st.sets(st.integers(0, max(len(rows) - 1, 0)), max_size=4)) if rows else set()
    for i in damaged:
        record = bytearray(records[i])
        how = choose.draw(st.sampled_from(["cut", "longer", "byte"]))
        if how == "cut":
            record = record[: choose.draw(st.integers(0, len(record)))]
        elif how == "longer":
            record += choose.draw(st.binary(min_size=1, max_size=8))
        elif record:
            record[choose.draw(st.integers(0, len(record) - 1))] = choose.draw(st.integers(0, 255))
        records[i] = bytes(record)
    part = decoded(schema, schema, records)
    assert set(range(len(rows))) - damaged <= set(part.rows.tolist())
    found = dict(zip(part.rows.tolist(), part.columns.to_pylist(), strict=True))
    for i, row in enumerate(rows):
        if i not in damaged:
            assert comparable(plain(schema, found[i])) == expected(schema, schema, records[i])[1], row
        else:  # alone it is the same
            alone = decoded(schema, schema, [records[i]])
            assert (i in found) == bool(len(alone.rows))
            if i in found:
                assert comparable(plain(schema, found[i])) == comparable(plain(schema, alone.columns.to_pylist()[0]))


@quick
@given(SCHEMAS, st.lists(st.binary(max_size=60), max_size=30), st.data())
def test_random_bytes_give_rows_or_bad_records_and_no_exception(schema: Any, records: list[bytes], choose: Any) -> None:
    reader = Evolution(choose.draw).of(schema)
    with contextlib.suppress(Mismatch):
        decoded(schema, reader, records)


@quick
@given(SCHEMAS, SCHEMAS, st.data())
def test_any_two_schemas_resolve_or_are_refused(writer: Any, reader: Any, choose: Any) -> None:
    rows = choose.draw(st.lists(data(writer), max_size=5))
    records = [written(writer, row, lambda: (9, False)) for row in rows]
    try:
        part = decoded(writer, reader, records)
    except (FormatError, Unsupported):
        return
    assert part.columns.schema.equals(resolution(reader, reader).schema)
    assert isinstance(part.columns, pa.Table)
