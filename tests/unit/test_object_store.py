"""Tables in object stores: in the memory of the process, and over HTTP against moto."""

import os
from collections.abc import Iterator
from pathlib import Path

import boto3
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer

import lakesql
from lakesql.errors import FileGone, SQLError, TableError
from lakesql.procedures.doctor import examine
from lakesql.storage import open_storage
from lakesql.stores import files as object_file
from lakesql.stores import settings as store_settings
from lakesql.stores.objects import ObjectStorage, place_of
from lakesql.stores.settings import Secret, Stores, access
from lakesql.table.damaged import damage

AWS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_ENDPOINT_URL",
    "AWS_REGION",
    "AWS_PROFILE",
    "AWS_SKIP_SIGNATURE",
)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    running = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    address = f"http://{host}:{port}"
    client = boto3.client(
        "s3", endpoint_url=address, aws_access_key_id="k", aws_secret_access_key="s", region_name="us-east-1"
    )
    client.create_bucket(Bucket="bucket")
    yield address
    running.stop()


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


@pytest.fixture
def lake(tmp_path: Path) -> str:
    return f"memory://{tmp_path.name}/lake"


# ---------------------------------------------------------------- tables
@pytest.mark.parametrize(("kind", "version"), [("cow", 9), ("mor", 9), ("mor", 6)])
def test_a_table_lives_in_a_bucket(lake: str, kind: str, version: int) -> None:
    with lakesql.connect(warehouse=lake) as con:
        con.execute(
            f"CREATE TABLE t (id bigint, v varchar, d varchar) USING hudi PARTITIONED BY (d) "
            f"TBLPROPERTIES (primaryKey = 'id', type = '{kind}', 'hoodie.table.version' = '{version}')"
        )
        first = con.execute("INSERT INTO t SELECT i, 'v' || i, 'd' || i % 2 FROM range(100) r(i)").fetchall()[0][0]
        con.execute("UPDATE t SET v = 'new' WHERE id = 5")
        con.execute("DELETE FROM t WHERE id = 6")
        con.execute(
            "MERGE INTO t USING (SELECT 7 AS id, 'm' AS v, 'd1' AS d) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET v = s.v"
        )
        assert con.execute("SELECT count(*), sum(id) FROM t").fetchall() == [(99, 4944)]
        assert con.execute("SELECT v FROM t WHERE id IN (5, 7) ORDER BY id").fetchall() == [("new",), ("m",)]
        assert con.execute(f"SELECT count(*) FROM hudi_scan('t', as_of := '{first}')").fetchall() == [(100,)]
        assert con.execute(f"SELECT id FROM hudi_incremental('t', '{first}') ORDER BY id").fetchall()[:1] == [(5,)]
        if kind == "mor":
            con.execute("CALL run_compaction(op => 'run', table => 't')")
            assert con.execute("SELECT count(*) FROM hudi_read_optimized('t')").fetchall() == [(99,)]
        con.execute("CALL run_clustering(table => 't')")
        con.execute("CALL run_clean(table => 't')")
        assert con.execute("SELECT count(*), sum(id) FROM t").fetchall() == [(99, 4944)]
        names = [name for (name,) in con.execute("SHOW TABLES").fetchall()]
        assert "t" in names
    table = lakesql.open_table(f"{lake}/t")
    assert table.path == f"{lake}/t"
    assert table.read(columns=["id"]).read_all().num_rows == 99
    table.upsert(pa.table({"id": [5], "v": ["handle"], "d": ["d1"]}))
    assert table.read(where="id = 5").read_all()["v"].to_pylist() == ["handle"]


def test_the_table_functions_read_buckets_on_a_connection_of_the_user(lake: str) -> None:
    with lakesql.connect() as con:
        con.execute(f"CREATE TABLE t (id bigint) USING hudi LOCATION '{lake}/elsewhere/t'")
        con.execute("INSERT INTO t VALUES (1), (2)")
    with duckdb.connect() as plain:
        lakesql.register(plain)
        assert plain.sql(f"SELECT sum(id) FROM hudi_snapshot('{lake}/elsewhere/t')").fetchall() == [(3,)]


