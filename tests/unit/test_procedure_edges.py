"""Procedures and services at their edges: savepoints beside clusterings, names that would hide tables, slips of the pen."""

import pytest

import lakesql
from lakesql.services import AFTER_WRITE, maintain
from lakesql.storage import open_storage


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

    monkeypatch.setattr("lakesql.services.AFTER_WRITE", (broken, *AFTER_WRITE))
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
