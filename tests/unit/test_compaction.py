"""Compaction folds logs into base files and changes no row, whatever happens in between."""

import contextlib
import shutil
import threading
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import lakesql
from lakesql.errors import CommitConflict, LakeError, TableError
from lakesql.format.files import BaseFile
from lakesql.format.metadata import encode_record
from lakesql.services import compaction, compaction_files
from lakesql.storage import LocalStorage
from lakesql.table.state import load
from tests import writing
from tests.faulty import HOW, FaultyStorage
from tests.writing import CON, delete, listing, rows_of, rust_rows, stats_of, table, upsert

ALL = "id, city, v, ts, _hoodie_commit_time, _hoodie_commit_seqno, _hoodie_record_key, _hoodie_partition_path"


def logged(path, version=9, **more):
    """a updated, b deleted, c untouched in y, d new in the log of x (or a small file, as the writer decides)."""
    t = table(path, "mor", version, **more)
    upsert(t, ("a", "x", 1, 1), ("b", "x", 1, 1), ("e", "x", 1, 1), ("c", "y", 1, 1))
    upsert(t, ("a", "x", 2, 2), ("c", "y", 2, 2))
    delete(t, ("b", "x"))
    return t


def copied(t, path):
    shutil.copytree(t.path, path)
    return load(LocalStorage(str(path)))


def compact(t, **settings):
    return compaction.compact(CON, t.storage, settings)


def newest(t):
    now = load(t.storage)
    instant = max(now.timeline.completed_writes(), key=lambda i: i.requested)
    return instant, now.commit(instant)


@pytest.mark.parametrize("version", [9, 8, 6])
@pytest.mark.parametrize("event", [True, False])
def test_rows_and_their_commit_times_stay(tmp_path, version, event):
    t = logged(tmp_path / "t", version, event=event)
    before = rows_of(t, ALL)
    instants = [i.requested for i in load(t.storage).timeline.completed_writes()]
    done = compact(t)
    assert (done.file_groups, done.log_files, len(done.instants)) == (2, 3, 1)
    assert rows_of(t, ALL) == before
    assert rows_of(t) == rust_rows(t)
    assert not any(s.logs for s in load(t.storage).slices())
    handle = lakesql.open_table(t.path)
    assert handle.read(as_of=instants[0]).read_all()["v"].to_pylist() == [1, 1, 1, 1]
    assert handle.read(mode="read_optimized").read_all().num_rows == len(before)
    upsert(t, ("a", "x", 9, 9), ("n", "z", 1, 1))
    assert rows_of(t) == rust_rows(t)
    assert ("a", "x", 9, 9) in rows_of(t)
    assert compact(t).file_groups == 1
    assert compact(t).instant is None


def test_commit_metadata_says_what_was_folded(tmp_path):
    t = logged(tmp_path / "t")
    base = {b.partition: b for b in load(t.storage).base_files()}
    done = compact(t)
    instant, commit = newest(t)
    assert (instant.requested, instant.action, commit.operation) == (done.instant, "compaction", "COMPACT")
    assert commit.compacted
    assert "schema" in commit.extra
    stat = commit.partition_stats["city=x"][0]
    assert (stat.num_writes, stat.num_update_writes, stat.num_deletes, stat.num_inserts) == (2, 1, 1, 0)
    assert (stat.total_log_files_compacted, stat.total_log_blocks, stat.total_log_records) == (2, 2, 2)
    assert (stat.total_updated_records_compacted, stat.total_corrupt_log_block, stat.total_rollback_blocks) == (2, 0, 0)
    assert (stat.prev_commit, stat.prev_base_file) == (base["city=x"].instant, base["city=x"].name)
    assert stat.file_size_in_bytes == Path(t.path, str(stat.path)).stat().st_size
    assert done.bytes_written == sum(s.file_size_in_bytes or 0 for s in stats_of(t))


