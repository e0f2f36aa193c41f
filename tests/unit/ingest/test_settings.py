"""From settings to a job: every key, its spellings and values; what is unused or unknown; errors; secrets."""

import pickle

import pytest

from lakesql.errors import JobError
from lakesql.ingest.job_format import FIXED
from lakesql.ingest.model import BadRecords, Format, Job, Limit, Target
from lakesql.ingest.setting_keys import KEYS, OLDER
from lakesql.ingest.setting_unused import FAMILIES, UNUSED
from lakesql.ingest.settings import JobRead, job_of

BASE = {"job.name": "j", "kafka.brokers": "h:9092", "lakesql.format": "json", "data.publisher.final.dir": "/out"}


def read(**settings: str) -> JobRead:
    return read_all(settings)


def read_all(settings: dict[str, str], without: tuple[str, ...] = ()) -> JobRead:
    return job_of({k: v for k, v in BASE.items() if k not in without} | settings)


def made(settings: dict[str, str], *without: str) -> Job:
    found = read_all(settings, without)
    assert found.unknown == {}
    return found.job


def options(settings: dict[str, str]) -> dict[str, str]:
    return dict(made(settings).target.options)


# ---------------------------------------------------------------- the table


def test_every_default_is_a_value_that_its_setting_takes() -> None:
    for key in KEYS.values():
        if key.default is not None:
            key.parse(key.default)


def test_spellings_are_unambiguous() -> None:
    names = [name for key in KEYS.values() for name in (key.name, *key.older)]
    assert len(names) == len(set(names))
    assert not {*KEYS, *OLDER} & set(UNUSED)
    assert all((*UNUSED.values(), *FAMILIES.values()))


def test_a_job_needs_little_and_has_the_documented_defaults() -> None:
    job = made({})
    assert (job.bootstrap, job.reset, job.isolation, job.commit_policy) == (
        "latest",
        "nearest",
        "read_committed",
        "full",
    )
    assert (job.packer, job.estimator, job.max_tasks, job.pre_grouping_factor) == (
        "BI_LEVEL",
        "AVG_RECORD_TIME",
        100,
        3.0,
    )
    assert (job.lock, job.commit_interval_s, job.fetch_timeout_s, job.limit) == (True, None, 30.0, None)
    assert (job.task_retries, job.retry_interval_s, job.bad) == (5, 300.0, BadRecords())
    assert (job.whitelist, job.blacklist) == ((), ())
    assert job.workers >= 1


@pytest.mark.parametrize(
    ("settings", "field", "value"),
    [
        ({"topic.whitelist": "a.*, b"}, "whitelist", ("a.*", "b")),
        ({"topic.blacklist": "x"}, "blacklist", ("x",)),
        ({"hoodie.deltastreamer.source.kafka.topic": "a.b"}, "whitelist", (r"a\.b",)),
        ({"bootstrap.with.offset": "EARLIEST"}, "bootstrap", "earliest"),
        ({"bootstrap.with.offset": "offset_lookback", "kafka.offset.lookback": "7"}, "lookback", 7),
        ({"reset.on.offset.out.of.range": "Fail"}, "reset", "fail"),
        ({"hoodie.streamer.source.kafka.enable.failOnDataLoss": "true"}, "reset", "fail"),
        ({"topics.move.to.latest.offset": "A, b"}, "to_latest", frozenset({"a", "b"})),
        ({"isolation.level": "READ_UNCOMMITTED"}, "isolation", "read_uncommitted"),
        ({"source.kafka.consumerConfig.isolation.level": "read_uncommitted"}, "isolation", "read_uncommitted"),
        ({"mr.job.max.mappers": "3"}, "max_tasks", 3),
        ({"mr.target.mapper.size": "1.5"}, "target_task_size", 1.5),
        ({"taskexecutor.threadpool.size": "6"}, "workers", 6),
        ({"kafka.workunit.packer.type": "single_level"}, "packer", "SINGLE_LEVEL"),
        ({"kafka.workunit.size.estimator.type": "AVG_RECORD_SIZE"}, "estimator", "AVG_RECORD_SIZE"),
        ({"workunit.pre.grouping.size.factor": "4"}, "pre_grouping_factor", 4.0),
        ({"job.commit.policy": "Partial"}, "commit_policy", "partial"),
        ({"lakesql.commit.interval": "2 minutes"}, "commit_interval_s", 120.0),
        ({"lakesql.commit.interval": "off"}, "commit_interval_s", None),
        ({"lakesql.fetch.timeout": "5"}, "fetch_timeout_s", 5.0),
        ({"task.maxretries": "0"}, "task_retries", 0),
        ({"task.retry.intervalinsec": "2"}, "retry_interval_s", 2.0),
        ({"job.lock.enabled": "FALSE"}, "lock", False),
        ({"job.lock.dir": "/l"}, "lock_dir", "/l"),
        ({"lakesql.lock.wait": "1m"}, "lock_wait_s", 60.0),
        ({"lakesql.bad.records": "fail"}, "bad", BadRecords("fail")),
        ({"lakesql.bad.records.max.percent": "0"}, "bad", BadRecords(max_percent=0)),
        ({"lakesql.bad.records.max.percent": "100 %"}, "bad", BadRecords(max_percent=100)),
        ({"task.skip.error.records": "4"}, "bad", BadRecords(max_count=4)),
    ],
)  # fmt: skip
def test_settings_make_the_fields_of_a_job(settings: dict[str, str], field: str, value: object) -> None:
    assert getattr(made(settings), field) == value


