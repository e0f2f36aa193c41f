"""Clients of `lakesql serve`: what each sends, as the text that DuckDB runs for it.

Quack asks a function of ours before it runs a text, and runs what the function gives in its place. A query comes back as
it is, with time travel and names of Hudi tables put into DuckDB's words. A statement of ours runs here, on a connection
that belongs to the client alone, and what comes back is a query that gives its result. An error comes back as a query
that fails with its text, so a client reads our sentence and no traceback.

Quack runs a text while the client still binds its statement, so EXPLAIN, DESCRIBE, PREPARE and CREATE VIEW around a
change run it. `hudi_execute(statement, token)` makes such a change happen once: whoever comes with the same token later
gets the result of the first one.
"""

import re
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import duckdb
import pyarrow as pa

from lakesql.errors import LakeError, SQLError
from lakesql.sql import allowed, dialect, views
from lakesql.sql.connection import Connection
from lakesql.sql.cursor import string_value
from lakesql.sql.functions import variable
from lakesql.sql.lexer import IDENTIFIERS, Piece, Token, split, tokens
from lakesql.sql.near_misses import misspelt
from lakesql.sql.nodes import Passed, ResetSetting, SetSetting
from lakesql.sql.results import table_sql
from lakesql.sql.rewrite import rewrite
from lakesql.sql.script import error_text
from lakesql.sql.statements import parse
from lakesql.table import outcomes
from lakesql.table.names import literal, quote

TOKENS_MAX = 1000
"""So many results of statements with a token are remembered."""
ANSWERS_MAX = 16
"""So many results of a client lie in files; it reads one at a time."""
CLIENTS_MAX = 64
"""From so many clients on, those that left are looked for."""
READERS_MAX = 256
"""So many queries of all clients are taken to be still read, and a clean leaves their files alone."""
_INLINE_ROWS = 200

_SENDS_ROWS = re.compile(r"INSERT INTO (?:\S+|\"[^\"]+\")\.(?:\S+|\"[^\"]+\") VALUES \(NULL\)")
"""What Quack asks about before a client sends rows into a table of DuckDB."""


@dataclass(slots=True)
class Client:
    """One client: its connection, and whether it is between BEGIN and COMMIT on Quack's connection."""

    con: Connection
    lock: threading.Lock = field(default_factory=threading.Lock)
    in_transaction: bool = False
    answers: deque[Path] = field(default_factory=deque)


@dataclass(slots=True)
class Once:
    """A statement with a token: the first to come runs it, the others wait."""

    statement: str
    done: threading.Event = field(default_factory=threading.Event)
    answer: str | None = None