def test_updated_rows_keep_their_place_and_the_filter(tmp_path):
    t = logged(tmp_path / "t")
    filters = [_footer(t, b) for b in load(t.storage).base_files()]
    compact(t)
    bases = load(t.storage).base_files()
    assert [_footer(t, b) for b in bases] == filters
    keys = [
        pq.read_table(t.storage.data_path(b.path), partitioning=None)["_hoodie_record_key"].to_pylist() for b in bases
    ]
    assert keys == [["a", "e"], ["c"]]


def _footer(t, base):
    return pq.read_metadata(t.storage.data_path(base.path)).metadata[b"org.apache.hudi.bloomfilter"]


def test_new_keys_of_a_log_are_in_the_filter(tmp_path):
    t = table(tmp_path / "t", "mor")
    for n in range(4):  # bucket-like: the keys go into the log of an existing group
        writing.put(
            t,
            writing.values((f"k{n}", "x", n, n)),
            settings={"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "1"},
        )
    assert [len(s.logs) for s in load(t.storage).slices()] == [3]
    compact(t)
    found = lakesql.open_table(t.path)
    settings = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "1"}
    assert (
        found.upsert(writing.CON.sql(writing.values(("k3", "x", 9, 9))).to_arrow_table(), **settings).rows_updated == 1
    )
    assert len(rows_of(t)) == 4


@pytest.mark.parametrize("version", [9, 8])
def test_writes_after_scheduling_belong_to_the_next_slice(tmp_path, version):
    t = logged(tmp_path / "t", version)
    planned = compaction.schedule(t.storage, {})
    assert compaction.schedule(t.storage, {}).instant is None  # every group with logs is in a plan
    upsert(t, ("a", "x", 5, 5), ("b", "x", 5, 5))
    delete(t, ("e", "x"))
    want = rows_of(t, ALL)
    assert rows_of(t) == rust_rows(t)
    done = compaction.run(CON, t.storage, {})
    assert (done.instant, done.log_files) == (planned.instant, 3)
    assert rows_of(t, ALL) == want
    assert rows_of(t) == rust_rows(t)
    assert [len(s.logs) for s in load(t.storage).slices() if s.partition == "city=x"] == [2]
    compact(t)
    assert rows_of(t, ALL) == want


def test_target_partitions_limit_a_plan(tmp_path):
    t = logged(tmp_path / "t")
    done = compaction.compact(CON, t.storage, {}, partitions=["city=y"])
    assert done.file_groups == 1
    assert {s.partition for s in load(t.storage).slices() if s.logs} == {"city=x"}


def test_log_only_groups_get_a_base_file(tmp_path):
    t = logged(tmp_path / "t")
    compact(t)
    upsert(t, ("a", "x", 7, 7))
    for base in load(t.storage).base_files():  # what a rolled back first write leaves: a group of logs alone
        if base.partition == "city=x":
            group = base.file_id
    one = next(s for s in load(t.storage).slices() if s.file_id == group)
    alone = compaction_files.FileSlice(one.partition, one.file_id, one.logs[0].instant, None, one.logs)
    state = load(t.storage)
    txn = compaction.Transaction(t.storage, state.config, "20990101000000000", "compaction", "COMPACT")
    work = compaction_files.work_of(txn, state, compaction.parse_settings({}))
    (stat,) = compaction_files.fold_all(CON, work, [alone])
    assert (stat.num_writes, stat.num_inserts, stat.prev_base_file) == (1, 1, None)
    assert pq.read_table(t.storage.data_path(str(stat.path)), partitioning=None)["v"].to_pylist() == [7]


def test_added_columns_are_null_in_rows_of_older_base_files(tmp_path):
    with lakesql.connect(warehouse=str(tmp_path)) as con:
        con.sql("CREATE TABLE t (id STRING, v INT) USING hudi TBLPROPERTIES (type = 'mor', primaryKey = 'id')")
        con.sql("INSERT INTO t VALUES ('a', 1), ('b', 1)")
        con.sql(
            "MERGE WITH SCHEMA EVOLUTION INTO t USING (SELECT 'a' AS id, 2 AS v, 'new' AS w) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET *"
        )
        want = con.sql("SELECT id, v, w FROM t ORDER BY id").fetchall()
        assert want == [("a", 2, "new"), ("b", 1, None)]
        con.sql("RUN COMPACTION ON t")
        assert con.sql("SELECT id, v, w FROM t ORDER BY id").fetchall() == want


