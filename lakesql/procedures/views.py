"""Procedures about file slices: every slice, and the latest one of each file group with its logs and their weight.

A log counts as `compaction_scheduled` when the next run of a compaction folds it, which is all of them unless a
compaction is pending; `unscheduled` are the logs written since that was planned. (Hudi's list columns tell by another rule
than its size columns.) Paths are whole; `delta_files` are lists in brackets.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lakesql.errors import SQLError
from lakesql.format.files import NO_GROUPS, FileSlice, LogFile, all_slices, file_slices
from lakesql.format.timeline import normalise_instant
from lakesql.procedures.declare import FILTER, LIMIT, Call, Parameter, Rows, columns
from lakesql.procedures.shape import matches, showing
from lakesql.table.state import TableState

_ALL = "ALL_PARTITIONS"
_VIEW = (
    Parameter("max_instant", "VARCHAR", None, "the files as of before this instant"),
    Parameter("include_max", "BOOLEAN", False, "as of this instant, itself included"),
    Parameter("include_in_flight", "BOOLEAN", False, "files of writes that are not complete too"),
    Parameter("exclude_compaction", "BOOLEAN", False, "as if no compaction were pending"),
    LIMIT,
    Parameter("path_regex", "VARCHAR", _ALL, "a glob of partition paths"),
    FILTER,
)


def _all(call: Call) -> Rows:
    state = call.state()
    for one in _slices(call, state, call["path_regex"], latest=False):
        yield _row(state, one) | {"delta_files": _names(state, one.logs)}


def _latest(call: Call) -> Rows:
    state = call.state()
    if call["path_regex"] != _ALL and call["partition_path"] != _ALL:
        raise SQLError("CALL show_fsview_latest: path_regex and partition_path mean the same; give one of them.")
    wanted = call["partition_path"] if call["path_regex"] == _ALL else call["path_regex"]
    for one in _slices(call, state, wanted, latest=True):
        later = [log for log in one.logs if _is_after_plan(state, one, log)]
        before = [log for log in one.logs if log not in later]
        row = _row(state, one)
        yield row | {
            "delta_size_compaction_scheduled": _bytes(before),
            "delta_size_compaction_unscheduled": _bytes(later),
            "delta_to_base_radio_compaction_scheduled": _ratio(before, row["data_file_size"]),
            "delta_to_base_radio_compaction_unscheduled": _ratio(later, row["data_file_size"]),
            "delta_files_compaction_scheduled": _names(state, before),
            "delta_files_compaction_unscheduled": _names(state, later),
        }


def _slices(call: Call, state: TableState, pattern: str, latest: bool) -> list[FileSlice]:
    """The slices that a call asks for; of the latest ones, over a pending compaction, merged as a reader merges them."""
    as_of = _as_of(state, call["max_instant"], call["include_max"])
    if as_of == "":
        return []
    if pattern != _ALL:
        state = replace(state, files=tuple(f for f in state.files if matches(f.partition, pattern)))
    pending = {} if call["exclude_compaction"] else state.pending_compactions
    arguments: dict[str, Any] = {
        "version": state.config.version,
        "as_of": as_of,
        "replaced": state.replaced(as_of) if latest else NO_GROUPS,
        "pending_compactions": pending,
        "include_uncommitted": call["include_in_flight"],
    }
    if latest and call["merge"]:
        return file_slices(state.files, state.view_timeline, **arguments)
    every = all_slices(state.files, state.view_timeline, **arguments)
    if not latest:
        return every
    first: dict[tuple[str, str], FileSlice] = {}
    for one in every:
        first.setdefault(one.group, one)
    return list(first.values())


def _as_of(state: TableState, text: str | None, included: bool) -> str | None:
    """The newest instant to look at; None for all, '' when nothing is that old."""
    if not text:
        return None
    border = normalise_instant(text)
    if included:
        return border
    return max((i.requested for i in state.timeline.completed_writes() if i.requested < border), default="")


def _row(state: TableState, one: FileSlice) -> dict[str, Any]:
    return {
        "partition": one.partition,
        "file_id": one.file_id,
        "base_instant": one.instant,
        "data_file": f"{state.path}/{one.base.path}" if one.base else "",
        "data_file_size": one.base.size_bytes if one.base else 0,
        "num_delta_files": len(one.logs),
        "total_delta_file_size": _bytes(one.logs),
    }


def _is_after_plan(state: TableState, one: FileSlice, log: LogFile) -> bool:
    planned = state.pending_compactions.get(one.group)
    if planned is None:
        return False
    if state.config.version < 8:
        return log.instant >= planned
    return (state.timeline.completion_of(log.instant) or log.instant) >= planned


def _bytes(logs: Sequence[LogFile]) -> int:
    return sum(log.size_bytes for log in logs)


def _ratio(logs: Sequence[LogFile], base_bytes: int) -> float:
    return _bytes(logs) / base_bytes if base_bytes else -1.0


def _names(state: TableState, logs: Sequence[LogFile]) -> str:
    paths = ", ".join(f"{state.path}/{log.path}" for log in logs)
    return f"[{paths}]"


PROCEDURES = (
    showing(
        "show_fsview_all",
        "Every file slice on storage, replaced ones too, in each file group newest first.",
        columns(
            partition="text", file_id="text", base_instant="text", data_file="text", data_file_size="long",
            num_delta_files="long", total_delta_file_size="long", delta_files="text",
        ),
        _all,
        _VIEW,
    ),
    showing(
        "show_fsview_latest",
        "The latest slice of each file group, with the size of its logs against its base file.",
        columns(
            partition="text", file_id="text", base_instant="text", data_file="text", data_file_size="long",
            num_delta_files="long", total_delta_file_size="long", delta_size_compaction_scheduled="long",
            delta_size_compaction_unscheduled="long", delta_to_base_radio_compaction_scheduled="double",
            delta_to_base_radio_compaction_unscheduled="double", delta_files_compaction_scheduled="text",
            delta_files_compaction_unscheduled="text",
        ),
        _latest,
        (
            *_VIEW,
            Parameter("partition_path", "VARCHAR", _ALL, "as path_regex"),
            Parameter("merge", "BOOLEAN", True, "over a pending compaction, the slice a reader merges"),
        ),
    ),
)  # fmt: skip
