"""The interactive shell: statements end with a semicolon and may take several lines, commands begin with a dot.

`Shell` is the state of a session (connection, output format, timer, where output goes); everything it does is a
function of a line of input and can be run without a terminal. Prompt, history and completion: `terminal`.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import TextIO

import duckdb

from lakesql.errors import LakeError
from lakesql.interrupt import interruptible
from lakesql.sql import render, script
from lakesql.sql.connection import Connection, connect
from lakesql.sql.lexer import is_complete


def _nothing(con: Connection, text: str) -> AbstractContextManager[None]:
    del con, text
    return nullcontext()


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
    once: bool = False
    """Whether `file` takes the next result alone."""
    headers: bool = True
    null: str | None = None
    """What stands for NULL, None: what the format has for it."""
    echo: bool = False
    bail: bool = True
    """Whether a script stops at its first error."""
    code: int = 0
    """Exit code that `.exit` asked for."""
    reading: list[Path] = field(default_factory=list)
    """The scripts being read, one by the other."""
    waiting: Callable[[Connection, str], AbstractContextManager[None]] = _nothing
    """What a person sees while a statement runs."""

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


def bare(text: str) -> bool:
    """Whether an input is the word by which people leave or ask for help in other shells."""
    return text.strip().rstrip(";").lower() in ("exit", "quit", "help")


def run_input(shell: Shell, text: str, place: Place = Place()) -> None:
    """Run what was typed: a dot command, or statements up to their semicolon. Errors are written, not raised.

    KeyboardInterrupt is written too by an interactive shell, which goes on, and raised by others.
    """
    shell.failed = False
    if shell.echo:
        shell.say(text.strip())
    try:
        if bare(text):
            text = f".{text.strip().rstrip(';').lower()}"
        if text.lstrip().startswith("."):
            _command(shell, text.strip(), place)
            return
        with interruptible(shell.con.duckdb):
            _statements(shell, text, place)
        if shell.once:
            _output(shell, "")
    except KeyboardInterrupt:
        shell.failed = True
        if not shell.interactive:
            raise
        print("Interrupted", file=shell.err)


def _statements(shell: Shell, text: str, place: Place) -> None:
    started, before = time.perf_counter(), os.times()
    limited = shell.mode == "table" and shell.file is None
    results = script.run(shell.con, text, shell.mode, shell.rows_max or None if limited else None)
    try:
        while True:
            with shell.waiting(shell.con, text):
                result = next(results, None)
            if result is None:
                break
            if result.columns or result.written:
                shell.say(
                    script.shown(result, shell.mode, _width(shell) if limited else None, shell.null, shell.headers)
                )
            if result.note:
                print(f"Note: {result.note}", file=shell.err)
    except script.ScriptError as error:
        shell.complain(str(error), place.at(error.line, text))
    if shell.timer:
        real, after = time.perf_counter() - started, os.times()
        user, system = after.user - before.user, after.system - before.system
        shell.say(f"Run Time (s): real {real:.3f} user {user:.6f} sys {system:.6f}")
        if (asked := shell.con.last_requests).total:
            shell.say(f"Requests: {asked}")


def _width(shell: Shell) -> int | None:
    """How wide a table may be, None for any width."""
    if shell.width_max:
        return shell.width_max
    return shutil.get_terminal_size().columns if shell.out.isatty() else None


# ---------------------------------------------------------------- dot commands


def _command(shell: Shell, text: str, place: Place) -> None:
    name, _, argument = text[1:].partition(" ")
    found = [n for n in COMMANDS if n == name.lower()] or [n for n in COMMANDS if name and n.startswith(name.lower())]
    if len(found) != 1:
        near = found or get_close_matches(name.lower(), COMMANDS, 1)
        meant = f" Did you mean {' or '.join('.' + n for n in near)}?" if near else ""
        shell.complain(f".{name} is unknown; .help lists the commands.{meant}", place.at(1, text))
        return
    try:
        COMMANDS[found[0]][1](shell, argument.strip().rstrip(";").strip())
    except (LakeError, duckdb.Error, OSError) as error:
        shell.complain(script.error_text(error), place.at(1, text))
    except RuntimeError as error:  # of expanduser
        shell.complain(str(error), place.at(1, text))


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
    known = shell.con.tables
    names = [n for n in known if not argument or n.lower() == argument.lower()]
    for name in names:
        columns = shell.con.duckdb.execute("FROM hudi_schema($1)", [name]).fetchall()
        shell.say(f"{name}:")
        for column, kind, nullable, key, partition, ordering in columns:
            marks = [m for m, on in (("record key", key), ("partition", partition), ("ordering", ordering)) if on]
            marks += [] if nullable else ["not null"]
            shell.say(f"  {column} {kind}" + (f"  ({', '.join(marks)})" if marks else ""))
    others = shell.con.duckdb.execute(
        "SELECT table_name, sql FROM duckdb_tables() WHERE NOT internal UNION ALL "
        "SELECT view_name, sql FROM duckdb_views() WHERE NOT internal ORDER BY 1"
    ).fetchall()
    for name, sql in others:
        if (name.lower() == argument.lower() and name not in names) or (not argument and "hudi_" not in sql):
            names.append(name)
            shell.say(sql.strip())
    if argument and not names:
        shell.complain(f"{argument} is no table or view of this connection; .tables lists them.")


def _databases(shell: Shell, argument: str) -> None:
    del argument
    rows = shell.con.duckdb.execute(
        "SELECT database_name, coalesce(path, 'in memory'), CASE WHEN readonly THEN 'r/o' ELSE 'r/w' END "
        "FROM duckdb_databases() WHERE NOT internal ORDER BY 1"
    ).fetchall()
    shell.say("\n".join(f"{name}: {path} {how}" for name, path, how in rows))
    shell.say(f"Hudi tables: {shell.con.warehouse}")


def _mode(shell: Shell, argument: str) -> None:
    mode = _OTHER_NAMES.get(argument.lower(), argument.lower())
    if not argument:
        shell.say(f"mode: {shell.mode}")
    elif mode not in render.FORMATS:
        shell.complain(f"mode {argument} is unknown; use {', '.join(render.FORMATS)}.")
    else:
        shell.mode = mode


def _switch(name: str) -> Callable[[Shell, str], None]:
    """A command that turns something on or off, or without an argument round."""

    def turn(shell: Shell, argument: str) -> None:
        if argument.lower() not in ("on", "off", ""):
            shell.complain(f".{name} on or .{name} off")
            return
        setattr(shell, name, argument.lower() == "on" if argument else not getattr(shell, name))

    return turn


def _nullvalue(shell: Shell, argument: str) -> None:
    shell.null = argument.strip("'\"") if argument else None


def _print(shell: Shell, argument: str) -> None:
    shell.say(argument.strip("'\""))


def _show(shell: Shell, argument: str) -> None:
    del argument
    on = {True: "on", False: "off"}
    rows = {
        "bail": on[shell.bail],
        "echo": on[shell.echo],
        "headers": on[shell.headers],
        "maxrows": str(shell.rows_max),
        "maxwidth": str(shell.width_max),
        "mode": shell.mode,
        "nullvalue": "as the mode has it" if shell.null is None else f'"{shell.null}"',
        "output": "stdout" if shell.file is None else shell.file.name,
        "timer": on[shell.timer],
        "warehouse": shell.con.warehouse,
    }
    shell.say("\n".join(f"{name:>12}: {value}" for name, value in rows.items()))


def _open(shell: Shell, argument: str) -> None:
    warehouse, old = shell.con.warehouse, shell.con
    shell.con = connect(argument.strip("'\"") or ":memory:", warehouse=warehouse, read_only=old.read_only)
    old.close()


def _cd(shell: Shell, argument: str) -> None:
    if not argument:
        shell.complain(".cd FOLDER")
        return
    os.chdir(Path(argument.strip("'\"")).expanduser())


def _system(shell: Shell, argument: str) -> None:
    shell.failed = subprocess.run(argument, shell=True, check=False).returncode != 0  # the person's own shell


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
    if file.resolve() in shell.reading:
        raise LakeError(f"{file} reads itself.")
    shell.reading.append(file.resolve())
    try:
        run_script(shell, read_script(file), file)
    finally:
        shell.reading.pop()


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
    """Run statements and dot commands up to the first error, or with .bail off to the end; whether all went well."""
    well = True
    for line, piece in _inputs(text):
        run_input(shell, piece, Place(file, line))
        well = well and not shell.failed
        if not shell.running or (shell.bail and not well):
            break
    return well


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
    shell.once = False
    if shell.file is not None:
        shell.file.close()
        shell.file = None
    if argument and argument.lower() != "stdout":
        shell.file = Path(argument.strip("'\"")).expanduser().open("w", encoding="utf-8")


def _once(shell: Shell, argument: str) -> None:
    if not argument:
        shell.complain(".once FILE")
        return
    _output(shell, argument)
    shell.once = True


def _help(shell: Shell, argument: str) -> None:
    width = max(len(usage) for usage, _, _ in COMMANDS.values())
    lines = [f"{usage:<{width}}  {text}" for name, (usage, _, text) in COMMANDS.items() if name != "exit"]
    shell.say("\n".join(line for line in lines if argument.lower().lstrip(".") in line.lower()) or "Nothing found.")


def _quit(shell: Shell, argument: str) -> None:
    shell.running = False
    shell.code = int(argument) if argument.isdecimal() else 0


_OTHER_NAMES = {"duckbox": "table", "box": "table"}
COMMANDS: dict[str, tuple[str, Callable[[Shell, str], None], str]] = {
    "bail": (".bail on|off", _switch("bail"), "whether a script stops at its first error; on at first"),
    "cd": (".cd FOLDER", _cd, "go to another folder"),
    "databases": (".databases", _databases, "databases attached, and the folder of the Hudi tables"),
    "echo": (".echo on|off", _switch("echo"), "write each statement before its result"),
    "headers": (".headers on|off", _switch("headers"), "the line of names in csv and list"),
    "help": (".help [TEXT]", _help, "this list, or its lines with TEXT; statements end with a semicolon"),
    "maxrows": (".maxrows [N]", _maxrows, f"how many rows a table shows, 0 for all; {render.ROWS_MAX} at first"),
    "maxwidth": (".maxwidth [N]", _maxwidth, "how wide a table is, 0 for the width of the terminal"),
    "mode": (".mode [FORMAT]", _mode, f"how results look: {', '.join(render.FORMATS)}"),
    "nullvalue": (".nullvalue [TEXT]", _nullvalue, "what stands for NULL; without TEXT what the mode has for it"),
    "once": (".once FILE", _once, "write the next result to FILE"),
    "open": (".open [DATABASE]", _open, "close the database and open another, without a name one in memory"),
    "output": (".output [FILE]", _output, "write results to FILE, without FILE to the screen again"),
    "print": (".print TEXT", _print, "write TEXT"),
    "quit": (".quit", _quit, "leave, as Ctrl-D and .exit [CODE] do"),
    "exit": (".exit [CODE]", _quit, ""),
    "read": (".read FILE", _read, "run a script"),
    "schema": (".schema [TABLE]", _schema, "columns of a Hudi table, the SQL of another; or of all"),
    "shell": (".shell COMMAND", _system, "run a command of the system"),
    "show": (".show", _show, "what is set"),
    "tables": (".tables [TEXT]", _tables, "list tables and views whose name holds TEXT"),
    "timer": (".timer on|off", _switch("timer"), "show how long statements take"),
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
        from lakesql.waiting import waiting

        con.show_progress(lambda: Bar(Console(file=sys.stderr)))
        return Shell(con, sys.stdout, sys.stderr, mode, rows_max, waiting=waiting)
    return Shell(con, sys.stdout, sys.stderr, mode, rows_max)
