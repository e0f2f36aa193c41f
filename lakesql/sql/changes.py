"""MERGE, UPDATE, DELETE, INSERT and TRUNCATE run, or explained: rows are made by DuckDB on the user's connection, `write`
does the rest.

MERGE, UPDATE and DELETE first put their rows into a TEMP table inside a transaction of the connection, so that the
target and every other mention of the table in the statement are one snapshot, check them, and hand them to `write`
together with that snapshot: a file group that another writer changed meanwhile is a conflict, not a lost update. INSERT needs no snapshot, its query
goes to `write` as it is.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

import duckdb
import pyarrow as pa

from lakesql.counted import counted
from lakesql.errors import SQLError, TableError, Unsupported
from lakesql.format.avro import META_COLUMNS
from lakesql.sql import dialect, evolve, explain, narrow
from lakesql.sql.functions import placed_sql
from lakesql.sql.lexer import tokens
from lakesql.sql.merge_into import compile_delete, compile_merge, compile_update
from lakesql.sql.merge_names import Target, require_plain_keys
from lakesql.sql.nodes import Delete, Insert, Merge, Text, Truncate, Update
from lakesql.sql.results import Changed
from lakesql.sql.returning import Returning
from lakesql.sql.session import Session
from lakesql.sql.spellings import Spelled, described, either_spelling, first_lines, our_errors
from lakesql.sql.stage import KEY, MOVES, PATH, SHOWN_MAX, STAGE, Check, Compiled, copies_sql
from lakesql.table.exact import exact_cast
from lakesql.table.keys import has_plain_paths, partition_path_sql, record_key_sql
from lakesql.table.known_settings import INPUT_ORDER, make_known, restored
from lakesql.table.listing import look
from lakesql.table.names import duckdb_type, literal, quote
from lakesql.table.state import TableState
from lakesql.write import Outcome, WriteResult, preview, write
from lakesql.write.columns import require_known_fields, with_new
from lakesql.write.found import Found
from lakesql.write.index import index_of, of_table
from lakesql.write.names_of_settings import DUPLICATES, EVOLVE, INSERT_OPERATION, OVERWRITE_MODE
from lakesql.write.settings import parse_settings

_WRITE_OPERATION = "hoodie.datasource.write.operation"
_INSERT_OPERATIONS = ("insert", "upsert", "bulk_insert")
_OVERWRITE_OPERATIONS = ("insert_overwrite", "insert_overwrite_table")
_OVERWRITE_MODES = ("hoodie.datasource.overwrite.mode", OVERWRITE_MODE)
_DUPLICATE_POLICY = "hoodie.datasource.insert.dup.policy"

Compile = Callable[[Spelled, TableState], tuple[TableState, Target, Compiled]]
"""A statement in DuckDB's or Spark's spelling, on a state of its table. The state has the columns that it adds."""


def merge(session: Session, statement: Merge) -> Changed:
    """Run a MERGE; see `merge_into` for what it means."""
    compiled = _merge_compiler(session, bool(statement.returning), False)
    return _staged(session, statement, compiled, "upsert", statement.alias)


def update(session: Session, statement: Update) -> Changed:
    """Run an UPDATE."""
    compiled = _update_compiler(session, bool(statement.returning))
    return _staged(session, statement, compiled, "upsert", statement.alias)


def delete(session: Session, statement: Delete) -> Changed:
    """Run a DELETE."""
    compiled = _delete_compiler(session, bool(statement.returning))
    return _staged(session, statement, compiled, "delete", statement.alias)


def explain_merge(session: Session, statement: Merge, fates: bool) -> pa.Table:
    """What a MERGE would do."""
    compiled = _merge_compiler(session, fates, fates)
    policy = _policy(session)
    return _explained(
        session,
        statement,
        compiled,
        "upsert",
        fates,
        lambda told, target: explain.merge_fates_sql(session.con, told, target, policy),
    )


def explain_update(session: Session, statement: Update, fates: bool) -> pa.Table:
    """What an UPDATE would do."""
    compiled = _update_compiler(session, fates, fates)
    return _explained(session, statement, compiled, "upsert", fates, _simple_fates(session))


def explain_delete(session: Session, statement: Delete, fates: bool) -> pa.Table:
    """What a DELETE would do."""
    return _explained(session, statement, _delete_compiler(session, fates), "delete", fates, _simple_fates(session))


def _simple_fates(session: Session) -> Callable[[Outcome, Target], str]:
    return lambda told, _: explain.simple_fates_sql(session.con, told, KEY, PATH)


def _policy(session: Session) -> str:
    return session.settings.get(DUPLICATES, "error").lower()


def _merge_compiler(session: Session, numbered: bool, fates: bool) -> Compile[Merge]:
    def compiled(spelled: Merge, state: TableState) -> tuple[TableState, Target, Compiled]:
        item = dialect.from_item(spelled.source.sql) if spelled.spark else spelled.source.sql
        ctes = dialect.ctes(spelled.ctes) if spelled.spark and spelled.ctes else spelled.ctes
        query = f"{ctes} SELECT * FROM {item}"
        evolves = spelled.evolves or evolve.wanted(session, state)
        seen = state
        if evolves:
            source = session.con.sql(f"{query} LIMIT 0").to_arrow_table().schema
            state = evolve.for_merge(state, spelled, source)
        target = replace(_target(session, state, spelled.target[-1], placed=not fates), evolves=evolves)
        source_types = described(session, query)
        spelled, target = narrow.narrowed(
            session, spelled, seen, target, source_types, lambda: _keys_everywhere(session, seen)
        )
        return state, target, compile_merge(spelled, target, source_types, _policy(session), numbered, fates)

    return compiled


def _update_compiler(session: Session, numbered: bool, fates: bool = False) -> Compile[Update]:
    def compiled(spelled: Update, state: TableState) -> tuple[TableState, Target, Compiled]:
        target = _target(session, state, spelled.target[-1], placed=not fates)
        return state, target, compile_update(spelled, target, numbered, fates)

    return compiled


def _delete_compiler(session: Session, numbered: bool) -> Compile[Delete]:
    def compiled(spelled: Delete, state: TableState) -> tuple[TableState, Target, Compiled]:
        target = _target(session, state, spelled.target[-1], placed=True)
        return state, target, compile_delete(spelled, target, numbered)

    return compiled


def _staged(session: Session, statement: Spelled, compiled: Compile[Spelled], operation: str, alias: str) -> Changed:
    """Run a statement through its stage."""
    con = session.con
    try:
        staged = either_spelling(session, statement, lambda spelled: _stage(session, spelled, compiled, False))
        state = staged.state
        settings = session.write_settings(state.config.properties)
        returning = Returning(session, statement, alias)
        with our_errors(session, statement.target[-1]):
            result = write(
                con,
                state,
                staged.rows_sql,
                operation=operation,
                settings=settings,
                reads_table=True,
                changed=staged.assigned,
                found=staged.found,
                clock=session.clock,
                observe=returning.observer,
            )
        return Changed(replace(result, rows_ignored=result.rows_ignored + staged.unchanged), returning.table)
    finally:
        con.execute(f"DROP TABLE IF EXISTS {STAGE}")


def _explained(
    session: Session,
    statement: Spelled,
    compiled: Compile[Spelled],
    operation: str,
    fates: bool,
    fates_sql: Callable[[Outcome, Target], str],
) -> pa.Table:
    """The plan of a statement, or its fates; nothing is written."""
    con = session.con
    found: list[pa.Table] = []
    try:
        staged = either_spelling(session, statement, lambda spelled: _stage(session, spelled, compiled, fates))
        state = staged.state

        def observe(told: Outcome) -> None:
            found.append(con.sql(fates_sql(told, staged.target)).to_arrow_table())

        settings = session.write_settings(state.config.properties)
        with our_errors(session, statement.target[-1]):
            files = preview(
                con,
                state,
                staged.rows_sql,
                operation=operation,
                settings=settings,
                reads_table=not staged.fails,
                observe=observe if fates else None,
            )
        return found[0] if fates else explain.plan_table(files)
    finally:
        with suppress(duckdb.Error):  # TEMP, and made anew by the next statement
            con.execute(f"DROP TABLE IF EXISTS {STAGE}")


@dataclass(frozen=True, slots=True)
class _Staged:
    """A stage that is filled and checked."""

    rows_sql: str  # reads the rows to write
    unchanged: int  # rows that are left out because they are stored as they are
    assigned: frozenset[str]
    state: TableState  # the snapshot that the rows were made from
    target: Target
    fails: bool  # with fates: the statement itself would fail on rows that have a fate here
    found: Found | None = None  # where the rows with keys of the stage are


def _stage(session: Session, statement: Spelled, compiled: Compile[Spelled], fates: bool) -> _Staged:
    """Fill the stage and check it.

    With `fates` rows that have a fate of their own do not fail the checks, and none is left out.
    """
    con = session.con
    with restored(con), transaction(con) as number:
        make_known(con, INPUT_ORDER)
        seen = session.instance.snapshot(session.require_path(statement.target), number)
        state, target, plan = compiled(statement, seen)
        for inside in plan.inside_sqls:
            require_known_fields(state, con.sql(inside).to_arrow_table().schema)
        con.execute(f"CREATE OR REPLACE TEMP TABLE {STAGE} AS {plan.stage_sql}").fetchall()
        con.execute(f"DROP TABLE IF EXISTS {narrow.SOURCE}")
        make_known(con)
        moves = bool(plan.moving_rows_sql) and bool(con.execute(MOVES).fetchall())
        fails = False
        for check in plan.checks + plan.move_checks if moves else plan.checks:
            found = con.execute(check.sql).fetchall()
            if fates and check.fate:
                fails |= bool(found)
            else:
                _refuse(check, found)
        unchanged = con.execute(plan.unchanged_sql).fetchall()[0][0] if plan.unchanged_sql else 0
        if unchanged and plan.differing_sql:
            con.execute(plan.differing_sql).fetchall()
            unchanged = con.execute(plan.unchanged_sql).fetchall()[0][0]
        if unchanged:
            con.execute(copies_sql(_keys_everywhere(session, state), plan.one_per_key)).fetchall()
            unchanged = con.execute(plan.unchanged_sql).fetchall()[0][0]
        rows_sql = plan.moving_rows_sql if moves else plan.rows_sql
        places = None
        if plan.found_sql and not moves and not con.execute(plan.doubts_sql).fetchall():
            places = Found(plan.found_sql, seen)
        return _Staged(rows_sql, unchanged, plan.assigned, state, target, fails, places)


def _keys_everywhere(session: Session, state: TableState) -> bool:
    settings = {**of_table(state), **session.write_settings(state.config.properties)}
    return index_of(state, parse_settings(settings)).everywhere


def _refuse(check: Check, found: Sequence[tuple[object, ...]]) -> None:
    """TableError when a check has found rows: it names up to SHOWN_MAX of them."""
    if found:
        shown = "; ".join(str(row[0]) for row in found[:SHOWN_MAX]) + (" and more" if len(found) > SHOWN_MAX else "")
        raise TableError(check.message.replace("{keys}", shown) + " Nothing was written.")


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


def _target(session: Session, state: TableState, name: str, placed: bool = False) -> Target:
    """A table as the compiler sees it; its snapshot is the table function, so one transaction sees one state.

    `placed`: with the places of its rows, if the table has record keys to tell them by.
    """
    config = state.config
    options = session.write_settings(config.properties)
    kinds = {f.name: duckdb_type(f.type, f.name) for f in state.schema}
    added = "".join(f", CAST(NULL AS {kinds[c]}) AS {quote(c)}" for c in state.added_names)
    if state.grown_names:
        casts = ", ".join(f"CAST({quote(c)} AS {kinds[c]}) AS {quote(c)}" for c in state.grown_names)
        added = f" REPLACE ({casts}){added}"
    target = Target(
        name=name,
        columns=kinds,
        key_fields=config.record_key_fields,
        partition_fields=config.partition_fields,
        ordering_fields=tuple(f for f in config.ordering_fields if f in state.schema.names),
        event_time=config.merge_mode == "EVENT_TIME_ORDERING",
        snapshot=f"SELECT *{added} FROM {session.home}hudi_scan({literal(state.path)})",
        placed=placed_sql(state.path) if placed and config.meta_fields and not state.evolves else "",
        plain_paths=has_plain_paths(config),
    )
    require_plain_keys(target)
    key = record_key_sql(config, state.schema, None, options) if config.record_key_fields else "NULL"
    return replace(target, key_sql=key, path_sql=partition_path_sql(config, state.schema, options))


# ---------------------------------------------------------------- INSERT


def insert(session: Session, statement: Insert) -> Changed:
    """Run an INSERT INTO or INSERT OVERWRITE."""
    state = look(session.instance.storage(session.require_path(statement.target)))
    settings = session.write_settings(state.config.properties)
    operation = _operation(session, statement, state, settings)
    table = statement.target[-1]
    rows, state = either_spelling(session, statement, lambda spelled: _insert_rows(session, spelled, state))
    with our_errors(session, table):
        partitions = _overwritten(session, statement, state) if statement.overwrite else ()
    returning = Returning(session, statement, table)
    if returning.observer:
        rows = f'SELECT *, row_number() OVER () AS "__lakesql_number" FROM ({rows})'
    with our_errors(session, table), _column_order(statement, state):
        result = write(
            session.con,
            state,
            rows,
            operation=operation,
            settings=settings,
            partitions=partitions,
            clock=session.clock,
            observe=returning.observer,
        )
    return Changed(result, returning.table)


@contextmanager
def _column_order(statement: Insert, state: TableState) -> Iterator[None]:
    """Adds to an error about a value's type in which order values without names are taken."""
    try:
        yield
    except TableError as error:
        if statement.by_name or statement.columns is not None or ", the rows give " not in str(error):
            raise
        fixed = {_partition_column(name, state) for name, value in statement.partition if value is not None}
        order = ", ".join(_positional_columns(statement, state, fixed))
        raise TableError(
            f"{error} Values without column names are taken in the order {order}; partition columns come last."
        ) from error


