"""Whether a statement is expected to fit this machine, and the Spark command for it when it is not.

Seconds come from the prices of the calibration (`costs`), the same that the advice on table types uses; memory and bytes on disk from
the rows. Expected are a mean of the table's commits and rows like those that are there; nothing is written, and nothing is run.
`report.Line` makes the rows, so that the output is as that of the other advice.

    time      CPU seconds by the formula, over the threads that a write keeps busy
    memory    what is held without spilling, against what is free now
    disk      what is spilled, against the temporary folder; new files, against the folder of the table
"""

import math
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from itertools import groupby
from pathlib import Path

import duckdb
import pyarrow as pa

from lakesql import markup
from lakesql.advice import costs
from lakesql.advice.calibration import Calibration
from lakesql.advice.costs import Row, Spread, Workload
from lakesql.advice.facts import Facts
from lakesql.advice.report import ADVICE_SCHEMA, Line, bytes_text, number_text, seconds_text
from lakesql.advice.spark_command import FORMATS, Asked, spark_command
from lakesql.errors import SQLError
from lakesql.table.names import literal
from lakesql.table.state import TableState

STATEMENTS = ("upsert", "insert", "bulk_insert", "delete", "merge", "update", "compaction")

NEW_ROW = 0.3
"""What a new row costs besides being written, in prices of a row that is put in its place."""
BUSY_THREADS = 1.7
"""How many threads a write keeps busy on two cores: measured, see docs/one-machine.md. More cores do not help it."""
FLOOR_BYTES = 450 << 20
"""What a write holds whatever the rows: the process, row groups on their way, the log buffer."""
COPIES = {"bulk_insert": 2.4, "insert": 2.4, "compaction": 0.0}
COPIES_LOOKED_UP = 8.0
"""How often the rows of a statement are in memory at its peak, when nothing must be spilled."""


class Topic(StrEnum):
    """The parts of what is said."""

    VERDICT = "verdict"
    TIME = "time"
    MEMORY = "memory"
    DISK = "disk"
    SPARK = "on Spark"
    BASIS = "basis"


def _value(line: Line) -> str:
    if line.value is None:
        return ""
    return bytes_text(line.value) if line.unit == "bytes" else f"{number_text(line.value)} {line.unit}"


@dataclass(frozen=True, slots=True)
class Machine:
    """What there is to use, in bytes."""

    threads: int
    memory: int
    spill: int  # of the temporary folder
    storage: int | None  # of the table's folder; None where nobody can tell


@dataclass(frozen=True, slots=True)
class Scale:
    """What is expected of one statement on one table.

    fits       whether it is expected to run here, within the given time
    command    the Spark command that does the same, for a shell
    """

    table: str
    statement: str
    rows: int
    fits: bool
    sentence: str
    command: str
    lines: tuple[Line, ...]

    def to_arrow(self) -> pa.Table:
        """topic, measure, value, unit, text: one row per line."""
        return pa.Table.from_pylist([asdict(line) for line in self.lines], schema=ADVICE_SCHEMA)

    def __repr__(self) -> str:
        return f"<lakesql.Scale {self.table}: {self.sentence}>"

    def _repr_html_(self) -> str:
        rows = [(x.measure, _value(x), x.text) for x in self.lines]
        return markup.page(
            markup.title(self.table), markup.line(self.sentence), markup.table(("", "", ""), rows, (False, True, False))
        )

    def __str__(self) -> str:
        text = [self.table]
        for topic, group in groupby(self.lines, key=lambda line: line.topic):
            text += ["", str(topic).upper()]
            for line in group:
                text.append(f"  {line.measure:<28} {_value(line):>20}  {line.text}".rstrip())
        return "\n".join(text)


def machine(state: TableState) -> Machine:
    """This machine as it is now."""
    folder = Path(state.path)
    storage = shutil.disk_usage(folder).free if folder.is_dir() else None
    return Machine(
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        _free_memory(),
        shutil.disk_usage(tempfile.gettempdir()).free,
        storage,
    )


