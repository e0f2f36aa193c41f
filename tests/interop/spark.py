"""Apache Hudi on Spark as the tests see it: `SparkHudi("1.2.0")` reads and writes tables by path, rows are Arrow.

Each version is one long-lived process (`spark_worker.py` in the Spark environment) that starts at its first command, in
about ten seconds. Only one runs at a time: a command to another version stops the former. A command that takes too
long, a worker that dies and an error that Spark reports all raise `SparkError`; what the JVM printed is in `log`.
"""

import atexit
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / ".venv-spark"
VERSIONS = ("1.2.0", "1.0.2", "0.15.0")
START_S, COMMAND_S = 120.0, 120.0
NATIVE_VERSION = {"1.2.0": 9, "1.0.2": 8, "0.15.0": 6}  # the table version each release creates


class SparkError(Exception):
    """Spark refused a command, or its process is gone."""


def missing() -> str | None:
    """What the Spark suite lacks on this machine; None when it can run."""
    if shutil.which("java") is None:
        return "no java on the path"
    for path in (ENVIRONMENT / "bin" / "python", *map(jar, VERSIONS)):
        if not path.exists():
            return f"{path.relative_to(ROOT)} is missing (make spark)"
    return None


def jar(version: str) -> Path:
    return ENVIRONMENT / "jars" / f"hudi-spark3.5-bundle_2.12-{version}.jar"


def keep_version(table_version: int) -> dict[str, str]:
    """Options with which Hudi 1.2.0 leaves a table at its version."""
    return {"hoodie.write.table.version": str(table_version), "hoodie.write.auto.upgrade": "false"}


class SparkHudi:
    """One Hudi release on Spark; starts when first used, stops when another release is used or the tests end."""

    running: "SparkHudi | None" = None

    def __init__(self, version: str, zone: str = "UTC") -> None:
        self.version = version
        self.zone = zone  # of the JVM: it draws instants from its local clock
        self.process: subprocess.Popen[bytes] | None = None
        self.scratch = Path()
        self.pending = b""

    @property
    def log(self) -> Path:
        return self.scratch / "spark.log"

    def sql(self, *statements: str) -> pa.Table:
        """Run the statements; the rows of the last one (no columns if it gives none)."""
        return self.ask({"do": "sql", "statements": statements})

    def read(self, path: str | Path, **options: object) -> pa.Table:
        """Rows of a table; `query_type`, `as_of`, `begin`, `end`, and `metadata` (false: list directories)."""
        names = {
            "query_type": "hoodie.datasource.query.type",
            "as_of": "as.of.instant",
            "begin": "hoodie.datasource.read.begin.instanttime",
            "end": "hoodie.datasource.read.end.instanttime",
            "metadata": "hoodie.metadata.enable",
        }
        texts = {names[name]: str(value).lower() for name, value in options.items()}
        if "begin" in options:
            texts["hoodie.datasource.query.type"] = "incremental"
        return self.ask({"do": "read", "path": str(path), "options": texts})

    def write(self, path: str | Path, rows: pa.Table, options: Mapping[str, str], operation: str = "upsert") -> None:
        """Write the rows with Hudi's DataFrame writer; options are Hudi's own keys."""
        self.start()
        file = self.scratch / "write.parquet"
        pq.write_table(rows, file)
        texts = {"hoodie.datasource.write.operation": operation, **options}
        self.ask({"do": "write", "path": str(path), "rows": str(file), "options": texts})

    def ask(self, command: Mapping[str, Any]) -> pa.Table:
        self.start()
        answer = self.exchange(command, COMMAND_S)
        if "error" in answer:
            raise SparkError(f"Hudi {self.version}: {answer['error']}")
        return pq.read_table(answer["rows"], partitioning=None) if "rows" in answer else pa.table({})

    def start(self) -> None:
        """Start the worker unless it runs; stop the one of another version first."""
        if self.process is not None:
            return
        if SparkHudi.running is not None:
            SparkHudi.running.stop()
        self.scratch = Path(tempfile.mkdtemp(prefix=f"lakesql-spark-{self.version}-"))
        python, script = ENVIRONMENT / "bin" / "python", Path(__file__).with_name("spark_worker.py")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_", "PYTHONPATH"))}
        environment["TMPDIR"] = str(self.scratch)
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [python, script, jar(self.version), self.scratch, self.zone],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                cwd=self.scratch,
                start_new_session=True,
            )
        SparkHudi.running = self
        self.exchange(None, START_S)

    def exchange(self, command: Mapping[str, Any] | None, timeout_s: float) -> dict[str, Any]:
        """Send a command (None: only wait) and return the answer; the worker is stopped when none comes."""
        assert self.process is not None
        assert self.process.stdin is not None
        try:
            if command is not None:
                self.process.stdin.write(json.dumps(command).encode() + b"\n")
                self.process.stdin.flush()
            answer: dict[str, Any] = json.loads(self.read_line(timeout_s))
        except (OSError, ValueError) as error:
            tail = self.log.read_text(errors="replace")[-2000:]
            self.stop()
            raise SparkError(f"Hudi {self.version}: no answer to {command}: {error}\n{tail}") from error
        return answer

    def read_line(self, timeout_s: float) -> bytes:
        assert self.process is not None
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        while b"\n" not in self.pending:
            if not select.select([descriptor], [], [], timeout_s)[0]:
                raise OSError(f"nothing within {timeout_s:.0f} s")
            piece = os.read(descriptor, 1 << 16)
            if not piece:
                raise OSError("the worker ended")
            self.pending += piece
        line, self.pending = self.pending.split(b"\n", 1)
        return line

    def stop(self) -> None:
        """End the worker and its JVM (they share a process group) and remove their files."""
        if self.process is None:
            return
        process, self.process, self.pending, SparkHudi.running = self.process, None, b"", None
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        shutil.rmtree(self.scratch, ignore_errors=True)


@atexit.register
def stop_running() -> None:
    if SparkHudi.running is not None:
        SparkHudi.running.stop()
