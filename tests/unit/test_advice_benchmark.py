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
    beside_crossings,
    breakevens_of,
    cells_of,
    crossings,
    pooled_noise,
    scatter,
    shares_to_insert,
    summary,
)
from benchmarks.advice.workloads import DELTAS, GROUPS, Measured, Runner, Workload
from lakesql.advice import calibration
from lakesql.advice.costs import Own, Row
from lakesql.advice.costs import Workload as Load

SHIPPED = calibration.shipped().prices


def even(shift, steps=5):
    return tuple(1.0 + shift for _ in range(steps))


def result(share, cow_write, mor_write, warm=0.5):
    """Constant costs: Merge-on-Read spares a second per first read and pays `warm` more for each further one."""
    cow = Measured((cow_write,) * DELTAS, even(0), even(0), 0.0, 10 * cow_write)
    mor = Measured((mor_write,) * DELTAS, even(0), even(warm), 0.0, 10 * mor_write)
    return Result(Workload("narrow", "uniform", share), [cow], [mor], {})


def test_crossings_lie_on_straight_lines_between_neighbours():
    assert list(crossings([1.0, 3.0, 5.0], [2.0, -2.0, -4.0], [0.0, 0.0, 0.0])) == [(2.0, 2.0, 2.0)]
    (found, low, high), *more = crossings([0.0, 10.0], [5.0, -5.0], [1.0, 1.0])
    assert (found, low, high, more) == (5.0, 4.0, 6.0, [])
    assert list(crossings([1.0, 2.0], [1.0, 3.0], [0.0, 0.0])) == []


def test_a_crossing_is_open_up_to_where_the_gap_exceeds_the_noise():
    at, gaps = [0.0, 1.0, 2.0, 3.0, 4.0], [4.0, 1.0, -1.0, -1.5, -1.9]
    assert list(crossings(at, gaps, [2.0] * 5)) == [(1.5, pytest.approx(2 / 3), 4.0)]


@pytest.mark.parametrize(
    ("measured", "predicted", "noise", "outcome"),
    [((2, 1), (3, 1), 0.5, "right"), ((2, 1), (1, 3), 0.5, "wrong"), ((2, 1), (1, 3), 1.5, "tie")],
)
def test_outcome_of_a_cell(measured, predicted, noise, outcome):
    assert Cell("narrow", "uniform", 0.1, 1.0, "cow", PRICES, *measured, *predicted, noise).outcome == outcome


def test_total_counts_reads_and_the_part_of_a_compaction():
    one = Measured((1.0,) * 5, (2.0,) * 5, (0.2,) * 5, compaction=2.5, sparse=7.0)
    assert one.total(1) == (5 + 10 + 2.5) / 5
    assert one.total(11) == pytest.approx((5 + 10 + 10 + 2.5) / 5)
    assert one.total(0.1) == 0.7


@pytest.mark.parametrize(
    ("low", "high", "predicted", "flat", "right"),
    [
        (0.09, 0.11, 0.119, False, True),
        (0.09, 0.11, 0.121, False, False),
        (0.09, 0.11, None, False, False),
        (0.05, 0.11, 0.06, True, True),
        (0.05, 0.11, 0.119, True, False),
        (0.09, 0.13, 0.079, True, False),
    ],
)
def test_a_sharp_breakeven_is_right_within_20_percent_and_a_flat_one_within_what_is_open(
    low, high, predicted, flat, right
):
    one = BreakEven("update share", "wide", "zipf", 1.0, "mor", PRICES, 0.1, low, high, predicted)
    assert (one.flat, one.right) == (flat, right)


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


def test_breakevens_are_found_where_the_measured_costs_cross():
    line = [result(0.01, 3.0, 1.0), result(0.1, 3.0, 2.0), result(1.0, 3.0, 4.0)]
    loads = {"cow": calibrated_load()}
    line = [replace(r, seen=loads, own={"cow": Own(patch=2.0)}) for r in line]
    found = breakevens_of(line, SHIPPED, Noise(0.0, 0.0, 0.0))
    reads = {e.at: e.measured for e in found if e.kind == "reads per write" and e.by == PRICES}
    assert reads == {0.01: pytest.approx(5), 0.1: pytest.approx(3)}  # seconds spared over 0.5 s per further read
    shares = {e.at: e.measured for e in found if e.kind == "update share" and e.by == MEASURE}
    assert shares[1.0] == pytest.approx(0.1 + 0.9 / 2)
    assert {e.by for e in found} == {PRICES, MEASURE}
    inserted = shares_to_insert(line, 1.4)
    assert sorted(w.share for w in inserted) == pytest.approx([0.001**0.5, 0.1**0.5])
    assert [r.work.share for r in beside_crossings(line)] == [0.01, 0.1, 1.0]


def calibrated_load():
    return Load((1_000.0,) * 4, (0.25,) * 4, 100.0, Row(9, 50.0))


@pytest.mark.parametrize("spread", ["uniform", "zipf"])
def test_a_workload_runs_and_both_timelines_tell_it(tmp_path, spread):
    runner = Runner(tmp_path, "narrow", 100, time.process_time)
    work = Workload("narrow", spread, 0.05)
    measured, tables = runner.run(work, 0)
    loads = {kind: workload_of(duckdb.connect(), table.state) for kind, table in tables.items()}
    assert all(load.update_share == pytest.approx(0.05) for load in loads.values())
    assert loads["cow"].touched().files == pytest.approx(loads["mor"].touched().files)
    assert (loads["cow"].touched().files > GROUPS - 1) == (spread == "uniform")
    assert measured["cow"].compaction == 0 < measured["mor"].compaction
    results = [Result(work, [measured["cow"]], [measured["mor"]], loads)]
    noise = pooled_noise(results)
    cells = cells_of(results, SHIPPED, noise)
    numbers = summary(cells, breakevens_of(results, SHIPPED, noise), PRICES)
    assert numbers["cells"] == len(cells) == numbers["ties"] + numbers["right"] + numbers["wrong"]
