"""Every service on the real tables about services: lakesql, then Spark, then lakesql; all readers give what a dict says.

One test per Hudi release takes all tables that this release wrote. Spark reads them in one query, since each command
takes about a second.
"""

import random
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakesql
from lakesql.services import clustering
from tests.interop import rust
from tests.interop.spark import SparkHudi

FOLDER = Path(__file__).parents[1] / "golden" / "tables"
FAMILIES = ("services", "pending", "clustered", "rollback", "logcompact", "overwrite_table")
RELEASES = {"0.15.0": "h015", "1.0.2": "h102", "1.2.0": "h120"}
SCHEMA = pa.schema([("id", pa.int32()), ("v", pa.string()), ("ts", pa.int64()), ("part", pa.string())])
Row = tuple[int, str | None, int, str]
SHORT = {
    "hoodie.clean.commits.retained": "1",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
}
COMPACTING = {"hoodie.compact.inline": "true", "hoodie.compact.inline.max.delta.commits": "1"}
EAGER_SPARK = {
    "hoodie.metadata.enable": "false",
    "hoodie.cleaner.commits.retained": "1",
    "hoodie.keep.min.commits": "2",
    "hoodie.keep.max.commits": "3",
}


@dataclass
class Game:
    """One table, and the dict that says what it must hold: id and partition to row."""

    table: lakesql.Table
    model: dict[tuple[int, str], Row] = field(default_factory=dict)
    newest: int = 1_000_000

    @property
    def want(self) -> list[Row]:
        return sorted(self.model.values(), key=repr)

    def told(self, rows: pa.Table) -> list[Row]:
        return sorted((tuple(row.values()) for row in rows.select(SCHEMA.names).to_pylist()), key=repr)

    def check(self, step: str) -> None:
        """lakesql reads the model, and no service put anything else on the timeline that hides rows."""
        got = self.told(self.table.read().read_all())
        assert got == self.want, f"{self.table.name} after {step}"

    def some(self, count: int = 3, new: int = 1) -> pa.Table:
        """New values for some rows of the model, and new rows; the model follows."""
        chance = random.Random(self.newest)
        self.newest += 10
        old = chance.sample(sorted(self.model), min(count, len(self.model)))
        parts = sorted({part for _, part in self.model})
        keys = [*old, *((self.newest + number, chance.choice(parts)) for number in range(new))]
        changed = [(id_, f"v{self.newest}", self.newest, part) for id_, part in keys]
        self.model.update({(row[0], row[3]): row for row in changed})
        return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in changed], SCHEMA)

    def upsert(self) -> None:
        self.table.upsert(self.some())

    def update(self) -> None:
        """A write that a Merge-on-Read table takes into logs; new rows go into small base files."""
        self.table.upsert(self.some(new=0))

    def serve(self, step: str) -> None:
        """Every service of lakesql once, each beside a write; the rows stay what the dict says."""
        table = self.table
        if clustering.pending(table.state):  # rows of groups that a pending clustering reads stay as they are
            before = dict(self.model)
            with pytest.raises(lakesql.LakeError, match="clustering"):
                table.upsert(self.some(len(before)))
            self.model = before
            assert table.cluster()
            self.check(f"{step}: pending clustering")
        self.upsert()
        self.check(f"{step}: write")
        if table.state.config.is_mor:
            self.compact(step)
        table.cluster(["v", "id"])
        self.check(f"{step}: clustering")
        self.upsert()
        self.upsert()
        table.clean(**SHORT)
        self.check(f"{step}: clean")
        table.archive(**SHORT)
        self.check(f"{step}: archive")
        self.undo(step)

    def compact(self, step: str) -> None:
        table = self.table
        while table.state.pending_compactions:
            assert table.compact(schedule=False).instants
            self.check(f"{step}: pending compaction")
        self.update()
        plan = table.compact(run=False)
        assert plan.instant is not None
        if table.state.config.version >= 8:  # in version 6 such a write is refused
            self.update()
        self.check(f"{step}: compaction scheduled, then a write")
        assert table.compact(schedule=False).file_groups
        self.check(f"{step}: compaction")
        if table.state.config.version >= 8:
            for _ in range(4):
                self.update()
            assert table.compact(logs=True, **{"hoodie.log.compaction.blocks.threshold": "2"}).file_groups
            self.check(f"{step}: log compaction")

    def undo(self, step: str) -> None:
        table, before = self.table, dict(self.model)
        self.upsert()
        table.rollback()
        self.model = before
        self.check(f"{step}: rollback of the newest")
        self.upsert()
        kept = dict(self.model)
        saved = table.savepoint()
        self.upsert()
        if table.state.config.is_mor:
            table.compact()
        self.update()
        table.restore(saved)
        self.model = kept
        self.check(f"{step}: restore to the savepoint")
        table.delete_savepoint(saved)


