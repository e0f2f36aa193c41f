"""Which file slices a clustering takes: Hudi's settings and rules; and its plans, ours and those that Spark left."""

import zipfile
from pathlib import Path
from typing import Any

import pytest

from lakesql.errors import TableError, Unsupported
from lakesql.format.files import BaseFile, FileSlice, LogFile
from lakesql.format.metadata import decode_record, encode_record
from lakesql.services.clustering import config_of
from lakesql.services.clustering_plan import (
    ClusteringConfig,
    Group,
    chosen_partitions,
    groups_of,
    plan_of,
    record_of,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "tables"
MIB = 1 << 20


def a_slice(file_id: str, size: int | None, partition: str = "x", logs: int = 0) -> FileSlice:
    base = None if size is None else BaseFile(partition, f"{file_id}_0-0-1_1.parquet", file_id, "0-0-1", "1", size)
    made = tuple(LogFile(partition, f".{file_id}_1.log.{n}_0-0-1", file_id, "1", n, "0-0-1", 10) for n in range(logs))
    return FileSlice(partition, file_id, "1", base, made)


def planned(slices: list[FileSlice], **settings: Any) -> list[tuple[list[str], int]]:
    partitions = sorted({s.partition for s in slices})
    found = groups_of(slices, ClusteringConfig(**settings), partitions, 100)
    return [([s.file_id for s in group.slices], group.outputs) for group in found]


def test_small_files_of_a_partition_are_one_group_largest_first() -> None:
    slices = [a_slice("a", 10), a_slice("b", 30), a_slice("c", 300 * MIB), a_slice("d", 20, "y"), a_slice("e", 5, "y")]
    assert planned(slices) == [(["b", "a"], 1), (["d", "e"], 1)]


def test_groups_are_cut_at_their_size_and_make_files_of_the_target_size() -> None:
    slices = [a_slice(name, 40) for name in "abcde"]
    assert planned(slices, group_bytes=80, target_file_bytes=30) == [(["a", "b"], 3), (["c", "d"], 3), (["e"], 2)]


def test_no_more_groups_than_allowed() -> None:
    slices = [a_slice(name, 40, name) for name in "abcde"]
    assert planned(slices, max_groups=2) == [(["a"], 1), (["b"], 1)]


def test_a_group_without_base_file_is_small_and_counts_as_a_full_file() -> None:
    assert planned([a_slice("a", None, logs=1), a_slice("b", 40)], group_bytes=120) == [(["a"], 1), (["b"], 1)]


def test_a_single_file_group_is_left_alone_only_when_asked_and_unsorted() -> None:
    assert planned([a_slice("a", 10)]) == [(["a"], 1)]
    assert planned([a_slice("a", 10)], single_groups=False) == []
    assert planned([a_slice("a", 10)], single_groups=False, sort_columns=("v",)) == [(["a"], 1)]


PARTITIONS = [f"day={n:02d}" for n in range(1, 31)]


@pytest.mark.parametrize(
    ("settings", "want"),
    [
        ({}, PARTITIONS),
        ({"filter.mode": "RECENT_DAYS"}, ["day=30", "day=29"]),
        ({"filter.mode": "recent_days", "daybased.skipfromlatest.partitions": "3"}, ["day=27", "day=26"]),
        ({"filter.mode": "RECENT_DAYS", "daybased.lookback.partitions": "1"}, ["day=30"]),
        (
            {
                "filter.mode": "SELECTED_PARTITIONS",
                "cluster.begin.partition": "day=05",
                "cluster.end.partition": "day=07",
            },
            ["day=05", "day=06", "day=07"],
        ),
        ({"filter.mode": "DAY_ROLLING"}, ["day=03", "day=27"]),
        ({"partition.selected": "day=09, day=11,day=99"}, ["day=09", "day=11"]),
        ({"partition.regex.pattern": "day=1[01]"}, ["day=10", "day=11"]),
    ],
)
def test_partitions_are_chosen_by_hudis_settings(settings: dict[str, str], want: list[str]) -> None:
    names = {
        f"hoodie.clustering.plan.{'partition.' if k == 'filter.mode' else 'strategy.'}{k}": v
        for k, v in settings.items()
    }
    assert chosen_partitions(PARTITIONS, config_of(names), hour=2) == want


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("hoodie.layout.optimize.strategy", "spiral", "must be one of linear, z-order, hilbert"),
        ("hoodie.clustering.plan.partition.filter.mode", "SOME", "must be one of NONE, RECENT_DAYS"),
        ("hoodie.clustering.plan.strategy.partition.regex.pattern", "(", "must be a regular expression"),
        ("hoodie.clustering.plan.strategy.class", "my.Own", "lakesql knows org.apache.hudi"),
        ("hoodie.clustering.plan.strategy.max.num.groups", "0", "must be at least 1"),
    ],
)
def test_a_setting_that_cannot_be_is_named(name: str, value: str, text: str) -> None:
    with pytest.raises(TableError, match=f"setting {name} = '.*': {text}"):
        config_of({name: value})


