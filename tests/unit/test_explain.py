"""EXPLAIN of statements that change rows: what it says comes true, and nothing is written."""

from pathlib import Path

import pytest

from lakesql.errors import SQLError, TableError
from tests.sql_tables import AB, all_rows

MERGE = (
    "MERGE INTO trips t USING (VALUES ('a', 5, 20, 'sf'), ('b', 0, 5, 'ny'), ('c', 7, 1, 'la'), ('d', 0, 0, 'la'), ('e', 9, 1, 'la')) "
    "s(id, v, ts, city) ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED AND s.v = 0 THEN DO NOTHING "
    "WHEN NOT MATCHED AND s.v < 9 THEN INSERT *"
)


def tree(con, name="trips"):
    """Every file of a table with its bytes."""
    root = Path(con.tables[name])
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def plan(con, sql):
    """(partition, kind, inserted, updated, deleted) per file group, sorted."""
    found = con.sql(f"EXPLAIN {sql}")
    assert found.columns == [
        "partition", "file_id", "kind", "rows_inserted", "rows_updated", "rows_deleted", "bytes_read", "bytes_written",
    ]  # fmt: skip
    return sorted((r[0], r[2], *r[3:6]) for r in found.fetchall())


def fates(con, sql):
    """(record key, fate, clause), in the order of the source."""
    found = con.sql(f"EXPLAIN (FATES) {sql}")
    assert found.columns == ["source_row", "record_key", "partition_path", "fate", "clause"]
    return [(r[1], r[3], r[4]) for r in found.fetchall()]


def changing(con):
    """What rewriting a row's file group is called on this table."""
    return "append" if con.table("trips").state.config.is_mor else "rewrite"


@pytest.mark.parametrize("options", ["", "(FATES) "])
@pytest.mark.parametrize(
    "sql",
    [
        MERGE,
        "UPDATE trips SET v = v + 1, city = 'la' WHERE id = 'a'",
        "DELETE FROM trips",
        "INSERT INTO trips VALUES ('x', 1, 1, 'new')",
        "INSERT OVERWRITE trips VALUES ('x', 1, 1, 'sf')",
    ],
)
def test_nothing_is_written(trips, sql, options):
    before = tree(trips)
    trips.sql(f"EXPLAIN {options}{sql}").fetchall()
    assert tree(trips) == before
    trips.sql(sql)
    assert tree(trips) != before


def test_plan_has_one_row_per_file_group(trips):
    change = changing(trips)
    assert plan(trips, MERGE) == [("city=la", "create", 1, 0, 0), ("city=sf", change, 0, 1, 0)]
    assert plan(trips, "DELETE FROM trips") == [("city=ny", change, 0, 0, 1), ("city=sf", change, 0, 0, 1)]
    assert plan(trips, "UPDATE trips SET city = 'la' WHERE id = 'a'") == [
        ("city=la", "create", 1, 0, 0),
        ("city=sf", change, 0, 0, 1),
    ]
    assert plan(trips, "INSERT OVERWRITE trips PARTITION (city = 'sf') VALUES ('x', 1, 1)") == [
        ("city=sf", "create", 1, 0, 0),
        ("city=sf", "replace", 0, 0, 0),
    ]
    assert plan(trips, "DELETE FROM trips WHERE false") == []


def test_plan_comes_true(trips):
    planned = trips.sql(f"EXPLAIN {MERGE}").fetchall()
    trips.sql(MERGE)
    state = trips.table("trips").state
    done = state.commit(state.timeline.completed_writes()[-1]).partition_stats
    written = {(p, s.file_id): s for p, stats in done.items() for s in stats}
    assert {(r[0], r[1]) for r in planned if r[1]} <= set(written)
    assert len(planned) == len(written)
    assert sum(r[3] for r in planned) == trips.last_result.rows_inserted
    assert sum(r[4] for r in planned) == trips.last_result.rows_updated


def test_rewrite_reads_the_old_file_and_append_reads_none(trips):
    state = trips.table("trips").state
    size = next(f.size_bytes for f in state.files if f.partition == "city=sf")
    (row,) = trips.sql("EXPLAIN UPDATE trips SET v = 5 WHERE id = 'a'").fetchall()
    assert row[6] == (0 if state.config.is_mor else size)
    assert row[7] > 0


def test_fates_of_a_merge_name_the_clause_of_each_source_row(trips):
    assert fates(trips, MERGE) == [
        ("a", "updated", 1),
        ("b", "ignored (late)", 1),
        ("c", "inserted", 3),
        ("d", "unchanged", 2),
        ("e", "no clause", None),
    ]


def test_fates_of_moves_deletes_and_rows_without_source(trips):
    assert fates(
        trips,
        "MERGE INTO trips t USING (SELECT 'a' AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET city = 'la' "
        "WHEN NOT MATCHED BY SOURCE THEN DELETE",
    ) == [("a", "moved", 1), ("b", "deleted", 2)]
    assert sorted(fates(trips, "UPDATE trips SET v = 1, city = CASE id WHEN 'b' THEN 'la' ELSE city END")) == [
        ("a", "unchanged", None),
        ("b", "moved", None),
    ]
    assert sorted(fates(trips, "DELETE FROM trips")) == [("a", "deleted", None), ("b", "deleted", None)]


def test_fates_show_duplicates_where_the_statement_fails(trips):
    sql = (
        "MERGE INTO trips t USING (VALUES ('a', 5), ('a', 6), ('z', 1)) s(id, v) ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v "
        "WHEN NOT MATCHED THEN ERROR"
    )
    assert fates(trips, sql) == [("a", "duplicate", 1), ("a", "duplicate", 1), ("z", "error", 2)]
    with pytest.raises(TableError):
        trips.sql(f"EXPLAIN {sql}")
    trips.sql("SET lakesql.merge.duplicates = 'last'")
    assert fates(trips, sql)[:2] == [("a", "duplicate", 1), ("a", "updated", 1)]


def test_fates_of_an_insert_follow_operation_and_policy(trips):
    sql = "INSERT INTO trips VALUES ('a', 5, 20, 'sf'), ('b', 2, 10, 'ny'), ('c', 1, 1, 'la'), ('b', 9, 1, 'ny')"
    assert [f for _, f, _ in fates(trips, sql)] == ["inserted"] * 4
    trips.sql("SET hoodie.datasource.insert.dup.policy = drop")
    assert [f for _, f, _ in fates(trips, sql)] == ["duplicate", "duplicate", "inserted", "duplicate"]
    trips.sql("SET hoodie.spark.sql.insert.into.operation = upsert")
    assert fates(trips, sql) == [
        ("a", "updated", None),
        ("b", "unchanged", None),
        ("c", "inserted", None),
        ("b", "duplicate", None),
    ]


def test_explain_fails_as_the_statement_would(trips):
    with pytest.raises(SQLError, match="record key"):
        trips.sql("EXPLAIN UPDATE trips SET id = 'x'")
    with pytest.raises(TableError, match="the record key is NULL"):
        trips.sql("EXPLAIN INSERT INTO trips VALUES (NULL, 1, 1, 'x')")


def test_explain_works_read_only_and_with_parameters(trips):
    found = trips.sql("EXPLAIN (FATES) DELETE FROM trips WHERE id = $1", params=["a"]).fetchall()
    assert [r[1] for r in found] == ["a"]
    assert all_rows(trips) == AB


def test_explain_of_other_statements_is_duckdbs(trips):
    assert len(trips.sql("EXPLAIN SELECT * FROM trips").fetchall()) >= 1
