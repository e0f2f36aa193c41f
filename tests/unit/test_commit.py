"""The protocol: instants and their files, clocks, foreign and dead writers, faults at every call."""

import itertools
import os
import time
from datetime import UTC, timedelta, timezone
from pathlib import Path

import pytest

from lakesql.errors import CommitConflict, CommitUnknown, LakeError, TableError
from lakesql.format import log
from lakesql.format.files import LogFile
from lakesql.format.metadata import decode_commit, decode_record, encode_record
from lakesql.format.timeline import instant_millis, new_instant_time
from lakesql.storage import LocalStorage
from lakesql.table import clock
from lakesql.table.state import load
from lakesql.write import commit, write
from lakesql.write import transaction as tx
from lakesql.write.takeback import plan_rollback
from tests.faulty import FaultyStorage
from tests.writing import CON, blocks_of, delete, listing, put, rows_of, rust_rows, table, upsert, values

A, B, C = ("a", "x", 1, 10), ("b", "x", 2, 10), ("c", "y", 3, 10)
NOW = instant_millis("20261101120000000", UTC)


def timeline_of(t):
    state = load(t.storage)
    return [(i.requested, i.action, i.state) for i in state.timeline.instants]


def ticking(start_ms):
    """A clock that moves on by a millisecond at each look."""
    return itertools.count(start_ms).__next__


def folder_of(t):
    return load(t.storage).timeline_folder


def instant_files(t):
    return sorted(
        f.path.rsplit("/", 1)[-1] for f in t.storage.list(folder_of(t))[0] if f.path.rsplit("/", 1)[-1][0].isdigit()
    )


# ---------------------------------------------------------------- what a commit leaves


@pytest.mark.parametrize(("type_", "action"), [("cow", "commit"), ("mor", "deltacommit")])
@pytest.mark.parametrize("version", [9, 8, 6])
def test_commit_leaves_its_three_files_and_no_traces(tmp_path, type_, action, version):
    t = table(tmp_path / "t", type_, version)
    result = upsert(t, A, C)
    i = result.instant
    inflight = f"{i}.inflight" if action == "commit" else f"{i}.{action}.inflight"
    names = instant_files(t)
    done = [n for n in names if n.endswith(f".{action}") and "_" in n] if version > 6 else [f"{i}.{action}"]
    assert set(names) == {f"{i}.{action}.requested", inflight, *done}
    assert t.storage.read(f"{folder_of(t)}/{inflight}") == b""
    if version > 6:
        assert done[0].split(".")[0].split("_")[1] > i
    assert not [f for f in listing(tmp_path / "t") if ".temp" in f or ".heartbeat" in f]


def test_commit_body_has_the_schema_the_operation_and_true_numbers(tmp_path):
    t = table(tmp_path / "t")
    upsert(t, A, B)
    result = put(t, values(("a", "x", 5, 50), ("new", "x", 1, 1)), extra={"checkpoint": "7"})
    state = load(t.storage)
    meta = state.commit(state.timeline.completed_writes()[-1])
    (stat,) = meta.partition_stats["city=x"]
    assert (meta.operation, meta.compacted, meta.extra["checkpoint"]) == ("UPSERT", False, "7")
    assert '"name":"ts"' in meta.extra["schema"]
    assert "_hoodie_commit_time" not in meta.extra["schema"]
    assert (stat.num_writes, stat.num_update_writes, stat.num_inserts, stat.num_deletes) == (3, 1, 1, 0)
    assert (
        stat.file_size_in_bytes
        == stat.total_write_bytes
        == t.storage.stat(stat.path).size_bytes
        == result.bytes_written
    )
    assert stat.prev_commit == state.timeline.completed_writes()[0].requested


def test_new_group_says_null_as_its_previous_commit(tmp_path):
    t = table(tmp_path / "t")
    upsert(t, A)
    state = load(t.storage)
    (stat,) = state.commit(state.timeline.completed_writes()[0]).partition_stats["city=x"]
    assert stat.prev_commit == "null"