@pytest.mark.parametrize(
    ("settings", "limit"),
    [
        ({"type": "time", "time.limit": "15", "time.limit.timeunit": "MINUTES"}, Limit("time", 900)),
        ({"type": "TIME", "timeLimit": "2", "timeLimitTimeunit": "hours"}, Limit("time", 7200)),
        ({"type": "time", "time.limit": "15"}, Limit("time", 15)),
        ({"type": "rate", "rateLimit": "100", "rateLimitTimeunit": "milliseconds"}, Limit("rate", 100, 0.001)),
        ({"type": "rate", "rate.limit": "100"}, Limit("rate", 100, 1)),
        ({"type": "count", "count.limit": "9"}, Limit("count", 9)),
        ({"type": "pool", "pool.size": "2"}, Limit("pool", 2)),
    ],
)
def test_limits_in_both_spellings(settings: dict[str, str], limit: Limit) -> None:
    on = {f"extract.limit.{name}": value for name, value in settings.items()} | {"extract.limit.enabled": "true"}
    assert made(on).limit == limit


def test_a_limit_that_is_not_switched_on_is_noted() -> None:
    found = read_all({"extract.limit.type": "time", "extract.limit.time.limit": "1"})
    assert found.job.limit is None
    assert any("extract.limit.enabled" in note for note in found.notes)


def test_two_spellings_of_one_setting_are_noted_and_the_known_one_holds() -> None:
    spellings = {"extract.limit.timeLimit": "5", "extract.limit.time.limit": "6"}
    found = read_all(spellings | {"extract.limit.type": "time", "extract.limit.enabled": "true"})
    assert found.job.limit == Limit("time", 6)
    assert any("extract.limit.timeLimit is another spelling" in note for note in found.notes)
    assert job_of(found.job.settings).job == found.job  # settings that were read once say the same again


# ---------------------------------------------------------------- wrong values


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"bootstrap.with.offset": "newest"}, r"bootstrap.with.offset = 'newest': must be one of latest, earliest, offset_lookback, timestamp, skip\. Correct"),
        ({"mr.job.max.mappers": "0"}, "must be at least 1"),
        ({"mr.job.max.mappers": "x"}, "must be a whole number"),
        ({"job.lock.enabled": "yes"}, "must be true or false"),
        ({"topic.whitelist": "a{1,2}"}, "regular expression.*commas separate"),
        ({"topic.whitelist": "*"}, "regular expression"),
        ({"extract.limit.enabled": "true"}, "extract.limit.type is missing"),
        ({"extract.limit.enabled": "true", "extract.limit.type": "time"}, r"extract.limit.time.limit \(or extract.limit.timeLimit\) is missing"),
        ({"extract.limit.enabled": "true", "extract.limit.type": "rate", "extract.limit.rate.limit": "1",
          "extract.limit.rate.limit.timeunit": "weeks"}, "must be one of nanoseconds"),
        ({"extract.limit.enabled": "true", "extract.limit.type": "time", "extract.limit.time.limit": "-1"}, "must be a number above 0"),
        ({"lakesql.bad.records.max.percent": "101"}, "percentage between 0 and 100"),
        ({"lakesql.commit.interval": "often"}, "span of time"),
        ({"kafka.workunit.packer.type": "CUSTOM"}, "customizedType is missing"),
        ({"kafka.workunit.packer.type": "CUSTOM", "kafka.workunit.packer.customizedType": "org.apache.Packer"}, "module:function"),
        ({"bootstrap.with.offset": "timestamp"}, "lakesql.bootstrap.timestamp is missing"),
        ({"lakesql.bootstrap.timestamp": "yesterday"}, "must be a time such as"),
        ({"writer.partition.timezone": "Mars"}, "name of a time zone"),
        ({"job.disabled": "true"}, "the job is disabled"),
        ({"job.name": "ENC(abc)"}, r"job.name = 'ENC\(...\)': encrypted values are not read"),
        ({"workunit.pre.grouping.size.factor": "0.5"}, "at least 1"),
        ({"writer.fs.uri": "hdfs://namenode:9000"}, "Hadoop file systems are not written"),
        ({"data.publisher.final.dir": "hdfs://namenode:9000/x"}, "data.publisher.final.dir.*Hadoop"),
        ({"writer.builder.class": "my.KiteWriterBuilder"}, "this writer is not known"),
        ({"writer.partitioner.class": "my.Partitioner"}, "this partitioner is not known"),
        ({"kafka.brokers": ""}, "kafka.brokers .*is missing"),
        ({"job.name": ""}, "job.name is missing"),
    ],
)  # fmt: skip
def test_wrong_values_are_refused_with_what_is_allowed(settings: dict[str, str], error: str) -> None:
    with pytest.raises(JobError, match=error):
        read_all(settings)


