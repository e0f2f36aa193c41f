"""AS SELECT into files: records wait in a spool, and at the commit the query runs over those of each topic.

The relation `kafka` has all records of the topic in this commit, in the order of partition and offset, so that what the
query gives does not depend on batches, tasks or threads. What it selects is what the files hold. The folder of a row's
time is that of the configured column, which must be among the selected ones, else of a selected `_timestamp`.
"""

from collections.abc import Iterator
from dataclasses import replace

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakesql.errors import JobError
from lakesql.ingest import relation
from lakesql.ingest.model import Decoded, WorkUnit
from lakesql.ingest.spool import Spool, Waiting
from lakesql.table.known_settings import make_utc

BATCH_ROWS = 50_000
_TIME = "_timestamp"


class Selection:
    """The records of a load, and what a query makes of them. `where` names the folder in errors."""

    def __init__(self, con: duckdb.DuckDBPyConnection, select: str, where: str, spool: Spool) -> None:
        self._con, self._sql, self._where, self._spool = con, relation.query(select), where, spool

    def take(self, unit: WorkUnit, decoded: Decoded) -> None:
        """Keep the records of one batch. One thread at a time per unit."""
        for kind, table in (("rows", decoded.rows), ("bad", decoded.bad)):
            if table.num_rows:
                self._spool.add(unit.group, kind, table)

    def forget(self, unit: WorkUnit) -> None:
        """What was taken for this unit does not count."""
        self._spool.forget(unit.group)

    def close(self) -> None:
        """Remove what waits. Harmless the second time."""
        self._spool.close()

    def bad(self) -> tuple[pa.Table, ...]:
        """The records that could not be decoded, in order."""
        return self._spool.waiting("bad").tables

    def selected(self) -> Iterator[tuple[str, pa.Table]]:
        """(topic, selected rows), topic after topic. JobError when the query does not fit the records."""
        wait = self._spool.waiting("rows")
        topics = sorted({name for table in wait.tables for name in pc.unique(table["_topic"]).to_pylist()})
        con = self._con.cursor()
        try:
            make_utc(con)
            for topic in topics:
                yield from ((topic, table) for table in self._of(con, _only(wait, topic)))
        finally:
            con.close()

    def _of(self, con: duckdb.DuckDBPyConnection, wait: Waiting) -> Iterator[pa.Table]:
        columns = relation.register(con, self._where, "__lakesql_rows", wait)
        con.execute("CREATE OR REPLACE TEMP VIEW kafka AS SELECT * FROM __lakesql_rows").fetchall()
        schema = relation.schema_of(con, self._where, self._sql, columns)
        if nothing := [f.name for f in schema if pa.types.is_null(f.type)]:
            raise JobError(
                f"{self._where}: the selected column {nothing[0]} is NULL without a type, which no file holds. CAST it. "
                "Nothing was committed."
            )
        try:
            for batch in con.sql(self._sql).to_arrow_reader(BATCH_ROWS):
                yield pa.Table.from_batches([batch])
        except duckdb.Error as error:
            raise JobError(
                f"{self._where}: AS SELECT fails over the records: {relation.plain(error)}. Correct it, or TRY_CAST what "
                "some records do not have. Nothing was committed."
            ) from error


def timed(rows: pa.Table, configured: bool, where: str) -> pa.Table:
    """Selected rows with a Kafka timestamp to choose their folder by; NULL where they have none but another time."""
    if _TIME in rows.schema.names and pa.types.is_timestamp(rows.schema.field(_TIME).type):
        at = rows.schema.get_field_index(_TIME)
        floor = pc.floor_temporal(rows.column(at), unit="millisecond")
        return rows.set_column(at, _TIME, floor.cast(pa.timestamp("ms", "UTC"), safe=False))
    if not configured:
        raise JobError(
            f"{where}: AS SELECT gives no time for the folders of its rows. Select {_TIME}, or name a selected column in "
            "writer.partition.column.name, or set lakesql.files.layout = task. Nothing was committed."
        )
    others = rows.drop_columns([_TIME]) if _TIME in rows.schema.names else rows
    return others.append_column(_TIME, pa.nulls(rows.num_rows, pa.timestamp("ms", "UTC")))


def _only(wait: Waiting, topic: str) -> Waiting:
    """What waits of one topic."""
    tables = []
    for table in wait.tables:
        rows = np.flatnonzero(pc.equal(table["_topic"], topic).to_numpy())
        if len(rows) and rows[-1] - rows[0] + 1 == len(rows):
            tables.append(table.slice(rows[0], len(rows)))  # as it lies in the spool, not in memory
        elif len(rows):
            tables.append(table.take(pa.array(rows)))
    schema = pa.unify_schemas([table.schema for table in tables], promote_options="permissive")
    return replace(wait, tables=tuple(tables), schema=schema, rows=sum(t.num_rows for t in tables))
