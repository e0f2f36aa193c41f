"""What to compact and when: settings, triggers, strategies and the plan's record, by Hudi's names and rules. Pure.

A trigger looks at the timeline and says whether compaction is due. A strategy orders the operations that are possible
and keeps some of them. A plan is the list of operations that were kept (hudi-format 2.8, 10.2). Nothing is read here.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta, tzinfo
from typing import Any

from lakesql.errors import FormatError, TableError
from lakesql.format.files import FileSlice
from lakesql.format.timeline import Timeline, instant_millis
from lakesql.values import Parse, flag, parsed, size

TRIGGERS = ("NUM_COMMITS", "NUM_COMMITS_AFTER_LAST_REQUEST", "TIME_ELAPSED", "NUM_AND_TIME", "NUM_OR_TIME")
LOG_COMPACTOR = "org.apache.hudi.table.action.compact.LogCompactionExecutionHelper"
STRATEGY, ADAPTIVE = "hoodie.compaction.strategy", "adaptive"
"""The strategy of `adaptive`, which asks no trigger."""
_PLAN_VERSION = 2
_MB = 1 << 20


@dataclass(frozen=True, slots=True)
class CompactionConfig:
    """The settings of compaction."""

    inline: bool = False
    schedule_inline: bool = False
    trigger: str = TRIGGERS[0]
    max_commits: int = 5
    max_seconds: int = 3600
    strategy: str = "LogFileSizeBasedCompactionStrategy"
    target_io_mb: int = 500 * 1024
    log_bytes_min: int = 0
    log_files_min: int = 0
    target_days: int = 10
    partition_regex: str = ""


@dataclass(frozen=True, slots=True)
class Operation:
    """One file slice to compact, and what that costs. Megabytes are whole ones, as Hudi counts them."""

    slice: FileSlice
    log_bytes: int
    read_mb: int
    write_mb: int

    @property
    def partition(self) -> str:
        return self.slice.partition

    @property
    def io_mb(self) -> int:
        return self.read_mb + self.write_mb


def operation_of(one: FileSlice, max_file_bytes: int) -> Operation:
    """The operation that compacts a slice; one without base file counts as a full file to write."""
    logs = sum(log.size_bytes for log in one.logs)
    base = one.base.size_bytes if one.base is not None else 0
    return Operation(one, logs, (base + logs) // _MB, (base or max_file_bytes) // _MB)


# ---------------------------------------------------------------- triggers


def is_due(config: CompactionConfig, timeline: Timeline, now_ms: int, zone: tzinfo) -> bool:
    """Whether enough delta commits, or enough time, have passed since the last compaction."""
    compactions = [i for i in timeline.instants if i.completed_action == "commit" and i.is_completed]
    if config.trigger == "NUM_COMMITS_AFTER_LAST_REQUEST":
        compactions = timeline.pending("compaction") or compactions
    deltas = [i.requested for i in timeline.instants if i.action == "deltacommit" and i.is_completed]
    if not deltas:
        return False
    last = max((i.requested for i in compactions), default="")
    enough = sum(t > last for t in deltas) >= config.max_commits
    late = now_ms // 1000 - instant_millis(last or deltas[0], zone) // 1000 >= config.max_seconds
    return {"TIME_ELAPSED": late, "NUM_AND_TIME": enough and late, "NUM_OR_TIME": enough or late}.get(
        config.trigger, enough
    )


# ---------------------------------------------------------------- strategies

Choose = Callable[[Sequence[Operation], CompactionConfig, date], list[Operation]]


def choose(operations: Sequence[Operation], config: CompactionConfig, today: date, where: str) -> list[Operation]:
    """The operations of a plan by the configured strategy. TableError when it needs days and finds other partitions."""
    try:
        return STRATEGIES[config.strategy](operations, config, today)
    except ValueError as error:
        raise TableError(
            f"{where}: strategy {config.strategy} orders partitions by day (yyyy/MM/dd or yyyy-MM-dd, hive style or not) "
            f"and {error}. SET hoodie.compaction.strategy to another one."
        ) from error


def _bounded(operations: Sequence[Operation], config: CompactionConfig) -> list[Operation]:
    """In the order given until the budget is used up; the operation that uses it up is in."""
    kept: list[Operation] = []
    left = config.target_io_mb
    for one in operations:
        kept.append(one)
        left -= one.io_mb
        if left <= 0:
            break
    return kept


def _by_log_bytes(operations: Sequence[Operation], config: CompactionConfig, today: date) -> list[Operation]:  # noqa: ARG001
    found = [o for o in operations if o.log_bytes >= config.log_bytes_min]
    return _bounded(sorted(found, key=lambda o: -o.log_bytes), config)


def _by_log_files(operations: Sequence[Operation], config: CompactionConfig, today: date) -> list[Operation]:  # noqa: ARG001
    found = [o for o in operations if len(o.slice.logs) >= config.log_files_min]
    return _bounded(sorted(found, key=lambda o: -len(o.slice.logs)), config)


def _newest_days(operations: Sequence[Operation], config: CompactionConfig, today: date) -> list[Operation]:  # noqa: ARG001
    days = sorted({day_of(o.partition) for o in operations}, reverse=True)[: config.target_days]
    return _bounded([o for day in days for o in operations if day_of(o.partition) == day], config)


def _recent(one: Operation, config: CompactionConfig, today: date) -> bool:
    return day_of(one.partition) >= today - timedelta(days=config.target_days)


def _recent_days(operations: Sequence[Operation], config: CompactionConfig, today: date) -> list[Operation]:
    found = [o for o in operations if _recent(o, config, today)]
    return sorted(found, key=lambda o: day_of(o.partition), reverse=True)


def _older_days(operations: Sequence[Operation], config: CompactionConfig, today: date) -> list[Operation]:
    return [o for o in operations if not _recent(o, config, today)]


def _by_regex(operations: Sequence[Operation], config: CompactionConfig, today: date) -> list[Operation]:  # noqa: ARG001
    return [o for o in operations if re.search(config.partition_regex, o.partition)]


def day_of(partition: str) -> date:
    """The day in a partition path, column names of hive style left out. ValueError when there is none."""
    text = re.sub(r"(^|/)[^/]*?=", r"\1", partition)
    match = re.match(r"(\d{4})[/-](\d{1,2})[/-](\d{1,2})", text)
    if match is None:
        raise ValueError(f"the partition {partition!r} is no day")
    return date(*map(int, match.groups()))


STRATEGIES: Mapping[str, Choose] = {
    "LogFileSizeBasedCompactionStrategy": _by_log_bytes,
    "LogFileNumBasedCompactionStrategy": _by_log_files,
    "BoundedIOCompactionStrategy": lambda operations, config, today: _bounded(operations, config),  # noqa: ARG005
    "UnBoundedCompactionStrategy": lambda operations, config, today: list(operations),  # noqa: ARG005
    "DayBasedCompactionStrategy": _newest_days,
    "BoundedPartitionAwareCompactionStrategy": _recent_days,
    "UnBoundedPartitionAwareCompactionStrategy": _older_days,
    "PartitionRegexBasedCompactionStrategy": _by_regex,
}
"""Hudi's class names, without the package, and what each keeps."""


