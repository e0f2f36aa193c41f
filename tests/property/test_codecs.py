"""Round trips of the byte codecs on random schemas and data, with fastavro as the second opinion.

Batches are small and shapes are odd on purpose: required and nullable fields, unions in both orders, nesting to three
levels, arrays cut into several blocks with and without byte sizes.
"""

import contextlib
import datetime
import io
import math
import struct
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakesql.errors import FormatError
from lakesql.format import avro, log
from lakesql.format.bloom import from_text, new_filter

UTC = datetime.UTC
quick = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))

# ---------------------------------------------------------------- random schemas
DECIMAL = {"logicalType": "decimal", "precision": 12, "scale": 3}
LEAVES = [
    *("boolean", "int", "long", "float", "double", "string", "bytes"),
    *({"type": "int", "logicalType": t} for t in ("date", "time-millis")),
    *({"type": "long", "logicalType": t} for t in ("time-micros", "timestamp-millis", "timestamp-micros")),
    *({"type": "long", "logicalType": t} for t in ("local-timestamp-millis", "local-timestamp-micros")),
    {"type": "bytes", **DECIMAL},
    {"type": "fixed", "size": 7, **DECIMAL},
    {"type": "fixed", "size": 5},
    {"type": "enum", "symbols": ["A", "B", "C"]},
]
SEVERAL = ["string", "long", "boolean", "bytes"]  # branches that a Python value tells apart


def nullable(schema: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    orders = st.sampled_from([lambda t: t, lambda t: ["null", t], lambda t: [t, "null"]])
    return st.builds(lambda order, t: order(t), orders, schema)


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    field = nullable(inner)
    union = st.lists(st.sampled_from(SEVERAL), min_size=2, max_size=3, unique=True)
    return st.one_of(
        st.builds(lambda t: {"type": "array", "items": t}, field),
        st.builds(lambda t: {"type": "map", "values": t}, field),
        st.builds(lambda ts: {"type": "record", "fields": ts}, st.lists(field, min_size=1, max_size=3)),
        st.builds(lambda ts, null: {"union": ["null", *ts] if null else ts}, union, st.booleans()),
    )


def named(schema: Any, names: list[int]) -> Any:
    """The drawn schema with a name for every record, enum and fixed, and unions of several branches as plain lists."""
    if isinstance(schema, list):
        out = [named(t, names) for t in schema]
        return [t for b in out for t in (b if isinstance(b, list) else [b])]
    if not isinstance(schema, dict):
        return schema
    if "union" in schema:
        return list(schema["union"])
    out = dict(schema)
    for key in ("items", "values"):
        if key in out:
            out[key] = named(out[key], names)
    if out["type"] in ("record", "enum", "fixed"):
        names.append(0)
        out["name"] = f"n{len(names)}"
    if out["type"] == "record":
        out["fields"] = [{"name": f"f{i}", "type": unique(named(t, names))} for i, t in enumerate(out["fields"])]
    for key in ("items", "values"):
        if key in out:
            out[key] = unique(out[key])
    return out


def unique(schema: Any) -> Any:
    return list({str(t): t for t in schema}.values()) if isinstance(schema, list) else schema


SCHEMAS = st.lists(nullable(st.recursive(st.sampled_from(LEAVES), nested, max_leaves=4)), min_size=1, max_size=5).map(
    lambda types: named({"type": "record", "fields": types}, [])
)

# ---------------------------------------------------------------- random data
LONG = st.one_of(st.integers(-100, 100), st.integers(-(2**63), 2**63 - 1))
INSTANT = st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2262, 1, 1))
LOGICAL: dict[str, st.SearchStrategy[Any]] = {
    "date": st.dates(),
    "time-millis": st.times().map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
    "time-micros": st.times(),
    "timestamp-micros": INSTANT.map(lambda t: t.replace(tzinfo=UTC)),
    "timestamp-millis": INSTANT.map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000, tzinfo=UTC)),
    "local-timestamp-micros": INSTANT,
    "local-timestamp-millis": INSTANT.map(lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)),
    "decimal": st.integers(-(10**12) + 1, 10**12 - 1).map(lambda n: Decimal(n).scaleb(-3)),
}
PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.one_of(st.integers(-100, 100), st.integers(-(2**31), 2**31 - 1)),
    "long": LONG,
    "float": st.floats(width=32),
    "double": st.floats(),
    "string": st.one_of(st.text(max_size=5), st.text("ab", min_size=60, max_size=200)),
    "bytes": st.binary(max_size=20),
}


