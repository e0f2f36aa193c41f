"""`%lakesql` and `%%lakesql`: what runs, on which connection, what becomes of the result, how errors look."""

import sys

import polars
import pyarrow as pa
import pytest

import lakesql

TRIPS = """%%lakesql
CREATE TABLE trips (id BIGINT, city VARCHAR, fare DOUBLE, ts BIGINT) USING hudi
TBLPROPERTIES (type = 'mor', primaryKey = 'id', orderingFields = 'ts');
INSERT INTO trips SELECT range, ['oslo', 'rome'][range % 2 + 1], range * 1.5, 10 FROM range(20)"""


@pytest.fixture
def trips(cell):
    return cell(TRIPS)


def test_statements_of_a_cell_run_and_what_they_wrote_is_the_answer(trips, cell, tmp_path):
    [written] = trips.written
    assert written.rows_inserted == 20
    assert str(written) in repr(trips)
    assert "<td" in trips._repr_html_()
    assert (tmp_path / "warehouse" / "trips").is_dir()
    result = cell("%lakesql SELECT id, city FROM trips WHERE id < 2 ORDER BY id")
    assert result.fetchall() == [(0, "oslo"), (1, "rome")]
    assert result.df().city.tolist() == ["oslo", "rome"]
    assert pa.table(result).num_rows == 2
    assert repr(result).count("│ rome    │") == 1
    assert "<td>rome</td>" in result._repr_html_()


@pytest.mark.usefixtures("trips")
def test_statement_may_begin_on_the_line_of_the_magic_and_hold_braces_and_dollars(cell):
    assert cell("%%lakesql SELECT {'a': 1}.a AS a,\n'$x {fare}' AS b").fetchall() == [(1, "$x {fare}")]
    assert cell("%%lakesql\n-- a comment\nSELECT 1").fetchall() == [(1,)]


@pytest.mark.usefixtures("trips")
def test_answer_of_several_writes_tells_each_and_the_last_rows(cell):
    answer = cell(
        "%%lakesql\nUPDATE trips SET fare = 0, ts = 11 WHERE id = 1;\nDELETE FROM trips WHERE id = 2;\nSELECT 7 AS n"
    )
    assert [(w.rows_updated, w.rows_deleted) for w in answer.written] == [(1, 0), (0, 1)]
    assert answer.fetchall() == [(7,)]


@pytest.mark.usefixtures("trips")
def test_rows_of_returning_are_shown_and_the_row_of_counts_is_not(cell):
    assert "rows_ignored" not in cell("%lakesql DELETE FROM trips WHERE id = 3")._repr_html_()
    returned = cell("%lakesql DELETE FROM trips WHERE id = 4 RETURNING id, city")
    assert returned.fetchall() == [(4, "oslo")]
    assert "<td>oslo</td>" in returned._repr_html_()


@pytest.mark.usefixtures("trips")
def test_statement_without_a_result_has_no_value(cell):
    assert cell("%lakesql SET threads = 2") is None
    assert cell("%lakesql CREATE TABLE plain (i INTEGER)") is None
    assert cell("%lakesql FROM plain").fetchall() == []


@pytest.mark.usefixtures("trips")
def test_without_sql_the_connection_is_the_value(cell):
    con = cell("%lakesql")
    assert list(con.tables) == ["trips"]
    assert "trips" in con._repr_html_()


@pytest.mark.parametrize("name", ["rides", "line", "cell", "args", "result", "fn", "self", "names"])
def test_variable_of_the_notebook_that_holds_rows_is_a_table(cell, name):
    cell(f"import pandas as pd\n{name} = pd.DataFrame({{'id': [1, 2]}})")
    assert cell(f"%lakesql SELECT sum(id) FROM {name}").fetchall() == [(3,)]
    assert cell(f"%%lakesql\nSELECT sum(id) FROM {name}").fetchall() == [(3,)]


