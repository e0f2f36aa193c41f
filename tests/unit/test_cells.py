"""Cells of a terminal: what rich counts for the scripts that people write."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich import cells as rich_cells

from lakesql.sql import cells as own_cells
from lakesql.sql.cells import cell_len, set_cell_size

LETTERS = st.text(st.sampled_from("abcXYZ09 .,-_ÄéßжΩאش日本한글ｆ…—①€"), max_size=20)


@given(LETTERS, st.integers(0, 30))
def test_widths_and_cuts_are_those_of_rich(text, total):
    assert cell_len(text) == rich_cells.cell_len(text)
    assert set_cell_size(text, total) == rich_cells.set_cell_size(text, total)


@pytest.mark.parametrize(
    ("text", "cells"),
    [("e\u0301", 1), ("👍", 2), ("👍🏽", 2), ("👨‍👩‍👧", 2), ("❤️", 2), ("🇩🇪", 2), ("🏽", 2), ("a\x1bb", 2), ("", 0)],
)
def test_what_joins_the_character_before_takes_no_cell(text, cells):
    assert cell_len(text) == cells


@given(LETTERS, st.integers(0, 30))
def test_letters_count_the_same_without_the_package(text, total):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(own_cells, "wcwidth", None)
        assert cell_len(text) == rich_cells.cell_len(text)
        assert set_cell_size(text, total) == rich_cells.set_cell_size(text, total)


def test_a_cut_leaves_what_is_joined_whole():
    assert set_cell_size("ab👨‍👩‍👧c", 4) == "ab👨‍👩‍👧"
    assert set_cell_size("ab👨‍👩‍👧c", 3) == "ab "
