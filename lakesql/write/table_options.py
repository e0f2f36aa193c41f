"""What the properties of a new table say: Hudi's keys and Spark's short names, brought to the terms of `create`.

A key that nobody here knows is let through, as Hudi does: it may be meant for another engine.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import pyarrow as pa

from lakesql.errors import SQLError, Unsupported
from lakesql.storage import Storage
from lakesql.table.state import TableState
from lakesql.write.create import create
from lakesql.write.names_of_settings import ABSENT, SYNONYMS, UNSUPPORTED
from lakesql.write.settings import parse_settings

_NEAR = 0.75


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


def new_table_options(
    properties: Mapping[str, str],
    partitioned_by: Sequence[str],
    name: str,
    settings: Mapping[str, str] | None = None,
    require_spelt: Callable[[str, str], None] = lambda key, what: None,  # noqa: ARG005
) -> Options:
    """The properties in Hudi's terms; what they do not say is taken from `settings`, which say how tables are made.

    `require_spelt(key, what)` may refuse a key of Hudi or ours. SQLError for contradictions and unknown short names,
    Unsupported by name.
    """
    fields, stored = _meanings(properties, "table property", require_spelt)
    parse_settings(stored)
    if partitioned_by and "partitioned_by" in fields:
        if _names(fields["partitioned_by"]) != tuple(partitioned_by):
            raise SQLError("PARTITIONED BY and the property of the partition fields contradict each other.")
    elif partitioned_by:
        fields["partitioned_by"] = ",".join(partitioned_by)
    more_fields, more_properties = _meanings(settings or {}, "setting", require_spelt)
    fields = more_fields | fields
    version = fields.get("version", "9")
    if not version.isdigit():
        raise SQLError(f"table version {version!r} is not a number; use 6, 8 or 9.")
    return Options(
        fields.get("type", "cow").lower(),
        _names(fields.get("primary_key", "")),
        _names(fields.get("ordering_fields", "")),
        tuple(partitioned_by) or _names(fields.get("partitioned_by", "")),
        int(version),
        fields.get("name", name),
        more_properties | stored,
        frozenset(fields),
    )


def create_as(storage: Storage, schema: pa.Schema, options: Options) -> TableState:
    """Create the table; names are found in any case, partition columns come last, as in Spark."""
    by_name = {n.lower(): n for n in schema.names}

    def spelt(fields: Sequence[str]) -> list[str]:
        return [by_name.get(f.lower(), f) for f in fields]

    partitioned_by = spelt(options.partitioned_by)
    last = [f for f in partitioned_by if f in schema.names]
    ordered = pa.schema([f for f in schema if f.name not in last] + [schema.field(f) for f in last])
    return create(
        storage,
        ordered,
        name=options.name,
        type=options.type,
        primary_key=spelt(options.primary_key),
        ordering_fields=spelt(options.ordering_fields),
        partitioned_by=partitioned_by,
        version=options.version,
        properties=options.properties,
    )


def _near_short_name(key: str) -> str | None:
    """The short name, or else the whole key, that a name is almost."""
    by_lower = {k.lower(): k for k in sorted(SYNONYMS, key=lambda k: "." not in k)}
    found = get_close_matches(key.lower(), by_lower, 1, _NEAR)
    return by_lower[found[0]] if found else None


def _names(text: str) -> tuple[str, ...]:
    return tuple(f.strip() for f in text.split(",") if f.strip())


def _meanings(
    given: Mapping[str, str], what: str, require_spelt: Callable[[str, str], None]
) -> tuple[dict[str, str], dict[str, str]]:
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
            near = _near_short_name(key)
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
