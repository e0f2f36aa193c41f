"""docs/services/cleaning.md: its example runs and gives the text that follows it, and it names every setting."""

import contextlib
import io
import re
from pathlib import Path

import pytest

from lakesql.services import archiving, clean_settings

TEXT = (Path(__file__).parents[2] / "docs" / "services" / "cleaning.md").read_text()


def test_the_example_gives_what_the_text_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, text = re.findall(r"```(?:python|text)\n(.*?)```", TEXT, re.S)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, {"__name__": "example"})
    assert out.getvalue() == text


@pytest.mark.parametrize("name", [*clean_settings.SETTINGS, *archiving.SETTINGS])
def test_every_setting_is_explained(name: str) -> None:
    assert f"`{name}`" in TEXT
