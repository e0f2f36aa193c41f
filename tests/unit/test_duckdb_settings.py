"""Settings of DuckDB change what a user's queries mean, and nothing of what lakesql writes and reads."""

import duckdb
import pyarrow as pa
import pytest

import lakesql
from lakesql.errors import TableError
from lakesql.table.known_settings import KNOWN, differing, known_settings

OTHERS = {
    "default_order": "DESC",
    "default_null_order": "NULLS_FIRST",
    "default_collation": "NOCASE",
    "preserve_insertion_order": "false",
    "ieee_floating_point_ops": "false",
    "integer_division": "true",
    "scalar_subquery_error_on_multiple_rows": "false",
    "order_by_non_integer_literal": "true",
    "old_implicit_casting": "true",
    "calendar": "japanese",
    "binary_as_string": "true",
    "errors_as_json": "true",
    "arrow_lossless_conversion": "true",
    "arrow_large_buffer_size": "true",
    "arrow_output_list_view": "true",
    "produce_arrow_string_view": "true",
    "arrow_output_version": "1.4",
}
EXISTING = {str(name).lower() for (name,) in duckdb.sql("SELECT name FROM duckdb_settings()").fetchall()}
OTHERS_HERE = {name: value for name, value in OTHERS.items() if name in EXISTING}
LATE = ("calendar", "binary_as_string")  # settings of extensions, which config does not know yet
CONFIG = {name: value for name, value in OTHERS_HERE.items() if name not in LATE}
EACH = pytest.mark.parametrize("setting", OTHERS_HERE)
BOTH = pytest.mark.parametrize("type_", ["cow", "mor"])

CREATE = """CREATE TABLE t (id VARCHAR, v VARCHAR, b BLOB, ts TIMESTAMP, at TIMESTAMPTZ, o INT, tags VARCHAR[], p VARCHAR) USING hudi
            PARTITIONED BY (p) TBLPROPERTIES (type = '{}', primaryKey = 'id', orderingFields = 'o')"""
INSERT = r"""INSERT INTO t BY NAME SELECT *, '\xFF'::BLOB AS b, TIMESTAMPTZ '2024-01-01 00:00:00+00' AS at, ['x'] AS tags FROM (VALUES
             ('a', '1', TIMESTAMP '2024-01-01 00:00:00', 1, 'X'), ('A', '2', TIMESTAMP '2024-07-01 00:00:00', 1, 'X'),
             ('b', '3', NULL, 2, 'x'), ('d', '5', NULL, 1, 'y')) s(id, v, ts, o, p)"""
MERGE = """MERGE INTO t USING (SELECT *, NULL::BLOB AS b, NULL::TIMESTAMPTZ AS at, NULL::VARCHAR[] AS tags FROM (VALUES
             ('A', '9', TIMESTAMP '2024-01-02 00:00:00', 1, 'X'), ('c', '4', NULL, NULL, 'x'), ('C', '4', NULL, NULL, 'x'),
             ('b', 'late', NULL, 1, 'x')) s(id, v, ts, o, p)) s
           ON t.id = s.id AND t.p = s.p WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"""
UPSERT = """INSERT INTO t BY NAME SELECT * FROM (VALUES ('k', '1', 1, 'X'), ('K', '2', 2, 'X'), ('k', '3', 1, 'X'),
            ('c', 'nn', NULL, 'x')) s(id, v, o, p)"""
EXPECTED = [
    ("A", "9", "X"),
    ("C", "4", "x"),
    ("a", "1u", "X"),
    ("b", "3", "x"),
    ("c", "nn", "x"),
    ("d", "5", "y"),
    ("k", "3", "X"),
]


def work(con, type_):
    """Every kind of write, told apart by what they leave."""
    con.execute(CREATE.format(type_))
    con.execute(INSERT)
    # Under NOCASE the conditions of the user mean both spellings; these statements mean one.
    con.execute(MERGE.replace("t.id = s.id AND t.p = s.p", "t.id = s.id AND t.p = s.p AND encode(t.id) = encode(s.id)"))
    con.execute("SET hoodie.spark.sql.insert.into.operation = upsert")
    con.execute(UPSERT)
    con.execute("UPDATE t SET v = v || 'u' WHERE encode(id) = encode('a')")
    con.execute("DELETE FROM t WHERE encode(id) = encode('K')")


