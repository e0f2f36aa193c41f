"""From which instant on the states of a table are still there, after cleaning, and what savepoints hold beyond it.

A clean by commits or by hours says the earliest instant that it left complete. A clean by file versions does not:
there it follows from the names of the files it deleted; ours also write it down (EARLIEST). All times are requested times.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lakesql.errors import TableError
from lakesql.format.files import BaseFile, LogFile, parse_data_file
from lakesql.format.timeline import COMPLETED, REQUESTED, Instant, instant_file_name
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
    """The earliest instant that cleaning has left complete, None when nothing was cleaned.

    Never later than the newest write: a restore may have taken back the one that the cleaner went by.
    """
    found = max((since for clean in _cleans(state) if (since := _complete_since(state, clean))), default=None)
    newest = max((i.requested for i in state.timeline.completed_writes()), default=found)
    return min(found, newest) if found and newest else found


def is_retained(state: TableState, as_of: str, earliest: str | None) -> bool:
    """Whether the state as of an instant is whole: late enough, savepointed, or (after a restore) the newest there is."""
    if not earliest or as_of >= earliest:
        return True
    writes = [i.requested for i in state.timeline.completed_writes()]
    saved = _saved(state)
    if saved:
        writes = [i.requested for i in state.history.completed_writes()]
    seen = max((t for t in writes if t <= as_of), default="")
    return seen in saved or (bool(writes) and seen == max(writes))


def require_retained(state: TableState, as_of: str) -> None:
    """TableError when the state as of that instant can no longer be read."""
    earliest = retained_from(state)
    if is_retained(state, as_of, earliest):
        return
    saved = _saved(state)
    also = f" Savepoints stay readable: {', '.join(sorted(saved))}." if saved else ""
    raise TableError(
        f"{state.path}: the state as of {as_of} has been cleaned away. "
        f"The earliest instant that can still be read is {earliest}.{also}"
    )


@contextmanager
def cleaning_told(state: TableState, as_of: str | None) -> Iterator[None]:
    """Within, a file that an unfinished clean took is no lost file: TableError with the states that can be read."""
    try:
        yield
    except TableError as error:
        if as_of is None:
            raise
        for clean, plan in _pending_cleans(state):
            if any(f"/{name}: commit" in str(error) for name in _planned_names(plan)):
                raise TableError(_unfinished_text(state, as_of, clean, plan)) from error
        raise


def _pending_cleans(state: TableState) -> Iterator[tuple[Instant, Mapping[str, Any]]]:
    for instant in state.timeline.pending("clean"):
        name = instant_file_name(instant.requested, "clean", REQUESTED, state.config.layout)
        if name in state.instant_files and state.instant_files[name].size_bytes:
            yield instant, state.plan(instant, name)


def _planned_names(plan: Mapping[str, Any]) -> Iterator[str]:
    """The names of the files that a clean is to delete; plans of old have names, newer ones paths."""
    for group in (plan.get("filePathsToBeDeletedPerPartition") or {}).values():
        yield from (str(one["filePath"]).rsplit("/", 1)[-1] for one in group)
    for names in (plan.get("filesToBeDeletedPerPartition") or {}).values():
        yield from names


def _unfinished_text(state: TableState, as_of: str, clean: Instant, plan: Mapping[str, Any]) -> str:
    told = (plan.get("earliestInstantToRetain") or {}).get("timestamp")
    earliest = told or (plan.get("extraMetadata") or {}).get(EARLIEST)
    left = f"States from {earliest} on" if earliest else "The newest state"
    saved = _saved(state)
    also = f" and the savepoints {', '.join(sorted(saved))}" if saved else ""
    return (
        f"{state.path}: the state as of {as_of} is being cleaned away by the clean {clean.requested}, which has not finished: "
        f"some of its files are deleted. {left}{also} can be read. CALL run_clean finishes the clean."
    )


def _saved(state: TableState) -> set[str]:
    return {i.requested for i in state.timeline.instants if i.action == "savepoint" and i.state == COMPLETED}


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