def data(schema: Any) -> st.SearchStrategy[Any]:
    if isinstance(schema, list):
        return st.one_of([data(t) for t in schema])
    if isinstance(schema, str):
        return PLAIN[schema]
    if "logicalType" in schema:
        return LOGICAL[schema["logicalType"]]
    kind = schema["type"]
    if kind == "fixed":
        return st.binary(min_size=schema["size"], max_size=schema["size"])
    if kind == "enum":
        return st.sampled_from(schema["symbols"])
    if kind == "array":
        return st.lists(data(schema["items"]), max_size=4)
    if kind == "map":
        return st.dictionaries(st.text(max_size=3), data(schema["values"]), max_size=3)
    if kind == "record":
        return st.fixed_dictionaries({f["name"]: data(f["type"]) for f in schema["fields"]})
    return PLAIN[kind]


TABLES = SCHEMAS.flatmap(lambda s: st.tuples(st.just(s), st.lists(data(s), max_size=40)))


# ---------------------------------------------------------------- a plain writer with free choice of array blocks
def zigzag(n: int) -> bytes:
    z = (n << 1) ^ (n >> 63)
    out = bytearray()
    while z > 127:
        out.append(z & 127 | 128)
        z >>= 7
    return bytes([*out, z])


def written(schema: Any, value: Any, cut: Any) -> bytes:
    """Avro bytes of a value; `cut()` says how many items the next block of an array gets and if it tells its size."""
    kind = schema["type"] if isinstance(schema, dict) else schema
    if isinstance(schema, list):
        branch = next(i for i, t in enumerate(schema) if belongs(t, value))
        return zigzag(branch) + written(schema[branch], value, cut)
    if kind == "record":
        return b"".join(written(f["type"], value[f["name"]], cut) for f in schema["fields"])
    if kind in ("array", "map"):
        entries = list(value.items()) if kind == "map" else value
        out = b""
        while entries:
            many, sized = cut()
            now, entries = entries[:many], entries[many:]
            if kind == "map":
                body = b"".join(written("string", k, cut) + written(schema["values"], v, cut) for k, v in now)
            else:
                body = b"".join(written(schema["items"], v, cut) for v in now)
            out += (zigzag(-len(now)) + zigzag(len(body)) if sized else zigzag(len(now))) + body
        return out + b"\0"
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, schema, value)
    return sink.getvalue()


def belongs(schema: Any, value: Any) -> bool:
    kind = schema if isinstance(schema, str) else schema["type"]
    if value is None or kind == "null":
        return value is None and kind == "null"
    types = {"string": str, "long": int, "boolean": bool, "bytes": bytes}
    if kind in types and not isinstance(schema, dict):
        return type(value) is types[kind]
    return True


def framed(records: list[bytes]) -> bytes:
    return b"".join(struct.pack(">i", len(r)) + r for r in records)


# ---------------------------------------------------------------- the same value as Arrow and as fastavro see it
def plain(schema: Any, value: Any) -> Any:
    """An Arrow value as fastavro would return it."""
    if value is None:
        return None
    if isinstance(schema, list):
        branches = [t for t in schema if t != "null"]
        if len(branches) == 1:
            return plain(branches[0], value)
        return next((v for v in value.values() if v is not None), None)
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind == "record":
        return {f["name"]: plain(f["type"], value[f["name"]]) for f in schema["fields"]}
    if kind == "array":
        return [plain(schema["items"], v) for v in value]
    if kind == "map":
        return {k: plain(schema["values"], v) for k, v in value}
    return value


