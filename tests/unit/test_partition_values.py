"""A filter on a partition column opens the files of its partitions, and gives the rows that it gave before."""

import re
from pathlib import Path

import pyarrow as pa
import pytest

import lakesql
from lakesql.format.metadata import CommitMetadata, WriteStat
from lakesql.table import partition_values, read
from lakesql.table.partition_values import BY_PATH, FILES_MIN, TOLD, told
from lakesql.table.state import TableState

DAYS = 2 * FILES_MIN
FILL = f"INSERT INTO t SELECT i, 'v' || i, 1, DATE '2024-01-01' + (i % {DAYS})::INTEGER FROM range(10 * {DAYS}) r(i)"
ONE_DAY = "SELECT id, v, day::VARCHAR FROM t WHERE day = DATE '2024-01-05' ORDER BY id"


def made(con: lakesql.Connection, kind: str = "cow", column: str = "day DATE", **more: str) -> None:
    given = {"type": kind, "primaryKey": "id", "preCombineField": "ts", **more}
    options = ", ".join(f"{key} = '{value}'" for key, value in given.items())
    name = column.split()[0]
    con.sql(
        f"CREATE TABLE t (id BIGINT, v VARCHAR, ts BIGINT, {column}) USING hudi PARTITIONED BY ({name}) TBLPROPERTIES ({options})"
    )


def files_read(con: lakesql.Connection, sql: str) -> int:
    """How many files the scans of a statement opened to read rows."""
    text = con.execute("EXPLAIN ANALYZE " + sql).fetchall()[0][1]
    return sum(map(int, re.findall(r"Total Files Read: (\d+)", text)))


def prunes(con: lakesql.Connection) -> bool:
    """Whether this DuckDB leaves out files by a condition on `filename` alone; older ones only know columns of paths."""
    path = con.table("t").path
    return (
        files_read(
            con, f"SELECT count(*) FROM read_parquet('{path}/*/*.parquet') WHERE split_part(filename, '/', 1) = 'x'"
        )
        == 0
    )


@pytest.fixture
def con(tmp_path: Path):
    with lakesql.connect(warehouse=tmp_path) as found:
        yield found


def state_of(con: lakesql.Connection) -> TableState:
    return con.table("t").state


def all_told(con: lakesql.Connection) -> set[bool]:
    state = state_of(con)
    return set(told(state, [s.base for s in state.slices() if s.base is not None]))


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_a_filter_opens_the_files_of_its_partition_after_every_kind_of_write(con, kind):
    made(con, kind)
    con.sql(FILL)
    expected = [(i, f"v{i}", "2024-01-05") for i in range(4, 10 * DAYS, DAYS)]
    assert con.execute(ONE_DAY).fetchall() == expected
    con.sql("UPDATE t SET v = 'new' WHERE id = 4")
    con.sql("DELETE FROM t WHERE id = 4 + 64")
    expected = [(4, "new", "2024-01-05"), *expected[2:]]
    assert con.execute(ONE_DAY).fetchall() == expected
    con.table("t").compact() if kind == "mor" else con.table("t").cluster()
    assert con.execute(ONE_DAY).fetchall() == expected
    assert all_told(con) == {True}
    assert con.execute("SELECT count(*), count(DISTINCT day), min(day)::VARCHAR FROM t").fetchone() == (
        10 * DAYS - 1,
        DAYS,
        "2024-01-01",
    )
    if prunes(con):
        assert files_read(con, ONE_DAY) == 1
        assert files_read(con, "SELECT count(v) FROM t WHERE day >= DATE '2024-01-03' AND day < DATE '2024-01-05'") == 2


@pytest.mark.parametrize(
    ("column", "value", "condition", "found"),
    [
        ("p VARCHAR", "CASE WHEN i % 64 = 3 THEN NULL ELSE 'k' || (i % 64) END", "p IS NULL", 10),
        ("p VARCHAR", "CASE WHEN i % 64 = 3 THEN '' ELSE 'k' || (i % 64) END", "p = ''", 10),
        ("p VARCHAR", "'é*' || (i % 64)", "p = 'é*7'", 10),
        ("p VARCHAR", "'é ' || (i % 64)", "p = 'é 7'", 10),
        ("p VARCHAR", "'a/' || (i % 64)", "p = 'a/7'", 10),
        ("p BIGINT", "(i % 64) - 32", "p = -7", 10),
        ("p DOUBLE", "(i % 64) / 4.0", "p = 1.25", 10),
        ("p BOOLEAN", "i % 64 < 10", "p", 100),
    ],
)
@pytest.mark.parametrize("url_encode", ["false", "true"])
def test_values_that_paths_do_not_spell_are_read_from_the_files(con, column, value, condition, found, url_encode):
    made(con, "cow", column, **{"hoodie.datasource.write.partitionpath.urlencode": url_encode})
    con.sql(f"INSERT INTO t SELECT i, 'v', 1, {value} FROM range(640) r(i)")
    assert con.execute(f"SELECT count(*), count(DISTINCT id) FROM t WHERE {condition}").fetchone() == (found, found)
    assert con.execute("SELECT count(*) FROM t").fetchone() == (640,)
    rows = con.execute(
        f"SELECT id, p FROM t EXCEPT SELECT i, ({value})::{column.split()[1]} FROM range(640) r(i)"
    ).fetchall()
    assert rows == []


def test_a_row_that_a_global_index_left_in_its_old_partition_keeps_its_new_value(con):
    more = {"hoodie.index.type": "GLOBAL_SIMPLE", "hoodie.simple.index.update.partition.path": "false"}
    made(con, "cow", **more)
    con.sql(FILL)
    assert all_told(con) == {True}
    rows = pa.table({"id": [4], "v": ["moved"], "ts": [2], "day": pa.array(["2024-01-09"]).cast(pa.date32())})
    con.table("t").upsert(rows, **more)
    sql = "SELECT id, v, day::VARCHAR, _hoodie_partition_path FROM t WHERE day = DATE '2024-01-09' AND id = 4"
    assert all_told(con) == {True, False}
    assert con.execute(sql).fetchall() == [(4, "moved", "2024-01-09", "day=2024-01-05")]
    con.sql("UPDATE t SET v = 'again' WHERE id = 4")  # an old file with such a row is taken over
    assert con.execute(sql).fetchall() == [(4, "again", "2024-01-09", "day=2024-01-05")]
    assert all_told(con) == {True, False}


def test_commits_of_other_engines_are_believed_for_new_file_groups_of_inserts_only():
    def commit(operation: str, previous: str | None, **extra: str) -> CommitMetadata:
        return CommitMetadata({"p": (WriteStat(file_id="f", prev_commit=previous),)}, operation, extra)

    known = partition_values._told_of
    assert known(commit("BULK_INSERT", "null")) == {"f"}
    assert known(commit("insert", "null")) == {"f"}
    assert known(commit("insert", "20240101000000000")) == frozenset()
    assert not known(commit("UPSERT", "null"))
    assert not known(commit("CLUSTER", "null"))
    assert known(commit("UPSERT", "20240101000000000", **{TOLD: BY_PATH})) is True


def test_with_few_files_the_scan_stays_one(con):
    made(con)
    con.sql("INSERT INTO t SELECT i, 'v', 1, DATE '2024-01-01' + i::INTEGER FROM range(5) r(i)")
    state = state_of(con)
    assert "filename" not in read.to_sql(con.duckdb.cursor(), read.plan(state))
