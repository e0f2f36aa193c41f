"""A write in tasks: the same files as in one piece, whoever runs them, how often, and whatever dies meanwhile."""

import contextlib
import itertools
import multiprocessing
import os
import pickle
import shutil
import signal
import time
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pyarrow as pa
import pytest

import lakesql
from lakesql.errors import CommitConflict, TableError
from lakesql.handle import Table
from lakesql.storage import LocalStorage, open_storage
from lakesql.table.state import load
from lakesql.write import plans, slices, tasks, transaction
from lakesql.write.plans import plan_write
from tests.faulty import FaultError, FaultyStorage
from tests.writing import CON, SCHEMA, fixed_ids, listing, put, rows_of, table

VERSIONS = (6, 8, 9)
TYPES = ("cow", "mor")


def made(first, last, ts, cities=3):
    """SQL of rows of these ids, spread over cities."""
    return f"SELECT 'k' || i AS id, 'c' || i % {cities} AS city, i * {ts} AS v, {ts} AS ts FROM range({first}, {last}) t(i)"


def arrow(first, last, ts, cities=3):
    return CON.sql(made(first, last, ts, cities)).to_arrow_table().cast(SCHEMA)


def ticking():
    ticks = itertools.count(1_700_000_000_000, 5)
    return lambda: next(ticks)


def of(t):
    return Table(open_storage(t.path))


def data_of(path):
    """Content of the data files by name, the write tokens of version 6 aside."""
    found = {}
    for name in sorted(listing(path)):
        if name.startswith(".hoodie/") or "_partition_metadata" in name:
            continue
        stem = name.rsplit("_", 1)[0] if ".log." in name else name
        found[stem] = Path(path, name).read_bytes()
    return found


def age(t, seconds=300):
    """Let every trace of writers be old."""
    then = time.time() - seconds
    for file in Path(t.path, ".hoodie").rglob("*"):
        os.utime(file, (then, then))


def twins(tmp_path, type_, version, batches, **more):
    """Two tables with the same files."""
    ids, clock = fixed_ids(), ticking()
    one = table(tmp_path / "one", type_, version, **more)
    for rows, operation, settings in batches:
        put(one, rows, operation, clock=clock, ids=lambda: next(ids), settings=settings)
    shutil.copytree(one.path, tmp_path / "two")
    return one, load(LocalStorage(tmp_path / "two"))


INDEXES = {
    "simple": {},
    "bloom": {"hoodie.index.type": "BLOOM"},
    "global": {"hoodie.index.type": "GLOBAL_SIMPLE"},
    "global bloom": {"hoodie.index.type": "GLOBAL_BLOOM"},
    "bucket": {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "3"},
}


@pytest.mark.parametrize(
    ("type_", "version", "index"),
    [
        *((type_, version, "simple") for type_ in TYPES for version in VERSIONS),
        *(
            (type_, version, index)
            for type_, version in (("cow", 9), ("mor", 8))
            for index in INDEXES
            if index != "simple"
        ),
    ],
)
def test_tasks_write_the_files_that_one_process_writes(tmp_path, type_, version, index):
    settings = INDEXES[index]
    before = [(made(0, 60, 1), "upsert", settings), (made(10, 50, 2), "upsert", settings)]
    one, two = twins(tmp_path, type_, version, before)
    batch = made(30, 90, 3, cities=2 if "global" in index else 3)  # keys change their partition
    clock, ids = ticking(), fixed_ids("n")
    whole = put(one, batch, clock=clock, ids=lambda: next(ids), settings=settings)
    clock, ids = ticking(), fixed_ids("n")
    plan = plan_write(
        CON, load(two.storage), batch, operation="upsert", settings=settings, clock=clock, ids=lambda: next(ids)
    )
    sent = [pickle.loads(pickle.dumps(task)) for task in reversed(plan)]
    results = [tasks.run_task(CON, open_storage(two.path), task) for task in sent]
    done = plan.commit(pickle.loads(pickle.dumps(results)))
    assert data_of(two.path) == data_of(one.path)
    assert rows_of(two) == rows_of(one)
    counts = (
        "rows_inserted",
        "rows_updated",
        "rows_deleted",
        "rows_ignored",
        "files_written",
        "bytes_written",
        "action",
    )
    assert [getattr(done, c) for c in counts] == [getattr(whole, c) for c in counts]
    assert not any(part in name for part in (".temp/", ".lakesql/", ".heartbeat/") for name in listing(two.path))


