"""A MERGE reads the partitions that its source can match, and does what it does when it reads all of them."""

import json

import pyarrow as pa
import pytest

import lakesql
from lakesql.errors import TableError
from lakesql.sql import functions, narrow
from tests.sql_tables import all_rows

UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
BOTH = "t.id = s.id AND t.day = s.day"
STYLES = {
    "hive": "",
    "plain": ", 'hoodie.datasource.write.hive_style_partitioning' = 'false'",
    "escaped": ", 'hoodie.datasource.write.partitionpath.urlencode' = 'true'",
}
VALUES = {
    "STRING": ["'a'", "'B'", "'it''s'", "''", "NULL", "'7'"],
    "INT": ["1", "2", "-3", "0", "NULL", "10"],
    "DATE": [
        "DATE '2024-02-29'",
        "DATE '1969-12-31'",
        "DATE '2025-01-01'",
        "NULL",
        "DATE '2000-01-01'",
        "DATE '1999-01-01'",
    ],
}


@pytest.fixture
def parts(monkeypatch):
    """The slices that a statement read instead of all, one entry for each plan; small tables are narrowed, too."""
    monkeypatch.setattr(narrow, "SLICES_MIN", 1)
    made = []
    real = functions._planned_sql

    def noted(planner, path, numbers):
        if numbers is not None:
            made.append(len(numbers))
        return real(planner, path, numbers)

    monkeypatch.setattr(functions, "_planned_sql", noted)
    return made


def table(con, name="g", kind="cow", day="STRING", style="", by="day", key="id"):
    con.sql(
        f"CREATE TABLE {name} (id STRING, v BIGINT, ts BIGINT, hour INT, day {day}) USING hudi PARTITIONED BY ({by}) "
        f"TBLPROPERTIES (type = '{kind}', primaryKey = '{key}', orderingFields = 'ts'{style})"
    )


def fill(con, name, values):
    rows = ", ".join(f"('{key}', {n}, 10, {n % 2}, {value})" for n, value in enumerate(values) for key in "kl")
    con.sql(f"INSERT INTO {name} BY NAME SELECT * FROM (VALUES {rows}) r(id, v, ts, hour, day)")


def merge(con, rows, on=BOTH, clauses=UPSERT, name="g", source="id, v, ts, hour, day"):
    con.sql(f"MERGE INTO {name} t USING (VALUES {rows}) s({source}) ON {on} {clauses}")
    result = con.last_result
    return result.rows_inserted, result.rows_updated, result.rows_deleted, result.rows_ignored


def outcome(con, name, rows):
    try:
        return merge(con, rows, name=name)
    except TableError as error:  # NULL equals nothing
        return str(error).partition(": ")[2]


@pytest.mark.parametrize(
    ("kind", "day", "style"),
    [("cow", "STRING", "escaped"), ("mor", "STRING", "hive"), ("cow", "INT", "plain"), ("cow", "DATE", "hive")],
)
def test_every_value_finds_its_partition(con, parts, monkeypatch, kind, day, style):
    values = VALUES[day]
    results, states = [], []
    for name, fewest in (("g", 1), ("whole", 1_000)):
        monkeypatch.setattr(narrow, "SLICES_MIN", fewest)
        table(con, name, kind, day, STYLES[style])
        fill(con, name, values[:-1])
        found = [
            outcome(con, name, f"('k', {n}, 20, 0, {value}), ('new', {n}, 20, 0, {value})")
            for n, value in enumerate(values, 100)
        ]
        found.append(merge(con, f"('l', 0, 30, 0, {values[0]})", clauses="WHEN MATCHED THEN DELETE", name=name))
        results.append(found)
        states.append(all_rows(con, name, "id, v, ts, hour, day, _hoodie_partition_path"))
    assert results[0] == results[1]
    assert states[0] == states[1]
    assert parts, "no statement was narrowed"


def test_partitions_without_a_row_of_the_source_are_not_read(con, parts):
    table(con)
    fill(con, "g", ["'a'", "'b'", "'c'", "'d'"])
    assert merge(con, "('k', 9, 20, 0, 'b'), ('k', 9, 20, 0, 'x')") == (1, 1, 0, 0)
    assert set(parts) == {1}
    parts.clear()
    assert merge(con, "('k', 9, 20, 0, 'y')") == (1, 0, 0, 0)
    assert set(parts) == {0}


@pytest.mark.parametrize("fates", ["", "(FATES) "])
def test_explain_reads_and_tells_the_same(con, parts, monkeypatch, fates):
    table(con, kind="mor")
    fill(con, "g", ["'a'", "'b'", "'c'", "'d'"])
    statement = (
        f"MERGE INTO g t USING (VALUES ('k', 9, 20, 0, 'b'), ('k', 9, 20, 0, 'x'), ('l', 1, 5, 0, 'c')) "
        f"s(id, v, ts, hour, day) ON {BOTH} {UPSERT}"
    )
    told = con.execute(f"EXPLAIN {fates}{statement}").fetchall()
    assert set(parts) == {2}
    monkeypatch.setattr(narrow, "SLICES_MIN", 1_000)
    assert told == con.execute(f"EXPLAIN {fates}{statement}").fetchall()
    assert len(told) == (3 if fates else 2)


