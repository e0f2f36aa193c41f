"""The files of a clustering: the rows of one group of a plan stream through DuckDB's sort into new file groups.

The latest slices are read merged, by the query of a snapshot read, and keep their meta columns but the file name. What
was read and what the files hold then is counted and hashed, by key and origin of the rows; a difference is an error, and
the caller gives the clustering up. Memory: DuckDB's, which spills within its limit, and a row group.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise

import duckdb
import pyarrow as pa

from lakesql.errors import TableError
from lakesql.format.avro import META_COLUMNS, conform, with_meta_fields
from lakesql.format.files import base_file_name
from lakesql.format.metadata import WriteStat
from lakesql.services.clustering_plan import Plan
from lakesql.services.curves import sorted_sql
from lakesql.storage import explained
from lakesql.table import read
from lakesql.table.scan import select_sql
from lakesql.table.state import TableState
from lakesql.write import commit
from lakesql.write.basefile import BaseSpec, write_new
from lakesql.write.settings import WriteConfig
from lakesql.write.transaction import CREATE_MARKER, Transaction, beat, mark

_BATCH_ROWS = 65_536
_FILE_NAME, _PARTITION = META_COLUMNS[4], META_COLUMNS[3]
_ORIGIN = (META_COLUMNS[2], META_COLUMNS[0], META_COLUMNS[1])  # key, commit time, sequence number


@dataclass(frozen=True, slots=True)
class Work:
    """A begun run: what all its groups have in common."""

    con: duckdb.DuckDBPyConnection
    txn: Transaction
    state: TableState
    plan: Plan
    read: read.ReadPlan
    sort_columns: tuple[str, ...]
    layout: str
    method: str
    settings: WriteConfig
    ids: Callable[[], str]
    notes: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)  # of the files begun

    @property
    def schema(self) -> pa.Schema:
        """With meta columns."""
        return pa.schema([*(pa.field(name, pa.string()) for name in META_COLUMNS), *self.state.schema])


def write_group(work: Work, number: int) -> list[WriteStat]:
    """Write the new file groups of one group of the plan."""
    inputs, outputs = work.plan.groups[number]
    wanted = {(one.partition, one.file_id) for one in inputs}
    slices = tuple(s for s in work.read.slices if s.group in wanted)
    con, partition = work.con, inputs[0].partition
    rows_sql = read.to_sql(con, replace(work.read, slices=slices))
    before = _fingerprint(con, rows_sql)
    if not before[0]:
        return []
    files = max(1, min(outputs, before[0]))
    bounds = [before[0] * i // files for i in range(files + 1)]
    commit.prepare_partition(work.txn, partition)
    with (
        sorted_sql(con, rows_sql, work.read.schema, work.sort_columns, work.layout, work.method) as sql,
        con.sql(sql).to_arrow_reader(_BATCH_ROWS) as reader,
    ):
        rows = _Rows(work, reader)
        stats = [_write_file(work, partition, rows, high - low) for low, high in pairwise(bounds)]
    paths = [work.state.storage.data_path(s.path or "") for s in stats]
    after = _fingerprint(con, select_sql(paths, work.schema, _ORIGIN))
    if after != before:
        raise TableError(
            f"{work.txn.where}: clustering {work.txn.instant} of partition {partition!r}: {before[0]} rows were read and "
            f"{after[0]} written, or their keys differ. Nothing was committed and the files were removed; the table is "
            "as it was. Run it again; if it fails again, report it with this text."
        )
    return stats


def _fingerprint(con: duckdb.DuckDBPyConnection, rows_sql: str) -> tuple[int, int]:
    """(rows, a sum over their keys, commit times and sequence numbers)."""
    count, total = con.execute(
        f"SELECT count(*), sum(hash({', '.join(_ORIGIN)})::HUGEINT) FROM ({rows_sql})"
    ).fetchall()[0]
    return int(count), int(total or 0)


class _Rows:
    """A stream of sorted rows, handed out by number."""

    def __init__(self, work: Work, reader: pa.RecordBatchReader) -> None:
        self._work = work
        self._reader = reader
        self._left: pa.RecordBatch | None = None
        self._wanted = pa.schema([f for f in work.schema if f.name not in (_FILE_NAME, _PARTITION)])

    def take(self, count: int) -> Iterator[pa.Table]:
        while count:
            batch = self._left if self._left is not None else self._reader.read_next_batch()
            taken = batch.slice(0, count)
            self._left = batch.slice(count) if batch.num_rows > count else None
            count -= taken.num_rows
            beat(self._work.txn)
            where = f"{self._work.txn.where}: rows to cluster"
            yield conform(pa.Table.from_batches([taken]), self._wanted, where)


def _write_file(work: Work, partition: str, rows: _Rows, count: int) -> WriteStat:
    file_id, token = f"{work.ids()}-0", f"{len(work.paths)}-0-1"
    name = base_file_name(file_id, token, work.txn.instant)
    spec = BaseSpec(
        partition=partition,
        file_id=file_id,
        instant=work.txn.instant,
        token=token,
        name=name,
        schema=work.schema,
        avro=with_meta_fields(work.state.avro),
        inserts=count,
        settings=work.settings,
        key_fields=work.state.config.record_key_fields,
    )
    mark(work.txn, spec.path, CREATE_MARKER)
    work.paths.append(spec.path)
    with explained(f"{work.txn.where}/{spec.path}", "written"):
        written = write_new(work.state.storage, spec, rows.take(count))
    return WriteStat(
        file_id=file_id,
        path=spec.path,
        prev_commit="null",
        num_writes=written.rows,
        num_deletes=0,
        num_update_writes=0,
        num_inserts=written.rows,
        total_write_bytes=written.size_bytes,
        total_write_errors=0,
        partition_path=partition,
        file_size_in_bytes=written.size_bytes,
    )
