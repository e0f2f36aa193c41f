"""The parsers of CALL, and of Spark's statements that are calls in other words: RUN, SCHEDULE and SHOW COMPACTION.

Which procedures are ours is asked here; every other CALL is DuckDB's.
"""

from difflib import get_close_matches

from lakesql.sql.cursor import Cursor, string_value
from lakesql.sql.lexer import IDENTIFIERS
from lakesql.sql.nodes import Call, Text
from lakesql.table.names import literal

_SCHEMAS = {"system", "main", "spark_catalog"}
_NEAR = 0.85  # no function of DuckDB is that close to a procedure
_NAMING = ("=>", ":=", "=")


def call(cursor: Cursor) -> Call | None:
    """CALL [system.]procedure([name => value | value], ...)"""
    from lakesql.procedures import PROCEDURES
    from lakesql.procedures.help import ABSENT

    cursor.expect("CALL")
    if cursor.peek().name.lower() in _SCHEMAS and cursor.peek(1).text == ".":
        cursor.at += 2
    name = cursor.peek().name.lower()
    if cursor.peek(1).text != "(":
        return None
    if name not in PROCEDURES and name not in ABSENT:
        near = get_close_matches(name, PROCEDURES, 1, _NEAR)
        if near:
            cursor.fail(f"there is no procedure {name}; did you mean {near[0]}?")
        return None
    if name in ABSENT:
        cursor.refuse(f"CALL {name}", ABSENT[name])
    cursor.at += 2
    arguments: list[tuple[str | None, Text]] = []
    while not cursor.accept(")"):
        if arguments:
            cursor.expect(",")
        arguments.append(_argument(cursor))
    cursor.finish()
    return Call(name, tuple(arguments))


def _argument(cursor: Cursor) -> tuple[str | None, Text]:
    name = None
    if cursor.peek().kind in IDENTIFIERS:
        signs = [s for s in _NAMING if s == "".join(cursor.peek(i + 1).text for i in range(len(s)))] or [
            s for s in _NAMING if cursor.peek(1).text == s
        ]
        if signs:
            name = cursor.next().name
            while cursor.peek().kind == "op" and cursor.peek().text in (*_NAMING, ">", ":"):
                cursor.next()
    return name, cursor.until("a value", ",", ")")


def compaction(cursor: Cursor) -> Call | None:
    """RUN COMPACTION ON t [AT instant] | SCHEDULE COMPACTION ON t | SHOW COMPACTION ON t [LIMIT n]; t or 'path'."""
    verb = cursor.next().word
    if not cursor.accept("COMPACTION", "ON"):
        return None
    start = cursor.peek().start
    if cursor.peek().kind == "string":
        target = ("path", Text(literal(string_value(cursor.next())), start))
    else:
        target = ("table", Text(literal(".".join(cursor.name("a table name or a path in quotes"))), start))
    arguments: list[tuple[str | None, Text]] = [target]
    if verb == "SHOW" and cursor.accept("LIMIT"):
        arguments.append(("limit", cursor.until("a number")))
    if verb == "RUN" and cursor.accept("AT"):
        arguments.append(("timestamp", cursor.until("an instant")))
    cursor.finish()
    if verb == "SHOW":
        return Call("show_compaction", tuple(arguments))
    op = "execute" if len(arguments) > 1 else {"RUN": "run", "SCHEDULE": "schedule"}[verb]
    return Call("run_compaction", (("op", Text(literal(op), start)), *arguments))
