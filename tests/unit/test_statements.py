"""Which statements are ours, what they say, and what is refused by name."""

import pytest

from lakesql.errors import SQLError, Unsupported
from lakesql.sql.lexer import split
from lakesql.sql.nodes import (
    Clause,
    CreateTable,
    Delete,
    DropTable,
    Insert,
    Merge,
    Passed,
    ResetSetting,
    SetSetting,
    ShowProperties,
    Text,
    Truncate,
    Update,
)
from lakesql.sql.statements import parse


def is_hudi(name):
    return name[-1].lower() == "trips" or name[0].lower() == "hudi"


def parsed(sql):
    pieces = split(sql)
    assert len(pieces) == 1
    return parse(sql, pieces[0], is_hudi)


# ---------------------------------------------------------------- what goes to DuckDB


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM trips",
        "  select 1 -- comment\n",
        "WITH x AS (SELECT 1) SELECT * FROM x, trips",
        "INSERT INTO other SELECT * FROM trips",
        "UPDATE other SET trips = 1",
        "DELETE FROM other USING trips",
        "MERGE INTO other USING trips ON true WHEN MATCHED THEN DELETE",
        "MERGE INTO other USING trips USING (id) WHEN MATCHED THEN ERROR",
        "INSERT OR REPLACE INTO other VALUES (1) RETURNING *",
        "CREATE TABLE other AS SELECT * FROM trips",
        "CREATE VIEW other AS SELECT * FROM trips",
        "CREATE TABLE x AS SELECT * FROM a JOIN b USING (hudi)",
        "ALTER TABLE other ADD COLUMN trips INT",
        "DROP TABLE other",
        "TRUNCATE other",
        "COPY trips TO 'x.parquet'",
        "COPY (SELECT * FROM trips) TO 'x.parquet'",
        "COPY other FROM 'x.csv'",
        "EXPLAIN SELECT * FROM trips",
        "EXPLAIN DELETE FROM other",
        "PREPARE p AS SELECT * FROM trips",
        "CALL pragma_version()",
        "SET memory_limit = '1GB'",
        "SET VARIABLE hoodie = 1",
        "RESET memory_limit",
        "SHOW TABLES",
        "DESCRIBE trips",
        "BEGIN",
        "PIVOT trips ON id",
        "nonsense ( ' ",
        "",
    ],
)
def test_statement_that_is_not_ours_stays_byte_for_byte(sql):
    pieces = split(sql)
    assert [parse(sql, p, is_hudi) for p in pieces] == [Passed(sql)] * len(pieces)


# ---------------------------------------------------------------- MERGE


def test_merge_is_cut_into_its_parts():
    sql = """MERGE INTO main.trips AS t USING (SELECT 1 AS id, CASE WHEN a THEN b END AS x) AS s
        ON t.id = s.id AND CASE WHEN t.a THEN 1 ELSE 2 END = 1
        WHEN MATCHED AND s.op = 'd' THEN DELETE
        WHEN MATCHED THEN UPDATE SET t.x = CASE WHEN s.x THEN 1 END, y = s.y IS DISTINCT FROM t.y
        WHEN NOT MATCHED BY TARGET AND s.a THEN INSERT (id, t.x) VALUES (s.id, f(1, 2))
        WHEN NOT MATCHED BY SOURCE THEN DO NOTHING"""
    found = parsed(sql)
    assert isinstance(found, Merge)
    assert (found.target, found.alias, found.source_alias, found.spark) == (("main", "trips"), "t", "s", False)
    assert found.source.sql == "(SELECT 1 AS id, CASE WHEN a THEN b END AS x) AS s"
    assert found.on is not None
    assert found.on.sql == "t.id = s.id AND CASE WHEN t.a THEN 1 ELSE 2 END = 1"
    assert [(c.kind, c.action, c.condition and c.condition.sql) for c in found.clauses] == [
        ("matched", "delete", "s.op = 'd'"),
        ("matched", "update", None),
        ("not_matched", "insert", "s.a"),
        ("by_source", "nothing", None),
    ]
    sets = [[(a.column, a.value.sql) for a in c.assignments or ()] for c in found.clauses]
    assert sets == [
        [],
        [("x", "CASE WHEN s.x THEN 1 END"), ("y", "s.y IS DISTINCT FROM t.y")],
        [("id", "s.id"), ("x", "f(1, 2)")],
        [],
    ]


