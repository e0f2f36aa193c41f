"""A shell of IPython in this process, with a notebook's names and no history, and the extension loaded."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

Run = Callable[[str], Any]


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    config = Config()
    config.HistoryManager.enabled = False
    config.LakeMagics.interactive = False
    InteractiveShell.clear_instance()
    made = InteractiveShell.instance(config=config)
    made.extension_manager.load_extension("lakesql")
    yield made
    if "lakesql" in made.extension_manager.loaded:
        made.extension_manager.unload_extension("lakesql")
    InteractiveShell.clear_instance()


@pytest.fixture
def cell(shell: InteractiveShell) -> Run:
    """Runs a cell that must go well; its value."""

    def run(text: str) -> Any:
        done = shell.run_cell(text)
        done.raise_error()
        return done.result

    return run


@pytest.fixture
def fails(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> Callable[[str], tuple[BaseException, str]]:
    """Runs a cell that must fail; the error and what was printed about it."""

    def run(text: str) -> tuple[BaseException, str]:
        capsys.readouterr()
        done = shell.run_cell(text)
        assert done.error_in_exec is not None
        return done.error_in_exec, capsys.readouterr().out

    return run
