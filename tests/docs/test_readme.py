"""The README's Python and SQL blocks run in order and give the text block that follows; its tables name everything there is."""

import contextlib
import io
import re
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

import lakesql
from lakesql.sql import functions, nodes
from lakesql.sql.lexer import split
from lakesql.sql.statements import parse
from lakesql.table.merge import PARTIAL_MODES, PAYLOADS, RULES
from lakesql.write import settings

README = (Path(__file__).parents[2] / "README.md").read_text()
BLOCKS = re.findall(r"```(\w*)\n(.*?)```", README, re.S)
SQL = [body for language, body in BLOCKS if language == "sql"]


def section(title: str) -> str:
    """The text below a heading."""
    return README.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def test_blocks_give_what_the_readme_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    given = ""
    checked = 0
    with lakesql.connect(warehouse="sql") as con:
        for language, body in BLOCKS:
            if language == "python":
                out = io.StringIO()
                with contextlib.redirect_stdout(out):
                    exec(body, scope)
                given = out.getvalue()
            elif language == "sql":
                given = "".join(f"{row}\n" for row in con.execute(body).fetchall())
            elif language == "text":
                assert given == body
                checked += 1
    assert checked == 5


def test_every_kind_of_statement_is_in_an_sql_block() -> None:
    tables = {"visits", "copied", "trips"}
    shown = {
        type(parse(text, piece, lambda name: name[-1] in tables)) for text in SQL for piece in split(text)
    }  # fmt: skip
    # Those of ingestion need a broker: docs/ingest/README.md shows and test_ingest runs them.
    assert shown == set(get_args(nodes.Statement)) - set(get_args(nodes.Ingestion)) - {nodes.ExplainIngest}


def test_every_error_is_in_the_table_of_errors() -> None:
    named = re.findall(r"^\| `(\w+)` \|", section("Results and errors"), re.M)
    errors = [
        n
        for n in lakesql.__all__
        if isinstance(getattr(lakesql, n), type) and issubclass(getattr(lakesql, n), Exception)
    ]
    assert sorted(named) == sorted(errors)


@pytest.mark.parametrize("field", [f.name for f in fields(lakesql.WriteResult)])
def test_field_of_a_result_is_in_the_readme(field: str) -> None:
    assert f"`{field}`" in section("Results and errors")


@pytest.mark.parametrize("field", fields(settings.WriteConfig), ids=lambda f: f.name)
def test_setting_is_in_the_readme_with_its_default(field: object) -> None:
    name, parse_value = settings._BY_FIELD[field.name]
    (default,) = re.findall(rf"^\| `{re.escape(name)}` \| (.+?) \|", section("Settings"), re.M)
    if default not in ("measured", "from the table", "by measured cost", "the record key", "none"):
        assert parse_value(default.strip("`")) == field.default


@pytest.mark.parametrize("rule", [*PAYLOADS, *RULES, *PARTIAL_MODES])
def test_merge_rule_is_in_the_readme(rule: str) -> None:
    assert f"`{rule}`" in section("What is read and written")


@pytest.mark.parametrize("owner", [lakesql.Table, lakesql.Connection, lakesql.connect, lakesql.create_table])
def test_methods_and_arguments_are_in_the_readme(owner: object) -> None:
    text = section("Python")
    if isinstance(owner, type):
        names = [n for n in vars(owner) if not n.startswith("_")]
    else:
        code = owner.__code__
        names = list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])
    assert [n for n in names if not re.search(rf"\b{n}\b", text)] == []


@pytest.mark.parametrize("name", sorted(functions.TABLE_FUNCTIONS))
def test_table_function_is_in_the_readme(name: str) -> None:
    assert f"`{name}" in README


@pytest.mark.parametrize("name", lakesql.__all__)
def test_public_name_has_a_docstring(name: str) -> None:
    assert getattr(lakesql, name).__doc__


def test_public_names_are_sorted() -> None:
    assert lakesql.__all__ == sorted(lakesql.__all__)
