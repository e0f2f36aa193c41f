"""`connect()`: results, parameters, reads, DuckDB's own statements, transactions, cursors."""

import threading

import duckdb
import pyarrow as pa
import pytest

import lakesql
from lakesql.errors import LakeError, SQLError, TableError, Unsupported
from tests.samples import Kind, create, rows
from tests.sql_tables import AB, all_rows

# ---------------------------------------------------------------- results


def test_select_is_a_lazy_relation_of_duckdb(trips):
    relation = trips.sql("SELECT id FROM trips")
    assert relation.filter("id = 'a'").fetchall() == [("a",)]
    assert relation.to_arrow_table().num_rows == 2


def test_write_gives_one_row_and_the_result_object(trips):
    relation = trips.sql("UPDATE trips SET v = 5 WHERE id = 'a'")
    assert relation.columns[:4] == ["instant", "action", "operation", "rows_inserted"]
    row = relation.fetchall()
    assert len(row) == 1
    result = trips.last_result
    assert isinstance(result, lakesql.WriteResult)
    assert (row[0][0], row[0][4]) == (result.instant, result.rows_updated) == (result.instant, 1)


def test_execute_is_a_db_api(trips):
    assert trips.execute("SELECT id FROM trips WHERE v > ? ORDER BY id", [0]).fetchone() == ("a",)
    assert trips.fetchmany(5) == [("b",)]
    assert [d[0] for d in trips.execute("SELECT id, v FROM trips").description] == ["id", "v"]
    done = trips.execute("DELETE FROM trips WHERE id = 'a'")
    assert [d[0] for d in done.description][:2] == ["instant", "action"]
    assert len(done.fetchall()) == 1


def test_open_result_does_not_stand_in_the_way_of_a_write(trips):
    trips.execute("SELECT * FROM range(100000)").fetchone()
    trips.execute("DELETE FROM trips WHERE id = 'a'")
    assert trips.last_result.rows_deleted == 1


def test_several_statements_run_in_order_and_the_last_gives_the_result(con):
    found = con.sql(
        "CREATE TABLE x (id INT) USING hudi TBLPROPERTIES (primaryKey = 'id'); -- one; two\n"
        "INSERT INTO x VALUES (1), (2); CREATE TABLE plain AS SELECT id + 1 AS id FROM x;\n"
        "DELETE FROM x WHERE id = 1; SELECT id FROM x UNION ALL SELECT id FROM plain ORDER BY 1"
    )
    assert found.fetchall() == [(2,), (2,), (3,)]


def test_statement_that_changes_nothing_writes_nothing(trips):
    before = len(trips.table("trips").timeline())
    trips.sql("DELETE FROM trips WHERE id = 'zz'")
    assert trips.last_result.instant is None
    assert len(trips.table("trips").timeline()) == before


# ---------------------------------------------------------------- parameters


def test_parameters_are_bound_in_statements_of_ours(trips):
    trips.execute("UPDATE trips SET v = ? WHERE id = ?", [50, "a"])
    trips.execute("INSERT INTO trips VALUES ($id, $v, 1, 'it''s')", {"id": "it's ?", "v": 3})
    trips.execute("WITH x AS (SELECT $1 AS id) DELETE FROM trips WHERE id = (SELECT id FROM x)", ["b"])
    assert all_rows(trips) == [("a", 50, 10, "sf"), ("it's ?", 3, 1, "it's")]
    trips.execute(
        "MERGE INTO trips t USING (SELECT ? AS id, ? AS v) s ON t.id = s.id WHEN MATCHED AND s.v > ? THEN UPDATE "
        "SET v = s.v",
        ["a", 60, 55],
    )
    assert all_rows(trips)[0][1] == 60
    assert trips.duckdb.execute(
        "SELECT count(*) FROM duckdb_variables() WHERE starts_with(name, '__lakesql')"
    ).fetchall() == [(0,)]


@pytest.mark.parametrize(
    ("sql", "params", "message"),
    [
        ("DELETE FROM trips WHERE id = ?", [], "parameter ?: 0 values were given"),
        ("DELETE FROM trips WHERE id = ?", ["a", "b"], "1 of the parameter values are not used"),
        ("DELETE FROM trips WHERE id = $x", {"y": 1}, "parameter $x: no value of that name"),
    ],
)
def test_wrong_parameters_are_explained(trips, sql, params, message):
    with pytest.raises(SQLError) as caught:
        trips.execute(sql, params)
    assert message in str(caught.value)


