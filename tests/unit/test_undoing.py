"""Rollback, savepoint, restore: what they leave, what they refuse, and a fault at every storage call."""

import contextlib
import itertools
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import lakesql
from lakesql.errors import CommitConflict, LakeError, TableError
from lakesql.format.files import LogFile
from lakesql.format.metadata import decode_record, encode_record
from lakesql.format.timeline import WRITE_ACTIONS, Timeline, instant_millis
from lakesql.handle import Table
from lakesql.services import restore as restores
from lakesql.services import rollback as rollbacks
from lakesql.services.rollback import give_up
from lakesql.storage import LocalStorage, open_storage
from lakesql.table import read
from lakesql.table.names import quote
from lakesql.table.state import TableState
from lakesql.write import write
from tests.faulty import HOW, FaultyStorage
from tests.interop import rust
from tests.leftovers import data_files, die_before_completing, files_with_rows_of
from tests.samples import Kind, NewTable, rows, tuples
from tests.writing import CON
from tests.zipped import FOLDER

FIRST = [("a", "x", 1, 1), ("b", "y", 1, 1)]
SHORT = [Kind("cow", 9), Kind("mor", 9), Kind("mor", 8), Kind("mor", 6)]


def names_of(table: lakesql.Table) -> list[str]:
    return sorted(n for n in table.state.instant_files if n[0].isdigit())


def writes(table: lakesql.Table) -> list[str]:
    return [i.requested for i in table.state.timeline.completed_writes()]


def record(state: TableState, action: str) -> dict[str, object]:
    """The metadata of the only completed instant of that action."""
    (found,) = [i for i in state.timeline.instants if i.action == action and i.is_completed]
    return decode_record(state.storage.read(f"{state.timeline_folder}/{found.file_name}"), action)


def both_read(table: lakesql.Table) -> list[tuple[object, ...]]:
    found = tuples(table.read())
    assert tuples(rust.read(table.path)) == found
    return list(found)


# ---------------------------------------------------------------- rollback


def test_newest_write_is_gone_with_its_files_and_the_table_goes_on(kind: Kind, new_table: NewTable) -> None:
    table = new_table(kind)
    first = table.upsert(rows(*FIRST))
    wrong = table.upsert(rows(("a", "x", 2, 2), ("c", "z", 2, 2)))
    assert wrong.instant is not None
    assert first.instant is not None
    done = table.rollback()
    assert (done.instant, done.notes) == (wrong.instant, ())
    assert both_read(table) == FIRST
    assert writes(table) == [first.instant]
    assert not [n for n in names_of(table) if n.startswith(wrong.instant)]
    assert files_with_rows_of(table, wrong.instant) == []
    body = record(table.state, "rollback")
    assert body["commitsRollback"] == [wrong.instant]
    assert body["totalFilesDeleted"] == done.files_deleted > 0
    table.upsert(rows(("a", "x", 3, 3), ("d", "z", 3, 3)))
    assert both_read(table) == [("a", "x", 3, 3), ("b", "y", 1, 1), ("d", "z", 3, 3)]
    assert tuples(table.read(as_of=first.instant)) == FIRST
    assert not table.state.timeline.pending()
    assert not list(Path(table.path, ".hoodie", ".heartbeat").glob("2*"))


@pytest.mark.parametrize("kind", SHORT, ids=str)
def test_rolled_back_overwrite_brings_the_replaced_groups_back(kind: Kind, new_table: NewTable) -> None:
    table = new_table(kind)
    table.upsert(rows(*FIRST))
    table.insert_overwrite(rows(("z", "x", 9, 9)))
    table.rollback()
    assert both_read(table) == FIRST
    table.delete(rows(("a", "x", None, None)))
    table.rollback()
    assert both_read(table) == FIRST


