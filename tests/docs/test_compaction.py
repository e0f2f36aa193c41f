"""docs/services/compaction.md names every setting and strategy, and its SQL runs."""

import re
from pathlib import Path

import lakesql
from lakesql.services import compaction_plan, log_compaction

TEXT = (Path(__file__).parents[2] / "docs" / "services" / "compaction.md").read_text(encoding="utf-8")


def test_every_setting_and_strategy_of_compaction_is_documented() -> None:
    names = {
        *compaction_plan.SETTINGS,
        *compaction_plan.STRATEGIES,
        *compaction_plan.TRIGGERS,
        *log_compaction.SETTINGS,
    }
    assert [name for name in sorted(names) if name not in TEXT] == []


def test_the_sql_of_the_compaction_page_runs(tmp_path: Path) -> None:
    block = re.search(r"```sql\n(.*?)```", TEXT, re.DOTALL)
    assert block is not None
    with lakesql.connect(warehouse=str(tmp_path)) as con:
        *_, last = con.sql(block[1]).fetchall()
        assert last[1:] == (1, "COMPLETED")
        assert con.sql("SELECT id, fare FROM trips ORDER BY id").fetchall() == [("a", 2), ("b", 1)]
