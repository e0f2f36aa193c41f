"""The benchmarks: engines come to the rows expected, a wrong result is an error, targets are judged, reports are whole."""

import json
import time

import duckdb
import pytest

from benchmarks import guard, phases, plot, workload
from benchmarks.cases import CASES, ENGINES
from benchmarks.child import measured, prepared
from benchmarks.report import markdown
from benchmarks.run import Bench, chosen
from benchmarks.targets import TARGETS, Target, faster, judged
from benchmarks.workload import CHANGES, FILES

ROWS = 100 * FILES
FIGURES = {"first_s": 2.0, "wall_s": 1.0, "cpu_s": 1.0, "peak_mb": 100.0, "written_mb": 1.0, "steps": {}}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return workload.prepare(tmp_path_factory.mktemp("bench"), ROWS)


def ran(name, data, tmp_path):
    """The figures of a case that is checked thoroughly."""
    for engine, table in CASES[name].tables:
        prepared(engine, table, data)
    work = tmp_path / "work"
    work.mkdir()
    return measured(name, data, work, thorough=True)


@pytest.mark.parametrize(
    "name",
    [
        "cow-upsert-U1/lakesql",
        "cow-upsert-U2/duckdb",
        "cow-upsert-D20/duckdb",
        "cow-delete/lakesql",
        "cow-delete/duckdb",
        "cow-merge-M2/lakesql",
        "mor-merge-M1/lakesql",
        "native-merge-M2/duckdb",
        "bulk-insert/lakesql",
        "bulk-insert/duckdb",
        "compaction/lakesql",
        "read-mor-U1-full/lakesql",
        "read-mor-D20-group/lakesql",
        "read-cow-filter/duckdb",
        "read-cow-pruned/lakesql",
        "incremental/lakesql",
        "incremental/duckdb",
        "lookup-random/lakesql",
        "lookup-sorted/duckdb",
        "memory-1x-compaction/lakesql",
    ],
)
def test_engines_come_to_the_rows_that_plain_sql_expects(name, data, tmp_path):
    figures = ran(name, data, tmp_path)
    assert figures["wall_s"] > 0
    assert figures["peak_mb"] > 0


@pytest.mark.parametrize("name", ["cow-upsert-U2/deltalake", "cow-delete/deltalake", "read-cow-sum/deltalake"])
def test_deltalake_comes_to_the_rows_that_plain_sql_expects(name, data, tmp_path):
    pytest.importorskip("deltalake")
    ran(name, data, tmp_path)


@pytest.mark.parametrize("name", ["cow-upsert-U1/pyiceberg", "bulk-insert/pyiceberg", "read-cow-full/pyiceberg"])
def test_pyiceberg_comes_to_the_rows_that_plain_sql_expects(name, data, tmp_path):
    pytest.importorskip("pyiceberg")
    ran(name, data, tmp_path)


@pytest.mark.parametrize("name", ["read-mor-U1-full/hudi-rs", "read-cow-sum/hudi-rs", "incremental/hudi-rs"])
def test_hudi_rs_comes_to_the_rows_that_plain_sql_expects(name, data, tmp_path):
    pytest.importorskip("hudi")
    ran(name, data, tmp_path)


def test_a_wrong_row_is_an_error(data):
    con = duckdb.connect()
    con.execute(f"CREATE TABLE t AS FROM read_parquet('{data}/rows-*.parquet')")
    workload.require(workload.checksum(con, "t"), workload.expected(data, "base"), "nothing")
    con.execute("UPDATE t SET quantity = quantity + 1 WHERE id = (SELECT min(id) FROM t)")
    with pytest.raises(SystemExit, match="wrong result of one row"):
        workload.require(workload.checksum(con, "t"), workload.expected(data, "base"), "one row")


