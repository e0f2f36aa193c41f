"""The reference pages name everything there is: statements, functions, settings, errors, methods, options of the command.

What is a table between markers is made from the code (`generated`); the rest is looked for.
"""

import inspect
import re
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest

import lakesql
from lakesql import cli
from lakesql.services import (
    adaptive_settings,
    archiving,
    clean_settings,
    clustering_plan,
    compaction_plan,
    freshness,
    log_compaction,
    spelling,
    ttl,
)
from lakesql.sql import functions, nodes, parse_ingest, statements
from lakesql.sql.lexer import split
from lakesql.sql.merge_into import POLICIES
from lakesql.sql.statements import parse
from lakesql.table.merge import PARTIAL_MODES, PAYLOADS, RULES
from lakesql.table.outcomes import DISK_CACHE
from lakesql.values import Parse, flag, one_of
from lakesql.write import names_of_settings as names
from lakesql.write import settings
from tests.docs.blocks import DOCS, blocks
from tests.docs.generated import check, check_kept, part, table

PAGES = DOCS / "reference"
SQL, FUNCTIONS, SETTINGS = PAGES / "sql.md", PAGES / "functions.md", PAGES / "settings.md"
PYTHON, RESULTS, COMMANDS = (PAGES / f"{name}.md" for name in ("python", "results", "command-line"))
COMPATIBILITY = DOCS / "compatibility.md"


# ---------------------------------------------------------------- statements


def test_every_kind_of_statement_is_in_an_sql_block() -> None:
    tables = {"visits", "copied", "trips"}
    shown = {
        type(parse(block.body, piece, lambda name: name[-1] in tables))
        for block in blocks(SQL.read_text())
        if block.language == "sql"
        for piece in split(block.body)
    }
    # Those of ingestion need a broker: docs/ingest/README.md shows and test_ingest runs them.
    assert shown == set(get_args(nodes.Statement)) - set(get_args(nodes.Ingestion)) - {nodes.ExplainIngest}


def test_every_form_of_a_statement_is_listed(regold: bool) -> None:
    own = [*statements._WITH_CTES.items(), *statements._WITH_TARGET.items(), *statements._PLAIN.items()]
    of_ingestion = [parse_ingest.ingest, *(getattr(parse_ingest, f"_{verb}") for verb in _VERBS)]
    parsers = [*(parser for _, parser in own), *of_ingestion]
    syntax = [parser.__doc__.strip().splitlines()[0] for parser in dict.fromkeys(parsers)]
    create = statements.parse_ddl.create_table.__doc__.split(";")[0]
    rows = [
        create,
        "EXPLAIN [(FATES)] MERGE | UPDATE | DELETE | INSERT ...",
        "EXPLAIN INGEST | RUN INGESTION | REPLAY INGESTION ...",
    ]
    lines = sorted({re.sub(r"(?<!\.)\.$", "", line.strip()) for line in [*syntax, *rows]})
    check(SQL, "syntax", "```\n" + "\n".join(lines) + "\n```\n", regold)


_VERBS = ("create", "run", "show", "alter", "drop", "replay")


# ---------------------------------------------------------------- table functions


def test_every_table_function_is_listed_with_its_parameters(regold: bool) -> None:
    rows = [(f"`{name}({f.parameters})`",) for name, f in functions.TABLE_FUNCTIONS.items()]
    check_kept(FUNCTIONS, "functions", ("function", "gives"), rows, regold)


