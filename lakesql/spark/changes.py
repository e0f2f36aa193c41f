"""MERGE, UPDATE, DELETE and INSERT on Spark: rows are made by Spark, and one statement of Spark's writes them in one commit.

MERGE, UPDATE and DELETE make a stage, as they do here (`sql.plain_stage`): every row that changes with what becomes of it,
kept by Spark while the statement runs. It is checked, counted, and merged into the table by a MERGE of Hudi's that does
nothing but look up keys:

    WHEN MATCHED AND delete THEN DELETE  WHEN MATCHED THEN UPDATE  WHEN NOT MATCHED AND insert THEN INSERT

So clauses that Hudi's MERGE has not (NOT MATCHED BY SOURCE, several DELETEs, ERROR, conditions on other columns) mean what
they mean here, on both table types, and rows that would not change are not written. INSERT and INSERT OVERWRITE are Hudi's.
"""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa

from lakesql.errors import SQLError, TableError, Unsupported
from lakesql.format.avro import META_COLUMNS
from lakesql.services.spelling import require_known
from lakesql.spark.engine import Engine
from lakesql.spark.names import spark_type, text_of, tick
from lakesql.spark.staged import Stage
from lakesql.spark.translate import ADVICE
from lakesql.spark.written import instants, result_of
from lakesql.sql import changes, dialect, evolve
from lakesql.sql.merge_names import Target
from lakesql.sql.nodes import Delete, Insert, Merge, Update
from lakesql.sql.plain_stage import Plain, plain_delete, plain_merge, plain_update
from lakesql.sql.results import Changed
from lakesql.sql.spellings import Spelled, either_spelling, our_errors
from lakesql.sql.stage import PATH
from lakesql.table.names import duckdb_type, literal, quote
from lakesql.table.state import TableState, load
from lakesql.write import WriteResult
from lakesql.write.names_of_settings import DUPLICATES

_OPERATION = "hoodie.spark.sql.insert.into.operation"
_OVERWRITE = "hoodie.datasource.write.operation"

Compile = Callable[[Spelled, Target], Plain]


