"""Ranges into tasks: grouped by topic, then balanced (kafka-ingestion 1.6); or balanced one by one; or by a function.

BI_LEVEL has two steps. Best fit decreasing makes groups of one topic, of at most total / (factor * tasks); worst fit
decreasing puts the groups on the tasks. Ties go by weight, then topic, then partition, so a plan is the same every time.

With a factor of 3 there are about three groups to a task, nearly full ones: when their number is not a multiple of the tasks,
some task has to take a fourth, and is a third heavier than the others. No order of whole groups mends that. So a third step
cuts groups of tasks that are more than 5 % above the lower bound, max(total / tasks, heaviest range), and gives the pieces
to the lightest tasks, each as a group of its own: as few cuts as the bound needs. It fails only where single
ranges are so heavy that they fit nowhere; the imbalance is then in the notes of the plan.
"""

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from lakesql.errors import JobError
from lakesql.ingest.functions import called
from lakesql.ingest.model import Range, Task, WorkUnit

SLACK = 1.05
"""How far above the lower bound the heaviest task may be before groups are cut."""
FUNCTION = "kafka.workunit.packer.customizedType"


@dataclass(slots=True)
class _Group:
    """Ranges of one topic, in the order in which they were taken."""

    ranges: list[Range]
    weight: float

    @property
    def order(self) -> tuple[float, str, int]:
        first = self.ranges[0]
        if len(self.ranges) == 1:
            return -self.weight, first.topic, first.partition
        return -self.weight, first.topic, min(r.partition for r in self.ranges)


@dataclass(frozen=True, slots=True)
class Packing:
    """Parameters of the packing; `target_size`: weight of a task to aim at (mr.target.mapper.size)."""

    packer: str = "BI_LEVEL"
    max_tasks: int = 100
    factor: float = 3.0
    target_size: float | None = None
    even: bool = True
    function: str | None = None


@dataclass(frozen=True, slots=True)
class Packed:
    """The tasks; the weight of the heaviest, the lower bound for it, and how many pieces were cut to come near it."""

    tasks: tuple[Task, ...]
    heaviest: float = 0.0
    bound: float = 0.0
    cut: int = 0


def pack(ranges: Sequence[Range], packing: Packing) -> Packed:
    """Each range in exactly one task; at most `max_tasks` of them, none empty."""
    if not ranges:
        return Packed(())
    ranges = _heaviest_first(ranges)
    total = float(sum(r.weight for r in ranges))
    count = packing.max_tasks
    if packing.target_size is not None:
        count = min(int(total / packing.target_size) + 1, count)
    bound = max(total / min(count, len(ranges)), ranges[0].weight)
    cut = 0
    if packing.packer == "CUSTOM":
        bins = _custom(ranges, count, packing.function)
    elif len(ranges) <= count:
        bins = [[_Group([r], r.weight)] for r in ranges]
    elif packing.packer == "SINGLE_LEVEL":
        bins = worst_fit([_Group([r], r.weight) for r in ranges], count)
    else:
        bins = worst_fit(groups_of(ranges, total / (packing.factor * count)), count)
        if packing.even:
            bins += [[] for _ in range(count - len(bins))]
            cut = _even_out(bins, SLACK * bound)
    loads = [sum(group.weight for group in groups) for groups in bins]
    return Packed(_tasks(bins), max(loads), bound, cut)


def _heaviest_first(ranges: Sequence[Range]) -> list[Range]:
    ordered = sorted(ranges, key=lambda r: (r.topic, r.partition))
    order = np.argsort(-np.array([r.weight for r in ordered]), kind="stable")
    return [ordered[i] for i in order.tolist()]


def _tasks(bins: Sequence[Sequence[_Group]]) -> tuple[Task, ...]:
    tasks: list[Task] = []
    number = 0
    for groups in bins:
        if groups:
            units = [WorkUnit(group.ranges[0].topic, tuple(group.ranges), number + i) for i, group in enumerate(groups)]
            number += len(units)
            tasks.append(Task(len(tasks), tuple(units)))
    return tuple(tasks)


# ---------------------------------------------------------------- the two steps


def groups_of(ranges: Sequence[Range], cap: float) -> list[_Group]:
    """Groups of each topic by best fit decreasing. `ranges` by descending weight; a topic below the cap is one group."""
    by_topic: dict[str, list[Range]] = {}
    for one in ranges:
        by_topic.setdefault(one.topic, []).append(one)
    found: list[_Group] = []
    for topic in sorted(by_topic):
        members = by_topic[topic]
        if len(members) == 1:
            found.append(_Group(members, members[0].weight))
            continue
        total = sum(r.weight for r in members)
        found += [_Group(members, total)] if total < cap else _best_fit(members, cap)
    return found