# ---------------------------------------------------------------- reading


def test_time_travel_in_both_spellings(trips):
    instant = trips.table("trips").state.timeline.completed_writes()[-1].requested
    trips.sql("DELETE FROM trips WHERE id = 'a'")
    for source in (
        f"trips TIMESTAMP AS OF '{instant}'",
        f"trips VERSION AS OF {instant} AS t",
        f"trips AT (TIMESTAMP => '{instant}')",
        f"`trips` VERSION AS OF '{instant}'",
    ):
        assert trips.sql(f"SELECT count(*) FROM {source}").fetchall() == [(2,)], source
    assert trips.execute("SELECT count(*) FROM trips TIMESTAMP AS OF ?", ["2000-01-01"]).fetchall() == [(0,)]
    assert trips.sql(f"SELECT trips.id FROM trips VERSION AS OF {instant} EXCEPT SELECT id FROM trips").fetchall() == [
        ("a",)
    ]


def test_views_for_both_table_types(trips, request):
    names = {n for (n,) in trips.sql("SHOW TABLES").fetchall()}
    mor = "mor" in request.node.name
    assert names == {"trips", "trips_incremental", *(("trips_ro", "trips_rt") if mor else ())}
    trips.sql("UPDATE trips SET v = 7 WHERE id = 'a'")
    assert all_rows(trips, "trips_changes('earliest')") == all_rows(trips)
    if mor:
        assert all_rows(trips, "trips_rt") == all_rows(trips)
        assert all_rows(trips, "trips_ro") == AB


def test_incremental_view_is_driven_by_variables(trips):
    first = trips.table("trips").state.timeline.completed_writes()[0].completed
    trips.sql("UPDATE trips SET v = 7 WHERE id = 'a'")
    assert len(all_rows(trips, "trips_incremental")) == 2
    trips.sql(f"SET VARIABLE hoodie_trips_consume_start_timestamp = '{first}'")
    assert all_rows(trips, "trips_incremental") == [("a", 7, 10, "sf")]
    trips.sql("SET VARIABLE hoodie_trips_consume_start_timestamp = 'earliest'")
    trips.sql(f"SET VARIABLE hoodie_trips_consume_end_timestamp = '{first}'")
    assert all_rows(trips, "trips_incremental") == AB


def test_error_of_a_table_function_inside_a_write_is_ours(trips):
    with pytest.raises(SQLError, match="'soon' is not a point in time") as caught:
        trips.sql("INSERT INTO trips SELECT id, v, ts, city FROM trips TIMESTAMP AS OF 'soon'")
    assert "Invalid Input Error" not in str(caught.value)


def test_name_means_what_duckdb_means_by_it(trips):
    trips.sql("ATTACH ':memory:' AS other; CREATE TABLE other.main.trips (id INT); USE other")
    trips.sql("INSERT INTO trips VALUES (1)")
    assert trips.sql("FROM trips").fetchall() == [(1,)]
    trips.sql("USE memory")
    assert all_rows(trips) == AB
    trips.duckdb.execute("CREATE TEMP TABLE trips AS SELECT 5 AS id")
    trips.sql("DELETE FROM trips")
    trips.duckdb.execute("DROP TABLE temp.trips")
    assert all_rows(trips) == AB


def test_table_by_path(trips):
    path = trips.tables["trips"]
    assert trips.sql(f"SELECT count(*) FROM hudi.`{path}`").fetchall() == [(2,)]
    trips.sql(f"DELETE FROM hudi.`{path}` WHERE id = 'a'")
    assert all_rows(trips) == AB[1:]


def test_describe_and_qualified_names_reach_the_view(trips):
    columns = [r[0] for r in trips.sql("DESCRIBE trips").fetchall()]
    assert columns[5:] == ["id", "v", "ts", "city"]
    trips.sql("UPDATE memory.main.trips SET v = 3 WHERE id = 'a'")
    assert trips.sql("SELECT v FROM main.trips WHERE id = 'a'").fetchall() == [(3,)]


def test_table_handle_of_a_connection(trips):
    table = trips.table("TRIPS")
    table.upsert(pa.table({"id": ["a"], "v": [70], "ts": [20], "city": ["sf"]}))
    assert all_rows(trips)[0][1] == 70


# ---------------------------------------------------------------- DuckDB's own


