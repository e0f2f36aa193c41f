"""File names of instants in both layouts, and what a timeline answers."""

import time
from datetime import timedelta, timezone

import pytest

from lakesql.errors import FormatError, SQLError
from lakesql.format.timeline import (
    COMPLETED,
    INFLIGHT,
    REQUESTED,
    Instant,
    Timeline,
    instant_file_name,
    instant_millis,
    new_instant_time,
    normalise_instant,
    parse_instant_file,
)

T1, T2, T3, T4, T5 = (f"2026113001000{n}000" for n in range(1, 6))

# hudi-format 2.3: logical action, requested, inflight, completed in layout 1, completed in layout 2.
GRAMMAR = [
    ("commit", "t.commit.requested", "t.inflight", "t.commit", "t_c.commit"),
    ("deltacommit", "t.deltacommit.requested", "t.deltacommit.inflight", "t.deltacommit", "t_c.deltacommit"),
    ("replacecommit", "t.replacecommit.requested", "t.replacecommit.inflight", "t.replacecommit", "t_c.replacecommit"),
    ("compaction", "t.compaction.requested", "t.compaction.inflight", "t.commit", "t_c.commit"),
    ("logcompaction", "t.logcompaction.requested", "t.logcompaction.inflight", "t.deltacommit", "t_c.deltacommit"),
    ("clean", "t.clean.requested", "t.clean.inflight", "t.clean", "t_c.clean"),
    ("rollback", "t.rollback.requested", "t.rollback.inflight", "t.rollback", "t_c.rollback"),
    ("restore", "t.restore.requested", "t.restore.inflight", "t.restore", "t_c.restore"),
    ("savepoint", None, "t.savepoint.inflight", "t.savepoint", "t_c.savepoint"),
    ("indexing", "t.indexing.requested", "t.indexing.inflight", "t.indexing", "t_c.indexing"),
]


def real(name: str) -> str:
    return name.replace("t_c.", f"{T1}_{T2}.").replace("t.", f"{T1}.", 1)


@pytest.mark.parametrize("layout", [1, 2])
@pytest.mark.parametrize("row", GRAMMAR, ids=lambda row: row[0])
def test_every_state_of_every_action_has_its_file_name_and_back(row: tuple[str, ...], layout: int) -> None:
    action, requested, inflight, completed_1, completed_2 = row
    completed = real(completed_1 if layout == 1 else completed_2)
    done_at = None if layout == 1 else T2
    files = [real(name) for name in (requested, inflight) if name]
    if requested:
        assert instant_file_name(T1, action, REQUESTED, layout) == real(requested)
    assert instant_file_name(T1, action, INFLIGHT, layout) == real(inflight)
    assert instant_file_name(T1, action, COMPLETED, layout, done_at) == completed
    word = completed.rpartition(".")[2]
    assert parse_instant_file(completed, layout) == (T1, done_at, word, COMPLETED)
    pending = Timeline.from_file_names(files, layout).instants
    assert [(i.action, i.state) for i in pending] == [(action, INFLIGHT)]
    whole = Timeline.from_file_names([completed, *files], layout).instants
    assert whole == (Instant(T1, action, COMPLETED, done_at, completed),)
    assert whole[0].completed_action == word


def test_clustering_is_told_from_replace_only_in_layout_2() -> None:
    assert instant_file_name(T1, "clustering", REQUESTED, 1) == f"{T1}.replacecommit.requested"
    assert instant_file_name(T1, "clustering", REQUESTED, 2) == f"{T1}.clustering.requested"
    assert instant_file_name(T1, "clustering", COMPLETED, 2, T2) == f"{T1}_{T2}.replacecommit"
    (one,) = Timeline.from_file_names([f"{T1}.clustering.requested", f"{T1}_{T2}.replacecommit"], 2).instants
    assert (one.action, one.completed_action) == ("clustering", "replacecommit")
    (one,) = Timeline.from_file_names([f"{T1}.replacecommit.requested", f"{T1}.replacecommit"], 1).instants
    assert one.action == "replacecommit"


