"""The interactive shell: statements end with a semicolon and may take several lines, commands begin with a dot.

`Shell` is the state of a session (connection, output format, timer, where output goes); everything it does is a
function of a line of input and can be run without a terminal. Prompt, history and completion: `terminal`.
"""

import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TextIO

import duckdb

from lakesql.errors import LakeError
from lakesql.interrupt import interruptible
from lakesql.sql import render, script
from lakesql.sql.connection import Connection
from lakesql.sql.lexer import is_complete


@dataclass(slots=True)
class Shell:
    """One session of the shell."""

    con: Connection
    out: TextIO
    err: TextIO
    mode: str = "table"
    rows_max: int = render.ROWS_MAX
    """How many rows of a result a table shows; 0: all."""
    width_max: int = 0
    """How wide a table may be; 0: as the terminal, without one any width."""
    timer: bool = False
    interactive: bool = False
    running: bool = True
    failed: bool = False
    """Whether the last input failed."""
    file: TextIO | None = field(default=None)
    """Where results go instead of `out`."""

    def say(self, text: str) -> None:
        """Write a result."""
        print(text, file=self.file or self.out)

    def complain(self, text: str, place: str = "") -> None:
        """Write an error. `place`: the file and line it is in, or the line."""
        self.failed = True
        print(f"{place}: {text}" if place else f"Error: {text}", file=self.err)


@dataclass(frozen=True, slots=True)
class Place:
    """Where an input comes from: a file, None for the keyboard and the command line, and the line it begins in."""

    file: Path | None = None
    line: int = 1

    def at(self, line: int, text: str) -> str:
        """How an error names a line of the input, '' when there is but one."""
        number = self.line + line - 1
        if self.file is not None:
            return f"{self.file}: line {number}"
        return f"Error: line {number}" if number > 1 or "\n" in text.strip() else ""


def run_input(shell: Shell, text: str, place: Place = Place()) -> None:
    """Run what was typed: a dot command, or statements up to their semicolon. Errors are written, not raised.

    KeyboardInterrupt is written too by an interactive shell, which goes on, and raised by others.
    """
    shell.failed = False
    try:
        if text.lstrip().startswith("."):
            _command(shell, text.strip(), place)
        else:
            with interruptible(shell.con.duckdb):
                _statements(shell, text, place)
    except KeyboardInterrupt:
        shell.failed = True
        if not shell.interactive:
            raise
        print("Interrupted", file=shell.err)


def _statements(shell: Shell, text: str, place: Place) -> None:
    started = time.perf_counter()
    limited = shell.mode == "table" and shell.file is None
    try:
        for result in script.run(shell.con, text, shell.mode, shell.rows_max or None if limited else None):
            if result.columns or result.written:
                shell.say(script.shown(result, shell.mode, _width(shell) if limited else None))
            if result.note:
                print(f"Note: {result.note}", file=shell.err)
    except script.ScriptError as error:
        shell.complain(str(error), place.at(error.line, text))
    if shell.timer:
        shell.say(f"Run time: {time.perf_counter() - started:.3f} s")


def _width(shell: Shell) -> int | None:
    """How wide a table may be, None for any width."""
    if shell.width_max:
        return shell.width_max
    return shutil.get_terminal_size().columns if shell.out.isatty() else None


# ---------------------------------------------------------------- dot commands


def _command(shell: Shell, text: str, place: Place) -> None:
    name, _, argument = text[1:].partition(" ")
    command = COMMANDS.get(name.lower())
    if command is None:
        shell.complain(f".{name} is unknown; .help lists the commands.", place.at(1, text))
        return
    try:
        command[1](shell, argument.strip().rstrip(";").strip())
    except (LakeError, duckdb.Error, OSError) as error:
        shell.complain(script.error_text(error), place.at(1, text))


def _tables(shell: Shell, argument: str) -> None:
    rows = [(name, path) for name, path in shell.con.tables.items() if not argument or argument.lower() in name.lower()]
    others = shell.con.duckdb.execute(
        "SELECT table_name FROM duckdb_tables() WHERE NOT internal UNION ALL "
        "SELECT view_name FROM duckdb_views() WHERE NOT internal ORDER BY 1"
    ).fetchall()
    known = {n.lower() for n, _ in rows}
    rows += [(str(n), "") for (n,) in others if str(n).lower() not in known and argument.lower() in str(n).lower()]
    shell.say(render.table(("name", "hudi table at"), rows))


def _schema(shell: Shell, argument: str) -> None:
    names = [argument] if argument else list(shell.con.tables)
    for name in names:
        if not any(t.lower() == name.lower() for t in shell.con.tables):
            shell.complain(f"{name} is not a Hudi table of this connection; DESCRIBE {name} shows other tables.")
            return
        columns = shell.con.duckdb.execute("FROM hudi_schema($1)", [name]).fetchall()
        shell.say(f"{name}:")
        for column, kind, nullable, key, partition, ordering in columns:
            marks = [m for m, on in (("record key", key), ("partition", partition), ("ordering", ordering)) if on]
            marks += [] if nullable else ["not null"]
            shell.say(f"  {column} {kind}" + (f"  ({', '.join(marks)})" if marks else ""))


