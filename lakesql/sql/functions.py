"""`register(con)`: the table functions of lakesql on a DuckDB connection.

A table function is a macro over `query(lakesql_plan(name, table, arguments, txid_current()))`; the scalar UDF returns
the SQL of the read, which DuckDB binds in place, so projections and filters reach the Parquet scans. The macros live in
the database (in a read-only one as TEMP macros of the connection) and views over them survive in a file: after
reopening, `register` brings them back to life. The UDF is made once per DuckDB instance.

To add a table function: one entry in TABLE_FUNCTIONS, and its planner in `planners`.
"""

import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb

from lakesql.errors import Unsupported
from lakesql.sql.cursor import string_value
from lakesql.sql.instance import UDF, Arguments, Free, Instance, Planner
from lakesql.sql.lexer import IDENTIFIERS, tokens
from lakesql.table import outcomes
from lakesql.table.lists import FUNCTION, paths_of
from lakesql.table.names import literal, quote
from lakesql.table.staleness import MAX_STALENESS, ON_STALE

if TYPE_CHECKING:
    from lakesql.services.freshness import LastRead
    from lakesql.table.state import TableState

Connection = duckdb.DuckDBPyConnection


@dataclass(frozen=True, slots=True)
class TableFunction:
    """`parameters` as the macro declares them, `arguments` as SQL over them, and the planner that gets their texts."""

    parameters: str
    arguments: tuple[str, ...]
    plan: Planner | Free


def _planner(name: str) -> Planner:
    """A function of `planners`."""

    def plan(cursor: Connection, state: "TableState", arguments: Arguments) -> "str | tuple[str, LastRead]":
        from lakesql.sql import planners

        return planners.PLANNERS[name](cursor, state, arguments)

    return plan


def _kafka(name: str) -> Free:
    def plan(instance: Instance, table: str, arguments: Arguments, transaction: int) -> str:
        from lakesql.sql.kafka_functions import PLANNERS

        return PLANNERS[name](instance, table, arguments, transaction)

    return Free(plan)


def _reading(parameters: str, arguments: tuple[str, ...], planner: Planner) -> TableFunction:
    """A function that may decode logs. A relation is planned where it is fetched, perhaps in a thread that never ran a
    statement of its connection, so DuckDB tells what the connection has set."""

    def plan(cursor: Connection, state: "TableState", arguments: Arguments) -> "str | tuple[str, LastRead]":
        with outcomes.chosen(arguments[-1]):
            return planner(cursor, state, arguments[:-1])

    return TableFunction(parameters, (*arguments, f"getvariable('{variable(outcomes.DISK_CACHE)}')"), plan)


def _later(name: str, advice: str) -> TableFunction:
    def plan(cursor: Connection, state: "TableState", arguments: Arguments) -> str:
        del cursor, arguments
        raise Unsupported(f"{state.path}: {name} is not available yet. {advice}")

    return TableFunction("t", (), plan)


def variable(setting: str) -> str:
    """The DuckDB variable that tells table functions a setting of their connection."""
    return setting.replace(".", "_")


_LIMIT = ("max_staleness", f"getvariable('{variable(MAX_STALENESS)}')")
_ON_STALE = f"coalesce(on_stale::VARCHAR, getvariable('{variable(ON_STALE)}')::VARCHAR)"
_SCAN = _reading(
    "t, as_of := NULL, mode := 'snapshot', max_staleness := NULL, on_stale := NULL",
    ("as_of", "mode", *_LIMIT, _ON_STALE),
    _planner("scan"),
)
_CHANGES = _reading(
    't, begin := NULL, "end" := NULL, from_instant := NULL, to_instant := NULL',
    ("begin", '"end"', "from_instant", "to_instant"),
    _planner("incremental"),
)
_TIMELINE = TableFunction("t, archived := false", ("archived",), _planner("timeline"))
_FILES = TableFunction(
    "t, as_of := NULL, partition := NULL",
    ("as_of", "partition"),
    _planner("files"),
)

