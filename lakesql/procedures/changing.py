"""Procedures that write rows write as every statement does: again when another writer was faster, and with the table
services that are due afterwards."""

from collections.abc import Callable, Mapping

from lakesql.procedures.declare import Call
from lakesql.services.maintenance import maintain
from lakesql.storage import Storage
from lakesql.table.state import TableState, load
from lakesql.write import WriteResult, retried
from lakesql.write.settings import parse_settings


def changed(
    call: Call,
    storage: Storage,
    attempt: Callable[[TableState, Mapping[str, str]], WriteResult],
    again: bool = True,
) -> WriteResult:
    """What `attempt` wrote; it gets the newest state of the table and its settings, each time anew.

    `again` is false for rows that cannot be computed a second time.
    """
    settings = call.settings_of(storage)
    limits = parse_settings(settings)
    result, _ = retried(
        storage,
        lambda: attempt(load(storage), settings),
        lambda: (limits.lock_wait_ms, limits.retries if again else 0),
        lambda: settings,
    )
    if result.instant is not None:
        maintain(call.con, storage, settings, call.clock)
    return result
