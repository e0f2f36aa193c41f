"""What a clean removes and what it never does: policies, savepoints, pending plans, replaced groups, open results."""

import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from typer.testing import CliRunner

import lakesql
from lakesql.cli import app
from lakesql.errors import LakeError, TableError
from lakesql.format.metadata import encode_record
from lakesql.format.timeline import COMPLETED, INFLIGHT, REQUESTED
from lakesql.handle import Table
from lakesql.services import clean_settings, cleaning
from lakesql.storage import LocalStorage, open_storage
from lakesql.table import read, retained
from lakesql.table.damaged import damage_named
from lakesql.table.state import load
from tests.faulty import FaultError, FaultyStorage
from tests.interop import rust
from tests.samples import Kind, NewTable, create, rows, tuples
from tests.writing import put

NO = {"hoodie.clean.automatic": "false", "hoodie.archive.automatic": "false"}
COW = [Kind("cow", version) for version in (9, 8, 6)]
ALL = [*COW, Kind("mor", 9), Kind("mor", 6)]
kinds = pytest.mark.parametrize("kind", ALL, ids=str)


def keep(commits: int) -> dict[str, str]:
    return {"hoodie.clean.commits.retained": str(commits)}


def write(table: lakesql.Table, count: int, first: int = 1, **settings: str) -> list[str]:
    """Commits that each rewrite the base file of a and b; the instants. v is the number of the commit."""
    done = []
    for number in range(first, first + count):
        if table.state.config.is_mor:
            table.insert(rows((f"n{number}", "x", number, number)), **NO)  # packed into the small base file: rewritten
        result = table.upsert(rows(("a", "x", number, number), ("b", "y", number, number)), **{**NO, **settings})
        assert result.instant is not None
        done.append(result.instant)
    return done


def value(table: lakesql.Table, **options: str) -> int | None:
    return {r[0]: r[2] for r in tuples(table.read(**options))}["a"]


def bases(table: lakesql.Table, city: str = "x") -> list[str]:
    return sorted(p.name for p in (Path(table.path) / f"city={city}").glob("*.parquet"))


def savepoint(table: lakesql.Table, instant: str) -> None:
    """As Hudi makes one: the names of the files of the latest slices as of the instant."""
    state = table.state
    partitions: dict[str, list[str]] = {}
    for one in state.slices(instant):
        names = [f.name for f in (one.base, *one.logs) if f is not None]
        partitions.setdefault(one.partition, []).extend(names)
    body = encode_record(
        "HoodieSavepointMetadata",
        {
            "savepointedBy": "",
            "savepointedAt": 0,
            "comments": "",
            "partitionMetadata": {p: {"partitionPath": p, "savepointDataFile": n} for p, n in partitions.items()},
        },
    )
    layout = state.config.layout
    name = f"{instant}.savepoint" if layout == 1 else f"{instant}_{int(state.timeline.newest_time) + 1}.savepoint"
    state.storage.put(f"{state.timeline_folder}/{instant}.savepoint.inflight", b"")
    state.storage.put(f"{state.timeline_folder}/{name}", body)


@kinds
def test_states_of_the_retained_commits_stay_and_older_ones_are_refused_by_name(
    kind: Kind, new_table: NewTable
) -> None:
    table = new_table(kind)
    done = write(table, 6)
    (cleaned,) = table.clean(**keep(3))
    assert cleaned.earliest == done[3] if kind.type == "cow" else cleaned.earliest is not None
    for number, instant in enumerate(done, 1):
        if instant >= str(cleaned.earliest):
            assert value(table, as_of=instant) == number
        else:
            with pytest.raises(TableError, match=f"cleaned away.*{cleaned.earliest}"):
                table.read(as_of=instant)
    assert value(table) == 6
    assert table.clean(**keep(3)) == []


