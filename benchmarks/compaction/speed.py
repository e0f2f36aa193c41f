"""Speed of compaction: folding the logs of a write, against the Copy-on-Write upsert of the same rows into the same files.

Both rewrite the same base files; compaction decodes log records besides, the upsert looks its rows up. Shapes: `wide`, 18
columns in 4 partitions, one file group each, and `long`, the 8 columns of `benchmarks.workload`. Each run is a process of its
own on a copy made of hard links, sides in turns; the results are checked after the clock has stopped.

`python -m benchmarks.compaction.speed CASE --data DIR --work DIR` runs one case and prints JSON.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

import lakesql
from benchmarks import workload
from benchmarks.measure import measure
from benchmarks.ready import copied

LIMIT_RATIO, LIMIT_PEAK_MB = 1.25, 1024
LOW_MEMORY = "512MB"
SHARES = (5, 20)
ROWS_PER_FILE = 250_000
ROWS = {"wide": 1_000_000, "long": 5_000_000}
HERE = Path(__file__).parents[2]

_NUMBERS = ", ".join(f"(hash(i * {k} + {{new}}) % 100000)::BIGINT AS n{k}" for k in range(1, 11))
_TEXTS = ", ".join(f"'text ' || (hash(i + {k} + {{new}}) % 5000) AS s{k}" for k in range(1, 6))
COLUMNS = {
    "wide": f"'key' || lpad(i::VARCHAR, 9, '0') AS id, (i % 4)::VARCHAR AS part, {_NUMBERS}, {_TEXTS}, {{new}}::BIGINT AS ts",
    "long": workload.SELECT.replace("{late}", "{new}"),
}
ORDERING = {"wide": "ts", "long": "event_time"}
PARTITIONS = {"wide": ["part"], "long": []}


@dataclass(frozen=True, slots=True)
class Case:
    """What one process does. `side`: 'upsert' into the Copy-on-Write table, or 'compact'."""

    shape: str
    share: int
    side: str
    memory: str = ""

    def __str__(self) -> str:
        return "-".join(filter(None, (self.shape, str(self.share), self.side, self.memory)))


CASES = {
    str(c): c
    for shape in ROWS
    for share in SHARES
    for c in (
        Case(shape, share, "upsert"),
        Case(shape, share, "compact"),
        Case(shape, share, "compact", LOW_MEMORY),
    )
}


def rows_of(shape: str, rows: int, share: int | None = None) -> pa.Table:
    """The rows of the table, or those that a write updates: spread over all file groups."""
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    columns = COLUMNS[shape].format(new=0 if share is None else 1)
    chosen = "true" if share is None else f"hash(i + 7919) % 100 < {share}"
    return con.sql(f"SELECT {columns} FROM range({rows}) t(i) WHERE {chosen}").to_arrow_table()


def prepared(folder: Path, scale: float) -> Path:
    """The tables of every shape and share below `folder`: `cow` before the write, `mor` with its logs."""
    for shape, rows in ROWS.items():
        count = int(rows * scale)
        full = rows_of(shape, count)
        for kind in ("cow", "mor"):
            table = lakesql.create_table(
                str(folder / shape / kind),
                full.schema,
                type=kind,
                primary_key=["id"],
                ordering_fields=[ORDERING[shape]],
                partitioned_by=PARTITIONS[shape],
            )
            settings = {"hoodie.copyonwrite.insert.split.size": str(ROWS_PER_FILE)} if shape == "long" else {}
            table.bulk_insert(full, **settings)
        for share in SHARES:
            (folder / f"{shape}-{share}").mkdir()
            given = copied(folder / shape / "mor", folder / f"{shape}-{share}")
            lakesql.open_table(str(given)).upsert(rows_of(shape, count, share))
    (folder / "scale").write_text(str(scale))
    return folder


def prepare_call(case: Case, root: Path, work: Path) -> tuple[Callable[[], object], Callable[[], None]]:
    """(what is measured, the check afterwards)."""
    rows = int(ROWS[case.shape] * float((root / "scale").read_text()))
    updates = rows_of(case.shape, rows, case.share)
    if case.side == "upsert":
        path = copied(root / case.shape / "cow", work)
    else:
        path = copied(root / f"{case.shape}-{case.share}" / "mor", work)
    config = {"memory_limit": case.memory, "temp_directory": str(work / "spill")} if case.memory else {}
    table = lakesql.open_table(str(path), config)

    def check() -> None:
        if any(one.logs for one in table.state.slices()):
            raise SystemExit(f"{case}: logs are left")
        con = lakesql.connect(warehouse=str(work))
        con.duckdb.register("given", updates)
        columns = [c for c in updates.column_names if c not in ("id", *PARTITIONS[case.shape])]
        same = " AND ".join(f"t.{c} = g.{c}" for c in columns)
        found = con.sql(f"SELECT count(*), count(DISTINCT id) FROM hudi_scan('{path}')").fetchall()[0]
        new = con.sql(f"SELECT count(*) FROM hudi_scan('{path}') t JOIN given g ON t.id = g.id AND {same}").fetchall()
        if (*found, new[0][0]) != (rows, rows, updates.num_rows):
            raise SystemExit(f"{case}: {found}, {new} new; expected {rows} rows, {updates.num_rows} new")

    return (lambda: table.upsert(updates)) if case.side == "upsert" else table.compact, check


def run_case(case: Case, root: Path) -> dict[str, float]:
    """The figures of one process."""
    work = Path(tempfile.mkdtemp(prefix="work-", dir=root))
    try:
        command = [
            sys.executable,
            "-m",
            "benchmarks.compaction.speed",
            str(case),
            "--data",
            str(root),
            "--work",
            str(work),
        ]
        done = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{case} failed:\n{done.stderr}")
        figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return figures
    finally:
        shutil.rmtree(work)


def checked(scale: float, runs: int) -> tuple[str, dict[str, Any], list[str]]:
    """(the report, its figures, what was not met)."""
    before = os.getloadavg()[0]
    found: dict[str, list[dict[str, float]]] = {name: [] for name in CASES}
    root = Path(tempfile.mkdtemp(prefix="compaction-speed-", dir=HERE / "benchmarks" / "report"))
    try:
        prepared(root, scale)
        for turn in range(runs):
            for name in CASES if turn % 2 == 0 else reversed(CASES):
                found[name].append(run_case(CASES[name], root))
                last = found[name][-1]
                print(
                    f"run {turn + 1}/{runs}  {name:24} {last['wall_s']:7.3f} s {last['cpu_s']:7.3f} CPU s "
                    f"{last['peak_mb']:6.0f} MB",
                    file=sys.stderr,
                )
    finally:
        shutil.rmtree(root)
    medians = {
        name: {figure: statistics.median(r[figure] for r in results) for figure in results[0]}
        for name, results in found.items()
    }
    sizes = ", ".join(f"{shape} {int(rows * scale):,} rows" for shape, rows in ROWS.items())
    about = f"{sizes}; median of {runs} runs, load average {before:.2f} before and {os.getloadavg()[0]:.2f} after."
    return report(about, medians), {"about": about, "rows": figures(medians)}, failures(medians)


def figures(medians: dict[str, dict[str, float]]) -> list[dict[str, Any]]:
    """One row per shape and share, for the report of all benchmarks."""
    found = []
    for shape in ROWS:
        for share in SHARES:
            upsert, compact = (medians[str(Case(shape, share, side))] for side in ("upsert", "compact"))
            found.append(
                {
                    "shape": shape,
                    "share": share,
                    "upsert_s": upsert["wall_s"],
                    "compact_s": compact["wall_s"],
                    "ratio": compact["wall_s"] / upsert["wall_s"],
                    "limit": LIMIT_RATIO,
                    "low_memory_peak_mb": medians[str(Case(shape, share, "compact", LOW_MEMORY))]["peak_mb"],
                }
            )
    return found


def report(about: str, medians: dict[str, dict[str, float]]) -> str:
    lines = [
        "# Compaction against the Copy-on-Write upsert of the same rows",
        "",
        about,
        "",
        "| shape | updated | upsert s | compaction s | ratio | CPU ratio | peak MB | peak MB, memory_limit 512MB |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for shape in ROWS:
        for share in SHARES:
            upsert, compact = (medians[str(Case(shape, share, side))] for side in ("upsert", "compact"))
            low = medians[str(Case(shape, share, "compact", LOW_MEMORY))]
            lines.append(
                f"| {shape} | {share} % | {upsert['wall_s']:.3f} | {compact['wall_s']:.3f} | "
                f"{compact['wall_s'] / upsert['wall_s']:.2f} | {compact['cpu_s'] / upsert['cpu_s']:.2f} | "
                f"{compact['peak_mb']:.0f} | {low['peak_mb']:.0f} |"
            )
    return "\n".join(lines) + "\n"


def failures(medians: dict[str, dict[str, float]]) -> list[str]:
    """Sentences about goals that were not met: time against the upsert, and the peak under a memory limit."""
    wrong = []
    for shape in ROWS:
        for share in SHARES:
            upsert, compact = (medians[str(Case(shape, share, side))] for side in ("upsert", "compact"))
            ratio = compact["wall_s"] / upsert["wall_s"]
            if ratio > LIMIT_RATIO:
                wrong.append(
                    f"{shape}, {share} % updated: compaction takes {ratio:.2f} times the upsert, goal {LIMIT_RATIO}"
                )
            peak = medians[str(Case(shape, share, "compact", LOW_MEMORY))]["peak_mb"]
            if peak > LIMIT_PEAK_MB:
                wrong.append(f"{shape}, {share} % updated: peak {peak:.0f} MB under {LOW_MEMORY}, goal {LIMIT_PEAK_MB}")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    args = parser.parse_args()
    call, check = prepare_call(CASES[args.case], args.data, args.work)
    result = measure(call, 1)
    check()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
