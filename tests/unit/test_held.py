"""Rows that the caller has in memory are written as those of a query are, whatever becomes of them."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakesql.errors import TableError
from lakesql.table.state import TableState, load
from lakesql.write import WriteResult, batch, write
from lakesql.write.plan import BATCH
from tests.writing import CON, SCHEMA, base_tables, rows_of, table

ODD = pa.schema([*SCHEMA, ("n", pa.int32()), ("t", pa.timestamp("us", "UTC")), ("l", pa.list_(pa.int64()))])
KEPT = ["_hoodie_record_key", "_hoodie_partition_path"]


def put(state: TableState, rows: pa.Table, given: bool, operation: str = "upsert", **settings: str) -> WriteResult:
    CON.register("held_rows", rows)
    try:
        return write(
            CON,
            load(state.storage),
            "SELECT * EXCLUDE (beside) FROM held_rows",
            operation=operation,
            settings=settings,
            rows=rows if given else None,
        )
    finally:
        CON.unregister("held_rows")


def some(chance: random.Random, count: int, keys: int) -> pa.Table:
    """Rows of a batch; `n` comes wider than the table has it, `l` is nested, `beside` is no column of the table."""
    numbers = range(count)
    return pa.table(
        {
            "beside": pa.array(list(numbers)),
            "ts": pa.array([chance.randrange(50) for _ in numbers]),
            "id": pa.array([f"k{chance.randrange(keys)}" for _ in numbers]),
            "city": pa.array([chance.choice("xy") for _ in numbers]),
            "v": pa.array([chance.choice([None, i]) for i in numbers], pa.int64()),
            "n": pa.array(list(numbers), pa.int64()),
            "t": pa.array(list(numbers), pa.timestamp("us", "UTC")),
            "l": pa.array([[i] * (i % 3) for i in numbers]),
        }
    )


def counts(result: WriteResult) -> tuple[int, ...]:
    return result.rows_inserted, result.rows_updated, result.rows_deleted, result.rows_ignored, result.files_written


def files(state: TableState) -> list[list[dict[str, Any]]]:
    """The rows of the base files in their order, but for what is chance in them."""
    columns = [*KEPT, *ODD.names]
    return sorted((one.select(columns).to_pylist() for one in base_tables(state)), key=repr)


@pytest.mark.parametrize("keys", [8, 100_000], ids=["keys come twice", "keys are new"])
@pytest.mark.parametrize(
    "more",
    [{}, {"partitioned_by": []}, {"primary_key": ["id", "city"]}, {"primary_key": [], "ordering_fields": []}],
    ids=["partitions", "flat", "two columns", "no key"],
)
def test_rows_in_memory_are_written_as_those_of_a_query(tmp_path: Path, keys: int, more: dict[str, Any]) -> None:
    keyed = "primary_key" not in more or bool(more["primary_key"])
    given, asked = (table(tmp_path / name, "mor", schema=ODD, **more) for name in ("given", "asked"))
    chance = random.Random(keys)
    columns = ", ".join([*KEPT * keyed, *ODD.names])
    for step in range(3):
        rows = some(chance, 60, keys)
        rows = pa.concat_tables([rows.slice(0, 11), rows.slice(11)]) if step else rows
        operation = "upsert" if keyed else "insert"
        assert counts(put(given, rows, True, operation)) == counts(put(asked, rows, False, operation))
        assert rows_of(given, columns) == rows_of(asked, columns)
    if keyed:
        assert files(given) == files(asked)


@pytest.mark.parametrize("settings", [
    {"hoodie.index.type": "BUCKET", "hoodie.bucket.index.num.buckets": "3"},
    {"hoodie.index.type": "GLOBAL_SIMPLE"},
    {"hoodie.copyonwrite.insert.split.size": "20", "hoodie.copyonwrite.insert.auto.split": "false"},
])  # fmt: skip
@pytest.mark.parametrize("operation", ["upsert", "insert"])
def test_indexes_sizes_and_operations_are_those_of_a_query(
    tmp_path: Path, settings: dict[str, str], operation: str
) -> None:
    given, asked = (table(tmp_path / name, schema=ODD) for name in ("given", "asked"))
    chance = random.Random(7)
    for _ in range(2):
        rows = some(chance, 60, 100_000)
        assert counts(put(given, rows, True, operation, **settings)) == counts(
            put(asked, rows, False, operation, **settings)
        )
        assert rows_of(given) == rows_of(asked)
        assert len(base_tables(given)) == len(base_tables(asked))


def test_the_rows_are_taken_without_a_copy_and_nothing_of_them_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    hold = batch.hold
    monkeypatch.setattr(batch, "hold", lambda *given: seen.append(hold(*given)) or seen[-1])
    rows = some(random.Random(1), 60, 100_000)
    put(table(tmp_path / "t", schema=ODD), rows, True)
    (held,) = seen
    for name in ("id", "city", "v", "ts"):
        assert held[name].chunk(0).buffers()[-1].address == rows[name].chunk(0).buffers()[-1].address
    assert held["n"].type == pa.int32()
    assert not CON.execute(f"SELECT 1 FROM duckdb_views() WHERE view_name = '{BATCH}'").fetchall()
    assert not CON.execute(f"SELECT 1 FROM duckdb_tables() WHERE table_name = '{BATCH}'").fetchall()


def test_many_rows_become_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "HELD_ROWS", 59)
    monkeypatch.delattr(batch, "hold")
    t = table(tmp_path / "t", schema=ODD)
    assert put(t, some(random.Random(1), 60, 100_000), True).rows_inserted == 60


@pytest.mark.parametrize("wrong", ["id", "city"])
def test_a_row_that_does_not_fit_is_named_as_ever(tmp_path: Path, wrong: str) -> None:
    rows = some(random.Random(1), 60, 100_000).slice(0, 9)
    at = rows.column_names.index(wrong)
    rows = rows.set_column(at, wrong, pa.array([".." if wrong == "city" else None, *rows[wrong].to_pylist()[1:]]))
    told = []
    for given in (True, False):
        with pytest.raises(TableError) as error:
            put(
                table(
                    tmp_path / f"t{given}",
                    schema=ODD,
                    properties={"hoodie.datasource.write.hive_style_partitioning": "false"},
                ),
                rows,
                given,
            )
        told.append(str(error.value).replace(f"t{given}", "t"))
    assert told[0] == told[1]
