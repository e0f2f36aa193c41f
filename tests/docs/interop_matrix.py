"""What the interop tests ask of which release, from their names, parameters and marks, and what their last run answered,
from `tests/interop/results.json`; no test runs here.

`python -m tests.docs.interop_matrix` prints the part of docs/interop.md that is made of it.
"""

import ast
import contextlib
import io
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.docs.generated import table
from tests.interop import results

FOLDER = Path(__file__).parents[1] / "interop"
RELEASES = ("1.2.0", "1.0.2", "0.15.0")
_NOT_RUN = "not run"
_RESULTS = results.known()
_NAMES = {"cow": "CoW", "mor": "MoR"}


class Collected:
    """A plugin that keeps every item, those too that a missing tool deselects."""

    def __init__(self) -> None:
        self.items: list[pytest.Item] = []

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        self.items.append(item)


def collected() -> list[pytest.Item]:
    """The tests of the folder. For a process of its own: pytest is not made to run within pytest."""
    plugin = Collected()
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main(["--collect-only", "-q", str(FOLDER)], [plugin])
    return plugin.items


def matrix(items: Iterable[pytest.Item]) -> str:
    """A section for each file: a row per test, a column per release that some test of the file asks."""
    by_file: dict[Path, dict[str, list[pytest.Item]]] = {}
    for item in items:
        by_file.setdefault(item.path, {}).setdefault(item.originalname, []).append(item)
    parts = []
    for path, tests in sorted(by_file.items(), key=lambda entry: entry[0].name):
        doc = " ".join((ast.get_docstring(ast.parse(path.read_text())) or "").split("\n\n")[0].split())
        mine = [item for cases in tests.values() for item in cases]
        columns = [r for r in (*RELEASES, "hudi-rs", "Kafka") if any(r in asked(i) for i in mine)]
        heads = [f"Hudi {c}" if c in RELEASES else c for c in columns]
        rows = [(sentence(name, cases), *(cell(cases, c) for c in columns)) for name, cases in tests.items()]
        parts.append(
            f"### {path.stem.removeprefix('test_').replace('_', ' ')}\n\n{doc}\n\n{ran(mine)}\n\n{table(('test', *heads), rows)}"
        )
    return "\n".join(parts)


def asked(item: pytest.Item) -> set[str]:
    """The releases and tools that a test needs."""
    from tests.interop.conftest import release_of

    found = {release_of(item)} - {None}
    if item.get_closest_marker("kafka"):
        found.add("Kafka")
    if "hudi_rs" in item.originalname:
        found.add("hudi-rs")
    return found


def sentence(name: str, cases: list[pytest.Item]) -> str:
    """The name of a test as it is meant to be read, and a gap that it knows."""
    gap = cases[0].get_closest_marker("xfail")
    reason = f" (known gap: {gap.kwargs['reason'].rstrip('.')})" if gap else ""
    return name.removeprefix("test_").replace("_", " ").replace("hudi rs", "hudi-rs") + reason


def cell(cases: list[pytest.Item], column: str) -> str:
    """Table types and versions that a test names for a release, and how many cases it has there."""
    mine = [case for case in cases if column in asked(case)]
    if not mine:
        return ""
    given = [dict(case.callspec.params) if hasattr(case, "callspec") else {} for case in mine]
    kinds = [p.get("kind") for p in given]
    types = {p.get("type_") for p in given} | {getattr(k, "type", k) for k in kinds}
    versions = {p.get("version") for p in given} | {getattr(k, "version", None) for k in kinds}
    shown = [", ".join(_NAMES[t] for t in _NAMES if t in types), ", ".join(f"v{v}" for v in (9, 8, 6) if v in versions)]
    count = f"{len(mine)} cases" if len(mine) > 1 else ""
    said = [answer(case)[0] for case in mine]
    wrong = [s for s in said if s not in (results.PASSED, results.GAP, _NOT_RUN)]
    state = f"{len(wrong)} failed" if wrong else _NOT_RUN if _NOT_RUN in said else "gap" if results.GAP in said else "✓"
    return " · ".join(s for s in (state, *shown, count) if s)


def answer(case: pytest.Item) -> tuple[str, str]:
    """What the last run said of a case, and when."""
    name = case.nodeid.partition("tests/interop/")[2].partition("@")[0]
    said, date = _RESULTS["tests"].get(name, (_NOT_RUN, ""))
    return said, date


def ran(cases: list[pytest.Item]) -> str:
    """When the cases of a file ran, and how many passed."""
    answers = [answer(case) for case in cases]
    dates = sorted({date for _, date in answers if date})
    if not dates:
        return "Not run since results are kept."
    counts = Counter(said for said, _ in answers)
    told = ", ".join(f"{number} {said}" for said, number in sorted(counts.items(), key=lambda c: -c[1]))
    return f"Run on {' and '.join((dates[0], dates[-1]) if len(dates) > 1 else dates)}: {told}."


def versions() -> str:
    """With what each run was made."""
    return "\n".join(
        f"- {date}: {', '.join(f'{name} {number}' for name, number in found.items())}"
        for date, found in sorted(_RESULTS["runs"].items())
    )


if __name__ == "__main__":
    found = matrix(collected())
    sys.stdout.write(f"{versions()}\n\n{found}")
