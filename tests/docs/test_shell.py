"""docs/shell.md: its Python makes a table, and its SQL in the stock DuckDB shell gives the text that follows it."""

import re
from pathlib import Path

import pytest

from tests.duckdb_shell import MACROS, run

TEXT = (Path(__file__).parents[2] / "docs" / "shell.md").read_text()


def test_examples_give_what_the_text_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    wanted, script = "", ".mode list\n.separator '  '\n.headers off\n"
    for language, body in re.findall(r"```(\w+)\n(.*?)```", TEXT, re.S):
        if language == "python":
            exec(body, {})
        elif language == "sql":
            script += body
        elif language == "text":
            wanted += body
        else:
            assert body == "duckdb -init sql/hudi.sql\n"
    done = run(script, tmp_path)
    assert "Error" not in done.stderr
    assert done.stdout == wanted


def test_macros_are_those_that_the_text_and_the_head_of_the_file_name() -> None:
    text = MACROS.read_text()
    made = set(re.findall(r"MACRO (hudi_[a-z]\w*)\(", text))
    rows = re.findall(r"^\| (`hudi_.*?) \|", TEXT, re.M)
    head = re.findall(r"^--     (hudi_.*)$", text.split("\n\n\n")[0], re.M)
    assert made
    assert {name for row in rows for name in re.findall(r"(hudi_\w+)\(", row)} == made
    assert {name for line in head for name in re.findall(r"(hudi_\w+)\(", line)} == made
