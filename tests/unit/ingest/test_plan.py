"""The plan of a run: topics that come and go, offsets that are carried, what is said about losses, the plan as a table."""

import time

import pytest

from lakesql.errors import IngestError, JobError
from lakesql.ingest.model import PartitionState, Plan, Range, State, Topic
from lakesql.ingest.plan import PLAN, plan_run, plan_table
from lakesql.ingest.topics import absent, selected, settings_of, target_options
from tests.unit.ingest.cluster import FakeCluster, Spans, at, job, state

NOTHING = State("j")


def planned(spans: Spans, stored: State = NOTHING, ids: dict[str, str] | None = None, **fields: object) -> Plan:
    return plan_run(job(**fields), FakeCluster(spans, ids), stored, now_ms=10_000)


def said(plan: Plan, *words: str) -> bool:
    return any(all(word in note for word in words) for note in plan.notes)


# ---------------------------------------------------------------- topics


def names(*patterns: str, black: tuple[str, ...] = (), **fields: object) -> list[str]:
    topics = [Topic(name, (0,)) for name in ("orders", "Orders_eu", "pay.ments", "x")]
    return [topic.name for topic in selected(topics, job(whitelist=patterns, blacklist=black, **fields))]


def test_lists_match_whole_names_in_any_case_and_the_blacklist_wins() -> None:
    assert names() == ["Orders_eu", "orders", "pay.ments", "x"]
    assert names("ORDERS") == ["orders"]
    assert names("order", "x.*") == ["x"]
    assert names("orders.*", black=(".*_EU",)) == ["orders"]
    assert names("(?i)ord.*", r"(p)a\1?y.*") == ["Orders_eu", "orders", "pay.ments"]


def test_names_with_a_dot_can_be_left_out() -> None:
    assert "pay.ments" not in names(settings={"gobblin.kafka.allowPeriodInTopicName": "FALSE"})


def test_settings_of_single_topics_are_merged_in_order() -> None:
    some = job(topic_settings=(("ord.*", {"a": "1", "b": "1"}), ("ORDERS", {"b": "2"}), ("order", {"a": "9"})))
    assert settings_of(some, "orders") == {"a": "1", "b": "2"}
    assert settings_of(some, "other") == {}
    assert target_options(some, "orders")["b"] == "2"


def test_plain_names_that_no_topic_has_are_told() -> None:
    topics = [Topic("orders", ()), Topic("a.b", ())]
    assert absent(topics, job(whitelist=("Orders", "a.b", "gone", "x.*", r"c\.d"))) == ["gone", "c.d"]


def test_no_topic_at_all_is_an_error_on_a_first_run_and_a_note_later() -> None:
    with pytest.raises(IngestError, match=r"no topic .* topic.whitelist = gone.*1 topic"):
        planned({"t": {0: (0, 1)}}, whitelist=("gone",))
    later = planned({"t": {0: (0, 1)}}, state({"t:0": 1}), whitelist=("gone",))
    assert said(later, "no topic gone")
    assert later.carried == {at("t:0"): "the topic is not selected"}
    assert later.tasks == ()


# ---------------------------------------------------------------- ranges


def test_stored_offsets_go_on_and_new_partitions_start_by_bootstrap() -> None:
    plan = planned({"t": {0: (0, 9), 1: (2, 7)}}, state({"t:0": 4}), bootstrap="earliest")
    assert [(r.at, r.low, r.high, r.reason) for r in plan.ranges] == [
        (at("t:0"), 4, 9, "stored"),
        (at("t:1"), 2, 7, "bootstrap earliest"),
    ]
    assert sorted(r.at for task in plan.tasks for r in task.ranges) == [at("t:0"), at("t:1")]
    assert plan.carried == {}
    assert plan.notes == ()


def test_what_latest_skips_is_said() -> None:
    plan = planned({"t": {0: (10, 1010)}})
    assert plan.ranges[0].skipped == 1000
    assert said(plan, "Skipped: 1,000 records of 1 partition", "bootstrap latest", "t:0 starts at 1010")
    assert plan.tasks == ()