@pytest.mark.parametrize("kind", COW, ids=str)
def test_the_actions_have_the_form_of_hudi(kind: Kind, new_table: NewTable) -> None:
    table = new_table(kind)
    done = write(table, 4)
    old = bases(table)
    (cleaned,) = table.clean(**keep(2))
    state = table.state
    (instant,) = [i for i in state.timeline.instants if i.action == "clean"]
    assert instant.state == COMPLETED
    record = state.record(instant)
    gone = sorted(set(old) - set(bases(table)))
    assert len(gone) == 1
    assert record["startCleanTime"] == cleaned.instant
    assert (record["earliestCommitToRetain"], record["lastCompletedCommitTimestamp"]) == (done[2], done[3])
    assert record["partitionMetadata"]["city=x"] == {
        "partitionPath": "city=x",
        "policy": "KEEP_LATEST_COMMITS",
        "deletePathPatterns": gone,
        "successDeleteFiles": gone,
        "failedDeleteFiles": [],
        "isPartitionDeleted": False,
    }
    plan = state.plan(instant, f"{instant.requested}.clean.requested")
    assert plan["earliestInstantToRetain"] == {"timestamp": done[2], "action": "commit", "state": COMPLETED}
    (file,) = plan["filePathsToBeDeletedPerPartition"]["city=x"]
    assert file == {"filePath": f"file:{table.path}/city=x/{gone[0]}", "isBootstrapBaseFile": False}
    assert list((Path(table.path) / ".hoodie" / ".heartbeat").iterdir()) == []
    inflight = state.storage.read(f"{state.timeline_folder}/{instant.requested}.clean.inflight")
    assert (inflight == b"") == (kind.version == 9)


@pytest.mark.parametrize("kind", ALL, ids=str)
def test_by_file_versions_the_earliest_readable_state_is_known_all_the_same(kind: Kind, new_table: NewTable) -> None:
    table = new_table(kind)
    done = write(table, 5)
    (cleaned,) = table.clean(
        **{"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": "2"}
    )
    assert cleaned.metadata["earliestCommitToRetain"] == ""
    assert value(table) == value(table, as_of=done[4]) == 5
    earliest = retained.retained_from(table.state)
    assert earliest is not None
    assert done[0] < earliest <= done[4]
    with pytest.raises(TableError, match="cleaned away"):
        table.read(as_of=done[0])
    if kind.type == "cow":
        assert len(bases(table)) == 2
        assert earliest == done[3]


def test_the_earliest_readable_state_follows_from_the_names_that_another_engine_left(new_table: NewTable) -> None:
    table = new_table(Kind("cow", 9))
    done = write(table, 5)
    table.clean(**{"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": "2"})
    state = table.state
    (instant,) = [i for i in state.timeline.instants if i.action == "clean"]
    record = state.record(instant) | {"extraMetadata": {}}
    state.storage.put(f"{state.timeline_folder}/{instant.file_name}", encode_record("HoodieCleanMetadata", record))
    assert retained.retained_from(table.state) == done[3]


def test_by_hours_what_is_younger_stays(new_table: NewTable) -> None:
    table = new_table(Kind("cow", 9))
    write(table, 4)
    hours = {"hoodie.cleaner.policy": "KEEP_LATEST_BY_HOURS", "hoodie.cleaner.hours.retained": "1"}
    now = time.time_ns() // 1_000_000
    assert cleaning.preview(table.state, hours, lambda: now).files == {}  # type: ignore[union-attr]
    found = cleaning.preview(table.state, hours, lambda: now + 2 * 3_600_000)
    assert found is not None
    assert [len(names) for names in found.files.values()] == [
        2,
        2,
    ]  # the newest two: E is the newest, one before it stays


@pytest.mark.parametrize("kind", COW, ids=str)
def test_a_savepointed_state_stays_whole_and_readable(kind: Kind, new_table: NewTable) -> None:
    table = new_table(kind)
    done = write(table, 6)
    savepoint(table, done[1])
    (cleaned,) = table.clean(**keep(1))
    assert cleaned.earliest == done[5]
    assert value(table, as_of=done[1]) == 2
    assert cleaned.metadata["extraMetadata"]["savepointed_timestamps"] == done[1]
    with pytest.raises(TableError, match=f"cleaned away.*Savepoints stay readable: {done[1]}"):
        table.read(as_of=done[2])


