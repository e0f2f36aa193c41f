"""Results as text in every format."""

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import pytest

from lakesql.sql import render

COLUMNS = ("id", "name")
ROWS = [(1, "one"), (20, None), (3, "a|b\nc")]


def test_table_aligns_numbers_and_keeps_one_line_per_row():
    assert render.table(COLUMNS, ROWS).split("\n") == [
        "┌────┬────────┐",
        "│ id │ name   │",
        "├────┼────────┤",
        "│  1 │ one    │",
        "│ 20 │ NULL   │",
        "│  3 │ a|b\\nc │",
        "└────┴────────┘",
    ]


def test_table_says_how_many_rows_it_leaves_out():
    shown = render.table(("n",), [(i,) for i in range(100)], 2)
    assert shown.endswith("100 rows, the first 2 are shown")
    assert shown.count("│") == 2 * 3


def test_table_without_rows_and_with_wide_characters():
    assert render.table(("a",), []).count("\n") == 3
    lines = render.table(("x",), [("日本",), ("ab",)]).split("\n")
    assert lines[3] == "│ 日本 │"
    assert lines[4] == "│ ab   │"


def test_long_values_are_cut_in_tables_only():
    long = "x" * 200
    assert "…" in render.table(("a",), [(long,)])
    assert render.csv_text(("a",), [(long,)]) == f"a\n{long}"


def test_csv_quotes_and_leaves_null_empty():
    assert render.csv_text(COLUMNS, ROWS) == 'id,name\n1,one\n20,\n3,"a|b\nc"'


def test_json_keeps_types():
    row = (
        1,
        None,
        True,
        1.5,
        Decimal("1.50"),
        Decimal("0.1234567890123456789"),
        date(2024, 1, 2),
        [1, {"k": b"x"}],
        float("nan"),
    )
    text = render.json_text(tuple("abcdefghi"), [row])
    assert list(json.loads(text)[0].values()) == [
        1,
        None,
        True,
        1.5,
        1.5,
        "0.1234567890123456789",
        "2024-01-02",
        [1, {"k": "x"}],
        None,
    ]
    assert render.json_text(("a",), []) == "[]"


def test_markdown_escapes_bars_and_breaks():
    assert render.markdown(COLUMNS, ROWS).split("\n")[-1] == "| 3 | a\\|b<br>c |"


def test_line_format_has_one_value_per_line():
    assert render.line_text(("id", "name"), [(1, "x"), (2, None)]) == "  id = 1\nname = x\n\n  id = 2\nname = NULL"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "NULL"),
        (True, "true"),
        (datetime(2024, 1, 2, 3, 4, 5, 600, UTC), "2024-01-02 03:04:05.000600+00:00"),
        (time(1, 2), "01:02:00"),
        (b"a\x00\\", "a\\x00\\x5C"),
        ({"a": [1, None]}, "{a: [1, NULL]}"),
        (timedelta(days=1), "1 day, 0:00:00"),
        (Decimal("1.50"), "1.50"),
    ],
)
def test_values_are_written_as_duckdb_writes_them(value, text):
    assert render.text_of(value) == text
