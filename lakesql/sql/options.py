"""What a table property means, in SQL and in the settings of a session: Hudi's keys, Spark's short names, typing errors.

Spark's short names are brought to Hudi's keys. `options_of` reads the properties of a CREATE TABLE and, where they are
silent, the session's settings that say how tables are made. Keys that nobody here knows: `services.spelling`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from lakesql import services
from lakesql.errors import SQLError, TableError, Unsupported
from lakesql.services.spelling import require_spelt
from lakesql.sql.nodes import CreateTable
from lakesql.sql.session import TABLE_PREFIXES
from lakesql.write.names_of_settings import ABSENT, CHOICES, SYNONYMS, UNSUPPORTED
from lakesql.write.settings import parse_settings


@dataclass(frozen=True, slots=True)
class Options:
    """What the properties of a CREATE TABLE say. `given`: which of the fields were named."""

    type: str
    primary_key: tuple[str, ...]
    ordering_fields: tuple[str, ...]
    partitioned_by: tuple[str, ...]
    version: int
    name: str
    properties: Mapping[str, str]
    given: frozenset[str]


def check_value(key: str, value: str) -> None:
    """SQLError, TableError or Unsupported for a value that a known setting cannot have, naming both."""
    choices = CHOICES.get(key)
    if choices and value.lower() not in choices:
        raise SQLError(f"setting {key} = {value!r}: use one of {', '.join(choices)}.")
    parse_settings({key: value})
    if parse := services.SETTINGS.get(key):
        try:
            parse(value.strip())
        except ValueError as error:
            raise TableError(f"setting {key} = {value!r}: {error}. Correct the value or RESET {key}.") from error


def options_of(statement: CreateTable, name: str, settings: Mapping[str, str] | None = None) -> Options:
    """The properties in Hudi's terms; what they do not say is taken from the session's `settings`.

    SQLError for contradictions and unknown short names, Unsupported by name.
    """
    fields, properties = _meanings(statement.properties, "table property")
    parse_settings(properties)
    if statement.partitioned_by and "partitioned_by" in fields:
        if _names(fields["partitioned_by"]) != tuple(statement.partitioned_by):
            raise SQLError("PARTITIONED BY and the property of the partition fields contradict each other.")
    elif statement.partitioned_by:
        fields["partitioned_by"] = ",".join(statement.partitioned_by)
    more_fields, more_properties = _meanings(_creating(settings or {}), "setting")
    fields = more_fields | fields
    version = fields.get("version", "9")
    if not version.isdigit():
        raise SQLError(f"table version {version!r} is not a number; use 6, 8 or 9.")
    return Options(
        fields.get("type", "cow").lower(),
        _names(fields.get("primary_key", "")),
        _names(fields.get("ordering_fields", "")),
        tuple(statement.partitioned_by) or _names(fields.get("partitioned_by", "")),
        int(version),
        fields.get("name", name),
        more_properties | properties,
        frozenset(fields),
    )


def _creating(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings that say how tables are made."""
    return {k: v for k, v in settings.items() if k in SYNONYMS or k in ABSENT or k.startswith(TABLE_PREFIXES)}


def _names(text: str) -> tuple[str, ...]:
    return tuple(f.strip() for f in text.split(",") if f.strip())


def _meanings(given: Mapping[str, str], what: str) -> tuple[dict[str, str], dict[str, str]]:
    """The fields of Options that some keys name, and the properties to store."""
    fields: dict[str, str] = {}
    properties: dict[str, str] = {}
    for key, value in given.items():
        if key in UNSUPPORTED:
            raise Unsupported(f"{what} {key}: {UNSUPPORTED[key]}. Leave it out.")
        refused = ABSENT.get(key)
        if refused and value.lower() == refused[0]:
            raise Unsupported(f"{what} {key} = {value}: {refused[1]}. Leave it out.")
        meaning = SYNONYMS.get(key)
        if meaning is None and not key.startswith(("hoodie.", "lakesql.")):
            near = next((k for k in SYNONYMS if k.lower() == key.lower()), None)
            known = "type, primaryKey, orderingFields, preCombineField, recordMergeMode, payloadClass"
            raise SQLError(
                f"{what} {key} is unknown; "
                + (f"did you mean {near}?" if near else f"use {known} or a key that begins with hoodie.")
            )
        require_spelt(key, what)
        into = properties if meaning is None or meaning.startswith("hoodie.") else fields
        meaning = meaning or key
        if into.get(meaning, value) != value:
            raise SQLError(f"{what} {key} = {value} contradicts {into[meaning]}, given under another name.")
        into[meaning] = value
    return fields, properties
