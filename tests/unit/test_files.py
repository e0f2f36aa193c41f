"""Names of data files, and which of them make up the file slices a reader sees (hudi-format 3.1 to 3.3)."""

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakesql.format.files import (
    BaseFile,
    FileSlice,
    LogFile,
    all_slices,
    base_file_name,
    base_files,
    file_slices,
    log_file_name,
    log_order,
    parse_data_file,
)
from lakesql.format.metadata import decode_commit
from lakesql.format.timeline import Timeline
from tests.zipped import names as golden_names
from tests.zipped import open_zip

ID = "3e93c8a9-fda0-4e8a-91dc-b4ade7dab76d-0"
OTHER = "0712b9f9-0000-4e8a-91dc-b4ade7dab76d-1"
T = [f"202611300100{n:02d}000" for n in range(20)]
File = BaseFile | LogFile


def base(t: int, token: str = "0-1-1", group: str = ID, partition: str = "p") -> BaseFile:
    found = parse_data_file(partition, base_file_name(group, token, T[t]), 100)
    assert isinstance(found, BaseFile)
    return found


def log(t: int, version: int = 1, token: str = "0-1-1", group: str = ID, partition: str = "p") -> LogFile:
    found = parse_data_file(partition, log_file_name(group, T[t], version, token), 10)
    assert isinstance(found, LogFile)
    return found


def layout1(*done: int, pending: dict[int, str] | None = None) -> Timeline:
    names = [f"{T[t]}.deltacommit" for t in done]
    return Timeline.from_file_names(names + [f"{T[t]}.{word}" for t, word in (pending or {}).items()], 1)


def layout2(done: dict[int, int], pending: dict[int, str] | None = None) -> Timeline:
    """`done`: requested to completion."""
    names = [f"{T[t]}_{T[c]}.deltacommit" for t, c in done.items()]
    return Timeline.from_file_names(names + [f"{T[t]}.{word}" for t, word in (pending or {}).items()], 2)


def only(slices: list[FileSlice]) -> FileSlice:
    (one,) = slices
    return one


def test_a_base_file_name_is_read_and_written() -> None:
    name = f"{ID}_0-236-590_20260307162618152.parquet"
    assert parse_data_file("a/b", name, 7) == BaseFile("a/b", name, ID, "0-236-590", "20260307162618152", 7)
    assert base_file_name(ID, "0-236-590", "20260307162618152") == name
    assert base(1).path == f"p/{base(1).name}"
    assert base(1, partition="").path == base(1, partition="").name


def test_a_log_file_name_is_read_and_written() -> None:
    name = f".{ID}_20260307162604102.log.12_0-52-126"
    assert parse_data_file("", name, 7) == LogFile("", name, ID, "20260307162604102", 12, "0-52-126", 7)
    assert log_file_name(ID, "20260307162604102", 12, "0-52-126") == name
    assert log(1).path == f"p/{log(1).name}"
    assert log(1, partition="").path == log(1, partition="").name


def test_very_old_log_files_have_no_token() -> None:
    found = parse_data_file("", f".{ID}_20260307162604.log.1", 7)
    assert found == LogFile("", f".{ID}_20260307162604.log.1", ID, "20260307162604", 1, "", 7)


@pytest.mark.parametrize("ext", ["parquet", "orc", "hfile", "lance"])
def test_base_files_of_every_format_are_recognised(ext: str) -> None:
    assert parse_data_file("", base_file_name(ID, "0-1-1", T[1], ext), 1) is not None


@pytest.mark.parametrize(
    "name",
    [
        ".hoodie_partition_metadata",
        ".hoodie_partition_metadata.parquet",
        f".{ID}_{T[1]}.log.1_0-1-1.cdc",
        f".{ID}_{T[1]}.log.1_0-1-1.crc",
        f".{base_file_name(ID, '0-1-1', T[1])}.crc",
        f".{ID}_{T[1]}.log.1_0-1-1.lakesql-tmp-12",
        f"{ID}_{T[1]}.parquet",
        f"{ID}_0-1-1_{T[1]}.parquet.tmp",
        f"{ID}_0-1-1_{T[1]}",
        f"{ID}_x_{T[1]}.parquet",
        f"a_b_0-1-1_{T[1]}.parquet",
        "part-00000.parquet",
        "_SUCCESS",
        "",
    ],
)
def test_other_files_are_no_data_files(name: str) -> None:
    assert parse_data_file("p", name, 1) is None


