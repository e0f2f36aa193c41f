"""SQL text as tokens with positions, and a script as statements.

Just enough of a lexer to find our statements and the borders of their clauses; what lies between the borders stays
the user's text, byte for byte, and is parsed by DuckDB. It follows DuckDB: `''` and `""` are the only escapes (but
`E'..'` knows backslashes), `$tag$ .. $tag$` quotes, block comments nest. Spark's backticks are tokens of their own
kind. A quote or comment that does not end becomes one token of kind `open`, so that nothing is ever refused here.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lakesql.errors import SQLError
from lakesql.ingest.secrets import is_secret, may_be_shown, spans, without_secrets

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<escaped>  [eE]'(?:\\.|''|[^'\\])*' )
  | (?P<word>     [^\W\d][\w$]* )
  | (?P<number>   (?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?\w* )
  | (?P<string>   '(?:''|[^'])*' )
  | (?P<note>     --[^\n\r]* )
  | (?P<comment>  /\* )
  | (?P<dollar>   \$(?P<tag>(?:[^\W\d]\w*)?)\$.*?\$(?P=tag)\$ )
  | (?P<quoted>   "(?:""|[^"])*" )
  | (?P<backtick> `(?:``|[^`])*` )
  | (?P<param>    \?\d* | \$\w+ )
  | (?P<op>       ::|=>|:=|->>|->|<=|>=|<>|!=|\|\|)
  | (?P<open>     ['"`].* )
  | (?P<other>    \S )
    )""",
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_KINDS = {"escaped": "string", "dollar": "string", "other": "op"}

_ASSIGNING = ("=", "=>", ":=", ":", ">")

_FAR = 10  # tokens behind a key in which its value is looked for

IDENTIFIERS = ("word", "quoted", "backtick")


@dataclass(frozen=True, slots=True)
class Token:
    """One token. `kind` is word, quoted, backtick, string, number, param, op or open."""

    kind: str
    text: str
    start: int
    end: int

    @property
    def word(self) -> str:
        """Upper-case text of a bare word, '' for everything else: what keywords are compared with."""
        return self.text.upper() if self.kind == "word" else ""

    @property
    def name(self) -> str:
        """The identifier this token spells, without its quotes."""
        if self.kind == "quoted":
            return self.text[1:-1].replace('""', '"')
        if self.kind == "backtick":
            return self.text[1:-1].replace("``", "`")
        return self.text


@dataclass(frozen=True, slots=True)
class Piece:
    """One statement of a script: its text without the semicolon, and where it starts."""

    text: str
    start: int
    tokens: tuple[Token, ...]
    """Positions count from the start of the script."""


def tokens(text: str) -> list[Token]:
    """The tokens of a text, without blanks and comments."""
    return list(_scan(text))


def _scan(text: str) -> Iterator[Token]:
    at, match_at = 0, _TOKEN.match
    while (match := match_at(text, at)) is not None:
        kind = match.lastgroup or ""
        if kind == "tag":
            kind = "dollar"
        start, end = match.span(kind)
        if kind == "comment":
            closed = _comment_end(text, start)
            end = len(text) if closed is None else closed
            if closed is None:
                yield Token("open", text[start:], start, end)
        elif kind != "note":
            yield Token(_KINDS.get(kind, kind), match[kind], start, end)
        at = end


def _comment_end(text: str, start: int) -> int | None:
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, start):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    return None


def split(text: str) -> list[Piece]:
    """The statements of a script. Empty ones are left out; comments stay with the statement that follows them."""
    pieces: list[Piece] = []
    start, held = 0, list[Token]()
    for token in _scan(text):
        if token.kind == "op" and token.text == ";":
            if held:
                pieces.append(Piece(text[start : token.start], start, tuple(held)))
            start, held = token.end, []
        else:
            held.append(token)
    if held:
        pieces.append(Piece(text[start:], start, tuple(held)))
    return pieces


def is_complete(text: str) -> bool:
    """Whether a shell should run what was typed: it ends with a semicolon outside of quotes, or holds nothing."""
    found = tokens(text)
    return not found or (found[-1].kind == "op" and found[-1].text == ";")


def line_and_column(text: str, position: int) -> tuple[int, int]:
    """Both counted from 1."""
    breaks = [m.end() for m in re.finditer(r"\n", text)]
    line = bisect_right(breaks, position)
    return line + 1, position - (breaks[line - 1] if line else 0) + 1


def error_at(message: str, text: str, position: int) -> SQLError:
    """A SQLError that ends with line, column and the line itself, marked."""
    line, column = line_and_column(text, position)
    if may_hold_secrets(text):
        message, text = without_secrets(message), _starred(text)
    shown = text.split("\n")[line - 1].rstrip()
    if len(shown) > 160:
        cut = max(0, column - 80)
        shown, column = shown[cut : cut + 160], column - cut
    return SQLError(
        f"{message}\nline {line}, column {line_and_column(text, position)[1]}:\n  {shown}\n  {' ' * (column - 1)}^"
    )


def may_hold_secrets(text: str) -> bool:
    """Whether a script has, or is almost, a statement whose options are those of a Kafka client."""
    upper = text.upper()
    return "INGEST" in upper or "KAFKA" in upper or "SECRET" in upper


def secret_spans(words: Sequence[Token]) -> list[tuple[int, int]]:
    """Where the values of settings stand that are, or may be, secrets; also in a statement that is malformed there."""
    found = [t for t in words if without_secrets(t.text) != t.text]
    for place, token in enumerate(words):
        if token.kind != "op" and not may_be_shown(key := _key_that_ends(words, place)):
            found += [token] if token.kind == "open" else _values_behind(words, place, is_secret(key))
    for place, token in enumerate(words):
        if token.word == "SECRET" and any(t.word == "CREATE" for t in words[max(0, place - 4) : place]):
            ends = next((n for n in range(place, len(words)) if words[n].text == ";"), len(words))
            found += [t for t in words[place:ends] if t.kind in ("string", "open", "quoted")]
    hidden = {t.text for t in found if t.kind != "op"}
    return [(t.start, t.end) for t in words if t.text in hidden]


def _values_behind(words: Sequence[Token], place: int, secret: bool) -> list[Token]:
    """What may be the value of the key that ends at `place`: to the next comma or bracket behind something."""
    found: list[Token] = []
    if words[place].kind == "word" and not (place + 1 < len(words) and words[place + 1].text in _ASSIGNING):
        return found
    for at in range(place + 1, min(place + _FAR, len(words))):
        token = words[at]
        if token.kind == "op":
            if found and token.text in ",)":
                break
            continue
        if words[at - 1].text == "," and at + 1 < len(words) and words[at + 1].text in _ASSIGNING:
            break  # the next key
        if secret or token.kind in ("string", "open", "quoted"):
            found.append(token)
    return found


def _key_that_ends(words: Sequence[Token], place: int) -> str:
    """The key that a token ends: a text, or a word with the dotted words before it."""
    token = words[place]
    if token.kind == "string":
        return token.text[1:-1]
    parts = [token.name]
    while place >= 2 and words[place - 1].text == "." and words[place - 2].kind in IDENTIFIERS:
        place -= 2
        parts.insert(0, words[place].name)
    return ".".join(parts)


def _starred(text: str) -> str:
    """The text with a star for each character of a secret, so that places stay what they are."""
    for start, end in [*spans(text), *secret_spans(tokens(text))]:
        text = text[:start] + re.sub(r"[^\n]", "*", text[start:end]) + text[end:]
    return text
