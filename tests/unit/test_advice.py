"""Advice for tables: facts from timelines that Apache Hudi and we wrote, what is said about them, and every way to ask."""

from dataclasses import replace

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import lakesql
from lakesql import cli
from lakesql.advice import CHANGES_MIN, Topic, advise, calibrate, calibration, measure
from lakesql.advice.apart import KEEPING, apart, keeps_memory
from lakesql.advice.calibration import Calibration, CurvePoint
from lakesql.advice.costs import Price, Row, Workload
from lakesql.advice.facts import row_of, table_facts
from lakesql.advice.measure import own_of
from lakesql.advice.twins import Timed, Twins
from lakesql.errors import FormatError, SQLError
from lakesql.table import inspect
from lakesql.table.state import load
from tests.samples import Kind, create, rows
from tests.zipped import open_zip

SERVICES = ("COMPACT", "CLUSTER", "LOG_COMPACT")
BY_ROW = {
    "commit": 1e-6, "look_up": 1e-8, "rewrite": 1e-6, "append": 2e-6, "scan": 1e-7,
    "look_through": 1e-8, "patch": 5e-8, "overlay": 1e-7, "merge": 2e-6, "match": 1e-8, "keep": 1e-7, "compact": 1e-6,
    "fold": 1e-7, "open": 1e-8, "edit": 1e-7, "group": 1e-7, "pick": 1e-7,
}  # fmt: skip
RECORD = Calibration(
    {step: Price(row=price) for step, price in BY_ROW.items()},
    (100.0, 0.8),
    0.5,
    (CurvePoint(1, 2, 3, 0.4, 0.5),),
    0.07,
    "2026-01-02T03:04:05+00:00",
    "a machine",
    clock="wall",
)


@pytest.fixture(autouse=True)
def own_record(tmp_path, monkeypatch):
    """Prices that do not depend on the machine, instead of the record of whoever runs the tests."""
    path = tmp_path / "config" / "calibration.json"
    monkeypatch.setattr(calibration, "own_path", lambda: path)
    calibration.save(RECORD)
    return path


def worked_on(tmp_path, kind, commits=4, share=0.02, groups=4):
    """A table of 4 file groups with 2,000 rows each, updated some times."""
    table = lakesql.create_table(
        tmp_path / kind, batch(np.arange(1), 0).schema, type=kind, primary_key=["id"], ordering_fields=["ts"]
    )
    table.bulk_insert(batch(np.arange(8_000), 0), **{"hoodie.copyonwrite.insert.split.size": "2000"})
    for number in range(commits):
        draw = np.random.default_rng(number)
        table.upsert(batch(draw.choice(2_000 * groups, round(8_000 * share), replace=False), number + 1))
    return table


def batch(numbers, moment):
    texts = pa.array(numbers.astype(np.int64)).cast(pa.string())
    return pa.table({"id": texts, "ts": pa.array(np.full(len(numbers), moment, np.int64)), "note": texts})


# ---------------------------------------------------------------- facts


@pytest.mark.parametrize(
    "name",
    [
        "h015_pending_mor",
        "h015_logcompact_mor",
        "h015_clustered_cow",
        "h102_positions_mor",
        "h120_services_mor",
        "h120_late_event_cow",
        "r060_cow_v9_part",
        "r060_mor_v9_inline_compact",
        "sample_table_mor_avro_v9_txns_nonpart_meta",
    ],
)
def test_facts_count_what_the_timeline_counts(name):
    state = load(open_zip(name))
    facts = table_facts(state)
    writes = [r for r in inspect.timeline(state).to_pylist() if r["rows_written"] is not None]
    changing = [r for r in writes if (r["operation"] or "").upper() not in SERVICES]
    assert facts.commits == len(writes)
    assert sum(c.updates for c in facts.changes) == sum(r["rows_updated"] for r in changing)
    assert sum(c.deletes for c in facts.changes) == sum(r["rows_deleted"] for r in changing)
    by_instant = {r["instant"]: r for r in writes}
    assert all(c.bytes_written == by_instant[c.instant]["bytes_written"] for c in facts.changes)
    files = [r for r in inspect.files(state).to_pylist() if r["latest"]]
    assert len(facts.groups) == len(files)
    assert facts.base_bytes == sum(r["base_bytes"] or 0 for r in files)
    assert facts.log_bytes == sum(r["log_bytes"] for r in files)


