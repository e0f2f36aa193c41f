"""Results as text in every format; the values are texts already."""

import json

from lakesql.sql import render

COLUMNS = ("id", "name")
ROWS = [("1", "one"), ("20", None), ("3", "a|b\nc")]


def test_table_aligns_numbers_and_keeps_one_line_per_row():
    assert render.table(COLUMNS, ROWS, ("INTEGER", "VARCHAR")).split("\n") == [
        "┌───────┬─────────┐",
        "│  id   │  name   │",
        "│ int32 │ varchar │",
        "├───────┼─────────┤",
        "│     1 │ one     │",
        "│    20 │ NULL    │",
        "│     3 │ a|b\\nc  │",
        "└───────┴─────────┘",
    ]


def test_table_shows_the_first_and_last_rows_and_says_how_many_there_are():
    lines = render.table(("n",), [("0",), ("1",), ("9",)], count=1000).split("\n")
    assert [line[2] for line in lines[3:-3]] == ["0", "1", "·", "·", "·", "9"]
    assert [line.strip() for line in lines[-2:]] == ["1000 rows", "(3 shown)"]


def test_table_cuts_long_values_before_it_leaves_out_columns():
    text = render.table(("a", "b"), [("x" * 100, "1")], width=40)
    assert max(map(len, text.split("\n"))) == 40
    assert "x…" in text
    assert "shown" not in text
    assert "…" not in render.table(("a", "b"), [("x" * 100, "1")])


def test_narrow_table_leaves_out_meta_columns_first_and_then_the_middle():
    columns = ("_hoodie_commit_time", "_hoodie_record_key", "id", "fare", "city")
    row = ("20240501100000000", "id:1", "1", "2.5", "oslo")
    text = render.table(columns, [row], width=30)
    assert text.split("\n")[1] == "│ … │ id │ fare │ city │"
    assert [line.split() for line in text.split("\n")[-2:]] == [["1", "row", "5", "columns"], ["(3", "shown)"]]
    many = render.table(tuple(f"c{i}" for i in range(40)), [tuple("v" * 9 for _ in range(40))], width=80)
    lines = many.split("\n")
    assert max(map(len, lines)) <= 80
    assert lines[1].startswith("│    c0     │")
    assert lines[1].endswith("│    c39    │")
    assert " … " in lines[1]


def test_table_of_one_column_fits_into_any_width():
    assert max(map(len, render.table(("a",), [("x" * 50,)], width=12).split("\n"))) == 12


def test_table_without_rows_and_with_wide_characters():
    assert render.table(("a",), [], ("BIGINT",)).split("\n") == [
        "┌────────┐",
        "│   a    │",
        "│ int64  │",
        "└────────┘",
        "  0 rows",
    ]
    lines = render.table(("x",), [("日本",), ("ab",)]).split("\n")
    assert lines[3] == "│ 日本 │"
    assert lines[4] == "│ ab   │"


def test_csv_tells_null_from_an_empty_text():
    assert render.csv_text(COLUMNS, [*ROWS, ("", None)]) == 'id,name\n1,one\n20,\n3,"a|b\nc"\n"",'


def test_json_is_one_document_on_one_line_and_keeps_columns_of_one_name():
    text = render.json_text(("a", "a", "b"), [("1", '"x"', None), ("2", "[1]", "{}")])
    assert "\n" not in text
    assert json.loads(text) == [{"a": 1, "a_1": "x", "b": None}, {"a": 2, "a_1": [1], "b": {}}]
    assert render.json_text(("a",), []) == "[]"
    assert render.json_lines(("a",), [("1",), ("2",)]) == '{"a": 1}\n{"a": 2}'


def test_markdown_escapes_bars_and_breaks():
    assert render.markdown(COLUMNS, ROWS).split("\n")[-1] == "| 3 | a\\|b<br>c |"


def test_line_format_has_one_value_per_line():
    assert render.line_text(("id", "name"), [("1", "x"), ("2", None)]) == "  id = 1\nname = x\n\n  id = 2\nname = NULL"
