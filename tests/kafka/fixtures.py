"""Kafka servers as fixtures: `mock_kafka`, a fresh cluster without a JVM, and `kafka_broker`, Apache Kafka.

A test that uses `kafka_broker` is marked `kafka`. Where Java or the jars are missing these tests are deselected and the
report says why; with LAKESQL_KAFKA=required (as `make test` sets it where it runs them) the run fails instead. One
broker serves all tests of a process, so they run in one, and their topics are named after the test: `topic_name`.
"""

import os
import re
from collections.abc import Iterator

import pytest

from tests.kafka.broker import Broker, missing
from tests.kafka.mock import MockCluster


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark and perhaps deselect; first, so that `-m` sees the marks."""
    found = [item for item in items if "kafka_broker" in getattr(item, "fixturenames", ())]
    for item in found:
        item.add_marker(pytest.mark.kafka)
    lack = missing() if found else None
    if lack and os.environ.get("LAKESQL_KAFKA") == "required":
        raise pytest.UsageError(f"LAKESQL_KAFKA=required, but {lack}")
    if lack:
        config.hook.pytest_deselected(items=found)
        items[:] = [item for item in items if item not in set(found)]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    lack = missing()
    if lack:
        terminalreporter.write_line(f"Tests against Apache Kafka are not part of this run: {lack}", yellow=True)


@pytest.fixture
def mock_kafka() -> Iterator[MockCluster]:
    """A cluster of its own for the test."""
    with MockCluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The one broker of the run. A test that stops it starts it again."""
    with Broker(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", request.node.nodeid.rpartition("::")[2])[:200]
