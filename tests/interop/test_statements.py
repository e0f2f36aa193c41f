"""hudi-rs reads rows that moved to another partition, fields of structs and columns that a MERGE added."""

import pytest

import lakesql
from tests.interop import rust
from tests.samples import KINDS, Kind, NewTable, rows


@pytest.mark.parametrize("kind", [k for k in KINDS if k.partitioned], ids=str)
def test_hudi_rs_reads_moved_rows_and_added_columns(kind: Kind, new_table: NewTable) -> None:
    table = new_table(kind)
    table.insert(rows(("a", "x", 1, 10), ("b", "y", 2, 10), ("c", "x", 3, 10)))
    with lakesql.connect() as con:
        con.sql(f"CREATE TABLE t USING hudi LOCATION '{table.path}'")
        con.sql("UPDATE t SET city = 'z' WHERE id = 'a'")
        con.sql("UPDATE t SET city = 'x', v = 9 WHERE id = 'a'")
        con.sql("UPDATE t SET city = CASE city WHEN 'x' THEN 'y' ELSE 'x' END WHERE id <> 'a'")
        con.sql(
            "MERGE WITH SCHEMA EVOLUTION INTO t USING (SELECT 'b' AS id, 'new' AS note, {'k': 1} AS deep) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET note = s.note, deep = s.deep"
        )
        con.sql("UPDATE t SET deep.k = 2 WHERE id IN ('b', 'c')")
        ours = con.sql("SELECT id, city, v, ts, note, deep FROM t ORDER BY id").fetchall()
    theirs = rust.read(table.path).select(["id", "city", "v", "ts", "note", "deep"]).sort_by("id")
    assert [tuple(row.values()) for row in theirs.to_pylist()] == ours
    assert ours == [
        ("a", "x", 9, 10, None, None),
        ("b", "x", 2, 10, "new", {"k": 2}),
        ("c", "y", 3, 10, None, {"k": 2}),
    ]
