"""lakesql: a table of version 9, Copy-on-Write or Merge-on-Read, event time or commit time."""

from functools import partial
from importlib.metadata import version
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

import lakesql
from benchmarks.merge.engine import Engine, Run, copied
from benchmarks.merge.phases import watching
from benchmarks.merge.workload import FILES, load_source, merge_sql, rows_file

_NAME = "target"
_MODES = {"event": "EVENT_TIME_ORDERING", "commit": "COMMIT_TIME_ORDERING"}


def engine(kind: str, mode: str) -> Engine:
    return Engine(lambda: version("lakesql"), partial(_prepare, kind, mode), _run)


def _prepare(kind: str, mode: str, data: Path, home: Path) -> None:
    files = [rows_file(data, n) for n in range(FILES)]
    per_file, schema = pq.read_metadata(files[0]).num_rows, pq.read_schema(files[0])
    ordering = ["event_time"] if mode == "event" else []
    path = home / _NAME
    table = lakesql.create_table(path, schema, type=kind, primary_key=["id"], ordering_fields=ordering, version=9)
    rows = pa.RecordBatchReader.from_batches(schema, (b for f in files for b in pq.ParquetFile(f).iter_batches()))
    table.bulk_insert(rows, **{"hoodie.copyonwrite.insert.split.size": str(per_file)})
    made = len(list(path.glob("*.parquet")))
    found = table.properties["hoodie.record.merge.mode"]
    if (made, found) != (FILES, _MODES[mode]):
        raise SystemExit(f"{path}: expected {FILES} files and {_MODES[mode]}, made {made} files with {found}.")


def _run(data: Path, home: Path, work: Path, case: str) -> Run:
    path = copied(home / _NAME, work)
    con = lakesql.connect(warehouse=str(work))
    statement = merge_sql(_NAME, load_source(con.duckdb, data, case))
    seconds: dict[str, float] = {}

    def call() -> None:
        with watching() as watch:
            con.execute(statement)
        seconds.update(watch.seconds)

    def read() -> tuple[duckdb.DuckDBPyConnection, str]:
        return lakesql.connect(warehouse=str(work)).duckdb, f"hudi_scan('{path}')"

    return Run(call, path, read, seconds)
