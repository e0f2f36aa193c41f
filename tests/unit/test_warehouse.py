"""The tables of a warehouse on a connection: what `connect` reads of them, and their names after USE."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

import lakesql
from lakesql.errors import TableError
from lakesql.sql import views
from lakesql.storage import LocalStorage, open_storage


def fill(con: lakesql.Connection, name: str, kind: str, commits: int = 3) -> None:
    con.sql(f"CREATE TABLE {name} (id BIGINT, v BIGINT) USING hudi TBLPROPERTIES (type = '{kind}', primaryKey = 'id')")
    for n in range(commits):
        con.sql(f"INSERT INTO {name} VALUES ({n}, {n})")


def test_connect_reads_properties_timeline_and_one_commit_of_each_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lakesql.connect(warehouse=str(tmp_path)) as con:
        for number, kind in enumerate(("cow", "mor", "mor")):
            fill(con, f"t{number}", kind)
    opened: list[LocalStorage] = []

    def watched(uri: str) -> LocalStorage:
        storage = open_storage(uri)
        opened.append(storage)
        return storage

    for module in (views, lakesql.sql.connection, lakesql.sql.instance):
        monkeypatch.setattr(module, "open_storage", watched)
    monkeypatch.setattr("lakesql.table.state._cache", type(lakesql.table.state._cache)())
    with lakesql.connect(warehouse=str(tmp_path)):
        requests = sum((storage.requests for storage in opened), Counter[str]())
    # The warehouse is listed once; each table: properties looked for and read, timeline listed, newest commit read.
    assert requests == {"list": 1 + 3, "read": 3 * 3}


def test_connect_opens_no_data_file(tmp_path: Path) -> None:
    with lakesql.connect(warehouse=str(tmp_path)) as con:
        fill(con, "t", "cow")
    for file in tmp_path.glob("t/*.parquet"):
        file.unlink()
    with lakesql.connect(warehouse=str(tmp_path)) as con:
        assert con.tables == {"t": str(tmp_path / "t")}
        with pytest.raises(TableError, match="names this file, and it is not there"):
            con.sql("FROM t").fetchall()


def test_read_optimized_read_misses_a_lost_base_file_and_not_a_replaced_one(tmp_path: Path) -> None:
    with lakesql.connect(warehouse=str(tmp_path)) as con:
        fill(con, "t", "cow", commits=1)
        (old,) = tmp_path.glob("t/*.parquet")
        con.sql("UPDATE t SET v = 9")
        old.unlink()
        assert con.sql("SELECT v FROM hudi_read_optimized('t')").fetchall() == [(9,)]
        (new,) = tmp_path.glob("t/*.parquet")
        rows = pq.read_table(new).num_rows
        new.unlink()
        assert rows == 1
        with pytest.raises(TableError, match="its rows would be missing"):
            con.sql("FROM hudi_read_optimized('t')").fetchall()


@pytest.mark.parametrize("use", ["USE elsewhere", "USE memory.later", "USE memory"])
def test_names_with_their_database_hold_after_use(tmp_path: Path, use: str) -> None:
    with lakesql.connect(warehouse=str(tmp_path)) as con:
        fill(con, "trips", "mor", commits=1)
        con.sql("ATTACH ':memory:' AS elsewhere; CREATE SCHEMA later")
        con.sql(use)
        for read in (
            "trips",
            "trips_ro",
            "trips_rt",
            "trips_incremental",
            "trips_changes('earliest')",
            "hudi_scan('trips')",
            "trips TIMESTAMP AS OF '2099-01-01'",
            "trips AT (TIMESTAMP => '2099-01-01')",
        ):
            assert con.sql(f"SELECT id FROM memory.main.{read}").fetchall() == [(0,)], read
        con.sql("UPDATE memory.main.trips SET v = 5")
        con.sql(
            "MERGE INTO memory.main.trips t USING (SELECT 0 AS id, 6 AS v) s ON t.id = s.id "
            "WHEN MATCHED AND t.v = 5 THEN UPDATE SET v = s.v"
        )
        assert con.sql("SELECT v FROM memory.main.trips").fetchall() == [(6,)]
        con.sql("CREATE TABLE memory.main.more (id BIGINT) USING hudi COMMENT 'more'")
        assert con.sql("SELECT * FROM memory.main.more").fetchall() == []
        con.sql("DELETE FROM memory.main.trips WHERE id = 0")
        con.sql("DROP TABLE memory.main.more")


def test_bare_name_after_use_of_another_database_gets_duckdbs_hint(tmp_path: Path) -> None:
    with lakesql.connect(warehouse=str(tmp_path)) as con:
        fill(con, "trips", "mor", commits=1)
        con.sql("ATTACH ':memory:' AS elsewhere")
        con.sql("USE elsewhere")
        for sql in ("FROM trips", "UPDATE trips SET v = 1", "INSERT INTO trips VALUES (1, 1)"):
            with pytest.raises(duckdb.CatalogException, match=r'Did you mean "memory\.trips"'):
                con.sql(sql)
        con.sql("CREATE TABLE trips (id INT)")
        con.sql("INSERT INTO trips VALUES (7)")
        assert con.sql("FROM trips").fetchall() == [(7,)]
        con.sql("USE memory")
        assert con.sql("SELECT id FROM trips").fetchall() == [(0,)]


def test_bare_name_in_another_schema_of_the_database_means_what_duckdb_finds(tmp_path: Path) -> None:
    with lakesql.connect(warehouse=str(tmp_path)) as con:
        fill(con, "trips", "cow", commits=1)
        con.sql("CREATE SCHEMA later; USE memory.later")
        con.sql("UPDATE trips SET v = 8")
        assert con.sql("SELECT v FROM trips").fetchall() == [(8,)]
        con.sql("CREATE TABLE later.trips (v INT)")
        con.sql("INSERT INTO trips VALUES (1)")
        assert con.sql("FROM trips").fetchall() == [(1,)]


def test_connection_without_tables_loads_nothing_that_reads_them(tmp_path: Path) -> None:
    code = (
        "import sys, lakesql; con = lakesql.connect(warehouse=sys.argv[1]); con.sql('SELECT 1').fetchall();"
        "print([m for m in ('lakesql.table.state', 'lakesql.table.read', 'lakesql.write', 'lakesql.procedures',"
        " 'lakesql.ingest.run', 'lakesql.stores.objects', 'obstore', 'fsspec', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_first_merge_loads_neither_procedures_nor_ingestion(tmp_path: Path) -> None:
    code = (
        "import sys, lakesql; con = lakesql.connect(warehouse=sys.argv[1]);"
        "con.execute(\"CREATE TABLE t (id BIGINT) USING hudi TBLPROPERTIES (primaryKey = 'id')\");"
        "con.execute('MERGE INTO t USING (SELECT 1 AS id) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *');"
        "print([m for m in ('lakesql.procedures', 'lakesql.ingest.run', 'lakesql.advice') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
