"""A stage that Spark holds: the rows that a MERGE, UPDATE or DELETE changes, checked, counted, and as they are to be written.

The checks are those of `sql.stage`, with its sentences, asked in Spark's words.
"""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from lakesql.errors import TableError
from lakesql.spark.engine import Engine, collected, fitted
from lakesql.spark.names import spark_type, text_of, tick, tick_quoted
from lakesql.spark.written import Counts
from lakesql.sql import stage
from lakesql.sql.merge_names import Target
from lakesql.sql.plain_stage import Plain
from lakesql.sql.stage import ERROR, PATH_CHANGED, REKEYED, ROW
from lakesql.sql.versions import DELETED_FATE, INSERTED_FATE, UPDATED_FATE
from lakesql.table.names import quote
from lakesql.table.state import TableState


class Stage:
    """A stage that Spark holds."""

    def __init__(self, engine: Engine, frame: Any, plan: Plain, target: Target, state: TableState, policy: str) -> None:
        self.types = {f.name: spark_type(f.type) for f in state.schema}
        self.engine, self.plan, self.target, self.policy = engine, plan, target, policy
        self.frame = frame
        self.operations: set[str] = set()
        self.null_partitions = False

    def check(self) -> None:
        """TableError for rows that a statement must not have; afterwards the frame has one row per key."""
        self._refuse_errors()
        if self.plan.rekeys:
            check = stage.rekeyed_check(self.target)
            self._refuse(check.message, self.frame.where(tick_quoted(REKEYED)))
        self._one_per_key()
        self._refuse_null_keys()
        if self.plan.may_exist:
            self._refuse_existing()
        if self.plan.moves:
            self._refuse_moves()
        self._refuse_twins()

    def _shown(self) -> str:
        fields = [
            *self.target.key_fields,
            *(f for f in self.target.partition_fields if f not in self.target.key_fields),
        ]
        return (
            "concat("
            + ", ', ', ".join(f"{text_of(f + '=')}, coalesce(CAST({tick(f)} AS STRING), 'NULL')" for f in fields)
            + ")"
        )

    def _refuse(self, message: str, rows: Any, shown: str = "") -> None:
        found = (
            rows.selectExpr(f"{shown or self._shown()} AS k")
            .distinct()
            .orderBy("k")
            .limit(stage.SHOWN_MAX + 1)
            .collect()
        )
        if found:
            text = "; ".join(str(r[0]) for r in found[: stage.SHOWN_MAX]) + (
                " and more" if len(found) > stage.SHOWN_MAX else ""
            )
            raise TableError(message.replace("{keys}", text) + " Nothing was written.")

    def _refuse_errors(self) -> None:
        if self.plan.errors:
            shown = f"concat({tick_quoted(ERROR)}, ' (', {self._shown()}, ', clause ', `__lakesql_clause`, ')')"
            self._refuse(stage.error_check(self.target).message, self.frame.where("`__op` = 'error'"), shown)

    def _one_per_key(self) -> None:
        """Several rows of one key: an error, or the one that the policy chooses."""
        if not self.plan.numbered:
            return
        same = [tick_quoted(f) for f in stage.identity(self.target)]
        old, new = ["`_hoodie_record_key`", "`_hoodie_partition_path`"], same
        updates = self.frame.where(f"`__op` IN ('upsert', 'delete') AND {tick_quoted(ROW)} IS NOT NULL")
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
        row = tick_quoted(ROW)
        order = {"first": row, "last": f"{row} DESC"}.get(self.policy)
        if order is None:
            order = ", ".join(f"{tick(f)} DESC NULLS LAST" for f in self.target.ordering_fields)
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
        nulls = " OR ".join(f"{tick(f)} IS NULL" for f in self.target.key_fields)
        self._refuse(
            f"{self.target.name}: a record key column is NULL: {{keys}}. Every row needs its key.",
            self.frame.where(f"`__op` = 'insert' AND ({nulls})"),
        )

    def _table(self) -> Any:
        return self.engine.frame(self.target.snapshot)[0]

    def _refuse_twins(self) -> None:
        """Rows whose key the table holds several times: Spark's MERGE would change all of them, or the wrong one."""
        keys = ["_hoodie_record_key", "_hoodie_partition_path"]
        changed = self.frame.where("`__op` IN ('upsert', 'delete')").select(*keys).distinct()
        self._refuse(
            f"{self.target.name}: the table holds several rows of one record key: {{keys}}. Spark cannot change one of them. "
            "Make the keys unique (CALL repair_deduplicate), or use engine duckdb.",
            _several(self._table().select(*keys).join(changed, keys, "left_semi"), keys),
            "`_hoodie_record_key`",
        )

    def _refuse_existing(self) -> None:
        inserts, table = self.frame.where("`__op` = 'insert'").alias("s"), self._table().alias("t")
        from pyspark.sql.functions import expr

        same = " AND ".join(f"s.{f} <=> t.{f}" for f in map(tick_quoted, stage.identity(self.target)))
        self._refuse(stage.existing_check(self.target).message, inserts.join(table, expr(same), "left_semi"))

    def _refuse_moves(self) -> None:
        """Rows that another partition gets may not be there already."""
        from pyspark.sql.functions import expr

        message = next(iter(stage.move_checks(self.target, False))).message
        moving, table = (
            self.frame.where(f"`__op` = 'upsert' AND {tick_quoted(PATH_CHANGED)}").alias("s"),
            self._table().alias("t"),
        )
        same = " AND ".join(f"s.{f} <=> t.{f}" for f in map(tick_quoted, stage.identity(self.target)))
        self._refuse(message, moving.join(table, expr(same), "left_semi"))

    # ------------------------------------------------------------ what is written

    def _fate(self) -> str:
        """SQL for what becomes of a row: insert, upsert, delete, same or late."""
        compared = [c for c in self.target.columns if c in self.plan.assigned]
        same = " AND ".join(f"{tick(c)} <=> {_old(c)}" for c in compared) or "false"
        whens = [f"WHEN `__op` <> 'upsert' THEN `__op` WHEN {same} THEN 'same'"]
        fields = [f for f in self.target.ordering_fields if f in self.plan.assigned]
        if self.target.event_time and fields:
            whens.append(f"WHEN {_late(self.target.ordering_fields)} THEN 'late'")
        return f"CASE {' '.join(whens)} ELSE 'upsert' END"

    def counts(self) -> Counts:
        """Rows by their fate."""
        nulls = " OR ".join(f"{tick(f)} IS NULL" for f in self.target.partition_fields) or "false"
        found: dict[str, int] = {}
        for row in (
            self.frame.selectExpr(f"{self._fate()} AS fate", f"({nulls}) AS n").groupBy("fate", "n").count().collect()
        ):
            found[row[0]] = found.get(row[0], 0) + int(row[2])
            self.null_partitions |= bool(row[1])
        self.operations = {op for op in ("insert", "upsert", "delete") if found.get(op)}
        get = found.get
        return Counts(get("insert", 0), get("upsert", 0), get("delete", 0), get("same", 0) + get("late", 0))

    def rows(self) -> Any:
        """The rows to write: the columns of the table and __op. A row that moves is deleted and inserted."""
        # A delete has the values that are stored: Merge-on-Read compares its ordering value.
        columns = [
            f"CAST(CASE WHEN `__op` = 'delete' THEN {_old(c)} ELSE {tick(c)} END AS {self.types[c]}) AS {tick(c)}"
            for c in self.target.columns
        ]
        written = self.frame.where(f"{self._fate()} IN ('insert', 'upsert', 'delete')")
        if not self.plan.moves:
            return written.selectExpr(*columns, "`__op`")
        moved = f"`__op` = 'upsert' AND {tick_quoted(PATH_CHANGED)}"
        stay = written.where(f"NOT coalesce({moved}, false)").selectExpr(*columns, "`__op`")
        moving = written.where(moved)
        if not moving.limit(1).collect():
            return stay
        self.operations |= {"insert", "delete"}
        gone = [f"{_old(c)} AS {tick(c)}" for c in self.target.columns]
        return (
            stay.unionByName(moving.selectExpr(*gone, "'delete' AS `__op`"))
            .unionByName(moving.selectExpr(*columns, "'insert' AS `__op`"))
        )  # fmt: skip

    def versions(self) -> pa.Table:
        """Number, fate, old and new version of every row that changes, for RETURNING."""

        names = {"insert": INSERTED_FATE, "upsert": UPDATED_FATE, "delete": DELETED_FATE}
        fate = "CASE __f " + " ".join(f"WHEN '{op}' THEN {text_of(name)}" for op, name in names.items()) + " END"
        struct = [f"'{c}', {tick(c)}" for c in self.target.columns]
        old = [f"'{c}', {_old(c)}" for c in self.target.columns]
        rows = self.frame.selectExpr("*", f"{self._fate()} AS __f").where("__f IN ('insert', 'upsert', 'delete')")
        rows = rows.orderBy("`_hoodie_record_key`", *map(tick, self.target.key_fields))
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
    smaller: list[str] = []
    equal: list[str] = []
    for field in fields:
        new, old = tick(field), _old(field)
        less = f"coalesce({new} < {old}, {new} IS NULL AND {old} IS NOT NULL)"
        smaller.append(" AND ".join([*equal, less]))
        equal.append(f"{new} <=> {old}")
    return "(" + " OR ".join(f"({s})" for s in smaller) + ")"


def _old(column: str) -> str:
    return tick_quoted(stage.stored(column))
