"""INSERT through a connection: operations, duplicate policies, partitions, defaults, overwriting, sort modes."""

import pyarrow.parquet as pq
import pytest

from lakesql.errors import SQLError, TableError
from tests.sql_tables import AB, all_rows

BULK = "hoodie.bulkinsert.sort.mode"
OPERATION = "hoodie.spark.sql.insert.into.operation"
WRITE_OPERATION = "hoodie.datasource.write.operation"
POLICY = "hoodie.datasource.insert.dup.policy"


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("none", [AB[0], ("a", 7, 20, "sf"), AB[1], ("c", 8, 1, "la")]),
        ("drop", [AB[0], AB[1], ("c", 8, 1, "la")]),
    ],
)
def test_duplicate_policy_decides_about_keys_that_exist(trips, policy, expected):
    trips.sql(f"SET {POLICY} = {policy}")
    trips.sql("INSERT INTO trips VALUES ('a', 7, 20, 'sf'), ('c', 8, 1, 'la')")
    assert all_rows(trips) == expected


def test_duplicate_policy_fail_names_the_keys_and_writes_nothing(trips):
    trips.sql(f"SET {POLICY} = fail")
    with pytest.raises(TableError, match=f"a key that exists, for example 'a' .{POLICY} = fail"):
        trips.sql("INSERT INTO trips VALUES ('a', 7, 20, 'sf'), ('c', 8, 1, 'la')")
    assert all_rows(trips) == AB


def test_write_operation_wins_over_the_insert_operation(trips):
    trips.sql(f"SET {OPERATION} = insert")
    trips.sql(f"SET {WRITE_OPERATION} = upsert")
    trips.sql("INSERT INTO trips VALUES ('a', 7, 20, 'sf')")
    assert (trips.last_result.operation, all_rows(trips)[0][1]) == ("upsert", 7)
    trips.sql(f"SET {WRITE_OPERATION} = insert_overwrite")
    with pytest.raises(SQLError, match="write INSERT OVERWRITE to replace rows"):
        trips.sql("INSERT INTO trips VALUES ('a', 7, 20, 'sf')")


def test_write_operation_says_what_an_overwrite_replaces(trips):
    trips.sql(f"SET {WRITE_OPERATION} = insert_overwrite")
    trips.sql("INSERT OVERWRITE trips VALUES ('x', 1, 1, 'sf')")
    assert all_rows(trips) == [AB[1], ("x", 1, 1, "sf")]
    trips.sql(f"SET {WRITE_OPERATION} = insert_overwrite_table")
    trips.sql("SET hoodie.datasource.overwrite.mode = dynamic")
    trips.sql("INSERT OVERWRITE trips VALUES ('y', 1, 1, 'sf')")
    assert all_rows(trips) == [("y", 1, 1, "sf")]


def test_default_is_null(trips):
    trips.sql("INSERT INTO trips VALUES ('c', DEFAULT, 1, 'default'), (lower('D'), 4, default, DEFAULT)")
    assert all_rows(trips)[2:] == [("c", None, 1, "default"), ("d", 4, None, None)]
    trips.sql("UPDATE trips SET v = DEFAULT WHERE id = 'd'")
    trips.sql(
        "MERGE INTO trips t USING (SELECT 'e' AS id) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id, v, ts, city) "
        "VALUES (s.id, DEFAULT, 1, 'la')"
    )
    assert [r[1] for r in all_rows(trips)] == [1, 2, None, None, None]


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_static_dynamic_and_mixed_partitions(con, kind):
    con.sql(
        "CREATE TABLE t (id STRING, v INT, country STRING, city STRING) USING hudi PARTITIONED BY (country, city) "
        f"TBLPROPERTIES (type = '{kind}', primaryKey = 'id')"
    )
    con.sql("INSERT INTO t PARTITION (country = 'us', city = 'sf') VALUES ('a', 1)")
    con.sql("INSERT INTO t PARTITION (country = 'us', city) SELECT 'b', 2, 'ny'")
    con.sql("INSERT INTO t PARTITION (country, city) SELECT 'c', 3, 'de', 'ulm'")
    con.sql("INSERT INTO t PARTITION (country = 'fr') BY NAME SELECT 'lyon' AS city, 'd' AS id")
    assert con.sql("SELECT id, v, country, city, _hoodie_partition_path FROM t ORDER BY ALL").fetchall() == [
        ("a", 1, "us", "sf", "country=us/city=sf"),
        ("b", 2, "us", "ny", "country=us/city=ny"),
        ("c", 3, "de", "ulm", "country=de/city=ulm"),
        ("d", None, "fr", "lyon", "country=fr/city=lyon"),
    ]


@pytest.mark.parametrize(
    ("mode", "is_sorted"),
    [
        ("NONE", False),
        ("GLOBAL_SORT", True),
        ("PARTITION_SORT", True),
        ("PARTITION_PATH_REPARTITION", False),
        ("PARTITION_PATH_REPARTITION_AND_SORT", True),
    ],
)
def test_bulk_insert_sorts_the_rows_of_a_partition_when_asked(con, mode, is_sorted):
    con.sql(
        "CREATE TABLE t (id STRING, city STRING) USING hudi PARTITIONED BY (city) TBLPROPERTIES (primaryKey = 'id')"
    )
    con.sql(f"SET {OPERATION} = bulk_insert")
    con.sql("SET hoodie.copyonwrite.insert.split.size = 10")
    con.sql(f"SET {BULK} = {mode}")
    con.sql("INSERT INTO t SELECT format('{:03d}', (i * 7919) % 100), chr(97 + (i % 2)::INT) FROM range(100) r(i)")
    state = con.table("t").state
    keys = {}
    for file in sorted(state.base_files(), key=lambda f: f.path):
        names = pq.read_table(state.storage.data_path(file.path), columns=["_hoodie_record_key"], partitioning=None)
        keys.setdefault(file.partition, []).append(names["_hoodie_record_key"].to_pylist())
    assert [len(files) for files in keys.values()] == [5, 5]
    for files in keys.values():
        by_first = sorted(files)
        flat = [key for file in by_first for key in file]
        assert (flat == sorted(flat)) is is_sorted
    assert con.sql("SELECT count(DISTINCT id) FROM t").fetchall() == [(100,)]


def test_unknown_sort_mode_is_named(trips):
    with pytest.raises(TableError, match=f"setting {BULK} = 'sideways': must be one of NONE, GLOBAL_SORT"):
        trips.sql(f"SET {BULK} = sideways")