def explain_insert(session: Session, statement: Insert, fates: bool) -> pa.Table:
    """What an INSERT would do."""
    con = session.con
    state = look(session.instance.storage(session.require_path(statement.target)))
    settings = session.write_settings(state.config.properties)
    operation = _operation(session, statement, state, settings)
    rows, state = either_spelling(session, statement, lambda spelled: _insert_rows(session, spelled, state))
    partitions = _overwritten(session, statement, state) if statement.overwrite else ()
    target = _target(session, state, statement.target[-1])
    policy = settings.get(_DUPLICATE_POLICY, "none").lower() if operation == "insert" else "none"
    found: list[pa.Table] = []

    def observe(told: Outcome) -> None:
        sql = explain.simple_fates_sql(con, told, target.key_sql, target.path_sql, policy)
        found.append(con.sql(sql).to_arrow_table())

    try:
        with our_errors(session, statement.target[-1]):
            if fates:
                given = described(session, rows)
                typed = [f"CAST({quote(c)} AS {target.columns[_table_column(c, state)]}) AS {quote(c)}" for c in given]
                con.execute(
                    f"CREATE OR REPLACE TEMP TABLE {STAGE} AS SELECT {', '.join(typed)} FROM ({rows})"
                ).fetchall()
                rows = f'SELECT *, rowid AS "__lakesql_number" FROM {STAGE}'
            files = preview(
                con,
                state,
                rows,
                operation=operation,
                settings=settings,
                partitions=partitions,
                observe=observe if fates else None,
            )
        return found[0] if fates else explain.plan_table(files)
    finally:
        con.execute(f"DROP TABLE IF EXISTS {STAGE}")


