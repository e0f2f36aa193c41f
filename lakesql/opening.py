"""What the commands share: which database is opened, how, and how an error ends the program."""

import os
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path

import duckdb

from lakesql.engines import connect
from lakesql.errors import LakeError
from lakesql.sql import script
from lakesql.sql.connection import Connection
from lakesql.storage import open_storage

WAREHOUSE = "warehouse"
INTERRUPTED = 130


def require_database(database: str, commands: Collection[str]) -> None:
    """LakeError for what is no database and should not become one: a mistyped command, a script, a folder."""
    path = Path(database)
    if database == ":memory:" or path.is_file() or "://" in database or database.startswith("md:"):
        return
    if path.is_dir():
        raise LakeError(
            f"{database} is a folder, not a DuckDB file; for a folder of tables use --warehouse {database}."
        )
    if path.suffix.lower() == ".sql":
        raise LakeError(f"{database}: no such file; and scripts run with: lakesql run {database}")
    if not path.suffix:
        near = get_close_matches(database, commands, 1)
        meant = f"Did you mean {near[0]}? " if near else ""
        raise LakeError(
            f"{database} is neither a command ({', '.join(commands)}) nor a file. {meant}To create a database, give it "
            f"an ending: {database}.duckdb"
        )


def table_at(given: str, warehouse: str | None) -> str:
    """The folder of a table that is given by its folder, or by its name in the warehouse.

    LakeError for a name that is neither; what is given as a path comes back as it is.
    """
    if "/" in given or "\\" in given or _is_table(given):
        return given
    folder = WAREHOUSE if warehouse is None else warehouse
    if _is_table(f"{folder}/{given}"):
        return f"{folder}/{given}"
    if Path(given).exists():
        return given
    _, names = open_storage(folder).list("") if "://" in folder or Path(folder).is_dir() else ((), ())
    there = sorted(name for name in names if _is_table(f"{folder}/{name}"))
    near = get_close_matches(given, there, 1)
    meant = f" Did you mean {near[0]}?" if near else ""
    raise LakeError(
        f"{given} is not a Hudi table, neither by its folder nor by its name in the warehouse {folder}, which has "
        f"{', '.join(there) or 'none'}.{meant} Another warehouse: --warehouse DIR."
    )


def _is_table(path: str) -> bool:
    from lakesql.table.state import HOODIE

    return any(open_storage(path).list(HOODIE))


@contextmanager
def connected(database: str, warehouse: str | None, read_only: bool, engine: str = "duckdb") -> Iterator[Connection]:
    """A connection that is closed at the end; Ctrl-C within ends the command with exit code 130.

    A warehouse given by name that is not there is said, since it may be a typing error; a file is a LakeError.
    """
    folder = WAREHOUSE if warehouse is None else warehouse
    local = "://" not in folder
    if local and Path(folder).exists() and not Path(folder).is_dir():
        raise LakeError(f"warehouse {folder} is a file; give the folder that holds the Hudi tables.")
    if warehouse is not None and local and not Path(folder).exists():
        print(f"Warehouse {folder} does not exist; the first CREATE TABLE makes it.", file=sys.stderr)
    try:
        with connect(database, warehouse=folder, read_only=read_only, engine=engine) as con:
            yield con
    except KeyboardInterrupt:
        print("Interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)


def guarded(command: Callable[[], object]) -> None:
    """Run a command; its errors are our text on standard error and an exit code."""
    try:
        command()
    except BrokenPipeError:
        # Whoever read our output has enough of it. Python flushes once more at exit, which must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except (LakeError, duckdb.Error, OSError) as error:
        print(f"Error: {script.error_text(error)}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
