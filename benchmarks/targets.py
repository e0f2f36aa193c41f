"""The targets as data, judged by what was measured; and why a peer is faster where it is. Pure.

A target compares figures of two cases, or looks at one. The comparison is of medians; its spread is that of the rounds, each
of which measured both.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.cases import GROUPS, GROWTH, QUERIES, SMALL_GROUPS

Results = Mapping[str, Sequence[Mapping[str, float]]]
"""Case -> the figures of each round."""


@dataclass(frozen=True, slots=True)
class Target:
    """`figure` of `case` over that of `peer`, or less it (`minus`), or alone (`peer` is None), is at most `limit`."""

    work: str  # the row of the table of targets
    text: str
    case: str
    peer: str | None
    limit: float | None  # None: for information
    figure: str = "wall_s"
    at_least: bool = False
    minus: bool = False
    guarded: bool = False
    """Whether CI fails when it doubles."""

    @property
    def name(self) -> str:
        return f"{self.work}: {self.text}"

    @property
    def wanted(self) -> str:
        if self.limit is None:
            return ""
        unit = "x" if self.peer and not self.minus else {"peak_mb": " MB"}.get(self.figure, " s")
        return f"{'>=' if self.at_least else '<='} {self.limit:,g}{unit}"


@dataclass(frozen=True, slots=True)
class Judged:
    target: Target
    value: float
    low: float
    high: float
    met: bool | None


def _pair(work: str, text: str, case: str, peer: str, limit: float | None, **more: object) -> Target:
    """lakesql against a peer at the same work."""
    return Target(work, text, f"{case}/lakesql", f"{case}/{peer}", limit, **more)  # type: ignore[arg-type]


def _writes() -> list[Target]:
    found = []
    for case in ("cow-upsert-U1", "cow-upsert-U2", "cow-delete"):
        name = case.removeprefix("cow-").replace("-", " ")
        found += [
            _pair(
                "CoW write", f"{name} / DuckDB's rewrite by hand", case, "duckdb", 1.15, guarded=case != "cow-upsert-U2"
            ),
            _pair("CoW write", f"{name} / deltalake", case, "deltalake", 1.0),
        ]
    found.append(_pair("CoW write", "upsert U1 / pyiceberg", "cow-upsert-U1", "pyiceberg", 1.0))
    for change in ("U1", "U2"):
        cow, mor = f"cow-upsert-{change}", f"mor-upsert-{change}"
        found += [
            Target(
                "MoR write", f"CoW upsert / MoR upsert, {change}", f"{cow}/lakesql", f"{mor}/lakesql", 10, at_least=True
            ),
            _pair("MoR write", f"upsert {change} / DuckLake's MERGE", mor, "ducklake", 1.0),
        ]
    found.append(Target("MoR write", "upsert U1 alone", "mor-upsert-U1/lakesql", None, 0.35))
    for change in ("M1", "M2"):
        found += [
            _pair("MERGE", f"MoR, {change} / DuckLake", f"mor-merge-{change}", "ducklake", 1.0),
            _pair("MERGE", f"CoW, {change} / deltalake", f"cow-merge-{change}", "deltalake", None),
        ]
    for change in ("U1", "U2"):
        found += [
            _pair("Hudi on Spark", f"CoW upsert {change}", f"cow-upsert-{change}", "hudi-spark", 1.0),
            _pair("Hudi on Spark", f"MoR upsert {change}", f"mor-upsert-{change}", "hudi-spark", 1.0),
        ]
    return [
        *found,
        _pair("MoR write", "delete 1 % / DuckLake", "mor-delete", "ducklake", None),
        Target(
            "MoR write", "MoR / CoW upsert, U1", "mor-upsert-U1/lakesql", "cow-upsert-U1/lakesql", None, guarded=True
        ),
        _pair(
            "bulk_insert", "/ DuckDB's COPY TO, meta columns, as many files", "bulk-insert", "duckdb", 1.2, guarded=True
        ),
        Target(
            "bulk_insert",
            "CREATE TABLE AS, its rows read by DuckDB as those of COPY TO / the same COPY TO",
            "bulk-insert-select/lakesql",
            "bulk-insert/duckdb",
            None,
        ),
        _pair("bulk_insert", "/ Hudi on Spark", "bulk-insert", "hudi-spark", 1.0),
        Target(
            "compaction",
            "20 % dirty / our CoW rewrite of the same files",
            "compaction/lakesql",
            "cow-upsert-D20/lakesql",
            1.25,
        ),
        Target(
            "compaction", "20 % dirty / DuckDB's rewrite by hand", "compaction/lakesql", "cow-upsert-D20/duckdb", None
        ),
    ]


def _reads() -> list[Target]:
    found = []
    for query in (*QUERIES, "pruned"):
        found += [
            _pair(
                "CoW read",
                f"{query}, warm / read_parquet",
                f"read-cow-{query}",
                "duckdb",
                1.05,
                guarded=query == "full",
            ),
            _pair("CoW read", f"{query}, first / read_parquet", f"read-cow-{query}", "duckdb", 1.05, figure="first_s"),
        ]
    for query in ("full", "sum"):
        dirty, all_dirty = f"read-mor-D20-{query}", f"read-mor-U1-{query}"
        found += [
            _pair("MoR read, 20 % of files dirty", f"{query}, warm / base files", dirty, "duckdb", 1.25),
            _pair(
                "MoR read, 20 % of files dirty", f"{query}, first / base files", dirty, "duckdb", 2, figure="first_s"
            ),
            _pair(
                "MoR read, all files dirty",
                f"{query}, warm / base files",
                all_dirty,
                "duckdb",
                1.3 if query == "full" else 4,
                guarded=True,
            ),
            _pair(
                "MoR read, all files dirty", f"{query}, first / base files", all_dirty, "duckdb", None, figure="first_s"
            ),
            _pair(
                "MoR read, all files dirty", f"{query}, warm / DuckLake after its MERGE", all_dirty, "ducklake", None
            ),
            _pair("hudi-rs", f"MoR read {query}, all files dirty", all_dirty, "hudi-rs", 1.0),
            _pair("hudi-rs", f"CoW read {query}", f"read-cow-{query}", "hudi-rs", 1.0),
        ]
    return [
        *found,
        _pair(
            "incremental", "the last commit of 20 / the file that it wrote", "incremental", "duckdb", 1.2, guarded=True
        ),
        _pair(
            "point look-up", "sorted table / read_parquet, sorted files", "lookup-sorted", "duckdb", 1.5, guarded=True
        ),
        _pair("point look-up", "random keys / read_parquet, same files", "lookup-random", "duckdb", None),
    ]


def _planning() -> list[Target]:
    found = []
    for groups, first, following in ((GROUPS[0], 1.0, 0.05), (GROUPS[1], 8.0, 0.3)):
        case = f"planning-{groups}/lakesql"
        found += [
            Target("planning", f"{groups:,} file groups, first statement", case, None, first, "first_s"),
            Target("planning", f"{groups:,} file groups, following", case, None, following),
        ]
    return [
        *found,
        _pair(
            "planning",
            f"{SMALL_GROUPS:,} file groups, first / a glob",
            f"planning-{SMALL_GROUPS}",
            "duckdb",
            None,
            figure="first_s",
            guarded=True,
        ),
    ]


def _memory() -> list[Target]:
    works = ("cow-upsert-U2", "mor-upsert-U2", "bulk-insert", "compaction", "read-mor-U1-full")
    found = []
    for work in works:
        one, more = f"memory-1x-{work}/lakesql", f"memory-{GROWTH}x-{work}/lakesql"
        found += [
            Target("peak memory, memory_limit 512MB", work, one, None, 1024, "peak_mb"),
            Target("peak memory, memory_limit 512MB", f"{work}, {GROWTH} times the rows", more, one, 1.2, "peak_mb"),
        ]
    return found


TARGETS = [
    *_writes(),
    *_reads(),
    *_planning(),
    Target(
        "start", "import lakesql, over duckdb and pyarrow", "start-import/python", "start-base/python", 0.3, minus=True
    ),
    Target("start", 'lakesql -c "select 1", over the same', "start-cli/python", "start-base/python", 0.3, minus=True),
    Target(
        "start", "import lakesql / duckdb and pyarrow", "start-import/python", "start-base/python", None, guarded=True
    ),
    *_memory(),
]


def judged(results: Results, targets: Sequence[Target] = TARGETS) -> list[Judged]:
    """The targets whose cases were measured."""
    return [_judge(t, results) for t in targets if results.get(t.case) and (t.peer is None or results.get(t.peer))]


def _judge(target: Target, results: Results) -> Judged:
    mine = [r[target.figure] for r in results[target.case]]
    if target.peer is None:
        value, each = statistics.median(mine), mine
    else:
        theirs = [r[target.figure] for r in results[target.peer]]
        value = _compared(target, statistics.median(mine), statistics.median(theirs))
        each = [_compared(target, a, b) for a, b in zip(mine, theirs, strict=False)]
    met = None if target.limit is None else (value >= target.limit if target.at_least else value <= target.limit)
    return Judged(target, value, min(each), max(each), met)


def _compared(target: Target, mine: float, theirs: float) -> float:
    return mine - theirs if target.minus else mine / theirs


_FEWER = "`SELECT *` reads eight columns; a Hudi table has five meta columns more, three of them as many texts as rows"

Reason = tuple[str, str, str]  # engine, start of the work's name, why
REASONS: list[Reason] = [
    (
        "ducklake",
        "mor-",
        "its rows have no key: nothing is looked up beforehand and nothing is compared by event time, no meta column, Avro log "
        "or timeline is written, and its catalog is a database file instead of files that other engines read. Looking up half "
        "a million keys among five takes 0.6 s of CPU, encoding them as Avro 0.2 s",
    ),
    (
        "ducklake",
        "bulk-insert",
        "no meta columns, no keys to check and no Bloom filter: it writes eight columns where a Hudi table has thirteen",
    ),
    ("ducklake", "read-cow-full", _FEWER),
    ("duckdb", "native-merge", "its own storage, changed in place: no open files, no versions to travel to"),
    (
        "deltalake",
        "cow-",
        "it writes eight columns where a Hudi table has thirteen and a Bloom filter, into fewer and larger files",
    ),
    ("deltalake", "bulk-insert", "no meta columns, no keys to check and no Bloom filter"),
    ("deltalake", "read-cow-full", _FEWER),
    ("pyiceberg", "read-cow-full", _FEWER),
    ("ducklake", "read-mor-U1-full", _FEWER),
    ("ducklake", "read-mor-D20-full", _FEWER),
    ("pyiceberg", "bulk-insert", "no meta columns, no keys to check and no Bloom filter"),
    ("duckdb", "read-cow", "it has no timeline to read and no files to choose; the rest is the same scan"),
    ("duckdb", "read-mor", "it reads the base files only, which is less: the changes in the logs are not merged"),
    (
        "duckdb",
        "bulk-insert",
        "a COPY makes no Bloom filter and no key range, checks no key and commits nothing; and it reads its rows itself, in "
        "0.9 s of CPU, where the stream of Arrow rows that a load is given takes 2.1 s before lakesql sees it (so CREATE TABLE "
        "AS from the same files is measured, too). Of the rest Parquet takes 1.7 s, the Bloom filters 0.7 s, the rows in and out "
        "of a temporary table, where all are checked before one is written, 0.9 s, sequence numbers 0.2 s",
    ),
    ("duckdb", "cow-", "by hand no key is looked up, no event time compared, and nothing committed"),
    ("duckdb", "incremental", "it is told the file; the other side finds it on the timeline"),
    ("duckdb", "lookup", "it has no timeline to read and no table to load"),
    ("duckdb", "planning", "a glob of one folder: which file of a file group is the newest is not asked"),
]


@dataclass(frozen=True, slots=True)
class Faster:
    work: str
    engine: str
    figure: Literal["wall_s", "first_s"]
    times: float  # how many times as long lakesql takes
    reason: str


def faster(results: Results) -> list[Faster]:
    """Where a peer is faster than lakesql by a twentieth or more, first or following calls."""
    found = []
    for name in results:
        work, engine = name.split("/")
        mine = work.replace("native-", "mor-") + "/lakesql"
        if engine in ("lakesql", "python") or mine not in results or not results[mine] or not results[name]:
            continue
        for figure in ("wall_s", "first_s"):
            once = all(r["first_s"] == r["wall_s"] for r in results[name])
            times = _median(results[mine], figure) / _median(results[name], figure)
            if times >= 1.05 and not (once and figure == "first_s"):
                found.append(Faster(work, engine, figure, times, _reason(engine, work)))  # type: ignore[arg-type]
    return found


def _median(rounds: Sequence[Mapping[str, float]], figure: str) -> float:
    return statistics.median(r[figure] for r in rounds)


def _reason(engine: str, work: str) -> str:
    found = [why for known, start, why in REASONS if known == engine and work.startswith(start)]
    return found[0] if found else "**not explained yet**"
