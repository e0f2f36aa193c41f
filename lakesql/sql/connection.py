"""`connect` and `Connection`: a DuckDB connection that runs the statements on Hudi tables itself.

A script is split, every statement is parsed (`statements`), ours run (`changes`, `ddl`), the rest goes to DuckDB
byte for byte; a script without a statement of ours goes there in one piece. Results of ours are small queries
(`results`), so `sql` always gives a DuckDB relation and `execute` always leaves its result on the DuckDB
connection.

Imports inside of functions keep what most connections never use from being loaded: starting takes longer than a query.
"""

import os
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakSet

import duckdb
import pyarrow as pa
from duckdb import BinderException, CatalogException, DuckDBPyConnection, InvalidInputException, TransactionException
from duckdb import Error as DuckDBError

from lakesql.counted import counted
from lakesql.errors import LakeError, SQLError, StaleReadWarning, TableError
from lakesql.sql import functions, python_objects, views
from lakesql.sql.functions import instance_of
from lakesql.sql.instance import Owner
from lakesql.sql.lexer import IDENTIFIERS, Piece, Token, split
from lakesql.sql.near_misses import misspelt
from lakesql.sql.nodes import (
    INGESTIONS,
    Call,
    CreateSecret,
    DropSecret,
    Explain,
    ExplainIngest,
    Name,
    Passed,
    ResetSetting,
    SetSetting,
    ShowIngestion,
    Statement,
)
from lakesql.sql.parameters import Parameters, bound
from lakesql.sql.results import write_sql
from lakesql.sql.rewrite import rewrite
from lakesql.sql.session import Session
from lakesql.sql.statements import parse
from lakesql.storage import open_storage
from lakesql.stores import settings as store_settings
from lakesql.stores.calls import Meter, Requests, budget_of, current, metered
from lakesql.stores.lock_object import LockObject, supplied
from lakesql.table import outcomes
from lakesql.table.clock import Clock, system_clock
from lakesql.table.damaged import answered, damage
from lakesql.table.interrupts import interrupts
from lakesql.table.names import quote

if TYPE_CHECKING:
    from lakesql.handle import Table
    from lakesql.ingest.front import Work
    from lakesql.ingest.metrics import Metrics
    from lakesql.ingest.model import Plan, Report
    from lakesql.ingest.progress import Progress
    from lakesql.services.freshness import LastRead
    from lakesql.write import WriteResult

_ANSWER = "__lakesql_answer"
_HANDLE_CONFIG = ("memory_limit", "threads", "temp_directory", "max_memory")


def connect(
    database: str = ":memory:",
    warehouse: str | os.PathLike[str] = "warehouse",
    config: Mapping[str, Any] | None = None,
    read_only: bool = False,
    *,
    clock: Clock = system_clock,
    lock: LockObject | None = None,
) -> "Connection":
    """A connection with the tables of the folder `warehouse` as views.

    `database`: a DuckDB file, or memory; `config`: DuckDB's settings, and those of SET that begin with hoodie. or lakesql.
    `lock`: called with (path of a table, seconds to wait), a context manager to hold while the table is changed, for
    writers that lock it with a service and for stores without conditional puts. With `read_only` neither the database file nor a
    Hudi table can be changed. `clock` gives epoch milliseconds, from which instants are made.
    """
    options = dict(config or {})
    settings = {key: str(options.pop(key)) for key in list(options) if key.startswith(("lakesql.", "hoodie."))}
    in_memory = database == ":memory:"
    with interrupts():
        con = duckdb.connect(database, read_only=read_only and not in_memory, config=options)
        try:
            name = con.execute("SELECT current_database()").fetchall()[0][0]
            instance = instance_of(con)
            instance.stores.settings.update({k: v for k, v in settings.items() if k.startswith(store_settings.PREFIX)})
            folder = open_storage(warehouse).uri
            if folder not in instance.homes:
                instance.homes.append(folder)
            home = "" if functions.read_only(con, name) else f"{quote(name)}.main."
            session = Session(con, instance, folder, read_only, name, in_memory, home, clock, lock=lock)
            for key, value in settings.items():
                from lakesql.sql.settings import set_setting

                set_setting(session, SetSetting(key, value))
            with store_settings.chosen(instance.stores):
                views.add_warehouse(session)
        except BaseException:
            con.close()
            raise
        return Connection(session, {k: str(v) for k, v in options.items() if k in _HANDLE_CONFIG})


