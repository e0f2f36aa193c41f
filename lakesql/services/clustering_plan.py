"""What a clustering does, decided: settings and file slices in, a plan out; and the plan's record. Pure.

The rules are Hudi's (PartitionAwareClusteringPlanStrategy with SparkSizeBasedClusteringPlanStrategy): of the chosen
partitions the slices whose base file is small, largest first, cut into groups of bounded size, each of one partition.
A group of a single file group is worth a plan when rows are sorted or when the settings say so. The sort columns go
into the plan under Hudi's key, so that Spark sorts by them; the layout goes there too, where Spark ignores it: it takes
the layout from its own settings.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakesql.errors import Unsupported
from lakesql.format.files import FileSlice
from lakesql.services.curves import DIRECT, HILBERT, LINEAR, SAMPLE, Z_ORDER
from lakesql.values import Parse, flag, size, whole

PLAN_CLASS = "org.apache.hudi.client.clustering.plan.strategy.SparkSizeBasedClusteringPlanStrategy"
EXECUTION_CLASS = "org.apache.hudi.client.clustering.run.strategy.SparkSortAndSizeExecutionStrategy"
_RUNNABLE = ("SortAndSizeExecutionStrategy", "BinaryCopyClusteringExecutionStrategy")
NONE, RECENT_DAYS, SELECTED, DAY_ROLLING = "NONE", "RECENT_DAYS", "SELECTED_PARTITIONS", "DAY_ROLLING"
SORT_COLUMNS = "hoodie.clustering.plan.strategy.sort.columns"
LAYOUT = "hoodie.layout.optimize.strategy"
METHOD = "hoodie.layout.optimize.curve.build.method"
FILTER_MODE = "hoodie.clustering.plan.partition.filter.mode"
PARTITIONS = "hoodie.clustering.plan.strategy.partition.selected"
PATTERN = "hoodie.clustering.plan.strategy.partition.regex.pattern"
_HOURS = 24
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class ClusteringConfig:
    """Settings of a clustering; sizes are bytes."""

    small_file_bytes: int = 300 * _MIB
    target_file_bytes: int = 1024 * _MIB
    group_bytes: int = 2048 * _MIB
    max_groups: int = 30
    single_groups: bool = True
    sort_columns: tuple[str, ...] = ()
    layout: str = LINEAR
    method: str = SAMPLE
    filter_mode: str = NONE
    recent: int = 2
    skip_newest: int = 0
    first_partition: str = ""
    last_partition: str = ""
    partitions: tuple[str, ...] = ()
    pattern: str = ""
    plan_class: str = PLAN_CLASS
    execution_class: str = EXECUTION_CLASS
    inline: bool = False
    inline_commits: int = 4
    inline_schedule: bool = False
    async_commits: int = 4


def _names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def layout_of(text: str) -> str:
    """A layout in any of its spellings; ValueError for another word."""
    words = {"linear": LINEAR, "z-order": Z_ORDER, "zorder": Z_ORDER, "z_order": Z_ORDER, "hilbert": HILBERT}
    if text.lower() not in words:
        raise ValueError(f"must be one of {LINEAR}, {Z_ORDER}, {HILBERT}")
    return words[text.lower()]


def _upper_of(*words: str) -> Parse:
    def parse(text: str) -> str:
        if text.upper() not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return text.upper()

    return parse


def _class(expected: str) -> Parse:
    def parse(text: str) -> str:
        if text.rsplit(".", 1)[-1] != expected.rsplit(".", 1)[-1]:
            raise ValueError(f"lakesql knows {expected}")
        return expected

    return parse


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"must be a regular expression ({error})") from None
    return text


_STRATEGY = "hoodie.clustering.plan.strategy."
BY_FIELD: dict[str, tuple[str, Parse]] = {
    "small_file_bytes": (f"{_STRATEGY}small.file.limit", whole),
    "target_file_bytes": (f"{_STRATEGY}target.file.max.bytes", size(1)),
    "group_bytes": (f"{_STRATEGY}max.bytes.per.group", size(1)),
    "max_groups": (f"{_STRATEGY}max.num.groups", size(1)),
    "single_groups": (f"{_STRATEGY}single.group.clustering.enabled", flag),
    "sort_columns": (SORT_COLUMNS, _names),
    "layout": (LAYOUT, layout_of),
    "method": (METHOD, lambda text: _upper_of(SAMPLE.upper(), DIRECT.upper())(text).lower()),
    "filter_mode": (FILTER_MODE, _upper_of(NONE, RECENT_DAYS, SELECTED, DAY_ROLLING)),
    "recent": (f"{_STRATEGY}daybased.lookback.partitions", whole),
    "skip_newest": (f"{_STRATEGY}daybased.skipfromlatest.partitions", whole),
    "first_partition": (f"{_STRATEGY}cluster.begin.partition", str),
    "last_partition": (f"{_STRATEGY}cluster.end.partition", str),
    "partitions": (PARTITIONS, _names),
    "pattern": (PATTERN, _pattern),
    "plan_class": (f"{_STRATEGY}class", _class(PLAN_CLASS)),
    "execution_class": ("hoodie.clustering.execution.strategy.class", _class(EXECUTION_CLASS)),
    "inline": ("hoodie.clustering.inline", flag),
    "inline_commits": ("hoodie.clustering.inline.max.commits", size(1)),
    "inline_schedule": ("hoodie.clustering.schedule.inline", flag),
    "async_commits": ("hoodie.clustering.async.max.commits", size(1)),
}


@dataclass(frozen=True, slots=True)
class Group:
    """File slices of one partition that become `outputs` new file groups."""

    slices: tuple[FileSlice, ...]
    outputs: int


@dataclass(frozen=True, slots=True)
class PlannedSlice:
    """An input as the plan names it: the group and the bare names of the files that were its latest slice."""

    partition: str
    file_id: str
    files: frozenset[str]


@dataclass(frozen=True, slots=True)
class Plan:
    """A clustering plan, ours or another engine's."""

    groups: tuple[tuple[tuple[PlannedSlice, ...], int], ...]  # inputs, number of new file groups
    sort_columns: tuple[str, ...]
    layout: str | None  # None: as the settings of who runs it say
    method: str | None

    @property
    def inputs(self) -> frozenset[tuple[str, str]]:
        return frozenset((s.partition, s.file_id) for slices, _ in self.groups for s in slices)

    @property
    def partitions(self) -> tuple[str, ...]:
        return tuple(sorted({s.partition for slices, _ in self.groups for s in slices}))