@pytest.mark.parametrize(
    ("source", "alias"),
    [
        ("s", "s"),
        ("db.s", "s"),
        ("s AS q", "q"),
        ("s q", "q"),
        ('"S x"', "S x"),
        ("(SELECT 1) q", "q"),
        ("(SELECT 1) AS q(id)", "q"),
        ("(SELECT 1)", None),
        ("hudi_scan('x', as_of := '2024') AS q", "q"),
        ("read_csv('x')", None),
    ],
)
def test_merge_source_and_the_name_of_its_columns(source, alias):
    found = parsed(f"MERGE INTO trips USING {source} ON trips.id = 1 WHEN MATCHED THEN DELETE")
    assert isinstance(found, Merge)
    assert (found.source.sql, found.source_alias) == (source, alias)


def test_merge_star_and_by_name_are_the_same():
    star = parsed("MERGE INTO trips USING s USING (id) WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")
    named = parsed(
        "MERGE INTO trips USING s USING (id) WHEN MATCHED THEN UPDATE BY NAME WHEN NOT MATCHED THEN INSERT BY NAME"
    )
    assert isinstance(star, Merge)
    assert isinstance(named, Merge)
    assert [(c.action, c.assignments) for c in star.clauses] == [(c.action, c.assignments) for c in named.clauses]
    assert star.using_columns == ("id",)


def test_insert_values_without_columns_goes_by_position():
    found = parsed("MERGE INTO trips USING s ON a WHEN NOT MATCHED THEN INSERT VALUES (1, s.x)")
    assert isinstance(found, Merge)
    clause = found.clauses[0]
    assert isinstance(clause, Clause)
    assert clause.by_position
    assert [a.value.sql for a in clause.assignments or ()] == ["1", "s.x"]


# ---------------------------------------------------------------- INSERT, UPDATE, DELETE, TRUNCATE


@pytest.mark.parametrize(
    ("sql", "columns", "by_name", "overwrite", "partition", "source"),
    [
        ("INSERT INTO trips VALUES (1, 'a;b')", None, False, False, (), "VALUES (1, 'a;b')"),
        ('INSERT INTO TABLE trips (a, "b c") SELECT 1, 2', ("a", "b c"), False, False, (), "SELECT 1, 2"),
        ("INSERT INTO trips BY NAME SELECT 1 AS a", None, True, False, (), "SELECT 1 AS a"),
        ("INSERT INTO trips BY POSITION FROM x", None, False, False, (), "FROM x"),
        ("INSERT INTO trips (SELECT 1)", None, False, False, (), "(SELECT 1)"),
        ("INSERT INTO trips ((SELECT 1))", None, False, False, (), "((SELECT 1))"),
        ("INSERT OVERWRITE trips TABLE x", None, False, True, (), "TABLE x"),
        (
            "INSERT OVERWRITE TABLE trips PARTITION (dt = '2024', h) SELECT 1",
            None,
            False,
            True,
            (("dt", "'2024'"), ("h", None)),
            "SELECT 1",
        ),
    ],
)
def test_insert_is_cut_into_its_parts(sql, columns, by_name, overwrite, partition, source):
    found = parsed(sql)
    assert isinstance(found, Insert)
    assert (found.columns, found.by_name, found.overwrite) == (columns, by_name, overwrite)
    assert tuple((n, v and v.sql) for n, v in found.partition) == partition
    assert found.source.sql == source


def test_with_clause_in_front_is_kept():
    found = parsed("WITH a AS (SELECT 1), b AS (SELECT 2) INSERT INTO trips SELECT * FROM a, b")
    assert isinstance(found, Insert)
    assert found.ctes == "WITH a AS (SELECT 1), b AS (SELECT 2)"


