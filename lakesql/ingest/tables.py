"""Plans, reports and states of ingestions as tables, the same for SQL, procedures and the command line."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import pyarrow as pa

from lakesql.ingest.model import Plan, Report, State
from lakesql.ingest.plan import PLAN, plan_table
from lakesql.ingest.report import to_arrow

REPORT = (
    "topic", "partition", "low", "high", "next", "read", "written", "quarantined", "deletes", "lag", "stop",
)  # fmt: skip
OFFSETS = pa.schema(
    [
        ("ingestion", pa.string()), ("topic", pa.string()), ("partition", pa.int32()), ("next", pa.int64()),
        ("low", pa.int64()), ("records", pa.int64()), ("bytes", pa.int64()), ("quarantined", pa.int64()),
        ("deletes", pa.int64()), ("lag", pa.int64()), ("lost", pa.int64()), ("skipped", pa.int64()),
        ("gap_from", pa.int64()), ("gap_to", pa.int64()), ("topic_id", pa.string()), ("leader_epoch", pa.int32()),
        ("newest", pa.string()), ("missing_since", pa.string()), ("stored_at", pa.string()),
    ]
)  # fmt: skip


def plan(made: Plan, remarks: Sequence[str] = ()) -> pa.Table:
    """One row for each partition; then, as reasons without a topic, the remarks and notes."""
    notes = [{"reason": note} for note in dict.fromkeys((*remarks, *made.notes))]
    return pa.concat_tables([plan_table(made), pa.Table.from_pylist(notes, schema=PLAN)])


def report(done: Report) -> pa.Table:
    """One row for each partition."""
    return to_arrow(done).select(list(REPORT))


def offsets(states: Iterable[State]) -> pa.Table:
    """One row for each partition that an ingestion has ever seen."""
    rows = [
        {
            "ingestion": state.ingestion, "topic": at.topic, "partition": at.partition, "next": one.next,
            "low": one.low, "records": one.records, "bytes": one.bytes, "quarantined": one.quarantined,
            "deletes": one.deletes, "lag": one.lag, "lost": one.lost, "skipped": one.skipped,
            "gap_from": one.gap and one.gap[0], "gap_to": one.gap and one.gap[1], "topic_id": one.topic_id,
            "leader_epoch": one.leader_epoch, "newest": time_text(one.newest_ms),
            "missing_since": time_text(one.missing_since_ms), "stored_at": time_text(state.at_ms or None),
        }
        for state in states
        for at, one in sorted(state.partitions.items())
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=OFFSETS)


def time_text(ms: int | None) -> str | None:
    """A time as the other tables of lakesql write it."""
    if ms is None:
        return None
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