def test_the_first_write_can_go_and_leaves_an_empty_table(new_table: NewTable) -> None:
    for kind in SHORT:
        table = new_table(kind, str(kind))
        table.upsert(rows(*FIRST))
        table.rollback()
        assert tuples(table.read()) == []
        table.upsert(rows(("n", "x", 1, 1)))
        assert both_read(table) == [("n", "x", 1, 1)]


def test_what_cannot_be_rolled_back_is_refused_with_the_reason(new_table: NewTable) -> None:
    table = new_table(Kind("mor", 9))
    with pytest.raises(TableError, match="no completed write"):
        table.rollback()
    first = table.upsert(rows(*FIRST))
    second = table.upsert(rows(("a", "x", 2, 2)))
    before = names_of(table)
    with pytest.raises(TableError, match=f"{first.instant} is not the newest write, deltacommit {second.instant} came"):
        table.rollback(first.instant)
    with pytest.raises(TableError, match="there is no instant 20200101000000000 on the timeline"):
        table.rollback("20200101000000000")
    table.savepoint()
    with pytest.raises(TableError, match=f"{second.instant} has a savepoint. Delete the savepoint first"):
        table.rollback()
    table.delete_savepoint()
    assert names_of(table) == before
    plan = _compaction_plan(table)
    with pytest.raises(TableError, match="was planned upon files of deltacommit"):
        table.rollback()
    table.state.storage.delete(plan)
    table.rollback()
    done = next(i.requested for i in table.state.timeline.instants if i.action == "rollback")
    with pytest.raises(TableError, match="is a rollback; only commits"):
        table.rollback(done)


def _compaction_plan(table: lakesql.Table) -> str:
    """Put a compaction of every slice with logs on the timeline; the path of the plan."""
    state = table.state
    operations = [
        {
            "baseInstantTime": s.instant,
            "deltaFilePaths": [f.name for f in s.logs],
            "dataFilePath": s.base.name if s.base else None,
            "fileId": s.file_id,
            "partitionPath": s.partition,
            "metrics": {"TOTAL_LOG_FILES": float(len(s.logs))},
            "bootstrapFilePath": None,
        }
        for s in state.slices()
        if s.logs
    ]
    newest = str(int(state.timeline.newest_time) + 1)
    path = f"{state.timeline_folder}/{newest}.compaction.requested"
    state.storage.put(path, encode_record("HoodieCompactionPlan", {"operations": operations, "version": 2}))
    return path


@pytest.mark.parametrize("version", [9, 6])
def test_planned_compaction_is_given_up_unless_rows_would_be_lost(version: int, new_table: NewTable) -> None:
    table = new_table(Kind("mor", version))
    table.upsert(rows(*FIRST))
    table.upsert(rows(("a", "x", 2, 2)))
    path = _compaction_plan(table)
    planned = path.rsplit("/", 1)[-1].split(".")[0]
    storage = open_storage(table.path)
    with pytest.raises(TableError, match="no compaction or clustering 1 is pending"):
        give_up(storage, {}, "1")
    storage.put(path.replace("requested", "inflight"), b"")
    with pytest.raises(CommitConflict, match="is in progress"):
        give_up(storage, {}, planned)
    storage.put(f".hoodie/.heartbeat/{planned}", b"lakesql")
    done = give_up(storage, {}, planned)
    assert done.instant == planned
    assert [(i.requested, i.state) for i in table.state.timeline.pending()] == [(planned, "REQUESTED")]
    if version == 6:  # a log file of another engine, which would not be read without the plan
        (old,) = [f for f in data_files(table) if isinstance(f, LogFile)]
        storage.put(old.path.replace(old.instant, planned), b"")
        with pytest.raises(TableError, match="without the plan their rows would be lost"):
            give_up(storage, {}, planned, delete_plan=True)
        return
    wrote = table.upsert(rows(("a", "x", 3, 3)))
    want = [("a", "x", 3, 3), ("b", "y", 1, 1)]
    assert both_read(table) == want
    give_up(storage, {}, planned, delete_plan=True)
    assert not table.state.timeline.pending()
    assert both_read(table) == want
    table.rollback(wrote.instant)
    assert both_read(table) == [("a", "x", 2, 2), ("b", "y", 1, 1)]


