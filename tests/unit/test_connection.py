"""`connect()`: statements on Hudi tables and everything else, results, transactions, views, parameters, settings."""

import threading

import duckdb
import pyarrow as pa
import pytest

import lakesql
from lakesql.errors import LakeError, SQLError, TableError, Unsupported
from tests.samples import Kind, create, rows


@pytest.fixture
def con(tmp_path):
    with lakesql.connect(warehouse=str(tmp_path / "lake")) as found:
        yield found


@pytest.fixture(params=["cow", "mor"])
def trips(con, request):
    """A connection with the table trips (a at sf, b at ny) in both types."""
    con.sql(
        "CREATE TABLE trips (id STRING, v BIGINT, ts BIGINT, city STRING) USING hudi PARTITIONED BY (city) "
        f"TBLPROPERTIES (type = '{request.param}', primaryKey = 'id', orderingFields = 'ts')"
    )
    con.sql("INSERT INTO trips VALUES ('a', 1, 10, 'sf'), ('b', 2, 10, 'ny')")
    return con


def all_rows(con, table="trips", columns="id, v, ts, city"):
    return con.sql(f"SELECT {columns} FROM {table} ORDER BY ALL").fetchall()


AB = [("a", 1, 10, "sf"), ("b", 2, 10, "ny")]


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


# ---------------------------------------------------------------- DML


def test_merge_update_delete_insert_give_the_same_on_both_types(trips):
    trips.sql(
        "MERGE INTO trips t USING (VALUES ('a', 9, 20, 'sf', false), ('b', 0, 20, 'ny', true), ('c', 3, 20, 'la', "
        "false)) "
        "AS s(id, v, ts, city, gone) ON t.id = s.id WHEN MATCHED AND s.gone THEN DELETE WHEN MATCHED THEN UPDATE SET * "
        "WHEN NOT MATCHED THEN INSERT *"
    )
    assert (trips.last_result.rows_inserted, trips.last_result.rows_updated, trips.last_result.rows_deleted) == (
        1,
        1,
        1,
    )
    assert all_rows(trips) == [("a", 9, 20, "sf"), ("c", 3, 20, "la")]
    trips.sql("UPDATE trips SET v = v + 1 WHERE city = 'la'")
    trips.sql("DELETE FROM trips WHERE id IN (SELECT id FROM trips WHERE v = 9)")
    assert all_rows(trips) == [("c", 4, 20, "la")]


def test_late_update_does_not_replace_the_newer_row(trips):
    trips.sql(
        "MERGE INTO trips t USING (SELECT 'a' AS id, 99 AS v, 5 AS ts) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET v = s.v, ts = s.ts"
    )
    assert (trips.last_result.rows_updated, trips.last_result.rows_ignored) == (0, 1)
    assert all_rows(trips) == AB


def test_rows_without_source_go_when_the_statement_says_so(trips):
    trips.sql("MERGE INTO trips t USING (SELECT 'a' AS id) s ON t.id = s.id WHEN NOT MATCHED BY SOURCE THEN DELETE")
    assert all_rows(trips) == AB[:1]


def test_duplicate_source_rows_are_an_error_and_a_setting_decides_otherwise(trips):
    sql = (
        "MERGE INTO trips t USING (VALUES ('a', 7, 30), ('a', 8, 20)) s(id, v, ts) ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET v = s.v, ts = s.ts"
    )
    with pytest.raises(
        TableError, match="several source rows match the same row of the table: id=a, city=sf"
    ) as caught:
        trips.sql(sql)
    assert str(caught.value).endswith("Nothing was written.")
    assert all_rows(trips) == AB
    trips.sql("SET lakesql.merge.duplicates = 'ordering'")
    trips.sql(sql)
    assert all_rows(trips)[0] == ("a", 7, 30, "sf")


def test_merge_reads_one_snapshot_of_the_table_everywhere(trips):
    trips.sql(
        "MERGE INTO trips t USING (SELECT id, v + 10 AS v FROM trips) s ON t.id = s.id "
        "WHEN MATCHED AND t.v < (SELECT max(v) FROM trips) THEN UPDATE SET v = s.v"
    )
    assert all_rows(trips, columns="id, v") == [("a", 11), ("b", 2)]


