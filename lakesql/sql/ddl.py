"""CREATE TABLE ... USING hudi, DROP TABLE and SHOW run.

CREATE writes hoodie.properties and makes the views; with LOCATION alone it registers a table that is there. Keys that
say what a table is and settings for its writers (`options`) are both stored in hoodie.properties, where every engine
finds them. Partition columns come last, as in Spark.
"""

import re
from dataclasses import replace

import duckdb
import pyarrow as pa

from lakesql.errors import LakeError, SQLError, TableError, Unsupported
from lakesql.format.avro import META_COLUMNS
from lakesql.sql import changes, dialect, views
from lakesql.sql.nodes import CreateTable, DropTable, ShowColumns, ShowProperties, ShowTables
from lakesql.sql.options import options_of
from lakesql.sql.results import message_sql, pairs_sql, write_sql
from lakesql.sql.session import Session
from lakesql.storage import Storage, open_storage
from lakesql.table.names import literal, quote
from lakesql.table.state import PROPERTIES, TableState, load, read_config
from lakesql.write.columns import storable
from lakesql.write.table_options import Options, create_as


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
    storage = open_storage(path)
    there = storage.stat(PROPERTIES) is not None
    options = options_of(statement, name, {} if there else session.settings)
    is_mor = read_config(storage).is_mor if there else options.type in ("mor", "merge_on_read")
    views.require_free(session, name, is_mor)
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
    state = create_as(storage, schema, options)
    moved = _moved_note(schema, state)
    if query is None:
        _show(session, statement, name, path)
        return message_sql(
            f"Created table {name} ({state.config.table_type}, version {state.config.version}) at {path}."
            + (f" {moved}" if moved else "")
        )
    try:
        result = changes.bulk_insert(session, state, query)
    except BaseException:
        storage.delete_tree("")
        raise
    _show(session, statement, name, path)
    result = replace(result, notes=(*result.notes, moved)) if moved else result
    session.last_result = result
    return write_sql(result)


def _moved_note(given: pa.Schema, state: TableState) -> str | None:
    """A sentence when the table has its columns in another order than they were given in."""
    if given.names == state.schema.names:
        return None
    return f"Partition columns come last: the columns are {', '.join(state.schema.names)}."


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
        return storable(pa.schema(kept)), f"SELECT {', '.join(quote(f.name) for f in kept)} FROM ({text})"
    raise SQLError(str(failure).split("\n\nLINE ")[0]) from failure


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


def show_tables(session: Session, statement: ShowTables) -> str:
    """The names that fit a pattern: `*` and `%` stand for any text, `|` separates alternatives, case does not count."""
    views.refresh(session)
    parts = [".*".join(map(re.escape, re.split(r"[*%]", part))) for part in statement.pattern.split("|")]
    pattern = literal("|".join(f"(?:{part.strip()})" for part in parts))
    return f"SELECT name FROM (SHOW TABLES) WHERE regexp_full_match(name, {pattern}, 'i')"


def show_columns(session: Session, statement: ShowColumns) -> str:
    """The columns of a table or view of any kind."""
    del session
    return f"SELECT column_name AS col_name FROM (DESCRIBE {'.'.join(map(quote, statement.target))})"