@pytest.mark.parametrize("version", [9, 6])
def test_replacecommit_has_a_plan_and_an_operation_before_it_completes(tmp_path, version):
    t = table(tmp_path / "t", version=version)
    upsert(t, A)
    i = put(t, values(B), "insert_overwrite").instant
    folder = folder_of(t)
    assert decode_record(t.storage.read(f"{folder}/{i}.replacecommit.requested"), "x")["clusteringPlan"] is None
    assert decode_commit(t.storage.read(f"{folder}/{i}.replacecommit.inflight"), "x").operation == "INSERT_OVERWRITE"
    state = load(t.storage)
    replaced = state.commit(state.timeline.completed_writes()[-1]).replaced
    assert [len(ids) for ids in replaced.values()] == [1]


def test_partition_folders_say_so_before_their_first_file(tmp_path):
    t = table(tmp_path / "t", partitioned_by=["city", "v"])
    result = upsert(t, A)
    text = t.storage.read("city=x/v=1/.hoodie_partition_metadata").decode()
    assert f"commitTime={result.instant}" in text
    assert "partitionDepth=2" in text
    flat = table(tmp_path / "u", partitioned_by=[])
    upsert(flat, A)
    assert "partitionDepth=0" in flat.storage.read(".hoodie_partition_metadata").decode()


@pytest.mark.parametrize(("version", "kinds"), [(9, ["CREATE", "CREATE", "MERGE"]), (6, ["APPEND", "CREATE", "MERGE"])])
def test_markers_name_each_file_before_it_exists(tmp_path, version, kinds):
    seen = []

    class Watching(LocalStorage):
        def put(self, path, data):
            super().put(path, data)
            if path.startswith(".hoodie/.temp/"):
                target = path.split("/", 3)[3].rpartition(".marker.")
                seen.append((target[2], Path(self.data_path(target[0])).exists()))

    cow, mor = table(tmp_path / "cow", version=version), table(tmp_path / "mor", "mor", version)
    upsert(cow, A)
    upsert(mor, A)
    for one in (cow, mor):
        put(one, values(("a", "x", 2, 20)), storage=Watching(one.path))
    put(cow, values(C), storage=Watching(cow.path))
    assert sorted(kind for kind, _ in seen) == kinds
    assert not any(existed for _, existed in seen)


# ---------------------------------------------------------------- clocks and zones


def test_instants_rise_even_when_the_clock_stands_still_for_a_moment():
    times = iter([1000, 1000, 1000, 1001])
    assert clock.draw(lambda: next(times), new_instant_time(1000), UTC, "t") == new_instant_time(1001)


def test_clock_that_lags_a_little_is_waited_for(tmp_path):
    t = table(tmp_path / "t")
    ahead = int(time.time() * 1000) + 300
    put(t, values(A), clock=ticking(ahead))
    result = upsert(t, B)
    assert result.instant > new_instant_time(ahead)
    assert int(time.time() * 1000) >= ahead


def test_timeline_in_the_future_is_an_error_that_says_how_far(tmp_path):
    t = table(tmp_path / "t")
    put(t, values(A), clock=ticking(NOW + 3_600_000))
    before = listing(tmp_path)
    with pytest.raises(TableError, match=r"is 3600\.\d s ahead of this machine's clock \(20261101120000000\)"):
        put(t, values(B), clock=lambda: NOW)
    assert listing(tmp_path) == before


def unzoned(t, zone_line=""):
    path = ".hoodie/hoodie.properties"
    kept = [x for x in t.storage.read(path).decode().splitlines() if "timezone" not in x]
    t.storage.put(path, "\n".join([*kept, zone_line, ""]).encode())


@pytest.mark.parametrize("hours", [0, -8, 5])
def test_zone_of_the_writers_is_found_from_the_times_of_their_files(tmp_path, hours):
    t = table(tmp_path / "t")
    shifted = lambda: int(time.time() * 1000) + hours * 3_600_000  # noqa: E731
    put(t, values(A), clock=shifted)
    unzoned(t, "hoodie.table.timeline.timezone=LOCAL")
    result = upsert(t, B)
    expected = time.time() * 1000
    zone = timezone(timedelta(hours=hours))
    assert abs(instant_millis(result.instant, zone) - expected) < 60_000