def test_statements_of_duckdb_pass(trips):
    trips.sql("CREATE TABLE plain (id VARCHAR PRIMARY KEY, v INT)")
    trips.sql("INSERT INTO plain SELECT id, v FROM trips; INSERT OR REPLACE INTO plain VALUES ('a', 100)")
    trips.sql(
        "MERGE INTO plain USING trips USING (id) WHEN MATCHED AND trips.v = 2 THEN UPDATE SET v = 200 WHEN NOT "
        "MATCHED THEN ERROR"
    )
    trips.sql("UPDATE plain SET v = v + 1; DELETE FROM plain WHERE v > 200")
    assert trips.sql("FROM plain").fetchall() == [("a", 101)]


def test_duckdb_errors_pass_as_they_are(con):
    with pytest.raises(duckdb.CatalogException, match="Table with name nope does not exist"):
        con.sql("SELECT * FROM nope")
    with pytest.raises(duckdb.ParserException):
        con.sql("SELEC 1")


@pytest.mark.parametrize("name", ["query", "script", "text", "session", "params", "piece", "statement", "changes"])
def test_missing_table_named_like_a_variable_of_lakesql_is_missing(con, name):
    with pytest.raises(duckdb.CatalogException, match=f"Table with name {name} does not exist"):
        con.sql(f'SELECT * FROM "{name}"')


@pytest.mark.parametrize("name", ["path", "session", "target", "con", "rows_sql"])
def test_missing_source_named_like_a_variable_of_lakesql_is_missing(trips, name):
    with pytest.raises(SQLError, match=f"Table with name {name} does not exist"):
        trips.sql(f"MERGE INTO trips t USING {name} s ON t.id = s.id WHEN MATCHED THEN DELETE")


def test_error_of_a_table_function_is_ours(con):
    with pytest.raises(TableError, match="not a Hudi table"):
        con.sql("FROM hudi_scan('/nowhere')")


# ---------------------------------------------------------------- transactions


def test_write_inside_a_transaction_is_refused(trips):
    trips.begin()
    with pytest.raises(
        SQLError, match="DELETE on a Hudi table inside a transaction: each statement on a Hudi table is a commit"
    ):
        trips.sql("DELETE FROM trips")
    trips.rollback()
    trips.sql("DELETE FROM trips WHERE id = 'a'")
    assert all_rows(trips) == AB[1:]


def test_reads_inside_a_transaction_are_repeatable(trips):
    other = trips.cursor()
    trips.sql("BEGIN")
    assert all_rows(trips) == AB
    other.sql("DELETE FROM trips")
    assert all_rows(trips) == AB
    trips.commit()
    assert all_rows(trips) == []


def test_commit_and_rollback_without_transaction_do_nothing(con):
    con.commit()
    con.rollback()


def test_failed_statement_leaves_no_transaction_and_no_stage(trips):
    with pytest.raises(LakeError):
        trips.sql("UPDATE trips SET v = 1 / 0 || 'x'")
    assert not trips._session.in_transaction()
    assert trips.sql("SELECT count(*) FROM duckdb_tables() WHERE starts_with(table_name, '__lakesql')").fetchall() == [
        (0,)
    ]


# ---------------------------------------------------------------- connections


def test_tables_of_the_warehouse_are_there_after_connecting(tmp_path):
    create(tmp_path / "lake" / "one", Kind("mor", 9)).insert(rows(("a", "sf", 1, 10)))
    (tmp_path / "lake" / "no table").mkdir()
    with lakesql.connect(warehouse=str(tmp_path / "lake")) as con:
        assert list(con.tables) == ["one"]
        assert all_rows(con, "one") == [("a", 1, 10, "sf")]


def test_table_that_cannot_be_read_does_not_stop_connecting_and_says_why_when_named(tmp_path):
    create(tmp_path / "lake" / "good", Kind("cow", 9))
    create(tmp_path / "lake" / "bad", Kind("cow", 9))
    properties = tmp_path / "lake" / "bad" / ".hoodie" / "hoodie.properties"
    properties.write_text(properties.read_text().replace("hoodie.table.version=9", "hoodie.table.version=10"))
    with lakesql.connect(warehouse=str(tmp_path / "lake")) as con:
        assert list(con.tables) == ["good"]
        with pytest.raises(Unsupported, match="table version 10"):
            con.sql("SELECT * FROM bad")


