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
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|milliseconds?|s|sec|seconds?|m|min|minutes?|h|hours?|d|days?)", re.I)


def duration(text: str) -> int:
    """Milliseconds of a duration such as '10 minutes', '30s' or '1.5 hours'; '0' needs no unit."""
    if text == "0":
        return 0
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError("must be a duration such as '10 minutes', '30 s' or '1 hour'")
    unit = match[2].lower()
    return int(float(match[1]) * _UNITS_MS["ms" if unit.startswith(("ms", "mil")) else unit[0]])


def aliased(settings: Mapping[str, str], aliases: Mapping[str, str]) -> dict[str, str]:
    """The settings with the other spellings of names (`aliases`: other name -> name) brought to the names."""
    found = dict(settings)
    for other, name in aliases.items():
        if other in found:
            found.setdefault(name, found[other])
    return found
