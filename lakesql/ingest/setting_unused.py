"""Settings that jobs have and that mean nothing here, and why. They are listed once for each job, never ignored silently."""

from collections.abc import Mapping

_CLUSTER = "tasks run in this process, not on a cluster"
_SCHEDULE = "a run is started by `lakesql ingest` (`--every`), RUN INGESTION or a scheduler of yours"
_STATE = "offsets lie in the target, in the commit of their data"
_STAGING = "rows wait in hidden files of the target"
_METRICS = "metrics are part of the report and a table"
_JAVA = "Java classes are not loaded"
_THREADS = "threads are set by taskexecutor.threadpool.size"
_RETRY = "what a run did not commit is read again from the stored offset by the next one"
_MAIL = "no mail is sent; the exit code and the report say how a run ended"
_TEMPLATE = "job templates are not read; write their settings into the job file"
_CONNECTION = "of a connection: SET it there; `lakesql ingest` takes stores from the environment and AWS profiles"
_STREAM = "a run reads ranges that are fixed when it begins"

UNUSED: Mapping[str, str] = {
    "launcher.type": _CLUSTER,
    "framework.jars": _JAVA,
    "job.jars": _JAVA,
    "job.hdfs.jars": _JAVA,
    "job.local.files": _CLUSTER,
    "job.hdfs.files": _CLUSTER,
    "job.class": _JAVA,
    "job.runonce": _SCHEDULE,
    "job.schedule": _SCHEDULE,
    "job.max.failures": _MAIL,
    "job.template": _TEMPLATE,
    "template.uri": _TEMPLATE,
    "gobblin.template.uri": _TEMPLATE,
    "gobblin.template.required_attributes": _TEMPLATE,
    "job.commit.partial.fail.task.fails.job.commit": "a run in which a task failed ends with exit code 3 under every policy",
    "job.commit.parallelize": "each target is one commit",
    "publish.data.at.job.level": "each target is one commit",
    "fs.uri": "the file system is named by writer.fs.uri",
    "fs.user": "the file system is named by writer.fs.uri",
    "task.timeout.seconds": "a task is bounded by extract.limit.*",
    "task.status.reportintervalinms": "progress is shown as it is made",
    "task.data.root.dir": _STAGING,
    "writer.staging.dir": _STAGING,
    "writer.output.dir": _STAGING,
    "writer.file.name": "file names follow the task, so that a repeated range gives the same ones",
    "writer.file.block.size": "blocks are those of the Avro and Parquet writers",
    "writer.buffer.size": "blocks are those of the Avro and Parquet writers",
    "data.publisher.appendExtractToFinalDir": "folders are laid out by writer.file.path.type",
    "data.publisher.replace.final.dir": "files are added, never replaced",
    "data.publisher.permissions": "files have the permissions of the process",
    "converter.classes": "converters are Java classes; write what they do as SQL in lakesql.select or AS SELECT",
    "fork.operator.class": "there is one branch",
    "fork.branches": "there is one branch",
    "extract.table.type": "Kafka topics are appended",
    "extract.is.full": "Kafka topics are appended",
    "extract.limit.report.period": "progress is shown as it is made",
    "source.kafka.fetchTimeoutMillis": "how long a silent partition is waited for is set by lakesql.fetch.timeout",
    "source.kafka.keyDeserializer": "the key's format is set by lakesql.key.format",
    "source.kafka.valueDeserializer": "the value's format is set by lakesql.format or kafka.deserializer.type",
    "source.timezone": "offsets have no time zone; folders have writer.partition.timezone",
    "kafka.source.work.units.creation.threads": "offsets of all partitions are asked for together",
    "kafka.consumer.maxPollRecords": "batches are at most 10,000 records",
    "gobblin.source.kafka.extractorType": "the format is set by lakesql.format and lakesql.wire",
    "gobblin.kafka.shouldEnableDatasetStateStore": _STATE,
    "gobblin.kafka.consumerClient.class": _JAVA,
    "gobblin.runtime.delivery.semantics": "every run is exactly once",
    "min.multiworkunit.load": "tasks are balanced by mr.job.max.mappers and mr.target.mapper.size",
    "workunit.retry.enabled": _RETRY,
    "workunit.retry.policy": _RETRY,
    "hoodie.streamer.kafka.source.maxEvents": "a run is bounded by extract.limit.*",
    "hoodie.streamer.source.kafka.minPartitions": "a partition is read by one task",
    "hoodie.streamer.source.kafka.enable.commit.offset": _STATE,
    "hoodie.streamer.source.kafka.checkpoint.type": "a start by time is bootstrap.with.offset=timestamp",
    "hoodie.streamer.source.kafka.value.deserializer.class": "the format is set by lakesql.format and lakesql.wire",
    "hoodie.streamer.schemaprovider.registry.url": "the registry is set by kafka.schema.registry.url",
    "lakesql.merge.duplicates": "of MERGE alone",
    "lakesql.requests.budget": _CONNECTION,
    "lakesql.store.endpoint": _CONNECTION,
    "lakesql.store.region": _CONNECTION,
    "lakesql.store.profile": _CONNECTION,
    "lakesql.store.virtual_hosted": _CONNECTION,
    "lakesql.store.anonymous": _CONNECTION,
    "lakesql.store.timeout": _CONNECTION,
    "lakesql.store.proxy": _CONNECTION,
    "lakesql.read.disk_cache": "of reads",
    "lakesql.read_optimized.max_staleness": "of reads",
    "lakesql.read_optimized.on_stale": "of reads",
    "schema.registry.ssl.truststore.password": "PEM files of authorities have no password",
    "schema.registry.ssl.keystore.password": "of a PEM file the key's password is schema.registry.ssl.key.password",
    "auto.offset.reset": "a start without a stored offset is set by bootstrap.with.offset",
}
FAMILIES: Mapping[str, str] = {
    "mr.": _CLUSTER,
    "yarn.": _CLUSTER,
    "mapreduce.": _CLUSTER,
    "hadoop.": _CLUSTER,
    "gobblin.yarn.": _CLUSTER,
    "gobblin.cluster.": _CLUSTER,
    "helix.": _CLUSTER,
    "zookeeper.": _CLUSTER,
    "jobconf.": _SCHEDULE,
    "scheduler.": _SCHEDULE,
    "state.store.": _STATE,
    "metrics.": _METRICS,
    "tasktracker.": _THREADS,
    "taskretry.": _THREADS,
    "taskexecutor.": _THREADS,
    "email.": _MAIL,
    "alert.": _MAIL,
    "encrypt.": "encrypted passwords are not read; use ${env:NAME}",
    "data.publisher.retry.": "a commit is one step; what failed of it is taken back",
    "data.publisher.metadata.": "offsets and counts lie in the commit",
    "qualitychecker.": "rows are checked by the types of their columns; bad ones go to the quarantine",
    "converter.": "converters are Java classes; write what they do as SQL in lakesql.select or AS SELECT",
    "fork.": "there is one branch",
    "kafka.schema.registry.": "the registry is asked by plain HTTP",
    "gobblin.kafka.streaming.": _STREAM,
    "streaming.": _STREAM,
    "hoodie.streamer.": "of Hudi Streamer alone",
    "gobblin.": "an inner setting of Gobblin",
}
"""By the beginning of the name; the longest one holds."""


def why_unused(name: str) -> str | None:
    """Why a setting has no effect here; None when it is not known as such."""
    name = name.replace("hoodie.deltastreamer.", "hoodie.streamer.")
    if name in UNUSED:
        return UNUSED[name]
    fitting = [family for family in FAMILIES if name.startswith(family)]
    return FAMILIES[max(fitting, key=len)] if fitting else None
