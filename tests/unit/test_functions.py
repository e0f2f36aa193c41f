"""Table functions on DuckDB connections: registration, snapshots per transaction, errors, views that persist."""

import threading
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import lakesql
from lakesql.errors import TableError
from lakesql.sql.functions import TABLE_FUNCTIONS, instance_of
from tests.samples import Kind, create, rows

A, B = ("a", "sf", 1, 10), ("b", "ny", 2, 10)


@pytest.fixture
def trips(tmp_path):
    table = create(tmp_path / "trips", Kind("mor", 9))
    table.insert(rows(A, B))
    return table


@pytest.fixture
def con():
    found = duckdb.connect()
    lakesql.register(found)
    yield found
    found.close()


def ids(con, source):
    return [i for (i,) in con.execute(f"SELECT id FROM {source} ORDER BY id").fetchall()]


def test_all_functions_are_registered_and_may_be_registered_again(con):
    lakesql.register(con)
    lakesql.register(con.cursor())
    found = con.execute("SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type = 'table_macro'")
    assert set(TABLE_FUNCTIONS) <= {n for (n,) in found.fetchall()}


@pytest.mark.parametrize("name", ["hudi_scan", "read_hudi", "hudi_snapshot"])
def test_scan_reads_the_newest_snapshot_with_meta_columns(con, trips, name):
    relation = con.sql(f"SELECT * FROM {name}('{trips.path}')")
    assert relation.columns[:5] == [
        f"_hoodie_{c}" for c in ("commit_time", "commit_seqno", "record_key", "partition_path", "file_name")
    ]
    assert relation.columns[5:] == ["id", "city", "v", "ts"]
    assert ids(con, f"{name}('{trips.path}')") == ["a", "b"]


def test_as_of_takes_instants_timestamps_and_dates(con, trips):
    first = trips.state.timeline.completed_writes()[0].requested
    trips.upsert(rows(("c", "sf", 3, 10)))
    path = trips.path
    moment = f"{first[:4]}-{first[4:6]}-{first[6:8]} {first[8:10]}:{first[10:12]}:{first[12:14]}.{first[14:]}"
    for as_of in (f"'{first}'", f"'{moment}'", f"TIMESTAMP '{moment}'", f"'{moment}+00:00'", f"{first}"):
        assert ids(con, f"hudi_scan('{path}', as_of := {as_of})") == ["a", "b"], as_of
    assert ids(con, f"hudi_scan('{path}', as_of := DATE '2000-01-01')") == []
    assert ids(con, f"hudi_scan('{path}', as_of := TIMESTAMPTZ '2999-01-01 00:00:00+02')") == ["a", "b", "c"]


def test_arguments_may_be_parameters_and_expressions(con, trips):
    assert con.execute("SELECT count(*) FROM hudi_scan(?)", [trips.path]).fetchall() == [(2,)]
    con.execute("SET VARIABLE p = $1", [trips.path])
    assert con.execute("SELECT count(*) FROM hudi_scan(getvariable('p') || '')").fetchall() == [(2,)]


def test_read_optimized_leaves_logs_out(con, trips):
    trips.upsert(rows(("a", "sf", 5, 20)))
    assert con.execute(f"SELECT v FROM hudi_scan('{trips.path}') WHERE id = 'a'").fetchall() == [(5,)]
    for call in (f"hudi_read_optimized('{trips.path}')", f"hudi_scan('{trips.path}', mode := 'read_optimized')"):
        assert con.execute(f"SELECT v FROM {call} WHERE id = 'a'").fetchall() == [(1,)]


def test_incremental_gives_rows_changed_behind_begin(con, trips):
    first = trips.state.timeline.completed_writes()[0]
    trips.upsert(rows(("a", "sf", 5, 20)))
    path, begin = trips.path, first.completed
    for call in (
        f"hudi_incremental('{path}', '{begin}')",
        f"hudi_incremental('{path}', begin := '{begin}')",
        f"hudi_incremental('{path}', from_instant := '{begin}')",
        f"hudi_table_changes('{path}', 'latest_state', '{begin}')",
    ):
        assert ids(con, call) == ["a"], call
    assert ids(con, f"hudi_incremental('{path}', 'earliest', \"end\" := '{begin}')") == ["a", "b"]
    assert ids(con, f"hudi_incremental('{path}', 'earliest', to_instant := '{begin}')") == ["a", "b"]