# ---------------------------------------------------------------- settings


def _trigger(text: str) -> str:
    if text.upper() not in TRIGGERS:
        raise ValueError(f"must be one of {', '.join(TRIGGERS)}")
    return text.upper()


def _strategy(text: str) -> str:
    name = text.rsplit(".", 1)[-1]
    if name not in STRATEGIES and name != ADAPTIVE:
        raise ValueError(f"must be one of {', '.join(STRATEGIES)}, {ADAPTIVE}")
    return name


def _regex(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"must be a regular expression ({error})") from None
    return text


_BY_FIELD: dict[str, tuple[str, Parse]] = {
    "inline": ("hoodie.compact.inline", flag),
    "schedule_inline": ("hoodie.compact.schedule.inline", flag),
    "trigger": ("hoodie.compact.inline.trigger.strategy", _trigger),
    "max_commits": ("hoodie.compact.inline.max.delta.commits", size(1)),
    "max_seconds": ("hoodie.compact.inline.max.delta.seconds", size(0)),
    "strategy": (STRATEGY, _strategy),
    "target_io_mb": ("hoodie.compaction.target.io", size(0)),
    "log_bytes_min": ("hoodie.compaction.logfile.size.threshold", size(0)),
    "log_files_min": ("hoodie.compaction.logfile.num.threshold", size(0)),
    "target_days": ("hoodie.compaction.daybased.target.partitions", size(0)),
    "partition_regex": ("hoodie.compaction.partition.path.regex", _regex),
}
SETTINGS: dict[str, Parse] = dict(_BY_FIELD.values())
TRIGGER_SETTINGS = frozenset(_BY_FIELD[name][0] for name in ("trigger", "max_commits", "max_seconds"))
"""What a call that names one of them wants to be asked before anything is scheduled."""


