"""Tables that Spark wrote with a bucket index or a global index are continued as their index demands."""

import itertools
import json
import zipfile
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import lakesql
from lakesql.storage import open_storage
from lakesql.table import read
from lakesql.table.state import load
from lakesql.write import prune, write
from lakesql.write.plan import BATCH
from tests.interop import rust
from tests.lakes import Lake

FOLDER = Path(__file__).parent / "tables"
COLUMNS = ("id", "v", "ts", "part")
BUCKET = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "4"}
GLOBAL = {"hoodie.index.type": "GLOBAL_SIMPLE"}
Row = tuple[int, str, int, str]


def unzipped(name: str, lake: Lake) -> lakesql.Table:
    with zipfile.ZipFile(FOLDER / f"{name}.zip") as archive:
        archive.extractall(lake.folder)
    return lakesql.open_table(lake.bring(lake.folder / name))


def rows_of(table: pa.Table | pa.RecordBatchReader) -> list[Row]:
    whole = table if isinstance(table, pa.Table) else table.read_all()
    return sorted(tuple(row[c] for c in COLUMNS) for row in whole.to_pylist())


def rust_rows(table: lakesql.Table, lake: Lake) -> list[Row]:
    """What hudi-rs reads, which is given a folder."""
    if lake.is_local:
        return rows_of(rust.read(table.path))
    return rows_of(rust.read(str(lake.fetch(table.path))))


def upsert(table: lakesql.Table, rows: list[Row], options: dict[str, str]) -> lakesql.WriteResult:
    """The tables were made on one day of 2026; the write happens a week later, whatever the clock here says."""
    con = duckdb.connect()
    con.register("rows", pa.Table.from_pylist([dict(zip(COLUMNS, row, strict=True)) for row in rows]))
    clock = itertools.count(1_796_700_000_000, 10)
    settings = {"hoodie.table.timeline.timezone": "utc", **options}
    return write(con, table.state, "FROM rows", operation="upsert", settings=settings, clock=clock.__next__)


@pytest.mark.on_store(every=2)
@pytest.mark.parametrize("name", ["h015_bucket_mor", "h120_bucket_mor"])
def test_bucket_table_of_spark_is_continued_in_its_buckets(name: str, lake: Lake) -> None:
    table = unzipped(name, lake)
    model = {(row[0], row[3]): row for row in rows_of(table.read())}
    groups = {one.group for one in read.plan(table.state).slices}
    batch = [(n, "ours", 9, "ab"[n % 2]) for n in range(10, 40)]
    result = upsert(table, batch, BUCKET)
    assert (result.rows_inserted, result.rows_updated) == (15, 15)
    model |= {(row[0], row[3]): row for row in batch}
    table = lakesql.open_table(table.path)
    assert rows_of(table.read()) == rust_rows(table, lake) == sorted(model.values())
    assert {one.group for one in read.plan(table.state).slices} == groups


@pytest.mark.parametrize("name", ["h015_bucket_mor", "h120_bucket_mor"])
def test_bucket_table_of_spark_is_not_written_without_the_right_number(name: str, lake: Lake) -> None:
    table = unzipped(name, lake)
    with pytest.raises(lakesql.Unsupported, match=r"SET hoodie\.index\.type = BUCKET"):
        upsert(table, [(1, "ours", 9, "a")], {})
    for number in ("3", "8", "256"):
        with pytest.raises(lakesql.TableError, match=r"SET hoodie\.bucket\.index\.num\.buckets"):
            upsert(table, [(1, "ours", 9, "a")], BUCKET | {"hoodie.bucket.index.num.buckets": number})
    assert load(table.state.storage).timeline == table.state.timeline


@pytest.mark.parametrize(
    "name",
    [
        f"{r}_globalindex_{t}"
        for r, t in (("h015", "cow"), ("h015", "mor"), ("h102", "cow"), ("h102", "mor"), ("h120", "cow"))
    ],
)
def test_rows_of_a_table_with_a_global_index_go_on_moving(name: str, lake: Lake) -> None:
    table = unzipped(name, lake)
    model = {row[0]: row for row in rows_of(table.read())}
    first = [(1, "ours", 9, "q"), (2, "ours", 9, "p"), (4, "ours", 1, "q"), (5, "ours", 1, "s")]
    result = upsert(table, first, GLOBAL)
    late = {4} if table.state.config.merge_mode == "EVENT_TIME_ORDERING" else set()
    assert (result.rows_inserted, result.rows_updated, result.rows_ignored) == (1, 3 - len(late), len(late))
    model |= {row[0]: row for row in first if row[0] not in late}
    table = lakesql.open_table(table.path)
    assert rows_of(table.read()) == rust_rows(table, lake) == sorted(model.values())


@pytest.mark.parametrize("archive", sorted(FOLDER.glob("*.zip")), ids=lambda p: p.stem)
def test_filters_of_real_tables_let_through_the_file_that_has_the_key(
    archive: Path, tmp_path: Path, lake: Lake
) -> None:
    with zipfile.ZipFile(archive) as zipped:
        zipped.extractall(tmp_path)
    con = duckdb.connect()
    for entry in json.loads((tmp_path / "manifest.json").read_text())["tables"]:
        plan = read.plan(load(open_storage(lake.bring(tmp_path / entry["path"]))), mode="read_optimized")
        if not plan.view.state.config.meta_fields or not plan.slices:
            continue
        keys = read.to_sql(con, plan, ["_hoodie_record_key", "_hoodie_partition_path", "_hoodie_file_name"])
        con.execute(
            f"CREATE OR REPLACE TABLE one AS SELECT max(_hoodie_record_key) AS key, _hoodie_partition_path AS part, "
            f"_hoodie_file_name AS name FROM ({keys}) GROUP BY ALL"
        )
        for number, one in enumerate(plan.slices):
            assert one.base is not None
            con.execute(
                f"CREATE OR REPLACE TEMP TABLE {BATCH} AS SELECT key AS __lakesql_key, part AS __lakesql_part FROM one "
                "WHERE name = ?",
                [one.base.name],
            )
            rows = con.execute(f"SELECT count(*) FROM {BATCH}").fetchall()[0][0]
            assert prune.may_hold(con, plan, [number], everywhere=False) == [number] * rows
