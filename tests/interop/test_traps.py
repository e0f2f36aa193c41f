"""What loses or doubles rows without any error, shown by the engine that would lose them: Apache Hudi on Spark.

The traps that show on the files alone are in `tests/unit/test_traps.py` (hudi-format C.8 lists all of them).
"""

import pytest

import lakesql
from tests.interop.spark import SparkHudi
from tests.interop.test_spark import SCHEDULE, Game
from tests.leftovers import die_before_completing, files_with_rows_of
from tests.samples import Kind, NewTable, rows, tuples

DOOMED = rows(("a", "x", 2, 2), ("b", "z", 2, 2))
BOTH_TYPES = pytest.mark.parametrize("type_", ["cow", "mor"])


def both(game: Game) -> list[tuple[str, str, int | None, int | None]]:
    """The rows, after asserting that Spark and lakesql read the same."""
    ours = tuples(game.table.read())
    assert tuples(game.spark.read(game.table.path)) == ours
    return ours


@BOTH_TYPES
def test_spark_finds_what_we_add_after_it_built_the_metadata_table(
    type_: str, new_table: NewTable, spark120: SparkHudi
) -> None:
    table = new_table(Kind(type_, 9))
    game = Game(table, spark120, Kind(type_, 9))
    game.spark_upsert(("a", "x", 1, 1))
    assert game.has_metadata_table()
    table.upsert(rows(("a", "x", 2, 2), ("b", "y", 2, 2)))
    assert both(game) == [("a", "x", 2, 2), ("b", "y", 2, 2)]
    game.spark_upsert(("b", "y", 3, 3), ("a", "x", 3, 3))
    assert both(game) == [("a", "x", 3, 3), ("b", "y", 3, 3)]


@pytest.mark.parametrize("kind", [Kind("cow", 9), Kind("mor", 9), Kind("mor", 8)], ids=str)
def test_spark_removes_the_files_of_our_dead_write(kind: Kind, new_table: NewTable, spark120: SparkHudi) -> None:
    """Our markers tell Spark's rollback what to delete; stray files would come to life once Spark has archived."""
    table = new_table(kind)
    game = Game(table, spark120, kind)
    table.upsert(rows(("a", "x", 1, 1)))
    dead = die_before_completing(table, DOOMED)
    assert files_with_rows_of(table, dead)
    game.spark_upsert(("c", "x", 3, 3))
    assert both(game) == [("a", "x", 1, 1), ("c", "x", 3, 3)]
    assert not files_with_rows_of(table, dead)
    table.upsert(rows(("a", "x", 4, 4), ("b", "z", 4, 4)))
    assert both(game) == [("a", "x", 4, 4), ("b", "z", 4, 4), ("c", "x", 3, 3)]


@pytest.mark.parametrize("kind", [Kind("cow", 6), Kind("mor", 6)], ids=str)
def test_hudi_015_undoes_our_dead_write(kind: Kind, new_table: NewTable, spark015: SparkHudi) -> None:
    """In version 6 Spark's rollback adds a command block to the log instead of deleting it."""
    table = new_table(kind)
    game = Game(table, spark015, kind)
    table.upsert(rows(("a", "x", 1, 1)))
    dead = die_before_completing(table, DOOMED)
    game.spark_upsert(("c", "x", 3, 3))
    game.spark_upsert(("c", "x", 4, 4))
    assert both(game) == [("a", "x", 1, 1), ("c", "x", 4, 4)]
    assert not files_with_rows_of(table, dead)
    table.upsert(rows(("a", "x", 5, 5), ("b", "z", 5, 5)))
    assert both(game) == [("a", "x", 5, 5), ("b", "z", 5, 5), ("c", "x", 4, 4)]


