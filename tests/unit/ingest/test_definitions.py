"""Named ingestions in the warehouse: what is kept is what was asked for, and reads as a statement."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakesql.errors import FormatError, SQLError
from lakesql.ingest import definitions
from lakesql.ingest.definitions import Definition
from lakesql.sql.cursor import string_value
from lakesql.sql.lexer import split, tokens
from lakesql.sql.nodes import CreateIngestion
from lakesql.sql.statements import parse

TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="$"), min_size=1, max_size=12)
SETTINGS = st.dictionaries(TEXT.map(lambda t: f"k.{t.strip()}"), TEXT, max_size=3)
NAMES = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters='/\\".$'), min_size=1).filter(
    lambda n: n == n.strip() and n.lower() != "{topic}"
)


@st.composite
def given_definitions(draw):
    files = draw(st.booleans())
    kind = draw(st.sampled_from([None, "json", "avro", "raw", "string", "python"]))
    return Definition(
        draw(NAMES),
        draw(st.sampled_from(["/data/it's", "/d/{topic}"])) if files else draw(NAMES | st.just("{topic}_raw")),
        files,
        {"k.a": "b", **draw(SETTINGS)},
        kind,
        draw(TEXT).strip() or "f" if kind == "python" else None,
        draw(SETTINGS) if kind else {},
        draw(st.sampled_from([None, "avro", "parquet"])) if files else draw(st.sampled_from([None, "hudi"])),
        {} if files else draw(SETTINGS),
        () if files else tuple(draw(st.lists(NAMES, max_size=2, unique_by=str.lower))),
        draw(st.sampled_from([None, "SELECT *, 'it''s' AS x FROM kafka"])),
    )


def read_back(statement):
    [piece] = split(statement)
    found = parse(statement, piece, lambda _: False)
    assert isinstance(found, CreateIngestion)
    inner = found.ingest

    def values(options):
        return {o.key: string_value(tokens(o.value.sql)[0]) for o in options}

    return Definition(
        found.ingestion, inner.into[0], inner.files, values(inner.options), inner.format, inner.function,
        values(inner.format_options), inner.output, inner.properties, inner.partitioned_by,
        None if inner.query is None else inner.query.sql,
    )  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(given_definitions())
def test_the_statement_of_a_definition_makes_it_again(definition):
    assert read_back(definition.statement()) == definition


@settings(max_examples=20, deadline=None)
@given(given_definitions())
def test_a_definition_is_read_as_it_was_kept(tmp_path_factory, definition):
    warehouse = str(tmp_path_factory.mktemp("w"))
    definition = Definition(**{**vars_of(definition), "name": "n"})
    assert definitions.create(warehouse, definition, "now")
    assert not definitions.create(warehouse, definition, "now")
    assert definitions.require(warehouse, "n") == definition
    assert definitions.names(warehouse) == ["n"]
    assert definitions.drop(warehouse, "n")
    assert not definitions.drop(warehouse, "n")


def vars_of(definition):
    return {name: getattr(definition, name) for name in Definition.__dataclass_fields__}


def test_the_file_is_readable_and_its_statement_without_secrets(tmp_path):
    definitions.create(str(tmp_path), Definition("o", "t", options={"a": "b", "sasl.password": "geheim"}), "now")
    held = json.loads((tmp_path / ".lakesql" / "ingestions" / "o.json").read_text())
    assert held["version"] == 1
    assert held["statement"][-1] == "FROM KAFKA OPTIONS ('a' = 'b', 'sasl.password' = '***')"


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", '{"version": 1}', '{"version": 1, "definition": {"name": "o"}}', "\ufffe",
     '{"version": 1, "definition": {"name": "o", "into": 7}}', '{"version": 1, "definition": {"name": "o", "into": "t", "x": 1}}',
     '{"version": 1, "definition": {"name": "o", "into": "t", "options": {"a": 1}}}', '{"version": 2, "definition": {}}'],
)  # fmt: skip
def test_a_damaged_file_is_an_error_that_names_it(tmp_path, text):
    folder = tmp_path / ".lakesql" / "ingestions"
    folder.mkdir(parents=True)
    (folder / "o.json").write_text(text)
    with pytest.raises(FormatError, match=r"ingestions/o\.json"):
        definitions.require(str(tmp_path), "o")


def test_a_name_that_is_not_there_suggests_a_near_one(tmp_path):
    definitions.create(str(tmp_path), Definition("orders", "t"), "now")
    with pytest.raises(SQLError, match="Did you mean orders"):
        definitions.require(str(tmp_path), "order")