def test_insert_follows_the_operation_setting(trips):
    trips.sql("INSERT INTO trips VALUES ('a', 5, 20, 'sf')")
    assert trips.last_result.operation == "insert"
    assert len(all_rows(trips)) == 3
    trips.sql("SET hoodie.spark.sql.insert.into.operation = upsert")
    trips.sql("INSERT INTO trips VALUES ('b', 6, 20, 'ny')")
    assert (trips.last_result.operation, trips.last_result.rows_updated) == ("upsert", 1)
    trips.sql("SET hoodie.spark.sql.insert.into.operation = replace")
    with pytest.raises(SQLError, match="INSERT INTO knows insert, upsert, bulk_insert"):
        trips.sql("INSERT INTO trips VALUES ('b', 6, 20, 'ny')")
    trips.sql("RESET")
    assert trips.sql("SET hoodie.spark.sql.insert.into.operation").fetchall()[0][1] is None


def test_insert_by_position_by_list_and_by_name(trips):
    trips.sql("INSERT INTO trips (city, id) VALUES ('la', 'c')")
    trips.sql("INSERT INTO trips BY NAME SELECT 'la' AS city, 'd' AS ID, 4 AS v")
    trips.sql("INSERT INTO trips SELECT * REPLACE ('e' AS id) FROM trips WHERE id = 'd'")
    assert all_rows(trips)[2:] == [("c", None, None, "la"), ("d", 4, None, "la"), ("e", 4, None, "la")]


def test_insert_with_partition_values_before_the_query(trips):
    trips.sql("INSERT INTO trips PARTITION (city = 'la') VALUES ('c', 3, 10)")
    trips.sql("INSERT INTO trips PARTITION (city) SELECT 'd', 4, 10, 'rio'")
    assert all_rows(trips)[2:] == [("c", 3, 10, "la"), ("d", 4, 10, "rio")]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (
            "INSERT INTO trips VALUES ('c', 3)",
            "INSERT INTO trips expects 4 columns (id, v, ts, city), the query gives 2.",
        ),
        ("INSERT INTO trips (id, nope) VALUES ('c', 3)", "trips has no column nope; its columns are id, v, ts, city."),
        ("INSERT INTO trips PARTITION (v = 1) VALUES ('c', 3, 'x')", "v is not a partition column of trips"),
        ("INSERT INTO trips (id, ID) VALUES ('c', 3)", "column id is given twice"),
        ("INSERT INTO trips SELECT nope FROM trips", 'Referenced column "nope" not found'),
        ("UPDATE trips SET v = nope", 'Referenced column "nope" not found'),
        ("DELETE FROM trips WHERE", "expected a condition"),
        (
            "MERGE INTO trips t USING missing s ON t.id = s.id WHEN MATCHED THEN DELETE",
            "Table with name missing does not exist",
        ),
    ],
)
def test_wrong_statement_says_what_is_wrong(trips, sql, message):
    with pytest.raises(SQLError) as caught:
        trips.sql(sql)
    assert message in str(caught.value)
    assert "__lakesql" not in str(caught.value)


def test_value_that_does_not_fit_is_an_error_and_nothing_is_written(trips):
    with pytest.raises(TableError, match="Nothing was written"):
        trips.sql("UPDATE trips SET v = 'many'")
    with pytest.raises(TableError, match="'many'"):
        trips.sql("INSERT INTO trips VALUES ('c', 'many', 1, 'sf')")
    assert all_rows(trips) == AB


