"""Completion in cells of `%lakesql` and `%%lakesql`: tables, columns, table functions, keywords and the magic's options."""

import re
import sys
from typing import TYPE_CHECKING, Any

import duckdb
from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher

from lakesql.errors import LakeError
from lakesql.notebook import options

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completion

    from lakesql.notebook.magic import LakeMagics

_OPTION = re.compile(r"(?:^|\s)--([\w-]*)$")
_MATCHERS: dict[int, Any] = {}


def add(shell: Any, magics: "LakeMagics") -> None:
    """Complete such cells from now on; other cells are as before."""

    @context_matcher(identifier="lakesql")  # type: ignore[untyped-decorator]
    def matcher(context: CompletionContext) -> SimpleMatcherResult:
        text = _sql_before(context)
        return _matches(shell, magics, text) if text is not None else _result([], "")

    _MATCHERS[id(shell)] = matcher
    shell.Completer.custom_matchers.append(matcher)


def remove(shell: Any) -> None:
    """Complete them as Python again."""
    matcher = _MATCHERS.pop(id(shell), None)
    if matcher in shell.Completer.custom_matchers:
        shell.Completer.custom_matchers.remove(matcher)


def _sql_before(context: CompletionContext) -> str | None:
    """What stands before the cursor in a cell or on a line of ours, None elsewhere."""
    lines = context.full_text.split("\n")[: context.cursor_line + 1]
    lines[-1] = lines[-1][: context.cursor_position]
    if lines[0].startswith("%%lakesql"):
        return "\n".join([lines[0].removeprefix("%%lakesql"), *lines[1:]])
    found = re.search(r"(?:^|=)\s*%lakesql\s(.*)$", lines[-1])
    return found[1] if found else None


def _matches(shell: Any, magics: "LakeMagics", text: str) -> SimpleMatcherResult:
    if "\n" not in text and (begun := _OPTION.search(text)):
        found = [f"--{name}" for name in options.NAMES if name.startswith(begun[1])]
        return _result([SimpleCompletion(text=t, type="param") for t in found], f"--{begun[1]}")
    words = _words(shell, magics, text)
    start = words[0].start_position if words else 0
    found = [c.text for c in words if c.start_position == start]
    return _result([SimpleCompletion(text=t, type="name") for t in found], text[len(text) + start :] if start else "")


def _words(shell: Any, magics: "LakeMagics", text: str) -> "list[Completion]":
    """What the shell of lakesql offers behind such a text; it has dot commands too, which notebooks do not."""
    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

    from lakesql.shell import Shell
    from lakesql.terminal import SqlCompleter

    if text.lstrip().startswith("."):
        return []
    try:
        completer = SqlCompleter(Shell(magics.connection(shell.user_ns), sys.stdout, sys.stderr))
        return list(completer.get_completions(Document(text), CompleteEvent()))
    except (LakeError, duckdb.Error):
        return []


def _result(found: list[SimpleCompletion], fragment: str) -> SimpleMatcherResult:
    return SimpleMatcherResult(completions=found, suppress=bool(found), matched_fragment=fragment)
