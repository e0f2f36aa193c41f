"""The simulation of compaction strategies: what it counts, when it fails, and how its cost model is fitted."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.compaction import real, speed
from benchmarks.compaction.__main__ import simulated
from benchmarks.compaction.pareto import bytes_at, dominated, dominates, reading
from benchmarks.compaction.report import curves_csv, failures, markdown, points_csv
from lakesql.services.adaptive_model import Costs, amplification
from lakesql.simulation.patterns import PARTITIONS, PATTERNS, partition_of
from lakesql.simulation.strategies import ADAPTIVE, FIXED, hudi
from lakesql.simulation.world import COMMIT_S, MB, Outcome, World, simulate

OUTCOME = Outcome(100, 0.1, 1.2, 1.3, 1.4, 60.0, 90.0, 120.0)


@pytest.fixture(scope="module")
def results():
    return simulated(["late"], seed=1)


def test_no_fixed_strategy_dominates_an_adaptive_one_in_the_simulation(results):
    assert failures(results) == []
    assert "No fixed strategy dominates" in markdown("about", results)


def test_a_strategy_that_dominates_is_a_failure(results):
    name = next(iter(ADAPTIVE))
    worse = {
        n: replace(o, rewritten=o.rewritten * 100, stale_mean=1e9, read_mean=9.0) for n, o in results["late"].items()
    }
    spoiled = {"late": {**results["late"], name: worse[name]}}
    [text] = failures(spoiled)
    assert text.startswith(f"late: {name} is dominated by {next(iter(FIXED))}")
    assert text in markdown("about", spoiled)


def test_better_in_one_and_worse_in_none_dominates():
    assert dominates(replace(OUTCOME, rewritten=99), OUTCOME)
    assert not dominates(OUTCOME, OUTCOME)
    assert not dominates(replace(OUTCOME, rewritten=99, stale_mean=61.0), OUTCOME)
    assert dominated({"a": OUTCOME}, {"b": replace(OUTCOME, read_mean=1.19)}) == {"a": ["b"]}


def test_bytes_are_read_off_between_the_points_of_a_sweep_only():
    sweep = [replace(OUTCOME, rewritten=400, read_mean=1.1), replace(OUTCOME, rewritten=100, read_mean=1.4)]
    assert bytes_at(sweep, reading, reading(replace(OUTCOME, read_mean=1.2))) == pytest.approx(200)
    assert bytes_at(sweep, reading, reading(replace(OUTCOME, read_mean=1.05))) is None


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_are_the_same_each_time_and_as_their_names_say(pattern):
    one, two = (PATTERNS[pattern](np.random.default_rng(3), 120, 24, 10_000) for _ in range(2))
    assert (one == two).all()
    shares = np.sort(one.sum(axis=0))[::-1] / one.sum()
    if pattern == "uniform":
        assert shares[0] < 1.1 / 24
    if pattern == "zipf":
        assert shares[0] > 0.5
    if pattern == "bursts":
        assert one.sum(axis=1).max() == 20 * one.sum(axis=1).min()
    if pattern == "late":
        newest = [partition_of(g, 24) == PARTITIONS - 1 for g in range(24)]
        assert one[-1][newest].sum() > 0.9 * one[-1].sum() > one[-1][newest].sum() * 0.9
        assert not one[0][newest].sum()
    if pattern == "hot_partition":
        hot = [partition_of(g, 24) == PARTITIONS // 2 for g in range(24)]
        assert one[:, hot].sum() == pytest.approx(0.95 * one.sum(), rel=0.01)


def test_the_simulated_table_sees_what_the_controller_measures():
    world = World(np.array([10 * MB, 30 * MB]), Costs(log_read=2.0))
    world.commit(np.array([MB, 0]))
    world.advance(60.0)
    world.commit(np.array([MB, 2 * MB]))
    world.advance(90.0)
    reads, stale = world.seen()
    assert reads == pytest.approx(amplification(world.facts().groups, world.costs))
    assert stale == world.group(0).age_s == 90.0
    world.start([0])
    world.commit(np.array([MB, 0]))
    world.advance(200.0)
    assert world.idle
    assert [len(s.logs) for s in world.slices()] == [1, 1]
    assert (world.rewritten, world.unmerged.tolist()) == (10 * MB, [MB, 2 * MB])


def test_every_n_commits_rewrites_all_that_was_written_to():
    records = np.ones((9, 12), np.int64)
    one = simulate(records, 10 * MB, hudi(**{"hoodie.compact.inline.max.delta.commits": "3"}), Costs())
    sizes = np.random.default_rng(1).uniform(0.7, 1.3, 12) * 10 * MB
    assert one.rewritten == pytest.approx(3 * sizes.sum(), rel=1e-6)
    assert one.stale_max < 3 * COMMIT_S


def test_curves_and_points_have_a_row_each(results):
    points = points_csv(results).splitlines()
    assert len(points) == 1 + (len(FIXED) + len(ADAPTIVE))
    assert len(curves_csv(results).splitlines()) == 1 + sum(len(o.reads) for r in results.values() for o in r.values())


def test_constants_are_found_again_and_never_negative():
    rng = np.random.default_rng(1)
    rows = [[1.0, float(g), g * 1e6, logs * 1e5] for g, logs in rng.integers(1, 20, (12, 2))]
    values = [0.2 + r[2] * 3e-8 + r[3] * 1e-7 for r in rows]
    round_s, group_s, base_s, log_s = real._fit(rows, values)
    assert round_s == pytest.approx(0.2)
    assert group_s * 1e-6 + base_s == pytest.approx(3e-8)
    assert log_s == pytest.approx(1e-7)
    assert min(real._fit([[1.0, 5.0], [1.0, 1.0]], [1.0, 5.0])) >= 0


def test_a_real_table_is_written_read_and_compacted(tmp_path, monkeypatch):
    monkeypatch.setattr(real, "GROUPS", 2)
    table = real.RealTable(tmp_path, 200, seed=1)
    base, logs = table.sizes()
    assert (len(base), logs.sum()) == (2, 0)
    table.write(np.array([20, 0]))
    assert [bool(n) for n in table.sizes()[1]] == [True, False]
    assert table.read() > 0
    seconds, written = table.compact({})
    assert seconds > 0
    assert written == table.sizes()[0][0]
    assert table.compact({}) == (0.0, 0)


def medians(**changed: tuple[float, float]) -> dict[str, dict[str, float]]:
    """Every case of `speed` with one second and 500 MB, but for those given as (seconds, MB)."""
    names = {name: changed.get(name.replace("-", "_"), (1.0, 500.0)) for name in speed.CASES}
    return {name: {"wall_s": s, "cpu_s": s, "peak_mb": mb} for name, (s, mb) in names.items()}


def test_compaction_that_misses_its_goals_is_a_failure():
    assert speed.failures(medians()) == []
    slow, large = speed.failures(medians(wide_20_compact=(1.3, 500.0), long_5_compact_512MB=(1.0, 2000.0)))
    assert "wide, 20 % updated: compaction takes 1.30 times the upsert" in slow
    assert "long, 5 % updated: peak 2000 MB" in large
    assert "| wide | 20 % | 1.000 | 1.300 | 1.30 |" in speed.report("about", medians(wide_20_compact=(1.3, 500.0)))


@pytest.mark.parametrize("name", ["wide-20-upsert", "wide-20-compact", "long-5-compact-512MB"])
def test_both_sides_of_the_speed_benchmark_give_the_same_rows(name, tmp_path):
    root = speed.prepared(tmp_path / "data", 0.0005)
    work = tmp_path / "work"
    work.mkdir()
    call, check = speed.prepare_call(speed.CASES[name], root, work)
    if "compact" in name:
        with pytest.raises(SystemExit, match="logs are left"):
            check()
    call()
    check()
