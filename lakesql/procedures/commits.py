"""Procedures about the timeline: commits, what they wrote, every instant with its states, and which copy is ahead.

Numbers are those of the write stats, with Hudi's meaning: a file is added when it has no previous commit. Commits are
listed newest first; one that has left the active timeline is found by its instant too.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from lakesql.errors import LakeError
from lakesql.format.metadata import CommitMetadata, WriteStat
from lakesql.format.timeline import (
    INFLIGHT,
    REQUESTED,
    Instant,
    instant_file_name,
    new_instant_time,
    normalise_instant,
)
from lakesql.procedures.declare import FILTER, LIMIT, REQUIRED, Call, Parameter, Rows, columns
from lakesql.procedures.shape import commit_of, limit, newest_first, showing, zone_of
from lakesql.table.state import TableState, load

INSTANT = Parameter("instant_time", "VARCHAR", REQUIRED, "instant of the commit")
_NO_COMMIT = "null"  # what Java writes as the previous commit of a new file


def _stats(metadata: CommitMetadata) -> list[WriteStat]:
    return [stat for group in metadata.partition_stats.values() for stat in group]


def _sum(stats: Sequence[WriteStat], field: str) -> int:
    return sum(getattr(stat, field) or 0 for stat in stats)


def _added(stats: Sequence[WriteStat]) -> int:
    return sum(stat.prev_commit == _NO_COMMIT for stat in stats)


def completion_of(state: TableState, instant: Instant) -> str | None:
    """When an instant completed: its completion time, in layout 1 the time of its file."""
    if instant.completed or state.timeline.layout != 1 or instant.file_name not in state.instant_files:
        return instant.completed
    return new_instant_time(state.instant_files[instant.file_name].modified_ms, zone_of(state))


def commit_row(state: TableState, instant: Instant) -> dict[str, Any]:
    """A completed write in numbers, a row of show_commits."""
    metadata = state.commit(instant)
    stats = _stats(metadata)
    return {
        "commit_time": instant.requested,
        "state_transition_time": completion_of(state, instant),
        "action": instant.completed_action,
        "total_bytes_written": _sum(stats, "total_write_bytes"),
        "total_files_added": _added(stats),
        "total_files_updated": sum(s.prev_commit not in (None, _NO_COMMIT) for s in stats),
        "total_partitions_written": len(metadata.partition_stats),
        "total_records_written": _sum(stats, "num_writes"),
        "total_update_records_written": _sum(stats, "num_update_writes"),
        "total_errors": _sum(stats, "total_write_errors"),
    }


def file_rows(state: TableState, instant: Instant) -> Iterator[dict[str, Any]]:
    """What a completed write did to each file group, rows of show_commits_metadata."""
    for partition, stats in state.commit(instant).partition_stats.items():
        for stat in stats:
            yield {
                "commit_time": instant.requested,
                "state_transition_time": completion_of(state, instant),
                "action": instant.completed_action,
                "partition": partition,
                "file_id": stat.file_id,
                "previous_commit": stat.prev_commit,
                "num_writes": stat.num_writes or 0,
                "num_inserts": stat.num_inserts or 0,
                "num_deletes": stat.num_deletes or 0,
                "num_update_writes": stat.num_update_writes or 0,
                "total_errors": stat.total_write_errors or 0,
                "total_log_blocks": stat.total_log_blocks or 0,
                "total_corrupt_log_blocks": stat.total_corrupt_log_block or 0,
                "total_rollback_blocks": stat.total_rollback_blocks or 0,
                "total_log_records": stat.total_log_records or 0,
                "total_updated_records_compacted": stat.total_updated_records_compacted or 0,
                "total_bytes_written": stat.total_write_bytes or 0,
            }


COMMIT_COLUMNS = columns(
    commit_time="text", state_transition_time="text", action="text", total_bytes_written="long", total_files_added="long",
    total_files_updated="long", total_partitions_written="long", total_records_written="long",
    total_update_records_written="long", total_errors="long",
)  # fmt: skip
FILE_COLUMNS = columns(
    commit_time="text", state_transition_time="text", action="text", partition="text", file_id="text",
    previous_commit="text", num_writes="long", num_inserts="long", num_deletes="long", num_update_writes="long",
    total_errors="long", total_log_blocks="long", total_corrupt_log_blocks="long", total_rollback_blocks="long",
    total_log_records="long", total_updated_records_compacted="long", total_bytes_written="long",
)  # fmt: skip


def _commits(call: Call) -> Rows:
    state = call.state()
    return (commit_row(state, instant) for instant in newest_first(state))


def _commits_metadata(call: Call) -> Rows:
    state = call.state()
    return (row for instant in newest_first(state) for row in file_rows(state, instant))


def _commit_files(call: Call) -> Rows:
    instant, metadata = commit_of(call.state(), call["instant_time"])
    for partition, stats in metadata.partition_stats.items():
        for stat in stats:
            yield {
                "action": instant.completed_action,
                "partition_path": partition,
                "file_id": stat.file_id,
                "previous_commit": stat.prev_commit,
                "total_records_updated": stat.num_update_writes or 0,
                "total_records_written": stat.num_writes or 0,
                "total_bytes_written": stat.total_write_bytes or 0,
                "total_errors": stat.total_write_errors or 0,
                "file_size": stat.file_size_in_bytes or 0,
            }


def _commit_partitions(call: Call) -> Rows:
    instant, metadata = commit_of(call.state(), call["instant_time"])
    for partition, stats in metadata.partition_stats.items():
        updated = [s for s in stats if s.prev_commit != _NO_COMMIT]
        yield {
            "action": instant.completed_action,
            "partition_path": partition,
            "total_files_added": len(stats) - len(updated),
            "total_files_updated": len(updated),
            "total_records_inserted": _sum(stats, "num_inserts"),
            "total_records_updated": _sum(updated, "num_update_writes"),
            "total_bytes_written": _sum(stats, "total_write_bytes"),
            "total_errors": _sum(stats, "total_write_errors"),
        }


def _commit_write_stats(call: Call) -> Rows:
    instant, metadata = commit_of(call.state(), call["instant_time"])
    stats = _stats(metadata)
    written, size = _sum(stats, "num_writes"), _sum(stats, "total_write_bytes")
    yield {
        "action": instant.completed_action,
        "total_bytes_written": size,
        "total_records_written": written,
        "avg_record_size": -(-size // written) if written else 0,
    }


def _extra_metadata(call: Call) -> Rows:
    state = call.state()
    if call["instant_time"] is None:
        newest = newest_first(state)
        if not newest:
            return
        instant, metadata = newest[0], state.commit(newest[0])
    else:
        instant, metadata = commit_of(state, call["instant_time"])
    wanted = call["metadata_key"]
    for key, value in sorted(metadata.extra.items()):
        if wanted is None or key == wanted.strip():
            yield {
                "instant_time": instant.requested,
                "action": instant.completed_action,
                "metadata_key": key,
                "metadata_value": value,
            }


def _timeline(call: Call) -> Rows:
    state = call.state()
    begin, end = (normalise_instant(call[name]) if call[name] else None for name in ("startTime", "endTime"))
    active = {(i.requested, i.completed_action) for i in state.timeline.instants}
    known = [(i, "ACTIVE") for i in state.timeline.instants]
    if call["showArchived"]:
        archived = (one.instant for one in state.archived.values())
        known += [(i, "ARCHIVED") for i in archived if (i.requested, i.completed_action) not in active]
    undone, undoers = _rollbacks(state)
    known.sort(key=lambda pair: (pair[0].requested, pair[0].action), reverse=True)
    for instant, kind in known:
        if (begin and instant.requested < begin) or (end and instant.requested[: len(end)] > end):
            continue
        info = undoers.get(instant.requested) if instant.action == "rollback" else None
        if info is None and instant.action != "rollback" and (by := undone.get(instant.requested)):
            info = f"Rolled back by: {', '.join(by)}"
        yield {
            "instant_time": instant.requested,
            "action": instant.completed_action if instant.is_completed else instant.action,
            "state": instant.state,
            "requested_time": _short(instant.requested),
            "inflight_time": _inflight_time(state, instant),
            "completed_time": _short(completion_of(state, instant)) if instant.is_completed else None,
            "timeline_type": kind,
            "rollback_info": info,
        }


def _rollbacks(state: TableState) -> tuple[dict[str, list[str]], dict[str, str]]:
    """What was rolled back -> by which rollbacks; rollback -> what it says of itself. Damaged ones say nothing."""
    undone: dict[str, list[str]] = {}
    said: dict[str, str] = {}
    for instant in state.timeline.instants:
        if instant.action != "rollback":
            continue
        name = instant.file_name
        if not instant.is_completed:
            name = instant_file_name(instant.requested, instant.action, REQUESTED, state.timeline.layout)
        try:
            record = state.plan(instant, name)
        except LakeError:
            continue
        if instant.is_completed:
            targets = [str(t) for t in record.get("commitsRollback") or ()]
            said[instant.requested] = f"Rolled back: {', '.join(targets)}"
        else:
            targets = [str((record.get("instantToRollback") or {}).get("commitTime"))]
            said[instant.requested] = f"Rolls back {targets[0]}"
        for target in targets:
            undone.setdefault(target, []).append(instant.requested)
    return undone, said


def _inflight_time(state: TableState, instant: Instant) -> str | None:
    info = state.instant_files.get(
        instant_file_name(instant.requested, instant.action, INFLIGHT, state.timeline.layout)
    )
    return _short(new_instant_time(info.modified_ms, zone_of(state))) if info else None


def _short(time: str | None) -> str | None:
    """Month to second, as Hudi prints a time."""
    return f"{time[4:6]}-{time[6:8]} {time[8:10]}:{time[10:12]}:{time[12:14]}" if time else None


def _compare(call: Call) -> Rows:
    ours, theirs = load(call.resolve(call["table"])), load(call.resolve(call["path"]))
    mine, other = (sorted(i.requested for i in s.history.completed_writes()) for s in (ours, theirs))
    newest, newest_there = (times[-1] if times else "0" for times in (mine, other))
    behind = newest_there > newest
    ahead = [t for t in (other if behind else mine) if t > min(newest, newest_there)]
    yield {
        "compare_detail": f"Source {ours.name} is {'behind' if behind else 'ahead'} by {len(ahead)} commits. "
        f"Commits to catch up - [{', '.join(ahead)}]"
    }


PROCEDURES = (
    showing("show_commits", "The newest completed writes in numbers.", COMMIT_COLUMNS, _commits),
    showing("show_commits_metadata", "The newest completed writes, one row per file.", FILE_COLUMNS, _commits_metadata),
    showing(
        "show_commit_files",
        "The files that a commit wrote.",
        columns(
            action="text", partition_path="text", file_id="text", previous_commit="text", total_records_updated="long",
            total_records_written="long", total_bytes_written="long", total_errors="long", file_size="long",
        ),
        _commit_files,
        (LIMIT, INSTANT),
    ),
    showing(
        "show_commit_partitions",
        "The partitions that a commit wrote to, in numbers.",
        columns(
            action="text", partition_path="text", total_files_added="long", total_files_updated="long",
            total_records_inserted="long", total_records_updated="long", total_bytes_written="long", total_errors="long",
        ),
        _commit_partitions,
        (LIMIT, INSTANT),
    ),
    showing(
        "show_commit_write_stats",
        "Bytes and rows that a commit wrote.",
        columns(action="text", total_bytes_written="long", total_records_written="long", avg_record_size="long"),
        _commit_write_stats,
        (LIMIT, INSTANT),
    ),
    showing(
        "show_commit_extra_metadata",
        "What else a commit carries: its schema, checkpoints; of the newest commit when none is named.",
        columns(instant_time="text", action="text", metadata_key="text", metadata_value="text"),
        _extra_metadata,
        (
            limit(100),
            Parameter("instant_time", "VARCHAR", None, "instant of the commit"),
            Parameter("metadata_key", "VARCHAR", None, "this key alone"),
        ),
    ),
    showing(
        "show_timeline",
        "Every instant with its states and times, newest first.",
        columns(
            instant_time="text", action="text", state="text", requested_time="text", inflight_time="text",
            completed_time="text", timeline_type="text", rollback_info="text",
        ),
        _timeline,
        (
            limit(20),
            Parameter("showArchived", "BOOLEAN", False, "the archived part too"),
            FILTER,
            Parameter("startTime", "VARCHAR", None, "instants from this time on"),
            Parameter("endTime", "VARCHAR", None, "instants up to this time"),
        ),
    ),
    showing(
        "commits_compare",
        "Which of two copies of a table is ahead, and by which commits.",
        columns(compare_detail="text"),
        _compare,
        (
            Parameter("table", doc="name or folder of one copy"),
            Parameter("path", doc="folder of the other"),
        ),
        of_table=False,
    ),
)  # fmt: skip
