"""The records of a load as rows for `write`: the relation `kafka`, what is selected from it, and the table they make.

Everything happens on a connection of the load's own: views and TEMP tables go with it. The order of the rows is that of
topic, partition and offset, so it is a matter of the range alone.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import duckdb
import pyarrow as pa

from lakesql.counted import counted
from lakesql.errors import JobError, SQLError, TableError
from lakesql.ingest import relation, tombstones
from lakesql.ingest.model import Job
from lakesql.ingest.spool import Waiting
from lakesql.storage import Storage
from lakesql.table.names import literal, quote
from lakesql.table.state import PROPERTIES, TableState
from lakesql.write.columns import storable, with_new
from lakesql.write.names_of_settings import EVOLVE, RECONCILE, SYNONYMS
from lakesql.write.table_options import create_as, new_table_options

APPEND_OFFSETS = "hoodie.streamer.source.kafka.append.offsets"
ENVELOPE = "lakesql.envelope"
_DELETED = {"debezium": ("_change_operation_type", "d"), "dms": ("Op", "D")}

NO_KEY = "the record key is NULL or empty"
"""How the error of a row in quarantine begins that has no record key; its value is the decoded row."""

_KAFKA_TYPES = {
    "_topic": "VARCHAR",
    "_partition": "INTEGER",
    "_offset": "BIGINT",
    "_timestamp": "TIMESTAMPTZ",
    "_timestamp_type": "VARCHAR",
    "_key": "BLOB",
    "_headers": 'STRUCT("key" VARCHAR, "value" BLOB)[]',
}
_SOURCE = (
    "_offset AS _hoodie_kafka_source_offset, _partition AS _hoodie_kafka_source_partition, "
    "epoch_ms(_timestamp) AS _hoodie_kafka_source_timestamp, TRY(decode(_key)) AS _hoodie_kafka_source_key"
)
_ALL = "SELECT * FROM __lakesql_rows"


def appends_offsets(options: Mapping[str, str]) -> bool:
    return options.get(APPEND_OFFSETS, "").lower() == "true"


def evolves(settings: Mapping[str, str]) -> bool:
    """Whether a table with these properties and settings takes columns that it does not have yet."""
    return any(settings.get(key, "").lower() == "true" for key in (EVOLVE, RECONCILE))


class Batch:
    """The records of a load as relations on a connection, and as rows for `write`."""

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        storage: Storage,
        job: Job,
        options: Mapping[str, str],
        rows: Waiting,
        deletes: Waiting,
    ) -> None:
        self.con = con
        self.storage, self.path = storage, storage.uri
        self.target, self.select = job.target, job.target.select
        self.options = options
        self.rows, self.deletes = rows, deletes
        self.voided = 0  # rows that a later tombstone of their key voids
        self.unkeyed: pa.Table | None = None  # rows without a record key, as records of the quarantine
        self.as_they_are: pa.Table | None = None  # the rows of the last `rows_sql`, where they are those of the spool
        self.columns = relation.register(con, self.path, "__lakesql_rows", rows)
        self.tomb_columns = relation.register(con, self.path, "__lakesql_tombs", deletes)

    def make_table(self) -> bool:
        """Create the table with the columns of the rows; False when these are not known."""
        if not self.columns:
            return False
        self._kafka("SELECT * FROM __lakesql_rows")
        schema = self._schema()
        kept = pa.schema([f for f in schema if not pa.types.is_null(f.type)])
        given = {k: v for k, v in self.options.items() if k in SYNONYMS}
        try:
            options = new_table_options(
                self.target.properties, self.target.partition_by, self.path.rsplit("/", 1)[-1], given
            )
        except SQLError as error:
            raise JobError(f"{self.path}: {error}") from error
        try:
            create_as(self.storage, storable(kept), options)
        except TableError:
            if self.storage.stat(PROPERTIES) is None:  # else another run made it just now
                raise
        return True

    def rows_sql(self, table: TableState, operation: str, notes: list[str]) -> tuple[str, TableState]:
        """The rows of this batch for a table as it is now, and the table with the columns that they add."""
        self.voided, self.unkeyed, self.as_they_are = 0, None, None
        live = _ALL
        first = last = None
        if self.deletes.rows:
            why = tombstones.meaningless(table, operation, self.options.get(ENVELOPE, "").lower())
            if why is None and not self.select:
                why = tombstones.unsaid(table, self.tomb_columns)
            if why is not None:
                notes.append(f"{counted(self.deletes.rows, 'tombstone')} skipped: {why}.")
            else:
                live, first, last = self._settled(table, notes)
        if self.rows.rows and not table.config.delete_field:
            self._say_kept_deletes(notes)
        if not self.rows.rows:
            self.con.register("__lakesql_none", table.schema.empty_table())
            rows = "SELECT * FROM __lakesql_none"
        else:
            kept = self._keyed(live, table, notes)
            self._kafka(kept)
            if kept == _ALL and self.rows.sorted and len(self.rows.tables) == 1 and not (self.select or first or last):
                mine = [name for name in self.rows.tables[0].column_names if name not in _KAFKA_TYPES]
                self.as_they_are = self.rows.tables[0].select(mine)
            schema = self._schema()
            rows = self._selected()
            if gone := [f.name for f in schema if pa.types.is_null(f.type) and f.name not in table.schema.names]:
                rows = f"SELECT * EXCLUDE ({', '.join(map(quote, gone))}) FROM ({rows})"
            if evolves({**table.config.properties, **self.options}):
                table = with_new(table, schema, [n for n in schema.names if n not in gone])
        parts = [first, rows if first is None and last is None else f"SELECT * FROM ({rows})", last]
        return " UNION ALL BY NAME ".join(p for p in parts if p), table

    def _say_kept_deletes(self, notes: list[str]) -> None:
        """A note about deletes of change events, which a table without such a payload class keeps as rows."""
        column, mark = _DELETED.get(self.options.get(ENVELOPE, "").lower(), ("", ""))
        if column not in self.columns:
            return
        sql = f"SELECT count(*) FROM __lakesql_rows WHERE CAST({quote(column)} AS VARCHAR) = '{mark}'"
        if kept := self.con.execute(sql).fetchall()[0][0]:
            notes.append(
                f"{counted(kept, 'delete')} of change events kept as rows with {column} = '{mark}': the table has no payload class "
                "that applies them (payloadClass in TBLPROPERTIES of a new table)."
            )

    def _settled(self, table: TableState, notes: list[str]) -> tuple[str, str | None, str | None]:
        """SQL of the rows that stay, of the deletes before them, of those behind them."""
        columns = self.columns
        if not columns:
            # Nothing says the columns of the relation `kafka`; the table's are the best guess there is.
            self.con.register("__lakesql_none", table.schema.empty_table())
            kafka = ", ".join(f"CAST(NULL AS {kind}) AS {quote(n)}" for n, kind in _KAFKA_TYPES.items())
            self.con.execute(
                f"CREATE OR REPLACE TEMP VIEW __lakesql_rows AS SELECT * FROM __lakesql_none, (SELECT {kafka})"
            )
            columns = relation.described(self.con, "SELECT * FROM __lakesql_rows")
        tombs = "__lakesql_tombs"
        if self.select:
            self._kafka(tombstones.together(columns, tombs))
            with self._over_tombstones():
                tombs = tombstones.meant(self.con, table, self._selected(), tombs, notes)
        live, self.voided = tombstones.settle(self.con, "__lakesql_rows", columns, tombs, self.tomb_columns)
        found = []
        for number, later in enumerate((True, False)):
            self._kafka(tombstones.as_rows(columns, later))
            with self._over_tombstones():
                found.append(tombstones.deletes_sql(self.con, table, self._selected(), number, notes))
        return live, found[0], found[1]

    @contextmanager
    def _over_tombstones(self) -> Iterator[None]:
        """JobError for what is the fault of AS SELECT; not for memory that is out, files or an interrupt."""
        try:
            yield
        except (duckdb.ProgrammingError, duckdb.DataError, duckdb.NotSupportedError) as error:
            raise JobError(
                f"{self.path}: AS SELECT cannot run over tombstones: {relation.plain(error)}. They are rows with NULL in every column "
                "that is not of the key; a run without other rows knows the columns of the key and of the table. "
                "Nothing was committed. Correct the SELECT, or give the columns in the format."
            ) from error

    def _keyed(self, live: str, table: TableState, notes: list[str]) -> str:
        """SQL of those rows that have a record key; the others go to `unkeyed`.

        Behind AS SELECT nothing tells which record a row is of, so there a missing key stays an error of the write.
        """
        fields = table.config.record_key_fields
        by_name = {name.lower(): name for name in self.columns}
        if self.select or not fields or any(f.lower() not in by_name for f in fields):
            return live
        names = [quote(by_name[f.lower()]) for f in fields]
        lacking = " AND ".join(f"({name} IS NULL OR CAST({name} AS VARCHAR) = '')" for name in names)
        count = int(self.con.execute(f"SELECT count(*) FROM ({live}) WHERE {lacking}").fetchall()[0][0])
        if not count:
            return live
        own = ", ".join(quote(c) for c in self.columns if c not in _KAFKA_TYPES)
        error = f"{NO_KEY} (columns: {', '.join(fields)}); the value is shown as decoded"
        self.unkeyed = self.con.sql(
            f"SELECT {', '.join(_KAFKA_TYPES)}, encode(CAST((SELECT to_json(d) FROM (SELECT {own}) d) AS VARCHAR)) AS "
            f"_value, CAST(NULL AS VARCHAR) AS schema_id, 'key' AS stage, {literal(error)} AS error "
            f"FROM ({live}) WHERE {lacking} ORDER BY _topic, _partition, _offset"
        ).to_arrow_table()
        notes.append(f"{counted(count, 'record')} without a record key went to the quarantine.")
        return f"SELECT * FROM ({live}) WHERE NOT ({lacking})"

    def _kafka(self, sql: str) -> None:
        self.con.execute(f"CREATE OR REPLACE TEMP VIEW kafka AS {sql}")

    def _selected(self) -> str:
        """What is asked of the relation `kafka`."""
        if self.select:
            return relation.query(self.select)
        given = relation.described(self.con, "SELECT * FROM kafka")
        drop = ", ".join(c for c in _KAFKA_TYPES if c in given)
        source = f", {_SOURCE}" if appends_offsets(self.options) else ""
        return f"SELECT * EXCLUDE ({drop}){source} FROM kafka"

    def _schema(self) -> pa.Schema:
        return relation.schema_of(self.con, self.path, self._selected(), self.columns)
