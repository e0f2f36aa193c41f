"""`connect` and `Connection`: a DuckDB connection that runs the statements on Hudi tables itself.

A script is split, every statement is parsed (`statements`), ours run (`changes`, `ddl`), the rest goes to DuckDB byte for
byte; a script without a statement of ours goes there in one piece. Results of ours are small queries (`results`), so
`sql` always gives a DuckDB relation and `execute` always leaves its result on the DuckDB connection.
"""

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import duckdb
from duckdb import CatalogException, DuckDBPyConnection, InvalidInputException
from duckdb import Error as DuckDBError

from lakesql.errors import LakeError, SQLError, TableError, Unsupported
from lakesql.handle import Table
from lakesql.sql import changes, ddl, dialect, views
from lakesql.sql.functions import instance_of
from lakesql.sql.lexer import Piece, split
from lakesql.sql.merge_into import DUPLICATES, POLICIES
from lakesql.sql.nodes import (
    CreateTable, Delete, DropTable, Insert, Merge, Passed, ResetSetting, SetSetting, ShowProperties, Statement, Truncate, Update,
)  # fmt: skip
from lakesql.sql.parameters import Parameters, bound
from lakesql.sql.python_objects import visible
from lakesql.sql.results import pairs_sql, write_sql
from lakesql.sql.rewrite import rewrite
from lakesql.sql.session import Session
from lakesql.sql.statements import parse
from lakesql.storage import open_storage
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
    # Variables of the caller are some frames away from DuckDB's call.
    settings = {"python_scan_all_frames": "true", **(config or {})}
    in_memory = database == ":memory:"
    con = duckdb.connect(database, read_only=read_only and not in_memory, config=settings)
    try:
        name = con.execute("SELECT current_database()").fetchall()[0][0]
        session = Session(con, instance_of(con), open_storage(warehouse).uri, read_only, name)
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
        return self._run(query, params, self._relation)

    def execute(self, query: str, parameters: Parameters = None) -> Self:
        """Run like `sql`; the result is fetched from this object, as with DuckDB."""
        self._run(query, parameters, self._executed)
        return self

    def _relation(self, query: str, params: Parameters) -> Any:
        return self.duckdb.sql(query, params=params) if params else self.duckdb.sql(query)

    def _executed(self, query: str, params: Parameters) -> Any:
        return self.duckdb.execute(query, params) if params else self.duckdb.execute(query)

    # ------------------------------------------------------------ running

    def _run(self, text: str, params: Parameters, last: Callable[[str, Parameters], Any]) -> Any:
        session = self._session
        script = rewrite(text, session.path_of)
        pieces = split(script)
        parsed = [parse(script, p, session.is_hudi) for p in pieces[:1]] if len(pieces) == 1 else None
        if not pieces or (parsed and isinstance(parsed[0], Passed) and not _has_backticks(pieces[0])):
            return self._passed(script, pieces, lambda: last(script, params))
        if len(pieces) > 1 and self._all_passed(script, pieces):
            return self._passed(script, pieces, lambda: last(script, params))
        for piece in pieces[:-1]:
            self._one(script, piece, None, self._drained)
        return self._one(script, pieces[-1], params, last)

    def _all_passed(self, script: str, pieces: Sequence[Piece]) -> bool:
        try:
            found = [parse(script, piece, self._session.is_hudi) for piece in pieces]
        except LakeError:
            return False  # it may be about a table that an earlier statement makes or drops
        return all(isinstance(s, Passed) for s in found) and not any(map(_has_backticks, pieces))

    def _drained(self, query: str, params: Parameters) -> Any:
        return self._executed(query, params).fetchall()

    def _one(self, script: str, piece: Piece, params: Parameters, last: Callable[[str, Parameters], Any]) -> Any:
        statement = parse(script, piece, self._session.is_hudi)
        if isinstance(statement, Passed):
            query = dialect.query(statement.sql) if _has_backticks(piece) else statement.sql
            return self._passed(query, [piece], lambda: last(query, params))
        return last(self._ours(statement, piece, params), None)

    def _passed(self, query: str, pieces: Sequence[Piece], run: Callable[[], Any]) -> Any:
        """Run by DuckDB; an error of ours inside of it comes out as what it is."""
        try:
            return run()
        except InvalidInputException as error:
            if "not suitable for replacement scans" in str(error) and "lakesql" in str(error):
                # A variable of ours has the name of a table that does not exist: ask again without variables.
                self.duckdb.execute("SET python_enable_replacements = false")
                try:
                    return run()
                finally:
                    self.duckdb.execute("SET python_enable_replacements = true")
            raise self._cause(error) from error
        except CatalogException as error:
            raise self._problem(error, pieces) from error

    def _cause(self, error: DuckDBError) -> Exception:
        last = self._session.instance.last_error
        return last if last is not None and str(last) in str(error) else error

    def _problem(self, error: DuckDBError, pieces: Sequence[Piece]) -> Exception:
        """The reason why a table of the warehouse has no view, when the statement names it."""
        named = {t.name.lower() for piece in pieces for t in piece.tokens}
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
            with visible(session.con, piece.tokens):
                return _TABLES[type(statement)](session, statement)
        if session.read_only:
            raise TableError("the connection is read-only; connect without read_only=True to change Hudi tables.")
        session.require_no_transaction(f"{type(statement).__name__.upper()} on a Hudi table")
        with bound(session, statement, params) as given, visible(session.con, piece.tokens):
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
        session = Session(con, instance_of(con), old.warehouse, old.read_only, old.database, dict(old.settings))
        if _needs_own_views(session):
            for name, path in old.instance.tables().items():
                views.add(session, name, path)
        session.problems = old.problems
        return Connection(session, self._config)

    def close(self) -> None:
        """Close the connection."""
        self._session.con.close()

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
        raise Unsupported(f"setting {key} is obsolete. SET {changes.INSERT_OPERATION} = 'insert', 'upsert' or 'bulk_insert'.")
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
