"""What the front ends ask of an ingestion: a job out of a definition or a job file, its plan, its run.

SQL, the procedures and the command line come in here and nowhere else, and meet the real client, sinks and decoders in
`assembly.assemble`. Nothing is decided here.
"""

import os
import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import duckdb

from lakesql.errors import JobError, SQLError
from lakesql.ingest import assembly
from lakesql.ingest import run as run_
from lakesql.ingest.definitions import Definition
from lakesql.ingest.jobfile import read_job_file
from lakesql.ingest.metrics import Metrics
from lakesql.ingest.model import Job, Plan, Report, Target
from lakesql.ingest.plan_notes import assumed_bytes
from lakesql.ingest.progress import Progress
from lakesql.ingest.run import Parts
from lakesql.ingest.setting_unused import UNUSED
from lakesql.ingest.settings import JobRead, job_of
from lakesql.services.spelling import OURS

TOPIC = "{topic}"
INTO = "lakesql.into"
FORMAT_SETTINGS = (
    "lakesql.format", "source.class", "kafka.deserializer.type", "lakesql.decoder", "lakesql.wire",
)  # fmt: skip
"""Settings that say what the format is."""

SHORT: Mapping[str, str] = {
    "wire": "lakesql.wire",
    "registry": "kafka.schema.registry.url",
    "schema": "lakesql.schema",
    "columns": "lakesql.columns",
    "lenient": "lakesql.json.lenient",
    "key": "lakesql.key.format",
    "key_columns": "lakesql.key.columns",
    "envelope": "lakesql.envelope",
}
"""What the words within FORMAT ... (...) mean; any other is a setting by its whole name."""

_ENV = re.compile(r"\$\{env:([^}]*)\}")
_OF_TARGET = (INTO, "lakesql.select", "lakesql.partition.by")
PathOf = Callable[[str], str]
"""The folder of the table that a name means; {topic} in the name stays."""


@dataclass(frozen=True, slots=True)
class Work:
    """A job that can run, and remarks about its settings, each once."""

    job: Job
    remarks: tuple[str, ...] = ()


# ---------------------------------------------------------------- jobs


def work_of(definition: Definition, path_of: PathOf, settings: Mapping[str, str] | None = None) -> Work:
    """The job of a definition; `settings` of a session about tables hold where it has none.

    JobError or SQLError for settings that are wrong, contradict the statement or are almost a known one.
    """
    given = {k: v for k, v in (settings or {}).items() if _of_tables(k)} if not definition.files else {}
    given |= resolved({**definition.options, **_format(definition)})
    contradicted = next((key for key in _OF_TARGET if key in definition.options), None)
    if contradicted:
        raise SQLError(f"setting {contradicted}: the statement itself says where rows go and which. Leave it out.")
    if definition.output is not None and definition.output != "hudi":
        given["writer.output.format"] = definition.output
    target = Target(
        "files" if definition.files else "hudi",
        definition.into if definition.files else path_of(definition.into),
        properties=definition.properties,
        partition_by=definition.partitioned_by,
        select=definition.select,
    )
    read = job_of(given, name=definition.name, target=target)
    for name, meant in read.unknown.items():
        if meant:
            raise SQLError(f"setting {name} is unknown; did you mean {meant}?")
    return _work(read)


def _of_tables(key: str) -> bool:
    return key.startswith("hoodie.") or (key in OURS and key not in UNUSED)


def work_of_file(
    file: str | os.PathLike[str],
    changed: Mapping[str, str],
    path_of: PathOf,
    strict: bool = False,
) -> Work:
    """The job of a job file, some settings changed; a table that it names is looked up as SQL does."""
    settings, notes = read_job_file(file)
    settings.update(resolved(changed))
    settings.setdefault("job.name", Path(file).stem)
    read = job_of(settings, strict=strict)
    if read.job.target.kind == "hudi":
        read = replace(read, job=replace(read.job, target=_at(read.job.target, path_of)))
    return _work(replace(read, notes=(*notes, *read.notes)))


def _at(target: Target, path_of: PathOf) -> Target:
    return replace(target, path=path_of(target.path))


def _format(definition: Definition) -> dict[str, str]:
    """The format as settings; JSON when nothing says it."""
    found = {SHORT.get(k.lower(), k): v for k, v in definition.format_options.items()}
    wrong = next((k for k in found if "." not in k), None)
    if wrong:
        known = ", ".join(k.upper() for k in SHORT)
        raise SQLError(f"FORMAT has no option {wrong}; use {known}, or a setting by its whole name.")
    if definition.format is not None:
        other = definition.options.get("lakesql.format", definition.format)
        if other.lower() != definition.format:
            raise SQLError(f"lakesql.format = {other} contradicts FORMAT {definition.format.upper()}. Leave it out.")
        found["lakesql.format"] = definition.format
    elif not any(key in definition.options for key in FORMAT_SETTINGS):
        found["lakesql.format"] = "json"
    if definition.function is not None:
        found["lakesql.decoder"] = definition.function
    return found


def resolved(settings: Mapping[str, str]) -> dict[str, str]:
    """Settings with ${env:NAME} replaced. JobError for a variable that is not there."""
    return {key: _ENV.sub(partial(_variable, key), value) for key, value in settings.items()}


def _variable(key: str, reference: re.Match[str]) -> str:
    name = reference[1].strip()
    value = os.environ.get(name)
    if value is None:
        raise JobError(f"setting {key}: the environment variable {name} is not set. Set it, then run again.")
    return value


def _work(read: JobRead) -> Work:
    remarks = list(read.notes)
    if read.unused:
        by_reason: dict[str, list[str]] = {}
        for name, why in read.unused.items():
            by_reason.setdefault(why, []).append(name)
        remarks += [f"Not used: {', '.join(names)} ({why})." for why, names in by_reason.items()]
    return Work(read.job, tuple(dict.fromkeys(remarks)))


def name_for(into: str) -> str:
    """The name of an ingestion that has none: that of its target."""
    last = into.rstrip("/").rsplit("/", 1)[-1].replace(TOPIC, "topic")
    return re.sub(r"\W+", "_", last).strip("_") or "ingestion"


# ---------------------------------------------------------------- running


def assemble(con: duckdb.DuckDBPyConnection, job: Job) -> AbstractContextManager[Parts]:
    """The client, sinks and decoders of a job, given back at the end."""
    return assembly.assemble(job, con)


def plan(con: duckdb.DuckDBPyConnection, work: Work) -> Plan:
    """What a run would do now; no record is read."""
    with assemble(con, work.job) as made:
        found = run_.planned(work.job, made)
    return replace(found, notes=(*found.notes, *assumed_bytes(found.ranges)))


def run(
    con: duckdb.DuckDBPyConnection, work: Work, progress: Progress | None = None, metrics: Metrics | None = None
) -> Report:
    """Run a job; its report begins with the remarks about its settings."""
    with assemble(con, work.job) as made:
        done = run_.run(work.job, made, progress=progress, metrics=metrics)
    return replace(done, notes=tuple(dict.fromkeys((*work.remarks, *done.notes))))
