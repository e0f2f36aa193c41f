"""Real processes on one table: writers take turns and lose nothing; a killed writer leaves the old rows or the new.

The fault at every storage call of a write, without processes, is in `tests/unit/test_commit.py`.
"""

import os
import random
import signal
import subprocess
import sys
import time

import pyarrow as pa
import pytest

import lakesql
from lakesql.write import LOCK
from tests.lakes import Lake
from tests.leftovers import data_files

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("ts", pa.int64())])
WRITER = """
import sys, lakesql
path, writer, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
table = lakesql.open_table(path)
for i in range(1, rounds + 1):
    table.upsert([{"id": writer * 100 + k, "v": i, "ts": i} for k in range(5)] + [{"id": 999, "v": writer, "ts": i}])
    print(i, flush=True)
"""


def start(path: str, writer: int, rounds: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", WRITER, path, str(writer), str(rounds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


COUNTER = """
import sys, lakesql
warehouse, rounds = sys.argv[1], int(sys.argv[2])
con = lakesql.connect(warehouse=warehouse)
for _ in range(rounds):
    con.sql("UPDATE t SET v = v + 1 WHERE id = 1")
"""


def rows_of(table: lakesql.Table) -> dict[int, tuple[int, int]]:
    return {r["id"]: (r["v"], r["ts"]) for r in table.read(columns=["id", "v", "ts"]).read_all().to_pylist()}


@pytest.mark.on_store(every=1)
@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_writers_in_several_processes_lose_nothing(kind: str, lake: Lake) -> None:
    table = lakesql.create_table(lake.path(), SCHEMA, type=kind, primary_key=["id"], ordering_fields=["ts"])
    writers = [start(table.path, writer, 4) for writer in (1, 2, 3)]
    for writer in writers:
        with writer:
            writer.communicate(timeout=120)
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    rows = rows_of(table)
    assert len(rows) == 16
    assert all(rows[writer * 100 + k] == (4, 4) for writer in (1, 2, 3) for k in range(5))
    assert rows[999][1] == 4
    timeline = table.state.timeline
    completed = [i.completed for i in timeline.completed_writes()]
    assert len(set(completed)) == len(completed)
    assert not timeline.pending()


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_increments_of_two_processes_all_count_and_none_fails(kind: str, lake: Lake) -> None:
    table = lakesql.create_table(lake.path(), SCHEMA, type=kind, primary_key=["id"], ordering_fields=["ts"])
    table.upsert([{"id": 1, "v": 0, "ts": 1}, {"id": 2, "v": 0, "ts": 1}])
    command = [sys.executable, "-c", COUNTER, lake.address, "8"]
    writers = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    errors = [writer.communicate(timeout=120)[1] for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0], errors
    assert rows_of(table) == {1: (16, 1), 2: (0, 1)}


@pytest.mark.parametrize(("kind", "version"), [("cow", 9), ("mor", 9), ("mor", 6)])
def test_killed_writer_leaves_the_old_rows_or_the_new(kind: str, version: int, lake: Lake) -> None:
    short = {"hoodie.write.lock.storage.validity.timeout.secs": "10"}  # the lock of a killed writer holds so long
    table = lakesql.create_table(
        lake.path(),
        SCHEMA,
        type=kind,
        version=version,
        primary_key=["id"],
        ordering_fields=["ts"],
        properties={} if lake.is_local else short,
    )
    random.seed(version)
    for _ in range(3):
        writer = start(table.path, 1, 10_000)
        assert writer.stdout is not None
        writer.stdout.readline()
        time.sleep(random.uniform(0, 0.1))
        os.kill(writer.pid, signal.SIGKILL)
        with writer:
            acknowledged = [int(line) for line in writer.stdout.read().split()]
        rows = rows_of(table)
        states = {rows[100 + k] for k in range(5)}
        assert len(states) == 1, "half of a write is visible"
        assert states.pop()[1] >= max(acknowledged, default=1)
    table.upsert([{"id": 7, "v": 7, "ts": 1}])
    assert rows_of(table)[7] == (7, 1)
    assert not table.state.timeline.pending("commit", "deltacommit", "replacecommit")
    known = {i.requested for i in table.state.timeline.completed_writes()}
    if version >= 8:
        assert {file.instant for file in data_files(table, lake)} <= known


def test_a_writer_that_waits_too_long_gives_up_with_a_conflict(lake: Lake) -> None:
    table = lakesql.create_table(lake.path(), SCHEMA, primary_key=["id"])
    with table.state.storage.lock(LOCK, 1), pytest.raises(lakesql.CommitConflict):
        table.upsert([{"id": 1, "v": 1, "ts": 1}], **{"hoodie.write.lock.wait_time_ms": "200"})
    assert table.read().read_all().num_rows == 0
