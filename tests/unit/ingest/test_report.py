"""Plan, report and progress as people and programs read them."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from lakesql.errors import IngestConflict, IngestError, TooManyBadRecords
from lakesql.ingest.model import (
    Committed,
    PartitionReport,
    PartitionState,
    Plan,
    Range,
    Report,
    TopicPartition,
)
from lakesql.ingest.progress import Bar, Lines, readable
from lakesql.ingest.report import (
    blocking,
    complete_lines,
    complete_until,
    plan_lines,
    report_events,
    report_lines,
    to_arrow,
    totals,
)

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
PLAN = Plan(
    "j",
    (
        Range("t", 0, 0, 2, "bootstrap earliest"),
        Range("t", 1, 5, 9, "reset nearest: earliest", 1, (1, 5)),
        Range("u", 0, 7, 7, "offsets unknown", 7, error="leader not available"),
    ),
    (),
    {TopicPartition("old", 0): "the topic is gone"},
    notes=("one topic is new",),
)


def report(*partitions, **more):
    return Report("j", "r", partitions, more.pop("committed", {}), 1.5, **more)


DONE = PartitionReport("t", 0, 0, 2, 2, read=2, written=1, quarantined=1, bytes=20, stop="high")
FAILED = PartitionReport("u", 0, 0, 9, 0, read=3, lag=9, stop="error: leader lost")
WAITING = PartitionReport("t", 0, 0, 2, 0, read=2, stop="not committed: u:0 failed, and job.commit.policy is full")


def test_the_plan_is_worded_as_in_the_quick_start():
    assert plan_lines(PLAN) == [
        "Pulling partition t:0 from offset 0 to 2, range=2 (bootstrap earliest)",
        "Pulling partition t:1 from offset 5 to 9, range=4 (reset nearest: earliest, 4 lost: offsets 1 to 5)",
        "Skipping partition u:0, its offset stays at 7: leader not available",
        "Partition old:0 keeps its offset: the topic is gone",
        "one topic is new",
    ]


def test_the_report_names_each_partition_the_sums_and_the_commit():
    lines = report_lines(report(DONE, committed={"/t": Committed("20261130", inserted=1, files=1)}, stop="limit"))
    assert lines == [
        "Actual high watermark for partition t:0=2, expected=2, read=2, written=1, quarantined=1, lag=0, stop=high",
        "Ingestion j: 2 read, 1 written, 0 deletes, 1 quarantined, 0 lost, 0 skipped, lag 0, 1.5 s",
        "Committed 20261130 to /t: 1 inserted, 0 updated, 0 deleted, 0 ignored, 1 file",
        "Stopped: limit",
    ]


def test_the_topic_that_blocks_the_others_is_named():
    blocked = report(WAITING, FAILED)
    assert blocking(blocked) == {"u": "leader lost"}
    assert "Blocked by u: leader lost" in report_lines(blocked)
    assert blocking(report(DONE, FAILED, committed={"/t": Committed("1")})) == {}


def test_the_table_has_a_row_for_each_partition_and_sums_fit():
    table = to_arrow(report(DONE, FAILED))
    assert table.num_rows == 2
    assert table["next"].to_pylist() == [2, 0]
    assert totals(report(DONE, FAILED))["read"] == sum(table["read"].to_pylist()) == 5


def test_the_report_as_json_lines_ends_with_sums_and_exit_code():
    lines = [json.loads(line) for line in report_events(report(DONE, FAILED, notes=("n",)))]
    assert [line["event"] for line in lines] == ["partition", "partition", "note", "end"]
    assert (lines[-1]["exit_code"], lines[-1]["read"], lines[-1]["blocked_by"]) == (3, 5, {"u": "leader lost"})


def test_exit_codes_tell_the_failures_apart():
    assert report(DONE).exit_code == 0
    assert report(DONE, FAILED).exit_code == 3
    assert report(DONE, failures=(IngestError("disk"),)).exit_code == 3
    assert report(FAILED, failures=(IngestError("x"), TooManyBadRecords("bad"))).exit_code == 6
    assert report(FAILED, failures=(TooManyBadRecords("bad"), IngestConflict("lost"))).exit_code == 7


def test_a_topic_is_complete_until_the_time_that_its_slowest_partition_says():
    states = {
        T0: PartitionState(next=9, low=0, lag=0, newest_ms=2000, last_ms=100, ends_ms=1000),
        T1: PartitionState(next=5, low=0, lag=4, newest_ms=900, last_ms=50, ends_ms=1000),
        U0: PartitionState(next=0, low=0, lag=7, ends_ms=1000),
        TopicPartition("u", 1): PartitionState(next=3, low=0, lag=0, last_ms=7, ends_ms=1000),
        TopicPartition("gone", 0): PartitionState(next=3, low=3, lag=2, missing_since_ms=1),
        TopicPartition("v", 0): PartitionState(next=3, low=3, lag=0, ends_ms=1000),
        TopicPartition("w", 0): PartitionState(next=3, low=3, lag=None),
        TopicPartition("x", 0): PartitionState(next=3, low=3, lag=0, last_ms=70),
    }
    until = complete_until(states)
    assert until == {"t": 50, "u": None, "v": 1000, "w": None, "x": 70}
    assert list(complete_lines(until))[:2] == [
        "Topic t is complete until 1970-01-01T00:00:00.050000+00:00",
        "Topic u is complete until no time: nothing was read yet",
    ]


def test_lines_tell_of_a_partition_at_most_every_few_seconds():
    seen, clock = [], [0.0]
    lines = Lines(seen.append, every_s=3.0, monotonic=lambda: clock[0])
    lines.planned(PLAN)
    del seen[:]
    for second in range(1, 8):
        clock[0] = float(second)
        lines.moved(T1, 5 + second // 2, 10, 100)
    assert seen == [
        "Partition t:1 at offset 6, 25 %, 10 records/s, lag 3",
        "Partition t:1 at offset 8, 75 %, 10 records/s, lag 1",
    ]


def test_what_made_no_commit_is_not_told_as_one():
    seen, none = [], Committed(None, notes=("its start offsets wait",))
    lines = Lines(seen.append)
    lines.committed("/t", none)
    lines.finished(report(DONE, committed={"/t": none}, notes=none.notes))
    assert not any("Committed" in line for line in seen)
    assert seen[-1] == "its start offsets wait"


def test_lines_as_json_are_one_object_each():
    seen = []
    lines = Lines(seen.append, as_json=True, every_s=0.0)
    lines.planned(PLAN)
    lines.moved(T0, 1, 1, 10)
    lines.committed("/t", Committed("5"))
    lines.finished(report(DONE, committed={"/t": Committed("5")}))  # told already
    events = [json.loads(line)["event"] for line in seen]
    assert events == ["range", "range", "range", "carried", "note", "progress", "commit", "partition", "end"]


@pytest.mark.parametrize("as_json", [False, True])
def test_a_note_of_the_plan_is_said_once(as_json):
    seen = []
    lines = Lines(seen.append, as_json=as_json)
    lines.planned(PLAN)
    lines.finished(replace(report(DONE), notes=(*PLAN.notes, "something else")))
    for note in (*PLAN.notes, "something else"):
        assert sum(note in line for line in seen) == 1


def test_the_bar_shows_records_bytes_and_lag():
    out = io.StringIO()
    with Bar(Console(file=out, force_terminal=True, width=120)) as bar:
        bar.planned(PLAN)
        bar.moved(T0, 2, 2, 2_500_000)
        bar.moved(T1, 6, 1, 0)
        bar._bar.refresh()
        bar.committing("/t")
        bar.committed("/t", Committed("5"))
    text = out.getvalue()
    assert "3 records" in text
    assert "2.5 MB" in text
    assert "lag 3" in text
    assert "50%" in text


def test_sizes_are_readable():
    assert [readable(size) for size in (0, 999, 1500, 2.5e9, 7e13)] == ["0 B", "999 B", "1.5 kB", "2.5 GB", "70.0 TB"]