def test_neighbouring_log_files_share_a_task_until_they_have_rows_enough(tmp_path, monkeypatch):
    one, two = twins(tmp_path, "mor", 9, [(made(0, 600, 1, 6), "upsert", {})])
    monkeypatch.setattr(tasks, "LOG_ROWS", 150)
    monkeypatch.setattr(slices, "LOG_ROWS", 150)
    clock = ticking()
    put(one, made(0, 600, 2, 6), clock=clock)
    clock = ticking()
    plan = plan_write(CON, two, made(0, 600, 2, 6), operation="upsert", clock=clock)
    assert [len(task.targets) for task in plan] == [2, 2, 2]
    plan.commit([tasks.run_task(CON, two.storage, task) for task in plan])
    assert data_of(two.path) == data_of(one.path)


def test_rows_of_large_tasks_lie_in_the_table_in_parts(tmp_path, monkeypatch):
    one, two = twins(tmp_path, "cow", 9, [(made(0, 9000, 1), "upsert", {})])
    monkeypatch.setattr(tasks, "INLINE_BYTES", 0)
    monkeypatch.setattr(tasks, "PART_BYTES", 1)
    monkeypatch.setattr(slices, "BATCH_ROWS", 2048)
    clock, ids = ticking(), fixed_ids("n")
    put(one, made(0, 9900, 2), clock=clock, ids=lambda: next(ids))
    clock, ids = ticking(), fixed_ids("n")
    plan = plan_write(CON, two, made(0, 9900, 2), operation="upsert", clock=clock, ids=lambda: next(ids))
    assert all(
        isinstance(part, str) and f".lakesql/{plan.instant}/rows/" in part for task in plan for part in task.parts
    )
    assert all(len(task.parts) > 1 for task in plan)
    assert max(len(pickle.dumps(task)) for task in plan) < 8000
    plan.commit([tasks.run_task(CON, two.storage, task) for task in plan])
    assert data_of(two.path) == data_of(one.path)
    assert not any("arrow" in name for name in listing(two.path))


def test_small_tasks_together_hold_no_more_than_their_limit(tmp_path, monkeypatch):
    t = table(tmp_path / "t")
    monkeypatch.setattr(tasks, "INLINE_TOTAL", 4000)
    plan = of(t).plan_upsert(arrow(0, 300, 1, 6))
    inline = [part for task in plan for part in task.parts if isinstance(part, bytes)]
    assert len(plan) == 6
    assert 0 < sum(map(len, inline)) <= 4000
    assert any(isinstance(part, str) for task in plan for part in task.parts)
    plan.abandon()


@pytest.mark.parametrize("verb", ["insert", "bulk_insert", "delete"])
def test_other_verbs_walk_the_same_road(tmp_path, verb):
    t = of(table(tmp_path / "t", "mor"))
    t.upsert(arrow(0, 30, 1))
    twin = Table(open_storage(shutil.copytree(t.path, tmp_path / "twin")))
    rows = arrow(10, 40, 2)
    plan = getattr(t, f"plan_{verb}")(rows)
    done = t.commit(map(t.run_task, plan))
    whole = getattr(twin, verb)(rows)
    assert (done.operation, done.rows_inserted, done.rows_deleted) == (verb, whole.rows_inserted, whole.rows_deleted)
    assert rows_of(t.state) == rows_of(twin.state)


def test_a_plan_without_anything_to_write_commits_nothing(tmp_path):
    t = of(table(tmp_path / "t"))
    t.upsert(arrow(0, 5, 9))
    before = listing(t.path)
    plan = t.plan_upsert(arrow(0, 5, 1))
    assert (len(plan), plan.instant, listing(t.path)) == (0, None, before)
    done = t.commit([])
    assert (done.instant, done.rows_ignored) == (None, 5)
    with pytest.raises(TableError, match="not those of one plan"):
        t.commit([])


