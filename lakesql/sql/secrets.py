"""CREATE SECRET and DROP SECRET for object stores: kept for the storages of this database, and given to DuckDB where it can.

Metadata of a table is read, and its commits are made, by our own client, which cannot see into DuckDB's secrets; hence
the values are noted here as the statement passes. DuckDB itself has the types s3, r2 and gcs with the extension httpfs and
azure with azure alone; without them the statement is ours only. No text of an error holds a value.
"""

from collections.abc import Mapping

import duckdb

from lakesql.errors import LakeError, SQLError
from lakesql.sql.cursor import Cursor, string_value
from lakesql.sql.lexer import IDENTIFIERS
from lakesql.sql.nodes import CreateSecret, DropSecret
from lakesql.sql.session import Session
from lakesql.stores.settings import Secret
from lakesql.table.names import literal

KINDS: Mapping[str, frozenset[str]] = {
    "s3": frozenset(
        ["KEY_ID", "SECRET", "SESSION_TOKEN", "REGION", "ENDPOINT", "URL_STYLE", "USE_SSL", "PROFILE", "CHAIN"]
    ),
    "r2": frozenset(["KEY_ID", "SECRET", "SESSION_TOKEN", "REGION", "ENDPOINT", "URL_STYLE", "USE_SSL", "ACCOUNT_ID"]),
    "gcs": frozenset(["KEY_ID", "SECRET", "SESSION_TOKEN", "REGION", "ENDPOINT", "URL_STYLE", "USE_SSL"]),
    "azure": frozenset(["CONNECTION_STRING", "ACCOUNT_NAME", "TENANT_ID", "CLIENT_ID", "CLIENT_SECRET", "CHAIN"]),
}
_COMMON = frozenset(("TYPE", "PROVIDER", "SCOPE"))
_IN_LISTS = ("[", "]", "(", ")")


def statement(cursor: Cursor) -> CreateSecret | DropSecret | None:
    """The statement at the cursor when it is about the secret of an object store, else None."""
    start = cursor.at
    try:
        found = _drop(cursor) if cursor.accept("DROP") else _create(cursor)
    except LakeError:
        # The text is not repeated: it holds the secret.
        raise SQLError(
            "CREATE SECRET [name] (TYPE s3, KEY_ID '...', SECRET '...', REGION '...', SCOPE 's3://bucket') is the form; "
            "this statement has another one."
        ) from None
    if found is None:
        cursor.at = start
    return found


def _create(cursor: Cursor) -> CreateSecret | None:
    if not cursor.accept("CREATE"):
        return None
    replace = cursor.accept("OR", "REPLACE")
    persistent = cursor.accept("PERSISTENT")
    if not persistent:
        cursor.accept("TEMPORARY") or cursor.accept("TEMP")
    if not cursor.accept("SECRET"):
        return None
    if_absent = cursor.accept("IF", "NOT", "EXISTS")
    name = cursor.next().name if cursor.peek().kind in IDENTIFIERS and not cursor.sees("IN") else ""
    if cursor.accept("IN"):
        cursor.next()
    if not cursor.accept("("):
        return None
    values = _options(cursor)
    cursor.finish()
    kind = values.get("TYPE", ("",))[0].lower()
    if kind not in KINDS:
        return None
    return CreateSecret(name or f"__default_{kind}", kind, values, replace, if_absent, persistent)


def _options(cursor: Cursor) -> dict[str, tuple[str, ...]]:
    values: dict[str, tuple[str, ...]] = {}
    while not cursor.accept(")"):
        if values:
            cursor.expect(",")
        key, found, depth = cursor.next().name.upper(), [], 0
        while depth or cursor.peek().text not in (",", ")"):
            token = cursor.next()
            if token.text in _IN_LISTS:
                depth += 1 if token.text in "[(" else -1
            elif token.kind == "string":
                found.append(string_value(token))
            elif token.text != "," and token.text not in ("=", ":", ">"):
                found.append(token.text)
        if len(found) != 1 and key not in ("SCOPE", "CHAIN"):
            raise SQLError("one option has several values")
        values[key] = tuple(found)
    return values


def _drop(cursor: Cursor) -> DropSecret | None:
    cursor.accept("PERSISTENT") or cursor.accept("TEMPORARY")
    if not cursor.accept("SECRET"):
        return None
    if_there = cursor.accept("IF", "EXISTS")
    name = cursor.next().name
    if cursor.accept("FROM"):
        cursor.next()
    cursor.finish()
    return DropSecret(name, if_there)


def create(session: Session, given: CreateSecret, sql: str) -> str:
    """Remember a secret; the SQL of the result. SQLError for options that there are not."""
    unknown = sorted(given.values.keys() - KINDS[given.kind] - _COMMON)
    if unknown:
        known = ", ".join(sorted(KINDS[given.kind]))
        raise SQLError(f"CREATE SECRET of the type {given.kind} has no option {', '.join(unknown)}; there are {known}.")
    stores = session.instance.stores
    known_already = given.name.lower() in stores.secrets
    if known_already and given.if_absent:
        return "SELECT true AS Success"
    if known_already and not given.replace:
        raise SQLError(f"There is a secret {given.name} already. Use CREATE OR REPLACE SECRET, or DROP SECRET first.")
    if _in_duckdb(session, given.kind):
        session.con.execute(sql)
        session.drain()
    elif given.persistent:
        raise SQLError(
            "A PERSISTENT secret is DuckDB's to keep, and it has no such type without its extension. Create the secret "
            "without PERSISTENT at the beginning of each session, or use the environment or a profile."
        )
    values = {key: " ".join(found) for key, found in given.values.items() if key not in _COMMON}
    stores.secrets.pop(given.name.lower(), None)
    stores.secrets[given.name.lower()] = Secret(given.name, given.kind, given.values.get("SCOPE", ()), values)
    session.instance.forget()
    return "SELECT true AS Success"


def drop(session: Session, given: DropSecret, sql: str) -> str:
    """Forget a secret, here and in DuckDB; the SQL of the result."""
    ours = session.instance.stores.secrets.pop(given.name.lower(), None)
    session.instance.forget()
    listed = f"SELECT count(*) FROM duckdb_secrets() WHERE lower(name) = {literal(given.name.lower())}"
    if ours is None or session.con.execute(listed).fetchall()[0][0]:
        session.con.execute(sql)
        session.drain()
    return "SELECT true AS Success"


def _in_duckdb(session: Session, kind: str) -> bool:
    try:
        kinds = session.con.execute("SELECT type FROM duckdb_secret_types()").fetchall()
    except duckdb.Error:
        return False
    return (kind,) in kinds
