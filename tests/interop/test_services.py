"""Table services and overwrites of one engine, continued by the other."""

import pytest

import lakesql
from tests.interop import rust
from tests.interop.spark import NATIVE_VERSION, SparkHudi
from tests.interop.test_spark import SCHEDULE, Game
from tests.samples import Kind, NewTable, Row, rows, tuples

BOTH_TYPES = pytest.mark.parametrize("type_", ["cow", "mor"])


def all_read(game: Game) -> list[Row]:
    """The rows, after asserting that lakesql, Spark and hudi-rs read the same."""
    ours = tuples(game.table.read())
    assert tuples(game.spark.read(game.table.path)) == ours
    assert tuples(rust.read(game.table.path)) == ours
    return ours


@BOTH_TYPES
@pytest.mark.parametrize("spark", ["1.2.0", "0.15.0"], indirect=True)
def test_we_go_on_after_spark_compacted_cleaned_and_archived(type_: str, spark: SparkHudi, new_table: NewTable) -> None:
    kind = Kind(type_, NATIVE_VERSION[spark.version])
    game = Game(new_table(kind), spark, kind)
    eager = {
        "hoodie.metadata.enable": "false",  # archiving waits for that table, which we keep removing
        "hoodie.cleaner.commits.retained": "1",
        "hoodie.keep.min.commits": "2",
        "hoodie.keep.max.commits": "3",
        "hoodie.commits.archival.batch": "1",
        "hoodie.compact.inline.max.delta.commits": "2",
    }
    first = game.table.upsert(rows(("a", "x", 0, 0), ("b", "y", 0, 0)))
    for number in range(1, 6):
        game.table.upsert(rows(("a", "x", 10 * number, 10 * number)))
        game.spark_upsert(("b", "y", number, 10 * number), options=eager)
        assert all_read(game) == [("a", "x", 10 * number, 10 * number), ("b", "y", number, 10 * number)]
    active = {row["instant"] for row in game.table.timeline().to_pylist()}
    assert first.instant is not None
    assert first.instant not in active
    assert first.instant in {row["instant"] for row in game.table.history().to_pylist()}
    assert any(row["action"] == "clean" for row in game.table.history().to_pylist())
    with pytest.raises(lakesql.LakeError, match="clean"):
        game.table.read(as_of=first.instant)


@pytest.mark.parametrize("version", [9, 8])
def test_rows_written_here_while_spark_has_a_compaction_pending_survive_it(
    version: int, spark120: SparkHudi, new_table: NewTable
) -> None:
    kind = Kind("mor", version)
    game = Game(new_table(kind), spark120, kind)
    game.table.upsert(rows(("a", "x", 1, 1), ("b", "x", 1, 1)))
    game.table.upsert(rows(("a", "x", 2, 2)))
    game.spark_sql(SCHEDULE)
    assert game.table.state.pending_compactions
    game.table.upsert(rows(("a", "x", 3, 3), ("c", "x", 3, 3)))
    game.table.delete(rows(("b", "x", None, None)))
    assert all_read(game) == [("a", "x", 3, 3), ("c", "x", 3, 3)]
    game.spark_sql("CALL run_compaction(op => 'run', table => 't')")
    assert not game.table.state.pending_compactions
    assert all_read(game) == [("a", "x", 3, 3), ("c", "x", 3, 3)]
    game.table.upsert(rows(("a", "x", 4, 4)))
    assert all_read(game) == [("a", "x", 4, 4), ("c", "x", 3, 3)]


@BOTH_TYPES
def test_both_go_on_after_spark_clustered_our_file_groups(type_: str, spark120: SparkHudi, new_table: NewTable) -> None:
    kind = Kind(type_, 9)
    game = Game(new_table(kind), spark120, kind)
    for number in range(3):
        separate = {"hoodie.parquet.small.file.limit": "0"}
        game.table.upsert(rows((f"k{number}", "x", number, 1), (f"l{number}", "x", number, 1)), **separate)
    assert len(game.table.state.slices()) == 3
    game.spark_sql("CALL run_clustering(table => 't', order => 'v')")
    assert len(game.table.state.slices()) == 1
    game.table.upsert(rows(("k0", "x", 10, 2), ("l2", "x", 12, 2)))
    game.spark_upsert(("k1", "x", 11, 3))
    want = [
        ("k0", "x", 10, 2),
        ("k1", "x", 11, 3),
        ("k2", "x", 2, 1),
        ("l0", "x", 0, 1),
        ("l1", "x", 1, 1),
        ("l2", "x", 12, 2),
    ]
    assert all_read(game) == want


@BOTH_TYPES
def test_overwrites_of_either_engine_replace_the_rows_of_the_other(
    type_: str, spark120: SparkHudi, new_table: NewTable
) -> None:
    kind = Kind(type_, 9)
    game = Game(new_table(kind), spark120, kind)
    game.table.upsert(rows(("a", "x", 1, 1), ("b", "x", 1, 1), ("c", "y", 1, 1)))
    game.spark_upsert(("a", "x", 2, 2))
    game.table.insert_overwrite(rows(("d", "x", 3, 3)))
    assert all_read(game) == [("c", "y", 1, 1), ("d", "x", 3, 3)]
    game.spark_upsert(("d", "x", 4, 4), ("e", "x", 4, 4))
    game.spark_sql("INSERT OVERWRITE t PARTITION (city = 'x') SELECT 'f', 5, 5")
    assert all_read(game) == [("c", "y", 1, 1), ("f", "x", 5, 5)]
    game.table.upsert(rows(("f", "x", 6, 6), ("d", "x", 6, 6)))
    assert all_read(game) == [("c", "y", 1, 1), ("d", "x", 6, 6), ("f", "x", 6, 6)]


@BOTH_TYPES
def test_spark_rolls_our_newest_commit_back(type_: str, spark120: SparkHudi, new_table: NewTable) -> None:
    kind = Kind(type_, 9)
    game = Game(new_table(kind), spark120, kind)
    game.table.upsert(rows(("a", "x", 1, 1), ("b", "y", 1, 1)))
    wrong = game.table.upsert(rows(("a", "x", 2, 2), ("c", "z", 2, 2)))
    game.spark_sql(f"CALL rollback_to_instant(table => 't', instant_time => '{wrong.instant}')")
    assert all_read(game) == [("a", "x", 1, 1), ("b", "y", 1, 1)]
    game.table.upsert(rows(("a", "x", 3, 3), ("d", "z", 3, 3)))
    assert all_read(game) == [("a", "x", 3, 3), ("b", "y", 1, 1), ("d", "z", 3, 3)]