class Connection:
    """A DuckDB connection that knows Hudi tables. One thread at a time; `cursor()` gives another."""

    _wraps_queries = True
    """Whether a query may stand in brackets of a larger one of DuckDB's own."""

    def __init__(self, session: Session, config: Mapping[str, str]) -> None:
        self._session = session
        self._config = config
        self._finished = False
        self._cursors: WeakSet[Connection] = WeakSet()
        session.instance.join(session.owner)

    @property
    def duckdb(self) -> DuckDBPyConnection:
        """The DuckDB connection; what runs there directly is DuckDB's alone, views and table functions included."""
        return self._session.con

    @property
    def last_result(self) -> "WriteResult | None":
        """What the last statement that wrote a Hudi table did."""
        return self._session.last_result

    @property
    def last_read(self) -> "LastRead | None":
        """Up to which commit the read-optimized read of the last statement was complete, and how far it lagged.

        None when it had none; when it read several tables so, the one that lags most.
        """
        return max(self._session.last_reads, key=lambda r: r.lag_s, default=None)

    @property
    def last_requests(self) -> Requests:
        """What the last statement asked of object stores, by kind, and the bytes that came and went.

        A result that is still being fetched goes on counting.
        """
        meter = self._session.last_requests
        return meter.told() if meter is not None else Requests()

    @property
    def warehouse(self) -> str:
        """The folder of tables created without LOCATION."""
        return self._session.warehouse

    @property
    def read_only(self) -> bool:
        """Whether neither the database nor a Hudi table can be changed."""
        return self._session.read_only

    @property
    def tables(self) -> dict[str, str]:
        """Name -> path of the Hudi tables known."""
        return self._session.instance.tables()

    @property
    def broken(self) -> "dict[str, LakeError]":
        """Name -> what is wrong, of the tables in the warehouse that cannot be read; the folder is looked at again."""
        views.refresh(self._session)
        return dict(self._session.problems)

    def sql(self, query: str, *, params: Parameters = None) -> Any:
        """Run one or several statements; the relation of the last one, lazy for a SELECT.

        A statement that changes a Hudi table gives one row, the fields of its `WriteResult`, or the rows of its
        RETURNING. `params` are for the last statement. Raises LakeError for statements on Hudi tables, DuckDB's errors for the others.
        """
        return self._interruptible(query, params, "sql")

    def execute(self, query: str, parameters: Parameters = None) -> Self:
        """Run like `sql`; the result is fetched from this object, as with DuckDB."""
        self._interruptible(query, parameters, "execute")
        return self

    # ------------------------------------------------------------ running

    def _interruptible(self, text: str, params: Parameters, method: str) -> Any:
        """Run; after Ctrl-C the connection is free for the next statement."""
        reads = self._session.instance.reads()
        reads.clear()
        try:
            with (
                interrupts(),
                supplied(self._session.lock),
                metered(Meter()),
                outcomes.chosen(self._session.settings.get(outcomes.DISK_CACHE)),
                store_settings.chosen(self._session.instance.stores),
            ):
                answer = self._run(text, params, method)
        except KeyboardInterrupt:
            with suppress(DuckDBError):
                self._session.drain()
            self._finished = False
            raise
        self._session.last_reads = tuple(reads)
        for note in dict.fromkeys(r.note for r in reads if r.warn):
            warnings.warn(str(note), StaleReadWarning, stacklevel=3)
        return answer

    def _run(self, text: str, params: Parameters, method: str) -> Any:
        if not isinstance(text, str):
            raise SQLError(f"a statement is a text, found {type(text).__name__}.")
        session = self._session
        session.instance.own(session.owner)
        if self._finished:
            # What is open is the row that a statement of ours left; nobody waits for it.
            session.drain()
            session.con.unregister(_ANSWER)
            self._finished = False
        script = rewrite(text, self._path_of, session.home)
        pieces = split(script)
        if len(pieces) != 1 and self._all_passed(script, pieces):
            with self._metered():
                views.refresh(session, _named(pieces))
                return self._passed(script, pieces, params, method)
        for piece in pieces[:-1]:
            with self._metered():
                self._one(script, piece, None, "execute")
                session.drain()
        with self._metered():
            return self._one(script, pieces[-1], params, method, alone=len(pieces) == 1)

    def _metered(self) -> AbstractContextManager[None]:
        """Within, requests are those of one statement, and held to its budget."""
        before = current()  # what it took to find out what the script is about
        meter = self._session.last_requests = Meter(budget_of(self._session.settings))
        if before is not None:
            meter.requests += before.requests
            before.requests.clear()
        return answered(meter)

    def _path_of(self, name: Name) -> str | None:
        """The path of the Hudi table a name means; for a name not known the warehouse folder is looked at again."""
        path = self._session.path_of(name)
        if path is None and name and views.refresh(self._session, {name[-1].lower()}):
            path = self._session.path_of(name)
        return path

    def _is_hudi(self, name: Name) -> bool:
        return self._path_of(name) is not None

    def _all_passed(self, script: str, pieces: Sequence[Piece]) -> bool:
        """Whether DuckDB can have the script as it is."""
        try:
            found = [parse(script, piece, self._is_hudi) for piece in pieces]
        except LakeError:
            return False  # it may be about a table that an earlier statement makes or drops
        return all(isinstance(s, Passed) for s in found) and not any(map(_has_backticks, pieces))

    def _one(self, script: str, piece: Piece, params: Parameters, method: str, alone: bool = False) -> Any:
        statement = parse(script, piece, self._is_hudi)
        if isinstance(statement, Passed) and alone and not _has_backticks(piece):
            return self._passed(script, [piece], params, method)
        if isinstance(statement, Passed):
            query = _spark_query(statement.sql) if _has_backticks(piece) else statement.sql
            return self._passed(query, [piece], params, method)
        answer = self._ours(statement, piece, params)
        self._finished = method == "execute"
        if isinstance(answer, str):
            return getattr(self.duckdb, method)(answer)
        if method == "sql":
            return self.duckdb.from_arrow(answer)
        self.duckdb.register(_ANSWER, answer)
        return self.duckdb.execute(f"SELECT * FROM {_ANSWER}")

    def _passed(self, query: str, pieces: Sequence[Piece], params: Parameters, method: str) -> Any:
        """Run by DuckDB; an error of ours inside of it comes out as what it is."""
        words = [t for piece in pieces for t in piece.tokens]
        query = views.described(self._session, query, words)
        run: Callable[..., Any] = getattr(self.duckdb, method)
        if params and method == "sql":
            run = partial(run, params=params)
        arguments = (query, params) if params and method == "execute" else (query,)
        if [t.word for t in words[:2]] == ["SHOW", "TABLES"] or [t.word for t in words[:3]] == [
            "SHOW",
            "ALL",
            "TABLES",
        ]:
            views.refresh(self._session)
        try:
            try:
                return python_objects.call(run, arguments, words)
            except CatalogException as error:
                # Perhaps another connection has made the table meanwhile. A single statement has done nothing yet.
                if len(pieces) > 1 or not views.refresh(self._session, _named(pieces)):
                    raise self._problem(error, words) from error
                return python_objects.call(run, arguments, words)
        except InvalidInputException as error:
            raise damage(error, ()) or self._session.cause(error) from error
        except (BinderException, CatalogException) as error:
            raise self._problem(error, words) from error
        except DuckDBError as error:
            if found := damage(error, ()) or misspelt(error, pieces):
                raise found from error
            raise

    def _problem(self, error: DuckDBError, words: Sequence[Token]) -> Exception:
        """What is behind an error of DuckDB that our tables explain better; the error itself when nothing is."""
        named = {t.name.lower() for t in words}
        found: Exception | None = None
        if isinstance(error, CatalogException):
            found = next((p for n, p in self._session.problems.items() if n in named), None) or misspelt(error, ())
        text = str(error)
        if '"query" does not support lateral' in text:
            found = SQLError(
                "a table function on a Hudi table takes constants, not columns of another table: the table must be known "
                "before the statement runs. Name it as a text, and join the results."
            )
        elif re.search(r"is not an? table|(?i:only \w+ (?:from |into )?base table)", text):
            for view in sorted(named):
                if (base := views.base_of(self._session, view)) is not None:
                    found = SQLError(
                        f"{view} is a view of the Hudi table {base} and cannot be changed; write to {base}."
                    )
        return found or error

    def _ours(self, statement: Statement, piece: Piece, params: Parameters) -> str | pa.Table:
        """Run a statement of ours; its result, or the query that shows it."""
        from lakesql.sql import handlers, secrets, settings

        session = self._session
        session.drain()
        if isinstance(statement, SetSetting):
            return settings.set_setting(session, statement)
        if isinstance(statement, ResetSetting):
            return settings.reset_setting(session, statement)
        if isinstance(statement, CreateSecret | DropSecret):
            run = secrets.create if isinstance(statement, CreateSecret) else secrets.drop
            return run(session, statement, piece.text)  # type: ignore[arg-type]
        if type(statement) in handlers.TABLES:
            with python_objects.visible(session.con, piece.tokens):
                return handlers.TABLES[type(statement)](session, statement)
        if isinstance(statement, Call):
            from lakesql.sql import calls  # all procedures, ingestion with them

            with bound(session, statement, params, piece.tokens) as given:
                return calls.call(session, given)
        if not isinstance(statement, Explain | ExplainIngest | ShowIngestion):
            session.require_writable()
        if isinstance(statement, INGESTIONS):
            from lakesql.sql import ingest

            if not isinstance(statement, ExplainIngest | ShowIngestion):
                session.require_no_transaction("a change of an ingestion or of its target")
            with bound(session, statement, params, piece.tokens) as given:
                return ingest.HANDLERS[type(statement)](session, given)
        session.require_no_transaction(f"{type(statement).__name__.upper()} on a Hudi table")
        with (
            bound(session, statement, params, piece.tokens) as given,
            python_objects.visible(session.con, piece.tokens),
        ):
            if isinstance(given, Explain):
                return handlers.EXPLAINED[type(given.statement)](session, given.statement, given.fates)
            changed = handlers.run_change(session, given, piece.tokens)
        session.last_result = changed.result
        return write_sql(changed.result) if changed.returned is None else changed.returned

    # ------------------------------------------------------------ DB-API

    def fetchone(self) -> Any:
        """The next row of the last `execute`, None at the end."""
        with answered(self._session.last_requests):
            return self.duckdb.fetchone()

    def fetchmany(self, size: int = 1) -> list[Any]:
        """The next rows of the last `execute`."""
        with answered(self._session.last_requests):
            return self.duckdb.fetchmany(size)

    def fetchall(self) -> list[Any]:
        """The remaining rows of the last `execute`."""
        with answered(self._session.last_requests):
            return self.duckdb.fetchall()

    @property
    def description(self) -> Any:
        """Columns of the last `execute`, as in the DB-API."""
        return self.duckdb.description

    @property
    def rowcount(self) -> int:
        """As DuckDB gives it, -1 when unknown."""
        return self.duckdb.rowcount

    def register(self, view_name: str, python_object: Any) -> Self:
        """Let a name mean a data frame or Arrow object on this connection, as DuckDB does."""
        self.duckdb.register(view_name, python_object)
        if python_objects.is_rereadable(python_object):
            self._session.rereadable.add(view_name.lower())
        return self

    def unregister(self, view_name: str) -> Self:
        """Take a name of `register` back."""
        self.duckdb.unregister(view_name)
        self._session.rereadable.discard(view_name.lower())
        return self

    def executemany(self, query: str, parameters: Sequence[Parameters]) -> Self:
        """Run a statement once for each set of parameters. On a Hudi table each of them is a commit."""
        for values in parameters:
            self.execute(query, values)
        return self

    def df(self) -> Any:
        """The remaining rows of the last `execute` as a pandas data frame."""
        _package("pandas")
        return self.duckdb.df()

    def fetchdf(self) -> Any:
        """As `df`."""
        return self.df()

    def pl(self) -> Any:
        """The remaining rows of the last `execute` as a polars data frame."""
        return _package("polars").from_arrow(self.arrow())

    def arrow(self) -> pa.Table:
        """The remaining rows of the last `execute` as an Arrow table."""
        con: Any = self.duckdb
        return con.to_arrow_table() if hasattr(con, "to_arrow_table") else con.fetch_arrow_table()  # DuckDB 1

    def fetch_arrow_table(self) -> pa.Table:
        """As `arrow`."""
        return self.arrow()

    def to_arrow_table(self) -> pa.Table:
        """As `arrow`."""
        return self.arrow()

    def to_arrow_reader(self, batch_size: int = 1_000_000) -> pa.RecordBatchReader:
        """The remaining rows of the last `execute` as Arrow record batches."""
        con: Any = self.duckdb
        if hasattr(con, "to_arrow_reader"):
            return con.to_arrow_reader(batch_size)
        return con.fetch_record_batch(batch_size)  # DuckDB 1

    def fetchnumpy(self) -> Any:
        """The remaining rows of the last `execute` as a dict of NumPy arrays."""
        return self.duckdb.fetchnumpy()

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

    # ------------------------------------------------------------ ingestion

    def ingestion_of(
        self, job_file: str | os.PathLike[str], settings: Mapping[str, str] | None = None, strict: bool = False
    ) -> "Work":
        """The job of a job file, with some settings in place of the file's; tables that it names are this connection's."""
        from lakesql.sql import ingest

        with interrupts():
            return ingest.work_of_file(self._session, job_file, settings or {}, strict)

    def show_progress(self, progress: "Callable[[], AbstractContextManager[Progress | None]]") -> None:
        """From now on INGEST and RUN INGESTION tell what `progress` makes, for one run, how they go on."""
        self._session.progress = progress

    def plan_of(self, work: "Work") -> "Plan":
        """What a run of the job would read; no record is read."""
        from lakesql.sql import ingest

        with interrupts():
            return ingest.plan_of(self._session, work)

    def run_ingestion(
        self, work: "Work", progress: "Progress | None" = None, metrics: "Metrics | None" = None
    ) -> "Report":
        """Run the job: topics of Kafka into its target, data and offsets in one commit."""
        from lakesql.sql import ingest

        self._session.require_writable()
        with interrupts():
            self._session.drain()
            self._session.require_no_transaction("an ingestion")
            with supplied(self._session.lock), self._metered():
                return ingest.run_work(self._session, work, progress, metrics)

    # ------------------------------------------------------------ tables and life cycle

    def table(self, name: str) -> "Table":
        """The Hudi table of that name, or at that path, for use without SQL."""
        from lakesql.handle import Table

        path = self._session.instance.path_of(name)
        if path is None and views.refresh(self._session, {name.lower()}):
            path = self._session.instance.path_of(name)
        if path is None and "/" not in name and not Path(name).exists():
            raise self._session.problems.get(name.lower()) or TableError(
                f"{name} is neither a Hudi table of this connection nor a folder; it has "
                f"{', '.join(self._session.instance.tables()) or 'none'}."
            )
        path = path or name
        return Table(self._session.instance.storage(path), self._config, self._session.lock)

    def cursor(self) -> "Connection":
        """Another connection to the same database, for another thread; settings are copied."""
        from lakesql.sql import settings

        old = self._session
        con = old.con.cursor()
        session = replace(
            old,
            con=con,
            instance=instance_of(con),
            settings=dict(old.settings),
            last_result=None,
            last_requests=None,
            last_reads=(),
            rereadable=set(),
            owner=Owner(),
        )
        settings.tell_table_functions(session)
        if not session.home:  # views of a read-only database are TEMP, which other connections do not see
            for name, path in old.instance.tables().items():
                views.add(session, name, path)
        made = Connection(session, self._config)
        self._cursors.add(made)
        return made

    def close(self) -> None:
        """Close the connection, and as DuckDB does its cursors."""
        for cursor in tuple(self._cursors):
            cursor.close()
        last = self._session.instance.leave(self._session.owner)
        self._session.con.close()
        if self._session.in_memory and last:
            self._session.instance.forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<lakesql.Connection: {counted(len(self.tables), 'table')}, warehouse {self.warehouse}>"

    def _repr_html_(self) -> str:
        from lakesql import markup

        return markup.warehouse(self.warehouse, self.tables, self._session.read_only)


def _package(name: str) -> Any:
    """A package of data frames. LakeError when it is not installed."""
    try:
        return import_module(name)
    except ImportError as error:
        raise LakeError(
            f"data frames of {name} need the package {name}. Install it: pip install {name}. arrow() gives the rows without it."
        ) from error


def _named(pieces: Sequence[Piece]) -> set[str]:
    """Every identifier of some statements, in lower case."""
    return {t.name.lower() for piece in pieces for t in piece.tokens if t.kind in IDENTIFIERS}


def _spark_query(text: str) -> str:
    from lakesql.sql import dialect

    return dialect.query(text)


def _has_backticks(piece: Piece) -> bool:
    return any(t.kind == "backtick" for t in piece.tokens)
