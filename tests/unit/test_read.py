"""Reading: projections and filters reach the scans, deltas are computed once, old names are found again."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import lakesql
from lakesql.table import deltas, read, state
from lakesql.table.evolution import Evolution
from tests.zipped import open_zip

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("ts", pa.int64())])


@pytest.fixture
def mor(tmp_path: Path) -> lakesql.Table:
    """Merge-on-Read: ids 0..99, then 5 updated and 6 deleted in the log."""
    table = lakesql.create_table(str(tmp_path / "t"), SCHEMA, type="mor", primary_key=["id"], ordering_fields=["ts"])
    table.insert([{"id": i, "v": i % 7, "ts": 1} for i in range(100)])
    table.upsert([{"id": 5, "v": 99, "ts": 2}])
    table.delete([{"id": 6}])
    return table


def plan_text(con: duckdb.DuckDBPyConnection, sql: str) -> str:
    return str(con.execute(f"EXPLAIN (FORMAT JSON) {sql}").fetchall()[0][1])


def registered() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    lakesql.register(con)
    return con


def test_filters_and_projections_reach_every_parquet_scan(mor: lakesql.Table) -> None:
    text = plan_text(registered(), f"SELECT sum(v) FROM hudi_scan('{mor.path}') WHERE id BETWEEN 3 AND 10")
    scans = [part.split('"children"')[0] for part in text.split("READ_PARQUET")[1:]]
    data = [s for s in scans if "id" in s and "3" in s]
    assert len(data) == 2, text  # the base file and the live log rows
    assert "_hoodie_record_key" not in text
    assert "_hoodie_commit_seqno" not in text


def test_log_update_and_delete_show_in_the_snapshot_only(mor: lakesql.Table) -> None:
    def rows(mode: str) -> set[tuple[int, int]]:
        return {(r["id"], r["v"]) for r in mor.read(mode=mode, columns=["id", "v"]).read_all().to_pylist()}

    assert (5, 99) in rows("snapshot")
    assert all(i != 6 for i, _ in rows("snapshot"))
    assert rows("read_optimized") == {(i, i % 7) for i in range(100)}


def test_a_slice_is_decoded_once(mor: lakesql.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    mor.read().read_all()
    calls = []
    build: Callable[..., object] = deltas._build

    def counted(cur: object, view: object, slices: Sequence[object], identities: object) -> object:
        calls.append(len(slices))
        return build(cur, view, slices, identities)

    monkeypatch.setattr(deltas, "_build", counted)
    mor.read(where="v > 3").read_all()
    assert calls == []
    mor.upsert([{"id": 7, "v": 1, "ts": 3}])
    mor.read().read_all()
    mor.read().read_all()
    assert sum(calls) == 1


def test_only_the_first_of_two_base_rows_with_one_key_is_merged(tmp_path: Path) -> None:
    table = lakesql.create_table(str(tmp_path / "t"), SCHEMA, type="mor", primary_key=["id"], ordering_fields=["ts"])
    table.insert([{"id": 1, "v": 1, "ts": 1}, {"id": 1, "v": 2, "ts": 1}])
    table.upsert([{"id": 1, "v": 3, "ts": 2}])
    values = sorted(r["v"] for r in table.read(columns=["v"]).read_all().to_pylist())
    assert values in ([2, 3], [1, 3])


def test_keys_tell_where_each_record_is(mor: lakesql.Table) -> None:
    con = duckdb.connect()
    sql = read.keys_sql(con, read.plan(mor.state))
    found = {k: (row, live, ts, own) for k, _, row, live, ts, own in con.execute(sql).fetchall()}
    assert len(found) == 100
    assert found["7"][:3] == (7, True, 1)
    assert found["5"][:3] == (None, True, 2)
    assert found["6"] == (None, False, 1, True)  # `own`: the tombstone carries the ordering value of what it removed


def test_as_of_an_instant_gives_the_rows_of_that_instant(mor: lakesql.Table) -> None:
    first = mor.state.timeline.completed_writes()[0].requested
    rows = mor.read(as_of=first, columns=["id", "v"], where="id IN (5, 6)").read_all().to_pylist()
    assert sorted((r["id"], r["v"]) for r in rows) == [(5, 5), (6, 6)]


def test_changes_since_a_commit_leave_out_what_it_wrote(mor: lakesql.Table) -> None:
    first = mor.state.timeline.completed_writes()[0].completed
    assert first is not None
    assert [r["id"] for r in mor.changes(first).read_all().to_pylist()] == [5]
    assert mor.changes("earliest").read_all().num_rows == 99


def test_begin_after_end_is_refused(mor: lakesql.Table) -> None:
    with pytest.raises(lakesql.SQLError, match="is after end"):
        mor.changes("20300101000000000", "20200101000000000")


def test_unknown_mode_is_refused_by_name(mor: lakesql.Table) -> None:
    with pytest.raises(lakesql.SQLError, match="mode 'fast' is unknown; use one of 'snapshot', 'read_optimized'"):
        mor.read(mode="fast")


def test_a_column_dropped_and_added_again_is_another_column() -> None:
    old = {"id": 5, "a": 6}
    evolved = Evolution(((0, old), (20260101000000000, {"id": 5, "a": 7, "b": 6})), {5: "id", 7: "a", 6: "b"})
    assert evolved.names_at("20250101000000000") == {"id": "id", "a": "b"}
    assert evolved.names_at("20270101000000000") == {"id": "id", "a": "a", "b": "b"}


def test_a_table_without_commits_reads_as_no_rows(tmp_path: Path) -> None:
    table = lakesql.create_table(str(tmp_path / "t"), SCHEMA, primary_key=["id"])
    result = table.read().read_all()
    assert result.num_rows == 0
    assert result.column_names[-3:] == ["id", "v", "ts"]


def test_a_folder_that_is_no_table_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(lakesql.TableError, match=r"not a Hudi table, there is no \.hoodie/hoodie\.properties"):
        lakesql.open_table(str(tmp_path))


def test_a_table_in_memory_can_be_looked_at() -> None:
    storage = open_zip("r060_cow_v8_archived")
    assert state.load(storage).name


@pytest.mark.parametrize("pattern", ["*.parquet", ".*.log.*"])
def test_a_lost_file_that_a_commit_names_is_an_error_that_names_it(mor: lakesql.Table, pattern: str) -> None:
    (lost, *_) = sorted(Path(mor.path).glob(pattern))
    lost.unlink()
    with pytest.raises(lakesql.TableError, match=rf"{lost.name}: commit \d+ names this file, and it is not there"):
        mor.read()


def test_clean_files_and_log_rows_are_one_scan_unless_only_some_slices_are_asked_for(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("p", pa.string())])
    table = lakesql.create_table(str(tmp_path / "t"), schema, type="mor", primary_key=["id"], partitioned_by=["p"])
    table.insert([{"id": i, "p": "abc"[i % 3]} for i in range(9)])
    table.upsert([{"id": 0, "p": "a"}, {"id": 1, "p": "b"}])
    found = state.load(table.state.storage)
    with duckdb.connect() as cur:
        whole = read.plan(found)
        text = read.to_sql(cur, whole)
        assert text.count("read_parquet(") == 3  # clean and live together, dirty, dead positions
        assert sorted(r[0] for r in cur.execute(f"SELECT id FROM ({text})").fetchall()) == list(range(9))
        part = replace(whole, slices=tuple(s for s in whole.slices if s.partition.endswith("b")))
        rows = cur.execute(f"SELECT id FROM ({read.to_sql(cur, part)})").fetchall()
        assert sorted(rows) == [(1,), (4,), (7,)]


def test_an_incremental_read_opens_no_base_file_older_than_its_commits(mor: lakesql.Table) -> None:
    base = next(f["base_file"] for f in mor.files().to_pylist())
    inserted = mor.state.timeline.completed_writes()[0].completed
    con = registered()
    sql = f"SELECT id, v FROM hudi_incremental('{mor.path}', begin := '{inserted}')"
    assert con.execute(sql).fetchall() == [(5, 99)]
    now = state.load(mor.state.storage)
    assert base not in read.to_sql(con, read.plan_incremental(now, str(inserted)))
    assert base in read.to_sql(con, read.plan_incremental(now, "earliest"))


def test_a_relation_is_planned_from_the_files_once_and_follows_the_table(
    mor: lakesql.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[object] = []
    plan: Callable[..., read.ReadPlan] = read.plan

    def counted(found: state.TableState) -> read.ReadPlan:
        planned.append(found)
        return plan(found)

    monkeypatch.setattr(read, "plan", counted)
    con = registered()
    sql = f"SELECT v FROM hudi_scan('{mor.path}') WHERE id = 5"
    assert con.sql(sql).fetchall() == [(99,)]
    assert con.sql(sql).fetchall() == [(99,)]
    assert len(planned) == 1
    mor.upsert([{"id": 5, "v": 100, "ts": 3}])
    planned.clear()
    assert con.sql(sql).fetchall() == [(100,)]
    assert len(planned) == 1


def test_a_kept_plan_is_not_used_after_its_deltas_were_dropped(
    mor: lakesql.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    con = registered()
    sql = f"SELECT v FROM hudi_scan('{mor.path}') WHERE id = 5"
    assert con.sql(sql).fetchall() == [(99,)]
    monkeypatch.setattr(deltas, "CACHE_BYTES", 0)
    other = lakesql.create_table(mor.path + "2", SCHEMA, type="mor", primary_key=["id"], ordering_fields=["ts"])
    other.insert([{"id": 1, "v": 1, "ts": 1}])
    other.upsert([{"id": 1, "v": 2, "ts": 2}])
    other.read().read_all()  # makes room by dropping the delta of the first table
    assert con.sql(sql).fetchall() == [(99,)]


def test_columns_that_are_not_read_are_not_decoded_from_the_log(
    mor: lakesql.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[set[str]] = []
    parts: Callable[..., list[object]] = deltas.read_log_parts

    def seen(*given: object) -> list[object]:
        schema = given[3]
        assert isinstance(schema, pa.Schema)
        decoded.append(set(schema.names))
        return parts(*given)

    monkeypatch.setattr(deltas, "read_log_parts", seen)
    deltas._cache.clear()
    some = mor.read(columns=["id", "id"]).read_all()
    assert sorted(some.column(0).to_pylist()) == [i for i in range(100) if i != 6]
    assert decoded == [{"_hoodie_record_key", "id", "ts"}]
    whole = {r["id"]: r for r in mor.read().read_all().to_pylist()}
    assert (whole[5]["v"], len(whole)) == (99, 99)
    mor.read(columns=["v"]).read_all()  # all of the log is known by now
    assert len(decoded) == 2


@pytest.mark.parametrize("column", ["_hoodie_commit_time", "_hoodie_record_key", "_hoodie_partition_path", "v"])
def test_a_filter_on_any_column_reaches_dirty_base_files_and_log_rows(mor: lakesql.Table, column: str) -> None:
    value = "'5'" if column.startswith("_") else "5"
    text = plan_text(registered(), f"SELECT count(*) FROM hudi_scan('{mor.path}') WHERE {column} = {value}")
    scans = [part.split('"children"')[0] for part in text.split("READ_PARQUET")[1:]]
    assert len([s for s in scans if "Filters" in s and column in s]) == 2, text
