"""Keys that the table has several times, and rows whose keys only look alike: no statement changes a row that it does
not mean."""

import pytest

import lakesql
from lakesql.errors import CommitConflict, TableError
from lakesql.table.state import load
from lakesql.write import write
from tests.sql_tables import all_rows
from tests.writing import CON, put, rows_of, table, upsert, values

BOTH = pytest.mark.parametrize("type_", ["cow", "mor"])
BY_PARTITION = "PARTITIONED BY (p)"
UPSERTS = "SET hoodie.spark.sql.insert.into.operation = upsert"


def create(con, type_, columns="id INT, v VARCHAR", key="id", more=""):
    con.execute(f"CREATE TABLE t ({columns}) USING hudi {more} TBLPROPERTIES (type = '{type_}', primaryKey = '{key}')")


def twice(con, type_, operation="insert"):
    """Key 1 with the values a and b; in one file group, or with bulk_insert in two."""
    create(con, type_)
    con.execute(f"SET hoodie.spark.sql.insert.into.operation = {operation}")
    con.execute("INSERT INTO t VALUES (1, 'a'), (2, 'z')")
    con.execute("INSERT INTO t VALUES (1, 'b')")


def counts(con, sql):
    con.execute(sql)
    result = con.last_result
    return result.rows_inserted, result.rows_updated, result.rows_deleted, result.rows_ignored


def stored(con, columns="id, v"):
    return all_rows(con, "t", columns)


# ---------------------------------------------------------------- a key that is there twice


SOME = [
    "DELETE FROM t WHERE v = 'b'",
    "UPDATE t SET v = 'B' WHERE v = 'b'",
    "MERGE INTO t USING (SELECT 1 AS id) s ON t.id = s.id AND t.v = 'b' WHEN MATCHED THEN DELETE",
    "MERGE INTO t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED AND t.v = 'b' THEN UPDATE SET v = 'B'",
    "MERGE INTO t USING (SELECT 3 AS id) s ON t.id = s.id WHEN NOT MATCHED BY SOURCE AND t.v = 'b' THEN DELETE",
]


@BOTH
@pytest.mark.parametrize("operation", ["insert", "bulk_insert"])
@pytest.mark.parametrize("sql", SOME)
def test_a_statement_on_some_rows_of_a_key_is_refused_and_names_the_key(con, type_, operation, sql):
    twice(con, type_, operation)
    with pytest.raises(TableError, match=r"changes some rows of a key.*more rows of it: '1'\..*INSERT OVERWRITE"):
        con.execute(sql)
    assert stored(con) == [(1, "a"), (1, "b"), (2, "z")]


@BOTH
@pytest.mark.parametrize("sql", SOME)
def test_explain_fates_refuses_what_the_statement_refuses(con, type_, sql):
    twice(con, type_)
    with pytest.raises(TableError, match=r"changes some rows of a key.*more rows of it: '1'\."):
        con.execute(f"EXPLAIN (FATES) {sql}")
    with pytest.raises(TableError, match=r"would make them different: '1'"):
        con.execute("EXPLAIN (FATES) UPDATE t SET v = v || '!' WHERE id = 1")


def test_explain_fates_shows_two_source_rows_of_a_key_that_is_there_twice(con):
    twice(con, "cow")
    sql = "MERGE INTO t USING (VALUES (2), (2)) s(id) ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = 'c'"
    assert [row[3] for row in con.sql(f"EXPLAIN (FATES) {sql}").fetchall()] == ["duplicate", "duplicate"]


@pytest.mark.parametrize(
    ("type_", "operation"), [("cow", "insert"), ("cow", "bulk_insert"), ("mor", "insert"), ("mor", "bulk_insert")]
)
def test_all_rows_of_a_key_change_though_one_of_them_is_stored_so_already(con, type_, operation):
    twice(con, type_, operation)
    assert counts(con, "UPDATE t SET v = 'b'") == (0, 3, 0, 0)
    assert stored(con) == [(1, "b"), (1, "b"), (2, "b")]
    assert counts(con, "UPDATE t SET v = 'b'") == (0, 0, 0, 3)


