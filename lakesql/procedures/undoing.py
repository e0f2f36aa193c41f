"""Undoing: rollback, savepoints, restore, and `undo_last`, which shows the rows before it does anything."""

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from lakesql.errors import SQLError, TableError
from lakesql.procedures.declare import LIMIT, Call, Parameter, Procedure, Rows, columns
from lakesql.services import restore, rollback, savepoint
from lakesql.table import diff
from lakesql.table.names import literal, quote
from lakesql.table.state import TableState
from lakesql.write.transaction import temporary_folder

_RESTORED = {diff.ADDED: "restored", diff.REMOVED: "removed", diff.CHANGED: "changed"}
_INSTANT = Parameter("instant_time", "VARCHAR", None, "the savepoint; without it the newest")


def _rollback_to_instant(call: Call) -> Rows:
    rollback.rollback(call.storage, call.settings, call["instant_time"], call.clock)
    return [{"rollback_result": True}]


def _rollbacks(state: TableState) -> Iterator[tuple[str, dict[str, Any]]]:
    """(instant, metadata) of the completed rollbacks, newest first."""
    for instant in reversed(state.timeline.instants):
        if instant.action == "rollback" and instant.is_completed:
            yield instant.requested, state.plan(instant, instant.file_name)


def _show_rollbacks(call: Call) -> Rows:
    rows = [
        {
            "instant": undone,
            "rollback_instant": instant,
            "total_files_deleted": body["totalFilesDeleted"],
            "time_taken_in_millis": body["timeTakenInMillis"],
            "total_partitions": len(body["partitionMetadata"]),
        }
        for instant, body in _rollbacks(call.state())
        for undone in body["commitsRollback"]
    ]
    return rows[: call["limit"]]


def _show_rollback_detail(call: Call) -> Rows:
    state = call.state()
    body = dict(_rollbacks(state)).get(call["instant_time"])
    if body is None:
        raise TableError(
            f"{state.path}: there is no rollback {call['instant_time']} on the timeline; show_rollbacks lists them."
        )
    rows = [
        {
            "instant": undone,
            "rollback_instant": call["instant_time"],
            "partition": partition,
            "deleted_file": file,
            "succeeded": succeeded,
        }
        for undone in body["commitsRollback"]
        for partition, about in body["partitionMetadata"].items()
        for name, succeeded in (("successDeleteFiles", True), ("failedDeleteFiles", False))
        for file in about[name]
    ]
    return rows[: call["limit"]]


def _create_savepoint(call: Call) -> Rows:
    savepoint.create(
        call.storage, call.settings, call["commit_time"] or None, call["user"], call["comments"], call.clock
    )
    return [{"create_savepoint_result": True}]


def _show_savepoints(call: Call) -> Rows:
    return [{"savepoint_time": row["savepoint_time"]} for row in savepoint.listed(call.storage)]


def _delete_savepoint(call: Call) -> Rows:
    savepoint.delete(call.storage, call.settings, call["instant_time"] or None, call.clock)
    return [{"delete_savepoint_result": True}]


def _rollback_to_savepoint(call: Call) -> Rows:
    restore.restore(call.storage, call.settings, call["instant_time"] or None, call.clock)
    return [{"rollback_savepoint_result": True}]


def _delete_marker(call: Call) -> Rows:
    state = call.state()
    instants = [t.strip() for t in call["instant_time"].split(",")]
    pending = {i.requested for i in state.timeline.pending()} & set(instants)
    if pending:
        raise TableError(
            f"{state.path}: {min(pending)} is not finished, and its markers tell which files it wrote. Nothing was "
            "deleted. The next write rolls it back when its writer is dead, markers included."
        )
    for instant in instants:
        if not instant.isdigit():
            raise SQLError(f"CALL delete_marker: {instant!r} is no instant.")
        call.storage.delete_tree(temporary_folder(instant))
    return [{"delete_marker_result": True}]


def _give_up(call: Call) -> Rows:
    started = time.monotonic()
    done = rollback.give_up(
        call.storage, call.settings, call["pending_instant"], call["delete_request_instant_file"], call.clock
    )
    return [{"instant": done.instant, "time_cost": str(round((time.monotonic() - started) * 1000))}]


