"""The SQL of snapshot reads of states seen before: a relation is planned when it is made and again when it is fetched.

A plan follows from the state alone, from the mergers that are registered, and from the files of the deltas it names.
As long as the newest state is the same object, as `sql.instance` takes care of, and no delta went, its text holds.
"""

from collections.abc import Collection, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import duckdb

from lakesql.table import deltas, lists, live, mergers, read
from lakesql.table.state import TableState

STATES_MAX = 16
TEXT_MAX = 4 << 20  # characters: a table of some ten thousand files


@dataclass(frozen=True, slots=True)
class _Planned:
    state: TableState
    merger: object
    removals: int
    text: str
    paths: Collection[str]
    numbered: bool  # the text is for connections that know lists of files by number
    lists: Sequence[lists.FileList]


_known: dict[str, _Planned] = {}


def snapshot_sql(cur: duckdb.DuckDBPyConnection, state: TableState) -> str:
    """The query of a snapshot read of the newest state; errors as those of `read.plan` and `read.to_sql`."""
    merger, removals, numbered = mergers.find(state.config), deltas.removals(), lists.numbered()
    known = _known.get(state.path)
    same = known is not None and known.state is state and known.merger is merger
    if known is not None and same and (known.removals, known.numbered) == (removals, numbered):
        live.note(state.path, known.paths)
        if numbered:
            lists.held(known.lists)
        return known.text
    plan = read.plan(state)
    made: list[lists.FileList] = []
    with lists.by_number() if numbered else nullcontext(made) as made:
        text = read.to_sql(cur, plan)
    if len(text) <= TEXT_MAX:
        _known.pop(state.path, None)
        _known[state.path] = _Planned(state, merger, removals, text, plan.paths(), numbered, made)
        for path in list(_known)[:-STATES_MAX]:
            _known.pop(path, None)
    return text