def test_insert_overwrite_replaces_the_table_or_partitions(trips):
    trips.sql("INSERT OVERWRITE trips PARTITION (city = 'sf') VALUES ('x', 1, 1)")
    assert all_rows(trips) == [("b", 2, 10, "ny"), ("x", 1, 1, "sf")]
    trips.sql("INSERT OVERWRITE trips PARTITION (city = 'sf') SELECT 'y', 1, 1 WHERE false")
    assert all_rows(trips) == [("b", 2, 10, "ny")]
    trips.sql("SET hoodie.datasource.overwrite.mode = dynamic")
    trips.sql("INSERT OVERWRITE trips VALUES ('z', 1, 1, 'la')")
    assert all_rows(trips) == [("b", 2, 10, "ny"), ("z", 1, 1, "la")]
    trips.sql("RESET hoodie.datasource.overwrite.mode")
    trips.sql("INSERT OVERWRITE trips VALUES ('only', 1, 1, 'la')")
    assert all_rows(trips) == [("only", 1, 1, "la")]


def test_truncate_empties_the_table_and_keeps_its_history(trips):
    instant = trips.table("trips").state.timeline.completed_writes()[-1].requested
    trips.sql("TRUNCATE TABLE trips")
    assert all_rows(trips) == []
    assert all_rows(trips, f"trips VERSION AS OF {instant}") == AB


def test_spark_functions_are_understood_without_backticks(trips):
    trips.sql("UPDATE trips SET v = CAST(date_format(timestamp '2024-03-01', 'yyyy') AS BIGINT) WHERE id = 'a'")
    assert all_rows(trips)[0][1] == 2024


def test_backticks_work_in_every_statement(trips):
    trips.sql("UPDATE `trips` SET `v` = 7 WHERE `id` = 'a'")
    trips.sql("INSERT INTO `trips` SELECT `id`, `v`, `ts`, 'la' FROM `trips` WHERE `id` <=> 'a'")
    assert trips.sql("SELECT `id`, `city` FROM `trips` WHERE `v` = 7 ORDER BY `city`").fetchall() == [
        ("a", "la"),
        ("a", "sf"),
    ]


def test_python_variables_are_sources(trips):
    changes = pa.table({"id": ["a", "c"], "v": [7, 8], "ts": [20, 20], "city": ["sf", "la"]})
    trips.sql(
        "MERGE INTO trips t USING changes s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN "
        "INSERT *"
    )
    assert all_rows(trips) == [("a", 7, 20, "sf"), ("b", 2, 10, "ny"), ("c", 8, 20, "la")]
    stream = pa.RecordBatchReader.from_batches(changes.schema, changes.to_batches())  # noqa: F841
    trips.sql("INSERT INTO trips SELECT id || '2', v, ts, city FROM stream")
    state = trips.sql("SELECT 'r' AS id")  # noqa: F841  a relation of this very connection, named like a variable of lakesql
    trips.sql("INSERT INTO trips SELECT id, 1, 1, 'x' FROM state")
    assert len(all_rows(trips)) == 6
    assert trips.sql("SELECT count(*) FROM changes").fetchall() == [(2,)]


def test_temporary_tables_of_the_connection_are_sources(trips):
    trips.sql("CREATE TEMP TABLE s AS SELECT 'a' AS id")
    trips.sql("DELETE FROM trips WHERE id IN (SELECT id FROM s)")
    assert all_rows(trips) == AB[1:]


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


# ---------------------------------------------------------------- tables


def test_create_table_puts_partition_columns_last_and_says_what_it_made(con, tmp_path):
    message = con.sql(
        "CREATE TABLE t (city STRING, id BIGINT COMMENT 'the key', at TIMESTAMP) USING hudi PARTITIONED BY (city) "
        "COMMENT 'trips of today' TBLPROPERTIES (primaryKey = 'ID', type = 'mor', preCombineField = 'at')"
    ).fetchall()
    assert message == [(f"Created table t (MERGE_ON_READ, version 9) at {tmp_path}/lake/t.",)]
    assert [r[:2] for r in con.sql("DESCRIBE t").fetchall()[5:]] == [
        ("id", "BIGINT"),
        ("at", "TIMESTAMP WITH TIME ZONE"),
        ("city", "VARCHAR"),
    ]
    properties = dict(con.sql("SHOW TBLPROPERTIES t").fetchall())
    assert properties["hoodie.table.recordkey.fields"] == "id"
    assert properties["hoodie.record.merge.mode"] == "EVENT_TIME_ORDERING"
    assert con.sql("SHOW TBLPROPERTIES t ('hoodie.table.type')").fetchall() == [("hoodie.table.type", "MERGE_ON_READ")]
    assert con.sql("SELECT comment FROM duckdb_views() WHERE view_name = 't'").fetchall() == [("trips of today",)]