@pytest.mark.usefixtures("trips")
def test_variable_of_the_notebook_is_the_source_of_a_merge(cell):
    cell(
        "import pyarrow as pa\nnews = pa.table({'id': [1, 99], 'city': ['bern', 'bern'], 'fare': [1.0, 1.0], 'ts': [20, 20]})"
    )
    answer = cell(
        "%%lakesql\nMERGE INTO trips t USING news n ON t.id = n.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    assert (answer.written[0].rows_updated, answer.written[0].rows_inserted) == (1, 1)


def test_variable_of_a_function_that_calls_the_magic_is_a_table(cell):
    cell(
        "import pyarrow as pa\ndef total():\n    here = pa.table({'n': [1, 2]})\n    return get_ipython().run_line_magic('lakesql', 'SELECT sum(n) FROM here')"
    )
    assert cell("total()").fetchall() == [(3,)]


def test_names_of_ipython_and_of_lakesql_are_no_tables(fails):
    error, _ = fails("%lakesql SELECT * FROM local_ns")
    assert "local_ns does not exist" in str(error)


@pytest.mark.usefixtures("trips")
def test_result_goes_into_variables(cell, shell):
    answer = cell("%lakesql --df frame --arrow table --relation later SELECT id FROM trips WHERE id < 3")
    assert "frame: 3 rows, 1 column" in repr(answer)
    assert shell.user_ns["frame"].id.tolist() == [0, 1, 2]
    assert shell.user_ns["table"].num_rows == 3
    assert len(shell.user_ns["later"].fetchall()) == 3


@pytest.mark.usefixtures("trips")
def test_result_goes_into_a_polars_frame(cell):
    cell("%lakesql --pl frame SELECT id FROM trips")
    assert isinstance(cell("frame"), polars.DataFrame)


@pytest.mark.usefixtures("trips")
def test_missing_package_is_named(fails, monkeypatch):
    monkeypatch.setitem(sys.modules, "polars", None)
    error, _ = fails("%lakesql --pl frame SELECT id FROM trips")
    assert "pip install polars" in str(error)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("%lakesql --of x SELECT 1", "--of is unknown"),
        ("%lakesql --df", "--df takes a value"),
        ("%lakesql --df 1a SELECT 1", "the name of a Python variable"),
        ("%lakesql --df class SELECT 1", "the name of a Python variable"),
        ("%lakesql --rows none SELECT 1", "a number of rows"),
        ("%lakesql --connection con SELECT 1", "that variable is not there"),
        ("%lakesql --connection con --warehouse w SELECT 1", "not both"),
        ("%lakesql --explain SELECT 1; SELECT 2", "takes one statement"),
        ("%lakesql --df x SET threads = 2", "no rows"),
    ],
)
def test_wrong_options_are_explained(fails, text, message):
    error, printed = fails(text)
    assert message in str(error)
    assert "Traceback" not in printed


@pytest.mark.usefixtures("trips")
def test_explain_shows_the_plan_and_writes_nothing(cell):
    plan = cell("%lakesql --explain DELETE FROM trips WHERE id = 3")
    assert plan.fetchall()[0][2] == "append"
    assert cell("%lakesql SELECT count(*) FROM trips").fetchall() == [(20,)]
    assert "<pre>" in cell("%lakesql --explain SELECT count(*) FROM trips")._repr_html_()


def test_connection_is_the_chosen_one_then_the_one_in_a_variable_then_an_own_one(cell, fails, tmp_path):
    assert cell("%lakesql").warehouse == str(tmp_path / "warehouse")
    cell("import lakesql\nfirst = lakesql.connect(warehouse='one')")
    assert cell("%lakesql") is cell("first")
    cell("second = lakesql.connect(warehouse='two')")
    error, _ = fails("%lakesql SELECT 1")
    assert "several connections: first, second" in str(error)
    assert cell("%lakesql --connection second") is cell("second")
    assert cell("%lakesql") is cell("second")
    cell("second = lakesql.connect(warehouse='three')")
    assert cell("%lakesql") is cell("second")
    there = cell("%lakesql --warehouse 'a folder'")
    assert there.warehouse == str(tmp_path / "a folder")
    assert cell("%lakesql") is there
    assert cell("%lakesql --warehouse './a folder'") is there


def test_of_several_connections_con_is_the_one(cell):
    cell("import lakesql\nother = lakesql.connect()\ncon = lakesql.connect()")
    assert cell("%lakesql") is cell("con")


@pytest.mark.usefixtures("trips")
def test_half_fetched_result_of_an_earlier_cell_is_not_in_the_way(cell):
    cell("import lakesql\ncon = lakesql.connect()\ncon.execute('SELECT range FROM range(10)').fetchone()")
    assert cell("%lakesql SELECT count(*) FROM trips").fetchall() == [(20,)]