@given(st.uuids(), st.integers(0, 99), st.lists(st.integers(0, 10**6), min_size=3, max_size=3), st.integers(1, 10**6))
def test_names_round_trip(uuid: object, number: int, token: list[int], version: int) -> None:
    file_id, text = f"{uuid}-{number}", "-".join(map(str, token))
    a = parse_data_file("p", base_file_name(file_id, text, T[3]), 1)
    assert isinstance(a, BaseFile)
    assert (a.file_id, a.token, a.instant) == (file_id, text, T[3])
    b = parse_data_file("p", log_file_name(file_id, T[3], version, text), 1)
    assert isinstance(b, LogFile)
    assert (b.file_id, b.token, b.instant, b.version) == (file_id, text, T[3], version)


def test_log_files_are_read_by_instant_version_and_token_as_numbers() -> None:
    ordered = [log(1, 2), log(1, 10, "1-2-3"), log(1, 10, "1-10-1"), log(2, 1)]
    for shuffled in itertools.permutations(ordered):
        assert sorted(shuffled, key=log_order) == ordered


def test_the_latest_committed_base_file_wins_and_uncommitted_ones_are_invisible() -> None:
    files = [base(1), base(3), base(5)]
    for version, timeline in ((6, layout1(1, 3, pending={5: "inflight"})), (9, layout2({1: 2, 3: 4}, {5: "inflight"}))):
        assert only(file_slices(files, timeline, version=version)) == FileSlice("p", ID, T[3], base(3), ())
        seen = file_slices(files, timeline, version=version, include_uncommitted=True)
        assert only(seen).base == base(5)


def test_a_file_of_an_instant_that_is_nowhere_on_the_timeline_is_invisible() -> None:
    assert file_slices([base(3), log(3)], layout1(1), version=6) == []
    assert file_slices([base(3), log(3)], layout2({1: 2}), version=9) == []


def test_files_older_than_the_active_timeline_are_archived_and_visible() -> None:
    assert only(file_slices([base(1)], layout1(5), version=6)).base == base(1)
    assert only(file_slices([base(1), log(2)], layout2({5: 6}), version=9)).logs == (log(2),)


def test_as_of_bounds_the_requested_time_inclusively() -> None:
    files = [base(1), base(3)]
    timeline = layout2({1: 2, 3: 4})
    assert [only(file_slices(files, timeline, version=9, as_of=T[t])).instant for t in (1, 2, 3)] == [T[1], T[1], T[3]]
    assert file_slices(files, timeline, version=9, as_of=T[0]) == []


def test_slices_are_sorted_by_partition_and_file_id_and_keep_groups_apart() -> None:
    files = [base(1, partition="q"), base(1, group=OTHER), base(1), log(1, partition="q")]
    slices = file_slices(files, layout1(1), version=6)
    assert [one.group for one in slices] == [("p", OTHER), ("p", ID), ("q", ID)]
    assert [len(one.logs) for one in slices] == [0, 0, 1]


def test_replaced_groups_are_left_out() -> None:
    files = [base(1), base(1, group=OTHER)]
    slices = file_slices(files, layout1(1), version=6, replaced=frozenset({("p", ID)}))
    assert [one.file_id for one in slices] == [OTHER]


def test_of_two_attempts_of_one_task_the_later_is_read() -> None:
    files = [base(1, "0-9-1"), base(1, "0-10-1"), base(1, "0-2-1")]
    for shuffled in itertools.permutations(files):
        assert only(file_slices(shuffled, layout1(1), version=6)).base == base(1, "0-10-1")


