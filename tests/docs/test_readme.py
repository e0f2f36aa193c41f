"""The README's Python blocks run in order and print the text block that follows; its tables name everything there is."""

import contextlib
import io
import re
from pathlib import Path

import pytest

import lakesql
from lakesql.sql import functions

README = (Path(__file__).parents[2] / "README.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, re.S)


def test_python_blocks_print_what_the_readme_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    printed = ""
    checked = 0
    for language, body in BLOCKS:
        if language == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(body, scope)
            printed = out.getvalue()
        elif language == "text":
            assert printed == body
            checked += 1
    assert checked == 2


@pytest.mark.parametrize("name", sorted(functions.TABLE_FUNCTIONS))
def test_table_function_is_in_the_readme(name: str) -> None:
    assert f"`{name}" in README


@pytest.mark.parametrize("name", lakesql.__all__)
def test_public_name_has_a_docstring(name: str) -> None:
    assert getattr(lakesql, name).__doc__


def test_public_names_are_sorted() -> None:
    assert lakesql.__all__ == sorted(lakesql.__all__)
