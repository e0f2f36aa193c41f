"""Tables of the documents that are made from the code, between `<!-- name -->` and `<!-- end -->`.

`make regold` writes them anew. Their last column is a person's: it is kept, and may not be empty, so a new setting or
function fails the test until someone has said what it means.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

Row = Sequence[str]


def table(header: Row, rows: Iterable[Row]) -> str:
    """A Markdown table."""
    lines = [f"| {' | '.join(header)} |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]) + "\n"


def part(text: str, name: str) -> tuple[str, str, str]:
    """The text before the part of this name, the part, and the text behind it."""
    begin = f"<!-- {name} -->\n"
    assert text.count(begin) == 1, name
    before, rest = text.split(begin)
    found, after = rest.split("<!-- end -->\n", 1)
    return before + begin, found, "<!-- end -->\n" + after


def check(page: Path, name: str, wanted: str, regold: bool) -> None:
    """The part of a page is `wanted`; with `regold` it is made so."""
    before, found, after = part(page.read_text(), name)
    if regold:
        page.write_text(before + wanted + after)
    else:
        assert found == wanted, "make regold writes it anew"


def check_kept(page: Path, name: str, header: Row, rows: Sequence[Row], regold: bool) -> None:
    """As `check`, for a table whose last column is taken from the page, by the first one."""
    meanings = kept(part(page.read_text(), name)[1])
    wanted = table(header, [(*row, meanings.get(key_of(row[0]), "")) for row in rows])
    check(page, name, wanted, regold)
    assert [row[0] for row in rows if not meanings.get(key_of(row[0]))] == [], "say what it means in the last column"


def kept(found: str) -> dict[str, str]:
    """First name of a row -> its last column."""
    rows = [re.split(r" (?<!\\)\| ", line[2:-2]) for line in found.splitlines()[2:]]
    return {key_of(cells[0]): cells[-1].strip() for cells in rows}


def key_of(cell: str) -> str:
    """The first name in a cell, without what follows in brackets."""
    found = re.search(r"`([^`(]+)", cell)
    return found[1] if found else cell
