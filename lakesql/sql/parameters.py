"""Parameters of statements that lakesql runs itself: `?`, `$1` and `$name` become DuckDB variables for one statement.

The text of our statements is cut up and put together anew, so a parameter cannot stay where it was. Values never enter
the text: each goes into a variable by DuckDB's own binding and the text gets `getvariable(...)`, which is folded to a
constant when the statement is planned.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import duckdb

from lakesql.errors import SQLError
from lakesql.sql.lexer import Token, tokens
from lakesql.sql.nodes import Text
from lakesql.sql.session import Session
from lakesql.table.names import literal, quote

Parameters = Sequence[Any] | Mapping[str, Any] | None
Node = TypeVar("Node")

_PREFIX = "__lakesql_param_"


@contextmanager
def bound(session: Session, statement: Node, params: Parameters, words: Sequence[Token]) -> Iterator[Node]:
    """The statement, whose tokens are `words`, with its parameters replaced; the variables exist within."""
    if not params and not any(t.kind == "param" for t in words):
        yield statement
        return
    counter = _Counter(params)
    changed = _replaced(statement, counter)
    counter.finish()
    try:
        for name, value in counter.used.items():
            try:
                session.con.execute(f"SET VARIABLE {quote(_PREFIX + name)} = $1", [value])
            except (duckdb.Error, UnicodeError) as error:
                raise SQLError(
                    f"parameter {name}: a value of type {type(value).__name__} cannot be given: {error}. Nothing was "
                    "written."
                ) from error
        yield changed
    finally:
        for name in counter.used:
            session.con.execute(f"RESET VARIABLE {quote(_PREFIX + name)}")


class _Counter:
    """Which parameter comes next, and which were used."""

    def __init__(self, params: Parameters) -> None:
        self.params = params
        self.used: dict[str, Any] = {}
        self._next = 0

    def take(self, token: Token) -> str:
        """The variable's name for a parameter in the text."""
        key = token.text[1:]
        if not key:
            self._next += 1
            key = str(self._next)
        if isinstance(self.params, Mapping):
            if key not in self.params:
                raise SQLError(f"parameter {token.text}: no value of that name was given.")
            self.used[key] = self.params[key]
            return _PREFIX + key
        values = list(self.params or ())
        if not key.isdigit() or not 1 <= int(key) <= len(values):
            raise SQLError(f"parameter {token.text}: {len(values)} values were given.")
        self.used[key] = values[int(key) - 1]
        return _PREFIX + key

    def finish(self) -> None:
        """SQLError when a value is left over."""
        given = (
            set(self.params)
            if isinstance(self.params, Mapping)
            else {str(i + 1) for i in range(len(self.params or ()))}
        )
        left = sorted(given - set(self.used))
        if left:
            raise SQLError(f"{len(left)} of the parameter values are not used by the statement: {', '.join(left)}.")


def _replaced(node: Any, counter: _Counter) -> Any:
    """The same value with every text in it rewritten, in the order of the statement."""
    if isinstance(node, Text):
        return Text(_rewritten(node.sql, counter), node.start)
    if isinstance(node, tuple):
        return tuple(_replaced(item, counter) for item in node)
    if is_dataclass(node) and not isinstance(node, type):
        changes = {name: _changed(name, getattr(node, name), counter) for name in _in_order(node)}
        return replace(node, **changes)
    return node


def _changed(name: str, value: Any, counter: _Counter) -> Any:
    return _rewritten(value, counter) if name == "ctes" else _replaced(value, counter)


def _in_order(node: Any) -> list[str]:
    """The fields of a node; CTEs come first in the text."""
    return sorted((f.name for f in fields(node)), key=lambda name: name != "ctes")


def _rewritten(sql: str, counter: _Counter) -> str:
    for token in reversed(_numbered(sql, counter)):
        start, end, name = token
        sql = f"{sql[:start]}getvariable({literal(name)}){sql[end:]}"
    return sql


def _numbered(sql: str, counter: _Counter) -> list[tuple[int, int, str]]:
    return [(t.start, t.end, counter.take(t)) for t in tokens(sql) if t.kind == "param"]