def chosen_partitions(partitions: Collection[str], config: ClusteringConfig, hour: int) -> list[str]:
    """The partitions to look at; `hour` of the day is for DAY_ROLLING."""
    found = sorted(partitions)
    if config.partitions:
        found = [p for p in found if p in config.partitions]
    elif config.pattern:
        found = [p for p in found if re.fullmatch(config.pattern, p)]
    if config.filter_mode == RECENT_DAYS:
        newest = found[::-1][max(config.skip_newest, 0) :]
        return newest[: config.recent] if config.recent > 0 else newest
    if config.filter_mode == SELECTED:
        low, high = config.first_partition, config.last_partition
        return [p for p in found if (not low or p >= low) and (not high or p <= high)]
    if config.filter_mode == DAY_ROLLING:
        return [p for place, p in enumerate(found) if place % _HOURS == hour]
    return found


def groups_of(
    slices: Sequence[FileSlice], config: ClusteringConfig, partitions: Sequence[str], assumed_bytes: int
) -> list[Group]:
    """The groups of a plan, [] when there is nothing to do. A slice without base file counts `assumed_bytes`."""
    by_partition: dict[str, list[FileSlice]] = {p: [] for p in partitions}
    for one in slices:
        if one.partition in by_partition and (one.base.size_bytes if one.base else 0) < config.small_file_bytes:
            by_partition[one.partition].append(one)

    def bytes_of(one: FileSlice) -> int:
        return one.base.size_bytes if one.base else assumed_bytes

    groups: list[Group] = []
    for found in by_partition.values():
        groups += _cut(sorted(found, key=bytes_of, reverse=True), bytes_of, config)
    return groups[: config.max_groups]


