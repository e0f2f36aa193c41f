"""The archived timeline of both layouts (hudi-format 2.9, 2.10)."""

import io
import json
import struct
from collections.abc import Mapping
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakesql.errors import FormatError, TableError
from lakesql.format.metadata import (
    PLAN_SCHEMAS,
    CommitMetadata,
    TableConfig,
    WriteStat,
    encode_commit,
    encode_record,
    format_properties,
    new_table_properties,
)
from lakesql.format.timeline import Timeline
from lakesql.storage import MemoryStorage
from lakesql.table.archive import read_archived
from tests.zipped import open_zip

T1, T2, T3, T4, T5, T6 = (f"2026113001000{n}000" for n in range(1, 7))
HISTORY = ".hoodie/timeline/history"
CONTENT = CommitMetadata({"": (WriteStat(file_id="f-0", path="f-0.parquet"),)}, "INSERT", {"schema": "{}"}, False)


def config(version: int) -> TableConfig:
    properties = new_table_properties(
        name="t",
        table_type="MERGE_ON_READ",
        version=version,
        record_key_fields=["id"],
        partition_fields=[],
        ordering_fields=[],
        merge_mode="COMMIT_TIME_ORDERING",
        schema_json="{}",
    )
    return TableConfig.from_text(format_properties(properties, ""), "t")


# --- layout 2 ---


def row(t: str, c: str | None, action: str, metadata: bytes | None, plan: bytes | None = None) -> dict[str, Any]:
    return {"instantTime": t, "completionTime": c, "action": action, "metadata": metadata, "plan": plan, "version": 1}


def parquet(*rows: dict[str, Any], drop: str = "") -> bytes:
    types = {"metadata": pa.binary(), "plan": pa.binary(), "version": pa.int32()}
    names = ("instantTime", "completionTime", "action", "metadata", "plan", "version")
    schema = pa.schema([(name, types.get(name, pa.string())) for name in names if name != drop])
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(list(rows), schema), sink)
    return sink.getvalue()


def history(*files: tuple[str, bytes], number: int = 1, version: str | None = "1") -> MemoryStorage:
    storage = MemoryStorage()
    for name, data in files:
        storage.put(f"{HISTORY}/{name}", data)
    listed = [{"fileName": name, "fileLen": len(data)} for name, data in files]
    storage.put(f"{HISTORY}/manifest_{number}", json.dumps({"files": listed}).encode())
    if version is not None:
        storage.put(f"{HISTORY}/_version_", version.encode())
    return storage


COMMIT = encode_commit(CONTENT, version=9, replace=False)
PLAN = encode_record("HoodieCompactionPlan", {})


def test_a_table_without_archive_has_no_archived_instants() -> None:
    assert read_archived(MemoryStorage(), config(9)) == []
    assert read_archived(MemoryStorage(), config(6)) == []


def test_rows_of_the_history_become_completed_instants_with_their_logical_action() -> None:
    clustered = encode_commit(CommitMetadata(operation="CLUSTER", replaced={"": ("f-0",)}), version=9, replace=True)
    replaced = encode_commit(CommitMetadata(operation="INSERT_OVERWRITE"), version=9, replace=True)
    storage = history(
        (
            f"{T1}_{T4}_0.parquet",
            parquet(
                row(T4, T5, "replacecommit", clustered, b"x"),
                row(T1, T2, "deltacommit", COMMIT),
                row(T2, T3, "commit", COMMIT, PLAN),
            ),
        ),
        (
            f"{T5}_{T6}_0.parquet",
            parquet(
                row(T5, T6, "clean", b"clean", b"plan"),
                row(T6, None, "replacecommit", replaced),
                row(T3, T4, "deltacommit", b""),
            ),
        ),
    )
    found = read_archived(storage, config(9))
    assert [(a.instant.requested, a.instant.action, a.instant.completed) for a in found] == [
        (T1, "deltacommit", T2),
        (T2, "compaction", T3),
        (T3, "deltacommit", T4),
        (T4, "clustering", T5),
        (T5, "clean", T6),
        (T6, "replacecommit", T6),
    ]
    assert [a.instant.file_name for a in found][:2] == [f"{T1}_{T2}.deltacommit", f"{T2}_{T3}.commit"]
    assert found[0].metadata is not None
    assert found[0].metadata.partition_stats[""][0].path == "f-0.parquet"
    assert found[2].metadata == CommitMetadata()
    assert found[3].metadata is not None
    assert found[3].metadata.replaced == {"": ("f-0",)}
    assert found[4].metadata is None


def test_only_files_of_the_current_manifest_count() -> None:
    storage = history((f"{T1}_{T1}_0.parquet", parquet(row(T1, T2, "commit", COMMIT))), number=2, version="2\n")
    storage.put(f"{HISTORY}/{T3}_{T3}_0.parquet", parquet(row(T3, T4, "commit", COMMIT)))
    storage.put(f"{HISTORY}/manifest_10", b"half written")
    assert [a.instant.requested for a in read_archived(storage, config(9))] == [T1]


