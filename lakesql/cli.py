"""The command line: `lakesql` is the shell, `lakesql -c "SQL"` runs statements and ends, `lakesql run FILE` a script.

Results go to standard output, errors to standard error as our text without a traceback, and the exit code is 1 after an
error. A first word that is no command is the database: `lakesql lake.duckdb`.
"""

import sys
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import duckdb
import typer
from typer.core import TyperGroup

from lakesql.demo import main as demo_main
from lakesql.errors import LakeError
from lakesql.handle import open_table
from lakesql.shell import batch, interactive, new_shell
from lakesql.sql import render, script
from lakesql.sql.connection import connect

_DEFAULT = "sql"


class Format(StrEnum):
    """How results are written."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    MARKDOWN = "markdown"
    LINE = "line"


class _Group(TyperGroup):
    """Commands of which one is the default, so that `lakesql -c ...` and `lakesql FILE` need no command word."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the default command in front of arguments that name none."""
        first = args[0] if args else ""
        if first not in self.commands and first not in (
            "--help",
            "--version",
            "--install-completion",
            "--show-completion",
        ):
            args = [_DEFAULT, *args]
        return super().parse_args(ctx, args)


_HELP = """SQL on Apache Hudi tables, with DuckDB.

Without a command it is the shell: lakesql [DATABASE]. With -c "SQL" it runs the statements and exits."""

app = typer.Typer(cls=_Group, add_completion=False, help=_HELP, pretty_exceptions_enable=False)

Warehouse = Annotated[str, typer.Option("--warehouse", metavar="DIR", help="Folder of the Hudi tables.")]
Output = Annotated[Format, typer.Option("--format", help="How results are written.")]
Database = Annotated[str, typer.Argument(metavar="[DATABASE]", help="DuckDB file; without it, memory.")]
ReadOnly = Annotated[bool, typer.Option("--read-only", help="Change neither the database nor a table.")]


@app.callback(invoke_without_command=True)
def _version(show: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False) -> None:
    if show:
        typer.echo(f"lakesql {version('lakesql')}, DuckDB {duckdb.__version__}")
        raise typer.Exit


@app.command(_DEFAULT)
def sql_command(
    database: Database = ":memory:",
    command: Annotated[str | None, typer.Option("-c", metavar="SQL", help="Run this and exit.")] = None,
    format: Output = Format.TABLE,  # noqa: A002
    warehouse: Warehouse = "warehouse",
    read_only: ReadOnly = False,
) -> None:
    """The shell; with -c, or with a script on standard input, run and exit. This is the default command."""
    with connect(database, warehouse=warehouse, read_only=read_only) as con:
        shell = new_shell(con, format.value)
        if command is not None:
            _require(batch(shell, command))
        elif sys.stdin.isatty():
            interactive(shell)
        else:
            _require(batch(shell, sys.stdin.read()))


@app.command()
def run(
    file: Annotated[Path, typer.Argument(help="The script; statements end with semicolons.")],
    database: Database = ":memory:",
    format: Output = Format.TABLE,  # noqa: A002
    warehouse: Warehouse = "warehouse",
) -> None:
    """Run a script; stop at the first error and say which line."""
    text = file.read_text(encoding="utf-8")
    with connect(database, warehouse=warehouse) as con:
        try:
            for result in script.run(con, text):
                if result.written is not None and format is Format.TABLE:
                    typer.echo(str(result.written))
                elif result.columns:
                    typer.echo(render.FORMATS[format.value](result.columns, result.rows))
        except script.ScriptError as error:
            typer.echo(f"{file}: line {error.line}: {error}", err=True)
            raise typer.Exit(1) from error


@app.command()
def inspect(path: Annotated[str, typer.Argument(help="Folder of a Hudi table.")]) -> None:
    """What is in a table: type, keys, columns, instants, sizes."""
    table = open_table(path)
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
        ("instants", f"{len(writes)} completed writes, newest {writes[-1].requested if writes else '-'}"),
        ("pending", ", ".join(f"{i.action} {i.requested}" for i in state.timeline.pending()) or "-"),
        ("partitions", str(len({s.partition for s in slices}))),
        ("file groups", f"{len(slices)}, {base_bytes:,} bytes of base files, {log_bytes:,} bytes of logs"),
    ]
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        typer.echo(f"{name:<{width}}  {value}")


@app.command()
def demo(
    folder: Annotated[
        str | None, typer.Option(help="Where the tables are made; default: a new temporary folder.")
    ] = None,
) -> None:
    """Merge a batch with late data and deletes into tables that Apache Hudi wrote, and show every read."""
    demo_main(folder)


def _require(succeeded: bool) -> None:
    if not succeeded:
        raise typer.Exit(1)


def main() -> None:
    """The entry point of the command."""
    try:
        app()
    except (LakeError, duckdb.Error, OSError) as error:
        typer.echo(f"Error: {script.error_text(error)}", err=True)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