@BOTH
def test_equal_row_of_the_key_in_another_partition_is_written_under_a_global_index_only(con, type_):
    create(con, type_, "id INT, v VARCHAR, p VARCHAR", more=BY_PARTITION)
    con.execute("INSERT INTO t VALUES (1, 'a', 'x'), (1, 'b', 'y')")
    assert counts(con, "UPDATE t SET v = 'b' WHERE id = 1") == (0, 1, 0, 1)
    con.execute("UPDATE t SET v = 'a' WHERE p = 'x'")
    con.execute("SET hoodie.index.type = GLOBAL_SIMPLE")
    with pytest.raises(TableError, match="would make them different: '1' in p=x"):
        con.execute("UPDATE t SET v = 'b' WHERE id = 1")
    assert stored(con, "id, v, p") == [(1, "a", "x"), (1, "b", "y")]


DIFFERENT = [
    "UPDATE t SET v = v || '!' WHERE id = 1",
    "MERGE INTO t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED AND t.v = 'a' THEN DELETE WHEN MATCHED THEN UPDATE SET v = 'c'",
]


@BOTH
@pytest.mark.parametrize("sql", DIFFERENT)
def test_rows_of_one_key_cannot_become_different(con, type_, sql):
    twice(con, type_)
    with pytest.raises(TableError, match=r"several rows of one key, and the statement would make them different: '1'"):
        con.execute(sql)
    assert stored(con) == [(1, "a"), (1, "b"), (2, "z")]


@pytest.mark.parametrize(
    ("type_", "operation"), [("cow", "insert"), ("cow", "bulk_insert"), ("mor", "insert"), ("mor", "bulk_insert")]
)
def test_a_statement_on_all_rows_of_a_key_changes_all_and_counts_rows(con, type_, operation):
    twice(con, type_, operation)
    assert counts(con, "UPDATE t SET v = 'c' WHERE id = 1") == (0, 2, 0, 0)
    assert stored(con) == [(1, "c"), (1, "c"), (2, "z")]
    merge = "MERGE INTO t USING (SELECT 1 AS id, 'd' AS v) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *"
    assert counts(con, merge) == (0, 2, 0, 0)
    assert stored(con) == [(1, "d"), (1, "d"), (2, "z")]
    assert counts(con, "DELETE FROM t WHERE v IN ('d', 'z')") == (0, 0, 3, 0)
    assert stored(con) == []


@pytest.mark.parametrize("policy", ["first", "last"])
def test_a_duplicate_policy_chooses_source_rows_not_rows_of_the_table(con, policy):
    twice(con, "cow")
    con.execute(f"SET lakesql.merge.duplicates = '{policy}'")
    source = "(VALUES (1, 'first'), (1, 'last'))"
    assert counts(con, f"MERGE INTO t USING {source} s(id, v) ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v") == (
        0,
        2,
        0,
        0,
    )
    assert stored(con) == [(1, policy), (1, policy), (2, "z")]


def test_copies_that_a_log_record_cannot_reach_are_written_to_the_base_file(con):
    twice(con, "mor")
    assert counts(con, "UPDATE t SET v = 'c' WHERE id = 1") == (0, 2, 0, 0)
    assert [row[2] for row in con.sql("EXPLAIN DELETE FROM t WHERE id = 1").fetchall()] == ["rewrite"]
    assert stored(con) == [(1, "c"), (1, "c"), (2, "z")]
    assert counts(con, "DELETE FROM t WHERE id = 1") == (0, 0, 2, 0)
    assert stored(con) == [(2, "z")]
    assert any("rewritten" in note for note in con.last_result.notes)


def test_copies_of_which_the_log_holds_one_are_changed_together(con):
    twice(con, "mor")
    con.execute(UPSERTS)
    con.execute("INSERT INTO t VALUES (1, 'c'), (2, 'y')")  # to the log, which reaches the first of the two
    assert stored(con) == [(1, "b"), (1, "c"), (2, "y")]
    assert counts(con, "UPDATE t SET v = 'd' WHERE id = 1") == (0, 2, 0, 0)
    assert stored(con) == [(1, "d"), (1, "d"), (2, "y")]
    con.execute("INSERT INTO t VALUES (1, 'e')")
    assert counts(con, "DELETE FROM t WHERE id = 1") == (0, 0, 2, 0)
    assert stored(con) == [(2, "y")]


@BOTH
def test_keys_that_are_twice_do_not_hinder_statements_on_other_keys(con, type_):
    twice(con, type_)
    assert counts(con, "UPDATE t SET v = 'y' WHERE id = 2") == (0, 1, 0, 0)
    assert stored(con) == [(1, "a"), (1, "b"), (2, "y")]