class Clients:
    """All clients of a server. `folder` takes results that are no short text."""

    def __init__(self, con: Connection, write: bool, folder: Path) -> None:
        self._con = con
        self._write = write
        self._folder = folder
        self._clients: dict[str, Client] = {}
        self._once: OrderedDict[str, Once] = OrderedDict()
        self._lock = threading.Lock()
        self._catalog = threading.Lock()
        self._numbers = count(1)
        self._running = 0
        self._stopping = False
        session = con._session
        session.instance.keep_unowned(READERS_MAX)
        session.read_only, session.read_only_text = not write, f"A change is refused: {allowed.READ_ONLY_ADVICE}."

    def answer(self, client_id: str, text: str) -> str | None:
        """What DuckDB runs in place of the text; None when the client may not send rows into a table."""
        if _SENDS_ROWS.fullmatch(text):
            return text if self._write else None
        with self._lock:
            self._running += 1
        try:
            return self._answer(client_id, text)
        except (LakeError, duckdb.Error, OSError) as error:
            return _failing(error_text(error))
        except Exception as error:  # a fault of ours, which must not end as a traceback on somebody's screen
            return _failing(f"lakesql failed, and should not have: {type(error).__name__}: {error}")
        finally:
            with self._lock:
                self._running -= 1

    def _answer(self, client_id: str, text: str) -> str:
        if self._stopping:
            raise LakeError("the server is stopping; nothing was run.")
        statement, token = _executed(text)
        allowed.require_text(statement, self._write)
        client = self._client(client_id)
        if token is not None:
            return self._run_once(token, statement, lambda: self._run(client, statement, kept=True))
        return self._run(client, statement)

    def _run(self, client: Client, text: str, kept: bool = False) -> str:
        session = client.con._session
        with client.lock:
            session.instance.own(session.owner)
            session.instance.reads().clear()
            try:
                with outcomes.chosen(session.settings.get(outcomes.DISK_CACHE)):
                    return self._run_owned(client, text, kept)
            finally:
                session.instance.disown()  # the next plan of this thread is read by Quack's connection

    def _run_owned(self, client: Client, text: str, kept: bool) -> str:
        con, session = client.con, client.con._session
        with self._catalog:
            script = rewrite(text, con._path_of, session.home)
            pieces = split(script)
            if pieces:
                views.refresh(session, _named(pieces))
        found = [parse(script, piece, con._is_hudi) for piece in pieces]
        if all(isinstance(statement, Passed) for statement in found):
            return self._passed(client, script, pieces)
        if len(pieces) > 1:
            raise SQLError(
                "one statement at a time: a text with a statement on Hudi tables or settings holds no other."
            )
        [statement], words = found, pieces[0].tokens
        allowed.require_ours(statement, words[0].word, self._write)
        if client.in_transaction and not isinstance(statement, SetSetting | ResetSetting):
            raise SQLError(
                f"{words[0].word} inside a transaction: each statement on a Hudi table is a commit of its own and "
                "ROLLBACK could not take it back. COMMIT or ROLLBACK first."
            )
        answer = con._ours(statement, pieces[0], None)
        if isinstance(statement, SetSetting | ResetSetting):
            return _text(answer) + self._variables(client)
        return answer if isinstance(answer, str) else self._shown(client, answer, kept)

    def _passed(self, client: Client, script: str, pieces: list[Piece]) -> str:
        session = client.con._session
        if any(t.kind == "backtick" for piece in pieces for t in piece.tokens):
            script = ";\n".join(_in_duckdb(piece) for piece in pieces)
        if len(pieces) == 1:
            script = views.described(session, script, pieces[0].tokens)
        try:
            allowed.require_passed(session.con, script, self._write)
        except duckdb.ParserException as error:
            raise misspelt(error, pieces) or error from error
        for piece in pieces:
            if piece.tokens[0].word in ("BEGIN", "START"):
                client.in_transaction = True
            elif piece.tokens[0].word in ("COMMIT", "END", "ROLLBACK", "ABORT"):
                client.in_transaction = False
        return script

    def _variables(self, client: Client) -> str:
        """Statements that tell Quack's connection what table functions follow."""
        from lakesql.services import freshness

        settings = client.con._session.settings
        followed = {*freshness.SETTINGS, outcomes.DISK_CACHE}
        return "".join(
            f"; SET VARIABLE {quote(variable(key))} = {literal(settings[key]) if key in settings else 'NULL'}"
            for key in sorted(followed)
        )

    def _shown(self, client: Client, answer: pa.Table, kept: bool) -> str:
        """A query that gives the rows: they are in it when they are few and plain, else in a file."""
        if answer.num_rows <= _INLINE_ROWS and all(_is_plain(f.type) for f in answer.schema):
            return table_sql(answer)
        file = self._folder / f"{next(self._numbers)}.parquet"
        with client.con._session.instance.cursor() as cursor:
            cursor.register("answer", answer)
            cursor.execute(f"COPY (FROM answer) TO {literal(str(file))} (FORMAT parquet)")
        if not kept:
            client.answers.append(file)
            while len(client.answers) > ANSWERS_MAX:
                client.answers.popleft().unlink(missing_ok=True)
        return f"FROM read_parquet({literal(str(file))})"

    # ------------------------------------------------------------ once

    def _run_once(self, token: str, statement: str, run: Callable[[], str]) -> str:
        """The answer of the first statement with that token. A failed one is forgotten, so that it may be tried again."""
        while True:
            with self._lock:
                known = self._once.get(token)
                if known is None:
                    known = self._once[token] = Once(statement)
                    break
            if known.statement != statement:
                raise SQLError(
                    f"the token {token!r} belongs to another statement; nothing was run. Choose another token."
                )
            known.done.wait()
            if known.answer is not None:
                return known.answer
        try:
            known.answer = run()
            return known.answer
        finally:
            with self._lock:
                if known.answer is None:
                    del self._once[token]
                while len(self._once) > TOKENS_MAX:
                    self._once.popitem(last=False)
            known.done.set()

    # ------------------------------------------------------------ clients come and go

    def _client(self, client_id: str) -> Client:
        with self._lock:
            known = self._clients.get(client_id)
            if known is not None:
                return known
            gone = self._gone() if len(self._clients) >= CLIENTS_MAX else {}
            made = self._clients[client_id] = Client(self._con.cursor())
        for client in gone.values():
            _close(client)
        return made

    def _gone(self) -> dict[str, Client]:
        """Clients that left, taken out of the list."""
        with self._con._session.instance.cursor() as cursor:
            rows = cursor.execute("FROM quack_active_connections()").fetchall()
            at = next(n for n, column in enumerate(cursor.description) if column[0].endswith("connection_id"))
        here = {str(row[at]) for row in rows}
        return {client_id: self._clients.pop(client_id) for client_id in [*self._clients] if client_id not in here}

    def stop(self) -> bool:
        """Take no more statements; whether none is running."""
        self._stopping = True
        with self._lock:
            return self._running == 0

    def interrupt(self) -> None:
        """Let running statements of ours fail, and roll back."""
        for client in [*self._clients.values()]:
            with suppress(duckdb.Error):
                client.con.duckdb.interrupt()