# ---------------------------------------------------------------- formats


@pytest.mark.parametrize(
    ("settings", "kind", "wire"),
    [
        ({"source.class": "gobblin.source.extractor.extract.kafka.KafkaSimpleSource"}, "raw", None),
        ({"source.class": "org.apache.gobblin.source.extractor.extract.kafka.KafkaSimpleStreamingSource"}, "raw", None),
        ({"source.class": "org.apache.gobblin.source.extractor.extract.kafka.KafkaSimpleJsonSource"}, "json", None),
        ({"source.class": "gobblin.source.extractor.extract.kafka.KafkaAvroSource"}, "avro", "linkedin"),
        ({"kafka.deserializer.type": "confluent_avro"}, "avro", "confluent"),
        ({"kafka.deserializer.type": "CONFLUENT_JSON"}, "json", None),
        ({"kafka.deserializer.type": "GSON"}, "json", None),
        ({"kafka.deserializer.type": "STRING"}, "string", None),
        ({"kafka.deserializer.type": "BYTE_ARRAY", "source.class": "x.KafkaDeserializerSource"}, "raw", None),
        ({"lakesql.format": "AVRO", "lakesql.wire": "Confluent"}, "avro", "confluent"),
        ({"lakesql.format": "json", "lakesql.wire": "confluent"}, "json", "confluent"),
        ({"lakesql.format": "avro", "kafka.schema.registry.class": "x.LiKafkaSchemaRegistry"}, "avro", "linkedin"),
        (
            {"lakesql.format": "avro", "kafka.schema.registry.class": "x.ConfluentKafkaSchemaRegistry"},
            "avro",
            "confluent",
        ),
        ({"lakesql.format": "avro", "lakesql.wire": "none", f"{FIXED}t": "{}"}, "avro", "none"),
        ({"lakesql.format": "python", "lakesql.decoder": "mine"}, "python", None),
    ],
)
def test_the_format_by_its_name_or_its_java_class(settings: dict[str, str], kind: str, wire: str | None) -> None:
    found = made(settings | {"kafka.schema.registry.url": "http://r"}, "lakesql.format").format
    assert (found.kind, found.wire) == (kind, wire)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({}, "lakesql.format is missing"),
        ({"source.class": "my.own.Source"}, "the format of this class is not known"),
        ({"source.class": "x.KafkaDeserializerSource"}, "kafka.deserializer.type is missing"),
        ({"lakesql.format": "avro"}, "lakesql.wire is missing.*cannot be told from the bytes"),
        ({"lakesql.format": "avro", "lakesql.wire": "none"}, "lakesql.avro.schema .*is missing"),
        ({"kafka.deserializer.type": "CONFLUENT_AVRO"}, "kafka.schema.registry.url .*is missing"),
        ({"lakesql.format": "python"}, "lakesql.decoder is missing"),
        ({"lakesql.format": "raw", "lakesql.envelope": "debezium"}, "have no envelope"),
    ],
)
def test_formats_that_are_not_said_are_not_guessed(settings: dict[str, str], error: str) -> None:
    with pytest.raises(JobError, match=error):
        read_all(settings, ("lakesql.format",))


