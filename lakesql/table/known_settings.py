"""DuckDB's settings as our own SQL expects them, whatever the user has SET on the connection.

Sort order, collation, division and the types that reach Arrow all depend on settings; a user may change them for
queries, and that must not move rows between files or merge keys. SQL of ours on a connection of the user runs within
`known_settings`, which changes what differs for this session only and puts it back. The usual case, nothing differs,
costs one query without a scan.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

import duckdb

from lakesql.errors import TableError
from lakesql.table.names import literal

Connection = duckdb.DuckDBPyConnection

KNOWN: dict[str, tuple[str, ...]] = {
    "default_order": ("ASC", "ASCENDING"),
    "default_null_order": ("NULLS_LAST", "NULLS LAST", "LAST"),
    "default_collation": ("", "BINARY", "C", "POSIX"),
    "preserve_insertion_order": ("true",),
    "ieee_floating_point_ops": ("true",),
    "integer_division": ("false",),
    "scalar_subquery_error_on_multiple_rows": ("true",),
    "order_by_non_integer_literal": ("false",),
    "old_implicit_casting": ("false",),
    "calendar": ("gregorian",),
    "binary_as_string": ("false",),
    "errors_as_json": ("false",),
    "arrow_lossless_conversion": ("false",),
    "arrow_large_buffer_size": ("false",),
    "arrow_output_list_view": ("false",),
    "produce_arrow_string_view": ("false",),
    "arrow_output_version": ("1.0", "V1_0"),
}
"""Setting -> the values our SQL is written for; the first one is set where another is found."""

_found: tuple[str, ...] = ()

INPUT_ORDER = ("preserve_insertion_order",)
"""What a query of the user needs besides their own settings: the order of its rows counts when keys repeat."""


def differing(con: Connection, names: Collection[str] = tuple(KNOWN)) -> list[str]:
    """The settings whose values on this connection are not those of KNOWN."""
    asked = [name for name in _existing(con) if name in names]
    values = con.execute(f"SELECT {', '.join(f'current_setting({literal(n)})' for n in asked)}").fetchall()[0]
    return [n for n, v in zip(asked, values, strict=True) if str(v).lower() not in map(str.lower, KNOWN[n])]


def _existing(con: Connection) -> tuple[str, ...]:
    """The settings of KNOWN that this release of DuckDB has; asked once, of the connection at hand.

    A database opened only to ask took a quarter of the first read of a table with logs.
    """
    global _found
    if not _found:
        names = {str(n).lower() for (n,) in con.execute("SELECT name FROM duckdb_settings()").fetchall()}
        _found = tuple(name for name in KNOWN if name in names)
    return _found


def make_known(con: Connection, names: Collection[str] = tuple(KNOWN)) -> None:
    """Set what differs, for this session; call it within `restored`. TableError when DuckDB does not let us."""
    for name in differing(con, names):
        try:
            con.execute(f"SET SESSION {name} = {literal(KNOWN[name][0])}")
        except duckdb.Error as error:
            value = con.execute(f"SELECT current_setting({literal(name)})").fetchall()[0][0]
            raise TableError(
                f"the DuckDB setting {name} is {str(value)!r} and cannot be changed for the time of this statement "
                f"({str(error).splitlines()[0]}); with it lakesql would read or write wrong rows. Nothing was "
                f"written. Use a connection with {name} = {KNOWN[name][0]!r}."
            ) from error


def make_utc(con: Connection) -> None:
    """Times without a zone are UTC on this connection of ours. TableError when its configuration is locked otherwise."""
    zone = str(con.execute("SELECT current_setting('TimeZone')").fetchall()[0][0])
    if zone == "UTC":
        return
    try:
        con.execute("SET TimeZone = 'UTC'")
    except duckdb.Error as error:
        if zone.upper() in ("ETC/UTC", "GMT", "ETC/GMT", "ETC/UCT", "UCT", "ZULU"):
            return
        raise TableError(
            f"the DuckDB setting TimeZone is {zone!r} and cannot be changed ({str(error).splitlines()[0]}). Leave "
            "lock_configuration out of the config of the handle."
        ) from error


@contextmanager
def restored(con: Connection) -> Iterator[None]:
    """Afterwards the settings of KNOWN are as they were before. Enter it outside of a transaction."""
    before = _scopes(con, differing(con))
    try:
        yield
    finally:
        if before:
            _restore(con, before)


@contextmanager
def known_settings(con: Connection) -> Iterator[None]:
    """The connection has the settings of KNOWN within, and its own ones afterwards."""
    with restored(con):
        make_known(con)
        yield


def _scopes(con: Connection, names: Sequence[str]) -> list[tuple[str, str, str]]:
    """(name, value, scope) of settings."""
    if not names:
        return []
    listed = ", ".join(map(literal, names))
    return con.execute(f"SELECT name, value, scope FROM duckdb_settings() WHERE lower(name) IN ({listed})").fetchall()


def _restore(con: Connection, before: Sequence[tuple[str, str, str]]) -> None:
    changed = set(differing(con))
    for name, value, scope in before:
        if name.lower() in changed:
            continue
        if scope == "LOCAL":
            con.execute(f"SET SESSION {name} = {literal(value)}")
        else:
            con.execute(f"RESET SESSION {name}")
