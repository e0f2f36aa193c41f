"""`hudi_diff` and `undo_last`: which rows, which values, and that file groups without a change are not read."""

import itertools
import tempfile
import zipfile
from collections import Counter
from pathlib import Path

import duckdb
import pytest

import lakesql
from lakesql.errors import TableError
from lakesql.table import diff, read
from lakesql.table.evolution import evolution
from lakesql.table.logfold import View
from lakesql.table.names import quote
from lakesql.table.retained import retained_from
from tests.samples import Kind, NewTable, rows, tuples
from tests.writing import CON
from tests.zipped import FOLDER

FIRST = [("a", "x", 1, 1), ("b", "y", 1, 1), ("k", "w", 1, 1)]


def changes(table: lakesql.Table, begin: str, end: str | None = None) -> dict[str, tuple[object, ...]]:
    """id -> (change, new row, old row, changed columns)."""
    sql = diff.to_sql(CON, diff.plan_diff(table.state, begin, end))
    found = CON.sql(sql).to_arrow_table().to_pylist()
    keyed = {}
    for row in found:
        new = tuple(row[c] for c in ("id", "city", "v", "ts"))
        old = tuple(row["old"].values()) if row["old"] else None
        keyed[new[0] or old[0]] = row["change"], new, old, row["columns"]  # type: ignore[index]
    assert len(keyed) == len(found)
    return keyed


def test_rows_added_removed_and_changed_between_two_instants(kind: Kind, new_table: NewTable) -> None:
    table = new_table(kind)
    first = table.upsert(rows(*FIRST)).instant
    assert first is not None
    second = table.upsert(rows(("a", "x", 2, 2), ("c", "z", 2, 2))).instant
    assert second is not None
    third = table.delete(rows(("b", "y", None, None))).instant
    want_second = {
        "a": ("changed", ("a", "x", 2, 2), ("a", "x", 1, 1), ["v", "ts"]),
        "c": ("added", ("c", "z", 2, 2), None, None),
    }
    removed = {"b": ("removed", (None, None, None, None), ("b", "y", 1, 1), None)}
    assert changes(table, first, second) == want_second
    assert changes(table, second, third) == removed
    assert changes(table, first) == want_second | removed
    assert changes(table, second) == removed
    assert {k: v[0] for k, v in changes(table, "earliest").items()} == {"a": "added", "c": "added", "k": "added"}
    assert changes(table, second, second) == {}


@pytest.mark.parametrize("version", [9, 6])
def test_file_groups_without_a_change_are_not_read(version: int, new_table: NewTable) -> None:
    table = new_table(Kind("mor", version))
    table.upsert(rows(*FIRST))
    begin = table.upsert(rows(("b", "y", 2, 2))).instant
    assert begin is not None
    table.upsert(rows(("a", "x", 2, 2)))
    plan = diff.plan_diff(table.state, begin)
    assert {s.partition for s in (*plan.before.slices, *plan.after.slices)} == {"city=x"}
    with lakesql.connect() as con:
        text = "\n".join(str(r) for r in con.sql(f"EXPLAIN FROM hudi_diff('{table.path}', '{begin}')").fetchall())
        sql = diff.to_sql(CON, plan)
    assert "city=x" in sql
    assert "city=y" not in sql
    assert "city=w" not in sql
    assert text.count("READ_PARQUET") == CON.sql(f"EXPLAIN {sql}").fetchall()[0][1].count("READ_PARQUET") > 0
    assert changes(table, begin) == {"a": ("changed", ("a", "x", 2, 2), ("a", "x", 1, 1), ["v", "ts"])}


@pytest.mark.parametrize("kind", [Kind("cow", 9), Kind("mor", 8)], ids=str)
def test_keys_that_are_there_twice_are_matched_one_by_one(kind: Kind, new_table: NewTable) -> None:
    table = new_table(kind)
    table.insert(rows(("a", "x", 1, 1), ("b", "x", 1, 1)))
    begin = table.insert(rows(("a", "x", 2, 2))).instant
    assert begin is not None
    assert Counter(row[0] for row in tuples(table.read()))["a"] == 2
    table.insert(rows(("a", "x", 3, 3)))
    found = CON.sql(diff.to_sql(CON, diff.plan_diff(table.state, begin))).to_arrow_table().to_pylist()
    assert [(r["change"], r["id"], r["v"]) for r in found] == [("added", "a", 3)]


