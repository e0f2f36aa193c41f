"""Starting: a new Python that imports the packages, or runs one statement of the command line."""

import subprocess
import sys
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

from benchmarks.ready import Ready

_CALLS = 4
TABLES: dict[str, Any] = {}
COMMANDS = {
    "base": ["-c", "import duckdb, pyarrow"],
    "import": ["-c", "import lakesql"],
    "cli": ["-m", "lakesql", "-c", "select 1"],
}


def version() -> str:
    return version_of("lakesql")


def start(data: Path, work: Path, what: str) -> Ready:  # noqa: ARG001
    def call() -> int:
        return subprocess.run([sys.executable, *COMMANDS[what]], check=True, capture_output=True, cwd=work).returncode

    return Ready(call, lambda _found, _thorough: None, calls=_CALLS)