def test_key_with_the_partition_in_it_narrows(con, parts):
    table(con, key="id,day")
    fill(con, "g", ["'a'", "'b'", "'c'"])
    assert merge(con, "('k', 9, 20, 0, 'b')") == (0, 1, 0, 0)
    assert set(parts) == {1}


def test_one_of_two_partition_columns_narrows(con, parts):
    table(con, by="day, hour", style=STYLES["escaped"])
    fill(con, "g", ["'a'", "'b'", "'c/d'", "'a'"])
    assert merge(
        con,
        "('k', 9, 20, 1, 'c/d')",
        on="t.id = s.id AND t.day = s.day AND t.v = 2",
        clauses="WHEN MATCHED THEN UPDATE SET v = s.v",
    ) == (0, 1, 0, 0)
    assert set(parts) == {1}
    parts.clear()
    assert merge(con, "('l', 9, 20, 1, 'a')", on=f"{BOTH} AND t.hour = s.hour") == (0, 1, 0, 0)
    assert set(parts) == {1}


def test_other_types_and_expressions_of_the_source_mean_what_on_means(con, parts):
    table(con, day="DATE")
    fill(con, "g", ["DATE '2024-01-01'", "DATE '2024-01-02'", "DATE '2024-01-03'"])
    update = "WHEN MATCHED THEN UPDATE SET v = s.v"
    moment = "TIMESTAMP '2024-01-02 00:00:00'"
    assert merge(con, f"('k', 9, 20, 0, {moment})", clauses=update) == (0, 1, 0, 0)
    assert merge(con, "('k', 8, 20, 0, '2024-01-03')", clauses=update) == (0, 1, 0, 0)
    shifted = "t.id = s.id AND t.day = CAST(s.day - INTERVAL 1 DAY AS DATE)"
    assert merge(con, "('l', 7, 20, 0, DATE '2024-01-02')", on=shifted, clauses=update) == (0, 1, 0, 0)
    assert set(parts) == {1}
    rows = "('k', 6, 20, 0, 'no day'), ('k', 6, 20, 1, '2024-01-01')"
    assert merge(con, rows, on=f"{BOTH} AND s.hour = 1", clauses=update) == (0, 1, 0, 0)
    cast = "t.id = s.id AND t.day = CAST(s.day AS DATE) AND s.hour = 1"
    assert merge(con, rows.replace("6,", "5,"), on=cast, clauses=update) == (0, 1, 0, 0)
    assert set(parts) == {1}


def test_collation_of_the_source_counts(con, parts):
    table(con)
    fill(con, "g", ["'a'", "'B'", "'c'"])
    con.sql("CREATE TABLE given (id VARCHAR, v BIGINT, day VARCHAR COLLATE NOCASE)")
    con.sql("INSERT INTO given VALUES ('k', 9, 'b')")
    con.sql(f"MERGE INTO g t USING given s ON {BOTH} WHEN MATCHED THEN UPDATE SET v = s.v")
    assert con.last_result.rows_updated == 1
    assert set(parts) == {1}


def test_source_is_computed_once(con, parts):
    table(con)
    fill(con, "g", ["'a'", "'b'", "'c'", "'d'"])
    con.sql("CREATE SEQUENCE numbers")
    con.sql(
        "WITH picked AS (SELECT nextval('numbers') AS n) "
        f"MERGE INTO g t USING (SELECT 'k' AS id, n + 100 AS v, 'b' AS day FROM picked) s ON {BOTH} "
        "WHEN MATCHED THEN UPDATE SET v = s.v"
    )
    assert con.last_result.rows_updated == 1
    assert con.sql("SELECT currval('numbers')").fetchall() == [(1,)]
    assert parts


@pytest.mark.parametrize(
    ("on", "clauses"),
    [
        ("t.id = s.id", "WHEN MATCHED THEN UPDATE SET v = s.v"),
        (BOTH, "WHEN NOT MATCHED BY SOURCE THEN DELETE"),
        ("t.id = s.id AND t.day > s.day", "WHEN MATCHED THEN UPDATE SET v = s.v"),
        ("t.id = s.id AND t.day = CASE WHEN random() < 2 THEN s.day END", "WHEN MATCHED THEN UPDATE SET v = s.v"),
    ],
)
def test_statements_about_all_partitions_read_them(con, parts, on, clauses):
    table(con)
    fill(con, "g", ["'a'", "'b'", "'c'"])
    merge(con, "('k', 9, 20, 0, 'b')", on=on, clauses=clauses)
    assert not parts


