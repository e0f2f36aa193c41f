"""Writes with a guard, and writes that make a commit without rows."""

import pytest

from lakesql.services.clustering import schedule
from lakesql.table.state import load
from lakesql.write import write
from tests.writing import CON, listing, put, rows_of, table, upsert, values

A, B = ("a", "x", 1, 10), ("b", "x", 2, 10)
NONE = "SELECT * FROM (SELECT '' AS id, '' AS city, 0 AS v, 0 AS ts) WHERE false"


class RefusedError(Exception):
    pass


def refuse(_):
    raise RefusedError


def newest(t):
    now = load(t.storage)
    return now.commit(now.timeline.completed_writes()[-1])


@pytest.mark.parametrize("type_", ["cow", "mor"])
@pytest.mark.parametrize("version", [9, 6])
def test_guard_that_refuses_leaves_the_table_as_it_was(tmp_path, type_, version):
    t = table(tmp_path / "t", type_, version)
    upsert(t, A)
    before = listing(tmp_path / "t")
    with pytest.raises(RefusedError):
        upsert(t, B, guard=refuse)
    assert listing(tmp_path / "t") == before
    assert rows_of(t) == [A]


def test_guard_sees_the_table_under_its_lock_and_adds_to_the_commit(tmp_path):
    t = table(tmp_path / "t")
    upsert(t, A)
    stale = load(t.storage)
    upsert(t, B)
    seen = []

    def guard(now):
        seen.append(len(now.timeline.completed_writes()))
        return {"k": "guard", "g": "1"}

    write(CON, stale, values(("c", "y", 3, 10)), operation="upsert", extra={"k": "given", "e": "2"}, guard=guard)
    assert seen == [2]
    assert {k: newest(t).extra[k] for k in ("k", "g", "e")} == {"k": "guard", "g": "1", "e": "2"}


def test_guard_is_asked_again_at_each_attempt(tmp_path):
    t = table(tmp_path / "t")
    for row in (A, B):
        put(t, values(row), settings={"hoodie.parquet.small.file.limit": "0"})
    schedule(t.storage, {"hoodie.layout.optimize.strategy": "linear"})
    assert load(t.storage).pending_clustering
    asked = []
    give_way = {"hoodie.clustering.rollback.pending.replacecommit.on.conflict": "true", "lakesql.write.retries": "2"}
    put(t, values(("a", "x", 9, 90)), guard=lambda now: asked.append(now), settings=give_way)
    assert len(asked) == 2
    assert not load(t.storage).pending_clustering


@pytest.mark.parametrize("type_", ["cow", "mor"])
@pytest.mark.parametrize("version", [9, 8, 6])
def test_rows_that_change_nothing_make_a_commit_when_asked_to(tmp_path, type_, version):
    t = table(tmp_path / "t", type_, version)
    assert put(t, NONE).instant is None
    empty = put(t, NONE, even_empty=True, extra={"k": "1"})
    assert empty.files_written == 0
    assert newest(t).extra["k"] == "1"
    assert not newest(t).partition_stats
    assert load(t.storage).schema == t.schema
    assert rows_of(t) == []
    upsert(t, A)
    late = upsert(t, ("a", "x", 0, 1), even_empty=True)
    assert (late.rows_ignored, late.files_written) == (1, 0)
    assert late.instant is not None
    assert rows_of(t) == [A]
