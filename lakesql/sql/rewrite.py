"""Time travel on a table's name, and tables named by path, turned into calls of hudi_scan. Pure, on tokens.

    FROM t TIMESTAMP AS OF x | VERSION AS OF x           Spark, also with FOR SYSTEM_TIME | SYSTEM_VERSION
    FROM t AT (TIMESTAMP => x) | AT (VERSION => x)       DuckDB
    FROM hudi.`/path`                                    Spark

Only these clauses are replaced, and only on tables of ours; every other byte of the statement stays as it is. A version
of a Hudi table is an instant.
"""

import re
from collections.abc import Callable, Sequence

from lakesql.sql.lexer import IDENTIFIERS, Token, tokens
from lakesql.sql.nodes import Name
from lakesql.table.names import literal, quote

Resolve = Callable[[Name], str | None]
"""Name -> path of a Hudi table, None when it is none."""

_WORTH_A_LOOK = re.compile(r"\bAS\s+OF\b|\bAT\s*\(|\bhudi\s*\.", re.IGNORECASE)
_KINDS = ("TIMESTAMP", "VERSION", "SYSTEM_TIME", "SYSTEM_VERSION")
_TYPED = ("TIMESTAMP", "DATE", "TIMESTAMPTZ")
_OPERATORS = ("+", "-", "||")
_NO_ALIAS = frozenset(
    [
        "ANTI",
        "ASOF",
        "AS",
        "AT",
        "CROSS",
        "EXCEPT",
        "FETCH",
        "FOR",
        "FULL",
        "GROUP",
        "HAVING",
        "INNER",
        "INTERSECT",
        "JOIN",
        "LATERAL",
        "LEFT",
        "LIMIT",
        "NATURAL",
        "OFFSET",
        "ON",
        "ORDER",
        "OUTER",
        "PIVOT",
        "POSITIONAL",
        "QUALIFY",
        "RETURNING",
        "RIGHT",
        "SELECT",
        "SEMI",
        "SET",
        "TABLESAMPLE",
        "UNION",
        "UNPIVOT",
        "USING",
        "WHEN",
        "WHERE",
        "WINDOW",
    ]
)


def rewrite(text: str, resolve: Resolve, home: str = "") -> str:
    """The text with these clauses replaced; the same object when there are none. `home` goes before hudi_scan."""
    if _WORTH_A_LOOK.search(text) is None:
        return text
    found = tokens(text)
    edits: list[tuple[int, int, str]] = []
    place = 0
    while place < len(found):
        edit = _time_travel(found, place, resolve, text) or _by_path(found, place, resolve)
        if edit is None:
            place += 1
            continue
        while edits and edits[-1][1] > edit[0]:
            edits.pop()
        edits.append((edit[0], edit[1], home + edit[2]))
        place = edit[3]
    for start, end, new in reversed(edits):
        text = text[:start] + new + text[end:]
    return text


Edit = tuple[int, int, str, int]
"""Start and end in the text, what comes there, and the token to go on with."""


def _time_travel(found: Sequence[Token], place: int, resolve: Resolve, text: str) -> Edit | None:
    words = [t.word for t in found[place : place + 4]]
    if words[:1] == ["AT"] and _text(found, place + 1) == "(" and words[2:3] and words[2] in ("TIMESTAMP", "VERSION"):
        if _text(found, place + 3) != "=>":
            return None
        end = _closing(found, place + 1)
        inner = found[place + 4 : end]
        if not inner:
            return None
        value = text[inner[0].start : inner[-1].end]
        return _replaced(found, place, end + 1, value, resolve, alias_before=True)
    skip = 1 if words[:1] == ["FOR"] else 0
    if words[skip : skip + 1] and words[skip] in _KINDS and words[skip + 1 : skip + 2] == ["AS"]:
        start = place + skip + 3
        if place + skip + 2 >= len(found) or found[place + skip + 2].word != "OF":
            return None
        end = _expression_end(found, start)
        if end == start:
            return None
        value = text[found[start].start : found[end - 1].end]
        return _replaced(found, place, end, value, resolve, alias_before=False)
    return None


