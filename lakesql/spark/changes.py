"""MERGE, UPDATE, DELETE and INSERT on Spark: rows are made by Spark, and one statement of Spark's writes them in one commit.

MERGE, UPDATE and DELETE make a stage, as they do here (`sql.plain_stage`): every row that changes with what becomes of it,
kept by Spark while the statement runs. It is checked, counted, and then merged into the table by a MERGE of Hudi's that does nothing
but look up keys:

    WHEN MATCHED AND delete THEN DELETE  WHEN MATCHED THEN UPDATE  WHEN NOT MATCHED AND insert THEN INSERT

So clauses that Hudi's MERGE has not (NOT MATCHED BY SOURCE, several DELETEs, ERROR, conditions on other columns) mean what
they mean here, on both table types, and rows that would not change are not written. INSERT and INSERT OVERWRITE are Hudi's.
"""

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from lakesql.errors import SQLError, TableError, Unsupported
from lakesql.format.avro import META_COLUMNS
from lakesql.services.spelling import require_known
from lakesql.spark.engine import Engine, collected, fitted
from lakesql.spark.translate import ADVICE
from lakesql.sql import changes, dialect, evolve, stage
from lakesql.sql.merge_names import Target
from lakesql.sql.nodes import Delete, Insert, Merge, Update
from lakesql.sql.plain_stage import Plain, plain_delete, plain_merge, plain_update
from lakesql.sql.results import Changed
from lakesql.sql.spellings import Spelled, either_spelling, our_errors
from lakesql.sql.stage import ERROR, PATH_CHANGED, REKEYED, ROW
from lakesql.table.names import duckdb_type, quote
from lakesql.table.state import TableState, load
from lakesql.write import WriteResult
from lakesql.write.names_of_settings import DUPLICATES

_SHOWN = stage.SHOWN_MAX
_OPERATION = "hoodie.spark.sql.insert.into.operation"
_OVERWRITE = "hoodie.datasource.write.operation"

Compile = Callable[[Spelled, Target], Plain]


