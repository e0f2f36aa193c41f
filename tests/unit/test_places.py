"""MERGE hands the places of the rows it met to the write, and compares updates in one column before it reads the others."""

import pytest

import lakesql.write.tag
from lakesql.errors import TableError
from lakesql.storage import open_storage
from lakesql.table import read
from lakesql.table.state import load
from tests.sql_tables import all_rows

COLUMNS = "id, v, w, ts"


@pytest.fixture
def look_ups(monkeypatch):
    """The slices that were searched for keys, one entry for each write that did."""
    made = []
    real = lakesql.write.tag.keys_sql

    def counted(con, plan, numbers=None):
        made.append(numbers)
        return real(con, plan, numbers)

    monkeypatch.setattr(lakesql.write.tag, "keys_sql", counted)
    return made


@pytest.fixture(params=["cow", "mor"])
def flat(con, request):
    """A connection with the table g of four rows, without partitions."""
    con.sql(
        "CREATE TABLE g (id STRING, v BIGINT, w STRING, ts BIGINT) USING hudi "
        f"TBLPROPERTIES (type = '{request.param}', primaryKey = 'id', orderingFields = 'ts')"
    )
    con.sql("INSERT INTO g VALUES ('a', 1, 'x', 10), ('b', 2, 'y', 10), ('c', 3, 'z', 10), ('d', 4, 'z', 10)")
    return con


def merge(con, rows, clauses, on="t.id = s.id", columns="id, v, w, ts"):
    con.sql(f"MERGE INTO g t USING (VALUES {rows}) s({columns}) ON {on} {clauses}")
    result = con.last_result
    return result.rows_inserted, result.rows_updated, result.rows_deleted, result.rows_ignored


UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"


def test_keys_that_the_merge_has_met_are_not_looked_up_again(flat, look_ups):
    assert merge(flat, "('a', 7, 'x', 20), ('e', 5, 'n', 20)", UPSERT) == (1, 1, 0, 0)
    clauses = (
        "WHEN MATCHED AND s.v < 0 THEN DELETE WHEN MATCHED AND s.v > t.v THEN UPDATE SET v = s.v, ts = s.ts "
        "WHEN NOT MATCHED AND s.v > 0 THEN INSERT *"
    )
    rows = "('a', -1, '', 30), ('b', 1, '', 30), ('e', 6, '', 30), ('f', 1, 'n', 30), ('h', 0, 'n', 30)"
    assert merge(flat, rows, clauses) == (1, 1, 1, 0)
    assert not look_ups
    assert all_rows(flat, "g", COLUMNS) == [
        ("b", 2, "y", 10),
        ("c", 3, "z", 10),
        ("d", 4, "z", 10),
        ("e", 6, "n", 30),
        ("f", 1, "n", 30),
    ]


def test_deleted_keys_come_back_and_late_rows_are_ignored(flat, look_ups):
    assert merge(
        flat,
        "('a', 0, '', 10), ('b', 8, 'y', 50)",
        "WHEN MATCHED AND s.v = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET *",
    )
    assert merge(flat, "('a', 9, 'back', 60), ('b', 0, 'late', 40), ('c', 5, 'c', 60)", UPSERT) == (1, 1, 0, 1)
    assert merge(flat, "('a', 10, 'again', 70), ('b', 0, 'late', 40)", UPSERT) == (0, 1, 0, 1)
    assert not look_ups
    assert all_rows(flat, "g", COLUMNS)[:3] == [("a", 10, "again", 70), ("b", 8, "y", 50), ("c", 5, "c", 60)]


@pytest.mark.parametrize("on", ["t.id = s.id AND t.city = s.city", "t.id = s.id"])
def test_partitions_are_told_apart(trips, look_ups, on):
    trips.sql("INSERT INTO trips VALUES ('a', 5, 10, 'ny')")
    look_ups.clear()
    clauses = "WHEN MATCHED THEN UPDATE SET v = s.v, ts = s.ts WHEN NOT MATCHED THEN INSERT *"
    rows = "('a', 6, 20, 'ny'), ('b', 7, 20, 'ny'), ('c', 8, 20, 'la')"
    trips.sql(f"MERGE INTO trips t USING (VALUES {rows}) s(id, v, ts, city) ON {on} {clauses}")
    assert not look_ups
    other = [("a", 1, 10, "sf")] if "city" in on else [("a", 6, 20, "sf")]
    assert all_rows(trips) == sorted([*other, ("a", 6, 20, "ny"), ("b", 7, 20, "ny"), ("c", 8, 20, "la")])


def test_unchanged_row_elsewhere_does_not_take_the_place_of_a_changed_one(trips, look_ups):
    trips.sql("INSERT INTO trips VALUES ('a', 5, 10, 'ny')")
    look_ups.clear()
    trips.sql("MERGE INTO trips t USING (VALUES ('a', 5)) s(id, v) ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v")
    assert not look_ups
    assert (trips.last_result.rows_updated, trips.last_result.rows_ignored) == (1, 1)
    assert all_rows(trips) == [("a", 5, 10, "ny"), ("a", 5, 10, "sf"), ("b", 2, 10, "ny")]


