"""`lakesql serve`: the warehouse for DuckDB shells, over DuckDB's own protocol Quack.

DuckDB's extension quack is the server; here it is loaded, given our functions for who may come and what may run, started
and stopped. What a text of a client becomes is `sql.served`, what it may be `sql.allowed`.

The token is known here alone: Quack gets another one that nobody has, so it is in no list, log or error of DuckDB's.
"""

import hmac
import os
import secrets
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from lakesql.counted import counted
from lakesql.errors import LakeError
from lakesql.ingest.decode_python import registered_only
from lakesql.table.names import literal

if TYPE_CHECKING:
    from lakesql.sql.connection import Connection

PORT = 9494
TOKEN_VARIABLE = "LAKESQL_TOKEN"
TOKEN_MIN = 8
GRACE_S = 5.0
"""How long a stopping server waits for running statements, unless told otherwise, before it interrupts them."""
INTERRUPTED_S = 5.0
"""How long interrupted statements have to roll back."""
POLL_S = 0.2
_LOCAL = ("localhost", "127.0.0.1", "::1")
_WHO, _WHAT = "lakesql_authenticate", "lakesql_authorize"


def token_of(given: str | None, file: Path | None) -> tuple[str, bool]:
    """The token, and whether it was made here: as given, from the file, from LAKESQL_TOKEN, or a new one."""
    if given is not None and file is not None:
        raise LakeError("--token and --token-file exclude each other.")
    source, token = "--token", given
    if file is not None:
        source = f"--token-file {file}"
        try:
            token = file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise LakeError(f"{source}: it cannot be read as a text ({type(error).__name__}).") from error
    elif token is None and os.environ.get(TOKEN_VARIABLE):
        source, token = TOKEN_VARIABLE, os.environ[TOKEN_VARIABLE]
    if token is None:
        return secrets.token_urlsafe(24), True
    if len(token) < TOKEN_MIN or not token.isprintable():
        raise LakeError(f"{source}: a token has at least {TOKEN_MIN} characters, all of them printable.")
    return token, False


def load_quack(con: duckdb.DuckDBPyConnection) -> None:
    """Load DuckDB's extension quack: installed for DuckDB, from its Python package, or from DuckDB's own repository."""
    for name in ("httpfs", "quack"):
        package = _packaged(name)
        steps = [f"LOAD {name}", *([f"LOAD {literal(package)}"] if package else []), f"INSTALL {name}; LOAD {name}"]
        problem = ""
        for step in steps:
            try:
                con.execute(step)
                break
            except duckdb.Error as error:
                problem = str(error).split("\n")[0]
        else:
            raise LakeError(
                f"serve needs DuckDB's extension {name} for DuckDB {duckdb.__version__}, and it is not to be had: {problem} "
                f"Install it where DuckDB's repository can be reached (INSTALL {name}), or the Python packages "
                "lakesql[serve], which hold it for DuckDB 1.5.5."
            )


def _packaged(name: str) -> str | None:
    """The file of an extension in its Python package, None without the package."""
    spec = find_spec(f"duckdb_extension_{name}")
    folders = spec.submodule_search_locations if spec is not None else None
    files = [f for folder in folders or () for f in Path(folder).glob(f"extensions/*/{name}.duckdb_extension")]
    return str(files[0]) if files else None


def free_port(host: str) -> int:
    """A port that nobody uses now."""
    with socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as taken:
        return int(taken.getsockname()[1])


def require_free(host: str, port: int) -> None:
    """LakeError when somebody answers at the port: Quack would share it, and clients would reach either of the two."""
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return
    raise LakeError(f"port {port} of {host} is taken: another server answers there. Choose another --port.")


