"""Parsers of the values that settings of an ingestion have beyond those of writes: lists, patterns, units, times, names."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from lakesql.values import duration, one_of

UNITS_S = {
    "NANOSECONDS": 1e-9,
    "MICROSECONDS": 1e-6,
    "MILLISECONDS": 1e-3,
    "SECONDS": 1.0,
    "MINUTES": 60.0,
    "HOURS": 3600.0,
    "DAYS": 86400.0,
}


def words(text: str) -> tuple[str, ...]:
    """A list with commas."""
    return tuple(part for part in (p.strip() for p in text.split(",")) if part)


def patterns(text: str) -> tuple[str, ...]:
    """A comma list of regular expressions; each must compile, and have its braces closed as Java asks for."""
    for pattern in (found := words(text)):
        plain = re.sub(r"\\.|\[[^\]]*\]", "", pattern)
        wrong = "" if plain.count("{") == plain.count("}") else "a brace is not closed"
        try:
            re.compile(pattern, re.IGNORECASE)
        except re.error as error:
            wrong = str(error)
        if wrong:
            raise ValueError(
                f"{pattern!r} is not a regular expression ({wrong}); commas separate expressions and cannot be part of one"
            )
    return found


def positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ValueError("must be a number above 0")
    return value


def number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not -float("inf") < value < float("inf"):
        raise ValueError("must be a number")
    return value


def at_least_one(text: str) -> float:
    if (value := positive(text)) < 1:
        raise ValueError("must be a number of at least 1")
    return value


def percent(text: str) -> float:
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = -1.0
    if not 0 <= value <= 100:
        raise ValueError("must be a percentage between 0 and 100")
    return value


def unit(text: str) -> float:
    """Seconds of a unit of time, by its Java name."""
    if text.upper() not in UNITS_S:
        raise ValueError(f"must be one of {', '.join(name.lower() for name in UNITS_S)}")
    return UNITS_S[text.upper()]


def seconds(text: str) -> float:
    """A span of time in seconds; a bare number is seconds."""
    return float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else duration(text) / 1000


def span_or_off(text: str) -> float | None:
    return None if text.lower() in ("off", "0", "none") else seconds(text)


def upper_of(*names: str) -> Callable[[str], str]:
    lower = one_of(*(name.lower() for name in names))
    return lambda text: lower(text).upper()


def moment(text: str) -> int:
    """Milliseconds since 1970 of a time; without an offset it is UTC."""
    if re.fullmatch(r"\d+", text):
        return int(text)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("must be a time such as 2024-05-01T12:00:00 or milliseconds since 1970") from None
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def function(text: str) -> str:
    """A Python function as module:function."""
    if not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", text):
        raise ValueError("must name a Python function as module:function; Java classes cannot be loaded")
    return text


def zone(text: str) -> str:
    try:
        ZoneInfo(text)
    except (KeyError, ValueError, OSError):
        raise ValueError("must be the name of a time zone such as UTC or America/Los_Angeles") from None
    return text
