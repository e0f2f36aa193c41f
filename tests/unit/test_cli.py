"""The command line: what it prints, where errors go, exit codes."""

import io
import json
import sys

import pytest

from lakesql import cli, demo, upkeep
from lakesql.errors import LakeError
from tests.samples import Kind, create, rows


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run the command with arguments in a folder of its own; (exit code, output, errors)."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments, stdin=""):
        monkeypatch.setattr(sys, "argv", ["lakesql", *arguments])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        code = 0
        try:
            cli.main()
        except SystemExit as end:
            code = end.code or 0
        out, err = capsys.readouterr()
        return code, out, err

    return call


CREATE = "CREATE TABLE t (id INT, name STRING) USING hudi TBLPROPERTIES (primaryKey = 'id');"


def test_statements_run_and_the_warehouse_is_the_folder_warehouse(run, tmp_path):
    code, out, err = run("-c", CREATE + "INSERT INTO t VALUES (1, 'one'); SELECT id, name FROM t")
    assert (code, err) == (0, "")
    assert "insert: commit " in out
    assert "1 inserted" in out
    assert out.endswith("│     1 │ one     │\n└───────┴─────────┘\n")
    assert (tmp_path / "warehouse" / "t" / ".hoodie").is_dir()


def test_formats(run):
    run("-c", CREATE + "INSERT INTO t VALUES (1, 'one')", "--warehouse", "lake")
    query = "SELECT id, name FROM t"
    assert run("-c", query, "--warehouse", "lake", "--format", "csv")[1] == "id,name\n1,one\n"
    assert json.loads(run("-c", query, "--warehouse", "lake", "--format", "json")[1]) == [{"id": 1, "name": "one"}]
    assert run("-c", query, "--warehouse", "lake", "--format", "markdown")[1].startswith("| id | name |")
    assert run("-c", query, "--warehouse", "lake", "--format", "line")[1] == "  id = 1\nname = one\n"


def test_json_is_valid_where_a_number_is_none(run):
    query = "SELECT 'nan'::DOUBLE AS a, ['-inf'::FLOAT, 1] AS b, {'x': 'inf'::DOUBLE} AS c, 'NaN \"Infinity\"' AS d"
    wanted = {"a": "NaN", "b": ["-Infinity", 1.0], "c": {"x": "Infinity"}, "d": 'NaN "Infinity"'}

    def refuse(word):
        raise AssertionError(word)

    assert json.loads(run("-c", query, "--format", "json")[1], parse_constant=refuse) == [wanted]
    assert json.loads(run("-c", query, "--format", "jsonlines")[1], parse_constant=refuse) == wanted


def test_tables_of_the_warehouse_are_given_by_name(run):
    run("-c", CREATE + "INSERT INTO t VALUES (1, 'one')", "--warehouse", "lake")
    for command in (
        ["inspect", "t"],
        ["doctor", "t"],
        ["clean", "t"],
        ["archive", "t"],
        ["cluster", "t"],
        ["advise", "t"],
    ):
        code, out, err = run(*command, "--warehouse", "lake")
        assert (code, err) == (0, ""), command
        assert out
    assert run("inspect", "lake/t")[0] == 0
    code, _, err = run("inspect", "tt", "--warehouse", "lake")
    assert code == 1
    assert err == (
        "Error: tt is not a Hudi table, neither by its folder nor by its name in the warehouse lake, which has t. Did you mean t? "
        "Another warehouse: --warehouse DIR.\n"
    )


def test_run_heeds_exit_and_init(run, tmp_path):
    (tmp_path / "first.sql").write_text("CREATE TEMP VIEW x AS SELECT 42 AS a;")
    (tmp_path / "s.sql").write_text("FROM x;\n.exit 3\nSELECT 2;\n")
    assert run("run", "s.sql", "-init", "first.sql", "--format", "csv") == (3, "a\n42\n", "")


def test_write_in_a_program_format_is_a_row(run):
    code, out, _ = run("-c", CREATE + "INSERT INTO t VALUES (1, 'one')", "--format", "csv")
    assert code == 0
    assert "instant,action,operation,rows_inserted" in out


def test_database_file_may_be_named_without_a_command_word(run, tmp_path):
    assert run("x.duckdb", "-c", "CREATE TABLE plain AS SELECT 42 AS a")[0] == 0
    assert run("-c", "FROM plain", "x.duckdb", "--format", "csv")[1] == "a\n42\n"
    assert (tmp_path / "x.duckdb").exists()
    code, _, err = run("x.duckdb", "--read-only", "-c", "CREATE TABLE other AS SELECT 1")
    assert code == 1
    assert "read-only" in err


