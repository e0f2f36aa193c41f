"""What runs each statement of ours: tables from the kind of a statement to its function.

Loaded at the first statement of ours: it needs nearly all of lakesql, and a connection that only reads none of it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from lakesql.services.maintenance import maintain
from lakesql.sql import changes, ddl, ingest, python_objects
from lakesql.sql.lexer import Token
from lakesql.sql.nodes import (
    AlterIngestion,
    CreateIngestion,
    CreateTable,
    Delete,
    DropIngestion,
    DropTable,
    ExplainIngest,
    Ingest,
    Insert,
    Merge,
    ReplayIngestion,
    RunIngestion,
    SetOffsets,
    ShowColumns,
    ShowIngestion,
    ShowProperties,
    ShowTables,
    Truncate,
    Update,
)  # fmt: skip
from lakesql.sql.results import Changed
from lakesql.sql.session import Session
from lakesql.table import live
from lakesql.table.state import read_config
from lakesql.write import retried, with_attempts
from lakesql.write.settings import parse_settings

CHANGES: dict[type, Callable[[Session, Any], Changed]] = {
    Merge: changes.merge,
    Update: changes.update,
    Delete: changes.delete,
    Insert: changes.insert,
    Truncate: changes.truncate,
}
EXPLAINED: dict[type, Callable[[Session, Any, bool], pa.Table]] = {
    Merge: changes.explain_merge,
    Update: changes.explain_update,
    Delete: changes.explain_delete,
    Insert: changes.explain_insert,
}
TABLES: dict[type, Callable[[Session, Any], str]] = {
    CreateTable: ddl.create_table,
    DropTable: ddl.drop_table,
    ShowProperties: ddl.show_properties,
    ShowTables: ddl.show_tables,
    ShowColumns: ddl.show_columns,
}
INGESTIONS: dict[type, Callable[[Session, Any], str | pa.Table]] = {
    Ingest: ingest.ingest,
    CreateIngestion: ingest.create,
    RunIngestion: ingest.run_ingestion,
    ReplayIngestion: ingest.replay_ingestion,
    ShowIngestion: ingest.show,
    AlterIngestion: ingest.alter,
    SetOffsets: ingest.set_offsets,
    DropIngestion: ingest.drop,
    ExplainIngest: ingest.explain,
}


def run_change(session: Session, statement: Any, words: Sequence[Token]) -> Changed:
    """Run a change, and run it again on the newest snapshot when another writer was faster."""
    storage = session.instance.storage(session.require_path(statement.target))

    def settings() -> dict[str, str]:
        return session.write_settings(read_config(storage).properties)

    def limits() -> tuple[int, int]:
        config = parse_settings(settings())
        return config.lock_wait_ms, 0 if python_objects.reads_stream(session, words) else config.retries

    with live.kept():
        changed, attempts = retried(storage, lambda: CHANGES[type(statement)](session, statement), limits, settings)
    result = with_attempts(changed.result, attempts)
    if result.instant is not None:
        stored = session.service_settings(read_config(storage).properties)
        session.instance.release(session.owner)
        with session.instance.cursor() as cursor:
            result = replace(result, notes=(*result.notes, *maintain(cursor, storage, stored, session.clock)))
    return replace(changed, result=result)
