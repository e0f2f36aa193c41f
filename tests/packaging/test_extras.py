"""Without the extras: what needs none works, and what needs one says which."""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
OF_CLI = {"prompt_toolkit": "prompt-toolkit", "pygments": "pygments", "rich": "rich", "typer": "typer"}
OTHERS = {
    "IPython": "ipython",
    "boto3": "boto3",
    "confluent_kafka": "confluent-kafka",
    "fsspec": "fsspec",
    "hudi": "hudi",
    "itables": "itables",
    "matplotlib": "matplotlib",
    "narwhals": "narwhals",
    "obstore": "obstore",
    "pandas": "pandas",
    "polars": "polars",
    "prometheus_client": "prometheus-client",
    "pyhocon": "pyhocon",
    "pyparsing": "pyhocon",
    "pyspark": "pyspark",
    "traitlets": "ipython",
    "wcwidth": "wcwidth",
}
OPTIONAL = OF_CLI | OTHERS
"""Modules that extras bring, and the package that is asked for."""

BLOCK = f"""
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name in ("pandas", "polars"):  # pyarrow looks for them in sys.modules
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
sys.modules.update(dict.fromkeys({[*(set(OPTIONAL) - {"pandas", "polars"}), "click"]!r}))
"""


def python(program: str, *arguments: str, cwd: Path | None = None, given: str | None = None) -> tuple[int, str, str]:
    """(exit code, output, errors) of a program in an environment without any extra."""
    command = [sys.executable, "-c", BLOCK + program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, input=given)
    return done.returncode, done.stdout, done.stderr


def lakesql(*arguments: str, cwd: Path | None = None, given: str = "") -> tuple[int, str, str]:
    return python("from lakesql.entry import main; main()", *arguments, cwd=cwd, given=given)


def modules() -> dict[str, ast.Module]:
    found = {}
    for path in sorted((ROOT / "lakesql").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        found[name] = ast.parse(path.read_text())
    return found


def imported(tree: ast.Module) -> set[str]:
    """Top-level packages that a module imports anywhere."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {one.name for one in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return {name.partition(".")[0] for name in names}


def test_every_package_that_is_imported_is_asked_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    core = {Requirement(text).name for text in project["dependencies"]}
    extras = {Requirement(text).name for texts in project["optional-dependencies"].values() for text in texts}
    used = set().union(*(imported(tree) for tree in modules().values())) - sys.stdlib_module_names - {"lakesql"}
    assert {name for name in used if name not in OPTIONAL} <= core
    assert {OPTIONAL[name] for name in used if name in OPTIONAL} <= extras


def test_all_modules_but_those_of_commands_notebooks_and_drawing_load_without_extras() -> None:
    needy = {name for name, tree in modules().items() if imported(tree) & {"typer", "prompt_toolkit", "pygments"}}
    needy |= {name for name in modules() if name.startswith("lakesql.notebook")}
    needy |= {"lakesql.plot.fonts", "lakesql.plot.sheet", "lakesql.plot.svg"}  # loaded when a figure is drawn
    needy |= {f"lakesql.stores.{name}" for name in ("bridge", "errors", "objects")}  # loaded for the first bucket
    others = sorted(set(modules()) - needy - {"lakesql.demo"})
    code, _, errors = python(
        f"import importlib; [importlib.import_module(n) for n in {others!r} if not n.endswith('__main__')]"
    )
    assert (code, errors) == (0, "")


def test_the_program_runs_sql_and_scripts_as_with_the_extra(tmp_path: Path) -> None:
    made = (
        "CREATE TABLE t (id INT, x TEXT) USING hudi TBLPROPERTIES (primaryKey = 'id'); INSERT INTO t VALUES (1, '日本')"
    )
    assert lakesql("-c", made, cwd=tmp_path)[0] == 0
    (tmp_path / "s.sql").write_text("SELECT x FROM t;\nSELECT nothing;")
    code, output, errors = lakesql("run", "s.sql", "--format", "csv", cwd=tmp_path)
    assert (code, output) == (1, "x\n日本\n")
    assert errors.startswith("s.sql: line 2: Binder Error: ")
    assert lakesql("--format=jsonlines", cwd=tmp_path, given="SELECT 1 AS a;")[1] == '{"a": 1}\n'
    read_only = lakesql("--read-only", "-c", "DELETE FROM t", "-c", "SELECT 1", cwd=tmp_path)
    assert (read_only[0], read_only[1]) == (1, "")
    assert lakesql("nothing.sql", cwd=tmp_path)[2].startswith("Error: nothing.sql: no such file")
    (tmp_path / "e.sql").write_text("FROM first;\n.exit 3\nSELECT 2;")
    (tmp_path / "i.sql").write_text("CREATE TEMP VIEW first AS SELECT 42 AS a;")
    init = ("-init", "i.sql", "--format", "csv")
    assert lakesql("run", "e.sql", *init, cwd=tmp_path) == (3, "a\n42\n", "")
    assert lakesql("-c", "FROM first", *init, cwd=tmp_path) == (0, "a\n42\n", "")
    assert lakesql(*init, cwd=tmp_path, given="FROM first;\n.exit 4\n") == (4, "a\n42\n", "")
    assert "DuckDB" in lakesql("--version")[1]
    assert "pip install 'lakesql[cli]'" in lakesql("--help")[1]


@pytest.mark.parametrize("arguments", [["compact", "t"], ["demo"], ["ingest", "a.pull", "--once"], ["--help"]])
def test_other_commands_name_the_extra(arguments: list[str]) -> None:
    code, output, errors = lakesql(*arguments)
    assert "pip install 'lakesql[cli]'" in output + errors
    assert code == (0 if "--help" in arguments else 1)
    assert "Traceback" not in errors


def test_the_shell_names_the_extra() -> None:
    code, _, errors = python(
        "from lakesql import plain; sys.stdin.isatty = lambda: True; sys.argv = ['lakesql']; plain.main()", given=""
    )
    assert (code, errors.startswith("Error: the shell needs the packages of the extra cli")) == (1, True)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("from lakesql.ingest.kafka import open_client; open_client({})", "pip install 'lakesql[kafka]'"),
        (
            "from lakesql.ingest.openmetrics import openmetrics; from lakesql.ingest.metrics import Metrics; "
            "openmetrics(Metrics('j'), 'j')",
            "pip install 'lakesql[kafka]'",
        ),
        (
            "import pathlib; from lakesql.ingest.jobfile import read_job_file; pathlib.Path('a.conf').write_text('a=1'); "
            "read_job_file('a.conf')",
            "pip install 'lakesql[kafka]'",
        ),
        ("import lakesql; lakesql.connect(':memory:').execute('SELECT 1').df()", "pip install pandas"),
        ("import lakesql; lakesql.connect(':memory:').execute('SELECT 1').fetchdf()", "pip install pandas"),
        ("import lakesql; lakesql.connect(':memory:').execute('SELECT 1').pl()", "pip install polars"),
    ],
)
def test_what_needs_a_package_that_is_not_there_says_how_to_get_it(program: str, said: str, tmp_path: Path) -> None:
    code, _, errors = python(program, cwd=tmp_path)
    last = errors.strip().rpartition("\n")[2]
    assert (code, said in last, last.startswith("lakesql.errors.")) == (1, True, True), errors