def test_error_goes_to_standard_error_as_our_text_with_exit_code_1(run):
    code, out, err = run("-c", "SELECT 1 AS a; FROM hudi_scan('nowhere'); SELECT 2", "--format", "csv")
    assert (code, out) == (1, "a\n1\n")
    assert err.startswith("Error: ")
    assert "not a Hudi table" in err
    assert "Traceback" not in err


def test_script_stops_at_the_first_error_and_says_which_line(run, tmp_path):
    (tmp_path / "job.sql").write_text("SELECT 1 AS a;\n\n-- next\nSELECT *\nFROM nope;\nSELECT 2 AS b;\n")
    code, out, err = run("run", "job.sql", "--format", "csv")
    assert (code, out) == (1, "a\n1\n")
    assert err.startswith("job.sql: line 5: Catalog Error: Table with name nope does not exist!")


def test_script_that_succeeds_has_exit_code_0(run, tmp_path):
    (tmp_path / "job.sql").write_text(CREATE + "\nINSERT INTO t VALUES (1, 'one');\nSELECT count(*) AS n FROM t;\n")
    code, out, _ = run("run", "job.sql")
    assert code == 0
    assert "insert: commit " in out
    assert "│   n   │" in out


def test_missing_script_is_an_error_without_traceback(run):
    code, _, err = run("run", "none.sql")
    assert code == 1
    assert "none.sql" in err
    assert "Traceback" not in err


def test_script_on_standard_input_may_hold_dot_commands(run):
    code, out, _ = run(stdin=".mode csv\nSELECT 1 AS a;\n.tables\nSELECT\n2 AS b;")
    assert code == 0
    assert out == "a\n1\nname,hudi table at\n" or out.startswith("a\n1\n")
    assert out.endswith("b\n2\n")


def test_inspect_says_what_a_table_is(run, tmp_path):
    table = create(tmp_path / "t", Kind("mor", 9))
    table.insert(rows(("a", "sf", 1, 10)))
    table.upsert(rows(("a", "sf", 2, 20)))
    code, out, _ = run("inspect", "t")
    assert code == 0
    found = dict(line.split("  ", 1) for line in out.splitlines())
    values = {k.strip(): v.strip() for k, v in found.items()}
    assert values["type"] == "MERGE_ON_READ, version 9"
    assert values["record key"] == "id"
    assert values["instants"].startswith("2 completed writes, newest ")
    assert values["file groups"].startswith("1, ")


def test_inspect_of_no_table_is_an_error(run):
    code, _, err = run("inspect", "nothing")
    assert code == 1
    assert "not a Hudi table" in err


def test_version_and_help(run):
    assert run("--version")[1].startswith("lakesql ")
    code, out, _ = run("--help")
    assert code == 0
    assert all(command in out for command in ("sql", "run", "inspect"))


def test_values_look_as_duckdb_prints_them(run):
    query = """SELECT INTERVAL 1 MONTH AS a, DATE 'infinity' AS b, 0.1::FLOAT AS c,
        TIMESTAMP_NS '2024-01-01 00:00:00.123456789' AS d, NULL AS e, '' AS f, [1, NULL] AS g"""
    line = '1 month,infinity,0.1,2024-01-01 00:00:00.123456789,,"","[1, NULL]"'
    assert run("-c", query, "--format", "csv")[1] == f"a,b,c,d,e,f,g\n{line}\n"
    returning = "CREATE TABLE t (i INTERVAL); INSERT INTO t VALUES (INTERVAL 1 MONTH) RETURNING i"
    assert run("-c", returning, "--format", "csv")[1] == "i\n1 month\n"


def test_json_has_a_document_per_statement_and_line_with_names_and_numbers_as_duckdb_writes_them(run):
    out = run(
        "-c", "SELECT 1 AS a, 2 AS a; SELECT 'inf'::FLOAT AS f, 1.50 AS d UNION ALL SELECT NULL, 2", "--format", "json"
    )[1]
    first, second = map(json.loads, out.splitlines())
    assert first == [{"a": 1, "a_1": 2}]
    assert second == [{"f": "Infinity", "d": 1.5}, {"f": None, "d": 2}]
    lines = run("-c", "FROM range(2) AS t(a)", "--format", "jsonlines")[1]
    assert lines == '{"a": 0}\n{"a": 1}\n'


def test_explain_draws_the_plan(run):
    out = run("-c", "EXPLAIN SELECT 1")[1]
    assert "\\n" not in out
    assert len(out.splitlines()) > 3


