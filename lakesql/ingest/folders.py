"""Folders of ingested files, as Gobblin names them: by topic, and by the time of the record (kafka-ingestion R33-R37, 2.9).

    <topic>/<level>/<time by the pattern>/     hourly/2015/04/08/15
    <topic>/                                   without time folders

The time of a record is the first configured column path that has a value, else the Kafka timestamp; never the wall clock.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import tzinfo

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakesql.errors import JobError, Unsupported
from lakesql.ingest.model import TIME_MAX_MS
from lakesql.table.key_times import local_time, strftime_pattern, zone_named
from lakesql.table.names import literal

NO_TIME = "__HIVE_DEFAULT_PARTITION__"
"""Folder of a record that has neither the configured time nor a Kafka timestamp."""

LAYOUT = "lakesql.files.layout"
"""'time' or 'task'; without it, what the classes and writer.partition.* of a job file ask for."""

_GRANULARITY = {
    "YEAR": "yyyy",
    "MONTH": "yyyy/MM",
    "DAY": "yyyy/MM/dd",
    "HOUR": "yyyy/MM/dd/HH",
    "MINUTE": "yyyy/MM/dd/HH/mm",
}
_UNITS = {
    "NANOSECONDS": 1e-6, "MICROSECONDS": 1e-3, "MILLISECONDS": 1, "SECONDS": 1_000, "MINUTES": 60_000, "HOURS": 3_600_000,
    "DAYS": 86_400_000,
}  # fmt: skip
_QUARTER_MS = 900_000  # offsets of zones are multiples of a quarter of an hour
_FINER_THAN_HOUR = re.compile(r"%-?[MSgf]|%T")


@dataclass(frozen=True, slots=True)
class TimeFolders:
    """How the time of a record becomes a folder."""

    columns: tuple[tuple[str, ...], ...]  # paths of names, tried in order
    format: str  # as strftime has it
    zone: tzinfo
    unit_ms: float = 1
    level: str = ""
    prefix: str = ""
    suffix: str = ""
    parse_text: bool = False

    def of(self, rows: pa.Table) -> pa.DictionaryArray:
        """The folder of each row, relative to that of the topic. JobError for a configured path that is not there."""
        times = self._times(rows)
        known = times.is_valid().to_numpy(zero_copy_only=False)
        values = times.cast(pa.int64()).fill_null(0).to_numpy()
        step = 1 if _FINER_THAN_HOUR.search(self.format) else _QUARTER_MS
        moments, index = np.unique(np.where(known, values // step * step, 0), return_inverse=True)
        names = [*self._names(moments), NO_TIME]
        index = np.where(known, index, len(moments)).astype(np.int32)
        return pa.DictionaryArray.from_arrays(pa.array(index), pa.array(names))

    def _names(self, moments: np.ndarray) -> list[str]:
        local = local_time("make_timestamp_ms(moment)", self.zone)
        with duckdb.connect() as con:
            con.register("moments", pa.table({"moment": pa.array(moments), "number": np.arange(len(moments))}))
            text = f"SELECT strftime({local}, {literal(self.format)}) FROM moments ORDER BY number"
            found = [row[0] for row in con.sql(text).fetchall()]
        return ["/".join(p for p in (self.prefix, self.level, name, self.suffix) if p) for name in found]

    def _times(self, rows: pa.Table) -> pa.Array:
        """Milliseconds as a timestamp, NULL where nothing has one."""
        parts = [self._column(rows, path) for path in self.columns]
        parts.append(rows.column("_timestamp").combine_chunks().cast(pa.timestamp("ms")))
        return pc.coalesce(*parts)

    def _column(self, rows: pa.Table, path: tuple[str, ...]) -> pa.Array:
        name = ".".join(path)
        if path[0] not in rows.schema.names:
            raise _no_time(name, f"the records have no column {path[0]!r}")
        found = rows.column(path[0]).combine_chunks()
        for step in path[1:]:
            if not pa.types.is_struct(found.type) or found.type.get_field_index(step) < 0:
                raise _no_time(name, f"there is no field {step!r} in it")
            found = pc.struct_field(found, step)
        return self._milliseconds(found, name)

    def _milliseconds(self, values: pa.Array, name: str) -> pa.Array:
        if pa.types.is_timestamp(values.type):
            return pc.floor_temporal(values, unit="millisecond").cast(pa.timestamp("ms"), safe=False)
        if pa.types.is_string(values.type) and self.parse_text:
            digits = pc.match_substring_regex(values, r"^[+-]?\d{1,18}$")
            values = pc.if_else(digits, values, None).cast(pa.int64())
        if not pa.types.is_integer(values.type):
            raise _no_time(name, f"its type is {values.type}, not a whole number of {self._unit_name()} or a timestamp")
        about = pc.multiply(values.cast(pa.float64(), safe=False), float(self.unit_ms))
        values = pc.if_else(pc.less_equal(pc.abs(about), float(TIME_MAX_MS)), values, None)
        if self.unit_ms >= 1:
            return pc.multiply(values.cast(pa.int64()), int(self.unit_ms)).cast(pa.timestamp("ms"))
        return pc.floor(about).cast(pa.int64(), safe=False).cast(pa.timestamp("ms"))

    def _unit_name(self) -> str:
        return next(name.lower() for name, size in _UNITS.items() if size == self.unit_ms)


def _no_time(name: str, why: str) -> JobError:
    return JobError(
        f"writer.partition.column.name = {name}: {why}. Name a column that holds the time of the record, or remove the "
        "setting: then the Kafka timestamp chooses the folder. Nothing was committed."
    )


def time_folders(options: Mapping[str, str]) -> TimeFolders | None:
    """Time folders as the settings ask for them; None: files lie in the folder of the topic.

    JobError for a pattern, zone or unit that is not known.
    """
    asked = ("writer.builder.class", "writer.partitioner.class", "data.publisher.type")
    by_time = any(re.search("TimePartitioned|TimeBased", options.get(key, "")) for key in asked)
    by_time = by_time or any(key.startswith("writer.partition.") for key in options)
    if options.get(LAYOUT, "time" if by_time else "task").strip().lower() == "task":
        return None

    def option(name: str, default: str = "") -> str:
        return options.get(f"writer.partition.{name}", default).strip()

    newer = "TimeBased" in options.get("writer.partitioner.class", "") or option("granularity") != ""
    granularity = option("granularity", "HOUR" if newer else "DAY").upper()
    if granularity not in _GRANULARITY:
        raise JobError(f"writer.partition.granularity = {granularity}: known are {', '.join(_GRANULARITY).lower()}.")
    unit = option("timeUnit", "MILLISECONDS").upper()
    if unit not in _UNITS:
        raise JobError(f"writer.partition.timeUnit = {unit}: known are {', '.join(_UNITS).lower()}.")
    try:
        pattern = strftime_pattern(option("pattern", _GRANULARITY[granularity]), "writer.partition.pattern")
        zone = zone_named(option("timezone", "UTC"), "writer.partition.timezone")
    except Unsupported as error:
        raise JobError(str(error)) from error
    columns = [c.strip() for c in option("columns", option("column.name")).split(",") if c.strip()]
    return TimeFolders(
        tuple(tuple(column.split(".")) for column in columns),
        pattern,
        zone,
        _UNITS[unit],
        "" if newer and not option("level") else option("level", "daily"),
        option("prefix"),
        option("suffix"),
        option("enableParseAsString", "false").lower() == "true",
    )


def topic_folder(topic: str, options: Mapping[str, str], run: str) -> str:
    """The folder of a topic, by writer.file.path.type: tablename, namespace_table, default."""
    table = options.get("extract.table.name", topic).strip().strip("/")
    kind = options.get("writer.file.path.type", options.get("writer.file.pathType", "tablename")).strip().lower()
    namespace = options.get("extract.namespace", "").strip().replace(".", "/")
    if kind not in ("tablename", "namespace_table", "default"):
        raise JobError(f"writer.file.path.type = {kind}: known are tablename, namespace_table, default.")
    parts = {
        "tablename": [table],
        "namespace_table": [namespace, table],
        "default": [namespace, table, f"{run}_append"],
    }
    return "/".join(part for part in parts[kind] if part)
