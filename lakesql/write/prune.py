"""The BLOOM index: which file slices may hold keys of a batch, from what the footers of their base files say.

First the range between a file's smallest and largest key, then its Bloom filter. Both may say yes to a key that is not
there, never no to one that is (hudi-format 3.6, 3.9), so what is left out holds no key of the batch and the result is
that of SIMPLE. Slices with log files are always kept: the keys that only logs know are in no filter, and merging reads
the base file anyway. A file without range or filter is kept.

Reading footers pays only when it spares much more: `pays` compares bytes, each weighed by what it takes to read. A batch
of as many rows as there are files touches nearly all of them, whatever the filters say. Measured on local files, two
cores, 4 to 8 million random keys, tagging 10 rows: 200 files with key columns of 393 kB and footers of 146 kB SIMPLE
0.12 s, BLOOM 0.17 s; 100 files of 1.2 MB and 434 kB 0.14 s and 0.14 s; 40 files of 4.0 MB and 866 kB 0.22 s and 0.11 s.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakesql.errors import FormatError, Unsupported
from lakesql.format.bloom import CHUNK_KEYS, from_text
from lakesql.format.files import BaseFile
from lakesql.storage import Storage
from lakesql.table.names import literal
from lakesql.table.read import ReadPlan
from lakesql.write.plan import BATCH

Connection = duckdb.DuckDBPyConnection

_FILTERS = (b"org.apache.hudi.bloomfilter", b"com.uber.hoodie.bloomfilter")
_FILTER_TYPE = b"hoodie_bloom_filter_type_code"
_MIN_KEY, _MAX_KEY = b"hoodie_min_record_key", b"hoodie_max_record_key"
# Java orders texts by UTF-16 code units, Arrow by bytes; the two differ only where one of the texts has such a letter.
_ORDERED_OTHERWISE = "[\\x{E000}-\\x{10FFFF}]"
_FILES_PER_ROW = 2  # with fewer, nearly every file holds a key of the batch
_FOOTER_COST = 5  # DuckDB reads a byte of a key column that many times faster than we decode one of a footer


@dataclass(frozen=True, slots=True)
class _Footer:
    low: str | None
    high: str | None
    filter_text: str
    filter_type: str
    key_bytes: int  # of the record key column
    bytes: int


def may_hold(con: Connection, plan: ReadPlan, numbers: Sequence[int], everywhere: bool) -> list[int]:
    """Those of the slices `numbers` that may hold a key of the batch; `everywhere`: of any partition."""
    storage = plan.view.state.storage
    clean = [(n, base) for n in numbers if not plan.slices[n].logs and (base := plan.slices[n].base) is not None]
    excluded = set()
    by_partition: dict[str, list[tuple[int, BaseFile]]] = {}
    for number, base in clean:
        by_partition.setdefault("" if everywhere else base.partition, []).append((number, base))
    for partition, files in by_partition.items():
        keys = _keys(con, None if everywhere else partition)
        storage.expect([base.path for _, base in files])
        for number, base in files:
            footer = _footer(storage, base)
            if footer is not None and not _may_contain(footer, keys):
                excluded.add(number)
    return [n for n in numbers if n not in excluded]


def pays(plan: ReadPlan, numbers: Sequence[int], rows: int) -> bool:
    """Whether reading footers and candidates is cheaper than the key columns of all slices `numbers`.

    Measured on the largest base file; a key of the batch is assumed to be in one file, another one for each key.
    """
    files = [base for n in numbers if not plan.slices[n].logs and (base := plan.slices[n].base) is not None]
    if not rows or rows * _FILES_PER_ROW > len(files):
        return False
    footer = _footer(plan.view.state.storage, max(files, key=lambda f: f.size_bytes))
    if footer is None or not footer.filter_text:
        return False
    everything = len(files) * (footer.key_bytes + footer.bytes - len(footer.filter_text))
    pruned = len(files) * footer.bytes * _FOOTER_COST + rows * footer.key_bytes
    return pruned < everything


def _keys(con: Connection, partition: str | None) -> pa.Array:
    """The distinct keys of the batch in a partition, in byte order."""
    where = "" if partition is None else f"AND __lakesql_part = {literal(partition)}"
    rows = con.sql(
        f"SELECT DISTINCT __lakesql_key AS key FROM {BATCH} WHERE __lakesql_key IS NOT NULL {where} ORDER BY 1"
    )
    keys = rows.to_arrow_table()["key"]
    return pa.concat_arrays(keys.chunks) if keys.num_chunks else pa.array([], pa.string())


def _footer(storage: Storage, base: BaseFile) -> _Footer | None:
    """What the footer of a base file says; None when it cannot be read, which the scan will then explain."""
    try:
        metadata = pq.read_metadata(storage.source(base.path))
    except (pa.ArrowInvalid, OSError):
        return None
    stored = metadata.metadata or {}
    chunks = [
        metadata.row_group(group).column(leaf).total_compressed_size
        for leaf, name in enumerate(metadata.schema.names)
        if name == "_hoodie_record_key"
        for group in range(metadata.num_row_groups)
    ]
    low, high = stored.get(_MIN_KEY), stored.get(_MAX_KEY)
    return _Footer(
        low.decode(errors="replace") if low is not None else None,
        high.decode(errors="replace") if high is not None else None,
        next((stored[name] for name in _FILTERS if name in stored), b"").decode(errors="replace"),
        stored.get(_FILTER_TYPE, b"SIMPLE").decode(errors="replace"),
        sum(chunks),
        metadata.serialized_size,
    )


def _may_contain(footer: _Footer, keys: pa.Array) -> bool:
    if footer.low is not None and footer.high is not None:
        inside = pc.and_(pc.greater_equal(keys, footer.low), pc.less_equal(keys, footer.high))
        keys = keys.filter(pc.or_(inside, pc.match_substring_regex(keys, _ORDERED_OTHERWISE)))
    if not len(keys):
        return False
    if not footer.filter_text:
        return True
    with suppress(FormatError, Unsupported):
        bloom = from_text(footer.filter_text, footer.filter_type)
        return any(
            bool(np.any(bloom.might_contain(keys.slice(first, CHUNK_KEYS))))
            for first in range(0, len(keys), CHUNK_KEYS)
        )
    return True