@pytest.mark.parametrize(
    "name",
    [
        "hoodie.properties",
        "hoodie.properties.backup",
        f".{T1}.commit.crc",
        f"{T1}.commit.tmp",
        f"{T1}.commit.requested.extra",
        f"{T1}.unknownaction",
        f"{T1}.requested",
        f"{T1}",
        ".keep",
        "20261.commit",
        f"{T1}.compaction",
        f"{T1}_{T2}.commit.requested",
        f"{T1}_{T2}.inflight",
        f"{T1}.schemacommit",
        f".{T1}.commit.lakesql-tmp-123",
    ],
)
def test_other_files_are_no_instants(name: str) -> None:
    assert parse_instant_file(name, 1) is None
    assert parse_instant_file(name, 2) is None


def test_a_completion_time_in_layout_1_is_no_instant() -> None:
    assert parse_instant_file(f"{T1}_{T2}.commit", 1) is None


@pytest.mark.parametrize("t", ["20260101000000", "20260101000000123", "20260101000000123004", "00000000000000002"])
def test_instants_of_14_17_and_20_digits_parse(t: str) -> None:
    assert parse_instant_file(f"{t}.deltacommit", 1) == (t, None, "deltacommit", COMPLETED)


def test_a_savepoint_is_not_confused_with_the_instant_it_saves() -> None:
    names = [f"{T1}_{T2}.deltacommit", f"{T1}_{T3}.savepoint", f"{T1}.savepoint.inflight"]
    timeline = Timeline.from_file_names(names, 2)
    assert [(i.action, i.completed) for i in timeline.instants] == [("deltacommit", T2), ("savepoint", T3)]
    assert [i.action for i in timeline.completed_writes()] == ["deltacommit"]
    assert timeline.completion_of(T1) == T2
    assert timeline.newest_time == T3


def test_a_savepoint_of_an_archived_instant_does_not_start_the_timeline() -> None:
    assert Timeline.from_file_names([f"{T1}.savepoint", f"{T3}.commit"], 1).start == T3


def test_the_first_of_two_completions_of_one_instant_counts() -> None:
    (one,) = Timeline.from_file_names([f"{T1}_{T3}.commit", f"{T1}_{T2}.commit"], 2).instants
    assert one.completed == T2
    assert one.file_name == f"{T1}_{T2}.commit"


def test_order_is_requested_time_in_layout_1_and_completion_time_in_layout_2() -> None:
    first = Timeline.from_file_names([f"{T1}.commit", f"{T2}.commit"], 1)
    assert [i.requested for i in first.completed_writes()] == [T1, T2]
    assert first.time_of(first.instants[0]) == T1
    assert first.completion_of(T1) == T1
    second = Timeline.from_file_names([f"{T1}_{T4}.commit", f"{T2}_{T3}.commit"], 2)
    assert [i.requested for i in second.completed_writes()] == [T2, T1]
    assert second.time_of(second.instants[0]) == T4
    assert [i.requested for i in second.instants] == [T1, T2]


def test_a_completed_file_that_an_upgrade_left_without_completion_time_takes_its_modification_time() -> None:
    name = f"{T1}.commit"
    modified = {name: instant_millis(T3)}
    timeline = Timeline.from_file_names([name], 2, modified)
    assert timeline.completion_of(T1) == T3
    east = timezone(timedelta(hours=2))
    assert Timeline.from_file_names([name], 2, modified, east).completion_of(T1) == new_instant_time(
        instant_millis(T3), east
    )
    unknown = Timeline.from_file_names([name], 2)
    assert unknown.completion_of(T1) is None
    assert unknown.time_of(unknown.instants[0]) == T1


def test_committed_means_completed_or_older_than_the_active_timeline() -> None:
    names = [f"{T2}.commit", f"{T3}.commit.requested", f"{T3}.inflight", f"{T4}.rollback"]
    timeline = Timeline.from_file_names(names, 1)
    assert timeline.start == T2
    assert timeline.is_committed(T2)
    assert timeline.is_committed(T1)
    assert not timeline.is_committed(T3)
    assert not timeline.is_committed(T4)
    assert not timeline.is_committed(T5)


def test_a_pending_instant_older_than_the_first_completed_one_is_not_committed() -> None:
    timeline = Timeline.from_file_names([f"{T1}.inflight", f"{T2}.commit"], 1)
    assert not timeline.is_committed(T1)


def test_without_a_completed_write_nothing_is_committed() -> None:
    timeline = Timeline.from_file_names([f"{T1}.inflight"], 1)
    assert (timeline.start, timeline.newest_time) == (None, T1)
    assert not timeline.is_committed("00000000000000000")
    empty = Timeline.from_file_names([], 2)
    assert (empty.instants, empty.start, empty.newest_time) == ((), None, "")