class Server:
    """A server that runs: `url` is what clients attach."""

    def __init__(self, con: "Connection", host: str, port: int, token: str, write: bool) -> None:
        from lakesql.sql.served import Clients

        require_free(host, port)
        duck = con.duckdb
        load_quack(duck)
        duck.execute("SET GLOBAL python_enable_replacements = false")
        self._folder = tempfile.TemporaryDirectory(prefix="lakesql-serve-")
        self._con = con
        self.clients: Clients = Clients(con, write, Path(self._folder.name))
        expected = token.encode()

        def authenticate(client_id: str, given: str, other: str) -> bool:
            del client_id, other
            return hmac.compare_digest(given.encode(), expected)

        nulls: Any = "special"
        who: list[Any] = ["VARCHAR"] * 3
        duck.create_function(_WHO, authenticate, who, "BOOLEAN", side_effects=True)
        duck.create_function(_WHAT, self.clients.answer, who[1:], "VARCHAR", null_handling=nulls, side_effects=True)
        duck.execute(f"SET GLOBAL quack_authentication_function = '{_WHO}'")
        duck.execute(f"SET GLOBAL quack_authorization_function = '{_WHAT}'")
        shown = f"[{host}]" if ":" in host else host
        self.url = f"quack:{shown}:{port}"
        self.is_local = host in _LOCAL
        other = "" if self.is_local else ", allow_other_hostname := true"
        try:
            duck.execute(
                f"CALL quack_serve({literal(self.url)}, token := {literal(secrets.token_hex(32))}{other})"
            ).fetchall()
        except duckdb.Error as error:
            self._folder.cleanup()
            raise LakeError(
                f"{self.url} cannot be served: {str(error).splitlines()[0]} Choose another --port."
            ) from error

    def stop(self, hurry: threading.Event, grace_s: float = GRACE_S) -> None:
        """Let running statements end, after `grace_s` or when in a hurry interrupt them, and close the port."""
        until = time.monotonic() + grace_s
        while not (self.clients.stop() and self._idle()) and time.monotonic() < until and not hurry.is_set():
            hurry.wait(0.05)
        until = time.monotonic() + INTERRUPTED_S
        while not self.clients.stop() and time.monotonic() < until:
            self.clients.interrupt()
            time.sleep(0.05)
        self._con.duckdb.execute(f"CALL quack_stop({literal(self.url)})").fetchall()
        self._folder.cleanup()

    def _idle(self) -> bool:
        """Whether Quack runs no query: those that only read are its own, not those of our clients' connections."""
        with self._con.duckdb.cursor() as cursor:
            rows = cursor.execute("SELECT count(*) FROM quack_active_connections() WHERE state = 'active'").fetchall()
        return rows == [(0,)]


def run(server: Server, started: Callable[[], None], say: Callable[[str], None], grace_s: float = GRACE_S) -> None:
    """Serve until Ctrl-C or SIGTERM; a second one does not wait for running statements."""
    registered_only()
    stopping, hurry = threading.Event(), threading.Event()

    def act(number: int, frame: object) -> None:
        del number, frame
        (hurry if stopping.is_set() else stopping).set()

    former = {number: signal.signal(number, act) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        started()
        while not stopping.wait(POLL_S):  # a signal that a thread of DuckDB gets does not wake this one
            pass
        say("Stopping.")
        server.stop(hurry, grace_s)
        say("Stopped.")
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def greeting(con: "Connection", server: Server, write: bool, made_token: str | None) -> str:
    """What the person who starts a server reads; the token only when it was made for this run."""
    token = made_token or "..."
    can = "Clients read and write." if write else "Clients read; --write lets them write."
    lines = [
        f"{con.warehouse} ({counted(len(con.tables), 'table')}) is served at {server.url}. {can} Ctrl-C stops it.",
        f"In a DuckDB shell of version {duckdb.__version__}, once INSTALL httpfs; and INSTALL quack; have run there:",
        f"  LOAD httpfs; LOAD quack; ATTACH '{server.url}' AS lake (TOKEN '{token}');",
        "  FROM lake.query('SHOW TABLES');",
    ]
    if made_token is not None:
        lines.append("The token is made for this run and not shown again.")
    if not server.is_local:
        lines.append(
            "Token and rows go over the network as they are: put a proxy with TLS in front for others to use it."
        )
    return "\n".join(lines)
