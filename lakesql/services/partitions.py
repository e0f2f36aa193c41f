"""Partitions that a call names: a slip of the pen is refused, since nothing would be done and nothing said."""

from collections.abc import Collection
from difflib import get_close_matches

from lakesql.errors import TableError
from lakesql.table.state import TableState

_SHOWN = 5


def named(state: TableState, partitions: Collection[str] | None) -> frozenset[str] | None:
    """The partition paths of the table that are meant, None for all. TableError for one that the table does not have."""
    if partitions is None:
        return None
    if isinstance(partitions, str):
        raise TableError(f"{state.path}: partitions={partitions!r}: give a list of partition paths.")
    wanted = [p.strip("/") for p in partitions]
    present = sorted({f.partition for f in state.files})
    for one in wanted:
        if one not in present:
            near = get_close_matches(one, present, 3) or present[:_SHOWN]
            more = ", ..." if len(present) > len(near) else ""
            raise TableError(
                f"{state.path}: there is no partition {one!r}; there are {', '.join(map(repr, near)) or 'none'}{more}. "
                "Nothing was planned."
            )
    return frozenset(wanted)
