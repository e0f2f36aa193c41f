"""What the log does to a base file is kept on disk as numbers, and a read that finds it gives the same rows."""

import os
import subprocess
import sys
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakesql
from lakesql.table import deltas, outcomes, plainfold, planned
from lakesql.table.outcomes import Outcome

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("ts", pa.int64())])


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own, in which outcomes of the smallest files are kept."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(outcomes, "BASE_BYTES_MIN", 0)
    return tmp_path / "cache" / "lakesql" / "outcomes"


@pytest.fixture
def joins(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many slices each key join of a read was about."""
    seen: list[int] = []
    decided: Callable[..., list[Outcome]] = plainfold._decided

    def counted(*given: object) -> list[Outcome]:
        made = decided(*given)
        seen.append(len(made))
        return made

    monkeypatch.setattr(plainfold, "_decided", counted)
    return seen


def mor(path: Path, properties: dict[str, str] | None = None) -> lakesql.Table:
    """Ids 0..99; then 5 is newer, 6 gone, 7 late (its base row wins), 200 new and written twice."""
    table = lakesql.create_table(
        str(path), SCHEMA, type="mor", primary_key=["id"], ordering_fields=["ts"], properties=properties
    )
    table.insert([{"id": i, "v": i, "ts": 10} for i in range(100)])
    table.upsert([{"id": 5, "v": 50, "ts": 11}, {"id": 7, "v": 70, "ts": 9}, {"id": 200, "v": 1, "ts": 1}])
    table.delete([{"id": 6}])
    table.upsert([{"id": 200, "v": 2, "ts": 2}])
    return table


def expected() -> dict[int, int]:
    return {i: i for i in range(100) if i != 6} | {5: 50, 200: 2}


def rows(table: lakesql.Table) -> dict[int, int]:
    """The rows as a process sees them that has read nothing before."""
    deltas._cache.clear()
    return {r["id"]: r["v"] for r in table.read(columns=["id", "v"]).read_all().to_pylist()}


def test_a_later_process_joins_no_keys(tmp_path: Path, folder: Path, joins: list[int]) -> None:
    table = mor(tmp_path / "t")
    joins.clear()
    assert rows(table) == expected()
    first = list(joins)
    assert rows(table) == expected()
    assert joins == first
    assert [p.suffix for p in folder.iterdir()] == [".rows"] * len(list(folder.iterdir()))


def test_the_folder_holds_no_value_of_a_row(tmp_path: Path, folder: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("v", pa.string())])
    table = lakesql.create_table(str(tmp_path / "t"), schema, type="mor", primary_key=["id"])
    table.insert([{"id": f"secretkey{i}", "v": "private"} for i in range(20)])
    table.upsert([{"id": "secretkey3", "v": "hidden"}])
    table.read().read_all()
    kept = [p for p in folder.iterdir() if outcomes._decoded(p.read_bytes())]
    assert kept
    for path in kept:
        body = zlib.decompress(path.read_bytes()[8:])  # deflated behind the first eight bytes
        assert not any(word in body for word in (b"secret", b"private", b"hidden", b"t/"))


@pytest.mark.parametrize("harm", ["cut", "flip", "empty", "other"])
def test_a_damaged_file_is_a_miss(tmp_path: Path, folder: Path, joins: list[int], harm: str) -> None:
    table = mor(tmp_path / "t")
    assert rows(table) == expected()
    for path in folder.iterdir():
        data = path.read_bytes()
        bad = {"cut": data[:-3], "flip": data[:-1] + bytes([data[-1] ^ 1]), "empty": b"", "other": b"LKR9" + data[4:]}
        path.write_bytes(bad[harm])
    joins.clear()
    assert rows(table) == expected()
    assert joins
    assert rows(table) == expected()
    assert len(joins) == 1


def test_a_log_that_grew_is_merged_anew(tmp_path: Path, joins: list[int]) -> None:
    table = mor(tmp_path / "t")
    assert rows(table) == expected()
    table.upsert([{"id": 8, "v": 80, "ts": 12}])
    joins.clear()
    assert rows(table) == expected() | {8: 80}
    assert joins


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    table = mor(tmp_path / "t")
    assert rows(table) == expected()
    assert rows(table) == expected()


def test_a_person_without_a_home_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, joins: list[int]) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME", raising=False)

    def nobody(uid: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr("pwd.getpwuid", nobody)
    assert outcomes._folder() is None
    table = mor(tmp_path / "t")
    for turn in (1, 2):
        joins.clear()
        assert rows(table) == expected()
        assert joins, turn


def test_a_table_property_switches_the_folder_off(tmp_path: Path, folder: Path) -> None:
    table = mor(tmp_path / "t", {outcomes.DISK_CACHE: "false"})
    assert rows(table) == expected()
    assert not folder.exists()


def test_set_switches_the_folder_off_for_a_connection(tmp_path: Path, folder: Path) -> None:
    mor(tmp_path / "w" / "t")
    for path in folder.iterdir() if folder.exists() else []:
        path.unlink()
    deltas._cache.clear()
    con = lakesql.connect(warehouse=str(tmp_path / "w"))
    con.execute(f"SET {outcomes.DISK_CACHE} = false")
    assert con.execute("SELECT count(*) FROM t").fetchall() == [(100,)]
    assert not folder.exists() or not list(folder.iterdir())
    con.execute(f"RESET {outcomes.DISK_CACHE}")
    deltas._cache.clear()
    assert lakesql.connect(warehouse=str(tmp_path / "w")).execute("SELECT count(*) FROM t").fetchall() == [(100,)]
    assert list(folder.iterdir())


@pytest.mark.parametrize("off", [True, False])
def test_what_a_connection_has_set_holds_wherever_its_relations_are_fetched(
    tmp_path: Path, folder: Path, off: bool
) -> None:
    mor(tmp_path / "w" / "t")
    con, other = lakesql.connect(warehouse=str(tmp_path / "w")), lakesql.connect(warehouse=str(tmp_path / "w"))
    (con if off else other).execute(f"SET {outcomes.DISK_CACHE} = false")
    here, elsewhere = (one.sql("SELECT count(*) FROM t") for one in (con, con.cursor()))
    other.execute("SELECT 1").fetchall()  # the last statement of this thread is another connection's

    def kept_by(fetch: Callable[[], list[tuple[int]]]) -> bool:
        for path in folder.iterdir() if folder.exists() else []:
            path.unlink()
        deltas._cache.clear()
        planned._known.clear()
        con._session.instance.forget()
        assert fetch() == [(100,)]
        return folder.exists() and any(folder.iterdir())

    assert kept_by(here.fetchall) != off
    with ThreadPoolExecutor(1) as pool:
        assert kept_by(lambda: pool.submit(elsewhere.fetchall).result()) != off


def test_the_folder_stays_within_its_bytes_and_keeps_what_was_used_last(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Outcome(3, np.array([4]), np.array([0]), np.array([0, 2]), np.array([False, True]), beaten=False)
    size = len(outcomes._encoded(one))
    monkeypatch.setattr(outcomes, "LIMIT_BYTES", 5 * size)
    monkeypatch.setattr(outcomes, "SWEEP_EVERY", 1)
    for number in range(12):
        outcomes.keep(f"{number:02}", one)
        os.utime(folder / f"{number:02}.rows", (1000 + number, 1000 + number))
        if number > 0:
            assert outcomes.find("00") is not None  # a find counts as a use
    assert len(list(folder.iterdir())) <= 6
    assert sum(p.stat().st_size for p in folder.iterdir()) <= 6 * size
    assert outcomes.find("00") is not None


def test_many_writers_and_readers_of_one_name_see_whole_outcomes(folder: Path) -> None:
    def one(seed: int) -> Outcome:
        found = np.sort(np.random.default_rng(seed).choice(10_000, 500, replace=False))
        return Outcome(500, found, np.arange(500), np.arange(500), np.full(500, seed % 2 == 0), beaten=False)

    def work(seed: int) -> bool:
        outcomes.keep("shared", one(seed))
        found = outcomes.find("shared")
        return found is not None and len(found.dead) == 500 and len(set(found.own.tolist())) == 1

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(64)))
    assert [p.name for p in folder.iterdir()] == ["shared.rows"]


def test_processes_that_read_at_once_agree(tmp_path: Path, folder: Path) -> None:
    mor(tmp_path / "t")
    code = (
        "import sys, lakesql; from lakesql.table import outcomes; outcomes.BASE_BYTES_MIN = 0;"
        "t = lakesql.open_table(sys.argv[1]); print(sum(t.read(columns=['v']).read_all()['v'].to_pylist()))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "t")]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert {int(p.communicate()[0]) for p in running} == {sum(expected().values())}
    assert list(folder.iterdir())


@st.composite
def made(draw: st.DrawFn) -> Outcome:
    records = draw(st.integers(0, 70))
    pick = st.lists(st.integers(0, max(records - 1, 0)), unique=True, max_size=records)
    kept = np.array(sorted(draw(pick)) if records else [], np.int64)
    dead = np.array(sorted(draw(st.sets(st.integers(0, 2**40), max_size=records))), np.int64)
    by = np.array(draw(st.lists(st.integers(0, 2**40), min_size=len(dead), max_size=len(dead))), np.int64)
    own = np.array(draw(st.lists(st.booleans(), min_size=len(kept), max_size=len(kept))), np.bool_)
    return Outcome(records, dead, by, kept, own, draw(st.booleans()))


@given(made())
def test_an_outcome_comes_back_as_it_was(one: Outcome) -> None:
    found = outcomes._decoded(outcomes._encoded(one))
    assert found is not None
    assert (found.records, found.beaten) == (one.records, one.beaten)
    for name in ("dead", "by", "kept", "own"):
        assert np.array_equal(getattr(found, name), getattr(one, name))


@pytest.fixture
def partitioned(tmp_path: Path) -> duckdb.DuckDBPyConnection:
    schema = pa.schema([("id", pa.int64()), ("p", pa.string()), ("v", pa.int64())])
    table = lakesql.create_table(str(tmp_path / "t"), schema, type="mor", primary_key=["id"], partitioned_by=["p"])
    table.insert([{"id": i, "p": "ab"[i % 2], "v": 0} for i in range(10)])
    table.upsert([{"id": i, "p": "ab"[i % 2], "v": 1} for i in range(4)])
    con = duckdb.connect()
    lakesql.register(con)
    con.execute(f"CREATE VIEW t AS FROM hudi_scan('{table.path}')")
    return con


def test_slices_known_and_unknown_are_mixed_in_one_read(
    partitioned: duckdb.DuckDBPyConnection, folder: Path, joins: list[int]
) -> None:
    sql = "SELECT id, v FROM t ORDER BY id"
    want = [(i, int(i < 4)) for i in range(10)]
    deltas._cache.clear()
    assert partitioned.execute(sql).fetchall() == want
    next(iter(folder.iterdir())).unlink()
    deltas._cache.clear()
    planned._known.clear()
    joins.clear()
    assert partitioned.execute(sql).fetchall() == want
    assert joins == [1]


def test_compaction_uses_what_reads_have_kept_and_keeps_nothing(tmp_path: Path, folder: Path, joins: list[int]) -> None:
    table = mor(tmp_path / "t")
    assert rows(table) == expected()
    before = sorted(folder.iterdir())
    deltas._cache.clear()
    joins.clear()
    table.compact()
    assert joins == []
    assert sorted(folder.iterdir()) == before
    assert rows(lakesql.open_table(table.path)) == expected()