def test_ranges_with_nothing_to_read_are_in_the_plan_but_in_no_task() -> None:
    plan = planned({"t": {0: (0, 5), 1: (0, 5)}}, state({"t:0": 5, "t:1": 3}))
    assert [r.at for r in plan.ranges] == [at("t:0"), at("t:1")]
    assert [r.at for task in plan.tasks for r in task.ranges] == [at("t:1")]


def test_vanished_topics_and_partitions_keep_their_offsets() -> None:
    before = state({"t:0": 3, "t:1": 4, "gone:0": 5, "other:0": 6})
    plan = planned({"t": {0: (0, 3)}, "other": {0: (0, 9)}}, before, whitelist=("t", "gone"))
    assert {r.at: (r.low, r.high) for r in plan.ranges} == {
        at("t:0"): (3, 3),
        at("t:1"): (4, 4),
        at("gone:0"): (5, 5),
        at("other:0"): (6, 6),
    }
    assert plan.carried == {
        at("t:1"): "the partition is gone",
        at("gone:0"): "the topic is gone",
        at("other:0"): "the topic is not selected",
    }


def test_a_topic_that_comes_back_goes_on_where_it_was() -> None:
    missing = state({"t:0": 3}, missing_since_ms=4_000)
    assert said(planned({"u": {0: (0, 0)}}, missing), "the topic is gone", "6 seconds")
    assert planned({"t": {0: (0, 9)}}, missing).ranges[0].low == 3


def test_offsets_that_cannot_be_had_are_kept_and_new_partitions_stay_new() -> None:
    plan = planned({"t": {0: "no leader", 1: "no leader", 2: (0, 5)}}, state({"t:0": 3, "t:2": 0}))
    assert [(r.at, r.low, r.high, r.error) for r in plan.ranges] == [
        (at("t:0"), 3, 3, "no leader"),
        (at("t:2"), 0, 5, None),
    ]
    assert plan.carried == {at("t:0"): "no leader"}
    assert plan.unknown == {at("t:1"): "no leader"}
    assert said(plan, "Cannot be read now: 2 partitions", "t:0: no leader")


def test_a_gap_is_counted_said_and_in_the_table() -> None:
    plan = planned({"t": {0: (100, 200)}}, state({"t:0": 40}))
    assert said(plan, "Lost: 60 records of 1 partition", "t:0 from 40 to 100")
    row = plan_table(plan).to_pylist()[0]
    assert (row["gap_from"], row["gap_to"], row["low"], row["reason"]) == (40, 100, 100, "reset nearest: earliest")


def test_an_offset_past_the_end_is_said() -> None:
    assert said(planned({"t": {0: (0, 5)}}, state({"t:0": 9})), "above the end", "t:0 at 9, goes on at 5")


def test_the_reset_rule_fail_reads_nothing() -> None:
    with pytest.raises(
        IngestError, match=r"t:0: the stored offset 40 is below .*100 to 200.*Set reset.on.offset.out.of.range"
    ):
        planned({"t": {0: (100, 200)}, "u": {0: (0, 5)}}, state({"t:0": 40}), reset="fail")


def test_the_reset_rule_skip_keeps_the_partition_where_it_is() -> None:
    plan = planned({"t": {0: (100, 200), 1: (0, 5)}}, state({"t:0": 40, "t:1": 1}), reset="skip")
    assert (plan.ranges[0].low, plan.ranges[0].high) == (40, 40)
    assert "the reset rule is skip" in plan.carried[at("t:0")]
    assert [r.at for task in plan.tasks for r in task.ranges] == [at("t:1")]


def test_a_topic_made_again_is_a_new_one_and_said() -> None:
    plan = planned({"t": {0: (0, 50)}}, state({"t:0": 40}, topic_id="old"), ids={"t": "new"}, bootstrap="earliest")
    assert (plan.ranges[0].low, plan.ranges[0].topic_id) == (0, "new")
    assert said(plan, "deleted and made again: 1 partition", "t:0 at 0, stored was 40")
    left = planned({"t": {0: (0, 50)}}, state({"t:0": 40}, topic_id="old"), ids={"t": "new"}, bootstrap="skip")
    assert left.carried == {at("t:0"): "new topic id: skipped"}