def test_zone_that_cannot_be_told_is_refused_and_may_be_set(tmp_path):
    t = table(tmp_path / "t")
    put(t, values(A), clock=ticking(NOW))
    unzoned(t)
    for file in Path(t.path).rglob("*.requested"):
        os.utime(file, (NOW / 1000 + 90 * 86400, NOW / 1000 + 90 * 86400))
    with pytest.raises(TableError, match=r"Set hoodie.table.timeline.timezone = UTC or LOCAL"):
        put(t, values(B), clock=lambda: NOW + 10_000)
    result = put(t, values(B), clock=ticking(NOW + 10_000), settings={"hoodie.table.timeline.timezone": "UTC"})
    assert new_instant_time(NOW + 10_000) <= result.instant < new_instant_time(NOW + 10_100)


def test_zone_of_this_machine_is_used_for_a_table_without_instants(tmp_path, monkeypatch):
    monkeypatch.setenv("TZ", "America/Los_Angeles")
    time.tzset()
    try:
        t = table(tmp_path / "t")
        unzoned(t)
        moment = instant_millis("20260701120000000", UTC)
        assert put(t, values(A), clock=ticking(moment)).instant[:14] == "20260701050000"
    finally:
        monkeypatch.undo()
        time.tzset()


# ---------------------------------------------------------------- the metadata table


def with_metadata_table(t, partitions="files"):
    path = ".hoodie/hoodie.properties"
    t.storage.put(
        path, t.storage.read(path) + f"hoodie.table.metadata.partitions={partitions}\nother.key=kept\n".encode()
    )
    t.storage.put(".hoodie/metadata/files/x", b"1")
    t.storage.put(".hoodie/.index_defs/index.json", b"{}")


def test_metadata_table_is_removed_before_a_commit_and_the_result_says_so(tmp_path):
    t = table(tmp_path / "t")
    upsert(t, A)
    with_metadata_table(t, "column_stats,files")
    Path(t.path, ".hoodie/.hoodie.properties.crc").write_bytes(b"stale")
    result = upsert(t, B)
    assert "metadata table (partitions: column_stats, files) was removed" in result.notes[0]
    properties = load(t.storage).config.properties
    assert "hoodie.table.metadata.partitions" not in properties
    assert properties["other.key"] == "kept"
    left = listing(t.path)
    assert not [f for f in left if "metadata/" in f or "index_defs" in f or f.endswith(".crc")]
    assert rust_rows(t) == [A, B]


def test_metadata_table_stays_when_nothing_is_written(tmp_path):
    t = table(tmp_path / "t")
    upsert(t, A)
    with_metadata_table(t)
    assert upsert(t, ("a", "x", 0, 1)).instant is None
    assert ".hoodie/metadata/files/x" in listing(t.path)


def test_version_6_metadata_table_is_not_removed_while_a_compaction_is_pending(tmp_path):
    t = table(tmp_path / "t", "mor", 6)
    upsert(t, A)
    with_metadata_table(t)
    t.storage.put(
        ".hoodie/20991231000000000.compaction.requested",
        encode_record("HoodieCompactionPlan", {"operations": [], "extraMetadata": {}, "version": 2}),
    )
    with pytest.raises(CommitConflict, match="compaction 20991231000000000 is pending"):
        upsert(t, C)
    assert ".hoodie/metadata/files/x" in listing(t.path)


def test_metadata_table_built_while_we_write_is_a_conflict(tmp_path):
    t = table(tmp_path / "t")
    upsert(t, A)

    class Meddling(LocalStorage):
        def sink(self, path):
            with_metadata_table(t)
            return super().sink(path)

    with pytest.raises(CommitConflict, match="another writer built a metadata table"):
        put(t, values(B), storage=Meddling(t.path))
    assert rows_of(t) == [A]
    assert not [f for f in listing(t.path) if ".temp" in f or "heartbeat" in f]


# ---------------------------------------------------------------- other writers


def test_writers_take_turns_by_the_lock(tmp_path):
    t = table(tmp_path / "t")
    with t.storage.lock("lakesql", 1), pytest.raises(CommitConflict):
        upsert(t, A, settings={"hoodie.write.lock.wait_time_ms": "50"})
    assert upsert(t, A).instant


