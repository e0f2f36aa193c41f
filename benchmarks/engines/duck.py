"""DuckDB alone: the same files read and rewritten by hand, without a table format; and its own tables, changed in place.

What is done by hand on Copy-on-Write files is all that a Hudi writer puts into them: meta columns, Bloom filter and key
range. No key is new, so the filter and the range of the old file's footer stay right and are copied, which is the cheapest
way. There is no look-up of the files to rewrite either: the hand knows them. There is no commit.
"""

import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import duckdb
import pyarrow.parquet as pq

from benchmarks import workload
from benchmarks.engines import ours
from benchmarks.engines.common import WORKERS, check_query, check_rows, consumed, parquet, plain
from benchmarks.ready import Ready

_NATIVE, _SORTED = "native.duckdb", "sorted"
_INSTANT = "20300101000000000"
_META = (
    "_hoodie_commit_time",
    "_hoodie_commit_seqno",
    "_hoodie_record_key",
    "_hoodie_partition_path",
    "_hoodie_file_name",
)


def version() -> str:
    return duckdb.__version__


def _native(data: Path, home: Path) -> None:
    with duckdb.connect(str(home / _NATIVE)) as con:
        con.execute(f"CREATE TABLE t AS FROM {parquet(workload.rows_files(data))}")
        con.execute("CHECKPOINT")


def _sorted(data: Path, home: Path) -> None:
    """Plain Parquet files, sorted by key, as many as the rows come in."""
    (home / _SORTED).mkdir()
    per_file = workload.rows_of(data) // workload.FILES
    con = plain()
    con.execute(f"CREATE TABLE t AS FROM {parquet(workload.rows_files(data))} ORDER BY {ours.KEY}")
    for number in range(workload.FILES):
        con.execute(
            f"COPY (FROM t LIMIT {per_file} OFFSET {number * per_file}) TO '{home / _SORTED}/{number:02}.parquet' "
            f"(COMPRESSION zstd, COMPRESSION_LEVEL {workload.ZSTD_LEVEL})"
        )


TABLES = {"native": _native, "sorted": _sorted}


def _rewritten(con: duckdb.DuckDBPyConnection, file: str, out: Path, new_rows: str) -> None:
    """One file anew: its rows without those of `updates`, then `new_rows`."""
    name = Path(file).name
    sql = f"""
        SELECT * REPLACE ('{name}' AS _hoodie_file_name) FROM read_parquet('{file}') b
        ANTI JOIN updates u ON b.id = u.id{new_rows.format(file=file, name=name)}"""
    footer = pq.read_metadata(file).metadata
    cursor = con.cursor()
    cursor.execute("SET TimeZone = 'UTC'")
    with cursor.sql(sql).to_arrow_reader(131_072) as reader:
        writer = pq.ParquetWriter(
            out / name, reader.schema, compression="zstd", compression_level=workload.ZSTD_LEVEL, store_schema=False
        )
        with writer:
            for batch in reader:
                writer.write_batch(batch)
            writer.add_key_value_metadata({k: v for k, v in footer.items() if b"hoodie" in k or b"hudi" in k})


def rewrite(data: Path, work: Path, change: str) -> Ready:
    """Each file with changes anew, by two threads: an anti join and a union, written by Arrow."""
    given = pq.read_table(workload.source_file(data, change))
    every = ours.base_files(ours.at(data, "cow"))
    files = [every[n] for n in workload.HOT_FILES] if change == "D20" else every
    out = work / "rewritten"
    out.mkdir()
    con = plain()
    con.register("given", given)
    columns = ", ".join(f"u.{c}" for c in given.column_names)
    new_rows = (
        ""
        if workload.CHANGES[change].keys_only
        else f"""
        UNION ALL
        SELECT '{_INSTANT}', '{_INSTANT}_0_' || u.id, u.id, '', '{{name}}', {columns}
        FROM updates u SEMI JOIN read_parquet('{{file}}') b ON b.id = u.id"""
    )

    def run() -> None:
        con.execute("CREATE TABLE updates AS SELECT * FROM given")
        with ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(lambda file: _rewritten(con, file, out, new_rows), files))

    def check(_: object, thorough: bool) -> None:
        kept = [f for f in every if f not in files]
        check_rows(con, parquet([*kept, *out.glob("*.parquet")]), data, change, thorough)
        for file in out.glob("*.parquet"):
            if b"org.apache.hudi.bloomfilter" not in pq.read_metadata(file).metadata:
                raise SystemExit(f"{file} was written without the Bloom filter of the old one")

    return Ready(run, check)


