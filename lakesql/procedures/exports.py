"""`export_instants`: the completed instants as JSON files in a folder, archived ones first.

An instant of the active timeline keeps its file name; an archived write becomes `<instant>.<action>`. Of other archived
actions the archive reader keeps the times alone, so they are not exported.
"""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lakesql.errors import TableError
from lakesql.format.container import MAGIC, read_container
from lakesql.format.metadata import CommitMetadata
from lakesql.procedures.declare import REQUIRED, Call, Parameter, Procedure, Rows, columns
from lakesql.procedures.shape import chosen
from lakesql.storage import open_storage
from lakesql.table.state import TableState

_ACTIONS = "clean,commit,deltacommit,rollback,savepoint,restore"


def _export(call: Call) -> Rows:
    folder = call["local_folder"]
    if not Path(folder).is_dir():
        raise TableError(
            f"CALL export_instants: {folder} is no folder on this machine. Make it, or correct local_folder."
        )
    target, state = open_storage(folder), call.state()
    found = list(_instants(state, set(chosen(call["actions"]))))
    if call["desc"]:
        found.reverse()
    if call["limit"] >= 0:
        found = found[: call["limit"]]
    for name, archived in found:
        target.put(name, _json(state, name, archived))
    yield {"export_detail": f"Exported {len(found)} Instants to {folder}"}


def _instants(state: TableState, actions: set[str]) -> Iterator[tuple[str, CommitMetadata | None]]:
    """(file name, content when it is archived) of every completed instant to export, oldest first."""
    active = {i.requested for i in state.timeline.instants}
    for archived in state.archived.values():
        instant = archived.instant
        if archived.metadata is not None and instant.completed_action in actions and instant.requested not in active:
            yield f"{instant.requested}.{instant.completed_action}", archived.metadata
    for instant in state.timeline.instants:
        if instant.is_completed and instant.completed_action in actions:
            yield instant.file_name, None


def _json(state: TableState, name: str, archived: CommitMetadata | None) -> bytes:
    if archived is not None:
        return _text(dataclasses.asdict(archived))
    path = f"{state.timeline_folder}/{name}"
    body = state.storage.read(path)
    if body[:4] != MAGIC:
        return body  # JSON already
    records, _ = read_container(body, f"{state.path}/{path}")
    return _text(records[0] if len(records) == 1 else records)


def _text(record: Any) -> bytes:
    return json.dumps(record, indent=2, default=_plain).encode()


def _plain(value: object) -> Any:
    return list(value) if isinstance(value, tuple) else str(value)


PROCEDURES = (
    Procedure(
        "export_instants",
        "Writes the completed instants as JSON into a folder.",
        columns(export_detail="text"),
        _export,
        (
            Parameter("local_folder", "VARCHAR", REQUIRED, "an existing folder"),
            Parameter("limit", "BIGINT", -1, "at most so many instants; -1: all"),
            Parameter("actions", "VARCHAR", _ACTIONS, "actions, separated by commas"),
            Parameter("desc", "BOOLEAN", False, "newest first"),
        ),
    ),
)