def test_update_and_delete_are_cut_into_their_parts():
    update = parsed("UPDATE trips AS t SET t.a = (SELECT max(x) FROM y), b = 1 WHERE a IS DISTINCT FROM b")
    assert isinstance(update, Update)
    assert [(a.column, a.value.sql) for a in update.assignments] == [("a", "(SELECT max(x) FROM y)"), ("b", "1")]
    assert update.where == Text("a IS DISTINCT FROM b", 64)
    assert parsed("DELETE FROM trips") == Delete(("trips",), "trips", None, "", False)
    where = parsed("DELETE FROM trips t WHERE t.a = 1")
    assert isinstance(where, Delete)
    assert (where.alias, where.where and where.where.sql) == ("t", "t.a = 1")
    assert parsed("TRUNCATE TABLE trips") == Truncate(("trips",))


def test_backticks_mark_spark_spelling():
    found = parsed("DELETE FROM `trips` WHERE `a` = 1")
    assert isinstance(found, Delete)
    assert found.spark


def test_table_named_by_path_is_a_target():
    assert parsed("DELETE FROM hudi.`/data/trips`") == Delete(("hudi", "/data/trips"), "trips", None, "", True)


# ---------------------------------------------------------------- tables and settings


def test_create_table_is_cut_into_its_parts():
    found = parsed(
        "CREATE EXTERNAL TABLE IF NOT EXISTS t (id BIGINT NOT NULL COMMENT 'the key', s STRUCT<a: INT, m: "
        "MAP<STRING, INT>>, "
        "d DECIMAL(10, 2)) USING hudi COMMENT 'c' PARTITIONED BY (dt STRING, d) LOCATION '/x' "
        "TBLPROPERTIES (type = 'mor', 'primaryKey' = 'id', hoodie.a.b = 1)"
    )
    assert isinstance(found, CreateTable)
    assert found.if_not_exists
    assert [(c.name, c.type.sql, c.nullable, c.comment) for c in found.columns] == [
        ("id", "BIGINT", False, "the key"),
        ("s", "STRUCT<a: INT, m: MAP<STRING, INT>>", True, None),
        ("d", "DECIMAL(10, 2)", True, None),
        ("dt", "STRING", True, None),
    ]
    assert (found.partitioned_by, found.location, found.comment) == (("dt", "d"), "/x", "c")
    assert found.properties == {"type": "mor", "primaryKey": "id", "hoodie.a.b": "1"}


def test_create_table_as_select_and_by_location():
    query = parsed("CREATE TABLE t USING HUDI OPTIONS (primaryKey 'id') AS SELECT 1 AS id")
    assert isinstance(query, CreateTable)
    assert query.query is not None
    assert (query.query.sql, query.properties) == ("SELECT 1 AS id", {"primaryKey": "id"})
    location = parsed("CREATE TABLE t USING hudi LOCATION '/data/t'")
    assert isinstance(location, CreateTable)
    assert (location.location, location.columns, location.query) == ("/data/t", (), None)


@pytest.mark.parametrize(
    ("sql", "statement"),
    [
        ("DROP TABLE trips", DropTable(("trips",), False, False)),
        ("DROP TABLE IF EXISTS main.trips PURGE", DropTable(("main", "trips"), True, True)),
        ("SHOW TBLPROPERTIES trips", ShowProperties(("trips",), None)),
        ("SHOW TBLPROPERTIES trips ('hoodie.table.name')", ShowProperties(("trips",), "hoodie.table.name")),
        ("SET hoodie.a.b-c_1.d = upsert", SetSetting("hoodie.a.b-c_1.d", "upsert")),
        ("SET hoodie.x='a b'", SetSetting("hoodie.x", "a b")),
        ("SET spark.hoodie.x = 12", SetSetting("hoodie.x", "12")),
        ("SET hoodie.x TO true", SetSetting("hoodie.x", "true")),
        ("SET hoodie.x", SetSetting("hoodie.x", None)),
        ("RESET hoodie.x", ResetSetting("hoodie.x")),
        ("RESET", ResetSetting(None)),
        (
            "SET spark.sql.sources.partitionOverwriteMode=dynamic",
            SetSetting("spark.sql.sources.partitionOverwriteMode", "dynamic"),
        ),
    ],
)
def test_table_and_setting_statements(sql, statement):
    assert parsed(sql) == statement


