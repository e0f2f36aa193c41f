"""docs/jupyter.md: its cells run in order and print what the text says; it names every option there is."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from lakesql.notebook import options
from lakesql.notebook.grid import PLAIN_ROWS, ROWS
from lakesql.notebook.magic import LakeMagics

PAGE = (Path(__file__).parents[2] / "docs" / "jupyter.md").read_text()
CELLS = re.findall(r"```(python|text)\n(.*?)```", PAGE, re.S)


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    config = Config()
    config.HistoryManager.enabled = False
    InteractiveShell.clear_instance()
    yield InteractiveShell.instance(config=config)
    InteractiveShell.clear_instance()


def test_cells_print_what_the_page_says(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
    printed, checked = "", 0
    for kind, body in CELLS:
        if kind == "text":
            assert printed == body
            checked += 1
            continue
        capsys.readouterr()
        shell.displayhook.flush()
        shell.run_cell(body, silent=True).raise_error()
        printed = capsys.readouterr().out
    assert checked == 3


def test_options_and_limits_are_those_of_the_page() -> None:
    assert [name for name in options.NAMES if f"`--{name}" not in PAGE] == []
    assert f"Up to {PLAIN_ROWS} rows" in PAGE
    assert f"first {ROWS:,} rows" in PAGE
    assert [name for name in LakeMagics.class_traits(config=True) if f"LakeMagics.{name}" not in PAGE] == []