_BROKERS = ("brokers", "to_json(options)")
_OF_BROKERS = "t, brokers := NULL, options := NULL, ingestion := NULL"
_KAFKA = {
    "kafka_offsets": (_OF_BROKERS, (*_BROKERS, "ingestion")),
    "kafka_lag": (_OF_BROKERS, (*_BROKERS, "ingestion")),
    "kafka_ingest_runs": ("t, ingestion := NULL", ("ingestion",)),
    "kafka_quarantine": ("t, ingestion := NULL", ("ingestion",)),
    "kafka_scan": (
        "topic, brokers := NULL, options := NULL, format := 'raw', partition := NULL, start := 'earliest', "
        "stop := 'latest', rows := 1000",
        (*_BROKERS, "format", "partition", "start", "stop", "rows"),
    ),
}

TABLE_FUNCTIONS: dict[str, TableFunction] = {
    "hudi_scan": _SCAN,
    "read_hudi": _SCAN,
    "hudi_snapshot": _SCAN,
    "hudi_read_optimized": _reading(
        "t, as_of := NULL, max_staleness := NULL, on_stale := NULL",
        ("as_of", *_LIMIT, _ON_STALE),
        _planner("read_optimized"),
    ),
    "hudi_incremental": _CHANGES,
    "hudi_table_changes": _reading(
        't, kind, begin := NULL, "end" := NULL', ("kind", "begin", '"end"'), _planner("table_changes")
    ),
    "hudi_diff": _reading("t, a, b := NULL", ("a", "b"), _planner("diff")),
    "hudi_timeline": _TIMELINE,
    "hudi_query_timeline": _TIMELINE,
    "hudi_files": _FILES,
    "hudi_filesystem_view": _FILES,
    "hudi_partitions": TableFunction("t", (), _planner("partitions")),
    "hudi_properties": TableFunction("t", (), _planner("properties")),
    "hudi_schema": TableFunction("t", (), _planner("schema")),
    "hudi_log_blocks": TableFunction("t", (), _planner("log_blocks")),
    "hudi_freshness": _reading(
        "t, by_partition := false, exact := false", ("by_partition", "exact"), _planner("freshness")
    ),
    "hudi_advice": _reading(
        "t, reads_per_write := NULL, measure := false", ("reads_per_write", "measure"), _planner("advice")
    ),
    **{name: TableFunction(*given, _kafka(name)) for name, given in _KAFKA.items()},
    "hudi_metadata": _later("hudi_metadata", "hudi_properties shows which partitions the metadata table has."),
}

_PLACED, _PART = "placed", "part"
"""Planners without a table function, for our own statements: the snapshot with the places of its rows, and some slices of
it."""

_instances: dict[str, Instance] = {}
"""By id, for good: DuckDB 1.5 calls into a freed function when the connection that made it was closed."""
_kept: list[object] = []
_lock = threading.RLock()


def register(con: Connection) -> None:
    """Give a DuckDB connection the table functions: `FROM hudi_scan('path')` and the others of TABLE_FUNCTIONS.

    May be called again, for any connection or cursor of the instance, and after reopening a database file.
    """
    instance_of(con)


def instance_of(con: Connection) -> Instance:
    """The instance a connection belongs to; it is registered when it was not."""
    with _lock:
        instance = _find(con)
        if instance is None:
            planners = {name: f.plan for name, f in TABLE_FUNCTIONS.items()}
            instance = Instance(con, {**planners, **{name: _planner(name) for name in (_PLACED, _PART)}})
            udf = instance.plan
            kinds: list[Any] = ["VARCHAR", "VARCHAR", "VARCHAR[]", "BIGINT"]
            nulls: Any = "special"  # DuckDB 1.5 and 2 declare other types and both take the text
            con.create_function(FUNCTION, paths_of, ["BIGINT"], "VARCHAR[]")  # first: texts of the other call it
            con.create_function(UDF, udf, kinds, "VARCHAR", null_handling=nulls)
            _instances[instance.id] = instance
            _kept.append(udf)
            for name, path in _known_views(con):
                instance.add(name, path)
            missing = set(TABLE_FUNCTIONS)
        else:
            missing = set(TABLE_FUNCTIONS) - _macros(con)
        if missing:
            _create_macros(con, missing)
        return instance