def test_pending_is_asked_by_logical_action() -> None:
    names = [f"{T1}.compaction.requested", f"{T2}.clustering.requested", f"{T3}.inflight", f"{T4}_{T5}.commit"]
    timeline = Timeline.from_file_names(names, 2)
    assert [i.requested for i in timeline.pending("compaction", "clustering")] == [T1, T2]
    assert [i.requested for i in timeline.pending("commit")] == [T3]
    assert [i.requested for i in timeline.pending()] == [T1, T2, T3]


def test_archived_instants_are_known_but_do_not_move_the_start() -> None:
    active = Timeline.from_file_names([f"{T3}_{T4}.commit"], 2)
    old = Timeline.from_file_names([f"{T1}_{T2}.commit", f"{T3}_{T4}.commit"], 2).instants
    timeline = active.with_archived(old)
    assert [i.requested for i in timeline.archived] == [T1]
    assert timeline.start == T3
    assert timeline.completion_of(T1) == T2
    assert active.completion_of(T1) is None
    assert [i.requested for i in timeline.completed_writes()] == [T1, T3]


def test_instants_and_epoch_milliseconds_convert_both_ways() -> None:
    assert new_instant_time(1796003541364) == "20261130015221364"
    assert instant_millis("20261130015221364") == 1796003541364
    assert instant_millis("20261130015221") == 1796003541999
    assert instant_millis("20261130015221364007") == 1796003541364
    west = timezone(timedelta(hours=-8))
    assert new_instant_time(1796003541364, west) == "20261129175221364"
    assert instant_millis("20261129175221364", west) == 1796003541364


@pytest.mark.parametrize("t", ["00000000000000000", "", "20261330000000000", "2026113001522136x"])
def test_a_time_that_is_no_date_cannot_be_converted(t: str) -> None:
    with pytest.raises(FormatError, match="is not an instant time"):
        instant_millis(t)


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("20261130015221364", "20261130015221364"),
        ("20261130015221", "20261130015221"),
        ("2026-11-30", "20261130000000000"),
        ("2026-11-30 01:52:21", "20261130015221999"),
        ("2026-11-30 01:52:21.364", "20261130015221364"),
        (" 2026-11-30T01:52:21.3 ", "20261130015221300"),
        ("2026-11-30 01:52:21.364999", "20261130015221364"),
        ("2026-11-30T01:52:21.364Z", "20261130015221364"),
        ("2026-11-30 03:52:21.364+02:00", "20261130015221364"),
        ("2026-11-29 17:52:21.364 -0800", "20261130015221364"),
        ("2026-11-30 00:00:00", "20261130000000999"),
        ("2026-11-30 01:52", "20261130015200000"),
        ("2026-11-30T01:52Z", "20261130015200000"),
        ("2026-11-30 03:52+02:00", "20261130015200000"),
    ],
)
def test_what_a_user_types_becomes_an_instant(text: str, instant: str) -> None:
    assert normalise_instant(text) == instant


def test_an_offset_is_converted_to_the_zone_of_the_timeline() -> None:
    assert normalise_instant("2026-11-30T01:00:00.000Z", timezone(timedelta(hours=1))) == "20261130020000000"
    assert normalise_instant("2026-11-30 01:00:00.000", timezone(timedelta(hours=1))) == "20261130010000000"


@pytest.mark.parametrize("text", ["", "yesterday", "2026-11", "2026-13-01", "2026-11-30 25:00:00", "123", "2026-1-1"])
def test_what_is_no_time_is_refused_with_the_accepted_forms(text: str) -> None:
    with pytest.raises(SQLError, match=r"is not a point in time\. Give an instant"):
        normalise_instant(text)


def test_a_timeline_of_a_thousand_instants_is_made_at_once() -> None:
    names: list[str] = []
    for number in range(1000):
        t = str(int(T1) + 2 * number)
        names += [f"{t}.deltacommit.requested", f"{t}.deltacommit.inflight", f"{t}_{int(t) + 1}.deltacommit"]
    started = time.perf_counter()
    timeline = Timeline.from_file_names(names, 2)
    assert time.perf_counter() - started < 0.5
    assert len(timeline.completed_writes()) == 1000