def test_a_table_is_made_of_a_query_and_moved_between_a_bucket_and_a_disk(lake: str, tmp_path: Path) -> None:
    with lakesql.connect(warehouse=lake) as con:
        con.execute(
            "CREATE TABLE t USING hudi TBLPROPERTIES (primaryKey = 'id') AS SELECT i AS id, 'é' AS v FROM range(3) r(i)"
        )
        con.execute(
            f"CREATE TABLE d USING hudi LOCATION '{tmp_path}/d' AS SELECT * EXCLUDE (v) FROM (SELECT id, v FROM t)"
        )
        assert con.execute("SELECT sum(d.id), count(*) FROM d JOIN t USING (id)").fetchall() == [(3, 3)]
        con.execute("DROP TABLE t PURGE")
        assert not open_storage(f"{lake}/t").listed("")


def test_procedures_look_into_buckets(lake: str) -> None:
    with lakesql.connect(warehouse=lake) as con:
        con.execute("CREATE TABLE t (id bigint) USING hudi TBLPROPERTIES (primaryKey = 'id')")
        con.execute("INSERT INTO t SELECT * FROM range(10)")
        assert con.execute("CALL show_invalid_parquet(path => '" + lake + "/t')").fetchall() == []
        assert con.execute("CALL doctor(table => 't')").fetchall() is not None


def test_a_filter_on_the_partition_opens_the_files_of_that_partition(lake: str) -> None:
    with lakesql.connect(warehouse=lake) as con:
        con.execute("CREATE TABLE t (id bigint, d int) USING hudi PARTITIONED BY (d)")
        con.execute("INSERT INTO t SELECT i, i % 40 FROM range(400) r(i)")
        storage = con._session.instance.storage("t")
        assert isinstance(storage, ObjectStorage)
        con.execute("SELECT 1 FROM t LIMIT 0")
        before = storage.requests["get"]
        assert con.execute("SELECT count(*) FROM t WHERE d = 17").fetchall() == [(10,)]
        assert storage.requests["get"] - before < 12


def test_footers_are_fetched_once_for_the_identity_of_their_file(lake: str) -> None:
    with lakesql.connect(warehouse=lake) as con:
        con.execute("CREATE TABLE t (id bigint) USING hudi")
        con.execute("INSERT INTO t SELECT * FROM range(100)")
        assert con.execute("SELECT sum(id) FROM t").fetchall() == [(4950,)]
        storage = con._session.instance.storage("t")
        before = storage.requests.copy()
        assert con.execute("SELECT sum(id) FROM t").fetchall() == [(4950,)]
        made = storage.requests - before
        assert made.keys() <= {"get", "list"}
        assert made["get"] <= 2  # hoodie.properties, once for each look


def test_a_base_file_that_went_is_told_with_its_address(lake: str) -> None:
    storage, name = open_storage(lake), "dfb9989e-3473-4372-890f-0bfa6eaca666-0_0-0-1_20261201034037749.parquet"
    with duckdb.connect() as con:
        storage.attach(con)
        storage.attach(con)
        with pytest.raises(Exception, match="No such file") as caught:
            con.sql(f"SELECT * FROM read_parquet('{storage.data_path(f'p/{name}')}')").fetchall()
    found = damage(caught.value, ())
    assert isinstance(found, FileGone)
    assert str(found).startswith(f"{lake}/p/{name}: the base file is gone")


# ---------------------------------------------------------------- files
def test_a_file_is_read_in_few_requests(lake: str) -> None:
    storage = open_storage(lake)
    table = pa.table({"a": pa.array(range(600_000), pa.int64()), "b": [f"text {i}" for i in range(600_000)]})
    sink = storage.sink("big.parquet")
    pq.write_table(table, sink.target, row_group_size=100_000, compression="none")
    size = sink.close()
    assert size > 2 * object_file.WHOLE_BYTES
    assert storage.requests["put"] > 2  # in parts
    storage.listed("")
    before = storage.requests["get"]
    assert pq.read_table(storage.source("big.parquet")).equals(table)
    assert storage.requests["get"] - before < 30
    before, read = storage.requests["get"], storage.bytes_read
    assert pq.read_metadata(storage.source("big.parquet")).num_rows == 600_000
    assert (storage.requests["get"], storage.bytes_read) == (before, read)


def test_an_upload_that_is_given_up_leaves_nothing(lake: str) -> None:
    storage = open_storage(lake)
    sink = storage.sink("big")
    sink.target.write(bytes(3 * object_file.PART_BYTES))
    sink.abort()
    sink.abort()
    assert storage.stat("big") is None


