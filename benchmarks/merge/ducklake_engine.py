"""DuckLake: Parquet files and a catalog in a DuckDB file. Needs nothing but DuckDB and its extension `ducklake`, which is
taken as it is installed, from the Python package duckdb-extension-ducklake of the same version, or by INSTALL."""

import importlib.util
import shutil
from pathlib import Path

import duckdb

from benchmarks.merge.engine import Engine, Run, Unavailable, copied
from benchmarks.merge.workload import FILES, ZSTD_LEVEL, load_source, merge_sql, rows_file

_NAME, _CATALOG = "ducklake", "catalog.ducklake"


def engine() -> Engine:
    return Engine(_version, _prepare, _run)


def _loaded() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
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


def _version() -> str:
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


def _prepare(data: Path, home: Path) -> None:
    (home / _NAME).mkdir()
    con = _attached(home / _NAME)
    con.execute("CALL lake.set_option('parquet_compression', 'zstd')")
    con.execute(f"CALL lake.set_option('parquet_compression_level', '{ZSTD_LEVEL}')")
    con.execute(f"CREATE TABLE lake.t AS FROM read_parquet('{rows_file(data, 0)}') LIMIT 0")
    for number in range(FILES):
        con.execute(f"INSERT INTO lake.t FROM read_parquet('{rows_file(data, number)}')")
    con.execute("DETACH lake")


def _run(data: Path, home: Path, work: Path, case: str) -> Run:
    path = copied(home / _NAME, work)
    (path / _CATALOG).unlink()
    shutil.copy(home / _NAME / _CATALOG, path / _CATALOG)  # changed in place
    con = _attached(path)
    statement = merge_sql("lake.t", load_source(con, data, case))

    def read() -> tuple[duckdb.DuckDBPyConnection, str]:
        con.execute("DETACH lake")
        return _attached(path), "lake.t"

    return Run(lambda: con.execute(statement), path, read)