@pytest.mark.parametrize("on", ["t.id = CAST(s.id AS VARCHAR)", "t.id = lower(s.id)", "t.id = s.id AND t.w = s.w"])
def test_keys_are_looked_up_where_on_does_not_compare_just_key_columns(flat, look_ups, on):
    assert merge(flat, "('a', 7, 'x', 20)", "WHEN MATCHED THEN UPDATE SET v = s.v, ts = s.ts", on) == (0, 1, 0, 0)
    assert look_ups


def test_keys_of_another_type_are_looked_up(con, look_ups):
    con.sql("CREATE TABLE g (id BIGINT, v BIGINT) USING hudi TBLPROPERTIES (type = 'mor', primaryKey = 'id')")
    con.sql("INSERT INTO g VALUES (1, 1)")
    merge(con, "('1', 2)", "WHEN MATCHED THEN UPDATE SET v = s.v", columns="id, v")
    assert look_ups
    assert all_rows(con, "g", "id, v") == [(1, 2)]


def test_insert_into_the_partition_of_null_is_looked_up(trips, look_ups):
    trips.sql("INSERT INTO trips VALUES ('n', 1, 10, NULL)")
    look_ups.clear()
    with pytest.raises(TableError, match="keys that the table has already"):
        trips.sql(
            "MERGE INTO trips t USING (VALUES ('n', 2, 20, CAST(NULL AS VARCHAR))) s(id, v, ts, city) "
            "ON t.id = s.id AND t.city = s.city WHEN NOT MATCHED THEN INSERT *"
        )
    assert look_ups


def test_statement_that_meets_one_of_two_rows_of_a_key_is_refused(con, look_ups):
    con.sql("CREATE TABLE g (id STRING, v BIGINT) USING hudi TBLPROPERTIES (type = 'mor', primaryKey = 'id')")
    con.sql("INSERT INTO g VALUES ('a', 1)")
    con.sql("INSERT INTO g VALUES ('a', 2)")
    with pytest.raises(TableError, match="more rows of it"):
        con.sql("MERGE INTO g USING (SELECT 'a' AS id) s ON g.id = s.id WHEN MATCHED AND g.v = 1 THEN UPDATE SET v = 5")
    assert not look_ups
    con.sql("MERGE INTO g USING (SELECT 'a' AS id) s ON g.id = s.id WHEN MATCHED THEN UPDATE SET v = 5")
    assert all_rows(con, "g", "id, v") == [("a", 5), ("a", 5)]


def test_record_keys_that_are_not_made_of_the_key_column_are_looked_up(flat, look_ups):
    flat.table("g").upsert([{"_hoodie_record_key": "other", "id": "q", "v": 1, "w": "", "ts": 10}])
    look_ups.clear()
    assert merge(flat, "('q', 2, 'new', 20)", UPSERT) == (0, 1, 0, 0)
    assert look_ups
    assert flat.sql("SELECT _hoodie_record_key, v FROM g WHERE id = 'q'").fetchall() == [("other", 2)]


@pytest.mark.parametrize("logged", [False, True])
def test_rows_that_are_equal_in_the_first_column_are_compared_in_the_others(flat, logged):
    if logged:
        merge(flat, "('a', 1, 'p', 20), ('b', 2, 'q', 20)", UPSERT)
    ts, a = (20, "p") if logged else (10, "x")
    rows = f"('a', 1, '{a}', {ts}), ('b', 2, 'other', {ts}), ('c', 3, NULL, 10), ('d', 4, 'z', 10)"
    assert merge(flat, rows, UPSERT) == (0, 2, 0, 2)
    assert all_rows(flat, "g", COLUMNS) == [
        ("a", 1, a, ts),
        ("b", 2, "other", ts),
        ("c", 3, None, 10),
        ("d", 4, "z", 10),
    ]
    again = rows.replace("NULL", "CAST(NULL AS VARCHAR)")
    assert merge(flat, again, UPSERT) == (0, 0, 0, 4)


def test_places_are_those_of_base_files_and_logs(flat):
    merge(flat, "('b', 9, 'y', 20), ('e', 5, 'n', 20)", "WHEN MATCHED AND s.id = 'b' THEN UPDATE SET *")
    merge(flat, "('d', 9, 'y', 20)", "WHEN MATCHED THEN DELETE")
    state = load(open_storage(flat.table("g").path))
    plan = read.plan(state)
    found = flat.duckdb.sql(read.placed_sql(flat.duckdb, plan, ["id"]) + " ORDER BY id").fetchall()
    assert [i for _, _, i in found] == ["a", "b", "c"]
    assert {n for n, _, _ in found} == {0}
    logged = bool(plan.slices[0].logs)
    assert [row for _, row, _ in found] == ([0, None, 2] if logged else [0, 1, 2])


