"""MERGE, UPDATE, DELETE, INSERT and TRUNCATE run: rows are made by DuckDB on the user's connection, `write` does
the rest.

MERGE, UPDATE and DELETE first put their rows into a TEMP table inside a transaction of the connection, so that the
target and every other mention of the table in the statement are one snapshot, check them, and hand them to `write`
together with that snapshot: a file group that another writer changed meanwhile is a conflict, not a lost update.
INSERT needs no snapshot, its query goes to `write` as it is.

A statement is taken as DuckDB's; when DuckDB does not know its syntax or a function in it, it is taken as Spark's,
and the first error counts if that fails too. Nothing has been written at that point.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TypeVar

import duckdb

from lakesql.errors import SQLError, TableError, Unsupported
from lakesql.format.avro import META_COLUMNS
from lakesql.sql import dialect
from lakesql.sql.merge_into import DUPLICATES, STAGE, Compiled, compile_delete, compile_merge, compile_update
from lakesql.sql.merge_names import Target, require_plain_keys
from lakesql.sql.nodes import Delete, Insert, Merge, Text, Truncate, Update
from lakesql.sql.parse_ddl import OVERWRITE_MODE
from lakesql.sql.session import Session
from lakesql.table.keys import partition_path_sql
from lakesql.table.known_settings import INPUT_ORDER, make_known, restored
from lakesql.table.names import duckdb_type, literal, quote
from lakesql.table.state import TableState, load
from lakesql.write import WriteResult, write

INSERT_OPERATION = "hoodie.spark.sql.insert.into.operation"
_WRITE_OPERATION = "hoodie.datasource.write.operation"
_INSERT_OPERATIONS = ("insert", "upsert", "bulk_insert")
_OVERWRITE_MODES = ("hoodie.datasource.overwrite.mode", OVERWRITE_MODE)

Spelled = TypeVar("Spelled", Merge, Update, Delete, Insert)
Result = TypeVar("Result")


def merge(session: Session, statement: Merge) -> WriteResult:
    """Run a MERGE; see `merge_into` for what it means."""
    duplicates = session.settings.get(DUPLICATES, "error").lower()

    def compiled(spelled: Merge, target: Target) -> Compiled:
        item = dialect.from_item(spelled.source.sql) if spelled.spark else spelled.source.sql
        ctes = dialect.ctes(spelled.ctes) if spelled.spark and spelled.ctes else spelled.ctes
        columns = _described(session, f"{ctes} SELECT * FROM {item}")
        return compile_merge(spelled, target, list(columns), duplicates)

    return _staged(session, statement, compiled, "upsert")


def update(session: Session, statement: Update) -> WriteResult:
    """Run an UPDATE."""
    return _staged(session, statement, compile_update, "upsert")


def delete(session: Session, statement: Delete) -> WriteResult:
    """Run a DELETE."""
    return _staged(session, statement, compile_delete, "delete")


def _staged(
    session: Session, statement: Spelled, compiled: Callable[[Spelled, Target], Compiled], operation: str
) -> WriteResult:
    path = session.require_path(statement.target)
    con = session.con
    try:
        rows_sql, state = _either_spelling(session, statement, lambda spelled: _stage(session, path, spelled, compiled))
        settings = session.write_settings(state.config.properties)
        with _our_errors(session):
            return write(con, state, rows_sql, operation=operation, settings=settings, reads_table=True)
    finally:
        con.execute(f"DROP TABLE IF EXISTS {STAGE}")


def _stage(
    session: Session, path: str, statement: Spelled, compiled: Callable[[Spelled, Target], Compiled]
) -> tuple[str, TableState]:
    """Fill the stage and check it: the query that reads the rows to write, and the snapshot they were made from."""
    con = session.con
    with restored(con), transaction(con) as number:
        make_known(con, INPUT_ORDER)
        state = session.instance.snapshot(path, number)
        target = target_of(state, statement.target[-1])
        require_plain_keys(target)
        plan = compiled(statement, target)
        con.execute(f"CREATE OR REPLACE TEMP TABLE {STAGE} AS {plan.stage_sql}").fetchall()
        make_known(con)
        for check in plan.checks:
            found = [str(row[0]) for row in con.execute(check.sql).fetchall()]
            if found:
                shown = "; ".join(found[:5]) + (" and more" if len(found) > 5 else "")
                raise TableError(check.message.replace("{keys}", shown) + " Nothing was written.")
    return plan.rows_sql, state


@contextmanager
def transaction(con: duckdb.DuckDBPyConnection) -> Iterator[int]:
    """A transaction of the connection around statements of ours; its id."""
    try:
        con.execute("BEGIN")
        yield con.execute("SELECT txid_current()").fetchall()[0][0]
        con.execute("COMMIT")
    except BaseException:
        with suppress(duckdb.Error):
            con.execute("ROLLBACK")
        raise


def target_of(state: TableState, name: str) -> Target:
    """A table as the compiler sees it; its snapshot is the table function, so one transaction sees one state."""
    config = state.config
    return Target(
        name=name,
        columns={f.name: duckdb_type(f.type, f.name) for f in state.schema},
        key_fields=config.record_key_fields,
        partition_fields=config.partition_fields,
        ordering_fields=tuple(f for f in config.ordering_fields if f in state.schema.names),
        event_time=config.merge_mode == "EVENT_TIME_ORDERING",
        snapshot=f"SELECT * FROM hudi_scan({literal(state.path)})",
    )


def _either_spelling(session: Session, statement: Spelled, run: Callable[[Spelled], Result]) -> Result:
    """Run the statement as DuckDB's, and as Spark's when DuckDB does not understand it."""
    with _our_errors(session):
        try:
            return run(statement)
        except (duckdb.ParserException, duckdb.CatalogException, duckdb.BinderException) as error:
            if statement.spark or not _not_understood(error):
                raise
            try:
                return run(replace(statement, spark=True))
            except (duckdb.Error, SQLError, Unsupported) as other:
                if isinstance(other, TableError) or (isinstance(other, duckdb.Error) and not _not_understood(other)):
                    raise
                raise error from None


def _not_understood(error: duckdb.Error) -> bool:
    """Whether another spelling could help: syntax, or a function or type that is not DuckDB's."""
    text = str(error)
    unknown = ("Function with name", "Type with name", "No function matches")
    return isinstance(error, duckdb.ParserException) or any(part in text for part in unknown)