@dataclass(frozen=True, slots=True)
class _Counts:
    """Rows of a stage by their fate."""

    inserted: int
    updated: int
    deleted: int
    ignored: int

    @property
    def written(self) -> int:
        return self.inserted + self.updated + self.deleted


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
            return plain_merge(spelled, target, types, policy, _stored(target, bool(spelled.returning)))

        return self._staged(statement, compiled, policy)

    def update(self, statement: Update) -> Changed:
        """Run an UPDATE."""

        def compiled(spelled: Update, target: Target) -> Plain:
            return plain_update(spelled, target, _stored(target, bool(spelled.returning)))

        return self._staged(statement, compiled)

    def delete(self, statement: Delete) -> Changed:
        """Run a DELETE."""

        def compiled(spelled: Delete, target: Target) -> Plain:
            return plain_delete(spelled, target, _stored(target, bool(spelled.returning)))

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
                staged = _Stage(self.engine, frame, plan, target, policy)
                staged.check()
                counts = staged.counts()
                returned = self._returned(statement, staged, state) if statement.returning else None
                before = _instants(state)
                if counts.written:
                    self._apply(staged, state)
            finally:
                frame.unpersist()
        operation = "delete" if isinstance(statement, Delete) else "upsert"
        return Changed(_result(session, state, before, operation, counts, started), returned)

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

    def _apply(self, staged: "_Stage", state: TableState) -> None:
        """Merge the rows of a stage into the table, in one commit."""
        target, columns = staged.target, list(staged.target.columns)
        rows = self.engine.reads.view_of(staged.rows())
        same = [f"t.{_tick(f)} = s.{_tick(f)}" for f in target.key_fields]
        same += [f"t.{_tick(f)} <=> s.{_tick(f)}" if staged.null_partitions else f"t.{_tick(f)} = s.{_tick(f)}"
                 for f in target.partition_fields if f not in target.key_fields]  # fmt: skip
        sets = ", ".join(f"{_tick(c)} = s.{_tick(c)}" for c in columns)
        names, values = ", ".join(map(_tick, columns)), ", ".join(f"s.{_tick(c)}" for c in columns)
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

    def _returned(self, statement: Merge | Update | Delete, staged: "_Stage", state: TableState) -> pa.Table:
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
            return either_spelling(self.session, statement, run)
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
                before = _instants(state)
                count = self._check_insert(frame, state)
                if count or statement.overwrite:
                    self._write_insert(frame, state, statement, operation, bool(partitions))
            finally:
                frame.unpersist()
        result = _result(session, state, before, operation, None, started)
        return Changed(result)

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
        return _result(self.session, state, set(), "bulk_insert", None, started)

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
            schema = pa.schema([*schema, *values_schema(values, state, fixed)])
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
            name = _tick(field.name)
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
        counts = ["count(*)", *(f"count_if({_tick(n)} IS NULL)" for n in needed)]
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
            partition = f" PARTITION ({', '.join(f'{_tick(c)} = {v}' for c, v in values.items())})"
        self.engine.spark.sql(
            f"{verb} {table}{partition} SELECT {', '.join(map(_tick, columns))} FROM {rows}"
        ).collect()

    def _partition_literal(self, field: pa.Field, value: Any) -> str:
        """The value of a partition column as PARTITION (...) takes it."""
        kind = duckdb_type(field.type, field.name)
        text = self.session.con.execute(f"SELECT CAST(CAST(({value.sql}) AS {kind}) AS VARCHAR)").fetchall()[0][0]
        if text is None:
            return "NULL"
        if pa.types.is_string(field.type):
            return _text(text)
        if pa.types.is_date(field.type):
            return f"DATE {_text(text)}"
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
            self.engine.spark.sql(f"CREATE TABLE IF NOT EXISTS {name} USING hudi LOCATION {_text(path)}")
            self._registered[path] = name
        self.engine.spark.sql(f"REFRESH TABLE {self._registered[path]}")
        return self._registered[path]

    def forget(self, path: str | None = None) -> None:
        """Take a table, or all, out of Spark's catalog; the data stays."""
        for known in [path] if path is not None else list(self._registered):
            name = self._registered.pop(known, None)
            if name is not None:
                self.engine.spark.sql(f"DROP TABLE IF EXISTS {name}")


