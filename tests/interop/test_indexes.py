"""Spark finds our rows by every index it may use, the Bloom filters in our footers above all, and reads our changes.

Small-file packing is off in these Spark jobs: a key that the index misses then lands in a file group of its own and
shows as a duplicate, instead of being merged by chance.
"""

import pytest

from tests.interop.spark import NATIVE_VERSION, SparkHudi
from tests.samples import Kind, NewTable, rows, tuples

UPSERT = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.hive_style_partitioning": "true",
    "hoodie.parquet.small.file.limit": "0",
}
OPEN_GROUPS = {"hoodie.parquet.small.file.limit": "0"}
INDEXES = {
    "bloom": {"hoodie.index.type": "BLOOM"},
    "simple": {"hoodie.index.type": "SIMPLE"},
    "global-bloom": {"hoodie.index.type": "GLOBAL_BLOOM"},
    "record": {"hoodie.index.type": "RECORD_INDEX", "hoodie.metadata.record.index.enable": "true"},
}
CELLS = [("1.2.0", name) for name in INDEXES] + [("1.0.2", "bloom"), ("0.15.0", "bloom")]


@pytest.mark.parametrize("type_", ["cow", "mor"])
@pytest.mark.parametrize(("spark", "index"), CELLS, ids=[f"hudi-{r}-{i}" for r, i in CELLS], indirect=["spark"])
def test_spark_finds_our_keys_by_its_index(spark: SparkHudi, index: str, type_: str, new_table: NewTable) -> None:
    kind = Kind(type_, NATIVE_VERSION[spark.version])
    table = new_table(kind)
    model = {}

    def ours(number: int, *keys: str) -> None:
        batch = [(key, "x" if key < "m" else "y", number, number) for key in keys]
        table.upsert(rows(*batch), **OPEN_GROUPS)
        model.update({row[0]: row for row in batch})

    def theirs(number: int, *keys: str) -> None:
        batch = [(key, "x" if key < "m" else "y", number, number) for key in keys]
        options = UPSERT | INDEXES[index]
        options["hoodie.datasource.write.table.type"] = "MERGE_ON_READ" if type_ == "mor" else "COPY_ON_WRITE"
        spark.write(table.path, rows(*batch), options)
        model.update({row[0]: row for row in batch})

    ours(1, *(f"a{n}" for n in range(50)), "p", "q", "\uff5e", "\U0001f600")
    ours(2, *(f"b{n}" for n in range(50)), "a1")
    theirs(3, "a0", "a1", "b49", "p", "new", "\uff5e")
    assert tuples(spark.read(table.path)) == tuples(table.read()) == sorted(model.values(), key=repr)
    ours(4, "new", "b0", "r")
    theirs(5, "new", "r", "a1", "b7", "q")
    assert tuples(spark.read(table.path)) == tuples(table.read()) == sorted(model.values(), key=repr)


@pytest.mark.parametrize("type_", ["cow", "mor"])
def test_spark_reads_our_commits_incrementally(spark120: SparkHudi, type_: str, new_table: NewTable) -> None:
    table = new_table(Kind(type_, 9))
    table.upsert(rows(("a", "x", 1, 1), ("b", "x", 1, 1), ("c", "y", 1, 1)))
    first = table.state.timeline.newest_time
    table.upsert(rows(("a", "x", 2, 2), ("d", "z", 2, 2)))
    second = table.state.timeline.newest_time
    table.upsert(rows(("e", "z", 3, 3)))
    since_first = [("a", "x", 2, 2), ("d", "z", 2, 2), ("e", "z", 3, 3)]
    assert tuples(spark120.read(table.path, begin=first)) == tuples(table.changes(first)) == since_first
    until_second = tuples(table.changes(first, second))
    assert tuples(spark120.read(table.path, begin=first, end=second)) == until_second == since_first[:2]