def test_keys_that_are_unique_in_the_table_are_found_where_they_stay(con, parts):
    con.sql("SET hoodie.index.type = GLOBAL_SIMPLE")
    con.sql("SET hoodie.simple.index.update.partition.path = false")
    table(con)
    con.sql("INSERT INTO g VALUES ('k', 1, 10, 0, 'a'), ('z', 1, 10, 0, 'b')")
    con.sql("SET hoodie.spark.sql.insert.into.operation = upsert")
    con.sql("INSERT INTO g VALUES ('k', 2, 20, 0, 'b')")  # stays in the folder of a
    assert merge(con, "('k', 3, 30, 0, 'b')") == (0, 1, 0, 0)
    assert not parts
    assert all_rows(con, "g", "id, v, day") == [("k", 3, "b"), ("z", 1, "b")]


def test_folder_that_is_not_named_as_the_others_is_read(con, parts, monkeypatch):
    table(con)
    fill(con, "g", ["'a'", "'b'", "'c'"])
    real = narrow._values
    monkeypatch.setattr(narrow, "_values", lambda config, path: None if path == "day=c" else real(config, path))
    assert merge(con, "('k', 9, 20, 0, 'b')") == (0, 1, 0, 0)
    assert set(parts) == {2}


@pytest.mark.usefixtures("parts")
def test_errors_of_the_source_are_told_and_nothing_is_left_behind(con):
    table(con)
    fill(con, "g", ["'a'", "'b'"])
    with pytest.raises(TableError, match="Conversion Error"):
        con.sql(
            f"MERGE INTO g t USING (SELECT CAST(x AS INT) AS v, 'k' AS id, 'a' AS day FROM (VALUES ('no')) r(x)) s "
            f"ON {BOTH} WHEN MATCHED THEN UPDATE SET v = s.v"
        )
    assert con.sql(f"SELECT count(*) FROM duckdb_tables() WHERE table_name = '{narrow.SOURCE}'").fetchall() == [(0,)]
    assert merge(con, "('k', 9, 20, 0, 'b')") == (0, 1, 0, 0)
    assert con.sql(f"SELECT count(*) FROM duckdb_tables() WHERE table_name = '{narrow.SOURCE}'").fetchall() == [(0,)]


def test_numbers_of_slices_reach_the_planner(con):
    table(con, kind="mor")
    fill(con, "g", ["'a'", "'b'", "'c'"])
    merge(con, "('k', 9, 20, 0, 'b')")
    path = con._session.instance.path_of("g")
    everything = con.sql(functions.placed_sql(path)).fetchall()
    some = con.sql(functions.placed_sql(path, [0, 2])).fetchall()
    assert sorted(some) == sorted(row for row in everything if row[0] in (0, 2))
    assert len(con.sql(functions.part_sql(path, [1])).fetchall()) == 2
    assert "[0,2]" in functions.placed_sql(path, json.loads("[0,2]"))


def test_rows_that_a_global_index_left_in_an_old_partition_are_matched(tmp_path):
    with lakesql.connect(warehouse=tmp_path) as con:
        con.sql(
            "CREATE TABLE t (id BIGINT, v VARCHAR, ts BIGINT, p VARCHAR) USING hudi PARTITIONED BY (p) "
            "TBLPROPERTIES (primaryKey = 'id', preCombineField = 'ts')"
        )
        con.sql("INSERT INTO t BY NAME SELECT i AS id, 'v' AS v, 1 AS ts, 'k' || (i % 40) AS p FROM range(80) r(i)")
        moved = pa.table({"id": [4], "v": ["moved"], "ts": [2], "p": ["k1"]})
        left = {"hoodie.index.type": "GLOBAL_SIMPLE", "hoodie.simple.index.update.partition.path": "false"}
        con.table("t").upsert(moved, **left)
        con.sql(
            "MERGE INTO t USING (SELECT 4::BIGINT AS id, 'merged' AS v, 3::BIGINT AS ts, 'k1' AS p) s "
            "ON t.id = s.id AND t.p = s.p WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        assert con.execute("SELECT v, p FROM t WHERE id = 4").fetchall() == [("merged", "k1")]


def test_a_condition_that_fails_for_a_row_of_the_source_is_the_merges_error(tmp_path):
    with lakesql.connect(warehouse=tmp_path) as con:
        con.sql(
            "CREATE TABLE t (id BIGINT, v VARCHAR, p VARCHAR) USING hudi PARTITIONED BY (p) TBLPROPERTIES (primaryKey = 'id')"
        )
        con.sql("INSERT INTO t BY NAME SELECT i AS id, 'v' AS v, 'k' || (i % 40) AS p FROM range(80) r(i)")
        with pytest.raises(lakesql.LakeError, match=r"'abc' to INT32.*Nothing was written"):
            con.sql(
                "MERGE INTO t USING (SELECT 1::BIGINT AS id, 'k99' AS p, 'abc' AS x) s ON t.id = s.id AND "
                "t.p = CAST(s.x AS INTEGER)::VARCHAR WHEN NOT MATCHED THEN INSERT (id, v, p) VALUES (900, 'n', s.p)"
            )
        assert con.execute("SELECT count(*) FROM t").fetchone() == (80,)
