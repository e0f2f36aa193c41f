"""Commit metadata and the Avro records of the timeline: read, written, and refused when damaged."""

import contextlib
import hashlib
import json
from collections.abc import Callable

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakesql.errors import FormatError, Unsupported
from lakesql.format.container import MAGIC, read_container, write_container
from lakesql.format.metadata import (
    PLAN_SCHEMAS,
    CommitMetadata,
    TableConfig,
    WriteStat,
    decode_commit,
    decode_record,
    encode_commit,
    encode_record,
)
from lakesql.format.timeline import parse_instant_file
from tests.zipped import names as golden_names
from tests.zipped import open_zip

BASE_STAT = WriteStat(
    file_id="f-0",
    path="part=a/f-0_0-1-1_20261130010000000.parquet",
    prev_commit="null",
    num_writes=3,
    num_inserts=3,
    total_write_bytes=1000,
    partition_path="part=a",
    file_size_in_bytes=1000,
)
LOG_STAT = WriteStat(
    file_id="f-0",
    path="part=a/.f-0_20261130010000000.log.1_0-1-1",
    prev_commit="20261130010000000",
    num_writes=1,
    partition_path="part=a",
    log_version=1,
    log_offset=0,
    base_file="",
    log_files=(".f-0_20261130010000000.log.1_0-1-1",),
    cdc_stats={"part=a/x.cdc": 5},
    runtime_stats={"totalScanTime": 0, "totalCreateTime": None, "totalUpsertTime": 7},
)
COMMIT_META = CommitMetadata({"part=a": (BASE_STAT, LOG_STAT)}, "UPSERT", {"schema": "{}"}, False)


@pytest.mark.parametrize("version", [6, 8, 9])
@pytest.mark.parametrize("replace", [False, True])
def test_commit_metadata_is_read_back_as_written(version: int, replace: bool) -> None:
    replaced = {"part=a": ("g-0", "h-0"), "": ()} if replace else {}
    meta = CommitMetadata(COMMIT_META.partition_stats, "INSERT_OVERWRITE", {"schema": "é"}, True, replaced)
    found = decode_commit(encode_commit(meta, version=version, replace=replace), "x", version=version)
    assert (found.operation, found.extra, found.compacted, found.replaced) == (
        "INSERT_OVERWRITE",
        meta.extra,
        True,
        replaced,
    )
    base, log = found.partition_stats["part=a"]
    assert (base.path, base.num_writes, base.num_deletes, base.log_files) == (BASE_STAT.path, 3, 0, None)
    assert (log.log_files, log.cdc_stats, log.runtime_stats) == (
        LOG_STAT.log_files,
        LOG_STAT.cdc_stats,
        LOG_STAT.runtime_stats,
    )
    again = encode_commit(found, version=version, replace=replace)
    assert decode_commit(again, "x") == found


def test_version_6_is_json_as_java_prints_it() -> None:
    text = encode_commit(COMMIT_META, version=6, replace=False).decode()
    assert text.startswith('{\n  "partitionToWriteStats" : {\n')
    record = json.loads(text)
    assert list(record) == ["partitionToWriteStats", "compacted", "extraMetadata", "operationType"]
    base, log = record["partitionToWriteStats"]["part=a"]
    assert list(base) == [
        *("fileId", "path", "cdcStats", "prevCommit", "numWrites", "numDeletes", "numUpdateWrites", "numInserts"),
        *("totalWriteBytes", "totalWriteErrors", "tempPath", "partitionPath", "totalLogRecords"),
        *("totalLogFilesCompacted", "totalLogSizeCompacted", "totalUpdatedRecordsCompacted", "totalLogBlocks"),
        *("totalCorruptLogBlock", "totalRollbackBlocks", "fileSizeInBytes", "minEventTime", "maxEventTime"),
        "runtimeStats",
    ]
    assert list(log)[len(base) :] == ["logVersion", "logOffset", "baseFile", "logFiles", "recordsStats"]
    assert log["recordsStats"] == {"val": None}
    assert (base["totalWriteErrors"], base["runtimeStats"], base["cdcStats"]) == (0, None, None)


