"""Procedures that mend or change a table: they show first, do it with dry_run => false, and refuse what would harm."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import lakesql
from lakesql.errors import CommitConflict
from lakesql.procedures import changing, repair, tables
from lakesql.sql.connection import Connection
from lakesql.table.state import load
from tests.writing import put, rows_of, table, upsert, values

BOTH = pytest.mark.parametrize("kind", ["cow", "mor"])
METAFILE = ".hoodie_partition_metadata"


@pytest.fixture
def con(tmp_path: Path) -> Connection:
    return lakesql.connect(warehouse=str(tmp_path))


def one(con: Connection, call: str) -> Any:
    """The only value of a CALL that gives one row; of several columns the row."""
    (row,) = con.sql(f"CALL {call}").fetchall()
    return row[0] if len(row) == 1 else row


@BOTH
@pytest.mark.parametrize("version", [6, 8, 9])
def test_deduplicate_keeps_the_newest_row_of_each_key(con: Connection, tmp_path: Path, kind: str, version: int) -> None:
    state = table(tmp_path / "t", kind, version)
    put(state, values(("a", "x", 1, 1), ("b", "x", 2, 1), ("a", "y", 9, 1)), "insert")
    put(state, values(("a", "x", 3, 2)), "insert")
    before = rows_of(state)
    assert len(before) == 4
    call = f"repair_deduplicate('t', 'city=x', '{tmp_path}/fixed'"
    text = one(con, f"{call})")
    assert text == "1 copy of 1 key in partition city=x would be removed; dry_run => false removes them."
    assert rows_of(state) == before
    assert sorted(pq.read_table(tmp_path / "fixed" / "repaired.parquet")["v"].to_pylist()) == [2, 3]
    assert "removed 1 copy of 1 key in partition city=x." in one(con, f"{call}, dry_run => false)")
    assert rows_of(state) == [("a", "x", 3, 2), ("a", "y", 9, 1), ("b", "x", 2, 1)]
    assert (
        one(con, "repair_deduplicate('t', 'city=x', dry_run => false)") == "No key is there twice in partition city=x."
    )


def test_deduplicate_refuses_a_partition_or_type_that_is_not_there(con: Connection, tmp_path: Path) -> None:
    upsert(table(tmp_path / "t"), ("a", "x", 1, 1))
    with pytest.raises(lakesql.TableError, match="no partition 'city=z'"):
        con.sql("CALL repair_deduplicate('t', 'city=z')")
    with pytest.raises(lakesql.SQLError, match="use one of insert_type"):
        con.sql("CALL repair_deduplicate('t', 'city=x', dedupe_type => 'all')")


def test_a_missing_metafile_is_shown_then_added(con: Connection, tmp_path: Path) -> None:
    written = upsert(table(tmp_path / "t"), ("a", "x", 1, 1), ("b", "y", 1, 1))
    (tmp_path / "t" / "city=x" / METAFILE).unlink()
    shown = con.sql("CALL repair_add_partition_meta('t')").fetchall()
    assert shown == [("city=x", "No", "None"), ("city=y", "Yes", "None")]
    done = con.sql("CALL repair_add_partition_meta('t', false)").fetchall()
    assert done == [("city=x", "No", "Repaired"), ("city=y", "Yes", "None")]
    text = (tmp_path / "t" / "city=x" / METAFILE).read_text()
    assert f"commitTime={written.instant}\npartitionDepth=1\n" in text


def test_metafiles_become_parquet_with_the_same_values(con: Connection, tmp_path: Path) -> None:
    state = table(tmp_path / "t")
    written = upsert(state, ("a", "x", 1, 1))
    assert one(con, "repair_migrate_partition_meta('t')") == ("city=x", "true", "false", "MIGRATE")
    assert one(con, "repair_migrate_partition_meta('t', false)") == ("city=x", "true", "false", "MIGRATED")
    found = pq.read_metadata(tmp_path / "t" / "city=x" / f"{METAFILE}.parquet").metadata
    assert (found[b"commitTime"], found[b"partitionDepth"]) == (str(written.instant).encode(), b"1")
    assert not (tmp_path / "t" / "city=x" / METAFILE).exists()
    assert load(state.storage).config.properties["hoodie.partition.metafile.use.base.format"] == "true"
    assert con.sql("CALL repair_add_partition_meta('t')").fetchall() == [("city=x", "Yes", "None")]


def test_properties_are_replaced_and_the_differences_shown(con: Connection, tmp_path: Path) -> None:
    upsert(table(tmp_path / "t"), ("a", "x", 1, 1))
    file, new = tmp_path / "t" / ".hoodie" / "hoodie.properties", tmp_path / "new.properties"
    lines = [line for line in file.read_text().splitlines() if not line.startswith("hoodie.table.checksum")]
    new.write_text("\n".join([*lines, "hoodie.cleaner.commits.retained=7"]) + "\n")
    found = con.sql(f"CALL repair_overwrite_hoodie_props('t', '{new}')").fetchall()
    assert [row for row in found if row[1] != row[2]] == [("hoodie.cleaner.commits.retained", "null", "7")]
    whole = file.read_text()
    file.write_text(whole[:40])  # a damaged file is reached by its path
    con.sql(f"CALL repair_overwrite_hoodie_props(path => '{tmp_path}/t', new_props_file_path => '{new}')")
    assert con.sql("SELECT id FROM t").fetchall() == [("a",)]


@pytest.mark.parametrize(
    ("old", "changed", "text"),
    [
        ("hoodie.table.version=9", "hoodie.table.version=8", "its timeline would no longer be read"),
        ("hoodie.table.type=COPY_ON_WRITE", "hoodie.table.type=NONE", "expected one of COPY_ON_WRITE"),
        ("hoodie.table.name=t", "", "hoodie.table.name is missing"),
    ],
)
def test_properties_that_would_break_the_table_are_refused(
    con: Connection, tmp_path: Path, old: str, changed: str, text: str
) -> None:
    upsert(table(tmp_path / "t"), ("a", "x", 1, 1))
    file, new = tmp_path / "t" / ".hoodie" / "hoodie.properties", tmp_path / "new.properties"
    before = file.read_text()
    new.write_text(before.replace(old, changed))
    with pytest.raises(lakesql.LakeError, match=text):
        con.sql(f"CALL repair_overwrite_hoodie_props('t', '{new}')")
    assert file.read_text() == before


@BOTH
def test_partitions_are_dropped_by_path_or_glob_and_stay_in_the_history(
    con: Connection, tmp_path: Path, kind: str
) -> None:
    state = table(tmp_path / "t", kind)
    written = upsert(state, ("a", "x", 1, 1), ("b", "y1", 1, 1), ("c", "y2", 1, 1))
    with pytest.raises(lakesql.TableError, match=r"no partition city=z; there are city=x, city=y1, city=y2"):
        con.sql("CALL drop_partition('t', 'city=x,city=z')")
    assert one(con, "drop_partition('t', 'city=y*')") == "Success"
    assert rows_of(state) == [("a", "x", 1, 1)]
    result, time_cost = one(con, "truncate_table('t', partitions => 'city=x')")
    assert (result, rows_of(state)) == ("SUCCESS", [])
    assert time_cost >= 0
    assert con.sql(f"SELECT count(*) FROM hudi_scan('t', as_of := '{written.instant}')").fetchall() == [(3,)]
    upsert(state, ("a", "x", 1, 1))
    assert one(con, "truncate_table('t')")[0] == "SUCCESS"
    assert rows_of(state) == []


def test_a_query_is_copied_into_a_view_a_duckdb_table_or_a_hudi_table(con: Connection, tmp_path: Path) -> None:
    state = table(tmp_path / "t")
    first = upsert(state, ("a", "x", 1, 1))
    second = upsert(state, ("b", "x", 2, 1))
    con.sql("CALL copy_to_temp_view('t', view_name => 'v')")
    assert con.sql("SELECT id FROM v ORDER BY id").fetchall() == [("a",), ("b",)]
    with pytest.raises(lakesql.SQLError, match="replace => true"):
        con.sql("CALL copy_to_temp_view('t', view_name => 'v')")
    con.sql(f"CALL copy_to_temp_view('t', view_name => 'v', as_of_instant => '{first.instant}', replace => true)")
    assert con.sql("SELECT id FROM v").fetchall() == [("a",)]
    con.sql("CALL copy_to_table('t', new_table => 'plain', columns => 'id,v')")
    con.sql(
        f"CALL copy_to_table('t', 'incremental', 'plain', '{first.completed}', '{second.completed}', save_mode => 'append', "
        "columns => 'id,v')"
    )
    assert con.sql("FROM plain ORDER BY id").fetchall() == [("a", 1), ("b", 2), ("b", 2)]
    copy = table(tmp_path / "copy", "mor")
    assert con.tables.get("copy") is None
    con.sql("CALL copy_to_table('t', new_table => 'copy')")
    con.sql("CALL copy_to_table('t', 'read_optimized', 'copy')")
    assert rows_of(copy) == rows_of(state)
    for wrong in ("query_type => 'all'", "save_mode => 'merge'", "query_type => 'incremental'"):
        with pytest.raises(lakesql.SQLError):
            con.sql(f"CALL copy_to_table('t', new_table => 'plain', {wrong})")


def test_a_read_only_connection_shows_and_changes_nothing(tmp_path: Path) -> None:
    upsert(table(tmp_path / "t"), ("a", "x", 1, 1))
    torn = tmp_path / "t" / "city=x" / "f1_0-0-1_20200101000000000.parquet"
    torn.write_bytes(b"no parquet")
    con = lakesql.connect(warehouse=str(tmp_path), read_only=True)
    assert con.sql("CALL repair_add_partition_meta('t')").fetchall() == [("city=x", "Yes", "None")]
    for call in (
        "repair_add_partition_meta('t', dry_run => false)",
        "show_invalid_parquet('t', needDelete => true)",
        "drop_partition('t', 'city=x')",
    ):
        with pytest.raises(lakesql.TableError, match="read-only"):
            con.sql(f"CALL {call}")


def test_damaged_parquet_files_are_shown_and_never_deleted_while_a_commit_counts_on_them(
    con: Connection, tmp_path: Path
) -> None:
    state = table(tmp_path / "t")
    upsert(state, ("a", "x", 1, 1))
    stray = tmp_path / "t" / "city=x" / "f1_0-0-1_29990101000000000.parquet"
    stray.write_bytes(b"no parquet")
    assert con.sql("CALL show_invalid_parquet('t')").fetchall() == [(str(stray),)]
    assert con.sql("CALL show_invalid_parquet('t', instants => '1')").fetchall() == []
    con.sql("CALL show_invalid_parquet('t', needDelete => true)")
    assert not stray.exists()
    needed = tmp_path / "t" / load(state.storage).files[0].path
    needed.write_bytes(b"no parquet")
    with pytest.raises(lakesql.TableError, match="belongs to commit"):
        con.sql("CALL show_invalid_parquet('t', needDelete => true)")
    assert needed.exists()


def test_a_metadata_table_is_taken_away(con: Connection, tmp_path: Path) -> None:
    state = table(tmp_path / "t")
    upsert(state, ("a", "x", 1, 1))
    assert one(con, "delete_metadata_table('t')") == "There is no metadata table."
    file = tmp_path / "t" / ".hoodie" / "hoodie.properties"
    file.write_text(file.read_text() + "hoodie.table.metadata.partitions=files\n")
    folder = tmp_path / "t" / ".hoodie" / "metadata" / "files"
    folder.mkdir(parents=True)
    (folder / "f-0_0-0-0_00000000000000000.hfile").write_bytes(b"12345")
    (folder / ".f-0_20260101000000000.log.1_0-0-0").write_bytes(b"123")
    found = dict(con.sql("CALL show_metadata_table_stats('t')").fetchall())
    assert found == {
        "files.totalBaseFileSizeInBytes": "5", "files.baseFileCount": "1", "files.totalLogFileSizeInBytes": "3",
        "files.logFileCount": "1",
    }  # fmt: skip
    assert "was removed" in one(con, "delete_metadata_table('t')")
    assert not folder.exists()


def test_append_into_a_hudi_table_is_an_upsert_as_of_hudis_writer(con: Connection, tmp_path: Path) -> None:
    upsert(table(tmp_path / "t"), ("a", "x", 5, 5), ("b", "x", 2, 2))
    copy = table(tmp_path / "copy", "mor")
    upsert(copy, ("a", "x", 1, 1), ("c", "x", 3, 3))
    con.sql("CALL copy_to_table('t', new_table => 'copy', save_mode => 'append')")
    con.sql("CALL copy_to_table('t', new_table => 'copy', save_mode => 'append')")
    assert rows_of(copy) == [("a", "x", 5, 5), ("b", "x", 2, 2), ("c", "x", 3, 3)]


def test_a_copy_into_a_hudi_table_is_followed_by_a_clean_that_is_due(con: Connection, tmp_path: Path) -> None:
    upsert(table(tmp_path / "t"), ("a", "x", 5, 5))
    copy = table(tmp_path / "copy")
    for n in range(3):
        upsert(copy, ("a", "x", n, n))
    con.sql("SET hoodie.clean.commits.retained = 1")
    con.sql("CALL copy_to_table('t', new_table => 'copy', save_mode => 'append')")
    assert [i.action for i in load(copy.storage).timeline.instants].count("clean") == 1


@pytest.mark.parametrize(
    "call",
    [
        "copy_to_table('u', new_table => 't')",
        "truncate_table('t')",
        "drop_partition('t', 'city=x')",
        "repair_deduplicate",
    ],
)
def test_calls_that_write_run_the_services_that_are_due_and_try_again(
    call: str, con: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = table(tmp_path / "t")
    upsert(table(tmp_path / "u"), ("z", "x", 1, 1))
    for n in range(3):
        upsert(state, ("a", "x", n, n))
    if call == "repair_deduplicate":
        put(state, values(("a", "x", 9, 9)), operation="insert")
        call = "repair_deduplicate('t', 'city=x', dry_run => false)"
    tries = []
    writes = {m: m.write for m in (repair, tables)}

    def once_refused(*arguments: Any, **options: Any) -> Any:
        tries.append(1)
        if len(tries) == 1:
            raise CommitConflict("another writer was faster")
        return writes[tables](*arguments, **options)

    for module in writes:
        monkeypatch.setattr(module, "write", once_refused)
    kept_up = []
    monkeypatch.setattr(changing, "maintain", lambda *given: kept_up.append(given))
    con.sql("SET hoodie.clean.commits.retained = 1")
    con.sql(f"CALL {call}")
    assert len(tries) == 2
    [(_, storage, settings, _)] = kept_up
    assert storage.uri == state.path
    assert settings["hoodie.clean.commits.retained"] == "1"
    assert settings["hoodie.table.name"] == state.name


def test_a_file_that_an_archived_clean_removed_is_known(con: Connection, tmp_path: Path) -> None:
    state = table(tmp_path / "t")
    for n in range(4):
        upsert(state, ("a", "x", n, n))
    first = min((tmp_path / "t" / "city=x").glob("*.parquet"), key=lambda p: p.name.rpartition("_")[2])
    con.sql("CALL run_clean('t', retain_commits => 1)")
    clean = next(i for i in load(state.storage).timeline.instants if i.action == "clean")
    asked = f"CALL show_file_status('t', file => '{first.name}')"
    assert con.sql(asked).fetchall() == [("deleted", "clean", clean.requested, "active", "")]
    for n in range(4, 9):
        upsert(state, ("a", "x", n, n))
    con.sql("CALL run_clean('t', retain_commits => 1)")
    con.sql("SET hoodie.clean.commits.retained = 1")
    con.sql("CALL archive_commits('t', min_commits => 2, max_commits => 3, retain_commits => 1)")
    assert clean.requested not in {i.requested for i in load(state.storage).timeline.instants}
    assert con.sql(asked).fetchall() == [("deleted", "clean", clean.requested, "archived", "")]
