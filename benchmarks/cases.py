"""The cases, each run in a process of its own: `python -m benchmarks.cases NAME --data DIR --work DIR` prints JSON.

A case prepares what is not measured, then returns one or several functions that are. Wall and CPU time (all threads of
the process) are taken around each call: `first_s` is the first call's, `wall_s` and `cpu_s` the median of the others',
or the same for a case that runs once, as writes do. Peak memory is the process's, from the first call on (`VmHWM`).
After the clock has stopped, writes are checked: the number of rows, and of rows with the new values.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, WriterProperties

import lakesql
from benchmarks import data
from benchmarks.measure import measure

LOW_MEMORY = "512MB"
WARM_CALLS = 5
WORKERS = 2  # lakesql's

QUERIES = {
    "full": "SELECT * FROM {source}",
    "sum": "SELECT sum(amount) FROM {source}",
    "filter": "SELECT id, amount FROM {source} WHERE customer < 2000 AND status = 'paid'",
    "group": "SELECT city, status, count(*), sum(amount), max(event_time) FROM {source} GROUP BY ALL",
}
_ARROW_ROWS = 65_536

Measured = tuple[Callable[[], object], Callable[[], None], int]  # call, check afterwards, number of calls


def upsert(root: Path, work: Path, kind: str, memory: str | None = None) -> Measured:
    updates = pq.read_table(root / "updates.parquet")
    path = data.copy(root, kind, work)
    table = lakesql.open_table(str(path), _limits(work, memory))
    return lambda: table.upsert(updates), lambda: _check(_hudi(path), root, updates), 1


def merge_sql(root: Path, work: Path, kind: str) -> Measured:
    updates = pq.read_table(root / "updates.parquet")
    path = data.copy(root, kind, work)
    con = lakesql.connect(warehouse=str(work))
    statement = f"""
        MERGE INTO {kind} t USING updates s ON t.id = s.id
        WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"""
    con.duckdb.register("updates", updates)
    return lambda: con.execute(statement), lambda: _check(_hudi(path), root, updates), 1


def handwritten(root: Path, work: Path) -> Measured:
    """What one would write without a table format: each file anew, old rows without those updated, then the updates."""
    updates = pq.read_table(root / "updates.parquet")
    files = data.base_files(data.copy(root, "cow", work))
    out = work / "rewritten"
    out.mkdir()
    con = duckdb.connect()

    def one(file: str) -> None:
        name = Path(file).name
        columns = ", ".join(f"u.{c}" for c in updates.column_names)
        sql = f"""
            SELECT * REPLACE ('{name}' AS _hoodie_file_name) FROM read_parquet('{file}') b
            ANTI JOIN updates u ON b.id = u.id
            UNION ALL
            SELECT '20300101000000000', '20300101000000000_0_' || u.id, u.id, '', '{name}', {columns}
            FROM updates u SEMI JOIN read_parquet('{file}') b ON b.id = u.id"""
        cursor = con.cursor()
        cursor.execute("SET TimeZone = 'UTC'")
        with cursor.sql(sql).to_arrow_reader(131_072) as reader:
            writer = pq.ParquetWriter(
                out / name, reader.schema, compression="zstd", compression_level=data.ZSTD_LEVEL, store_schema=False
            )
            with writer:
                for batch in reader:
                    writer.write_batch(batch)

    def run() -> None:
        con.execute("CREATE TABLE updates AS SELECT * FROM given")
        with ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(one, files))

    con.register("given", updates)
    return run, lambda: _check(f"read_parquet('{out}/*.parquet')", root, updates), 1


def delta_merge(root: Path, work: Path) -> Measured:
    updates = pq.read_table(root / "updates.parquet")
    path = data.copy(root, "delta", work)
    table = DeltaTable(str(path))
    properties = WriterProperties(compression="ZSTD", compression_level=data.ZSTD_LEVEL)

    def run() -> None:
        merge = table.merge(updates, "t.id = s.id", source_alias="s", target_alias="t", writer_properties=properties)
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def check() -> None:
        files = ", ".join(f"'{f.removeprefix('file://')}'" for f in table.file_uris())
        _check(f"read_parquet([{files}])", root, updates)

    return run, check, 1


def bulk_insert(root: Path, work: Path, memory: str | None) -> Measured:
    schema = pq.read_schema(root / "source.parquet")
    path = work / "cow"
    table = data.new_table(path, "cow", schema, _limits(work, memory))
    settings = data.bulk_settings()
    none = pq.read_table(root / "updates.parquet").slice(0, 0)
    return lambda: table.bulk_insert(data.source_reader(root), **settings), lambda: _check(_hudi(path), root, none), 1


def read_hudi(root: Path, work: Path, query: str, table: str) -> Measured:
    os.environ["XDG_CACHE_HOME"] = str(work / "cache")  # a first read finds nothing that another process left
    return _read(work, QUERIES[query].format(source=f"hudi_scan('{root / table}')"))


def read_hudi_again(root: Path, work: Path, query: str, table: str) -> Measured:
    """The first read of a process, after another process has read the table."""
    os.environ["XDG_CACHE_HOME"] = str(work / "cache")
    code = "import sys, lakesql; lakesql.connect(warehouse=sys.argv[1]).sql(sys.argv[2]).fetchall()"
    sql = f"SELECT count(*) FROM hudi_scan('{root / table}')"
    subprocess.run([sys.executable, "-c", code, str(work), sql], check=True)
    return _read(work, QUERIES[query].format(source=f"hudi_scan('{root / table}')"))


def read_last_commit(root: Path, work: Path) -> Measured:
    """What the last of twenty commits changed."""
    path = root / "commits"
    before = sorted(i.completed for i in lakesql.open_table(str(path)).state.timeline.completed_writes())[-2]
    return _read(work, f"SELECT * FROM hudi_incremental('{path}', begin := '{before}')")


def read_last_file(root: Path, work: Path) -> Measured:
    """The files that the last of twenty commits wrote."""
    last = max(data.base_files(root / "commits"), key=lambda f: f.rsplit("_", 1)[-1])
    con = duckdb.connect(config={"temp_directory": str(work / "spill")})
    sql = f"SELECT * FROM read_parquet('{last}')"
    return lambda: _consume(con.sql(sql)), lambda: None, 1 + WARM_CALLS


def _read(work: Path, sql: str) -> Measured:
    con = lakesql.connect(warehouse=str(work))
    return lambda: _consume(con.sql(sql)), lambda: None, 1 + WARM_CALLS


def read_parquet(root: Path, work: Path, query: str, table: str) -> Measured:
    con = duckdb.connect(config={"temp_directory": str(work / "spill")})
    sql = QUERIES[query].format(source=f"read_parquet({data.base_files(root / table)})")
    return lambda: _consume(con.sql(sql)), lambda: None, 1 + WARM_CALLS


def _consume(relation: duckdb.DuckDBPyRelation) -> int:
    with relation.to_arrow_reader(_ARROW_ROWS) as reader:
        return sum(batch.num_rows for batch in reader)


def _limits(work: Path, memory: str | None) -> dict[str, str]:
    return {"memory_limit": memory, "temp_directory": str(work / "spill")} if memory else {}


def _hudi(path: Path) -> str:
    return f"hudi_scan('{path}')"


def _check(source: str, root: Path, updates: pa.Table) -> None:
    """The table must hold the source's rows, those updated with their new values."""
    con = lakesql.connect(warehouse=str(root))
    con.duckdb.register("expected_updates", updates)
    rows = pq.read_metadata(root / "source.parquet").num_rows
    found = con.sql(f"SELECT count(*), count(DISTINCT id) FROM {source}").fetchall()[0]
    new = con.sql(
        f"SELECT count(*) FROM {source} t JOIN expected_updates u ON t.id = u.id AND t.amount = u.amount "
        "AND t.event_time = u.event_time AND t.remark = u.remark"
    ).fetchall()[0][0]
    if (*found, new) != (rows, rows, updates.num_rows):
        raise SystemExit(f"wrong result: {found}, {new} new; expected {rows} rows, {updates.num_rows} new")


