"""What a statement costs before a row is read: folders that are listed, files that are opened, modules that are loaded."""

import gc
import os
import re
import shutil
import subprocess
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import lakesql
from benchmarks import wide_table
from lakesql import storage as storages
from lakesql.errors import FormatError, SQLError, TableError
from lakesql.storage import LocalStorage
from lakesql.table import deltas, lists, planned
from lakesql.table.listing import look
from lakesql.table.state import load
from tests.samples import KINDS, Kind, create, rows, tuples

GROUPS, PARTITIONS = 300, 100


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wide_table.prepare(tmp_path_factory.mktemp("wide"), GROUPS, PARTITIONS)


@pytest.fixture
def wide(made: Path, tmp_path: Path) -> Path:
    """A copy of the table, too old for the clock of its folders to be in doubt."""
    target = tmp_path / "wide"
    shutil.copytree(made, target)
    age(target)
    return target


def age(table: Path) -> None:
    for folder, _, _ in os.walk(table):
        os.utime(folder, (1_700_000_000, 1_700_000_000))


def asked(storage: storages.Storage, run: Callable[[], object]) -> Counter[str]:
    before = Counter(storage.requests)
    run()
    return Counter(storage.requests) - before


def one_row(day: int, amount: float, ts: int) -> pa.Table:
    row = {"id": wide_table.key(1, 1), "amount": amount, "ts": ts, "day": wide_table.partition_name(day)}
    return pa.Table.from_pylist([row], schema=wide_table.SCHEMA)


def test_second_statement_lists_the_timeline_alone_and_opens_no_file(wide):
    con = lakesql.connect(warehouse=str(wide.parent))
    storage = con._session.instance.storage("wide")
    first = asked(storage, lambda: con.sql("SELECT * FROM wide"))
    second = asked(storage, lambda: con.sql("SELECT * FROM wide"))
    assert first["list"] == 1 + 1 + PARTITIONS
    assert second == {"read": 1, "list": 1, "stamp": PARTITIONS + 1}


def test_statement_after_a_commit_lists_the_partition_that_it_wrote(wide):
    con = lakesql.connect(warehouse=str(wide.parent))
    storage = con._session.instance.storage("wide")
    total = "SELECT count(*), max(amount) FROM wide"
    assert con.sql(total).fetchall() == [(GROUPS * wide_table.ROWS, 2.0)]
    lakesql.open_table(wide).upsert(one_row(7, 77.0, 5))
    found = asked(storage, lambda: con.sql(total))
    assert con.sql(total).fetchall() == [(GROUPS * wide_table.ROWS, 77.0)]
    assert found["list"] == 2
    assert found["read"] <= 2  # properties, and the new commit unless its writer left it in the cache


def test_commits_are_seen_where_folders_have_no_times(wide, monkeypatch):
    monkeypatch.setattr(storages, "_modified_ns", lambda _: 1)
    con = lakesql.connect(warehouse=str(wide.parent))
    table = lakesql.open_table(wide)
    for turn in range(3):
        con.sql("SELECT * FROM wide")
        table.upsert(one_row(turn, 100.0 + turn, 5))
        assert con.sql("SELECT max(amount) FROM wide").fetchall() == [(100.0 + turn,)]
    rolled_back = table.rollback()
    assert rolled_back.instant
    assert con.sql("SELECT max(amount) FROM wide").fetchall() == [(101.0,)]


def test_new_partition_is_seen(wide):
    con = lakesql.connect(warehouse=str(wide.parent))
    con.sql("SELECT * FROM wide")
    lakesql.open_table(wide).upsert(one_row(PARTITIONS + 5, 1.0, 5))
    assert con.sql("SELECT count(*) FROM wide").fetchall() == [(GROUPS * wide_table.ROWS + 1,)]


def test_upsert_of_one_row_asks_for_its_partition_alone(wide):
    table = lakesql.open_table(wide)
    table.upsert(one_row(7, 1.5, 5))
    age(wide)
    found = asked(table.state.storage, lambda: table.upsert(one_row(7, 2.5, 6)))
    assert found["list"] < 12
    assert found["read"] < 12
    assert found["put"] < 12


