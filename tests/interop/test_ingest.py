"""A table that an ingestion feeds, between Spark's own writes: equal rows for all readers, and offsets that survive."""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

import lakesql
from lakesql.ingest.hudi_sink import HudiSink
from lakesql.write.carried import active, find
from tests.interop import rust
from tests.interop.spark import SparkHudi
from tests.interop.test_spark import Game
from tests.samples import Kind, Row, tuples
from tests.unit.ingest.loading import BAD, Topics, job, run, sink

CHECKPOINT = "deltastreamer.checkpoint.key"


def record(key: str, city: str, v: int, ts: int) -> tuple[str, Mapping[str, object]]:
    return f'"{key}"', {"id": key, "city": city, "v": v, "ts": ts}


def checkpoint(table: lakesql.Table) -> str | None:
    """What Hudi Streamer would go on from: the text of the newest commit that has one."""
    return find(active(table.state)).checkpoint


def all_read(game: Game) -> list[Row]:
    ours = tuples(game.table.read())
    assert tuples(game.spark.read(game.table.path)) == ours
    assert tuples(rust.read(game.table.path)) == ours
    return ours


def ingested(path: Path, type_: str, topics: Topics) -> HudiSink:
    properties = {"type": type_, "primaryKey": "id", "orderingFields": "ts"}
    target = sink(path, job(path, properties=properties, partition_by=("city",)))
    run(target, topics)
    return target


@pytest.mark.parametrize("type_", ["cow", "mor"])
def test_spark_and_an_ingestion_take_turns_on_one_table(type_: str, spark120: SparkHudi, tmp_path: Path) -> None:
    log = [record("a", "x", 1, 10), record("b", "x", 2, 10), ('"z"', BAD), record("c", "y", 3, 10)]
    topics: Topics = {("orders", 0): log, ("orders", 1): [record("d", "y", 4, 10)]}
    target = ingested(tmp_path / "t", type_, topics)
    game = Game(lakesql.open_table(tmp_path / "t"), spark120, Kind(type_, 9))
    assert all_read(game) == [("a", "x", 1, 10), ("b", "x", 2, 10), ("c", "y", 3, 10), ("d", "y", 4, 10)]
    assert checkpoint(game.table) == "orders,0:4,1:1"

    game.spark_upsert(("a", "x", 11, 20), ("e", "z", 5, 20))
    assert {at.partition: n for at, n in target.stored().offsets().items()} == {0: 4, 1: 1}

    log += [('"b"', None), record("c", "y", 33, 30), record("f", "z", 6, 30)]
    run(target, topics)
    want = [("a", "x", 11, 20), ("c", "y", 33, 30), ("d", "y", 4, 10), ("e", "z", 5, 20), ("f", "z", 6, 30)]
    assert all_read(game) == want
    assert checkpoint(game.table) == "orders,0:7,1:1"


def test_hudi_streamer_and_an_ingestion_go_on_from_each_other(spark120: SparkHudi, tmp_path: Path) -> None:
    """Spark writes what Hudi Streamer leaves behind: rows and its text, nothing of ours."""
    log = [record("a", "x", 1, 10), ('"a"', None)]
    target = ingested(tmp_path / "t", "mor", {("orders", 0): log})
    game = Game(lakesql.open_table(tmp_path / "t"), spark120, Kind("mor", 9))
    assert game.table.state.files == ()  # a commit of offsets alone
    assert tuples(game.spark.read(game.table.path)) == []
    assert rust.read(game.table.path).num_rows == 0
    assert checkpoint(game.table) == "orders,0:2"

    log.append(record("g", "x", 7, 40))
    streamer = {"hoodie.datasource.write.commitmeta.key.prefix": "deltastreamer.", CHECKPOINT: "orders,0:3"}
    game.spark_upsert(("g", "x", 7, 40), options=streamer)
    assert checkpoint(game.table) == "orders,0:3"
    assert run(target, {("orders", 0): log}).commit is None

    log.append(record("g", "x", 8, 50))
    assert run(target, {("orders", 0): log}).updated == 1
    assert checkpoint(game.table) == "orders,0:4"
    game.table.upsert(pa.table({"id": ["h"], "city": ["x"], "v": [9], "ts": [60]}))
    assert checkpoint(game.table) == "orders,0:4"
    assert all_read(game) == [("g", "x", 8, 50), ("h", "x", 9, 60)]
