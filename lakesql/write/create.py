"""Creating a table: one file, `hoodie.properties`, with everything that other engines need to find in it (C.2, 1.8).

Nothing else makes a table: until the first commit it has no rows and its schema is the one stored here.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pyarrow as pa

from lakesql.errors import TableError, Unsupported
from lakesql.format.avro import avro_schema
from lakesql.format.config import COMMIT_TIME_STRATEGY, EVENT_TIME_STRATEGY
from lakesql.format.metadata import TableConfig, format_properties, new_table_properties
from lakesql.storage import LOCK_FOLDER, Storage
from lakesql.table import merge, mergers
from lakesql.table.keys import partition_path_sql, record_key_sql
from lakesql.table.state import HOODIE, PROPERTIES, TableState, load
from lakesql.write.check import reserved, unwritable

TYPES = {
    "cow": "COPY_ON_WRITE",
    "mor": "MERGE_ON_READ",
    "copy_on_write": "COPY_ON_WRITE",
    "merge_on_read": "MERGE_ON_READ",
}

_CREATED = ".created"

_MODE, _STRATEGY = "hoodie.record.merge.mode", "hoodie.record.merge.strategy.id"
_HIVE_STYLE, _URL_ENCODE = (
    "hoodie.datasource.write.hive_style_partitioning",
    "hoodie.datasource.write.partitionpath.urlencode",
)


def create(
    storage: Storage,
    schema: pa.Schema,
    *,
    name: str,
    type: str = "cow",  # noqa: A002  the word users type
    primary_key: Sequence[str] = (),
    ordering_fields: Sequence[str] = (),
    partitioned_by: Sequence[str] = (),
    version: int = 9,
    properties: Mapping[str, str] | None = None,
) -> TableState:
    """Create an empty table. `type` is cow or mor; without `primary_key` keys are generated; `properties` are stored.

    The merge mode is CUSTOM when a merger is named, else event time when there are ordering fields, else commit time;
    `hoodie.record.merge.mode` decides otherwise. TableError when a table is there, or a named column is missing or
    unfit; Unsupported for what lakesql does not write to.
    """
    where = f"{storage.uri}: new table {name}"
    _check_arguments(where, name, schema, version, primary_key, ordering_fields, partitioned_by, properties)
    if not isinstance(type, str) or type.lower() not in TYPES:
        raise TableError(f"{where}: type {type!r} is unknown. Use cow or mor.")
    if storage.stat(PROPERTIES) is not None:
        raise TableError(f"{storage.uri}: there is a Hudi table already. Drop it first, or choose another path.")
    if any(not _of_creating(info.path) for info in storage.walk(HOODIE)):
        raise TableError(
            f"{storage.uri}: there is a folder {HOODIE} without hoodie.properties, what is left of a Hudi table. "
            "Restore the file, remove the folder, or choose another path."
        )
    _check_columns(where, schema, (*primary_key, *ordering_fields, *(f.split(":")[0] for f in partitioned_by)))
    extra = dict(properties or {})
    mode = extra.pop(_MODE, None) or _implied_mode(extra, ordering_fields)
    with _named(where):
        stored = new_table_properties(
            name=name,
            table_type=TYPES[type.lower()],
            version=version,
            record_key_fields=tuple(primary_key),
            partition_fields=tuple(partitioned_by),
            ordering_fields=tuple(ordering_fields),
            merge_mode=mode.upper(),
            schema_json=json.dumps(avro_schema(schema, name), separators=(",", ":")),
            hive_style=extra.pop(_HIVE_STYLE, "true").lower() == "true",
            url_encode=extra.pop(_URL_ENCODE, "false").lower() == "true",
            extra=extra,
        )
    text = format_properties(stored, "Properties saved by lakesql")
    config = TableConfig.from_text(text, f"{where}: hoodie.properties")
    if feature := unwritable(config):
        raise Unsupported(f"{where}: {feature}, and lakesql cannot write to such a table. Leave that property out.")
    _check_keys(where, config, schema)
    if version >= 8:
        _make_folder(storage, f"{config.history_folder}")
    if not storage.put_if_absent(PROPERTIES, text.encode("latin-1")):
        raise TableError(
            f"{storage.uri}: another process created a Hudi table here just now. Open it, or choose another path."
        )
    return load(storage)


def _implied_mode(properties: Mapping[str, str], ordering_fields: Sequence[str]) -> str:
    strategy = properties.get(_STRATEGY, "")
    if mergers.PROPERTY in properties or strategy not in ("", EVENT_TIME_STRATEGY, COMMIT_TIME_STRATEGY):
        return merge.CUSTOM
    return (
        merge.EVENT_TIME if strategy == EVENT_TIME_STRATEGY or (ordering_fields and not strategy) else merge.COMMIT_TIME
    )


@contextmanager
def _named(where: str) -> Iterator[None]:
    """Refusals of the format layer, which does not know the table, with its name."""
    try:
        yield
    except (TableError, Unsupported) as error:
        raise type(error)(f"{where}: {error}") from error


def _check_arguments(
    where: str,
    name: object,
    schema: object,
    version: object,
    primary_key: object,
    ordering_fields: object,
    partitioned_by: object,
    properties: object,
) -> None:
    """TableError for an argument of a wrong type, or a column named twice."""
    if not isinstance(name, str) or not name:
        raise TableError(f"{where}: the name must be a text that is not empty.")
    if not isinstance(schema, pa.Schema):
        raise TableError(f"{where}: the schema must be a pyarrow.Schema, found {schema.__class__.__name__}.")
    if not isinstance(version, int):
        raise TableError(f"{where}: the version must be a number (6, 8 or 9), found {version!r}.")
    columns = {"primary_key": primary_key, "ordering_fields": ordering_fields, "partitioned_by": partitioned_by}
    for argument, found in columns.items():
        if not isinstance(found, list | tuple) or not all(isinstance(c, str) for c in found):
            raise TableError(f"{where}: {argument} must be a list of column names, found {found!r}.")
        twice = [c for c, count in Counter(found).items() if count > 1]
        if twice:
            raise TableError(f"{where}: {argument} names column {twice[0]} twice. Name it once.")
    if properties is not None and not isinstance(properties, Mapping):
        raise TableError(f"{where}: properties must be a dict of text to text, found {properties!r}.")
    for key, value in (properties or {}).items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TableError(f"{where}: property {key!r} = {value!r}: key and value must be texts.")


def _check_columns(where: str, schema: pa.Schema, named: Sequence[str]) -> None:
    if not schema.names:
        raise TableError(f"{where}: it has no columns. Give at least one.")
    twice = [n for n, count in Counter(c.lower() for c in schema.names).items() if count > 1]
    if twice:
        raise TableError(
            f"{where}: column {twice[0]} is there twice (names differ in case only at most). Rename one of them."
        )
    if taken := reserved(schema.names):
        raise TableError(f"{where}: the column name {taken[0]} is reserved. Rename it.")
    missing = [c for c in named if c not in schema.names and c.split(".")[0] not in schema.names]
    if missing:
        raise TableError(f"{where}: there is no column {missing[0]}; the columns are {', '.join(schema.names)}.")
    if "_hoodie_is_deleted" in schema.names and not schema.field("_hoodie_is_deleted").type.equals(pa.bool_()):
        raise TableError(f"{where}: column _hoodie_is_deleted must be boolean; it marks rows to delete.")


def _check_keys(where: str, config: TableConfig, schema: pa.Schema) -> None:
    """Keys must be spellable now, not at the first write."""
    if config.record_key_fields:
        record_key_sql(config, schema)
    elif config.merge_mode == "EVENT_TIME_ORDERING":
        raise TableError(
            f"{where}: without a primary key rows never meet, so there is nothing to order by. Name a primary key, or "
            "no ordering field."
        )
    partition_path_sql(config, schema)
    for field in config.ordering_fields:
        if field in schema.names and pa.types.is_nested(schema.field(field).type):
            raise Unsupported(
                f"{where}: ordering field {field} has type {schema.field(field).type}, which has no order. Choose "
                "another column."
            )


def _make_folder(storage: Storage, folder: str) -> None:
    """Spark lists the timeline folder before it writes into it; a local file system must have it."""
    storage.put(f"{folder}/{_CREATED}", b"")
    storage.delete(f"{folder}/{_CREATED}")


def _of_creating(path: str) -> bool:
    """Whether a file is what is left of a `create` that died, or a lock: nothing that anybody would miss."""
    return path.rsplit("/", 1)[-1] == _CREATED or path.startswith(f"{LOCK_FOLDER}/")
