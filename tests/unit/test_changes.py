"""MERGE, UPDATE, DELETE, INSERT and TRUNCATE through a connection, on both table types."""

import pyarrow as pa
import pytest

from lakesql.errors import CommitConflict, SQLError, TableError, Unsupported
from lakesql.sql import changes
from lakesql.write import write
from tests.sql_tables import AB, all_rows


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
    updates = pa.table({"id": ["a", "c"], "v": [7, 8], "ts": [20, 20], "city": ["sf", "la"]})
    trips.sql(
        "MERGE INTO trips t USING updates s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN "
        "INSERT *"
    )
    assert all_rows(trips) == [("a", 7, 20, "sf"), ("b", 2, 10, "ny"), ("c", 8, 20, "la")]
    stream = pa.RecordBatchReader.from_batches(updates.schema, updates.to_batches())  # noqa: F841
    trips.sql("INSERT INTO trips SELECT id || '2', v, ts, city FROM stream")
    state = trips.sql("SELECT 'r' AS id")  # noqa: F841  a relation of this very connection, named like a variable of lakesql
    trips.sql("INSERT INTO trips SELECT id, 1, 1, 'x' FROM state")
    assert len(all_rows(trips)) == 6
    assert trips.sql("SELECT count(*) FROM updates").fetchall() == [(2,)]


def test_temporary_tables_of_the_connection_are_sources(trips):
    trips.sql("CREATE TEMP TABLE s AS SELECT 'a' AS id")
    trips.sql("DELETE FROM trips WHERE id IN (SELECT id FROM s)")
    assert all_rows(trips) == AB[1:]


def test_row_changed_by_another_writer_meanwhile_is_a_conflict_not_a_lost_update(trips, monkeypatch):
    other = trips.cursor()

    def late_write(*arguments, **options):
        monkeypatch.undo()
        other.sql("UPDATE trips SET v = 100 WHERE id = 'a'")
        return write(*arguments, **options)

    monkeypatch.setattr(changes, "write", late_write)
    with pytest.raises(CommitConflict):
        trips.sql("UPDATE trips SET v = v + 1 WHERE id = 'a'")
    assert all_rows(trips) == [("a", 100, 10, "sf"), AB[1]]
    trips.sql("UPDATE trips SET v = v + 1 WHERE id = 'a'")
    assert all_rows(trips)[0][1] == 101


def test_interruption_leaves_the_table_and_the_connection_as_they_were(trips, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(changes, "compile_delete", interrupted)
    with pytest.raises(KeyboardInterrupt):
        trips.sql("DELETE FROM trips")
    monkeypatch.undo()
    assert all_rows(trips) == AB
    trips.sql("DELETE FROM trips WHERE id = 'a'")
    assert all_rows(trips) == AB[1:]


@pytest.mark.parametrize("hive_style", ["true", "false"])
def test_insert_overwrite_with_some_partition_values_replaces_every_partition_that_has_them(con, hive_style):
    con.sql(
        "CREATE TABLE days (id BIGINT, city STRING, day STRING) USING hudi PARTITIONED BY (city, day) TBLPROPERTIES "
        f"(primaryKey = 'id', hoodie.datasource.write.hive_style_partitioning = '{hive_style}')"
    )
    con.sql("INSERT INTO days VALUES (1, 'sf', '1'), (2, 'sf', '2'), (3, 'ny', '1'), (4, 'ny', 'sf')")
    con.sql("INSERT OVERWRITE days PARTITION (city = 'sf', day) SELECT 9, '3'")
    assert all_rows(con, "days", "id, city, day") == [(3, "ny", "1"), (4, "ny", "sf"), (9, "sf", "3")]
    con.sql("INSERT OVERWRITE days PARTITION (day = '1', city) SELECT 8, 'la' WHERE false")
    assert all_rows(con, "days", "id, city, day") == [(4, "ny", "sf"), (9, "sf", "3")]
    con.sql("INSERT OVERWRITE days PARTITION (city, day) SELECT 7, 'ny', '5'")
    assert all_rows(con, "days", "id, city, day") == [(4, "ny", "sf"), (7, "ny", "5"), (9, "sf", "3")]


def test_insert_overwrite_with_some_partition_values_refuses_paths_it_cannot_tell_apart(con):
    con.sql("CREATE TABLE days (id BIGINT, city STRING, day STRING) USING hudi PARTITIONED BY (city, day)")
    con.sql("INSERT INTO days VALUES (1, 'sf', '2024/01/01')")
    with pytest.raises(Unsupported, match="'city=sf/day=2024/01/01' does not have one segment per column"):
        con.sql("INSERT OVERWRITE days PARTITION (city = 'sf', day) SELECT 9, '3'")
    assert all_rows(con, "days", "id, city, day") == [(1, "sf", "2024/01/01")]