def test_columns_that_came_later_and_columns_named_like_ours(tmp_path: Path) -> None:
    with lakesql.connect(warehouse=str(tmp_path)) as con:
        con.sql(
            "CREATE TABLE t (id STRING, change BIGINT, ts BIGINT) USING hudi "
            "TBLPROPERTIES (primaryKey = 'id', orderingFields = 'ts')"
        )
        con.sql("INSERT INTO t VALUES ('a', 1, 1), ('b', 1, 1)")
        begin = con.last_result.instant
        con.sql("SET lakesql.schema.evolve = true")
        con.sql(
            "MERGE INTO t USING (SELECT 'a' AS id, 2 AS change, 2 AS ts, 'new' AS note) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET *"
        )
        columns = "_change, id, change, note, old.change, old.note, columns"
        found = con.sql(f"SELECT {columns} FROM hudi_diff('t', '{begin}')").fetchall()
        assert found == [("changed", "a", 2, "new", 1, None, ["change", "ts", "note"])]
        (undone,) = con.sql("CALL undo_last(table => 't')").to_arrow_table().to_pylist()
        assert (undone["_change"], undone["change"], undone["note"]) == ("changed", 1, None)
        con.sql("CALL undo_last(table => 't', dry_run => false)")
        assert con.sql("SELECT * EXCLUDE (ts) FROM t ORDER BY id").fetchall()[0][-2:] == ("a", 1)


@pytest.mark.parametrize("name", ["h120_evolve_mor", "h015_evolve_mor", "h120_evolve_cow"])
def test_renamed_and_retyped_columns_of_spark_are_followed(name: str) -> None:
    """Between neighbouring instants, against a comparison of two whole reads."""
    with zipfile.ZipFile(FOLDER / f"{name}.zip") as archive, tempfile.TemporaryDirectory() as folder:
        archive.extractall(folder)
        (root,) = {p.parent for p in Path(folder).rglob(".hoodie") if p.parent.name != "metadata"}
        table = lakesql.open_table(root)
        since = retained_from(table.state) or ""
        instants = [i.requested for i in table.state.timeline.completed_writes() if i.requested >= since]
        for begin, end in itertools.pairwise(instants):
            plan = diff.plan_diff(table.state, begin, end)
            counts = Counter(r[0] for r in CON.sql(f"SELECT change FROM ({diff.to_sql(CON, plan)})").fetchall())
            before, after = (whole(table, plan.columns, t, end) for t in (begin, end))
            want = {
                "added": len(after.keys() - before.keys()),
                "removed": len(before.keys() - after.keys()),
                "changed": sum(before[k] != after[k] for k in before.keys() & after.keys()),
            }
            assert dict(counts) == {k: n for k, n in want.items() if n}, (begin, end)


def whole(table: lakesql.Table, columns: list[str], as_of: str, shape: str) -> dict[object, str]:
    """(key, partition) -> the row as of an instant, under the columns of another one; everything is read."""
    state = table.state
    view = View(state, as_of, read.columns(state, shape), evolution(state, shape))
    sql = read.to_sql(CON, read.ReadPlan(view, "snapshot", tuple(state.slices(as_of))))
    names = ", ".join(map(quote, ["_hoodie_record_key", "_hoodie_partition_path", *columns]))
    return {(r[0], r[1]): repr(r[2:]) for r in CON.sql(f"SELECT {names} FROM ({sql})").fetchall()}


def test_wrong_arguments_are_explained(new_table: NewTable) -> None:
    table = new_table(Kind("cow", 9))
    first, second = (str(table.upsert(rows(("a", "x", n, n))).instant) for n in (1, 2))
    with lakesql.connect() as con:
        for call, message in (
            (f"hudi_diff('{table.path}', '{second}', '{first}')", "give the earlier time first"),
            (f"hudi_diff('{table.path}', 'soon')", "'soon' is not a point in time"),
            (f"hudi_diff('{table.path}', NULL)", "a is NULL"),
        ):
            with pytest.raises((duckdb.Error, lakesql.LakeError), match=message):
                con.sql(f"FROM {call}").fetchall()


# ---------------------------------------------------------------- undo_last