CASES: dict[str, Callable[[Path, Path], Measured]] = {
    "cow-upsert-handwritten": handwritten,
    "cow-upsert-lakesql": lambda root, work: upsert(root, work, "cow"),
    "cow-merge-lakesql": lambda root, work: merge_sql(root, work, "cow"),
    "cow-merge-deltalake": delta_merge,
    "mor-upsert-lakesql": lambda root, work: upsert(root, work, "mor"),
    "mor-merge-lakesql": lambda root, work: merge_sql(root, work, "mor"),
    "cow-upsert-512MB": lambda root, work: upsert(root, work, "cow", LOW_MEMORY),
    "bulk-insert-512MB": lambda root, work: bulk_insert(root, work, LOW_MEMORY),
}
for _query in QUERIES:
    for _name, _table in (("cow", "cow"), ("mor", "mor_upserted"), ("fifth", "mor_fifth")):
        CASES[f"{_name}-{_query}-parquet"] = partial(read_parquet, query=_query, table=_table)
        CASES[f"{_name}-{_query}-lakesql"] = partial(read_hudi, query=_query, table=_table)
    CASES[f"fifth-{_query}-lakesql-again"] = partial(read_hudi_again, query=_query, table="mor_fifth")
CASES["incremental-parquet"] = read_last_file
CASES["incremental-lakesql"] = read_last_commit


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    args = parser.parse_args()
    call, check, calls = CASES[args.case](args.data, args.work)
    result = measure(call, calls)
    check()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
