"""Compactions planned by one engine and run by the other, and merged logs, in the table version of each Hudi release."""

import pytest

from tests.interop.spark import NATIVE_VERSION, SparkHudi
from tests.interop.test_services import all_read
from tests.interop.test_spark import SCHEDULE, Game
from tests.samples import Kind, NewTable, rows

RELEASES = pytest.mark.parametrize("spark", ["1.2.0", "1.0.2", "0.15.0"], indirect=True)
FEW = {"hoodie.log.compaction.blocks.threshold": "3"}


@RELEASES
def test_either_engine_runs_the_plans_of_the_other_and_goes_on(spark: SparkHudi, new_table: NewTable) -> None:
    version = NATIVE_VERSION[spark.version]
    kind = Kind("mor", version)
    game = Game(new_table(kind), spark, kind)
    table = game.table
    table.upsert(rows(("a", "x", 1, 1), ("b", "x", 1, 1), ("c", "y", 1, 1)))
    table.upsert(rows(("a", "x", 2, 2), ("c", "y", 2, 2)))
    table.delete(rows(("b", "x", None, None)))
    assert table.compact().file_groups == 2
    assert all_read(game) == [("a", "x", 2, 2), ("c", "y", 2, 2)]
    game.spark_upsert(("a", "x", 3, 3))
    assert all_read(game) == [("a", "x", 3, 3), ("c", "y", 2, 2)]

    ours = table.compact(run=False)
    if version >= 8:
        table.upsert(rows(("a", "x", 4, 4)))
    want = [("a", "x", 4, 4) if version >= 8 else ("a", "x", 3, 3), ("c", "y", 2, 2)]
    assert all_read(game) == want
    game.spark_sql("CALL run_compaction(op => 'run', table => 't')")
    assert not table.state.pending_compactions
    assert ours.instant in {i.requested for i in table.state.timeline.completed_writes()}
    assert all_read(game) == want

    game.spark_upsert(("c", "y", 5, 5))
    game.spark_sql(SCHEDULE)
    assert table.state.pending_compactions
    if version >= 8:
        table.delete(rows(("a", "x", None, None)))
        del want[0]
    want[-1] = ("c", "y", 5, 5)
    done = table.compact(schedule=False)
    assert done.file_groups == (2 if version >= 8 else 1)
    assert all_read(game) == want
    game.spark_upsert(("c", "y", 6, 6))
    table.upsert(rows(("d", "y", 6, 6)))
    assert all_read(game) == [*want[:-1], ("c", "y", 6, 6), ("d", "y", 6, 6)]


@pytest.mark.parametrize("spark", ["1.2.0", "1.0.2"], indirect=True)
@pytest.mark.parametrize("event", [True, False])
def test_merged_logs_are_read_and_compacted_by_spark(spark: SparkHudi, event: bool, new_table: NewTable) -> None:
    kind = Kind("mor", NATIVE_VERSION[spark.version], event_time=event)
    game = Game(new_table(kind), spark, kind)
    table = game.table
    table.upsert(rows(("a", "x", 1, 1), ("b", "x", 1, 1), ("c", "x", 1, 1)))
    for n in (2, 3):
        table.upsert(rows(("a", "x", n, n), ("b", "x", n, n)))
    if not event:
        table.delete(rows(("b", "x", None, None)))
    table.upsert(rows(("a", "x", 4, 4)))
    want = [("a", "x", 4, 4), *([("b", "x", 3, 3)] if event else []), ("c", "x", 1, 1)]
    assert table.compact(logs=True, **FEW).file_groups == 1
    assert all_read(game) == want
    game.spark_upsert(("c", "x", 5, 5))
    want[-1] = ("c", "x", 5, 5)
    assert all_read(game) == want
    game.spark_sql(SCHEDULE)
    game.spark_sql("CALL run_compaction(op => 'run', table => 't')")
    assert all_read(game) == want