def test_facts_of_a_table_that_spark_compacted():
    """20 rows, 8 of them updated by each of four commits; compacted after the third."""
    facts = table_facts(load(open_zip("h120_services_mor")))
    assert (facts.rows, facts.compactions, facts.deltas_open) == (20, 2, 1)
    assert [c.share for c in facts.changes] == [0.4] * 4
    assert all(c.group_rows == 20 for c in facts.changes)
    assert facts.log_rows == 8


def test_rows_of_an_overwritten_table_are_counted_back():
    facts = table_facts(load(open_zip("r060_mor_v9_overwrite")))
    assert [c.rows_before for c in facts.changes] == [8, 2]


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_both_types_tell_the_same_workload_from_the_same_commits(tmp_path, kind):
    table = worked_on(tmp_path, kind, groups=2)
    facts = table_facts(table.state)
    load_ = facts.workload(row_of(duckdb.connect(), table.state))
    assert facts.update_share == pytest.approx(0.02)
    assert facts.groups_touched == 2
    assert load_.table.rows == 8_000
    assert load_.touched().files == pytest.approx(2, rel=0.01)
    assert load_.touched(5).files == pytest.approx(2, rel=0.01)  # never the other two
    assert load_.row.columns == 8


# ---------------------------------------------------------------- what is said


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_advice_names_the_numbers_that_decide_and_fills_the_comparison(tmp_path, kind):
    advice = worked_on(tmp_path, kind).advise()
    assert advice.type == kind
    topics = [line.topic for line in advice.lines]
    assert topics[0] == Topic.RECOMMENDATION
    assert topics.count(Topic.DECIDES) == 3
    assert topics.count(Topic.QUESTIONS) == 4
    compared = [line for line in advice.lines if line.topic == Topic.COMPARISON]
    assert len(compared) == 28
    low_cow, low_mor, high_cow, high_mor = (line for line in compared if line.measure.startswith("all together"))
    assert low_mor.value < low_cow.value  # no reads given, so both sides of the break-even are shown
    assert high_mor.value > high_cow.value
    assert "half the break-even" in low_cow.text
    assert "twice the break-even" in high_cow.text
    assert (advice.lines[0].measure, advice.lines[0].value) == ("break-even", advice.breakeven_reads)
    assert advice.breakeven_shares == ()
    assert "at 1 read" not in str(advice)
    assert all(line.value is not None and line.value >= 0 for line in compared)
    share, touched, even = (line.value for line in advice.lines if line.topic == Topic.DECIDES)
    assert (share, touched) == (pytest.approx(0.02), 1.0)
    assert even == advice.breakeven_reads > 0
    assert "break-even" in str(advice)
    assert advice.to_arrow().column_names == ["topic", "measure", "value", "unit", "text"]


def test_reads_on_either_side_of_the_breakeven_decide(tmp_path):
    table = worked_on(tmp_path, "mor")
    even = table.advise().breakeven_reads
    assert table.advise(reads_per_write=even * 50).recommended == "cow"
    assert table.advise(reads_per_write=0).recommended == "mor"
    assert table.advise(reads_per_write=even).recommended is None  # the same cost: keep what it is
    assert table.advise().recommended is None


def test_write_amplification_is_what_the_files_say(tmp_path):
    cow, mor = worked_on(tmp_path, "cow").advise(), worked_on(tmp_path, "mor").advise()
    paid = next(line.value for line in cow.lines if line.measure.startswith("write amplification paid"))
    other = next(line.value for line in mor.lines if line.measure == "write amplification as Copy-on-Write")
    assert paid == pytest.approx(1 / 0.02, rel=0.1)  # every commit writes all rows for 2 % of them
    assert other == pytest.approx(paid, rel=0.1)


def test_too_little_history_is_said_and_nothing_is_guessed(tmp_path):
    table = create(tmp_path / "t", Kind("mor", 9))
    assert "no rows" in table.advise().sentence
    table.insert(rows(("a", "sf", 1, 10)))
    for number in range(CHANGES_MIN - 1):
        table.upsert(rows(("a", "sf", number, 20 + number)))
    advice = table.advise(reads_per_write=5)
    assert advice.recommended is advice.breakeven_reads is None
    assert f"needs at least {CHANGES_MIN}" in advice.sentence
    assert {line.topic for line in advice.lines} == {Topic.RECOMMENDATION, Topic.HISTORY, Topic.BASIS}
    table.upsert(rows(("a", "sf", 9, 90)))
    assert "at least" not in table.advise(reads_per_write=5).sentence


