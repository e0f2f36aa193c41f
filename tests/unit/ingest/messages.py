"""RAW batches for tests, and what came of them, as plain Python values."""

import io
import json
from collections.abc import Sequence
from itertools import chain
from typing import Any

import fastavro
import pyarrow as pa

from lakesql.ingest.model import BAD, KAFKA, RAW, Decoded


def raw(value: Any) -> bytes | None:
    """Bytes as they are, text as UTF-8, anything else as JSON."""
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()


def batch(
    values: Sequence[Any],
    keys: Sequence[Any] | None = None,
    topics: Sequence[str] | None = None,
    headers: Sequence[Any] | None = None,
) -> pa.RecordBatch:
    """Records at offsets 0, 1, ... of partition 0."""
    n = len(values)
    columns = [
        pa.array(topics or ["t"] * n, pa.string()).dictionary_encode(),
        pa.array([0] * n, pa.int32()),
        pa.array(range(n), pa.int64()),
        pa.array(range(n), pa.timestamp("ms", "UTC")),
        pa.array(["create"] * n, pa.string()).dictionary_encode().cast(RAW.field("_timestamp_type").type),
        pa.array([raw(k) for k in keys or [None] * n], pa.binary()),
        pa.array(headers or [None] * n, RAW.field("_headers").type),
        pa.array([raw(v) for v in values], pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RAW)


def avro(schema: Any, value: Any, number: int | None = None) -> bytes:
    """A record in Confluent's frame, or bare."""
    sink = io.BytesIO()
    if number is not None:
        sink.write(b"\0" + number.to_bytes(4, "big"))
    fastavro.schemaless_writer(sink, schema, value)
    return sink.getvalue()


def rows(table: pa.Table) -> list[dict[str, Any]]:
    """Rows without Kafka's columns."""
    return table.select([c for c in table.column_names if c not in KAFKA.names]).to_pylist()


def offsets(table: pa.Table) -> list[int]:
    return table.column("_offset").to_pylist()


def bad(decoded: Decoded) -> dict[int, tuple[str, str]]:
    """Offset to (stage, error)."""
    found = decoded.bad.select(["_offset", "stage", "error"]).to_pylist()
    return {r["_offset"]: (r["stage"], r["error"]) for r in found}


def checked(decoded: Decoded, given: pa.RecordBatch) -> Decoded:
    """Itself, after a look that every record is in exactly one table, in the order of the batch and with its bytes."""
    places = [offsets(t) for t in (decoded.rows, decoded.deletes, decoded.bad)]
    assert all(p == sorted(p) for p in places)
    assert sorted(chain(*places)) == offsets(pa.Table.from_batches([given]))
    assert decoded.bad.schema == BAD
    for table in (decoded.rows, decoded.deletes):
        table.validate(full=True)
        assert table.schema.names[-len(KAFKA.names) :] == KAFKA.names
    for row in decoded.bad.to_pylist():
        assert row["_value"] == given.column("_value")[row["_offset"]].as_py()
    return decoded
