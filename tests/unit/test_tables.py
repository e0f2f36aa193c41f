"""CREATE TABLE, DROP TABLE, table properties and settings through a connection."""

import duckdb
import pytest

from lakesql.errors import LakeError, SQLError, TableError, Unsupported
from tests.samples import Kind, create, rows
from tests.sql_tables import all_rows


def test_create_table_puts_partition_columns_last_and_says_what_it_made(con, tmp_path):
    message = con.sql(
        "CREATE TABLE t (city STRING, id BIGINT COMMENT 'the key', at TIMESTAMP) USING hudi PARTITIONED BY (city) "
        "COMMENT 'trips of today' TBLPROPERTIES (primaryKey = 'ID', type = 'mor', preCombineField = 'at')"
    ).fetchall()
    made = f"Created table t (MERGE_ON_READ, version 9) at {tmp_path}/lake/t."
    assert message == [(f"{made} Partition columns come last: the columns are id, at, city.",)]
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


def test_create_as_select_notes_that_partition_columns_come_last(con):
    select = "AS SELECT 'x' AS p, 1 AS id"
    con.sql(f"CREATE TABLE t USING hudi PARTITIONED BY (p) TBLPROPERTIES (primaryKey = 'id') {select}")
    assert con.last_result.notes == ("Partition columns come last: the columns are id, p.",)
    con.sql(f"CREATE TABLE u USING hudi PARTITIONED BY (id) TBLPROPERTIES (primaryKey = 'id') {select}")
    assert con.last_result.notes == ()


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
            "rows merge by CUSTOM, which nobody has registered",
        ),
        (
            "CREATE TABLE t (id INT) USING hudi TBLPROPERTIES (hoodie.table.cdc.enabled = true)",
            Unsupported,
            "hoodie.table.cdc.enabled",
        ),
        ('CREATE TABLE "../t" (id INT) USING hudi', SQLError, "cannot name a table"),
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


def test_table_and_column_names_are_quoted_everywhere(con):
    name = '"my ""odd"" table"'
    con.sql(
        f'CREATE TABLE {name} (id INT, "SELECT" STRING, "Group" INT) USING hudi PARTITIONED BY ("Group") TBLPROPERTIES (primaryKey = \'id\')'
    )
    con.sql(f"INSERT INTO {name} VALUES (1, 'x', 7)")
    con.sql(
        f'MERGE INTO {name} AS "T x" USING (SELECT 1 AS id, \'y\' AS "SELECT", 7 AS "Group") AS "S" '
        'ON "T x".id = "S".id AND "T x"."Group" = "S"."Group" WHEN MATCHED THEN UPDATE SET *'
    )
    con.sql(f'UPDATE {name} SET "SELECT" = "SELECT" || \'!\' WHERE "Group" = 7')
    assert all_rows(con, name, 'id, "SELECT", "Group"') == [(1, "y!", 7)]
    assert all_rows(con, """"my ""odd"" table_changes"('earliest')""", "id") == [(1,)]
    assert all_rows(con, f"{name} TIMESTAMP AS OF '2999-01-01'", "id") == [(1,)]
    con.sql(f"DROP TABLE {name}")
    assert con.tables == {}


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
    ("sql", "error", "message"),
    [
        ("SET lakesql.merge.duplicates = 'some'", SQLError, "use one of error"),
        ("SET lakesql.nope = 1", SQLError, "lakesql.nope is unknown"),
        ("SET hoodie.sql.insert.mode = 'strict'", Unsupported, "obsolete"),
        ("SET hoodie.table.name = 'x'", SQLError, "belongs to one table"),
        ("SET hoodie.write.lock.wait_time_ms = abc", TableError, "'abc': must be a whole number"),
        ("SET hoodie.index.bloom.fpp = half", TableError, "'half': must be a number"),
        ("SET lakesql.write.retries = -1", TableError, "must be at least 0"),
        ("SET hoodie.write.table.version = 7", SQLError, "'7': use one of 6, 8, 9"),
        ("SET hoodie.table.type = fast", SQLError, "use one of cow, mor"),
        ("SET hoodie.index.type = RECORD_INDEX", Unsupported, "RECORD_INDEX"),
        (
            "SET hoodie.spark.sql.insert.into.operaton = upsert",
            SQLError,
            "did you mean hoodie.spark.sql.insert.into.operation?",
        ),
        ("SET hoodie.Index.Type = SIMPLE", SQLError, "did you mean hoodie.index.type?"),
        ("SET hoodie.parquet.max.filesize = 1", SQLError, "did you mean hoodie.parquet.max.file.size?"),
    ],
)
def test_wrong_settings_are_refused_when_set(con, sql, error, message):
    with pytest.raises(error) as caught:
        con.sql(sql)
    assert message in str(caught.value)
    assert con.sql(sql.split(" = ")[0]).fetchall()[0][1] is None


