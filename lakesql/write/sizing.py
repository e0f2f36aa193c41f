"""How many bytes a row takes in a base file: from recent commits, else measured on the batch (hudi-format 10.1).

Hudi assumes 1024 bytes when it knows nothing, which makes the first files of a narrow table a tenth of the wanted size.
Encoding a sample costs some milliseconds and gives the true number, so that is what happens for larger batches.
"""

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from lakesql.table.names import quote
from lakesql.table.state import TableState
from lakesql.write.plan import BATCH
from lakesql.write.route import Sizing
from lakesql.write.settings import WriteConfig

ASSUMED_BYTES = 1024
_META_BYTES = 40  # key, sequence number; the other meta columns vanish in compression
_COMMITS_LOOKED_AT = 5
_ROWS_TO_TRUST = 10_000  # below that, footers and filters outweigh the rows
_SAMPLE_ROWS = 20_000


def file_sizes(con: duckdb.DuckDBPyConnection, state: TableState, settings: WriteConfig, inserts: int) -> Sizing:
    """File sizes for a write with that many new keys in the batch table."""
    record_bytes = float(settings.record_bytes or _from_commits(state) or 0)
    if not record_bytes:
        record_bytes = _from_sample(con, state, settings) if inserts >= _ROWS_TO_TRUST else ASSUMED_BYTES
    return Sizing(
        settings.max_file_bytes,
        settings.small_file_bytes,
        settings.small_file_candidates,
        settings.insert_split_rows,
        record_bytes,
    )


def _from_commits(state: TableState) -> float | None:
    """Bytes per row of the base files of the newest commit that wrote enough rows to tell."""
    for instant in state.timeline.completed_writes()[: -_COMMITS_LOOKED_AT - 1 : -1]:
        stats = [s for group in state.commit(instant).partition_stats.values() for s in group if s.log_version is None]
        rows = sum(s.num_writes or 0 for s in stats)
        size = sum(s.total_write_bytes or 0 for s in stats)
        if rows >= _ROWS_TO_TRUST and size:
            return size / rows
    return None


def _from_sample(con: duckdb.DuckDBPyConnection, state: TableState, settings: WriteConfig) -> float:
    columns = ", ".join(map(quote, state.schema.names))
    sample = con.sql(f"SELECT {columns} FROM {BATCH} LIMIT {_SAMPLE_ROWS}").to_arrow_table()
    out = pa.BufferOutputStream()
    pq.write_table(sample, out, compression=settings.codec, store_schema=False)
    return float(out.getvalue().size / max(1, sample.num_rows) + _META_BYTES)
