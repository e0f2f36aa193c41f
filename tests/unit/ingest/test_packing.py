"""Ranges into tasks: the algorithm of kafka-ingestion 1.6 step by step, and what holds for every packer."""

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakesql.errors import JobError
from lakesql.ingest.model import Range
from lakesql.ingest.packing import SLACK, Packed, Packing, groups_of, pack


def ranges(weights: dict[str, Sequence[float]]) -> list[Range]:
    return [Range(t, p, 0, 1, "stored", weight=w) for t, found in weights.items() for p, w in enumerate(found)]


def packed_weights(packed: Packed) -> list[list[list[float]]]:
    return [[[r.weight for r in unit.ranges] for unit in task.units] for task in packed.tasks]


def mix(seed: int, topics: int, partitions: int) -> list[Range]:
    """Topics with an even split of loads that differ by orders of magnitude."""
    random = Random(seed)
    loads = {f"t{i:04}": random.paretovariate(1.1) for i in range(topics)}
    return ranges({t: [load * random.uniform(0.5, 1.5) for _ in range(partitions)] for t, load in loads.items()})


def test_a_light_topic_becomes_one_group() -> None:
    assert [[r.weight for r in g.ranges] for g in groups_of(ranges({"a": [1, 1, 1]}), 4)] == [[1, 1, 1]]


def test_a_heavy_topic_is_cut_by_best_fit_decreasing() -> None:
    found = groups_of(ranges({"a": [9, 6, 5, 4, 3, 1]}), 10)
    # 9; 6; 5 (6+5 > 10); 4 fits 6 -> 10 better than 5; 3 -> 5; 1 -> 9, the fullest that it fits
    assert [[r.weight for r in g.ranges] for g in found] == [[9, 1], [6, 4], [5, 3]]


def test_a_partition_above_the_cap_sits_alone() -> None:
    found = groups_of(ranges({"a": [50, 0.5, 0.5]}), 10)
    assert [[r.weight for r in g.ranges] for g in found] == [[50], [0.5, 0.5]]


def test_groups_go_to_the_lightest_task_the_heaviest_first() -> None:
    plain = Packing(max_tasks=2, factor=1, even=False)
    packed = pack(ranges({"a": [4, 4], "b": [6], "c": [2, 1]}), plain)
    # cap 8.5: a is one group of 8, b of 6, c of 3
    assert packed_weights(packed) == [[[4, 4]], [[6], [2, 1]]]
    assert [unit.group for task in packed.tasks for unit in task.units] == [0, 1, 2]
    assert [task.number for task in packed.tasks] == [0, 1]


def test_as_few_partitions_as_tasks_are_not_grouped() -> None:
    assert packed_weights(pack(ranges({"a": [1, 5], "b": [3]}), Packing(max_tasks=3))) == [[[5]], [[3]], [[1]]]


def test_a_wanted_size_of_tasks_sets_their_number() -> None:
    many = ranges({"a": [1.0] * 100})
    assert len(pack(many, Packing(max_tasks=50, target_size=30)).tasks) == 4  # int(100 / 30) + 1
    assert len(pack(many, Packing(max_tasks=3, target_size=30)).tasks) == 3


def test_single_level_balances_partitions_one_by_one() -> None:
    packed = pack(ranges({"a": [5, 4, 3], "b": [3, 3]}), Packing("SINGLE_LEVEL", max_tasks=2))
    assert packed_weights(packed) == [[[5], [3]], [[4], [3], [3]]]
    assert packed.tasks[1].weight == packed.heaviest == 10


def test_ties_go_by_topic_and_partition_in_whatever_order_ranges_come() -> None:
    many = ranges({"b": [1] * 40, "a": [1] * 40, "c": [2] * 7})
    shuffled = list(many)
    Random(3).shuffle(shuffled)
    for kind in ("BI_LEVEL", "SINGLE_LEVEL"):
        assert pack(many, Packing(kind, max_tasks=9)) == pack(shuffled, Packing(kind, max_tasks=9))


def test_nothing_to_read_is_no_task() -> None:
    assert pack([], Packing()).tasks == ()