@pytest.mark.parametrize("version", [6, 8, 9])
def test_table_version_is_a_property(con, version):
    con.sql(
        f"CREATE TABLE t (id INT) USING hudi TBLPROPERTIES (primaryKey = 'id', 'hoodie.write.table.version' = "
        f"'{version}')"
    )
    con.sql("INSERT INTO t VALUES (1)")
    assert con.table("t").state.config.version == version


def test_create_table_as_select_loads_by_bulk_insert(con):
    con.sql(
        "CREATE TABLE t USING hudi TBLPROPERTIES (primaryKey = 'id') AS SELECT range::TINYINT AS id, 'x' AS name "
        "FROM range(10)"
    )
    assert (con.last_result.operation, con.last_result.rows_inserted) == ("bulk_insert", 10)
    con.sql("CREATE TABLE u USING hudi TBLPROPERTIES (primaryKey = 'id') AS SELECT * FROM t")
    assert con.sql("SELECT count(*) FROM u").fetchall() == [(10,)]


def test_failed_create_as_select_leaves_nothing(con, tmp_path):
    with pytest.raises(LakeError):
        con.sql("CREATE TABLE t USING hudi TBLPROPERTIES (primaryKey = 'id') AS SELECT NULL::INT AS id")
    assert not (tmp_path / "lake" / "t").exists()
    assert con.tables == {}
    con.sql("CREATE TABLE t USING hudi TBLPROPERTIES (primaryKey = 'id') AS SELECT 1 AS id")


def test_create_if_not_exists_and_twice(con):
    con.sql("CREATE TABLE t (id INT) USING hudi TBLPROPERTIES (primaryKey = 'id')")
    assert con.sql("CREATE TABLE IF NOT EXISTS t (id INT) USING hudi").fetchall()[0][0].startswith("Table t exists")
    with pytest.raises(TableError, match="table t exists"):
        con.sql("CREATE TABLE t (id INT) USING hudi")


def test_location_alone_registers_a_table_that_is_there(con, tmp_path):
    create(tmp_path / "far" / "away", Kind("cow", 8)).insert(rows(("a", "sf", 1, 10)))
    con.sql(f"CREATE TABLE away USING hudi LOCATION '{tmp_path}/far/away'")
    assert all_rows(con, "away") == [("a", 1, 10, "sf")]
    con.sql("DROP TABLE away")
    assert (tmp_path / "far" / "away" / ".hoodie").exists()
    con.sql(f"CREATE TABLE away USING hudi LOCATION '{tmp_path}/far/away'")
    con.sql("DROP TABLE away PURGE")
    assert not (tmp_path / "far" / "away").exists()


@pytest.mark.parametrize(
    ("clause", "message"),
    [
        ("TBLPROPERTIES (type = 'mor')", "the table there has type cow, the statement says mor"),
        ("TBLPROPERTIES (primaryKey = 'v')", "the table there has primary_key ('id',), the statement says ('v',)"),
        ("PARTITIONED BY (id)", "the table there has partitioned_by ('city',), the statement says ('id',)"),
    ],
)
def test_statement_that_contradicts_an_existing_table_is_refused(con, tmp_path, clause, message):
    create(tmp_path / "there", Kind("cow", 9))
    with pytest.raises(TableError) as caught:
        con.sql(f"CREATE TABLE t USING hudi {clause} LOCATION '{tmp_path}/there'")
    assert message in str(caught.value)


def test_columns_that_contradict_an_existing_table_are_refused(con, tmp_path):
    create(tmp_path / "there", Kind("cow", 9))
    with pytest.raises(TableError, match="column v is int64 in the table there, string in the statement"):
        con.sql(f"CREATE TABLE t (id STRING, city STRING, v STRING, ts BIGINT) USING hudi LOCATION '{tmp_path}/there'")