def test_changes_have_their_share_of_updates_new_keys_and_hot_files(data):
    found = {name: workload.expected(data, name)[0] for name in CHANGES}
    assert found == {"U1": ROWS, "U2": ROWS, "M1": ROWS + 2, "M2": ROWS + 20, "D20": ROWS, "DEL": ROWS - 20}
    updates = dict(CHANGES["U2"].updates(5_000_000))
    assert sum(updates.values()) == 500_000
    assert sum(sorted(updates.values())[-FILES // 5 :]) == 400_000
    assert set(dict(CHANGES["D20"].updates(5_000_000))) == set(workload.HOT_FILES)


def test_every_step_of_merge_is_timed_and_the_steps_add_up_to_the_wall_time(data, tmp_path):
    started = time.perf_counter()
    seconds = ran("mor-merge-M1/lakesql", data, tmp_path)["steps"]
    assert all(seconds.values()), seconds
    assert sum(seconds.values()) < time.perf_counter() - started
    assert sum(phases.shares(seconds).values()) == pytest.approx(1)


def test_a_step_that_is_gone_is_an_error(monkeypatch):
    monkeypatch.setitem(phases.STEPS, ("lakesql.write", "gone"), "tag")
    with pytest.raises(SystemExit, match=r"lakesql\.write\.gone"), phases.watching():
        pass


def test_every_target_names_cases_and_every_case_an_engine():
    named = {name for t in TARGETS for name in (t.case, t.peer) if name}
    assert named <= set(CASES)
    assert {case.engine for case in CASES.values()} == set(ENGINES)
    assert len({t.name for t in TARGETS}) == len(TARGETS)


def test_small_and_full_runs_differ_in_the_size_of_planning_and_in_memory():
    small, full = ({case.work for case in chosen("", small, spark=False)} for small in (True, False))
    assert "planning-1000" in small - full
    assert {"planning-100000", "memory-4x-bulk-insert"} <= full - small


def results(**walls):
    """Rounds of one figure by case; `cow_delete__lakesql` is the case `cow-delete/lakesql`."""
    return {
        name.replace("__", "/").replace("_", "-"): [{**FIGURES, "wall_s": wall} for wall in each]
        for name, each in walls.items()
    }


def test_a_target_compares_medians_and_tells_the_spread_of_the_rounds():
    target = Target("work", "text", "a/lakesql", "a/duckdb", 1.15)
    [found] = judged(results(a__lakesql=[1.0, 2.0, 9.0], a__duckdb=[1.0, 1.0, 3.0]), [target])
    assert (found.value, found.low, found.high, found.met) == (2.0, 1.0, 3.0, False)
    assert judged(results(a__lakesql=[1.0]), [target]) == []


def test_targets_are_ratios_differences_or_values_at_most_or_at_least():
    measured_ = results(a__lakesql=[1.5], a__duckdb=[1.0])
    for more, met in (
        ({"limit": 1.4}, False),
        ({"limit": 1.4, "at_least": True}, True),
        ({"limit": 0.5, "minus": True}, True),
    ):
        [found] = judged(measured_, [Target("work", "text", "a/lakesql", "a/duckdb", **more)])
        assert found.met is met
    [alone] = judged(measured_, [Target("work", "text", "a/lakesql", None, 1.0)])
    assert (alone.value, alone.met) == (1.5, False)


def test_a_faster_peer_is_named_with_a_reason_and_one_without_is_told():
    found = faster(results(native_merge_M1__duckdb=[0.5], mor_merge_M1__lakesql=[1.0], mor_merge_M1__hudi_spark=[0.1]))
    told = {f.engine: f.reason for f in found}
    assert "changed in place" in told["duckdb"]
    assert told["hudi-spark"] == "**not explained yet**"
    assert faster(results(bulk_insert__lakesql=[1.0], bulk_insert__duckdb=[0.99])) == []


def test_the_report_has_targets_faster_peers_what_failed_and_other_reports(tmp_path):
    about = {
        "time": "now", "rows": 1, "runs": 1, "cores": 2, "load_before": 0, "load_after": 0,
        "versions": {"lakesql": "1"}, "unavailable": {"ducklake": "no extension"}, "failed": {"a/b": "first\nlast"},
    }  # fmt: skip
    row = {
        "shape": "wide",
        "share": 20,
        "upsert_s": 1,
        "compact_s": 1.3,
        "ratio": 1.3,
        "limit": 1.25,
        "low_memory_peak_mb": 9,
    }
    (tmp_path / "compaction-speed.json").write_text(json.dumps({"about": "idle", "rows": [row]}))
    ingested = {"client-json": [{**FIGURES, "records": 10}], "lakesql-json": [{**FIGURES, "wall_s": 2, "records": 10}]}
    (tmp_path / "ingest.json").write_text(json.dumps(ingested))
    found = results(cow_delete__lakesql=[2.0], cow_delete__duckdb=[1.0])
    text = markdown(about, found, judged(found), True, tmp_path)
    assert "| CoW write | delete / DuckDB's rewrite by hand | 2.00 (2.00-2.00) | <= 1.15x | **no** |" in text
    assert "| cow-delete | duckdb | following calls | 2.00x | by hand no key is looked up" in text
    assert "Not measured: ducklake: no extension." in text
    assert "Failed: a/b: " in text
    assert "| wide | 20 % | 1.000 | 1.300 | 1.30 | <= 1.25x | **no** | 9 |" in text
    assert "| lakesql-json | 5 | 50% | 1.00 | 100 |" in text


def test_the_plot_has_no_background_and_a_colour_per_engine(tmp_path):
    pytest.importorskip("matplotlib")
    found = results(cow_delete__lakesql=[2.0], cow_delete__duckdb=[1.0])
    assert plot.drawn(tmp_path / "a.svg", found, judged(found))
    svg = (tmp_path / "a.svg").read_text()
    assert plot.COLOURS["lakesql"] in svg
    assert plot.INK in svg
    assert "#ffffff" not in svg


def test_a_peer_that_fails_is_told_and_the_others_go_on(tmp_path, monkeypatch):
    bench = Bench(ROWS, tmp_path, quiet=True)
    cases = bench.prepare([CASES["lookup-random/duckdb"], CASES["lookup-random/lakesql"]])
    monkeypatch.setattr(workload, "rows_of", lambda _: ROWS)
    (tmp_path / f"rows-{ROWS}" / "lakesql-cow" / "target" / ".hoodie" / "hoodie.properties").unlink()
    bench.measure(cases, 1)
    assert "hoodie.properties" in bench.failed["lookup-random/lakesql"]
    assert list(bench.results) == ["lookup-random/duckdb"]


def test_a_ratio_that_doubled_or_is_new_is_an_error():
    assert guard.doubled({"a": 2.0}, {"a": 1.0}) == {}
    assert "2.10, the baseline has 1.00" in guard.doubled({"a": 2.1}, {"a": 1.0})["a"]
    assert "lacks" in guard.doubled({"b": 1.0}, {"a": 1.0})["b"]


def test_the_baseline_has_the_ratios_that_are_guarded():
    told = json.loads(guard.BASELINE.read_text())
    assert set(told["ratios"]) == {t.name for t in guard.GUARDED}
    assert told["rows"] == guard.ROWS
