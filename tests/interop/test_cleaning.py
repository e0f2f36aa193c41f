"""Cleaning and archiving by turns: what one engine cleaned and archived, the other reads, writes, cleans and archives on."""

from pathlib import Path

import pytest

import lakesql
from lakesql.services import cleaning
from lakesql.storage import open_storage
from tests.interop.spark import NATIVE_VERSION, SparkHudi
from tests.interop.test_services import all_read
from tests.interop.test_spark import Game
from tests.samples import Kind, NewTable, rows, tuples

SHORT = {
    "hoodie.clean.commits.retained": "1",
    "hoodie.cleaner.commits.retained": "1",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
    "hoodie.commits.archival.batch": "2",
    "hoodie.timeline.compaction.batch.size": "2",
}
BY_SPARK = SHORT | {"hoodie.metadata.enable": "false", "hoodie.compact.inline.max.delta.commits": "2"}


@pytest.mark.parametrize(
    ("spark", "type_"), [("1.2.0", "mor"), ("1.0.2", "cow"), ("0.15.0", "cow")], indirect=["spark"]
)
def test_both_clean_and_archive_on_after_the_other(type_: str, spark: SparkHudi, new_table: NewTable) -> None:
    kind = Kind(type_, NATIVE_VERSION[spark.version])
    game = Game(new_table(kind), spark, kind)
    written = [game.table.upsert(rows(("a", "x", 0, 0), ("b", "y", 0, 0)), **SHORT).instant]
    for number in range(1, 4):
        ours = [("a", "x", number, 10 * number + turn) for turn in range(3)]
        written += [game.table.upsert(rows(row), **SHORT).instant for row in ours]
        game.spark_upsert(("b", "y", number, 10 * number), options=BY_SPARK)
        assert all_read(game) == [("a", "x", number, 10 * number + 2), ("b", "y", number, 10 * number)]
    timeline = game.table.timeline().to_pylist()
    active = {row["instant"] for row in timeline if row["action"] not in ("clean", "rollback")}
    known = {row["instant"] for row in game.table.history().to_pylist()}
    assert len(active) <= 5
    assert set(written) <= known
    every = "CALL show_archived_commits(table => 't', limit => 100, start_ts => '2000', end_ts => '2999')"
    by_spark = game.spark_sql(every).column("commit_time").to_pylist()
    assert set(written[:6]) <= set(by_spark)
    assert len(by_spark) == len(set(by_spark))
    with pytest.raises(lakesql.LakeError, match="cleaned away"):
        game.table.read(as_of=written[0])
    # A plan that we leave on the timeline is carried out by Spark.
    storage = open_storage(game.table.path)
    if type_ == "cow":
        game.table.upsert(rows(("a", "x", 9, 90)), **{"hoodie.clean.automatic": "false"})
        game.table.upsert(rows(("a", "x", 9, 91)), **{"hoodie.clean.automatic": "false"})
        planned = cleaning.schedule(storage, SHORT)
        assert planned is not None
        game.spark_sql("CALL run_clean(table => 't', retain_commits => 1)")
        assert not game.table.state.timeline.pending()
        assert planned[0] in {row["instant"] for row in game.table.timeline().to_pylist() if row["action"] == "clean"}
        assert len(list((Path(game.table.path) / "city=x").glob("*.parquet"))) <= 2
        assert tuples(game.table.read())[0] == ("a", "x", 9, 91)
        assert all_read(game)[0] == ("a", "x", 9, 91)
