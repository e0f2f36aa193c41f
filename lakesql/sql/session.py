"""What the running of a statement needs: the DuckDB connection, the tables known, the settings; and a few
questions to it."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import duckdb

from lakesql.errors import LakeError, SQLError, TableError
from lakesql.sql.instance import Instance, Owner
from lakesql.sql.nodes import Name
from lakesql.storage import open_storage
from lakesql.table.clock import Clock, system_clock

if TYPE_CHECKING:
    from lakesql.ingest.progress import Progress
    from lakesql.services.freshness import LastRead
    from lakesql.stores.calls import Meter
    from lakesql.stores.lock_object import LockObject
    from lakesql.write import WriteResult

_SCHEMAS = {"main", "default", "spark_catalog"}

TABLE_PREFIXES = (
    "hoodie.table.",
    "hoodie.record.merge.",
    "hoodie.keygen.",
    "hoodie.timeline.",
    "hoodie.bootstrap.",
    "hoodie.populate.meta.fields",
    "hoodie.compaction.payload.class",
    "hoodie.compaction.record.merger.strategy",
    "hoodie.archivelog.folder",
    "hoodie.database.name",
    "hoodie.partition.metafile.use.base.format",
    "hoodie.datasource.write.hive_style_partitioning",
    "hoodie.datasource.write.partitionpath.urlencode",
    "hoodie.datasource.write.drop.partition.columns",
    "hoodie.datasource.write.slash.separated.date.partitioning",
)
"""Keys of hoodie.properties that say what a table is; every other key there is a setting for its writers."""


@dataclass(slots=True)
class Session:
    """One connection of the user. `settings`: what SET hoodie.x = y left, by key."""

    con: duckdb.DuckDBPyConnection
    instance: Instance
    warehouse: str
    read_only: bool
    database: str
    in_memory: bool
    home: str
    """What goes before the name of a view or macro of ours, so that it is found after USE; '' where they are TEMP."""
    clock: Clock = system_clock
    read_only_text: str = "the connection is read-only; connect without read_only=True to change Hudi tables."
    settings: dict[str, str] = field(default_factory=dict)
    problems: dict[str, LakeError] = field(default_factory=dict)
    """Tables of the warehouse that cannot be read, by lower-case name."""
    rereadable: set[str] = field(default_factory=set)
    """Names registered on the connection, in lower case, whose rows can be read more than once."""
    last_result: "WriteResult | None" = None
    last_reads: "tuple[LastRead, ...]" = ()
    lock: "LockObject | None" = None
    """What the person passed to lock tables with."""
    last_requests: "Meter | None" = None
    owner: Owner = field(default_factory=Owner)
    progress: "Callable[[], AbstractContextManager[Progress | None]]" = nullcontext
    """What a person sees while a statement runs an ingestion; nothing, unless a terminal says otherwise."""

    def path_of(self, name: Name) -> str | None:
        """The path of the Hudi table a name means; None when it means none of ours."""
        if len(name) == 2 and name[0].lower() == "hudi" and ("/" in name[1] or name[1].startswith(".")):
            return open_storage(name[1]).uri
        if any(part.lower() not in _SCHEMAS and part.lower() != self.database.lower() for part in name[:-1]):
            return None
        path = self.instance.path_of(name[-1])
        if path is not None and len(name) == 1 and self._means_another_table(name[0]):
            return None
        return path

    def _means_another_table(self, name: str) -> bool:
        """Whether DuckDB finds something else under a bare name: after USE, or a TEMP table."""
        sql = (
            "SELECT current_database() <> $1 OR EXISTS (SELECT 1 FROM duckdb_tables() WHERE lower(table_name) = $2 "
            "AND (temporary OR database_name = $1 AND schema_name = current_schema())) "
            "OR current_schema() <> 'main' AND EXISTS (SELECT 1 FROM duckdb_views() WHERE lower(view_name) = $2 "
            "AND database_name = $1 AND schema_name = current_schema())"
        )
        return bool(self.con.execute(sql, [self.database, name.lower()]).fetchall()[0][0])

    def is_hudi(self, name: Name) -> bool:
        """Whether a name means a Hudi table."""
        return self.path_of(name) is not None

    def require_path(self, name: Name) -> str:
        """The path of the Hudi table a name means; TableError when there is none."""
        path = self.path_of(name)
        if path is None:
            known = ", ".join(self.instance.tables()) or "none"
            raise TableError(f"{'.'.join(name)} is not a Hudi table of this connection; known: {known}.")
        return path

    def plain_name(self, name: Name) -> str:
        """The last part of the name of a new table; SQLError for a schema, there are none."""
        wrong = [part for part in name[:-1] if part.lower() not in _SCHEMAS and part.lower() != self.database.lower()]
        if wrong:
            raise SQLError(f"{'.'.join(name)}: Hudi tables live in the schema main; leave {wrong[0]} out.")
        if "/" in name[-1] or "\\" in name[-1] or name[-1].startswith("."):
            raise SQLError(f"{name[-1]!r} cannot name a table: it would be a path. Use LOCATION for the path.")
        return name[-1]

    def managed_path(self, name: str) -> str:
        """Where a table without LOCATION lies."""
        return open_storage(f"{self.warehouse.rstrip('/')}/{name}").uri

    def write_settings(self, properties: Mapping[str, str]) -> dict[str, str]:
        """The settings of a write: those stored with the table, then those of the session."""
        stored = {k: v for k, v in properties.items() if k.startswith("hoodie.") and not k.startswith(TABLE_PREFIXES)}
        return stored | {k: v for k, v in self.settings.items() if k.startswith(("hoodie.", "lakesql."))}

    def service_settings(self, properties: Mapping[str, str]) -> dict[str, str]:
        """The settings of a table service: all that the table stores, then those of the session."""
        return {**properties, **self.write_settings(properties)}

    def cause(self, error: duckdb.Error) -> Exception:
        """The error of ours that a table function put into one of DuckDB's, or DuckDB's error itself."""
        last = self.instance.last_error
        return last if last is not None and str(last) in str(error) else error

    def drain(self) -> None:
        """Give up a result of the connection that was not fetched to its end."""
        self.con.execute("SELECT 1").fetchall()

    def in_transaction(self) -> bool:
        """Whether the connection is between BEGIN and COMMIT: then two statements have one transaction id."""
        first, second = (self.con.execute("SELECT txid_current()").fetchall()[0][0] for _ in range(2))
        return bool(first == second)

    def require_writable(self) -> None:
        """TableError on a connection that changes no Hudi table."""
        if self.read_only:
            raise TableError(self.read_only_text)

    def require_no_transaction(self, what: str) -> None:
        """SQLError inside of BEGIN ... COMMIT: a Hudi commit cannot be taken back by ROLLBACK."""
        if self.in_transaction():
            raise SQLError(
                f"{what} inside a transaction: each statement on a Hudi table is a commit of its own and ROLLBACK "
                f"could "
                "not take it back. COMMIT or ROLLBACK first, then run the statement."
            )