def test_replaced_groups_go_when_the_replacement_is_old_enough(new_table: NewTable) -> None:
    table = new_table(Kind("cow", 9))
    write(table, 1)
    table.insert_overwrite(rows(("a", "x", 2, 2)), **NO)
    replaced = bases(table)
    write(table, 1, 3)
    table.clean(**keep(2))
    assert set(replaced) <= set(bases(table))
    write(table, 2, 4)
    table.clean(**keep(2))
    assert len(set(replaced) & set(bases(table))) == 0
    assert value(table) == 5


def test_a_partition_that_became_empty_goes_with_its_folder_and_can_be_filled_again(new_table: NewTable) -> None:
    table = new_table(Kind("cow", 9))
    write(table, 1)
    table.upsert(rows(("c", "z", 1, 1)), **NO)
    nothing = "SELECT * FROM (VALUES ('', '', 0, 0)) t(id, city, v, ts) WHERE false"
    put(table.state, nothing, "delete_partition", partitions=("city=z",))
    table.clean(**keep(1))
    assert len(bases(table, "z")) == 1
    write(table, 3, 2)
    (cleaned,) = table.clean(**keep(1))
    assert cleaned.metadata["partitionMetadata"]["city=z"]["isPartitionDeleted"]
    assert not (Path(table.path) / "city=z").exists()
    table.upsert(rows(("c", "z", 9, 9)), **NO)
    assert (Path(table.path) / "city=z" / ".hoodie_partition_metadata").exists()
    assert tuples(table.read())[-1] == ("c", "z", 9, 9)
    assert len(rust.read(table.path)) == 3


def test_the_command_shows_what_would_go_and_removes_it(new_table: NewTable) -> None:
    table = new_table(Kind("cow", 9))
    write(table, 4)
    runner, old = CliRunner(), bases(table)
    shown = runner.invoke(app, ["clean", table.path, "--retain-commits", "1", "--dry-run"])
    assert shown.output.splitlines()[-1] == "4 files would be removed."
    assert f"city=x/{old[0]}" in shown.output
    assert bases(table) == old
    assert "4 files removed" in runner.invoke(app, ["clean", table.path, "--retain-commits", "1"]).output
    assert runner.invoke(app, ["clean", table.path]).output == "Nothing to remove.\n"
    assert runner.invoke(app, ["clean", table.path, "--every", "often"]).exit_code == 1


def test_slices_that_a_pending_compaction_reads_stay(new_table: NewTable) -> None:
    table = new_table(Kind("mor", 9))
    done = write(table, 3)
    state = table.state
    one = next(s for s in state.slices() if s.partition == "city=x" and s.base and s.logs)
    assert one.base is not None
    plan = {
        "operations": [
            {
                "baseInstantTime": one.instant,
                "deltaFilePaths": [f.name for f in one.logs],
                "dataFilePath": one.base.name,
                "fileId": one.file_id,
                "partitionPath": one.partition,
                "metrics": {},
            }
        ],
        "extraMetadata": {},
        "version": 2,
    }
    planned = str(int(state.timeline.newest_time) + 1)
    state.storage.put(
        f"{state.timeline_folder}/{planned}.compaction.requested", encode_record("HoodieCompactionPlan", plan)
    )
    time.sleep(0.01)
    table.upsert(rows(("a", "x", 9, 9)), **NO)
    for policy in ({}, {"hoodie.clean.policy": "KEEP_LATEST_FILE_VERSIONS", "hoodie.clean.fileversions.retained": "1"}):
        table.clean(**{**keep(1), **policy})
        assert one.base.name in bases(table)
        assert value(table) == 9
    assert done


