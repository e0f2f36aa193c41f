"""Columns that MERGE and INSERT add when a setting asks for it."""

import json

import pytest

import lakesql
from lakesql.errors import SQLError, TableError
from tests.samples import KINDS, create, rows
from tests.sql_tables import AB, all_rows

EVOLVE = "lakesql.schema.evolve"
SETTINGS = [EVOLVE, "hoodie.datasource.write.reconcile.schema"]
UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"


def newest_schema(con, name="trips"):
    """The fields of the schema that the newest commit carries."""
    state = con.table(name).state
    return json.loads(state.commit(state.timeline.completed_writes()[-1]).extra["schema"])["fields"]


@pytest.mark.parametrize("setting", SETTINGS)
def test_merge_with_star_adds_the_columns_of_the_source(trips, setting):
    before = trips.table("trips").state.timeline.completed_writes()[-1].requested
    trips.sql(f"SET {setting} = true")
    trips.sql(
        "MERGE INTO trips t USING (VALUES ('a', 9, 20, 'sf', 'hi', [1.5]), ('c', 3, 1, 'la', NULL, NULL)) "
        f"s(id, v, ts, city, note, more) ON t.id = s.id {UPSERT}"
    )
    assert all_rows(trips, columns="id, v, city, note, more::DOUBLE[]") == [
        ("a", 9, "sf", "hi", [1.5]),
        ("b", 2, "ny", None, None),
        ("c", 3, "la", None, None),
    ]
    added = newest_schema(trips)[-2:]
    assert [f["name"] for f in added] == ["note", "more"]
    assert [f["type"][0] for f in added] == ["null", "null"]
    assert "note" not in trips.sql(f"SELECT * FROM trips VERSION AS OF {before}").columns
    trips.sql(f"RESET {setting}")
    trips.sql("UPDATE trips SET note = 'later' WHERE id = 'b'")
    trips.sql("INSERT INTO trips VALUES ('d', 4, 1, 'ny', 'new', NULL)")
    assert all_rows(trips, columns="id, note") == [("a", "hi"), ("b", "later"), ("c", None), ("d", "new")]


def test_statement_may_ask_for_it_itself(trips):
    trips.sql(
        "MERGE WITH SCHEMA EVOLUTION INTO trips t USING (SELECT 'a' AS id, 5 AS extra) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET *"
    )
    assert all_rows(trips, columns="id, extra") == [("a", 5), ("b", None)]


def test_star_may_lack_columns_then(trips):
    trips.sql(f"SET {EVOLVE} = true")
    trips.sql(
        f"MERGE INTO trips t USING (VALUES ('a', 20, 'x'), ('c', 1, 'y')) s(id, ts, note) ON t.id = s.id {UPSERT}"
    )
    assert all_rows(trips, columns="id, v, ts, city, note") == [
        ("a", 1, 20, "sf", "x"),
        ("b", 2, 10, "ny", None),
        ("c", None, 1, None, "y"),
    ]


def test_merge_adds_only_the_columns_that_its_clauses_name(trips):
    trips.sql(f"SET {EVOLVE} = true")
    trips.sql(
        "MERGE INTO trips t USING (SELECT 'a' AS id, 5 AS extra, 6 AS unused) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET extra = s.extra"
    )
    assert [f["name"] for f in newest_schema(trips)] == ["id", "v", "ts", "city", "extra"]
    assert all_rows(trips, columns="id, extra") == [("a", 5), ("b", None)]
    with pytest.raises(SQLError, match="trips has no column nope, and the source has none of that name to add"):
        trips.sql("MERGE INTO trips t USING (SELECT 'a' AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET nope = 1")


def test_insert_by_name_and_by_list_adds_columns(trips):
    trips.sql(f"SET {EVOLVE} = true")
    trips.sql("INSERT INTO trips BY NAME SELECT 'c' AS id, 'la' AS city, DATE '2024-01-01' AS day")
    trips.sql("INSERT INTO trips (id, city, deep) SELECT 'd', 'la', {'k': 1, 'l': ['x']}")
    assert all_rows(trips, columns="id, day::VARCHAR, deep") == [
        ("a", None, None),
        ("b", None, None),
        ("c", "2024-01-01", None),
        ("d", None, {"k": 1, "l": ["x"]}),
    ]


def test_without_the_setting_the_unknown_column_is_an_error_that_names_it(trips):
    for sql in (
        "INSERT INTO trips BY NAME SELECT 'c' AS id, 'la' AS city, 1 AS extra",
        "INSERT INTO trips (id, city, extra) VALUES ('c', 'la', 1)",
        "MERGE INTO trips t USING (SELECT 'a' AS id, 5 AS extra) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET extra = s.extra",
    ):
        with pytest.raises((SQLError, TableError)) as caught:
            trips.sql(sql)
        assert f"SET {EVOLVE} = true" in str(caught.value)
        assert "extra" in str(caught.value)
    assert all_rows(trips) == AB


def test_a_statement_that_changes_nothing_adds_nothing(trips):
    trips.sql(f"SET {EVOLVE} = true")
    trips.sql(
        "MERGE INTO trips t USING (SELECT 'z' AS id, 5 AS extra) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET extra = s.extra"
    )
    assert trips.last_result.instant is None
    assert [f["name"] for f in newest_schema(trips)] == ["id", "v", "ts", "city"]


def test_explain_knows_the_new_columns(trips):
    trips.sql(f"SET {EVOLVE} = true")
    sql = "MERGE INTO trips t USING (SELECT 'a' AS id, 5 AS extra) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET extra = s.extra"
    assert trips.sql(f"EXPLAIN (FATES) {sql}").fetchall() == [(1, "a", "city=sf", "updated", 1)]
    assert trips.sql(f"{sql} RETURNING id, old.extra, new.extra").fetchall() == [("a", None, 5)]


def test_setting_takes_true_and_false_only(con):
    with pytest.raises(SQLError, match=r"setting lakesql.schema.evolve = 'yes': use true or false\."):
        con.sql(f"SET {EVOLVE} = 'yes'")


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_kind_of_table_reads_its_old_files_with_null(kind, tmp_path):
    table = create(tmp_path / "t", kind)
    table.upsert(rows(("a", "sf", 1, 10), ("b", "sf", 2, 10), ("c", "ny", 3, 10)))
    table.upsert(rows(("a", "sf", 4, 11)))
    with lakesql.connect(warehouse=str(tmp_path)) as con:
        con.sql(f"SET {EVOLVE} = true")
        con.sql(
            "MERGE INTO t USING (VALUES ('b', 'x'), ('d', 'y')) s(id, note) ON t.id = s.id WHEN MATCHED THEN UPDATE SET note = s.note "
            "WHEN NOT MATCHED THEN INSERT (id, city, ts, note) VALUES (s.id, 'sf', 1, s.note)"
        )
        con.sql("UPDATE t SET v = 5 WHERE id = 'a'")
        assert all_rows(con, "t", "id, v, note") == [("a", 5, None), ("b", 2, "x"), ("c", 3, None), ("d", None, "y")]
    assert table.read(columns=["id", "note"]).read_all().num_rows == 4