class _Stage:
    """A stage that Spark holds."""

    def __init__(self, engine: Engine, frame: Any, plan: Plain, target: Target, policy: str) -> None:
        self.engine, self.plan, self.target, self.policy = engine, plan, target, policy
        self.frame = frame
        self.operations: set[str] = set()
        self.null_partitions = False

    def check(self) -> None:
        """TableError for rows that a statement must not have; afterwards the frame has one row per key."""
        self._refuse_errors()
        if self.plan.rekeys:
            check = stage.rekeyed_check(self.target)
            self._refuse(check.message, self.frame.where(_tick_sql(REKEYED)))
        self._one_per_key()
        self._refuse_null_keys()
        if self.plan.may_exist:
            self._refuse_existing()
        if self.plan.moves:
            self._refuse_moves()

    def _shown(self) -> str:
        fields = [
            *self.target.key_fields,
            *(f for f in self.target.partition_fields if f not in self.target.key_fields),
        ]
        return (
            "concat("
            + ", ', ', ".join(f"{_text(f + '=')}, coalesce(CAST({_tick(f)} AS STRING), 'NULL')" for f in fields)
            + ")"
        )

    def _refuse(self, message: str, rows: Any, shown: str = "") -> None:
        found = rows.selectExpr(f"{shown or self._shown()} AS k").distinct().orderBy("k").limit(_SHOWN + 1).collect()
        if found:
            text = "; ".join(str(r[0]) for r in found[:_SHOWN]) + (" and more" if len(found) > _SHOWN else "")
            raise TableError(message.replace("{keys}", text) + " Nothing was written.")

    def _refuse_errors(self) -> None:
        if self.plan.errors:
            shown = f"concat({_tick_sql(ERROR)}, ' (', {self._shown()}, ', clause ', `__lakesql_clause`, ')')"
            self._refuse(stage.error_check(self.target).message, self.frame.where("`__op` = 'error'"), shown)

    def _one_per_key(self) -> None:
        """Several rows of one key: an error, or the one that the policy chooses."""
        if not self.plan.numbered:
            return
        same = [_tick_sql(f) for f in stage.identity(self.target)]
        old, new = ["`_hoodie_record_key`", "`_hoodie_partition_path`"], same
        updates = self.frame.where(f"`__op` IN ('upsert', 'delete') AND {_tick_sql(ROW)} IS NOT NULL")
        inserts = self.frame.where("`__op` = 'insert'")
        if self.policy == "error":
            messages = {c.message for c in stage.duplicate_checks(self.target, True, True)}
            matched, inserted = sorted(messages, key=lambda m: "insert" in m)
            self._refuse(matched, _several(updates, old))
            self._refuse(inserted, _several(inserts, new))
            return
        key = f"CASE WHEN `__op` = 'insert' THEN 1 ELSE 0 END, {', '.join(old)}, " + ", ".join(
            f"CASE WHEN `__op` = 'insert' THEN {f} END" for f in new
        )
        row = _tick_sql(ROW)
        order = {"first": row, "last": f"{row} DESC"}.get(self.policy)
        if order is None:
            order = ", ".join(f"{_tick(f)} DESC NULLS LAST" for f in self.target.ordering_fields)
            order += f", {row} DESC" if not self.engine.numbers_rows(self.plan.select) else ""
        self.frame = self.frame.selectExpr("*", f"rank() OVER (PARTITION BY {key} ORDER BY {order}) AS __lakesql_rank")
        self.frame = self.frame.where("__lakesql_rank = 1").drop("__lakesql_rank")
        self._refuse(
            f"{self.target.name}: several source rows have one key and one ordering value: {{keys}}. Make the source unique.",
            _several(
                self.frame.where("`__op` <> 'error'"),
                ["`__op` = 'insert'", *old, *(f"CASE WHEN `__op` = 'insert' THEN {f} END" for f in new)],
            ),
        )

    def _refuse_null_keys(self) -> None:
        nulls = " OR ".join(f"{_tick(f)} IS NULL" for f in self.target.key_fields)
        self._refuse(
            f"{self.target.name}: a record key column is NULL: {{keys}}. Every row needs its key.",
            self.frame.where(f"`__op` = 'insert' AND ({nulls})"),
        )

    def _table(self) -> Any:
        return self.engine.frame(self.target.snapshot)[0]

    def _refuse_existing(self) -> None:
        inserts, table = self.frame.where("`__op` = 'insert'").alias("s"), self._table().alias("t")
        from pyspark.sql.functions import expr

        same = " AND ".join(f"s.{f} <=> t.{f}" for f in map(_tick_sql, stage.identity(self.target)))
        self._refuse(stage.existing_check(self.target).message, inserts.join(table, expr(same), "left_semi"))

    def _refuse_moves(self) -> None:
        """Rows that another partition gets may not be there already."""
        from pyspark.sql.functions import expr

        message = next(iter(stage.move_checks(self.target, False))).message
        moving, table = (
            self.frame.where(f"`__op` = 'upsert' AND {_tick_sql(PATH_CHANGED)}").alias("s"),
            self._table().alias("t"),
        )
        same = " AND ".join(f"s.{f} <=> t.{f}" for f in map(_tick_sql, stage.identity(self.target)))
        self._refuse(message, moving.join(table, expr(same), "left_semi"))

    # ------------------------------------------------------------ what is written

    def _fate(self) -> str:
        """SQL for what becomes of a row: insert, upsert, delete, same or late."""
        compared = [c for c in self.target.columns if c in self.plan.assigned]
        same = " AND ".join(f"{_tick(c)} <=> {_old(c)}" for c in compared) or "false"
        whens = [f"WHEN `__op` <> 'upsert' THEN `__op` WHEN {same} THEN 'same'"]
        fields = [f for f in self.target.ordering_fields if f in self.plan.assigned]
        if self.target.event_time and fields:
            whens.append(f"WHEN {_late(self.target.ordering_fields)} THEN 'late'")
        return f"CASE {' '.join(whens)} ELSE 'upsert' END"

    def counts(self) -> _Counts:
        """Rows by their fate."""
        nulls = " OR ".join(f"{_tick(f)} IS NULL" for f in self.target.partition_fields) or "false"
        found: dict[str, int] = {}
        for row in (
            self.frame.selectExpr(f"{self._fate()} AS fate", f"({nulls}) AS n").groupBy("fate", "n").count().collect()
        ):
            found[row[0]] = found.get(row[0], 0) + int(row[2])
            self.null_partitions |= bool(row[1])
        self.operations = {op for op in ("insert", "upsert", "delete") if found.get(op)}
        get = found.get
        return _Counts(get("insert", 0), get("upsert", 0), get("delete", 0), get("same", 0) + get("late", 0))

    def rows(self) -> Any:
        """The rows to write: the columns of the table and __op. A row that moves is deleted and inserted."""
        # A delete has the values that are stored: Merge-on-Read compares its ordering value.
        columns = [
            f"CASE WHEN `__op` = 'delete' THEN {_old(c)} ELSE {_tick(c)} END AS {_tick(c)}" for c in self.target.columns
        ]
        written = self.frame.where(f"{self._fate()} IN ('insert', 'upsert', 'delete')")
        if not self.plan.moves:
            return written.selectExpr(*columns, "`__op`")
        moved = f"`__op` = 'upsert' AND {_tick_sql(PATH_CHANGED)}"
        stay = written.where(f"NOT coalesce({moved}, false)").selectExpr(*columns, "`__op`")
        moving = written.where(moved)
        if not moving.limit(1).collect():
            return stay
        self.operations |= {"insert", "delete"}
        gone = [f"{_old(c)} AS {_tick(c)}" for c in self.target.columns]
        return (
            stay.unionByName(moving.selectExpr(*gone, "'delete' AS `__op`"))
            .unionByName(moving.selectExpr(*columns, "'insert' AS `__op`"))
        )  # fmt: skip

    def versions(self) -> pa.Table:
        """Number, fate, old and new version of every row that changes, for RETURNING."""
        from lakesql.sql.versions import DELETED_FATE, INSERTED_FATE, UPDATED_FATE

        names = {"insert": INSERTED_FATE, "upsert": UPDATED_FATE, "delete": DELETED_FATE}
        fate = "CASE __f " + " ".join(f"WHEN '{op}' THEN {_text(name)}" for op, name in names.items()) + " END"
        struct = [f"'{c}', {_tick(c)}" for c in self.target.columns]
        old = [f"'{c}', {_old(c)}" for c in self.target.columns]
        rows = self.frame.selectExpr("*", f"{self._fate()} AS __f").where("__f IN ('insert', 'upsert', 'delete')")
        rows = rows.orderBy("`_hoodie_record_key`", *map(_tick, self.target.key_fields))
        found = collected(
            rows.selectExpr(
                f"{fate} AS fate",
                f"CASE WHEN __f <> 'insert' THEN named_struct({', '.join(old)}) END AS old",
                f"CASE WHEN __f <> 'delete' THEN named_struct({', '.join(struct)}) END AS new",
            )
        )
        fields = ", ".join(f"{quote(c)} {kind}" for c, kind in self.target.columns.items())
        shape = self.engine.session.con.sql(
            f"SELECT CAST(NULL AS VARCHAR) AS fate, CAST(NULL AS STRUCT({fields})) AS old, CAST(NULL AS STRUCT({fields})) AS new "
            "WHERE false"
        ).to_arrow_table()
        table = fitted(found, shape.schema)
        return table.append_column("number", pa.array(range(table.num_rows), pa.int64()))


