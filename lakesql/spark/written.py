"""What a write of Spark's did: its commit, read from the timeline, as the result of any write of ours."""

import time
from dataclasses import dataclass

from lakesql.sql.session import Session
from lakesql.table.state import TableState, load
from lakesql.write import WriteResult


@dataclass(frozen=True, slots=True)
class Counts:
    """Rows of a stage by their fate."""

    inserted: int
    updated: int
    deleted: int
    ignored: int

    @property
    def written(self) -> int:
        return self.inserted + self.updated + self.deleted


def instants(state: TableState) -> set[str]:
    return {i.requested for i in state.timeline.completed_writes()}


def result_of(
    session: Session, state: TableState, before: set[str], operation: str, counts: Counts | None, started: float
) -> WriteResult:
    """What a write of Spark's did, from its commit. Without `counts` they are those of the commit."""
    now = load(session.instance.storage(state.path))
    new = [i for i in now.timeline.completed_writes() if i.requested not in before]
    services = {"COMPACT", "CLUSTER", "LOG_COMPACT"}
    writes = [i for i in new if (now.commit(i).operation or "").upper() not in services]
    if not writes:
        done = counts or Counts(0, 0, 0, 0)
        return WriteResult(None, None, operation, rows_ignored=done.ignored, duration_s=time.perf_counter() - started)
    instant = writes[-1]
    stats = [(p, s) for p, group in now.commit(instant).partition_stats.items() for s in group]
    if counts is None:
        counts = Counts(
            sum(s.num_inserts or 0 for _, s in stats),
            sum(s.num_update_writes or 0 for _, s in stats),
            sum(s.num_deletes or 0 for _, s in stats),
            0,
        )
    return WriteResult(
        instant.requested,
        instant.action,
        operation,
        counts.inserted,
        counts.updated,
        counts.deleted,
        counts.ignored,
        files_written=len(stats),
        bytes_written=sum(s.total_write_bytes or 0 for _, s in stats),
        partitions_touched=len({p for p, _ in stats}),
        duration_s=time.perf_counter() - started,
        completed=now.timeline.time_of(instant),
        notes=tuple(f"{(now.commit(i).operation or i.action).lower()} {i.requested}" for i in new if i not in writes),
    )
