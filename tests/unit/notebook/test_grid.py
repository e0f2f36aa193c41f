"""Results as HTML: what is shown and what is left out; nothing that comes from data is ever markup."""

import re
import sys
from html.parser import HTMLParser

import duckdb
import pytest

from lakesql.notebook import grid

EVIL = "<script>alert('x')</script><img src=x onerror=alert(1)>&\"'</td>"


class Seen(HTMLParser):
    """The tags of a page, and the texts of its cells."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.cells, self._open = [], [], False
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        del attrs
        self.tags.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")
            self._open = True

    def handle_endtag(self, tag):
        self._open = self._open and tag not in ("td", "th")

    def handle_data(self, data):
        if self._open:
            self.cells[-1] += data


def shown(query, **options):
    return grid.preview(duckdb.connect().sql(query), **options)


def test_values_names_and_nulls_are_cells_of_text():
    page = grid.html(
        shown(
            f"SELECT 1.50 AS n, $${EVIL}$$ AS \"{EVIL.replace(chr(34), chr(34) * 2)}\", NULL::VARCHAR AS nothing, '' AS blank"
        )
    )
    seen = Seen(page)
    assert seen.cells[:2] == ["nDECIMAL(3,2)", f"{EVIL}VARCHAR"]
    assert seen.cells[4:] == ["1.50", EVIL, "NULL", ""]
    assert not {"script", "img"} & set(seen.tags)


def test_long_result_says_that_there_is_more():
    part = shown("SELECT range AS n FROM range(50)", rows=20)
    assert (len(part.rows), part.more) == (20, True)
    assert "The first 20 rows; there are more." in grid.html(part, interactive=False)
    assert "The first 20 rows; there are more." in grid.text(part)
    whole = shown("SELECT range AS n FROM range(20)", rows=20)
    assert not whole.more
    assert "there are more" not in grid.html(whole, interactive=False)


def test_result_without_rows_says_so():
    assert "no rows" in grid.html(shown("SELECT 1 AS n WHERE false"))


def test_names_that_repeat_keep_their_own_values():
    part = shown('SELECT 1 AS x, 2 AS x, 3 AS "a b"')
    assert (part.columns, part.rows) == (("x", "x", "a b"), (("1", "2", "3"),))


def test_columns_of_hudi_are_left_out_of_select_star_alone():
    meta = [
        f"'{n}' AS _hoodie_{n}" for n in ("commit_time", "commit_seqno", "record_key", "partition_path", "file_name")
    ]
    part = shown(f"SELECT {', '.join(meta)}, 1 AS id")
    assert (part.columns, part.hidden) == (("id",), 5)
    assert "5 meta columns of Hudi are not shown." in grid.html(part)
    assert len(shown(f"SELECT {', '.join(meta)}, 1 AS id", meta=True).columns) == 6
    assert shown(f"SELECT {meta[0]}, 1 AS id").columns == ("_hoodie_commit_time", "id")
    assert len(shown(f"SELECT {', '.join(meta)}").columns) == 5


def test_very_long_value_is_cut():
    [[value]] = shown("SELECT repeat('x', 5000) AS v").rows
    assert value == "x" * 1000 + "… (5,000 characters)"


def test_long_result_is_an_interactive_table_without_the_network():
    part = shown(
        "SELECT range AS n, CASE WHEN range % 2 = 0 THEN 'even' END AS word, NULLIF(range, 3) AS hole FROM range(30)"
    )
    page = grid.html(part)
    assert "new ITable(" in page
    assert not re.search(r"""src=["']?http|import\(?["']http|from ["']http""", page)
    assert grid.html(part, interactive=False) != page


def test_interactive_table_holds_no_markup_of_the_data():
    part = shown(f'SELECT range AS n, $${EVIL}$$ AS "<b>{EVIL.replace(chr(34), chr(34) * 2)}" FROM range(30)')
    page = grid.html(part)
    assert "<script>alert" not in page
    assert "<img src=x" not in page
    assert "alert('x')" not in page


def test_without_itables_every_result_is_a_plain_table(monkeypatch):
    part = shown("SELECT range AS n FROM range(30)")
    for module in ("itables", "narwhals"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, module, None)
            page = grid.html(part)
        assert page.count("<tr>") == 31
        assert "<script" not in page


@pytest.mark.parametrize("width", [40, 200])
def test_text_fits_its_width(width):
    text = grid.text(shown("SELECT repeat('x', 100) AS a, 1 AS b"), width)
    assert max(map(len, text.splitlines())) <= width
