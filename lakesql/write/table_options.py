"""What the properties of a new table say: Hudi's keys and Spark's short names, brought to the terms of `create`.

A key that nobody here knows is let through, as Hudi does: it may be meant for another engine.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lakesql.errors import SQLError, Unsupported
from lakesql.write.settings import parse_settings

SYNONYMS = {
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
UNSUPPORTED = {
    "hoodie.datasource.write.keygenerator.class": "name the key generator by hoodie.table.keygenerator.type",
    "hoodie.table.keygenerator.class": "name the key generator by hoodie.table.keygenerator.type",
}
ABSENT = {
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
