"""Every measurement as data: `WORK/ENGINE`, e.g. `cow-upsert-U1/lakesql`. What is compared with what says `targets`.

A case names a function of its engine's module, the tables that must be there before, and how much it may cost: `rounds` of
it are measured at most (slow peers, and memory, which hardly varies), on `scale` times the rows.
"""

from dataclasses import dataclass

ENGINES = {
    "lakesql": "ours",
    "duckdb": "duck",
    "ducklake": "lake",
    "deltalake": "delta",
    "pyiceberg": "iceberg",
    "hudi-rs": "rust",
    "hudi-spark": "spark",
    "python": "startup",
}
"""Engine -> its module below `benchmarks.engines`."""

QUERIES = ("full", "sum", "filter", "group")
GROUPS = (10_000, 100_000)
SMALL_GROUPS = 1_000
GROWTH = 4
LOW = "512MB"


@dataclass(frozen=True, slots=True)
class Case:
    work: str
    engine: str
    function: str
    arguments: tuple[str | int | bool | None, ...] = ()
    tables: tuple[tuple[str, str], ...] = ()
    """(engine, table) that must be there."""
    rounds: int = 99
    scale: int = 1
    small: bool = True
    """Whether it is part of a small run, and"""
    full: bool = True
    """of a full one."""

    @property
    def name(self) -> str:
        return f"{self.work}/{self.engine}"


def _writes() -> list[Case]:
    cow, mor = ("lakesql", "cow"), ("lakesql", "mor")
    delta, lake, berg = ("deltalake", "table"), ("ducklake", "table"), ("pyiceberg", "table")
    found = []
    for change in ("U1", "U2"):
        cow_work, mor_work = f"cow-upsert-{change}", f"mor-upsert-{change}"
        found += [
            Case(cow_work, "lakesql", "upsert", ("cow", change), (cow,)),
            Case(cow_work, "duckdb", "rewrite", (change,), (cow,)),
            Case(cow_work, "deltalake", "merge", (change, True), (delta,)),
            Case(cow_work, "hudi-spark", "merge", ("cow", change), (cow,), rounds=1),
            Case(mor_work, "lakesql", "upsert", ("mor", change), (mor,)),
            Case(mor_work, "ducklake", "merge", (change,), (lake,)),
            Case(mor_work, "hudi-spark", "merge", ("mor", change), (mor,), rounds=1),
        ]
    found += [
        Case("cow-upsert-U1", "pyiceberg", "upsert", ("U1",), (berg,), rounds=1),
        Case("cow-delete", "lakesql", "delete", ("cow",), (cow,)),
        Case("cow-delete", "duckdb", "rewrite", ("DEL",), (cow,)),
        Case("cow-delete", "deltalake", "delete", (), (delta,)),
        Case("mor-delete", "lakesql", "delete", ("mor",), (mor,)),
        Case("mor-delete", "ducklake", "delete", (), (lake,)),
        Case("bulk-insert", "lakesql", "bulk_insert"),
        Case("bulk-insert-select", "lakesql", "create_as"),
        Case("bulk-insert", "duckdb", "copy"),
        Case("bulk-insert", "deltalake", "bulk_insert"),
        Case("bulk-insert", "ducklake", "bulk_insert"),
        Case("bulk-insert", "pyiceberg", "bulk_insert", rounds=1),
        Case("bulk-insert", "hudi-spark", "bulk_insert", rounds=1),
        Case("compaction", "lakesql", "compact", ("D20",), (("lakesql", "mor-D20"),)),
        Case("cow-upsert-D20", "lakesql", "upsert", ("cow", "D20"), (cow,)),
        Case("cow-upsert-D20", "duckdb", "rewrite", ("D20",), (cow,)),
    ]
    for change in ("M1", "M2"):
        found += [
            Case(f"cow-merge-{change}", "lakesql", "merge", ("cow", change), (cow,)),
            Case(f"cow-merge-{change}", "deltalake", "merge", (change,), (delta,)),
            Case(f"mor-merge-{change}", "lakesql", "merge", ("mor", change), (mor,)),
            Case(f"mor-merge-{change}", "ducklake", "merge", (change,), (lake,)),
            Case(f"native-merge-{change}", "duckdb", "merge", (change,), (("duckdb", "native"),)),
        ]
    return found


