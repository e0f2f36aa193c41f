"""The check of the advice against real runs: what it calls a tie, a break-even, a right prediction."""

import time

import pytest

from benchmarks.advice.__main__ import BreakEven, Cell, Result, breakevens_of, cells_of, crossings, summary, workload_of
from benchmarks.advice.workloads import GROUPS, Measured, Runner, Workload
from lakesql.advice import calibration

PRICES = calibration.shipped().prices


def test_crossings_lie_on_straight_lines_between_neighbours():
    assert list(crossings([1.0, 3.0, 5.0], [2.0, -2.0, -4.0], [0.0, 0.0, 0.0])) == [(2.0, 2.0, 2.0)]
    (found, low, high), *more = crossings([0.0, 10.0], [5.0, -5.0], [1.0, 1.0])
    assert (found, low, high, more) == (5.0, 4.0, 6.0, [])
    assert list(crossings([1.0, 2.0], [1.0, 3.0], [0.0, 0.0])) == []


@pytest.mark.parametrize(
    ("measured", "predicted", "noise", "outcome"),
    [((2, 1), (3, 1), 0.5, "right"), ((2, 1), (1, 3), 0.5, "wrong"), ((2, 1), (1, 3), 1.5, "tie")],
)
def test_outcome_of_a_cell(measured, predicted, noise, outcome):
    assert Cell("narrow", "uniform", 0.1, 1.0, "cow", *measured, *predicted, noise).outcome == outcome


def test_total_counts_reads_and_the_part_of_a_compaction():
    one = Measured(writes=5.0, first_reads=10.0, warm_reads=1.0, compaction=2.5, sparse=7.0)
    assert one.total(1) == (5 + 10 + 2.5) / 5
    assert one.total(11) == pytest.approx((5 + 10 + 10 + 2.5) / 5)
    assert one.total(0.1) == 0.7


def test_breakeven_error_is_relative():
    assert BreakEven("update share", "wide", "zipf", 1.0, "mor", 0.1, 0.09, 0.11, 0.12).error == pytest.approx(0.2)


@pytest.mark.parametrize("spread", ["uniform", "zipf"])
def test_a_workload_runs_and_both_timelines_tell_it(tmp_path, spread):
    runner = Runner(tmp_path, "narrow", 100, time.process_time)
    work = Workload("narrow", spread, 0.05)
    measured, tables = runner.run(work, 0)
    loads = {kind: workload_of(table.state) for kind, table in tables.items()}
    assert all(load.update_share == pytest.approx(0.05) for load in loads.values())
    assert loads["cow"].touched().files == pytest.approx(loads["mor"].touched().files)
    assert (loads["cow"].touched().files > GROUPS - 1) == (spread == "uniform")
    assert measured["cow"].compaction == 0 < measured["mor"].compaction
    results = [Result(work, [measured["cow"]], [measured["mor"]], loads)]
    cells = cells_of(results, PRICES, 0.05)
    numbers = summary(cells, breakevens_of(results, cells, PRICES))
    assert numbers["cells"] == len(cells) == numbers["ties"] + numbers["right"] + numbers["wrong"]
