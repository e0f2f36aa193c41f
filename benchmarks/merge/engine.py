"""What the parts that know an engine give to the part that measures."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import duckdb


class Unavailable(Exception):
    """The engine cannot run here; the text says why."""


@dataclass(frozen=True, slots=True)
class Run:
    """One MERGE, ready to go."""

    call: Callable[[], object]
    table: Path
    """The file or folder of the table."""
    read: Callable[[], tuple[duckdb.DuckDBPyConnection, str]]
    """Afterwards: a new connection, and what to select the table's rows from."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Seconds by step, filled by the call; empty where the engine does not tell."""


@dataclass(frozen=True, slots=True)
class Engine:
    """`prepare(data, home)` makes the engine's table in the empty folder `home`, `run(data, home, work, case)` copies it to
    `work` and gets ready. `data` is the folder of the workload."""

    version: Callable[[], str]
    prepare: Callable[[Path, Path], None]
    run: Callable[[Path, Path, Path, str], Run]


def copied(source: Path, work: Path) -> Path:
    """A copy of a table in the work folder, made of hard links: data files are never changed in place."""
    target = work / source.name
    for folder in (source, *(p for p in source.rglob("*") if p.is_dir())):
        (target / folder.relative_to(source)).mkdir()
    for file in source.rglob("*"):
        if file.is_file():
            (target / file.relative_to(source)).hardlink_to(file)
    return target
