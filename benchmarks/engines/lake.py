"""DuckLake: Parquet files and a catalog in a DuckDB file. Needs nothing but DuckDB and its extension `ducklake`, which is
taken as it is installed, from the Python package duckdb-extension-ducklake of the same version, or by INSTALL."""

import importlib.util
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import duckdb

from benchmarks import workload
from benchmarks.engines.common import check_query, check_rows, consumed, parquet
from benchmarks.ready import Ready, Unavailable, copied

_NAME, _CATALOG, _CALLS = "lake", "catalog.ducklake", 6


def _loaded() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'; SET enable_progress_bar = false")
    package = importlib.util.find_spec("duckdb_extension_ducklake")
    files = (
        Path(package.origin).parent.glob("extensions/*/ducklake.duckdb_extension") if package and package.origin else ()
    )
    refused: list[str] = []
    for attempt in ("LOAD ducklake", *(f"LOAD '{f}'" for f in files), "INSTALL ducklake; LOAD ducklake"):
        try:
            con.execute(attempt)
        except duckdb.Error as error:
            refused.append(str(error).splitlines()[0].split(" at URL")[0])
        else:
            return con
    raise Unavailable(f"DuckDB {duckdb.__version__} has no extension ducklake ({refused[-1]})")


def version() -> str:
    found = (
        _loaded()
        .execute("SELECT extension_version FROM duckdb_extensions() WHERE extension_name = 'ducklake'")
        .fetchall()
    )
    return f"{found[0][0]} on DuckDB {duckdb.__version__}"


def _attached(folder: Path) -> duckdb.DuckDBPyConnection:
    con = _loaded()
    options = f"DATA_PATH '{folder}/data', OVERRIDE_DATA_PATH true"
    con.execute(f"ATTACH 'ducklake:{folder}/{_CATALOG}' AS lake ({options})")
    return con


def _empty(folder: Path, data: Path) -> duckdb.DuckDBPyConnection:
    folder.mkdir()
    con = _attached(folder)
    con.execute("CALL lake.set_option('parquet_compression', 'zstd')")
    con.execute(f"CALL lake.set_option('parquet_compression_level', '{workload.ZSTD_LEVEL}')")
    con.execute(f"CREATE TABLE lake.t AS FROM read_parquet('{workload.rows_file(data, 0)}') LIMIT 0")
    return con


def _table(change: str | None, data: Path, home: Path) -> None:
    con = _empty(home / _NAME, data)
    for file in workload.rows_files(data):
        con.execute(f"INSERT INTO lake.t FROM read_parquet('{file}')")
    if change:
        con.execute(workload.merge_sql("lake.t", workload.load_source(con, data, change)))
    con.execute("DETACH lake")


TABLES = {"table": partial(_table, None), "table-U1": partial(_table, "U1"), "table-D20": partial(_table, "D20")}


def _changed(data: Path, work: Path) -> tuple[Path, duckdb.DuckDBPyConnection]:
    home = data / "ducklake-table" / _NAME
    path = copied(home, work)
    (path / _CATALOG).unlink()
    shutil.copy(home / _CATALOG, path / _CATALOG)  # changed in place
    return path, _attached(path)


def _check(con: duckdb.DuckDBPyConnection, data: Path, change: str, _: object, thorough: bool) -> None:
    check_rows(con, "lake.t", data, change, thorough)


def merge(data: Path, work: Path, change: str) -> Ready:
    _, con = _changed(data, work)
    statement = workload.merge_sql("lake.t", workload.load_source(con, data, change))
    return Ready(lambda: con.execute(statement), partial(_check, con, data, change))


def delete(data: Path, work: Path) -> Ready:
    _, con = _changed(data, work)
    source = workload.load_source(con, data, "DEL")
    statement = f"DELETE FROM lake.t WHERE id IN (SELECT id FROM {source})"
    return Ready(lambda: con.execute(statement), partial(_check, con, data, "DEL"))


def bulk_insert(data: Path, work: Path) -> Ready:
    con = _empty(work / _NAME, data)
    statement = f"INSERT INTO lake.t FROM {parquet(workload.rows_files(data))}"
    return Ready(lambda: con.execute(statement), partial(_check, con, data, "base"))


def read(data: Path, work: Path, change: str, query: str) -> Ready:
    """After `base`, or a MERGE that left delete files behind."""
    home = data / ("ducklake-table" if change == "base" else f"ducklake-table-{change}") / _NAME
    path = copied(home, work)
    (path / _CATALOG).unlink()
    shutil.copy(home / _CATALOG, path / _CATALOG)
    con = _attached(path)
    sql = workload.query(query, "lake.t", data)

    def check(value: Any, _: bool) -> None:
        check_query(value, data, change, query)

    return Ready(lambda: consumed(con.sql(sql), query), check, calls=_CALLS)
