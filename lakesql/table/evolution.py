"""Schema-on-read: which column of an old file is which column of today (hudi-format 7.5).

In use on tables whose newest commit carries `latest_schema`. Every column has an id that survives a rename; a
column that was dropped and added again has another id. A file written at instant `t` has the names of the newest
schema version not younger than `t`; they are mapped to today's names by id. Renames inside a struct are refused:
DuckDB matches struct fields by name.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lakesql.errors import FormatError, Unsupported
from lakesql.table.state import HOODIE, TableState


@dataclass(frozen=True, slots=True)
class Evolution:
    """Every schema version of a table and the one that a read asks for."""

    versions: tuple[tuple[int, Mapping[str, int]], ...]  # (version id, column name -> id), oldest first
    latest: Mapping[int, str]  # id -> name

    def names_at(self, instant: str) -> dict[str, str]:
        """Column name in a file of that instant -> name today; columns that are gone are left out."""
        ids: Mapping[str, int] = {}
        for version, columns in self.versions:
            if version <= int(instant) or not ids:
                ids = columns
        return {name: self.latest[i] for name, i in ids.items() if i in self.latest}


def evolution(state: TableState, as_of: str | None) -> Evolution | None:
    """How old files map to the schema as of an instant; None when the table never used schema-on-read.

    Raises Unsupported when a nested field was renamed, FormatError when the history is missing or damaged.
    """
    text = state.extra_as_of(as_of, "latest_schema")
    if not text:
        return None
    latest = json.loads(text)
    versions = _history(state, int(latest.get("version_id", 0)))
    if not versions:
        versions = [latest]
    _refuse_nested_renames(state, versions, latest)
    history = sorted(((int(v["version_id"]), _ids(v)) for v in versions), key=lambda v: v[0])
    return Evolution(tuple(history), {i: name for name, i in _ids(latest).items()})


def _history(state: TableState, newest: int) -> list[dict[str, Any]]:
    """All versions up to `newest`, from the newest completed schemacommit (each holds the whole history)."""
    files, _ = state.storage.list(f"{HOODIE}/.schema")
    done = sorted((f.path for f in files if f.path.endswith(".schemacommit")), reverse=True)
    for path in done:
        try:
            versions = json.loads(state.storage.read(path))["schemas"]
        except (ValueError, KeyError, TypeError) as error:
            raise FormatError(f"{state.path}/{path}: not a schema history: {error}. Restore the file.") from error
        return [v for v in versions if int(v["version_id"]) <= newest]
    return []


def _ids(version: Mapping[str, Any]) -> dict[str, int]:
    return {f["name"]: int(f["id"]) for f in version["fields"]}


def _nested(kind: Any, path: str) -> dict[int, str]:
    """id -> dotted path of every field below a column."""
    found: dict[int, str] = {}
    if not isinstance(kind, Mapping):
        return found
    if kind["type"] == "record":
        for f in kind["fields"]:
            found[int(f["id"])] = f"{path}.{f['name']}"
            found.update(_nested(f["type"], f"{path}.{f['name']}"))
    elif kind["type"] == "array":
        found.update(_nested(kind["element"], f"{path}.element"))
    elif kind["type"] == "map":
        found.update(_nested(kind["value"], f"{path}.value"))
    return found


def _refuse_nested_renames(state: TableState, versions: list[dict[str, Any]], latest: Mapping[str, Any]) -> None:
    now = {i: p for f in latest["fields"] for i, p in _nested(f["type"], str(f["id"])).items()}
    for version in versions:
        for field in version["fields"]:
            for i, path in _nested(field["type"], str(field["id"])).items():
                if now.get(i, path) != path:
                    raise Unsupported(
                        f"{state.path}: the nested field {path.split('.', 1)[1]} of column {field['name']} was renamed; "
                        "lakesql matches nested fields by name. Rewrite the table with Spark, or read another version."
                    )