def test_options_of_the_format_are_passed_on_under_their_known_names() -> None:
    found = made(
        {
            "lakesql.columns": "a BIGINT",
            "lakesql.key.format": "json",
            "lakesql.key.columns": "id",
            "lakesql.envelope": "Debezium",
            "schema.registry.ssl.ca.location": "/ca",
            "kafka.schema.registry.max.cache.size": "5",
        }
    ).format
    assert found.options == {
        "lakesql.json.columns": "a BIGINT",
        "lakesql.key.format": "json",
        "lakesql.key.columns": "id",
        "lakesql.envelope": "Debezium",
        "schema.registry.ssl.ca.location": "/ca",
        "kafka.schema.registry.max.cache.size": "5",
    }


def test_what_a_statement_gives_wins() -> None:
    found = job_of(
        BASE | {"lakesql.wire": "linkedin", "kafka.schema.registry.url": "http://r", "lakesql.operation": "insert"},
        name="own",
        target=Target("hudi", "/t", operation="upsert", properties={"type": "mor"}),
        format=Format("avro", "confluent", options={"x": "y"}),
    ).job
    assert (found.name, found.format.wire, found.format.registry, found.format.options["x"]) == (
        "own",
        "confluent",
        "http://r",
        "y",
    )
    assert (found.target.operation, found.target.properties["type"]) == ("upsert", "mor")


def test_an_unnamed_job_is_named_after_its_target() -> None:
    settings = {k: v for k, v in BASE.items() if k != "job.name"}
    assert job_of(settings, target=Target("hudi", "/lake/trips/")).job.name == "trips"
    with pytest.raises(JobError, match=r"job.name is missing"):
        job_of(settings)


# ---------------------------------------------------------------- targets


@pytest.mark.parametrize(
    ("settings", "layout", "form"),
    [
        ({}, "task", "avro"),
        ({"writer.builder.class": "gobblin.writer.AvroTimePartitionedWriterBuilder"}, "time", "avro"),
        ({"data.publisher.type": "gobblin.publisher.TimePartitionedDataPublisher"}, "time", "avro"),
        ({"data.publisher.type": "gobblin.publisher.BaseDataPublisher"}, "task", "avro"),
        ({"writer.builder.class": "gobblin.writer.SimpleDataWriterBuilder"}, "task", "txt"),
        ({"writer.builder.class": "x.ParquetDataWriterBuilder"}, "task", "parquet"),
        ({"writer.partitioner.class": "x.TimeBasedAvroWriterPartitioner"}, "time", "avro"),
        ({"writer.partition.column.name": "header.time"}, "time", "avro"),
        ({"writer.output.format": "PARQUET", "lakesql.files.layout": "time"}, "time", "parquet"),
        (
            {"writer.builder.class": "my.Own", "lakesql.files.layout": "task", "writer.output.format": "txt"},
            "task",
            "txt",
        ),
    ],
)
def test_layout_and_format_of_files_by_java_classes(settings: dict[str, str], layout: str, form: str) -> None:
    found = options(settings)
    assert (found["lakesql.files.layout"], found["writer.output.format"]) == (layout, form)


def test_time_folders_that_the_writer_does_not_make_are_noted() -> None:
    settings = {"writer.builder.class": "x.ParquetDataWriterBuilder", "writer.partition.pattern": "yyyy/MM/dd/HH"}
    assert any("Not used: writer.partition.pattern" in note for note in read_all(settings).notes)
    assert not any("Not used" in note for note in read_all(settings | {"lakesql.files.layout": "time"}).notes)


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        ({"data.publisher.final.dir": "/a/b"}, "/a/b"),
        ({"writer.fs.uri": "file://localhost/"}, "/out"),
        ({"data.publisher.final.dir": "file://localhost/a"}, "/a"),
        ({"data.publisher.final.dir": "file:/a"}, "/a"),
        ({"writer.fs.uri": "s3://bucket"}, "s3://bucket/out"),
        ({"data.publisher.final.dir": "s3://bucket/x"}, "s3://bucket/x"),
    ],
)
def test_the_folder_of_files(settings: dict[str, str], path: str) -> None:
    assert made(settings).target == made(settings).target
    assert made(settings).target.path == path


def test_a_folder_that_is_not_set_lies_in_the_work_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOBBLIN_WORK_DIR", "/data")
    found = read_all({}, ("data.publisher.final.dir",))
    assert found.job.target.path == "/data/job-output"
    assert any("/data/job-output" in note for note in found.notes)