# ---------------------------------------------------------------- refused by name

UNSUPPORTED = [
    ("MERGE INTO trips USING s ON a WHEN MATCHED THEN UPDATE", "UPDATE without SET is not supported"),
    ("MERGE INTO trips USING s ON a WHEN MATCHED THEN UPDATE SET * EXCEPT (b)", "UPDATE SET * EXCEPT is not supported"),
    ("INSERT INTO trips (st.x) VALUES (1)", "inserting the struct field st.x is not supported"),
    (
        "MERGE INTO trips USING s ON a WHEN NOT MATCHED THEN INSERT DEFAULT VALUES",
        "INSERT DEFAULT VALUES is not supported",
    ),
    ("UPDATE trips SET a = 1 FROM s", "UPDATE ... FROM is not supported"),
    ("UPDATE trips SET (a, b) = (1, 2)", "SET (a, b) = (...) is not supported"),
    ("UPDATE trips SET a[1] = 2", "setting an element of a list or map is not supported"),
    ("DELETE FROM trips USING s WHERE true", "DELETE ... USING is not supported"),
    ("INSERT OR REPLACE INTO trips VALUES (1)", "INSERT OR REPLACE | IGNORE is not supported"),
    ("INSERT INTO trips VALUES (1) ON CONFLICT DO NOTHING", "INSERT ... ON CONFLICT is not supported"),
    ("INSERT OVERWRITE trips VALUES (1) RETURNING *", "INSERT OVERWRITE ... RETURNING is not supported"),
    ("INSERT INTO trips DEFAULT VALUES", "INSERT DEFAULT VALUES is not supported"),
    ("FROM s INSERT INTO trips SELECT *", "FROM ... INSERT INTO is not supported"),
    ("TRUNCATE TABLE trips PARTITION (a = 1)", "TRUNCATE ... PARTITION is not supported"),
    ("CREATE OR REPLACE TABLE t USING hudi AS SELECT 1", "CREATE OR REPLACE TABLE ... USING hudi is not supported"),
    ("CREATE TEMP TABLE t (a INT) USING hudi", "a temporary Hudi table is not supported"),
    ("CREATE TABLE t (a INT PRIMARY KEY) USING hudi", "PRIMARY KEY on a column is not supported"),
    ("CREATE TABLE t (a INT DEFAULT 1) USING hudi", "DEFAULT on a column of a Hudi table is not supported"),
    ("CREATE TABLE t (a INT) USING hudi CLUSTERED BY (a) INTO 4 BUCKETS", "CLUSTERED BY is not supported"),
    ("ALTER TABLE trips ADD COLUMN x INT", "ALTER TABLE on the Hudi table trips is not supported (line 1, column 13)."),
    ("DROP VIEW trips", "DROP VIEW on the Hudi table trips is not supported"),
    ("DROP TABLE a, trips", "DROP TABLE on the Hudi table trips is not supported"),
    ("CREATE OR REPLACE VIEW trips AS SELECT 1", "CREATE VIEW on the Hudi table trips is not supported"),
    ("CREATE INDEX i ON trips (a)", "CREATE INDEX on the Hudi table trips is not supported"),
    ("DROP INDEX i ON trips", "DROP INDEX on the Hudi table trips is not supported"),
    ("COPY trips FROM 'x.csv'", "COPY on the Hudi table trips is not supported"),
    ("COPY trips (a, b) FROM 'x.csv'", "COPY on the Hudi table trips is not supported"),
    ("VACUUM trips", "VACUUM on the Hudi table trips is not supported"),
    ("COMMENT ON TABLE trips IS 'x'", "COMMENT TABLE on the Hudi table trips is not supported"),
    ("EXPLAIN TRUNCATE TABLE trips", "EXPLAIN of TRUNCATE on a Hudi table is not supported"),
    ("EXPLAIN ANALYZE INSERT INTO trips VALUES (1)", "EXPLAIN ANALYZE of a write is not supported"),
    ("EXPLAIN (FORMAT json) DELETE FROM trips", "EXPLAIN FORMAT JSON of a write is not supported"),
    ("PREPARE p AS DELETE FROM trips", "PREPARE of DELETE on a Hudi table is not supported"),
    ("CALL hive_sync(table => 'trips')", "CALL hive_sync is not supported"),
    ("SHOW PARTITIONS trips", "SHOW PARTITIONS is not supported"),
    ("SHOW CREATE TABLE trips", "SHOW CREATE TABLE is not supported"),
    ("SHOW INDEXES FROM trips", "SHOW INDEXES is not supported"),
    ("RUN COMPACTION trips", "RUN COMPACTION is not supported"),
    ("DESCRIBE EXTENDED trips", "DESCRIBE EXTENDED is not supported"),
    ("REFRESH TABLE trips", "REFRESH TABLE is not supported"),
    ("MSCK REPAIR TABLE trips", "MSCK is not supported"),
]