def test_commit_of_another_engine_to_our_group_in_between_is_a_conflict(tmp_path):
    t = table(tmp_path / "t")
    upsert(t, A)

    class Meddling(LocalStorage):
        busy = False

        def sink(self, path):
            if not self.busy:
                self.busy = True
                foreign_commit(t, "20990101000000000")
            return super().sink(path)

    with pytest.raises(CommitConflict, match=r"was changed by commit 20990101000000000 after this write read it"):
        put(t, values(("a", "x", 5, 50)), storage=Meddling(t.path))
    assert not [
        n for n in instant_files(t) if "requested" in n and "2099" not in n and n.split(".")[0] not in committed(t)
    ]


def committed(t):
    return {i.requested for i in load(t.storage).timeline.completed_writes()}


def foreign_commit(t, instant):
    """A completed commit that names the group of partition x, by whoever does not know our lock."""
    state = load(t.storage)
    last = state.timeline.completed_writes()[-1]
    body = t.storage.read(f"{state.timeline_folder}/{last.file_name}")
    for name in (f"{instant}.commit.requested", f"{instant}.inflight"):
        t.storage.put(f"{state.timeline_folder}/{name}", b"")
    t.storage.put(f"{state.timeline_folder}/{instant}_{int(instant) + 1}.commit", body)


def test_instant_that_was_rolled_back_under_us_is_a_conflict(tmp_path):
    t = table(tmp_path / "t")
    upsert(t, A)

    class Meddling(LocalStorage):
        def sink(self, path):
            for info in self.list(".hoodie/timeline")[0]:
                if info.path.endswith(".inflight") and info.path.rsplit("/", 1)[-1].split(".")[0] not in done:
                    self.delete(info.path)
            return super().sink(path)

    done = committed(t)
    with pytest.raises(CommitConflict, match="another writer rolled our commit"):
        put(t, values(B), storage=Meddling(t.path))
    assert rows_of(t) == [A]


def pending(t, instant, action="commit", age_s=0.0, content=b""):
    """A foreign pending write: requested, inflight, and one stray base file."""
    folder = folder_of(t)
    inflight = f"{instant}.inflight" if action == "commit" else f"{instant}.{action}.inflight"
    stray = f"city=x/stray-0_0-0-1_{instant}.parquet"
    paths = [f"{folder}/{instant}.{action}.requested", f"{folder}/{inflight}", stray]
    for path in paths:
        t.storage.put(path, content)
        then = time.time() - age_s
        os.utime(t.storage.data_path(path), (then, then))
    return stray


@pytest.mark.parametrize("version", [9, 6])
def test_young_write_of_another_engine_is_waited_for(tmp_path, version):
    t = table(tmp_path / "t", version=version)
    upsert(t, A)
    pending(t, new_instant_time(int(time.time() * 1000)))
    with pytest.raises(
        CommitConflict, match=r"another writer's commit .* is in progress \(last sign of life \d+ s ago\)"
    ):
        upsert(t, B)
    assert rows_of(t) == [A]


@pytest.mark.parametrize("version", [9, 6])
@pytest.mark.parametrize("type_", ["cow", "mor"])
def test_dead_write_of_another_engine_is_rolled_back(tmp_path, type_, version):
    t = table(tmp_path / "t", type_, version)
    upsert(t, A)
    instant = new_instant_time(int(time.time() * 1000))
    stray = pending(t, instant, "commit" if type_ == "cow" else "deltacommit", age_s=600)
    result = upsert(t, B)
    assert result.notes == (f"Rolled back the unfinished write {instant} of a dead writer.",)
    assert stray not in listing(t.path)
    assert rows_of(t) == rust_rows(t) == [A, B]
    state = load(t.storage)
    (rollback,) = [i for i in state.timeline.instants if i.action == "rollback"]
    assert rollback.is_completed
    record = decode_record(t.storage.read(f"{state.timeline_folder}/{rollback.file_name}"), "x")
    assert record["commitsRollback"] == [instant]
    assert record["partitionMetadata"]["city=x"]["successDeleteFiles"] == [f"{t.path}/{stray}"]
    plan = decode_record(t.storage.read(f"{state.timeline_folder}/{rollback.requested}.rollback.requested"), "x")
    assert plan["instantToRollback"]["commitTime"] == instant
    assert instant < rollback.requested < result.instant


