"""Spark and lakesql take turns on one table; after every commit both read exactly what a Python dict says.

Spark runs with its default options, so each of its writes builds the metadata table and each of ours must retire it.
The cells are the table versions that each Hudi release writes, for both table types.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakesql
from tests.interop.spark import SparkHudi, keep_version
from tests.samples import SCHEMA, Kind, Row, create, rows, tuples

CELLS = [("1.2.0", 9), ("1.2.0", 8), ("1.2.0", 6), ("1.0.2", 8), ("0.15.0", 6)]
CELL_IDS = [f"hudi-{release}-v{version}" for release, version in CELLS]
SCHEDULE = "CALL run_compaction(op => 'schedule', table => 't', options => 'hoodie.compact.inline.max.delta.commits=1')"


class Game:
    """One table, its two writers, and the dict that says what it must hold: record key to row."""

    def __init__(self, table: lakesql.Table, spark: SparkHudi, kind: Kind) -> None:
        self.table, self.spark, self.kind = table, spark, kind
        self.model: dict[str, Row] = {}
        self.history: list[tuple[str, list[Row]]] = []
        self.keep = keep_version(kind.version) if spark.version == "1.2.0" else {}
        self.con = lakesql.connect()
        self.con.sql(f"CREATE TABLE t USING hudi LOCATION '{table.path}'")

    def spark_sql(self, statement: str) -> pa.Table:
        settings = [f"SET {key}={value}" for key, value in self.keep.items()]
        register = ("DROP TABLE IF EXISTS t", f"CREATE TABLE t USING hudi LOCATION '{self.table.path}'")
        return self.spark.sql(*settings, *register, statement)

    def spark_upsert(self, *values: Row, options: Mapping[str, str] | None = None) -> None:
        write = {
            "hoodie.table.name": "t",
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "city" if self.kind.partitioned else "",
            "hoodie.datasource.write.hive_style_partitioning": "true",
            "hoodie.datasource.write.table.type": "MERGE_ON_READ" if self.kind.type == "mor" else "COPY_ON_WRITE",
        }
        if self.kind.event_time:
            write["hoodie.datasource.write.precombine.field"] = "ts"
        if self.kind.event_time and self.spark.version == "0.15.0":
            write["hoodie.datasource.write.payload.class"] = "org.apache.hudi.common.model.DefaultHoodieRecordPayload"
        self.spark.write(self.table.path, rows(*values), write | self.keep | dict(options or {}))
        self.model.update({row[0]: row for row in values})

    def has_metadata_table(self) -> bool:
        return bool(self.table.properties.get("hoodie.table.metadata.partitions"))

    def check(self, step: str, by_spark: bool) -> None:
        """Both readers give the model, and the metadata table is there exactly when Spark wrote last."""
        want = sorted(self.model.values(), key=repr)
        assert tuples(self.table.read()) == want, f"lakesql after {step}"
        assert tuples(self.spark.read(self.table.path)) == want, f"Spark after {step}"
        assert self.has_metadata_table() == by_spark, step
        assert (Path(self.table.path) / ".hoodie" / "metadata").exists() == by_spark, step
        assert self.table.state.config.version == self.kind.version
        self.history.append((self.table.state.timeline.newest_time, want))


@pytest.fixture(params=["cow", "mor"])
def game(request: pytest.FixtureRequest, tmp_path: Path, spark: SparkHudi, version: int) -> Iterator[Game]:
    kind = Kind(request.param, version)
    playing = Game(create(tmp_path / "t", kind), spark, kind)
    yield playing
    playing.con.close()


@pytest.mark.parametrize(("spark", "version"), CELLS, ids=CELL_IDS, indirect=["spark"])
def test_ten_alternating_commits_agree_with_the_dict(game: Game) -> None:
    model = game.model
    first = [(key, city, 1, 10) for key, city in zip("abcdef", "xxyyxy", strict=True)]
    game.table.upsert(rows(*first))
    model.update({row[0]: row for row in first})
    game.check("our first load", by_spark=False)

    game.spark_upsert(("a", "x", 20, 20), ("g", "z", 2, 20))
    game.check("Spark's upsert", by_spark=True)

    game.table.upsert(rows(("b", "x", 30, 30), ("g", "z", 31, 30), ("h", "x", 32, 30), ("a", "x", -1, 5)))
    model |= {"b": ("b", "x", 30, 30), "g": ("g", "z", 31, 30), "h": ("h", "x", 32, 30)}
    game.check("our upsert with a late row", by_spark=False)

    game.spark_sql("DELETE FROM t WHERE id = 'c'")
    del model["c"]
    game.check("Spark's DELETE", by_spark=True)

    game.con.sql("DELETE FROM t WHERE id = 'd'")
    del model["d"]
    game.check("our DELETE", by_spark=False)

    game.spark_sql("UPDATE t SET v = v + 600, ts = 60 WHERE city = 'x'")
    model |= {key: (key, city, (v or 0) + 600, 60) for key, city, v, _ in model.values() if city == "x"}
    game.check("Spark's UPDATE", by_spark=True)

    game.con.sql(
        "MERGE INTO t USING (VALUES ('a', 'x', 70, 70), ('g', 'z', 0, 70), ('i', 'y', 71, 70)) AS s (id, city, v, ts) "
        "ON t.id = s.id AND t.city = s.city "
        "WHEN MATCHED AND s.v = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    model |= {"a": ("a", "x", 70, 70), "i": ("i", "y", 71, 70)}
    del model["g"]
    game.check("our MERGE", by_spark=False)

    if game.kind.type == "mor":
        game.spark_sql(SCHEDULE)
        game.spark_sql("CALL run_compaction(op => 'run', table => 't')")
        assert game.table.files().column("log_count").to_pylist().count(0) > 0
    game.spark_upsert(("e", "x", 80, 80), ("j", "z", 81, 80))
    game.check("Spark's compaction and upsert", by_spark=True)

    game.table.upsert(rows(("e", "x", 90, 90), ("j", "z", 91, 90), ("k", "w", 92, 90)))
    model |= {"e": ("e", "x", 90, 90), "j": ("j", "z", 91, 90), "k": ("k", "w", 92, 90)}
    game.check("our upsert after compaction", by_spark=False)

    game.spark_upsert(("k", "w", 100, 100), ("h", "x", 101, 100))
    game.check("Spark's last upsert", by_spark=True)

    for instant, want in game.history:
        assert tuples(game.table.read(as_of=instant)) == want, instant


@pytest.mark.parametrize("type_", ["cow", "mor"])
@pytest.mark.parametrize(("spark", "version"), CELLS, ids=CELL_IDS, indirect=["spark"])
def test_newest_commit_wins_on_a_table_without_ordering_field(
    spark: SparkHudi, version: int, type_: str, tmp_path: Path
) -> None:
    kind = Kind(type_, version, event_time=False)
    game = Game(create(tmp_path / "t", kind), spark, kind)
    game.table.upsert(rows(("a", "x", 1, 50), ("b", "x", 1, 50), ("c", "y", 1, 50)))
    game.table.upsert(rows(("a", "x", 2, 40)))
    game.spark_upsert(("a", "x", 3, 30), ("b", "x", 3, 30))
    game.table.delete(rows(("b", "x", None, None), ("c", "y", None, None)))
    game.table.upsert(rows(("b", "x", 4, 20)))
    game.model = {"a": ("a", "x", 3, 30), "b": ("b", "x", 4, 20)}
    game.check("our upserts and delete", by_spark=False)
    game.spark_upsert(("b", "x", 5, 10), ("c", "y", 5, 10))
    game.check("Spark's upsert", by_spark=True)


def test_base_files_with_parquets_own_filter_are_read_and_continued(tmp_path: Path, spark120: SparkHudi) -> None:
    count = 20_000
    kind = Kind("cow", 9, partitioned=False)
    playing = Game(create(tmp_path / "t", kind), spark120, kind)
    playing.table.bulk_insert(
        pa.table(
            {"id": [f"k{n}" for n in range(count)], "city": ["x"] * count, "v": range(count), "ts": [1] * count}, SCHEMA
        )
    )
    found = spark120.read(playing.table.path).filter(pc.field("id") == "k777")
    assert tuples(found) == [("k777", "x", 777, 1)]
    playing.spark_upsert(("k777", "x", 1, 2), ("new", "x", 2, 2))
    mine = playing.table.read(where="id IN ('k777', 'new', 'k778')")
    assert tuples(mine) == [("k777", "x", 1, 2), ("k778", "x", 778, 1), ("new", "x", 2, 2)]
    assert playing.table.upsert(rows(("k778", "x", 3, 3))).rows_updated == 1
    assert spark120.read(playing.table.path).num_rows == count + 1
