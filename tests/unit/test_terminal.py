"""The shell in a terminal, driven as a person drives it, beside the stock DuckDB shell where both have the same habits."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pexpect
import pytest

import lakesql

ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[a-zA-Z]|[=>]|\][^\x07]*\x07)")
STATEMENTS = [
    "SELECT 1 AS a, 'x' AS name, 2.5::DOUBLE AS d, NULL AS n;",
    "FROM range(100) t(n);",
    "FROM range(7) t(n);",
    "SELECT 'a' AS x WHERE false;",
    "SELECT [1, 2] AS l, {'a': 1} AS s, DATE '2020-01-01' AS d, 1.50::DECIMAL(9, 2) AS p, true AS b, 'ÄÖ' AS u, 1::UTINYINT AS i;",
    "SELECT 'two\nlines' AS t;",
]


@contextmanager
def started(command: list[str], folder: Path) -> Iterator[pexpect.spawn]:
    outer = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}  # the runner's
    environment = {
        **outer,
        "HOME": str(folder),
        "TERM": "xterm",
        "PYTHONPATH": str(Path(lakesql.__file__).parents[1]),
        "PROMPT_TOOLKIT_NO_CPR": "1",
    }
    shell = pexpect.spawn(
        command[0], command[1:], cwd=str(folder), env=environment, encoding="utf-8", timeout=20, dimensions=(50, 120)
    )
    try:
        yield shell
    finally:
        shell.close(force=True)


def ours(folder: Path, *arguments: str):
    return started([sys.executable, "-m", "lakesql", *arguments], folder)


def boxes(shell: pexpect.spawn, statements: list[str]) -> list[str]:
    """The lines of tables on the screen, and those under them, after the statements."""
    found = []
    for number, statement in enumerate(statements):  # what is typed ahead of a busy shell lands in its results
        shell.sendline(statement)
        shell.sendline(f"SELECT 'the ' || 'end' || {number} AS done;")
        shell.expect(f"the end{number}")
        screen = ESCAPES.sub("", shell.before).replace("\r", "\n").split("\n")
        found += [
            line.strip()
            for line in screen
            if line[:1] in ("┌", "│", "├", "└") or re.match(r" +\(?\d+ (rows|shown)", line)
        ]
    return found


def test_tables_look_as_those_of_the_duckdb_shell(tmp_path):
    stock = Path(sys.executable).with_name("duckdb")
    assert stock.exists(), f"{stock}: the DuckDB shell is missing; install lakesql[test]"
    screens = []
    with started([str(stock), "-init", os.devnull], tmp_path) as shell:
        shell.expect("D ")
        screens.append(boxes(shell, STATEMENTS))
    with ours(tmp_path) as shell:
        shell.expect("lakesql>")
        screens.append(boxes(shell, STATEMENTS))
    assert len(screens[0]) > 60
    assert screens[0] == screens[1]


def test_ctrl_c_stops_a_statement_which_leaves_nothing_and_the_shell_goes_on(tmp_path):
    with ours(tmp_path) as shell:
        shell.expect("lakesql>")
        shell.sendline("CREATE TABLE t (id BIGINT, n HUGEINT) USING hudi TBLPROPERTIES (primaryKey = 'id');")
        shell.expect("is not supported|Error")  # HUGEINT; the shell goes on
        shell.sendline("CREATE TABLE t (id BIGINT, n DOUBLE) USING hudi TBLPROPERTIES (primaryKey = 'id');")
        shell.expect("Created table t")
        shell.sendline(
            "INSERT INTO t SELECT a.range % 7, sum(b.range) FROM range(100000000) a, range(1000) b GROUP BY ALL;"
        )
        shell.expect("Ctrl-C stops it")
        shell.sendintr()
        shell.expect("Interrupted")
        shell.sendline("SELECT 'rows: ' || count(*) AS n FROM t;")
        shell.expect("rows: 0")
        shell.sendline(".exit 3")
        shell.expect(pexpect.EOF)
        shell.wait()
        assert shell.exitstatus == 3
    with lakesql.connect(warehouse=str(tmp_path / "warehouse")) as con:
        assert con.execute("FROM hudi_timeline('t')").fetchall() == []


def test_lines_completion_history_and_the_start_file(tmp_path):
    (tmp_path / ".lakesqlrc").write_text(".print started\n.mode list\n.headers off\n")
    with ours(tmp_path) as shell:
        shell.expect("started")
        shell.expect("lakesql>")
        shell.sendline("SELECT 'a' ||")
        shell.expect("> ")
        shell.sendline("'b' || 'c';")
        shell.expect("abc\r\n")
        shell.sendline("CREATE TABLE journeys (id INT) USING hudi;")
        shell.expect("Created table")
        shell.send("SELECT 'n=' || count(*) FROM journ\t")
        shell.expect("journeys")
        shell.sendline(";")
        shell.expect("n=0")
        shell.send("\x1b[A\r")  # up: the statement before
        shell.expect("n=0")
        shell.sendline("SELECT nope;")
        shell.expect('Error: Binder Error: Referenced column "nope"')
        shell.send("\x04")
        shell.expect(pexpect.EOF)
        shell.wait()
        assert shell.exitstatus == 0


@pytest.mark.parametrize(("arguments", "code"), [(("-c", "SELECT 1"), 0), (("-c", "SELECT nope"), 1)])
def test_command_on_a_terminal_ends_by_itself(tmp_path, arguments, code):
    with ours(tmp_path, *arguments) as shell:
        shell.expect(pexpect.EOF)
        shell.wait()
        assert shell.exitstatus == code
