"""The command line: `lakesql` is the shell, `lakesql -c "SQL"` runs statements and ends, `lakesql run FILE` a script.

Results go to standard output, errors to standard error as our text without a traceback; the exit code is 1 after an
error, 130 after Ctrl-C. A first word that is no command is the database: `lakesql lake.duckdb`. What a command needs it
imports itself: `lakesql -c "SELECT 1"` would else spend its time on loading all the others.
"""

import json
import sys
from difflib import get_close_matches
from enum import StrEnum
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import duckdb
import typer
from typer.core import TyperGroup

from lakesql.counted import counted
from lakesql.errors import LakeError
from lakesql.ingest_command import ingest
from lakesql.opening import connected, guarded, require_database, table_at
from lakesql.shell import batch, new_shell, read_script
from lakesql.sql import render
from lakesql.upkeep import keep, seconds_of

_DEFAULT = "sql"
_COMMANDS = (
    "run", "serve", "ingest", "inspect", "doctor", "advise", "compact", "cluster", "clean", "archive", "plot", "demo",
)  # fmt: skip


class Format(StrEnum):
    """How results are written."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    JSONLINES = "jsonlines"
    MARKDOWN = "markdown"
    LINE = "line"
    LIST = "list"


class _Told(StrEnum):
    """How advice is written."""

    TABLE = "table"
    JSON = "json"


class _Group(TyperGroup):
    """Commands of which one is the default, so that `lakesql -c ...` and `lakesql FILE` need no command word."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the default command in front of arguments that name none."""
        first = args[0] if args else ""
        near = get_close_matches(first, _COMMANDS, 1)
        if len(args) > 1 and near and first not in self.commands and not first.startswith("-"):
            raise LakeError(f"{first} is no command. Did you mean {near[0]}?")
        if first not in self.commands and first not in (
            "--help",
            "--version",
            "--install-completion",
            "--show-completion",
        ):
            args = [_DEFAULT, *args]
        return super().parse_args(ctx, args)


_HELP = """SQL on Apache Hudi tables, with DuckDB.

\b
lakesql [DATABASE]             the shell; with a script on standard input, run it
lakesql -c "SQL" [DATABASE]    run statements and exit; -c may be repeated
lakesql run FILE [DATABASE]    run a script

\b
Options of all three (of run all but -c):
  -c SQL             run this and exit
  --format FORMAT    table, csv, json, jsonlines, markdown, line or list
  --maxrows N        how many rows a table shows, 0 for all; default 40
  -init FILE         run this first; without it, ~/.lakesqlrc in the shell
  --warehouse DIR    folder of the Hudi tables; default ./warehouse
  --read-only        change neither the database nor a table

DATABASE is a DuckDB file for your other tables and views; without it they are in memory. Hudi tables are in the
warehouse either way."""

app = typer.Typer(cls=_Group, add_completion=False, help=_HELP, pretty_exceptions_enable=False, rich_markup_mode=None)

Warehouse = Annotated[
    str | None, typer.Option("--warehouse", metavar="DIR", help="Folder of the Hudi tables; default: ./warehouse.")
]
TableAt = Annotated[
    str, typer.Argument(metavar="TABLE", help="Folder of a Hudi table, or the name of one in the warehouse.")
]
Init = Annotated[
    Path | None,
    typer.Option("-init", "--init", metavar="FILE", help="Run this first; the shell then not ~/.lakesqlrc."),
]
Output = Annotated[Format, typer.Option("--format", help="How results are written.")]
MaxRows = Annotated[int, typer.Option("--maxrows", min=0, help="How many rows a table shows; 0: all.")]
Database = Annotated[
    str, typer.Argument(metavar="DATABASE", help="DuckDB file of your other tables and views; without it, memory.")
]
Partitions = Annotated[list[str] | None, typer.Option("--partition", help="Only this partition path; may be repeated.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting of Hudi; may be repeated.")
]
Engine = Annotated[str, typer.Option("--engine", help="Where statements on Hudi tables run: duckdb or spark.")]
ReadOnly = Annotated[bool, typer.Option("--read-only", help="Change neither the database nor a table.")]


