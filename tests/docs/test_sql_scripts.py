"""Each script in `sql/` prints what its `.out` file says, as `lakesql run` would; its queries give the same on both types.

`make regold` writes the `.out` files anew. Instants, paths, bytes and times are
masked: they differ from run to run. What is for `duckdb -init` is no such script (test_shell.py).
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import lakesql
from lakesql.sql.script import Result, run, shown
from tests.docs.blocks import DOCS, command

FOLDER = DOCS.parent / "sql"
FOR_THE_STOCK_SHELL = ("hudi.sql", "serve.sql")
SCRIPTS = sorted(p for p in FOLDER.glob("*.sql") if p.name not in FOR_THE_STOCK_SHELL)
TOPICS = (
    "create", "insert", "merge", "update_delete", "returning_and_explain", "time_travel", "incremental", "cdc",
    "schema_evolution", "merge_modes", "indexes", "services", "freshness", "advice", "procedures", "inspect",
)  # fmt: skip


@dataclass(frozen=True)
class Printed:
    """What a script printed: all of it, and the results of its queries alone."""

    everything: str
    queries: list[str]


def printed(script: Path, type_: str, warehouse: Path) -> Printed:
    """Run a script on an empty warehouse, its tables of a type unless they say one."""
    everything, queries = "", []
    with lakesql.connect(warehouse=str(warehouse)) as con:
        con.execute(f"SET hoodie.table.type = '{type_}'")
        for result in run(con, script.read_text()):
            if result.written:
                everything += steady_write(shown(result, "table")) + "\n"
            elif result.columns:
                text = shown(steady(result, warehouse), "table")
                everything += text + "\n"
                queries.append(re.sub("(MERGE_ON_READ|COPY_ON_WRITE).*", "", text))
    return Printed(everything, queries)


def steady_write(text: str) -> str:
    """The line of a write without what differs from run to run."""
    text = re.sub(r"\b(commit|deltacommit|replacecommit) \d{17}", r"\1", text)
    return re.sub(r"(?:, [\d,]+ bytes)? in [\d.]+ s$", "", text, flags=re.M)


def steady(result: Result, warehouse: Path) -> Result:
    """A result without what differs from run to run."""

    def masked(column: str, value: str | None) -> str | None:
        if value is None:
            return None
        if re.search(r"millis|_ms$|time_cost|duration|bytes", column):
            return "<measured>"
        return re.sub(r"\b\d{17}\b", "<instant>", value).replace(str(warehouse), "<warehouse>")

    rows = [tuple(masked(c, v) for c, v in zip(result.columns, row, strict=True)) for row in result.rows]
    return replace(result, rows=rows)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda p: p.stem)
def test_script_prints_what_stands_beside_it(script: Path, tmp_path: Path, regold: bool) -> None:
    found = printed(script, "cow", tmp_path).everything
    beside = script.with_suffix(".out")
    if regold:
        beside.write_text(found)
    assert found == beside.read_text()


OF_EITHER_TYPE = [s for s in SCRIPTS if "type = 'mor'" not in s.read_text()]


@pytest.mark.parametrize("script", OF_EITHER_TYPE, ids=lambda p: p.stem)
def test_queries_of_a_script_give_the_same_on_both_types(script: Path, tmp_path: Path) -> None:
    cow, mor = (printed(script, type_, tmp_path / type_).queries for type_ in ("cow", "mor"))
    assert mor == cow


def test_the_command_prints_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script = FOLDER / "merge.sql"
    said = steady_write(command(f"lakesql run {script}"))
    *_, last = script.with_suffix(".out").read_text().split("upsert: ")
    assert said.endswith("upsert: " + last)


def test_every_topic_has_a_script_and_the_readme_names_it() -> None:
    assert sorted(s.stem for s in SCRIPTS) == sorted(TOPICS)
    listed = re.findall(r"^\| \[(\w+)\.sql\]", (FOLDER / "README.md").read_text(), re.M)
    assert sorted(listed) == sorted(TOPICS)