def test_full_groups_that_do_not_divide_by_the_tasks_are_cut_once_more() -> None:
    # 31 topics that just stay under the cap: the 31st group makes one task a third heavier than the bound
    many = ranges({f"t{i:02}": [0.0966] * 10 for i in range(31)})
    whole = pack(many, Packing(max_tasks=10, even=False))
    assert whole.heaviest / whole.bound > 1.25
    cut = pack(many, Packing(max_tasks=10))
    assert cut.heaviest <= SLACK * cut.bound
    assert 0 < cut.cut <= 10


def test_one_heavy_partition_sets_the_bound() -> None:
    packed = pack(ranges({"a": [100.0] + [1.0] * 50}), Packing(max_tasks=10))
    assert packed.bound == packed.heaviest == 100


@pytest.mark.parametrize(("topics", "tasks"), [(1, 7), (30, 20), (300, 40), (40, 300), (1000, 100)])
def test_the_heaviest_task_is_within_5_percent_of_the_bound(topics: int, tasks: int) -> None:
    packed = pack(mix(topics, topics, 4000 // topics), Packing(max_tasks=tasks))
    assert packed.heaviest <= SLACK * packed.bound * (1 + 1e-9)


weights = st.one_of(st.floats(0, 1000), st.sampled_from([0.0, 1.0, 1.0, 7.0]))
topics = st.dictionaries(st.sampled_from("abcdef"), st.lists(weights, min_size=1, max_size=30), min_size=1)


@given(topics, st.integers(1, 12), st.sampled_from(["BI_LEVEL", "SINGLE_LEVEL"]), st.booleans(), st.floats(1, 6))
def test_every_range_is_in_exactly_one_task(
    found: dict[str, list[float]], tasks: int, kind: str, even: bool, factor: float
) -> None:
    many = ranges(found)
    packing = Packing(kind, tasks, factor, even=even)
    packed = pack(many, packing)
    assert sorted(r.at for task in packed.tasks for r in task.ranges) == sorted(r.at for r in many)
    assert 1 <= len(packed.tasks) <= tasks
    assert all(task.units for task in packed.tasks)
    assert pack(many[::-1], packing) == packed
    numbers = [unit.group for task in packed.tasks for unit in task.units]
    assert numbers == list(range(len(numbers)))
    cap = sum(r.weight for r in many) / (factor * tasks)
    for task in packed.tasks:
        for unit in task.units:
            assert {r.topic for r in unit.ranges} == {unit.topic}
            assert len(unit.ranges) == 1 or unit.weight <= cap * (1 + 1e-9)


@given(topics, st.integers(1, 12))
def test_cutting_never_makes_the_heaviest_task_heavier(found: dict[str, list[float]], tasks: int) -> None:
    many = ranges(found)
    whole, cut = pack(many, Packing(max_tasks=tasks, even=False)), pack(many, Packing(max_tasks=tasks))
    assert cut.heaviest <= max(whole.heaviest, SLACK * cut.bound) * (1 + 1e-9)
    assert cut.bound <= cut.heaviest * (1 + 1e-9)


# ---------------------------------------------------------------- a person's own


def by_topic(found: Sequence[Range], tasks: int) -> list[list[Range]]:
    assert tasks == 2
    return [[r for r in found if r.topic == "a"], [r for r in found if r.topic != "a"]]


def forgets(found: Sequence[Range], _tasks: int) -> list[list[Range]]:
    return [list(found[1:])]


def no_tasks(_found: Sequence[Range], _tasks: int) -> int:
    return 3


def test_a_function_packs() -> None:
    name = f"{__name__}:by_topic"
    packed = pack(ranges({"a": [1, 2], "b": [3], "c": [4]}), Packing("CUSTOM", 2, function=name))
    assert packed_weights(packed) == [[[1, 2]], [[3], [4]]]


@pytest.mark.parametrize("name", ["forgets", "no_tasks", "absent", "SLACK"])
def test_a_function_that_does_not_pack_is_refused(name: str) -> None:
    with pytest.raises(JobError, match="customizedType"):
        pack(ranges({"a": [1, 2], "b": [3]}), Packing("CUSTOM", 2, function=f"{__name__}:{name}"))
