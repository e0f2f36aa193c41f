"""What a table property means, in SQL and in the settings of a session: Hudi's keys, Spark's short names, typing errors.

Spark's short names are brought to Hudi's keys. `options_of` reads the properties of a CREATE TABLE and, where they are
silent, the session's settings that say how tables are made. A key that nobody here knows is let through, as Hudi does:
it may be meant for another engine; but one that is almost a known key is refused with the known one.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass

from lakesql import services
from lakesql.errors import SQLError, TableError, Unsupported
from lakesql.sql.nodes import CreateTable
from lakesql.sql.parse_ddl import OVERWRITE_MODE
from lakesql.sql.session import TABLE_PREFIXES
from lakesql.write.create import TYPES
from lakesql.write.settings import SETTINGS, parse_settings

_SYNONYMS = {
    "type": "type",
    "hoodie.table.type": "type",
    "hoodie.datasource.write.table.type": "type",
    "primaryKey": "primary_key",
    "hoodie.table.recordkey.fields": "primary_key",
    "hoodie.datasource.write.recordkey.field": "primary_key",
    "orderingFields": "ordering_fields",
    "preCombineField": "ordering_fields",
    "hoodie.table.ordering.fields": "ordering_fields",
    "hoodie.table.precombine.field": "ordering_fields",
    "hoodie.datasource.write.precombine.field": "ordering_fields",
    "hoodie.table.partition.fields": "partitioned_by",
    "hoodie.datasource.write.partitionpath.field": "partitioned_by",
    "hoodie.write.table.version": "version",
    "hoodie.table.version": "version",
    "hoodie.table.name": "name",
    "recordMergeMode": "hoodie.record.merge.mode",
    "hoodie.write.record.merge.mode": "hoodie.record.merge.mode",
    "recordMergeStrategyId": "hoodie.record.merge.strategy.id",
    "payloadClass": "hoodie.compaction.payload.class",
    "hoodie.datasource.write.payload.class": "hoodie.compaction.payload.class",
    "hoodie.datasource.write.keygenerator.type": "hoodie.table.keygenerator.type",
}
_UNSUPPORTED = {
    "hoodie.datasource.write.keygenerator.class": "name the key generator by hoodie.table.keygenerator.type",
    "hoodie.table.keygenerator.class": "name the key generator by hoodie.table.keygenerator.type",
}
_ABSENT = {
    "hoodie.populate.meta.fields": ("false", "tables without meta columns are read, not written"),
    "hoodie.table.cdc.enabled": ("true", "change data capture is not written yet"),
    "hoodie.datasource.write.drop.partition.columns": ("true", "partition columns are always stored"),
    "hoodie.schema.on.read.enable": ("true", "schema-on-read is read, not written"),
}


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


_FLAGS = (
    "hoodie.datasource.write.hive_style_partitioning",
    "hoodie.datasource.write.partitionpath.urlencode",
    "hoodie.datasource.write.drop.partition.columns",
    "hoodie.datasource.write.reconcile.schema",
    "hoodie.populate.meta.fields",
    "hoodie.schema.on.read.enable",
    "hoodie.table.cdc.enabled",
)
INSERT_OPERATION = "hoodie.spark.sql.insert.into.operation"
_CHOICES: dict[str, tuple[str, ...]] = {
    INSERT_OPERATION: ("insert", "upsert", "bulk_insert"),
    "hoodie.datasource.overwrite.mode": ("static", "dynamic"),
    OVERWRITE_MODE: ("static", "dynamic"),
    **{key: ("6", "8", "9") for key, meaning in _SYNONYMS.items() if meaning == "version"},
    **{key: tuple(TYPES) for key, meaning in _SYNONYMS.items() if meaning == "type"},
    **dict.fromkeys(_FLAGS, ("true", "false")),
}
_OTHERS = (
    "hoodie.combine.before.upsert",
    "hoodie.database.name",
    "hoodie.datasource.write.operation",
    "hoodie.datasource.write.storage.type",
    "hoodie.datasource.write.table.name",
    "hoodie.datasource.write.slash.separated.date.partitioning",
    "hoodie.index.type",
    "hoodie.payload.delete.field",
    "hoodie.payload.delete.marker",
    "hoodie.table.base.file.format",
    "hoodie.table.log.file.format",
    "hoodie.table.ro.file.format",
    "hoodie.table.rt.file.format",
    "hoodie.timeline.layout.version",
    "hoodie.write.concurrency.mode",
    "hoodie.write.record.merge.strategy.id",
)
"""Keys of Hudi that mean nothing to a choice above, and that are known or near to known ones."""

KNOWN = frozenset(
    k
    for k in (*_SYNONYMS, *_UNSUPPORTED, *_ABSENT, *_CHOICES, *_OTHERS, *SETTINGS, *services.SETTINGS)
    if k.startswith(("hoodie.", "lakesql."))
)
_NEAR = (
    0.93  # no key of Hudi 1.2 that is not known here is this similar to a known one; a slip of one or two letters is
)


def require_spelt(key: str, what: str) -> None:
    """SQLError when a key is none of the known ones and almost one of them. `what`: setting, table property."""
    if key in KNOWN:
        return
    near = difflib.get_close_matches(key.lower(), KNOWN, 1, _NEAR)
    if near:
        raise SQLError(f"{what} {key} is unknown; did you mean {near[0]}?")


def check_value(key: str, value: str) -> None:
    """SQLError, TableError or Unsupported for a value that a known setting cannot have, naming both."""
    choices = _CHOICES.get(key)
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
    return {k: v for k, v in settings.items() if k in _SYNONYMS or k in _ABSENT or k.startswith(TABLE_PREFIXES)}


def _names(text: str) -> tuple[str, ...]:
    return tuple(f.strip() for f in text.split(",") if f.strip())


def _meanings(given: Mapping[str, str], what: str) -> tuple[dict[str, str], dict[str, str]]:
    """The fields of Options that some keys name, and the properties to store."""
    fields: dict[str, str] = {}
    properties: dict[str, str] = {}
    for key, value in given.items():
        if key in _UNSUPPORTED:
            raise Unsupported(f"{what} {key}: {_UNSUPPORTED[key]}. Leave it out.")
        refused = _ABSENT.get(key)
        if refused and value.lower() == refused[0]:
            raise Unsupported(f"{what} {key} = {value}: {refused[1]}. Leave it out.")
        meaning = _SYNONYMS.get(key)
        if meaning is None and not key.startswith(("hoodie.", "lakesql.")):
            near = next((k for k in _SYNONYMS if k.lower() == key.lower()), None)
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