def test_inspection_functions_say_what_a_table_is(con, trips):
    path = trips.path
    trips.upsert(rows(("a", "sf", 5, 20)))
    timeline = con.execute(f"SELECT action, state, rows_inserted FROM hudi_timeline('{path}')").fetchall()
    assert timeline == [("deltacommit", "COMPLETED", 2), ("deltacommit", "COMPLETED", 0)]
    assert con.execute(f"FROM hudi_query_timeline('{path}', archived := true)").fetchall() != []
    assert con.execute(f"SELECT sum(log_count) FROM hudi_files('{path}')").fetchall() == [(1,)]
    assert con.execute(f"SELECT count(*) FROM hudi_filesystem_view('{path}', partition := 'city=ny')").fetchall() == [
        (1,)
    ]
    assert con.execute(f"SELECT partition_path FROM hudi_partitions('{path}') ORDER BY 1").fetchall() == [
        ("city=ny",),
        ("city=sf",),
    ]
    assert con.execute(f"SELECT value FROM hudi_properties('{path}') WHERE key = 'hoodie.table.type'").fetchall() == [
        ("MERGE_ON_READ",)
    ]
    assert con.execute(f"SELECT column_name FROM hudi_schema('{path}') WHERE record_key").fetchall() == [("id",)]
    assert con.execute(f"SELECT kind FROM hudi_log_blocks('{path}')").fetchall() == [("avro",)]


def test_empty_inspection_has_its_columns(con, tmp_path):
    create(tmp_path / "empty", Kind("cow", 9))
    relation = con.sql(f"SELECT * FROM hudi_timeline('{tmp_path}/empty')")
    assert "instant" in relation.columns
    assert relation.fetchall() == []


# ---------------------------------------------------------------- one snapshot


def test_statement_sees_one_instant_and_the_next_statement_the_newest(con, trips):
    call = f"hudi_scan('{trips.path}')"
    assert ids(con, call) == ["a", "b"]
    trips.insert(rows(("c", "sf", 3, 10)))
    assert ids(con, call) == ["a", "b", "c"]


def test_reads_inside_a_transaction_are_repeatable(con, trips):
    con.execute("BEGIN")
    assert ids(con, f"hudi_scan('{trips.path}')") == ["a", "b"]
    trips.insert(rows(("c", "sf", 3, 10)))
    assert ids(con, f"hudi_scan('{trips.path}')") == ["a", "b"]
    assert con.execute(f"SELECT count(*) FROM hudi_timeline('{trips.path}')").fetchall() == [(1,)]
    con.execute("COMMIT")
    assert ids(con, f"hudi_scan('{trips.path}')") == ["a", "b", "c"]


def test_prepared_statements_and_relations_read_afresh(con, trips):
    con.execute(f"PREPARE p AS SELECT count(*) FROM hudi_scan('{trips.path}')")
    assert con.execute("EXECUTE p").fetchall() == [(2,)]
    trips.insert(rows(("c", "sf", 3, 10)))
    assert con.execute("EXECUTE p").fetchall() == [(3,)]


def test_equal_states_of_many_transactions_are_kept_once(con, trips):
    instance = instance_of(con)
    states = {id(instance.snapshot(trips.path, -n)) for n in range(1, 20)}
    assert len(states) == 1


def test_cursors_and_threads_read_alike(con, trips):
    found = []

    def read():
        cursor = con.cursor()
        found.extend(ids(cursor, f"hudi_scan('{trips.path}')") for _ in range(3))
        cursor.close()

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [["a", "b"]] * 9


def test_filters_reach_the_parquet_scan(con, trips):
    plan = con.execute(f"EXPLAIN SELECT id FROM hudi_scan('{trips.path}') WHERE v = 1").fetchall()[0][1]
    assert "READ_PARQUET" in plan.upper().replace(" ", "_")
    assert "v=1" in plan.replace(" ", "")


# ---------------------------------------------------------------- errors


def test_error_is_our_text_alone_at_bind(con, tmp_path):
    text = f"{tmp_path}/none: not a Hudi table, there is no .hoodie/hoodie.properties."
    for sql in (f"FROM hudi_scan('{tmp_path}/none')", f"DESCRIBE FROM hudi_timeline('{tmp_path}/none')"):
        with pytest.raises(duckdb.InvalidInputException) as caught:
            con.execute(sql)
        assert str(caught.value).startswith(f"Invalid Input Error: {text}")
        assert "Traceback" not in str(caught.value)
        assert "UDF" not in str(caught.value)
    assert isinstance(instance_of(con).last_error, TableError)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("hudi_scan('{p}', as_of := 'yesterday')", "'yesterday' is not a point in time"),
        ("hudi_scan('{p}', mode := 'fast')", "mode 'fast' is unknown"),
        ("hudi_scan(NULL)", "hudi_scan: the table is NULL"),
        ("hudi_incremental('{p}')", "give begin"),
        ("hudi_incremental('{p}', '1', from_instant := '2')", "begin and from_instant mean the same"),
        ("hudi_table_changes('{p}', 'cdc', 'earliest')", "change data capture is not read yet"),
        ("hudi_table_changes('{p}', 'all', 'earliest')", "kind 'all' is unknown"),
    ],
)
def test_wrong_arguments_are_explained(con, trips, call, message):
    with pytest.raises(duckdb.InvalidInputException, match="Invalid Input Error: ") as caught:
        con.execute(f"FROM {call.format(p=trips.path)}")
    assert message in str(caught.value)


