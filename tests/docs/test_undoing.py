"""docs/services/undoing.md: its example gives what the text says, its table has every procedure."""

import contextlib
import io
import re
from pathlib import Path

import pytest

from lakesql.procedures import undoing

TEXT = (Path(__file__).parents[2] / "docs" / "services" / "undoing.md").read_text()


def test_example_gives_what_the_text_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", TEXT, re.S)
    (want,) = re.findall(r"```text\n(.*?)```", TEXT, re.S)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, {"__name__": "example"})
    assert out.getvalue() == want


@pytest.mark.parametrize("procedure", undoing.PROCEDURES, ids=lambda p: p.name)
def test_procedure_is_in_the_table_with_its_columns(procedure: undoing.Procedure) -> None:
    (row,) = re.findall(rf"^\| `{procedure.name}\(.*$", TEXT, re.M)
    names = [p.name for p in procedure.parameters]
    assert [n for n in names if n not in row] == []
    if procedure.name != "undo_last":
        assert [c for c in procedure.columns.names if c not in row] == []
