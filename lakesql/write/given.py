"""The connection during a write: our SQL runs under the settings it is written for, its TEMP tables go afterwards.

A query of the user means what their settings say; where these differ from ours it runs first, into a TEMP table.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

from lakesql.table.known_settings import INPUT_ORDER, differing, make_known, restored
from lakesql.write.held import drop
from lakesql.write.plan import COPIES, FATE, GIVEN, RESOLVED


@contextmanager
def own_settings(con: duckdb.DuckDBPyConnection, rows_sql: str) -> Iterator[str]:
    """A query of the given rows that may run under the settings of our SQL, which the connection has within."""
    with restored(con):
        if differing(con):
            make_known(con, INPUT_ORDER)
            con.execute(f"CREATE OR REPLACE TEMP TABLE {GIVEN} AS SELECT * FROM ({rows_sql})").fetchall()
            make_known(con)
            rows_sql = f"SELECT * FROM {GIVEN}"
        yield rows_sql


def tidy(con: duckdb.DuckDBPyConnection) -> list[str]:
    """Drop what a write made on the connection; a failure of that is not one of the write, but worth a sentence."""
    try:
        drop(con)
        for name in (GIVEN, COPIES, FATE, RESOLVED):
            con.execute(f"DROP TABLE IF EXISTS {name}")
    except duckdb.Error as error:
        return [f"Temporary tables of the write could not be dropped ({error}); they do no harm."]
    return []