@pytest.mark.parametrize("value", ["many", -1, float("nan"), float("inf")])
def test_reads_per_write_that_are_no_number_are_refused(tmp_path, value):
    table = create(tmp_path / "t", Kind("cow", 9))
    with pytest.raises(SQLError, match=r"reads_per_write .*: give a number of 0 or more"):
        table.advise(reads_per_write=value)


# ---------------------------------------------------------------- every way to ask


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_table_function_and_call_give_the_rows_of_the_handle(tmp_path, kind):
    table = worked_on(tmp_path, kind)
    expected = table.advise(reads_per_write=3).to_arrow().to_pylist()
    with lakesql.connect(warehouse=str(tmp_path)) as con:
        columns = "topic, measure, value, unit, text"
        assert (
            con.sql(f"FROM hudi_advice('{table.path}', reads_per_write := 3)").to_arrow_table().to_pylist() == expected
        )
        called = con.sql(f"CALL advise(path => '{table.path}', reads_per_write => 3)")
        assert called.to_arrow_table().select(columns.split(", ")).to_pylist() == expected
        first = con.sql(f"SELECT text FROM hudi_advice('{kind}') LIMIT 1").fetchall()
        basis = con.sql(f"SELECT text FROM hudi_advice('{kind}', measure := true) WHERE measure LIKE 'measured%'")
        assert "8,000 rows" in basis.fetchall()[0][0]
    assert first == [(table.advise().sentence,)]


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    def call(*arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("sys.argv", ["lakesql", *arguments])
        code = 0
        try:
            cli.main()
        except SystemExit as end:
            code = end.code or 0
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_command_prints_the_advice(run, tmp_path):
    table = worked_on(tmp_path, "cow")
    code, out, err = run("advise", "cow", "--reads-per-write", "2")
    assert (code, err) == (0, "")
    assert out == f"{table.advise(2)}\n"


def test_command_without_a_table_is_an_error(run):
    code, _, err = run("advise")
    assert code == 1
    assert "give a Hudi table, or --calibrate" in err


@pytest.fixture
def small_grid(monkeypatch):
    size = calibrate._Size
    monkeypatch.setattr(calibrate, "_SIZES", (size(2, 300, 1), size(4, 200, 6), size(3, 900, 2)))
    monkeypatch.setenv(*KEEPING)  # in this process, so that what is patched counts
    monkeypatch.setattr(calibrate, "_CURVE_SIZE", size(2, 300, 1))
    monkeypatch.setattr(calibrate, "_CURVE_SHARES", (0.1, 0.5))
    monkeypatch.setattr(calibrate, "_COMMITS", ((0.02, 1.0, 2), (0.5, 0.5, 2), (1.0, 1.0, 1)))


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_measuring_with_the_table_corrects_the_prices_and_leaves_the_table_alone(tmp_path, kind):
    table = worked_on(tmp_path, kind)
    before = sorted((p, p.stat().st_size) for p in (tmp_path / kind).rglob("*"))
    plain, measured = table.advise(reads_per_write=3), table.advise(reads_per_write=3, measure=True)
    assert sorted((p, p.stat().st_size) for p in (tmp_path / kind).rglob("*")) == before
    assert "lakesql advise --measure" in str(plain)
    assert "copies of all file groups of this table as both types (8,000 rows)" in str(measured)
    assert value(measured, "measured with this table") == 8_000
    latency = "write latency, Copy-on-Write"
    assert value(measured, latency) > 2 * value(plain, latency)  # the record of these tests knows no fixed costs


def value(advice, measure):
    return next(line.value for line in advice.lines if line.measure == measure)


def test_own_prices_are_seconds_over_what_the_formula_says(tmp_path):
    rows = batch(np.arange(3_000), 0)
    ticks = iter(range(10**6))  # every operation takes one second
    timed = Timed(duckdb.connect(), lambda: float(next(ticks)))
    twins = Twins(timed, tmp_path, rows, 1_000, primary_key=["id"], ordering_fields=["ts"])
    numbers = np.array([5, 7, 2_100])
    run = twins.run([(numbers, batch(numbers, 1)), (numbers[:2], batch(numbers[:2], 2))], 2)
    first, second = run.turns
    assert (first.touched.files, first.unmerged.live, first.after.rows) == (2, 3, 3)
    assert (second.before, second.after.files, second.after.rows, second.after.live) == (first.after, 3, 5, 3)
    assert (second.unmerged.files, second.unmerged.rows, second.unmerged.dirty.rows) == (2, 4, 1_000)
    own = own_of(twins, run, RECORD.prices)
    assert own.scan == pytest.approx(20)  # dearer than any table is: the limit
    slow = {step: Price(time=2.0) for step in RECORD.prices}
    assert own_of(twins, run, slow).scan == pytest.approx(0.5)
    assert own_of(twins, run, slow).patch == 0.05  # the second read takes no longer than the first: the limit


def test_measuring_copies_whole_file_groups_up_to_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(measure, "SAMPLE_ROWS", 4_500)
    assert "copies of 2 of its 4 file groups of this table as both types (4,000 rows)" in str(
        worked_on(tmp_path, "mor").advise(measure=True)
    )


def test_measuring_a_table_without_key_columns_is_refused(tmp_path):
    table = lakesql.create_table(tmp_path / "t", pa.schema([("a", pa.int64())]), type="mor")
    load = Workload((10.0,), (1.0,), 1.0, Row(6, 8.0))
    with pytest.raises(SQLError, match=r"no key columns.* Ask for the advice without measuring"):
        measure.measure(duckdb.connect(), table.state, load, RECORD.prices)


@pytest.mark.usefixtures("small_grid")
def test_calibration_measures_every_price_and_keeps_the_record(run, own_record, tmp_path):
    code, out, _ = run("advise", "--calibrate")
    assert code == 0
    assert str(own_record) in out
    record = calibration.load()
    assert not record.shipped
    assert record != RECORD
    assert record.prices.keys() == calibration.shipped().prices.keys()
    assert max(price.time for price in record.prices.values()) > 0
    assert [p.log_bytes > 0 for p in record.curve] == [False, True, True]
    assert record.curve[1].log_bytes < record.curve[2].log_bytes
    assert "measured here" in str(worked_on(tmp_path, "cow").advise())


@pytest.mark.usefixtures("small_grid")
def test_progress_of_a_calibration_only_grows_and_ends_at_the_whole():
    seen = []
    calibrate.calibrate("cpu", seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


def twice(progress):
    progress(0.5)
    progress(1.0)
    return keeps_memory()


def refused(_):
    raise SQLError("not with me")


def test_what_measures_runs_in_a_process_that_keeps_its_memory(monkeypatch):
    monkeypatch.delenv(KEEPING[0], raising=False)
    seen = []
    assert apart(twice, seen.append)
    assert seen == [0.5, 1.0]
    assert not keeps_memory()
    with pytest.raises(SQLError, match="not with me"):
        apart(refused, seen.append)


# ---------------------------------------------------------------- the record


def test_record_is_read_as_it_was_written_and_without_one_the_shipped_one_counts(own_record):
    assert calibration.load() == RECORD
    own_record.unlink()
    assert calibration.load() == calibration.shipped()


@pytest.mark.parametrize("damage", ["", "[]", "{}", '{"format": 1}', '{"format": 99}'])
def test_damaged_record_is_an_error_that_says_what_to_do(own_record, damage):
    own_record.write_text(damage)
    with pytest.raises(FormatError, match=r"calibration.json: .*Measure it anew with `lakesql advise --calibrate`"):
        calibration.load()


def test_negative_price_is_refused():
    calibration.save(replace(RECORD, prices={**RECORD.prices, "scan": Price(time=-1.0)}))
    with pytest.raises(FormatError, match="a price is negative"):
        calibration.load()


def test_own_prices_decide(tmp_path):
    table = worked_on(tmp_path, "mor")
    dear = {**calibration.shipped().prices, "rewrite": Price(row=1.0)}
    with duckdb.connect() as con:
        found = advise(con, table.state, 100, replace(RECORD, prices=dear))
    assert found.recommended == "mor"