def test_duckdb_table_of_the_same_name_wins(tmp_path):
    create(tmp_path / "lake" / "trips", Kind("cow", 9))
    database = str(tmp_path / "x.duckdb")
    with duckdb.connect(database) as plain:
        plain.execute("CREATE TABLE trips AS SELECT 42 AS a")
    with lakesql.connect(database, warehouse=str(tmp_path / "lake")) as con:
        con.sql("INSERT INTO trips VALUES (43)")
        assert con.sql("FROM trips").fetchall() == [(42,), (43,)]
        assert con.tables == {}


def test_database_file_keeps_tables_with_a_location(tmp_path):
    create(tmp_path / "far", Kind("mor", 9)).insert(rows(("a", "sf", 1, 10)))
    database = str(tmp_path / "x.duckdb")
    with lakesql.connect(database, warehouse=str(tmp_path / "lake")) as con:
        con.sql(f"CREATE TABLE trips USING hudi LOCATION '{tmp_path}/far'")
    with lakesql.connect(database, warehouse=str(tmp_path / "lake")) as con:
        con.sql("UPDATE trips SET v = 2")
        assert all_rows(con) == [("a", 2, 10, "sf")]
        assert list(con.tables) == ["trips"]


def test_read_only_connection_reads_and_refuses_to_write(tmp_path):
    create(tmp_path / "lake" / "trips", Kind("mor", 9)).insert(rows(("a", "sf", 1, 10)))
    database = str(tmp_path / "x.duckdb")
    duckdb.connect(database).close()
    with lakesql.connect(database, warehouse=str(tmp_path / "lake"), read_only=True) as con:
        assert all_rows(con) == all_rows(con.cursor()) == [("a", 1, 10, "sf")]
        for sql in ("DELETE FROM trips", "CREATE TABLE t (id INT) USING hudi", "DROP TABLE trips"):
            with pytest.raises(TableError, match="read-only"):
                con.sql(sql)


def test_cursors_work_in_threads(trips):
    failures = []

    def work(number):
        try:
            with trips.cursor() as cursor:
                cursor.execute("INSERT INTO trips VALUES (?, ?, 1, 'sf')", [f"t{number}", number])
                assert (f"t{number}",) in cursor.execute("SELECT id FROM trips").fetchall()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(all_rows(trips)) == 6


def test_config_reaches_duckdb(tmp_path):
    with lakesql.connect(warehouse=str(tmp_path), config={"memory_limit": "1GB", "threads": 1}) as con:
        assert con.sql("SELECT current_setting('threads')").fetchall() == [(1,)]


def test_connection_shows_what_it_is(con, tmp_path):
    assert repr(con) == f"<lakesql.Connection: 0 tables, warehouse {tmp_path}/lake>"


@pytest.mark.parametrize("version", [6, 8, 9])
def test_changes_after_a_write_are_named_by_its_instant_or_its_completion_time(con, version):
    con.sql(
        "CREATE TABLE t (id INT, v INT) USING hudi "
        f"TBLPROPERTIES (primaryKey = 'id', 'hoodie.write.table.version' = '{version}')"
    )
    row = con.sql("INSERT INTO t VALUES (1, 1)").to_arrow_table().to_pylist()[0]
    first = con.last_result
    assert (
        row["completed"] == first.completed == (first.instant if version == 6 else max(first.completed, first.instant))
    )
    assert all_rows(con, f"t_changes('{first.instant}')", "id") == []
    con.sql("INSERT INTO t VALUES (2, 2)")
    second = con.last_result
    con.sql("INSERT INTO t VALUES (3, 3)")
    for begin, end in ((first.instant, second.instant), (first.completed, second.completed)):
        assert all_rows(con, f"t_changes('{begin}')", "id") == [(2,), (3,)]
        assert all_rows(con, f"t_changes('{begin}', '{end}')", "id") == [(2,)]
        assert all_rows(con, f"hudi_incremental('t', from_instant := '{begin}', to_instant := '{end}')", "id") == [(2,)]
        assert con.table("t").changes(begin, end).read_all().num_rows == 1
    con.sql("DELETE FROM t WHERE id = 9")
    assert con.last_result.completed is None


# ---------------------------------------------------------------- tables that others make


