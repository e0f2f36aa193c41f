"""DuckDB's SQL brought to Spark's, where both are known to mean the same. Pure.

What is not in the lists here is refused by name: a function of the same name that rounds, sorts or counts otherwise would
be a silent difference. Expressions without columns are no matter of translation: DuckDB works them out here (`Constant`)
and Spark gets the value. Casts that mean different things depend on types, which nobody knows before Spark has
bound the statement: `casts` looks at them there.
"""

import re
from collections.abc import Callable
from typing import cast

import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel, SqlglotError

from lakesql.errors import Unsupported
from lakesql.sql.lexer import tokens
from lakesql.sql.stage import ROW

Constant = Callable[[str], tuple[str | None, str] | None]
"""The value of an expression without columns, as text, and its type, both as DuckDB spells them; None for one that is
not the same each time, or an aggregate."""

ADVICE = 'Run it on engine="duckdb", or compute it before in a table of DuckDB (CREATE TEMP TABLE ... AS).'
_ROW_NAME = ROW.strip('"')
_NUMBER = re.compile(r"[\d_]+(\.[\d_]*)?([eE][+-]?\d+)?|\.\d[\d_]*([eE][+-]?\d+)?")

_STRUCTURE: tuple[type, ...] = (
    exp.Select, exp.From, exp.Join, exp.Where, exp.Group, exp.Having, exp.Order, exp.Ordered, exp.Limit, exp.Offset,
    exp.Union, exp.Except, exp.Intersect, exp.Subquery, exp.With, exp.CTE, exp.Table, exp.TableAlias, exp.Values,
    exp.Column, exp.Identifier, exp.Star, exp.Alias, exp.Tuple, exp.Qualify, exp.Window, exp.WindowSpec, exp.Distinct,
    exp.Filter,
)  # fmt: skip
_EXPRESSIONS: tuple[type, ...] = (
    exp.Literal, exp.Null, exp.Boolean, exp.Paren, exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT,
    exp.GTE, exp.Is, exp.NullSafeEQ, exp.NullSafeNEQ, exp.In, exp.Between, exp.Exists, exp.Case, exp.If, exp.Coalesce,
    exp.Nullif, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg, exp.Cast, exp.DataType, exp.DataTypeParam,
    exp.DPipe, exp.Concat, exp.Like, exp.ILike, exp.Escape, exp.Collate, exp.Var, exp.Dot, exp.ColumnDef,
)  # fmt: skip
_FUNCTIONS: tuple[type, ...] = (
    exp.Count, exp.CountIf, exp.Sum, exp.Min, exp.Max, exp.Avg, exp.LogicalAnd, exp.LogicalOr, exp.RowNumber, exp.Rank,
    exp.DenseRank, exp.Lag, exp.Lead, exp.Upper, exp.Lower, exp.Length, exp.Substring, exp.StartsWith, exp.Abs,
    exp.Round, exp.Greatest, exp.Least, exp.Year, exp.Month, exp.Day, exp.MD5,
)  # fmt: skip
_ALLOWED = frozenset((*_STRUCTURE, *_EXPRESSIONS, *_FUNCTIONS))

FUNCTIONS = tuple(sorted(f.sql_names()[0].lower() for f in _FUNCTIONS if issubclass(f, exp.Func)))
"""Functions that mean the same on both engines, for the documents."""

_TYPES = {
    "BOOLEAN": "BOOLEAN", "TINYINT": "TINYINT", "SMALLINT": "SMALLINT", "INT": "INT", "BIGINT": "BIGINT", "FLOAT": "FLOAT",
    "DOUBLE": "DOUBLE", "DECIMAL": "DECIMAL", "VARCHAR": "STRING", "TEXT": "STRING", "DATE": "DATE",
    "TIMESTAMP": "TIMESTAMP_NTZ", "TIMESTAMPNTZ": "TIMESTAMP_NTZ", "TIMESTAMPTZ": "TIMESTAMP", "VARBINARY": "BINARY",
    "INT128": "DECIMAL(38, 0)",
    **{nested: nested for nested in ("ARRAY", "LIST", "STRUCT", "MAP")},
}  # fmt: skip
_CONSTANT_TYPES = re.compile(
    r"BOOLEAN|(TINY|SMALL|BIG|HUGE)INT|INTEGER|FLOAT|DOUBLE|DECIMAL\(\d+,\s*\d+\)|VARCHAR|DATE|TIMESTAMP|TIMESTAMP WITH TIME ZONE"
)
_CLOSED = (exp.Column, exp.Star, exp.Query, exp.Window, exp.AggFunc, exp.Table)
# Case mapping of other letters depends on the library: ß becomes ẞ in DuckDB and SS in Java.
_SAME_CASE = r"^[\x00-\x7FÀ-ÖØ-Þà-öø-þ&&[^ß]]*$"


