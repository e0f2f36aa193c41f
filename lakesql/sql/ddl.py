"""CREATE TABLE ... USING hudi, DROP TABLE and SHOW TBLPROPERTIES run.

CREATE writes hoodie.properties and makes the views; with LOCATION alone it registers a table that is there. The short
names of Spark's table properties are brought to Hudi's keys; keys that say what a table is and settings for its writers
are both stored in hoodie.properties, where every engine finds them. Partition columns come last, as in Spark.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from lakesql.errors import LakeError, SQLError, TableError, Unsupported
from lakesql.format.avro import META_COLUMNS
from lakesql.sql import changes, dialect, views
from lakesql.sql.nodes import CreateTable, DropTable, ShowProperties
from lakesql.sql.results import message_sql, pairs_sql, write_sql
from lakesql.sql.session import Session
from lakesql.storage import Storage, open_storage
from lakesql.table.names import literal, quote
from lakesql.table.state import PROPERTIES, TableState, load
from lakesql.write import create

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
    "payloadClass": "hoodie.compaction.payload.class",
    "hoodie.datasource.write.payload.class": "hoodie.compaction.payload.class",
    "hoodie.datasource.write.keygenerator.type": "hoodie.table.keygenerator.type",
}
_FIELD_LISTS = ("primary_key", "ordering_fields", "partitioned_by")
_UNSUPPORTED = {
    "recordMergeStrategyId": "custom mergers run on the JVM",
    "hoodie.record.merge.strategy.id": "custom mergers run on the JVM",
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


def options_of(statement: CreateTable, name: str) -> Options:
    """The properties in Hudi's terms. SQLError for contradictions and unknown short names, Unsupported by name."""
    fields: dict[str, str] = {}
    properties: dict[str, str] = {}
    for key, value in statement.properties.items():
        if key in _UNSUPPORTED:
            raise Unsupported(f"table property {key}: {_UNSUPPORTED[key]}. Leave it out.")
        refused = _ABSENT.get(key)
        if refused and value.lower() == refused[0]:
            raise Unsupported(f"table property {key} = {value}: {refused[1]}. Leave it out.")
        meaning = _SYNONYMS.get(key)
        if meaning is None and not key.startswith(("hoodie.", "lakesql.")):
            near = next((k for k in _SYNONYMS if k.lower() == key.lower()), None)
            known = "type, primaryKey, orderingFields, preCombineField, recordMergeMode, payloadClass"
            raise SQLError(
                f"table property {key} is unknown; "
                + (f"did you mean {near}?" if near else f"use {known} or a key that begins with hoodie.")
            )
        into = properties if meaning is None or meaning.startswith("hoodie.") else fields
        meaning = meaning or key
        if into.get(meaning, value) != value:
            raise SQLError(f"table property {key} = {value} contradicts {into[meaning]}, given under another name.")
        into[meaning] = value
    lists = {k: tuple(f.strip() for f in fields.get(k, "").split(",") if f.strip()) for k in _FIELD_LISTS}
    partitioned_by = statement.partitioned_by or lists["partitioned_by"]
    if lists["partitioned_by"] and lists["partitioned_by"] != tuple(partitioned_by):
        raise SQLError("PARTITIONED BY and the property of the partition fields contradict each other.")
    version = fields.get("version", "9")
    if not version.isdigit():
        raise SQLError(f"table version {version!r} is not a number; use 6, 8 or 9.")
    given = set(fields) | ({"partitioned_by"} if partitioned_by else set())
    return Options(
        fields.get("type", "cow").lower(), lists["primary_key"], lists["ordering_fields"], tuple(partitioned_by),
        int(version), fields.get("name", name), properties, frozenset(given),
    )  # fmt: skip


def create_table(session: Session, statement: CreateTable) -> str:
    """Create, or register, a table; the SQL of its result."""
    name = session.plain_name(statement.target)
    path = open_storage(statement.location).uri if statement.location else session.managed_path(name)
    known = session.instance.path_of(name)
    if known is not None:
        if statement.if_not_exists:
            return message_sql(f"Table {name} exists at {known}.")
        raise TableError(f"table {name} exists at {known}. DROP TABLE {name} first, or use IF NOT EXISTS.")
    if session.read_only:
        raise TableError(f"table {name}: the connection is read-only; connect without read_only=True.")
    options = options_of(statement, name)
    storage = open_storage(path)
    there = storage.stat(PROPERTIES) is not None
    if there:
        return _register(session, statement, name, storage, options)
    if not statement.columns and statement.query is None:
        raise TableError(
            f"table {name}: there is no Hudi table at {path}. Give columns or AS SELECT to create one, or correct "
            f"LOCATION."
        )
    if any(storage.list("")):
        raise TableError(
            f"table {name}: the folder {path} is not empty and holds no Hudi table. Choose another LOCATION."
        )
    session.require_no_transaction("CREATE TABLE ... USING hudi")
    schema, query = _columns(statement) if statement.query is None else _query(session, statement)
    state = _create(storage, schema, options)
    if query is None:
        _show(session, statement, name, path)
        return message_sql(
            f"Created table {name} ({state.config.table_type}, version {state.config.version}) at {path}."
        )
    try:
        result = changes.bulk_insert(session, state, query)
    except BaseException:
        storage.delete_tree("")
        raise
    _show(session, statement, name, path)
    session.last_result = result
    return write_sql(result)