@BOTH_TYPES
def test_hudi_015_finds_the_keys_of_our_table_without_partitions(
    type_: str, new_table: NewTable, spark015: SparkHudi
) -> None:
    kind = Kind(type_, 6, partitioned=False)
    game = Game(new_table(kind), spark015, kind)
    game.table.upsert(rows(("a", "x", 1, 1), ("b", "y", 1, 1)))
    game.spark_upsert(("a", "x", 2, 2), ("c", "z", 2, 2))
    assert both(game) == [("a", "x", 2, 2), ("b", "y", 1, 1), ("c", "z", 2, 2)]
    game.table.upsert(rows(("b", "y", 3, 3), ("c", "z", 3, 3)))
    assert both(game) == [("a", "x", 2, 2), ("b", "y", 3, 3), ("c", "z", 3, 3)]


@pytest.mark.parametrize("version", [9, 8, 6])
def test_our_delete_holds_against_an_older_event_on_spark_too(
    version: int, new_table: NewTable, spark120: SparkHudi
) -> None:
    game = Game(new_table(Kind("mor", version)), spark120, Kind("mor", version))
    game.table.upsert(rows(("a", "x", 1, 10), ("b", "x", 1, 10), ("c", "x", 1, 10)))
    game.table.delete(rows(("a", "x", None, None), ("b", "x", None, None)))
    assert both(game) == [("c", "x", 1, 10)]
    game.spark_upsert(("a", "x", 2, 5), ("b", "x", 2, 20))
    assert both(game) == [("b", "x", 2, 20), ("c", "x", 1, 10)]


def test_our_delete_leaves_slices_that_hudi_102_can_read(new_table: NewTable, spark102: SparkHudi) -> None:
    """1.0.2 fails on a delete without the column's own ordering type that is followed by data for the same key."""
    game = Game(new_table(Kind("mor", 8)), spark102, Kind("mor", 8))
    game.table.upsert(rows(("a", "x", 1, 10), ("b", "x", 1, 10)))
    game.con.sql("DELETE FROM t WHERE id = 'a'")
    game.table.upsert(rows(("a", "x", 2, 20)))
    assert both(game) == [("a", "x", 2, 20), ("b", "x", 1, 10)]


def test_version_6_write_waits_for_the_compaction_that_spark_planned(new_table: NewTable, spark120: SparkHudi) -> None:
    kind = Kind("mor", 6)
    game = Game(new_table(kind), spark120, kind)
    game.table.upsert(rows(("a", "x", 1, 1)))
    game.table.upsert(rows(("a", "x", 2, 2)))
    game.spark_sql(SCHEDULE)
    (plan,) = game.table.state.timeline.pending("compaction")
    with pytest.raises(lakesql.LakeError, match=f"compaction {plan.requested}"):
        game.table.upsert(rows(("a", "x", 3, 3)))
    assert both(game) == [("a", "x", 2, 2)]
    game.spark_sql("CALL run_compaction(op => 'run', table => 't')")
    game.table.upsert(rows(("a", "x", 3, 3)))
    assert both(game) == [("a", "x", 3, 3)]


@BOTH_TYPES
def test_spark_in_another_time_zone_keeps_its_own_and_our_commits(
    type_: str, new_table: NewTable, spark120_west: SparkHudi
) -> None:
    kind = Kind(type_, 9)
    game = Game(new_table(kind), spark120_west, kind)
    game.table.upsert(rows(("a", "x", 1, 1), ("b", "y", 1, 1)))
    game.spark_upsert(("a", "x", 2, 2), ("c", "z", 2, 2))
    assert both(game) == [("a", "x", 2, 2), ("b", "y", 1, 1), ("c", "z", 2, 2)]
    game.table.upsert(rows(("c", "z", 3, 3)))
    game.spark_upsert(("b", "y", 4, 4))
    assert both(game) == [("a", "x", 2, 2), ("b", "y", 4, 4), ("c", "z", 3, 3)]
    instants = [instant.requested for instant in game.table.state.timeline.completed_writes()]
    assert instants == sorted(instants)