def test_files_read_in_order_are_fetched_ahead() -> None:
    fetched: list[str] = []
    ahead = object_file.Ahead(fetched.append, lambda function, one: function(one))
    names = [f"f{n}" for n in range(100)]
    ahead.expect(names)
    for name in names[:6]:
        ahead.touched(name)
    assert fetched[:3] == ["f1", "f2", "f3"]
    assert len(fetched) == len(set(fetched)) > 30
    fetched.clear()
    ahead.expect(names)
    for name in ("f10", "f50", "f90"):
        ahead.touched(name)
    assert len(fetched) <= 3


def test_listings_of_many_pages_jump_over_what_is_left_out(lake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakesql.stores.objects.PAGE", 10)
    storage = open_storage(lake)
    for number in range(35):
        storage.put(f".hoodie/timeline/{number:03d}", b"")
        storage.put(f"p/f{number:03d}", b"1")
    storage.put("-before", b"1")
    storage.requests.clear()
    found = [f.path for f in storage.listed("", lambda folder: folder == ".hoodie")]
    assert found == ["-before", *(f"p/f{n:03d}" for n in range(35))]
    assert storage.requests["list"] <= 5
    storage.delete_tree("p")
    assert [f.path for f in storage.listed("", lambda folder: folder == ".hoodie")] == ["-before"]


def test_objects_that_stand_for_folders_are_no_files(server: str) -> None:
    client = boto3.client(
        "s3", endpoint_url=server, aws_access_key_id="k", aws_secret_access_key="s", region_name="us-east-1"
    )
    for key in ("m/", "m/p/", "m/p/f"):
        client.put_object(Bucket="bucket", Key=key, Body=b"1" if key.endswith("f") else b"")
    with store_settings.chosen(_stores(server)):
        storage = open_storage("s3://bucket/m")
    assert [f.path for f in storage.listed("")] == ["p/f"]
    assert storage.list("") == ([], ["p"])
    assert [f.path for f in storage.list("p")[0]] == ["p/f"]


# ---------------------------------------------------------------- over HTTP
def _stores(server: str) -> Stores:
    values = {"KEY_ID": "k", "SECRET": "geheim", "REGION": "us-east-1", "ENDPOINT": server}
    return Stores(secrets={"m": Secret("m", "s3", (), values)})


def test_a_table_in_s3_with_a_secret_of_the_connection(server: str) -> None:
    host = server.removeprefix("http://")
    with lakesql.connect() as con:
        con.execute(
            f"CREATE SECRET m (TYPE s3, KEY_ID 'k', SECRET 'geheim', REGION 'us-east-1', ENDPOINT '{host}', USE_SSL false, "
            "URL_STYLE 'path', SCOPE 's3://bucket')"
        )
        con.execute(
            "CREATE TABLE t (id bigint, v varchar) USING hudi LOCATION 's3://bucket/lake/t' TBLPROPERTIES (primaryKey = 'id')"
        )
        con.execute("INSERT INTO t SELECT i, repeat('x', i % 50) FROM range(1000) r(i)")
        con.execute("UPDATE t SET v = 'é' WHERE id = 1")
        assert con.execute("SELECT count(*), max(v) FROM hudi_snapshot('s3a://bucket/lake/t')").fetchall() == [
            (1000, "é")
        ]
        assert "geheim" not in repr(con._session.instance.stores) + repr(con._session.instance.storage("t"))
        con.execute("DROP SECRET m")
        with pytest.raises(TableError):
            con.execute("SELECT count(*) FROM hudi_snapshot('s3://bucket/lake/t')")


def test_a_warehouse_in_s3_by_settings_and_environment(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    config = {"lakesql.store.endpoint": server, "lakesql.store.region": "us-east-1", "threads": "2"}
    with lakesql.connect(warehouse="s3://bucket/house", config=config) as con:
        con.execute("CREATE TABLE t (id bigint) USING hudi")
        con.execute("INSERT INTO t VALUES (1)")
        assert con.tables == {"t": "s3://bucket/house/t"}
    assert lakesql.open_table("s3://bucket/house/t", config=config).read().read_all().num_rows == 1
    with pytest.raises(TableError, match="There is no such bucket"):
        lakesql.open_table("s3://nobody/t", config=config)


# ---------------------------------------------------------------- addresses and credentials
@pytest.mark.parametrize("address", ["s3://key:geheim@bucket/t", "s3://bucket/t?secret=geheim", "s3://geheim@bucket"])
def test_a_key_in_an_address_is_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(TableError) as caught:
        open_storage(address)
    assert "geheim" not in str(caught.value)


def test_addresses_are_taken_apart() -> None:
    assert place_of("s3a://b/a//c/").uri == "s3://b/a/c"
    azure = place_of("abfss://container@account.dfs.core.windows.net/t")
    assert (azure.scheme, azure.bucket, azure.account, azure.prefix) == ("az", "container", "account", "t")
    for wrong in ("s3:///t", "s3://b/../t"):
        with pytest.raises(TableError):
            place_of(wrong)


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("CREATE SECRET (TYPE s3, KEY_ID 'geheim' SECRET 'geheim')", "is the form"),
        ("CREATE SECRET (TYPE s3, PASSWORT 'geheim')", "has no option PASSWORT"),
        ("CREATE PERSISTENT SECRET (TYPE s3, SECRET 'geheim')", "PERSISTENT"),
    ],
)
def test_a_secret_that_is_refused_is_not_shown(statement: str, error: str) -> None:
    with lakesql.connect() as con, pytest.raises(SQLError, match=error) as caught:
        con.execute(statement)
    assert "geheim" not in str(caught.value)


