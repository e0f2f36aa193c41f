"""lakesql: tables of version 9, Copy-on-Write and Merge-on-Read, event time ordering."""

from functools import partial
from importlib.metadata import version as version_of
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

import lakesql
from benchmarks import wide_table, workload
from benchmarks.engines.common import check_query, check_rows, consumed, plain
from benchmarks.phases import watching
from benchmarks.ready import Ready, copied

COMMITS = 20
KEY, ORDERING = "id", "event_time"
WIDE_PARTITIONS = 1000
PARTITION = wide_table.partition_name(7)  # the one that is read
FOLLOWING = 5  # calls after the first
FOLDER = "target"  # of the table, below its home


def version() -> str:
    return version_of("lakesql")


def at(data: Path, table: str) -> Path:
    return workload.home(data, "lakesql", table) / FOLDER


def new_table(path: Path, kind: str, schema: pa.Schema, config: dict[str, str] | None = None) -> lakesql.Table:
    return lakesql.create_table(
        str(path), schema, type=kind, primary_key=[KEY], ordering_fields=[ORDERING], version=9, config=config
    )


def bulk_settings(rows: int) -> dict[str, str]:
    """As many files as the rows come in."""
    return {"hoodie.copyonwrite.insert.split.size": str(rows // workload.FILES)}


def source_reader(data: Path) -> pa.RecordBatchReader:
    """The rows as a stream: they are never in memory all at once."""
    return _streamed(workload.rows_files(data))


def _streamed(files: list[str]) -> pa.RecordBatchReader:
    batches = (b for f in files for b in pq.ParquetFile(f).iter_batches(65_536))
    return pa.RecordBatchReader.from_batches(pq.read_schema(files[0]), batches)


def _loaded(kind: str, change: str | None, data: Path, home: Path) -> None:
    """A table of all rows, and perhaps one upsert."""
    rows = source_reader(data)
    table = new_table(home / FOLDER, kind, rows.schema)
    table.bulk_insert(rows, **bulk_settings(workload.rows_of(data)))
    workload.require(len(base_files(home / FOLDER)), workload.FILES, f"the number of files of a {kind} table")
    if change:
        table.upsert(pq.read_table(workload.source_file(data, change)))


def _sorted(data: Path, home: Path) -> None:
    rows = plain().sql(f"FROM read_parquet('{data}/rows-*.parquet') ORDER BY {KEY}").to_arrow_reader(65_536)
    new_table(home / FOLDER, "cow", rows.schema).bulk_insert(rows, **bulk_settings(workload.rows_of(data)))


def _commits(data: Path, home: Path) -> None:
    """COMMITS commits: the rows, then one percent of one file after the other."""
    _loaded("cow", None, data, home)
    table = lakesql.open_table(str(home / FOLDER))
    per_file = workload.rows_of(data) // workload.FILES
    for number in range(1, COMMITS):
        first = (number - 1) * per_file
        numbers = f"range({first}, {first + per_file}, 100) t(i)"
        table.upsert(plain().sql(f"SELECT {workload.SELECT.format(late=1)} FROM {numbers}").to_arrow_table())


def _wide(groups: int, data: Path, home: Path) -> None:  # noqa: ARG001  the rows are its own
    made = wide_table.prepare(home, groups, partitions(groups))
    made.rename(home / FOLDER)


TABLES = {
    "cow": partial(_loaded, "cow", None),
    "mor": partial(_loaded, "mor", None),
    "mor-U1": partial(_loaded, "mor", "U1"),
    "mor-D20": partial(_loaded, "mor", "D20"),
    "sorted": _sorted,
    "commits": _commits,
    **{f"wide-{n}": partial(_wide, n) for n in (1_000, 10_000, 100_000)},
}


def base_files(table: Path) -> list[str]:
    """The base files of a table without partitions, in the order of the rows."""
    files = [str(p) for p in table.glob("*.parquet")]
    smallest = {}
    for file in files:
        footer = pq.read_metadata(file)
        column = footer.schema.names.index(ORDERING)
        smallest[file] = footer.row_group(0).column(column).statistics.min
    return sorted(files, key=smallest.__getitem__)


def _limits(work: Path, memory: str | None) -> dict[str, str]:
    return {"memory_limit": memory, "temp_directory": str(work / "spill")} if memory else {}


def _check_table(path: Path, data: Path, change: str, _: object, thorough: bool) -> None:
    con = lakesql.connect(warehouse=str(path.parent))
    check_rows(con.duckdb, f"hudi_scan('{path}')", data, change, thorough)


def upsert(data: Path, work: Path, kind: str, change: str, memory: str | None = None) -> Ready:
    """With a memory limit the rows come as a stream, so that the peak is lakesql's and not that of the rows given."""
    file = workload.source_file(data, change)
    rows = pq.read_table(file) if memory is None else _streamed([str(file)])
    path = copied(at(data, kind), work)
    table = lakesql.open_table(str(path), _limits(work, memory))
    return Ready(lambda: table.upsert(rows), partial(_check_table, path, data, change))


def delete(data: Path, work: Path, kind: str) -> Ready:
    keys = pq.read_table(workload.source_file(data, "DEL"))
    path = copied(at(data, kind), work)
    table = lakesql.open_table(str(path))
    return Ready(lambda: table.delete(keys), partial(_check_table, path, data, "DEL"))


def merge(data: Path, work: Path, kind: str, change: str) -> Ready:
    path = copied(at(data, kind), work)
    con = lakesql.connect(warehouse=str(work))
    statement = workload.merge_sql(FOLDER, workload.load_source(con.duckdb, data, change))
    seconds: dict[str, float] = {}

    def call() -> None:
        with watching() as watch:
            con.execute(statement)
        seconds.update(watch.seconds)

    return Ready(call, partial(_check_table, path, data, change), steps=seconds)


def bulk_insert(data: Path, work: Path, memory: str | None = None) -> Ready:
    path = work / FOLDER
    table = new_table(path, "cow", source_reader(data).schema, _limits(work, memory))
    settings = bulk_settings(workload.rows_of(data))

    def check(value: object, thorough: bool) -> None:
        _check_table(path, data, "base", value, thorough)
        workload.require(len(base_files(path)), workload.FILES, "the number of files of bulk_insert")

    return Ready(lambda: table.bulk_insert(source_reader(data), **settings), check)


def create_as(data: Path, work: Path) -> Ready:
    """The same load in SQL: DuckDB reads the rows, as it does for COPY TO."""
    con = lakesql.connect(warehouse=str(work))
    for key, value in bulk_settings(workload.rows_of(data)).items():
        con.sql(f"SET {key} = '{value}'")
    files = ", ".join(f"'{file}'" for file in workload.rows_files(data))
    statement = (
        f"CREATE TABLE {FOLDER} USING hudi TBLPROPERTIES (primaryKey = '{KEY}', orderingFields = '{ORDERING}') "
        f"AS SELECT * FROM read_parquet([{files}])"
    )

    def check(value: object, thorough: bool) -> None:
        _check_table(work / FOLDER, data, "base", value, thorough)
        workload.require(len(base_files(work / FOLDER)), workload.FILES, "the number of files of CREATE TABLE AS")

    return Ready(lambda: con.execute(statement), check)


def compact(data: Path, work: Path, change: str, memory: str | None = None) -> Ready:
    path = copied(at(data, f"mor-{change}"), work)
    table = lakesql.open_table(str(path), _limits(work, memory))

    def check(value: object, thorough: bool) -> None:
        workload.require(any(one.logs for one in table.state.slices()), False, "compaction: log files are left")
        _check_table(path, data, change, value, thorough)

    return Ready(table.compact, check)


def read(data: Path, work: Path, table: str, query: str, memory: str | None = None) -> Ready:
    """`table`: `cow`, or the Merge-on-Read table after a change, as `mor-U1`."""
    source, change = f"hudi_scan('{at(data, table)}')", table.partition("-")[2] or "base"
    con = lakesql.connect(warehouse=str(work), config=_limits(work, memory))
    sql = workload.query(query, source, data)

    def check(value: object, thorough: bool) -> None:
        check_query(value, data, change, query)
        if query == "full" and thorough:
            check_rows(con.duckdb, source, data, change, thorough)

    return Ready(lambda: consumed(con.sql(sql), query), check, calls=1 + FOLLOWING)


def last_commit(data: Path) -> tuple[str, list[str]]:
    """The instant of the last commit of the table with many, and the files that it wrote."""
    path = at(data, "commits")
    instants = sorted({p.name.rsplit("_", 1)[1].removesuffix(".parquet") for p in path.glob("*.parquet")})
    return instants[-1], [str(p) for p in path.glob(f"*_{instants[-1]}.parquet")]


def before_last(data: Path) -> str:
    """A completion time after which only the last commit completed."""
    names = [p.name for p in (at(data, "commits") / ".hoodie" / "timeline").glob("*_*.commit")]
    return sorted(name.removesuffix(".commit").split("_")[1] for name in names)[-2]


def check_incremental(data: Path, value: pa.Table, _: bool) -> None:
    rows = len(range(0, workload.rows_of(data) // workload.FILES, 100))
    con = duckdb.connect()
    con.register("given", value)
    found = con.execute("SELECT count(*), count(DISTINCT _hoodie_commit_time) FROM given").fetchall()[0]
    workload.require(found, (rows, 1), "the incremental read")


def incremental(data: Path, work: Path) -> Ready:
    con = lakesql.connect(warehouse=str(work))
    sql = f"SELECT * FROM hudi_incremental('{at(data, 'commits')}', '{before_last(data)}')"
    check = partial(check_incremental, data)
    return Ready(lambda: consumed(con.sql(sql), "incremental"), check, calls=1 + FOLLOWING)


def check_lookup(data: Path, value: pa.Table, _: bool) -> None:
    workload.require(value.column(KEY).to_pylist(), [workload.one_key(data)], "the look-up by key")


def lookup(data: Path, work: Path, table: str) -> Ready:
    con = lakesql.connect(warehouse=str(work))
    sql = f"SELECT * FROM hudi_scan('{at(data, table)}') WHERE {KEY} = '{workload.one_key(data)}'"
    check = partial(check_lookup, data)
    return Ready(lambda: consumed(con.sql(sql), "lookup"), check, calls=1 + FOLLOWING)


def partitions(groups: int) -> int:
    return min(WIDE_PARTITIONS, groups // 10)


def check_partition(groups: int, value: pa.Table, _: bool) -> None:
    each = groups // partitions(groups)
    workload.require(value.column(0).to_pylist(), [each * wide_table.ROWS], "the rows of one partition")


def planning(data: Path, work: Path, groups: int) -> Ready:
    """A statement that reads one partition of many: planning is nearly all of it."""
    con = lakesql.connect(warehouse=str(work))
    sql = f"SELECT count(*) FROM hudi_scan('{at(data, f'wide-{groups}')}') WHERE day = '{PARTITION}'"
    check = partial(check_partition, groups)
    return Ready(
        lambda: consumed(con.sql(sql), "planning"), check, calls=1 + FOLLOWING // (2 if groups > 10_000 else 1)
    )
