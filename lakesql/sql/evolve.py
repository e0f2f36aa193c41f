"""Columns, and fields inside them, that a MERGE or INSERT adds to its table, when a setting asks for it.

A column of the source that the table lacks is appended to the table's schema as nullable, with the type of the source
brought to what a Hudi table can hold, and so is a field of a struct, at any depth; older rows have NULL there. Nothing is
dropped, renamed or retyped. Without the setting an unknown column or field stays an error that names it.
"""

import pyarrow as pa

from lakesql.sql.nodes import Insert, Merge
from lakesql.sql.session import Session
from lakesql.table.state import TableState
from lakesql.write.columns import with_new
from lakesql.write.names_of_settings import EVOLVE, RECONCILE


def wanted(session: Session, state: TableState) -> bool:
    """Whether a setting, of the session or stored with the table, asks for new columns."""
    settings = session.write_settings(state.config.properties) | session.settings
    return any(settings.get(key, "").lower() == "true" for key in (EVOLVE, RECONCILE))


def for_merge(state: TableState, statement: Merge, source: pa.Schema) -> TableState:
    """The state with the columns that a MERGE adds: with `*` all of the source, else those that a clause names."""
    acting = [c for c in statement.clauses if c.action in ("update", "insert")]
    if any(c.assignments is None for c in acting):
        return with_new(state, source, source.names)
    return with_new(state, source, [a.column for c in acting for a in c.assignments or ()])


def for_insert(state: TableState, statement: Insert, source: pa.Schema) -> TableState:
    """The state with the columns that an INSERT adds: by name those of the query, with a column list those of the list."""
    if statement.by_name:
        return with_new(state, source, source.names)
    if statement.columns is None or len(statement.columns) != len(source):
        return state
    named = pa.schema([f.with_name(n) for f, n in zip(source, statement.columns, strict=True)])
    return with_new(state, named, named.names)