def test_a_hudi_table_takes_its_properties_and_leaves_file_settings_unused() -> None:
    found = read_all(
        {
            "lakesql.into": "trips",
            "lakesql.table.type": "mor",
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "dt, h",
            "hoodie.datasource.write.operation": "Upsert",
            "hoodie.parquet.max.file.size": "1000000",
            "hoodie.deltastreamer.source.kafka.append.offsets": "true",
            "writer.partition.pattern": "yyyy",
        }
    )
    target = found.job.target
    assert (target.kind, target.path, target.operation, target.partition_by) == ("hudi", "trips", "upsert", ("dt", "h"))
    assert target.properties == {"type": "mor", "hoodie.datasource.write.recordkey.field": "id"}
    assert target.options["hoodie.parquet.max.file.size"] == "1000000"
    assert target.options["hoodie.streamer.source.kafka.append.offsets"] == "true"
    assert made({"lakesql.into": "t", "lakesql.select": "SELECT id FROM kafka"}).target.select == "SELECT id FROM kafka"
    assert "writer.partition.pattern" in found.unused
    assert found.unknown == {}


def test_what_a_query_would_silently_leave_out_is_refused() -> None:
    query = {"lakesql.select": "SELECT id FROM kafka"}
    append = {"hoodie.deltastreamer.source.kafka.append.offsets": "true"}
    with pytest.raises(JobError, match=r"append\.offsets = 'true'.*select what is wanted: _offset AS _hoodie_kafka"):
        read_all({"lakesql.into": "t"} | query | append)
    assert not read_all({"lakesql.into": "t"} | query | dict.fromkeys(append, "false")).unknown
    files = read_all(query | {"lakesql.spool.dir": "/s"})
    assert (files.job.target.kind, files.job.target.select, files.unused) == ("files", query["lakesql.select"], {})
    assert "lakesql.spool.dir" in read_all({"lakesql.spool.dir": "/s"}).unused  # without a query nothing waits
    assert set(read_all(append).unused) == {*append, "hoodie.streamer.source.kafka.append.offsets"}


def test_the_hudi_publisher_writes_a_table_where_files_would_go() -> None:
    found = made({"data.publisher.type": "lakesql.HudiPublisher"})
    assert (found.target.kind, found.target.path) == ("hudi", "/out")
    with pytest.raises(JobError, match=r"data.publisher.final.dir is missing"):
        read_all({"data.publisher.type": "lakesql.HudiPublisher"}, ("data.publisher.final.dir",))


def test_the_namespace_counts_only_when_it_is_allowed_to() -> None:
    some = {"writer.file.pathType": "namespace_table", "extract.namespace": "own"}
    assert options(some)["extract.namespace"] == "KAFKA"
    assert (
        options(some | {"gobblin.kafka.extract.allowTableTypeAndNamspaceCustomization": "true"})["extract.namespace"]
        == "own"
    )


# ---------------------------------------------------------------- single topics


def test_settings_of_single_topics() -> None:
    text = '[{"dataset": "a.*", "extract.table.name": "A", "bootstrap.with.offset": "EARLIEST"}, {"dataset": "b", "writer.partition.level": "hourly"}]'
    job = made({"kafka.topic.specific.state": text})
    assert job.topic_settings == (
        ("a.*", {"extract.table.name": "A", "bootstrap.with.offset": "EARLIEST"}),
        ("b", {"writer.partition.level": "hourly"}),
    )


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{", "this is not JSON"),
        ('{"dataset": "a"}', "must be an array"),
        ('[{"x": 1}]', "must be an array of objects, each with a dataset"),
        ('[{"dataset": "*"}]', "not a regular expression"),
        (
            '[{"dataset": "a", "kafka.offset.lookback": "x"}]',
            "of dataset 'a' in dataset.specific.props: must be a whole number",
        ),
        ('[{"dataset": "a", "bootstrap.with.offset": "timestamp"}]', "lakesql.bootstrap.timestamp is missing"),
    ],
)
def test_wrong_settings_of_single_topics_are_refused(text: str, error: str) -> None:
    with pytest.raises(JobError, match=error):
        read_all({"dataset.specific.props": text})


def test_settings_without_effect_for_a_topic_are_told() -> None:
    found = read_all(
        {"dataset.specific.props": '[{"dataset": "a", "mr.job.max.mappers": 3, "extract.table.nam": "x"}]'}
    )
    assert any("mr.job.max.mappers of dataset 'a'" in note for note in found.notes)
    assert found.unknown == {"dataset.specific.props: extract.table.nam": "extract.table.name"}


# ---------------------------------------------------------------- unused, unknown


