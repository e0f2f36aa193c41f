"""Spark's spelling brought to DuckDB's: expressions, queries, column types. Pure; sqlglot does the translating.

Only fragments of our own statements, and SELECTs with backticks, come here. What sqlglot says it cannot express,
and the few functions that would change their meaning without an error, are refused by name. sqlglot's classes are
used, never subclassed (its compiled build forbids that).

Column types are Spark's, since USING hudi is Spark's: TIMESTAMP is a point in time (Avro timestamp-micros, read back
as TIMESTAMP WITH TIME ZONE), TIMESTAMP_NTZ a local time; DECIMAL alone is DECIMAL(10, 0). Spellings of DuckDB
(VARCHAR, BLOB, INT[], STRUCT(a INT)) are understood too.
"""

from collections.abc import Sequence

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel, ParseError, SqlglotError

from lakesql.errors import SQLError, Unsupported
from lakesql.sql.lexer import Token, tokens

_CHANGED = {
    "HASH": "Spark's hash() gives other numbers than DuckDB's",
    "XXHASH64": "DuckDB has no xxhash64()",
}


def expression(text: str) -> str:
    """A Spark expression as DuckDB's."""
    return _duckdb(_parse(f"SELECT {text}", text).expressions[0], text)


def query(text: str) -> str:
    """A Spark query or statement as DuckDB's."""
    return _duckdb(_parse(text, text), text)


def from_item(text: str) -> str:
    """What stands behind FROM or USING: a table, a query in parentheses, with alias."""
    clause = _parse(f"SELECT * FROM {text}", text).args["from_"]
    return _duckdb(clause.this, text)


def ctes(text: str) -> str:
    """A leading WITH clause."""
    return _duckdb(_parse(f"{text} SELECT 1", text).args["with_"], text)


def _parse(sql: str, shown: str) -> exp.Expr:
    _refuse_changed(tokens(shown))
    try:
        found = sqlglot.parse_one(sql, read="spark")
    except ParseError as error:
        detail = error.errors[0] if error.errors else {}
        raise SQLError(f"cannot parse {_short(shown)}: {detail.get('description', error)}") from error
    if isinstance(found, exp.Command):
        raise SQLError(f"cannot parse {_short(shown)}")
    for day in list(found.find_all(exp.DayOfWeek)):
        # Spark counts from 1, DuckDB from 0 = Sunday.
        day.replace(exp.paren(exp.Add(this=day.copy(), expression=exp.Literal.number(1))))
    return found


def _duckdb(node: exp.Expr, shown: str) -> str:
    try:
        return node.sql("duckdb", unsupported_level=ErrorLevel.RAISE)
    except SqlglotError as error:
        raise Unsupported(
            f"{_short(shown)} cannot be translated to DuckDB: {error}. Write it in DuckDB's SQL."
        ) from error


def _refuse_changed(found: Sequence[Token]) -> None:
    for token, after in zip(found, [*found[1:], None], strict=True):
        if token.word in _CHANGED and after is not None and after.text == "(":
            raise Unsupported(f"{token.text}(): {_CHANGED[token.word]}. Write the expression in DuckDB's SQL.")
        if token.word in ("DISTRIBUTE", "SORT", "CLUSTER") and after is not None and after.word == "BY":
            raise Unsupported(f"{token.word} BY has no meaning in DuckDB. Use ORDER BY, or leave it out.")


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 120 else flat[:117] + "..."


def same_expression(left: str, right: str) -> bool:
    """Whether two DuckDB expressions are the same up to blanks, outer parentheses, case and quotes of names; False when unsure."""
    try:
        first, second = (_normal(sqlglot.parse_one(f"SELECT {t}", read="duckdb").expressions[0]) for t in (left, right))
    except SqlglotError:
        return False
    return first == second


def _normal(node: exp.Expr) -> exp.Expr:
    for name in node.find_all(exp.Identifier):
        name.set("this", name.this.lower())
        name.set("quoted", False)
    return node.unnest()


_TYPES: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int32(),
    "SMALLINT": pa.int32(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "TEXT": pa.string(),
    "VARCHAR": pa.string(),
    "CHAR": pa.string(),
    "BINARY": pa.binary(),
    "VARBINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "TIMESTAMPTZ": pa.timestamp("us", "UTC"),
    "TIMESTAMPLTZ": pa.timestamp("us", "UTC"),
    "TIMESTAMPNTZ": pa.timestamp("us"),
    "DATETIME": pa.timestamp("us"),
}


def column_type(text: str, where: str) -> pa.DataType:
    """The Arrow type of a column type as CREATE TABLE spells it. SQLError or Unsupported name `where` and the type."""
    try:
        return _arrow(exp.DataType.build(text, dialect="spark"), text, where)
    except SqlglotError as error:
        raise SQLError(f"{where}: {text!r} is not a column type.") from error


def _arrow(kind: exp.DataType, text: str, where: str) -> pa.DataType:
    name = kind.this.value
    if name in _TYPES:
        return _TYPES[name]
    parts = kind.expressions
    if name == "DECIMAL":
        numbers = [int(p.this.this) for p in parts] or [10]
        precision, scale = numbers[0], numbers[1] if len(numbers) > 1 else 0
        if not (1 <= precision <= 38 and 0 <= scale <= precision):
            raise SQLError(f"{where}: {text}: precision is 1 to 38, scale 0 to precision.")
        return pa.decimal128(precision, scale)
    if name in ("ARRAY", "LIST") and len(parts) == 1:
        return pa.list_(pa.field("element", _arrow(parts[0], text, where)))
    if name == "MAP" and len(parts) == 2:
        key = _arrow(parts[0], text, where)
        if key != pa.string():
            raise Unsupported(f"{where}: {text}: Hudi's maps have string keys. Use MAP<STRING, ...>.")
        return pa.map_(key, _arrow(parts[1], text, where))
    if name == "STRUCT" and parts and all(isinstance(p, exp.ColumnDef) and p.kind for p in parts):
        return pa.struct([pa.field(p.name, _arrow(p.kind, text, where)) for p in parts])
    raise Unsupported(
        f"{where}: type {text} is not supported. Hudi has BOOLEAN, INT, BIGINT, FLOAT, DOUBLE, DECIMAL(p, s), STRING, "
        "BINARY, DATE, TIMESTAMP, TIMESTAMP_NTZ, ARRAY<>, MAP<STRING, >, STRUCT<>."
    )
