"""Clustering and partition TTL in turns with Spark: each runs the other's plan, reads its files and goes on."""

from pathlib import Path

import pytest

from lakesql.services import clustering
from tests.interop.spark import NATIVE_VERSION, SparkHudi
from tests.interop.test_services import all_read
from tests.interop.test_spark import Game
from tests.samples import Kind, NewTable, rows, tuples

APART = {"hoodie.parquet.small.file.limit": "0"}
CELLS = [("1.2.0", "mor"), ("1.0.2", "mor"), ("0.15.0", "cow")]


@pytest.mark.parametrize(("spark", "type_"), CELLS, indirect=["spark"])
def test_each_runs_the_plan_of_the_other(type_: str, spark: SparkHudi, new_table: NewTable) -> None:
    kind = Kind(type_, NATIVE_VERSION[spark.version])
    game = Game(new_table(kind), spark, kind)
    table = game.table
    for number in range(3):
        table.upsert(rows((f"k{number}", "x", 3 - number, 1), (f"l{number}", "x", 6 - number, 1)), **APART)
    table.upsert(rows(("k0", "x", 9, 2)))
    before = table.state.timeline.newest_time
    want = tuples(table.read())

    (done,) = table.cluster(["v", "id"], "hilbert")
    assert (done.groups_replaced, done.files_written) == (3, 1)
    assert all_read(game) == want
    after = str(int(before) + 1)  # Hudi 1.0.2 takes the begin of a range as part of it
    assert spark.read(table.path, begin=after).num_rows == 0  # clustered rows are no changes

    game.spark_upsert(("k0", "x", 10, 3), ("new", "x", 0, 3))
    want = tuples(table.read())
    assert ("k0", "x", 10, 3) in want
    plan = clustering.schedule(table.state.storage, {**table.properties, clustering.SORT_COLUMNS: "v"})
    game.spark_sql("CALL run_clustering(table => 't', op => 'execute')")
    newest = clustering.listed(table.state)[0]
    assert (newest.instant, newest.state) == (plan, "COMPLETED")
    assert all_read(game) == want

    table.upsert(rows(("k1", "x", 11, 4), ("l2", "x", 12, 4)), **APART)
    want = tuples(table.read())
    game.spark_sql("CALL run_clustering(table => 't', op => 'schedule', order => 'v')")
    (theirs,) = clustering.pending(table.state)
    assert [one.instant for one in table.cluster()] == [theirs]
    assert tuples(table.read()) == want
    game.spark_upsert(("l2", "x", 13, 5))
    assert all_read(game) == [("l2", "x", 13, 5) if row[0] == "l2" else row for row in want]


def test_spark_goes_on_after_a_plan_was_rolled_back_and_partitions_expired(
    spark120: SparkHudi, new_table: NewTable
) -> None:
    kind = Kind("mor", 9)
    game = Game(new_table(kind), spark120, kind)
    table = game.table
    table.upsert(rows(("a", "x", 1, 1), ("b", "y", 1, 1)))
    clustering.schedule(table.state.storage, table.properties)
    table.upsert(rows(("a", "x", 2, 2)), **{"hoodie.clustering.rollback.pending.replacecommit.on.conflict": "true"})
    assert clustering.pending(table.state) == []
    game.spark_upsert(("a", "x", 3, 3))
    assert all_read(game) == [("a", "x", 3, 3), ("b", "y", 1, 1)]
    long_ago = "20200101000000000"
    metadata = Path(table.path) / "city=y" / ".hoodie_partition_metadata"
    metadata.write_text(f"#partition metadata\ncommitTime={long_ago}\npartitionDepth=1\n")
    ttl = {
        "hoodie.partition.ttl.management.strategy.type": "KEEP_BY_CREATION_TIME",
        "hoodie.partition.ttl.strategy.days.retain": "30",
    }
    assert table.expire_partitions(**ttl) == ("city=y",)
    game.spark_upsert(("c", "x", 4, 4))
    assert all_read(game) == [("a", "x", 3, 3), ("c", "x", 4, 4)]
