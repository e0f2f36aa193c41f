"""The one table of settings of an ingestion: names, older spellings, defaults, parsers, meanings; and what is not used.

Names are those of Gobblin's Kafka source where it has one (kafka-ingestion 1.2, 2.1-2.9), of Hudi Streamer where that is the
known one (3.1), and `lakesql.*` for the rest. Nothing is read here: `settings` makes a job of it, docs/ingest/settings.md
is made from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from lakesql.ingest.setting_values import (
    UNITS_S,
    at_least_one,
    function,
    moment,
    number,
    patterns,
    percent,
    positive,
    seconds,
    span_or_off,
    unit,
    upper_of,
    words,
    zone,
)
from lakesql.values import Parse, flag, one_of, size


@dataclass(frozen=True, slots=True)
class Key:
    """One setting. `default` as it would be written, None: none. `values`: what may be written, for people.

    closed     the value is a number, a word of a list or true/false: a tail ` #...` on its line is no part of it
    listed     the value is a list with commas
    per_topic  may also stand in dataset.specific.props
    """

    name: str
    values: str
    default: str | None
    meaning: str
    parse: Parse = str
    older: tuple[str, ...] = ()
    closed: bool = False
    listed: bool = False
    per_topic: bool = False


# ---------------------------------------------------------------- rows of the table


def _text(name: str, values: str, default: str | None, meaning: str, *older: str, parse: Parse = str) -> Key:
    return Key(name, values, default, meaning, parse, older)


def _word(
    name: str, allowed: tuple[str, ...], default: str | None, meaning: str, *older: str, upper: bool = False
) -> Key:
    shown = tuple(w.upper() for w in allowed) if upper else allowed
    parse = upper_of(*allowed) if upper else one_of(*allowed)
    return Key(name, ", ".join(f"`{w}`" for w in shown), default, meaning, parse, older, closed=True)


def _flag(name: str, default: str, meaning: str, *older: str) -> Key:
    return Key(name, "`true`, `false`", default, meaning, flag, older, closed=True)


def _number(name: str, values: str, default: str | None, meaning: str, parse: Parse, *older: str) -> Key:
    return Key(name, values, default, meaning, parse, older, closed=True)


def _list(name: str, values: str, default: str | None, meaning: str, *older: str, parse: Parse = words) -> Key:
    return Key(name, values, default, meaning, parse, older, listed=True)


def _per_topic(key: Key) -> Key:
    return replace(key, per_topic=True)


_BOOTSTRAP = ("latest", "earliest", "offset_lookback", "timestamp", "skip")
CODECS = (
    "deflate",
    "snappy",
    "null",
    "nocompression",
    "bzip2",
    "xz",
    "zstandard",
    "zstd",
    "gzip",
    "lz4",
    "brotli",
    "none",
)
_WHOLE = "whole number"

# fmt: off
JOB = (
    _text("job.name", "text", None,
        "Name of the ingestion: stored offsets and the lock belong to it. An `INGEST` without a name is named after its target."),
    _text("job.group", "text", "",
        "Shown in reports."),
    _text("job.description", "text", "",
        "Shown in reports."),
    _flag("job.disabled", "false",
        "`true`: the job is refused."),
    _flag("job.lock.enabled", "true",
        "One run of a job at a time: a second one fails at once. Exactly-once does not depend on it."),
    _text("job.lock.dir", "folder", None,
        "Where the lock file lies; default: beside the target."),
    _text("job.lock.type", "class", None,
        "Every lock is a file with owner and heartbeat; a class name other than a file lock's is noted."),
    _number("lakesql.lock.wait", "span of time", "0",
        "How long a second run waits for the lock before it fails.", seconds),
    _word("job.commit.policy", ("full", "successful", "partial"), "full",
        "What is committed when some task fails: nothing of its table or folder; what tasks that succeeded have read; also what "
        "failed ones have read until then."),
    _number("lakesql.commit.interval", "span of time, or `off`", "off",
        "Commit this often within a run; `off`: one commit per run.", span_or_off),
    _number("mr.job.max.mappers", f"{_WHOLE} >= 1", "100",
        "Number of tasks at most; more partitions than this are balanced over them.", size(1)),
    _number("mr.target.mapper.size", "number > 0", None,
        "Weight of a task to aim at: the number of tasks is the whole weight divided by it, plus 1, at most `mr.job.max.mappers`.",
        positive),
    _number("taskexecutor.threadpool.size", f"{_WHOLE} >= 1", None,
        "Tasks that run at a time; default: the cores.", size(1)),
    _number("task.maxretries", f"{_WHOLE} >= 0", "5",
        "Tries of a failed task after the first.", size(0)),
    _number("task.retry.intervalinsec", f"{_WHOLE} >= 0", "300",
        "Wait before the second retry; before the n-th: (n-1) times this. The first comes at once.", size(0)),
    _number("lakesql.fetch.timeout", "span of time", "30s",
        "How long a partition may give neither records nor progress before it counts as failed.", seconds),
    _flag("lakesql.strict", "false",
        "Unknown settings are an error."),
)

SOURCE = (
    _list("kafka.brokers", "host:port, ...", None,
        "Brokers to start from. Required.", "bootstrap.servers"),
    _list("topic.whitelist", "regular expressions, ...", ".*",
        "Topics to read: the whole name, upper and lower case alike. Empty: all.", parse=patterns),
    _list("topic.blacklist", "regular expressions, ...", "",
        "Topics to leave out; wins over the whitelist.", parse=patterns),
    _text("hoodie.streamer.source.kafka.topic", "name", None,
        "One topic by its exact name (Hudi Streamer); used when `topic.whitelist` is not set.",
        "hoodie.deltastreamer.source.kafka.topic"),
    _flag("gobblin.kafka.allowPeriodInTopicName", "true",
        "`false`: topics with a dot in the name are left out."),
    _text("dataset.specific.props", "JSON array", None,
        "Settings of single topics: objects with `dataset` (a regular expression over topic names, any case) and settings; "
        "several that match are merged, later ones win.", "kafka.topic.specific.state"),
    _per_topic(_word("bootstrap.with.offset", _BOOTSTRAP, "latest",
        "Where a partition without a stored offset starts; `skip`: it stays new. What is skipped is in the plan and the report.")),
    _per_topic(_number("kafka.offset.lookback", f"{_WHOLE} >= 0", "0",
        "Of `offset_lookback`: so many offsets before the end; below the earliest the reset rule decides.",
        size(0))),
    _per_topic(_text("lakesql.bootstrap.timestamp", "time, or milliseconds since 1970", None,
        "Of `timestamp`: start at the first record of this time or later, UTC unless it says otherwise.",
        parse=moment)),
    _per_topic(_word("lakesql.bootstrap.added.partitions", ("bootstrap", "earliest"), "bootstrap",
        "Where a partition starts that was added to a topic already read: as `bootstrap.with.offset` says, or at its earliest record.")),
    _per_topic(_word("reset.on.offset.out.of.range", ("nearest", "earliest", "latest", "skip", "fail"), "nearest",
        "Where a partition goes on whose stored offset is no longer there. The gap is stored in the commit. `fail`: nothing is "
        "read at all.")),
    _flag("hoodie.streamer.source.kafka.enable.failOnDataLoss", "false",
        "`true`: as `reset.on.offset.out.of.range=fail`.",
        "hoodie.deltastreamer.source.kafka.enable.failOnDataLoss"),
    _list("topics.move.to.latest.offset", "exact names, ...", "",
        "These topics jump to their end in this run and give up what lies before; `all`: every one."),
    _number("gobblin.kafka.recordLevelSlaMinutes", "number; off unless above 0", "-1",
        "Records whose Kafka timestamp is older than this when they are read count as late (`slaMissedRecordCount`).", number),
    _word("isolation.level", ("read_committed", "read_uncommitted"), "read_committed",
        "Whether records of transactions that are open or aborted are left out."),
)

LIMITS = (
    _flag("extract.limit.enabled", "false",
        "Switch of the limit of each task. A task that its limit stops has succeeded; the next run goes on there."),
    _word("extract.limit.type", ("time", "rate", "count", "pool"), None,
        "Kind of the limit."),
    _number("extract.limit.time.limit", "number > 0", None,
        "`time`: a task stops reading after so long.", positive, "extract.limit.timeLimit"),
    _number("extract.limit.time.limit.timeunit", "Java's names of units", "seconds",
        "Unit of it.", unit, "extract.limit.timeLimitTimeunit"),
    _number("extract.limit.rate.limit", "number > 0", None,
        "`rate`: so many records per unit and task, by waiting.", positive, "extract.limit.rateLimit"),
    _number("extract.limit.rate.limit.timeunit", "Java's names of units", "seconds",
        "Unit of it.", unit, "extract.limit.rateLimitTimeunit"),
    _number("extract.limit.count.limit", f"{_WHOLE} >= 1", None,
        "`count`: so many records per task.", size(1)),
    _number("extract.limit.pool.size", f"{_WHOLE} >= 1", None,
        "`pool`: so many tasks fetch at a time.", size(1)),
)

PACKING = (
    _word("kafka.workunit.packer.type", ("bi_level", "single_level", "custom"), "BI_LEVEL",
        "How partitions become tasks: grouped by topic, then balanced; balanced one by one; by a function.",
        upper=True),
    _text("kafka.workunit.packer.customizedType", "module:function", None,
        "Of `CUSTOM`: called with the ranges and the number of tasks; gives a list of ranges for each task.",
        parse=function),
    _word("kafka.workunit.size.estimator.type", ("avg_record_time", "avg_record_size", "custom"), "AVG_RECORD_TIME",
        "What a partition weighs: its records times the mean milliseconds, or the mean bytes, of a record in the run before; or "
        "by a function.", upper=True),
    _text("kafka.workunit.size.estimator.customizedType", "module:function", None,
        "Of `CUSTOM`: called with the ranges and the stored state; gives a weight for each range.",
        parse=function),
    _number("kakfa.source.avgFetchTimeCap", "number > 0", "100",
        "Milliseconds per record are counted up to this (the name is spelt so).",
        positive, "kafka.source.avgFetchTimeCap"),
    _number("workunit.pre.grouping.size.factor", "number >= 1", "3",
        "Of `BI_LEVEL`: groups are cut to the whole weight divided by tasks times this.", at_least_one),
    _flag("lakesql.packing.even", "true",
        "Cut groups once more where the heaviest task would be more than 5 % above the best possible."),
)

FORMAT = (
    _text("source.class", "Java class", None,
        "`KafkaSimple*`: raw; `KafkaSimpleJson*`: JSON; `KafkaAvroSource`: Avro with LinkedIn's frame; "
        "`KafkaDeserializerSource`: see `kafka.deserializer.type`. Any package."),
    _word("kafka.deserializer.type", ("confluent_avro", "confluent_json", "gson", "string", "byte_array"), None,
        "Avro with Confluent's frame; JSON; JSON; text; raw bytes.", upper=True),
    _word("lakesql.format", ("json", "avro", "raw", "string", "python"), None,
        "The format itself; wins over the two above."),
    _word("lakesql.wire", ("confluent", "linkedin", "none"), None,
        "Frame of Avro, or of JSON with a registry. It cannot be told from the bytes and is never guessed."),
    _text("kafka.schema.registry.url", "URL", None,
        "Schema registry of Avro.", "schema.registry.url"),
    _text("kafka.schema.registry.class", "Java class", None,
        "A class of Confluent's or LinkedIn's registry says the frame of Avro where nothing else does."),
    _number("kafka.schema.registry.max.cache.size", f"{_WHOLE} >= 1", "1000",
        "Schemas kept.", size(1)),
    _number("kafka.schema.registry.cache.expire.after.write.min", f"{_WHOLE} >= 1", "10",
        "Minutes for which the newest schema of a topic is not asked for again.", size(1)),
    _text("schema.registry.basic.auth.user.info", "user:password", None,
        "Login of the registry; one in its URL is taken out of there.", "kafka.schema.registry.basic.auth.user.info", "basic.auth.user.info"),
    _word("schema.registry.basic.auth.credentials.source", ("user_info", "url", "sasl_inherit"), None,
        "Where that login is; `SASL_INHERIT`: the client's.", "basic.auth.credentials.source", upper=True),
    _text("schema.registry.bearer.auth.token", "text", None,
        "Login of the registry by a token.", "bearer.auth.token"),
    _word("schema.registry.bearer.auth.credentials.source", ("static_token",), None,
        "Where that token is.", "bearer.auth.credentials.source", upper=True),
    _number("schema.registry.request.timeout.ms", "number > 0", "30000",
        "How long an answer of the registry may take.", positive),
    _number("schema.registry.retries", f"{_WHOLE} >= 1", "5",
        "How often a registry that does not answer is asked.", size(1)),
    _text("schema.registry.ssl.ca.location", "PEM file", None,
        "Authorities that the registry's certificate is checked by; default: the system's."),
    _text("schema.registry.ssl.certificate.location", "PEM file", None,
        "Certificate shown to the registry."),
    _text("schema.registry.ssl.key.location", "PEM file", None,
        "Its key, where it is not in the same file."),
    _text("schema.registry.ssl.key.password", "text", None,
        "Password of that key."),
    _text("schema.registry.ssl.truststore.location", "PEM file", None,
        "As `schema.registry.ssl.ca.location`; Java's own stores are not read."),
    _word("schema.registry.ssl.truststore.type", ("pem", "jks", "pkcs12"), None,
        "PEM.", upper=True),
    _text("schema.registry.ssl.keystore.location", "PEM file", None,
        "As `schema.registry.ssl.certificate.location`; Java's own stores are not read."),
    _word("schema.registry.ssl.keystore.type", ("pem", "jks", "pkcs12"), None,
        "PEM.", upper=True),
    _text("lakesql.avro.schema", "Avro schema", None,
        "Fixed Avro schema of all topics: of what messages hold without a frame, else of what is read out of them.", "lakesql.schema"),
    _text("lakesql.key.avro.schema", "Avro schema", None,
        "The same of the message's key."),
    _text("lakesql.json.columns", "column type, ...", None,
        "Columns of JSON with their types; default: found in the data.", "lakesql.columns"),
    _flag("lakesql.json.lenient", "false",
        "Take numbers in quotes (`\"7\"`) for numbers in place of sending the record to the quarantine."),
    _word("lakesql.json.unknown.keys", ("ignore", "keep"), "ignore",
        "Keys of JSON that no column of `lakesql.json.columns` has: left out, or kept in one column as JSON."),
    _text("lakesql.json.rest.column", "column", "_rest",
        "Of `keep`: that column."),
    _text("lakesql.decoder", "name", None,
        "Of `python`: the function registered under this name."),
    _word("lakesql.key.format", ("none", "raw", "string", "json", "avro"), None,
        "Format of the message's key, for deletes by records without a value."),
    _list("lakesql.key.columns", "columns, ...", None,
        "Columns that the key holds."),
    _word("lakesql.key.wire", ("confluent", "linkedin", "none"), None,
        "Frame of the key; default: of an Avro key that of the value, else Confluent's; of a JSON key none."),
    _word("lakesql.envelope", ("none", "debezium", "dms"), "none",
        "Change records: what they hold is unpacked, and deletes are done."),
    _word("lakesql.debezium.connector", ("postgresql", "postgres", "mysql", "mariadb", "other"), None,
        "Database that Debezium reads; default: found in the messages."),
)

BAD = (
    _word("lakesql.bad.records", ("quarantine", "fail"), "quarantine",
        "What happens to records that cannot be decoded: kept beside the target, or the run fails at the first."),
    _number("lakesql.bad.records.max.percent", "0 to 100", "10",
        "Beyond it the partition fails and moves no offset; counted from 100 records of it on. 0: the first one fails it.",
        percent),
    _number("lakesql.bad.records.max.count", f"{_WHOLE} >= 0", None,
        "The same as a number.", size(0), "task.skip.error.records"),
)

HUDI = (
    _text("lakesql.into", "table or folder", None,
        "Hudi table to write, in place of files; `{topic}` in it: one for each topic. With "
        "`data.publisher.type=lakesql.HudiPublisher` the table in `data.publisher.final.dir`."),
    _word("lakesql.operation", ("insert", "upsert", "bulk_insert"), None,
        "Kind of the write; default: upsert with a record key, else insert.",
        "hoodie.datasource.write.operation"),
    _list("lakesql.partition.by", "columns, ...", None,
        "Partition columns of a new table.", "hoodie.datasource.write.partitionpath.field"),
    _text("lakesql.select", "SQL over `kafka`", None,
        "Rows and columns to write; default: all decoded ones."),
    _text("lakesql.spool.dir", "folder", None,
        "Where rows wait for the commit; default: the folder for temporary files."),
    _flag("hoodie.streamer.source.kafka.append.offsets", "false",
        "Also `_hoodie_kafka_source_offset`, `_partition`, `_timestamp` and `_key`; with a selection it is refused.",
        "hoodie.deltastreamer.source.kafka.append.offsets"),
)

_FILES = (
    _text("data.publisher.final.dir", "folder", "job-output",
        "Where files go; the default lies in `GOBBLIN_WORK_DIR`, or in the current folder, and is noted."),
    _text("data.publisher.type", "Java class", None,
        "`TimePartitionedDataPublisher`: folders by record time; `BaseDataPublisher`: by task; `lakesql.HudiPublisher`: a Hudi table."),
    _text("writer.builder.class", "Java class", None,
        "`AvroTimePartitionedWriterBuilder`: folders by record time; `AvroDataWriterBuilder`: by task; "
        "`SimpleDataWriterBuilder`: text; `ParquetDataWriterBuilder`: Parquet."),
    _word("lakesql.files.layout", ("time", "task"), None,
        "Folders by record time or by task; wins over the two above."),
    _word("writer.destination.type", ("hdfs",), "HDFS",
        "Files."),
    _word("writer.output.format", ("avro", "parquet", "txt", "text"), None,
        "Format of the files; default: by `writer.builder.class`, else Avro."),
    _text("writer.fs.uri", "URI", "file:///",
        "File system of the target; the host of a `file:` URI is dropped.", "data.publisher.fs.uri"),
    _word("writer.file.path.type", ("tablename", "namespace_table", "default"), "tablename",
        "First folder: the topic, the namespace and the topic, or none.", "writer.file.pathType"),
    _text("extract.namespace", "text", "KAFKA",
        "Namespace of `namespace_table`; needs the next one."),
    _flag("gobblin.kafka.extract.allowTableTypeAndNamspaceCustomization", "false",
        "Take `extract.namespace` (the name is spelt so)."),
    _per_topic(_text("extract.table.name", "text", None,
        "Name of a topic's folder; in `dataset.specific.props` only.")),
    _text("writer.partition.level", "text", "daily",
        "Fixed folder between topic and time."),
    _text("writer.partition.pattern", "Joda pattern", "yyyy/MM/dd",
        "Time folders; `YYYY` is the year of era."),
    _text("writer.partition.column.name", "dotted path", None,
        "Column with the record's time in milliseconds; default: the Kafka timestamp, never the clock."),
    _list("writer.partition.columns", "dotted paths, ...", None,
        "The same, tried in order."),
    _text("writer.partition.timezone", "time zone", "UTC",
        "Time zone of the folders. Gobblin's default is America/Los_Angeles.", parse=zone),
    _text("writer.partitioner.class", "Java class", None,
        "`TimeBasedAvroWriterPartitioner`: folders by record time."),
    _flag("writer.partition.enableParseAsString", "false",
        "The time may be a text with the number in it."),
    _word("writer.partition.granularity", ("minute", "hour", "day", "month", "year"), "hour",
        "Fits the default pattern of `TimeBasedAvroWriterPartitioner`."),
    _word("writer.partition.timeUnit", tuple(name.lower() for name in UNITS_S), "milliseconds",
        "Unit of the record's time."),
    _text("writer.partition.prefix", "text", "",
        "Folder before the time."),
    _text("writer.partition.suffix", "text", "",
        "Folder behind the time."),
    _flag("writer.include.record.count.in.file.names", "false",
        "File names with the number of records."),
    _word("writer.codec.type", CODECS, None,
        "Compression; default: deflate in Avro files, snappy in Parquet files."),
    _number("writer.deflate.level", "1 to 9", "9",
        "Level of deflate.", size(1)),
    _text("simple.writer.delimiter", "text", "\\n",
        "What stands behind each record of a text file."),
    _flag("simple.writer.prepend.size", "false",
        "Each record of a text file begins with its length in 8 bytes."),
)
# fmt: on

_FILE_WIDE = ("data.", "lakesql.", "writer.destination.", "writer.fs.", "writer.builder.", "writer.partitioner.")
FILES = tuple(key if key.name.startswith(_FILE_WIDE) else _per_topic(key) for key in _FILES)
SECTIONS: Mapping[str, tuple[Key, ...]] = {
    "Job, tasks, commits": JOB,
    "Topics and offsets": SOURCE,
    "Limits": LIMITS,
    "Weights and packing": PACKING,
    "Formats": FORMAT,
    "Bad records": BAD,
    "Hudi tables": HUDI,
    "Files": FILES,
}
KEYS: Mapping[str, Key] = {key.name: key for section in SECTIONS.values() for key in section}
OLDER: Mapping[str, str] = {other: key.name for key in KEYS.values() for other in key.older}

PASSED: Mapping[str, str] = {
    "gobblin.source.kafka.fixedSchema.": "followed by a topic: its fixed Avro schema",
    "kafka.client.": "followed by a name of librdkafka: for the client, whatever it is",
    "source.kafka.consumerConfig.": "followed by a consumer setting of Java or librdkafka: for the client",
    "source.kafka.": "the same",
    "gobblin.kafka.sharedConfig.": "the same; the three above win",
    "security.protocol, sasl., ssl., client., group.id": "bare: for the client",
    "lakesql.table.": "followed by a property as in CREATE TABLE: of a Hudi table that does not exist yet",
    "hoodie.": "of a Hudi table: settings of its writes and, for a new one, properties",
    "lakesql.schema.evolve, lakesql.write.retries, lakesql.clean., lakesql.compaction.": "of a Hudi table: settings of its writes and services",
}
"""Families of settings that are passed on, and to whom."""