@contextmanager
def _our_errors(session: Session) -> Iterator[None]:
    """Errors of DuckDB in a statement of ours become ours: its text, without the generated SQL around it."""
    try:
        yield
    except (duckdb.ParserException, duckdb.CatalogException, duckdb.BinderException) as error:
        raise SQLError(_first_lines(error)) from error
    except (duckdb.DataError, duckdb.InvalidInputException, duckdb.ConstraintException) as error:
        cause = session.cause(error)
        if cause is not error:
            raise cause from error
        variable = re.search(r'Python Object "(\w+)"', str(error))
        if variable:  # a variable of ours that DuckDB came across when it looked for the table
            raise SQLError(f"Table with name {variable[1]} does not exist.") from error
        raise TableError(f"{_first_lines(error)} Nothing was written.") from error


def _first_lines(error: duckdb.Error) -> str:
    text = str(error).split("\n\nLINE ")[0].strip()
    return text if text.endswith((".", "!", "?")) else text + "."


def _described(session: Session, query: str) -> dict[str, str]:
    """Column name -> type of a query's result. Repeated names are numbered by DuckDB."""
    return {row[0]: row[1] for row in session.con.execute(f"DESCRIBE {query}").fetchall()}


# ---------------------------------------------------------------- INSERT


def insert(session: Session, statement: Insert) -> WriteResult:
    """Run an INSERT INTO or INSERT OVERWRITE."""
    state = load(session.instance.storage(session.require_path(statement.target)))
    settings = session.write_settings(state.config.properties)
    operation = _operation(session, statement, state, settings)
    rows = _either_spelling(session, statement, lambda spelled: _insert_rows(session, spelled, state))
    partitions = _static_partition(session, statement, state) if statement.overwrite else ()
    with _our_errors(session):
        return write(session.con, state, rows, operation=operation, settings=settings, partitions=partitions)


def _operation(session: Session, statement: Insert, state: TableState, settings: Mapping[str, str]) -> str:
    if statement.overwrite:
        modes = {session.settings.get(key, "").lower() for key in _OVERWRITE_MODES}
        by_partition = bool(statement.partition) or ("dynamic" in modes and bool(state.config.partition_fields))
        return "insert_overwrite" if by_partition else "insert_overwrite_table"
    key = _WRITE_OPERATION if _WRITE_OPERATION in settings else INSERT_OPERATION
    operation = settings.get(key, "insert").lower()
    if operation not in _INSERT_OPERATIONS:
        raise SQLError(f"setting {key} = {operation!r}: INSERT INTO knows {', '.join(_INSERT_OPERATIONS)}.")
    return operation


