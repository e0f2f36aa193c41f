"""A write in tasks beside Spark: it reads and continues what they wrote, and takes a plan back that nobody committed."""

from pathlib import Path

import pytest

from lakesql.errors import CommitConflict
from tests.interop.spark import SparkHudi
from tests.interop.test_services import all_read
from tests.interop.test_spark import Game
from tests.samples import Kind, NewTable, rows, tuples

CELLS = [("1.2.0", "cow", 9), ("1.0.2", "mor", 8), ("0.15.0", "cow", 6)]


@pytest.mark.parametrize(
    ("spark", "type_", "version"), CELLS, ids=[f"hudi-{r}-{t}-v{v}" for r, t, v in CELLS], indirect=["spark"]
)
def test_spark_goes_on_after_a_plan_and_takes_back_one_that_was_left(
    spark: SparkHudi, type_: str, version: int, new_table: NewTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakesql.write.tasks.INLINE_BYTES", 0)
    kind = Kind(type_, version)
    game = Game(new_table(kind), spark, kind)
    table = game.table
    table.commit(map(table.run_task, table.plan_upsert(rows(("a", "x", 1, 1), ("b", "y", 1, 1)))))
    game.spark_upsert(("a", "x", 2, 2), ("c", "z", 2, 2))
    table.commit(map(table.run_task, table.plan_upsert(rows(("a", "x", 3, 3), ("d", "z", 3, 3)))))
    at_plan = [("a", "x", 3, 3), ("b", "y", 1, 1), ("c", "z", 2, 2), ("d", "z", 3, 3)]
    assert all_read(game) == at_plan
    plan = table.plan_upsert(rows(("a", "x", 4, 4), ("b", "y", 4, 4), ("e", "x", 4, 4)))
    results = [table.run_task(task) for task in plan]
    assert all_read(game) == at_plan
    game.spark_upsert(("b", "y", 5, 5))
    after = [("a", "x", 3, 3), ("b", "y", 5, 5), ("c", "z", 2, 2), ("d", "z", 3, 3)]
    assert all_read(game) == after
    with pytest.raises(CommitConflict, match="is over"):
        table.run_task(plan[-1])
    with pytest.raises(CommitConflict, match="rolled plan"):
        table.commit(results)
    assert all_read(game) == after
    table.upsert(rows(("a", "x", 6, 6)))
    assert ("a", "x", 6, 6) in tuples(table.read())
    table.clean()
    assert not [*Path(table.path, ".hoodie").glob(".lakesql/*")]
