"""From settings under their known names to a job; what is unused, unknown or odd about them is said, not ignored.

`setting_keys` has the table of them, `reading` types and checks single values, `job_format` and `job_target` make the two
larger parts, `client_settings` what goes to the Kafka client. No secret is in an error, a note or a repr.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lakesql.errors import JobError
from lakesql.ingest.client_settings import ClientSettings, is_client_setting
from lakesql.ingest.job_format import FIXED, LOGIN, format_of
from lakesql.ingest.job_target import TABLE, target_of
from lakesql.ingest.model import BadRecords, Format, Job, Limit, Target
from lakesql.ingest.reading import Reading, near
from lakesql.ingest.secrets import Settings
from lakesql.ingest.setting_keys import KEYS, OLDER
from lakesql.ingest.setting_unused import UNUSED, why_unused
from lakesql.services.spelling import OURS, similar


@dataclass(frozen=True, slots=True)
class JobRead:
    """A job, and what became of its settings: unused (with the reason), unknown (with a near one, or ''), notes."""

    job: Job
    unused: Mapping[str, str] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def job_of(
    settings: Mapping[str, str],
    *,
    name: str | None = None,
    target: Target | None = None,
    format: Format | None = None,  # noqa: A002 - the word that users type
    strict: bool = False,
) -> JobRead:
    """The job that settings ask for; name, target and format as given win over them. JobError names what is wrong.

    `strict`, or the setting lakesql.strict: unknown settings are an error.
    """
    read = Reading(settings)
    client = ClientSettings(_client_settings(read))
    unused, unknown = _sorted_out(read, client)
    if unknown and (strict or read("lakesql.strict")):
        raise JobError(f"{_unknown_text(unknown)} Correct the names, or run without strict.")
    if read("job.disabled"):
        raise read.wrong("job.disabled", "the job is disabled", "Set it to false to run the job.")
    brokers = _with_brokers(read, client)
    chosen = format_of(read, format)
    where = target_of(read, target, unused)
    job = Job(
        name=_name(read, name, where if target or read.given("lakesql.into") else None),
        client=brokers,
        target=replace(where, options=Settings(where.options), properties=Settings(where.properties)),
        format=replace(chosen, options=_with_login(chosen, brokers)),
        whitelist=_whitelist(read),
        blacklist=read("topic.blacklist"),
        topic_settings=_topic_settings(read, unknown),
        limit=_limit(read),
        bad=_bad(read),
        settings=read.settings,
        **_offsets(read, client),
        **_tasks(read),
        **_commits(read),
    )
    for setting in KEYS:
        if read.given(setting) and setting not in unused:
            read(setting)  # also what this job has no use for must be a value
    _notes_of(read, client, job)
    if unknown:
        read.notes.append(_unknown_text(unknown))
    return JobRead(job, unused, unknown, tuple(read.notes))


# ---------------------------------------------------------------- parts of the job


def _offsets(read: Reading, client: ClientSettings) -> dict[str, Any]:
    bootstrap, reset = read("bootstrap.with.offset"), read("reset.on.offset.out.of.range")
    if bootstrap == "timestamp" and read("lakesql.bootstrap.timestamp") is None:
        raise read.missing(
            "lakesql.bootstrap.timestamp", "bootstrap.with.offset = timestamp needs the time to start at."
        )
    if read("hoodie.streamer.source.kafka.enable.failOnDataLoss") and not read.given("reset.on.offset.out.of.range"):
        reset = "fail"
    isolation = read("isolation.level")
    if client.isolation and not read.given("isolation.level"):
        isolation = read.parse(KEYS["isolation.level"], client.isolation)
    return {
        "bootstrap": bootstrap,
        "lookback": read("kafka.offset.lookback"),
        "reset": reset,
        "to_latest": frozenset(topic.lower() for topic in read("topics.move.to.latest.offset")),
        "isolation": isolation,
    }


def _tasks(read: Reading) -> dict[str, Any]:
    packer, estimator = read("kafka.workunit.packer.type"), read("kafka.workunit.size.estimator.type")
    functions = {}
    for kind, chosen in (("packer", packer), ("size.estimator", estimator)):
        key = f"kafka.workunit.{kind}.customizedType"
        functions[kind] = read(key) if chosen == "CUSTOM" else None
        if chosen == "CUSTOM" and functions[kind] is None:
            raise read.missing(key, f"kafka.workunit.{kind}.type = CUSTOM needs a Python function as module:function.")
    return {
        "packer": packer,
        "packer_function": functions["packer"],
        "estimator": estimator,
        "estimator_function": functions["size.estimator"],
        "pre_grouping_factor": read("workunit.pre.grouping.size.factor"),
        "max_tasks": read("mr.job.max.mappers"),
        "target_task_size": read("mr.target.mapper.size"),
        "workers": read("taskexecutor.threadpool.size") or os.cpu_count() or 1,
        "task_retries": read("task.maxretries"),
        "retry_interval_s": float(read("task.retry.intervalinsec")),
        "fetch_timeout_s": read("lakesql.fetch.timeout"),
    }


def _commits(read: Reading) -> dict[str, Any]:
    return {
        "commit_policy": read("job.commit.policy"),
        "commit_interval_s": read("lakesql.commit.interval"),
        "lock": read("job.lock.enabled"),
        "lock_dir": read("job.lock.dir"),
        "lock_wait_s": read("lakesql.lock.wait"),
        "group": read("job.group"),
        "description": read("job.description"),
    }


def _limit(read: Reading) -> Limit | None:
    kind = read("extract.limit.type")
    if not read("extract.limit.enabled"):
        if kind:
            read.notes.append("extract.limit.enabled is not true: the limit of extract.limit.type is not in force.")
        return None
    if kind is None:
        raise read.missing("extract.limit.type", "extract.limit.enabled = true needs it: time, rate, count or pool.")
    amount_key = {"time": "time.limit", "rate": "rate.limit", "count": "count.limit", "pool": "pool.size"}[kind]
    amount = read(f"extract.limit.{amount_key}")
    if amount is None:
        raise read.missing(f"extract.limit.{amount_key}", f"extract.limit.type = {kind} needs it.")
    if kind == "time":
        return Limit("time", amount * read("extract.limit.time.limit.timeunit"))
    per = read("extract.limit.rate.limit.timeunit") if kind == "rate" else 1.0
    return Limit(kind, float(amount), per)


def _bad(read: Reading) -> BadRecords:
    percent, count = "lakesql.bad.records.max.percent", "lakesql.bad.records.max.count"
    return BadRecords(read("lakesql.bad.records"), read(percent), read(count))


def _name(read: Reading, name: str | None, target: Target | None) -> str:
    """As given, as set, or after the target."""
    if found := name or read.text("job.name"):
        return found
    if target and (last := re.sub(r"\W+", "_", target.path.rstrip("/").rsplit("/", 1)[-1]).strip("_")):
        return last
    raise read.missing("job.name", "Stored offsets and the lock belong to it.")


def _whitelist(read: Reading) -> tuple[str, ...]:
    if read.given("topic.whitelist"):
        return tuple(read("topic.whitelist"))
    topic = read.text("hoodie.streamer.source.kafka.topic")
    return (re.escape(topic),) if topic else ()


def _topic_settings(read: Reading, unknown: dict[str, str]) -> tuple[tuple[str, Mapping[str, str]], ...]:
    """The objects of dataset.specific.props; their values are checked as those of the job are."""
    key = "dataset.specific.props"
    if (text := read.text(key)) is None:
        return ()
    remedy = 'Write [{"dataset": "regular expression", "setting": "value"}, ...].'
    try:
        entries = json.loads(text)
    except ValueError as error:
        raise read.wrong(key, f"this is not JSON ({error})", remedy) from None
    if not isinstance(entries, list) or not all(
        isinstance(e, dict) and isinstance(e.get("dataset"), str) for e in entries
    ):
        raise read.wrong(key, "this must be an array of objects, each with a dataset", remedy)
    found = []
    for entry in entries:
        try:
            re.compile(entry["dataset"])
        except re.error as error:
            raise read.wrong(
                key, f"dataset {entry['dataset']!r} is not a regular expression ({error})", remedy
            ) from None
        of = f" of dataset {entry['dataset']!r} in {key}"
        own = {OLDER.get(k, k): _plain(v) for k, v in entry.items() if k != "dataset"}
        for name, value in own.items():
            if name in KEYS and KEYS[name].per_topic:
                read.parse(KEYS[name], value, of)
            elif name in KEYS or why_unused(name):
                read.notes.append(f"{name}{of}: this setting has no effect for a single topic.")
            else:
                unknown[f"{key}: {name}"] = near(name)
        if own.get("bootstrap.with.offset", "").lower() == "timestamp" and "lakesql.bootstrap.timestamp" not in {
            *own,
            *read.settings,
        }:
            raise read.missing("lakesql.bootstrap.timestamp", f"bootstrap.with.offset = timestamp{of} needs it.")
        found.append((entry["dataset"], own))
    return tuple(found)


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# ---------------------------------------------------------------- client, what is left


def _client_settings(read: Reading) -> Settings:
    """Those for the client, checked for open references; settings with a meaning of their own left out."""
    found = {
        n: v
        for n, v in read.settings.items()
        if is_client_setting(n) and n not in KEYS and n not in OLDER and n not in UNUSED
    }
    for name, value in found.items():
        read.check_closed(name, value)
    return Settings(found, read.settings.places)


def _with_brokers(read: Reading, client: ClientSettings) -> Settings:
    brokers = read("kafka.brokers") or (client.brokers.split(",") if client.brokers else None)
    if not brokers:
        raise read.missing("kafka.brokers", "Set it to the brokers to start from, as host:port, host:port.")
    return Settings({"bootstrap.servers": ",".join(broker.strip() for broker in brokers), **client.values})


def _with_login(chosen: Format, client: Mapping[str, str]) -> Settings:
    """The options of the format; the registry may share the client's login."""
    options = Settings(chosen.options)
    if (
        options.get("schema.registry.basic.auth.credentials.source", "").upper() == "SASL_INHERIT"
        and "sasl.username" in client
    ):
        options[LOGIN] = f"{client['sasl.username']}:{client.get('sasl.password', '')}"
        options["schema.registry.basic.auth.credentials.source"] = "USER_INFO"
    return options