def stored(path):
    """id, value, partition; every row's meta columns must say the same."""
    rows = lakesql.open_table(str(path)).read().read_all().to_pylist()
    for row in rows:
        assert row["_hoodie_record_key"] == row["id"]
        assert row["_hoodie_partition_path"] == f"p={row['p']}"
        assert row["b"] == (b"\xff" if row["id"] in "abd" else None)
        assert row["tags"] == (["x"] if row["id"] in "abd" else None)
    return sorted((row["id"], row["v"], row["p"]) for row in rows)


def value(con, setting):
    return con.execute(f"SELECT value, scope FROM duckdb_settings() WHERE lower(name) = '{setting}'").fetchall()


def test_every_setting_that_our_sql_depends_on_is_tried():
    assert set(OTHERS) == set(KNOWN)


@BOTH
@EACH
def test_writes_do_not_depend_on_a_setting_and_leave_it_alone(tmp_path, type_, setting):
    with lakesql.connect(warehouse=str(tmp_path)) as con:
        con.execute(f"SET {setting} = '{OTHERS[setting]}'")
        before = value(con, setting)
        work(con, type_)
        assert value(con, setting) == before
        assert con.sql("SELECT count(*) FROM t").fetchall() == [(len(EXPECTED),)]
        blobs = con.sql("SELECT id, b FROM t WHERE b IS NOT NULL").fetchall()
        assert sorted(blobs) == [("a", b"\xff"), ("b", b"\xff"), ("d", b"\xff")]
    assert stored(tmp_path / "t") == EXPECTED


@BOTH
def test_writes_do_not_depend_on_the_config_of_the_connection(tmp_path, type_):
    with lakesql.connect(warehouse=str(tmp_path), config=CONFIG) as con:
        work(con, type_)
    assert stored(tmp_path / "t") == EXPECTED


@BOTH
def test_handles_do_not_depend_on_their_config(tmp_path, type_):
    schema = pa.schema([("id", pa.string()), ("p", pa.string()), ("v", pa.int64()), ("o", pa.int64())])
    table = lakesql.create_table(
        str(tmp_path / "t"),
        schema,
        type=type_,
        primary_key=["id"],
        ordering_fields=["o"],
        partitioned_by=["p"],
        config=CONFIG,
    )
    rows = [("a", "X", 1, 1), ("A", "X", 2, 1), ("b", "x", 3, None), ("b", "x", 4, None), ("c", "y", 5, 1)]
    table.upsert(pa.table(list(zip(*rows, strict=True)), schema=schema))
    table.upsert(pa.table([["b", "c"], ["x", "y"], [6, 7], [None, 0]], schema=schema))
    table.delete([{"id": "A", "p": "X"}])
    found = lakesql.open_table(table.path).read().read_all().to_pylist()
    assert sorted((r["id"], r["p"], r["v"], r["_hoodie_partition_path"]) for r in found) == [
        ("a", "X", 1, "p=X"),
        ("b", "x", 6, "p=x"),
        ("c", "y", 5, "p=y"),
    ]


@BOTH
def test_conditions_of_a_statement_keep_the_meaning_that_the_settings_give_them(tmp_path, type_):
    with lakesql.connect(warehouse=str(tmp_path)) as con:
        con.execute(
            f"CREATE TABLE t (id VARCHAR, v INT) USING hudi TBLPROPERTIES (type = '{type_}', primaryKey = 'id')"
        )
        con.execute("INSERT INTO t VALUES ('a', 1), ('A', 2), ('b', 3)")
        con.execute("SET default_collation = 'NOCASE'")
        con.execute("SET integer_division = true")
        con.execute("UPDATE t SET v = 7 / 2 WHERE id = 'A'")
        con.execute("SET default_order = 'DESC'")
        con.execute("INSERT INTO t SELECT 'n', i FROM range(9) r(i) ORDER BY i LIMIT 1")
    rows = lakesql.open_table(str(tmp_path / "t")).read().read_all().to_pylist()
    assert sorted((r["id"], r["v"]) for r in rows) == [("A", 3), ("a", 3), ("b", 3), ("n", 8)]


