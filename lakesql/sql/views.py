"""The views of a table on a connection: `t`, for Merge-on-Read also `t_ro` and `t_rt`, and for changes `t_incremental`,
driven by the variables `hoodie_t_consume_start_timestamp` and `..._end_timestamp`, and the macro `t_changes(begin, end)`.

Each is a call of a table function with the table's path, so it is planned anew at every statement, and a view kept in a
database file works again once lakesql is registered. Making a view reads no data: meanwhile the planner gives the
columns alone.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import partial

import duckdb

from lakesql.errors import LakeError, TableError
from lakesql.services.freshness import freshness
from lakesql.sql.lexer import IDENTIFIERS, Token
from lakesql.sql.session import Session
from lakesql.storage import Storage, open_storage
from lakesql.table import read
from lakesql.table.names import literal, quote
from lakesql.table.state import HOODIE, PROPERTIES, TableState, load, load_head, read_config

_COMPANIONS = ("_ro", "_rt", "_incremental")
_OF_MOR = ("_ro", "_rt")
_CHANGES = "_changes"


def add_warehouse(session: Session) -> None:
    """Views for the tables of the warehouse folder, also for those that a database file has views of already."""
    refresh(session, anew=True)


def refresh(session: Session, names: Collection[str] | None = None, anew: bool = False) -> bool:
    """Look at the warehouse folder again, for the tables of these lower-case names or for all; whether any is new.

    A folder that looks like a table and cannot be read as one is remembered with its error.
    """
    storage, found = open_storage(session.warehouse), False
    _, folders = storage.list("")
    wanted = [
        folder
        for folder in folders
        if (names is None or folder.lower() in names) and (anew or not _is_shown(session, folder))
    ]
    opened = [open_storage(f"{storage.uri}/{folder}") for folder in wanted]
    heads = storage.together(*(partial(_head, one) for one in opened)) if storage.remote else [None] * len(wanted)
    for folder, head in zip(wanted, heads, strict=True):
        if head is None and not _has_properties(storage, folder):
            if _looks_like_a_table(storage, folder):
                session.problems[folder.lower()] = TableError(
                    f"{storage.uri}/{folder}: {PROPERTIES} is missing, and without it the table cannot be read safely. "
                    "Restore the file."
                )
            continue
        try:
            add(session, folder, f"{storage.uri}/{folder}", head)
            found = True
        except LakeError as error:
            session.problems[folder.lower()] = error
    return found


def _head(storage: Storage) -> TableState | None:
    """The state of a table without its files; None when it has to be looked at again, one table at a time."""
    try:
        return load_head(storage)
    except LakeError:
        return None


def _is_shown(session: Session, name: str) -> bool:
    """Whether a table is known and has its view, which a ROLLBACK may have taken away."""
    return session.instance.path_of(name) is not None and _kind(session, name) != ""


def _has_properties(storage: Storage, folder: str) -> bool:
    return any(storage.stat(f"{folder}/{name}") is not None for name in (PROPERTIES, PROPERTIES + ".backup"))


def _looks_like_a_table(storage: Storage, folder: str) -> bool:
    return any(storage.list(f"{folder}/{HOODIE}"))


def require_free(session: Session, name: str, is_mor: bool) -> None:
    """TableError when a new table would take the name of another table's view, or the other way round."""
    known = {n.lower(): (n, path) for n, path in session.instance.tables().items()}
    for suffix in (*_COMPANIONS, _CHANGES):
        base = known.get(name.lower().removesuffix(suffix)) if name.lower().endswith(suffix) else None
        if base and (suffix not in _OF_MOR or read_config(open_storage(base[1])).is_mor):
            raise TableError(
                f"table {name}: {name} is a view of the table {base[0]} ({_meaning(suffix)}), which the new table would "
                "hide. Choose another name."
            )
        other = known.get((name + suffix).lower())
        if other and (is_mor or suffix not in _OF_MOR):
            raise TableError(
                f"table {name}: its view {name + suffix} ({_meaning(suffix)}) would have the name of the table "
                f"{other[0]} at {other[1]}. Choose another name."
            )


def base_of(session: Session, view: str) -> str | None:
    """The table that a view for reading belongs to, None when it is no such view."""
    known = {n.lower(): n for n in session.instance.tables()}
    if view in known:
        return None
    bases = (known.get(view.removesuffix(suffix)) for suffix in _COMPANIONS if view.endswith(suffix))
    return next((base for base in bases if base), None)