def _sorted_out(read: Reading, client: ClientSettings) -> tuple[dict[str, str], dict[str, str]]:
    """Which settings are unused, and why; which are unknown, and what may be meant."""
    unused, unknown = dict(client.unused), {name: near(name) for name in client.unknown}
    for name in read.settings:
        if name in KEYS or name in OLDER or name in unused or name in unknown:
            continue
        if reason := UNUSED.get(name):
            unused[name] = reason
        elif is_client_setting(name) or name.startswith((FIXED, TABLE)) or name in OURS:
            continue
        elif meant := _misspelt(name):
            unknown[name] = meant
        elif reason := why_unused(name):
            unused[name] = reason
        elif not name.startswith("hoodie."):
            unknown[name] = near(name)
    return unused, unknown


def _misspelt(name: str) -> str:
    """A known setting that a name of a family differs from by a letter or so: then it is not just passed on or unused."""
    if name.startswith("hoodie.") and (found := similar(name)):
        return found
    found = near(name)
    return found if found and abs(len(found) - len(name)) <= 2 and not name.startswith("hoodie.") else ""


def _unknown_text(unknown: Mapping[str, str]) -> str:
    names = [f"{name} (is {meant} meant?)" if meant else name for name, meant in unknown.items()]
    return f"Unknown settings: {', '.join(names)}."


def _notes_of(read: Reading, client: ClientSettings, job: Job) -> None:
    lock = read.text("job.lock.type")
    if lock and not lock.rsplit(".", 1)[-1].startswith("FileBased"):
        read.notes.append("job.lock.type: the lock is a file, whatever class is named.")
    if "group.id" in client.values:
        read.notes.append(
            "group.id goes to the client for its rights; offsets are never taken from the consumer group."
        )
    if read.given("lakesql.bootstrap.timestamp") and job.bootstrap != "timestamp" and not job.topic_settings:
        read.notes.append("lakesql.bootstrap.timestamp has no effect unless bootstrap.with.offset = timestamp.")
