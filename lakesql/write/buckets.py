"""The simple bucket index: the number of a key's bucket, and the file group that the bucket is (hudi-format 3.1).

The number is the hash of Java's `List<String>` of the hash fields' texts, taken from the record key, modulo the number
of buckets; it is computed for all keys at once on their UTF-16 code units. Equal to Hudi's for every key tried
(tests/golden/keys), those included whose values contain the separators.

A partition has at most one file group per bucket. New keys go to it, as log records on merge-on-read; a bucket without
a group gets one with a base file, as Hudi does it. Such a group is an empty slice until it is written.
"""

import uuid
from collections.abc import Sequence
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakesql.errors import TableError
from lakesql.format.files import FileSlice
from lakesql.format.words import at
from lakesql.table.names import literal, literals
from lakesql.table.read import ReadPlan, keys_sql
from lakesql.write.index import Index, bucket_of
from lakesql.write.plan import BATCH, FATE, INSERTED

Connection = duckdb.DuckDBPyConnection
U32s = npt.NDArray[np.uint32]

_BUCKETS, _GROUPS = "__lakesql_bucket", "__lakesql_bucket_groups"
_CHUNK_ROWS = 65_536
_SAMPLED_SLICES, _SAMPLED_KEYS = 8, 1000
_SEPARATOR = "chr(1)"  # marks where one field ends and the next begins


def number_buckets(con: Connection, index: Index) -> None:
    """The TEMP table `__lakesql_bucket` (place, bucket) for the rows of the batch."""
    query = f"SELECT rowid AS place, {key_texts_sql('__lakesql_key', index.fields)} AS texts FROM {BATCH}"
    places, buckets = [pa.array([], pa.int64())], [pa.array([], pa.int32())]
    with con.sql(query).to_arrow_reader(_CHUNK_ROWS) as reader:
        for batch in reader:
            places.append(batch["place"])
            buckets.append(pa.array(bucket_numbers(batch["texts"], index.buckets), pa.int32()))
    numbered = pa.table({"place": pa.chunked_array(places), "bucket": pa.chunked_array(buckets)})
    con.register(_GROUPS, numbered)
    try:
        con.execute(f"CREATE OR REPLACE TEMP TABLE {_BUCKETS} AS SELECT * FROM {_GROUPS}").fetchall()
    finally:
        con.unregister(_GROUPS)


def slices_of_batch(con: Connection, plan: ReadPlan) -> list[int]:
    """Numbers of the slices that are buckets of rows of the batch."""
    pairs = con.execute(
        f"SELECT DISTINCT b.__lakesql_part, k.bucket FROM {_BUCKETS} k JOIN {BATCH} b ON b.rowid = k.place"
    ).fetchall()
    wanted = set(pairs)
    return [n for n, s in enumerate(plan.slices) if (s.partition, bucket_of(s)) in wanted]


def send_to_buckets(con: Connection, slices: Sequence[FileSlice], kept: Sequence[int]) -> tuple[FileSlice, ...]:
    """Give new keys in `__lakesql_fate` the slice of their bucket, one of `kept` (numbers of `slices`) if it is there.

    Returns the slices to add behind `slices`: buckets that have no file group yet.
    """
    groups = {(slices[n].partition, bucket_of(slices[n])): n for n in kept}
    fresh = con.execute(
        f"SELECT DISTINCT b.__lakesql_part, k.bucket FROM {FATE} f JOIN {BATCH} b ON b.rowid = f.place "
        f"JOIN {_BUCKETS} k ON k.place = f.place WHERE f.slice_no IS NULL AND f.fate = {INSERTED} ORDER BY 1, 2"
    ).fetchall()
    missing = [pair for pair in fresh if pair not in groups]
    opened = tuple(FileSlice(part, new_bucket_id(bucket), "", None, ()) for part, bucket in missing)
    groups |= {pair: len(slices) + i for i, pair in enumerate(missing)}
    pairs = [(part, bucket, groups[part, bucket]) for part, bucket in fresh]
    columns = list(zip(*pairs, strict=True)) or [(), (), ()]
    types = {"part": pa.string(), "bucket": pa.int32(), "slice_no": pa.int32()}
    con.register(_GROUPS, pa.table({n: pa.array(c, t) for (n, t), c in zip(types.items(), columns, strict=True)}))
    try:
        con.execute(
            f"UPDATE {FATE} SET slice_no = g.slice_no FROM {BATCH} b, {_BUCKETS} k, {_GROUPS} g "
            f"WHERE b.rowid = {FATE}.place AND k.place = {FATE}.place AND g.part = b.__lakesql_part "
            f"AND g.bucket = k.bucket AND {FATE}.slice_no IS NULL AND {FATE}.fate = {INSERTED}"
        ).fetchall()
    finally:
        con.unregister(_GROUPS)
        con.execute(f"DROP TABLE IF EXISTS {_BUCKETS}")
    return opened


def new_bucket_id(bucket: int) -> str:
    return f"{bucket:08d}{str(uuid.uuid4())[8:]}-0"


