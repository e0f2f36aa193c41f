"""The bars of statements and ingestions: drawn late, brought up to date, gone at the end."""

import time

import duckdb
import pytest

from lakesql.ingest.model import TopicPartition
from lakesql.notebook import bar


class Drawn:
    """Stands for IPython's display."""

    def __init__(self):
        self.pages = []

    def __call__(self, page, display_id):
        assert display_id
        self.pages.append(page.data)
        return self

    def update(self, page):
        self.pages.append(page.data)


@pytest.fixture
def drawn(monkeypatch):
    made = Drawn()
    monkeypatch.setattr(bar, "display", made)
    monkeypatch.setattr(bar, "FIRST_S", 0.02)
    monkeypatch.setattr(bar, "EVERY_S", 0.02)
    return made


def test_quick_statement_draws_nothing(drawn, monkeypatch):
    monkeypatch.setattr(bar, "FIRST_S", 5)
    with duckdb.connect() as con, bar.Bar(con, "SELECT 1"):
        con.execute("SELECT 1").fetchall()
    assert drawn.pages == []


def test_long_statement_draws_a_bar_that_moves_and_goes(drawn):
    con = duckdb.connect(config={"threads": 1})
    with bar.Bar(con, "SELECT '<b>' ..."):
        con.execute("SELECT sum(hash(a.range + b.range)) FROM range(10000) a, range(10000) b").fetchall()
    assert drawn.pages[-1] == ""
    assert all("<progress" in page and "&lt;b&gt;" in page for page in drawn.pages[:-1])
    assert len({page for page in drawn.pages if 'value="' in page}) > 1
    names = "current_setting('enable_progress_bar'), current_setting('enable_progress_bar_print')"
    assert con.execute(f"SELECT {names}").fetchall() == duckdb.connect().execute(f"SELECT {names}").fetchall()


def test_bar_goes_when_the_statement_fails_and_in_a_failed_transaction(drawn):
    con = duckdb.connect()
    con.execute("BEGIN")
    with pytest.raises(duckdb.Error):
        con.execute("SELECT error('x')").fetchall()
    with pytest.raises(KeyError), bar.Bar(con, "x"):
        _fail_after(0.1)
    assert drawn.pages[-1] == ""


def test_bar_of_an_ingestion_tells_records_and_lag(drawn):
    class Range:
        at, low, high, records = TopicPartition("t", 0), 0, 100, 100

    class Plan:
        ranges = (Range,)

    with bar.Waiting() as waiting:
        assert waiting.state() == ("Planning", None)
        waiting.planned(Plan)
        waiting.moved(Range.at, 40, 40, 4000)
        assert waiting.state() == ("Reading: 40 records, 4.0 kB, lag 60", 0.4)
        waiting.committing("/lake/orders")
        assert waiting.state()[0].startswith("Committing to orders")
        time.sleep(0.1)
    assert any('value="0.400"' in page for page in drawn.pages)
    assert drawn.pages[-1] == ""


def _fail_after(seconds):
    time.sleep(seconds)
    raise KeyError