def test_secrets_of_other_kinds_are_duckdb_s() -> None:
    with lakesql.connect() as con:
        con.execute("CREATE SECRET h (TYPE http, BEARER_TOKEN 'x')")
        assert con.execute("SELECT name FROM duckdb_secrets()").fetchall() == [("h",)]
        con.execute("DROP SECRET h")
        assert con.execute("SELECT name FROM duckdb_secrets()").fetchall() == []


def test_the_secret_with_the_longest_scope_counts() -> None:
    stores = Stores()
    for name, scope in (("all", ()), ("one", ("s3://b/",)), ("deep", ("s3://b/x/",))):
        stores.secrets[name] = Secret(name, "s3", scope, {"KEY_ID": name, "SECRET": "s"})
    with store_settings.chosen(stores):
        assert access("s3", "c", "s3://c/t").config["access_key_id"] == "all"
        assert access("s3", "b", "s3://b").config["access_key_id"] == "one"
        assert access("s3", "b", "s3://b/x/t").config["access_key_id"] == "deep"


def test_profiles_are_read_where_the_environment_is_silent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "config").write_text(
        "[default]\nregion = eu-west-1\n[profile other]\nregion = us-west-2\nendpoint_url = http://h:1\n"
    )
    (tmp_path / "credentials").write_text(
        "[default]\naws_access_key_id = d\naws_secret_access_key = s\n[other]\naws_access_key_id = o\naws_secret_access_key = s\n"
    )
    found = access("s3", "b", "s3://b")
    assert (found.config["access_key_id"], found.config["region"]) == ("d", "eu-west-1")
    with store_settings.chosen(Stores(settings={store_settings.PROFILE: "other"})):
        other = access("s3", "b", "s3://b")
    assert (other.config["access_key_id"], other.config["endpoint"], other.options["allow_http"]) == (
        "o",
        "http://h:1",
        True,
    )
    assert other.identity != found.identity
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(TableError, match="no profile nobody"):
        access("s3", "b", "s3://b")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    assert "access_key_id" not in access("s3", "b", "s3://b").config  # the client reads the environment


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("endpoint", "minio:9000"),
        ("endpoint", "https://k:geheim@h"),
        ("timeout", "-1"),
        ("anonymous", "ja"),
        ("endpiont", "x"),
    ],
)
def test_settings_of_stores_are_checked(key: str, value: str) -> None:
    with lakesql.connect() as con, pytest.raises((TableError, SQLError), match=r"lakesql\.store\.") as caught:
        con.execute(f"SET lakesql.store.{key} = '{value}'")
    assert "geheim" not in str(caught.value)


def test_nothing_of_the_environment_is_left_behind() -> None:
    assert not any(name in os.environ for name in AWS)


def test_the_doctor_reads_the_rows_of_a_bucket_and_a_budget_spent_within_duckdb_is_told(lake: str) -> None:
    with lakesql.connect(warehouse=lake) as con:
        con.execute("CREATE TABLE t (id BIGINT, v BIGINT) USING hudi TBLPROPERTIES (type = 'mor', primaryKey = 'id')")
        con.execute("INSERT INTO t VALUES (1, 1)")
        found = lakesql.open_table(f"{lake}/t")
        assert not [one for one in examine(duckdb.connect(), found.state.storage) if "did not finish" in str(one)]
        for budget in range(12):
            con.execute(f"SET lakesql.requests.budget = {budget}")
            try:
                con.execute("UPDATE t SET v = 2 WHERE id = 1")
                break
            except lakesql.OverBudget:
                pass
