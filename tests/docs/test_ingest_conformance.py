"""`docs/ingest/conformance.md`: every requirement has a test, and the page is what the list says."""

import ast
from pathlib import Path

import pytest

from tests.docs.requirements import REQUIREMENTS, page

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "ingest" / "conformance.md"


def test_every_requirement_is_there() -> None:
    assert [name for name in REQUIREMENTS if name.startswith("R")] == [f"R{n}" for n in range(1, 49)]


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_the_tests_of_a_requirement_exist(name: str) -> None:
    _, tests = REQUIREMENTS[name]
    assert tests
    for test in tests:
        path, _, function = test.partition("::")
        tree = ast.parse((ROOT / path).read_text())
        assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, test


def test_the_page_is_what_the_list_says(regold: bool) -> None:
    if regold:
        PAGE.write_text(page())
    assert PAGE.read_text() == page()
