"""Which slices a compaction plan takes, and when one is due: pure rules."""

from datetime import UTC, date

import pytest

from lakesql.errors import TableError
from lakesql.format.files import BaseFile, FileSlice, LogFile
from lakesql.format.timeline import Timeline, instant_millis
from lakesql.services.compaction_plan import (
    STRATEGIES,
    CompactionConfig,
    choose,
    day_of,
    is_due,
    operation_of,
    parse_config,
    plan_record,
    slices_of,
)

MB = 1 << 20
T = [f"202601010{n}0000000" for n in range(10)]
TODAY = date(2026, 1, 20)


def one(name, base_mb=0, logs_mb=(1,), partition="p"):
    base = BaseFile(partition, f"{name}_0-0-1_{T[1]}.parquet", name, "0-0-1", T[1], base_mb * MB) if base_mb else None
    logs = [LogFile(partition, f".{name}_{i}", name, T[2], i, "", int(mb * MB)) for i, mb in enumerate(logs_mb)]
    return operation_of(FileSlice(partition, name, T[1], base, tuple(logs)), 120 * MB)


def names(operations, **config):
    return [o.slice.file_id for o in choose(operations, CompactionConfig(**config), TODAY, "t")]


def test_cost_counts_whole_megabytes_and_a_full_file_where_none_is():
    with_base, without = one("a", 10, (1.6, 1.6)), one("b", 0, (0.5,))
    assert (with_base.log_bytes, with_base.read_mb, with_base.write_mb, with_base.io_mb) == (3355442, 13, 10, 23)
    assert (without.read_mb, without.write_mb) == (0, 120)


def test_log_size_strategy_takes_the_largest_logs_first_within_the_budget():
    operations = [one("small", 10, (1,)), one("large", 10, (9,)), one("middle", 10, (5,))]
    assert names(operations) == ["large", "middle", "small"]
    assert names(operations, target_io_mb=29) == ["large"]
    assert names(operations, target_io_mb=30) == ["large", "middle"]
    assert names(operations, log_bytes_min=5 * MB) == ["large", "middle"]


def test_log_number_strategy_counts_files():
    operations = [one("few", 1, (9,)), one("many", 1, (1, 1, 1)), one("two", 1, (1, 1))]
    kept = {"strategy": "LogFileNumBasedCompactionStrategy"}
    assert names(operations, **kept) == ["many", "two", "few"]
    assert names(operations, log_files_min=2, **kept) == ["many", "two"]


def test_unbounded_takes_all_and_bounded_keeps_the_order():
    operations = [one("a", 10), one("b", 10), one("c", 10)]
    assert names(operations, strategy="UnBoundedCompactionStrategy", target_io_mb=1) == ["a", "b", "c"]
    assert names(operations, strategy="BoundedIOCompactionStrategy", target_io_mb=22) == ["a", "b"]


def test_day_strategies_split_at_the_same_day():
    days = ["2026/01/21", "2026/01/18", "2026/01/17", "2025/12/31"]
    operations = [one(d[-5:], partition=d) for d in sorted(days)]
    newest = names(operations, strategy="DayBasedCompactionStrategy", target_days=2)
    recent = names(operations, strategy="BoundedPartitionAwareCompactionStrategy", target_days=2)
    older = names(operations, strategy="UnBoundedPartitionAwareCompactionStrategy", target_days=2)
    assert (newest, recent, older) == (["01/21", "01/18"], ["01/21", "01/18"], ["12/31", "01/17"])


@pytest.mark.parametrize("partition", ["2026/01/02", "2026-01-02", "day=2026-01-02", "year=2026/month=1/day=2"])
def test_days_are_found_in_every_spelling(partition):
    assert day_of(partition) == date(2026, 1, 2)


def test_a_partition_that_is_no_day_is_named():
    with pytest.raises(TableError, match="the partition 'p' is no day"):
        names([one("a")], strategy="DayBasedCompactionStrategy")


def test_regex_strategy_looks_at_partition_paths():
    operations = [one("a", partition="city=rome"), one("b", partition="city=oslo")]
    kept = {"strategy": "PartitionRegexBasedCompactionStrategy"}
    assert names(operations, partition_regex="os?lo$", **kept) == ["b"]
    assert names(operations, **kept) == ["a", "b"]


def timeline(*files):
    return Timeline.from_file_names(files, 1)


def delta(n):
    return f"{T[n]}.deltacommit"


DONE = (f"{T[3]}.compaction.requested", f"{T[3]}.compaction.inflight", f"{T[3]}.commit")


@pytest.mark.parametrize(
    ("trigger", "files", "hours", "due"),
    [
        ("NUM_COMMITS", (), 9, False),
        ("NUM_COMMITS", (delta(1),), 1, False),
        ("NUM_COMMITS", (delta(1), delta(2)), 2, True),
        ("NUM_COMMITS", (delta(1), delta(2), *DONE, delta(4)), 9, False),
        ("NUM_COMMITS", (*DONE, delta(4), delta(5)), 5, True),
        ("NUM_COMMITS", (delta(1), f"{T[3]}.compaction.requested", delta(4)), 4, True),
        ("NUM_COMMITS_AFTER_LAST_REQUEST", (delta(1), f"{T[3]}.compaction.requested", delta(4)), 4, False),
        ("TIME_ELAPSED", (delta(1),), 3, False),
        ("TIME_ELAPSED", (delta(1),), 4, True),
        ("TIME_ELAPSED", (delta(1), *DONE, delta(4)), 5, False),
        ("NUM_AND_TIME", (delta(1), delta(2)), 3, False),
        ("NUM_AND_TIME", (delta(1), delta(2)), 4, True),
        ("NUM_OR_TIME", (delta(1),), 4, True),
        ("NUM_OR_TIME", (delta(1), delta(2)), 2, True),
    ],
)
def test_triggers(trigger, files, hours, due):
    config = CompactionConfig(trigger=trigger, max_commits=2, max_seconds=3 * 3600)
    assert is_due(config, timeline(*files), instant_millis(T[hours]), UTC) is due


def test_settings_take_class_names_with_and_without_package():
    package = "org.apache.hudi.table.action.compact.strategy."
    for name in STRATEGIES:
        assert parse_config({"hoodie.compaction.strategy": package + name}).strategy == name
    with pytest.raises(TableError, match=r"hoodie\.compaction\.strategy = 'Mine': must be one of LogFileSizeBased"):
        parse_config({"hoodie.compaction.strategy": "Mine"})
    with pytest.raises(TableError, match=r"trigger\.strategy = 'NEVER': must be one of NUM_COMMITS"):
        parse_config({"hoodie.compact.inline.trigger.strategy": "NEVER"})


def test_a_plan_gives_back_the_slices_it_was_made_from():
    operations = [one("a", 10, (1, 2)), one("b", 0, (1,))]
    files = [f for o in operations for f in (*((o.slice.base,) if o.slice.base else ()), *o.slice.logs)]
    record = plan_record(operations, 9)
    assert slices_of(record, files, (), "t") == [o.slice for o in operations]
    assert set(record["operations"][0]["metrics"]) == {
        "TOTAL_LOG_FILES",
        "TOTAL_LOG_FILES_SIZE",
        "TOTAL_IO_READ_MB",
        "TOTAL_IO_WRITE_MB",
        "TOTAL_IO_MB",
    }
    with pytest.raises(TableError, match=r"names p/\.a_1, which is gone"):
        slices_of(record, [f for f in files if f.name != ".a_1"], (), "t")
    assert slices_of(record, [f for f in files if f.file_id != "a"], {("p", "a")}, "t") == [operations[1].slice]