def _operation(session: Session, statement: Insert, state: TableState, settings: Mapping[str, str]) -> str:
    if statement.overwrite:
        asked = session.settings.get(_WRITE_OPERATION, "").lower()
        if asked in _OVERWRITE_OPERATIONS and not statement.partition:
            return asked
        modes = {session.settings.get(key, "").lower() for key in _OVERWRITE_MODES}
        by_partition = bool(statement.partition) or ("dynamic" in modes and bool(state.config.partition_fields))
        return "insert_overwrite" if by_partition else "insert_overwrite_table"
    key = _WRITE_OPERATION if _WRITE_OPERATION in settings else INSERT_OPERATION
    operation = settings.get(key, "insert").lower()
    if operation in _OVERWRITE_OPERATIONS:
        raise SQLError(f"setting {key} = {operation!r}: write INSERT OVERWRITE to replace rows, or RESET {key}.")
    if operation not in _INSERT_OPERATIONS:
        raise SQLError(f"setting {key} = {operation!r}: INSERT INTO knows {', '.join(_INSERT_OPERATIONS)}.")
    return operation


def _insert_rows(session: Session, statement: Insert, state: TableState) -> tuple[str, TableState]:
    """The query whose columns are the table's by name, and the table with the columns that it adds."""
    statement = _in_duckdb(statement) if statement.spark else statement
    query = f"{statement.ctes} SELECT * FROM ({_defaults_as_null(statement.source.sql)})"
    given = described(session, query)
    if evolves := evolve.wanted(session, state):
        source = session.con.sql(f"SELECT * FROM ({query}) LIMIT 0").to_arrow_table().schema
        state = evolve.for_insert(state, statement, source)
    named = {_partition_column(name, state): value for name, value in statement.partition}
    fixed = {name: value for name, value in named.items() if value is not None}
    static = [f"{_partition_value(state, c, v)} AS {quote(c)}" for c, v in fixed.items()]
    if statement.by_name:
        names = [n for n in given if n not in META_COLUMNS]
        return f"SELECT {', '.join([*map(quote, names), *static])} FROM ({query})", state
    wanted = _positional_columns(statement, state, set(fixed))
    places = [i for i, name in enumerate(given) if name not in META_COLUMNS]
    if evolves and len(places) == len(wanted):
        fields = [source.field(i).with_name(name) for i, name in zip(places, wanted, strict=True)]
        state = with_new(state, pa.schema(fields), wanted)
    if len(places) != len(wanted):
        raise SQLError(
            f"INSERT INTO {statement.target[-1]} expects {counted(len(wanted), 'column')} ({', '.join(wanted)}), "
            f"the query gives {len(places)}. List the columns, or use BY NAME."
        )
    aliases = [f"__lakesql_{i}" for i in range(len(given))]
    chosen = [f"{quote(aliases[i])} AS {quote(name)}" for i, name in zip(places, wanted, strict=True)]
    return f"SELECT {', '.join([*chosen, *static])} FROM ({query}) AS r({', '.join(map(quote, aliases))})", state