def test_a_collation_of_the_rows_does_not_merge_keys(tmp_path):
    with lakesql.connect(warehouse=str(tmp_path)) as con:
        con.execute("CREATE TABLE t (id VARCHAR, v VARCHAR) USING hudi TBLPROPERTIES (primaryKey = 'id')")
        con.execute("SET hoodie.spark.sql.insert.into.operation = upsert")
        con.execute("INSERT INTO t VALUES ('a' COLLATE NOCASE, '1'), ('A' COLLATE NOCASE, '2')")
        assert sorted(con.sql("SELECT id, v FROM t").fetchall()) == [("A", "2"), ("a", "1")]


def test_locked_configuration_does_not_prevent_writes(tmp_path):
    with lakesql.connect(warehouse=str(tmp_path)) as con:
        con.execute("SET TimeZone = 'America/New_York'")
        con.execute("SET lock_configuration = true")
        work(con, "mor")
        assert con.sql("SELECT count(*) FROM t").fetchall() == [(len(EXPECTED),)]
    assert stored(tmp_path / "t") == EXPECTED


def test_locked_configuration_with_a_harmful_setting_is_refused_by_name(tmp_path):
    with lakesql.connect(warehouse=str(tmp_path)) as con:
        con.execute("CREATE TABLE t (id VARCHAR) USING hudi TBLPROPERTIES (primaryKey = 'id')")
        con.execute("SET default_collation = 'NOCASE'")
        con.execute("SET lock_configuration = true")
        with pytest.raises(
            TableError, match=r"default_collation is 'NOCASE' and cannot be changed.*Nothing was written"
        ):
            con.execute("INSERT INTO t VALUES ('a')")
        assert con.sql("SELECT count(*) FROM t").fetchall() == [(0,)]


def test_settings_are_put_back_after_an_error():
    with duckdb.connect() as con:
        con.execute("SET SESSION default_order = 'DESC'")
        con.execute("SET default_collation = 'NOCASE'")
        with known_settings(con):
            assert differing(con) == []
        with pytest.raises(duckdb.Error), known_settings(con):
            con.execute("SELECT error('no')")
        assert differing(con) == ["default_order", "default_collation"]
        assert con.execute("SELECT 'a' = 'A'").fetchall() == [(True,)]


INDEXES = ["SIMPLE", "GLOBAL_SIMPLE", "BUCKET"]


@BOTH
@pytest.mark.parametrize("index", INDEXES)
@pytest.mark.parametrize("payload", ["OverwriteNonDefaultsWithLatestAvroPayload", "DefaultHoodieRecordPayload"])
def test_moves_indexes_and_merge_rules_do_not_depend_on_settings(tmp_path, type_, index, payload):
    with lakesql.connect(warehouse=str(tmp_path)) as con:
        for name, value in OTHERS_HERE.items():
            con.execute(f"SET {name} = '{value}'")
        con.execute(
            "CREATE TABLE t (id VARCHAR, v VARCHAR, w VARCHAR, o INT, p VARCHAR) USING hudi PARTITIONED BY (p) "
            f"TBLPROPERTIES (type = '{type_}', primaryKey = 'id', orderingFields = 'o', "
            f"payloadClass = 'org.apache.hudi.common.model.{payload}')"
        )
        con.execute(f"SET hoodie.index.type = {index}")
        con.execute("SET hoodie.bucket.index.num.buckets = 3")
        con.execute("SET hoodie.spark.sql.insert.into.operation = upsert")
        con.execute("INSERT INTO t VALUES ('a', '1', 'w', 1, 'x'), ('A', '2', 'w', 1, 'x'), ('b', '3', 'w', 2, 'x')")
        con.execute("INSERT INTO t VALUES ('a', '4', NULL, 2, 'x'), ('b', 'late', NULL, 1, 'x')")
        returned = con.sql("UPDATE t SET p = 'X' WHERE encode(id) = encode('A') RETURNING id, p").fetchall()
        assert returned == [("A", "X")]
        con.execute("DELETE FROM t WHERE v = '1'")
    rows = lakesql.open_table(str(tmp_path / "t")).read().read_all().to_pylist()
    kept = "w" if payload.startswith("OverwriteNon") else None
    assert sorted((r["id"], r["v"], r["w"], r["_hoodie_partition_path"]) for r in rows if r["id"] != "b") == [
        ("A", "2", "w", "p=X"),
        ("a", "4", kept, "p=x"),
    ]