def _register(session: Session, statement: CreateTable, name: str, storage: Storage, options: Options) -> str:
    """Make an existing table known. What the statement says about it must be so."""
    if statement.query is not None:
        raise TableError(
            f"{storage.uri}: there is a Hudi table already; CREATE TABLE ... AS SELECT makes new ones only."
        )
    state = load(storage)
    _require_same(state, statement, options)
    _show(session, statement, name, storage.uri)
    return message_sql(
        f"Registered table {name} ({state.config.table_type}, version {state.config.version}) at {storage.uri}."
    )


def _require_same(state: TableState, statement: CreateTable, options: Options) -> None:
    config = state.config
    actual = {
        "type": "mor" if config.is_mor else "cow",
        "primary_key": config.record_key_fields,
        "ordering_fields": config.ordering_fields,
        "partitioned_by": config.partition_fields,
        "version": config.version,
        "name": config.name,
    }
    for field in sorted(options.given):
        wanted = getattr(options, field)
        wanted = {"copy_on_write": "cow", "merge_on_read": "mor"}.get(wanted, wanted) if field == "type" else wanted
        if wanted != actual[field]:
            raise TableError(f"{state.path}: the table there has {field} {actual[field]}, the statement says {wanted}.")
    for key, value in options.properties.items():
        stored = config.properties.get(key)
        if stored is not None and stored.lower() != value.lower():
            raise TableError(f"{state.path}: the table there has {key} = {stored}, the statement says {value}.")
    if statement.columns:
        wanted_types = {c.name: dialect.column_type(c.type.sql, f"column {c.name}") for c in statement.columns}
        found = {f.name: f.type for f in state.schema}
        different = [c for c in {*wanted_types, *found} if wanted_types.get(c) != found.get(c)]
        if different:
            column = sorted(different)[0]
            raise TableError(
                f"{state.path}: column {column} is {found.get(column, 'absent')} in the table there, "
                f"{wanted_types.get(column, 'absent')} in the statement. Leave the columns out to register it as it is."
            )


def _columns(statement: CreateTable) -> tuple[pa.Schema, None]:
    fields = [
        pa.field(c.name, dialect.column_type(c.type.sql, f"column {c.name}"), nullable=c.nullable)
        for c in statement.columns
    ]
    return pa.schema(fields), None


def _query(session: Session, statement: CreateTable) -> tuple[pa.Schema, str]:
    """The schema of AS SELECT and the query without meta columns."""
    assert statement.query is not None, "the caller asked"
    attempts = [statement.spark] if statement.spark else [False, True]
    failure: duckdb.Error | LakeError | None = None
    for spark in attempts:
        try:
            text = dialect.query(statement.query.sql) if spark else statement.query.sql
            found = session.con.sql(f"SELECT * FROM ({text}) LIMIT 0").to_arrow_table().schema
        except (duckdb.ParserException, duckdb.CatalogException, duckdb.BinderException, LakeError) as error:
            failure = failure or error
            continue
        kept = [f for f in found if f.name not in META_COLUMNS]
        return dialect.storable(pa.schema(kept)), f"SELECT {', '.join(quote(f.name) for f in kept)} FROM ({text})"
    raise SQLError(str(failure).split("\n\nLINE ")[0]) from failure


def _create(storage: Storage, schema: pa.Schema, options: Options) -> TableState:
    by_name = {n.lower(): n for n in schema.names}

    def spelt(fields: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(by_name.get(f.lower(), f) for f in fields)

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


def _show(session: Session, statement: CreateTable, name: str, path: str) -> None:
    """Views and comments of a new table."""
    views.add(session, name, path)
    if statement.comment and not session.read_only:
        session.con.execute(f"COMMENT ON VIEW {session.home}{quote(name)} IS {literal(statement.comment)}")
    for column in statement.columns:
        if column.comment:
            session.con.execute(
                f"COMMENT ON COLUMN {session.home}{quote(name)}.{quote(column.name)} IS {literal(column.comment)}"
            )


def drop_table(session: Session, statement: DropTable) -> str:
    """Drop the views; the data of a table in the warehouse folder, and with PURGE of any table, goes too."""
    path = session.require_path(statement.target)
    name = statement.target[-1]
    if len(statement.target) == 2 and statement.target[0].lower() == "hudi":
        raise Unsupported(
            "DROP TABLE by path. Register the table with CREATE TABLE ... LOCATION, then DROP it with PURGE."
        )
    if session.read_only:
        raise TableError(f"table {name}: the connection is read-only; connect without read_only=True.")
    session.require_no_transaction("DROP TABLE of a Hudi table")
    gone = statement.purge or path == session.managed_path(name)
    views.drop(session, name)
    if not gone:
        return message_sql(f"Dropped table {name}; its data stays at {path}.")
    storage = open_storage(path)
    if storage.stat(PROPERTIES) is not None:
        storage.delete_tree("")
    return message_sql(f"Dropped table {name} and its data at {path}.")


def show_properties(session: Session, statement: ShowProperties) -> str:
    """Key and value of hoodie.properties."""
    state = load(session.instance.storage(session.require_path(statement.target)))
    found = sorted(state.config.properties.items())
    if statement.key is None:
        return pairs_sql(found)
    return pairs_sql([(k, v) for k, v in found if k == statement.key])
