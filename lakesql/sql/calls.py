"""Running a CALL: arguments are evaluated by DuckDB, the procedure gives rows."""

from collections.abc import Mapping
from typing import Any

import duckdb
import pyarrow as pa

from lakesql.errors import SQLError, TableError
from lakesql.procedures import PROCEDURES
from lakesql.procedures.declare import Call, Procedure, bind, result
from lakesql.sql import views
from lakesql.sql.lexer import IDENTIFIERS, tokens
from lakesql.sql.nodes import Call as CallStatement
from lakesql.sql.nodes import Text
from lakesql.sql.session import Session
from lakesql.storage import Storage
from lakesql.table.damaged import damage_named
from lakesql.table.state import load_head, read_config


def call(session: Session, statement: CallStatement) -> pa.Table:
    """The rows of a procedure. SQLError for arguments that do not fit, and what the procedure raises."""
    procedure = PROCEDURES[statement.procedure]
    arguments = _evaluated(session, procedure, bind(procedure, statement.arguments))
    if procedure.of_table and arguments.get("table") is None and arguments.get("path") is None:
        raise SQLError(f"CALL {procedure.name}: the table is NULL; give table => 'name' or path => 'folder'.")
    if procedure.changes(arguments):
        session.require_writable()
        session.require_no_transaction(f"CALL {procedure.name}")
        session.instance.release(session.owner)
        session.last_result = None  # the procedure may write; what wrote before is not the last any more
    table, settings = None, dict(session.settings)

    def settings_of(storage: Storage) -> dict[str, str]:
        return session.service_settings(read_config(storage).properties)

    if procedure.of_table:
        table = (
            _table(session, arguments["table"]) if arguments["path"] is None else _resolve(session, arguments["path"])
        )
        settings = settings_of(table)
    with session.instance.cursor() as cursor:
        made = Call(
            cursor,
            arguments,
            settings,
            lambda name: _table(session, name),
            settings_of,
            session.clock,
            table,
            session.con,
            session.warehouse,
        )
        if table is None:
            return result(procedure, procedure.run(made))
        with damage_named(load_head(table)):
            return result(procedure, procedure.run(made))


def _resolve(session: Session, text: str) -> Storage:
    return session.instance.storage(text)


def _table(session: Session, name: str) -> Storage:
    """The storage of a table by name, found again in the warehouse when it is new there, or by path."""
    plain = name.split(".")[-1].strip('`"')
    if "/" in name or session.instance.path_of(name) is not None:
        return _resolve(session, name)
    if session.instance.path_of(plain) is None and not views.refresh(session, {plain.lower()}):
        known = ", ".join(session.instance.tables()) or "none"
        raise TableError(f"{name} is not a Hudi table of this connection; known: {known}. Or give path => 'folder'.")
    return _resolve(session, plain)


def _evaluated(session: Session, procedure: Procedure, bound: Mapping[str, Any]) -> dict[str, Any]:
    kinds = {p.name: p.kind for p in procedure.all_parameters}
    return {name: _value(session, procedure, name, value, kinds[name]) for name, value in bound.items()}


def _value(session: Session, procedure: Procedure, name: str, value: Any, kind: str) -> Any:
    if not isinstance(value, Text):
        return value
    words = tokens(value.sql)
    if len(words) == 1 and words[0].kind in IDENTIFIERS and kind == "VARCHAR" and words[0].word != "NULL":
        return words[0].name  # table => trips, and Spark's texts in double quotes
    try:
        return session.con.execute(f"SELECT CAST(({value.sql}\n) AS {kind})").fetchall()[0][0]
    except duckdb.Error as error:
        text = str(error).split("\n")[0]
        raise SQLError(
            f"CALL {procedure.name}: {name} => {value.sql}: {text}. Give a constant of type {kind}."
        ) from error
