"""Record key, partition and ordering values that a cast would change are refused before anything is written."""

from decimal import Decimal

import pandas as pd
import pytest

import lakesql
from lakesql.errors import TableError
from tests.sql_tables import AB, all_rows


@pytest.fixture
def numbers(con):
    con.sql(
        "CREATE TABLE k (id INT, v STRING, ts BIGINT, p DATE) USING hudi PARTITIONED BY (p) "
        "TBLPROPERTIES (primaryKey = 'id', orderingFields = 'ts')"
    )
    con.sql("INSERT INTO k VALUES (2, 'keep', 1, DATE '2026-01-01')")
    return con


def row(**changed):
    return pd.DataFrame([{"id": 3, "v": "x", "ts": 5, "p": "2026-01-01", **changed}])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"id": 2.4},
            "record key column id is INTEGER, the rows give DOUBLE, and the cast would change the value 2.4,",
        ),
        ({"id": "2.4"}, "would change the value 2.4"),
        ({"id": Decimal("2.5")}, "would change the value 2.5"),
        ({"ts": 7.5}, "ordering column ts is BIGINT, the rows give DOUBLE, and the cast would change the value 7.5"),
        ({"p": pd.Timestamp("2026-01-01 10:00")}, "partition column p is DATE"),
    ],
)
def test_key_partition_or_ordering_value_that_the_cast_changes_is_refused(numbers, changed, message):
    table = numbers.table("k")
    with pytest.raises(TableError) as caught:
        table.upsert(row(**changed))
    assert message in str(caught.value)
    assert "nothing was written" in str(caught.value)
    assert all_rows(numbers, "k", "id, v") == [(2, "keep")]


@pytest.mark.parametrize(
    "changed",
    [{"id": 3.0}, {"id": "3"}, {"id": Decimal("3.00")}, {"ts": 5.0}, {"p": pd.Timestamp("2026-01-01")}, {"ts": None}],
)
def test_value_that_the_cast_keeps_is_written(numbers, changed):
    numbers.table("k").upsert(row(**changed))
    assert all_rows(numbers, "k", "id, v") == [(2, "keep"), (3, "x")]


@pytest.mark.parametrize(
    "sql",
    [
        "MERGE INTO k USING (SELECT 2.4 id, 'm' v, 5 ts, DATE '2026-01-01' p) s ON k.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        "MERGE INTO k USING (SELECT 2 id, 1.5 ts) s ON k.id = s.id WHEN MATCHED THEN UPDATE SET ts = s.ts + 1",
        "UPDATE k SET ts = 7 / 2",
        "INSERT INTO k VALUES (2.4, 'm', 5, DATE '2026-01-01')",
        "DELETE FROM k WHERE id = (SELECT 2); INSERT INTO k PARTITION (p = TIMESTAMP '2026-01-01 10:00:00') VALUES (2, 'm', 5)",
    ],
)
def test_statements_refuse_such_values(numbers, sql):
    with pytest.raises(TableError, match=r"the cast would change the value .*nothing was written"):
        numbers.sql(sql)
    assert all_rows(numbers, "k", "v, ts") in ([("keep", 1)], [])


def test_value_that_is_new_at_each_call_is_looked_at_once(numbers):
    numbers.sql("CREATE SEQUENCE s START 10; UPDATE k SET ts = nextval('s') * 1.0")
    assert all_rows(numbers, "k", "ts") == [(10,)]


def test_whole_number_too_large_for_a_double_is_no_key_of_one(tmp_path):
    import pyarrow as pa

    table = lakesql.create_table(str(tmp_path / "t"), pa.schema([("id", pa.float64())]), primary_key=["id"])
    table.upsert(pa.table({"id": [2**53, 0.1]}))
    with pytest.raises(TableError, match="would change"):
        table.upsert(pa.table({"id": [2**53 + 1]}))


def test_texts_stay_as_they_are(trips):
    trips.sql("INSERT INTO trips SELECT 5, 1, 1, 2.5")
    assert all_rows(trips) == [("5", 1, 1, "2.5"), *AB]
