"""Data frames and Arrow tables that a statement names by their Python variable.

DuckDB looks for such variables in the frame that calls it, which is one of ours. So the caller's frames are
searched here for what the statement names; DuckDB is then called from a frame that has exactly these variables
(`call`), or, for statements of ours, they are registered while it runs (`visible`). Who has the person's names
already, as a notebook does, gives them (`names_of`); then no frame is searched.
"""

import builtins
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType, FunctionType
from typing import Any

import duckdb
import pyarrow as pa

from lakesql.sql.lexer import IDENTIFIERS, Token
from lakesql.sql.session import Session

_WITHOUT_STREAM = {
    "Dataset",
    "FileSystemDataset",
    "InMemoryDataset",
    "UnionDataset",
    "Scanner",
    "DataFrame",
    "LazyFrame",
}

_given: ContextVar[tuple[Mapping[str, Any], ...]] = ContextVar("_given", default=())


@contextmanager
def names_of(*scopes: Mapping[str, Any]) -> Iterator[None]:
    """Within, statements see the variables of these scopes, the first of them first, and no others."""
    token = _given.set(scopes)
    try:
        yield
    finally:
        _given.reset(token)


def call(run: Callable[..., Any], arguments: Sequence[Any], words: Sequence[Token]) -> Any:
    """Call a method of a DuckDB connection so that it sees the caller's variables named in the statement, and no others."""
    return FunctionType(_frame.__code__, {"__builtins__": builtins, **variables(words)})(run, arguments)


def _frame(__lakesql_run: Callable[..., Any], __lakesql_arguments: Sequence[Any]) -> Any:
    return __lakesql_run(*__lakesql_arguments)


@contextmanager
def visible(con: duckdb.DuckDBPyConnection, words: Sequence[Token]) -> Iterator[None]:
    """Within, the caller's variables that hold rows and are named in the statement can be read on `con`."""
    found = variables(words)
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


def variables(words: Sequence[Token]) -> dict[str, Any]:
    """The caller's variables that hold rows, of those that the statement names."""
    names = {t.name for t in words if t.kind in IDENTIFIERS and t.name.isidentifier()}
    return {name: value for name in sorted(names) if (value := _variable(name)) is not None}


def _variable(name: str) -> Any:
    """The nearest variable of that name outside of lakesql, None unless it holds rows."""
    if given := _given.get():
        found = next((scope[name] for scope in given if name in scope), None)
        return found if found is not None and _holds_rows(found) else None
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module != "contextlib" and not module.startswith("lakesql."):
            for scope in (frame.f_locals, frame.f_globals):
                if name in scope:
                    return scope[name] if _holds_rows(scope[name]) else None
        frame = frame.f_back
    return None


def _holds_rows(value: Any) -> bool:
    kind = type(value)
    return kind is not type and (hasattr(kind, "__arrow_c_stream__") or kind.__name__ in _WITHOUT_STREAM)


def _rereadable(value: Any) -> Any:
    """A stream, or a relation of the very connection that reads it, is brought into memory first."""
    if isinstance(value, pa.RecordBatchReader):
        return value.read_all()
    if isinstance(value, duckdb.DuckDBPyRelation):
        return value.to_arrow_table()
    return value


def is_rereadable(value: Any) -> bool:
    """Whether the rows can be read more than once: not of a reader, nor of what only offers a stream."""
    kind = type(value)
    return isinstance(value, pa.Table | pa.RecordBatch) or kind.__name__ in _WITHOUT_STREAM - {"Scanner"}


def reads_stream(session: Session, words: Sequence[Token]) -> bool:
    """Whether the statement names an Arrow stream that is registered on the connection: it can be read once."""
    names = [t.name.lower() for t in words if t.kind in IDENTIFIERS and t.name.lower() not in session.rereadable]
    streams = (
        "SELECT 1 FROM duckdb_views() WHERE contains(sql, 'arrow_scan') AND lower(view_name) IN (SELECT unnest($1))"
    )
    return bool(session.con.execute(streams, [names]).fetchall())


def _exists(con: duckdb.DuckDBPyConnection, name: str) -> bool:
    sql = (
        "SELECT 1 FROM duckdb_tables() WHERE lower(table_name) = $1 "
        "UNION ALL SELECT 1 FROM duckdb_views() WHERE lower(view_name) = $1 LIMIT 1"
    )
    return bool(con.execute(sql, [name.lower()]).fetchall())
