"""A reading position in the tokens of one statement, and the few moves a hand-written parser needs.

Borders of clauses are found by keyword outside of brackets and of CASE .. END; a word behind a dot is a column, never a
keyword. Errors carry line and column of the whole script.
"""

from collections.abc import Callable, Sequence
from typing import NoReturn

from lakesql.errors import SQLError, Unsupported
from lakesql.sql.lexer import IDENTIFIERS, Token, error_at, line_and_column, may_hold_secrets, secret_spans
from lakesql.sql.nodes import Name, Text

_OPENING, _CLOSING = {"(": ")", "[": "]", "{": "}"}, {")", "]", "}"}


class Cursor:
    """Where a parser is. `text` is the whole script, so positions can be shown to the user."""

    def __init__(self, text: str, tokens: Sequence[Token]) -> None:
        self.text = text
        self.tokens = tokens
        self.at = 0
        last = tokens[-1].end if tokens else len(text)
        self._end = Token("end", "", last, last)

    @property
    def spark(self) -> bool:
        """Whether the statement is spelt for Spark: only Spark has backticks."""
        return any(t.kind == "backtick" for t in self.tokens)

    def peek(self, ahead: int = 0) -> Token:
        """The next token, or one further on; a token of kind `end` behind the last."""
        place = self.at + ahead
        return self.tokens[place] if place < len(self.tokens) else self._end

    def next(self) -> Token:
        """The next token, and past it."""
        token = self.peek()
        self.at += 1
        return token

    @property
    def done(self) -> bool:
        """Whether no token is left."""
        return self.at >= len(self.tokens)

    def sees(self, *words: str) -> bool:
        """Whether the next tokens are these words, or symbols."""
        return all((t := self.peek(i)).word == w or (t.kind == "op" and t.text == w) for i, w in enumerate(words))

    def accept(self, *words: str) -> bool:
        """Move past these words if they come next."""
        if not self.sees(*words):
            return False
        self.at += len(words)
        return True

    def expect(self, *words: str) -> None:
        """Move past these words or raise."""
        if not self.accept(*words):
            self.fail(f"expected {' '.join(words)}, found {self.shown()}")

    def shown(self) -> str:
        """The next token for an error text."""
        if self.done:
            return "the end of the statement"
        return "a value that is not shown" if self._hides(self.peek()) else repr(self.peek().text)

    def _hides(self, token: Token) -> bool:
        """Whether a token must not be printed: the password among the options of an ingestion."""
        return may_hold_secrets(self.text) and any(a <= token.start < b for a, b in secret_spans(self.tokens))

    def error(self, message: str, position: int | None = None) -> SQLError:
        """A SQLError at the next token, or at `position`."""
        return error_at(message, self.text, self.peek().start if position is None else position)

    def fail(self, message: str, position: int | None = None) -> NoReturn:
        """Raise `error`."""
        raise self.error(message, position)

    def refuse(self, feature: str, advice: str) -> NoReturn:
        """Raise Unsupported for the feature at the next token."""
        line, column = line_and_column(self.text, self.peek().start)
        raise Unsupported(f"{feature} is not supported (line {line}, column {column}). {advice}")

    def identifier(self, what: str) -> str:
        """An identifier, quoted or not."""
        if self.peek().kind not in IDENTIFIERS:
            self.fail(f"expected {what}, found {self.shown()}")
        return self.next().name

    def name(self, what: str) -> Name:
        """A dotted name."""
        parts = [self.identifier(what)]
        while self.accept("."):
            parts.append(self.identifier(what))
        return tuple(parts)

    def string(self, what: str) -> str:
        """A string literal's value; Spark's double quotes count too."""
        token = self.peek()
        if token.kind not in ("string", "quoted"):
            self.fail(f"expected {what} in quotes, found {self.shown()}")
        return string_value(self.next())

    def list_of_names(self, what: str) -> list[str]:
        """`(a, b)` as names."""
        self.expect("(")
        found = [self.identifier(what)]
        while self.accept(","):
            found.append(self.identifier(what))
        self.expect(")")
        return found

    def bracketed(self, what: str) -> Text:
        """What stands between the next opening parenthesis and its closing one."""
        if not self.sees("("):
            self.fail(f"expected '(' and {what}, found {self.shown()}")
        first = self.next()
        start = self.at
        self._skip_to_closing(first)
        inner = self.tokens[start : self.at - 1]
        return Text(self.text[inner[0].start : inner[-1].end], inner[0].start) if inner else Text("", first.end)

    def _skip_to_closing(self, first: Token) -> None:
        waiting = [_OPENING[first.text]]
        for place in range(self.at, len(self.tokens)):
            token = self.tokens[place]
            if token.kind != "op":
                continue
            if token.text in _OPENING:
                waiting.append(_OPENING[token.text])
            elif token.text in _CLOSING:
                if token.text != waiting.pop():
                    self.fail(f"unexpected {token.text!r}", token.start)
                if not waiting:
                    self.at = place + 1
                    return
        self.fail(f"this {first.text!r} is not closed", first.start)

    def until(
        self, what: str, *stops: str, stop_if: Callable[["Cursor"], bool] | None = None, angles: bool = False
    ) -> Text:
        """The text up to one of the words or symbols outside of brackets and CASE; not empty.

        With `angles` the signs < and > are brackets, as in STRUCT<a: INT>.
        """
        start, cases = self.at, 0
        while not self.done:
            token = self.peek()
            behind_dot = self.at > start and self.tokens[self.at - 1].text == "."
            word = "" if behind_dot else token.word
            if cases == 0 and (word in stops or (token.kind == "op" and token.text in stops)) and token.text:
                break
            if cases == 0 and stop_if is not None and not behind_dot and stop_if(self):
                break
            if token.kind == "op" and token.text in _CLOSING:
                break
            self.next()
            if token.kind == "op" and token.text in _OPENING:
                self._skip_to_closing(token)
            elif word == "CASE" or (angles and token.text == "<"):
                cases += 1
            elif cases and (word == "END" or (angles and token.text == ">")):
                cases -= 1
        if self.at == start:
            self.fail(f"expected {what}, found {self.shown()}")
        return Text(self.text[self.tokens[start].start : self.tokens[self.at - 1].end], self.tokens[start].start)

    def finish(self) -> None:
        """Raise when something is left over."""
        if not self.done:
            self.fail(f"unexpected {self.shown()}")


def string_value(token: Token) -> str:
    """The value of a string literal in any of DuckDB's forms, or in Spark's double quotes."""
    text = token.text
    if token.kind == "quoted":
        return text[1:-1].replace('""', '"')
    if text.startswith("$"):
        tag = text.index("$", 1) + 1
        return text[tag:-tag]
    if text[0] in "eE":
        return text[2:-1].replace("''", "'").encode("latin-1", "backslashreplace").decode("unicode_escape")
    return text[1:-1].replace("''", "'")
