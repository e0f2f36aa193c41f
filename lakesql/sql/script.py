"""Running a script statement by statement, with the place of each: for the command line and the shell.

Values become text in DuckDB, so that they look exactly as DuckDB prints them: a query is wrapped into one that casts
all its columns; what cannot be wrapped runs as it is and its result, as Arrow, is cast by a connection of its own. An
error is turned into our text, without a traceback, with the line where its statement begins. Ctrl-C is KeyboardInterrupt,
whoever notices it first.
"""

import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import duckdb

from lakesql.errors import LakeError, SQLError, StaleReadWarning
from lakesql.sql import render
from lakesql.sql.connection import Connection
from lakesql.sql.lexer import Piece, line_and_column, split
from lakesql.sql.render import Rows
from lakesql.table.interrupts import interrupts
from lakesql.table.names import literal

if TYPE_CHECKING:
    from lakesql.write import WriteResult

_QUERIES = ("SELECT", "FROM", "VALUES", "TABLE", "PIVOT", "UNPIVOT", "SUMMARIZE")
_CHANGES = ("INSERT", "UPDATE", "DELETE", "MERGE")
_FETCHED_ROWS = 2048
_ROWS_OF_A_GAP = 3
_PLANS = ("explain_key", "explain_value")


@dataclass(frozen=True, slots=True)
class Result:
    """What a statement gave. No columns: it gave nothing to show. `written`: what it did to a Hudi table.

    `rows`: texts, None for NULL; of `count` rows all, or the first and the last ones. `types`: DuckDB's names, where
    they were asked for and there are rows.
    """

    columns: tuple[str, ...]
    rows: Rows
    types: tuple[str, ...] = ()
    count: int = 0
    written: "WriteResult | None" = None
    note: str | None = None
    """What the reader of a stale view should know."""


@dataclass(eq=False)  # not frozen: Python sets the traceback of an exception
class ScriptError(Exception):
    """A statement failed. `line`, counted from 1: where its text begins in the script; `first`: where its first word is."""

    line: int
    first: int
    statement: str
    cause: Exception

    def __str__(self) -> str:
        return error_text(self.cause)

    def told(self, begin: int = 1) -> tuple[int, str]:
        """The line of the error and its text, in which every line number counts as that one does.

        `begin`: the line of its file in which the script begins. Without a number of its own an error is where the
        statement begins.
        """
        shift = self.line + begin - 2
        text = str(self)
        found = _LINE.search(text)
        if found is None:
            return self.first + begin - 1, text
        return int(found["duckdb"] or found["ours"]) + shift, _LINE.sub(partial(_shifted, shift), text)


_LINE = re.compile(
    r"^LINE (?P<duckdb>\d+)(?P<shown>: .*\n)(?P<blanks> *)(?=\^)|\bline (?P<ours>\d+)(?=, column \d)", re.MULTILINE
)


def _shifted(shift: int, found: re.Match[str]) -> str:
    """A line number moved on; the mark below DuckDB's line stays below its word."""
    if found["ours"]:
        return f"line {int(found['ours']) + shift}"
    number = str(int(found["duckdb"]) + shift)
    return f"LINE {number}{found['shown']}{found['blanks']}{' ' * (len(number) - len(found['duckdb']))}"


def run(con: Connection, script: str, mode: str = "table", rows_max: int | None = None) -> Iterator[Result]:
    """The results of the statements, in order; ScriptError for the first that fails.

    `mode` is the format they are for. `rows_max`: how many rows a result keeps, None for all.
    """
    for piece in split(script):
        first = piece.tokens[0].start
        try:
            result = execute(con, piece, mode, rows_max)
        except (LakeError, duckdb.Error) as error:
            begins, first_word = (line_and_column(script, at)[0] for at in (piece.start, first))
            raise ScriptError(begins, first_word, piece.text.strip(), error) from error
        yield result


def execute(con: Connection, piece: Piece, mode: str = "table", rows_max: int | None = None) -> Result:
    """Run one statement and fetch what it gives. KeyboardInterrupt after Ctrl-C."""
    try:
        with interrupts(), warnings.catch_warnings():
            warnings.simplefilter("ignore", StaleReadWarning)  # the result has a note
            result = _execute(con, piece, mode, rows_max)
        return replace(result, note=con.last_read.note) if con.last_read else result
    except duckdb.InterruptException as error:  # `interruptible` asked DuckDB to stop
        raise KeyboardInterrupt from error


