"""From text to statements: which of them are ours, and the parser of each.

A token front parser looks at the first words of a statement. Ours are the statements in STATEMENTS whose target is
a Hudi table (or CREATE TABLE ... USING hudi, or a setting of ours); everything else comes back as `Passed` and
reaches DuckDB byte for byte. sqlglot is used for expressions only (`dialect`, `merge_into`), never to decide what a
statement is: it turns what it does not know into an opaque command, and a writer must not pass those on.

Which spelling: a statement with backticks is Spark's and its expressions are translated; any other is taken as
DuckDB's first, and as Spark's when DuckDB does not know its syntax or a function in it (see `changes`).
"""

from collections.abc import Callable

from lakesql.sql import parse_call, parse_ddl, parse_dml, parse_ingest
from lakesql.sql.cursor import Cursor
from lakesql.sql.lexer import Piece
from lakesql.sql.nodes import Delete, Explain, ExplainIngest, Insert, Merge, Name, Passed, Statement, Update

IsHudi = Callable[[Name], bool]

_WITH_CTES = {
    "MERGE": parse_dml.merge,
    "UPDATE": parse_dml.update,
    "DELETE": parse_dml.delete,
    "INSERT": parse_dml.insert,
}
_WITH_TARGET = {
    "TRUNCATE": parse_dml.truncate,
    "DROP": parse_ddl.drop_table,
    "SHOW": parse_ddl.show,
}
_PLAIN = {
    "CALL": parse_call.call,
    "SET": parse_ddl.set_setting,
    "RESET": parse_ddl.reset_setting,
    "RUN": parse_call.compaction,
    "SCHEDULE": parse_call.compaction,
}
STATEMENTS = ("CREATE TABLE ... USING hudi", "EXPLAIN", "INGEST", *sorted((*_WITH_CTES, *_WITH_TARGET, *_PLAIN)))
"""First words of the statements that lakesql runs itself."""

_QUERY_VERBS = (*_WITH_CTES, "SELECT", "FROM", "VALUES", "TABLE")


def parse(text: str, piece: Piece, is_hudi: IsHudi) -> Statement:
    """The statement in `piece` of the script `text`; `is_hudi` tells whether a name is a Hudi table.

    Raises SQLError (with line and column) for a statement of ours that is malformed, Unsupported for what lakesql
    does not do.
    """
    cursor = Cursor(text, piece.tokens)
    first = cursor.peek().word
    if first == "EXPLAIN":
        return _explain(cursor, is_hudi) or Passed(piece.text)
    if first == "PREPARE":
        _refuse_prepare(cursor, is_hudi)
        return Passed(piece.text)
    found = _parse(cursor, is_hudi)
    if found is None:
        parse_ddl.refuse(Cursor(text, piece.tokens), is_hudi)
        return Passed(piece.text)
    return found


def _parse(cursor: Cursor, is_hudi: IsHudi) -> Statement | None:
    if (ingestion := parse_ingest.statement(cursor)) is not None:
        return ingestion
    if cursor.peek().word in ("CREATE", "DROP") and "SECRET" in (cursor.peek(n).word for n in range(1, 5)):
        from lakesql.sql import secrets

        if (secret := secrets.statement(cursor)) is not None:
            return secret
    ctes = _ctes(cursor)
    first = cursor.peek().word
    if first in _WITH_CTES:
        return _WITH_CTES[first](cursor, is_hudi, ctes)
    if first == "CREATE" and not ctes:
        return parse_ddl.create_table(cursor)
    if cursor.sees("SHOW", "COMPACTION", "ON"):
        return parse_call.compaction(cursor)
    if first in _WITH_TARGET and not ctes:
        return _WITH_TARGET[first](cursor, is_hudi)
    if first in _PLAIN and not ctes:
        return _PLAIN[first](cursor)
    return None


def _ctes(cursor: Cursor) -> str:
    """The text of a leading WITH clause, and past it; '' when there is none."""
    if not cursor.sees("WITH"):
        return ""
    start = cursor.at
    text = cursor.until("a query", *_QUERY_VERBS)
    if cursor.peek().word not in _WITH_CTES:
        cursor.at = start
        return ""
    return text.sql


def _explain(cursor: Cursor, is_hudi: IsHudi) -> Explain | ExplainIngest | None:
    """EXPLAIN [(FATES)] of a MERGE, UPDATE, DELETE or INSERT of ours; what else there is of ours is refused."""
    cursor.expect("EXPLAIN")
    start, options = cursor.at, ""
    while cursor.peek().word in ("ANALYZE", "VERBOSE", "EXTENDED", "FORMATTED"):
        options = cursor.next().word
    if cursor.sees("("):
        options = cursor.bracketed("options").sql.upper()
    inside_at = cursor.at
    if (plan := parse_ingest.explained(cursor)) is not None:
        if options:
            cursor.at = start
            cursor.refuse(f"EXPLAIN {options} of an ingestion", "EXPLAIN alone shows the plan.")
        return plan
    inside = _parse(cursor, is_hudi)
    if inside is None:
        return None
    if not isinstance(inside, Merge | Update | Delete | Insert):
        cursor.at = inside_at
        verb = cursor.peek().word or "statement"
        cursor.refuse(f"EXPLAIN of {verb} on a Hudi table", "Run it; the result says what it did.")
    if options not in ("", "FATES"):
        cursor.at = start
        cursor.refuse(f"EXPLAIN {options} of a write", "Use EXPLAIN, or EXPLAIN (FATES) for one row per source row.")
    return Explain(inside, options == "FATES")


def _refuse_prepare(cursor: Cursor, is_hudi: IsHudi) -> None:
    """PREPARE of a statement of ours is refused: DuckDB could not run what is inside."""
    while not cursor.done and not cursor.accept("AS"):
        cursor.next()
    at = cursor.at
    if _parse(cursor, is_hudi) is not None:
        cursor.at = at
        verb = cursor.peek().word or "statement"
        cursor.refuse(f"PREPARE of {verb} on a Hudi table", "Use execute(sql, parameters).")