def test_lost_file_is_told_after_the_first_statement_too(wide):
    con = lakesql.connect(warehouse=str(wide.parent))
    con.sql("SELECT * FROM wide")
    lost = next(wide.glob("day=d00042/*.parquet"))
    kept = lost.rename(wide.parent / lost.name)
    with pytest.raises(TableError, match="is not there"):
        con.sql("SELECT * FROM wide")
    shutil.copy(kept, lost)
    assert con.sql("SELECT count(*) FROM wide").fetchall() == [(GROUPS * wide_table.ROWS,)]


@pytest.mark.parametrize("tries", [1, 2, 3])
def test_file_mended_in_place_is_read_again(wide, tries):
    broken = next(wide.glob("day=d00042/*.parquet"))
    whole = broken.read_bytes()
    broken.write_bytes(whole[:100])
    age(wide)
    con = lakesql.connect(warehouse=str(wide.parent))
    for _ in range(tries):
        with pytest.raises(FormatError, match="has 100"):
            con.sql("SELECT * FROM wide")
    broken.write_bytes(whole)
    age(wide)
    assert con.sql("SELECT count(*) FROM wide").fetchall() == [(GROUPS * wide_table.ROWS,)]


def test_folder_that_was_removed_is_not_asked_for_again(wide):
    (wide / "day=empty").mkdir()
    age(wide)
    storage = LocalStorage(wide)
    before = look(storage)
    (wide / "day=empty").rmdir()
    age(wide)
    os.utime(wide, (1_700_000_001, 1_700_000_001))  # its parent changes
    now = look(storage)
    assert now.slices() == before.slices()
    again = asked(storage, lambda: look(storage))
    assert again == {"read": 1, "list": 1, "stamp": PARTITIONS + 1}
    assert look(storage) is now
    (wide / "day=empty").mkdir()
    os.utime(wide, (1_700_000_002, 1_700_000_002))
    assert asked(storage, lambda: look(storage))["list"] == 3  # timeline, table, and the folder that is back


def test_leftovers_of_a_write_that_was_taken_back_are_forgotten(wide, monkeypatch):
    monkeypatch.setattr(storages, "_modified_ns", lambda _: 1)
    pending = "20260201000000000"
    timeline = wide / ".hoodie/timeline"
    (timeline / f"{pending}.commit.requested").touch()
    left = wide / f"day=d00003/left-0_0-0-0_{pending}.parquet"
    left.touch()
    storage = LocalStorage(wide)
    assert any(f.name == left.name for f in look(storage).files)
    (timeline / f"{pending}.commit.requested").unlink()
    left.unlink()
    lakesql.open_table(wide).upsert(one_row(50, 1.0, 5))
    assert not any(f.name == left.name for f in look(storage).files)


@pytest.mark.parametrize("kind", [k for k in KINDS if k.partitioned and k.event_time], ids=str)
def test_slices_grown_from_look_to_look_are_those_of_a_full_listing(tmp_path, kind: Kind):
    table = create(tmp_path / "t", kind)
    storage = LocalStorage(tmp_path / "t")
    cities = [f"c{n}" for n in range(5)]

    def compare() -> None:
        now, whole = look(storage), load(LocalStorage(tmp_path / "t"))
        assert now.slices() == whole.slices()
        assert sorted(f.path for f in now.files) == sorted(f.path for f in whole.files)

    compare()
    for turn in range(3):
        table.upsert(rows(*((f"k{turn}{c}", c, turn, turn) for c in cities)))
        compare()
        table.upsert(rows((f"k{turn}c1", "c1", 10 + turn, 10 + turn)))
        look(storage)  # without a plan in between
        table.delete(f"id = 'k{turn}c2'")
        compare()
    table.insert_overwrite(rows(("n", "c3", 1, 1)))
    compare()
    if kind.type == "mor":
        table.compact(run=False)
        compare()
        if kind.version >= 8:
            table.upsert(rows(("k0c1", "c1", 30, 30), ("k1c4", "c4", 30, 30)))
            compare()
        table.compact(schedule=False)
        compare()
    table.clean(**{"hoodie.clean.commits.retained": "1"})
    compare()
    table.rollback()
    compare()
    assert tuples(table.read()) == tuples(lakesql.open_table(tmp_path / "t").read())


