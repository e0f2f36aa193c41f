"""What lakesql keeps per DuckDB instance: which names are Hudi tables, and which state of a table a transaction sees.

All connections and cursors of one instance share an `Instance`; it is found again through the UDF itself, which
answers a call without arguments with the instance's id. A snapshot is kept per (path, transaction id), so a
statement sees one instant of a table however often it names it, and so does everything between BEGIN and COMMIT.
States that are equal are one object, so thousands of transactions cost no more than the distinct states they saw.

The planner needs a DuckDB connection: a cursor of the one that was registered, or, when that is gone or locked, of a
spare one.
"""

import threading
import uuid
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import duckdb
import pyarrow as pa

from lakesql.errors import LakeError, SQLError, TableError
from lakesql.storage import Storage, open_storage
from lakesql.stores import settings as store_settings
from lakesql.table import live
from lakesql.table.known_settings import make_utc
from lakesql.table.lists import FileList, by_number, handed
from lakesql.table.names import literal

if TYPE_CHECKING:
    from lakesql.services.freshness import LastRead
    from lakesql.table.state import TableState

UDF = "lakesql_plan"
SNAPSHOTS_MAX = 10_000
QUERIES_MAX = 128
UNOWNED_MAX = 16
"""Plans of connections that are DuckDB's own: so many are taken to be still read."""

Arguments = tuple[str | None, ...]
Planner = Callable[[duckdb.DuckDBPyConnection, "TableState", Arguments], "str | tuple[str, LastRead]"]
"""The SQL of a table function, and for a read of rows what kind of read it is."""


@dataclass(frozen=True, slots=True)
class Free:
    """The planner of a table function that is not about the state of one Hudi table."""

    plan: Callable[["Instance", str, Arguments, int], str]
    """The SQL, from the instance, the first argument, the others, and the transaction."""


class Owner:
    """Who runs statements: one per connection of the user, as long as it is open."""


