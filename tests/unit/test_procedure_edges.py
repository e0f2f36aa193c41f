"""Procedures and services at their edges: savepoints beside clusterings, names that would hide tables, slips of the pen."""

import shutil

import pytest

import lakesql
from lakesql.services.maintenance import AFTER_WRITE, maintain
from lakesql.storage import LocalStorage, open_storage
from tests.faulty import FaultError, FaultyStorage


@pytest.fixture
def con(tmp_path):
    con = lakesql.connect(warehouse=tmp_path)
    for name, kind in (("a", "cow"), ("m", "mor")):
        con.sql(f"CREATE TABLE {name} (id INT, v INT) USING hudi TBLPROPERTIES (type = '{kind}', primaryKey = 'id')")
        con.sql(f"INSERT INTO {name} VALUES (1, 1)")
    with con:
        yield con


@pytest.mark.parametrize("table", ["a", "m"])
def test_clustering_goes_on_beside_a_savepoint(con, table):
    con.sql(f"CALL create_savepoint('{table}')")
    con.sql("SET hoodie.clustering.inline = true")
    con.sql("SET hoodie.clustering.inline.max.commits = 1")
    con.sql(f"INSERT INTO {table} VALUES (2, 2)")
    con.sql(f"UPDATE {table} SET v = 3 WHERE id = 2")
    assert con.sql(f"SELECT id, v FROM {table} ORDER BY 1").fetchall() == [(1, 1), (2, 3)]
    con.sql(f"CALL show_clustering('{table}')").fetchall()


def test_whatever_a_service_raises_after_a_write_is_a_note(con, tmp_path, monkeypatch):
    def broken(*_):
        raise AssertionError("broken")

    monkeypatch.setattr("lakesql.services.maintenance.AFTER_WRITE", (broken, *AFTER_WRITE))
    notes = maintain(con.duckdb, open_storage(tmp_path / "a"), {})
    assert notes[0] == "The write is complete; a table service after it failed and is tried again later: broken"
    con.sql("INSERT INTO a VALUES (7, 7)")
    assert con.sql("SELECT count(*) FROM a").fetchall() == [(2,)]


@pytest.mark.parametrize("name", ["a", "A", "m_ro"])
def test_a_copy_does_not_hide_a_table(con, name):
    with pytest.raises(lakesql.SQLError, match="is the name of a Hudi table, or of a view of one"):
        con.sql(f"CALL copy_to_temp_view('m', view_name => '{name}')")


def test_undoing_a_compaction_says_that_no_row_changes(con):
    con.sql("UPDATE m SET v = 2")
    con.sql("RUN COMPACTION ON m")
    row = con.sql("CALL undo_last('m')").fetchall()[0]
    assert row[1:3] == ("no row changes: it is a compaction", 0)
    con.sql("CALL undo_last('m', dry_run => false, limit => -1)")
    assert con.sql("SELECT v FROM m").fetchall() == [(2,)]


@pytest.mark.parametrize("order", ["id", 5, [5]])
def test_columns_to_sort_by_are_a_list_of_texts(con, order):
    with pytest.raises(lakesql.SQLError, match="give a list of columns"):
        con.table("a").cluster(order)


def test_a_procedure_spelt_almost_right_is_named(con):
    with pytest.raises(lakesql.SQLError, match="there is no procedure show_commit; did you mean show_commits"):
        con.sql("CALL show_commit('a')")


def test_the_result_of_an_older_statement_is_gone_after_a_procedure_that_writes(con):
    con.sql("INSERT INTO a VALUES (3, 3)")
    con.sql("CALL truncate_table('m')")
    assert con.last_result is None


@pytest.mark.parametrize("call", ["run_clean(table => NULL)", "show_commits(table => NULL)", "doctor(table => NULL)"])
def test_a_table_that_is_null_is_refused(con, call):
    with pytest.raises(lakesql.SQLError, match="give table => 'name' or path => 'folder'"):
        con.sql(f"CALL {call}")


@pytest.mark.parametrize("version", [6, 8, 9])
def test_a_restore_that_dies_leaves_the_rows_of_the_savepoint_or_all(tmp_path, version):
    """Cleaning has taken the files of the writes in between, so no state but these two is whole."""
    con = lakesql.connect(warehouse=tmp_path)
    con.sql(f"SET hoodie.write.table.version = {version}")
    con.sql(
        "CREATE TABLE t (id INT, v INT) USING hudi TBLPROPERTIES (primaryKey = 'id', 'hoodie.clean.commits.retained' = '1')"
    )
    con.sql("INSERT INTO t VALUES (1, 1)")
    con.sql("CALL create_savepoint('t')")
    for v in (5, 6, 7):
        con.sql(f"UPDATE t SET v = {v}")
    con.sql("CALL run_clean(table => 't', retain_commits => 1)")
    seen = set()
    for call in range(1, 100):
        path = tmp_path / "copies" / str(call)
        shutil.copytree(tmp_path / "t", path)
        storage = FaultyStorage(LocalStorage(path), 0, "after")
        table = lakesql.Table(storage)
        storage.fail_at = len(storage.calls) + call
        try:
            table.restore()
            done = True
        except FaultError:
            done = False
        again = lakesql.open_table(path)
        rows = again.read(columns=["id", "v"]).read_all().to_pylist()
        assert rows in ([{"id": 1, "v": 7}], [{"id": 1, "v": 1}])
        seen.add(rows[0]["v"])
        again.upsert([{"id": 2, "v": 2}])
        found = again.read(columns=["id", "v"]).read_all().to_pylist()
        assert sorted(r["v"] for r in found) == sorted([rows[0]["v"], 2])
        if done:
            break
    assert done
    assert seen == {1, 7}


def test_time_travel_keeps_its_columns_when_its_commit_is_archived(con):
    con.sql(
        "MERGE WITH SCHEMA EVOLUTION INTO a USING (SELECT 2 AS id, 2 AS v, 7 AS x) s ON a.id = s.id WHEN NOT MATCHED THEN INSERT *"
    )
    instant = con.last_result.instant
    for v in range(4):
        con.sql(f"UPDATE a SET v = {v + 10} WHERE id = 1")
    read = f"SELECT id, v, x FROM a VERSION AS OF '{instant}' WHERE id = 2"
    assert con.sql(read).fetchall() == [(2, 2, 7)]
    con.sql("CALL archive_commits(table => 'a', min_commits => 2, max_commits => 3, retain_commits => 1)")
    assert instant not in {r[0] for r in con.sql("SELECT instant FROM hudi_timeline('a')").fetchall()}
    assert con.sql(read).fetchall() == [(2, 2, 7)]


def test_hours_to_retain_have_a_limit(con):
    with pytest.raises(lakesql.TableError, match="must be at most 876000"):
        con.sql("SET hoodie.clean.hours.retained = '99999999999'")
