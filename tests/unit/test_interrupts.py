"""Ctrl-C at any moment of a statement: KeyboardInterrupt, and the table is as before or as after."""

import random
import signal
import time

import duckdb
import pytest

import lakesql
from lakesql.sql.functions import Instance
from lakesql.table.interrupts import interrupts
from tests.sql_tables import all_rows

BOTH = pytest.mark.parametrize("type_", ["cow", "mor"])
MERGE = (
    "MERGE INTO t USING (SELECT i AS id, '{0}' AS v, {0} AS ts FROM range(10, 30) r(i)) s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET v = s.v, ts = s.ts"
)
UPDATE = "UPDATE t SET v = '{0}', ts = {0} WHERE id < 25"


def create(con, type_):
    con.execute(
        "CREATE TABLE t (id INT, v VARCHAR, ts BIGINT) USING hudi "
        f"TBLPROPERTIES (type = '{type_}', primaryKey = 'id', orderingFields = 'ts')"
    )
    con.execute("INSERT INTO t SELECT i, 'a', 1 FROM range(50) r(i)")


@pytest.fixture
def alarm():
    """Starts a timer that does what Ctrl-C does; stopped at the end of the test."""

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def attempt(con, sql, alarm, seconds):
    """Whether the statement ended before the alarm; anything but a KeyboardInterrupt fails the test."""
    try:
        alarm(seconds)
        con.execute(sql)
        alarm(0)
    except KeyboardInterrupt:
        alarm(0)
        return False
    return True


# An interrupt between opening a folder listing and closing it leaves the closing to the collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@BOTH
def test_ctrl_c_at_any_moment_leaves_the_old_or_the_new_rows(con, type_, alarm):
    create(con, type_)
    generator = random.Random(5)
    started = time.perf_counter()
    con.execute(UPDATE.format(2))
    whole = time.perf_counter() - started
    interrupted = 0
    for version in range(3, 13):
        before = all_rows(con, "t", "id, v, ts")
        done = attempt(con, generator.choice([UPDATE, MERGE]).format(version), alarm, generator.uniform(0, whole))
        now = all_rows(con, "t", "id, v, ts")
        changed = sum(row[2] == version for row in now)
        assert len(now) == 50
        assert now == before if changed == 0 else changed in (20, 25)
        assert changed or not done
        interrupted += not done
    assert interrupted
    con.execute("INSERT INTO t VALUES (50, 'x', 1)")
    pending = con.sql("SELECT instant FROM hudi_timeline('t') WHERE state <> 'COMPLETED'").fetchall()
    assert (len(all_rows(con, "t", "id")), pending) == (51, [])


@BOTH
@pytest.mark.parametrize("sql", ["SELECT * FROM t", "DELETE FROM t", UPDATE.format(2), MERGE.format(2)])
def test_interrupt_while_duckdb_asks_for_a_plan_is_an_interrupt(con, type_, sql, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    create(con, type_)
    with monkeypatch.context() as patched:
        patched.setattr(Instance, "_query", interrupted)
        with pytest.raises(KeyboardInterrupt):
            con.execute(sql)
    assert con.sql("SELECT count(*) FROM t").fetchall() == [(50,)]
    con.execute("DELETE FROM t")
    assert con.sql("SELECT count(*) FROM t").fetchall() == [(0,)]


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("Query interrupted"),
        duckdb.InvalidInputException("Python exception occurred while executing the UDF: KeyboardInterrupt: "),
        duckdb.InvalidInputException("counting the rows of the object registered as 'x' failed: KeyboardInterrupt:"),
    ],
)
def test_what_duckdb_makes_of_an_interrupt_is_one_again(error):
    with pytest.raises(KeyboardInterrupt), interrupts():
        raise error
    with pytest.raises(KeyboardInterrupt), interrupts():
        raise lakesql.LakeError("wrapped") from error


def test_other_errors_stay_what_they_are():
    with pytest.raises(duckdb.InterruptException), interrupts():
        raise duckdb.InterruptException("INTERRUPT Error: Interrupted!")
    own = duckdb.CatalogException("its own cause")
    with pytest.raises(duckdb.CatalogException, match="its own cause"), interrupts():
        raise own from own
    with pytest.raises(RuntimeError, match="no"), interrupts():
        raise RuntimeError("no")
    with pytest.raises(lakesql.LakeError), interrupts():
        raise lakesql.LakeError("Query interrupted")
