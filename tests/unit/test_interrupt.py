"""Ctrl-C on a terminal: a statement ends, the shell goes on, a command ends with exit code 130, a write leaves nothing."""

import contextlib
import os
import pty
import select
import signal
import sys
import time
from pathlib import Path

import pytest

import lakesql

LONG = "SELECT count(*) FROM range(100000000000) t(i) WHERE sqrt(i) = 7"
PROGRAM = "import sys; sys.argv[0] = 'lakesql'; from lakesql.cli import main; main()"
PATIENCE_S = 20


class Terminal:
    """The command on a terminal of its own."""

    def __init__(self, folder, *arguments):
        self.process, self.file = pty.fork()
        if self.process == 0:
            os.chdir(folder)
            os.environ |= {"HOME": str(folder), "TERM": "dumb", "PYTHONPATH": str(Path(lakesql.__file__).parents[1])}
            os.execv(sys.executable, [sys.executable, "-c", PROGRAM, *arguments])
        self.text = ""

    def expect(self, text):
        """Wait until it has written `text`; what it wrote up to there."""
        end = time.monotonic() + PATIENCE_S
        while text not in self.text:
            assert time.monotonic() < end, f"{text!r} is not in {self.text!r}"
            if select.select([self.file], [], [], 0.1)[0]:
                self.text += os.read(self.file, 65536).decode(errors="replace")
        before, _, self.text = self.text.partition(text)
        return before

    def type(self, text):
        os.write(self.file, text.encode())

    def exit_code(self):
        return os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])

    def close(self):
        if os.waitpid(self.process, os.WNOHANG)[0] == 0:
            os.kill(self.process, signal.SIGKILL)
            os.waitpid(self.process, 0)


@pytest.fixture
def terminal(tmp_path):
    opened = []

    def start(*arguments):
        opened.append(Terminal(tmp_path, *arguments))
        return opened[-1]

    yield start
    for one in opened:
        with contextlib.suppress(ChildProcessError):
            one.close()
        os.close(one.file)


def test_shell_goes_on_after_ctrl_c(terminal):
    shell = terminal()
    shell.expect("lakesql> ")
    shell.type(LONG + ";\r")
    time.sleep(0.5)
    shell.type("\x03")
    shell.expect("Interrupted")
    shell.expect("lakesql> ")
    shell.type("SELECT 41 + 1 AS answer;\r")
    assert "Traceback" not in shell.expect("42")
    shell.type(".quit\r")
    assert shell.exit_code() == 0


@pytest.mark.parametrize("arguments", [("-c", f"SELECT 'begun'; {LONG}"), ("run", "long.sql")], ids=["-c", "run"])
def test_command_ends_with_exit_code_130_after_ctrl_c(terminal, tmp_path, arguments):
    (tmp_path / "long.sql").write_text(f"SELECT 'begun';\n{LONG};\n")
    command = terminal(*arguments)
    command.expect("│ begun")
    time.sleep(0.3)
    command.type("\x03")
    assert "Traceback" not in command.expect("Interrupted")
    assert command.exit_code() == 130


def test_write_leaves_nothing_after_ctrl_c(terminal, tmp_path):
    with lakesql.connect(warehouse=str(tmp_path / "warehouse")) as con:
        con.sql("CREATE TABLE t (id BIGINT, v VARCHAR) USING hudi TBLPROPERTIES (primaryKey = 'id')")
        con.sql("INSERT INTO t VALUES (1, 'kept')")
    before = {p for p in (tmp_path / "warehouse").rglob("*") if p.is_file()}
    rows = "SELECT i, repeat('v', 100) || i FROM range(20000000) r(i)"
    command = terminal("-c", f"SELECT 'begun'; INSERT INTO t {rows}")
    command.expect("│ begun")
    timeline = tmp_path / "warehouse" / "t" / ".hoodie"
    time.sleep(0.5)
    command.type("\x03")
    command.expect("Interrupted")
    assert command.exit_code() == 130
    assert not [p for p in timeline.rglob("*.inflight") if p not in before]
    assert {p for p in (tmp_path / "warehouse").rglob("*") if p.is_file()} - before == set()
    with lakesql.connect(warehouse=str(tmp_path / "warehouse")) as con:
        assert con.execute("SELECT id, v FROM t").fetchall() == [(1, "kept")]