@pytest.mark.parametrize("kind", SHORT, ids=str)
def test_rollback_that_would_miss_cleaned_files_is_refused(kind: Kind, new_table: NewTable) -> None:
    table = new_table(kind)
    table.upsert(rows(*FIRST))
    before = {f.path for f in data_files(table)}
    table.insert_overwrite(rows(("a", "x", 2, 2), ("b", "y", 2, 2)))
    for path in before:
        Path(table.path, path).unlink()
    assert tuples(table.read()) == [("a", "x", 2, 2), ("b", "y", 2, 2)]
    with pytest.raises(TableError, match=r"cannot be rolled back: .* cleaned away"):
        table.rollback()
    assert tuples(table.read()) == [("a", "x", 2, 2), ("b", "y", 2, 2)]
    assert not table.state.timeline.pending()


@pytest.mark.parametrize("kind", SHORT, ids=str)
def test_write_whose_files_are_lost_can_be_taken_back(kind: Kind, new_table: NewTable) -> None:
    table = new_table(kind)
    table.upsert(rows(*FIRST))
    before = set(data_files(table))
    table.upsert(rows(("a", "x", 2, 2)))
    (lost,) = set(data_files(table)) - before
    Path(table.path, lost.path).unlink()
    with pytest.raises(TableError, match="or roll the commit back"):
        table.read().read_all()
    table.rollback()
    assert both_read(table) == FIRST


def test_savepoint_whose_maker_died_can_be_deleted_or_made_again(new_table: NewTable) -> None:
    table = new_table(Kind("mor", 9))
    instant = table.upsert(rows(*FIRST)).instant
    dying = FaultyStorage(LocalStorage(table.path), fail_at=1, how="after", kinds=("put",))
    for again in (table.delete_savepoint, table.savepoint):
        with pytest.raises((OSError, LakeError)):
            Table(dying).savepoint()
        assert table.savepoints().num_rows == 0
        with pytest.raises(TableError, match="has a savepoint"):
            table.rollback()
        assert again() == instant
        dying = FaultyStorage(LocalStorage(table.path), fail_at=1, how="after", kinds=("put",))
    assert table.savepoints().num_rows == 1
    table.delete_savepoint()
    table.rollback()
    assert tuples(table.read()) == []


def test_rollback_waits_for_a_clean_that_deletes_what_it_needs(new_table: NewTable) -> None:
    table = new_table(Kind("cow", 9))
    table.upsert(rows(*FIRST))
    (old,) = [f for f in data_files(table) if f.partition == "city=x"]
    table.upsert(rows(("a", "x", 2, 2)))
    state = table.state
    plan = {
        "policy": "KEEP_LATEST_FILE_VERSIONS",
        "version": 2,
        "filePathsToBeDeletedPerPartition": {"city=x": [{"filePath": f"file:/moved/{old.path}"}]},
    }
    path = f"{state.timeline_folder}/{int(state.timeline.newest_time) + 1}.clean.requested"
    state.storage.put(path, encode_record("HoodieCleanerPlan", plan))
    with pytest.raises(CommitConflict, match=f"is not finished and deletes {old.name}"):
        table.rollback()
    state.storage.delete(path)
    table.rollback()
    assert tuples(table.read()) == FIRST


# ---------------------------------------------------------------- savepoint and restore