class TestVersion6:
    """The name of a log file holds the base instant of its slice."""

    def test_log_files_belong_to_the_slice_they_name(self) -> None:
        files = [base(1), log(1, 2), log(1, 1), base(4), log(4)]
        slices = all_slices(files, layout1(1, 2, 3, 4, 5), version=6)
        assert slices == [
            FileSlice("p", ID, T[4], base(4), (log(4),)),
            FileSlice("p", ID, T[1], base(1), (log(1, 1), log(1, 2))),
        ]
        assert only(file_slices(files, layout1(1, 4), version=6)) == slices[0]
        assert only(file_slices(files, layout1(1, 4), version=6, as_of=T[3])) == slices[1]

    def test_a_group_may_have_log_files_only(self) -> None:
        assert only(file_slices([log(1), log(1, 2)], layout1(1, 2), version=6)) == FileSlice(
            "p", ID, T[1], None, (log(1), log(1, 2))
        )

    def test_a_log_only_group_of_a_failed_write_is_invisible(self) -> None:
        assert file_slices([log(3)], layout1(1, pending={3: "deltacommit.inflight"}), version=6) == []

    def test_log_files_over_a_pending_compaction_are_read_on_top_of_the_slice_before(self) -> None:
        files = [base(1), log(1), log(3), base(3, "7-7-7")]
        timeline = layout1(1, 2, 4, pending={3: "compaction.requested"})
        pending = {("p", ID): T[3]}
        merged = file_slices(files, timeline, version=6, pending_compactions=pending)
        assert only(merged) == FileSlice("p", ID, T[1], base(1), (log(1), log(3)))
        assert all_slices(files, timeline, version=6, pending_compactions=pending) == [
            FileSlice("p", ID, T[3], None, (log(3),)),
            FileSlice("p", ID, T[1], base(1), (log(1),)),
        ]
        before = file_slices(files, timeline, version=6, pending_compactions=pending, as_of=T[2])
        assert only(before).logs == (log(1),)

    def test_a_pending_compaction_without_log_files_changes_nothing(self) -> None:
        timeline = layout1(1, 2, pending={3: "compaction.requested"})
        pending = {("p", ID): T[3]}
        assert only(file_slices([base(1), log(1)], timeline, version=6, pending_compactions=pending)).logs == (log(1),)

    def test_a_completed_compaction_starts_a_slice_of_its_own(self) -> None:
        timeline = Timeline.from_file_names(
            [f"{T[1]}.deltacommit", f"{T[3]}.compaction.requested", f"{T[3]}.commit", f"{T[4]}.deltacommit"], 1
        )
        files = [base(1), log(1), base(3), log(3)]
        assert only(file_slices(files, timeline, version=6)) == FileSlice("p", ID, T[3], base(3), (log(3),))


class TestVersion8AndLater:
    """The name of a log file holds its delta commit; its completion time decides about the slice."""

    def test_log_files_belong_to_the_largest_base_instant_not_after_their_completion(self) -> None:
        timeline = layout2({1: 2, 3: 4, 5: 6, 7: 8})
        slices = all_slices([base(1), log(3), base(5), log(7)], timeline, version=9)
        assert slices == [
            FileSlice("p", ID, T[5], base(5), (log(7),)),
            FileSlice("p", ID, T[1], base(1), (log(3),)),
        ]

    def test_a_delta_commit_that_finished_after_the_compaction_was_requested_is_read_on_top_of_it(self) -> None:
        timeline = layout2({1: 2, 3: 6, 5: 7})
        assert only(file_slices([base(1), log(3), base(5)], timeline, version=8)).logs == (log(3),)

    def test_as_of_before_that_compaction_still_shows_the_delta_commit(self) -> None:
        timeline = layout2({1: 2, 3: 6, 5: 7})
        shown = only(file_slices([base(1), log(3), base(5)], timeline, version=8, as_of=T[4]))
        assert (shown.base, shown.logs) == (base(1), (log(3),))

    def test_log_files_requested_after_as_of_are_invisible(self) -> None:
        timeline = layout2({1: 2, 3: 4, 5: 6})
        assert only(file_slices([base(1), log(3), log(5)], timeline, version=9, as_of=T[4])).logs == (log(3),)

    def test_log_files_of_one_slice_are_read_by_instant_even_when_completed_the_other_way_round(self) -> None:
        timeline = layout2({1: 2, 3: 8, 4: 5})
        assert only(file_slices([base(1), log(4), log(3)], timeline, version=9)).logs == (log(3), log(4))

    def test_an_archived_log_file_counts_by_its_requested_time(self) -> None:
        assert only(file_slices([base(1), log(2), base(3)], layout2({5: 6}), version=9)).logs == ()
        assert only(file_slices([base(1), log(2)], layout2({5: 6}), version=9)).logs == (log(2),)

    def test_a_known_archived_completion_time_counts(self) -> None:
        old = layout2({1: 2, 2: 4, 3: 5}).instants
        timeline = layout2({7: 8}).with_archived(old)
        assert only(file_slices([base(1), log(2), base(3)], timeline, version=9)).logs == (log(2),)

    def test_a_group_of_log_files_is_one_slice_with_the_smallest_instant(self) -> None:
        timeline = layout2({1: 2, 3: 4, 5: 6})
        assert only(file_slices([log(3), log(1)], timeline, version=9)) == FileSlice(
            "p", ID, T[1], None, (log(1), log(3))
        )
        compacted = all_slices([log(3), log(1), base(5)], timeline, version=9)
        assert [(one.instant, len(one.logs)) for one in compacted] == [(T[5], 0), (T[1], 2)]

    def test_around_a_pending_compaction_earlier_and_later_log_files_are_visible(self) -> None:
        timeline = layout2({1: 2, 3: 4, 6: 7}, {5: "compaction.requested"})
        files = [base(1), log(3), log(6), base(5, "7-7-7")]
        pending = {("p", ID): T[5]}
        merged = only(file_slices(files, timeline, version=9, pending_compactions=pending))
        assert merged == FileSlice("p", ID, T[1], base(1), (log(3), log(6)))
        raw = all_slices(files, timeline, version=9, pending_compactions=pending)
        assert [(one.instant, one.logs) for one in raw] == [(T[5], (log(6),)), (T[1], (log(3),))]

    def test_log_files_without_base_file_around_a_pending_compaction_are_visible(self) -> None:
        timeline = layout2({1: 2, 6: 7}, {5: "compaction.requested"})
        merged = file_slices([log(1), log(6)], timeline, version=9, pending_compactions={("p", ID): T[5]})
        assert only(merged) == FileSlice("p", ID, T[1], None, (log(1), log(6)))
        alone = file_slices([log(6)], timeline, version=9, pending_compactions={("p", ID): T[5]})
        assert only(alone) == FileSlice("p", ID, T[5], None, (log(6),))

    def test_uncommitted_log_files_are_shown_only_on_request(self) -> None:
        timeline = layout2({1: 2}, {3: "deltacommit.inflight"})
        assert only(file_slices([base(1), log(3)], timeline, version=9)).logs == ()
        shown = file_slices([base(1), log(3)], timeline, version=9, include_uncommitted=True)
        assert only(shown).logs == (log(3),)


