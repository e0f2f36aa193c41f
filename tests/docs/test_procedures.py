"""`docs/procedures.md` lists every procedure as it is declared; `make regold` writes its table anew."""

import re
from pathlib import Path

from lakesql.procedures import PROCEDURES
from lakesql.procedures.help import ABSENT

PAGE = Path(__file__).parents[2] / "docs" / "procedures.md"
BEGIN, END = "<!-- procedures -->\n", "<!-- end -->\n"


def listed() -> str:
    """The two tables of the page, as the declarations have them."""
    lines = ["| procedure | parameters | what it does |", "|---|---|---|"]
    for name, procedure in sorted(PROCEDURES.items()):
        parameters = f"`{procedure.signature()}`" if procedure.all_parameters else ""
        lines.append(f"| `{name}` | {parameters} | {procedure.doc} |")
    lines += ["", "| of Hudi, not here | why |", "|---|---|"]
    lines += [f"| `{name}` | {reason} |" for name, reason in sorted(ABSENT.items())]
    return "\n".join(lines).replace("\\|", "|") + "\n"


def test_every_procedure_is_in_the_page(regold: bool) -> None:
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    found, after = rest.split(END)
    if regold:
        PAGE.write_text(before + BEGIN + listed() + END + after)
        return
    assert found == listed()


def test_procedures_named_in_the_text_exist() -> None:
    named = set(re.findall(r"CALL (\w+)\(", PAGE.read_text()))
    assert named <= set(PROCEDURES) | set(ABSENT)
    assert named
