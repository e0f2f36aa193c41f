"""Procedures that count: sizes of files, write amplification, ranges of column values and how far they overlap.

Column ranges come from the Parquet footers of the latest base files, so they need no metadata table and are never stale;
rows that are only in logs are not in them. Percentiles and the deviation are those of Hudi's histogram.
`limit` counts the last row, which is over all commits, and keeps the newest commits (Hudi cuts the end off).
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakesql.errors import FormatError, TableError
from lakesql.format.avro import META_COLUMNS
from lakesql.format.files import BaseFile
from lakesql.procedures.declare import FILTER, LIMIT, Call, Parameter, Procedure, Rows, columns
from lakesql.procedures.shape import chosen, matches, showing
from lakesql.table.state import TableState

_ALL = "ALL"


# ---------------------------------------------------------------- sizes
def _file_sizes(call: Call) -> Rows:
    state = call.state()
    pattern = call["partition_path"]
    sizes: dict[str, list[int]] = {}
    for file in state.files:
        if not pattern or matches(file.partition, pattern):
            sizes.setdefault(file.instant, []).append(file.size_bytes)
    shown = _newest(sorted(sizes), call["limit"])
    every = [size for group in sizes.values() for size in group]
    return [_sizes_row(instant, sizes[instant]) for instant in reversed(shown)] + [_sizes_row(_ALL, every)]


def _newest(ordered: list[Any], limit: int | None) -> list[Any]:
    """The last of them, with room for a row over all within the limit."""
    if limit is None or limit < 0:
        return ordered
    return ordered[max(len(ordered) - limit + 1, 0) :] if limit else []


def _sizes_row(name: str, sizes: Sequence[int]) -> dict[str, Any]:
    ordered = sorted(sizes)
    mean = sum(ordered) / len(ordered) if ordered else 0.0
    spread = sum((size - mean) ** 2 for size in ordered)
    return {
        "commit_time": name,
        "min": ordered[0] if ordered else 0,
        "10th": _quantile(ordered, 0.1),
        "50th": _quantile(ordered, 0.5),
        "avg": mean,
        "95th": _quantile(ordered, 0.95),
        "max": ordered[-1] if ordered else 0,
        "num_files": len(ordered),
        "std_dev": math.sqrt(spread / (len(ordered) - 1)) if len(ordered) > 1 else 0.0,
    }


def _quantile(ordered: Sequence[int], share: float) -> float:
    """Between the two values around place share * (n + 1), counted from one."""
    if not ordered:
        return 0.0
    place = share * (len(ordered) + 1)
    if place < 1:
        return float(ordered[0])
    if place >= len(ordered):
        return float(ordered[-1])
    lower, upper = ordered[int(place) - 1], ordered[int(place)]
    return lower + (place - int(place)) * (upper - lower)


# ---------------------------------------------------------------- write amplification
def _amplification(call: Call) -> Rows:
    state = call.state()
    rows = []
    for instant in sorted(state.timeline.completed_writes(), key=lambda i: i.requested):
        if instant.completed_action == "deltacommit":
            continue
        stats = [s for group in state.commit(instant).partition_stats.values() for s in group]
        updated, written = sum(s.num_update_writes or 0 for s in stats), sum(s.num_writes or 0 for s in stats)
        rows.append(_amplified(instant.requested, updated, written))
    total = _amplified("Total", sum(r["total_upserted"] for r in rows), sum(r["total_written"] for r in rows))
    return [*_newest(rows, call["limit"]), total]


def _amplified(name: str, updated: int, written: int) -> dict[str, Any]:
    return {
        "commit_time": name,
        "total_upserted": updated,
        "total_written": written,
        "write_amplification_factor": f"{written / updated:.2f}" if updated else "0",
    }


# ---------------------------------------------------------------- column values
def _column_stats(call: Call) -> Rows:
    state = call.state()
    for file in _bases(state, call["partition"]):
        for name, low, high, nulls in _ranges(state, file, chosen(call["targetColumns"])):
            yield {
                "file_name": file.name,
                "column_name": name,
                "min_value": None if low is None else str(low),
                "max_value": None if high is None else str(high),
                "null_number": nulls,
            }


def _bases(state: TableState, partitions: str | None) -> list[BaseFile]:
    wanted = chosen(partitions)
    return [f for f in state.base_files() if not wanted or any(f.partition.startswith(p) for p in wanted)]


def _ranges(state: TableState, file: BaseFile, wanted: Sequence[str]) -> Iterator[tuple[str, Any, Any, int]]:
    """(column, smallest, largest, NULLs) of a base file, for top-level columns that are no structures."""
    unknown = [name for name in wanted if name not in state.schema.names]
    if unknown:
        raise TableError(
            f"{state.path}: no column {', '.join(unknown)}; the table has {', '.join(state.schema.names)}."
        )
    try:
        footer = pq.read_metadata(state.storage.source(file.path))
    except (pa.ArrowException, OSError) as error:
        raise FormatError(
            f"{state.path}/{file.path}: the base file cannot be read: {error}. Restore it, or roll back its commit."
        ) from error
    schema = footer.schema
    for index in range(len(schema)):
        path = schema.column(index).path
        if path in META_COLUMNS or "." in path or (wanted and path not in wanted):
            continue
        found = [footer.row_group(g).column(index).statistics for g in range(footer.num_row_groups)]
        known = [s for s in found if s is not None]
        ranged = [s for s in known if s.has_min_max]
        nulls = sum(s.null_count or 0 for s in known if s.has_null_count)
        low = min((s.min for s in ranged), default=None)
        yield path, low, max((s.max for s in ranged), default=None), nulls


def _overlap(call: Call) -> Rows:
    """How many files of a partition have a value between their smallest and largest, at the values where that changes."""
    state = call.state()
    files: dict[str, int] = {}
    ends: dict[tuple[str, str], list[tuple[Any, Any]]] = {}
    for file in _bases(state, call["partition"]):
        files[file.partition] = files.get(file.partition, 0) + 1
        for name, low, high, _ in _ranges(state, file, chosen(call["targetColumns"])):
            if low is not None and high is not None:
                ends.setdefault((file.partition, name), []).append((low, high))
    rows = [_overlap_row(partition, name, files[partition], found) for (partition, name), found in ends.items()]
    return sorted(rows, key=lambda row: (row["Field name"], row["Average overlap"], row["Partition path"]))


def _overlap_row(partition: str, name: str, files: int, ranges: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
    points = [(value, kind) for low, high in ranges for value, kind in ((low, 0), (high, 1))]
    open_now = most = 0
    at: dict[Any, int] = {}
    for value, closes in sorted(points):
        if closes:
            at.setdefault(value, open_now)
            open_now -= 1
        else:
            open_now += 1
            most = max(most, open_now)
            at[value] = open_now
    counts = sorted(at.values())
    return {
        "Partition path": partition,
        "Field name": name,
        "Average overlap": sum(counts) / len(counts),
        "Maximum file overlap": most,
        "Total file number": files,
        **{f"{share}% overlap": counts[int(share / 100 * (len(counts) - 1))] for share in (50, 75, 95, 99)},
        "Total value number": len(counts),
    }


_OVERLAP = pa.schema(
    [
        ("Partition path", pa.string()),
        ("Field name", pa.string()),
        ("Average overlap", pa.float64()),
        *((n, pa.int32()) for n in ("Maximum file overlap", "Total file number")),
        *((f"{share}% overlap", pa.int32()) for share in (50, 75, 95, 99)),
        ("Total value number", pa.int32()),
    ]
)
_OF_COLUMNS = (
    Parameter("partition", "VARCHAR", None, "partitions whose paths begin so, separated by commas"),
    Parameter("targetColumns", "VARCHAR", None, "these columns, separated by commas"),
    FILTER,
)
_WA = showing(
    "stats_wa",
    "Rows written for each row updated, by commit; delta commits are left out.",
    columns(commit_time="text", total_upserted="long", total_written="long", write_amplification_factor="text"),
    _amplification,
)
_OVERLAPS = showing(
    "show_metadata_column_stats_overlap",
    "How many files of a partition hold a value at once, by column: whether sorting would pay.",
    _OVERLAP,
    _overlap,
    _OF_COLUMNS,
)

PROCEDURES: tuple[Procedure, ...] = (
    showing(
        "stats_file_sizes",
        "How large files are, by the instant that wrote them and over all.",
        pa.schema(
            [
                ("commit_time", pa.string()),
                ("min", pa.int64()),
                *((n, pa.float64()) for n in ("10th", "50th", "avg", "95th")),
                ("max", pa.int64()),
                ("num_files", pa.int32()),
                ("std_dev", pa.float64()),
            ]
        ),
        _file_sizes,
        (Parameter("partition_path", "VARCHAR", None, "a glob of partition paths"), LIMIT),
    ),
    _WA,
    replace(_WA, name="stats_write_amplification", doc="As stats_wa."),
    showing(
        "show_metadata_table_column_stats",
        "Smallest and largest value and NULLs of each column in each base file, from the Parquet footers.",
        columns(file_name="text", column_name="text", min_value="text", max_value="text", null_number="long"),
        _column_stats,
        _OF_COLUMNS,
    ),
    _OVERLAPS,
    replace(_OVERLAPS, name="show_metadata_table_column_stats_overlap", doc="As show_metadata_column_stats_overlap."),
    replace(_OVERLAPS, name="show_column_stats_overlap", doc="As show_metadata_column_stats_overlap."),
)
