"""What a client of a server may run. DuckDB's own parser says of what kind a statement is, so nothing hides in its text.

Without the right to write a client gets queries, transactions of its own, variables, and what only shows something of
ours. What would reach past the tables is refused to every client: Quack's own functions and settings, and extensions,
which are native code in this process. Names of functions are looked for in the raw text, quotes and comments included: a
text that only mentions such a call is refused too, and none gets through.
"""

import re
from collections.abc import Sequence

import duckdb

from lakesql.errors import Unsupported
from lakesql.sql.lexer import Token, split
from lakesql.sql.nodes import (
    Call,
    Explain,
    ExplainIngest,
    ResetSetting,
    SetSetting,
    ShowColumns,
    ShowIngestion,
    ShowProperties,
    ShowTables,
    Statement,
)

READ_ONLY_ADVICE = "this server only reads; whoever runs it allows changes with: lakesql serve --write"

# DuckDB takes more for blanks than Python does (U+200B, U+FEFF, ...), ends notes at a carriage return too, and its comments
# may hold comments. So whatever is no part of an expression is a gap, and a comment lasts as long as one can.
_GAP = r"""(?:[^\w"'(),;=<>+]|--[^\n\r]*[\n\r]|/\*.*\*/)*"""
_SERVERS_OWN = re.compile(rf'\b((?:quack|lakesql)_\w+)"?{_GAP}\(', re.IGNORECASE | re.DOTALL)
_TEXT_RUNNING = re.compile(rf'\b(query|json_execute_serialized_sql)"?{_GAP}\(', re.IGNORECASE | re.DOTALL)
_ACTING = re.compile(
    r"\b(checkpoint|force_checkpoint|(?:en|dis)able_(?:logging|profiling)"
    rf'|truncate_duckdb_logs|write_log)"?{_GAP}\(',
    re.IGNORECASE | re.DOTALL,
)
_NESTED_CHANGE = re.compile(rf"\({_GAP}(insert|update|delete|merge)\b", re.IGNORECASE | re.DOTALL)

_SHOWING = (
    SetSetting,
    ResetSetting,
    ShowColumns,
    ShowIngestion,
    ShowProperties,
    ShowTables,
    Explain,
    ExplainIngest,
    Call,  # of which those that change something ask the session
)
_READING = ("SELECT", "TRANSACTION", "SET")
"""Of SET only some settings."""
_QUERIES = ("PIVOT", "UNPIVOT", "SELECT", "FROM", "WITH")
_WRITES_FILES = ("export_instants",)
_NATIVE = ("LOAD", "UPDATE_EXTENSIONS")
_OF_THE_CLIENT = ("VARIABLE", "TIMEZONE", "CALENDAR")
"""What SET may name on a server that only reads: it holds for the connection of the client alone."""


def require_text(text: str, write: bool) -> None:
    """Unsupported for a text with a call that no client, or none that only reads, may make."""
    if found := _TEXT_RUNNING.search(text):
        raise Unsupported(f"{found[1]}(...) is refused: it would run a text that nobody has looked at.")
    if found := _SERVERS_OWN.search(text):
        raise Unsupported(f"{found[1]}(...) is refused: it would reach past the tables of this server.")
    if not write and (found := _ACTING.search(text)):
        raise refused(f"{found[1]}(...)")


def require_ours(statement: Statement, first: str, write: bool) -> None:
    """Unsupported for a statement of ours that changes something, on a server that only reads."""
    if write:
        return
    if not isinstance(statement, _SHOWING):
        raise refused(first)
    if isinstance(statement, Call) and statement.procedure in _WRITES_FILES:
        raise refused(f"CALL {statement.procedure}")


def require_passed(con: duckdb.DuckDBPyConnection, text: str, write: bool) -> None:
    """Unsupported for statements of DuckDB's that the client may not run. Raises DuckDB's error of a malformed one."""
    if not write and (nested := _NESTED_CHANGE.search(text)):
        raise refused(nested[1].upper())
    seen: list[str] = []
    for piece in split(text):
        kinds = _kinds(con, piece.text)
        seen += [kind for kind, _ in kinds]
        if piece.tokens[0].word == "EXPLAIN":
            inside = _behind_explain(piece.tokens)
            kinds = kinds[1:] + _kinds(con, text[inside.start : piece.tokens[-1].end])
        for kind, source in kinds:
            of_a_pivot = (kind == "CREATE" and not source.strip()) or (
                kind == "MULTI" and (piece.tokens[0].word in _QUERIES or piece.tokens[0].text == "(")
            )
            _require_kind("SELECT" if of_a_pivot else kind, write)
        if any(kind == "SET" for kind, _ in kinds):
            _require_setting(piece.tokens, write)
    if seen != [kind for kind, _ in _kinds(con, text)]:
        raise Unsupported(
            "this text is refused: where its statements end cannot be told. Send one statement at a time."
        )


def _require_kind(kind: str, write: bool) -> None:
    if kind in _NATIVE:
        raise Unsupported(f"{kind} is refused: an extension is code that would run in the process of the server.")
    if not write and kind not in _READING:
        raise refused(kind.replace("_", " "))


def refused(what: str) -> Unsupported:
    """The error for a statement of that kind on a server that only reads."""
    return Unsupported(f"{what} is refused: {READ_ONLY_ADVICE}.")


def _kinds(con: duckdb.DuckDBPyConnection, text: str) -> list[tuple[str, str]]:
    return [(str(s.type).rpartition(".")[2], s.query) for s in con.extract_statements(text)]


def _behind_explain(words: Sequence[Token]) -> Token:
    """The first token of what EXPLAIN explains."""
    rest = list(words[1:])
    while rest and rest[0].word in ("ANALYZE", "VERBOSE"):
        rest = rest[1:]
    if len(rest) > 1 and rest[0].text == "(" and rest[1].word in ("ANALYZE", "FORMAT", "VERBOSE"):
        rest = rest[next((n for n, t in enumerate(rest) if t.text == ")"), len(rest)) + 1 :]
    return rest[0] if rest else words[0]


def _require_setting(words: Sequence[Token], write: bool) -> None:
    rest = [t for t in words[1:] if t.word not in ("GLOBAL", "SESSION", "LOCAL")]
    name = rest[0].name if rest else ""
    what = f"{words[0].word} {name}".strip()
    if name.lower().startswith(("quack_", "python_")) or "extension" in name.lower():
        raise Unsupported(f"{what} is refused: this setting belongs to the server.")
    is_own = words[0].word in ("SET", "RESET") and name.upper() in _OF_THE_CLIENT
    if not write and (not is_own or any(t.word == "GLOBAL" for t in words)):
        raise refused(what)
