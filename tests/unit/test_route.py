"""Routing, on counts alone."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakesql.errors import CommitConflict
from lakesql.format.files import BaseFile, FileSlice, LogFile
from lakesql.write.plan import APPEND, CREATE, REWRITE, Changes
from lakesql.write.route import Layout, Sizing, route_rows

T = "20260101000000000"
SIZING = Sizing(
    max_file_bytes=1000, small_file_bytes=800, small_file_candidates=1, insert_split_rows=500, record_bytes=10
)


def group(name, size=900, partition="p", logs=0):
    base = BaseFile(partition, f"{name}_0-0-1_{T}.parquet", name, "0-0-1", T, size)
    files = tuple(LogFile(partition, f".{name}_{T}.log.{i}_0-0-1", name, T, i, "0-0-1", 10) for i in range(1, logs + 1))
    return FileSlice(partition, name, T, base, files)


def layout(*slices, mor=False, version=9, compacting=(), clustering=()):
    return Layout(slices, mor, version, dict.fromkeys(compacting, "c1"), dict.fromkeys(clustering, "k1"), "table t")


def plan(table, inserts=None, changes=None, sizing=SIZING, **more):
    ids = (f"new{i}" for i in itertools.count())
    return route_rows(table, inserts or {}, changes or {}, sizing, lambda: next(ids), **more)


def test_changes_rewrite_on_copy_on_write_and_append_on_merge_on_read():
    changes = {1: Changes(updates=3, deletes=1)}
    (cow,) = plan(layout(group("a"), group("b")), changes=changes)
    (mor,) = plan(layout(group("a"), group("b"), mor=True), changes=changes)
    assert (cow.kind, cow.file_id, cow.slice_no, cow.changes) == (REWRITE, "b", 1, changes[1])
    assert (mor.kind, mor.file_id) == (APPEND, "b")


def test_inserts_fill_a_small_file_before_they_open_a_group():
    targets = plan(layout(group("a", size=600)), {"p": 100})
    assert [(t.kind, t.file_id, t.first_insert, t.inserts) for t in targets] == [
        (REWRITE, "a", 0, 40),
        (CREATE, "new0-0", 40, 60),
    ]


def test_inserts_of_another_partition_do_not_fill_a_small_file():
    (target,) = plan(layout(group("a", size=100)), {"q": 5})
    assert (target.kind, target.partition) == (CREATE, "q")


def test_new_groups_get_equal_shares_within_the_maximum():
    targets = plan(layout(), {"p": 250})
    assert [t.inserts for t in targets] == [83, 83, 84]
    assert len({t.file_id for t in targets}) == 3


def test_small_file_that_is_rewritten_anyway_is_filled_first():
    table = layout(group("a", size=100), group("b", size=500))
    (target,) = plan(table, {"p": 10}, {1: Changes(updates=1)})
    assert (target.file_id, target.inserts, target.changes.updates) == ("b", 10, 1)


def test_merge_on_read_packs_only_into_groups_without_logs_and_merges_their_changes_into_the_base():
    table = layout(group("a", size=100, logs=1), group("b", size=200), mor=True)
    (target,) = plan(table, {"p": 10}, {1: Changes(updates=2)})
    assert (target.kind, target.file_id, target.inserts, target.changes.updates) == (REWRITE, "b", 10, 2)


def test_merge_on_read_considers_one_small_file_only():
    table = layout(group("a", size=790), group("b", size=795), mor=True)
    targets = plan(table, {"p": 30})
    assert [(t.kind, t.inserts) for t in targets] == [(REWRITE, 21), (CREATE, 9)]


@pytest.mark.parametrize("pending", ["compacting", "clustering"])
def test_groups_under_a_pending_plan_are_not_packed_into(pending):
    table = layout(group("a", size=100), mor=True, **{pending: [("p", "a")]})
    (target,) = plan(table, {"p": 10})
    assert target.kind == CREATE


def test_small_file_limit_of_zero_turns_packing_off():
    sizing = Sizing(1000, 0, 1, 500, 10)
    (target,) = plan(layout(group("a", size=100)), {"p": 10}, sizing=sizing)
    assert target.kind == CREATE


def test_bulk_insert_opens_new_groups_only():
    (target,) = plan(layout(group("a", size=100)), {"p": 10}, new_groups_only=True)
    assert target.kind == CREATE


def test_touched_group_under_clustering_is_a_conflict_in_full_words():
    table = layout(group("a"), clustering=[("p", "a")])
    with pytest.raises(CommitConflict) as error:
        plan(table, changes={0: Changes(updates=1)})
    assert str(error.value) == (
        "table t: file group p/a is part of the pending clustering k1, which will replace it. "
        "Nothing was committed. Run or roll back the clustering, then write again; or set "
        "hoodie.clustering.rollback.pending.replacecommit.on.conflict = true, and writes roll it back."
    )


def test_touched_group_under_compaction_is_a_conflict_in_version_6_only():
    changes = {0: Changes(updates=1)}
    (target,) = plan(layout(group("a"), mor=True, version=8, compacting=[("p", "a")]), changes=changes)
    assert target.kind == APPEND
    with pytest.raises(CommitConflict, match="in table version 6"):
        plan(layout(group("a"), mor=True, version=6, compacting=[("p", "a")]), changes=changes)


@given(
    sizes=st.lists(st.integers(0, 1200), max_size=6),
    count=st.integers(0, 2000),
    changed=st.sets(st.integers(0, 5)),
    mor=st.booleans(),
    record_bytes=st.floats(0.5, 500),
)
def test_no_insert_is_lost_or_doubled_and_no_file_grows_past_the_limit(sizes, count, changed, mor, record_bytes):
    table = layout(*(group(f"g{i}", size=s) for i, s in enumerate(sizes)), mor=mor)
    changes = {n: Changes(updates=1) for n in changed if n < len(sizes)}
    sizing = Sizing(1000, 800, 1, 500, record_bytes)
    targets = plan(table, {"p": count}, changes, sizing)
    ranges = sorted((t.first_insert, t.first_insert + t.inserts) for t in targets if t.inserts)
    assert [low for low, _ in ranges] == [0, *(high for _, high in ranges)][: len(ranges)]
    assert sum(high - low for low, high in ranges) == count
    for t in targets:
        old = table.slices[t.slice_no].base.size_bytes if t.slice_no is not None else 0
        assert t.inserts <= 1 or old + t.inserts * record_bytes <= sizing.max_file_bytes
    assert {t.slice_no for t in targets if t.changes.updates} == set(changes)