def _several(rows: Any, same: Sequence[str]) -> Any:
    """The rows that agree in some expressions with another one."""
    partition = ", ".join(same)
    return rows.selectExpr("*", f"count(*) OVER (PARTITION BY {partition}) AS __lakesql_twins").where(
        "__lakesql_twins > 1"
    )


def _late(fields: Sequence[str]) -> str:
    """Condition under which new ordering values are smaller than the stored ones; a NULL is the smallest."""
    smaller, equal = [], []
    for field in fields:
        new, old = _tick(field), _old(field)
        less = f"coalesce({new} < {old}, {new} IS NULL AND {old} IS NOT NULL)"
        smaller.append(" AND ".join([*equal, less]))
        equal.append(f"{new} <=> {old}")
    return "(" + " OR ".join(f"({s})" for s in smaller) + ")"


def _stored(target: Target, returning: bool) -> list[str]:
    """The columns whose stored values a stage carries: all of them, where they decide what is written or are shown."""
    del returning
    return list(target.columns)


def _type(field: pa.Field) -> str:
    try:
        return duckdb_type(field.type, field.name)
    except Unsupported:
        return str(field.type)


def _is_role(name: str, state: TableState) -> bool:
    config = state.config
    return name in (*config.record_key_fields, *config.partition_fields, *config.ordering_fields)