def test_savepoint_lists_the_files_of_the_state_it_keeps(kind: Kind, new_table: NewTable) -> None:
    table = new_table(kind)
    table.upsert(rows(*FIRST))
    kept = {f.path for s in table.state.slices() for f in (s.base, *s.logs) if f}
    instant = table.savepoint(user="me", comments="why")
    with pytest.raises(TableError, match="has a savepoint already"):
        table.savepoint(instant)
    table.upsert(rows(("a", "x", 2, 2)))
    body = record(table.state, "savepoint")
    files = {
        f"{p}/{name}" if p else name
        for p, about in body["partitionMetadata"].items()  # type: ignore[attr-defined]
        for name in about["savepointDataFile"]
    }
    assert files == kept
    (row,) = table.savepoints().to_pylist()
    assert (row["savepoint_time"], row["user"], row["comments"], row["files"]) == (instant, "me", "why", len(kept))
    assert table.delete_savepoint() == instant
    assert table.savepoints().num_rows == 0
    assert not [n for n in names_of(table) if "savepoint" in n]
    with pytest.raises(TableError, match="there is no savepoint; savepoints: none"):
        table.delete_savepoint()


def test_restore_gives_the_rows_of_the_savepoint(kind: Kind, new_table: NewTable) -> None:
    table = new_table(kind)
    table.upsert(rows(*FIRST))
    table.upsert(rows(("a", "x", 2, 2)))
    want = tuples(table.read())
    saved = table.savepoint()
    assert table.restore().restore is None
    later = [
        table.upsert(rows(("a", "x", 3, 3), ("c", "z", 3, 3))),
        table.delete(rows(("b", "y", None, None))),
        table.insert_overwrite(rows(("q", "x", 4, 4))),
        table.upsert(rows(("q", "x", 5, 5), ("r", "w", 5, 5))),
    ]
    done = table.restore(saved)
    assert done.instants == tuple(w.instant for w in reversed(later))
    assert both_read(table) == want
    assert tuples(table.read(as_of=saved)) == want
    for wrong in later:
        assert wrong.instant is not None
        assert not [n for n in names_of(table) if n.startswith(wrong.instant)]
        assert files_with_rows_of(table, wrong.instant) == []
    body = record(table.state, "restore")
    assert body["instantsToRollback"] == list(done.instants)
    assert sorted(body["hoodieRestoreMetadata"]) == sorted(done.instants)  # type: ignore[call-overload]
    assert [r["savepoint_time"] for r in table.savepoints().to_pylist()] == [saved]
    table.upsert(rows(("a", "x", 6, 6), ("s", "v", 6, 6)))
    assert both_read(table) == sorted([*(r for r in want if r[0] != "a"), ("a", "x", 6, 6), ("s", "v", 6, 6)])


def test_restore_is_refused_when_a_later_savepoint_or_a_lost_file_stands_in_the_way(new_table: NewTable) -> None:
    table = new_table(Kind("cow", 9))
    table.upsert(rows(*FIRST))
    first = table.savepoint()
    kept = data_files(table)
    table.upsert(rows(("a", "x", 2, 2), ("b", "y", 2, 2)))
    second = table.savepoint()
    with pytest.raises(TableError, match=f"{second} that a restore to {first} takes back has a savepoint"):
        table.restore(first)
    table.delete_savepoint(second)
    Path(table.path, kept[0].path).unlink()
    with pytest.raises(TableError, match="which is gone"):
        table.restore(first)
    assert tuples(table.read()) == [("a", "x", 2, 2), ("b", "y", 2, 2)]


def test_state_of_a_savepoint_can_be_read_after_a_restore_behind_a_clean(new_table: NewTable) -> None:
    table = new_table(Kind("cow", 9))
    table.upsert(rows(*FIRST))
    saved = table.savepoint()
    last = table.upsert(rows(("a", "x", 2, 2))).instant
    body = {
        "startCleanTime": "1",
        "timeTakenInMillis": 0,
        "totalFilesDeleted": 0,
        "earliestCommitToRetain": last,
        "partitionMetadata": {},
    }
    state = table.state
    time = str(int(state.timeline.newest_time) + 1)
    state.storage.put(
        f"{state.timeline_folder}/{time}_{int(time) + 1}.clean", encode_record("HoodieCleanMetadata", body)
    )
    assert tuples(table.read(as_of=saved)) == FIRST
    table.restore()
    assert tuples(table.read(as_of=saved)) == FIRST


