"""deltalake: a Delta table of as many files; read by its own query engine."""

from functools import partial
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, QueryBuilder, WriterProperties, write_deltalake

from benchmarks import workload
from benchmarks.engines.common import check_query, check_rows, parquet, plain
from benchmarks.ready import Ready, copied

_NAME, _CALLS = "table", 6


def version() -> str:
    return version_of("deltalake")


def _properties() -> WriterProperties:
    return WriterProperties(compression="ZSTD", compression_level=workload.ZSTD_LEVEL)


def _table(data: Path, home: Path) -> None:
    for file in workload.rows_files(data):
        write_deltalake(str(home / _NAME), pq.read_table(file), mode="append", writer_properties=_properties())
    made = len(DeltaTable(str(home / _NAME)).file_uris())
    workload.require(made, workload.FILES, "the number of files of the Delta table")


TABLES = {"table": _table}


def _check(path: Path, data: Path, change: str, _: object, thorough: bool) -> None:
    files = [f.removeprefix("file://") for f in DeltaTable(str(path)).file_uris()]
    check_rows(plain(), parquet(files), data, change, thorough)


def merge(data: Path, work: Path, change: str, every_column: bool = False) -> Ready:
    source = pq.read_table(workload.source_file(data, change))
    path = copied(data / "deltalake-table" / _NAME, work)
    table = DeltaTable(str(path))
    columns = workload.COLUMNS if every_column else workload.CHANGED

    def call() -> None:
        merge = table.merge(
            source, "t.id = s.id", source_alias="s", target_alias="t", writer_properties=_properties()
        ).when_matched_update({c: f"s.{c}" for c in columns})
        merge.when_not_matched_insert({c: f"s.{c}" for c in workload.COLUMNS}).execute()

    return Ready(call, partial(_check, path, data, change))


def delete(data: Path, work: Path) -> Ready:
    keys = pq.read_table(workload.source_file(data, "DEL"))
    path = copied(data / "deltalake-table" / _NAME, work)
    table = DeltaTable(str(path))

    def call() -> None:
        table.merge(
            keys, "t.id = s.id", source_alias="s", target_alias="t", writer_properties=_properties()
        ).when_matched_delete().execute()

    return Ready(call, partial(_check, path, data, "DEL"))


def bulk_insert(data: Path, work: Path) -> Ready:
    """One append of the same stream of rows; the files are as large as it makes them."""
    files = workload.rows_files(data)

    def call() -> None:
        rows = (b for f in files for b in pq.ParquetFile(f).iter_batches(65_536))
        reader = pa.RecordBatchReader.from_batches(pq.read_schema(files[0]), rows)
        write_deltalake(str(work / _NAME), reader, mode="append", writer_properties=_properties())

    return Ready(call, partial(_check, work / _NAME, data, "base"))


def read(data: Path, work: Path, query: str) -> Ready:  # noqa: ARG001
    engine = QueryBuilder().register("t", DeltaTable(str(data / "deltalake-table" / _NAME)))
    sql = workload.query(query, "t", data)

    def call() -> Any:
        rows = pa.RecordBatchReader.from_stream(engine.execute(sql))
        if query == "full":
            return sum(b.num_rows for b in rows)
        found = rows.read_all()
        return found.rename_columns(["sum(amount)"]) if query == "sum" else found

    return Ready(call, lambda value, _: check_query(value, data, "base", query), calls=_CALLS)
