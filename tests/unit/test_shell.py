"""The shell: statements and dot commands by lines of input, completion, the terminal."""

import io
import re
import shutil

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

import lakesql
from lakesql.shell import Shell, batch, run_input
from lakesql.terminal import SqlCompleter, candidates, interactive


@pytest.fixture
def shell(tmp_path):
    with lakesql.connect(warehouse=str(tmp_path / "lake")) as con:
        con.sql("CREATE TABLE trips (id INT NOT NULL, fare DOUBLE) USING hudi TBLPROPERTIES (primaryKey = 'id')")
        yield Shell(con, io.StringIO(), io.StringIO(), "csv")


def output(shell):
    text = shell.out.getvalue()
    shell.out.truncate(0)
    shell.out.seek(0)
    return text


def errors(shell):
    text = shell.err.getvalue()
    shell.err.truncate(0)
    shell.err.seek(0)
    return text


def test_statements_print_their_results(shell):
    run_input(shell, "SELECT 1 AS a; SELECT 2 AS b;")
    assert output(shell) == "a\n1\nb\n2\n"
    run_input(shell, "CREATE TEMP TABLE x (a INT);")
    assert errors(shell) == ""


def test_write_prints_one_line_in_table_mode(shell):
    shell.mode = "table"
    run_input(shell, "INSERT INTO trips VALUES (1, 2.5);")
    assert output(shell).startswith("insert: commit ")


def test_error_is_printed_with_its_line_and_the_session_goes_on(shell):
    run_input(shell, "SELECT 1 AS a;\nSELECT * FROM nope;\nSELECT 2;")
    assert output(shell) == "a\n1\n"
    assert errors(shell).startswith("Error: line 2: Catalog Error: Table with name nope does not exist!")
    assert shell.failed
    run_input(shell, "SELECT 3 AS c;")
    assert not shell.failed


def test_tables_and_schema(shell):
    shell.mode = "table"
    run_input(shell, "CREATE TABLE plain (a INT);")
    output(shell)
    run_input(shell, ".tables")
    text = output(shell)
    assert "trips" in text
    assert "plain" in text
    run_input(shell, ".tables pla")
    assert "trips" not in output(shell)
    run_input(shell, ".schema trips")
    assert output(shell) == "trips:\n  id int32  (record key, not null)\n  fare double\n"
    run_input(shell, ".schema plain")
    assert output(shell) == "CREATE TABLE plain(a INTEGER);\n"
    run_input(shell, ".schema")
    assert output(shell).splitlines()[0] == "trips:"
    run_input(shell, ".schema nope")
    assert "nope is no table or view of this connection; .tables lists them." in errors(shell)


def test_mode_and_timer(shell):
    run_input(shell, ".mode json")
    run_input(shell, "SELECT 1 AS a;")
    assert output(shell) == '[{"a": 1}]\n'
    run_input(shell, ".mode")
    assert output(shell) == "mode: json\n"
    run_input(shell, ".mode wide")
    assert "mode wide is unknown; use table, csv, json, jsonlines, markdown, line, list." in errors(shell)
    run_input(shell, ".timer on")
    run_input(shell, "SELECT 1 AS a;")
    assert re.search(r"^Run Time \(s\): real \d\.\d{3} user \d+\.\d{6} sys \d+\.\d{6}$", output(shell), re.M)
    run_input(shell, ".timer off")
    assert not shell.timer
    run_input(shell, ".timer maybe")
    assert ".timer on or .timer off" in errors(shell)


def test_read_runs_a_script_with_dot_commands_until_an_error(shell, tmp_path):
    (tmp_path / "a.sql").write_text("SELECT 1\nAS a;\n.mode line\nSELECT 2 AS b;\nSELECT nope;\nSELECT 3;\n")
    run_input(shell, f".read {tmp_path}/a.sql")
    assert output(shell) == "a\n1\nb = 2\n"
    assert "nope" in errors(shell)
    run_input(shell, ".read")
    run_input(shell, f".read {tmp_path}/none.sql")
    assert "none.sql" in errors(shell)


def test_read_names_file_and_line_of_an_error(shell, tmp_path):
    file = tmp_path / "r.sql"
    file.write_text("SELECT 1 AS a;\n\nSELECT\n  nope;\n")
    run_input(shell, f".read {file}")
    assert errors(shell).startswith(f"{file}: line 4: Binder Error")
    file.write_text("\n.wat\n")
    run_input(shell, f".read {file}")
    assert errors(shell).startswith(f"{file}: line 2: .wat is unknown")


