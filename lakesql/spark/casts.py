"""Casts that Spark is about to make and DuckDB would make otherwise, found in the plan that Spark has bound.

Only there are all types known, those of casts that nobody wrote included. A cast that rounds, reads or prints a value in
another way than DuckDB does is refused before anything runs:

    a fraction to an integer     DuckDB rounds, Spark cuts; allowed around round()
    a FLOAT or DOUBLE, a time, a binary or a nested value to a text    other texts
    a text to a time or BOOLEAN  Spark takes more texts than DuckDB; a constant in ISO form is allowed
    a FLOAT or DOUBLE to DECIMAL other rounding of halves

Two equal casts, one in the other, are how `merge_into` marks a value that must not change at all (`exact`).
"""

import re
from collections.abc import Iterator
from typing import Any

from lakesql.errors import Unsupported
from lakesql.spark.translate import ADVICE

_INTEGERS = {"tinyint", "smallint", "int", "bigint"}
_FRACTIONS = {"float", "double"}
_TIMES = {"date", "timestamp", "timestamp_ntz"}
_ISO = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d:\d\d(\.\d{1,6})?(Z|[+-]\d\d(:\d\d)?)?)?")
_WHOLE = {"Round", "RoundCeil", "RoundFloor"}
_CASTS = {"Cast", "AnsiCast"}


def require_same(frame: Any) -> None:
    """Unsupported for the first cast of a data frame that DuckDB would make otherwise."""
    plan = frame._jdf.queryExecution().analyzed()
    if "cast(" not in plan.toString():
        return
    for node in _nodes(plan):
        for expression in _items(node.expressions()):
            _require(expression, "")


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in _items(plan.children()):
        yield from _nodes(child)


def _items(sequence: Any) -> Iterator[Any]:
    """The elements of a Scala sequence."""
    for place in range(sequence.size()):
        yield sequence.apply(place)


def _require(expression: Any, above: str) -> None:
    name = expression.getClass().getSimpleName()
    if name in _CASTS:
        _require_cast(expression, above)
    elif name.endswith("Subquery") or name in ("Exists", "ListQuery"):
        for node in _nodes(expression.plan()):
            for inner in _items(node.expressions()):
                _require(inner, "")
    elif "cast(" not in expression.toString():
        return
    for child in _items(expression.children()):
        _require(child, name)


def _require_cast(cast: Any, above: str) -> None:
    child = cast.child()
    inner = child.getClass().getSimpleName()
    given, wanted = child.dataType().sql().lower(), cast.dataType().sql().lower()
    if inner in _CASTS and given == wanted:
        below = child.child()
        _require_exact(below.dataType().sql().lower(), wanted, _text_of(below))
        return
    why = _changes(given, wanted, inner, _text_of(child), above)
    if why:
        raise Unsupported(
            f"CAST({_shown(child)} AS {wanted.upper()}) from {given.upper()} on Spark is not supported: {why}. {ADVICE}"
        )


def _text_of(expression: Any) -> str | None:
    """The value of a text constant; None for everything else."""
    if expression.getClass().getSimpleName() != "Literal" or expression.dataType().sql() != "STRING":
        return None
    value = expression.value()
    return None if value is None else str(value.toString())


def _changes(given: str, wanted: str, inner: str, text: str | None, above: str) -> str:
    """Why a cast gives another value than in DuckDB; '' when it does not."""
    if given == wanted:
        return ""
    if ("<" in given or "<" in wanted) and given != "void":
        return "the type of a nested value changes"
    fraction = given in _FRACTIONS or (given.startswith("decimal") and not given.endswith(",0)"))
    if wanted in _INTEGERS and fraction and inner not in _WHOLE:
        return "Spark cuts what DuckDB rounds; write CAST(round(x) AS ...) or floor"
    if wanted == "string" and (given in _FRACTIONS or given in _TIMES - {"date"} or "<" in given or given == "binary"):
        return "the engines write such values differently"
    if given == "string" and wanted in (*_TIMES, "boolean"):
        iso = text is not None and (_ISO.fullmatch(text) or (wanted == "boolean" and text in ("true", "false")))
        return "" if iso else "Spark reads more texts than DuckDB"
    if given in _FRACTIONS and wanted.startswith("decimal"):
        return "the engines round halves differently"
    if (given, wanted, above) == ("float", "double", "Divide"):
        return "DuckDB divides FLOAT by FLOAT as FLOAT; cast one to DOUBLE"
    return ""


def _require_exact(given: str, wanted: str, text: str | None) -> None:
    """Unsupported when a value for a key, partition or ordering column might become another one."""
    same = given == wanted or given == "void" or (given in _INTEGERS and wanted in _INTEGERS)
    if (given in _INTEGERS and wanted.startswith("decimal")) or (given == "string" and wanted in _INTEGERS):
        same = True  # what does not fit is an error of Spark's
    if given.startswith("decimal") and wanted.startswith("decimal"):
        same = _scale(given) <= _scale(wanted)
    if text is not None and wanted in _TIMES:
        same = bool(_ISO.fullmatch(text)) and (wanted != "date" or len(text) == 10)
    if not same:
        raise Unsupported(
            f"a record key, partition or ordering column of type {wanted.upper()} gets a value of type {given.upper()} on "
            f"Spark, which could become another value. CAST it to {wanted.upper()} yourself. Nothing was written."
        )


def _scale(kind: str) -> int:
    return int(kind.rstrip(")").split(",")[1])


def _shown(expression: Any) -> str:
    text = re.sub(r"#\d+L?", "", str(expression.toString()))
    return text if len(text) <= 60 else text[:57] + "..."
