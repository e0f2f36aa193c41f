"""Rollback, savepoint and restore of one engine, continued by the other; all three readers agree after every step."""

import pytest

import lakesql
from lakesql.handle import Table
from lakesql.storage import open_storage
from tests.faulty import FaultError, FaultyStorage
from tests.interop.spark import SparkHudi
from tests.interop.test_services import all_read
from tests.interop.test_spark import SCHEDULE, Game
from tests.samples import Kind, NewTable, rows, tuples

CELLS = [("1.2.0", "mor", 9), ("1.2.0", "cow", 9), ("1.0.2", "mor", 8), ("0.15.0", "mor", 6)]


def die_after_unpublishing(table: lakesql.Table) -> None:
    """Roll the newest write back as a process that is killed when the write cannot be seen any more."""
    newest = table.state.timeline.completed_writes()[-1].requested
    with pytest.raises((FaultError, lakesql.LakeError)):
        Table(FaultyStorage(open_storage(table.path), fail_at=1, how="after", kinds=("delete",))).rollback()
    assert newest in [i.requested for i in table.state.timeline.pending()]


@pytest.mark.parametrize(
    ("spark", "type_", "version"), CELLS, ids=[f"hudi-{r}-{t}-v{v}" for r, t, v in CELLS], indirect=["spark"]
)
def test_both_go_on_after_what_either_wrote_was_taken_back(
    spark: SparkHudi, type_: str, version: int, new_table: NewTable
) -> None:
    kind = Kind(type_, version)
    game = Game(new_table(kind), spark, kind)
    table = game.table
    table.upsert(rows(("a", "x", 1, 1), ("b", "y", 1, 1)))
    game.spark_upsert(("a", "x", 2, 2), ("c", "z", 2, 2))
    assert game.has_metadata_table()
    table.rollback()
    table.upsert(rows(("a", "x", 3, 3), ("c", "z", 3, 3)))
    die_after_unpublishing(table)
    game.spark_upsert(("b", "y", 2, 2))
    saved = table.savepoint(comments="before the mistakes")
    at_savepoint = [("a", "x", 1, 1), ("b", "y", 2, 2)]
    assert tuples(table.read()) == at_savepoint
    table.upsert(rows(("a", "x", 4, 4), ("d", "z", 4, 4)))
    if type_ == "mor":
        game.spark_sql(SCHEDULE)
        game.spark_sql("CALL run_compaction(op => 'run', table => 't')")
    game.spark_upsert(("a", "x", 5, 5), ("b", "y", 5, 5), ("e", "x", 5, 5))
    table.insert_overwrite(rows(("f", "y", 6, 6)))
    assert table.restore().savepoint == saved
    assert all_read(game) == at_savepoint
    assert not game.has_metadata_table()
    game.spark_upsert(("b", "y", 7, 7), ("g", "z", 7, 7))
    assert all_read(game) == [("a", "x", 1, 1), ("b", "y", 7, 7), ("g", "z", 7, 7)]
    if (spark.version, type_) == ("1.2.0", "mor"):
        table.upsert(rows(("a", "x", 8, 8)))
        game.spark_sql(f"CALL rollback_to_savepoint(table => 't', instant_time => '{saved}')")
        assert all_read(game) == at_savepoint
    table.upsert(rows(("g", "z", 9, 9)))
    assert ("g", "z", 9, 9) in tuples(table.read())
