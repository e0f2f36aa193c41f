"""The command line without the extra [cli]: `lakesql -c "SQL"`, `lakesql run FILE`, and a script on standard input.

They do what they do with the extra; the shell and the other commands need its packages and say so.
"""

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import duckdb

from lakesql.errors import LakeError
from lakesql.opening import connected, guarded, require_database
from lakesql.shell import batch, new_shell, read_script
from lakesql.sql import render

_INSTALL = "pip install 'lakesql[cli]'"
_COMMANDS = ("run",)
_ABOUT = f"SQL on Apache Hudi tables, with DuckDB.\nThe shell and all other commands: {_INSTALL}"


def main() -> None:
    """The command."""
    guarded(lambda: run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> None:
    """Run statements or a script; exit code 1 after an error. LakeError for what needs the extra."""
    file: Path | None = None
    if arguments[:1] == ["run"]:
        asked = _parser(script=True).parse_args(arguments[1:])
        file = asked.file
    else:
        _require_sql(arguments)
        asked = _parser().parse_args(arguments)
    if file is not None:
        texts = [read_script(file)]
    else:
        texts = asked.command or [sys.stdin.read()]
    require_database(asked.database, _COMMANDS)
    with connected(asked.database, asked.warehouse, asked.read_only, getattr(asked, "engine", "duckdb")) as con:
        shell = new_shell(con, asked.format, asked.maxrows)
        succeeded = asked.init is None or batch(shell, read_script(asked.init), asked.init)
        succeeded = succeeded and all(batch(shell, text, file) for text in texts if shell.running)
        if shell.con is not con:
            shell.con.close()
    if not succeeded or shell.code:
        sys.exit(shell.code or 1)


def _require_sql(arguments: Sequence[str]) -> None:
    """LakeError for a command other than to run SQL, and for the shell."""
    without = 'Without it there are lakesql -c "SQL" and lakesql run FILE.'
    first = next(iter(arguments), "")
    if first.isalpha() and not Path(first).exists():
        raise LakeError(f"lakesql {first} needs the packages of the extra cli: {_INSTALL}. {without}")
    if sys.stdin.isatty() and not {"-c", "-h", "--help", "--version"} & set(arguments):
        raise LakeError(f"the shell needs the packages of the extra cli: {_INSTALL}. {without}")


def _parser(script: bool = False) -> ArgumentParser:
    parser = ArgumentParser(
        prog="lakesql run" if script else "lakesql",
        description=_ABOUT,
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    if script:
        parser.add_argument("file", metavar="FILE", type=Path, help="the script; statements end with semicolons")
        parser.add_argument("--engine", default="duckdb", help="where statements on Hudi tables run: duckdb or spark")
    else:
        parser.add_argument("--version", action="version", version=_version())
        parser.add_argument("-c", dest="command", metavar="SQL", action="append", help="run this and exit")
    parser.add_argument(
        "database", metavar="DATABASE", nargs="?", default=":memory:", help="DuckDB file of your other tables and views"
    )
    parser.add_argument("-init", "--init", metavar="FILE", type=Path, help="run this first")
    parser.add_argument("--format", choices=[*render.FORMATS], default="table", help="how results are written")
    parser.add_argument("--maxrows", metavar="N", type=int, default=render.ROWS_MAX, help="rows of a table; 0: all")
    parser.add_argument("--warehouse", metavar="DIR", help="folder of the Hudi tables; default: ./warehouse")
    parser.add_argument("--read-only", action="store_true", help="change neither the database nor a table")
    return parser


def _version() -> str:
    return f"lakesql {version('lakesql')}, DuckDB {duckdb.__version__}"
