"""Running a script statement by statement, with the place of each: for the command line and the shell.

A result is fetched and turned into text by `render`; an error is turned into our text, without a traceback, with the
line where its statement begins.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import duckdb

from lakesql.errors import LakeError
from lakesql.sql.connection import Connection
from lakesql.sql.lexer import line_and_column, split
from lakesql.sql.render import Rows
from lakesql.write import WriteResult


@dataclass(frozen=True, slots=True)
class Result:
    """What a statement gave. No columns: it gave nothing to show. `written`: what it did to a Hudi table."""

    columns: tuple[str, ...]
    rows: Rows
    written: WriteResult | None = None


@dataclass(frozen=True, slots=True)
class ScriptError(Exception):
    """A statement failed; `line` is where it begins in the script, counted from 1."""

    line: int
    statement: str
    cause: Exception

    def __str__(self) -> str:
        return error_text(self.cause)


def run(con: Connection, script: str) -> Iterator[Result]:
    """The results of the statements, in order; ScriptError for the first that fails."""
    for piece in split(script):
        first = piece.tokens[0].start
        try:
            result = execute(con, piece.text)
        except (LakeError, duckdb.Error) as error:
            raise ScriptError(line_and_column(script, first)[0], piece.text.strip(), error) from error
        yield result


def execute(con: Connection, statement: str) -> Result:
    """Run one statement and fetch what it gives."""
    before = con.last_result
    con.execute(statement)
    written = con.last_result if con.last_result is not before else None
    description = con.description
    if not description:
        return Result((), (), written)
    columns = tuple(str(d[0]) for d in description)
    return Result(columns, con.fetchall(), written)


def error_text(error: BaseException) -> str:
    """The text of an error for people: of ours as it is, of DuckDB without the name of its class."""
    text = str(error).strip()
    return text or type(error).__name__