BY_KEY = [
    "UPDATE g SET v = v + 10, ts = 20 WHERE id = 'a' OR id IN ('b', 'q')",
    "UPDATE g AS x SET v = v + 10, ts = 20 WHERE x.id IN (SELECT k FROM chosen WHERE chosen.k < 'c')",
    "DELETE FROM g WHERE id BETWEEN 'a' AND 'b'",
]
NOT_BY_KEY = [
    "UPDATE g SET v = v + 10, ts = 20 WHERE id IN ('a', 'b') AND v < 3",
    "UPDATE g SET v = v + 10, ts = 20 WHERE id IN (SELECT k FROM chosen WHERE v < 3)",
    "UPDATE g SET v = v + 10, ts = 20 WHERE id < 'c' AND random() < 2",
    "DELETE FROM g WHERE lower(w) IN ('x', 'y')",
]


@pytest.mark.parametrize("statement", BY_KEY + NOT_BY_KEY)
def test_update_and_delete_look_keys_up_unless_rows_are_chosen_by_key(flat, look_ups, statement):
    flat.sql("CREATE TEMP TABLE chosen AS SELECT unnest(['a', 'b', 'c', 'r']) AS k")
    merge(flat, "('a', 1, 'x', 15)", UPSERT)
    merge(flat, "('d', 1, 'x', 15)", "WHEN MATCHED THEN DELETE")
    look_ups.clear()
    flat.sql(statement)
    rest = [("a", 11, "x", 20), ("b", 12, "y", 20)] if statement.startswith("UPDATE") else []
    assert all_rows(flat, "g", COLUMNS) == [*rest, ("c", 3, "z", 10)]
    assert bool(look_ups) == (statement in NOT_BY_KEY)


def refuses(con, statement, text):
    """The statement is refused, and the table as it was."""
    before = con.sql("SELECT * FROM h ORDER BY ALL").fetchall()
    with pytest.raises(TableError, match=text):
        con.sql(statement)
    assert con.sql("SELECT * FROM h ORDER BY ALL").fetchall() == before


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("where", ["st.x = 1", "h.st.x = 1", "CAST(st.x AS VARCHAR) = '1'", "id = 'a' AND st.x < 2"])
def test_a_field_of_a_struct_is_no_condition_on_the_key(con, kind, where):
    con.sql(
        f"CREATE TABLE h (id STRING, v BIGINT, st STRUCT<x: INT>) USING hudi TBLPROPERTIES (type = '{kind}', primaryKey = 'id')"
    )
    con.sql("INSERT INTO h VALUES ('a', 1, {'x': 1}), ('b', 1, {'x': 2})")
    con.sql("INSERT INTO h VALUES ('a', 2, {'x': 2})")
    refuses(con, f"DELETE FROM h WHERE {where}", "more rows of it")
    refuses(con, f"UPDATE h SET v = 9 WHERE {where}", "more rows of it")


def test_a_row_taken_as_a_value_has_the_columns_of_the_table_alone(flat):
    con = flat
    con.sql("UPDATE g SET w = CAST(to_json(g) AS VARCHAR), ts = 20 WHERE id = 'a'")
    merge(con, "('b', 1, '', 30)", "WHEN MATCHED THEN UPDATE SET w = CAST(to_json(t) AS VARCHAR), ts = s.ts")
    texts = [w for (w,) in con.sql("SELECT w FROM g WHERE id IN ('a', 'b')").fetchall()]
    assert all('"id":' in text and "__lakesql_slice" not in text and "__lakesql_row" not in text for text in texts)
    con.sql("DELETE FROM g WHERE g IN (SELECT x FROM g x WHERE x.v = 3)")
    assert con.last_result.rows_deleted == 1


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_partition_values_that_share_a_path_are_told_apart(con, kind):
    con.sql(
        "CREATE TABLE h (id STRING, v BIGINT, p STRING, q STRING) USING hudi PARTITIONED BY (p, q) TBLPROPERTIES "
        f"(type = '{kind}', primaryKey = 'id', 'hoodie.datasource.write.hive_style_partitioning' = 'false')"
    )
    con.sql("INSERT INTO h VALUES ('k', 1, 'a/b', 'c')")
    source = "(SELECT 'k' AS id, 2::BIGINT AS v, 'a' AS p, 'b/c' AS q) s ON h.id = s.id AND h.p = s.p AND h.q = s.q"
    refuses(con, f"MERGE INTO h USING {source} {UPSERT}", "would insert keys that the table has already")


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("action", ["DELETE", "UPDATE SET v = 9"])
def test_rows_of_the_partition_of_null_are_changed_together_or_not_at_all(con, kind, action):
    con.sql(
        "CREATE TABLE h (id STRING, v BIGINT, p STRING) USING hudi PARTITIONED BY (p) TBLPROPERTIES "
        f"(type = '{kind}', primaryKey = 'id')"
    )
    con.sql("INSERT INTO h VALUES ('k', 1, '')")
    con.sql("INSERT INTO h VALUES ('k', 2, NULL)")
    source = "(SELECT 'k' AS id, '' AS p) s ON h.id = s.id AND h.p = s.p"
    refuses(con, f"MERGE INTO h USING {source} WHEN MATCHED THEN {action}", "more rows of it")
