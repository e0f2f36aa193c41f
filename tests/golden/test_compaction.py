"""Real tables with logs, of every merge rule and log format, read the same after lakesql compacted them.

The plans that Spark left pending are run as well. Tables with nothing to compact or that lakesql does not write to are
not listed.
"""

import zipfile
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import lakesql
from lakesql.services import compaction
from lakesql.storage import open_storage
from lakesql.table.retained import retained_from
from tests.golden.test_real_tables import FOLDER
from tests.lakes import Lake

TABLES = (
    "h015_bucket_mor",
    "h015_indexed_mor",
    "h015_parquetlog_mor",
    "h015_payload_FirstValueAvroPayload_mor",
    "h015_payload_MySqlDebeziumAvroPayload_mor",
    "h015_payload_OverwriteNonDefaultsWithLatestAvroPayload_mor",
    "h015_positions_mor",
    "h102_globalindex_mor",
    "h102_parquetlog_mor",
    "h102_rollback_mor",
    "h120_bucket_mor",
    "h120_nullpartition_mor",
    "h120_parquetlog_mor",
    "h120_payload_PostgresDebeziumAvroPayload_mor",
    "h120_services_mor",
    "quickstart_trips_table_mor_avro_v6_trips_8i1u",
    "r060_mor_v8_part_compact",
    "r060_mor_v9_part",
    "x120_parquetlog_mor",
    "x120_payload_PartialUpdateAvroPayload_mor",
)


def rows(table: lakesql.Table, as_of: str | None = None) -> list[str]:
    """All columns but the name of the file, as sorted texts."""
    found: pa.Table = table.read(as_of=as_of).read_all().drop_columns(["_hoodie_file_name"])
    return sorted(map(repr, found.to_pylist()))


@pytest.mark.on_store(every=8)
@pytest.mark.parametrize("name", TABLES)
def test_a_real_table_reads_the_same_after_compaction(name: str, tmp_path: Path, lake: Lake) -> None:
    with zipfile.ZipFile(FOLDER / f"{name}.zip") as archive:
        archive.extractall(tmp_path)
    folder = next(p.parent for p in tmp_path.rglob("hoodie.properties") if "metadata" not in p.parts).parent
    root = lake.bring(folder)
    table = lakesql.open_table(root)
    kept = retained_from(table.state) or ""
    instants = [i.requested for i in table.state.timeline.completed_writes() if i.requested >= kept]
    some = {instants[0], instants[len(instants) // 2], instants[-1]}
    before, earlier = rows(table), {t: rows(table, t) for t in some}
    settings = {"hoodie.table.timeline.timezone": "UTC"}
    done = compaction.compact(duckdb.connect(), open_storage(root), settings)
    assert done.instants
    assert rows(table) == before
    assert {t: rows(table, t) for t in some} == earlier
    assert not any(one.logs for one in table.state.slices())
