"""`python -m benchmarks.ingest.packing`: many partitions planned and packed, in seconds and in balance.

Random mixes of topics: from one topic to as many as partitions, loads of topics by a Pareto distribution, partitions of a topic
alike or uneven. `imbalance` is the weight of the heaviest task over the lower bound max(total / tasks, heaviest
partition); `whole groups` the same before groups are cut once more. The target is one second and 1.05. Run on an idle
machine: the load average is printed with the figures.
"""

import argparse
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from lakesql.ingest.model import (
    Bounds,
    Fetched,
    Format,
    Job,
    PartitionState,
    Range,
    State,
    Target,
    Topic,
    TopicPartition,
)
from lakesql.ingest.packing import Packing, pack
from lakesql.ingest.plan import plan_run

REPORT = Path(__file__).parents[1] / "report" / "packing.json"
SECONDS, IMBALANCE = 1.0, 1.05


@dataclass(frozen=True, slots=True)
class Mix:
    """So many topics share the partitions; `skew`: 0 even partitions, 1 uneven ones."""

    name: str
    topics: int
    tasks: int
    skew: float


MIXES = (
    Mix("one topic", 1, 100, 1),
    Mix("one even topic", 1, 100, 0),
    Mix("30 topics, 20 tasks", 30, 20, 1),
    Mix("300 topics, 300 tasks", 300, 300, 1),
    Mix("300 even topics", 300, 300, 0),
    Mix("3,000 topics", 3_000, 100, 1),
    Mix("10,000 topics, 1,000 tasks", 10_000, 1_000, 1),
    Mix("a topic for each partition", 100_000, 500, 1),
    Mix("10,000 tasks", 1_000, 10_000, 1),
)


@dataclass(frozen=True, slots=True)
class Measured:
    """One mix: seconds (best of the rounds), groups, balance."""

    mix: str
    partitions: int
    tasks: int
    plan_s: float
    pack_s: float
    groups: int
    cut: int
    whole_groups: float
    imbalance: float


class Cluster:
    """A client that has all bounds at hand: only planning and packing are measured."""

    def __init__(self, topics: Sequence[Topic], bounds: Mapping[TopicPartition, Bounds]) -> None:
        self._topics, self._bounds = topics, bounds

    def topics(self) -> Sequence[Topic]:
        return self._topics

    def bounds(self, partitions: Sequence[TopicPartition], isolation: str) -> Mapping[TopicPartition, Bounds]:
        assert partitions
        assert isolation
        return self._bounds

    def offsets_at(self, times_ms: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        return dict.fromkeys(times_ms, 0)

    def read(
        self, ranges: Sequence[Range], reset: str, fetch_timeout_s: float, batch_rows: int = 10_000
    ) -> Iterator[Fetched]:
        raise AssertionError(f"nothing is read: {ranges}, {reset}, {fetch_timeout_s}, {batch_rows}")

    def close(self) -> None: ...


def world(mix: Mix, partitions: int, seed: int) -> tuple[Cluster, State]:
    """Topics with bounds, and the state of a run before."""
    random = np.random.default_rng(seed)
    each = max(1, partitions // mix.topics)
    names = [f"topic-{i:06}" for i in range(min(mix.topics, partitions))]
    loads = 1000 * (1 + random.pareto(1.2, len(names)))
    bounds, stored = {}, {}
    for name, load in zip(names, loads.tolist(), strict=True):
        share = 1 + mix.skew * random.exponential(1.0, each)
        millis = float(random.uniform(0.001, 0.2))
        for number, lag in enumerate((load * share).astype(np.int64).tolist()):
            at = TopicPartition(name, number)
            bounds[at] = Bounds(10, 1000 + lag)
            stored[at] = PartitionState(next=1000, low=0, topic_id=name, average_millis=millis, average_bytes=100.0)
    topics = [Topic(name, tuple(range(each)), name) for name in names]
    return Cluster(topics, bounds), State("bench", partitions=stored)


def measure(mix: Mix, partitions: int, rounds: int) -> Measured:
    """The best of the rounds; the plan has packing in it."""
    cluster, stored = world(mix, partitions, seed=7)
    job = Job("bench", {}, Target("hudi", "/t"), Format("raw"), max_tasks=mix.tasks)
    plan_s, pack_s = [], []
    for _ in range(rounds):
        start = time.perf_counter()
        plan = plan_run(job, cluster, stored, 0)
        plan_s.append(time.perf_counter() - start)
        ranges = [one for one in plan.ranges if one.records]
        start = time.perf_counter()
        packed = pack(ranges, Packing(max_tasks=mix.tasks))
        pack_s.append(time.perf_counter() - start)
    whole = pack(ranges, Packing(max_tasks=mix.tasks, even=False))
    placed = sorted(one.at for task in packed.tasks for one in task.ranges)
    assert placed == [one.at for one in ranges], "every range is in exactly one task"
    groups = sum(len(task.units) for task in packed.tasks)
    return Measured(
        *(mix.name, len(plan.ranges), len(packed.tasks), min(plan_s), min(pack_s), groups, packed.cut),
        whole.heaviest / whole.bound,
        packed.heaviest / packed.bound,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--partitions", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    before = os.getloadavg()[0]
    found = [measure(mix, options.partitions, options.rounds) for mix in MIXES]
    print("| mix | partitions | tasks | plan s | of it packing s | groups | cut | whole groups | imbalance | met |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---|")
    for one in found:
        met = "yes" if one.plan_s < SECONDS and one.imbalance <= IMBALANCE * (1 + 1e-9) else "no"
        print(
            f"| {one.mix} | {one.partitions:,} | {one.tasks:,} | {one.plan_s:.2f} | {one.pack_s:.2f} | {one.groups:,} | {one.cut:,} |"
            f" {one.whole_groups:.3f} | {one.imbalance:.3f} | {met} |"
        )
    load = f"{before:.2f} before, {os.getloadavg()[0]:.2f} after"
    print(f"\nLoad average {load}; {os.cpu_count()} cores; best of {options.rounds}.")
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_text(json.dumps({"load": load, "rows": [asdict(one) for one in found]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
