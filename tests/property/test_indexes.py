"""Every index gives the same rows and counts: BLOOM as SIMPLE, buckets as both, global indexes as a dict by key alone.

Random batches of upserts and deletes over few keys go to one table per index; some Merge-on-Read slices then have logs
whose keys are in no footer.
"""

import os
import shutil
import tempfile
from pathlib import Path

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lakesql
from tests.samples import SCHEMA, tuples

LONG = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"
PROFILE = settings(
    max_examples=150 if LONG else 10, deadline=None, derandomize=not LONG, suppress_health_check=list(HealthCheck)
)
KEYS = [*"abcdef", "\uff5e", "\U0001f600", "x:y,z:1"]
ROW = st.tuples(st.sampled_from(KEYS), st.sampled_from("pq"), st.integers(0, 9), st.integers(0, 5))
BATCH = st.tuples(st.sampled_from(["upsert", "upsert", "delete"]), st.lists(ROW, min_size=1, max_size=6))
SMALL = {"hoodie.parquet.small.file.limit": "0", "hoodie.copyonwrite.insert.split.size": "2"}
INDEXES = {
    "simple": {"hoodie.index.type": "SIMPLE"},
    "bloom": {"hoodie.index.type": "BLOOM", "hoodie.index.bloom.fpp": "0.2"},
    "bucket": {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "3"},
}
Rows = list[tuple[str, str, int, int]]


def new_table(path: Path, kind: str, version: int) -> lakesql.Table:
    return lakesql.create_table(
        str(path),
        SCHEMA,
        type=kind,
        version=version,
        primary_key=["id"],
        ordering_fields=["ts"],
        partitioned_by=["city"],
    )


def write(table: lakesql.Table, operation: str, rows: Rows, options: dict[str, str]) -> tuple[int, ...]:
    batch = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)
    if operation == "delete":
        result = table.delete(batch.select(["id", "city"]), **options)
    else:
        result = table.upsert(batch, **options)
    return result.rows_inserted, result.rows_updated, result.rows_deleted, result.rows_ignored


@given(
    kind=st.sampled_from(["cow", "mor"]),
    version=st.sampled_from([6, 9]),
    batches=st.lists(BATCH, min_size=2, max_size=5),
)
@PROFILE
def test_every_index_within_partitions_gives_the_same_rows_and_counts(
    kind: str, version: int, batches: list[tuple[str, Rows]]
) -> None:
    folder = Path(tempfile.mkdtemp(prefix="lakesql-indexes-"))
    try:
        tables = {name: new_table(folder / name, kind, version) for name in INDEXES}
        for operation, rows in batches:
            counts = {name: write(tables[name], operation, rows, SMALL | INDEXES[name]) for name in INDEXES}
            assert len(set(counts.values())) == 1, counts
            found = {name: tuples(table.read()) for name, table in tables.items()}
            assert found["simple"] == found["bloom"] == found["bucket"]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@given(
    kind=st.sampled_from(["cow", "mor"]),
    index=st.sampled_from(["GLOBAL_SIMPLE", "GLOBAL_BLOOM"]),
    batches=st.lists(BATCH, min_size=2, max_size=6),
)
@PROFILE
def test_global_index_keeps_one_row_per_key_in_the_partition_given_last(
    kind: str, index: str, batches: list[tuple[str, Rows]]
) -> None:
    folder = Path(tempfile.mkdtemp(prefix="lakesql-indexes-"))
    model: dict[str, tuple[str, str, int, int]] = {}
    tombs: dict[tuple[str, str], int] = {}
    try:
        table = new_table(folder / "t", kind, 9)
        for operation, rows in batches:
            inserted, _, deleted, _ = write(table, operation, rows, SMALL | {"hoodie.index.type": index})
            before = set(model)
            if operation == "delete":
                for key in {row[0] for row in rows} & before:
                    row = model.pop(key)
                    tombs[key, row[1]] = row[3]
                assert deleted == len(before) - len(model)
            else:
                apply(model, tombs, rows, kind == "mor")
                assert inserted == len(set(model) - before)
            assert tuples(table.read()) == sorted(model.values(), key=repr)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def apply(
    model: dict[str, tuple[str, str, int, int]], tombs: dict[tuple[str, str], int], rows: Rows, tombs_count: bool
) -> None:
    """One upsert: per key the largest ordering value, of equal ones the last, against the row or the own tombstone."""
    best: dict[str, tuple[str, str, int, int]] = {}
    for row in rows:
        if row[0] not in best or row[3] >= best[row[0]][3]:
            best[row[0]] = row
    for key, row in best.items():
        stored = model.get(key)
        known = stored[3] if stored else tombs.get((key, row[1]), -1) if tombs_count else -1
        if row[3] < known:
            continue
        if stored and stored[1] != row[1]:
            tombs[key, stored[1]] = stored[3]
        model[key] = row
        tombs.pop((key, row[1]), None)