def test_version_6_names_the_previous_base_file_of_a_rewrite_when_it_is_given() -> None:
    meta = CommitMetadata({"": (WriteStat(prev_base_file="old.parquet"),)})
    assert (
        json.loads(encode_commit(meta, version=6, replace=False))["partitionToWriteStats"][""][0]["prevBaseFile"]
        == "old.parquet"
    )


def test_from_version_8_on_it_is_an_avro_container_as_hudi_fills_it() -> None:
    data = encode_commit(COMMIT_META, version=9, replace=False)
    records, schema = read_container(data, "x")
    assert schema == PLAN_SCHEMAS["HoodieCommitMetadata"]
    assert records[0]["version"] is None
    base = records[0]["partitionToWriteStats"]["part=a"][0]
    nulls = {name for name, value in base.items() if value is None}
    assert nulls == {
        *("totalLogFiles", "logVersion", "logOffset", "baseFile", "logFiles", "cdcStats", "prevBaseFile"),
        *("minEventTime", "maxEventTime", "runtimeStats", "tempPath"),
    }
    # hudi-format 2.4: one metadata entry, 11 letters, then the length of the schema.
    assert data[:17] == bytes.fromhex("4f626a01 02 16 6176726f2e736368656d61".replace(" ", ""))
    assert encode_commit(COMMIT_META, version=8, replace=False) == data


def test_an_empty_file_is_an_empty_commit() -> None:
    assert decode_commit(b"", "x", version=9) == CommitMetadata({}, None, {}, None, {})


def test_unknown_and_missing_json_fields_are_no_error() -> None:
    text = b'{"partitionToWriteStats":{"p":[{"fileId":"f","new":1}]},"hoodieFuture":2,"operationType":"INSERT"}'
    assert decode_commit(text, "x") == CommitMetadata({"p": (WriteStat(file_id="f"),)}, "INSERT", {}, None)
    assert decode_commit(b"{}", "x") == CommitMetadata()


def test_the_wrong_form_for_the_version_is_explained() -> None:
    json_body = encode_commit(COMMIT_META, version=6, replace=False)
    avro_body = encode_commit(COMMIT_META, version=8, replace=False)
    with pytest.raises(FormatError) as caught:
        decode_commit(json_body, "t_c.commit", version=8)
    assert str(caught.value) == (
        "t_c.commit: expected Avro, found JSON (first bytes 7b 0a 20 20). hoodie.properties says table version 8, "
        "which stores completed commits as Avro. If the table was upgraded or downgraded by hand, restore "
        "hoodie.properties; otherwise the file was copied from another table."
    )
    with pytest.raises(FormatError, match=r"expected JSON, found Avro \(first bytes 4f 62 6a 01\)"):
        decode_commit(avro_body, "x", version=6)
    with pytest.raises(FormatError, match="expected Avro, found something else"):
        decode_commit(b"PAR1", "x", version=9)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"PAR1", "neither .first bytes 50 41 52 31"),
        (b'{"partitionToWriteStats"', "neither"),
        (b"\xff\xfe{", "neither"),
        (b"[" * 100_000, "neither"),
        (b"[1]", "expected a JSON object, found list"),
        (b'{"schemas":[]}', "no commit metadata, its keys are schemas"),
        (b'{"partitionToWriteStats":[1]}', "does not have the expected shape"),
        (b'{"partitionToWriteStats":{"p":[1]}}', "does not have the expected shape"),
        (b'{"partitionToWriteStats":{"p":[{"logFiles":1}]}}', "does not have the expected shape"),
        (b'{"extraMetadata":[1]}', "does not have the expected shape"),
    ],
)
def test_damaged_commit_metadata_is_a_format_error(data: bytes, text: str) -> None:
    with pytest.raises(FormatError, match=f"x: .*{text}"):
        decode_commit(data, "x")


def test_the_record_of_another_action_is_no_commit() -> None:
    with pytest.raises(FormatError, match="found 1 records HoodieRestorePlan"):
        decode_commit(encode_record("HoodieRestorePlan", {}), "x")


def test_only_a_replacecommit_can_replace() -> None:
    with pytest.raises(AssertionError):
        encode_commit(CommitMetadata(replaced={"": ("f",)}), version=9, replace=False)