@app.callback(invoke_without_command=True)
def _version(show: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False) -> None:
    if show:
        typer.echo(f"lakesql {version('lakesql')}, DuckDB {duckdb.__version__}")
        raise typer.Exit


@app.command(_DEFAULT)
def sql_command(
    database: Database = ":memory:",
    command: Annotated[list[str] | None, typer.Option("-c", metavar="SQL", help="Run this and exit.")] = None,
    init: Init = None,
    format: Output = Format.TABLE,  # noqa: A002
    maxrows: MaxRows = render.ROWS_MAX,
    warehouse: Warehouse = None,
    read_only: ReadOnly = False,
) -> None:
    """The shell; with -c, or with a script on standard input, run and exit. This is the default command."""
    require_database(database, _COMMANDS)
    with connected(database, warehouse, read_only) as con:
        shell = new_shell(con, format.value, maxrows)
        if init is not None:
            _require(batch(shell, read_script(init), init))
        if command:
            _require(all(batch(shell, text) for text in command if shell.running))
        elif sys.stdin.isatty():
            from lakesql.terminal import RC, interactive

            if init is None and (rc := Path.home() / RC).is_file():
                batch(shell, read_script(rc), rc)  # its errors are shown, and the shell is there all the same
            interactive(shell)
        else:
            _require(batch(shell, sys.stdin.read()))
        if shell.con is not con:
            shell.con.close()
        if shell.code:
            raise typer.Exit(shell.code)


@app.command()
def run(
    file: Annotated[Path, typer.Argument(help="The script; statements end with semicolons.")],
    database: Database = ":memory:",
    init: Init = None,
    format: Output = Format.TABLE,  # noqa: A002
    maxrows: MaxRows = render.ROWS_MAX,
    warehouse: Warehouse = None,
    read_only: ReadOnly = False,
    engine: Engine = "duckdb",
) -> None:
    """Run a script; stop at the first error and say which line."""
    text = read_script(file)
    require_database(database, _COMMANDS)
    with connected(database, warehouse, read_only, engine) as con:
        shell = new_shell(con, format.value, maxrows)
        if init is not None:
            _require(batch(shell, read_script(init), init))
        if shell.running:
            _require(batch(shell, text, file))
        if shell.con is not con:
            shell.con.close()
        if shell.code:
            raise typer.Exit(shell.code)


@app.command()
def serve(
    database: Database = ":memory:",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free port, which is said.")] = 9494,
    host: Annotated[str, typer.Option(help="Where to listen; others than localhost have no encryption.")] = "localhost",
    token: Annotated[
        str | None, typer.Option(help="What clients must know; others on this machine may see it. Or LAKESQL_TOKEN.")
    ] = None,
    token_file: Annotated[Path | None, typer.Option("--token-file", help="A file with the token.")] = None,
    write: Annotated[bool, typer.Option("--write", help="Let clients change tables.")] = False,
    grace: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long running statements may go on when it stops.")
    ] = 5.0,
    warehouse: Warehouse = None,
) -> None:
    """The warehouse for stock DuckDB shells, which attach over DuckDB's protocol Quack; until Ctrl-C."""
    from lakesql import serve as served

    secret, made = served.token_of(token, token_file)
    require_database(database, _COMMANDS)
    with connected(database, warehouse, False) as con:
        server = served.Server(con, host, port or served.free_port(host), secret, write)

        def started() -> None:
            typer.echo(served.greeting(con, server, write, secret if made else None))
            sys.stdout.flush()

        served.run(server, started, typer.echo, grace)


