"""The values of settings: from text to a typed field, for settings of writes and of table services alike."""

import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from lakesql.errors import TableError

Config = TypeVar("Config")
Parse = Callable[[str], Any]
"""A value from its text; ValueError says what it must be."""


def parsed(kind: type[Config], by_field: Mapping[str, tuple[str, Parse]], settings: Mapping[str, str]) -> Config:
    """A dataclass from settings: `by_field` gives each field its setting and its parser; absent ones keep the default.

    TableError names the setting and its value.
    """
    values: dict[str, Any] = {}
    for field in fields(kind):  # type: ignore[arg-type]
        name, parse = by_field[field.name]
        if name in settings:
            try:
                values[field.name] = parse(str(settings[name]).strip())
            except ValueError as error:
                raise TableError(
                    f"setting {name} = {settings[name]!r}: {error}. Correct the value or RESET {name}."
                ) from error
    return kind(**values)


def whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("must be a whole number") from None


def size(minimum: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = whole(text)
        if value < minimum:
            raise ValueError(f"must be at least {minimum}")
        return value

    return parse


def fraction(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise ValueError("must be a number between 0 and 1")
    return value


def flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("must be true or false")
    return text.lower() == "true"


def one_of(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return text.lower()

    return parse


_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART = re.compile(
    r"(\d+(?:\.\d+)?)\s*(ms|milliseconds?|s|secs?|seconds?|m|mins?|minutes?|h|hours?|d|days?)\b\s*", re.I
)
_CLOCK = re.compile(r"(\d+):([0-5]\d):([0-5]\d(?:\.\d+)?)\s*")


def duration(text: str) -> int:
    """Milliseconds of a span of time: '10 minutes', '30s', '1 day 2 hours', '01:30:00'; '0' needs no unit. ValueError else."""
    at, total = 0, 0.0
    while at < len(text) and text != "0":
        if part := _PART.match(text, at):
            unit = part[2].lower()
            total += float(part[1]) * _UNITS_MS["ms" if unit.startswith(("ms", "mil")) else unit[0]]
        elif part := _CLOCK.match(text, at):
            total += (int(part[1]) * 3600 + int(part[2]) * 60 + float(part[3])) * 1000
        else:
            break
        at = part.end()
    if text != "0" and (at == 0 or at < len(text)):
        raise ValueError("must be a span of time such as '30s', '15 minutes' or '2 hours'")
    return round(total)


def aliased(settings: Mapping[str, str], aliases: Mapping[str, str]) -> dict[str, str]:
    """The settings with the other spellings of names (`aliases`: other name -> name) brought to the names."""
    found = dict(settings)
    for other, name in aliases.items():
        if other in found:
            found.setdefault(name, found[other])
    return found
