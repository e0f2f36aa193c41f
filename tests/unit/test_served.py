"""What a client of a server gets for its text, without the protocol: which statements run, which are refused, once only."""

import threading

import duckdb
import pytest

import lakesql
from lakesql import serve
from lakesql.errors import LakeError
from lakesql.sql.served import Clients


@pytest.fixture
def con(tmp_path):
    with lakesql.connect(warehouse=str(tmp_path / "lake")) as con:
        con.execute("CREATE TABLE trips (id INT, fare DOUBLE) USING hudi TBLPROPERTIES (primaryKey = 'id')")
        con.execute("INSERT INTO trips VALUES (1, 9.5), (2, 4.0)")
        yield con


@pytest.fixture
def clients(con, tmp_path):
    return Clients(con, True, tmp_path)


@pytest.fixture
def reading(con, tmp_path):
    return Clients(con, False, tmp_path)


def rows(clients, text, client="a"):
    """What DuckDB gives for the text that it runs in place of the client's."""
    with clients._con.duckdb.cursor() as quack:
        return quack.execute(clients.answer(client, text)).fetchall()


REFUSED = [
    "INSERT INTO trips VALUES (3, 1.0)",
    "CREATE TABLE x (a INT) USING hudi",
    "CREATE TABLE x AS SELECT 1 AS a",
    "CREATE TEMP VIEW x AS SELECT 1 AS a",
    "WITH s AS (SELECT 1 AS a) INSERT INTO x SELECT * FROM s",
    "WITH s AS (DELETE FROM x RETURNING *) SELECT * FROM s",
    "COPY trips TO 'x.csv'",
    "EXPORT DATABASE 'x'",
    "ATTACH 'x.db'",
    "DETACH memory",
    "VACUUM",
    "CHECKPOINT",
    "EXPLAIN ANALYZE CREATE TABLE x AS SELECT 1 AS a",
    "EXPLAIN (ANALYZE, FORMAT json) CREATE TABLE x AS SELECT 1 AS a",
    "PREPARE p AS SELECT 1",
    "SELECT 1; CREATE TABLE x (a INT)",
    "SET threads = 1",
    "SET GLOBAL TimeZone = 'UTC'",
    "RESET threads",
    "PRAGMA threads = 1",
    "PRAGMA enable_profiling",
    "USE memory",
    "FROM enable_profiling\u200b(save_location := 'x')",
    "FROM enable_logging--\r(storage := 'file')",
    "CALL enable_logging()",
    "FROM enable_logging('HTTP', storage := 'file')",
    "CALL create_savepoint(table => 'trips', commit_time => '1')",
    "CALL export_instants(table => 'trips', local_folder => '/tmp')",
    "FROM hudi_execute('INSERT INTO trips VALUES (3, 1.0)')",
]
NEVER = [
    "FROM query('SELECT 1')",
    "FROM \"query\" /* x */ ('SELECT 1')",
    "FROM query\ufeff('SELECT ' || 1)",
    "FROM json_execute_serialized_sql(json_serialize_sql('SELECT 1'))",
    "FROM quack_stop\u200b('quack:localhost:9494')",
    "FROM quack_serve--\r('quack:localhost:9494')",
    "FROM quack_stop /* /* a */ b */ ('quack:localhost:9494')",
    "LOAD json",
    "SELECT * FROM quack_stop('quack:localhost:9494')",
    "SELECT quack_check_token('a', 'b', 'c')",
    "SELECT lakesql_authorize('b', 'SELECT 1')",
    "SET GLOBAL quack_authorization_function = 'x'",
    "SET autoinstall_known_extensions = true",
    "SET python_enable_replacements = true",
]


@pytest.mark.parametrize("text", REFUSED)
def test_server_that_reads_refuses_what_changes_something(reading, tmp_path, text):
    with pytest.raises(
        duckdb.Error, match=r"is refused: this server only reads; whoever runs it allows changes with: "
    ):
        rows(reading, text)
    assert not [*tmp_path.glob("x*")]


@pytest.mark.parametrize("text", NEVER)
def test_what_reaches_past_the_tables_is_refused_to_all(clients, text):
    with pytest.raises(duckdb.Error, match=r"is refused: (it would|this setting|an extension)"):
        rows(clients, text)


