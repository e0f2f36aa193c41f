"""One query of DuckDB's, run by Spark: bound here, translated, looked at for casts, run, and its rows brought home.

DuckDB binds it first, on the columns of the tables alone: mistakes are the same errors, and names and types of the result
are what DuckDB would give. Rows of Spark come in these types or, where they would not fit, not at all.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import duckdb
import pyarrow as pa
from sqlglot import exp

from lakesql.errors import Unsupported
from lakesql.spark import casts, errors, sessions, translate
from lakesql.spark.reads import READS, Reads
from lakesql.sql import python_objects
from lakesql.sql.lexer import Token, tokens
from lakesql.sql.session import Session
from lakesql.sql.stage import ROW

_FREE = {"cast", "case", "and", "or", "not", "in", "interval", "extract", "struct_pack", "row"}


class Engine:
    """Spark behind one connection."""

    def __init__(self, spark: Any, session: Session, config: Mapping[str, str]) -> None:
        self.spark = spark
        self.session = session
        self.reads = Reads(spark, session, config.get(sessions.EXCHANGE))
        self._scalars: frozenset[str] | None = None
        self._owns = False

    @contextmanager
    def statement(self, where: str, settings: Mapping[str, str] | None = None) -> Iterator[None]:
        """Within runs one statement: Spark has its settings, its errors are ours, its views go at the end."""
        zone = self.session.con.execute("SELECT current_setting('TimeZone')").fetchall()[0][0]
        wanted = {**(settings or {}), "spark.sql.session.timeZone": zone}
        try:
            with errors.ours(where), sessions.settings(self.spark, wanted):
                yield
        finally:
            self.reads.forget()

    def schema_of(self, sql: str) -> pa.Schema:
        """Names and types of a query's result as DuckDB has them. DuckDB's errors about the statement."""
        with self.session.instance.shapes_of(READS):
            relation = self._called(self.session.con.sql, sql)
            return relation.limit(0).to_arrow_table().schema

    def reads_hudi(self, sql: str) -> exp.Expression | None:
        """The query, looked into, when it reads rows of Hudi tables; None for what DuckDB runs."""
        if not self.reads.concern(sql) and not self._has_views():
            return None
        try:
            tree = self.reads.expanded(translate.parsed(sql))
        except Unsupported:
            if self.reads.concern(sql):
                raise
            return None
        return tree if self.reads.of(tree) else None

    def frame(self, sql: str, tree: exp.Expression | None = None) -> tuple[Any, pa.Schema]:
        """The data frame of a query of DuckDB's, not run yet, and the schema of its result there."""
        schema = self.schema_of(sql)
        tree = self.reads.expanded(translate.parsed(sql)) if tree is None else tree
        tree = self.reads.placed(tree, self._run)
        text = translate.spark_sql(tree, self._constant, list(schema.names))
        frame = self.spark.sql(text)
        casts.require_same(frame)
        return frame, schema

    def rows(self, sql: str, tree: exp.Expression | None = None) -> pa.Table:
        """The rows of a query of DuckDB's."""
        frame, schema = self.frame(sql, tree)
        return fitted(collected(frame), schema)

    def numbers_rows(self, sql: str) -> bool:
        """Whether Spark would number the rows of a source: then they have no order that is the source's."""
        tree = self.reads.expanded(translate.parsed(sql))
        for window in tree.find_all(exp.Window):
            above = window.find_ancestor(exp.Subquery)
            if window.parent is not None and window.parent.alias == ROW.strip('"'):
                return above is None or bool(self.reads.of(above)) or above.find_ancestor(exp.CTE) is not None
        return False

    # ------------------------------------------------------------ DuckDB's part

    def _called(self, run: Any, sql: str) -> Any:
        return python_objects.call(run, (sql,), tokens(sql))

    def _run(self, sql: str) -> pa.Table:
        return self._called(self.session.con.sql, sql).to_arrow_table()

    def _has_views(self) -> bool:
        sql = "SELECT count(*) FROM duckdb_views() WHERE NOT internal AND NOT contains(sql, 'hudi_')"
        return bool(self.session.con.execute(sql).fetchall()[0][0])

    def _constant(self, text: str) -> tuple[str | None, str] | None:
        """The value of an expression without columns and its type; None when it has not one value for the statement."""
        words = tokens(text)
        if any(self._is_changing(t, after) for t, after in zip(words, [*words[1:], None], strict=True)):
            return None
        row = self.session.con.execute(f"SELECT CAST(v AS VARCHAR), typeof(v) FROM (SELECT {text} AS v)").fetchall()[0]
        return row[0], row[1]

    def _is_changing(self, token: Token, after: Token | None) -> bool:
        if after is None or after.text != "(" or token.kind not in ("word", "quoted"):
            return False
        if self._scalars is None:
            rows = self.session.con.execute(
                "SELECT lower(function_name) FROM duckdb_functions() WHERE function_type IN ('scalar', 'macro') GROUP BY ALL "
                "HAVING bool_and(coalesce(stability, 'CONSISTENT') <> 'VOLATILE')"
            ).fetchall()
            self._scalars = frozenset(name for (name,) in rows) | _FREE | {"getvariable"}
        return token.name.lower() not in self._scalars