@app.command()
def inspect(path: TableAt, warehouse: Warehouse = None) -> None:
    """What is in a table: type, keys, columns, instants, sizes."""
    from lakesql.handle import open_table

    table = open_table(table_at(path, warehouse))
    state = table.state
    config = state.config
    slices = state.slices()
    writes = state.timeline.completed_writes()
    base_bytes = sum(s.base.size_bytes for s in slices if s.base)
    log_bytes = sum(f.size_bytes for s in slices for f in s.logs)
    rows = [
        ("table", config.name),
        ("path", state.path),
        ("type", f"{config.table_type}, version {config.version}"),
        ("record key", ", ".join(config.record_key_fields) or "generated"),
        ("partitioned by", ", ".join(config.partition_fields) or "-"),
        ("ordering", ", ".join(config.ordering_fields) or "-"),
        ("merge mode", config.merge_mode),
        ("columns", ", ".join(f"{f.name} {f.type}" for f in state.schema)),
        ("instants", f"{counted(len(writes), 'completed write')}, newest {writes[-1].requested if writes else '-'}"),
        ("pending", ", ".join(f"{i.action} {i.requested}" for i in state.timeline.pending()) or "-"),
        ("partitions", str(len({s.partition for s in slices}))),
        ("file groups", f"{len(slices)}, {base_bytes:,} bytes of base files, {log_bytes:,} bytes of logs"),
    ]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        typer.echo(f"{name:<{width}}  {value}")


@app.command("clean")
def clean_command(
    path: TableAt,
    every: Annotated[str | None, typer.Option(metavar="10m", help="Clean again and again, so far apart.")] = None,
    retain_commits: Annotated[int | None, typer.Option(min=1, help="Commits whose states stay readable.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be removed; change nothing.")] = False,
    set_: Settings = None,
    warehouse: Warehouse = None,
) -> None:
    """Remove files that no retained state of a table needs."""
    from lakesql.services.clean_settings import RETAINED_COMMITS
    from lakesql.services.cleaning import clean, preview
    from lakesql.storage import open_storage
    from lakesql.table.state import load

    storage = open_storage(table_at(path, warehouse))
    given = _settings(set_) | ({} if retain_commits is None else {RETAINED_COMMITS: str(retain_commits)})

    def work() -> str:
        state = load(storage)
        settings = {**state.config.properties, **given}
        if dry_run:
            found = preview(state, settings)
            names = [f"{p}/{n}" if p else n for p, group in (found.files if found else {}).items() for n in group]
            return "\n".join([*names, f"{counted(len(names), 'file')} would be removed."])
        lines = []
        for one in clean(storage, settings):
            kept = f"; states from {one.earliest} on stay readable" if one.earliest else ""
            lines.append(f"{one.instant}: {counted(one.files_deleted, 'file')} removed{kept}.")
        return "\n".join(lines or ["Nothing to remove."])

    keep(work, typer.echo, None if every is None else seconds_of(every))


def _settings(given: list[str] | None) -> dict[str, str]:
    """The settings of `--set`; LakeError for one that is not KEY=VALUE, or misspelt."""
    from lakesql.services.spelling import require_all_known

    wrong = next((text for text in given or () if "=" not in text), None)
    if wrong is not None:
        raise LakeError(f"--set {wrong}: write KEY=VALUE.")
    found = {key.strip(): value.strip() for key, _, value in (text.partition("=") for text in given or ())}
    require_all_known(found, "--set")
    return found


@app.command("archive")
def archive_command(
    path: TableAt,
    every: Annotated[str | None, typer.Option(metavar="10m", help="Archive again and again, so far apart.")] = None,
    set_: Settings = None,
    warehouse: Warehouse = None,
) -> None:
    """Move old instants of a table from its active timeline to the archive, when there are too many."""
    from lakesql.handle import open_table

    table, settings = open_table(table_at(path, warehouse)), _settings(set_)

    def work() -> str:
        moved = table.archive(**settings)
        return (
            f"{counted(len(moved), 'instant')} archived, {moved[0]} to {moved[-1]}." if moved else "Nothing to archive."
        )

    keep(work, typer.echo, None if every is None else seconds_of(every))


@app.command()
def doctor(path: TableAt, warehouse: Warehouse = None) -> None:
    """What is wrong with a table, with the command that mends it; exit code 1 for errors and warnings."""
    from lakesql.procedures.doctor import NOTE, examine
    from lakesql.storage import open_storage
    from lakesql.table.known_settings import make_utc

    with duckdb.connect(":memory:") as con:
        make_utc(con)
        findings = examine(con, open_storage(table_at(path, warehouse)))
    for one in findings:
        typer.echo(f"{one.severity:<7}  {one.check}: {one.what}" + (f"  => {one.command}" if one.command else ""))
    if not findings:
        typer.echo("Nothing is wrong.")
    _require(all(one.severity == NOTE for one in findings))