def parsed(text: str) -> exp.Expression:
    """A query of DuckDB's. Unsupported when it cannot be looked into."""
    for token in tokens(text):
        if token.kind == "number" and not _NUMBER.fullmatch(token.text):
            raise Unsupported(f"the number {token.text} on Spark is not supported. Write it in decimal.")
    try:
        found = sqlglot.parse_one(text, read="duckdb")
    except SqlglotError as error:
        detail = str(error).splitlines()[0]
        raise Unsupported(f"the statement cannot be brought to Spark: {detail}. {ADVICE}") from error
    if not isinstance(found, exp.Query):
        raise Unsupported(f"{_first_word(text)} on Spark is not supported. {ADVICE}")
    return cast(exp.Expression, found)


def spark_sql(tree: exp.Expression, constant: Constant, columns: list[str] | None = None) -> str:
    """The query in Spark's SQL. `columns`: the names of its result, for * EXCLUDE. Unsupported names what stays out."""
    tree = _without_lateral(tree)
    tree = _stars(tree, columns)
    tree = _folded(tree, constant)
    for node in tree.walk():
        _require_same(node)
    tree = tree.transform(_changed)
    try:
        return tree.sql("spark", identify=True, unsupported_level=ErrorLevel.RAISE)
    except SqlglotError as error:
        raise Unsupported(f"the statement cannot be brought to Spark: {error}. {ADVICE}") from error


def literal_of(value: str | None, kind: str, shown: str) -> exp.Expression:
    """A value as Spark's expression. Unsupported for a type whose values have no text that both read alike."""
    if value is None:
        return exp.null()
    if not _CONSTANT_TYPES.fullmatch(kind):
        raise Unsupported(f"{shown} is a value of type {kind}, which cannot be given to Spark. {ADVICE}")
    typed = exp.DataType.build(kind, dialect="duckdb")
    if kind == "VARCHAR":
        return exp.Literal.string(value)
    if kind == "TIMESTAMP WITH TIME ZONE":
        value = re.sub(r"([+-]\d\d)$", r"\1:00", value)
    return exp.Cast(this=exp.Literal.string(value), to=typed)


def _without_lateral(tree: exp.Expression) -> exp.Expression:
    """A MERGE picks its clause in a LATERAL, which Spark takes behind few joins: here the choice stands where it is used."""
    for lateral in list(tree.find_all(exp.Lateral)):
        select = lateral.find_ancestor(exp.Select)
        inner = lateral.this.this if isinstance(lateral.this, exp.Subquery) else None
        if select is None or inner is None or len(inner.expressions) != 1 or inner.args.get("from_"):
            raise Unsupported(f"LATERAL on Spark is not supported. {ADVICE}")
        name, value = inner.expressions[0].alias, inner.expressions[0].this
        join = lateral.find_ancestor(exp.Join)
        if join is not None:
            join.pop()
        for column in list(select.find_all(exp.Column)):
            if column.name == name:
                column.replace(exp.paren(value.copy()))
    return tree


def _stars(tree: exp.Expression, columns: list[str] | None) -> exp.Expression:
    """`SELECT * EXCLUDE (...)` alone, with the columns that are left."""
    first = tree.expressions[0] if isinstance(tree, exp.Select) and len(tree.expressions) == 1 else None
    star = first.this if isinstance(first, exp.Column) else first
    if isinstance(star, exp.Star) and columns and (star.args.get("except_") or star.args.get("except")):
        tree.set("expressions", [exp.column(c, quoted=True) for c in columns])
    return tree


def _folded(tree: exp.Expression, constant: Constant) -> exp.Expression:
    """Functions and casts without columns, worked out by DuckDB: the largest expressions first."""

    def fold(node: exp.Expression) -> exp.Expression:
        if not _worth_folding(node) or any(isinstance(n, _CLOSED) for n in node.walk()):
            return node
        text = node.sql("duckdb")
        found = constant(text)
        return node if found is None else literal_of(*found, text)

    return tree.transform(fold)


def _worth_folding(node: exp.Expression) -> bool:
    if isinstance(node, exp.DataType | exp.Literal | exp.Null | exp.Boolean | exp.Paren | exp.Tuple):
        return False
    if isinstance(node.parent, exp.Table | exp.Lateral | exp.Window):
        return False
    return isinstance(node, exp.Func | exp.Cast | exp.Interval | exp.Bracket | exp.Binary) and not isinstance(
        node, exp.Connector | exp.Dot | exp.PropertyEQ
    )


