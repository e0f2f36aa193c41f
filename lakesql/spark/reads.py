"""What a statement reads, as views of the Spark session: Hudi tables by Spark's reader, everything else handed over.

A query of DuckDB's is looked through for what stands behind FROM:

    a Hudi table, its views (t_ro, t_rt, t_incremental), hudi_scan() and its kin    Spark reads the folder itself
    a view of DuckDB over such tables                                              its query stands in its place
    tables of DuckDB, files, data frames, other table functions, and subqueries without Hudi tables
                                                                                   DuckDB runs them, Spark gets the rows

Spark gets rows as Parquet files in a folder of this connection.
"""

import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from sqlglot import exp

from lakesql.errors import LakeError, SQLError, Unsupported
from lakesql.services import freshness
from lakesql.spark import sessions
from lakesql.spark.translate import ADVICE, parsed
from lakesql.sql import views
from lakesql.sql.functions import variable
from lakesql.sql.lexer import tokens
from lakesql.sql.session import Session
from lakesql.table import read
from lakesql.table.names import literal
from lakesql.table.staleness import MAX_STALENESS, ON_STALE
from lakesql.table.state import TableState

READS = ("hudi_scan", "read_hudi", "hudi_snapshot", "hudi_read_optimized", "hudi_incremental", "hudi_table_changes")
"""Table functions whose rows Spark reads. All others are run by DuckDB."""

_POSITIONS = {
    "hudi_scan": ("t",), "read_hudi": ("t",), "hudi_snapshot": ("t",), "hudi_read_optimized": ("t",),
    "hudi_incremental": ("t", "begin"), "hudi_table_changes": ("t", "kind", "begin"),
}  # fmt: skip
_CHANGES = "_changes"
_QUERY_TYPE = "hoodie.datasource.query.type"
_DEPTH_MAX = 20

Run = Callable[[str], pa.Table]
"""Runs a query in DuckDB."""


@dataclass(frozen=True, slots=True)
class Read:
    """A read of a Hudi table: its state, and the options of Spark's reader."""

    state: TableState
    options: tuple[tuple[str, str], ...]
    as_of: str | None = None


