"""RETURNING of INSERT, UPDATE, DELETE and MERGE: the rows that really changed, old and new."""

import re

import pytest

import lakesql
from lakesql.errors import SQLError, TableError
from tests.sql_tables import AB, all_rows


def rows(con, sql):
    return sorted(con.sql(sql).fetchall(), key=repr)


def test_insert_returns_what_it_wrote(trips):
    found = trips.sql("INSERT INTO trips (id, city) SELECT 'c', 'la' RETURNING *, id || '!' AS loud, old.v, new.city")
    assert found.columns[:5] == ["id", "v", "ts", "city", "loud"]
    assert found.fetchall() == [("c", None, None, "la", "c!", None, "la")]
    assert trips.last_result.rows_inserted == 1


def test_insert_as_upsert_returns_the_old_row_too(trips):
    trips.sql("SET hoodie.spark.sql.insert.into.operation = upsert")
    assert rows(
        trips,
        "INSERT INTO trips VALUES ('a', 5, 20, 'sf'), ('b', 6, 5, 'ny'), ('c', 7, 1, 'la') RETURNING id, old.v, new.v",
    ) == [
        ("a", 1, 5),
        ("c", None, 7),
    ]


def test_insert_that_drops_duplicates_returns_the_others(trips):
    trips.sql("SET hoodie.datasource.insert.dup.policy = drop")
    assert rows(trips, "INSERT INTO trips VALUES ('a', 5, 20, 'sf'), ('c', 7, 1, 'la') RETURNING id") == [("c",)]


def test_update_returns_old_and_new_values(trips):
    assert rows(trips, "UPDATE trips AS x SET v = v + 1 WHERE id = 'a' RETURNING x.id, v, old.v, new.v, x.*") == [
        ("a", 2, 1, 2, "a", 2, 10, "sf")
    ]


def test_update_returns_only_what_really_changed(trips):
    assert rows(trips, "UPDATE trips SET v = 1 RETURNING id, old.v") == [("b", 2)]
    assert rows(trips, "UPDATE trips SET v = 9, ts = 5 RETURNING *") == []
    assert rows(trips, "DELETE FROM trips WHERE false RETURNING *") == []


def test_delete_returns_the_rows_that_are_gone(trips):
    assert rows(trips, "DELETE FROM trips WHERE v > 1 RETURNING *, old.id, new.id") == [("b", 2, 10, "ny", "b", None)]
    assert all_rows(trips) == AB[:1]


def test_merge_returns_the_action_of_each_row(trips):
    sql = (
        "MERGE INTO trips t USING (VALUES ('a', 5, 20, 'la'), ('c', 7, 1, 'la'), ('d', 0, 0, '')) s(id, v, ts, city) ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED AND s.v > 0 THEN INSERT * WHEN NOT MATCHED BY SOURCE THEN DELETE "
        "RETURNING merge_action, * EXCLUDE (ts), old.city AS was, t.v > 5 AS large"
    )
    assert rows(trips, sql) == [
        ("DELETE", "b", 2, "ny", "ny", False),
        ("INSERT", "c", 7, "la", None, True),
        ("UPDATE", "a", 5, "la", "sf", False),
    ]
    assert (trips.last_result.rows_inserted, trips.last_result.rows_updated, trips.last_result.rows_deleted) == (
        1,
        1,
        1,
    )


def test_merge_returns_all_old_and_all_new_columns(trips):
    sql = (
        "MERGE INTO trips USING (SELECT 'a' AS id) s ON trips.id = s.id WHEN MATCHED THEN UPDATE SET v = 3 "
        "RETURNING old.*, new.*, lower(merge_action)"
    )
    assert rows(trips, sql) == [(*AB[0], "a", 3, 10, "sf", "update")]


def test_columns_called_like_the_versions_keep_their_names(con):
    con.sql("CREATE TABLE t (id STRING, old BIGINT, new BIGINT) USING hudi TBLPROPERTIES (primaryKey = 'id')")
    assert con.sql("INSERT INTO t VALUES ('a', 1, 2) RETURNING *, old + new").fetchall() == [("a", 1, 2, 3)]


def test_sparks_spelling_works_in_returning(trips):
    assert trips.sql("DELETE FROM `trips` WHERE `id` = 'a' RETURNING nvl(`v`, 0) + 1").fetchall() == [(2,)]
    assert trips.sql(
        "DELETE FROM trips WHERE id = 'b' RETURNING date_format(timestamp '2024-03-01', 'yyyy')"
    ).fetchall() == [("2024",)]


def test_parameters_work_in_returning(trips):
    assert trips.execute("DELETE FROM trips WHERE id = ? RETURNING v + ?", ["a", 10]).fetchall() == [(11,)]


def test_returned_rows_stay_when_other_statements_follow(trips):
    first = trips.sql("DELETE FROM trips WHERE id = 'a' RETURNING id")
    trips.execute("DELETE FROM trips WHERE id = 'b' RETURNING id, v")
    assert trips.fetchall() == [("b", 2)]
    assert first.fetchall() == [("a",)]