def _require_same(node: exp.Expr) -> None:
    name = node.sql_names()[0].lower() + "()" if isinstance(node, exp.Func) else type(node).__name__
    if isinstance(node, exp.Anonymous):
        name = f"{node.name.lower()}()"
    if type(node) not in _ALLOWED:
        raise Unsupported(f"{name} is not known to mean the same in DuckDB and on Spark. {ADVICE}")
    wrong = _wrong(node)
    if wrong:
        raise Unsupported(f"{wrong} is not supported on Spark. {ADVICE}")


def _wrong(node: exp.Expr) -> str:
    """What about a node of an allowed kind is not allowed, or ''."""
    args = node.args
    if isinstance(node, exp.Star) and any(args.get(k) for k in ("except_", "except", "replace", "rename")):
        return "* with EXCLUDE or REPLACE, unless it is all that the statement selects,"
    if isinstance(node, exp.Join) and (
        args.get("method") or (args.get("kind") or "").upper() not in ("", "INNER", "OUTER", "CROSS", "SEMI", "ANTI")
    ):
        return f"{args.get('method') or args.get('kind')} JOIN"
    if isinstance(node, exp.SetOperation) and (args.get("by_name") or args.get("side") or args.get("kind")):
        return "UNION BY NAME"
    if isinstance(node, exp.Distinct) and args.get("on"):
        return "DISTINCT ON"
    if isinstance(node, exp.With) and args.get("recursive"):
        return "WITH RECURSIVE"
    if isinstance(node, exp.Group) and any(args.get(k) for k in ("cube", "rollup", "grouping_sets", "totals")):
        return "GROUP BY with ROLLUP, CUBE or GROUPING SETS"
    if isinstance(node, exp.Limit | exp.Offset) and not isinstance(node.expression, exp.Literal):
        return "LIMIT by an expression"
    if isinstance(node, exp.Order) and any(
        e.name.upper() == "ALL" and not e.this.args.get("quoted") for e in node.expressions
    ):
        return "ORDER BY ALL"
    if isinstance(node, exp.Round) and args.get("decimals"):
        return "round() with digits, which rounds other numbers"
    if isinstance(node, exp.Substring):
        start, length = args.get("start"), args.get("length")
        whole = [n for n in (start, length) if n is not None]
        if (
            start is None
            or not all(isinstance(n, exp.Literal) and n.name.isdigit() for n in whole)
            or start.name == "0"
        ):
            return "substring() whose place is no positive number"
    if isinstance(node, exp.DataType) and node.this.value not in _TYPES:
        return f"the type {node.sql('duckdb')}"
    if isinstance(node, exp.Cast) and type(node) is not exp.Cast:
        return "TRY_CAST"
    if isinstance(node, exp.Lag | exp.Lead) and args.get("ignore_nulls"):
        return "IGNORE NULLS"
    return ""


def _changed(node: exp.Expression) -> exp.Expression:
    """What Spark writes otherwise."""
    if type(node) is exp.Div:
        double = exp.DataType.build("DOUBLE")
        return exp.Div(
            this=exp.cast(node.this, double, copy=False), expression=exp.cast(node.expression, double, copy=False)
        )
    if isinstance(node, exp.Avg):
        return exp.Avg(this=exp.cast(node.this, exp.DataType.build("DOUBLE"), copy=False))
    if isinstance(node, exp.Collate):
        return cast(exp.Expression, node.this)
    if isinstance(node, exp.Like | exp.ILike) and not isinstance(node.parent, exp.Escape):
        # Without ESCAPE DuckDB has no escape character and Spark has the backslash.
        kept = type(node)(this=node.this, expression=node.expression)
        return exp.Escape(this=kept, expression=exp.Literal.string("\x01"))
    if isinstance(node, exp.Upper | exp.Lower) and not node.meta.get("checked"):
        return _checked_case(node)
    if (
        isinstance(node, exp.Window)
        and isinstance(node.this, exp.RowNumber)
        and node.parent
        and node.parent.alias == _ROW_NAME
    ):
        return exp.Anonymous(this="monotonically_increasing_id")
    return node


def _checked_case(node: exp.Expression) -> exp.Expression:
    value = node.this
    kept = type(node)(this=value.copy())
    kept.meta["checked"] = True
    fits = exp.RegexpLike(this=value.copy(), expression=exp.Literal.string(_SAME_CASE))
    said = exp.Literal.string(
        "upper() and lower() on Spark are not supported for this text: case mapping of its letters differs from DuckDB's"
    )
    raised = exp.Anonymous(this="raise_error", expressions=[said])
    return exp.Case(
        ifs=[
            exp.If(this=exp.Is(this=value.copy(), expression=exp.null()), true=exp.null()),
            exp.If(this=fits, true=kept),
        ],
        default=raised,
    )


def _first_word(text: str) -> str:
    found = tokens(text)
    return found[0].text.upper() if found else "the statement"
