"""What loses or doubles rows in other engines without any error (hudi-format C.8), asserted on the files we write.

Each trap has a test here that fails when we step into it; where only Spark can show the loss,
`tests/interop/test_traps.py` has its counterpart.
"""

import datetime
import os
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakesql
from lakesql.format import log
from lakesql.format.bloom import from_text
from lakesql.format.files import BaseFile, parse_data_file
from lakesql.format.metadata import decode_commit, encode_record
from lakesql.format.timeline import instant_millis, new_instant_time
from lakesql.handle import Table
from lakesql.storage import open_storage
from lakesql.write import write
from tests.faulty import FaultyStorage
from tests.leftovers import blocks_of, data_files, die_before_completing, files_with_rows_of
from tests.samples import Kind, NewTable, rows, tuples

MOR_KINDS = [Kind("mor", version) for version in (9, 8, 6)]
HOUR_MS = 3_600_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def upsert_at(table: lakesql.Table, clock: Callable[[], int]) -> None:
    """A committed upsert by a writer whose clock is this one."""
    con = duckdb.connect()
    con.register("incoming", rows(("a", "x", 1, 1)))
    write(con, table.state, "SELECT * FROM incoming", operation="upsert", clock=clock)


def test_write_after_an_instant_far_ahead_of_the_clock_is_refused(kind: Kind, new_table: NewTable) -> None:
    table = new_table(kind)
    upsert_at(table, lambda: now_ms() + HOUR_MS)
    before = data_files(table), table.timeline()
    with pytest.raises(lakesql.LakeError, match=r"ahead of this machine's clock.*Synchronise the clocks"):
        table.upsert(rows(("a", "x", 2, 2)))
    assert (data_files(table), table.timeline()) == before


def test_write_after_an_instant_slightly_ahead_of_the_clock_waits_for_the_clock(
    kind: Kind, new_table: NewTable
) -> None:
    table = new_table(kind)
    upsert_at(table, lambda: now_ms() + 800)
    newest = table.state.timeline.newest_time
    assert instant_millis(newest) > now_ms()
    result = table.upsert(rows(("a", "x", 2, 2)))
    assert result.instant is not None
    assert newest < result.instant <= new_instant_time(now_ms())
    assert tuples(table.read()) == [("a", "x", 2, 2)]


def test_new_tables_say_that_their_instants_are_utc(
    kind: Kind, new_table: NewTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "America/Los_Angeles")
    time.tzset()
    try:
        table = new_table(kind)
        result = table.upsert(rows(("a", "x", 1, 1)))
    finally:
        monkeypatch.undo()
        time.tzset()
    assert table.properties["hoodie.table.timeline.timezone"] == "UTC"
    assert result.instant is not None
    assert abs(instant_millis(result.instant) - now_ms()) < 60_000


def test_writer_refuses_a_table_whose_zone_cannot_be_told(kind: Kind, new_table: NewTable) -> None:
    table = new_table(kind)
    table.upsert(rows(("a", "x", 1, 1)))
    properties = Path(table.path, ".hoodie", "hoodie.properties")
    lines = properties.read_text().splitlines(keepends=True)
    properties.write_text("".join(line for line in lines if "timezone" not in line))
    for file in Path(table.path, ".hoodie").rglob("*.requested"):
        os.utime(file, (0, 0))
    with pytest.raises(lakesql.LakeError, match=r"do not tell the zone.*hoodie\.table\.timeline\.timezone"):
        table.upsert(rows(("a", "x", 2, 2)))
    table.upsert(rows(("a", "x", 2, 2)), **{"hoodie.table.timeline.timezone": "UTC"})
    assert tuples(table.read()) == [("a", "x", 2, 2)]


def test_metadata_table_leaves_the_properties_before_its_folder_goes(kind: Kind, new_table: NewTable) -> None:
    table = new_table(kind)
    table.upsert(rows(("a", "x", 1, 1)))
    hoodie = Path(table.path, ".hoodie")
    with (hoodie / "hoodie.properties").open("a") as properties:
        properties.write(
            "hoodie.table.metadata.partitions=column_stats,files\nhoodie.table.index.defs.path=.hoodie/.index_defs/index.json\n"
        )
    for folder in ("metadata/.hoodie", ".index_defs"):
        (hoodie / folder).mkdir(parents=True)
        (hoodie / folder / "f").write_text("stale")
    (hoodie / ".hoodie.properties.crc").write_bytes(b"crc\0 of the former content")

    storage = FaultyStorage(open_storage(table.path), fail_at=0)
    Table(storage).upsert(rows(("a", "x", 2, 2)))

    removal = storage.calls.index(("put", ".hoodie/hoodie.properties"))
    for folder in (".hoodie/metadata", ".hoodie/.index_defs"):
        assert removal < storage.calls.index(("delete", folder))
        assert not Path(table.path, folder).exists()
    assert not table.properties.get("hoodie.table.metadata.partitions")
    assert not table.properties.get("hoodie.table.index.defs.path")
    assert not (hoodie / ".hoodie.properties.crc").exists()
    assert table.properties["hoodie.table.name"] == "t"
    assert tuples(table.read()) == [("a", "x", 2, 2)]


def test_every_data_file_is_announced_by_a_marker_first(kind: Kind, new_table: NewTable) -> None:
    table = new_table(kind)
    for batch in (rows(("a", "x", 1, 1), ("b", "y", 1, 1)), rows(("a", "x", 2, 2), ("c", "z", 2, 2))):
        storage = FaultyStorage(open_storage(table.path), fail_at=0)
        Table(storage).upsert(batch)
        puts = [path for call, path in storage.calls if call == "put"]
        data = [
            path for path in puts if not path.startswith(".hoodie") and parse_data_file("", path.rsplit("/", 1)[-1], 0)
        ]
        assert data
        for path in data:
            is_log = ".log." in path
            kinds = ("APPEND" if kind.version == 6 else "CREATE",) if is_log else ("CREATE", "MERGE")
            (marker,) = [put for put in puts if put.startswith(".hoodie/.temp/") and f"/{path}.marker." in put]
            assert marker.rsplit(".", 1)[-1] in kinds
            assert puts.index(marker) < puts.index(path)
    assert not list(Path(table.path, ".hoodie").glob(".temp/*"))


@pytest.mark.parametrize("kind", [Kind("cow", 9), *MOR_KINDS], ids=str)
def test_next_writer_leaves_no_row_of_a_write_that_died_before_completing(kind: Kind, new_table: NewTable) -> None:
    table = new_table(kind)
    table.upsert(rows(("a", "x", 1, 1)))
    dead = die_before_completing(table, rows(("a", "x", 2, 2), ("b", "z", 2, 2)))
    assert files_with_rows_of(table, dead)

    table.upsert(rows(("c", "x", 3, 3)))
    assert not files_with_rows_of(table, dead)
    assert not list(Path(table.path, ".hoodie").rglob(f"{dead}*"))
    assert tuples(table.read()) == [("a", "x", 1, 1), ("c", "x", 3, 3)]


def test_every_partition_has_its_metadata_file(kind: Kind, new_table: NewTable) -> None:
    table = new_table(kind)
    first = table.upsert(rows(("a", "x", 1, 1)))
    table.upsert(rows(("b", "y", 1, 1), ("a", "x", 2, 2)))
    expected = {"city=x": 1, "city=y": 1} if kind.partitioned else {"": 0}
    files = Path(table.path).rglob(".hoodie_partition_metadata")
    found = {file.parent.relative_to(table.path).as_posix().removeprefix("."): file for file in files}
    assert set(found) == set(expected)
    for folder, file in found.items():
        lines = dict(line.split("=") for line in file.read_text().splitlines() if not line.startswith("#"))
        assert int(lines["partitionDepth"]) == expected[folder]
        if folder != "city=y":
            assert lines["commitTime"] == first.instant


def test_footer_has_filter_type_code_and_key_range_of_exactly_the_rows(kind: Kind, new_table: NewTable) -> None:
    table = new_table(kind)
    table.upsert(rows(*((f"k{n}", "x", 1, 1) for n in range(300))))
    table.upsert(rows(("new", "x", 2, 2), ("k7", "x", 2, 2)))
    table.delete(rows(("k0", "x", None, None), ("k299", "x", None, None)))
    bases = [file for file in data_files(table) if isinstance(file, BaseFile)]
    assert bases
    for file in bases:
        whole = pq.ParquetFile(Path(table.path, file.path))
        footer = {
            key.decode(): value.decode()
            for key, value in whole.metadata.metadata.items()
            if not key.startswith(b"ARROW")
        }
        keys = whole.read(["_hoodie_record_key"]).column(0)
        bloom = from_text(footer["org.apache.hudi.bloomfilter"], footer["hoodie_bloom_filter_type_code"])
        assert footer["hoodie_bloom_filter_type_code"] in ("DYNAMIC_V0", "SIMPLE")
        assert bloom.might_contain(keys.combine_chunks()).all()
        assert not bloom.might_contain(pa.array(["nobody", "k1000", "k1001"])).any()
        assert footer["hoodie_min_record_key"] <= min(keys.to_pylist())
        assert footer["hoodie_max_record_key"] >= max(keys.to_pylist())


def test_key_range_is_in_the_order_of_java_strings(new_table: NewTable) -> None:
    """Java compares UTF-16 units: U+1F600 sorts before U+FF5E there, and after it in UTF-8 and in Python."""
    table = new_table(Kind("cow", 9))
    table.upsert(rows(("\uff5e", "x", 1, 1), ("\U0001f600", "x", 1, 1)))
    (file,) = data_files(table)
    footer = pq.read_metadata(Path(table.path, file.path)).metadata
    assert footer[b"hoodie_min_record_key"].decode() == "\U0001f600"
    assert footer[b"hoodie_max_record_key"].decode() == "\uff5e"


def test_properties_have_every_key_whose_absence_is_silent(kind: Kind, new_table: NewTable) -> None:
    properties = new_table(kind).properties
    assert properties["hoodie.table.type"] == {"cow": "COPY_ON_WRITE", "mor": "MERGE_ON_READ"}[kind.type]
    assert properties.get("hoodie.table.partition.fields", "") == ("city" if kind.partitioned else "")
    assert properties["hoodie.table.version"] == str(kind.version)
    assert properties["hoodie.timeline.layout.version"] == ("1" if kind.version == 6 else "2")
    assert properties["hoodie.table.recordkey.fields"] == "id"
    if kind.version >= 8:
        assert properties["hoodie.record.merge.mode"] == (
            "EVENT_TIME_ORDERING" if kind.event_time else "COMMIT_TIME_ORDERING"
        )
    elif kind.type == "mor":
        payload = "DefaultHoodieRecordPayload" if kind.event_time else "OverwriteWithLatestAvroPayload"
        assert properties["hoodie.compaction.payload.class"].endswith(payload)


def test_write_stats_name_path_and_counts_of_every_file(kind: Kind, new_table: NewTable) -> None:
    table = new_table(kind)
    table.upsert(rows(("a", "x", 1, 1), ("b", "y", 1, 1)))
    table.upsert(rows(("a", "x", 2, 2), ("c", "x", 2, 2)))
    table.delete(rows(("b", "y", None, None)))
    files = {file.path: file for file in data_files(table)}
    named = set()
    for instant in table.state.timeline.completed_writes():
        path = f"{table.state.timeline_folder}/{instant.file_name}"
        metadata = decode_commit(Path(table.path, path).read_bytes(), path)
        assert "schema" in metadata.extra
        assert metadata.operation in ("UPSERT", "DELETE")
        for partition, stats in metadata.partition_stats.items():
            for stat in stats:
                assert stat.path is not None
                named.add(stat.path)
                assert stat.partition_path == partition
                assert stat.file_size_in_bytes == stat.total_write_bytes == files[stat.path].size_bytes
                assert (stat.file_id, stat.prev_commit is None) == (files[stat.path].file_id, False)
                assert stat.num_writes is not None
    assert named == set(files)