class Reads:
    """The reads of one connection."""

    def __init__(self, spark: Any, session: Session, exchange: str | None) -> None:
        self.spark = spark
        self.session = session
        self._exchange = exchange
        self._folder: Path | None = None
        self._kept: list[Path] = []
        self._count = 0

    # ------------------------------------------------------------ what a query reads

    def of(self, tree: exp.Expression) -> list[exp.Table]:
        """The places of a query where rows of Hudi tables are read."""
        return [t for t in tree.find_all(exp.Table) if not _is_cte(t) and self._read_of(t) is not None]

    def concern(self, text: str) -> bool:
        """Whether a statement that cannot be looked into may read rows of a Hudi table."""
        names = {t.name.lower() for t in tokens(text)}
        known = {name.lower() for name in self.session.instance.tables()}
        return bool(names & known or names & set(READS) or any(views.base_of(self.session, n) for n in names))

    def expanded(self, tree: exp.Expression, depth: int = 0) -> exp.Expression:
        """The query with views of DuckDB that read Hudi tables in full."""
        for table in list(tree.find_all(exp.Table)):
            query = None if _is_cte(table) else self._view_of(table)
            if query is None:
                continue
            if depth > _DEPTH_MAX:
                raise SQLError(f"the view {table.name} is nested too deep.")
            inner = self.expanded(parsed(query), depth + 1)
            if not self.of(inner):
                continue
            alias = table.args.get("alias") or exp.TableAlias(this=exp.to_identifier(table.name, quoted=True))
            new = exp.Subquery(this=inner, alias=alias)
            if table is tree:
                return new
            table.replace(new)
        return tree

    def placed(self, tree: exp.Expression, run: Run) -> exp.Expression:
        """The query with the names of Spark's views for all that it reads."""
        made: dict[tuple[str, tuple[tuple[str, str], ...]], str] = {}
        gone: list[exp.Expression] = []
        for subquery in [s for s in tree.find_all(exp.Subquery) if isinstance(s.parent, exp.From | exp.Join)]:
            if self.of(subquery) or _names_a_cte(subquery) or any(_is_below(subquery, g) for g in gone):
                continue
            gone.append(subquery)
            self._hand_over(subquery, subquery.this.sql("duckdb"), run)
        for table in list(tree.find_all(exp.Table)):
            if _is_cte(table) or table.meta.get("placed"):
                continue
            found = self._read_of(table)
            if found is None:
                bare = table.copy()
                bare.set("alias", None)
                bare.set("joins", None)
                self._hand_over(table, f"SELECT * FROM {bare.sql('duckdb')}", run)
                continue
            key = found.state.path, found.options
            if key not in made:
                made[key] = self._view(self._frame(found))
            self._replace(table, made[key])
        return tree

    def _hand_over(self, place: exp.Expression, query: str, run: Run) -> None:
        self._replace(place, self.hand_over(run(query)))

    def _replace(self, place: exp.Expression, view: str) -> None:
        alias = place.args.get("alias")
        name = place.this.name if isinstance(place, exp.Table) else ""
        if alias is None and name:
            alias = exp.TableAlias(this=exp.to_identifier(name, quoted=True))
        new = exp.Table(this=exp.to_identifier(view, quoted=True), alias=alias, joins=place.args.get("joins"))
        new.meta["placed"] = True
        place.replace(new)

    # ------------------------------------------------------------ Hudi tables

    def _read_of(self, table: exp.Table) -> Read | None:
        """The read of a Hudi table that stands here; None for everything else."""
        if isinstance(table.this, exp.Func):
            return self._read_of_function(table.this)
        name = tuple(p.name for p in table.parts)
        path = self.session.path_of(name) if all(name) else None
        if path is not None:
            return self._snapshot(path)
        last = table.name.lower()
        base = views.base_of(self.session, last) if len(name) == 1 and self._is_view(last) else None
        if base is None:
            return None
        path = self.session.require_path((base,))
        if last.endswith("_ro"):
            return self._read_optimized(path, {})
        if last.endswith("_rt"):
            return self._snapshot(path)
        start, end = (
            self._value(f"getvariable({literal(f'hoodie_{base}_consume_{edge}_timestamp')})")
            for edge in ("start", "end")
        )
        return self._incremental(path, start or "earliest", end)

    def _is_view(self, name: str) -> bool:
        sql = "SELECT count(*) FROM duckdb_views() WHERE lower(view_name) = $1 AND contains(sql, 'hudi_')"
        return bool(self.session.con.execute(sql, [name]).fetchall()[0][0])

    def _read_of_function(self, call: exp.Func) -> Read | None:
        name = call.name.lower() if isinstance(call, exp.Anonymous) else call.sql_name().lower()
        if name.endswith(_CHANGES) and (path := self.session.path_of((name.removesuffix(_CHANGES),))):
            given = self._arguments(call, ("begin",))
            return self._incremental(path, given.get("begin") or "", given.get("end"))
        if name not in READS:
            return None
        given = self._arguments(call, _POSITIONS[name])
        text = given.get("t") or ""
        path = self.session.instance.path_of(text) or text
        if name in ("hudi_scan", "read_hudi", "hudi_snapshot"):
            mode = (given.get("mode") or "snapshot").lower()
            if mode == "read_optimized":
                return self._read_optimized(path, given)
            if mode != "snapshot":
                read.plan(self._state(path), None, mode)  # raises
            return self._snapshot(path, given.get("as_of"))
        if name == "hudi_read_optimized":
            return self._read_optimized(path, given)
        if name == "hudi_table_changes" and (given.get("kind") or "").lower() != "latest_state":
            raise Unsupported(
                f"{path}: hudi_table_changes of kind {given.get('kind')!r} is not supported; use 'latest_state'."
            )
        begin, end = given.get("begin") or given.get("from_instant"), given.get("end") or given.get("to_instant")
        return self._incremental(path, begin or "", end)

    def _arguments(self, call: exp.Func, positions: Sequence[str]) -> dict[str, str | None]:
        """The arguments of a table function as texts, worked out by DuckDB."""
        found: dict[str, str | None] = {}
        listed = call.expressions if isinstance(call, exp.Anonymous) else list(call.iter_expressions())
        for place, argument in enumerate(listed):
            named = isinstance(argument, exp.PropertyEQ | exp.EQ | exp.Kwarg)
            name = argument.this.name.lower() if named else positions[place] if place < len(positions) else ""
            value = argument.expression if named else argument
            found[name] = self._value(value.sql("duckdb"))
        return found

    def _value(self, text: str) -> str | None:
        row = self.session.con.execute(f"SELECT CAST(({text}) AS VARCHAR)").fetchall()[0]
        return None if row[0] is None else re.sub(r"([+-]\d\d)$", r"\1:00", row[0]) if ":" in row[0] else str(row[0])

    def _state(self, path: str) -> TableState:
        number = self.session.con.execute("SELECT txid_current()").fetchall()[0][0]
        return self.session.instance.snapshot(path, number)

    def _snapshot(self, path: str, as_of: str | None = None) -> Read:
        state = self._state(path)
        if as_of is None:
            return Read(state, ((_QUERY_TYPE, "snapshot"),))
        instant = read.plan(state, as_of).view.as_of or as_of
        return Read(state, ((_QUERY_TYPE, "snapshot"), ("as.of.instant", instant)), instant)

    def _read_optimized(self, path: str, given: dict[str, str | None]) -> Read:
        state, as_of = self._state(path), given.get("as_of")
        limit, on_stale = given.get("max_staleness"), given.get("on_stale")
        if limit is None and as_of is None:
            limit = self._value(f"getvariable('{variable(MAX_STALENESS)}')")
        on_stale = on_stale or self._value(f"getvariable('{variable(ON_STALE)}')")
        asked = (
            freshness.Demand()
            if as_of and limit is None
            else freshness.demand(limit, on_stale, state.config.properties)
        )
        plan, last = freshness.plan_read_optimized(state, as_of, asked, self.session.clock())
        self.session.instance.reads().append(last)
        options = [(_QUERY_TYPE, "read_optimized" if last.mode == "read_optimized" else "snapshot")]
        if as_of is not None:
            options.append(("as.of.instant", plan.view.as_of or as_of))
        return Read(state, tuple(options), plan.view.as_of)

    def _incremental(self, path: str, begin: str, end: str | None) -> Read:
        state = self._state(path)
        if not begin:
            raise SQLError(
                f"hudi_incremental({state.name}): give begin, the time after which changes count, or 'earliest' for all."
            )
        read.plan_incremental(state, begin, end)  # raises what it has to say about the range
        low, high = read.range_times(state, begin, end)
        options = [(_QUERY_TYPE, "incremental"), ("hoodie.datasource.read.begin.instanttime", low or "000")]
        if high is not None:
            options.append(("hoodie.datasource.read.end.instanttime", high))
        return Read(state, tuple(options))

    def _frame(self, found: Read) -> Any:
        """The data frame of a read, with the columns in our order."""
        wanted = read.columns(found.state, found.as_of)
        reader = self.spark.read.format("hudi")
        for key, value in found.options:
            reader = reader.option(key, value)
        if found.state.timeline.completed_writes():
            frame = reader.load(found.state.path)
        else:
            frame = self.frame_of(wanted.empty_table())  # a table without commits has no schema that Spark finds
        names = {n.lower(): n for n in frame.columns}
        missing = [n for n in wanted.names if n.lower() not in names]
        if missing:
            raise LakeError(f"{found.state.path}: Spark does not find the columns {', '.join(missing)}.")
        return frame.select(*[f"`{names[n.lower()]}`" for n in wanted.names])

    # ------------------------------------------------------------ handing over

    def hand_over(self, rows: pa.Table) -> str:
        """A view of Spark's with these rows."""
        return self._view(self.frame_of(rows))

    def frame_of(self, rows: pa.Table) -> Any:
        """A data frame with these rows. Unsupported for a type that Spark has not."""
        self._count += 1
        rows = pa.table([_plain(c, f) for c, f in zip(rows.columns, rows.schema, strict=True)], names=rows.column_names)
        if len({n.lower() for n in rows.column_names}) < rows.num_columns:
            raise SQLError(f"two columns have one name: {', '.join(rows.column_names)}. Give them names of their own.")
        path = self._scratch() / f"{self._count}.parquet"
        pq.write_table(rows, path, coerce_timestamps="us", allow_truncated_timestamps=False)
        return self.spark.read.parquet(f"file://{path}")

    def _scratch(self) -> Path:
        if self._folder is None:
            if self._exchange is None and not sessions.is_local(self.spark):
                raise LakeError(
                    f"rows of this process are handed to Spark through a folder that its workers see too, and Spark runs at "
                    f"{self.spark.sparkContext.master}. Give connect(..., config={{'{sessions.EXCHANGE}': 'folder'}})."
                )
            self._folder = Path(tempfile.mkdtemp(prefix="lakesql-", dir=self._exchange)).resolve()
        return self._folder

    def view_of(self, frame: Any) -> str:
        """A view of Spark's with the rows of a data frame."""
        return self._view(frame)

    def _view(self, frame: Any) -> str:
        self._count += 1
        name = f"__lakesql_{id(self):x}_{self._count}"
        frame.createOrReplaceTempView(name)
        return name

    def keep(self) -> None:
        """Keep the rows handed over so far until `close`: a data frame reads them when it is used."""
        if self._folder is not None:
            self._kept.append(self._folder)
            self._folder = None

    def close(self) -> None:
        """Give up everything."""
        for folder in self._kept:
            shutil.rmtree(folder, ignore_errors=True)
        self.forget()

    def forget(self) -> None:
        """Give up the views of the last statement, and the rows handed over for it."""
        for table in self.spark.catalog.listTables():
            if table.isTemporary and table.name.startswith(f"__lakesql_{id(self):x}_"):
                self.spark.catalog.dropTempView(table.name)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    # ------------------------------------------------------------ views of DuckDB

    def _view_of(self, table: exp.Table) -> str | None:
        """The query of a view of the person's own; None for everything else."""
        if not isinstance(table.this, exp.Identifier) or self._read_of(table) is not None:
            return None
        sql = "SELECT sql FROM duckdb_views() WHERE NOT internal AND lower(view_name) = $1"
        rows = self.session.con.execute(sql, [table.name.lower()]).fetchall()
        if not rows:
            return None
        words = tokens(rows[0][0])
        start = next((t.end for t in words if t.word == "AS"), None)
        return None if start is None else rows[0][0][start:].strip().rstrip(";")