def test_services_that_are_due_run_after_a_commit(tmp_path):
    t = of(table(tmp_path / "t", "mor"))
    settings = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
    t.upsert(arrow(0, 5, 1))
    plan = t.plan_upsert(arrow(0, 5, 2), **settings)
    assert any("ompact" in note for note in t.commit(map(t.run_task, plan)).notes)


# ---------------------------------------------------------------- processes


def run_or_die(t, task, grave):
    """Run a task in a worker that is killed while it writes, once."""
    if not Path(grave).exists():
        Path(grave).touch()
        LocalStorage.rename = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    return t.run_task(task)


def test_a_killed_worker_leaves_nothing_and_its_task_runs_again(tmp_path):
    t = of(table(tmp_path / "t"))
    t.upsert(arrow(0, 3000, 1))
    plan = t.plan_upsert(arrow(1000, 4000, 2))
    spawn = multiprocessing.get_context("spawn")
    grave = str(tmp_path / "grave")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool, pytest.raises(BrokenProcessPool):
        list(pool.map(run_or_die, [t] * len(plan), plan, [grave] * len(plan)))
    assert any("/made/" in name for name in listing(t.path))
    assert len(rows_of(t.state)) == 3000
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        results = list(pool.map(t.run_task, plan))
    assert t.commit(results).rows_inserted == 1000
    assert len(rows_of(t.state)) == 4000
    assert not any(".temp/" in name or ".lakesql/" in name for name in listing(t.path))


def test_a_table_goes_to_a_worker_with_its_settings(tmp_path):
    t = Table(open_storage(table(tmp_path / "t").path), {"threads": "1"})
    there = pickle.loads(pickle.dumps(t))
    assert there.path == t.path
    assert there._con.sql("SELECT current_setting('threads')").fetchall() == [(1,)]


def test_tasks_pickle_and_plans_stay(tmp_path):
    t = of(table(tmp_path / "t"))
    with t.plan_upsert(arrow(0, 5, 1)) as plan:
        assert pickle.loads(pickle.dumps(plan[0])) == plan[0]
        assert str(plan[0]) == f"task 1 of 3 of plan {plan.instant}: 1 file, 2 rows"
        assert repr(plan) == f"<lakesql.Plan {plan.instant}: 3 tasks, 5 rows, open>"
        assert [task.rows for task in plan[0:2]] == [2, 2]
        with pytest.raises(TypeError, match="send its tasks"):
            pickle.dumps(plan)
    assert repr(plan).endswith("over>")


# ---------------------------------------------------------------- several attempts, and none


def test_a_task_that_runs_twice_does_no_harm(tmp_path):
    for type_, version in itertools.product(TYPES, VERSIONS):
        t = of(table(tmp_path / f"{type_}{version}", type_, version))
        t.upsert(arrow(0, 30, 1))
        plan = t.plan_upsert(arrow(10, 20, 2))
        first = [t.run_task(task) for task in plan]
        files = data_of(t.path)
        again = [t.run_task(task) for task in plan]
        assert data_of(t.path) == files
        assert again == first
        t.commit([*again, *first])
        assert len(rows_of(t.state)) == 30
        assert not any(".temp/" in name or ".lakesql/" in name for name in listing(t.path))


@pytest.mark.parametrize("type_", TYPES)
def test_a_straggler_finds_its_plan_committed(tmp_path, type_):
    t = of(table(tmp_path / "t", type_))
    t.upsert(arrow(0, 30, 1))
    plan = t.plan_upsert(arrow(10, 20, 2))
    task = plan[0]
    t.commit(map(t.run_task, plan))
    after = listing(t.path)
    with pytest.raises(CommitConflict, match="is over"):
        t.run_task(task)
    assert listing(t.path) == after


