"""Each script in `sql/` runs on a fresh connection, as Copy-on-Write and as Merge-on-Read, and gives its `-- result:` lines.

`hudi.sql` and `serve.sql` are no such scripts: they are for the stock DuckDB shell (test_shell.py, tests/quack).
"""

import re
from pathlib import Path

import pytest

import lakesql

SCRIPTS = sorted(
    p for p in (Path(__file__).parents[2] / "sql").glob("*.sql") if p.name not in ("hudi.sql", "serve.sql")
)


@pytest.mark.parametrize("kind", ["cow", "mor"])
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.stem)
def test_script_gives_the_results_it_states(script: Path, kind: str, tmp_path: Path) -> None:
    text = script.read_text().replace(":type", kind)
    con = lakesql.connect(warehouse=str(tmp_path))
    compared, rows = 0, []
    for piece in re.split(r";\n", text):
        lines = piece.splitlines()
        wanted = [line.removeprefix("-- result: ") for line in lines if line.startswith("-- result: ")]
        if wanted:  # they belong to the statement before
            assert [str(row) for row in rows] == wanted, script.name
            compared += 1
        statement = "\n".join(line for line in lines if not line.startswith("--")).strip()
        if statement:
            rows = con.execute(statement).fetchall()
    assert compared


def test_there_are_scripts() -> None:
    assert SCRIPTS
