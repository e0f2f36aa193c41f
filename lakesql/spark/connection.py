"""A connection whose statements on rows of Hudi tables run on Spark; all else runs in DuckDB, as on any connection.

The statement decides: a query that reads Hudi tables, and MERGE, UPDATE, DELETE, INSERT on one, go to Spark. Procedures,
SHOW, settings, ingestion, EXPLAIN of a change and the table functions about a table run here, over the same folders.
Results are what they are elsewhere: `sql` gives a relation of DuckDB over the rows that Spark sent, `execute` leaves them to
be fetched. `frame` gives Spark's data frame instead, for results that are too large for here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from lakesql.errors import SQLError, Unsupported
from lakesql.format.avro import META_COLUMNS
from lakesql.spark import sessions
from lakesql.spark.changes import Changes
from lakesql.spark.engine import Engine
from lakesql.spark.translate import ADVICE
from lakesql.sql import connection, dialect, python_objects, results
from lakesql.sql.connection import Connection
from lakesql.sql.cursor import Cursor
from lakesql.sql.lexer import Piece, split, tokens
from lakesql.sql.nodes import (
    CreateTable,
    Delete,
    DropTable,
    Insert,
    Merge,
    Passed,
    SetSetting,
    Statement,
    Text,
    Truncate,
    Update,
)
from lakesql.sql.parameters import Parameters, bound
from lakesql.sql.statements import parse
from lakesql.table.clock import Clock
from lakesql.table.names import quote
from lakesql.table.state import load

_ROWS = "__lakesql_rows"
_ANSWER = "__lakesql_answer"
_QUERIES = ("SELECT", "FROM", "VALUES", "TABLE", "WITH")
_BEGINS = ("BEGIN", "START")
_VERSION = "hoodie.write.table.version"


def open_connection(
    database: str, warehouse: Any, config: dict[str, Any], read_only: bool, spark: Any, clock: Clock
) -> "SparkConnection":
    """A connection with a Spark session, given or started. LakeError when there is none to be had."""
    sessions.require_pyspark()
    of_spark = {k: str(v) for k, v in config.items() if k.startswith(("lakesql.spark.", "spark."))}
    unknown = sorted(k for k in of_spark if k.startswith("lakesql.") and k not in sessions.SETTINGS)
    if unknown:
        raise SQLError(f"setting {unknown[0]} is unknown; there are {', '.join(sessions.SETTINGS)}.")
    made = connection.connect(
        database, warehouse, {k: v for k, v in config.items() if k not in of_spark}, read_only, clock=clock
    )
    try:
        session = sessions.adopted(spark) if spark is not None else sessions.start(of_spark, made.warehouse)
        made.duckdb.execute("SET TimeZone = 'UTC'")
        newest = sessions.newest_table_version(session)
    except BaseException:
        made.close()
        raise
    return SparkConnection(made._session, made._config, session, of_spark, newest)


class SparkConnection(Connection):
    """A connection to DuckDB here and to Spark. One thread at a time; `cursor()` gives another."""

    _wraps_queries = False

    def __init__(
        self, session: Any, config: Mapping[str, str], spark: Any, of_spark: Mapping[str, str], newest: int
    ) -> None:
        super().__init__(session, config)
        self._spark, self._of_spark, self._newest = spark, of_spark, newest
        self._engine = Engine(spark, session, of_spark)
        self._changes = Changes(self._engine)

    @property
    def spark(self) -> Any:
        """The Spark session."""
        return self._spark

    def frame(self, query: str) -> Any:
        """Spark's data frame of a query, which is run when and where it is used, before the connection is closed."""
        [piece] = split(query)
        text = dialect.query(piece.text) if _has_backticks(piece) else piece.text
        with self._engine.statement("frame"):
            made, _ = self._engine.frame(text)
            self._engine.reads.keep()
        return made

    # ------------------------------------------------------------ running

    def _all_passed(self, script: str, pieces: Sequence[Piece]) -> bool:
        """Statement by statement: each may be Spark's."""
        del script, pieces
        return False

    def _one(self, script: str, piece: Piece, params: Parameters, method: str, alone: bool = False) -> Any:
        statement = parse(script, piece, self._is_hudi)
        if not isinstance(statement, Passed):
            return super()._one(script, piece, params, method, alone)
        text = dialect.query(statement.sql) if _has_backticks(piece) else statement.sql
        words = [t.word for t in piece.tokens]
        if words[0] in _BEGINS and self.tables:
            raise Unsupported(
                f"{words[0]} on engine spark is not supported: Spark does not keep what a transaction has seen. {ADVICE}"
            )
        self._session.drain()
        with (
            bound(self._session, Text(text, 0), params, piece.tokens) as given,
            python_objects.visible(self._session.con, piece.tokens),
        ):
            rows = self._of_spark_rows(given.sql, words)
        if rows is not None:
            return self._given(rows, method)
        if words[0] in ("PREPARE", "EXECUTE", "SUMMARIZE", "PIVOT", "UNPIVOT") and self._engine.reads.concern(text):
            raise Unsupported(f"{words[0]} of a Hudi table on engine spark is not supported. {ADVICE}")
        inner = self._with_rows(text, piece)
        if inner is not None:
            return inner
        return super()._one(script, piece, params, method, alone)

    def _of_spark_rows(self, text: str, words: Sequence[str]) -> pa.Table | None:
        """The rows of a query that reads Hudi tables, or Spark's plan of it; None for what DuckDB runs."""
        explains = words[0] == "EXPLAIN"
        if explains:
            [first, *_] = tokens(text)
            text = text[first.end :]
            if words[1:2] and words[1] not in _QUERIES:
                return None
        elif words[0] not in _QUERIES and not text.lstrip().startswith("("):
            return None
        tree = self._engine.reads_hudi(text)
        if tree is None:
            return None
        with self._engine.statement("the query"):
            if not explains:
                return self._engine.rows(text, tree)
            frame, _ = self._engine.frame(text, tree)
            plan = frame._jdf.queryExecution().explainString(
                self._spark._jvm.org.apache.spark.sql.execution.ExplainMode.fromString("formatted")
            )
        return pa.table({"explain_key": ["physical_plan"], "explain_value": [str(plan)]})

    def _with_rows(self, text: str, piece: Piece) -> Any:
        """A statement of DuckDB's around a query that reads Hudi tables: CREATE TABLE AS, INSERT, COPY (query) TO."""
        start = _inner_query(text)
        if start is None:
            return None
        query = text[start[0] : start[1]]
        tree = self._engine.reads_hudi(query)
        if tree is None:
            return None
        with self._engine.statement("the query"), python_objects.visible(self._session.con, piece.tokens):
            rows = self._engine.rows(query, tree)
        con = self._session.con
        con.register(_ROWS, rows)
        try:
            con.execute(f"{text[: start[0]]} SELECT * FROM {_ROWS} {text[start[1] :]}").fetchall()
        finally:
            con.unregister(_ROWS)
        return con.sql('SELECT true AS "Success" WHERE false')

    def _given(self, rows: pa.Table, method: str) -> Any:
        self._finished = method == "execute"
        if method == "sql":
            return self.duckdb.from_arrow(rows)
        self.duckdb.register(_ANSWER, rows)
        return self.duckdb.execute(f"SELECT * FROM {_ANSWER}")

    def _ours(self, statement: Statement, piece: Piece, params: Parameters) -> str | pa.Table:
        session = self._session
        if isinstance(statement, SetSetting) and statement.key in sessions.SETTINGS:
            raise SQLError(f"setting {statement.key} counts when a connection is made: connect(..., config={{...}}).")
        if isinstance(statement, Merge | Update | Delete | Insert):
            session.drain()
            session.require_writable()
            session.require_no_transaction(f"{type(statement).__name__.upper()} on a Hudi table")
            with (
                bound(session, statement, params, piece.tokens) as given,
                python_objects.visible(session.con, piece.tokens),
            ):
                changed = self._run_change(given)
            session.last_result = changed.result
            return results.write_sql(changed.result) if changed.returned is None else changed.returned
        if isinstance(statement, CreateTable):
            return self._create(statement, piece, params)
        path = session.path_of(statement.target) if isinstance(statement, DropTable | Truncate) else None
        if path is not None:
            self._changes.forget(path)
        return super()._ours(statement, piece, params)

    def _run_change(self, statement: Merge | Update | Delete | Insert) -> results.Changed:
        session = self._session
        session.instance.release(session.owner)
        if isinstance(statement, Merge):
            return self._changes.merge(statement)
        if isinstance(statement, Update):
            return self._changes.update(statement)
        if isinstance(statement, Delete):
            return self._changes.delete(statement)
        return self._changes.insert(statement)

    def _create(self, statement: CreateTable, piece: Piece, params: Parameters) -> str | pa.Table:
        """CREATE TABLE is ours, at a version that this Spark reads; the rows of AS SELECT are Spark's to write."""
        session = self._session
        before = dict(session.settings)
        if _VERSION not in session.settings and _VERSION not in statement.properties:
            session.settings[_VERSION] = str(self._newest)
        try:
            if statement.query is None or self._engine.reads_hudi(_in_duckdb(statement)) is None:
                return super()._ours(statement, piece, params)
            return self._create_as(statement, piece, params)
        finally:
            session.settings.clear()
            session.settings.update(before)

    def _create_as(self, statement: CreateTable, piece: Piece, params: Parameters) -> str:
        session = self._session
        query = _in_duckdb(statement)
        empty = replace(
            statement,
            query=Text(f"SELECT * FROM ({query}) LIMIT 0", statement.query.start if statement.query else 0),
            spark=False,
        )
        super()._ours(empty, piece, params)
        path = session.require_path(statement.target)
        try:
            names = [n for n in self._engine.schema_of(query).names if n not in META_COLUMNS]
            listed = f"SELECT {', '.join(map(quote, names))} FROM ({query})"
            result = self._changes.create_as(load(session.instance.storage(path)), listed)
        except BaseException:
            super()._ours(DropTable(statement.target, True, True), piece, None)
            raise
        session.last_result = result
        return results.write_sql(result)

    # ------------------------------------------------------------ life cycle

    def cursor(self) -> "SparkConnection":
        """Another connection to the same database and Spark session, for another thread; settings are copied."""
        made = super().cursor()
        made.duckdb.execute("SET TimeZone = 'UTC'")
        cursor = SparkConnection(made._session, made._config, self._spark, self._of_spark, self._newest)
        self._cursors.add(cursor)
        return cursor

    def close(self) -> None:
        """Close the connection; the Spark session stays, without what the connection had put into it."""
        try:
            self._changes.forget()
            self._engine.reads.close()
        except Exception as error:  # the session was stopped before: then there is nothing left in it
            if not type(error).__module__.startswith(("py4j", "pyspark", "builtins")):
                raise
        super().close()

    def __repr__(self) -> str:
        return f"<lakesql.SparkConnection: {len(self.tables)} tables, warehouse {self.warehouse}, Spark {self._spark.version}>"


def _in_duckdb(statement: CreateTable) -> str:
    assert statement.query is not None, "the caller asked"
    return dialect.query(statement.query.sql) if statement.spark else statement.query.sql


def _inner_query(text: str) -> tuple[int, int] | None:
    """Where the query of a CREATE TABLE AS, an INSERT or a COPY (query) TO stands."""
    words = tokens(text)
    first = words[0].word if words else ""
    if first == "COPY" and len(words) > 1 and words[1].text == "(":
        inner = Cursor(text, words[1:]).bracketed("a query")
        return inner.start, inner.start + len(inner.sql)
    if first == "CREATE" and "TABLE" in [t.word for t in words[:4]]:
        start = next((i for i, t in enumerate(words) if t.word == "AS"), None)
        return None if start is None else (words[start].end, len(text))
    if first == "INSERT":
        start = next((i for i, t in enumerate(words) if t.word in ("SELECT", "FROM", "WITH")), None)
        return None if start is None else (words[start].start, len(text))
    return None


def _has_backticks(piece: Piece) -> bool:
    return any(t.kind == "backtick" for t in piece.tokens)