def test_up_to_ten_keys_are_named(con):
    create(con, "cow")
    con.execute("INSERT INTO t SELECT i, 'a' FROM range(12) r(i)")
    con.execute("INSERT INTO t SELECT i, 'b' FROM range(12) r(i)")
    with pytest.raises(TableError, match=r"'0', '1', '10', '11', '2', '3', '4', '5', '6', '7' and more\."):
        con.execute("DELETE FROM t WHERE v = 'a'")


@BOTH
def test_deleting_by_a_condition_without_sql_keeps_to_it(tmp_path, type_):
    t = table(tmp_path / "t", type_)
    put(t, values(("a", "x", 1, 1), ("b", "x", 2, 1)), "bulk_insert")
    put(t, values(("a", "x", 3, 1)), "bulk_insert")
    handle = lakesql.open_table(t.path)
    with pytest.raises(TableError, match=r"'a' in city=x"):
        handle.delete("v = 3")
    assert len(rows_of(t)) == 3
    assert handle.delete("id = 'a'").rows_deleted == 2
    assert rows_of(t) == [("b", "x", 2, 1)]


# ---------------------------------------------------------------- keys in several partitions


@BOTH
def test_rows_of_one_key_change_places(con, type_):
    create(con, type_, "id INT, v VARCHAR, p VARCHAR", more=BY_PARTITION)
    con.execute("INSERT INTO t VALUES (1, 'a', 'x'), (1, 'b', 'y')")
    con.execute("UPDATE t SET p = CASE p WHEN 'x' THEN 'y' ELSE 'x' END")
    assert stored(con, "id, v, p") == [(1, "a", "y"), (1, "b", "x")]


@BOTH
@pytest.mark.parametrize("sql", ["UPDATE t SET p = 'y' WHERE v = 'b'", "UPDATE t SET p = 'y', v = 'c' WHERE v = 'b'"])
def test_a_move_of_some_rows_of_a_key_is_refused(con, type_, sql):
    create(con, type_, "id INT, v VARCHAR, p VARCHAR", more=BY_PARTITION)
    con.execute("SET hoodie.spark.sql.insert.into.operation = bulk_insert")
    con.execute("INSERT INTO t VALUES (1, 'a', 'x')")
    con.execute("INSERT INTO t VALUES (1, 'b', 'x')")
    with pytest.raises(TableError, match=r"changes some rows of a key.*: '1' in p=x\."):
        con.execute(sql)
    assert stored(con, "id, v, p") == [(1, "a", "x"), (1, "b", "x")]


@BOTH
def test_under_a_global_index_a_key_is_one_row_in_all_partitions(con, type_):
    create(con, type_, "id INT, v VARCHAR, p VARCHAR", more=BY_PARTITION)
    con.execute("INSERT INTO t VALUES (1, 'a', 'x'), (1, 'b', 'y'), (2, 'c', 'x')")
    con.execute("SET hoodie.index.type = GLOBAL_SIMPLE")
    for sql in ("DELETE FROM t WHERE v = 'b'", "UPDATE t SET v = 'B' WHERE v = 'b'"):
        with pytest.raises(TableError, match="changes some rows of a key"):
            con.execute(sql)
    with pytest.raises(TableError, match="would make them different: '1' in p=x"):
        con.execute("UPDATE t SET v = 'c' WHERE id = 1")
    with pytest.raises(TableError, match="would insert keys that the table has already: '2' in p=y"):
        con.execute(
            "MERGE INTO t USING (SELECT 2 AS id, 'n' AS v, 'y' AS p) s ON t.id = s.id AND t.p = s.p "
            "WHEN NOT MATCHED THEN INSERT *"
        )
    assert stored(con, "id, v, p") == [(1, "a", "x"), (1, "b", "y"), (2, "c", "x")]
    assert counts(con, "DELETE FROM t WHERE id = 1") == (0, 0, 2, 0)
    assert counts(con, "UPDATE t SET p = 'y' WHERE id = 2") == (0, 1, 0, 0)
    assert stored(con, "id, v, p") == [(2, "c", "y")]


# ---------------------------------------------------------------- inserts of keys that are there