def _mode(shell: Shell, argument: str) -> None:
    if not argument:
        shell.say(f"mode: {shell.mode}")
    elif argument.lower() not in render.FORMATS:
        shell.complain(f"mode {argument} is unknown; use {', '.join(render.FORMATS)}.")
    else:
        shell.mode = argument.lower()


def _timer(shell: Shell, argument: str) -> None:
    if argument.lower() not in ("on", "off", ""):
        shell.complain(".timer on or .timer off")
        return
    shell.timer = argument.lower() == "on" if argument else not shell.timer


def _maxrows(shell: Shell, argument: str) -> None:
    shell.rows_max = _number(shell, "maxrows", argument, shell.rows_max)


def _maxwidth(shell: Shell, argument: str) -> None:
    shell.width_max = _number(shell, "maxwidth", argument, shell.width_max)


def _number(shell: Shell, name: str, argument: str, present: int) -> int:
    """The number given, or the present one: shown when none is given, kept when it is wrong."""
    if not argument:
        shell.say(f"{name}: {present}")
    elif not argument.isdecimal():
        shell.complain(f".{name} takes a number, 0 for no limit.")
    else:
        return int(argument)
    return present


def _read(shell: Shell, argument: str) -> None:
    if not argument:
        shell.complain(".read FILE")
        return
    file = Path(argument.strip("'\"")).expanduser()
    run_script(shell, read_script(file), file)


def read_script(file: Path) -> str:
    """The text of a script; LakeError when there is none, or it is not UTF-8."""
    try:
        data = file.read_bytes()
    except FileNotFoundError as error:
        raise LakeError(f"{file}: no such file.") from error
    except IsADirectoryError as error:
        raise LakeError(f"{file} is a folder, not a script.") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise LakeError(
            f"{file}: line {line}: byte 0x{data[error.start]:02x} is not UTF-8; save the script as UTF-8."
        ) from error


def run_script(shell: Shell, text: str, file: Path | None = None) -> bool:
    """Run statements and dot commands up to the first error; whether all went well."""
    for line, piece in _inputs(text):
        run_input(shell, piece, Place(file, line))
        if shell.failed:
            return False
        if not shell.running:
            break
    return True


def _inputs(text: str) -> Iterator[tuple[int, str]]:
    """A script with dot commands as the inputs someone would type, with the lines they begin in."""
    waiting, first = "", 1
    for number, line in enumerate(re.findall(r"[^\n]*\n|[^\n]+", text), 1):
        if not waiting.strip() and line.lstrip().startswith("."):
            yield number, line.strip()
            waiting, first = "", number + 1
            continue
        waiting += line
        if is_complete(waiting):
            if waiting.strip():
                yield first, waiting
            waiting, first = "", number + 1
    if waiting.strip():
        yield first, waiting


def _output(shell: Shell, argument: str) -> None:
    if shell.file is not None:
        shell.file.close()
        shell.file = None
    if argument and argument.lower() != "stdout":
        shell.file = Path(argument.strip("'\"")).expanduser().open("w", encoding="utf-8")


def _help(shell: Shell, argument: str) -> None:
    del argument
    width = max(len(text) for text, _ in COMMANDS.values())
    for name, (usage, _) in COMMANDS.items():
        if name not in ("exit",):
            shell.say(f"{usage:<{width}}  {_HELP[name]}")


def _quit(shell: Shell, argument: str) -> None:
    del argument
    shell.running = False


COMMANDS: dict[str, tuple[str, Callable[[Shell, str], None]]] = {
    "tables": (".tables [TEXT]", _tables),
    "schema": (".schema [TABLE]", _schema),
    "mode": (".mode [FORMAT]", _mode),
    "maxrows": (".maxrows [N]", _maxrows),
    "maxwidth": (".maxwidth [N]", _maxwidth),
    "timer": (".timer on|off", _timer),
    "read": (".read FILE", _read),
    "output": (".output [FILE]", _output),
    "help": (".help", _help),
    "quit": (".quit", _quit),
    "exit": (".exit", _quit),
}
_HELP = {
    "tables": "list tables and views whose name holds TEXT",
    "schema": "columns of a Hudi table, or of all",
    "mode": f"how results look: {', '.join(render.FORMATS)}",
    "maxrows": f"how many rows a table shows, 0 for all; {render.ROWS_MAX} at first",
    "maxwidth": "how wide a table is, 0 for the width of the terminal",
    "timer": "show how long statements take",
    "read": "run a script",
    "output": "write results to FILE, without FILE to the screen again",
    "help": "this list; statements end with a semicolon",
    "quit": "leave, as Ctrl-D does",
}


def finish(shell: Shell) -> None:
    """Write what is still to be written to a file of .output."""
    _output(shell, "")


def batch(shell: Shell, text: str, file: Path | None = None) -> bool:
    """Run a script with dot commands up to its first error; whether all went well."""
    try:
        return run_script(shell, text, file)
    finally:
        finish(shell)


def new_shell(con: Connection, mode: str = "table", rows_max: int = render.ROWS_MAX) -> Shell:
    """A shell on standard output and error; on a terminal ingestions show how they go on, where the extra [cli] is."""
    if sys.stderr.isatty() and find_spec("rich"):
        from rich.console import Console

        from lakesql.ingest.progress import Bar

        con.show_progress(lambda: Bar(Console(file=sys.stderr)))
    return Shell(con, sys.stdout, sys.stderr, mode, rows_max)
