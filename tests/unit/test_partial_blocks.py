"""Log blocks with only the changed columns (IS_PARTIAL): which statements write them, what is in them, and that they
read as full rows do."""

import json

import pytest

from lakesql.format import log
from lakesql.format.avro import META_COLUMNS
from lakesql.storage import LocalStorage
from lakesql.table import read
from lakesql.table.state import load
from lakesql.write import tag
from tests.sql_tables import all_rows

COLUMNS = "id, a, b, c, ts, city"
PARTIAL = "SET hoodie.spark.sql.merge.into.partial.updates = true"
STATEMENTS = (
    "UPDATE t SET a = a + 1 WHERE id <> 'c'",
    "MERGE INTO t USING (VALUES ('a', 'n', 11), ('c', 'm', 12), ('d', 'new', 1)) s(id, b, ts) ON t.id = s.id "
    "WHEN MATCHED AND s.id = 'a' THEN UPDATE SET b = s.b, ts = s.ts WHEN MATCHED THEN UPDATE SET c = s.b "
    "WHEN NOT MATCHED THEN INSERT (id, b, ts, city) VALUES (s.id, s.b, s.ts, 'sf')",
    "UPDATE t SET c = NULL, ts = ts + 1 WHERE id <> 'b'",
    "DELETE FROM t WHERE id = 'b'",
    "INSERT INTO t VALUES ('b', 9, 'back', 'c', 30, 'sf')",
    "UPDATE t SET b = b || '!' WHERE city = 'sf'",
    "UPDATE t SET city = 'la' WHERE id = 'a'",
    "UPDATE t SET a = 5, ts = 1 WHERE id = 'c'",
)


def make(con, name="t", version=9, mode="EVENT_TIME_ORDERING"):
    con.sql(
        f"CREATE TABLE {name} (id STRING, a BIGINT, b STRING, c STRING, ts BIGINT, city STRING) USING hudi PARTITIONED BY "
        f"(city) TBLPROPERTIES (type = 'mor', primaryKey = 'id', orderingFields = 'ts', recordMergeMode = '{mode}', "
        f"'hoodie.table.version' = '{version}')"
    )
    con.sql(
        f"INSERT INTO {name} VALUES ('a', 1, 'x', 'c', 10, 'sf'), ('b', 2, 'y', 'd', 10, 'sf'), ('c', 3, 'z', 'e', 10, 'ny')"
    )


def blocks(tmp_path, name="t"):
    """(partial, columns without meta columns; None for deletes) of the blocks of the newest log file of each slice."""
    state = load(LocalStorage(str(tmp_path / "lake" / name)))
    found = []
    for one in read.plan(state).slices:
        for block in log.scan_blocks(state.storage.read(one.logs[-1].path), "log") if one.logs else ():
            names = [f["name"] for f in json.loads(block.headers[log.SCHEMA])["fields"]]
            assert names[:5] == list(META_COLUMNS)
            columns = names[5:] if block.kind == log.AVRO else None
            found.append((block.headers.get(log.IS_PARTIAL, ""), columns))
    return sorted(found, key=repr)


ALL = ["id", "a", "b", "c", "ts", "city"]


def test_blocks_are_full_unless_they_are_asked_for(con, tmp_path):
    make(con)
    con.sql("UPDATE t SET a = 5 WHERE id = 'a'")
    assert blocks(tmp_path) == [("", ALL)]


@pytest.mark.parametrize("version", [9, 8])
def test_block_has_the_assigned_columns_and_the_ordering_field(con, tmp_path, version):
    make(con, version=version)
    con.sql(PARTIAL)
    con.sql("UPDATE t SET b = 'new' WHERE id = 'a'")
    assert blocks(tmp_path) == [("true", ["b", "ts"])]
    assert all_rows(con, "t", COLUMNS)[0] == ("a", 1, "new", "c", 10, "sf")


def test_columns_of_all_clauses_are_in_one_block(con, tmp_path):
    make(con)
    con.sql(PARTIAL)
    con.sql(
        "MERGE INTO t USING (VALUES ('a', 7), ('b', 8)) s(id, v) ON t.id = s.id "
        "WHEN MATCHED AND s.id = 'a' THEN UPDATE SET a = s.v WHEN MATCHED THEN UPDATE SET c = 'v8'"
    )
    assert blocks(tmp_path) == [("true", ["a", "c", "ts"])]
    assert all_rows(con, "t", COLUMNS)[:2] == [("a", 7, "x", "c", 10, "sf"), ("b", 2, "y", "v8", 10, "sf")]