@pytest.mark.parametrize("ended", ["committed", "given up"])
@pytest.mark.parametrize("type_", TYPES)
def test_a_straggler_whose_plan_ends_while_it_writes_changes_nothing(tmp_path, type_, ended, monkeypatch):
    t = of(table(tmp_path / "t", type_))
    t.upsert(arrow(0, 30, 1))
    plan = t.plan_upsert(arrow(10, 20, 2))
    slow = plan[0]
    results = [t.run_task(task) for task in plan]
    wrote = tasks.write_targets

    def end_first(work, targets, rows):
        pieces = list(rows)
        if ended == "committed":
            t.commit(results)
        else:
            plan.abandon()
        return wrote(work, targets, pieces)

    monkeypatch.setattr(tasks, "write_targets", end_first)
    with pytest.raises(CommitConflict, match="is over"):
        t.run_task(slow)
    expected = {(f"k{i}", 2 * i if ended == "committed" else i) for i in range(10, 20)}
    assert expected <= {(id_, v) for id_, _, v, _ in rows_of(t.state)}
    assert not any(".temp/" in name or ".lakesql/" in name for name in listing(t.path))
    if ended == "given up":
        assert not any(plan.instant in name for name in listing(t.path))


def test_a_file_that_gets_its_name_right_after_the_plan_was_given_up_goes(tmp_path, monkeypatch):
    t = of(table(tmp_path / "t"))
    t.upsert(arrow(0, 30, 1))
    before = listing(t.path)
    plan = t.plan_upsert(arrow(10, 20, 2))
    rename = LocalStorage.rename

    def late(self, path, target):
        Path(self.uri, "kept").write_bytes(Path(self.uri, path).read_bytes())
        plan.abandon()
        Path(self.uri, path).parent.mkdir(parents=True)
        Path(self.uri, "kept").rename(Path(self.uri, path))
        rename(self, path, target)

    monkeypatch.setattr(LocalStorage, "rename", late)
    with pytest.raises(CommitConflict, match="is over"):
        t.run_task(plan[0])
    assert listing(t.path) == before


def test_results_that_are_missing_or_foreign_are_refused_and_the_plan_stays_open(tmp_path):
    t = of(table(tmp_path / "t"))
    other = of(table(tmp_path / "other"))
    plan, foreign = t.plan_upsert(arrow(0, 9, 1)), other.plan_upsert(arrow(0, 9, 1))
    results, theirs = [t.run_task(task) for task in plan], [other.run_task(task) for task in foreign]
    with pytest.raises(TableError, match=r"of 3 tasks .* the results of 2 are missing \(number 1, 2\)"):
        t.commit(results[:1])
    with pytest.raises(TableError, match="results of 3 are missing"):
        t.commit([])
    with pytest.raises(TableError, match="not those of one plan"):
        t.commit(theirs)
    with pytest.raises(TableError, match="of several plans"):
        t.commit([*results, *theirs])
    with pytest.raises(TableError, match="no result of run_task"):
        t.commit([*results, None])
    with pytest.raises(TableError, match="not those of one plan"):
        of(t).commit(results)
    assert rows_of(t.state) == []
    assert t.commit(results).rows_inserted == 9
    with pytest.raises(TableError, match="not those of one plan"):
        t.commit(results)
    with pytest.raises(TableError, match="is over"):
        plan.commit(results)
    with pytest.raises(TableError, match="Give it a task"):
        t.run_task(results[0])


def test_a_worker_that_sees_another_copy_of_the_table_is_found_out(tmp_path):
    t = of(table(tmp_path / "t"))
    plan = t.plan_upsert(arrow(0, 9, 1))
    there = Table(open_storage(shutil.copytree(t.path, tmp_path / "copy")))
    with pytest.raises(TableError, match="not there as its task wrote it"):
        t.commit(map(there.run_task, plan))
    assert t.commit(map(t.run_task, plan)).rows_inserted == 9


# ---------------------------------------------------------------- other writers