def test_unused_settings_are_listed_with_the_reason() -> None:
    found = read_all(
        {
            "mr.job.root.dir": "/x",
            "job.jars": "a.jar",
            "state.store.dir": "/s",
            "gobblin.runtime.x": "1",
            "job.schedule": "0 0 * * *",
        }
    )
    assert set(found.unused) == {"mr.job.root.dir", "job.jars", "state.store.dir", "gobblin.runtime.x", "job.schedule"}
    assert "MapReduce" in found.unused["mr.job.root.dir"] or "cluster" in found.unused["mr.job.root.dir"]


def test_settings_of_the_other_kind_of_target_are_unused() -> None:
    table = read_all({"lakesql.into": "t", "writer.file.pathType": "default", "writer.deflate.level": "not looked at"})
    assert set(table.unused) == {
        "data.publisher.final.dir",
        "writer.file.pathType",
        "writer.file.path.type",
        "writer.deflate.level",
    }
    files = read_all({"hoodie.parquet.max.file.size": "1", "lakesql.table.type": "mor", "extract.table.name": "x"})
    assert set(files.unused) == {"hoodie.parquet.max.file.size", "lakesql.table.type", "extract.table.name"}
    given = job_of(BASE | {"lakesql.into": "t"}, target=Target("files", "/own"))
    assert set(given.unused) == {"data.publisher.final.dir", "lakesql.into"}
    assert given.job.target.path == "/own"


def test_what_is_accepted_and_does_something_else_is_noted() -> None:
    found = read_all(
        {"group.id": "g", "job.lock.type": "gobblin.runtime.locks.ZookeeperBasedJobLock", "job.template": "x"}
    )
    assert found.job.client["group.id"] == "g"
    assert any("group.id" in note and "never taken" in note for note in found.notes)
    assert any("job.lock.type" in note for note in found.notes)
    assert "templates" in found.unused["job.template"]


def test_unknown_settings_are_listed_and_near_ones_named() -> None:
    found = read_all({"topic.whitlist": "a", "something": "1", "mr.job.max.mapper": "3"})
    assert found.unknown == {
        "topic.whitlist": "topic.whitelist",
        "something": "",
        "mr.job.max.mapper": "mr.job.max.mappers",
    }
    assert any("topic.whitlist (is topic.whitelist meant?)" in note for note in found.notes)


def test_strict_makes_unknown_settings_an_error() -> None:
    for settings, strict in (({"lakesql.strict": "true"}, False), ({}, True)):
        with pytest.raises(JobError, match=r"Unknown settings: something"):
            job_of(BASE | {"something": "1"} | settings, strict=strict)


# ---------------------------------------------------------------- secrets


def test_secrets_show_nowhere() -> None:
    secret = "hunter2"
    login = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{secret}";'
    found = job_of(
        BASE
        | {
            "lakesql.format": "avro",
            "lakesql.wire": "confluent",
            "kafka.schema.registry.url": f"http://me:{secret}@registry:8081",
            "security.protocol": "SASL_SSL",
            "source.kafka.consumerConfig.sasl.jaas.config": login,
            "kafka.client.ssl.key.password": secret,
            "schema.registry.ssl.key.password": secret,
            "lakesql.into": "t",
            "hoodie.some.password": secret,
        }
    )
    assert found.job.client["sasl.password"] == secret
    assert found.job.format.registry == "http://registry:8081"
    assert found.job.format.options["schema.registry.basic.auth.user.info"] == f"me:{secret}"
    assert secret not in repr(found)
    assert secret not in str(found.job.client)
    assert pickle.loads(pickle.dumps(found.job.client)) == found.job.client
    for wrong in (
        {"sasl.jaas.config": f"com.sun.security.auth.module.Krb5LoginModule required password={secret};"},
        {"sasl.password": f"ENC({secret})"},
        {"sasl.password": "${env:NOT_SET_" + secret + "}"},
    ):
        with pytest.raises(JobError) as error:
            read_all(wrong)
        if "NOT_SET" not in str(wrong):
            assert secret not in str(error.value)


def test_the_registry_may_share_the_login_of_the_client() -> None:
    found = made(
        {
            "lakesql.format": "avro",
            "lakesql.wire": "confluent",
            "kafka.schema.registry.url": "http://r",
            "sasl.username": "u",
            "sasl.password": "p",
            "basic.auth.credentials.source": "SASL_INHERIT",
        }
    )
    assert found.format.options["schema.registry.basic.auth.user.info"] == "u:p"