def test_topics_move_to_their_end() -> None:
    plan = planned({"T": {0: (0, 50)}, "u": {0: (0, 5)}}, state({"T:0": 10, "u:0": 0}), to_latest=frozenset({"t"}))
    assert [(r.low, r.high, r.skipped) for r in plan.ranges] == [(50, 50, 40), (0, 5, 0)]
    assert said(plan, "Skipped: 40 records", "T:0 goes on at 50")
    everyone = planned({"T": {0: (0, 50)}, "u": {0: (0, 5)}}, to_latest=frozenset({"all"}))
    assert [(r.low, r.high) for r in everyone.ranges] == [(50, 50), (5, 5)]


def test_a_start_by_time_asks_only_for_new_partitions() -> None:
    cluster = FakeCluster({"t": {0: (0, 50), 1: (0, 50)}}, times={1: 30})
    by_time = job(bootstrap="timestamp", settings={"lakesql.bootstrap.timestamp": "2024-01-01"})
    plan = plan_run(by_time, cluster, state({"t:0": 7}), 0)
    assert [(r.low, r.reason) for r in plan.ranges] == [(7, "stored"), (30, "bootstrap timestamp")]
    lost = plan_run(by_time, FakeCluster({"t": {0: (0, 50)}}), NOTHING, 0)
    assert "time" in lost.unknown[at("t:0")]


def test_single_topics_follow_their_own_settings() -> None:
    plan = planned(
        {"a": {0: (0, 50)}, "b": {0: (0, 50)}}, topic_settings=(("A", {"bootstrap.with.offset": "earliest"}),)
    )
    assert [r.low for r in plan.ranges] == [0, 50]


def test_partitions_added_to_a_known_topic_may_start_at_their_first_record() -> None:
    spans: Spans = {"t": {0: (0, 5), 1: (0, 50)}, "u": {0: (0, 50)}}
    assert [r.low for r in planned(spans, state({"t:0": 5})).ranges] == [5, 50, 50]
    some = {"lakesql.bootstrap.added.partitions": "earliest"}
    assert [r.low for r in planned(spans, state({"t:0": 5}), settings=some).ranges] == [5, 0, 50]


def test_bootstrap_skip_leaves_partitions_out_and_says_so() -> None:
    plan = planned({"t": {0: (0, 50)}}, bootstrap="skip")
    assert (plan.ranges, plan.unknown) == ((), {})
    assert said(plan, "Left new and unread: 1 partition", "t:0")


def test_bounds_of_all_partitions_are_asked_for_together() -> None:
    cluster = FakeCluster({"a": {0: (0, 1), 1: (0, 1)}, "b": {0: (0, 1)}})
    plan_run(job(), cluster, NOTHING, 0)
    assert cluster.asked == [3]


# ---------------------------------------------------------------- weights


def weighed(stored: State, **fields: object) -> list[float]:
    plan = planned({"a": {0: (0, 10), 1: (0, 10)}, "b": {0: (0, 10)}}, stored, bootstrap="earliest", **fields)
    return [round(r.weight, 6) for r in plan.ranges]


def seen(millis: dict[str, float | None], size: float | None = None) -> State:
    parts = {at(k): PartitionState(0, 0, average_millis=v, average_bytes=size) for k, v in millis.items()}
    return State("j", partitions=parts)


def test_time_weighs_by_the_geometric_mean_of_the_topic() -> None:
    assert weighed(NOTHING) == [10, 10, 10]
    assert weighed(seen({"a:0": 2, "a:1": 8})) == [40, 40, 40]  # b: the mean over all topics
    assert weighed(seen({"a:0": 2, "a:1": 8, "b:0": 1})) == [40, 40, 10]
    assert weighed(seen({"a:0": 2, "c:0": 8})) == [20, 20, 40, 0]
    assert weighed(seen({"a:0": None, "b:0": 3})) == [30, 30, 30]