@pytest.mark.usefixtures("trips")
def test_error_is_its_text_without_a_traceback(fails):
    for text, kind, words in (
        ("%lakesql SELECT * FROM nowhere", "CatalogException", "nowhere does not exist"),
        ("%%lakesql\nMERGE INTO trips USING 3", "SQLError", "expected a table"),
        ("%lakesql DELETE FROM trips WHERE fares = 1", "SQLError", "fares"),
        ("%lakesql SELECT error('so it ' || 'is')", "InvalidInputException", "so it is"),
    ):
        error, printed = fails(text)
        assert printed.startswith(type(error).__name__)
        assert str(error).strip() in printed
        assert type(error).__name__ == kind
        assert words in printed
        assert not any(word in printed for word in ("Traceback", "lakesql/", "site-packages", "-->"))


@pytest.mark.usefixtures("trips")
def test_statements_before_the_one_that_fails_have_run(cell, fails):
    fails("%%lakesql\nDELETE FROM trips WHERE id = 0;\nSELECT * FROM nowhere;\nDELETE FROM trips")
    assert cell("%lakesql SELECT count(*) FROM trips").fetchall() == [(19,)]


@pytest.mark.usefixtures("trips")
def test_error_in_a_python_cell_has_the_lines_of_the_person(fails):
    error, printed = fails(
        "import lakesql\ncon = lakesql.connect()\n\ndef change():\n    con.sql('UPDATE trips SET')\n\nchange()"
    )
    assert isinstance(error, lakesql.SQLError)
    assert "line 7 of the cell: change()" in printed
    assert "line 5 of the cell: con.sql('UPDATE trips SET')" in printed
    assert "lakesql/sql" not in printed


def test_other_errors_are_printed_as_ever(fails):
    _, printed = fails("1 / 0")
    assert "ZeroDivisionError" in printed
    assert "Traceback" in printed


def test_errors_can_be_caught_as_ever(cell):
    cell(
        "import duckdb, lakesql\n"
        "try:\n    get_ipython().run_line_magic('lakesql', 'SELECT * FROM nowhere')\n"
        "except duckdb.CatalogException as error:\n    caught = error"
    )
    assert "nowhere" in str(cell("caught"))


def test_unloaded_extension_leaves_nothing(shell, cell):
    shell.extension_manager.unload_extension("lakesql")
    assert shell.find_line_magic("lakesql") is None
    assert shell.custom_exceptions == ()
    assert shell.Completer.custom_matchers == []
    shell.extension_manager.load_extension("lakesql")
    assert cell("%lakesql SELECT 1").fetchall() == [(1,)]


def test_error_handler_of_somebody_else_stays(shell):
    shell.extension_manager.unload_extension("lakesql")
    shell.set_custom_exc((KeyError,), print)
    shell.extension_manager.load_extension("lakesql")
    assert shell.custom_exceptions == (KeyError,)
    shell.extension_manager.unload_extension("lakesql")
    assert shell.custom_exceptions == (KeyError,)


@pytest.mark.usefixtures("trips")
def test_relation_of_the_connection_is_shown_like_a_result(cell, shell):
    cell("import lakesql\ncon = lakesql.connect()")
    bundle, _ = shell.display_formatter.format(cell("con.sql('SELECT id, city FROM trips ORDER BY id')"))
    assert "<td>oslo</td>" in bundle["text/html"]
    assert "│ oslo    │" in bundle["text/plain"]
    broken = cell("con.sql(\"SELECT error('it ' || 'broke')\")")
    bundle, _ = shell.display_formatter.format(broken)
    assert "it broke" in bundle["text/plain"]


@pytest.mark.parametrize("asked", ["help", "?", "--help", "--df x --help"])
def test_help_lists_every_option(cell, capsys, asked):
    from lakesql.notebook import options

    cell(f"%lakesql {asked}")
    printed = capsys.readouterr().out
    assert [name for name in options.NAMES if f"--{name}" not in printed] == []


def test_a_cell_of_several_queries_gives_the_last_one(cell):
    assert cell("%%lakesql\nSELECT 1 AS x;\nSELECT 2 AS y;\nSELECT 3 AS z").fetchall() == [(3,)]
