"""`sql/hudi.sql` in the stock DuckDB shell on tables made here: what services leave behind, and what is refused."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import lakesql
from tests.duckdb_shell import MACROS, ask, difference, run
from tests.samples import Kind, create, rows

KINDS = [Kind(type_, version, flat) for type_ in ("cow", "mor") for version in (9, 8, 6) for flat in (True, False)]


def error(query: str, folder: Path) -> str:
    (answer,) = ask([query], folder)
    assert isinstance(answer, str)
    return answer


def lived_in(path: Path, kind: Kind) -> lakesql.Table:
    """A table with clustered, overwritten and compacted file groups, pending plans, and a file that nobody committed."""
    table = create(path, kind)
    table.insert(rows(("1", "oslo", 1, 1), ("2", "rome", 1, 1)))
    table.insert(rows(("3", "oslo", 1, 1)))
    table.cluster(["id"])
    table.upsert(rows(("1", "oslo", 2, 2), ("4", "rome", 2, 2)))
    table.insert_overwrite(rows(("5", "oslo", 3, 3)))
    table.upsert(rows(("5", "oslo", 4, 4), ("6", "rome", 4, 4)))
    if kind.type == "mor":
        table.compact()
        table.upsert(rows(("5", "oslo", 5, 5)))
        table.compact(run=False)
        if kind.version >= 8:  # version 6 refuses: changes written now could be lost
            table.upsert(rows(("5", "oslo", 6, 6)))
    base = next(path.rglob("*.parquet"))
    token = base.name.split("_")
    base.with_name(f"{token[0]}_{token[1]}_20990101000000000.parquet").write_bytes(base.read_bytes())
    return table


def compared(con: lakesql.Connection, calls: Sequence[str], folder: Path) -> list[str]:
    """What the shell answers differently than lakesql."""
    answers = ask([f"FROM {call}" for call in calls], folder)
    wrong = []
    for call, answer in zip(calls, answers, strict=True):
        want = con.sql(f"FROM {call}").to_arrow_table()
        problem = answer if isinstance(answer, str) else difference(want, answer)
        if problem:
            wrong.append(f"{call}: {problem}")
    return wrong


@pytest.mark.parametrize("type_", ["cow", "mor"])
def test_services_and_overwrites_leave_the_rows_that_lakesql_reads(type_: str, tmp_path: Path) -> None:
    con = lakesql.connect()
    calls = []
    for kind in (k for k in KINDS if k.type == type_):
        path = str(tmp_path / str(kind))
        table = lived_in(Path(path), kind)
        instants = [i for i in table.timeline().to_pylist() if i["rows_written"] is not None]
        calls += [f"hudi_read_optimized('{path}')", f"hudi_files('{path}')", f"hudi_partitions('{path}')"]
        calls += [f"hudi_timeline('{path}')", f"hudi_properties('{path}')"]
        calls += [f"hudi_read_optimized('{path}', as_of := '{i['instant']}')" for i in instants[2:6]]
        calls.append(f"hudi_files('{path}', as_of := '{instants[4]['instant']}')")
        if type_ == "cow":
            times = [i["completed"] or i["instant"] for i in instants]
            calls += [f"hudi_scan('{path}')", f"hudi_incremental('{path}', 'earliest', \"end\" := '{times[3]}')"]
            calls.append(f"hudi_incremental('{path}', '{times[1]}', \"end\" := '{times[4]}')")
            calls.append(f"hudi_incremental('{path}', '{times[2]}')")
    assert compared(con, calls, tmp_path) == []


def test_what_needs_merging_is_refused_with_the_way_out(tmp_path: Path) -> None:
    paths = [str(tmp_path / str(kind)) for kind in KINDS if kind.type == "mor"]
    for path, kind in zip(paths, (k for k in KINDS if k.type == "mor"), strict=True):
        table = create(path, kind)
        table.insert(rows(("1", "oslo", 1, 1)))
        table.upsert(rows(("1", "oslo", 2, 2)))
    calls = [f"FROM hudi_scan('{path}')" for path in paths] + [
        f"FROM hudi_incremental('{path}', '0')" for path in paths
    ]
    calls += [f"SELECT count(*) FROM hudi_scan('{path}')" for path in paths]
    for call, answer in zip(calls, ask(calls, tmp_path), strict=True):
        assert isinstance(answer, str), call
        assert "there are log files to merge" in answer
        assert "needs lakesql" in answer
        assert "mode := 'read_optimized'" in answer
    modes = ask([f"SELECT v FROM hudi_scan('{path}', mode := 'read_optimized')" for path in paths], tmp_path)
    assert [isinstance(m, pa.Table) and m.to_pylist() for m in modes] == [[{"v": 1}]] * len(paths)


def test_wrong_paths_times_and_modes_are_named(tmp_path: Path) -> None:
    table = create(tmp_path / "t", Kind("cow", 9))
    t = tmp_path / "t"
    assert "no Hudi table here or one without data files" in error(f"FROM hudi_scan('{t}')", tmp_path)
    table.insert(rows(("1", "oslo", 1, 1)))
    (tmp_path / "plain").mkdir()
    shutil.copy(next(t.rglob("*.parquet")), tmp_path / "plain")
    for name in ("hudi_scan", "hudi_files", "hudi_timeline", "hudi_properties", "hudi_partitions"):
        assert "plain: not a Hudi table" in error(f"FROM {name}('{tmp_path}/plain')", tmp_path)
    shutil.copytree(t, tmp_path / "a folder's" / "t")
    for path in (f"{t}/", f"{tmp_path}/a folder's/t"):
        (answer,) = ask(["SELECT id FROM hudi_scan('" + path.replace("'", "''") + "')"], tmp_path)
        assert isinstance(answer, pa.Table)
        assert answer.to_pylist() == [{"id": "1"}]
    minutes = [f"FROM hudi_files('{t}', as_of := '{time}')" for time in ("2031-01-01 10:00", "2031-01-01T10:00+02:00")]
    assert all(isinstance(answer, pa.Table) and answer.num_rows == 1 for answer in ask(minutes, tmp_path))
    assert "as of 20200101100000000" in error(f"FROM hudi_scan('{t}', as_of := '2020-01-01 10:00')", tmp_path)
    assert "'soon' is not a point in time" in error(f"FROM hudi_scan('{t}', as_of := 'soon')", tmp_path)
    assert "mode 'fast' is unknown" in error(f"FROM hudi_scan('{t}', mode := 'fast')", tmp_path)
    assert "there was no table yet as of 2020" in error(f"FROM hudi_scan('{t}', as_of := '2020-01-01')", tmp_path)
    assert "give begin" in error(f"FROM hudi_incremental('{t}', NULL)", tmp_path)
    assert "is after end" in error(f"FROM hudi_incremental('{t}', '2031-01-01', \"end\" := '2030-01-01')", tmp_path)
    assert "Use lakesql" in error(f"FROM hudi_timeline('{t}', archived := true)", tmp_path)


def test_a_state_that_was_cleaned_or_archived_away_is_refused(tmp_path: Path) -> None:
    t = tmp_path / "t"
    table = create(t, Kind("cow", 9))
    done = [table.upsert(rows(("1", "oslo", i, i))).instant for i in range(1, 8)]
    settings = {"hoodie.cleaner.commits.retained": "3", "hoodie.keep.min.commits": "4", "hoodie.keep.max.commits": "5"}
    table.clean(**settings)
    assert "has been cleaned away" in error(f"FROM hudi_scan('{t}', as_of := '{done[1]}')", tmp_path)
    table.archive(**settings)
    assert list((t / ".hoodie/timeline/history").glob("*.parquet"))
    assert "has been archived" in error(f"FROM hudi_scan('{t}', as_of := '{done[1]}')", tmp_path)
    assert "are archived" in error(f"FROM hudi_incremental('{t}', '{done[0]}')", tmp_path)
    calls = [f"hudi_scan('{t}')", f"hudi_scan('{t}', as_of := '{done[5]}')", f"hudi_incremental('{t}', 'earliest')"]
    assert compared(lakesql.connect(), calls, tmp_path) == []


def test_a_commit_that_comes_after_the_statement_has_begun_is_not_read_by_halves(tmp_path: Path) -> None:
    t = tmp_path / "t"
    create(t, Kind("cow", 9)).insert(rows(("1", "oslo", 1, 1)))
    con = duckdb.connect()
    con.execute(MACROS.read_text())
    con.execute("BEGIN")
    count = f"SELECT count(*) FROM hudi_scan('{t}')"
    assert con.sql(count).fetchall() == [(1,)]
    lakesql.open_table(str(t)).insert(rows(("2", "oslo", 1, 1)))
    with pytest.raises(duckdb.Error, match=r"came after this statement, or its transaction, had begun"):
        con.sql(count).fetchall()
    con.execute("COMMIT")
    assert con.sql(count).fetchall() == [(2,)]


def test_columns_of_files_that_are_not_the_table_s_are_refused(tmp_path: Path) -> None:
    t = tmp_path / "t"
    create(t, Kind("cow", 9)).insert(rows(("1", "oslo", 1, 1)))
    base = next(t.rglob("*.parquet"))
    name = base.name.split("_")
    stray = base.with_name(f"{name[0]}_{name[1]}_20990101000000000.parquet")
    duckdb.sql(f"COPY (SELECT *, 1 AS more FROM '{base}') TO '{stray}'")
    assert "the data files have the columns" in error(f"FROM hudi_scan('{t}')", tmp_path)


def test_replaced_groups_that_cannot_be_told_are_refused(tmp_path: Path) -> None:
    for number, (new_name, text) in enumerate(
        [("odd_0-0-0", "is named in a way"), (None, "has its name in several partitions")]
    ):
        t = tmp_path / f"t{number}"
        table = create(t, Kind("cow", 9))
        table.insert(rows(("1", "oslo", 1, 1), ("2", "rome", 1, 1)))
        base = next(t.rglob("city=oslo/*.parquet"))
        table.insert_overwrite(rows(("3", "oslo", 1, 1)))
        name = f"{new_name}_{base.name.rsplit('_', 1)[1]}" if new_name else base.name
        shutil.copy(base, t / "city=rome" / name)
        assert text in error(f"FROM hudi_scan('{t}')", tmp_path)


def test_the_file_loads_in_the_library_too_and_leaves_no_objects_behind(tmp_path: Path) -> None:
    create(tmp_path / "t", Kind("cow", 8)).insert(rows(("1", "oslo", 1, 1)))
    con = duckdb.connect(str(tmp_path / "x.duckdb"))
    con.execute(MACROS.read_text())
    assert con.sql(f"SELECT id FROM hudi_scan('{tmp_path}/t')").fetchall() == [("1",)]
    con.close()
    con = duckdb.connect(str(tmp_path / "x.duckdb"))
    assert con.sql("SELECT count(*) FROM duckdb_functions() WHERE function_name LIKE 'hudi%'").fetchall() == [(0,)]


def test_loading_says_nothing(tmp_path: Path) -> None:
    done = run("SELECT 42 AS answer;", tmp_path)
    assert "Error" not in done.stderr
    assert "answer" in done.stdout
