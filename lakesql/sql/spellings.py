"""One statement in two spellings, and DuckDB's errors in it as ours.

A statement is taken as DuckDB's; when DuckDB does not know its syntax or a function in it, it is taken as Spark's, and
the first error counts if that fails too. Nothing has been written at that point.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

import duckdb

from lakesql.errors import LakeError, SQLError, TableError, Unsupported
from lakesql.sql.nodes import Delete, Insert, Merge, Update
from lakesql.sql.session import Session
from lakesql.table.candidates import for_people
from lakesql.table.damaged import damage
from lakesql.table.exact import refusal
from lakesql.table.state import load_head

Spelled = TypeVar("Spelled", Merge, Update, Delete, Insert)
Result = TypeVar("Result")


def either_spelling(session: Session, statement: Spelled, run: Callable[[Spelled], Result]) -> Result:
    """Run the statement as DuckDB's, and as Spark's when DuckDB does not understand it."""
    with our_errors(session, statement.target[-1]):
        try:
            return run(statement)
        except (duckdb.ParserException, duckdb.CatalogException, duckdb.BinderException) as error:
            if statement.spark or not not_understood(error):
                raise
            try:
                return run(replace(statement, spark=True))
            except (duckdb.Error, SQLError, Unsupported) as other:
                if isinstance(other, TableError) or (isinstance(other, duckdb.Error) and not not_understood(other)):
                    raise
                raise error from None


def not_understood(error: duckdb.Error) -> bool:
    """Whether another spelling could help: syntax, or a function or type that is not DuckDB's."""
    text = str(error)
    unknown = ("Function with name", "Type with name", "No function matches")
    return isinstance(error, duckdb.ParserException) or any(part in text for part in unknown)


@contextmanager
def our_errors(session: Session, table: str) -> Iterator[None]:
    """Errors of DuckDB in a statement on `table` become ours: its text, without the generated SQL around it."""
    try:
        yield
    except (duckdb.ParserException, duckdb.CatalogException, duckdb.BinderException) as error:
        said = for_people(first_lines(error), _columns(session, table))
        raise SQLError(f"{table}: {said} Nothing was written.") from error
    except (duckdb.DataError, duckdb.InvalidInputException, duckdb.ConstraintException, duckdb.IOException) as error:
        if found := damage(error, ()):
            raise found from error
        cause = session.cause(error)
        if cause is not error:
            raise cause from error
        changed = refusal(error)
        if changed is not None:
            raise TableError(changed) from error
        variable = re.search(r'Python Object "(\w+)"', str(error))
        if variable:  # a variable of ours that DuckDB came across when it looked for the table
            raise SQLError(f"{table}: Table with name {variable[1]} does not exist. Nothing was written.") from error
        advice = "" if isinstance(error, duckdb.IOException) else " Correct the rows or the expression."
        raise TableError(f"{table}: {first_lines(error)}{advice} Nothing was written.") from error


def _columns(session: Session, table: str) -> list[str]:
    path = session.path_of((table,))
    try:
        return [] if path is None else list(load_head(session.instance.storage(path)).schema.names)
    except LakeError:
        return []


def first_lines(error: duckdb.Error) -> str:
    text = str(error).split("\n\nLINE ")[0].strip()
    return text if text.endswith((".", "!", "?")) else text + "."


def described(session: Session, query: str) -> dict[str, str]:
    """Column name -> type of a query's result. Repeated names are numbered by DuckDB."""
    return {row[0]: row[1] for row in session.con.execute(f"DESCRIBE {query}").fetchall()}