def test_what_was_listed_goes_with_its_storage(wide):
    table = lakesql.open_table(wide)
    table.read().read_all()
    seen = weakref.ref(table._storage)
    del table
    gc.collect()
    assert seen() is None


def test_closing_a_cursor_makes_the_others_list_nothing_again(wide):
    con = lakesql.connect(warehouse=str(wide.parent))
    con.sql("SELECT * FROM wide")
    storage = con._session.instance.storage("wide")
    con.cursor().close()
    assert asked(storage, lambda: con.sql("SELECT * FROM wide"))["list"] == 1


def test_closing_a_connection_forgets_what_it_and_its_cursors_have_seen(wide):
    con = lakesql.connect(warehouse=str(wide.parent))
    cursor = con.cursor()
    for one in (con, cursor):
        one.execute("SELECT count(*) FROM wide").fetchall()
    seen = weakref.ref(con._session.instance.storage("wide"))
    con.close()
    planned._known.clear()
    deltas._cache.clear()
    gc.collect()
    assert seen() is None


def test_long_lists_of_files_reach_duckdb_by_number(wide):
    con = lakesql.connect(warehouse=str(wide.parent))
    relation = con.sql("SELECT count(*) FROM wide")
    con.sql("SELECT * FROM wide")
    assert relation.fetchall() == [(GROUPS * wide_table.ROWS,)]
    con.execute("PREPARE p AS SELECT count(*) FROM wide WHERE day = $1")
    lakesql.open_table(wide).upsert(one_row(PARTITIONS + 1, 1.0, 5))
    day = wide_table.partition_name
    assert con.execute(f"EXECUTE p('{day(3)}')").fetchall() == [(3 * wide_table.ROWS,)]
    with lists.by_number() as made:
        assert lists.list_sql(["a"] * 2) == "['a', 'a']"
        text = lists.list_sql(["a"] * lists.LONG)
    number = made[0].number
    assert text == f"{lists.FUNCTION}({number})"
    assert list(lists.paths_of(number)) == ["a"] * lists.LONG
    made.clear()
    with pytest.raises(SQLError, match="Run the statement again"):
        lists.paths_of(number)


def test_thread_that_plans_holds_its_lists_whatever_others_forget(wide):
    con = lakesql.connect(warehouse=str(wide.parent))
    instance = con._session.instance
    asked_for = ("hudi_read_optimized", "wide", (None,) * 5, 1)

    def files(text: str) -> int:
        instance.forget()  # as another thread that closes a cursor does between the plan and its bind
        [number] = re.findall(rf"{lists.FUNCTION}\((\d+)\)", text)
        return len(lists.paths_of(int(number)))

    assert files(instance._query(*asked_for)) == GROUPS
    text = instance._query(*asked_for)
    ended = threading.Thread(target=lambda: instance._query(*asked_for[:3], 2))
    ended.start()
    ended.join()
    for other in range(3, 3 + lists.HANDED_MAX):
        instance._query("hudi_incremental", "wide", ("earliest", *(None,) * 4), other)
    assert instance._query(*asked_for) == text  # known already, and handed out anew
    assert files(text) == GROUPS


