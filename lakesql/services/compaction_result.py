"""What compactions did, in one value that prints on one line."""

from dataclasses import dataclass

from lakesql.counted import counted


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """What compactions did. `instant` is the newest of `instants`, None when there was nothing to do."""

    instants: tuple[str, ...] = ()
    completed: str | None = None
    """Completion time of the newest; None when it was only scheduled."""
    file_groups: int = 0
    log_files: int = 0
    log_bytes: int = 0
    rows_written: int = 0
    bytes_written: int = 0
    duration_s: float = 0.0
    notes: tuple[str, ...] = ()
    merge_logs: tuple[tuple[str, str], ...] = ()
    """Groups (partition, file id) that an adaptive round found too dear to compact: log compaction is to help them."""

    @property
    def instant(self) -> str | None:
        return self.instants[-1] if self.instants else None

    def __str__(self) -> str:
        if not self.instants:
            return "compact: nothing to do"
        done = "compaction" if self.completed else "scheduled compaction"
        return (
            f"compact: {done} {', '.join(self.instants)}: {counted(self.file_groups, 'file group')}, {counted(self.log_files, 'log file')}, "
            f"{self.log_bytes:,} bytes of logs; {self.bytes_written:,} bytes written in {self.duration_s:.2f} s"
        )

    def __add__(self, other: "CompactionResult") -> "CompactionResult":
        return CompactionResult(
            (*self.instants, *other.instants),
            other.completed or self.completed,
            self.file_groups + other.file_groups,
            self.log_files + other.log_files,
            self.log_bytes + other.log_bytes,
            self.rows_written + other.rows_written,
            self.bytes_written + other.bytes_written,
            self.duration_s + other.duration_s,
            (*self.notes, *other.notes),
        )
