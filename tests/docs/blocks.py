"""Runs the labelled code blocks of a page of the documents, in order, as a reader would: one folder, one connection.

    python    in one scope per page; what it prints is its output
    sql       on the connection `con` of the page's Python, else on `lakesql.connect()`; the rows of its last statement
    sh        one `lakesql ...` command per line, run in this process; its standard output
    json      is read, and must be JSON
    any       becomes a file, when the line above the fence is `<!-- file: name -->`
    text      what the block before printed; `...` stands for anything within a line, alone for all of it

Set-up that a reader does not need to see stands in a comment: `<!-- sql`, lines, `-->`; python alike.

A block without a label is not run: commands that need another program, outlines, sketches of files. A page that names the
broker 127.0.0.1:9092 gets the mock cluster under that name.
"""

import contextlib
import io
import json
import re
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import lakesql
from lakesql.cli import main

DOCS = Path(__file__).parents[2] / "docs"
_FENCE = re.compile(
    r"^(?:<!-- file: (?P<file>\S+) -->\n)?```(?P<language>\w+)\n(?P<body>.*?)^```$"
    r"|^<!-- (?P<hidden>sql|python)\n(?P<unseen>.*?)^-->$",
    re.M | re.S,
)
BROKER = "127.0.0.1:9092"


@dataclass(frozen=True)
class Block:
    """A labelled block, and the line of the page where its code begins."""

    language: str
    body: str
    line: int
    file: str | None = None


def blocks(text: str) -> list[Block]:
    """The labelled blocks of a page."""
    found = []
    for m in _FENCE.finditer(text):
        part = "unseen" if m["hidden"] else "body"
        found.append(Block(m["hidden"] or m["language"], m[part], text[: m.start(part)].count("\n") + 1, m["file"]))
    return found


@dataclass
class Page:
    """A page that runs: what its blocks share."""

    scope: dict[str, object] = field(default_factory=lambda: {"__name__": "page"})
    output: str = ""
    compared: int = 0
    own: "lakesql.Connection | None" = None

    def con(self) -> lakesql.Connection:
        """The connection that SQL runs on."""
        given = self.scope.get("con")
        if isinstance(given, lakesql.Connection):
            return given
        if self.own is None:
            self.own = lakesql.connect()
        return self.own

    def run(self, block: Block) -> None:
        """Run a block, or compare a `text` block with what the one before it printed."""
        if block.file is not None:
            Path(block.file).write_text(block.body)
        elif block.language == "text":
            assert_same(self.output, block)
            self.output, self.compared = "", self.compared + 1
        elif block.language == "python":
            out = io.StringIO()
            try:
                with contextlib.redirect_stdout(out):
                    exec(compile("\n" * (block.line - 1) + block.body, "page", "exec"), self.scope)
            except SystemExit as end:
                if end.code:
                    raise
            self.output = out.getvalue()
        elif block.language == "sql":
            self.output = "".join(f"{row}\n" for row in self.con().execute(block.body).fetchall())
        elif block.language == "json":
            json.loads(block.body)
        elif block.language == "sh":
            self.output = "".join(map(command, block.body.replace("\\\n", " ").splitlines()))
        else:
            raise AssertionError(f"line {block.line}: a block of {block.language} is neither run nor compared")


def command(line: str) -> str:
    """The standard output of one `lakesql ...` line; it must end with code 0."""
    words = shlex.split(line, comments=True)
    if not words:
        return ""
    assert words[0] == "lakesql", f"{line}: only lakesql is run here"
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out):
        patch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as end:
            main()
    assert not end.value.code, f"{line}: exit code {end.value.code}"
    return out.getvalue()


def assert_same(found: str, block: Block) -> None:
    """The output is that of a `text` block, where `...` is anything."""
    pattern = ".*".join(map(re.escape, block.body.split("...")))
    if not re.fullmatch(pattern, found, re.S if block.body == "...\n" else 0):
        assert found == block.body, f"the text in line {block.line}"


def run_page(text: str) -> int:
    """Run a page in the present folder; how many outputs were compared."""
    page = Page()
    try:
        for block in blocks(text):
            page.run(block)
    finally:
        given = page.scope.get("con")
        for con in (page.own, given):
            if isinstance(con, lakesql.Connection):
                con.close()
    return page.compared
