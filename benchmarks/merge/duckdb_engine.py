"""DuckDB's own MERGE: a table without index in a database file, with a checkpoint at the end. No open table format."""

import shutil
from pathlib import Path

import duckdb

from benchmarks.merge.engine import Engine, Run
from benchmarks.merge.workload import FILES, load_source, merge_sql, rows_file

_NAME = "native.duckdb"


def engine() -> Engine:
    return Engine(lambda: duckdb.__version__, _prepare, _run)


def _prepare(data: Path, home: Path) -> None:
    with duckdb.connect(str(home / _NAME)) as con:
        con.execute(f"CREATE TABLE t AS FROM read_parquet({[str(rows_file(data, n)) for n in range(FILES)]})")
        con.execute("CHECKPOINT")


def _run(data: Path, home: Path, work: Path, case: str) -> Run:
    path = work / _NAME
    shutil.copy(home / _NAME, path)  # changed in place
    con = duckdb.connect(str(path))
    statement = merge_sql("t", load_source(con, data, case))

    def call() -> None:
        con.execute(statement)
        con.execute("CHECKPOINT")

    def read() -> tuple[duckdb.DuckDBPyConnection, str]:
        con.close()
        return duckdb.connect(str(path)), "t"

    return Run(call, path, read)