# ---------------------------------------------------------------- trouble


SLOW = [pytest.param(9, turn, marks=pytest.mark.slow) for turn in (1, 2)]


@pytest.mark.parametrize(("version", "turn"), [(9, 0), (6, 0), *SLOW])
def test_death_at_any_storage_call_changes_no_row_and_the_next_run_finishes(tmp_path, version, turn):
    made = logged(tmp_path / "made", version)
    for n in range(1, 300):
        t, want = copied(made, tmp_path / f"t{n}"), rows_of(made, ALL)
        storage = FaultyStorage(LocalStorage(t.path), n, HOW[(n + turn) % 3])
        with contextlib.suppress(OSError, LakeError):
            compaction.compact(CON, storage, {})
        assert rows_of(t, ALL) == want, n
        if version != 6 and n % 4 == 0:
            upsert(t, ("c", "y", 3, 3))
            want = rows_of(t, ALL)
        compact(t)
        assert rows_of(t, ALL) == want, n
        now = load(t.storage)
        assert not now.timeline.pending("compaction")
        assert not any(s.logs for s in now.slices())
        known = {
            str(s.path)
            for i in now.timeline.completed_writes()
            for g in now.commit(i).partition_stats.values()
            for s in g
        }
        assert {f.path for f in now.files} == known, n
        if not storage.failed:
            assert n > 20
            return
    raise AssertionError("the run never completed")


def test_one_failing_call_leaves_a_plan_and_no_file(tmp_path):
    made = logged(tmp_path / "made")
    for n in range(1, 300):
        t = copied(made, tmp_path / f"t{n}")
        want, files = rows_of(t), {f.path for f in load(t.storage).files}
        storage = FaultyStorage(LocalStorage(t.path), n, "before", dead=False, kinds=("put",))
        try:
            done = compaction.compact(CON, storage, {})
        except (OSError, LakeError):
            assert {f.path for f in load(t.storage).files} == files, n
        else:
            assert done.instant or storage.failed
        assert rows_of(t) == want
        if not storage.failed:
            return
    raise AssertionError("the run never completed")


def test_a_second_runner_is_refused_while_the_first_works(tmp_path, monkeypatch):
    t = logged(tmp_path / "t")
    started, go = threading.Event(), threading.Event()
    real = compaction.fold_all

    def slow(*arguments):
        started.set()
        assert go.wait(20)
        return real(*arguments)

    monkeypatch.setattr(compaction, "fold_all", slow)
    done = []
    first = threading.Thread(target=lambda: done.append(compaction.compact(CON.cursor(), t.storage, {})))
    first.start()
    assert started.wait(20)
    with pytest.raises(CommitConflict):
        compaction.run(CON, t.storage, {})
    upsert(t, ("a", "x", 8, 8))  # a writer does not wait
    want = rows_of(t, ALL)
    assert load(t.storage).timeline.pending("compaction")
    go.set()
    first.join(20)
    assert done[0].file_groups == 2
    assert rows_of(t, ALL) == want
    assert ("a", "x", 8, 8) in rows_of(t)


def test_interrupt_takes_the_files_back_and_keeps_the_plan(tmp_path, monkeypatch):
    t = logged(tmp_path / "t")

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(compaction.action, "complete", interrupt)
    before = {f.path for f in load(t.storage).files}
    with pytest.raises(KeyboardInterrupt):
        compact(t)
    assert {f.path for f in load(t.storage).files} == before
    assert [i.state for i in load(t.storage).timeline.pending("compaction")] == ["REQUESTED"]
    monkeypatch.undo()
    assert compact(t).file_groups == 2