CASTS = [
    ("id BIGINT, v VARCHAR", "(1, 'keep')", "(1.4::DOUBLE, 'new')"),
    ("id DATE, v VARCHAR", "('2024-01-01', 'keep')", "(TIMESTAMP '2024-01-01 10:00', 'new')"),
    ("id FLOAT, v VARCHAR", "(0.1, 'keep')", "(0.1::DOUBLE, 'new')"),
    ("id DECIMAL(10, 2), v VARCHAR", "(1.50, 'keep')", "(1.504::DECIMAL(10, 3), 'new')"),
]


@BOTH
@pytest.mark.parametrize(("columns", "row", "source"), CASTS)
def test_merge_does_not_insert_over_a_row_that_on_did_not_match(con, type_, columns, row, source):
    create(con, type_, columns)
    con.execute(f"INSERT INTO t VALUES {row}")
    before = stored(con)
    with pytest.raises(
        TableError, match=r"would insert keys that the table has already: |cast would change the value "
    ):
        con.execute(
            f"MERGE INTO t USING (VALUES {source}) s(id, v) ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
    assert stored(con) == before


@BOTH
@pytest.mark.parametrize("part", ["NULL", "'__null__'"])
def test_merge_does_not_insert_over_a_key_with_a_null_part(con, type_, part):
    create(con, type_, "a VARCHAR, b VARCHAR, v VARCHAR", "a,b")
    con.execute("INSERT INTO t VALUES ('x', NULL, 'keep')")
    with pytest.raises(TableError, match=r"would insert keys that the table has already|have the same record key"):
        con.execute(
            f"MERGE INTO t USING (VALUES ('x', {part}, 'new')) s(a, b, v) ON t.a = s.a AND t.b = s.b "
            "WHEN NOT MATCHED THEN INSERT *"
        )
    assert stored(con, "a, b, v") == [("x", None, "keep")]


@BOTH
@pytest.mark.parametrize("value", ["NULL::VARCHAR", "''", "'__HIVE_DEFAULT_PARTITION__'"])
def test_merge_does_not_insert_over_a_row_of_the_null_partition(con, type_, value):
    create(con, type_, "id INT, v VARCHAR, p VARCHAR", more="PARTITIONED BY (p)")
    con.execute("INSERT INTO t VALUES (1, 'keep', NULL)")
    with pytest.raises(TableError, match="would insert keys that the table has already: '1' in p=__HIVE_DEFAULT"):
        con.execute(
            f"MERGE INTO t USING (VALUES (1, 'new', {value})) s(id, v, p) ON t.id = s.id AND t.p = s.p "
            "WHEN NOT MATCHED THEN INSERT *"
        )
    assert stored(con, "id, v, p") == [(1, "keep", None)]


@BOTH
def test_merge_does_not_insert_over_a_newer_row(con, type_):
    con.execute(
        "CREATE TABLE t (id FLOAT, v VARCHAR, ts INT) USING hudi "
        f"TBLPROPERTIES (type = '{type_}', primaryKey = 'id', orderingFields = 'ts')"
    )
    con.execute("INSERT INTO t VALUES (0.1, 'keep', 9)")
    with pytest.raises(TableError, match=r"would insert keys that the table has already: '0.1'"):
        con.execute(
            "MERGE INTO t USING (SELECT 0.1::DOUBLE AS id, 'new' AS v, 1 AS ts) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *"
        )


@BOTH
def test_merge_does_not_insert_a_key_that_it_updates(con, type_):
    create(con, type_, "id FLOAT, v VARCHAR")
    con.execute("INSERT INTO t VALUES (0.1, 'keep')")
    before = stored(con)
    with pytest.raises(TableError, match=r"would insert keys that another of its rows has as well: '0.1'"):
        con.execute(
            "MERGE INTO t USING (VALUES (0.1::FLOAT::DOUBLE, 'matched'), (0.1::DOUBLE, 'not')) s(id, v) ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *"
        )
    assert stored(con) == before


@BOTH
def test_merge_inserts_a_key_again_after_its_delete(con, type_):
    create(con, type_)
    con.execute("INSERT INTO t VALUES (1, 'old'), (2, 'z')")
    con.execute("DELETE FROM t WHERE id = 1")
    merge = "MERGE INTO t USING (SELECT 1 AS id, 'new' AS v) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *"
    assert counts(con, merge) == (1, 0, 0, 0)
    assert stored(con) == [(1, "new"), (2, "z")]


MOVES = [
    ("id VARCHAR, v VARCHAR", "('01', 'keep')", "(1, 'new')"),
    ("id DOUBLE, v VARCHAR", "(0.0, 'keep')", "('-0.0'::DOUBLE, 'new')"),
    ("id VARCHAR, v VARCHAR", "('a', 'keep')", "('A' COLLATE NOCASE, 'new')"),
]


@BOTH
@pytest.mark.parametrize(("columns", "row", "source"), MOVES)
def test_a_match_under_another_spelling_of_the_key_does_not_rewrite_the_key(con, type_, columns, row, source):
    create(con, type_, columns)
    con.execute(f"INSERT INTO t VALUES {row}")
    before = stored(con, "id, v, _hoodie_record_key")
    with pytest.raises(TableError, match="UPDATE would give a row another record key"):
        con.execute(
            f"MERGE INTO t USING (VALUES {source}) s(id, v) ON t.id = s.id WHEN MATCHED THEN UPDATE SET * "
            "WHEN NOT MATCHED THEN INSERT *"
        )
    assert stored(con, "id, v, _hoodie_record_key") == before
    con.execute(f"MERGE INTO t USING (VALUES {source}) s(id, v) ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v")
    assert stored(con, "v, _hoodie_record_key") == [("new", before[0][2])]


def test_a_key_that_another_writer_inserted_meanwhile_is_a_conflict(tmp_path):
    t = table(tmp_path / "t")
    upsert(t, ("a", "x", 1, 1))
    before = load(t.storage)
    upsert(t, ("b", "x", 2, 1))
    rows = values(("b", "x", 3, 2, "insert"), columns="id, city, v, ts, __op")
    with pytest.raises(CommitConflict):
        write(CON, before, rows, operation="upsert", reads_table=True)
    assert rows_of(t) == [("a", "x", 1, 1), ("b", "x", 2, 1)]


# ---------------------------------------------------------------- keys that look alike


ALIKE = [("'1,b:2', '3'", "'1', '2,b:3'"), ("'x', NULL", "'x', '__null__'"), ("'x', ''", "'x', '__empty__'")]


@BOTH
@pytest.mark.parametrize(("one", "other"), [*ALIKE, *((b, a) for a, b in ALIKE)])
def test_rows_with_one_key_text_and_different_key_columns_are_refused(con, type_, one, other):
    create(con, type_, "a VARCHAR, b VARCHAR, v VARCHAR", "a,b")
    con.execute(UPSERTS)
    with pytest.raises(
        TableError, match=r"two of the rows differ in the key columns \(a, b\) and have the same record"
    ):
        con.execute(f"INSERT INTO t VALUES ({one}, 'r1'), ({other}, 'r2')")
    con.execute(f"INSERT INTO t VALUES ({one}, 'r1'), ('plain', 'key', 'r0')")
    before = stored(con, "a, b, v")
    with pytest.raises(
        TableError, match=r"a row of the batch and a row of the table differ in the key columns \(a, b\)"
    ):
        con.execute(f"INSERT INTO t VALUES ({other}, 'r2')")
    with pytest.raises(
        TableError, match=r"a row of the batch and a row of the table differ in the key columns \(a, b\)"
    ):
        con.table("t").delete(con.sql(f"SELECT * FROM (VALUES ({other})) s(a, b)"))
    assert stored(con, "a, b, v") == before
    con.execute(f"INSERT INTO t VALUES ({one}, 'again'), ('plain', 'key', 'again')")
    assert {row[2] for row in stored(con, "a, b, v")} == {"again"}
    assert counts(con, "DELETE FROM t") == (0, 0, 2, 0)


@BOTH
def test_equal_keys_in_different_partitions_are_different_rows(con, type_):
    create(con, type_, "a VARCHAR, b VARCHAR, v VARCHAR, p VARCHAR", "a,b", "PARTITIONED BY (p)")
    con.execute(UPSERTS)
    con.execute("INSERT INTO t BY NAME SELECT 'x' AS a, NULL AS b, 'r1' AS v, 'p1' AS p")
    con.execute("INSERT INTO t BY NAME SELECT 'x' AS a, '__null__' AS b, 'r2' AS v, 'p2' AS p")
    assert stored(con, "a, b, v, p") == [("x", "__null__", "r2", "p2"), ("x", None, "r1", "p1")]
