"""Spark finds our rows by every index it may use, the Bloom filters in our footers above all, and reads our changes.

Under a global index and a bucket index both engines write in turn, each starting some tables, and either finds what
the other wrote: a row moves to the partition it was given last, a key goes to the bucket that its hash says.

Small-file packing is off in these Spark jobs: a key that the index misses then lands in a file group of its own and
shows as a duplicate, instead of being merged by chance.
"""

import pytest

import lakesql
from lakesql.table import read
from lakesql.table.state import load
from tests.interop import rust
from tests.interop.spark import NATIVE_VERSION, SparkHudi
from tests.samples import Kind, NewTable, Row, rows, tuples

UPSERT = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "city",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.hive_style_partitioning": "true",
    "hoodie.parquet.small.file.limit": "0",
}
OPEN_GROUPS = {"hoodie.parquet.small.file.limit": "0"}
GLOBAL = {"hoodie.index.type": "GLOBAL_SIMPLE", "hoodie.simple.index.update.partition.path": "true"}
BUCKET = {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "3", "hoodie.bucket.index.hash.field": "id"}
TURNS = [("1.2.0", "cow"), ("1.2.0", "mor"), ("1.0.2", "mor"), ("0.15.0", "cow"), ("0.15.0", "mor")]
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


@pytest.mark.parametrize("spark", ["1.2.0", "0.15.0"], indirect=True)
def test_spark_finds_our_keys_by_a_filter_that_got_too_full(spark: SparkHudi, new_table: NewTable) -> None:
    """Such a filter has fewer hash functions than its settings say; whoever reads it finds their number in it."""
    kind = Kind("cow", NATIVE_VERSION[spark.version])
    table = new_table(kind)
    full = {"hoodie.index.bloom.num_entries": "20", "hoodie.bloom.index.filter.dynamic.max.entries": "40"}
    first = [(f"a{n}", "x", 1, 1) for n in range(300)]
    table.upsert(rows(*first), **OPEN_GROUPS, **full)
    changed = [(f"a{n}", "x", 2, 2) for n in range(0, 300, 7)] + [(f"b{n}", "x", 2, 2) for n in range(40)]
    spark.write(table.path, rows(*changed), options_of(kind, INDEXES["bloom"] | full))
    want = sorted({row[0]: row for row in [*first, *changed]}.values(), key=repr)
    assert tuples(spark.read(table.path)) == tuples(table.read()) == want


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


def options_of(kind: Kind, index: dict[str, str]) -> dict[str, str]:
    """What a Spark job needs to write as the table says."""
    more = {"hoodie.datasource.write.table.type": "MERGE_ON_READ" if kind.type == "mor" else "COPY_ON_WRITE"}
    if kind.version == 6:
        more["hoodie.datasource.write.payload.class"] = "org.apache.hudi.common.model.DefaultHoodieRecordPayload"
    return UPSERT | index | more


class Turns:
    """A table that both engines write to, and the rows it must have: by key alone or by partition and key."""

    def __init__(self, spark: SparkHudi, table: lakesql.Table, kind: Kind, index: dict[str, str]) -> None:
        self.spark, self.table, self.index = spark, table, index
        self.options = options_of(kind, index)
        self.model: dict[object, Row] = {}

    def put(self, who: str, number: int, *keys: tuple[str, str]) -> None:
        batch = [(key, city, number, number) for key, city in keys]
        if who == "ours":
            self.table.upsert(rows(*batch), **OPEN_GROUPS, **self.index)
        else:
            self.spark.write(self.table.path, rows(*batch), self.options)
        anywhere = self.index["hoodie.index.type"].startswith("GLOBAL")
        self.model.update({key if anywhere else (key, city): row for row in batch for key, city in [row[:2]]})

    def check(self) -> None:
        want = sorted(self.model.values(), key=repr)
        assert tuples(self.table.read()) == want
        assert tuples(self.spark.read(self.table.path)) == want
        assert tuples(rust.read(self.table.path)) == want


@pytest.mark.parametrize(("spark", "type_"), TURNS, ids=[f"hudi-{r}-{t}" for r, t in TURNS], indirect=["spark"])
@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_rows_move_under_a_global_index_whoever_writes(
    spark: SparkHudi, type_: str, first: str, new_table: NewTable
) -> None:
    kind = Kind(type_, NATIVE_VERSION[spark.version])
    turns = Turns(spark, new_table(kind), kind, GLOBAL)
    second = "theirs" if first == "ours" else "ours"
    turns.put(first, 1, ("a", "x"), ("b", "x"), ("c", "y"), ("d", "y"))
    turns.put(second, 2, ("a", "y"), ("b", "x"), ("e", "z"))
    turns.check()
    turns.put(first, 3, ("a", "z"), ("c", "x"), ("f", "x"))
    turns.check()
    turns.put(second, 4, ("a", "x"), ("c", "y"), ("e", "x"))
    turns.check()


@pytest.mark.parametrize(("spark", "type_"), TURNS, ids=[f"hudi-{r}-{t}" for r, t in TURNS], indirect=["spark"])
@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_each_engine_writes_to_the_buckets_of_the_other(
    spark: SparkHudi, type_: str, first: str, new_table: NewTable
) -> None:
    kind = Kind(type_, NATIVE_VERSION[spark.version])
    turns = Turns(spark, new_table(kind), kind, BUCKET)
    second = "theirs" if first == "ours" else "ours"
    turns.put(first, 1, *((f"k{n}", "xy"[n % 2]) for n in range(10)), ("s\u00e3o \U0001f600", "x"))
    turns.put(second, 2, *((f"k{n}", "xy"[n % 2]) for n in range(5, 15)), ("s\u00e3o \U0001f600", "x"), ("only", "z"))
    turns.check()
    turns.put(first, 3, *((f"k{n}", "xy"[n % 2]) for n in range(12, 18)), ("only", "z"), ("more", "z"), ("p", "w"))
    turns.check()
    turns.put(second, 4, ("k0", "x"), ("only", "z"), ("p", "w"), ("q", "w"))
    turns.check()
    slices = read.plan(load(turns.table.state.storage)).slices
    assert len({(one.partition, one.file_id[:8]) for one in slices}) == len(slices)