def _find(con: Connection) -> Instance | None:
    """The instance of a connection, None when it has none yet.

    The function is called on a cursor, since an error would end the user's transaction; only there it may be that a
    cursor does not see it. Asking duckdb_functions(), which lists all that DuckDB has, takes a third of connecting.
    """
    call = f"SELECT {UDF}(NULL, NULL, NULL, 0)"
    try:
        with con.cursor() as cursor:
            found = cursor.execute(call).fetchall()
    except duckdb.CatalogException:
        first, second = (con.execute("SELECT txid_current()").fetchall()[0][0] for _ in range(2))
        listed = f"SELECT 1 FROM duckdb_functions() WHERE function_name = '{UDF}' LIMIT 1"
        if first != second or not con.execute(listed).fetchall():
            return None
        found = con.execute(call).fetchall()
    return _instances[found[0][0]]


def _macros(con: Connection) -> set[str]:
    rows = con.execute("SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type = 'table_macro'")
    return {name for (name,) in rows.fetchall()}


def _create_macros(con: Connection, names: set[str]) -> None:
    temp = "TEMP " if read_only(con) else ""
    for name in sorted(names):
        con.execute(f"CREATE OR REPLACE {temp}MACRO {macro_sql(name, TABLE_FUNCTIONS[name])}")


def macro_sql(name: str, function: TableFunction) -> str:
    """The definition of a table function, behind CREATE MACRO."""
    arguments = ", ".join(f"{a}::VARCHAR" for a in function.arguments)
    listed = f"[{arguments}]" if arguments else "[]::VARCHAR[]"
    first = function.parameters.split(",")[0].split(" ")[0]
    call = f"{UDF}('{name}', {first}::VARCHAR, {listed}, txid_current()::BIGINT)"
    return f"{quote(name)}({function.parameters}) AS TABLE SELECT * FROM query({call})"


def placed_sql(path: str, numbers: Sequence[int] | None = None) -> str:
    """The snapshot of a table that the transaction sees, or slices of it, as `read.placed_sql` gives it."""
    return _planned_sql(_PLACED, path, numbers)


def part_sql(path: str, numbers: Sequence[int]) -> str:
    """The rows of some slices of the snapshot of a table that the transaction sees, by their numbers in `read.plan`."""
    return _planned_sql(_PART, path, numbers)


def _planned_sql(planner: str, path: str, numbers: Sequence[int] | None) -> str:
    listed = "NULL" if numbers is None else literal(json.dumps(list(numbers), separators=(",", ":")))
    call = f"{UDF}({literal(planner)}, {literal(path)}, [{listed}]::VARCHAR[], txid_current()::BIGINT)"
    return f"SELECT * FROM query({call})"


def read_only(con: Connection, database: str | None = None) -> bool:
    """Whether a database (default: the current one) refuses new views and macros; TEMP ones are made instead."""
    sql = "SELECT readonly FROM duckdb_databases() WHERE database_name = coalesce($1, current_database())"
    return bool(con.execute(sql, [database]).fetchall()[0][0])


def _known_views(con: Connection) -> list[tuple[str, str]]:
    """(name, path) of the views that an earlier session left: SELECT * FROM hudi_scan('path') and nothing else."""
    views = con.execute(
        "SELECT view_name, sql FROM duckdb_views() WHERE NOT internal AND contains(sql, 'hudi_scan(') ORDER BY 1"
    ).fetchall()
    found = []
    for name, sql in views:
        words = [t for t in tokens(sql) if t.text != ";"]
        at = next((i for i, t in enumerate(words) if t.word == "AS"), len(words))
        body = words[at + 1 :]
        texts = [t.text.lower() if t.kind in IDENTIFIERS else t.text for t in body]
        if len(body) == 7 and texts[:5] == ["select", "*", "from", "hudi_scan", "("] and body[5].kind == "string":
            found.append((name, string_value(body[5])))
    return found