@pytest.mark.parametrize(("sql", "message"), UNSUPPORTED, ids=[sql for sql, _ in UNSUPPORTED])
def test_statement_is_refused_by_name(sql, message):
    with pytest.raises(Unsupported) as caught:
        parsed(sql)
    assert str(caught.value).startswith(message)


MALFORMED = [
    ("MERGE INTO trips USING s WHEN MATCHED THEN DELETE", "expected ON, found 'WHEN'"),
    ("MERGE INTO trips USING s ON a", "expected WHEN MATCHED or WHEN NOT MATCHED, found the end of the statement"),
    (
        "MERGE INTO trips USING SELECT 1 ON a WHEN MATCHED THEN DELETE",
        "the query behind USING must stand in parentheses",
    ),
    ("MERGE INTO trips USING s ON a WHEN MATCHED THEN INSERT *", "expected UPDATE, DELETE, DO NOTHING or ERROR"),
    ("MERGE INTO trips USING s ON a WHEN NOT MATCHED THEN DELETE", "expected INSERT, DO NOTHING or ERROR"),
    ("MERGE INTO trips USING s ON a WHEN NOT MATCHED BY SOURCE THEN UPDATE SET *", "has nothing to set by *"),
    ("MERGE INTO trips USING s ON a WHEN NOT MATCHED THEN INSERT (a, b) VALUES (1)", "2 columns but 1 value"),
    ("UPDATE trips SET a = 1, A = 2", "column A is set twice"),
    ("UPDATE trips SET a.x = 1, a = NULL", "column a is set twice"),
    ("UPDATE trips SET a.x = 1, trips.A.X = 2", "column A.X is set twice"),
    ("DELETE FROM trips RETURNING", "expected a column, found the end of the statement"),
    ("UPDATE trips SET a = ", "expected a value, found the end of the statement"),
    ("UPDATE trips SET a = f(1", "this '(' is not closed"),
    ("DELETE FROM trips WHERE a WHERE", ""),
    ("INSERT INTO trips (a) BY NAME SELECT 1", "a column list and BY NAME exclude each other"),
    ("INSERT INTO trips PARTITION (a = 1)", "expected SELECT or VALUES, found the end of the statement"),
    ("TRUNCATE TABLE trips now", "unexpected 'now'"),
    ("CREATE TABLE t (a INT) USING hudi AS SELECT 1", "a column list and AS SELECT exclude each other"),
    ("CREATE TABLE t USING hudi TBLPROPERTIES (a = 1, a = 2)", "property a is given twice"),
    ("CREATE TABLE t (a INT) USING hudi PARTITIONED BY (a STRING)", "column a is defined twice"),
    ("SHOW TBLPROPERTIES other", "other is not a Hudi table of this connection"),
]


@pytest.mark.parametrize(("sql", "message"), MALFORMED, ids=[sql for sql, _ in MALFORMED])
def test_malformed_statement_says_where(sql, message):
    if not message:
        assert isinstance(parsed(sql), Delete)  # conditions are DuckDB's to judge
        return
    with pytest.raises(SQLError) as caught:
        parsed(sql)
    assert message in str(caught.value)
    assert "line 1, column " in str(caught.value)


def test_position_counts_in_the_whole_script():
    script = "SELECT 1;\n\nUPDATE trips\n  SET a"
    with pytest.raises(SQLError, match="line 4, column 8"):
        parse(script, split(script)[1], is_hudi)
