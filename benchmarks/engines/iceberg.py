"""pyiceberg: an Iceberg table of as many files, its catalog in SQLite, read and changed by the library's own functions.

An Iceberg table names its files by full path, so a measurement works on a copy of the catalog and writes its new files beside
the old ones; they are removed afterwards.
"""

import shutil
from collections.abc import Callable
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from benchmarks import workload
from benchmarks.engines.common import check_query, check_rows, plain
from benchmarks.ready import Ready

_CATALOG, _NAME, _CALLS = "catalog.db", "bench.t", 3
_PROPERTIES = {"write.parquet.compression-codec": "zstd", "write.parquet.compression-level": str(workload.ZSTD_LEVEL)}


def version() -> str:
    return version_of("pyiceberg")


def _catalog(file: Path, home: Path) -> SqlCatalog:
    return SqlCatalog("bench", uri=f"sqlite:///{file}", warehouse=f"file://{home}/warehouse")


def _new(file: Path, home: Path, schema: pa.Schema) -> Table:
    catalog = _catalog(file, home)
    catalog.create_namespace("bench")
    return catalog.create_table(_NAME, schema, properties=_PROPERTIES)


def _table(data: Path, home: Path) -> None:
    files = workload.rows_files(data)
    table = _new(home / _CATALOG, home, pq.read_schema(files[0]))
    for file in files:
        table.append(pq.read_table(file))


TABLES = {"table": _table}


def _opened(data: Path, work: Path) -> tuple[Table, Callable[[], None]]:
    """The table by a catalog of its own, and what removes the files that were written since."""
    home = data / "pyiceberg-table"
    shutil.copy(home / _CATALOG, work / _CATALOG)
    before = set(home.rglob("*"))

    def cleaned() -> None:
        for file in set(home.rglob("*")) - before:
            if file.is_file():
                file.unlink()

    return _catalog(work / _CATALOG, home).load_table(_NAME), cleaned


def upsert(data: Path, work: Path, change: str) -> Ready:
    rows = pq.read_table(workload.source_file(data, change))
    table, cleaned = _opened(data, work)

    def check(_: object, thorough: bool) -> None:
        try:
            _check(table, data, change, thorough)
        finally:
            cleaned()

    return Ready(lambda: table.upsert(rows, join_cols=["id"]), check)


def _check(table: Table, data: Path, change: str, thorough: bool) -> None:
    con = plain()
    con.register("found", table.scan().to_arrow())
    check_rows(con, "found", data, change, thorough)


def bulk_insert(data: Path, work: Path) -> Ready:
    """One append; it takes a table in memory only."""
    files = workload.rows_files(data)
    table = _new(work / _CATALOG, work, pq.read_schema(files[0]))

    def call() -> None:
        table.append(pq.read_table(files))

    return Ready(call, lambda _, thorough: _check(table, data, "base", thorough))


def read(data: Path, work: Path, query: str) -> Ready:
    table, _ = _opened(data, work)

    def call() -> Any:
        if query == "full":
            return sum(b.num_rows for b in table.scan().to_arrow_batch_reader())
        found = table.scan(selected_fields=("amount",)).to_arrow()
        return pa.table({"sum(amount)": [pc.sum(found["amount"]).as_py()]})

    return Ready(call, lambda value, _: check_query(value, data, "base", query), calls=_CALLS)
