"""What procedures that show something have in common: `filter` and `limit` over their rows, globs, instants.

`filter` is applied before `limit` (Hudi applies it after, and so hides rows that fit). It is a DuckDB condition.
Not here: what the rows are.
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, tzinfo
from fnmatch import fnmatchcase
from typing import Any

import duckdb
import pyarrow as pa

from lakesql.errors import SQLError, TableError
from lakesql.format.metadata import CommitMetadata
from lakesql.format.timeline import WRITE_ACTIONS, Instant, normalise_instant
from lakesql.procedures.declare import FILTER, LIMIT, Call, Parameter, Procedure, Rows
from lakesql.table.clock import timeline_zone
from lakesql.table.names import quote
from lakesql.table.state import TableState

_ROWS = "__lakesql_rows"


def showing(
    name: str,
    doc: str,
    columns: pa.Schema,
    rows: Callable[[Call], Rows],
    parameters: tuple[Parameter, ...] = (LIMIT,),
    **more: Any,
) -> Procedure:
    """A procedure whose rows are filtered and limited as its parameters `filter` and `limit` say."""
    filters, limits = FILTER in parameters, any(p.name == "limit" for p in parameters)

    def run(call: Call) -> Rows:
        found = rows(call)
        if not filters or not call["filter"]:
            return _first(found, call["limit"]) if limits else found
        table = pa.Table.from_pylist([dict(row) for row in found], schema=columns)
        kept = _filtered(call, name, table)
        return _first(kept.to_pylist(), call["limit"]) if limits else kept.to_pylist()

    return Procedure(name, doc, columns, run, parameters, **more)


def limit(rows: int) -> Parameter:
    """LIMIT with another default."""
    return Parameter(LIMIT.name, LIMIT.kind, rows, LIMIT.doc)


def _first(rows: Rows, limit: int | None) -> Iterator[Mapping[str, Any]]:
    for number, row in enumerate(rows):
        if limit is not None and 0 <= limit <= number:
            return
        yield row


def _filtered(call: Call, name: str, table: pa.Table) -> pa.Table:
    condition, con = call["filter"], call.con
    con.register(_ROWS, table)
    try:
        sql = f"SELECT {', '.join(map(quote, table.column_names))} FROM {_ROWS} WHERE ({condition}\n)"
        if len(con.extract_statements(sql)) != 1:
            raise SQLError(f"CALL {name}: filter => {condition!r} is more than one condition. Give one.")
        found: pa.Table = con.sql(sql).to_arrow_table()
    except duckdb.Error as error:
        text = str(error).split("\n")[0]
        raise SQLError(
            f"CALL {name}: filter => {condition!r}: {text}. Give a condition over {', '.join(table.column_names)}."
        ) from error
    finally:
        con.unregister(_ROWS)
    return found


def commit_of(state: TableState, text: str) -> tuple[Instant, CommitMetadata]:
    """A completed write by its instant, active or archived. TableError when there is none of that time."""
    wanted = normalise_instant(text)
    writes = state.timeline.completed_writes()
    for instant in writes:
        if instant.requested == wanted:
            return instant, state.commit(instant)
    archived = state.archived.get(wanted)
    if archived is not None and archived.instant.completed_action in WRITE_ACTIONS:
        return archived.instant, state.commit(archived.instant)
    newest = ", ".join(i.requested for i in newest_first(state)[:3]) or "none"
    raise TableError(
        f"{state.path}: there is no completed write with the instant {text}; the newest are {newest}. "
        "CALL show_commits lists them."
    )


def newest_first(state: TableState) -> list[Instant]:
    """The completed writes of the active timeline, by requested time, as Hudi's commands list them."""
    return sorted(state.timeline.completed_writes(), key=lambda i: i.requested, reverse=True)


def zone_of(state: TableState) -> tzinfo:
    """The zone of the table's instants; UTC when it cannot be told, which changes nothing but the look of file times."""
    try:
        return timeline_zone(state, "")
    except TableError:
        return UTC


def matches(path: str, pattern: str) -> bool:
    """Whether a path fits a glob, in which `*` does not reach over a `/`."""
    parts, wanted = path.strip("/").split("/"), pattern.strip("/").split("/")
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))


def chosen(names: str | None) -> list[str]:
    """The parts of a list separated by commas."""
    return [part.strip() for part in (names or "").split(",") if part.strip()]
