"""Procedures give the rows that Hudi's give on Spark, on real tables of versions 9 and 6; and Spark reads what we mended."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import lakesql
from lakesql.procedures.declare import shown
from tests.interop.spark import SparkHudi

TABLES = Path(__file__).parents[1] / "golden" / "tables"
DIFFERENT = {"delta_files", "delta_files_compaction_scheduled", "delta_files_compaction_unscheduled"}
"""Java's toString of a log file, in another form with each release."""
TIMES = {"state_transition_time"}
"""In version 6 the time of a file, which unzipping has changed."""


def unzipped(name: str, folder: Path) -> lakesql.Table:
    with zipfile.ZipFile(TABLES / f"{name}.zip") as archive:
        archive.extractall(folder)
    return lakesql.open_table(str(folder / name))


def called(spark: SparkHudi, table: lakesql.Table, name: str, **arguments: Any) -> tuple[list[Any], list[Any]]:
    """The rows of a procedure, ours and Spark's, without what is told differently."""
    given = {key: value for key, value in arguments.items() if value is not None}
    texts = "".join(f", {key} => {shown(value)}" for key, value in given.items())
    with lakesql.connect(warehouse=str(Path(table.path).parent)) as con:
        ours = con.sql(f"CALL {name}(path => '{table.path}'{texts})").to_arrow_table().to_pylist()
    theirs = spark.sql(f"CALL {name}(table => 't'{texts})").to_pylist()
    hidden = DIFFERENT | (TIMES if table.state.config.version < 8 else set())
    return ([plain(row, hidden) for row in ours], [plain(row, hidden) for row in theirs])


def plain(row: Mapping[str, Any], hidden: set[str]) -> dict[str, Any]:
    return {
        key: value.removeprefix("file:") if isinstance(value, str) else value
        for key, value in row.items()
        if key not in hidden
    }


def sort(rows: list[Any]) -> list[Any]:
    return sorted(rows, key=repr)


@pytest.mark.parametrize(
    ("spark", "name"),
    [
        ("1.2.0", "h120_rollback_mor"),
        ("1.2.0", "h120_services_mor"),
        ("1.2.0", "h120_clustered_cow"),
        ("0.15.0", "h015_clustered_cow"),
        ("0.15.0", "h015_overwrite_table_mor"),
    ],
    indirect=["spark"],
)
def test_rows_are_those_of_hudi(spark: SparkHudi, name: str, tmp_path: Path) -> None:
    table = unzipped(name, tmp_path)
    state = table.state
    spark.sql("DROP TABLE IF EXISTS t", f"CREATE TABLE t USING hudi LOCATION '{table.path}'")
    newest = max(i.requested for i in state.timeline.completed_writes())
    calls: list[tuple[str, dict[str, Any]]] = [
        ("show_commits", {}),
        ("show_commits_metadata", {"limit": 100}),
        ("show_commit_files", {"instant_time": newest}),
        ("show_commit_partitions", {"instant_time": newest}),
        ("show_commit_write_stats", {"instant_time": newest}),
        ("show_commit_extra_metadata", {"instant_time": newest}),
        ("show_table_properties", {"limit": 100}),
        ("show_fsview_all", {"limit": 100}),
        ("show_fsview_latest", {"limit": 100}),
        ("stats_file_sizes", {"limit": 100}),
        ("stats_wa", {"limit": 100}),
    ]
    if log := next((log for s in state.slices() for log in s.logs), None):
        calls.append(("show_logfile_metadata", {"log_file_path_pattern": f"{table.path}/{log.path}"}))
    different = {}
    for procedure, arguments in calls:
        ours, theirs = called(spark, table, procedure, **arguments)
        if sort(ours) != sort(theirs):
            different[procedure] = ([r for r in ours if r not in theirs], [r for r in theirs if r not in ours])
    assert different == {}
