"""One script on DuckDB and on Spark: the same rows, counts and classes of errors; and a table that both write in turns."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from lakesql.sql.lexer import split
from tests.interop.spark import ENVIRONMENT, ROOT, SparkHudi, jar

SCRIPT = Path(__file__).with_name("two_engines.sql")
VERSIONS = (6, 8, 9)
LIMIT_S = 600.0


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the statements gave, by table version: one process with one Spark session of Hudi 1.2.0.

    The workers of one test run share it: the first one asks, the others wait for what it is told.
    """
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    folder = (
        tmp_path_factory.getbasetemp().parent / f"two-engines-{run}" if run else tmp_path_factory.mktemp("two_engines")
    )
    folder.mkdir(exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not (folder / "answer.json").exists():
            _ask(folder)
    return json.loads((folder / "answer.json").read_text())


def _ask(folder: Path) -> None:
    if SparkHudi.running is not None:
        SparkHudi.running.stop()
    worker = Path(__file__).with_name("two_engines_worker.py")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_"))}
    done = subprocess.run(
        [ENVIRONMENT / "bin" / "python", worker, jar("1.2.0"), folder, SCRIPT, *map(str, VERSIONS)],
        env={**environment, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_the_script_has_forty_statements() -> None:
    assert len(split(SCRIPT.read_text())) >= 40


@pytest.mark.parametrize("version", VERSIONS)
def test_both_engines_give_the_same(version: int, answers: dict[str, Any], spark120: SparkHudi) -> None:
    del spark120  # marks the test
    found = answers[str(version)]["statements"]
    different = [one for one in found if one["duckdb"] != one["spark"]]
    assert different == []
    assert len(found) >= (40 if version == VERSIONS[-1] else 38)
    assert sum(one["spark"][0] == "written" for one in found) >= 10
    assert sum(one["spark"][0] == "error" for one in found) <= 9, "statements that should work fail on both"
    assert {one["spark"][1] for one in found if one["spark"][0] == "error"} >= {
        "SQLError",
        "TableError",
        "BinderException",
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_a_table_goes_from_one_engine_to_the_other_and_back(
    version: int, answers: dict[str, Any], spark120: SparkHudi
) -> None:
    del spark120  # marks the test
    here, there, kept = answers[str(version)]["handed_over"]
    assert here == there == [[1, 11, 2], [4, 40, 1], [5, 50, 1]]
    assert kept == str(version)