@pytest.mark.parametrize(
    "key",
    [
        "hoodie.metadata.enable",
        "hoodie.combine.before.upsert",
        "hoodie.table.ro.file.format",
        "hoodie.cleaner.parallelism",
        "hoodie.of.another.engine",
    ],
)
def test_settings_meant_for_other_engines_are_taken(con, key):
    con.sql(f"SET {key} = 'x'")
    assert con.sql(f"SET {key}").fetchall() == [(key, "x")]


@pytest.mark.parametrize(
    ("property_", "error", "message"),
    [
        ("'hoodie.index.type' = 'RECORD_INDEX'", Unsupported, "hoodie.index.type = RECORD_INDEX"),
        ("'hoodie.write.lock.wait_time_ms' = 'long'", TableError, "must be a whole number"),
        (
            "'hoodie.datasource.insert.dup.polcy' = 'fail'",
            SQLError,
            "did you mean hoodie.datasource.insert.dup.policy?",
        ),
    ],
)
def test_wrong_settings_in_table_properties_are_refused_when_the_table_is_made(con, property_, error, message):
    with pytest.raises(error) as caught:
        con.sql(f"CREATE TABLE t (id INT) USING hudi TBLPROPERTIES (primaryKey = 'id', {property_})")
    assert message in str(caught.value)
    assert con.tables == {}


def test_settings_of_the_session_say_how_tables_are_made(con):
    for setting in (
        "hoodie.write.table.version = 6",
        "hoodie.datasource.write.table.type = MERGE_ON_READ",
        "hoodie.datasource.write.recordkey.field = id",
        "hoodie.datasource.write.hive_style_partitioning = false",
        "hoodie.datasource.write.precombine.field = ts",
    ):
        con.sql(f"SET {setting}")
    con.sql("CREATE TABLE t (id INT, ts INT, p INT) USING hudi PARTITIONED BY (p)")
    con.sql("CREATE TABLE u USING hudi AS SELECT 1 AS id, 2 AS ts")
    con.sql(
        "CREATE TABLE v (k INT) USING hudi TBLPROPERTIES (type = 'cow', primaryKey = 'k', orderingFields = 'k', "
        "'hoodie.write.table.version' = '8')"
    )
    t, u, v = (con.table(name).state.config for name in "tuv")
    assert (t.version, t.is_mor, t.record_key_fields, t.ordering_fields) == (6, True, ("id",), ("ts",))
    assert t.properties["hoodie.datasource.write.hive_style_partitioning"] == "false"
    assert (u.version, u.is_mor) == (6, True)
    assert (v.version, v.is_mor, v.record_key_fields) == (8, False, ("k",))


def test_settings_of_the_session_do_not_contradict_a_table_that_is_there(con, tmp_path):
    create(tmp_path / "far", Kind("cow", 9))
    con.sql("SET hoodie.write.table.version = 6")
    con.sql(f"CREATE TABLE far USING hudi LOCATION '{tmp_path}/far'")
    assert con.table("far").state.config.version == 9


# ---------------------------------------------------------------- names of views

_NEW = "CREATE TABLE {} (id INT) USING hudi TBLPROPERTIES (primaryKey = 'id', type = '{}')"