def test_table_made_elsewhere_is_found_when_it_is_named(con, tmp_path):
    elsewhere = {
        "a": "SELECT id FROM a",
        "b": "INSERT INTO b SELECT 'b', 'sf', 2, 10",
        "c": "SELECT id FROM c TIMESTAMP AS OF '2999-01-01'",
        "d": "CREATE TABLE copy AS SELECT 1; SELECT id FROM d",
        "e": "UPDATE E SET v = 3",
    }
    for name, sql in elsewhere.items():
        create(tmp_path / "lake" / name, Kind("mor", 9)).insert(rows(("a", "sf", 1, 10)))
        assert con.sql(sql).fetchall(), sql
    create(tmp_path / "lake" / "f", Kind("cow", 9))
    assert ("f",) in con.sql("SHOW TABLES").fetchall()
    create(tmp_path / "lake" / "g", Kind("cow", 9)).insert(rows(("a", "sf", 1, 10)))
    assert con.table("g").read().read_all().num_rows == 1
    assert set(con.tables) == {"a", "b", "c", "d", "e", "f", "g"}


def test_table_found_inside_a_transaction_that_is_rolled_back_is_found_again(con, tmp_path):
    con.sql("BEGIN")
    create(tmp_path / "lake" / "a", Kind("mor", 9)).insert(rows(("a", "sf", 1, 10)))
    assert all_rows(con, "a") == [("a", 1, 10, "sf")]
    con.rollback()
    assert all_rows(con, "a") == [("a", 1, 10, "sf")]


def test_folder_of_a_table_without_its_properties_is_told_when_its_name_is_used(tmp_path):
    create(tmp_path / "lake" / "bad", Kind("cow", 9)).insert(rows(("a", "sf", 1, 10)))
    properties = tmp_path / "lake" / "bad" / ".hoodie" / "hoodie.properties"
    properties.rename(tmp_path / "kept")
    with lakesql.connect(warehouse=str(tmp_path / "lake")) as con:
        for sql in ("SELECT * FROM bad", "INSERT INTO bad VALUES (1)", "DELETE FROM bad"):
            with pytest.raises(TableError, match=r"hoodie\.properties is missing, and without it"):
                con.sql(sql)
        (tmp_path / "kept").rename(properties)
        assert all_rows(con, "bad") == [("a", 1, 10, "sf")]


def test_table_with_a_backup_of_its_properties_alone_is_read(tmp_path):
    create(tmp_path / "lake" / "t", Kind("cow", 9)).insert(rows(("a", "sf", 1, 10)))
    properties = tmp_path / "lake" / "t" / ".hoodie" / "hoodie.properties"
    properties.rename(str(properties) + ".backup")
    with lakesql.connect(warehouse=str(tmp_path / "lake")) as con:
        assert all_rows(con, "t") == [("a", 1, 10, "sf")]


# ---------------------------------------------------------------- the rest of DuckDB's connection


@pytest.mark.filterwarnings("ignore:Arrow output on a DB-API result")
def test_results_come_out_as_from_a_duckdb_connection(trips):
    sql = "SELECT id, v FROM trips ORDER BY id"
    assert trips.execute(sql).df().to_dict("list") == {"id": ["a", "b"], "v": [1, 2]}
    assert trips.execute(sql).fetchdf().shape == (2, 2)
    assert trips.execute(sql).arrow().to_pydict() == {"id": ["a", "b"], "v": [1, 2]}
    assert trips.execute(sql).fetch_arrow_table().num_rows == trips.execute(sql).to_arrow_table().num_rows == 2
    assert trips.execute(sql).to_arrow_reader().read_all().num_rows == 2
    assert list(trips.execute(sql).fetchnumpy()["v"]) == [1, 2]
    assert trips.execute("DELETE FROM trips").arrow().column("rows_deleted").to_pylist() == [2]


def test_executemany_runs_a_statement_for_each_set_of_parameters(trips):
    trips.executemany("INSERT INTO trips VALUES (?, ?, 1, 'la')", [["c", 3], ["d", 4]])
    assert all_rows(trips)[2:] == [("c", 3, 1, "la"), ("d", 4, 1, "la")]


def test_registered_objects_are_sources_until_they_are_unregistered(trips):
    trips.register("new rows", pa.table({"id": ["c"], "v": [3], "ts": [1], "city": ["la"]}))
    trips.execute('INSERT INTO trips SELECT * FROM "new rows"')
    assert len(all_rows(trips)) == 3
    trips.unregister("new rows")
    with pytest.raises(LakeError):
        trips.execute('INSERT INTO trips SELECT * FROM "new rows"')
