"""Procedures of clustering and partition TTL."""

from collections.abc import Iterator, Mapping

import duckdb

from lakesql.errors import SQLError
from lakesql.procedures.declare import Call, Parameter, Procedure, Rows, columns
from lakesql.procedures.options import OPTIONS, options_of
from lakesql.procedures.shape import chosen
from lakesql.services import clustering, ttl
from lakesql.services.clustering_plan import FILTER_MODE, LAYOUT, PARTITIONS, PATTERN, SELECTED, SORT_COLUMNS, layout_of
from lakesql.services.partitions import named
from lakesql.table import read
from lakesql.table.names import quote
from lakesql.table.state import TableState

_OPERATIONS = ("schedule", "execute", "scheduleandexecute")
_COLUMNS = columns(timestamp="text", input_group_size="long", state="text", involved_partitions="text")
_INVOLVED = Parameter("show_involved_partition", "BOOLEAN", False, "name the partitions instead of *")


def _run_clustering(call: Call) -> Rows:
    settings = {**call.settings, **options_of(call["options"], "run_clustering")}
    if call["order"] is not None:
        settings[SORT_COLUMNS] = call["order"]
    if call["order_strategy"] is not None:
        settings[LAYOUT] = _layout(call["order_strategy"])
    selected = call["selected_partitions"]
    named(call.state(), None if selected is None else chosen(selected))
    if call["predicate"] is not None:
        selected = ",".join(_matching(call, call.state(), call["predicate"]))
        if not selected:
            return []
    if selected is not None:
        settings |= {FILTER_MODE: SELECTED, PARTITIONS: selected}
    elif call["partition_regex_pattern"] is not None:
        settings[PATTERN] = call["partition_regex_pattern"]
    operation, plans = _asked(call)
    if operation != "execute" and (instant := clustering.schedule(call.storage, settings, call.clock)):
        plans = [instant]
    if operation != "schedule":
        for instant in plans:
            clustering.run(call.con, call.storage, settings, instant, call.clock)
    elif not plans:
        return []
    return _rows(call, call.state(), frozenset(plans))


def _asked(call: Call) -> tuple[str, list[str]]:
    """(operation, the pending plans it is about), as Hudi reads `op`, `instants` and `limit`."""
    operation = (call["op"] or "scheduleAndExecute").lower()
    if operation not in _OPERATIONS:
        raise SQLError(f"CALL run_clustering: op => '{call['op']}': use schedule, execute or scheduleAndExecute.")
    pending = clustering.pending(call.state())
    if call["instants"] is None:
        return operation, [] if operation == "schedule" else pending[: call["limit"]]
    if call["op"] is not None and operation != "execute":
        raise SQLError("CALL run_clustering: instants are of plans that exist; use them with op => 'execute'.")
    wanted = [text.strip() for text in call["instants"].split(",") if text.strip()]
    unknown = [text for text in wanted if text not in pending]
    if unknown:
        raise SQLError(
            f"CALL run_clustering: no pending clustering {', '.join(unknown)}; pending: {', '.join(pending) or 'none'}."
        )
    return "execute", wanted


def _layout(text: str) -> str:
    try:
        return layout_of(text)
    except ValueError as error:
        raise SQLError(f"CALL run_clustering: order_strategy => '{text}': {error}.") from error


def _matching(call: Call, state: TableState, predicate: str) -> list[str]:
    """The partitions that have rows for which a condition on the partition columns holds."""
    fields = [f for f in state.config.partition_fields if f in state.schema.names]
    path = "_hoodie_partition_path"
    rows = read.to_sql(call.con, read.plan(state), [*fields, path])
    named = ", ".join([*map(quote, fields), f"{path} AS __lakesql_path"])
    try:
        if len(call.con.extract_statements(f"SELECT 1 WHERE ({predicate}\n)")) != 1:
            raise SQLError(f"CALL run_clustering: predicate => {predicate!r} is more than one condition.")
        found = call.con.execute(
            f"SELECT DISTINCT __lakesql_path FROM (SELECT {named} FROM ({rows})) WHERE ({predicate}\n) ORDER BY 1"
        ).fetchall()
    except (duckdb.ParserException, duckdb.BinderException, duckdb.ConversionException) as error:
        text = str(error).split("\n")[0]
        raise SQLError(
            f"CALL run_clustering: predicate => {predicate!r}: {text}. Give a condition on the partition columns "
            f"({', '.join(fields) or 'the table has none'})."
        ) from error
    return [text for (text,) in found]


def _show_clustering(call: Call) -> Rows:
    return list(_rows(call, call.state(), None))[: call["limit"]]


def _rows(call: Call, state: TableState, chosen: frozenset[str] | None) -> Iterator[Mapping[str, object]]:
    for one in clustering.listed(state):
        if chosen is None or one.instant in chosen:
            yield {
                "timestamp": one.instant,
                "input_group_size": one.groups,
                "state": one.state,
                "involved_partitions": ",".join(one.partitions) if call["show_involved_partition"] else "*",
            }


def _run_ttl(call: Call) -> Rows:
    settings = {**call.settings}
    if call["ttl_policy"] is not None:
        settings[ttl.STRATEGY] = call["ttl_policy"]
    if call["retain_days"] is not None:
        settings[ttl.DAYS] = str(call["retain_days"])
    settings |= options_of(call["options"], "run_ttl")
    partitions, _ = ttl.run(call.con, call.storage, settings, call.clock)
    return [{"deleted_partitions": p} for p in partitions]


PROCEDURES = (
    Procedure(
        "run_clustering",
        "Plans a clustering, which makes few sorted file groups of many, and runs it.",
        _COLUMNS,
        _run_clustering,
        (
            Parameter("predicate", "VARCHAR", None, "a condition on the partition columns"),
            Parameter("order", "VARCHAR", None, "columns to sort by, separated by commas"),
            _INVOLVED,
            Parameter("op", "VARCHAR", None, "schedule, execute or scheduleAndExecute"),
            Parameter("order_strategy", "VARCHAR", None, "linear, z-order or hilbert"),
            OPTIONS,
            Parameter("instants", "VARCHAR", None, "the pending plans to run, separated by commas"),
            Parameter("selected_partitions", "VARCHAR", None, "partition paths, separated by commas"),
            Parameter("partition_regex_pattern", "VARCHAR", None, "a pattern that the partition path must match"),
            Parameter("limit", "BIGINT", None, "run at most so many pending plans"),
        ),
        writes=True,
    ),
    Procedure(
        "show_clustering",
        "Lists the clusterings of the timeline, planned and done, newest first.",
        _COLUMNS,
        _show_clustering,
        (Parameter("limit", "BIGINT", 20, "at most so many rows"), _INVOLVED),
    ),
    Procedure(
        "run_ttl",
        "Drops the partitions that are older than their retention.",
        columns(deleted_partitions="text"),
        _run_ttl,
        (
            Parameter("ttl_policy", "VARCHAR", None, "KEEP_BY_TIME or KEEP_BY_CREATION_TIME"),
            Parameter("retain_days", "INTEGER", None, "how many days a partition is kept"),
            OPTIONS,
        ),
        writes=True,
    ),
)