def test_tables_show_40_rows_unless_told_otherwise(run):
    out = run("-c", "FROM range(100)")[1]
    assert out.endswith("   100 rows\n  (40 shown)\n")
    assert "99" in out
    assert len(run("-c", "FROM range(100)", "--maxrows", "0")[1].splitlines()) == 105
    assert len(run("-c", "FROM range(100)", "--format", "csv")[1].splitlines()) == 101


def test_every_command_given_with_c_runs(run):
    assert run("-c", "SELECT 1 AS a", "-c", "SELECT 2 AS b", "--format", "csv")[1] == "a\n1\nb\n2\n"


@pytest.mark.parametrize(
    ("database", "text"),
    [
        ("inspct", "Did you mean inspect?"),
        ("frobnicate", f"frobnicate is neither a command ({', '.join(cli._COMMANDS)}) nor a file."),
        ("job.sql", "lakesql run job.sql"),
        (".", "--warehouse ."),
    ],
)
def test_mistyped_command_is_an_error_and_makes_no_database(run, tmp_path, database, text):
    code, _, err = run(database)
    assert code == 1
    assert text in err
    assert list(tmp_path.iterdir()) == []


def test_warehouse_that_is_not_there_is_said_and_one_that_is_a_file_is_an_error(run, tmp_path):
    assert (
        run("-c", "SELECT 1", "--warehouse", "lake")[2]
        == "Warehouse lake does not exist; the first CREATE TABLE makes it.\n"
    )
    (tmp_path / "file").touch()
    assert run("-c", "SELECT 1", "--warehouse", "file")[::2] == (
        1,
        "Error: warehouse file is a file; give the folder that holds the Hudi tables.\n",
    )


def test_script_that_cannot_be_read_is_an_error_that_says_why(run, tmp_path):
    (tmp_path / "bin.sql").write_bytes(b"SELECT 1;\nSELECT '\xff';")
    assert run("run", "bin.sql")[2] == "Error: bin.sql: line 2: byte 0xff is not UTF-8; save the script as UTF-8.\n"
    assert run("run", "nofile.sql")[2] == "Error: nofile.sql: no such file.\n"


def test_help_names_the_options_of_the_shell(run):
    out = run("--help")[1]
    assert all(
        option in out for option in ("-c SQL", "--format", "--maxrows", "--warehouse", "--read-only", "DATABASE")
    )


def test_error_shows_the_place_in_the_text_that_was_given(run):
    assert "LINE 1: SELECT nope\n" in run("-c", "SELECT nope")[2]


def test_demo_runs_in_a_relative_folder(run, tmp_path):
    code, out, err = run("demo", "--folder", "dd")
    assert (code, err) == (0, "")
    assert f"--warehouse {tmp_path}/dd" in out
    assert "is there already" in run("demo", "--folder", "dd")[2]


def test_demo_without_hudi_names_the_extra_and_a_failed_one_leaves_nothing(run, tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "HUDI_RS", None)
    assert "pip install 'lakesql[demo]'" in run("demo", "--folder", "a")[1]

    def fail(*_):
        raise LakeError("no")

    monkeypatch.setattr(demo, "compare_with_hudi_rs", fail)
    assert run("demo", "--folder", "b")[0] == 1
    assert list((tmp_path / "b").iterdir()) == []


def test_cluster_makes_one_file_group_of_many(run, tmp_path):
    table = create(tmp_path / "t", Kind("cow", 9))
    for number in range(3):
        table.upsert(rows((f"k{number}", "x", number, 1)), **{"hoodie.parquet.small.file.limit": "0"})
    code, out, err = run("cluster", "t", "--order", "v, id", "--strategy", "hilbert")
    assert (code, err) == (0, "")
    assert out.endswith("made 1 file group of 3 (3 rows).\n")
    assert run("cluster", "t", "--every", "soon")[2].startswith("Error: 'soon' is no length of time")
    assert run("cluster", "t", "--strategy", "spiral")[0] == 1


def test_cluster_every_so_often_waits_for_writes(run, tmp_path, monkeypatch):
    table = create(tmp_path / "t", Kind("cow", 9))
    looks = []

    def sleep(seconds):
        looks.append(seconds)
        if len(looks) > 6:
            raise KeyboardInterrupt
        table.upsert(rows((f"k{len(looks)}", "x", 1, 1)), **{"hoodie.parquet.small.file.limit": "0"})

    monkeypatch.setattr(upkeep.keep, "__defaults__", (None, sleep))
    code, out, _ = run("cluster", "t", "--every", "10m")
    assert code == 0
    assert looks == pytest.approx([600] * 7, abs=60)
    assert out.count("Clustering") == 1
    assert out.endswith("Stopped after 7 rounds.\n")
