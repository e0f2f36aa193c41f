"""`%lakesql` and `%%lakesql`: statements in the cells of a notebook.

Which connection they run on: the one chosen by --connection or --warehouse, now or before; else the lakesql connection
that the notebook has in a variable (of several the one named `con`); else a new one on the folder `warehouse`. Variables
of the notebook that hold rows are tables.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
from IPython.core.magic import Magics, line_cell_magic, magics_class, needs_local_scope, no_var_expand
from traitlets import Bool, Int

from lakesql.counted import counted
from lakesql.engines import connect
from lakesql.errors import SQLError, StaleReadWarning, Unsupported
from lakesql.interrupt import interruptible
from lakesql.notebook import grid, options, problems
from lakesql.notebook.answer import Answer, fetched
from lakesql.notebook.bar import Bar, Waiting
from lakesql.notebook.options import Options
from lakesql.sql import python_objects
from lakesql.sql.connection import Connection
from lakesql.sql.lexer import Piece, split
from lakesql.sql.results import WRITE_SCHEMA
from lakesql.table.interrupts import interrupts
from lakesql.write import WriteResult

_CON = "con"
_INGESTIONS = ("INGEST", "REPLAY")


@magics_class
class LakeMagics(Magics):
    """The magics, and which connection they run on. `%config LakeMagics` has their settings."""

    rows = Int(grid.ROWS, help="How many rows of a result are shown.").tag(config=True)
    interactive = Bool(True, help="Whether long results are interactive tables.").tag(config=True)
    progress = Bool(True, help="Whether long statements show how they go on.").tag(config=True)

    def __init__(self, shell: Any = None, **settings: Any) -> None:
        super().__init__(shell=shell, **settings)
        self.progress = self.progress and hasattr(shell, "kernel")  # a terminal cannot draw it
        self._variable: str | None = None
        self._chosen: Connection | None = None
        self._made: dict[tuple[str, str], Connection] = {}

    @property
    def _names(self) -> dict[str, Any]:
        """The variables of the notebook."""
        shell: Any = self.shell
        return shell.user_ns  # type: ignore[no-any-return]

    @no_var_expand
    @needs_local_scope
    @line_cell_magic
    def lakesql(self, line: str, cell: str | None = None, local_ns: Mapping[str, Any] | None = None) -> Any:
        """Run SQL on Hudi tables, and everything DuckDB does."""
        try:
            with python_objects.names_of(local_ns or {}, self._names):
                return self._ran(line, cell, {**self._names, **(local_ns or {})})
        except problems.SHOWN as error:
            raise problems.plain(error).with_traceback(None) from None
        except KeyboardInterrupt:
            raise problems.plain(KeyboardInterrupt("the statement was stopped.")) from None

    def _ran(self, line: str, cell: str | None, names: Mapping[str, Any]) -> Any:
        chosen, rest = options.parse(line)
        if chosen.help or rest in ("?", "help"):
            print(options.USAGE)
            return None
        con = self.connection(names, chosen)
        pieces = split("\n".join(filter(None, (rest, cell))))
        if not pieces:
            return con
        if chosen.explain and len(pieces) > 1:
            raise SQLError("--explain takes one statement, these are several. Put the others into cells before it.")
        con.show_progress(Waiting if self.progress else nullcontext)
        return self._value(_run(con, pieces, chosen, self.progress, self._take), chosen)

    def _take(self, relation: duckdb.DuckDBPyRelation | None, chosen: Options) -> Any:
        """What a person asked for of the last result: a preview, a chart, or variables of the notebook."""
        if not chosen.variables and not chosen.plot:
            return None if relation is None else fetched(relation, chosen.rows or self.rows, chosen.meta)
        if relation is None:
            raise SQLError("the statement gives no rows, so there is nothing for the options of %lakesql to take.")
        taken = []
        for name, kind in chosen.variables.items():
            self._names[name] = value = _as(kind, relation)
            taken.append(f"{name}: {_size(value)}")
        if not chosen.plot:
            return taken
        from lakesql import plot

        return plot.result(relation)

    def _value(self, done: "_Done", chosen: Options) -> Any:
        """The value of the cell."""
        if chosen.plot:
            return done.taken
        if isinstance(done.taken, list):
            return Answer(done.relation, None, done.written, (*done.taken, *done.notes), self.interactive)
        if done.relation is None and not done.written and not done.notes:
            return None
        return Answer(done.relation, done.taken, done.written, done.notes, self.interactive)

    def connection(self, names: Mapping[str, Any], chosen: Options | None = None) -> Connection:
        """The connection that a cell with these options runs on."""
        chosen = chosen or Options()
        if chosen.connection and (chosen.warehouse or chosen.engine):
            raise SQLError(
                "give --connection or --warehouse and --engine, not both: a connection has its warehouse and engine."
            )
        if chosen.connection:
            found = names.get(chosen.connection)
            if not isinstance(found, Connection):
                raise SQLError(
                    f"--connection {chosen.connection}: that variable is {_kind(found)}, not a connection of lakesql. "
                    f"Make one: {chosen.connection} = lakesql.connect()"
                )
            self._variable, self._chosen = chosen.connection, None
        elif chosen.warehouse or chosen.engine:
            folder = chosen.warehouse or (self._chosen.warehouse if self._chosen else "warehouse")
            self._variable, self._chosen = None, self._of(folder, chosen.engine or "duckdb")
        if self._variable is not None and isinstance(names.get(self._variable), Connection):
            return names[self._variable]  # type: ignore[no-any-return]
        return self._chosen or _in_a_variable(names) or self._of("warehouse")

    def _of(self, warehouse: str, engine: str = "duckdb") -> Connection:
        """The connection to a warehouse that cells without one of their own share."""
        folder = warehouse if "://" in warehouse else str(Path(warehouse).expanduser().resolve())
        if (folder, engine) not in self._made:
            self._made[folder, engine] = connect(warehouse=folder, engine=engine)
        return self._made[folder, engine]


@dataclass(frozen=True, slots=True)
class _Done:
    """What the statements of a cell did: the last relation, what was taken of it, what was written, what to know."""

    relation: duckdb.DuckDBPyRelation | None
    taken: Any
    written: list[WriteResult]
    notes: list[str]


def _run(con: Connection, pieces: list[Piece], chosen: Options, progress: bool, take: Callable[..., Any]) -> _Done:
    """Run the statements of a cell one by one, and take what is wanted of the last one's result."""
    written: list[WriteResult] = []
    notes: list[str] = []
    relation = taken = None
    for number, piece in enumerate(pieces, 1):
        with suppress(duckdb.Error):
            con.duckdb.execute("SELECT 1").fetchall()  # what was left half fetched before would be in the way
        before = con.last_result
        text = f"EXPLAIN {piece.text.strip()}" if chosen.explain else piece.text
        with _watched(con, piece, progress):
            if number < len(pieces):
                con.execute(text)
            else:
                relation = con.sql(text)
        if con.last_result is not None and con.last_result is not before:
            written.append(con.last_result)
        if con.last_read and con.last_read.note:
            notes.append(con.last_read.note)
    relation = None if relation is None or _is_silent(relation, bool(written)) else relation
    with _watched(con, pieces[-1], progress):
        taken = take(relation, chosen)
    return _Done(relation, taken, written, notes)


