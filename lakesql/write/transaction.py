"""One attempt to change a table: its instant, and the traces that let anybody find its files after a crash.

Before each data file an empty marker is put into `.hoodie/.temp/<instant>/` (hudi-format 9.5); a rollback, ours or
Spark's, deletes what the markers name. `.hoodie/.heartbeat/<instant>` with the content `lakesql` says whose instant it
is: whoever holds the table's lock and finds one knows that its writer is dead.
"""

import time
from dataclasses import dataclass, field

from lakesql.format.metadata import TableConfig
from lakesql.storage import Storage

OWNER = b"lakesql"
HEARTBEAT_S = 30
CREATE_MARKER, MERGE_MARKER, APPEND_MARKER = "CREATE", "MERGE", "APPEND"


@dataclass(frozen=True, slots=True)
class Transaction:
    """A begun instant of a table."""

    storage: Storage
    config: TableConfig
    instant: str
    action: str
    operation: str
    beaten: list[float] = field(default_factory=list, compare=False)  # monotonic time of each heartbeat
    alone: bool = False  # nobody but this attempt has written for the instant
    markers: list[str] = field(default_factory=list, compare=False)  # paths of the markers of this attempt

    @property
    def where(self) -> str:
        return self.storage.uri


def heartbeat_path(instant: str) -> str:
    return f".hoodie/.heartbeat/{instant}"


def temporary_folder(instant: str) -> str:
    return f".hoodie/.temp/{instant}"


def marker_path(instant: str, path: str, kind: str) -> str:
    """The marker of the data file at `path`, relative to the table."""
    return f"{temporary_folder(instant)}/{path}.marker.{kind}"


def mark(txn: Transaction, path: str, kind: str) -> None:
    """Announce a data file. Must return before the file is created."""
    beat(txn)
    marker = marker_path(txn.instant, path, kind)
    txn.markers.append(marker)
    txn.storage.put(marker, b"")


def beat(txn: Transaction) -> None:
    """Show other writers that this one is alive, at most every HEARTBEAT_S seconds."""
    now = time.monotonic()
    if not txn.beaten or now - txn.beaten[-1] > HEARTBEAT_S:
        txn.beaten[:] = [now]
        txn.storage.put(heartbeat_path(txn.instant), OWNER)


def marked_files(storage: Storage, instant: str) -> list[tuple[str, str]]:
    """(path of a data file, marker kind) for every marker of an instant, in either form of hudi-format 9.5."""
    folder = temporary_folder(instant)
    names = []
    for info in storage.walk(folder):
        relative = info.path.removeprefix(folder + "/")
        if "/" not in relative and relative.startswith("MARKERS") and ".marker." not in relative:
            if not relative.startswith("MARKERS.type"):
                names += storage.read(info.path).decode().split("\n")
        else:
            names.append(relative)
    split = (name.strip().rpartition(".marker.") for name in names)
    return sorted({(path, kind) for path, _, kind in split if path})
