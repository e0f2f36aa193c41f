"""Data frames and Arrow tables that a statement names by their Python variable, made visible to DuckDB for one statement.

DuckDB finds such variables itself, but only in frames near its own call, and a variable of lakesql could stand in the way.
For statements of ours the caller's frames are searched here and what is found is registered under its name.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import duckdb
import pyarrow as pa

from lakesql.sql.lexer import Token


@contextmanager
def visible(con: duckdb.DuckDBPyConnection, words: Sequence[Token]) -> Iterator[None]:
    """Within, the caller's variables that hold rows and are named in the statement can be read on `con`."""
    names = {t.name for t in words if t.kind in ("word", "quoted", "backtick") and t.name.isidentifier()}
    found = {name: value for name in sorted(names) if (value := _variable(name)) is not None}
    added = []
    try:
        for name, value in found.items():
            if not _exists(con, name):
                con.register(name, _rereadable(value))
                added.append(name)
        yield
    finally:
        for name in added:
            con.unregister(name)


def _variable(name: str) -> Any:
    """The nearest variable of that name outside of lakesql that offers an Arrow stream."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not str(frame.f_globals.get("__name__", "")).startswith(("lakesql.", "contextlib")):
            for scope in (frame.f_locals, frame.f_globals):
                value = scope.get(name)
                if value is not None and not isinstance(value, type) and hasattr(value, "__arrow_c_stream__"):
                    return value
        frame = frame.f_back
    return None


def _rereadable(value: Any) -> Any:
    """A stream, or a relation of the very connection that reads it, is brought into memory first."""
    if isinstance(value, pa.RecordBatchReader):
        return value.read_all()
    if isinstance(value, duckdb.DuckDBPyRelation):
        return value.to_arrow_table()
    return value


def _exists(con: duckdb.DuckDBPyConnection, name: str) -> bool:
    sql = (
        "SELECT 1 FROM duckdb_tables() WHERE lower(table_name) = $1 "
        "UNION ALL SELECT 1 FROM duckdb_views() WHERE lower(view_name) = $1 LIMIT 1"
    )
    return bool(con.execute(sql, [name.lower()]).fetchall())
