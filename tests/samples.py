"""The small table that most tests use, in every kind that Hudi knows, and its rows as Python values.

Columns: `id` (record key), `city` (partition column when the table has partitions), `v` (the value) and `ts` (the
ordering field of event-time tables). Tests state rows as tuples in this order.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

import lakesql

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("v", pa.int64()), ("ts", pa.int64())])
NewTable = Callable[..., lakesql.Table]  # the fixture `new_table`
Row = tuple[str, str, int | None, int | None]


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of table: Copy-on-Write or Merge-on-Read, table version, with or without partitions, merge mode."""

    type: str
    version: int
    partitioned: bool = True
    event_time: bool = True

    def __str__(self) -> str:
        layout = "partitioned" if self.partitioned else "flat"
        return f"{self.type}-v{self.version}-{layout}-{'event' if self.event_time else 'commit'}"


KINDS = tuple(Kind(*values) for values in itertools.product(("cow", "mor"), (9, 8, 6), (True, False), (True, False)))


def create(path: Path | str, kind: Kind, properties: Mapping[str, str] | None = None) -> lakesql.Table:
    """An empty table of this kind at `path`."""
    return lakesql.create_table(
        str(path),
        SCHEMA,
        type=kind.type,
        primary_key=["id"],
        ordering_fields=["ts"] if kind.event_time else [],
        partitioned_by=["city"] if kind.partitioned else [],
        version=kind.version,
        properties=properties,
    )


def rows(*values: Row) -> pa.Table:
    """The tuples as Arrow rows."""
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in values], SCHEMA)


def tuples(table: pa.Table | pa.RecordBatchReader) -> list[Row]:
    """Rows read from a table, meta columns dropped, as sorted tuples. A repeated row stays repeated."""
    whole = table if isinstance(table, pa.Table) else table.read_all()
    return sorted((tuple(row.values()) for row in whole.select(SCHEMA.names).to_pylist()), key=repr)