def _best_fit(ranges: Sequence[Range], cap: float) -> list[_Group]:
    """Each range into the fullest group that it still fits; of equally full ones the first."""
    groups: list[_Group] = []
    fullness: list[tuple[float, int]] = []  # (weight, -number) of groups that may take more, ascending
    for one in ranges:
        weight = one.weight
        at = bisect_right(fullness, (cap - weight, 1)) - 1
        while at + 1 < len(fullness) and fullness[at + 1][0] + weight <= cap:
            at += 1  # the difference was rounded down
        while at >= 0 and fullness[at][0] + weight > cap:
            at -= 1  # or up
        if at < 0:
            groups.append(_Group([one], weight))
            number = len(groups) - 1
        else:
            number = -fullness.pop(at)[1]
            group = groups[number]
            group.ranges.append(one)
            group.weight += weight
        if groups[number].weight <= cap:
            entry = (groups[number].weight, -number)
            fullness.insert(bisect_left(fullness, entry), entry)
    return groups


def worst_fit(groups: list[_Group], count: int) -> list[list[_Group]]:
    """Each group, the heaviest first, to the lightest of `count` bins, of equally light ones the first; none empty."""
    bins: list[list[_Group]] = [[] for _ in range(min(count, len(groups)))]
    heap = [(0.0, number) for number in range(len(bins))]
    for group in sorted(groups, key=lambda g: g.order):
        load, number = heap[0]
        bins[number].append(group)
        heapq.heapreplace(heap, (load + group.weight, number))
    return bins


# ---------------------------------------------------------------- the third step


def _even_out(bins: list[list[_Group]], limit: float) -> int:
    """Cut pieces off the bins above the limit and give them to the lightest ones. Returns how many pieces."""
    loads = [sum(group.weight for group in groups) for groups in bins]
    light = [(load, number) for number, load in enumerate(loads)]
    heapq.heapify(light)
    pieces = 0
    for donor in sorted(range(len(bins)), key=lambda number: (-loads[number], number)):
        while loads[donor] > limit:
            load, receiver = light[0]
            if load != loads[receiver]:
                heapq.heapreplace(light, (loads[receiver], receiver))  # it was a donor itself meanwhile
                continue
            piece = _piece(bins[donor], loads[donor] - limit, limit - load) if receiver != donor else None
            if piece is None:
                break
            bins[receiver].append(piece)
            bins[donor] = [group for group in bins[donor] if group.ranges]
            loads[donor] -= piece.weight
            loads[receiver] += piece.weight
            heapq.heapreplace(light, (loads[receiver], receiver))
            pieces += 1
    return pieces


def _piece(groups: Sequence[_Group], excess: float, room: float) -> _Group | None:
    """Ranges of one group, of at least the excess if that fits into the room, else as much of it as fits. Taken out of the group."""
    best: list[int] = []
    most, source = 0.0, None
    for group in groups:
        taken, weight = [], 0.0
        for i, one in enumerate(group.ranges):
            if weight >= excess:
                break
            if 0 < one.weight <= room - weight:
                taken.append(i)
                weight += one.weight
        if weight > most:
            best, most, source = taken, weight, group
        if most >= excess:
            break
    if source is None:
        return None
    chosen = set(best)
    piece = _Group([source.ranges[i] for i in best], most)
    source.ranges = [one for i, one in enumerate(source.ranges) if i not in chosen]
    source.weight = sum(one.weight for one in source.ranges)
    return piece


# ---------------------------------------------------------------- a person's own


def _custom(ranges: Sequence[Range], count: int, name: str | None) -> list[list[_Group]]:
    """Called with the ranges and the number of tasks; gives the ranges of each task."""
    given = called(name, FUNCTION, tuple(ranges), count)
    try:
        bins = [list(task) for task in given]
        placed = sorted(one.at for task in bins for one in task)
    except (TypeError, AttributeError) as error:
        raise JobError(
            f"{FUNCTION} = {name}: the function must return a list of ranges for each task ({error}). Correct it."
        ) from error
    if placed != sorted(one.at for one in ranges) or len([task for task in bins if task]) > count:
        raise JobError(
            f"{FUNCTION} = {name}: the function must put each of the {len(ranges)} ranges into exactly one of at most {count} tasks."
            " Correct it."
        )
    own = {one.at: one for one in ranges}
    found = []
    for task in bins:
        members = sorted((own[one.at] for one in task), key=lambda r: (r.topic, r.partition))
        parts = [list(part) for _, part in groupby(members, key=lambda r: r.topic)]
        found.append([_Group(part, sum(one.weight for one in part)) for part in parts])
    return [groups for groups in found if groups]
