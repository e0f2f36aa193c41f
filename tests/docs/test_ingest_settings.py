"""`docs/ingest/settings.md` lists every setting as the table of them has it; `make regold` writes that part anew."""

import re
from pathlib import Path

from lakesql.ingest.setting_keys import KEYS, OLDER, PASSED, SECTIONS, Key
from lakesql.ingest.setting_unused import FAMILIES, UNUSED
from lakesql.ingest.settings import job_of

PAGE = Path(__file__).parents[2] / "docs" / "ingest" / "settings.md"
BEGIN, END = "<!-- settings -->\n", "<!-- end -->\n"


def row(key: Key) -> str:
    older = "".join(f"<br>(`{name}`)" for name in key.older)
    default = "" if key.default is None else f"`{key.default}`" if key.default else "empty"
    topic = " Also for single topics." if key.per_topic and "dataset.specific.props" not in key.meaning else ""
    return f"| `{key.name}`{older} | {key.values} | {default} | {key.meaning}{topic} |"


def listed() -> str:
    """A table for each section, then the families and what is not used."""
    lines: list[str] = []
    for title, keys in SECTIONS.items():
        lines += [
            f"### {title}",
            "",
            "| setting | values | default | meaning |",
            "|---|---|---|---|",
            *map(row, keys),
            "",
        ]
    lines += ["### Passed on", "", "| beginning of the name | meaning |", "|---|---|"]
    lines += [f"| {', '.join(f'`{name}`' for name in names.split(', '))} | {why} |" for names, why in PASSED.items()]
    lines += ["", "### Not used", "", "| setting | why |", "|---|---|"]
    by_reason: dict[str, list[str]] = {}
    for name, why in (UNUSED | {f"{family}*": why for family, why in FAMILIES.items()}).items():
        by_reason.setdefault(why, []).append(f"`{name}`")
    lines += [f"| {', '.join(names)} | {why} |" for why, names in by_reason.items()]
    return "\n".join(lines) + "\n"


def test_every_setting_is_in_the_page(regold: bool) -> None:
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    found, after = rest.split(END)
    if regold:
        PAGE.write_text(before + BEGIN + listed() + END + after)
        return
    assert found == listed()


def test_the_example_of_the_page_is_a_job() -> None:
    example = re.search(r"```properties\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert example is not None
    settings = dict(line.split("=", 1) for line in example[1].splitlines())
    assert set(settings) - set(KEYS) - set(OLDER) == {"lakesql.table.primaryKey"}
    found = job_of(settings)
    assert (found.unused, found.unknown, found.notes) == ({}, {}, ())
    assert found.job.target.properties == {"primaryKey": "id"}