def test_unknown_parameter_gets_duckdbs_candidates(con, trips):
    with pytest.raises(duckdb.BinderException, match="Candidate macros"):
        con.execute(f"FROM hudi_scan('{trips.path}', asof := 1)")


# ---------------------------------------------------------------- database files


def test_view_in_a_database_file_works_after_reopening_and_registering(tmp_path, trips):
    database = str(tmp_path / "lake.duckdb")
    with duckdb.connect(database) as con:
        lakesql.register(con)
        con.execute(f"CREATE VIEW v AS SELECT id FROM hudi_scan('{trips.path}')")
        con.execute(f"CREATE VIEW trips AS SELECT * FROM hudi_scan('{trips.path}')")
    trips.insert(rows(("c", "sf", 3, 10)))
    with duckdb.connect(database) as con:
        with pytest.raises(duckdb.CatalogException, match="lakesql_plan does not exist"):
            con.execute("FROM v")
        lakesql.register(con)
        assert ids(con, "v") == ["a", "b", "c"]
        assert ids(con, "hudi_scan('trips')") == ["a", "b", "c"]


def test_read_only_database_gets_temporary_macros(tmp_path, trips):
    database = str(tmp_path / "lake.duckdb")
    duckdb.connect(database).close()
    with duckdb.connect(database, read_only=True) as con:
        lakesql.register(con)
        cursor = con.cursor()
        lakesql.register(cursor)
        assert ids(con, f"hudi_scan('{trips.path}')") == ids(cursor, f"hudi_scan('{trips.path}')") == ["a", "b"]


def test_closing_the_registered_connection_leaves_others_working(tmp_path, trips):
    database = str(tmp_path / "lake.duckdb")
    first, second = duckdb.connect(database), duckdb.connect(database)
    lakesql.register(first)
    first.close()
    trips.upsert(rows(("a", "sf", 5, 20)))
    assert second.execute(f"SELECT v FROM hudi_scan('{trips.path}') ORDER BY id").fetchall() == [(5,), (2,)]
    lakesql.register(second)
    assert ids(second, f"hudi_scan('{trips.path}')") == ["a", "b"]
    second.close()


def test_closing_everything_frees_the_database_file(tmp_path):
    database = str(tmp_path / "lake.duckdb")
    con = duckdb.connect(database)
    lakesql.register(con)
    con.close()
    with duckdb.connect(database, read_only=True) as again:
        assert again.execute("SELECT 1").fetchall() == [(1,)]


def test_relative_paths_and_file_addresses_are_understood(con, trips, monkeypatch):
    monkeypatch.chdir(Path(trips.path).parent)
    assert ids(con, "hudi_scan('trips')") == ids(con, f"hudi_scan('file://{trips.path}')") == ["a", "b"]


def test_types_survive(con, tmp_path):
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("d", pa.decimal128(10, 2)),
            ("t", pa.timestamp("us", "UTC")),
            ("l", pa.list_(pa.string())),
        ]
    )
    table = lakesql.create_table(str(tmp_path / "x"), schema, primary_key=["id"])
    con.execute("SET TimeZone = 'UTC'")
    table.insert(
        con.sql(
            "SELECT 1 AS id, 1.25::DECIMAL(10, 2) AS d, TIMESTAMPTZ '2024-01-01 00:00:00+00' AS t, ['a', NULL] AS l"
        ).to_arrow_table()
    )
    kinds = dict(
        con.execute(f"SELECT column_name, column_type FROM (DESCRIBE FROM hudi_scan('{tmp_path}/x'))").fetchall()[5:]
    )
    assert kinds == {"id": "BIGINT", "d": "DECIMAL(10,2)", "t": "TIMESTAMP WITH TIME ZONE", "l": "VARCHAR[]"}
    assert con.execute(f"SELECT d::VARCHAR, l FROM hudi_scan('{tmp_path}/x')").fetchall() == [("1.25", ["a", None])]
