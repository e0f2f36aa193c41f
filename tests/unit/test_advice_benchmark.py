"""The check of the advice against real runs: what it calls noise, a tie, a break-even, a right prediction."""

import time
from dataclasses import replace

import duckdb
import numpy as np
import pytest

from benchmarks.advice.__main__ import workload_of
from benchmarks.advice.compare import (
    MEASURE,
    PRICES,
    BreakEven,
    Cell,
    Noise,
    Result,
    breakeven_reads,
    breakeven_shares,
    breakevens_of,
    cells_of,
    pooled_noise,
    scatter,
    summary,
    with_breakeven,
)
from benchmarks.advice.workloads import DELTAS, GROUPS, Measured, Runner, Workload
from lakesql.advice import calibration
from lakesql.advice.costs import Own, Row
from lakesql.advice.costs import Workload as Load

SHIPPED = calibration.shipped().prices


def even(seconds):
    return (seconds,) * DELTAS


def result(share, cow_write, mor_write, warm=0.5, rounds=1, scatter=0.0):
    """First reads cost the same; Merge-on-Read pays `warm` seconds more for each further one. Rounds differ by `scatter`."""
    shifts = np.linspace(-scatter, scatter, rounds) if rounds > 1 else [0.0]
    cow = [Measured(even(cow_write), even(1.0), even(1.0), 0.0) for _ in shifts]
    mor = [Measured(even(mor_write + shift), even(1.0), even(1.0 + warm), 0.0) for shift in shifts]
    sparse = [(cow_write, mor_write + shift) for shift in shifts]
    return Result(Workload("narrow", "uniform", share), cow, mor, sparse, {})


def test_breakeven_in_reads_is_the_gap_over_what_a_further_read_costs_more():
    assert breakeven_reads(result(0.1, 3.0, 1.0, rounds=3)) == pytest.approx((5,) * 5)
    assert breakeven_reads(result(0.1, 3.0, 1.0, rounds=2)) is None  # too few rounds to know the noise
    assert breakeven_reads(result(0.1, 3.0, 1.0, warm=-0.1, rounds=3)) is None
    assert breakeven_reads(result(0.1, 3.0, 1.0, warm=0.001, rounds=3)) is None  # beyond 100 reads


def test_breakeven_below_one_read_lies_between_few_reads_and_one():
    one = result(0.1, 3.0, 4.0, rounds=3)
    assert breakeven_reads(one) is None  # cheaper as Copy-on-Write with few reads, too
    found, low, high, *_ = breakeven_reads(replace(one, sparse=[(3.0, 1.0)] * 3))
    assert found == low == high == pytest.approx(0.1 + 0.9 * 2 / 3)


def test_noise_of_a_breakeven_is_what_the_rounds_leave_open():
    found, low, high, lowest, highest = breakeven_reads(result(0.1, 3.0, 1.0, rounds=5, scatter=0.2))
    assert found == pytest.approx(5)
    assert 4.5 < lowest < low < 5 < high < highest < 5.5
    wide = breakeven_reads(result(0.1, 3.0, 1.0, rounds=5, scatter=4.0))
    assert wide[2] - wide[1] > 10 * (high - low)


def test_breakeven_in_shares_lies_between_neighbours_that_are_not_far_apart():
    line = [result(0.01, 3.0, 1.0, rounds=3), result(0.03, 3.0, 5.0, rounds=3), result(0.5, 3.0, 2.0, rounds=3)]
    assert list(breakeven_shares(line, 1.0)) == [pytest.approx((0.02,) * 5)]
    assert list(breakeven_shares(line, 0.1)) == [pytest.approx((0.02,) * 5)]
    assert list(breakeven_shares([result(0.01, 3.0, 1.0), result(0.03, 3.0, 5.0)], 1.0)) == []


@pytest.mark.parametrize(
    ("measured", "predicted", "noise", "outcome"),
    [((2, 1), (3, 1), 0.5, "right"), ((2, 1), (1, 3), 0.5, "wrong"), ((2, 1), (1, 3), 1.5, "tie")],
)
def test_outcome_of_a_cell(measured, predicted, noise, outcome):
    assert Cell("narrow", "uniform", 0.1, 1.0, "cow", PRICES, *measured, *predicted, noise).outcome == outcome


def test_totals_are_medians_of_the_rounds_with_reads_and_the_part_of_a_compaction():
    rounds = [Measured(even(x), even(2.0), even(0.2), compaction=2.5) for x in (1.0, 1.1, 9.0)]
    one = Result(Workload("narrow", "uniform", 0.1), rounds, rounds, [(7.0, 7.0)], {})
    assert one.totals(1)[0] == pytest.approx(1.1 + 2 + 0.5)
    assert one.totals(11)[0] == pytest.approx(1.1 + 2 + 2 + 0.5)
    assert one.totals(0.1)[0] == 7.0


