"""The line of a long statement on a terminal: how far DuckDB is, and gone at the end."""

import re

import duckdb
import pytest

import lakesql
from lakesql import waiting

LONG = "SELECT count(*), sum(hash(range)) FROM range(30_000_000)"
BAR = "SELECT current_setting('enable_progress_bar'), current_setting('enable_progress_bar_print')"


@pytest.fixture
def con(tmp_path, monkeypatch):
    monkeypatch.setattr(waiting, "AFTER_S", 0.01)
    monkeypatch.setattr(waiting, "EVERY_S", 0.01)
    with lakesql.connect(warehouse=tmp_path) as found:
        yield found


def test_the_line_tells_the_share_of_a_query(con, capsys):
    with waiting.waiting(con, LONG):
        con.execute(LONG).fetchall()
    told = capsys.readouterr().err
    shares = [int(text) for text in re.findall(r"(\d+)% ▕", told)]
    assert shares == sorted(shares)
    assert shares[-1] > 10
    assert told.endswith("\x1b[2K")


def test_duckdbs_own_bar_is_as_it_was_and_what_a_statement_sets_stays(con):
    before = con.execute(BAR).fetchall()
    with waiting.counting(con.duckdb):
        assert con.execute(BAR).fetchall() == [(True, False)]
    assert con.execute(BAR).fetchall() == before
    with waiting.counting(con.duckdb):
        con.execute("SET enable_progress_bar = false")
    assert con.execute(BAR).fetchall() == [(False, False)]


def test_a_transaction_that_has_failed_is_left_alone(con):
    con.execute("BEGIN")
    with pytest.raises(duckdb.Error):
        con.duckdb.execute("SELECT error('no')").fetchall()
    with waiting.waiting(con, "ROLLBACK"):
        con.execute("ROLLBACK")
    assert con.execute("SELECT 1").fetchall() == [(1,)]
