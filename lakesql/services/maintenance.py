"""What table services do after a write by themselves, and every setting that they know.

`maintain` runs after each write what the table's settings ask for. To add a service: its settings in SETTINGS; what it
does after a write in AFTER_WRITE.
"""

from collections.abc import Callable, Mapping

import duckdb

from lakesql.services import (
    adaptive_rounds,
    adaptive_settings,
    archiving,
    cleaning,
    clustering,
    compaction,
    compaction_plan,
    freshness,
    log_compaction,
    ttl,
)
from lakesql.storage import Storage
from lakesql.table.clock import Clock, system_clock
from lakesql.table.outcomes import DISK_CACHE
from lakesql.values import Parse, flag

SETTINGS: dict[str, Parse] = {
    DISK_CACHE: flag,
    **freshness.SETTINGS,
    **adaptive_settings.SETTINGS,
    **compaction_plan.SETTINGS,
    **log_compaction.SETTINGS,
    **clustering.SETTINGS,
    **ttl.SETTINGS,
    **cleaning.SETTINGS,
    **archiving.SETTINGS,
}
"""Every setting of a service or a read: its name, and what makes a value of its text."""

AfterWrite = Callable[[duckdb.DuckDBPyConnection, Storage, Mapping[str, str], Clock], list[str]]

AFTER_WRITE: tuple[AfterWrite, ...] = (
    compaction.after_write,
    log_compaction.after_write,
    adaptive_rounds.after_write,
    clustering.after_write,
    ttl.after_write,
    cleaning.after_write,
    archiving.after_write,
)
"""What may be due after a write, in this order; each gives sentences about what it did, [] for nothing."""


def maintain(
    con: duckdb.DuckDBPyConnection, storage: Storage, settings: Mapping[str, str], clock: Clock = system_clock
) -> tuple[str, ...]:
    """Run the services that are due after a write; sentences about what they did.

    The write is complete: a service that fails is a sentence too, and the next write tries again.
    """
    notes: list[str] = []
    for due in AFTER_WRITE:
        try:
            notes += due(con, storage, settings, clock)
        except Exception as error:  # whatever it is, it is no failed write
            notes.append(f"The write is complete; a table service after it failed and is tried again later: {error}")
    return tuple(notes)