def _insert_rows(session: Session, statement: Insert, state: TableState) -> str:
    """The query whose columns are the table's by name."""
    statement = _in_duckdb(statement) if statement.spark else statement
    query = f"{statement.ctes} SELECT * FROM ({statement.source.sql})"
    given = _described(session, query)
    fixed = {_table_column(name, state): value for name, value in statement.partition if value is not None}
    static = [f"CAST({v.sql} AS {duckdb_type(state.schema.field(c).type, c)}) AS {quote(c)}" for c, v in fixed.items()]
    if statement.by_name:
        names = [n for n in given if n not in META_COLUMNS]
        return f"SELECT {', '.join([*map(quote, names), *static])} FROM ({query})"
    wanted = _positional_columns(statement, state, set(fixed))
    places = [i for i, name in enumerate(given) if name not in META_COLUMNS]
    if len(places) != len(wanted):
        raise SQLError(
            f"INSERT INTO {statement.target[-1]} expects {len(wanted)} columns ({', '.join(wanted)}), "
            f"the query gives {len(places)}. List the columns, or use BY NAME."
        )
    aliases = [f"__lakesql_{i}" for i in range(len(given))]
    chosen = [f"{quote(aliases[i])} AS {quote(name)}" for i, name in zip(places, wanted, strict=True)]
    return f"SELECT {', '.join([*chosen, *static])} FROM ({query}) AS r({', '.join(map(quote, aliases))})"


def _in_duckdb(statement: Insert) -> Insert:
    return replace(
        statement,
        source=Text(dialect.query(statement.source.sql), statement.source.start),
        ctes=dialect.ctes(statement.ctes) if statement.ctes else "",
        partition=tuple((n, v and Text(dialect.expression(v.sql), v.start)) for n, v in statement.partition),
    )


def _table_column(name: str, state: TableState) -> str:
    found: str | None = next((c for c in state.schema.names if c.lower() == name.lower()), None)
    if found is None:
        raise SQLError(f"{state.name} has no column {name}; its columns are {', '.join(state.schema.names)}.")
    return found


def _positional_columns(statement: Insert, state: TableState, fixed: set[str]) -> list[str]:
    """The table's columns in the order in which the query gives them: those of PARTITION (...) come last."""
    for name, _ in statement.partition:
        if _table_column(name, state) not in state.config.partition_fields:
            raise SQLError(f"PARTITION ({name}): {name} is not a partition column of {state.name}.")
    if statement.columns is not None:
        columns = [_table_column(name, state) for name in statement.columns]
        twice = [c for i, c in enumerate(columns) if c in columns[:i] or c in fixed]
        if twice:
            raise SQLError(f"column {twice[0]} is given twice.")
        return columns
    dynamic = [_table_column(name, state) for name, value in statement.partition if value is None]
    return [c for c in state.schema.names if c not in fixed and c not in dynamic] + dynamic


def _static_partition(session: Session, statement: Insert, state: TableState) -> Sequence[str]:
    """The partition path that a fully static PARTITION clause names; it is overwritten even by no rows."""
    statement = _in_duckdb(statement) if statement.spark else statement
    fixed = {_table_column(name, state): value.sql for name, value in statement.partition if value is not None}
    fields = state.config.partition_fields
    if not fields or set(fixed) != set(fields):
        return ()
    row = ", ".join(
        f"CAST({v} AS {duckdb_type(state.schema.field(c).type, c)}) AS {quote(c)}" for c, v in fixed.items()
    )
    path = partition_path_sql(state.config, state.schema, session.write_settings(state.config.properties))
    return tuple(p for (p,) in session.con.execute(f"SELECT {path} FROM (SELECT {row})").fetchall())


def truncate(session: Session, statement: Truncate) -> WriteResult:
    """Take every row out with one replacecommit; the history stays readable by time travel."""
    state = load(session.instance.storage(session.require_path(statement.target)))
    fields = ", ".join(f"CAST(NULL AS {duckdb_type(f.type, f.name)}) AS {quote(f.name)}" for f in state.schema)
    settings = session.write_settings(state.config.properties)
    rows = f"SELECT {fields} WHERE false"
    return write(session.con, state, rows, operation="insert_overwrite_table", settings=settings)


def bulk_insert(session: Session, state: TableState, query: str) -> WriteResult:
    """Load a new table from a query by name: CREATE TABLE AS SELECT."""
    settings = session.write_settings(state.config.properties)
    try:
        return write(session.con, state, query, operation="bulk_insert", settings=settings)
    except duckdb.Error as error:
        raise TableError(f"{_first_lines(error)} Nothing was written.") from error