def only_values_or_format_errors(decode: Callable[[bytes], object], data: bytes) -> None:
    """Cut at every byte, garbage behind, and each byte changed."""
    for end in range(len(data)):
        survives(decode, data[:end])
    for position in range(len(data)):
        survives(decode, data[:position] + bytes([data[position] ^ 0xFF]) + data[position + 1 :])
    with pytest.raises((FormatError, Unsupported)):
        decode(data + b"\x00garbage")


def survives(decode: Callable[[bytes], object], data: bytes) -> None:
    with contextlib.suppress(FormatError, Unsupported):
        decode(data)


def small_container(record: dict[str, object]) -> bytes:
    """The record under a schema that is short enough to try every byte."""
    field = {"name": "extraMetadata", "type": ["null", {"type": "map", "values": "string"}], "default": None}
    operation = {"name": "operationType", "type": ["null", "string"], "default": None}
    return write_container(record, {"type": "record", "name": "HoodieCommitMetadata", "fields": [field, operation]})


def test_a_damaged_container_never_does_worse_than_a_format_error() -> None:
    only_values_or_format_errors(lambda data: decode_commit(data, "x"), small_container({"extraMetadata": {"a": "b"}}))
    only_values_or_format_errors(lambda data: decode_record(data, "x"), small_container({"operationType": "INSERT"}))


def test_damaged_json_never_does_worse_than_a_format_error() -> None:
    meta = CommitMetadata({"": (WriteStat(file_id="f"),)}, "INSERT", {"schema": "{}"})
    only_values_or_format_errors(lambda data: decode_commit(data, "x"), encode_commit(meta, version=6, replace=False))


@given(st.binary(max_size=200))
def test_random_bytes_are_a_format_error(data: bytes) -> None:
    survives(lambda found: decode_record(found, "x"), MAGIC + data)
    survives(lambda found: decode_commit(found, "x"), data)


# Length and digest of the schema texts in files of Hudi 1.0.2 and 1.2.0.
HUDI_SCHEMAS = {
    "HoodieCommitMetadata": (3293, "138d2a7342c160e0"),
    "HoodieReplaceCommitMetadata": (3476, "db733c7aa73f03f6"),
    "HoodieRequestedReplaceMetadata": (2603, "2b07d21bbc5d5bba"),
    "HoodieCompactionPlan": (2191, "8b25e6cc9f4d3013"),
    "HoodieCleanerPlan": (1642, "744b54da7af51340"),
    "HoodieCleanMetadata": (1542, "41f41ba914b08b2f"),
    "HoodieRollbackPlan": (1141, "db176cd73b6c2a78"),
    "HoodieRollbackMetadata": (1409, "82c7840ece2f8b3e"),
    "HoodieRestorePlan": (557, "1a1624a7f29fa189"),
    "HoodieRestoreMetadata": (2005, "db536b57da3f7cf9"),
    "HoodieSavepointMetadata": (689, "465fe1cf2c6d1f85"),
    "HoodieIndexPlan": (719, "e49ee6c7b70c5250"),
    "HoodieIndexCommitMetadata": (1038, "983e25b624e97636"),
}


@pytest.mark.parametrize("name", PLAN_SCHEMAS)
def test_schemas_are_hudis_to_the_letter(name: str) -> None:
    text = json.dumps(PLAN_SCHEMAS[name], separators=(",", ":"))
    assert (len(text), hashlib.sha256(text.encode()).hexdigest()[:16]) == HUDI_SCHEMAS[name]


PLANS: list[tuple[str, dict[str, object]]] = [
    ("HoodieRequestedReplaceMetadata", {}),
    (
        "HoodieCompactionPlan",
        {
            "operations": [
                {
                    "baseInstantTime": "20261130010000000",
                    "deltaFilePaths": [".f-0_20261130010001000.log.1_0-1-1"],
                    "dataFilePath": "f-0_0-1-1_20261130010000000.parquet",
                    "fileId": "f-0",
                    "partitionPath": "part=a",
                    "metrics": {"TOTAL_LOG_FILES": 1.0, "TOTAL_IO_MB": 0.5},
                    "bootstrapFilePath": None,
                }
            ],
            "extraMetadata": {},
            "version": 2,
        },
    ),
    ("HoodieRollbackPlan", {"instantToRollback": {"commitTime": "1", "action": "commit"}, "RollbackRequests": []}),
    (
        "HoodieSavepointMetadata",
        {"savepointedBy": "", "savepointedAt": 1, "comments": "c", "partitionMetadata": {}},
    ),
]


