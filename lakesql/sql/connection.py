"""`connect` and `Connection`: a DuckDB connection that runs the statements on Hudi tables itself.

A script is split, every statement is parsed (`statements`), ours run (`changes`, `ddl`), the rest goes to DuckDB
byte for byte; a script without a statement of ours goes there in one piece. Results of ours are small queries
(`results`), so `sql` always gives a DuckDB relation and `execute` always leaves its result on the DuckDB
connection.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Self

import duckdb
from duckdb import CatalogException, DuckDBPyConnection, InvalidInputException, TransactionException
from duckdb import Error as DuckDBError

from lakesql.errors import LakeError, SQLError, TableError, Unsupported
from lakesql.handle import Table
from lakesql.sql import changes, ddl, dialect, python_objects, views
from lakesql.sql.functions import instance_of
from lakesql.sql.lexer import Piece, Token, split
from lakesql.sql.merge_into import DUPLICATES, POLICIES
from lakesql.sql.nodes import (
    CreateTable,
    Delete,
    DropTable,
    Insert,
    Merge,
    Passed,
    ResetSetting,
    SetSetting,
    ShowProperties,
    Statement,
    Truncate,
    Update,
)  # fmt: skip
from lakesql.sql.parameters import Parameters, bound
from lakesql.sql.results import pairs_sql, write_sql
from lakesql.sql.rewrite import rewrite
from lakesql.sql.session import Session
from lakesql.sql.statements import parse
from lakesql.storage import open_storage
from lakesql.table.interrupts import interrupts
from lakesql.write import WriteResult

_CHANGES: dict[type, Callable[[Session, Any], WriteResult]] = {
    Merge: changes.merge,
    Update: changes.update,
    Delete: changes.delete,
    Insert: changes.insert,
    Truncate: changes.truncate,
}
_TABLES: dict[type, Callable[[Session, Any], str]] = {
    CreateTable: ddl.create_table,
    DropTable: ddl.drop_table,
    ShowProperties: ddl.show_properties,
}
_OBSOLETE = ("hoodie.sql.insert.mode", "hoodie.sql.bulk.insert.enable")
_HANDLE_CONFIG = ("memory_limit", "threads", "temp_directory", "max_memory")


def connect(
    database: str = ":memory:",
    warehouse: str = "warehouse",
    config: Mapping[str, Any] | None = None,
    read_only: bool = False,
) -> "Connection":
    """A connection with the tables of the folder `warehouse` as views.

    `database`: a DuckDB file, or memory; `config`: DuckDB's settings. With `read_only` neither the database file nor a
    Hudi table can be changed.
    """
    settings = dict(config or {})
    in_memory = database == ":memory:"
    con = duckdb.connect(database, read_only=read_only and not in_memory, config=settings)
    try:
        name = con.execute("SELECT current_database()").fetchall()[0][0]
        session = Session(con, instance_of(con), open_storage(warehouse).uri, read_only, name, in_memory)
        views.add_warehouse(session)
    except BaseException:
        con.close()
        raise
    return Connection(session, {k: str(v) for k, v in settings.items() if k in _HANDLE_CONFIG})


class Connection:
    """A DuckDB connection that knows Hudi tables. One thread at a time; `cursor()` gives another."""

    def __init__(self, session: Session, config: Mapping[str, str]) -> None:
        self._session = session
        self._config = config
        self._finished = False

    @property
    def duckdb(self) -> DuckDBPyConnection:
        """The DuckDB connection; what runs there directly is DuckDB's alone, views and table functions included."""
        return self._session.con

    @property
    def last_result(self) -> WriteResult | None:
        """What the last statement that wrote a Hudi table did."""
        return self._session.last_result

    @property
    def warehouse(self) -> str:
        """The folder of tables created without LOCATION."""
        return self._session.warehouse

    @property
    def tables(self) -> dict[str, str]:
        """Name -> path of the Hudi tables known."""
        return self._session.instance.tables()

    def sql(self, query: str, *, params: Parameters = None) -> Any:
        """Run one or several statements; the relation of the last one, lazy for a SELECT.

        A statement that changes a Hudi table gives one row, the fields of its `WriteResult`. `params` are for the
        last statement. Raises LakeError for statements on Hudi tables, DuckDB's errors for the others.
        """
        return self._interruptible(query, params, "sql")

    def execute(self, query: str, parameters: Parameters = None) -> Self:
        """Run like `sql`; the result is fetched from this object, as with DuckDB."""
        self._interruptible(query, parameters, "execute")
        return self

    # ------------------------------------------------------------ running

    def _interruptible(self, text: str, params: Parameters, method: str) -> Any:
        """Run; after Ctrl-C the connection is free for the next statement."""
        try:
            with interrupts():
                return self._run(text, params, method)
        except KeyboardInterrupt:
            with suppress(DuckDBError):
                self._session.drain()
            self._finished = False
            raise

    def _run(self, text: str, params: Parameters, method: str) -> Any:
        session = self._session
        if self._finished:
            # What is open is the row that a statement of ours left; nobody waits for it.
            session.drain()
            self._finished = False
        script = rewrite(text, session.path_of)
        pieces = split(script)
        if len(pieces) != 1 and self._all_passed(script, pieces):
            return self._passed(script, pieces, params, method)
        for piece in pieces[:-1]:
            self._one(script, piece, None, "execute")
            session.drain()
        return self._one(script, pieces[-1], params, method, alone=len(pieces) == 1)

    def _all_passed(self, script: str, pieces: Sequence[Piece]) -> bool:
        """Whether DuckDB can have the script as it is."""
        try:
            found = [parse(script, piece, self._session.is_hudi) for piece in pieces]
        except LakeError:
            return False  # it may be about a table that an earlier statement makes or drops
        return all(isinstance(s, Passed) for s in found) and not any(map(_has_backticks, pieces))

    def _one(self, script: str, piece: Piece, params: Parameters, method: str, alone: bool = False) -> Any:
        statement = parse(script, piece, self._session.is_hudi)
        if isinstance(statement, Passed) and alone and not _has_backticks(piece):
            return self._passed(script, [piece], params, method)
        if isinstance(statement, Passed):
            query = dialect.query(statement.sql) if _has_backticks(piece) else statement.sql
            return self._passed(query, [piece], params, method)
        answer = self._ours(statement, piece, params)
        self._finished = method == "execute"
        return getattr(self.duckdb, method)(answer)

    def _passed(self, query: str, pieces: Sequence[Piece], params: Parameters, method: str) -> Any:
        """Run by DuckDB; an error of ours inside of it comes out as what it is."""
        words = [t for piece in pieces for t in piece.tokens]
        run: Callable[..., Any] = getattr(self.duckdb, method)
        if params and method == "sql":
            run = partial(run, params=params)
        arguments = (query, params) if params and method == "execute" else (query,)
        try:
            return python_objects.call(run, arguments, words)
        except InvalidInputException as error:
            raise self._session.cause(error) from error
        except CatalogException as error:
            raise self._problem(error, words) from error

    def _problem(self, error: DuckDBError, words: Sequence[Token]) -> Exception:
        """The reason why a table of the warehouse has no view, when the statement names it."""
        named = {t.name.lower() for t in words}
        found = next((p for n, p in self._session.problems.items() if n in named), None)
        return found or error

    def _ours(self, statement: Statement, piece: Piece, params: Parameters) -> str:
        """Run a statement of ours; the query that shows its result."""
        session = self._session
        session.drain()
        if isinstance(statement, SetSetting):
            return _set(session, statement)
        if isinstance(statement, ResetSetting):
            return _reset(session, statement)
        if type(statement) in _TABLES:
            with python_objects.visible(session.con, piece.tokens):
                return _TABLES[type(statement)](session, statement)
        if session.read_only:
            raise TableError("the connection is read-only; connect without read_only=True to change Hudi tables.")
        session.require_no_transaction(f"{type(statement).__name__.upper()} on a Hudi table")
        with (
            bound(session, statement, params, piece.tokens) as given,
            python_objects.visible(session.con, piece.tokens),
        ):
            result = _CHANGES[type(statement)](session, given)
        session.last_result = result
        return write_sql(result)

    # ------------------------------------------------------------ DB-API

    def fetchone(self) -> Any:
        """The next row of the last `execute`, None at the end."""
        return self.duckdb.fetchone()

    def fetchmany(self, size: int = 1) -> list[Any]:
        """The next rows of the last `execute`."""
        return self.duckdb.fetchmany(size)

    def fetchall(self) -> list[Any]:
        """The remaining rows of the last `execute`."""
        return self.duckdb.fetchall()

    @property
    def description(self) -> Any:
        """Columns of the last `execute`, as in the DB-API."""
        return self.duckdb.description

    @property
    def rowcount(self) -> int:
        """As DuckDB gives it, -1 when unknown."""
        return self.duckdb.rowcount

    def begin(self) -> Self:
        """Begin a transaction of DuckDB: reads of Hudi tables are repeatable in it, writes are refused."""
        return self.execute("BEGIN")

    def commit(self) -> Self:
        """Commit DuckDB's transaction, if there is one."""
        return self.execute("COMMIT") if self._session.in_transaction() else self

    def rollback(self) -> Self:
        """Roll DuckDB's transaction back, if there is one."""
        with suppress(TransactionException):  # no transaction is active
            self.duckdb.rollback()
        return self

    # ------------------------------------------------------------ tables and life cycle

    def table(self, name: str) -> Table:
        """The Hudi table of that name, or at that path, for use without SQL."""
        path = self._session.instance.path_of(name) or name
        return Table(open_storage(path), self._config)

    def cursor(self) -> "Connection":
        """Another connection to the same database, for another thread; settings are copied."""
        old = self._session
        con = old.con.cursor()
        session = replace(old, con=con, instance=instance_of(con), settings=dict(old.settings), last_result=None)
        if _needs_own_views(session):
            for name, path in old.instance.tables().items():
                views.add(session, name, path)
        return Connection(session, self._config)

    def close(self) -> None:
        """Close the connection."""
        self._session.con.close()
        if self._session.in_memory:
            self._session.instance.forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<lakesql.Connection: {len(self.tables)} tables, warehouse {self.warehouse}>"


