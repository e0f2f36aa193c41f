"""`lakesql demo`: a story of seven short chapters in a terminal, on real tables, which checks itself.

Two small tables of trips, one Copy-on-Write and one Merge-on-Read, both written by Apache Hudi 1.2.0 on Spark (in
`demo_data/`), take the same MERGE with late data and a delete. Orders come from Kafka (`demo_broker`) in batches, are
corrected, compacted, and judged; plots go to a folder. What every table holds is worked out beside it in plain Python
or read by hudi-rs, an independent reader; when they differ the demo fails. What is not installed is said and left out.
"""

import importlib.util
import json
import random
import shlex
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from rich import box
from rich.console import Console
from rich.table import Table as Grid

import lakesql.sql.connection
from lakesql import demo_broker
from lakesql.errors import LakeError
from lakesql.format.timeline import instant_millis
from lakesql.handle import open_table
from lakesql.services.freshness import freshness
from lakesql.sql.connection import Connection
from lakesql.table.clock import Clock, system_clock

HUDI_RS = importlib.import_module("hudi") if importlib.util.find_spec("hudi") else None  # the extra [demo]
KINDS = ("cow", "mor")
WIDTH = 100
COLUMNS = "trip_id, rider, driver, fare, ts, city"
TRIPS, ORDERS = tuple(f"trips_{kind}" for kind in KINDS), "orders"
PLOTS = "plots"
READS_PER_WRITE = 5

CHANGES = """
CREATE OR REPLACE TEMP TABLE changes AS SELECT * FROM (VALUES
  ('t-01', 'rider-A', 'driver-K', 21.00, TIMESTAMPTZ '2024-05-01 10:00:00+00', 'san_francisco', 'changed'),
  ('t-03', 'rider-D', 'driver-L', 99.00, TIMESTAMPTZ '2024-05-01 08:30:00+00', 'san_francisco', 'late'),
  ('t-06', 'rider-G', 'driver-Q', 43.40, TIMESTAMPTZ '2024-05-01 08:25:00+00', 'sao_paulo', 'cancelled'),
  ('t-09', 'rider-K', 'driver-Z', 12.50, TIMESTAMPTZ '2024-05-01 10:05:00+00', 'chennai', 'new')
) AS v (trip_id, rider, driver, fare, ts, city, what)"""

MERGE = """
MERGE INTO {table} AS t USING changes AS s ON t.trip_id = s.trip_id
WHEN MATCHED AND s.what = 'cancelled' THEN DELETE
WHEN MATCHED THEN UPDATE SET rider = s.rider, driver = s.driver, fare = s.fare, ts = s.ts
WHEN NOT MATCHED THEN INSERT (trip_id, rider, driver, fare, ts, city)
  VALUES (s.trip_id, s.rider, s.driver, s.fare, s.ts, s.city)"""

INGESTION = """
CREATE INGESTION orders_in AS INGEST INTO orders FROM KAFKA ('kafka.brokers' = '{brokers}',
  'topic.whitelist' = 'orders', 'bootstrap.with.offset' = 'earliest') FORMAT JSON
TBLPROPERTIES (type = 'mor', primaryKey = 'id', preCombineField = 'ts')"""

BATCHES, FIRST, LATER, PARTITIONS = 6, 2_000, 60, 2
_HOUR = 3_600_000

Order = dict[str, Any]


def main(folder: str | None = None) -> None:
    """Run the demo in `folder` (default: a new temporary folder) and print what happens.

    Raises LakeError when a table holds other rows than it should, which would be a defect. A demo that fails removes what
    it made.
    """
    console = Console(width=WIDTH, highlight=False)
    home = Path(folder or tempfile.mkdtemp(prefix="lakesql-demo-")).absolute()
    made = [home / name for name in (*TRIPS, ORDERS, f"{ORDERS}_quarantine", PLOTS, ".lakesql")]
    for one in made:
        if one.exists():
            raise LakeError(f"{one} is there already; give another --folder, or remove it.")
    try:
        run(console, home)
    except BaseException:
        for one in made:
            shutil.rmtree(one, ignore_errors=True)
        raise
    console.print(f"\nThe tables are in {home}. Any Hudi reader can open them; try:", markup=False, soft_wrap=True)
    hint = f'  {program()} -c "SELECT * FROM trips_mor" --warehouse {shlex.quote(str(home))}'
    console.print(hint, markup=False, soft_wrap=True)


def program() -> str:
    """How the command is called in the shell that runs it: by its name when that finds it, else as it was now."""
    if shutil.which("lakesql"):
        return "lakesql"
    called = Path(sys.argv[0])
    return shlex.quote(str(called)) if called.name == "lakesql" else "lakesql"