def _execute(con: Connection, piece: Piece, mode: str, rows_max: int | None) -> Result:
    before = con.last_result
    cast = "to_json(COLUMNS(*))::VARCHAR" if render.is_json(mode) else "COLUMNS(*)::VARCHAR"
    typed = mode == "table"
    fields = f"{cast}, typeof(COLUMNS(*))" if typed else cast
    source = _run(con, piece, fields)
    if source is None:
        return Result((), ())
    columns = tuple(str(d[0]) for d in source.description)
    rows, count = _fetched(source.fetchmany, rows_max)
    written = con.last_result if con.last_result is not before else None
    if not typed:
        return Result(columns, rows, (), count, written)
    half = len(columns) // 2
    types = tuple(str(t) for t in rows[0][half:]) if rows else _types(con, piece)
    return Result(columns[:half], [row[:half] for row in rows], types, count, written)


def _run(con: Connection, piece: Piece, fields: str) -> Connection | duckdb.DuckDBPyConnection | None:
    """Run a statement; where `fields` of its result can be fetched, None when there is nothing to show."""
    if con._wraps_queries and _is_query(piece):
        try:
            return con.execute(f"SELECT {fields} FROM (\n{piece.text}\n)")
        except (duckdb.Error, SQLError) as error:
            if not isinstance(error, SQLError) and "LINE " not in str(error):
                raise
            # It failed before it ran. As it is, it shows the place in the user's own text, or cannot be wrapped.
    con.execute(piece.text)
    if not con.description:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the copy that Arrow makes
        done: Any = con.duckdb
        rows = done.to_arrow_table() if hasattr(done, "to_arrow_table") else done.fetch_arrow_table()
    if not rows.num_rows and rows.column_names in (["Success"], ["Count"]):
        return None
    zone = con.duckdb.execute("SELECT current_setting('TimeZone')").fetchall()[0][0]
    other = _other()
    other.execute(f"SET TimeZone = {literal(zone)}")
    other.register("rows", rows)
    return other.execute(f"SELECT {fields} FROM rows")


def _types(con: Connection, piece: Piece) -> tuple[str, ...]:
    """The types of the columns of a query that gave no row; none when they are not to be had."""
    if not _is_query(piece):
        return ()
    try:
        return tuple(str(row[1]) for row in con.execute(f"DESCRIBE {piece.text}").fetchall())
    except (duckdb.Error, LakeError):
        return ()


def _is_query(piece: Piece) -> bool:
    """Whether a statement may stand in brackets after FROM. Spark's spelling is translated as a whole, so it may not."""
    words = [t.word for t in piece.tokens]
    if any(t.kind == "backtick" for t in piece.tokens):
        return False
    return words[0] in _QUERIES or piece.tokens[0].text == "(" or (words[0] == "WITH" and not {*words} & {*_CHANGES})


@cache
def _other() -> duckdb.DuckDBPyConnection:
    """The connection that casts small results to text; exact but for BIT and TIMETZ, which Arrow does not have."""
    return duckdb.connect()


def _fetched(fetch: Callable[[int], list[Any]], rows_max: int | None) -> tuple[list[Any], int]:
    """The rows, and how many there were; of more than `rows_max` the first and the last ones.

    A few rows too many are shown all: to leave them out takes as many lines.
    """
    if rows_max is None:
        rows: list[Any] = []
        while some := fetch(_FETCHED_ROWS):
            rows += some
        return rows, len(rows)
    first: list[Any] = []
    last: list[Any] = []
    count = 0
    while some := fetch(_FETCHED_ROWS):
        count += len(some)
        first += some[: max(0, rows_max + _ROWS_OF_A_GAP - len(first))]
        last = [*last, *some][-(rows_max // 2) :] if rows_max > 1 else []
    return (first, count) if count == len(first) else (first[: (rows_max + 1) // 2] + last, count)


def shown(result: Result, mode: str, width: int | None = None, null: str | None = None, headers: bool = True) -> str:
    """A result as text in a format; a table is at most `width` cells wide. `null`: what stands for NULL, None for the
    format's own; without `headers` CSV and lists have no line of names."""
    options: dict[str, Any] = {} if null is None or render.is_json(mode) else {"null": null}
    if mode != "table":
        options |= {} if headers or mode not in render.WITH_HEADERS else {"headers": False}
        return render.FORMATS[mode](result.columns, result.rows, **options)
    if result.written is not None:
        from lakesql.ingest.tables import REPORT

        done = [str(result.written), *result.written.notes]
        if result.columns == REPORT:
            done.insert(0, render.table(result.columns, result.rows, result.types, result.count, width))
        return "\n".join(done)
    if result.columns == _PLANS:
        return "\n".join((row[1] or "").rstrip() for row in result.rows)
    return render.table(result.columns, result.rows, result.types, result.count, width, **options)


def error_text(error: BaseException) -> str:
    """The text of an error for people: of ours as it is, of DuckDB without the name of its class."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror.lower()}"
    text = str(error).strip()
    return text or type(error).__name__