def _replaced(
    found: Sequence[Token], place: int, end: int, value: str, resolve: Resolve, *, alias_before: bool
) -> Edit | None:
    """The edit for a clause at tokens [place, end) behind a table name, or behind its alias."""
    alias: str | None = None
    first, name = _name_before(found, place)
    path = resolve(name) if name else None
    if path is None and alias_before and name and len(name) == 1:
        alias = name[0]
        before = first - 1 if first and found[first - 1].word == "AS" else first
        first, name = _name_before(found, before)
        path = resolve(name) if name else None
    if path is None or not name:
        return None
    call = f"hudi_scan({literal(path)}, as_of := ({value}))"
    if alias is not None:
        call += f" AS {quote(alias)}"
    elif not _alias_follows(found, end):
        call += f" AS {quote(name[-1])}"
    return found[first].start, found[end - 1].end, call, end


def _by_path(found: Sequence[Token], place: int, resolve: Resolve) -> Edit | None:
    """hudi.`path` behind FROM, JOIN, USING or a comma."""
    if found[place].name.lower() != "hudi" or _text(found, place + 1) != "." or place + 2 >= len(found):
        return None
    path_token = found[place + 2]
    if path_token.kind not in ("backtick", "quoted") or not place:
        return None
    if found[place - 1].word not in ("FROM", "JOIN", "USING") and found[place - 1].text != ",":
        return None
    if place > 1 and found[place - 2].word == "DELETE":
        return None
    following = found[place + 3].word if place + 3 < len(found) else ""
    if following in (*_KINDS, "AT", "FOR"):
        return None
    path = resolve((found[place].name, path_token.name))
    if path is None:
        return None
    return found[place].start, path_token.end, f"hudi_scan({literal(path)})", place + 3


def _text(found: Sequence[Token], place: int) -> str:
    return found[place].text if place < len(found) else ""


def _name_before(found: Sequence[Token], place: int) -> tuple[int, Name]:
    """The dotted name that ends before `place` and where it starts; an empty name when there is none."""
    parts: list[str] = []
    at = place - 1
    while at >= 0 and found[at].kind in IDENTIFIERS:
        parts.insert(0, found[at].name)
        if at == 0 or found[at - 1].text != ".":
            break
        at -= 2
    return at, tuple(parts)


def _alias_follows(found: Sequence[Token], place: int) -> bool:
    if place >= len(found):
        return False
    token = found[place]
    return token.word == "AS" or (token.kind in IDENTIFIERS and token.word not in _NO_ALIAS)


def _closing(found: Sequence[Token], place: int) -> int:
    """The token that closes the bracket at `place`; the last token when nothing does."""
    depth = 0
    for at in range(place, len(found)):
        if found[at].kind == "op":
            depth += (found[at].text in "([{") - (found[at].text in ")]}")
        if depth == 0:
            return at
    return len(found) - 1


def _expression_end(found: Sequence[Token], place: int) -> int:
    """Behind `operand [op operand] ...`: what AS OF may be followed by without parentheses."""
    end = _operand_end(found, place)
    while end > place and end < len(found) and found[end].text in _OPERATORS:
        more = _operand_end(found, end + 1)
        if more == end + 1:
            break
        end = more
    return end


def _operand_end(found: Sequence[Token], place: int) -> int:
    if place >= len(found):
        return place
    token = found[place]
    if token.text == "(":
        end = _closing(found, place) + 1
    elif token.word == "INTERVAL" and place + 1 < len(found):
        end = _operand_end(found, place + 1)
        end += end < len(found) and found[end].kind == "word" and found[end].word not in _NO_ALIAS
    elif token.word in _TYPED and place + 1 < len(found) and found[place + 1].kind == "string":
        end = place + 2
    elif token.kind in ("string", "number", "param"):
        end = place + 1
    elif token.kind in IDENTIFIERS:
        end = place + 1
        while _text(found, end) == "." and end + 1 < len(found):
            end += 2
        if _text(found, end) == "(":
            end = _closing(found, end) + 1
    else:
        return place
    while _text(found, end) == "::" and end + 1 < len(found):
        end += 2
        if _text(found, end) == "(":
            end = _closing(found, end) + 1
    return end
