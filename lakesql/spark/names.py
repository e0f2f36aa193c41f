"""Names, texts and types as Spark spells them. Pure."""

import pyarrow as pa

from lakesql.errors import Unsupported
from lakesql.spark.translate import ADVICE


def spark_type(kind: pa.DataType) -> str:
    """Spark's name of a column type of a Hudi table."""
    simple = {
        pa.bool_(): "BOOLEAN", pa.int32(): "INT", pa.int64(): "BIGINT", pa.float32(): "FLOAT", pa.float64(): "DOUBLE",
        pa.string(): "STRING", pa.binary(): "BINARY", pa.date32(): "DATE",
    }  # fmt: skip
    if kind in simple:
        return simple[kind]
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP" if kind.tz else "TIMESTAMP_NTZ"
    if pa.types.is_map(kind):
        return f"MAP<{spark_type(kind.key_type)},{spark_type(kind.item_type)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"ARRAY<{spark_type(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"STRUCT<{','.join(f'{tick(f.name)}:{spark_type(f.type)}' for f in kind)}>"
    raise Unsupported(f"values of type {kind} are not supported on Spark. {ADVICE}")


def tick(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def tick_quoted(name: str) -> str:
    """A name in double quotes as Spark quotes it."""
    return tick(name[1:-1].replace('""', '"'))


def text_of(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
