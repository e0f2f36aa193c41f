"""Tagging: where keys are found, and what becomes of each row."""

import dataclasses

import pyarrow as pa
import pytest

from lakesql import write as road
from lakesql.errors import TableError
from lakesql.table import read
from lakesql.table.state import load
from lakesql.write.batch import materialise
from lakesql.write.plan import BATCH, DELETED, FATE, IGNORED, INSERTED, UPDATED, Changes
from lakesql.write.settings import WriteConfig
from lakesql.write.tag import tag_batch
from lakesql.write.verbs import VERBS, rules_of
from tests.writing import CON, delete, rows_of, rust_rows, table, upsert, values

A, B, C = ("a", "x", 1, 10), ("b", "x", 2, 10), ("c", "y", 3, 10)
FATES = {INSERTED: "inserted", UPDATED: "updated", DELETED: "deleted", IGNORED: "ignored"}


@pytest.fixture(autouse=True)
def _clean():
    yield
    for name in (BATCH, FATE):
        CON.execute(f"DROP TABLE IF EXISTS {name}")


def tagged(state, rows, operation="upsert", duplicates="none", look_up=True):
    now = load(state.storage)
    rules = rules_of(CON, now, VERBS[operation], WriteConfig())
    batch = materialise(CON, now, rows, rules, {})
    return tag_batch(CON, read.plan(now), batch, rules, look_up, duplicates)


def fates():
    found = CON.execute(
        f"SELECT b.id, f.fate, f.slice_no, f.row_no FROM {FATE} f JOIN {BATCH} b ON b.rowid = f.place ORDER BY 1, 3"
    ).fetchall()
    return [(i, FATES[fate], slice_no, row) for i, fate, slice_no, row in found]


def test_each_row_is_placed_in_the_slice_and_row_that_holds_its_key(tmp_path):
    t = table(tmp_path / "t")
    upsert(t, A, B, C)
    counts = tagged(t, values(("b", "x", 5, 50), ("c", "y", 5, 50), ("a", "y", 5, 50), ("b", "x", 5, 40)))
    assert fates() == [("a", "inserted", None, None), ("b", "updated", 0, 1), ("c", "updated", 1, 0)]
    assert counts.inserts == {"city=y": 1}
    assert counts.changes == {0: Changes(updates=1), 1: Changes(updates=1)}


def test_new_table_needs_no_look_up(tmp_path):
    t = table(tmp_path / "t")
    counts = tagged(t, values(A, C))
    assert (counts.looked_up, counts.inserts, counts.rows_inserted) == (False, {"city=x": 1, "city=y": 1}, 2)


def test_record_in_a_log_has_a_slice_and_no_row(tmp_path):
    t = table(tmp_path / "t", "mor")
    upsert(t, A, B)
    upsert(t, ("a", "x", 2, 20))
    tagged(t, values(("a", "x", 3, 30), ("b", "x", 3, 5)))
    assert fates() == [("a", "updated", 0, None), ("b", "ignored", 0, 1)]


def test_late_row_is_compared_with_the_record_in_the_log(tmp_path):
    t = table(tmp_path / "t", "mor")
    upsert(t, A)
    upsert(t, ("a", "x", 2, 20))
    tagged(t, values(("a", "x", 3, 15)))
    assert fates() == [("a", "ignored", 0, None)]


def test_key_that_only_a_tombstone_knows_is_inserted_into_its_slice(tmp_path):
    t = table(tmp_path / "t", "mor")
    upsert(t, A, B)
    delete(t, ("a", "x"))
    counts = tagged(t, values(("a", "x", 3, 10)))
    assert fates() == [("a", "inserted", 0, None)]
    assert counts.changes == {0: Changes(revived=1)}
    assert (counts.inserts, counts.rows_inserted) == ({}, 1)


def test_ordering_by_several_fields_compares_them_left_to_right(tmp_path):
    schema = pa.schema([("id", pa.string()), ("city", pa.string()), ("v", pa.string()), ("ts", pa.int64())])
    t = table(tmp_path / "t", schema=schema, ordering_fields=["ts", "v"])
    upsert(t, ("a", "x", "b", 1), ("b", "x", "b", 1), ("c", "x", "b", 1))
    tagged(t, values(("a", "x", "a", 1), ("b", "x", "c", 1), ("c", "x", "a", 2)))
    assert [(i, fate) for i, fate, _, _ in fates()] == [("a", "ignored"), ("b", "updated"), ("c", "updated")]


def test_many_partitions_do_not_mix_up_their_keys(tmp_path):
    t = table(tmp_path / "t")
    upsert(t, *[(f"k{i % 3}", f"c{i}", i, 10) for i in range(40)])
    counts = tagged(
        t,
        values(
            *[(f"k{(i + 1) % 3}", f"c{i}", i, 20) for i in range(0, 40, 2)], ("k1", "c1", 0, 20), ("k0", "c99", 0, 20)
        ),
    )
    assert (counts.rows_inserted, counts.rows_updated) == (21, 1)


def test_insert_rows_of_a_mixed_batch_update_existing_keys_unless_told_otherwise(tmp_path):
    t = table(tmp_path / "t")
    upsert(t, A)
    rows = values((*A, "insert"), (*B, "insert"), columns="id, city, v, ts, __op")
    assert tagged(t, rows).rows_updated == 1
    assert tagged(t, rows, duplicates="drop").rows_ignored == 1
    with pytest.raises(TableError, match=r"hoodie\.datasource\.insert\.dup\.policy = fail"):
        tagged(t, rows, duplicates="fail")


def test_row_above_a_commit_time_delete_does_not_resurrect_the_row_below(tmp_path, monkeypatch):
    """Spark's SQL DELETE leaves a tombstone without ordering value; an older record above it loses to the base row."""
    t = table(tmp_path / "t", "mor")
    upsert(t, A, B)
    real = road.job
    monkeypatch.setattr(road, "job", lambda *a: dataclasses.replace(real(*a), ordered_deletes=False))
    delete(t, ("a", "x"))
    monkeypatch.undo()
    upsert(t, ("a", "x", 5, 5))
    assert rows_of(t) == rust_rows(t) == [("a", "x", 5, 5), B]
    upsert(t, ("a", "x", 6, 10))
    assert rows_of(t) == rust_rows(t) == [("a", "x", 6, 10), B]