def _defaults_as_null(query: str) -> str:
    """VALUES with DEFAULT, which stands for NULL: Hudi tables have no column defaults."""
    words = tokens(query)
    if not words or words[0].word != "VALUES":
        return query
    for before, token, after in reversed(list(zip(words, words[1:], words[2:], strict=False))):
        if token.word == "DEFAULT" and before.text in ("(", ",") and after.text in (")", ","):
            query = f"{query[: token.start]}NULL{query[token.end :]}"
    return query


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
        hint = f" SET {EVOLVE} = true lets a statement add the columns of its query."
        raise SQLError(f"{state.name} has no column {name}; its columns are {', '.join(state.schema.names)}.{hint}")
    return found


def _partition_column(name: str, state: TableState) -> str:
    """The partition column that PARTITION (...) names."""
    fields = state.config.partition_fields
    found = next((c for c in fields if c.lower() == name.lower()), None)
    if found is None:
        partitions = ", ".join(fields) or "none"
        raise SQLError(f"PARTITION ({name}): {name} is not a partition column of {state.name}; it has {partitions}.")
    return found


def _positional_columns(statement: Insert, state: TableState, fixed: set[str]) -> list[str]:
    """The table's columns in the order in which the query gives them: those of PARTITION (...) come last."""
    if statement.columns is not None:
        columns = [_table_column(name, state) for name in statement.columns]
        twice = [c for i, c in enumerate(columns) if c in columns[:i] or c in fixed]
        if twice:
            raise SQLError(f"column {twice[0]} is given twice.")
        return columns
    dynamic = [_partition_column(name, state) for name, value in statement.partition if value is None]
    return [c for c in state.schema.names if c not in fixed and c not in dynamic] + dynamic


