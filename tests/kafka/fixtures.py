"""Kafka servers as fixtures: `mock_kafka`, a fresh cluster without a JVM, and `kafka_broker`, Apache Kafka.

A test that uses `kafka_broker` is marked `kafka`. Where Java or the jars are missing these tests are deselected and the
report says why; with LAKESQL_KAFKA=required (as `make test` sets it where it runs them) the run fails instead. One
broker serves all tests of a process, so they run in one, and their topics are named after the test: `topic_name`.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kafka.broker import Broker, missing
from tests.kafka.mock import MockCluster

Ask = Callable[[str, Path, int, str], str]
"""(statement, warehouse, number of the call at which to die, how) -> what became of the run."""


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


@pytest.fixture
def dying_run() -> Iterator[Ask]:
    """Runs a statement in a process that dies at a call of the storage, see `tests.crash.ingest_worker`."""
    command = [sys.executable, "-m", "tests.crash.ingest_worker"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path.cwd()) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def ask(statement: str, warehouse: Path, die_at: int, how: str) -> str:
            order = {"statement": statement, "warehouse": str(warehouse), "die_at": die_at, "how": how}
            stdin.write(json.dumps(order) + "\n")
            stdin.flush()
            return stdout.readline().strip()

        yield ask
        stdin.close()
