"""Folders of ingested files: by the record's own time, as Gobblin's users have them."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from lakesql.errors import JobError
from lakesql.ingest.folders import NO_TIME, time_folders, topic_folder

MOMENT = 1428532345678  # 2015-04-08 22:32:25.678 UTC, 15:32 in Los Angeles
SAMPLE = {
    "writer.partition.level": "hourly",
    "writer.partition.pattern": "YYYY/MM/dd/HH",
    "writer.partition.column.name": "header.time",
    "writer.builder.class": "gobblin.writer.AvroTimePartitionedWriterBuilder",
}


def rows(times: list[int | None], kafka: list[int | None] | None = None) -> pa.Table:
    headers = pa.array([{"time": t} for t in times], pa.struct([("time", pa.int64())]))
    stamps = pa.array(kafka if kafka is not None else [0] * len(times), pa.timestamp("ms", "UTC"))
    return pa.table({"header": headers, "_timestamp": stamps})


def names(options: dict[str, str], table: pa.Table) -> list[str]:
    folders = time_folders(options)
    assert folders is not None
    return folders.of(table).to_pylist()


def test_the_well_known_sample_gives_the_folders_that_gobblin_gives() -> None:
    assert names({**SAMPLE, "writer.partition.timezone": "America/Los_Angeles"}, rows([MOMENT])) == [
        "hourly/2015/04/08/15"
    ]


def test_without_a_time_zone_folders_are_in_utc() -> None:
    assert names(SAMPLE, rows([MOMENT])) == ["hourly/2015/04/08/22"]


def test_level_and_pattern_default_to_days() -> None:
    assert names({"data.publisher.type": "gobblin.publisher.TimePartitionedDataPublisher"}, rows([1], [MOMENT])) == [
        "daily/2015/04/08"
    ]


def test_the_kafka_timestamp_stands_in_where_the_record_has_no_time() -> None:
    assert names(SAMPLE, rows([None, MOMENT], [MOMENT + 3_600_000, 5])) == [
        "hourly/2015/04/08/23",
        "hourly/2015/04/08/22",
    ]


def test_a_record_without_any_time_is_kept_in_a_folder_of_its_own() -> None:
    assert names(SAMPLE, rows([None], [None])) == [NO_TIME]


def test_a_number_that_is_no_time_counts_as_none() -> None:
    assert names(SAMPLE, rows([2**63 - 1, -(2**63), 10**17], [MOMENT] * 3)) == ["hourly/2015/04/08/22"] * 3
    seconds = {**SAMPLE, "writer.partition.timeUnit": "SECONDS"}
    assert names(seconds, rows([2**62, MOMENT // 1000], [0, 0])) == ["hourly/1970/01/01/00", "hourly/2015/04/08/22"]


def test_the_first_column_with_a_value_decides() -> None:
    table = rows([None, MOMENT]).append_column("seen", pa.array([MOMENT - 3_600_000, 1]))
    options = {**SAMPLE, "writer.partition.columns": "header.time, seen"}
    assert names(options, table) == ["hourly/2015/04/08/21", "hourly/2015/04/08/22"]


def test_every_quarter_of_an_hour_of_a_zone_with_odd_offset_falls_where_its_clock_says() -> None:
    # 45 minutes: Kathmandu. The hour changes at a quarter past in UTC.
    before, behind = (int(datetime(2024, 5, 1, 4, m, 59, tzinfo=UTC).timestamp() * 1000) for m in (14, 15))
    options = {**SAMPLE, "writer.partition.timezone": "Asia/Kathmandu"}
    assert names(options, rows([before, behind])) == ["hourly/2024/05/01/09", "hourly/2024/05/01/10"]


def test_a_pattern_with_minutes_separates_minutes() -> None:
    options = {**SAMPLE, "writer.partition.pattern": "yyyy-MM-dd'T'HHmm"}
    assert names(options, rows([MOMENT, MOMENT + 60_000])) == ["hourly/2015-04-08T2232", "hourly/2015-04-08T2233"]


def test_times_before_1970_fall_into_their_hour() -> None:
    assert names(SAMPLE, rows([-1])) == ["hourly/1969/12/31/23"]


def test_the_newer_partitioner_has_granularity_prefix_suffix_and_unit() -> None:
    options = {
        "writer.partitioner.class": "org.apache.gobblin.writer.partitioner.TimeBasedAvroWriterPartitioner",
        "writer.partition.columns": "header.time",
        "writer.partition.granularity": "day",
        "writer.partition.timeUnit": "seconds",
        "writer.partition.prefix": "raw",
        "writer.partition.suffix": "v1",
    }
    assert names(options, rows([MOMENT // 1000])) == ["raw/2015/04/08/v1"]


def test_times_as_text_are_read_only_when_that_is_asked_for() -> None:
    table = pa.table({"at": ["1428532345678", "soon"], "_timestamp": pa.array([0, 0], pa.timestamp("ms", "UTC"))})
    options = {**SAMPLE, "writer.partition.column.name": "at"}
    with pytest.raises(JobError, match="its type is string"):
        names(options, table)
    asked = {**options, "writer.partition.enableParseAsString": "true"}
    assert names(asked, table) == ["hourly/2015/04/08/22", "hourly/1970/01/01/00"]


@pytest.mark.parametrize(
    ("column", "said"),
    [("footer.time", "no column 'footer'"), ("header.at", "no field 'at'"), ("header", "its type is struct")],
)
def test_a_configured_time_that_is_not_there_is_an_error(column: str, said: str) -> None:
    with pytest.raises(JobError, match=said):
        names({**SAMPLE, "writer.partition.column.name": column}, rows([MOMENT]))


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("writer.partition.timezone", "Mars/Olympus", "Mars/Olympus"),
        ("writer.partition.pattern", "yyyy/QQ", "QQ"),
        ("writer.partition.granularity", "fortnight", "hour"),
        ("writer.partition.timeUnit", "moons", "milliseconds"),
    ],
)
def test_unknown_values_are_refused(key: str, value: str, said: str) -> None:
    with pytest.raises(JobError, match=said):
        time_folders({**SAMPLE, key: value})


def test_without_any_setting_of_time_there_are_no_time_folders() -> None:
    assert time_folders({"writer.output.format": "AVRO"}) is None


@pytest.mark.parametrize(
    ("kind", "folder"),
    [
        ("tablename", "orders"),
        ("namespace_table", "gobblin/kafka/orders"),
        ("default", "gobblin/kafka/orders/r1_append"),
    ],
)
def test_the_folder_of_a_topic_follows_the_path_type(kind: str, folder: str) -> None:
    options = {"writer.file.path.type": kind, "extract.namespace": "gobblin.kafka"}
    assert topic_folder("orders", options, "r1") == folder


def test_a_topic_may_have_another_name_on_disk() -> None:
    assert topic_folder("orders", {"extract.table.name": "sales"}, "r1") == "sales"
