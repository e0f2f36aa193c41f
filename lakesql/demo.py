"""`lakesql demo`: a batch of changes with late data and deletes, merged into tables that Apache Hudi wrote.

Two small tables of trips, one Copy-on-Write and one Merge-on-Read, both written by Apache Hudi 1.2.0 on Spark, are
unpacked; the same MERGE changes both; then every kind of read is shown, and hudi-rs, an independent reader, must give
the same rows. The data is in `demo_data/`.
"""

import importlib.util
import shlex
import shutil
import sys
import tempfile
import zipfile
from importlib import resources
from pathlib import Path

import duckdb
import pyarrow as pa
from rich.console import Console
from rich.table import Table as Grid

import lakesql.sql.connection
from lakesql.errors import LakeError
from lakesql.format.timeline import instant_millis
from lakesql.handle import open_table
from lakesql.sql.connection import Connection
from lakesql.table.clock import Clock, system_clock

HUDI_RS = importlib.import_module("hudi") if importlib.util.find_spec("hudi") else None  # the extra [demo]
KINDS = ("cow", "mor")
COLUMNS = "trip_id, rider, driver, fare, ts, city"

CHANGES = """
CREATE OR REPLACE TEMP TABLE changes AS SELECT * FROM (VALUES
  ('t-01', 'rider-A', 'driver-K', 21.00, TIMESTAMPTZ '2024-05-01 10:00:00+00', 'san_francisco', 'changed'),
  ('t-03', 'rider-D', 'driver-L', 99.00, TIMESTAMPTZ '2024-05-01 08:30:00+00', 'san_francisco', 'late: older than what is stored'),
  ('t-06', 'rider-G', 'driver-Q', 43.40, TIMESTAMPTZ '2024-05-01 08:25:00+00', 'sao_paulo', 'cancelled'),
  ('t-09', 'rider-K', 'driver-Z', 12.50, TIMESTAMPTZ '2024-05-01 10:05:00+00', 'chennai', 'new')
) AS v (trip_id, rider, driver, fare, ts, city, what)"""

MERGE = """
MERGE INTO {table} AS t USING changes AS s ON t.trip_id = s.trip_id
WHEN MATCHED AND s.what = 'cancelled' THEN DELETE
WHEN MATCHED THEN UPDATE SET rider = s.rider, driver = s.driver, fare = s.fare, ts = s.ts
WHEN NOT MATCHED THEN INSERT (trip_id, rider, driver, fare, ts, city)
  VALUES (s.trip_id, s.rider, s.driver, s.fare, s.ts, s.city)"""


def main(folder: str | None = None) -> None:
    """Run the demo in `folder` (default: a new temporary folder) and print what happens.

    Raises LakeError when hudi-rs reads other rows than lakesql, which would be a defect. A demo that fails removes its
    tables.
    """
    console = Console(width=110, highlight=False)
    home = Path(folder or tempfile.mkdtemp(prefix="lakesql-demo-")).absolute()
    tables = [home / f"trips_{kind}" for kind in KINDS]
    for table in tables:
        if table.exists():
            raise LakeError(f"{table} is there already; give another --folder, or remove it.")
    try:
        run(console, home)
    except BaseException:
        for table in tables:
            shutil.rmtree(table, ignore_errors=True)
        raise
    console.print(f"The tables are in {home}. Any Hudi reader can open them; try:", markup=False, soft_wrap=True)
    hint = f'  {program()} -c "SELECT * FROM trips_mor" --warehouse {shlex.quote(str(home))}'
    console.print(hint, markup=False, soft_wrap=True)


def program() -> str:
    """How the command is called in the shell that runs it: by its name when that finds it, else as it was now."""
    if shutil.which("lakesql"):
        return "lakesql"
    called = Path(sys.argv[0])
    return shlex.quote(str(called)) if called.name == "lakesql" else "lakesql"


def run(console: Console, home: Path) -> None:
    """Unpack the tables into `home`, change and read them."""
    for kind in KINDS:
        with resources.as_file(resources.files("lakesql") / "demo_data" / f"trips_{kind}.zip") as packed:
            zipfile.ZipFile(packed).extractall(home)
    clock = clock_for(console, home)
    with lakesql.sql.connection.connect(warehouse=str(home), clock=clock) as con:
        con.execute("SET TimeZone = 'UTC'")
        con.execute(CHANGES)
        console.rule("A batch of changes")
        show(console, con, "SELECT * FROM changes")
        for kind in KINDS:
            story(console, con, f"trips_{kind}", home)


