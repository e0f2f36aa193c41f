"""DuckDB's words about a column that is not there, without the names that only our own SQL has."""

import re
from collections.abc import Collection

from lakesql.format.avro import META_COLUMNS

_LISTED = re.compile(r'\s*Candidate (?:bindings|Entries):[: ]*((?:"[^"]*"(?:, )?)+)')
_UNKNOWN = re.compile(r'(?:column|key|named) "([^"]*)"')
_OURS = frozenset({"old", "new", "fate", "number", "merge_action", *META_COLUMNS})


def for_people(text: str, columns: Collection[str]) -> str:
    """The text of an error with candidates that a person knows; `columns` are the table's, shown when none are left."""
    listed = _LISTED.search(text)
    if listed is None:
        return text
    asked = _UNKNOWN.search(text)
    wants_meta = asked is not None and asked[1].lower().startswith("_hoodie")
    known = {name.lower() for name in columns} | (set(META_COLUMNS) if wants_meta else set())
    names = [part.strip('"') for part in listed[1].split(", ")]
    kept = [n for n in names if n.lower() in known or not _is_ours(n)]
    shown = f" Did you mean {' or '.join(kept)}?" if kept else ""
    shown = shown or (f" The table has {', '.join(columns)}." if columns else "")
    head = text[: listed.start()].rstrip(" !.\n")
    return f"{head}.{shown}{text[listed.end() :].rstrip('.')}"


def _is_ours(name: str) -> bool:
    return name.startswith("__lakesql") or name.split(".")[-1].lower() in _OURS