def _reads() -> list[Case]:
    found = []
    for table in ("cow", "mor-D20", "mor-U1"):
        needed = (("lakesql", table),)
        for query in QUERIES:
            found += [
                Case(f"read-{table}-{query}", "lakesql", "read", (table, query), needed),
                Case(f"read-{table}-{query}", "duckdb", "read", (table, query), needed),
            ]
        for query in ("full", "sum"):
            work = f"read-{table}-{query}"
            change = table.partition("-")[2]
            lake = f"table-{change}" if change else "table"
            found += [
                Case(work, "hudi-rs", "read", (table, query), needed, rounds=1),
                Case(work, "ducklake", "read", (change or "base", query), (("ducklake", lake),)),
                Case(work, "hudi-spark", "read", (table, query), needed, rounds=1),
            ]
    for query in ("full", "sum"):
        found += [
            Case(f"read-cow-{query}", "deltalake", "read", (query,), (("deltalake", "table"),)),
            Case(f"read-cow-{query}", "pyiceberg", "read", (query,), (("pyiceberg", "table"),), rounds=1),
        ]
    cow, commits = (("lakesql", "cow"),), (("lakesql", "commits"),)
    return [
        *found,
        Case("read-cow-pruned", "lakesql", "read", ("cow", "pruned"), cow),
        Case("read-cow-pruned", "duckdb", "read", ("cow", "pruned"), cow),
        Case("incremental", "lakesql", "incremental", (), commits),
        Case("incremental", "duckdb", "incremental", (), commits),
        Case("incremental", "hudi-rs", "incremental", (), commits),
        Case("lookup-sorted", "lakesql", "lookup", ("sorted",), (("lakesql", "sorted"),)),
        Case("lookup-sorted", "duckdb", "lookup", ("sorted",), (("duckdb", "sorted"),)),
        Case("lookup-random", "lakesql", "lookup", ("cow",), cow),
        Case("lookup-random", "duckdb", "lookup", ("cow",), cow),
    ]


def _planning() -> list[Case]:
    found = []
    for groups in (SMALL_GROUPS, *GROUPS):
        needed, few = (("lakesql", f"wide-{groups}"),), groups == SMALL_GROUPS
        rounds = 1 if groups == max(GROUPS) else 99
        found += [
            Case(f"planning-{groups}", engine, "planning", (groups,), needed, rounds, small=few, full=not few)
            for engine in ("lakesql", "duckdb", "hudi-rs")
        ]
    return found


def _memory() -> list[Case]:
    """What lakesql takes with a memory limit, on the rows and on GROWTH times as many."""
    works: list[tuple[str, str, tuple[str, ...], str | None]] = [
        ("cow-upsert-U2", "upsert", ("cow", "U2", LOW), "cow"),
        ("mor-upsert-U2", "upsert", ("mor", "U2", LOW), "mor"),
        ("bulk-insert", "bulk_insert", (LOW,), None),
        ("compaction", "compact", ("U1", LOW), "mor-U1"),
        ("read-mor-U1-full", "read", ("mor-U1", "full", LOW), "mor-U1"),
    ]
    return [
        Case(
            f"memory-{scale}x-{work}",
            "lakesql",
            function,
            arguments,
            (("lakesql", table),) if table else (),
            rounds=1,
            scale=scale,
            small=False,
        )
        for work, function, arguments, table in works
        for scale in (1, GROWTH)
    ]


_STARTS = [Case(f"start-{what}", "python", "start", (what,)) for what in ("base", "import", "cli")]
CASES = {case.name: case for case in (*_writes(), *_reads(), *_planning(), *_memory(), *_STARTS)}
