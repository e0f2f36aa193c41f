"""Every column type survives both engines: written here and read by Spark, rewritten by Spark and read here."""

import datetime
from pathlib import Path

import pyarrow as pa
import pytest

import lakesql
from tests.interop.every_type import ROWS, SCHEMA, differences, newer
from tests.interop.spark import SparkHudi, keep_version
from tests.interop.test_spark import CELL_IDS, CELLS


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize(("spark", "version"), CELLS, ids=CELL_IDS, indirect=["spark"])
def test_values_of_every_type_survive_both_writers(spark: SparkHudi, version: int, kind: str, tmp_path: Path) -> None:
    table = lakesql.create_table(
        str(tmp_path / "t"), SCHEMA, type=kind, primary_key=["id"], ordering_fields=["ts"], version=version
    )

    def both_read(want: pa.Table) -> None:
        assert differences(table.read().read_all(), want) == []
        assert differences(spark.read(table.path), want) == []

    table.upsert(ROWS)
    both_read(ROWS)
    table.upsert(newer(2, "lakesql"))
    both_read(newer(2, "lakesql"))

    settings = keep_version(version) if spark.version == "1.2.0" else {}
    if spark.version == "1.0.2":  # its column statistics of log files fail on a date that is NULL
        settings = {"hoodie.metadata.index.column.stats.enable": "false"}
    spark.sql(
        *[f"SET {key}={value}" for key, value in settings.items()],
        "DROP TABLE IF EXISTS t",
        f"CREATE TABLE t USING hudi LOCATION '{table.path}'",
        "UPDATE t SET text = 'spark', ts = 3",
        *[f"RESET {key}" for key in settings],
    )
    both_read(newer(3, "spark"))
    table.upsert(newer(4, "lakesql again"))
    both_read(newer(4, "lakesql again"))


def test_local_timestamps_survive_both_writers(spark120: SparkHudi, tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("ts", pa.int64()), ("local", pa.timestamp("us"))])
    moment = datetime.datetime(1969, 7, 20, 20, 17, 40, 123456)
    for kind in ("cow", "mor"):
        table = lakesql.create_table(
            f"{tmp_path}/{kind}", schema, type=kind, primary_key=["id"], ordering_fields=["ts"]
        )
        for ts in (1, 2):
            values_of = [{"id": "a", "ts": ts, "local": moment}, {"id": "b", "ts": ts, "local": None}]
            data = pa.Table.from_pylist(values_of, schema)
            table.upsert(data)
            for read in (spark120.read(table.path), table.read().read_all()):
                assert read.schema.field("local").type == pa.timestamp("us")
                assert sorted(read.select(schema.names).to_pylist(), key=repr) == sorted(data.to_pylist(), key=repr)
