"""Procedures of cleaning and of the archived timeline, with Hudi's names, parameters and columns."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import duckdb
import pyarrow as pa

from lakesql.errors import SQLError
from lakesql.format.timeline import COMPLETED, REQUESTED, WRITE_ACTIONS, Instant, instant_file_name
from lakesql.procedures.declare import LIMIT, Call, Parameter, Procedure, Rows, columns
from lakesql.procedures.options import OPTIONS, options_of
from lakesql.services import archiving, clean_settings, cleaning
from lakesql.table.archive import Archived
from lakesql.table.state import TableState

_ARGUMENTS = {
    "clean_policy": clean_settings.POLICY,
    "retain_commits": clean_settings.RETAINED_COMMITS,
    "hours_retained": clean_settings.RETAINED_HOURS,
    "file_versions_retained": clean_settings.RETAINED_VERSIONS,
    "trigger_strategy": clean_settings.TRIGGER,
    "trigger_max_commits": clean_settings.TRIGGER_COMMITS,
}


def _run_clean(call: Call) -> Rows:
    given = {name: str(call[a]) for a, name in _ARGUMENTS.items() if call[a] is not None}
    own = call.state().config.properties
    settings = {**own, **call.settings, **options_of(call["options"], "run_clean"), **given}
    triggered = call["trigger_strategy"] is not None or call["trigger_max_commits"] is not None
    for done in cleaning.clean(
        call.storage, settings, call.clock, plan=bool(call["schedule_in_line"]), only_due=triggered
    ):
        yield {
            "start_clean_time": done.instant,
            "time_taken_in_millis": done.metadata["timeTakenInMillis"],
            "total_files_deleted": done.files_deleted,
            "earliest_commit_to_retain": done.metadata["earliestCommitToRetain"],
            "bootstrap_part_metadata": None,
            "version": done.metadata["version"],
        }


def _cleans(call: Call) -> Iterator[tuple[Instant, str | None, Mapping[str, Any]]]:
    """(instant, time of completion, record) of completed cleans, newest first."""
    state = call.state()
    found: list[tuple[Instant, str | None, Mapping[str, Any]]] = [
        (i, i.completed, state.record(i))
        for i in state.timeline.instants
        if i.action == "clean" and i.state == COMPLETED and state.instant_files[i.file_name].size_bytes
    ]
    known = {i.requested for i, _, _ in found}
    if call["showArchived"]:
        found += [
            (a.instant, a.instant.completed, a.record)
            for a in state.archived_others
            if a.instant.action == "clean" and a.record is not None and a.instant.requested not in known
        ]
    yield from sorted(found, key=lambda f: f[0].requested, reverse=True)


def _show_cleans(call: Call) -> Rows:
    return _shown(call, (_clean_row(*found) for found in _cleans(call)))


def _clean_row(instant: Instant, completed: str | None, record: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "clean_time": instant.requested,
        "state_transition_time": completed or instant.requested,
        "action": "clean",
        "start_clean_time": record["startCleanTime"],
        "time_taken_in_millis": record["timeTakenInMillis"],
        "total_files_deleted": record["totalFilesDeleted"],
        "earliest_commit_to_retain": record["earliestCommitToRetain"],
        "last_completed_commit_timestamp": record.get("lastCompletedCommitTimestamp"),
        "version": record.get("version"),
    }


def _show_cleans_metadata(call: Call) -> Rows:
    return _shown(
        call,
        (
            {
                **_clean_row(instant, completed, record),
                "partition_path": part["partitionPath"],
                "policy": part["policy"],
                "delete_path_patterns": len(part["deletePathPatterns"]),
                "success_delete_files": len(part["successDeleteFiles"]),
                "failed_delete_files": len(part["failedDeleteFiles"]),
                "is_partition_deleted": part.get("isPartitionDeleted"),
            }
            for instant, completed, record in _cleans(call)
            for _, part in sorted((record.get("partitionMetadata") or {}).items())
        ),
    )


def _show_clean_plans(call: Call) -> Rows:
    state = call.state()
    rows = [row for i in state.timeline.instants if i.action == "clean" and (row := _active_plan(state, i))]
    known = {row["plan_time"] for row in rows}
    if call["showArchived"]:
        rows += [
            _plan_row(a.instant, a.plan)
            for a in state.archived_others
            if a.instant.action == "clean" and a.plan is not None and a.instant.requested not in known
        ]
    return _shown(call, sorted(rows, key=lambda row: str(row["plan_time"]), reverse=True))


def _active_plan(state: TableState, instant: Instant) -> dict[str, Any] | None:
    name = instant_file_name(instant.requested, "clean", REQUESTED, state.config.layout)
    if name not in state.instant_files or not state.instant_files[name].size_bytes:
        return None
    return _plan_row(instant, state.plan(instant, name))


def _plan_row(instant: Instant, plan: Mapping[str, Any]) -> dict[str, Any]:
    files = plan.get("filePathsToBeDeletedPerPartition") or plan.get("filesToBeDeletedPerPartition") or {}
    return {
        "plan_time": instant.requested,
        "state": instant.state,
        "action": "clean",
        "earliest_instant_to_retain": (plan.get("earliestInstantToRetain") or {}).get("timestamp"),
        "last_completed_commit_timestamp": plan.get("lastCompletedCommitTimestamp"),
        "policy": plan.get("policy"),
        "version": plan.get("version"),
        "total_partitions_to_clean": len(files),
        "total_partitions_to_delete": len(plan.get("partitionsToBeDeleted") or []),
        "extra_metadata": json.dumps(plan["extraMetadata"]) if plan.get("extraMetadata") else None,
    }


def _shown(call: Call, rows: Any) -> list[dict[str, Any]]:
    """The rows that meet the argument `filter`, a SQL condition on the columns, at most `limit` of them."""
    found = list(rows)
    condition = call["filter"]
    if condition:
        found = _filtered(call, found, condition)
    return found[: call["limit"]]


def _filtered(call: Call, rows: list[dict[str, Any]], condition: str) -> list[dict[str, Any]]:
    if not rows:
        return []
    numbered = pa.Table.from_pylist([row | {"__lakesql_row": n} for n, row in enumerate(rows)])
    call.con.register("__lakesql_shown", numbered)
    try:
        kept = call.con.execute(
            f"SELECT __lakesql_row FROM __lakesql_shown WHERE ({condition}\n) ORDER BY 1"
        ).fetchall()
    except duckdb.Error as error:
        text = str(error).split("\n")[0]
        raise SQLError(f"filter => {condition!r}: {text}. Give a condition on the columns of the result.") from error
    finally:
        call.con.unregister("__lakesql_shown")
    return [rows[n] for (n,) in kept]


def _archive_commits(call: Call) -> Rows:
    numbers = {
        "hoodie.keep.min.commits": call["min_commits"],
        "hoodie.keep.max.commits": call["max_commits"],
        clean_settings.RETAINED_COMMITS: call["retain_commits"],
    }
    settings = {**call.state().config.properties, **call.settings} | {k: str(v) for k, v in numbers.items()}
    archiving.archive(call.storage, settings, call.clock)
    return [{"result": 0}]


def _archived_writes(call: Call) -> Iterator[Archived]:
    """Archived writes between start_ts and end_ts, newest first."""
    first, last = call["start_ts"] or "", call["end_ts"] or "~"
    for one in sorted(call.state().archived.values(), key=lambda a: a.instant.requested, reverse=True):
        if one.instant.completed_action in WRITE_ACTIONS and first <= one.instant.requested <= last:
            yield one


def _show_archived_commits(call: Call) -> Rows:
    for _, one in zip(range(call["limit"]), _archived_writes(call), strict=False):
        groups = one.metadata.partition_stats if one.metadata else {}
        stats = [s for group in groups.values() for s in group]
        new = sum(s.prev_commit in (None, "null") for s in stats)
        yield {
            "commit_time": one.instant.requested,
            "state_transition_time": one.instant.completed or one.instant.requested,
            "action": one.instant.completed_action,
            "total_bytes_written": sum(s.total_write_bytes or 0 for s in stats),
            "total_files_added": new,
            "total_files_updated": len(stats) - new,
            "total_partitions_written": sum(1 for group in groups.values() if group),
            "total_records_written": sum(s.num_writes or 0 for s in stats),
            "total_update_records_written": sum(s.num_update_writes or 0 for s in stats),
            "total_errors": sum(s.total_write_errors or 0 for s in stats),
        }


def _show_archived_commits_metadata(call: Call) -> Rows:
    rows = (
        {
            "commit_time": one.instant.requested,
            "state_transition_time": one.instant.completed or one.instant.requested,
            "action": one.instant.completed_action,
            "partition": partition,
            "file_id": s.file_id,
            "previous_commit": s.prev_commit,
            "num_writes": s.num_writes,
            "num_inserts": s.num_inserts,
            "num_deletes": s.num_deletes,
            "num_update_writes": s.num_update_writes,
            "total_errors": s.total_write_errors,
            "total_log_blocks": s.total_log_blocks,
            "total_corrupt_log_blocks": s.total_corrupt_log_block,
            "total_rollback_blocks": s.total_rollback_blocks,
            "total_log_records": s.total_log_records,
            "total_updated_records_compacted": s.total_updated_records_compacted,
            "total_bytes_written": s.total_write_bytes,
        }
        for one in _archived_writes(call)
        for partition, group in sorted((one.metadata.partition_stats if one.metadata else {}).items())
        for s in group
    )
    for _, row in zip(range(call["limit"]), rows, strict=False):
        yield row


def _repair(call: Call) -> Rows:
    cleaning.repair(call.storage, call.settings)
    return [{"result": True}]


_SHOWN = (
    LIMIT,
    Parameter("showArchived", "BOOLEAN", False, "archived instants too"),
    Parameter("filter", "VARCHAR", "", "a SQL condition on the columns"),
)
_RANGE = (
    LIMIT,
    Parameter("start_ts", "VARCHAR", "", "the first instant"),
    Parameter("end_ts", "VARCHAR", "", "the last instant"),
)
_CLEAN_COLUMNS = {
    "clean_time": "text", "state_transition_time": "text", "action": "text", "start_clean_time": "text",
}  # fmt: skip

PROCEDURES = (
    Procedure(
        "run_clean",
        "Removes files that no retained state needs, and finishes cleans that were interrupted.",
        columns(
            start_clean_time="text",
            time_taken_in_millis="long",
            total_files_deleted="long",
            earliest_commit_to_retain="text",
            bootstrap_part_metadata="text",
            version="long",
        ),
        _run_clean,
        (
            Parameter("schedule_in_line", "BOOLEAN", True, "plan a new clean; false: only finish those planned"),
            Parameter("clean_policy", "VARCHAR", None, "KEEP_LATEST_COMMITS, _BY_HOURS or _FILE_VERSIONS"),
            Parameter("retain_commits", "BIGINT", None, "commits whose states stay readable"),
            Parameter("hours_retained", "BIGINT", None, "hours whose states stay readable"),
            Parameter("file_versions_retained", "BIGINT", None, "versions that stay per file group"),
            Parameter("trigger_strategy", "VARCHAR", None, "NUM_COMMITS"),
            Parameter("trigger_max_commits", "BIGINT", None, "clean only after so many commits"),
            OPTIONS,
        ),
        writes=True,
    ),
    Procedure(
        "show_cleans",
        "The completed cleans.",
        columns(
            **_CLEAN_COLUMNS,
            time_taken_in_millis="long",
            total_files_deleted="long",
            earliest_commit_to_retain="text",
            last_completed_commit_timestamp="text",
            version="long",
        ),
        _show_cleans,
        _SHOWN,
    ),
    Procedure(
        "show_clean_plans",
        "The plans of cleans, also of those not yet run.",
        columns(
            plan_time="text",
            state="text",
            action="text",
            earliest_instant_to_retain="text",
            last_completed_commit_timestamp="text",
            policy="text",
            version="long",
            total_partitions_to_clean="long",
            total_partitions_to_delete="long",
            extra_metadata="text",
        ),
        _show_clean_plans,
        _SHOWN,
    ),
    Procedure(
        "show_cleans_metadata",
        "The completed cleans, one row per partition with the numbers of files removed.",
        columns(
            **_CLEAN_COLUMNS,
            partition_path="text",
            policy="text",
            delete_path_patterns="int",
            success_delete_files="int",
            failed_delete_files="int",
            is_partition_deleted="bool",
            time_taken_in_millis="long",
            total_files_deleted="int",
        ),
        _show_cleans_metadata,
        _SHOWN,
    ),
    Procedure(
        "archive_commits",
        "Moves old instants from the active timeline to the archive.",
        columns(result="long"),
        _archive_commits,
        (
            Parameter("min_commits", "BIGINT", 20, "commits that stay"),
            Parameter("max_commits", "BIGINT", 30, "archive when there are more"),
            Parameter("retain_commits", "BIGINT", 10, "commits that cleaning retains; they stay as well"),
            Parameter("enable_metadata", "BOOLEAN", False, "for scripts of Hudi; of no effect"),
        ),
        writes=True,
    ),
    Procedure(
        "show_archived_commits",
        "The archived writes, newest first.",
        columns(
            commit_time="text",
            state_transition_time="text",
            total_bytes_written="long",
            total_files_added="long",
            total_files_updated="long",
            total_partitions_written="long",
            total_records_written="long",
            total_update_records_written="long",
            total_errors="long",
        ),
        _show_archived_commits,
        _RANGE,
    ),
    Procedure(
        "show_archived_commits_metadata",
        "The archived writes, one row per file written.",
        columns(
            commit_time="text",
            state_transition_time="text",
            action="text",
            partition="text",
            file_id="text",
            previous_commit="text",
            num_writes="long",
            num_inserts="long",
            num_deletes="long",
            num_update_writes="long",
            total_errors="long",
            total_log_blocks="long",
            total_corrupt_log_blocks="long",
            total_rollback_blocks="long",
            total_log_records="long",
            total_updated_records_compacted="long",
            total_bytes_written="long",
        ),
        _show_archived_commits_metadata,
        _RANGE,
    ),
    Procedure(
        "repair_corrupted_clean_files",
        "Removes cleans whose plan is empty or cannot be read; the next clean plans anew.",
        columns(result="bool"),
        _repair,
        writes=True,
    ),
)
