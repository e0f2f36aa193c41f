"""The rows that a caller of `Table` gives, as a relation of DuckDB: anything with an Arrow stream, or a list of dicts."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import duckdb
import pyarrow as pa

from lakesql.errors import TableError
from lakesql.table.known_settings import make_utc
from lakesql.table.names import quote

Rows = Any
"""An object with `__arrow_c_stream__`, a pyarrow reader, or a list of dicts."""

_INDEX = re.compile(r"__index_level_\d+__")


@contextmanager
def registered(cur: duckdb.DuckDBPyConnection, data: Rows) -> Iterator[str]:
    """The name of a relation on `cur` that holds the rows; a stream is read into DuckDB first (it may spill)."""
    make_utc(cur)
    name = quote("__lakesql_data")
    source: Any = _columns_of(data) if isinstance(data, list) else data
    if not hasattr(source, "__arrow_c_stream__"):
        raise TableError(
            f"rows of type {type(data).__name__} cannot be read; give a pyarrow table or reader, a pandas or polars "
            "data frame, a DuckDB relation or a list of dicts."
        )
    if not isinstance(source, pa.Table):
        source = _stream_of(source)
    source = _without_index(source)
    _require_distinct(source.schema.names)
    if isinstance(source, pa.Table):
        cur.register("__lakesql_data", source)
        try:
            yield name
        finally:
            cur.unregister("__lakesql_data")
        return
    cur.register("__lakesql_stream", source)
    try:
        cur.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT * FROM __lakesql_stream")
        yield name
    finally:
        cur.unregister("__lakesql_stream")
        cur.execute(f"DROP TABLE IF EXISTS {name}")


def _without_index(source: pa.Table | pa.RecordBatchReader) -> pa.Table | pa.RecordBatchReader:
    """The rows without the index of a pandas data frame that has no name; DuckDB leaves it out too."""
    names = [n for n in source.schema.names if not _INDEX.fullmatch(n)]
    if len(names) == len(source.schema) or b"pandas" not in (source.schema.metadata or {}):
        return source
    if isinstance(source, pa.Table):
        return source.select(names)
    schema = pa.schema([source.schema.field(n) for n in names])
    return pa.RecordBatchReader.from_batches(schema, (batch.select(names) for batch in source))


def _stream_of(source: Any) -> pa.RecordBatchReader:
    try:
        return pa.RecordBatchReader.from_stream(source)
    except (pa.ArrowException, ValueError, TypeError) as error:
        raise TableError(
            f"rows of type {source.__class__.__name__} cannot be brought into columns: {error}. Give each column one "
            "name and values of one type. Nothing was written."
        ) from error


def _require_distinct(names: Sequence[str]) -> None:
    if not names:
        raise TableError("the rows have no columns. Nothing was written.")
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            raise TableError(f"the rows have the column {name} twice. Give each column once. Nothing was written.")
        seen.add(name.lower())


def _columns_of(rows: list[Any]) -> pa.Table:
    wrong = next((row for row in rows if not isinstance(row, Mapping) or not row), None)
    if not rows or wrong is not None or any(row is None for row in rows):
        raise TableError(
            "the list of rows is empty; to write no rows, leave the call out."
            if not rows
            else f"the list of rows holds {wrong!r}; each row is a dict of column name to value."
        )
    try:
        return pa.Table.from_pylist(rows)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, AttributeError, UnicodeError) as error:
        raise TableError(
            f"the list of rows cannot be brought into columns: {error}. Give each column values of one type in its "
            "range, or a pyarrow table with a schema. Nothing was written."
        ) from error