def _has_backticks(piece: Piece) -> bool:
    return any(t.kind == "backtick" for t in piece.tokens)


def _needs_own_views(session: Session) -> bool:
    """Views of a read-only database are TEMP, which other connections do not see."""
    sql = "SELECT readonly FROM duckdb_databases() WHERE database_name = current_database()"
    return bool(session.con.execute(sql).fetchall()[0][0])


def _set(session: Session, statement: SetSetting) -> str:
    key, value = statement.key, statement.value
    if value is None:
        return pairs_sql([(key, session.settings.get(key))])
    if key in _OBSOLETE:
        raise Unsupported(
            f"setting {key} is obsolete. SET {changes.INSERT_OPERATION} = 'insert', 'upsert' or 'bulk_insert'."
        )
    if key.startswith("lakesql.") and key != DUPLICATES:
        raise SQLError(f"setting {key} is unknown; lakesql has {DUPLICATES}.")
    if key == DUPLICATES and value.lower() not in POLICIES:
        raise SQLError(f"setting {key} = {value!r}: use one of {', '.join(POLICIES)}.")
    session.settings[key] = value
    return pairs_sql([(key, value)])


def _reset(session: Session, statement: ResetSetting) -> str:
    gone = list(session.settings) if statement.key is None else [statement.key]
    for key in gone:
        session.settings.pop(key, None)
    return pairs_sql([(key, None) for key in gone])
