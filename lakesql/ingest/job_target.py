"""Where a job writes, out of its settings: a Hudi table, or files laid out as Gobblin's writers and publishers do.

A statement gives the target itself; then the settings only add their options.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from lakesql.ingest.model import Target
from lakesql.ingest.reading import Reading
from lakesql.ingest.setting_keys import FILES, KEYS
from lakesql.services.spelling import OURS

TABLE = "lakesql.table."
_APPEND = "hoodie.streamer.source.kafka.append.offsets"
_PROPERTIES = re.compile(
    r"hoodie\.(table\.|record\.merge\.|write\.(table\.version|record\.merge\.)"
    r"|datasource\.write\.(recordkey|precombine|table\.type|payload|keygenerator|hive_style|partitionpath\.urlencode))"
)
_TIME_BUILDERS = {"AvroTimePartitionedWriterBuilder": "avro"}
_TASK_BUILDERS = {
    "AvroDataWriterBuilder": "avro",
    "SimpleDataWriterBuilder": "txt",
    "ParquetDataWriterBuilder": "parquet",
    "ParquetHdfsDataWriterBuilder": "parquet",
}
_NAMESPACE = "gobblin.kafka.extract.allowTableTypeAndNamspaceCustomization"


def target_of(read: Reading, given: Target | None, unused: dict[str, str]) -> Target:
    """The target with its options; settings of the other kind of target are added to `unused`."""
    target = given or _named(read)
    if given or read.given("lakesql.into"):
        placed = ("data.publisher.final.dir", "writer.fs.uri", *(("lakesql.into",) if given else ()))
        why = "the statement says where rows go" if given else "lakesql.into says where rows go"
        _leave(read, placed, why, unused)
    if target.kind == "hudi":
        found = _hudi(read, target)
        of_table = ("data.publisher.type", "data.publisher.final.dir", "writer.fs.uri")
        _leave(
            read,
            [key.name for key in FILES if key.name not in of_table],
            "of files; this job writes a Hudi table",
            unused,
        )
        return found
    _leave(read, ["extract.table.name"], "of single topics, in dataset.specific.props", unused)
    selects = target.select or read.given("lakesql.select")
    own = ("lakesql.operation", "lakesql.partition.by", *(() if selects else ("lakesql.spool.dir",)))
    hudi = [name for name in read.settings if name.startswith((TABLE, "hoodie.")) or name in OURS]
    _leave(read, [*hudi, *own], "of Hudi tables; this job writes files", unused)
    return _files(read, target)


def _leave(read: Reading, names: Sequence[str], why: str, unused: dict[str, str]) -> None:
    """Settings that this job has no use for, whichever of their spellings is written."""
    for name in names:
        for spelling in (name, *(KEYS[name].older if name in KEYS else ())):
            if read.given(spelling):
                unused.setdefault(spelling, why)


def _named(read: Reading) -> Target:
    if into := read.text("lakesql.into"):
        return Target("hudi", into)
    if _simple(read, "data.publisher.type") == "HudiPublisher":
        if not read.given("data.publisher.final.dir"):
            raise read.missing("data.publisher.final.dir", "Set it to the folder of the Hudi table.")
        return Target("hudi", _path(read))
    return Target("files", _path(read))


# ---------------------------------------------------------------- Hudi tables


def _hudi(read: Reading, target: Target) -> Target:
    settings = read.settings
    properties = {name.removeprefix(TABLE): value for name, value in settings.items() if name.startswith(TABLE)}
    properties |= {name: value for name, value in settings.items() if _PROPERTIES.match(name)}
    options = {
        n: v
        for n, v in settings.items()
        if n.startswith("hoodie.") and not n.startswith(("hoodie.streamer.", "hoodie.deltastreamer."))
    }
    select = target.select or read.text("lakesql.select")
    if read(_APPEND):
        if select:
            raise read.wrong(
                _APPEND,
                "AS SELECT (lakesql.select) says itself what is stored, and its rows may be of several records",
                "Leave the setting out and select what is wanted: _offset AS _hoodie_kafka_source_offset, _partition AS "
                "_hoodie_kafka_source_partition, epoch_ms(_timestamp) AS _hoodie_kafka_source_timestamp, decode(_key) AS "
                "_hoodie_kafka_source_key.",
            )
        options[_APPEND] = "true"
    for name in (*properties, *options):
        if name in settings:
            read.check_closed(name, settings[name])
    return replace(
        target,
        operation=target.operation or read("lakesql.operation"),
        partition_by=target.partition_by or read("lakesql.partition.by") or (),
        select=select,
        properties=properties | dict(target.properties),
        options=options | dict(target.options),
    )


# ---------------------------------------------------------------- files


_TIMES = (
    "writer.partition.pattern",
    "writer.partition.granularity",
    "writer.partition.columns",
    "writer.partition.column.name",
)


def _files(read: Reading, target: Target) -> Target:
    layout, form = _layout(read)
    options: dict[str, str] = {}
    for key in FILES:
        if read.given(key.name) and key.name not in ("data.publisher.final.dir", "writer.fs.uri", "extract.table.name"):
            options[key.name] = str(read.text(key.name))
    options |= {"lakesql.files.layout": layout, "writer.output.format": form}
    if read("writer.file.path.type") != "tablename" and not read(_NAMESPACE):
        options["extract.namespace"] = str(KEYS["extract.namespace"].default)
    if (
        layout == "task"
        and not read.given("lakesql.files.layout")
        and (ignored := [n for n in _TIMES if read.given(n)])
    ):
        read.notes.append(
            f"Not used: {', '.join(ignored)}: the writer or publisher of the job makes no time folders; set "
            "lakesql.files.layout = time for them."
        )
    if layout == "time" and not read.given("writer.partition.timezone"):
        read.notes.append(
            "Time folders are named in UTC, where Gobblin takes America/Los_Angeles; set writer.partition.timezone for another zone."
        )
    return replace(
        target, options=options | dict(target.options), select=target.select or read.text("lakesql.select") or None
    )


def _layout(read: Reading) -> tuple[str, str]:
    """Layout of the folders and format of the files."""
    builder, publisher = _simple(read, "writer.builder.class"), _simple(read, "data.publisher.type")
    partitioner = _simple(read, "writer.partitioner.class")
    form = _TIME_BUILDERS.get(builder) or _TASK_BUILDERS.get(builder)
    chosen, named = read("lakesql.files.layout"), read("writer.output.format")
    if builder and form is None and not (chosen and named):
        raise read.wrong(
            "writer.builder.class",
            "this writer is not known",
            "Say what it does by lakesql.files.layout and writer.output.format.",
        )
    if partitioner and not re.match(r"TimeBased\w*WriterPartitioner$", partitioner) and not chosen:
        raise read.wrong(
            "writer.partitioner.class", "this partitioner is not known", "Say what it does by lakesql.files.layout."
        )
    if publisher and not re.match(r"(TimePartitioned(Streaming)?|Base)DataPublisher$", publisher) and not chosen:
        read.notes.append(
            f"data.publisher.type = {publisher}: this class is not known and is taken for BaseDataPublisher."
        )
    unnamed = not builder and not publisher and any(name.startswith("writer.partition.") for name in read.settings)
    by_time = unnamed or builder in _TIME_BUILDERS or publisher.startswith("TimePartitioned") or bool(partitioner)
    return chosen or ("time" if by_time else "task"), named or form or "avro"


def _simple(read: Reading, name: str) -> str:
    """A Java class without its package."""
    return (read.text(name) or "").rsplit(".", 1)[-1]


def _path(read: Reading) -> str:
    """The folder, on the file system that the job names."""
    folder = str(read.text("data.publisher.final.dir"))
    if not read.given("data.publisher.final.dir"):
        folder = str(PurePosixPath(os.environ.get("GOBBLIN_WORK_DIR", ""), folder))
        read.notes.append(f"data.publisher.final.dir is not set: files go to {folder}.")
    name = "data.publisher.final.dir" if "://" in folder or folder.startswith("file:") else "writer.fs.uri"
    uri = urlsplit(folder if name != "writer.fs.uri" else str(read.text(name)))
    if uri.scheme in ("hdfs", "webhdfs", "viewfs", "maprfs"):
        raise read.wrong(
            name,
            "Hadoop file systems are not written",
            "Name a local folder or an object store such as s3://bucket/folder.",
        )
    inner = uri.path if name != "writer.fs.uri" else folder
    if uri.scheme in ("", "file"):
        return inner
    return f"{uri.scheme}://{uri.netloc}/{inner.lstrip('/')}"
