"""deltalake: its `DeltaTable.merge` on a table of FILES files."""

from importlib.metadata import version
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
from deltalake import DeltaTable, WriterProperties, write_deltalake

from benchmarks.merge.engine import Engine, Run, copied
from benchmarks.merge.workload import CHANGED, COLUMNS, FILES, ZSTD_LEVEL, rows_file, source_file

_NAME = "delta"


def engine() -> Engine:
    return Engine(lambda: version("deltalake"), _prepare, _run)


def _properties() -> WriterProperties:
    return WriterProperties(compression="ZSTD", compression_level=ZSTD_LEVEL)


def _prepare(data: Path, home: Path) -> None:
    for number in range(FILES):
        rows = pq.read_table(rows_file(data, number))
        write_deltalake(str(home / _NAME), rows, mode="append", writer_properties=_properties())
    made = len(DeltaTable(str(home / _NAME)).file_uris())
    if made != FILES:
        raise SystemExit(f"{_NAME}: expected {FILES} files, made {made}.")


def _run(data: Path, home: Path, work: Path, case: str) -> Run:
    source = pq.read_table(source_file(data, case))
    path = copied(home / _NAME, work)
    table = DeltaTable(str(path))

    def call() -> None:
        merge = table.merge(
            source, "t.id = s.id", source_alias="s", target_alias="t", writer_properties=_properties()
        ).when_matched_update({c: f"s.{c}" for c in CHANGED})
        merge.when_not_matched_insert({c: f"s.{c}" for c in COLUMNS}).execute()

    def read() -> tuple[duckdb.DuckDBPyConnection, str]:
        files = [f.removeprefix("file://") for f in DeltaTable(str(path)).file_uris()]
        return duckdb.connect(), f"read_parquet({files})"

    return Run(call, path, read)
