"""A `lakesql serve` as a process of its own and stock DuckDB shells, both from .venv-quack (`make quack`).

Without that environment these tests are skipped, and fail with LAKESQL_QUACK=required.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from platform import machine

import pytest

ROOT = Path(__file__).parents[2]
VENV = ROOT / ".venv-quack"
TOKEN = "a token of these tests"


@dataclass
class Served:
    """A server that runs in a folder, its port, and the home of shells that have its extensions installed."""

    process: subprocess.Popen[str]
    port: int
    folder: Path
    home: Path
    attach: str = field(init=False)

    def __post_init__(self) -> None:
        self.attach = f"LOAD httpfs; LOAD quack; ATTACH 'quack:localhost:{self.port}' AS lake (TOKEN '{TOKEN}');\n"

    def shell(self, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A stock shell with this text; it goes on after errors."""
        with self.start(*arguments) as shell:
            out, err = shell.communicate(text, timeout=120)
        return subprocess.CompletedProcess(shell.args, shell.returncode, out, err)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """A stock shell that waits for statements."""
        environment = {**os.environ, "HOME": str(self.home), "LAKESQL_TOKEN": TOKEN}
        command = [str(VENV / "bin/duckdb"), *(arguments or ("-init", os.devnull, "-csv", "-noheader"))]
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )

    def ask(self, *queries: str) -> list[str]:
        """The lines that a shell prints for queries that the server runs; no error is expected."""
        done = self.shell(self.attach + "".join(f"FROM lake.query($quack$ {query} $quack$);\n" for query in queries))
        assert "Error" not in done.stderr, done.stderr
        return done.stdout.splitlines()

    def refusal(self, query: str) -> str:
        """The error that a shell shows."""
        done = self.shell(self.attach + f"FROM lake.query($quack$ {query} $quack$);")
        assert "Error" in done.stderr, done.stdout
        return done.stderr

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Exit code and what the server printed."""
        self.process.send_signal(number)
        out, _ = self.process.communicate(timeout=60)
        return self.process.returncode, out


def _home(folder: Path) -> Path:
    """A home with DuckDB's extensions as INSTALL leaves them."""
    for file in (VENV / "lib").glob("python*/site-packages/duckdb_extension_*/extensions/*/*.duckdb_extension"):
        system = "osx" if sys.platform == "darwin" else "linux"
        platform = f"{system}_{'amd64' if machine() == 'x86_64' else 'arm64'}"
        place = folder / ".duckdb/extensions" / file.parent.name / platform
        place.mkdir(parents=True, exist_ok=True)
        (place / file.name).symlink_to(file)
    return folder


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Start a server; it is stopped at the end."""
    if not (VENV / ".installed").exists():
        if os.environ.get("LAKESQL_QUACK") == "required":
            pytest.fail("no .venv-quack; make quack")
        pytest.skip("no .venv-quack; make quack")
    running: list[Served] = []

    def start(*arguments: str, port: int = 0) -> Served:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "LAKESQL_TOKEN": TOKEN, "HOME": str(tmp_path)}
        command = [str(VENV / "bin/python"), "-m", "lakesql", "serve", "--port", str(port), *arguments]
        process = subprocess.Popen(
            command, cwd=tmp_path, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert process.stdout is not None
        said = [process.stdout.readline()]
        while said[-1] and " is served at quack:" not in said[-1]:
            said.append(process.stdout.readline())
        if not (first := said[-1]):
            process.communicate()
            pytest.fail("".join(said))
        at = int(first.split("quack:localhost:")[1].split(".")[0])
        running.append(Served(process, at, tmp_path, _home(tmp_path / "home")))
        return running[-1]

    yield start
    for served in running:
        if served.process.poll() is None:
            served.process.kill()
            served.process.communicate()