@pytest.mark.parametrize(
    ("there", "kind", "new", "message"),
    [
        ("m", "mor", "m_ro", "m_ro is a view of the table m (its read-optimized rows)"),
        ("m", "mor", "M_RT", "M_RT is a view of the table m"),
        ("m", "cow", "m_incremental", "m_incremental is a view of the table m (its changes)"),
        ("m", "cow", "m_changes", "m_changes is a view of the table m (its changes)"),
        (
            "m_incremental",
            "cow",
            "m",
            "its view m_incremental (its changes) would have the name of the table m_incremental",
        ),
    ],
)
def test_name_that_would_hide_a_view_of_another_table_is_refused(con, there, kind, new, message):
    con.sql(_NEW.format(there, kind))
    with pytest.raises(TableError) as caught:
        con.sql(_NEW.format(new, "cow"))
    assert message in str(caught.value)
    assert list(con.tables) == [there]


def test_name_with_an_ending_of_merge_on_read_views_is_free_beside_copy_on_write(con):
    con.sql(_NEW.format("c", "cow"))
    con.sql(_NEW.format("c_ro", "cow"))
    con.sql("DROP TABLE c")
    assert list(con.tables) == ["c_ro"]
    assert con.sql("SELECT id FROM c_ro").fetchall() == []


def test_dropped_table_leaves_tables_and_views_that_are_not_its_own(con, tmp_path):
    con.sql(_NEW.format("c_ro", "cow"))
    create(tmp_path / "lake" / "c", Kind("mor", 9)).insert(rows(("a", "sf", 1, 10)))
    assert all_rows(con, "c") == all_rows(con, "c_rt")
    con.sql("DROP TABLE c")
    con.sql("INSERT INTO c_ro VALUES (1)")
    assert con.sql("SELECT id FROM c_ro").fetchall() == [(1,)]


def test_view_that_was_hidden_by_a_dropped_table_comes_back(con, tmp_path):
    con.sql(_NEW.format("c_ro", "cow"))
    create(tmp_path / "lake" / "c", Kind("mor", 9)).insert(rows(("a", "sf", 1, 10)))
    assert len(all_rows(con, "c")) == 1
    con.sql("DROP TABLE c_ro")
    assert all_rows(con, "c_ro") == [("a", 1, 10, "sf")]


# ---------------------------------------------------------------- other engines' spellings


def test_show_tables_like_and_show_columns(trips):
    trips.sql("CREATE TABLE plain (a INT, B INT)")
    assert trips.sql("SHOW TABLES LIKE 'TRIP*|pl%'").fetchall()[:2] == [("plain",), ("trips",)]
    assert trips.sql("SHOW TABLES LIKE 'trips'").fetchall() == [("trips",)]
    assert trips.sql("SHOW TABLES LIKE 't.*'").fetchall() == []
    assert trips.sql("SHOW COLUMNS IN trips").fetchall()[5:] == [("id",), ("v",), ("ts",), ("city",)]
    assert trips.sql("SHOW COLUMNS FROM main.plain").fetchall() == [("a",), ("B",)]


@pytest.mark.parametrize("name", ["delta", "iceberg", "PARQUET", "`delta`"])
def test_other_table_formats_are_refused_by_name(con, name):
    with pytest.raises(Unsupported, match=rf"(?i)CREATE TABLE ... USING {name.strip('`')} is not supported"):
        con.sql(f"CREATE TABLE t (id INT) USING {name}")


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO trips_incremental VALUES (1)",
        "UPDATE trips_incremental SET v = 1",
        "DELETE FROM TRIPS_INCREMENTAL",
        "MERGE INTO trips_incremental USING trips USING (id) WHEN MATCHED THEN DELETE",
    ],
)
def test_write_to_a_view_of_a_table_names_the_table(trips, sql):
    with pytest.raises(
        SQLError, match="trips_incremental is a view of the Hudi table trips and cannot be changed; write"
    ):
        trips.sql(sql)


def test_table_function_over_a_column_says_that_it_takes_constants(trips):
    with pytest.raises(SQLError, match="takes constants, not columns of another table"):
        trips.sql("SELECT * FROM (SELECT 'trips' AS t) x, hudi_scan(x.t)")