def test_maxrows_and_maxwidth_limit_tables(shell):
    shell.mode = "table"
    run_input(shell, ".maxrows 4")
    run_input(shell, "FROM range(10) AS t(n);")
    assert [line.strip() for line in output(shell).splitlines()[-2:]] == ["10 rows", "(4 shown)"]
    run_input(shell, "FROM range(7) AS t(n);")
    assert len(output(shell).splitlines()) == 12
    run_input(shell, ".maxrows 0")
    run_input(shell, "FROM range(50) AS t(n);")
    assert len(output(shell).splitlines()) == 55
    run_input(shell, ".maxrows")
    assert output(shell) == "maxrows: 0\n"
    run_input(shell, ".maxrows many")
    assert ".maxrows takes a number" in errors(shell)
    run_input(shell, ".maxwidth 40")
    run_input(shell, "SELECT * FROM trips;")
    assert max(map(len, output(shell).splitlines())) <= 40


def test_output_goes_to_a_file_and_back(shell, tmp_path):
    run_input(shell, f".output {tmp_path}/out.csv")
    run_input(shell, "SELECT 1 AS a;")
    run_input(shell, ".output")
    run_input(shell, "SELECT 2 AS b;")
    assert (tmp_path / "out.csv").read_text() == "a\n1\n"
    assert output(shell) == "b\n2\n"


def test_help_lists_every_command_and_unknown_ones_are_named(shell):
    run_input(shell, ".help")
    text = output(shell)
    assert all(c in text for c in (".tables", ".schema", ".mode", ".timer", ".read", ".output", ".help", ".quit"))
    run_input(shell, ".wat")
    assert errors(shell) == "Error: .wat is unknown; .help lists the commands.\n"
    run_input(shell, ".timr on")
    assert errors(shell) == "Error: .timr is unknown; .help lists the commands. Did you mean .timer?\n"
    run_input(shell, ".h")
    assert "Did you mean .headers or .help?" in errors(shell)
    run_input(shell, ".help null")
    assert output(shell).startswith(".nullvalue [TEXT]")


def test_null_headers_echo_and_print(shell):
    for text in (".nullvalue NIX", ".headers off", ".echo on", "SELECT 1 AS a, NULL AS b;"):
        run_input(shell, text)
    assert output(shell) == "SELECT 1 AS a, NULL AS b;\n1,NIX\n"
    for text in (".echo off", ".mode list", ".headers on", ".null", "SELECT 1 AS a, NULL AS b;"):
        run_input(shell, text)
    assert output(shell).endswith("a|b\n1|NULL\n")
    run_input(shell, ".print 'two words'")
    assert output(shell) == "two words\n"


def test_once_takes_the_next_result_alone(shell, tmp_path):
    for text in (f".once {tmp_path}/one.csv", "SELECT 1 AS a;", "SELECT 2 AS b;"):
        run_input(shell, text)
    assert (tmp_path / "one.csv").read_text() == "a\n1\n"
    assert output(shell) == "b\n2\n"


def test_once_takes_what_a_dot_command_gives_and_no_more(shell, tmp_path):
    for text in (f".once {tmp_path}/one.txt", ".print hello", "SELECT 2 AS b;"):
        run_input(shell, text)
    assert (tmp_path / "one.txt").read_text() == "hello\n"
    assert output(shell) == "b\n2\n"


def test_tables_marks_those_that_cannot_be_read(shell, tmp_path):
    run_input(shell, "INSERT INTO trips VALUES (1, 2.5);")
    shutil.copytree(tmp_path / "lake" / "trips", tmp_path / "lake" / "broken")
    (tmp_path / "lake" / "broken" / ".hoodie" / "hoodie.properties").unlink()
    output(shell)
    run_input(shell, ".tables")
    [line] = [line for line in output(shell).splitlines() if "broken" in line.split("/")[0]]
    assert "cannot be read: " in line
    assert "hoodie.properties is missing" in line
    assert "broken" in shell.con.broken


def test_line_numbers_in_an_error_are_those_of_the_file(shell, tmp_path):
    file = tmp_path / "r.sql"
    begin = "SELECT 1;\n" * 9
    file.write_text(begin + "SELECT 1 AS a,\n  nope;\n")
    run_input(shell, f".read {file}")
    said = errors(shell).splitlines()
    assert said[0].startswith(f"{file}: line 11: Binder Error")
    assert said[-2].startswith("LINE 11:   nope")
    assert said[-2][said[-1].index("^") :].startswith("nope")
    file.write_text(begin + "MERGE\n  trips;\n")
    run_input(shell, f".read {file}")
    said = errors(shell)
    assert said.startswith(f"{file}: line 11: expected INTO")
    assert "\nline 11, column 3:\n" in said
    file.write_text(begin + "\nPREPARE x AS\n  DELETE FROM trips;\n")
    run_input(shell, f".read {file}")
    assert errors(shell).startswith(
        f"{file}: line 12: PREPARE of DELETE on a Hudi table is not supported (line 12, column"
    )


def test_open_goes_to_another_database_with_the_same_tables(shell, tmp_path):
    run_input(shell, "CREATE TABLE here (a INT);")
    run_input(shell, f".open {tmp_path}/other.duckdb")
    run_input(shell, "SELECT count(*) AS n FROM trips;")
    run_input(shell, "FROM here;")
    assert output(shell) == "n\n0\n"
    assert "here does not exist" in errors(shell)
    run_input(shell, ".databases")
    assert f"other: {tmp_path}/other.duckdb r/w" in output(shell)
    shell.con.close()