def taken(name: str, folder: Path) -> Game:
    """The real table of that name, unpacked, with the rows that Apache Hudi reads from it as the dict."""
    with zipfile.ZipFile(FOLDER / f"{name}.zip") as archive:
        archive.extractall(folder / name)
    with (folder / name / name / ".hoodie" / "hoodie.properties").open("a") as properties:
        properties.write("\nhoodie.table.timeline.timezone=UTC\n")  # the times of unpacked files no longer tell
    game = Game(lakesql.open_table(str(folder / name / name)))
    expected = pq.read_table(folder / name / "expected" / "snapshot.parquet")
    game.model = {(row[0], row[3]): row for row in game.told(expected)}
    game.check("unpacking")
    return game


def options(game: Game) -> dict[str, str]:
    """What Spark's writer is told about a table, and its services within the write."""
    config = game.table.state.config
    given = {
        "hoodie.table.name": game.table.name,
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "part",
        "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.table.type": "MERGE_ON_READ" if config.is_mor else "COPY_ON_WRITE",
    }
    return given | EAGER_SPARK | (COMPACTING if config.is_mor else {})


def all_read(games: list[Game], spark: SparkHudi, step: str) -> None:
    """lakesql, hudi-rs and Spark read what the dicts say; Spark reads all tables in one query."""
    register = []
    for game in games:
        game.check(step)
        assert game.told(rust.read(game.table.path)) == game.want, f"hudi-rs {game.table.name} after {step}"
        name = game.table.name
        register += [f"DROP TABLE IF EXISTS {name}", f"CREATE TABLE {name} USING hudi LOCATION '{game.table.path}'"]
    selects = [f"SELECT '{g.table.name}' AS t, id, v, ts, part FROM {g.table.name}" for g in games]
    got = spark.sql(*register, " UNION ALL ".join(selects)).to_pylist()
    for game in games:
        rows = [(r["id"], r["v"], r["ts"], r["part"]) for r in got if r["t"] == game.table.name]
        assert sorted(rows, key=repr) == game.want, f"Spark {game.table.name} after {step}"


@pytest.mark.parametrize("spark", ["1.2.0", "1.0.2", "0.15.0"], indirect=True)
def test_every_service_on_the_tables_of_a_release_in_turns(spark: SparkHudi, tmp_path: Path) -> None:
    prefix = RELEASES[spark.version]
    names = sorted(p.stem for family in FAMILIES for p in FOLDER.glob(f"{prefix}_{family}_*.zip"))
    games = [taken(name, tmp_path) for name in names]
    for game in games:
        game.serve("we")
        if game.table.state.config.is_mor:  # Spark finds a plan of ours
            game.update()
            assert game.table.compact(run=False).instant
    all_read(games, spark, "our services")
    for game in games:
        completed = len(game.table.state.timeline.completed_writes())
        spark.write(game.table.path, game.some(new=0), options(game))
        now = game.table.state
        assert not now.pending_compactions, game.table.name
        assert len(now.timeline.completed_writes()) != completed or now.config.is_mor
        game.check("Spark's write and services")
    for game in games:
        game.serve("we again")
    all_read(games, spark, "our second round")
