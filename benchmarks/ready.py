"""What the parts that know an engine give to the part that measures."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


class Unavailable(Exception):
    """The engine cannot run here; the text says why."""


@dataclass(frozen=True, slots=True)
class Ready:
    """One measurement, prepared: what is called while the clock runs, and what must hold afterwards."""

    call: Callable[[], object]
    check: Callable[[object, bool], None]
    """Given what the last call returned, and whether to be thorough. SystemExit when the result is wrong."""
    calls: int = 1
    steps: dict[str, float] = field(default_factory=dict)
    """Seconds by step, filled by the call; empty where the engine does not tell."""
    pids: Callable[[], list[int]] = list
    """Other processes that do the work: their CPU time and memory count."""


Maker = Callable[[Path, Path], Ready]
"""From the folder of the workload and an empty folder to work in."""


def copied(source: Path, work: Path, deep: bool = False) -> Path:
    """A copy of a table in the work folder, of hard links where data files are never changed in place; `deep`: of bytes."""
    target = work / source.name
    for folder in (source, *(p for p in source.rglob("*") if p.is_dir())):
        (target / folder.relative_to(source)).mkdir()
    for file in source.rglob("*"):
        if not file.is_file():
            continue
        to = target / file.relative_to(source)
        if deep:
            to.write_bytes(file.read_bytes())
        else:
            to.hardlink_to(file)
    return target