def test_rows_that_come_back_and_deletes_stand_beside_in_full(con, tmp_path):
    make(con)
    con.sql(PARTIAL)
    con.sql("DELETE FROM t WHERE id = 'b'")
    con.sql(
        "MERGE INTO t USING (VALUES ('a', 7, 20), ('b', 8, 20)) s(id, a, ts) ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET a = s.a "
        "WHEN NOT MATCHED THEN INSERT (id, a, ts, city) VALUES (s.id, s.a, s.ts, 'sf')"
    )
    assert blocks(tmp_path) == [("", ALL), ("true", ["a", "ts"])]
    con.sql(
        "MERGE INTO t USING (VALUES ('a'), ('b')) s(id) ON t.id = s.id "
        "WHEN MATCHED AND s.id = 'a' THEN DELETE WHEN MATCHED THEN UPDATE SET c = 'kept'"
    )
    assert blocks(tmp_path) == [("", None), ("true", ["c", "ts"])]
    assert all_rows(con, "t", COLUMNS)[0] == ("b", 8, None, "kept", 20, "sf")


def test_update_of_every_column_is_a_full_block(con, tmp_path):
    make(con)
    con.sql(PARTIAL)
    con.sql(
        "MERGE INTO t USING (VALUES ('a', 7, 'q', 'q', 20, 'sf')) s(id, a, b, c, ts, city) ON t.id = s.id AND "
        "t.city = s.city WHEN MATCHED THEN UPDATE SET *"
    )
    assert blocks(tmp_path) == [("", ALL)]


@pytest.mark.parametrize("version", [9, 8])
def test_commit_time_tables_get_full_rows(con, tmp_path, version):
    make(con, version=version, mode="COMMIT_TIME_ORDERING")
    con.sql(PARTIAL)
    con.sql("UPDATE t SET a = 5 WHERE id = 'a'")
    assert blocks(tmp_path) == [("", ALL)]


def test_version_6_gets_full_rows(con, tmp_path):
    make(con, version=6)
    con.sql(PARTIAL)
    con.sql("UPDATE t SET a = 5 WHERE id = 'a'")
    assert blocks(tmp_path) == [("", ALL)]


def test_plain_upsert_writes_full_rows(con, tmp_path):
    make(con)
    con.sql(PARTIAL)
    con.sql("SET hoodie.spark.sql.insert.into.operation = 'upsert'")
    con.sql("INSERT INTO t VALUES ('a', 9, 'x', 'c', 20, 'sf')")
    assert blocks(tmp_path) == [("", ALL)]


@pytest.mark.parametrize("version", [9, 8])
def test_rows_are_those_of_full_blocks_after_every_statement(con, version):
    make(con, "t", version)
    make(con, "u", version)
    con.sql("SET hoodie.spark.sql.insert.into.operation = 'upsert'")
    for statement in STATEMENTS:
        con.sql(PARTIAL)
        con.sql(statement)
        counts = con.last_result.rows_updated, con.last_result.rows_inserted, con.last_result.rows_ignored
        con.sql("RESET hoodie.spark.sql.merge.into.partial.updates")
        con.sql(statement.replace(" t ", " u ").replace("t.id", "u.id"))
        other = con.last_result.rows_updated, con.last_result.rows_inserted, con.last_result.rows_ignored
        assert counts == other, statement
        assert all_rows(con, "t", COLUMNS) == all_rows(con, "u", COLUMNS), statement


def test_slice_with_a_late_record_in_its_log_gets_full_rows(con, tmp_path, monkeypatch):
    """A reader would fill the row from the record that lost, not from the base row."""
    make(con)
    con.sql(PARTIAL)
    con.sql("SET hoodie.spark.sql.insert.into.operation = 'upsert'")
    with monkeypatch.context() as patch:  # as Spark writes: late rows go to the log
        patch.setattr(tag, "_late", lambda *_: "false")
        con.sql("INSERT INTO t VALUES ('a', 99, 'late', 'late', 5, 'sf')")
    assert all_rows(con, "t", COLUMNS)[0] == ("a", 1, "x", "c", 10, "sf")
    con.sql("UPDATE t SET a = 2 WHERE id = 'a'")
    assert blocks(tmp_path) == [("", ALL)]
    assert all_rows(con, "t", COLUMNS)[0] == ("a", 2, "x", "c", 10, "sf")
    con.sql("UPDATE t SET a = 3 WHERE id = 'a'")
    assert blocks(tmp_path) == [("true", ["a", "ts"])]
    assert all_rows(con, "t", COLUMNS)[0] == ("a", 3, "x", "c", 10, "sf")