def collected(frame: Any) -> pa.Table | None:
    """The rows of a data frame; None when there are none."""
    batches: Sequence[pa.RecordBatch] = frame._collect_as_arrow()
    return pa.Table.from_batches(batches) if batches else None


def fitted(rows: pa.Table | None, schema: pa.Schema) -> pa.Table:
    """The rows in the types of DuckDB's result. Unsupported for a column of another kind."""
    if rows is None:
        return schema.empty_table()
    columns = [
        _fitted(column, given.type, wanted)
        for column, given, wanted in zip(rows.columns, rows.schema, schema, strict=True)
    ]
    return pa.table(columns, schema=pa.schema([f.with_nullable(True) for f in schema]))


def _fitted(column: pa.ChunkedArray, given: pa.DataType, wanted: pa.Field) -> pa.ChunkedArray:
    kind = wanted.type
    if given == kind:
        return column
    if not _fits(given, kind):
        raise Unsupported(
            f"column {wanted.name}: Spark gives {given} where DuckDB gives {kind}. CAST the column to one type. {translate.ADVICE}"
        )
    try:
        return column.cast(kind)
    except pa.ArrowInvalid as error:
        raise duckdb.OutOfRangeException(f"column {wanted.name}: {error}") from error


def _fits(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of one type are the same in the other, or an error."""
    whole = pa.types.is_integer(given) or (pa.types.is_decimal(given) and given.scale == 0)
    if pa.types.is_null(given) or pa.types.is_null(wanted):
        return True
    if whole and (pa.types.is_integer(wanted) or pa.types.is_decimal(wanted)):
        return True
    if pa.types.is_decimal(given) and pa.types.is_decimal(wanted):
        return bool(given.scale <= wanted.scale)
    if pa.types.is_floating(given):
        return bool(pa.types.is_floating(wanted))
    texts = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    binaries = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
    for group in (texts, binaries):
        if any(test(given) for test in group):
            return any(test(wanted) for test in group)
    if pa.types.is_timestamp(given):
        return pa.types.is_timestamp(wanted) and (given.tz is None) == (wanted.tz is None)
    if pa.types.is_nested(given):
        return _same_shape(given, wanted)
    return False


def _same_shape(given: pa.DataType, wanted: pa.DataType) -> bool:
    if not pa.types.is_nested(wanted) or given.num_fields != wanted.num_fields:
        return False
    inner = [(given.field(i).type, wanted.field(i).type) for i in range(given.num_fields)]
    return all(a == b or _fits(a, b) for a, b in inner)