def clock_for(console: Console, home: Path) -> Clock:
    """The clock of the demo. Its tables have instants of the day they were made, and later ones must come after them: on a
    machine whose clock is behind that day, time goes on from there."""
    tables = [open_table(str(home / f"trips_{kind}")) for kind in KINDS]
    newest = max(instant_millis(table.state.timeline.newest_time) for table in tables)
    behind = newest + 1 - system_clock()
    if behind <= 0:
        return system_clock
    console.print(
        f"This machine's clock is {behind // 1000} s behind the demo's tables; the demo's own clock goes on from them."
    )
    return lambda: system_clock() + behind


def story(console: Console, con: Connection, table: str, home: Path) -> None:
    """One table: before, MERGE, and all reads after it."""
    kind = con.table(table).state.config.table_type.replace("_", "-").title()
    console.rule(f"{table}: {kind}, written by Apache Hudi on Spark")
    first = con.execute(f"SELECT min(completed) FROM hudi_timeline('{table}')").fetchall()[0][0]
    last = con.execute(f"SELECT max(completed) FROM hudi_timeline('{table}')").fetchall()[0][0]
    show(console, con, f"SELECT {COLUMNS} FROM {table} ORDER BY trip_id", "Snapshot before")
    console.print(MERGE.format(table=table).strip(), style="cyan", markup=False)
    con.sql(MERGE.format(table=table))
    console.print(f"-> {con.last_result}\n", style="bold", markup=False)
    show(
        console,
        con,
        f"SELECT {COLUMNS} FROM {table} ORDER BY trip_id",
        "Snapshot after: the late row lost, t-06 is gone",
    )
    show(
        console,
        con,
        f"SELECT {COLUMNS} FROM hudi_read_optimized('{table}') ORDER BY trip_id",
        "Read-optimized (base files only)",
    )
    changed = f"SELECT _hoodie_commit_time, {COLUMNS} FROM hudi_incremental('{table}', '{{}}') ORDER BY trip_id"
    show(console, con, changed.format(first), "Changed since the first commit")
    show(console, con, changed.format(last), "Changed by this MERGE")
    timeline = "SELECT instant, action, operation, rows_written, files_written, bytes_written"
    show(console, con, f"{timeline} FROM hudi_timeline('{table}')", "Timeline")
    compare_with_hudi_rs(console, con, table, home)


def compare_with_hudi_rs(console: Console, con: Connection, table: str, home: Path) -> None:
    """hudi-rs must read the rows that lakesql reads."""
    if HUDI_RS is None:
        text = "hudi-rs is not installed (pip install 'lakesql[demo]'), so its rows are not compared.\n"
        console.print(text, markup=False)
        return
    batches = HUDI_RS.HudiTableBuilder.from_base_uri(str(home / table)).build().read()
    theirs = duckdb.connect()
    theirs.execute("SET TimeZone = 'UTC'")
    theirs.register("read_by_hudi_rs", pa.Table.from_batches(batches))
    other = theirs.execute(f"SELECT {COLUMNS} FROM read_by_hudi_rs ORDER BY trip_id").fetchall()
    ours = con.execute(f"SELECT {COLUMNS} FROM {table} ORDER BY trip_id").fetchall()
    if other != ours:
        raise LakeError(f"{home / table}: hudi-rs reads {other}, lakesql reads {ours}. Please report this.")
    console.print(f"hudi-rs reads the same {len(ours)} rows.\n", style="green")


def show(console: Console, con: Connection, sql: str, title: str | None = None) -> None:
    """A query's rows as a grid."""
    result = con.execute(sql)
    grid = Grid(title=title, title_justify="left", header_style="bold")
    for column in result.description:
        grid.add_column(column[0], overflow="fold")
    for row in result.fetchall():
        grid.add_row(
            *(
                "NULL" if value is None else f"{value:%Y-%m-%d %H:%M}" if hasattr(value, "hour") else str(value)
                for value in row
            )
        )
    console.print(grid)
