"""A kernel of its own, as Jupyter starts it: the interrupt button during a long statement."""

import queue
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lakesql

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from jupyter_client.manager import KernelManager

WAIT_S = 60
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[tuple[Any, Any]]:
    """A kernel that runs in the folder of the test, and a client of it."""
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(cwd=str(tmp_path))
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=WAIT_S)
    yield manager, client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def answer(client: Any, message: str) -> dict[str, Any]:
    """The reply to a cell."""
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        try:
            reply = client.get_shell_msg(timeout=1)
        except queue.Empty:
            continue
        if reply["parent_header"].get("msg_id") == message:
            return dict(reply["content"])
    raise AssertionError("the kernel does not answer")


@pytest.mark.parametrize(
    "long",
    [
        "INSERT INTO trips SELECT (a.range * b.range) % 9, sum(a.range) FROM range(1000000) a, range(1000000) b GROUP BY ALL",
        "SELECT sum(a.range * b.range) FROM range(1000000) a, range(1000000) b",
    ],
    ids=["write", "read"],
)
def test_interrupt_stops_the_statement_and_the_kernel_lives(client: tuple[Any, Any], tmp_path: Path, long: str) -> None:
    manager, cells = client
    made = "CREATE TABLE trips (id BIGINT, n DOUBLE) USING hudi TBLPROPERTIES (primaryKey = 'id')"
    begin = f"%load_ext lakesql\n%lakesql {made}\n%lakesql INSERT INTO trips VALUES (1, 1.0)"
    assert answer(cells, cells.execute(begin))["status"] == "ok"
    running = cells.execute(f"%%lakesql\n{long}")
    time.sleep(2)
    began = time.monotonic()
    manager.interrupt_kernel()
    said = answer(cells, running)
    assert (said["status"], said["ename"]) == ("error", "KeyboardInterrupt")
    assert said["traceback"] == ["KeyboardInterrupt: the statement was stopped."]
    assert time.monotonic() - began < 20
    after = (
        "done = %lakesql SELECT count(*) FROM trips\n[(n,)] = done.fetchall()\nassert n == 1, n\n"
        "%lakesql INSERT INTO trips VALUES (2, 2.0)"
    )
    done = answer(cells, cells.execute(after))
    assert done["status"] == "ok", done.get("traceback")
    table = lakesql.open_table(tmp_path / "warehouse" / "trips")
    assert sorted(table.read().read_all()["id"].to_pylist()) == [1, 2]
    assert len(table.state.timeline.completed_writes()) == 2
    assert not table.state.timeline.pending()
