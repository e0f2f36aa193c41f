"""Rows that do not go into the text of a query: kept in a temporary Parquet file that the query reads.

A table function gives SQL, not rows. What is small is written into the text (`results`); what is large or has columns that
no literal has goes here. Files are removed when so many newer ones exist that no result still reads them, and at the end.
"""

import atexit
import shutil
import tempfile
import threading
import uuid
from collections import deque
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lakesql.table.names import literal

KEPT = 32
_lock = threading.Lock()
_files: deque[Path] = deque()
_folder: list[Path] = []


def spilled(rows: pa.Table | pa.RecordBatchReader) -> str:
    """A query that gives these rows; of a reader one batch is in memory at a time."""
    path = _new()
    with pq.ParquetWriter(path, rows.schema) as writer:
        for batch in rows.to_batches() if isinstance(rows, pa.Table) else rows:
            writer.write_batch(batch)
    return f"SELECT * FROM read_parquet({literal(str(path))})"


def _new() -> Path:
    with _lock:
        if not _folder:
            made = Path(tempfile.mkdtemp(prefix="lakesql-"))
            _folder.append(made)
            atexit.register(shutil.rmtree, made, ignore_errors=True)
        while len(_files) >= KEPT:
            _files.popleft().unlink(missing_ok=True)
        path = _folder[0] / f"{uuid.uuid4().hex}.parquet"
        _files.append(path)
        return path
