"""What `hudi_freshness` says about tables written by Apache Hudi is true of their rows.

Up to `complete_to` the read-optimized view lacks no row of the snapshot, and the exact counts are the difference of the
two reads.
"""

import json
import zipfile
from pathlib import Path

import duckdb
import pytest

import lakesql
from lakesql.services.freshness import changed_rows, freshness
from tests.golden.test_real_tables import ARCHIVES
from tests.lakes import Lake

MOR = [a for a in ARCHIVES if "_mor" in a.stem]
NOW_MS = 1_900_000_000_000


@pytest.mark.on_store(every=40)
@pytest.mark.parametrize("archive", MOR, ids=lambda p: p.stem)
def test_the_lag_of_a_real_table_is_the_difference_of_its_two_views(archive: Path, tmp_path: Path, lake: Lake) -> None:
    with zipfile.ZipFile(archive) as zipped:
        zipped.extractall(tmp_path)
    for entry in json.loads((tmp_path / "manifest.json").read_text())["tables"]:
        table = lakesql.open_table(lake.bring(tmp_path / entry["path"]))
        if not table.state.config.is_mor:
            continue
        [lag] = freshness(table.state, NOW_MS)
        con = duckdb.connect()
        con.execute("SET TimeZone = 'UTC'")
        con.register("snapshot", table.read().read_all())
        con.register("optimized", table.read(mode="read_optimized").read_all())
        if not table.state.config.meta_fields:
            continue
        columns = "_hoodie_record_key AS k, split_part(_hoodie_file_name, '_', 1) AS p, _hoodie_commit_time AS c"
        pairs = con.execute(
            f"SELECT s.c, o.c FROM (SELECT {columns} FROM snapshot) s FULL JOIN (SELECT {columns} FROM optimized) o "
            "USING (k, p)"
        ).fetchall()
        timeline = table.state.history
        order = {i.requested: n for n, i in enumerate(timeline.completed_writes())}
        border = order[lag.complete_to] if lag.complete_to else -1
        lacking = [s for s, o in pairs if s is not None and s != o]
        if lag.oldest_missing is None:
            assert not lacking
            assert len([1 for s, _ in pairs if s is None]) == 0
        assert [s for s in lacking if order.get(s, len(order)) <= border] == []
        inserted, updated, deleted = changed_rows(con, table.state)
        assert inserted == len([1 for s, o in pairs if o is None])
        assert deleted == len([1 for s, o in pairs if s is None])
        assert updated <= len([1 for s, o in pairs if s is not None and o is not None and s != o])
        if lag.log_rows is not None:
            assert inserted + updated + deleted <= lag.log_rows
