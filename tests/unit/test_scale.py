"""Whether a statement fits this machine: seconds from the prices, memory and disk from the rows, and Spark's command."""

import json
import shlex
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import lakesql
from lakesql.advice import calibration, table_facts, workload_of
from lakesql.advice.facts import row_of
from lakesql.advice.scale import STATEMENTS, Machine, machine, scale_of
from lakesql.advice.spark_command import Asked, spark_sql
from lakesql.cli import app
from lakesql.errors import SQLError
from lakesql.handle import Table
from lakesql.storage import open_storage
from tests.writing import CON, SCHEMA, put, table

GB = 1 << 30
LARGE = Machine(2, 16 * GB, 100 * GB, 100 * GB)


def made(tmp_path, type_="cow", version=9, rows=3000, **more):
    t = table(tmp_path / "t", type_, version, **more)
    if rows:
        put(t, f"SELECT 'k' || i AS id, 'c' || i % 3 AS city, i AS v, 1 AS ts FROM range({rows}) t(i)")
    return Table(open_storage(t.path))


def asked(t, statement, rows, here=LARGE, **more):
    state = t.state
    record, found = calibration.shipped(), table_facts(state)
    load = workload_of(CON, state, found, record)
    return scale_of(state, found, load, row_of(CON, state), record, Asked(statement, rows, **more), here)


def value(said, measure):
    [line] = [x for x in said.lines if x.measure == measure]
    return line.value


def test_a_small_statement_fits(tmp_path):
    said = made(tmp_path).scale(100)
    assert said.fits
    assert said.sentence.startswith("This upsert of 100 rows is expected to fit this machine, in ")
    assert (value(said, "spilled"), value(said, "rows of the table")) == (0, 3000)


