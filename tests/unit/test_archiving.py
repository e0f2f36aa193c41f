"""Archiving: what may leave the active timeline, in which form it is kept, and that readers see no difference."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import lakesql
from lakesql.errors import TableError
from lakesql.format.archived import ARCHIVED_ENTRY
from lakesql.format.log import scan_blocks
from lakesql.format.metadata import encode_record
from lakesql.services import archiving
from lakesql.services.archiving import _entries, _remove, _row
from lakesql.services.history import append_history, append_log
from lakesql.storage import open_storage
from lakesql.table import state as module
from lakesql.table.archive import _log_records, read_archived
from tests.samples import Kind, NewTable, rows, tuples
from tests.unit.test_cleaning import NO, bases, keep, savepoint, value, write

SHORT = {"hoodie.keep.min.commits": "2", "hoodie.keep.max.commits": "3", **keep(1)}
kinds = pytest.mark.parametrize("kind", [Kind(t, v) for t in ("cow", "mor") for v in (9, 8, 6)], ids=str)


def upserts(table: lakesql.Table, count: int, first: int = 1, **settings: str) -> list[str]:
    done = []
    for number in range(first, first + count):
        result = table.upsert(rows(("a", "x", number, number), ("b", "y", number, number)), **{**NO, **settings})
        assert result.instant is not None
        done.append(result.instant)
    return done


def active(table: lakesql.Table) -> list[str]:
    return [i.requested for i in table.state.timeline.completed_writes()]


def folder(table: lakesql.Table) -> Path:
    return Path(table.path) / table.state.config.history_folder


@kinds
def test_old_commits_leave_the_timeline_and_every_read_is_as_before(kind: Kind, new_table: NewTable) -> None:
    table = new_table(kind)
    done = upserts(table, 7)
    before = table.history().select(["instant", "action", "operation", "rows_written", "completed"]).to_pylist()
    changed = [tuples(table.changes(instant)) for instant in done]
    assert table.archive(**SHORT) == done[:5]
    assert active(table) == done[5:]
    assert table.history().select(["instant", "action", "operation", "rows_written", "completed"]).to_pylist() == before
    for number, instant in enumerate(done, 1):
        assert value(table, as_of=instant) == number
        assert tuples(table.changes(instant)) == changed[number - 1]
    assert tuples(table.changes("earliest")) == tuples(table.read())
    assert table.archive(**SHORT) == []
    more = upserts(table, 2, 8)
    assert table.archive(**SHORT) == done[5:]
    assert active(table) == more
    assert [row["instant"] for row in table.history().to_pylist()][::-1] == [*done, *more]


def test_the_history_has_the_form_of_hudi(new_table: NewTable) -> None:
    table = new_table(Kind("cow", 9))
    done = upserts(table, 5)
    bodies = [
        table.state.storage.read(f".hoodie/timeline/{i.file_name}") for i in table.state.timeline.completed_writes()
    ]
    table.archive(**SHORT)
    name = f"{done[0]}_{done[2]}_0.parquet"
    assert {p.name for p in folder(table).iterdir()} == {name, "manifest_1", "_version_"}
    assert (folder(table) / "_version_").read_text() == "1"
    size = (folder(table) / name).stat().st_size
    text = f'{{\n  "files" : [ {{\n    "fileName" : "{name}",\n    "fileLen" : {size}\n  }} ]\n}}'
    assert (folder(table) / "manifest_1").read_text() == text
    file = pq.ParquetFile(folder(table) / name)
    assert file.metadata.row_group(0).column(0).compression == "GZIP"
    assert json.loads(file.metadata.metadata[b"parquet.avro.schema"])["name"] == "HoodieLSMTimelineInstant"
    assert file.metadata.metadata[b"writer.model.name"] == b"avro"
    found = file.read().to_pylist()
    assert [row["metadata"] for row in found] == bodies[:3]
    assert {(row["action"], row["plan"], row["version"]) for row in found} == {("commit", None, 1)}


def test_two_manifest_entries_are_spelt_as_hudi_spells_them(new_table: NewTable) -> None:
    table = new_table(Kind("cow", 9))
    upserts(table, 5)
    table.archive(**SHORT)
    upserts(table, 3, 6)
    table.archive(**SHORT)
    text = (folder(table) / "manifest_2").read_text()
    assert text.count("\n  }, {\n") == 1
    assert text.startswith('{\n  "files" : [ {\n    "fileName"')
    assert text.endswith("\n  } ]\n}")
    assert len(json.loads(text)["files"]) == 2


def test_files_of_a_level_are_merged_and_old_manifests_and_files_go(new_table: NewTable) -> None:
    table = new_table(Kind("cow", 9))
    done: list[str] = []
    merge = {"hoodie.timeline.compaction.batch.size": "2", "hoodie.timeline.manifest.retained.versions": "1"}
    for turn in range(8):
        done += upserts(table, 4 if turn == 0 else 2, len(done) + 1)
        table.archive(**SHORT, **merge)
    names = {p.name for p in folder(table).iterdir()}
    levels = sorted(name[-9] for name in names if name.endswith(".parquet"))
    assert "3" in levels
    assert len([n for n in names if n.startswith("manifest_")]) <= 4
    assert [a.instant.requested for a in read_archived(table.state.storage, table.state.config)] == done[:-2]
    assert value(table, as_of=done[0]) == 1


def test_version_6_keeps_one_entry_for_each_state(new_table: NewTable) -> None:
    table = new_table(Kind("cow", 6))
    done = upserts(table, 5)
    table.archive(**SHORT, **{"hoodie.commits.archival.batch": "4"})
    (path,) = folder(table).iterdir()
    assert path.name == ".commits_.archive.1_1-0-1"
    blocks = scan_blocks(path.read_bytes(), "x")
    assert [list(b.headers) for b in blocks] == [[2]] * 3
    assert json.loads(blocks[0].headers[2]) == ARCHIVED_ENTRY
    entries = _log_records(path.read_bytes(), "x")
    assert [(e["commitTime"], e["actionState"]) for e in entries] == [
        (t, s) for t in done[:3] for s in ("REQUESTED", "INFLIGHT", "COMPLETED")
    ]
    assert entries[2]["hoodieCommitMetadata"]["operationType"] == "UPSERT"
    assert len(entries[2]["stateTransitionTime"]) == 17


@pytest.mark.parametrize("version", [9, 6])
def test_cleans_are_archived_as_hudi_does_and_the_newest_stays(version: int, new_table: NewTable) -> None:
    table = new_table(Kind("cow", version))
    for number in range(1, 9):
        write(table, 1, number)
        table.clean(**keep(1))
    table.archive(**SHORT)
    state = table.state
    cleans = [i for i in state.timeline.instants if i.action == "clean"]
    assert 1 <= len(cleans) <= 3
    archived = state.archived_others
    assert len(cleans) + len(archived) == 6
    assert all(a.record and a.record["totalFilesDeleted"] == 2 and a.plan for a in archived)
    with pytest.raises(TableError, match="cleaned away"):
        table.read(as_of=table.history().to_pylist()[-1]["instant"])


@pytest.mark.parametrize("version", [9, 6])
def test_when_every_clean_is_archived_lost_states_are_still_refused(version: int, new_table: NewTable) -> None:
    table = new_table(Kind("cow", version))
    done = write(table, 6)
    (cleaned,) = table.clean(**keep(1))
    state = table.state
    (clean,) = [i for i in state.timeline.instants if i.action == "clean"]
    if version == 6:
        append_log(state.storage, state.config.history_folder, _entries(state, clean), 10)
    else:
        append_history(state.storage, state.config.history_folder, [_row(state, clean)], 10, 3)
    _remove(state, [clean])
    with pytest.raises(TableError, match=f"cleaned away.*{cleaned.earliest}"):
        table.read(as_of=done[0])


def test_nothing_is_archived_from_the_oldest_pending_instant_on(new_table: NewTable) -> None:
    table = new_table(Kind("mor", 9))
    done = upserts(table, 3)
    plan = str(int(table.state.timeline.newest_time) + 1)
    table.state.storage.put(
        f".hoodie/timeline/{plan}.compaction.requested", encode_record("HoodieCompactionPlan", {"operations": []})
    )
    done += upserts(table, 5, 4)
    assert table.archive(**SHORT) == done[:2]


def test_nothing_is_archived_from_a_savepoint_on_nor_what_cleaning_retains(new_table: NewTable) -> None:
    table = new_table(Kind("cow", 9))
    done = upserts(table, 8)
    assert table.archive(**{**SHORT, **keep(6)}) == done[:2]
    savepoint(table, done[4])
    assert table.archive(**SHORT) == done[2:4]
    assert value(table, as_of=done[4]) == 5
    assert table.archive(**SHORT) == []


@pytest.mark.parametrize("version", [9, 6])
def test_a_replacement_stays_while_its_replaced_files_are_there(version: int, new_table: NewTable) -> None:
    table = new_table(Kind("cow", version))
    upserts(table, 2)
    overwrite = table.insert_overwrite(rows(("a", "x", 3, 3)), **NO)
    upserts(table, 6, 4)
    table.archive(**SHORT)
    assert overwrite.instant in active(table)
    assert len(bases(table)) > 6
    table.clean(**keep(2))
    table.archive(**SHORT)
    assert overwrite.instant not in active(table)
    assert tuples(table.read()) == [("a", "x", 9, 9), ("b", "y", 9, 9)]


@pytest.mark.parametrize("version", [9, 6])
def test_a_file_that_no_instant_knows_does_not_come_to_life(version: int, new_table: NewTable) -> None:
    table = new_table(Kind("cow", version))
    done = upserts(table, 2)
    one = Path(table.path) / "city=x" / bases(table)[0]
    stray = one.with_name(f"{'1' * 8}-0000-0000-0000-000000000000-0_0-0-1_{int(done[0]) + 1}.parquet")
    stray.write_bytes(one.read_bytes())
    upserts(table, 6, 3)
    assert tuples(table.read())[0] == ("a", "x", 8, 8)
    table.archive(**SHORT)
    assert done[0] in active(table)
    assert tuples(table.read()) == [("a", "x", 8, 8), ("b", "y", 8, 8)]
    table.clean(**keep(1))
    assert not stray.exists()
    table.archive(**SHORT)
    assert done[0] not in active(table)
    assert tuples(table.read()) == [("a", "x", 8, 8), ("b", "y", 8, 8)]


@kinds
def test_an_instant_in_both_places_is_one_and_the_next_run_finishes(kind: Kind, new_table: NewTable) -> None:
    table = new_table(kind)
    done = upserts(table, 6)
    kept = {p: p.read_bytes() for p in (Path(table.path) / table.state.timeline_folder).iterdir() if done[3] in p.name}
    table.archive(**SHORT)
    for path, data in kept.items():
        path.write_bytes(data)
    assert len([row for row in table.history().to_pylist() if row["instant"] == done[3]]) == 1
    more = upserts(table, 2, 7)
    assert done[3] in table.archive(**SHORT)
    assert active(table) == more
    archived = [a.instant.requested for a in read_archived(table.state.storage, table.state.config)]
    assert archived == done


def test_a_reader_that_looked_before_finds_the_commit_in_the_archive(new_table: NewTable) -> None:
    table = new_table(Kind("cow", 9))
    done = upserts(table, 6)
    state = table.state
    table.archive(**SHORT)
    module._cache.clear()
    first = next(i for i in state.timeline.completed_writes() if i.requested == done[0])
    assert state.commit(first).operation == "UPSERT"
    assert {s.base.instant for s in state.slices() if s.base} == {done[5]}


def test_a_write_archives_when_the_timeline_is_too_long(new_table: NewTable) -> None:
    table = new_table(Kind("mor", 9))
    for number in range(4):
        result = table.upsert(rows(("a", "x", number, number)), **SHORT)
    assert any("Archived 2 instants" in note for note in result.notes)
    assert len(active(table)) == 2


def test_limits_that_contradict_each_other_are_refused(new_table: NewTable) -> None:
    table = new_table(Kind("cow", 9))
    with pytest.raises(TableError, match=r"hoodie\.keep\.max\.commits"):
        table.archive(**{"hoodie.keep.min.commits": "5", "hoodie.keep.max.commits": "4"})
    assert archiving.parse_archive({"hoodie.keep.max.commits": "5"}).min_commits == 5


def test_procedures_archive_and_show_the_archive(new_table: NewTable, tmp_path: Path) -> None:
    table = new_table(Kind("cow", 9))
    done = upserts(table, 6)
    with lakesql.connect(warehouse=str(tmp_path)) as con:
        call = "CALL archive_commits(table => 't', min_commits => 2, max_commits => 3, retain_commits => 1)"
        assert con.sql(call).fetchall() == [(0,)]
        shown = con.sql("CALL show_archived_commits(table => 't', limit => 3)").fetchall()
        assert [row[0] for row in shown] == [done[3], done[2], done[1]]
        shown = con.sql(f"CALL show_archived_commits_metadata(table => 't', end_ts => '{done[0]}')").fetchall()
        assert [(row[0], row[3]) for row in shown] == [(done[0], "city=x"), (done[0], "city=y")]


def test_readers_between_any_two_steps_see_the_same_rows_and_commits(new_table: NewTable) -> None:
    """A look at the table after every single call of an archive run."""
    for kind in (Kind("cow", 9), Kind("mor", 6)):
        table = new_table(kind, f"between-{kind}")
        done = upserts(table, 6)
        storage, seen = open_storage(table.path), 0
        for name in ("put", "delete", "delete_tree"):
            inner = getattr(storage, name)

            def spy(
                *arguments: object, inner: object = inner, table: lakesql.Table = table, done: list[str] = done
            ) -> object:
                nonlocal seen
                answer = inner(*arguments)  # type: ignore[operator]
                seen += 1
                assert value(table) == 6
                assert value(table, as_of=done[1]) == 2
                assert {row["instant"] for row in table.history().to_pylist()} == set(done)
                return answer

            setattr(storage, name, spy)
        archiving.archive(storage, SHORT)
        assert seen > 10
