"""Procedures that show what a table consists of: numbers of commits, file slices, logs, statistics; filter and limit."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import lakesql
from lakesql.procedures.statistics import _quantile, _sizes_row
from lakesql.sql.connection import Connection
from tests.writing import table, upsert

BOTH = pytest.mark.parametrize("kind", ["cow", "mor"])
ALL = pytest.mark.parametrize(("kind", "version"), [("cow", 9), ("mor", 9), ("mor", 8), ("cow", 6), ("mor", 6)])


@pytest.fixture
def con(tmp_path: Path) -> Connection:
    return lakesql.connect(warehouse=str(tmp_path))


def made(tmp_path: Path, kind: str = "cow", version: int = 9) -> tuple[Any, list[str]]:
    """A table `t` with three writes: two rows, an update of one, one more partition; and their instants."""
    state = table(tmp_path / "t", kind, version)
    results = [
        upsert(state, ("a", "oslo", 1, 1), ("b", "oslo", 2, 1)),
        upsert(state, ("a", "oslo", 10, 2)),
        upsert(state, ("c", "rome", 3, 1)),
    ]
    return state, [str(r.instant) for r in results]


def rows(con: Connection, call: str, *names: str) -> list[Any]:
    """The rows of a CALL, or of some of its columns."""
    found = con.sql(f"CALL {call}").to_arrow_table().to_pylist()
    return [tuple(row[n] for n in names) for row in found] if names else found


@ALL
def test_commits_are_listed_newest_first_with_the_counts_of_their_files(
    con: Connection, tmp_path: Path, kind: str, version: int
) -> None:
    _, (first, second, third) = made(tmp_path, kind, version)
    action = "deltacommit" if kind == "mor" else "commit"
    updated_rows = 2 if kind == "cow" else 1  # a base file is written anew as a whole, a log gets the row
    found = rows(
        con, "show_commits('t')", "commit_time", "action", "total_files_added", "total_files_updated",
        "total_records_written", "total_update_records_written",
    )  # fmt: skip
    assert found == [
        (third, action, 1, 0, 1, 0), (second, action, 0, 1, updated_rows, 1), (first, action, 1, 0, 2, 0),
    ]  # fmt: skip
    assert all(row["state_transition_time"] >= row["commit_time"] for row in rows(con, "show_commits('t')"))
    assert [r[0] for r in rows(con, "show_commits('t', 1)", "commit_time")] == [third]


@BOTH
def test_a_commit_is_shown_by_file_by_partition_and_in_total(con: Connection, tmp_path: Path, kind: str) -> None:
    _, (first, _, third) = made(tmp_path, kind)
    (file,) = rows(con, f"show_commit_files('t', instant_time => '{first}')")
    assert (file["partition_path"], file["previous_commit"], file["total_records_written"]) == ("city=oslo", "null", 2)
    (part,) = rows(con, f"show_commit_partitions('t', instant_time => '{first}')")
    assert (part["total_files_added"], part["total_records_inserted"], part["total_bytes_written"]) == (
        1, 2, file["total_bytes_written"],
    )  # fmt: skip
    (total,) = rows(con, f"show_commit_write_stats('t', instant_time => '{first}')")
    assert total["avg_record_size"] == -(-total["total_bytes_written"] // 2)
    extra = rows(con, "show_commit_extra_metadata('t')", "instant_time", "metadata_key")
    assert extra == [(third, "lakesql.partition.values"), (third, "schema")]
    with pytest.raises(lakesql.TableError, match=r"no completed write with the instant 20200101000000000.*newest are"):
        con.sql("CALL show_commit_files('t', instant_time => '20200101000000000')")


def test_timeline_shows_pending_instants_ranges_and_what_was_rolled_back(con: Connection, tmp_path: Path) -> None:
    state, (first, second, third) = made(tmp_path)
    folder = tmp_path / "t" / ".hoodie" / "timeline"
    dead = folder / "20200101000000000.commit.requested"
    dead.write_bytes(b"")
    os.utime(dead, (1, 1))
    found = rows(con, "show_timeline('t', endTime => '2020-01-02')", "instant_time", "state", "completed_time")
    assert found == [("20200101000000000", "REQUESTED", None)]
    upsert(state, ("d", "rome", 1, 1))  # the dead write is rolled back before it
    by = rows(con, "show_timeline('t', filter => \"rollback_info IS NOT NULL\")", "action", "rollback_info")
    assert by == [("rollback", "Rolled back: 20200101000000000")]
    middle = rows(con, f"show_timeline('t', startTime => '{second}', endTime => '{third}')", "instant_time")
    assert middle == [(third,), (second,)]
    assert first not in [r[0] for r in middle]


def test_filter_holds_before_limit_and_a_wrong_one_is_refused(con: Connection, tmp_path: Path) -> None:
    made(tmp_path)
    call = "show_table_properties('t', limit => 1, filter => \"key LIKE '%recordkey%'\")"
    assert rows(con, call, "value") == [("id",)]
    for wrong, text in (("nope = 1", "nope"), ("true; DROP TABLE x", "more than one condition|syntax")):
        with pytest.raises(lakesql.SQLError, match=text):
            con.sql(f"CALL show_table_properties('t', filter => '{wrong}')")
    assert len(rows(con, "show_table_properties('t', limit => -1)")) > 10


@pytest.mark.parametrize("version", [6, 8, 9])
def test_file_slices_are_shown_with_the_weight_of_their_logs(con: Connection, tmp_path: Path, version: int) -> None:
    _, (first, second, _) = made(tmp_path, "mor", version)
    (slice_,) = rows(con, "show_fsview_latest('t', partition_path => 'city=o*')")
    assert (slice_["base_instant"], slice_["num_delta_files"]) == (first, 1)
    assert slice_["delta_size_compaction_scheduled"] == slice_["total_delta_file_size"] > 0
    ratio = slice_["total_delta_file_size"] / slice_["data_file_size"]
    assert slice_["delta_to_base_radio_compaction_scheduled"] == ratio
    assert slice_["delta_files_compaction_scheduled"].startswith(f"[{tmp_path}/t/city=oslo/.")
    assert slice_["delta_files_compaction_unscheduled"] == "[]"
    assert len(rows(con, "show_fsview_all('t')")) == 2
    before = rows(con, f"show_fsview_all('t', max_instant => '{second}')", "base_instant")
    assert before == [(first,)]
    assert rows(con, f"show_fsview_latest('t', max_instant => '{first}')") == []
    with pytest.raises(lakesql.SQLError, match="mean the same"):
        con.sql("CALL show_fsview_latest('t', path_regex => 'x', partition_path => 'y')")


def test_every_version_of_a_file_group_is_shown_newest_first(con: Connection, tmp_path: Path) -> None:
    _, (first, second, _) = made(tmp_path)
    found = rows(con, "show_fsview_all('t', path_regex => 'city=oslo')", "base_instant")
    assert found == [(second,), (first,)]


def test_blocks_and_records_of_logs_are_shown(con: Connection, tmp_path: Path) -> None:
    state, (_, second, _) = made(tmp_path, "mor")
    upsert(state, ("a", "oslo", 11, 3))
    lakesql.open_table(str(tmp_path / "t")).delete([{"id": "b", "city": "oslo"}])
    blocks = rows(con, "show_logfile_metadata('t', '*/.*.log.*')", "block_type", "record_count")
    assert blocks == [("AVRO_DATA_BLOCK", 1), ("AVRO_DATA_BLOCK", 1), ("DELETE_BLOCK", 1)]
    (header, _, _) = rows(con, f"show_logfile_metadata('t', '{tmp_path}/t/city=oslo/.*')", "header_metadata")
    assert json.loads(header[0])["INSTANT_TIME"] == second
    stored = [json.loads(r[0])["v"] for r in rows(con, "show_logfile_records('t', '*/.*')", "records")]
    assert stored == [10, 11]
    merged = [json.loads(r[0])["v"] for r in rows(con, "show_logfile_records('t', '*/.*', merge => true)", "records")]
    assert merged == [11]
    with pytest.raises(lakesql.TableError, match="no log file fits 'city=rome/none'"):
        con.sql("CALL show_logfile_metadata('t', 'city=rome/none')")


def test_sizes_and_amplification_end_with_a_row_over_all_commits(con: Connection, tmp_path: Path) -> None:
    _, (first, second, third) = made(tmp_path)
    sizes = rows(con, "stats_file_sizes('t')", "commit_time", "num_files")
    assert sizes == [(third, 1), (second, 1), (first, 1), ("ALL", 3)]
    assert rows(con, "stats_file_sizes('t', limit => 2)", "commit_time") == [(third,), ("ALL",)]
    assert rows(con, "stats_file_sizes('t', 'city=rome')", "commit_time") == [(third,), ("ALL",)]
    found = rows(con, "stats_wa('t')", "commit_time", "total_upserted", "total_written", "write_amplification_factor")
    assert found == [(first, 0, 2, "0"), (second, 1, 2, "2.00"), (third, 0, 1, "0"), ("Total", 1, 5, "5.00")]
    assert rows(con, "stats_write_amplification('t')") == rows(con, "stats_wa('t')")


def test_percentiles_lie_between_the_sizes_around_them() -> None:
    assert [_quantile([987, 435214, 435220, 435221, 435221], q) for q in (0.1, 0.5, 0.95)] == [
        987.0,
        435220.0,
        435221.0,
    ]
    assert _sizes_row("x", [435214, 435221])["std_dev"] == pytest.approx(4.949747468305833)
    assert _sizes_row("x", [])["num_files"] == 0


def test_overlap_counts_the_files_that_hold_a_value_at_once(con: Connection, tmp_path: Path) -> None:
    state = table(tmp_path / "t")
    separate = {"hoodie.parquet.small.file.limit": "0"}
    for low, high in ((1, 5), (3, 7), (7, 8)):
        upsert(state, (f"a{low}", "x", low, 1), (f"b{high}", "x", high, 1), settings=separate)
    call = "show_metadata_column_stats_overlap('t', targetColumns => 'v')"
    (found,) = rows(con, call)
    assert (found["Partition path"], found["Maximum file overlap"], found["Total file number"]) == ("city=x", 2, 3)
    assert found["Average overlap"] == pytest.approx((1 + 2 + 2 + 2 + 1) / 5)  # at 1, 3, 5, 7, 8
    assert rows(con, "show_column_stats_overlap('t', targetColumns => 'v')") == [found]
    stats = rows(
        con, "show_metadata_table_column_stats('t', targetColumns => 'v')", "min_value", "max_value", "null_number"
    )
    assert sorted(stats) == [("1", "5", 0), ("3", "7", 0), ("7", "8", 0)]
    with pytest.raises(lakesql.TableError, match="no column nope"):
        con.sql("CALL show_metadata_table_column_stats('t', targetColumns => 'nope')")


def test_a_file_tells_who_wrote_it_and_a_lost_one_who_deleted_it(con: Connection, tmp_path: Path) -> None:
    _, (first, _, _) = made(tmp_path)
    dead = tmp_path / "t" / ".hoodie" / "timeline" / "20200101000000000.commit.requested"
    dead.write_bytes(b"")
    os.utime(dead, (1, 1))
    lost = tmp_path / "t" / "city=oslo" / "f1_0-0-1_20200101000000000.parquet"
    lost.write_bytes(b"torn")
    name = next(f.name for f in lakesql.open_table(str(tmp_path / "t")).state.files if f.instant == first)
    found = rows(con, f"show_file_status('t', file => '{name}')", "status", "action", "instant", "timeline")
    assert found == [("exist", "commit", first, "active")]
    assert rows(con, "show_file_status('t', file => 'x.parquet')", "status") == [("unknown",)]
    lakesql.open_table(str(tmp_path / "t")).upsert([{"id": "z", "city": "rome", "v": 1, "ts": 1}])
    assert not lost.exists()
    assert rows(con, f"show_file_status('t', file => '{lost.name}')", "status", "action") == [("deleted", "rollback")]


def test_disk_usage_counts_folders_files_and_bytes(con: Connection, tmp_path: Path) -> None:
    (tmp_path / "d" / "sub").mkdir(parents=True)
    (tmp_path / "d" / "sub" / "a").write_bytes(b"x" * 2048)
    (tmp_path / "d" / "b").write_bytes(b"y")
    columns = ("path_num", "file_num", "storage_size", "storage_size(unit)", "space_consumed", "quota")
    assert rows(con, f"show_fs_path_detail('{tmp_path}/d')", *columns) == [(2, 2, 2049, "2.00KB", 2049, -1)]
    parts = rows(con, f"show_fs_path_detail('{tmp_path}/d', is_sub => true)", "storage_path", "storage_size")
    assert parts == [(f"{tmp_path}/d/sub", 2048), (f"{tmp_path}/d/b", 1)]
    with pytest.raises(lakesql.TableError, match="no such folder"):
        con.sql(f"CALL show_fs_path_detail('{tmp_path}/none')")


def test_two_copies_are_compared_by_their_commits(con: Connection, tmp_path: Path) -> None:
    state, _ = made(tmp_path)
    shutil.copytree(tmp_path / "t", tmp_path / "copy")
    newer = upsert(state, ("e", "rome", 1, 1)).instant
    ((text,),) = rows(con, f"commits_compare('t', '{tmp_path}/copy')", "compare_detail")
    assert text == f"Source t is ahead by 1 commits. Commits to catch up - [{newer}]"
    ((text,),) = rows(con, f"commits_compare('{tmp_path}/copy', '{tmp_path}/t')", "compare_detail")
    assert text == f"Source t is behind by 1 commits. Commits to catch up - [{newer}]"


def test_instants_are_exported_as_json(con: Connection, tmp_path: Path) -> None:
    _, instants = made(tmp_path)
    (tmp_path / "out").mkdir()
    con.sql(f"CALL export_instants('t', '{tmp_path}/out', 2)")
    found = sorted((tmp_path / "out").iterdir())
    assert [p.name.split("_")[0] for p in found] == instants[:2]
    assert json.loads(found[0].read_text())["operationType"] == "UPSERT"
    with pytest.raises(lakesql.TableError, match="is no folder"):
        con.sql(f"CALL export_instants('t', '{tmp_path}/none')")
