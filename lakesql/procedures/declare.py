"""What a stored procedure is: its name, parameters, output columns and the function behind it; and binding a CALL to it.

Names, parameters and columns are Hudi's (sql-surface A.4), so that scripts written for Spark run unchanged. Arguments are
given by name (`=>` or `:=`) or by position. `table` takes a table's name, `path` its folder; one of the two names the table.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import duckdb
import pyarrow as pa

from lakesql.errors import SQLError
from lakesql.storage import Storage
from lakesql.table.clock import Clock, system_clock
from lakesql.table.state import TableState, load

REQUIRED = object()
"""The default of a parameter that must be given."""

Rows = Iterable[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter. `kind` is a DuckDB type, into which an argument is cast; without a default it is REQUIRED."""

    name: str
    kind: str = "VARCHAR"
    default: Any = REQUIRED
    doc: str = ""


TABLE = Parameter("table", "VARCHAR", None, "name of the table")
PATH = Parameter("path", "VARCHAR", None, "folder of the table, instead of its name")
LIMIT = Parameter("limit", "BIGINT", 10, "at most so many rows")
FILTER = Parameter("filter", "VARCHAR", None, "SQL condition over the columns of the result")


@dataclass(frozen=True, slots=True)
class Call:
    """A CALL that is being run. `con` is a connection of its own, in UTC; `storage` is the table's, `settings` the writer's."""

    con: duckdb.DuckDBPyConnection
    arguments: Mapping[str, Any]
    settings: Mapping[str, str]
    resolve: Callable[[str], Storage]
    """The storage of a table by name or path. TableError when there is none."""
    settings_of: Callable[[Storage], Mapping[str, str]]
    """The settings of a table's services: what the table stores, then those of the connection."""
    clock: Clock = system_clock
    table: Storage | None = None
    user: duckdb.DuckDBPyConnection | None = None
    """The person's own connection, for what must be seen there: TEMP views, tables of the current database."""
    warehouse: str = ""
    """The folder of tables and of named ingestions."""

    @property
    def storage(self) -> Storage:
        assert self.table is not None, "only a procedure on a table has a storage"
        return self.table

    def state(self) -> TableState:
        """The table as it is now."""
        return load(self.storage)

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]


@dataclass(frozen=True, slots=True)
class Procedure:
    """A stored procedure. `table` and `path` come first when `of_table`, unless `parameters` has them elsewhere."""

    name: str
    doc: str
    """One sentence, for `CALL help()`."""
    columns: pa.Schema
    run: Callable[[Call], Rows | pa.Table]
    """Gives rows for the columns; or a whole table, where the columns depend on the table asked about."""
    parameters: tuple[Parameter, ...] = ()
    of_table: bool = True
    writes: bool | Callable[[Mapping[str, Any]], bool] = False
    """Whether it changes a table; a function of the arguments where they decide (`dry_run`)."""

    def changes(self, arguments: Mapping[str, Any]) -> bool:
        """Whether a call with these arguments changes a table."""
        return self.writes(arguments) if callable(self.writes) else self.writes

    @property
    def all_parameters(self) -> tuple[Parameter, ...]:
        return (TABLE, PATH, *self.parameters) if self.of_table and TABLE not in self.parameters else self.parameters

    def signature(self) -> str:
        """The parameters as one writes them, optional ones with their default."""
        return ", ".join(
            p.name if p.default is REQUIRED or p in (TABLE, PATH) else f"{p.name} => {shown(p.default)}"
            for p in self.all_parameters
        )


def shown(value: Any) -> str:
    """A default as SQL spells it."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    return f"'{value}'" if isinstance(value, str) else str(value)


def bind(procedure: Procedure, given: Sequence[tuple[str | None, Any]]) -> dict[str, Any]:
    """The value of every parameter from the arguments of a CALL, (name, value) or (None, value) by position.

    SQLError for an argument too many, unknown or twice, and for a required one that is missing.
    """
    positional = [p for p in procedure.all_parameters if p is not PATH]
    known = {p.name.lower(): p for p in procedure.all_parameters}
    values: dict[str, Any] = {}
    for place, (name, value) in enumerate(given):
        if name is None and place >= len(positional):
            raise SQLError(
                f"CALL {procedure.name}: {len(given)} arguments, it takes {procedure.signature() or 'none'}."
            )
        parameter = positional[place] if name is None else known.get(name.lower())
        if parameter is None:
            near = get_close_matches(str(name).lower(), known, 1)
            meant = f" Did you mean {known[near[0]].name}?" if near else ""
            raise SQLError(
                f"CALL {procedure.name}: no parameter {name}; it takes {procedure.signature() or 'none'}.{meant}"
            )
        if parameter.name in values:
            raise SQLError(f"CALL {procedure.name}: the argument {parameter.name} is given twice.")
        values[parameter.name] = value
    missing = [p.name for p in procedure.parameters if p.default is REQUIRED and values.get(p.name) is None]
    if procedure.of_table and (values.get("table") is None) == (values.get("path") is None):
        raise SQLError(f"CALL {procedure.name}: give table => 'name' or path => 'folder', one of them.")
    if missing:
        raise SQLError(f"CALL {procedure.name}: {', '.join(missing)} must be given; it takes {procedure.signature()}.")
    return {p.name: values.get(p.name, None if p.default is REQUIRED else p.default) for p in procedure.all_parameters}


def result(procedure: Procedure, rows: Rows | pa.Table) -> pa.Table:
    """The rows with the columns of the procedure; a column that a row lacks is NULL there."""
    if isinstance(rows, pa.Table):
        return rows
    return pa.Table.from_pylist([dict(row) for row in rows], schema=procedure.columns)


def columns(**kinds: str) -> pa.Schema:
    """A schema from column names to 'text', 'int', 'long', 'bool', 'double' or 'texts' (a list)."""
    types = {
        "text": pa.string(), "int": pa.int32(), "long": pa.int64(), "bool": pa.bool_(), "double": pa.float64(),
        "texts": pa.list_(pa.string()),
    }  # fmt: skip
    return pa.schema([(name, types[kind]) for name, kind in kinds.items()])