def comparable(value: Any) -> Any:
    """NaN equal to itself, 0.0 apart from -0.0."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else (value, math.copysign(1, value))
    if isinstance(value, dict):
        return {k: comparable(v) for k, v in value.items()}
    if isinstance(value, list):
        return [comparable(v) for v in value]
    return value


def by_fastavro(schema: Any, records: list[bytes]) -> list[Any]:
    return [fastavro.schemaless_reader(io.BytesIO(r), schema) for r in records]


def rows_of(schema: Any, table: pa.Table) -> list[Any]:
    return [comparable(plain(schema, row)) for row in table.to_pylist()]


@quick
@given(TABLES, st.data())
def test_decoded_rows_equal_those_of_fastavro_for_any_schema_and_block_structure(drawn: Any, choose: Any) -> None:
    schema, rows = drawn
    cut = lambda: choose.draw(st.tuples(st.integers(1, 3), st.booleans()))  # noqa: E731
    records = [written(schema, row, cut) for row in rows]
    table = avro.decode_records(framed(records), len(records), schema)
    table.validate(full=True)
    assert table.schema.equals(avro.arrow_schema(schema))
    assert rows_of(schema, table) == comparable(by_fastavro(schema, records))


@quick
@given(TABLES)
def test_encoded_rows_are_read_back_by_fastavro_and_by_us(drawn: Any) -> None:
    schema, rows = drawn
    records = [written(schema, row, lambda: (1000, False)) for row in rows]
    table = avro.decode_records(framed(records), len(records), schema)
    encoded, offsets = avro.encode_records(table, schema)
    assert len(offsets) == len(rows) + 1
    ours = [encoded[offsets[i] + 4 : offsets[i + 1]].tobytes() for i in range(len(rows))]
    assert comparable(by_fastavro(schema, ours)) == comparable(by_fastavro(schema, records))
    assert encoded.tobytes() == framed(ours)
    assert rows_of(schema, avro.decode_records(encoded, len(rows), schema)) == rows_of(schema, table)
    if len(rows) > 3:
        part, _ = avro.encode_records(table.slice(1, len(rows) - 2), schema)
        assert part.tobytes() == encoded[offsets[1] : offsets[-2]].tobytes()


@quick
@given(TABLES, st.data())
def test_damaged_records_give_a_table_or_a_format_error(drawn: Any, choose: Any) -> None:
    schema, rows = drawn
    records = [bytearray(written(schema, row, lambda: (2, False))) for row in rows]
    for record in records:
        for _ in range(choose.draw(st.integers(0, 3))):
            if record:
                record[choose.draw(st.integers(0, len(record) - 1))] = choose.draw(st.integers(0, 255))
    with contextlib.suppress(FormatError):
        avro.decode_records(framed([bytes(r) for r in records]), len(records), schema).validate(full=True)


@quick
@given(SCHEMAS, st.lists(st.binary(max_size=60), max_size=40))
def test_random_bytes_give_a_table_or_a_format_error(schema: Any, records: list[bytes]) -> None:
    with contextlib.suppress(FormatError):
        avro.decode_records(framed(records), len(records), schema).validate(full=True)


# ---------------------------------------------------------------- log blocks, delete blocks, Bloom filters
BLOCKS = st.lists(
    st.builds(
        log.encode_block,
        st.sampled_from([log.COMMAND, log.DELETE, log.AVRO, log.HFILE, log.PARQUET, log.CDC]),
        st.dictionaries(st.integers(0, 20), st.text(max_size=20), max_size=4),
        st.one_of(st.binary(max_size=50), st.just(b"x#HUDI#y")),
    ),
    max_size=5,
)


@quick
@given(BLOCKS)
def test_blocks_come_back_from_their_file_as_written(blocks: list[bytes]) -> None:
    found = log.scan_blocks(b"".join(blocks), "f")
    assert [log.encode_block(b.kind, b.headers, b.content) for b in found] == blocks


@quick
@given(BLOCKS, st.binary(max_size=40), st.data())
def test_a_scan_of_damaged_files_covers_every_byte_once(blocks: list[bytes], noise: bytes, choose: Any) -> None:
    data = bytearray(b"".join(blocks) + noise)
    for _ in range(choose.draw(st.integers(0, 3)) if data else 0):
        data[choose.draw(st.integers(0, len(data) - 1))] = choose.draw(st.integers(0, 255))
    with contextlib.suppress(FormatError):
        at = 0
        for block in log.scan_blocks(bytes(data), "f"):
            assert block.offset == at
            if block.kind == log.CORRUPT:
                at += len(block.content)
            else:
                at += 14 + struct.unpack_from(">q", data, at + 6)[0]
        assert at == len(data)


ORDERING: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), LONG),
    (pa.string(), st.text(max_size=8)),
    (pa.float64(), st.floats(allow_nan=False)),
    (pa.date32(), st.dates().filter(lambda d: d != datetime.date(1970, 1, 1))),
    (pa.timestamp("us", "UTC"), LOGICAL["timestamp-micros"]),
    (pa.decimal128(12, 3), LOGICAL["decimal"]),
]


@quick
@given(st.lists(st.sampled_from(ORDERING), max_size=3), st.data())
def test_delete_records_come_back_with_their_ordering_values(fields: list[Any], choose: Any) -> None:
    row = st.tuples(st.text(max_size=9), st.text(max_size=9), *(values for _, values in fields))
    rows = choose.draw(st.lists(row, max_size=30))
    columns = [
        pa.array([r[i] for r in rows], t) for i, t in enumerate([pa.string(), pa.string(), *(t for t, _ in fields)])
    ]
    content = log.encode_deletes(columns[0], columns[1], columns[2:] or None)
    block = log.Block(log.DELETE, {}, memoryview(content), 0)
    table = log.decode_deletes(block, [t for t, _ in fields], "f")
    names = ["record_key", "partition_path", *(f"ord_{i}" for i in range(len(fields)))]
    assert table.select(names).to_pylist() == pa.table(columns, names=names).to_pylist()
    assert table["commit_time_delete"].to_pylist() == [not fields] * len(rows)


@quick
@given(st.lists(st.text(max_size=20), max_size=60), st.lists(st.text(max_size=20), max_size=30), st.integers(1, 40))
def test_a_bloom_filter_never_denies_a_key_it_was_given(keys: list[str], more: list[str], entries: int) -> None:
    bloom = new_filter(pa.array(keys, pa.string()), entries, 0.1, 2 * entries).add(pa.array(more, pa.string()))
    again = from_text(bloom.to_text(), bloom.type_code)
    assert again.might_contain(pa.array(keys + more, pa.string())).all()
    assert again.to_text() == bloom.to_text()