def test_without_a_version_file_the_largest_manifest_counts() -> None:
    storage = history((f"{T1}_{T1}_0.parquet", parquet(row(T1, T2, "commit", COMMIT))), number=10, version=None)
    storage.put(f"{HISTORY}/manifest_9", b'{"files":[]}')
    assert [a.instant.requested for a in read_archived(storage, config(9))] == [T1]


def test_an_instant_in_two_files_is_listed_once() -> None:
    data = parquet(row(T1, T2, "commit", COMMIT))
    storage = history((f"{T1}_{T1}_0.parquet", data), (f"{T1}_{T1}_1.parquet", data))
    assert len(read_archived(storage, config(9))) == 1


def test_archive_files_are_read_once() -> None:
    storage = history((f"{T1}_{T1}_0.parquet", parquet(row(T1, T2, "commit", COMMIT))))
    storage.uri = "memory://read-once"
    first = read_archived(storage, config(9))
    before = storage.requests["read"]
    assert read_archived(storage, config(9)) == first
    assert storage.requests["read"] - before == 2  # _version_ and the manifest


def test_the_cache_of_archive_files_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakesql.table.archive._CACHED_FILES_MAX", 1)
    names = (f"{T1}_{T1}_0.parquet", f"{T2}_{T2}_0.parquet")
    storage = history(*((name, parquet(row(name[:17], T3, "commit", COMMIT))) for name in names))
    storage.uri = "memory://bounded"
    assert len(read_archived(storage, config(9))) == 2
    before = storage.requests["read"]
    assert len(read_archived(storage, config(9))) == 2
    assert storage.requests["read"] - before == 4


def test_files_that_a_merge_took_away_are_looked_for_in_the_next_manifest() -> None:
    merged = (f"{T1}_{T1}_1.parquet", parquet(row(T1, T2, "commit", COMMIT)))
    storage = history(merged)
    current = storage.read(f"{HISTORY}/manifest_1")
    storage.put(f"{HISTORY}/manifest_1", b'{"files":[{"fileName":"gone_0.parquet"}]}')
    reads: list[str] = []

    class Racing(MemoryStorage):
        def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
            data = super().read(path, start, length)
            reads.append(path)
            if path.endswith("manifest_1"):
                self.put(path, current)
            return data

    racing = Racing("racing")
    racing.files = storage.files
    assert [a.instant.requested for a in read_archived(racing, config(9))] == [T1]


@pytest.mark.parametrize(
    ("path", "data", "error", "text"),
    [
        (
            "manifest_1",
            b'{"files":[{"fileName":"gone.parquet"}]}',
            TableError,
            "names gone.parquet, which is not there",
        ),
        ("manifest_1", b"{", FormatError, "manifest_1 is no manifest"),
        ("manifest_1", b'{"files":[{}]}', FormatError, "manifest_1 is no manifest"),
        ("manifest_1", b"[]", FormatError, "manifest_1 is no manifest"),
        ("_version_", b"7", FormatError, "_version_ says 7, but there is no"),
        ("a.parquet", b"PAR1", FormatError, "no readable archived timeline"),
        (
            "a.parquet",
            parquet(row(T1, T2, "commit", COMMIT), drop="plan"),
            FormatError,
            "no readable archived timeline .*plan",
        ),
        ("a.parquet", parquet(row("", T2, "commit", COMMIT)), FormatError, "a row without instantTime or action"),
        ("a.parquet", parquet(row(T1, T2, "replacecommit", b"PAR1")), FormatError, rf"a\.parquet \(instant {T1}\)"),
    ],
)
def test_a_damaged_history_is_explained(path: str, data: bytes, error: type[Exception], text: str) -> None:
    storage = history(("a.parquet", parquet(row(T1, T2, "commit", COMMIT))))
    storage.uri = f"memory://damaged-{hash((path, data))}"
    storage.put(f"{HISTORY}/{path}", data)
    with pytest.raises(error, match=text):
        read_archived(storage, config(9))


def test_damaged_commit_metadata_shows_when_it_is_asked_for() -> None:
    storage = history(("a.parquet", parquet(row(T1, T2, "commit", b"PAR1"))))
    storage.uri = "memory://damaged-commit"
    (found,) = read_archived(storage, config(9))
    with pytest.raises(FormatError, match=rf"a\.parquet \(instant {T1}\): expected commit metadata"):
        _ = found.metadata


def test_the_history_of_a_real_table_continues_its_active_timeline() -> None:
    storage = open_zip("r060_cow_v8_archived")
    table = TableConfig.from_text(storage.read(".hoodie/hoodie.properties").decode("latin-1"), "x")
    archived = read_archived(storage, table)
    names = [info.path.rpartition("/")[2] for info in storage.list(table.timeline_folder)[0]]
    timeline = Timeline.from_file_names(names, 2).with_archived([a.instant for a in archived])
    assert len(timeline.archived) == 6
    assert len(timeline.completed_writes()) == 10
    assert all(a.metadata is not None and a.metadata.partition_stats for a in archived)