def described(session: Session, text: str, words: Sequence[Token]) -> str:
    """A DESCRIBE of a read-optimized view, made to say in its column `extra` how far the view lags; any other text as it is."""
    if words[0].word not in ("DESCRIBE", "DESC") or not words[-1].name.lower().endswith("_ro"):
        return text
    base = base_of(session, words[-1].name.lower())
    if base is None or any(t.text != "." and t.kind not in IDENTIFIERS for t in words[1:]):
        return text
    [lag] = freshness(load(session.instance.storage(base)), session.clock())
    name = "".join(t.text for t in words[1:])
    return (
        'SELECT column_name, column_type, "null", "key", "default", CASE WHEN column_name = \'_hoodie_commit_time\' '
        f"THEN {literal(lag.text)} ELSE extra END AS extra FROM (DESCRIBE {name})"
    )


def _meaning(suffix: str) -> str:
    return {"_ro": "its read-optimized rows", "_rt": "its snapshot"}.get(suffix, "its changes")


def require_unused(session: Session, name: str, path: str) -> None:
    """TableError when the database has something of that name that is no view of ours."""
    taken = _foreign(session, name)
    if taken:
        raise TableError(
            f"{name}: the database has a {taken} of this name, the Hudi table at {path} stays without a view. "
            f"Read it with hudi_scan({literal(path)}), or rename one of the two."
        )


def add(session: Session, name: str, path: str, head: TableState | None = None) -> None:
    """Make the views of a table and remember its name.

    TableError when the database has something else of that name, or the errors of opening the table.
    """
    con, home = session.con, session.home
    temp = "" if home else "TEMP "
    head = head or load_head(open_storage(path))
    require_unused(session, name, path)
    bodies = {name: f"hudi_scan({literal(path)})"}
    if head.config.is_mor:
        # Not hudi_scan: views that call it are how the names of tables are found again in a database file.
        bodies[name + "_ro"] = f"hudi_read_optimized({literal(path)})"
        bodies[name + "_rt"] = f"hudi_snapshot({literal(path)})"
    start, end = (f"getvariable({literal(f'hoodie_{name}_consume_{edge}_timestamp')})" for edge in ("start", "end"))
    bodies[name + "_incremental"] = f"hudi_incremental({literal(path)}, coalesce({start}, 'earliest'), {end})"
    with session.instance.columns_only(read.columns(head)):
        for view, body in bodies.items():
            if view != name and (_foreign(session, view) or session.instance.path_of(view)):
                continue
            try:
                con.execute(f"CREATE OR REPLACE {temp}VIEW {home}{quote(view)} AS SELECT * FROM {body}")
            except duckdb.InvalidInputException as error:
                raise session.cause(error) from error
    changes = f'SELECT * FROM {home}hudi_incremental({literal(path)}, begin, "end" := "end")'
    con.execute(
        f'CREATE OR REPLACE {temp}MACRO {home}{quote(name + _CHANGES)}(begin, "end" := NULL) AS TABLE {changes}'
    )
    session.instance.add(name, path)
    session.problems.pop(name.lower(), None)


def drop(session: Session, name: str) -> None:
    """Remove the views of a table, not those of others with such names, and forget its name."""
    path = session.instance.path_of(name) or ""
    for view in (name, *(name + c for c in _COMPANIONS)):
        definitions = _definitions(session, view)
        if definitions and all(literal(path) in sql for sql in definitions):
            session.con.execute(f"DROP VIEW IF EXISTS {session.home}{quote(view)}")
    session.con.execute(f"DROP MACRO TABLE IF EXISTS {session.home}{quote(name + _CHANGES)}")
    session.instance.remove(name)
    for suffix in _COMPANIONS:
        base = name.lower().removesuffix(suffix)
        if base != name.lower() and (hidden := session.instance.path_of(base)):
            with suppress(LakeError):
                add(session, base, hidden)


def _foreign(session: Session, name: str) -> str:
    """'table' or 'view' when the database has something of that name that is not a view of ours, else ''."""
    kind = _kind(session, name)
    if kind != "view":
        return kind
    return "" if all("hudi_" in sql for sql in _definitions(session, name)) else "view"


def _definitions(session: Session, view: str) -> list[str]:
    """The SQL of the views of that name."""
    rows = session.con.execute(
        "SELECT sql FROM duckdb_views() WHERE lower(view_name) = $1 AND schema_name = 'main' "
        "AND database_name IN ($2, 'temp')",
        [view.lower(), session.database],
    ).fetchall()
    return [sql for (sql,) in rows]


def _kind(session: Session, name: str) -> str:
    rows = session.con.execute(
        "SELECT kind FROM (SELECT 'table' AS kind, database_name, schema_name, table_name AS name FROM duckdb_tables() "
        "UNION ALL SELECT 'view', database_name, schema_name, view_name FROM duckdb_views()) "
        "WHERE lower(name) = $1 AND schema_name = 'main' AND database_name IN ($2, 'temp')",
        [name.lower(), session.database],
    ).fetchall()
    return str(rows[0][0]) if rows else ""