@pytest.mark.parametrize(
    ("low", "high", "predicted", "measurable", "right"),
    [
        (0.09, 0.11, 0.119, True, True),
        (0.09, 0.11, 0.121, True, False),
        (0.09, 0.11, None, True, False),
        (0.07, 0.11, 0.09, False, True),
        (0.09, 0.13, 0.079, False, False),
    ],
)
def test_a_breakeven_is_measurable_and_right_within_20_percent(low, high, predicted, measurable, right):
    one = BreakEven("update share", "wide", "zipf", 1.0, "mor", PRICES, 0.1, low, high, low / 2, high * 2, predicted)
    assert (one.measurable, one.right) == (measurable, right)


@pytest.mark.parametrize(
    ("predicted", "inside"), [(0.1, (True, True)), (0.13, (False, True)), (0.3, (False, False)), (None, (False, False))]
)
def test_a_prediction_is_inside_what_the_noise_leaves_open_or_not(predicted, inside):
    one = BreakEven("update share", "wide", "zipf", 1.0, "mor", PRICES, 0.1, 0.09, 0.12, 0.08, 0.15, predicted)
    assert (one.inside, one.inside_95) == inside


def test_scatter_is_what_a_straight_line_leaves():
    assert scatter(np.array([1.0, 2.0, 3.0, 4.0])) == pytest.approx(0)
    draw = np.random.default_rng(0).normal(scale=2.0, size=2_000)
    assert scatter(draw + np.arange(2_000)) == pytest.approx(2.0, rel=0.1)


def test_noise_grows_with_the_reads_and_shrinks_with_the_rounds():
    one = result(0.1, 3.0, 1.0)
    noise = Noise(0.0, 0.0, 0.1)
    assert noise.of(one, 21) == pytest.approx(2 * noise.of(one, 11))
    four = replace(one, cow=one.cow * 4, mor=one.mor * 4)
    assert noise.of(four, 11) == pytest.approx(noise.of(one, 11) / 2)
    assert noise.of(one, 1) == 0
    assert pooled_noise([one]).warm_read == pytest.approx(0, abs=1e-9)


def test_breakevens_are_compared_with_what_the_table_measured_says():
    line = [result(0.01, 3.0, 1.0, rounds=3), result(0.03, 3.0, 5.0, rounds=3)]
    loads = {"cow": calibrated_load()}
    line = [replace(r, seen=loads, own={"cow": Own(patch=2.0)}) for r in line]
    found = breakevens_of(line, SHIPPED)
    reads = {e.at: e.measured for e in found if e.kind == "reads per write" and e.by == PRICES}
    assert reads == {0.01: pytest.approx(5)}  # seconds spared over 0.5 s per further read
    shares = {e.at: e.measured for e in found if e.kind == "update share" and e.by == MEASURE}
    assert shares[1.0] == pytest.approx(0.02)
    by = {(e.kind, e.at, e.by): e.predicted for e in found}
    assert by["reads per write", 0.01, PRICES] != by["reads per write", 0.01, MEASURE]
    assert [r.work.share for r in with_breakeven(line)] == [0.01]
    figures = summary([], found, PRICES)
    assert figures["breakevens_in_reads_per_write"] == figures["measurable_in_reads_per_write"] == 1


def calibrated_load():
    return Load((100_000.0,) * 4, (0.25,) * 4, 1_000.0, Row(9, 50.0))


@pytest.mark.parametrize("spread", ["uniform", "zipf"])
def test_a_workload_runs_and_both_timelines_tell_it(tmp_path, spread):
    runner = Runner(tmp_path, "narrow", 100, time.process_time)
    work = Workload("narrow", spread, 0.05)
    measured, tables = runner.dense(work, 0)
    loads = {kind: workload_of(duckdb.connect(), table.state) for kind, table in tables.items()}
    assert all(load.update_share == pytest.approx(0.05) for load in loads.values())
    assert loads["cow"].touched().files == pytest.approx(loads["mor"].touched().files)
    assert (loads["cow"].touched().files > GROUPS - 1) == (spread == "uniform")
    assert measured["cow"].compaction == 0 != measured["mor"].compaction
    results = [Result(work, [measured["cow"]], [measured["mor"]], [runner.sparse(work, 0)], loads)]
    noise = pooled_noise(results)
    cells = cells_of(results, SHIPPED, noise)
    numbers = summary(cells, breakevens_of(results, SHIPPED), PRICES)
    assert numbers["cells"] == len(cells) == numbers["ties"] + numbers["right"] + numbers["wrong"]
