"""docs/shell.md: its Python makes a table, and its SQL in the stock DuckDB shell gives the text that follows it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from lakesql.shell import COMMANDS
from lakesql.sql.render import FORMATS
from tests.duckdb_shell import MACROS, run

TEXT = (Path(__file__).parents[2] / "docs" / "shell.md").read_text()


def test_examples_give_what_the_text_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    wanted, script = "", ".mode list\n.separator '  '\n.headers off\n"
    typed = screen = ""
    for language, body in re.findall(r"```(\w+)\n(.*?)```", TEXT, re.S):
        if language == "python":
            exec(body, {})
        elif language == "sql":
            script += body
        elif language == "text":
            wanted += body
        elif language == "lakesql":
            typed += body
        elif language == "screen":
            screen += body
        else:
            assert body == "duckdb -init sql/hudi.sql\n"
    done = run(script, tmp_path)
    assert "Error" not in done.stderr
    assert done.stdout == wanted
    ours = subprocess.run(
        [sys.executable, "-m", "lakesql", "--warehouse", "lake"],
        input=typed,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ours.stdout == screen


def test_commands_and_formats_are_those_of_the_shell() -> None:
    table = TEXT[TEXT.index("| command | |") :]
    assert set(re.findall(r"`\.(\w+)", table.split("\n\n")[0])) == set(COMMANDS)
    row = next(line for line in table.split("\n") if line.startswith("| `.mode"))
    assert re.findall(r"`(\w+)`", row) == [*FORMATS]


def test_macros_are_those_that_the_text_and_the_head_of_the_file_name() -> None:
    text = MACROS.read_text()
    made = set(re.findall(r"MACRO (hudi_[a-z]\w*)\(", text))
    rows = re.findall(r"^\| (`hudi_.*?) \|", TEXT, re.M)
    head = re.findall(r"^--     (hudi_.*)$", text.split("\n\n\n")[0], re.M)
    assert made
    assert {name for row in rows for name in re.findall(r"(hudi_\w+)\(", row)} == made
    assert {name for line in head for name in re.findall(r"(hudi_\w+)\(", line)} == made