class Instance:
    """The state of lakesql in one DuckDB instance."""

    def __init__(self, con: duckdb.DuckDBPyConnection, planners: dict[str, Planner | Free]) -> None:
        self.id = uuid.uuid4().hex
        self.last_error: LakeError | None = None
        self._planners = planners
        self._con = weakref.ref(con)
        self.stores = store_settings.Stores()
        """Settings and secrets of object stores, of all connections here."""
        self.homes: list[str] = []
        """Folders of tables of the connections here; a table that does not exist yet would be made in one."""
        self._names: dict[str, tuple[str, str]] = {}  # lower case -> (name as given, path)
        self._lock = threading.RLock()
        self._snapshots: OrderedDict[tuple[str, int], TableState] = OrderedDict()
        self._newest: dict[str, TableState] = {}
        self._storages: dict[str, Storage] = {}
        self._remote: Storage | None = None
        """A storage whose files DuckDB opens by a file system of ours, if there is one."""
        self._queries: OrderedDict[tuple[str, str, Arguments, int], tuple[str, LastRead | None, list[FileList]]] = (
            OrderedDict()
        )
        self._thread = threading.local()
        self._owners: weakref.WeakSet[Owner] = weakref.WeakSet()
        self._reading: weakref.WeakKeyDictionary[Owner, tuple[int, list[live.Held]]] = weakref.WeakKeyDictionary()
        self._unowned: deque[list[live.Held]] = deque(maxlen=UNOWNED_MAX)

    def adopt(self, con: duckdb.DuckDBPyConnection) -> None:
        """Plan with cursors of this connection from now on."""
        self._con = weakref.ref(con)

    # ------------------------------------------------------------ names

    def add(self, name: str, path: str) -> None:
        """Let `name` mean the table at `path`."""
        with self._lock:
            self._names[name.lower()] = name, path

    def remove(self, name: str) -> None:
        """Forget a name."""
        with self._lock:
            self._names.pop(name.lower(), None)

    def path_of(self, name: str) -> str | None:
        """The path behind a name, None for an unknown one."""
        found = self._names.get(name.lower())
        return found[1] if found else None

    def tables(self) -> dict[str, str]:
        """Name -> path of every table known, sorted by name."""
        return dict(sorted(self._names.values()))

    # ------------------------------------------------------------ snapshots

    def snapshot(self, table: str, transaction: int) -> "TableState":
        """The state of a table, by name or path, that this transaction sees; looked up at its first use.

        Raises TableError, FormatError or Unsupported as `state.load` does.
        """
        from lakesql.table.listing import look

        path = self.path_of(table) or _full_path(table)
        key = path, transaction
        with self._lock:
            known = self._snapshots.get(key)
            if known is not None:
                self._snapshots.move_to_end(key)
                return known
        found = look(self.storage(path))
        with self._lock:
            newest = self._newest.get(path)
            if newest is not None and not newest.is_broken and newest == found:
                found = newest  # the storage may not be one that `look` remembers
            self._newest[path] = found
            # Another thread cannot have the same transaction, but a name and a path may lead here at once.
            found = self._snapshots.setdefault(key, found)
            while len(self._snapshots) > SNAPSHOTS_MAX:
                self._snapshots.popitem(last=False)
        return found

    def storage(self, table: str) -> Storage:
        """The storage of a table by name or path: always the same one, which `look` remembers what it has listed of."""
        path = self.path_of(table) or _full_path(table)
        with self._lock:
            known = self._storages.get(path)
            if known is None:
                with store_settings.chosen(self.stores):
                    known = self._storages[path] = open_storage(path)
                if known.remote:
                    self._remote = known
                    with self.cursor():
                        pass  # the user's own statements need it too
            return known

    def forget(self) -> None:
        """Drop every state and query kept; they are looked up again when asked for."""
        with self._lock:
            self._snapshots.clear()
            self._newest.clear()
            self._storages.clear()
            self._queries.clear()

    # ------------------------------------------------------------ results that may be read on

    def own(self, owner: Owner) -> None:
        """From now on this thread runs statements for `owner`."""
        self._thread.owner = weakref.ref(owner)

    def disown(self) -> None:
        """From now on this thread runs statements for nobody known: DuckDB's own connections."""
        self._thread.owner = None

    def keep_unowned(self, count: int) -> None:
        """Take so many plans of DuckDB's own connections to be still read."""
        with self._lock:
            self._unowned = deque(self._unowned, maxlen=count)

    def join(self, owner: Owner) -> None:
        """A connection was opened."""
        with self._lock:
            self._owners.add(owner)

    def leave(self, owner: Owner) -> bool:
        """A connection is closed; whether it was the last one."""
        with self._lock:
            self._reading.pop(owner, None)
            self._owners.discard(owner)
            return not self._owners

    def release(self, owner: Owner) -> None:
        """The owner's last result is not read on."""
        with self._lock:
            self._reading.pop(owner, None)

    def _keep(self, transaction: int, held: list[live.Held]) -> None:
        """Keep a plan's files until its owner goes on: a connection reads one result at a time, in one transaction."""
        owned = getattr(self._thread, "owner", None)
        owner = owned() if owned is not None else None
        with self._lock:
            if owner is None:
                self._unowned.append(held)
                return
            before = self._reading.get(owner)
            if before is not None and before[0] == transaction:
                held = [*before[1], *held]
            self._reading[owner] = transaction, held

    # ------------------------------------------------------------ the UDF

    def plan(self, function: str | None, table: str | None, arguments: list[str | None], transaction: int) -> str:
        """The SQL that a table function stands for; of an error, SQL that fails at bind with its text alone."""
        if function is None:
            return self.id
        try:
            with store_settings.chosen(self.stores):
                return self._query(function, table, tuple(arguments), transaction)
        except LakeError as error:
            self.last_error = error
            return f"FROM query(error({literal(str(error))}))"
        except (OSError, duckdb.Error) as error:
            return f"FROM query(error({literal(f'{function}({table}): {error}')}))"

    @contextmanager
    def columns_only(self, schema: pa.Schema) -> Iterator[None]:
        """Within, scans planned by this thread give these columns and no rows: enough to make a view."""
        self._thread.columns_only = schema
        try:
            yield
        finally:
            self._thread.columns_only = None

    @contextmanager
    def shapes_of(self, functions: Collection[str]) -> Iterator[None]:
        """Within, these functions give their table's columns and no rows: enough to bind a statement that runs elsewhere."""
        self._thread.shapes_of = functions
        try:
            yield
        finally:
            self._thread.shapes_of = ()

    def _query(self, function: str, table: str | None, arguments: Arguments, transaction: int) -> str:
        if table is None:
            raise SQLError(f"{function}: the table is NULL. Give a path, or the name of a table.")
        schema = getattr(self._thread, "columns_only", None)
        if schema is None and function in getattr(self._thread, "shapes_of", ()):
            from lakesql.table import read

            schema = read.columns(self.snapshot(table, transaction))
        if schema is not None:
            from lakesql.table.scan import empty_sql

            return empty_sql(schema, schema.names)
        key = function, table, arguments, transaction
        with self._lock:
            known = self._queries.get(key)
        if known is not None:
            self._note(known[1])
            handed(known[2])
            return known[0]
        planner = self._planners[function]
        with ExitStack() as opened, live.noted() as held, by_number() as lists:
            if isinstance(planner, Free):
                made: str | tuple[str, LastRead] = planner.plan(self, table, arguments, transaction)
            else:
                state = self.snapshot(table, transaction)
                # Most plans are text alone; a connection of our own takes longer to open than they take to make.
                cursor = cast(duckdb.DuckDBPyConnection, _Late(lambda: opened.enter_context(self.cursor())))
                made = planner(cursor, state, arguments)
        text, last = made if isinstance(made, tuple) else (made, None)
        self._note(last)
        self._keep(transaction, held)
        handed(lists)
        with self._lock:
            self._queries[key] = text, last, lists
            while len(self._queries) > QUERIES_MAX:
                self._queries.popitem(last=False)
        return text

    def _note(self, last: "LastRead | None") -> None:
        if last is not None:
            self.reads().append(last)

    def reads(self) -> "list[LastRead]":
        """What this thread has read since somebody cleared the list."""
        if not hasattr(self._thread, "reads"):
            self._thread.reads = []
        found: list[LastRead] = self._thread.reads
        return found

    @contextmanager
    def cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection for statements of our own, closed at the end. Never the user's: that one is busy."""
        con = self._con()
        try:
            cursor = con.cursor() if con is not None else _spare().cursor()
            make_utc(cursor)
        except (duckdb.Error, TableError):  # closed, or its configuration is locked
            cursor = _spare().cursor()
            make_utc(cursor)
        try:
            if self._remote is not None:
                self._remote.attach(cursor)
            yield cursor
        finally:
            cursor.close()


class _Late:
    """Something that is made when it is first used."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._made: Any = None

    def __getattr__(self, name: str) -> Any:
        if self._made is None:
            self._made = self._make()
        return getattr(self._made, name)


def _full_path(text: str) -> str:
    return open_storage(text).uri


_spare_con: duckdb.DuckDBPyConnection | None = None
_spare_lock = threading.Lock()


def _spare() -> duckdb.DuckDBPyConnection:
    """A connection of our own, for instances whose registered connection was closed while others go on."""
    global _spare_con
    with _spare_lock:
        if _spare_con is None:
            _spare_con = duckdb.connect(":memory:")
        return _spare_con