def test_files_of_another_engine_running_the_same_plan_are_left_alone(tmp_path, monkeypatch):
    t = logged(tmp_path / "t")
    real = compaction.fold_all

    def race(con, work, slices, progress):
        stats = real(con, work, slices, progress)
        own = work.paths[0]
        t.storage.put(own.replace("-0-1_", "-7-7_"), t.storage.read(own))
        return stats

    monkeypatch.setattr(compaction, "fold_all", race)
    before = {f.path for f in load(t.storage).files}
    with pytest.raises(CommitConflict, match="another engine ran compaction"):
        compact(t)
    left = {f.path for f in load(t.storage).files} - before
    assert len(left) == 1
    assert "-7-7_" in left.pop()
    assert [i.state for i in load(t.storage).timeline.pending("compaction")] == ["INFLIGHT"]


def test_a_plan_whose_log_is_gone_is_refused_by_name(tmp_path):
    t = logged(tmp_path / "t")
    compaction.schedule(t.storage, {})
    log = next(f for f in load(t.storage).files if not isinstance(f, BaseFile))
    t.storage.delete(log.path)
    before = listing(t.path)
    with pytest.raises(TableError, match=r"compaction \d+: the plan names .*, which is gone"):
        compaction.run(CON, t.storage, {})
    assert listing(t.path) == before


def test_copy_on_write_and_unknown_instants_are_refused(tmp_path):
    cow = table(tmp_path / "cow")
    upsert(cow, ("a", "x", 1, 1))
    with pytest.raises(TableError, match="is Copy-on-Write and has no logs"):
        compact(cow)
    t = logged(tmp_path / "t")
    with pytest.raises(TableError, match="20200101000000000 is no pending compaction; pending are: none"):
        compaction.run(CON, t.storage, {}, instants=["20200101000000000"])


def test_version_6_metadata_table_goes_with_the_commit_that_completes(tmp_path):
    t = logged(tmp_path / "t", 6)
    want = rows_of(t)
    properties = Path(t.path, ".hoodie/hoodie.properties")
    properties.write_text(properties.read_text() + "hoodie.table.metadata.partitions=files\n")
    planned = compaction.schedule(t.storage, {})
    assert "metadata.partitions" in properties.read_text()
    done = compaction.run(CON, t.storage, {})
    assert (done.instant, len(done.notes)) == (planned.instant, 1)
    assert "metadata.partitions" not in properties.read_text()
    assert rows_of(t) == want


def test_groups_of_a_pending_log_compaction_are_left_out(tmp_path):
    t = logged(tmp_path / "t")
    group = next(s for s in load(t.storage).slices() if s.partition == "city=y")
    operation = {"fileId": group.file_id, "partitionPath": "city=y", "deltaFilePaths": [], "baseInstantTime": "1"}
    plan = encode_record("HoodieCompactionPlan", {"operations": [operation]})
    t.storage.put(".hoodie/timeline/20260101000000000.logcompaction.requested", plan)
    assert compact(t).file_groups == 1


# ---------------------------------------------------------------- after a write


def after(t, **settings):
    handle = lakesql.open_table(t.path)
    rows = CON.sql(writing.values(("a", "x", 3, 3))).to_arrow_table()
    return handle.upsert(rows, **settings)


def test_inline_compaction_runs_when_it_is_due(tmp_path):
    t = logged(tmp_path / "t")
    on = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "5"}
    assert after(t, **on).notes == ()
    assert "folded 5 log files into 2 base files" in " ".join(after(t, **on).notes)
    assert after(t, **on).notes == ()


def test_inline_scheduling_leaves_a_plan(tmp_path):
    t = logged(tmp_path / "t")
    on = {"hoodie.compact.schedule.inline": "true", "hoodie.compact.inline.max.delta.commits": "3"}
    assert "of 2 file groups was scheduled" in " ".join(after(t, **on).notes)
    assert load(t.storage).timeline.pending("compaction")
    assert "folded" in " ".join(after(t, **{"hoodie.compact.inline": "true"}).notes)


