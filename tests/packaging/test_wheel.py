"""What the wheel holds and says; `make wheel-check` installs it and runs it."""

import configparser
import importlib
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.metadata import Metadata
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
SUFFIXES = {".py", ".typed", ".zip", ".json", ".sql"}
CORE = {"duckdb", "fastavro", "filelock", "numpy", "platformdirs", "pyarrow", "sqlglot"}
MB = 1 << 20


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    if "CI" not in os.environ:
        pytest.importorskip("hatchling", reason="hatchling is not installed; the extra [test] has it")
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    [built] = folder.glob("*.whl")
    assert re.fullmatch(r"lakesql-[^-]+-py3-none-any\.whl", built.name)
    with zipfile.ZipFile(built) as found:
        yield found


@pytest.fixture
def metadata(wheel: zipfile.ZipFile) -> Message:
    return Parser().parsestr(wheel.read(_of_dist_info(wheel, "METADATA")).decode())


def _of_dist_info(wheel: zipfile.ZipFile, name: str) -> str:
    [path] = [n for n in wheel.namelist() if re.fullmatch(rf"lakesql-[^/]+\.dist-info/{name}", n)]
    return path


def _extra(requirement: Requirement) -> str | None:
    found = re.search(r'extra == "([^"]+)"', str(requirement.marker))
    return found[1] if found else None


def test_wheel_holds_the_package_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    names = {n for n in wheel.namelist() if ".dist-info/" not in n}
    there = {p.relative_to(ROOT).as_posix() for p in (ROOT / "lakesql").rglob("*") if p.is_file()}
    assert names == {n for n in there if "__pycache__" not in n}
    assert {Path(n).suffix for n in names} <= SUFFIXES
    assert "lakesql/py.typed" in names
    assert not [n for n in names if "test" in Path(n).name]
    assert {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"} == {
        n.partition(".dist-info/")[2] for n in set(wheel.namelist()) - names
    }


def test_wheel_is_small(wheel: zipfile.ZipFile) -> None:
    sizes = {one.filename: one.file_size for one in wheel.infolist()}
    assert sum(sizes.values()) < 4 * MB
    assert sum(one.compress_size for one in wheel.infolist()) < 1.5 * MB
    data = {name: size for name, size in sizes.items() if name.startswith("lakesql/") and not name.endswith(".py")}
    assert sum(data.values()) < 100_000


def test_program_is_where_the_wheel_says(wheel: zipfile.ZipFile) -> None:
    scripts = configparser.ConfigParser()
    scripts.read_string(wheel.read(_of_dist_info(wheel, "entry_points.txt")).decode())
    assert dict(scripts["console_scripts"]) == {"lakesql": "lakesql.entry:main"}
    module, _, function = scripts["console_scripts"]["lakesql"].partition(":")
    assert callable(getattr(importlib.import_module(module), function))


def test_metadata_is_valid_and_complete(wheel: zipfile.ZipFile, metadata: Message) -> None:
    from trove_classifiers import classifiers

    checked = Metadata.from_email(wheel.read(_of_dist_info(wheel, "METADATA")), validate=True)
    assert checked.name == "lakesql"
    assert checked.license_expression == "Apache-2.0"
    assert checked.license_files == ["LICENSE"]
    assert checked.description_content_type == "text/markdown"
    assert checked.description == (ROOT / "README.md").read_text()
    given = metadata.get_all("Classifier") or []
    assert set(given) <= classifiers
    oldest = str(checked.requires_python).removeprefix(">=")
    assert f"Programming Language :: Python :: {oldest}" in given
    assert wheel.read(_of_dist_info(wheel, "licenses/LICENSE")) == (ROOT / "LICENSE").read_bytes()


def test_core_needs_few_packages_and_extras_hold_together(metadata: Message) -> None:
    requirements = [Requirement(text) for text in metadata.get_all("Requires-Dist") or []]
    assert {r.name for r in requirements if r.marker is None} == CORE
    extras = set(metadata.get_all("Provides-Extra") or [])
    assert {"cli", "demo", "kafka"} <= extras
    for one in requirements:
        assert one.specifier or one.name == "lakesql", one
        assert one.name != "lakesql" or one.extras <= extras, one
        assert one.marker is None or _extra(one) in extras, one