def require_agreement(con: Connection, plan: ReadPlan, index: Index) -> None:
    """TableError when the table's buckets cannot have come from this number of buckets and these fields."""
    where = plan.view.state.path
    advice = (
        "SET hoodie.bucket.index.num.buckets (and hoodie.bucket.index.hash.field) to the values that the table's other "
        "writers use. Nothing was written."
    )
    seen: set[tuple[str, int]] = set()
    for one in plan.slices:
        group = one.partition, bucket_of(one)
        if group[1] >= index.buckets:
            raise TableError(
                f"{where}: hoodie.bucket.index.num.buckets is {index.buckets}, but there is bucket {group[1]} "
                f"({one.file_id}). {advice}"
            )
        if group in seen:
            raise TableError(
                f"{where}: bucket {group[1]} of partition {group[0]!r} has two file groups. Nothing was written."
            )
        seen.add(group)
    # A few keys tell: a wrong number puts all but a few into another bucket.
    sampled = list(range(len(plan.slices)))[:: max(1, len(plan.slices) // _SAMPLED_SLICES)]
    if not sampled:
        return
    keys = con.sql(
        f"SELECT record_key, slice_no, {key_texts_sql('record_key', index.fields)} AS texts "
        f"FROM ({keys_sql(con, plan, sampled)}) LIMIT {_SAMPLED_KEYS}"
    ).to_arrow_table()
    numbers = bucket_numbers(keys["texts"].combine_chunks(), index.buckets)
    stored = np.array([bucket_of(s) for s in plan.slices])[keys["slice_no"].to_numpy()]
    wrong = np.flatnonzero(numbers != stored)
    if len(wrong):
        at = int(wrong[0])
        raise TableError(
            f"{where}: with {index.buckets} buckets by {', '.join(index.fields)}, key {keys['record_key'][at].as_py()!r} "
            f"belongs into bucket {numbers[at]}, but the table has it in bucket {stored[at]}. {advice}"
        )


def key_texts_sql(key: str, fields: Sequence[str]) -> str:
    """The texts to hash: values of the hash fields in a key `f1:v1,f2:v2`, or the whole key when it has none of them."""
    parts = f"string_split(regexp_replace({key}, ',([^,:]*:)', {_SEPARATOR} || '\\1', 'g'), {_SEPARATOR})"
    chosen = f"list_filter({parts}, lambda p: list_contains({literals(list(fields))}, split_part(p, ':', 1)))"
    value = "substr(p, strpos(p, ':') + 1)"
    texts = (
        f"list_transform({chosen}, lambda p: CASE WHEN {value} IN ('__null__', '__empty__') THEN '' ELSE {value} END)"
    )
    plain = f"NOT contains({key}, ':') OR NOT regexp_matches({key}, {literal(',[^,:]*:')})"
    return f"CASE WHEN {plain} OR len({chosen}) = 0 THEN [{key}] ELSE {texts} END"


def bucket_numbers(texts: pa.Array, buckets: int) -> npt.NDArray[np.int32]:
    """The bucket of each list of texts."""
    if isinstance(texts, pa.ChunkedArray):
        texts = pa.concat_arrays(texts.chunks) if texts.num_chunks else pa.array([], pa.list_(pa.string()))
    hashes = java_hashes(texts.flatten())
    lengths = np.diff(texts.offsets.to_numpy())
    first = np.concatenate([[0], np.cumsum(lengths)])[:-1]
    out = np.zeros(len(texts), np.uint32)
    for size in np.unique(lengths).tolist():
        group = np.flatnonzero(lengths == size)
        x = np.ones(len(group), np.uint32)
        for i in range(size):
            x = x * np.uint32(31) + hashes[first[group] + i]
        out[group] = x
    return ((out & np.uint32(0x7FFFFFFF)) % np.uint32(buckets)).astype(np.int32)


def java_hashes(texts: pa.Array) -> U32s:
    """`String.hashCode` of each text (none null)."""
    data = pa.concat_arrays([texts.cast(pa.large_string())])
    n = len(data)
    if not n:
        return np.zeros(0, np.uint32)
    offsets = np.frombuffer(data.buffers()[1], np.int64)[data.offset : data.offset + n + 1]
    source = np.frombuffer(data.buffers()[2] or b"", np.uint8)[offsets[0] : offsets[-1]]
    starts = offsets - offsets[0]
    letter: np.dtype[Any] = np.dtype("u1")
    if source.max(initial=0) >= 0x80:
        # A character is one unit, beyond U+FFFF (four bytes, the first at least F0) two.
        per_byte = ((source & 0xC0) != 0x80).astype(np.int64) + (source >= 0xF0)
        starts, letter = np.concatenate([[0], np.cumsum(per_byte)])[starts], np.dtype("<u2")
        source = np.frombuffer(source.tobytes().decode("utf-8").encode("utf-16-le"), np.uint8)
    lengths = np.diff(starts)
    out = np.zeros(n, np.uint32)
    for size in np.unique(lengths).tolist():
        group = np.flatnonzero(lengths == size)
        if not size:
            continue
        wide = size * letter.itemsize
        letters = at(source, wide)[letter.itemsize * starts[group]].view(letter).reshape(len(group), size)
        h = np.zeros(len(group), np.uint32)
        for column in np.ascontiguousarray(letters.T):
            h *= np.uint32(31)
            h += column
        out[group] = h
    return out