def test_restore_takes_dead_writes_along(new_table: NewTable) -> None:
    table = new_table(Kind("mor", 6))
    table.upsert(rows(*FIRST))
    table.savepoint()
    table.upsert(rows(("a", "x", 2, 2)))
    dead = die_before_completing(table, rows(("a", "x", 3, 3), ("c", "z", 3, 3)))
    table.restore()
    assert both_read(table) == FIRST
    assert files_with_rows_of(table, dead) == []


# ---------------------------------------------------------------- crashes


def _rollback(table: Table) -> None:
    table.rollback()


def _save(table: Table) -> None:
    table.savepoint()


def _restore(table: Table) -> None:
    table.restore()


def _prepared(new_table: NewTable, kind: Kind, name: str) -> tuple[lakesql.Table, list[list[tuple[object, ...]]]]:
    """A table with a savepoint and three writes after it, and its rows after each write from the savepoint on."""
    table = new_table(kind, name)
    table.upsert(rows(*FIRST))
    table.savepoint()
    states = [list(tuples(table.read()))]
    table.upsert(rows(("a", "x", 2, 2), ("c", "z", 2, 2)))
    states.append(list(tuples(table.read())))
    table.insert_overwrite(rows(("d", "x", 3, 3)))
    states.append(list(tuples(table.read())))
    table.upsert(rows(("d", "x", 4, 4), ("b", "y", 4, 4)))
    states.append(list(tuples(table.read())))
    return table, states


@pytest.mark.parametrize(
    ("undo", "kind"),
    [
        (_rollback, Kind("cow", 9)),
        (_rollback, Kind("mor", 8)),
        (_rollback, Kind("mor", 6)),
        (_save, Kind("mor", 9)),
        (_restore, Kind("cow", 9)),
        (_restore, Kind("mor", 9)),
        (_restore, Kind("mor", 6)),
    ],
    ids=lambda v: v.__name__.strip("_") if callable(v) else str(v),
)
def test_death_at_any_call_leaves_a_known_state_and_the_next_write_finishes_it(
    undo: Callable[[Table], None], kind: Kind, new_table: NewTable, tmp_path: Path
) -> None:
    """Reading changes nothing, so the faults come at puts and deletes."""
    kinds = ("put", "delete")
    original, states = _prepared(new_table, kind, "t")
    wanted = {_rollback: states[-2], _restore: states[0], _save: states[-1]}[undo]
    for number in range(1, 400):
        table = lakesql.open_table(shutil.copytree(original.path, tmp_path / str(number)))
        storage = FaultyStorage(LocalStorage(table.path), number, HOW[1 + number % 2], kinds=kinds)
        with contextlib.suppress(OSError, LakeError):
            undo(Table(storage))
        seen = tuples(table.read())
        assert seen in (states if undo is _restore else (states[-1], wanted)), number
        table.upsert(rows(("n", "n", 1, 1)))
        after = [row for row in both_read(table) if row[0] != "n"]
        assert after in (states[-1], wanted), number
        assert seen == states[-1] or after == wanted, number
        assert not [i for i in table.state.timeline.pending() if i.action != "savepoint"]
        known = {i.requested for i in table.state.timeline.instants if i.completed_action in WRITE_ACTIONS}
        assert {f.instant for f in data_files(table)} <= known, number
        if not storage.failed:
            assert number > 2
            return
        shutil.rmtree(table.path)
    pytest.fail("it never ended")


def test_unfinished_restore_of_another_engine_still_blocks(new_table: NewTable) -> None:
    table = new_table(Kind("mor", 9))
    table.upsert(rows(*FIRST))
    state = table.state
    state.storage.put(f"{state.timeline_folder}/20260101000000000.restore.requested", b"")
    with pytest.raises(CommitConflict, match="restore 20260101000000000 is not finished"):
        table.rollback()


# ---------------------------------------------------------------- real tables

