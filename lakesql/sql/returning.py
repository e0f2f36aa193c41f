"""RETURNING: the rows that a statement really changed, as it asks for them.

Plain names are the new values, those of a deleted row the old ones; `old.x` and `new.x` are the two versions, NULL where
there is none; in a MERGE `merge_action` is INSERT, UPDATE or DELETE. `*` is the table's columns. A column of the table
called old, new or merge_action keeps its name. A row that is late or would not change is not returned.

It is computed before anything is written, so a mistake in it leaves the table as it was.
"""

from collections.abc import Sequence
from typing import Generic

import duckdb
import pyarrow as pa

from lakesql.sql.lexer import IDENTIFIERS, tokens
from lakesql.sql.nodes import Merge, Text
from lakesql.sql.session import Session
from lakesql.sql.spark_dml import translated_items
from lakesql.sql.spellings import Spelled, either_spelling
from lakesql.sql.versions import DELETED_FATE, INSERTED_FATE, LATE_FATE, UNCHANGED_FATE, versions_sql
from lakesql.table.names import literal, quote
from lakesql.write import Observer, Outcome

_ACTION = "merge_action"


def returned_sql(
    con: duckdb.DuckDBPyConnection, told: Outcome, items: Sequence[Text], alias: str, is_merge: bool
) -> str:
    """The query of a RETURNING; `alias` is what the statement calls its table."""
    return chosen_sql(versions_sql(con, told), told.plan.view.state.schema.names, items, alias, is_merge)


def chosen_sql(versions: str, columns: Sequence[str], items: Sequence[Text], alias: str, is_merge: bool) -> str:
    """The same from a query for number, fate, old and new version of the rows."""
    taken = {c.lower() for c in columns}
    extra = {
        "old": "old",
        "new": "new",
        _ACTION: f"CASE fate WHEN {literal(INSERTED_FATE)} THEN 'INSERT' WHEN {literal(DELETED_FATE)} THEN 'DELETE' "
        "ELSE 'UPDATE' END",
    }
    added = {n: sql for n, sql in extra.items() if n not in taken and (is_merge or n != _ACTION)}
    plain = [f"CASE WHEN new IS NULL THEN old.{quote(c)} ELSE new.{quote(c)} END AS {quote(c)}" for c in columns]
    fields = ", ".join([*(f"{sql} AS {quote(n)}" for n, sql in added.items()), *plain])
    chosen = ", ".join(_item(item.sql, list(added)) for item in items)
    return (
        f"SELECT {chosen} FROM (SELECT {fields} FROM ({versions}) "
        f"WHERE fate NOT IN ({literal(UNCHANGED_FATE)}, {literal(LATE_FATE)}) ORDER BY number) AS {quote(alias)}"
    )


class Returning(Generic[Spelled]):
    """The RETURNING of one statement: `observer` goes to `write`, the rows are in `table` afterwards."""

    def __init__(self, session: Session, statement: Spelled, alias: str) -> None:
        self.table: pa.Table | None = None
        self._session = session
        self._statement: Spelled = statement
        self._alias = alias

    @property
    def observer(self) -> Observer | None:
        """None when nothing is to be returned."""
        return self._observe if self._statement.returning else None

    def _observe(self, told: Outcome) -> None:
        con, is_merge = self._session.con, isinstance(self._statement, Merge)

        def run(spelled: Spelled) -> pa.Table:
            items = translated_items(spelled.returning) if spelled.spark else spelled.returning
            return con.sql(returned_sql(con, told, items, self._alias, is_merge)).to_arrow_table()

        self.table = either_spelling(self._session, self._statement, run)


def _item(text: str, added: Sequence[str]) -> str:
    """An item of RETURNING; `*` and `t.*` leave out what is not a column of the table."""
    words = tokens(text)
    star = next((i for i in (0, 2) if len(words) > i and words[i].text == "*"), None)
    if star is None or (star and (words[0].kind not in IDENTIFIERS or words[1].text != ".")):
        return text
    if star and words[0].name.lower() in ("old", "new"):
        return text
    names = ", ".join(map(quote, added))
    if not names:
        return text
    head, tail = text[: words[star].end], text[words[star].end :]
    if len(words) > star + 1 and words[star + 1].word in ("EXCLUDE", "EXCEPT"):
        behind = text[words[star + 1].end :].strip()
        listed = behind[1:] if behind.startswith("(") else f"{behind})"
        return f"{head} EXCLUDE ({names}, {listed}"
    return f"{head} EXCLUDE ({names}){tail}"
