"""A writer and the table services in another process, for many small commits: reads stay within the target, no row is lost.

The services are adaptive compaction, and cleaning and archiving where the installed version has them.
"""

import random
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest

import lakesql
from lakesql.services.adaptive_facts import measure
from lakesql.services.adaptive_model import amplification
from lakesql.table.clock import local_zone, system_clock
from tests.lakes import Lake

TARGET = 1.5
ROWS, PARTITIONS = 8_000, 4
READS, PRESSURE = "lakesql.compaction.target.read_amplification", "lakesql.compaction.backpressure"
SCHEMA = pa.schema(
    [("id", pa.int64()), ("p", pa.string()), ("v", pa.int64()), ("name", pa.string()), ("ts", pa.int64())]
)
SERVICES = """
import sys, time
import lakesql
table = lakesql.open_table(sys.argv[1])
settings = {"lakesql.compaction.target.read_amplification": sys.argv[2], "lakesql.compaction.period": "0.2 seconds"}
offered = [getattr(table, name) for name in ("clean", "archive") if hasattr(table, name)]
print("ready", flush=True)
while True:
    try:
        done = table.compact(strategy="adaptive", **settings)
        if done.instants:
            print(done, flush=True)
        for service in offered:
            service()
    except lakesql.CommitConflict as conflict:
        print("waits:", conflict, flush=True)
    time.sleep(0.1)
"""

Row = tuple[str, int, str, int]


def row(key: int, n: int) -> dict[str, Any]:
    return {"id": key, "p": str(key % PARTITIONS), "v": n, "name": f"name {n * key % 9973}", "ts": n}


class Model:
    """What the table must hold: every commit is made here and there."""

    def __init__(self, table: lakesql.Table) -> None:
        self.table = table
        self.rng = random.Random(300)
        self.rows: dict[int, Row] = {}
        self.notes: list[str] = []
        self.keep([row(key, 0) for key in range(ROWS)])

    def keep(self, rows: list[dict[str, Any]]) -> None:
        self.note(self.table.upsert(rows, **{READS: str(TARGET), PRESSURE: "120"}))
        self.rows |= {r["id"]: (r["p"], r["v"], r["name"], r["ts"]) for r in rows}

    def note(self, done: lakesql.WriteResult) -> None:
        self.notes += done.notes

    def commit(self, n: int) -> None:
        """Some updates, mostly of a few keys, a new key, and at times a delete."""
        hot = {self.rng.randrange(200) for _ in range(15)}
        cold = {self.rng.randrange(ROWS) for _ in range(10)}
        self.keep([row(key, n) for key in sorted({*hot, *cold, ROWS + n})])
        if n % 10 == 0:
            gone = self.rng.choice(sorted(self.rows))
            batch = pa.table({"id": [gone], "p": [str(gone % PARTITIONS)], "ts": [n]})
            self.note(self.table.delete(batch))
            del self.rows[gone]

    def check(self) -> None:
        found = self.table.read(columns=["id", "p", "v", "name", "ts"]).read_all().to_pylist()
        assert len(found) == len(self.rows)
        assert {r["id"]: (r["p"], r["v"], r["name"], r["ts"]) for r in found} == self.rows


def reads_now(table: lakesql.Table) -> float:
    facts = measure(table.state, system_clock(), local_zone())
    return amplification(facts.groups, facts.costs)


def instant_files(table: lakesql.Table) -> int:
    return len(table.state.instant_files)


def soak(lake: Lake, commits: int) -> None:
    table = lakesql.create_table(
        lake.path(), SCHEMA, type="mor", primary_key=["id"], partitioned_by=["p"], ordering_fields=["ts"]
    )
    model = Model(table)
    log = lake.folder / "services.log"
    command = [sys.executable, "-c", SERVICES, table.path, str(TARGET)]
    with log.open("w") as out:
        services = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
    counts: list[int] = []
    try:
        for n in range(1, commits + 1):
            model.commit(n)
            assert services.poll() is None, "the services died:\n" + log.read_text()
            counts.append(instant_files(table))
            if n % 10 == 0:
                model.check()
            if n % 10 == 5:  # no delete followed, which does not wait
                assert reads_now(table) <= TARGET
    finally:
        services.terminate()
        services.wait()
    said = log.read_text()
    assert not [note for note in model.notes if "in vain" in note]
    assert "compact: compaction" in said, said
    table.compact()
    model.check()
    assert not table.state.timeline.pending("compaction", "logcompaction")
    if hasattr(table, "archive"):
        table.archive()
        assert instant_files(table) <= 250
        assert max(counts[commits // 2 :]) <= max(250, 1.5 * max(counts[: commits // 2]))


def test_thirty_commits_beside_the_services_stay_within_the_target_and_lose_nothing(lake: Lake) -> None:
    soak(lake, 30)


@pytest.mark.slow
def test_three_hundred_commits_beside_the_services_stay_within_the_target_and_lose_nothing(lake: Lake) -> None:
    soak(lake, 300)