def test_a_hint_says_that_compaction_is_overdue(tmp_path, monkeypatch):
    t = logged(tmp_path / "t")
    monkeypatch.setattr(compaction, "HINT_EVERY", 5)
    monkeypatch.setattr(compaction, "HINT_BYTES", 1)
    monkeypatch.setattr(compaction, "HINT_RATIO", 0)
    assert after(t).notes == ()
    (note,) = after(t).notes
    assert note.startswith("Compaction is due: in 2 file groups the logs (")
    assert "RUN COMPACTION ON t folds them" in note
    assert after(t).notes == ()


# ---------------------------------------------------------------- statements


@pytest.fixture
def lake(tmp_path):
    with lakesql.connect(warehouse=str(tmp_path)) as con:
        con.sql(
            "CREATE TABLE t (id STRING, v INT, ts INT) USING hudi "
            "TBLPROPERTIES (type = 'mor', primaryKey = 'id', orderingFields = 'ts')"
        )
        con.sql("INSERT INTO t VALUES ('a', 1, 1), ('b', 1, 1)")
        con.sql("UPDATE t SET v = 2 WHERE id = 'a'")
        yield con


def test_statements_schedule_run_and_show(lake):
    assert lake.sql("SHOW COMPACTION ON t").fetchall() == []
    ((instant, size, state),) = lake.sql("SCHEDULE COMPACTION ON t").fetchall()
    assert (size, state) == (1, "REQUESTED")
    assert lake.sql(f"RUN COMPACTION ON t AT {instant}").fetchall() == [(instant, 1, "COMPLETED")]
    lake.sql("UPDATE t SET v = 3 WHERE id = 'a'")
    ((second, _, _),) = lake.sql("RUN COMPACTION ON main.t").fetchall()
    assert [r[0] for r in lake.sql("SHOW COMPACTION ON t LIMIT 1").fetchall()] == [second]
    assert [r[0] for r in lake.sql("CALL show_compaction(table => 't')").fetchall()] == [second, instant]
    assert lake.sql("SELECT v FROM t ORDER BY id").fetchall() == [(3,), (1,)]


def test_a_path_stands_for_a_table(lake, tmp_path):
    ((_, size, state),) = lake.sql(f"RUN COMPACTION ON '{tmp_path}/t'").fetchall()
    assert (size, state) == (1, "COMPLETED")
    assert lake.execute("SHOW COMPACTION ON t LIMIT ?", [0]).fetchall() == []


def test_the_trigger_is_asked_when_a_call_names_it(lake):
    options = "options => 'hoodie.compact.inline.max.delta.commits=9'"
    assert lake.sql(f"CALL run_compaction(op => 'schedule', table => 't', {options})").fetchall() == []
    assert len(lake.sql("CALL run_compaction('schedule', 't')").fetchall()) == 1
    assert lake.sql("CALL run_compaction(op => 'execute', table => 't', limit => 0)").fetchall() == []
    assert len(lake.sql("CALL run_compaction(op => 'execute', table => 't', limit => 1)").fetchall()) == 1


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("CALL run_compaction(op => 'no', table => 't')", "use run, schedule, execute or scheduleAndExecute"),
        ("CALL run_compaction(op => 'schedule', table => 't', timestamp => 1)", "draws a new instant"),
        ("CALL run_compaction(table => 't', options => 'x')", "write key=value"),
        (
            "CALL run_compaction(table => 't', options => 'hoodie.compaction.strategy=x')",
            "must be one of LogFileSize",
        ),
        ("RUN COMPACTION ON t AT 7", "7 is no pending compaction"),
        ("RUN COMPACTION ON t LATER", "unexpected 'LATER'"),
        ("RUN COMPACTION", "Write RUN COMPACTION ON t"),
        ("SET hoodie.compaction.target.io = 'much'", "must be a whole number"),
    ],
)
def test_wrong_statements_say_what_is_right(lake, statement, message):
    with pytest.raises(LakeError, match=message):
        lake.sql(statement)


def test_a_read_only_connection_compacts_nothing(lake):
    with lakesql.connect(warehouse=lake.warehouse, read_only=True) as con:
        with pytest.raises(TableError, match="read-only"):
            con.sql("RUN COMPACTION ON t")
        assert con.sql("SHOW COMPACTION ON t").fetchall() == []