def _executed(text: str) -> tuple[str, str | None]:
    """The statement and the token of `hudi_execute('...', token := '...')`, or the text itself without a token."""
    words = [t for t in tokens(text) if t.text != ";"]
    for start in (["FROM"], ["CALL"], ["SELECT", "*", "FROM"]):
        head = words[: len(start) + 1]
        if [t.word or t.text for t in head[:-1]] != start or not head or head[-1].word != "HUDI_EXECUTE":
            continue
        given = [t for t in words[len(start) + 1 :] if t.text not in ("(", ")")]
        texts = [string_value(t) for t in given if t.kind == "string"]
        named = [t.name.lower() for t in given if t.kind in IDENTIFIERS and t.word != "NULL"]
        if not texts or len(texts) > 2 or named not in ([], ["token"]) or given[0].kind != "string":
            raise SQLError(
                "hudi_execute takes a statement and perhaps a token, both as text: ('MERGE ...', token := 'a')."
            )
        return texts[0], texts[1] if len(texts) == 2 else None
    return text, None


def _failing(text: str) -> str:
    return f"FROM query(error({literal(text)}))"


def _text(answer: str | pa.Table) -> str:
    return answer if isinstance(answer, str) else table_sql(answer)


def _in_duckdb(piece: Piece) -> str:
    return dialect.query(piece.text) if any(t.kind == "backtick" for t in piece.tokens) else piece.text


def _named(pieces: list[Piece]) -> set[str] | None:
    """The names in some statements, None for all when they list what there is."""
    words: list[Token] = [t for piece in pieces for t in piece.tokens if t.kind in IDENTIFIERS]
    names = {t.name.lower() for t in words}
    return None if names & {"duckdb_views", "tables", "views"} else names


def _is_plain(kind: pa.DataType) -> bool:
    """Whether values of the type are plain in SQL as well."""
    if pa.types.is_list(kind):
        return bool(pa.types.is_string(kind.value_type))
    return bool(pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind))


def _close(client: Client) -> None:
    for file in client.answers:
        file.unlink(missing_ok=True)
    with suppress(duckdb.Error):
        client.con.close()
