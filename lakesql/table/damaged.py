"""Which base file a DuckDB error comes from: DuckDB reads the Parquet files itself and does not know what they are.

Most of its errors name the file; for the few that do not, the footers of the table's newest base files are opened
until one fails. Not here: files that are shorter than their commit says, which a plan refuses (`promised`).
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from lakesql import errors
from lakesql.errors import FileGone, FormatError, LakeError, TableError
from lakesql.format.files import BaseFile, parse_data_file
from lakesql.stores.base import addresses
from lakesql.stores.calls import Meter, current, metered, refusal

if TYPE_CHECKING:
    from lakesql.table.state import TableState

_PATH = re.compile(r"""(["'])((?:/|\w+://).+?\.parquet)\1""")
_OF_A_STORE = re.compile(r"Traceback [^\n]*\n(?: [^\n]*\n)*([\w.]+): ([\s\S]*)")
"""What DuckDB makes of an error of the file system that reads objects."""
_UNREADABLE = re.compile(
    r"magic bytes|too small|read file|read parquet|decompress|deserialize|corrupt|cannot open|encrypted|no files found",
    re.I,
)


@contextmanager
def damage_named(state: "TableState") -> Iterator[None]:
    """Within, an error of DuckDB that comes from a damaged base file of the table is a FormatError that names the file."""
    try:
        yield
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        found = damage(error, [state])
        if found is None:
            raise
        raise found from error


@contextmanager
def answered(meter: Meter | None) -> Iterator[None]:
    """Within, rows are fetched: DuckDB's error about a base file that cannot be read, or a request too many, is ours."""
    try:
        with metered(meter or Meter()):
            yield
    except duckdb.Error as error:
        if found := refusal(meter) or damage(error, ()):
            raise found from error
        raise


def damage(error: Exception, states: Iterable["TableState"]) -> LakeError | None:
    """The error to raise in place of DuckDB's when a base file cannot be read; None when it is about something else.

    That a statement may make no more requests says that nothing is wrong with the file.
    """
    if over := refusal(current()):
        return over
    told = addresses(str(error))
    if ours := _OF_A_STORE.match(told):
        kind = getattr(errors, ours[1].rpartition(".")[2], None)
        if isinstance(kind, type) and issubclass(kind, LakeError):
            return kind(ours[2])
        told = ours[2]
    text = told.splitlines()[0] if told else ""
    named = _PATH.search(told)
    if named and _UNREADABLE.search(text):
        path = named[2]
        return _unreadable(path, text) if _is_base_file(path) else None
    # Damaged Thrift structures come as plain errors that do not name the file.
    if type(error) is duckdb.Error:
        for state in states:
            for path in _broken_footers(state):
                return _unreadable(path, text)
    return None


def _is_base_file(path: str) -> bool:
    return isinstance(parse_data_file("", path.rsplit("/", 1)[-1], 0), BaseFile)


def _unreadable(path: str, reason: str) -> FormatError | TableError:
    if "No such file" in reason or "No files found" in reason:
        # A file that is missing when the table is looked at is an error of the plan.
        return FileGone(
            f"{path}: the base file is gone; it was cleaned or rolled back while the table was read. Run the statement "
            "again; readers that take long need more retained commits, or lakesql.clean.grace."
        )
    return FormatError(f"{path}: the base file cannot be read: {reason}. Restore it, or roll back its commit.")


def _broken_footers(state: "TableState") -> Iterator[str]:
    import pyarrow.parquet as pq

    try:
        files = state.base_files()
    except LakeError:
        return
    for file in files:
        path = f"{state.path}/{file.path}"
        try:
            with pq.ParquetFile(state.storage.source(file.path)) as parquet:
                for group in range(parquet.num_row_groups):
                    parquet.read_row_group(group)
        except (pa.ArrowException, OSError):
            yield path