def test_undo_last_shows_the_rows_first_and_undoes_on_request(kind: Kind, new_table: NewTable) -> None:
    table = new_table(kind)
    table.upsert(rows(*FIRST))
    table.upsert(rows(("a", "x", 2, 2), ("b", "y", 1, 1), ("c", "z", 2, 2)))
    shown = {
        ("changed", 1, ("a", "x", 1, 1), ("a", "x", 2, 2), ("v", "ts")),
        ("removed", 1, ("c", "z", 2, 2), ("c", "z", 2, 2), None),
    }
    with lakesql.connect() as con:
        for dry_run in ("", ", dry_run => false"):
            found = con.sql(f"CALL undo_last(path => '{table.path}'{dry_run})").to_arrow_table().to_pylist()
            assert {
                (
                    r["change"],
                    r["total"],
                    tuple(r[c] for c in ("id", "city", "v", "ts")),
                    tuple(r["old"].values()),
                    r["columns"] and tuple(r["columns"]),
                )
                for r in found
            } == shown
        assert tuples(table.read()) == FIRST
        table.delete(rows(("a", "x", None, None)))
        (row,) = con.sql(f"CALL undo_last(path => '{table.path}', limit => 1)").to_arrow_table().to_pylist()
        assert (row["change"], row["total"], row["id"], row["v"], row["old"]) == ("restored", 1, "a", 1, None)


def test_undo_last_counts_all_rows_and_shows_a_few(new_table: NewTable) -> None:
    table = new_table(Kind("cow", 9, partitioned=False))
    table.upsert(rows(*((f"k{n}", "x", n, 1) for n in range(500))))
    table.delete(rows(*((f"k{n}", "x", None, None) for n in range(300))))
    with lakesql.connect(read_only=True) as con:
        found = con.sql(f"CALL undo_last(path => '{table.path}', limit => 7)").to_arrow_table()
        assert (found.num_rows, set(found["total"].to_pylist())) == (7, {300})
        with pytest.raises(TableError, match="read-only"):
            con.sql(f"CALL undo_last(path => '{table.path}', dry_run => false)")


def test_procedures_give_the_columns_of_hudi(new_table: NewTable) -> None:
    table = new_table(Kind("mor", 9))
    first = table.upsert(rows(*FIRST)).instant
    wrong = table.upsert(rows(("a", "x", 2, 2))).instant
    with lakesql.connect() as con:

        def call(text: str) -> list[dict[str, object]]:
            name, arguments = text.split("(", 1)
            comma = ", " if arguments != ")" else ""
            rows_of: list[dict[str, object]] = (
                con.sql(f"CALL {name}(path => '{table.path}'{comma}{arguments}").to_arrow_table().to_pylist()
            )
            return rows_of

        assert call(f"rollback_to_instant(instant_time => '{wrong}')") == [{"rollback_result": True}]
        (undone,) = call("show_rollbacks()")
        assert (undone["instant"], undone["total_files_deleted"], undone["total_partitions"]) == (wrong, 1, 1)
        (detail,) = call(f"show_rollback_detail(instant_time => '{undone['rollback_instant']}')")
        assert (detail["instant"], detail["partition"], detail["succeeded"]) == (wrong, "city=x", True)
        assert str(detail["deleted_file"]).endswith("_0-0-1")
        with pytest.raises(TableError, match="there is no rollback 1"):
            call("show_rollback_detail(instant_time => '1')")
        made = call(f"create_savepoint(commit_time => '{first}', user => 'me', comments => 'why')")
        assert made == [{"create_savepoint_result": True}]
        assert call("show_savepoints()") == [{"savepoint_time": first}]
        table.upsert(rows(("a", "x", 3, 3)))
        assert call(f"rollback_to_savepoint(instant_time => '{first}')") == [{"rollback_savepoint_result": True}]
        assert tuples(table.read()) == FIRST
        assert call("delete_savepoint()") == [{"delete_savepoint_result": True}]
        assert call("show_savepoints()") == []
        Path(table.path, ".hoodie/.temp/20250101000000000").mkdir(parents=True)
        assert call("delete_marker(instant_time => '20250101000000000')") == [{"delete_marker_result": True}]
        assert not Path(table.path, ".hoodie/.temp/20250101000000000").exists()
        state = table.state
        state.storage.put(f"{state.timeline_folder}/20250101000000000.deltacommit.requested", b"")
        with pytest.raises(TableError, match="its markers tell which files it wrote"):
            call("delete_marker(instant_time => '20250101000000000')")
