"""What a write did, in one value that prints on one line."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakesql import markup


@dataclass(frozen=True, slots=True)
class WriteResult:
    """Counts are rows of the input by their fate and add up to their number, except that an overwrite also counts the
    rows it took out as deleted. `instant` is None when nothing was written.
    """

    instant: str | None
    """Requested time: what time travel and `hudi_timeline` know the write by."""
    action: str | None
    operation: str
    rows_inserted: int = 0
    rows_updated: int = 0
    rows_deleted: int = 0
    rows_ignored: int = 0
    """Late, unchanged, or without anything to delete."""
    files_written: int = 0
    bytes_written: int = 0
    partitions_touched: int = 0
    duration_s: float = 0.0
    requests: int = 0
    """Calls to the table's storage."""
    requests_by_kind: Mapping[str, int] = field(default_factory=dict, hash=False)
    """The same by kind: get, head, list, put, delete, copy on object stores; read, list, stamp, put, delete on a disk."""
    bytes_received: int = 0
    bytes_sent: int = 0
    """What went over the network, on object stores."""
    completed: str | None = None
    """Completion time, in which incremental reads count (version 6: the instant)."""
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<lakesql.WriteResult {self}>"

    def _repr_html_(self) -> str:
        done = self.instant or "nothing written"
        return markup.page(
            markup.title(self.operation, f"{self.action} {done}" if self.action else done),
            markup.table(
                tuple(_COUNTS), [[f"{getattr(self, name):,}" for name in _COUNTS.values()]], [True] * len(_COUNTS)
            ),
            markup.line(f"{self.duration_s:.2f} s, {self.requests:,} requests to storage", quiet=True),
            *map(markup.line, self.notes),
        )

    def __str__(self) -> str:
        counts = ", ".join(
            f"{count:,} {word}"
            for word, count in (
                ("inserted", self.rows_inserted),
                ("updated", self.rows_updated),
                ("deleted", self.rows_deleted),
                ("ignored", self.rows_ignored),
            )
            if count
        )
        done = f"{self.action} {self.instant}" if self.instant else "nothing written"
        files = f"; {self.files_written} files, {self.bytes_written:,} bytes" if self.files_written else ""
        return f"{self.operation}: {done}: {counts or 'no rows'}{files} in {self.duration_s:.2f} s"


_COUNTS = {
    "inserted": "rows_inserted",
    "updated": "rows_updated",
    "deleted": "rows_deleted",
    "ignored": "rows_ignored",
    "files": "files_written",
    "bytes": "bytes_written",
    "partitions": "partitions_touched",
}
