"""The records of the measurement: 100 bytes each, as JSON and as Avro without a frame, by number."""

import json
from collections.abc import Iterator

SIZE = 100
AVRO_SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "ts", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "note", "type": "string"},
    ],
}
JSON_COLUMNS = "id BIGINT, ts BIGINT, customer VARCHAR, amount DOUBLE, note VARCHAR"


def record(number: int, note: str) -> dict[str, object]:
    return {
        "id": number,
        "ts": 1_700_000_000_000 + number,
        "customer": f"c{number % 9973:05d}",
        "amount": number % 100_000 / 100,
        "note": note,
    }


def records(form: str, rows: int) -> Iterator[bytes]:
    """Messages of exactly SIZE bytes."""
    encode = _json if form == "json" else _avro()
    for number in range(rows):
        room = SIZE - len(encode(record(number, "")))
        message = encode(record(number, "x" * room))
        if len(message) > SIZE:  # the length of a long text takes a second byte
            message = encode(record(number, "x" * (room - 1)))
        yield message


def _json(row: dict[str, object]) -> bytes:
    return json.dumps(row, separators=(",", ":")).encode()


def _avro():  # type: ignore[no-untyped-def]
    from io import BytesIO

    from fastavro import parse_schema, schemaless_writer

    schema = parse_schema(AVRO_SCHEMA)

    def encode(row: dict[str, object]) -> bytes:
        out = BytesIO()
        schemaless_writer(out, schema, row)
        return out.getvalue()

    return encode
