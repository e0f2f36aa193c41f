"""`python -m benchmarks.planning`: what a statement costs before DuckDB reads a row, on tables of very many file groups.

Each row of the report is a process of its own, medians of --runs. `first` is the first statement of the process that names
the table, `following` the median of the five after it; a change repeats itself with other values. `requests` are those of
the last statement: listings, stamps of folders, files read or written. Planning is `con.sql("SELECT * FROM t")`, which binds
the query and reads no data file. Point look-ups read one row by its key from --rows rows in 20 files, among them sorted by
key, against `read_parquet` of the same rows sorted by key.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

import lakesql
from benchmarks import wide_table, workload
from lakesql.storage import Storage

HERE = Path(__file__).parent
FOLLOWING = 5
MERGED_GROUPS = 10
FILES = 20
LOOKUPS = 31
_KEYS = "SELECT md5(i::VARCHAR)[:16] AS id FROM range(0, {rows}, {step}) t(i)"


@dataclass(frozen=True, slots=True)
class Goal:
    """`figure` of a case has to be at most `limit`; for a `peer` divided by the peer's."""

    text: str
    case: str
    figure: str
    limit: float
    peer: str = ""


GOALS = [
    Goal("planning, 10,000 groups, first s", "plan-10000", "first_s", 1),
    Goal("planning, 10,000 groups, following s", "plan-10000", "following_s", 0.05),
    Goal("planning, 100,000 groups, first s", "plan-100000", "first_s", 8),
    Goal("planning, 100,000 groups, following s", "plan-100000", "following_s", 0.3),
    Goal("look-up, sorted table / read_parquet, sorted", "lookup-sorted", "following_s", 1.5, "lookup-parquet"),
    Goal("look-up, random keys / read_parquet, sorted", "lookup-random", "following_s", 1.5, "lookup-parquet"),
]


# ---------------------------------------------------------------- cases, each in its own process


def plan(table: Path) -> dict[str, float]:
    con = lakesql.connect(warehouse=str(table.parent / "none"))
    return _measured(_storage(con, table), lambda _: con.sql(f"SELECT * FROM hudi_scan('{table}')"))


def upsert(table: Path) -> dict[str, float]:
    """One row that is there, in one partition."""
    handle = lakesql.open_table(str(table))

    def run(turn: int) -> object:
        row = {"id": wide_table.key(3, 1), "amount": float(turn), "ts": 10 + turn, "day": wide_table.partition_name(7)}
        result = handle.upsert(pa.Table.from_pylist([row], schema=wide_table.SCHEMA))
        assert (result.rows_updated, result.files_written) == (1, 1), result
        return result

    return _measured(handle.state.storage, run)


def merge(table: Path) -> dict[str, float]:
    """Ten rows that are there, each in another partition."""
    con = lakesql.connect(warehouse=str(table.parent))
    con.duckdb.execute(
        f"CREATE TABLE source AS SELECT '{wide_table.key(3, 1)}' AS id, 1.0::DOUBLE AS amount, 100::BIGINT AS ts, "
        f"format('d{{:05d}}', i) AS day FROM range({MERGED_GROUPS}) t(i)"
    )

    def run(turn: int) -> object:
        con.duckdb.execute("UPDATE source SET amount = $1, ts = $2", [float(turn), 100 + turn])
        con.execute(
            f"MERGE INTO {table.name} t USING source s ON t.id = s.id AND t.day = s.day "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        ).fetchall()
        result = con.last_result
        assert result is not None
        assert (result.rows_updated, result.files_written) == (MERGED_GROUPS, MERGED_GROUPS), result
        return result

    return _measured(_storage(con, table), run)


