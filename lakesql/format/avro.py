"""Avro as Hudi uses it in data: table schemas, their meta columns, and the door to the record codec.

Schemas are here; the vectorised codec is in avro_encode and avro_decode (both on avro_types, avro_skip and words),
schema evolution of tables in conform. Hudi format note 3.4 (meta columns), 7.1 (types), 7.2 (names), 7.4 (evolution),
4.4 (records). Not done: container files (container), Avro's own schema resolution with aliases and defaults.
"""

import pyarrow as pa

from lakesql.format.avro_decode import decode_records
from lakesql.format.avro_encode import encode_records
from lakesql.format.avro_types import AvroSchema, arrow_fields, parse_schema, record_of
from lakesql.format.conform import conform

META_COLUMNS = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)


def arrow_schema(avro: AvroSchema) -> pa.Schema:
    """Arrow schema of an Avro record schema (7.1); fields that are not a union with null are non-nullable.

    FormatError when the schema is malformed, Unsupported when no Arrow type can hold a field.
    """
    return pa.schema(arrow_fields(parse_schema(avro)))


def avro_schema(schema: pa.Schema, table_name: str) -> AvroSchema:
    """Avro schema of an Arrow schema, named as Hudi names it (7.2).

    Unsupported names a column whose type a table cannot hold, TableError one whose name Avro does not allow.
    """
    return record_of(schema, table_name)


def with_meta_fields(avro: AvroSchema) -> AvroSchema:
    """The schema with the five meta columns in front (3.4), each a nullable string; unchanged if it has them."""
    rest = without_meta_fields(avro)
    meta = [{"name": name, "type": ["null", "string"], "doc": "", "default": None} for name in META_COLUMNS]
    return rest | {"fields": meta + rest["fields"]}


def without_meta_fields(avro: AvroSchema) -> AvroSchema:
    """The schema without the five meta columns."""
    return avro | {"fields": [f for f in avro["fields"] if f["name"] not in META_COLUMNS]}


__all__ = [
    "META_COLUMNS",
    "arrow_schema",
    "avro_schema",
    "conform",
    "decode_records",
    "encode_records",
    "with_meta_fields",
    "without_meta_fields",
]