def run(console: Console, home: Path) -> None:
    """All chapters."""
    for kind in KINDS:
        with resources.as_file(resources.files("lakesql") / "demo_data" / f"trips_{kind}.zip") as packed:
            zipfile.ZipFile(packed).extractall(home)
    clock = clock_for(console, home)
    with lakesql.sql.connection.connect(warehouse=str(home), clock=clock) as con:
        con.execute("SET TimeZone = 'UTC'")
        chapter(console, 1, "Two tables that Apache Hudi wrote on Spark")
        say(console, "trips_cow is Copy-on-Write, trips_mor Merge-on-Read. Both hold these rows:")
        show(console, con, f"SELECT {COLUMNS} FROM trips_mor ORDER BY trip_id")
        merged(console, con, home)
        views(console, con, home, clock)
        ordered(console, con, home)
        compacted(console, con, home, clock)
        advised(console, home)
        plotted(console, home)


def clock_for(console: Console, home: Path) -> Clock:
    """The clock of the demo. Its tables have instants of the day they were made, and later ones must come after them: on a
    machine whose clock is behind that day, time goes on from there."""
    tables = [open_table(str(home / name)) for name in TRIPS]
    newest = max(instant_millis(table.state.timeline.newest_time) for table in tables)
    behind = newest + 1 - system_clock()
    if behind <= 0:
        return system_clock
    console.print(
        f"This machine's clock is {behind // 1000} s behind the demo's tables; the demo's own clock goes on from them."
    )
    return lambda: system_clock() + behind


# ---------------------------------------------------------------- the chapters


def merged(console: Console, con: Connection, home: Path) -> None:
    """The same MERGE into both tables, which must then hold the same rows."""
    chapter(console, 2, "A batch with a late row and a cancelled trip")
    con.execute(CHANGES)
    show(console, con, "SELECT * FROM changes")
    console.print(MERGE.format(table="trips_mor").strip(), style="cyan", markup=False)
    for table in TRIPS:
        con.sql(MERGE.format(table=table))
        say(console, f"-> {table}: {counts(con)}", "bold")
    show(console, con, f"SELECT {COLUMNS} FROM trips_mor ORDER BY trip_id")
    rows = [con.execute(f"SELECT {COLUMNS} FROM {table} ORDER BY trip_id").fetchall() for table in TRIPS]
    if rows[0] != rows[1]:
        raise LakeError(
            f"{home}: trips_cow has {rows[0]}, trips_mor {rows[1]} after the same MERGE. Please report this."
        )
    say(console, "t-03 stays as it was, since the row for it is older than what is stored; t-06 is gone.")
    say(console, "Both tables hold the same rows.")
    for table in TRIPS:
        compare_with_hudi_rs(console, con, table, home)


def views(console: Console, con: Connection, home: Path, clock: Clock) -> None:
    """The rows that the MERGE changed, and the read-optimized view, which has not seen it."""
    chapter(console, 3, "What changed, and what a reader without merging sees")
    timeline = "FROM hudi_timeline('trips_mor') WHERE action = 'deltacommit'"
    [(before,)] = con.execute(
        f"SELECT max(completed) {timeline} AND instant < (SELECT max(instant) {timeline})"
    ).fetchall()
    changed = f"SELECT {COLUMNS} FROM hudi_incremental('trips_mor', '{before}') ORDER BY trip_id"
    say(console, f"SELECT ... FROM hudi_incremental('trips_mor', '{before}'): what came after that commit")
    show(console, con, changed)
    ids = [row[0] for row in con.execute(changed).fetchall()]
    stale = con.execute("SELECT count(*) FROM trips_mor_ro WHERE trip_id = 't-06'").fetchall()[0][0]
    if ids != ["t-01", "t-09"] or stale != 1:
        raise LakeError(f"{home / 'trips_mor'}: {ids} changed, {stale} t-06 in the base files. Please report this.")
    [lag] = freshness(open_table(str(home / "trips_mor")).state, clock())
    say(console, f"The read-optimized view trips_mor_ro {lag.text}.")
    say(console, "It reads base files alone and still shows t-06; hudi_freshness tells how far it lags.")


