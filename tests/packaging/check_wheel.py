"""`make wheel-check`: build wheel and sdist, install the wheel into empty environments, and use it there.

    build      `python -m build`, `twine check --strict`
    pythons    every Python of the classifiers that is at hand: SQL, a table from Python, what the program says without [cli]
    extras     each alone on the first Python, and what it is for
    size       bytes that `pip install lakesql` brings, by package; those beyond duckdb, pyarrow and what the mission asks
               for (numpy, fastavro, sqlglot) must stay under 5 MB
    ahead      whether every dependency has a wheel for the next Python

Packages come from wherever pip gets them. `--python PATH` and `--extra NAME` may be repeated; default: all there are.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSIONS = [
    c.rpartition(" ")[2] for c in PROJECT["classifiers"] if c.startswith("Programming Language :: Python :: 3.")
]
AHEAD = "3.14"
ASKED_FOR = ("numpy", "fastavro", "sqlglot")
LIMIT = 5 * 1000 * 1000

USE = """
import lakesql, pyarrow as pa, tempfile
assert lakesql.__version__ == {version!r}
with lakesql.connect(warehouse=tempfile.mkdtemp()) as con:
    con.sql("CREATE TABLE t (id INT, x TEXT) USING hudi TBLPROPERTIES (type = 'mor', primaryKey = 'id')")
    con.sql("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    changes = pa.table({{"id": pa.array([2, 3], pa.int32()), "x": ["c", "d"]}})
    con.sql("MERGE INTO t USING changes s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")
    assert con.sql("SELECT id, x FROM t ORDER BY id").fetchall() == [(1, "a"), (2, "c"), (3, "d")]
    print(con.table("t").read().read_all().num_rows, "rows from Python", lakesql.__file__)
"""

KAFKA = """
import lakesql, tempfile
from kafka_mock import MockCluster
from kafka_produce import produce
from lakesql.ingest.metrics import Metrics
from lakesql.ingest.openmetrics import openmetrics
from lakesql.ingest.jobfile import read_job_file
import pathlib
with MockCluster() as cluster, lakesql.connect(warehouse=tempfile.mkdtemp()) as con:
    cluster.create("orders", 1)
    produce(cluster.brokers, "orders", [b'{"id": 1}', b'{"id": 2}'])
    con.execute(f"INGEST INTO orders FROM KAFKA ('kafka.brokers' = '{cluster.brokers}', 'topic.whitelist' = 'orders', "
                "'bootstrap.with.offset' = 'earliest') FORMAT JSON TBLPROPERTIES (primaryKey = 'id')")
    print(con.execute("SELECT count(*) FROM orders").fetchall()[0][0], "rows ingested")
assert openmetrics(Metrics("j"), "j").endswith("# EOF\\n")
job = pathlib.Path(tempfile.mkdtemp()) / "a.conf"
job.write_text('kafka { brokers = "h:1" }')
assert read_job_file(job)[0] == {"kafka.brokers": "h:1"}
"""

PLOT = """
import lakesql, lakesql.plot, tempfile
with lakesql.connect(warehouse=tempfile.mkdtemp()) as con:
    con.sql("CREATE TABLE t USING hudi AS SELECT 1 AS id")
    assert "<svg" in lakesql.plot.timeline(con.table("t")).svg()
"""

NOTEBOOK = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "lakesql")
assert shell.run_cell("%lakesql SELECT 42 AS a").success
"""


def main() -> int:
    """Do it all; exit code 1 when something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", action="append", help="an interpreter; may be repeated")
    parser.add_argument("--no-extras", action="store_true", help="leave the extras out")
    parser.add_argument("--extra", action="append", help="only the wheel with this extra; may be repeated")
    asked = parser.parse_args()
    pythons = {version_of(p): p for p in asked.python} if asked.python else at_hand()
    with tempfile.TemporaryDirectory(prefix="lakesql-wheel-") as folder:
        home = Path(folder)
        wheel, sdist = build(home)
        if asked.extra:
            for extra in asked.extra:
                check_extra(home, next(iter(pythons.values())), wheel, extra)
            return 0
        for version in sorted({*VERSIONS, AHEAD} - pythons.keys()):
            say(f"Python {version}: not at hand")
        for version, python in pythons.items():
            check_python(home, version, python, wheel)
        first = next(iter(pythons.values()))
        check_sdist(home, first, sdist)
        if not asked.no_extras:
            for extra in PROJECT["optional-dependencies"]:
                if extra not in ("test", "bench"):
                    check_extra(home, first, wheel, extra)
        ahead(home, first, wheel)
        return 0 if small(home / f"env-{next(iter(pythons))}") else 1


def say(text: str) -> None:
    """One line of the report."""
    print(text, flush=True)


def run(*command: object, cwd: Path, check: bool = True, given: str = "") -> subprocess.CompletedProcess[str]:
    """A command outside of the checkout, so that nothing of it is imported; its output when it fails."""
    hidden = {"PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME", "__PYVENV_LAUNCHER__"}
    env = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run([*map(str, command)], cwd=cwd, env=env, capture_output=True, text=True, input=given)
    if check and done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


def version_of(python: str) -> str:
    """Major and minor version of an interpreter; '' for none."""
    asked = "import sys; print('%d.%d' % sys.version_info[:2])"
    try:
        return subprocess.run([python, "-c", asked], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def at_hand() -> dict[str, str]:
    """The Pythons on the PATH and those that pyenv has."""
    found: dict[str, str] = {}
    pyenv = shutil.which("pyenv")
    root = subprocess.run([pyenv, "root"], capture_output=True, text=True).stdout.strip() if pyenv else ""
    for version in (*VERSIONS, AHEAD):
        named = [str(p) for p in Path(root).glob(f"versions/{version}.*/bin/python")] if root else []
        good = [p for p in (shutil.which(f"python{version}"), *named) if p and version_of(p) == version]
        if good:
            found[version] = good[0]
    return found or {version_of(sys.executable): sys.executable}


def environment(home: Path, python: str, name: str, *packages: object) -> Path:
    """A new environment with these packages."""
    folder = home / name
    run(python, "-m", "venv", folder, cwd=home)
    run(folder / "bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages, cwd=home)
    return folder


def build(home: Path) -> tuple[Path, Path]:
    """Wheel and sdist, with metadata that an index takes."""
    tools = environment(home, sys.executable, "tools", "build", "twine")
    run(tools / "bin/python", "-m", "build", "-o", home / "dist", ROOT, cwd=home)
    [wheel], [sdist] = (home / "dist").glob("*.whl"), (home / "dist").glob("*.tar.gz")
    say(run(tools / "bin/python", "-m", "twine", "check", "--strict", wheel, sdist, cwd=home).stdout.strip())
    for one in (wheel, sdist):
        say(f"{one.name}: {one.stat().st_size:,} bytes")
    return wheel, sdist


def check_python(home: Path, version: str, python: str, wheel: Path) -> None:
    """The wheel without extras on one Python."""
    env = environment(home, python, f"env-{version}", wheel)
    run(env / "bin/python", "-m", "pip", "check", cwd=home)
    use(home, env)
    assert_says(run(env / "bin/lakesql", "demo", cwd=home, check=False), 1, "pip install 'lakesql[cli]'")
    say(f"Python {version}: SQL, a table from Python, and what [cli] is for")


def use(home: Path, env: Path) -> None:
    """What works without extras."""
    assert_says(run(env / "bin/lakesql", "-c", "select 42", cwd=home), 0, "42")
    assert_says(run(env / "bin/lakesql", "--format=csv", cwd=home, given="select 6 * 7 as a;"), 0, "a\n42\n")
    assert_says(run(env / "bin/python", "-m", "lakesql", "--version", cwd=home), 0, "DuckDB")
    done = run(env / "bin/python", "-c", USE.format(version=PROJECT["version"]), cwd=home)
    assert_says(done, 0, f"3 rows from Python {env.resolve()}")


def assert_says(done: subprocess.CompletedProcess[str], code: int, text: str) -> None:
    """SystemExit unless a command ended with this exit code and said this."""
    if done.returncode != code or text not in done.stdout + done.stderr:
        raise SystemExit(
            f"{done.args}: expected {code} and {text!r}, found {done.returncode}:\n{done.stdout}{done.stderr}"
        )


def check_sdist(home: Path, python: str, sdist: Path) -> None:
    """The sdist builds the wheel that the checkout builds."""
    use(home, environment(home, python, "env-sdist", sdist))
    say("sdist: installs and runs")


def check_extra(home: Path, python: str, wheel: Path, extra: str) -> None:
    """One extra alone, and what it is for."""
    env = environment(home, python, f"env-{extra}", f"{wheel}[{extra}]")
    run(env / "bin/python", "-m", "pip", "check", cwd=home)
    scripts = {"kafka": KAFKA, "plot": PLOT, "notebook": NOTEBOOK}
    if extra in scripts:
        for name in ("mock", "produce"):
            shutil.copy(ROOT / f"tests/kafka/{name}.py", home / f"kafka_{name}.py")
        run(env / "bin/python", "-c", f"import sys; sys.path.insert(0, {str(home)!r})\n{scripts[extra]}", cwd=home)
    elif extra in ("cli", "demo"):
        assert_says(run(env / "bin/lakesql", "--help", cwd=home), 0, "doctor")
        done = run(env / "bin/lakesql", "demo", cwd=home)
        compared = "hudi-rs reads the same" if extra == "demo" else "hudi-rs is not installed"
        assert_says(done, 0, compared)
    elif extra == "serve":
        check_serve(home, env)
    elif extra == "docs":
        run(env / "bin/python", "-m", "sphinx", "-q", "-b", "html", "-W", ROOT / "docs", home / "site", cwd=home)
        assert (home / "site/index.html").exists()
    else:
        say(f"[{extra}]: installs alone; nothing here says what it is for")
        return
    say(f"[{extra}]: installs alone and does what it is for")


def check_serve(home: Path, env: Path) -> None:
    """A server that comes up with the extensions of the packages, and goes on SIGTERM."""
    command = [env / "bin/lakesql", "serve", "--port", "0", "--warehouse", home / "lake"]
    with subprocess.Popen(
        [*map(str, command)], cwd=home, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as server:
        assert server.stdout is not None
        said = server.stdout.readline()
        said = server.stdout.readline() if "does not exist" in said else said
        server.terminate()
        rest = server.stdout.read()
    if server.returncode or "is served at quack:" not in said:
        raise SystemExit(f"lakesql serve: exit code {server.returncode}: {said}{rest}")


def ahead(home: Path, python: str, wheel: Path) -> None:
    """Whether the dependencies have wheels for the next Python."""
    command = ["-m", "pip", "install", "-q", "--dry-run", "--target", home / "none", "--only-binary=:all:"]
    done = run(python, *command, "--python-version", AHEAD, wheel, cwd=home, check=False)
    said = "every dependency has a wheel" if done.returncode == 0 else done.stderr.strip().rpartition("\n")[2]
    say(f"Python {AHEAD}, not run: {said}")


def small(env: Path) -> bool:
    """What an installation without extras takes, compiled files not counted; whether that is little enough."""
    script = (
        "from importlib.metadata import distributions as d\n"
        "for x in d(): print(x.name, sum(f.size or 0 for f in x.files or [] if f.suffix != '.pyc'))"
    )
    lines = run(env / "bin/python", "-c", script, cwd=env).stdout.splitlines()
    sizes = {name: int(size) for name, size in (line.split() for line in lines) if name not in ("pip", "setuptools")}
    for name, size in sorted(sizes.items(), key=lambda one: -one[1]):
        say(f"  {name:<16}{size / 1e6:8.1f} MB")
    more = sum(size for name, size in sizes.items() if name not in ("duckdb", "pyarrow"))
    rest = sum(size for name, size in sizes.items() if name not in ("duckdb", "pyarrow", *ASKED_FOR))
    say(f"installed: {sum(sizes.values()) / 1e6:.1f} MB; beyond duckdb and pyarrow {more / 1e6:.1f} MB")
    say(f"beyond {', '.join(ASKED_FOR)} too: {rest / 1e6:.1f} MB of {LIMIT / 1e6:.0f} MB")
    return rest < LIMIT


if __name__ == "__main__":
    sys.exit(main())