def test_a_read_optimized_query_reads_the_newest_base_file_of_each_group() -> None:
    files: list[File] = [base(1), base(3), log(5), log(1, group=OTHER), base(1, partition="q")]
    timeline = layout2({1: 2, 3: 4, 5: 6})
    assert base_files(files, timeline, version=9) == [base(3), base(1, partition="q")]
    assert base_files(files, timeline, version=9, as_of=T[2], replaced=frozenset({("q", ID)})) == [base(1)]


@pytest.mark.parametrize("name", golden_names())
def test_every_slice_of_a_real_table_consists_of_files_that_its_commits_name(name: str) -> None:
    storage = open_zip(name)
    folder = ".hoodie" if "_v6_" in name or name.startswith("h015") else ".hoodie/timeline"
    version = 6 if folder == ".hoodie" else 9
    timeline = Timeline.from_file_names((f.path.rpartition("/")[2] for f in storage.list(folder)[0]), version // 8 + 1)
    commits = [decode_commit(storage.read(f"{folder}/{i.file_name}"), name) for i in timeline.completed_writes()]
    named = {stat.path for commit in commits for stats in commit.partition_stats.values() for stat in stats}
    files = [
        found
        for info in storage.walk("", lambda path: path == ".hoodie")
        if (found := parse_data_file(*info.path.rpartition("/")[::2], info.size_bytes)) is not None
    ]
    slices = file_slices(files, timeline, version=version)
    seen = {file.path for one in slices for file in (*([one.base] if one.base else []), *one.logs)}
    assert seen
    assert seen <= named


def test_ten_thousand_names_are_parsed_and_assembled_at_once() -> None:
    names = [
        name.replace(ID, f"{ID[:-8]}{number:06d}-0") for number in range(5000) for name in (base(1).name, log(3).name)
    ]
    started = time.perf_counter()
    files = [found for name in names if (found := parse_data_file("p", name, 1)) is not None]
    assert time.perf_counter() - started < 0.5
    assert len(files) == 10000
    assert len(file_slices(files, layout2({1: 2, 3: 4}), version=9)) == 5000