def ordered(console: Console, con: Connection, home: Path) -> None:
    """Orders in batches, from Kafka where there is a client, else by MERGE; checked against a dict."""
    chapter(console, 4, "Orders from Kafka, with late records and one that is no JSON")
    file = demo_broker.librdkafka()
    batches = list(map(batch, range(BATCHES)))
    if file is None:
        say(console, "confluent-kafka is not installed (pip install 'lakesql[kafka]'); the same orders come by MERGE.")
        con.execute(
            "CREATE TABLE orders (id BIGINT, item VARCHAR, amount DOUBLE, ts BIGINT) USING hudi "
            "TBLPROPERTIES (type = 'mor', primaryKey = 'id', preCombineField = 'ts')"
        )
        for number, orders in enumerate(batches, 1):
            con.execute(_as_table(orders))
            con.execute(
                "MERGE INTO orders AS t USING incoming AS s ON t.id = s.id "
                "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            )
            say(console, f"batch {number}: {counts(con)}")
    else:
        from_kafka(console, con, file, batches)
    con.execute("DELETE FROM orders WHERE id % 100 = 7")
    console.print("DELETE FROM orders WHERE id % 100 = 7", style="cyan", markup=False)
    say(console, f"-> orders: {counts(con)}", "bold")
    expected = {i: o for i, o in newest(batches).items() if i % 100 != 7}
    check_orders(console, con, home, expected)


def from_kafka(console: Console, con: Connection, file: Path, batches: Sequence[Sequence[Order]]) -> None:
    """One run of an ingestion per batch."""
    grid = Grid(box=box.SIMPLE_HEAD, header_style="bold")
    for name in ("run", "records read", "written", "in quarantine", "still to read"):
        grid.add_column(name, justify="right")
    with demo_broker.cluster(file, ORDERS, PARTITIONS) as brokers:
        sql = INGESTION.format(brokers=brokers).strip()
        console.print(f"{sql};\nRUN INGESTION orders_in", style="cyan", markup=False)
        con.execute(sql)
        for number, orders in enumerate(batches):
            records = [(str(o["id"]).encode(), json.dumps(o).encode()) for o in orders]
            if number == 1:
                records.append((b"0", b"no JSON"))
            demo_broker.send(brokers, ORDERS, records, PARTITIONS)
            con.execute("RUN INGESTION orders_in")
            columns = [column[0] for column in con.description]
            partitions = [dict(zip(columns, row, strict=True)) for row in con.fetchall()]
            figures = [sum(p[name] for p in partitions) for name in ("read", "written", "quarantined", "lag")]
            grid.add_row(str(number + 1), *(f"{n:,}" for n in figures))
            if figures[0] != len(records) or figures[2] != (number == 1) or figures[3]:
                raise LakeError(
                    f"orders: run {number + 1} of {len(records)} records gave {partitions}. Please report this."
                )
        con.execute("DROP INGESTION orders_in")
    console.print(grid)


def check_orders(console: Console, con: Connection, home: Path, expected: dict[int, Order]) -> None:
    """The table must hold the newest version of each order."""
    found = con.execute("SELECT id, item, amount, ts FROM orders ORDER BY id").fetchall()
    wanted = [tuple(expected[i].values()) for i in sorted(expected)]
    if found != wanted:
        wrong = [(a, b) for a, b in zip(found, wanted, strict=False) if a != b][:3]
        raise LakeError(f"{home / ORDERS}: {len(found)} rows, {len(wanted)} expected, {wrong}. Please report this.")
    say(console, f"orders holds the newest version of each of {len(found):,} orders, worked out beside it.", "green")
    if HUDI_RS is not None:
        theirs = sorted((r["id"], r["item"], r["amount"], r["ts"]) for r in read_by_hudi_rs(home / ORDERS).to_pylist())
        if theirs != found:
            raise LakeError(
                f"{home / ORDERS}: hudi-rs reads {len(theirs)} rows, others than lakesql. Please report this."
            )
        say(console, f"hudi-rs reads the same {len(theirs):,} rows of orders.", "green")


def compacted(console: Console, con: Connection, home: Path, clock: Clock) -> None:
    """How far the read-optimized view lags, before and after a compaction."""
    chapter(console, 5, "Compaction")
    table = open_table(str(home / ORDERS))
    [before] = freshness(table.state, clock())
    say(console, f"Before: the read-optimized view of orders {before.text}.")
    call = "CALL run_compaction(op => 'scheduleAndExecute', table => 'orders')"
    console.print(call, style="cyan", markup=False)
    con.execute(call)
    [after] = freshness(table.state, clock())
    say(console, f"After: it is {after.text}.")
    if not before.log_files or after.log_files:
        raise LakeError(
            f"{home / ORDERS}: {before.log_files} log files before, {after.log_files} after compaction. Please report this."
        )
    both = [con.execute(f"SELECT * FROM {view} ORDER BY id").fetchall() for view in ("orders", "orders_ro")]
    if both[0] != both[1]:
        raise LakeError(
            f"{home / ORDERS}: snapshot and read-optimized view differ after compaction. Please report this."
        )
    say(console, f"Snapshot and read-optimized view hold the same {len(both[0]):,} rows.", "green")


def advised(console: Console, home: Path) -> None:
    """What the table's own commits say about its type."""
    chapter(console, 6, "Copy-on-Write or Merge-on-Read?")
    advice = open_table(str(home / ORDERS)).advise(READS_PER_WRITE)
    say(console, f"For orders, read {READS_PER_WRITE} times per commit: {advice.sentence}")
    say(console, f"lakesql advise {shlex.quote(str(home / ORDERS))} --reads-per-write {READS_PER_WRITE} says why.")


def plotted(console: Console, home: Path) -> None:
    """Every plot of the orders into a folder."""
    chapter(console, 7, "Plots")
    if importlib.util.find_spec("matplotlib") is None:
        say(console, "matplotlib is not installed (pip install 'lakesql[plot]'), so nothing is drawn.")
        return
    from lakesql import plot

    folder = home / PLOTS
    folder.mkdir()
    table = open_table(str(home / ORDERS))
    for kind, drawn in plot.KINDS.items():
        figure = drawn(table, **({"reads_per_write": READS_PER_WRITE} if kind == "advice" else {}))
        figure.save(folder / f"{kind}.svg")
    say(console, f"{', '.join(f'{kind}.svg' for kind in plot.KINDS)} are in {folder}.")


# ---------------------------------------------------------------- orders


def batch(number: int) -> list[Order]:
    """The first batch has all orders; later ones change some of them, and of some bring a version that is too old."""
    draw = random.Random(number)
    ids = sorted(draw.sample(range(FIRST), LATER)) if number else range(FIRST)
    return [
        {
            "id": i,
            "item": draw.choice(("apples", "pears", "plums", "quinces")),
            "amount": draw.randrange(100, 10_000) / 100,
            "ts": _HOUR * (-1 if number and draw.random() < 0.2 else number),
        }
        for i in ids
    ]


def newest(batches: Sequence[Sequence[Order]]) -> dict[int, Order]:
    """The newest version of each order by its time; of equally old ones the last."""
    found: dict[int, Order] = {}
    for orders in batches:
        for order in orders:
            if order["id"] not in found or order["ts"] >= found[order["id"]]["ts"]:
                found[order["id"]] = order
    return found


def _as_table(orders: Sequence[Order]) -> str:
    rows = ", ".join(f"({o['id']}, '{o['item']}', {o['amount']}, {o['ts']})" for o in orders)
    types = "id::BIGINT AS id, item, amount::DOUBLE AS amount, ts::BIGINT AS ts"
    return f"CREATE OR REPLACE TEMP TABLE incoming AS SELECT {types} FROM (VALUES {rows}) AS v (id, item, amount, ts)"


# ---------------------------------------------------------------- checks and output


def compare_with_hudi_rs(console: Console, con: Connection, table: str, home: Path) -> None:
    """hudi-rs must read the rows that lakesql reads."""
    if HUDI_RS is None:
        say(
            console, f"hudi-rs is not installed (pip install 'lakesql[demo]'), so the rows of {table} are not compared."
        )
        return
    theirs = duckdb.connect()
    theirs.execute("SET TimeZone = 'UTC'")
    theirs.register("read_by_hudi_rs", read_by_hudi_rs(home / table))
    other = theirs.execute(f"SELECT {COLUMNS} FROM read_by_hudi_rs ORDER BY trip_id").fetchall()
    ours = con.execute(f"SELECT {COLUMNS} FROM {table} ORDER BY trip_id").fetchall()
    if other != ours:
        raise LakeError(f"{home / table}: hudi-rs reads {other}, lakesql reads {ours}. Please report this.")
    say(console, f"hudi-rs reads the same {len(ours)} rows of {table}.", "green")


def read_by_hudi_rs(path: Path) -> pa.Table:
    """The whole table as hudi-rs reads it."""
    assert HUDI_RS is not None, "the caller has looked whether it is installed"
    return pa.Table.from_batches(HUDI_RS.HudiTableBuilder.from_base_uri(str(path)).build().read())


def counts(con: Connection) -> str:
    """What the last statement did to the rows of a table."""
    result = con.last_result
    assert result is not None, "the statement was a write"
    names = ("inserted", "updated", "deleted", "ignored")
    told = [f"{n:,} {name}" for name in names if (n := getattr(result, f"rows_{name}"))]
    return f"{result.action} {result.instant}, {', '.join(told)}"


def chapter(console: Console, number: int, title: str) -> None:
    console.print()
    console.rule(f"[bold]{number}  {title}", align="left")


def say(console: Console, text: str, style: str | None = None) -> None:
    console.print(text, style=style, markup=False)


def show(console: Console, con: Connection, sql: str) -> None:
    """A query's rows as a grid."""
    result = con.execute(sql)
    grid = Grid(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
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