def copy(data: Path, work: Path) -> Ready:
    """`COPY TO` of all rows with meta columns into as many files, by two threads."""
    out = work / "copied"
    out.mkdir()
    con = plain()

    def one(number: int) -> None:
        file = out / f"{number:02}.parquet"
        meta = (
            f"'{_INSTANT}' AS {_META[0]}, '{_INSTANT}_0_' || row_number() OVER () AS {_META[1]}, id AS {_META[2]}, "
            f"'' AS {_META[3]}, '{file.name}' AS {_META[4]}"
        )
        con.cursor().execute(
            f"COPY (SELECT {meta}, * FROM read_parquet('{workload.rows_file(data, number)}')) TO '{file}' "
            f"(COMPRESSION zstd, COMPRESSION_LEVEL {workload.ZSTD_LEVEL})"
        )

    def run() -> None:
        with ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(one, range(workload.FILES)))

    return Ready(run, lambda _, thorough: check_rows(con, f"read_parquet('{out}/*.parquet')", data, "base", thorough))


def merge(data: Path, work: Path, change: str) -> Ready:
    """DuckDB's own MERGE: a table without index in a database file, with a checkpoint at the end. No open files."""
    path = work / _NATIVE
    shutil.copy(workload.home(data, "duckdb", "native") / _NATIVE, path)  # changed in place
    con = duckdb.connect(str(path))
    statement = workload.merge_sql("t", workload.load_source(con, data, change))

    def run() -> None:
        con.execute(statement)
        con.execute("CHECKPOINT")

    return Ready(run, lambda _, thorough: check_rows(con, "t", data, change, thorough))


def read(data: Path, work: Path, table: str, query: str) -> Ready:
    """`read_parquet` on the base files of a table of lakesql: of a Merge-on-Read one without what its logs say."""
    con = duckdb.connect(config={"temp_directory": str(work / "spill")})
    sql = workload.query(query, parquet(ours.base_files(ours.at(data, table))), data)
    check = partial(_check_query, data, query)
    return Ready(lambda: consumed(con.sql(sql), query), check, calls=1 + ours.FOLLOWING)


def _check_query(data: Path, query: str, value: object, _: bool) -> None:
    check_query(value, data, "base", query)


def incremental(data: Path, work: Path) -> Ready:  # noqa: ARG001
    """Reading only the file that the last commit wrote."""
    con = plain()
    instant, files = ours.last_commit(data)
    sql = f"SELECT * FROM {parquet(files)} WHERE _hoodie_commit_time = '{instant}'"
    check = partial(ours.check_incremental, data)
    return Ready(lambda: consumed(con.sql(sql), "incremental"), check, calls=1 + ours.FOLLOWING)


def lookup(data: Path, work: Path, table: str) -> Ready:  # noqa: ARG001
    """`read_parquet ... WHERE` on plain files sorted by key, or on the files of a table of lakesql."""
    con = plain()
    files = sorted((workload.home(data, "duckdb", "sorted") / _SORTED).glob("*.parquet"))
    source = parquet(files if table == "sorted" else ours.base_files(ours.at(data, table)))
    sql = f"SELECT * FROM {source} WHERE {ours.KEY} = '{workload.one_key(data)}'"
    check = partial(ours.check_lookup, data)
    return Ready(lambda: consumed(con.sql(sql), "lookup"), check, calls=1 + ours.FOLLOWING)


def planning(data: Path, work: Path, groups: int) -> Ready:  # noqa: ARG001
    """A glob over the folders of the partitions."""
    con = plain()
    sql = (
        f"SELECT count(*) FROM read_parquet('{ours.at(data, f'wide-{groups}')}/*/*.parquet', hive_partitioning = true) "
        f"WHERE day = '{ours.PARTITION}'"
    )
    check = partial(ours.check_partition, groups)
    return Ready(lambda: consumed(con.sql(sql), "planning"), check, calls=1 + ours.FOLLOWING)