@app.command()
def compact(
    path: TableAt,
    every: Annotated[str | None, typer.Option(help="Again and again, e.g. every 10m, until Ctrl-C.")] = None,
    schedule_only: Annotated[bool, typer.Option("--schedule-only", help="Leave a plan, run nothing.")] = False,
    run_only: Annotated[bool, typer.Option("--run-only", help="Run what is planned, plan nothing.")] = False,
    logs: Annotated[bool, typer.Option("--logs", help="Merge log blocks with each other only.")] = False,
    partition: Partitions = None,
    adaptive: Annotated[bool, typer.Option("--adaptive", help="Decide each round by targets, and say why.")] = False,
    target_read_amplification: Annotated[
        float | None, typer.Option(metavar="X", help="A snapshot reads at most X times the base files; adaptive.")
    ] = None,
    target_staleness: Annotated[
        str | None, typer.Option(metavar="SPAN", help="Age of the read-optimized view, e.g. '15 minutes'; adaptive.")
    ] = None,
    budget: Annotated[float | None, typer.Option(help="Share of time compaction may take, e.g. 0.3; adaptive.")] = None,
    set_: Settings = None,
    warehouse: Warehouse = None,
) -> None:
    """Fold the logs of a table into its base files, beside its writers, who need not wait."""
    from lakesql.handle import open_table
    from lakesql.services.adaptive_settings import BUDGET, PERIOD, READ_AMPLIFICATION, STALENESS
    from lakesql.services.compaction_plan import ADAPTIVE

    wanted = {READ_AMPLIFICATION: target_read_amplification, STALENESS: target_staleness, BUDGET: budget}
    targets = {name: str(value) for name, value in wanted.items() if value is not None}
    if targets and not adaptive:
        raise LakeError("targets and a budget are for adaptive compaction; add --adaptive.")
    if adaptive and logs:
        raise LakeError("--adaptive and --logs exclude each other; adaptive compaction merges logs where that helps.")
    if schedule_only and run_only:
        raise LakeError("--schedule-only and --run-only exclude each other.")
    settings: dict[str, Any] = _settings(set_) | targets
    pause = None if every is None else seconds_of(every)
    if adaptive and pause is not None:
        settings[PERIOD] = f"{pause} seconds"
    table = open_table(table_at(path, warehouse))

    def progress(done: int, all_: int) -> None:
        if sys.stderr.isatty():
            typer.echo(f"\r{done} of {all_} file groups{chr(10) if done == all_ else ''}", nl=False, err=True)

    def work() -> str:
        done = table.compact(
            schedule=not run_only,
            run=not schedule_only,
            partitions=partition,
            logs=logs,
            strategy=ADAPTIVE if adaptive else None,
            progress=progress,
            **settings,
        )
        return "\n".join([str(done), *done.notes])

    keep(work, typer.echo, pause)


@app.command()
def cluster(
    path: TableAt,
    order: Annotated[str, typer.Option(help="Columns to sort by, separated by commas.")] = "",
    strategy: Annotated[str, typer.Option(help="linear, z-order or hilbert.")] = "linear",
    every: Annotated[
        str | None, typer.Option(metavar="10m", help="Look again, so far apart, and cluster after enough writes.")
    ] = None,
    partition: Partitions = None,
    set_: Settings = None,
    warehouse: Warehouse = None,
) -> None:
    """Make few sorted file groups of many small ones, once or from time to time beside the writers."""
    from lakesql.handle import open_table
    from lakesql.services import clustering

    table = open_table(table_at(path, warehouse))
    columns = [name.strip() for name in order.split(",") if name.strip()]
    settings: dict[str, Any] = _settings(set_)

    def work() -> str:
        if every is not None and not clustering.due_apart(table.state, settings):
            return "Too few writes since the last clustering."
        done = table.cluster(columns, strategy, partition, **settings)
        return "\n".join(map(clustering.sentence, done)) or "Nothing to cluster."

    keep(work, typer.echo, None if every is None else seconds_of(every))


app.command()(ingest)


