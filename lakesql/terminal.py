"""The shell on a terminal: prompt, history, colours, and completion of keywords, tables and columns by prompt_toolkit.

What a line of input does is `shell`'s.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer
from rich.console import Console

from lakesql.counted import counted
from lakesql.ingest import definitions
from lakesql.shell import COMMANDS, Shell, bare, finish, run_input
from lakesql.sql.connection import Connection
from lakesql.sql.lexer import is_complete
from lakesql.sql.render import FORMATS

HISTORY = ".lakesql_history"
RC = ".lakesqlrc"
"""A script in the home folder that the shell runs when it begins."""

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
    """What begins with the word before the cursor: keywords, tables, columns and functions; behind CALL procedures, behind
    SET and RESET settings, behind a dot commands and what they take."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """Candidates in the order: tables, columns, keywords."""
        text = document.text_before_cursor
        con = self._shell.con
        if text.lstrip().startswith("."):
            yield from _of_commands(con, text.lstrip(), complete_event)
            return
        for pattern, names in _BEHIND:
            if (found := pattern.search(text)) is not None:
                word = found[1].lower()
                yield from (Completion(n, -len(word)) for n in names(con) if n.lower().startswith(word))
                return
        word = document.get_word_before_cursor()
        if _INGESTION.search(text):
            word = "" if word.isspace() else word
            yield from (Completion(name, -len(word)) for name in ingestions(con, word))
        if word and not word.isspace():
            yield from (Completion(c, -len(word)) for c in candidates(con, word))


def _of_commands(con: Connection, text: str, event: CompleteEvent) -> Iterator[Completion]:
    """Dot commands, and behind one what it takes: files, formats, tables."""
    name, blank, word = text.partition(" ")
    if not blank:
        yield from (Completion("." + c, -len(text)) for c in COMMANDS if ("." + c).startswith(text))
    elif name in (".read", ".output", ".once", ".open", ".cd"):
        yield from PathCompleter(only_directories=name == ".cd", expanduser=True).get_completions(Document(word), event)
    else:
        known = {".mode": [*FORMATS], ".schema": [*con.tables]}.get(
            name, ["on", "off"] if "on|off" in _usage(name) else []
        )
        yield from (Completion(k, -len(word)) for k in known if k.lower().startswith(word.lower()))


def _usage(command: str) -> str:
    return COMMANDS[command[1:]][0] if command[1:] in COMMANDS else ""


def procedures(con: Connection) -> list[str]:
    """What CALL may name."""
    del con
    from lakesql.procedures import PROCEDURES

    return sorted(PROCEDURES)


def settings(con: Connection) -> list[str]:
    """What SET and RESET may name: settings of Hudi, ours, and DuckDB's."""
    from lakesql.services.spelling import KNOWN

    with con.duckdb.cursor() as cursor:
        rows = cursor.execute("SELECT name FROM duckdb_settings() WHERE name NOT LIKE '\\_\\_%' ESCAPE '\\'").fetchall()
    return [*sorted(KNOWN), *sorted(str(name) for (name,) in rows)]


_BEHIND: tuple[tuple[re.Pattern[str], Callable[[Connection], list[str]]], ...] = (
    (re.compile(r"\bCALL\s+(\w*)$", re.IGNORECASE), procedures),
    (re.compile(r"(?:^|;)\s*(?:SET|RESET)\s+(?:GLOBAL\s+|SESSION\s+)?([\w.]*)$", re.IGNORECASE), settings),
)
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
    return not stripped or stripped.startswith(".") or bare(text) or is_complete(text)


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
            completer=SqlCompleter(shell),
            complete_while_typing=False,
            key_bindings=_bindings(),
        )
        Console(file=shell.out).print(
            f"lakesql: SQL on Hudi tables. {counted(len(shell.con.tables), 'table')} in {shell.con.warehouse}. .help for help",
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
