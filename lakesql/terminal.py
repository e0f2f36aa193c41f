"""The shell on a terminal: prompt, history, colours, and completion of keywords, tables and columns by prompt_toolkit.

What a line of input does is `shell`'s.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer
from rich.console import Console

from lakesql.ingest import definitions
from lakesql.shell import COMMANDS, Shell, finish, run_input
from lakesql.sql.connection import Connection
from lakesql.sql.lexer import is_complete

HISTORY = ".lakesql_history"

KEYWORDS = [
    "ALTER",
    "AND",
    "AS",
    "ASC",
    "BETWEEN",
    "BY",
    "CALL",
    "CASE",
    "CAST",
    "COUNT",
    "CREATE",
    "DELETE",
    "DESC",
    "DESCRIBE",
    "DISTINCT",
    "DROP",
    "ELSE",
    "END",
    "ENVELOPE",
    "EXCEPT",
    "EXISTS",
    "EXPLAIN",
    "FILES",
    "FORMAT",
    "FROM",
    "GROUP",
    "HAVING",
    "HUDI",
    "IN",
    "INGEST",
    "INGESTION",
    "INGESTIONS",
    "INSERT",
    "INTERSECT",
    "INTO",
    "IS",
    "JOIN",
    "KAFKA",
    "LEFT",
    "LENIENT",
    "LIKE",
    "LIMIT",
    "LOCATION",
    "MATCHED",
    "MERGE",
    "NOT",
    "NULL",
    "OFFSET",
    "OFFSETS",
    "ON",
    "OPTIONS",
    "OR",
    "ORDER",
    "OUTER",
    "OVERWRITE",
    "PARTITION",
    "PARTITIONED",
    "PURGE",
    "QUALIFY",
    "QUARANTINE",
    "REGISTRY",
    "REPLAY",
    "RESET",
    "RUN",
    "SELECT",
    "SET",
    "SHOW",
    "SOURCE",
    "TABLE",
    "TABLES",
    "TARGET",
    "TBLPROPERTIES",
    "THEN",
    "TIMESTAMP",
    "TRUNCATE",
    "UNION",
    "UPDATE",
    "USING",
    "VALUES",
    "VERSION",
    "VIEW",
    "WHEN",
    "WHERE",
    "WIRE",
    "WITH",
]


class SqlCompleter(Completer):
    """Keywords, tables, columns and dot commands that begin with the word before the cursor."""

    def __init__(self, con: Connection) -> None:
        self._con = con

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """Candidates in the order: tables, columns, keywords."""
        del complete_event
        text = document.text_before_cursor
        if text.lstrip().startswith("."):
            yield from (
                Completion("." + c, -len(text.lstrip())) for c in COMMANDS if ("." + c).startswith(text.lstrip())
            )
            return
        word = document.get_word_before_cursor()
        if _INGESTION.search(text):
            word = "" if word.isspace() else word
            yield from (Completion(name, -len(word)) for name in ingestions(self._con, word))
        if word and not word.isspace():
            yield from (Completion(c, -len(word)) for c in candidates(self._con, word))


_INGESTION = re.compile(r"\bINGESTION\s+(IF\s+EXISTS\s+)?\w*$", re.IGNORECASE)


def ingestions(con: Connection, word: str) -> list[str]:
    """The ingestions with a name that begins with the word."""
    return [name for name in definitions.names(con.warehouse) if name.lower().startswith(word.lower())]


def candidates(con: Connection, word: str) -> list[str]:
    """What a word may become."""
    start = word.lower()
    cursor = con.duckdb.cursor()
    try:
        names = cursor.execute(
            "SELECT DISTINCT name FROM (SELECT table_name AS name, 0 AS kind FROM duckdb_tables() UNION ALL "
            "SELECT view_name, 0 FROM duckdb_views() WHERE NOT internal UNION ALL "
            "SELECT column_name, 1 FROM duckdb_columns() WHERE NOT internal UNION ALL "
            "SELECT function_name, 2 FROM duckdb_functions() WHERE function_type = 'table_macro') "
            "WHERE starts_with(lower(name), $1) ORDER BY name LIMIT 200",
            [start],
        ).fetchall()
    finally:
        cursor.close()
    keywords = [k if word[:1].isupper() else k.lower() for k in KEYWORDS if k.lower().startswith(start)]
    return [*(str(n) for (n,) in names), *keywords]


def _enter_runs(text: str) -> bool:
    """Whether Enter runs the input rather than adding a line."""
    stripped = text.strip()
    return not stripped or stripped.startswith(".") or is_complete(text)


def _bindings() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("enter", filter=Condition(lambda: _enter_runs(get_app().current_buffer.text)))
    def run(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    return bindings


def _continuation(width: int, number: int, wrapped: int) -> str:
    del number, wrapped
    return " " * (width - 2) + "> "


def interactive(shell: Shell) -> None:
    """Read and run until .quit or Ctrl-D."""
    shell.interactive = True
    history = Path.home() / HISTORY
    try:
        kept = FileHistory(str(history)) if history.parent.is_dir() else InMemoryHistory()
        session: PromptSession[str] = PromptSession(
            message="lakesql> ",
            multiline=True,
            prompt_continuation=_continuation,
            history=kept,
            lexer=PygmentsLexer(SqlLexer),
            completer=SqlCompleter(shell.con),
            complete_while_typing=False,
            key_bindings=_bindings(),
        )
        Console(file=shell.out).print(
            f"lakesql: SQL on Hudi tables. {len(shell.con.tables)} tables in {shell.con.warehouse}. .help for help",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        while shell.running:
            try:
                text = session.prompt()
            except KeyboardInterrupt:
                continue
            except EOFError:
                break
            if text.strip():
                run_input(shell, text)
    finally:
        finish(shell)