@pytest.mark.parametrize("version", [9, 6])
def test_files_of_an_instant_that_nobody_knows_go_before_they_come_to_life(version: int, new_table: NewTable) -> None:
    table = new_table(Kind("cow", version))
    done = write(table, 2)
    (folder,) = [Path(table.path) / "city=x"]
    stray = folder / bases(table)[0].replace(done[0], str(int(done[0]) + 1))
    stray.write_bytes((folder / bases(table)[0]).read_bytes())
    write(table, 3, 3)
    assert value(table) == 5
    table.clean(**keep(2))
    assert not stray.exists()


def test_a_result_that_is_still_read_keeps_its_files_and_the_next_clean_takes_them(new_table: NewTable) -> None:
    table = new_table(Kind("cow", 9))
    write(table, 1)
    reader = table.read()
    old = bases(table)
    write(table, 4, 2)
    (cleaned,) = table.clean(**keep(1))
    assert "2 old files stay" in cleaned.notes[0]
    assert set(old) <= set(bases(table))
    assert {r[2] for r in tuples(reader)} == {1}
    (again,) = table.clean(**keep(1))
    assert again.files_deleted == 2
    assert not set(old) & set(bases(table))


def test_a_result_that_was_read_to_its_end_keeps_nothing(new_table: NewTable) -> None:
    table = new_table(Kind("cow", 9))
    write(table, 1)
    reader = table.read()
    reader.read_all()
    write(table, 4, 2)
    (cleaned,) = table.clean(**keep(1))
    assert cleaned.notes == ()
    assert len(bases(table)) == 2


def test_a_cursor_reading_on_keeps_its_files_and_its_own_clean_does_not_wait(
    new_table: NewTable, tmp_path: Path
) -> None:
    table = new_table(Kind("cow", 9))
    write(table, 1)
    old = bases(table)
    with lakesql.connect(warehouse=str(tmp_path)) as con:
        other = con.cursor()
        other.execute("SELECT * FROM t")
        write(table, 4, 2)
        con.sql("SELECT * FROM t").fetchall()
        con.sql("CALL run_clean(table => 't', retain_commits => 1)")
        assert set(old) <= set(bases(table))
        assert {row[-2] for row in other.fetchall()} == {1}
        other.execute("SELECT count(*) FROM t").fetchall()
        con.sql("CALL run_clean(table => 't', retain_commits => 1)")
        assert not set(old) & set(bases(table))
        other.close()


def test_a_reader_of_another_process_that_loses_a_file_is_told_what_happened(new_table: NewTable) -> None:
    table = new_table(Kind("cow", 9))
    write(table, 1)
    plan = read.plan(table.state)
    con = duckdb.connect()
    sql = read.to_sql(con, plan)
    (Path(table.path) / "city=x" / bases(table)[0]).unlink()
    with (
        pytest.raises(TableError, match=r"cleaned or rolled back while the table was read\. Run the statement again"),
        damage_named(plan.view.state),
    ):
        con.execute(sql).fetchall()


def test_the_grace_keeps_what_readers_of_other_processes_may_still_need(new_table: NewTable) -> None:
    table = new_table(Kind("cow", 9))
    write(table, 5)
    assert table.clean(**keep(1), **{"lakesql.clean.grace": "10 minutes"}) == []
    assert len(bases(table)) == 5
    assert table.clean(**keep(1), **{"lakesql.clean.grace": "0"}) != []
    with pytest.raises(TableError, match="span of time"):
        table.clean(**{"lakesql.clean.grace": "soon"})


def test_a_write_cleans_what_is_due_and_says_so(new_table: NewTable) -> None:
    table = new_table(Kind("cow", 9))
    for number in range(12):
        result = table.upsert(rows(("a", "x", number, number)))
    assert len(bases(table)) == 11  # ten retained, and the one before them
    assert any("Cleaned 1 old file" in note for note in result.notes)