UTC = {"hoodie.table.timeline.timezone": "UTC"}  # which an unpacked table does not tell


def test_spark_tables_with_rollbacks_and_a_savepoint_are_restored_and_continued(tmp_path: Path) -> None:
    for name in ("h120_rollback_mor", "h102_rollback_mor"):
        table = unzipped(name, tmp_path)
        storage, clock = table.state.storage, later_clock()
        (saved,) = [r["savepoint_time"] for r in table.savepoints().to_pylist()]
        want = texts(table, saved)
        done = restores.restore(storage, UTC, clock=clock)
        assert (done.savepoint, len(done.instants)) == (saved, 1)
        assert texts(table) == want
        rows_now = f"FROM ({read.to_sql(CON, read.plan(table.state, None))})"
        columns = ", ".join(map(quote, table.schema.names))
        write(CON, table.state, f"SELECT {columns} {rows_now}", operation="insert", settings=UTC, clock=clock)
        assert len(texts(table)) == 2 * len(want)
        rollbacks.rollback(storage, UTC, clock=clock)
        assert texts(table) == want


@pytest.mark.parametrize(
    ("name", "possible"),
    [
        ("h015_clustered_mor", 9),
        ("h015_logcompact_mor", 13),
        ("h120_clustered_cow", 8),
        ("h120_logcompact_mor", 12),
        ("h120_overwrite_table_mor", 1),
        ("h120_services_mor", 5),
    ],
)
def test_newest_writes_of_spark_tables_are_taken_back_one_by_one(name: str, possible: int, tmp_path: Path) -> None:
    """Down to where cleaning or archiving, a savepoint or a plan stands in the way; each step gives the rows before it."""
    table, clock = unzipped(name, tmp_path), later_clock()
    for number in range(20):
        storage = table.state.storage
        for plan in table.state.timeline.pending():
            give_up(storage, UTC, plan.requested, delete_plan=True, clock=clock)
        newest = max(writes(table))
        before = max((w for w in writes(table) if w != newest), default="0")
        try:
            want = rows_before_cleaning(table, before)
        except TableError:
            with pytest.raises(TableError, match="cannot be rolled back"):
                rollbacks.rollback(storage, UTC, clock=clock)
            assert number == possible
            return
        try:
            rollbacks.rollback(storage, UTC, clock=clock)
        except TableError as refused:
            assert number == possible, refused  # noqa: PT017
            return
        assert texts(table) == want, newest
        if before == "0":
            assert number + 1 == possible
            return
    pytest.fail("it never ended")


def rows_before_cleaning(table: lakesql.Table, as_of: str) -> list[str]:
    """The rows as of an instant, whatever the cleaner says about it; its files must be there."""
    state = table.state
    kept = {n: info for n, info in state.instant_files.items() if ".clean" not in n}
    view = replace(state, instant_files=kept, timeline=Timeline.from_file_names(kept, state.config.layout))
    if as_of == "0":
        return []
    found = CON.sql(
        f"SELECT {', '.join(map(quote, state.schema.names))} FROM ({read.to_sql(CON, read.plan(view, as_of))})"
    )
    return sorted(map(repr, found.to_arrow_table().to_pylist()))


def unzipped(name: str, folder: Path) -> lakesql.Table:
    """A golden table, unpacked."""
    with zipfile.ZipFile(FOLDER / f"{name}.zip") as archive:
        archive.extractall(folder / name)
    (found,) = {p.parent for p in (folder / name).rglob(".hoodie") if p.parent.name != "metadata"}
    return lakesql.open_table(found)


def later_clock() -> Callable[[], int]:
    """A clock that begins after every instant of the golden tables and moves on at each look."""
    return itertools.count(instant_millis("20270101000000000")).__next__


def texts(table: lakesql.Table, as_of: str | None = None) -> list[str]:
    return sorted(map(repr, table.read(as_of, columns=table.schema.names).read_all().to_pylist()))