def test_pending_compaction_and_clustering_are_never_rolled_back(tmp_path):
    t = table(tmp_path / "t", "mor")
    upsert(t, A)
    compaction = encode_record("HoodieCompactionPlan", {"operations": [], "extraMetadata": {}, "version": 2})
    clustering = encode_record(
        "HoodieRequestedReplaceMetadata", {"operationType": "CLUSTER", "clusteringPlan": {"inputGroups": []}}
    )
    old = [
        ("20260101000000000.compaction.requested", compaction),
        ("20260102000000000.clustering.requested", clustering),
    ]
    for name, body in old:
        t.storage.put(f".hoodie/timeline/{name}", body)
    upsert(t, B)
    assert {name for name, _ in old} <= set(instant_files(t))


def test_version_6_clustering_is_told_from_an_overwrite_by_its_plan(tmp_path):
    t = table(tmp_path / "t", version=6)
    upsert(t, A)
    clustering = encode_record(
        "HoodieRequestedReplaceMetadata", {"operationType": "CLUSTER", "clusteringPlan": {"inputGroups": []}}
    )
    overwrite = encode_record("HoodieRequestedReplaceMetadata", {})
    t.storage.put(".hoodie/20260102000000000.replacecommit.requested", clustering)
    t.storage.put(".hoodie/20260103000000000.replacecommit.requested", overwrite)
    os.utime(t.storage.data_path(".hoodie/20260103000000000.replacecommit.requested"), (0, 0))
    upsert(t, B)
    assert "20260102000000000.replacecommit.requested" in instant_files(t)
    assert "20260103000000000.replacecommit.requested" not in instant_files(t)


def test_unfinished_restore_blocks_writing(tmp_path):
    t = table(tmp_path / "t")
    upsert(t, A)
    t.storage.put(".hoodie/timeline/20260101000000000.restore.requested", b"")
    with pytest.raises(CommitConflict, match="restore 20260101000000000 is not finished"):
        upsert(t, B)


# ---------------------------------------------------------------- our own dead writes


def die(t, rows, fail_at, how="before", operation="upsert"):
    """Write with a process that dies at that storage call; the number of calls when it did not get that far."""
    storage = FaultyStorage(LocalStorage(t.path), fail_at, how)
    try:
        put(t, rows, operation, storage=storage)
    except (OSError, LakeError) as error:
        return error
    return len(storage.calls) if not storage.failed else None


@pytest.mark.parametrize("version", [9, 6])
def test_version_6_answers_a_dead_log_block_with_a_command_block(tmp_path, version):
    for n in range(1, 60):
        t = table(tmp_path / f"t{n}", "mor", version)
        upsert(t, A, C)
        die(t, values(("a", "x", 9, 90)), n, "after")
        if any(isinstance(f, LogFile) for f in load(t.storage).files):
            break
    assert len(load(t.storage).timeline.pending("deltacommit")) == 1
    upsert(t, ("c", "y", 4, 40))
    assert rows_of(t) == rust_rows(t) == [A, ("c", "y", 4, 40)]
    kinds = [
        b.kind
        for b in blocks_of(t)
        if b.headers[log.INSTANT_TIME] != load(t.storage).timeline.completed_writes()[-1].requested
    ]
    assert kinds == ([log.AVRO, log.COMMAND] if version == 6 else [])
    upsert(t, ("a", "x", 5, 50))
    assert rows_of(t) == rust_rows(t) == [("a", "x", 5, 50), ("c", "y", 4, 40)]


