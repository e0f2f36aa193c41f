"""What a run does, decided before anything is read: a range for each partition, packed into tasks.

`offsets` decides about a single partition, `weights` what it weighs, `packing` which task reads it. Here they are joined
with what the brokers have and what is stored: topics that appear and vanish, partitions that are added, offsets that are
carried on. Every stored offset is in the plan (kafka-ingestion 2.2), and every record that will not be read is counted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from lakesql.counted import counted
from lakesql.errors import IngestError
from lakesql.ingest.collector import without_collector
from lakesql.ingest.model import Bounds, Client, Job, PartitionState, Plan, Range, State, Topic, TopicPartition
from lakesql.ingest.offsets import LEFT, Policy, Refused, Start, decide, is_new, policy_of
from lakesql.ingest.packing import Packing, pack
from lakesql.ingest.plan_notes import notes_of
from lakesql.ingest.topics import absent, selected, settings_of
from lakesql.ingest.weights import custom_weights, expected_bytes, weights

Starts = dict[TopicPartition, Start]

PLAN = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("low", pa.int64()),
        pa.field("high", pa.int64()),
        pa.field("expected_records", pa.int64()),
        pa.field("expected_bytes", pa.int64()),
        pa.field("bytes_assumed", pa.bool_()),
        pa.field("reason", pa.string()),
        pa.field("gap_from", pa.int64()),
        pa.field("gap_to", pa.int64()),
        pa.field("skipped", pa.int64()),
        pa.field("group", pa.int32()),
        pa.field("task", pa.int32()),
        pa.field("error", pa.string()),
    ]
)


def plan_run(job: Job, client: Client, stored: State, now_ms: int) -> Plan:
    """The plan of one run. IngestError when there is nothing to read from, or when the reset rule `fail` says so."""
    with without_collector():  # collecting among hundreds of thousands of small objects would double the time
        return _planned(job, client, stored, now_ms)


def _planned(job: Job, client: Client, stored: State, now_ms: int) -> Plan:
    topics = client.topics()
    chosen = selected(topics, job)
    if not chosen and not stored.partitions:
        raise IngestError(
            f"job {job.name}: no topic of the brokers {job.client.get('bootstrap.servers')} is named by topic.whitelist ="
            f" {', '.join(job.whitelist) or '.*'} and left by topic.blacklist = {', '.join(job.blacklist)!r};"
            f" they have {counted(len(topics), 'topic')}. Correct the lists, or create the topic."
        )
    starts, refused = _decided(job, client, chosen, stored)
    _refuse_losses(job, starts)
    carried = _carried(starts, topics, chosen, stored)
    ranges = _ranges(job, starts, stored)
    packed = pack([one for one in ranges if one.records], packing_of(job))
    return Plan(
        job=job.name,
        ranges=ranges,
        tasks=packed.tasks,
        carried={at: why for at, why in carried.items() if why},
        notes=notes_of(job, starts, refused, carried, absent(topics, job), _missing(carried, stored, now_ms), packed),
        unknown={at: one.why for at, one in refused.items() if one.failed},
    )


def packing_of(job: Job) -> Packing:
    """How a job packs its ranges."""
    return Packing(
        packer=job.packer,
        max_tasks=job.max_tasks,
        factor=job.pre_grouping_factor,
        target_size=job.target_task_size,
        even=job.settings.get("lakesql.packing.even", "true").lower() != "false",
        function=job.packer_function,
    )


# ---------------------------------------------------------------- decisions


def _decided(
    job: Job, client: Client, chosen: Sequence[Topic], stored: State
) -> tuple[Starts, dict[TopicPartition, Refused]]:
    """What is decided about each partition of the chosen topics."""
    policies = _policies(job, chosen)
    partitions = [TopicPartition(topic.name, number) for topic in chosen for number in sorted(topic.partitions)]
    bounds = client.bounds(partitions, job.isolation) if partitions else {}
    by_time = _by_time(client, chosen, policies, bounds, stored)
    known = {topic for topic, _ in stored.partitions}
    of_topic = {topic.name: (topic.id, policies[topic.name], topic.name in known) for topic in chosen}
    starts: Starts = {}
    refused: dict[TopicPartition, Refused] = {}
    before = stored.partitions
    for at in partitions:
        topic_id, policy, added = of_topic[at[0]]
        found = decide(bounds.get(at), before.get(at), topic_id, policy, added=added, at_time=by_time.get(at))
        if isinstance(found, Refused):
            refused[at] = found
        else:
            starts[at] = found
    return starts, refused


def _policies(job: Job, chosen: Sequence[Topic]) -> dict[str, Policy]:
    """The policy of each topic; one for all of them where none is named."""
    plain = policy_of(job, "", {})
    if not job.topic_settings and not job.to_latest:
        return dict.fromkeys((topic.name for topic in chosen), plain)
    return {topic.name: policy_of(job, topic.name, settings_of(job, topic.name)) for topic in chosen}


def _by_time(
    client: Client,
    chosen: Sequence[Topic],
    policies: Mapping[str, Policy],
    bounds: Mapping[TopicPartition, Bounds],
    stored: State,
) -> Mapping[TopicPartition, int]:
    """Offsets by time, for the partitions that start there."""
    times: dict[TopicPartition, int] = {}
    for topic in chosen:
        policy = policies[topic.name]
        if policy.bootstrap != "timestamp" or policy.at_ms is None or policy.to_latest:
            continue
        for number in topic.partitions:
            at = TopicPartition(topic.name, number)
            found = bounds.get(at)
            if found is not None and found.error is None and is_new(stored.partitions.get(at), topic.id):
                times[at] = policy.at_ms
    return client.offsets_at(times) if times else {}


def _refuse_losses(job: Job, starts: Starts) -> None:
    """reset.on.offset.out.of.range = fail: nothing of the run is read."""
    lost = [f"{at}: {start.error}" for at, start in starts.items() if start.kind == "fail"]
    if lost:
        shown = "; ".join(lost[:5]) + (f"; and {len(lost) - 5} more" if len(lost) > 5 else "")
        raise IngestError(
            f"job {job.name}: {shown}. Records are lost. Set reset.on.offset.out.of.range to nearest, earliest or latest to go"
            " on with the gap recorded, or set the offsets yourself."
        )


def _carried(
    starts: Starts, topics: Sequence[Topic], chosen: Sequence[Topic], stored: State
) -> dict[TopicPartition, str]:
    """Stored offsets of partitions that were not decided about, kept in empty ranges, which are added to `starts`.

    Gives the reasons, and those of the ranges that were decided about and only keep their offset.
    """
    there, wanted = {topic.name for topic in topics}, {topic.name for topic in chosen}
    carried = {
        at: start.error or start.reason
        for at, start in starts.items()
        if start.kind in ("unknown", "skip") or start.reason == LEFT
    }
    for at, one in stored.partitions.items():
        if at in starts or one.next < 0:
            continue
        if at.topic not in there:
            why = "the topic is gone"
        elif at.topic not in wanted:
            why = "the topic is not selected"
        else:
            why = "the partition is gone"
        carried[at] = why
        starts[at] = Start(
            one.next, one.next, f"carried: {why}", "carried", one.next, None, 0, one.topic_id, one.leader_epoch
        )
    return carried


def _missing(carried: Mapping[TopicPartition, str], stored: State, now_ms: int) -> dict[TopicPartition, float]:
    """For how many seconds topics and partitions have been gone."""
    gone = [at for at, why in carried.items() if why.endswith("is gone")]
    since: dict[TopicPartition, PartitionState] = {at: stored.partitions[at] for at in gone}
    return {at: max(0.0, (now_ms - (one.missing_since_ms or now_ms)) / 1000) for at, one in since.items()}


# ---------------------------------------------------------------- ranges


def _ranges(job: Job, starts: Starts, stored: State) -> tuple[Range, ...]:
    """The ranges in order, with what they weigh."""
    places = sorted(starts)
    records = np.array([starts[at].high - starts[at].low for at in places], dtype=np.int64)
    size = expected_bytes(places, records, stored)
    weight = weights(job, places, records, stored)
    ranges, before = [], stored.partitions
    for at, expected, heavy in zip(places, size.tolist(), weight.tolist(), strict=True):
        s, known = starts[at], before.get(at)
        ranges.append(
            Range(
                *at,
                s.low,
                s.high,
                s.reason,
                s.stored,
                s.gap,
                s.skipped,
                expected,
                heavy,
                s.topic_id,
                s.leader_epoch,
                s.error,
                s.high > s.low and (known is None or known.average_bytes is None),
            )
        )
    if job.estimator == "CUSTOM":
        own = custom_weights(job, ranges, stored)
        ranges = [replace(one, weight=heavy) for one, heavy in zip(ranges, own, strict=True)]
    return tuple(ranges)


def plan_table(plan: Plan) -> pa.Table:
    """The plan as rows, for EXPLAIN: one for each range, and one without offsets for each partition that stays new by failure."""
    places = {one.at: (unit.group, task.number) for task in plan.tasks for unit in task.units for one in unit.ranges}
    rows = [
        (
            *(one.topic, one.partition, one.low, one.high, one.records),
            *(round(one.expected_bytes), one.bytes_assumed, one.reason),
            *(one.gap or (None, None)),
            one.skipped,
            *places.get(one.at, (None, None)),
            one.error,
        )
        for one in plan.ranges
    ]
    rows += [(*at, *(None,) * 5, "offsets unknown", *(None,) * 5, why) for at, why in plan.unknown.items()]
    rows.sort(key=lambda row: (row[0], row[1]))
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(PLAN)
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, PLAN, strict=True)], schema=PLAN)
