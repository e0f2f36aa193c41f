"""lakesql: SQL on Apache Hudi tables without a JVM.

`connect()` gives a DuckDB connection that reads and writes Hudi tables in SQL, `register(con)` teaches a DuckDB
connection of yours to read them, `open_table` and `create_table` work without SQL text.

Names are loaded at their first use, so that a program pays for what it needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lakesql.errors import (
    CommitConflict,
    CommitUnknown,
    FormatError,
    LakeError,
    OverBudget,
    SQLError,
    StaleReadWarning,
    TableError,
    Unsupported,
)

if TYPE_CHECKING:
    from lakesql import plot as plot
    from lakesql.engines import connect
    from lakesql.handle import Table, create_table, open_table
    from lakesql.ingest.decode_python import register_decoder
    from lakesql.sql.connection import Connection
    from lakesql.sql.functions import register
    from lakesql.table.mergers import register_merger
    from lakesql.write import WriteResult

    __version__: str

_LATER = {
    "Connection": "lakesql.sql.connection",
    "Table": "lakesql.handle",
    "WriteResult": "lakesql.write",
    "connect": "lakesql.engines",
    "create_table": "lakesql.handle",
    "load_ipython_extension": "lakesql.notebook",
    "open_table": "lakesql.handle",
    "register": "lakesql.sql.functions",
    "register_decoder": "lakesql.ingest.decode_python",
    "register_merger": "lakesql.table.mergers",
    "unload_ipython_extension": "lakesql.notebook",
}

__all__ = [
    "CommitConflict",
    "CommitUnknown",
    "Connection",
    "FormatError",
    "LakeError",
    "OverBudget",
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


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("lakesql")
    elif name == "plot":
        value = import_module("lakesql.plot")
    elif name in _LATER:
        value = getattr(import_module(_LATER[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