def test_times_are_floored_and_capped() -> None:
    assert weighed(seen({"a:0": 1e9, "b:0": 0})) == [1000, 1000, 0.1]
    assert weighed(seen({"a:0": 1e9, "b:0": 0}), settings={"kakfa.source.avgFetchTimeCap": "5"}) == [50, 50, 0.1]


def test_size_weighs_by_the_bytes_of_the_partition() -> None:
    assert weighed(NOTHING, estimator="AVG_RECORD_SIZE") == [10240, 10240, 10240]
    assert weighed(seen({"a:1": None}, size=7), estimator="AVG_RECORD_SIZE") == [10240, 70, 10240]


def by_number(ranges: tuple[Range, ...], stored: State) -> list[float]:
    assert stored.ingestion == "j"
    return [r.partition + 0.5 for r in ranges]


def too_few(ranges: tuple[Range, ...], _stored: State) -> list[float]:
    return [1.0] * (len(ranges) - 1)


def negative(ranges: tuple[Range, ...], _stored: State) -> list[float]:
    return [-1.0] * len(ranges)


def text(ranges: tuple[Range, ...], _stored: State) -> list[str]:
    return ["heavy"] * len(ranges)


def fails(ranges: tuple[Range, ...], _stored: State) -> list[float]:
    return [1 / one.partition for one in ranges]


def test_a_function_weighs() -> None:
    assert weighed(NOTHING, estimator="CUSTOM", estimator_function=f"{__name__}:by_number") == [0.5, 1.5, 0.5]


@pytest.mark.parametrize("name", ["too_few", "negative", "text", "fails", "not_there"])
def test_a_function_that_does_not_weigh_is_refused(name: str) -> None:
    with pytest.raises(JobError, match=r"size\.estimator\.customizedType"):
        weighed(NOTHING, estimator="CUSTOM", estimator_function=f"{__name__}:{name}")


# ---------------------------------------------------------------- as a whole


def test_the_table_has_a_row_for_every_partition() -> None:
    plan = planned(
        {"t": {0: (0, 9), 1: "no leader", 2: (5, 5)}}, state({"t:0": 4}, average_bytes=10.0), bootstrap="earliest"
    )
    table = plan_table(plan)
    assert table.schema == PLAN
    found = table.to_pylist()
    assert [(r["partition"], r["low"], r["high"], r["expected_records"], r["expected_bytes"]) for r in found] == [
        (0, 4, 9, 5, 50),
        (1, None, None, None, None),
        (2, 5, 5, 0, 0),
    ]
    assert [(r["group"], r["task"], r["error"]) for r in found] == [
        (0, 0, None),
        (None, None, "no leader"),
        (None, None, None),
    ]
    assert plan_table(Plan("j", (), ())).num_rows == 0


def test_imbalance_and_cuts_are_said() -> None:
    crowd: Spans = {f"t{i:02}": dict.fromkeys(range(10), (0, 100)) for i in range(31)}
    assert said(planned(crowd, bootstrap="earliest", max_tasks=10), "Cut off groups", "5%")
    left = planned(crowd, bootstrap="earliest", max_tasks=10, settings={"lakesql.packing.even": "false"})
    assert said(left, "heaviest task weighs 1.29 times")


def test_a_plan_is_the_same_each_time() -> None:
    spans: Spans = {f"t{i}": {p: (0, 10 + i * p % 7) for p in range(9)} for i in range(9)}
    again = {name: dict(reversed(parts.items())) for name, parts in reversed(spans.items())}
    one, other = (planned(s, bootstrap="earliest", max_tasks=5) for s in (spans, again))
    assert one == other


def test_many_partitions_are_planned_and_packed_soon() -> None:
    spans: Spans = {f"t{i:03}": {p: (0, 1 + (i * 31 + p * 17) % 1009) for p in range(100)} for i in range(200)}
    before = time.process_time()
    plan = planned(spans, bootstrap="earliest", max_tasks=100)
    assert len(plan.ranges) == 20_000
    assert time.process_time() - before < 2  # an idle machine needs a tenth of it; a quadratic step would need minutes
