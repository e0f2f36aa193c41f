"""Eight processes on one table in a bucket: every acknowledged row is there, every refused one is not.

LAKESQL_STORE_SECONDS says for how long; the test that `make test-s3` adds takes two minutes.
"""

import os
import subprocess
import sys
from collections import Counter

import pytest

from tests.s3 import servers
from tests.s3.servers import Server
from tests.samples import Kind, create

WRITERS = 8
SECONDS = float(os.environ.get("LAKESQL_STORE_SECONDS", "8"))
WRITER = """
import sys, time
import lakesql
path, writer, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
table, n, end = lakesql.open_table(path), 0, time.monotonic() + seconds
while time.monotonic() < end:
    n += 1
    rows = [{"id": f"{writer}-{n}", "city": "xy"[n % 2], "v": n, "ts": n}, {"id": f"{writer}", "city": "x", "v": n, "ts": n}]
    try:
        table.upsert(rows, **{"hoodie.write.lock.wait_time_ms": "4000"})
        print("there", n, flush=True)
    except lakesql.CommitUnknown:
        print("unknown", n, flush=True)
    except lakesql.CommitConflict as error:
        print("refused", n, flush=True)
        print(error, file=sys.stderr)
"""


def eight(server: Server, kind: Kind, seconds: float) -> Counter[str]:
    """How many writes came to which end."""
    path = f"s3://{servers.BUCKET}/processes/{os.getpid()}-{os.urandom(4).hex()}"
    table = create(path, kind)
    command = [sys.executable, "-c", WRITER, path]
    variables = {**os.environ, **servers.environment(server.url)}
    writers = [
        subprocess.Popen(
            [*command, str(n), str(seconds)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables
        )
        for n in range(WRITERS)
    ]
    said = [writer.communicate(timeout=seconds + 120) for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * WRITERS, [err[-2000:] for _, err in said]
    fates: dict[str, set[str]] = {"there": set(), "refused": set(), "unknown": set()}
    newest: dict[str, int] = {}
    for number, (out, _) in enumerate(said):
        for fate, n in (line.split() for line in out.splitlines()):
            fates[fate].add(f"{number}-{n}")
            if fate == "there":
                newest[str(number)] = int(n)
    found = table.read(columns=["id", "v"]).read_all().to_pylist()
    assert len({row["id"] for row in found}) == len(found), "a key is there twice"
    rows = {row["id"]: row["v"] for row in found}
    there = {key for key in rows if "-" in key}
    assert fates["there"] <= there, "an acknowledged row is lost"
    assert not fates["refused"] & there, "a refused row is there"
    assert there <= fates["there"] | fates["unknown"]
    assert all(rows[key] >= n for key, n in newest.items())
    assert len(fates["there"]) >= WRITERS
    assert not table.state.timeline.pending()
    return Counter({fate: len(keys) for fate, keys in fates.items()})


@pytest.mark.parametrize("kind", [Kind("mor", 9)], ids=str)
def test_eight_processes_lose_nothing_that_was_acknowledged(kind: Kind, server: Server) -> None:
    eight(server, kind, SECONDS)


@pytest.mark.store
@pytest.mark.parametrize("kind", [Kind("mor", 9), Kind("cow", 6)], ids=str)
def test_eight_processes_for_two_minutes_lose_nothing_that_was_acknowledged(kind: Kind, server: Server) -> None:
    print(eight(server, kind, 120))
