"""The Hudi releases as fixtures: `spark120`, `spark102` and `spark015`, or `spark` for tests that run against several.

A test that uses one of them is marked `spark`. Where the Spark environment is missing these tests are deselected and
the report says why (`tests/conftest.py`); with LAKESQL_SPARK=required (as CI sets it) the run fails instead. Tests are
ordered by release, because only one Spark process runs at a time.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop import results
from tests.interop.spark import VERSIONS, SparkHudi, missing

HERE = Path(__file__).parent
RELEASES = {"spark120": "1.2.0", "spark120_west": "1.2.0", "spark102": "1.0.2", "spark015": "0.15.0"}
SPARK_FIXTURES = {*RELEASES, "spark"}


def pytest_configure(config: pytest.Config) -> None:
    """Keep what this run answers, when that is asked for."""
    if results.wanted(config):
        config.pluginmanager.register(results.Recorder())


def release_of(item: pytest.Item) -> str | None:
    """The Hudi release a test needs: from its fixture, or from the parameter of `spark`; None without Spark."""
    names = SPARK_FIXTURES & set(getattr(item, "fixturenames", ()))
    if not names or item.path.parent != HERE:
        return None
    parameters = getattr(item, "callspec", None)
    if "spark" in names and parameters is not None:
        return str(parameters.params["spark"])
    return RELEASES[min(names)]


def is_west(item: pytest.Item) -> bool:
    """Whether a test needs a process of its own, in another time zone."""
    return "spark120_west" in getattr(item, "fixturenames", ())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark, order and perhaps deselect; first, so that `-m` sees the marks."""
    releases = {item: release for item in items if (release := release_of(item)) is not None}
    for item in releases:
        item.add_marker(pytest.mark.spark)
    lack = missing() if releases else None
    if lack and os.environ.get("LAKESQL_SPARK") == "required":
        raise pytest.UsageError(f"LAKESQL_SPARK=required, but {lack}")
    if lack:
        config.hook.pytest_deselected(items=list(releases))
        items[:] = [item for item in items if item not in releases]
    items.sort(key=lambda item: (VERSIONS.index(releases[item]), is_west(item)) if item in releases else (-1, False))


@pytest.fixture(scope="session")
def releases() -> Iterator[dict[str, SparkHudi]]:
    """All releases by version; each starts when first used."""
    workers = {version: SparkHudi(version) for version in VERSIONS}
    yield workers
    for worker in workers.values():
        worker.stop()


@pytest.fixture
def spark(request: pytest.FixtureRequest, releases: dict[str, SparkHudi]) -> SparkHudi:
    """The release named by the test's (indirect) parameter."""
    return releases[request.param]


@pytest.fixture
def spark120(releases: dict[str, SparkHudi]) -> SparkHudi:
    return releases["1.2.0"]


@pytest.fixture
def spark120_west() -> Iterator[SparkHudi]:
    """1.2.0 in a JVM whose clock shows the time of Los Angeles."""
    worker = SparkHudi("1.2.0", "America/Los_Angeles")
    yield worker
    worker.stop()


@pytest.fixture
def spark102(releases: dict[str, SparkHudi]) -> SparkHudi:
    return releases["1.0.2"]


@pytest.fixture
def spark015(releases: dict[str, SparkHudi]) -> SparkHudi:
    return releases["0.15.0"]
