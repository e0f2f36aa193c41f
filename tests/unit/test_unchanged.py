"""Rows that MERGE or UPDATE would leave exactly as they are stored: not written, counted as ignored."""

import pytest

from tests.sql_tables import all_rows

MERGE_STAR = (
    "MERGE INTO trips t USING (VALUES {}) s(id, v, ts, city) ON t.id = s.id AND t.city = s.city "
    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
)


def counts(con):
    """instant, rows inserted, updated, deleted, ignored of the last write."""
    result = con.last_result
    return (result.instant is None, result.rows_inserted, result.rows_updated, result.rows_deleted, result.rows_ignored)


def instants(con):
    return con.sql("SELECT instant FROM hudi_timeline('trips')").fetchall()


def test_merge_of_the_rows_that_are_stored_makes_no_commit(trips):
    before = instants(trips)
    trips.sql(MERGE_STAR.format("('a', 1, 10, 'sf'), ('b', 2, 10, 'ny')"))
    assert counts(trips) == (True, 0, 0, 0, 2)
    assert instants(trips) == before


def test_merge_writes_the_rows_that_differ_and_ignores_the_others(trips):
    trips.sql(MERGE_STAR.format("('a', 1, 10, 'sf'), ('b', 3, 10, 'ny'), ('c', 4, 10, 'ny')"))
    assert counts(trips) == (False, 1, 1, 0, 1)
    assert all_rows(trips) == [("a", 1, 10, "sf"), ("b", 3, 10, "ny"), ("c", 4, 10, "ny")]
    written = "SELECT _hoodie_commit_time = (SELECT max(instant) FROM hudi_timeline('trips')) FROM trips ORDER BY id"
    assert trips.sql(written).fetchall() == [(False,), (True,), (True,)]


def test_update_that_sets_what_is_stored_makes_no_commit(trips):
    before = instants(trips)
    trips.sql("UPDATE trips SET v = v, ts = 10")
    assert counts(trips) == (True, 0, 0, 0, 2)
    assert instants(trips) == before


def test_null_equals_null_and_differs_from_a_value(trips):
    trips.sql("UPDATE trips SET v = NULL WHERE id = 'a'")
    assert counts(trips) == (False, 0, 1, 0, 0)
    trips.sql("UPDATE trips SET v = NULL")
    assert counts(trips) == (False, 0, 1, 0, 1)
    trips.sql("UPDATE trips SET v = NULL")
    assert counts(trips) == (True, 0, 0, 0, 2)


def test_value_that_is_computed_anew_is_compared_once_computed(trips):
    trips.sql("UPDATE trips SET v = CAST(random() * 1e15 AS BIGINT)")
    assert counts(trips) == (False, 0, 2, 0, 0)


def test_commit_time_table_ignores_equal_rows_too(con):
    con.sql(
        "CREATE TABLE plain (id BIGINT, v STRUCT(x INT, y INT[])) USING hudi TBLPROPERTIES (type = 'mor', primaryKey = 'id')"
    )
    con.sql("INSERT INTO plain VALUES (1, {'x': 1, 'y': [1, NULL]}), (2, NULL)")
    con.sql("UPDATE plain SET v = {'x': 1, 'y': [1, NULL]}")
    assert counts(con) == (False, 0, 1, 0, 1)


@pytest.mark.parametrize("policy", ["last", "ordering"])
def test_duplicate_policy_chooses_before_rows_are_compared(trips, policy):
    trips.sql(f"SET lakesql.merge.duplicates = '{policy}'")
    trips.sql(MERGE_STAR.format("('a', 1, 10, 'sf'), ('a', 7, 20, 'sf')"))
    assert counts(trips) == (False, 0, 1, 0, 0)
    trips.sql(MERGE_STAR.format("('a', 9, 5, 'sf'), ('a', 7, 20, 'sf')"))
    assert counts(trips) == (True, 0, 0, 0, 1)
    assert all_rows(trips)[0] == ("a", 7, 20, "sf")


def test_delete_beside_equal_rows_is_written(trips):
    trips.sql(
        "MERGE INTO trips t USING (VALUES ('a', 1), ('b', 2)) s(id, v) ON t.id = s.id "
        "WHEN MATCHED AND s.id = 'b' THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.v"
    )
    assert counts(trips) == (False, 0, 0, 1, 1)
    assert all_rows(trips) == [("a", 1, 10, "sf")]


def test_update_not_matched_by_source_is_compared_too(trips):
    trips.sql(
        "MERGE INTO trips t USING (VALUES ('a')) s(id) ON t.id = s.id WHEN NOT MATCHED BY SOURCE THEN UPDATE SET v = 2"
    )
    assert counts(trips) == (True, 0, 0, 0, 1)


def test_update_of_what_on_compares_changes_nothing(trips):
    before = instants(trips)
    trips.sql("MERGE INTO trips t USING (SELECT 'a' AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET id = s.id")
    assert counts(trips) == (True, 0, 0, 0, 1)
    assert instants(trips) == before


@pytest.mark.parametrize("type_", ["cow", "mor"])
def test_row_whose_absent_columns_are_filled_up_to_the_stored_row_is_unchanged(con, type_):
    con.sql(
        "CREATE TABLE f (id STRING, v BIGINT, n STRUCT(x INT, y INT[]), ts BIGINT) USING hudi TBLPROPERTIES "
        f"(type = '{type_}', primaryKey = 'id', orderingFields = 'ts', "
        "'hoodie.table.partial.update.mode' = 'IGNORE_DEFAULTS')"
    )
    con.sql("SET hoodie.spark.sql.insert.into.operation = 'upsert'")
    con.sql("INSERT INTO f VALUES ('a', 1, {'x': 1, 'y': [1, NULL]}, 10), ('b', 2, NULL, 10)")
    before = con.sql("SELECT count(*) FROM hudi_timeline('f')").fetchall()
    for statement in (
        "INSERT INTO f VALUES ('a', NULL, NULL, 10), ('b', NULL, NULL, 10)",
        "INSERT INTO f VALUES ('a', 1, NULL, 10), ('b', 7, NULL, 9)",
        "UPDATE f SET v = NULL, n = NULL",
    ):
        fates = con.sql(f"EXPLAIN (FATES) {statement}").fetchall()
        con.sql(statement)
        assert counts(con) == (True, 0, 0, 0, 2), statement
        late = "ignored (late)" if "9)" in statement else "unchanged"
        assert [row[3] for row in fates] == ["unchanged", late], statement
    assert con.sql("SELECT count(*) FROM hudi_timeline('f')").fetchall() == before
    con.sql("INSERT INTO f VALUES ('a', NULL, NULL, 11), ('b', NULL, NULL, 10)")
    assert counts(con) == (False, 0, 1, 0, 1)
    assert all_rows(con, "f", "id, v, ts") == [("a", 1, 11), ("b", 2, 10)]
