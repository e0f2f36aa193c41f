"""Adaptive compaction: what a round decides, from facts alone."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakesql.services.adaptive import allowed_seconds, decide, score
from lakesql.services.adaptive_limits import needed_share, shortfall
from lakesql.services.adaptive_model import (
    Costs,
    Facts,
    Group,
    Run,
    Target,
    amplification,
    measured_factor,
    weighted_rate,
)
from lakesql.services.adaptive_words import decision_text
from lakesql.simulation.patterns import PATTERNS
from lakesql.simulation.strategies import adaptive
from lakesql.simulation.world import simulate

MB = 1 << 20
COSTS = Costs(round_s=0.0, group_s=0.0, base_byte_s=1 / (10 * MB), log_byte_s=1 / (10 * MB))


def group(name: str, base_mb: float, log_mb: float, age_s: float = 60.0, **more) -> Group:
    return Group(("p", name), int(base_mb * MB), int(log_mb * MB), log_files=4 if log_mb else 0, age_s=age_s, **more)


def names(groups) -> list[str]:
    return [g.key[1] for g in groups]


def facts(*groups: Group, **more) -> Facts:
    return Facts(tuple(groups), **{"costs": COSTS, **more})


# ---------------------------------------------------------------- which groups


def test_nothing_is_compacted_while_the_target_is_met():
    found = decide(facts(group("a", 100, 20), group("b", 100, 10)), Target(1.2))
    assert not found.compact
    assert not found.fold
    assert found.before == pytest.approx(1.15)


def test_without_any_target_a_snapshot_may_read_one_and_a_half_times_the_base_files():
    assert not decide(facts(group("a", 100, 49)), Target()).compact
    assert decide(facts(group("a", 100, 51)), Target()).compact


def test_groups_go_by_what_readers_paid_per_byte_moved_until_the_target_is_met():
    small = group("small", 10, 10)
    large = group("large", 200, 12)
    old = group("old", 200, 12, age_s=600)
    found = decide(facts(large, old, small, group("clean", 100, 0)), Target(1.03))
    assert score(small, COSTS) > score(old, COSTS) > score(large, COSTS)
    assert names(found.compact) == ["small", "old"]
    assert found.after <= 1.03
    assert found.left == 1


def test_a_group_with_half_the_score_goes_along_and_one_with_less_stays():
    first, half, less = group("first", 100, 40), group("half", 100, 26), group("less", 100, 12)
    found = decide(facts(first, half, less), Target(1.2))
    assert found.amplified == 1
    assert names(found.compact) == ["first", "half"]


def test_the_target_holds_until_the_next_round():
    growing = group("a", 100, 10, rate=MB)
    assert not decide(facts(growing, period_s=5), Target(1.2)).compact
    assert decide(facts(growing, period_s=20), Target(1.2)).compact


def test_a_staleness_target_makes_every_group_due_oldest_first_once_the_oldest_would_be_too_old():
    groups = [group("new", 100, 1, age_s=5), group("old", 100, 1, age_s=800), group("middle", 100, 1, age_s=300)]
    assert not decide(facts(*groups, period_s=60), Target(staleness_s=900)).compact
    found = decide(facts(*groups, period_s=120), Target(staleness_s=900))
    assert names(found.compact) == ["old", "middle", "new"]
    assert found.lag_s == 800
    assert found.lag_after_s == 0


def test_a_group_without_base_file_counts_as_if_it_had_one_as_large_as_its_logs():
    bare = group("bare", 0, 30)
    assert amplification([bare], COSTS) == pytest.approx(2.0)
    assert names(decide(facts(bare, group("other", 30, 0)), Target(1.4)).compact) == ["bare"]


def test_a_log_byte_that_costs_readers_more_counts_more():
    one = group("a", 100, 10)
    assert not decide(facts(one), Target(1.2)).compact
    assert decide(facts(one, costs=replace(COSTS, log_read=3.0)), Target(1.2)).compact


def test_observed_reads_pay_for_a_compaction_without_any_target():
    one = group("a", 100, 50, age_s=100)
    per_read = 25 * MB * COSTS.base_read_s
    enough = COSTS.compacting(one) / per_read / 100
    assert not decide(facts(one, reads_per_s=enough * 0.9), Target()).compact
    found = decide(facts(one, reads_per_s=enough * 1.1), Target())
    assert found.paid == 1
    assert "have paid for the compaction of 1 file group" in decision_text(found, facts(one, reads_per_s=1.0), Target())


def test_groups_under_pending_plans_are_left_and_their_logs_are_on_their_way_out():
    taken, free = group("taken", 100, 60, taken=True), group("free", 100, 10)
    found = decide(facts(taken, free), Target(1.2))
    assert not found.compact
    assert found.taken == 1
    assert names(decide(facts(taken, group("free", 100, 50)), Target(1.2)).compact) == ["free"]


# ---------------------------------------------------------------- time


def test_a_round_takes_what_the_budget_leaves_of_the_window():
    groups = [group(f"g{n}", 100, 100) for n in range(20)]
    runs = (Run(ago_s=10, seconds=40, groups=1, base_bytes=0, log_bytes=0),)
    found = decide(facts(*groups, runs=runs), Target(1.1, budget=0.2))
    assert found.allowed_s == pytest.approx(0.2 * 600 - 40)
    assert found.seconds <= found.allowed_s
    assert len(found.compact) == 4
    assert found.late > 0


def test_runs_before_the_window_do_not_count():
    runs = (Run(ago_s=700, seconds=400, groups=1, base_bytes=0, log_bytes=0),)
    assert allowed_seconds(facts(group("a", 1, 1), runs=runs), 0.1) == pytest.approx(60)


def test_a_group_that_takes_longer_than_the_windows_share_gets_a_longer_window():
    huge = group("huge", 2000, 1000)
    assert names(decide(facts(huge), Target(1.1, budget=0.1)).compact) == ["huge"]
    spent = (Run(ago_s=500, seconds=200, groups=1, base_bytes=0, log_bytes=0),)
    assert not decide(facts(huge, runs=spent), Target(1.1, budget=0.1)).compact


def test_stale_groups_go_first_when_time_is_short_oldest_first():
    groups = [group("tiny", 1, 1, age_s=10), group("old", 300, 1, age_s=900), group("older", 300, 1, age_s=950)]
    found = decide(facts(*groups), Target(1.001, staleness_s=900, budget=0.06))
    assert names(found.compact)[0] == "older"
    assert found.seconds <= found.allowed_s


def test_logs_are_merged_with_each_other_where_there_is_no_time_to_compact():
    large = [group(f"g{n}", 3000, 3000, log_rows=10_000_000, base_rows=1_000_000) for n in range(2)]
    short = decide(facts(*large), Target(1.1, budget=0.9))
    assert not short.compact
    assert short.fold
    assert short.after < short.before
    assert "merge the logs of" in decision_text(short, facts(*large), Target(1.1, budget=0.9))
    never = decide(facts(*large, folds=False), Target(1.1, budget=0.9))
    assert not never.fold


def test_logs_of_rows_that_are_all_different_are_not_worth_merging_before_compacting():
    groups = [group(f"g{n}", 100, 100, log_rows=10, base_rows=1_000_000) for n in range(20)]
    found = decide(facts(*groups), Target(1.1, budget=0.1))
    assert found.compact
    assert not found.fold


@pytest.mark.parametrize(("n", "kept"), [(0.001, 1.0), (1.0, 1 - math.exp(-1)), (10.0, 0.1)])
def test_merged_logs_keep_one_record_of_each_row(n, kept):
    one = group("a", 100, 10, log_rows=int(n * 1000), base_rows=1000)
    assert one.kept_by_folding == pytest.approx(kept, rel=0.01)


# ---------------------------------------------------------------- measures


def test_the_speed_of_past_compactions_scales_the_constants_newest_most():
    expected = COSTS.compacting(group("a", 100, 50))
    run = Run(10, expected * 3, 1, 100 * MB, 50 * MB)
    assert measured_factor([], COSTS) == 1.0
    assert measured_factor([run], COSTS) == pytest.approx(3.0)
    assert 2 < measured_factor([run, replace(run, ago_s=500, seconds=expected)], COSTS) < 3


def test_a_steady_rate_is_found_whatever_the_span_and_old_writes_fade():
    for span in (60.0, 600.0, 36_000.0):
        events = [(ago, 10.0) for ago in np.arange(0.5, span, 1.0)]
        assert weighted_rate(events, span, 1800) == pytest.approx(10.0, rel=0.01)
    assert weighted_rate([(7200, 1000.0)], 7200, 1800) < weighted_rate([(10, 1000.0)], 7200, 1800) / 50


# ---------------------------------------------------------------- what can be met


def busy(rate: float = MB / 16) -> Facts:
    groups = tuple(group(f"g{n}", 64, 8, rate=rate, touches=1 / 60) for n in range(10))
    return Facts(groups, costs=replace(COSTS, round_s=0.1), period_s=10)


def test_the_sentence_names_the_budget_and_the_targets_that_are_enough():
    target = Target(1.2, budget=0.2)
    found = decide(busy(), target)
    assert found.shortfall is not None
    text = decision_text(found, busy(), target)
    assert "The target cannot be met: compaction needs" in text
    assert f"lakesql.compaction.budget = {found.shortfall.budget:g}" in text
    assert f"lakesql.compaction.target.read_amplification = {found.shortfall.targets.read_amplification:g}" in text
    assert found.shortfall.budget > found.shortfall.needed > 0.2


@pytest.mark.parametrize("target", [Target(1.2, None, 0.2), Target(None, 120.0, 0.2), Target(1.3, 150.0, 0.2)])
def test_what_the_sentence_says_is_enough_needs_no_more_sentence(target):
    found = shortfall(busy(), target)
    assert found is not None
    assert found.budget is not None
    assert found.targets is not None
    assert shortfall(busy(), replace(target, budget=found.budget)) is None
    assert shortfall(busy(), found.targets) is None


def test_a_budget_too_small_for_any_target_gets_both_numbers():
    target = Target(1.001, None, 0.01)
    found = shortfall(busy(), target)
    assert found is not None
    assert found.together
    assert found.budget is not None
    assert found.targets is not None
    assert shortfall(busy(), replace(found.targets, budget=found.budget)) is None
    text = decision_text(decide(busy(), target), busy(), target)
    assert "together with" in text


def test_no_writes_need_no_time():
    assert needed_share(facts(group("a", 10, 10)), Target(1.01, 1.0)) == 0


@pytest.mark.parametrize(
    ("pattern", "tight"),
    [
        ("uniform", Target(1.12, budget=0.2)),
        ("zipf", Target(1.04, budget=0.08)),
        ("hot_partition", Target(1.04, budget=0.08)),
    ],
)
def test_what_is_said_to_be_enough_is_enough_when_applied(pattern, tight):
    slow = Costs(factor=4.0)
    records = PATTERNS[pattern](np.random.default_rng(5), 120, 24, 20_000)
    seen = []

    def reached(target: Target) -> float:
        choose = adaptive(target)

        def watching(world):
            if world.now > 1800:
                seen.append(shortfall(world.facts(), target))
            return choose(world)

        return simulate(records, 32 * MB, watching, slow).read_p95

    missed = reached(tight)
    found = next(s for s in reversed(seen) if s is not None)
    assert missed > tight.read_amplification * 1.05
    assert found.targets is not None
    assert reached(found.targets) <= found.targets.read_amplification * 1.05
    assert found.budget is not None
    assert reached(replace(tight, budget=found.budget)) <= tight.read_amplification * 1.05


# ---------------------------------------------------------------- always

GROUPS = st.builds(
    Group,
    key=st.tuples(st.sampled_from("pq"), st.integers(0, 10**6).map(str)),
    base_bytes=st.integers(0, 1 << 34),
    log_bytes=st.integers(0, 1 << 34),
    log_files=st.integers(0, 50),
    age_s=st.floats(0, 1e6),
    rate=st.floats(0, 1e8),
    touches=st.floats(0, 10),
    log_rows=st.none() | st.integers(0, 10**9),
    base_rows=st.none() | st.integers(0, 10**9),
    taken=st.booleans(),
)
RUNS = st.builds(
    Run, st.floats(0, 5000), st.floats(0, 5000), st.integers(0, 100), st.integers(0, 1 << 34), st.integers(0, 1 << 34)
)


@settings(max_examples=200, deadline=None)
@given(
    groups=st.lists(GROUPS, max_size=12, unique_by=lambda g: g.key),
    runs=st.lists(RUNS, max_size=5),
    target=st.builds(Target, st.none() | st.floats(1.0001, 10), st.none() | st.floats(1, 1e5), st.floats(0.001, 1)),
    period=st.floats(0, 1000),
    reads=st.none() | st.floats(0, 1000),
    factor=st.floats(0.01, 100),
)
def test_a_decision_keeps_the_budget_and_leaves_pending_plans_alone(groups, runs, target, period, reads, factor):
    costs = Costs(factor=factor)
    known = Facts(tuple(groups), tuple(runs), costs, period, reads)
    found = decide(known, target)
    took = sum(costs.compacting(g) for g in found.compact) + sum(costs.folding(g) for g in found.fold)
    took += costs.planning * (bool(found.compact) + bool(found.fold))
    assert took == pytest.approx(found.seconds)
    assert found.seconds <= found.allowed_s * (1 + 1e-9)
    assert (
        found.allowed_s
        <= max(target.budget * 600, costs.planning + max(map(costs.compacting, groups), default=0)) + 1e-6
    )
    chosen = [*found.compact, *found.fold]
    assert not any(g.taken for g in chosen)
    assert all(g.log_bytes for g in chosen)
    assert len({g.key for g in chosen}) == len(chosen)
    assert found.after <= found.before + 1e-9
    assert decision_text(found, known, target)