def lookup(table: Path) -> dict[str, float]:
    """One row by its key, another one each time; `table` is a Hudi table or a folder of Parquet files."""
    rows = int(table.parent.name.rpartition("-")[2])
    keys = duckdb.sql(_KEYS.format(rows=rows, step=rows // LOOKUPS)).fetchall()
    con = lakesql.connect(warehouse=str(table.parent / "none"))
    plain = not (table / ".hoodie").exists()
    source = f"read_parquet({sorted(map(str, table.glob('*.parquet')))})" if plain else f"hudi_scan('{table}')"

    def run(turn: int) -> object:
        [found] = con.execute(f"SELECT * FROM {source} WHERE id = '{keys[turn][0]}'").fetchall()
        return found

    return _measured(None if plain else _storage(con, table), run, LOOKUPS)


def _measured(storage: Storage | None, run: Callable[[int], object], calls: int = 1 + FOLLOWING) -> dict[str, float]:
    walls, cpus, requests = [], [], Counter[str]()
    for turn in range(calls):
        before = Counter(storage.requests) if storage else Counter()
        wall, cpu = time.perf_counter(), time.process_time()
        run(turn)
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
        requests = Counter(storage.requests) - before if storage else Counter()
    return {
        "first_s": walls[0],
        "following_s": statistics.median(walls[1:]),
        "first_cpu_s": cpus[0],
        "following_cpu_s": statistics.median(cpus[1:]),
        **{f"requests_{kind}": requests[kind] for kind in ("list", "stamp", "read", "put")},
    }


def _storage(con: lakesql.Connection, table: Path) -> Storage:
    """What the statements of a connection ask."""
    return con._session.instance.storage(str(table))


CASES = {"plan": plan, "upsert": upsert, "merge": merge, "lookup": lookup}


# ---------------------------------------------------------------- data


def lookup_tables(folder: Path, rows: int) -> dict[str, Path]:
    """The same rows as files sorted by key, as a table sorted by key, and as a table with random keys everywhere."""
    root = folder / f"lookup-{rows}"
    paths = {name: root / name for name in ("parquet", "sorted", "random")}
    if (root / "complete").exists():
        return paths
    shutil.rmtree(root, ignore_errors=True)
    paths["parquet"].mkdir(parents=True)
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    con.execute(f"CREATE TABLE source AS SELECT {workload.SELECT.format(late=0)} FROM range({rows}) t(i)")
    con.execute("CREATE TABLE ordered AS SELECT * FROM source ORDER BY id")
    each = rows // FILES
    for name, table in (("sorted", "ordered"), ("random", "source")):
        reader = con.sql(f"FROM {table}").to_arrow_reader(65_536)
        made = lakesql.create_table(str(paths[name]), reader.schema, primary_key=["id"], ordering_fields=["event_time"])
        made.bulk_insert(reader, **{"hoodie.copyonwrite.insert.split.size": str(each)})
    for number, file in enumerate(sorted(paths["sorted"].glob("*.parquet"))):
        target = paths["parquet"] / f"{number:03d}.parquet"
        con.execute(
            f"COPY (FROM read_parquet('{file}', hive_partitioning = false) ORDER BY id) TO '{target}' "
            "(COMPRESSION zstd, COMPRESSION_LEVEL 1, ROW_GROUP_SIZE 131072)"
        )
    (root / "complete").touch()
    return paths


# ---------------------------------------------------------------- all of it


def run_case(case: str, table: Path, changes: bool) -> dict[str, float]:
    """One process; a table that it changes is a copy made of links."""
    work = Path(tempfile.mkdtemp(prefix="work-", dir=table.parent.parent))
    try:
        target = table
        if changes:
            target = work / table.name
            shutil.copytree(table, target, copy_function=lambda a, b: Path(b).hardlink_to(a))
        command = [sys.executable, "-m", "benchmarks.planning", "--case", case, "--table", str(target)]
        done = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{case} of {table} failed:\n{done.stderr}")
        found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return found
    finally:
        shutil.rmtree(work)


def markdown(results: dict[str, dict[str, float]], about: str) -> str:
    text = [
        about,
        "",
        "| case | first s | following s | following CPU s | list | stamp | read | put |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, r in results.items():
        seconds = " | ".join(f"{r[f]:.3f}" for f in ("first_s", "following_s", "following_cpu_s"))
        counts = " | ".join(f"{r[f'requests_{kind}']:.0f}" for kind in ("list", "stamp", "read", "put"))
        text.append(f"| {name} | {seconds} | {counts} |")
    text += ["", "| figure | value | target | met |", "|---|---:|---:|---|"]
    for goal in GOALS:
        if goal.case in results and (not goal.peer or goal.peer in results):
            value = results[goal.case][goal.figure] / (results[goal.peer][goal.figure] if goal.peer else 1)
            met = "yes" if value <= goal.limit else "**no**"
            text.append(f"| {goal.text} | {value:.3f} | <= {goal.limit:g} | {met} |")
    return "\n".join(text) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planning", description="Measure planning at scale.")
    parser.add_argument("--groups", default="10000,100000", help="numbers of file groups, with commas")
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=5_000_000, help="of the look-ups; 0: none")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--data", type=Path, default=HERE / "data")
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--table", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case:
        print(json.dumps(CASES[args.case](args.table)))
        return
    jobs: list[tuple[str, str, Path]] = []
    for groups in [int(n) for n in args.groups.split(",") if n]:
        table = wide_table.prepare(args.data, groups, args.partitions)
        jobs += [(f"{case}-{groups}", case, table) for case in ("plan", "upsert", "merge")]
    if args.rows:
        jobs += [(f"lookup-{name}", "lookup", path) for name, path in lookup_tables(args.data, args.rows).items()]
    found: dict[str, list[dict[str, float]]] = {name: [] for name, _, _ in jobs}
    before = os.getloadavg()[0]
    for turn in range(args.runs):
        for name, case, table in jobs if turn % 2 == 0 else reversed(jobs):
            found[name].append(run_case(case, table, case in ("upsert", "merge")))
            print(f"run {turn + 1}/{args.runs}  {name:20} {found[name][-1]['following_s']:.3f} s", file=sys.stderr)
    results = {n: {f: statistics.median(r[f] for r in runs) for f in runs[0]} for n, runs in found.items()}
    about = (
        f"{args.partitions:,} partitions, look-ups in {args.rows:,} rows, median of {args.runs} runs, {os.cpu_count()} "
        f"cores, load average {before:.2f} before and {os.getloadavg()[0]:.2f} after."
    )
    report = HERE / "report"
    report.mkdir(exist_ok=True)
    text = markdown(results, about)
    (report / "planning.md").write_text(text)
    (report / "planning.json").write_text(json.dumps({"about": about, "results": results}, indent=2) + "\n")
    print(text)


if __name__ == "__main__":
    main()
