"""The locks of other writers: taken with ours, or refused unless a lock object is given; requests of a statement."""

import contextlib
import json
from pathlib import Path

import pyarrow as pa
import pytest

import lakesql
from lakesql.stores.lock import Claim
from lakesql.write.locks import PROVIDER

ROWS = pa.table({"id": [1], "v": ["a"]})
WAIT = {"hoodie.write.lock.wait_time_ms": "0", "lakesql.write.retries": "0"}


def made(path, provider: str | None = None, **more) -> lakesql.Table:
    properties = {PROVIDER: f"org.apache.hudi.x.{provider}"} if provider else {}
    schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
    return lakesql.create_table(str(path), schema, primary_key=["id"], properties=properties, **more)


@pytest.mark.parametrize(
    "provider", ["ZookeeperBasedLockProvider", "DynamoDBBasedLockProvider", "HiveMetastoreBasedLockProvider", "Other"]
)
def test_a_lock_that_we_cannot_take_is_refused_before_anything_is_written(tmp_path, provider) -> None:
    table = made(tmp_path / "t", provider)
    with pytest.raises(lakesql.Unsupported, match=rf"{provider}.*Nothing was written\. Pass a lock object"):
        table.upsert(ROWS)
    assert table.read().read_all().num_rows == 0
    assert not table.state.timeline.instants


def test_a_lock_object_stands_in_for_it(tmp_path) -> None:
    made(tmp_path / "t", "ZookeeperBasedLockProvider")
    seen: list[object] = []

    @contextlib.contextmanager
    def lock(path, wait_s):
        seen.append((path, wait_s))
        yield
        seen.append("given back")

    table = lakesql.open_table(tmp_path / "t", lock=lock)
    table.upsert(ROWS)
    assert seen[:2] == [(table.path, 60.0), "given back"]


def test_a_lock_object_that_fails_is_a_conflict(tmp_path) -> None:
    def lock(path, wait_s):
        raise TimeoutError(f"{path} {wait_s}")

    made(tmp_path / "t")
    with pytest.raises(lakesql.CommitConflict, match="did not lock within"):
        lakesql.open_table(tmp_path / "t", lock=lock).upsert(ROWS, **{"lakesql.write.retries": "0"})


def test_a_lock_object_of_a_connection_serves_its_statements(tmp_path) -> None:
    seen: list[str] = []

    @contextlib.contextmanager
    def lock(path, _):
        seen.append(path)
        yield

    with lakesql.connect(warehouse=tmp_path, lock=lock) as con:
        con.execute("CREATE TABLE t (id BIGINT) USING hudi TBLPROPERTIES (primaryKey='id')")
        con.execute("INSERT INTO t VALUES (1)")
    assert set(seen) == {str(tmp_path / "t")}


def test_the_storage_based_lock_is_taken_on_a_local_disk_too(tmp_path) -> None:
    table = made(tmp_path / "t", "StorageBasedLockProvider")
    table.upsert(ROWS)
    file = Path(table.path, ".hoodie/.locks/table_lock.json")
    assert json.loads(file.read_text())["expired"] is True
    file.write_bytes(Claim("spark", 1 << 50).encode())
    with pytest.raises(lakesql.CommitConflict, match="held by spark"):
        table.upsert(ROWS, **WAIT)


def test_the_lock_file_of_the_file_system_provider_is_there_only_while_we_write(tmp_path) -> None:
    table = made(tmp_path / "t", "FileSystemBasedLockProvider")
    table.upsert(ROWS)
    file = Path(table.path, ".hoodie/lock")
    assert not file.exists()
    file.write_text("")
    with pytest.raises(lakesql.CommitConflict, match=r"\.hoodie/lock was there"):
        table.upsert(ROWS, **WAIT)
    file.write_text(json.dumps({"owner": "lakesql", "table": table.path}))  # left by one of ours that died
    table.upsert(ROWS, **WAIT)


def test_on_a_store_the_table_is_locked_as_hudi_does() -> None:
    table = made("memory://providers/t")
    result = table.upsert(ROWS)
    assert result.requests == sum(result.requests_by_kind.values())
    assert result.bytes_sent > 0
    storage = table.state.storage
    assert json.loads(storage.read(".hoodie/.locks/table_lock.json"))["expired"] is True
    storage.put(".hoodie/.locks/table_lock.json", Claim("spark", 1 << 50).encode())
    with pytest.raises(lakesql.CommitConflict, match="held by spark"):
        table.upsert(ROWS, **WAIT)


def test_a_statement_over_its_budget_leaves_nothing() -> None:
    with lakesql.connect(warehouse="memory://budget/w", config={"lakesql.requests.budget": 200}) as con:
        con.execute("CREATE TABLE t (id BIGINT, v VARCHAR) USING hudi TBLPROPERTIES (primaryKey='id')")
        con.execute("INSERT INTO t VALUES (1, 'a')")
        storage = con.table("t").state.storage
        asked = con.last_requests.total
        before = {f.path for f in storage.listed("")}
        for budget in range(asked + 1):
            con.execute(f"SET lakesql.requests.budget = {budget}")
            try:
                con.execute("INSERT INTO t VALUES (2, 'b')")
            except lakesql.OverBudget:
                assert {f.path for f in storage.listed("")} == before
            else:
                break
        assert 5 < budget <= asked
        con.execute("SET lakesql.requests.budget = 0")
        with pytest.raises(lakesql.OverBudget, match="had made"):
            con.execute("SELECT * FROM t").fetchall()
        con.execute("RESET lakesql.requests.budget")
        assert con.execute("SELECT count(*) FROM t").fetchone() == (2,)
