"""Apache Hudi on Spark: one session per measurement, two cores, on byte copies of the tables that lakesql made.

The session is up and has answered a query before the clock runs. CPU time and memory are those of the session's JVM and its
Python. Needs Java and the environment that `make spark` makes.
"""

import atexit
import json
import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import lakesql
from benchmarks import workload
from benchmarks.engines import ours
from benchmarks.engines.common import check_rows
from benchmarks.ready import Ready, Unavailable, copied

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-spark" / "bin" / "python"
HUDI = "1.2.0"
JAR = ROOT / ".venv-spark" / "jars" / f"hudi-spark3.5-bundle_2.12-{HUDI}.jar"
_SCRIPT = Path(__file__).with_name("spark_session.py")
_CALLS = 3
TABLES: dict[str, Any] = {}
_OPTIONS = {"type": "cow", "primaryKey": ours.KEY, "preCombineField": ours.ORDERING}


def version() -> str:
    if shutil.which("java") is None:
        raise Unavailable("no java on the path")
    for path in (PYTHON, JAR):
        if not path.exists():
            raise Unavailable(f"{path.relative_to(ROOT)} is missing (make spark)")
    return f"{HUDI} on Spark 3.5"


class Session:
    def __init__(self, work: Path) -> None:
        scratch = work / "spark"
        scratch.mkdir()
        with (scratch / "spark.log").open("wb") as log:
            self._process = subprocess.Popen(
                [PYTHON, _SCRIPT, JAR, scratch],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=scratch,
                text=True,
            )
        atexit.register(self.stop)
        self.pids: list[int] = self._answer()["pids"]
        self.ask(rows="SELECT 1")

    def ask(self, **command: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the Spark session ended")
        found: dict[str, Any] = json.loads(line)
        if "error" in found:
            raise SystemExit(f"Spark: {found['error']}")
        return found

    def stop(self) -> None:
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
        self._process.wait()


def _check(path: Path, data: Path, change: str, _: object, thorough: bool) -> None:
    check_rows(lakesql.connect(warehouse=str(path.parent)).duckdb, f"hudi_scan('{path}')", data, change, thorough)


def merge(data: Path, work: Path, kind: str, change: str) -> Ready:
    path = copied(ours.at(data, kind), work, deep=True)
    session = Session(work)
    session.ask(run=[f"CREATE TABLE target USING hudi LOCATION '{path}'"])
    session.ask(parquet=[str(workload.source_file(data, change))], view="source")
    statement = "MERGE INTO target t USING source s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    return Ready(lambda: session.ask(run=[statement]), partial(_check, path, data, change), pids=lambda: session.pids)


def bulk_insert(data: Path, work: Path) -> Ready:
    path = work / ours.FOLDER
    session = Session(work)
    columns = "id string, event_time timestamp, customer bigint, quantity int, amount double, status string, city string, remark string"
    options = ", ".join(f"{k} = '{v}'" for k, v in _OPTIONS.items())
    session.ask(
        run=[
            f"CREATE TABLE target ({columns}) USING hudi TBLPROPERTIES ({options}) LOCATION '{path}'",
            "SET hoodie.spark.sql.insert.into.operation = bulk_insert",
        ]
    )
    session.ask(parquet=workload.rows_files(data), view="source")
    statement = "INSERT INTO target SELECT * FROM source"
    return Ready(lambda: session.ask(run=[statement]), partial(_check, path, data, "base"), pids=lambda: session.pids)


def read(data: Path, work: Path, table: str, query: str) -> Ready:
    path, change = copied(ours.at(data, table), work, deep=True), table.partition("-")[2] or "base"
    session = Session(work)
    session.ask(run=[f"CREATE TABLE target USING hudi LOCATION '{path}'"])
    sql = workload.query(query, "target", data)

    def check(_: object, thorough: bool) -> None:
        if thorough:
            found = session.ask(rows="SELECT count(*), CAST(round(sum(amount)) AS BIGINT) FROM target")["rows"][0]
            wanted = [*workload.expected_result(data, change, "full"), *workload.expected_result(data, change, "sum")]
            workload.require(found, wanted, f"what Spark reads of {table}")

    return Ready(lambda: session.ask(read=sql), check, calls=_CALLS, pids=lambda: session.pids)
