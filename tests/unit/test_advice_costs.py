"""The closed cost formula: what it must do whatever the prices are, and that break-evens are where both types cost the same."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lakesql.advice import calibration, costs
from lakesql.advice.costs import Own, Price, Row, Workload
from lakesql.advice.fit import Measurement, nonnegative_least_squares, prices_of, relative_errors

PRICES = calibration.shipped().prices


def uniform(share=0.01, groups=10, rows=10_000, columns=12, value_bytes=100.0, deltas=5):
    sizes = (float(rows),) * groups
    return Workload(sizes, (1 / groups,) * groups, share * groups * rows, Row(columns, value_bytes), 1.0, deltas)


loads = st.builds(
    uniform,
    share=st.floats(1e-4, 1.0),
    groups=st.integers(1, 200),
    rows=st.integers(10, 100_000),
    columns=st.integers(6, 60),
    value_bytes=st.floats(8, 2000),
    deltas=st.integers(1, 30),
)


@given(loads, st.floats(0, 200), st.floats(1.01, 10))
@settings(max_examples=30, deadline=None)
def test_more_of_anything_never_costs_less(load, reads, factor):
    more = (
        (load.at_share(min(1.0, load.update_share * factor)), reads),
        (replace(load, row=Row(load.row.columns, load.row.bytes * factor)), reads),
        (replace(load, rows=tuple(r * factor for r in load.rows)).at_share(load.update_share), reads),
        (load, reads * factor),
    )
    for costs_of in (costs.cow_costs, costs.mor_costs):
        before = costs_of(load, PRICES, reads)
        assert before.write >= 0
        for other, other_reads in more:
            assert costs_of(other, PRICES, other_reads).total >= before.total * (1 - 1e-9)


def test_every_file_group_is_touched_by_a_full_update_and_about_one_by_one_row():
    assert uniform(1.0).touched().files == pytest.approx(10)
    assert uniform(1 / 100_000).touched().files == pytest.approx(1, rel=0.5)
    assert uniform(0.5).touched().rows == pytest.approx(100_000)


def test_skew_and_clumps_touch_fewer_file_groups():
    load = uniform(0.0005)
    skewed = replace(load, shares=(0.91, *(0.01,) * 9))
    assert skewed.touched().files < load.touched().files
    assert replace(load, clump=0.1).touched().files < load.touched().files


@given(st.lists(st.tuples(st.integers(1, 1000), st.floats(0, 1)), min_size=1, max_size=30), st.floats(0, 2))
@example([(82, 0.5), (468, 0.5)], 5e-324)
@settings(max_examples=80, deadline=None)
def test_spread_rows_gives_every_row_a_place_and_no_group_more_than_it_has(groups, part):
    rows = [float(r) for r, _ in groups]
    weights = [w for _, w in groups]
    given_rows = costs.spread_rows(rows, weights, part * sum(rows))
    assert given_rows.sum() == pytest.approx(min(1.0, part) * sum(rows), abs=1e-6)
    assert (given_rows <= np.array(rows) + 1e-9).all()


def test_rows_changed_again_live_once_in_the_merged_log():
    load = uniform(0.5, groups=4, rows=1_000)
    assert [load.logs(k).live for k in (0, 1, 2, 3)] == pytest.approx([0, 2_000, 3_000, 3_500])
    assert load.logs(3).rows == pytest.approx(6_000)
    assert uniform(1.0).logs(5).live == pytest.approx(uniform().table.rows)


def test_all_logs_of_the_file_groups_that_a_commit_touches_are_merged_again():
    everywhere = uniform(0.1, groups=4, rows=1_000)
    assert everywhere.unmerged(3).rows == pytest.approx(everywhere.logs(3).rows)
    assert everywhere.unmerged(3).live == pytest.approx(everywhere.logs(3).live)
    seldom = replace(everywhere, clump=1e-6)
    assert seldom.unmerged(3).rows == pytest.approx(seldom.changed_rows, rel=0.01)
    assert seldom.unmerged(3).files == pytest.approx(seldom.touched().files, rel=0.01)


def test_keys_that_are_twice_in_what_is_merged_are_grouped():
    load = uniform(0.1, groups=4, rows=1_000)
    alone, again = (dict(costs.merge_work(load.unmerged(k), load.row)) for k in (1, 3))
    assert alone[costs.GROUP].rows == pytest.approx(0, abs=1e-6)
    assert alone[costs.PICK].rows == pytest.approx(0, abs=1e-6)
    assert again[costs.GROUP].rows == pytest.approx(load.unmerged(3).rows)
    assert again[costs.PICK].rows == pytest.approx(load.unmerged(3).live)


def test_new_base_files_are_opened_once_per_commit_that_is_read():
    load = uniform()
    opened = costs.opening(load, PRICES)
    scan = costs.scan(load, PRICES)
    for reads, openings in ((0.0, 0.0), (0.5, 0.5), (1.0, 1.0), (7.0, 1.0)):
        assert costs.cow_costs(load, PRICES, reads).read == pytest.approx(openings * opened + reads * scan)


def test_groups_stand_for_all_and_change_as_much_as_the_table_does():
    load = uniform(0.03, groups=100, rows=1_000)
    chances, parts = load.by_group(7)
    assert len(chances) == 7
    assert float((chances * parts).mean()) == pytest.approx(0.03)


@given(loads, st.floats(0.1, 10), st.floats(0.1, 10))
@settings(max_examples=20, deadline=None)
def test_what_was_measured_with_the_table_scales_its_operations(load, dearer, cheaper):
    own = replace(load, own=Own(cow_commit=dearer, scan=cheaper, patch=0.0))
    assert costs.cow_commit(own, PRICES) == pytest.approx(dearer * costs.cow_commit(load, PRICES))
    assert costs.warm_read(own, PRICES, 3) == pytest.approx(cheaper * costs.scan(load, PRICES))
    assert costs.merge(own, PRICES, 3) == costs.merge(load, PRICES, 3)


def test_without_reads_and_with_tiny_updates_merge_on_read_writes_for_less():
    load = uniform(0.0001, groups=10, rows=100_000, deltas=10)
    assert costs.mor_commit(load, PRICES, 9) < costs.cow_commit(load, PRICES)
    assert costs.advantage(load, PRICES, 0.0) > 0


def test_with_endless_reads_copy_on_write_is_cheaper():
    load = uniform(0.1)
    assert costs.advantage(load, PRICES, 1e6) < 0


def test_reads_cost_the_same_on_both_types_when_nothing_is_in_the_logs():
    load = uniform()
    assert costs.first_read(load, PRICES, 0) == costs.scan(load, PRICES)


@given(loads)
@settings(max_examples=30, deadline=None)
def test_breakeven_reads_are_where_both_types_cost_the_same(load):
    found = costs.breakeven_reads(load, PRICES)
    if found is None:
        assert costs.advantage(load, PRICES, 1000.0) > 0
    elif found == 0:
        assert costs.advantage(load, PRICES, 0.0) <= 0
    else:
        total = costs.cow_costs(load, PRICES, found).total
        assert costs.advantage(load, PRICES, found) == pytest.approx(0, abs=1e-6 * total)
        assert costs.advantage(load, PRICES, found * 0.9) > 0 > costs.advantage(load, PRICES, found * 1.1)


@given(loads, st.sampled_from([0.0, 0.5, 2.0, 20.0]))
@settings(max_examples=15, deadline=None)
def test_breakeven_shares_are_where_both_types_cost_the_same(load, reads):
    for share in costs.breakeven_shares(load, PRICES, reads):
        at = load.at_share(share)
        total = costs.cow_costs(at, PRICES, reads).total
        assert costs.advantage(at, PRICES, reads) == pytest.approx(0, abs=1e-4 * total)


def test_reads_that_cost_no_more_on_merge_on_read_have_no_breakeven():
    merging = (costs.MERGE, costs.MATCH, costs.KEEP, costs.GROUP, costs.PICK)
    reading = (*merging, costs.PATCH, costs.OVERLAY, costs.COMPACT, costs.FOLD)
    free = {**PRICES, **dict.fromkeys(reading, Price())}
    assert costs.breakeven_reads(uniform(0.0001, rows=100_000, deltas=100), free) is None


# ---------------------------------------------------------------- prices from measurements


def test_prices_are_found_again_from_what_they_cost():
    true = {costs.SCAN: Price(time=0.002, file=3e-4, chunk=2e-5, row=5e-8, byte=2e-9)}
    draw = np.random.default_rng(0)
    measured = []
    for _ in range(40):
        part = costs.Spread(float(draw.integers(1, 30)), float(draw.integers(1_000, 500_000)))
        work = costs.scan_work(part, Row(float(draw.integers(5, 40)), float(draw.integers(20, 900))))
        measured.append(Measurement("read", work, costs.seconds(true, work)))
    found = prices_of(measured)
    assert set(found) == {costs.SCAN}
    assert np.abs(relative_errors(measured, found)).max() < 1e-6
    assert found[costs.SCAN].byte == pytest.approx(2e-9, rel=1e-3)


def test_a_difference_counts_against_what_it_was_taken_from():
    part = costs.Spread(1.0, 1_000.0)
    work = costs.scan_work(part, Row(5.0, 10.0))
    measured = [Measurement("patch", work, 0.001, 0.1), Measurement("patch", work, -0.001, 0.1)]
    found = prices_of(measured)
    assert costs.seconds(found, work) == pytest.approx(0, abs=1e-9)
    assert np.abs(relative_errors(measured, found)).max() == pytest.approx(0.01)


@given(st.integers(0, 1000))
@settings(max_examples=50, deadline=None)
def test_least_squares_without_negatives_is_a_minimum(seed):
    draw = np.random.default_rng(seed)
    matrix, target = draw.normal(size=(12, 5)), draw.normal(size=12)
    x = nonnegative_least_squares(matrix, target)
    assert (x >= 0).all()
    gradient = matrix.T @ (matrix @ x - target)
    assert (gradient >= -1e-8).all()  # no part would lower the error by growing
    assert np.abs(gradient[x > 0]).max(initial=0) < 1e-8  # nor by any change, where it is not held at zero
