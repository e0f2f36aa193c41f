"""A plan and a report as text lines, JSON lines and an Arrow table; `complete_until` of a state. Pure.

Main lines are worded as the reference's quick start, so that searches in logs go on working.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from lakesql.counted import counted
from lakesql.ingest.model import PartitionReport, PartitionState, Plan, Range, Report, TopicPartition

REPORT = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("low", pa.int64()),
        ("high", pa.int64()),
        ("next", pa.int64()),
        ("read", pa.int64()),
        ("written", pa.int64()),
        ("deletes", pa.int64()),
        ("quarantined", pa.int64()),
        ("skipped", pa.int64()),
        ("lost", pa.int64()),
        ("bytes", pa.int64()),
        ("lag", pa.int64()),
        ("seconds", pa.float64()),
        ("task", pa.int32()),
        ("reason", pa.string()),
        ("stop", pa.string()),
    ]
)
_SUMMED = ("read", "written", "deletes", "quarantined", "skipped", "lost", "bytes", "lag")


def to_arrow(report: Report) -> pa.Table:
    """One row for each partition."""
    return pa.Table.from_pylist([asdict(one) for one in report.partitions], schema=REPORT)


def totals(report: Report) -> dict[str, int]:
    """Sums over the partitions."""
    return {name: sum(getattr(one, name) for one in report.partitions) for name in _SUMMED}


# ---------------------------------------------------------------- the plan


def plan_lines(plan: Plan) -> list[str]:
    """What a run is going to read, and what it is not."""
    failed = {one.at for one in plan.ranges if one.error}
    lines = [
        _range_line(one, plan.notes)
        for one in plan.ranges
        if (one.at not in plan.carried or one.error) and not _said(plan, one.at, one.error)
    ]
    lines += [
        f"Partition {at} keeps its offset: {why}"
        for at, why in sorted(plan.carried.items())
        if at not in failed and not _said(plan, at, why)
    ]
    lines += [
        f"Skipping partition {at}, it stays new: {why}"
        for at, why in sorted(plan.unknown.items())
        if not _said(plan, at, why)
    ]
    return lines + list(plan.notes)


def _said(plan: Plan, at: TopicPartition, why: str | None) -> bool:
    """Whether a note of the plan names this partition with this reason; then no line repeats it."""
    return why is not None and any(why in note and _names(note, at) for note in plan.notes)


def _names(note: str, at: TopicPartition) -> bool:
    return re.search(rf"(?<![\w.:-]){re.escape(str(at))}(?!\d)", note) is not None


def plan_events(plan: Plan) -> list[str]:
    """The same as JSON lines."""
    lines = [json.dumps({"event": "range", **asdict(one), "range": one.records}) for one in plan.ranges]
    lines += [
        json.dumps({"event": "carried", "topic": at.topic, "partition": at.partition, "reason": why})
        for at, why in sorted(plan.carried.items())
    ]
    lines += [
        json.dumps({"event": "unknown", "topic": at.topic, "partition": at.partition, "reason": why})
        for at, why in sorted(plan.unknown.items())
    ]
    return lines + [json.dumps({"event": "note", "text": note}) for note in plan.notes]


def _range_line(one: Range, notes: Sequence[str] = ()) -> str:
    more = f", {_gap(one.gap)}" if one.gap else ""
    told = any(note.startswith("Skipped: ") and _names(note, one.at) for note in notes)
    more += f", {one.skipped:,} skipped" if one.skipped and not told else ""
    if one.error:
        return f"Skipping partition {one.at}, its offset stays at {one.low}: {one.error}"
    return f"Pulling partition {one.at} from offset {one.low} to {one.high}, range={one.records} ({one.reason}{more})"


def _gap(gap: tuple[int, int]) -> str:
    return f"{gap[1] - gap[0]:,} lost: offsets {gap[0]} to {gap[1]}"


# ---------------------------------------------------------------- the report


def report_lines(report: Report) -> list[str]:
    """What became of each partition, the sums, the commits, and why a run did not do all of it."""
    lines = [_partition_line(one) for one in report.partitions if one.low < one.high or one.stop.startswith("error")]
    total = totals(report)
    lines.append(
        f"Ingestion {report.job}: {total['read']:,} read, {total['written']:,} written, {total['deletes']:,} deletes, "
        f"{total['quarantined']:,} quarantined, {total['lost']:,} lost, {total['skipped']:,} skipped, "
        f"lag {total['lag']:,}, {report.seconds:.1f} s"
    )
    lines += [
        f"Committed {one.commit} to {target}: {one.inserted:,} inserted, {one.updated:,} updated, "
        f"{one.deleted:,} deleted, {one.ignored:,} ignored, {counted(one.files, 'file')}"
        for target, one in report.committed.items()
        if one.commit is not None  # else a note says where the start offsets wait
    ]
    lines += [f"Blocked by {topic}: {why}" for topic, why in blocking(report).items()]
    lines += list(report.notes)
    if report.stop:
        lines.append(f"Stopped: {report.stop}")
    return lines


def report_events(report: Report, commits: bool = True) -> list[str]:
    """The same as JSON lines. Without `commits`: what has told of each commit as it was made does not tell twice."""
    lines = [json.dumps({"event": "partition", **asdict(one)}) for one in report.partitions]
    lines += [
        json.dumps({"event": "commit", "target": target, **asdict(one)}, default=list)
        for target, one in report.committed.items()
        if commits
    ]
    lines += [json.dumps({"event": "note", "text": note}) for note in report.notes]
    about = {"job": report.job, "run": report.run, "seconds": round(report.seconds, 3), "stop": report.stop}
    end: dict[str, Any] = {**about, "exit_code": report.exit_code, **totals(report), "blocked_by": blocking(report)}
    return [*lines, json.dumps({"event": "end", **end, "metrics": dict(report.metrics)})]


# ---------------------------------------------------------------- one round of many

_SINCE = re.compile(r", for [\d,]+ seconds at most")


def news(plan: Plan, said: Collection[str]) -> Plan:
    """What a round has to say about its plan: what it reads, what fails, and notes that no round before has said."""
    notes = tuple(note for note in plan.notes if round_note(note) not in said)
    carried = {at: why for at, why in plan.carried.items() if any(why in note for note in notes)}
    ranges = tuple(one for one in plan.ranges if one.error or (one.records and one.at not in plan.carried))
    return replace(plan, ranges=ranges, carried=carried, notes=notes)


def round_note(note: str) -> str:
    """A note without what changes from round to round although nothing happens."""
    return _SINCE.sub("", note)


def idle(report: Report) -> bool:
    """Whether a run found nothing new and did nothing."""
    done = report.failures or report.notes or any(one.commit is not None for one in report.committed.values())
    return not done and all(one.stop == "nothing to read" for one in report.partitions)


def idle_line(report: Report, as_json: bool = False) -> str:
    """All that such a round says."""
    count = len(report.partitions)
    if as_json:
        return report_events(replace(report, partitions=()))[-1]
    return f"Ingestion {report.job}: nothing new in {counted(count, 'partition')}, {report.seconds:.1f} s"


def blocking(report: Report) -> dict[str, str]:
    """Topics for which nothing else of their target was committed: those that failed where others had to wait."""
    waiting = any(one.stop.startswith("not committed") for one in report.partitions)
    failed = [one for one in report.partitions if one.stop.startswith("error") and one.low < one.high]
    alone = bool(failed) and not report.committed
    return {one.topic: one.stop.removeprefix("error: ") for one in reversed(failed)} if waiting or alone else {}


def _partition_line(one: PartitionReport) -> str:
    at = TopicPartition(one.topic, one.partition)
    facts = [f"read={one.read}", f"written={one.written}"]
    facts += [
        f"{name}={value}" for name in ("deletes", "quarantined", "skipped", "lost") if (value := getattr(one, name))
    ]
    facts += [f"lag={one.lag}", f"stop={one.stop}"]
    return f"Actual high watermark for partition {at}={one.next}, expected={one.high}, {', '.join(facts)}"


# ---------------------------------------------------------------- is an hour complete?


def complete_until(partitions: Mapping[TopicPartition, PartitionState]) -> dict[str, int | None]:
    """For each topic the time before which nothing is unread any more, as far as timestamps of a partition rise (C18): that
    of its slowest partition; None, when one of them does not say any. Partitions that vanished have nothing more to give.
    """
    found: dict[str, int | None] = {}
    for at, one in partitions.items():
        if one.missing_since_ms is None:
            until = read_until(one)
            known = found.get(at.topic, until)
            found[at.topic] = None if known is None or until is None else min(known, until)
    return found


def read_until(one: PartitionState) -> int | None:
    """The same of one partition. One that was read to its end is complete until that end was looked at; of another one, cut by
    a limit or a failure, the last record that was read says it. A larger timestamp before that one says nothing. None:
    nothing was read of it, or its offset was set by hand."""
    return one.ends_ms if one.lag == 0 and one.ends_ms is not None else one.last_ms


def complete_lines(until: Mapping[str, int | None]) -> Iterator[str]:
    """The same for people."""
    for topic, ms in until.items():
        when = "no time: nothing was read yet" if ms is None else datetime.fromtimestamp(ms / 1000, UTC).isoformat()
        yield f"Topic {topic} is complete until {when}"
