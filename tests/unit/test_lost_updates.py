"""A statement that read a row which another writer changes before it writes runs again, whoever has the larger ordering value."""

import pytest

import lakesql
import lakesql.write

UPDATE = "UPDATE g SET v = v + 1, ts = ts + 1 WHERE id = 1"
MERGE = "MERGE INTO g USING (SELECT 1 AS id) s ON g.id = s.id WHEN MATCHED"
INSERT_OR_ADD = (
    "MERGE INTO g USING (SELECT 9 AS id, 3 AS v, 1 AS ts) s ON g.id = s.id "
    "WHEN MATCHED THEN UPDATE SET v = g.v + s.v, ts = s.ts + 100 WHEN NOT MATCHED THEN INSERT *"
)


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize(
    ("ours", "theirs", "rows"),
    [
        (UPDATE, UPDATE, {1: (2, 2)}),
        (UPDATE, "UPDATE g SET v = v + 1, ts = ts + 50 WHERE id = 1", {1: (2, 51)}),
        (UPDATE, "DELETE FROM g WHERE id = 1", {}),
        (f"{MERGE} THEN UPDATE SET v = g.v + 1, ts = g.ts + 1", "DELETE FROM g WHERE id = 1", {}),
        (f"{MERGE} AND g.v = 0 THEN DELETE", "UPDATE g SET v = 7, ts = 5 WHERE id = 1", {1: (7, 5)}),
        ("DELETE FROM g WHERE v = 0 AND id = 1", "UPDATE g SET v = 7, ts = 5 WHERE id = 1", {1: (7, 5)}),
        (INSERT_OR_ADD, "INSERT INTO g VALUES (9, 1, 50)", {1: (0, 0), 9: (4, 101)}),
    ],
)
def test_no_update_is_lost_between_reading_and_writing(tmp_path, monkeypatch, kind, ours, theirs, rows):
    con, other = (lakesql.connect(warehouse=tmp_path) for _ in range(2))
    con.sql(
        "CREATE TABLE g (id INT, v INT, ts INT) USING hudi "
        f"TBLPROPERTIES (type = '{kind}', primaryKey = 'id', orderingFields = 'ts')"
    )
    con.sql("INSERT INTO g SELECT i, 0, 0 FROM range(5) t(i)")
    look = lakesql.write._fresh

    def look_after_the_other_has_written(state, settings, clock):
        monkeypatch.setattr(lakesql.write, "_fresh", look)
        other.sql(theirs)
        return look(state, settings, clock)

    monkeypatch.setattr(lakesql.write, "_fresh", look_after_the_other_has_written)
    con.sql(ours)
    found = {i: (v, ts) for i, v, ts in con.sql("SELECT id, v, ts FROM g WHERE id IN (1, 9)").fetchall()}
    assert found == rows
    assert any("Run again once" in note for note in con.last_result.notes)
