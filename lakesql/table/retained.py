"""From which instant on the states of a table are still there, after cleaning, and what savepoints hold beyond it.

A clean by commits or by hours says the earliest instant that it left complete. A clean by file versions does not:
there it follows from the names of the files it deleted; ours also write it down (EARLIEST). All times are requested times.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from lakesql.errors import TableError
from lakesql.format.files import BaseFile, LogFile, parse_data_file
from lakesql.format.timeline import COMPLETED
from lakesql.table.state import TableState

EARLIEST = "lakesql.earliest"
"""Key in the extraMetadata of a clean by file versions: the earliest instant that it left complete."""

Group = tuple[str, str]


def savepoints(state: TableState) -> dict[str, frozenset[tuple[str, str]]]:
    """Every savepointed instant with the files it holds, as (partition, name)."""
    found = {}
    for instant in state.timeline.instants:
        if instant.action == "savepoint" and instant.state == COMPLETED:
            partitions = state.record(instant)["partitionMetadata"] or {}
            found[instant.requested] = frozenset(
                (partition, name) for partition, held in partitions.items() for name in held["savepointDataFile"]
            )
    return found


def retained_from(state: TableState) -> str | None:
    """The earliest instant that cleaning has left complete, None when nothing was cleaned."""
    return max((since for clean in _cleans(state) if (since := _complete_since(state, clean))), default=None)


def require_retained(state: TableState, as_of: str) -> None:
    """TableError when the state as of that instant can no longer be read."""
    earliest = retained_from(state)
    if not earliest or as_of >= earliest:
        return
    saved = {i.requested for i in state.timeline.instants if i.action == "savepoint" and i.state == COMPLETED}
    if saved:
        seen = max((i.requested for i in state.history.completed_writes() if i.requested <= as_of), default="")
        if seen in saved:
            return
    also = f" Savepoints stay readable: {', '.join(sorted(saved))}." if saved else ""
    raise TableError(
        f"{state.path}: the state as of {as_of} has been cleaned away. "
        f"The earliest instant that can still be read is {earliest}.{also}"
    )


def _cleans(state: TableState) -> Iterator[Mapping[str, Any]]:
    """The completed cleans of the active timeline; when there is none, those of the archive."""
    active = [i for i in state.timeline.instants if i.action == "clean" and i.state == COMPLETED]
    if active:
        yield from (state.record(i) for i in active if state.instant_files[i.file_name].size_bytes)
    else:
        yield from (a.record for a in state.archived_others if a.instant.action == "clean" and a.record)


def _complete_since(state: TableState, clean: Mapping[str, Any]) -> str:
    told = clean.get("earliestCommitToRetain") or (clean.get("extraMetadata") or {}).get(EARLIEST)
    if told:
        return str(told)
    newest: dict[Group, str] = {}
    for partition, part in (clean.get("partitionMetadata") or {}).items():
        for name in part["successDeleteFiles"]:
            file = parse_data_file(partition, name.rsplit("/", 1)[-1], 0)
            if isinstance(file, BaseFile) or (isinstance(file, LogFile) and state.config.version < 8):
                group = partition, file.file_id
                newest[group] = max(newest.get(group, ""), file.instant)
    if not newest:
        return ""
    replaced = state.replacements()
    following: dict[Group, str] = {}
    for file in state.files:
        group = file.partition, file.file_id
        if isinstance(file, BaseFile) and file.instant > newest.get(group, "~"):
            following[group] = min(following.get(group, file.instant), file.instant)
    last = str(clean.get("lastCompletedCommitTimestamp") or "")
    return max(following.get(group) or replaced.get(group) or last for group in newest)
