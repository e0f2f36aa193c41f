"""AS SELECT into files: what is selected lies in the files, once, whatever dies in between."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from lakesql.errors import JobError, LakeError
from lakesql.ingest.file_sink import FileSink
from lakesql.ingest.model import Job
from lakesql.storage import LocalStorage
from tests.faulty import HOW, FaultError, FaultyStorage
from tests.unit.ingest import test_file_sink as plain
from tests.unit.ingest.test_file_sink import AT, decoded, numbers, state, unit

BY_KAFKA_TIME = "SELECT number, number * 10 AS ten, _timestamp FROM kafka WHERE number <> 2"


def job(path: Path, select: str, **options: str) -> Job:
    made = plain.job(path, **options)
    return replace(made, target=replace(made.target, select=select), settings={"lakesql.spool.dir": str(path.parent)})


def by_task(path: Path, select: str, **options: str) -> Job:
    return job(path, select, **{"lakesql.files.layout": "task", **options})


def run(given: Job, upto: int, storage: Any = None, con: Any = None) -> None:
    plain.run(FileSink(given, given.target.path, storage, con), upto)


def table(path: Path) -> list[dict[str, Any]]:
    return [row for file in sorted(path.rglob("[!.]*.parquet")) for row in pq.read_table(file).to_pylist()]


def test_what_is_selected_lies_in_the_folders_of_its_time(tmp_path: Path) -> None:
    run(job(tmp_path / "f", BY_KAFKA_TIME), 6)
    found = sorted(str(p.relative_to(tmp_path / "f")) for p in tmp_path.rglob("*.avro"))
    assert found == [
        "orders/hourly/1970/01/01/00/part.task_pull_0000000001_0.avro",
        "orders/hourly/1970/01/01/01/part.task_pull_0000000001_0.avro",
    ]
    assert numbers(tmp_path / "f") == [0, 1, 3, 4, 5]
    assert [p.name for p in tmp_path.iterdir()] == ["f"]  # nothing waits any more


def test_a_selected_column_chooses_the_folder(tmp_path: Path) -> None:
    select = "SELECT number, make_timestamp(3_600_000_000 * (number // 2)) AS at FROM kafka"
    run(job(tmp_path / "f", select, **{"writer.partition.column.name": "at"}), 5)
    assert len(list(tmp_path.rglob("*.avro"))) == 3


def test_the_query_sees_all_records_of_a_topic_in_the_commit_and_tables_of_the_connection(tmp_path: Path) -> None:
    select = (
        "SELECT _topic AS topic, count(*) AS n, list(_offset) AS offsets, any_value(v) AS v, NULL::INTEGER AS nothing "
        "FROM kafka JOIN names USING (number) GROUP BY ALL;"
    )
    given = by_task(tmp_path / "f", select, **{"writer.output.format": "PARQUET"})
    with duckdb.connect() as con:
        con.execute("CREATE TABLE names AS SELECT range AS number, 'x' AS v FROM range(4)")
        sink = FileSink(given, given.target.path, con=con)
        load = sink.begin(sink.stored(), "r")
        load.take(unit(0, 9, 0), decoded(3, 6))
        load.take(unit(0, 9, 1, "b"), decoded(0, 2, "b"))
        load.take(unit(0, 9, 0), decoded(0, 3))
        load.commit(state(9))
    assert table(tmp_path / "f") == [
        {"topic": "b", "n": 2, "offsets": [0, 1], "v": "x", "nothing": None},
        {"topic": "orders", "n": 4, "offsets": [0, 1, 2, 3], "v": "x", "nothing": None},
    ]


def test_topics_with_other_columns_do_not_see_each_other(tmp_path: Path) -> None:
    given = by_task(tmp_path / "f", "SELECT * EXCLUDE (_headers) FROM kafka", **{"writer.output.format": "PARQUET"})
    sink = FileSink(given, given.target.path)
    load = sink.begin(sink.stored(), "r")
    other = decoded(0, 1, "b")
    load.take(unit(0, 9, 0), decoded(0, 1))
    load.take(
        unit(0, 9, 1, "b"), replace(other, rows=other.rows.rename_columns(["other", *other.rows.schema.names[1:]]))
    )
    load.commit(state(1))
    assert [next(iter(row)) for row in table(tmp_path / "f")] == ["other", "number"]


def test_what_was_forgotten_is_not_selected_and_bad_records_are_kept(tmp_path: Path) -> None:
    given = by_task(tmp_path / "f", "SELECT number FROM kafka")
    sink = FileSink(given, given.target.path)
    load = sink.begin(sink.stored(), "r")
    load.take(unit(0, 3, 0), decoded(0, 3))
    load.take(unit(3, 9, 1), decoded(3, 9, bad=1))
    load.forget(unit(0, 3, 0))
    load.commit(state(9))
    assert numbers(tmp_path / "f") == list(range(4, 9))
    (named,) = sink.stored().quarantine
    assert (tmp_path / "f" / named).exists()


def test_a_commit_without_records_selects_nothing(tmp_path: Path) -> None:
    given = by_task(tmp_path / "f", "SELECT count(*) AS n FROM kafka")
    run(given, 0)
    assert list(tmp_path.rglob("*.avro")) == []
    assert FileSink(given, given.target.path).stored().offsets() == {AT: 0}


@pytest.mark.parametrize(
    ("select", "text"),
    [
        ("SELECT number FROM kafka", "gives no time for the folders"),
        ("SELECT 'x' AS _timestamp, number FROM kafka", "gives no time for the folders"),
        ("SELECT nothing FROM kafka", "AS SELECT does not fit the records: .*nothing.* has the columns number, _topic"),
        ("SELECT CAST(_topic AS INTEGER) AS a, _timestamp FROM kafka", "AS SELECT fails over the records: .*orders"),
        pytest.param(
            "SELECT NULL AS a, _timestamp FROM kafka",
            "selected column a is NULL without a type",
            marks=pytest.mark.skipif(duckdb.__version__ < "2", reason="DuckDB 1 gives it a type"),
        ),
        ("SELECT 1; SELECT 2", "more than one statement"),
    ],
)
def test_a_query_that_does_not_fit_commits_nothing(tmp_path: Path, select: str, text: str) -> None:
    given = job(tmp_path / "f", select)
    with pytest.raises(JobError, match=text):
        run(given, 5)
    assert numbers(tmp_path / "f") == []
    assert FileSink(given, given.target.path).stored().offsets() == {}
    assert not list(tmp_path.rglob("staging/*"))
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


@pytest.mark.parametrize("how", HOW)
def test_death_at_any_call_loses_nothing_and_doubles_nothing(how: str, tmp_path: Path) -> None:
    for fail_at in range(1, 200):
        target = tmp_path / str(fail_at) / "f"
        given = job(target, BY_KAFKA_TIME)
        target.mkdir(parents=True)
        run(given, 4)
        faulty = FaultyStorage(LocalStorage(target), fail_at, how)
        with suppress(FaultError, LakeError):
            run(given, 11, faulty)
        run(given, 14)
        assert numbers(target) == [n for n in range(14) if n != 2], fail_at
        assert not list(target.rglob("staging/*"))
        if not faulty.failed:
            return
    raise AssertionError("the run has more calls than are tried")