def test_of_two_plans_the_second_is_refused_while_the_first_lives(tmp_path):
    t, second = of(table(tmp_path / "t")), None
    plan = t.plan_upsert(arrow(0, 9, 1))
    for writes in (lambda: of(t).plan_upsert(arrow(0, 9, 2)), lambda: of(t).upsert(arrow(0, 9, 2))):
        with pytest.raises(CommitConflict, match=f"another writer's commit {plan.instant} is in progress"):
            writes()
    t.commit(map(t.run_task, plan))
    second = of(t)
    assert second.commit(map(second.run_task, second.plan_upsert(arrow(0, 9, 2)))).rows_updated == 9


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("type_", TYPES)
def test_a_plan_whose_coordinator_is_silent_is_rolled_back_by_the_next_write(tmp_path, type_, version):
    t = of(table(tmp_path / "t", type_, version))
    t.upsert(arrow(0, 30, 1))
    plan = t.plan_upsert(arrow(0, 40, 2))
    results = [t.run_task(task) for task in plan]
    age(t)
    other = of(t)
    again = other.plan_upsert(arrow(0, 40, 3))
    assert any("Rolled back the unfinished write" in note for note in again.counts.notes)
    with pytest.raises(CommitConflict, match="is over"):
        t.run_task(plan[0])
    with pytest.raises(CommitConflict, match="another writer rolled plan"):
        t.commit(results)
    other.commit(map(other.run_task, again))
    assert {v // max(1, int(id_[1:])) for id_, _, v, _ in rows_of(t.state) if id_ != "k0"} == {3}
    assert len(rows_of(t.state)) == 40


def copied_commit(t, tmp_path, write):
    """A commit as of another engine, which does not ask ours: made in a copy, and copied back."""
    copy = shutil.copytree(t.path, tmp_path / "copy")
    write(Table(open_storage(copy)))
    return lambda: shutil.copytree(copy, t.path, dirs_exist_ok=True)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("type_", TYPES)
def test_another_engine_that_changed_the_same_groups_is_a_conflict_and_our_files_go(tmp_path, type_, version):
    t = of(table(tmp_path / "t", type_, version))
    t.upsert(arrow(0, 30, 1))
    arrive = copied_commit(t, tmp_path, lambda copy: copy.upsert(arrow(0, 3, 5)))
    plan = t.plan_upsert(arrow(0, 30, 2))
    results = [t.run_task(task) for task in plan]
    arrive()
    with pytest.raises(CommitConflict, match="was changed by"):
        t.commit(results)
    assert not plan.is_open
    assert not any(plan.instant in name for name in listing(t.path))
    assert {ts for *_, ts in rows_of(t.state)} == {1, 5}
    assert of(t).upsert(arrow(0, 30, 6)).rows_updated == 30


def test_another_engine_that_inserted_where_our_keys_are_new_is_a_conflict(tmp_path):
    t = of(table(tmp_path / "t"))
    t.upsert(arrow(0, 3, 1))
    small = {"hoodie.parquet.small.file.limit": "0"}
    arrive = copied_commit(t, tmp_path, lambda copy: copy.upsert(arrow(10, 13, 5), **small))
    plan = t.plan_upsert(arrow(10, 13, 2), **small)
    results = [t.run_task(task) for task in plan]
    arrive()
    with pytest.raises(CommitConflict, match="a key could come twice"):
        t.commit(results)
    assert len(rows_of(t.state)) == 6


def test_another_engine_that_wrote_elsewhere_is_none(tmp_path):
    t = of(table(tmp_path / "t"))
    t.upsert(arrow(0, 30, 1))
    one, rest = arrow(0, 30, 5).filter(pa.array([i % 3 == 0 for i in range(30)])), [i % 3 == 1 for i in range(30)]
    arrive = copied_commit(t, tmp_path, lambda copy: copy.upsert(one))
    plan = t.plan_upsert(arrow(0, 30, 2).filter(pa.array(rest)))
    results = [t.run_task(task) for task in plan]
    arrive()
    t.commit(results)
    assert sorted({(city, ts) for _, city, _, ts in rows_of(t.state)}) == [("c0", 5), ("c1", 2), ("c2", 1)]


def test_a_schema_that_changed_is_a_conflict(tmp_path, monkeypatch):
    t = of(table(tmp_path / "t"))
    t.upsert(arrow(0, 3, 1))
    plan = t.plan_upsert(arrow(0, 3, 2))
    results = [t.run_task(task) for task in plan]
    monkeypatch.setattr(tasks, "fingerprint", lambda _: "another")
    with pytest.raises(CommitConflict, match="schema changed"):
        t.run_task(plan[0])
    monkeypatch.setattr(plans, "load", lambda storage: _Other(load(storage)))
    with pytest.raises(CommitConflict, match="schema changed"):
        t.commit(results)
    assert rows_of(t.state) == [("k0", "c0", 0, 1), ("k1", "c1", 1, 1), ("k2", "c2", 2, 1)]


class _Other:
    """A state with another schema."""

    def __init__(self, state):
        self.schema = state.schema.append(pa.field("more", pa.string()))


# ---------------------------------------------------------------- giving up, and hearts


def test_a_plan_that_is_given_up_leaves_the_table_as_it_was(tmp_path):
    for type_, version in itertools.product(TYPES, VERSIONS):
        t = of(table(tmp_path / f"{type_}{version}", type_, version))
        t.upsert(arrow(0, 30, 1))
        before = {n: Path(t.path, n).read_bytes() for n in listing(t.path)}
        with t.plan_upsert(arrow(0, 40, 2)) as plan:
            t.run_task(plan[0])
        assert not plan.is_open
        assert {n: Path(t.path, n).read_bytes() for n in listing(t.path) if "_partition_metadata" not in n} == {
            n: b for n, b in before.items() if "_partition_metadata" not in n
        }
        assert t.upsert(arrow(0, 40, 2)).rows_inserted == 10


def test_a_clean_removes_what_a_plan_has_put_aside_that_spark_rolled_back(tmp_path, monkeypatch):
    monkeypatch.setattr(tasks, "INLINE_BYTES", 0)
    t = of(table(tmp_path / "t"))
    t.upsert(arrow(0, 9, 1))
    plan = t.plan_upsert(arrow(0, 9, 2))
    with pytest.raises(CommitConflict, match="in progress"):
        t.clean()
    assert any(".lakesql/" in name for name in listing(t.path))
    folder = Path(t.path, ".hoodie")
    for file in [*folder.glob(f"timeline/{plan.instant}*"), *folder.rglob(f"*/{plan.instant}")]:
        if file.is_file():
            file.unlink()
    t.clean()
    assert not any(".lakesql/" in name for name in listing(t.path))


def test_the_heart_beats_until_the_plan_is_over_or_dropped(tmp_path, monkeypatch):
    monkeypatch.setattr(plans, "HEARTBEAT_S", 0.01)
    t = of(table(tmp_path / "t"))

    def beats(instant):
        path = Path(t.path, transaction.heartbeat_path(instant))
        os.utime(path, (1, 1))
        until = time.monotonic() + (2 if beating else 0.2)
        while time.monotonic() < until and path.stat().st_mtime == 1:
            time.sleep(0.01)
        return path.stat().st_mtime != 1

    beating = True
    plan = t.plan_upsert(arrow(0, 9, 1))
    assert beats(plan.instant)
    instant, beating = plan.instant, False
    del plan
    t._plans = []
    assert not beats(instant)
    age(t)
    with t.plan_upsert(arrow(0, 9, 1)) as plan:
        heart = plan._begun.heart._thread
    assert not heart.is_alive()


def test_a_death_at_any_change_leaves_the_old_rows_or_the_new_ones(tmp_path):
    ready = of(table(tmp_path / "ready", "mor"))
    ready.upsert(arrow(0, 12, 1))
    old, new = {(f"k{i}", i) for i in range(12)}, {(f"k{i}", 2 * i) for i in range(15)}

    def run(t):
        plan = t.plan_upsert(arrow(0, 15, 2))
        results = [t.run_task(task) for task in plan]
        t.commit(results)

    changing = ("put", "delete")
    whole = FaultyStorage(open_storage(shutil.copytree(ready.path, tmp_path / "whole")), fail_at=0, kinds=changing)
    run(Table(whole))
    seen = set()
    for n in range(1, len(whole.calls) + 1):
        path = shutil.copytree(ready.path, tmp_path / f"t{n}")
        faulty = FaultyStorage(open_storage(path), fail_at=n, kinds=changing)
        with contextlib.suppress(FaultError, lakesql.LakeError):
            run(Table(faulty))
        t = Table(open_storage(path))
        rows = {(id_, v) for id_, _, v, _ in rows_of(t.state)}
        assert rows in (old, new)
        seen.add(rows == new)
        age(t)
        t.upsert(arrow(0, 15, 3))
        assert {(id_, v) for id_, _, v, _ in rows_of(t.state)} == {(f"k{i}", 3 * i) for i in range(15)}
        shutil.rmtree(path)
    assert seen == {True, False}