@pytest.mark.parametrize(
    ("type_", "version", "operation", "how"),
    [
        ("cow", 9, "upsert", "torn"),
        ("mor", 9, "upsert", "after"),
        ("mor", 6, "upsert", "after"),
        ("cow", 6, "insert_overwrite", "before"),
    ],
)
def test_process_death_at_any_call_leaves_the_old_state_or_the_new(tmp_path, type_, version, operation, how):
    old = [A, C]
    rows = values(("a", "x", 9, 90), ("n", "x", 1, 1))
    new = sorted([("a", "x", 9, 90), C, ("n", "x", 1, 1)])
    for n in range(1, 200):
        t = table(tmp_path / f"t{n}", type_, version)
        upsert(t, A, C)
        outcome = die(t, rows, n, how, operation)
        seen = rows_of(t)
        assert seen in (old, new)
        if isinstance(outcome, CommitUnknown):
            assert seen == (new if how == "after" else old)
        if isinstance(outcome, int):
            assert seen == new
            break
        upsert(t, ("z", "y", 7, 7))
        assert rows_of(t) == rust_rows(t) == sorted([*seen, ("z", "y", 7, 7)])
        state = load(t.storage)
        assert not [i for i in state.timeline.instants if not i.is_completed]
        assert not [f for f in state.files if f.instant not in committed(t) and version > 6]
        assert not [f for f in listing(t.path) if ".temp/" in f and state.timeline.newest_time not in f and seen == old]
    else:
        pytest.fail("the write never finished")


@pytest.mark.parametrize("how", ["before", "after"])
@pytest.mark.parametrize("type_", ["cow", "mor"])
def test_single_failed_call_is_cleaned_up_at_once(tmp_path, how, type_):
    t = table(tmp_path / "t", type_)
    upsert(t, A, C)
    clean = listing(t.path)
    for n in range(1, 200):
        storage = FaultyStorage(LocalStorage(t.path), n, how, kinds=("put", "list", "read"), dead=False)
        try:
            put(t, values(("a", "x", 9, 90), ("n", "x", 1, 1)), storage=storage)
            break
        except (OSError, LakeError):
            assert rows_of(t) == [A, C]
            assert listing(t.path) == clean
    assert rows_of(t) == [("a", "x", 9, 90), C, ("n", "x", 1, 1)]


def test_lost_answer_is_settled_by_a_look_at_the_timeline(tmp_path):
    t = table(tmp_path / "t")

    class Deaf(LocalStorage):
        def put_if_absent(self, path, data):
            done = super().put_if_absent(path, data)
            if path.endswith(".commit"):
                raise OSError("connection reset")
            return done

    assert put(t, values(A), storage=Deaf(t.path)).instant in committed(t)
    assert rows_of(t) == [A]


def test_a_put_that_arrives_at_a_store_after_the_last_look_is_unknown_and_its_files_stay(tmp_path, monkeypatch):
    monkeypatch.setattr(commit, "_LATE_S", (0.0,))
    t = table(tmp_path / "t")
    upsert(t, A)

    class Late(LocalStorage):
        remote = True
        on_its_way = None

        def put_if_absent(self, path, data):
            if path.endswith(".commit"):
                Late.on_its_way = path, data
                raise TimeoutError("no answer")
            return super().put_if_absent(path, data)

    with pytest.raises(
        CommitUnknown, match=r"may still arrive. Nothing was deleted. Look later whether .*\.commit exists"
    ):
        put(t, values(B), storage=Late(t.path))
    assert rows_of(t) == [A]
    assert LocalStorage(t.path).put_if_absent(*Late.on_its_way)
    assert rows_of(t) == [A, B]


def test_refused_completion_is_a_conflict_and_cleaned_up(tmp_path):
    t = table(tmp_path / "t")
    upsert(t, A)
    clean = listing(t.path)

    class Full(LocalStorage):
        def put_if_absent(self, path, data):
            if path.endswith(".commit"):
                raise OSError("no space left")
            return super().put_if_absent(path, data)

    with pytest.raises(
        CommitConflict, match=r"storage refused to complete commit \d+ \(no space left\). Nothing was committed"
    ):
        put(t, values(B), storage=Full(t.path))
    assert listing(t.path) == clean


def test_lost_answer_with_a_blind_timeline_is_unknown_and_nothing_is_deleted(tmp_path):
    t = table(tmp_path / "t")
    upsert(t, A)

    class Lost(LocalStorage):
        gone = False

        def put_if_absent(self, path, data):
            done = super().put_if_absent(path, data)
            if path.endswith(".commit"):
                self.gone = True
                raise OSError("connection reset")
            return done

        def read(self, path, start=0, length=None):
            if self.gone:
                raise OSError("no route to host")
            return super().read(path, start, length)

    with pytest.raises(CommitUnknown, match=r"Look whether \.hoodie/timeline/.*\.commit exists"):
        put(t, values(B), storage=Lost(t.path))
    assert rows_of(t) == [A, B]
    assert upsert(t, C).notes == ()