def parse_config(settings: Mapping[str, str]) -> CompactionConfig:
    """The typed settings. TableError names a setting and its wrong value."""
    return parsed(CompactionConfig, _BY_FIELD, settings)


# ---------------------------------------------------------------- the plan


def plan_record(operations: Sequence[Operation], version: int, of_logs: bool = False) -> dict[str, Any]:
    """The HoodieCompactionPlan; `of_logs` for a log compaction."""
    record: dict[str, Any] = {
        "operations": [_operation_record(o) for o in operations],
        "extraMetadata": {},
        "version": _PLAN_VERSION,
        "preserveHoodieMetadata": of_logs,
    }
    if of_logs:
        record["strategy"] = {"compactorClassName": LOG_COMPACTOR, "strategyParams": {}, "version": 1}
    if version >= 8:
        record["missingSchedulePartitions"] = []
    return record


def _operation_record(one: Operation) -> dict[str, Any]:
    base = one.slice.base
    return {
        "baseInstantTime": one.slice.instant,
        "deltaFilePaths": [log.name for log in one.slice.logs],
        "dataFilePath": base.name if base is not None else None,
        "fileId": one.slice.file_id,
        "partitionPath": one.partition,
        # Spark takes each of the five for granted when it runs a plan.
        "metrics": {
            "TOTAL_LOG_FILES": float(len(one.slice.logs)),
            "TOTAL_IO_MB": float(one.io_mb),
            "TOTAL_IO_READ_MB": float(one.read_mb),
            "TOTAL_LOG_FILES_SIZE": float(one.log_bytes),
            "TOTAL_IO_WRITE_MB": float(one.write_mb),
        },
    }


def slices_of(
    plan: Mapping[str, Any], files: Collection[Any], gone: Collection[tuple[str, str]], where: str
) -> list[FileSlice]:
    """The file slices that a plan names, base file and exactly its logs, from the files of a listing.

    An operation whose files were cleaned away with its replaced group (`gone`) is left out; any other file that is
    missing is a TableError. FormatError for a plan that does not say what to compact.
    """
    by_name = {(f.partition, f.name): f for f in files}
    found: list[FileSlice] = []
    for operation in plan.get("operations") or []:
        try:
            partition, file_id = operation["partitionPath"] or "", operation["fileId"]
            base_name, log_names = operation["dataFilePath"], operation["deltaFilePaths"] or []
            names = [n.rsplit("/", 1)[-1] for n in (*([base_name] if base_name else []), *log_names)]
        except (KeyError, TypeError, AttributeError) as error:
            raise FormatError(f"{where}: the plan is damaged ({error!r}). Roll it back and schedule again.") from error
        missing = [n for n in names if (partition, n) not in by_name]
        if missing and (partition, file_id) in gone:
            continue
        if missing:
            raise TableError(
                f"{where}: the plan names {'/'.join(p for p in (partition, missing[0]) if p)}, which is gone. Nothing was "
                "changed. Roll the plan back (CALL run_rollback_inflight_tableservice in Spark), then schedule again."
            )
        members = [by_name[partition, n] for n in names]
        base = members[0] if base_name else None
        instant = operation.get("baseInstantTime") or (base.instant if base else members[0].instant)
        found.append(FileSlice(partition, file_id, instant, base, tuple(members[1 if base else 0 :])))
    return found