def test_a_plan_is_read_back_as_it_was_made() -> None:
    groups = [Group((a_slice("a", 3 * MIB, logs=2), a_slice("b", None, logs=1)), 2)]
    record = record_of(groups, ClusteringConfig(sort_columns=("v", "w"), layout="hilbert"), "/data/t", MIB)
    plan = plan_of(decode_record(encode_record("HoodieRequestedReplaceMetadata", record), "here"), "here")
    assert plan is not None
    ((first, second), outputs) = plan.groups[0]
    assert (first.file_id, outputs, plan.sort_columns, plan.layout) == ("a", 2, ("v", "w"), "hilbert")
    assert first.files == {"a_0-0-1_1.parquet", ".a_1.log.0_0-0-1", ".a_1.log.1_0-0-1"}
    assert second.files == {".b_1.log.0_0-0-1"}
    metrics = record["clusteringPlan"]["inputGroups"][0]["metrics"]
    assert metrics == {
        "TOTAL_LOG_FILES": 3.0,
        "TOTAL_IO_MB": 7.0,
        "TOTAL_IO_READ_MB": 3.0,
        "TOTAL_LOG_FILES_SIZE": 30.0,
        "TOTAL_IO_WRITE_MB": 4.0,
    }


@pytest.mark.parametrize("name", ["h015_clustered_mor", "h102_clustered_cow", "h120_clustered_mor"])
def test_our_plan_of_sparks_file_groups_is_sparks_plan(name: str) -> None:
    """Metrics, paths and shape, field by field, but for the folder of the table and what Hudi 0.15 and 1.0 leave out."""
    with zipfile.ZipFile(GOLDEN / f"{name}.zip") as archive:
        plans = [n for n in archive.namelist() if n.endswith(("replacecommit.requested", "clustering.requested"))]
        stored = decode_record(archive.read(max(p for p in plans if "/metadata/" not in p)), name)
        sizes = {i.filename.rsplit("/", 1)[-1]: i.file_size for i in archive.infolist()}
    groups = []
    for group in stored["clusteringPlan"]["inputGroups"]:
        slices = []
        for one in group["slices"]:
            partition, file_id = one["partitionPath"], one["fileId"]
            base = one["dataFilePath"].rsplit("/", 1)[-1]
            logs = [path.rsplit("/", 1)[-1] for path in one["deltaFilePaths"]]
            made = tuple(LogFile(partition, n, file_id, "", 1, "", sizes[n]) for n in logs)
            slices.append(
                FileSlice(partition, file_id, "", BaseFile(partition, base, file_id, "", "", sizes[base]), made)
            )
        groups.append(Group(tuple(slices), group["numOutputFileGroups"]))
    root = (
        stored["clusteringPlan"]["inputGroups"][0]["slices"][0]["dataFilePath"].removeprefix("file:").split("/part=")[0]
    )
    ours = record_of(groups, ClusteringConfig(), root, 0)
    stored["clusteringPlan"].setdefault("missingSchedulePartitions", [])
    assert ours == stored


def test_a_plan_for_another_execution_is_refused() -> None:
    record = record_of([Group((a_slice("a", 1),), 1)], ClusteringConfig(), "/t", 0)
    record["clusteringPlan"]["strategy"]["strategyClassName"] = "org.x.SparkConsistentBucketClusteringExecutionStrategy"
    with pytest.raises(
        Unsupported, match="SparkConsistentBucketClusteringExecutionStrategy, which lakesql does not know"
    ):
        plan_of(record, "t")