def test_lists_of_statements_run_while_planning_are_texts(tmp_path):
    """The cursor that plans may not know the function behind the numbers: the user's connection is gone, locked or in
    the transaction that made it."""
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("p", pa.string())])
    table = lakesql.create_table(str(tmp_path / "t"), schema, type="mor", primary_key=["id"], partitioned_by=["p"])
    count = lists.LONG + 5
    for v in (1, 2):
        table.upsert(pa.table({"id": range(count), "v": [v] * count, "p": [f"p{n}" for n in range(count)]}))
    scan = f"SELECT count(*) FROM hudi_scan('{tmp_path}/t')"
    exact = f"SELECT rows_updated FROM hudi_freshness('{tmp_path}/t', exact := true)"
    advice = f"SELECT count(*) > 0 FROM hudi_advice('{tmp_path}/t', measure := true)"

    def gone() -> duckdb.DuckDBPyConnection:
        con = duckdb.connect()
        lakesql.register(con)
        return con.cursor()

    def uncommitted() -> duckdb.DuckDBPyConnection:
        con = duckdb.connect()
        con.begin()
        lakesql.register(con)
        return con

    def locked() -> duckdb.DuckDBPyConnection:
        con = duckdb.connect()
        lakesql.register(con)
        con.execute("SET GLOBAL TimeZone = 'Europe/Oslo'")
        con.execute("SET lock_configuration = true")
        return con

    for connected in (gone, uncommitted, locked):
        deltas._cache.clear()
        con = connected()
        assert con.execute(scan).fetchall() == [(count,)]
        assert con.execute(exact).fetchall() == [(count,)]
        assert con.execute(advice).fetchall() == [(True,)]
    with lists.by_number() as made:
        with lists.spelt():
            assert not lists.numbered()
            assert lists.list_sql(["a"] * lists.LONG).startswith("['a', ")
        assert lists.numbered()
    assert not made


def test_base_files_carry_a_filter_that_duckdb_asks_for_keys(tmp_path):
    keys = pa.table({"id": [f"k{n * 7919 % 100_003}" for n in range(20_000)]})
    table = lakesql.create_table(str(tmp_path / "t"), keys.schema, primary_key=["id"])
    table.bulk_insert(keys)
    [file] = (tmp_path / "t").glob("*.parquet")
    probe = "SELECT bloom_filter_excludes FROM parquet_bloom_probe($1, 'id', $2)"
    assert duckdb.execute(probe, [str(file), "k7919"]).fetchall() == [(False,)]
    assert duckdb.execute(probe, [str(file), "no such key"]).fetchall() == [(True,)]


HEAVY = (
    "IPython",
    "confluent_kafka",
    "deltalake",
    "ipykernel",
    "itables",
    "matplotlib",
    "narwhals",
    "pandas",
    "polars",
    "prometheus_client",
    "prompt_toolkit",
    "pygments",
    "pyhocon",
    "rich",
    "sqlglot",
    "typer",
)


def loaded(program: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {program}; print(*sys.modules, file=sys.stderr)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stderr.split())


def test_importing_lakesql_loads_next_to_nothing():
    found = loaded("import lakesql")
    assert not found & {*HEAVY, "duckdb", "pyarrow", "numpy", "fastavro"}
    assert not any(name.startswith("lakesql.") and name != "lakesql.errors" for name in found)


def test_connecting_and_reading_loads_neither_writers_nor_services_nor_pandas(wide):
    found = loaded(
        f"import lakesql; con = lakesql.connect(warehouse={str(wide.parent)!r}); "
        "con.sql('SELECT 1').fetchall(); con.sql('SELECT count(*) FROM wide').fetchall()"
    )
    assert not found & set(HEAVY)
    assert not any(name.startswith(("lakesql.write", "lakesql.procedures", "lakesql.advice")) for name in found)


def test_command_line_loads_neither_terminal_nor_writers_for_a_query():
    found = loaded("from lakesql.cli import app; app(['-c', 'SELECT 1'], standalone_mode=False)")
    assert not found & (set(HEAVY) - {"rich", "typer"})
    assert not any(name.startswith(("lakesql.write", "lakesql.procedures", "lakesql.advice")) for name in found)


def test_every_public_name_is_there():
    for name in lakesql.__all__:
        assert getattr(lakesql, name) is not None
    assert set(lakesql.__all__) <= set(dir(lakesql))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        lakesql.nothing  # noqa: B018
