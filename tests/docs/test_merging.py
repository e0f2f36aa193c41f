"""docs/merging.md names every merge rule, and its example runs and gives the text that follows it."""

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakesql.table import mergers
from lakesql.table.merge import PARTIAL_MODES, PAYLOADS, RULES

TEXT = (Path(__file__).parents[2] / "docs" / "merging.md").read_text()


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    mergers._registered.pop("balance", None)


def test_example_of_a_merger_gives_what_the_text_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given: list[str] = []
    for language, body in re.findall(r"```(\w+)\n(.*?)```", TEXT, re.S):
        if language == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(body, {"__name__": "example"})
            given.append(out.getvalue())
        else:
            assert given.pop() == body
    assert given == []


@pytest.mark.parametrize("rule", [*RULES, *PAYLOADS])
def test_rule_has_a_row_that_says_what_it_does_in_each_place(rule: str) -> None:
    (row,) = re.findall(rf"^\| `{rule}`.*$", TEXT, re.M)
    assert row.count("|") == 6


@pytest.mark.parametrize("mode", PARTIAL_MODES)
def test_partial_update_mode_is_explained(mode: str) -> None:
    assert f"`{mode}`" in TEXT