@pytest.mark.parametrize(
    ("here", "reason"),
    [
        ({}, "it takes"),
        ({"memory": GB // 4}, "of memory"),
        ({"memory": GB, "spill": GB // 10}, "it spills"),
        ({"storage": GB // 100}, "it writes"),
    ],
)
def test_time_memory_and_disk_are_reasons_not_to_fit(tmp_path, here, reason):
    t = made(tmp_path)
    given = {"within_s": 1.0} if not here else {"within_s": 1e9}
    said = asked(t, "bulk_insert", 10_000_000, replace(LARGE, **here), **given)
    assert not said.fits
    assert reason in said.sentence
    assert said.sentence.endswith("Run it on Spark.")
    assert asked(t, "bulk_insert", 10_000_000, within_s=1e9).fits


def test_merge_on_read_is_expected_to_be_faster_for_few_rows_and_loads_cost_the_same(tmp_path):
    for rows, statement, alike in ((3000, "upsert", False), (10**6, "bulk_insert", True)):
        cow, mor = (asked(made(tmp_path / f"{statement}{k}", k), statement, rows) for k in ("cow", "mor"))
        times = [value(s, "expected") for s in (cow, mor)]
        assert (times[0] == pytest.approx(times[1])) == alike
        assert alike or value(mor, "written to the table") > 0


def test_seconds_and_bytes_grow_with_the_rows(tmp_path):
    t = made(tmp_path)
    few, many = asked(t, "insert", 10**6), asked(t, "insert", 10**8)
    for measure in ("processor time", "written to the table"):
        assert value(many, measure) == pytest.approx(100 * value(few, measure), rel=0.2)
    assert value(many, "needed") > value(few, "needed")


def test_rows_that_meet_stored_ones_are_no_more_than_these(tmp_path):
    said = asked(made(tmp_path), "upsert", 10_000)
    [line] = [x for x in said.lines if x.measure == "rows of the table"]
    assert line.text.startswith("3,000 meet rows that are there, evenly")
    assert line.text.endswith("7,000 are new")
    assert value(asked(made(tmp_path / "2"), "delete", 10_000), "written to the table") < value(
        said, "written to the table"
    )


def test_a_compaction_needs_no_rows_and_counts_the_logs(tmp_path):
    t = made(tmp_path, "mor")
    before = t.scale(statement="compaction")
    assert value(before, "processor time") < 0.2
    t.upsert(
        CON.sql("SELECT 'k' || i AS id, 'c' || i % 3 AS city, i AS v, 2 AS ts FROM range(2000) t(i)").to_arrow_table()
    )
    after = t.scale(statement="compaction")
    assert value(after, "written to the table") > value(before, "written to the table")
    assert "CALL run_compaction(op => 'scheduleAndExecute', table => 't')" in shlex.split(after.command)[-1]


def test_an_empty_table_is_judged_by_the_rows_of_the_file(tmp_path):
    file = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"id": ["a" * 100] * 500, "city": ["x"] * 500, "v": [1] * 500, "ts": [1] * 500}), file)
    t = made(tmp_path, rows=0)
    said = t.scale(data=str(file), statement="bulk_insert")
    assert said.rows == 500
    assert value(said, "a row") > 100
    assert 0 < value(t.scale(7, "bulk_insert"), "a row") < 100
    assert f"CREATE TEMPORARY VIEW changes USING parquet OPTIONS (path \\'{file}\\')" in said.command.replace(
        "'\"'\"'", "\\'"
    )


@pytest.mark.parametrize("statement", STATEMENTS)
def test_every_statement_has_a_spark_command_that_a_shell_reads(tmp_path, statement):
    t = made(tmp_path)
    words = shlex.split(t.scale(5, statement).command)
    assert words[0] == "spark-sql"
    assert words[-2] == "-e"
    assert words[-1].startswith(f"CREATE TABLE IF NOT EXISTS t USING hudi LOCATION '{t.path}'; ")
    assert words[-1].endswith(";")


@pytest.mark.parametrize(("version", "bundle"), [(6, "0.15.0"), (8, "1.0.2"), (9, "1.2.0")])
def test_the_bundle_is_the_one_that_writes_the_tables_version(tmp_path, version, bundle):
    said = made(tmp_path, version=version).scale(5)
    assert f"hudi-spark3.5-bundle_2.12:{bundle} " in said.command


def test_names_and_keys_in_sparks_words(tmp_path):
    options = {"primary_key": ["id"], "partitioned_by": ["city"], "name": "my-table"}
    odd = lakesql.create_table(str(tmp_path / "odd"), SCHEMA, **options)
    assert spark_sql(odd.state, Asked("insert", 1)) == (
        f"CREATE TABLE IF NOT EXISTS `my-table` USING hudi LOCATION '{odd.path}'; "
        "SET hoodie.spark.sql.insert.into.operation = insert; "
        "INSERT INTO `my-table` (id, city, v, ts) SELECT id, city, v, ts FROM changes;"
    )
    assert "ON t.id = s.id AND t.city = s.city WHEN MATCHED THEN DELETE;" in spark_sql(odd.state, Asked("delete", 1))
    keyless = made(tmp_path / "2", primary_key=[], event=False, rows=0)
    assert "MERGE" not in spark_sql(keyless.state, Asked("upsert", 1))


def test_a_script_says_what_it_does_and_is_what_spark_runs(tmp_path):
    script = tmp_path / "my script.sql"
    script.write_text("-- delete;\nSET x = 'update; delete';\nMERGE INTO t USING s ON true WHEN MATCHED THEN DELETE;")
    said = made(tmp_path).scale(5, script=str(script))
    assert said.statement == "merge"
    assert shlex.split(said.command)[-2:] == ["-f", str(script)]
    assert f"lakesql run --engine spark '{script}'" in str(said)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "not known how many rows"),
        ({"rows": -1}, "0 or more"),
        ({"rows": 1, "statement": "truncate"}, "'truncate' is unknown"),
        ({"rows": 1, "within_s": 0}, "more than 0"),
        ({"data": "x.orc"}, "give a file that ends in .parquet"),
        ({"data": "/nowhere/x.parquet"}, "Give a file that DuckDB can read"),
        ({"rows": 1, "script": "/nowhere/x.sql"}, "cannot be read"),
    ],
)
def test_what_is_not_known_or_makes_no_sense_is_refused(tmp_path, given, message):
    with pytest.raises(SQLError, match=message):
        made(tmp_path).scale(**given)


def test_the_command_prints_it_for_people_and_as_rows(tmp_path):
    t, run = made(tmp_path), CliRunner().invoke
    told = run(app, ["advise", t.path, "--scale", "--rows", "1000000000000", "--within", "60"])
    assert told.exit_code == 0
    assert "VERDICT\n  does not fit" in told.output
    assert "ON SPARK\n  spark-sql" in told.output
    rows = json.loads(run(app, ["advise", t.path, "--scale", "--rows", "10", "--format", "json"]).output)
    assert list(rows[0]) == ["topic", "measure", "value", "unit", "text"]
    assert [rows[0]["topic"], rows[0]["measure"]] == ["verdict", "fits"]
    advice = json.loads(run(app, ["advise", t.path, "--format", "json"]).output)
    assert advice[0]["measure"] == "not enough history"
    for wrong in (["--rows", "1", t.path], ["--scale"]):
        assert run(app, ["advise", *wrong]).exit_code == 1


def test_it_shows_in_a_notebook_and_as_arrow(tmp_path):
    said = made(tmp_path).scale(10)
    assert "expected to fit" in said._repr_html_()
    assert repr(said).startswith("<lakesql.Scale ")
    assert said.to_arrow().num_rows == len(said.lines)


def test_this_machine_has_threads_memory_and_disks(tmp_path):
    here = machine(made(tmp_path).state)
    assert here.threads >= 1
    assert min(here.memory, here.spill, here.storage) > 0
