"""Tokens and statements: quotes, comments and positions as DuckDB has them."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakesql.sql.lexer import error_at, is_complete, line_and_column, split, tokens


def kinds(text):
    return [(t.kind, t.text) for t in tokens(text)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a.b::int", [("word", "a"), ("op", "."), ("word", "b"), ("op", "::"), ("word", "int")]),
        ("'it''s;' \"a;\"\"b\" `c;d`", [("string", "'it''s;'"), ("quoted", '"a;""b"'), ("backtick", "`c;d`")]),
        ("$$a;'b$$ $t$ $$ ; $t$", [("string", "$$a;'b$$"), ("string", "$t$ $$ ; $t$")]),
        ("E'a\\';b' 'a\\'", [("string", "E'a\\';b'"), ("string", "'a\\'")]),
        ("? ?2 $1 $name", [("param", "?"), ("param", "?2"), ("param", "$1"), ("param", "$name")]),
        ("1 2.5 .5 1e-3 1_000 0.0D", [("number", n) for n in ("1", "2.5", ".5", "1e-3", "1_000", "0.0D")]),
        (
            "a => b := c -> d ->> e",
            [
                ("word", "a"),
                ("op", "=>"),
                ("word", "b"),
                ("op", ":="),
                ("word", "c"),
                ("op", "->"),
                ("word", "d"),
                ("op", "->>"),
                ("word", "e"),
            ],
        ),
        ("a -- b;\nc /* ; /* ; */ ; */ d", [("word", "a"), ("word", "c"), ("word", "d")]),
        (
            "date'2024' X'00' e",
            [("word", "date"), ("string", "'2024'"), ("word", "X"), ("string", "'00'"), ("word", "e")],
        ),
        ("größe _x1", [("word", "größe"), ("word", "_x1")]),
    ],
)
def test_text_becomes_tokens(text, found):
    assert kinds(text) == found


@pytest.mark.parametrize("text", ["'abc", '"abc', "`abc", "/* abc", "/* /* */ abc"])
def test_what_does_not_end_is_an_open_token_and_never_complete(text):
    assert kinds(text) == [("open", text)]
    assert not is_complete(text + ";")


def test_names_lose_their_quotes():
    assert [t.name for t in tokens('a "b""c" `d``e`')] == ["a", 'b"c', "d`e"]


def test_script_is_split_at_semicolons_outside_of_quotes_and_comments():
    script = "select ';' -- ;\n; ; /* ; */ insert into t values (1);\n-- the end"
    assert [p.text for p in split(script)] == ["select ';' -- ;\n", " /* ; */ insert into t values (1)"]


def test_positions_count_from_the_start_of_the_script():
    script = "select 1;\nselect 2"
    assert [(p.start, p.tokens[0].start) for p in split(script)] == [(0, 0), (9, 10)]
    assert line_and_column(script, 10) == (2, 1)


def test_error_shows_line_column_and_the_place():
    assert str(error_at("no good", "select\n  foo bar", 13)) == "no good\nline 2, column 7:\n    foo bar\n        ^"


def test_long_lines_are_cut_around_the_place():
    text = "select " + "x" * 500 + " here"
    shown = str(error_at("no", text, text.index("here"))).split("\n")
    assert len(shown[2]) <= 162
    assert shown[3].index("^") == shown[2].index("here")


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("select 1;", True),
        ("select 1", False),
        ("select ';'", False),
        ("", True),
        ("-- note", True),
        ("x; -- note", True),
    ],
)
def test_input_is_complete_behind_a_semicolon(text, complete):
    assert is_complete(text) is complete


@given(st.text(alphabet="ab'\"`;$/*- \n?.1\\E", max_size=40))
def test_any_text_is_cut_without_loss(text):
    found = tokens(text)
    assert all(text[t.start : t.end] == t.text for t in found)
    assert all(a.end <= b.start for a, b in itertools.pairwise(found))
    pieces = split(text)
    assert all(text[p.start : p.start + len(p.text)] == p.text for p in pieces)


def test_a_carriage_return_ends_a_note_as_it_does_in_duckdb():
    assert [p.text.strip() for p in split("SELECT 1;\r-- c\rSELECT 2;\r")] == ["SELECT 1", "-- c\rSELECT 2"]