def test_server_that_reads_runs_queries_and_shows(reading):
    assert rows(reading, "SELECT id FROM trips ORDER BY id") == [(1,), (2,)]
    assert rows(reading, "SELECT count(*) FROM trips TIMESTAMP AS OF now()") == [(2,)]
    assert rows(reading, "PIVOT (SELECT id, fare FROM trips) ON id USING sum(fare)") == [(9.5, 4.0)]
    assert rows(reading, "SHOW TBLPROPERTIES trips ('hoodie.table.name')")[0][1] == "trips"
    assert rows(reading, "FROM hudi_execute('SELECT 5')") == [(5,)]
    assert len(rows(reading, "CALL show_commits(table => 'trips')")) == 1
    assert len(rows(reading, "EXPLAIN UPDATE trips SET fare = 1")) == 1
    assert "'hoodie.parquet.max.file.size', '1000000'" in reading.answer(
        "a", "SET hoodie.parquet.max.file.size = 1000000"
    )
    for text in ("BEGIN", "SET VARIABLE a = 1", "SET TimeZone = 'UTC'", "EXPLAIN SELECT 1", "EXPLAIN ANALYZE SELECT 1"):
        rows(reading, text)
    assert reading.answer("a", 'INSERT INTO main."x y" VALUES (NULL)') is None


def test_settings_belong_to_the_client_and_reach_table_functions(clients):
    text = clients.answer("a", "SET lakesql.read.disk_cache = false")
    assert "SET VARIABLE \"lakesql_read_disk_cache\" = 'false'" in text
    assert rows(clients, "SET lakesql.read.disk_cache", "b") == [("lakesql.read.disk_cache", None)]


def test_statement_with_a_token_runs_once_and_fails_again(clients):
    text = "FROM hudi_execute('INSERT INTO trips VALUES (3, 1.0)', token := 'one')"
    answers = []
    threads = [threading.Thread(target=lambda n=n: answers.append(clients.answer(f"c{n}", text))) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(answers)) == 1
    assert rows(clients, "SELECT count(*) FROM trips") == [(3,)]
    with pytest.raises(duckdb.Error, match="'one' belongs to another statement; nothing was run"):
        rows(clients, "CALL hudi_execute('DELETE FROM trips', 'one')")
    for _ in range(2):
        with pytest.raises(duckdb.Error, match="nope does not exist"):
            rows(clients, "FROM hudi_execute('INSERT INTO trips FROM nope', token := 'two')")


def test_result_of_any_type_and_size_comes_back(clients, tmp_path):
    rows(clients, "INSERT INTO trips SELECT range, 1 FROM range(10, 1000)")
    got = rows(clients, "DELETE FROM trips WHERE id > 2 RETURNING id, {'fare': fare} AS f")
    assert len(got) == 990
    assert got[0][1] == {"fare": 1.0}
    assert [*tmp_path.glob("*.parquet")]


def test_change_inside_a_transaction_or_beside_another_statement_is_refused(clients):
    rows(clients, "BEGIN")
    with pytest.raises(duckdb.Error, match="INSERT inside a transaction"):
        rows(clients, "INSERT INTO trips VALUES (3, 1.0)")
    clients.answer("a", "ROLLBACK")
    rows(clients, "INSERT INTO trips VALUES (3, 1.0)")
    with pytest.raises(duckdb.Error, match="one statement at a time"):
        rows(clients, "SELECT 1; INSERT INTO trips VALUES (4, 1.0)")


def test_table_that_another_process_made_is_there_at_the_next_statement(clients, tmp_path):
    with lakesql.connect(warehouse=str(tmp_path / "lake")) as other:
        other.execute("CREATE TABLE later (id INT) USING hudi TBLPROPERTIES (primaryKey = 'id')")
    assert rows(clients, "SELECT count(*) FROM later") == [(0,)]


def test_stopping_server_runs_nothing(clients):
    assert clients.stop()
    with pytest.raises(duckdb.Error, match="the server is stopping; nothing was run"):
        rows(clients, "SELECT 1")


def test_token_comes_from_one_place_and_is_long_enough(tmp_path, monkeypatch):
    monkeypatch.delenv(serve.TOKEN_VARIABLE, raising=False)
    made, is_made = serve.token_of(None, None)
    assert is_made
    assert len(made) >= 32
    (tmp_path / "token").write_text("from a file\n")
    assert serve.token_of(None, tmp_path / "token") == ("from a file", False)
    monkeypatch.setenv(serve.TOKEN_VARIABLE, "from outside")
    assert serve.token_of(None, None) == ("from outside", False)
    for given, file, text in (("x", None, "at least 8"), ("long enough", tmp_path / "token", "exclude")):
        with pytest.raises(LakeError, match=text):
            serve.token_of(given, file)
    with pytest.raises(LakeError, match=r"nothing: it cannot be read"):
        serve.token_of(None, tmp_path / "nothing")


def test_extension_that_is_not_to_be_had_is_named_with_the_ways_to_get_it():
    class WithoutExtensions:
        def execute(self, text):
            raise duckdb.IOException(f"IO Error: {text} failed\nand more")

    with pytest.raises(
        LakeError,
        match=r"extension httpfs for DuckDB .*IO Error: INSTALL httpfs; LOAD httpfs failed .*lakesql\[serve\]",
    ):
        serve.load_quack(WithoutExtensions())
