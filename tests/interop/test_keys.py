"""Both engines spell record keys and partition paths alike: each updates the rows of the other, none is doubled."""

import datetime
import decimal
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakesql
from tests.interop import rust
from tests.interop.spark import NATIVE_VERSION, SparkHudi

MOMENT = datetime.datetime(2026, 2, 3, 4, 5, 6, 789012, tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True)
class Keyed:
    """A table whose key or partition needs spelling: column types, which are key and partition, and two rows."""

    name: str
    columns: dict[str, pa.DataType]
    key: list[str]
    partition: list[str]
    first: tuple[Any, ...]
    second: tuple[Any, ...]
    properties: dict[str, str] = field(default_factory=dict)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*self.columns.items(), ("v", pa.int64()), ("ts", pa.int64())])

    def rows(self, v: int, ts: int) -> pa.Table:
        values = [(*key, v, ts) for key in (self.first, self.second)]
        return pa.Table.from_pylist([dict(zip(self.schema.names, row, strict=True)) for row in values], self.schema)


CASES = [
    Keyed("one-number", {"id": pa.int64()}, ["id"], [], (1,), (-7,)),
    Keyed("one-date", {"day": pa.date32()}, ["day"], [], (datetime.date(2026, 2, 3),), (datetime.date(1969, 12, 31),)),
    Keyed(
        "several",
        {"a": pa.string(), "n": pa.int32(), "flag": pa.bool_(), "day": pa.date32()},
        ["a", "n", "flag", "day"],
        [],
        ("x:1,y", 5, True, datetime.date(2026, 2, 3)),
        ("", None, False, datetime.date(1969, 12, 31)),
    ),
    Keyed(
        "moment-and-decimal",
        {"at": pa.timestamp("us", "UTC"), "d": pa.decimal128(10, 3)},
        ["at", "d"],
        [],
        (MOMENT, decimal.Decimal("1.500")),
        (MOMENT.replace(year=1969, microsecond=0), decimal.Decimal("-0.010")),
    ),
    Keyed(
        "text-partition",
        {"id": pa.string(), "p": pa.string()},
        ["id"],
        ["p"],
        ("a", "São Paulo 100%"),
        ("b", None),
        {"hoodie.datasource.write.partitionpath.urlencode": "true"},
    ),
    Keyed(
        "encoded-partition",
        {"id": pa.string(), "p": pa.string()},
        ["id"],
        ["p"],
        ("a", "x/y=z:w"),
        ("b", "+&?"),
        {"hoodie.datasource.write.partitionpath.urlencode": "true"},
    ),
    Keyed(
        "bare-partition",
        {"id": pa.string(), "p": pa.int32()},
        ["id"],
        ["p"],
        ("a", 1),
        ("b", -1),
        {"hoodie.datasource.write.hive_style_partitioning": "false"},
    ),
    Keyed(
        "two-partitions",
        {"id": pa.int32(), "day": pa.date32(), "p": pa.string()},
        ["id"],
        ["day", "p"],
        (1, datetime.date(2026, 2, 3), "x"),
        (2, datetime.date(1969, 12, 31), "y"),
    ),
]


@pytest.mark.parametrize("type_", ["cow", "mor"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("spark", ["1.2.0", "0.15.0"], indirect=True)
def test_each_engine_finds_the_keys_of_the_other(spark: SparkHudi, case: Keyed, type_: str, tmp_path: Path) -> None:
    table = lakesql.create_table(
        str(tmp_path / "t"),
        case.schema,
        type=type_,
        primary_key=case.key,
        ordering_fields=["ts"],
        partitioned_by=case.partition,
        version=NATIVE_VERSION[spark.version],
        properties=case.properties,
    )
    hive = "hoodie.datasource.write.hive_style_partitioning"
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": ",".join(case.key),
        "hoodie.datasource.write.partitionpath.field": ",".join(case.partition),
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.table.type": "MERGE_ON_READ" if type_ == "mor" else "COPY_ON_WRITE",
        hive: table.properties[hive],
        **case.properties,
    }
    if spark.version == "0.15.0":
        options["hoodie.datasource.write.payload.class"] = "org.apache.hudi.common.model.DefaultHoodieRecordPayload"
    table.upsert(case.rows(1, 1))
    spark.write(table.path, case.rows(2, 2), options)
    ours, theirs = table.read().read_all(), spark.read(table.path)
    assert values(ours, case) == values(theirs, case) == values(case.rows(2, 2), case)
    assert spelled(ours) == spelled(theirs)
    table.upsert(case.rows(3, 3))
    ours, theirs = table.read().read_all(), spark.read(table.path)
    assert values(ours, case) == values(theirs, case) == values(case.rows(3, 3), case)
    assert spelled(ours) == spelled(theirs) == spelled(rust.read(table.path))


def values(table: pa.Table, case: Keyed) -> list[str]:
    return sorted(repr(list(row.values())) for row in table.select(case.schema.names).to_pylist())


def spelled(table: pa.Table) -> list[tuple[str, str]]:
    """(record key, partition path) of every row."""
    rows = table.select(["_hoodie_record_key", "_hoodie_partition_path"]).to_pylist()
    return sorted((row["_hoodie_record_key"], row["_hoodie_partition_path"]) for row in rows)
