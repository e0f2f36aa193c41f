"""Fields that a write adds inside structs, lists and maps, as Apache Hudi on Spark and hudi-rs read and continue them."""

from pathlib import Path

import pyarrow as pa
import pytest

import lakesql
from tests.interop import rust
from tests.interop.spark import SparkHudi

COLUMNS = ["id", "s", "l", "m", "ts"]


def play(folder: Path, kind: str) -> lakesql.Connection:
    """A table whose older files and blocks lack fields that newer ones have."""
    con = lakesql.connect(warehouse=str(folder))
    con.sql(
        "CREATE TABLE t (id STRING, s STRUCT(a INTEGER, n STRUCT(x VARCHAR)), l STRUCT(a INTEGER)[], "
        "m MAP(VARCHAR, STRUCT(a INTEGER)), ts BIGINT) USING hudi "
        f"TBLPROPERTIES (type = '{kind}', primaryKey = 'id', orderingFields = 'ts')"
    )
    con.sql(
        "INSERT INTO t SELECT x, {'a': 1, 'n': {'x': x}}, [{'a': 1}, NULL], MAP {'k': {'a': 1}}, 1 "
        "FROM (VALUES ('a'), ('b'), ('c')) v(x)"
    )
    con.sql("UPDATE t SET s.a = 2, ts = 2 WHERE id = 'b'")
    con.sql("SET lakesql.schema.evolve = true")
    con.sql(
        "MERGE INTO t USING (SELECT 'c' AS id, {'a': 3, 'n': {'x': 'z', 'y': 4::BIGINT}, 'w': [1.5::DOUBLE]} AS s, "
        "[{'a': 5, 'b': {'d': DATE '2026-01-02'}}] AS l, MAP {'k': {'a': 6, 'v': 'v'}} AS m, 3::BIGINT AS ts) q "
        "ON t.id = q.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    con.sql("RESET lakesql.schema.evolve")
    return con


def rows_of(table: pa.Table) -> list[tuple[object, ...]]:
    """The rows by id; a map as a dict."""
    maps = (dict(row["m"]) if row["m"] is not None else None for row in table.to_pylist())
    rows = [row | {"m": m} for row, m in zip(table.to_pylist(), maps, strict=True)]
    return sorted((tuple(row[c] for c in COLUMNS) for row in rows), key=lambda row: str(row[0]))


def ours(folder: Path) -> list[tuple[object, ...]]:
    with lakesql.connect(warehouse=str(folder)) as con:
        return rows_of(con.sql("SELECT * FROM t").to_arrow_table())


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_hudi_rs_reads_fields_that_were_added_inside_columns(kind: str, tmp_path: Path) -> None:
    con = play(tmp_path, kind)
    if kind == "mor":  # a log that has more fields than its base file is refused by hudi-rs, whoever wrote it
        con.sql("CALL run_compaction(op => 'run', table => 't')")
    con.close()
    assert rows_of(rust.read(tmp_path / "t")) == ours(tmp_path)


def test_spark_reads_and_continues_fields_that_were_added_inside_columns(spark120: SparkHudi, tmp_path: Path) -> None:
    path = tmp_path / "t"
    con = play(tmp_path, "mor")
    assert rows_of(spark120.read(path)) == ours(tmp_path)
    spark120.sql(
        "DROP TABLE IF EXISTS t",
        f"CREATE TABLE t USING hudi LOCATION '{path}'",
        "UPDATE t SET s = named_struct('a', 7, 'n', named_struct('x', 'spark', 'y', 8L), 'w', array(2.5D)), ts = 9L "
        "WHERE id = 'a'",
    )
    assert rows_of(spark120.read(path)) == ours(tmp_path)
    con.sql("CALL run_compaction(op => 'run', table => 't')")
    con.close()
    assert rows_of(spark120.read(path, query_type="read_optimized")) == ours(tmp_path)
    assert ours(tmp_path)[0][1] == {"a": 7, "n": {"x": "spark", "y": 8}, "w": [2.5]}