def test_script_goes_on_after_errors_with_bail_off(shell):
    assert not batch(shell, ".bail off\nSELECT nope;\nSELECT 1 AS a;")
    assert output(shell) == "a\n1\n"


def test_show_says_what_is_set(shell):
    run_input(shell, ".show")
    assert "    mode: csv\n" in output(shell)


def test_batch_stops_at_the_first_error_and_at_quit(shell):
    assert batch(shell, "SELECT 1 AS a;\n.quit\nSELECT 2 AS b;")
    assert output(shell) == "a\n1\n"
    shell.running = True
    assert not batch(shell, "SELECT nope; SELECT 1 AS a;")
    assert output(shell) == ""


def test_candidates_are_tables_columns_functions_and_keywords(shell):
    assert "trips" in candidates(shell.con, "tr")
    assert "fare" in candidates(shell.con, "FA")
    assert "hudi_timeline" in candidates(shell.con, "hudi_t")
    assert "SELECT" in candidates(shell.con, "SEL")
    assert "select" in candidates(shell.con, "sel")


def test_names_of_ingestions_stand_behind_their_word(shell):
    shell.con.execute(
        "CREATE INGESTION clicks_in AS INGEST INTO clicks FROM KAFKA OPTIONS ('kafka.brokers' = 'h:1') FORMAT STRING"
    )
    completer = SqlCompleter(shell)

    def offered(text):
        return [c.text for c in completer.get_completions(Document(text), CompleteEvent())]

    for text in ("RUN INGESTION ", "RUN INGESTION cl", "drop ingestion if exists c", "SHOW INGESTION CLICKS"):
        assert offered(text)[0] == "clicks_in", text
    assert "clicks_in" not in offered("SELECT cl")
    assert offered("RUN INGESTION x") == []
    assert {"INGEST", "INGESTION", "INGESTIONS"} <= set(offered("SHOW ING"))
    assert "KAFKA" in offered("INGEST INTO t FROM KAF")


def test_completer_replaces_the_word_before_the_cursor(shell):
    completer = SqlCompleter(shell)
    found = list(completer.get_completions(Document("SELECT fa"), CompleteEvent()))
    assert ("fare", -2) in [(c.text, c.start_position) for c in found]
    dots = list(completer.get_completions(Document(".ta"), CompleteEvent()))
    assert [(c.text, c.start_position) for c in dots] == [(".tables", -3)]
    assert list(completer.get_completions(Document("SELECT "), CompleteEvent())) == []


def test_completer_knows_procedures_settings_commands_and_what_they_take(shell, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.sql").touch()
    completer = SqlCompleter(shell)

    def offered(text):
        return [c.text for c in completer.get_completions(Document(text), CompleteEvent())]

    assert "run_compaction" in offered("CALL run_c")
    assert "hoodie.parquet.max.file.size" in offered("set hoodie.parquet.m")
    assert "threads" in offered("SET thre")
    assert offered(".mode js") == ["json", "jsonlines"]
    assert offered(".schema tr") == ["trips"]
    assert offered(".timer o") == ["on", "off"]
    assert offered(".read scr") == ["ipt.sql"]


def test_terminal_session_takes_several_lines_and_ends_with_quit(shell, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        keys.send_text("SELECT 41 +\r1 AS a;\r.quit\r")
        interactive(shell)
    assert "a\n42\n" in output(shell)
    assert (tmp_path / ".lakesql_history").exists()


def test_terminal_session_ends_with_end_of_file(shell, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        keys.send_text("\x04")
        interactive(shell)
    assert "lakesql: SQL on Hudi tables." in output(shell)


@pytest.mark.parametrize("word", ["exit", "Quit;", "help"])
def test_bare_words_of_other_shells_leave_or_help(tmp_path, word):
    with lakesql.connect(warehouse=tmp_path) as con:
        shell = Shell(con, io.StringIO(), io.StringIO())
        run_input(shell, word)
        assert shell.running == ("elp" in word)
        assert (".timer" in shell.out.getvalue()) == ("elp" in word)
        assert not shell.failed


def test_homes_of_nobody_and_scripts_that_read_themselves_are_errors(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "self.sql").write_text(".read self.sql\n")
    with lakesql.connect(warehouse=tmp_path) as con:
        shell = Shell(con, io.StringIO(), io.StringIO())
        for line in (".cd ~no_such_user", ".read ~no_such_user/x", ".output ~no_such_user/x", ".read self.sql"):
            shell.err = io.StringIO()
            run_input(shell, line)
            assert shell.failed
            assert shell.err.getvalue().count("\n") == 1
        assert "reads itself" in shell.err.getvalue()
