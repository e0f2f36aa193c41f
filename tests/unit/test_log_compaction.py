"""Log compaction: one block stands for many, and every reader gets the same rows."""

import contextlib
import shutil

import pytest

import lakesql
from lakesql.errors import LakeError, Unsupported
from lakesql.format import log
from lakesql.services import compaction, log_compaction
from lakesql.storage import LocalStorage
from lakesql.table.logs import committed_blocks
from lakesql.table.state import load
from tests.faulty import HOW, FaultyStorage
from tests.writing import CON, delete, put, rows_of, rust_rows, table, upsert, values

ALL = "id, city, v, ts, _hoodie_commit_time, _hoodie_commit_seqno"
FEW = {"hoodie.log.compaction.blocks.threshold": "3"}


def logged(path, version=9, *, event=False, **more):
    t = table(path, "mor", version, event=event, **more)
    upsert(t, ("a", "x", 1, 1), ("b", "x", 1, 1), ("c", "y", 1, 1))
    for ts, v in enumerate((5, 3, 4), 2):
        upsert(t, ("a", "x", v, ts), ("c", "y", v, ts))
    return t


def merged(t, settings=FEW):
    return log_compaction.compact_logs(CON, t.storage, settings)


def effective(t):
    """The blocks that a reader counts, per partition."""
    now = load(t.storage)
    return {s.partition: [b.kind for _, b in committed_blocks(now, s, None)] for s in now.slices()}


@pytest.mark.parametrize("version", [9, 8])
@pytest.mark.parametrize("event", [True, False])
def test_rows_and_commit_times_stay_and_one_block_counts(tmp_path, version, event):
    t = logged(tmp_path / "t", version, event=event)
    before, instants = rows_of(t, ALL), [i.requested for i in load(t.storage).timeline.completed_writes()]
    done = merged(t)
    assert (done.file_groups, done.log_files) == (2, 6)
    assert effective(t) == {"city=x": [log.AVRO], "city=y": [log.AVRO]}
    assert rows_of(t, ALL) == before
    assert rows_of(t) == rust_rows(t)
    handle = lakesql.open_table(t.path)
    assert handle.read(as_of=instants[1], where="id = 'a'").read_all()["v"].to_pylist() == [5]
    assert handle.changes(instants[-1]).read_all().num_rows == 0  # nothing changed since
    upsert(t, ("a", "x", 9, 9))
    upsert(t, ("a", "x", 8, 9))
    before = rows_of(t, ALL)
    assert merged(t).file_groups == 1  # a merged block is merged again
    assert rows_of(t, ALL) == before
    assert rows_of(t) == rust_rows(t)
    compaction.compact(CON, t.storage, {})
    assert rows_of(t, ALL) == before
    assert merged(t).instant is None


def test_the_timeline_has_a_delta_commit_of_its_own_kind(tmp_path):
    t = logged(tmp_path / "t")
    done = merged(t)
    now = load(t.storage)
    instant = next(i for i in now.timeline.instants if i.requested == done.instant)
    commit = now.commit(instant)
    assert (instant.action, instant.completed_action) == ("logcompaction", "deltacommit")
    assert (commit.operation, commit.compacted) == ("LOG_COMPACT", True)
    stat = commit.partition_stats["city=x"][0]
    assert (stat.num_writes, stat.total_log_blocks, stat.total_log_files_compacted) == (1, 3, 3)
    (block,) = log.scan_blocks(t.storage.read(str(stat.path)), "log")
    assert len(block.headers[log.COMPACTED_BLOCK_TIMES].split(",")) == 3


def test_deletes_are_merged_in_commit_time_tables_and_left_alone_in_event_time_tables(tmp_path):
    for event in (False, True):
        t = logged(tmp_path / f"t{event}", event=event)
        delete(t, ("a", "x"))
        upsert(t, ("c", "y", 9, 9))
        delete(t, ("c", "y"))
        upsert(t, ("c", "y", 9, 9))
        before = rows_of(t, ALL)
        done = merged(t)
        assert done.file_groups == (0 if event else 2)
        assert rows_of(t, ALL) == before
        assert rows_of(t) == rust_rows(t)
        upsert(t, ("a", "x", 0, 0))
        assert rows_of(t) == rust_rows(t)


def test_other_merge_rules_and_version_6_are_refused(tmp_path):
    old = logged(tmp_path / "old", 6)
    with pytest.raises(Unsupported, match="table version 6 numbers the log files"):
        merged(old)
    properties = {"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}
    partial = table(tmp_path / "partial", "mor", event=True, properties=properties)
    upsert(partial, ("a", "x", 1, 1))
    with pytest.raises(Unsupported, match="its merge rule takes columns from several versions"):
        merged(partial)


def test_a_merged_log_is_dropped_when_its_slice_got_a_new_base_file(tmp_path):
    t = logged(tmp_path / "t")
    planned = log_compaction.schedule(t.storage, FEW)
    assert compaction.compact(CON, t.storage, {}).instant is None  # groups of the plan are left alone
    real = log_compaction._write

    def race(con, work, slices):
        made = real(con, work, slices)
        put(t, values(("n", "x", 1, 1)), "insert_overwrite")
        return made

    log_compaction._write = race
    try:
        done = log_compaction.run(CON, t.storage, FEW)
    finally:
        log_compaction._write = real
    assert (done.instant, done.file_groups) == (planned.instant, 1)
    assert rows_of(t) == rust_rows(t) == [("c", "y", 4, 4), ("n", "x", 1, 1)]


def test_death_at_any_storage_call_changes_no_row_and_the_next_run_finishes(tmp_path):
    made = logged(tmp_path / "made")
    want = rows_of(made, ALL)
    for n in range(1, 300):
        shutil.copytree(made.path, tmp_path / f"t{n}")
        t = load(LocalStorage(str(tmp_path / f"t{n}")))
        storage = FaultyStorage(LocalStorage(t.path), n, HOW[n % 3])
        with contextlib.suppress(OSError, LakeError):
            log_compaction.compact_logs(CON, storage, FEW)
        assert rows_of(t, ALL) == want, n
        if n % 6 == 0:
            upsert(t, ("c", "y", 4, 4))
        rows = rows_of(t, ALL)
        merged(t)
        now = load(t.storage)
        assert not now.timeline.pending("logcompaction")
        assert rows_of(t, ALL) == rows, n
        stats = [s for i in now.timeline.completed_writes() for g in now.commit(i).partition_stats.values() for s in g]
        assert {f.path for f in now.files} == {str(s.path) for s in stats}, n
        if not storage.failed:
            assert n > 20
            return
    raise AssertionError("the run never completed")


def test_after_a_write_when_the_settings_ask_for_it(tmp_path):
    t = logged(tmp_path / "t")
    handle = lakesql.open_table(t.path)
    rows = CON.sql(values(("a", "x", 7, 7))).to_arrow_table()
    assert handle.upsert(rows).notes == ()
    (note,) = handle.upsert(rows, **{"hoodie.log.compaction.enable": "true"}).notes
    assert "merged 5 log files of 1 file group" in note
    assert handle.compact(logs=True, run=False, **FEW).completed is None
    assert handle.compact(logs=True, schedule=False).file_groups == 1
