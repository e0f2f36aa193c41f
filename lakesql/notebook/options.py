"""What stands before the SQL of `%lakesql` and `%%lakesql`: options and their values. Pure."""

import re
from dataclasses import dataclass
from keyword import iskeyword

from lakesql.engines import ENGINES
from lakesql.errors import SQLError


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one magic."""

    df: str | None = None
    """Variable that takes the result as a pandas data frame; `pl`, `arrow` and `relation` accordingly."""
    pl: str | None = None
    arrow: str | None = None
    relation: str | None = None
    connection: str | None = None
    warehouse: str | None = None
    engine: str | None = None
    rows: int | None = None
    plot: bool = False
    explain: bool = False
    meta: bool = False
    help: bool = False

    @property
    def variables(self) -> dict[str, str]:
        """The variables that take the result: the kind of each by its name."""
        kinds = {"df": self.df, "pl": self.pl, "arrow": self.arrow, "relation": self.relation}
        return {name: kind for kind, name in kinds.items() if name is not None}


USAGE = """%lakesql [options] SQL, or %%lakesql [options] with the SQL in the lines below

  --df NAME           put the result into a variable: a pandas data frame
  --pl NAME           ... a polars data frame
  --arrow NAME        ... a pyarrow table
  --relation NAME     ... a DuckDB relation, which runs when it is used
  --plot              draw the result
  --explain           show the plan of the statement and run nothing
  --rows N            show this many rows at most
  --meta              show Hudi's columns of SELECT * too
  --warehouse DIR     tables are in this folder, from now on
  --engine NAME       where statements on Hudi tables run, from now on: duckdb or spark
  --connection NAME   run on the connection in this variable, from now on
  --help              show this

Without SQL: the connection and its tables."""

_VARIABLES = ("df", "pl", "arrow", "relation")
_VALUES = (*_VARIABLES, "connection", "warehouse", "engine", "rows")
_FLAGS = ("plot", "explain", "meta", "help")
NAMES = (*_VALUES, *_FLAGS)
_OPTION = re.compile(r"\s*--([A-Za-z][\w-]*)(?:=|[^\S\n]*)")
_VALUE = re.compile(r"""\s*(?:"([^"\n]*)"|'([^'\n]*)'|([^\s"']\S*))""")


def parse(line: str) -> tuple[Options, str]:
    """The options that begin a line, and the rest of it, which is SQL. SQLError for what is no option."""
    values: dict[str, str | int | bool] = {}
    at = 0
    while (found := _OPTION.match(line, at)) is not None:
        name, at = found[1].lower(), found.end()
        if name in _FLAGS:
            values[name] = True
            continue
        if name not in _VALUES:
            raise SQLError(f"%lakesql: --{found[1]} is unknown.\n\n{USAGE}")
        value = _VALUE.match(line, at)
        if value is None:
            raise SQLError(f"%lakesql: --{name} takes a value.\n\n{USAGE}")
        text, at = next(v for v in value.groups() if v is not None), value.end()
        values[name] = _checked(name, text)
    return Options(**values), line[at:].strip()  # type: ignore[arg-type]


def _checked(name: str, text: str) -> str | int:
    if name == "rows":
        if not text.isdecimal() or not int(text):
            raise SQLError(f"%lakesql: --rows {text}: give a number of rows, 1 or more.")
        return int(text)
    if name == "engine" and text not in ENGINES:
        raise SQLError(f"%lakesql: --engine {text}: use one of {', '.join(ENGINES)}.")
    if name not in ("warehouse", "engine") and (not text.isidentifier() or iskeyword(text)):
        raise SQLError(f"%lakesql: --{name} {text}: give the name of a Python variable.")
    return text