@pytest.mark.parametrize(
    ("sql", "error", "message"),
    [
        ("CREATE TABLE t USING hudi", TableError, "there is no Hudi table at"),
        ("CREATE TABLE t (id INT) USING hudi TBLPROPERTIES (primarykey = 'id')", SQLError, "did you mean primaryKey?"),
        ("CREATE TABLE t (id INT) USING hudi TBLPROPERTIES (nope = 1)", SQLError, "table property nope is unknown"),
        ("CREATE TABLE t (id INT) USING hudi TBLPROPERTIES (primaryKey = 'x')", TableError, "there is no column x"),
        ("CREATE TABLE t (id INT) USING hudi TBLPROPERTIES (type = 'fast')", TableError, "type 'fast' is unknown"),
        (
            "CREATE TABLE t (id INT) USING hudi TBLPROPERTIES (primaryKey = 'id', hoodie.table.recordkey.fields = 'x')",
            SQLError,
            "contradicts id",
        ),
        ("CREATE TABLE t (id HUGEINT) USING hudi", Unsupported, "column id: type HUGEINT is not supported"),
        (
            "CREATE TABLE t (id INT) USING hudi TBLPROPERTIES (recordMergeStrategyId = 'x')",
            Unsupported,
            "recordMergeStrategyId",
        ),
        (
            "CREATE TABLE t (id INT) USING hudi TBLPROPERTIES (hoodie.table.cdc.enabled = true)",
            Unsupported,
            "hoodie.table.cdc.enabled",
        ),
        ("CREATE TABLE db.t (id INT) USING hudi", SQLError, "leave db out"),
        ("CREATE TABLE t USING hudi AS SELECT nope", SQLError, "Referenced column"),
        (
            "CREATE TABLE t USING hudi TBLPROPERTIES (primaryKey = 'id') AS SELECT 1::UBIGINT AS id",
            Unsupported,
            "column id has type",
        ),
    ],
)
def test_table_that_cannot_be_made_is_refused_and_leaves_nothing(con, tmp_path, sql, error, message):
    with pytest.raises(error) as caught:
        con.sql(sql)
    assert message in str(caught.value)
    assert not (tmp_path / "lake" / "t" / ".hoodie").exists()
    assert con.tables == {}


def test_folder_that_is_not_empty_is_not_made_a_table(con, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("x")
    with pytest.raises(TableError, match="is not empty and holds no Hudi table"):
        con.sql(f"CREATE TABLE t (id INT) USING hudi LOCATION '{tmp_path}/full'")


def test_drop_of_a_table_in_the_warehouse_removes_its_data(trips, tmp_path):
    assert trips.sql("DROP TABLE trips").fetchall() == [
        (f"Dropped table trips and its data at {tmp_path}/lake/trips.",)
    ]
    assert not (tmp_path / "lake" / "trips").exists()
    assert trips.sql("SHOW TABLES").fetchall() == []
    with pytest.raises(duckdb.Error):
        trips.sql("FROM trips_changes('earliest')")


def test_settings_of_the_table_reach_its_writes(con):
    con.sql(
        "CREATE TABLE t (id INT) USING hudi TBLPROPERTIES (primaryKey = 'id', 'hoodie.datasource.insert.dup.policy' "
        "= 'fail')"
    )
    con.sql("INSERT INTO t VALUES (1)")
    with pytest.raises(TableError, match=r"dup\.policy = fail"):
        con.sql("INSERT INTO t VALUES (1)")
    con.sql("SET hoodie.datasource.insert.dup.policy = none")
    con.sql("INSERT INTO t VALUES (1)")


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("SET lakesql.merge.duplicates = 'some'", SQLError),
        ("SET lakesql.nope = 1", SQLError),
        ("SET hoodie.sql.insert.mode = 'strict'", Unsupported),
    ],
)
def test_wrong_settings_are_refused_when_set(con, sql, error):
    with pytest.raises(error):
        con.sql(sql)


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