@pytest.mark.parametrize(("name", "record"), PLANS, ids=[name for name, _ in PLANS])
def test_plans_are_read_back_with_their_defaults(name: str, record: dict[str, object]) -> None:
    found = decode_record(encode_record(name, record), "x")
    assert list(found) == [field["name"] for field in PLAN_SCHEMAS[name]["fields"]]
    assert {key: found[key] for key in record} == record
    assert found["version"] == record.get("version", 1)


def test_a_misspelt_field_of_a_plan_is_our_bug() -> None:
    with pytest.raises(ValueError, match="more fields than the schema specifies: operation"):
        encode_record("HoodieCompactionPlan", {"operation": []})


def test_a_container_must_hold_exactly_one_record() -> None:
    data = encode_record("HoodieRestorePlan", {})
    sync = data[-16:]
    with pytest.raises(FormatError, match="expected one record, found 0 of HoodieRestorePlan"):
        decode_record(data[: data.index(sync) + 16], "x")
    with pytest.raises(FormatError, match=r"x: expected an Avro container file .*, found an empty file"):
        decode_record(b"", "x")


def test_containers_of_other_writers_are_read(tmp_path_factory: pytest.TempPathFactory) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "string"}]}
    for codec in ("null", "deflate"):
        path = tmp_path_factory.mktemp("avro") / "x.avro"
        with path.open("wb") as file:
            fastavro.writer(file, schema, [{"a": "x" * 100}, {"a": "y"}], codec=codec, sync_interval=1)
        records, found = read_container(path.read_bytes(), "x")
        assert records == [{"a": "x" * 100}, {"a": "y"}]
        assert found["name"] == "R"
    with path.open("wb") as file:
        fastavro.writer(file, schema, [{"a": "x"}], codec="bzip2")
    with pytest.raises(Unsupported, match="Avro codec 'bzip2'"):
        read_container(path.read_bytes(), "x")


def test_a_block_with_more_bytes_than_its_records_is_damaged() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}
    data = write_container({"a": 1}, schema)
    longer = data[:-18] + b"\x04\x02\x02" + data[-16:]  # size 2 instead of 1
    with pytest.raises(FormatError, match=r"x: damaged Avro container file .*bytes left over in a block"):
        read_container(longer, "x")
    with pytest.raises(FormatError, match="a number of more than 64 bits"):
        read_container(MAGIC + b"\xff" * 12, "x")


def test_header_maps_in_several_sized_blocks_are_read() -> None:
    data = encode_record("HoodieRestorePlan", {})
    text = json.dumps(PLAN_SCHEMAS["HoodieRestorePlan"], separators=(",", ":")).encode()
    start, end = data.index(text) - 2, data.index(text) + len(text)
    codec = b"\x01\x20\x14avro.codec\x08null"  # a block of -1 entries with its size in bytes
    schema = b"\x02\x16avro.schema" + data[start:end]
    assert decode_record(MAGIC + codec + schema + data[end:], "x")["version"] == 2


@pytest.mark.parametrize("name", golden_names())
def test_every_file_of_a_real_timeline_is_decoded(name: str) -> None:
    storage = open_zip(name)
    table = TableConfig.from_text(storage.read(".hoodie/hoodie.properties").decode("latin-1"), name)
    count = 0
    for info in storage.list(table.timeline_folder)[0]:
        file_name = info.path.rpartition("/")[2]
        parsed = parse_instant_file(file_name, table.layout)
        if parsed and parsed[2] in ("commit", "deltacommit", "replacecommit"):
            data = storage.read(info.path)
            meta = decode_commit(data, file_name, version=table.version)
            again = encode_commit(meta, version=table.version, replace=parsed[2] == "replacecommit")
            assert decode_commit(again, file_name).partition_stats.keys() == meta.partition_stats.keys()
            if data and table.version == 6:
                assert json.loads(again) == json.loads(data)
            elif data and not name.startswith("r060"):
                assert read_container(again, "") == read_container(data, "")
            count += bool(data)
    assert count