class Changes:
    """The changes of one connection."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.session = engine.session
        self._registered: dict[str, str] = {}

    # ------------------------------------------------------------ through a stage

    def merge(self, statement: Merge) -> Changed:
        """Run a MERGE; see `sql.merge_into` for what it means."""
        session = self.session
        policy = session.settings.get(DUPLICATES, "error").lower()

        def compiled(spelled: Merge, target: Target) -> Plain:
            item = dialect.from_item(spelled.source.sql) if spelled.spark else spelled.source.sql
            ctes = dialect.ctes(spelled.ctes) if spelled.spark and spelled.ctes else spelled.ctes
            schema = self.engine.schema_of(f"{ctes} SELECT * FROM {item}")
            types = {f.name: _type(f) for f in schema}
            return plain_merge(spelled, target, types, policy, list(target.columns))

        return self._staged(statement, compiled, policy)

    def update(self, statement: Update) -> Changed:
        """Run an UPDATE."""

        def compiled(spelled: Update, target: Target) -> Plain:
            return plain_update(spelled, target, list(target.columns))

        return self._staged(statement, compiled)

    def delete(self, statement: Delete) -> Changed:
        """Run a DELETE."""

        def compiled(spelled: Delete, target: Target) -> Plain:
            return plain_delete(spelled, target, list(target.columns))

        return self._staged(statement, compiled)

    def _staged(self, statement: Spelled, compiled: Compile[Spelled], policy: str = "error") -> Changed:
        started, session = time.perf_counter(), self.session
        state = load(session.instance.storage(session.require_path(statement.target)))
        self._require_known(statement, state)
        target = replace(
            changes._target(session, state, statement.target[-1]), key_sql="NULL", path_sql="''", checks_casts=False
        )
        with self._settings(state, {}), our_errors(session, statement.target[-1]):
            plan, frame = either_spelling(
                session, statement, lambda spelled: self._frame(spelled, target, compiled, policy)
            )
            frame = frame.persist()
            try:
                staged = Stage(self.engine, frame, plan, target, state, policy)
                staged.check()
                counts = staged.counts()
                returned = None
                if statement.returning and not isinstance(statement, Insert):
                    returned = self._returned(statement, staged, state)
                before = instants(state)
                if counts.written:
                    self._apply(staged, state)
            finally:
                frame.unpersist()
        operation = "delete" if isinstance(statement, Delete) else "upsert"
        return Changed(result_of(session, state, before, operation, counts, started), returned)

    def _frame(self, statement: Spelled, target: Target, compiled: Compile[Spelled], policy: str) -> tuple[Plain, Any]:
        plan = compiled(statement, target)
        if policy in ("first", "last") and self.engine.numbers_rows(plan.select):
            raise Unsupported(
                f"{DUPLICATES} = {policy!r} on Spark is not supported for a source that Spark reads: its rows have no order. "
                "Use 'ordering', or make the source unique. Nothing was written."
            )
        frame, _ = self.engine.frame(plan.select)
        return plan, frame

    def _require_known(self, statement: Merge | Update | Delete | Insert, state: TableState) -> None:
        """Unsupported for tables and statements that Spark is not given."""
        name = statement.target[-1]
        if not isinstance(statement, Insert) and not state.config.record_key_fields:
            raise Unsupported(
                f"{name}: {type(statement).__name__.upper()} on Spark of a table without record key is not supported: its rows "
                f"cannot be told to Spark. {ADVICE}"
            )
        if not state.config.meta_fields and not isinstance(statement, Insert):
            raise Unsupported(f"{name}: the table stores no meta columns; Spark is not given changes of it. {ADVICE}")
        evolves = isinstance(statement, Merge) and statement.evolves
        if evolves or (isinstance(statement, Merge | Insert) and evolve.wanted(self.session, state)):
            raise Unsupported(
                f"{name}: columns that a statement adds are not supported on Spark. ALTER TABLE adds them there, or run the "
                'statement on engine="duckdb". Nothing was written.'
            )

    def _apply(self, staged: "Stage", state: TableState) -> None:
        """Merge the rows of a stage into the table, in one commit."""
        target, columns = staged.target, list(staged.target.columns)
        rows = self.engine.reads.view_of(staged.rows())
        same = [f"t.{tick(f)} = s.{tick(f)}" for f in target.key_fields]
        same += [f"t.{tick(f)} <=> s.{tick(f)}" if staged.null_partitions else f"t.{tick(f)} = s.{tick(f)}"
                 for f in target.partition_fields if f not in target.key_fields]  # fmt: skip
        sets = ", ".join(f"{tick(c)} = s.{tick(c)}" for c in columns)
        names, values = ", ".join(map(tick, columns)), ", ".join(f"s.{tick(c)}" for c in columns)
        ops = staged.operations
        clauses = []
        if "delete" in ops:
            clauses.append("WHEN MATCHED AND s.`__op` = 'delete' THEN DELETE")
        if "upsert" in ops:
            clauses.append(f"WHEN MATCHED AND s.`__op` = 'upsert' THEN UPDATE SET {sets}")
        if "insert" in ops:
            clauses.append(f"WHEN NOT MATCHED AND s.`__op` = 'insert' THEN INSERT ({names}) VALUES ({values})")
        table = self._table(state)
        self.engine.spark.sql(
            f"MERGE INTO {table} t USING {rows} s ON {' AND '.join(same)} {' '.join(clauses)}"
        ).collect()

    def _returned(self, statement: Merge | Update | Delete, staged: "Stage", state: TableState) -> pa.Table:
        from lakesql.sql.returning import chosen_sql
        from lakesql.sql.spark_dml import translated_items

        versions = staged.versions()
        con, name = self.session.con, "__lakesql_versions"

        def run(spelled: Any) -> pa.Table:
            items = translated_items(spelled.returning) if spelled.spark else spelled.returning
            alias, is_merge = statement.alias, isinstance(statement, Merge)
            sql = chosen_sql(f"SELECT * FROM {name}", state.schema.names, items, alias, is_merge)
            return con.sql(sql).to_arrow_table()

        con.register(name, versions)
        try:
            found: pa.Table = either_spelling(self.session, statement, run)  # type: ignore[type-var]
            return found
        finally:
            con.unregister(name)

    # ------------------------------------------------------------ INSERT

    def insert(self, statement: Insert) -> Changed:
        """Run an INSERT INTO or INSERT OVERWRITE."""
        started, session = time.perf_counter(), self.session
        state = load(session.instance.storage(session.require_path(statement.target)))
        self._require_known(statement, state)
        operation = changes._operation(session, statement, state, session.write_settings(state.config.properties))
        if statement.returning:
            raise Unsupported(
                "INSERT ... RETURNING on Spark is not supported; use MERGE, or SELECT the rows afterwards."
            )
        name = statement.target[-1]
        with our_errors(session, name):
            partitions = changes._overwritten(session, statement, state) if statement.overwrite else ()
        named = sum(value is not None for _, value in statement.partition)
        if statement.overwrite and named and len(partitions) != 1:
            raise Unsupported(
                f"{name}: INSERT OVERWRITE on Spark takes a value for every partition column, or for none. Nothing was written."
            )
        with self._settings(state, {_OPERATION: operation}, operation), our_errors(session, name):
            frame = either_spelling(session, statement, lambda spelled: self._insert_frame(spelled, state))
            frame = frame.persist()
            try:
                before, standing = instants(state), self._standing(state) if statement.overwrite else {}
                count = self._check_insert(frame, state)
                if count or statement.overwrite:
                    self._write_insert(frame, state, statement, operation, bool(partitions))
            finally:
                frame.unpersist()
        result = result_of(session, state, before, operation, None, started)
        if statement.overwrite and result.instant is not None:
            now = load(session.instance.storage(state.path))
            [instant] = [i for i in now.timeline.completed_writes() if i.requested == result.instant]
            replaced = now.commit(instant).replaced
            result = replace(result, rows_deleted=sum(standing.get(path, 0) for path in replaced))
        return Changed(result)

    def _standing(self, state: TableState) -> dict[str, int]:
        """How many rows each partition has."""
        frame, _ = self.engine.frame(f"SELECT {PATH} AS p FROM hudi_scan({literal(state.path)})")
        return {row[0]: int(row[1]) for row in frame.groupBy("p").count().collect()}

    def create_as(self, state: TableState, query: str) -> WriteResult:
        """Load a new table from a query by name."""
        started = time.perf_counter()
        with self._settings(state, {_OPERATION: "bulk_insert"}, "bulk_insert"):
            frame = self._aligned(*self.engine.frame(query), state, state.schema.names).persist()
            try:
                if self._check_insert(frame, state):
                    self._write_insert(frame, state, None, "bulk_insert", False)
            finally:
                frame.unpersist()
        return result_of(self.session, state, set(), "bulk_insert", None, started)

    def _insert_frame(self, statement: Insert, state: TableState) -> Any:
        """The rows of an INSERT with the columns of the table."""
        given = changes._in_duckdb(statement) if statement.spark else statement
        fixed = {changes._table_column(n, state): v for n, v in given.partition if v is not None}
        query = f"{given.ctes} SELECT * FROM ({changes._defaults_as_null(given.source.sql)})"
        schema = self.engine.schema_of(query)
        kept = [n for n in schema.names if n.lower() not in META_COLUMNS]
        if given.by_name:
            names = [changes._table_column(n, state) for n in kept]
        else:
            names = changes._positional_columns(given, state, set(fixed))
            if len(kept) != len(names):
                raise SQLError(
                    f"INSERT INTO {given.target[-1]} expects {len(names)} columns ({', '.join(names)}), "
                    f"the query gives {len(kept)}. List the columns, or use BY NAME."
                )
        constants = [f"{changes._partition_value(state, c, v)} AS {quote(c)}" for c, v in fixed.items()]
        tree = self.engine.reads_hudi(query)
        if tree is None:  # DuckDB makes the rows, with its own casts
            aliases = ", ".join(quote(f"__lakesql_{i}") for i in range(len(schema)))
            chosen = [
                f"{quote(f'__lakesql_{schema.names.index(k)}')} AS {quote(n)}" for k, n in zip(kept, names, strict=True)
            ]
            return self._handed(f"SELECT {', '.join([*chosen, *constants])} FROM ({query}) AS r({aliases})", state)
        frame, schema = self.engine.frame(query, tree)
        frame = frame.select(*[f"`{n}`" for n in kept]).toDF(*names)
        schema = pa.schema([schema.field(k).with_name(n) for k, n in zip(kept, names, strict=True)])
        if constants:
            values = self.engine.reads.frame_of(self.session.con.sql(f"SELECT {', '.join(constants)}").to_arrow_table())
            frame = frame.crossJoin(values)
        return self._aligned(frame, schema, state, [*names, *fixed])

    def _handed(self, query: str, state: TableState) -> Any:
        """The rows of a query of DuckDB's in the table's types, cast here as a write here casts them."""
        from lakesql.table.exact import exact_cast, role_of

        given = self.engine.schema_of(query).names
        fields = []
        for field in state.schema:
            kind = duckdb_type(field.type, field.name)
            if field.name not in given:
                fields.append(f"CAST(NULL AS {kind}) AS {quote(field.name)}")
            elif role_of(field.name, state.config):
                fields.append(
                    f"{exact_cast(quote(field.name), kind, f'{state.name}: column {field.name}')} AS {quote(field.name)}"
                )
            else:
                fields.append(f"CAST({quote(field.name)} AS {kind}) AS {quote(field.name)}")
        rows = self.engine._run(f"SELECT {', '.join(fields)} FROM ({query})")
        return self.engine.reads.frame_of(rows)

    def _aligned(self, frame: Any, schema: pa.Schema, state: TableState, given: Sequence[str]) -> Any:
        """Rows of Spark with the columns of the table in its order and types; TableError for types that do not fit."""
        fields, lower = [], {n.lower() for n in given}
        types = {f.name.lower(): f.dataType.simpleString() for f in frame.schema.fields}
        for field in state.schema:
            kind = spark_type(field.type)
            name = tick(field.name)
            if field.name.lower() not in lower:
                fields.append(f"CAST(NULL AS {kind}) AS {name}")
                continue
            exact = (
                f"CAST(CAST({name} AS {kind}) AS {kind})" if _is_role(field.name, state) else f"CAST({name} AS {kind})"
            )
            same = types.get(field.name.lower()) == kind.lower().replace(" ", "")
            fields.append(f"{name if same else exact} AS {name}")
        del schema
        from lakesql.spark import casts

        aligned = frame.selectExpr(*fields)
        casts.require_same(aligned)
        return aligned

    def _check_insert(self, frame: Any, state: TableState) -> int:
        """The number of rows; TableError for a record key that is NULL, or a column that must not be."""
        needed = [f.name for f in state.schema if not f.nullable or f.name in state.config.record_key_fields]
        counts = ["count(*)", *(f"count_if({tick(n)} IS NULL)" for n in needed)]
        [row] = frame.selectExpr(*counts).collect()
        for name, nulls in zip(needed, row[1:], strict=True):
            if nulls:
                role = "record key column" if name in state.config.record_key_fields else "column"
                raise TableError(
                    f"{state.name}: {role} {name} is NULL in {nulls} rows, which it must not be. Nothing was written."
                )
        return int(row[0])

    def _write_insert(
        self, frame: Any, state: TableState, statement: Insert | None, operation: str, static: bool
    ) -> None:
        rows, table = self.engine.reads.view_of(frame), self._table(state)
        verb = "INSERT OVERWRITE" if operation.startswith("insert_overwrite") else "INSERT INTO"
        columns = list(state.schema.names)
        partition = ""
        if static and statement is not None:
            fixed = {changes._table_column(n, state): v for n, v in statement.partition if v is not None}
            columns = [c for c in columns if c not in fixed]
            values = {c: self._partition_literal(state.schema.field(c), v) for c, v in fixed.items()}
            partition = f" PARTITION ({', '.join(f'{tick(c)} = {v}' for c, v in values.items())})"
        self.engine.spark.sql(f"{verb} {table}{partition} SELECT {', '.join(map(tick, columns))} FROM {rows}").collect()

    def _partition_literal(self, field: pa.Field, value: Any) -> str:
        """The value of a partition column as PARTITION (...) takes it."""
        kind = duckdb_type(field.type, field.name)
        text = self.session.con.execute(f"SELECT CAST(CAST(({value.sql}) AS {kind}) AS VARCHAR)").fetchall()[0][0]
        if text is None:
            return "NULL"
        if pa.types.is_string(field.type):
            return text_of(text)
        if pa.types.is_date(field.type):
            return f"DATE {text_of(text)}"
        if pa.types.is_integer(field.type) or pa.types.is_boolean(field.type):
            return str(text)
        raise Unsupported(
            f"INSERT ... PARTITION ({field.name} = ...) of type {kind} on Spark is not supported. {ADVICE}"
        )

    # ------------------------------------------------------------ Spark's side

    @contextmanager
    def _settings(self, state: TableState, more: Mapping[str, str], operation: str = "") -> Iterator[None]:
        """Within, Spark has the settings of a write: the session's, and what keeps the table at its version."""
        session = self.session
        given = {k: v for k, v in session.settings.items() if k.startswith("hoodie.")}
        for key in given:
            require_known(key)
        wanted = {
            **given,
            **more,
            "hoodie.write.table.version": str(state.config.version),
            "hoodie.write.auto.upgrade": "false",
            "hoodie.spark.sql.optimized.writes.enable": "true",
        }
        inline = {**state.config.properties, **given}.get("hoodie.compact.inline", "false").lower() == "true"
        wanted.setdefault(
            "hoodie.datasource.compaction.async.enable", str(not inline).lower()
        )  # else Hudi compacts inline
        if operation.startswith("insert_overwrite"):
            wanted[_OVERWRITE] = operation
            wanted.pop(_OPERATION, None)
        else:
            wanted.pop(_OVERWRITE, None)
        wanted = {k: v for k, v in wanted.items() if k != _OPERATION or v in ("insert", "upsert", "bulk_insert")}
        with self.engine.statement(state.name, wanted):
            yield

    def _table(self, state: TableState) -> str:
        """The name of a table in Spark's catalog, where it is registered by its path."""
        path = state.path
        if path not in self._registered:
            name = f"`lakesql_{hashlib.sha1(path.encode()).hexdigest()[:16]}`"
            self.engine.spark.sql(f"CREATE TABLE IF NOT EXISTS {name} USING hudi LOCATION {text_of(path)}")
            self._registered[path] = name
        self.engine.spark.sql(f"REFRESH TABLE {self._registered[path]}")
        return self._registered[path]

    def forget(self, path: str | None = None) -> None:
        """Take a table, or all, out of Spark's catalog; the data stays."""
        for known in [path] if path is not None else list(self._registered):
            name = self._registered.pop(known, None)
            if name is not None:
                self.engine.spark.sql(f"DROP TABLE IF EXISTS {name}")


def _is_role(name: str, state: TableState) -> bool:
    config = state.config
    return name in (*config.record_key_fields, *config.partition_fields, *config.ordering_fields)


def _type(field: pa.Field) -> str:
    try:
        return duckdb_type(field.type, field.name)
    except Unsupported:
        return str(field.type)
