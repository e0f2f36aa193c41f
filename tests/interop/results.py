"""What the last run of each interop test answered: `results.json`, which docs/interop.md shows.

A run writes it when LAKESQL_INTEROP_RESULTS is set; tests that it does not run keep what an earlier one answered.
"""

import json
import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).with_name("results.json")
VARIABLE = "LAKESQL_INTEROP_RESULTS"
PASSED, GAP = "passed", "known gap"
_PACKAGES = ("lakesql", "duckdb", "hudi", "pyarrow", "confluent-kafka")


def known() -> dict[str, Any]:
    """`runs`: date -> versions; `tests`: name of a test -> [outcome, date]."""
    return json.loads(FILE.read_text()) if FILE.exists() else {"runs": {}, "tests": {}}


def outcome(report: pytest.TestReport) -> str | None:
    """What one report says of its test; None when another one does."""
    if report.when == "call" and hasattr(report, "wasxfail"):
        return GAP if report.skipped else "failed"
    if report.when == "call" or (report.when == "setup" and not report.passed):
        return report.outcome
    return None


class Recorder:
    """A plugin that keeps the outcomes of a run and writes them at its end."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.nodeid.startswith("tests/interop/") and (said := outcome(report)) is not None:
            self.found[report.nodeid.removeprefix("tests/interop/").partition("@")[0]] = said

    def pytest_sessionfinish(self) -> None:
        if not self.found:
            return
        date, before = f"{datetime.now(UTC):%Y-%m-%d}", known()
        tests = before["tests"] | {name: [said, date] for name, said in self.found.items() if said != "skipped"}
        used = {when for _, when in tests.values()}
        runs = {when: versions for when, versions in {**before["runs"], date: _versions()}.items() if when in used}
        FILE.write_text(json.dumps({"runs": runs, "tests": dict(sorted(tests.items()))}, indent=0) + "\n")


def _versions() -> dict[str, str]:
    found = {"Python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def wanted(config: pytest.Config) -> bool:
    """Whether this process is the one that writes."""
    return bool(os.environ.get(VARIABLE)) and not hasattr(config, "workerinput")
