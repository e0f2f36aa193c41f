"""lakesql: SQL on Apache Hudi tables without a JVM.

`connect()` gives a DuckDB connection that reads and writes Hudi tables in SQL, `register(con)` teaches a DuckDB
connection of yours to read them, `open_table` and `create_table` work without SQL text.
"""

from importlib.metadata import version as _version

from lakesql.errors import (
    CommitConflict,
    CommitUnknown,
    FormatError,
    LakeError,
    SQLError,
    StaleReadWarning,
    TableError,
    Unsupported,
)
from lakesql.handle import Table, create_table, open_table
from lakesql.ingest.decode_python import register_decoder
from lakesql.sql.connection import Connection, connect
from lakesql.sql.functions import register
from lakesql.table.mergers import register_merger
from lakesql.write import WriteResult

__version__ = _version("lakesql")

__all__ = [
    "CommitConflict",
    "CommitUnknown",
    "Connection",
    "FormatError",
    "LakeError",
    "SQLError",
    "StaleReadWarning",
    "Table",
    "TableError",
    "Unsupported",
    "WriteResult",
    "__version__",
    "connect",
    "create_table",
    "open_table",
    "register",
    "register_decoder",
    "register_merger",
]
