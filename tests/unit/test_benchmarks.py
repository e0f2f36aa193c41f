"""The benchmark of MERGE: the engines come to the rows expected, and the steps it times are those of the write path."""

import json
import time

import pytest

from benchmarks.merge import phases
from benchmarks.merge.child import ENGINES, verified
from benchmarks.merge.workload import CASES, FILES, prepare

ROWS = 100 * FILES


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("merge") / "data"
    prepare(folder, ROWS)
    return folder


def ran(engine, data, tmp_path, case):
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    found = ENGINES[engine]()
    found.prepare(data, home)
    run = found.run(data, home, work, case)
    run.call()
    return run


@pytest.mark.parametrize("engine", ["lakesql-cow-event", "lakesql-mor-commit", "duckdb"])
@pytest.mark.parametrize("case", CASES)
def test_engines_come_to_the_rows_that_plain_sql_expects(engine, case, data, tmp_path):
    verified(ran(engine, data, tmp_path, case), data, case)


def test_deltalake_comes_to_the_rows_that_plain_sql_expects(data, tmp_path):
    pytest.importorskip("deltalake")
    verified(ran("deltalake", data, tmp_path, "U2"), data, "U2")


def test_a_wrong_row_is_an_error(data, tmp_path):
    run = ran("duckdb", data, tmp_path, "U1")
    con, _ = run.read()
    con.execute("UPDATE t SET quantity = quantity + 1 WHERE id = (SELECT min(id) FROM t)")
    con.close()
    with pytest.raises(SystemExit, match="wrong result"):
        verified(run, data, "U1")


def test_sources_have_their_share_of_updates_new_keys_and_hot_files(data):
    expected = json.loads((data / "expected.json").read_text())
    assert {case: rows for case, (rows, _) in expected.items()} == {"U1": ROWS + 2, "U2": ROWS + 20}
    updates = dict(CASES["U2"].updates(5_000_000))
    assert sum(updates.values()) == 450_000
    assert sum(sorted(updates.values())[-FILES // 5 :]) == 360_000


def test_every_step_of_merge_is_timed_and_the_steps_add_up_to_the_wall_time(data, tmp_path):
    started = time.perf_counter()
    seconds = ran("lakesql-mor-event", data, tmp_path, "U1").seconds
    assert all(seconds.values()), seconds
    assert sum(seconds.values()) < time.perf_counter() - started
    assert sum(phases.shares(seconds).values()) == pytest.approx(1)


def test_a_step_that_is_gone_is_an_error(monkeypatch):
    monkeypatch.setitem(phases.STEPS, ("lakesql.write", "gone"), "tag")
    with pytest.raises(SystemExit, match=r"lakesql\.write\.gone"), phases.watching():
        pass