def _partition_value(state: TableState, column: str, value: Text) -> str:
    kind = duckdb_type(state.schema.field(column).type, column)
    return exact_cast(value.sql, kind, f"{state.path}: partition column {column}")


def _overwritten(session: Session, statement: Insert, state: TableState) -> Sequence[str]:
    """The partition paths that a PARTITION clause names; they are overwritten even where no row falls into them.

    All values given: that path. Some given: every path of the table that has them, segment by segment.
    """
    statement = _in_duckdb(statement) if statement.spark else statement
    fixed = {_partition_column(name, state): value for name, value in statement.partition if value is not None}
    fields = state.config.partition_fields
    if not fixed or not set(fixed) <= set(fields):
        return ()
    row = ", ".join(
        f"{_partition_value(state, c, fixed[c]) if c in fixed else _null(state, c)} AS {quote(c)}" for c in fields
    )
    path_sql = partition_path_sql(state.config, state.schema, session.write_settings(state.config.properties))
    path: str = session.con.execute(f"SELECT {path_sql} FROM (SELECT {row})").fetchall()[0][0] or ""
    if len(fixed) == len(fields):
        return (path,)
    wanted = {i: segment for i, segment in enumerate(path.split("/")) if i < len(fields) and fields[i] in fixed}
    present = {s.partition: s.partition.split("/") for s in state.slices()}
    odd = [p for p in (path, *sorted(present)) if len(p.split("/")) != len(fields)]
    if odd:
        raise Unsupported(
            f"{state.path}: INSERT OVERWRITE names {', '.join(fixed)} of the partition columns {', '.join(fields)}, and "
            f"the partition path {odd[0]!r} does not have one segment per column, so the partitions cannot be told. Give "
            "every partition column a value. Nothing was written."
        )
    return [p for p, segments in present.items() if all(segments[i] == w for i, w in wanted.items())]


def _null(state: TableState, column: str) -> str:
    return f"CAST(NULL AS {duckdb_type(state.schema.field(column).type, column)})"


def truncate(session: Session, statement: Truncate) -> Changed:
    """Take every row out with one replacecommit; the history stays readable by time travel."""
    state = look(session.instance.storage(session.require_path(statement.target)))
    fields = ", ".join(f"CAST(NULL AS {duckdb_type(f.type, f.name)}) AS {quote(f.name)}" for f in state.schema)
    settings = session.write_settings(state.config.properties)
    rows = f"SELECT {fields} WHERE false"
    return Changed(
        write(session.con, state, rows, operation="insert_overwrite_table", settings=settings, clock=session.clock)
    )


def bulk_insert(session: Session, state: TableState, query: str) -> WriteResult:
    """Load a new table from a query by name: CREATE TABLE AS SELECT."""
    settings = session.write_settings(state.config.properties)
    try:
        return write(session.con, state, query, operation="bulk_insert", settings=settings, clock=session.clock)
    except duckdb.Error as error:
        raise TableError(f"{first_lines(error)} Nothing was written.") from error
