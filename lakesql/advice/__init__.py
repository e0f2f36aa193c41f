"""Copy-on-Write or Merge-on-Read, in numbers: what a table's own commits cost as the one and as the other.

    facts         what the timeline and the files say about the commits
    costs         the closed formula: seconds of a commit, a read, a compaction; break-evens
    calibration   the prices in the formula: shipped, or measured here by `calibrate` with `fit`
    twins         a table as both types, side by side: commits, reads and a compaction, timed
    apart         a process of its own to calibrate in, whose allocator keeps its memory
    measure       the same with copies of this table's own file groups: what the prices do not know of it
    report        facts and costs as rows to read
    scale         whether one statement fits this machine, and the Spark command for it

Nothing is guessed: with fewer than `CHANGES_MIN` commits that change rows the advice says what it lacks.
"""

import math
from dataclasses import replace

import duckdb
import pyarrow as pa

from lakesql.advice import calibration
from lakesql.advice.calibration import Calibration
from lakesql.advice.costs import Row, Workload
from lakesql.advice.facts import CHANGES_MIN, Facts, row_of, table_facts
from lakesql.advice.measure import measure as measure_table
from lakesql.advice.report import ADVICE_SCHEMA, Advice, Topic, advice_of
from lakesql.advice.scale import Scale, checked, machine, rows_in, scale_of, statement_in
from lakesql.advice.spark_command import WITHIN_S, Asked
from lakesql.errors import SQLError
from lakesql.table.state import TableState

__all__ = ["ADVICE_SCHEMA", "CHANGES_MIN", "Advice", "Scale", "Topic", "advise", "reads_of", "scale", "workload_of"]


def advise(
    con: duckdb.DuckDBPyConnection,
    state: TableState,
    reads_per_write: float | None = None,
    prices: Calibration | None = None,
    measure: bool = False,
) -> Advice:
    """The advice for a table. `reads_per_write`: snapshot reads of the whole table per commit, where known.

    `measure`: copies of the table's own file groups are written and read as both types, and what that took corrects the
    prices; the table is only read, the copies go again.
    Raises SQLError for a number below 0 and a table that cannot be measured, FormatError when the person's calibration record is damaged, and what reading
    the timeline raises.
    """
    reads = reads_of(state.path, reads_per_write)
    found = table_facts(state)
    record = prices if prices is not None else calibration.load()
    load = workload_of(con, state, found, record)
    if load is None or not measure:
        return advice_of(state.path, found, load, record, reads)
    measured = measure_table(con, state, load, record.prices, record.clock)
    return advice_of(state.path, found, replace(load, own=measured.own), record, reads, measured)


def scale(
    con: duckdb.DuckDBPyConnection,
    state: TableState,
    rows: int | None = None,
    statement: str | None = None,
    *,
    data: str | None = None,
    script: str | None = None,
    within_s: float = WITHIN_S,
    prices: Calibration | None = None,
) -> Scale:
    """Whether a statement of so many rows is expected to fit this machine. Nothing is run, and nothing written.

    `statement`: one of `scale.STATEMENTS`, by default the first one of the script that changes a table, else upsert; `data`: a
    file with its rows, which then need not be given; `script`: the file that holds the statement, for the Spark command. Raises
    SQLError for what is not known or makes no sense.
    """
    statement = statement or (script and statement_in(script)) or "upsert"
    found = table_facts(state)
    record = prices if prices is not None else calibration.load()
    known = rows_in(con, data) if data is not None else None
    count = rows if rows is not None or known is None else known[0]
    checked(state.path, statement, count, within_s)
    like = _row(con, state, found, record)
    if like is None:
        like = Row(len(state.schema.names) + 5, known[1] if known else _assumed_bytes(state))
    load = workload_of(con, state, found, record)
    asked = Asked(statement, int(count or 0), within_s, data, script)
    return scale_of(state, found, load, like, record, asked, machine(state))


_TEXT_BYTES = 20


def _assumed_bytes(state: TableState) -> float:
    """Bytes of a row's values in memory, of a table that has none yet."""
    return float(sum(f.type.bit_width / 8 if _has_width(f.type) else _TEXT_BYTES for f in state.schema))


def _has_width(kind: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(kind))


def reads_of(where: str, value: object) -> float | None:
    """Reads per write as a number. SQLError when it is none, or below 0."""
    if value is None:
        return None
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = math.nan
    if not 0 <= number < math.inf:
        raise SQLError(f"{where}: reads_per_write {value!r}: give a number of 0 or more, for example 0.5 or 20.")
    return number


def workload_of(
    con: duckdb.DuckDBPyConnection, state: TableState, found: Facts, record: Calibration
) -> Workload | None:
    """What the table's commits do, for the formula; None when they are too few to say."""
    row = _row(con, state, found, record)
    return found.workload(row) if found.enough and row is not None else None


def _row(con: duckdb.DuckDBPyConnection, state: TableState, found: Facts, record: Calibration) -> Row | None:
    """What a row is like; of a table without base files by its log files."""
    if (row := row_of(con, state)) is not None:
        return row
    if found.log_row_bytes is None:
        return None
    return Row(len(state.schema.names) + 5, record.value_bytes(found.log_row_bytes))
