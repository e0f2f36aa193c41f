"""Decoding alone: records per CPU second of the JSON and Avro decoders, beside the loops a person would write.

    python -m benchmarks.ingest.decode [--records 200000] [--batch 10000] [--runs 5]

Records are flat, eight fields, about 100 bytes. Every candidate ends with an Arrow table of the same rows, which is
checked. CPU time of the process is measured (the median of the runs), so other load matters little.
"""

import argparse
import io
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import fastavro
import pyarrow as pa

from lakesql.ingest.decode import decoder_factory
from lakesql.ingest.model import KAFKA, RAW, Decoder, Format
from lakesql.ingest.registry import Registry, Schema

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "made", "type": "long"},
        {"name": "paid", "type": "boolean"},
        {"name": "city", "type": ["null", "string"], "default": None},
        {"name": "items", "type": "int"},
        {"name": "note", "type": "string"},
    ],
}
OLD = {**SCHEMA, "fields": [f for f in SCHEMA["fields"] if f["name"] != "city"]}
COLUMNS = (
    "id BIGINT, customer VARCHAR, amount DOUBLE, made BIGINT, paid BOOLEAN, city VARCHAR, items INTEGER, note VARCHAR"
)
ARROW = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.string()),
        ("amount", pa.float64()),
        ("made", pa.int64()),
        ("paid", pa.bool_()),
        ("city", pa.string()),
        ("items", pa.int32()),
        ("note", pa.string()),
    ]
)
CITIES = ["Rome", None, "Berlin", "Oslo"]


class Fixed(Registry):
    """A registry that has its schemas: 1 is the old one, 2 the latest."""

    def __init__(self) -> None:
        super().__init__("http://localhost", "confluent")

    def schemas(self, ids: Any) -> dict[str, Schema | None]:
        return {one: Schema(one, "AVRO", OLD if one == "1" else SCHEMA) for one in ids}

    def latest(self, topic: str, part: str = "value") -> Schema | None:  # noqa: ARG002
        return Schema("2", "AVRO", SCHEMA)


def orders(count: int) -> list[dict[str, Any]]:
    return [
        {
            "id": i * 1_000_003,
            "customer": f"customer-{i % 5000:06}",
            "amount": i % 100_000 / 8,
            "made": 1_700_000_000_000 + i,
            "paid": i % 3 == 0,
            "city": CITIES[i % 4],
            "items": i % 9,
            "note": "x" * (i % 23),
        }
        for i in range(count)
    ]


def framed(row: dict[str, Any], number: int) -> bytes:
    sink = io.BytesIO()
    sink.write(b"\0" + number.to_bytes(4, "big"))
    fastavro.schemaless_writer(sink, OLD if number == 1 else SCHEMA, row)
    return sink.getvalue()


def raw(values: Sequence[bytes]) -> pa.RecordBatch:
    n = len(values)
    columns = [
        pa.DictionaryArray.from_arrays(pa.array([0] * n, pa.int32()), pa.array(["orders"])),
        pa.array([0] * n, pa.int32()),
        pa.array(range(n), pa.int64()),
        pa.array([0] * n, pa.timestamp("ms", "UTC")),
        pa.DictionaryArray.from_arrays(pa.array([0] * n, pa.int8()), pa.array(["create"])),
        pa.nulls(n, pa.binary()),
        pa.nulls(n, RAW.field("_headers").type),
        pa.array(values, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RAW)


# ---------------------------------------------------------------- candidates
Decode = Callable[[pa.RecordBatch], pa.Table]


def ours(decoder: Decoder) -> Decode:
    def decode(batch: pa.RecordBatch) -> pa.Table:
        found = decoder.decode(batch)
        assert not found.bad.num_rows
        return found.rows.select([n for n in found.rows.column_names if n not in KAFKA.names])

    return decode


def json_loop(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_pylist([json.loads(v) for v in batch.column("_value").to_pylist()], ARROW)


def fastavro_loop(batch: pa.RecordBatch) -> pa.Table:
    schemas = {1: fastavro.parse_schema(OLD), 2: fastavro.parse_schema(SCHEMA)}
    rows = []
    for value in batch.column("_value").to_pylist():
        stream = io.BytesIO(value)
        number = int.from_bytes(stream.read(5)[1:], "big")
        rows.append(fastavro.schemaless_reader(stream, schemas[number], schemas[2]))
    return pa.Table.from_pylist(rows, ARROW)


@dataclass(frozen=True)
class Case:
    name: str
    values: list[bytes]
    decode: Decode


def cases(rows: list[dict[str, Any]]) -> list[Case]:
    text = [json.dumps(r).encode() for r in rows]
    latest = [framed(r, 2) for r in rows]
    mixed = [framed(r, 1 + (i // 100) % 2) for i, r in enumerate(rows)]
    as_json = decoder_factory(Format("json", options={"lakesql.json.columns": COLUMNS}))
    as_avro = decoder_factory(Format("avro", "confluent", "http://localhost"), registry=Fixed())
    return [
        Case("json", text, ours(as_json())),
        Case("json, json.loads loop", text, json_loop),
        Case("avro", latest, ours(as_avro())),
        Case("avro, fastavro loop", latest, fastavro_loop),
        Case("avro, two writers", mixed, ours(as_avro())),
        Case("avro, two writers, fastavro loop", mixed, fastavro_loop),
    ]


def measured(case: Case, batch_rows: int, runs: int) -> tuple[float, pa.Table]:
    """(median CPU seconds, the rows)."""
    batches = [raw(case.values[i : i + batch_rows]) for i in range(0, len(case.values), batch_rows)]
    case.decode(batches[0])
    seconds, tables = [], []
    for _ in range(runs):
        before = time.process_time()
        tables = [case.decode(b) for b in batches]
        seconds.append(time.process_time() - before)
    return statistics.median(seconds), pa.concat_tables([t.cast(ARROW) for t in tables])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--batch", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    rows = orders(given.records)
    table = pa.Table.from_pylist(rows, ARROW)
    print("| case | bytes per record | records per CPU s | CPU s per 1M |\n|---|---:|---:|---:|")
    for case in cases(rows):
        seconds, found = measured(case, given.batch, given.runs)
        if "two writers" not in case.name:
            assert found.equals(table), case.name
        size = sum(map(len, case.values)) / len(rows)
        print(
            f"| {case.name} | {size:.0f} | {len(rows) / seconds:,.0f} | {seconds / len(rows) * 1e6:.2f} |", flush=True
        )


if __name__ == "__main__":
    main()
