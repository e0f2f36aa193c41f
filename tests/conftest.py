"""Fixtures that all folders share. Data and helpers without set-up are in `samples.py`, faults in `faulty.py`."""

import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

import lakesql
from tests.interop.spark import missing
from tests.lakes import LOCAL, STORE, Lake
from tests.samples import KINDS, Kind, create

pytest_plugins = ["tests.kafka.fixtures"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--regold", action="store_true", help="write the golden files anew instead of comparing with them")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests of a lake run where LAKESQL_TEST_STORE says, those marked `on_store` on a store in any case."""
    if "lake" in metafunc.fixturenames:
        also = metafunc.definition.get_closest_marker("on_store") is not None and STORE == LOCAL
        metafunc.parametrize("lake", [LOCAL, "moto"] if also else [STORE], indirect=True)


def left_out(item: pytest.Item) -> bool:
    """Whether this case is none of those that run on a store in every run."""
    parameters, mark = getattr(item, "callspec", None), item.get_closest_marker("on_store")
    if STORE != LOCAL or mark is None or parameters is None or parameters.params.get("lake", LOCAL) == LOCAL:
        return False
    return zlib.crc32(item.nodeid.encode()) % int(mark.kwargs.get("every", 1)) > 0


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `--dist loadgroup`: one process for Spark, which runs once on a machine, and one beside it for the broker."""
    for item in items:
        for server in ("spark", "kafka"):
            if item.get_closest_marker(server):
                item.add_marker(pytest.mark.xdist_group(server))
                break
    if left := [item for item in items if left_out(item)]:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in set(left)]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    lack = missing()
    if lack:
        terminalreporter.write_line(f"Tests against Apache Hudi on Spark are not part of this run: {lack}", yellow=True)


@pytest.fixture
def regold(request: pytest.FixtureRequest) -> bool:
    """True when golden files are to be written instead of compared."""
    return bool(request.config.getoption("--regold"))


@pytest.fixture
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """Where the test keeps its tables, see `tests.lakes`."""
    return Lake(request.param, tmp_path)


@pytest.fixture(params=KINDS, ids=str)
def kind(request: pytest.FixtureRequest) -> Kind:
    """Every kind of table in turn."""
    chosen: Kind = request.param
    return chosen


@pytest.fixture
def new_table(tmp_path: Path) -> Callable[..., lakesql.Table]:
    """A factory of empty tables below the test's folder: `new_table(kind)`, `new_table(Kind("mor", 9), "trips")`."""

    def make(kind: Kind, name: str = "t", properties: Mapping[str, str] | None = None) -> lakesql.Table:
        return create(tmp_path / name, kind, properties)

    return make


@pytest.fixture(autouse=True, scope="session")
def _own_cache_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What reads keep on disk does not come from, or go to, the cache folder of the person who runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield
