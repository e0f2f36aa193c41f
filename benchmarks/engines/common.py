"""What measurements of several engines share: consuming results, and holding them against what plain SQL gives."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb

from benchmarks import workload

_ARROW_ROWS = 65_536
WORKERS = 2  # lakesql's, given to everything done by hand


def plain() -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    return con


def consumed(relation: duckdb.DuckDBPyRelation, query: str) -> Any:
    """All of a result: of a full read only the number of rows is kept."""
    reader = relation.to_arrow_reader(_ARROW_ROWS)
    if query == "full":
        return sum(batch.num_rows for batch in reader)
    return reader.read_all()


def check_query(value: Any, root: Path, change: str, query: str) -> None:
    """`value`: what `consumed` gave."""
    if query == "full":
        found = [value]
    else:
        con = duckdb.connect()
        con.register("given", value)
        found = list(workload.result(con, query, "given"))
    workload.require(found, workload.expected_result(root, change, query), f"{query} after {change}")


def check_rows(con: duckdb.DuckDBPyConnection, rows: str, root: Path, change: str, thorough: bool) -> None:
    """The rows of a table after a change: their number, and when thorough the checksum of all values."""
    wanted = workload.expected(root, change)
    if thorough:
        workload.require(workload.checksum(con, rows), wanted, f"all rows after {change}")
    else:
        workload.require(
            con.execute(f"SELECT count(*) FROM {rows}").fetchall()[0][0], wanted[0], f"rows after {change}"
        )


def parquet(files: Iterable[str | Path]) -> str:
    """A table function over these files."""
    return f"read_parquet({[str(f) for f in files]})"
