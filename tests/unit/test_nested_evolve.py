"""Fields inside structs, list items and map values that MERGE and INSERT add when a setting asks for it."""

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

import lakesql
from lakesql.errors import CommitConflict, TableError
from lakesql.sql import changes
from tests.sql_tables import all_rows

EVOLVE = "lakesql.schema.evolve"
UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"


@pytest.fixture(params=["cow", "mor"])
def con(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[lakesql.Connection]:
    with lakesql.connect(warehouse=str(tmp_path)) as con:
        con.sql(
            "CREATE TABLE t (id VARCHAR, s STRUCT(a INTEGER, n STRUCT(x VARCHAR)), l STRUCT(a INTEGER)[], "
            "m MAP(VARCHAR, STRUCT(a INTEGER)), ts BIGINT) USING hudi "
            f"TBLPROPERTIES (type = '{request.param}', primaryKey = 'id', orderingFields = 'ts')"
        )
        con.sql("INSERT INTO t VALUES ('a', {'a': 1, 'n': {'x': 'q'}}, [{'a': 1}, NULL], MAP {'k': {'a': 5}}, 1)")
        con.sql("INSERT INTO t VALUES ('b', NULL, NULL, NULL, 1)")
        con.sql("UPDATE t SET s.a = 2, ts = 2 WHERE id = 'a'")
        yield con


def instants(con: lakesql.Connection) -> list[str]:
    return [i.requested for i in con.table("t").state.timeline.completed_writes()]


def test_a_merge_adds_fields_at_any_depth_and_older_rows_have_null_there(con):
    before = instants(con)[-1]
    con.sql(f"SET {EVOLVE} = true")
    con.sql(
        "MERGE INTO t USING (SELECT 'c' AS id, {'n': {'y': 1, 'x': 'z'}, 'w': [1.5::DOUBLE]} AS s, [{'b': {'d': 2}}] AS l, "
        f"MAP {{'k': {{'a': 6, 'v': 'v'}}}} AS m, 3 AS ts, 8 AS more) q ON t.id = q.id {UPSERT}"
    )
    old = {"a": 2, "n": {"x": "q", "y": None}, "w": None}
    want = [
        ("a", old, [{"a": 1, "b": None}, None], {"k": {"a": 5, "v": None}}, None),
        ("b", None, None, None, None),
        (
            "c",
            {"a": None, "n": {"x": "z", "y": 1}, "w": [1.5]},
            [{"a": None, "b": {"d": 2}}],
            {"k": {"a": 6, "v": "v"}},
            8,
        ),
    ]
    assert all_rows(con, "t", "id, s, l, m, more") == want
    con.sql(f"RESET {EVOLVE}")
    assert con.sql(f"SELECT s FROM t VERSION AS OF {before} WHERE id = 'a'").fetchall() == [
        ({"a": 2, "n": {"x": "q"}},)
    ]
    changed = con.sql(f"SELECT id, s.n.y FROM t_changes('{before}', NULL)").fetchall()
    assert changed == [("c", 1)]
    con.sql("UPDATE t SET s.w = [2], s.n.y = 5, ts = 9 WHERE id = 'a'")
    con.sql("CALL run_compaction(op => 'run', table => 't')") if con.table("t").state.config.is_mor else None
    con.sql("CALL run_clustering(op => 'scheduleAndExecute', table => 't')")
    want[0] = ("a", old | {"n": {"x": "q", "y": 5}, "w": [2.0]}, *want[0][2:])
    assert all_rows(con, "t", "id, s, l, m, more") == want


@pytest.mark.parametrize("columns", ["", "(id, s, l, m, ts)", "BY NAME"])
def test_an_insert_adds_fields_however_its_columns_are_named(con, columns):
    con.sql(f"SET {EVOLVE} = true")
    con.sql(f"INSERT INTO t {columns} SELECT 'c' AS id, {{'a': 1, 'B': 2}} AS s, NULL AS l, NULL AS m, 1 AS ts")
    assert all_rows(con, "t", "id, s.b") == [("a", None), ("b", None), ("c", 2)]


def test_a_merge_adds_the_fields_of_columns_that_a_clause_names(con):
    con.sql(f"SET {EVOLVE} = true")
    con.sql(
        "MERGE INTO t USING (SELECT 'a' AS id, {'b': 7} AS s, [{'b': 7}] AS l) q ON t.id = q.id "
        "WHEN MATCHED THEN UPDATE SET s = q.s"
    )
    assert all_rows(con, "t", "id, s.b, s.a") == [("a", 7, None), ("b", None, None)]
    kinds = dict(con.sql("SELECT column_name, column_type FROM (DESCRIBE t)").fetchall())
    assert kinds["s"] == "STRUCT(a INTEGER, n STRUCT(x VARCHAR), b INTEGER)"
    assert kinds["l"] == "STRUCT(a INTEGER)[]"


@pytest.mark.parametrize(
    ("statement", "field"),
    [
        ("INSERT INTO t VALUES ('c', {'a': 1, 'n': {'y': 1}}, NULL, NULL, 1)", "s.n.y"),
        ("INSERT INTO t BY NAME SELECT 'c' AS id, [{'a': 1, 'z': 1}] AS l, 1 AS ts", "l[].z"),
        ("UPDATE t SET m = MAP {'k': {'a': 1, 'z': 1}}", "m{}.z"),
        ("UPDATE t SET s.n = {'x': 'x', 'z': 1}", "s.n.z"),
        (f"MERGE INTO t USING (SELECT * REPLACE ({{'z': 1}} AS s) FROM t) q ON t.id = q.id {UPSERT}", "s.z"),
        ("MERGE INTO t USING t q ON t.id = q.id WHEN MATCHED THEN UPDATE SET s = {'a': q.s.a, 'z': t.s.a}", "s.z"),
    ],
)
def test_a_field_that_the_table_lacks_is_refused_and_never_dropped(con, statement, field):
    before = instants(con)
    with pytest.raises(TableError, match=r"the rows have the field " + field.replace("[", r"\[").replace("{", r"\{")):
        con.sql(statement)
    assert instants(con) == before


def test_what_no_table_can_hold_is_refused_before_anything_is_written(con):
    before = instants(con)
    con.sql(f"SET {EVOLVE} = true")
    with pytest.raises(TableError, match=r"'s.not allowed': Avro allows letters"):
        con.sql("INSERT INTO t VALUES ('c', {'a': 1, 'not allowed': 1}, NULL, NULL, 1)")
    with pytest.raises(TableError, match=r"column s is STRUCT.*the rows give INTEGER"):
        con.sql("INSERT INTO t VALUES ('c', 5, NULL, NULL, 1)")
    assert instants(con) == before


def test_the_schema_of_the_commit_keeps_what_was_there(con):
    state = con.table("t").state
    old = state.avro["fields"]
    con.sql(f"SET {EVOLVE} = true")
    con.sql("INSERT INTO t BY NAME SELECT 'c' AS id, {'n': {'y': 1}} AS s, 1 AS ts")
    state = con.table("t").state
    text = state.commit(state.timeline.completed_writes()[-1]).extra["schema"]
    new = [f for f in json.loads(text)["fields"] if not f["name"].startswith("_hoodie")]
    inner = new[1]["type"][1]["fields"][1]["type"][1]
    assert inner["fields"].pop() == {"name": "y", "type": ["null", "int"], "default": None}
    assert new == old


def test_another_field_added_meanwhile_is_a_conflict_and_not_lost(con, monkeypatch):
    con.sql(f"SET {EVOLVE} = true")
    write = changes.write

    def late(*given, **more):
        monkeypatch.setattr(changes, "write", write)
        with lakesql.connect(warehouse=Path(con.table("t").path).parent.as_posix()) as other:
            other.sql(f"SET {EVOLVE} = true")
            other.sql("INSERT INTO t BY NAME SELECT 'd' AS id, {'first': 1} AS s, 1 AS ts")
        return write(*given, **more)

    monkeypatch.setattr(changes, "write", late)
    con.sql("SET lakesql.write.retries = 0")
    with pytest.raises(CommitConflict, match="schema changed"):
        con.sql("INSERT INTO t BY NAME SELECT 'c' AS id, {'second': 1} AS s, 1 AS ts")
    con.sql("INSERT INTO t BY NAME SELECT 'c' AS id, {'second': 2} AS s, 1 AS ts")
    assert all_rows(con, "t", "id, s.first, s.second")[2:] == [("c", None, 2), ("d", 1, None)]


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("evolve", [False, True])
def test_fields_of_structs_may_be_spelt_in_another_case(tmp_path: Path, kind: str, evolve: bool) -> None:
    con = lakesql.connect(warehouse=str(tmp_path))
    con.execute(f"SET lakesql.schema.evolve = {evolve}")
    con.execute(
        "CREATE TABLE t (id BIGINT, s STRUCT(a INT, n DECIMAL(2,1)), l STRUCT(x INT)[], m MAP(VARCHAR, STRUCT(y INT))) "
        f"USING hudi TBLPROPERTIES (type = '{kind}', primaryKey = 'id')"
    )
    row = "{'A': 1, 'N': 1.5} AS s, [{'X': 1}] AS l, MAP {'k': {'Y': 1}} AS m"
    con.execute(f"INSERT INTO t SELECT 1::BIGINT AS id, {row}")
    con.execute(f"MERGE INTO t USING (SELECT 2::BIGINT AS id, {row}) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *")
    con.execute("UPDATE t SET s = {'A': 1, 'N': 2.5} WHERE id = 2")
    con.table("t").upsert([{"id": 3, "s": {"A": 1, "N": Decimal("3.5")}, "l": [{"X": 1}], "m": None}])
    found = con.execute("SELECT s.a, s.n, l[1].x, m['k'].y FROM t ORDER BY id").fetchall()
    assert found == [(1, Decimal("1.5"), 1, 1), (1, Decimal("2.5"), 1, 1), (1, Decimal("3.5"), 1, None)]
