"""Procedures about a table as a whole: its properties, dropping partitions, emptying it, copying what a query reads.

Dropping and emptying are one replacecommit each, so the rows stay readable by time travel until they are cleaned (Hudi's
truncate_table deletes the folder). A copy goes into a Hudi table when `new_table` names one, else into a DuckDB table.
"""

import time
from collections.abc import Mapping

import duckdb

from lakesql.errors import SQLError, TableError
from lakesql.procedures.changing import changed
from lakesql.procedures.declare import FILTER, LIMIT, REQUIRED, Call, Parameter, Procedure, Rows, columns
from lakesql.procedures.shape import chosen, matches, showing
from lakesql.table.names import duckdb_type, literal, quote
from lakesql.table.state import TableState, load
from lakesql.write import WriteResult, write

_QUERY_TYPES = ("snapshot", "read_optimized", "incremental")
_SAVE_MODES = ("overwrite", "append")


def _properties(call: Call) -> Rows:
    for key, value in sorted(call.state().config.properties.items()):
        yield {"key": key, "value": value}


# ---------------------------------------------------------------- partitions
def _drop(call: Call) -> Rows:
    changed(call, call.storage, lambda state, settings: _without(call, state, settings, call["partition"]))
    yield {"result": "Success"}


def _truncate(call: Call) -> Rows:
    started = time.monotonic()
    changed(call, call.storage, lambda state, settings: _emptied(call, state, settings))
    yield {"result": "SUCCESS", "time_cost": int((time.monotonic() - started) * 1000)}


def _emptied(call: Call, state: TableState, settings: Mapping[str, str]) -> WriteResult:
    if call["partitions"]:
        return _without(call, state, settings, call["partitions"])
    nothing = _no_rows(state)
    return write(call.con, state, nothing, operation="insert_overwrite_table", settings=settings, clock=call.clock)


def _without(call: Call, state: TableState, settings: Mapping[str, str], partitions: str) -> WriteResult:
    return write(
        call.con, state, _no_rows(state), operation="delete_partition", settings=settings,
        partitions=_named(state, partitions), clock=call.clock,
    )  # fmt: skip


def _no_rows(state: TableState) -> str:
    fields = ", ".join(f"CAST(NULL AS {duckdb_type(f.type, f.name)}) AS {quote(f.name)}" for f in state.schema)
    return f"SELECT {fields} WHERE false"


def _named(state: TableState, text: str) -> list[str]:
    """The partitions that a list of paths or globs means. TableError for one that means none."""
    if not state.config.partition_fields:
        raise TableError(f"{state.path}: the table has no partitions; TRUNCATE TABLE empties it.")
    present = sorted({s.partition for s in state.slices()})
    found: list[str] = []
    for pattern in chosen(text):
        fitting = [p for p in present if p == pattern or matches(p, pattern)]
        if not fitting:
            few = ", ".join(present[:5]) + (", ..." if len(present) > 5 else "") or "none"
            raise TableError(f"{state.path}: there is no partition {pattern}; there are {few}. Nothing was written.")
        found += fitting
    return list(dict.fromkeys(found))


# ---------------------------------------------------------------- copies
def _copy_to_view(call: Call) -> Rows:
    name, con = quote(call["view_name"]), _user(call)
    _require_no_view_of_a_table(call["view_name"], con)
    replaces = " OR REPLACE" if call["replace"] else ""
    temporary = "" if call["global"] else " TEMP"
    try:
        con.execute(f"CREATE{replaces}{temporary} VIEW {name} AS SELECT * FROM {_query(call)}")
    except duckdb.Error as error:
        raise SQLError(
            f"CALL copy_to_temp_view: {_first_line(error)} With replace => true an old view goes."
        ) from error
    yield {"status": 0}


def _require_no_view_of_a_table(name: str, con: duckdb.DuckDBPyConnection) -> None:
    """SQLError when the copy would hide a Hudi table: reads would see the copy, and writes go to the table."""
    sql = (
        "SELECT 1 FROM duckdb_views() WHERE lower(view_name) = lower($1) AND database_name <> 'temp' "
        "AND contains(sql, 'hudi_')"
    )
    if con.execute(sql, [name]).fetchall():
        raise SQLError(
            f"CALL copy_to_temp_view: view_name => {name!r} is the name of a Hudi table, or of a view of one, which the "
            "copy would hide. Choose another name."
        )


def _copy_to_table(call: Call) -> Rows:
    mode = str(call["save_mode"]).lower()
    if mode not in _SAVE_MODES:
        raise SQLError(f"CALL copy_to_table: save_mode => {call['save_mode']!r}; use one of {', '.join(_SAVE_MODES)}.")
    try:
        target = call.resolve(call["new_table"])
        state = load(target)
    except TableError:
        _into_duckdb(call, mode)
    else:
        operation = "insert_overwrite_table" if mode == "overwrite" else _appending(state)
        try:
            changed(call, target, lambda now, settings: _copied(call, now, settings, operation))
        except duckdb.Error as error:
            raise SQLError(f"CALL copy_to_table: {_first_line(error)} Nothing was written.") from error
    yield {"status": 0}


