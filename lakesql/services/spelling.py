"""Slips of the pen in the names of settings, one rule for all places that take them: SET, table properties, keyword
arguments of a handle, `options` of a procedure, `--set` of a command.

A `hoodie.` name that nobody here knows is let through, as Hudi does: it may be meant for another engine; but one that is
almost a known name is refused with the known one. A `lakesql.` name has to be one of ours. Values are checked where they
are read.
"""

import re
from collections.abc import Iterable
from difflib import get_close_matches

from lakesql.errors import SQLError
from lakesql.services.maintenance import SETTINGS as OF_SERVICES
from lakesql.stores.calls import BUDGET
from lakesql.stores.settings import SETTINGS as OF_STORES
from lakesql.write import names_of_settings as names
from lakesql.write.locks import SETTINGS as OF_LOCKS
from lakesql.write.settings import RETRIES
from lakesql.write.settings import SETTINGS as OF_WRITES

KNOWN = frozenset(
    k
    for k in (
        *names.SYNONYMS,
        *names.UNSUPPORTED,
        *names.ABSENT,
        *names.CHOICES,
        *names.OTHERS,
        *OF_WRITES,
        *OF_SERVICES,
        names.DUPLICATES,
        names.EVOLVE,
        *OF_LOCKS,
        BUDGET,
    )
    if k.startswith(("hoodie.", "lakesql."))
)
OURS = (
    names.DUPLICATES,
    RETRIES,
    names.EVOLVE,
    BUDGET,
    *OF_STORES,
    *(name for name in OF_SERVICES if name.startswith("lakesql.")),
)

_NEAR = (
    0.93  # no key of Hudi 1.2 that is not known here is this similar to a known one; a slip of one or two letters is
)
_NEAR_OURS = 0.8  # nobody else has names like these
_NEAR_BARE = 0.7
_WORDS_MIN, _LEFT_OUT_MAX = 3, 2  # held against the keys of Hudi 0.15, 1.0 and 1.2; those that are like this are known


def require_spelt(key: str, what: str) -> None:
    """SQLError when a `hoodie.` key is none of the known ones and almost one of them. `what`: setting, table property."""
    if meant := similar(key):
        raise SQLError(f"{what} {key} is unknown; did you mean {meant}?")


def similar(key: str) -> str:
    """The known name that a `hoodie.` key is almost; '' for a known one, and for one that is like none."""
    if key in KNOWN:
        return ""
    near = get_close_matches(key.lower(), KNOWN, 1, _NEAR) or _with_words_left_out(key.lower())
    return near[0] if near else ""


def _with_words_left_out(key: str) -> list[str]:
    """The one known name that has the words of the key, in their order or another, and at most two more."""
    words = _words(key)
    if len(words) < _WORDS_MIN:
        return []
    found = [
        name
        for name in KNOWN
        if len(known := _words(name)) - len(words) <= _LEFT_OUT_MAX
        and (_in_order(words, known) or sorted(words) == sorted(known))
    ]
    return found if len(found) == 1 else []


def _words(key: str) -> list[str]:
    return re.split(r"[._]", key)[1:]


def _in_order(words: list[str], known: list[str]) -> bool:
    rest = iter(known)
    return all(word in rest for word in words)


def require_known(key: str, what: str = "setting") -> None:
    """SQLError for a name that can be no setting, or is almost one that is known."""
    if key.startswith("lakesql.") and key not in OURS:
        near = get_close_matches(key.lower(), OURS, 1, _NEAR_OURS)
        meant = f"did you mean {near[0]}?" if near else f"lakesql has {', '.join(OURS[:-1])} and {OURS[-1]}."
        raise SQLError(f"{what} {key} is unknown; {meant}")
    if not key.startswith(("lakesql.", "hoodie.")):
        near = get_close_matches(f"hoodie.{key.lower().replace('_', '.')}", KNOWN, 1, _NEAR_BARE)
        meant = f" Did you mean {near[0]}?" if near else ""
        raise SQLError(f"{what} {key} is unknown; settings have names that begin with hoodie. or lakesql.{meant}")
    require_spelt(key, what)


def require_all_known(keys: Iterable[str], what: str = "setting") -> None:
    """As `require_known`, for each."""
    for key in keys:
        require_known(key, what)
