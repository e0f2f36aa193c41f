"""Updates of partition columns: the row leaves one partition and arrives in another, in one commit."""

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lakesql
from lakesql.errors import SQLError, TableError
from tests.samples import KINDS, create, rows, tuples
from tests.sql_tables import AB, all_rows

PARTITIONED = [k for k in KINDS if k.partitioned]


def commits(con):
    return len(con.table("trips").state.timeline.completed_writes())


def test_update_moves_the_row_in_one_commit(trips):
    before = commits(trips)
    trips.sql("UPDATE trips SET city = 'la', v = v * 10 WHERE id = 'a'")
    assert commits(trips) == before + 1
    assert all_rows(trips, columns="id, v, ts, city, _hoodie_partition_path") == [
        ("a", 10, 10, "la", "city=la"),
        ("b", 2, 10, "ny", "city=ny"),
    ]
    result = trips.last_result
    assert (result.rows_updated, result.rows_inserted, result.rows_deleted, result.rows_ignored) == (1, 0, 0, 0)


def test_merge_moves_rows_and_changes_others(trips):
    trips.sql(
        "MERGE INTO trips t USING (VALUES ('a', 5, 20, 'ny'), ('b', 6, 20, 'ny'), ('c', 7, 20, 'sf')) s(id, v, ts, city) ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    assert all_rows(trips) == [("a", 5, 20, "ny"), ("b", 6, 20, "ny"), ("c", 7, 20, "sf")]
    assert (trips.last_result.rows_updated, trips.last_result.rows_inserted) == (2, 1)


def test_row_may_come_back(trips):
    for city in ("ny", "sf", "la", "sf"):
        trips.sql(f"UPDATE trips SET city = '{city}', v = v + 1 WHERE id = 'a'")
    assert all_rows(trips) == [("a", 5, 10, "sf"), AB[1]]


def test_late_move_is_ignored_as_a_whole(trips):
    trips.sql("UPDATE trips SET city = 'la', ts = 5 WHERE id = 'a'")
    assert all_rows(trips) == AB
    assert (trips.last_result.rows_updated, trips.last_result.rows_ignored) == (0, 1)


def test_key_stays_what_it_is(trips):
    with pytest.raises(
        SQLError, match="UPDATE cannot set id: it is a record key column of trips, and a row is found by its key"
    ):
        trips.sql("UPDATE trips SET id = 'x', city = 'la'")
    with pytest.raises(TableError, match="would give a row another record key"):
        trips.sql("MERGE INTO trips t USING (SELECT 'a' AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET id = 'q'")
    assert all_rows(trips) == AB


def test_move_onto_another_row_of_the_key_is_refused_unless_that_one_leaves(trips):
    trips.sql("INSERT INTO trips VALUES ('a', 3, 10, 'ny')")
    with pytest.raises(TableError, match="a partition that has their key already: id=a, city=ny"):
        trips.sql("UPDATE trips SET city = 'ny' WHERE city = 'sf'")
    trips.sql("UPDATE trips SET city = CASE city WHEN 'sf' THEN 'ny' ELSE 'sf' END WHERE id = 'a'")
    assert all_rows(trips) == [("a", 1, 10, "ny"), ("a", 3, 10, "sf"), AB[1]]


def test_rows_that_share_a_key_do_not_become_one_by_moving(trips):
    trips.sql("INSERT INTO trips VALUES ('a', 3, 10, 'sf')")
    with pytest.raises(TableError, match="would move several rows of one key to the same partition: id=a, city=la"):
        trips.sql("UPDATE trips SET city = 'la' WHERE id = 'a'")
    assert [row[:2] for row in all_rows(trips)] == [("a", 1), ("a", 3), ("b", 2)]


def test_source_row_that_the_policy_drops_moves_nothing(trips):
    trips.sql("INSERT INTO trips VALUES ('a', 3, 10, 'rio')")
    trips.sql("SET lakesql.merge.duplicates = 'last'")
    trips.sql(
        "MERGE INTO trips t USING (VALUES ('a', 'rio'), ('a', 'la')) s(id, city) ON t.id = s.id AND t.v = 1 "
        "WHEN MATCHED THEN UPDATE SET city = s.city"
    )
    assert all_rows(trips) == [("a", 1, 10, "la"), ("a", 3, 10, "rio"), AB[1]]


def test_move_below_a_newer_delete_is_refused_and_the_row_stays(con):
    con.sql(
        "CREATE TABLE t (id STRING, ts BIGINT, _hoodie_is_deleted BOOLEAN, city STRING) USING hudi "
        "PARTITIONED BY (city) TBLPROPERTIES (type = 'mor', primaryKey = 'id', orderingFields = 'ts')"
    )
    con.sql("INSERT INTO t VALUES ('a', 10, NULL, 'sf'), ('z', 1, NULL, 'sf')")
    con.sql("SET hoodie.spark.sql.insert.into.operation = upsert")
    con.sql("INSERT INTO t VALUES ('a', 11, true, 'sf')")
    con.sql("INSERT INTO t VALUES ('a', 3, NULL, 'ny')")
    with pytest.raises(TableError, match="a newer delete of their key is known there: a") as caught:
        con.sql("UPDATE t SET city = 'sf' WHERE id = 'a'")
    assert "Nothing was written" in str(caught.value)
    assert con.sql("SELECT id, city FROM t ORDER BY ALL").fetchall() == [("a", "ny"), ("z", "sf")]


@pytest.mark.parametrize(("policy", "kept"), [("first", (5, "ny")), ("last", (7, "rio")), ("ordering", (6, "la"))])
def test_duplicate_policy_decides_where_a_row_goes(trips, policy, kept):
    trips.sql(f"SET lakesql.merge.duplicates = {policy}")
    trips.sql(
        "MERGE INTO trips t USING (VALUES ('a', 5, 20, 'ny'), ('a', 6, 30, 'la'), ('a', 7, 25, 'rio')) s(id, v, ts, city) "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET *"
    )
    assert all_rows(trips, columns="id, v, city") == [("a", *kept), ("b", 2, "ny")]


@pytest.mark.parametrize("type_", ["cow", "mor"])
def test_only_another_partition_path_is_a_move(tmp_path, type_):
    lakesql.create_table(
        str(tmp_path / "events"),
        pa.schema([("id", pa.string()), ("tick", pa.int64())]),
        type=type_,
        primary_key=["id"],
        partitioned_by=["tick"],
        properties={
            "hoodie.table.keygenerator.type": "TIMESTAMP",
            "hoodie.keygen.timebased.timestamp.type": "EPOCHMILLISECONDS",
            "hoodie.keygen.timebased.output.dateformat": "yyyy-MM-dd",
        },
    )
    with lakesql.connect(warehouse=str(tmp_path)) as con:
        con.sql("INSERT INTO events VALUES ('a', 1700000000000), ('b', 1700000000000)")
        assert [r[2] for r in con.sql("EXPLAIN UPDATE events SET tick = tick + 1000").fetchall()] == [
            "append" if type_ == "mor" else "rewrite"
        ]
        con.sql("UPDATE events SET tick = tick + CASE id WHEN 'a' THEN 1000 ELSE 86400000 END")
        assert con.last_result.rows_updated == 2
        assert all_rows(con, "events", "id, tick, _hoodie_partition_path") == [
            ("a", 1700000001000, "tick=2023-11-14"),
            ("b", 1700086400000, "tick=2023-11-15"),
        ]


@pytest.mark.parametrize("kind", PARTITIONED, ids=str)
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from(["sf", "ny", "la"]), st.sampled_from([0, 1, -1])),
        min_size=1,
        max_size=4,
    )
)
def test_moves_equal_a_dict(kind, tmp_path_factory, steps):
    folder = tmp_path_factory.mktemp("lake")
    table = create(folder / "t", kind)
    table.upsert(rows(("a", "sf", 1, 10), ("b", "ny", 2, 10), ("c", "sf", 3, 10)))
    model = {"a": ("sf", 1, 10), "b": ("ny", 2, 10), "c": ("sf", 3, 10)}
    with lakesql.connect(warehouse=str(folder)) as con:
        for key, city, later in steps:
            con.sql(f"UPDATE t SET city = '{city}', v = v + 1, ts = ts + {later} WHERE id = '{key}'")
            _, v, ts = model[key]
            if later >= 0 or not kind.event_time:
                model[key] = (city, v + 1, ts + later)
    assert tuples(table.read()) == sorted((k, *values) for k, values in model.items())
