"""What a table property means, in SQL and in the settings of a session: Hudi's keys, Spark's short names, typing errors.

Spark's short names are brought to Hudi's keys (`write.table_options`). `options_of` reads the properties of a CREATE TABLE and, where they are
silent, the session's settings that say how tables are made. A key that nobody here knows is let through, as Hudi does:
it may be meant for another engine; but one that is almost a known key is refused with the known one.
"""

import difflib
from collections.abc import Mapping

from lakesql import services
from lakesql.errors import SQLError, TableError
from lakesql.sql.nodes import CreateTable
from lakesql.sql.parse_ddl import OVERWRITE_MODE
from lakesql.sql.session import TABLE_PREFIXES
from lakesql.write.create import TYPES
from lakesql.write.settings import SETTINGS, parse_settings
from lakesql.write.table_options import ABSENT, SYNONYMS, UNSUPPORTED, Options, new_table_options

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
    **{key: ("6", "8", "9") for key, meaning in SYNONYMS.items() if meaning == "version"},
    **{key: tuple(TYPES) for key, meaning in SYNONYMS.items() if meaning == "type"},
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
    for k in (*SYNONYMS, *UNSUPPORTED, *ABSENT, *_CHOICES, *_OTHERS, *SETTINGS, *services.SETTINGS)
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
    return new_table_options(
        statement.properties, statement.partitioned_by, name, _creating(settings or {}), require_spelt
    )


def _creating(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings that say how tables are made."""
    return {k: v for k, v in settings.items() if k in SYNONYMS or k in ABSENT or k.startswith(TABLE_PREFIXES)}
