"""The views of a table on a connection: `t`, for Merge-on-Read also `t_ro` and `t_rt`, and for changes `t_incremental`,
driven by the variables `hoodie_t_consume_start_timestamp` and `..._end_timestamp`, and the macro `t_changes(begin, end)`.

Each is a call of a table function with the table's path, so it is planned anew at every statement, and a view kept in a
database file works again once lakesql is registered. Making a view reads no data: meanwhile the planner gives the
columns alone.
"""

import duckdb

from lakesql.errors import LakeError, TableError
from lakesql.sql.session import Session
from lakesql.storage import open_storage
from lakesql.table import read
from lakesql.table.names import literal, quote
from lakesql.table.state import HOODIE, PROPERTIES, load_head

_COMPANIONS = ("_ro", "_rt", "_incremental")


def find_tables(warehouse: str) -> dict[str, str]:
    """Folder name -> path of every Hudi table directly in the warehouse folder, also of one without properties."""
    storage = open_storage(warehouse)
    _, folders = storage.list("")
    return {
        f: f"{storage.uri}/{f}"
        for f in folders
        if storage.stat(f"{f}/{PROPERTIES}") is not None or any(storage.list(f"{f}/{HOODIE}"))
    }


def add_warehouse(session: Session) -> None:
    """Views for the tables of the warehouse. One that cannot be read is remembered with its error."""
    for name, path in find_tables(session.warehouse).items():
        try:
            add(session, name, path)
        except LakeError as error:
            session.problems[name.lower()] = error


def add(session: Session, name: str, path: str) -> None:
    """Make the views of a table and remember its name.

    TableError when the database has something else of that name, or the errors of opening the table.
    """
    con, home = session.con, session.home
    temp = "" if home else "TEMP "
    head = load_head(open_storage(path))
    taken = _foreign(session, name)
    if taken:
        raise TableError(
            f"{name}: the database has a {taken} of this name, the Hudi table at {path} stays without a view. "
            f"Read it with hudi_scan({literal(path)}), or rename one of the two."
        )
    bodies = {name: f"hudi_scan({literal(path)})"}
    if head.config.is_mor:
        # Not hudi_scan: views that call it are how the names of tables are found again in a database file.
        bodies[name + "_ro"] = f"hudi_read_optimized({literal(path)})"
        bodies[name + "_rt"] = f"hudi_snapshot({literal(path)})"
    start, end = (f"getvariable({literal(f'hoodie_{name}_consume_{edge}_timestamp')})" for edge in ("start", "end"))
    bodies[name + "_incremental"] = f"hudi_incremental({literal(path)}, coalesce({start}, 'earliest'), {end})"
    with session.instance.columns_only(read.columns(head)):
        for view, body in bodies.items():
            if view != name and _foreign(session, view):
                continue
            try:
                con.execute(f"CREATE OR REPLACE {temp}VIEW {home}{quote(view)} AS SELECT * FROM {body}")
            except duckdb.InvalidInputException as error:
                raise session.cause(error) from error
    changes = f'SELECT * FROM {home}hudi_incremental({literal(path)}, begin, "end" := "end")'
    con.execute(
        f'CREATE OR REPLACE {temp}MACRO {home}{quote(name + "_changes")}(begin, "end" := NULL) AS TABLE {changes}'
    )
    session.instance.add(name, path)
    session.problems.pop(name.lower(), None)


def drop(session: Session, name: str) -> None:
    """Remove the views of a table and forget its name."""
    for view in (name, *(name + c for c in _COMPANIONS)):
        if _kind(session, view) == "view" and not _foreign(session, view):
            session.con.execute(f"DROP VIEW IF EXISTS {session.home}{quote(view)}")
    session.con.execute(f"DROP MACRO TABLE IF EXISTS {session.home}{quote(name + '_changes')}")
    session.instance.remove(name)


def _foreign(session: Session, name: str) -> str:
    """'table' or 'view' when the database has something of that name that is not a view of ours, else ''."""
    kind = _kind(session, name)
    if kind != "view":
        return kind
    rows = session.con.execute(
        "SELECT sql FROM duckdb_views() WHERE lower(view_name) = $1 AND schema_name = 'main' "
        "AND database_name IN ($2, 'temp')",
        [name.lower(), session.database],
    ).fetchall()
    return "" if all("hudi_" in sql for (sql,) in rows) else "view"


def _kind(session: Session, name: str) -> str:
    rows = session.con.execute(
        "SELECT kind FROM (SELECT 'table' AS kind, database_name, schema_name, table_name AS name FROM duckdb_tables() "
        "UNION ALL SELECT 'view', database_name, schema_name, view_name FROM duckdb_views()) "
        "WHERE lower(name) = $1 AND schema_name = 'main' AND database_name IN ($2, 'temp')",
        [name.lower(), session.database],
    ).fetchall()
    return str(rows[0][0]) if rows else ""
