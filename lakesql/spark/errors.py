"""Errors of Spark as those that the same statement raises in DuckDB or here: our classes, and our text around Spark's."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import duckdb

from lakesql.errors import CommitConflict, LakeError, SQLError, TableError

_OF_VALUES: dict[str, type[duckdb.Error]] = {
    "CAST_INVALID_INPUT": duckdb.ConversionException,
    "CAST_OVERFLOW": duckdb.ConversionException,
    "CANNOT_PARSE_TIMESTAMP": duckdb.ConversionException,
    "ARITHMETIC_OVERFLOW": duckdb.OutOfRangeException,
    "BINARY_ARITHMETIC_OVERFLOW": duckdb.OutOfRangeException,
    "NUMERIC_VALUE_OUT_OF_RANGE": duckdb.OutOfRangeException,
    "DIVIDE_BY_ZERO": duckdb.InvalidInputException,
    "SCALAR_SUBQUERY_TOO_MANY_ROWS": duckdb.InvalidInputException,
}
_CLASS = re.compile(r"\[([A-Z_]+)(?:\.[A-Z_]+)*\]")
_ADVICE = re.compile(r" (Use `try_\w+`|To (?:tolerate|return)|If necessary set|SQLSTATE)[^\n]*")
_LINES_MAX = 3


@contextmanager
def ours(where: str) -> Iterator[None]:
    """Within, errors of Spark come out as LakeError, or as DuckDB's for values that do not fit. `where` begins the text."""
    try:
        yield
    except (LakeError, duckdb.Error):
        raise
    except Exception as error:
        found = _of(error, where)
        if found is None:
            raise
        raise found from error


def _of(error: Exception, where: str) -> Exception | None:
    kind = type(error).__module__
    if not kind.startswith(("pyspark", "py4j")):
        return None
    text = said(error)
    code = _CLASS.search(_whole(error))
    name = code[1] if code else ""
    if name in _OF_VALUES:
        return _OF_VALUES[name](f"{text}")
    if "USER_RAISED_EXCEPTION" in _whole(error) or "not supported for this text" in text:
        return duckdb.InvalidInputException(text)
    names = {c.__name__ for c in type(error).__mro__}
    if names & {"AnalysisException", "ParseException"}:
        return SQLError(f"{where}: Spark: {text}")
    whole = _whole(error)
    if "HoodieWriteConflictException" in whole:
        return CommitConflict(f"{where}: Spark: {text} Nothing was committed; run the statement again.")
    return TableError(f"{where}: Spark: {text}")


def said(error: Exception) -> str:
    """What an error says, and its innermost cause, without the stack and the advice about settings that are ours."""
    lines = [line.strip() for line in _whole(error).splitlines() if line.strip()]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by:")]
    first = next((line for line in lines if not line.startswith(("at ", "An error occurred"))), type(error).__name__)
    kept = [first, *causes[-1:]][:_LINES_MAX]
    plain = [_ADVICE.sub("", re.sub(r"^:?\s*(?:\w+\.)+\w+(?:Exception|Error): ", "", line)) for line in kept]
    plain = [
        line.removeprefix("Exception thrown in awaitResult: ").removeprefix("Exception thrown in awaitResult:")
        for line in plain
    ]
    text = ": ".join(dict.fromkeys(line.strip() for line in plain if line.strip()))
    return text if text.endswith((".", "!", "?")) else text + "."


def _whole(error: Any) -> str:
    java = getattr(error, "java_exception", None)
    return str(java.toString()) + "\n" + str(error) if java is not None else str(error)