@pytest.mark.parametrize(
    ("item", "error", "message"),
    [
        ("nope", SQLError, 'Referenced column "nope" not found'),
        ("merge_action", SQLError, 'Referenced column "merge_action" not found'),
        ("CAST(id AS BIGINT)", TableError, "to INT64 when casting from source column id"),
    ],
)
def test_mistake_in_returning_is_found_before_anything_is_written(trips, item, error, message):
    with pytest.raises(error) as caught:
        trips.sql(f"DELETE FROM trips RETURNING {item}")
    assert message in str(caught.value)
    assert all_rows(trips) == AB


def test_answer_leaves_nothing_behind_and_may_be_given_up(trips):
    trips.execute("INSERT INTO trips SELECT 'n' || i, i, 1, 'x' FROM range(5000) r(i) RETURNING id")
    assert len(trips.fetchmany(3)) == 3
    assert "__lakesql_answer" not in [row[0] for row in trips.sql("SHOW TABLES").fetchall()]
    assert trips.execute("DELETE FROM trips WHERE city = 'x' RETURNING id").fetchone() is not None
    assert all_rows(trips) == AB


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_table_without_keys_returns_its_rows_too(con, kind):
    con.sql(f"CREATE TABLE t (name STRING, v BIGINT) USING hudi TBLPROPERTIES (type = '{kind}')")
    assert rows(con, "INSERT INTO t VALUES ('x', 1), ('x', 1), ('y', 2) RETURNING *") == [("x", 1), ("x", 1), ("y", 2)]
    assert rows(con, "UPDATE t SET v = v + 1 WHERE name = 'x' RETURNING v, old.v") == [(2, 1), (2, 1)]
    assert rows(con, "DELETE FROM t RETURNING name") == [("x",), ("x",), ("y",)]


def test_key_that_the_table_has_twice_is_returned_twice(trips):
    # In two file groups: a log record reaches only one of the rows of a file group.
    trips.sql("SET hoodie.spark.sql.insert.into.operation = bulk_insert")
    trips.sql("INSERT INTO trips VALUES ('a', 5, 10, 'sf')")
    assert rows(trips, "DELETE FROM trips WHERE id = 'a' RETURNING v") == [(1,), (5,)]


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_old_row_is_where_the_key_was_under_a_global_index(con, kind):
    con.sql(
        "CREATE TABLE g (id STRING, v BIGINT, ts BIGINT, city STRING) USING hudi PARTITIONED BY (city) "
        f"TBLPROPERTIES (type = '{kind}', primaryKey = 'id', orderingFields = 'ts')"
    )
    con.sql("INSERT INTO g VALUES ('a', 1, 1, 'x'), ('b', 1, 1, 'y')")
    con.sql("SET hoodie.index.type = GLOBAL_SIMPLE")
    con.sql("SET hoodie.simple.index.update.partition.path = true")
    con.sql("SET hoodie.spark.sql.insert.into.operation = upsert")
    shown = "RETURNING id, old.v, new.v, old.city, new.city"
    assert con.sql("EXPLAIN (FATES) UPDATE g SET city = 'z' WHERE id = 'a'").fetchall()[0][3] == "moved"
    assert con.sql(f"UPDATE g SET city = 'z', v = 5 WHERE id = 'a' {shown}").fetchall() == [("a", 1, 5, "x", "z")]
    assert con.sql(f"INSERT INTO g VALUES ('a', 7, 2, 'y') {shown}").fetchall() == [("a", 5, 7, "z", "y")]
    assert con.sql(f"DELETE FROM g WHERE id = 'a' {shown}").fetchall() == [("a", 7, None, "y", None)]
    con.sql("SET hoodie.simple.index.update.partition.path = false")
    assert con.sql(f"INSERT INTO g VALUES ('b', 7, 2, 'x') {shown}").fetchall() == [("b", 1, 7, "y", "x")]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE t SET v = v + 1 RETURNING {}",
        "DELETE FROM t RETURNING {}",
        "INSERT INTO t VALUES (9, 9) RETURNING {}",
        "DELETE FROM t WHERE {} = 1",
        "UPDATE t SET v = 1 WHERE {} = 1",
    ],
)
@pytest.mark.parametrize(
    ("column", "said"),
    [("numbr", "The table has id, v."), ("vv", "Did you mean v?")],
)
def test_an_unknown_column_names_only_columns_of_the_table(statement, column, said, tmp_path):
    with lakesql.connect(warehouse=str(tmp_path)) as con:
        con.sql("CREATE TABLE t (id INT, v INT) USING hudi TBLPROPERTIES (primaryKey = 'id')")
        con.sql("INSERT INTO t VALUES (1, 1)")
        with pytest.raises(lakesql.SQLError) as caught:
            con.sql(statement.format(column))
        if "RETURNING" not in statement:
            with pytest.raises(lakesql.SQLError, match=re.escape(said)):
                con.table("t").delete(f"{column} = 1")
    assert f'"{column}" not found in FROM clause. {said} Nothing was written.' in str(caught.value)
    assert "_hoodie" not in str(caught.value)