@app.command()
def advise(
    path: Annotated[
        str | None, typer.Argument(metavar="TABLE", help="Folder of a Hudi table, or the name of one in the warehouse.")
    ] = None,
    reads_per_write: Annotated[
        float | None, typer.Option("--reads-per-write", min=0, help="Snapshot reads of the whole table per commit.")
    ] = None,
    measure: Annotated[
        bool,
        typer.Option(
            "--measure", help="Correct the prices by running copies of the table's file groups as both types."
        ),
    ] = False,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="First measure what writes and reads cost on this machine.")
    ] = False,
    scale: Annotated[
        bool, typer.Option("--scale", help="Say instead whether a statement fits this machine, and how Spark does it.")
    ] = False,
    statement: Annotated[
        str | None, typer.Option(help="With --scale: upsert, insert, bulk_insert, delete, merge, update or compaction.")
    ] = None,
    rows: Annotated[int | None, typer.Option(min=0, help="With --scale: rows of the statement.")] = None,
    data: Annotated[str | None, typer.Option(metavar="FILE", help="With --scale: the file with its rows.")] = None,
    script: Annotated[str | None, typer.Option(metavar="FILE", help="With --scale: the script that holds it.")] = None,
    within: Annotated[float, typer.Option(metavar="SECONDS", help="With --scale: how long it may take.")] = 3600,
    format: Annotated[_Told, typer.Option("--format", help="For people, or as rows.")] = _Told.TABLE,  # noqa: A002
    warehouse: Warehouse = None,
) -> None:
    """Whether a table should be Copy-on-Write or Merge-on-Read, from its own commits."""
    from lakesql.handle import open_table

    if (statement or rows is not None or data or script) and not scale:
        raise LakeError("advise: --statement, --rows, --data and --script are for --scale.")
    if scale and path is None:
        raise LakeError("advise: --scale needs the folder of a Hudi table.")
    if path is None and not calibrate:
        raise LakeError("advise: give a Hudi table, or --calibrate, or both.")
    table = None if path is None else open_table(table_at(path, warehouse))
    if calibrate:
        _calibrate()
    if table is None:
        return
    if scale:
        said: Any = table.scale(rows, statement, data=data, script=script, within_s=within)
    else:
        said = table.advise(reads_per_write, measure)
    typer.echo(str(said) if format == _Told.TABLE else json.dumps(said.to_arrow().to_pylist(), indent=2))


def _calibrate() -> None:
    """Measure this machine with a progress bar, and keep the record."""
    from rich.console import Console
    from rich.progress import Progress

    from lakesql.advice import calibration
    from lakesql.advice.apart import apart
    from lakesql.advice.calibrate import calibrate as measure_machine

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("Writing and reading tables", total=1.0)
        record = apart(partial(measure_machine, "cpu"), lambda part: bar.update(task, completed=part))
    kept = calibration.save(record)
    typer.echo(f"Calibrated: {record.machine}; the prices are off by {record.error:.0%} in the median. Kept in {kept}")


@app.command()
def plot(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="timeline, files, amplification, advice, freshness or compaction.")
    ],
    path: Annotated[
        str | None, typer.Argument(metavar="TABLE", help="As for the others; compaction works without one.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="File ending in .svg, .png or .pdf; default: TABLE-KIND.svg here.")
    ] = None,
    reads_per_write: Annotated[
        float | None, typer.Option("--reads-per-write", min=0, help="For advice: snapshot reads per commit.")
    ] = None,
    warehouse: Warehouse = None,
) -> None:
    """Draw what a table is like into a file, and say what the picture shows."""
    from lakesql.plot.command import draw

    typer.echo(draw(kind, None if path is None else table_at(path, warehouse), out, reads_per_write))


@app.command()
def demo(
    folder: Annotated[
        str | None, typer.Option(help="Where the tables are made; default: a new temporary folder.")
    ] = None,
) -> None:
    """Merge a batch with late data and deletes into tables that Apache Hudi wrote, and show every read."""
    from lakesql.demo import main as demo_main

    demo_main(folder)


def _require(succeeded: bool) -> None:
    if not succeeded:
        raise typer.Exit(1)


def main() -> None:
    """The command with all that it knows; `entry` is what the installed program calls."""
    guarded(app)