# --- layout 1 ---

STRING = ["null", "string"]
ENTRY: dict[str, Any] = {
    "type": "record",
    "name": "HoodieArchivedMetaEntry",
    "namespace": "org.apache.hudi.avro.model",
    "fields": [
        {"name": "hoodieCommitMetadata", "type": ["null", PLAN_SCHEMAS["HoodieCommitMetadata"]], "default": None},
        {"name": "commitTime", "type": STRING, "default": None},
        {"name": "actionType", "type": STRING, "default": None},
        {"name": "actionState", "type": STRING, "default": None},
    ],
}


def entry(t: str, action: str, state: str | None, file_id: str | None = None) -> dict[str, Any]:
    stats = {"": [{"fileId": file_id}]} if file_id else None
    commit = {"partitionToWriteStats": stats, "operationType": "UPSERT"} if "commit" in action else None
    return {"hoodieCommitMetadata": commit, "commitTime": t, "actionType": action, "actionState": state}


def block(*entries: Mapping[str, Any], kind: int = 3, schema: str | None = None, cut: int = 0) -> bytes:
    """A log block as the archiver writes it: the schema is its only header."""
    parsed = fastavro.parse_schema(ENTRY)
    content = struct.pack(">ii", 3, len(entries))
    for one in entries:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, dict(one))
        content += struct.pack(">i", len(stream.getvalue())) + stream.getvalue()
    content = content[: len(content) - cut]
    text = (json.dumps(ENTRY) if schema is None else schema).encode()
    headers = struct.pack(">iii", 1, 2, len(text)) + text
    body = struct.pack(">ii", 1, kind) + headers + struct.pack(">q", len(content)) + content + struct.pack(">i", 0)
    size = len(body) + 8
    return b"#HUDI#" + struct.pack(">q", size) + body + struct.pack(">q", size + 6)


def archive(uri: str, *files: tuple[str, bytes]) -> MemoryStorage:
    storage = MemoryStorage(uri)
    for name, data in files:
        storage.put(f".hoodie/archived/{name}", data)
    return storage


def states(t: str, action: str, done: str, file_id: str | None = None) -> list[dict[str, Any]]:
    return [entry(t, action, "REQUESTED"), entry(t, action, "INFLIGHT"), entry(t, done, "COMPLETED", file_id)]


def test_state_records_of_version_6_become_completed_instants() -> None:
    first = block(*states(T1, "deltacommit", "deltacommit", "f-1"), *states(T2, "compaction", "commit", "f-2"))
    second = block(*states(T3, "clean", "clean")) + block(*states(T4, "commit", "commit", "f-4"))
    storage = archive(
        "v6",
        (".commits_.archive.2_1-0-1", second),
        (".commits_.archive.1_1-0-1", first),
        ("commits", b"another file"),
    )
    found = read_archived(storage, config(6))
    assert [(a.instant.requested, a.instant.action, a.instant.file_name) for a in found] == [
        (T1, "deltacommit", f"{T1}.deltacommit"),
        (T2, "compaction", f"{T2}.commit"),
        (T3, "clean", f"{T3}.clean"),
        (T4, "commit", f"{T4}.commit"),
    ]
    assert [a.metadata and a.metadata.partition_stats[""][0].file_id for a in found] == ["f-1", "f-2", None, "f-4"]


def test_an_instant_that_was_archived_before_completion_is_left_out() -> None:
    storage = archive("v6-pending", (".commits_.archive.1_1-0-1", block(*states(T1, "commit", "commit")[:2])))
    assert read_archived(storage, config(6)) == []


def test_old_records_without_a_state_are_completed_ones() -> None:
    storage = archive("v6-old", (".commits_.archive.1", block(entry(T1, "commit", None))))
    (found,) = read_archived(storage, config(6))
    assert found.instant.is_completed


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (block(entry("", "commit", "COMPLETED")), "no state of an instant"),
        (block(entry(T1, "unknown", "COMPLETED")), "no state of an instant"),
        (block(entry(T1, "commit", "DONE")), "no state of an instant"),
        (block(entry(T1, "savepoint", "REQUESTED")), "no state of an instant"),
        (block(entry(T1, "commit", "COMPLETED"), kind=1), "block of kind 1 at offset 0"),
        (block(entry(T1, "commit", "COMPLETED"), schema="{"), "block at offset 0 is damaged"),
        (block(entry(T1, "commit", "COMPLETED"), cut=3), "block at offset 0 is damaged"),
        (block(entry(T1, "commit", "COMPLETED"), cut=10_000), "block at offset 0 is damaged"),
    ],
)
def test_a_damaged_archive_of_version_6_is_a_format_error(data: bytes, text: str) -> None:
    storage = archive(f"v6-{hash(data)}", (".commits_.archive.1_1-0-1", data))
    with pytest.raises(FormatError, match=text):
        read_archived(storage, config(6))