@pytest.mark.parametrize("type_", ["cow", "mor"])
@pytest.mark.parametrize("version", [9, 6])
def test_interrupt_after_completing_deletes_nothing_and_before_it_everything(tmp_path, type_, version):
    t = table(tmp_path / "t", type_, version)
    upsert(t, A)

    class Interrupted(LocalStorage):
        def put_if_absent(self, path, data):
            completes = path.endswith((".commit", ".deltacommit"))
            if completes and not self.after:
                raise KeyboardInterrupt
            done = super().put_if_absent(path, data)
            if completes:
                raise KeyboardInterrupt
            return done

    for after, new, expected in [(False, B, [A]), (True, B, [A, B]), (False, C, [A, B]), (True, C, [A, B, C])]:
        storage = Interrupted(t.path)
        storage.after = after
        before = listing(t.path)
        with pytest.raises(KeyboardInterrupt):
            put(t, values(new), storage=storage)
        assert rows_of(t) == expected
        if not after:
            assert {f for f in listing(t.path) if "partition_metadata" not in f} <= before
        assert not load(t.storage).timeline.pending("commit", "deltacommit")
    assert upsert(t, ("a", "x", 9, 90)).notes == ()


def test_interrupted_rollback_is_taken_up_with_its_own_instant(tmp_path):
    t = table(tmp_path / "t")
    upsert(t, A)
    instant = new_instant_time(int(time.time() * 1000))
    pending(t, instant, age_s=600)
    for n in range(1, 40):
        if die(t, values(B), n, "after") is None or any(
            i.action == "rollback" for i in load(t.storage).timeline.instants
        ):
            break
    (begun,) = [i.requested for i in load(t.storage).timeline.pending("rollback")]
    upsert(t, B)
    rollbacks = [(i.requested, i.is_completed) for i in load(t.storage).timeline.instants if i.action == "rollback"]
    assert rollbacks == [(begun, True)]


def test_rollback_plan_is_a_value_that_names_the_files(tmp_path):
    t = table(tmp_path / "t")
    upsert(t, A)
    instant = "20260101000000000"
    stray = pending(t, instant, age_s=600)
    state = load(t.storage)
    plan = plan_rollback(state, state.timeline.pending("commit")[0])
    assert [f.path for f in plan.files] == [stray]
    assert plan.commands == ()


def test_begin_draws_again_when_its_instant_is_taken(tmp_path):
    t = table(tmp_path / "t")
    state = load(t.storage)
    times = iter([NOW, NOW + 5])
    t.storage.put(f".hoodie/timeline/{new_instant_time(NOW)}.commit.requested", b"")  # since we looked
    txn = commit.begin(state, "commit", "UPSERT", lambda: next(times), UTC)
    assert txn.instant == new_instant_time(NOW + 5)
    commit.abort(txn)
    assert t.storage.stat(tx.heartbeat_path(txn.instant)) is None


def test_failed_write_after_delete_of_everything_keeps_the_rows(tmp_path):
    t = table(tmp_path / "t")
    upsert(t, A)
    storage = FaultyStorage(LocalStorage(t.path), 0)
    write(CON, load(storage), "SELECT 'a' AS id, 'x' AS city", operation="delete")
    assert rows_of(t) == []
    delete(t, ("a", "x"))
    assert len(timeline_of(t)) == 2


def test_interrupt_right_after_the_commit_deletes_nothing(tmp_path, monkeypatch):
    t = table(tmp_path)
    complete = commit.complete

    def interrupted(*arguments):
        complete(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(commit, "complete", interrupted)
    with pytest.raises(KeyboardInterrupt):
        upsert(t, A)
    monkeypatch.undo()
    assert len(load(t.storage).timeline.completed_writes()) == 1
    assert len(rows_of(t)) == 1