def _free_memory() -> int:
    """Bytes that programs can get without swapping."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return int(next(x for x in lines if x.startswith("MemAvailable")).split()[1]) << 10
    except (OSError, StopIteration, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 3 // 4


def checked(where: str, statement: str, rows: float | None, within_s: float) -> None:
    """SQLError for an unknown statement and numbers that make no sense."""
    if statement not in STATEMENTS:
        raise SQLError(f"{where}: statement {statement!r} is unknown. Give one of {', '.join(STATEMENTS)}.")
    if rows is None and statement != "compaction":
        raise SQLError(
            f"{where}: it is not known how many rows the {statement} has. Give rows, or the file of its data."
        )
    if rows is not None and not 0 <= rows < math.inf:
        raise SQLError(f"{where}: rows {rows!r}: give a number of 0 or more.")
    if not 0 < within_s < math.inf:
        raise SQLError(f"{where}: within {within_s!r}: give seconds, more than 0.")


def scale_of(
    state: TableState, facts: Facts, load: Workload | None, row: Row, record: Calibration, asked: Asked, here: Machine
) -> Scale:
    """What is expected. `load`: the mean commit of the table, where its history tells one."""
    made = _Made(state, facts, load, row, record, asked, here)
    reasons = [*made.reasons()]
    what = f"{asked.statement} of {asked.rows:,} rows" if asked.statement != "compaction" else "compaction"
    if reasons:
        sentence = f"This {what} is not expected to fit this machine: {'; '.join(reasons)}. Run it on Spark."
    else:
        sentence = f"This {what} is expected to fit this machine, in {seconds_text(made.wall_s)}."
    command = spark_command(state, asked)
    lines = (
        Line(Topic.VERDICT, "fits" if not reasons else "does not fit", None, "", sentence),
        *made.times(),
        *made.memories(),
        *made.disks(),
        *_on_spark(command, asked),
        *made.basis(),
    )
    return Scale(state.path, asked.statement, asked.rows, not reasons, sentence, command, lines)


class _Made:
    """One estimate in the making."""

    def __init__(
        self,
        state: TableState,
        facts: Facts,
        load: Workload | None,
        row: Row,
        record: Calibration,
        asked: Asked,
        here: Machine,
    ) -> None:
        self.asked, self.here, self.record, self.row = asked, here, record, row
        self.is_mor, self.known = state.config.is_mor, load is not None
        groups = [max(1.0, g.rows) for g in facts.groups.values()]
        base = sum(g.base_rows for g in facts.groups.values())
        self.base_row = facts.base_bytes / base if base else record.base_ratio * row.bytes
        self.table = Spread(float(len(groups)), float(sum(groups)))
        shares = [n / self.table.rows for n in groups]
        mean = load or Workload(tuple(groups), tuple(shares), 0.0, row)
        changes = asked.statement not in ("insert", "bulk_insert", "compaction")
        self.changed = min(float(asked.rows), self.table.rows) if changes else 0.0
        self.added = 0.0 if asked.statement in ("delete", "update", "compaction") else asked.rows - self.changed
        self.load = replace(mean, changed_rows=self.changed, row=row) if groups else None
        self.cpu_s = sum(costs.seconds(record.prices, [step]) for step in self._work(facts))
        self.written = self._written(facts)
        self.threads = min(BUSY_THREADS, float(here.threads))
        self.wall_s = self.cpu_s / self.threads if record.clock == "cpu" else self.cpu_s
        copies = COPIES.get(asked.statement, COPIES_LOOKED_UP)
        self.rows_bytes = asked.rows * row.bytes
        self.memory = FLOOR_BYTES + copies * self.rows_bytes
        self.limit = 0.8 * here.memory
        self.spilled = max(0.0, self.memory - self.limit)

    def _work(self, facts: Facts) -> Iterator[tuple[str, costs.Amount]]:
        load, row = self.load, self.row
        if self.asked.statement == "compaction":
            if load is not None:
                logs = self._logs(facts)
                yield from costs.compact_work(logs, row)
                yield from costs.merge_work(logs, row)
            return
        yield costs.COMMIT, costs.Amount()
        if load is not None and self.changed:
            yield costs.LOOK_UP, costs.Amount(1, files=self.table.files, rows=self.table.rows)
            if self.is_mor:
                yield from costs.append_work(load.touched(), self.changed, row, costs.NO_LOGS)
            else:
                yield from costs.rewrite_work(load.touched(), self.changed, row)
        if self.added:
            files = max(1.0, self.added * self.base_row / (120 << 20), self.added / 500_000)
            new = row.of(Spread(files, self.added))
            yield from ((costs.REWRITE, new), (costs.EDIT, row.of(Spread(0.0, NEW_ROW * self.added))))

    def _logs(self, facts: Facts) -> costs.Logs:
        dirty = [g for g in facts.groups.values() if g.log_rows]
        live = sum(g.rows * -math.expm1(-g.log_rows / max(1.0, g.rows)) for g in dirty)
        return costs.Logs(Spread(len(dirty), sum(g.rows for g in dirty)), facts.log_files, facts.log_rows, live)

    def _written(self, facts: Facts) -> float:
        """Bytes of the new files."""
        if self.asked.statement == "compaction":
            return sum(g.rows for g in facts.groups.values() if g.log_rows) * self.base_row
        new = self.added * self.base_row
        if self.load is None or not self.changed:
            return new
        if self.is_mor:
            return new + self.changed * self.record.log_bytes(self.row.bytes)
        return new + self.load.touched().rows * self.base_row

    def reasons(self) -> Iterator[str]:
        """Why it does not fit."""
        if self.wall_s > self.asked.within_s:
            yield f"it takes {seconds_text(self.wall_s)}, more than {seconds_text(self.asked.within_s)}"
        if self.limit < FLOOR_BYTES:
            yield f"a write needs {bytes_text(FLOOR_BYTES)} of memory, and {bytes_text(self.here.memory)} are free"
        if self.spilled > self.here.spill:
            yield f"it spills {bytes_text(self.spilled)}, and the temporary folder has {bytes_text(self.here.spill)}"
        if self.here.storage is not None and self.written > self.here.storage:
            yield f"it writes {bytes_text(self.written)}, and the table's disk has {bytes_text(self.here.storage)}"

    def times(self) -> Iterator[Line]:
        text = f"{self.threads:.1f} threads at work; at most {seconds_text(self.asked.within_s)} was asked for"
        yield Line(Topic.TIME, "expected", self.wall_s, "s", text)
        yield Line(Topic.TIME, "processor time", self.cpu_s, "CPU s", "of all threads")
        if self.asked.rows and self.wall_s:
            yield Line(Topic.TIME, "throughput", self.asked.rows / self.wall_s, "rows/s", f"as {self.asked.statement}")

    def memories(self) -> Iterator[Line]:
        free = bytes_text(self.here.memory)
        text = f"without spilling; {free} are free, of which DuckDB takes 80 %"
        yield Line(Topic.MEMORY, "needed", self.memory, "bytes", text)
        if self.rows_bytes > self.limit:
            text = "these rows do not fit into a data frame; give them as a stream, a file or a query"
            yield Line(Topic.MEMORY, "rows of the statement", self.rows_bytes, "bytes", text)

    def disks(self) -> Iterator[Line]:
        text = f"{bytes_text(self.here.spill)} free in {tempfile.gettempdir()}"
        yield Line(Topic.DISK, "spilled", self.spilled, "bytes", text if self.spilled else f"nothing; {text}")
        free = "not known" if self.here.storage is None else f"{bytes_text(self.here.storage)} free"
        yield Line(Topic.DISK, "written to the table", self.written, "bytes", free)

    def basis(self) -> Iterator[Line]:
        text = f"{self.record.text[0].upper()}{self.record.text[1:]}."
        yield Line(Topic.BASIS, "error of the prices", self.record.error, "median, relative", text)
        spread = (
            "as the table's commits spread theirs" if self.known else "evenly: the table has too few commits to tell"
        )
        text = f"{self.changed:,.0f} meet rows that are there, {spread}; {self.added:,.0f} are new"
        yield Line(Topic.BASIS, "rows of the table", self.table.rows, "rows", text)
        yield Line(Topic.BASIS, "a row", self.row.bytes, "bytes in memory", f"{self.row.columns:.0f} columns in a file")


def _on_spark(command: str, asked: Asked) -> Iterator[Line]:
    yield Line(Topic.SPARK, "spark-sql", None, "", command)
    if asked.script is not None:
        script = shlex.quote(asked.script)
        yield Line(Topic.SPARK, "the same script by lakesql", None, "", f"lakesql run --engine spark {script}")


# ---------------------------------------------------------------- what a file or a script has

_READERS = {"parquet": "read_parquet", "csv": "read_csv", "json": "read_json"}
_SAMPLE_ROWS = 2_000
_COMMENTS = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'", re.S)
_WORDS = {"MERGE": "merge", "UPDATE": "update", "DELETE": "delete", "INSERT": "insert"}


def rows_in(con: duckdb.DuckDBPyConnection, data: str) -> tuple[int, float]:
    """How many rows a file has, and the bytes of one in memory. SQLError when it cannot be read."""
    kind = FORMATS.get(Path(data).suffix.lower())
    if kind is None:
        raise SQLError(f"{data}: give a file that ends in {', '.join(FORMATS)}, or the number of rows.")
    source = f"{_READERS[kind]}({literal(data)})"
    try:
        [(count,)] = con.execute(f"SELECT count(*) FROM {source}").fetchall()
        sample = con.sql(f"SELECT * FROM {source} LIMIT {_SAMPLE_ROWS}").to_arrow_table()
    except duckdb.Error as error:
        raise SQLError(f"{data}: {str(error).splitlines()[0]}. Give a file that DuckDB can read.") from error
    return int(count), sample.nbytes / max(1, sample.num_rows)


def statement_in(script: str) -> str | None:
    """What the first statement of a script does that changes a table. SQLError when there is no such file."""
    try:
        text = Path(script).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SQLError(f"{script}: the script cannot be read ({error}). Give the path of a file with SQL.") from error
    bare = _COMMENTS.sub(" ", text)
    words = (piece.split(None, 1)[0].upper() for piece in bare.split(";") if piece.strip())
    return next((_WORDS[word] for word in words if word in _WORDS), None)