def _appending(state: TableState) -> str:
    """What Hudi's writer does when it appends: upsert, but insert where there is no record key."""
    return "upsert" if state.config.record_key_fields else "insert"


def _copied(call: Call, state: TableState, settings: Mapping[str, str], operation: str) -> WriteResult:
    names = ", ".join(map(quote, state.schema.names))
    rows = f"SELECT {names} FROM {_query(call)}"
    return write(_user(call), state, rows, operation=operation, settings=settings, clock=call.clock)


def _into_duckdb(call: Call, mode: str) -> None:
    con, name = _user(call), quote(call["new_table"])
    selected = ", ".join(quote(c) for c in chosen(call["columns"])) or "*"
    query = f"SELECT {selected} FROM {_query(call)}"
    there = con.execute(
        "SELECT 1 FROM duckdb_tables() WHERE table_name = $1 AND schema_name = current_schema()", [call["new_table"]]
    ).fetchall()
    try:
        if there and mode == "append":
            con.execute(f"INSERT INTO {name} BY NAME {query}")
        else:
            con.execute(f"CREATE OR REPLACE TABLE {name} AS {query}")
    except duckdb.Error as error:
        raise SQLError(f"CALL copy_to_table: {_first_line(error)} Nothing was written.") from error


def _query(call: Call) -> str:
    """The table function that reads what `query_type` and the times say."""
    kind = str(call["query_type"]).lower()
    path = literal(call.storage.uri)
    if kind not in _QUERY_TYPES:
        raise SQLError(f"query_type => {call['query_type']!r} is unknown; use one of {', '.join(_QUERY_TYPES)}.")
    if kind == "incremental":
        begin, end = call["begin_instance_time"], call["end_instance_time"]
        if not begin or not end:
            raise SQLError("query_type => 'incremental' needs begin_instance_time and end_instance_time.")
        return f'hudi_incremental({path}, {literal(begin)}, "end" := {literal(end)})'
    as_of = f", as_of := {literal(call['as_of_instant'])}" if call["as_of_instant"] else ""
    return f"{'hudi_scan' if kind == 'snapshot' else 'hudi_read_optimized'}({path}{as_of})"


def _user(call: Call) -> duckdb.DuckDBPyConnection:
    assert call.user is not None, "a CALL comes from a connection"
    return call.user


def _first_line(error: duckdb.Error) -> str:
    return str(error).split("\n")[0].rstrip(".!") + "."


_READ = (
    Parameter("begin_instance_time", "VARCHAR", None, "of an incremental query: changes after this time"),
    Parameter("end_instance_time", "VARCHAR", None, "of an incremental query: changes up to this time"),
    Parameter("as_of_instant", "VARCHAR", None, "the rows as of this time"),
)
_TYPE = Parameter("query_type", "VARCHAR", "snapshot", "snapshot, read_optimized or incremental")

PROCEDURES = (
    showing(
        "show_table_properties",
        "The settings in hoodie.properties.",
        columns(key="text", value="text"),
        _properties,
        (LIMIT, FILTER),
    ),
    Procedure(
        "drop_partition",
        "Takes the rows of partitions out.",
        columns(result="text"),
        _drop,
        (Parameter("partition", "VARCHAR", REQUIRED, "partition paths or globs, separated by commas"),),
        writes=True,
    ),
    Procedure(
        "truncate_table",
        "Takes every row out, or those of some partitions.",
        columns(result="text", time_cost="long"),
        _truncate,
        (Parameter("partitions", "VARCHAR", None, "partition paths or globs, separated by commas"),),
        writes=True,
    ),
    Procedure(
        "copy_to_table",
        "Copies what a query reads into a table: a Hudi table of that name, else a DuckDB table.",
        columns(status="int"),
        _copy_to_table,
        (
            _TYPE,
            Parameter("new_table", "VARCHAR", REQUIRED, "the table to write"),
            *_READ,
            Parameter("save_mode", "VARCHAR", "overwrite", "overwrite or append"),
            Parameter("columns", "VARCHAR", None, "these columns, separated by commas, into a new table"),
        ),
        writes=True,
    ),
    Procedure(
        "copy_to_temp_view",
        "Gives what a query reads a name on this connection.",
        columns(status="int"),
        _copy_to_view,
        (
            _TYPE,
            Parameter("view_name", "VARCHAR", REQUIRED, "name of the view"),
            *_READ,
            Parameter("replace", "BOOLEAN", False, "instead of a view of that name"),
            Parameter("global", "BOOLEAN", False, "a view of the database, which every connection sees"),
        ),
    ),
)