def test_columns_of_the_table_functions_are_listed(regold: bool, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    calls = {name: f"{name}($1)" for name in functions.TABLE_FUNCTIONS if name not in _OF_THE_TABLE}
    del calls["hudi_metadata"]
    with lakesql.connect(warehouse=str(tmp_path)) as con:
        con.execute("CREATE TABLE t (id INT) USING hudi TBLPROPERTIES (primaryKey = 'id')")
        con.execute("INSERT INTO t VALUES (1)")
        rows = []
        for name in calls:
            if name.startswith("kafka_"):
                continue  # docs/ingest/README.md
            found = con.duckdb.execute(f"DESCRIBE FROM {calls[name].replace('$1', repr(path))}").fetchall()
            rows.append((f"`{name}`", ", ".join(f"`{column}` {kind}" for column, kind, *_ in found)))
    check(FUNCTIONS, "columns", table(("function", "columns"), rows), regold)


_OF_THE_TABLE = ("hudi_scan", "read_hudi", "hudi_snapshot", "hudi_read_optimized", "hudi_incremental", "hudi_table_changes", "hudi_diff")  # fmt: skip


# ---------------------------------------------------------------- settings

_STATEMENT_CHOICES = (names.INSERT_OPERATION, "hoodie.datasource.overwrite.mode", names.OVERWRITE_MODE)
_OF_STATEMENTS: dict[str, tuple[Parse, Any]] = {
    **{name: (one_of(*names.CHOICES[name]), names.CHOICES[name][0]) for name in _STATEMENT_CHOICES},
    names.DUPLICATES: (one_of(*POLICIES), POLICIES[0]),
    names.EVOLVE: (flag, False),
    names.RECONCILE: (flag, False),
}
_OF_READS: dict[str, tuple[Parse, Any]] = {
    freshness.MAX_STALENESS: (freshness.SETTINGS[freshness.MAX_STALENESS], None),
    freshness.ON_STALE: (freshness.SETTINGS[freshness.ON_STALE], freshness.Demand().on_stale),
    DISK_CACHE: (flag, True),
}


def of_config(kind: Any, by_field: dict[str, tuple[str, Parse]]) -> dict[str, tuple[Parse, Any]]:
    """Setting -> its parser and its default, of a dataclass of settings."""
    return {by_field[f.name][0]: (by_field[f.name][1], f.default) for f in fields(kind)}


GROUPS: dict[str, dict[str, tuple[Parse, Any]]] = {
    "statements": _OF_STATEMENTS,
    "writes": of_config(settings.WriteConfig, settings._BY_FIELD),
    "reads": _OF_READS,
    "compaction": of_config(compaction_plan.CompactionConfig, compaction_plan._BY_FIELD),
    "adaptive compaction": of_config(adaptive_settings.AdaptiveConfig, adaptive_settings._BY_FIELD),
    "log compaction": of_config(log_compaction.LogCompactionConfig, log_compaction._BY_FIELD),
    "clustering": of_config(clustering_plan.ClusteringConfig, clustering_plan.BY_FIELD),
    "partition ttl": of_config(ttl.TtlConfig, ttl._BY_FIELD),
    "cleaning": of_config(clean_settings.CleanConfig, clean_settings._BY_FIELD),
    "archiving": of_config(archiving.ArchiveConfig, archiving._BY_FIELD),
}


def values_of(name: str, parse_value: Parse) -> str:
    """What a setting takes, in the words of its parser's errors."""
    if name == "hoodie.index.type":
        return ", ".join(f"`{word}`" for word in settings.INDEXES if word)
    for wrong in ("-999999", "?"):
        try:
            value = parse_value(wrong)
        except ValueError as error:
            text = str(error).removeprefix("must be ").removeprefix("lakesql knows ")
            words = text.removeprefix("one of ").split(", ")
            if text.startswith("one of ") or all(re.fullmatch(r"\w+", word) for word in words):
                return ", ".join(f"`{word}`" for word in words)
            return f"a whole number, {text}" if text.startswith("at least") else text
        if wrong == "?" and isinstance(value, tuple):
            return "names with commas"
    return "text"


def shown_default(parse_value: Parse, default: Any) -> str:
    """A default as one would write it; `none` for one that cannot be written."""
    text = str(default).lower() if isinstance(default, bool) else str(default)
    if default is None or default in ("", ()):
        return "none"
    try:
        parse_value(text)
    except ValueError:
        return "none"
    return f"`{int(default)}`" if isinstance(default, float) and default == int(default) else f"`{text}`"


@pytest.mark.parametrize("group", GROUPS)
def test_settings_are_listed_with_values_and_defaults(group: str, regold: bool) -> None:
    rows = [(f"`{n}`", values_of(n, p), shown_default(p, default)) for n, (p, default) in GROUPS[group].items()]
    check_kept(SETTINGS, group, ("setting", "values", "default", "meaning"), rows, regold)


def test_names_of_properties_of_a_new_table_are_listed(regold: bool) -> None:
    by_meaning: dict[str, list[str]] = {}
    for name, meaning in names.SYNONYMS.items():
        by_meaning.setdefault(meaning, []).append(name)
    rows = [(f"`{first}`", ", ".join(f"`{o}`" for o in others)) for first, *others in by_meaning.values()]
    check_kept(SETTINGS, "new tables", ("property", "the same", "meaning"), rows, regold)


def test_every_known_setting_is_on_the_page(regold: bool) -> None:
    text = SETTINGS.read_text()
    listed = {
        k
        for group in (*GROUPS, "new tables")
        for k in re.findall(r"`((?:hoodie|lakesql)\.[\w.]+)`", part(text, group)[1])
    }
    spelt = {*clean_settings.ALIASES}
    others = sorted(spelling.KNOWN - listed - spelt - set(names.UNSUPPORTED) - set(names.ABSENT))
    check_kept(SETTINGS, "others", ("setting", "meaning"), [(f"`{name}`",) for name in others], regold)
    refused = [(f"`{name}`", why) for name, why in names.UNSUPPORTED.items()]
    refused += [(f"`{name}` = `{value}`", why) for name, (value, why) in names.ABSENT.items()]
    check(SETTINGS, "refused", table(("setting", "why"), refused), regold)
    assert [name for name in spelt if f"`{name}`" not in text] == []


# ---------------------------------------------------------------- Python, results, errors


def test_every_error_is_in_the_table_of_errors() -> None:
    named = re.findall(r"^\| `(\w+)` \|", RESULTS.read_text(), re.M)
    errors = [
        n
        for n in lakesql.__all__
        if isinstance(getattr(lakesql, n), type) and issubclass(getattr(lakesql, n), Exception)
    ]
    assert sorted(named) == sorted(errors)


@pytest.mark.parametrize("field", [f.name for f in fields(lakesql.WriteResult)])
def test_field_of_a_result_is_named(field: str) -> None:
    assert f"`{field}`" in RESULTS.read_text()


@pytest.mark.parametrize("rule", [*PAYLOADS, *RULES, *PARTIAL_MODES])
def test_merge_rule_is_named_among_what_is_read_and_written(rule: str) -> None:
    assert f"`{rule}`" in COMPATIBILITY.read_text()


def call_of(name: str, function: Any) -> str:
    """A call as one writes it: names and defaults, without types."""
    text = []
    for p in inspect.signature(function).parameters.values():
        if p.name == "self":
            continue
        if p.kind is p.KEYWORD_ONLY and "*" not in "".join(text):
            text.append("*")
        stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        text.append(f"{stars}{p.name}" + ("" if p.default is p.empty else f"={shown_value(p.default)}"))
    return f"`{name}({', '.join(text)})`"


def shown_value(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else getattr(value, "__name__", repr(value))


def sentence_of(documented: Any) -> str:
    """The first paragraph of a docstring."""
    return " ".join((inspect.getdoc(documented) or "").split("\n\n")[0].split()).replace("|", "\\|")


MEMBERS = {"connection": lakesql.Connection, "table": lakesql.Table}


@pytest.mark.parametrize("part", MEMBERS)
def test_members_are_listed_with_their_arguments(part: str, regold: bool) -> None:
    rows = []
    own = [kind for kind in MEMBERS[part].__mro__ if kind.__module__.split(".")[0] == "lakesql"]
    for name, member in (pair for kind in own for pair in vars(kind).items()):
        if name.startswith("_"):
            continue
        call = f"`{name}`" if isinstance(member, property) or not callable(member) else call_of(name, member)
        rows.append((call, sentence_of(member) if callable(member) or isinstance(member, property) else ""))
    check(PYTHON, part, table(("member", "what it does"), rows), regold)
    assert [name for name, doc in rows if not doc] == []


def test_functions_are_listed_with_their_arguments(regold: bool) -> None:
    found = {name: getattr(lakesql, name) for name in lakesql.__all__}
    rows = [(call_of(f"lakesql.{n}", f), sentence_of(f)) for n, f in found.items() if inspect.isfunction(f)]
    check(PYTHON, "functions", table(("function", "what it does"), rows), regold)


@pytest.mark.parametrize("name", lakesql.__all__)
def test_public_name_has_a_docstring(name: str) -> None:
    assert getattr(lakesql, name).__doc__


def test_public_names_are_sorted() -> None:
    assert lakesql.__all__ == sorted(lakesql.__all__)


# ---------------------------------------------------------------- command line


def test_every_command_is_listed_with_its_options(regold: bool) -> None:
    import typer.main

    group: Any = typer.main.get_command(cli.app)
    rows = []
    for name, command in group.commands.items():
        shown = f"`lakesql {name}`" if name != cli._DEFAULT else "`lakesql`"
        arguments = " ".join(p.metavar or p.name.upper() for p in command.params if p.param_type_name == "argument")
        options = [p for p in command.params if p.param_type_name == "option" and p.name != "help"]
        listed = ", ".join(f"`{'`, `'.join(p.opts)}`" for p in options)
        rows.append(
            (shown, f"`{arguments}`" if arguments else "", listed, " ".join(command.help.split("\n\n")[0].split()))
        )
    check(COMMANDS, "commands", table(("command", "arguments", "options", "what it does"), rows), regold)
