"""The README and the pages of the documents run from top to bottom, name only files that are there, and none is left out.

To add a page: nothing, it is found. A page that needs more than `blocks` gives it (another program, a broker of its own)
has a test that names it, and stands in APART.
"""

import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.blocks import BROKER, DOCS, blocks, run_page
from tests.kafka.mock import MockCluster

ROOT = DOCS.parent
README = ROOT / "README.md"
INDEX = DOCS / "index.md"
APART = {
    "shell.md": "test_shell.py",
    "ingest/README.md": "test_ingest.py",
}
"""Page -> the test that runs it instead."""

PAGES = [README, *sorted(DOCS.rglob("*.md"))]
_FENCED = re.compile(r"^```.*?^```$", re.M | re.S)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT if page == README else DOCS))


@cache
def all_tests() -> str:
    """The text of every test there is."""
    return "\n".join(test.read_text() for test in (ROOT / "tests").rglob("test_*.py"))


def is_apart(page: Path) -> bool:
    """Whether a test of its own runs the page: it stands in APART, or a test opens it by its name."""
    if page == README or page.parent.name == "reference":
        return False
    return name_of(page) in APART or re.search(rf"""["/]{re.escape(page.name)}["']""", all_tests()) is not None


RUN = [page for page in PAGES if blocks(page.read_text()) and not is_apart(page)]


@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_page_gives_what_it_says(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    if BROKER in text:
        cluster: MockCluster = request.getfixturevalue("mock_kafka")
        text = text.replace(BROKER, cluster.brokers)
    compared = run_page(text)
    assert compared == len(re.findall(r"^```text$", text, re.M))


def slugs(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site make them."""
    found: set[str] = set()
    for title in re.findall(r"^#+ (.+)$", _FENCED.sub("", text), re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "")
        found.add(re.sub(r"[^\w\- ]", "", plain.lower()).strip().replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_files_and_headings_that_are_there(page: Path) -> None:
    wrong = []
    for link in _LINK.findall(_FENCED.sub("", page.read_text())):
        if re.match(r"\w+://|mailto:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in slugs(target.read_text())):
            wrong.append(link)
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_that_a_page_names_are_there(page: Path) -> None:
    named = re.findall(r"`((?:lakesql|tests|sql|benchmarks)/[\w/.]+)`", page.read_text())
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_page_is_in_the_contents_of_the_site() -> None:
    listed = re.findall(
        r"^(?!:)[\w*/\[\]-]+$", "\n".join(re.findall(r"```{toctree}\n(.*?)```", INDEX.read_text(), re.S)), re.M
    )
    pages = [page.relative_to(DOCS).with_suffix("") for page in PAGES if page not in (README, INDEX)]
    assert [str(page) for page in pages if not any(page.match(entry) for entry in listed)] == []


@pytest.mark.parametrize("page", APART)
def test_page_run_apart_is_there_and_its_test_opens_it(page: str) -> None:
    assert (DOCS / page).exists()
    assert Path(page).name in (Path(__file__).parent / APART[page]).read_text()
