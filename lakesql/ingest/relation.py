"""The relation `kafka`: records that wait in a spool as views of a connection, and what a query over them gives.

Both kinds of target are asked the same way: the Hudi table over all its records, a folder of files over those of each topic.
"""

import duckdb
import pyarrow as pa

from lakesql.errors import IngestError, JobError
from lakesql.ingest.model import KAFKA
from lakesql.ingest.spool import Waiting


def register(con: duckdb.DuckDBPyConnection, where: str, name: str, wait: Waiting) -> dict[str, str]:
    """Make the view `name` of everything that waits, in order; its columns and their types, {} when none are known."""
    if wait.schema is None or (not wait.rows and set(wait.schema.names) <= set(KAFKA.names)):
        return {}
    names = [n.lower() for n in wait.schema.names]
    if twice := [n for n in names if names.count(n) > 1]:
        raise IngestError(
            f"{where}: the records have the column {twice[0]} twice, up to upper and lower case. "
            "Name it otherwise with AS SELECT over FORMAT STRING. Nothing was written."
        )
    con.register(f"{name}_none", wait.schema.empty_table())
    parts = [f"SELECT * FROM {name}_none"] if len(wait.tables) != 1 else []
    for number, table in enumerate(wait.tables):
        con.register(f"{name}_{number}", table)
        parts.append(f"SELECT * FROM {name}_{number}")
    order = "" if wait.sorted else " ORDER BY _topic, _partition, _offset"
    con.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {' UNION ALL BY NAME '.join(parts)}{order}")
    return described(con, f"SELECT * FROM {name}")


def described(con: duckdb.DuckDBPyConnection, sql: str) -> dict[str, str]:
    """The columns of a query and their DuckDB types."""
    return {str(row[0]): str(row[1]) for row in con.execute(f"DESCRIBE {sql}").fetchall()}


def schema_of(con: duckdb.DuckDBPyConnection, where: str, sql: str, columns: dict[str, str]) -> pa.Schema:
    """The columns of what is asked of the relation `kafka`, which has these columns. JobError when it cannot be asked."""
    try:
        if len(con.extract_statements(sql)) != 1:
            raise JobError(f"{where}: AS SELECT is more than one statement. Give one SELECT.")
        return con.sql(f"SELECT * FROM ({sql}\n) LIMIT 0").to_arrow_table().schema
    except duckdb.Error as error:
        raise JobError(
            f"{where}: AS SELECT does not fit the records: {plain(error)}. The relation kafka has the columns "
            f"{', '.join(columns)}. Nothing was written."
        ) from error


def query(select: str) -> str:
    """AS SELECT as it can stand in brackets: its last line may be a comment."""
    return select.strip().rstrip(";") + "\n"


def plain(error: duckdb.Error) -> str:
    """What DuckDB says, in one line and without the statement."""
    return " ".join(str(error).split("\n\nLINE ")[0].split())