def _is_cte(table: exp.Table) -> bool:
    """Whether a name means a query of WITH."""
    if not isinstance(table.this, exp.Identifier) or len(table.parts) > 1:
        return False
    node: exp.Expr | None = table
    while node is not None:
        above = node.parent
        found = above.args.get("with_") if above is not None else None
        if found is not None:
            names = [c.alias.lower() for c in found.expressions]
            if node is not found and table.name.lower() in names:
                return True
        if isinstance(node, exp.CTE) and isinstance(above, exp.With):
            earlier = [c.alias.lower() for c in above.expressions[: above.expressions.index(node)]]
            if table.name.lower() in earlier:
                return True
        node = above
    return False


def _names_a_cte(tree: exp.Expression) -> bool:
    return any(_is_cte(t) for t in tree.find_all(exp.Table))


def _is_below(node: exp.Expression, other: exp.Expression) -> bool:
    above = node.parent
    while above is not None and above is not other:
        above = above.parent
    return above is other


def _plain(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    kind = field.type
    if pa.types.is_dictionary(kind):
        return column.cast(kind.value_type)
    if pa.types.is_null(kind):
        return column.cast(pa.string())
    if pa.types.is_timestamp(kind) and kind.tz not in (None, "UTC"):
        return column.cast(pa.timestamp(kind.unit, "UTC"))
    if pa.types.is_time(kind) or pa.types.is_duration(kind) or pa.types.is_interval(kind):
        raise Unsupported(f"column {field.name}: values of type {kind} cannot be given to Spark. {ADVICE}")
    return column
