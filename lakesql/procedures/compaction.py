"""`CALL run_compaction` and `CALL show_compaction`: Hudi's parameters and columns over `services.compaction`."""

from lakesql.errors import SQLError
from lakesql.procedures.declare import PATH, TABLE, Call, Parameter, Procedure, Rows, columns
from lakesql.procedures.options import OPTIONS, options_of
from lakesql.services.compaction import asks_trigger, compact, run, schedule, show
from lakesql.services.compaction_result import CompactionResult

_COLUMNS = columns(timestamp="text", operation_size="long", state="text")
_SCHEDULE, _EXECUTE, _BOTH = "schedule", "execute", "scheduleandexecute"


def _run(call: Call) -> Rows:
    given = (call["op"] or "run").lower()
    op = {"run": _BOTH}.get(given, given)
    if op not in (_SCHEDULE, _EXECUTE, _BOTH):
        raise SQLError(f"CALL run_compaction: op => {call['op']!r}: use run, schedule, execute or scheduleAndExecute.")
    instants = _instants(call)
    if instants is not None and op == _SCHEDULE:
        raise SQLError("CALL run_compaction: op => 'schedule' draws a new instant; leave timestamp and instants out.")
    given = options_of(call["options"], "run_compaction")
    settings = {**call.settings, **given}
    limit = call["limit"]
    if instants is not None or op == _EXECUTE:
        done = run(call.con, call.storage, settings, instants=instants, limit=limit, clock=call.clock)
    elif op == _SCHEDULE:
        done = schedule(call.storage, settings, only_due=asks_trigger(given), clock=call.clock)
    else:
        done = compact(call.con, call.storage, settings, only_due=asks_trigger(given), clock=call.clock)
    return _rows(call, done)


def _instants(call: Call) -> list[str] | None:
    """The instants that `timestamp` and `instants` name."""
    named = [str(call["timestamp"])] if call["timestamp"] is not None else []
    named += [t.strip() for t in (call["instants"] or "").split(",") if t.strip()]
    return named or None


def _rows(call: Call, done: CompactionResult) -> Rows:
    wanted = set(done.instants)
    return [row for row in _listed(call) if row["timestamp"] in wanted]


def _listed(call: Call) -> list[dict[str, object]]:
    return [
        {"timestamp": instant.requested, "operation_size": size, "state": instant.state}
        for instant, size in show(call.state())
    ]


PROCEDURES = (
    Procedure(
        "run_compaction",
        "Folds the logs of a Merge-on-Read table into its base files: schedules, runs, or both.",
        _COLUMNS,
        _run,
        (
            Parameter("op", "VARCHAR", "run", "run, schedule, execute or scheduleAndExecute"),
            TABLE,
            PATH,
            Parameter("timestamp", "BIGINT", None, "run this pending compaction"),
            OPTIONS,
            Parameter("instants", "VARCHAR", None, "run these pending compactions, with commas between"),
            Parameter("limit", "BIGINT", None, "with op execute: at most so many pending compactions"),
        ),
        writes=True,
    ),
    Procedure(
        "show_compaction",
        "Lists compactions, newest first: how many file groups each has and its state.",
        _COLUMNS,
        lambda call: _listed(call)[: call["limit"]],
        (Parameter("limit", "BIGINT", 20, "at most so many rows"),),
    ),
)