@pytest.mark.parametrize("kind", MOR_KINDS, ids=str)
def test_delete_carries_the_ordering_value_of_the_row_it_deletes(kind: Kind, new_table: NewTable) -> None:
    table = new_table(kind)
    table.upsert(rows(("a", "x", 1, 10), ("b", "x", 1, 10), ("c", "x", 1, None)))
    table.upsert(rows(("a", "x", 2, 25)))
    table.delete(rows(("a", "x", None, 3), ("b", "x", None, 3), ("c", "x", None, 3)))
    assert tuples(table.read()) == []
    values: dict[str, int | None] = {}
    for file in data_files(table):
        for block in blocks_of(table, file):
            if block.kind == log.DELETE:
                deletes = log.decode_deletes(block, [pa.int64()], file.path).to_pylist()
                assert len({row["commit_time_delete"] for row in deletes}) == 1, "one block, one wrapper"
                values |= {row["record_key"]: row["ord_0"] for row in deletes}
    assert values == {"a": 25, "b": 10, "c": None}


def test_older_event_does_not_bring_a_deleted_row_back(kind: Kind, new_table: NewTable) -> None:
    table = new_table(kind)
    table.upsert(rows(("a", "x", 1, 10), ("keep", "x", 1, 10)))
    table.delete(rows(("a", "x", None, None)))
    table.upsert(rows(("a", "x", 2, 5)))
    back = [row for row in tuples(table.read()) if row[0] == "a"]
    assert back == [("a", "x", 2, 5)]


def test_completion_times_are_unique_and_rise(kind: Kind, new_table: NewTable) -> None:
    table = new_table(kind)
    instants = [str(table.upsert(rows(("a", "x", number, number))).instant) for number in range(8)]
    assert instants == sorted(set(instants))
    if kind.version >= 8:
        times = [time for row in table.timeline().to_pylist() for time in (row["instant"], row["completed"])]
        assert times == sorted(set(times))


def test_version_6_write_to_a_group_under_a_pending_compaction_is_refused(new_table: NewTable) -> None:
    table = new_table(Kind("mor", 6))
    table.upsert(rows(("a", "x", 1, 1)))
    table.upsert(rows(("a", "x", 2, 2)))
    (file_slice,) = table.state.slices()
    assert file_slice.base is not None
    operation: dict[str, object] = {
        "baseInstantTime": file_slice.instant,
        "deltaFilePaths": [file.name for file in file_slice.logs],
        "dataFilePath": file_slice.base.name,
        "fileId": file_slice.file_id,
        "partitionPath": file_slice.partition,
        "metrics": {},
        "bootstrapFilePath": None,
    }
    plan = encode_record("HoodieCompactionPlan", {"operations": [operation], "extraMetadata": {}, "version": 2})
    time.sleep(0.002)
    instant = new_instant_time(now_ms(), datetime.UTC)
    pending = Path(table.path, ".hoodie", f"{instant}.compaction.requested")
    pending.write_bytes(plan)
    before = data_files(table)
    with pytest.raises(lakesql.LakeError, match=f"compaction {instant}"):
        table.upsert(rows(("a", "x", 3, 3)))
    assert data_files(table) == before
    assert tuples(table.read()) == [("a", "x", 2, 2)]
    pending.unlink()
    table.upsert(rows(("a", "x", 3, 3)))
    assert tuples(table.read()) == [("a", "x", 3, 3)]
