"""`connect`: a connection whose statements run in DuckDB here, or on a Spark that is there already."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lakesql.errors import SQLError
from lakesql.sql import connection
from lakesql.stores.lock_object import LockObject
from lakesql.table.clock import Clock, system_clock

if TYPE_CHECKING:
    from lakesql.sql.connection import Connection

ENGINES = ("duckdb", "spark")


def connect(
    database: str = ":memory:",
    warehouse: str | os.PathLike[str] = "warehouse",
    config: Mapping[str, Any] | None = None,
    read_only: bool = False,
    *,
    engine: str = "duckdb",
    spark: Any = None,
    lock: LockObject | None = None,
    clock: Clock = system_clock,
) -> "Connection":
    """A connection with the tables of the folder `warehouse` as views.

    `database`: a DuckDB file, or memory; `config`: DuckDB's settings. With `read_only` neither the database file nor a
    Hudi table can be changed. `engine`: 'spark' reads and writes Hudi tables with the Spark session `spark`, or with one
    that is started here (`docs/spark.md`). `lock`: called with (path of a table, seconds to wait), a context manager to
    hold while the table is changed. `clock` gives epoch milliseconds, from which instants are made.
    """
    if engine not in ENGINES:
        raise SQLError(f"engine {engine!r} is unknown; use one of {', '.join(ENGINES)}.")
    if engine == "duckdb" and spark is not None:
        raise SQLError("a Spark session was given and the engine is duckdb; add engine='spark'.")
    if engine == "duckdb":
        return connection.connect(database, warehouse, config, read_only, lock=lock, clock=clock)
    if lock is not None:
        raise SQLError(
            "a lock was given and the engine is spark, which locks tables itself; set hoodie.write.lock.provider."
        )
    from lakesql.spark.connection import open_connection

    return open_connection(database, warehouse, dict(config or {}), read_only, spark, clock)
