"""`python -m benchmarks.requests`: how many requests statements make on an object store, and how many wait for one another.

An S3 server of this machine (versitygw where `make versitygw` was run, else moto) behind a proxy that answers no request
earlier than --latency after it came. Each case is a process of its own; it makes its statement several times, `first` in a
fresh process, `following` when what can be kept is kept. A case says how many requests may be made, and names the steps that
have to wait for one another: `steps`. The wall time has to stay within SLACK of steps x latency. `chain` is how many
requests really came one after the other. Figures are the best of --runs. Ends with an error when a target is missed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

import lakesql
from benchmarks import wide_table
from tests.s3 import servers
from tests.s3.proxy import Proxy, Seen, longest_chain

HERE = Path(__file__).parent
GROUPS, PARTITIONS = 1_000, 50
SLACK = 1.5
FOLLOWING = 3

_LOOK = ("table", "rest of the table, of more than 1,000 files", "commits")
_WRITE = (
    *("lock", "table", "keys in the newest log", "heartbeat", "requested", "inflight", "marker", "log file"),
    *("timeline again", "completed", "traces removed", "lock given back"),
)
_FIRST = ("table", "commits", "whose lock it is", "keys in the base file")


@dataclass(frozen=True, slots=True)
class Goal:
    """What a turn of a case may cost. `steps` are those that have to wait for the one before."""

    case: str
    turn: str
    requests_max: int
    steps: tuple[str, ...]


GOALS = (
    Goal("plan", "first", PARTITIONS, _LOOK),
    Goal("plan", "following", 12, _LOOK[:2]),
    Goal("append", "first", 18, (*_FIRST, *_WRITE)),
    Goal("append", "following", 12, _WRITE),
)


# ---------------------------------------------------------------- cases, each in its own process


def plan(path: str) -> Iterator[None]:
    """A snapshot of the whole table, bound and not read. Another table was read before: nothing is left to import."""
    con = lakesql.connect()
    con.sql(f"SELECT * FROM hudi_scan('{path.rpartition('/')[0]}/small')").fetchall()
    while True:
        yield
        con.sql(f"SELECT * FROM hudi_scan('{path}')")


def append(path: str) -> Iterator[None]:
    """One row for one log file of a Merge-on-Read table; `first` opens the table too. Another one was written before."""
    table, turn = None, 0
    _small(f"{path.rpartition('/')[0]}/before-{os.getpid()}")
    while True:
        turn += 1
        rows = pa.Table.from_pylist(
            [{"id": "a", "amount": float(turn), "ts": 10 + turn, "day": "x"}], wide_table.SCHEMA
        )
        yield
        table = table or lakesql.open_table(path)
        table.upsert(rows)


CASES: dict[str, Callable[[str], Iterator[None]]] = {"plan": plan, "append": append}


def child(case: str, path: str) -> None:
    """Make the statement of a case several times; a line per turn says when it began and ended."""
    turns = CASES[case](path)
    next(turns)
    for _ in range(1 + FOLLOWING):
        started = time.monotonic()
        next(turns)
        print(json.dumps([started, time.monotonic()]), flush=True)


# ---------------------------------------------------------------- measuring


@dataclass(frozen=True, slots=True)
class Turn:
    """What the proxy saw of one statement."""

    wall_s: float
    seen: tuple[Seen, ...]

    @property
    def chain(self) -> int:
        return longest_chain(self.seen)

    @property
    def kinds(self) -> str:
        return ", ".join(f"{n} {kind}" for kind, n in sorted(Counter(one.kind for one in self.seen).items()))


def measured(case: str, path: str, proxy: Proxy) -> list[Turn]:
    """The turns of one process."""
    proxy.arm(None)
    command = [sys.executable, "-m", "benchmarks.requests", "--case", case, "--table", path]
    variables = {**os.environ, **servers.environment(proxy.url)}
    done = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True, check=False, env=variables)
    if done.returncode:
        raise SystemExit(f"{case} failed:\n{done.stderr}")
    times = [json.loads(line) for line in done.stdout.splitlines()]
    seen = list(proxy.seen)
    return [Turn(end - start, tuple(s for s in seen if start <= s.started <= end)) for start, end in times]


def best(turns: list[Turn]) -> Turn:
    return min(turns, key=lambda turn: turn.wall_s)


@contextmanager
def bucket(folder: Path, kind: str, latency_s: float) -> Iterator[Proxy]:
    """A server behind a proxy."""
    with servers.running(kind, folder) as server, Proxy(server.port, latency_s) as proxy:
        yield proxy


def prepare(proxy: Proxy, data: Path) -> dict[str, Callable[[int], str]]:
    """The tables of the cases, in the bucket; a case gets one of its own for each run when it changes it."""
    url = f"http://127.0.0.1:{proxy.upstream}"
    wide = wide_table.prepare(data, GROUPS, PARTITIONS)
    servers.upload(wide, url, "wide")
    os.environ.update(servers.environment(url))
    _small(f"s3://{servers.BUCKET}/small")

    def fresh(turn: int) -> str:
        servers.copy(url, "small", f"appended-{turn}")
        return f"s3://{servers.BUCKET}/appended-{turn}"

    return {"plan": lambda _: f"s3://{servers.BUCKET}/wide", "append": fresh}


def _small(path: str) -> None:
    """A Merge-on-Read table with three rows and one update."""
    table = lakesql.create_table(
        path, wide_table.SCHEMA, type="mor", primary_key=["id"], ordering_fields=["ts"], partitioned_by=["day"]
    )
    rows = [{"id": key, "amount": 0.0, "ts": 1, "day": "x"} for key in "abc"]
    table.upsert(pa.Table.from_pylist(rows, wide_table.SCHEMA))
    table.upsert(pa.Table.from_pylist(rows[:1], wide_table.SCHEMA))


@dataclass(frozen=True, slots=True)
class Verdict:
    goal: Goal
    turn: Turn
    latency_s: float

    @property
    def limit_s(self) -> float:
        return SLACK * len(self.goal.steps) * self.latency_s

    @property
    def met(self) -> bool:
        return len(self.turn.seen) <= self.goal.requests_max and self.turn.wall_s <= self.limit_s


def markdown(verdicts: list[Verdict], about: str) -> str:
    text = [
        about,
        "",
        "| case | requests | at most | kinds | chain | steps | wall s | at most s | met |",
        "|---|---:|---:|---|---:|---:|---:|---:|---|",
    ]
    for one in verdicts:
        goal, turn = one.goal, one.turn
        text.append(
            f"| {goal.case}, {goal.turn} | {len(turn.seen)} | {goal.requests_max} | {turn.kinds} | {turn.chain} | "
            f"{len(goal.steps)} | {turn.wall_s:.3f} | {one.limit_s:.3f} | {'yes' if one.met else '**no**'} |"
        )
    return "\n".join(text) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.requests", description="Count requests to a store.")
    parser.add_argument("--latency", type=float, default=0.03, help="seconds; 0.03 unless given")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--server", choices=("moto", "versitygw"))
    parser.add_argument("--data", type=Path, default=HERE / "data")
    parser.add_argument("--trace", action="store_true", help="print every request of the best runs")
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--table", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case:
        child(args.case, args.table)
        return
    kind = args.server or ("moto" if servers.missing("versitygw") else "versitygw")
    found: dict[tuple[str, str], list[Turn]] = {}
    with tempfile.TemporaryDirectory() as folder, bucket(Path(folder), kind, args.latency) as proxy:
        tables = prepare(proxy, args.data)
        for number in range(args.runs):
            for case in CASES:
                first, *following = measured(case, tables[case](number), proxy)
                found.setdefault((case, "first"), []).append(first)
                found.setdefault((case, "following"), []).append(best(following))
    verdicts = [Verdict(goal, best(found[goal.case, goal.turn]), args.latency) for goal in GOALS]
    about = (
        f"{kind}, {1000 * args.latency:g} ms a request, {GROUPS:,} file groups in {PARTITIONS} partitions, best of "
        f"{args.runs} runs."
    )
    text = markdown(verdicts, about)
    if args.trace:
        text += "\n" + "\n".join(trace(one) for one in verdicts)
    report = HERE / "report"
    report.mkdir(exist_ok=True)
    (report / "requests.md").write_text(text)
    print(text)
    if not all(one.met for one in verdicts):
        raise SystemExit("a target is missed")


def trace(one: Verdict) -> str:
    """Every request with the milliseconds at which it began and ended."""
    seen = sorted(one.turn.seen, key=lambda s: s.started)
    begun = seen[0].started if seen else 0.0
    lines = [
        f"{1000 * (s.started - begun):7.0f} {1000 * (s.ended - begun):7.0f}  {s.status} {s.kind:9} {s.path}"
        for s in seen
    ]
    return "\n".join([f"{one.goal.case}, {one.goal.turn}:", *lines, ""])


if __name__ == "__main__":
    main()