def _cut(
    slices: Sequence[FileSlice], bytes_of: Callable[[FileSlice], int], config: ClusteringConfig
) -> Iterator[Group]:
    held: list[FileSlice] = []
    total = 0
    for one in slices:
        if held and total + bytes_of(one) > config.group_bytes:
            yield Group(tuple(held), -(-total // config.target_file_bytes))
            held, total = [], 0
        held.append(one)
        total += bytes_of(one)
    if len(held) > 1 or (held and (config.sort_columns or config.single_groups)):
        yield Group(tuple(held), max(1, -(-total // config.target_file_bytes)))


def record_of(groups: Sequence[Group], config: ClusteringConfig, root: str, assumed_bytes: int) -> dict[str, Any]:
    """The HoodieRequestedReplaceMetadata of a plan; `root` is the table's path."""
    params = {}
    if config.sort_columns:
        params = {SORT_COLUMNS: ",".join(config.sort_columns), LAYOUT: config.layout}
        params |= {METHOD: config.method.upper()} if config.layout != LINEAR else {}
    plan = {
        "inputGroups": [_group_record(group, root, assumed_bytes) for group in groups],
        "strategy": {"strategyClassName": config.execution_class, "strategyParams": params, "version": 1},
        "extraMetadata": {},
        "version": 1,
        "preserveHoodieMetadata": True,
        "missingSchedulePartitions": [],
    }
    return {"operationType": "CLUSTER", "clusteringPlan": plan, "extraMetadata": {}, "version": 1}


def _group_record(group: Group, root: str, assumed_bytes: int) -> dict[str, Any]:
    slices = [
        {
            "dataFilePath": f"file:{root}/{one.base.path}" if one.base else "",
            "deltaFilePaths": [f"file:{root}/{log.path}" for log in one.logs],
            "fileId": one.file_id,
            "partitionPath": one.partition,
            "bootstrapFilePath": "",
            "version": 1,
        }
        for one in group.slices
    ]
    logs = [log.size_bytes for one in group.slices for log in one.logs]
    base = sum(one.base.size_bytes for one in group.slices if one.base)
    read = (base + sum(logs)) // _MIB
    written = (base + assumed_bytes * sum(one.base is None for one in group.slices)) // _MIB
    metrics = {
        "TOTAL_LOG_FILES": len(logs),
        "TOTAL_IO_MB": read + written,
        "TOTAL_IO_READ_MB": read,
        "TOTAL_LOG_FILES_SIZE": sum(logs),
        "TOTAL_IO_WRITE_MB": written,
    }
    return {
        "slices": slices,
        "metrics": {name: float(value) for name, value in metrics.items()},
        "numOutputFileGroups": group.outputs,
        "extraMetadata": None,
        "version": 1,
    }


def plan_of(record: Mapping[str, Any], where: str) -> Plan | None:
    """The plan in a HoodieRequestedReplaceMetadata; None when it has none: an overwrite of version 6."""
    stored = record.get("clusteringPlan")
    if stored is None:
        return None
    strategy = stored.get("strategy") or {}
    name = strategy.get("strategyClassName") or EXECUTION_CLASS
    if not name.endswith(_RUNNABLE):
        raise Unsupported(
            f"{where}: the clustering is planned for {name}, which lakesql does not know. Nothing was changed. Run it "
            "with Spark."
        )
    params = strategy.get("strategyParams") or {}
    groups = tuple(
        (tuple(map(_planned_slice, group.get("slices") or ())), group.get("numOutputFileGroups") or 1)
        for group in stored.get("inputGroups") or ()
    )
    layout = layout_of(params[LAYOUT]) if LAYOUT in params else None
    method = params[METHOD].lower() if METHOD in params else None
    return Plan(groups, _names(params.get(SORT_COLUMNS) or ""), layout, method)


def _planned_slice(stored: Mapping[str, Any]) -> PlannedSlice:
    paths = [stored.get("dataFilePath") or "", *(stored.get("deltaFilePaths") or ())]
    names = frozenset(path.rsplit("/", 1)[-1] for path in paths if path)
    return PlannedSlice(stored.get("partitionPath") or "", stored["fileId"], names)