def test_a_write_after_which_nothing_is_due_lists_no_data(new_table: NewTable) -> None:
    table = new_table(Kind("cow", 9))
    for number in range(12):
        table.insert(rows((f"k{number}", "x", number, number)), **{"hoodie.parquet.small.file.limit": "0"}, **NO)
    storage = LocalStorage(table.path)
    listed: list[str] = []
    listing = storage.list
    storage.list = lambda folder: listed.append(folder) or listing(folder)  # type: ignore[method-assign,func-returns-value]
    assert cleaning.after_write(None, storage, {}, lambda: time.time_ns() // 1_000_000) == []  # type: ignore[arg-type]
    assert listed == [".hoodie/timeline"]


def test_the_trigger_counts_commits_since_the_last_clean(new_table: NewTable) -> None:
    table = new_table(Kind("cow", 9))
    write(table, 4)
    storage, settings = open_storage(table.path), {**keep(1), "hoodie.clean.max.commits": "3"}
    assert len(cleaning.clean(storage, settings, only_due=True)) == 1
    write(table, 2, 5)
    assert cleaning.clean(storage, settings, only_due=True) == []
    write(table, 1, 7)
    assert len(cleaning.clean(storage, settings, only_due=True)) == 1


@pytest.mark.parametrize("stage", [REQUESTED, INFLIGHT])
def test_an_interrupted_clean_is_finished_but_spares_what_is_needed_since(stage: str, new_table: NewTable) -> None:
    table = new_table(Kind("cow", 9))
    done = write(table, 5)
    storage = open_storage(table.path)
    planned = cleaning.schedule(storage, keep(1))
    assert planned is not None
    if stage == INFLIGHT:
        storage.put(f".hoodie/timeline/{planned[0]}.clean.inflight", b"")
    savepoint(table, done[2])
    (finished,) = table.clean(**keep(1))
    assert finished.instant == planned[0]
    assert finished.files_deleted == 4
    assert len(finished.metadata["partitionMetadata"]["city=x"]["failedDeleteFiles"]) == 1
    assert value(table, as_of=done[2]) == 3


def test_a_clean_that_another_engine_runs_is_left_to_it(new_table: NewTable) -> None:
    table = new_table(Kind("cow", 9))
    write(table, 4)
    storage = open_storage(table.path)
    planned = cleaning.schedule(storage, keep(1))
    assert planned is not None
    path = f".hoodie/timeline/{planned[0]}.clean.requested"
    state = load(storage)
    plan = state.plan(state.timeline.pending("clean")[0], path.rsplit("/", 1)[-1]) | {"extraMetadata": {}}
    storage.put(path, encode_record("HoodieCleanerPlan", plan))
    with pytest.raises(lakesql.CommitConflict, match="another writer runs clean"):
        table.clean(**keep(1))
    later = time.time_ns() // 1_000_000 + 200_000
    assert len(cleaning.clean(storage, keep(1), lambda: later, plan=False)) == 1


def test_corrupted_cleans_are_named_and_repaired(new_table: NewTable, tmp_path: Path) -> None:
    table = new_table(Kind("cow", 9))
    write(table, 4)
    folder = Path(table.path) / ".hoodie" / "timeline"
    bad = str(int(table.state.timeline.newest_time) + 1)
    (folder / f"{bad}.clean.requested").write_bytes(b"")
    time.sleep(0.01)
    with pytest.raises(LakeError, match="repair_corrupted_clean_files"):
        table.clean(**keep(1))
    with lakesql.connect(warehouse=str(tmp_path)) as con:
        assert con.sql("CALL repair_corrupted_clean_files(table => 't')").fetchall() == [(True,)]
    assert not (folder / f"{bad}.clean.requested").exists()
    assert len(table.clean(**keep(1))) == 1


def test_checksum_files_go_with_their_files(new_table: NewTable) -> None:
    table = new_table(Kind("cow", 9))
    write(table, 4)
    folder = Path(table.path) / "city=x"
    for name in bases(table):
        (folder / f".{name}.crc").write_bytes(b"crc")
    table.clean(**keep(1))
    assert {p.name[1:-4] for p in folder.glob(".*.crc")} == set(bases(table))


def test_both_spellings_of_a_setting_count_and_the_newer_one_first() -> None:
    parse: Callable[..., clean_settings.CleanConfig] = clean_settings.parse_clean
    assert parse({"hoodie.cleaner.commits.retained": "4"}).commits == 4
    assert parse({"hoodie.cleaner.commits.retained": "4", "hoodie.clean.commits.retained": "5"}).commits == 5
    assert not parse({"hoodie.cleaner.incremental.mode": "false"}).incremental
    for name in clean_settings.SETTINGS:
        with pytest.raises(TableError, match="setting"):
            parse({name: "?"})


def test_procedures_show_what_was_cleaned_and_planned(new_table: NewTable, tmp_path: Path) -> None:
    table = new_table(Kind("cow", 9))
    write(table, 5)
    with lakesql.connect(warehouse=str(tmp_path)) as con:
        ran = con.sql("CALL run_clean(table => 't', retain_commits => 2)").fetchall()
        assert [(row[2], row[5]) for row in ran] == [(4, 2)]
        assert con.sql("CALL run_clean(table => 't', retain_commits => 2)").fetchall() == []
        shown = con.sql("CALL show_cleans(table => 't')").fetchall()
        assert [(row[0], row[5]) for row in shown] == [(ran[0][0], 4)]
        assert con.sql("CALL show_cleans(table => 't', filter => 'total_files_deleted > 4')").fetchall() == []
        assert len(con.sql("CALL show_cleans_metadata(table => 't')").fetchall()) == 2
        plans = con.sql("CALL show_clean_plans(table => 't')").fetchall()
        assert [(row[1], row[5], row[7]) for row in plans] == [(COMPLETED, "KEEP_LATEST_COMMITS", 2)]
        with pytest.raises(TableError, match="KEEP_LATEST_COMMITS"):
            con.sql("CALL run_clean(table => 't', clean_policy => 'ALL')")


def test_a_table_without_partitions_is_cleaned(tmp_path: Path) -> None:
    table = create(tmp_path / "t", Kind("cow", 9, partitioned=False))
    for number in range(4):
        table.upsert(rows(("a", "x", number, number)), **NO)
    (cleaned,) = table.clean(**keep(1))
    assert cleaned.files_deleted == 2
    assert tuples(table.read()) == [("a", "x", 3, 3)]


@pytest.mark.parametrize("version", [9, 6])
@pytest.mark.parametrize("policy", ["KEEP_LATEST_COMMITS", "KEEP_LATEST_FILE_VERSIONS"])
def test_time_travel_beside_an_unfinished_clean_says_which_states_are_left(version, policy, tmp_path):
    made = create(tmp_path / "t", Kind("cow", version))
    for n in range(4):
        made.upsert(rows(("a", "x", n, n)), **NO)
    first, *_, newest = [i.requested for i in made.state.timeline.completed_writes()]
    settings = {
        "hoodie.clean.policy": policy,
        "hoodie.clean.commits.retained": "1",
        "hoodie.clean.fileversions.retained": "1",
    }
    dying = Table(FaultyStorage(made.state.storage, fail_at=1, how="after", kinds=("delete",)))
    with pytest.raises(FaultError):
        dying.clean(**settings)
    assert made.state.timeline.pending("clean")
    for ask in (lambda: made.read(as_of=first), lambda: made.savepoint(first)):
        with pytest.raises(TableError) as caught:
            ask()
        text = str(caught.value)
        assert f"the state as of {first} is being cleaned away by the clean" in text
        assert "can be read. CALL run_clean finishes the clean." in text
        assert "Restore the file" not in text
    assert tuples(made.read(as_of=newest)) == [("a", "x", 3, 3)]
    made.clean(**settings)
    with pytest.raises(TableError, match="has been cleaned away"):
        made.read(as_of=first)