def values_schema(frame: Any, state: TableState, names: Mapping[str, Any]) -> list[pa.Field]:
    """The fields of constants that a PARTITION clause gives."""
    del frame
    return [state.schema.field(name) for name in names]


def spark_type(kind: pa.DataType) -> str:
    """Spark's name of a column type of a Hudi table."""
    simple = {
        pa.bool_(): "BOOLEAN", pa.int32(): "INT", pa.int64(): "BIGINT", pa.float32(): "FLOAT", pa.float64(): "DOUBLE",
        pa.string(): "STRING", pa.binary(): "BINARY", pa.date32(): "DATE",
    }  # fmt: skip
    if kind in simple:
        return simple[kind]
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP" if kind.tz else "TIMESTAMP_NTZ"
    if pa.types.is_map(kind):
        return f"MAP<{spark_type(kind.key_type)},{spark_type(kind.item_type)}>"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"ARRAY<{spark_type(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"STRUCT<{','.join(f'{_tick(f.name)}:{spark_type(f.type)}' for f in kind)}>"
    raise Unsupported(f"values of type {kind} are not supported on Spark. {ADVICE}")


def _instants(state: TableState) -> set[str]:
    return {i.requested for i in state.timeline.completed_writes()}


def _result(
    session: Any, state: TableState, before: set[str], operation: str, counts: _Counts | None, started: float
) -> WriteResult:
    """What a write of Spark's did, from its commit. Without `counts` they are those of the commit."""
    now = load(session.instance.storage(state.path))
    new = [i for i in now.timeline.completed_writes() if i.requested not in before]
    services = {"COMPACT", "CLUSTER", "LOG_COMPACT"}
    writes = [i for i in new if (now.commit(i).operation or "").upper() not in services]
    if not writes:
        done = counts or _Counts(0, 0, 0, 0)
        return WriteResult(None, None, operation, rows_ignored=done.ignored, duration_s=time.perf_counter() - started)
    instant = writes[-1]
    stats = [(p, s) for p, group in now.commit(instant).partition_stats.items() for s in group]
    if counts is None:
        counts = _Counts(
            sum(s.num_inserts or 0 for _, s in stats),
            sum(s.num_update_writes or 0 for _, s in stats),
            sum(s.num_deletes or 0 for _, s in stats),
            0,
        )
    return WriteResult(
        instant.requested,
        instant.action,
        operation,
        counts.inserted,
        counts.updated,
        counts.deleted,
        counts.ignored,
        files_written=len(stats),
        bytes_written=sum(s.total_write_bytes or 0 for _, s in stats),
        partitions_touched=len({p for p, _ in stats}),
        duration_s=time.perf_counter() - started,
        completed=now.timeline.time_of(instant),
        notes=tuple(f"{(now.commit(i).operation or i.action).lower()} {i.requested}" for i in new if i not in writes),
    )


def _tick(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _tick_sql(name: str) -> str:
    """A name in double quotes as Spark quotes it."""
    return _tick(name[1:-1].replace('""', '"'))


def _old(column: str) -> str:
    return _tick_sql(stage.stored(column))


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
