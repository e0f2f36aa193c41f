"""The values of settings: from text to a typed field, for settings of writes and of table services alike."""

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
