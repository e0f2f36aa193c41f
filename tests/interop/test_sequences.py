"""Apache Hudi on Spark reads the same rows from the logs that lakesql writes, by every merge rule, and compacts to them.

Each key is a sequence of operations (`tests/sequences.py`); `tests/golden/test_sequences.py` shows that the rows are the
right ones. One test per release and table version, since every read takes Spark about a second.
"""

import random
from pathlib import Path

import pyarrow as pa
import pytest

import lakesql
from lakesql.write import batch
from tests.interop.spark import SparkHudi
from tests.sequences import OPERATIONS, PAYLOADS, SETTINGS, STEPS, create, play

COMPACT = (
    "CALL run_compaction(op => '{}', path => '{}')"  # by path: 1.2.0 cannot register every table of the MySQL class
)
RELEASES = {9: "1.2.0", 8: "1.0.2", 6: "0.15.0"}
SEED = 20240229
Row = tuple[object, ...]


def told(rows: pa.Table) -> list[Row]:
    """All columns, meta columns included, but for the name of the file."""
    names = [n for n in rows.column_names if n != "_hoodie_file_name"]
    return sorted((tuple(row.values()) for row in rows.select(names).to_pylist()), key=repr)


def ours(path: Path) -> list[Row]:
    return told(lakesql.open_table(str(path)).read().read_all())


def lost_and_found(got: list[Row], want: list[Row]) -> list[tuple[str, Row]]:
    first, second = set(got), set(want)
    return sorted([("only lakesql", r) for r in second - first] + [("only Spark", r) for r in first - second], key=repr)


def payloads(version: int, release: str) -> list[str]:
    """Hudi 1.2.0 has no FirstValueAvroPayload."""
    return [p for p in PAYLOADS if not (p == "FirstValueAvroPayload" and "1.2.0" in (release, RELEASES[version]))]


def disagreements(spark: SparkHudi, folder: Path, version: int) -> dict[str, object]:
    """Rows that Spark reads otherwise after the statement, after batch 2 and after batch 3, by payload and step."""
    found: dict[str, object] = {}
    for payload in payloads(version, spark.version):
        path = folder / payload
        table = create(path, payload, "mor", version)
        for step in STEPS:
            play(table, PAYLOADS[payload], step)
            if step in ("X", "2", "3"):
                got, want = told(spark.read(path, metadata=False)), ours(path)
                if got != want:
                    found[f"{payload} {step}"] = len(lost_and_found(got, want)), lost_and_found(got, want)[:4]
    return found


@pytest.mark.parametrize("version", [9, 8, 6])
def test_hudi_120_reads_every_sequence_as_we_do(version: int, spark120: SparkHudi, tmp_path: Path) -> None:
    assert disagreements(spark120, tmp_path, version) == {}


def test_hudi_102_reads_every_sequence_as_we_do(spark102: SparkHudi, tmp_path: Path) -> None:
    assert disagreements(spark102, tmp_path, 8) == {}


def test_hudi_015_reads_every_sequence_as_we_do(spark015: SparkHudi, tmp_path: Path) -> None:
    assert disagreements(spark015, tmp_path, 6) == {}


def test_hudi_120_compacts_every_sequence_to_the_same_rows(spark120: SparkHudi, tmp_path: Path) -> None:
    found = {}
    for payload in payloads(9, "1.2.0"):
        path = tmp_path / payload
        table = create(path, payload, "mor", 9)
        for step in STEPS:
            play(table, PAYLOADS[payload], step)
        before = ours(path)
        spark120.sql(*(COMPACT.format(operation, path) for operation in ("schedule", "run")))
        assert lakesql.open_table(str(path)).state.timeline.completed_writes()[-1].action == "compaction", payload
        for who, rows in (("lakesql", ours(path)), ("Spark", told(spark120.read(path, metadata=False)))):
            if rows != before:
                found[f"{payload}, {who}"] = lost_and_found(rows, before)[:4]
    assert found == {}


def test_hudi_120_reads_random_sequences_of_five_batches_as_we_do(spark120: SparkHudi, tmp_path: Path) -> None:
    print(f"seed {SEED}")
    drawn = random.Random(SEED)
    sequences = ["|".join(drawn.choice(OPERATIONS) for _ in range(5)) for _ in range(20)]
    for payload, shape in ((p, PAYLOADS[p]) for p in payloads(9, "1.2.0")):
        path = tmp_path / payload
        table = create(path, payload, "mor", 9)
        for number in range(5):
            rows = []
            for at, sequence in enumerate(sequences):
                operation = sequence.split("|")[number]
                if operation != "_":
                    rows.append(shape.row(f"{at} {sequence}", operation[0], int(operation[1:]), number))
            table.upsert(pa.Table.from_pylist(rows, schema=shape.schema), **SETTINGS)
        assert lost_and_found(told(spark120.read(path, metadata=False)), ours(path)) == [], (payload, SEED)


MARKED = pa.schema([("id", pa.string()), ("v", pa.int64()), ("ts", pa.int64()), ("Op", pa.string())])


@pytest.mark.parametrize(
    ("spark", "version"), [("1.2.0", 8), ("1.2.0", 6), ("1.0.2", 8), ("0.15.0", 6)], indirect=["spark"]
)
def test_data_rows_in_the_log_that_a_change_feed_marks_as_deletes_are_gone(
    spark: SparkHudi, version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hudi's writers make delete records of them; a reader of rows compares `Op` in any case all the same."""
    table = lakesql.create_table(
        str(tmp_path / "t"),
        MARKED,
        type="mor",
        primary_key=["id"],
        ordering_fields=["ts"],
        version=version,
        properties={"hoodie.compaction.payload.class": "org.apache.hudi.common.model.AWSDmsAvroPayload"},
    )
    table.upsert([{"id": key, "v": 1, "ts": 1, "Op": "I"} for key in "abcd"])
    monkeypatch.setattr(batch, "_marked_sql", lambda *_: None)
    table.upsert([{"id": key, "v": 2, "ts": 2, "Op": op} for key, op in zip("abc", "dDU", strict=True)])
    theirs = told(spark.read(tmp_path / "t", metadata=False))
    assert theirs == ours(tmp_path / "t")
    assert [row[-4:] for row in theirs] == [("d", 1, 1, "I"), ("c", 2, 2, "U")]