def _undo_last(call: Call) -> pa.Table:
    """One row per row of the table that a rollback of the newest write touches, as it will be."""
    state = call.state()
    instant, after = rollback.check(state)
    changes = diff.between(diff.Point(state), diff.Point(after), diff.Point(state))
    names = {word: quote(changes.named(word)) for word in ("change", "old", "columns", "total", "instant")}
    sql = diff.to_sql(call.con, changes)
    counted = call.con.execute(f"SELECT {names['change']}, count(*) FROM ({sql}) GROUP BY ALL").fetchall()
    totals = dict(counted)
    change = names["change"]
    cases = " ".join(f"WHEN {literal(word)} THEN {literal(shown)}" for word, shown in _RESTORED.items())
    limit = call["limit"]
    total = " ".join(f"WHEN {literal(word)} THEN {count}" for word, count in sorted(totals.items()))
    row = ", ".join(
        f"CASE WHEN {change} = {literal(diff.REMOVED)} THEN {names['old']}.{quote(c)} ELSE {quote(c)} END AS {quote(c)}"
        for c in changes.columns
    )
    found: pa.Table = call.con.sql(
        f"SELECT {literal(instant.requested)} AS {names['instant']}, CASE {change} {cases} END AS {change}, "
        f"CAST(CASE {change} {total or 'WHEN NULL THEN 0'} END AS BIGINT) AS {names['total']}, {row}, "
        f"{names['old']}, {names['columns']} FROM ({sql}) ORDER BY 2 DESC"
        + (f" LIMIT {int(limit)}" if limit is not None and limit >= 0 else "")
    ).to_arrow_table()
    if not totals:
        word = f"no row changes: it is a {instant.action}"
        columns_ = [[instant.requested], [word], [0], *([None] for _ in found.column_names[3:])]
        found = pa.table(
            [pa.array(v, f.type) for v, f in zip(columns_, found.schema, strict=True)], schema=found.schema
        )
    if not call["dry_run"]:
        rollback.rollback(call.storage, call.settings, instant.requested, call.clock)
    return found


PROCEDURES = (
    Procedure(
        "rollback_to_instant",
        "Takes the newest completed write back.",
        columns(rollback_result="bool"),
        _rollback_to_instant,
        (Parameter("instant_time", "VARCHAR", doc="the write; must be the newest"),),
        writes=True,
    ),
    Procedure(
        "show_rollbacks",
        "Lists what was rolled back, newest first.",
        columns(
            instant="text",
            rollback_instant="text",
            total_files_deleted="long",
            time_taken_in_millis="long",
            total_partitions="long",
        ),
        _show_rollbacks,
        (LIMIT,),
    ),
    Procedure(
        "show_rollback_detail",
        "Lists the files that one rollback deleted.",
        columns(instant="text", rollback_instant="text", partition="text", deleted_file="text", succeeded="bool"),
        _show_rollback_detail,
        (LIMIT, Parameter("instant_time", "VARCHAR", doc="the instant of the rollback")),
    ),
    Procedure(
        "create_savepoint",
        "Keeps the table as of a write, the newest one when none is named, against cleaning and archiving.",
        columns(create_savepoint_result="bool"),
        _create_savepoint,
        (
            Parameter("commit_time", "VARCHAR", None, "the write to keep"),
            Parameter("user", "VARCHAR", "", "who made it"),
            Parameter("comments", "VARCHAR", "", "why"),
        ),
        writes=True,
    ),
    Procedure("show_savepoints", "Lists the savepoints.", columns(savepoint_time="text"), _show_savepoints),
    Procedure(
        "delete_savepoint",
        "Gives a savepoint up.",
        columns(delete_savepoint_result="bool"),
        _delete_savepoint,
        (_INSTANT,),
        writes=True,
    ),
    Procedure(
        "rollback_to_savepoint",
        "Makes the table what it was at a savepoint; every write after it is gone for good.",
        columns(rollback_savepoint_result="bool"),
        _rollback_to_savepoint,
        (_INSTANT,),
        writes=True,
    ),
    Procedure(
        "delete_marker",
        "Removes the markers that finished writes left behind; several instants with commas.",
        columns(delete_marker_result="bool"),
        _delete_marker,
        (Parameter("instant_time", "VARCHAR"),),
        writes=True,
    ),
    Procedure(
        "run_rollback_inflight_tableservice",
        "Takes back what an unfinished compaction or clustering has done, with its plan on request.",
        columns(instant="text", time_cost="text"),
        _give_up,
        (
            Parameter("pending_instant", "VARCHAR"),
            Parameter("delete_request_instant_file", "BOOLEAN", False, "whether the plan goes too"),
        ),
        writes=True,
    ),
    Procedure(
        "undo_last",
        "Shows what taking the newest write back does to the rows; with dry_run => false it does it.",
        columns(instant="text", change="text", total="long"),
        _undo_last,
        (
            Parameter("dry_run", "BOOLEAN", True, "false: roll the write back"),
            Parameter("limit", "BIGINT", 100, "show at most so many rows; total counts all of them"),
        ),
        writes=lambda arguments: arguments["dry_run"] is not True,
    ),
)