@contextmanager
def _watched(con: Connection, piece: Piece, progress: bool) -> Iterator[None]:
    """Within, a statement shows how it goes on and can be interrupted."""
    ingests = piece.tokens[0].word in _INGESTIONS or [t.word for t in piece.tokens[:2]] == ["RUN", "INGESTION"]
    bar = Bar(con.duckdb, piece.text) if progress and not ingests else nullcontext()
    try:
        with warnings.catch_warnings(), interrupts(), interruptible(con.duckdb), bar:
            warnings.simplefilter("ignore", StaleReadWarning)  # it is a note of the answer
            yield
    except duckdb.InterruptException as error:
        raise KeyboardInterrupt from error


def _is_silent(relation: duckdb.DuckDBPyRelation, written: bool) -> bool:
    """Whether a relation only says that a statement ran, or what the write did that is shown anyway."""
    columns = list(relation.columns)
    if written and columns == WRITE_SCHEMA.names:
        return True
    return columns in (["Success"], ["Count"]) and not relation.fetchall()


def _in_a_variable(names: Mapping[str, Any]) -> Connection | None:
    """The one lakesql connection among the notebook's variables, of several the one named `con`."""
    found = {name: value for name, value in names.items() if isinstance(value, Connection) and not name.startswith("_")}
    different = {id(value): value for value in found.values()}
    if len(different) == 1:
        return next(iter(different.values()))
    if different and _CON not in found:
        raise SQLError(f"there are several connections: {', '.join(found)}. Choose one: %lakesql --connection NAME")
    return found.get(_CON)


def _kind(value: Any) -> str:
    return "not there" if value is None else f"of type {type(value).__name__}"


def _as(kind: str, relation: duckdb.DuckDBPyRelation) -> Any:
    """A result as what a variable is to hold."""
    try:
        if kind == "df":
            return relation.df()
        if kind == "pl":
            return relation.pl()
    except ImportError as error:
        package = {"df": "pandas", "pl": "polars"}[kind]
        raise Unsupported(f"--{kind} needs {package}: pip install {package}, or take --arrow.") from error
    return relation.to_arrow_table() if kind == "arrow" else relation


def _size(value: Any) -> str:
    if isinstance(value, duckdb.DuckDBPyRelation):
        return f"a relation with {counted(len(value.columns), 'column')}"
    rows, columns = value.shape
    return f"{counted(rows, 'row')}, {counted(columns, 'column')}"
